//! The tasks behind a trace: what they hold in plugs, what time they see, and
//! when they are gone.
//!
//! kyber and bfq have no probe where a bio merges, so here a bio goes to our
//! scheduler when it is queued, as in the kernel; and bfq reads the time and
//! knows tasks. An event of another task on a CPU says that the one before was
//! switched away from.

use std::collections::{BTreeMap, BTreeSet};

use blklab_blk::{IoPrio, Op};
use blklab_workload::trace::tracefs::{BioEvent, Event, EventKind, RqEvent, RunInfo};

use crate::alone::probes::{ProbeEvent, Probes};
use crate::recording::Recorded;

/// An interrupt at this preempt depth came while a call's probe read its fields.
pub(crate) const DEPTH_IN_PROBE: u8 = 3;

/// A request that a task made and has not given to the scheduler.
#[derive(Clone, Copy, Debug)]
struct Made {
    op: Option<Op>,
    sector: u64,
    sectors: u32,
}

impl Made {
    fn end(&self) -> u64 {
        self.sector.saturating_add(self.sectors.into())
    }

    fn is(&self, rq: &RqEvent<'_>) -> bool {
        self.sector == rq.sector.0 && self.op == rq.rwbs.op
    }
}

/// The task that runs, and the time it sees.
#[derive(Debug, Default)]
struct Running {
    pid: u32,
    /// In a plug the kernel reads the clock once, until the plug is flushed or
    /// the task sleeps.
    clock_ns: Option<u64>,
    flushing: bool,
}

/// All tasks of a trace.
pub(crate) struct Tasks {
    /// Bios that became part of a request, by their `block_bio_queue`.
    merged: BTreeSet<usize>,
    /// Bios whose tasks held nothing back, by the same.
    lone: BTreeSet<usize>,
    /// The priority of each task's requests; a bio's line has none.
    priorities: BTreeMap<u32, IoPrio>,
    made: BTreeMap<u32, Vec<Made>>,
    /// By CPU.
    running: BTreeMap<u32, Running>,
}

impl Tasks {
    pub(crate) fn of(events: &[Recorded<'_>]) -> Tasks {
        let mut tasks = Tasks {
            merged: BTreeSet::new(),
            lone: BTreeSet::new(),
            priorities: BTreeMap::new(),
            made: BTreeMap::new(),
            running: BTreeMap::new(),
        };
        let mut queued: BTreeMap<u32, usize> = BTreeMap::new();
        // What each task submitted since it last let something go, from its
        // first request on.
        let mut plugged: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, Recorded { event, .. }) in events.iter().enumerate() {
            match event.kind {
                EventKind::BioQueue(_) => {
                    queued.insert(event.pid, at);
                }
                EventKind::GetRq(_) => {
                    let bio = queued.remove(&event.pid);
                    plugged.entry(event.pid).or_default().extend(bio);
                }
                EventKind::BioBackmerge(_) | EventKind::BioFrontmerge(_) => {
                    let bio = queued.remove(&event.pid);
                    tasks.merged.extend(bio);
                    let plugged = plugged.entry(event.pid).or_default();
                    if !plugged.is_empty() {
                        plugged.extend(bio);
                    }
                }
                EventKind::Unplug { .. } => {
                    if let Some([bio]) = plugged.remove(&event.pid).as_deref() {
                        tasks.lone.insert(*bio);
                    }
                }
                EventKind::RqInsert(rq) => {
                    tasks.priorities.insert(event.pid, priority(&rq));
                }
                _ => {}
            }
        }
        tasks
    }

    /// Whether the bio that this event queues became part of a request.
    pub(crate) fn merges(&self, at: usize) -> bool {
        self.merged.contains(&at)
    }

    pub(crate) fn priority(&self, pid: u32) -> IoPrio {
        self.priorities.get(&pid).copied().unwrap_or_default()
    }

    fn running(&mut self, event: &Event<'_>) -> &mut Running {
        let running = self.running.entry(event.cpu).or_default();
        if running.pid != event.pid {
            *running = Running {
                pid: event.pid,
                ..Running::default()
            };
        }
        running
    }

    /// Something happens while this task runs.
    pub(crate) fn runs(&mut self, event: &Event<'_>) {
        self.running(event);
    }

    /// The task lets its plug go; what follows is still in it.
    pub(crate) fn flushes(&mut self, event: &Event<'_>) {
        self.running(event).flushing = true;
    }

    /// The task queues the bio of this event. In a plug it looks at the clock
    /// then; a lone bio gets a plug, and the clock is read, with its request.
    pub(crate) fn queues(&mut self, at: usize, event: &Event<'_>) {
        if self.lone.contains(&at) {
            let running = self.running(event);
            running.flushing = false;
            running.clock_ns = None;
        } else {
            self.submits(event);
        }
    }

