//! The data of a drive, for tests: every sector has a value that is followed from the
//! command that wrote it through DRAM and flash pages to the command that reads it.
//!
//! It is independent of the map: a page holds what was programmed there, and a read
//! returns what its page holds when the array reads it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use blklab_blk::Op as HostOp;

use super::{Ftl, Located, PageRecord};
use crate::ssd::flash::transaction::{FlashPage, Operation, Source, Transaction};
use crate::ssd::host_interface::ActiveCommand;
use crate::ssd::spec::SsdSpec;

/// What a sector holds: zero, or what some command wrote.
pub(crate) type Value = u64;

/// The value of a sector that the state at the start put there.
pub(crate) fn initial_value(sector: u64) -> Value {
    1 << 63 | sector
}

/// The sectors of one map unit; `None` while the rest of a partial write is on
/// its way from the flash.
type Data = Vec<Option<Value>>;

/// A part of a read, within one map unit.
#[derive(Clone, Debug)]
struct ReadPart {
    command: u32,
    /// The physical slot, for one that is on its way from the flash.
    at: Option<u32>,
    /// Its first sector in the command's data, and in the unit.
    to: usize,
    from: usize,
    sectors: usize,
}

/// A read of the rest of a partial write: the record of the page that waits for it, the
/// slots that it completes, and where it is read from.
#[derive(Clone, Debug)]
struct Rest {
    record: u32,
    to: Vec<u32>,
    from: u32,
}

/// The data on the flash and in DRAM.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    unit_sectors: usize,
    slots_per_page: u32,
    pages_per_block: u32,
    /// Content of every programmed slot.
    flash: BTreeMap<u32, Data>,
    /// Pages programmed in every block.
    programmed: BTreeMap<u32, u32>,
    /// Content of slots whose page is not programmed yet.
    dram: BTreeMap<u32, Data>,
    /// Content of the read cache by logical slot, evicted slots included.
    cached: BTreeMap<u32, Data>,
    parts: Vec<ReadPart>,
    rests: Vec<Rest>,
    /// Data of every read under way, by its tag.
    data: BTreeMap<u32, Vec<Value>>,
}

impl Shadow {
    pub(crate) fn new(unit_sectors: u64, slots_per_page: u32, pages_per_block: u32) -> Shadow {
        Shadow {
            unit_sectors: unit_sectors as usize,
            slots_per_page,
            pages_per_block,
            flash: BTreeMap::new(),
            programmed: BTreeMap::new(),
            dram: BTreeMap::new(),
            cached: BTreeMap::new(),
            parts: Vec::new(),
            rests: Vec::new(),
            data: BTreeMap::new(),
        }
    }

    /// The state at the start has this slot there.
    pub(crate) fn begins_with(&mut self, slot: u32, at: u32) {
        let first = slot as u64 * self.unit_sectors as u64;
        let values = (first..first + self.unit_sectors as u64).map(|s| Some(initial_value(s)));
        self.flash.insert(at, values.collect());
    }

    /// The state at the start has a block programmed so far.
    pub(crate) fn begins_programmed(&mut self, block: u32, pages: u32) {
        self.programmed.insert(block, pages);
    }

    fn first_slot(&self, page: FlashPage) -> u32 {
        (page.block * self.pages_per_block + page.page) * self.slots_per_page
    }

    fn is_in(&self, at: u32, page: FlashPage) -> bool {
        at / self.slots_per_page == self.first_slot(page) / self.slots_per_page
    }

