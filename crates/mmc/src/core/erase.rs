//! Erase and discard (`mmc_erase` and its like in `drivers/mmc/core/core.c`).

use super::mmc::BusyWith;
use super::{Card, CardKind, Core};
use crate::command::{Command, CommandFlags, Error, opcode};
use crate::event::Event;
use crate::host::HostSpec;
use crate::registers::class;

/// What an erase may take where the host has no limit (`MMC_ERASE_TIMEOUT_MS`).
const ERASE_LIMIT_MS: u32 = 60_000;
/// Arguments of an MMC's erase that work on sectors: trim and discard.
const TRIM_OR_DISCARD: u32 = 0x8003;
/// The one of trim, which an MMC's sectors read as erased after (`MMC_TRIM_ARG`).
pub(crate) const TRIM: u32 = 1;
/// The one of discard.
const DISCARD: u32 = 3;
/// Arguments of an MMC's secure erase.
const SECURE: u32 = 0x8000_0000;

impl Card {
    /// Which sectors are best erased together: allocation units, else by the card's
    /// size (`mmc_init_erase`).
    pub(super) fn set_erase_size(&mut self) {
        let size = self.erase_sectors;
        self.erase_shift = match size.is_power_of_two() {
            true => size.trailing_zeros(),
            false => 0,
        };
        if self.kind == CardKind::Sd && self.ssr.au_sectors != 0 {
            self.preferred_erase_sectors = self.ssr.au_sectors;
            self.erase_shift = self.ssr.au_sectors.trailing_zeros();
        } else if size != 0 {
            let preferred: u32 = match self.csd.sectors() >> 11 {
                ..128 => 1024,
                128..512 => 2048,
                512..1024 => 4096,
                _ => 8192,
            };
            self.preferred_erase_sectors = preferred.max(size).next_multiple_of(size);
        } else {
            self.preferred_erase_sectors = 0;
        }
    }

    /// The erase groups in use (`mmc_set_erase_size`).
    pub(super) fn set_mmc_erase_sectors(&mut self) {
        self.erase_sectors = match self.ext_csd.erase_group_def {
            true => self.ext_csd.hc_erase_sectors,
            false => self.csd.erase_sectors,
        };
        self.set_erase_size();
    }

    /// Sectors that are write protected together (`mmc_set_wp_grp_size`).
    pub(super) fn protect_sectors(&self) -> u32 {
        match self.ext_csd.erase_group_def {
            true => self.ext_csd.hc_erase_sectors * self.ext_csd.hc_protect_groups,
            false => self
                .csd
                .erase_sectors
                .saturating_mul(self.csd.protect_groups),
        }
    }

    /// Whether it can erase (`mmc_can_erase`).
    pub fn can_erase(&self) -> bool {
        self.csd.classes & class::ERASE != 0 && self.erase_sectors != 0
    }

    /// Whether it knows this kind of erase.
    fn knows_erase(&self, arg: u32) -> bool {
        let is_trim = arg & TRIM_OR_DISCARD != 0 && arg != DISCARD;
        match self.kind {
            CardKind::Mmc => {
                (arg & SECURE == 0 || self.ext_csd.can_secure_erase())
                    && (!is_trim || self.ext_csd.can_trim())
            }
            CardKind::Sd | CardKind::Sdio => arg <= 1,
        }
    }

    /// Groups that sectors `from` to `to` lie in, the last one too.
    fn erase_groups(&self, from: u32, to: u32) -> u32 {
        let group = |sector: u32| match (self.erase_shift, self.kind) {
            (0, CardKind::Sd) => sector,
            (0, _) => sector / self.erase_sectors,
            (shift, _) => sector >> shift,
        };
        (group(to) - group(from)).saturating_add(1)
    }

