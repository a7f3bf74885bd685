//! A job's process: decides, submits, waits, reaps, as fio's main loop does
//! (`do_io` in `backend.c`).
//!
//! It is a plain state machine. [`Process::step`] runs it as far as it goes
//! without waiting; the end of a bio, a tag, or a timer makes it go on. As in the
//! block layer, the steps that every I/O takes are inlined into one another.

use std::collections::VecDeque;
use std::sync::Arc;

use blklab_blk::{
    Bio, BioFlags, CgroupId, IoClass, IoPrio, IoStatus, Nanos, Op, Plug, SECTOR_SIZE, Sector,
    Steps, Submit, SubmitterId, Waiter,
};
use blklab_workload::fio::{Direction, Engine, JobSpec, Priority, SyncMode};

use crate::aio_threads::AioThreads;
use crate::cost::StepCosts;
use crate::cpu::{Cpus, Mode};
use crate::disk::Disk;
use crate::fair::Fair;
use crate::min_rate::MinRate;
use crate::plan::{Next, NextIo, Plan};
use crate::recorder::Recorder;
use crate::timers::Timers;

/// Requests of one submission from which on the kernel plugs
/// (`AIO_PLUG_THRESHOLD`, `IO_PLUG_THRESHOLD`).
const PLUG_THRESHOLD: usize = 2;

/// What a process sees of the rest when it runs.
pub(crate) struct World {
    pub(crate) disks: Vec<Disk>,
    pub(crate) cpus: Cpus,
    pub(crate) fair: Fair,
    pub(crate) timers: Timers,
    /// Who sleeps for what: disk, ticket, process.
    pub(crate) waiters: Vec<(usize, u64, usize)>,
}

impl World {
    /// A process has no use for its CPU for a while.
    #[inline(never)]
    pub(crate) fn leave_cpu(&mut self, now: Nanos, cpu: usize, pid: usize) {
        if let Some(next) = self.fair.sleeps(cpu, pid) {
            self.hand_over(now, cpu, next);
        }
    }

    /// The CPU is `next`'s as soon as it has done what it is at.
    pub(crate) fn hand_over(&mut self, now: Nanos, cpu: usize, next: usize) {
        let at = self.cpus.free_at(cpu).max(now);
        self.timers.set(at, next);
    }
}

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

/// How long a program that looks at the clock all the time keeps its CPU before
/// an interrupt or another process may have it.
const SPIN_SLICE: Nanos = Nanos::from_micros(10);

/// What fio ends a job with that was slower than its `max_latency`.
const ETIMEDOUT: i32 = 110;

/// What fio ends a job with that missed its `rate_min`.
const EIO: i32 = 5;

