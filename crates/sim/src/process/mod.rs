//! A job's process: decides, submits, waits, reaps, as fio's main loop does
//! (`do_io` in `backend.c`).
//!
//! It is a plain state machine. [`Process::step`] runs it as far as it goes
//! without waiting; the end of a bio, a tag, or a timer makes it go on. As in the
//! block layer, the steps that every I/O takes are inlined into one another.

mod bio;
mod on_cpu;
mod pause;
mod reap;
mod submit;
mod threads;

use std::collections::VecDeque;
use std::sync::Arc;

use blklab_blk::{BioFlags, CgroupId, IoClass, IoPrio, IoStatus, Nanos, Plug, Sector, Waiter};
use blklab_workload::fio::{Direction, Engine, JobSpec};
use blklab_workload::generate::SyncKind;

use bio::{io_prio, write_flags};

use crate::aio_threads::AioThreads;
use crate::cost::StepCosts;
use crate::min_rate::MinRate;
use crate::plan::Plan;
use crate::recorder::Recorder;
use crate::timers::Timers;
use crate::waiting::Waiting;
use crate::world::World;

/// Why a process does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It does.
    Running,
    /// Its CPU is at its last step until then.
    Until(Nanos),
    /// It sleeps until then.
    Paused(Nanos),
    /// It could run, and its CPU runs another.
    Ready,
    /// It sleeps in the block layer for a tag.
    Tag,
    /// It waits for so many completions.
    Completions(u32),
    /// It waits for its flush.
    Flush,
    /// It has ended.
    Over,
}

/// What a step has done before it went to sleep, so that it is not done twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Deciding what comes next.
    Fill,
    /// Giving the batch to the kernel.
    Commit,
    /// Taking completions.
    Reap,
    /// Everything in flight is awaited before a pause.
    Quiesce(Idle),
    /// The program spins until the first, then sleeps until the second.
    Spin(Nanos, Nanos),
    /// Between passes: nothing is issued.
    Drain,
}

/// What a process pauses for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    /// Its rate, until then.
    Rate(Nanos),
    /// `thinktime`, which begins when nothing is in flight.
    Think,
}

/// A unit of I/O (fio's `io_u`).
#[derive(Clone, Copy, Debug)]
struct Io {
    dir: Direction,
    disk: usize,
    file: u32,
    sector: Sector,
    bytes: u64,
    prio: IoPrio,
    started: Nanos,
    issued: Nanos,
    status: IoStatus,
}

impl Io {
    /// What a place holds before its first I/O.
    const NONE: Io = Io {
        dir: Direction::Read,
        disk: 0,
        file: 0,
        sector: Sector(0),
        bytes: 0,
        prio: IoPrio {
            class: IoClass::None,
            level: 0,
        },
        started: Nanos::ZERO,
        issued: Nanos::ZERO,
        status: IoStatus::Ok,
    };
}

/// `user_data` of the flush a process waits for.
const FLUSH_SLOT: u32 = u32::MAX;

pub(crate) struct Process {
    pub(crate) id: usize,
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) recorder: Recorder,
    plan: Plan,
    cpu: usize,
    costs: StepCosts,
    prio: IoPrio,
    cgroup: CgroupId,
    /// Submits one I/O at a time and waits for it.
    is_synchronous: bool,
    /// Its engine submits so that nothing waits.
    nowait: bool,
    /// Threads of its engine's submit for it.
    has_threads: bool,
    write_flags: BioFlags,
    depth: u32,
    /// It takes a completion after each submission (`io_in_polling` in fio's
    /// `backend.c`).
    polls: bool,
    state: State,
    phase: Phase,
    ios: Vec<Io>,
    free: Vec<u32>,
    /// Decided on: what the call that is under way has submitted, and what not.
    batch: Vec<u32>,
    submitted: usize,
    plugging: bool,
    /// What comes before the next submission has been paid for.
    paid: bool,
    plugs: Vec<Plug>,
    /// It has slept for completions in the call that takes them.
    waited: bool,
    /// Ended, not reaped.
    done: VecDeque<u32>,
    in_flight: u32,
    waiter: Option<(usize, Waiter)>,
    /// It slept for a tag, has it, and is about to go on.
    has_tag: bool,
    /// posixaio's threads.
    aio: AioThreads,
    /// By disk, io_uring's workers and posixaio's threads that sleep in the block
    /// layer.
    workers: Vec<Waiting<(Waiter, u32)>>,
    flush_started: Nanos,
    /// The call that it flushes for; `None` for the last flush of all.
    flush_kind: Option<SyncKind>,
    flushed: bool,
    /// `max_latency` by direction; without one [`Nanos::MAX`].
    max_latency: [Nanos; 3],
    min_rate: Option<Box<MinRate>>,
    /// An error ended it.
    failed: bool,
    /// The limit of the job's own that ended it.
    pub(crate) missed: Option<&'static str>,
    pub(crate) started: Nanos,
    pub(crate) ended: Nanos,
    /// It came to the end of its work.
    pub(crate) finished: bool,
    end_told: bool,
}
impl Process {
    pub(crate) fn new(
        id: usize,
        spec: Arc<JobSpec>,
        plan: Plan,
        cpu: usize,
        costs: StepCosts,
        disks: usize,
    ) -> Process {
        let is_synchronous = spec.engine.is_synchronous();
        let depth = if is_synchronous {
            1
        } else {
            spec.io_depth.max(1)
        };
        let prio = io_prio(spec.priority);
        let aio = AioThreads::new(plan.files());
        Process {
            id,
            recorder: Recorder::for_job(&spec),
            plan,
            cpu,
            costs,
            prio,
            cgroup: CgroupId::ROOT,
            is_synchronous,
            nowait: spec.engine == Engine::IoUring || spec.nowait,
            has_threads: spec.engine == Engine::Posixaio,
            write_flags: write_flags(&spec),
            depth,
            polls: spec.batch_complete_min == 0 && spec.batch_complete_max == 0,
            state: State::Running,
            phase: Phase::Fill,
            ios: Vec::with_capacity(depth as usize),
            free: Vec::with_capacity(depth as usize),
            batch: Vec::new(),
            submitted: 0,
            plugging: false,
            paid: false,
            plugs: (0..disks).map(|_| Plug::new()).collect(),
            waited: false,
            done: VecDeque::with_capacity(depth as usize),
            in_flight: 0,
            waiter: None,
            has_tag: false,
            aio,
            workers: (0..disks).map(|_| Waiting::new()).collect(),
            flush_started: Nanos::ZERO,
            flush_kind: None,
            flushed: false,
            max_latency: Direction::ALL.map(|d| match spec.max_latency_us[d] {
                0 => Nanos::MAX,
                us => Nanos::from_micros(us),
            }),
            min_rate: MinRate::new(&spec).map(Box::new),
            failed: false,
            missed: None,
            started: Nanos::ZERO,
            ended: Nanos::ZERO,
            finished: false,
            end_told: false,
            spec,
        }
    }

