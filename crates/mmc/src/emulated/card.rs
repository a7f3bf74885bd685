//! One card's state machine.

use super::Answer;
use crate::command::{Status, opcode};
use crate::registers::ext_csd;

/// Whose commands a card knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// SD; before version 2 there is no CMD8.
    Sd {
        /// Whether it knows CMD8.
        has_if_cond: bool,
    },
    /// MMC and eMMC.
    Mmc,
    /// SDIO without a memory: it answers CMD5 and CMD52 (SDIO Simplified Specification 3).
    Sdio {
        /// Its functions beside the common one, up to seven.
        functions: u8,
    },
}

/// What a card is made as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardSpec {
    /// Whose commands it knows.
    pub protocol: Protocol,
    /// Voltages that it runs at, as OCR bits.
    pub ocr: u32,
    /// Whether addresses are blocks.
    pub is_block_addressed: bool,
    /// Identity.
    pub cid: [u32; 4],
    /// Capacity.
    pub csd: [u32; 4],
    /// Version, of SD.
    pub scr: [u32; 2],
    /// Allocation units, of SD.
    pub ssr: [u32; 16],
    /// The address that it chooses, of SD.
    pub rca: u32,
    /// Modes of its bus, of SD: a bit a function of its first group, which are 25 MHz, high
    /// speed, and SDR50, SDR104 and DDR50 with lines of 1.8 V.
    pub modes: u8,
    /// EXT_CSD, of MMC.
    pub ext_csd: Vec<u8>,
    /// Its size in sectors.
    pub sectors: u64,
    /// How often it has to be asked until it has powered up.
    pub power_up_polls: u32,
    /// How long it is busy after a write, a switch or an erase.
    pub busy_ns: u64,
}

/// Bytes of EXT_CSD that a reset puts back (JESD84-B51 7.4, cell type E_P); of
/// `PART_CONFIG` only which partition is in use.
const VOLATILE: [u8; 7] = [
    ext_csd::CACHE_CTRL,
    ext_csd::POWER_OFF_NOTIFICATION,
    ext_csd::HPI_MGMT,
    ext_csd::ERASE_GROUP_DEF,
    ext_csd::BUS_WIDTH,
    ext_csd::HS_TIMING,
    ext_csd::POWER_CLASS,
];
const PARTITION_ACCESS: u8 = 7;

/// `HS_TIMING` of HS200, and `BUS_WIDTH` of eight lines.
const TIMING_HS200: u8 = 2;
const WIDTH_EIGHT: u8 = 2;

/// States of a card, by the numbers that its status tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CardState {
    Idle = 0,
    Ready = 1,
    Identification = 2,
    StandBy = 3,
    Transfer = 4,
    SendingData = 5,
    ReceiveData = 6,
    Programming = 7,
}

/// The voltage of an SD card's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    /// 3.3 V.
    High,
    /// It was told to change (CMD11) and holds its lines down until the host has changed.
    Switching,
    /// 1.8 V, until it loses its power.
    Low,
}

/// Modes of 3.3 V.
const MODES_OF_HIGH: u8 = 3;
/// Bits of ACMD23's argument that are a number of blocks (SD Physical Layer 4.7.4).
const PRE_ERASE_MASK: u32 = 0x7f_ffff;
/// The host asks for lines of 1.8 V, and the card accepts.
const OCR_LOW_VOLTAGE: u32 = 1 << 24;

/// Voltages that a card may run at.
const OCR_VOLTAGES: u32 = 0x00ff_ff00;
/// It has powered up.
const OCR_READY: u32 = 1 << 31;

/// What the card's data lines carry next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lines {
    Nothing,
    /// A register.
    Register(Vec<u8>),
    /// Blocks from this sector on; so many, if that was told.
    Read {
        sector: u64,
        left: Option<u32>,
    },
    /// The same to the card.
    Write {
        sector: u64,
        left: Option<u32>,
    },
}

