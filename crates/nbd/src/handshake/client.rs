//! The client's side: from the greeting to an export in use.

use crate::bytes::Reader;
use crate::export::{BlockSizes, Session};
use crate::wire::*;

/// A server's reply to an option is not longer than this.
const MAX_REPLY_BYTES: u32 = 64 * 1024;

/// What a client would like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The export.
    pub export: String,
    /// Structured replies, where the server has them.
    pub structured: bool,
    /// `base:allocation`, where the server has it.
    pub base_allocation: bool,
    /// TLS, before anything else.
    pub tls: bool,
}

/// What it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Size of the export.
    pub size_bytes: u64,
    /// What it can do.
    pub flags: ExportFlags,
    /// Sizes of requests.
    pub block_sizes: BlockSizes,
    /// What was agreed on.
    pub session: Session,
}

/// Where a client's handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// Send what is to be sent; more bytes are needed.
    More,
    /// Go on under TLS, then call [`ClientHandshake::tls_started`].
    StartTls,
    /// Requests may follow.
    Ready(Negotiated),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    StartTls,
    StructuredReply,
    MetaContext,
    Go,
    ExportName,
}

/// A client's handshake with one server.
#[derive(Clone, Debug)]
pub struct ClientHandshake {
    state: State,
    wanted: Wanted,
    /// The server pads its answer to EXPORT_NAME.
    padded: bool,
    got: Negotiated,
}

impl ClientHandshake {
    /// Starts one.
    pub fn new(wanted: Wanted) -> ClientHandshake {
        ClientHandshake {
            state: State::Greeting,
            wanted,
            padded: false,
            got: Negotiated {
                size_bytes: 0,
                flags: ExportFlags::default(),
                // What the document lets a client take for granted.
                block_sizes: BlockSizes {
                    minimum: 512,
                    preferred: 4096,
                    maximum: 32 << 20,
                },
                session: Session::default(),
            },
        }
    }

    /// Goes through what came. Returns how many bytes of it are used up.
    ///
    /// # Errors
    /// Where this server will not do; the message says why.
    pub fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, ClientStep), String> {
        let mut used = 0;
        loop {
            let left = &input[used..];
            let (len, step) = match self.state {
                State::Greeting => self.greeting(left, out)?,
                State::ExportName => self.export_name(left),
                _ => self.option_reply(left, out)?,
            };
            used += len;
            if step != ClientStep::More || len == 0 {
                return Ok((used, step));
            }
        }
    }

    /// TLS runs: `out` gets what is asked next.
    pub fn tls_started(&mut self, out: &mut Vec<u8>) {
        self.ask_next(State::StartTls, out);
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
        self.ask_next(State::Greeting, out);
        Ok((18, ClientStep::More))
    }

    /// Sends the option that comes after `done`.
    fn ask_next(&mut self, done: State, out: &mut Vec<u8>) {
        let name = self.wanted.export.as_bytes();
        let length = (name.len() as u32).to_be_bytes();
        self.state = match done {
            State::Greeting if self.wanted.tls => {
                option(out, OptionCode::StartTls, &[]);
                State::StartTls
            }
            State::Greeting | State::StartTls if self.wanted.structured => {
                option(out, OptionCode::StructuredReply, &[]);
                State::StructuredReply
            }
            State::Greeting | State::StartTls | State::StructuredReply
                if self.got.session.structured && self.wanted.base_allocation =>
            {
                let query = BASE_ALLOCATION.as_bytes();
                let query_length = (query.len() as u32).to_be_bytes();
                let one = 1u32.to_be_bytes();
                let parts = [&length[..], name, &one, &query_length, query];
                option(out, OptionCode::SetMetaContext, &parts);
                State::MetaContext
            }
            State::Go | State::ExportName => {
                option(out, OptionCode::ExportName, &[name]);
                State::ExportName
            }
            _ => {
                let wanted = [&1u16.to_be_bytes()[..], &INFO_BLOCK_SIZE.to_be_bytes()];
                option(out, OptionCode::Go, &[&length, name, wanted[0], wanted[1]]);
                State::Go
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
        match (self.state, kind) {
            (State::Go, REP_INFO) => self.learn(data)?,
            (State::Go, REP_ACK) => return Ok((used, ClientStep::Ready(self.got))),
            (State::MetaContext, REP_META_CONTEXT) => {
                self.got.session.base_allocation =
                    data.get(4..) == Some(BASE_ALLOCATION.as_bytes());
            }
            (State::StartTls, REP_ACK) => return Ok((used, ClientStep::StartTls)),
            (State::StructuredReply, REP_ACK) => {
                self.got.session.structured = true;
                self.ask_next(State::StructuredReply, out);
            }
            (state, REP_ACK) => self.ask_next(state, out),
            _ => {}
        }
        Ok((used, ClientStep::More))
    }

    fn refused(&mut self, kind: u32, data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let why = String::from_utf8_lossy(data);
        match (self.state, kind) {
            // Never on without it, where it was asked for.
            (State::StartTls, _) => return Err(format!("the server has no TLS: {why}")),
            // A server without GO: the older way.
            (State::Go, REP_ERR_UNSUP) => self.ask_next(State::Go, out),
            (State::Go, REP_ERR_TLS_REQD) => {
                return Err("the server wants TLS; write nbds in place of nbd".to_string());
            }
            (State::Go, _) => {
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
                self.got.flags = ExportFlags(reader.u16().ok_or_else(short)?);
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
        self.got.flags = ExportFlags(flags);
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
