//! The client's side: the handshake, and the parser of replies.

use crate::reply::{Extent, ReplyHead};
use crate::wire::*;
use crate::{BlockSizes, Session};

/// The longest accepted reply to an option, in bytes.
const MAX_REPLY_BYTES: u32 = 64 * 1024;

/// The client's requests in the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Name of the export.
    pub export: String,
    /// Whether to use structured replies, if the server has them.
    pub structured: bool,
    /// Whether to use `base:allocation`, if the server has it.
    pub base_allocation: bool,
    /// Whether to use TLS; if the server has none, the handshake fails.
    pub tls: bool,
}

/// Result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Size of the export.
    pub size_bytes: u64,
    /// Transmission flags of the export.
    pub flags: ExportFlags,
    /// Block size constraints.
    pub block_sizes: BlockSizes,
    /// Properties of the connection.
    pub session: Session,
}

/// The next step of the client's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// Send `out` and receive more bytes.
    More,
    /// Start TLS, then call [`ClientHandshake::tls_started`].
    StartTls,
    /// The handshake is complete: requests may follow.
    Ready(Negotiated),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Greeting,
    StartTls,
    StructuredReply,
    MetaContext,
    Go,
    ExportName,
}

/// A client's handshake with a server.
#[derive(Clone, Debug)]
pub struct ClientHandshake {
    phase: Phase,
    wanted: ClientOptions,
    /// Whether the server pads its reply to EXPORT_NAME.
    padded: bool,
    got: Negotiated,
}

impl ClientHandshake {
    /// Returns a handshake that waits for the server's greeting.
    pub fn new(wanted: ClientOptions) -> ClientHandshake {
        ClientHandshake {
            phase: Phase::Greeting,
            wanted,
            padded: false,
            got: Negotiated {
                size_bytes: 0,
                flags: ExportFlags::default(),
                // The defaults that the protocol specifies.
                block_sizes: BlockSizes {
                    minimum: 512,
                    preferred: 4096,
                    maximum: 32 << 20,
                },
                session: Session::default(),
            },
        }
    }