    /// A write puts `sectors` of `value` at `from` into a slot whose place is
    /// `to`; the rest of the slot is where `rest` says.
    pub(crate) fn write(
        &mut self,
        record: u32,
        to: u32,
        (from, sectors): (usize, usize),
        value: Value,
        rest: Located,
    ) {
        let mut data = match rest {
            Located::Nowhere => vec![Some(0); self.unit_sectors],
            Located::Buffered(at) => {
                let rests = self.rests.iter_mut();
                for rest in rests.filter(|rest| at != to && rest.to.contains(&at)) {
                    rest.to.push(to);
                }
                self.dram[&at].clone()
            }
            Located::Flash(at) => {
                self.rests.push(Rest {
                    record,
                    to: vec![to],
                    from: at,
                });
                vec![None; self.unit_sectors]
            }
        };
        data[from..from + sectors].fill(Some(value));
        if !data.contains(&None) {
            self.needs_no_rest(to);
        }
        self.dram.insert(to, data);
    }

    /// A slot in DRAM is complete.
    fn needs_no_rest(&mut self, at: u32) {
        for rest in &mut self.rests {
            rest.to.retain(|to| *to != at);
        }
        self.rests.retain(|rest| !rest.to.is_empty());
    }

    /// A read takes `sectors` at `from` of a slot to `to` of its own data.
    pub(crate) fn read(
        &mut self,
        command: u32,
        located: Located,
        (from, to, sectors): (usize, usize, usize),
    ) {
        let data = self.data.entry(command).or_default();
        data.resize(data.len().max(to + sectors), 0);
        let part = ReadPart {
            command,
            at: match located {
                Located::Flash(at) => Some(at),
                _ => None,
            },
            to,
            from,
            sectors,
        };
        if let Located::Buffered(at) = located {
            let unit = &self.dram[&at];
            for sector in 0..sectors {
                // Sectors that a partial write has not got yet are read from where that
                // write gets them.
                data[to + sector] = unit[from + sector].unwrap_or_else(|| {
                    let rest = self.rests.iter().find(|r| r.to.contains(&at));
                    let rest = rest.expect("the rest is on its way");
                    self.flash[&rest.from][from + sector].expect("programmed")
                });
            }
        }
        self.parts.push(part);
    }

    /// The read cache keeps a slot whose flash page was read.
    pub(crate) fn cache(&mut self, slot: u32, at: u32) {
        let data = self.flash.get(&at).expect("kept while it is programmed");
        self.cached.insert(slot, data.clone());
    }

    /// What a read wants of a slot at `at` comes from the read cache.
    pub(crate) fn cache_hit(&mut self, command: u32, slot: u32, at: u32) {
        let unit = &self.cached[&slot];
        let wanted = |part: &&mut ReadPart| part.command == command && part.at == Some(at);
        for part in self.parts.iter_mut().filter(wanted) {
            let data = self.data.get_mut(&command).expect("a read");
            for sector in 0..part.sectors {
                data[part.to + sector] = unit[part.from + sector].expect("programmed");
            }
            part.at = None;
        }
    }

    /// The data of a read that has ended.
    pub(crate) fn take_data(&mut self, command: u32) -> Option<Vec<Value>> {
        let parts = self.parts.extract_if(.., |part| part.command == command);
        assert!(
            parts.into_iter().all(|part| part.at.is_none()),
            "a read ended before its flash page was read"
        );
        self.data.remove(&command)
    }

    /// A transaction has ended.
    pub(crate) fn transaction_done(&mut self, op: &Transaction, tag: u32) {
        let page = op.at();
        match (op.source, op.kind) {
            (Source::Host, _) => self.host_page_read(tag, page),
            (Source::Rewrite, _) => self.rest_read(op.owner, page),
            (Source::Gc | Source::Merge, Operation::Erase) => self.erased(op.block),
            _ => {}
        }
    }

    fn host_page_read(&mut self, command: u32, page: FlashPage) {
        let mut parts = core::mem::take(&mut self.parts);
        for part in &mut parts {
            let Some(at) = part.at else { continue };
            if part.command != command || !self.is_in(at, page) {
                continue;
            }
            let unit = self
                .flash
                .get(&at)
                .expect("a page is read while it is programmed");
            let data = self.data.get_mut(&command).expect("a read");
            for sector in 0..part.sectors {
                data[part.to + sector] = unit[part.from + sector].expect("programmed");
            }
            part.at = None;
        }
        self.parts = parts;
    }

