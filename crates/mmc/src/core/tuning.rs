//! Lines of 1.8 V, and the moment at which data is taken off them (`mmc_set_uhs_voltage`,
//! `mmc_execute_tuning` and `mmc_retune` in `drivers/mmc/core/core.c`, `host.c`).

use super::{Card, CardKind, Core};
use crate::command::{Command, CommandFlags, Error, Request, Status, opcode};
use crate::event::Retune;
use crate::host::SignalVoltage;

/// How long the clock stands still while the voltage changes.
const CLOCK_GATED_MS: u64 = 10;

impl Core {
    /// Sets the voltage of the lines; if it cannot be set it stays as it was.
    pub(super) fn set_signal_voltage(&mut self, voltage: SignalVoltage) -> Result<(), Error> {
        self.host.set_signal_voltage(voltage)?;
        self.ios.signal_voltage = voltage;
        Ok(())
    }

    /// Takes an SD card's lines to 1.8 V (CMD11). Without success the card has lost its
    /// power once.
    ///
    /// # Errors
    /// [`Error::Again`] where card or controller did not follow.
    pub(super) fn set_uhs_voltage(&mut self, ocr: u32) -> Result<(), Error> {
        let done = self.switch_lines();
        if done.is_err() && done != Err(Error::Io) {
            self.power_off();
            self.delay_ms(1);
            self.power_up(ocr);
        }
        done
    }

    fn switch_lines(&mut self) -> Result<(), Error> {
        let command = Command::new(opcode::SD_SWITCH_VOLTAGE, 0, CommandFlags::R1);
        let [status, ..] = self.wait_for_command(command, 0)?;
        if status & Status::ERROR.bits() != 0 {
            return Err(Error::Io);
        }
        // The card holds its lines down until it has the new voltage and a clock.
        self.delay_ms(1);
        if self.host.card_is_busy() == Some(false) {
            return Err(Error::Again);
        }
        let clock_hz = self.ios.clock_hz;
        self.set_clock(0);
        let switched = self.set_signal_voltage(SignalVoltage::V180);
        if switched.is_err() {
            return Err(Error::Again);
        }
        self.delay_ms(CLOCK_GATED_MS);
        self.set_clock(clock_hz);
        self.delay_ms(1);
        match self.host.card_is_busy() {
            Some(true) => Err(Error::Again),
            _ => Ok(()),
        }
    }

    /// Has the controller find the moment at which this card's data is right
    /// (`mmc_execute_tuning`).
    pub(super) fn execute_tuning(&mut self, kind: CardKind) -> Result<(), Error> {
        let opcode = match kind {
            CardKind::Mmc => opcode::SEND_TUNING_BLOCK_HS200,
            CardKind::Sd | CardKind::Sdio => opcode::SEND_TUNING_BLOCK,
        };
        let (done, took_ns) = self.host.execute_tuning(opcode);
        self.elapsed_ns = self.elapsed_ns.saturating_add(took_ns);
        done?;
        self.retune.need = false;
        self.retune.can = true;
        Ok(())
    }

    /// The bus begins anew, without tuning (`mmc_retune_disable`).
    pub(super) fn forget_tuning(&mut self) {
        let hold = self.retune.hold;
        self.retune = Retune {
            hold,
            ..Retune::default()
        };
    }

    /// A wrong checksum on a tuned bus asks for tuning before the next request
    /// (`mmc_request_done`).
    pub(super) fn look_for_checksums(&mut self, request: &Request) {
        let is_tuning = matches!(
            request.command.opcode,
            opcode::SEND_TUNING_BLOCK | opcode::SEND_TUNING_BLOCK_HS200
        );
        if self.retune.can && !is_tuning && request.has_checksum_error() {
            self.retune.need = true;
        }
    }

    /// Tunes again where that is asked for and nobody holds it back (`mmc_retune`).
    pub(super) fn tune_again_if_needed(&mut self) -> Result<(), Error> {
        let may = std::mem::take(&mut self.retune.now) && !self.retune.doing;
        let Some(kind) = self.card.as_ref().map(|card: &Card| card.kind) else {
            return Ok(());
        };
        if !may || !std::mem::take(&mut self.retune.need) {
            return Ok(());
        }
        self.retune.doing = true;
        let done = self.execute_tuning(kind);
        self.retune.doing = false;
        done
    }
}
