//! Tests the I/Os of a process over a whole run.

use std::collections::{BTreeMap, BTreeSet};

use blklab_workload::fio::{Direction, JobSpec};
use blklab_workload::generate::{Io, Layout, LayoutError, OffsetGenerator, Seeds};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// Parses a job with these options, and with a size of 1 MiB if they set none.
fn job(options: &str) -> JobSpec {
    super::job(&format!("size=1m\n{options}"))
}

fn generator(spec: &JobSpec, file_bytes: &[u64], run_seed: u64) -> OffsetGenerator {
    let seeds = Seeds::new(spec, 1, run_seed);
    let layout = Layout::new(spec, 0, &seeds, file_bytes).unwrap();
    OffsetGenerator::new(spec, &layout, &seeds).unwrap()
}

/// Returns all passes of a job, up to `limit` I/Os.
fn passes(options: &str, file_bytes: &[u64], limit: usize) -> Vec<Vec<Io>> {
    let spec = job(options);
    let mut generator = generator(&spec, file_bytes, 0);
    let mut passes = Vec::new();
    let mut count = 0;
    while count < limit && generator.start_pass() {
        let left = limit - count;
        let pass: Vec<Io> = std::iter::from_fn(|| generator.next()).take(left).collect();
        count += pass.len();
        passes.push(pass);
    }
    passes
}

fn run(options: &str) -> Vec<Io> {
    passes(options, &[MIB], 100_000).concat()
}

fn offsets(ios: &[Io]) -> Vec<u64> {
    ios.iter().map(|io| io.offset_bytes).collect()
}

#[test]
fn sequential_is_in_order() {
    let ios = run("rw=read");
    assert!(offsets(&ios).into_iter().eq((0..MIB).step_by(4096)));
    let ios = run("rw=write\noffset=512k\nsize=64k\nbs=16k");
    assert_eq!(offsets(&ios), [524_288, 540_672, 557_056, 573_440]);
}

#[test]
fn random_blocks_of_one_size_are_known_beforehand() {
    for options in [
        "rw=randread",
        "rw=randrw\nnorandommap\noffset=64k\nsize=512k",
    ] {
        let mut generator = generator(&job(options), &[MIB], 0);
        assert!(generator.start_pass());
        let mut known = 0;
        while generator.next().is_some() {
            let next = generator.peek();
            if let Some(io) = generator.next() {
                assert_eq!(Some(io.offset_bytes), next, "{options}");
                known += 1;
            }
        }
        assert!(known > 50, "{options}");
    }
    let mut generator = generator(&job("rw=read"), &[MIB], 0);
    assert!(generator.start_pass() && generator.next().is_some());
    assert_eq!(generator.peek(), None);
}

#[test]
fn holes_and_backwards() {
    assert_eq!(
        offsets(&run("rw=read:4k\nsize=32k"))[..4],
        [0, 8192, 16384, 24576]
    );
    let backwards = offsets(&run("rw=read:-8k\nsize=32k"));
    assert_eq!(backwards[..4], [0, 24576, 20480, 16384]);
}

#[test]
fn reads_and_writes_of_a_mix_go_their_own_way() {
    let ios = run("rw=rw\nrwmixread=70");
    for direction in [Direction::Read, Direction::Write] {
        let own: Vec<u64> = ios
            .iter()
            .filter(|io| io.direction == direction)
            .map(|io| io.offset_bytes)
            .collect();
        assert!(own.iter().copied().eq((0..).step_by(4096).take(own.len())));
    }
    assert_eq!(ios.len(), 256);
}

#[test]
fn skips_follow_a_random_offset() {
    let ios = run("rw=randread:4\nnumber_ios=64\nnorandommap");
    let ios = offsets(&ios);
    let follows = ios.windows(2).filter(|o| o[1] == o[0] + 4096).count();
    assert!((44..=52).contains(&follows), "{follows}");
    let ios = offsets(&run("rw=randread:4\nrw_sequencer=identical\nnumber_ios=64"));
    assert!(ios.chunks(4).all(|four| four.iter().all(|o| *o == four[0])));
}

