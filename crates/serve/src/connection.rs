//! One client's connection: bytes in, requests out; replies in, bytes out.

use std::os::fd::BorrowedFd;

use blklab_blk::{SubmitterId, Waiter};
use blklab_nbd::wire::ErrorCode;
use blklab_nbd::{Refusal, Request, Session};
use rustix::io::Errno;

use crate::channel::Channel;
use crate::io::IoId;

/// Room for what one read of the socket brings.
const INPUT_BYTES: usize = 256 << 10;
/// A connection with more replies than this waiting to be read gets no further
/// request accepted.
pub(crate) const OUT_LIMIT_BYTES: usize = 2 << 20;
/// Memory of an empty list of replies beyond this is given back.
const OUT_KEEP_BYTES: usize = 1 << 20;
/// A client that waits for each answer is tried again after so many of them.
const LOOK_EVERY: u32 = 64;
/// Data at least this long goes from the socket to its place without a detour.
const DIRECT_BYTES: usize = 16 << 10;

/// What a connection is in the middle of receiving.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Nothing: a request comes next.
    Request,
    /// A write's data.
    Payload { io: IoId, filled: usize, len: usize },
    /// Data of a write that was refused; the reply goes out behind it.
    Unwanted {
        left: usize,
        cookie: u64,
        refusal: Refusal,
    },
}

/// Whether a connection is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// No.
    No,
    /// Requests in flight are finished and answered first.
    Soft,
    /// Nobody reads replies any more.
    Hard,
}

/// A connection in the transmission phase.
pub(crate) struct Connection {
    channel: Channel,
    pub(crate) session: Session,
    /// Its place among the export's connections.
    pub(crate) index: u32,
    pub(crate) submitter: SubmitterId,
    /// Its software queue.
    pub(crate) cpu: usize,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    pub(crate) incoming: Incoming,
    /// Replies; those before `sent` are out.
    pub(crate) out: Vec<u8>,
    sent: usize,
    /// It sleeps in the block layer.
    pub(crate) waiter: Option<Waiter>,
    /// Requests in the block layer, and their bytes of data.
    pub(crate) in_flight: u32,
    pub(crate) in_flight_bytes: u64,
    pub(crate) ending: Ending,
    /// What it is registered for: reading, writing.
    pub(crate) interest: Option<(bool, bool)>,
    /// It is looked at when the turn ends.
    pub(crate) listed: bool,
    /// Whether it had more to read the last time that was tried before an answer.
    streams: bool,
    /// Looks until that is tried again.
    until_look: u32,
    /// It stopped before a request with this much data, for lack of room.
    pub(crate) paused: Option<u64>,
}

/// What a read of the socket came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Something.
    Some,
    /// Nothing yet.
    Nothing,
    /// The client has closed its side, or is gone.
    End,
}

