//! What the steps of an I/O cost under the run's scheduler, and how they are
//! charged to CPUs and to the scheduler's lock.

use blklab_blk::{CostCounts, KblockdDelay, Nanos, Op, SECTORS_PER_PAGE, TraceKind};
use blklab_driver::WorkerJob;
use blklab_workload::fio::{Engine, JobSpec};

use super::lock::{Holds, LockedSteps, SchedulerLock, TransferCost};
use super::{Cpus, Mode, Slowdown, Topology};
use crate::machine::{Costs, EngineCosts, LoopCosts, Machine, SchedulerCosts};

/// What a request takes a loop device's worker where CPUs cost nothing: about a copy
/// of 4 KiB. If it took no time, time would stand still.
const LEAST_LOOP_WORK: Nanos = Nanos::from_micros(1);

/// Finding a page in the page cache and copying it, where nothing is known of the
/// machine. Assumed: 10 GB/s. If it took no time, programs that read what is cached
/// would never come to an end of theirs.
const CACHED_PAGE: Nanos = Nanos(400);

/// What each step of an I/O costs on the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostTable {
    /// CPUs cost nothing, and nothing is charged.
    pub(crate) free: bool,
    pub(crate) user_submit: Nanos,
    pub(crate) user_reap: Nanos,
    pub(crate) syscall: Nanos,
    /// A call that takes completions which have arrived.
    pub(crate) reap_call: Nanos,
    /// What a wait for completions costs beside the switch.
    pub(crate) wait: Nanos,
    pub(crate) context_switch: Nanos,
    pub(crate) wake: Nanos,
    /// Until io_uring's submission thread runs that slept.
    pub(crate) sq_thread_wake: Nanos,
    /// Queueing a signal and taking it.
    pub(crate) signal: Nanos,
    /// Starting a thread and ending it.
    pub(crate) thread: Nanos,
    pub(crate) softirq_wait: Nanos,
    kblockd: Nanos,
    interrupt: Nanos,
    complete: Nanos,
    /// More of writing a command, and of reading of its end, from another socket than the
    /// drives'.
    remote_drive: Nanos,
    drive_socket: usize,
    bio: Nanos,
    /// What comes before the bio, with or without success: the engine, the file, pinning.
    way_to_bio: Nanos,
    /// Pinning a further page that is read into, and one that is written from.
    pin_page: Nanos,
    pin_written_page: Nanos,
    queue_rq: Nanos,
    list: Nanos,
    page: Nanos,
    drop_page: Nanos,
    /// A look for completions by who polls for them.
    pub(crate) poll: Nanos,
    /// Ending a request that such a look found.
    pub(crate) polled_end: Nanos,
    loop_worker: LoopCosts,
    scheduler: SchedulerCosts,
    /// What a step of it takes the second time in a row, in hundredths.
    repeated_percent: u64,
    /// The scheduler has one lock for all CPUs.
    has_one_lock: bool,
    transfer: TransferCost,
}

impl CostTable {
    /// CPUs that cost nothing.
    pub(crate) fn free() -> CostTable {
        CostTable::of(&Costs::default(), (Topology::of_cores(1), 0), "none")
    }

    /// The machine's costs under the scheduler of that name.
    pub(crate) fn new(machine: &Machine, scheduler: &str) -> CostTable {
        let home = (machine.topology, machine.drive_socket as usize);
        CostTable::of(&machine.costs, home, scheduler)
    }

