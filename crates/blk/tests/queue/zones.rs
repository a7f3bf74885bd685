//! Zone write plugs: order, merging, errors, and that a zone is written at its write pointer.

use blklab_blk::{
    Bio, BioFlags, IoStatus, Op, QueueConfig, QueueLimits, Sector, TraceKind, ZoneAction,
    ZoneLimits,
};
use proptest::prelude::*;

use crate::{FifoState, Fixture, config, with_limits};

/// Sectors of a zone; of a drive with eight, the first is conventional.
const ZONE: u64 = 256;
const ZONES: u64 = 8;

fn zoned() -> QueueConfig {
    with_limits(QueueLimits {
        capacity_sectors: ZONE * ZONES,
        zones: Some(ZoneLimits {
            zone_sectors: ZONE as u32,
            capacity_sectors: 192,
            conventional: 1,
            max_open: 0,
            max_active: 0,
        }),
        ..QueueLimits::default()
    })
}

/// Extents of the commands that the driver took.
fn taken(f: &Fixture) -> Vec<(u64, u32)> {
    let extents = f.driver.taken.iter().map(|c| (c.sector, c.sectors));
    extents.collect()
}

#[test]
fn one_write_of_a_zone_is_on_its_way_and_the_next_are_merged() {
    let mut f = Fixture::new(&zoned());
    f.queue.enable_trace(true);
    for sector in [256, 264, 272] {
        f.submit(Op::Write, sector, 8);
    }
    f.submit(Op::Write, 512, 8);
    f.submit(Op::Read, 280, 8);
    assert_eq!(taken(&f), [(256, 8), (512, 8), (280, 8)]);
    let waiting = f.trace();
    assert_eq!(
        waiting
            .iter()
            .filter(|kind| **kind == TraceKind::ZonePlug)
            .count(),
        2
    );
    f.complete(IoStatus::Ok);
    assert_eq!(f.driver.taken.len(), 3, "a worker submits the next write");
    f.process();
    assert_eq!(taken(&f)[3..], [(264, 16)]);
    assert!(f.trace().contains(&TraceKind::BioBackMerge));
    f.drain();
    let ended: Vec<u64> = f.ended().iter().map(|(bio, _)| *bio).collect();
    assert_eq!(ended, [0, 3, 4, 1, 2]);
    assert!(f.queue.is_idle());
}

#[test]
fn what_is_merged_into_a_zone_s_request_moves_its_write_pointer() {
    let mut f = Fixture::new(&zoned());
    for sector in [256, 264] {
        f.submit_plugged(0, Bio::new(Op::Write, Sector(sector), 8));
    }
    f.unplug();
    f.drain();
    f.submit(Op::Write, 272, 8);
    f.drain();
    assert_eq!(taken(&f), [(256, 16), (272, 8)]);
    // Writes that come out of order do not get in front of it, and fail.
    f.submit_plugged(0, Bio::new(Op::Write, Sector(280), 8));
    f.submit_plugged(0, Bio::new(Op::Write, Sector(272), 8));
    f.unplug();
    f.drain();
    let statuses: Vec<IoStatus> = f.ended().iter().map(|(_, status)| *status).collect();
    assert_eq!(statuses[3..], [IoStatus::Ok, IoStatus::IoError]);
}

#[test]
fn conventional_zones_are_written_anywhere() {
    let mut f = Fixture::new(&zoned());
    for sector in [64, 8, 128] {
        f.submit(Op::Write, sector, 8);
    }
    assert_eq!(taken(&f), [(64, 8), (8, 8), (128, 8)]);
}

/// A flush without data passes the plug of the zone that is at its sector, 0, and leaves it as it
/// is (`blk_zone_plug_bio`).
#[test]
fn a_flush_does_not_wait_for_a_zone() {
    let mut config = zoned();
    config.limits.write_cache = true;
    config
        .limits
        .zones
        .as_mut()
        .expect("it has zones")
        .conventional = 0;
    let mut f = Fixture::new(&config);
    f.submit(Op::Flush, 0, 0);
    f.drain();
    // The zone's write pointer is still unknown, so its first write tells it.
    f.submit(Op::Write, 64, 8);
    f.submit(Op::Flush, 0, 0);
    f.process();
    assert_eq!(taken(&f), [(0, 0), (64, 8), (0, 0)]);
    f.drain();
    assert!(f.ended().iter().all(|(_, status)| *status == IoStatus::Ok));
}

#[test]
fn a_write_elsewhere_fails_before_the_drive() {
    let mut f = Fixture::new(&zoned());
    f.submit(Op::Write, 256, 8);
    f.drain();
    f.submit(Op::Write, 280, 8);
    f.submit(Op::Write, 264, 8);
    f.drain();
    assert_eq!(taken(&f), [(256, 8), (264, 8)]);
    let ended = f.ended();
    assert_eq!(ended[1..], [(1, IoStatus::IoError), (2, IoStatus::Ok)]);
}

