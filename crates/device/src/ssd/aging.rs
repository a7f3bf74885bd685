//! Ages a drive by carrying out every write, without time: the long way, which
//! the short one ([`super::steady`]) is checked against.

use super::copies::Holds;
use super::ftl::{Ftl, Stream};
use super::gc::choose_victim;
use super::rng::Rng;
use super::spec::{AgedSpec, GcSpec};

/// How often the whole address space is overwritten.
const PASSES: u64 = 12;

/// Overwrites a drive that was filled in order until it is steady.
pub(crate) fn overwrite(ftl: &mut Ftl, aged: &AgedSpec, gc: &GcSpec, slots: u64, rng: &mut Rng) {
    let writes = match &ftl.hybrid {
        None => slots * PASSES,
        // Data blocks stay full; what changes is what the logs hold.
        Some(hybrid) => hybrid.all_random_logs() * ftl.slots_per_block() as u64 * PASSES,
    };
    for _ in 0..writes {
        let slot = aged.draw(slots as u32, rng);
        if ftl.hybrid.is_some() {
            ftl.write_to_logs(slot);
            continue;
        }
        let row = ftl.row_of(ftl.target(slot));
        for plane in row.clone() {
            while ftl.wants_collection(plane) && collect(ftl, plane, gc, rng) {}
        }
        write(
            ftl,
            ftl.in_turn(row.start, Stream::Host),
            slot,
            Stream::Host,
        );
    }
    // Nothing may be left in DRAM before the first command.
    for plane in 0..ftl.plane_count() {
        for stream in Stream::all() {
            if let Some(record) = ftl.filling(plane, stream) {
                ftl.close(record);
                ftl.programmed(record);
            }
        }
    }
    ftl.forget_wear();
}

pub(super) fn write(ftl: &mut Ftl, plane: u32, slot: u32, stream: Stream) {
    let record = ftl.write(plane, slot, stream, 0);
    if ftl.is_full(record) {
        ftl.close(record);
        ftl.programmed(record);
    }
}

/// Empties and erases one block; `false` where that would free nothing.
fn collect(ftl: &mut Ftl, plane: u32, gc: &GcSpec, rng: &mut Rng) -> bool {
    let Some(victim) = choose_victim(ftl, plane, ftl.most_to_move(plane, plane), gc, rng) else {
        return false;
    };
    ftl.begin_collection(victim);
    let first = ftl.page_start(victim, 0);
    for at in first..first + ftl.slots_per_block() {
        if let Holds::Current(slot) = ftl.holds(at) {
            let to = ftl.collection_plane(plane, Stream::Collection);
            write(ftl, to, slot, Stream::Collection);
        }
    }
    ftl.erased(plane, victim);
    true
}