    /// For how long an erase of so many groups may take (`mmc_erase_timeout`).
    fn erase_timeout_ms(&self, arg: u32, groups: u32, clock_hz: u32) -> u32 {
        if self.kind == CardKind::Sd {
            let time_ms = match self.ssr.erase_timeout_ms {
                // 250 ms a block where the card does not tell.
                0 => 250_u32.wrapping_mul(groups),
                each => (each.wrapping_mul(groups)).wrapping_add(self.ssr.erase_offset_ms),
            };
            return time_ms.max(1000);
        }
        let is_trim = arg & TRIM_OR_DISCARD != 0;
        let each_ms = match (self.ext_csd.erase_group_def, is_trim) {
            (_, true) if arg == DISCARD || self.ext_csd.can_discard() => self.ext_csd.trim_ms,
            (true, true) => self.ext_csd.trim_ms,
            (true, false) => self.ext_csd.hc_erase_ms,
            // A write of a block is at most ten times its read, and a group takes as
            // long as a block does.
            (false, _) => self.write_ms(clock_hz),
        };
        each_ms.wrapping_mul(groups)
    }

    /// For how long a write may take by the CSD. The clock may be half of what was asked
    /// for.
    fn write_ms(&self, clock_hz: u32) -> u32 {
        let times = 10 << self.csd.r2w_factor;
        let clocks = u64::from(self.csd.taac_clocks) * times * 2;
        let us = u64::from(self.csd.taac_ns) * times / 1000
            + (clocks * 1000)
                .checked_div(u64::from(clock_hz / 1000))
                .unwrap_or(0);
        u32::try_from(us / 1000).unwrap_or(u32::MAX).max(1)
    }

    /// The most sectors of one discard: what the host can wait for, but no less than
    /// what is best erased together (`mmc_calc_max_discard`).
    pub(crate) fn max_discard_sectors(&mut self, host: &HostSpec) -> u32 {
        if self.kind == CardKind::Mmc && !self.ext_csd.erase_group_def {
            return self.preferred_erase_sectors;
        }
        let erase = self.max_discard_of(host, 0);
        if self.kind == CardKind::Mmc && self.ext_csd.can_trim() {
            let trim = self.max_discard_of(host, TRIM);
            return if trim < erase || erase == 0 {
                trim
            } else {
                erase
            };
        }
        match erase < self.erase_sectors {
            true => 0,
            false => erase,
        }
    }

    fn max_discard_of(&mut self, host: &HostSpec, arg: u32) -> u32 {
        let limit_ms = match host.max_busy_timeout_ms {
            0 => ERASE_LIMIT_MS,
            limit => limit,
        };
        let is_sd = self.kind == CardKind::Sd;
        let (most, least) = match (self.erase_shift, is_sd) {
            (0, true) => (u32::MAX, self.preferred_erase_sectors),
            (0, false) => {
                let size = self.erase_sectors.max(1);
                (u32::MAX / size, self.preferred_erase_sectors / size)
            }
            (shift, _) => (u32::MAX >> shift, self.preferred_erase_sectors >> shift),
        };
        let mut groups: u32 = 0;
        let mut last_ms = 0;
        // Steps are doubled until one is too long, and then begun anew from there.
        loop {
            let mut taken = 0;
            let mut step: u32 = 1;
            while step != 0 && step <= most && most - step >= groups {
                // The clock counts for groups that are not asked about here.
                let time_ms = self.erase_timeout_ms(arg, groups + step, 0);
                // A sum that went round is too long too.
                if (groups + step > least && time_ms > limit_ms) || time_ms < last_ms {
                    break;
                }
                last_ms = time_ms;
                taken = step;
                step <<= 1;
            }
            groups += taken;
            if taken == 0 {
                break;
            }
        }
        if groups == 0 {
            return 0;
        }
        // A range that is no whole group touches one more.
        self.one_erase_group = groups == 1;
        if groups > 1 {
            groups -= 1;
        }
        match (self.erase_shift, is_sd) {
            (0, true) => groups.saturating_add(1),
            (0, false) => groups.saturating_mul(self.erase_sectors),
            (shift, _) => groups << shift,
        }
    }
}

impl Core {
    /// How many sectors of the card one discard may have, 0 if it cannot.
    pub(crate) fn max_discard_sectors(&mut self) -> u32 {
        let spec = *self.host.spec();
        { self.card.as_mut() }
            .filter(|card| card.can_erase())
            .map_or(0, |card| card.max_discard_sectors(&spec))
    }

