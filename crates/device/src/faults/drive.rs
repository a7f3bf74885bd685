//! A drive with faults: which command meets one.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use blklab_blk::{Nanos, Op, SECTOR_SIZE};
use blklab_stats::{DeviceStats, DriveTimeline, FaultStats};

use super::{DataFault, Faults};
use crate::pending::PendingCompletions;
use crate::{Command, CommandStatus, Completion, Device, Identity, Rng};

/// Bits of a sector.
const SECTOR_BITS: u64 = 512 * 8;

/// A drive with faults.
pub(crate) struct FaultyDevice {
    inner: Box<dyn Device>,
    faults: Faults,
    chance: Rng,
    /// The commands in the drive by their tags, and when they were submitted.
    commands: BTreeMap<u32, (Nanos, Command)>,
    /// What the drive below has completed and the host has yet to see.
    completed: PendingCompletions,
    /// Sectors that cannot be read.
    unreadable: BTreeSet<u64>,
    /// Faults in the data of completed commands, by their tags.
    data_faults: BTreeMap<u32, DataFault>,
    done: Vec<Completion>,
    stats: FaultStats,
}

impl FaultyDevice {
    pub(crate) fn new(inner: Box<dyn Device>, faults: Faults, seed: u64) -> FaultyDevice {
        FaultyDevice {
            inner,
            faults,
            // Another sequence than that of the drive below.
            chance: Rng::new(!seed),
            commands: BTreeMap::new(),
            completed: PendingCompletions::default(),
            unreadable: BTreeSet::new(),
            data_faults: BTreeMap::new(),
            done: Vec::new(),
            stats: FaultStats::default(),
        }
    }

    /// Decides when and how the host sees that a command has completed.
    fn take_completion(&mut self, mut completion: Completion) {
        if let Some((submitted, command)) = self.commands.remove(&completion.tag) {
            let took_ns = completion.at.saturating_sub(submitted).0;
            let mut delay_ns = (took_ns as f64 * (self.faults.slow - 1.0)) as u64;
            if self.chance.happens(self.faults.stall) {
                self.stats.stalls += 1;
                delay_ns = delay_ns.saturating_add(self.faults.stall_ns);
            }
            completion.at = Nanos(completion.at.0.saturating_add(delay_ns));
            if completion.status == CommandStatus::Ok {
                completion.status = self.medium_status(&command);
            }
        }
        self.completed.insert(completion);
    }

    /// The status of a command that the drive carried out, by the sectors that it
    /// touched: a read may find one unreadable, and a write makes it readable again.
    fn medium_status(&mut self, command: &Command) -> CommandStatus {
        let range = command.sector.0..command.sector.0 + u64::from(command.sectors);
        match command.op {
            Op::Read => self.read(command.tag, range),
            Op::Write => {
                let fault = self.write_fault_of(&range);
                if let Some(fault) = fault {
                    self.data_faults.insert(command.tag, fault);
                }
                self.remap(landing(fault, range));
                CommandStatus::Ok
            }
            Op::WriteZeroes | Op::Discard => {
                self.remap(range);
                CommandStatus::Ok
            }
            Op::Flush | Op::Zone(_) => CommandStatus::Ok,
        }
    }

    /// A drive remaps an unreadable sector when it is written.
    fn remap(&mut self, range: Range<u64>) {
        let remapped: Vec<u64> = self.unreadable.range(range).copied().collect();
        for sector in remapped {
            self.unreadable.remove(&sector);
        }
    }

    fn read(&mut self, tag: u32, range: Range<u64>) -> CommandStatus {
        let sectors = range.end - range.start;
        if self.chance.happens(self.faults.read_error) {
            let sector = range.start + self.chance.below_u64(sectors);
            self.stats.latent_errors += u64::from(self.unreadable.insert(sector));
        }
        if self.unreadable.range(range.clone()).next().is_some() {
            self.stats.reads_failed += 1;
            return CommandStatus::IoError;
        }
        if let Some(fault) = self.read_fault_of(&range) {
            self.data_faults.insert(tag, fault);
        }
        CommandStatus::Ok
    }

    fn read_fault_of(&mut self, range: &Range<u64>) -> Option<DataFault> {
        let sectors = range.end - range.start;
        if self.chance.happens(self.faults.bit_rot) {
            self.stats.bits_rotted += 1;
            let sector = range.start + self.chance.below_u64(sectors);
            let bit = self.chance.below_u64(SECTOR_BITS) as u16;
            return Some(DataFault::BitRot { sector, bit });
        }
        if self.chance.happens(self.faults.stale_read) {
            self.stats.stale_reads += 1;
            return Some(DataFault::Stale);
        }
        if self.chance.happens(self.faults.misdirected_read) {
            self.stats.misdirected_reads += 1;
            let sector = self.other_place(sectors);
            return Some(DataFault::Misdirected { sector });
        }
        None
    }

