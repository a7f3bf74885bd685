//! Another NBD server as a store, so that a scheduler can stand before it.
//!
//! Each thread has a connection of its own with one request under way. A
//! server that does not promise that flushes cover other connections gets one.
//!
//! A connection that breaks is made again, and its request sent again: every
//! request may be carried out twice. Only the promise of a flush cannot be
//! renewed, as the server may have lost what it had not written down: so the
//! first flush after a break fails if there was such data, as a drive's would.

use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use blklab_blk::IoStatus;
use blklab_nbd::wire::{
    BASE_ALLOCATION_ID, Command, CommandFlags, ExportFlags, REPLY_FLAG_DONE, STATE_HOLE,
    STATE_ZERO, chunk,
};
use blklab_nbd::{BlockSizes, Extent, Negotiated, REPLY_HEAD_BYTES, ReplyHead, Request, Uri};

use super::threads::Threads;
use super::{Action, Done, Nature, Owner, Segment, Work, push_extent};
use crate::channel::Channel;
use crate::client::connect;

/// The longest piece in which zeroes or trims are asked for.
const MAX_RANGE_BYTES: u64 = 1 << 30;
/// The longest list of extents that is taken.
const MAX_STATUS_BYTES: u32 = 1 << 20;
/// Pauses between attempts to connect again.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// An export of another server.
pub(crate) struct RemoteStore {
    nature: Nature,
    threads: Threads,
}

/// How another server is to be used.
#[derive(Clone, Debug)]
pub(crate) struct RemoteOptions {
    pub(crate) uri: Uri,
    /// Connections, if the server allows several.
    pub(crate) connections: usize,
    pub(crate) max_request_bytes: u32,
    /// For how long a request waits for a connection that broke.
    pub(crate) reconnect: Duration,
}

impl RemoteStore {
    /// Connects.
    pub(crate) fn connect(options: &RemoteOptions) -> Result<RemoteStore, String> {
        let first = Remote::connect(options, &Arc::default())?;
        let negotiated = first.negotiated;
        let count = match negotiated.flags.has(ExportFlags::CAN_MULTI_CONN) {
            true => options.connections,
            false => 1,
        };
        let durability = Arc::clone(&first.durability);
        let mut remotes = vec![first];
        for _ in 1..count {
            remotes.push(Remote::connect(options, &durability)?);
        }
        let workers = remotes
            .into_iter()
            .map(|mut remote| move |work: &mut Work| remote.perform(work));
        let threads = Threads::start("remote", workers).map_err(|e| e.to_string())?;
        let nature = nature(&negotiated, options.max_request_bytes);
        Ok(RemoteStore { nature, threads })
    }

    /// What it is like.
    pub(crate) fn nature(&self) -> Nature {
        self.nature
    }

    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Makes everything durable there, and ends.
    pub(crate) fn close(&mut self) -> Result<(), String> {
        if !self.nature.read_only {
            self.threads.submit(Work::flush(Owner::Closing));
        }
        self.threads.end();
        let mut done: Vec<Done> = Vec::new();
        self.threads.take_done(&mut done);
        let failed = |one: &Done| one.status != IoStatus::Ok;
        match done
            .iter()
            .any(|one| one.work.owner == Owner::Closing && failed(one))
        {
            true => Err("the other server did not flush".to_string()),
            false => Ok(()),
        }
    }
}

fn nature(negotiated: &Negotiated, max_request_bytes: u32) -> Nature {
    let sizes = negotiated.block_sizes;
    let minimum = sizes.minimum.max(1);
    let maximum = sizes.maximum.min(max_request_bytes).max(minimum);
    Nature {
        size_bytes: negotiated.size_bytes - negotiated.size_bytes % u64::from(minimum),
        block_sizes: BlockSizes {
            minimum,
            preferred: sizes.preferred.clamp(minimum, maximum),
            maximum,
        },
        write_cache: negotiated.flags.has(ExportFlags::SEND_FLUSH),
        read_only: negotiated.flags.has(ExportFlags::READ_ONLY),
    }
}

/// What all connections to one server know of its promises.
#[derive(Debug, Default)]
struct Durability {
    /// Breaks so far. A connection from before one has nothing new to tell.
    breaks: u64,
    /// Writes answered and not flushed.
    unflushed: u64,
    /// Such writes may be gone; the next flush says so.
    lost: bool,
}

