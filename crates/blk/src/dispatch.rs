//! Running the hardware queues (`block/blk-mq-sched.c`,
//! `blk_mq_dispatch_rq_list`).

use crate::elevator::{InsertAt, take_request};
use crate::list::RqList;
use crate::queue::{BlkDriver, BlkStatus, CostCounts, Interruption, RequestQueue, RunPoint};
use crate::request::{RequestId, RqFlags, Tag};
use crate::trace::TraceKind;
use crate::units::{Nanos, SECTORS_PER_PAGE};

/// Delay of the next run after the driver lacked a resource or budget (`BLK_MQ_RESOURCE_DELAY`,
/// `BLK_MQ_BUDGET_DELAY`).
const RESOURCE_DELAY: Nanos = Nanos::from_millis(3);

/// Result of giving a list of requests to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListOutcome {
    /// The driver took the whole list; there may be more to dispatch.
    Dispatched,
    /// There is nothing to dispatch, or the driver is busy.
    Stopped,
    /// The thread sleeps in the driver or waits for other CPUs; `driver_unblocked` or `resume_run`
    /// continues the run.
    Suspended,
}

/// Where a run continues after a list has been issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Continue {
    /// Returns to the caller.
    Return,
    /// Asks the scheduler for more requests.
    Scheduler,
    /// Takes from the software queues, one request at a time.
    Contexts,
}

/// A run whose thread sleeps inside the driver.
#[derive(Debug)]
pub(crate) struct Suspended {
    rq: RequestId,
    /// The hardware context that is being run.
    hctx: usize,
    batch: Batch,
}

/// A run that is paused until other CPUs have acted.
#[derive(Debug)]
pub(crate) struct Paused {
    name: u64,
    taking: Taking,
    step: DispatchStage,
}

/// Requests taken from the scheduler for the driver.
#[derive(Debug)]
struct Taking {
    hctx: usize,
    list: RqList,
    /// The most requests to take before the first is given to the driver.
    max: u32,
    /// Whether some requests belong to other hardware contexts.
    multi_hctxs: bool,
}

/// The next step in taking a request from the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DispatchStage {
    /// Ask the scheduler whether it has work.
    Ask,
    /// Let the scheduler choose a request.
    Choose,
    /// Get a driver tag for the request.
    Tag,
}

/// A list of requests to be given to the driver.
#[derive(Debug)]
struct Batch {
    hctx: usize,
    list: RqList,
    /// Requests of other hardware contexts, which are issued after this list.
    others: RqList,
    /// Whether the driver took an earlier list of this run completely.
    dispatched: bool,
    /// How many of the first requests in the list already hold budget.
    budgets: u32,
    then: Continue,
    /// How many requests the driver took.
    queued: u32,
    /// Requests that the driver refused because their zone is busy.
    zone_list: RqList,
    /// Whether the driver lacked a resource that no completion will free.
    needs_resource: bool,
    /// Whether the driver refused or failed a request.
    failed: bool,
}

impl Batch {
    fn new(hctx: usize, list: RqList, budgets: u32, then: Continue) -> Batch {
        Batch {
            hctx,
            list,
            others: RqList::new(),
            dispatched: false,
            budgets,
            then,
            queued: 0,
            zone_list: RqList::new(),
            needs_resource: false,
            failed: false,
        }
    }
}

/// `-EAGAIN`: the dispatch list has been filled meanwhile, so the hardware queue is run again.
struct Again;

/// What a request lacked before it could be issued (`enum prep_dispatch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrepareError {
    NoTag,
    NoBudget,
}

impl RequestQueue {
    /// Does all work that is due: hardware queue runs, requeues and the scheduler's timer.
    pub fn process<D: BlkDriver + ?Sized>(&mut self, now: Nanos, driver: &mut D) {
        self.process_each(now, driver, &mut |_, _| ());
    }

