//! How the controller fetches commands: when, at what rate, and which it refuses.

use blklab_blk::Op as HostOp;
use blklab_stats::{DeviceStats, Through};

use super::HostInterface;
use super::arbitration::Posted;
use crate::ssd::events::{EventKind, EventQueue};
use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::{Ftl, Located};
use crate::{Command, CommandStatus};

/// In place of a command's index in a [`EventKind::COMMAND_READY`] event: the next
/// command is to be fetched.
pub(crate) const FETCH: u32 = NONE - 1;

/// What fetching a command needs beside the host interface.
pub(crate) struct FetchCtx<'a> {
    pub(crate) ftl: &'a Ftl,
    pub(crate) events: &'a mut EventQueue,
    pub(crate) stats: &'a mut DeviceStats,
    /// Writes that wait for room in the cache.
    pub(crate) writes_waiting: u32,
}

impl HostInterface {
    /// How long the controller fetches no other command after this one.
    #[inline]
    fn interval_ns(&self, ftl: &Ftl, command: &Command) -> u64 {
        let controller = &self.controller;
        if matches!(command.op, HostOp::Discard | HostOp::WriteZeroes) {
            return controller.interval_ns + self.discard_walk_ns(command);
        }
        if command.op == HostOp::Write {
            return controller.interval_ns + controller.write_interval_ns;
        }
        match controller.page_interval_ns {
            page_ns if page_ns > 0 && command.op == HostOp::Read => {
                controller.interval_ns + self.extra_pages(ftl, command) * page_ns
            }
            _ => controller.interval_ns,
        }
    }

    /// How long the firmware pauses after this write.
    #[inline(never)]
    fn pause_ns(&mut self) -> u64 {
        self.writes += 1;
        let pauses = self.controller.write_pauses.iter().flatten();
        let due = pauses.filter(|pause| self.writes.is_multiple_of(pause.writes));
        due.map(|pause| pause.pause_ns).sum()
    }

    /// Flash pages of a read beyond its first.
    #[inline(never)]
    fn extra_pages(&self, ftl: &Ftl, command: &Command) -> u64 {
        let unit_bits = self.unit_bits;
        let end_byte = command.sector.bytes() + command.sectors as u64 * 512;
        let first = command.sector.bytes() >> unit_bits;
        let last = (end_byte - 1) >> unit_bits;
        if first == last || !self.supports(command) {
            return 0;
        }
        let mut before = None;
        let mut pages = 0u64;
        for slot in first as u32..=last as u32 {
            let Located::Flash(at) = ftl.locate(slot) else {
                continue;
            };
            let is_another = before.is_none_or(|before| !ftl.same_page(before, at));
            pages += is_another as u64;
            before = Some(at);
        }
        pages.saturating_sub(1)
    }

    /// Whether the drive can carry out a command.
    fn supports(&self, command: &Command) -> bool {
        command.fits(self.capacity_sectors)
            && (command.op != HostOp::Discard || self.supports_discard)
    }

    /// Fetches a command that is visible to the controller from `visible_ns` on.
    /// Returns when it is processed if the caller can carry it out at once; otherwise
    /// an event will say.
    #[inline(always)]
    pub(crate) fn fetch(
        &mut self,
        ctx: &mut FetchCtx<'_>,
        visible_ns: u64,
        index: u32,
        command: &Command,
    ) -> Option<u64> {
        let taken_ns = self.controller_ns.max(visible_ns);
        self.controller_ns = taken_ns + self.interval_ns(ctx.ftl, command);
        if command.op == HostOp::Write && self.controller.write_pauses[0].is_some() {
            self.controller_ns += self.pause_ns();
        }
        if !self.supports(command) {
            self.commands[index].status = CommandStatus::IoError;
        } else if matches!(command.op, HostOp::Discard | HostOp::WriteZeroes) {
            let at_ns = taken_ns + self.controller.discard_ns + self.discard_walk_ns(command);
            self.passed(index, Through::Controller, (visible_ns, at_ns));
            ctx.events.push(EventKind::COMMAND_READY, at_ns, index);
            return None;
        } else if command.op == HostOp::Write {
            ctx.stats.host_sectors_written += command.sectors as u64;
            let (first, last) = self.slots_of(index);
            for slot in first..last + 1 {
                ctx.ftl.prefetch(slot);
            }
            self.passed(index, Through::Controller, (visible_ns, taken_ns));
            match self.link.is_shared() {
                // Until then the link may serve the other direction.
                true => ctx.events.push(EventKind::COMMAND_READY, taken_ns, index),
                false => self.receive(ctx.events, taken_ns, index),
            }
            return None;
        }
        let at_ns = taken_ns + self.controller.read_ns;
        self.passed(index, Through::Controller, (visible_ns, at_ns));
        if ctx.events.next_ns() > at_ns
            && self.controller.read_ns <= self.controller.write_ns
            && self.arbiter.is_none()
            && !self.link.is_shared()
        {
            // No event is due before it is processed, and no later command can be
            // processed before it, since a read takes the controller no longer than
            // a write: it needs no event.
            return Some(at_ns);
        }
        ctx.events.push(EventKind::COMMAND_READY, at_ns, index);
        None
    }

