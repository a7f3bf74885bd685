//! The driver of the controller (`drivers/mmc/host/sdhci.c`), without DMA's memory:
//! data goes through the buffer port, which costs the bus the same.

use super::controller::Controller;
use super::{capabilities_high, host_control_2, interrupt, register};
use crate::command::{Command, CommandFlags, Data, Direction, Error, Request, opcode};
use crate::host::{BusWidth, Caps, Caps2, Host, HostSpec, Ios, PowerMode, SignalVoltage, Timing};

/// Voltages, as OCR bits: 1.65 to 1.95, 2.9 to 3.1, 3.2 to 3.4 V.
const OCR_18: u32 = 1 << 7;
const OCR_30: u32 = 3 << 17;
const OCR_33: u32 = 3 << 20;

/// Most bytes of a request: the boundary of simple DMA.
const MAX_REQUEST_BYTES: u32 = 512 * 1024;
/// Descriptors of ADMA.
const MAX_SEGMENTS: u32 = 128;
/// The memory that is copied to where the controller has one piece only.
const BOUNCE_BYTES: u32 = 64 * 1024;
/// How often a controller is given the tuning pattern (`MAX_TUNING_LOOP`).
const TUNING_TRIES: u32 = 40;
/// The longest time limit in clocks.
const MAX_TIMEOUT_CLOCKS: u32 = 1 << 27;

/// The driver with its controller.
pub struct Sdhci {
    controller: Controller,
    spec: HostSpec,
    base_hz: u32,
    /// The upper capabilities register, 0 before version 3.
    caps_high: u32,
    /// The last width and timing, which decide on tuning.
    ios: Ios,
}

/// What the upper capabilities register tells (`sdhci_setup_host`).
fn uhs_caps(caps_high: u32) -> (Caps, Caps2) {
    let mut has = (Caps::empty(), Caps2::empty());
    if caps_high & UHS_MODES != 0 {
        has.0 |= Caps::UHS_SDR12 | Caps::UHS_SDR25;
    }
    if caps_high & capabilities_high::SDR104 != 0 {
        // A controller that is fast enough for SDR104 is for HS200 too.
        has.0 |= Caps::UHS_SDR104 | Caps::UHS_SDR50;
        has.1 |= Caps2::HS200;
    } else if caps_high & capabilities_high::SDR50 != 0 {
        has.0 |= Caps::UHS_SDR50;
    }
    if caps_high & capabilities_high::DDR50 != 0 {
        has.0 |= Caps::UHS_DDR50;
    }
    has
}

/// Modes that need lines of 1.8 V.
const UHS_MODES: u32 =
    capabilities_high::SDR50 | capabilities_high::SDR104 | capabilities_high::DDR50;

impl Sdhci {
    /// Takes a controller: reads what it can do and resets it
    /// (`sdhci_setup_host`). `caps2` is what the board adds.
    pub fn new(mut controller: Controller, caps2: Caps2) -> Sdhci {
        let caps = controller.read(register::CAPABILITIES, 4);
        let current = controller.read(register::MAX_CURRENT, 4);
        let version = controller.read(register::HOST_VERSION, 2) & 0xff;
        // Before version 3 the base clock has six bits.
        let base_bits = if version >= 2 { 0xff } else { 0x3f };
        let caps_high = match version {
            0..2 => 0,
            _ => controller.read(register::CAPABILITIES_HIGH, 4),
        };
        let base_hz = (caps >> 8 & base_bits) * 1_000_000;
        let timeout_khz = match (caps & 0x3f, caps & 0x80) {
            (0, _) => base_hz / 1000,
            (clock, 0) => clock,
            (clock, _) => clock * 1000,
        };
        let has_adma = caps & 1 << 19 != 0 && version >= 1;
        let only_simple_dma = caps & 1 << 22 != 0 && !has_adma;
        let (segments, segment_bytes, request_bytes) = match (has_adma, only_simple_dma) {
            (true, _) => (MAX_SEGMENTS, 65536, MAX_REQUEST_BYTES),
            (_, true) => (BOUNCE_BYTES / 512, BOUNCE_BYTES, BOUNCE_BYTES),
            _ => (MAX_SEGMENTS, MAX_REQUEST_BYTES, MAX_REQUEST_BYTES),
        };
        let mut has = Caps::SDIO_IRQ | Caps::CMD23 | Caps::FOUR_BIT_DATA;
        if caps & 1 << 21 != 0 {
            has |= Caps::SD_HIGHSPEED | Caps::MMC_HIGHSPEED;
        }
        let (uhs, hs200) = uhs_caps(caps_high);
        has |= uhs;
        let voltages = [(1 << 24, OCR_33), (1 << 25, OCR_30), (1 << 26, OCR_18)];
        let spec = HostSpec {
            caps: has,
            caps2: caps2 | hs200 | Caps2::SDIO_IRQ_NOTHREAD,
            ocr_avail: { voltages.iter() }
                .filter(|(bit, _)| caps & bit != 0)
                .fold(0, |all, (_, volts)| all | volts),
            f_min_hz: base_hz / if version >= 2 { 2046 } else { 256 },
            f_max_hz: base_hz,
            max_blocks: 65535,
            max_request_bytes: request_bytes,
            max_segments: segments,
            max_segment_bytes: segment_bytes,
            max_busy_timeout_ms: MAX_TIMEOUT_CLOCKS / timeout_khz.max(1),
            // The register counts in 4 mA.
            max_current_330_ma: (current & 0xff) * 4,
        };
        const RESET_ALL: u32 = 1;
        controller.write(register::SOFTWARE_RESET, 1, RESET_ALL);
        controller.write(register::INTERRUPT_STATUS_ENABLE, 4, u32::MAX);
        controller.write(register::INTERRUPT_SIGNAL_ENABLE, 4, u32::MAX);
        Sdhci {
            controller,
            spec,
            base_hz,
            caps_high,
            ios: Ios::default(),
        }
    }

