//! Commands, data and requests on a card's bus (`include/linux/mmc/core.h`,
//! `mmc.h`, `sd.h`).

use std::fmt;

use bitflags::bitflags;

/// Command numbers, by the names that the specifications give them. What begins
/// with `SD_` or `APP_` is of SD cards alone; `APP_` needs CMD55 before it.
#[expect(missing_docs, reason = "the specifications' names")]
pub mod opcode {
    pub const GO_IDLE_STATE: u8 = 0;
    pub const SEND_OP_COND: u8 = 1;
    pub const ALL_SEND_CID: u8 = 2;
    pub const SET_RELATIVE_ADDR: u8 = 3;
    pub const IO_SEND_OP_COND: u8 = 5;
    pub const SWITCH: u8 = 6;
    pub const APP_SET_BUS_WIDTH: u8 = 6;
    pub const SELECT_CARD: u8 = 7;
    pub const SEND_EXT_CSD: u8 = 8;
    pub const SD_SEND_IF_COND: u8 = 8;
    pub const SEND_CSD: u8 = 9;
    pub const SD_SWITCH_VOLTAGE: u8 = 11;
    pub const STOP_TRANSMISSION: u8 = 12;
    pub const SEND_STATUS: u8 = 13;
    pub const APP_SD_STATUS: u8 = 13;
    pub const SET_BLOCKLEN: u8 = 16;
    pub const READ_SINGLE_BLOCK: u8 = 17;
    pub const READ_MULTIPLE_BLOCK: u8 = 18;
    pub const SEND_TUNING_BLOCK: u8 = 19;
    pub const SEND_TUNING_BLOCK_HS200: u8 = 21;
    pub const APP_SEND_NUM_WR_BLKS: u8 = 22;
    /// SD: erase so many blocks before the next write (ACMD23). Linux never sends it.
    pub const APP_SET_WR_BLK_ERASE_COUNT: u8 = 23;
    pub const SET_BLOCK_COUNT: u8 = 23;
    pub const WRITE_BLOCK: u8 = 24;
    pub const WRITE_MULTIPLE_BLOCK: u8 = 25;
    pub const SD_ERASE_WR_BLK_START: u8 = 32;
    pub const SD_ERASE_WR_BLK_END: u8 = 33;
    pub const ERASE_GROUP_START: u8 = 35;
    pub const ERASE_GROUP_END: u8 = 36;
    pub const ERASE: u8 = 38;
    pub const APP_OP_COND: u8 = 41;
    pub const APP_SEND_SCR: u8 = 51;
    pub const IO_RW_DIRECT: u8 = 52;
    pub const APP_CMD: u8 = 55;
}

bitflags! {
    /// What kind of command it is and what answer it expects.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CommandFlags: u32 {
        /// There is an answer.
        const PRESENT = 1 << 0;
        /// It has 136 bits.
        const LONG = 1 << 1;
        /// It has a checksum.
        const CRC = 1 << 2;
        /// The card may be busy after it.
        const BUSY = 1 << 3;
        /// It repeats the command's number.
        const OPCODE = 1 << 4;
        /// Addressed to one card, with data.
        const ADTC = 1 << 5;
        /// To all cards, without an answer.
        const BC = 2 << 5;
        /// To all cards, with an answer.
        const BCR = 3 << 5;
        /// On SPI: one byte of status.
        const SPI_S1 = 1 << 7;
        /// On SPI: a second byte of status.
        const SPI_S2 = 1 << 8;
        /// On SPI: four bytes of data.
        const SPI_B4 = 1 << 9;
        /// On SPI: the card may be busy after it.
        const SPI_BUSY = 1 << 10;

        /// The card's status.
        const R1 = Self::PRESENT.bits() | Self::CRC.bits() | Self::OPCODE.bits();
        /// The card's status, and it may be busy.
        const R1B = Self::R1.bits() | Self::BUSY.bits();
        /// CID or CSD.
        const R2 = Self::PRESENT.bits() | Self::LONG.bits() | Self::CRC.bits();
        /// OCR.
        const R3 = Self::PRESENT.bits();
        /// On SPI, R1 with busy.
        const SPI_R1B = Self::SPI_S1.bits() | Self::SPI_BUSY.bits();
        /// On SPI, two bytes of status.
        const SPI_R2 = Self::SPI_S1.bits() | Self::SPI_S2.bits();
        /// On SPI, OCR or interface condition.
        const SPI_R4 = Self::SPI_S1.bits() | Self::SPI_B4.bits();
    }
}

