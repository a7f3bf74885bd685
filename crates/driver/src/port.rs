//! The command port of a drive: requests become commands, and completions come back.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use blklab_blk::{
    BioFlags, DEFAULT_MAX_SECTORS, IoStatus, Nanos, QueueConfig, QueueLimits, Request, RequestId,
};
use blklab_device::{Command, CommandStatus, Completion, Device};

use crate::KernelDriver;

/// Returns the request of a completed command, and its status.
#[inline]
pub fn request_end(completion: &Completion) -> (RequestId, IoStatus) {
    let status = match completion.status {
        CommandStatus::Ok => IoStatus::Ok,
        CommandStatus::IoError => IoStatus::IoError,
        CommandStatus::NoSpace => IoStatus::NoSpace,
    };
    (request_of(completion.tag), status)
}

/// The request whose command has the tag `tag`.
#[inline]
pub(crate) fn request_of(tag: u32) -> RequestId {
    RequestId::from_index(tag as usize)
}

pub(crate) struct Port {
    pub(crate) device: Box<dyn Device>,
    /// Whether commands wait for [`Port::release`] before they reach the drive.
    holds: bool,
    /// Commands that a CPU still prepares.
    held: Vec<Command>,
    /// Commands with the times at which they reach the drive, in that order.
    on_the_way: VecDeque<(Nanos, Command)>,
}

impl Port {
    pub(crate) fn new(device: Box<dyn Device>) -> Port {
        Port {
            device,
            holds: false,
            held: Vec::new(),
            on_the_way: VecDeque::new(),
        }
    }

    #[inline(always)]
    pub(crate) fn submit(&mut self, now: Nanos, queue: usize, id: RequestId, rq: &Request) {
        let command = Port::command(queue, id, rq);
        match self.holds {
            true => self.hold_back(command),
            false => self.device.submit(now, command),
        }
    }

    #[inline(never)]
    fn hold_back(&mut self, command: Command) {
        self.held.push(command);
    }

    /// See [`Driver::hold`](crate::Driver::hold).
    pub(crate) fn hold(&mut self) {
        self.holds = true;
    }

    /// See [`Driver::release`](crate::Driver::release).
    #[inline]
    pub(crate) fn release(&mut self, at: Nanos) {
        if !self.held.is_empty() {
            self.release_held(at);
        }
    }

    #[inline(never)]
    fn release_held(&mut self, at: Nanos) {
        for command in self.held.drain(..) {
            put_in_order(&mut self.on_the_way, at, command);
        }
    }

    /// Releases the commands of one hardware queue at the time `at`.
    pub(crate) fn release_queue(&mut self, queue: usize, at: Nanos) {
        let on_the_way = &mut self.on_the_way;
        self.held.retain(|command| {
            let is_other = command.queue as usize != queue;
            if !is_other {
                put_in_order(on_the_way, at, *command);
            }
            is_other
        });
    }

    /// Requests that have not reached the drive, each with the time at which it will
    /// ([`Nanos::MAX`] if unknown), in that order.
    pub(crate) fn on_the_way(&self) -> impl Iterator<Item = (Nanos, RequestId)> {
        let due = self.on_the_way.iter();
        let due = due.map(|(at, command)| (*at, request_of(command.tag)));
        due.chain((self.held.iter()).map(|command| (Nanos::MAX, request_of(command.tag))))
    }

    /// Drops all commands that have not reached the drive.
    pub(crate) fn forget_commands(&mut self) {
        self.held.clear();
        self.on_the_way.clear();
    }

    /// The time of the next event here or in the drive.
    #[inline]
    pub(crate) fn next_event(&self) -> Nanos {
        let next = self.device.next_event();
        match self.on_the_way.front() {
            Some(&(at, _)) => at.min(next),
            None => next,
        }
    }

    #[inline]
    pub(crate) fn command(queue: usize, id: RequestId, rq: &Request) -> Command {
        Command {
            tag: id.index() as u32,
            queue: queue as u16,
            op: rq.op,
            sector: rq.sector,
            sectors: rq.sectors,
            fua: rq.flags.has(BioFlags::FUA),
        }
    }

