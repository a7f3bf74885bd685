//! The controller's registers.

use super::{capabilities_high, host_control_2, interrupt, register};
use crate::command::{Error, opcode};
use crate::emulated::{Answer, PHASES, Slot, bus_clocks};

/// What is wired into a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerSpec {
    /// The capabilities registers, the lower one in the lower half.
    pub capabilities: u64,
    /// The maximum current register.
    pub max_current: u64,
    /// Version of the specification: 1 is 2.00, 2 is 3.00.
    pub version: u8,
}

/// As QEMU's `sdhci-pci` is built (`SDHC_CAPAB_REG_DEFAULT` and its siblings in
/// `hw/sd/sdhci-internal.h`): 52 MHz, ADMA, high speed, 3.3 and 1.8 V.
impl Default for ControllerSpec {
    fn default() -> ControllerSpec {
        ControllerSpec {
            capabilities: 0x0578_34b4,
            max_current: 0,
            version: 1,
        }
    }
}

/// Present state: data runs, which way, buffer, card, data line 0.
const DATA_INHIBIT: u32 = 1 << 1;
const WRITE_TRANSFER_ACTIVE: u32 = 1 << 8;
const READ_TRANSFER_ACTIVE: u32 = 1 << 9;
const BUFFER_WRITE_ENABLE: u32 = 1 << 10;
const BUFFER_READ_ENABLE: u32 = 1 << 11;
const CARD_INSERTED: u32 = 1 << 16;
const CARD_STABLE: u32 = 1 << 17;
const WRITE_ENABLED: u32 = 1 << 19;
const DATA_LINE_0: u32 = 1 << 20;

/// Transfer mode: block count, automatic CMD12, reads, more than one block.
const BLOCK_COUNT_ENABLE: u32 = 1 << 1;
const AUTO_CMD12: u32 = 1 << 2;
const READ: u32 = 1 << 4;
const MULTI_BLOCK: u32 = 1 << 5;

/// A transfer in progress.
#[derive(Clone, Debug, Default)]
struct Transfer {
    /// Blocks that are left.
    blocks: u32,
    /// A block in the buffer and how much of it is still to be moved.
    buffer: Vec<u8>,
    at: usize,
}

/// A controller with a socket.
#[derive(Clone, Debug)]
pub struct Controller {
    spec: ControllerSpec,
    slot: Slot,
    registers: [u8; 256],
    transfer: Option<Transfer>,
    /// Where within a clock data is taken off the lines.
    phase: u8,
    /// While it is being tuned: the phase that is tried, and a bit for each that was right.
    tuning: Option<(u8, u32)>,
    elapsed_ns: u64,
}

/// The middle of the longest run of bits, if there is one.
fn middle_of_longest_run(bits: u32) -> Option<u8> {
    let run = |first: &u8| (bits >> first).trailing_ones();
    let first = (0..PHASES).rev().max_by_key(run)?;
    let length = run(&first) as u8;
    (length > 0).then(|| first + length / 2)
}

impl Controller {
    /// A controller after power-on.
    pub fn new(spec: ControllerSpec, slot: Slot) -> Controller {
        let mut controller = Controller {
            spec,
            slot,
            registers: [0; 256],
            transfer: None,
            phase: 0,
            tuning: None,
            elapsed_ns: 0,
        };
        controller.reset();
        controller
    }

    fn reset(&mut self) {
        self.registers = [0; 256];
        self.transfer = None;
        self.phase = 0;
        self.tuning = None;
        let [low, high] = [
            self.spec.capabilities as u32,
            (self.spec.capabilities >> 32) as u32,
        ];
        self.put(register::CAPABILITIES, 4, low);
        self.put(register::CAPABILITIES_HIGH, 4, high);
        self.put(register::MAX_CURRENT, 4, self.spec.max_current as u32);
        self.put(register::HOST_VERSION, 2, u32::from(self.spec.version));
    }

    /// The socket.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The socket, to take the card out of.
    pub fn slot_mut(&mut self) -> &mut Slot {
        &mut self.slot
    }

