//! What a queue does is a pure function of the calls that it gets: on any machine and after any
//! change of the code that is not one of the block layer's behaviour, bios wait as long as is
//! recorded here, under every policy and with a driver that refuses. Where the behaviour is changed
//! on purpose, `INSTA_UPDATE=always` records it anew, and the difference shows who waits instead.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write;

use blklab_blk::{
    Bio, BioFlags, BlkDriver, BlkStatus, CgroupId, CostModel, CostQos, IoClass, IoMax, IoPrio,
    IoStatus, KblockdDelay, Nanos, Op, Plug, PrioPolicy, QueueConfig, QueueLimits, Request,
    RequestId, RequestQueue, Sector, Span, Submit, SubmitterId, TraceEvent, TraceKind, Waiter,
};
use blklab_judges::Numbers;

use crate::{Fifo, FifoState, config};

/// Bios of a run, and of one with policies, whose periods are long.
const BIOS: u64 = 2_000;
const POLICY_BIOS: u64 = 20_000;
const CPUS: usize = 4;

/// Processes: operation, flags, group, sectors, bios that they submit together under a plug, and
/// how long they think after these have ended, in microseconds.
const PROCESSES: [(Op, BioFlags, u16, u32, u64, u64); 8] = [
    (Op::Read, BioFlags::NONE, 0, 8, 1, 30),
    (Op::Read, BioFlags::NONE, 1, 8, 4, 10),
    (Op::Read, BioFlags::RAHEAD, 2, 64, 8, 100),
    (Op::Write, BioFlags::NONE, 2, 16, 24, 3_000),
    (Op::Write, BioFlags::SYNC.with(BioFlags::IDLE), 3, 8, 2, 50),
    (
        Op::Write,
        BioFlags::SYNC.with(BioFlags::FUA),
        4,
        8,
        1,
        5_000,
    ),
    (Op::Write, BioFlags::BACKGROUND, 4, 200, 6, 9_000),
    (Op::Discard, BioFlags::NONE, 1, 128, 1, 20_000),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Submit(usize),
    End(usize),
}

/// A drive with a service time for each command, and a driver that now and then refuses.
struct Drive {
    numbers: Numbers,
    /// Of a hundred requests this many are refused.
    refuses: u64,
    budget: u32,
    in_flight: u64,
    /// By index: the commands, and when they end.
    taken: Vec<(RequestId, u64)>,
    commits: u64,
    lasts: u64,
}

impl BlkDriver for Drive {
    fn queue_rq(
        &mut self,
        now: Nanos,
        _: usize,
        id: RequestId,
        rq: &Request,
        last: bool,
    ) -> BlkStatus {
        if self.refuses > 0 && self.in_flight > 0 {
            match self.numbers.below(100 * 4 / self.refuses) {
                0 => return BlkStatus::Resource,
                1 => return BlkStatus::DevResource,
                2 => return BlkStatus::ZoneResource,
                3 if rq.op != Op::Flush => return BlkStatus::Failed(IoStatus::IoError),
                _ => {}
            }
        }
        let base_ns = match rq.op {
            Op::Read => 90_000,
            Op::Write => 250_000,
            Op::Flush => 2_000_000,
            _ => 30_000,
        };
        self.in_flight += 1;
        self.lasts += u64::from(last);
        let took_ns = base_ns + 2_000 * u64::from(rq.sectors) + 15_000 * self.in_flight;
        self.taken.push((id, now.0 + took_ns));
        BlkStatus::Ok
    }

    fn commit_rqs(&mut self, _: Nanos, _: usize) {
        self.commits += 1;
    }

    fn get_budget(&mut self) -> bool {
        let free = self.budget > 0;
        self.budget -= free as u32;
        free
    }

    fn put_budget(&mut self) {
        self.budget += 1;
    }
}

/// What a process has seen of its bios.
#[derive(Clone, Copy, Default)]
struct Seen {
    next: u64,
    outstanding: u64,
    ended: u64,
    failed: u64,
    waited_ns: u64,
    longest_ns: u64,
}

struct Run {
    now: Nanos,
    queue: RequestQueue,
    drive: Drive,
    numbers: Numbers,
    most: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    ids: BTreeMap<usize, RequestId>,
    /// Sleepers, with the plug and the bios that they still have to submit.
    waiters: Vec<(Waiter, usize, u64)>,
    plugs: Vec<Plug>,
    processes: [Seen; PROCESSES.len()],
    /// Of each bio: its process, and when it was submitted.
    bios: Vec<(usize, u64)>,
    trace: BTreeMap<String, [u64; 2]>,
}

