//! What the core asks of a host controller (`include/linux/mmc/host.h`).

use bitflags::bitflags;

use crate::command::{Error, Request};
use crate::emulated::Slot;

bitflags! {
    /// What a controller can do (`MMC_CAP_`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Caps: u32 {
        /// Four data lines.
        const FOUR_BIT_DATA = 1 << 0;
        /// eMMC's high speed.
        const MMC_HIGHSPEED = 1 << 1;
        /// SD's high speed.
        const SD_HIGHSPEED = 1 << 2;
        /// SDIO's interrupts.
        const SDIO_IRQ = 1 << 3;
        /// It has to be asked whether a card is there.
        const NEEDS_POLL = 1 << 5;
        /// Eight data lines.
        const EIGHT_BIT_DATA = 1 << 6;
        /// The card cannot be taken out.
        const NONREMOVABLE = 1 << 8;
        /// It waits itself until the card is no longer busy.
        const WAIT_WHILE_BUSY = 1 << 9;
        /// UHS-I at 25 MHz.
        const UHS_SDR12 = 1 << 16;
        /// UHS-I at 50 MHz.
        const UHS_SDR25 = 1 << 17;
        /// UHS-I at 100 MHz.
        const UHS_SDR50 = 1 << 18;
        /// UHS-I at 208 MHz.
        const UHS_SDR104 = 1 << 19;
        /// UHS-I at 50 MHz, both edges.
        const UHS_DDR50 = 1 << 20;
        /// A request is over when the controller says so, even for a sleeping core.
        const DONE_COMPLETE = 1 << 27;
        /// It sends CMD23.
        const CMD23 = 1 << 30;
        /// It can reset the card by a line.
        const HW_RESET = 1 << 31;
    }
}

bitflags! {
    /// More of what a controller can do (`MMC_CAP2_`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Caps2: u32 {
        /// It can switch the card's power off and on.
        const FULL_PWR_CYCLE = 1 << 2;
        /// eMMC at 200 MHz, with lines of 1.8 or 1.2 V.
        const HS200 = 3 << 5;
        /// The card gets power only when it is looked for.
        const NO_PRESCAN_POWERUP = 1 << 14;
        /// SDIO's interrupts need no thread.
        const SDIO_IRQ_NOTHREAD = 1 << 17;
        /// No SDIO.
        const NO_SDIO = 1 << 19;
        /// No SD.
        const NO_SD = 1 << 21;
        /// No eMMC.
        const NO_MMC = 1 << 22;
    }
}

/// A controller's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// What it can do.
    pub caps: Caps,
    /// What else.
    pub caps2: Caps2,
    /// Voltages that it can give, as OCR bits.
    pub ocr_avail: u32,
    /// Slowest clock.
    pub f_min_hz: u32,
    /// Fastest clock.
    pub f_max_hz: u32,
    /// Most blocks of a request.
    pub max_blocks: u32,
    /// Most bytes of a request.
    pub max_request_bytes: u32,
    /// Most pieces of memory of a request.
    pub max_segments: u32,
    /// Most bytes of a piece.
    pub max_segment_bytes: u32,
    /// For how long it can wait for a busy card, 0 if it does not know.
    pub max_busy_timeout_ms: u32,
    /// The most that it supplies at 3.3 V.
    pub max_current_330_ma: u32,
}

impl HostSpec {
    /// Whether it has any UHS-I mode (`mmc_host_uhs`).
    pub fn has_uhs(&self) -> bool {
        let uhs = Caps::UHS_SDR12
            | Caps::UHS_SDR25
            | Caps::UHS_SDR50
            | Caps::UHS_SDR104
            | Caps::UHS_DDR50;
        self.caps.contains(Caps::FOUR_BIT_DATA) && self.caps.intersects(uhs)
    }
}

/// Power supply of the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kernel's names")]
pub enum PowerMode {
    #[default]
    Off,
    Up,
    On,
}

/// How commands are driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kernel's names")]
pub enum BusMode {
    OpenDrain = 1,
    #[default]
    PushPull = 2,
}

/// Data lines in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kernel's names")]
pub enum BusWidth {
    #[default]
    One = 0,
    Four = 2,
    Eight = 3,
}

impl BusWidth {
    /// How many.
    pub fn lines(self) -> u32 {
        1 << self as u32
    }
}