    /// How long the bus was at work since this was last asked.
    pub fn take_elapsed_ns(&mut self) -> u64 {
        std::mem::take(&mut self.elapsed_ns)
    }

    /// Whether the interrupt line is up.
    pub fn interrupt(&self) -> bool {
        let status = self.get(register::INTERRUPT_STATUS, 4);
        status & self.get(register::INTERRUPT_SIGNAL_ENABLE, 4) != 0
    }

    fn get(&self, offset: u32, bytes: u32) -> u32 {
        (0..bytes).rev().fold(0, |word, n| {
            let byte = self.registers.get((offset + n) as usize);
            word << 8 | u32::from(byte.copied().unwrap_or(0))
        })
    }

    fn put(&mut self, offset: u32, bytes: u32, value: u32) {
        for n in 0..bytes {
            if let Some(byte) = self.registers.get_mut((offset + n) as usize) {
                *byte = (value >> (8 * n)) as u8;
            }
        }
    }

    /// Reads a register of 1, 2 or 4 bytes.
    pub fn read(&mut self, offset: u32, bytes: u32) -> u32 {
        match offset {
            register::PRESENT_STATE => self.present_state(),
            register::BUFFER_DATA_PORT => self.read_port(bytes),
            _ => self.get(offset, bytes),
        }
    }

    /// Writes a register of 1, 2 or 4 bytes. Those that cannot be written stay as
    /// they are.
    pub fn write(&mut self, offset: u32, bytes: u32, value: u32) {
        match offset {
            register::INTERRUPT_STATUS => {
                let mut status = self.get(offset, 4) & !value;
                if status & interrupt::ALL_ERRORS == 0 {
                    status &= !interrupt::ERROR;
                }
                self.put(offset, 4, status);
            }
            register::SOFTWARE_RESET => self.software_reset(value),
            register::COMMAND => {
                self.put(offset, 2, value);
                self.command(value);
            }
            register::BUFFER_DATA_PORT => self.write_port(bytes, value),
            register::POWER_CONTROL => {
                self.put(offset, 1, value);
                self.slot.set_power(value & 1 != 0);
            }
            register::HOST_CONTROL_2 => self.control_2(value),
            // The clock is stable as soon as it runs.
            register::CLOCK_CONTROL => {
                let stable = (value & 1) << 1;
                self.put(offset, 2, value & !2 | stable);
            }
            register::PRESENT_STATE
            | register::CAPABILITIES
            | register::CAPABILITIES_HIGH
            | register::MAX_CURRENT
            | register::HOST_VERSION => {}
            _ => self.put(offset, bytes, value),
        }
    }

    /// The modes of UHS-I, of which only version 3 has the register.
    fn control_2(&mut self, value: u32) {
        if self.spec.version < 2 {
            return;
        }
        let before = self.get(register::HOST_CONTROL_2, 2);
        let mut value = value;
        let has_uhs = self.get(register::CAPABILITIES_HIGH, 4)
            & (capabilities_high::SDR50 | capabilities_high::SDR104 | capabilities_high::DDR50);
        if has_uhs == 0 {
            value &= !host_control_2::SIGNAL_1_8_V;
        }
        if value & host_control_2::SIGNAL_1_8_V != 0 {
            self.slot.set_low_voltage();
        }
        match value & host_control_2::EXECUTE_TUNING {
            0 => self.tuning = None,
            _ if before & host_control_2::EXECUTE_TUNING == 0 => self.tuning = Some((0, 0)),
            _ => {}
        }
        if value & host_control_2::SAMPLING_CLOCK_TUNED == 0 {
            self.phase = 0;
        }
        self.put(register::HOST_CONTROL_2, 2, value);
    }