    fn of(costs: &Costs, home: (Topology, usize), scheduler: &str) -> CostTable {
        let (topology, drive_socket) = home;
        let of_scheduler = costs.of_scheduler(scheduler);
        let transfer_ns = of_scheduler.transfer_ns.unwrap_or(costs.lock_transfer_ns);
        let waiter_ns = of_scheduler.waiter_ns.unwrap_or(costs.lock_waiter_ns);
        CostTable {
            free: costs.are_zero(),
            user_submit: Nanos(costs.user_submit_ns),
            user_reap: Nanos(costs.user_reap_ns),
            syscall: Nanos(costs.syscall_ns),
            reap_call: Nanos::ZERO,
            wait: Nanos::ZERO,
            context_switch: Nanos(costs.context_switch_ns),
            wake: Nanos(costs.wake_ns),
            sq_thread_wake: Nanos(
                (costs.sq_thread_wake_ns).unwrap_or(costs.wake_ns + costs.context_switch_ns),
            ),
            signal: Nanos(costs.signal_ns),
            thread: Nanos(costs.thread_ns),
            softirq_wait: Nanos(costs.loop_worker.softirq_wait_ns),
            kblockd: Nanos(costs.kblockd_ns),
            interrupt: Nanos(costs.interrupt_ns),
            complete: Nanos(costs.complete_ns),
            remote_drive: Nanos(costs.remote_drive_ns),
            drive_socket,
            bio: Nanos(costs.bio_ns),
            way_to_bio: Nanos::ZERO,
            pin_page: Nanos::ZERO,
            pin_written_page: Nanos::ZERO,
            queue_rq: Nanos(costs.queue_rq_ns),
            list: Nanos(costs.list_ns),
            page: Nanos(costs.page_ns),
            drop_page: Nanos(costs.drop_page_ns),
            poll: Nanos(costs.poll_ns),
            polled_end: Nanos(costs.polled_end_ns),
            loop_worker: costs.loop_worker,
            scheduler: of_scheduler,
            repeated_percent: costs.repeated_percent,
            has_one_lock: false,
            transfer: TransferCost {
                base: Nanos(transfer_ns),
                each_waiter: Nanos(waiter_ns),
                remote_percent: costs.remote_percent,
                topology,
                foreign_request: Nanos(costs.foreign_request_ns),
            },
        }
    }

    /// The same under a scheduler that may have one lock for all CPUs.
    pub(crate) fn with_one_lock(self, has_one_lock: bool) -> CostTable {
        CostTable {
            has_one_lock,
            ..self
        }
    }

    /// The same for a process with the job's I/O engine.
    pub(crate) fn with_engine(self, costs: &Costs, spec: &JobSpec) -> CostTable {
        let engine = &spec.engine;
        let EngineCosts {
            user_ns,
            kernel_ns,
            wait_ns,
        } = costs.of_engine(engine);
        let unless = |left_out: bool, cost_ns: u64| if left_out { 0 } else { cost_ns };
        let file_io_ns = unless(*engine == Engine::IoUringCmd, costs.file_io_ns);
        let file_ns = unless(spec.registered_files, costs.file_ns);
        let pin_ns = unless(spec.registered_buffers, costs.pin_ns);
        let pin_page_ns = unless(spec.registered_buffers, costs.pin_page_ns);
        let pin_written_page_ns = match (spec.untouched_buffers, costs.pin_zero_page_ns) {
            (true, Some(zero_page_ns)) => unless(spec.registered_buffers, zero_page_ns),
            _ => pin_page_ns,
        };
        // libaio's events come by a call (`io_getevents(2)`), io_uring's are read
        // from memory, a plain call returns with its own. A call that has to wait
        // is part of the switch.
        let reap_call = match engine {
            Engine::Libaio => self.syscall,
            _ => Nanos::ZERO,
        };
        CostTable {
            user_submit: self.user_submit + Nanos(user_ns),
            way_to_bio: Nanos(kernel_ns + file_io_ns + file_ns + pin_ns),
            pin_page: Nanos(pin_page_ns),
            pin_written_page: Nanos(pin_written_page_ns),
            reap_call,
            wait: Nanos(wait_ns),
            ..self
        }
    }

    /// What finding this many pages in the page cache and copying them takes: as for the
    /// worker of a loop device, which does the same.
    pub(crate) fn cached_pages(&self, is_write: bool, pages: u64) -> Nanos {
        let LoopCosts {
            read_page_ns,
            write_page_ns,
            ..
        } = self.loop_worker;
        let page_ns = if is_write {
            write_page_ns
        } else {
            read_page_ns
        };
        match page_ns {
            0 => Nanos(CACHED_PAGE.0 * pages),
            page_ns => Nanos(page_ns * pages),
        }
    }

    /// What writing to this many pages of another socket's memory takes beyond a copy.
    pub(crate) fn remote_pages(&self, pages: u64) -> Nanos {
        Nanos(self.loop_worker.remote_page_ns * pages)
    }

    /// What dropping this many pages from the page cache takes.
    pub(crate) fn dropped_pages(&self, pages: u64) -> Nanos {
        Nanos(self.drop_page.0 * pages)
    }