#[test]
fn a_full_zone_takes_no_write_until_it_is_forgotten() {
    let mut f = Fixture::new(&zoned());
    f.submit(Op::Write, 256, 192);
    f.submit(Op::Write, 448, 8);
    f.submit(Op::Write, 512, 192);
    f.drain();
    assert_eq!(taken(&f), [(256, 192), (512, 192)]);
    assert_eq!(f.ended()[1], (1, IoStatus::IoError));
    // Nothing waited for the second zone's write: the drive decides on the next.
    f.submit(Op::Write, 256, 8);
    f.submit(Op::Write, 512, 8);
    f.drain();
    assert_eq!(taken(&f)[2..], [(512, 8)]);
}

#[test]
fn a_failed_write_fails_those_behind_it_and_later_ones() {
    let mut f = Fixture::new(&zoned());
    for sector in [256, 264, 512] {
        f.submit(Op::Write, sector, 8);
    }
    f.complete(IoStatus::IoError);
    f.drain();
    f.submit(Op::Write, 264, 8);
    f.submit(Op::Write, 520, 8);
    f.drain();
    let failed = (IoStatus::IoError, IoStatus::IoError);
    let ended = f.ended();
    assert_eq!((ended[0].1, ended[1].1), failed);
    assert_eq!(
        ended[2..],
        [(2, IoStatus::Ok), (3, IoStatus::IoError), (4, IoStatus::Ok)]
    );
    assert_eq!(taken(&f), [(256, 8), (512, 8), (520, 8)]);
}

#[test]
fn a_reset_empties_a_zone_and_fails_what_waits() {
    let mut f = Fixture::new(&zoned());
    for sector in [256, 264] {
        f.submit(Op::Write, sector, 8);
    }
    f.submit(Op::Zone(ZoneAction::Reset), 256, 0);
    f.submit(Op::Zone(ZoneAction::Reset), 0, 0);
    f.drain();
    let ended = f.ended();
    let statuses = |bio| ended.iter().find(|(ended, _)| *ended == bio).map(|e| e.1);
    assert_eq!(statuses(1), Some(IoStatus::IoError), "it waited");
    assert_eq!(statuses(2), Some(IoStatus::Ok));
    assert_eq!(statuses(3), Some(IoStatus::IoError), "conventional");
    f.submit(Op::Write, 256, 8);
    f.complete(IoStatus::IoError);
    f.submit(Op::Zone(ZoneAction::Reset), 256, 0);
    f.submit(Op::Write, 256, 8);
    f.drain();
    assert_eq!(
        taken(&f),
        [(256, 8), (256, 0), (256, 8), (256, 0), (256, 8)]
    );
    f.ended();
    f.submit(Op::Write, 264, 8);
    f.submit(Op::Write, 272, 8);
    // To open and close a zone is the drive's business; a finish ends what waits.
    f.submit(Op::Zone(ZoneAction::Open), 256, 0);
    f.submit(Op::Zone(ZoneAction::Close), 256, 0);
    assert_eq!(f.ended(), []);
    f.submit(Op::Zone(ZoneAction::Finish), 256, 0);
    assert_eq!(f.ended(), [(8, IoStatus::IoError)], "it waited");
    f.drain();
    assert!(f.ended().iter().all(|(_, status)| *status == IoStatus::Ok));
    let mut unzoned = Fixture::new(&config());
    unzoned.submit(Op::Zone(ZoneAction::Reset), 256, 0);
    assert_eq!(unzoned.ended(), [(0, IoStatus::NotSupported)]);
}

#[test]
fn no_request_crosses_the_end_of_a_zone() {
    let mut f = Fixture::new(&zoned());
    f.submit(Op::Read, 500, 24);
    assert_eq!(taken(&f), [(500, 12), (512, 12)]);
    let (mut f, _) = Fixture::with_fifo(&zoned(), FifoState::default());
    for sector in [504, 512] {
        f.submit_plugged(0, Bio::new(Op::Read, Sector(sector), 8));
    }
    f.unplug();
    f.drain();
    assert_eq!(taken(&f), [(504, 8), (512, 8)]);
}

/// It may not wait for a tag in its submitter's thread, so that a worker waits.
#[test]
fn a_write_that_must_not_wait_goes_to_a_worker() {
    let mut f = Fixture::new(&QueueConfig {
        queue_depth: 1,
        ..zoned()
    });
    f.submit(Op::Read, 0, 8);
    f.submit_bio(
        0,
        Bio {
            flags: BioFlags::NOWAIT,
            ..Bio::new(Op::Write, Sector(256), 8)
        },
    );
    f.process();
    assert_eq!(f.driver.taken.len(), 1);
    assert!(f.waiters.is_empty());
    f.complete(IoStatus::Ok);
    assert!(f.woken().is_empty(), "the worker's ticket is its own");
    f.drain();
    assert_eq!(f.ended(), [(0, IoStatus::Ok), (1, IoStatus::Ok)]);
}

