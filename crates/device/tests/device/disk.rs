//! Times of a disk against the arithmetic of its description.

use crate::harness::Rng;
use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, CommandStatus, Device, DriveSpec, registry};

/// The shipped disk with changes.
fn disk(changes: &[(&str, &str)]) -> Box<dyn Device> {
    let text = registry::text("hdd-7200").expect("listed");
    // `[assumed]` may name keys that a changed disk does not have.
    let lines = text.lines().filter(|line| !line.starts_with('"'));
    let mut text = lines.collect::<Vec<_>>().join("\n");
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let spec = DriveSpec::parse("disk.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    spec.build(1)
}

const WRITE_THROUGH: (&str, &str) = (
    "write_back = true    # as shipped\nflush_limit_us = 1000000",
    "write_back = false",
);

/// A revolution at 7200 a minute.
const TURN_US: f64 = 60e6 / 7200.0;

fn command(tag: u32, op: Op, sector: u64, sectors: u32) -> Command {
    Command {
        tag,
        queue: 0,
        op,
        sector: Sector(sector),
        sectors,
        fua: false,
    }
}

/// Carries out one command; returns when it completes.
fn carry_out(disk: &mut dyn Device, now: Nanos, op: Op, sector: u64, sectors: u32) -> Nanos {
    disk.submit(now, command(0, op, sector, sectors));
    let mut done = Vec::new();
    disk.advance_to_completion(Nanos::MAX, &mut done);
    assert_eq!(done[0].status, CommandStatus::Ok);
    done[0].at
}

/// Mean time of random commands at queue depth 1, in microseconds; their first sectors
/// are `offset` after the start of a block.
fn mean_us(disk: &mut dyn Device, op: Op, offset: u64, sectors: u32) -> f64 {
    const COMMANDS: u64 = 4000;
    let blocks = disk.identify().capacity_sectors / 8 - 1;
    let (mut rng, mut now) = (Rng::new(7), Nanos::ZERO);
    for _ in 0..COMMANDS {
        let sector = rng.below(blocks) * 8 + offset;
        now = carry_out(disk, now, op, sector, sectors);
    }
    now.0 as f64 / COMMANDS as f64 / 1e3
}

fn near(found: f64, want: f64, share: f64) {
    let off = (found / want - 1.0).abs();
    assert!(off <= share, "found {found:.1}, want {want:.1}");
}

/// The block is read when it passes the heads, and written when it passes again, a
/// revolution later. The arm settles only as for a read, which takes less time.
#[test]
fn writing_a_part_of_a_block_takes_a_turn_more() {
    let write_us =
        |offset, sectors| mean_us(disk(&[WRITE_THROUGH]).as_mut(), Op::Write, offset, sectors);
    let settle_us = 1000.0;
    let whole = write_us(0, 8);
    let part = write_us(0, 1);
    near(part - whole, TURN_US - settle_us, 0.03);
    // Two blocks, each in part.
    near(write_us(1, 8) - whole, TURN_US - settle_us, 0.03);
    // Two blocks, one in part and one as a whole.
    near(write_us(4, 12) - whole, TURN_US - settle_us, 0.03);
    near(write_us(0, 16), whole, 0.01);
    // Reading a part takes what the block takes.
    let read_us = |offset, sectors| mean_us(disk(&[]).as_mut(), Op::Read, offset, sectors);
    near(read_us(3, 1), read_us(0, 8), 0.001);
}

#[test]
fn blocks_of_a_sector_are_written_at_once() {
    let native = ("physical_block_bytes = 4096", "physical_block_bytes = 512");
    let sector = mean_us(disk(&[WRITE_THROUGH, native]).as_mut(), Op::Write, 1, 1);
    let block = mean_us(disk(&[WRITE_THROUGH]).as_mut(), Op::Write, 0, 8);
    near(sector, block, 0.01);
}

/// The buffer hides this read until it is full.
#[test]
fn emptying_the_buffer_pays_for_parts_of_blocks() {
    let write_us = |sectors| {
        let mut disk = disk(&[("size_kb = 65536", "size_kb = 256")]);
        mean_us(disk.as_mut(), Op::Write, 0, sectors)
    };
    let (whole, part) = (write_us(8), write_us(1));
    // With small writes more runs fit in the buffer, and seeks between them are shorter.
    assert!(
        (0.4 * TURN_US..TURN_US).contains(&(part - whole)),
        "{part} {whole}"
    );
}

/// At queue depth 1 the time of a command is that of the firmware, the arm, the platters
/// and the link; and seek distances are those between two random places.
#[test]
fn the_counts_add_up_to_the_time() {
    let mut random = disk(&[]);
    let mean_ns = 1e3 * mean_us(random.as_mut(), Op::Read, 0, 8);
    let arm = random.stats(Nanos::MAX).arm.expect("a disk has one");
    let reads = arm.reads as f64;
    assert_eq!((arm.reads, arm.sectors_read), (4000, 32_000));
    let moved_ns = arm.seek_ns + arm.head_switch_ns + arm.rotation_ns + arm.transfer_ns;
    let link_ns = 4096.0 * 1e9 / 560e6;
    let fixed_ns = 1500.0 + 50_000.0 + link_ns + 1500.0;
    near(mean_ns - fixed_ns, moved_ns as f64 / reads, 1e-6);
    // The capacity takes 379,436 cylinders. Sectors a track fall by half from the first to
    // the last, so that two random places are 0.326 of all apart instead of a third.
    let cylinders = arm.seek_cylinders as f64 / arm.seeks as f64;
    near(cylinders, 0.326 * 379_436.0, 0.02);
    near(arm.seek_ns as f64 / arm.seeks as f64, 8.5e6, 0.1);
    near(arm.rotation_ns as f64 / reads, TURN_US * 500.0, 0.03);
    assert_eq!(
        (arm.writes, arm.blocks_completed, arm.reads_streamed),
        (0, 0, 0)
    );
    assert_eq!(random.stats(Nanos::MAX).flash_reads, 0);

    let mut parts = disk(&[WRITE_THROUGH]);
    mean_us(parts.as_mut(), Op::Write, 1, 8);
    let arm = parts.stats(Nanos::MAX).arm.expect("a disk has one");
    assert_eq!((arm.writes, arm.blocks_completed), (4000, 8000));
    assert_eq!((arm.sectors_read, arm.sectors_written), (64_000, 64_000));
    parts.reset_stats(Nanos::MAX);
    assert_eq!(parts.stats(Nanos::MAX).arm, Some(Default::default()));
}

/// Consecutive sectors become whole blocks in the buffer.
#[test]
fn neighbours_are_written_together() {
    let mut disk = disk(&[]);
    let mut now = Nanos::ZERO;
    for sector in 0..20_000 {
        now = carry_out(disk.as_mut(), now, Op::Write, sector, 1);
    }
    now = carry_out(disk.as_mut(), now, Op::Flush, 0, 0);
    let arm = disk.stats(now).arm.expect("a disk has one");
    assert_eq!(
        (arm.writes_buffered, arm.sectors_destaged),
        (20_000, 20_000)
    );
    assert_eq!((arm.flushes, arm.destages), (1, arm.writes));
    assert!(arm.blocks_completed < 1000, "{}", arm.blocks_completed);
}

/// A sequential reader slower than the platters finds everything read ahead.
#[test]
fn a_slow_reader_in_order_waits_for_the_platters_once() {
    let mut disk = disk(&[]);
    let (mut now, mut late) = (Nanos::ZERO, 0);
    for at in 0..2000 {
        let end = carry_out(disk.as_mut(), now, Op::Read, at * 256, 256);
        // 128 KiB are on the link for 0.23 ms.
        late += ((end - now).0 > 400_000) as u32;
        now = Nanos(end.0 + 2_000_000);
    }
    assert!(late <= 2, "{late} reads waited");
    // The reader sets the rate: 2 ms of its own and the link for each read.
    let mb_s = 2000.0 * 0.131_072 / (now.0 as f64 / 1e9);
    near(mb_s, 0.131_072 / 0.002_287, 0.02);
}

/// The block in which one read ends and the next begins is in the buffer, so the next
/// read continues where the heads are.
#[test]
fn reads_in_order_lose_no_turn_between_blocks() {
    const READS: u64 = 2000;
    let seconds = |first: u64, sectors: u32| {
        let mut disk = disk(&[]);
        let mut now = Nanos::ZERO;
        for at in 0..READS {
            let sector = first + at * sectors as u64;
            now = carry_out(disk.as_mut(), now, Op::Read, sector, sectors);
        }
        let arm = disk.stats(now).arm.expect("a disk has one");
        // Each block is read once, wherever reads begin and end.
        assert!(arm.sectors_read <= first + READS * sectors as u64 + 8);
        now.0 as f64 / 1e9
    };
    near(seconds(0, 130), seconds(0, 128) * 130.0 / 128.0, 0.01);
    near(seconds(1, 128), seconds(0, 128), 0.01);
    near(seconds(5, 1), seconds(0, 1), 0.05);
}

/// Two readers of the same blocks at once cost the arm one access.
#[test]
fn what_one_read_brings_ends_others_that_want_it() {
    let mut disk = disk(&[]);
    let far = disk.identify().capacity_sectors / 2;
    for (tag, sector) in [0, far, far, far + 4].into_iter().enumerate() {
        disk.submit(Nanos::ZERO, command(tag as u32, Op::Read, sector, 4));
    }
    let mut done = Vec::new();
    disk.advance(Nanos(1 << 40), &mut done);
    assert_eq!(done.len(), 4);
    let stats = disk.stats(Nanos(1 << 40));
    assert_eq!(
        (
            stats.arm.expect("a disk has one").reads,
            stats.cache_read_hits
        ),
        (2, 2)
    );
}

/// Counters have the time between the last reset and now, also of an access in progress.
#[test]
fn an_access_is_counted_as_it_passes() {
    let busy_ns = |disk: &dyn Device, now: u64| {
        let arm = disk.stats(Nanos(now)).arm.expect("a disk has one");
        arm.seek_ns + arm.head_switch_ns + arm.rotation_ns + arm.transfer_ns
    };
    let mut disk = disk(&[]);
    let far = disk.identify().capacity_sectors / 2;
    disk.submit(Nanos::ZERO, command(0, Op::Read, far, 8192));
    let start = disk.next_event().0;
    disk.advance(Nanos(start), &mut Vec::new());
    // The access takes more than 20 ms: a seek of over 8 ms, and two revolutions and a
    // half.
    for ns in (0..20_000_000).step_by(500_000) {
        assert_eq!(busy_ns(disk.as_ref(), start + ns), ns);
    }
    disk.reset_stats(Nanos(start + 5_000_000));
    assert_eq!(busy_ns(disk.as_ref(), start + 6_000_000), 1_000_000);
    let mut done = Vec::new();
    let end = disk.advance_to_completion(Nanos::MAX, &mut done).0;
    // The rest of the access; the transfer over the link is not part of it.
    let busy_ns = busy_ns(disk.as_ref(), end);
    assert!(busy_ns > 20_000_000 && start + 5_000_000 + busy_ns < end);
}

/// The heads read through a gap as long as that takes less than a revolution.
#[test]
fn a_jump_ahead_takes_at_most_a_seek_and_a_turn() {
    for gap in [8, 1000, 3000, 3900, 5000] {
        let mut disk = disk(&[]);
        let now = carry_out(disk.as_mut(), Nanos::ZERO, Op::Read, 0, 8);
        let end = carry_out(disk.as_mut(), now, Op::Read, 8 + gap, 8);
        let us = (end - now).0 as f64 / 1e3;
        assert!(us < 1000.0 + TURN_US + 200.0, "{gap}: {us}");
    }
}

/// A reader of a queue depth and a command size, sequential from a sector on, or random.
struct Reader {
    depth: u32,
    sectors: u32,
    in_order_from: Option<u64>,
}

/// Runs readers for a number of seconds; returns the sectors a second and the longest
/// latency in nanoseconds of each.
fn read_beside(disk: &mut dyn Device, readers: &[Reader], seconds: u64) -> Vec<(f64, u64)> {
    let capacity = disk.identify().capacity_sectors;
    let mut rng = Rng::new(7);
    let mut found = vec![(0.0, 0); readers.len()];
    let mut places: Vec<u64> = (readers.iter())
        .map(|reader| reader.in_order_from.unwrap_or(0))
        .collect();
    // Who submitted a tag's command, and when.
    let mut tags: Vec<(usize, Nanos)> = Vec::new();
    for (who, reader) in readers.iter().enumerate() {
        tags.extend((0..reader.depth).map(|_| (who, Nanos::ZERO)));
    }
    let mut submit = |disk: &mut dyn Device, now: Nanos, tag: u32, who: usize| {
        let reader = &readers[who];
        if reader.in_order_from.is_none() {
            places[who] = rng.below(capacity / 8 - 1) * 8;
        }
        disk.submit(now, command(tag, Op::Read, places[who], reader.sectors));
        places[who] += reader.sectors as u64;
    };
    for (tag, (who, _)) in tags.iter().enumerate() {
        submit(disk, Nanos::ZERO, tag as u32, *who);
    }
    let (end, mut done) = (Nanos(seconds * 1_000_000_000), Vec::new());
    loop {
        let now = disk.advance_to_completion(end, &mut done);
        if now >= end {
            return found;
        }
        for completion in done.drain(..) {
            let (who, since) = &mut tags[completion.tag as usize];
            found[*who].0 += readers[*who].sectors as f64 / seconds as f64;
            found[*who].1 = found[*who].1.max((now - *since).0);
            *since = now;
            submit(disk, now, completion.tag, *who);
        }
    }
}

/// With two sequential readers at queue depth 1 the heads do not seek for every command.
#[test]
fn sequential_readers_share_the_disk() {
    let half = disk(&[]).identify().capacity_sectors / 2;
    let mb_s = |changes: &[(&str, &str)]| {
        let readers = [0, half].map(|from| Reader {
            depth: 1,
            sectors: 256,
            in_order_from: Some(from),
        });
        let found = read_beside(disk(changes).as_mut(), &readers, 10);
        near(found[0].0, found[1].0, 0.1);
        (found[0].0 + found[1].0) * 512e-6
    };
    // A seek of 8.5 ms and half a revolution, then 128 KiB, or that and 512 KiB.
    let (one, many) = (131_072e-6, (131_072.0 + 524_288.0) * 1e-6);
    near(
        mb_s(&[("read_ahead_min_kb = 512", "read_ahead_min_kb = 0")]),
        one / 13.3e-3,
        0.35,
    );
    near(mb_s(&[]), many / 15.8e-3, 0.35);
}

/// The heads stay with a sequential reader that always has commands queued until another
/// command has waited for `patience_us`.
#[test]
fn a_random_read_waits_for_a_deep_stream_as_long_as_the_firmware_lets_it() {
    let stream = |depth| Reader {
        depth,
        sectors: 256,
        in_order_from: Some(0),
    };
    let random = || Reader {
        depth: 1,
        sectors: 8,
        in_order_from: None,
    };
    let mut of_both = disk(&[]);
    let deep = read_beside(of_both.as_mut(), &[stream(31), random()], 10);
    let arm = of_both
        .stats(Nanos(10_000_000_000))
        .arm
        .expect("a disk has one");
    // The random reader, and what it left behind the heads of the stream.
    assert!((4..=100).contains(&arm.overdue), "{}", arm.overdue);
    assert!(deep[1].1 > 1_500_000_000 && deep[1].1 < 1_550_000_000);
    assert!(deep[0].0 * 512e-6 > 180.0);
    // At queue depth 1 it lets others through.
    let mut of_both = disk(&[]);
    let shallow = read_beside(of_both.as_mut(), &[stream(1), random()], 10);
    let arm = of_both
        .stats(Nanos(10_000_000_000))
        .arm
        .expect("a disk has one");
    assert_eq!(arm.overdue, 0);
    assert!(shallow[1].1 < 60_000_000, "{} ns", shallow[1].1);
    // 640 KiB each time, after two seeks with rotation of 12.7 ms on average at most.
    assert!(shallow[0].0 * 512e-6 > 20.0);
}

/// A write that finds the buffer full, and a flush, wait no longer than a read before the
/// heads leave a sequential reader for them.
#[test]
fn a_stream_does_not_hold_up_writes_longer_than_reads() {
    let mut disk = disk(&[]);
    let blocks = disk.identify().capacity_sectors / 8 - 1;
    let (mut rng, mut place) = (Rng::new(7), 0);
    // Tags up to 15 are sequential reads, 31 is a flush, all others are random writes.
    let mut submit = |disk: &mut dyn Device, now: Nanos, tag: u32| {
        let (op, sector, sectors) = match tag {
            0..16 => (Op::Read, place, 256),
            31 => (Op::Flush, 0, 0),
            _ => (Op::Write, rng.below(blocks) * 8, 8),
        };
        place += if tag < 16 { 256 } else { 0 };
        disk.submit(now, command(tag, op, sector, sectors));
    };
    let mut since = [Nanos::ZERO; 32];
    (0..32).for_each(|tag| submit(disk.as_mut(), Nanos::ZERO, tag));
    let (end, mut done) = (Nanos(8_000_000_000), Vec::new());
    let (mut writes, mut longest_ns) = (0, 0);
    loop {
        let now = disk.advance_to_completion(end, &mut done);
        if now >= end {
            break;
        }
        for completion in done.drain(..) {
            let from = std::mem::replace(&mut since[completion.tag as usize], now);
            if completion.tag >= 16 {
                writes += 1;
                longest_ns = longest_ns.max((now - from).0);
            }
            submit(disk.as_mut(), now, completion.tag);
        }
    }
    // The patience of 1.5 s, and up to a second of destaging.
    assert!(longest_ns < 3_500_000_000, "{longest_ns} ns");
    assert!(writes > 100, "{writes}");
}

/// A stream keeps what the buffer holds from the platters no longer than it keeps a read.
#[test]
fn a_stream_does_not_keep_what_is_buffered_longer_than_reads() {
    let mut disk = disk(&[]);
    let half = disk.identify().capacity_sectors / 2;
    // Its age counts, not the time of day.
    let begin_ns = 1_000_000_000;
    let (mut place, mut done) = (0, Vec::new());
    let mut read_on = |disk: &mut dyn Device, now: Nanos, tag: u32| {
        disk.submit(now, command(tag, Op::Read, place, 256));
        place += 256;
    };
    (0..16).for_each(|tag| read_on(disk.as_mut(), Nanos(begin_ns), tag));
    let (written, mut destages_at) = (Nanos(begin_ns + 1_000_000), [0; 2]);
    disk.submit(written, command(31, Op::Write, half, 8));
    for (until_ns, destages) in [1_450_000_000, 1_600_000_000]
        .map(|after_ns| begin_ns + after_ns)
        .into_iter()
        .zip(&mut destages_at)
    {
        loop {
            let now = disk.advance_to_completion(Nanos(until_ns), &mut done);
            if now.0 >= until_ns {
                break;
            }
            for completion in done.drain(..).filter(|done| done.tag < 16) {
                read_on(disk.as_mut(), now, completion.tag);
            }
        }
        *destages = disk
            .stats(Nanos(until_ns))
            .arm
            .expect("a disk has an arm")
            .destages;
    }
    assert_eq!(destages_at, [0, 1]);
}

/// Sectors that passed the heads after a read are in the buffer, also when another command
/// ends the reading ahead; those that did not pass cost a rotation.
#[test]
fn what_was_read_ahead_before_a_seek_is_kept() {
    let mut disk = disk(&[]);
    let far = disk.identify().capacity_sectors / 2;
    let first = carry_out(disk.as_mut(), Nanos::ZERO, Op::Read, 0, 8);
    let seek_at = first + Nanos(4_000_000);
    let mut now = carry_out(disk.as_mut(), seek_at, Op::Read, far, 8);
    let mut took_us = |sector| {
        let end = carry_out(disk.as_mut(), now, Op::Read, sector, 8);
        let took_ns = end.0 - std::mem::replace(&mut now, end).0;
        took_ns / 1000
    };
    // Half a revolution passed a few hundred sectors.
    let took = [took_us(8), took_us(256)];
    assert!(took.iter().all(|us| *us < 100), "{took:?}");
    let beyond = took_us(100_000);
    assert!(beyond > 1000, "{beyond}");
}

/// What passes the heads before a seek is read ahead: 2 ms have 819 sectors of a track of 3416. While
/// the heads switch to the next track, which takes 0.8 ms, it is nothing.
#[test]
fn what_is_read_ahead_is_what_passes_the_heads() {
    for (last, idle_us, sector, is_held) in [
        (0, 2_000, 816, true),
        (0, 2_000, 864, false),
        (3400, 400, 3408, true),
        (3400, 400, 3560, false),
    ] {
        let mut disk = disk(&[]);
        let far = disk.identify().capacity_sectors / 2;
        let end = carry_out(disk.as_mut(), Nanos::ZERO, Op::Read, last, 8);
        let seek_at = end + Nanos::from_micros(idle_us);
        let now = carry_out(disk.as_mut(), seek_at, Op::Read, far, 8);
        let took = carry_out(disk.as_mut(), now, Op::Read, sector, 8) - now;
        assert_eq!(took < Nanos::from_micros(100), is_held, "{sector} {took:?}");
    }
}

/// The heads do not begin to write before enough of the data has crossed the link: half of it here,
/// but so late that the rest comes before it is needed.
#[test]
fn a_write_past_the_buffer_waits_for_its_data() {
    // 128 KiB take 131 ms.
    let slow = "write_watermark = 0.5\nbandwidth_mb_s = 1";
    let mut disk = disk(&[WRITE_THROUGH, ("bandwidth_mb_s = 560", slow)]);
    let end = carry_out(disk.as_mut(), Nanos::ZERO, Op::Write, 1 << 30, 256);
    let took_us = end.0 as f64 / 1e3;
    let crossed_us = 131_072.0;
    let latest_us = crossed_us + TURN_US + 1000.0;
    assert!((crossed_us..latest_us).contains(&took_us), "{took_us}");
    // The heads are over the track within an average seek, a settling and a turn.
    let arm = disk.stats(end).arm.expect("a disk has one");
    let waited_us = arm.rotation_ns as f64 / 1e3;
    assert!(waited_us > crossed_us - 18_000.0 - TURN_US, "{waited_us}");
}

/// What was acknowledged and is only in the buffer is lost, and counted apart from what the
/// host does not rely on.
#[test]
fn a_loss_of_power_counts_what_was_only_in_the_buffer() {
    let mut disk = disk(&[]);
    let mut now = Nanos::ZERO;
    for losses in 1..=3 {
        let acknowledged = carry_out(disk.as_mut(), now, Op::Write, 0, 24);
        disk.submit(acknowledged, command(0, Op::Write, 1_000_000, 8));
        now = disk.power_loss(acknowledged);
        let mut done = Vec::new();
        disk.advance(Nanos(now.0 + 10_000_000_000), &mut done);
        assert!(done.is_empty(), "{done:?}");
        now.0 += 10_000_000_000;
        let stats = disk.stats(now);
        assert_eq!(stats.power_losses, losses);
        assert_eq!(stats.power_loss_sectors, 24 * losses);
        assert_eq!(stats.power_loss_acknowledged_sectors, 24 * losses);
    }
}

/// A buffer that is to be written out within 100 ms takes as much of a stream as the platters
/// take in that time, however large it is, and beyond that no more than they have taken.
#[test]
fn a_buffer_takes_what_can_be_written_out_in_time() {
    let mut disk = disk(&[("flush_limit_us = 1000000", "flush_limit_us = 100000")]);
    const EACH: u64 = 1 << 20;
    for n in 0..48 {
        let command = command(n as u32, Op::Write, n * EACH / 512, EACH as u32 / 512);
        disk.submit(Nanos::ZERO, command);
    }
    let mut done = Vec::new();
    disk.advance(Nanos::from_secs(10), &mut done);
    let bytes_a_cylinder = 2.0 * 3416.0 * 512.0;
    // Two tracks, with a head switch of 0.8 ms and a track seek of 1 ms, within a turn each.
    let us_a_cylinder = 2.0 * TURN_US + 800.0 + 1000.0;
    let platters_mb_s = bytes_a_cylinder / us_a_cylinder;
    for (n, end) in done.iter().enumerate() {
        let (us, mb) = (
            end.at.0 as f64 / 1e3,
            (n as u64 + 1) as f64 * EACH as f64 / 1e6,
        );
        let most = platters_mb_s * (us + 100_000.0) / 1e6;
        assert!(mb <= most, "{mb} MB at {us} us, of {most}");
    }
    let last_us = done.last().expect("all end").at.0 as f64 / 1e3;
    let all_mb = 48.0 * EACH as f64 / 1e6;
    // An average seek and half a turn each before the first and for what is in the buffer.
    let positions_us = 2.0 * (9500.0 + TURN_US / 2.0);
    let least_us = all_mb / platters_mb_s * 1e6 - 100_000.0;
    assert!(
        (least_us..least_us + positions_us).contains(&last_us),
        "{last_us}, {least_us}"
    );
}

/// Random writes of a block in the first 5 GB, one after the other, once the buffer is full:
/// how many a second, and the longest.
fn random_writes(disk: &mut dyn Device) -> (f64, Nanos) {
    let (full, end) = (Nanos(10_000_000_000), Nanos(30_000_000_000));
    let (mut rng, mut now) = (Rng::new(7), Nanos::ZERO);
    let (mut writes, mut longest) = (0, Nanos::ZERO);
    while now < end {
        let then = carry_out(disk, now, Op::Write, rng.below(5_000_000_000 / 4096) * 8, 8);
        if now >= full {
            writes += 1;
            longest = longest.max(Nanos((then - now).0));
        }
        now = then;
    }
    (writes as f64 / (now - full).0 as f64 * 1e9, longest)
}

/// What the buffer takes follows what it gives away, and not how long the last few runs took.
#[test]
fn a_full_buffer_admits_writes_steadily() {
    let (_, longest) = random_writes(disk(&[]).as_mut());
    assert!(longest < Nanos(300_000_000), "{longest:?}");
}

/// The disk has few runs of a controller's to choose among, and loses a turn more often.
#[test]
fn a_controllers_sweep_is_slower_than_the_disks_own_choice() {
    let limit = "flush_limit_us = 1000000";
    let rate = |queue: &str| random_writes(disk(&[(limit, queue)]).as_mut()).0;
    let own = rate("flush_limit_us = 10000000");
    let queued = |n: u32| rate(&format!("flush_limit_us = 10000000\ndestage_queue = {n}"));
    assert!(queued(32) < 0.95 * own, "{} of {own}", queued(32));
    assert!(
        queued(4) < 0.8 * queued(32),
        "{} of {}",
        queued(4),
        queued(32)
    );
}

/// Readers in order on the first part of the disk, 64 KiB at a time, one read of each at once: how
/// many reads a second.
fn readers_in_order(disk: &mut dyn Device, readers: u64) -> f64 {
    const SECTORS: u32 = 128;
    let end = Nanos(10_000_000_000);
    let mut next: Vec<u64> = (0..readers).map(|reader| reader * 10_000_000).collect();
    let (mut reads, mut done, mut now) = (0, Vec::new(), Nanos::ZERO);
    for (reader, sector) in next.iter().enumerate() {
        disk.submit(now, command(reader as u32, Op::Read, *sector, SECTORS));
    }
    while now < end {
        now = disk.advance_to_completion(Nanos::MAX, &mut done);
        for one in done.drain(..) {
            let sector = &mut next[one.tag as usize];
            *sector += u64::from(SECTORS);
            reads += 1;
            disk.submit(now, command(one.tag, Op::Read, *sector, SECTORS));
        }
    }
    reads as f64 / now.0 as f64 * 1e9
}

/// A controller that serves them in turn has no more of 16 readers than of 4; the disk finds
/// nearer ones among more.
#[test]
fn a_controller_serves_readers_in_turn() {
    let limit = "flush_limit_us = 1000000";
    let controller = format!("{limit}\ndestage_queue = 8");
    let rate = |keys: &str, readers| readers_in_order(disk(&[(limit, keys)]).as_mut(), readers);
    let own = rate(limit, 16) / rate(limit, 4);
    let in_turn = rate(&controller, 16) / rate(&controller, 4);
    assert!(own > 1.1, "{own}");
    assert!((0.85..1.1).contains(&in_turn), "{in_turn}");
}

/// Writes of 4 KiB fill a controller's cache as fast as writes of a whole line, and those that
/// begin inside a line take two.
#[test]
fn a_controllers_cache_fills_by_lines() {
    let limit = "flush_limit_us = 1000000";
    let lines = "dirty_share = 1.0\nline_kb = 64";
    // Writes until one waits for room.
    let filled_by = |keys: &str, offset: u64, sectors: u32| {
        let mut disk = disk(&[(limit, keys)]);
        let (mut now, mut writes) = (Nanos::ZERO, 0);
        loop {
            let sector = (writes * 7919 % 100_000) * 1024 + offset;
            let then = carry_out(disk.as_mut(), now, Op::Write, sector, sectors);
            if then.0 - now.0 > 2_000_000 {
                return writes;
            }
            (now, writes) = (then, writes + 1);
        }
    };
    let pieces = filled_by(lines, 0, 8);
    let whole = filled_by(lines, 0, 128);
    let between = filled_by(lines, 64, 128);
    let sectors = filled_by("dirty_share = 1.0", 0, 8);
    assert!((0.8..1.25).contains(&(pieces as f64 / whole as f64)));
    assert!((0.4..0.65).contains(&(between as f64 / whole as f64)));
    assert!(sectors > 10 * pieces, "{sectors}, {pieces}");
}

/// The times of commands that the buffer answers, one after the other.
fn buffered_ns(changes: &[(&str, &str)]) -> Vec<u64> {
    let mut disk = disk(changes);
    let commands = [
        (Op::Read, 0),
        (Op::Read, 0),
        (Op::Write, 1 << 20),
        (Op::Write, 2 << 20),
        (Op::Read, 0),
    ];
    let mut now = Nanos::ZERO;
    let times = commands.map(|(op, sector)| {
        let since = now;
        now = carry_out(disk.as_mut(), now, op, sector, 8);
        (now - since).0
    });
    // The first comes from the platters.
    times[1..].to_vec()
}

#[test]
fn the_firmware_takes_its_time_by_the_command_and_the_one_before() {
    let overheads = "[overheads]\nread_hit_after_read_us = 100\nread_hit_after_write_us = 200\n\
                     write_after_read_us = 300\nwrite_after_write_us = 500\nread_end_us = 7\n\
                     write_end_us = 8\n[cache]";
    let (plain, slow) = (buffered_ns(&[]), buffered_ns(&[("[cache]", overheads)]));
    let more: Vec<u64> = slow
        .iter()
        .zip(&plain)
        .map(|(a, b)| (a - b) / 1000)
        .collect();
    assert_eq!(more, [107, 308, 508, 207]);
}

/// With a watermark all but the last sector of a read has crossed when the heads are done.
#[test]
fn a_read_may_cross_the_link_while_the_heads_are_at_it() {
    let read_ns = |link: &str| {
        let mut disk = disk(&[("[link]", link)]);
        carry_out(disk.as_mut(), Nanos::ZERO, Op::Read, 1 << 30, 256).0
    };
    let (after, meanwhile) = (read_ns("[link]"), read_ns("[link]\nread_watermark = 0.01"));
    let crossing_ns = |bytes: u64| bytes * 1786 / 1000;
    assert_eq!(after - meanwhile, crossing_ns(256 * 512) - crossing_ns(512));
}

/// Random reads seek and wait for the platters, each once; those in order do neither.
#[test]
fn seeks_and_waits_for_the_platters_are_counted() {
    let mut disk = disk(&[]);
    mean_us(disk.as_mut(), Op::Read, 0, 8);
    let end = Nanos::from_secs(1_000);
    let arm = disk.stats(end).arm.expect("a disk has one");
    // A read in a hundred falls where the heads are.
    for (counted, of) in [(arm.seeks, 4000), (arm.rotation_waits, 4000)] {
        assert!((of * 98 / 100..=of).contains(&counted), "{arm:?}");
    }
    disk.reset_stats(end);
    carry_out(disk.as_mut(), end, Op::Read, 0, 8);
    let arm = disk
        .stats(end + Nanos::from_secs(1))
        .arm
        .expect("a disk has one");
    assert_eq!((arm.seeks, arm.rotation_waits), (1, 1));
    assert!(arm.seek_cylinders > 0);
}
