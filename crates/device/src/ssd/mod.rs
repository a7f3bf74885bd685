//! A solid state drive: commands in at the top, flash at the bottom.
//!
//! The way of a command: over the link into the controller, through the write
//! cache and the translation layer to operations on the flash, and back over
//! the link. Each of these is a file of its own; this one holds the commands.

mod aging;
mod allocate;
mod arbiter;
mod backend;
mod balance;
mod blocks;
mod clocks;
mod cmt;
mod collect;
mod copies;
mod destination;
mod divide;
mod epochs;
mod fold;
mod free;
mod ftl;
mod gc;
mod geometry;
mod hybrid;
mod lanes;
mod link;
mod lru;
mod map;
mod map_blocks;
mod mapping;
mod op;
mod pace;
mod paq;
mod power;
mod read_ahead;
mod read_cache;
mod recorder;
mod rng;
mod rows;
mod scattered;
mod slc;
mod slc_start;
mod slot_tables;
mod small_plane;
mod spec;
mod start;
mod steady;
mod stripe;
mod timing;
#[cfg(test)]
mod witness;
mod write;

use std::collections::VecDeque;

use blklab_blk::{Nanos, Op as HostOp};
use blklab_stats::{DeviceStats, DriveTimeline};

use crate::{Command, CommandStatus, Completion, Device, Identity};
use allocate::Turn;
use arbiter::Arbiter;
use backend::Backend;
use cmt::Cmt;
use epochs::Epochs;
use ftl::{FlashPage, Ftl, Located, Stream, Victim};
use gc::Job;
use hybrid::Merging;
use lanes::Lane;
use link::Link;
use map_blocks::MapBlocks;
use mapping::{MapRead, MapWaiter};
use op::{NONE, Op, OpKind, Rank, Source};
use pace::Pace;
use read_ahead::ReadAhead;
use read_cache::ReadCache;
use rng::Rng;
use stripe::Stripe;

pub use geometry::{Axis, Geometry, Home, Layout};
pub use hybrid::spec::{HybridSpec, Mapping};
pub use spec::{
    AgedSpec, Allocation, Arbitration, ChannelSpec, ControllerSpec, Copyback, FlashSpec, FtlSpec,
    GcPolicy, GcScope, GcSpec, InitialState, Interleave, LinkSpec, MultiPlane, NvmeSpec,
    ReadCachePolicy, ReadCacheSpec, Scheduling, SlcCacheSpec, SsdSpec, WearSpec, WhenFull,
    WriteCacheSpec,
};

/// Among arriving commands: time to see whether the host is silent.
const FOLD_TIMER: u32 = NONE;
/// Likewise: time to fetch the next command.
const FETCH: u32 = NONE - 1;

/// A command inside the drive.
#[derive(Clone, Copy, Debug)]
struct Active {
    tag: u32,
    op: HostOp,
    fua: bool,
    first_byte: u64,
    bytes: u64,
    /// Bytes of a read that are in DRAM.
    dram_bytes: u64,
    /// What must end before it does.
    parts: u32,
    /// The next map unit of a write to get its place.
    next_slot: u32,
    /// A write that overwrites what was still in DRAM.
    rewrites: bool,
    status: CommandStatus,
    next_free: u32,
    /// Its number, where what happens is recorded.
    number: u32,
}

