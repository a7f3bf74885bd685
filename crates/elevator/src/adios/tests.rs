use super::*;
use crate::rig::{Rig, queue_info};
use blklab_blk::Sector;

fn bio(op: Op, flags: BioFlags, sector: u64, sectors: u32) -> Bio {
    Bio {
        flags,
        ..Bio::new(op, Sector(sector), sectors)
    }
}

fn serve(rig: &mut Rig, bio: &Bio, us: u64) {
    rig.insert(bio);
    let id = rig.dispatch().expect("has one");
    rig.now += Nanos::from_micros(us);
    rig.complete(id);
    rig.run_timer();
}

fn state(rig: &Rig, name: &str) -> i64 {
    let state = rig.elevator.debug_state();
    state.iter().find(|(n, _)| *n == name).unwrap().1
}

/// A read takes 100 us and a write 1 ms, and a while has gone by.
fn taught() -> Rig {
    let mut rig = Rig::new(Box::new(Adios::new(&queue_info())));
    rig.pass_ms(1);
    for i in 0..20 {
        serve(
            &mut rig,
            &bio(Op::Read, BioFlags::NONE, 8000 + i * 100, 8),
            100,
        );
        serve(
            &mut rig,
            &bio(Op::Write, BioFlags::NONE, 8000 + i * 100, 8),
            1000,
        );
    }
    rig.pass_ms(2000);
    rig.run_timer();
    // The last request that still goes by arrival turns the models on.
    serve(&mut rig, &bio(Op::Read, BioFlags::NONE, 4, 8), 100);
    rig
}

#[test]
fn learns_the_base_of_each_kind_and_the_slope() {
    let mut rig = taught();
    assert!(state(&rig, "lat_model_read_base").abs_diff(100_000) < 2_000);
    assert!(state(&rig, "lat_model_write_base").abs_diff(1_000_000) < 20_000);
    for i in 0..200 {
        serve(&mut rig, &bio(Op::Read, BioFlags::NONE, i * 1000, 136), 740);
    }
    rig.pass_ms(2000);
    rig.run_timer();
    serve(&mut rig, &bio(Op::Read, BioFlags::NONE, 4, 136), 740);
    // 640 us more for 64 KiB more; the base counts into the sum but once.
    let slope = state(&rig, "lat_model_read_slope");
    assert!((9_000..=11_500).contains(&slope), "{slope}");
}

#[test]
fn goes_by_arrival_until_reads_and_writes_are_known() {
    let mut rig = Rig::new(Box::new(Adios::new(&queue_info())));
    for (i, op) in [Op::Write, Op::Read, Op::Write, Op::Read]
        .into_iter()
        .enumerate()
    {
        rig.insert(&bio(op, BioFlags::NONE, 1000 * i as u64, 8));
    }
    assert_eq!(rig.drain_sectors(), [0, 1000, 2000, 3000]);
}

/// The first line of `batch_actual_max`.
fn largest_batch(rig: &Rig) -> u64 {
    let shown = shown(rig, "batch_actual_max");
    let total = shown
        .lines()
        .next()
        .and_then(|l| l.strip_prefix("Total  : "));
    total.and_then(|n| n.parse().ok()).expect("a total")
}

#[test]
fn a_batch_fits_the_window_and_its_limits() {
    let mut rig = taught();
    for i in 0..100 {
        rig.insert(&bio(Op::Write, BioFlags::NONE, 1000 * i, 8));
    }
    rig.drain();
    // 16 ms hold 15 or 16 writes of a millisecond.
    assert!((15..=16).contains(&largest_batch(&rig)));
    let mut rig = taught();
    for i in 0..100 {
        rig.insert(&bio(Op::Read, BioFlags::NONE, 1000 * i, 8));
    }
    rig.dispatch();
    assert_eq!(largest_batch(&rig), 36);
}

#[test]
fn synchronous_writes_go_by_age_before_asynchronous_ones() {
    let mut rig = taught();
    for i in 0..5 {
        rig.insert(&bio(Op::Write, BioFlags::NONE, 1000 * i, 8));
    }
    rig.pass_ms(5);
    let sync = rig.insert(&bio(Op::Write, BioFlags::SYNC, 90_000, 8));
    assert_eq!(rig.dispatch(), sync);
}

#[test]
fn reads_go_first_in_a_batch_and_writes_are_not_starved() {
    let mut rig = taught();
    rig.insert(&bio(Op::Write, BioFlags::NONE, 0, 8));
    for i in 1..10 {
        rig.insert(&bio(Op::Read, BioFlags::NONE, 1000 * i, 8));
    }
    let ids = rig.drain();
    assert!(rig.rq(ids[9]).is_write());

    let mut rig = taught();
    let write = rig.insert(&bio(Op::Write, BioFlags::SYNC, 0, 8));
    let mut sent = 0;
    for i in 1.. {
        rig.insert(&bio(Op::Read, BioFlags::NONE, 1000 * i, 8));
        rig.now += Nanos::from_micros(100);
        let id = rig.dispatch().unwrap();
        rig.complete(id);
        if Some(id) == write {
            break;
        }
        sent += 1;
    }
    assert!(sent < 500, "the write waited for {sent} reads");
}

