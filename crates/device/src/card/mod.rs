//! Memory cards: SD and eMMC, whose firmware takes one command at a time and knows
//! little but allocation units.
//!
//! Few parameters describe one, each of which can be measured from outside: the size of
//! its units, how many of them it keeps open, how fast it reads and writes in order, and
//! what it does with small writes (Linaro's flashbench; the SD specification's speed and
//! application performance classes).

mod spec;
mod units;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use blklab_blk::{Nanos, Op};
use blklab_stats::DeviceStats;

use crate::spec::{Model, ModelType};
use crate::{Command, CommandStatus, Completion, Device, DriveState, Identity};
use spec::CardSpec;
use units::{Units, bytes_ns};

/// A memory card.
pub(crate) const MODEL: ModelType = ModelType {
    name: "card",
    about: "A memory card: allocation units, few of them open, and one command at a time.",
    read: |root, _| Ok(Arc::new(CardSpec::read(root)?)),
    complete: &[
        (
            "card-log",
            concat!(
                include_str!("../../complete/card.toml"),
                include_str!("../../complete/card-log.toml"),
                include_str!("../../complete/host.toml"),
                include_str!("../../complete/published.toml"),
            ),
        ),
        (
            "card-map",
            concat!(
                include_str!("../../complete/card.toml"),
                include_str!("../../complete/card-map.toml"),
                include_str!("../../complete/host.toml"),
            ),
        ),
    ],
};

impl Model for CardSpec {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn in_state(&self, state: DriveState) -> Option<Arc<dyn Model>> {
        Some(Arc::new(CardSpec {
            state,
            ..self.clone()
        }))
    }

    fn build(&self, _seed: u64) -> Box<dyn Device> {
        Box::new(Card::new(self.clone()))
    }
}

/// A memory card.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    spec: CardSpec,
    units: Units,
    waiting: VecDeque<Command>,
    /// The command that is carried out, and when it ends.
    running: Option<(u64, Completion)>,
    /// Where readers that it reads ahead of will go on; the last one's is last.
    readers: VecDeque<u64>,
    stats: DeviceStats,
}

impl Card {
    fn new(spec: CardSpec) -> Card {
        Card {
            units: Units::new(&spec),
            waiting: VecDeque::with_capacity(64),
            running: None,
            readers: VecDeque::with_capacity(spec.reads.streams + 1),
            stats: DeviceStats::default(),
            spec,
        }
    }

    fn begin(&mut self, now_ns: u64, command: Command) {
        let fits = command.fits(self.spec.identity.capacity_sectors);
        let (sector, sectors) = (command.sector.0, u64::from(command.sectors));
        let service_ns = match command.op {
            _ if !fits => 0,
            Op::Read => self.read_ns(sector, sectors),
            Op::Write | Op::WriteZeroes => self.write_ns(sector, sectors),
            Op::Discard => self.units.erase(&self.spec, sector, sectors),
            Op::Flush | Op::Zone(_) => 0,
        };
        let end_ns = now_ns.saturating_add(self.spec.bus.command_ns + service_ns);
        let end = Completion {
            tag: command.tag,
            at: Nanos(end_ns),
            status: match fits {
                true => CommandStatus::Ok,
                false => CommandStatus::IoError,
            },
        };
        self.stats.events += 1;
        self.running = Some((end_ns, end));
    }

    fn read_ns(&mut self, sector: u64, sectors: u64) -> u64 {
        let byte_ps = self.spec.bus.byte_ps.max(self.spec.reads.byte_ps);
        let followed = self.readers.iter().position(|&next| next == sector);
        let access_ns = match followed {
            Some(_) => 0,
            None => self.spec.reads.access_ns,
        };
        if let Some(at) = followed {
            self.readers.remove(at);
        }
        self.readers.push_back(sector + sectors);
        if self.readers.len() > self.spec.reads.streams {
            self.readers.pop_front();
        }
        access_ns + bytes_ns(sectors, byte_ps)
    }

    fn write_ns(&mut self, sector: u64, sectors: u64) -> u64 {
        self.stats.host_sectors_written += sectors;
        self.stats.host_sectors_programmed += sectors;
        let unit = self.spec.units.sectors;
        let (mut at, end) = (sector, sector + sectors);
        let mut write_ns = 0;
        while at < end {
            let part = (unit - at % unit).min(end - at);
            write_ns += self.units.write(&self.spec, at, part);
            at += part;
        }
        write_ns
    }
}

