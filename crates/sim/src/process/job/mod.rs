//! A process of an fio job: decides, submits, waits, reaps, as fio's main loop
//! does (`do_io` in `backend.c`).
//!
//! It is a plain state machine. [`JobProcess::run`] runs it as far as it goes
//! without waiting; the end of a bio, a tag, or a timer makes it go on. As in the
//! block layer, what every I/O does is inlined into one another.

mod cached;
mod files;
mod flow;
mod iolog;
mod latency_target;
mod min_rate;
mod offload;
mod open_files;
mod overlap;
mod pause;
mod plan;
mod reap;
mod ring;
mod scheduling;
mod submit;
mod threads;
mod verify;
mod zones;

pub(crate) use cached::Cached;
pub(crate) use files::{PlacedFile, PlacedFiles};
pub(crate) use plan::Plan;

use std::collections::VecDeque;
use std::sync::Arc;

use blklab_blk::{BioFlags, CgroupId, IoClass, IoPrio, IoStatus, Nanos, Plug, SubmitterId, Waiter};
use blklab_stats::{IoLog, JobResults, ProcessResults};
use blklab_workload::calls::Errno;
use blklab_workload::fio::{Direction, Engine, JobSpec, SyncKind};

use latency_target::DepthSearch;
use min_rate::MinRate;
use open_files::LastFlush;
use overlap::Overlaps;
use ring::SubmissionRing;
use submit::{io_prio, read_flags, write_flags};

use crate::cpu::{CostTable, Mode};
use crate::file_layer::FIRST_SLOT;
use crate::flows::FlowShare;
use crate::machine::Dispatch;
use crate::process::aio_threads::AioThreads;
use crate::process::recorder::Recorder;
use crate::system::{System, TagWaiters};
use crate::timers::Timers;

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskState {
    /// It decides what to do next.
    Running,
    /// Its CPU works for it until then.
    Busy(Nanos),
    /// It sleeps until then.
    Sleeping(Nanos),
    /// It is on a run queue, and the CPU runs another.
    Runnable,
    /// It sleeps in the block layer for a tag.
    AwaitsTag,
    /// It sleeps until this many I/Os have completed.
    AwaitsCompletions(u32),
    /// It sleeps until its flush has ended.
    AwaitsFlush,
    /// It sleeps in a call into the page cache.
    AwaitsCall,
    /// It sleeps until another process releases a zone.
    AwaitsZone,
    /// It sleeps until other processes of its flow have caught up.
    AwaitsFlow,
    /// It has ended.
    Exited,
}

/// The part of fio's main loop that a process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Deciding what comes next.
    Fill,
    /// Giving the batch to the kernel.
    Commit,
    /// Taking completions.
    Reap,
    /// Everything in flight is awaited before a pause.
    Quiesce(PauseReason),
    /// The program spins until the first time, then sleeps until the second.
    Spin(Nanos, Nanos),
    /// I/O is reaped before the next thing is tried again.
    ReapFirst,
    /// Between passes: nothing is issued.
    Drain,
    /// It is in a call into the page cache.
    Call,
}

/// What a process pauses for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PauseReason {
    /// Its rate, until then.
    Rate(Nanos),
    /// `thinktime`, which begins when nothing is in flight.
    Think,
    /// Its next I/O has a place in the zones only then.
    Zone,
    /// It is ahead of its flow (`flow_sleep`).
    Flow,
    /// Its depth was lowered (`latency_target`).
    Depth,
    /// The depth is found, and what is reported begins when nothing is in flight.
    LastWindow,
}

/// What a process flushes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlushFor {
    /// A call between I/Os.
    Call(SyncKind),
    /// The last flush of a file in a pass.
    End,
    /// The close of a file (`fsync_on_close`), which fio does not count as a call for a flush.
    Close,
}

/// A unit of I/O (fio's `io_u`).
#[derive(Clone, Copy, Debug)]
struct Io {
    dir: Direction,
    disk: usize,
    file: u32,
    /// Where it is on its drive, or in its file of the file system.
    at_bytes: u64,
    bytes: u64,
    prio: IoPrio,
    started: Nanos,
    issued: Nanos,
    status: IoStatus,
    /// Its zone is not others' until it is reaped (`zonemode=zbd`).
    holds_zone: bool,
    /// io_uring gives it to a worker at once (`IOSQE_ASYNC`).
    is_forced: bool,
}

