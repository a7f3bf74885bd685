//! Merges at work: their reads, programs and erases.

use std::collections::VecDeque;

use crate::ssd::Ssd;
use crate::ssd::flash::transaction::{Operation, Source, Transaction};
use crate::ssd::ftl::hybrid::Want;
use crate::ssd::ftl::hybrid::merge::Step;
use crate::ssd::ftl::{FlashPage, Stream};

/// What of a plane's merge is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Merging {
    /// Pages whose slots are being read, in order.
    reading: VecDeque<MergePage>,
    /// Lists to use again.
    spare: Vec<Vec<(u32, u32)>>,
    programs: u32,
    erasing: bool,
    since_ns: u64,
}

#[derive(Clone, Debug)]
struct MergePage {
    page: u32,
    /// Slots with where they were.
    sources: Vec<(u32, u32)>,
    reads: u32,
}

impl Merging {
    /// What is under way counts from `now_ns` on.
    pub(crate) fn counts_from(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
    }

    /// After a loss of power.
    pub(crate) fn power_off(&mut self) {
        *self = Merging::default();
    }
}

impl Ssd {
    /// Plane and log that take a slot of the host's now; `None` where it has to
    /// wait for a merge, which is under way then.
    pub(crate) fn allocate_in_logs(&mut self, now_ns: u64, slot: u32) -> Option<(u32, Stream)> {
        // What it wants may be done at once, and leave another want.
        for _ in 0..3 {
            match self.ftl.log_for(slot) {
                Ok(found) => return Some(found),
                Err((plane, want)) => self.make_way(now_ns, plane, want),
            }
        }
        self.ftl.log_for(slot).ok()
    }

    fn make_way(&mut self, now_ns: u64, plane: u32, want: Want) {
        match want {
            Want::Sequential(number) => self.close_log(now_ns, plane, number),
            Want::Random => {
                if let Some(record) = self.ftl.reclaim(plane) {
                    self.program(now_ns, record);
                }
            }
            Want::Page => {
                if let Some(record) = self.ftl.filling(plane, Stream::Host) {
                    self.program(now_ns, record);
                }
            }
            Want::Patience => {}
        }
        self.go_on_merging(now_ns, plane);
    }

    fn close_log(&mut self, now_ns: u64, plane: u32, number: usize) {
        if let Some(record) = self.ftl.close_sequential(plane, number) {
            self.program(now_ns, record);
        }
    }

    /// Takes whatever steps of a plane's merges can be taken now.
    pub(crate) fn go_on_merging(&mut self, now_ns: u64, plane: u32) {
        loop {
            self.erase_dead(now_ns, plane);
            if self.ftl.merge_of(plane).is_some() {
                if !self.copy_pages(now_ns, plane) {
                    return;
                }
                self.ftl.end_merge(plane);
                let took_ns = now_ns - self.merging[plane as usize].since_ns;
                self.stats.merges.busy_ns += took_ns;
                self.stats.merges.longest_ns = self.stats.merges.longest_ns.max(took_ns);
                continue;
            }
            match self.ftl.next_merge(plane) {
                Step::None => return,
                Step::Released => {}
                Step::Switched => self.stats.merges.switched += 1,
                Step::Close(number) => self.close_log(now_ns, plane, number),
                Step::Partial => {
                    self.stats.merges.partial += 1;
                    self.merging[plane as usize].since_ns = now_ns;
                }
                Step::Full => {
                    self.stats.merges.full += 1;
                    self.merging[plane as usize].since_ns = now_ns;
                }
            }
        }
    }

    fn erase_dead(&mut self, now_ns: u64, plane: u32) {
        let merging = &mut self.merging[plane as usize];
        if merging.erasing {
            return;
        }
        if let Some(block) = self.ftl.dead_block(plane) {
            merging.erasing = true;
            self.rescue_rests(now_ns, block);
            let at = FlashPage {
                plane,
                block,
                page: 0,
            };
            let erase = self.flash_op(Operation::Erase, Source::Merge, plane, at, 0);
            self.flash.enqueue(now_ns, erase);
        }
    }