/// A card.
#[derive(Clone, Debug)]
pub struct EmulatedCard {
    spec: CardSpec,
    /// As it was switched.
    ext_csd: Vec<u8>,
    state: CardState,
    rca: u32,
    /// Errors that the next status tells.
    errors: Status,
    app_command: bool,
    signal: Signal,
    /// It has accepted lines of 1.8 V, and waits for CMD11.
    accepts_low: bool,
    polls: u32,
    lines: Lines,
    block_count: Option<u32>,
    /// Blocks that it erases when the next write of several begins.
    pre_erase: u32,
    erase_start: Option<u64>,
    erase_end: Option<u64>,
    busy_ns: u64,
    /// Blocks of the last write that got through.
    written: u32,
    read_total: u64,
    written_total: u64,
    erased_total: u64,
}

impl EmulatedCard {
    /// A card without power.
    pub fn new(spec: CardSpec) -> EmulatedCard {
        EmulatedCard {
            ext_csd: spec.ext_csd.clone(),
            spec,
            state: CardState::Idle,
            rca: 0,
            errors: Status::empty(),
            app_command: false,
            signal: Signal::High,
            accepts_low: false,
            polls: 0,
            lines: Lines::Nothing,
            block_count: None,
            pre_erase: 1,
            erase_start: None,
            erase_end: None,
            busy_ns: 0,
            written: 0,
            read_total: 0,
            written_total: 0,
            erased_total: 0,
        }
    }

    /// What it was made as.
    pub fn spec(&self) -> &CardSpec {
        &self.spec
    }

    /// EXT_CSD as it was switched, of MMC.
    pub fn ext_csd(&self) -> &[u8] {
        &self.ext_csd
    }

    /// Sectors that it was ever read, written and erased.
    pub fn totals(&self) -> [u64; 3] {
        [self.read_total, self.written_total, self.erased_total]
    }

    /// Power goes: all but what it holds is forgotten.
    pub(super) fn power_off(&mut self) {
        self.reset();
        self.signal = Signal::High;
        self.polls = 0;
        self.busy_ns = 0;
    }

    fn reset(&mut self) {
        self.state = CardState::Idle;
        self.rca = 0;
        self.errors = Status::empty();
        self.app_command = false;
        self.accepts_low = false;
        self.lines = Lines::Nothing;
        self.block_count = None;
        self.pre_erase = 1;
        self.erase_start = None;
        self.erase_end = None;
        for place in VOLATILE.map(usize::from) {
            if let (Some(byte), Some(made)) =
                (self.ext_csd.get_mut(place), self.spec.ext_csd.get(place))
            {
                *byte = *made;
            }
        }
        if let Some(config) = self.ext_csd.get_mut(usize::from(ext_csd::PART_CONFIG)) {
            *config &= !PARTITION_ACCESS;
        }
    }

    /// Time passes.
    pub(super) fn pass(&mut self, ns: u64) {
        self.busy_ns = self.busy_ns.saturating_sub(ns);
        if self.busy_ns == 0 && self.state == CardState::Programming {
            self.state = CardState::Transfer;
        }
    }

    /// The host has set the voltage of the lines.
    pub(super) fn take_low_voltage(&mut self) {
        if self.signal == Signal::Switching {
            self.signal = Signal::Low;
        }
    }

    /// Whether it holds its first data line down.
    pub(super) fn is_busy(&self) -> bool {
        self.busy_ns > 0 || self.signal == Signal::Switching
    }

    /// Whether it has data for the host.
    pub(super) fn is_sending(&self) -> bool {
        self.state == CardState::SendingData && self.lines != Lines::Nothing
    }

    pub(super) fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    fn become_busy(&mut self) {
        self.busy_ns = self.spec.busy_ns;
        self.state = match self.busy_ns {
            0 => CardState::Transfer,
            _ => CardState::Programming,
        };
    }