/// A solid state drive.
#[cfg_attr(not(test), derive(Clone, Debug))]
pub struct Ssd {
    spec: SsdSpec,
    backend: Backend,
    ftl: Ftl,
    link: Link,
    rng: Rng,
    commands: Vec<Active>,
    free_command: u32,
    /// When the controller can take the next command.
    controller_ns: u64,
    dram_ns: u64,
    /// When the host's last command came or ended.
    host_ns: u64,
    /// A look at whether the drive is idle is due.
    fold_timer: bool,
    /// Writes that wait for room.
    waiting: VecDeque<u32>,
    /// Since when the first of them waits for a free block.
    stalled_since_ns: Option<u64>,
    /// Dynamic allocation, range by range.
    turns: Vec<Turn>,
    /// Pairs of pages whose second is complete only when the first is.
    followers: Vec<(u32, u32)>,
    /// Discards since the log of them was last programmed.
    log_is_dirty: bool,
    /// Data of the host's in DRAM that is not on the flash yet.
    dirty_bytes: u64,
    /// The cache was full and is being emptied.
    cache_full: bool,
    /// Host pages queued for their program.
    programs_queued: u32,
    epochs: Epochs,
    /// Pairs (command, next) of commands that wait for a page's program.
    waiters: Vec<(u32, u32)>,
    free_waiter: u32,
    jobs: Vec<Job>,
    /// The cached part of the map, where not all of it is in DRAM.
    cmt: Option<Cmt>,
    /// Boxed, so that a drive without it only asks whether it is there.
    arbiter: Option<Box<Arbiter>>,
    /// Likewise.
    read_cache: Option<Box<ReadCache>>,
    /// Likewise.
    read_ahead: Option<Box<ReadAhead>>,
    /// What merges of logs do, plane by plane; empty where pages are mapped.
    merging: Vec<Merging>,
    /// Where the host is kept in step with collection.
    pace: Option<Pace>,
    /// Likewise.
    stripe: Option<Box<Stripe>>,
    map_reads: Vec<MapRead>,
    /// Where the pages of such a map are.
    map_blocks: Option<Box<MapBlocks>>,
    stats: DeviceStats,
    #[cfg(test)]
    witness: Option<Box<witness::Witness>>,
}

impl Ssd {
    /// A drive as described; `seed` decides what is left to chance inside.
    pub fn new(spec: SsdSpec, seed: u64) -> Ssd {
        let mut rng = Rng::new(seed);
        let mut drive = Ssd {
            backend: Backend::new(&spec),
            ftl: Ftl::new(&spec, &mut rng),
            link: Link::new(spec.link),
            rng,
            commands: Vec::with_capacity(64),
            free_command: NONE,
            controller_ns: 0,
            dram_ns: 0,
            host_ns: 0,
            fold_timer: false,
            waiting: VecDeque::with_capacity(64),
            stalled_since_ns: None,
            turns: vec![Turn::FIRST; spec.geometry.channels as usize],
            followers: Vec::new(),
            log_is_dirty: false,
            dirty_bytes: 0,
            cache_full: false,
            programs_queued: 0,
            epochs: Epochs::new(),
            waiters: Vec::new(),
            free_waiter: NONE,
            jobs: vec![Job::NONE; spec.geometry.planes() as usize],
            cmt: spec.ftl.map_cache_entries.map(|entries| {
                let line = spec.ftl.map_line_entries;
                let page = spec.ftl.entries_per_map_page;
                Cmt::new(entries, spec.logical_slots(), page, line)
            }),
            arbiter: spec.nvme.as_ref().map(|nvme| Box::new(Arbiter::new(nvme))),
            read_cache: spec
                .read_cache
                .map(|cache| Box::new(ReadCache::new(&cache, spec.ftl.map_unit_bytes))),
            read_ahead: (spec.read_cache.as_ref())
                .and_then(|cache| ReadAhead::new(&spec, cache))
                .map(Box::new),
            merging: match spec.ftl.mapping {
                Mapping::Page => Vec::new(),
                Mapping::Hybrid(_) => vec![Merging::default(); spec.geometry.planes() as usize],
            },
            pace: (spec.gc.pace_bytes > 0)
                .then(|| Pace::new(spec.gc.pace_bytes / spec.ftl.map_unit_bytes as u64)),
            stripe: (spec.flash.superpage).then(|| Box::new(Stripe::new(spec.geometry.planes()))),
            map_reads: Vec::new(),
            map_blocks: (spec.ftl.map_cache_entries).map(|_| {
                let written = spec.state != InitialState::Fresh || spec.ftl.read_unwritten;
                Box::new(MapBlocks::new(&spec, written))
            }),
            stats: DeviceStats::default(),
            #[cfg(test)]
            witness: None,
            spec,
        };
        if let Some(cmt) = &mut drive.cmt
            && drive.spec.state != InitialState::Fresh
        {
            cmt.warm_up(seed);
        }
        for Victim { plane, block, had } in std::mem::take(&mut drive.ftl.victims_at_start) {
            drive.take_up_job(0, plane, block, (plane, Stream::Collection));
            let job = &mut drive.jobs[plane as usize];
            (job.valid, job.at_rest) = (had, true);
        }
        drive.slc_written(0);
        drive
    }