    #[inline]
    pub(crate) fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(&(at, command)) = self.on_the_way.front()
            && at <= now
        {
            self.on_the_way.pop_front();
            self.device.advance(at, done);
            self.device.submit(at, command);
        }
        self.device.advance(now, done);
    }

    /// See [`Device::advance_to_completion`].
    #[inline(always)]
    pub(crate) fn advance_to_completion(
        &mut self,
        limit: Nanos,
        done: &mut Vec<Completion>,
    ) -> Nanos {
        if self.on_the_way.is_empty() {
            return self.device.advance_to_completion(limit, done);
        }
        self.advance_with_arrivals(limit, done)
    }

    /// As [`Port::advance_to_completion`], while commands are still on their way to the drive.
    #[inline(never)]
    fn advance_with_arrivals(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        let before = done.len();
        while let Some(&(at, command)) = self.on_the_way.front()
            && at <= limit
        {
            let reached = self.device.advance_to_completion(at, done);
            if done.len() > before {
                return reached;
            }
            self.on_the_way.pop_front();
            self.device.submit(at, command);
        }
        self.device.advance_to_completion(limit, done)
    }

    /// Returns a queue for this drive, with limits from the drive's own description.
    pub(crate) fn queue_config(&self, nr_cpus: usize, queues: usize, depth: u32) -> QueueConfig {
        let drive = self.device.identify();
        let discard = if drive.discard { u32::MAX >> 9 } else { 0 };
        QueueConfig {
            nr_cpus,
            nr_hw_queues: queues,
            queue_depth: depth,
            round_robin_tags: false,
            seed: 0,
            limits: QueueLimits {
                capacity_sectors: drive.capacity_sectors,
                logical_block_sectors: (drive.logical_block_bytes / 512).max(1),
                max_sectors: drive.max_transfer_sectors.min(DEFAULT_MAX_SECTORS),
                max_segments: drive.max_segments,
                max_discard_sectors: discard,
                write_cache: drive.volatile_write_cache,
                fua: drive.fua,
                rotational: drive.rotational,
                zones: drive.zones,
                ..QueueLimits::default()
            },
        }
    }
}

/// Inserts a command after all those that are due no later.
fn put_in_order(on_the_way: &mut VecDeque<(Nanos, Command)>, at: Nanos, command: Command) {
    let place = on_the_way.partition_point(|&(due, _)| due <= at);
    on_the_way.insert(place, (at, command));
}

/// Room for requests on a SCSI device (`scsi_mq_get_budget`): as many as it takes commands.
pub(crate) struct Budget {
    depth: u32,
    left: u32,
    /// How often it is asked for in vain yet since the device refused a command
    /// (`device_blocked`).
    blocked: u32,
}

/// `SCSI_DEFAULT_DEVICE_BLOCKED`.
const BLOCKED: u32 = 3;

impl Budget {
    pub(crate) fn new(depth: u32) -> Budget {
        Budget {
            depth,
            left: depth,
            blocked: 0,
        }
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Reserves room for one more request; false if there is none, or if the device refused a
    /// command and has others (`scsi_dev_queue_ready`).
    pub(crate) fn take(&mut self) -> bool {
        let mut free = self.left > 0;
        if free && self.blocked > 0 {
            let busy = self.left < self.depth;
            self.blocked -= u32::from(!busy);
            free = !busy && self.blocked == 0;
        }
        self.left -= u32::from(free);
        free
    }

    /// The device refused a command (`scsi_set_blocked`): until it ends one, none is sent.
    /// Without this, commands that go to the driver without passing the dispatch list would
    /// keep one that must wait for an empty device from it for good.
    pub(crate) fn block(&mut self) {
        self.blocked = BLOCKED;
    }

    /// The device ended a command (`scsi_finish_command`).
    pub(crate) fn unblock(&mut self) {
        self.blocked = 0;
    }

    pub(crate) fn give_back(&mut self) {
        self.left += 1;
        debug_assert!(self.left <= self.depth, "budget given back twice");
    }
}

/// A driver that gives the drive one command at a time.
pub(crate) trait OneAtATime: KernelDriver {
    /// Gives the drive the next command, if there is one.
    fn submit_next(&mut self, now: Nanos);

    /// As [`Port::advance`], with one completion at a time.
    fn advance_one_by_one(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        loop {
            let before = done.len();
            self.advance_to_one(now, done);
            if done.len() == before {
                return;
            }
        }
    }

