//! The controller's registers.

use std::collections::VecDeque;

use super::{BUS_HZ, FIFO_WORDS, clock, command, data_control, register, status};
use crate::command::Error;
use crate::emulated::{Answer, Slot, bus_clocks};

/// One of the two interrupt lines, each with a mask of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Commands and ends of data (MCIINTR0).
    Zero,
    /// The FIFO, for whoever moves data by the processor (MCIINTR1).
    One,
}

/// What a driver did to a register; data of the FIFO is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It read this value.
    Read(u32, u32),
    /// It wrote it.
    Write(u32, u32),
    /// It took so many words from the FIFO.
    Take(u32),
    /// It put so many there.
    Put(u32),
}

/// A controller with a socket.
#[derive(Clone, Debug, Default)]
pub struct Controller {
    slot: Slot,
    power: u32,
    clock: u32,
    argument: u32,
    command: u32,
    response_command: u32,
    response: [u32; 4],
    data_timer: u32,
    data_length: u32,
    data_control: u32,
    /// Bytes that the bus has still to carry.
    data_count: u32,
    /// What stays until it is cleared.
    sticky: u32,
    masks: [u32; 2],
    fifo: VecDeque<u32>,
    /// The block that is on the bus, and how much of it has been through the FIFO.
    block: Vec<u8>,
    at: usize,
    elapsed_ns: u64,
    accesses: Option<Vec<Access>>,
}

