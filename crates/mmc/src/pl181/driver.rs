//! The driver of the controller (`drivers/mmc/host/mmci.c`), for the variant without
//! DMA that Arm's own boards have.

use super::controller::{Controller, Line};
use super::{BUS_HZ, FIFO_WORDS, clock, command, data_control, register, status};
use crate::command::{Command, CommandFlags, Data, Direction, Error, Request};
use crate::emulated::Slot;
use crate::host::{BusMode, Caps, Caps2, Host, HostSpec, Ios, PowerMode};

/// Interrupts of the first line while a command or data runs (`MCI_IRQENABLE`).
const INTERRUPTS: u32 = status::COMMAND_CRC_FAIL
    | status::DATA_CRC_FAIL
    | status::COMMAND_TIMEOUT
    | status::DATA_TIMEOUT
    | status::TX_UNDERRUN
    | status::RX_OVERRUN
    | status::COMMAND_RESPONSE_END
    | status::COMMAND_SENT
    | status::START_BIT_ERROR;
const DATA_ERRORS: u32 = status::START_BIT_ERROR
    | status::DATA_CRC_FAIL
    | status::DATA_TIMEOUT
    | status::TX_UNDERRUN
    | status::RX_OVERRUN;
/// What is cleared before anything is enabled.
const ALL_STICKY: u32 = 0xfff;

const FIFO_BYTES: u32 = 4 * FIFO_WORDS as u32;
/// A scatter list's piece, which data is moved within.
const PAGE_BYTES: u32 = 4096;
/// The data length register has sixteen bits.
const MAX_REQUEST_BYTES: u32 = (1 << 16) - 1;
/// Data blocks have up to 2 KiB.
const MAX_BLOCK_BYTES: u32 = 1 << 11;
/// `NR_SG`.
const MAX_SEGMENTS: u32 = 128;

/// What the board supplies: 3.2 to 3.4 V, as OCR bits.
const OCR: u32 = 3 << 20;

/// The driver with its controller.
pub struct Mmci {
    controller: Controller,
    spec: HostSpec,
    /// Registers as they were last written: what is the same is not written again.
    power: u32,
    clock: u32,
    data_control: u32,
    bus_hz: u32,
    is_suspended: bool,
}

/// The command of a request that is on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    SetBlockCount,
    Command,
    Stop,
}

/// A request that is carried out.
struct Running<'a> {
    request: &'a mut Request,
    sent: Option<Sent>,
    /// Data is enabled, and so many bytes are still to be moved.
    data: Option<u32>,
    is_done: bool,
}

impl Running<'_> {
    fn command_mut(&mut self) -> Option<&mut Command> {
        match self.sent? {
            Sent::SetBlockCount => self.request.set_block_count.as_mut(),
            Sent::Command => Some(&mut self.request.command),
            Sent::Stop => self.request.stop.as_mut(),
        }
    }

    fn reads(&self) -> bool {
        let data = self.request.data.as_ref();
        data.is_some_and(|data| data.direction == Direction::Read)
    }
}

impl Mmci {
    /// Takes a controller (`mmci_probe`). `f_max_hz` is the device tree's
    /// `max-frequency`.
    pub fn new(mut controller: Controller, f_max_hz: u32) -> Mmci {
        controller.write(register::MASK_0, 0);
        controller.write(register::MASK_1, 0);
        controller.write(register::CLEAR, ALL_STICKY);
        controller.write(register::MASK_0, INTERRUPTS);
        Mmci {
            controller,
            spec: HostSpec {
                caps: Caps::CMD23 | Caps::NEEDS_POLL,
                caps2: Caps2::empty(),
                ocr_avail: OCR,
                f_min_hz: BUS_HZ.div_ceil(512),
                f_max_hz: f_max_hz.min(BUS_HZ),
                max_blocks: MAX_REQUEST_BYTES / MAX_BLOCK_BYTES,
                max_request_bytes: MAX_REQUEST_BYTES,
                max_segments: MAX_SEGMENTS,
                max_segment_bytes: MAX_REQUEST_BYTES,
                max_busy_timeout_ms: 0,
                max_current_330_ma: 0,
            },
            power: 0,
            clock: 0,
            data_control: 0,
            bus_hz: 0,
            is_suspended: false,
        }
    }

