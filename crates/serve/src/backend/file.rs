//! A file or block device, read and written by threads or by the kernel's
//! asynchronous I/O.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blklab_blk::IoStatus;
use blklab_nbd::{BlockSizes, Extent};
use blklab_uring as uring;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use super::kernel_io::KernelIo;
use super::workers::Workers;
use super::{
    Backend, BackendConfig, BackendInfo, BackendOptions, BackendRequest, BackendType, Completed,
    HOLE, OpenOptions, Operation, Segment, push_extent, status_of, whole_blocks,
};
use crate::lock::open_with;

pub(super) const TYPE: BackendType = BackendType {
    name: "file",
    value_name: "PATH",
    help: "Keep the data in a file or block device",
    plural: "files",
    options: &["engine", "direct", "backend-threads"],
    configure,
};

/// Zeroes for where nothing faster than writing them is to be had.
static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

/// Aligned for direct I/O.
#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);

/// The kernel takes no more pieces in one call (`UIO_MAXIOV`).
const MAX_PIECES: usize = 1024;

/// A file, and how it is read and written.
#[derive(Clone)]
struct FileOptions {
    path: PathBuf,
    /// Past the page cache.
    direct: bool,
    threads: usize,
    kernel: Option<KernelEngine>,
}

/// The kernel's kinds of asynchronous I/O.
#[derive(Clone, Copy)]
enum KernelEngine {
    IoUring,
    Libaio,
}

fn configure(path: &OsStr, options: &BackendOptions) -> Result<BackendConfig, String> {
    let name = options.engine.as_deref().unwrap_or("psync");
    // What the kernel has no call for goes through one thread beside it.
    let (threads, kernel) = match (name, options.threads) {
        ("psync", _) => (options.threads()?, None),
        // glibc's POSIX AIO carries out the requests of one file one by one, in
        // one thread.
        ("posixaio", None | Some(1)) => (1, None),
        ("posixaio", Some(_)) => {
            return Err("posixaio has one thread for a file; use psync for more".to_string());
        }
        ("io_uring", None) => (1, Some(KernelEngine::IoUring)),
        ("libaio", None) => (1, Some(KernelEngine::Libaio)),
        ("io_uring" | "libaio", Some(_)) => {
            return Err(format!(
                "{name} has no threads of ours; leave backend-threads out"
            ));
        }
        _ => {
            return Err(format!(
                "there is no engine {name}; there are psync, posixaio, libaio and io_uring"
            ));
        }
    };
    let file = FileOptions {
        path: PathBuf::from(path),
        direct: options.direct,
        threads,
        kernel,
    };
    Ok(BackendConfig::new(move |options| {
        FileBackend::open(&file, options)
    }))
}

/// A file in use.
struct FileBackend {
    file: Arc<File>,
    info: BackendInfo,
    kernel: Option<KernelIo>,
    workers: Workers,
}

impl FileBackend {
    /// Opens a file that exists.
    fn open(options: &FileOptions, open: OpenOptions) -> Result<FileBackend, String> {
        let path = options.path.display();
        let file =
            open_file(&options.path, options.direct, open.read_only).map_err(
                |error| match error.kind() {
                    ErrorKind::NotFound => {
                        format!("{path}: there is no such file; truncate -s 1G {path} makes one")
                    }
                    _ => format!("{path}: {error}"),
                },
            )?;
        crate::lock(&file, !open.read_only).map_err(|e| format!("{path}: {e}"))?;
        let info = info_of(&file, options, open).map_err(|e| format!("{path}: {e}"))?;
        let file = Arc::new(file);
        let workers = (0..options.threads).map(|_| {
            let own = Arc::clone(&file);
            move |request: &mut BackendRequest| perform(&own, request)
        });
        let workers = Workers::start("file", workers).map_err(|e| format!("{path}: {e}"))?;
        let kernel = match options.kernel {
            Some(engine) => Some(KernelIo::new(kernel_engine(engine, &file)?)),
            None => None,
        };
        Ok(FileBackend {
            file,
            info,
            kernel,
            workers,
        })
    }

    /// Asks the file system where data is (`SEEK_DATA`, `SEEK_HOLE`).
    fn extents(&self, range: &Segment, max: usize, out: &mut Vec<Extent>) -> Result<(), Errno> {
        let end = range.offset + range.length;
        let mut at = range.offset;
        while at < end && out.len() < max {
            let data = match rustix::fs::seek(&*self.file, SeekFrom::Data(at)) {
                Ok(data) => data.clamp(at, end),
                Err(Errno::NXIO) => end,
                // A device or file system that cannot tell: all is data.
                Err(_) => {
                    push_extent(out, (end - at) as u32, 0);
                    return Ok(());
                }
            };
            if data > at {
                push_extent(out, (data - at) as u32, HOLE);
            }
            at = data;
            if data < end && out.len() < max {
                let hole = rustix::fs::seek(&*self.file, SeekFrom::Hole(data))?;
                at = hole.clamp(data + 1, end);
                push_extent(out, (at - data) as u32, 0);
            }
        }
        Ok(())
    }
}

