//! Single commands (`drivers/mmc/core/mmc_ops.c`, `sd_ops.c`, `sdio_ops.c`).

use super::{Card, Core, RETRIES};
use crate::command::{Command, CommandFlags, Data, Direction, Error, Request, Status, opcode};
use crate::host::{BusWidth, ChipSelect};

/// Tells that a card of this capacity may answer.
pub(super) const OCR_HIGH_CAPACITY: u32 = 1 << 30;
/// The card has finished its power-up (it is the busy bit turned round).
pub(super) const OCR_READY: u32 = 1 << 31;
/// For how long power-up is polled.
const POWER_UP_MS: u64 = 1000;
/// Pause between two polls of power-up.
const POWER_UP_PAUSE_MS: u64 = 10;

const AC: CommandFlags = CommandFlags::empty();

impl Core {
    /// Resets all cards. Chip select is high meanwhile: a card that sees it low goes
    /// into SPI mode.
    pub(super) fn go_idle(&mut self) {
        self.set_chip_select(ChipSelect::High);
        self.delay_ms(1);
        let flags = CommandFlags::SPI_S1 | CommandFlags::BC;
        let command = Command::new(opcode::GO_IDLE_STATE, 0, flags);
        // There is no answer that could tell.
        let _ = self.wait_for_command(command, 0);
        self.delay_ms(1);
        self.set_chip_select(ChipSelect::DontCare);
        self.delay_ms(1);
    }

    /// Resets an SDIO card, which CMD0 does not: reads and writes its I/O abort
    /// register.
    pub(super) fn reset_sdio(&mut self) {
        const ABORT: u32 = 6;
        const RESET: u32 = 8;
        let flags = CommandFlags::SPI_R2 | CommandFlags::R1 | AC;
        let read = Command::new(opcode::IO_RW_DIRECT, ABORT << 9, flags);
        let abort = match self.wait_for_command(read, 0) {
            Ok([answer, ..]) => answer & 0xff | RESET,
            Err(_) => RESET,
        };
        let write = Command {
            arg: 1 << 31 | ABORT << 9 | abort,
            ..read
        };
        // A card without SDIO does not answer.
        let _ = self.wait_for_command(write, 0);
    }

    /// Tells an SDIO card the host's voltages, until it has powered up; asks for the card's with
    /// `ocr` 0.
    pub(super) fn send_io_op_cond(&mut self, ocr: u32) -> Result<u32, Error> {
        let flags = CommandFlags::SPI_R4 | CommandFlags::R3 | CommandFlags::BCR;
        let command = Command::new(opcode::IO_SEND_OP_COND, ocr, flags);
        self.poll_power_up(ocr == 0, |core| core.wait_for_command(command, RETRIES))
    }

    /// Asks SD cards of version 2 and later whether they can run at this voltage.
    pub(super) fn send_if_cond(&mut self, ocr: u32) -> Result<(), Error> {
        const PATTERN: u32 = 0xaa;
        let volts_27_to_36 = u32::from(ocr & 0x00ff_8000 != 0) << 8;
        let flags = CommandFlags::SPI_R4 | CommandFlags::R1 | CommandFlags::BCR;
        let command = Command::new(opcode::SD_SEND_IF_COND, volts_27_to_36 | PATTERN, flags);
        let [answer, ..] = self.wait_for_command(command, 0)?;
        match answer & 0xff == PATTERN {
            true => Ok(()),
            false => Err(Error::Io),
        }
    }

    /// Says that the next command is an application's.
    fn app_cmd(&mut self, card: Option<&Card>) -> Result<(), Error> {
        let (arg, kind) = match card {
            Some(card) => (card.rca << 16, AC),
            None => (0, CommandFlags::BCR),
        };
        let flags = CommandFlags::SPI_S1 | CommandFlags::R1 | kind;
        let [status, ..] = self.wait_for_command(Command::new(opcode::APP_CMD, arg, flags), 0)?;
        match status & Status::APP_CMD.bits() != 0 {
            true => Ok(()),
            false => Err(Error::NotSupported),
        }
    }