    /// Handles received bytes, appends the reply to `out`, and returns the number of bytes used.
    ///
    /// # Errors
    /// If the server refuses or violates the protocol; the message says how.
    pub fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, ClientStep), String> {
        let mut used = 0;
        loop {
            let left = &input[used..];
            let (len, step) = match self.phase {
                Phase::Greeting => self.greeting(left, out)?,
                Phase::ExportName => self.export_name(left),
                _ => self.option_reply(left, out)?,
            };
            used += len;
            if step != ClientStep::More || len == 0 {
                return Ok((used, step));
            }
        }
    }

    /// Continues after TLS has been started; appends the next option to `out`.
    pub fn tls_started(&mut self, out: &mut Vec<u8>) {
        self.ask_next(Phase::StartTls, out);
    }

    fn greeting(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, ClientStep), String> {
        let mut reader = Reader::new(input);
        let (Some(magic), Some(style), Some(flags)) = (reader.u64(), reader.u64(), reader.u16())
        else {
            return Ok((0, ClientStep::More));
        };
        if magic != NBDMAGIC || style != IHAVEOPT {
            return Err("the server does not speak newstyle NBD".to_string());
        }
        if flags & FLAG_FIXED_NEWSTYLE == 0 {
            return Err("the server does not speak fixed newstyle NBD".to_string());
        }
        self.padded = flags & FLAG_NO_ZEROES == 0;
        let ours = u32::from(flags & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES));
        out.extend_from_slice(&ours.to_be_bytes());
        self.ask_next(Phase::Greeting, out);
        Ok((18, ClientStep::More))
    }

    /// Sends the option that follows `done`.
    fn ask_next(&mut self, done: Phase, out: &mut Vec<u8>) {
        let name = self.wanted.export.as_bytes();
        let length = (name.len() as u32).to_be_bytes();
        self.phase = match done {
            Phase::Greeting if self.wanted.tls => {
                option(out, OptionCode::StartTls, &[]);
                Phase::StartTls
            }
            Phase::Greeting | Phase::StartTls if self.wanted.structured => {
                option(out, OptionCode::StructuredReply, &[]);
                Phase::StructuredReply
            }
            Phase::Greeting | Phase::StartTls | Phase::StructuredReply
                if self.got.session.structured && self.wanted.base_allocation =>
            {
                let query = BASE_ALLOCATION.as_bytes();
                let query_length = (query.len() as u32).to_be_bytes();
                let one = 1u32.to_be_bytes();
                let parts = [&length[..], name, &one, &query_length, query];
                option(out, OptionCode::SetMetaContext, &parts);
                Phase::MetaContext
            }
            Phase::Go | Phase::ExportName => {
                option(out, OptionCode::ExportName, &[name]);
                Phase::ExportName
            }
            _ => {
                let wanted = [&1u16.to_be_bytes()[..], &INFO_BLOCK_SIZE.to_be_bytes()];
                option(out, OptionCode::Go, &[&length, name, wanted[0], wanted[1]]);
                Phase::Go
            }
        };
    }

    fn option_reply(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, ClientStep), String> {
        let mut reader = Reader::new(input);
        let head = (reader.u64(), reader.u32(), reader.u32(), reader.u32());
        let (Some(magic), Some(_), Some(kind), Some(length)) = head else {
            return Ok((0, ClientStep::More));
        };
        if magic != OPTION_REPLY_MAGIC {
            return Err(format!("a reply to an option starts with {magic:#x}"));
        }
        if length > MAX_REPLY_BYTES {
            return Err(format!("a reply to an option of {length} bytes"));
        }
        let Some(data) = reader.take(length as usize) else {
            return Ok((0, ClientStep::More));
        };
        let used = 20 + data.len();
        if kind & REP_ERROR_BIT != 0 {
            self.refused(kind, data, out)?;
            return Ok((used, ClientStep::More));
        }
        match (self.phase, kind) {
            (Phase::Go, REP_INFO) => self.learn(data)?,
            (Phase::Go, REP_ACK) => return Ok((used, ClientStep::Ready(self.got))),
            (Phase::MetaContext, REP_META_CONTEXT) => {
                self.got.session.base_allocation =
                    data.get(4..) == Some(BASE_ALLOCATION.as_bytes());
            }
            (Phase::StartTls, REP_ACK) => return Ok((used, ClientStep::StartTls)),
            (Phase::StructuredReply, REP_ACK) => {
                self.got.session.structured = true;
                self.ask_next(Phase::StructuredReply, out);
            }
            (state, REP_ACK) => self.ask_next(state, out),
            _ => {}
        }
        Ok((used, ClientStep::More))
    }

    fn refused(&mut self, kind: u32, data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let why = String::from_utf8_lossy(data);
        match (self.phase, kind) {
            // A client that requested TLS must never continue without it.
            (Phase::StartTls, _) => return Err(format!("the server has no TLS: {why}")),
            // A server without GO: EXPORT_NAME is used instead.
            (Phase::Go, REP_ERR_UNSUP) => self.ask_next(Phase::Go, out),
            (Phase::Go, REP_ERR_TLS_REQD) => {
                return Err("the server wants TLS; write nbds in place of nbd".to_string());
            }
            (Phase::Go, _) => {
                let number = kind & !REP_ERROR_BIT;
                return Err(format!(
                    "the server refuses the export {:?} (error {number}): {why}",
                    self.wanted.export
                ));
            }
            (state, _) => self.ask_next(state, out),
        }
        Ok(())
    }

    fn learn(&mut self, data: &[u8]) -> Result<(), String> {
        let mut reader = Reader::new(data);
        let short = || "a fact about the export is cut short".to_string();
        match reader.u16().ok_or_else(short)? {
            INFO_EXPORT => {
                self.got.size_bytes = reader.u64().ok_or_else(short)?;
                self.got.flags = ExportFlags::from_bits_retain(reader.u16().ok_or_else(short)?);
            }
            INFO_BLOCK_SIZE => {
                self.got.block_sizes = BlockSizes {
                    minimum: reader.u32().ok_or_else(short)?,
                    preferred: reader.u32().ok_or_else(short)?,
                    maximum: reader.u32().ok_or_else(short)?,
                };
            }
            _ => {}
        }
        Ok(())
    }

    fn export_name(&mut self, input: &[u8]) -> (usize, ClientStep) {
        let mut reader = Reader::new(input);
        let padding = if self.padded { 124 } else { 0 };
        let (Some(size_bytes), Some(flags), Some(_)) =
            (reader.u64(), reader.u16(), reader.take(padding))
        else {
            return (0, ClientStep::More);
        };
        self.got.size_bytes = size_bytes;
        self.got.flags = ExportFlags::from_bits_retain(flags);
        (10 + padding, ClientStep::Ready(self.got))
    }
}