impl Device for Card {
    fn identify(&self) -> &Identity {
        &self.spec.identity
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        match self.running {
            None => self.begin(now.0, command),
            Some(_) => self.waiting.push_back(command),
        }
    }

    fn next_event(&self) -> Nanos {
        self.running.map_or(Nanos::MAX, |(at_ns, _)| Nanos(at_ns))
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some((at_ns, end)) = self.running
            && at_ns <= now.0
        {
            done.push(end);
            self.running = None;
            if let Some(next) = self.waiting.pop_front() {
                self.begin(at_ns, next);
            }
        }
    }

    fn power_loss(&mut self, now: Nanos) -> Nanos {
        self.stats.power_losses += 1;
        self.waiting.clear();
        self.running = None;
        self.readers.clear();
        now
    }

    fn stats(&self, _now: Nanos) -> DeviceStats {
        DeviceStats {
            merges: self.units.merges,
            flash_sectors_programmed: self.units.sectors_programmed,
            ..self.stats.clone()
        }
    }

    fn reset_stats(&mut self, _now: Nanos) {
        self.stats = DeviceStats::default();
        self.units.merges = Default::default();
        self.units.sectors_programmed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use blklab_blk::Sector;

    const KIB: u64 = 2;
    const MIB: u64 = 2048;

    /// A card with units of 4 MiB, one of them open, and logs of 64 KiB; round figures.
    fn card(values: &[(&str, &str)]) -> Box<dyn Device> {
        let round = [
            ("bus.bandwidth_mb_s", "100"),
            ("bus.command_us", "1"),
            ("reads.access_us", "300"),
            ("reads.bandwidth_mb_s", "40"),
            ("reads.streams", "1"),
            ("writes.random_us", "1000"),
            ("writes.bandwidth_mb_s", "10"),
            ("writes.page_kb", "16"),
            ("units.open", "1"),
            ("units.fat_kb", "1024"),
            ("log.kb", "64"),
            ("log.count", "4"),
        ];
        let all = round.iter().chain(values);
        let values: Vec<(String, String)> = all
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        let (spec, _) = registry::load_with("sd-card", &values).unwrap_or_else(|e| panic!("{e}"));
        spec.build(1)
    }

    /// How long commands take one after the other, in microseconds.
    fn took_us(card: &mut dyn Device, now: &mut Nanos, commands: &[(Op, u64, u64)]) -> Vec<u64> {
        let mut took = Vec::new();
        for &(op, sector, sectors) in commands {
            let command = Command {
                tag: 0,
                queue: 0,
                op,
                sector: Sector(sector),
                sectors: sectors as u32,
                fua: false,
            };
            card.submit(*now, command);
            let mut done = Vec::new();
            let end = card.advance_to_completion(Nanos::MAX, &mut done);
            assert_eq!(done[0].status, CommandStatus::Ok);
            took.push((end.0 - now.0) / 1000);
            *now = end;
        }
        took
    }

    #[test]
    fn a_reader_that_goes_on_does_not_wait_for_the_flash() {
        let (mut card, mut now) = (card(&[]), Nanos(0));
        let reads = [0, 128, 4 * MIB, 4 * MIB + 128, 256].map(|at| (Op::Read, at, 128));
        // 64 KiB at 40 MB/s take 1638 us.
        let took = took_us(card.as_mut(), &mut now, &reads);
        assert_eq!(took, [1939, 1639, 1939, 1639, 1939]);
    }

    /// The response to a command beyond the last block says OUT_OF_RANGE, and no data follow (SD
    /// Physical Layer Simplified Specification, 4.10.1).
    #[test]
    fn a_command_beyond_the_end_takes_the_time_of_a_command_alone() {
        for op in [Op::Read, Op::Write, Op::WriteZeroes, Op::Discard] {
            let mut card = card(&[]);
            let command = Command {
                tag: 3,
                queue: 0,
                op,
                sector: Sector(card.identify().capacity_sectors),
                sectors: 128,
                fua: false,
            };
            card.submit(Nanos(5_000), command);
            let mut done = Vec::new();
            card.advance(Nanos(1 << 40), &mut done);
            let refused = Completion {
                tag: 3,
                at: Nanos(6_000),
                status: CommandStatus::IoError,
            };
            assert_eq!(done, [refused], "{op:?}");
            let stats = card.stats(Nanos(1 << 40));
            let written = (stats.host_sectors_written, stats.flash_sectors_programmed);
            assert_eq!(written, (0, 0), "{op:?}");
        }
    }

    #[test]
    fn a_unit_written_from_end_to_end_copies_nothing() {
        let (mut card, mut now) = (card(&[]), Nanos(0));
        let writes: Vec<_> = (0..9)
            .map(|n| (Op::Write, 8 * MIB + n * MIB, MIB))
            .collect();
        let took = took_us(card.as_mut(), &mut now, &writes);
        // 1 MiB at 10 MB/s.
        assert!(took.iter().all(|us| us.abs_diff(104_858) <= 2), "{took:?}");
        let stats = card.stats(now);
        assert_eq!((stats.merges.switched, stats.merges.sectors_moved), (2, 0));
        assert_eq!(stats.write_amplification(), Some(1.0));
    }

    /// A page in one unit after the other has each of them copied but for the page.
    #[test]
    fn units_beyond_the_open_ones_are_closed_by_copying() {
        let place = |unit: u64| (Op::Write, unit * 4 * MIB + 2 * MIB, 16 * KIB);
        let apart = [place(2), place(3), place(4), place(5)];
        let (mut one, mut now) = (card(&[]), Nanos(0));
        let took = took_us(one.as_mut(), &mut now, &apart);
        // A unit at 40 MB/s read and 10 MB/s written: 524 ms.
        assert!(took[0] < 3000, "{took:?}");
        assert!(
            took[1..].iter().all(|us| (520_000..530_000).contains(us)),
            "{took:?}"
        );
        assert_eq!(one.stats(now).merges.partial, 3);
        let (mut four, mut now) = (card(&[("units.open", "4")]), Nanos(0));
        let took = took_us(four.as_mut(), &mut now, &apart);
        assert!(took.iter().all(|us| *us < 3000), "{took:?}");
    }

    /// Pages of an open unit may come in any order, but each once.
    #[test]
    fn an_open_unit_takes_its_pages_in_any_order() {
        let (mut card, mut now) = (card(&[]), Nanos(0));
        let quarter = |n: u64| (Op::Write, 8 * MIB + n * MIB, MIB);
        let took = took_us(card.as_mut(), &mut now, &[2, 0, 3, 1].map(quarter));
        assert!(took.iter().all(|us| *us < 107_000), "{took:?}");
        let merges = card.stats(now).merges;
        assert_eq!((merges.sectors_moved, merges.switched), (0, 1));
        let again = took_us(card.as_mut(), &mut now, &[0, 2, 0].map(quarter));
        // Half of the unit is copied before its first quarter is written once more.
        assert!(again[1] < 107_000 && again[2] > 350_000, "{again:?}");
    }

    #[test]
    fn small_writes_fill_a_log_and_then_the_unit_is_written_anew() {
        for (kib, writes) in [(4, 16), (1, 64)] {
            let (mut card, mut now) = (card(&[]), Nanos(0));
            let writes: Vec<_> = (0..2 * writes)
                .map(|n| (Op::Write, 8 * MIB + (n * 97 % 256 + 1) * 8, kib * KIB))
                .collect();
            let took = took_us(card.as_mut(), &mut now, &writes);
            let slow = took.iter().filter(|us| **us > 500_000).count();
            assert_eq!(slow, 2, "{kib} KiB: {took:?}");
            assert_eq!(card.stats(now).merges.full, 2);
        }
    }

    #[test]
    fn a_unit_beyond_the_logs_takes_the_oldest_log() {
        let (mut card, mut now) = (card(&[]), Nanos(0));
        let writes: Vec<_> = (2..8).map(|n| (Op::Write, n * 4 * MIB + 8, 8)).collect();
        let took = took_us(card.as_mut(), &mut now, &writes);
        assert!(took[..4].iter().all(|us| *us < 2700), "{took:?}");
        assert!(took[4..].iter().all(|us| *us > 500_000), "{took:?}");
    }

    #[test]
    fn small_writes_where_fat_has_its_tables_cost_no_copy() {
        let (mut card, mut now) = (card(&[]), Nanos(0));
        let writes: Vec<_> = (0..100).map(|n| (Op::Write, n * 37 % 250 * 8, 8)).collect();
        let took = took_us(card.as_mut(), &mut now, &writes);
        // A page of 16 KiB at 10 MB/s.
        assert!(took.iter().all(|us| *us < 2700), "{took:?}");
        assert_eq!(card.stats(now).merges.full, 0);
    }

    /// What was written to an erased unit is copied when it is written to again, and nothing else.
    #[test]
    fn of_a_unit_that_was_erased_only_what_was_written_since_is_copied() {
        let (mut card, mut now) = (card(&[]), Nanos(0));
        let part = |unit: u64, at: u64| (Op::Write, unit * 4 * MIB + at * MIB, MIB);
        let commands = [
            (Op::Discard, 0, 64 * MIB),
            part(2, 1),
            part(3, 1),
            part(2, 2),
            part(3, 2),
        ];
        let took = took_us(card.as_mut(), &mut now, &commands);
        // 1 MiB at 10 MB/s, and at last the first 1 MiB of unit 2 as well, read at 40 MB/s.
        assert!(took[1..4].iter().all(|us| *us < 107_000), "{took:?}");
        assert!((235_000..240_000).contains(&took[4]), "{took:?}");
        assert_eq!(card.stats(now).merges.sectors_moved, MIB);
    }

    #[test]
    fn erased_units_have_nothing_to_copy() {
        let (mut card, mut now) = (card(&[]), Nanos(0));
        let commands = [
            (Op::Discard, 0, 64 * MIB),
            (Op::Write, 10 * MIB, 16 * KIB),
            (Op::Write, 18 * MIB, 16 * KIB),
        ];
        let took = took_us(card.as_mut(), &mut now, &commands);
        assert!(took[1..].iter().all(|us| *us < 4000), "{took:?}");
    }

    #[test]
    fn a_map_takes_small_writes_anywhere_and_reads_what_they_cover_in_part() {
        let spec = registry::find("sd-card-a1")
            .expect("listed")
            .expect("valid");
        let (mut card, mut now) = (spec.build(1), Nanos(0));
        let at = |n: u64| 4 * MIB * (n + 2) + 64;
        let small = [
            (Op::Write, at(0), 8),
            (Op::Write, at(1), 2),
            (Op::Write, at(2), 32),
        ];
        let took = took_us(card.as_mut(), &mut now, &small);
        assert!(took[1] > took[0] + took[0] / 2, "{took:?}");
        assert!(took[2] < 3 * took[0] && took[2] > took[0], "{took:?}");
        assert_eq!(card.stats(now).merges.sectors_moved, 0);
    }

    /// Only writes of less than a page go through the map; larger ones open their unit.
    #[test]
    fn a_map_takes_no_large_writes() {
        let spec = registry::find("sd-card-a1")
            .expect("listed")
            .expect("valid");
        let (mut card, mut now) = (spec.build(1), Nanos(0));
        let apart: Vec<_> = (2..40)
            .map(|unit| (Op::Write, unit * 4 * MIB + 2 * MIB, MIB))
            .collect();
        took_us(card.as_mut(), &mut now, &apart);
        let merges = card.stats(now).merges;
        assert!(merges.partial > 0, "{merges:?}");
    }

    /// Pages of one unit against a set of those that are written: one that comes again closes
    /// the unit, which copies the others.
    #[test]
    fn an_open_unit_copies_the_pages_that_it_lacks() {
        const PAGE: u64 = 16 * KIB;
        const PAGES: u64 = 4 * MIB / PAGE;
        let (mut card, mut now) = (card(&[]), Nanos(0));
        let mut rng = crate::Rng::new(5);
        let mut lacks = [true; PAGES as usize];
        let (mut moved, mut partial, mut switched) = (0, 0, 0);
        for _ in 0..3000 {
            let first = rng.below(PAGES as u32) as usize;
            let end = (first + 1 + rng.below(40) as usize).min(PAGES as usize);
            if lacks[first..end].iter().any(|lacks| !lacks) {
                moved += lacks.iter().filter(|lacks| **lacks).count() as u64 * PAGE;
                partial += 1;
                lacks.fill(true);
            }
            lacks[first..end].fill(false);
            if !lacks.contains(&true) {
                switched += 1;
                lacks.fill(true);
            }
            let (at, sectors) = (first as u64 * PAGE, (end - first) as u64 * PAGE);
            took_us(
                card.as_mut(),
                &mut now,
                &[(Op::Write, 8 * MIB + at, sectors)],
            );
            let merges = card.stats(now).merges;
            let found = (merges.sectors_moved, merges.partial, merges.switched);
            assert_eq!(found, (moved, partial, switched));
        }
    }
}