/// A unit of I/O (fio's `io_u`).
#[derive(Clone, Copy, Debug)]
struct Io {
    dir: Direction,
    disk: usize,
    sector: Sector,
    bytes: u64,
    prio: IoPrio,
    started: Nanos,
    issued: Nanos,
    status: IoStatus,
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
    /// io_uring's workers and posixaio's threads that sleep in the block layer.
    workers: Vec<(usize, Waiter)>,
    flush_started: Nanos,
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
            aio: AioThreads::new(disks),
            workers: Vec::new(),
            flush_started: Nanos::ZERO,
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
            State::Ready if world.fair.is_running(self.cpu, self.id) => {
                self.state = State::Running;
                return self.switched_to(now, world);
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

    /// Whether the process, now awake, has its CPU; else it waits for it.
    #[inline]
    fn gets_cpu(&mut self, world: &mut World) -> bool {
        let gets = self.costs.free || world.fair.wakes(self.cpu, self.id);
        self.state = if gets { State::Running } else { State::Ready };
        gets
    }

    /// Whether the process may use its CPU on after a step.
    fn keeps_cpu(&mut self, now: Nanos, world: &mut World) -> bool {
        if self.costs.free {
            return true;
        }
        if let Some(next) = world.fair.ends_step(self.cpu, self.id, now) {
            world.hand_over(now, self.cpu, next);
        }
        let keeps = world.fair.is_running(self.cpu, self.id);
        if !keeps {
            self.recorder.context_switch();
            self.state = State::Ready;
        }
        keeps
    }

    /// The process has no use for its CPU for a while.
    #[inline]
    fn leaves_cpu(&mut self, now: Nanos, world: &mut World) {
        if !self.costs.free {
            world.leave_cpu(now, self.cpu, self.id);
        }
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

    /// It has what it slept for.
    #[inline]
    fn wake(&mut self, now: Nanos, world: &mut World) {
        self.waits(now, -1, world);
        if self.gets_cpu(world) {
            self.switched_to(now, world);
        }
    }

    /// Its CPU, which slept or ran another, comes to it.
    #[inline]
    fn switched_to(&mut self, now: Nanos, world: &mut World) {
        let cost = self.costs.context_switch;
        if cost > Nanos::ZERO {
            self.occupy(now, cost, Mode::System, world);
        } else {
            self.step(now, world);
        }
    }

    /// It sleeps until something of its I/O happens.
    #[inline(always)]
    fn sleep(&mut self, now: Nanos, state: State, world: &mut World) {
        self.recorder.context_switch();
        self.waits(now, 1, world);
        self.state = state;
        self.leaves_cpu(now, world);
    }

    /// It begins (or ends, with -1) to wait for I/O. CPUs that cost nothing are
    /// not watched.
    #[inline]
    fn waits(&self, now: Nanos, change: i32, world: &mut World) {
        if !self.costs.free {
            world.cpus.waits(self.cpu, now, change);
        }
    }

    /// The block layer lets it, or one of its workers, try again.
    pub(crate) fn on_woken(&mut self, now: Nanos, ticket: u64, world: &mut World) {
        if self
            .waiter
            .as_ref()
            .is_some_and(|(_, w)| w.ticket == ticket)
        {
            let (disk, waiter) = self.waiter.take().expect("just seen");
            let plug = self.plugging.then_some(&mut self.plugs[disk]);
            let d = &mut world.disks[disk];
            let first = d.queue.requests_made();
            let resumed = d.queue.resume(now, plug, waiter, &mut d.driver);
            let made = first..d.queue.requests_made();
            let last = self.batch[..self.submitted].last();
            if let (Some(log), Some(&slot)) = (world.cpus.log(), last) {
                log.submitted((self.id, slot), (self.cpu, now), disk, made);
            }
            // It goes on from where it slept.
            d.release(world.cpus.free_at(self.cpu).max(now) + self.costs.context_switch);
            match resumed {
                Submit::Done => self.has_tag = true,
                Submit::Blocked(waiter) => {
                    world.waiters.push((disk, waiter.ticket, self.id));
                    self.waiter = Some((disk, waiter));
                }
            }
            return;
        }
        let Some(at) = self.workers.iter().position(|(_, w)| w.ticket == ticket) else {
            return;
        };
        let (disk, waiter) = self.workers.swap_remove(at);
        let d = &mut world.disks[disk];
        if let Submit::Blocked(waiter) = d.queue.resume(now, None, waiter, &mut d.driver) {
            self.park_worker(disk, waiter, world);
        }
    }

    /// It goes on, if it slept for a tag and has it.
    pub(crate) fn on_resumed(&mut self, now: Nanos, world: &mut World) {
        if std::mem::take(&mut self.has_tag) {
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

    /// Whether nothing is issued for a while.
    #[inline]
    fn is_pausing(&self) -> bool {
        !matches!(self.phase, Phase::Fill | Phase::Commit | Phase::Reap)
    }

    #[inline(never)]
    fn pause(&mut self, now: Nanos, world: &mut World) {
        match self.phase {
            Phase::Fill | Phase::Commit | Phase::Reap => {}
            Phase::Quiesce(idle) => self.quiesce(now, idle, world),
            Phase::Spin(spun, until) => self.spin(now, spun, until, world),
            Phase::Drain => self.drain(now, world),
        }
    }

    /// I/Os decided on and not submitted.
    #[inline]
    fn waiting(&self) -> u32 {
        (self.batch.len() - self.submitted) as u32
    }

    #[inline]
    fn outstanding(&self) -> u32 {
        self.in_flight + self.waiting() + self.done.len() as u32
    }

    /// Decides on the next I/O, or on what to do instead.
    #[inline(always)]
    fn fill(&mut self, now: Nanos, world: &mut World) {
        let next = self.plan.next(now);
        match next {
            Next::Io(io) => {
                self.prepare(now, &io);
                let full = self.outstanding() >= self.depth;
                if full || self.waiting() >= self.spec.batch_submit {
                    self.phase = Phase::Commit;
                }
            }
            // The engine cannot queue a flush behind what it holds.
            Next::Flush if !self.batch.is_empty() => self.phase = Phase::Commit,
            Next::Flush => {
                self.plan.flushed();
                self.flush(now, world);
            }
            Next::Pause(until) => self.phase = Phase::Quiesce(Idle::Rate(until)),
            Next::Think => self.phase = Phase::Quiesce(Idle::Think),
            Next::PassOver => self.phase = Phase::Drain,
        }
    }

    #[inline]
    fn prepare(&mut self, now: Nanos, next: &NextIo) {
        let io = Io {
            dir: next.dir,
            disk: next.disk,
            sector: Sector::from_bytes(next.offset_bytes),
            bytes: next.bytes,
            prio: next.prio.map_or(self.prio, |p| io_prio(Some(p))),
            started: now,
            issued: now,
            status: IoStatus::Ok,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.ios[slot as usize] = io;
                slot
            }
            None => self.add_slot(io),
        };
        self.batch.push(slot);
    }

    /// It has more in flight than ever before.
    #[cold]
    fn add_slot(&mut self, io: Io) -> u32 {
        self.ios.push(io);
        self.ios.len() as u32 - 1
    }

    /// Gives the batch to the kernel, bio by bio.
    #[inline(always)]
    fn commit(&mut self, now: Nanos, world: &mut World) {
        if self.submitted == 0 && !self.paid && !self.batch.is_empty() {
            self.plugging = self.batch.len() > PLUG_THRESHOLD;
            // fio counts all that it has not reaped, once a call, for each of the call's I/Os.
            let (depth, size) = (self.outstanding(), self.batch.len() as u32);
            self.recorder.submitted(depth, size);
        }
        while let Some(&slot) = self.batch.get(self.submitted) {
            if !self.costs.free && !self.paid && self.pay_ahead(now, world) {
                return;
            }
            self.paid = false;
            self.submitted += 1;
            self.in_flight += 1;
            self.submit(now, slot, world);
            if self.state != State::Running {
                return;
            }
        }
        if self.plugging {
            self.unplug_all(now, world);
            if self.state != State::Running {
                // The CPU is still at it; the call returns after that.
                return;
            }
            self.plugging = false;
        }
        if !self.is_synchronous {
            for &slot in &self.batch {
                self.ios[slot as usize].issued = now;
            }
        }
        self.batch.clear();
        self.submitted = 0;
        self.phase = if self.outstanding() >= self.depth {
            Phase::Reap
        } else {
            Phase::Fill
        };
    }

    /// Pays for what comes before a submission: the program's decision, and the
    /// call into the kernel. Returns true where that takes time.
    #[inline(never)]
    fn pay_ahead(&mut self, now: Nanos, world: &mut World) -> bool {
        self.paid = true;
        let user = self.costs.user_submit;
        let call = if self.submitted == 0 {
            self.costs.syscall
        } else {
            Nanos::ZERO
        };
        let user_takes = self.spend(now, user, Mode::User, world);
        self.spend(now, call, Mode::System, world) || user_takes
    }

    /// Whether a call into the kernel is under way or due.
    fn is_committing(&self) -> bool {
        !self.batch.is_empty()
    }

    /// The block layer's steps so far, where more of them will be charged.
    #[inline]
    fn steps_to_charge(&self, disk: &Disk) -> Option<Steps> {
        (!self.costs.free).then(|| disk.queue.steps())
    }

    /// Charges what the block layer did for this process since `before`.
    #[inline]
    fn charge(&mut self, now: Nanos, disk: usize, before: Option<Steps>, world: &mut World) {
        if let Some(before) = before {
            self.charge_steps(now, disk, &before, world);
        }
    }

    #[inline(never)]
    fn charge_steps(&mut self, now: Nanos, disk: usize, before: &Steps, world: &mut World) {
        let d = &mut world.disks[disk];
        let steps = d.queue.steps().since(before);
        let start = world.cpus.free_at(self.cpu).max(now);
        let end = self
            .costs
            .charge(&mut world.cpus, &mut d.lock, self.cpu, now, &steps);
        d.release(end);
        self.recorder.spent(Mode::System, (end - start).0);
        world.fair.ran(self.id, end - start);
        if self.state == State::Running && end > now {
            self.go_on_at(end, world);
        }
    }

    #[inline(never)]
    fn unplug_all(&mut self, now: Nanos, world: &mut World) {
        for disk in 0..self.plugs.len() {
            if !self.plugs[disk].is_empty() {
                self.unplug(now, disk, world);
            }
        }
    }

    fn unplug(&mut self, now: Nanos, disk: usize, world: &mut World) {
        let d = &mut world.disks[disk];
        let before = self.steps_to_charge(d);
        d.queue
            .flush_plug(now, &mut self.plugs[disk], &mut d.driver);
        self.charge(now, disk, before, world);
        if let Some(log) = world.cpus.log() {
            log.was_for(self.id);
        }
    }

    /// Submits one I/O.
    #[inline(always)]
    fn submit(&mut self, now: Nanos, slot: u32, world: &mut World) {
        let disk = self.ios[slot as usize].disk;
        if self.has_threads {
            return self.submit_by_thread(now, slot, world);
        }
        let bio = self.bio(slot, self.nowait);
        let d = &mut world.disks[disk];
        let before = self.steps_to_charge(d);
        let plug = self.plugging.then_some(&mut self.plugs[disk]);
        let first = d.queue.requests_made();
        let done = d.queue.submit_bio(now, self.cpu, plug, bio, &mut d.driver);
        if let Submit::Blocked(waiter) = done {
            self.sleep_for_tag(now, disk, waiter, world);
        }
        self.charge(now, disk, before, world);
        let made = first..world.disks[disk].queue.requests_made();
        if let Some(log) = world.cpus.log() {
            log.submitted((self.id, slot), (self.cpu, now), disk, made);
        }
    }

    #[inline(never)]
    fn sleep_for_tag(&mut self, now: Nanos, disk: usize, waiter: Waiter, world: &mut World) {
        world.waiters.push((disk, waiter.ticket, self.id));
        self.waiter = Some((disk, waiter));
        self.sleep(now, State::Tag, world);
    }

    #[inline]
    fn bio(&self, slot: u32, nowait: bool) -> Bio {
        let io = &self.ios[slot as usize];
        let (op, mut flags) = match io.dir {
            Direction::Read => (Op::Read, BioFlags::NONE),
            Direction::Write => (Op::Write, self.write_flags),
            Direction::Trim => (Op::Discard, BioFlags::NONE),
        };
        if nowait && op != Op::Discard {
            flags = flags.with(BioFlags::NOWAIT);
        }
        Bio {
            flags,
            prio: io.prio,
            submitter: SubmitterId(self.id as u32),
            cgroup: self.cgroup,
            user_data: (self.id as u64) << 32 | slot as u64,
            ..Bio::new(op, io.sector, (io.bytes / SECTOR_SIZE) as u32)
        }
    }

    /// Submits one I/O of posixaio's.
    #[inline(never)]
    fn submit_by_thread(&mut self, now: Nanos, slot: u32, world: &mut World) {
        let disk = self.ios[slot as usize].disk;
        if self.aio.enqueue(disk, slot) {
            self.run_aio_thread(now, slot, world);
        }
    }

    /// A thread of posixaio's has done an I/O, and goes on to the next.
    #[inline(never)]
    fn end_by_thread(&mut self, now: Nanos, slot: u32, world: &mut World) {
        if let Some(next) = self.aio.done(self.ios[slot as usize].disk) {
            self.run_aio_thread(now, next, world);
        }
    }

    /// A thread of glibc's, woken for it, calls `pread` or `pwrite`.
    #[inline(never)]
    fn run_aio_thread(&mut self, now: Nanos, slot: u32, world: &mut World) {
        let bio = self.bio(slot, self.spec.nowait);
        let call = self.costs.context_switch + self.costs.syscall;
        self.submit_from_thread(now, slot, (bio, call), world);
    }

    /// io_uring hands what would block to a worker, which may.
    #[inline(never)]
    fn punt(&mut self, now: Nanos, slot: u32, world: &mut World) {
        let bio = self.bio(slot, false);
        self.submit_from_thread(now, slot, (bio, self.costs.context_switch), world);
    }

    /// A thread beside the process submits a bio, after a wake-up of that cost.
    /// The two take turns on the one CPU.
    fn submit_from_thread(
        &mut self,
        now: Nanos,
        slot: u32,
        (bio, wake): (Bio, Nanos),
        world: &mut World,
    ) {
        let disk = self.ios[slot as usize].disk;
        let d = &mut world.disks[disk];
        let before = self.steps_to_charge(d);
        let first = d.queue.requests_made();
        let done = d.queue.submit_bio(now, self.cpu, None, bio, &mut d.driver);
        let made = first..d.queue.requests_made();
        if let Submit::Blocked(waiter) = done {
            self.park_worker(disk, waiter, world);
        }
        if !self.costs.free {
            self.recorder.spent(Mode::System, wake.0);
            world.fair.ran(self.id, wake);
            world.cpus.run(self.cpu, now, wake, Mode::System);
        }
        self.charge(now, disk, before, world);
        if let Some(log) = world.cpus.log() {
            log.submitted((self.id, slot), (self.cpu, now), disk, made);
        }
    }

    fn park_worker(&mut self, disk: usize, waiter: Waiter, world: &mut World) {
        world.waiters.push((disk, waiter.ticket, self.id));
        self.workers.push((disk, waiter));
    }

    /// Takes completions: at least `iodepth_batch_complete_min`, and on until
    /// no more than `iodepth_low` are left.
    #[inline]
    fn reap(&mut self, now: Nanos, world: &mut World) {
        let outstanding = self.in_flight + self.done.len() as u32;
        let min = self.spec.batch_complete_min.clamp(1, outstanding.max(1));
        if !self.take_completions(now, min, world) {
            return;
        }
        let low = self.spec.io_depth_low.clamp(1, self.depth);
        let left = self.in_flight + self.done.len() as u32;
        if left < low || left < self.depth && low == self.depth || left == 0 {
            self.phase = Phase::Fill;
        }
    }

    /// Takes at least `min` completions and at most
    /// `iodepth_batch_complete_max`. Returns false where it waits for them.
    #[inline(always)]
    fn take_completions(&mut self, now: Nanos, min: u32, world: &mut World) -> bool {
        let enough = self.done.len() as u32 >= min;
        match enough {
            true => self.take_done(now, min, world),
            false => {
                self.waited = true;
                self.sleep(now, State::Completions(min), world);
            }
        }
        enough
    }

    /// Takes completions, of which there are at least `min`.
    #[inline(always)]
    fn take_done(&mut self, now: Nanos, min: u32, world: &mut World) {
        let max = self.spec.batch_complete_max.max(min);
        let mut taken = 0;
        while taken < max
            && let Some(slot) = self.done.pop_front()
        {
            taken += 1;
            let io = self.ios[slot as usize];
            self.free.push(slot);
            self.recorder.completed(
                now,
                io.dir,
                io.bytes,
                io.started,
                io.issued,
                self.is_synchronous,
                io.status,
            );
            self.plan.completed(now, io.dir);
            if io.status != IoStatus::Ok {
                self.ended_badly(&io);
                continue;
            }
            if now.saturating_sub(io.started) > self.max_latency[io.dir as usize]
                && self.recorder.is_measuring(now)
            {
                self.miss("max_latency", ETIMEDOUT);
            }
            if let Some(rate) = &mut self.min_rate {
                rate.completed(now, io.dir, io.bytes);
            }
        }
        self.recorder.reaped(taken);
        if let Some(rate) = &mut self.min_rate
            && let Some(option) = rate.missed(now)
        {
            self.miss(option, EIO);
        }
        if !std::mem::take(&mut self.waited) {
            self.spend(now, self.costs.reap_call, Mode::System, world);
        }
        let cost = Nanos(self.costs.user_reap.0 * taken as u64);
        self.spend(now, cost, Mode::User, world);
    }

    #[cold]
    fn ended_badly(&mut self, io: &Io) {
        if ends_job(&self.spec, io.dir, io.status) {
            self.fail();
        }
    }

    /// Before a pause everything in flight is awaited (`io_u_quiesce`), so that
    /// its latency does not hold the pause.
    #[inline(never)]
    fn quiesce(&mut self, now: Nanos, idle: Idle, world: &mut World) {
        if self.is_committing() {
            self.commit(now, world);
            if self.state == State::Running {
                self.phase = Phase::Quiesce(idle);
            }
            return;
        }
        if self.in_flight + self.done.len() as u32 > 0 {
            self.take_completions(now, 1, world);
            return;
        }
        let (spun, until) = match idle {
            Idle::Rate(until) => (now, until),
            Idle::Think => self.plan.think(now),
        };
        self.spin(now, spun, until, world);
    }

    /// Spins until the clock says `spun` (`usec_spin`), then sleeps until `until`.
    fn spin(&mut self, now: Nanos, spun: Nanos, until: Nanos, world: &mut World) {
        let left = spun.saturating_sub(now);
        if !self.costs.free && left > Nanos::ZERO && !self.plan.is_over(now) {
            self.phase = Phase::Spin(spun, until);
            self.occupy(now, left.min(SPIN_SLICE), Mode::User, world);
            return;
        }
        self.phase = Phase::Fill;
        if until > now && !self.plan.is_over(now) {
            self.state = State::Paused(until);
            world.timers.set(until, self.id);
            self.leaves_cpu(now, world);
        }
    }

    /// Nothing more is issued in this pass; what is under way is awaited. Then
    /// comes another pass, or the last flush and the end.
    #[inline(never)]
    fn drain(&mut self, now: Nanos, world: &mut World) {
        if self.is_committing() {
            self.commit(now, world);
            if self.state == State::Running {
                self.phase = Phase::Drain;
            }
            return;
        }
        if self.in_flight + self.done.len() as u32 > 0 {
            self.take_completions(now, 1, world);
            return;
        }
        if self.plan.start_pass(now) {
            if let Some(rate) = &mut self.min_rate {
                rate.start_pass();
            }
            self.phase = Phase::Fill;
            return;
        }
        if (self.spec.end_fsync || self.spec.fsync_on_close) && !self.flushed {
            self.flushed = true;
            return self.flush(now, world);
        }
        self.ended = now;
        self.finished = !self.plan.is_over(now);
        self.recorder.end(now);
        self.state = State::Over;
        self.leaves_cpu(now, world);
    }

    /// `fsync`: a flush that the process waits for.
    #[inline(never)]
    fn flush(&mut self, now: Nanos, world: &mut World) {
        self.flush_started = now;
        let disk = self.plan.flush_disk();
        let bio = Bio {
            flags: BioFlags::SYNC,
            prio: self.prio,
            submitter: SubmitterId(self.id as u32),
            cgroup: self.cgroup,
            user_data: (self.id as u64) << 32 | FLUSH_SLOT as u64,
            ..Bio::new(Op::Flush, Sector(0), 0)
        };
        self.sleep(now, State::Flush, world);
        let d = &mut world.disks[disk];
        if let Submit::Blocked(waiter) = d.queue.submit_bio(now, self.cpu, None, bio, &mut d.driver)
        {
            self.park_worker(disk, waiter, world);
        }
    }

    #[inline(never)]
    fn on_flushed(&mut self, now: Nanos, status: IoStatus, world: &mut World) {
        self.recorder.synced(self.flush_started, now, status);
        if status != IoStatus::Ok {
            self.fail();
        }
        self.wake(now, world);
    }

    /// Spends what takes `cost` on a warm CPU. Returns true where the process
    /// goes on only later.
    #[inline]
    fn spend(&mut self, now: Nanos, cost: Nanos, mode: Mode, world: &mut World) -> bool {
        if cost == Nanos::ZERO {
            return false;
        }
        let cost = world.cpus.stretch(self.cpu, now).of(cost);
        self.occupy(now, cost, mode, world);
        true
    }

    /// Uses its CPU.
    #[inline(never)]
    fn occupy(&mut self, now: Nanos, cost: Nanos, mode: Mode, world: &mut World) {
        self.recorder.spent(mode, cost.0);
        world.fair.ran(self.id, cost);
        let until = world.cpus.run(self.cpu, now, cost, mode);
        if let Some(log) = world.cpus.log() {
            log.was_for(self.id);
        }
        self.go_on_at(until, world);
    }

    /// Its CPU is at it until then.
    fn go_on_at(&mut self, until: Nanos, world: &mut World) {
        self.state = State::Until(until);
        world.timers.set(until, self.id);
    }
}

/// What is said of a write (`dio_bio_write_op`): direct ones are synchronous, and
/// more may follow.
fn write_flags(spec: &JobSpec) -> BioFlags {
    let flags = BioFlags::SYNC.with(BioFlags::IDLE);
    match spec.sync {
        SyncMode::None => flags,
        _ => flags.with(BioFlags::FUA),
    }
}

/// Whether fio ends a job for this error: `continue_on_error` lets it go on after
/// an EIO (`td_non_fatal_error`), and after nothing else.
fn ends_job(spec: &JobSpec, dir: Direction, status: IoStatus) -> bool {
    let goes_on = match dir {
        Direction::Read => spec.continue_on_error.read,
        Direction::Write => spec.continue_on_error.write,
        Direction::Trim => spec.continue_on_error.trim,
    };
    !(goes_on && status == IoStatus::IoError)
}

/// A priority as the block layer takes it. A process that never set one has
/// best effort, level 4 (`IOPRIO_BE_NORM`).
fn io_prio(priority: Option<Priority>) -> IoPrio {
    match priority {
        Some(Priority { class: 1, level }) => IoPrio {
            class: IoClass::Rt,
            level,
        },
        Some(Priority { class: 2, level }) => IoPrio {
            class: IoClass::Be,
            level,
        },
        Some(Priority { class: 3, level }) => IoPrio {
            class: IoClass::Idle,
            level,
        },
        _ => IoPrio {
            class: IoClass::Be,
            level: 4,
        },
    }
}