    fn write_fault_of(&mut self, range: &Range<u64>) -> Option<DataFault> {
        let sectors = range.end - range.start;
        if self.chance.happens(self.faults.lost_write) {
            self.stats.lost_writes += 1;
            return Some(DataFault::Lost);
        }
        if self.chance.happens(self.faults.torn_write) {
            self.stats.torn_writes += 1;
            let block = self.block_sectors();
            let sectors = self.chance.below_u64(sectors.div_ceil(block)) * block;
            return Some(DataFault::Torn { sectors });
        }
        if self.chance.happens(self.faults.misdirected_write) {
            self.stats.misdirected_writes += 1;
            let sector = self.other_place(sectors);
            return Some(DataFault::Misdirected { sector });
        }
        None
    }

    /// Where a range of this many sectors may start.
    fn other_place(&mut self, sectors: u64) -> u64 {
        let block = self.block_sectors();
        let places = (self.inner.identify().capacity_sectors - sectors) / block + 1;
        self.chance.below_u64(places) * block
    }

    fn block_sectors(&self) -> u64 {
        u64::from(self.inner.identify().logical_block_bytes) / SECTOR_SIZE
    }
}

/// The sectors that a write of a range reaches.
fn landing(fault: Option<DataFault>, range: Range<u64>) -> Range<u64> {
    match fault {
        Some(DataFault::Lost) => range.start..range.start,
        Some(DataFault::Torn { sectors }) => range.start..range.start + sectors,
        Some(DataFault::Misdirected { sector }) => sector..sector + (range.end - range.start),
        _ => range,
    }
}

impl Device for FaultyDevice {
    fn identify(&self) -> &Identity {
        self.inner.identify()
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        self.data_faults.remove(&command.tag);
        self.commands.insert(command.tag, (now, command));
        self.inner.submit(now, command);
    }

    fn next_event(&self) -> Nanos {
        self.completed.next_event().min(self.inner.next_event())
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        let mut ended = core::mem::take(&mut self.done);
        self.inner.advance(now, &mut ended);
        for completion in ended.drain(..) {
            self.take_completion(completion);
        }
        self.done = ended;
        self.completed.take_until(now, done);
    }

    fn power_loss(&mut self, now: Nanos) -> Nanos {
        self.commands.clear();
        self.completed.clear();
        self.data_faults.clear();
        self.inner.power_loss(now)
    }

    fn stats(&self, now: Nanos) -> DeviceStats {
        DeviceStats {
            faults: Some(self.stats),
            ..self.inner.stats(now)
        }
    }

    fn reset_stats(&mut self, now: Nanos) {
        self.stats = FaultStats::default();
        self.inner.reset_stats(now);
    }

    fn take_data_fault(&mut self, tag: u32) -> Option<DataFault> {
        self.data_faults.remove(&tag)
    }

    fn record(&mut self, on: bool) {
        self.inner.record(on);
    }

