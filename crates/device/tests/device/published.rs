//! Drives against what their files say is published of them.

use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, Device, DriveSpec, DriveState, registry};

use crate::harness::{Outcome, RandomWork, Rng, closed_loop};

/// How far the model may be from a figure.
const SHARE: f64 = 0.15;

fn measure(spec: &DriveSpec, work: RandomWork) -> Outcome {
    let outcome = closed_loop(spec.build(1).as_mut(), &work);
    assert_eq!(outcome.errors, 0, "{}", spec.name);
    outcome
}

/// The mean time of a flush after each of some writes, in microseconds.
fn flush_us(drive: &mut dyn Device, writes: u64) -> f64 {
    let (mut rng, mut done) = (Rng::new(798), Vec::new());
    let (mut now, mut flushing_ns) = (Nanos::ZERO, 0);
    let places = drive.identify().capacity_sectors / 8;
    for _ in 0..writes {
        for (op, sectors) in [(Op::Write, 8), (Op::Flush, 0)] {
            let since = now;
            let command = Command {
                tag: 0,
                queue: 0,
                op,
                sector: Sector(rng.below(places) * 8),
                sectors,
                fua: false,
            };
            drive.submit(now, command);
            now = drive.advance_to_completion(Nanos::MAX, &mut done);
            done.clear();
            flushing_ns += (op == Op::Flush) as u64 * (now - since).0;
        }
    }
    flushing_ns as f64 / writes as f64 / 1e3
}

/// The work of the figures on one drive.
struct Figures {
    spec: DriveSpec,
    /// Random reads at depth 1.
    one: RandomWork,
    /// Random reads at the depth of the figures.
    many: RandomWork,
    /// Sequential reads of 128 KiB.
    in_order: RandomWork,
}

impl Figures {
    fn of(spec: &DriveSpec) -> Figures {
        let (identity, published) = (spec.identity(), spec.published.as_ref());
        let published = published.expect("it has figures");
        let capacity = identity.capacity_sectors as f64;
        // A zoned drive is measured in one zone, which it is written in, too.
        let zone_share = (identity.zones).map(|zones| f64::from(zones.capacity_sectors) / capacity);
        let random_share = (published.random_mb).map(|mb| mb * 1e6 / (capacity * 512.0));
        let few = identity.rotational;
        let one = RandomWork {
            requests: if few { 1500 } else { 3000 },
            depth: 1,
            read_percent: 100,
            bytes: 4096,
            share: random_share.or(zone_share).unwrap_or(1.0),
            seed: 798,
            sequential: false,
        };
        Figures {
            spec: spec.clone(),
            one,
            many: RandomWork {
                requests: if few { 3000 } else { 60_000 },
                depth: published.random_depth.min(identity.queue_depth),
                ..one
            },
            in_order: RandomWork {
                // A controller's cache before a disk takes the first gigabyte at once.
                requests: if few { 80_000 } else { 8_000 },
                depth: identity.queue_depth.min(32),
                bytes: 131_072,
                share: zone_share.unwrap_or(1.0),
                sequential: true,
                ..one
            },
        }
    }

    fn in_state(&self, state: DriveState) -> DriveSpec {
        let spec = self.spec.clone();
        spec.in_state(state).unwrap_or_else(|_| self.spec.clone())
    }

    /// The drive with data to read, as it was left.
    fn with_data(&self) -> DriveSpec {
        match self.spec.state() {
            DriveState::Fresh => self.in_state(DriveState::Filled),
            DriveState::Filled | DriveState::Aged => self.spec.clone(),
        }
    }

    /// Writes instead of reads: those of a zoned drive are in order, in an empty zone.
    fn write(&self, state: Option<DriveState>, work: RandomWork) -> Outcome {
        let is_zoned = self.spec.identity().zones.is_some();
        let work = RandomWork {
            read_percent: 0,
            sequential: work.sequential || is_zoned,
            ..work
        };
        let state = if is_zoned {
            Some(DriveState::Fresh)
        } else {
            state
        };
        measure(&state.map_or(self.spec.clone(), |s| self.in_state(s)), work)
    }

    /// What the model makes of a figure.
    fn simulated(&self, key: &str) -> f64 {
        let mb_s = |outcome: Outcome| outcome.iops * 131_072e-6;
        // A drive that was written at random keeps nothing in order.
        let (filled, fresh) = (Some(DriveState::Filled), Some(DriveState::Fresh));
        match key {
            "sequential_read_mb_s" => {
                mb_s(measure(&self.in_state(DriveState::Filled), self.in_order))
            }
            "sequential_write_mb_s" => mb_s(self.write(filled, self.in_order)),
            "burst_write_mb_s" => mb_s(self.write(fresh, self.in_order)),
            "random_read_iops" => measure(&self.with_data(), self.many).iops,
            "random_write_iops" => self.write(None, self.many).iops,
            "read_us" => measure(&self.with_data(), self.one).read_mean_us(),
            "write_us" => self.write(None, self.one).write_mean_us(),
            "flush_us" => flush_us(self.spec.build(1).as_mut(), 200),
            _ => panic!("{key}: no such figure"),
        }
    }
}

