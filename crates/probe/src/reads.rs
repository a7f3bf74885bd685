//! Findings from reads: the gain from queue depth, and alignments that slow reads down.

use crate::finding::{Finding, median, size};
use crate::target::{Io, Places, ProbeError, Target};

/// Number of reads at a depth.
const READS: usize = 2048;
/// The tested depths.
const DEPTHS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// More depth with a smaller factor than this is no gain.
const GAIN: f64 = 1.05;

/// Gain from queue depth.
#[derive(Clone, Debug, PartialEq)]
pub struct Speedup {
    /// Random reads per second at each depth.
    pub iops: Vec<(usize, f64)>,
    /// Ratio of the highest rate to that at depth 1.
    pub factor: f64,
    /// The smallest depth with nearly the highest rate.
    pub depth: usize,
}

/// Measures random reads at every depth, which shows the parallelism available to a host (Chen et
/// al., HPCA 2011, figure 5).
pub(crate) fn speedup(target: &mut dyn Target, seed: u64) -> Result<Finding<Speedup>, ProbeError> {
    let mut places = Places::new(seed);
    let unit = target.block_bytes().max(4096);
    let capacity = target.capacity_bytes();
    let mut iops = Vec::new();
    for depth in DEPTHS {
        // A shallow run takes long and needs fewer reads.
        let reads = READS.min(depth * 256);
        let ios: Vec<Io> = (0..reads)
            .map(|_| Io::read(places.aligned(unit, unit, capacity), unit))
            .collect();
        let batch = target.run(&ios, depth)?;
        iops.push((depth, reads as f64 * 1e9 / batch.elapsed_ns.max(1) as f64));
    }
    let most = iops.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let enough = iops.iter().find(|(_, rate)| rate * GAIN >= most);
    let depth = enough.map_or(1, |(depth, _)| *depth);
    let factor = most / iops[0].1;
    let seen = format!(
        "{:.0} random reads a second one at a time, {most:.0} at depth {depth}",
        iops[0].1
    );
    let value = Speedup {
        iops,
        factor,
        depth,
    };
    Ok(Finding::found(value, 1.0, seen))
}

/// Number of reads at each alignment.
const TRIALS: usize = 32;
/// The largest tested alignment, in bytes.
const LARGEST: u64 = 64 << 20;

/// A read across a boundary must be slower by this factor.
const STEP: f64 = 1.15;

/// Finds the smallest alignment across which reads are slower, that is, boundaries of pages, erase
/// blocks and allocation units, like `flashbench -a` (A. Bergmann's flashbench). A read across a
/// boundary takes longer than one just before or after it.
pub(crate) fn boundary(target: &mut dyn Target, seed: u64) -> Result<Finding<u64>, ProbeError> {
    let unit = target.block_bytes().max(4096);
    let capacity = target.capacity_bytes();
    let mut places = Places::new(seed);
    let mut align = unit * 4;
    let mut steps = Vec::new();
    while align <= LARGEST && align * 8 <= capacity {
        let (mut across, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..TRIALS {
            // An odd multiple, which is not on a larger boundary.
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