    /// Whether the mode is so fast that data is only right at some phases.
    fn needs_phase(&self) -> bool {
        const SDR50: u32 = 2;
        const SDR104: u32 = 3;
        let caps = self.get(register::CAPABILITIES_HIGH, 4);
        match self.get(register::HOST_CONTROL_2, 2) & host_control_2::UHS_MODE {
            SDR50 => caps & capabilities_high::TUNING_FOR_SDR50 != 0,
            mode => mode == SDR104,
        }
    }

    /// A block of the tuning pattern: whether it is right is noted, and no error is told.
    /// After the last phase the best one is taken.
    fn tune(&mut self, (phase, good): (u8, u32)) {
        let mut block = vec![0; self.block_bytes()];
        self.spend_block();
        let is_right = self.slot.read_block(&mut block).is_ok();
        let is_right = is_right && (!self.needs_phase() || self.slot.is_good_phase(phase));
        let good = good | u32::from(is_right) << phase;
        let mut control = self.get(register::HOST_CONTROL_2, 2);
        if phase + 1 < PHASES {
            self.tuning = Some((phase + 1, good));
        } else {
            self.tuning = None;
            control &= !host_control_2::EXECUTE_TUNING;
            if let Some(phase) = middle_of_longest_run(good) {
                self.phase = phase;
                control |= host_control_2::SAMPLING_CLOCK_TUNED;
            }
        }
        self.put(register::HOST_CONTROL_2, 2, control);
        self.raise(interrupt::BUFFER_READ_READY);
    }

    /// All of it, the command line, or the data lines.
    fn software_reset(&mut self, which: u32) {
        const ALL: u32 = 1;
        const DATA: u32 = 4;
        if which & ALL != 0 {
            self.reset();
        }
        if which & DATA != 0 {
            self.transfer = None;
        }
    }

    fn present_state(&self) -> u32 {
        let mut state = WRITE_ENABLED;
        if self.slot.card().is_some() {
            state |= CARD_INSERTED | CARD_STABLE;
        }
        if !self.slot.is_busy() {
            state |= DATA_LINE_0;
        } else {
            state |= DATA_INHIBIT;
        }
        if self.transfer.is_some() {
            state |= DATA_INHIBIT;
            state |= match self.get(register::TRANSFER_MODE, 2) & READ {
                0 => WRITE_TRANSFER_ACTIVE | BUFFER_WRITE_ENABLE,
                _ => READ_TRANSFER_ACTIVE | BUFFER_READ_ENABLE,
            };
        }
        state
    }

    /// The bus' clock as the divider makes it.
    pub fn clock_hz(&self) -> u32 {
        let control = self.get(register::CLOCK_CONTROL, 2);
        if control & 4 == 0 {
            return 0;
        }
        let high = match self.spec.version {
            0..2 => 0,
            _ => (control >> 6 & 3) << 8,
        };
        let base_hz = (self.spec.capabilities >> 8 & 0xff) as u32 * 1_000_000;
        match control >> 8 & 0xff | high {
            0 => base_hz,
            divider => base_hz / (2 * divider),
        }
    }

    fn data_lines(&self) -> u64 {
        let control = self.get(register::HOST_CONTROL, 1);
        match (control & 0x20, control & 2) {
            (0x20, _) => 8,
            (_, 2) => 4,
            _ => 1,
        }
    }

    fn spend_clocks(&mut self, clocks: u64) {
        let hz = u64::from(self.clock_hz().max(1));
        let ns = clocks.saturating_mul(1_000_000_000).div_ceil(hz);
        self.elapsed_ns = self.elapsed_ns.saturating_add(ns);
        self.slot.pass(ns);
    }

    fn raise(&mut self, bits: u32) {
        let error = match bits & interrupt::ALL_ERRORS {
            0 => 0,
            _ => interrupt::ERROR,
        };
        let enabled = self.get(register::INTERRUPT_STATUS_ENABLE, 4) | interrupt::ERROR;
        let status = self.get(register::INTERRUPT_STATUS, 4) | (bits | error) & enabled;
        self.put(register::INTERRUPT_STATUS, 4, status);
    }