    #[inline]
    fn keep(&mut self, command: &Command) -> u32 {
        let active = Active {
            tag: command.tag,
            op: command.op,
            fua: command.fua,
            first_byte: command.sector.bytes(),
            bytes: command.sectors as u64 * 512,
            dram_bytes: 0,
            parts: 0,
            next_slot: 0,
            rewrites: false,
            status: CommandStatus::Ok,
            next_free: NONE,
            number: self.backend.next_command(),
        };
        if self.free_command == NONE {
            return self.append(active);
        }
        let index = self.free_command;
        self.free_command = self.commands[index as usize].next_free;
        self.commands[index as usize] = active;
        index
    }

    #[cold]
    fn append(&mut self, active: Active) -> u32 {
        self.commands.push(active);
        self.commands.len() as u32 - 1
    }

    /// How long the controller takes no other command after this one.
    #[inline]
    fn interval_ns(&self, command: &Command) -> u64 {
        let controller = &self.spec.controller;
        if matches!(command.op, HostOp::Discard | HostOp::WriteZeroes) {
            return controller.interval_ns + self.discard_walk_ns(command);
        }
        match controller.page_interval_ns {
            page_ns if page_ns > 0 && command.op == HostOp::Read => {
                controller.interval_ns + self.further_pages(command) * page_ns
            }
            _ => controller.interval_ns,
        }
    }

    /// Pages of the flash that a read is spread over beyond its first.
    #[inline(never)]
    fn further_pages(&self, command: &Command) -> u64 {
        let unit_bits = self.spec.ftl.map_unit_bytes.trailing_zeros();
        let end_byte = command.sector.bytes() + command.sectors as u64 * 512;
        let first = command.sector.bytes() >> unit_bits;
        let last = (end_byte - 1) >> unit_bits;
        if first == last || !self.takes(command) {
            return 0;
        }
        let mut before = None;
        let mut pages = 0u64;
        for slot in first as u32..=last as u32 {
            let Located::Flash(at) = self.ftl.locate(slot) else {
                continue;
            };
            let is_another = before.is_none_or(|before| !self.ftl.same_page(before, at));
            pages += is_another as u64;
            before = Some(at);
        }
        pages.saturating_sub(1)
    }

    /// How long the firmware goes through the map for a discard.
    #[inline(never)]
    fn discard_walk_ns(&self, command: &Command) -> u64 {
        let unit_sectors = (self.spec.ftl.map_unit_bytes / 512).max(1);
        // Units covered in part are not discarded.
        let units = match self.takes(command) {
            true => command.sectors / unit_sectors,
            false => 0,
        };
        units as u64 * self.spec.controller.discard_unit_ps / 1000
    }

    /// Whether a command is one that the drive can carry out.
    fn takes(&self, command: &Command) -> bool {
        command.fits(self.spec.identity.capacity_sectors)
            && (command.op != HostOp::Discard || self.spec.identity.discard)
    }

    /// Takes a command that the controller knows of from `visible_ns` on.
    #[inline(always)]
    fn fetch(&mut self, visible_ns: u64, index: u32, command: &Command) {
        let taken_ns = self.controller_ns.max(visible_ns);
        self.controller_ns = taken_ns + self.interval_ns(command);
        let takes = self.takes(command);
        if !takes {
            self.commands[index as usize].status = CommandStatus::IoError;
        } else if matches!(command.op, HostOp::Discard | HostOp::WriteZeroes) {
            return self.fetch_discard(taken_ns, index, command);
        } else if command.op == HostOp::Write {
            self.stats.host_sectors_written += command.sectors as u64;
            let (first, last) = self.slots_of(index);
            (first..last + 1).for_each(|slot| self.ftl.prefetch(slot));
            let received_ns = self.link.receive(taken_ns, command.sectors as u64 * 512);
            let at_ns = received_ns + self.spec.controller.write_ns;
            self.backend.lanes.push(Lane::RECEIVING, at_ns, index);
            return;
        }
        let controller = &self.spec.controller;
        let at_ns = taken_ns + controller.read_ns;
        if self.next_ns() > at_ns
            && controller.read_ns <= controller.write_ns
            && self.arbiter.is_none()
        {
            // Nothing happens inside before it arrives, and nothing that comes
            // later from outside can arrive earlier, since the controller takes
            // no longer for this than for a write: it may as well be there.
            return match command.op {
                HostOp::Read if takes => self.start_read(at_ns, index),
                _ => self.arrive(at_ns, index),
            };
        }
        self.backend.lanes.push(Lane::ARRIVING, at_ns, index);
    }

