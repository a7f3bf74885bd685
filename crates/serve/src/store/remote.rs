//! Another NBD server as a store, so that a scheduler can stand before it.
//!
//! Each thread has a connection of its own with one request under way. A
//! server that does not promise that flushes cover other connections gets one.

use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use blklab_blk::IoStatus;
use blklab_nbd::wire::{Command, CommandFlags, ExportFlags, REPLY_FLAG_DONE, chunk};
use blklab_nbd::{BlockSizes, Negotiated, REPLY_HEAD_BYTES, ReplyHead, Request, Uri};

use super::threads::Threads;
use super::{Action, Nature, Segment, Work};
use crate::client::connect;

/// The longest piece in which zeroes or trims are asked for.
const MAX_RANGE_BYTES: u64 = 1 << 30;

/// An export of another server.
pub(crate) struct RemoteStore {
    nature: Nature,
    threads: Threads,
}

impl RemoteStore {
    /// Connects, `connections` times if the server allows it.
    pub(crate) fn connect(
        uri: &Uri,
        connections: usize,
        max_request_bytes: u32,
    ) -> Result<RemoteStore, String> {
        let (socket, negotiated) = connect(uri)?;
        let count = match negotiated.flags.has(ExportFlags::CAN_MULTI_CONN) {
            true => connections,
            false => 1,
        };
        let mut remotes = vec![Remote::new(socket, negotiated)];
        for _ in 1..count {
            let (socket, negotiated) = connect(uri)?;
            remotes.push(Remote::new(socket, negotiated));
        }
        let sizes = negotiated.block_sizes;
        let minimum = sizes.minimum.max(1);
        let maximum = sizes.maximum.min(max_request_bytes);
        let nature = Nature {
            size_bytes: negotiated.size_bytes - negotiated.size_bytes % u64::from(minimum),
            block_sizes: BlockSizes {
                minimum,
                preferred: sizes.preferred.clamp(minimum, maximum.max(minimum)),
                maximum: maximum.max(minimum),
            },
            write_cache: negotiated.flags.has(ExportFlags::SEND_FLUSH),
            read_only: negotiated.flags.has(ExportFlags::READ_ONLY),
        };
        let workers = remotes
            .into_iter()
            .map(|mut remote| move |work: &mut Work| remote.perform(work));
        let threads = Threads::start("remote", workers).map_err(|e| e.to_string())?;
        Ok(RemoteStore { nature, threads })
    }

    /// What it is like.
    pub(crate) fn nature(&self) -> Nature {
        self.nature
    }

    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    pub(crate) fn close(&mut self) {
        self.threads.end();
    }
}

/// One connection.
struct Remote {
    /// Reads and writes a Unix socket as well.
    stream: TcpStream,
    negotiated: Negotiated,
    cookie: u64,
    /// The connection cannot be followed any more.
    broken: bool,
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

impl Remote {
    fn new(socket: OwnedFd, negotiated: Negotiated) -> Remote {
        Remote {
            stream: TcpStream::from(socket),
            negotiated,
            cookie: 0,
            broken: false,
        }
    }

    fn has(&self, flag: ExportFlags) -> bool {
        self.negotiated.flags.has(flag)
    }

    fn perform(&mut self, work: &mut Work) -> IoStatus {
        if self.broken {
            return IoStatus::IoError;
        }
        match self.try_perform(work) {
            Ok(()) => IoStatus::Ok,
            Err(Fault::Refused(28)) => IoStatus::NoSpace,
            Err(Fault::Refused(95)) => IoStatus::NotSupported,
            Err(Fault::Refused(_)) => IoStatus::IoError,
            Err(Fault::Broken) => {
                self.broken = true;
                IoStatus::IoError
            }
        }
    }

    fn try_perform(&mut self, work: &mut Work) -> Result<(), Fault> {
        let forced = work.fua && self.has(ExportFlags::SEND_FUA);
        let flags = match forced {
            true => CommandFlags::FUA,
            false => CommandFlags::NONE,
        };
        match work.action {
            Action::Flush => self.flush()?,
            _ => {
                for segment in &mut work.segments {
                    self.one(work.action, flags, segment)?;
                }
            }
        }
        if work.fua && !forced {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        match self.has(ExportFlags::SEND_FLUSH) {
            true => self.ask(Command::Flush, CommandFlags::NONE, 0, 0, &[], &mut []),
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
        match action {
            Action::Read => {
                let length = length as u32;
                self.ask(Command::Read, flags, offset, length, &[], &mut segment.data)
            }
            Action::Write => {
                let length = length as u32;
                self.ask(
                    Command::Write,
                    flags,
                    offset,
                    length,
                    &segment.data,
                    &mut [],
                )
            }
            Action::Discard if !self.has(ExportFlags::SEND_TRIM) => Ok(()),
            Action::Discard => self.ranges(Command::Trim, flags, offset, length),
            Action::Zero {
                may_punch,
                only_fast,
            } => self.zero(flags, offset, length, may_punch, only_fast),
            Action::Flush => Ok(()),
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
        let mut pieces = [IoSlice::new(&head), IoSlice::new(data)];
        let mut left = &mut pieces[..];
        while left.iter().any(|piece| !piece.is_empty()) {
            match self.stream.write_vectored(left)? {
                0 => return Err(Fault::Broken),
                len => IoSlice::advance_slices(&mut left, len),
            }
        }
        self.reply(offset, into)
    }

    fn reply(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        let mut refused = None;
        // Bytes of a read that have come: all of them must.
        let mut filled = 0;
        loop {
            let mut bytes = [0; REPLY_HEAD_BYTES];
            self.stream.read_exact(&mut bytes[..16])?;
            let mut head = ReplyHead::decode(&bytes[..16]).map_err(|_| Fault::Broken)?;
            if head.is_none() {
                self.stream.read_exact(&mut bytes[16..])?;
                head = ReplyHead::decode(&bytes).map_err(|_| Fault::Broken)?;
            }
            match head.ok_or(Fault::Broken)?.0 {
                ReplyHead::Simple { cookie, error } => {
                    self.expect(cookie)?;
                    if error != 0 {
                        return Err(Fault::Refused(error));
                    }
                    return Ok(self.stream.read_exact(into)?);
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
                self.stream.read_exact(target)?;
                Ok(Piece::Data(length))
            }
            chunk::OFFSET_HOLE => {
                let start = self.place(offset)?;
                let mut bytes = [0; 4];
                self.stream.read_exact(&mut bytes)?;
                let length = u32::from_be_bytes(bytes) as usize;
                let end = start.checked_add(length).ok_or(Fault::Broken)?;
                into.get_mut(start..end).ok_or(Fault::Broken)?.fill(0);
                Ok(Piece::Data(length))
            }
            chunk::ERROR | chunk::ERROR_OFFSET => {
                let mut bytes = [0; 4];
                self.stream.read_exact(&mut bytes)?;
                let rest = u64::from(length).checked_sub(4).ok_or(Fault::Broken)?;
                std::io::copy(&mut (&self.stream).take(rest), &mut std::io::sink())?;
                Ok(Piece::Error(u32::from_be_bytes(bytes)))
            }
            _ => Err(Fault::Broken),
        }
    }

    /// Where in the request a chunk belongs.
    fn place(&mut self, offset: u64) -> Result<usize, Fault> {
        let mut bytes = [0; 8];
        self.stream.read_exact(&mut bytes)?;
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
