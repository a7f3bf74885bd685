//! What schedulers decide is a pure function of the calls that they get: on any machine and after
//! any change of the code that is not one of a scheduler, processes wait as long as is recorded
//! here. Where a scheduler is changed on purpose, `INSTA_UPDATE=always` records them anew, and the
//! difference shows whom the change makes wait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write;

use blklab_blk::{
    Bio, BioFlags, CgroupId, IoClass, IoPrio, Nanos, Op, QueueInfo, RequestId, Sector, SubmitterId,
};
use blklab_elevator::ElevatorType;
use blklab_judges::Numbers;

use crate::test_queue::{TestQueue, queue_info};

/// Bios of a run.
const BIOS: u32 = 3_000;

/// A process that keeps some bios in flight and thinks between them.
#[derive(Clone, Copy)]
struct Process {
    op: Op,
    flags: BioFlags,
    class: IoClass,
    level: u8,
    cgroup: u16,
    depth: u32,
    sectors: u32,
    /// Sequential, or else random within its region.
    sequential: bool,
    region: u64,
    think_us: u64,
    /// It stops for this long after each twentieth bio.
    pause_us: u64,
}

/// A process of the foreground, from which others differ.
const READER: Process = Process {
    op: Op::Read,
    flags: BioFlags::NONE,
    class: IoClass::None,
    level: 4,
    cgroup: 0,
    depth: 1,
    sectors: 8,
    sequential: true,
    region: 0,
    think_us: 20,
    pause_us: 0,
};