    #[inline(never)]
    fn fetch_discard(&mut self, taken_ns: u64, index: u32, command: &Command) {
        let ns = self.spec.controller.discard_ns + self.discard_walk_ns(command);
        let lanes = &mut self.backend.lanes;
        lanes.push(Lane::ARRIVING, taken_ns + ns, index);
    }

    /// When anything happens next inside.
    #[inline]
    fn next_ns(&self) -> u64 {
        self.backend.lanes.next_ns()
    }

    /// What an event brings.
    #[inline(always)]
    fn step(&mut self, (now_ns, lane, event): (u64, Lane, u32), done: &mut Vec<Completion>) {
        self.stats.events += 1;
        match lane {
            Lane::LEAVING => return self.leave(now_ns, event, done),
            Lane::ARRIVING => return self.arrive(now_ns, event),
            Lane::RECEIVING => return self.start_write(now_ns, event),
            Lane::DRAM => return self.part_done(now_ns, event),
            Lane::DATA_OUT => {
                self.backend.data_out(now_ns, event);
                return self.op_done(now_ns, event);
            }
            Lane::BUS => self.backend.bus_free(now_ns, event),
            _ => self.backend.array_done(now_ns, event),
        }
        self.settle(now_ns);
    }

    /// A command has passed the controller.
    fn arrive(&mut self, now_ns: u64, index: u32) {
        if index >= FETCH {
            return match index {
                FETCH => self.fetch_next(now_ns),
                _ => self.fold_idle(now_ns),
            };
        }
        let Active { op, status, .. } = self.commands[index as usize];
        if status != CommandStatus::Ok {
            return self.finish(now_ns, index);
        }
        match op {
            HostOp::Read => self.start_read(now_ns, index),
            HostOp::Write => self.start_write(now_ns, index),
            HostOp::Flush => self.start_flush(now_ns, index),
            HostOp::Discard => self.start_discard(now_ns, index),
            HostOp::WriteZeroes => self.start_write_zeroes(now_ns, index),
        }
    }

    /// A read needs its entries of the map first.
    #[inline]
    fn start_read(&mut self, now_ns: u64, index: u32) {
        if self.cmt.is_some() && self.waits_for_map(now_ns, index) {
            return;
        }
        self.read_mapped(now_ns, index);
        if self.read_ahead.is_some() {
            let (first, last) = self.slots_of(index);
            self.read_ahead(now_ns, first, last);
        }
    }

    /// Whether pages of the map have to be read before a read.
    #[inline(never)]
    fn waits_for_map(&mut self, now_ns: u64, index: u32) -> bool {
        let (first, last) = self.slots_of(index);
        self.backend.gather();
        let fetches = self.fetch_map(now_ns, first, last, false, MapWaiter::Command(index));
        self.backend.start_gathered(now_ns);
        self.commands[index as usize].parts = fetches;
        if fetches > 0 {
            self.read_ahead(now_ns, first, last);
        }
        fetches > 0
    }

    /// The first and the last map unit of a command.
    #[inline]
    fn slots_of(&self, index: u32) -> (u32, u32) {
        let command = &self.commands[index as usize];
        let unit_bits = self.spec.ftl.map_unit_bytes.trailing_zeros();
        let last = (command.first_byte + command.bytes - 1) >> unit_bits;
        ((command.first_byte >> unit_bits) as u32, last as u32)
    }

    /// Turns a read into one operation for every page it touches.
    #[inline(always)]
    fn read_mapped(&mut self, now_ns: u64, index: u32) {
        let (first, last) = self.slots_of(index);
        match first == last {
            true => self.read_slot(now_ns, index, first),
            false => {
                self.backend.gather();
                self.read_slots(now_ns, index);
                self.backend.start_gathered(now_ns);
            }
        }
    }