#[test]
fn a_share_is_random() {
    let ios = offsets(&run(
        "rw=randread\npercentage_random=30\nnorandommap\nrandrepeat=0\nio_size=40m",
    ));
    let follows = ios.windows(2).filter(|o| o[1] == o[0] + 4096).count();
    let share = follows as f64 / ios.len() as f64;
    assert!((share - 0.7).abs() < 0.02, "{share}");
}

#[test]
fn limits() {
    assert_eq!(run("rw=randread").len(), 256);
    assert_eq!(run("rw=randread\nio_size=64k").len(), 16);
    assert_eq!(run("rw=read\nio_size=3m").len(), 3 * 256);
    assert_eq!(run("rw=randread\nio_size=3m").len(), 3 * 256);
    assert_eq!(run("rw=randwrite\nnorandommap\nio_size=3m").len(), 3 * 256);
    assert_eq!(run("rw=read\nnumber_ios=10").len(), 10);
    assert_eq!(run("rw=randread\nloops=3").len(), 3 * 256);
    assert_eq!(run("rw=read\nloops=2\nnumber_ios=10").len(), 20);
    assert_eq!(run("rw=randtrimwrite\nsize=64k").len(), 32);
    assert_eq!(run("rw=trimwrite\nsize=64k").len(), 32);
    assert_eq!(run("rw=read\ntime_based\nruntime=1").len(), 100_000);
    assert_eq!(run("rw=randwrite\ntime_based\nruntime=1").len(), 100_000);
}

#[test]
fn passes_repeat_as_the_job_says() {
    let same = passes("rw=randread\nloops=2", &[MIB], 1000);
    assert!(same[0] == same[1]);
    let other = passes("rw=randread\nloops=2\nrandrepeat=0", &[MIB], 1000);
    assert!(other[0] != other[1]);
    assert_eq!(other[1].len(), 256);
    let options = "rw=randrw\nbsrange=4k-64k\nnrfiles=3\nfile_service_type=random\nloops=2";
    let same = passes(options, &[MIB; 3], 10_000);
    assert!(same[0] == same[1]);
}

#[test]
fn what_is_trimmed_is_written_next() {
    for pattern in ["trimwrite", "randtrimwrite"] {
        let ios = run(&format!("rw={pattern}\nsize=256k"));
        for pair in ios.chunks(2) {
            assert_eq!(pair[0].direction, Direction::Trim);
            assert_eq!(pair[1].direction, Direction::Write);
            assert_eq!(pair[0].offset_bytes, pair[1].offset_bytes);
        }
        let distinct: BTreeSet<u64> = offsets(&ios).into_iter().collect();
        assert_eq!(distinct.len(), 64, "{pattern}");
    }
}

#[test]
fn several_files() {
    let files = |options: &str| -> Vec<u32> {
        let options = format!("rw=read\nsize=64k\nnrfiles=4\n{options}");
        passes(&options, &[MIB; 4], 1000)
            .concat()
            .iter()
            .map(|io| io.file)
            .collect()
    };
    assert_eq!(files("")[..6], [0, 1, 2, 3, 0, 1]);
    assert_eq!(
        files("file_service_type=roundrobin:2")[..6],
        [0, 0, 1, 1, 2, 2]
    );
    assert_eq!(
        files("file_service_type=sequential")[..6],
        [0, 0, 0, 0, 1, 1]
    );
    let random = files("file_service_type=random");
    assert_eq!(random.len(), 16);
    assert_ne!(random, files(""));
    let zipf = files("file_service_type=zipf:1.2");
    assert_eq!(zipf.len(), 16);
}