    /// The share of a traced step in the time of those that are charged together,
    /// in nanoseconds.
    pub(crate) fn weight(&self, kind: TraceKind) -> u64 {
        let s = &self.scheduler;
        match kind {
            TraceKind::GetRq | TraceKind::BioBackMerge | TraceKind::BioFrontMerge => {
                self.way_to_bio.0 + self.bio.0 + s.merge_ns
            }
            TraceKind::RqInsert => s.insert_ns,
            TraceKind::Dispatch | TraceKind::DispatchNone => s.dispatch_ns,
            TraceKind::RqIssue => self.queue_rq.0,
            _ => 0,
        }
    }

    /// Charges the block layer's steps to a CPU. Returns when it is done.
    pub(crate) fn charge(
        &self,
        cpus: &mut Cpus,
        lock: &mut SchedulerLock,
        cpu: usize,
        now: Nanos,
        steps: &CostCounts,
    ) -> Nanos {
        let foreign = self.transfer.foreign_request.0;
        let issues = Nanos(
            steps.issues * self.queue_rq.0
                + steps.multi_page_issues * self.list.0
                + steps.foreign_issues * foreign
                + steps.far_issues * foreign * self.transfer.remote_percent / 100
                + steps.further_pages * self.page.0
                + steps.issues * self.drive_distance(cpu).0,
        );
        let s = &self.scheduler;
        let locked = LockedSteps {
            first: Holds::new(steps.merge_attempts, Nanos(s.merge_ns)),
            between: self.way_to_bios(steps) + Nanos(steps.bios * self.bio.0),
            insert: self.repeated(steps.inserts, s.insert_ns),
            dispatches: Holds::new(steps.dispatch_calls, self.dispatch(steps)),
            ..LockedSteps::default()
        };
        let locked = locked.with_issues(issues);
        let slowdown = cpus.slowdown(cpu, now);
        let took = self.under_lock((cpus, lock), cpu, now, (locked, slowdown));
        cpus.run_under_lock(cpu, now, (took.whole, took.waited))
    }

    /// What a CPU's way to the memory of the drives' socket takes beyond that to its own.
    #[inline]
    pub(crate) fn drive_distance(&self, cpu: usize) -> Nanos {
        match self.remote_drive {
            Nanos::ZERO => Nanos::ZERO,
            _ if self.transfer.topology.socket_of(cpu) == self.drive_socket => Nanos::ZERO,
            remote => remote,
        }
    }

    /// What comes before bios: an attempt that is refused has pinned all pages as well.
    fn way_to_bios(&self, steps: &CostCounts) -> Nanos {
        let read_pages = steps.submitted_pages - steps.written_pages;
        Nanos(
            steps.submits * self.way_to_bio.0
                + read_pages * self.pin_page.0
                + steps.written_pages * self.pin_written_page.0,
        )
    }

    /// What choosing a request costs on average: of one that another CPU made, the
    /// scheduler brings what it changes in it.
    fn dispatch(&self, steps: &CostCounts) -> Nanos {
        let foreign_ns = match self.has_one_lock {
            true => steps.foreign_issues * self.transfer.base.0,
            false => 0,
        };
        let own = self.repeated(steps.dispatch_calls, self.scheduler.dispatch_ns);
        Nanos((own.0 + foreign_ns) / steps.dispatch_calls.max(1))
    }

    /// What a step of the scheduler takes that is done for several requests in a row,
    /// all of them together.
    fn repeated(&self, times: u64, step_ns: u64) -> Nanos {
        let again_ns = step_ns * self.repeated_percent / 100;
        Nanos(step_ns * times.min(1) + again_ns * times.saturating_sub(1))
    }

    /// Charges a run of a hardware queue by kblockd to a CPU. Returns when the
    /// queue has been run.
    pub(crate) fn charge_kblockd(
        &self,
        cpus: &mut Cpus,
        lock: &mut SchedulerLock,
        cpu: usize,
        now: Nanos,
        steps: &CostCounts,
    ) -> Nanos {
        // The switch to kblockd was waited for before the run; its CPU time is booked
        // with that of the switch back.
        let done = self.charge(cpus, lock, cpu, now, steps);
        cpus.run(cpu, now, cpus.at_clock(self.kblockd), Mode::System);
        done
    }

    /// How long after a completion kblockd runs the queue: the interrupt's handler
    /// ends, and a thread is woken and switched to, which is half of `kblockd_ns`.
    pub(crate) fn kblockd_delay(&self) -> KblockdDelay {
        match self.kblockd {
            Nanos::ZERO => KblockdDelay::default(),
            kblockd => KblockdDelay {
                after: self.interrupt + self.complete,
                wake: Nanos(kblockd.0 / 2),
            },
        }
    }

