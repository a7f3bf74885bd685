//! The order in which a unit starts what waits for it.

use crate::ssd::events::{Lane, Lanes};
use crate::ssd::flash::Backend;
use crate::ssd::flash::transaction::{NONE, Op, OpKind, Rank, Source};
use crate::ssd::tests::small;

/// A drive of one unit with two planes, that starts one read in a row.
fn backend() -> Backend {
    let scheduling = "scheduling = \"read_priority\"";
    let limited = format!("{scheduling}\nreads_in_a_row = 1");
    Backend::new(&small(&[(scheduling, &limited)]))
}

/// Queues operations of plane 0 all at once; their places in the order in which
/// they end.
fn ends(backend: &mut Backend, ops: &[(OpKind, u32)]) -> Vec<u32> {
    let ops: Vec<_> = ops
        .iter()
        .map(|(kind, block)| (*kind, *block, Rank::Normal))
        .collect();
    queue(backend, &ops);
    ends_of_queued(backend, |op| op.owner)
}

fn queue(backend: &mut Backend, ops: &[(OpKind, u32, Rank)]) {
    queue_at(backend, 0, ops);
}

fn queue_at(backend: &mut Backend, now_ns: u64, ops: &[(OpKind, u32, Rank)]) {
    for (place, (kind, block, rank)) in ops.iter().enumerate() {
        let op = Op {
            next: NONE,
            owner: match rank {
                // Collection's operations name their plane.
                Rank::Last => 0,
                _ => place as u32,
            },
            plane: 0,
            place: 0,
            die: 0,
            block: *block,
            page: 0,
            bytes: 4096,
            copies: NONE,
            kind: *kind,
            source: match rank {
                Rank::Normal => Source::Host,
                _ => Source::Gc,
            },
            rank: *rank,
            collects: *rank != Rank::Normal,
            slc: false,
            ready: true,
            arrival: 0,
            write_clock_ns: 0,
            collection_clock_ns: 0,
            command: NONE,
        };
        backend.enqueue(now_ns, op);
    }
}

fn ends_of_queued<T>(backend: &mut Backend, what: impl Fn(&Op) -> T) -> Vec<T> {
    let mut ended = Vec::new();
    while let Some((now_ns, lane, event)) = backend.lanes.pop_due(Lanes::until(u64::MAX)) {
        match lane {
            Lane::DATA_OUT => {
                backend.data_out(now_ns, event);
                backend.finished.push(event);
            }
            Lane::BUS => backend.bus_free(now_ns, event),
            _ => backend.array_done(now_ns, event),
        }
        for index in std::mem::take(&mut backend.finished) {
            ended.push(what(&backend.ops[index]));
            backend.ops.remove(index);
        }
    }
    ended
}

const READ: OpKind = OpKind::Read;
const ERASE: OpKind = OpKind::Erase;

#[test]
fn an_erase_has_its_turn_after_reads_in_a_row() {
    let ops = [(READ, 1), (READ, 2), (READ, 3), (ERASE, 9)];
    assert_eq!(ends(&mut backend(), &ops), [0, 3, 1, 2]);
}

#[test]
fn what_was_stopped_for_reads_goes_on_after_so_many() {
    let scheduling = "scheduling = \"read_priority\"";
    let ended = |bound: &str| {
        let limited = format!("{scheduling}{bound}");
        let stops = "erase_us = 500\nprogram_suspend_us = 1";
        let spec = small(&[(scheduling, &limited), ("erase_us = 500", stops)]);
        let mut drive = Backend::new(&spec);
        let normal = |kind, block| (kind, block, Rank::Normal);
        queue(&mut drive, &[normal(PROGRAM, 1)]);
        // The array is at work for 50 us.
        let reads: Vec<_> = (2..7).map(|block| normal(READ, block)).collect();
        queue_at(&mut drive, 20_000, &reads);
        let kinds = ends_of_queued(&mut drive, |op| op.kind);
        kinds.iter().position(|kind| *kind == PROGRAM)
    };
    assert_eq!(ended(""), Some(5));
    // It is not stopped again.
    assert_eq!(ended("\nreads_in_a_row = 2"), Some(2));
}

#[test]
fn an_erase_does_not_pass_a_read_of_its_block() {
    let ops = [(READ, 1), (READ, 2), (READ, 9), (READ, 3), (ERASE, 9)];
    assert_eq!(ends(&mut backend(), &ops), [0, 1, 2, 4, 3]);
}

const PROGRAM: OpKind = OpKind::Program;

#[test]
fn what_the_host_waits_for_goes_before_reads_and_programs() {
    let normal = |kind, block| (kind, block, Rank::Normal);
    let urgent = |kind, block| (kind, block, Rank::First);
    let mut drive = backend();
    let ops = [
        normal(READ, 1),
        normal(PROGRAM, 2),
        normal(READ, 3),
        urgent(ERASE, 9),
    ];
    queue(&mut drive, &ops);
    assert_eq!(ends_of_queued(&mut drive, |op| op.owner), [0, 3, 2, 1]);
    // Nothing is lost under a read: the block is erased after it.
    let mut drive = backend();
    let ops = [
        normal(READ, 1),
        normal(PROGRAM, 2),
        normal(READ, 9),
        urgent(ERASE, 9),
    ];
    queue(&mut drive, &ops);
    assert_eq!(ends_of_queued(&mut drive, |op| op.owner), [0, 2, 3, 1]);
}

#[test]
fn background_work_is_promoted_where_it_waits() {
    let ops = [
        (READ, 1, Rank::Normal),
        (PROGRAM, 2, Rank::Normal),
        (ERASE, 9, Rank::Last),
    ];
    let kinds = |promote: bool| -> Vec<OpKind> {
        let mut drive = backend();
        queue(&mut drive, &ops);
        if promote {
            drive.promote_collection(0, 0, 0..1);
        }
        let ended = ends_of_queued(&mut drive, |op| op.owner);
        assert_eq!(ended.len(), 3);
        // The erase names plane 0, and so does the first read its place.
        let place = ended.iter().skip(1).position(|owner| *owner == 1);
        match place {
            Some(0) => vec![PROGRAM, ERASE],
            _ => vec![ERASE, PROGRAM],
        }
    };
    assert_eq!(kinds(false), [PROGRAM, ERASE]);
    assert_eq!(kinds(true), [ERASE, PROGRAM]);
}