    /// Reads of several map units.
    #[inline(never)]
    fn read_slots(&mut self, now_ns: u64, index: u32) {
        let Active {
            first_byte, bytes, ..
        } = self.commands[index as usize];
        let unit_bits = self.spec.ftl.map_unit_bytes.trailing_zeros();
        let end = first_byte + bytes;
        let mut from_dram = 0;
        let mut byte = first_byte;
        // The run of slots that lie side by side in one page.
        let (mut run_at, mut run_bytes) = (u32::MAX, 0u64);
        let mut parts = 0;
        while byte < end {
            let slot = (byte >> unit_bits) as u32;
            let stop = ((slot as u64 + 1) << unit_bits).min(end);
            let bytes = self.on_channel(byte, stop);
            #[cfg(test)]
            self.witness_read(index, byte, stop);
            match self.ftl.locate(slot) {
                Located::Nowhere if !self.spec.ftl.read_unwritten => {}
                Located::Nowhere => {
                    self.read_page(now_ns, index, self.ftl.home_of(slot), bytes);
                    parts += 1;
                }
                Located::Buffered(_) => from_dram += stop - byte,
                Located::Flash(_) if self.is_cached_read(index, slot) => from_dram += stop - byte,
                Located::Flash(at) => {
                    if run_at != u32::MAX && !self.ftl.same_page(run_at, at) {
                        self.read_page(now_ns, index, run_at, run_bytes);
                        (parts, run_bytes) = (parts + 1, 0);
                    }
                    run_at = at;
                    run_bytes += bytes;
                }
            }
            byte = stop;
        }
        if run_at != u32::MAX {
            self.read_page(now_ns, index, run_at, run_bytes);
            parts += 1;
        }
        if from_dram > 0 {
            self.use_dram(now_ns, index, from_dram);
            parts += 1;
            self.stats.cache_read_hits += (parts == 1) as u64;
        }
        self.commands[index as usize].parts = parts;
        self.commands[index as usize].dram_bytes = from_dram;
        if parts == 0 {
            self.finish(now_ns, index);
        }
    }

    /// Reads within one map unit, as most reads are.
    #[inline(always)]
    fn read_slot(&mut self, now_ns: u64, index: u32, slot: u32) {
        let command = &mut self.commands[index as usize];
        let (first_byte, bytes) = (command.first_byte, command.bytes);
        command.parts = 1;
        command.dram_bytes = bytes;
        #[cfg(test)]
        self.witness_read(index, first_byte, first_byte + bytes);
        let at = match self.ftl.locate(slot) {
            Located::Flash(_) if self.is_cached_read(index, slot) => {
                self.stats.cache_read_hits += 1;
                return self.use_dram(now_ns, index, bytes);
            }
            Located::Flash(at) => at,
            Located::Nowhere if self.spec.ftl.read_unwritten => self.ftl.home_of(slot),
            Located::Buffered(_) => {
                self.stats.cache_read_hits += 1;
                return self.use_dram(now_ns, index, bytes);
            }
            Located::Nowhere => return self.finish(now_ns, index),
        };
        let bytes = self.on_channel(first_byte, first_byte + bytes);
        self.read_page(now_ns, index, at, bytes);
    }

    /// Bytes of `from..to` on the channel: whole codewords.
    #[inline]
    fn on_channel(&self, from: u64, to: u64) -> u64 {
        let mask = self.spec.channel.codeword_bytes as u64 - 1;
        let unit = self.spec.ftl.map_unit_bytes as u64;
        (((to + mask) & !mask) - (from & !mask)).min(unit.max(mask + 1))
    }

    #[inline(always)]
    fn read_page(&mut self, now_ns: u64, owner: u32, at: u32, bytes: u64) {
        if self.read_ahead.is_some() && self.joins_read_ahead(owner, at, bytes) {
            return;
        }
        let at = self.ftl.parts(at);
        let mut op = self.flash_op(OpKind::Read, Source::Host, owner, at, bytes as u32);
        op.command = self.commands[owner as usize].number;
        self.stats.slc.pages_read += op.slc as u64;
        self.backend.enqueue(now_ns, op);
    }