impl Backend for FileBackend {
    fn info(&self) -> BackendInfo {
        self.info
    }

    fn submit(&mut self, mut request: BackendRequest, completed: &mut Vec<Completed>) {
        if let (Operation::Extents { max }, Some(range)) =
            (request.operation, request.segments.first())
        {
            // The file system knows without reading, so that no thread is needed.
            let found = self.extents(range, max, &mut request.extents);
            let status = found.map_or_else(status_of, |()| IoStatus::Ok);
            return completed.push(Completed { request, status });
        }
        let refused = match &mut self.kernel {
            Some(kernel) => kernel.submit(request),
            None => Err(request),
        };
        if let Err(request) = refused {
            self.workers.submit(request);
        }
    }

    #[inline]
    fn kick(&mut self) {
        if let Some(kernel) = &mut self.kernel {
            kernel.kick();
        }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        let kernel = self.kernel.iter().map(KernelIo::event);
        kernel.chain([self.workers.event()]).collect()
    }

    fn reap(&mut self, completed: &mut Vec<Completed>) {
        self.workers.reap(completed);
        if let Some(kernel) = &mut self.kernel {
            kernel.reap(completed);
        }
    }

    fn prefetch(&self, offset: u64, length: u32) {
        let length = NonZeroU64::new(u64::from(length));
        // Advice: whether it is taken does not matter.
        let _ = rustix::fs::fadvise(&*self.file, offset, length, rustix::fs::Advice::WillNeed);
    }

    fn close(&mut self) -> Result<(), String> {
        self.workers.stop();
        if self.info.read_only {
            return Ok(());
        }
        rustix::fs::fdatasync(&*self.file).map_err(|e| e.to_string())
    }
}

fn kernel_engine(engine: KernelEngine, file: &Arc<File>) -> Result<Box<dyn uring::Engine>, String> {
    let file = Arc::clone(file);
    Ok(match engine {
        KernelEngine::IoUring => {
            Box::new(uring::Ring::new(file).map_err(|e| {
                format!("io_uring: {e}; the kernel has none or forbids it, use psync")
            })?)
        }
        KernelEngine::Libaio => Box::new(
            uring::Aio::new(file)
                .map_err(|e| format!("libaio: {e}; fs.aio-max-nr may be used up, use psync"))?,
        ),
    })
}

fn info_of(file: &File, options: &FileOptions, open: OpenOptions) -> Result<BackendInfo, String> {
    let metadata = file.metadata().map_err(|e| e.to_string())?;
    let is_device = metadata.file_type().is_block_device();
    if !metadata.is_file() && !is_device {
        return Err("neither a file nor a block device".to_string());
    }
    let size_bytes = rustix::fs::seek(file, SeekFrom::End(0)).map_err(|e| e.to_string())?;
    if size_bytes == 0 {
        return Err("it is empty; give it its size first, such as with truncate -s 1G".to_string());
    }
    let minimum = match (options.direct, is_device) {
        (false, _) => 1,
        (true, true) => rustix::fs::ioctl_blksszget(file).unwrap_or(4096),
        // A file's own limit is known only to its file system; every one of them
        // takes pages.
        (true, false) => 4096,
    };
    Ok(BackendInfo {
        // Direct I/O cannot reach a part of a block at the end.
        size_bytes: whole_blocks(&options.path.display().to_string(), size_bytes, minimum),
        block_sizes: BlockSizes {
            minimum,
            preferred: 4096,
            maximum: open.max_request_bytes,
        },
        write_cache: true,
        read_only: open.read_only,
        in_place: false,
    })
}

fn open_file(path: &Path, direct: bool, read_only: bool) -> std::io::Result<File> {
    let mut flags = OFlags::CLOEXEC;
    if direct {
        flags |= OFlags::DIRECT;
    }
    if !read_only {
        return open_with(path, flags);
    }
    let mut options = File::options();
    options.read(true).custom_flags(flags.bits() as i32);
    options.open(path)
}

