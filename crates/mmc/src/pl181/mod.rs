//! PL181: Arm's MultiMedia Card Interface (technical reference manual DDI 0205;
//! `drivers/mmc/host/mmci.c`), as on the Versatile Express boards.
//!
//! [`Controller`] is the hardware: registers, a FIFO of sixteen words, two interrupt
//! lines, and a card's socket behind. [`Mmci`] is the driver, a [`Host`] for the core,
//! which moves data by the processor: these boards have no DMA for it.
//!
//! [`Host`]: crate::Host

mod controller;
mod driver;

pub use controller::{Access, Controller, Line};
pub use driver::Mmci;

/// Offsets of registers, with their names in the manual.
#[expect(missing_docs, reason = "the manual's names")]
pub mod register {
    pub const POWER: u32 = 0x00;
    pub const CLOCK: u32 = 0x04;
    pub const ARGUMENT: u32 = 0x08;
    pub const COMMAND: u32 = 0x0c;
    pub const RESPONSE_COMMAND: u32 = 0x10;
    pub const RESPONSE: u32 = 0x14;
    pub const DATA_TIMER: u32 = 0x24;
    pub const DATA_LENGTH: u32 = 0x28;
    pub const DATA_CONTROL: u32 = 0x2c;
    pub const DATA_COUNT: u32 = 0x30;
    pub const STATUS: u32 = 0x34;
    pub const CLEAR: u32 = 0x38;
    pub const MASK_0: u32 = 0x3c;
    pub const MASK_1: u32 = 0x40;
    pub const FIFO_COUNT: u32 = 0x48;
    pub const FIFO: u32 = 0x80;
    pub const FIFO_END: u32 = 0x100;
}

/// Bits of the status, the clear and the mask registers.
#[expect(missing_docs, reason = "the manual's names")]
pub mod status {
    pub const COMMAND_CRC_FAIL: u32 = 1 << 0;
    pub const DATA_CRC_FAIL: u32 = 1 << 1;
    pub const COMMAND_TIMEOUT: u32 = 1 << 2;
    pub const DATA_TIMEOUT: u32 = 1 << 3;
    pub const TX_UNDERRUN: u32 = 1 << 4;
    pub const RX_OVERRUN: u32 = 1 << 5;
    pub const COMMAND_RESPONSE_END: u32 = 1 << 6;
    pub const COMMAND_SENT: u32 = 1 << 7;
    pub const DATA_END: u32 = 1 << 8;
    pub const START_BIT_ERROR: u32 = 1 << 9;
    pub const DATA_BLOCK_END: u32 = 1 << 10;
    pub const TX_ACTIVE: u32 = 1 << 12;
    pub const RX_ACTIVE: u32 = 1 << 13;
    pub const TX_FIFO_HALF_EMPTY: u32 = 1 << 14;
    pub const RX_FIFO_HALF_FULL: u32 = 1 << 15;
    pub const TX_FIFO_FULL: u32 = 1 << 16;
    pub const RX_FIFO_FULL: u32 = 1 << 17;
    pub const TX_FIFO_EMPTY: u32 = 1 << 18;
    pub const RX_FIFO_EMPTY: u32 = 1 << 19;
    pub const TX_DATA_AVAILABLE: u32 = 1 << 20;
    pub const RX_DATA_AVAILABLE: u32 = 1 << 21;
}

/// Bits of the command register beside the command's number.
#[expect(missing_docs, reason = "the manual's names")]
pub mod command {
    pub const RESPONSE: u32 = 1 << 6;
    pub const LONG_RESPONSE: u32 = 1 << 7;
    pub const ENABLE: u32 = 1 << 10;
}

/// Bits of the data control register; the block's size is a power of two in bits 4 to 7.
#[expect(missing_docs, reason = "the manual's names")]
pub mod data_control {
    pub const ENABLE: u32 = 1 << 0;
    pub const READ: u32 = 1 << 1;
    pub const BLOCK_SIZE_SHIFT: u32 = 4;
}

/// Bits of the clock register; a divider of the bus' clock is in bits 0 to 7.
#[expect(missing_docs, reason = "the manual's names")]
pub mod clock {
    pub const ENABLE: u32 = 1 << 8;
    pub const BYPASS: u32 = 1 << 10;
}

/// Words of the FIFO.
pub const FIFO_WORDS: usize = 16;

/// What drives the controller (`v2m:clk24mhz` of the Versatile Express' device tree).
pub const BUS_HZ: u32 = 24_000_000;
