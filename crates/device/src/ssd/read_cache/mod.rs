//! Reads: the read cache, read-ahead and the flash.
//!
//! The cache keeps recently read map units in the controller's DRAM. (Data being
//! written is in DRAM anyway until it is programmed.) A write or discard of a map
//! unit removes it. A drive with such a cache reads whole units.

mod read;
mod read_ahead;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::ssd::flash::codewords::Codewords;
use crate::ssd::flash::transaction::Transaction;
use crate::ssd::ftl::Located;
use crate::ssd::gc::Media;
use crate::ssd::host_interface::HostInterface;
use crate::ssd::lru::Lru;
use crate::ssd::spec::{ReadCachePolicy, ReadCacheSpec, SsdSpec};
use read_ahead::ReadAhead;

/// The parts below reads.
pub(crate) struct ReadCtx<'a> {
    pub(crate) host: &'a mut HostInterface,
    pub(crate) media: &'a mut Media,
}

/// The state of reads. Optional parts are boxed, to keep this small on drives without
/// them.
#[derive(Clone, Debug)]
pub(crate) struct Reads {
    cache: Option<Box<ReadCache>>,
    ahead: Option<Box<ReadAhead>>,
    codewords: Codewords,
}

/// The cache.
#[derive(Clone, Debug)]
struct ReadCache {
    slots: Lru,
    /// By a slot's index in `slots`: it was prefetched and not used yet.
    ahead: Vec<bool>,
    policy: ReadCachePolicy,
}

impl ReadCache {
    fn new(spec: &ReadCacheSpec, map_unit_bytes: u32) -> ReadCache {
        let units = spec.size_bytes / map_unit_bytes as u64;
        ReadCache {
            slots: Lru::new(units.clamp(1, 1 << 30) as u32),
            ahead: Vec::new(),
            policy: spec.policy,
        }
    }

    /// Whether a slot is in the cache, without counting as a use.
    fn has(&self, slot: u32) -> bool {
        self.slots.find(slot).is_some()
    }

    /// Whether a slot is in the cache, as a use of it.
    fn hit(&mut self, slot: u32) -> bool {
        let index = self.slots.find(slot);
        if let (Some(index), ReadCachePolicy::Lru) = (index, self.policy) {
            self.slots.touch(index);
        }
        index.is_some()
    }

    /// Whether a slot in the cache was prefetched and is used for the first time.
    fn use_ahead(&mut self, slot: u32) -> bool {
        let index = self.slots.find(slot);
        index.is_some_and(|index| core::mem::take(&mut self.ahead[index as usize]))
    }

    fn insert(&mut self, slot: u32, ahead: bool) {
        if self.slots.find(slot).is_some() {
            return;
        }
        let index = self.slots.insert(slot) as usize;
        if index == self.ahead.len() {
            self.ahead.push(ahead);
        }
        self.ahead[index] = ahead;
    }

    /// Forgets everything.
    fn clear(&mut self) {
        self.slots.clear();
        self.ahead.clear();
    }

    fn remove(&mut self, slot: u32) {
        self.slots.remove(slot);
    }

    /// Removes slots from `start` up to `end`.
    fn remove_range(&mut self, start: u32, end: u64) {
        if end - start as u64 <= self.slots.peak_len() as u64 {
            (start as u64..end).for_each(|slot| self.remove(slot as u32));
        } else {
            self.slots
                .remove_if(|slot| (start as u64..end).contains(&(slot as u64)));
        }
    }
}

impl Reads {
    pub(crate) fn new(spec: &SsdSpec) -> Reads {
        let cache = spec.read_cache.as_ref();
        Reads {
            cache: cache.map(|cache| Box::new(ReadCache::new(cache, spec.ftl.map_unit_bytes))),
            ahead: cache
                .and_then(|cache| ReadAhead::new(spec, cache))
                .map(Box::new),
            codewords: Codewords::new(spec),
        }
    }