/// Carries a request out; may sleep.
fn perform(file: &File, request: &mut BackendRequest) -> IoStatus {
    let done = match request.operation {
        Operation::Read => read(file, &mut request.segments),
        Operation::Write => write(file, &request.segments, request.fua),
        Operation::Flush => rustix::fs::fdatasync(file),
        // Completed as they are submitted.
        Operation::Extents { .. } => Ok(()),
        Operation::Discard => each(&request.segments, |offset, length| {
            discard(file, offset, length)
        }),
        Operation::Zero {
            may_punch,
            only_fast,
        } => each(&request.segments, |offset, length| {
            zero(file, offset, length, may_punch, only_fast)
        }),
    };
    let synced = done.and_then(|()| match request.operation {
        Operation::Discard | Operation::Zero { .. } if request.fua => rustix::fs::fdatasync(file),
        _ => Ok(()),
    });
    synced.map_or_else(status_of, |()| IoStatus::Ok)
}

fn each(
    segments: &[Segment],
    mut act: impl FnMut(u64, u64) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    segments.iter().try_for_each(|s| act(s.offset, s.length))
}

/// Reads segments that lie one behind the other, with as few calls as it takes.
fn read(file: &File, segments: &mut [Segment]) -> rustix::io::Result<()> {
    for run in segments.chunk_by_mut(|a, b| a.offset + a.length == b.offset) {
        for batch in run.chunks_mut(MAX_PIECES) {
            read_batch(file, batch)?;
        }
    }
    Ok(())
}

fn read_batch(file: &File, batch: &mut [Segment]) -> rustix::io::Result<()> {
    let Some(offset) = batch.first().map(|s| s.offset) else {
        return Ok(());
    };
    let mut pieces: Vec<IoSliceMut<'_>> = batch
        .iter_mut()
        .map(|s| IoSliceMut::new(&mut s.data))
        .collect();
    let (mut left, mut at) = (&mut pieces[..], offset);
    while !left.is_empty() {
        match rustix::io::preadv(file, left, at) {
            // The file became shorter: what is gone reads as zeroes.
            Ok(0) => {
                left.iter_mut().for_each(|piece| piece.fill(0));
                return Ok(());
            }
            Ok(len) => {
                at += len as u64;
                IoSliceMut::advance_slices(&mut left, len);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes segments that lie one behind the other, with as few calls as it takes.
fn write(file: &File, segments: &[Segment], fua: bool) -> rustix::io::Result<()> {
    for run in segments.chunk_by(|a, b| a.offset + a.length == b.offset) {
        for batch in run.chunks(MAX_PIECES) {
            write_batch(file, batch, fua)?;
        }
    }
    Ok(())
}

fn write_batch(file: &File, batch: &[Segment], fua: bool) -> rustix::io::Result<()> {
    let Some(offset) = batch.first().map(|s| s.offset) else {
        return Ok(());
    };
    let mut pieces: Vec<IoSlice<'_>> = batch.iter().map(|s| IoSlice::new(&s.data)).collect();
    let (mut left, mut at) = (&mut pieces[..], offset);
    let flags = match fua {
        true => ReadWriteFlags::DSYNC,
        false => ReadWriteFlags::empty(),
    };
    while !left.is_empty() {
        let written = match fua {
            true => rustix::io::pwritev2(file, left, at, flags),
            false => rustix::io::pwritev(file, left, at),
        };
        match written {
            Ok(0) => return Err(Errno::IO),
            Ok(len) => {
                at += len as u64;
                IoSlice::advance_slices(&mut left, len);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn discard(file: &File, offset: u64, length: u64) -> rustix::io::Result<()> {
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, punch, offset, length) {
        // A trim is a hint: where it cannot be taken it is passed over.
        Err(error) if is_not_possible(error) => Ok(()),
        other => other,
    }
}

/// Whether that is the error of a file or device that cannot do this with a range; a device
/// refuses parts of its blocks (`blkdev_fallocate`).
fn is_not_possible(error: Errno) -> bool {
    matches!(error, Errno::OPNOTSUPP | Errno::INVAL)
}

fn zero(
    file: &File,
    offset: u64,
    length: u64,
    may_punch: bool,
    only_fast: bool,
) -> rustix::io::Result<()> {
    let keep = FallocateFlags::KEEP_SIZE;
    let punch = FallocateFlags::PUNCH_HOLE | keep;
    let ways = [punch, FallocateFlags::ZERO_RANGE | keep];
    let first = if may_punch { 0 } else { 1 };
    for way in &ways[first..] {
        match rustix::fs::fallocate(file, *way, offset, length) {
            Err(error) if is_not_possible(error) => {}
            other => return other,
        }
    }
    if only_fast {
        return Err(Errno::OPNOTSUPP);
    }
    let (mut at, end) = (offset, offset + length);
    while at < end {
        let len = (end - at).min(ZEROES.0.len() as u64) as usize;
        match rustix::io::pwrite(file, &ZEROES.0[..len], at) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => at += written as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