impl Io {
    /// What a slot holds before its first I/O.
    const NONE: Io = Io {
        dir: Direction::Read,
        disk: 0,
        file: 0,
        at_bytes: 0,
        bytes: 0,
        prio: IoPrio {
            class: IoClass::None,
            level: 0,
        },
        started: Nanos::ZERO,
        issued: Nanos::ZERO,
        status: IoStatus::Ok,
        holds_zone: false,
        is_forced: false,
    };
}

/// Whether io_uring gives some I/Os of a job to workers at once.
fn forces_workers(spec: &JobSpec) -> bool {
    spec.force_async_every > 0 && spec.engine.is_io_uring()
}

/// The slot of the flush that a process waits for, which no I/O has.
const FLUSH_SLOT: u32 = u32::MAX;
/// The slot of the reset of a zone that a process waits for.
const RESET_SLOT: u32 = u32::MAX - 1;

/// A process of an fio job.
pub(crate) struct JobProcess {
    id: usize,
    spec: Arc<JobSpec>,
    recorder: Recorder,
    plan: Plan,
    cpu: usize,
    costs: CostTable,
    prio: IoPrio,
    cgroup: CgroupId,
    /// Submits one I/O at a time and waits for it.
    is_synchronous: bool,
    /// Its engine submits so that nothing waits.
    nowait: bool,
    /// It looks for completions itself, without interrupts (`IORING_SETUP_IOPOLL`).
    polls_for_ends: bool,
    /// How long its last submission took, if it polls.
    last_call: Nanos,
    /// The ring of the kernel thread that submits for it (`IORING_SETUP_SQPOLL`).
    ring: Option<SubmissionRing>,
    /// Whether its submissions run the hardware queue themselves.
    runs_inline: bool,
    /// Since when it has looked for completions over and over.
    spins_since: Option<Nanos>,
    /// Threads submit for it: those of its I/O engine, or fio's.
    has_threads: bool,
    /// They are fio's (`io_submit_mode=offload`).
    offloads: bool,
    /// Its I/O goes another way than from itself to the block layer.
    has_detour: bool,
    /// I/Os and flushes until io_uring gives one to a worker at once; 0 if it never does.
    until_forced: u32,
    /// Its way into the page cache, where its I/O is not direct.
    cached: Option<Box<Cached>>,
    read_flags: BioFlags,
    write_flags: BioFlags,
    depth: u32,
    /// It takes a completion after each submission (`io_in_polling` in fio's
    /// `backend.c`).
    polls: bool,
    state: TaskState,
    phase: Phase,
    ios: Vec<Io>,
    free: Vec<u32>,
    /// Slots of the I/Os decided on; the call under way has submitted the first
    /// `submitted` of them.
    batch: Vec<u32>,
    submitted: usize,
    plugging: bool,
    /// The CPU time before the next submission was spent.
    has_paid: bool,
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
    workers: Vec<TagWaiters<(Waiter, u32)>>,
    flush_started: Nanos,
    flush_for: FlushFor,
    /// It called for a flush after its last I/O.
    last_was_sync: bool,
    /// The last flushes of a pass, where they are due or under way.
    last_flush: Option<LastFlush>,
    /// It closes the files that are open, before it reads what it wrote or removes them.
    closes_all: bool,
    /// Between two passes, the file that it removes next (`unlink_each_loop`).
    unlinks: Option<u32>,
    /// fio has failed to lay a file out, which ends the job after its first I/O.
    fails_after_one: Option<i32>,
    /// Its work is over: the file that it closes and removes next.
    ending: Option<u32>,
    /// That file is removed, as far as the job has it so.
    removed: bool,
    /// `max_latency` by direction; without one [`Nanos::MAX`].
    max_latency: [Nanos; 3],
    min_rate: Option<Box<MinRate>>,
    /// With `latency_target`.
    depth_search: Option<Box<DepthSearch>>,
    flow: Option<FlowShare>,
    /// With `serialize_overlap`.
    overlaps: Option<Box<Overlaps>>,
    /// What is on drives and in files is kept, as a job verifies.
    keeps_contents: bool,
    /// How what it read first differed from what was written.
    mismatch: Option<String>,
    /// It has begun a pass.
    has_begun: bool,
    /// An error ended it.
    failed: bool,
    /// The option whose limit it missed, which ended it.
    missed: Option<&'static str>,
    /// It came to the end of its work.
    finished: bool,
}

