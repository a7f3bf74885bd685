//! A file or block device, read and written by threads or by the kernel's
//! asynchronous I/O.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blklab_blk::IoStatus;
use blklab_nbd::wire::{STATE_HOLE, STATE_ZERO};
use blklab_nbd::{BlockSizes, Extent};
use blklab_uring as uring;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use super::kernel::KernelEngine;
use super::threads::Threads;
use super::{Action, Done, Nature, Segment, Work, push_extent, status_of};
use crate::config::FileEngine;

/// Zeroes for where nothing faster than writing them is to be had.
static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

/// Aligned for direct I/O.
#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);

/// The kernel takes no more pieces in one call (`UIO_MAXIOV`).
const MAX_PIECES: usize = 1024;

/// How a file is to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileOptions {
    pub(crate) path: PathBuf,
    /// Past the page cache.
    pub(crate) direct: bool,
    pub(crate) read_only: bool,
    pub(crate) engine: FileEngine,
    /// Longest request.
    pub(crate) max_request_bytes: u32,
}

/// A file that is served.
pub(crate) struct FileStore {
    file: Arc<File>,
    nature: Nature,
    engine: Engine,
}

/// How a file is read and written.
enum Engine {
    Threads(Threads),
    Kernel(KernelEngine),
}

impl Engine {
    fn start(file: &Arc<File>, options: &FileOptions) -> Result<Engine, String> {
        let threads = match options.engine {
            FileEngine::Threads(threads) => threads,
            FileEngine::IoUring | FileEngine::Libaio => 1,
        };
        let workers = (0..threads).map(|_| {
            let own = Arc::clone(file);
            move |work: &mut Work| perform(&own, work)
        });
        let threads = Threads::start("file", workers)
            .map_err(|e| format!("{}: {e}", options.path.display()))?;
        let kernel: Box<dyn uring::Engine> =
            match options.engine {
                FileEngine::Threads(_) => return Ok(Engine::Threads(threads)),
                FileEngine::IoUring => {
                    let ring = uring::Ring::new(Arc::clone(file));
                    Box::new(ring.map_err(|e| {
                        format!("io_uring: {e}; the kernel has none or forbids it, use psync")
                    })?)
                }
                FileEngine::Libaio => {
                    let aio = uring::Aio::new(Arc::clone(file));
                    Box::new(aio.map_err(|e| {
                        format!("libaio: {e}; fs.aio-max-nr may be used up, use psync")
                    })?)
                }
            };
        Ok(Engine::Kernel(KernelEngine::new(kernel, threads)))
    }
}