    /// The status of a command that came in this state; errors are told once.
    fn status(&mut self, state: CardState, app_command: bool) -> Answer {
        let mut status = (state as u32) << 9 | std::mem::take(&mut self.errors).bits();
        if !self.is_busy() {
            status |= Status::READY_FOR_DATA.bits();
        }
        if app_command {
            status |= Status::APP_CMD.bits();
        }
        Answer::Short(status)
    }

    /// A command and its answer.
    pub(super) fn command(&mut self, opcode: u8, arg: u32) -> Answer {
        let is_app = std::mem::take(&mut self.app_command);
        let is_sd = matches!(self.spec.protocol, Protocol::Sd { .. });
        let known = match (self.spec.protocol, is_app) {
            (Protocol::Sd { .. }, true) => self.sd_app_command(opcode, arg),
            (Protocol::Sd { .. }, false) => self.sd_command(opcode, arg),
            (Protocol::Mmc, _) => self.mmc_command(opcode, arg),
            (Protocol::Sdio { functions }, _) => {
                let known = self.sdio_command(opcode, arg, functions);
                return known.unwrap_or(Answer::Silence);
            }
        };
        // An application command that is none is taken as a plain one.
        let known = match (known, is_sd && is_app) {
            (None, true) => self.sd_command(opcode, arg),
            (known, _) => known,
        };
        let known = known.or_else(|| self.common_command(opcode, arg));
        known.unwrap_or_else(|| {
            self.errors |= Status::ILLEGAL_COMMAND;
            Answer::Silence
        })
    }

    fn is_mine(&self, arg: u32) -> bool {
        arg >> 16 == self.rca
    }

    /// Commands that SD and MMC share.
    fn common_command(&mut self, opcode: u8, arg: u32) -> Option<Answer> {
        let state = self.state;
        match (opcode, state) {
            (opcode::GO_IDLE_STATE, _) => {
                self.reset();
                Some(Answer::Silence)
            }
            (opcode::ALL_SEND_CID, CardState::Ready) => {
                self.state = CardState::Identification;
                Some(Answer::Long(self.spec.cid))
            }
            (opcode::SEND_CSD, CardState::StandBy) if self.is_mine(arg) => {
                Some(Answer::Long(self.spec.csd))
            }
            (opcode::SELECT_CARD, CardState::StandBy) if self.is_mine(arg) => {
                self.state = CardState::Transfer;
                Some(self.status(state, false))
            }
            (opcode::SELECT_CARD, CardState::Transfer) if !self.is_mine(arg) => {
                self.state = CardState::StandBy;
                Some(Answer::Silence)
            }
            (opcode::STOP_TRANSMISSION, CardState::SendingData) => {
                self.lines = Lines::Nothing;
                self.state = CardState::Transfer;
                Some(self.status(state, false))
            }
            (opcode::STOP_TRANSMISSION, CardState::ReceiveData) => {
                self.lines = Lines::Nothing;
                self.become_busy();
                Some(self.status(state, false))
            }
            (
                opcode::SEND_STATUS,
                CardState::StandBy
                | CardState::Transfer
                | CardState::SendingData
                | CardState::ReceiveData
                | CardState::Programming,
            ) if self.is_mine(arg) => Some(self.status(state, false)),
            (opcode::SET_BLOCKLEN, CardState::Transfer) => {
                if arg != 512 {
                    self.errors |= Status::BLOCK_LEN_ERROR;
                }
                Some(self.status(state, false))
            }
            (opcode::SET_BLOCK_COUNT, CardState::Transfer) if self.knows_block_count() => {
                self.block_count = Some(arg & 0xffff);
                Some(self.status(state, false))
            }
            (opcode::READ_SINGLE_BLOCK, CardState::Transfer) => Some(self.read(arg, Some(1))),
            (opcode::READ_MULTIPLE_BLOCK, CardState::Transfer) => {
                let left = self.block_count.take();
                Some(self.read(arg, left))
            }
            (opcode::WRITE_BLOCK, CardState::Transfer) => Some(self.write(arg, Some(1))),
            (opcode::WRITE_MULTIPLE_BLOCK, CardState::Transfer) => {
                let left = self.block_count.take();
                self.erase_ahead(arg);
                Some(self.write(arg, left))
            }
            (opcode::ERASE, CardState::Transfer) => Some(self.erase()),
            _ => None,
        }
    }