impl Connection {
    pub(crate) fn new(
        channel: Channel,
        session: Session,
        index: u32,
        submitter: SubmitterId,
        cpu: usize,
        early: &[u8],
    ) -> Connection {
        let mut input = vec![0; INPUT_BYTES.max(early.len())].into_boxed_slice();
        input[..early.len()].copy_from_slice(early);
        Connection {
            channel,
            session,
            index,
            submitter,
            cpu,
            input,
            start: 0,
            end: early.len(),
            incoming: Incoming::Request,
            out: Vec::new(),
            sent: 0,
            waiter: None,
            in_flight: 0,
            in_flight_bytes: 0,
            ending: Ending::No,
            interest: None,
            listed: false,
            streams: false,
            until_look: 0,
            paused: None,
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    /// What has been received and not used.
    #[inline]
    pub(crate) fn received(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    #[inline]
    pub(crate) fn consume(&mut self, len: usize) {
        self.start += len;
    }

    /// Whether it is worth looking for more before answering: it was the last
    /// time, or some time has passed.
    pub(crate) fn may_stream(&mut self) -> bool {
        if self.streams {
            return true;
        }
        self.until_look = self.until_look.saturating_sub(1);
        if self.until_look == 0 {
            self.until_look = LOOK_EVERY;
            return true;
        }
        false
    }

    /// Learns from a read whether the client sends without waiting.
    pub(crate) fn note_look(&mut self, received: Received) {
        if self.unsent_bytes() > 0 {
            self.streams = received == Received::Some;
        }
    }

    /// Replies that are not out yet.
    #[inline]
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Whether the socket has not taken everything yet.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent_bytes() > 0 || self.channel.holds_unsent()
    }

    /// Ends it, in order where the client still reads.
    pub(crate) fn close(mut self) {
        if self.ending == Ending::Soft {
            self.channel.say_goodbye();
        }
    }

    /// Whether its requests and replies allow one more of `bytes`.
    pub(crate) fn has_room(&self, bytes: u64, max_bytes: u64, max_requests: u32) -> bool {
        self.unsent_bytes() <= OUT_LIMIT_BYTES
            && self.in_flight < max_requests
            && (self.in_flight == 0 || self.in_flight_bytes + bytes <= max_bytes)
    }

    /// Whether nothing is left to do for it.
    pub(crate) fn is_over(&self) -> bool {
        let idle = self.in_flight == 0 && self.waiter.is_none();
        match self.ending {
            Ending::No => false,
            Ending::Soft => idle && !self.has_unsent(),
            Ending::Hard => idle,
        }
    }

    /// Reads what the socket has: `payload` is filled first, the rest is kept.
    /// Returns how much of the payload came.
    pub(crate) fn receive(&mut self, payload: Option<&mut [u8]>) -> (Received, usize) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let received = match payload {
            Some(payload) if payload.len() >= DIRECT_BYTES && self.end == 0 => {
                self.channel.read_vectored(payload, &mut self.input)
            }
            _ => {
                let room = &mut self.input[self.end..];
                self.channel.read(room).map(|len| (0, len))
            }
        };
        match received {
            Ok((0, 0)) => (Received::End, 0),
            Ok((filled, len)) => {
                self.end += len;
                (Received::Some, filled)
            }
            Err(Errno::AGAIN | Errno::INTR) => (Received::Nothing, 0),
            Err(_) => (Received::End, 0),
        }
    }

    /// Offers replies to the socket.
    pub(crate) fn send(&mut self) {
        while self.sent < self.out.len() {
            match self.channel.write(&self.out[self.sent..]) {
                Ok(len) => self.sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.ending = Ending::Hard;
                    break;
                }
            }
        }
        if let Err(error) = self.channel.push()
            && error != Errno::AGAIN
        {
            self.ending = Ending::Hard;
        }
        self.sent = 0;
        self.out.clear();
        if self.out.capacity() > OUT_KEEP_BYTES {
            self.out.shrink_to(OUT_KEEP_BYTES);
        }
    }

    /// Answers without data.
    pub(crate) fn answer(&mut self, request: Request, result: Result<(), Refusal>) {
        use blklab_nbd::{done, error, simple};
        match (result, self.session.structured) {
            (Ok(()), true) => done(&mut self.out, request.cookie),
            (Ok(()), false) => simple(&mut self.out, request.cookie, 0),
            (Err(refusal), true) => {
                error(&mut self.out, request.cookie, refusal.code, refusal.message);
            }
            (Err(refusal), false) => simple(&mut self.out, request.cookie, refusal.code as u32),
        }
    }
}

/// What a client hears of an error of the store.
pub(crate) fn refusal_of(status: blklab_blk::IoStatus) -> Refusal {
    use blklab_blk::IoStatus;
    let (code, message) = match status {
        IoStatus::NoSpace => (ErrorCode::NoSpace, "the store is full"),
        IoStatus::NotSupported => (ErrorCode::NotSupported, "not supported by the store"),
        _ => (ErrorCode::Io, "the store failed"),
    };
    Refusal { code, message }
}