    /// The same with what the board adds: lines that are wired, a card that is soldered.
    pub fn with_caps(mut self, caps: Caps) -> Sdhci {
        self.spec.caps |= caps;
        self
    }

    /// The controller.
    pub fn controller_mut(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// The divider for a clock no faster than this, as the register has it
    /// (`sdhci_calc_clk`).
    fn divider(&mut self, hz: u32) -> u32 {
        let version = self.controller.read(register::HOST_VERSION, 2) & 0xff;
        let fits = |divider: &u32| self.base_hz / divider <= hz;
        match version >= 2 {
            true if self.base_hz <= hz => 0,
            true => (2..2046).step_by(2).find(fits).unwrap_or(2046) / 2,
            false => (0..8).map(|n| 1 << n).find(fits).unwrap_or(256) / 2,
        }
    }

    fn set_clock(&mut self, hz: u32) {
        self.controller.write(register::CLOCK_CONTROL, 2, 0);
        if hz == 0 {
            return;
        }
        let divider = self.divider(hz);
        let bits = (divider & 0xff) << 8 | (divider >> 8 & 3) << 6;
        const INTERNAL_AND_CARD: u32 = 1 | 4;
        self.controller
            .write(register::CLOCK_CONTROL, 2, bits | INTERNAL_AND_CARD);
    }

    fn set_power(&mut self, ios: &Ios) {
        let volts = match 1 << ios.vdd {
            bit if bit & OCR_18 != 0 => 0x0a,
            bit if bit & OCR_30 != 0 => 0x0c,
            _ => 0x0e,
        };
        let value = match ios.power_mode {
            PowerMode::Off => 0,
            _ => volts | 1,
        };
        self.controller.write(register::POWER_CONTROL, 1, value);
    }

    fn change_control_2(&mut self, clear: u32, set: u32) {
        let control = self.controller.read(register::HOST_CONTROL_2, 2);
        self.controller
            .write(register::HOST_CONTROL_2, 2, control & !clear | set);
    }

    /// The number of the mode in the second control register; modes of 3.3 V have none
    /// (`sdhci_set_uhs_signaling`).
    fn set_mode(&mut self, timing: Timing) {
        let mode = match timing {
            Timing::Legacy | Timing::MmcHs | Timing::SdHs | Timing::UhsSdr12 => 0,
            Timing::UhsSdr25 => 1,
            Timing::UhsSdr50 => 2,
            Timing::UhsSdr104 | Timing::MmcHs200 => 3,
            Timing::UhsDdr50 => 4,
        };
        self.change_control_2(host_control_2::UHS_MODE, mode);
    }

    /// Whether the controller has to be tuned for the mode that it is in.
    fn needs_tuning(&self) -> bool {
        match self.ios.timing {
            Timing::UhsSdr104 | Timing::UhsDdr50 | Timing::MmcHs200 => true,
            Timing::UhsSdr50 => self.caps_high & capabilities_high::TUNING_FOR_SDR50 != 0,
            _ => false,
        }
    }

    /// Sends the pattern's command until the controller has made up its mind
    /// (`__sdhci_execute_tuning`).
    fn tune(&mut self, opcode: u8) -> Result<(), Error> {
        let is_wide = self.ios.bus_width == BusWidth::Eight;
        let block_bytes = match opcode == opcode::SEND_TUNING_BLOCK_HS200 && is_wide {
            true => 128,
            false => 64,
        };
        let data = Data::new(Direction::Read, block_bytes, 1);
        self.change_control_2(0, host_control_2::EXECUTE_TUNING);
        for _ in 0..TUNING_TRIES {
            self.prepare_data(&data);
            let mut command = Command::new(opcode, 0, CommandFlags::R1 | CommandFlags::ADTC);
            let status = self.send(&mut command, true);
            if status & interrupt::BUFFER_READ_READY == 0 {
                return Err(Error::Timeout);
            }
            let control = self.controller.read(register::HOST_CONTROL_2, 2);
            if control & host_control_2::EXECUTE_TUNING == 0 {
                let is_tuned = control & host_control_2::SAMPLING_CLOCK_TUNED != 0;
                return if is_tuned { Ok(()) } else { Err(Error::Again) };
            }
        }
        Err(Error::Again)
    }

    /// The interrupts that are up, which are answered by that.
    fn take_interrupts(&mut self) -> u32 {
        let status = self.controller.read(register::INTERRUPT_STATUS, 4);
        self.controller.write(register::INTERRUPT_STATUS, 4, status);
        status
    }

    /// Sends a command and waits for its answer; what else came with it.
    fn send(&mut self, command: &mut Command, has_data: bool) -> u32 {
        let flags = command.flags;
        let kind = match flags {
            _ if !flags.contains(CommandFlags::PRESENT) => 0,
            _ if flags.contains(CommandFlags::LONG) => 1,
            _ if flags.contains(CommandFlags::BUSY) => 3,
            _ => 2,
        };
        let checks = u32::from(flags.contains(CommandFlags::CRC)) << 3
            | u32::from(flags.contains(CommandFlags::OPCODE)) << 4
            | u32::from(has_data) << 5;
        self.controller.write(register::ARGUMENT, 4, command.arg);
        let value = u32::from(command.opcode) << 8 | checks | kind;
        self.controller.write(register::COMMAND, 2, value);
        let status = self.take_interrupts();
        if status & interrupt::COMMAND_TIMEOUT != 0 {
            command.error = Some(Error::Timeout);
        } else if status & interrupt::COMMAND_CRC != 0 {
            command.error = Some(Error::Crc);
        } else if kind != 0 {
            command.response = self.response(kind == 1);
        }
        if command.error.is_some() {
            const RESET_COMMAND_AND_DATA: u32 = 6;
            self.controller
                .write(register::SOFTWARE_RESET, 1, RESET_COMMAND_AND_DATA);
        }
        status
    }

    /// The answer; of a long one the controller has left the checksum out.
    fn response(&mut self, long: bool) -> [u32; 4] {
        let word = |n: u32| register::RESPONSE + 4 * n;
        if !long {
            return [self.controller.read(word(0), 4), 0, 0, 0];
        }
        let words = [3, 2, 1, 0].map(|n| self.controller.read(word(n), 4));
        let [a, b, c, d] = words;
        [a << 8 | b >> 24, b << 8 | c >> 24, c << 8 | d >> 24, d << 8]
    }

    fn prepare_data(&mut self, data: &Data) {
        const MULTI_BLOCK_WITH_COUNT: u32 = 1 << 5 | 1 << 1;
        const READ: u32 = 1 << 4;
        let mut mode = match data.direction {
            Direction::Read => READ,
            Direction::Write => 0,
        };
        if data.blocks > 1 {
            mode |= MULTI_BLOCK_WITH_COUNT;
        }
        self.controller
            .write(register::BLOCK_SIZE, 2, data.block_bytes);
        self.controller.write(register::BLOCK_COUNT, 2, data.blocks);
        self.controller.write(register::TRANSFER_MODE, 2, mode);
    }

    /// Moves blocks through the port until all are there or something goes wrong.
    fn transfer(&mut self, data: &mut Data, first: u32) {
        let mut status = first;
        let is_read = data.direction == Direction::Read;
        loop {
            if status & interrupt::DATA_TIMEOUT != 0 {
                data.error = Some(Error::Timeout);
            } else if status & interrupt::DATA_CRC != 0 {
                data.error = Some(Error::Crc);
            }
            if data.error.is_some() || status & interrupt::TRANSFER_COMPLETE != 0 {
                break;
            }
            let ready = interrupt::BUFFER_READ_READY | interrupt::BUFFER_WRITE_READY;
            if status & ready == 0 {
                // Neither data nor an end: the driver's timer would run out.
                data.error = Some(Error::Timeout);
                break;
            }
            for at in (0..data.block_bytes).step_by(4) {
                let bytes = (data.block_bytes - at).min(4);
                if is_read {
                    let word = self.controller.read(register::BUFFER_DATA_PORT, bytes);
                    if let Some(content) = &mut data.content {
                        content.extend(&word.to_le_bytes()[..bytes as usize]);
                    }
                } else {
                    self.controller.write(register::BUFFER_DATA_PORT, bytes, 0);
                }
            }
            status = self.take_interrupts();
            // A write is through once the card has taken the block.
            if is_read || status & interrupt::ALL_ERRORS == 0 {
                data.transferred_bytes += data.block_bytes;
            }
        }
        if data.error.is_some() {
            // How much of it is right is not known (`sdhci_finish_data`).
            data.transferred_bytes = 0;
            const RESET_DATA: u32 = 4;
            self.controller
                .write(register::SOFTWARE_RESET, 1, RESET_DATA);
        }
    }
}

impl Host for Sdhci {
    fn spec(&self) -> &HostSpec {
        &self.spec
    }

