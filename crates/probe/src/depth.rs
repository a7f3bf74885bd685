//! How much faster random reads become when many are in flight: what the
//! drive does in parallel, as far as it lets a host have it (Chen et al.,
//! HPCA 2011, figure 5).

use crate::finding::Finding;
use crate::target::{Io, Places, ProbeError, Target};

const READS: usize = 2048;
const DEPTHS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// More depth that gains less than this gains nothing.
const GAIN: f64 = 1.05;

/// What depth brings.
#[derive(Clone, Debug, PartialEq)]
pub struct Speedup {
    /// Random reads a second at each depth.
    pub iops: Vec<(usize, f64)>,
    /// The most against one at a time.
    pub factor: f64,
    /// The least depth that has most of it.
    pub depth: usize,
}

/// Measures random reads at every depth.
pub(crate) fn speedup(target: &mut dyn Target, seed: u64) -> Result<Finding<Speedup>, ProbeError> {
    let mut places = Places::new(seed);
    let unit = target.block_bytes().max(4096);
    let capacity = target.capacity_bytes();
    let mut iops = Vec::new();
    for depth in DEPTHS {
        // A shallow run takes long and needs less.
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
