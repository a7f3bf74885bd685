//! Where an export's data is: a file a kind of back end.
//!
//! A back end carries out [`BackendRequest`]s: the requests that the block
//! layer issued, merged or not. Memory completes them at once; files and other
//! servers complete them later and make a file descriptor readable.
//!
//! A new kind is a file here that implements [`Backend`] and declares its
//! [`BackendType`], and an entry in [`all`].

mod buffers;
mod faulty;
mod file;
mod kernel_io;
mod memory;
mod null;
mod power;
mod remote;
mod workers;

use std::ffi::OsStr;
use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use blklab_blk::{IoStatus, RequestId, SECTOR_SIZE};
use blklab_device::DataFault;
use blklab_nbd::wire::{STATE_HOLE, STATE_ZERO};
use blklab_nbd::{BlockSizes, Extent};

use crate::parse_size;

pub(crate) use buffers::{Buffer, Buffers};
pub(crate) use faulty::FaultyBackend;
pub use memory::memory;
pub use null::null;
pub(crate) use power::{PowerBackend, PowerCuts};

/// The largest back end whose size is given.
pub(crate) const MAX_SIZE_BYTES: u64 = 1 << 50;
/// Threads or connections of a back end by default.
const DEFAULT_THREADS: usize = 8;

/// All kinds of back ends, in the order in which help lists them.
pub fn all() -> &'static [BackendType] {
    &[memory::TYPE, null::TYPE, file::TYPE, remote::TYPE]
}

/// A kind of back end.
pub struct BackendType {
    /// The option of `blklab serve`, and the key of a server's file.
    pub name: &'static str,
    /// What the option's value is called in help.
    pub value_name: &'static str,
    /// The option's help.
    pub help: &'static str,
    /// What back ends of this kind are called in messages, such as `files`.
    plural: &'static str,
    /// The names of the [`BackendOptions`] that it takes.
    options: &'static [&'static str],
    /// Checks the option's value and the further options.
    configure: fn(&OsStr, &BackendOptions) -> Result<BackendConfig, String>,
}

/// Further options of an export, which some back ends take.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendOptions {
    /// How a file is read and written.
    pub(crate) engine: Option<String>,
    /// Past the page cache.
    pub(crate) direct: bool,
    /// Threads that read and write a file, or connections to another server.
    pub(crate) threads: Option<usize>,
    /// For how long a request waits for another server that went away.
    pub(crate) reconnect_s: Option<u64>,
}

impl BackendOptions {
    /// The options that were given, by name.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        let options = [
            ("reconnect", self.reconnect_s.is_some()),
            ("engine", self.engine.is_some()),
            ("direct", self.direct),
            ("backend-threads", self.threads.is_some()),
        ];
        options
            .into_iter()
            .filter_map(|(name, is_given)| is_given.then_some(name))
    }

    /// The number of threads, within its bounds.
    fn threads(&self) -> Result<usize, String> {
        let threads = self.threads.unwrap_or(DEFAULT_THREADS);
        match threads {
            1..=1024 => Ok(threads),
            _ => Err(format!("{threads} backend-threads; it may be 1 to 1024")),
        }
    }
}

/// A back end that was checked and can be opened.
#[derive(Clone)]
pub struct BackendConfig {
    open: Arc<Open>,
}

type Open = dyn Fn(OpenOptions) -> Result<Box<dyn Backend>, String> + Send + Sync;

impl BackendConfig {
    fn new<B: Backend + 'static>(
        open: impl Fn(OpenOptions) -> Result<B, String> + Send + Sync + 'static,
    ) -> BackendConfig {
        BackendConfig {
            open: Arc::new(move |options| Ok(Box::new(open(options)?))),
        }
    }

    pub(crate) fn open(&self, options: OpenOptions) -> Result<Box<dyn Backend>, String> {
        (self.open)(options)
    }
}

impl fmt::Debug for BackendConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendConfig").finish_non_exhaustive()
    }
}

/// How a back end is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenOptions {
    /// Writes are refused before they reach it.
    pub(crate) read_only: bool,
    /// The longest read or write that clients may send.
    pub(crate) max_request_bytes: u32,
}