impl JobProcess {
    pub(crate) fn new(
        id: usize,
        spec: Arc<JobSpec>,
        plan: Plan,
        cpu: usize,
        costs: CostTable,
        disks: usize,
    ) -> JobProcess {
        let is_synchronous = spec.engine.is_synchronous();
        let depth = if is_synchronous && !spec.offload {
            1
        } else {
            spec.io_depth.max(1)
        };
        let prio = io_prio(spec.priority);
        let aio = AioThreads::new(plan.files());
        JobProcess {
            id,
            recorder: Recorder::for_job(&spec),
            plan,
            cpu,
            costs,
            prio,
            cgroup: CgroupId::ROOT,
            is_synchronous,
            nowait: spec.engine.is_io_uring() || spec.nowait,
            polls_for_ends: spec.polled && spec.engine.is_io_uring(),
            last_call: Nanos::ZERO,
            ring: None,
            runs_inline: false,
            spins_since: None,
            has_threads: spec.offload || spec.engine == Engine::Posixaio,
            offloads: spec.offload,
            has_detour: spec.offload || spec.engine == Engine::Posixaio || forces_workers(&spec),
            until_forced: spec.force_async_every,
            cached: None,
            read_flags: read_flags(&spec),
            write_flags: write_flags(&spec),
            depth,
            polls: spec.batch_complete_min == 0 && spec.batch_complete_max == 0,
            state: TaskState::Running,
            phase: Phase::Fill,
            ios: Vec::with_capacity(depth as usize),
            free: Vec::with_capacity(depth as usize),
            batch: Vec::new(),
            submitted: 0,
            plugging: false,
            has_paid: false,
            plugs: (0..disks).map(|_| Plug::new()).collect(),
            waited: false,
            done: VecDeque::with_capacity(depth as usize),
            in_flight: 0,
            waiter: None,
            has_tag: false,
            aio,
            workers: (0..disks).map(|_| TagWaiters::new()).collect(),
            flush_started: Nanos::ZERO,
            flush_for: FlushFor::End,
            last_was_sync: false,
            last_flush: None,
            closes_all: false,
            unlinks: None,
            fails_after_one: None,
            ending: None,
            removed: false,
            max_latency: Direction::ALL.map(|d| match spec.max_latency_us[d] {
                0 => Nanos::MAX,
                us => Nanos::from_micros(us),
            }),
            min_rate: MinRate::new(&spec).map(Box::new),
            depth_search: DepthSearch::new(&spec, depth).map(Box::new),
            flow: None,
            overlaps: spec.serialize_overlap.then(Box::default),
            keeps_contents: false,
            mismatch: None,
            has_begun: false,
            failed: false,
            missed: None,
            finished: false,
            spec,
        }
    }

    /// The same process after an error of fio's that ends it with its first I/O.
    pub(crate) fn ending_after_one(self, error: Option<Errno>) -> JobProcess {
        JobProcess {
            fails_after_one: error.map(|errno| errno.0),
            ..self
        }
    }

    /// The same process in a control group.
    pub(crate) fn in_cgroup(self, cgroup: CgroupId) -> JobProcess {
        JobProcess { cgroup, ..self }
    }

    /// The same on a kernel with that way of running hardware queues.
    pub(crate) fn dispatching(self, dispatch: Dispatch) -> JobProcess {
        let runs_inline = match dispatch {
            Dispatch::Kblockd => false,
            Dispatch::Submitter => true,
            Dispatch::Plugged => !self.is_synchronous && !self.polls_for_ends,
        };
        JobProcess {
            runs_inline,
            ..self
        }
    }