    fn knows_block_count(&self) -> bool {
        let offered = self.spec.scr[0] & 2 != 0;
        self.spec.protocol == Protocol::Mmc || offered
    }

    /// A card of SD or SDIO takes its address, and tells it.
    fn choose_address(&mut self) -> Option<Answer> {
        let state = self.state;
        self.rca = self.spec.rca;
        self.state = CardState::StandBy;
        let Answer::Short(status) = self.status(state, false) else {
            return None;
        };
        // R6 has some of the status' bits only.
        let told = (status >> 8 & 0xc000) | (status >> 6 & 0x2000) | status & 0x1fff;
        Some(Answer::Short(self.rca << 16 | told))
    }

    /// Commands of a card without a memory. CMD0 is none: only a write to the common
    /// registers resets it.
    fn sdio_command(&mut self, opcode: u8, arg: u32, functions: u8) -> Option<Answer> {
        /// A write of the bit RES to the register of I/O aborts.
        const RESET: u32 = 1 << 31 | 6 << 9 | 1 << 3;
        let state = self.state;
        match (opcode, state) {
            (opcode::IO_SEND_OP_COND, CardState::Idle) => {
                let told = u32::from(functions) << 28 | self.spec.ocr & OCR_VOLTAGES;
                if arg & self.spec.ocr & OCR_VOLTAGES == 0 {
                    return Some(Answer::Short(told));
                }
                if self.polls < self.spec.power_up_polls {
                    self.polls += 1;
                    return Some(Answer::Short(told));
                }
                self.state = CardState::Ready;
                Some(Answer::Short(told | OCR_READY))
            }
            (opcode::SET_RELATIVE_ADDR, CardState::Ready | CardState::StandBy) => {
                self.choose_address()
            }
            (opcode::SELECT_CARD, CardState::StandBy | CardState::Transfer)
                if self.is_mine(arg) =>
            {
                self.state = CardState::Transfer;
                Some(self.status(state, false))
            }
            (opcode::IO_RW_DIRECT, _) if arg & RESET == RESET => {
                self.reset();
                Some(Answer::Short(0))
            }
            (opcode::IO_RW_DIRECT, CardState::Transfer) => Some(Answer::Short(0)),
            _ => None,
        }
    }

    fn sd_command(&mut self, opcode: u8, arg: u32) -> Option<Answer> {
        let state = self.state;
        match (opcode, state) {
            (opcode::SD_SEND_IF_COND, CardState::Idle) => match self.spec.protocol {
                // 2.7 to 3.6 V, and the pattern comes back.
                Protocol::Sd { has_if_cond: true } if arg >> 8 == 1 => {
                    Some(Answer::Short(arg & 0xfff))
                }
                _ => None,
            },
            (opcode::APP_CMD, CardState::Idle) if arg == 0 => {
                self.app_command = true;
                Some(self.status(state, true))
            }
            (opcode::APP_CMD, CardState::StandBy | CardState::Transfer) if self.is_mine(arg) => {
                self.app_command = true;
                Some(self.status(state, true))
            }
            (opcode::SD_SWITCH_VOLTAGE, CardState::Ready) if self.accepts_low => {
                self.accepts_low = false;
                self.signal = Signal::Switching;
                Some(self.status(state, false))
            }
            (opcode::SEND_TUNING_BLOCK, CardState::Transfer) if self.signal == Signal::Low => {
                Some(self.send_pattern(64))
            }
            (opcode::SET_RELATIVE_ADDR, CardState::Identification | CardState::StandBy) => {
                self.choose_address()
            }
            (opcode::SWITCH, CardState::Transfer) => {
                self.lines = Lines::Register(self.functions(arg));
                self.state = CardState::SendingData;
                Some(self.status(state, false))
            }
            (opcode::SD_ERASE_WR_BLK_START, CardState::Transfer) => {
                self.erase_start = self.sector(arg);
                Some(self.status(state, false))
            }
            (opcode::SD_ERASE_WR_BLK_END, CardState::Transfer) => {
                self.erase_end = self.sector(arg);
                Some(self.status(state, false))
            }
            _ => None,
        }
    }