    /// The controller has had nothing to do for a while: until the next request it has
    /// no interrupts (`mmci_runtime_suspend`).
    pub fn runtime_suspend(&mut self) {
        self.controller.write(register::MASK_0, 0);
        self.is_suspended = true;
    }

    /// `mmci_runtime_resume`.
    fn runtime_resume(&mut self) {
        if std::mem::take(&mut self.is_suspended) {
            self.controller.write(register::MASK_0, INTERRUPTS);
        }
    }

    /// The controller.
    pub fn controller_mut(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// `mmci_set_clkreg`.
    fn set_clock(&mut self, hz: u32) {
        self.bus_hz = 0;
        let mut value = 0;
        if hz > 0 {
            value = clock::ENABLE;
            if hz >= BUS_HZ {
                value |= clock::BYPASS;
                self.bus_hz = BUS_HZ;
            } else {
                let divider = (BUS_HZ / (2 * hz)).saturating_sub(1).min(255);
                value |= divider;
                self.bus_hz = BUS_HZ / (2 * (divider + 1));
            }
        }
        if self.clock != value {
            self.clock = value;
            self.controller.write(register::CLOCK, value);
        }
    }

    fn set_data_control(&mut self, value: u32) {
        if self.data_control != value {
            self.data_control = value;
            self.controller.write(register::DATA_CONTROL, value);
        }
    }

    fn change_mask(&mut self, change: impl Fn(u32) -> u32) {
        let mask = self.controller.read(register::MASK_0);
        self.controller.write(register::MASK_0, change(mask));
    }

    /// `mmci_start_command`.
    fn start_command(&mut self, running: &mut Running<'_>, which: Sent) {
        running.sent = Some(which);
        let Some(sent) = running.command_mut() else {
            return;
        };
        let (opcode, arg, flags) = (sent.opcode, sent.arg, sent.flags);
        if self.controller.read(register::COMMAND) & command::ENABLE != 0 {
            self.controller.write(register::COMMAND, 0);
        }
        let mut value = u32::from(opcode) | command::ENABLE;
        if flags.contains(CommandFlags::PRESENT) {
            value |= command::RESPONSE;
        }
        if flags.contains(CommandFlags::LONG) {
            value |= command::LONG_RESPONSE;
        }
        self.controller.write(register::ARGUMENT, arg);
        self.controller.write(register::COMMAND, value);
    }

    /// `mmci_start_data`.
    fn start_data(&mut self, running: &mut Running<'_>) {
        let Some(data) = &running.request.data else {
            return;
        };
        let (bytes, is_read) = (data.bytes(), data.direction == Direction::Read);
        running.data = Some(bytes);
        let timeout = u64::from(data.timeout_ns) * u64::from(self.bus_hz) / 1_000_000_000;
        let timeout = u64::from(data.timeout_clocks) + timeout;
        let block_bits = data.block_bytes.max(1).ilog2();
        let mut control = data_control::ENABLE | block_bits << data_control::BLOCK_SIZE_SHIFT;
        let mut wanted = status::TX_FIFO_HALF_EMPTY;
        if is_read {
            control |= data_control::READ;
            wanted = status::RX_FIFO_HALF_FULL;
            if bytes < FIFO_BYTES / 2 {
                wanted |= status::RX_DATA_AVAILABLE;
            }
        }
        let timer = u32::try_from(timeout).unwrap_or(u32::MAX);
        self.controller.write(register::DATA_TIMER, timer);
        self.controller.write(register::DATA_LENGTH, bytes);
        self.set_data_control(control);
        self.change_mask(|mask| mask & !status::DATA_END);
        self.controller.write(register::MASK_1, wanted);
    }

    /// `mmci_stop_data`.
    fn stop_data(&mut self, running: &mut Running<'_>) {
        self.set_data_control(0);
        self.controller.write(register::MASK_1, 0);
        running.data = None;
    }

    /// `mmci_request_end`.
    fn end(&mut self, running: &mut Running<'_>) {
        self.controller.write(register::COMMAND, 0);
        running.is_done = true;
    }

    fn wait_for_interrupt(&mut self) {
        let is_up = |line| self.controller.interrupt(line);
        if !is_up(Line::Zero) && !is_up(Line::One) {
            self.controller.wait();
        }
    }

    /// The first line is up (`mmci_irq`).
    fn interrupt(&mut self, running: &mut Running<'_>) {
        loop {
            let found = self.controller.read(register::STATUS);
            let found = found & self.controller.read(register::MASK_0);
            self.controller.write(register::CLEAR, found);
            // Data first: what a command starts is not over by what was up before.
            self.data_interrupt(running, found);
            self.command_interrupt(running, found);
            if found == 0 {
                return;
            }
        }
    }

    /// `mmci_cmd_irq`.
    fn command_interrupt(&mut self, running: &mut Running<'_>, found: u32) {
        let ends = status::COMMAND_CRC_FAIL
            | status::COMMAND_TIMEOUT
            | status::COMMAND_SENT
            | status::COMMAND_RESPONSE_END;
        let (Some(sent), true) = (running.sent, found & ends != 0) else {
            return;
        };
        let Some(done) = running.command_mut() else {
            return;
        };
        if found & status::COMMAND_TIMEOUT != 0 {
            done.error = Some(Error::Timeout);
        } else if found & status::COMMAND_CRC_FAIL != 0 && done.flags.contains(CommandFlags::CRC) {
            done.error = Some(Error::Crc);
        } else {
            let words = [0, 1, 2, 3].map(|n| register::RESPONSE + 4 * n);
            let answer = words.map(|word| self.controller.read(word));
            if done.flags.contains(CommandFlags::PRESENT) {
                done.response = answer;
            }
        }
        let failed = done.error.is_some();
        running.sent = None;
        let has_data = sent == Sent::Command && running.request.data.is_some();
        match sent {
            _ if failed || (sent != Sent::SetBlockCount && !has_data) => {
                if running.data.is_some() {
                    self.stop_data(running);
                }
                self.end(running);
            }
            Sent::SetBlockCount => self.start_command(running, Sent::Command),
            _ if !running.reads() => self.start_data(running),
            _ => {}
        }
    }

    /// `mmci_data_irq`.
    fn data_interrupt(&mut self, running: &mut Running<'_>, found: u32) {
        if running.data.is_none() {
            return;
        }
        let Some(data) = &mut running.request.data else {
            return;
        };
        if found & DATA_ERRORS != 0 {
            // Blocks before the one that failed are through.
            let left = self.controller.read(register::DATA_COUNT);
            let moved = data.bytes().saturating_sub(left);
            data.transferred_bytes = moved - moved % data.block_bytes.max(1);
            data.error = Some(match found & status::DATA_CRC_FAIL {
                0 => Error::Timeout,
                _ => Error::Crc,
            });
        } else if found & status::DATA_END != 0 {
            data.transferred_bytes = data.bytes();
        } else {
            return;
        }
        let failed = data.error.is_some();
        self.stop_data(running);
        let was_told = running.request.set_block_count.is_some() && !failed;
        match running.request.stop {
            Some(_) if !was_told => self.start_command(running, Sent::Stop),
            _ => self.end(running),
        }
    }

    /// The second line is up: the processor moves data (`mmci_pio_irq`).
    fn move_data(&mut self, running: &mut Running<'_>) {
        let Some(mut left) = running.data else {
            // Nobody wants it any more.
            self.controller.write(register::MASK_1, 0);
            return;
        };
        let whole = running.request.data.as_ref().map_or(0, Data::bytes);
        let ready = status::TX_FIFO_HALF_EMPTY | status::RX_DATA_AVAILABLE;
        let mut found = self.controller.read(register::STATUS);
        while found & ready != 0 && left > 0 {
            let in_page = PAGE_BYTES - (whole - left) % PAGE_BYTES;
            let piece = in_page.min(left);
            let moved = match found {
                found if found & status::RX_ACTIVE != 0 => self.read_piece(running, piece, left),
                found if found & status::TX_ACTIVE != 0 => self.write_piece(piece, found),
                _ => 0,
            };
            left -= moved;
            if moved < piece {
                break;
            }
            found = self.controller.read(register::STATUS);
        }
        running.data = Some(left);
        if found & status::RX_ACTIVE != 0 && left < FIFO_BYTES / 2 {
            self.controller
                .write(register::MASK_1, status::RX_DATA_AVAILABLE);
        }
        if left == 0 {
            self.controller.write(register::MASK_1, 0);
            self.change_mask(|mask| mask | status::DATA_END);
        }
    }

    /// `mmci_pio_read`. Returns how much was moved.
    fn read_piece(&mut self, running: &mut Running<'_>, piece: u32, left: u32) -> u32 {
        let mut moved = 0;
        self.controller.read(register::STATUS);
        loop {
            let on_the_way = self.controller.read(register::FIFO_COUNT) * 4;
            let here = (left - moved).saturating_sub(on_the_way).min(piece - moved);
            if here == 0 {
                return moved;
            }
            let content = running.request.data.as_mut();
            let mut content = content.and_then(|data| data.content.as_mut());
            for at in (0..here).step_by(4) {
                let word = self.controller.read(register::FIFO).to_le_bytes();
                if let Some(content) = &mut content {
                    content.extend(&word[..(here - at).min(4) as usize]);
                }
            }
            moved += here;
            if moved == piece {
                return moved;
            }
            let found = self.controller.read(register::STATUS);
            if found & status::RX_DATA_AVAILABLE == 0 {
                return moved;
            }
        }
    }

    /// `mmci_pio_write`. Returns how much was moved.
    fn write_piece(&mut self, piece: u32, found: u32) -> u32 {
        let (mut moved, mut found) = (0, found);
        loop {
            let room = match found & status::TX_FIFO_EMPTY {
                0 => FIFO_BYTES / 2,
                _ => FIFO_BYTES,
            };
            let bytes = room.min(piece - moved);
            for _ in 0..bytes.div_ceil(4) {
                self.controller.write(register::FIFO, 0);
            }
            moved += bytes;
            if moved == piece {
                return moved;
            }
            found = self.controller.read(register::STATUS);
            if found & status::TX_FIFO_HALF_EMPTY == 0 {
                return moved;
            }
        }
    }
}

impl Host for Mmci {
    fn spec(&self) -> &HostSpec {
        &self.spec
    }

