//! Constants of the protocol, with the names of its specification (`doc/proto.md` of
//! NetworkBlockDevice/nbd). All numbers are big-endian.

use bitflags::bitflags;

/// First word of the server's greeting: `NBDMAGIC`.
pub const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of a newstyle greeting, and magic number of an option: `IHAVEOPT`.
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Magic number of a reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Magic number of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Magic number of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Magic number of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// The longest string, in bytes.
pub const MAX_STRING_BYTES: usize = 4096;
/// The metadata context that distinguishes holes from data.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Id of [`BASE_ALLOCATION`] in replies.
pub const BASE_ALLOCATION_ID: u32 = 1;

/// `NBD_FLAG_FIXED_NEWSTYLE`, also for the client's flags.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// `NBD_FLAG_NO_ZEROES`, also for the client's flags.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Options of the handshake (`NBD_OPT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OptionCode {
    /// Uses an export; the server can refuse only by closing the connection.
    ExportName = 1,
    /// Ends the handshake.
    Abort = 2,
    /// Lists the exports.
    List = 3,
    /// Starts TLS.
    StartTls = 5,
    /// Requests information about an export.
    Info = 6,
    /// Uses an export.
    Go = 7,
    /// Enables structured replies.
    StructuredReply = 8,
    /// Lists metadata contexts.
    ListMetaContext = 9,
    /// Selects metadata contexts.
    SetMetaContext = 10,
}

impl OptionCode {
    /// Returns the option with this number, if it is known.
    pub fn from_wire(code: u32) -> Option<OptionCode> {
        use OptionCode::*;
        let all = [
            ExportName,
            Abort,
            List,
            StartTls,
            Info,
            Go,
            StructuredReply,
            ListMetaContext,
            SetMetaContext,
        ];
        all.into_iter().find(|&option| option as u32 == code)
    }
}

/// `NBD_REP_ACK`: success.
pub const REP_ACK: u32 = 1;
/// `NBD_REP_SERVER`: an export.
pub const REP_SERVER: u32 = 2;
/// `NBD_REP_INFO`: information about an export.
pub const REP_INFO: u32 = 3;
/// `NBD_REP_META_CONTEXT`: a metadata context.
pub const REP_META_CONTEXT: u32 = 4;
/// The bit that all error replies have.
pub const REP_ERROR_BIT: u32 = 1 << 31;
/// `NBD_REP_ERR_UNSUP`: the option is not supported.
pub const REP_ERR_UNSUP: u32 = REP_ERROR_BIT + 1;
/// `NBD_REP_ERR_POLICY`: the option is not allowed.
pub const REP_ERR_POLICY: u32 = REP_ERROR_BIT + 2;
/// `NBD_REP_ERR_INVALID`: the option is malformed.
pub const REP_ERR_INVALID: u32 = REP_ERROR_BIT + 3;
/// `NBD_REP_ERR_TLS_REQD`: TLS is required.
pub const REP_ERR_TLS_REQD: u32 = REP_ERROR_BIT + 5;
/// `NBD_REP_ERR_UNKNOWN`: the export does not exist.
pub const REP_ERR_UNKNOWN: u32 = REP_ERROR_BIT + 6;
/// `NBD_REP_ERR_SHUTDOWN`: the server is shutting down.
pub const REP_ERR_SHUTDOWN: u32 = REP_ERROR_BIT + 7;
/// `NBD_REP_ERR_BLOCK_SIZE_REQD`: the client must ask for the block size.
pub const REP_ERR_BLOCK_SIZE_REQD: u32 = REP_ERROR_BIT + 8;
/// `NBD_REP_ERR_TOO_BIG`: the option is too long.
pub const REP_ERR_TOO_BIG: u32 = REP_ERROR_BIT + 9;

/// `NBD_INFO_EXPORT`: size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// `NBD_INFO_NAME`: the canonical name of the export.
pub const INFO_NAME: u16 = 1;
/// `NBD_INFO_DESCRIPTION`: a description for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// `NBD_INFO_BLOCK_SIZE`: minimum, preferred and maximum block size.
pub const INFO_BLOCK_SIZE: u16 = 3;

