//! One client's connection in the transmission phase: its received bytes, its
//! replies, and what it has under way.

use std::os::fd::BorrowedFd;

use blklab_blk::{IoStatus, Nanos, Waiter};
use blklab_nbd::wire::ErrorCode;
use blklab_nbd::{REQUEST_BYTES, Refusal, Request, Session};
use rustix::io::Errno;

use super::io::IoId;
use super::shared::Client;
use crate::Clock;
use crate::net::{Arrival, Channel, ConnectionPermit};

/// Room for what one read of the socket brings.
const INPUT_BYTES: usize = 256 << 10;
/// A connection with more replies than this waiting to be read gets no further
/// request accepted.
pub(super) const OUT_LIMIT_BYTES: usize = 2 << 20;
/// Memory for replies beyond this is freed when they are sent.
const OUT_KEEP_BYTES: usize = 1 << 20;
/// With this many bytes of replies, they are sent before more is read.
const ENOUGH_REPLY_BYTES: usize = 128 << 10;
/// For a client that waits for each answer, one answer in this many is preceded
/// by another read.
const READ_AGAIN_EVERY: u32 = 64;
/// Data of this length or more is read from the socket to its place, and not
/// copied from the input.
const DIRECT_BYTES: usize = 16 << 10;

/// What a connection receives next.
#[derive(Debug)]
pub(super) enum Incoming {
    Request,
    /// A write's data.
    Payload {
        io: IoId,
        filled: usize,
        len: usize,
    },
    /// Data of a write that was refused; the reply follows it.
    Refused {
        left: usize,
        cookie: u64,
        refusal: Refusal,
    },
}

/// Whether a connection is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// No further request is read; those in flight are finished and answered.
    Draining,
    /// The client no longer reads replies.
    Broken,
}

/// A connection in the transmission phase.
pub(super) struct Connection {
    channel: Channel,
    pub(super) session: Session,
    /// Its index among the export's connections.
    pub(super) index: u32,
    pub(super) client: Client,
    /// What was received and not used is `input[start..end]`.
    input: Box<[u8]>,
    start: usize,
    end: usize,
    pub(super) incoming: Incoming,
    /// Replies; those before `sent` are sent.
    pub(super) out: Vec<u8>,
    sent: usize,
    /// Set while it sleeps in the block layer.
    pub(super) waiter: Option<Waiter>,
    /// Requests in the block layer, and their bytes of data.
    pub(super) in_flight: u32,
    pub(super) in_flight_bytes: u64,
    pub(super) phase: Phase,
    /// What epoll watches it for: reading, writing.
    pub(super) interest: Option<(bool, bool)>,
    /// It is in the list of connections whose replies are to be sent.
    pub(super) is_dirty: bool,
    /// Whether the last read before an answer brought more requests.
    streams: bool,
    /// Answers until that is tried again.
    until_read_again: u32,
    /// It stopped before a request with this much data, for lack of room.
    pub(super) paused: Option<u64>,
    /// Counts it among the server's connections.
    _permit: ConnectionPermit,
}

/// What a read of the socket brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Some,
    Nothing,
    /// The client closed its side, or is gone.
    End,
}

