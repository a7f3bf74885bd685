//! What is done about a transfer that went wrong (`mmc_blk_mq_rw_recovery`).

use blklab_blk::Op;

use super::{BlockRequest, Issued, Outcome, Queue};
use crate::command::{Command, CommandFlags, Error, Request, Status, opcode};
use crate::core::{CardKind, Core};

/// Tries of a request that transfers nothing.
const MAX_RETRIES: u32 = 5;
/// Of them, those after data went wrong.
const DATA_RETRIES: u32 = 2;
/// No more tries.
const NO_RETRIES: u32 = MAX_RETRIES + 1;
/// Tries of a single sector beside the first.
const SINGLE_RETRIES: u32 = 2;
/// Tries of the command that ends a transfer.
const STOP_RETRIES: u32 = 5;

/// Errors that the end of a transfer and the status tell: an open-ended one may run
/// into the card's end (`mmc_blk_stop_err_bits`).
pub(super) fn stop_errors(request: &Request) -> u32 {
    match request.set_block_count {
        Some(_) => Status::COMMAND_ERRORS | Status::OUT_OF_RANGE.bits(),
        None => Status::COMMAND_ERRORS,
    }
}

const COMMAND_ERRORS: u32 = Status::COMMAND_ERRORS | Status::OUT_OF_RANGE.bits();

/// Whether anything of the request went wrong (`mmc_blk_rq_error`).
pub(super) fn has_error(request: &mut Request) -> bool {
    let errors = stop_errors(request);
    if let Some(stop) = &mut request.stop
        && stop.error.is_none()
        && stop.response[0] & errors != 0
    {
        stop.error = Some(Error::Io);
    }
    request.error().is_some() || request.command.response[0] & COMMAND_ERRORS != 0
}

impl Issued {
    fn forget_data(&mut self) {
        if let Some(data) = &mut self.commands.data {
            data.transferred_bytes = 0;
        }
    }

    /// Progress is success; without any it is tried again, but not for ever
    /// (`mmc_blk_mq_complete_rq`).
    pub(super) fn outcome(&self, core: &Core) -> Outcome {
        let transferred = self
            .commands
            .data
            .as_ref()
            .map_or(0, |data| data.transferred_bytes);
        let sectors = (transferred >> 9).min(self.request.sectors);
        if sectors == self.request.sectors {
            return Outcome::Ended(Ok(()));
        }
        if sectors > 0 {
            return Outcome::Requeued(BlockRequest {
                sector: self.request.sector + u64::from(sectors),
                sectors: self.request.sectors - sectors,
                ..self.request
            });
        }
        if self.request.retries < MAX_RETRIES && !core.is_removed() {
            return Outcome::Requeued(BlockRequest {
                retries: self.request.retries + 1,
                ..self.request
            });
        }
        Outcome::Ended(Err(match core.is_removed() {
            true => Error::NoMedium,
            false => Error::Io,
        }))
    }
}

impl Queue {
    /// Decides how much of the request counts and how often it is tried again, resets
    /// the card, or reads sector by sector; the last one tells the outcome itself.
    pub(super) fn recover(&mut self, core: &mut Core, issued: &mut Issued) -> Option<Outcome> {
        let mut status = core.send_status(0);
        let wrong = match status {
            Ok(status) => self.status_is_wrong(issued, status),
            Err(_) => true,
        };
        if wrong {
            issued.forget_data();
        }
        core.release_retune();
        if status.is_err() {
            status = core.send_status(0);
        }
        if status.is_err() && core.detect_if_changed() {
            return None;
        }
        let mut failed = None;
        match status {
            Ok(status) if Status::is_ready_for_data(status) => {}
            _ => failed = self.stop_transfer(core, &issued.commands).err(),
        }
        self.count_written(core, issued, failed);
        let op = issued.request.op;
        if failed.is_some() && self.reset(core, op).is_err() {
            issued.request.retries = NO_RETRIES;
            return None;
        }
        let data = issued.commands.data.as_ref();
        if data.is_some_and(|data| data.transferred_bytes > 0) {
            return None;
        }
        if issued.request.retries + 1 == MAX_RETRIES && self.reset(core, op).is_err() {
            return None;
        }
        let count = issued.commands.set_block_count.as_ref();
        let of_command = issued.commands.command.error.is_some()
            || count.is_some_and(|count| count.error.is_some());
        if of_command {
            return None;
        }
        if issued.request.retries < MAX_RETRIES - DATA_RETRIES {
            issued.request.retries = MAX_RETRIES - DATA_RETRIES;
            return None;
        }
        let blocks = data.map_or(0, |data| data.blocks);
        if op == Op::Read && blocks > 1 {
            return self.read_sector_by_sector(core, issued);
        }
        None
    }