/// Drives of the list that are no drive of a maker's nor of a class, so that nobody
/// publishes figures of them, and why.
const STAND_INS: [(&str, &str); 6] = [
    ("null", "only takes time"),
    ("loop", "a file on another drive"),
    ("memory", "a file in memory"),
    (
        "mqsim-default",
        "MQSim's own description, judged against MQSim",
    ),
    ("mqsim-ideal", "likewise"),
    (
        "sd-card-hybrid",
        "sd-card from inside, for what its mapping does",
    ),
];

#[test]
fn every_drive_does_what_is_published_of_it_or_says_why_not() {
    let mut wrong = Vec::new();
    for name in registry::names() {
        let spec = registry::find(name).expect("listed").expect("parses");
        let is_stand_in = STAND_INS.iter().any(|(stand_in, _)| *stand_in == name);
        let Some(published) = &spec.published else {
            assert!(is_stand_in, "{name}: a real drive without [published]");
            continue;
        };
        assert!(!is_stand_in, "{name}: a stand-in with [published]");
        assert!(published.figures().count() > 0, "{name}: nothing published");
        let figures = Figures::of(&spec);
        for (key, figure) in published.figures() {
            let found = figures.simulated(key);
            let is_met = (found / figure - 1.0).abs() <= SHARE;
            println!("{name} {key}: {figure} published, {found:.1} simulated");
            let mut unmet = published.unmet.iter().filter_map(|of| of.split_once(':'));
            let may_miss = unmet.any(|(name, _)| name.trim() == key);
            if is_met == may_miss {
                wrong.push(format!(
                    "{name} {key}: {figure} published, {found:.1} simulated"
                ));
            }
        }
        for entry in &published.unmet {
            let key = entry.split(':').next().unwrap_or_default();
            let is_figure = published.figures().any(|(name, _)| name == key);
            assert!(is_figure, "{name}: {entry}");
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Drives that read 4 KiB in order more slowly than at random with several in flight, and
/// why.
const WITHOUT_READ_AHEAD: [(&str, &str); 4] = [
    ("mx100-256-ranges", "as document 002 assumes an MX100 to be"),
    (
        "p3600-1600gb",
        "reads ahead of one read at a time alone, as was measured",
    ),
    ("mqsim-default", "MQSim reads a page for each half of it"),
    ("mqsim-ideal", "likewise"),
];

/// A controller reads ahead of reads in order: an Ultrastar DC ZN540 takes 7.6 us for one
/// and 72.6 us for a random one (stonet-research/NVMeBenchmarks).
#[test]
fn reads_in_order_are_not_slower_than_random_ones() {
    let mut slow = Vec::new();
    for name in registry::names() {
        let spec = registry::find(name).expect("listed").expect("parses");
        let identity = spec.identity().clone();
        // A fresh SSD would answer both without its flash.
        let spec = match spec.state() {
            DriveState::Fresh => spec.clone().in_state(DriveState::Filled).unwrap_or(spec),
            DriveState::Filled | DriveState::Aged => spec,
        };
        let capacity = identity.capacity_sectors as f64;
        for depth in [1, 2, 4].into_iter().filter(|d| *d <= identity.queue_depth) {
            let random = RandomWork {
                requests: if identity.rotational { 300 } else { 3000 },
                depth,
                read_percent: 100,
                bytes: 4096,
                share: (identity.zones)
                    .map_or(1.0, |zones| f64::from(zones.capacity_sectors) / capacity),
                seed: 5,
                sequential: false,
            };
            let in_order = RandomWork {
                sequential: true,
                ..random
            };
            let [random, in_order] = [random, in_order].map(|work| measure(&spec, work).iops);
            println!("{name} depth {depth}: {in_order:.0} in order, {random:.0} at random");
            let is_exempt = WITHOUT_READ_AHEAD.iter().any(|(drive, _)| *drive == name);
            if in_order < 0.97 * random && !is_exempt {
                slow.push(format!("{name} depth {depth}: {in_order:.0}, {random:.0}"));
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}

/// An SSD can be had in every state, and other drives in none.
#[test]
fn what_was_written_before_is_for_ssds() {
    for state in [DriveState::Fresh, DriveState::Filled, DriveState::Aged] {
        for name in ["nvme", "mx100-256", "qlc-1tb", "sd-card-a1"] {
            let spec = registry::find(name).expect("listed").expect("parses");
            let spec = spec.in_state(state).unwrap_or_else(|e| panic!("{e}"));
            assert!(flush_us(spec.build(1).as_mut(), 3) > 0.0);
        }
        let disk = registry::find("hdd-7200").expect("listed").expect("parses");
        let refusal = disk.in_state(state).expect_err("a disk");
        assert!(refusal.contains("hdd-7200") && refusal.contains(&state.to_string()));
    }
}
