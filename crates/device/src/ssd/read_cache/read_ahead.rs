//! Read-ahead: the controller prefetches into the read cache what a sequential
//! reader will read next.
//!
//! A sequential reader is a run of reads each of which begins where the one before
//! ended. From its second read on the drive prefetches up to `read_ahead_kb` ahead of
//! it, at least half of that at a time, in whole pages. A read of a page that is being
//! prefetched waits for that instead of reading the flash again. Prefetches queue
//! with the host's own reads.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{ReadCtx, Reads};
use crate::ssd::flash::transaction::{NONE, Operation, Source, Transaction};
use crate::ssd::ftl::Located;
use crate::ssd::ftl::cached_map::MapWaiter;
use crate::ssd::host_interface::ActiveCommand;
use crate::ssd::slab::Slab;
use crate::ssd::spec::{ReadCacheSpec, SsdSpec};

/// A run of reads, each of which begins where the one before ended.
#[derive(Clone, Copy, Debug, Default)]
struct SequentialReader {
    /// Where its last read ended, in bytes, and the slot after that.
    next_byte: u64,
    next: u32,
    /// The slot where its prefetched range ends.
    prefetched_to: u32,
    /// Its reads so far.
    reads: u32,
    /// The number of its last read, counted over all reads of the drive.
    last_read: u64,
}

/// Slots being prefetched: first a range whose map entries are being read, then for each
/// of its pages the slots of that page.
#[derive(Clone, Debug)]
struct Prefetch {
    first: u32,
    end: u32,
    /// Pages of the map that it waits for.
    map_pages: u32,
    /// A physical slot of the page that is read; [`NONE`] while it waits for the map, and
    /// after its end.
    at: u32,
    /// Commands that wait for it, and how many of its bytes each wants.
    waiters: Vec<(u32, u64)>,
}

impl Prefetch {
    const NONE: Prefetch = Prefetch {
        first: 0,
        end: 0,
        map_pages: 0,
        at: NONE,
        waiters: Vec::new(),
    };
}

/// The sequential readers of a drive and the prefetches for them.
#[derive(Clone, Debug)]
pub(crate) struct ReadAhead {
    readers: Vec<SequentialReader>,
    prefetches: Slab<Prefetch>,
    reads: u64,
    /// How far it reads ahead, in slots.
    distance: u32,
    /// Only after a read beside which there is no other command.
    alone: bool,
    slots_per_page: u32,
    logical_slots: u64,
}