    /// As [`RequestQueue::process`]; calls `on_run` with each hardware context that was run and the
    /// operations that the run counted.
    pub fn process_each<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        driver: &mut D,
        on_run: &mut dyn FnMut(usize, CostCounts),
    ) {
        // Hardware queues run in the order in which the scheduler asked for them: in the order of
        // their numbers the last would starve while a scheduler's tokens are short.
        let mut runs = core::mem::take(&mut self.runs);
        for (before, hctx) in runs.drain(..).enumerate() {
            self.wake_kblockd(now, hctx as usize, before as u64);
            self.run_order.push_back(hctx);
            self.run_due_in_order(now, driver, on_run);
        }
        if self.runs.is_empty() {
            self.runs = runs;
        }
        if self.work_hint <= now {
            if self.requeue_work.take_due(now) {
                self.requeue(now, driver, on_run);
            }
            self.run_due_in_order(now, driver, on_run);
            for hctx in 0..self.hctxs.len() {
                self.run_if_due(now, hctx, driver, on_run);
            }
            let works = self.hctxs.iter().map(|h| h.run_work.at());
            self.work_hint = works
                .min()
                .unwrap_or(Nanos::MAX)
                .min(self.requeue_work.at());
            self.run_qos_timer(now);
            if self.throttle.is_some() {
                self.run_throttle(now, driver);
            }
            if self.zones.is_some() {
                self.run_zone_work(now, driver);
            }
        }
        self.run_timer(now);
    }

    /// As [`RequestQueue::process`], for the runs of one hardware context, because each CPU has its
    /// own kblockd worker.
    pub fn process_hctx<D: BlkDriver + ?Sized>(&mut self, now: Nanos, hctx: usize, driver: &mut D) {
        for asked in 0..self.runs.len() {
            self.run_hw_queue_async(now, self.runs[asked] as usize);
        }
        self.runs.clear();
        if self.requeue_work.take_due(now) {
            self.requeue(now, driver, &mut |_, _| ());
        }
        self.run_if_due(now, hctx, driver, &mut |_, _| ());
        self.run_timer(now);
    }

    /// The time at which kblockd next runs a hardware context.
    pub fn next_run(&self, hctx: usize) -> Nanos {
        if self.runs.contains(&(hctx as u16)) {
            return Nanos::ZERO;
        }
        self.hctxs[hctx].run_work.at().min(self.requeue_work.at())
    }

    /// Runs the timers of the rq_qos policies.
    fn run_qos_timer(&mut self, now: Nanos) {
        if let Some(qos) = &mut self.rq_qos {
            qos.timer(now, &mut self.woken);
            self.work_hint = self.work_hint.min(qos.next_timer());
        }
    }

    /// Handles a timer interrupt, in which timers that may run late also run if they have expired
    /// (`hrtimer_interrupt`).
    pub fn timer_interrupt(&mut self, now: Nanos) {
        if let Some(cost) = self.rq_qos.as_mut().and_then(|qos| qos.cost_mut()) {
            cost.expire(now, &mut self.woken);
        }
    }

    /// Runs the expired timers of the scheduler and of the rq_qos policies.
    pub fn run_timers(&mut self, now: Nanos) {
        self.run_qos_timer(now);
        self.run_timer(now);
    }

    /// Calls the scheduler if its timer has expired.
    fn run_timer(&mut self, now: Nanos) {
        if let Some((elevator, mut ctx)) = self.sched(now)
            && elevator.next_timer().is_some_and(|at| at <= now)
            && elevator.timer(&mut ctx)
        {
            self.run_hw_queues_async(now);
        }
    }

    /// Runs the hardware queues that the scheduler asked for and that are due, in the order in
    /// which it asked.
    fn run_due_in_order<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        driver: &mut D,
        on_run: &mut dyn FnMut(usize, CostCounts),
    ) {
        while let Some(&hctx) = self.run_order.front() {
            let work = self.hctxs[hctx as usize].run_work;
            if work.is_pending() && work.at() > now {
                return;
            }
            self.run_order.pop_front();
            self.run_if_due(now, hctx as usize, driver, on_run);
        }
    }

    #[inline]
    fn run_if_due<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        driver: &mut D,
        on_run: &mut dyn FnMut(usize, CostCounts),
    ) {
        if self.hctxs[hctx].run_work.take_due(now) {
            self.run_in_kblockd(now, hctx, driver, on_run);
        }
    }

    #[inline(never)]
    fn run_in_kblockd<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        driver: &mut D,
        on_run: &mut dyn FnMut(usize, CostCounts),
    ) {
        if driver.would_sleep() && self.suspended.iter().any(|s| s.hctx == hctx) {
            // kblockd sleeps in the driver, and a work item never runs twice at the same time.
            self.hctxs[hctx].run_again = true;
            return;
        }
        let before = self.cost_counts;
        self.dispatch_requests(now, hctx, driver);
        on_run(hctx, self.cost_counts.since(&before));
    }

    /// Continues the run of the thread that slept in the driver with this request.
    pub fn driver_unblocked<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        id: RequestId,
        driver: &mut D,
    ) {
        let Some(at) = self.suspended.iter().position(|s| s.rq == id) else {
            return;
        };
        let Suspended { batch, hctx, .. } = self.suspended.remove(at);
        let then = batch.then;
        let run = self.issue_batch(now, batch, hctx, driver);
        let again = match (run, then) {
            (ListOutcome::Suspended, _) => return,
            (ListOutcome::Stopped, _) | (_, Continue::Return) => Ok(()),
            (_, Continue::Scheduler) => self.dispatch_sched(now, hctx, driver),
            (_, Continue::Contexts) => self.dispatch_ctxs(now, hctx, driver),
        };
        if core::mem::take(&mut self.hctxs[hctx].run_again) || again.is_err() {
            self.run_hw_queue_async(now, hctx);
        }
    }

    /// Continues a run that was paused for other CPUs.
    pub fn resume_run<D: BlkDriver + ?Sized>(&mut self, now: Nanos, name: u64, driver: &mut D) {
        let Some(at) = self.paused.iter().position(|p| p.name == name) else {
            return;
        };
        let Paused { taking, step, .. } = self.paused.remove(at);
        let hctx = taking.hctx;
        let run = self.take_requests(now, taking, step, driver);
        let again = match run {
            Ok(ListOutcome::Dispatched) if !self.should_yield(now, hctx, driver) => {
                self.dispatch_sched(now, hctx, driver)
            }
            Ok(_) => Ok(()),
            Err(Again) => Err(Again),
        };
        if again.is_err() {
            self.run_hw_queue_async(now, hctx);
        }
    }

    /// Runs a hardware queue in the caller's thread, or in kblockd if the thread would sleep in the
    /// driver.
    #[inline]
    pub(crate) fn run_hw_queue<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        driver: &mut D,
    ) {
        if driver.would_sleep() {
            return self.run_hw_queue_async(now, hctx);
        }
        if self.needs_run(hctx) {
            self.dispatch_requests(now, hctx, driver);
        }
    }

    /// Runs the hardware queue after an insert, in the caller's thread or in kblockd as
    /// `runs_inline` says.
    #[inline]
    pub(crate) fn run_after_insert<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        driver: &mut D,
    ) {
        match self.runs_inline {
            true => self.run_hw_queue(now, hctx, driver),
            false => self.run_hw_queue_async(now, hctx),
        }
    }

    /// Schedules a run of a hardware queue in kblockd.
    #[inline]
    pub(crate) fn run_hw_queue_async(&mut self, now: Nanos, hctx: usize) {
        self.wake_kblockd(now, hctx, 0);
    }

    /// Schedules a run in kblockd, to be woken after `after` other workers. A run that is already
    /// scheduled is not moved to a later time.
    #[inline]
    fn wake_kblockd(&mut self, now: Nanos, hctx: usize, after: u64) {
        if self.needs_run(hctx) {
            let delay = self.kblockd.after + Nanos(self.kblockd.wake.0 * (after + 1));
            let on_its_way = self.hctxs[hctx].run_work.at().saturating_sub(now);
            self.delay_run(now, hctx, delay.min(on_its_way));
        }
    }

    /// Schedules runs of all hardware queues in kblockd. If one scheduler state serves all, only
    /// the first and those with a dispatch list are run.
    pub(crate) fn run_hw_queues_async(&mut self, now: Nanos) {
        let single = self
            .elevator
            .as_deref()
            .is_some_and(|e| e.is_single_queue());
        for hctx in 0..self.hctxs.len() {
            if !single || hctx == 0 || !self.hctxs[hctx].dispatch.is_empty() {
                self.run_hw_queue_async(now, hctx);
            }
        }
    }

    #[inline]
    fn needs_run(&self, hctx: usize) -> bool {
        let h = &self.hctxs[hctx];
        !h.dispatch.is_empty()
            || h.any_ctx_pending()
            || self.elevator.as_deref().is_some_and(|e| e.has_work(hctx))
    }

    fn delay_run(&mut self, now: Nanos, hctx: usize, delay: Nanos) {
        if self.hctxs[hctx].stopped {
            return;
        }
        let at = now + delay;
        self.hctxs[hctx].run_work.schedule(at);
        self.work_hint = self.work_hint.min(at);
    }

    /// Schedules runs of all hardware queues after `delay`; earlier schedules stay as they are.
    fn delay_run_all(&mut self, now: Nanos, this: usize, delay: Nanos) {
        let single = self
            .elevator
            .as_deref()
            .is_some_and(|e| e.is_single_queue());
        for hctx in 0..self.hctxs.len() {
            let h = &self.hctxs[hctx];
            let wanted = !single || hctx == this || !h.dispatch.is_empty();
            if wanted && !h.run_work.is_pending() {
                self.delay_run(now, hctx, delay);
            }
        }
    }

    /// Has kblockd insert the requeued requests (`blk_mq_kick_requeue_list`).
    pub(crate) fn kick_requeue_list(&mut self, now: Nanos) {
        let at = now + self.kblockd.after + self.kblockd.wake;
        self.requeue_work.schedule(at.min(self.requeue_work.at()));
        self.work_hint = self.work_hint.min(at);
    }

    /// Inserts requeued requests (`blk_mq_requeue_work`): data of flush sequences and returned
    /// requests go to the head, flushes bypass the scheduler.
    fn requeue<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        driver: &mut D,
        on_run: &mut dyn FnMut(usize, CostCounts),
    ) {
        let mut before = self.cost_counts;
        let mut requests = core::mem::take(&mut self.requeue_list);
        let mut flushes = core::mem::take(&mut self.flush_list);
        while let Some(id) = requests.pop_front(&mut self.rqs) {
            if self.rqs[id].rq_flags.has(RqFlags::DONTPREP) {
                self.bypass_insert(id, InsertAt::Tail);
            } else {
                self.insert_request(now, id, InsertAt::Head);
            }
        }
        while let Some(id) = flushes.pop_front(&mut self.rqs) {
            self.insert_request(now, id, InsertAt::Tail);
        }
        for hctx in 0..self.hctxs.len() {
            self.run_hw_queue(now, hctx, driver);
            let steps = self.cost_counts.since(&before);
            if steps != CostCounts::default() {
                on_run(hctx, steps);
            }
            before = self.cost_counts;
        }
    }

    /// Runs all hardware queues that have work, in the caller's thread (`blk_mq_run_hw_queues`).
    pub fn run_hw_queues<D: BlkDriver + ?Sized>(&mut self, now: Nanos, driver: &mut D) {
        for hctx in 0..self.hctxs.len() {
            self.run_hw_queue(now, hctx, driver);
        }
    }

    /// Dispatches at most twice, then leaves the rest to kblockd
    /// (`blk_mq_sched_dispatch_requests`).
    fn dispatch_requests<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        driver: &mut D,
    ) {
        if self.hctxs[hctx].stopped {
            return;
        }
        self.hctxs[hctx].stats.run += 1;
        self.last_run = hctx;
        if self.dispatch_once(now, hctx, driver).is_err()
            && self.dispatch_once(now, hctx, driver).is_err()
        {
            self.run_hw_queue_async(now, hctx);
        }
    }

    /// The dispatch list is issued first. The scheduler is asked only when the list is empty, so
    /// that requests stay in the scheduler, where they can be merged and sorted, while the driver
    /// is busy.
    fn dispatch_once<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        driver: &mut D,
    ) -> Result<(), Again> {
        let has_sched = self.elevator.is_some();
        let then = if has_sched {
            Continue::Scheduler
        } else {
            Continue::Contexts
        };
        let list = core::mem::take(&mut self.hctxs[hctx].dispatch);
        let one_by_one = if list.is_empty() {
            self.hctxs[hctx].dispatch_busy > 0
        } else {
            self.hctxs[hctx].restart = true;
            let batch = Batch::new(hctx, list, 0, then);
            if self.dispatch_rq_list(now, batch, hctx, driver) != ListOutcome::Dispatched {
                return Ok(());
            }
            true
        };
        if has_sched {
            return self.dispatch_sched(now, hctx, driver);
        }
        if one_by_one {
            return self.dispatch_ctxs(now, hctx, driver);
        }
        let list = self.flush_busy_ctxs(hctx);
        let batch = Batch::new(hctx, list, 0, Continue::Return);
        self.dispatch_rq_list(now, batch, hctx, driver);
        Ok(())
    }

    /// Handles completions that arrive during a run; they may free the tag that the next request
    /// needs. Returns the number of the run if it must pause for other CPUs.
    #[inline]
    pub(crate) fn take_interrupts<D: BlkDriver + ?Sized>(
        &mut self,
        point: RunPoint,
        driver: &mut D,
    ) -> Option<u64> {
        loop {
            match driver.interrupt(point)? {
                Interruption::Completion(id, status, at) => self.complete(at, id, status, driver),
                Interruption::OtherCpus(name) => return Some(name),
            }
        }
    }

    fn flush_busy_ctxs(&mut self, hctx: usize) -> RqList {
        let mut list = RqList::new();
        while let Some(place) = self.hctxs[hctx].next_pending(0) {
            let cpu = self.hctxs[hctx].ctxs[place] as usize;
            list.append(&mut self.rqs, &mut self.ctxs[cpu]);
            self.hctxs[hctx].clear_pending(place);
        }
        list
    }

    /// Dispatches from the scheduler while whole batches are taken (`blk_mq_do_dispatch_sched`).
    fn dispatch_sched<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        driver: &mut D,
    ) -> Result<(), Again> {
        while self.dispatch_sched_batch(now, hctx, driver)? == ListOutcome::Dispatched {
            if self.should_yield(now, hctx, driver) {
                break;
            }
        }
        Ok(())
    }

    /// Whether the thread yields its CPU to another; kblockd then continues the run.
    fn should_yield<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        driver: &mut D,
    ) -> bool {
        let should_yield = driver.need_resched();
        if should_yield {
            self.delay_run(now, hctx, Nanos::ZERO);
        }
        should_yield
    }

    /// Takes requests until the scheduler has no more or there is no driver tag, then issues them
    /// (`__blk_mq_do_dispatch_sched`). The request without a tag stays in the list and goes first
    /// next time. While the driver is busy, requests are taken one at a time.
    fn dispatch_sched_batch<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        driver: &mut D,
    ) -> Result<ListOutcome, Again> {
        let taking = Taking {
            hctx,
            list: RqList::new(),
            max: 1,
            multi_hctxs: false,
        };
        self.take_requests(now, taking, DispatchStage::Ask, driver)
    }

    /// Takes requests from the scheduler, beginning at this step.
    #[inline]
    fn take_requests<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        mut taking: Taking,
        mut step: DispatchStage,
        driver: &mut D,
    ) -> Result<ListOutcome, Again> {
        let hctx = taking.hctx;
        let (mut busy, mut none_dispatched) = (false, false);
        loop {
            let point = match step {
                DispatchStage::Ask => RunPoint::Ask,
                DispatchStage::Choose => RunPoint::Choose,
                DispatchStage::Tag => RunPoint::Tag,
            };
            if let Some(name) = self.take_interrupts(point, driver) {
                self.paused.push(Paused { name, taking, step });
                return Ok(ListOutcome::Suspended);
            }
            step = match step {
                DispatchStage::Ask => {
                    if !self.elevator.as_deref().is_some_and(|e| e.has_work(hctx)) {
                        break;
                    }
                    if !self.hctxs[hctx].dispatch.is_empty() {
                        busy = true;
                        break;
                    }
                    if !self.get_budget(driver) {
                        break;
                    }
                    if taking.list.is_empty() {
                        taking.max = self.batch_limit(hctx, driver);
                    }
                    let busy = self.hctxs[hctx].dispatch_busy;
                    self.trace.mark(now, TraceKind::Ask(busy));
                    DispatchStage::Choose
                }
                DispatchStage::Choose => {
                    let Some(id) = self.ask_scheduler(now, hctx) else {
                        driver.put_budget();
                        none_dispatched = true;
                        break;
                    };
                    self.rqs[id].rq_flags.set(RqFlags::BUDGET);
                    taking.multi_hctxs |= self.rqs[id].hctx as usize != hctx;
                    taking.list.push_back(&mut self.rqs, id);
                    DispatchStage::Tag
                }
                DispatchStage::Tag => {
                    let tagged = taking.list.back().is_some_and(|id| self.get_driver_tag(id));
                    if !tagged || taking.list.len() >= taking.max {
                        break;
                    }
                    DispatchStage::Ask
                }
            };
        }
        let list = taking.list;
        let run = if list.is_empty() {
            if none_dispatched {
                self.delay_run_all(now, hctx, RESOURCE_DELAY);
            }
            ListOutcome::Stopped
        } else {
            let mut batch = Batch::new(hctx, list, list.len(), Continue::Scheduler);
            if taking.multi_hctxs {
                batch = self.next_hctx_of(batch);
            }
            self.dispatch_rq_list(now, batch, hctx, driver)
        };
        if busy { Err(Again) } else { Ok(run) }
    }

    /// The most requests to take before the first is given to the driver.
    fn batch_limit<D: BlkDriver + ?Sized>(&mut self, hctx: usize, driver: &mut D) -> u32 {
        let h = &mut self.hctxs[hctx];
        h.dispatch_busy = driver.dispatch_busy(h.dispatch_busy);
        match h.dispatch_busy {
            0 => self.nr_requests,
            _ => 1,
        }
    }

    fn ask_scheduler(&mut self, now: Nanos, hctx: usize) -> Option<RequestId> {
        let (elevator, mut ctx) = self.sched(now)?;
        let id = take_request(elevator, &mut ctx, hctx);
        self.cost_counts.dispatch_calls += 1;
        match id {
            Some(id) => self.trace.request(now, TraceKind::Dispatch, &self.rqs, id),
            None => self.trace.mark(now, TraceKind::DispatchNone),
        }
        id
    }

    /// Moves the requests of the lowest-numbered hardware context to the batch's list; the others
    /// follow in later rounds. A scheduler that serves all hardware contexts may return requests of
    /// several.
    fn next_hctx_of(&mut self, mut batch: Batch) -> Batch {
        let mut all = core::mem::take(&mut batch.list);
        all.append(&mut self.rqs, &mut batch.others);
        let hctxs = all.iter(&self.rqs).map(|id| self.rqs[id].hctx);
        let hctx = hctxs.min().unwrap_or_default();
        let (mut own, mut others) = (RqList::new(), RqList::new());
        while let Some(id) = all.pop_front(&mut self.rqs) {
            let mine = self.rqs[id].hctx == hctx;
            let to = if mine { &mut own } else { &mut others };
            to.push_back(&mut self.rqs, id);
        }
        Batch {
            others,
            dispatched: batch.dispatched,
            ..Batch::new(hctx as usize, own, own.len(), batch.then)
        }
    }

    /// Dispatches one request of each software queue in turn (`blk_mq_do_dispatch_ctx`).
    fn dispatch_ctxs<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        driver: &mut D,
    ) -> Result<(), Again> {
        loop {
            if !self.hctxs[hctx].dispatch.is_empty() {
                return Err(Again);
            }
            let from = self.hctxs[hctx].dispatch_from;
            let Some(place) = self.hctxs[hctx].next_pending(from) else {
                return Ok(());
            };
            if !self.get_budget(driver) {
                return Ok(());
            }
            let Some(id) = self.dequeue_from_ctx(hctx, place) else {
                driver.put_budget();
                self.delay_run_all(now, hctx, RESOURCE_DELAY);
                return Ok(());
            };
            self.rqs[id].rq_flags.set(RqFlags::BUDGET);
            self.hctxs[hctx].dispatch_from = (place + 1) % self.hctxs[hctx].ctxs.len();
            let mut list = RqList::new();
            list.push_back(&mut self.rqs, id);
            let batch = Batch::new(hctx, list, 1, Continue::Contexts);
            if self.dispatch_rq_list(now, batch, hctx, driver) != ListOutcome::Dispatched {
                return Ok(());
            }
        }
    }

    fn dequeue_from_ctx(&mut self, hctx: usize, place: usize) -> Option<RequestId> {
        let cpu = self.hctxs[hctx].ctxs[place] as usize;
        let id = self.ctxs[cpu].pop_front(&mut self.rqs);
        if self.ctxs[cpu].is_empty() {
            self.hctxs[hctx].clear_pending(place);
        }
        id
    }

    /// Issues a batch, unless it is empty (`blk_mq_dispatch_rq_list`).
    fn dispatch_rq_list<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        batch: Batch,
        runs: usize,
        driver: &mut D,
    ) -> ListOutcome {
        if batch.list.is_empty() {
            return ListOutcome::Stopped;
        }
        self.issue_batch(now, batch, runs, driver)
    }

    /// Gives the batch to the driver, then the requests of other hardware contexts; `runs` is the
    /// hardware context that is being run.
    fn issue_batch<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        mut batch: Batch,
        runs: usize,
        driver: &mut D,
    ) -> ListOutcome {
        loop {
            let (others, dispatched) = (batch.others, batch.dispatched);
            let then = batch.then;
            let run = self.issue_list(now, batch, runs, driver);
            if run == ListOutcome::Suspended {
                return run;
            }
            let dispatched = dispatched || run == ListOutcome::Dispatched;
            if others.is_empty() {
                return if dispatched {
                    ListOutcome::Dispatched
                } else {
                    ListOutcome::Stopped
                };
            }
            batch = self.next_hctx_of(Batch {
                dispatched,
                ..Batch::new(runs, others, others.len(), then)
            });
        }
    }

    /// Gives a list to the driver until it refuses one.
    fn issue_list<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        mut batch: Batch,
        runs: usize,
        driver: &mut D,
    ) -> ListOutcome {
        let mut error = None;
        while let Some(id) = batch.list.front() {
            let _ = self.take_interrupts(RunPoint::Issue, driver);
            if let Err(why) = self.prepare(id, batch.budgets == 0, driver) {
                error = Some(why);
                break;
            }
            batch.list.remove(&mut self.rqs, id);
            batch.budgets = batch.budgets.saturating_sub(1);
            let last = batch.list.is_empty();
            match self.queue_rq(now, id, last, driver) {
                BlkStatus::Ok => batch.queued += 1,
                BlkStatus::OkBlocking => {
                    batch.queued += 1;
                    let hctx = runs;
                    self.suspended.push(Suspended {
                        rq: id,
                        hctx,
                        batch,
                    });
                    return ListOutcome::Suspended;
                }
                status @ (BlkStatus::Resource | BlkStatus::DevResource) => {
                    batch.needs_resource |= status == BlkStatus::Resource;
                    batch.failed = true;
                    self.requeued_by_driver(now, id, driver);
                    batch.list.push_front(&mut self.rqs, id);
                    break;
                }
                BlkStatus::ZoneResource => {
                    // Its zone is busy, but requests for other zones can go on.
                    batch.needs_resource = true;
                    batch.failed = true;
                    self.requeued_by_driver(now, id, driver);
                    batch.zone_list.push_back(&mut self.rqs, id);
                }
                BlkStatus::Failed(error) => {
                    batch.failed = true;
                    self.put_budget(id, driver);
                    self.end_failed(now, id, error);
                }
            }
        }
        batch.list.append(&mut self.rqs, &mut batch.zone_list);
        self.hctxs[batch.hctx].count_dispatched(batch.queued);
        if (!batch.list.is_empty() || batch.failed) && batch.queued > 0 {
            driver.commit_rqs(now, batch.hctx);
        }
        if batch.list.is_empty() {
            self.hctxs[batch.hctx].update_busy(false);
            return ListOutcome::Dispatched;
        }
        batch.needs_resource |= error == Some(PrepareError::NoBudget);
        self.keep_for_next_run(now, batch, driver);
        ListOutcome::Stopped
    }

    /// Puts the requests that the driver did not take on the dispatch list. If the restart mark is
    /// set, the next completion runs the hardware queue again; otherwise a run is scheduled here.
    fn keep_for_next_run<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        mut batch: Batch,
        driver: &mut D,
    ) {
        let hctx = batch.hctx;
        let mut at = batch.list.front();
        while let Some(id) = at {
            at = batch.list.next(&self.rqs, id);
            self.put_budget(id, driver);
        }
        let mut list = core::mem::take(&mut batch.list);
        self.hctxs[hctx].dispatch.append(&mut self.rqs, &mut list);
        if !self.hctxs[hctx].restart {
            self.run_hw_queue_async(now, hctx);
        } else if batch.needs_resource {
            self.delay_run(now, hctx, RESOURCE_DELAY);
        }
        self.hctxs[hctx].update_busy(true);
    }

    /// Gets budget and a driver tag for a request (`blk_mq_prep_dispatch_rq`).
    fn prepare<D: BlkDriver + ?Sized>(
        &mut self,
        id: RequestId,
        need_budget: bool,
        driver: &mut D,
    ) -> Result<(), PrepareError> {
        if need_budget {
            if !self.get_budget(driver) {
                self.put_driver_tag(id);
                return Err(PrepareError::NoBudget);
            }
            self.rqs[id].rq_flags.set(RqFlags::BUDGET);
        }
        if self.get_driver_tag(id) {
            return Ok(());
        }
        // The next completion in this hardware context frees a tag and then restarts the queue.
        self.hctxs[self.rqs[id].hctx as usize].restart = true;
        if need_budget {
            self.put_budget(id, driver);
        }
        Err(PrepareError::NoTag)
    }

    #[inline(always)]
    pub(crate) fn get_driver_tag(&mut self, id: RequestId) -> bool {
        let rq = &mut self.rqs[id];
        if rq.tag.is_none() {
            // The kernel searches from where the dispatching CPU left off; without a depth limit
            // the starting point only changes the tag's number.
            let tag = self.hctxs[rq.hctx as usize].tags.get(rq.ctx as usize, None);
            rq.tag = tag.map(|tag| Tag::from_index(tag as usize));
        }
        rq.tag.is_some()
    }

    pub(crate) fn put_driver_tag(&mut self, id: RequestId) {
        // Without a scheduler the driver tag stays with the request until it is freed.
        let rq = &mut self.rqs[id];
        if !rq.rq_flags.has(RqFlags::SCHED_TAGS) {
            return;
        }
        if let Some(tag) = rq.tag.take() {
            let cpu = rq.ctx as usize;
            self.hctxs[rq.hctx as usize]
                .tags
                .put(cpu, tag.index() as u32);
        }
    }

    #[inline]
    pub(crate) fn get_budget<D: BlkDriver + ?Sized>(&mut self, driver: &mut D) -> bool {
        let had = driver.get_budget();
        self.budget_wanted |= !had;
        had
    }

    #[inline]
    pub(crate) fn put_budget<D: BlkDriver + ?Sized>(&mut self, id: RequestId, driver: &mut D) {
        if self.rqs[id].rq_flags.has(RqFlags::BUDGET) {
            self.rqs[id].rq_flags.clear(RqFlags::BUDGET);
            driver.put_budget();
        }
    }

    /// Gives a request to the driver.
    #[inline(always)]
    pub(crate) fn queue_rq<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        id: RequestId,
        last: bool,
        driver: &mut D,
    ) -> BlkStatus {
        let rq = &mut self.rqs[id];
        rq.io_start = now;
        let status = driver.queue_rq(now, rq.hctx as usize, id, rq, last);
        if matches!(status, BlkStatus::Ok | BlkStatus::OkBlocking) {
            rq.rq_flags.set(RqFlags::IN_FLIGHT);
            if let Some(qos) = &mut self.rq_qos {
                qos.issue(now, rq);
            }
            let further_pages = rq.sectors.saturating_sub(1) / SECTORS_PER_PAGE;
            self.cost_counts.issues += 1;
            self.cost_counts.multi_page_issues += u64::from(further_pages > 0);
            self.cost_counts.further_pages += u64::from(further_pages);
            let hctx = rq.hctx as usize;
            if self.elevator.is_some() && hctx != self.last_run {
                let is_far = self.sockets.get(hctx) != self.sockets.get(self.last_run);
                self.cost_counts.foreign_issues += 1;
                self.cost_counts.far_issues += u64::from(is_far);
            }
            self.trace.request(now, TraceKind::RqIssue, &self.rqs, id);
        }
        status
    }

    /// Takes back a request that the driver refused (`__blk_mq_requeue_request`).
    pub(crate) fn requeued_by_driver<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        id: RequestId,
        driver: &mut D,
    ) {
        self.put_driver_tag(id);
        self.put_budget(id, driver);
        if let Some(qos) = &mut self.rq_qos {
            qos.requeue(&self.rqs[id]);
        }
        self.counters.requeues += 1;
        self.trace.request(now, TraceKind::RqRequeue, &self.rqs, id);
    }
}
