//! The MMC core: from power to an identified card (`drivers/mmc/core/core.c`).

mod card;
mod erase;
mod mmc;
mod ops;
mod sd;
mod sysfs;
mod tuning;

pub use card::{Card, CardKind};
pub(crate) use erase::TRIM;

use crate::command::{Command, Direction, Error, Request};
use crate::event::{Event, Retune};
use crate::host::{
    BusMode, BusWidth, Caps, Caps2, ChipSelect, Host, Ios, PowerMode, SignalVoltage, Timing,
};

/// Clocks at which a card is looked for, one after the other.
const RESCAN_HZ: [u32; 4] = [400_000, 300_000, 200_000, 100_000];
/// How often a command of identification is tried again.
const RETRIES: u32 = 3;
/// How long power needs to be steady.
const POWER_DELAY_MS: u64 = 10;

/// A host with its card (`struct mmc_host`).
pub struct Core {
    host: Box<dyn Host>,
    index: u32,
    ios: Ios,
    init_hz: u32,
    card: Option<Card>,
    retune: Retune,
    /// Somebody saw the card detect line move.
    detect_change: bool,
    elapsed_ns: u64,
    /// `None` where nobody looks.
    events: Option<Vec<Event>>,
}

impl Core {
    /// A host without a card (`mmc_add_host`): `mmc` with this number.
    pub fn new(host: Box<dyn Host>, index: u32) -> Core {
        let spec = host.spec();
        let init_hz = RESCAN_HZ[0].min(spec.f_max_hz).max(spec.f_min_hz);
        let mut core = Core {
            host,
            index,
            ios: Ios::default(),
            init_hz,
            card: None,
            retune: Retune::default(),
            detect_change: false,
            elapsed_ns: 0,
            events: None,
        };
        if !core.host.spec().caps2.contains(Caps2::NO_PRESCAN_POWERUP) {
            core.power_up(core.host.spec().ocr_avail);
        }
        core
    }

    /// Keeps what happens from now on.
    pub fn watch(&mut self) {
        self.events.get_or_insert_default();
    }

