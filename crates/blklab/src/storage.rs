//! A simulated disk with data.

use alloc::vec::Vec;
use core::ops::Range;

use blklab_blk::{IoStatus, Nanos, Op};
use blklab_device::{DataFault, PowerCut, faulty_parts};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::SeedableRng;
use slab::Slab;

use crate::contents::{Contents, Payload, Position, SECTOR_BYTES};
use crate::disk::{Call, Done, Setup, SetupError, SimulatedDisk};

/// Identifies an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// Completion of an I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The I/O.
    pub id: IoId,
    /// Time of the completion.
    pub at: Nanos,
    /// Data of a read (empty for other operations), or the error.
    pub result: Result<Vec<u8>, IoStatus>,
}

/// A range that is not on the disk or not in whole blocks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{length} bytes at {offset}: right are whole blocks of {block_bytes} bytes, at least one, within {size_bytes} bytes"
)]
pub struct RangeError {
    offset: u64,
    length: u64,
    block_bytes: u64,
    size_bytes: u64,
}

/// An I/O in flight.
struct Io {
    id: IoId,
    call: Call,
    kind: IoKind,
}

enum IoKind {
    Read,
    Write { payload: Payload, is_durable: bool },
    Flush { to: Position },
}

/// A simulated disk with data: reads return what was written, as far as the drive's faults and
/// power cuts allow.
///
/// The caller passes the time, which must not decrease from one call to the next.
pub struct SimulatedStorage {
    disk: SimulatedDisk,
    contents: Contents,
    ios: Slab<Io>,
    begun: u64,
    now: Nanos,
    done: Vec<Done>,
    ended: Vec<Ended>,
    cut: PowerCut,
    chance: SplitMix64,
}

impl SimulatedStorage {
    /// Returns a disk full of zeroes; `seed` determines all random behaviour.
    ///
    /// # Errors
    /// If the queue refuses the scheduler's settings.
    pub fn new(setup: &Setup, seed: u64) -> Result<SimulatedStorage, SetupError> {
        Ok(SimulatedStorage {
            disk: SimulatedDisk::new(setup, seed)?,
            contents: Contents::new(&setup.drive.faults().unwrap_or_default()),
            ios: Slab::new(),
            begun: 0,
            now: Nanos::ZERO,
            done: Vec::new(),
            ended: Vec::new(),
            cut: PowerCut::default(),
            chance: SplitMix64::seed_from_u64(seed),
        })
    }

    /// Sets the fate of unflushed writes at a power cut.
    pub fn set_power_cut(&mut self, cut: PowerCut) {
        self.cut = cut;
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.disk.capacity_sectors() * SECTOR_BYTES as u64
    }