    /// The task submits, and looks at the clock.
    pub(crate) fn submits(&mut self, event: &Event<'_>) {
        let running = self.running(event);
        if std::mem::take(&mut running.flushing) {
            running.clock_ns = None;
        }
        running.clock_ns.get_or_insert(event.at_ns);
    }

    /// The task dispatches, which looks at the clock too. kblockd has no plug.
    pub(crate) fn dispatches(&mut self, event: &Event<'_>) {
        let kblockd = event.task.starts_with("kworker/") && event.task.ends_with('H');
        if !event.irq && !kblockd {
            self.running(event).clock_ns.get_or_insert(event.at_ns);
        }
    }

    /// The time that the task of this event has read and goes on with; none in
    /// an interrupt.
    pub(crate) fn clock_ns(&self, event: &Event<'_>) -> Option<u64> {
        let running = self.running.get(&event.cpu).filter(|_| !event.irq);
        running.and_then(|running| running.clock_ns)
    }

    /// Makes the bio part of the task's last held request, if it fits.
    pub(crate) fn merge_into_plug(&mut self, pid: u32, bio: &BioEvent<'_>) -> bool {
        let Some(last) = self.made.get_mut(&pid).and_then(|made| made.last_mut()) else {
            return false;
        };
        let end = bio.sector.0.saturating_add(bio.sectors.into());
        if last.op != bio.rwbs.op || (last.end() != bio.sector.0 && end != last.sector) {
            return false;
        }
        last.sector = last.sector.min(bio.sector.0);
        last.sectors = last.sectors.saturating_add(bio.sectors);
        true
    }

    /// `block_getrq`.
    pub(crate) fn makes(&mut self, pid: u32, bio: &BioEvent<'_>) {
        self.made.entry(pid).or_default().push(Made {
            op: bio.rwbs.op,
            sector: bio.sector.0,
            sectors: bio.sectors,
        });
    }

    /// Whether the task holds this request.
    pub(crate) fn has_made(&self, pid: u32, rq: &RqEvent<'_>) -> bool {
        let made = self.made.get(&pid);
        made.is_some_and(|made| made.iter().any(|made| made.is(rq)))
    }

    /// Takes the request that is inserted, and tells who made it: most likely
    /// the task that inserts it, but the data of a flush sequence comes from a
    /// worker.
    pub(crate) fn takes(&mut self, pid: u32, rq: &RqEvent<'_>) -> Option<u32> {
        let maker = match self.has_made(pid, rq) {
            true => pid,
            false => *self.made.keys().find(|&&other| self.has_made(other, rq))?,
        };
        let made = self.made.get_mut(&maker)?;
        let at = made.iter().position(|made| made.is(rq))?;
        made.remove(at);
        Some(maker)
    }
}

/// The priority of a request.
pub(crate) fn priority(rq: &RqEvent<'_>) -> IoPrio {
    IoPrio {
        class: rq.prio.class,
        level: rq.prio.level as u8,
    }
}

/// Whether an event is an answer, and whether no queue is in service then.
pub(crate) fn answer_of(probes: &dyn Probes, kind: &EventKind<'_>) -> Option<bool> {
    match probes.step(kind)? {
        ProbeEvent::Answer(answer) => Some(answer.nobody_served),
        _ => None,
    }
}