    fn sd_app_command(&mut self, opcode: u8, arg: u32) -> Option<Answer> {
        let state = self.state;
        let register = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let content: Vec<u8> = match (opcode, state) {
            (opcode::APP_OP_COND, CardState::Idle) => {
                let host = arg & 0x00ff_ff00;
                if host == 0 {
                    return Some(Answer::Short(self.spec.ocr));
                }
                let mut ocr = self.power_up(host, arg & 1 << 30 != 0);
                let is_ready = self.state == CardState::Ready;
                if is_ready && arg & OCR_LOW_VOLTAGE != 0 && self.can_switch() {
                    self.accepts_low = true;
                    ocr |= OCR_LOW_VOLTAGE;
                }
                return Some(Answer::Short(ocr));
            }
            (opcode::APP_SET_BUS_WIDTH, CardState::Transfer) => {
                return Some(self.status(state, true));
            }
            (opcode::APP_SET_WR_BLK_ERASE_COUNT, CardState::Transfer) => {
                self.pre_erase = arg & PRE_ERASE_MASK;
                return Some(self.status(state, true));
            }
            (opcode::APP_SEND_SCR, CardState::Transfer) => register(&self.spec.scr),
            (opcode::APP_SD_STATUS, CardState::Transfer) => register(&self.spec.ssr),
            (opcode::APP_SEND_NUM_WR_BLKS, CardState::Transfer) => {
                self.written.to_be_bytes().to_vec()
            }
            _ => return None,
        };
        self.lines = Lines::Register(content);
        self.state = CardState::SendingData;
        Some(self.status(state, true))
    }

    /// Whether its lines can go to 1.8 V.
    fn can_switch(&self) -> bool {
        self.signal == Signal::High && self.spec.modes & !MODES_OF_HIGH != 0
    }

    /// The pattern that a controller is tuned with. Only the controller compares it.
    fn send_pattern(&mut self, bytes: usize) -> Answer {
        let state = self.state;
        self.lines = Lines::Register(vec![0xff; bytes]);
        self.state = CardState::SendingData;
        self.status(state, false)
    }

    /// The card's voltages; it is ready once it was asked often enough, at one that
    /// it has. A card with block addresses waits for a host that knows them.
    fn power_up(&mut self, host: u32, knows_blocks: bool) -> u32 {
        let usable = host & self.spec.ocr != 0 && (knows_blocks || !self.spec.is_block_addressed);
        if !usable || self.polls < self.spec.power_up_polls {
            self.polls += 1;
            return self.spec.ocr;
        }
        self.state = CardState::Ready;
        self.spec.ocr | 1 << 31 | u32::from(self.spec.is_block_addressed) << 30
    }

