//! SDHCI: the SD Association's host controller (SD Host Controller Simplified
//! Specification; `drivers/mmc/host/sdhci.c`).
//!
//! [`Controller`] is the hardware: registers that a driver reads and writes, with a
//! card's socket behind. [`Sdhci`] is the driver, a [`Host`] for the core.
//!
//! [`Host`]: crate::Host

mod controller;
mod driver;

pub use controller::{Controller, ControllerSpec};
pub use driver::Sdhci;

/// Offsets of registers, with their names in the specification.
#[expect(missing_docs, reason = "the specification's names")]
pub mod register {
    pub const BLOCK_SIZE: u32 = 0x04;
    pub const BLOCK_COUNT: u32 = 0x06;
    pub const ARGUMENT: u32 = 0x08;
    pub const TRANSFER_MODE: u32 = 0x0c;
    pub const COMMAND: u32 = 0x0e;
    pub const RESPONSE: u32 = 0x10;
    pub const BUFFER_DATA_PORT: u32 = 0x20;
    pub const PRESENT_STATE: u32 = 0x24;
    pub const HOST_CONTROL: u32 = 0x28;
    pub const POWER_CONTROL: u32 = 0x29;
    pub const CLOCK_CONTROL: u32 = 0x2c;
    pub const SOFTWARE_RESET: u32 = 0x2f;
    pub const INTERRUPT_STATUS: u32 = 0x30;
    pub const INTERRUPT_STATUS_ENABLE: u32 = 0x34;
    pub const INTERRUPT_SIGNAL_ENABLE: u32 = 0x38;
    pub const HOST_CONTROL_2: u32 = 0x3e;
    pub const CAPABILITIES: u32 = 0x40;
    pub const CAPABILITIES_HIGH: u32 = 0x44;
    pub const MAX_CURRENT: u32 = 0x48;
    pub const HOST_VERSION: u32 = 0xfe;
}

/// Bits of the second host control register.
#[expect(missing_docs, reason = "the specification's names")]
pub mod host_control_2 {
    pub const UHS_MODE: u32 = 7;
    pub const SIGNAL_1_8_V: u32 = 1 << 3;
    pub const EXECUTE_TUNING: u32 = 1 << 6;
    pub const SAMPLING_CLOCK_TUNED: u32 = 1 << 7;
}

/// Bits of the upper capabilities register.
#[expect(missing_docs, reason = "the specification's names")]
pub mod capabilities_high {
    pub const SDR50: u32 = 1 << 0;
    pub const SDR104: u32 = 1 << 1;
    pub const DDR50: u32 = 1 << 2;
    pub const TUNING_FOR_SDR50: u32 = 1 << 13;
}

/// Bits of the interrupt status.
#[expect(missing_docs, reason = "the specification's names")]
pub mod interrupt {
    pub const COMMAND_COMPLETE: u32 = 1 << 0;
    pub const TRANSFER_COMPLETE: u32 = 1 << 1;
    pub const BUFFER_WRITE_READY: u32 = 1 << 4;
    pub const BUFFER_READ_READY: u32 = 1 << 5;
    pub const ERROR: u32 = 1 << 15;
    pub const COMMAND_TIMEOUT: u32 = 1 << 16;
    pub const COMMAND_CRC: u32 = 1 << 17;
    pub const DATA_TIMEOUT: u32 = 1 << 20;
    pub const DATA_CRC: u32 = 1 << 21;
    pub const ALL_ERRORS: u32 = 0xffff_0000;
}

/// The controller of the recorded traces.
#[cfg(test)]
pub(crate) fn spec_of_qemu() -> crate::HostSpec {
    use crate::Host as _;
    let controller = Controller::new(ControllerSpec::default(), crate::emulated::Slot::default());
    *Sdhci::new(controller, crate::Caps2::empty()).spec()
}