/// How long the scheduler works on a question at least: three quarters of what
/// most calls take that no line falls into.
pub(crate) fn work_ns(
    events: &[Recorded<'_>],
    answers: impl Fn(&EventKind<'_>) -> Option<bool>,
) -> u64 {
    let calls = events.windows(2).filter_map(|pair| {
        answers(&pair[1].event.kind).filter(|_| pair[0].event.cpu == pair[1].event.cpu)?;
        Some(pair[1].event.at_ns.saturating_sub(pair[0].event.at_ns))
    });
    let mut calls: Vec<u64> = calls.collect();
    calls.sort_unstable();
    calls
        .get(calls.len() / 2)
        .map_or(0, |median| median / 4 * 3)
}

/// How many events after a question's entry the scheduler began its work, which
/// takes `work_ns`; `events` starts with the entry, and `answers` tells of an
/// event whether it is the return, and whether no queue is in service then.
///
/// Interrupts may come between entry and return: before the scheduler took its
/// lock, or after it let go of it. It worked in the longest gap that is not
/// inside an interrupt. Where more than one is long enough and no queue is in
/// service afterwards, a completion behind the work took it out of service.
///
/// Calls of several CPUs overlap. Then it worked in the first gap that is long
/// enough, and had its lock at the end of it.
pub(crate) fn work_begins(
    events: &[Recorded<'_>],
    work_ns: u64,
    answers: impl Fn(&EventKind<'_>) -> Option<bool>,
) -> usize {
    let cpu = events[0].event.cpu;
    let answer = events.iter().enumerate().find_map(|(at, r)| {
        let nobody_served = answers(&r.event.kind).filter(|_| r.event.cpu == cpu)?;
        Some((at, nobody_served))
    });
    let Some((answer, nobody_served)) = answer else {
        return 0;
    };
    // Interrupts at this depth came while the entry's fields were being read.
    let in_probe =
        |event: &Event<'_>| event.cpu == cpu && event.irq && event.preempt_depth >= DEPTH_IN_PROBE;
    let begins = (0..answer).rfind(|&at| in_probe(&events[at].event));
    let own: Vec<usize> = (begins.unwrap_or(0)..=answer)
        .filter(|&at| events[at].event.cpu == cpu)
        .collect();
    let gaps = own.windows(2).map(|pair| (pair[0], pair[1]));
    let gaps = gaps.filter(|&(from, to)| {
        let (this, next) = (&events[from].event, &events[to].event);
        let new_interrupt = matches!(next.kind, EventKind::RqComplete(_));
        !this.irq || !next.irq || new_interrupt
    });
    let gap_ns = |&(from, to): &(usize, usize)| {
        events[to]
            .event
            .at_ns
            .saturating_sub(events[from].event.at_ns)
    };
    let overlaps = own.len() <= answer - own[0];
    let takes_first = overlaps || nobody_served;
    let first = gaps
        .clone()
        .find(|gap| takes_first && gap_ns(gap) >= work_ns);
    let chosen = first.or_else(|| gaps.max_by_key(gap_ns));
    chosen.map_or(0, |(_, to)| to - 1)
}

/// Tasks that exit. Where no probe says so, bfq takes the task's queue out of
/// service all the same. So each is found by a replay in which ours stays there,
/// and is handed to the next.
#[derive(Default)]
pub(crate) struct Exits {
    last_seen: BTreeMap<u32, usize>,
    submitters: BTreeSet<u32>,
    /// Before which events which tasks exit.
    known: Vec<(usize, u32)>,
    /// A probe tells of all of them.
    recorded: bool,
}

impl Exits {
    pub(crate) fn of(info: Option<&RunInfo>, events: &[Recorded<'_>]) -> Exits {
        let probed = |info: &RunInfo| info.probes.iter().any(|p| p.contains("bfq_exit_icq"));
        let mut exits = Exits {
            recorded: info.is_some_and(probed),
            ..Exits::default()
        };
        for (at, Recorded { event, .. }) in events.iter().enumerate() {
            exits.last_seen.insert(event.pid, at);
            match event.kind {
                EventKind::GetRq(_) => {
                    exits.submitters.insert(event.pid);
                }
                EventKind::BfqExit { .. } => {
                    exits.recorded = true;
                    exits.known.push((at, event.pid));
                }
                _ => {}
            }
        }
        exits
    }

    /// Whether all are known.
    pub(crate) fn are_recorded(&self) -> bool {
        self.recorded
    }

    /// What the reader should know of those that were found out.
    pub(crate) fn note(&self) -> Option<String> {
        let found = if self.recorded { 0 } else { self.known.len() };
        let note = || format!("{found} tasks were taken to exit where the kernel forgets them");
        (found > 0).then(note)
    }

    /// The tasks that exit before this event.
    pub(crate) fn before(&self, at: usize) -> impl Iterator<Item = u32> + '_ {
        let known = self.known.iter();
        known
            .filter(move |(when, _)| *when == at)
            .map(|&(_, pid)| pid)
    }

    /// A queue was in service after event `since` that is not before event
    /// `now`: of the tasks that are not seen from then on, the last to be seen
    /// before is gone. It went where the trace is silent for longest, since the
    /// way out of a program is long. Returns whether there is one.
    pub(crate) fn learn(&mut self, events: &[Recorded<'_>], since: usize, now: usize) -> bool {
        let gone = self.submitters.iter().filter_map(|&pid| {
            let last = *self.last_seen.get(&pid)?;
            let new = self.known.iter().all(|&(_, known)| known != pid);
            (last < now && new).then_some((last, pid))
        });
        let Some((last, pid)) = gone.max() else {
            return false;
        };
        let first = since.max(last) + 1;
        let at_ns = |at: usize| events[at].event.at_ns;
        let silence_ns = |at: &usize| at_ns(*at).saturating_sub(at_ns(*at - 1));
        let longest = (first..=now).rev().max_by_key(silence_ns);
        self.known.push((longest.unwrap_or(first), pid));
        true
    }
}

#[cfg(test)]
mod tests {
    use blklab_workload::trace::tracefs::events;

    use super::*;

    const ENTRY: &str = "kworker/0:1H-44 [000] ...1. 1.000000000: bfq_disp: (f) hctx=0x1 busy=0 insv=0x0 queued=1 drv=1 jif=250";
    const RETURN: &str = "rq=0x0 insv=0x0 queued=1 drv=1 peak=9333 jif=250";

    fn recorded(text: &str) -> Vec<Recorded<'_>> {
        let events = events(text, "memory").zip(1..);
        let recorded = |(event, line): (Result<_, _>, u64)| Recorded {
            line,
            event: event.unwrap(),
        };
        events.map(recorded).collect()
    }

    /// How far behind its entry the work of a call begins that returns at
    /// `return_ns`, with the lines of others between.
    fn begins(between: &[(u32, u32, &str)], return_ns: u32, nobody_served: bool) -> usize {
        let mut text = format!("{ENTRY}\n");
        for (cpu, ns, kind) in between {
            let end = match *kind {
                "block_rq_complete" => "253,0 R () 0 + 8 be,0,4 [0]",
                _ => "(f) rq=0x1 sector=0",
            };
            text += &format!("x-1 [{cpu:03}] d.h2. 1.{ns:09}: {kind}: {end}\n");
        }
        text +=
            &format!("kworker/0:1H-44 [000] ...1. 1.{return_ns:09}: bfq_disp_ret: (f) {RETURN}");
        work_begins(&recorded(&text), 3_000, |kind| {
            matches!(kind, EventKind::BfqDispRet(_)).then_some(nobody_served)
        })
    }

    #[test]
    fn the_work_is_in_the_longest_gap_outside_interrupts() {
        let end = "block_rq_complete";
        assert_eq!(begins(&[], 3_800, false), 0);
        let before = [(0, 1_000, end), (0, 6_000, "bfq_fin")];
        assert_eq!(begins(&before, 10_000, false), 2);
        let behind = [(0, 4_000, end), (0, 9_000, "bfq_fin")];
        assert_eq!(begins(&behind, 10_000, false), 0);
    }

    #[test]
    fn a_queue_that_left_service_was_served_before_the_interrupt() {
        let between = [(0, 3_500, "block_rq_complete"), (0, 5_000, "bfq_fin")];
        assert_eq!(begins(&between, 9_000, false), 2);
        assert_eq!(begins(&between, 9_000, true), 0);
    }

    #[test]
    fn a_call_that_overlaps_another_gets_its_lock_late() {
        let others = [(1, 500, "bfq_fin"), (1, 3_000, "bfq_fin")];
        assert_eq!(begins(&others, 4_000, false), 2);
        let interrupted = [(1, 500, "bfq_fin"), (0, 3_500, "block_rq_complete")];
        assert_eq!(begins(&interrupted, 99_000, false), 1);
    }

    fn time_of_the_insert(text: &str) -> Option<u64> {
        let events = recorded(text);
        let mut tasks = Tasks::of(&events);
        for (at, Recorded { event, .. }) in events.iter().enumerate() {
            match event.kind {
                EventKind::BioQueue(_) => tasks.queues(at, event),
                EventKind::GetRq(_) => tasks.submits(event),
                EventKind::Unplug { .. } => tasks.flushes(event),
                _ => {}
            }
        }
        tasks.clock_ns(&events.last()?.event)
    }

    #[test]
    fn a_lone_bio_s_clock_is_read_with_its_request() {
        let bio = |ns: u32, kind: &str, sector: u32| {
            format!("fio-9 [000] ..... 1.{ns:09}: {kind}: 253,0 R {sector} + 8 [fio]\n")
        };
        let unplug = |requests: u32| {
            format!("fio-9 [000] ..... 1.000009000: block_unplug: [fio] {requests}")
        };
        let first = bio(1_000, "block_bio_queue", 0) + &bio(3_000, "block_getrq", 0);
        assert_eq!(
            time_of_the_insert(&(first.clone() + &unplug(1))),
            Some(1_000_003_000)
        );
        let second = bio(5_000, "block_bio_queue", 80) + &bio(7_000, "block_getrq", 80);
        assert_eq!(
            time_of_the_insert(&(first + &second + &unplug(2))),
            Some(1_000_001_000)
        );
    }
}