    fn rest_read(&mut self, record: u32, page: FlashPage) {
        let here = self
            .rests
            .iter()
            .position(|rest| rest.record == record && self.is_in(rest.from, page));
        let Some(rest) = here.map(|place| self.rests.remove(place)) else {
            return;
        };
        self.complete(&rest);
    }

    fn complete(&mut self, rest: &Rest) {
        let old = &self.flash[&rest.from];
        for to in &rest.to {
            // A slot that was overwritten meanwhile may be gone.
            let unit = self.dram.get_mut(to).into_iter().flatten();
            for (sector, old) in unit.zip(old) {
                *sector = sector.or(*old);
            }
        }
    }

    /// A page is programmed.
    pub(crate) fn programmed(&mut self, page: &PageRecord) {
        let done = self.programmed.entry(page.block).or_default();
        assert_eq!(*done, page.page, "pages are programmed in order and once");
        *done += 1;
        let first = self.first_slot(page.at());
        for at in first..first + page.slots {
            // A merge leaves out invalid slots; a read of one would fail.
            let Some(data) = self.dram.remove(&at) else {
                continue;
            };
            assert!(!data.contains(&None), "programmed before it was complete");
            let before = self.flash.insert(at, data);
            assert!(before.is_none(), "programmed twice");
        }
    }

    /// A program was interrupted, of a page and what is programmed with it.
    pub(crate) fn spoiled(&mut self, page: &PageRecord) {
        self.programmed.insert(page.block, page.page + 1);
    }

    /// A partial write in DRAM was discarded.
    fn forget(&mut self, at: u32) {
        self.dram.remove(&at);
        self.needs_no_rest(at);
    }

    /// Collection has read a slot and gives it a new place.
    pub(crate) fn moved(&mut self, from: u32, to: u32) {
        let data = self.flash.get(&from).expect("moved while it is programmed");
        self.dram.insert(to, data.clone());
    }

    fn erased(&mut self, block: u32) {
        let slots = self.pages_per_block * self.slots_per_page;
        let first = block * slots;
        self.flash
            .retain(|at, _| !(first..first + slots).contains(at));
        self.programmed.remove(&block);
    }

    /// Drops DRAM with the power. With capacitors, `saved` are all pages in DRAM.
    pub(crate) fn power_loss(&mut self, saved: &[PageRecord]) {
        for rest in core::mem::take(&mut self.rests) {
            self.complete(&rest);
        }
        for page in saved {
            self.programmed(page);
        }
        self.dram.clear();
        self.cached.clear();
        self.parts.clear();
        self.data.clear();
    }

    /// How many pages of a block are programmed.
    pub(crate) fn pages_programmed(&self, block: u32) -> u32 {
        self.programmed.get(&block).copied().unwrap_or(0)
    }
}

impl Ftl {
    /// Follows data from now on.
    pub(crate) fn begin_shadow(&mut self, spec: &SsdSpec) {
        let unit_sectors = spec.ftl.map_unit_bytes as u64 / 512;
        let pages_per_block = spec.geometry.pages_per_block;
        let mut shadow = Shadow::new(unit_sectors, spec.slots_per_page(), pages_per_block);
        for slot in 0..spec.logical_slots() as u32 {
            if let Located::Flash(at) = self.locate(slot) {
                shadow.begins_with(slot, at);
            }
        }
        for (block, pages) in self.blocks.programmed.iter().enumerate() {
            shadow.begins_programmed(block as u32, *pages as u32);
        }
        self.shadow = Some(Box::new(shadow));
    }

    /// A transaction has ended, which may be of the command `reader`.
    pub(crate) fn shadow_transaction(&mut self, op: &Transaction, reader: Option<&ActiveCommand>) {
        if let Some(shadow) = &mut self.shadow {
            shadow.transaction_done(op, reader.map_or(0, |command| command.tag));
        }
    }

