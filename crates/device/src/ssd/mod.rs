//! A solid state drive: commands in at the top, flash at the bottom.
//!
//! The way of a command: over the link into the controller, through the write
//! cache and the translation layer to operations on the flash, and back over
//! the link. Each of these is a file of its own; this one holds the commands.

mod divide;
mod events;
mod flash;
mod ftl;
mod gc;
mod geometry;
mod host_interface;
mod lru;
mod power;
mod preconditioning;
mod read_cache;
mod rng;
#[cfg(test)]
mod shadow;
mod spec;
#[cfg(test)]
mod tests;
mod write_cache;

use blklab_blk::{Nanos, Op as HostOp};
use blklab_stats::{DeviceStats, DriveTimeline, Waits};

use std::sync::Arc;

use crate::spec::{Model, ModelType};
use crate::{Command, CommandStatus, Completion, Device, Identity};
use events::{EventKind, EventQueue};
use flash::Flash;
use flash::codewords::Codewords;
use flash::transaction::{NONE, Operation, Priority, Source, Transaction};
use ftl::cached_map::blocks::MapBlocks;
use ftl::cached_map::cmt::Cmt;
use ftl::cached_map::fetch::MapRead;
use ftl::partial::Partial;
use ftl::superpage::Stripe;
use ftl::{FlashPage, Ftl, Stream, Victim};
use gc::merging::Merging;
use gc::pace::Pace;
use gc::victim::Job;
use host_interface::arbitration::Arbiter;
use host_interface::link::Link;
use read_cache::ReadCache;
use read_cache::read_ahead::ReadAhead;
use rng::Rng;
use spec::{InitialState, Mapping, SsdSpec};
use write_cache::admission::NOT_STALLED;
use write_cache::allocation::Turn;
use write_cache::epochs::Epochs;
use write_cache::queue::Waiting;

/// Flash behind a controller.
pub(crate) const MODEL: ModelType = ModelType {
    name: "ssd",
    about: "Flash behind a controller.",
    read: |root, interface| Ok(Arc::new(SsdSpec::read(root, interface)?)),
    complete: &[
        (
            "ssd-pages",
            concat!(
                include_str!("../../complete/ssd.toml"),
                include_str!("../../complete/ssd-pages.toml"),
                include_str!("../../complete/host.toml"),
            ),
        ),
        (
            "ssd-blocks",
            concat!(
                include_str!("../../complete/ssd.toml"),
                include_str!("../../complete/ssd-blocks.toml"),
                include_str!("../../complete/host.toml"),
            ),
        ),
    ],
};

impl Model for SsdSpec {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn build(&self, seed: u64) -> Box<dyn Device> {
        Box::new(Ssd::new(self.clone(), seed))
    }
}

/// Among arriving commands: time to see whether the host is silent.
const FOLD_TIMER: u32 = NONE;
/// Likewise: time to fetch the next command.
const FETCH: u32 = NONE - 1;

/// Events in which time must move: as many could not be due at once.
const EVENTS_TO_MOVE: u64 = 1 << 22;

/// A command inside the drive.
#[derive(Clone, Copy, Debug)]
struct ActiveCommand {
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
    /// What it has waited for.
    waits: Waits,
    /// A write: how often admission had stopped when it came.
    stops_before: u64,
    /// Slots of it that wait for a block.
    parked: u32,
    /// Since when it waits for a block or for its pace, or [`NOT_STALLED`].
    stalled_since_ns: u64,
}

impl ActiveCommand {
    /// What a place holds before its first command.
    const NONE: ActiveCommand = ActiveCommand {
        tag: 0,
        op: HostOp::Read,
        fua: false,
        first_byte: 0,
        bytes: 0,
        dram_bytes: 0,
        parts: 0,
        next_slot: 0,
        rewrites: false,
        status: CommandStatus::Ok,
        next_free: NONE,
        number: 0,
        waits: Waits::NONE,
        stops_before: 0,
        parked: 0,
        stalled_since_ns: NOT_STALLED,
    };
}