    /// See [`Port::advance_to_completion`].
    fn advance_to_one(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        let before = done.len();
        let reached = self.port_mut().advance_to_completion(limit, done);
        if done.len() > before {
            self.submit_next(reached);
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_blk::{Bio, Op, Sector};
    use blklab_device::registry;
    use proptest::prelude::*;

    fn port() -> Port {
        let null = registry::find("null").expect("known").expect("valid");
        Port::new(null.build(1))
    }

    fn submit(port: &mut Port, now: u64, queue: usize, id: usize) {
        let rq = Request::for_bio(&Bio::new(Op::Read, Sector(0), 8), Nanos(now));
        port.submit(Nanos(now), queue, RequestId::from_index(id), &rq);
    }

    fn ends(port: &mut Port) -> Vec<(usize, u64)> {
        let mut ends = Vec::new();
        while port.next_event() != Nanos::MAX {
            port.advance_to_completion(Nanos::MAX, &mut ends);
        }
        let end = |end: &Completion| (end.tag as usize, end.at.0);
        ends.iter().map(end).collect()
    }

    #[test]
    fn a_command_reaches_the_drive_when_its_cpu_has_come_to_it() {
        let mut at_once = port();
        submit(&mut at_once, 0, 0, 0);
        let took = ends(&mut at_once)[0].1;
        let mut held = port();
        held.hold();
        submit(&mut held, 0, 0, 0);
        submit(&mut held, 0, 1, 1);
        assert_eq!(held.next_event(), Nanos::MAX);
        held.release_queue(1, Nanos(300));
        held.release(Nanos(700));
        submit(&mut held, 100, 0, 2);
        held.release(Nanos(500));
        let ends = ends(&mut held);
        assert_eq!(ends, [(1, took + 300), (2, took + 500), (0, took + 700)]);
    }

    /// Commands reach the drive at their times also when time passes by calls other than those that
    /// wait for a completion.
    #[test]
    fn a_command_reaches_the_drive_at_its_time() {
        let mut at_once = port();
        submit(&mut at_once, 0, 0, 0);
        let took = ends(&mut at_once)[0].1;
        for to_completion in [false, true] {
            let mut held = port();
            held.hold();
            submit(&mut held, 0, 0, 0);
            held.release(Nanos(300));
            let mut done = Vec::new();
            let mut advance = |held: &mut Port, now| match to_completion {
                true => _ = held.advance_to_completion(now, &mut done),
                false => held.advance(now, &mut done),
            };
            advance(&mut held, Nanos(299));
            assert_eq!(held.next_event(), Nanos(300));
            advance(&mut held, Nanos(300));
            assert_eq!(held.next_event(), Nanos(300 + took));
            advance(&mut held, Nanos(300 + took));
            assert_eq!((done.len(), done[0].at), (1, Nanos(300 + took)));
        }
    }

    #[test]
    fn a_command_says_what_its_request_does() {
        let mut bio = Bio::new(Op::Write, Sector(24), 16);
        for fua in [false, true] {
            bio.flags = if fua {
                BioFlags::FUA
            } else {
                BioFlags::default()
            };
            let rq = Request::for_bio(&bio, Nanos(0));
            let command = Port::command(3, RequestId::from_index(9), &rq);
            let expected = Command {
                tag: 9,
                queue: 3,
                op: Op::Write,
                sector: Sector(24),
                sectors: 16,
                fua,
            };
            assert_eq!(command, expected);
        }
    }

    /// A device that refused a command is sent none while it has others, and then not before it was
    /// asked three times (`scsi_dev_queue_ready`, `SCSI_DEFAULT_DEVICE_BLOCKED`).
    #[test]
    fn a_blocked_device_is_asked_again_when_it_has_nothing() {
        let mut budget = Budget::new(2);
        assert!(budget.take());
        budget.block();
        assert!((0..9).all(|_| !budget.take()), "it has a command");
        budget.give_back();
        let asked = [0; 4].map(|_| budget.take());
        assert_eq!(asked, [false, false, true, true]);
        assert!(!budget.take(), "there is room for two");
        budget.give_back();
        budget.block();
        assert!(!budget.take());
        budget.unblock();
        assert!(budget.take());
        assert_eq!((budget.left, budget.depth()), (0, 2));
    }

    proptest! {
        /// Time passes to one completion after the other, also while commands are on their way.
        #[test]
        fn time_passes_to_the_first_completion(
            releases in prop::collection::vec(0..20_000_u64, 1..30),
        ) {
            let mut at_once = port();
            submit(&mut at_once, 0, 0, 0);
            let took = ends(&mut at_once)[0].1;
            let mut held = port();
            held.hold();
            let mut due = Vec::new();
            for (id, at) in releases.into_iter().enumerate() {
                submit(&mut held, 0, 0, id);
                held.release(Nanos(at));
                due.push((at + took, id as u32));
            }
            due.sort_unstable();
            let mut done = Vec::new();
            while done.len() < due.len() {
                let reached = held.advance_to_completion(Nanos::MAX, &mut done);
                let first = due[done.len() - 1].0;
                prop_assert_eq!((reached, done[done.len() - 1].at), (Nanos(first), Nanos(first)));
                let later = due.get(done.len()).is_none_or(|(at, _)| *at > first);
                prop_assert!(later, "all ends of one time come together");
            }
            let mut found: Vec<_> = done.iter().map(|end| (end.at.0, end.tag)).collect();
            found.sort_unstable();
            prop_assert_eq!(found, due);
        }
    }
}
