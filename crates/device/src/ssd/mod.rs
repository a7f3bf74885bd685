//! A solid state drive: commands in at the top, flash at the bottom.
//!
//! Each part is a folder that owns its state, in this order from the host down:
//! [`host_interface`], [`write_cache`] and [`read_cache`], [`gc`], [`ftl`],
//! [`flash`]. A part is handed what is below it as one value ([`Controller`],
//! [`gc::Media`]), and its return values tell the parts above what to do next.
//! This file wires them and dispatches events.

mod events;
mod flash;
mod ftl;
mod gc;
mod host_interface;
mod lru;
mod power;
mod preconditioning;
mod read_cache;
mod slab;
mod spec;
#[cfg(test)]
mod tests;
mod write_cache;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use blklab_blk::{Nanos, Op as HostOp};
use blklab_stats::{DeviceStats, DriveTimeline};

use crate::Rng;
use crate::spec::{Model, ModelType};
use crate::{Command, CommandStatus, Completion, Device, DriveState, Identity};
use events::{EventKind, EventQueue};
use flash::Flash;
use flash::transaction::{Operation, Source, Transaction};
use ftl::cached_map::MapWaiter;
use gc::{Collector, IDLE_CHECK, Media, Progress};
use host_interface::{FETCH, FetchCtx, HostInterface};
use read_cache::{ReadCtx, Reads};
use spec::SsdSpec;
use write_cache::{Controller, WriteCache};

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
                include_str!("../../complete/power.toml"),
                include_str!("../../complete/published.toml"),
            ),
        ),
        (
            "ssd-blocks",
            concat!(
                include_str!("../../complete/ssd.toml"),
                include_str!("../../complete/ssd-blocks.toml"),
                include_str!("../../complete/host.toml"),
                include_str!("../../complete/power.toml"),
            ),
        ),
    ],
};

impl Model for SsdSpec {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn in_state(&self, state: DriveState) -> Option<Arc<dyn Model>> {
        Some(Arc::new(SsdSpec::in_state(self, state)))
    }

    fn state(&self) -> DriveState {
        self.state.name()
    }

    fn build(&self, seed: u64) -> Box<dyn Device> {
        Box::new(Ssd::new(self.clone(), seed))
    }
}

/// Time is checked once in this many events: a drive that had this many at one moment is
/// stuck.
const EVENTS_AT_ONE_MOMENT: u64 = 1 << 22;

/// A solid state drive.
#[derive(Clone, Debug)]
pub struct Ssd {
    writes: WriteCache,
    controller: Controller,
    /// The time of the last check whether time moves.
    checked_at_ns: Option<u64>,
}

impl Ssd {
    /// A drive as described; `seed` decides what is left to chance inside.
    pub fn new(spec: SsdSpec, seed: u64) -> Ssd {
        let mut rng = Rng::new(seed);
        let ftl = preconditioning::precondition(&spec, seed, &mut rng);
        let writes = WriteCache::new(&spec, &ftl);
        let mut gc = Collector::new(&spec, rng);
        let host = HostInterface::new(&spec);
        let reads = Reads::new(&spec);
        let mut media = Media {
            flash: Flash::new(&spec),
            ftl,
            stats: DeviceStats::default(),
            writes_wait: false,
            spec,
        };
        gc.start(&mut media);
        Ssd {
            writes,
            controller: Controller {
                host,
                reads,
                gc,
                media,
            },
            checked_at_ns: None,
        }
    }

    #[inline(always)]
    fn reads(&mut self) -> (&mut Reads, ReadCtx<'_>) {
        let Controller {
            host, reads, media, ..
        } = &mut self.controller;
        (reads, ReadCtx { host, media })
    }

    #[inline(always)]
    fn fetching(&mut self) -> (&mut HostInterface, FetchCtx<'_>) {
        let Controller { host, media, .. } = &mut self.controller;
        let ctx = FetchCtx {
            ftl: &media.ftl,
            events: media.flash.events(),
            stats: &mut media.stats,
            writes_waiting: self.writes.waiting(),
        };
        (host, ctx)
    }