fn option(out: &mut Vec<u8>, code: OptionCode, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&IHAVEOPT.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
    out.extend_from_slice(&(length as u32).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// The longest accepted list of extents, in bytes.
const MAX_STATUS_BYTES: u32 = 1 << 20;

/// A reply to a request, or a chunk of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Cookie of the request.
    pub cookie: u64,
    /// Whether it is the last chunk.
    pub is_last: bool,
    /// Contents of the reply.
    pub body: ReplyBody,
}

/// Contents of a reply or chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// Success without data.
    Empty,
    /// Data of a read, which follows and is taken with [`Replies::take_data`].
    Data {
        /// Offset of the data; `None` for the start of the request.
        offset: Option<u64>,
        /// Number of bytes that follow.
        length: usize,
    },
    /// A range of a read that is all zeroes.
    Hole {
        /// Offset of the range.
        offset: u64,
        /// Length of the range in bytes.
        length: u32,
    },
    /// Extents of `base:allocation`.
    Extents(Vec<Extent>),
    /// The request failed with this error number.
    Error(u32),
}

/// The error for bytes that are not a reply; the stream cannot be parsed further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The magic number is wrong.
    #[error("a reply starts with {0:#x}")]
    Magic(u32),
    /// A chunk that is not in the protocol.
    #[error("a chunk of type {kind} with {length} bytes")]
    Chunk {
        /// Type of the chunk.
        kind: u16,
        /// Length of the chunk in bytes.
        length: u32,
    },
}

/// Parser for a server's replies in the transmission phase, with its receive buffer.
#[derive(Debug)]
pub struct Replies {
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Number of data bytes before the next reply.
    data_left: usize,
}

impl Replies {
    /// Returns a parser with a buffer of `room_bytes`.
    ///
    /// # Panics
    /// If a reply without data would not fit.
    pub fn new(room_bytes: usize) -> Replies {
        assert!(room_bytes >= 64, "no room for a reply's head");
        Replies {
            input: vec![0; room_bytes],
            start: 0,
            end: 0,
            data_left: 0,
        }
    }

    /// The free part of the buffer; call [`Replies::received`] after filling it.
    pub fn room(&mut self) -> &mut [u8] {
        self.input.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        &mut self.input[self.end..]
    }

    /// Records how many bytes were received into the buffer.
    pub fn received(&mut self, len: usize) {
        self.end = (self.end + len).min(self.input.len());
    }

    /// Returns the next reply; `None` if more bytes must be received first. Data of the previous
    /// reply that was not taken is skipped. `read_bytes` returns the length of the read with a
    /// cookie, which a simple reply does not contain.
    ///
    /// # Errors
    /// If the bytes are not a reply.
    pub fn next_reply(
        &mut self,
        read_bytes: impl FnOnce(u64) -> usize,
    ) -> Result<Option<Reply>, ReplyError> {
        if !self.skip_data() {
            return Ok(None);
        }
        let input = &self.input[self.start..self.end];
        let Some((head, head_len)) = ReplyHead::decode(input).map_err(ReplyError::Magic)? else {
            return Ok(None);
        };
        let (reply, used, data_left) = match head {
            ReplyHead::Simple { cookie, error } => {
                let reply = simple_reply(cookie, error, read_bytes);
                let data_left = match reply.body {
                    ReplyBody::Data { length, .. } => length,
                    _ => 0,
                };
                (reply, 0, data_left)
            }
            ReplyHead::Chunk {
                flags,
                kind,
                cookie,
                length,
            } => {
                let Some((body, used)) = chunk_body(kind, length, &input[head_len..])? else {
                    self.make_room(kind, head_len + length as usize);
                    return Ok(None);
                };
                let is_last = flags & REPLY_FLAG_DONE != 0;
                let reply = Reply {
                    cookie,
                    is_last,
                    body,
                };
                (reply, used, length as usize - used)
            }
        };
        self.start += head_len + used;
        self.data_left = data_left;
        Ok(Some(reply))
    }