/// The back end that one of these choices names; `choices` are names of kinds
/// with their values.
pub(crate) fn configure(
    choices: &[(&str, &OsStr)],
    options: &BackendOptions,
) -> Result<BackendConfig, String> {
    let (name, value) = match choices {
        [one] => *one,
        [] => return Err(format!("no back end; give {}", list_of(all(), "or"))),
        _ => return Err(format!("several of {}; choose one", list_of(all(), "and"))),
    };
    let kind = all().iter().find(|kind| kind.name == name);
    let kind = kind.ok_or_else(|| format!("no back end {name}; give {}", list_of(all(), "or")))?;
    if let Some(option) = options.given().find(|o| !kind.options.contains(o)) {
        let takers = all().iter().filter(|kind| kind.options.contains(&option));
        let takers: Vec<&str> = takers.map(|kind| kind.plural).collect();
        let takers = takers.join(" and ");
        return Err(format!("{option} is for {takers}, not for {name}"));
    }
    (kind.configure)(value, options)
}

/// `a, b or c`.
fn list_of(kinds: &[BackendType], conjunction: &str) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    match names.split_last() {
        Some((last, rest)) => format!("{} {conjunction} {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// The size that the value of an option gives.
fn size_bytes(value: &OsStr) -> Result<u64, String> {
    let value = value.to_string_lossy();
    match parse_size(&value)? {
        bytes @ 1..=MAX_SIZE_BYTES => Ok(bytes),
        _ => Err(format!("a size of {value}; it may be 1 byte to 1024T")),
    }
}

/// A back end in use.
pub(crate) trait Backend: Send {
    /// Its size and abilities, which do not change.
    fn info(&self) -> BackendInfo;

    /// Takes a request. One that is complete at once is appended.
    fn submit(&mut self, request: BackendRequest, completed: &mut Vec<Completed>);

    /// Hands what was submitted on, where that waits for more to come.
    fn kick(&mut self) {}

    /// Readable when [`Backend::reap`] has something.
    fn events(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Appends what completed since.
    fn reap(&mut self, _completed: &mut Vec<Completed>) {}

    /// Says that a range will be read.
    fn prefetch(&self, _offset: u64, _length: u32) {}

    /// Gives what a range holds to `take`, piece after piece. Only called where
    /// [`BackendInfo::in_place`] says so.
    fn read_in_place(&self, _offset: u64, _length: u64, _take: &mut dyn FnMut(&[u8])) {}

    /// Has `fill` put data where a range is kept, piece after piece. Only called where
    /// [`BackendInfo::in_place`] says so.
    fn write_in_place(&mut self, _offset: u64, _length: u64, _fill: &mut dyn FnMut(&mut [u8])) {}

    /// Whether a range is known to be a hole without looking further.
    fn is_hole(&self, _offset: u64, _length: u64) -> bool {
        false
    }

    /// Bytes of memory that the data takes, where the data is in memory.
    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    /// Cuts the power, and gives it back once the data is what that leaves: until then every
    /// request fails. Goes on with [`Backend::reap`].
    ///
    /// # Errors
    /// Where the back end has no power to cut.
    fn cut_power(&mut self) -> Result<(), String> {
        Err("this export's power cannot be cut: start it with --power-cuts".to_string())
    }

    /// What power cuts did so far, where the power can be cut.
    fn power_cuts(&self) -> Option<PowerCuts> {
        None
    }

    /// Makes everything durable before the server ends.
    ///
    /// # Errors
    /// Where that failed.
    fn close(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// A back end's size and abilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackendInfo {
    pub(crate) size_bytes: u64,
    /// Sizes of requests that it takes.
    pub(crate) block_sizes: BlockSizes,
    /// Finished writes are not durable until flushed.
    pub(crate) write_cache: bool,
    pub(crate) read_only: bool,
    /// Reads and writes of data are not submitted: a read is carried out as its reply is
    /// written, a write takes its data from where the client has it. That saves a copy.
    pub(crate) in_place: bool,
}

impl BackendInfo {
    /// That of a back end in memory.
    fn of_memory(size_bytes: u64, options: OpenOptions) -> BackendInfo {
        BackendInfo {
            size_bytes,
            block_sizes: BlockSizes {
                minimum: 1,
                preferred: 4096,
                maximum: options.max_request_bytes,
            },
            write_cache: false,
            read_only: options.read_only,
            in_place: true,
        }
    }
}

/// A request to a back end.
#[derive(Debug)]
pub(crate) struct BackendRequest {
    pub(crate) owner: Owner,
    pub(crate) operation: Operation,
    /// On stable storage before it completes.
    pub(crate) fua: bool,
    /// Where; in order of place and without gaps.
    pub(crate) segments: Vec<Segment>,
    /// What is wrong with the data, of an export with faults.
    pub(crate) fault: Option<DataFault>,
    /// What [`Operation::Extents`] found.
    pub(crate) extents: Vec<Extent>,
}

impl BackendRequest {
    /// Makes finished writes durable.
    pub(crate) fn flush(owner: Owner) -> BackendRequest {
        BackendRequest {
            owner,
            operation: Operation::Flush,
            fua: false,
            segments: Vec::new(),
            fault: None,
            extents: Vec::new(),
        }
    }

    /// Reads into the whole of a buffer, or writes it, in one piece. Who submits it sets the owner.
    fn transfer(operation: Operation, offset: u64, data: Buffer) -> BackendRequest {
        let segment = Segment {
            io: 0,
            part: 0,
            offset,
            length: data.len() as u64,
            data,
        };
        BackendRequest {
            operation,
            segments: vec![segment],
            ..BackendRequest::flush(Owner::Close)
        }
    }
}

/// Where the reply to a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A request of the block layer.
    BlockLayer(RequestId),
    /// A client's request that passes the block layer by, by the number that its
    /// export gave it.
    Client(u32),
    /// A back end that makes several requests of one, by its own number.
    InnerIo(u32),
    /// The back end itself, which is about to close.
    Close,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Fills the segments.
    Read,
    /// Stores the segments.
    Write,
    /// Makes finished writes durable.
    Flush,
    /// Gives up what the segments' ranges hold.
    Discard,
    /// Makes the segments' ranges read as zeroes.
    Zero {
        /// The range may become a hole.
        may_punch: bool,
        /// Fail rather than write zeroes.
        only_fast: bool,
    },
    /// Tells data from holes in the first segment's range, in at most this many
    /// extents.
    Extents { max: usize },
}

/// One client's part of a request.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The client's request, by the number that its export gave it.
    pub(crate) io: u32,
    /// The index of its buffer in that request.
    pub(crate) part: u32,
    pub(crate) offset: u64,
    /// In bytes.
    pub(crate) length: u64,
    /// The data of a read or write.
    pub(crate) data: Buffer,
}

/// A request that completed.
#[derive(Debug)]
pub(crate) struct Completed {
    /// The request, with its buffers.
    pub(crate) request: BackendRequest,
    pub(crate) status: IoStatus,
}

/// Has a back end read, in whichever way it does.
fn read_from(inner: &mut dyn Backend, mut request: BackendRequest, completed: &mut Vec<Completed>) {
    if !inner.info().in_place {
        return inner.submit(request, completed);
    }
    for segment in &mut request.segments {
        let mut at = 0;
        let mut take = |piece: &[u8]| {
            segment.data[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        };
        inner.read_in_place(segment.offset, segment.length, &mut take);
    }
    completed.push(Completed {
        request,
        status: IoStatus::Ok,
    });
}

/// The bytes of a request.
fn range_of(request: &BackendRequest) -> Range<u64> {
    match (request.segments.first(), request.segments.last()) {
        (Some(first), Some(last)) => first.offset..last.offset + last.length,
        _ => 0..0,
    }
}

/// The same with the rest of its first and last sector.
fn sectors_of(request: &BackendRequest, size_bytes: u64) -> Range<u64> {
    let range = range_of(request);
    let start = range.start / SECTOR_SIZE * SECTOR_SIZE;
    start..range.end.next_multiple_of(SECTOR_SIZE).min(size_bytes)
}

/// What a range reads as that was never written, in pieces.
fn give_zeroes(mut length: u64, take: &mut dyn FnMut(&[u8])) {
    static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
    while length > 0 {
        let piece = length.min(ZEROES.len() as u64);
        take(&ZEROES[..piece as usize]);
        length -= piece;
    }
}

/// The state of an extent that holds nothing.
const HOLE: u32 = STATE_HOLE | STATE_ZERO;

/// Appends an extent, as part of the last where that is in the same state.
fn push_extent(out: &mut Vec<Extent>, bytes: u32, state: u32) {
    match out.last_mut() {
        Some(last) if last.state == state => last.bytes += bytes,
        _ => out.push(Extent { bytes, state }),
    }
}

/// The bytes of whole blocks of `size_bytes`. What clients cannot reach is said on standard error.
pub(crate) fn whole_blocks(name: &str, size_bytes: u64, block_bytes: u32) -> u64 {
    let rest = size_bytes % u64::from(block_bytes);
    if rest > 0 {
        eprintln!(
            "blklab: {name}: the last {rest} of {size_bytes} bytes are no block of {block_bytes}, \
             and clients do not see them"
        );
    }
    size_bytes - rest
}

/// The block layer's status for an error of the system.
fn status_of(error: rustix::io::Errno) -> IoStatus {
    use rustix::io::Errno;
    match error {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => IoStatus::NoSpace,
        Errno::OPNOTSUPP => IoStatus::NotSupported,
        _ => IoStatus::IoError,
    }
}
