//! The protocol's numbers, by the names of its document (`doc/proto.md` of
//! NetworkBlockDevice/nbd), all of them big-endian.

use bitflags::bitflags;

/// The first word of every server: `NBDMAGIC`.
pub const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// What says newstyle, and starts every option: `IHAVEOPT`.
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Starts every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Starts every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Starts a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Starts a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Strings are no longer than this.
pub const MAX_STRING_BYTES: usize = 4096;
/// The metadata context that tells holes from data.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The number by which replies name [`BASE_ALLOCATION`].
pub const BASE_ALLOCATION_ID: u32 = 1;

/// `NBD_FLAG_FIXED_NEWSTYLE`, and its echo in the client's flags.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// `NBD_FLAG_NO_ZEROES`, and its echo in the client's flags.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// What the client asks for before it uses an export (`NBD_OPT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OptionCode {
    /// Use this export; it cannot be refused but by hanging up.
    ExportName = 1,
    /// End.
    Abort = 2,
    /// Name the exports.
    List = 3,
    /// Go on under TLS.
    StartTls = 5,
    /// Describe an export.
    Info = 6,
    /// Use an export.
    Go = 7,
    /// Use structured replies.
    StructuredReply = 8,
    /// Name metadata contexts.
    ListMetaContext = 9,
    /// Choose metadata contexts.
    SetMetaContext = 10,
}

impl OptionCode {
    /// The option of that number, where we know it.
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

/// `NBD_REP_ACK`: done.
pub const REP_ACK: u32 = 1;
/// `NBD_REP_SERVER`: an export.
pub const REP_SERVER: u32 = 2;
/// `NBD_REP_INFO`: a fact about an export.
pub const REP_INFO: u32 = 3;
/// `NBD_REP_META_CONTEXT`: a metadata context.
pub const REP_META_CONTEXT: u32 = 4;
/// The bit of every reply that refuses.
pub const REP_ERROR_BIT: u32 = 1 << 31;
/// `NBD_REP_ERR_UNSUP`: no such option here.
pub const REP_ERR_UNSUP: u32 = REP_ERROR_BIT + 1;
/// `NBD_REP_ERR_POLICY`: not allowed.
pub const REP_ERR_POLICY: u32 = REP_ERROR_BIT + 2;
/// `NBD_REP_ERR_INVALID`: the option makes no sense so.
pub const REP_ERR_INVALID: u32 = REP_ERROR_BIT + 3;
/// `NBD_REP_ERR_TLS_REQD`: only under TLS.
pub const REP_ERR_TLS_REQD: u32 = REP_ERROR_BIT + 5;
/// `NBD_REP_ERR_UNKNOWN`: no such export.
pub const REP_ERR_UNKNOWN: u32 = REP_ERROR_BIT + 6;
/// `NBD_REP_ERR_SHUTDOWN`: the server is about to end.
pub const REP_ERR_SHUTDOWN: u32 = REP_ERROR_BIT + 7;
/// `NBD_REP_ERR_BLOCK_SIZE_REQD`: the client must ask for the block size.
pub const REP_ERR_BLOCK_SIZE_REQD: u32 = REP_ERROR_BIT + 8;
/// `NBD_REP_ERR_TOO_BIG`: the option is longer than the server takes.
pub const REP_ERR_TOO_BIG: u32 = REP_ERROR_BIT + 9;

/// `NBD_INFO_EXPORT`: size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// `NBD_INFO_NAME`: the name by which the server knows the export.
pub const INFO_NAME: u16 = 1;
/// `NBD_INFO_DESCRIPTION`: a line for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// `NBD_INFO_BLOCK_SIZE`: smallest, preferred and largest request.
pub const INFO_BLOCK_SIZE: u16 = 3;

bitflags! {
    /// Transmission flags (`NBD_FLAG_*`): what an export can do.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ExportFlags: u16 {
        /// Always set.
        const HAS_FLAGS = 1 << 0;
        /// Writes are refused.
        const READ_ONLY = 1 << 1;
        /// Takes FLUSH.
        const SEND_FLUSH = 1 << 2;
        /// Takes FUA.
        const SEND_FUA = 1 << 3;
        /// Has moving parts.
        const ROTATIONAL = 1 << 4;
        /// Takes TRIM.
        const SEND_TRIM = 1 << 5;
        /// Takes WRITE_ZEROES.
        const SEND_WRITE_ZEROES = 1 << 6;
        /// Takes the flag DF of READ.
        const SEND_DF = 1 << 7;
        /// A flush on one connection covers what others wrote.
        const CAN_MULTI_CONN = 1 << 8;
        /// Takes CACHE.
        const SEND_CACHE = 1 << 10;
        /// Takes the flag FAST_ZERO of WRITE_ZEROES.
        const SEND_FAST_ZERO = 1 << 11;
    }
}

bitflags! {
    /// Command flags (`NBD_CMD_FLAG_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CommandFlags: u16 {
        /// On stable storage before the reply.
        const FUA = 1 << 0;
        /// Zeroes must keep their space.
        const NO_HOLE = 1 << 1;
        /// The answer comes in one piece.
        const DF = 1 << 2;
        /// One extent is enough.
        const REQ_ONE = 1 << 3;
        /// Zero only if that is faster than writing.
        const FAST_ZERO = 1 << 4;
    }
}

/// What a request does (`NBD_CMD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    /// Reads.
    Read = 0,
    /// Writes what follows the request.
    Write = 1,
    /// Ends the connection.
    Disconnect = 2,
    /// Makes finished writes durable.
    Flush = 3,
    /// Gives up what a range holds.
    Trim = 4,
    /// Says that a range will be read.
    Cache = 5,
    /// Makes a range read as zeroes.
    WriteZeroes = 6,
    /// Asks what is hole and what is data.
    BlockStatus = 7,
}

impl Command {
    /// The command of that number.
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

    /// Whether it may change what the export holds.
    pub const fn modifies(self) -> bool {
        matches!(self, Command::Write | Command::Trim | Command::WriteZeroes)
    }

    /// Flags that mean something to it.
    pub const fn allowed_flags(self) -> CommandFlags {
        let own = match self {
            Command::Read => CommandFlags::DF,
            Command::WriteZeroes => CommandFlags::NO_HOLE.union(CommandFlags::FAST_ZERO),
            Command::BlockStatus => CommandFlags::REQ_ONE,
            _ => CommandFlags::empty(),
        };
        // Clients are known to set FUA on any command.
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
    /// ENOSPC: full, or behind the end.
    NoSpace = 28,
    /// EOVERFLOW: too much for one answer.
    Overflow = 75,
    /// ENOTSUP: zeroing would not be fast.
    NotSupported = 95,
    /// ESHUTDOWN: the server is about to end.
    Shutdown = 108,
}

/// `NBD_STATE_HOLE`: nothing is allocated there.
pub const STATE_HOLE: u32 = 1 << 0;
/// `NBD_STATE_ZERO`: reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;

/// `NBD_REPLY_FLAG_DONE`: the reply's last chunk.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;

/// Kinds of chunks (`NBD_REPLY_TYPE_*`).
pub mod chunk {
    /// Nothing but the end.
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

/// Takes big-endian numbers and strings off the front of a slice.
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

    /// A string with its length before it.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }
}