    /// The same process in a control group.
    pub(crate) fn in_cgroup(self, cgroup: CgroupId) -> Process {
        Process { cgroup, ..self }
    }

    /// The CPU it runs on.
    pub(crate) fn cpu(&self) -> usize {
        self.cpu
    }

    /// Whether it sleeps for I/O.
    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self.state, State::Completions(_) | State::Flush)
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Whether it has ended and nobody was told so yet: an I/O that ends on the
    /// spot may end the process while somebody is still dealing with it.
    #[inline]
    pub(crate) fn just_ended(&mut self) -> bool {
        self.is_over() && !std::mem::replace(&mut self.end_told, true)
    }

    /// Whether an error ended it.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Has it issue nothing more (`exitall`). A pause ends at once.
    pub(crate) fn stop(&mut self, now: Nanos, timers: &mut Timers) {
        self.plan.stop();
        if matches!(self.state, State::Paused(_)) {
            self.state = State::Paused(now);
            timers.set(now, self.id);
        }
    }

    /// An error ends it.
    fn fail(&mut self) {
        self.failed = true;
        self.plan.stop();
    }

    /// It has missed a limit of the job's own.
    #[cold]
    fn miss(&mut self, option: &'static str, errno: i32) {
        if self.missed.is_none() {
            self.missed = Some(option);
            self.recorder.failed(errno);
            self.fail();
        }
    }

    /// Its start, after everything it waited for.
    pub(crate) fn start(&mut self, now: Nanos, world: &mut World) {
        self.started = now;
        self.recorder.start(now);
        self.plan.start(now);
        if let Some(rate) = &mut self.min_rate {
            rate.start(now + Nanos::from_micros(self.spec.ramp_us));
        }
        self.phase = Phase::Drain;
        if self.gets_cpu(world) {
            self.step(now, world);
        }
    }

    /// Its timer ran out.
    pub(crate) fn on_timer(&mut self, now: Nanos, world: &mut World) {
        let has_cpu = match self.state {
            State::Until(at) if at <= now => self.keeps_cpu(now, world),
            State::Paused(at) if at <= now => self.gets_cpu(world),
            State::Ready => {
                if self.finds_cpu(world) {
                    self.state = State::Running;
                    self.switched_to(now, world);
                }
                return;
            }
            _ => false,
        };
        if !has_cpu {
            return;
        }
        let busy_until = world.cpus.free_at(self.cpu);
        if !self.costs.free && busy_until > now {
            // An interrupt or another process took the CPU meanwhile.
            self.state = State::Until(busy_until);
            world.timers.put_off(busy_until, self.id);
            return;
        }
        self.state = State::Running;
        self.step(now, world);
    }

    /// One of its bios ended.
    #[inline(always)]
    pub(crate) fn on_end(&mut self, now: Nanos, slot: u32, status: IoStatus, world: &mut World) {
        if slot == FLUSH_SLOT {
            return self.on_flushed(now, status, world);
        }
        if status == IoStatus::WouldBlock && self.spec.engine == Engine::IoUring {
            return self.punt(now, slot, world);
        }
        self.ios[slot as usize].status = status;
        self.in_flight -= 1;
        self.done.push_back(slot);
        if self.has_threads {
            self.end_by_thread(now, slot, world);
        }
        if matches!(self.state, State::Completions(min) if self.done.len() as u32 >= min) {
            self.wake(now, world);
        }
    }

    /// Runs until it has to wait for something.
    pub(crate) fn step(&mut self, now: Nanos, world: &mut World) {
        // In the order in which they follow each other, so that one leads on to
        // the next.
        while self.state == State::Running {
            if self.phase == Phase::Reap {
                self.reap(now, world);
            }
            if self.phase == Phase::Fill && self.state == State::Running {
                self.fill(now, world);
            }
            if self.phase == Phase::Commit && self.state == State::Running {
                self.commit(now, world);
            }
            if self.is_pausing() && self.state == State::Running {
                self.pause(now, world);
            }
        }
    }
}
