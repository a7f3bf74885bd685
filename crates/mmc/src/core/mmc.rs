//! MMC and eMMC: identification, switches and bus set-up
//! (`drivers/mmc/core/mmc.c`, `mmc_ops.c`).

use blklab_blk::JIFFY_NS;

use super::ops::OCR_HIGH_CAPACITY;
use super::{Card, CardKind, Core, RETRIES};
use crate::command::{Command, CommandFlags, Error, Status, opcode};
use crate::host::{BusMode, BusWidth, Caps, Caps2, Ios, SignalVoltage, Timing};
use crate::registers::{Cid, Csd, ExtCsd, ext_csd};

/// Some caches take that long to be switched on after power was lost.
const CACHE_ON_MS: u32 = 1600;
/// What a write of the cache to flash may take (`MMC_CACHE_FLUSH_TIMEOUT_MS`).
const CACHE_FLUSH_MS: u32 = 30_000;
/// `HS_TIMING` of high speed and of HS200.
const TIMING_HIGH_SPEED: u8 = 1;
const TIMING_HS200: u8 = 2;
/// Clock of HS200 (`MMC_HS200_MAX_DTR`).
const HS200_HZ: u32 = 200_000_000;
/// Bits of `PART_CONFIG` that say which partition is in use.
const PARTITION_ACCESS: u8 = 7;
/// Pauses between polls of a busy card: the first, doubled up to the last
/// (`__mmc_poll_for_busy`).
const BUSY_PAUSE_US: (u64, u64) = (32, 32_768);

/// More of them are addressed as blocks.
const BYTE_ADDRESSED_SECTORS: u32 = 1 << 22;
/// The bit of OCR for 1.65 to 1.95 V.
const VDD_1_8_V: u16 = 7;

/// What a card is busy with (`enum mmc_busy_cmd`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BusyWith {
    /// CMD6.
    Switch,
    /// CMD38.
    Erase,
}

impl BusyWith {
    /// What its status tells of it; a card tells an error once (`mmc_busy_cb`).
    fn check(self, status: u32) -> Result<(), Error> {
        match self {
            BusyWith::Switch if status & Status::SWITCH_ERROR.bits() != 0 => Err(Error::BadMessage),
            BusyWith::Erase if status & Status::ANY_ERROR != 0 => Err(Error::Io),
            _ => Ok(()),
        }
    }
}

