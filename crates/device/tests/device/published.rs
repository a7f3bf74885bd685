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

/// What the model makes of a figure.
fn simulated(spec: &DriveSpec, key: &str) -> f64 {
    let is_disk = spec.identity().rotational;
    let published = spec.published.as_ref().expect("it has the figure");
    let most = spec.identity().queue_depth;
    let one = RandomWork {
        requests: if is_disk { 1500 } else { 3000 },
        depth: 1,
        read_percent: 100,
        bytes: 4096,
        share: 1.0,
        seed: 798,
        sequential: false,
    };
    let many = RandomWork {
        requests: if is_disk { 3000 } else { 60_000 },
        depth: published.random_depth.min(most),
        ..one
    };
    let in_order = RandomWork {
        requests: 12_000,
        depth: most.min(32),
        bytes: 131_072,
        sequential: true,
        ..one
    };
    let written = |work| RandomWork {
        read_percent: 0,
        ..work
    };
    // A drive that was written at random keeps nothing in order.
    let in_state = |state| {
        spec.clone()
            .in_state(state)
            .unwrap_or_else(|_| spec.clone())
    };
    let mb_s = |outcome: Outcome| outcome.iops * 131_072e-6;
    match key {
        "sequential_read_mb_s" => mb_s(measure(&in_state(DriveState::Filled), in_order)),
        "sequential_write_mb_s" => mb_s(measure(&in_state(DriveState::Filled), written(in_order))),
        "burst_write_mb_s" => mb_s(measure(&in_state(DriveState::Fresh), written(in_order))),
        "random_read_iops" => measure(spec, many).iops,
        "random_write_iops" => measure(spec, written(many)).iops,
        "read_us" => measure(spec, one).read_mean_us(),
        "write_us" => measure(spec, written(one)).write_mean_us(),
        "flush_us" => flush_us(spec.build(1).as_mut(), 200),
        _ => panic!("{key}: no such figure"),
    }
}

#[test]
fn every_drive_does_what_is_published_of_it_or_says_why_not() {
    let mut wrong = Vec::new();
    for name in registry::names() {
        let spec = registry::find(name).expect("listed").expect("parses");
        let Some(published) = spec.published.clone() else {
            continue;
        };
        for (key, figure) in published.figures() {
            let found = simulated(&spec, key);
            let is_met = (found / figure - 1.0).abs() <= SHARE;
            println!("{name} {key}: {figure} published, {found:.1} simulated");
            if is_met == published.why_unmet(key).is_some() {
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