    /// An application command: CMD55 has to come anew with each try.
    fn wait_for_app_command(
        &mut self,
        card: Option<&Card>,
        command: Command,
    ) -> Result<[u32; 4], Error> {
        let mut last = Error::Io;
        for _ in 0..=RETRIES {
            let tried = (self.app_cmd(card)).and_then(|()| self.wait_for_command(command, 0));
            match tried {
                Ok(answer) => return Ok(answer),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Tells an SD card the host's voltages, until it has powered up; asks for the
    /// card's with `ocr` 0.
    pub(super) fn send_app_op_cond(&mut self, ocr: u32) -> Result<u32, Error> {
        let flags = CommandFlags::SPI_S1 | CommandFlags::R3 | CommandFlags::BCR;
        let command = Command::new(opcode::APP_OP_COND, ocr, flags);
        self.poll_power_up(ocr == 0, |core| core.wait_for_app_command(None, command))
    }

    /// The same of an MMC.
    pub(super) fn send_op_cond(&mut self, ocr: u32) -> Result<u32, Error> {
        let flags = CommandFlags::SPI_S1 | CommandFlags::R3 | CommandFlags::BCR;
        let mut command = Command::new(opcode::SEND_OP_COND, ocr, flags);
        self.poll_power_up(false, |core| {
            let answer = core.wait_for_command(command, 0)?;
            // A card that is asked again without its own voltages may turn inactive.
            if ocr == 0 {
                command.arg = answer[0] | OCR_HIGH_CAPACITY;
            }
            Ok(answer)
        })
    }

    fn poll_power_up(
        &mut self,
        only_asks: bool,
        mut ask: impl FnMut(&mut Core) -> Result<[u32; 4], Error>,
    ) -> Result<u32, Error> {
        for _ in 0..=POWER_UP_MS / POWER_UP_PAUSE_MS {
            let [ocr, ..] = ask(self)?;
            if only_asks || ocr & OCR_READY != 0 {
                return Ok(ocr);
            }
            self.delay_ms(POWER_UP_PAUSE_MS);
        }
        Err(Error::Timeout)
    }

    /// The identity of the card that still has no address.
    pub(super) fn send_cid(&mut self) -> Result<[u32; 4], Error> {
        let command = Command::new(opcode::ALL_SEND_CID, 0, CommandFlags::R2 | AC);
        self.wait_for_command(command, RETRIES)
    }

    /// An SD card's address, which it chooses itself.
    pub(super) fn send_relative_address(&mut self) -> Result<u32, Error> {
        let flags = CommandFlags::R1 | CommandFlags::BCR;
        let command = Command::new(opcode::SET_RELATIVE_ADDR, 0, flags);
        let [answer, ..] = self.wait_for_command(command, RETRIES)?;
        Ok(answer >> 16)
    }

    /// Gives an MMC its address.
    pub(super) fn set_relative_address(&mut self, rca: u32) -> Result<(), Error> {
        let flags = CommandFlags::R1 | AC;
        let command = Command::new(opcode::SET_RELATIVE_ADDR, rca << 16, flags);
        self.wait_for_command(command, RETRIES).map(|_| ())
    }

    /// The card's capacity and classes.
    pub(super) fn send_csd(&mut self, rca: u32) -> Result<[u32; 4], Error> {
        let command = Command::new(opcode::SEND_CSD, rca << 16, CommandFlags::R2 | AC);
        self.wait_for_command(command, RETRIES)
    }

    /// Data goes to and from this card from now on.
    pub(super) fn select_card(&mut self, rca: u32) -> Result<(), Error> {
        let flags = CommandFlags::R1 | AC;
        let command = Command::new(opcode::SELECT_CARD, rca << 16, flags);
        self.wait_for_command(command, RETRIES).map(|_| ())
    }

    /// Data goes to and from no card.
    pub(super) fn deselect_card(&mut self) -> Result<(), Error> {
        let command = Command::new(opcode::SELECT_CARD, 0, AC);
        self.wait_for_command(command, RETRIES).map(|_| ())
    }

    /// The card's status.
    pub(crate) fn send_status(&mut self, retries: u32) -> Result<u32, Error> {
        let rca = self.card.as_ref().map_or(0, |card| card.rca);
        self.send_status_of(rca, retries)
    }

    pub(super) fn send_status_of(&mut self, rca: u32, retries: u32) -> Result<u32, Error> {
        let flags = CommandFlags::SPI_R2 | CommandFlags::R1 | AC;
        let command = Command::new(opcode::SEND_STATUS, rca << 16, flags);
        let [status, ..] = self.wait_for_command(command, retries)?;
        Ok(status)
    }

    /// A register that comes as data.
    fn read_register(
        &mut self,
        card: &Card,
        command: Command,
        bytes: u32,
    ) -> Result<Vec<u8>, Error> {
        let mut data = Data::new(Direction::Read, bytes, 1);
        data.content = Some(Vec::new());
        self.set_data_timeout(card, &mut data);
        let mut request = Request::with_data(command, data);
        self.wait_for_request(&mut request);
        if let Some(error) = request.error() {
            return Err(error);
        }
        let content = request.data.and_then(|data| data.content);
        let content = content.unwrap_or_default();
        match content.len() == bytes as usize {
            true => Ok(content),
            false => Err(Error::Io),
        }
    }

    /// An SD card's version.
    pub(super) fn app_send_scr(&mut self, card: &Card) -> Result<[u32; 2], Error> {
        self.app_cmd(Some(card))?;
        let flags = CommandFlags::SPI_S1 | CommandFlags::R1 | CommandFlags::ADTC;
        let command = Command::new(opcode::APP_SEND_SCR, 0, flags);
        let read = self.read_register(card, command, 8)?;
        let mut scr = [0; 2];
        fill_words(&mut scr, &read);
        Ok(scr)
    }

    /// An SD card's allocation units.
    pub(super) fn app_sd_status(&mut self, card: &Card) -> Result<[u32; 16], Error> {
        self.app_cmd(Some(card))?;
        let flags = CommandFlags::SPI_R2 | CommandFlags::R1 | CommandFlags::ADTC;
        let command = Command::new(opcode::APP_SD_STATUS, 0, flags);
        let read = self.read_register(card, command, 64)?;
        let mut ssr = [0; 16];
        fill_words(&mut ssr, &read);
        Ok(ssr)
    }

    /// Asks for an SD card's functions, or sets one of a group.
    pub(super) fn sd_switch(
        &mut self,
        card: &Card,
        set: bool,
        group: u32,
        value: u32,
    ) -> Result<Vec<u8>, Error> {
        let others = 0x00ff_ffff & !(0xf << (4 * group));
        let arg = u32::from(set) << 31 | others | value << (4 * group);
        let flags = CommandFlags::SPI_S1 | CommandFlags::R1 | CommandFlags::ADTC;
        let command = Command::new(opcode::SWITCH, arg, flags);
        self.read_register(card, command, 64)
    }

    /// Sets how many lines an SD card uses.
    pub(super) fn app_set_bus_width(&mut self, card: &Card, width: BusWidth) -> Result<(), Error> {
        let flags = CommandFlags::R1 | AC;
        let command = Command::new(opcode::APP_SET_BUS_WIDTH, width as u32, flags);
        self.wait_for_app_command(Some(card), command).map(|_| ())
    }

    /// How many blocks of the last write got through.
    pub(crate) fn sd_written_blocks(&mut self) -> Result<u32, Error> {
        let Some(card) = self.card.clone() else {
            return Err(Error::NoMedium);
        };
        self.app_cmd(Some(&card))?;
        let flags = CommandFlags::SPI_S1 | CommandFlags::R1 | CommandFlags::ADTC;
        let command = Command::new(opcode::APP_SEND_NUM_WR_BLKS, 0, flags);
        let read = self.read_register(&card, command, 4)?;
        let mut blocks = [0];
        fill_words(&mut blocks, &read);
        Ok(blocks[0])
    }

    /// What an MMC says of itself beside its CSD.
    pub(super) fn send_ext_csd(&mut self, card: &Card) -> Result<Vec<u8>, Error> {
        let flags = CommandFlags::SPI_S1 | CommandFlags::R1 | CommandFlags::ADTC;
        let command = Command::new(opcode::SEND_EXT_CSD, 0, flags);
        self.read_register(card, command, 512)
    }
}

/// Words as they are sent, the highest byte first.
fn fill_words(words: &mut [u32], bytes: &[u8]) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = { bytes.iter() }.fold(0, |word, &byte| word << 8 | u32::from(byte));
    }
}
