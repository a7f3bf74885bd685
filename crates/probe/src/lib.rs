//! Finds the internal structure of a drive from outside: chunks, how many work in parallel, how
//! addresses are mapped to them, the write buffer, the cost of reads after writes, and the point at
//! which writes become permanently slower.
//!
//! Every method is published; the modules name the sources. Every finding has the share of
//! measurements that agree, or an observation if they are not clear.

mod describe;
mod finding;
mod modelled;
mod pairs;
mod reads;
mod target;
mod writes;

use pairs::Pairs;

pub use describe::describe;
pub use finding::{BehindWrites, Cliff, Finding, Mapping, size};
pub use modelled::Modelled;
pub use pairs::Layout;
pub use reads::Speedup;
pub use target::{Batch, Io, Places, ProbeError, Target};

/// Options of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether the probe may write, which destroys the drive's data.
    pub writes: bool,
    /// The most bytes overwritten in the search for the cliff.
    pub cliff_bytes: u64,
    /// Seed for the tested positions.
    pub seed: u64,
}

/// Findings about a drive.
#[derive(Clone, Debug)]
pub struct Probed {
    /// Size of the drive in bytes.
    pub capacity_bytes: u64,
    /// Whether it has moving parts.
    pub is_rotational: bool,
    /// Rate of random reads by depth.
    pub speedup: Finding<Speedup>,
    /// Chunks and their mapping.
    pub layout: Layout,
    /// Mapping of addresses that have been overwritten.
    pub overwritten: Finding<Mapping>,
    /// The smallest alignment across which reads are slower, in bytes.
    pub boundary: Finding<u64>,
    /// Size of the write buffer in bytes.
    pub buffer: Finding<u64>,
    /// Cost of reads after writes.
    pub behind_writes: Finding<BehindWrites>,
    /// Cliff in long random writes.
    pub cliff: Finding<Cliff>,
}

/// Probes a drive. `begins` is called with the name of each step.
///
/// # Errors
/// If the drive fails an I/O.
pub fn probe(
    target: &mut dyn Target,
    plan: &Plan,
    begins: &mut dyn FnMut(&str),
) -> Result<Probed, ProbeError> {
    let seed = plan.seed;
    begins("random reads by depth");
    let speedup = reads::speedup(target, seed)?;
    let moving_parts = target.is_rotational().then(|| {
        let source = target.rotational_source();
        format!("{source} says that the drive has moving parts, where distance is time")
    });
    begins("pairs of reads");
    let layout = match &moving_parts {
        Some(seen) => Layout::none(seen),
        None => Pairs::new(target, seed).layout()?,
    };
    begins("reads across boundaries");
    let boundary = match &moving_parts {
        Some(seen) => Finding::none(seen),
        None => reads::boundary(target, seed)?,
    };
    let mut probed = Probed {
        capacity_bytes: target.capacity_bytes(),
        is_rotational: target.is_rotational(),
        speedup,
        layout,
        overwritten: Finding::none(NOT_ALLOWED),
        boundary,
        buffer: Finding::none(NOT_ALLOWED),
        behind_writes: Finding::none(NOT_ALLOWED),
        cliff: Finding::none(NOT_ALLOWED),
    };
    if plan.writes {
        begins("the write buffer");
        probed.buffer = writes::buffer(target, seed)?;
        begins("reads behind writes");
        probed.behind_writes = writes::behind_writes(target, seed)?;
        begins("overwriting in another order");
        probed.overwritten = match (probed.layout.chunk.value, probed.layout.parallel.value) {
            (Some(chunk), Some(count)) => Pairs::new(target, seed).write_order(chunk, count)?,
            _ => Finding::none("the chunks are not known"),
        };
        begins("random writes for long");
        probed.cliff = writes::cliff(target, plan.cliff_bytes, seed)?;
    }
    Ok(probed)
}

const NOT_ALLOWED: &str = "needs writing, which was not allowed (--destroy-data)";