/// A solid state drive.
#[cfg_attr(not(test), derive(Clone, Debug))]
pub struct Ssd {
    spec: SsdSpec,
    flash: Flash,
    ftl: Ftl,
    link: Link,
    codewords: Codewords,
    rng: Rng,
    commands: Vec<ActiveCommand>,
    free_command: u32,
    /// When the controller can take the next command.
    controller_ns: u64,
    dram_ns: u64,
    /// When the host's last command came or ended.
    host_ns: u64,
    /// A look at whether the drive is idle is due.
    fold_timer: bool,
    /// Writes that wait for room.
    waiting: Waiting,
    /// Dynamic allocation, range by range.
    turns: Vec<Turn>,
    /// Pairs of pages whose second is complete only when the first is.
    followers: Vec<(u32, u32)>,
    /// Units in DRAM that the host has not written whole.
    partial: Partial,
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
    /// Places and owners of a page that collection looks at, and of one that it
    /// moves, which may have it look at others.
    page_owners: Vec<(u32, u32)>,
    moving: Vec<(u32, u32)>,
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
    /// When it was last looked whether time moves.
    looked_at_ns: Option<u64>,
    stats: DeviceStats,
    #[cfg(test)]
    witness: Option<Box<shadow::Witness>>,
}

impl Ssd {
    /// A drive as described; `seed` decides what is left to chance inside.
    pub fn new(spec: SsdSpec, seed: u64) -> Ssd {
        let mut rng = Rng::new(seed);
        let mut drive = Ssd {
            flash: Flash::new(&spec),
            ftl: Ftl::new(&spec, &mut rng),
            link: Link::new(spec.link),
            codewords: Codewords::new(&spec),
            rng,
            commands: Vec::with_capacity(64),
            free_command: NONE,
            controller_ns: 0,
            dram_ns: 0,
            host_ns: 0,
            fold_timer: false,
            waiting: Waiting::new(0),
            turns: vec![Turn::FIRST; spec.geometry.channels as usize],
            followers: Vec::new(),
            partial: Partial::new(),
            log_is_dirty: false,
            dirty_bytes: 0,
            cache_full: false,
            programs_queued: 0,
            epochs: Epochs::new(),
            waiters: Vec::new(),
            free_waiter: NONE,
            jobs: vec![Job::NONE; spec.geometry.planes() as usize],
            page_owners: Vec::new(),
            moving: Vec::new(),
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
            looked_at_ns: None,
            stats: DeviceStats::default(),
            #[cfg(test)]
            witness: None,
            spec,
        };
        drive.waiting = Waiting::new(drive.lines());
        if let Some(cmt) = &mut drive.cmt
            && drive.spec.state != InitialState::Fresh
        {
            cmt.warm_up(seed);
        }
        for Victim { plane, block, had } in std::mem::take(&mut drive.ftl.victims_at_start) {
            // Rounding can have left less room than a block needs: it waits.
            let valid = drive.ftl.blocks.valid[block as usize] as u32;
            if valid > drive.ftl.room_in_row(plane) {
                continue;
            }
            drive.take_up_job(0, plane, block, (plane, Stream::Collection));
            let job = &mut drive.jobs[plane as usize];
            (job.valid, job.at_rest) = (had, true);
        }
        drive.slc_written(0);
        drive
    }

    /// Takes a command in, field by field (see [`Transaction::replace_with`]).
    #[inline]
    fn keep(&mut self, command: &Command) -> u32 {
        if self.free_command == NONE {
            self.add_command();
        }
        let index = self.free_command;
        let number = self.flash.next_command();
        let active = &mut self.commands[index as usize];
        self.free_command = active.next_free;
        active.tag = command.tag;
        active.op = command.op;
        active.fua = command.fua;
        active.first_byte = command.sector.bytes();
        active.bytes = command.sectors as u64 * 512;
        active.dram_bytes = 0;
        active.parts = 0;
        active.next_slot = 0;
        active.rewrites = false;
        active.status = CommandStatus::Ok;
        active.number = number;
        active.waits = Waits::NONE;
        active.stops_before = 0;
        active.parked = 0;
        active.stalled_since_ns = NOT_STALLED;
        index
    }