impl Run {
    fn new(config: &QueueConfig) -> Run {
        let mut run = Run {
            now: Nanos::ZERO,
            queue: RequestQueue::new(config),
            drive: Drive {
                numbers: Numbers(1),
                refuses: 0,
                budget: 1_000,
                in_flight: 0,
                taken: Vec::new(),
                commits: 0,
                lasts: 0,
            },
            numbers: Numbers(2),
            most: BIOS,
            events: BinaryHeap::new(),
            sequence: 0,
            ids: BTreeMap::new(),
            waiters: Vec::new(),
            plugs: PROCESSES.iter().map(|_| Plug::new()).collect(),
            processes: Default::default(),
            bios: Vec::new(),
            trace: BTreeMap::new(),
        };
        for process in 0..PROCESSES.len() {
            run.at(process as u64 * 10_000, Event::Submit(process));
        }
        run
    }

    fn at(&mut self, ns: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((ns, self.sequence, event)));
    }

    fn bio_of(&mut self, process: usize) -> Bio {
        let (op, flags, group, sectors, ..) = PROCESSES[process];
        let seen = &mut self.processes[process];
        let start = process as u64 * 1_000_000;
        let sector = match self.numbers.below(4) {
            0 => start + self.numbers.below(100_000) * 8,
            _ => start + seen.next,
        };
        seen.next = sector - start + u64::from(sectors);
        let mut bio = Bio::new(op, Sector(sector), sectors);
        bio.flags = flags;
        bio.cgroup = CgroupId(group);
        bio.submitter = SubmitterId(process as u32);
        bio.prio = IoPrio {
            class: IoClass::Be,
            level: (group % 8) as u8,
        };
        bio.user_data = self.bios.len() as u64;
        bio
    }

    /// Submits this many bios under the process's plug, and flushes it unless the process sleeps.
    fn submit(&mut self, process: usize, mut left: u64) {
        while left > 0 && (self.bios.len() as u64) < self.most {
            left -= 1;
            let bio = self.bio_of(process);
            self.bios.push((process, self.now.0));
            self.processes[process].outstanding += 1;
            let (cpu, plug) = (process % CPUS, &mut self.plugs[process]);
            let submit = (self.queue).submit_bio(self.now, cpu, Some(plug), bio, &mut self.drive);
            if let Submit::Blocked(waiter) = submit {
                return self.waiters.push((waiter, process, left));
            }
        }
        let plug = &mut self.plugs[process];
        self.queue.flush_plug(self.now, plug, &mut self.drive);
    }

    /// Takes all that the queue and the driver have for others.
    fn settle(&mut self) {
        loop {
            for (id, at) in std::mem::take(&mut self.drive.taken) {
                self.ids.insert(id.index(), id);
                self.at(at, Event::End(id.index()));
            }
            let (mut ended, mut woken) = (Vec::new(), Vec::new());
            self.queue.take_ended(&mut ended);
            self.queue.take_woken(&mut woken);
            if ended.is_empty() && woken.is_empty() {
                return;
            }
            for end in ended {
                self.end(end.user_data, end.status);
            }
            for ticket in woken {
                let at = self.waiters.iter().position(|(w, ..)| w.ticket == ticket);
                let (waiter, process, left) = self.waiters.remove(at.expect("it sleeps"));
                let plug = &mut self.plugs[process];
                match self
                    .queue
                    .resume(self.now, Some(plug), waiter, &mut self.drive)
                {
                    Submit::Done => self.submit(process, left),
                    Submit::Blocked(waiter) => self.waiters.push((waiter, process, left)),
                }
            }
        }
    }

    fn end(&mut self, bio: u64, status: IoStatus) {
        let (process, since) = self.bios[bio as usize];
        let seen = &mut self.processes[process];
        let waited_ns = self.now.0 - since;
        seen.ended += 1;
        seen.failed += u64::from(status != IoStatus::Ok);
        seen.waited_ns += waited_ns;
        seen.longest_ns = seen.longest_ns.max(waited_ns);
        seen.outstanding -= 1;
        let sleeps = self.waiters.iter().any(|(_, of, _)| *of == process);
        if seen.outstanding == 0 && !sleeps {
            let think_us = PROCESSES[process].5;
            self.at(self.now.0 + 1_000 * think_us, Event::Submit(process));
        }
    }

    fn run(&mut self) {
        loop {
            self.settle();
            self.take_trace();
            let event = self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            let next = self.queue.next_event().0;
            if event == u64::MAX && next == u64::MAX {
                break;
            }
            if event == u64::MAX && self.queue.is_idle() && self.waiters.is_empty() {
                break;
            }
            self.now = self.now.max(Nanos(event.min(next)));
            if next <= event {
                self.queue.process(self.now, &mut self.drive);
                continue;
            }
            let Reverse((.., event)) = self.events.pop().expect("peeked");
            match event {
                Event::Submit(process) => self.submit(process, PROCESSES[process].4),
                Event::End(index) => {
                    let id = self.ids.remove(&index).expect("the driver has it");
                    self.drive.in_flight -= 1;
                    self.queue
                        .complete(self.now, id, IoStatus::Ok, &mut self.drive);
                }
            }
        }
        assert_eq!(self.bios.len() as u64, self.most);
        assert!(self.queue.is_idle() && self.waiters.is_empty());
    }

    /// Counts tracepoints by kind, and sums their times.
    fn take_trace(&mut self) {
        let span = Span {
            start: self.now,
            end: self.now + Nanos(7_000),
            reached: self.now + Nanos(9_000),
        };
        let weight = |kind| match kind {
            TraceKind::GetRq => 3,
            TraceKind::RqInsert => 2,
            _ => 1,
        };
        self.queue.spread_trace(Some(0), &span, weight);
        let mut events: Vec<TraceEvent> = Vec::new();
        self.queue.take_trace(&mut events);
        for event in events {
            let kind = format!("{:?}", event.kind);
            let kind = kind.split('(').next().unwrap_or_default().to_string();
            let [count, ns] = self.trace.entry(kind).or_default();
            *count += 1;
            *ns += event.at.0;
        }
    }

    fn result(&mut self, name: &str) -> String {
        self.run();
        let mut text = format!(
            "{name}: {} ns, {} last in a batch, {} commits\n",
            self.now.0, self.drive.lasts, self.drive.commits
        );
        for (number, seen) in self.processes.iter().enumerate() {
            let _ = writeln!(
                text,
                "  process {number}: {} ended, {} failed, waited {} ns, at most {}",
                seen.ended, seen.failed, seen.waited_ns, seen.longest_ns
            );
        }
        let _ = writeln!(text, "  {:?}", self.queue.counters(self.now));
        let _ = writeln!(text, "  {:?}", self.queue.cost_counts());
        for hctx in 0..self.queue.nr_hw_queues() {
            let _ = writeln!(text, "  {:?}", self.queue.hctx_stats(hctx));
        }
        for group in 0..5 {
            let stats = self.queue.cgroup_stats(CgroupId(group));
            if stats != Default::default() {
                let _ = writeln!(text, "  group {group}: {stats:?}");
            }
        }
        if let Some(wbt) = self.queue.wbt() {
            let _ = writeln!(text, "  {:?}, {} held", wbt.state(), wbt.held());
        }
        for (kind, [count, ns]) in &self.trace {
            let _ = writeln!(text, "  {kind}: {count}, at {ns} ns in all");
        }
        text
    }
}