    /// Logical block size in bytes.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.disk.logical_block_sectors()) * SECTOR_BYTES as u64
    }

    /// Starts a read.
    ///
    /// # Errors
    /// If the range is not on the disk or not in whole blocks.
    pub fn read(&mut self, now: Nanos, offset: u64, length: u32) -> Result<IoId, RangeError> {
        let call = self.call(Op::Read, offset, u64::from(length))?;
        Ok(self.begin(now, call, IoKind::Read))
    }

    /// Starts a write; with `fua` it completes only when it is on stable storage.
    ///
    /// # Errors
    /// As [`SimulatedStorage::read`].
    pub fn write(
        &mut self,
        now: Nanos,
        offset: u64,
        data: &[u8],
        fua: bool,
    ) -> Result<IoId, RangeError> {
        let call = self.call(Op::Write, offset, data.len() as u64)?;
        let payload = Payload::Data(data.to_vec());
        Ok(self.begin_write(now, Call { fua, ..call }, payload))
    }

    /// Starts to make a range read as zeroes.
    ///
    /// # Errors
    /// As [`SimulatedStorage::read`].
    pub fn write_zeroes(
        &mut self,
        now: Nanos,
        offset: u64,
        length: u32,
    ) -> Result<IoId, RangeError> {
        // If the drive has no such command, zeroes are written (`blkdev_issue_zeroout`).
        let op = match self.disk.has_write_zeroes() {
            true => Op::WriteZeroes,
            false => Op::Write,
        };
        let call = self.call(op, offset, u64::from(length))?;
        let sectors = u64::from(call.sectors);
        Ok(self.begin_write(now, call, Payload::Zeroes { sectors }))
    }

    /// Starts a flush, which makes all writes completed before durable.
    pub fn flush(&mut self, now: Nanos) -> IoId {
        let to = self.contents.position();
        self.begin(now, Call::new(Op::Flush, 0, 0, 0), IoKind::Flush { to })
    }

    fn call(&self, op: Op, offset: u64, length: u64) -> Result<Call, RangeError> {
        let (block_bytes, size_bytes) = (self.block_bytes(), self.size_bytes());
        let is_whole = offset.is_multiple_of(block_bytes) && length.is_multiple_of(block_bytes);
        let is_inside = offset
            .checked_add(length)
            .is_some_and(|end| end <= size_bytes);
        let sectors = u32::try_from(length / SECTOR_BYTES as u64);
        match sectors {
            Ok(sectors) if sectors > 0 && is_whole && is_inside => {
                Ok(Call::new(op, offset / SECTOR_BYTES as u64, sectors, 0))
            }
            _ => Err(RangeError {
                offset,
                length,
                block_bytes,
                size_bytes,
            }),
        }
    }

    fn begin_write(&mut self, now: Nanos, call: Call, payload: Payload) -> IoId {
        let is_durable = call.fua || !self.disk.has_volatile_cache();
        self.begin(
            now,
            call,
            IoKind::Write {
                payload,
                is_durable,
            },
        )
    }

    fn begin(&mut self, now: Nanos, call: Call, kind: IoKind) -> IoId {
        self.now = self.now.max(now);
        let id = IoId(self.begun);
        self.begun += 1;
        let entry = self.ios.vacant_entry();
        let handle = entry.key() as u64;
        let call = Call { handle, ..call };
        entry.insert(Io { id, call, kind });
        self.disk.submit(self.now, call);
        id
    }

    /// The time at which [`SimulatedStorage::advance`] should be called next; [`Nanos::MAX`] while
    /// the disk is idle.
    pub fn next_event(&self) -> Nanos {
        self.disk.next_event()
    }

    /// Advances time to `now`; [`SimulatedStorage::take_ended`] returns the completed I/Os.
    pub fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        let mut done = core::mem::take(&mut self.done);
        self.disk.advance(self.now, &mut done);
        for Done { handle, at, status } in done.drain(..) {
            let io = self.ios.remove(handle as usize);
            let id = io.id;
            let result = match status {
                IoStatus::Ok => Ok(self.carry_out(io)),
                error => Err(error),
            };
            self.ended.push(Ended { id, at, result });
        }
        self.done = done;
    }

    /// Advances time until the disk is idle and returns the time reached.
    pub fn run_until_idle(&mut self) -> Nanos {
        while self.next_event() < Nanos::MAX {
            self.advance(self.next_event());
        }
        self.now
    }

    /// Appends the I/Os completed since the last call, in order.
    pub fn take_ended(&mut self, out: &mut Vec<Ended>) {
        out.append(&mut self.ended);
    }

    /// Applies a successful I/O to the data; returns the data of a read.
    fn carry_out(&mut self, io: Io) -> Vec<u8> {
        let mut data = Vec::new();
        match io.kind {
            IoKind::Read => {
                for (part, fault) in self.parts(&io.call) {
                    self.contents.read(part, fault, &mut data);
                }
            }
            IoKind::Write {
                payload,
                is_durable,
            } => {
                let start = io.call.sector.0;
                match self.parts(&io.call)[..] {
                    [(_, fault)] => (self.contents).acknowledge(start, payload, fault, is_durable),
                    ref parts => {
                        for (part, fault) in parts {
                            let payload = payload.part(part.start - start..part.end - start);
                            (self.contents).acknowledge(part.start, payload, *fault, is_durable);
                        }
                    }
                }
            }
            IoKind::Flush { to } => self.contents.flushed(to),
        }
        data
    }

    /// The parts of a call, in order, each with what is wrong with its data.
    fn parts(&self, call: &Call) -> Vec<(Range<u64>, Option<DataFault>)> {
        let range = call.sector.0..call.sector.0 + u64::from(call.sectors);
        faulty_parts(range, self.disk.data_faults(call.handle).cloned())
    }

    /// Cuts the machine's power at `now` and restores it: no I/O in flight completes. Data that was
    /// flushed, written with `fua`, or acknowledged by a drive without a volatile cache is kept;
    /// the seed decides about all other writes ([`PowerCut`]). Returns the time at which the drive
    /// accepts commands again.
    pub fn cut_power(&mut self, now: Nanos) -> Nanos {
        self.advance(now);
        let mut in_flight: Vec<Io> = core::mem::take(&mut self.ios)
            .into_iter()
            .map(|(_, io)| io)
            .collect();
        in_flight.sort_by_key(|io| io.id);
        let writes = in_flight.into_iter().filter_map(|io| match io.kind {
            IoKind::Write { payload, .. } => Some((io.call.sector.0, payload)),
            IoKind::Read | IoKind::Flush { .. } => None,
        });
        let block_sectors = u64::from(self.disk.logical_block_sectors());
        self.contents
            .cut_power(writes, block_sectors, self.cut, &mut self.chance);
        self.disk.cut_power(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_device::Faults;
    use proptest::prelude::*;

    const BLOCK: u64 = 4096;

    fn storage(drive: &str, seed: u64) -> SimulatedStorage {
        SimulatedStorage::new(&Setup::named(drive, "mq-deadline").unwrap(), seed).unwrap()
    }

    fn faulty(faults: &str) -> SimulatedStorage {
        let setup = Setup::named("nvme", "none").unwrap();
        let setup = setup.with_faults(Faults::parse(faults).unwrap());
        SimulatedStorage::new(&setup, 1).unwrap()
    }

    #[test]
    fn the_fate_of_unflushed_writes_is_the_caller_s_to_say() {
        for (cut, landed) in [
            (
                PowerCut {
                    lost: 1.0,
                    torn: 0.0,
                },
                [0, 0],
            ),
            (
                PowerCut {
                    lost: 0.0,
                    torn: 0.0,
                },
                [40, 40],
            ),
            (
                PowerCut {
                    lost: 0.0,
                    torn: 1.0,
                },
                [10, 30],
            ),
            (
                PowerCut {
                    lost: 0.5,
                    torn: 0.0,
                },
                [10, 30],
            ),
        ] {
            let mut disk = storage("nvme", 3);
            disk.set_power_cut(cut);
            // Flushed ones are kept whatever is said.
            write(&mut disk, 1 << 20, 9);
            let now = disk.run_until_idle();
            disk.flush(now);
            (0..40).for_each(|block| write(&mut disk, block * BLOCK, 1));
            let now = disk.run_until_idle();
            disk.cut_power(now);
            let wrote = |block| read(&mut disk, block * BLOCK).into_iter();
            let bytes: usize = (0..40)
                .map(wrote)
                .map(|data| data.filter(|b| *b == 1).count())
                .sum();
            let blocks = bytes / BLOCK as usize;
            assert!(
                (landed[0]..=landed[1]).contains(&blocks),
                "{cut:?}: {blocks}"
            );
            assert_eq!(read(&mut disk, 1 << 20), [9; BLOCK as usize]);
        }
    }

    /// Completes all I/Os in flight and returns their results.
    fn results(disk: &mut SimulatedStorage) -> Vec<Result<Vec<u8>, IoStatus>> {
        disk.run_until_idle();
        let mut ended = Vec::new();
        disk.take_ended(&mut ended);
        ended.into_iter().map(|end| end.result).collect()
    }

    fn write(disk: &mut SimulatedStorage, offset: u64, byte: u8) {
        let now = disk.run_until_idle();
        disk.write(now, offset, &[byte; BLOCK as usize], false)
            .unwrap();
        assert!(results(disk).iter().all(Result::is_ok));
    }

    fn read(disk: &mut SimulatedStorage, offset: u64) -> Vec<u8> {
        let now = disk.run_until_idle();
        disk.read(now, offset, BLOCK as u32).unwrap();
        results(disk).pop().unwrap().unwrap()
    }

    #[test]
    fn ranges_that_do_not_fit_are_refused() {
        let mut disk = storage("nvme", 1);
        let size = disk.size_bytes();
        for (offset, length) in [
            (1, 512),
            (0, 0),
            (0, 100),
            (size, 512),
            (u64::MAX - 511, 512),
        ] {
            let error = disk.read(Nanos(0), offset, length).unwrap_err().to_string();
            assert!(error.contains("whole blocks of"), "{error}");
        }
        assert_eq!(disk.next_event(), Nanos::MAX);
    }

    #[test]
    fn a_bit_that_turned_stays_so_until_the_sector_is_written() {
        let mut disk = faulty("bit_rot=1");
        write(&mut disk, 0, 0);
        let turned = |data: &[u8]| data.iter().map(|byte| byte.count_ones()).sum::<u32>();
        assert_eq!(turned(&read(&mut disk, 0)), 1);
        assert!((0..20).any(|_| turned(&read(&mut disk, 0)) > 2));
        write(&mut disk, 0, 0);
        assert_eq!(turned(&read(&mut disk, 0)), 1);
    }

    #[test]
    fn a_stale_read_has_the_data_before_the_last_write() {
        let mut disk = faulty("stale_read=1");
        write(&mut disk, 0, 1);
        assert_eq!(read(&mut disk, 0), [0; BLOCK as usize]);
        write(&mut disk, 0, 2);
        assert_eq!(read(&mut disk, 0), [1; BLOCK as usize]);
    }

    #[test]
    fn a_misdirected_read_has_another_places_data() {
        let mut disk = faulty("misdirected_read=0.5");
        write(&mut disk, 0, 1);
        let reads: Vec<u8> = (0..40).map(|_| read(&mut disk, 0)[0]).collect();
        assert!(reads.contains(&0) && reads.contains(&1), "{reads:?}");
    }

    #[test]
    fn a_lost_write_changes_nothing() {
        let mut disk = faulty("lost_write=1");
        write(&mut disk, 0, 1);
        assert_eq!(read(&mut disk, 0), [0; BLOCK as usize]);
    }

    #[test]
    fn the_beginning_of_a_torn_write_lands() {
        let mut disk = faulty("torn_write=1");
        write(&mut disk, 0, 1);
        let data = read(&mut disk, 0);
        let landed = data.iter().take_while(|byte| **byte == 1).count();
        assert!(landed.is_multiple_of(512) && landed < BLOCK as usize);
        assert!(data[landed..].iter().all(|byte| *byte == 0));
    }

    /// As a drive without its faults: what is flushed where a write landed outlives a power cut.
    #[test]
    fn a_misdirected_write_lands_elsewhere_and_stays_there() {
        let mut disk = faulty("misdirected_write=0.5");
        for block in 0..20 {
            write(&mut disk, block * BLOCK, 1);
        }
        let kept: Vec<u8> = (0..20).map(|i| read(&mut disk, i * BLOCK)[0]).collect();
        assert!(kept.contains(&0) && kept.contains(&1), "{kept:?}");
        let now = disk.run_until_idle();
        disk.flush(now);
        let now = disk.run_until_idle();
        disk.cut_power(now);
        results(&mut disk);
        let after: Vec<u8> = (0..20).map(|i| read(&mut disk, i * BLOCK)[0]).collect();
        assert_eq!(after, kept);
    }

    #[test]
    fn a_large_write_meets_faults_part_by_part() {
        let mut disk = faulty("lost_write=0.5");
        let length = 4 << 20;
        disk.write(Nanos(0), 0, &vec![1; length], false).unwrap();
        results(&mut disk);
        let now = disk.run_until_idle();
        disk.read(now, 0, length as u32).unwrap();
        let data = results(&mut disk).pop().unwrap().unwrap();
        let landed = data.iter().filter(|byte| **byte == 1).count();
        assert!(landed > 0 && landed < length, "{landed}");
        assert!(
            data.chunks(BLOCK as usize)
                .all(|block| block.iter().all(|byte| *byte == block[0]))
        );
    }

    #[test]
    fn merged_reads_each_get_their_own_data() {
        let mut disk = storage("nvme", 1);
        (0..8).for_each(|i| write(&mut disk, i * BLOCK, i as u8));
        let now = disk.run_until_idle();
        let ids: Vec<IoId> = (0..8)
            .map(|i| disk.read(now, i * BLOCK, 4096).unwrap())
            .collect();
        disk.run_until_idle();
        let mut ended = Vec::new();
        disk.take_ended(&mut ended);
        for end in ended {
            let place = ids.iter().position(|id| *id == end.id).unwrap();
            assert_eq!(end.result.unwrap(), [place as u8; BLOCK as usize]);
        }
    }

    /// A step of a random run over a few blocks.
    #[derive(Clone, Copy, Debug)]
    enum RandomCall {
        Write { block: u64, fua: bool },
        Zero { block: u64 },
        Read { block: u64 },
        Flush,
        Idle,
    }

    fn steps() -> impl Strategy<Value = Vec<RandomCall>> {
        let block = 0..12_u64;
        let step = prop_oneof![
            4 => (block.clone(), prop::bool::weighted(0.2))
                .prop_map(|(block, fua)| RandomCall::Write { block, fua }),
            1 => block.clone().prop_map(|block| RandomCall::Zero { block }),
            2 => block.prop_map(|block| RandomCall::Read { block }),
            1 => Just(RandomCall::Flush),
            2 => Just(RandomCall::Idle),
        ];
        prop::collection::vec(step, 1..60)
    }

    /// The versions that each block may contain, in increasing order; the first is the durable one.
    struct Model {
        latest: [u8; 12],
        ended: [u8; 12],
        durable: [u8; 12],
        /// Writes and flushes in flight, with their effects.
        under_way: Vec<(IoId, Under)>,
        keeps_all: bool,
    }

    enum Under {
        Write {
            block: usize,
            version: u8,
            fua: bool,
        },
        Read {
            block: usize,
            expected: u8,
        },
        Flush {
            ended: [u8; 12],
        },
    }

    impl Model {
        fn new(keeps_all: bool) -> Model {
            let (latest, ended, durable) = ([0; 12], [0; 12], [0; 12]);
            Model {
                latest,
                ended,
                durable,
                under_way: Vec::new(),
                keeps_all,
            }
        }

        fn is_busy(&self, of: u64) -> bool {
            self.under_way.iter().any(|(_, under)| match under {
                Under::Write { block, .. } | Under::Read { block, .. } => *block as u64 == of,
                Under::Flush { .. } => false,
            })
        }

        fn end(&mut self, end: Ended) {
            let place = self
                .under_way
                .iter()
                .position(|(id, _)| *id == end.id)
                .unwrap();
            let data = end.result.unwrap();
            match self.under_way.remove(place).1 {
                Under::Write {
                    block,
                    version,
                    fua,
                } => {
                    self.ended[block] = version;
                    if fua || self.keeps_all {
                        self.durable[block] = version;
                    }
                }
                Under::Read { block, expected } => {
                    assert_eq!(data, vec![expected; BLOCK as usize], "block {block}");
                }
                Under::Flush { ended } => {
                    for (durable, ended) in self.durable.iter_mut().zip(ended) {
                        *durable = (*durable).max(ended);
                    }
                }
            }
        }

        fn idle(&mut self, disk: &mut SimulatedStorage) -> Nanos {
            let now = disk.run_until_idle();
            let mut ended = Vec::new();
            disk.take_ended(&mut ended);
            ended.into_iter().for_each(|end| self.end(end));
            assert!(self.under_way.is_empty());
            now
        }

        fn step(&mut self, disk: &mut SimulatedStorage, now: &mut Nanos, step: RandomCall) {
            if let RandomCall::Write { block, .. }
            | RandomCall::Zero { block }
            | RandomCall::Read { block } = step
                && self.is_busy(block)
            {
                *now = self.idle(disk);
            }
            let under = match step {
                RandomCall::Write { block, fua } => {
                    let (block, offset) = (block as usize, block * BLOCK);
                    self.latest[block] += 1;
                    let version = self.latest[block];
                    let data = [version; BLOCK as usize];
                    let id = disk.write(*now, offset, &data, fua).unwrap();
                    (
                        id,
                        Under::Write {
                            block,
                            version,
                            fua,
                        },
                    )
                }
                RandomCall::Zero { block } if self.latest[block as usize] == 0 => {
                    let id = disk
                        .write_zeroes(*now, block * BLOCK, BLOCK as u32)
                        .unwrap();
                    let block = block as usize;
                    (
                        id,
                        Under::Write {
                            block,
                            version: 0,
                            fua: false,
                        },
                    )
                }
                RandomCall::Read { block } | RandomCall::Zero { block } => {
                    let id = disk.read(*now, block * BLOCK, BLOCK as u32).unwrap();
                    let block = block as usize;
                    (
                        id,
                        Under::Read {
                            block,
                            expected: self.ended[block],
                        },
                    )
                }
                RandomCall::Flush => (disk.flush(*now), Under::Flush { ended: self.ended }),
                RandomCall::Idle => {
                    *now = self.idle(disk);
                    return;
                }
            };
            self.under_way.push(under);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn data_is_read_as_it_was_written_and_what_was_flushed_outlives_power_cuts(
            runs in prop::collection::vec(steps(), 1..4), seed: u64, which in 0..3_usize,
        ) {
            let drive = ["nvme", "null", "hdd-7200"][which];
            let mut disk = storage(drive, seed);
            let mut model = Model::new(!disk.disk.has_volatile_cache());
            let mut now = Nanos(0);
            for run in runs {
                for step in run {
                    model.step(&mut disk, &mut now, step);
                }
                now = disk.cut_power(now);
                let mut ended = Vec::new();
                disk.take_ended(&mut ended);
                ended.into_iter().for_each(|end| model.end(end));
                model.under_way.clear();
                for block in 0..12 {
                    let id = disk.read(now, block as u64 * BLOCK, BLOCK as u32).unwrap();
                    now = disk.run_until_idle();
                    let mut ended = Vec::new();
                    disk.take_ended(&mut ended);
                    let data = ended.pop().filter(|end| end.id == id).unwrap().result.unwrap();
                    let right = model.durable[block]..=model.latest[block];
                    prop_assert!(data.iter().all(|byte| right.contains(byte)), "block {block}");
                    // Rewritten, so that it has only one version.
                    disk.write(now, block as u64 * BLOCK, &[model.latest[block]; 4096], true).unwrap();
                    now = disk.run_until_idle();
                    disk.take_ended(&mut Vec::new());
                    model.ended[block] = model.latest[block];
                    model.durable[block] = model.latest[block];
                }
            }
        }
    }
}