    /// The same after a submission by a process that polls and so does not sleep: kblockd
    /// has its CPU when the call returns, which took as long as that the last time and
    /// then looks for completions.
    pub(crate) fn kblockd_delay_of_call(&self, last_call: Nanos) -> KblockdDelay {
        match self.kblockd {
            Nanos::ZERO => KblockdDelay::default(),
            _ => KblockdDelay {
                after: last_call + self.poll + self.polled_end,
                ..self.kblockd_delay()
            },
        }
    }

    /// Charges the interrupt that ends a request, in the handler itself or in the
    /// softirq that it leaves that to, and wakes who sleeps for it. A thread of the kernel
    /// (in [`Mode::System`]) ends it without an interrupt.
    /// Returns when it is done.
    pub(crate) fn charge_end(
        &self,
        cpus: &mut Cpus,
        lock: &mut SchedulerLock,
        cpu: usize,
        now: Nanos,
        (drive, mode, wakes): (usize, Mode, bool),
    ) -> Nanos {
        let slowdown = cpus.slowdown(cpu, now);
        let finished = self.finish((cpus, lock), cpu, now, slowdown);
        let wake = if wakes { self.wake } else { Nanos::ZERO };
        let work = slowdown.of(self.complete + self.drive_distance(cpu)) + finished + wake;
        let entry = match mode {
            Mode::System => Nanos::ZERO,
            _ => slowdown.of(self.interrupt),
        };
        cpus.interrupt(cpu, now, (drive, entry), (work, mode))
    }

    /// How long the scheduler takes for the end of a request, which bfq counts under its lock
    /// (`bfq_finish_requeue_request`), whether an interrupt told of it or who polls found it.
    pub(crate) fn finish(
        &self,
        (cpus, lock): (&mut Cpus, &mut SchedulerLock),
        cpu: usize,
        now: Nanos,
        slowdown: Slowdown,
    ) -> Nanos {
        let steps = LockedSteps {
            first: Holds::new(1, Nanos(self.scheduler.finish_ns)),
            ..LockedSteps::default()
        };
        self.under_lock((cpus, lock), cpu, now, (steps, slowdown))
            .whole
    }

    /// How long a loop device's worker takes for a request.
    pub(crate) fn loop_work(&self, job: WorkerJob) -> Nanos {
        if self.free {
            return LEAST_LOOP_WORK;
        }
        let pages = u64::from(job.sectors.div_ceil(SECTORS_PER_PAGE));
        let costs = &self.loop_worker;
        Nanos(match job.op {
            Op::Read => costs.read_ns + pages * costs.read_page_ns,
            Op::Write => costs.write_ns + pages * costs.write_page_ns,
            // A hole is punched, or a file written back: no page is copied.
            Op::Discard | Op::WriteZeroes | Op::Zone(_) => costs.write_ns,
            Op::Flush => costs.read_ns,
        })
    }

    /// Returns how long steps take that a CPU begins as soon as it is free, with the
    /// CPU's slowdown. CPUs that wait for the lock longer because of them spin for longer.
    fn under_lock(
        &self,
        (cpus, lock): (&mut Cpus, &mut SchedulerLock),
        cpu: usize,
        now: Nanos,
        (steps, slowdown): (LockedSteps, Slowdown),
    ) -> TimeUnderLock {
        if !self.has_one_lock {
            return TimeUnderLock {
                whole: slowdown.of(steps.held()) + slowdown.of(steps.not_held()),
                waited: Nanos::ZERO,
            };
        }
        let steps = steps.slowed(slowdown);
        let start = cpus.free_at(cpu).max(now);
        let end = lock.call(now, (cpu, start), steps, &self.transfer);
        for &(other, late) in lock.delays() {
            cpus.run_under_lock(other, now, (late, late));
        }
        TimeUnderLock {
            whole: end - start,
            waited: (end - start).saturating_sub(steps.alone()),
        }
    }
}

/// How long a CPU takes for steps under a scheduler's lock.
#[derive(Clone, Copy, Debug)]
struct TimeUnderLock {
    whole: Nanos,
    /// What of it goes to waiting for the lock, and for what it protects.
    waited: Nanos,
}
