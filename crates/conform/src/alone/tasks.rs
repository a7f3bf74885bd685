//! The tasks behind a trace: what they hold in plugs, what time they see, and
//! when they are gone.
//!
//! kyber and bfq have no probe where a bio merges, so here a bio goes to our
//! scheduler when it is queued, as in the kernel; and bfq reads the time and
//! knows tasks. The traces are of one CPU: an event of another task says that
//! the one before was switched away from.

use std::collections::{BTreeMap, BTreeSet};

use blklab_blk::{IoPrio, Op};
use blklab_workload::trace::tracefs::{BioEvent, Event, EventKind, RqEvent};

use crate::recording::Recorded;

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
    /// The priority of each task's requests; a bio's line has none.
    priorities: BTreeMap<u32, IoPrio>,
    made: BTreeMap<u32, Vec<Made>>,
    running: Running,
}

impl Tasks {
    pub(crate) fn of(events: &[Recorded<'_>]) -> Tasks {
        let mut tasks = Tasks {
            merged: BTreeSet::new(),
            priorities: BTreeMap::new(),
            made: BTreeMap::new(),
            running: Running::default(),
        };
        let mut queued: BTreeMap<u32, usize> = BTreeMap::new();
        for (at, Recorded { event, .. }) in events.iter().enumerate() {
            match event.kind {
                EventKind::BioQueue(_) => {
                    queued.insert(event.pid, at);
                }
                EventKind::GetRq(_) => {
                    queued.remove(&event.pid);
                }
                EventKind::BioBackmerge(_) | EventKind::BioFrontmerge(_) => {
                    tasks.merged.extend(queued.remove(&event.pid));
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

    /// Something happens while this task runs.
    pub(crate) fn runs(&mut self, pid: u32) {
        if self.running.pid != pid {
            self.running = Running {
                pid,
                ..Running::default()
            };
        }
    }

    /// The task lets its plug go; what follows is still in it.
    pub(crate) fn flushes(&mut self) {
        self.running.flushing = true;
    }

    /// The task submits, and looks at the clock.
    pub(crate) fn submits(&mut self, at_ns: u64) {
        if std::mem::take(&mut self.running.flushing) {
            self.running.clock_ns = None;
        }
        self.running.clock_ns.get_or_insert(at_ns);
    }

    /// The task dispatches, which looks at the clock too. kblockd has no plug.
    pub(crate) fn dispatches(&mut self, event: &Event<'_>) {
        let kblockd = event.task.starts_with("kworker/") && event.task.ends_with('H');
        if !event.irq && !kblockd {
            self.running.clock_ns.get_or_insert(event.at_ns);
        }
    }

    /// The time that the scheduler sees.
    pub(crate) fn clock_ns(&self, event: &Event<'_>) -> u64 {
        let clock = self.running.clock_ns.filter(|_| !event.irq);
        clock.unwrap_or(event.at_ns)
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

fn priority(rq: &RqEvent<'_>) -> IoPrio {
    IoPrio {
        class: rq.prio.class,
        level: rq.prio.level as u8,
    }
}

/// Interrupts may come between a question's entry and its answer: before the
/// scheduler took its lock, or after it let go of it. The scheduler worked in
/// the longest gap; this is how many events after the entry that began. `events`
/// starts with the entry.
pub(crate) fn work_begins(
    events: &[Recorded<'_>],
    answers: impl Fn(&EventKind<'_>) -> bool,
) -> usize {
    let answer = events.iter().position(|r| answers(&r.event.kind));
    let gap_ns = |at: &usize| {
        let (this, next) = (&events[*at].event, &events[at + 1].event);
        next.at_ns.saturating_sub(this.at_ns)
    };
    (0..answer.unwrap_or(0)).max_by_key(gap_ns).unwrap_or(0)
}

/// Tasks that exit. No event says so, but bfq takes the task's queue out of
/// service. So each is found by a replay in which ours stays there, and is told
/// to the next.
#[derive(Default)]
pub(crate) struct Exits {
    last_seen: BTreeMap<u32, usize>,
    submitters: BTreeSet<u32>,
    /// Before which events which tasks exit.
    known: Vec<(usize, u32)>,
}

impl Exits {
    pub(crate) fn of(events: &[Recorded<'_>]) -> Exits {
        let mut exits = Exits::default();
        for (at, Recorded { event, .. }) in events.iter().enumerate() {
            exits.last_seen.insert(event.pid, at);
            if let EventKind::GetRq(_) = event.kind {
                exits.submitters.insert(event.pid);
            }
        }
        exits
    }

    /// How many are known.
    pub(crate) fn known(&self) -> usize {
        self.known.len()
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
    /// before is gone. Returns whether there is one.
    pub(crate) fn learn(&mut self, since: usize, now: usize) -> bool {
        let gone = self.submitters.iter().filter_map(|&pid| {
            let last = *self.last_seen.get(&pid)?;
            let new = self.known.iter().all(|&(_, known)| known != pid);
            (last < now && new).then_some((last, pid))
        });
        let Some((last, pid)) = gone.max() else {
            return false;
        };
        self.known.push((since.max(last) + 1, pid));
        true
    }
}