#[test]
fn time_based_visits_all_before_it_visits_again() {
    let ios = &passes("rw=randread\ntime_based\nruntime=1", &[MIB], 1024)[0];
    for round in ios.chunks(256) {
        let distinct: BTreeSet<u64> = offsets(round).into_iter().collect();
        assert_eq!(distinct.len(), 256);
    }
    assert!(ios[..256] != ios[256..512]);
}

#[test]
fn zones_get_their_shares() {
    let options =
        "rw=randread\nrandom_distribution=zoned:60/10:30/20:8/30:2/40\nrandrepeat=0\nio_size=80m";
    let ios = run(options);
    let mut counts = [0; 4];
    for offset in offsets(&ios) {
        let percent = offset * 100 / MIB;
        counts[[10, 30, 60].iter().filter(|end| percent >= **end).count()] += 1;
    }
    let total = ios.len() as f64;
    for (count, share) in counts.into_iter().zip([0.60, 0.30, 0.08, 0.02]) {
        assert!(
            (f64::from(count) / total - share).abs() < 0.015,
            "{counts:?}"
        );
    }
}

#[test]
fn zipf_repeats_its_favourites() {
    let ios = run("rw=randread\nrandom_distribution=zipf:1.2\nio_size=80m");
    let mut counts = BTreeMap::new();
    for offset in offsets(&ios) {
        *counts.entry(offset).or_insert(0u32) += 1;
    }
    let mut counts: Vec<u32> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    // 1 / zeta(256 terms, 1.2) of all I/Os go to the first of 256 blocks.
    let share = f64::from(counts[0]) / ios.len() as f64;
    let zeta: f64 = (1..=256).map(|i| libm::pow(f64::from(i), -1.2)).sum();
    assert!((share * zeta - 1.0).abs() < 0.06, "{share}");
}

#[test]
fn zones_longer_than_the_file_are_refused() {
    let spec = job("rw=randread\nrandom_distribution=zoned_abs:50/1m:50/1m");
    let seeds = Seeds::new(&spec, 1, 0);
    let layout = Layout::new(&spec, 0, &seeds, &[MIB]).unwrap();
    assert!(matches!(
        OffsetGenerator::new(&spec, &layout, &seeds),
        Err(LayoutError::Zones { .. })
    ));
}

#[test]
fn a_map_beyond_its_limit_is_refused_unless_soft() {
    let text = "rw=randread\nbsrange=512-1k\nsize=1t";
    for (options, fits) in [
        ("", false),
        ("\nsoftrandommap=1", true),
        ("\nnorandommap", true),
    ] {
        let spec = job(&format!("{text}{options}"));
        let seeds = Seeds::new(&spec, 1, 0);
        let layout = Layout::new(&spec, 0, &seeds, &[1 << 40]).unwrap();
        assert_eq!(OffsetGenerator::new(&spec, &layout, &seeds).is_ok(), fits);
    }
}

#[test]
fn run_seeds_vary_and_repeat() {
    let spec = job("rw=randread");
    let first = |run_seed| {
        let mut generator = generator(&spec, &[MIB], run_seed);
        generator.start_pass();
        (0..32).map(|_| generator.next()).collect::<Vec<_>>()
    };
    assert_eq!(first(0), first(0));
    assert_eq!(first(7), first(7));
    assert_ne!(first(0), first(7));
}

