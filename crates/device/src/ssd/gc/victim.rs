//! Which block of a plane garbage collection empties.

use core::ops::Range;

use crate::Rng;
use crate::ssd::ftl::Ftl;
use crate::ssd::spec::{GcPolicy, GcSpec};

/// Random draws for each choice of `d_choices`, after which all blocks are searched.
const DRAWS: usize = 16;

/// The blocks of a plane that a policy chooses among.
pub(crate) trait Candidates {
    /// All blocks of the plane.
    fn blocks(&self) -> Range<u32>;
    /// How many of them, from the first, random draws choose from.
    fn drawable(&self) -> u32;
    /// Whether a block is full and may be emptied.
    fn is_collectable(&self, block: u32) -> bool;
    /// Slots of it that hold data.
    fn valid(&self, block: u32) -> u32;
    /// Slots of any block.
    fn slots(&self) -> u32;
    /// When it was filled, counted in blocks.
    fn filled(&self, block: u32) -> u32;
    /// Blocks of the drive that were filled since.
    fn age(&self, block: u32) -> u64;
    /// How often it was erased; the same for all where wear is not levelled.
    fn wear(&self, block: u32) -> u32;
}

/// The block to collect by a policy; `None` where none has at most `most` valid slots.
pub(crate) fn choose(
    among: &impl Candidates,
    policy: GcPolicy,
    most: u32,
    rng: &mut Rng,
) -> Option<u32> {
    let valid = |block: &u32| among.valid(*block);
    let pays = |block: &u32| among.is_collectable(*block) && valid(block) <= most;
    let least_valid = || {
        let paying = among.blocks().filter(pays);
        // Wear breaks ties; it is looked up only then, since it is another array.
        paying.min_by(|a, b| {
            let by_wear = || among.wear(*a).cmp(&among.wear(*b));
            valid(a).cmp(&valid(b)).then_with(by_wear)
        })
    };
    match policy {
        GcPolicy::Greedy => least_valid(),
        GcPolicy::Choices(count) => {
            let first = among.blocks().start;
            // Draws that find no block worth collecting are repeated, up to a bound.
            core::iter::repeat_with(|| first + rng.below(among.drawable()))
                .take(DRAWS * count as usize)
                .filter(pays)
                .take(count as usize)
                .min_by_key(valid)
                .or_else(least_valid)
        }
        GcPolicy::Fifo => among
            .blocks()
            .filter(pays)
            .min_by_key(|block| among.filled(*block)),
        GcPolicy::CostBenefit => among
            .blocks()
            .filter(pays)
            .max_by_key(|block| cost_benefit(among, *block)),
    }
}

/// Benefit over cost, (1 - u) * age / 2u (Kawaguchi, Nishioka and Motoda, "A
/// flash-memory based file system", USENIX 1995), in fixed point. The log-structured
/// file system divides by 1 + u instead (Rosenblum and Ousterhout, SOSP 1991, section
/// 3.6). Both take the age of the data since its last change; this takes that of the
/// block, in blocks filled since it was full, so data that is moved counts as young.
fn cost_benefit(among: &impl Candidates, block: u32) -> u64 {
    let valid = among.valid(block) as u64;
    let freed = among.slots() as u64 - valid;
    ((freed * (among.age(block) + 1)) << 16) / (2 * valid).max(1)
}

/// The blocks of a plane of the drive.
struct PlaneBlocks<'a> {
    ftl: &'a Ftl,
    plane: u32,
}

impl Candidates for PlaneBlocks<'_> {
    fn blocks(&self) -> Range<u32> {
        self.ftl.plane_blocks(self.plane)
    }

    fn drawable(&self) -> u32 {
        self.ftl.data_blocks_per_plane()
    }

    fn is_collectable(&self, block: u32) -> bool {
        // A static SLC block never becomes an ordinary free block.
        self.ftl.is_written(block) && !self.ftl.is_static_slc(block)
    }

    fn valid(&self, block: u32) -> u32 {
        self.ftl.valid(block)
    }

    fn slots(&self) -> u32 {
        self.ftl.slots_per_block()
    }

    fn filled(&self, block: u32) -> u32 {
        self.ftl.filled(block)
    }

    fn age(&self, block: u32) -> u64 {
        self.ftl.age(block) as u64
    }

    fn wear(&self, block: u32) -> u32 {
        match self.ftl.levels_wear() {
            true => self.ftl.erases(block),
            false => 0,
        }
    }
}

/// The block of `plane` to collect by the drive's policy; `None` where none has at most
/// `most` valid slots.
pub(crate) fn choose_victim(
    ftl: &Ftl,
    plane: u32,
    most: u32,
    gc: &GcSpec,
    rng: &mut Rng,
) -> Option<u32> {
    choose(&PlaneBlocks { ftl, plane }, gc.policy, most, rng)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use blklab_blk::Nanos;

    use super::*;
    use crate::Device;
    use crate::ssd::Ssd;
    use crate::ssd::tests::{overwrite, overwrite_drawn, small};

    /// Blocks without any data are all the same to a greedy choice: without
    /// regard to wear some of them would go round and the others would rest.
    #[test]
    fn of_blocks_with_as_little_data_the_least_worn_is_collected() {
        let spec = small(&[("state = \"filled\"", "state = \"fresh\"")]);
        let mut drive = Ssd::new(spec, 1);
        let mut slot = 0;
        overwrite_drawn(&mut drive, 400_000, 1, |_| {
            slot = (slot + 1) % 1024;
            slot
        });
        let wear = drive.stats(Nanos::ZERO).wear;
        assert!(
            wear.mean_erases > 10.0 && wear.spread_erases <= 3,
            "{wear:?}"
        );
    }

    #[test]
    fn lots_are_drawn_among_blocks_for_data() {
        // Half of the blocks are the SLC cache's alone.
        let cache = "[slc_cache]\nread_us = 20\nprogram_us = 100\nstatic_mb = 44\n\
                     when_full = \"direct\"\n[write_cache]\nenabled = true";
        let spec = small(&[
            ("cell = \"slc\"", "cell = \"tlc\""),
            ("pages_per_block = 64", "pages_per_block = 63"),
            ("blocks_per_plane = 112", "blocks_per_plane = 256"),
            ("[write_cache]\nenabled = true", cache),
            ("policy = \"greedy\"", "policy = \"d_choices\"\nchoices = 1"),
        ]);
        let mut drive = Ssd::new(spec, 1);
        overwrite(&mut drive, 60_000, 1);
        let (gc, mut rng) = (drive.controller.media.spec.gc, Rng::new(1));
        let most = drive.controller.media.ftl.slots_per_block();
        let mut chosen = BTreeMap::<u32, u32>::new();
        for _ in 0..4000 {
            let block = choose_victim(&drive.controller.media.ftl, 0, most, &gc, &mut rng)
                .expect("full blocks");
            *chosen.entry(block).or_default() += 1;
        }
        // One of them alone, drawn by lot: all full ones come as often.
        let most_often = chosen.values().max().copied();
        assert!(most_often < Some(80), "{most_often:?}");
    }
}