    /// An operation as it enters the backend.
    #[inline]
    fn flash_op(&self, kind: OpKind, source: Source, owner: u32, at: FlashPage, bytes: u32) -> Op {
        Op {
            next: NONE,
            owner,
            plane: at.plane,
            place: 0,
            die: 0,
            block: at.block,
            page: at.page,
            bytes,
            copies: NONE,
            kind,
            source,
            rank: Rank::Normal,
            collects: matches!(source, Source::Gc | Source::Merge | Source::MapMove),
            slc: self.ftl.is_slc(at.block),
            ready: true,
            arrival: 0,
            write_clock_ns: 0,
            collection_clock_ns: 0,
            command: NONE,
        }
    }

    /// A transfer between controller and DRAM; the command is told of its end.
    fn use_dram(&mut self, now_ns: u64, index: u32, bytes: u64) {
        let cache = &self.spec.write_cache;
        let ns = cache.access_ns + bytes * cache.byte_ps / 1000;
        self.dram_ns = self.dram_ns.max(now_ns) + ns;
        self.backend.lanes.push(Lane::DRAM, self.dram_ns, index);
    }

    fn start_discard(&mut self, now_ns: u64, index: u32) {
        // Map units that are covered in part keep their data.
        let fetches = self.discard_whole_units(now_ns, index);
        self.commands[index as usize].parts = fetches;
        if fetches == 0 {
            self.finish(now_ns, index);
        }
    }

    /// Discarded units read as zeros; those covered in part are written.
    fn start_write_zeroes(&mut self, now_ns: u64, index: u32) {
        let fetches = self.discard_whole_units(now_ns, index);
        self.commands[index as usize].parts = fetches;
        if fetches == 0 {
            self.start_write(now_ns, index);
        }
    }

    /// Returns how many pages of the map the command has to wait for.
    fn discard_whole_units(&mut self, now_ns: u64, index: u32) -> u32 {
        let command = &self.commands[index as usize];
        let unit = self.spec.ftl.map_unit_bytes as u64;
        let start = command.first_byte.div_ceil(unit);
        let end = (command.first_byte + command.bytes) / unit;
        if start >= end {
            return 0;
        }
        self.ftl.discard(start as u32, end);
        self.log_is_dirty = true;
        if let Some(cache) = &mut self.read_cache {
            cache.remove_range(start as u32, end);
        }
        self.discard_map(now_ns, index, start, end)
    }

    /// Handles what ended in the flash.
    fn settle(&mut self, now_ns: u64) {
        // Nothing new ends while these are handled: that takes another step.
        for place in 0..self.backend.finished.len() {
            self.op_done(now_ns, self.backend.finished[place]);
        }
        self.backend.finished.clear();
    }

    /// An operation has ended: who wanted it is told, and it is forgotten.
    #[inline(always)]
    fn op_done(&mut self, now_ns: u64, index: u32) {
        #[cfg(test)]
        self.witness_op(index);
        let Op {
            owner,
            bytes,
            kind,
            source,
            ..
        } = self.backend.ops[index];
        if kind == OpKind::Program {
            self.stats.flash_sectors_programmed += bytes as u64 / 512;
        }
        if self.read_cache.is_some() && source == Source::Host {
            self.keep_read(index);
        }
        let op = &self.backend.ops[index];
        match source {
            Source::Host => self.host_read_done(now_ns, owner, bytes),
            Source::ReadAhead => self.read_ahead_done(now_ns, *op),
            Source::Rewrite => self.rewrite_read_done(now_ns, owner),
            Source::Program => self.program_done(now_ns, owner),
            Source::Gc => self.collection_done(now_ns, *op),
            Source::Merge => self.merge_op_done(now_ns, *op),
            Source::MapFetch => self.map_fetched(now_ns, owner),
            Source::MapMerge => self.map_merged(now_ns, owner),
            Source::MapWrite => self.map_written(now_ns, *op),
            Source::MapMove => self.map_collected(now_ns, *op),
            Source::DiscardLog => self.epoch_page_done(now_ns, owner),
        }
        self.backend.ops.remove(index);
    }