    /// Skips data of the previous reply. Returns `false` if more of it must be received.
    fn skip_data(&mut self) -> bool {
        let skipped = self.data_left.min(self.end - self.start);
        self.start += skipped;
        self.data_left -= skipped;
        self.data_left == 0
    }

    /// Enlarges the buffer for a list of extents, which must be received completely.
    fn make_room(&mut self, kind: u16, reply_len: usize) {
        if kind == chunk::BLOCK_STATUS && self.input.len() < reply_len {
            self.input.resize(self.start + reply_len, 0);
        }
    }

    /// Moves received data to the front of `into` and returns its length.
    pub fn take_data(&mut self, into: &mut [u8]) -> usize {
        let len = (self.end - self.start).min(self.data_left).min(into.len());
        into[..len].copy_from_slice(&self.input[self.start..self.start + len]);
        self.start += len;
        self.data_left -= len;
        len
    }

    /// Records that data of a reply was received directly into the caller's memory.
    pub fn data_received(&mut self, len: usize) {
        self.data_left = self.data_left.saturating_sub(len);
    }
}

fn simple_reply(cookie: u64, error: u32, read_bytes: impl FnOnce(u64) -> usize) -> Reply {
    let body = match error {
        0 => match read_bytes(cookie) {
            0 => ReplyBody::Empty,
            length => ReplyBody::Data {
                offset: None,
                length,
            },
        },
        error => ReplyBody::Error(error),
    };
    Reply {
        cookie,
        is_last: true,
        body,
    }
}

/// Parses a chunk's body without the data of a read; also returns its length. `None` while it is
/// incomplete.
fn chunk_body(
    kind: u16,
    length: u32,
    input: &[u8],
) -> Result<Option<(ReplyBody, usize)>, ReplyError> {
    let fault = ReplyError::Chunk { kind, length };
    let mut reader = Reader::new(input);
    let body = match (kind, length) {
        (chunk::NONE, 0) => Some((ReplyBody::Empty, 0)),
        (chunk::OFFSET_DATA, 9..) => reader.u64().map(|offset| {
            let length = length as usize - 8;
            let offset = Some(offset);
            (ReplyBody::Data { offset, length }, 8)
        }),
        (chunk::OFFSET_HOLE, 12) => match (reader.u64(), reader.u32()) {
            (Some(offset), Some(length)) => Some((ReplyBody::Hole { offset, length }, 12)),
            _ => None,
        },
        // A message in text follows the error.
        (chunk::ERROR | chunk::ERROR_OFFSET, 4..) => {
            reader.u32().map(|error| (ReplyBody::Error(error), 4))
        }
        (chunk::BLOCK_STATUS, 12..=MAX_STATUS_BYTES) if (length - 4).is_multiple_of(8) => {
            let payload = reader.take(length as usize);
            payload.map(|payload| (extents(payload), payload.len()))
        }
        _ => return Err(fault),
    };
    Ok(body)
}

fn extents(payload: &[u8]) -> ReplyBody {
    let mut reader = Reader::new(payload);
    let mut extents = Vec::new();
    if reader.u32() != Some(BASE_ALLOCATION_ID) {
        // A metadata context that was not requested.
        return ReplyBody::Empty;
    }
    while let (Some(bytes), Some(state)) = (reader.u32(), reader.u32()) {
        if bytes > 0 {
            extents.push(Extent { bytes, state });
        }
    }
    ReplyBody::Extents(extents)
}
