//! What the flash would hold if the model kept data: in tests, every sector
//! has a value that is followed from the command that wrote it through DRAM and
//! flash pages to the command that reads it.
//!
//! It knows nothing of the map: a page holds what was programmed there, and a
//! read returns what is in the page that it reads at the time its array does.

use std::collections::BTreeMap;

use blklab_blk::Op as HostOp;

use crate::ssd::Ssd;
use crate::ssd::flash::transaction::{Operation, Source, Transaction};
use crate::ssd::ftl::{FlashPage, Located, PageRecord};
use crate::ssd::spec::SsdSpec;

/// What a sector holds: zero, or what some command wrote.
pub(super) type Value = u64;

/// The value of a sector that the state at the start put there.
pub(super) fn initial_value(sector: u64) -> Value {
    1 << 63 | sector
}

/// The sectors of one map unit; `None` while the rest of a partial write is on
/// its way from the flash.
type Data = Vec<Option<Value>>;

/// A part of a read, within one map unit.
struct Part {
    command: u32,
    /// The physical slot, for one that is on its way from the flash.
    at: Option<u32>,
    /// Where it goes in the command's data, and where it is in the unit.
    to: usize,
    from: usize,
    sectors: usize,
}

/// The rest of a partial write on its way: the record of the page that waits
/// for it, the slots that it completes, and where it is.
struct Rest {
    record: u32,
    to: Vec<u32>,
    from: u32,
}

/// The flash and the DRAM before it.
pub(super) struct Witness {
    unit_sectors: usize,
    slots_per_page: u32,
    pages_per_block: u32,
    /// Content of every programmed slot.
    flash: BTreeMap<u32, Data>,
    /// Pages programmed in every block.
    programmed: BTreeMap<u32, u32>,
    /// Content of slots whose page is not programmed yet.
    dram: BTreeMap<u32, Data>,
    /// What the read cache has or had, by logical slot.
    cached: BTreeMap<u32, Data>,
    parts: Vec<Part>,
    rests: Vec<Rest>,
    /// Data of every read under way, by its tag.
    data: BTreeMap<u32, Vec<Value>>,
}

