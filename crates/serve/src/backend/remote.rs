//! Another NBD server, so that a scheduler can stand before it.
//!
//! Each thread has a connection of its own with one request under way. A
//! server that does not promise that flushes cover other connections gets one.
//!
//! A connection that breaks is made again, and its request sent again: every
//! request may be carried out twice. Only the promise of a flush cannot be
//! renewed, as the server may have lost what it had not written down: so the
//! first flush after a break fails if there was such data, as a drive's would.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use blklab_blk::IoStatus;
use blklab_nbd::wire::{Command, CommandFlags, ErrorCode, ExportFlags};
use blklab_nbd::{BlockSizes, Extent, Negotiated, ReplyBody, Request, Uri};

use super::workers::Workers;
use super::{
    Backend, BackendConfig, BackendInfo, BackendOptions, BackendRequest, BackendType, Completed,
    HOLE, OpenOptions, Operation, Owner, Segment, push_extent,
};
use crate::client::{Client, ClientSetup};

pub(super) const TYPE: BackendType = BackendType {
    name: "nbd",
    value_name: "URI",
    help: "Keep the data on another NBD server, with a scheduler before it",
    plural: "nbd",
    options: &["backend-threads", "reconnect"],
    configure,
};

/// How long a request waits for another server by default.
const DEFAULT_RECONNECT_S: u64 = 10;
/// Stands for no limit: a year.
const MAX_RECONNECT_S: u64 = 365 * 24 * 3600;
/// The longest range of one request for zeroes or a discard.
const MAX_RANGE_BYTES: u64 = 1 << 30;
/// Pauses between attempts to connect again.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A small read comes with its reply in one call; the data of a longer one goes
/// from the socket to its place.
const SETUP: ClientSetup = ClientSetup {
    base_allocation: true,
    room_bytes: 16 << 10,
};

/// Another server, and how it is used.
#[derive(Clone, Debug)]
struct RemoteOptions {
    uri: Uri,
    /// Connections, if the server allows several.
    connections: usize,
    /// For how long a request waits for a connection that broke.
    reconnect: Duration,
}

fn configure(uri: &OsStr, options: &BackendOptions) -> Result<BackendConfig, String> {
    let reconnect_s = options.reconnect_s.unwrap_or(DEFAULT_RECONNECT_S);
    if reconnect_s > MAX_RECONNECT_S {
        return Err(format!(
            "reconnect {reconnect_s}; it may be 0 to {MAX_RECONNECT_S}"
        ));
    }
    let remote = RemoteOptions {
        uri: Uri::parse(&uri.to_string_lossy())?,
        connections: options.threads()?,
        reconnect: Duration::from_secs(reconnect_s),
    };
    Ok(BackendConfig::new(move |options| {
        RemoteBackend::connect(&remote, options)
    }))
}

/// An export of another server.
struct RemoteBackend {
    info: BackendInfo,
    workers: Workers,
}

impl RemoteBackend {
    fn connect(options: &RemoteOptions, open: OpenOptions) -> Result<RemoteBackend, String> {
        let durability = Arc::default();
        let first = Remote::connect(options, &durability)?;
        let negotiated = first.client.negotiated;
        let count = match negotiated.flags.contains(ExportFlags::CAN_MULTI_CONN) {
            true => options.connections,
            false => 1,
        };
        let mut remotes = vec![first];
        for _ in 1..count {
            remotes.push(Remote::connect(options, &durability)?);
        }
        let workers = remotes
            .into_iter()
            .map(|mut remote| move |request: &mut BackendRequest| remote.perform(request));
        Ok(RemoteBackend {
            info: info_of(&negotiated, open),
            workers: Workers::start("remote", workers).map_err(|e| e.to_string())?,
        })
    }
}

impl Backend for RemoteBackend {
    fn info(&self) -> BackendInfo {
        self.info
    }

    fn submit(&mut self, request: BackendRequest, _completed: &mut Vec<Completed>) {
        self.workers.submit(request);
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.workers.event()]
    }

    fn reap(&mut self, completed: &mut Vec<Completed>) {
        self.workers.reap(completed);
    }

    fn close(&mut self) -> Result<(), String> {
        if !self.info.read_only {
            self.workers.submit(BackendRequest::flush(Owner::Close));
        }
        self.workers.stop();
        let mut completed: Vec<Completed> = Vec::new();
        self.workers.reap(&mut completed);
        let failed =
            |one: &Completed| one.request.owner == Owner::Close && one.status != IoStatus::Ok;
        match completed.iter().any(failed) {
            true => Err("the other server did not flush".to_string()),
            false => Ok(()),
        }
    }
}