impl Controller {
    /// A controller after power-on.
    pub fn new(slot: Slot) -> Controller {
        Controller {
            slot,
            ..Controller::default()
        }
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

    /// From now on what a driver does is written down.
    pub fn watch(&mut self) {
        self.accesses.get_or_insert_default();
    }

    /// What was written down since this was last asked.
    pub fn take_accesses(&mut self) -> Vec<Access> {
        self.accesses
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Whether an interrupt line is up.
    pub fn interrupt(&self, line: Line) -> bool {
        self.status() & self.masks[line as usize] != 0
    }

    /// Nobody does anything until a line is up: a read for which no data comes runs into
    /// its time limit.
    pub fn wait(&mut self) {
        let waits = self.is_active() && self.is_read() && self.data_count > 0;
        if waits && !self.slot.is_sending() {
            self.spend_clocks(u64::from(self.data_timer));
            self.fail(Error::Timeout);
        }
    }

    /// The bus' clock as the divider makes it.
    pub fn clock_hz(&self) -> u32 {
        match self.clock {
            control if control & clock::ENABLE == 0 => 0,
            control if control & clock::BYPASS != 0 => BUS_HZ,
            control => BUS_HZ / (2 * ((control & 0xff) + 1)),
        }
    }

    /// Reads a register.
    pub fn read(&mut self, offset: u32) -> u32 {
        let value = match offset {
            register::POWER => self.power,
            register::CLOCK => self.clock,
            register::ARGUMENT => self.argument,
            register::COMMAND => self.command,
            register::RESPONSE_COMMAND => self.response_command,
            register::DATA_TIMER => self.data_timer,
            register::DATA_LENGTH => self.data_length,
            register::DATA_CONTROL => self.data_control,
            register::DATA_COUNT => self.data_count,
            register::STATUS => self.status(),
            register::MASK_0 => self.masks[0],
            register::MASK_1 => self.masks[1],
            // Words that have not come to the FIFO yet, or gone from it.
            register::FIFO_COUNT => self.data_count.div_ceil(4),
            register::FIFO..register::FIFO_END => return self.take_word(),
            offset => {
                let word = offset.wrapping_sub(register::RESPONSE) / 4;
                self.response.get(word as usize).copied().unwrap_or(0)
            }
        };
        self.note(Access::Read(offset, value));
        if offset == register::STATUS && self.is_active() {
            // A processor that looks again finds what the bus has done meanwhile.
            self.run_bus();
        }
        value
    }

    /// Writes a register. Those that cannot be written stay as they are.
    pub fn write(&mut self, offset: u32, value: u32) {
        if !(register::FIFO..register::FIFO_END).contains(&offset) {
            self.note(Access::Write(offset, value));
        }
        match offset {
            register::POWER => {
                self.power = value;
                self.slot.set_power(value & 3 != 0);
            }
            register::CLOCK => self.clock = value,
            register::ARGUMENT => self.argument = value,
            register::COMMAND => {
                self.command = value;
                if value & command::ENABLE != 0 {
                    self.command = value & !command::ENABLE;
                    self.send(value);
                    let failed = status::COMMAND_TIMEOUT | status::COMMAND_CRC_FAIL;
                    if self.sticky & failed == 0 || !self.is_active() {
                        self.run_bus();
                    }
                }
            }
            register::DATA_TIMER => self.data_timer = value,
            register::DATA_LENGTH => self.data_length = value & 0xffff,
            register::DATA_CONTROL => {
                self.data_control = value & 0xff;
                if value & data_control::ENABLE != 0 {
                    // A read waits for what a command brings, a write for the FIFO.
                    self.data_count = self.data_length;
                    self.forget_data();
                }
            }
            register::CLEAR => self.sticky &= !value,
            register::MASK_0 => self.masks[0] = value,
            register::MASK_1 => self.masks[1] = value,
            register::FIFO..register::FIFO_END => self.put_word(value),
            _ => {}
        }
    }

    fn note(&mut self, access: Access) {
        let Some(accesses) = &mut self.accesses else {
            return;
        };
        match (accesses.last_mut(), access) {
            (Some(Access::Take(words)), Access::Take(more))
            | (Some(Access::Put(words)), Access::Put(more)) => *words += more,
            _ => accesses.push(access),
        }
    }

    fn is_read(&self) -> bool {
        self.data_control & data_control::READ != 0
    }

    /// Data is on its way over the bus or through the FIFO.
    fn is_active(&self) -> bool {
        self.data_control & data_control::ENABLE != 0
    }

    fn status(&self) -> u32 {
        if !self.is_active() {
            return self.sticky;
        }
        let words = self.fifo.len();
        let flags = match self.is_read() {
            true => [
                (true, status::RX_ACTIVE),
                (words == 0, status::RX_FIFO_EMPTY),
                (words > 0, status::RX_DATA_AVAILABLE),
                (words >= FIFO_WORDS / 2, status::RX_FIFO_HALF_FULL),
                (words == FIFO_WORDS, status::RX_FIFO_FULL),
            ],
            false => [
                (true, status::TX_ACTIVE),
                (words == 0, status::TX_FIFO_EMPTY),
                (words > 0, status::TX_DATA_AVAILABLE),
                (words <= FIFO_WORDS / 2, status::TX_FIFO_HALF_EMPTY),
                (words == FIFO_WORDS, status::TX_FIFO_FULL),
            ],
        };
        let up = flags.iter().filter(|(is_up, _)| *is_up);
        up.fold(self.sticky, |all, (_, flag)| all | flag)
    }

    fn spend_clocks(&mut self, clocks: u64) {
        let hz = u64::from(self.clock_hz().max(1));
        let ns = clocks.saturating_mul(1_000_000_000).div_ceil(hz);
        self.elapsed_ns = self.elapsed_ns.saturating_add(ns);
        self.slot.pass(ns);
    }

    /// A command goes out.
    fn send(&mut self, value: u32) {
        let opcode = (value & 0x3f) as u8;
        let expects = value & command::RESPONSE != 0;
        if self.clock_hz() == 0 {
            self.sticky |= status::COMMAND_TIMEOUT;
            return;
        }
        let answer = self.slot.command(opcode, self.argument);
        self.spend_clocks(match answer {
            Ok(Answer::Silence) if expects => bus_clocks::COMMAND + bus_clocks::ANSWER_TIMEOUT,
            _ if value & command::LONG_RESPONSE != 0 => {
                bus_clocks::COMMAND + bus_clocks::LONG_ANSWER
            }
            _ => bus_clocks::COMMAND,
        });
        self.sticky |= match answer {
            Err(_) => status::COMMAND_CRC_FAIL,
            Ok(_) if !expects => status::COMMAND_SENT,
            Ok(Answer::Silence) => status::COMMAND_TIMEOUT,
            Ok(Answer::Short(word)) => {
                self.response_command = u32::from(opcode);
                self.response = [word, 0, 0, 0];
                status::COMMAND_RESPONSE_END
            }
            Ok(Answer::Long(words)) => {
                self.response = words;
                status::COMMAND_RESPONSE_END
            }
        };
    }

    fn block_bytes(&self) -> usize {
        1 << (self.data_control >> data_control::BLOCK_SIZE_SHIFT & 0xf).min(11)
    }

    fn forget_data(&mut self) {
        self.fifo.clear();
        self.block.clear();
        self.at = 0;
    }

    /// The bus carries what it can: until the FIFO is full of a read, or empty of a
    /// write.
    fn run_bus(&mut self) {
        if self.is_active() {
            let carried = match self.is_read() {
                true => self.fill_fifo(),
                false => self.drain_fifo(),
            };
            if let Err(error) = carried {
                return self.fail(error);
            }
        }
        // Where no data is left, both ends show, as QEMU's pl181 tells.
        if self.data_count == 0 {
            self.sticky |= status::DATA_END | status::DATA_BLOCK_END;
            if self.fifo.is_empty() {
                self.data_control &= !data_control::ENABLE;
            }
        }
    }

    /// Data went wrong, which ends it.
    fn fail(&mut self, error: Error) {
        self.data_control &= !data_control::ENABLE;
        self.forget_data();
        self.sticky |= match error {
            Error::Crc => status::DATA_CRC_FAIL,
            _ => status::DATA_TIMEOUT,
        };
    }

    fn spend_block(&mut self, bytes: usize) {
        self.spend_clocks(8 * bytes as u64 + bus_clocks::BLOCK);
    }

    fn fill_fifo(&mut self) -> Result<(), Error> {
        while self.fifo.len() < FIFO_WORDS && self.data_count > 0 {
            if self.at == self.block.len() {
                if !self.slot.is_sending() {
                    // It is armed before CMD23, and data comes with the command after that.
                    return Ok(());
                }
                let mut block = vec![0; self.block_bytes()];
                self.spend_block(block.len());
                self.slot.read_block(&mut block)?;
                (self.block, self.at) = (block, 0);
            }
            let rest = &self.block[self.at..];
            let bytes = rest.len().min(4).min(self.data_count as usize);
            let word = rest[..bytes].iter().rev();
            let word = word.fold(0, |word, &byte| word << 8 | u32::from(byte));
            self.fifo.push_back(word);
            self.at += bytes;
            self.data_count -= bytes as u32;
        }
        Ok(())
    }

    fn drain_fifo(&mut self) -> Result<(), Error> {
        while let Some(word) = self.fifo.pop_front() {
            let bytes = self.data_count.min(4);
            self.block.extend(&word.to_le_bytes()[..bytes as usize]);
            self.data_count -= bytes;
            if self.block.len() >= self.block_bytes() {
                self.spend_block(self.block.len());
                self.block.clear();
                self.slot.write_block()?;
            }
        }
        Ok(())
    }

    fn take_word(&mut self) -> u32 {
        self.note(Access::Take(1));
        let word = self.fifo.pop_front().unwrap_or(0);
        if self.data_count == 0 && self.fifo.is_empty() {
            self.run_bus();
        }
        word
    }

    fn put_word(&mut self, word: u32) {
        self.note(Access::Put(1));
        if self.is_active() && !self.is_read() {
            self.fifo.push_back(word);
            // The FIFO empties faster than a processor fills it.
            self.run_bus();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clocked(slot: Slot) -> Controller {
        let mut controller = Controller::new(slot);
        controller.write(register::POWER, 3);
        controller.write(register::CLOCK, clock::ENABLE | 0x1d);
        controller
    }

    #[test]
    fn a_command_without_a_card_times_out() {
        let mut controller = clocked(Slot::default());
        assert_eq!(controller.clock_hz(), 400_000);
        controller.write(register::MASK_0, status::COMMAND_TIMEOUT);
        controller.write(register::ARGUMENT, 0x1aa);
        controller.write(register::COMMAND, 8 | command::RESPONSE | command::ENABLE);
        assert!(controller.interrupt(Line::Zero) && !controller.interrupt(Line::One));
        let found = controller.read(register::STATUS);
        assert_eq!(found & status::COMMAND_TIMEOUT, status::COMMAND_TIMEOUT);
        // 173 clocks at 400 kHz.
        assert_eq!(controller.take_elapsed_ns(), 432_500);
        controller.write(register::CLEAR, status::COMMAND_TIMEOUT);
        assert!(!controller.interrupt(Line::Zero));
    }

    #[test]
    fn a_command_without_an_answer_is_sent() {
        let mut controller = clocked(Slot::default());
        controller.write(register::COMMAND, command::ENABLE);
        let found = controller.read(register::STATUS);
        assert_eq!(found & status::COMMAND_SENT, status::COMMAND_SENT);
    }

    #[test]
    fn data_that_does_not_come_times_out() {
        let mut controller = clocked(Slot::default());
        controller.write(register::MASK_0, status::DATA_TIMEOUT);
        controller.write(register::DATA_TIMER, 40_000);
        controller.write(register::DATA_LENGTH, 512);
        controller.write(register::DATA_CONTROL, 0x93);
        controller.write(register::COMMAND, command::ENABLE);
        controller.read(register::STATUS);
        // A command without data may come before the one with it.
        assert!(!controller.interrupt(Line::Zero));
        controller.take_elapsed_ns();
        controller.wait();
        assert!(controller.interrupt(Line::Zero));
        assert_eq!(controller.take_elapsed_ns(), 100_000_000);
        assert_eq!(controller.read(register::DATA_COUNT), 512);
        assert_eq!(controller.read(register::STATUS) & status::RX_ACTIVE, 0);
    }
}