    fn request(&mut self, request: &mut Request) -> u64 {
        self.controller.take_elapsed_ns();
        if self.controller.slot().card().is_none() {
            request.command.error = Some(Error::NoMedium);
            return self.controller.take_elapsed_ns();
        }
        if let Some(before) = &mut request.set_block_count {
            self.send(before, false);
            if before.error.is_some() {
                return self.controller.take_elapsed_ns();
            }
        }
        if let Some(data) = &request.data {
            self.prepare_data(data);
        }
        let status = self.send(&mut request.command, request.data.is_some());
        if let (Some(data), None) = (&mut request.data, request.command.error) {
            self.transfer(data, status);
            // With a count that was told before, only an error needs an end.
            let told = request.set_block_count.is_some() && data.error.is_none();
            if let (Some(stop), false) = (&mut request.stop, told) {
                self.send(stop, false);
            }
        }
        self.controller.take_elapsed_ns()
    }

    fn set_ios(&mut self, ios: &Ios) {
        if ios.power_mode == PowerMode::Off {
            self.set_power(ios);
            self.set_clock(0);
            return;
        }
        self.set_clock(ios.clock_hz);
        self.set_power(ios);
        let width = match ios.bus_width {
            BusWidth::One => 0,
            BusWidth::Four => 2,
            BusWidth::Eight => 0x20,
        };
        let high_speed = u32::from(ios.timing != Timing::Legacy) << 2;
        self.controller
            .write(register::HOST_CONTROL, 1, width | high_speed);
        self.set_mode(ios.timing);
        self.ios = *ios;
    }