    /// The same, submitting through a kernel thread on that CPU if the job has it so.
    pub(crate) fn with_submission_thread(self, cpu: usize) -> JobProcess {
        let has_one = self.spec.submission_thread && self.spec.engine.is_io_uring();
        JobProcess {
            ring: has_one.then(|| SubmissionRing::new(cpu, self.spec.submission_thread_idle_ms)),
            has_detour: self.has_detour || has_one,
            ..self
        }
    }

    /// The same where what is on drives and in files is kept.
    pub(crate) fn keeping_contents(self, keeps_contents: bool) -> JobProcess {
        JobProcess {
            keeps_contents,
            ..self
        }
    }

    /// The CPU it runs on.
    pub(crate) fn cpu(&self) -> usize {
        self.cpu
    }

    /// The CPU that submits its I/O.
    pub(crate) fn submit_cpu(&self) -> usize {
        self.ring.as_ref().map_or(self.cpu, SubmissionRing::cpu)
    }

    /// Whether it looks for completions itself, without interrupts.
    pub(crate) fn polls_for_ends(&self) -> bool {
        self.polls_for_ends
    }

    /// Whether it sleeps for I/O.
    pub(crate) fn awaits_io(&self) -> bool {
        self.spins_since.is_none()
            && matches!(
                self.state,
                TaskState::AwaitsCompletions(_) | TaskState::AwaitsFlush | TaskState::AwaitsCall
            )
    }

    /// Whether it has ended.
    #[inline]
    pub(crate) fn has_exited(&self) -> bool {
        self.state == TaskState::Exited
    }

    /// The job that it belongs to.
    pub(crate) fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// Who submits its I/O.
    pub(crate) fn submitter(&self) -> SubmitterId {
        SubmitterId(self.id as u32)
    }

    /// Its CPU spent time on an interrupt while it ran there.
    pub(crate) fn was_interrupted(&mut self, spent: Nanos) {
        self.recorder.spent(Mode::System, spent.0);
    }

    /// Whether an error ended it.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// When it began its work, if it has.
    pub(crate) fn work_started(&self) -> Option<Nanos> {
        self.plan.started()
    }

    /// The I/Os and the bytes that count in its results so far.
    pub(crate) fn io_done(&self) -> (u64, u64) {
        self.recorder.io_done()
    }