bitflags! {
    /// The card's status as R1 tells it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Status: u32 {
        /// An address beyond the card's end.
        const OUT_OF_RANGE = 1 << 31;
        /// An address that is not a block's.
        const ADDRESS_ERROR = 1 << 30;
        /// A block length that it cannot have.
        const BLOCK_LEN_ERROR = 1 << 29;
        /// Erase commands out of order.
        const ERASE_SEQ_ERROR = 1 << 28;
        /// What to erase is no range.
        const ERASE_PARAM = 1 << 27;
        /// What to write is protected.
        const WP_VIOLATION = 1 << 26;
        /// The command before had a wrong checksum.
        const COM_CRC_ERROR = 1 << 23;
        /// The command before is not legal in the card's state.
        const ILLEGAL_COMMAND = 1 << 22;
        /// Data that could not be corrected.
        const CARD_ECC_FAILED = 1 << 21;
        /// An error inside.
        const CC_ERROR = 1 << 20;
        /// Any other error.
        const ERROR = 1 << 19;
        /// It takes data.
        const READY_FOR_DATA = 1 << 8;
        /// A switch that it refused.
        const SWITCH_ERROR = 1 << 7;
        /// It asks for time of its own.
        const EXCEPTION_EVENT = 1 << 6;
        /// The next command is an application's.
        const APP_CMD = 1 << 5;
    }
}

impl Status {
    /// Errors of a block command (`CMD_ERRORS`) but for the range, which an open-ended
    /// transfer at the card's end runs into (`CMD_ERRORS_EXCL_OOR`).
    pub const COMMAND_ERRORS: u32 = Status::ADDRESS_ERROR.bits()
        | Status::BLOCK_LEN_ERROR.bits()
        | Status::WP_VIOLATION.bits()
        | Status::CARD_ECC_FAILED.bits()
        | Status::CC_ERROR.bits()
        | Status::ERROR.bits();

    /// All bits that tell of an error (`R1_STATUS`).
    pub const ANY_ERROR: u32 = 0xfff9_a000;

    /// The state that a status tells.
    pub fn state_of(status: u32) -> u32 {
        (status >> 9) & 0xf
    }

    /// Whether the card takes data and is back in its transfer state
    /// (`mmc_ready_for_data`).
    pub fn is_ready_for_data(status: u32) -> bool {
        status & Status::READY_FOR_DATA.bits() != 0 && Status::state_of(status) == 4
    }
}

/// Why a command or its data came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No answer.
    #[error("timed out")]
    Timeout,
    /// A wrong checksum.
    #[error("checksum")]
    Crc,
    /// The card is gone.
    #[error("no medium")]
    NoMedium,
    /// The card says that it went wrong.
    #[error("I/O")]
    Io,
    /// What the card tells of itself cannot be.
    #[error("invalid")]
    Invalid,
    /// The card took no switch.
    #[error("bad message")]
    BadMessage,
    /// Neither card nor host can do it.
    #[error("not supported")]
    NotSupported,
    /// Another card than before.
    #[error("another card")]
    OtherCard,
    /// It may work if it is tried again.
    #[error("try again")]
    Again,
}

impl Error {
    /// The kernel's number.
    pub fn errno(self) -> i32 {
        match self {
            Error::Timeout => -110,
            Error::Crc => -84,
            Error::NoMedium => -123,
            Error::Io => -5,
            Error::Invalid => -22,
            Error::BadMessage => -74,
            Error::NotSupported => -95,
            Error::OtherCard => -2,
            Error::Again => -11,
        }
    }
}

/// One command (`struct mmc_command`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Its number.
    pub opcode: u8,
    /// Its argument.
    pub arg: u32,
    /// Its kind.
    pub flags: CommandFlags,
    /// How often it may be tried again.
    pub retries: u32,
    /// The answer.
    pub response: [u32; 4],
    /// What went wrong.
    pub error: Option<Error>,
}

impl Command {
    /// A command that was not sent yet.
    pub fn new(opcode: u8, arg: u32, flags: CommandFlags) -> Command {
        Command {
            opcode,
            arg,
            flags,
            ..Command::default()
        }
    }
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the card.
    Read,
    /// To the card.
    Write,
}

/// The data of a request (`struct mmc_data`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Which way.
    pub direction: Direction,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// How many.
    pub blocks: u32,
    /// The first one's sector, of block I/O.
    pub sector: u32,
    /// Whether a write has to be whole or not at all, and past the cache.
    pub reliable: bool,
    /// How long a block may take.
    pub timeout_ns: u32,
    /// And clocks beside.
    pub timeout_clocks: u32,
    /// What got through.
    pub transferred_bytes: u32,
    /// What went wrong.
    pub error: Option<Error>,
    /// What was read, where somebody looks at it; a drive's content is not kept.
    pub content: Option<Vec<u8>>,
}

impl Data {
    /// Data that was not transferred yet.
    pub fn new(direction: Direction, block_bytes: u32, blocks: u32) -> Data {
        Data {
            direction,
            block_bytes,
            blocks,
            sector: 0,
            reliable: false,
            timeout_ns: 0,
            timeout_clocks: 0,
            transferred_bytes: 0,
            error: None,
            content: None,
        }
    }