#[derive(Clone, Copy, Debug)]
enum ZoneStep {
    /// The next write of a zone, of this many units of four sectors.
    Write {
        zone: u64,
        units: u32,
    },
    Read {
        sector: u64,
    },
    Unplug,
    Process,
    /// One of the commands in flight ends.
    Complete(usize),
}

fn step() -> impl Strategy<Value = ZoneStep> {
    prop_oneof![
        6 => (1..ZONES, 1..5u32).prop_map(|(zone, units)| ZoneStep::Write { zone, units }),
        2 => (0..ZONE * ZONES - 8).prop_map(|sector| ZoneStep::Read { sector }),
        2 => Just(ZoneStep::Unplug),
        3 => Just(ZoneStep::Process),
        4 => any::<usize>().prop_map(ZoneStep::Complete),
    ]
}

/// Asserts that the commands taken since `seen` are writes at their zones' write pointers, and
/// that no zone has two in flight.
fn check_commands(f: &Fixture, seen: &mut usize, written: &mut [u64]) {
    for command in &f.driver.taken[*seen..] {
        if command.op == Op::Write {
            let zone = (command.sector / ZONE) as usize;
            assert_eq!(command.sector % ZONE, written[zone], "zone {zone}");
            written[zone] += u64::from(command.sectors);
        }
    }
    *seen = f.driver.taken.len();
    let mut in_flight = [0; ZONES as usize];
    for id in &f.driver.in_flight {
        let of_id = f.driver.taken.iter().rfind(|command| command.id == *id);
        if let Some(command) = of_id.filter(|command| command.op == Op::Write) {
            in_flight[(command.sector / ZONE) as usize] += 1;
        }
    }
    assert!(in_flight.iter().all(|&writes| writes <= 1), "{in_flight:?}");
}

proptest! {
    /// Whatever order commands end in, a drive sees each zone's writes one at a time, in order.
    #[test]
    fn zones_are_written_at_their_write_pointers(
        steps in prop::collection::vec(step(), 1..120),
        depth in 1..6u32,
        scheduled: bool,
        nomerges: bool,
    ) {
        let mut config = QueueConfig { queue_depth: depth, ..zoned() };
        if nomerges {
            config.limits.nomerges = blklab_blk::NoMerges::Never;
        }
        let mut f = match scheduled {
            true => Fixture::with_fifo(&config, FifoState::default()).0,
            false => Fixture::new(&config),
        };
        let (mut next, mut written) = ([0u64; ZONES as usize], [0u64; ZONES as usize]);
        let (mut seen, mut submitted, mut ended) = (0, 0u64, Vec::new());
        for step in steps.into_iter().chain([ZoneStep::Unplug]) {
            match step {
                ZoneStep::Write { zone, units } if f.waiters.is_empty() => {
                    let at = &mut next[zone as usize];
                    let sectors = (4 * units).min(192 - *at as u32);
                    if sectors > 0 {
                        let sector = Sector(zone * ZONE + *at);
                        *at += u64::from(sectors);
                        submitted += 1;
                        f.submit_plugged(0, Bio::new(Op::Write, sector, sectors));
                    }
                }
                ZoneStep::Read { sector } if f.waiters.is_empty() => {
                    submitted += 1;
                    f.submit_plugged(0, Bio::new(Op::Read, Sector(sector), 8));
                }
                ZoneStep::Unplug => f.unplug(),
                ZoneStep::Complete(pick) if !f.driver.in_flight.is_empty() => {
                    let at = pick % f.driver.in_flight.len();
                    f.driver.in_flight.swap(0, at);
                    f.complete(IoStatus::Ok);
                }
                _ => f.process(),
            }
            f.resume_woken();
            check_commands(&f, &mut seen, &mut written);
        }
        for _ in 0..1000 {
            f.unplug();
            f.process();
            if !f.driver.in_flight.is_empty() {
                f.complete(IoStatus::Ok);
            }
            f.resume_woken();
            check_commands(&f, &mut seen, &mut written);
        }
        ended.extend(f.ended());
        prop_assert!(f.queue.is_idle() && f.waiters.is_empty());
        prop_assert_eq!(ended.len() as u64, submitted);
        prop_assert!(ended.iter().all(|(_, status)| *status == IoStatus::Ok));
        prop_assert_eq!(next, written);
    }
}
