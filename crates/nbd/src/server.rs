//! The server's side of the handshake, until an export is chosen.

use crate::wire::*;
use crate::{Export, Session};

/// The longest accepted option, in bytes, which has space for a name and a few queries. Longer
/// options are skipped and refused.
const MAX_OPTION_BYTES: u32 = 64 * 1024;
/// The most options in a handshake before the client is disconnected.
const MAX_OPTIONS: u32 = 1024;

/// Use of TLS on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// TLS is not available.
    Off,
    /// The client may start TLS; exports that require it are then listed.
    Offered,
    /// The client must start TLS before all other options.
    Required,
    /// TLS has been started.
    Active,
}

/// The reason why a handshake fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The client set flags that were not offered.
    #[error("client flags {0:#x} ask for what was not offered")]
    ClientFlags(u32),
    /// The magic number of an option is wrong.
    #[error("an option starts with {0:#018x}")]
    OptionMagic(u64),
    /// EXPORT_NAME for an export that does not exist.
    #[error("no such export, and NBD_OPT_EXPORT_NAME has no way to say so")]
    UnknownExport,
    /// EXPORT_NAME without TLS for an export that requires it.
    #[error("the export needs TLS, and NBD_OPT_EXPORT_NAME has no way to say so")]
    TlsRequired,
    /// The client sent too many options.
    #[error("more than {MAX_OPTIONS} options")]
    TooManyOptions,
    /// An option other than EXPORT_NAME from a client without fixed newstyle.
    #[error("option {0} needs fixed newstyle, which the client did not confirm")]
    NotFixed(u32),
}

/// The result of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Index of the export.
    pub export: usize,
    /// Properties of the connection.
    pub session: Session,
}

/// The next step of the server's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerStep {
    /// Receive more bytes.
    More,
    /// Send `out`, start TLS, then call [`ServerHandshake::tls_started`].
    StartTls,
    /// Send `out`; requests follow.
    Ready(Chosen),
    /// Send `out` and close the connection.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    ClientFlags,
    Options,
    /// An option that is too long, with the number of its bytes still to be skipped.
    Skip {
        option: u32,
        left: u32,
    },
}