    /// `mmci_request`, and all its interrupts.
    fn request(&mut self, request: &mut Request) -> u64 {
        self.controller.take_elapsed_ns();
        self.runtime_resume();
        let first = match request.set_block_count {
            Some(_) => Sent::SetBlockCount,
            None => Sent::Command,
        };
        let mut running = Running {
            request,
            sent: None,
            data: None,
            is_done: false,
        };
        if running.reads() {
            self.start_data(&mut running);
        }
        self.start_command(&mut running, first);
        while !running.is_done {
            self.wait_for_interrupt();
            if self.controller.interrupt(Line::Zero) {
                self.interrupt(&mut running);
            } else if self.controller.interrupt(Line::One) {
                self.move_data(&mut running);
            } else {
                // Neither a command's end nor data: the core's timer would run out.
                if let Some(data) = &mut running.request.data {
                    data.error = Some(Error::Timeout);
                }
                self.stop_data(&mut running);
                self.end(&mut running);
            }
        }
        self.controller.take_elapsed_ns()
    }

    /// `mmci_set_ios`.
    fn set_ios(&mut self, ios: &Ios) {
        const UP: u32 = 2;
        const ON: u32 = 3;
        const OPEN_DRAIN: u32 = 1 << 6;
        let mut power = match ios.power_mode {
            PowerMode::Off => 0,
            PowerMode::Up => UP,
            PowerMode::On => ON,
        };
        if ios.bus_mode == BusMode::OpenDrain && ios.power_mode != PowerMode::Off {
            power |= OPEN_DRAIN;
        }
        self.set_clock(ios.clock_hz);
        if self.power != power {
            self.power = power;
            self.controller.write(register::POWER, power);
        }
    }

    fn actual_clock_hz(&self) -> u32 {
        self.bus_hz
    }

    fn card_is_present(&mut self) -> bool {
        self.controller.slot().card().is_some()
    }

    fn delay(&mut self, ns: u64) {
        self.controller.slot_mut().pass(ns);
    }

    fn slot_mut(&mut self) -> &mut Slot {
        self.controller.slot_mut()
    }
}
