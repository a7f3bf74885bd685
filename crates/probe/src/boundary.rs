//! Boundaries of pages, erase blocks and allocation units, as `flashbench -a`
//! finds them (A. Bergmann's flashbench): a read across a boundary takes
//! longer than one just before it or just behind.

use crate::finding::{Finding, median, size};
use crate::target::{Io, Places, ProbeError, Target};

const TRIALS: usize = 32;
const LARGEST: u64 = 64 << 20;

/// A read across must take so much longer.
const STEP: f64 = 1.15;

/// Finds the smallest alignment that costs reads across it.
pub(crate) fn boundary(target: &mut dyn Target, seed: u64) -> Result<Finding<u64>, ProbeError> {
    let unit = target.block_bytes().max(4096);
    let capacity = target.capacity_bytes();
    let mut places = Places::new(seed);
    let mut align = unit * 4;
    let mut steps = Vec::new();
    while align <= LARGEST && align * 8 <= capacity {
        let (mut across, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..TRIALS {
            // An odd multiple, so that no larger boundary is met.
            let at = places.aligned(align * 2, align * 2, capacity) + align;
            across.push(target.run(&[Io::read(at - unit, unit * 2)], 1)?.elapsed_ns);
            beside.push(
                target
                    .run(&[Io::read(at - unit * 2, unit * 2)], 1)?
                    .elapsed_ns,
            );
            beside.push(target.run(&[Io::read(at, unit * 2)], 1)?.elapsed_ns);
        }
        let usual = median(&beside).max(1);
        let longer = across.iter().filter(|ns| **ns as f64 > usual as f64 * STEP);
        let share = longer.count() as f64 / TRIALS as f64;
        steps.push((align, median(&across) as f64 / usual as f64, share));
        align *= 2;
    }
    let found = steps.iter().find(|(_, ratio, _)| *ratio > STEP);
    Ok(match found {
        Some(&(align, ratio, share)) => {
            let percent = (ratio - 1.0) * 100.0;
            let seen = format!("reads across {} take {percent:.0} % longer", size(align));
            Finding::found(align, share, seen)
        }
        None => Finding::none("reads across no boundary take longer"),
    })
}
