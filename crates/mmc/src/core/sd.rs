//! SD cards: identification and bus set-up (`drivers/mmc/core/sd.c`).

use super::ops::OCR_HIGH_CAPACITY;
use super::{Card, CardKind, Core};
use crate::command::Error;
use crate::host::{BusWidth, Caps, HostSpec, Timing};
use crate::registers::{Cid, Csd, Scr, Ssr, class};

/// The host asks for lines of 1.8 V, and the card accepts.
const OCR_LOW_VOLTAGE: u32 = 1 << 24;
/// How often a card is asked for them.
const VOLTAGE_TRIES: u32 = 10;
/// Clock of SD high speed.
const HIGH_SPEED_HZ: u32 = 50_000_000;
/// The host can supply more than 150 mA at its voltage.
const OCR_POWER_CONTROL: u32 = 1 << 28;

/// A mode of UHS-I: its number among the card's functions, what the host needs for it, and
/// what the bus is set to.
struct UhsMode {
    function: u32,
    host: Caps,
    timing: Timing,
    clock_hz: u32,
    /// Whether the controller has to be tuned for it.
    is_tuned: bool,
}

/// The modes in the order in which they are preferred (`sd_update_bus_speed_mode`).
const UHS_MODES: [UhsMode; 5] = [
    UhsMode {
        function: 3,
        host: Caps::UHS_SDR104,
        timing: Timing::UhsSdr104,
        clock_hz: 208_000_000,
        is_tuned: true,
    },
    UhsMode {
        function: 4,
        host: Caps::UHS_DDR50,
        timing: Timing::UhsDdr50,
        clock_hz: 50_000_000,
        is_tuned: true,
    },
    UhsMode {
        function: 2,
        host: Caps::UHS_SDR104.union(Caps::UHS_SDR50),
        timing: Timing::UhsSdr50,
        clock_hz: 100_000_000,
        is_tuned: true,
    },
    UhsMode {
        function: 1,
        host: Caps::UHS_SDR104
            .union(Caps::UHS_SDR50)
            .union(Caps::UHS_SDR25),
        timing: Timing::UhsSdr25,
        clock_hz: 50_000_000,
        is_tuned: false,
    },
    UhsMode {
        function: 0,
        host: Caps::UHS_SDR104
            .union(Caps::UHS_SDR50)
            .union(Caps::UHS_SDR25)
            .union(Caps::UHS_SDR12),
        timing: Timing::UhsSdr12,
        clock_hz: 25_000_000,
        is_tuned: false,
    },
];

impl UhsMode {
    /// The best that both sides have.
    fn of(card: &Card, host: &HostSpec) -> Option<&'static UhsMode> {
        UHS_MODES.iter().find(|mode| {
            host.caps.intersects(mode.host) && card.uhs_modes >> mode.function & 1 != 0
        })
    }
}

impl Core {
    /// Finds out whether an SD card is there, and sets it up (`mmc_attach_sd`).
    pub(super) fn attach_sd(&mut self) -> Result<(), Error> {
        let ocr = self.send_app_op_cond(0)?;
        // Some cards claim voltages that the specification reserves.
        let ocr = self.select_voltage(ocr & 0x00ff_8000)?;
        self.initialise_sd(ocr, None)
    }

    /// Sets a card up, from its reset to its bus's width and clock; `old` is what is
    /// known of the card that has to be there (`mmc_sd_init_card`).
    pub(super) fn initialise_sd(&mut self, ocr: u32, old: Option<&Card>) -> Result<(), Error> {
        let (raw_cid, has_low_voltage) = self.identify_sd(ocr)?;
        let mut card = match old {
            Some(old) if old.raw_cid != raw_cid => return Err(Error::OtherCard),
            Some(old) => old.clone(),
            None => Card {
                kind: CardKind::Sd,
                ocr,
                raw_cid,
                cid: Cid::of_sd(&raw_cid),
                ..Card::default()
            },
        };
        card.rca = self.send_relative_address()?;
        if old.is_none() {
            card.raw_csd = self.send_csd(card.rca)?;
            card.csd = Csd::of_sd(&card.raw_csd)?;
            card.is_block_addressed = card.csd.is_block_addressed;
            card.erase_sectors = card.csd.erase_sectors;
        }
        self.select_card(card.rca)?;
        if old.is_none() {
            self.read_version(&mut card)?;
        }
        self.read_switch(&mut card)?;
        if old.is_none() {
            card.is_read_only = self.host.card_is_read_only();
        }
        match has_low_voltage && self.host.spec().has_uhs() {
            true => self.speed_up_uhs(&card)?,
            false => self.speed_up_sd(&card)?,
        }
        self.card = Some(card);
        Ok(())
    }