    /// A command goes out.
    fn command(&mut self, register_value: u32) {
        let (opcode, kind) = ((register_value >> 8 & 0x3f) as u8, register_value & 3);
        let has_data = register_value & 0x20 != 0;
        let arg = self.get(register::ARGUMENT, 4);
        if self.clock_hz() == 0 {
            self.raise(interrupt::COMMAND_TIMEOUT);
            return;
        }
        let answer = self.slot.command(opcode, arg);
        let outcome = match (answer, kind) {
            (Err(_), _) => interrupt::COMMAND_CRC,
            (Ok(Answer::Silence), 0) => interrupt::COMMAND_COMPLETE,
            (Ok(Answer::Silence), _) => interrupt::COMMAND_TIMEOUT,
            (Ok(answer), _) => {
                self.put_answer(answer);
                interrupt::COMMAND_COMPLETE
            }
        };
        self.spend_clocks(match (answer, kind) {
            (Ok(Answer::Silence), 1..) => bus_clocks::COMMAND + bus_clocks::ANSWER_TIMEOUT,
            (_, 1) => bus_clocks::COMMAND + bus_clocks::LONG_ANSWER,
            _ => bus_clocks::COMMAND,
        });
        self.raise(outcome);
        if outcome != interrupt::COMMAND_COMPLETE {
            return;
        }
        let is_tuning = matches!(
            opcode,
            opcode::SEND_TUNING_BLOCK | opcode::SEND_TUNING_BLOCK_HS200
        );
        if let (Some(tuning), true) = (self.tuning, is_tuning) {
            self.tune(tuning);
        } else if has_data {
            self.begin_transfer();
        } else if kind == 3 {
            // The transfer is complete once the card lets its data line go.
            let busy_ns = self.slot.wait_while_busy();
            self.elapsed_ns = self.elapsed_ns.saturating_add(busy_ns);
            self.raise(interrupt::TRANSFER_COMPLETE);
        }
    }