/// Readers and writers, near and far, of all classes and of two groups. The third and the fourth
/// read one file by turns.
const PROCESSES: [Process; 12] = [
    READER,
    Process {
        sequential: false,
        region: 2,
        think_us: 500,
        sectors: 16,
        ..READER
    },
    Process {
        region: 3,
        depth: 2,
        think_us: 5,
        ..READER
    },
    Process {
        region: 3,
        depth: 2,
        think_us: 7,
        level: 4,
        ..READER
    },
    Process {
        op: Op::Write,
        flags: BioFlags::SYNC,
        region: 4,
        think_us: 100,
        ..READER
    },
    Process {
        op: Op::Write,
        region: 5,
        depth: 24,
        sequential: false,
        think_us: 0,
        pause_us: 60_000,
        ..READER
    },
    Process {
        op: Op::Write,
        region: 6,
        depth: 8,
        sectors: 128,
        think_us: 0,
        pause_us: 30_000,
        ..READER
    },
    Process {
        class: IoClass::Rt,
        level: 0,
        region: 7,
        sequential: false,
        think_us: 4_000,
        ..READER
    },
    Process {
        class: IoClass::Idle,
        level: 7,
        region: 8,
        depth: 4,
        ..READER
    },
    Process {
        level: 1,
        class: IoClass::Be,
        cgroup: 1,
        region: 9,
        depth: 3,
        sequential: false,
        ..READER
    },
    Process {
        level: 7,
        class: IoClass::Be,
        cgroup: 2,
        region: 10,
        depth: 3,
        ..READER
    },
    Process {
        op: Op::Discard,
        sectors: 64,
        region: 11,
        think_us: 20_000,
        ..READER
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Issue(usize),
    End(usize),
}

/// What a process has seen.
#[derive(Clone, Copy, Default)]
struct Seen {
    issued: u64,
    next: u64,
    ended: u64,
    waited_ns: u64,
    longest_ns: u64,
    depths: u64,
}

struct Run {
    queue: TestQueue,
    numbers: Numbers,
    rotational: bool,
    depth: usize,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    processes: [Seen; PROCESSES.len()],
    /// By index of a request: the process and time of its bios.
    bios: BTreeMap<usize, Vec<(usize, u64)>>,
    in_flight: BTreeMap<usize, RequestId>,
    head: u64,
    /// Sectors that the head moved, and requests that it had to move for.
    moved: u64,
    seeks: u64,
    dispatched: u64,
    issued: u32,
}

impl Run {
    fn new(kind: &ElevatorType, rotational: bool, depth: usize) -> Option<Run> {
        let info = QueueInfo {
            rotational,
            queue_depth: depth as u32,
            ..queue_info()
        };
        let mut queue = TestQueue::new(kind.build(&info)?);
        if queue.elevator.has_cgroups() {
            queue.elevator.set_cgroup_weight(CgroupId(1), 300);
            queue.elevator.set_cgroup_weight(CgroupId(2), 50);
        }
        let mut run = Run {
            queue,
            numbers: Numbers(7),
            rotational,
            depth,
            events: BinaryHeap::new(),
            sequence: 0,
            processes: Default::default(),
            bios: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            head: 0,
            moved: 0,
            seeks: 0,
            dispatched: 0,
            issued: 0,
        };
        for (at, process) in PROCESSES.iter().enumerate() {
            for _ in 0..process.depth {
                run.at(at as u64 * 700_000, Event::Issue(at));
            }
        }
        Some(run)
    }

    fn at(&mut self, ns: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((ns, self.sequence, event)));
    }

    fn bio_of(&mut self, at: usize) -> Bio {
        let process = &PROCESSES[at];
        let seen = &mut self.processes[at];
        let start = process.region * (queue_info().capacity_sectors / 16);
        let sector = match process.sequential {
            true => start + seen.next,
            false => start + self.numbers.below(1 << 14) * 8,
        };
        seen.next += u64::from(process.sectors);
        seen.issued += 1;
        let mut bio = Bio::new(process.op, Sector(sector), process.sectors);
        // In the second half one has another priority, and one is in another group.
        let late = self.issued > BIOS / 2;
        bio.flags = process.flags;
        bio.prio = IoPrio {
            class: process.class,
            level: if late && at == 3 { 1 } else { process.level },
        };
        bio.submitter = SubmitterId(at as u32 + 1);
        bio.cgroup = CgroupId(if late && at == 9 { 2 } else { process.cgroup });
        bio
    }

    fn issue(&mut self, at: usize) {
        if self.issued == BIOS {
            return;
        }
        self.issued += 1;
        if self.issued == BIOS / 2 {
            let exits = SubmitterId(2);
            self.queue
                .with(|elevator, ctx| elevator.exit_submitter(ctx, exits));
        }
        let bio = self.bio_of(at);
        let depth = self.queue.elevator.limit_depth_for(&bio);
        self.processes[at].depths += u64::from(depth.unwrap_or_default());
        let now = self.queue.now.0;
        if let Some(into) = self.queue.merge(&bio) {
            self.bios.entry(into.index()).or_default().push((at, now));
            return self.end_merged();
        }
        let id = match self.numbers.below(100) {
            0 if bio.op == Op::Write => self.queue.make_flush_data(&bio),
            _ => self.queue.make(&bio),
        };
        self.bios.insert(id.index(), vec![(at, now)]);
        self.queue.insert_request(id, blklab_blk::InsertAt::Tail);
        self.end_merged();
    }

    /// Bios of requests that were merged into others go on with the next one at once.
    fn end_merged(&mut self) {
        for gone in self.queue.merged_away() {
            self.end_bios(gone.index());
        }
    }

    fn end_bios(&mut self, index: usize) {
        let now = self.queue.now.0;
        for (at, since) in self.bios.remove(&index).expect("it has bios") {
            let seen = &mut self.processes[at];
            seen.ended += 1;
            seen.waited_ns += now - since;
            seen.longest_ns = seen.longest_ns.max(now - since);
            let process = &PROCESSES[at];
            let pause_us = match seen.ended % 20 {
                0 => process.pause_us,
                _ => 0,
            };
            self.at(
                now + 1_000 * (process.think_us + pause_us),
                Event::Issue(at),
            );
        }
    }

    fn dispatch(&mut self) {
        while self.in_flight.len() < self.depth {
            let Some(id) = self.queue.dispatch() else {
                return;
            };
            self.dispatched += 1;
            if self.dispatched.is_multiple_of(97) {
                self.queue.requeue(id);
                self.end_merged();
                continue;
            }
            let (sector, end) = (self.queue.rq(id).sector.0, self.queue.rq(id).end().0);
            let distance = self.head.abs_diff(sector);
            self.moved += distance;
            self.seeks += u64::from(distance > 0);
            self.head = end;
            let access_us = match self.rotational {
                true => {
                    50 + 8_000 * distance / queue_info().capacity_sectors
                        + 2_000 * u64::from(distance > 0)
                }
                false => 80 + 240 * u64::from(self.queue.rq(id).op.is_write()),
            };
            let sectors = u64::from(self.queue.rq(id).sectors);
            let busy = self.in_flight.len() as u64 * 10;
            let took_ns = 1_000 * (access_us + busy) + 2_000 * sectors;
            self.in_flight.insert(id.index(), id);
            self.at(self.queue.now.0 + took_ns, Event::End(id.index()));
        }
    }

    fn run(&mut self) {
        loop {
            self.queue.run_timer();
            self.dispatch();
            let timer = self.queue.elevator.next_timer();
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            match (event, timer.map(|at| at.0)) {
                (None, None) => break,
                (Some(at), Some(timer)) if timer < at => self.pass_to(timer),
                (None, Some(timer)) => {
                    if !self.queue.elevator.has_work(0) {
                        break;
                    }
                    self.pass_to(timer);
                }
                (Some(at), _) => {
                    let Reverse((.., event)) = self.events.pop().expect("peeked");
                    self.pass_to(at);
                    match event {
                        Event::Issue(process) => self.issue(process),
                        Event::End(index) => self.end(index),
                    }
                }
            }
        }
        assert!(!self.queue.elevator.has_work(0) && self.in_flight.is_empty());
    }

    fn pass_to(&mut self, ns: u64) {
        self.queue.now = self.queue.now.max(Nanos(ns));
    }

    fn end(&mut self, index: usize) {
        let id = self.in_flight.remove(&index).expect("it is in flight");
        self.queue.complete(id);
        self.end_bios(index);
    }

    /// A line about the run.
    fn summary(&self, name: &str) -> String {
        let seen = self.processes.iter();
        let waited_ns: u64 = seen.clone().map(|seen| seen.waited_ns).sum();
        let longest_ns = seen.clone().map(|seen| seen.longest_ns).max();
        let depths: u64 = seen.map(|seen| seen.depths).sum();
        format!(
            "{name}: {} ns, waited {waited_ns} ns, at most {}, {} seeks over {} sectors, \
             {} dispatched, depths {depths}\n",
            self.queue.now.0,
            longest_ns.unwrap_or_default(),
            self.seeks,
            self.moved,
            self.dispatched,
        )
    }

    /// The same, with lines about the processes and the scheduler.
    fn details(&self, name: &str) -> String {
        let mut text = self.summary(name);
        for (number, seen) in self.processes.iter().enumerate() {
            let _ = writeln!(
                text,
                "  process {number}: {} ended, waited {} ns, at most {}",
                seen.ended, seen.waited_ns, seen.longest_ns
            );
        }
        let counters = self.queue.elevator.counters().into_iter();
        let counters = counters.map(|(name, count)| (name, count as i64));
        let state = self.queue.elevator.debug_state();
        for (name, value) in counters.chain(state).filter(|(_, value)| *value != 0) {
            let _ = writeln!(text, "  {name}: {value}");
        }
        text
    }
}

