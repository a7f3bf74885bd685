//! The order in which a unit starts what waits for it.

use super::super::lanes::Lane;
use super::super::op::{NONE, Op, OpKind, Source};
use super::super::tests::small;
use super::Backend;

/// A drive of one unit with two planes, that starts one read in a row.
fn backend() -> Backend {
    let scheduling = "scheduling = \"read_priority\"";
    let limited = format!("{scheduling}\nreads_in_a_row = 1");
    Backend::new(&small(&[(scheduling, &limited)]))
}

/// Queues operations of plane 0 all at once; their places in the order in which
/// they end.
fn ends(backend: &mut Backend, ops: &[(OpKind, u32)]) -> Vec<u32> {
    for (place, (kind, block)) in ops.iter().enumerate() {
        let op = Op {
            next: NONE,
            owner: place as u32,
            plane: 0,
            block: *block,
            page: 0,
            bytes: 4096,
            copies: NONE,
            kind: *kind,
            source: Source::Host,
            background: false,
            collects: false,
            slc: false,
            ready: true,
            arrival: 0,
            write_clock_ns: 0,
            collection_clock_ns: 0,
            command: NONE,
        };
        backend.enqueue(0, op);
    }
    let mut ended = Vec::new();
    while let Some((now_ns, lane, event)) = backend.lanes.pop() {
        match lane {
            Lane::DATA_OUT => ended.push(backend.data_out(now_ns, event).owner),
            Lane::BUS => backend.bus_free(now_ns, event),
            _ => backend.array_done(now_ns, event),
        }
        for index in std::mem::take(&mut backend.finished) {
            ended.push(backend.ops[index].owner);
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
fn an_erase_does_not_pass_a_read_of_its_block() {
    let ops = [(READ, 1), (READ, 2), (READ, 9), (READ, 3), (ERASE, 9)];
    assert_eq!(ends(&mut backend(), &ops), [0, 1, 2, 4, 3]);
}