    /// A long answer is kept without its last byte, the checksum.
    fn put_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Silence => {}
            Answer::Short(word) => self.put(register::RESPONSE, 4, word),
            Answer::Long([a, b, c, d]) => {
                let words = [c << 24 | d >> 8, b << 24 | c >> 8, a << 24 | b >> 8, a >> 8];
                for (n, word) in (0..).zip(words) {
                    self.put(register::RESPONSE + 4 * n, 4, word);
                }
            }
        }
    }

    fn begin_transfer(&mut self) {
        let mode = self.get(register::TRANSFER_MODE, 2);
        let blocks = match (mode & MULTI_BLOCK, mode & BLOCK_COUNT_ENABLE) {
            (0, _) | (_, 0) => 1,
            _ => self.get(register::BLOCK_COUNT, 2),
        };
        self.transfer = Some(Transfer {
            blocks,
            ..Transfer::default()
        });
        match mode & READ {
            0 => self.raise(interrupt::BUFFER_WRITE_READY),
            _ => self.fill_buffer(),
        }
    }

    fn block_bytes(&self) -> usize {
        (self.get(register::BLOCK_SIZE, 2) & 0xfff) as usize
    }

    fn spend_block(&mut self) {
        let bits = 8 * self.block_bytes() as u64;
        let lines = self.data_lines();
        self.spend_clocks(bits.div_ceil(lines) + bus_clocks::BLOCK);
    }

    /// Fetches the next block of a read into the buffer.
    fn fill_buffer(&mut self) {
        let mut block = vec![0; self.block_bytes()];
        self.spend_block();
        let read = self.slot.read_block(&mut block);
        let is_right = !self.needs_phase() || self.slot.is_good_phase(self.phase);
        match read {
            Ok(()) if !is_right => self.fail_transfer(Error::Crc),
            Ok(()) => {
                if let Some(transfer) = &mut self.transfer {
                    transfer.buffer = block;
                    transfer.at = 0;
                }
                self.raise(interrupt::BUFFER_READ_READY);
            }
            Err(error) => self.fail_transfer(error),
        }
    }

    fn fail_transfer(&mut self, error: Error) {
        self.transfer = None;
        self.raise(match error {
            Error::Crc => interrupt::DATA_CRC,
            _ => interrupt::DATA_TIMEOUT,
        });
    }

    /// A block has gone through; the next one, or the end.
    fn next_block(&mut self) {
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        transfer.blocks = transfer.blocks.saturating_sub(1);
        let left = transfer.blocks;
        self.put(register::BLOCK_COUNT, 2, left);
        let mode = self.get(register::TRANSFER_MODE, 2);
        match (left, mode & READ) {
            (0, _) => {
                self.transfer = None;
                if mode & AUTO_CMD12 != 0 {
                    // Its answer goes to the last word of the response.
                    if let Ok(Answer::Short(word)) = self.slot.command(12, 0) {
                        self.put(register::RESPONSE + 12, 4, word);
                    }
                }
                self.raise(interrupt::TRANSFER_COMPLETE);
            }
            (_, 0) => self.raise(interrupt::BUFFER_WRITE_READY),
            _ => self.fill_buffer(),
        }
    }

    fn read_port(&mut self, bytes: u32) -> u32 {
        let Some(transfer) = &mut self.transfer else {
            return 0;
        };
        let word = (0..bytes as usize).rev().fold(0, |word, n| {
            let byte = transfer.buffer.get(transfer.at + n).copied();
            word << 8 | u32::from(byte.unwrap_or(0))
        });
        transfer.at += bytes as usize;
        if transfer.at >= transfer.buffer.len() {
            self.next_block();
        }
        word
    }

    fn write_port(&mut self, bytes: u32, value: u32) {
        let size = self.block_bytes();
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        let word = value.to_le_bytes();
        transfer.buffer.extend(&word[..bytes.min(4) as usize]);
        if transfer.buffer.len() < size {
            return;
        }
        transfer.buffer.clear();
        self.spend_block();
        match self.slot.write_block() {
            Ok(()) => self.next_block(),
            Err(error) => self.fail_transfer(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_a_card_times_out() {
        let mut controller = Controller::new(ControllerSpec::default(), Slot::default());
        controller.write(register::INTERRUPT_STATUS_ENABLE, 4, u32::MAX);
        controller.write(register::CLOCK_CONTROL, 2, 0x4005);
        controller.write(register::ARGUMENT, 4, 0x1aa);
        controller.write(register::COMMAND, 2, 8 << 8 | 0x1a);
        let status = controller.read(register::INTERRUPT_STATUS, 4);
        assert_eq!(status, interrupt::COMMAND_TIMEOUT | interrupt::ERROR);
        controller.write(register::INTERRUPT_STATUS, 4, interrupt::COMMAND_TIMEOUT);
        assert_eq!(controller.read(register::INTERRUPT_STATUS, 4), 0);
    }

    #[test]
    fn the_middle_of_the_phases_that_are_right_is_taken() {
        assert_eq!(middle_of_longest_run(0), None);
        assert_eq!(middle_of_longest_run(0b0011_1110_0110), Some(7));
        assert_eq!(middle_of_longest_run(1 << 15), Some(15));
        assert_eq!(middle_of_longest_run(0xffff), Some(8));
    }

    #[test]
    fn a_controller_of_version_2_has_no_modes_of_uhs() {
        let mut controller = Controller::new(ControllerSpec::default(), Slot::default());
        controller.write(register::HOST_CONTROL_2, 2, 0xffff);
        assert_eq!(controller.read(register::HOST_CONTROL_2, 2), 0);
    }

    #[test]
    fn registers_that_are_wired_cannot_be_written() {
        let mut controller = Controller::new(ControllerSpec::default(), Slot::default());
        controller.write(register::CAPABILITIES, 4, 0);
        assert_eq!(controller.read(register::CAPABILITIES, 4), 0x0578_34b4);
        assert_eq!(
            controller.read(register::PRESENT_STATE, 4) & CARD_INSERTED,
            0
        );
    }
}