    /// How long the firmware walks the map for a discard.
    #[inline(never)]
    fn discard_walk_ns(&self, command: &Command) -> u64 {
        let unit_sectors = ((1u32 << self.unit_bits) / 512).max(1);
        // Map units that are only partly covered are not discarded.
        let units = match self.supports(command) {
            true => command.sectors / unit_sectors,
            false => 0,
        };
        units as u64 * self.controller.discard_unit_ps / 1000
    }

    /// A write's data follows its command over the link.
    #[inline(always)]
    pub(crate) fn receive(&mut self, events: &mut EventQueue, now_ns: u64, index: u32) {
        let received_ns = self.link.receive(now_ns, self.commands[index].bytes);
        let at_ns = received_ns + self.controller.write_ns;
        self.passed(index, Through::Link, (now_ns, received_ns));
        self.passed(index, Through::Controller, (received_ns, at_ns));
        events.push(EventKind::WRITE_RECEIVED, at_ns, index);
    }
}

/// Fetching through submission queues, on drives that have them (see
/// [`super::arbitration`]).
impl HostInterface {
    /// Posts a command to its submission queue. Without queues it is fetched at once,
    /// and the result is that of [`HostInterface::fetch`].
    #[inline]
    pub(crate) fn submit(
        &mut self,
        ctx: &mut FetchCtx<'_>,
        now_ns: u64,
        index: u32,
        command: &Command,
    ) -> Option<u64> {
        let visible_ns = now_ns + self.submit_ns;
        match &mut self.arbiter {
            None => self.fetch(ctx, visible_ns, index, command),
            Some(arbiter) => {
                arbiter.post(Posted {
                    visible_ns,
                    index,
                    command: *command,
                });
                self.schedule_fetch(ctx, now_ns);
                None
            }
        }
    }

    /// Schedules the fetch of the next command for when it is possible.
    fn schedule_fetch(&mut self, ctx: &mut FetchCtx<'_>, now_ns: u64) {
        let Some(arbiter) = &mut self.arbiter else {
            return;
        };
        if arbiter.is_full(ctx.writes_waiting) {
            return;
        }
        let Some(visible_ns) = arbiter.first_visible_ns() else {
            return;
        };
        let due_ns = visible_ns.max(self.controller_ns).max(now_ns);
        if arbiter.schedule(due_ns) {
            ctx.events.push(EventKind::COMMAND_READY, due_ns, FETCH);
        }
    }

    /// Fetches a command.
    pub(crate) fn fetch_next(&mut self, ctx: &mut FetchCtx<'_>, now_ns: u64) {
        let Some(arbiter) = &mut self.arbiter else {
            return;
        };
        if !arbiter.is_due(now_ns) {
            return; // A fetch was scheduled earlier than this one since.
        }
        if let Some((posted, class)) = arbiter.take(now_ns) {
            debug_assert_ne!(posted.index, NONE);
            ctx.stats.fetches.commands[class] += 1;
            ctx.stats.fetches.wait_ns[class] += now_ns - posted.visible_ns;
            let at_once = self.fetch(ctx, now_ns, posted.index, &posted.command);
            debug_assert_eq!(
                at_once, None,
                "with queues a fetched command always has an event"
            );
        }
        self.schedule_fetch(ctx, now_ns);
    }

    /// Whether commands are fetched from submission queues.
    #[inline]
    pub(crate) fn arbitrates(&self) -> bool {
        self.arbiter.is_some()
    }

    /// A command has ended, so that another may be fetched.
    #[inline(never)]
    pub(crate) fn fetch_after_completion(&mut self, ctx: &mut FetchCtx<'_>, now_ns: u64) {
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.command_ended();
            self.schedule_fetch(ctx, now_ns);
        }
    }

    /// A fetched write waits for room, so that another command may be fetched.
    pub(crate) fn fetch_past_waiting_writes(&mut self, ctx: &mut FetchCtx<'_>, now_ns: u64) {
        if ctx.writes_waiting > 0 {
            self.schedule_fetch(ctx, now_ns);
        }
    }
}