    /// All of it.
    pub fn bytes(&self) -> u32 {
        self.block_bytes.saturating_mul(self.blocks)
    }

    /// `MMC_DATA_READ` or `MMC_DATA_WRITE`, and `MMC_DATA_REL_WR`.
    pub fn flags(&self) -> u32 {
        let direction = match self.direction {
            Direction::Write => 1 << 8,
            Direction::Read => 1 << 9,
        };
        direction | u32::from(self.reliable) << 12
    }
}

/// One request to a host controller (`struct mmc_request`): a command, with data,
/// the number of blocks told before (CMD23) or the end told after (CMD12).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// CMD23.
    pub set_block_count: Option<Command>,
    /// The command.
    pub command: Command,
    /// Its data.
    pub data: Option<Data>,
    /// CMD12.
    pub stop: Option<Command>,
}

impl Request {
    /// A command alone.
    pub fn command(command: Command) -> Request {
        Request {
            command,
            ..Request::default()
        }
    }

    /// A command with data.
    pub fn with_data(command: Command, data: Data) -> Request {
        Request {
            command,
            data: Some(data),
            ..Request::default()
        }
    }

    /// The first thing that went wrong.
    pub fn error(&self) -> Option<Error> {
        let before = self.set_block_count.as_ref().and_then(|c| c.error);
        let data = self.data.as_ref().and_then(|data| data.error);
        let stop = self.stop.as_ref().and_then(|stop| stop.error);
        before.or(self.command.error).or(data).or(stop)
    }

    /// Whether a checksum was wrong in any part of it.
    pub(crate) fn has_checksum_error(&self) -> bool {
        let commands = [self.set_block_count, Some(self.command), self.stop];
        let of_commands = commands.iter().flatten().map(|command| command.error);
        let of_data = self.data.as_ref().map(|data| data.error);
        of_commands
            .chain(of_data)
            .any(|error| error == Some(Error::Crc))
    }

    /// Forgets what became of it, to try again.
    pub fn clear_outcome(&mut self) {
        let Request {
            set_block_count,
            command,
            data,
            stop,
        } = self;
        let others = [set_block_count.as_mut(), stop.as_mut()];
        for command in others.into_iter().flatten().chain([command]) {
            command.response = [0; 4];
            command.error = None;
        }
        if let Some(data) = data {
            data.error = None;
            data.transferred_bytes = 0;
        }
    }
}

/// A request as it is given to the controller, as the tracepoint
/// `mmc_request_start` prints it (without its address and tag).
pub(crate) struct Started<'a>(pub(crate) &'a Request);

impl fmt::Display for Started<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request {
            set_block_count,
            command,
            data,
            stop,
        } = self.0;
        let parts = [
            ("cmd", "retries", *command),
            ("stop", "retries", stop.unwrap_or_default()),
            // The kernel's own spelling.
            ("sbc", "retires", set_block_count.unwrap_or_default()),
        ];
        for (name, retries, command) in parts {
            let Command { opcode, arg, .. } = command;
            let flags = command.flags.bits();
            write!(f, "{name}_opcode={opcode} {name}_arg={arg:#x} ")?;
            write!(
                f,
                "{name}_flags={flags:#x} {name}_{retries}={} ",
                command.retries
            )?;
        }
        let data = data.as_ref();
        let of = |value: fn(&Data) -> u32| data.map_or(0, value);
        write!(
            f,
            "blocks={} block_size={} blk_addr={} data_flags={:#x}",
            of(|data| data.blocks),
            of(|data| data.block_bytes),
            of(|data| data.sector),
            of(Data::flags),
        )
    }
}

/// A request that the controller is done with, as `mmc_request_done` prints it.
pub(crate) struct Done<'a>(pub(crate) &'a Request);

impl fmt::Display for Done<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = |error: Option<Error>| error.map_or(0, Error::errno);
        let parts = [
            ("cmd", self.0.command),
            ("stop", self.0.stop.unwrap_or_default()),
            ("sbc", self.0.set_block_count.unwrap_or_default()),
        ];
        for (name, command) in parts {
            let [a, b, c, d] = command.response;
            write!(f, "{name}_opcode={} ", command.opcode)?;
            write!(f, "{name}_err={} ", errno(command.error))?;
            write!(f, "{name}_resp={a:#x} {b:#x} {c:#x} {d:#x} ")?;
            write!(f, "{name}_retries={} ", command.retries)?;
        }
        let data = self.0.data.as_ref();
        let transferred = data.map_or(0, |data| data.transferred_bytes);
        let error = errno(data.and_then(|data| data.error));
        write!(f, "bytes_xfered={transferred} data_err={error}")
    }
}
