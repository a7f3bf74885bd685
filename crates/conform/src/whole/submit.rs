//! Tasks and what they submit.

use blklab_blk::{Bio, BioFlags, Op, Plug, Sector, Submit, SubmitterId, Waiter, ZoneAction};
use blklab_workload::trace::tracefs::{BioEvent, Event, EventKind};

use super::Whole;
use super::lines::{IDLE, tag_of};
use super::tracepoint::Extent;

/// For so long a task that does not sleep is on its way from a bio to its request, at
/// most, with an interrupt between them.
const AWAKE_NS: u64 = 50_000;

/// A task that submits.
#[derive(Default)]
pub(super) struct Task {
    pub(super) plug: Plug,
    /// Asleep in our block layer, and on what.
    pub(super) waiter: Option<Waiter>,
    waits_for: Option<Bio>,
    /// Not submitted yet: what is left of a bio of which an earlier part waits, or
    /// what throttling holds back that the trace does not show.
    pub(super) left: Option<Bio>,
    /// Such throttling is why.
    pub(super) throttled: bool,
    /// The line at which it let its plug go, which it does as it inserts.
    pub(super) unplugs: Option<usize>,
    /// It let its plug go and was switched away from before it ran the queue.
    pub(super) runs_later: bool,
}

impl Whole<'_> {
    /// A task submits a bio.
    pub(super) fn bio_queue(&mut self, bio: &BioEvent<'_>) {
        let pid = self.event().pid;
        self.give_up_waiting(pid);
        let mut flags = bio.rwbs.flags;
        if self.lines.outcome(pid, self.at + 1).refused {
            flags = flags.with(BioFlags::NOWAIT);
        }
        let op = match bio.rwbs.op {
            // Of the operations without a letter only those on whole zones have no length.
            None if bio.sectors == 0 => Op::Zone(ZoneAction::Reset),
            op => op.unwrap_or(Op::WriteZeroes),
        };
        flags = flags.with(self.lines.unshown_flags(pid, self.at + 1));
        let bio = Bio {
            flags,
            prio: self.lines.prio_of(self.at, Extent::of_bio(bio)),
            submitter: SubmitterId(pid),
            cgroup: self.cgroup_of(pid, bio.sector),
            ..Bio::new(op, bio.sector, bio.sectors)
        };
        self.completions_before(pid, &bio);
        self.run_woken_before(pid, &bio);
        self.submit(pid, self.at + 1, bio);
    }

    /// Whoever was woken for a tag and found none may have run before this task came to its bio,
    /// or may still be behind it. The bio's tag tells, where the two differ: a search in vain
    /// sweeps freed tags and starts the next one at the first.
    fn run_woken_before(&mut self, pid: u32, bio: &Bio) {
        self.queue.take_woken(&mut self.woken);
        if self.woken.is_empty() {
            return;
        }
        let made = self.lines.outcome(pid, self.at + 1).at;
        let rq = made.and_then(|at| self.lines.request_made(pid, at));
        let Some(recorded) = rq.and_then(|rq| tag_of(rq, self.queue.nr_requests())) else {
            return;
        };
        let cpu = self.cpu();
        let asleep = self.tasks.values().filter_map(|task| task.waiter.as_ref());
        let tried = asleep.filter(|waiter| self.woken.contains(&waiter.ticket));
        let differs = self.queue.tag_behind(cpu, bio, std::iter::empty()) != Some(recorded);
        if differs && self.queue.tag_behind(cpu, bio, tried) == Some(recorded) {
            self.tried += 1;
            self.run_woken_without_tag();
        }
    }

    /// Submits a bio, a large one part by part as our queue would cut it: between
    /// two parts the task may have to wait. What becomes of the first is in the
    /// trace from `next` on. Where the trace shows calls of writeback throttling,
    /// the others go with theirs.
    fn submit(&mut self, pid: u32, mut next: usize, bio: Bio) {
        let mut left = bio;
        loop {
            let outcome = self.lines.outcome(pid, next);
            if outcome.sleeps
                && self.throttles.contains(&left.op)
                && self.queue.has_free_tag(self.cpu(), &left)
            {
                self.throttled += 1;
                let task = self.task(pid);
                (task.left, task.throttled) = (Some(left), true);
                return;
            }
            let found = outcome.merged.and_then(|rq| self.serials.get(&rq).copied());
            self.hint.merges_into(found);
            let part = self.first_part(&mut left);
            self.submit_part(pid, next, part, outcome.plugged);
            let blocked = self.task(pid).waiter.is_some();
            self.count_wait(outcome.sleeps || self.slept(outcome.at), blocked);
            if left.sectors == 0 {
                return;
            }
            match outcome.at {
                Some(at) if !blocked && self.queue.wbt().is_none() => next = at + 1,
                _ => {
                    self.task(pid).left = Some(left);
                    return;
                }
            }
        }
    }

    /// A worker submits the next write of a zone, in which an earlier one has ended.
    pub(super) fn zone_work(&mut self) {
        let (pid, next) = (self.event().pid, self.at + 1);
        self.give_up_waiting(pid);
        let Some(bio) = self.queue.next_zone_write().copied() else {
            return;
        };
        self.completions_before(pid, &bio);
        let outcome = self.lines.outcome(pid, next);
        let submit = self.call(pid, next, |queue, now, _, drive| {
            queue.submit_zone_write(now, drive)
        });
        self.task(pid).waits_for = Some(bio);
        if let Some(submit) = submit {
            self.fall_asleep(pid, submit);
        }
        let blocked = self.task(pid).waiter.is_some();
        self.count_wait(outcome.sleeps, blocked);
    }

    /// Whether the task slept until its line at `at` though no other line is between:
    /// the cost model's timers wake it where nothing else happens.
    fn slept(&self, at: Option<usize>) -> bool {
        let has_costs = self.queue.io_cost().is_some();
        let Some(at) = at.filter(|_| has_costs) else {
            return false;
        };
        let passed_ns = self.events[at].event.at_ns - self.event().at_ns;
        passed_ns > AWAKE_NS
    }

    /// Takes as much off a bio as one request may hold.
    fn first_part(&self, left: &mut Bio) -> Bio {
        let limits = self.queue.limits();
        let max = limits.max_request_sectors_at(left.op, left.sector);
        let mut part = *left;
        part.sectors = left.sectors.min(max);
        left.sector = part.end();
        left.sectors -= part.sectors;
        part
    }

    fn submit_part(&mut self, pid: u32, next: usize, bio: Bio, plugged: bool) {
        let cpu = self.cpu();
        let submit = self.call(pid, next, |queue, now, task, drive| {
            let held = !task.plug.is_empty() || plugged;
            let plug = held.then_some(&mut task.plug);
            queue.submit_bio(now, cpu, plug, bio, drive)
        });
        self.task(pid).waits_for = Some(bio);
        self.fall_asleep(pid, submit);
    }

    pub(super) fn cpu(&self) -> usize {
        let last = self.queue.info().nr_cpus.saturating_sub(1);
        self.event().cpu.min(last) as usize
    }

    pub(super) fn task(&mut self, pid: u32) -> &mut Task {
        self.tasks.entry(pid).or_default()
    }

    fn fall_asleep(&mut self, pid: u32, submit: Submit) {
        if let Submit::Blocked(waiter) = submit {
            self.task(pid).waiter = Some(waiter);
        }
    }

    /// Completions that interrupt the task right here, where it goes on: before
    /// throttling let its bio go they may have brought it a place, and before that
    /// is in a request a tag, where there is none.
    fn completions_before(&mut self, pid: u32, bio: &Bio) {
        self.completions_up_to(pid, |kind| match kind {
            EventKind::WbtWait(_) => None,
            kind => Some(matches!(kind, EventKind::WbtWaitRet(_))),
        });
        if self.queue.has_free_tag(self.cpu(), bio) {
            return;
        }
        self.completions_up_to(pid, |kind| match kind {
            EventKind::WbtWait(_)
            | EventKind::WbtWaitRet(_)
            | EventKind::ZwPlug { held: false, .. } => None,
            EventKind::GetRq(_) | EventKind::BioBackmerge(_) | EventKind::BioFrontmerge(_) => {
                Some(true)
            }
            _ => Some(false),
        });
    }

    /// Completions between this line and the task's next one for which `ends` tells
    /// whether it is one that they come before; `None` where it is passed over.
    fn completions_up_to(&mut self, pid: u32, ends: impl Fn(&EventKind<'_>) -> Option<bool>) {
        let mut own = self.lines.own(pid, self.at + 1);
        let found = own.find_map(|(at, event)| Some((at, event, ends(&event.kind)?)));
        let Some((end, event, true)) = found else {
            return;
        };
        if self.lines.others_in(event, self.at + 1..end) {
            return;
        }
        let at = self.at;
        for between in at + 1..end {
            let line = self.lines.event(between);
            if let EventKind::RqComplete(rq) = &line.kind
                && line.cpu == event.cpu
            {
                self.at = between;
                self.completion(Extent::of_end(rq));
            }
        }
        self.at = at;
    }

    /// Has the task go on that has got a request now: it wakes.
    pub(super) fn go_on(&mut self, pid: u32) {
        let throttled = std::mem::take(&mut self.task(pid).throttled);
        if !throttled {
            self.resume(pid);
        }
        if self.task(pid).waiter.is_some() {
            return;
        }
        if self.queue.wbt().is_some() {
            return;
        }
        if let Some(left) = self.task(pid).left.take() {
            // The line at hand leads to the request of the part that had to wait.
            let next = match self.lines.outcome(pid, self.at).at {
                Some(request) if !throttled => request + 1,
                _ => self.at,
            };
            self.submit(pid, next, left);
        }
    }

    /// Throttling looks at a task's bio that starts here: if that is a further part,
    /// it goes now.
    pub(super) fn next_part(&mut self, sector: Sector) {
        let pid = self.event().pid;
        let task = self.task(pid);
        let awake = task.waiter.is_none();
        let left = task.left.take_if(|left| awake && left.sector == sector);
        if let Some(left) = left {
            self.completions_before(pid, &left);
            self.submit(pid, self.at + 1, left);
        }
    }

    /// Whether the task sleeps, in our block layer or before it.
    pub(super) fn sleeps(&self, pid: u32) -> bool {
        let task = self.tasks.get(&pid);
        task.is_some_and(|task| task.waiter.is_some() || task.throttled)
    }

    /// An interrupt comes to a task between its waking and its request. It ran the queue
    /// before: behind the completion that run would have shown.
    pub(super) fn go_on_before_interrupt(&mut self) {
        let event = self.event();
        let pid = event.pid;
        let task = self.tasks.get(&pid).filter(|task| task.left.is_none());
        let waiter = task.and_then(|task| task.waiter.as_ref());
        let wants_tag = waiter.is_some_and(Waiter::wants_tag);
        if event.irq && wants_tag && self.lines.gets_request(pid, self.at).is_some() {
            self.resume(pid);
        }
    }

    /// A sleeper tries again to get a tag.
    fn resume(&mut self, pid: u32) {
        let Some(waiter) = self.task(pid).waiter.take() else {
            return;
        };
        let plugged = self.lines.plugs_next(pid, self.at);
        let finds_tag = self.finds_tag(pid, &waiter);
        let submit = self.call(pid, self.at, |queue, now, task, drive| {
            drive.finds_tag(finds_tag);
            let held = !task.plug.is_empty() || plugged;
            let plug = held.then_some(&mut task.plug);
            queue.resume(now, plug, waiter, drive)
        });
        self.fall_asleep(pid, submit);
    }

    /// Whether a sleeper finds the tag that it got in the trace, which its request's address
    /// tells, before the next completion.
    fn finds_tag(&mut self, pid: u32, waiter: &Waiter) -> bool {
        let Some(made) = self.lines.gets_request(pid, self.at) else {
            return false;
        };
        let rq = self.lines.request_made(pid, made);
        let recorded = rq.and_then(|rq| tag_of(rq, self.queue.nr_requests()));
        recorded.is_some() && self.queue.tag_for(waiter) == recorded
    }

    /// The kernel's task goes on, so ours must not sleep: the bio it slept on
    /// goes its way as soon as it can.
    fn give_up_waiting(&mut self, pid: u32) {
        if self.sleeps(pid) {
            self.go_on(pid);
        }
        if let Some(waiter) = self.task(pid).waiter.take() {
            self.stuck.push(waiter);
        }
        self.task(pid).left = None;
    }

    pub(super) fn retry_stuck(&mut self) {
        let pid = self.event().pid;
        for waiter in std::mem::take(&mut self.stuck) {
            let submit = self.call(pid, self.at + 1, |queue, now, _, drive| {
                queue.resume(now, None, waiter, drive)
            });
            if let Submit::Blocked(waiter) = submit {
                self.stuck.push(waiter);
            }
        }
    }

    /// Whoever was woken for a tag has run where the CPU has come to idle since its line
    /// `before`, or idles unmarked: an idle CPU is marked until it has let them run. They found
    /// no tag if no line of theirs shows; where there is one, it was another that was woken.
    pub(super) fn run_woken_untraced(&mut self, before: &Event<'_>) {
        self.queue.take_woken(&mut self.woken);
        let event = self.event();
        let completes = matches!(event.kind, EventKind::RqComplete(_));
        let have_run = before.pid != IDLE || completes && !event.need_resched;
        if event.pid == IDLE && have_run {
            self.run_woken_without_tag();
        }
    }

    /// Has those run that were woken and find no tag, where that shows nothing: a run that asks
    /// the scheduler has a line.
    pub(super) fn run_woken_without_tag(&mut self) {
        self.queue.take_woken(&mut self.woken);
        let hctx = self.queue.hctx_of(self.cpu());
        for ticket in std::mem::take(&mut self.woken) {
            if self.queue.asks_first(hctx) {
                self.woken.push(ticket);
                continue;
            }
            let woken = self.tasks.iter().find_map(|(pid, task)| {
                let waiter = task
                    .waiter
                    .as_ref()
                    .filter(|waiter| waiter.ticket == ticket)?;
                Some((*pid, waiter, task.waits_for?))
            });
            if let Some((pid, waiter, bio)) = woken
                && !self.queue.would_go_on(waiter, &bio)
            {
                self.resume(pid);
            }
        }
    }
}