#[test]
fn a_discard_waits_for_what_came_before_and_is_waited_for() {
    let mut rig = taught();
    let before = rig.insert(&bio(Op::Write, BioFlags::NONE, 0, 8));
    let discard = rig.insert(&bio(Op::Discard, BioFlags::NONE, 5000, 8));
    let behind = rig.insert(&bio(Op::Read, BioFlags::SYNC, 9000, 8));
    let ids: Vec<_> = rig.drain().into_iter().map(Some).collect();
    assert_eq!(ids, [before, discard, behind]);
}

fn shown(rig: &Rig, name: &str) -> String {
    rig.elevator.attribute(name).expect(name)
}

fn write(rig: &mut Rig, name: &str, text: &str) {
    let mut attributes = ATTRIBUTES.iter();
    let attribute = attributes.find(|a| a.name == name).expect(name);
    let numbers = attribute.parse(text).expect(text);
    rig.elevator.set_attribute(name, &numbers);
}

#[test]
fn models_can_be_written_and_reset() {
    let mut rig = Rig::new(Box::new(Adios::new(&queue_info())));
    write(&mut rig, "lat_model_read", "90000 4000");
    assert_eq!(
        shown(&rig, "lat_model_read"),
        "base : 90000 ns\nslope: 4000 ns/KiB"
    );
    write(&mut rig, "reset_lat_model", "1 2 3 4 5 6");
    assert_eq!(
        shown(&rig, "lat_model_discard"),
        "base : 5 ns\nslope: 6 ns/KiB"
    );
    write(&mut rig, "reset_lat_model", "1");
    assert_eq!(
        shown(&rig, "lat_model_write"),
        "base : 0 ns\nslope: 0 ns/KiB"
    );
}

#[test]
fn a_written_model_is_used_from_the_second_request_on() {
    let mut rig = Rig::new(Box::new(Adios::new(&queue_info())));
    write(&mut rig, "reset_lat_model", "100000 0 1000000 0 0 0");
    serve(&mut rig, &bio(Op::Read, BioFlags::NONE, 0, 8), 100);
    for i in 0..100 {
        rig.insert(&bio(Op::Write, BioFlags::NONE, 1000 * i, 8));
    }
    rig.drain();
    assert_eq!(largest_batch(&rig), 16);
    assert_eq!(
        shown(&rig, "batch_actual_max"),
        "Total  : 16\nDiscard: 0\nRead   : 0\nWrite  : 16"
    );
    write(&mut rig, "reset_bq_stats", "1");
    assert!(shown(&rig, "batch_actual_max").starts_with("Total  : 0\n"));
}

#[test]
fn a_fixed_order_does_not_heed_what_is_predicted() {
    for (flags, first) in [(0, 1000), (1, 0)] {
        let mut rig = Rig::new(Box::new(Adios::new(&queue_info())));
        rig.set("compliance_flags", flags);
        rig.set("batch_limit_read", 1);
        write(&mut rig, "reset_lat_model", "100000 1000000 100000 0 0 0");
        serve(&mut rig, &bio(Op::Read, BioFlags::NONE, 9000, 8), 100);
        // The first is large: 124 ms are foretold.
        rig.insert(&bio(Op::Read, BioFlags::NONE, 0, 256));
        rig.insert(&bio(Op::Read, BioFlags::NONE, 1000, 8));
        let id = rig.dispatch().unwrap();
        assert_eq!(rig.rq(id).sector.0, first);
    }
}

#[test]
fn only_a_drive_with_moving_parts_has_its_batches_sorted() {
    let mut rig = Rig::new(Box::new(Adios::new(&queue_info())));
    assert!(rig.elevator.set_tunable("batch_order", 1).is_err());
    let disk = QueueInfo {
        rotational: true,
        ..queue_info()
    };
    let mut rig = Rig::new(Box::new(Adios::new(&disk)));
    rig.set("batch_order", 1);
    write(&mut rig, "reset_lat_model", "100000 0 100000 0 0 0");
    serve(&mut rig, &bio(Op::Read, BioFlags::NONE, 0, 8), 100);
    for sector in [900, 300, 600] {
        rig.insert(&bio(Op::Write, BioFlags::NONE, sector, 8));
    }
    assert_eq!(rig.drain_sectors(), [300, 600, 900]);
}