    /// From reset to the card's identity, and whether its lines have 1.8 V
    /// (`mmc_sd_get_cid`).
    fn identify_sd(&mut self, ocr: u32) -> Result<([u32; 4], bool), Error> {
        let mut tries = VOLTAGE_TRIES;
        loop {
            // A card that was told other voltages before has to begin anew.
            self.go_idle();
            let mut asked = ocr;
            if self.send_if_cond(ocr).is_ok() {
                asked |= OCR_HIGH_CAPACITY;
            }
            if tries > 0 && self.host.spec().has_uhs() {
                asked |= OCR_LOW_VOLTAGE;
            }
            if self.host.spec().max_current_330_ma > 150 {
                asked |= OCR_POWER_CONTROL;
            }
            let answer = self.send_app_op_cond(asked)?;
            let has_low_voltage = asked & answer & OCR_LOW_VOLTAGE != 0;
            if has_low_voltage {
                match self.set_uhs_voltage(ocr) {
                    Ok(()) => {}
                    Err(Error::Again) => {
                        tries -= 1;
                        continue;
                    }
                    Err(_) => {
                        tries = 0;
                        continue;
                    }
                }
            }
            return Ok((self.send_cid()?, has_low_voltage));
        }
    }

    /// SCR and SSR, and what follows from them for erasing (`mmc_sd_setup_card`).
    fn read_version(&mut self, card: &mut Card) -> Result<(), Error> {
        card.raw_scr = self.app_send_scr(card)?;
        card.scr = Scr::of(&card.raw_scr)?;
        if card.csd.classes & class::APP_SPEC != 0 {
            // A card that does not tell goes without allocation units.
            if let Ok(raw_ssr) = self.app_sd_status(card) {
                card.raw_ssr = raw_ssr;
                card.ssr = Ssr::of(&raw_ssr, &card.scr);
                card.erase_arg = u32::from(card.scr.sda_spec_x != 0 && card.ssr.can_discard);
            }
        }
        card.set_erase_size();
        Ok(())
    }

    /// Which speeds the card has (`mmc_read_switch`).
    fn read_switch(&mut self, card: &mut Card) -> Result<(), Error> {
        // A card of before version 1.10 has one only.
        if card.scr.sda_version < 1 || card.csd.classes & class::SWITCH == 0 {
            return Ok(());
        }
        match self.sd_switch(card, false, 0, 0) {
            Ok(status) => {
                card.has_sd_high_speed = status[13] & 2 != 0;
                if card.scr.sda_spec3 {
                    card.uhs_modes = status[13];
                }
            }
            Err(Error::Invalid | Error::NotSupported) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The fastest mode of UHS-I that both sides have (`mmc_sd_init_uhs_card`).
    fn speed_up_uhs(&mut self, card: &Card) -> Result<(), Error> {
        if card.csd.classes & class::SWITCH == 0 {
            return Ok(());
        }
        self.app_set_bus_width(card, BusWidth::Four)?;
        self.set_bus_width(BusWidth::Four);
        let Some(mode) = UhsMode::of(card, self.host.spec()) else {
            return Ok(());
        };
        let status = self.sd_switch(card, true, 0, mode.function)?;
        // A card that does not take the mode keeps its clock.
        if u32::from(status[16] & 0xf) != mode.function {
            return Ok(());
        }
        self.set_timing(mode.timing);
        self.set_clock(mode.clock_hz);
        if !mode.is_tuned {
            return Ok(());
        }
        match self.execute_tuning(card.kind) {
            // Version 3.00 of the specification has no tuning for it.
            Err(_) if mode.timing == Timing::UhsDdr50 => Ok(()),
            done => done,
        }
    }

    /// The fastest timing, clock and width that both sides have.
    fn speed_up_sd(&mut self, card: &Card) -> Result<(), Error> {
        if self.switch_to_high_speed(card)? {
            self.set_timing(Timing::SdHs);
        }
        let hz = match self.ios.timing {
            Timing::SdHs => HIGH_SPEED_HZ,
            _ => card.csd.max_clock_hz,
        };
        self.set_clock(hz);
        let wide = self.host.spec().caps.contains(Caps::FOUR_BIT_DATA);
        if wide && card.scr.bus_widths & Scr::WIDTH_4 != 0 {
            self.app_set_bus_width(card, BusWidth::Four)?;
            self.set_bus_width(BusWidth::Four);
        }
        Ok(())
    }

    /// Whether the card went to high speed (`mmc_sd_switch_hs`).
    fn switch_to_high_speed(&mut self, card: &Card) -> Result<bool, Error> {
        if card.scr.sda_version < 1
            || card.csd.classes & class::SWITCH == 0
            || !self.host.spec().caps.contains(Caps::SD_HIGHSPEED)
            || !card.has_sd_high_speed
        {
            return Ok(false);
        }
        let status = self.sd_switch(card, true, 0, 1)?;
        Ok(status[16] & 0xf == 1)
    }
}