    /// Reads and programs pages of a plane's merge, as many at once as it may.
    /// Returns whether all are programmed.
    fn copy_pages(&mut self, now_ns: u64, plane: u32) -> bool {
        loop {
            self.program_read_pages(now_ns, plane);
            let merging = &mut self.merging[plane as usize];
            if merging.reading.len() as u32 + merging.programs >= self.spec.gc.depth {
                return false;
            }
            let mut sources = merging.spare.pop().unwrap_or_default();
            let Some(page) = self.ftl.next_merge_page(plane, &mut sources) else {
                let merging = &mut self.merging[plane as usize];
                merging.spare.push(sources);
                return merging.reading.is_empty() && merging.programs == 0;
            };
            let reads = self.read_sources(now_ns, plane, page, &sources);
            self.merging[plane as usize].reading.push_back(MergePage {
                page,
                sources,
                reads,
            });
        }
    }

    /// Reads slots, each page that holds some of them once. Returns how many
    /// reads these are.
    fn read_sources(&mut self, now_ns: u64, plane: u32, page: u32, sources: &[(u32, u32)]) -> u32 {
        let mut reads = 0;
        for (place, (_, at)) in sources.iter().enumerate() {
            let is_same = |other: &&(u32, u32)| self.ftl.same_page(other.1, *at);
            if sources[..place].iter().any(|other| is_same(&other)) {
                continue;
            }
            let slots = sources.iter().filter(is_same).map(|(_, at)| *at);
            let bytes = self.codewords.of_units(slots);
            let from = self.ftl.parts(*at);
            debug_assert_eq!(from.plane, plane);
            let read = self.flash_op(Operation::Read, Source::Merge, page, from, bytes);
            self.flash.enqueue(now_ns, read);
            reads += 1;
        }
        reads
    }

    /// Programs the pages whose slots have been read, in order.
    fn program_read_pages(&mut self, now_ns: u64, plane: u32) {
        loop {
            let reading = &mut self.merging[plane as usize].reading;
            if reading.front().is_none_or(|page| page.reads > 0) {
                return;
            }
            let Some(mut page) = reading.pop_front() else {
                return;
            };
            let record = self.ftl.begin_merge_page(plane);
            let mut slots = 0;
            for (slot, from) in page.sources.drain(..) {
                if self.ftl.merge_slot(record, slot, from) {
                    slots += 1;
                    #[cfg(test)]
                    self.witness_move(from, record);
                }
            }
            let sectors = self.spec.ftl.map_unit_bytes as u64 / 512;
            self.stats.merges.sectors_moved += slots * sectors;
            self.stats.merges.pages_padded += (slots == 0) as u64;
            let merging = &mut self.merging[plane as usize];
            merging.spare.push(page.sources);
            merging.programs += 1;
            self.program(now_ns, record);
        }
    }

    /// A read or an erase of a merge is over.
    pub(crate) fn merge_op_done(&mut self, now_ns: u64, op: Transaction) {
        let merging = &mut self.merging[op.plane as usize];
        if op.kind == Operation::Read {
            let page = merging.reading.iter_mut().find(|p| p.page == op.owner);
            if let Some(page) = page {
                page.reads -= 1;
            }
            return self.go_on_merging(now_ns, op.plane);
        }
        merging.erasing = false;
        self.ftl.buried(op.plane);
        self.go_on_merging(now_ns, op.plane);
        self.admit(now_ns);
    }

    /// A page of a merge is on the flash.
    pub(crate) fn merge_page_done(&mut self, now_ns: u64, plane: u32) {
        self.merging[plane as usize].programs -= 1;
        self.go_on_merging(now_ns, plane);
        self.admit(now_ns);
    }
}
