//! Finds what a drive looks like inside, from outside: chunks, how many work
//! in parallel, how addresses lie on them, the write buffer, what reads cost
//! behind writes, and where writing becomes slower for good.
//!
//! Every method is a published one; the modules name them. Every finding comes
//! with the share of single measurements that say the same, or with what was
//! seen where nothing stood out.

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

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether the drive may be written: what is on it is lost.
    pub writes: bool,
    /// How much is overwritten at most in search of the cliff.
    pub cliff_bytes: u64,
    /// Decides which places are tried.
    pub seed: u64,
}

/// What a drive looks like.
#[derive(Clone, Debug)]
pub struct Probed {
    /// Its size.
    pub capacity_bytes: u64,
    /// Whether it has moving parts.
    pub is_rotational: bool,
    /// Random reads by depth.
    pub speedup: Finding<Speedup>,
    /// Chunks.
    pub layout: Layout,
    /// Where addresses go once they are overwritten.
    pub overwritten: Finding<Mapping>,
    /// Alignments that cost.
    pub boundary: Finding<u64>,
    /// The write buffer.
    pub buffer: Finding<u64>,
    /// Reads behind writes.
    pub behind_writes: Finding<BehindWrites>,
    /// Writing at random for long.
    pub cliff: Finding<Cliff>,
}

/// Probes a drive. `begins` is called with the name of each thing that begins.
///
/// # Errors
/// Where the drive fails an I/O.
pub fn probe(
    target: &mut dyn Target,
    plan: &Plan,
    begins: &mut dyn FnMut(&str),
) -> Result<Probed, ProbeError> {
    let seed = plan.seed;
    begins("random reads by depth");
    let speedup = reads::speedup(target, seed)?;
    begins("pairs of reads");
    let layout = match target.is_rotational() {
        true => Layout::none("the drive has moving parts: distance is time"),
        false => Pairs::new(target, seed).layout()?,
    };
    begins("reads across boundaries");
    let boundary = match target.is_rotational() {
        true => Finding::none("the drive has moving parts: distance is time"),
        false => reads::boundary(target, seed)?,
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