    /// Errors that the controller may not have seen (`mmc_blk_status_error`).
    fn status_is_wrong(&self, issued: &Issued, status: u32) -> bool {
        let errors = stop_errors(&issued.commands);
        let stop = issued.commands.stop.map_or(0, |stop| stop.response[0]);
        issued.commands.command.response[0] & COMMAND_ERRORS != 0
            || (stop | status) & errors != 0
            || (issued.request.op == Op::Write && !Status::is_ready_for_data(status))
    }

    /// An SD card may tell how much of a write it has (`mmc_sd_num_wr_blocks`).
    fn count_written(&self, core: &mut Core, issued: &mut Issued, failed: Option<Error>) {
        let commands = &issued.commands;
        let started = commands.command.error.is_none()
            && commands.command.response[0] & COMMAND_ERRORS == 0
            && { commands.set_block_count }.is_none_or(|count| count.error.is_none());
        let is_sd = core.card().is_some_and(|card| card.kind == CardKind::Sd);
        if failed.is_none() && started && is_sd && issued.request.op == Op::Write {
            let blocks = core.sd_written_blocks().unwrap_or(0);
            if let Some(data) = &mut issued.commands.data {
                data.transferred_bytes = blocks.min(data.blocks) * data.block_bytes;
            }
        }
    }

    /// Ends a transfer in which the card hangs, and waits until it is ready again
    /// (`mmc_blk_fix_state`).
    fn stop_transfer(&mut self, core: &mut Core, of: &Request) -> Result<(), Error> {
        let limit_ms = { of.data.as_ref() }.map_or(0, |data| core.data_timeout_ms(data));
        core.hold_retune_now();
        let flags = CommandFlags::SPI_S1 | CommandFlags::R1;
        let command = Command::new(opcode::STOP_TRANSMISSION, 0, flags);
        // A card that transfers nothing does not answer it.
        let _ = core.wait_for_command(command, STOP_RETRIES);
        let ended = core.poll_while(limit_ms, |core| {
            let status = core.send_status(0)?;
            Ok(!Status::is_ready_for_data(status))
        });
        core.release_retune();
        ended
    }

    /// Resets the card, once until something gets through (`mmc_blk_reset`).
    pub(super) fn reset(&mut self, core: &mut Core, op: Op) -> Result<(), Error> {
        let done = self.resets.of(op);
        if *done {
            return Err(Error::Io);
        }
        *done = true;
        core.reset_card()?;
        core.switch_partition(self.area.access)
    }

    /// Finds out which sectors can be read (`mmc_blk_read_single`).
    fn read_sector_by_sector(&mut self, core: &mut Core, issued: &mut Issued) -> Option<Outcome> {
        let mut all = Ok(());
        for n in 0..u64::from(issued.request.sectors) {
            let mut read = Err(Error::Io);
            for _ in 0..=SINGLE_RETRIES {
                let sector = issued.request.sector + n;
                let Some(mut one) = self.prepare(core, &issued.request, Some(sector)) else {
                    return Some(Outcome::Ended(Err(Error::NoMedium)));
                };
                core.wait_for_request(&mut one);
                let status = core.send_status(3).and_then(|status| {
                    let is_ready = Status::is_ready_for_data(status);
                    let ended = if is_ready {
                        Ok(())
                    } else {
                        self.stop_transfer(core, &one)
                    };
                    ended.map(|()| status)
                });
                let Ok(status) = status else {
                    // What is left of it is tried once more.
                    issued.forget_data();
                    issued.request.retries = issued.request.retries.min(MAX_RETRIES - 1);
                    return None;
                };
                if one.command.error.is_none() {
                    read = match has_error(&mut one) || status & COMMAND_ERRORS != 0 {
                        true => Err(Error::Io),
                        false => Ok(()),
                    };
                    break;
                }
            }
            all = all.and(read);
        }
        Some(Outcome::Ended(all))
    }
}