    #[inline(always)]
    fn accept(&mut self, command: &Command) -> u32 {
        let number = self.controller.media.flash.next_command();
        self.controller.host.accept(command, number)
    }

    /// Posts an accepted command for the controller to fetch.
    #[inline(always)]
    fn post(&mut self, now: Nanos, index: u32, command: &Command) {
        self.controller.gc.host_is_active(now.0);
        let (host, mut ctx) = self.fetching();
        let Some(at_ns) = host.submit(&mut ctx, now.0, index, command) else {
            return;
        };
        match (command.op, self.controller.host.commands[index].status) {
            (HostOp::Read, CommandStatus::Ok) => self.start_read(at_ns, index),
            _ => self.start_command(at_ns, index),
        }
    }

    /// Handles an event. Returns whether it completed a command.
    #[inline(always)]
    fn handle_event(
        &mut self,
        (now_ns, kind, event): (u64, EventKind, u32),
        done: &mut Vec<Completion>,
    ) -> bool {
        self.controller.media.stats.events += 1;
        if self
            .controller
            .media
            .stats
            .events
            .is_multiple_of(EVENTS_AT_ONE_MOMENT)
            && self.is_stuck(now_ns)
        {
            return false;
        }
        match kind {
            EventKind::COMPLETED => self.complete(now_ns, event, done),
            EventKind::COMMAND_READY => self.command_ready(now_ns, event),
            EventKind::WRITE_RECEIVED => self.start_write(now_ns, event),
            EventKind::DRAM_DONE => {
                self.controller
                    .host
                    .dram_done(self.controller.media.flash.events(), now_ns, event)
            }
            EventKind::DATA_OUT => {
                self.controller.media.flash.data_out(now_ns, event);
                self.transaction_done(now_ns, event);
            }
            EventKind::CHANNEL_FREE => self.controller.media.flash.bus_free(now_ns, event),
            EventKind::ARRAY_READ => self.controller.media.flash.array_done(now_ns, event),
            _ => {
                self.controller.media.flash.array_done(now_ns, event);
                self.handle_finished(now_ns);
            }
        }
        kind == EventKind::COMPLETED
    }

    /// Whether time has stood still since the last check. Then the drive drops all
    /// events, and whoever waits for a completion ends with an error.
    #[cold]
    fn is_stuck(&mut self, now_ns: u64) -> bool {
        let still = self.checked_at_ns == Some(now_ns);
        self.checked_at_ns = Some(now_ns);
        if still {
            self.controller.media.flash.stop();
        }
        still
    }

    /// The controller has processed a command, or a fetch or an idle check is due.
    fn command_ready(&mut self, now_ns: u64, index: u32) {
        match index {
            FETCH => {
                let (host, mut ctx) = self.fetching();
                host.fetch_next(&mut ctx, now_ns);
            }
            IDLE_CHECK => {
                (self.controller.gc).fold_idle(&mut self.controller.media, now_ns);
            }
            _ => self.start_command(now_ns, index),
        }
    }

    fn start_command(&mut self, now_ns: u64, index: u32) {
        let command = &self.controller.host.commands[index];
        if command.status != CommandStatus::Ok {
            return self.controller.host.finish(
                self.controller.media.flash.events(),
                now_ns,
                index,
            );
        }
        match command.op {
            HostOp::Read => self.start_read(now_ns, index),
            HostOp::Write => {
                self.controller
                    .host
                    .receive(self.controller.media.flash.events(), now_ns, index)
            }
            HostOp::Flush => {
                self.writes.start_flush(&mut self.controller, now_ns, index);
            }
            HostOp::Discard | HostOp::Zone(_) => {
                self.writes
                    .start_discard(&mut self.controller, now_ns, index);
            }
            HostOp::WriteZeroes => {
                self.writes
                    .start_write_zeroes(&mut self.controller, now_ns, index);
            }
        }
    }

    #[inline]
    fn start_read(&mut self, now_ns: u64, index: u32) {
        let (reads, mut ctx) = self.reads();
        reads.start_read(&mut ctx, now_ns, index);
    }

    /// A write's data is in the controller.
    fn start_write(&mut self, now_ns: u64, index: u32) {
        self.writes.start_write(&mut self.controller, now_ns, index);
    }