    fn take_record(&mut self, out: &mut DriveTimeline) {
        self.inner.take_record(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use blklab_blk::Sector;
    use proptest::prelude::*;

    const SEEDS: Range<u64> = 0..4;

    fn drive(faults: &str, seed: u64) -> Box<dyn Device> {
        let spec = registry::find("nvme").unwrap().unwrap();
        let faults = Faults::parse(faults).unwrap();
        spec.with_faults(faults).build(seed)
    }

    /// Carries out one command after the other; gives how each ended and how long it
    /// took.
    fn carry_out(drive: &mut dyn Device, commands: &[(Op, u64, u32)]) -> Vec<Completion> {
        let mut now = Nanos(0);
        let mut all = Vec::new();
        for (tag, &(op, sector, sectors)) in (0..).zip(commands) {
            let mut done = Vec::new();
            let command = Command {
                tag,
                queue: 0,
                op,
                sector: Sector(sector),
                sectors,
                fua: false,
            };
            let came = now;
            drive.submit(now, command);
            while done.is_empty() {
                now = drive.next_event();
                drive.advance(now, &mut done);
            }
            assert_eq!(done.len(), 1);
            assert!(done[0].at <= now && done[0].tag == tag);
            all.push(Completion {
                at: done[0].at.saturating_sub(came),
                ..done[0]
            });
        }
        all
    }

    fn reads(count: u64) -> Vec<(Op, u64, u32)> {
        (0..count).map(|i| (Op::Read, i * 8, 8)).collect()
    }

    #[test]
    fn an_unreadable_sector_is_readable_once_it_is_written() {
        for seed in SEEDS {
            let mut drive = drive("read_error=0.05", seed);
            let failed = |done: &Completion| done.status == CommandStatus::IoError;
            let first = carry_out(&mut *drive, &reads(400));
            let bad: Vec<u64> = (0..400).filter(|i| failed(&first[*i as usize])).collect();
            assert!((5..50).contains(&bad.len()), "{}", bad.len());
            let again: Vec<_> = bad.iter().map(|i| (Op::Read, i * 8, 8)).collect();
            assert!(carry_out(&mut *drive, &again).iter().all(failed));
            let written: Vec<_> = bad.iter().map(|i| (Op::Write, i * 8, 8)).collect();
            assert!(!carry_out(&mut *drive, &written).iter().any(failed));
            let readable = carry_out(&mut *drive, &again);
            assert!(readable.iter().filter(|done| failed(done)).count() < bad.len());
        }
    }

    #[test]
    fn stalls_and_slowness_take_time_and_nothing_else() {
        // Too far apart for the drive to read ahead.
        let apart: Vec<_> = (0..100).map(|i| (Op::Read, i * 80_000, 8)).collect();
        let healthy = carry_out(&mut *drive("slow=1", 1), &apart);
        let slow = carry_out(&mut *drive("slow=3", 1), &apart);
        let mean = |done: &[Completion]| done.iter().map(|done| done.at.0).sum::<u64>() / 100;
        let times = mean(&slow) as f64 / mean(&healthy) as f64;
        assert!((2.9..3.1).contains(&times), "{times}");
        let stalled = carry_out(&mut *drive("stall=0.1:30ms", 1), &reads(100));
        let stalls = stalled.iter().filter(|done| done.at.0 > 30_000_000).count();
        assert!((2..25).contains(&stalls), "{stalls}");
        assert!(stalled.iter().all(|done| done.status == CommandStatus::Ok));
    }

    #[test]
    fn faults_in_data_are_told_once_and_counted() {
        let mut drive = drive("bit_rot=0.2,stale_read=0.2,misdirected_read=0.2", 1);
        carry_out(&mut *drive, &reads(200));
        let found: Vec<DataFault> = (0..200)
            .filter_map(|tag| drive.take_data_fault(tag))
            .collect();
        let rotted = |fault: &&DataFault| matches!(fault, DataFault::BitRot { .. });
        let stats = drive.stats(Nanos(0)).faults.unwrap();
        assert_eq!(
            stats.bits_rotted,
            found.iter().filter(rotted).count() as u64
        );
        let all = stats.bits_rotted + stats.stale_reads + stats.misdirected_reads;
        assert_eq!(all, found.len() as u64);
        assert!(stats.bits_rotted > 10 && stats.stale_reads > 10 && stats.misdirected_reads > 10);
        assert!((0..200).all(|tag| drive.take_data_fault(tag).is_none()));
    }

    proptest! {
        #[test]
        fn every_command_completes_once(
            seed: u64, slow in 1.0..100.0, stall in 0.0..=1.0, error in 0.0..=1.0,
            depth in 1..64_u32,
        ) {
            let text = format!("slow={slow},stall={stall}:1ms,read_error={error}");
            let mut drive = drive(&text, seed);
            for tag in 0..depth {
                let op = if tag % 3 == 0 { Op::Write } else { Op::Read };
                let sector = Sector(u64::from(tag % 7) * 8);
                drive.submit(Nanos(0), Command { tag, queue: 0, op, sector, sectors: 8, fua: false });
            }
            let mut done = Vec::new();
            while drive.next_event() < Nanos::MAX {
                let before = done.len();
                let now = drive.next_event();
                drive.advance(now, &mut done);
                prop_assert!(done[before..].iter().all(|end| end.at <= now));
            }
            let mut tags: Vec<u32> = done.iter().map(|end| end.tag).collect();
            tags.sort();
            prop_assert_eq!(tags, (0..depth).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_a_fault_does_is_in_range_and_counted() {
        let mut unreadable = drive("read_error=0.1", 1);
        let ends = carry_out(&mut *unreadable, &reads(300));
        let failed = ends.iter().filter(|end| end.status != CommandStatus::Ok);
        let failed = failed.count() as u64;
        let stats = unreadable.stats(Nanos(0)).faults.unwrap();
        assert!(failed > 10);
        assert_eq!((stats.latent_errors, stats.reads_failed), (failed, failed));
        let mut stalling = drive("stall=0.1:30ms", 1);
        let ends = carry_out(&mut *stalling, &reads(300));
        let stalled = ends.iter().filter(|end| end.at.0 > 30_000_000).count();
        let stats = stalling.stats(Nanos(0)).faults.unwrap();
        assert_eq!(stats.stalls, stalled as u64);
        let mut wrong = drive("bit_rot=0.5,misdirected_read=1", 1);
        let capacity = wrong.identify().capacity_sectors;
        carry_out(&mut *wrong, &reads(300));
        for tag in 0..300 {
            let range = u64::from(tag) * 8..u64::from(tag) * 8 + 8;
            match wrong.take_data_fault(tag).expect("every read has one") {
                DataFault::BitRot { sector, bit } => {
                    assert!(range.contains(&sector) && u64::from(bit) < SECTOR_BITS);
                }
                DataFault::Misdirected { sector } => assert!(sector + 8 <= capacity),
                other => panic!("{other:?} was not asked for"),
            }
        }
    }

    #[test]
    fn faults_of_writes_are_in_range_counted_and_of_writes_alone() {
        let mut drive = drive("lost_write=0.2,torn_write=0.3,misdirected_write=0.4", 1);
        let capacity = drive.identify().capacity_sectors;
        let commands: Vec<_> = (0..600)
            .map(|i| (if i % 2 == 0 { Op::Write } else { Op::Read }, i * 8, 8))
            .collect();
        carry_out(&mut *drive, &commands);
        let (mut lost, mut torn, mut misdirected) = (0, 0, 0);
        for tag in 0..600 {
            let Some(fault) = drive.take_data_fault(tag) else {
                continue;
            };
            assert!(tag.is_multiple_of(2), "a read has none");
            match fault {
                DataFault::Lost => lost += 1,
                DataFault::Torn { sectors } => {
                    assert!(sectors < 8);
                    torn += 1;
                }
                DataFault::Misdirected { sector } => {
                    assert!(sector + 8 <= capacity);
                    misdirected += 1;
                }
                other => panic!("{other:?} was not asked for"),
            }
        }
        let stats = drive.stats(Nanos(0)).faults.unwrap();
        assert_eq!(stats.lost_writes, lost);
        assert_eq!(stats.torn_writes, torn);
        assert_eq!(stats.misdirected_writes, misdirected);
        assert!(lost > 30 && torn > 30 && misdirected > 30);
    }

    /// A drive writes whole logical blocks: what lands of a torn write, and where a misdirected one
    /// lands, is at the borders of blocks.
    #[test]
    fn faults_of_writes_keep_to_logical_blocks() {
        let (from, to) = ("logical_block_bytes = 512", "logical_block_bytes = 4096");
        let text = registry::text("nvme").expect("listed").replace(from, to);
        let spec = crate::DriveSpec::parse("nvme", &text).unwrap_or_else(|e| panic!("{e}"));
        let faults = Faults::parse("torn_write=0.5,misdirected_write=1").unwrap();
        let mut drive = spec.with_faults(faults).build(1);
        let commands: Vec<_> = (0..400).map(|i| (Op::Write, i * 32, 32)).collect();
        carry_out(&mut *drive, &commands);
        let mut lengths = [0; 4];
        for tag in 0..400 {
            match drive.take_data_fault(tag).expect("every write has one") {
                DataFault::Torn { sectors } => {
                    assert!(sectors.is_multiple_of(8) && sectors < 32, "{sectors}");
                    lengths[sectors as usize / 8] += 1;
                }
                DataFault::Misdirected { sector } => assert!(sector.is_multiple_of(8)),
                other => panic!("{other:?} was not asked for"),
            }
        }
        // Each of four lengths is as likely.
        assert!(
            lengths.iter().all(|count| (25..75).contains(count)),
            "{lengths:?}"
        );
    }

    /// The sectors that become readable again are those that the write reached.
    #[test]
    fn a_write_reaches_what_its_fault_leaves() {
        for (fault, expected) in [
            (None, 100..116),
            (Some(DataFault::Stale), 100..116),
            (Some(DataFault::Lost), 100..100),
            (Some(DataFault::Torn { sectors: 0 }), 100..100),
            (Some(DataFault::Torn { sectors: 8 }), 100..108),
            (Some(DataFault::Misdirected { sector: 500 }), 500..516),
        ] {
            assert_eq!(landing(fault, 100..116), expected, "{fault:?}");
        }
    }

    #[test]
    fn a_write_that_does_not_land_leaves_a_sector_unreadable() {
        let sectors_found_unreadable = |faults: &str| {
            let mut drive = drive(faults, 1);
            let commands = [(Op::Read, 0, 1), (Op::Write, 0, 1), (Op::Read, 0, 1)];
            carry_out(&mut *drive, &commands);
            drive.stats(Nanos(0)).faults.unwrap().latent_errors
        };
        assert_eq!(sectors_found_unreadable("read_error=1"), 2);
        assert_eq!(sectors_found_unreadable("read_error=1,lost_write=1"), 1);
        assert_eq!(sectors_found_unreadable("read_error=1,torn_write=1"), 1);
    }
}