    /// `sdhci_start_signal_voltage_switch`.
    fn set_signal_voltage(&mut self, voltage: SignalVoltage) -> Result<(), Error> {
        let bit = host_control_2::SIGNAL_1_8_V;
        match voltage {
            SignalVoltage::V330 => self.change_control_2(bit, 0),
            SignalVoltage::V180 if self.caps_high & UHS_MODES == 0 => {
                return Err(Error::NotSupported);
            }
            SignalVoltage::V180 => self.change_control_2(0, bit),
        }
        // The controller takes the bit back where the voltage is not stable.
        let is_low = self.controller.read(register::HOST_CONTROL_2, 2) & bit != 0;
        match is_low == (voltage == SignalVoltage::V180) {
            true => Ok(()),
            false => Err(Error::Again),
        }
    }

    /// `sdhci_execute_tuning`.
    fn execute_tuning(&mut self, opcode: u8) -> (Result<(), Error>, u64) {
        if !self.needs_tuning() {
            return (Ok(()), 0);
        }
        self.controller.take_elapsed_ns();
        let done = self.tune(opcode);
        if done.is_err() {
            // Back to the clock that is not tuned (`sdhci_reset_tuning`).
            let both = host_control_2::EXECUTE_TUNING | host_control_2::SAMPLING_CLOCK_TUNED;
            self.change_control_2(both, 0);
        }
        (done, self.controller.take_elapsed_ns())
    }

    fn actual_clock_hz(&self) -> u32 {
        self.controller.clock_hz()
    }

    fn card_is_present(&mut self) -> bool {
        const CARD_INSERTED: u32 = 1 << 16;
        self.controller.read(register::PRESENT_STATE, 4) & CARD_INSERTED != 0
    }

    fn card_is_read_only(&mut self) -> bool {
        const WRITE_ENABLED: u32 = 1 << 19;
        self.controller.read(register::PRESENT_STATE, 4) & WRITE_ENABLED == 0
    }

    fn card_is_busy(&mut self) -> Option<bool> {
        const DATA_LINE_0: u32 = 1 << 20;
        Some(self.controller.read(register::PRESENT_STATE, 4) & DATA_LINE_0 == 0)
    }

    fn delay(&mut self, ns: u64) {
        self.controller.slot_mut().pass(ns);
    }

    fn slot_mut(&mut self) -> &mut crate::emulated::Slot {
        self.controller.slot_mut()
    }
}