    /// What has happened since this was last asked.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn tell(&mut self, event: impl FnOnce() -> Event) {
        if let Some(events) = &mut self.events {
            events.push(event());
        }
    }

    /// How long everything took since this was last asked.
    pub fn take_elapsed_ns(&mut self) -> u64 {
        std::mem::take(&mut self.elapsed_ns)
    }

    /// The controller.
    pub fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// The controller, for whoever pulls its card out.
    pub fn host_mut(&mut self) -> &mut dyn Host {
        &mut *self.host
    }

    /// Its number.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The bus.
    pub fn ios(&self) -> &Ios {
        &self.ios
    }

    /// The card, if one was identified.
    pub fn card(&self) -> Option<&Card> {
        self.card.as_ref()
    }

    /// What the device model calls a card of this host.
    pub(crate) fn card_name(&self, card: &Card) -> String {
        format!("mmc{}:{:04x}", self.index, card.rca)
    }

    /// The card detect line moved (`mmc_detect_change`): a rescan is due.
    pub fn detect_change(&mut self) {
        self.detect_change = true;
    }

    pub(crate) fn delay_ms(&mut self, ms: u64) {
        self.delay_ns(ms * 1_000_000);
    }

    pub(crate) fn delay_ns(&mut self, ns: u64) {
        self.elapsed_ns = self.elapsed_ns.saturating_add(ns);
        self.host.delay(ns);
    }

    pub(crate) fn hold_retune(&mut self) {
        self.retune.now |= self.retune.hold == 0;
        self.retune.hold += 1;
    }

    /// Holds tuning back, also where it is due (`mmc_retune_hold_now`).
    pub(crate) fn hold_retune_now(&mut self) {
        self.retune.now = false;
        self.retune.hold += 1;
    }

    pub(crate) fn release_retune(&mut self) {
        self.retune.hold = self.retune.hold.saturating_sub(1);
    }

    /// Gives a request to the controller once. Tuning stays held back until
    /// [`Core::release_retune`] (`mmc_start_request`).
    ///
    /// # Errors
    /// Where the card is known to be gone: the controller does not see the request.
    pub(crate) fn start_request(&mut self, request: &mut Request) -> Result<(), Error> {
        self.hold_retune();
        if self.is_removed() {
            request.command.error = Some(Error::NoMedium);
            return Err(Error::NoMedium);
        }
        self.carry_out(request);
        Ok(())
    }

    fn carry_out(&mut self, request: &mut Request) {
        request.clear_outcome();
        if let Err(error) = self.tune_again_if_needed() {
            request.command.error = Some(error);
            return;
        }
        let retune = self.retune;
        self.tell(|| Event::RequestStart {
            request: Box::new(request.clone()),
            retune,
        });
        let took_ns = self.host.request(request);
        self.elapsed_ns = self.elapsed_ns.saturating_add(took_ns);
        self.look_for_checksums(request);
        let retune = self.retune;
        self.tell(|| Event::RequestDone {
            request: Box::new(request.clone()),
            retune,
        });
    }

    /// Gives a request to the controller, again as often as its command may be tried
    /// (`mmc_wait_for_req`).
    pub(crate) fn wait_for_request(&mut self, request: &mut Request) {
        if self.start_request(request).is_ok() {
            while request.command.error.is_some()
                && request.command.retries > 0
                && !self.is_removed()
            {
                request.command.retries -= 1;
                self.carry_out(request);
            }
        }
        self.release_retune();
    }

    /// A command alone, tried again `retries` times; the answer
    /// (`mmc_wait_for_cmd`).
    pub(crate) fn wait_for_command(
        &mut self,
        command: Command,
        retries: u32,
    ) -> Result<[u32; 4], Error> {
        let mut request = Request::command(Command { retries, ..command });
        self.wait_for_request(&mut request);
        match request.command.error {
            Some(error) => Err(error),
            None => Ok(request.command.response),
        }
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.card.as_ref().is_some_and(|card| card.is_removed)
    }

    fn set_ios(&mut self) {
        let ios = self.ios;
        self.tell(|| Event::SetIos(ios));
        self.host.set_ios(&ios);
    }

    pub(crate) fn set_chip_select(&mut self, mode: ChipSelect) {
        self.ios.chip_select = mode;
        self.set_ios();
    }

    pub(crate) fn set_bus_mode(&mut self, mode: BusMode) {
        self.ios.bus_mode = mode;
        self.set_ios();
    }

    pub(crate) fn set_bus_width(&mut self, width: BusWidth) {
        self.ios.bus_width = width;
        self.set_ios();
    }

    pub(crate) fn set_timing(&mut self, timing: Timing) {
        self.ios.timing = timing;
        self.set_ios();
    }

    pub(crate) fn set_clock(&mut self, hz: u32) {
        self.ios.clock_hz = hz.min(self.host.spec().f_max_hz);
        self.set_ios();
    }

    /// The bus as a card wants it that has just got power (`mmc_set_initial_state`).
    fn set_initial_state(&mut self) {
        self.ios = Ios {
            clock_hz: self.ios.clock_hz,
            vdd: self.ios.vdd,
            power_mode: self.ios.power_mode,
            signal_voltage: self.ios.signal_voltage,
            ..Ios::default()
        };
        self.forget_tuning();
        self.set_ios();
    }

    fn power_up(&mut self, ocr: u32) {
        if self.ios.power_mode == PowerMode::On {
            return;
        }
        self.ios.vdd = highest_bit(ocr);
        self.ios.power_mode = PowerMode::Up;
        self.set_initial_state();
        // Every controller has the voltage that cards begin with.
        let _ = self.set_signal_voltage(SignalVoltage::V330);
        self.delay_ms(POWER_DELAY_MS);
        self.ios.clock_hz = self.init_hz;
        self.ios.power_mode = PowerMode::On;
        self.set_ios();
        self.delay_ms(POWER_DELAY_MS);
    }

    fn power_off(&mut self) {
        if self.ios.power_mode == PowerMode::Off {
            return;
        }
        self.ios = Ios::default();
        self.set_initial_state();
        // Some cards need that long to notice.
        self.delay_ms(1);
    }

    /// Voltages that card and host have: the two highest of them
    /// (`mmc_select_voltage`).
    fn select_voltage(&mut self, ocr: u32) -> Result<u32, Error> {
        let common = ocr & !0x7f & self.host.spec().ocr_avail;
        if common == 0 {
            return Err(Error::Invalid);
        }
        if { self.host.spec().caps2 }.contains(Caps2::FULL_PWR_CYCLE) {
            let chosen = common & 3 << common.trailing_zeros();
            self.power_off();
            self.power_up(chosen);
            return Ok(chosen);
        }
        Ok(common & 3 << (highest_bit(common) - 1))
    }

    /// Looks for a card where there was none (`mmc_rescan`). A card that was
    /// found is to be added ([`Core::add_card`]); whether one was found.
    pub fn rescan(&mut self) -> bool {
        self.tell(|| Event::Rescan);
        self.detect_change = false;
        if self.card.is_some() {
            return false;
        }
        let removable = !self.host.spec().caps.contains(Caps::NONREMOVABLE);
        if removable && !self.host.card_is_present() {
            self.power_off();
            return false;
        }
        let (f_min_hz, f_max_hz) = (self.host.spec().f_min_hz, self.host.spec().f_max_hz);
        for (n, &hz) in RESCAN_HZ.iter().enumerate() {
            let hz = match hz > f_max_hz {
                true if n + 1 < RESCAN_HZ.len() => continue,
                true => f_max_hz,
                false => hz,
            };
            if self.rescan_at(hz.max(f_min_hz)) {
                return true;
            }
            if RESCAN_HZ[n] <= f_min_hz {
                break;
            }
        }
        false
    }

    /// Looks for a card at this clock: SDIO first, then SD, then MMC
    /// (`mmc_rescan_try_freq`).
    fn rescan_at(&mut self, hz: u32) -> bool {
        self.init_hz = hz;
        self.power_up(self.host.spec().ocr_avail);
        let caps2 = self.host.spec().caps2;
        if !caps2.contains(Caps2::NO_SDIO) {
            self.reset_sdio();
        }
        self.go_idle();
        if !caps2.contains(Caps2::NO_SD) {
            // Whether it answers is asked again when it is an SD card.
            let _ = self.send_if_cond(self.host.spec().ocr_avail);
        }
        let attached = (!caps2.contains(Caps2::NO_SDIO) && self.attach_sdio().is_ok())
            || (!caps2.contains(Caps2::NO_SD) && self.attach_sd().is_ok())
            || (!caps2.contains(Caps2::NO_MMC) && self.attach_mmc().is_ok());
        if !attached {
            self.card = None;
            self.power_off();
        }
        attached
    }

    /// An SDIO card answers CMD5; it has an address, but no identity. None of its functions has
    /// a driver here (`mmc_attach_sdio`).
    fn attach_sdio(&mut self) -> Result<(), Error> {
        let told = self.send_io_op_cond(0)?;
        let ocr = self.select_voltage(told & 0x00ff_ffff)?;
        self.send_io_op_cond(ocr)?;
        let rca = self.send_relative_address()?;
        self.select_card(rca)?;
        self.card = Some(Card {
            kind: CardKind::Sdio,
            ocr,
            rca,
            ..Card::default()
        });
        Ok(())
    }

    /// The identified card is made known (`mmc_add_card`).
    pub fn add_card(&mut self) {
        if let Some(card) = &self.card {
            let (kind, state, rca) = (card.kind as u32, card.state(), card.rca);
            self.tell(|| Event::AddCard { kind, state, rca });
        }
    }

    /// Whether the card is there and answers; if not it is marked as gone
    /// (`_mmc_detect_card_removed`).
    pub fn detect_card_removed(&mut self) -> bool {
        if self.card.is_none() || self.is_removed() {
            return true;
        }
        // Without a memory it has no status to ask for (`mmc_sdio_alive`).
        let answers = match &self.card {
            Some(card) if card.kind == CardKind::Sdio => self.select_card(card.rca).is_ok(),
            _ => self.send_status(RETRIES).is_ok(),
        };
        let alive = answers && self.host.card_is_present();
        if let (false, Some(card)) = (alive, &mut self.card) {
            card.is_removed = true;
        }
        !alive
    }

    /// The same, where somebody saw the line move or has to poll
    /// (`mmc_detect_card_removed`).
    pub(crate) fn detect_if_changed(&mut self) -> bool {
        let caps = self.host.spec().caps;
        match (self.is_removed(), caps.contains(Caps::NONREMOVABLE)) {
            (true, _) => true,
            (_, true) => false,
            _ if !self.detect_change && !caps.contains(Caps::NEEDS_POLL) => false,
            _ => {
                self.detect_change = false;
                self.detect_card_removed()
            }
        }
    }

    /// The card begins to go: its driver may still use it (`mmc_remove_card`).
    pub(crate) fn begin_remove(&mut self) {
        if let Some(card) = &self.card {
            let kind = card.kind as u32;
            self.tell(|| Event::RemoveCard { kind });
        }
    }

    /// The card goes: nobody uses it any more (`mmc_remove_card`).
    pub fn remove_card(&mut self) -> Option<Card> {
        self.begin_remove();
        self.forget_card()
    }

    /// Nothing of the card is left.
    pub(crate) fn forget_card(&mut self) -> Option<Card> {
        self.card.take()
    }

    /// The bus gets no power (`mmc_stop_host`, `mmc_detach_bus`).
    pub fn stop(&mut self) {
        self.power_off();
    }

    /// Runtime suspend of a card that nobody uses: it goes without power until it is
    /// needed (`mmc_sd_runtime_suspend`, `_mmc_suspend`).
    ///
    /// # Errors
    /// Where the card does not go to sleep.
    pub fn runtime_suspend(&mut self) -> Result<(), Error> {
        if self.card.is_some() {
            self.flush_cache()?;
            self.deselect_card()?;
            self.power_off();
        }
        Ok(())
    }

    /// The card gets power again, and has to be the same
    /// (`mmc_sd_runtime_resume`).
    ///
    /// # Errors
    /// Where it does not come back; it is marked as gone where no card is present.
    pub fn runtime_resume(&mut self) -> Result<(), Error> {
        match self.card {
            Some(_) if self.ios.power_mode == PowerMode::Off => self.initialise_again(),
            _ => Ok(()),
        }
    }

    /// Power off and on, and the card is initialised again (`mmc_hw_reset`).
    ///
    /// # Errors
    /// Where it does not come back; it is marked as gone where no card is present.
    pub(crate) fn reset_card(&mut self) -> Result<(), Error> {
        // A card that is stuck may not write its cache any more.
        let _ = self.flush_cache();
        self.power_off();
        self.initialise_again()
    }

    fn initialise_again(&mut self) -> Result<(), Error> {
        let Some(card) = self.card.take() else {
            return Err(Error::NoMedium);
        };
        if card.is_removed {
            self.card = Some(card);
            return Err(Error::NoMedium);
        }
        self.power_up(card.ocr);
        let done = match card.kind {
            CardKind::Sd => self.initialise_sd(card.ocr, Some(&card)),
            CardKind::Mmc => self.initialise_mmc(card.ocr, Some(&card)),
            CardKind::Sdio => Err(Error::NotSupported),
        };
        if let Err(error) = done {
            self.card = Some(Card {
                is_removed: !self.host.card_is_present(),
                // Without power it went back to its user area.
                partition_is_unknown: true,
                ..card
            });
            return Err(error);
        }
        Ok(())
    }

    /// For how long the card may take for a block of data (`mmc_set_data_timeout`).
    pub(crate) fn set_data_timeout(&mut self, card: &Card, data: &mut crate::command::Data) {
        self.tell(|| Event::set_data_timeout(data));
        let is_sd = card.kind == CardKind::Sd;
        let is_write = data.direction == Direction::Write;
        // SD cards are given ten times as much as MMC cards.
        let mut times: u32 = if is_sd { 100 } else { 10 };
        if is_write {
            times <<= card.csd.r2w_factor;
        }
        data.timeout_ns = card.csd.taac_ns.wrapping_mul(times);
        data.timeout_clocks = card.csd.taac_clocks.wrapping_mul(times);
        if is_sd {
            let clock_khz = self.ios.clock_hz / 1000;
            let clocks_us = match clock_khz {
                0 => 0,
                khz => data.timeout_clocks.wrapping_mul(1000) / khz,
            };
            let timeout_us = (data.timeout_ns / 1000).saturating_add(clocks_us);
            let limit_us = if is_write { 3_000_000 } else { 100_000 };
            if timeout_us > limit_us {
                data.timeout_ns = limit_us * 1000;
                data.timeout_clocks = 0;
            }
            if timeout_us == 0 {
                data.timeout_ns = limit_us * 1000;
            }
        }
        let (timeout_ns, timeout_clocks) = (data.timeout_ns, data.timeout_clocks);
        self.tell(|| Event::SetDataTimeoutDone {
            timeout_ns,
            timeout_clocks,
        });
    }

    /// The same in whole milliseconds (`mmc_blk_data_timeout_ms`).
    pub(crate) fn data_timeout_ms(&self, data: &crate::command::Data) -> u32 {
        let clocks_ms = match self.ios.clock_hz / 1000 {
            0 => 0,
            clock_khz => data.timeout_clocks.div_ceil(clock_khz),
        };
        data.timeout_ns
            .div_ceil(1_000_000)
            .saturating_add(clocks_ms)
    }
}

/// The number of the highest bit that is set, 0 if none is.
fn highest_bit(word: u32) -> u16 {
    u16::try_from(word.checked_ilog2().unwrap_or(0)).unwrap_or(0)
}