fn info_of(negotiated: &Negotiated, open: OpenOptions) -> BackendInfo {
    let sizes = negotiated.block_sizes;
    let minimum = sizes.minimum.max(1);
    let maximum = sizes.maximum.min(open.max_request_bytes).max(minimum);
    BackendInfo {
        size_bytes: negotiated.size_bytes - negotiated.size_bytes % u64::from(minimum),
        block_sizes: BlockSizes {
            minimum,
            preferred: sizes.preferred.clamp(minimum, maximum),
            maximum,
        },
        write_cache: negotiated.flags.contains(ExportFlags::SEND_FLUSH),
        read_only: open.read_only || negotiated.flags.contains(ExportFlags::READ_ONLY),
        in_place: false,
    }
}

/// What all connections to one server know of its promises.
#[derive(Debug, Default)]
struct Durability {
    /// Breaks so far, each by whichever connection found it first.
    breaks: u64,
    /// Writes answered and not flushed.
    unflushed: u64,
    /// Such writes may be gone; the next flush says so.
    lost: bool,
}

impl Durability {
    /// Takes note that a connection broke which had outlived `outlived` breaks. If there were
    /// others since, it may be one of them that it shows.
    fn note_break(&mut self, outlived: u64, has_cache: bool) {
        if self.breaks == outlived {
            self.breaks += 1;
            self.lost |= has_cache && self.unflushed > 0;
            self.unflushed = 0;
        }
    }
}

/// One connection.
struct Remote {
    options: RemoteOptions,
    client: Client,
    cookie: u64,
    /// The connection cannot be followed any more.
    broken: bool,
    durability: Arc<Mutex<Durability>>,
    /// Breaks before the last answer on this connection, or before it was made.
    outlived: u64,
}

/// Why a request failed.
enum Fault {
    /// The server's error, by its number.
    Refused(u32),
    /// The connection broke.
    Broken,
}

impl Remote {
    fn connect(
        options: &RemoteOptions,
        durability: &Arc<Mutex<Durability>>,
    ) -> Result<Remote, String> {
        Ok(Remote {
            options: options.clone(),
            client: Client::connect(&options.uri, SETUP)?,
            cookie: 0,
            broken: false,
            durability: Arc::clone(durability),
            outlived: 0,
        })
    }

    fn has(&self, flag: ExportFlags) -> bool {
        self.client.negotiated.flags.contains(flag)
    }

    fn perform(&mut self, request: &mut BackendRequest) -> IoStatus {
        let end = Instant::now() + self.options.reconnect;
        loop {
            if self.broken && !self.restore(end) {
                return IoStatus::IoError;
            }
            let done = self.try_perform(request);
            if !matches!(done, Err(Fault::Broken)) {
                let breaks = self.durability().breaks;
                self.outlived = breaks;
            }
            match done {
                Ok(()) => return IoStatus::Ok,
                Err(Fault::Refused(error)) if error == ErrorCode::NoSpace as u32 => {
                    return IoStatus::NoSpace;
                }
                Err(Fault::Refused(error)) if error == ErrorCode::NotSupported as u32 => {
                    return IoStatus::NotSupported;
                }
                Err(Fault::Refused(_)) => return IoStatus::IoError,
                Err(Fault::Broken) => self.note_break(),
            }
            if Instant::now() >= end {
                return IoStatus::IoError;
            }
        }
    }

    fn durability(&self) -> std::sync::MutexGuard<'_, Durability> {
        self.durability
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn note_break(&mut self) {
        self.broken = true;
        let has_cache = self.has(ExportFlags::SEND_FLUSH);
        let outlived = self.outlived;
        self.durability().note_break(outlived, has_cache);
    }