impl Witness {
    pub(super) fn new(unit_sectors: u64, slots_per_page: u32, pages_per_block: u32) -> Witness {
        Witness {
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
    pub(super) fn begins_with(&mut self, slot: u32, at: u32) {
        let first = slot as u64 * self.unit_sectors as u64;
        let values = (first..first + self.unit_sectors as u64).map(|s| Some(initial_value(s)));
        self.flash.insert(at, values.collect());
    }

    /// The state at the start has a block programmed so far.
    pub(super) fn begins_programmed(&mut self, block: u32, pages: u32) {
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
    pub(super) fn write(
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

    /// Nothing is to come for a slot in DRAM.
    fn needs_no_rest(&mut self, at: u32) {
        for rest in &mut self.rests {
            rest.to.retain(|to| *to != at);
        }
        self.rests.retain(|rest| !rest.to.is_empty());
    }

    /// A read takes `sectors` at `from` of a slot to `to` of its own data.
    pub(super) fn read(
        &mut self,
        command: u32,
        located: Located,
        (from, to, sectors): (usize, usize, usize),
    ) {
        let data = self.data.entry(command).or_default();
        data.resize(data.len().max(to + sectors), 0);
        let part = Part {
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
                // What a read needs of a partial write that is still to come
                // has to come from where that write gets it.
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
    pub(super) fn cache(&mut self, slot: u32, at: u32) {
        let data = self.flash.get(&at).expect("kept while it is programmed");
        self.cached.insert(slot, data.clone());
    }

    /// What a read wants of a slot at `at` comes from the read cache.
    pub(super) fn cache_hit(&mut self, command: u32, slot: u32, at: u32) {
        let unit = &self.cached[&slot];
        let wanted = |part: &&mut Part| part.command == command && part.at == Some(at);
        for part in self.parts.iter_mut().filter(wanted) {
            let data = self.data.get_mut(&command).expect("a read");
            for sector in 0..part.sectors {
                data[part.to + sector] = unit[part.from + sector].expect("programmed");
            }
            part.at = None;
        }
    }

    /// The data of a read that has ended.
    pub(super) fn take_data(&mut self, command: u32) -> Option<Vec<Value>> {
        let parts = self.parts.extract_if(.., |part| part.command == command);
        assert!(
            parts.into_iter().all(|part| part.at.is_none()),
            "a read ended before its flash page was read"
        );
        self.data.remove(&command)
    }

    /// An operation is over.
    pub(super) fn transaction_done(&mut self, op: &Transaction, tag: u32) {
        let page = FlashPage {
            plane: op.plane,
            block: op.block,
            page: op.page,
        };
        match (op.source, op.kind) {
            (Source::Host, _) => self.host_page_read(tag, page),
            (Source::Rewrite, _) => self.rest_read(op.owner, page),
            (Source::Gc | Source::Merge, Operation::Erase) => self.erased(op.block),
            _ => {}
        }
    }

    fn host_page_read(&mut self, command: u32, page: FlashPage) {
        let mut parts = std::mem::take(&mut self.parts);
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

    /// A page's program is over.
    pub(super) fn programmed(&mut self, page: &PageRecord) {
        let done = self.programmed.entry(page.block).or_default();
        assert_eq!(*done, page.page, "pages are programmed in order and once");
        *done += 1;
        let first = self.first_slot(page.at());
        for at in first..first + page.slots {
            // A merge leaves out what nobody needs; a read of it would tell.
            let Some(data) = self.dram.remove(&at) else {
                continue;
            };
            assert!(!data.contains(&None), "programmed before it was complete");
            let before = self.flash.insert(at, data);
            assert!(before.is_none(), "programmed twice");
        }
    }

    /// A program was interrupted, of a page and what is programmed with it.
    pub(super) fn spoiled(&mut self, page: &PageRecord) {
        self.programmed.insert(page.block, page.page + 1);
    }

    /// What is in DRAM of a physical slot need not become whole.
    fn forget(&mut self, at: u32) {
        self.dram.remove(&at);
        self.needs_no_rest(at);
    }

    /// Collection has read a slot and gives it a new place.
    pub(super) fn moved(&mut self, from: u32, to: u32) {
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

    /// The power is gone. With capacitors, `saved` are all pages in DRAM.
    pub(super) fn power_loss(&mut self, saved: &[PageRecord]) {
        for rest in std::mem::take(&mut self.rests) {
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
    pub(super) fn pages_programmed(&self, block: u32) -> u32 {
        self.programmed.get(&block).copied().unwrap_or(0)
    }
}

impl Ssd {
    /// A drive whose data is followed.
    pub(super) fn with_witness(spec: SsdSpec, seed: u64) -> Ssd {
        let mut drive = Ssd::new(spec, seed);
        let unit_sectors = drive.spec.ftl.map_unit_bytes as u64 / 512;
        let mut witness = Witness::new(
            unit_sectors,
            drive.spec.slots_per_page(),
            drive.spec.geometry.pages_per_block,
        );
        for slot in 0..drive.spec.logical_slots() as u32 {
            if let Located::Flash(at) = drive.ftl.locate(slot) {
                witness.begins_with(slot, at);
            }
        }
        for (block, pages) in drive.ftl.blocks.programmed.iter().enumerate() {
            witness.begins_programmed(block as u32, *pages as u32);
        }
        drive.witness = Some(Box::new(witness));
        drive
    }

    /// A read of bytes within one map unit.
    pub(super) fn witness_op(&mut self, index: u32) {
        let op = &self.flash.transactions[index];
        if let Some(witness) = &mut self.witness {
            let tag = self.commands.get(op.owner as usize).map_or(0, |c| c.tag);
            witness.transaction_done(op, tag);
        }
    }

    pub(super) fn witness_read(&mut self, index: u32, from: u64, to: u64) {
        let command = self.commands[index as usize];
        let unit = self.spec.ftl.map_unit_bytes as u64;
        let located = self.ftl.locate((from / unit) as u32);
        if let Some(witness) = &mut self.witness {
            let place = (
                (from % unit / 512) as usize,
                ((from - command.first_byte) / 512) as usize,
                ((to - from) / 512) as usize,
            );
            witness.read(command.tag, located, place);
        }
    }

    /// A read takes a slot from the read cache.
    pub(super) fn witness_cache_hit(&mut self, index: u32, slot: u32) {
        let tag = self.commands[index as usize].tag;
        if let (Located::Flash(at), Some(witness)) = (self.ftl.locate(slot), &mut self.witness) {
            witness.cache_hit(tag, slot, at);
        }
    }

    /// A command takes what it waits for from a page that was read ahead.
    pub(super) fn witness_joined(&mut self, index: u32, op: &Transaction) {
        let tag = self.commands[index as usize].tag;
        if let Some(witness) = &mut self.witness {
            let page = FlashPage {
                plane: op.plane,
                block: op.block,
                page: op.page,
            };
            witness.host_page_read(tag, page);
        }
    }

    /// A write has given a slot its place; `rest` is where it was before.
    pub(super) fn witness_write(&mut self, index: u32, slot: u32, record: u32, rest: Located) {
        let command = self.commands[index as usize];
        let unit = self.spec.ftl.map_unit_bytes as u64;
        let first = slot as u64 * unit;
        let from = command.first_byte.max(first) - first;
        let to = (command.first_byte + command.bytes).min(first + unit) - first;
        let Located::Buffered(at) = self.ftl.locate(slot) else {
            panic!("a slot just written is in DRAM");
        };
        let value = match command.op {
            HostOp::Write => command.tag as Value + 1,
            _ => 0,
        };
        if let Some(witness) = &mut self.witness {
            let rest = match to - from == unit {
                true => Located::Nowhere,
                false => rest,
            };
            let sectors = ((from / 512) as usize, ((to - from) / 512) as usize);
            witness.write(record, at, sectors, value, rest);
        }
    }

    /// A slot of which a part is in DRAM is about to be discarded.
    pub(super) fn witness_forget(&mut self, slot: u32) {
        if let (Located::Buffered(at), Some(witness)) = (self.ftl.locate(slot), &mut self.witness) {
            witness.forget(at);
        }
    }

    /// Collection has given what is at `from` the last place of a page.
    pub(super) fn witness_move(&mut self, from: u32, record: u32) {
        let page = self.ftl.record(record);
        let to = self.ftl.page_start(page.block, page.page) + page.slots - 1;
        if let Some(witness) = &mut self.witness {
            witness.moved(from, to);
        }
    }

    /// The power is about to go.
    pub(super) fn witness_power_loss(&mut self, interrupted: &[u32]) {
        let mut saved = Vec::new();
        if self.spec.write_cache.power_loss_protection {
            saved = self.ftl.live_records();
            saved.sort_by_key(|page| (page.block, page.page));
        }
        if let Some(witness) = &mut self.witness {
            if !self.spec.write_cache.power_loss_protection {
                let spoiled = interrupted.iter();
                for record in spoiled.filter(|record| self.ftl.completes_program(**record)) {
                    witness.spoiled(self.ftl.record(*record));
                }
            }
            witness.power_loss(&saved);
        }
    }
}
