//! Commands carried out on a medium in memory: what they answer, and what they leave there.

use blklab_scsi::{
    DataOut, Disk, Fault, LogicalUnit, MediumRequest, Operation, Sense, Source, Started,
};
use proptest::prelude::*;

const BLOCK: usize = 512;
const BLOCKS: u64 = 64;
/// Longer tasks go in several steps.
const MAX_TRANSFER_BYTES: u32 = 8 * BLOCK as u32;

struct Bench {
    unit: LogicalUnit,
    medium: Vec<u8>,
    flushes: u32,
    durable_writes: u32,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Disk)) -> Bench {
        let mut disk = Disk {
            blocks: BLOCKS,
            block_bytes: BLOCK as u32,
            physical_block_bytes: 4096,
            max_transfer_bytes: MAX_TRANSFER_BYTES,
            read_only: false,
            rotational: false,
            unmaps: true,
            name: "bench".to_string(),
        };
        change(&mut disk);
        Bench {
            unit: LogicalUnit::new(disk),
            medium: (0..BLOCKS as usize * BLOCK).map(pattern).collect(),
            flushes: 0,
            durable_writes: 0,
        }
    }

    /// Carries a command out, and returns what the initiator gets.
    fn run(&mut self, cdb: &[u8], data: &[u8]) -> Result<Vec<u8>, Sense> {
        let mut task = match self.unit.start(cdb, data)? {
            Started::Answered(answer) => return Ok(answer),
            Started::Task(task) => task,
        };
        let mut read = Vec::new();
        while let Some(step) = task.next_request() {
            let done = self.carry_out(&step, data, &mut read);
            done.map_err(|fault| task.sense(&step, fault))?;
        }
        Ok(read)
    }

    fn carry_out(
        &mut self,
        step: &MediumRequest,
        data: &[u8],
        read: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let range = step.offset as usize..step.offset as usize + step.length as usize;
        let part = &mut self.medium[range];
        self.durable_writes += u32::from(step.is_durable);
        match step.operation {
            Operation::Read => {
                assert_eq!(step.data_at, read.len() as u64);
                read.extend_from_slice(part);
            }
            Operation::Check => {}
            Operation::Compare(_) => {
                for (index, piece) in part.chunks(700).enumerate() {
                    step.compare(data, index as u32 * 700, piece)?;
                }
            }
            Operation::Write(_) => {
                assert!(step.length <= MAX_TRANSFER_BYTES);
                // In uneven pieces, as a back end's buffers may be.
                let mut at = 0;
                for piece in part.chunks_mut(700) {
                    assert!(step.fill(data, at, piece));
                    at += piece.len() as u32;
                }
            }
            Operation::Flush => self.flushes += 1,
            Operation::Unmap | Operation::WriteZeroes { .. } => part.fill(0),
        }
        Ok(())
    }

    fn blocks(&self, first: usize, count: usize) -> &[u8] {
        &self.medium[first * BLOCK..(first + count) * BLOCK]
    }
}

fn pattern(at: usize) -> u8 {
    (at / BLOCK * 7 + at) as u8
}

/// Key, additional sense code and qualifier.
fn code(sense: Sense) -> [u8; 3] {
    let bytes = sense.fixed();
    [bytes[2], bytes[12], bytes[13]]
}

const OUT_OF_RANGE: [u8; 3] = [5, 0x21, 0];
const INVALID_FIELD: [u8; 3] = [5, 0x24, 0];
const TOO_LITTLE_DATA: [u8; 3] = [5, 0x0e, 3];
const WRITE_PROTECTED: [u8; 3] = [7, 0x27, 0];