    /// Connects again, where the same export is still there.
    fn restore(&mut self, end: Instant) -> bool {
        let mut pause = FIRST_PAUSE;
        loop {
            let breaks = self.durability().breaks;
            if let Ok(client) = Client::connect(&self.options.uri, SETUP) {
                if client.negotiated != self.client.negotiated {
                    eprintln!("blklab: the other server's export is not what it was");
                    return false;
                }
                self.client = client;
                self.outlived = breaks;
                self.broken = false;
                return true;
            }
            if Instant::now() + pause >= end {
                return false;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn try_perform(&mut self, request: &mut BackendRequest) -> Result<(), Fault> {
        let forced = request.fua && self.has(ExportFlags::SEND_FUA);
        let flags = match forced {
            true => CommandFlags::FUA,
            false => CommandFlags::empty(),
        };
        match request.operation {
            Operation::Flush => return self.flush(),
            Operation::Extents { max } => return self.block_status(request, max),
            operation => {
                for segment in &mut request.segments {
                    self.one(operation, flags, segment)?;
                }
            }
        }
        if request.operation != Operation::Read && !forced {
            self.durability().unflushed += 1;
        }
        match request.fua && !forced {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if !self.has(ExportFlags::SEND_FLUSH) {
            return Ok(());
        }
        let covered = self.durability().unflushed;
        self.send(Command::Flush, CommandFlags::empty(), (0, 0), &[])?;
        let mut durability = self.durability();
        durability.unflushed = durability.unflushed.saturating_sub(covered);
        match std::mem::take(&mut durability.lost) {
            true => Err(Fault::Refused(ErrorCode::Io as u32)),
            false => Ok(()),
        }
    }

    /// Extents of a range, as the other server tells them.
    fn block_status(&mut self, request: &mut BackendRequest, max: usize) -> Result<(), Fault> {
        let Some(&Segment { offset, length, .. }) = request.segments.first() else {
            return Ok(());
        };
        request.extents.clear();
        let mut left = length as u32;
        if !self.client.negotiated.session.base_allocation {
            // NBD's specification takes a range of unknown state for data.
            push_extent(&mut request.extents, left, 0);
            return Ok(());
        }
        let flags = match max {
            1 => CommandFlags::REQ_ONE,
            _ => CommandFlags::empty(),
        };
        let extents = self.send(Command::BlockStatus, flags, (offset, left), &[])?;
        for extent in extents {
            if left == 0 || request.extents.len() == max {
                break;
            }
            // The last one may reach beyond what was asked for.
            let bytes = extent.bytes.min(left);
            push_extent(&mut request.extents, bytes, extent.state & HOLE);
            left -= bytes;
        }
        match request.extents.is_empty() {
            true => Err(Fault::Broken),
            false => Ok(()),
        }
    }

    fn one(
        &mut self,
        operation: Operation,
        flags: CommandFlags,
        segment: &mut Segment,
    ) -> Result<(), Fault> {
        let (offset, length) = (segment.offset, segment.length);
        match operation {
            Operation::Read => {
                let range = (offset, length as u32);
                self.transfer(Command::Read, flags, range, &[], &mut segment.data)?;
                Ok(())
            }
            Operation::Write => {
                let range = (offset, length as u32);
                self.send(Command::Write, flags, range, &segment.data)?;
                Ok(())
            }
            Operation::Discard if !self.has(ExportFlags::SEND_TRIM) => Ok(()),
            Operation::Discard => self.ranges(Command::Trim, flags, offset, length),
            Operation::Zero {
                may_punch,
                only_fast,
            } => {
                let mut flags = flags;
                flags.set(CommandFlags::NO_HOLE, !may_punch);
                flags.set(CommandFlags::FAST_ZERO, only_fast);
                self.zero(flags, offset, length)
            }
            Operation::Flush | Operation::Extents { .. } => Ok(()),
        }
    }

    fn zero(&mut self, flags: CommandFlags, offset: u64, length: u64) -> Result<(), Fault> {
        let only_fast = flags.contains(CommandFlags::FAST_ZERO);
        if only_fast && !self.has(ExportFlags::SEND_FAST_ZERO) {
            return Err(Fault::Refused(ErrorCode::NotSupported as u32));
        }
        if self.has(ExportFlags::SEND_WRITE_ZEROES) {
            return self.ranges(Command::WriteZeroes, flags, offset, length);
        }
        let maximum = self.client.negotiated.block_sizes.maximum;
        let step = u64::from(maximum).min(1 << 20);
        let zeroes = vec![0; step.min(length) as usize];
        let mut at = offset;
        while at < offset + length {
            let len = (offset + length - at).min(step);
            let data = &zeroes[..len as usize];
            let forced = flags & CommandFlags::FUA;
            self.send(Command::Write, forced, (at, len as u32), data)?;
            at += len;
        }
        Ok(())
    }

    /// A command without data, in pieces that its 32 bits of length hold.
    fn ranges(
        &mut self,
        command: Command,
        flags: CommandFlags,
        offset: u64,
        length: u64,
    ) -> Result<(), Fault> {
        let mut at = offset;
        while at < offset + length {
            let len = (offset + length - at).min(MAX_RANGE_BYTES);
            self.send(command, flags, (at, len as u32), &[])?;
            at += len;
        }
        Ok(())
    }

    /// A request that reads no data, and its whole reply.
    fn send(
        &mut self,
        command: Command,
        flags: CommandFlags,
        range: (u64, u32),
        data: &[u8],
    ) -> Result<Vec<Extent>, Fault> {
        self.transfer(command, flags, range, data, &mut [])
    }

    /// A request of `range`, offset and length, and its whole reply; a read's
    /// data goes into `into`. Returns the extents of the reply.
    fn transfer(
        &mut self,
        command: Command,
        flags: CommandFlags,
        (offset, length): (u64, u32),
        data: &[u8],
        into: &mut [u8],
    ) -> Result<Vec<Extent>, Fault> {
        self.cookie += 1;
        let mut request = Request::new(command, self.cookie, offset, length);
        request.flags = flags;
        let mut head = Vec::new();
        request.encode(&mut head);
        let written = self.client.channel.write_both(&head, data);
        written.map_err(|_| Fault::Broken)?;
        self.reply(offset, into)
    }

    fn reply(&mut self, offset: u64, into: &mut [u8]) -> Result<Vec<Extent>, Fault> {
        let (mut refused, mut extents) = (None, Vec::new());
        // Bytes of a read that have come: all of them must.
        let mut filled = 0;
        loop {
            let reply = self.client.next_reply(|_| into.len());
            let Some(reply) = reply.map_err(|_| Fault::Broken)? else {
                self.client.receive().map_err(|_| Fault::Broken)?;
                continue;
            };
            // One request at a time: a reply to another makes no sense.
            if reply.cookie != self.cookie {
                return Err(Fault::Broken);
            }
            match reply.body {
                ReplyBody::Empty => {}
                ReplyBody::Error(error) => refused = Some(error),
                ReplyBody::Extents(found) => extents.extend(found),
                ReplyBody::Hole { offset: at, length } => {
                    let target = place(into, offset, at, length as usize)?;
                    target.fill(0);
                    filled += target.len();
                }
                ReplyBody::Data { offset: at, length } => {
                    let target = place(into, offset, at.unwrap_or(offset), length)?;
                    filled += target.len();
                    let read = self.client.read_data(target);
                    read.map_err(|_| Fault::Broken)?;
                }
            }
            if reply.is_last {
                break;
            }
        }
        match refused {
            Some(error) => Err(Fault::Refused(error)),
            None if filled < into.len() => Err(Fault::Broken),
            None => Ok(extents),
        }
    }
}

/// The part of a request's data, which starts at `offset`, that a chunk fills.
fn place(into: &mut [u8], offset: u64, at: u64, length: usize) -> Result<&mut [u8], Fault> {
    let start = at.checked_sub(offset);
    let start = start.and_then(|start| usize::try_from(start).ok());
    let end = start.and_then(|start| start.checked_add(length));
    let range = start.zip(end).ok_or(Fault::Broken)?;
    into.get_mut(range.0..range.1).ok_or(Fault::Broken)
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.broken {
            return;
        }
        let mut goodbye = Vec::new();
        Request::new(Command::Disconnect, 0, 0, 0).encode(&mut goodbye);
        // A disconnect is not answered.
        let _ = self.client.channel.write_all(&goodbye);
        self.client.channel.close_notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unflushed() -> Durability {
        Durability {
            unflushed: 3,
            ..Durability::default()
        }
    }

    #[test]
    fn a_break_is_counted_once_and_loses_what_was_not_flushed() {
        let mut durability = unflushed();
        // Two connections from before: the server died once.
        durability.note_break(0, true);
        assert!(std::mem::take(&mut durability.lost));
        durability.unflushed = 1;
        durability.note_break(0, true);
        assert_eq!((durability.breaks, durability.lost), (1, false));
        // One that had an answer since: the server died after it.
        durability.note_break(1, true);
        assert_eq!((durability.breaks, durability.lost), (2, true));
    }

    #[test]
    fn a_server_without_a_cache_loses_nothing() {
        let mut durability = unflushed();
        durability.note_break(0, false);
        assert!(!durability.lost);
    }
}