    fn mmc_command(&mut self, opcode: u8, arg: u32) -> Option<Answer> {
        let state = self.state;
        match (opcode, state) {
            (opcode::SEND_OP_COND, CardState::Idle) => match arg & 0x00ff_ff80 {
                0 => Some(Answer::Short(self.spec.ocr)),
                host => Some(Answer::Short(self.power_up(host, arg & 1 << 30 != 0))),
            },
            (opcode::SET_RELATIVE_ADDR, CardState::Identification) => {
                self.rca = arg >> 16;
                self.state = CardState::StandBy;
                Some(self.status(state, false))
            }
            (opcode::SEND_EXT_CSD, CardState::Transfer) => {
                self.lines = Lines::Register(self.ext_csd.clone());
                self.state = CardState::SendingData;
                Some(self.status(state, false))
            }
            (opcode::SEND_TUNING_BLOCK_HS200, CardState::Transfer)
                if self.byte(ext_csd::HS_TIMING) & 0xf == TIMING_HS200 =>
            {
                let is_wide = self.byte(ext_csd::BUS_WIDTH) == WIDTH_EIGHT;
                Some(self.send_pattern(if is_wide { 128 } else { 64 }))
            }
            (opcode::SWITCH, CardState::Transfer) => {
                self.switch((arg >> 16) as u8, (arg >> 8) as u8);
                self.become_busy();
                Some(self.status(state, false))
            }
            (opcode::ERASE_GROUP_START, CardState::Transfer) => {
                self.erase_start = self.sector(arg);
                Some(self.status(state, false))
            }
            (opcode::ERASE_GROUP_END, CardState::Transfer) => {
                self.erase_end = self.sector(arg);
                Some(self.status(state, false))
            }
            _ => None,
        }
    }

    /// A byte of EXT_CSD.
    fn byte(&self, index: u8) -> u8 {
        let byte = self.ext_csd.get(usize::from(index));
        byte.copied().unwrap_or(0)
    }

    /// Sets a byte of EXT_CSD that can be set.
    fn switch(&mut self, index: u8, value: u8) {
        const HS200_TYPES: u8 = 3 << 4;
        let types = self.spec.ext_csd.get(ext_csd::CARD_TYPE).copied();
        let has_hs200 = types.unwrap_or(0) & HS200_TYPES != 0;
        if index == ext_csd::HS_TIMING && value & 0xf == TIMING_HS200 && !has_hs200 {
            self.errors |= Status::SWITCH_ERROR;
            return;
        }
        let byte = self.ext_csd.get_mut(usize::from(index));
        let writable = index < 192;
        match byte {
            // A flush is done, not kept.
            Some(_) if index == ext_csd::FLUSH_CACHE => {}
            Some(byte) if writable => *byte = value,
            _ => self.errors |= Status::SWITCH_ERROR,
        }
    }

    /// The status of SD's functions: which group 1 has, and which are set then
    /// (SD Physical Layer 4.3.10).
    fn functions(&self, arg: u32) -> Vec<u8> {
        let mut status = vec![0; 64];
        let speeds = match self.signal {
            Signal::Low => self.spec.modes,
            Signal::High | Signal::Switching => self.spec.modes & MODES_OF_HIGH,
        };
        // 1 mA, and each group has its function 0.
        status[1] = 1;
        for group in 0..6 {
            status[2 + 2 * group] = 0x80;
            status[3 + 2 * group] = 1;
        }
        status[13] = speeds;
        let asked = (arg & 0xf) as u8;
        status[16] = match asked {
            0xf => 0,
            function if function < 8 && speeds >> function & 1 == 1 => function,
            _ => 0xf,
        };
        status
    }

    /// The sector of an address, `None` with the error noted if there is none.
    fn sector(&mut self, address: u32) -> Option<u64> {
        let sector = match self.spec.is_block_addressed {
            true => u64::from(address),
            false => {
                if !address.is_multiple_of(512) {
                    self.errors |= Status::ADDRESS_ERROR;
                    return None;
                }
                u64::from(address >> 9)
            }
        };
        if sector >= self.spec.sectors {
            self.errors |= Status::OUT_OF_RANGE;
            return None;
        }
        Some(sector)
    }

    fn read(&mut self, address: u32, left: Option<u32>) -> Answer {
        let state = self.state;
        if let Some(sector) = self.sector(address) {
            self.lines = Lines::Read { sector, left };
            self.state = CardState::SendingData;
        }
        self.status(state, false)
    }

    fn write(&mut self, address: u32, left: Option<u32>) -> Answer {
        let state = self.state;
        if let Some(sector) = self.sector(address) {
            self.lines = Lines::Write { sector, left };
            self.state = CardState::ReceiveData;
            self.written = 0;
        }
        self.status(state, false)
    }