    /// Erases sectors (`mmc_erase`).
    ///
    /// # Errors
    /// Where the card cannot, or something went wrong.
    pub(crate) fn erase(&mut self, from: u32, sectors: u32, arg: u32) -> Result<(), Error> {
        self.tell(|| Event::Erase { from, sectors, arg });
        let Some(card) = self.card.clone() else {
            return Err(Error::NoMedium);
        };
        if !card.can_erase() || !card.knows_erase(arg) {
            return Err(Error::NotSupported);
        }
        let size = card.erase_sectors;
        if arg == SECURE && !(from.is_multiple_of(size) && sectors.is_multiple_of(size)) {
            return Err(Error::Invalid);
        }
        let Some(end) = from.checked_add(sectors) else {
            return Err(Error::Invalid);
        };
        // A plain erase takes whole groups only.
        let (from, end) = match arg {
            0 => (from.checked_next_multiple_of(size), end - end % size),
            _ => (Some(from), end),
        };
        let from = from.ok_or(Error::Invalid)?;
        if end <= from {
            return Ok(());
        }
        let in_group = size - from % size;
        if arg & TRIM_OR_DISCARD != 0 && card.one_erase_group && end - from > in_group {
            self.erase_range(&card, from, from + in_group - 1, arg)?;
            return self.erase_range(&card, from + in_group, end - 1, arg);
        }
        self.erase_range(&card, from, end - 1, arg)
    }

    /// First sector, last sector, go (`mmc_do_erase`).
    fn erase_range(&mut self, card: &Card, from: u32, to: u32, arg: u32) -> Result<(), Error> {
        self.hold_retune();
        let done = self.erase_commands(card, from, to, arg);
        self.release_retune();
        done
    }

    fn erase_commands(&mut self, card: &Card, from: u32, to: u32, arg: u32) -> Result<(), Error> {
        let (start, end) = match card.kind {
            CardKind::Sd => (opcode::SD_ERASE_WR_BLK_START, opcode::SD_ERASE_WR_BLK_END),
            _ => (opcode::ERASE_GROUP_START, opcode::ERASE_GROUP_END),
        };
        let address = |sector: u32| match card.is_block_addressed {
            true => sector,
            false => sector << 9,
        };
        let flags = CommandFlags::SPI_S1 | CommandFlags::R1;
        for (opcode, sector) in [(start, from), (end, to)] {
            let command = Command::new(opcode, address(sector), flags);
            self.wait_for_command(command, 0).map_err(|_| Error::Io)?;
        }
        let time_ms = {
            let groups = card.erase_groups(from, to);
            card.erase_timeout_ms(arg, groups, self.ios.clock_hz)
        };
        let (command, watched) = self.busy_command(opcode::ERASE, arg, time_ms);
        self.wait_for_command(command, 0).map_err(|_| Error::Io)?;
        self.wait_while_busy(BusyWith::Erase, card.rca, watched, time_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::Csd;

    fn spec(max_busy_timeout_ms: u32) -> HostSpec {
        HostSpec {
            max_busy_timeout_ms,
            ..crate::sdhci::spec_of_qemu()
        }
    }

    /// `discard_max_bytes` of the SD cards in `tests/data/mmc-traces`.
    #[test]
    fn a_card_that_tells_no_times_discards_what_is_best_erased_together() {
        for (capacity_sectors, expected) in [(262_144_u64, 2048), (8_388_608, 8192)] {
            let mut card = Card {
                erase_sectors: 1,
                csd: Csd {
                    capacity: capacity_sectors,
                    read_blkbits: 9,
                    ..Csd::default()
                },
                ..Card::default()
            };
            card.set_erase_size();
            assert_eq!(card.preferred_erase_sectors, expected);
            assert_eq!(card.max_discard_sectors(&spec(2581)), expected);
        }
    }

    #[test]
    fn a_card_with_allocation_units_discards_what_the_host_can_wait_for() {
        let mut card = Card {
            erase_sectors: 1,
            ..Card::default()
        };
        card.ssr.au_sectors = 8192;
        card.ssr.erase_timeout_ms = 10;
        card.set_erase_size();
        // 258 units of 10 ms fit into 2581 ms; one of them may be touched in part.
        assert_eq!(card.max_discard_sectors(&spec(2581)), 257 * 8192);
    }
}
