//! SD cards: identification and bus set-up (`drivers/mmc/core/sd.c`).

use super::ops::OCR_HIGH_CAPACITY;
use super::{Card, CardKind, Core};
use crate::command::Error;
use crate::host::{BusWidth, Caps, Timing};
use crate::registers::{Cid, Csd, Scr, Ssr, class};

/// Clock of SD high speed.
const HIGH_SPEED_HZ: u32 = 50_000_000;
/// The host can supply more than 150 mA at its voltage.
const OCR_POWER_CONTROL: u32 = 1 << 28;

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
        let raw_cid = self.identify_sd(ocr)?;
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
        self.speed_up_sd(&card)?;
        self.card = Some(card);
        Ok(())
    }

    /// From reset to the card's identity (`mmc_sd_get_cid`).
    fn identify_sd(&mut self, ocr: u32) -> Result<[u32; 4], Error> {
        // A card that was told other voltages before has to begin anew.
        self.go_idle();
        let mut ocr = ocr;
        if self.send_if_cond(ocr).is_ok() {
            ocr |= OCR_HIGH_CAPACITY;
        }
        if self.host.spec().max_current_330_ma > 150 {
            ocr |= OCR_POWER_CONTROL;
        }
        self.send_app_op_cond(ocr)?;
        self.send_cid()
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
            Ok(status) => card.has_sd_high_speed = status[13] & 2 != 0,
            Err(Error::Invalid | Error::NotSupported) => {}
            Err(error) => return Err(error),
        }
        Ok(())
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