    /// There are more commands than ever before.
    #[cold]
    fn add_command(&mut self) {
        self.free_command = self.commands.len() as u32;
        self.commands.push(ActiveCommand::NONE);
    }

    /// When anything happens next inside.
    #[inline]
    fn next_ns(&self) -> u64 {
        self.flash.events.next_ns()
    }

    /// What an event brings; whether that is the end of a command.
    #[inline(always)]
    fn step(
        &mut self,
        (now_ns, lane, event): (u64, EventKind, u32),
        done: &mut Vec<Completion>,
    ) -> bool {
        self.stats.events += 1;
        if self.stats.events.is_multiple_of(EVENTS_TO_MOVE) && self.stands_still(now_ns) {
            return false;
        }
        match lane {
            EventKind::LEAVING => self.leave(now_ns, event, done),
            EventKind::ARRIVING => self.arrive(now_ns, event),
            EventKind::RECEIVING => self.start_write(now_ns, event),
            EventKind::DRAM => self.part_done(now_ns, event),
            EventKind::DATA_OUT => {
                self.flash.data_out(now_ns, event);
                self.transaction_done(now_ns, event);
            }
            EventKind::BUS => self.flash.bus_free(now_ns, event),
            EventKind::READ => self.flash.array_done(now_ns, event),
            _ => {
                self.flash.array_done(now_ns, event);
                self.settle(now_ns);
            }
        }
        lane == EventKind::LEAVING
    }

    /// Whether nothing has moved since the last look. Then nothing ever will:
    /// the drive falls silent, which whoever waits for it notices.
    #[cold]
    fn stands_still(&mut self, now_ns: u64) -> bool {
        let still = self.looked_at_ns == Some(now_ns);
        self.looked_at_ns = Some(now_ns);
        if still {
            self.flash.events = EventQueue::new();
        }
        still
    }

    /// A command has passed the controller.
    fn arrive(&mut self, now_ns: u64, index: u32) {
        if index >= FETCH {
            return match index {
                FETCH => self.fetch_next(now_ns),
                _ => self.fold_idle(now_ns),
            };
        }
        let ActiveCommand { op, status, .. } = self.commands[index as usize];
        if status != CommandStatus::Ok {
            return self.finish(now_ns, index);
        }
        match op {
            HostOp::Read => self.start_read(now_ns, index),
            HostOp::Write => self.receive(now_ns, index),
            HostOp::Flush => self.start_flush(now_ns, index),
            HostOp::Discard => self.start_discard(now_ns, index),
            HostOp::WriteZeroes => self.start_write_zeroes(now_ns, index),
        }
    }

    /// The first and the last map unit of a command.
    #[inline]
    fn slots_of(&self, index: u32) -> (u32, u32) {
        let command = &self.commands[index as usize];
        let unit_bits = self.spec.ftl.map_unit_bytes.trailing_zeros();
        let last = (command.first_byte + command.bytes - 1) >> unit_bits;
        ((command.first_byte >> unit_bits) as u32, last as u32)
    }

    /// A transaction as it enters the flash.
    #[inline]
    fn flash_op(
        &self,
        kind: Operation,
        source: Source,
        owner: u32,
        at: FlashPage,
        bytes: u32,
    ) -> Transaction {
        Transaction {
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
            priority: Priority::Normal,
            collects: matches!(
                source,
                Source::Gc | Source::Copyback | Source::Merge | Source::MapMove
            ),
            slc: self.ftl.is_slc(at.block),
            ready: true,
            arrival: 0,
            write_clock_ns: 0,
            collection_clock_ns: 0,
            command: NONE,
        }
    }