impl ReadAhead {
    /// `None` where the drive does not read ahead.
    pub(crate) fn new(spec: &SsdSpec, cache: &ReadCacheSpec) -> Option<ReadAhead> {
        let distance = (cache.read_ahead_bytes / spec.ftl.map_unit_bytes as u64) as u32;
        (distance > 0).then(|| ReadAhead {
            readers: vec![SequentialReader::default(); cache.read_ahead_streams as usize],
            prefetches: Slab::with_capacity(0),
            reads: 0,
            distance,
            alone: cache.read_ahead_alone,
            slots_per_page: spec.slots_per_page(),
            logical_slots: spec.logical_slots(),
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.readers.fill(SequentialReader::default());
        self.prefetches.clear();
    }

    /// Updates the readers for a host read of `bytes`, the last of which is in the slot
    /// before `end`, of this many commands in the drive. Returns the range of slots to
    /// prefetch now.
    fn follow(&mut self, bytes: Range<u64>, end: u32, commands: usize) -> Option<(u32, u32)> {
        self.reads += 1;
        let (reads, distance) = (self.reads, self.distance);
        let continues = |s: &&mut SequentialReader| s.reads > 0 && s.next_byte == bytes.start;
        let Some(reader) = self.readers.iter_mut().find(continues) else {
            let oldest = self
                .readers
                .iter_mut()
                .min_by_key(|reader| reader.last_read)?;
            *oldest = SequentialReader {
                next_byte: bytes.end,
                next: end,
                prefetched_to: end,
                reads: 1,
                last_read: reads,
            };
            return None;
        };
        reader.next_byte = bytes.end;
        reader.next = end;
        reader.reads = reader.reads.saturating_add(1);
        reader.last_read = reads;
        if self.alone && commands > 1 {
            return None;
        }
        let from = reader.prefetched_to.max(reader.next);
        if from - reader.next > distance / 2 {
            return None;
        }
        let wanted = reader.next as u64 + distance as u64;
        // Whole pages, so that none is read in parts.
        let to = wanted.next_multiple_of(self.slots_per_page as u64);
        reader.prefetched_to = to.min(self.logical_slots) as u32;
        (from < reader.prefetched_to).then_some((from, reader.prefetched_to))
    }

    fn begin(&mut self, first: u32, end: u32) -> u32 {
        // The place keeps the memory of its list of waiters.
        let index = self.prefetches.take(|| Prefetch::NONE);
        let prefetch = &mut self.prefetches[index];
        (prefetch.first, prefetch.end) = (first, end);
        index
    }

    fn end(&mut self, index: u32) {
        self.prefetches[index].at = NONE;
        self.prefetches.remove(index);
    }
}

impl Reads {
    /// Prefetches for a host read, if that belongs to a sequential reader.
    #[inline(never)]
    pub(crate) fn read_ahead(&mut self, ctx: &mut ReadCtx<'_>, now_ns: u64, command: u32) {
        let (_, last) = ctx.host.slots_of(command);
        let ActiveCommand {
            first_byte, bytes, ..
        } = ctx.host.commands[command];
        let Some(ahead) = &mut self.ahead else {
            return;
        };
        let commands = ctx.host.commands.len();
        let Some((from, to)) = ahead.follow(first_byte..first_byte + bytes, last + 1, commands)
        else {
            return;
        };
        let index = ahead.begin(from, to);
        let waiter = MapWaiter::ReadAhead(index);
        let map_pages = match ctx.media.ftl.cached_map() {
            Some(map) => map.fetch(
                &mut ctx.media.flash,
                &mut ctx.media.stats,
                now_ns,
                from..=to - 1,
                false,
                waiter,
            ),
            None => 0,
        };
        if let Some(ahead) = &mut self.ahead {
            ahead.prefetches[index].map_pages = map_pages;
        }
        if map_pages == 0 {
            self.read_mapped_ahead(ctx, now_ns, index);
        }
    }

    /// A page of the map has been read that a prefetch waits for.
    pub(crate) fn read_ahead_map_fetched(
        &mut self,
        ctx: &mut ReadCtx<'_>,
        now_ns: u64,
        index: u32,
    ) {
        let Some(ahead) = &mut self.ahead else {
            return;
        };
        let prefetch = &mut ahead.prefetches[index];
        prefetch.map_pages -= 1;
        if prefetch.map_pages == 0 {
            self.read_mapped_ahead(ctx, now_ns, index);
        }
    }

    /// Prefetches a range page by page, without slots that are in DRAM or unwritten.
    fn read_mapped_ahead(&mut self, ctx: &mut ReadCtx<'_>, now_ns: u64, index: u32) {
        let Some(ahead) = &mut self.ahead else {
            return;
        };
        let Prefetch { first, end, .. } = ahead.prefetches[index];
        ahead.end(index);
        ctx.media.flash.gather();
        let mut slot = first;
        while slot < end {
            let Some(at) = self.wanted_ahead(ctx, slot) else {
                slot += 1;
                continue;
            };
            let start = slot;
            slot += 1;
            while slot < end
                && (self.wanted_ahead(ctx, slot))
                    .is_some_and(|next| ctx.media.ftl.same_page(at, next))
            {
                slot += 1;
            }
            self.read_page_ahead(ctx, now_ns, start, slot, at);
        }
        ctx.media.flash.start_gathered(now_ns);
    }

    /// Where a slot is on the flash that is neither in the read cache nor being prefetched.
    fn wanted_ahead(&self, ctx: &ReadCtx<'_>, slot: u32) -> Option<u32> {
        let cached = self.cache.as_ref().is_some_and(|c| c.has(slot));
        match ctx.media.ftl.locate(slot) {
            Located::Flash(at) if !cached && self.prefetch_of(ctx, at).is_none() => Some(at),
            _ => None,
        }
    }

    /// The prefetch that reads the page of a physical slot.
    fn prefetch_of(&self, ctx: &ReadCtx<'_>, at: u32) -> Option<u32> {
        let prefetches = &self.ahead.as_ref()?.prefetches;
        let reads =
            |prefetch: &Prefetch| prefetch.at != NONE && ctx.media.ftl.same_page(prefetch.at, at);
        prefetches
            .as_slice()
            .iter()
            .position(reads)
            .map(|place| place as u32)
    }

    fn read_page_ahead(
        &mut self,
        ctx: &mut ReadCtx<'_>,
        now_ns: u64,
        first: u32,
        end: u32,
        at: u32,
    ) {
        let Some(ahead) = &mut self.ahead else {
            return;
        };
        let index = ahead.begin(first, end);
        ahead.prefetches[index].at = at;
        let slots = (first..end).filter_map(|slot| match ctx.media.ftl.locate(slot) {
            Located::Flash(at) => Some(at),
            _ => None,
        });
        let bytes = self.codewords.of_units(slots);
        let page = ctx.media.ftl.parts(at);
        let op = ctx
            .media
            .ftl
            .transaction(Operation::Read, Source::ReadAhead, index, page, bytes);
        ctx.media.stats.read_ahead_units += (end - first) as u64;
        ctx.media.flash.enqueue(now_ns, op);
    }

    /// Has a command wait for a page that is being prefetched. Returns whether it is.
    #[inline(never)]
    pub(crate) fn joins_read_ahead(
        &mut self,
        ctx: &mut ReadCtx<'_>,
        command: u32,
        at: u32,
        bytes: u64,
    ) -> bool {
        let Some(index) = self.prefetch_of(ctx, at) else {
            return false;
        };
        // The prefetch must include all slots of the page that the command wants.
        let unit = ctx.media.spec.ftl.map_unit_bytes as u64;
        let active = &ctx.host.commands[command];
        let last = (active.first_byte + active.bytes - 1) / unit;
        let wanted = (active.first_byte / unit) as u32..=last as u32;
        let Some(ahead) = &mut self.ahead else {
            return false;
        };
        let prefetch = &mut ahead.prefetches[index];
        let ftl = &ctx.media.ftl;
        let is_missing = |slot: u32| {
            let is_there =
                matches!(ftl.locate(slot), Located::Flash(other) if ftl.same_page(at, other));
            is_there && !(prefetch.first..prefetch.end).contains(&slot)
        };
        if wanted.into_iter().any(is_missing) {
            return false;
        }
        prefetch.waiters.push((command, bytes));
        true
    }

    /// A prefetched page is in the controller.
    pub(crate) fn read_ahead_done(&mut self, ctx: &mut ReadCtx<'_>, now_ns: u64, op: &Transaction) {
        let Some(ahead) = &mut self.ahead else {
            return;
        };
        let prefetch = &mut ahead.prefetches[op.owner];
        let (first, end) = (prefetch.first, prefetch.end);
        let mut waiters = core::mem::take(&mut prefetch.waiters);
        for slot in first..end {
            self.keep_slot(ctx, slot, op, true);
        }
        for (command, bytes) in waiters.drain(..) {
            #[cfg(test)]
            ctx.media.ftl.shadow_joined(&ctx.host.commands[command], op);
            self.count_used_ahead(ctx, command, first..end);
            let sent_ns = ctx.host.send(now_ns, command, bytes);
            ctx.host
                .part_sent(ctx.media.flash.events(), sent_ns, command);
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.prefetches[op.owner].waiters = waiters;
            ahead.end(op.owner);
        }
    }

    /// Counts the slots that a command uses of those that have just been prefetched.
    fn count_used_ahead(&mut self, ctx: &mut ReadCtx<'_>, command: u32, slots: Range<u32>) {
        let (first, last) = ctx.host.slots_of(command);
        let Some(cache) = &mut self.cache else {
            return;
        };
        let wanted = slots.start.max(first)..slots.end.min(last + 1);
        let used = wanted.filter(|slot| cache.use_ahead(*slot)).count();
        ctx.media.stats.read_ahead_units_used += used as u64;
    }
}

#[cfg(test)]
mod tests {
    use blklab_blk::{Nanos, Op as HostOp};

    use super::{ReadAhead, SequentialReader, Slab};
    use crate::ssd::Ssd;
    use crate::ssd::tests::{command, small};
    use crate::{Completion, Device};

    /// A drive that reads `kb` ahead of two readers.
    fn drive(kb: u32) -> Ssd {
        let ahead = match kb {
            0 => String::new(),
            _ => format!("read_ahead_kb = {kb}\nread_ahead_streams = 2\n"),
        };
        let table = format!(
            "[read_cache]\nsize_kb = 256\npolicy = \"lru\"\n{ahead}\
             [write_cache]\nenabled = true"
        );
        Ssd::new(small(&[("[write_cache]\nenabled = true", &table)]), 1)
    }

    /// Reads these pages one after the other; how long each took, and how many
    /// map units were read ahead and used.
    fn read(drive: &mut Ssd, pages: &[u64], pause_ns: u64) -> (Vec<u64>, (u64, u64)) {
        let (mut now, mut done, mut took) = (Nanos(0), Vec::<Completion>::new(), Vec::new());
        for page in pages {
            let since = Nanos(now.0 + pause_ns);
            drive.advance(since, &mut done);
            drive.submit(since, command(0, HostOp::Read, *page, 1));
            now = drive.advance_to_completion(Nanos::MAX, &mut done);
            took.push((done[0].at - since).0);
            done.clear();
        }
        let stats = drive.stats(now);
        (took, (stats.read_ahead_units, stats.read_ahead_units_used))
    }

    /// Doorbell, firmware, link and status; then the flash or the DRAM.
    const AROUND: u64 = 100 + 1000 + 1364 + 100;
    const FLASH: u64 = AROUND + 290 + 10_000 + 5120;
    const DRAM: u64 = AROUND + 4096 * 250 / 1000;

    #[test]
    fn the_third_read_of_a_stream_is_in_dram() {
        let pages: Vec<u64> = (100..120).collect();
        let (took, (ahead, used)) = read(&mut drive(32), &pages, 1_000_000);
        assert_eq!(took[..2], [FLASH, FLASH]);
        assert!(took[2..].iter().all(|ns| *ns == DRAM), "{took:?}");
        assert_eq!(used, 18);
        // Never further than 32 KiB ahead, nor less than half of that.
        assert!((used + 4..=used + 8).contains(&ahead), "{ahead}");
        let (took, counts) = read(&mut drive(0), &pages, 1_000_000);
        assert!(took.iter().all(|ns| *ns == FLASH));
        assert_eq!(counts, (0, 0));
    }

    #[test]
    fn a_read_waits_for_what_is_on_its_way() {
        let mut drive = drive(32);
        let pages: Vec<u64> = (100..140).collect();
        let (took, (ahead, used)) = read(&mut drive, &pages, 0);
        assert!(took[2..].iter().all(|ns| *ns < FLASH), "{took:?}");
        assert_eq!(used, 38);
        // Nothing is read twice.
        drive.advance(Nanos(1 << 40), &mut Vec::new());
        let reads = drive.stats(Nanos(1 << 40)).flash_reads;
        assert_eq!(reads, 2 + ahead);
    }

    #[test]
    fn a_firmware_may_read_ahead_only_of_who_is_alone() {
        let mut ahead = ReadAhead {
            readers: vec![SequentialReader::default()],
            prefetches: Slab::with_capacity(0),
            reads: 0,
            distance: 8,
            alone: true,
            slots_per_page: 1,
            logical_slots: 1000,
        };
        assert_eq!(ahead.follow(0..4096, 1, 1), None, "the first is no stream");
        assert_eq!(ahead.follow(4096..8192, 2, 2), None, "another is there");
        assert_eq!(ahead.follow(8192..12288, 3, 1), Some((3, 11)));
    }

    #[test]
    fn one_block_read_again_is_no_stream() {
        let (_, counts) = read(&mut drive(32), &[100; 50], 1_000_000);
        assert_eq!(counts, (0, 0));
    }

    #[test]
    fn streams_are_told_apart_and_chance_is_not_one() {
        let mixed: Vec<u64> = (0..20).flat_map(|n| [1000 + n, 5000 + n]).collect();
        let (_, (_, used)) = read(&mut drive(32), &mixed, 1_000_000);
        assert_eq!(used, 36);
        let chance: Vec<u64> = (0..500u64).map(|n| n * 7919 % 20_000).collect();
        let (_, counts) = read(&mut drive(32), &chance, 1_000_000);
        assert_eq!(counts, (0, 0));
        // The last page of the drive is the end of a stream.
        let mut drive = drive(32);
        let end = drive.controller.media.spec.logical_slots();
        let pages: Vec<u64> = (end - 3..end).collect();
        assert_eq!(read(&mut drive, &pages, 0).1, (1, 1));
    }

    /// More is read ahead when the reader has used half of what was.
    #[test]
    fn the_next_part_is_read_when_half_is_used() {
        let mut ahead = ReadAhead {
            readers: vec![SequentialReader::default()],
            prefetches: Slab::with_capacity(0),
            reads: 0,
            distance: 8,
            alone: false,
            slots_per_page: 1,
            logical_slots: 1000,
        };
        let mut follow = |slot: u32| {
            let bytes = u64::from(slot) * 4096..u64::from(slot + 1) * 4096;
            ahead.follow(bytes, slot + 1, 1)
        };
        let parts: Vec<_> = (100..112).filter_map(&mut follow).collect();
        assert_eq!(parts, [(102, 110), (110, 114), (114, 118)]);
    }
}