/// One connection.
struct Remote {
    uri: Uri,
    reconnect: Duration,
    channel: Channel,
    negotiated: Negotiated,
    cookie: u64,
    /// The connection cannot be followed any more.
    broken: bool,
    durability: Arc<Mutex<Durability>>,
    /// Breaks before this connection was made.
    made_after: u64,
    extents: Vec<Extent>,
}

/// Why a request failed.
enum Fault {
    /// The server says so.
    Refused(u32),
    /// The connection broke.
    Broken,
}

impl From<std::io::Error> for Fault {
    fn from(_: std::io::Error) -> Fault {
        Fault::Broken
    }
}

impl From<rustix::io::Errno> for Fault {
    fn from(_: rustix::io::Errno) -> Fault {
        Fault::Broken
    }
}

/// `EIO` as it goes over the wire.
const EIO: u32 = 5;

impl Remote {
    fn connect(
        options: &RemoteOptions,
        durability: &Arc<Mutex<Durability>>,
    ) -> Result<Remote, String> {
        let (channel, negotiated) = connect(&options.uri, true)?;
        Ok(Remote {
            uri: options.uri.clone(),
            reconnect: options.reconnect,
            channel,
            negotiated,
            cookie: 0,
            broken: false,
            durability: Arc::clone(durability),
            made_after: 0,
            extents: Vec::new(),
        })
    }

    fn has(&self, flag: ExportFlags) -> bool {
        self.negotiated.flags.has(flag)
    }