    /// A page of a read is in the controller: it goes on to the host at once.
    #[inline(always)]
    fn host_read_done(&mut self, now_ns: u64, index: u32, bytes: u32) {
        let command = &self.commands[index as usize];
        // What the host did not ask for stays behind.
        let bytes = (bytes as u64).min(command.bytes);
        let sent_ns = self.link.send(now_ns, bytes);
        self.part_sent(sent_ns, index);
    }

    /// Data of a command from or to DRAM is through.
    fn part_done(&mut self, now_ns: u64, index: u32) {
        let command = &self.commands[index as usize];
        let sent_ns = match command.op {
            HostOp::Read => self.link.send(now_ns, command.dram_bytes),
            _ => now_ns,
        };
        self.part_sent(sent_ns, index);
    }

    /// A part of a command is over; so is the command after its last. Nothing
    /// but its status is left to send, behind whatever the link is sending.
    #[inline]
    fn part_sent(&mut self, sent_ns: u64, index: u32) {
        let command = &mut self.commands[index as usize];
        command.parts -= 1;
        if command.parts == 0 {
            self.end(sent_ns, index);
        }
    }

    /// Ends a command that has nothing (more) to send but its status.
    fn finish(&mut self, now_ns: u64, index: u32) {
        let command = &self.commands[index as usize];
        let sent_ns = match (command.op, command.status) {
            (HostOp::Read, CommandStatus::Ok) => self.link.send(now_ns, command.bytes),
            _ => now_ns,
        };
        self.end(sent_ns, index);
    }

    #[inline]
    fn end(&mut self, sent_ns: u64, index: u32) {
        let at_ns = self.link.send_status(sent_ns) + self.spec.link.complete_ns;
        self.backend.lanes.push(Lane::LEAVING, at_ns, index);
    }

    #[inline]
    fn leave(&mut self, at_ns: u64, index: u32, done: &mut Vec<Completion>) {
        self.host_ns = at_ns;
        self.fetched_left(at_ns);
        let command = &mut self.commands[index as usize];
        done.push(Completion {
            tag: command.tag,
            at: Nanos(at_ns),
            status: command.status,
        });
        command.next_free = self.free_command;
        self.free_command = index;
    }
}

impl Device for Ssd {
    fn identify(&self) -> &Identity {
        &self.spec.identity
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        let index = self.keep(&command);
        self.host_ns = now.0;
        match self.arbiter.is_some() {
            true => self.post(now.0, index, command),
            false => self.fetch(now.0 + self.spec.link.submit_ns, index, &command),
        }
    }

    fn next_event(&self) -> Nanos {
        Nanos(self.next_ns())
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while self.advance_to_completion(now, done) < now {}
    }

    fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        let before = done.len();
        let mut limit_ns = limit.0;
        while let Some(event) = self.backend.lanes.pop_due(limit_ns) {
            self.step(event, done);
            if done.len() > before {
                // What else happens at this time still belongs to it.
                limit_ns = event.0;
            }
        }
        Nanos(limit_ns)
    }

    fn power_loss(&mut self, now: Nanos) -> Nanos {
        self.lose_power(now)
    }

    fn stats(&self, now: Nanos) -> DeviceStats {
        let mut stats = self.stats.clone();
        self.backend.report(now.0, &mut stats);
        stats.wear = self.ftl.wear();
        stats
    }

    fn reset_stats(&mut self, now: Nanos) {
        self.stats = DeviceStats::default();
        self.backend.reset_stats(now.0);
    }

    fn record(&mut self, on: bool) {
        self.backend.record(on);
    }

    fn take_record(&mut self, out: &mut DriveTimeline) {
        if let Some(recorder) = &mut self.backend.recorder {
            recorder.take(out);
        }
    }
}

#[cfg(test)]
mod arbiter_tests;
#[cfg(test)]
mod cache_program_tests;
#[cfg(test)]
mod cache_read_tests;
#[cfg(test)]
mod copyback_tests;
#[cfg(test)]
mod discard_tests;
#[cfg(test)]
mod gather_tests;
#[cfg(test)]
mod paq_tests;
#[cfg(test)]
mod slc_tests;
#[cfg(test)]
mod tests;