    /// Handles what ended in the flash.
    fn settle(&mut self, now_ns: u64) {
        // Nothing new ends while these are handled: that takes another step.
        for place in 0..self.flash.finished.len() {
            self.transaction_done(now_ns, self.flash.finished[place]);
        }
        self.flash.finished.clear();
    }

    /// An operation has ended: who wanted it is told, and it is forgotten.
    #[inline(always)]
    fn transaction_done(&mut self, now_ns: u64, index: u32) {
        #[cfg(test)]
        self.witness_op(index);
        let Transaction {
            owner,
            bytes,
            kind,
            source,
            ..
        } = self.flash.transactions[index];
        if kind == Operation::Program {
            self.stats.flash_sectors_programmed += bytes as u64 / 512;
        }
        if self.read_cache.is_some() && source == Source::Host {
            self.keep_read(index);
        }
        let op = &self.flash.transactions[index];
        match source {
            Source::Host => {
                let read = self.flash.transactions.waiting[index as usize];
                self.host_read_done(now_ns, owner, read)
            }
            Source::ReadAhead => self.read_ahead_done(now_ns, *op),
            Source::Rewrite => self.rewrite_read_done(now_ns, owner),
            Source::Program => self.program_done(now_ns, owner),
            Source::Gc | Source::Copyback => self.collection_done(now_ns, *op),
            Source::Merge => self.merge_op_done(now_ns, *op),
            Source::MapFetch => self.map_fetched(now_ns, owner),
            Source::MapMerge => self.map_merged(now_ns, owner),
            Source::MapWrite => self.map_written(now_ns, *op),
            Source::MapMove => self.map_collected(now_ns, *op),
            Source::DiscardLog => self.epoch_page_done(now_ns, owner),
        }
        self.flash.transactions.remove(index);
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
        self.flash.events.push(EventKind::LEAVING, at_ns, index);
    }

    #[inline]
    fn leave(&mut self, at_ns: u64, index: u32, done: &mut Vec<Completion>) {
        self.host_ns = at_ns;
        self.fetched_left(at_ns);
        let command = &mut self.commands[index as usize];
        match command.op {
            HostOp::Read => self.stats.read_waits.count(command.waits),
            HostOp::Write => self.stats.write_waits.count(command.waits),
            _ => {}
        }
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
        let (mut limit_ns, mut last) = (limit.0, EventQueue::until(limit.0));
        while let Some(event) = self.flash.events.pop_due(last) {
            if self.step(event, done) {
                // What else happens at this time still belongs to it.
                (limit_ns, last) = (event.0, EventQueue::until(event.0));
            }
        }
        Nanos(limit_ns)
    }

    fn power_loss(&mut self, now: Nanos) -> Nanos {
        self.lose_power(now)
    }

    fn stats(&self, now: Nanos) -> DeviceStats {
        let mut stats = self.stats.clone();
        for since_ns in self.stalls_ns() {
            stats.collection.count_stall(now.0 - since_ns);
        }
        self.flash.report(now.0, &mut stats);
        self.ftl.report_wear(&mut stats.wear);
        stats
    }

    fn reset_stats(&mut self, now: Nanos) {
        self.stats = DeviceStats {
            // Nobody hears of it but by this.
            too_full: self.stats.too_full,
            ..DeviceStats::default()
        };
        // What is under way counts from now on.
        self.stats.collection.writes_stalled = self.count_stalls_from(now.0);
        self.jobs.iter_mut().for_each(|job| job.since_ns = now.0);
        self.merging.iter_mut().for_each(|m| m.counts_from(now.0));
        self.flash.reset_stats(now.0);
    }

    fn record(&mut self, on: bool) {
        self.flash.record(on);
    }

    fn take_record(&mut self, out: &mut DriveTimeline) {
        if let Some(recorder) = &mut self.flash.recorder {
            recorder.take(out);
        }
    }
}