/// A name, and what is set before the run.
type Setting = (&'static str, fn(&mut Run));

/// A queue for the processes' CPUs.
fn queue(nr_hw_queues: usize, queue_depth: u32) -> QueueConfig {
    QueueConfig {
        nr_cpus: CPUS,
        nr_hw_queues,
        queue_depth,
        limits: QueueLimits {
            write_cache: true,
            ..QueueLimits::default()
        },
        ..config()
    }
}

fn fifo(run: &mut Run) {
    let state = FifoState {
        depth: Some(6),
        min_shallow_depth: Some(4),
        ..FifoState::default()
    };
    run.queue.set_elevator(Some(Box::new(Fifo::new(state).0)));
}

/// Queues with and without a scheduler, one and several hardware contexts, few and many tags.
#[test]
fn queues_do_as_recorded() {
    let mut text = String::new();
    for (hctxs, depth) in [(1, 4), (2, 16), (4, 64)] {
        for scheduled in [false, true] {
            for refuses in [0, 12] {
                let mut run = Run::new(&queue(hctxs, depth));
                run.queue.enable_trace(true);
                run.drive.refuses = refuses;
                if scheduled {
                    fifo(&mut run);
                    run.queue.set_sockets(|cpu| cpu / 2);
                }
                let name = format!("{hctxs} of {depth}, scheduled {scheduled}, refuses {refuses}");
                text += &run.result(&name);
            }
        }
    }
    insta::assert_snapshot!("queues", text);
}

/// Settings that change when and by whom hardware queues are run.
#[test]
fn runs_come_as_recorded() {
    let settings: [Setting; 5] = [
        ("kblockd takes time", |run| {
            run.queue.set_kblockd_delay(KblockdDelay {
                after: Nanos(4_000),
                wake: Nanos(3_000),
            });
        }),
        ("inserts run the queue", |run| {
            run.queue.set_runs_inline(true)
        }),
        ("budget is short", |run| run.drive.budget = 3),
        ("no merges", |run| {
            run.queue.limits_mut().nomerges = blklab_blk::NoMerges::Never;
        }),
        ("the drive can do FUA", |run| {
            run.queue.limits_mut().fua = true
        }),
    ];
    let mut text = String::new();
    for (name, set) in settings {
        for scheduled in [false, true] {
            let mut run = Run::new(&queue(2, 8));
            if scheduled {
                fifo(&mut run);
            }
            set(&mut run);
            text += &run.result(&format!("{name}, scheduled {scheduled}"));
        }
    }
    insta::assert_snapshot!("runs", text);
}

/// Groups one and two are below the third.
fn parents(run: &mut Run) {
    run.queue.set_cgroup_parent(CgroupId(3), CgroupId::ROOT);
    run.queue.set_cgroup_parent(CgroupId(4), CgroupId::ROOT);
    run.queue.set_cgroup_parent(CgroupId(1), CgroupId(3));
    run.queue.set_cgroup_parent(CgroupId(2), CgroupId(3));
}

fn io_max(run: &mut Run) {
    for (group, bytes, ios) in [
        (1, [Some(20 << 20), None], [None, None]),
        (2, [Some(30 << 20), Some(5 << 20)], [Some(400), Some(300)]),
        (3, [None, Some(8 << 20)], [Some(2_000), None]),
        (4, [None, Some(12 << 20)], [None, Some(90)]),
    ] {
        (run.queue).set_io_max(run.now, CgroupId(group), IoMax { bytes, ios });
    }
}

fn io_latency(run: &mut Run) {
    for (group, us) in [(3, 400), (1, 300), (2, 5_000), (4, 100_000)] {
        run.queue.set_io_latency(CgroupId(group), us);
    }
}

fn io_cost(run: &mut Run, qos_text: &str, model_text: &str) {
    let (mut qos, mut model) = (CostQos::default(), CostModel::default());
    qos.write(qos_text).expect("it is legal");
    model.write(model_text).expect("it is legal");
    run.queue.set_io_cost_qos(run.now, qos);
    run.queue.set_io_cost_model(run.now, model);
    for (group, weight) in [(1, 400), (2, 50), (3, 200), (4, 25)] {
        run.queue.set_io_weight(run.now, CgroupId(group), weight);
    }
}

const COST_MODEL: &str =
    "rbps=80000000 rseqiops=9000 rrandiops=4000 wbps=60000000 wseqiops=5000 wrandiops=2000";

#[test]
fn policies_hold_bios_as_recorded() {
    let policies: [Setting; 9] = [
        ("wbt", |run| run.queue.set_wbt_latency(run.now, 1_500)),
        ("tight wbt", |run| run.queue.set_wbt_latency(run.now, 300)),
        ("io.max", io_max),
        ("io.latency", io_latency),
        ("io.cost", |run| {
            io_cost(
                run,
                "enable=1 rpct=90 rlat=900 wpct=90 wlat=3000 min=20 max=300",
                COST_MODEL,
            );
        }),
        ("strict io.cost", |run| {
            io_cost(run, "enable=1 rpct=0 wpct=0 min=40 max=40", COST_MODEL);
        }),
        ("io.cost of a slow drive", |run| {
            io_cost(
                run,
                "enable=1 rpct=95 rlat=500 min=10 max=100",
                "rbps=20000000 rseqiops=2000 rrandiops=600 wbps=9000000 wseqiops=800 wrandiops=200",
            );
        }),
        ("all", |run| {
            run.queue.set_wbt_latency(run.now, 2_000);
            io_latency(run);
            io_cost(run, "enable=1 min=50 max=150", COST_MODEL);
            io_max(run);
        }),
        ("io.prio.class", |run| {
            run.queue
                .set_io_prio_class(CgroupId(1), PrioPolicy::PromoteToRt);
            run.queue.set_io_prio_class(CgroupId(2), PrioPolicy::Idle);
            run.queue
                .set_io_prio_class(CgroupId(4), PrioPolicy::RestrictToBe);
        }),
    ];
    let mut text = String::new();
    for (name, set) in policies {
        for depth in [8, 64] {
            let mut run = Run::new(&queue(2, depth));
            run.most = POLICY_BIOS;
            parents(&mut run);
            set(&mut run);
            text += &run.result(&format!("{name}, depth {depth}"));
        }
    }
    insta::assert_snapshot!("policies", text);
}