bitflags! {
    /// Transmission flags (`NBD_FLAG_*`) of an export.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ExportFlags: u16 {
        /// Always set.
        const HAS_FLAGS = 1 << 0;
        /// The export is read-only.
        const READ_ONLY = 1 << 1;
        /// FLUSH is supported.
        const SEND_FLUSH = 1 << 2;
        /// FUA is supported.
        const SEND_FUA = 1 << 3;
        /// The export has the characteristics of a rotational drive.
        const ROTATIONAL = 1 << 4;
        /// TRIM is supported.
        const SEND_TRIM = 1 << 5;
        /// WRITE_ZEROES is supported.
        const SEND_WRITE_ZEROES = 1 << 6;
        /// The flag DF of READ is supported.
        const SEND_DF = 1 << 7;
        /// A flush on one connection covers the writes of others.
        const CAN_MULTI_CONN = 1 << 8;
        /// CACHE is supported.
        const SEND_CACHE = 1 << 10;
        /// The flag FAST_ZERO of WRITE_ZEROES is supported.
        const SEND_FAST_ZERO = 1 << 11;
    }
}

bitflags! {
    /// Command flags (`NBD_CMD_FLAG_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CommandFlags: u16 {
        /// Data must be on stable storage before the reply.
        const FUA = 1 << 0;
        /// Zeroes must stay allocated.
        const NO_HOLE = 1 << 1;
        /// The reply must be a single chunk.
        const DF = 1 << 2;
        /// One extent is enough.
        const REQ_ONE = 1 << 3;
        /// Fail if zeroing is not faster than writing.
        const FAST_ZERO = 1 << 4;
    }
}

/// Commands (`NBD_CMD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    /// Reads data.
    Read = 0,
    /// Writes the data after the request.
    Write = 1,
    /// Ends the connection.
    Disconnect = 2,
    /// Makes completed writes durable.
    Flush = 3,
    /// Discards a range.
    Trim = 4,
    /// Announces that a range will be read.
    Cache = 5,
    /// Makes a range read as zeroes.
    WriteZeroes = 6,
    /// Returns which ranges are holes or zeroes.
    BlockStatus = 7,
}

impl Command {
    /// Returns the command with this number.
    pub const fn from_wire(code: u16) -> Option<Command> {
        Some(match code {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            _ => return None,
        })
    }

    /// Whether it may change the data of the export.
    pub const fn modifies(self) -> bool {
        matches!(self, Command::Write | Command::Trim | Command::WriteZeroes)
    }

    /// The flags that are legal for it.
    pub const fn allowed_flags(self) -> CommandFlags {
        let own = match self {
            Command::Read => CommandFlags::DF,
            Command::WriteZeroes => CommandFlags::NO_HOLE.union(CommandFlags::FAST_ZERO),
            Command::BlockStatus => CommandFlags::REQ_ONE,
            _ => CommandFlags::empty(),
        };
        // Some clients set FUA on any command.
        own.union(CommandFlags::FUA)
    }
}

/// The protocol's error values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// EPERM: the export is read-only.
    Perm = 1,
    /// EIO.
    Io = 5,
    /// ENOMEM.
    NoMem = 12,
    /// EINVAL.
    Invalid = 22,
    /// ENOSPC: the export is full, or the range exceeds its end.
    NoSpace = 28,
    /// EOVERFLOW: the reply would be too long.
    Overflow = 75,
    /// ENOTSUP: zeroing would not be fast.
    NotSupported = 95,
    /// ESHUTDOWN: the server is shutting down.
    Shutdown = 108,
}

/// `NBD_STATE_HOLE`: the range is not allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// `NBD_STATE_ZERO`: the range reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;

/// `NBD_REPLY_FLAG_DONE`: the last chunk of a reply.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;

/// Types of chunks (`NBD_REPLY_TYPE_*`).
pub mod chunk {
    /// No contents.
    pub const NONE: u16 = 0;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeroes at an offset.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of a metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// The request failed.
    pub const ERROR: u16 = (1 << 15) + 1;
    /// The request failed at an offset.
    pub const ERROR_OFFSET: u16 = (1 << 15) + 2;
}

/// Parser for big-endian numbers and strings at the front of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { left: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.left
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (piece, left) = self.left.split_at_checked(len)?;
        self.left = left;
        Some(piece)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (piece, left) = self.left.split_first_chunk()?;
        self.left = left;
        Some(*piece)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Takes a string that follows its length.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }
}