    fn perform(&mut self, work: &mut Work) -> IoStatus {
        let end = Instant::now() + self.reconnect;
        loop {
            if self.broken && !self.restore(end) {
                return IoStatus::IoError;
            }
            match self.try_perform(work) {
                Ok(()) => return IoStatus::Ok,
                Err(Fault::Refused(28)) => return IoStatus::NoSpace,
                Err(Fault::Refused(95)) => return IoStatus::NotSupported,
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
        let made_after = self.made_after;
        let mut durability = self.durability();
        if durability.breaks == made_after {
            durability.breaks += 1;
            durability.lost |= has_cache && durability.unflushed > 0;
            durability.unflushed = 0;
        }
    }

    /// Connects again, where the same export is still there.
    fn restore(&mut self, end: Instant) -> bool {
        let mut pause = FIRST_PAUSE;
        loop {
            let breaks = self.durability().breaks;
            if let Ok((channel, negotiated)) = connect(&self.uri, true) {
                if negotiated != self.negotiated {
                    eprintln!("blklab: the other server's export is not what it was");
                    return false;
                }
                self.channel = channel;
                self.made_after = breaks;
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

    fn try_perform(&mut self, work: &mut Work) -> Result<(), Fault> {
        let forced = work.fua && self.has(ExportFlags::SEND_FUA);
        let flags = match forced {
            true => CommandFlags::FUA,
            false => CommandFlags::NONE,
        };
        match work.action {
            Action::Flush => return self.flush(),
            Action::Extents { max } => return self.status(work, max),
            _ => {
                for segment in &mut work.segments {
                    self.one(work.action, flags, segment)?;
                }
            }
        }
        if work.action != Action::Read && !forced {
            self.durability().unflushed += 1;
        }
        match work.fua && !forced {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if !self.has(ExportFlags::SEND_FLUSH) {
            return Ok(());
        }
        let covered = self.durability().unflushed;
        self.ask(Command::Flush, CommandFlags::NONE, 0, 0, &[], &mut [])?;
        let mut durability = self.durability();
        durability.unflushed = durability.unflushed.saturating_sub(covered);
        match std::mem::take(&mut durability.lost) {
            true => Err(Fault::Refused(EIO)),
            false => Ok(()),
        }
    }

    /// Extents of a range, as the other server tells them.
    fn status(&mut self, work: &mut Work, max: usize) -> Result<(), Fault> {
        let Some(&Segment { offset, length, .. }) = work.segments.first() else {
            return Ok(());
        };
        work.extents.clear();
        let length = length as u32;
        if !self.negotiated.session.base_allocation {
            // Nothing is known of it: the document lets that pass for data.
            push_extent(&mut work.extents, length, 0);
            return Ok(());
        }
        let flags = match max {
            1 => CommandFlags::REQ_ONE,
            _ => CommandFlags::NONE,
        };
        self.extents.clear();
        self.ask(Command::BlockStatus, flags, offset, length, &[], &mut [])?;
        let mut left = length;
        for extent in &self.extents {
            if left == 0 || work.extents.len() == max {
                break;
            }
            // The last one may reach beyond what was asked for.
            let bytes = extent.bytes.min(left);
            push_extent(
                &mut work.extents,
                bytes,
                extent.state & (STATE_HOLE | STATE_ZERO),
            );
            left -= bytes;
        }
        match work.extents.is_empty() {
            true => Err(Fault::Broken),
            false => Ok(()),
        }
    }

    fn one(
        &mut self,
        action: Action,
        flags: CommandFlags,
        segment: &mut Segment,
    ) -> Result<(), Fault> {
        let (offset, length) = (segment.offset, segment.length);
        let data = &mut segment.data;
        match action {
            Action::Read => self.ask(Command::Read, flags, offset, length as u32, &[], data),
            Action::Write => self.ask(Command::Write, flags, offset, length as u32, data, &mut []),
            Action::Discard if !self.has(ExportFlags::SEND_TRIM) => Ok(()),
            Action::Discard => self.ranges(Command::Trim, flags, offset, length),
            Action::Zero {
                may_punch,
                only_fast,
            } => self.zero(flags, offset, length, may_punch, only_fast),
            Action::Flush | Action::Extents { .. } => Ok(()),
        }
    }

    fn zero(
        &mut self,
        flags: CommandFlags,
        offset: u64,
        length: u64,
        may_punch: bool,
        only_fast: bool,
    ) -> Result<(), Fault> {
        let knows_fast = self.has(ExportFlags::SEND_FAST_ZERO);
        if only_fast && !knows_fast {
            return Err(Fault::Refused(95));
        }
        if self.has(ExportFlags::SEND_WRITE_ZEROES) {
            let mut flags = flags;
            if !may_punch {
                flags = flags.with(CommandFlags::NO_HOLE);
            }
            if only_fast {
                flags = flags.with(CommandFlags::FAST_ZERO);
            }
            return self.ranges(Command::WriteZeroes, flags, offset, length);
        }
        let step = u64::from(self.negotiated.block_sizes.maximum).min(1 << 20);
        let zeroes = vec![0; step.min(length) as usize];
        let mut at = offset;
        while at < offset + length {
            let len = (offset + length - at).min(step);
            let data = &zeroes[..len as usize];
            self.ask(Command::Write, flags, at, len as u32, data, &mut [])?;
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
            self.ask(command, flags, at, len as u32, &[], &mut [])?;
            at += len;
        }
        Ok(())
    }

    /// One request and its whole reply; a read's data goes into `into`.
    fn ask(
        &mut self,
        command: Command,
        flags: CommandFlags,
        offset: u64,
        length: u32,
        data: &[u8],
        into: &mut [u8],
    ) -> Result<(), Fault> {
        self.cookie += 1;
        let mut request = Request::new(command, self.cookie, offset, length);
        request.flags = flags;
        let mut head = Vec::new();
        request.encode(&mut head);
        self.channel.write_both(&head, data)?;
        self.reply(offset, into)
    }

    fn reply(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        let mut refused = None;
        // Bytes of a read that have come: all of them must.
        let mut filled = 0;
        loop {
            let mut bytes = [0; REPLY_HEAD_BYTES];
            self.channel.read_exact(&mut bytes[..16])?;
            let mut head = ReplyHead::decode(&bytes[..16]).map_err(|_| Fault::Broken)?;
            if head.is_none() {
                self.channel.read_exact(&mut bytes[16..])?;
                head = ReplyHead::decode(&bytes).map_err(|_| Fault::Broken)?;
            }
            match head.ok_or(Fault::Broken)?.0 {
                ReplyHead::Simple { cookie, error } => {
                    self.expect(cookie)?;
                    if error != 0 {
                        return Err(Fault::Refused(error));
                    }
                    return Ok(self.channel.read_exact(into)?);
                }
                ReplyHead::Chunk {
                    flags,
                    kind,
                    cookie,
                    length,
                } => {
                    self.expect(cookie)?;
                    match self.chunk(kind, length, offset, into)? {
                        Piece::Data(len) => filled += len,
                        Piece::Error(code) => refused = Some(code),
                        Piece::Nothing => {}
                    }
                    if flags & REPLY_FLAG_DONE != 0 {
                        break;
                    }
                }
            }
        }
        match refused {
            Some(code) => Err(Fault::Refused(code)),
            None if filled < into.len() => Err(Fault::Broken),
            None => Ok(()),
        }
    }

    fn expect(&self, cookie: u64) -> Result<(), Fault> {
        // One request at a time: a reply to another makes no sense.
        if cookie == self.cookie {
            Ok(())
        } else {
            Err(Fault::Broken)
        }
    }

    fn chunk(
        &mut self,
        kind: u16,
        length: u32,
        offset: u64,
        into: &mut [u8],
    ) -> Result<Piece, Fault> {
        match kind {
            chunk::NONE => Ok(Piece::Nothing),
            chunk::OFFSET_DATA => {
                let length = (length as usize).checked_sub(8).ok_or(Fault::Broken)?;
                let start = self.place(offset)?;
                let end = start.checked_add(length).ok_or(Fault::Broken)?;
                let target = into.get_mut(start..end).ok_or(Fault::Broken)?;
                self.channel.read_exact(target)?;
                Ok(Piece::Data(length))
            }
            chunk::OFFSET_HOLE => {
                let start = self.place(offset)?;
                let mut bytes = [0; 4];
                self.channel.read_exact(&mut bytes)?;
                let length = u32::from_be_bytes(bytes) as usize;
                let end = start.checked_add(length).ok_or(Fault::Broken)?;
                into.get_mut(start..end).ok_or(Fault::Broken)?.fill(0);
                Ok(Piece::Data(length))
            }
            chunk::ERROR | chunk::ERROR_OFFSET => {
                let mut bytes = [0; 4];
                self.channel.read_exact(&mut bytes)?;
                let rest = u64::from(length).checked_sub(4).ok_or(Fault::Broken)?;
                let mut message = (&mut self.channel).take(rest);
                std::io::copy(&mut message, &mut std::io::sink())?;
                Ok(Piece::Error(u32::from_be_bytes(bytes)))
            }
            chunk::BLOCK_STATUS => self.take_extents(length),
            _ => Err(Fault::Broken),
        }
    }

    fn take_extents(&mut self, length: u32) -> Result<Piece, Fault> {
        if !(12..=MAX_STATUS_BYTES).contains(&length) || !(length - 4).is_multiple_of(8) {
            return Err(Fault::Broken);
        }
        let mut bytes = vec![0; length as usize];
        self.channel.read_exact(&mut bytes)?;
        let words: Vec<u32> = bytes
            .as_chunks()
            .0
            .iter()
            .map(|word| u32::from_be_bytes(*word))
            .collect();
        if words[0] != BASE_ALLOCATION_ID {
            // Of a context that was not asked for.
            return Ok(Piece::Nothing);
        }
        let extents = words[1..].chunks_exact(2).map(|pair| Extent {
            bytes: pair[0],
            state: pair[1],
        });
        self.extents
            .extend(extents.filter(|extent| extent.bytes > 0));
        Ok(Piece::Nothing)
    }

    /// Where in the request a chunk belongs.
    fn place(&mut self, offset: u64) -> Result<usize, Fault> {
        let mut bytes = [0; 8];
        self.channel.read_exact(&mut bytes)?;
        let at = u64::from_be_bytes(bytes).checked_sub(offset);
        at.and_then(|at| usize::try_from(at).ok())
            .ok_or(Fault::Broken)
    }
}

/// What a chunk held.
enum Piece {
    Data(usize),
    Error(u32),
    Nothing,
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.broken {
            return;
        }
        let mut goodbye = Vec::new();
        Request::new(Command::Disconnect, 0, 0, 0).encode(&mut goodbye);
        // There is no answer to it.
        let _ = self.channel.write_all(&goodbye);
        self.channel.say_goodbye();
    }
}