impl FileStore {
    /// Opens a file that exists.
    pub(crate) fn open(options: &FileOptions) -> Result<FileStore, String> {
        let path = options.path.display();
        let file = open(&options.path, options.direct, options.read_only)
            .map_err(|e| format!("{path}: {e}"))?;
        let kind = file.metadata().map_err(|e| format!("{path}: {e}"))?;
        let is_device = kind.file_type().is_block_device();
        if !kind.is_file() && !is_device {
            return Err(format!("{path}: neither a file nor a block device"));
        }
        let size_bytes =
            rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|e| format!("{path}: {e}"))?;
        if size_bytes == 0 {
            return Err(format!(
                "{path}: it is empty; give it its size first, such as with truncate -s 1G"
            ));
        }
        let minimum = match (options.direct, is_device) {
            (false, _) => 1,
            (true, true) => rustix::fs::ioctl_blksszget(&file).unwrap_or(4096),
            // A file's own limit is known only to its file system; what holds
            // for every one of them is the page.
            (true, false) => 4096,
        };
        let nature = Nature {
            // Direct I/O cannot reach a part of a block at the end.
            size_bytes: size_bytes - size_bytes % u64::from(minimum),
            block_sizes: BlockSizes {
                minimum,
                preferred: 4096,
                maximum: options.max_request_bytes,
            },
            write_cache: true,
            read_only: options.read_only,
        };
        let file = Arc::new(file);
        let engine = Engine::start(&file, options)?;
        Ok(FileStore {
            file,
            nature,
            engine,
        })
    }

    /// What it is like.
    pub(crate) fn nature(&self) -> Nature {
        self.nature
    }

    pub(crate) fn events(&self) -> Vec<BorrowedFd<'_>> {
        match &self.engine {
            Engine::Threads(threads) => vec![threads.event()],
            Engine::Kernel(kernel) => kernel.events().to_vec(),
        }
    }

    pub(crate) fn submit(&mut self, work: Work) {
        match &mut self.engine {
            Engine::Threads(threads) => threads.submit(work),
            Engine::Kernel(kernel) => kernel.submit(work),
        }
    }

    pub(crate) fn kick(&mut self) {
        if let Engine::Kernel(kernel) = &mut self.engine {
            kernel.kick();
        }
    }

    pub(crate) fn take_done(&mut self, out: &mut Vec<Done>) {
        match &mut self.engine {
            Engine::Threads(threads) => threads.take_done(out),
            Engine::Kernel(kernel) => kernel.take_done(out),
        }
    }

    pub(crate) fn close(&mut self) -> Result<(), String> {
        match &mut self.engine {
            Engine::Threads(threads) => threads.end(),
            Engine::Kernel(kernel) => kernel.end(),
        }
        if self.nature.read_only {
            return Ok(());
        }
        rustix::fs::fdatasync(&*self.file).map_err(|e| e.to_string())
    }

    pub(crate) fn prefetch(&self, offset: u64, length: u32) {
        let length = NonZeroU64::new(u64::from(length));
        // Advice: whether it is taken does not matter.
        let _ = rustix::fs::fadvise(&*self.file, offset, length, rustix::fs::Advice::WillNeed);
    }

    /// Asks the file system where data is (`SEEK_DATA`, `SEEK_HOLE`).
    pub(crate) fn extents(
        &self,
        offset: u64,
        length: u32,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), IoStatus> {
        let end = offset + u64::from(length);
        let mut at = offset;
        while at < end {
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
                push_extent(out, (data - at) as u32, STATE_HOLE | STATE_ZERO);
            }
            if data < end && out.len() < max {
                let hole =
                    rustix::fs::seek(&*self.file, SeekFrom::Hole(data)).map_err(status_of)?;
                push_extent(out, (hole.clamp(data + 1, end) - data) as u32, 0);
                at = hole.clamp(data + 1, end);
            } else {
                at = data;
            }
            if out.len() >= max {
                break;
            }
        }
        Ok(())
    }
}

fn open(path: &Path, direct: bool, read_only: bool) -> std::io::Result<File> {
    let mut flags = OFlags::CLOEXEC;
    if direct {
        flags |= OFlags::DIRECT;
    }
    std::fs::OpenOptions::new()
        .read(true)
        .write(!read_only)
        .custom_flags(flags.bits() as i32)
        .open(path)
}

/// Does one piece of work; may sleep.
fn perform(file: &File, work: &mut Work) -> IoStatus {
    let done = match work.action {
        Action::Read => read(file, &mut work.segments),
        Action::Write => write(file, &work.segments, work.fua),
        Action::Flush => rustix::fs::fdatasync(file),
        // Told at once, and never asked for.
        Action::Extents { .. } => Ok(()),
        Action::Discard => each(&work.segments, |offset, length| {
            discard(file, offset, length)
        }),
        Action::Zero {
            may_punch,
            only_fast,
        } => each(&work.segments, |offset, length| {
            zero(file, offset, length, may_punch, only_fast)
        }),
    };
    let synced = done.and_then(|()| match work.action {
        Action::Discard | Action::Zero { .. } if work.fua => rustix::fs::fdatasync(file),
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
        Err(Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
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
            Err(Errno::OPNOTSUPP) => {}
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
