//! Requests: their 28 bytes, and the check against an export.

use crate::wire::Reader;
use crate::wire::{Command, CommandFlags, ErrorCode, ExportFlags, REQUEST_MAGIC};
use crate::{Export, Session};

/// Length of a request without its data.
pub const REQUEST_BYTES: usize = 28;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Command flags.
    pub flags: CommandFlags,
    /// Number of the command.
    pub code: u16,
    /// The client's number for the request, which is in the reply.
    pub cookie: u64,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// The error for bytes that are not a request; the stream cannot be parsed further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request starts with {0:#010x}, not with {REQUEST_MAGIC:#010x}")]
pub struct RequestError(pub u32);

/// The reason why an export refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error sent to the client.
    pub code: ErrorCode,
    /// The reason in text.
    pub message: &'static str,
}

impl Request {
    /// Returns a request for this command without flags.
    pub fn new(command: Command, cookie: u64, offset: u64, length: u32) -> Request {
        Request {
            flags: CommandFlags::empty(),
            code: command as u16,
            cookie,
            offset,
            length,
        }
    }

    /// Parses the request at the front of `bytes`; `None` while it is incomplete.
    ///
    /// # Errors
    /// If the magic number is wrong.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Option<Request>, RequestError> {
        let mut reader = Reader::new(bytes);
        match reader.u32() {
            None => return Ok(None),
            Some(REQUEST_MAGIC) => {}
            Some(other) => return Err(RequestError(other)),
        }
        Ok(Self::decode_body(&mut reader))
    }

    fn decode_body(reader: &mut Reader<'_>) -> Option<Request> {
        Some(Request {
            flags: CommandFlags::from_bits_retain(reader.u16()?),
            code: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            length: reader.u32()?,
        })
    }

    /// Appends the encoded request.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
        out.extend_from_slice(&self.flags.bits().to_be_bytes());
        out.extend_from_slice(&self.code.to_be_bytes());
        out.extend_from_slice(&self.cookie.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
    }

    /// The command, if its number is known.
    pub fn command(&self) -> Option<Command> {
        Command::from_wire(self.code)
    }

    /// Number of data bytes that follow the request.
    #[inline]
    pub fn payload_bytes(&self) -> u32 {
        match self.command() {
            Some(Command::Write) => self.length,
            _ => 0,
        }
    }

    /// Checks whether this export accepts the request on this connection.
    ///
    /// # Errors
    /// If it does not, with the error that the protocol specifies.
    pub fn check(&self, export: &Export, session: Session) -> Result<Command, Refusal> {
        let refuse = |code, message| Err(Refusal { code, message });
        let Some(command) = self.command() else {
            return refuse(ErrorCode::Invalid, "unknown command");
        };
        if !command.allowed_flags().contains(self.flags) {
            return refuse(ErrorCode::Invalid, "a flag that this command does not take");
        }
        let takes = |flag| export.flags.contains(flag);
        let offered = match command {
            Command::Flush => takes(ExportFlags::SEND_FLUSH),
            Command::Trim => takes(ExportFlags::SEND_TRIM),
            Command::Cache => takes(ExportFlags::SEND_CACHE),
            Command::WriteZeroes => takes(ExportFlags::SEND_WRITE_ZEROES),
            Command::BlockStatus => session.base_allocation,
            Command::Read | Command::Write | Command::Disconnect => true,
        };
        if command.modifies() && takes(ExportFlags::READ_ONLY) {
            return refuse(ErrorCode::Perm, "the export is read-only");
        }
        if !offered {
            return refuse(ErrorCode::Invalid, "not offered for this export");
        }
        self.check_flags(export, session)?;
        match command {
            Command::Flush | Command::Disconnect => {}
            _ => self.check_range(command, export)?,
        }
        Ok(command)
    }

    fn check_flags(&self, export: &Export, session: Session) -> Result<(), Refusal> {
        let refuse = |message| {
            Err(Refusal {
                code: ErrorCode::Invalid,
                message,
            })
        };
        if self.flags.contains(CommandFlags::FUA) && !export.flags.contains(ExportFlags::SEND_FUA) {
            return refuse("FUA is not offered");
        }
        if self.flags.contains(CommandFlags::FAST_ZERO)
            && !export.flags.contains(ExportFlags::SEND_FAST_ZERO)
        {
            return refuse("FAST_ZERO is not offered");
        }
        if self.flags.contains(CommandFlags::DF) && !session.structured {
            return refuse("DF needs structured replies");
        }
        Ok(())
    }

    fn check_range(&self, command: Command, export: &Export) -> Result<(), Refusal> {
        let refuse = |code, message| Err(Refusal { code, message });
        let end = self.offset.checked_add(u64::from(self.length));
        if end.is_none_or(|end| end > export.size_bytes) {
            let code = match command {
                Command::Write | Command::WriteZeroes => ErrorCode::NoSpace,
                _ => ErrorCode::Invalid,
            };
            return refuse(code, "the range ends behind the export's end");
        }
        let unit = u64::from(export.block_sizes.minimum.max(1));
        // The size of an export need not be a multiple of the minimum.
        let aligned = self.offset.is_multiple_of(unit)
            && (u64::from(self.length).is_multiple_of(unit) || end == Some(export.size_bytes));
        if !aligned {
            return refuse(
                ErrorCode::Invalid,
                "the range is no multiple of the smallest block",
            );
        }
        let limited = matches!(command, Command::Read | Command::Write);
        if limited && self.length > export.block_sizes.maximum {
            let code = match command {
                Command::Read => ErrorCode::Overflow,
                _ => ErrorCode::Invalid,
            };
            return refuse(code, "longer than the largest block");
        }
        if command == Command::BlockStatus && self.length == 0 {
            return refuse(ErrorCode::Invalid, "an empty range has no status");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockSizes;
    use proptest::prelude::*;

    fn export() -> Export {
        Export {
            name: String::new(),
            description: String::new(),
            size_bytes: 1 << 20,
            flags: ExportFlags::SEND_FLUSH
                | ExportFlags::SEND_FUA
                | ExportFlags::SEND_TRIM
                | ExportFlags::SEND_WRITE_ZEROES,
            block_sizes: BlockSizes {
                minimum: 512,
                preferred: 4096,
                maximum: 65536,
            },
            tls_only: false,
        }
    }

    fn refused(command: Command, offset: u64, length: u32, flags: CommandFlags) -> ErrorCode {
        let mut request = Request::new(command, 1, offset, length);
        request.flags = flags;
        let session = Session {
            structured: true,
            base_allocation: false,
        };
        request.check(&export(), session).expect_err("refused").code
    }

    #[test]
    fn each_fault_gets_the_documents_error() {
        use Command::*;
        let none = CommandFlags::empty();
        assert_eq!(refused(Read, 1 << 20, 512, none), ErrorCode::Invalid);
        assert_eq!(refused(Write, 1 << 20, 512, none), ErrorCode::NoSpace);
        assert_eq!(
            refused(WriteZeroes, u64::MAX, 512, none),
            ErrorCode::NoSpace
        );
        assert_eq!(refused(Read, 1, 512, none), ErrorCode::Invalid);
        assert_eq!(refused(Read, 0, 131_072, none), ErrorCode::Overflow);
        assert_eq!(refused(Write, 0, 131_072, none), ErrorCode::Invalid);
        assert_eq!(refused(BlockStatus, 0, 512, none), ErrorCode::Invalid);
        assert_eq!(refused(Cache, 0, 512, none), ErrorCode::Invalid);
        assert_eq!(refused(Write, 0, 512, CommandFlags::DF), ErrorCode::Invalid);
        let fast = CommandFlags::FAST_ZERO;
        assert_eq!(refused(WriteZeroes, 0, 512, fast), ErrorCode::Invalid);
    }

    #[test]
    fn a_read_only_export_takes_no_writes() {
        let mut export = export();
        export.flags |= ExportFlags::READ_ONLY;
        for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
            let refusal = Request::new(command, 0, 0, 512).check(&export, Session::default());
            assert_eq!(refusal.expect_err("refused").code, ErrorCode::Perm);
        }
        let read = Request::new(Command::Read, 0, 0, 512);
        assert_eq!(read.check(&export, Session::default()), Ok(Command::Read));
    }

    proptest! {
        #[test]
        fn requests_survive_the_wire(
            flags: u16, code: u16, cookie: u64, offset: u64, length: u32, cut in 0usize..28
        ) {
            let request = Request { flags: CommandFlags::from_bits_retain(flags), code, cookie, offset, length };
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), REQUEST_BYTES);
            prop_assert_eq!(Request::decode(&bytes), Ok(Some(request)));
            prop_assert_eq!(Request::decode(&bytes[..cut]), Ok(None));
        }

        #[test]
        fn what_is_taken_lies_on_the_export(
            flags in 0u16..32, code in 0u16..9, offset in 0u64..(2 << 20), length in 0u32..200_000,
            base_allocation: bool,
        ) {
            let request = Request { flags: CommandFlags::from_bits_retain(flags), code, cookie: 0, offset, length };
            let session = Session { structured: true, base_allocation };
            if let Ok(command) = request.check(&export(), session)
                && !matches!(command, Command::Flush | Command::Disconnect)
            {
                prop_assert!(offset + u64::from(length) <= 1 << 20);
                prop_assert!(offset % 512 == 0);
            }
        }
    }
}