fn recorded(
    kind: &ElevatorType,
    (rotational, depth): (bool, usize),
    set: &[(&str, i64)],
) -> Option<Run> {
    let mut run = Run::new(kind, rotational, depth)?;
    for (name, value) in set {
        run.queue.elevator.set_tunable(name, *value).ok()?;
    }
    run.run();
    Some(run)
}

/// Default settings on drives that seek and that do not, one request at a time and many.
#[test]
fn processes_wait_as_recorded() {
    for kind in blklab_elevator::all()
        .iter()
        .filter(|kind| kind.build.is_some())
    {
        let mut text = String::new();
        for (drive, of) in [
            ("disk", (true, 1)),
            ("disk with NCQ", (true, 8)),
            ("flash", (false, 2)),
            ("deep flash", (false, 32)),
        ] {
            if let Some(run) = recorded(kind, of, &[]) {
                text += &run.details(drive);
            }
        }
        insta::assert_snapshot!(format!("{}_drives", kind.name), text);
    }
}

/// Each tunable at its ends and between.
#[test]
fn tunables_act_as_recorded() {
    for kind in blklab_elevator::all()
        .iter()
        .filter(|kind| kind.build.is_some())
    {
        let mut text = String::new();
        for tunable in kind.tunables {
            let (min, max, usual) = (tunable.min, tunable.max, tunable.default);
            for value in [min, usual / 2, usual.saturating_mul(3), max] {
                let value = value.clamp(min, max.min(1 << 40));
                for of in [(true, 4), (false, 8)] {
                    if let Some(run) = recorded(kind, of, &[(tunable.name, value)]) {
                        let name = format!("{}={value}, depth {}", tunable.name, of.1);
                        text += &run.summary(&name);
                    }
                }
            }
        }
        insta::assert_snapshot!(format!("{}_tunables", kind.name), text);
    }
}