    /// Places waiting writes as long as there is room.
    fn admit(&mut self, now_ns: u64) {
        self.writes.admit(&mut self.controller, now_ns);
    }

    /// Handles the transactions that ended in the flash.
    fn handle_finished(&mut self, now_ns: u64) {
        // Handling them adds none: that takes another event.
        let mut place = 0;
        while let Some(index) = self.controller.media.flash.finished(place) {
            self.transaction_done(now_ns, index);
            place += 1;
        }
        self.controller.media.flash.clear_finished();
    }

    /// A transaction has ended: whoever wanted it goes on.
    #[inline(always)]
    fn transaction_done(&mut self, now_ns: u64, index: u32) {
        let op = self.controller.media.flash.transaction(index);
        #[cfg(test)]
        self.controller.media.ftl.shadow_transaction(
            op,
            self.controller
                .host
                .commands
                .as_slice()
                .get(op.owner as usize),
        );
        if op.kind == Operation::Program {
            self.controller.media.stats.flash_sectors_programmed += op.bytes as u64 / 512;
        }
        match op.source {
            Source::Host => {
                let (reads, mut ctx) = self.reads();
                if reads.has_cache() {
                    reads.keep_read(&mut ctx, index);
                }
                reads.host_read_done(&mut ctx, now_ns, index);
            }
            Source::Program => {
                let record = op.owner;
                self.program_done(now_ns, record);
            }
            Source::Rewrite => {
                let record = op.owner;
                let media = &mut self.controller.media;
                media.ftl.rest_read(&mut media.flash, now_ns, record);
            }
            _ => {
                let op = *op;
                self.other_done(now_ns, &op);
            }
        }
        self.controller.media.flash.forget(index);
    }

    /// Handles the end of a transaction from one of the rarer sources.
    fn other_done(&mut self, now_ns: u64, op: &Transaction) {
        match op.source {
            Source::Host | Source::Program | Source::Rewrite => {}
            Source::ReadAhead => {
                let (reads, mut ctx) = self.reads();
                reads.read_ahead_done(&mut ctx, now_ns, op);
            }
            Source::Gc | Source::Copyback => {
                let progress =
                    (self.controller.gc).collection_done(&mut self.controller.media, now_ns, op);
                self.admit_after(now_ns, progress);
            }
            Source::Merge => {
                let progress =
                    (self.controller.gc).merge_op_done(&mut self.controller.media, now_ns, op);
                self.admit_after(now_ns, progress);
            }
            Source::MapFetch => self.map_fetched(now_ns, op.owner),
            Source::MapMerge | Source::MapWrite | Source::MapMove => self.map_done(now_ns, op),
            Source::DiscardLog => {
                self.writes
                    .epoch_page_done(&mut self.controller, now_ns, op.owner);
            }
            Source::Record => self.writes.record_done(&mut self.controller, now_ns),
        }
    }

    /// Admits waiting writes if what collection has done may have made room for them.
    fn admit_after(&mut self, now_ns: u64, progress: Progress) {
        let admits = match progress {
            Progress::None => false,
            Progress::Moved => self.writes.has_blocked() || self.controller.gc.has_caught_up(),
            Progress::Erased => true,
        };
        if admits {
            self.admit(now_ns);
        }
    }

    /// A page is programmed.
    fn program_done(&mut self, now_ns: u64, record: u32) {
        self.controller.media.flash.forget_writers(record);
        if self.controller.media.ftl.record(record).stream.is_of_host() {
            return self
                .writes
                .program_done(&mut self.controller, now_ns, record);
        }
        (self.controller.gc).page_done(&mut self.controller.media, now_ns, record);
        if self.controller.media.ftl.has_logs() {
            self.admit(now_ns);
        }
    }