    /// Whether there is a read cache.
    #[inline]
    pub(crate) fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// Removes a slot that is written from the cache.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        if let Some(cache) = &mut self.cache {
            cache.remove(slot);
        }
    }

    /// Removes slots from `start` to before `end`, which are discarded.
    pub(crate) fn remove_range(&mut self, start: u32, end: u64) {
        if let Some(cache) = &mut self.cache {
            cache.remove_range(start, end);
        }
    }

    /// Drops everything with the power.
    pub(crate) fn power_off(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.clear();
        }
    }

    /// Looks a slot up in the read cache that a command reads and that is on the flash.
    #[inline]
    #[cfg_attr(not(test), allow(unused_variables, reason = "tests follow the data"))]
    fn is_cached_read(&mut self, ctx: &mut ReadCtx<'_>, index: u32, slot: u32) -> bool {
        match &mut self.cache {
            None => false,
            Some(cache) => {
                let hit = cache.hit(slot);
                ctx.media.stats.read_cache_lookups += 1;
                ctx.media.stats.read_cache_hits += hit as u64;
                ctx.media.stats.read_ahead_units_used += (hit && cache.use_ahead(slot)) as u64;
                #[cfg(test)]
                if hit {
                    ctx.media
                        .ftl
                        .shadow_cache_hit(&ctx.host.commands[index], slot);
                }
                hit
            }
        }
    }

    /// Caches what a read has brought from the flash, unless it was written meanwhile.
    #[inline(never)]
    pub(crate) fn keep_read(&mut self, ctx: &mut ReadCtx<'_>, index: u32) {
        let op = *ctx.media.flash.transaction(index);
        let (first, last) = ctx.host.slots_of(op.owner);
        for slot in first..=last {
            self.keep_slot(ctx, slot, &op, false);
        }
    }

    /// Caches a slot if it is still where a transaction has read it; `ahead` if it was
    /// prefetched.
    fn keep_slot(&mut self, ctx: &mut ReadCtx<'_>, slot: u32, op: &Transaction, ahead: bool) {
        let Located::Flash(at) = ctx.media.ftl.locate(slot) else {
            return;
        };
        let page = ctx.media.ftl.parts(at);
        if let Some(cache) = &mut self.cache
            && (page.block, page.page) == (op.block, op.page)
        {
            cache.insert(slot, ahead);
            #[cfg(test)]
            ctx.media.ftl.shadow_cache(slot, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use blklab_blk::{Nanos, Op};
    use proptest::prelude::*;

    use super::*;
    use crate::ssd::Ssd;
    use crate::ssd::tests::{command, small};
    use crate::{Completion, Device};

    /// A drive that keeps 16 pages, read at `policy`.
    fn drive(policy: &str) -> Ssd {
        let table = format!(
            "[read_cache]\nsize_kb = 64\npolicy = \"{policy}\"\n[write_cache]\nenabled = true\naccess_ns = 50"
        );
        Ssd::new(small(&[("[write_cache]\nenabled = true", &table)]), 1)
    }

    fn one(drive: &mut Ssd, now: &mut Nanos, op: Op, page: u64, pages: u32) -> u64 {
        let since = Nanos(now.0 + 1_000_000);
        drive.submit(since, command(0, op, page, pages));
        let mut done: Vec<Completion> = Vec::new();
        *now = drive.advance_to_completion(Nanos::MAX, &mut done);
        let took_ns = (done[0].at - since).0;
        // Programs that go on behind a write's end.
        drive.advance(Nanos(now.0 + 1_000_000), &mut done);
        *now = Nanos(now.0 + 1_000_000);
        took_ns
    }

    /// Doorbell, firmware, link and status; then the flash or the DRAM.
    const AROUND: u64 = 100 + 1000 + 1364 + 100;
    const FLASH: u64 = AROUND + 290 + 10_000 + 5120;
    const DRAM: u64 = AROUND + 50 + 4096 * 250 / 1000;

    #[test]
    fn the_second_read_comes_from_dram() {
        let mut drive = drive("lru");
        let now = &mut Nanos(0);
        assert_eq!(one(&mut drive, now, Op::Read, 7, 1), FLASH);
        assert_eq!(one(&mut drive, now, Op::Read, 7, 1), DRAM);
        let stats = drive.stats(*now);
        assert_eq!((stats.read_cache_lookups, stats.read_cache_hits), (2, 1));
        assert_eq!(stats.flash_reads, 1);
    }

    #[test]
    fn a_command_takes_from_each_what_it_has() {
        let mut drive = drive("lru");
        let now = &mut Nanos(0);
        one(&mut drive, now, Op::Read, 8, 1);
        // Page 9 is on another channel than page 8; its data is last, and the
        // link carries a page from each.
        assert_eq!(one(&mut drive, now, Op::Read, 8, 2), FLASH);
        assert_eq!(drive.stats(*now).flash_reads, 2);
    }

    #[test]
    fn what_is_written_or_discarded_is_not_kept() {
        let mut drive = drive("lru");
        let now = &mut Nanos(0);
        for op in [Op::Write, Op::Discard] {
            one(&mut drive, now, Op::Read, 3, 1);
            one(&mut drive, now, op, 3, 1);
            let reads = drive.stats(*now).read_cache_hits;
            one(&mut drive, now, Op::Read, 3, 1);
            assert_eq!(drive.stats(*now).read_cache_hits, reads, "{op:?}");
            one(&mut drive, now, Op::Write, 3, 1);
        }
    }

    #[test]
    fn a_range_is_removed_however_long_it_is() {
        let spec = drive("lru").controller.media.spec;
        let cache = spec.read_cache.expect("it has one");
        for (start, end, left) in [(4, 7, 5), (4, 20_000, 4), (0, 20_000, 0), (8, 9, 8)] {
            let mut cache = ReadCache::new(&cache, 4096);
            (0..8).for_each(|slot| cache.insert(slot, false));
            cache.remove_range(start, end);
            let is_left = |slot: &u32| cache.has(*slot);
            assert_eq!((0..8).filter(is_left).count(), left);
        }
    }

    proptest! {
        /// The hits are those of a list of sixteen pages kept by hand.
        #[test]
        fn it_keeps_what_its_policy_says(
            pages in prop::collection::vec(0u64..40, 1..200), lru: bool,
        ) {
            let mut drive = drive(if lru { "lru" } else { "fifo" });
            let now = &mut Nanos(0);
            let mut kept: Vec<u64> = Vec::new();
            let mut hits = 0;
            for page in pages {
                let took = one(&mut drive, now, Op::Read, page, 1);
                let place = kept.iter().position(|other| *other == page);
                prop_assert_eq!(took, if place.is_some() { DRAM } else { FLASH });
                hits += place.is_some() as u64;
                match place {
                    Some(place) if lru => {
                        kept.remove(place);
                        kept.push(page);
                    }
                    Some(_) => {}
                    None => {
                        kept.push(page);
                        if kept.len() > 16 {
                            kept.remove(0);
                        }
                    }
                }
            }
            prop_assert_eq!(drive.stats(*now).read_cache_hits, hits);
        }
    }
}