/// Whether a card took a switch that it need not know.
fn known(switched: Result<(), Error>) -> Result<bool, Error> {
    match switched {
        Ok(()) => Ok(true),
        Err(Error::BadMessage) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Core {
    /// Finds out whether an MMC is there, and sets it up (`mmc_attach_mmc`).
    pub(super) fn attach_mmc(&mut self) -> Result<(), Error> {
        self.set_bus_mode(BusMode::OpenDrain);
        let ocr = self.send_op_cond(0)?;
        let ocr = self.select_voltage(ocr & 0x00ff_ffff)?;
        self.initialise_mmc(ocr, None)
    }

    /// Sets a card up; `old` is what is known of the card that has to be there
    /// (`mmc_init_card`).
    pub(super) fn initialise_mmc(&mut self, ocr: u32, old: Option<&Card>) -> Result<(), Error> {
        self.set_bus_mode(BusMode::OpenDrain);
        self.go_idle();
        let answer = self.send_op_cond(ocr | OCR_HIGH_CAPACITY)?;
        let raw_cid = self.send_cid()?;
        let mut card = match old {
            Some(old) if old.raw_cid != raw_cid => return Err(Error::OtherCard),
            Some(old) => old.clone(),
            None => Card {
                kind: CardKind::Mmc,
                rca: 1,
                ocr,
                raw_cid,
                ..Card::default()
            },
        };
        self.set_relative_address(card.rca)?;
        self.set_bus_mode(BusMode::PushPull);
        if old.is_none() {
            card.raw_csd = self.send_csd(card.rca)?;
            card.csd = Csd::of_mmc(&card.raw_csd)?;
        }
        self.select_card(card.rca)?;
        if old.is_none() {
            // Cards of before version 4 have none.
            if card.csd.mmca_version >= 4 {
                card.ext_csd = self.read_ext_csd(&card)?;
            }
            card.cid = Cid::of_mmc(&raw_cid, card.ext_csd.revision);
            // Small cards may have block addresses too (JESD84-A441 8.1).
            let is_large = card.ext_csd.sectors > BYTE_ADDRESSED_SECTORS;
            card.is_block_addressed = is_large || answer & OCR_HIGH_CAPACITY != 0;
            card.set_mmc_erase_sectors();
        }
        self.switch_on_features(&mut card)?;
        self.speed_up_mmc(&card)?;
        self.select_power_class(&card);
        if card.ext_csd.has_hpi {
            self.try_switch(&card, ext_csd::HPI_MGMT, 1)?;
        }
        self.switch_on_cache(&mut card)?;
        self.card = Some(card);
        Ok(())
    }

    /// What the card says of itself beside its CSD. Only cards of the newest CSD
    /// structure tell another one here.
    fn read_ext_csd(&mut self, card: &Card) -> Result<ExtCsd, Error> {
        const STRUCTURE_IN_EXT_CSD: u32 = 3;
        const LAST_STRUCTURE: u32 = 2;
        let read = ExtCsd::of(&self.send_ext_csd(card)?)?;
        match card.csd.structure == STRUCTURE_IN_EXT_CSD && read.structure > LAST_STRUCTURE {
            true => Err(Error::Invalid),
            false => Ok(read),
        }
    }

    /// What is lost with each reset: erase groups, the partition in use, and notice of
    /// power going.
    fn switch_on_features(&mut self, card: &mut Card) -> Result<(), Error> {
        if card.ext_csd.revision >= 3 {
            card.ext_csd.erase_group_def = self.try_switch(card, ext_csd::ERASE_GROUP_DEF, 1)?;
            card.set_mmc_erase_sectors();
        }
        if card.ext_csd.part_config & PARTITION_ACCESS != 0 {
            card.ext_csd.part_config &= !PARTITION_ACCESS;
            let (value, time_ms) = (card.ext_csd.part_config, card.ext_csd.partition_switch_ms);
            self.switch_if_known(card, ext_csd::PART_CONFIG, value, time_ms)?;
        }
        if card.ext_csd.revision >= 6 {
            self.try_switch(card, ext_csd::POWER_OFF_NOTIFICATION, 1)?;
        }
        // What an erase is told: trim and discard work on sectors.
        const TRIM: u32 = 1;
        const DISCARD: u32 = 3;
        card.erase_arg = match (card.ext_csd.can_discard(), card.ext_csd.can_trim()) {
            (true, _) => DISCARD,
            (_, true) => TRIM,
            _ => 0,
        };
        Ok(())
    }

    /// The fastest timing, clock and width that both sides have
    /// (`mmc_select_timing`, `mmc_select_bus_width`).
    fn speed_up_mmc(&mut self, card: &Card) -> Result<(), Error> {
        let has_ext_csd = card.csd.mmca_version >= 4;
        let can_hs200 = card.ext_csd.has_hs200 && self.host.spec().caps2.contains(Caps2::HS200);
        if has_ext_csd && can_hs200 && self.select_hs200(card)? {
            self.set_clock(HS200_HZ);
            return self.execute_tuning(card.kind);
        }
        let caps = self.host.spec().caps;
        let mut hz = card.csd.max_clock_hz;
        let can = has_ext_csd && caps.contains(Caps::MMC_HIGHSPEED);
        if let Some(fast_hz) = card.ext_csd.high_speed_hz()
            && can
            && self.switch_mmc_to_high_speed(card)?
        {
            hz = fast_hz;
        }
        self.set_clock(hz);
        if has_ext_csd {
            // A card that takes no width has kept one line.
            let _ = self.select_bus_width(card);
        }
        Ok(())
    }

    /// Whether the card went to HS200: lines of 1.8 V, more than one of them, and the
    /// timing, in that order (`mmc_select_hs200`).
    fn select_hs200(&mut self, card: &Card) -> Result<bool, Error> {
        let old = self.ios;
        self.set_signal_voltage(SignalVoltage::V180)?;
        let switched = match self.select_bus_width(card) {
            Ok(true) => self.switch_to_hs200(card),
            Ok(false) => Ok(false),
            Err(error) => Err(error),
        };
        if switched != Ok(true) {
            self.set_signal_voltage(old.signal_voltage)
                .map_err(|_| Error::Io)?;
        }
        switched
    }

    /// The card's status is asked for at the clock of high speed, at which cards answer
    /// reliably before the controller is tuned.
    fn switch_to_hs200(&mut self, card: &Card) -> Result<bool, Error> {
        let (timing, clock_hz) = (self.ios.timing, self.ios.clock_hz);
        let time_ms = card.ext_csd.generic_switch_ms;
        self.hold_retune();
        let told = self.write_byte(card, ext_csd::HS_TIMING, TIMING_HS200, time_ms);
        let status = told.and_then(|()| {
            self.set_timing(Timing::MmcHs200);
            self.set_clock(card.ext_csd.high_speed_hz().unwrap_or(clock_hz));
            self.send_status_of(card.rca, RETRIES)
        });
        self.release_retune();
        // A checksum that is wrong before the controller is tuned tells nothing
        // (`__mmc_switch_status`).
        let took_it = match status {
            Err(Error::Crc) => true,
            status => status? & Status::SWITCH_ERROR.bits() == 0,
        };
        if took_it {
            return Ok(true);
        }
        self.set_clock(clock_hz);
        self.set_timing(timing);
        Ok(false)
    }

    /// Whether the card went to high speed. Its status is asked for with the host's new
    /// timing (`mmc_select_hs`, `__mmc_switch`).
    fn switch_mmc_to_high_speed(&mut self, card: &Card) -> Result<bool, Error> {
        let timing = self.ios.timing;
        let time_ms = card.ext_csd.generic_switch_ms;
        self.hold_retune();
        let told = self.write_byte(card, ext_csd::HS_TIMING, TIMING_HIGH_SPEED, time_ms);
        let done = told.and_then(|()| {
            self.set_timing(Timing::MmcHs);
            let checked = self.check_switch(card);
            if checked.is_err() {
                self.set_timing(timing);
            }
            checked
        });
        self.release_retune();
        known(done)
    }

    /// The most data lines that both sides have; whether there is more than one
    /// (`mmc_select_bus_width`).
    fn select_bus_width(&mut self, card: &Card) -> Result<bool, Error> {
        let widths = [
            (BusWidth::Eight, 2),
            (BusWidth::Four, 1),
            (BusWidth::One, 0),
        ];
        let caps = self.host.spec().caps;
        let first = match (
            caps.contains(Caps::EIGHT_BIT_DATA),
            caps.contains(Caps::FOUR_BIT_DATA),
        ) {
            (true, _) => 0,
            (_, true) => 1,
            _ => return Ok(false),
        };
        let mut last = Ok(false);
        for (width, value) in &widths[first..] {
            let time_ms = card.ext_csd.generic_switch_ms;
            last = match self.switch(card, ext_csd::BUS_WIDTH, *value, time_ms) {
                Ok(()) => {
                    self.set_bus_width(*width);
                    self.check_bus_width(card, *width)
                }
                Err(error) => Err(error),
            };
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// A width works if the card still says the same of itself
    /// (`mmc_compare_ext_csds`).
    fn check_bus_width(&mut self, card: &Card, width: BusWidth) -> Result<bool, Error> {
        if width == BusWidth::One {
            return Ok(false);
        }
        let read = ExtCsd::of(&self.send_ext_csd(card)?)?;
        match card.ext_csd.is_same_card(&read) {
            true => Ok(true),
            false => Err(Error::Invalid),
        }
    }

    /// Allows the card what it draws at its clock with more than one line. One that
    /// refuses draws what it did (`mmc_select_powerclass`).
    fn select_power_class(&mut self, card: &Card) {
        let Ios {
            vdd,
            clock_hz,
            bus_width,
            ..
        } = self.ios;
        if card.csd.mmca_version < 4 || bus_width == BusWidth::One {
            return;
        }
        let classes = card.ext_csd.power_classes;
        let class = classes.at(vdd == VDD_1_8_V, clock_hz, bus_width == BusWidth::Eight);
        if class > 0 {
            let time_ms = card.ext_csd.generic_switch_ms;
            let _ = self.switch(card, ext_csd::POWER_CLASS, class, time_ms);
        }
    }

    fn switch_on_cache(&mut self, card: &mut Card) -> Result<(), Error> {
        if card.ext_csd.cache_kib == 0 {
            return Ok(());
        }
        let time_ms = card.ext_csd.generic_switch_ms.max(CACHE_ON_MS);
        card.ext_csd.cache_on = self.switch_if_known(card, ext_csd::CACHE_CTRL, 1, time_ms)?;
        Ok(())
    }

    /// Whether the card took a switch that it may refuse.
    fn try_switch(&mut self, card: &Card, index: u8, value: u8) -> Result<bool, Error> {
        self.switch_if_known(card, index, value, card.ext_csd.generic_switch_ms)
    }

    fn switch_if_known(
        &mut self,
        card: &Card,
        index: u8,
        value: u8,
        time_ms: u32,
    ) -> Result<bool, Error> {
        known(self.switch(card, index, value, time_ms))
    }

    /// Sets a byte of EXT_CSD and waits until the card has done so (`mmc_switch`).
    pub(super) fn switch(
        &mut self,
        card: &Card,
        index: u8,
        value: u8,
        time_ms: u32,
    ) -> Result<(), Error> {
        self.hold_retune();
        let done =
            (self.write_byte(card, index, value, time_ms)).and_then(|()| self.check_switch(card));
        self.release_retune();
        done
    }

    /// What became of a switch (`mmc_switch_status`).
    fn check_switch(&mut self, card: &Card) -> Result<(), Error> {
        match self.send_status_of(card.rca, RETRIES)? & Status::SWITCH_ERROR.bits() {
            0 => Ok(()),
            _ => Err(Error::BadMessage),
        }
    }

    /// The switch alone, without a look at what became of it (`__mmc_switch`).
    fn write_byte(&mut self, card: &Card, index: u8, value: u8, time_ms: u32) -> Result<(), Error> {
        const WRITE_BYTE: u32 = 3;
        const NORMAL: u32 = 1;
        let arg = WRITE_BYTE << 24 | u32::from(index) << 16 | u32::from(value) << 8 | NORMAL;
        let (command, busy) = self.busy_command(opcode::SWITCH, arg, time_ms);
        self.wait_for_command(command, RETRIES)?;
        self.wait_while_busy(BusyWith::Switch, card.rca, busy, time_ms)
    }

    /// A command after which the card is busy, and whether the controller watches
    /// that: not where it cannot wait that long (`mmc_prepare_busy_cmd`).
    pub(crate) fn busy_command(&self, opcode: u8, arg: u32, time_ms: u32) -> (Command, bool) {
        let limit_ms = self.host.spec().max_busy_timeout_ms;
        let watches = limit_ms == 0 || time_ms <= limit_ms;
        let flags = match watches {
            true => CommandFlags::SPI_R1B | CommandFlags::R1B,
            false => CommandFlags::SPI_S1 | CommandFlags::R1,
        };
        (Command::new(opcode, arg, flags), watches)
    }

    /// Waits until the card is no longer busy: by its data line where the controller
    /// can tell, else by its status (`mmc_poll_for_busy`).
    pub(super) fn wait_while_busy(
        &mut self,
        with: BusyWith,
        rca: u32,
        host_watched: bool,
        time_ms: u32,
    ) -> Result<(), Error> {
        if host_watched && self.host.spec().caps.contains(Caps::WAIT_WHILE_BUSY) {
            return Ok(());
        }
        self.poll_while(time_ms, |core| match core.host.card_is_busy() {
            Some(busy) => Ok(busy),
            None => {
                let status = core.send_status_of(rca, RETRIES)?;
                with.check(status)?;
                Ok(!Status::is_ready_for_data(status))
            }
        })
    }

    /// Asks until the answer is no, with growing pauses, for so long.
    pub(crate) fn poll_while(
        &mut self,
        time_ms: u32,
        mut is_busy: impl FnMut(&mut Core) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let (mut pause_us, longest_us) = BUSY_PAUSE_US;
        // The kernel waits a tick longer than it was told.
        let limit_us = u64::from(time_ms) * 1000 + JIFFY_NS / 1000;
        let mut waited_us = 0;
        while is_busy(self)? {
            if waited_us > limit_us {
                return Err(Error::Timeout);
            }
            self.delay_ns(pause_us * 1000);
            waited_us += pause_us;
            pause_us = (2 * pause_us).min(longest_us);
        }
        Ok(())
    }

    /// What the card has in its cache goes to flash (`mmc_flush_cache`).
    pub(crate) fn flush_cache(&mut self) -> Result<(), Error> {
        match self.card.clone() {
            Some(card) if card.ext_csd.cache_on => {
                self.switch(&card, ext_csd::FLUSH_CACHE, 1, CACHE_FLUSH_MS)
            }
            _ => Ok(()),
        }
    }

    /// Puts another partition of the card in the place of its user area
    /// (`mmc_blk_part_switch`).
    pub(crate) fn switch_partition(&mut self, access: u8) -> Result<(), Error> {
        let Some(mut card) = self.card.clone() else {
            return Err(Error::NoMedium);
        };
        let value = card.ext_csd.part_config & !PARTITION_ACCESS | access;
        let is_in_use = value == card.ext_csd.part_config && !card.partition_is_unknown;
        if is_in_use || card.kind != CardKind::Mmc {
            return Ok(());
        }
        let time_ms = card.ext_csd.partition_switch_ms;
        self.switch(&card, ext_csd::PART_CONFIG, value, time_ms)?;
        card.ext_csd.part_config = value;
        card.partition_is_unknown = false;
        self.card = Some(card);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulated::CardSpec;
    use crate::faults;

    /// EXT_CSD of a card of high speed with these fields after it was found.
    fn found_with(fields: &[(usize, u8)]) -> Vec<u8> {
        const HIGH_SPEED: u8 = 3;
        let mut spec: CardSpec = faults::emmc();
        spec.ext_csd[ext_csd::CARD_TYPE] = HIGH_SPEED;
        for &(place, value) in fields {
            spec.ext_csd[place] = value;
        }
        let mut core = faults::core(spec, Vec::new());
        assert!(core.rescan());
        let card = core.host_mut().slot_mut().card().unwrap();
        card.ext_csd().to_vec()
    }

    #[test]
    fn a_card_may_draw_what_it_needs_at_its_clock() {
        const UP_TO_52_MHZ: usize = 202;
        let told = |class| found_with(&[(UP_TO_52_MHZ, class)])[usize::from(ext_csd::POWER_CLASS)];
        // The controller has four lines: the class is in the lower half.
        assert_eq!([told(0x25), told(0x20)], [5, 0]);
    }

    #[test]
    fn a_card_is_told_that_it_may_be_interrupted_if_it_can_be() {
        const HPI_FEATURES: usize = 503;
        let told =
            |features| found_with(&[(HPI_FEATURES, features)])[usize::from(ext_csd::HPI_MGMT)];
        assert_eq!([told(1), told(0)], [1, 0]);
    }

    #[test]
    fn a_cache_is_switched_on() {
        const CACHE_SIZE: usize = 249;
        let told = |size| found_with(&[(CACHE_SIZE, size)])[usize::from(ext_csd::CACHE_CTRL)];
        assert_eq!([told(64), told(0)], [1, 0]);
    }
}