/// Draws options that are valid together.
fn any_options() -> impl Strategy<Value = String> {
    let pattern = prop::sample::select(vec![
        "read",
        "write",
        "trim",
        "randread",
        "randwrite",
        "randtrim",
        "rw",
        "randrw",
        "trimwrite",
        "randtrimwrite",
        "randread:3",
        "read:4k",
        "write:-12k",
    ]);
    let blocks = prop::sample::select(vec![
        "bs=512",
        "bs=4k",
        "bs=12k",
        "bs=4k,8k",
        "bsrange=512-16k",
        "bsrange=4k-10k,8k-8k",
        "bssplit=4k/50:12k/30:64k/20",
        "bsrange=4k-64k\nbs_is_seq_rand=1",
    ]);
    let extra = prop::sample::select(vec![
        "",
        "norandommap",
        "random_generator=lfsr",
        "random_distribution=zipf:0.9",
        "random_distribution=pareto:0.3",
        "random_distribution=normal:20",
        "random_distribution=zoned:90/10:10/90",
        "percentage_random=40",
        "ba=512",
        "nrfiles=3",
        "nrfiles=3\nfile_service_type=zipf",
        "offset=20%\nsize=70%",
        "rw_sequencer=identical",
        "loops=2",
        "io_size=2m",
        "time_based\nruntime=1",
    ]);
    (pattern, blocks, extra, 70_000u64..2 * MIB).prop_map(|(pattern, blocks, extra, size)| {
        format!("size={size}\nrw={pattern}\n{blocks}\n{extra}")
    })
}

proptest! {
    #[test]
    fn everything_stays_inside(options in any_options(), run_seed: u64) {
        let spec = job(&options);
        let files = vec![2 * MIB; spec.file_count as usize];
        let seeds = Seeds::new(&spec, 1, run_seed);
        let layout = Layout::new(&spec, 0, &seeds, &files).unwrap();
        let mut generator = OffsetGenerator::new(&spec, &layout, &seeds).unwrap();
        let mut count = 0;
        while count < 5000 && generator.start_pass() {
            while let Some(io) = generator.next() {
                let extent = &layout.files[io.file as usize];
                let end = io.offset_bytes + u64::from(io.length_bytes);
                prop_assert!(io.length_bytes > 0 && io.length_bytes % 512 == 0);
                prop_assert!(io.offset_bytes >= extent.offset_bytes);
                prop_assert!(io.offset_bytes < extent.offset_bytes + extent.length_bytes);
                prop_assert!(end <= extent.file_bytes);
                prop_assert!(spec.pattern.does(io.direction));
                count += 1;
                if count == 5000 {
                    break;
                }
            }
        }
        prop_assert!(count > 0);
    }

    #[test]
    fn each_block_once_a_pass(
        blocks in 1u64..2000,
        bs in prop::sample::select(vec![512u64, 4096, 12288]),
        pattern in prop::sample::select(vec!["randread", "randwrite", "randrw"]),
        run_seed: u64,
    ) {
        let spec = job(&format!("rw={pattern}\nbs={bs}\nsize={}", blocks * bs));
        let mut generator = generator(&spec, &[blocks * bs], run_seed);
        prop_assert!(generator.start_pass());
        let mut seen: Vec<u64> = std::iter::from_fn(|| generator.next())
            .map(|io| io.offset_bytes)
            .collect();
        seen.sort_unstable();
        prop_assert!(seen.into_iter().eq((0..blocks).map(|block| block * bs)));
        prop_assert!(!generator.start_pass());
    }

    #[test]
    fn blocks_of_any_size_cover_all_without_overlap(
        sectors in 32u64..4000,
        pattern in prop::sample::select(vec!["randread", "randrw"]),
        sizes in prop::sample::select(vec!["bsrange=512-8k", "bssplit=512/20:4k/50:16k/30"]),
        run_seed: u64,
    ) {
        let bytes = sectors * 512;
        let spec = job(&format!("rw={pattern}\n{sizes}\nsize={bytes}"));
        let mut generator = generator(&spec, &[bytes], run_seed);
        prop_assert!(generator.start_pass());
        let mut seen: Vec<(u64, u64)> = std::iter::from_fn(|| generator.next())
            .map(|io| (io.offset_bytes, u64::from(io.length_bytes)))
            .collect();
        seen.sort_unstable();
        let mut end = 0;
        for (offset, length) in seen {
            prop_assert_eq!(offset, end);
            end += length;
        }
        prop_assert_eq!(end, bytes);
    }
}
