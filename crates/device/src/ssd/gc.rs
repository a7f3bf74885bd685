//! Garbage collection: which block is emptied, and how far along that is.
//!
//! One block a plane is collected at a time: its valid slots are read, written
//! to a collection page, and when all of them are programmed the block is
//! erased. Where they go is in [`super::destination`].

use super::blocks::NO_BLOCK;
use super::ftl::{Ftl, Stream};
use super::rng::Rng;
use super::spec::{GcPolicy, GcSpec};

/// So many numbers are drawn for each block that is wanted, before chance is
/// given up.
const DRAWS: usize = 16;

/// A plane's collection under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) victim: u32,
    /// Pages of the victim.
    pub(crate) pages: u32,
    /// Valid slots that it had.
    pub(crate) valid: u32,
    /// It belongs to the SLC cache.
    pub(crate) slc: bool,
    /// The plane that its data goes to, and in which stream.
    pub(crate) to: u32,
    pub(crate) stream: Stream,
    /// It has found something to move.
    pub(crate) moves: bool,
    /// Slots that it has moved.
    pub(crate) moved: u32,
    /// The next page of the victim to look at, of the even ones and of the odd.
    pub(crate) next_of_parity: [u32; 2],
    pub(crate) reads: u32,
    pub(crate) programs: u32,
    /// The plane's page register holds a page that will be copied, or soon will.
    pub(crate) copies: bool,
    pub(crate) erasing: bool,
    /// The drive was in the midst of it at the start; it goes on when a plane is
    /// written.
    pub(crate) at_rest: bool,
    /// Something of it may be queued behind all else.
    pub(crate) steps_aside: bool,
    /// The host waits for it or soon will: it goes before all else.
    pub(crate) urgent: bool,
    pub(crate) since_ns: u64,
}

impl Job {
    pub(crate) const NONE: Job = Job {
        victim: NO_BLOCK,
        pages: 0,
        valid: 0,
        slc: false,
        to: 0,
        stream: Stream::Collection,
        moves: false,
        moved: 0,
        next_of_parity: [0, 1],
        reads: 0,
        programs: 0,
        copies: false,
        erasing: false,
        at_rest: false,
        steps_aside: false,
        urgent: false,
        since_ns: 0,
    };

    pub(crate) fn is_running(&self) -> bool {
        self.victim != NO_BLOCK
    }

    /// The first page of the victim that it has not looked at.
    pub(crate) fn next_page(&self) -> u32 {
        self.next_of_parity[0].min(self.next_of_parity[1])
    }

    /// Whether there is one.
    pub(crate) fn has_pages_left(&self) -> bool {
        self.next_page() < self.pages
    }

    /// It looks at a page, the next of its parity.
    pub(crate) fn takes(&mut self, page: u32) {
        self.next_of_parity[page as usize % 2] = page + 2;
    }

    /// Something of it is under way, so that it can be waited for.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_running() && !self.at_rest
    }
}

/// The block of `plane` to collect by the drive's policy; `None` where none has
/// as little valid data as `most` slots.
pub(crate) fn choose_victim(
    ftl: &Ftl,
    plane: u32,
    most: u32,
    gc: &GcSpec,
    rng: &mut Rng,
) -> Option<u32> {
    let blocks = ftl.plane_blocks(plane);
    // What is the SLC cache's alone is never free for anything else.
    let collectable = |block: &u32| ftl.is_written(*block) && !ftl.is_static_slc(*block);
    let valid = |block: &u32| ftl.blocks.valid[*block as usize];
    let pays = |block: &u32| valid(block) as u32 <= most;
    let least_valid = || {
        let by_valid = |a: &u32, b: &u32| valid(a).cmp(&valid(b));
        let full = blocks.clone().filter(collectable);
        full.min_by(|a, b| by_valid(a, b).then_with(|| ftl.by_wear(*a, *b)))
    };
    let chosen = match gc.policy {
        GcPolicy::Greedy => least_valid(),
        GcPolicy::Choices(count) => {
            let data_blocks = ftl.data_blocks_per_plane();
            let drawn = draw(count, data_blocks, rng, |number| {
                let block = blocks.start + number;
                (collectable(&block) && pays(&block)).then_some(block)
            });
            // Where chance finds nothing worth collecting, look everywhere.
            drawn.min_by_key(valid).or_else(least_valid)
        }
        GcPolicy::Fifo => blocks
            .clone()
            .filter(collectable)
            .filter(pays)
            .min_by_key(|block| ftl.blocks.filled[*block as usize]),
        GcPolicy::CostBenefit => blocks
            .clone()
            .filter(collectable)
            .filter(pays)
            .max_by_key(|block| cost_benefit(ftl, *block)),
    }?;
    pays(&chosen).then_some(chosen)
}

/// Draws `count` of a plane's `blocks` by lot. `wanted` says which block a number
/// is, if that may be drawn: a number that may not is drawn again, a few times at
/// most.
pub(crate) fn draw(
    count: u32,
    blocks: u32,
    rng: &mut Rng,
    wanted: impl Fn(u32) -> Option<u32>,
) -> impl Iterator<Item = u32> {
    std::iter::repeat_with(move || rng.below(blocks))
        .take(DRAWS * count as usize)
        .filter_map(wanted)
        .take(count as usize)
}

/// Benefit over cost, (1 - u) * age / 2u, as a file system on flash weighs
/// segments (Kawaguchi, Nishioka and Motoda, "A flash-memory based file system",
/// USENIX 1995), in fixed point. The log structured file system before it divides
/// by 1 + u (Rosenblum and Ousterhout, SOSP 1991, section 3.6). Both take the age
/// of the data, since it was changed; this takes that of the block, in blocks
/// filled since it was full. So data that is moved counts as young again.
fn cost_benefit(ftl: &Ftl, block: u32) -> u64 {
    let valid = ftl.blocks.valid[block as usize] as u64;
    let freed = ftl.slots_per_block() as u64 - valid;
    let age = (ftl.blocks.fills() - ftl.blocks.filled[block as usize]) as u64 + 1;
    ((freed * age) << 16) / (2 * valid).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
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
        let wear = drive.ftl.wear();
        assert!(
            wear.mean_erases > 10.0 && wear.max_erases - wear.min_erases <= 3,
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
        let (gc, mut rng) = (drive.spec.gc, Rng::new(1));
        let most = drive.ftl.slots_per_block();
        let mut chosen = BTreeMap::<u32, u32>::new();
        for _ in 0..4000 {
            let block = choose_victim(&drive.ftl, 0, most, &gc, &mut rng).expect("full blocks");
            *chosen.entry(block).or_default() += 1;
        }
        // One of them alone, drawn by lot: all full ones come as often.
        let most_often = chosen.values().max().copied();
        assert!(most_often < Some(80), "{most_often:?}");
    }
}