    /// What ACMD23 announced is erased, up to the card's end; a block alone is erased as
    /// it is written. The next write is announced anew.
    fn erase_ahead(&mut self, address: u32) {
        let announced = std::mem::replace(&mut self.pre_erase, 1);
        let sector = match self.spec.is_block_addressed {
            true => u64::from(address),
            false => u64::from(address >> 9),
        };
        if announced > 1 {
            let left = self.spec.sectors.saturating_sub(sector);
            self.erased_total += u64::from(announced).min(left);
        }
    }

    fn erase(&mut self) -> Answer {
        let state = self.state;
        match (self.erase_start.take(), self.erase_end.take()) {
            (Some(start), Some(end)) if start <= end => {
                self.erased_total += end - start + 1;
                self.become_busy();
            }
            (Some(_), Some(_)) => self.errors |= Status::ERASE_PARAM,
            _ => self.errors |= Status::ERASE_SEQ_ERROR,
        }
        self.status(state, false)
    }

    /// A block from the card, `false` if it sends none.
    pub(super) fn read_block(&mut self, block: &mut [u8]) -> bool {
        match &mut self.lines {
            Lines::Register(content) if content.len() == block.len() => {
                block.copy_from_slice(content);
                self.lines = Lines::Nothing;
                self.state = CardState::Transfer;
                true
            }
            Lines::Read { sector, left } if *sector < self.spec.sectors => {
                block.fill(0);
                self.read_total += 1;
                *sector += 1;
                if let Some(left) = left {
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        self.lines = Lines::Nothing;
                        self.state = CardState::Transfer;
                    }
                }
                true
            }
            Lines::Read { .. } => {
                self.errors |= Status::OUT_OF_RANGE;
                false
            }
            _ => false,
        }
    }

    /// A block to the card, `false` if it takes none.
    pub(super) fn write_block(&mut self) -> bool {
        match &mut self.lines {
            Lines::Write { sector, left } if *sector < self.spec.sectors => {
                self.written += 1;
                self.written_total += 1;
                *sector += 1;
                if let Some(left) = left {
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        self.lines = Lines::Nothing;
                        self.become_busy();
                    }
                }
                true
            }
            Lines::Write { .. } => {
                self.errors |= Status::OUT_OF_RANGE;
                false
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;

    /// A card that is addressed by blocks and takes transfers.
    fn ready() -> EmulatedCard {
        let mut card = EmulatedCard::new(faults::card(true));
        card.state = CardState::Transfer;
        card.rca = card.spec.rca;
        card
    }

    fn application(card: &mut EmulatedCard, opcode: u8, arg: u32) -> Answer {
        card.command(opcode::APP_CMD, card.rca << 16);
        card.command(opcode, arg)
    }

    /// Without the command before it ACMD23 would be CMD23.
    #[test]
    fn blocks_that_are_announced_are_erased_with_the_next_write_alone() {
        let mut card = ready();
        let answer = application(&mut card, opcode::APP_SET_WR_BLK_ERASE_COUNT, 64);
        let Answer::Short(status) = answer else {
            panic!("{answer:?}");
        };
        assert_ne!(status & Status::APP_CMD.bits(), 0);
        assert_eq!(card.block_count, None);
        for erased in [64, 64] {
            card.command(opcode::WRITE_MULTIPLE_BLOCK, 4096);
            assert!(card.write_block());
            card.command(opcode::STOP_TRANSMISSION, 0);
            card.pass(card.busy_ns());
            assert_eq!(card.totals()[2], erased);
        }
        // There is nothing behind the last block.
        let last = card.spec.sectors as u32 - 8;
        application(&mut card, opcode::APP_SET_WR_BLK_ERASE_COUNT, 64);
        card.command(opcode::WRITE_MULTIPLE_BLOCK, last);
        assert_eq!(card.totals()[2], 72);
    }
}