impl Connection {
    pub(super) fn new(arrival: Arrival, index: u32, client: Client) -> Self {
        let early = &arrival.early;
        let mut input = vec![0; INPUT_BYTES.max(early.len())].into_boxed_slice();
        input[..early.len()].copy_from_slice(early);
        Connection {
            session: arrival.session,
            index,
            client,
            input,
            start: 0,
            end: early.len(),
            incoming: Incoming::Request,
            out: Vec::new(),
            sent: 0,
            waiter: None,
            in_flight: 0,
            in_flight_bytes: 0,
            phase: Phase::Open,
            interest: None,
            is_dirty: false,
            streams: false,
            until_read_again: 0,
            paused: None,
            channel: arrival.channel,
            _permit: arrival.permit,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    /// What has been received and not used.
    #[inline]
    pub(super) fn received(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    #[inline]
    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
    }

    /// Whether to read again before answering: because the last read brought more
    /// requests, or because it is time to try.
    pub(super) fn reads_again(&mut self) -> bool {
        let unsent = self.unsent_bytes();
        let has_enough = unsent == 0 || unsent > ENOUGH_REPLY_BYTES;
        if has_enough || !self.takes_requests() || self.reads_directly() {
            return false;
        }
        if self.streams {
            return true;
        }
        self.until_read_again = self.until_read_again.saturating_sub(1);
        if self.until_read_again == 0 {
            self.until_read_again = READ_AGAIN_EVERY;
            return true;
        }
        false
    }

    /// Whether its next request may be taken.
    fn takes_requests(&self) -> bool {
        self.phase == Phase::Open && self.waiter.is_none() && self.paused.is_none()
    }

    /// Whether its client has all answers, and sends its next request only then.
    pub(super) fn awaits_one_request(&self) -> bool {
        let is_answered = self.in_flight == 0 && !self.has_unsent();
        self.takes_requests() && is_answered && !self.streams && self.received().is_empty()
    }

    /// Whether it is to receive data that is read to its place.
    pub(super) fn reads_directly(&self) -> bool {
        matches!(self.incoming, Incoming::Payload { filled, len, .. }
            if len - filled >= DIRECT_BYTES)
    }

    /// Polls for the client's next bytes until `end`, and reads them once.
    pub(super) fn poll_and_read(&mut self, clock: Clock, end: Nanos) -> Received {
        while clock.now() < end {
            let (received, _) = self.receive(None);
            if received != Received::Nothing {
                return received;
            }
            std::hint::spin_loop();
        }
        Received::Nothing
    }

    /// Waits for the client, as long as its channel allows, and reads once.
    pub(super) fn wait_and_read(&mut self) -> Received {
        if self.channel.wait_next_read() {
            return self.receive(None).0;
        }
        Received::Nothing
    }

    /// Reads once, if what came before is used up.
    pub(super) fn read_ahead(&mut self) -> Received {
        let is_used_up = self.received().len() < REQUEST_BYTES;
        if !is_used_up || !self.takes_requests() || self.reads_directly() {
            return Received::Some;
        }
        let (received, _) = self.receive(None);
        // Learns whether the client sends without waiting.
        if self.unsent_bytes() > 0 {
            self.streams = received == Received::Some;
        }
        received
    }

    /// Bytes of replies that are not sent.
    #[inline]
    pub(super) fn unsent_bytes(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Whether the socket has not taken everything yet.
    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        self.unsent_bytes() > 0 || self.channel.holds_unsent()
    }

    /// Closes it; a client that still reads sees the end.
    pub(super) fn close(mut self) {
        if self.phase == Phase::Draining {
            self.channel.close_notify();
        }
    }

    /// Whether its requests and replies allow one more of `bytes`.
    pub(super) fn has_room(&self, bytes: u64, max_bytes: u64, max_requests: u32) -> bool {
        self.unsent_bytes() <= OUT_LIMIT_BYTES
            && self.in_flight < max_requests
            && (self.in_flight == 0 || self.in_flight_bytes + bytes <= max_bytes)
    }

    /// Whether nothing is left to do for it.
    pub(super) fn is_over(&self) -> bool {
        let idle = self.in_flight == 0 && self.waiter.is_none();
        match self.phase {
            Phase::Open => false,
            Phase::Draining => idle && !self.has_unsent(),
            Phase::Broken => idle,
        }
    }

    /// Reads once: `payload` is filled first, the rest becomes input. Returns how
    /// much of the payload came.
    pub(super) fn receive(&mut self, payload: Option<&mut [u8]>) -> (Received, usize) {
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
            Ok((filled, len)) if filled + len > 0 => {
                self.end += len;
                (Received::Some, filled)
            }
            Err(Errno::AGAIN | Errno::INTR) => (Received::Nothing, 0),
            _ => {
                self.phase = Phase::Draining;
                (Received::End, 0)
            }
        }
    }

    /// Sends replies, as many as the socket takes.
    pub(super) fn send(&mut self) {
        while self.sent < self.out.len() {
            match self.channel.write(&self.out[self.sent..]) {
                Ok(len) => self.sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.phase = Phase::Broken;
                    break;
                }
            }
        }
        if let Err(error) = self.channel.push()
            && error != Errno::AGAIN
        {
            self.phase = Phase::Broken;
        }
        self.sent = 0;
        self.out.clear();
        if self.out.capacity() > OUT_KEEP_BYTES {
            self.out.shrink_to(OUT_KEEP_BYTES);
        }
    }

    /// Answers without data.
    pub(super) fn answer(&mut self, request: Request, result: Result<(), Refusal>) {
        use blklab_nbd::{error, simple, success};
        match (result, self.session.structured) {
            (Ok(()), _) => success(&mut self.out, self.session, &request),
            (Err(refusal), true) => {
                error(&mut self.out, request.cookie, refusal.code, refusal.message);
            }
            (Err(refusal), false) => simple(&mut self.out, request.cookie, refusal.code as u32),
        }
    }
}

/// The reply to a request that the back end failed.
pub(super) fn refusal_of(status: IoStatus) -> Refusal {
    let (code, message) = match status {
        IoStatus::NoSpace => (ErrorCode::NoSpace, "the back end is full"),
        IoStatus::NotSupported => (ErrorCode::NotSupported, "not supported by the back end"),
        _ => (ErrorCode::Io, "the back end failed"),
    };
    Refusal { code, message }
}