/// A server's handshake with a client.
#[derive(Clone, Debug)]
pub struct ServerHandshake {
    phase: Phase,
    tls: Tls,
    fixed: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` was selected.
    meta: Option<usize>,
    options: u32,
    shutting_down: bool,
}

impl ServerHandshake {
    /// Starts a handshake with a client; appends the greeting to `out`.
    pub fn start(tls: Tls, out: &mut Vec<u8>) -> ServerHandshake {
        out.extend_from_slice(&NBDMAGIC.to_be_bytes());
        out.extend_from_slice(&IHAVEOPT.to_be_bytes());
        out.extend_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        ServerHandshake {
            phase: Phase::ClientFlags,
            tls,
            fixed: false,
            no_zeroes: false,
            structured: false,
            meta: None,
            options: 0,
            shutting_down: false,
        }
    }

    /// Continues after TLS has been started. What was negotiated before is discarded, as the
    /// section on STARTTLS of the specification requires.
    pub fn tls_started(&mut self) {
        self.tls = Tls::Active;
        self.structured = false;
        self.meta = None;
    }

    /// From now on, replies to all options except ABORT with SHUTDOWN.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// Handles received bytes, appends the reply to `out`, and returns the number of bytes used;
    /// later bytes belong to the next phase.
    ///
    /// # Errors
    /// If the connection must be closed without a reply.
    pub fn step(
        &mut self,
        input: &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<(usize, ServerStep), HandshakeError> {
        let mut used = 0;
        loop {
            let left = &input[used..];
            let (len, step) = match self.phase {
                Phase::ClientFlags => self.client_flags(left)?,
                Phase::Options => self.option(left, exports, out)?,
                Phase::Skip { option, left: skip } => {
                    let len = left.len().min(skip as usize);
                    let rest = skip - len as u32;
                    self.phase = Phase::Skip { option, left: rest };
                    if rest == 0 {
                        self.phase = Phase::Options;
                        reply(out, option, REP_ERR_TOO_BIG, b"the option is too long");
                    }
                    (len, ServerStep::More)
                }
            };
            used += len;
            if step != ServerStep::More || len == 0 {
                return Ok((used, step));
            }
        }
    }

    fn client_flags(&mut self, input: &[u8]) -> Result<(usize, ServerStep), HandshakeError> {
        let Some(flags) = Reader::new(input).u32() else {
            return Ok((0, ServerStep::More));
        };
        if flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
            return Err(HandshakeError::ClientFlags(flags));
        }
        self.fixed = flags & u32::from(FLAG_FIXED_NEWSTYLE) != 0;
        self.no_zeroes = flags & u32::from(FLAG_NO_ZEROES) != 0;
        self.phase = Phase::Options;
        Ok((4, ServerStep::More))
    }

    fn option(
        &mut self,
        input: &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<(usize, ServerStep), HandshakeError> {
        let mut reader = Reader::new(input);
        match reader.u64() {
            Some(IHAVEOPT) => {}
            Some(other) => return Err(HandshakeError::OptionMagic(other)),
            None => return Ok((0, ServerStep::More)),
        }
        let (Some(code), Some(len)) = (reader.u32(), reader.u32()) else {
            return Ok((0, ServerStep::More));
        };
        if !self.fixed && code != OptionCode::ExportName as u32 {
            return Err(HandshakeError::NotFixed(code));
        }
        let is_new_option = len > MAX_OPTION_BYTES || reader.rest().len() >= len as usize;
        if is_new_option {
            self.options += 1;
            if self.options > MAX_OPTIONS {
                return Err(HandshakeError::TooManyOptions);
            }
        }
        if len > MAX_OPTION_BYTES {
            self.phase = Phase::Skip {
                option: code,
                left: len,
            };
            return Ok((16, ServerStep::More));
        }
        let Some(data) = reader.take(len as usize) else {
            return Ok((0, ServerStep::More));
        };
        let step = self.answer(code, data, exports, out)?;
        Ok((16 + data.len(), step))
    }

    fn answer(
        &mut self,
        code: u32,
        data: &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<ServerStep, HandshakeError> {
        let Some(option) = OptionCode::from_wire(code) else {
            reply(out, code, REP_ERR_UNSUP, b"unknown option");
            return Ok(ServerStep::More);
        };
        let needs_tls = self.tls == Tls::Required;
        match option {
            OptionCode::Abort => {
                reply(out, code, REP_ACK, b"");
                return Ok(ServerStep::Closed);
            }
            OptionCode::ExportName if needs_tls => return Err(HandshakeError::TlsRequired),
            OptionCode::ExportName => return self.export_name(data, exports, out),
            _ if self.shutting_down => {
                reply(out, code, REP_ERR_SHUTDOWN, b"the server is about to end");
            }
            OptionCode::StartTls => return Ok(self.start_tls(data, out)),
            _ if needs_tls => reply(out, code, REP_ERR_TLS_REQD, b"start TLS first"),
            OptionCode::List => self.list(data, exports, out),
            OptionCode::Info | OptionCode::Go => {
                return Ok(self.info(option, data, exports, out));
            }
            OptionCode::StructuredReply => {
                if data.is_empty() {
                    self.structured = true;
                    reply(out, code, REP_ACK, b"");
                } else {
                    reply(out, code, REP_ERR_INVALID, b"the option takes no data");
                }
            }
            OptionCode::ListMetaContext | OptionCode::SetMetaContext => {
                self.meta_context(option, data, exports, out);
            }
        }
        Ok(ServerStep::More)
    }

    /// Finds an export by name, if this connection may use it.
    fn find(&self, name: &[u8], exports: &[Export]) -> Result<usize, u32> {
        let named = exports.iter().position(|e| e.name.as_bytes() == name);
        // The empty name is the default export, which is the first unless one has the empty name.
        let first = (name.is_empty() && !exports.is_empty()).then_some(0);
        let index = named.or(first).ok_or(REP_ERR_UNKNOWN)?;
        if exports[index].tls_only && self.tls != Tls::Active {
            return Err(REP_ERR_TLS_REQD);
        }
        Ok(index)
    }

    fn export_name(
        &mut self,
        name: &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<ServerStep, HandshakeError> {
        let index = match self.find(name, exports) {
            Ok(index) if !self.shutting_down => index,
            Err(REP_ERR_TLS_REQD) => return Err(HandshakeError::TlsRequired),
            _ => return Err(HandshakeError::UnknownExport),
        };
        let export = &exports[index];
        out.extend_from_slice(&export.size_bytes.to_be_bytes());
        out.extend_from_slice(&export.flags_for(self.structured).bits().to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; 124]);
        }
        Ok(ServerStep::Ready(self.chosen(index)))
    }

    fn chosen(&self, export: usize) -> Chosen {
        Chosen {
            export,
            session: Session {
                structured: self.structured,
                // A context selected for another export is not used.
                base_allocation: self.structured && self.meta == Some(export),
            },
        }
    }

    fn start_tls(&self, data: &[u8], out: &mut Vec<u8>) -> ServerStep {
        let code = OptionCode::StartTls as u32;
        match self.tls {
            _ if !data.is_empty() => reply(out, code, REP_ERR_INVALID, b"the option takes no data"),
            Tls::Off => reply(out, code, REP_ERR_POLICY, b"no TLS on this connection"),
            Tls::Active => reply(out, code, REP_ERR_INVALID, b"TLS runs already"),
            Tls::Offered | Tls::Required => {
                reply(out, code, REP_ACK, b"");
                return ServerStep::StartTls;
            }
        }
        ServerStep::More
    }

    fn list(&self, data: &[u8], exports: &[Export], out: &mut Vec<u8>) {
        let code = OptionCode::List as u32;
        if !data.is_empty() {
            return reply(out, code, REP_ERR_INVALID, b"the option takes no data");
        }
        for export in exports {
            if export.tls_only && self.tls != Tls::Active {
                continue;
            }
            let (name, text) = (export.name.as_bytes(), export.description.as_bytes());
            let length = (name.len() as u32).to_be_bytes();
            reply_in_parts(out, code, REP_SERVER, &[&length, name, text]);
        }
        reply(out, code, REP_ACK, b"");
    }

    fn info(
        &mut self,
        option: OptionCode,
        data: &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> ServerStep {
        let code = option as u32;
        let Some((name, wanted)) = parse_info(data) else {
            reply(out, code, REP_ERR_INVALID, b"lengths do not add up");
            return ServerStep::More;
        };
        let index = match self.find(name, exports) {
            Ok(index) => index,
            Err(error) => {
                let why: &[u8] = match error {
                    REP_ERR_TLS_REQD => b"this export needs TLS",
                    _ => b"no such export",
                };
                reply(out, code, error, why);
                return ServerStep::More;
            }
        };
        let export = &exports[index];
        let wants = |info: u16| wanted.chunks_exact(2).any(|w| w == info.to_be_bytes());
        let takes_512 = !wants(INFO_BLOCK_SIZE) && option == OptionCode::Go;
        if takes_512 && export.block_sizes.minimum > 512 {
            // A client that does not request the block size may assume 512 bytes.
            let why = b"ask for NBD_INFO_BLOCK_SIZE: blocks are larger than 512 bytes";
            reply(out, code, REP_ERR_BLOCK_SIZE_REQD, why);
            return ServerStep::More;
        }
        self.append_info(export, code, wants, out);
        match option {
            OptionCode::Go => ServerStep::Ready(self.chosen(index)),
            _ => ServerStep::More,
        }
    }

    /// Appends the requested information about an export.
    fn append_info(
        &self,
        export: &Export,
        code: u32,
        wants: impl Fn(u16) -> bool,
        out: &mut Vec<u8>,
    ) {
        if wants(INFO_NAME) {
            let parts = [&INFO_NAME.to_be_bytes()[..], export.name.as_bytes()];
            reply_in_parts(out, code, REP_INFO, &parts);
        }
        if wants(INFO_DESCRIPTION) && !export.description.is_empty() {
            let parts = [
                &INFO_DESCRIPTION.to_be_bytes()[..],
                export.description.as_bytes(),
            ];
            reply_in_parts(out, code, REP_INFO, &parts);
        }
        let sizes = export.block_sizes;
        let parts = [
            &INFO_BLOCK_SIZE.to_be_bytes()[..],
            &sizes.minimum.to_be_bytes(),
            &sizes.preferred.to_be_bytes(),
            &sizes.maximum.to_be_bytes(),
        ];
        reply_in_parts(out, code, REP_INFO, &parts);
        let flags = export.flags_for(self.structured).bits().to_be_bytes();
        let parts = [
            &INFO_EXPORT.to_be_bytes()[..],
            &export.size_bytes.to_be_bytes(),
            &flags,
        ];
        reply_in_parts(out, code, REP_INFO, &parts);
        reply(out, code, REP_ACK, b"");
    }

    fn meta_context(
        &mut self,
        option: OptionCode,
        data: &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) {
        let code = option as u32;
        let set = option == OptionCode::SetMetaContext;
        if set {
            // The previous selection is discarded in any case.
            self.meta = None;
        }
        if !self.structured {
            return reply(
                out,
                code,
                REP_ERR_INVALID,
                b"choose structured replies first",
            );
        }
        let Some((name, queries)) = parse_meta(data) else {
            return reply(out, code, REP_ERR_INVALID, b"lengths do not add up");
        };
        let index = match self.find(name, exports) {
            Ok(index) => index,
            Err(error) => return reply(out, code, error, b"no such export"),
        };
        // An empty list of queries lists all contexts, but selects none.
        let all = !set && queries.is_empty();
        let named = queries
            .iter()
            .any(|&query| query == BASE_ALLOCATION.as_bytes() || (!set && query == b"base:"));
        if all || named {
            let id = if set { BASE_ALLOCATION_ID } else { 0 };
            let parts = [&id.to_be_bytes()[..], BASE_ALLOCATION.as_bytes()];
            reply_in_parts(out, code, REP_META_CONTEXT, &parts);
        }
        if set && named {
            self.meta = Some(index);
        }
        reply(out, code, REP_ACK, b"");
    }
}

/// Parses the data of INFO and GO: a name, and two bytes for each kind of information.
fn parse_info(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = Reader::new(data);
    let name = reader.string()?;
    let count = reader.u16()?;
    let wanted = reader.take(usize::from(count) * 2)?;
    (reader.rest().is_empty() && name.len() <= MAX_STRING_BYTES).then_some((name, wanted))
}

/// Parses the data of the metadata context options: a name and queries.
fn parse_meta(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut reader = Reader::new(data);
    let name = reader.string()?;
    let count = reader.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        let query = reader.string()?;
        if query.len() > MAX_STRING_BYTES {
            return None;
        }
        queries.push(query);
    }
    (reader.rest().is_empty() && name.len() <= MAX_STRING_BYTES).then_some((name, queries))
}

fn reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    reply_in_parts(out, option, kind, &[data]);
}

fn reply_in_parts(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(length as u32).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}