fn cdb_10(opcode: u8, flags: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    (cdb[0], cdb[1]) = (opcode, flags);
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn cdb_12(opcode: u8, flags: u8, lba: u32, blocks: u32) -> [u8; 12] {
    let mut cdb = [0; 12];
    (cdb[0], cdb[1]) = (opcode, flags);
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[6..10].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn cdb_16(opcode: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (opcode, flags);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn fill(blocks: usize, byte: u8) -> Vec<u8> {
    vec![byte; blocks * BLOCK]
}

#[test]
fn reads_of_all_lengths_read_the_same() {
    let mut bench = Bench::new();
    let wanted = bench.blocks(3, 5).to_vec();
    let reads = [
        [8, 0, 0, 3, 5, 0].to_vec(),
        cdb_10(0x28, 0x08, 3, 5).to_vec(),
        cdb_12(0xa8, 0x10, 3, 5).to_vec(),
        cdb_16(0x88, 0, 3, 5).to_vec(),
    ];
    for cdb in reads {
        assert_eq!(bench.run(&cdb, &[]).as_ref(), Ok(&wanted), "{cdb:x?}");
    }
    assert_eq!(bench.run(&cdb_10(0x28, 0, 3, 0), &[]), Ok(Vec::new()));
}

#[test]
fn writes_of_all_lengths_write_the_same() {
    let mut bench = Bench::new();
    let writes = [
        [0x0a, 0, 0, 3, 2, 0].to_vec(),
        cdb_10(0x2a, 0, 3, 2).to_vec(),
        cdb_12(0xaa, 0, 3, 2).to_vec(),
        cdb_16(0x8a, 0, 3, 2).to_vec(),
    ];
    for (index, cdb) in writes.iter().enumerate() {
        let data = fill(2, index as u8);
        let before = bench.blocks(5, 1).to_vec();
        assert_eq!(bench.run(cdb, &data), Ok(Vec::new()));
        assert_eq!(bench.blocks(3, 2), data);
        assert_eq!(bench.blocks(5, 1), before);
    }
    assert_eq!(bench.durable_writes, 0);
    bench
        .run(&cdb_16(0x8a, 0x08, 3, 2), &fill(2, 9))
        .expect("FUA");
    assert_eq!(bench.durable_writes, 1);
}

#[test]
fn what_is_not_on_the_disk_is_refused() {
    let mut bench = Bench::new();
    let end = BLOCKS as u32;
    let data = fill(9, 0);
    let past = [
        cdb_10(0x28, 0, end, 0),
        cdb_10(0x28, 0, end - 1, 2),
        cdb_10(0x2a, 0, end - 1, 2),
        cdb_10(0x2f, 0, end - 1, 2),
        cdb_10(0x35, 0, end - 1, 2),
        cdb_10(0x41, 0, end - 1, 2),
    ];
    for cdb in past {
        assert_eq!(bench.run(&cdb, &data).map_err(code), Err(OUT_OF_RANGE));
    }
    let far = cdb_16(0x88, 0, u64::MAX, 1);
    assert_eq!(bench.run(&far, &[]).map_err(code), Err(OUT_OF_RANGE));
    let mut compare = cdb_16(0x89, 0, BLOCKS - 1, 0);
    compare[13] = 2;
    assert_eq!(bench.run(&compare, &data).map_err(code), Err(OUT_OF_RANGE));
    // Longer than the longest transfer.
    let long = cdb_10(0x2a, 0, 0, 9);
    assert_eq!(bench.run(&long, &data).map_err(code), Err(INVALID_FIELD));
    let short = bench.run(&cdb_10(0x2a, 0, 0, 8), &data[1 + BLOCK..]);
    assert_eq!(short.map_err(code), Err(TOO_LITTLE_DATA));
    assert_eq!(bench.medium, Bench::new().medium);
}

#[test]
fn flushes_flush_once() {
    let mut bench = Bench::new();
    bench.run(&cdb_10(0x35, 0x02, 0, 0), &[]).expect("10");
    bench.run(&cdb_16(0x91, 0, 1, 2), &[]).expect("16");
    assert_eq!(bench.flushes, 2);
}

#[test]
fn verify_compares_as_much_as_it_is_told() {
    let mut bench = Bench::new();
    let right = bench.blocks(2, 3).to_vec();
    let mut wrong = right.clone();
    wrong[BLOCK + 5] ^= 1;
    let verify = |flags| cdb_10(0x2f, flags, 2, 3);
    assert_eq!(bench.run(&verify(0), &[]), Ok(Vec::new()));
    assert_eq!(bench.run(&verify(2), &right), Ok(Vec::new()));
    let failed = bench.run(&verify(2), &wrong).expect_err("it differs");
    assert_eq!(code(failed), [0xe, 0x1d, 0]);
    // The information says where.
    assert_eq!(failed.fixed()[..7], [0xf0, 0, 0xe, 0, 0, 2, 5]);
    assert_eq!(
        bench.run(&verify(4), &right).map_err(code),
        Err(INVALID_FIELD)
    );
    bench.medium[..20 * BLOCK].fill(6);
    let one_block = cdb_16(0x8f, 6, 0, 20);
    assert_eq!(bench.run(&one_block, &fill(1, 6)), Ok(Vec::new()));
    bench.medium[17 * BLOCK] = 7;
    let failed = bench.run(&one_block, &fill(1, 6)).expect_err("it differs");
    assert_eq!(code(failed), [0xe, 0x1d, 0]);
}

#[test]
fn write_same_repeats_a_block() {
    let mut bench = Bench::new();
    let block: Vec<u8> = (0..BLOCK).map(|at| at as u8).collect();
    bench.run(&cdb_10(0x41, 0, 4, 20), &block).expect("10");
    assert!(
        bench
            .blocks(4, 20)
            .chunks(BLOCK)
            .all(|found| found == block)
    );
    assert_eq!(bench.blocks(24, 1), Bench::new().blocks(24, 1));
    // Zeroes are no data, whether they may be unmapped or not.
    let step = |cdb: &[u8], data: &[u8]| match Bench::new().unit.start(cdb, data) {
        Ok(Started::Task(mut task)) => task.next_request().map(|step| step.operation),
        other => panic!("{other:?}"),
    };
    let zeroes = |may_unmap| Some(Operation::WriteZeroes { may_unmap });
    assert_eq!(step(&cdb_16(0x93, 0, 4, 20), &fill(1, 0)), zeroes(false));
    assert_eq!(step(&cdb_16(0x93, 8, 4, 20), &fill(1, 0)), zeroes(true));
    assert_eq!(step(&cdb_16(0x93, 9, 4, 20), &[]), zeroes(true));
    let data = Some(Operation::Write(Source::OneBlock));
    assert_eq!(step(&cdb_16(0x93, 8, 4, 20), &fill(1, 1)), data);
    // No length, which is up to the end elsewhere; ANCHOR.
    for cdb in [cdb_16(0x93, 0, 4, 0), cdb_16(0x93, 0x10, 4, 1)] {
        assert_eq!(bench.run(&cdb, &block).map_err(code), Err(INVALID_FIELD));
    }
    assert_eq!(
        bench.run(&cdb_10(0x41, 0, 4, 1), &[]).map_err(code),
        Err(TOO_LITTLE_DATA)
    );
}

#[test]
fn compare_and_write_writes_only_where_all_is_equal() {
    let mut bench = Bench::new();
    let old = bench.blocks(6, 2).to_vec();
    let mut cdb = cdb_16(0x89, 0x08, 6, 0);
    cdb[13] = 2;
    let mut data = [old.clone(), fill(2, 0xee)].concat();
    data[BLOCK] ^= 1;
    let failed = bench.run(&cdb, &data).expect_err("it differs");
    assert_eq!(failed.fixed()[..7], [0xf0, 0, 0xe, 0, 0, 2, 0]);
    assert_eq!(bench.blocks(6, 2), old);
    data[BLOCK] ^= 1;
    assert_eq!(bench.run(&cdb, &data), Ok(Vec::new()));
    assert_eq!(bench.blocks(6, 2), fill(2, 0xee));
    assert_eq!(bench.durable_writes, 1);
    let short = bench.run(&cdb, &data[1..]);
    assert_eq!(short.map_err(code), Err(TOO_LITTLE_DATA));
    cdb[13] = 0;
    assert_eq!(bench.run(&cdb, &[]), Ok(Vec::new()));
    cdb[13] = 9;
    let long = bench.run(&cdb, &fill(18, 0));
    assert_eq!(long.map_err(code), Err(INVALID_FIELD));
}

fn unmap(ranges: &[(u64, u32)]) -> ([u8; 10], Vec<u8>) {
    let bytes = ranges.len() as u16 * 16;
    let mut list = Vec::from((bytes + 6).to_be_bytes());
    list.extend(bytes.to_be_bytes());
    list.extend([0; 4]);
    for (lba, blocks) in ranges {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    (cdb_10(0x42, 0, 0, list.len() as u16), list)
}

#[test]
fn unmap_gives_up_its_ranges() {
    let mut bench = Bench::new();
    let (cdb, list) = unmap(&[(1, 2), (10, 0), (20, 30)]);
    assert_eq!(bench.run(&cdb, &list), Ok(Vec::new()));
    assert_eq!(bench.blocks(1, 2), fill(2, 0));
    assert_eq!(bench.blocks(20, 30), fill(30, 0));
    let kept = Bench::new();
    for (first, count) in [(0, 1), (3, 17), (50, 14)] {
        assert_eq!(bench.blocks(first, count), kept.blocks(first, count));
    }
    let (cdb, list) = unmap(&[(0, 1), (63, 2)]);
    assert_eq!(bench.run(&cdb, &list).map_err(code), Err(OUT_OF_RANGE));
    assert_eq!(bench.blocks(0, 1), kept.blocks(0, 1));
    let many = unmap(&[(0, 1); 257]);
    assert_eq!(bench.run(&many.0, &many.1).map_err(code), Err([5, 0x26, 0]));
    let short = bench.run(&cdb_10(0x42, 0, 0, 7), &list);
    assert_eq!(short.map_err(code), Err([5, 0x1a, 0]));
    assert_eq!(bench.run(&cdb_10(0x42, 0, 0, 0), &[]), Ok(Vec::new()));
    let mut fixed = Bench::with(|disk| disk.unmaps = false);
    assert_eq!(fixed.run(&cdb, &list).map_err(code), Err([5, 0x20, 0]));
}

#[test]
fn a_read_only_disk_keeps_what_it_has() {
    let mut bench = Bench::with(|disk| disk.read_only = true);
    let data = fill(4, 0);
    let mut compare = cdb_16(0x89, 0, 0, 0);
    compare[13] = 1;
    let (unmap, list) = unmap(&[(0, 1)]);
    for (cdb, data) in [
        (&cdb_10(0x2a, 0, 0, 1)[..], &data),
        (&cdb_10(0x41, 0, 0, 1), &data),
        (&compare, &data),
        (&unmap, &list),
    ] {
        assert_eq!(bench.run(cdb, data).map_err(code), Err(WRITE_PROTECTED));
    }
    bench.run(&cdb_10(0x28, 0, 0, 1), &[]).expect("a read");
}

#[test]
fn a_stopped_disk_only_talks() {
    let mut bench = Bench::new();
    bench.run(&[0x1b, 0, 0, 0, 0, 0], &[]).expect("stopped");
    assert_eq!(bench.flushes, 1);
    let stopped = Err([2, 4, 2]);
    assert_eq!(bench.run(&[0; 6], &[]).map_err(code), stopped);
    assert_eq!(bench.run(&[8, 0, 0, 0, 1, 0], &[]).map_err(code), stopped);
    let sense = bench.run(&[3, 0, 0, 0, 18, 0], &[]).expect("sense data");
    assert_eq!((sense[2], sense[12], sense[13]), (2, 4, 2));
    bench.run(&[0x12, 0, 0, 0, 36, 0], &[]).expect("INQUIRY");
    bench.run(&[0x1b, 0, 0, 0, 1, 0], &[]).expect("started");
    bench.run(&[0; 6], &[]).expect("ready");
    let sense = bench.run(&[3, 1, 0, 0, 252, 0], &[]);
    assert_eq!(sense, Ok(vec![0x72, 0, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn without_a_write_cache_each_write_is_durable() {
    let mut bench = Bench::new();
    let mut list = [0; 24];
    list[4..6].copy_from_slice(&[0x08, 0x12]);
    bench.run(&[0x15, 0x10, 0, 0, 24, 0], &list).expect("off");
    assert_eq!(bench.flushes, 1);
    bench
        .run(&cdb_10(0x2a, 0, 0, 1), &fill(1, 1))
        .expect("a write");
    bench
        .run(&cdb_10(0x41, 0, 0, 1), &fill(1, 0))
        .expect("zeroes");
    assert_eq!(bench.durable_writes, 2);
    let mode = bench.run(&[0x1a, 8, 8, 0, 255, 0], &[]).expect("a page");
    assert_eq!(mode[6], 0);
    // Pages cannot be saved.
    let saved = bench.run(&[0x15, 0x11, 0, 0, 24, 0], &list);
    assert_eq!(saved.map_err(code), Err(INVALID_FIELD));
    let mut long = cdb_10(0x55, 0x10, 0, 0);
    long[8] = 28;
    let list = [&[0; 8][..], &[8, 0x12, 4], &[0; 17]].concat();
    bench.run(&long, &list).expect("on");
    bench
        .run(&cdb_10(0x2a, 0, 0, 1), &fill(1, 1))
        .expect("a write");
    assert_eq!(bench.durable_writes, 2);
}

#[test]
fn answers_are_no_longer_than_their_allocation() {
    let mut bench = Bench::new();
    for (cdb, bytes) in [
        (&[0x12, 0, 0, 0, 5, 0][..], 5),
        (&[0x12, 0, 0, 1, 0, 0], 96),
        (&[0x1a, 0, 0x3f, 0, 4, 0], 4),
        (&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8),
        (&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], 16),
        (&[3, 0, 0, 0, 0, 0], 0),
        (&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0], 12),
        (&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 99, 0, 0], 24),
        (&[0xa3, 0x0c, 1, 0x28, 0, 0, 0, 0, 0, 6, 0, 0], 6),
    ] {
        let answer = bench.run(cdb, &[]).expect("an answer");
        assert_eq!(answer.len(), bytes, "{cdb:x?}");
    }
}

#[test]
fn failures_of_the_medium_are_told_with_their_place() {
    let mut bench = Bench::new();
    let mut failed = |cdb: &[u8], fault| match bench.unit.start(cdb, &fill(1, 0)[..]) {
        Ok(Started::Task(mut task)) => {
            let step = task.next_request().expect("a step");
            task.sense(&step, fault).fixed()
        }
        other => panic!("{other:?}"),
    };
    let read = failed(&cdb_10(0x28, 0, 5, 1), Fault::Medium);
    assert_eq!(read[..7], [0xf0, 0, 3, 0, 0, 0, 5]);
    assert_eq!(read[12..14], [0x11, 0]);
    let write = failed(&cdb_10(0x2a, 0, 5, 1), Fault::Medium);
    assert_eq!((write[2], write[12], write[13]), (3, 0x0c, 0));
    let full = failed(&cdb_10(0x2a, 0, 5, 1), Fault::NoSpace);
    assert_eq!((full[2], full[12], full[13]), (7, 0x27, 7));
}

/// Data that changes each time it is read, as a hostile initiator's may.
struct Changing(std::cell::Cell<u8>);

impl DataOut for Changing {
    fn length_bytes(&self) -> u64 {
        1 << 40
    }

    fn read(&self, _at: u64, into: &mut [u8]) -> bool {
        self.0.set(self.0.get().wrapping_mul(5).wrapping_add(1));
        into.fill(self.0.get());
        true
    }
}

proptest! {
    #[test]
    fn no_command_reaches_beyond_the_disk(
        opcode in prop_oneof![
            any::<u8>(),
            proptest::sample::select(vec![
                0x08, 0x0a, 0x28, 0x2a, 0x2f, 0x41, 0x42, 0x88, 0x89, 0x8a, 0x8f, 0x91, 0x93,
                0x9e, 0x15, 0x55, 0x5a, 0x1a,
            ]),
        ],
        mut cdb in any::<[u8; 16]>(),
        small in any::<bool>(),
        data in proptest::collection::vec(any::<u8>(), 0..700),
        seed in any::<u8>(),
    ) {
        cdb[0] = opcode;
        if small {
            // Addresses and lengths that are often on the disk.
            cdb[2..9].iter_mut().for_each(|byte| *byte = 0);
            (cdb[10], cdb[11], cdb[12]) = (0, 0, 0);
            (cdb[14], cdb[15]) = (0, 0);
        }
        let mut unit = Bench::new().unit;
        let changing = Changing(std::cell::Cell::new(seed));
        for started in [unit.start(&cdb, &data[..]), unit.start(&cdb, &changing)] {
            let Ok(Started::Task(mut task)) = started else {
                continue;
            };
            let mut steps = 0;
            while let Some(step) = task.next_request() {
                prop_assert!(step.offset + u64::from(step.length) <= BLOCKS * BLOCK as u64);
                steps += 1;
                prop_assert!(steps <= 1000);
            }
        }
    }
}