/// When data is taken off the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kernel's names")]
pub enum Timing {
    #[default]
    Legacy = 0,
    MmcHs = 1,
    SdHs = 2,
    UhsSdr12 = 3,
    UhsSdr25 = 4,
    UhsSdr50 = 5,
    UhsSdr104 = 6,
    UhsDdr50 = 7,
    MmcHs200 = 9,
}

impl Timing {
    /// As debugfs shows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Timing::Legacy => "legacy",
            Timing::MmcHs => "mmc high-speed",
            Timing::SdHs => "sd high-speed",
            Timing::UhsSdr12 => "sd uhs SDR12",
            Timing::UhsSdr25 => "sd uhs SDR25",
            Timing::UhsSdr50 => "sd uhs SDR50",
            Timing::UhsSdr104 => "sd uhs SDR104",
            Timing::UhsDdr50 => "sd uhs DDR50",
            Timing::MmcHs200 => "mmc HS200",
        }
    }

    /// What the kernel's log puts before the kind of a card with it.
    pub(crate) fn praise(self) -> &'static str {
        match self {
            Timing::Legacy => "",
            Timing::MmcHs | Timing::SdHs => "high speed ",
            Timing::UhsSdr12 => "ultra high speed SDR12 ",
            Timing::UhsSdr25 => "ultra high speed SDR25 ",
            Timing::UhsSdr50 => "ultra high speed SDR50 ",
            Timing::UhsSdr104 => "ultra high speed SDR104 ",
            Timing::UhsDdr50 => "ultra high speed DDR50 ",
            Timing::MmcHs200 => "HS200 ",
        }
    }
}

/// The voltage of the bus' lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kernel's names")]
pub enum SignalVoltage {
    #[default]
    V330 = 0,
    V180 = 1,
}

/// The chip select line, which a card in reset looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kernel's names")]
pub enum ChipSelect {
    #[default]
    DontCare = 0,
    High = 1,
}

/// The bus as the core wants it (`struct mmc_ios`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ios {
    /// Clock.
    pub clock_hz: u32,
    /// The voltage's bit in OCR.
    pub vdd: u16,
    /// Power supply.
    pub power_mode: PowerMode,
    /// How commands are driven.
    pub bus_mode: BusMode,
    /// Chip select.
    pub chip_select: ChipSelect,
    /// Data lines.
    pub bus_width: BusWidth,
    /// Timing.
    pub timing: Timing,
    /// Voltage of the lines.
    pub signal_voltage: SignalVoltage,
}

/// A host controller with its driver: it carries out what the core asks for, one
/// request at a time. Calls tell how long they took; no controller has a clock.
pub trait Host {
    /// Its limits.
    fn spec(&self) -> &HostSpec;

    /// Carries a request out and notes in it what became of it. Returns nanoseconds.
    fn request(&mut self, request: &mut Request) -> u64;

    /// Sets the bus.
    fn set_ios(&mut self, ios: &Ios);

    /// The clock that the bus really has.
    fn actual_clock_hz(&self) -> u32;

    /// Whether a card is there (`get_cd`).
    fn card_is_present(&mut self) -> bool;

    /// Whether the card's write protection switch is on (`get_ro`).
    fn card_is_read_only(&mut self) -> bool {
        false
    }

    /// Whether the card holds its first data line down, `None` if the controller
    /// cannot tell (`card_busy`).
    fn card_is_busy(&mut self) -> Option<bool> {
        None
    }

    /// Sets the voltage of the lines (`start_signal_voltage_switch`).
    ///
    /// # Errors
    /// Where the controller does not have it, or it does not become stable.
    fn set_signal_voltage(&mut self, voltage: SignalVoltage) -> Result<(), Error> {
        match voltage {
            SignalVoltage::V330 => Ok(()),
            SignalVoltage::V180 => Err(Error::NotSupported),
        }
    }

    /// Finds the moment at which data has to be taken off the lines, with a command that
    /// reads a pattern (`execute_tuning`). Returns what came of it, and nanoseconds.
    fn execute_tuning(&mut self, _opcode: u8) -> (Result<(), Error>, u64) {
        (Ok(()), 0)
    }

    /// Lets time pass between requests.
    fn delay(&mut self, ns: u64);

    /// The socket, for whoever takes the card out.
    fn slot_mut(&mut self) -> &mut Slot;
}
