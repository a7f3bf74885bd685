//! A link that serves one direction at a time.

use blklab_blk::{Nanos, Op, Sector};

use crate::ssd::Ssd;
use crate::ssd::tests::small;
use crate::{Command, Completion, Device};

/// A read and, behind it, writes that the controller takes one every 20 us: when
/// each of them ended.
fn ends(full_duplex: bool) -> Vec<u64> {
    let duplex = format!("full_duplex = {full_duplex}");
    let drive = small(&[
        ("full_duplex = true", &duplex),
        ("[controller]", "[controller]\ninterval_us = 20"),
    ]);
    let mut drive = Ssd::new(drive, 1);
    for tag in 0..20 {
        let command = Command {
            tag,
            queue: 0,
            op: if tag == 0 { Op::Read } else { Op::Write },
            sector: Sector(tag as u64 * 8),
            sectors: 8,
            fua: false,
        };
        drive.submit(Nanos(0), command);
    }
    let mut done: Vec<Completion> = Vec::new();
    drive.advance(Nanos(1 << 40), &mut done);
    done.sort_by_key(|end| end.tag);
    done.iter().map(|end| end.at.0).collect()
}

/// What the controller has not taken yet is not on the link: nobody waits for it.
#[test]
fn a_shared_link_is_taken_when_data_moves_and_not_before() {
    const PAGE_NS: u64 = 4096 * 1000 / 3000 + 1;
    for (shared, apart) in ends(false).into_iter().zip(ends(true)) {
        assert!(shared <= apart + 2 * PAGE_NS, "{shared} ns, {apart} apart");
    }
}