    /// A page of the map has arrived: whoever needed it goes on.
    fn map_fetched(&mut self, now_ns: u64, read: u32) {
        let Some(map) = self.controller.media.ftl.cached_map() else {
            return;
        };
        let waiters = map.fetched(read);
        for waiter in &waiters {
            match *waiter {
                MapWaiter::Record(record) => self.controller.media.ftl.rest_read(
                    &mut self.controller.media.flash,
                    now_ns,
                    record,
                ),
                MapWaiter::Nobody => {}
                MapWaiter::ReadAhead(fetch) => {
                    let (reads, mut ctx) = self.reads();
                    reads.read_ahead_map_fetched(&mut ctx, now_ns, fetch);
                }
                MapWaiter::Command(command) => {
                    let active = &mut self.controller.host.commands[command];
                    active.parts -= 1;
                    if active.parts == 0 {
                        self.continue_mapped(now_ns, command);
                    }
                }
            }
        }
        if let Some(map) = self.controller.media.ftl.cached_map() {
            map.reuse(read, waiters);
        }
    }

    /// A command has all entries of the map that it waited for.
    fn continue_mapped(&mut self, now_ns: u64, command: u32) {
        match self.controller.host.commands[command].op {
            HostOp::Discard => {
                (self.controller.host).finish(self.controller.media.flash.events(), now_ns, command)
            }
            HostOp::WriteZeroes => self.start_write(now_ns, command),
            _ => {
                let (reads, mut ctx) = self.reads();
                reads.read_mapped(&mut ctx, now_ns, command);
            }
        }
    }

    /// A transaction on the map's own blocks is over.
    fn map_done(&mut self, now_ns: u64, op: &Transaction) {
        if op.kind == Operation::Erase {
            self.controller.media.ftl.map_block_erased(op.block);
        }
        let Some(map) = self.controller.media.ftl.cached_map() else {
            return;
        };
        let (flash, stats) = (
            &mut self.controller.media.flash,
            &mut self.controller.media.stats,
        );
        match op.source {
            Source::MapMerge => map.merged(flash, stats, now_ns, op.owner),
            Source::MapWrite => map.written(flash, stats, now_ns, op),
            _ => map.collected(flash, stats, now_ns, op),
        }
    }

    #[inline]
    fn complete(&mut self, at_ns: u64, index: u32, done: &mut Vec<Completion>) {
        self.controller.gc.host_is_active(at_ns);
        if self.controller.host.arbitrates() {
            let (host, mut ctx) = self.fetching();
            host.fetch_after_completion(&mut ctx, at_ns);
        }
        self.controller
            .host
            .complete(&mut self.controller.media.stats, at_ns, index, done);
    }
}

impl Device for Ssd {
    fn identify(&self) -> &Identity {
        &self.controller.media.spec.identity
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        let index = self.accept(&command);
        self.post(now, index, &command);
    }

    fn submit_unwritten(&mut self, now: Nanos, command: Command) {
        let index = self.accept(&command);
        self.controller.host.commands[index].is_unwritten = true;
        self.post(now, index, &command);
    }

    fn next_event(&self) -> Nanos {
        Nanos(self.controller.media.flash.next_event_ns())
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while self.advance_to_completion(now, done) < now {}
    }

    fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        let (mut limit_ns, mut last) = (limit.0, EventQueue::until(limit.0));
        while let Some(event) = self.controller.media.flash.events().pop_due(last) {
            if self.handle_event(event, done) {
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
        let mut stats = self.controller.media.stats.clone();
        for since_ns in self.controller.host.stalls_ns() {
            stats.collection.count_stall(now.0 - since_ns);
        }
        self.controller.media.flash.report(now.0, &mut stats);
        self.controller.media.ftl.report_wear(&mut stats.wear);
        stats
    }

    fn reset_stats(&mut self, now: Nanos) {
        self.controller.media.stats = DeviceStats {
            // Nothing else reports that a drive was too full.
            too_full: self.controller.media.stats.too_full,
            ..DeviceStats::default()
        };
        // Stalls and collections in progress count from now on.
        self.controller.media.stats.collection.writes_stalled =
            self.controller.host.count_stalls_from(now.0);
        self.controller.gc.count_from(now.0);
        self.controller.media.flash.reset_stats(now.0);
    }

    fn record(&mut self, on: bool) {
        self.controller.media.flash.record(on);
        self.controller.host.record(on);
    }

    fn take_record(&mut self, out: &mut DriveTimeline) {
        self.controller.media.flash.take_record(out);
        self.controller.host.take_passages(&mut out.passages);
    }
}
