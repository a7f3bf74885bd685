//! What the steps of an I/O cost on the machine at hand, with the scheduler at
//! hand, and how they are charged to CPUs and locks.

use blklab_blk::{KblockdDelay, Nanos, Op, SECTORS_PER_PAGE, Steps, TraceKind};
use blklab_driver::WorkerJob;
use blklab_workload::fio::Engine;

use crate::cpu::{Cpus, Mode};
use crate::lock::{Lock, TransferCost};
use crate::machine::{Costs, EngineCosts, LoopCosts, SchedulerCosts};

/// What a request takes a loop device's worker where CPUs are free: about a copy
/// of 4 KiB. With none at all time would stand still.
const LEAST_LOOP_WORK: Nanos = Nanos::from_micros(1);

/// Costs, made ready to be looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepCosts {
    /// Nothing costs anything: nothing is charged.
    pub(crate) free: bool,
    pub(crate) user_submit: Nanos,
    pub(crate) user_reap: Nanos,
    pub(crate) syscall: Nanos,
    /// A call that takes completions which are there.
    pub(crate) reap_call: Nanos,
    pub(crate) context_switch: Nanos,
    pub(crate) wake: Nanos,
    pub(crate) softirq_wait: Nanos,
    kblockd: Nanos,
    interrupt: Nanos,
    complete: Nanos,
    bio: Nanos,
    queue_rq: Nanos,
    list: Nanos,
    page: Nanos,
    loop_worker: LoopCosts,
    scheduler: SchedulerCosts,
    /// The scheduler has one lock for all CPUs.
    one_lock: bool,
    transfer: TransferCost,
}

impl StepCosts {
    /// The machine's costs under a scheduler; `one_lock` says whether that has
    /// one state for all CPUs.
    pub(crate) fn new(costs: &Costs, scheduler: &str, one_lock: bool) -> StepCosts {
        let of_scheduler = costs.of_scheduler(scheduler);
        let transfer_ns = of_scheduler.transfer_ns.unwrap_or(costs.lock_transfer_ns);
        let waiter_ns = of_scheduler.waiter_ns.unwrap_or(costs.lock_waiter_ns);
        StepCosts {
            free: costs.are_zero(),
            user_submit: Nanos(costs.user_submit_ns),
            user_reap: Nanos(costs.user_reap_ns),
            syscall: Nanos(costs.syscall_ns),
            reap_call: Nanos::ZERO,
            context_switch: Nanos(costs.context_switch_ns),
            wake: Nanos(costs.wake_ns),
            softirq_wait: Nanos(costs.loop_worker.softirq_wait_ns),
            kblockd: Nanos(costs.kblockd_ns),
            interrupt: Nanos(costs.interrupt_ns),
            complete: Nanos(costs.complete_ns),
            bio: Nanos(costs.bio_ns),
            queue_rq: Nanos(costs.queue_rq_ns),
            list: Nanos(costs.list_ns),
            page: Nanos(costs.page_ns),
            loop_worker: costs.loop_worker,
            scheduler: of_scheduler,
            one_lock,
            transfer: TransferCost {
                base: Nanos(transfer_ns),
                each_waiter: Nanos(waiter_ns),
            },
        }
    }

    /// The same for a process with that I/O engine.
    pub(crate) fn with_engine(self, costs: &Costs, engine: &Engine) -> StepCosts {
        let EngineCosts { user_ns, kernel_ns } = costs.of_engine(engine);
        // libaio's events come by a call (`io_getevents(2)`), io_uring's are read
        // from memory, a plain call returns with its own. A call that has to wait
        // is part of the switch.
        let reap_call = match engine {
            Engine::Libaio => self.syscall,
            _ => Nanos::ZERO,
        };
        StepCosts {
            user_submit: self.user_submit + Nanos(user_ns),
            bio: self.bio + Nanos(kernel_ns),
            reap_call,
            ..self
        }
    }

    /// What a step that is traced has in the time of those that are charged
    /// together, in nanoseconds.
    pub(crate) fn weight(&self, kind: TraceKind) -> u64 {
        let s = &self.scheduler;
        match kind {
            TraceKind::GetRq | TraceKind::BioBackMerge | TraceKind::BioFrontMerge => {
                self.bio.0 + s.merge_ns
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
        lock: &mut Lock,
        cpu: usize,
        now: Nanos,
        steps: &Steps,
    ) -> Nanos {
        let own = Nanos(
            steps.bios * self.bio.0
                + steps.issues * self.queue_rq.0
                + steps.lists * self.list.0
                + steps.further_pages * self.page.0,
        );
        let s = &self.scheduler;
        let scheduling = Nanos(
            steps.merge_looks * s.merge_ns
                + steps.inserts * s.insert_ns
                + steps.asks * s.dispatch_ns,
        );
        let start = cpus.free_at(cpu).max(now);
        let stretch = cpus.stretch(cpu, now);
        let scheduled = self.under_lock(lock, cpu, start, stretch.of(scheduling));
        cpus.run(cpu, now, scheduled + stretch.of(own), Mode::System)
    }

    /// Charges a run of a hardware queue by kblockd to a CPU. Returns when the
    /// queue has been run.
    pub(crate) fn charge_kblockd(
        &self,
        cpus: &mut Cpus,
        lock: &mut Lock,
        cpu: usize,
        now: Nanos,
        steps: &Steps,
    ) -> Nanos {
        // The way there was waited for before; what it costs the CPU is booked
        // with the way back.
        let done = self.charge(cpus, lock, cpu, now, steps);
        cpus.run(cpu, now, self.kblockd, Mode::System);
        done
    }

    /// How long after a completion kblockd comes to what that made possible:
    /// first the interrupt's handler ends, then a thread is woken and switched
    /// to, which is half of the way there and back.
    pub(crate) fn kblockd_delay(&self) -> KblockdDelay {
        match self.kblockd {
            Nanos::ZERO => KblockdDelay::default(),
            kblockd => KblockdDelay {
                after: self.interrupt + self.complete,
                wake: Nanos(kblockd.0 / 2),
            },
        }
    }

    /// Charges the interrupt that ends a request, in the handler itself or in the
    /// softirq that it leaves that to, and wakes who sleeps for it.
    /// Returns when it is done.
    pub(crate) fn charge_end(
        &self,
        cpus: &mut Cpus,
        lock: &mut Lock,
        cpu: usize,
        now: Nanos,
        (mode, wakes): (Mode, bool),
    ) -> Nanos {
        let start = cpus.free_at(cpu).max(now);
        let stretch = cpus.stretch(cpu, now);
        let finish = stretch.of(Nanos(self.scheduler.finish_ns));
        let finished = self.under_lock(lock, cpu, start, finish);
        let wake = if wakes { self.wake } else { Nanos::ZERO };
        let work = stretch.of(self.complete) + finished + wake;
        let entry = stretch.of(self.interrupt);
        cpus.interrupt(cpu, now, entry, (work, mode))
    }

    /// How long a loop device's worker is at a request.
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
            Op::Discard | Op::WriteZeroes => costs.write_ns,
            Op::Flush => costs.read_ns,
        })
    }

    /// How long work under the scheduler's lock takes, waiting included.
    fn under_lock(&self, lock: &mut Lock, cpu: usize, start: Nanos, work: Nanos) -> Nanos {
        if work == Nanos::ZERO || !self.one_lock {
            return work;
        }
        lock.take(cpu, start, work, self.transfer) - start
    }
}