    /// A read of bytes within one map unit.
    pub(crate) fn shadow_read(&mut self, command: &ActiveCommand, from: u64, to: u64) {
        let Some(unit) = self.shadow.as_ref().map(|s| s.unit_sectors as u64 * 512) else {
            return;
        };
        let located = self.locate((from / unit) as u32);
        if let Some(shadow) = &mut self.shadow {
            let place = (
                (from % unit / 512) as usize,
                ((from - command.first_byte) / 512) as usize,
                ((to - from) / 512) as usize,
            );
            shadow.read(command.tag, located, place);
        }
    }

    /// The read cache keeps a slot whose flash page was read.
    pub(crate) fn shadow_cache(&mut self, slot: u32, at: u32) {
        if let Some(shadow) = &mut self.shadow {
            shadow.cache(slot, at);
        }
    }

    /// A read takes a slot from the read cache.
    pub(crate) fn shadow_cache_hit(&mut self, command: &ActiveCommand, slot: u32) {
        if let (Located::Flash(at), Some(shadow)) = (self.locate(slot), &mut self.shadow) {
            shadow.cache_hit(command.tag, slot, at);
        }
    }

    /// A command gets its data from a page that was prefetched.
    pub(crate) fn shadow_joined(&mut self, command: &ActiveCommand, op: &Transaction) {
        if let Some(shadow) = &mut self.shadow {
            shadow.host_page_read(command.tag, op.at());
        }
    }

    /// A write has given a slot its place; `rest` is where it was before.
    pub(crate) fn shadow_write(
        &mut self,
        command: &ActiveCommand,
        slot: u32,
        record: u32,
        rest: Located,
    ) {
        let Some(unit) = self.shadow.as_ref().map(|s| s.unit_sectors as u64 * 512) else {
            return;
        };
        let first = slot as u64 * unit;
        let from = command.first_byte.max(first) - first;
        let to = (command.first_byte + command.bytes).min(first + unit) - first;
        let Located::Buffered(at) = self.locate(slot) else {
            panic!("a slot just written is in DRAM");
        };
        let value = match command.op {
            HostOp::Write => command.tag as Value + 1,
            _ => 0,
        };
        if let Some(shadow) = &mut self.shadow {
            let rest = match to - from == unit {
                true => Located::Nowhere,
                false => rest,
            };
            let sectors = ((from / 512) as usize, ((to - from) / 512) as usize);
            shadow.write(record, at, sectors, value, rest);
        }
    }

    /// A page is programmed.
    pub(crate) fn shadow_programmed(&mut self, record: u32) {
        if let Some(shadow) = &mut self.shadow {
            shadow.programmed(&self.records[record]);
        }
    }

    /// A slot of which a part is in DRAM is about to be discarded.
    pub(crate) fn shadow_forget(&mut self, slot: u32) {
        if let (Located::Buffered(at), Some(shadow)) = (self.locate(slot), &mut self.shadow) {
            shadow.forget(at);
        }
    }

    /// Collection has given what is at `from` the last place of a page.
    pub(crate) fn shadow_move(&mut self, from: u32, record: u32) {
        let page = self.record(record);
        let to = self.page_start(page.block, page.page) + page.slots - 1;
        if let Some(shadow) = &mut self.shadow {
            shadow.moved(from, to);
        }
    }

    /// The power is about to be lost; `protected` if capacitors keep what is in DRAM.
    pub(crate) fn shadow_power_loss(&mut self, protected: bool, interrupted: &[u32]) {
        let Some(mut shadow) = self.shadow.take() else {
            return;
        };
        let mut saved = Vec::new();
        if protected {
            saved = self.live_records();
            saved.sort_by_key(|page| (page.block, page.page));
        } else {
            let spoiled = interrupted.iter();
            for record in spoiled.filter(|record| self.completes_program(**record)) {
                shadow.spoiled(self.record(*record));
            }
        }
        shadow.power_loss(&saved);
        self.shadow = Some(shadow);
    }
}