    /// What a reader of its results should know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let note = |option| format!("{}: ended by its {option}", self.spec.name);
        let differs = self.mismatch.clone();
        self.missed.map(note).into_iter().chain(differs).collect()
    }

    /// Its logs of each I/O, if its job writes any.
    pub(crate) fn take_log(&mut self) -> Option<IoLog> {
        self.recorder.take_log(self.id as u32)
    }

    /// What it recorded. `weight` is the share of the drive that is due to it.
    pub(crate) fn into_results(mut self, weight: Option<f64>) -> JobResults {
        let number = self.id as u32;
        if let Some(search) = &self.depth_search {
            self.recorder.found_depth(search.depth());
        }
        let mut job = self.recorder.into_results(number);
        let own = ProcessResults {
            job: job.name.clone(),
            process: number,
            runtime_ns: job.runtime_ns,
            weight,
            finished: self.finished,
            failed: self.failed,
            ..ProcessResults::default()
        };
        job.processes = vec![own.with_io([&job.read, &job.write, &job.trim])];
        job
    }

    /// Has it issue nothing more (`exitall`). A pause ends at once.
    pub(crate) fn stop(&mut self, now: Nanos, timers: &mut Timers) {
        self.plan.stop();
        match self.state {
            TaskState::Sleeping(_) => {
                self.state = TaskState::Sleeping(now);
                timers.set(now, self.id);
            }
            TaskState::AwaitsFlow => timers.set(now, self.id),
            _ => {}
        }
    }

    /// An error ends it.
    fn fail(&mut self) {
        self.failed = true;
        self.plan.stop();
    }

    /// It has missed the limit that an option of the job sets.
    #[cold]
    fn miss(&mut self, option: &'static str, errno: i32) {
        if self.missed.is_none() {
            self.missed = Some(option);
            self.recorder.failed(errno);
            self.fail();
        }
    }

    /// Its start, after everything it waited for.
    pub(crate) fn start(&mut self, now: Nanos, system: &mut System) {
        self.phase = Phase::Drain;
        self.read_files_first(now, 0, system);
        if self.enqueue(now, system) {
            self.run(now, system);
        }
    }

    /// Its work begins.
    fn begin(&mut self, now: Nanos, system: &mut System) {
        self.recorder.start(now);
        self.plan.start(now);
        self.limit_waits_for_flow(system);
        let measured_from = now + Nanos::from_micros(self.spec.ramp_us);
        if let Some(rate) = &mut self.min_rate {
            rate.start(measured_from);
        }
        self.start_depth_search(measured_from);
    }

    /// Its timer ran out.
    pub(crate) fn on_timer(&mut self, now: Nanos, system: &mut System) {
        if self.ring.is_some() {
            self.go_on_submitting(now, system);
        }
        let has_cpu = match self.state {
            TaskState::Busy(at) if at <= now => self.continues(now, system),
            TaskState::Sleeping(at) if at <= now => self.enqueue(now, system),
            TaskState::AwaitsZone => self.enqueue(now, system),
            TaskState::AwaitsFlow => self.stop_waiting_for_flow(now, system),
            TaskState::Runnable => {
                if self.is_picked(system) {
                    self.state = TaskState::Running;
                    self.schedule_in(now, system);
                }
                return;
            }
            _ => false,
        };
        if !has_cpu {
            return;
        }
        let busy_until = system.cpus.free_at(self.cpu);
        if !self.costs.free && busy_until > now {
            // An interrupt or another process took the CPU meanwhile.
            self.state = TaskState::Busy(busy_until);
            system.timers.put_off(busy_until, self.id);
            return;
        }
        self.state = TaskState::Running;
        self.run(now, system);
    }

    /// The bio of an I/O ended.
    #[inline(always)]
    pub(crate) fn on_end(&mut self, now: Nanos, slot: u32, status: IoStatus, system: &mut System) {
        if slot >= FIRST_SLOT {
            return self.on_other_end(now, slot, status, system);
        }
        if status == IoStatus::WouldBlock && self.spec.engine.is_io_uring() {
            return self.punt(now, slot, system);
        }
        self.ended(now, slot, status, system);
    }

    /// A flush has ended, or a bio of the page cache.
    #[cold]
    fn on_other_end(&mut self, now: Nanos, slot: u32, status: IoStatus, system: &mut System) {
        match slot {
            FLUSH_SLOT => self.on_flushed(now, status, system),
            RESET_SLOT => self.on_zone_reset(now, status, system),
            _ => system.cached_bio_ended(now, slot, status),
        }
    }

    /// An I/O ended.
    #[inline(always)]
    fn ended(&mut self, now: Nanos, slot: u32, status: IoStatus, system: &mut System) {
        self.ios[slot as usize].status = status;
        if self.keeps_contents {
            self.note_contents(slot, status, system);
        }
        self.in_flight -= 1;
        self.done.push_back(slot);
        if self.has_threads {
            self.end_by_thread(now, slot, system);
        }
        if matches!(self.state, TaskState::AwaitsCompletions(min) if self.done.len() as u32 >= min)
        {
            match self.spins_since.take() {
                Some(since) => self.stop_spinning(now, since, system),
                None => self.wake_up(now, system),
            }
        }
    }

    /// Runs until it has to wait for something.
    fn run(&mut self, now: Nanos, system: &mut System) {
        // In the order in which phases follow each other.
        while self.state == TaskState::Running {
            if self.phase == Phase::Reap {
                self.reap(now, system);
            }
            if self.phase == Phase::Fill && self.state == TaskState::Running {
                self.fill(now, system);
            }
            if self.phase == Phase::Commit && self.state == TaskState::Running {
                self.commit(now, system);
            }
            if self.is_pausing() && self.state == TaskState::Running {
                self.pause(now, system);
            }
        }
    }
}
