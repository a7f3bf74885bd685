//! A scheduler whose hooks are methods of a Python class. It is checked that it dispatches
//! only requests that it has, each of them once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blklab_blk::{
    Bio, Elevator, ElevatorQueue, InsertAt, IoClass, IoPrio, MergeKind, Nanos, Op, QueueInfo,
    RequestId, RqList, SchedCtx, SubmitterId, Tunable, TunableError, Unit, elv_bio_merge_ok,
    sched_try_insert_merge,
};
use blklab_elevator::{ElevatorType, StepCosts};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// A scheduler that has requests and dispatches none for this long counts as hung, because
/// the block layer would call it forever. The kernel gives a drive as long for a request
/// (`rq_timeout`'s default).
const PATIENCE: Nanos = Nanos(30_000_000_000);

/// The names of the classes that were registered.
static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

fn names() -> MutexGuard<'static, Vec<&'static str>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there are schedulers in Python that a sweep may name.
pub(crate) fn are_there() -> bool {
    !names().is_empty()
}

/// Whether a call with these words may run a scheduler in Python. `all` may stand for it.
pub(crate) fn may_be_run_by<'a>(mut words: impl Iterator<Item = &'a str>) -> bool {
    let names = names();
    let is_named = |word: &str| word.contains("all") || names.iter().any(|n| word.contains(n));
    !names.is_empty() && words.any(is_named)
}

/// Whether a call runs schedulers in Python: one at a time does, so that a failure is that
/// call's.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The turn of the one call that may run schedulers in Python.
pub(crate) struct Turn(());

impl Turn {
    /// Waits until no other call has it, looking for signals every `interval`.
    pub(crate) fn take(py: Python<'_>, interval: Duration) -> PyResult<Turn> {
        while IS_TAKEN.swap(true, Ordering::AcqRel) {
            py.detach(|| std::thread::sleep(interval));
            py.check_signals()?;
        }
        drop(failed().take());
        Ok(Turn(()))
    }

    /// Whether a scheduler of this call has failed.
    pub(crate) fn has_failed(&self) -> bool {
        has_failed()
    }

    /// Removes and returns the failure.
    pub(crate) fn take_failure(&self) -> Option<PyErr> {
        failed().take()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        IS_TAKEN.store(false, Ordering::Release);
    }
}

/// The exception of a hook or of a failed check, which ends the run.
static FAILURE: Mutex<Option<PyErr>> = Mutex::new(None);

fn failed() -> MutexGuard<'static, Option<PyErr>> {
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fail(error: PyErr) {
    failed().get_or_insert(error);
}

fn has_failed() -> bool {
    failed().is_some()
}

/// A request as a scheduler in Python sees it. A scheduler may add attributes to it.
#[pyclass(name = "Request", module = "blklab", dict)]
pub struct PyRequest {
    /// Its number on its queue, which is never reused.
    #[pyo3(get)]
    number: u64,
    /// read, write, discard or flush.
    #[pyo3(get)]
    operation: &'static str,
    /// The first sector; a front merge changes it.
    #[pyo3(get)]
    sector: u64,
    /// The number of sectors; merges increase it.
    #[pyo3(get)]
    sectors: u32,
    /// Whether a process waits for it.
    #[pyo3(get)]
    is_sync: bool,
    /// The process that submitted it.
    #[pyo3(get)]
    process: u32,
    /// The control group of the process; 0 for the root.
    #[pyo3(get)]
    cgroup: u16,
    /// The class of its I/O priority: none, realtime, best-effort or idle.
    #[pyo3(get)]
    priority_class: &'static str,
    /// The level within the class, from 0, the highest, to 7.
    #[pyo3(get)]
    priority_level: u8,
    /// The CPU whose software queue it belongs to.
    #[pyo3(get)]
    cpu: u16,
    /// The hardware context that it belongs to.
    #[pyo3(get)]
    hctx: u16,
    /// The time at which it was allocated, in nanoseconds.
    #[pyo3(get)]
    start_ns: u64,
    place: RequestId,
}

#[pymethods]
impl PyRequest {
    /// The sector after its last one.
    #[getter]
    fn end(&self) -> u64 {
        self.sector + u64::from(self.sectors)
    }

    /// Whether schedulers treat it as a write.
    #[getter]
    fn is_write(&self) -> bool {
        self.operation != "read"
    }

    fn __repr__(&self) -> String {
        let PyRequest {
            number,
            operation,
            sector,
            sectors,
            ..
        } = self;
        format!("<blklab.Request {number}: {operation} of {sectors} sectors at {sector}>")
    }
}

/// A bio that may become part of a request, as a scheduler in Python sees it.
#[pyclass(name = "Bio", module = "blklab", frozen, get_all)]
pub struct PyBio {
    /// read, write, discard or flush.
    operation: &'static str,
    /// The first sector.
    sector: u64,
    /// The number of sectors.
    sectors: u32,
    /// The process that submitted it.
    process: u32,
    /// The control group of the process; 0 for the root.
    cgroup: u16,
    /// The class of its I/O priority: none, realtime, best-effort or idle.
    priority_class: &'static str,
    /// The level within the class, from 0, the highest, to 7.
    priority_level: u8,
}

#[pymethods]
impl PyBio {
    /// The sector after its last one.
    #[getter]
    fn end(&self) -> u64 {
        self.sector + u64::from(self.sectors)
    }

    /// Whether schedulers treat it as a write.
    #[getter]
    fn is_write(&self) -> bool {
        self.operation != "read"
    }
}

impl From<&Bio> for PyBio {
    fn from(bio: &Bio) -> PyBio {
        PyBio {
            operation: operation_of(bio.op),
            sector: bio.sector.0,
            sectors: bio.sectors,
            process: bio.submitter.0,
            cgroup: bio.cgroup.0,
            priority_class: class_of(bio.prio),
            priority_level: bio.prio.level,
        }
    }
}

fn operation_of(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write | Op::WriteZeroes | Op::Zone(_) => "write",
        Op::Discard => "discard",
        Op::Flush => "flush",
    }
}

fn class_of(priority: IoPrio) -> &'static str {
    match priority.class {
        IoClass::None => "none",
        IoClass::Rt => "realtime",
        IoClass::Be => "best-effort",
        IoClass::Idle => "idle",
    }
}

/// The properties of a queue, passed to its scheduler.
#[pyclass(module = "blklab", frozen, get_all)]
pub struct Queue {
    /// The number of scheduler tags of a hardware context.
    nr_requests: u32,
    /// The number of hardware contexts.
    nr_hw_queues: u32,
    /// The number of driver tags of a hardware context.
    queue_depth: u32,
    /// The number of software queues.
    nr_cpus: u32,
    /// The size of the drive in sectors.
    capacity_sectors: u64,
    /// Whether the drive is rotational.
    rotational: bool,
}

impl From<&QueueInfo> for Queue {
    fn from(info: &QueueInfo) -> Queue {
        Queue {
            nr_requests: info.nr_requests,
            nr_hw_queues: info.nr_hw_queues,
            queue_depth: info.queue_depth,
            nr_cpus: info.nr_cpus,
            capacity_sectors: info.capacity_sectors,
            rotational: info.rotational,
        }
    }
}

/// Registers a Python class as a scheduler, with the name, default, range and help of each of
/// its tunables. Its CPU costs are those of mq-deadline.
#[pyfunction]
pub fn register(
    name: String,
    class: Py<PyAny>,
    tunables: Vec<(String, i64, i64, i64, String)>,
) -> PyResult<()> {
    let known: &'static str = name.leak();
    let tunables = tunables.into_iter().map(|(name, default, min, max, help)| {
        Tunable::new(name.leak(), Unit::Count, (min, max), default, help.leak())
    });
    let tunables: &'static [Tunable] = tunables.collect::<Vec<Tunable>>().leak();
    let build = move |info: &QueueInfo| -> Box<dyn Elevator> {
        Box::new(PythonScheduler::new((known, tunables), &class, info))
    };
    let kind = ElevatorType {
        name: known,
        help: "a scheduler in Python",
        source: "a Python class",
        tunables,
        attributes: &[],
        costs: Some(StepCosts::OF_MQ_DEADLINE),
        build: Some(Box::leak(Box::new(build))),
    };
    blklab_elevator::register(kind).map_err(PyRuntimeError::new_err)?;
    let mut names = names();
    if !names.contains(&known) {
        names.push(known);
    }
    Ok(())
}

/// A scheduler in Python on a queue.
struct PythonScheduler {
    queue: ElevatorQueue,
    /// The scheduler's object; `None` if its constructor failed.
    object: Option<Py<PyAny>>,
    /// The requests that Python has seen and that are not freed, each with whether it is queued.
    requests: BTreeMap<usize, (Py<PyRequest>, bool)>,
    /// The number of queued requests.
    queued: usize,
    /// The time since which it has not dispatched any of them.
    holds_back_since: Option<Nanos>,
    hooks: Hooks,
    next_timer: Option<Nanos>,
}

/// The optional hooks that a class has; the others are not called, to save the call.
#[derive(Clone, Copy, Default)]
struct Hooks {
    depth_updated: bool,
    allow_merge: bool,
    request_merge: bool,
    request_merged: bool,
    former_request: bool,
    next_request: bool,
    prepare_request: bool,
    insert_at_head: bool,
    completed_request: bool,
    requeue_request: bool,
    finish_request: bool,
    limit_depth: bool,
    exit_process: bool,
    timer: bool,
}

impl Hooks {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Hooks> {
        let base = object.py().import("blklab")?.getattr("Scheduler")?;
        let class = object.get_type();
        let has =
            |name: &str| -> PyResult<bool> { Ok(!class.getattr(name)?.is(&base.getattr(name)?)) };
        Ok(Hooks {
            depth_updated: has("depth_updated")?,
            allow_merge: has("allow_merge")?,
            request_merge: has("request_merge")?,
            request_merged: has("request_merged")?,
            former_request: has("former_request")?,
            next_request: has("next_request")?,
            prepare_request: has("prepare_request")?,
            insert_at_head: has("insert_at_head")?,
            completed_request: has("completed_request")?,
            requeue_request: has("requeue_request")?,
            finish_request: has("finish_request")?,
            limit_depth: has("limit_depth")?,
            exit_process: has("exit_process")?,
            timer: has("timer")?,
        })
    }
}

impl PythonScheduler {
    fn new(
        (name, tunables): (&'static str, &'static [Tunable]),
        class: &Py<PyAny>,
        info: &QueueInfo,
    ) -> PythonScheduler {
        let made = Python::attach(|py| {
            let object = class.call1(py, (Queue::from(info),))?;
            let hooks = Hooks::of(object.bind(py))?;
            PyResult::Ok((object, hooks))
        });
        let (object, hooks) = made.map_err(fail).ok().unzip();
        PythonScheduler {
            queue: ElevatorQueue::new(name, tunables),
            object,
            requests: BTreeMap::new(),
            queued: 0,
            holds_back_since: None,
            hooks: hooks.unwrap_or_default(),
            next_timer: None,
        }
    }

    /// Calls a hook in Python unless something has failed, then reads the next timer.
    fn hook<T>(
        &mut self,
        call: impl FnOnce(&mut PythonScheduler, Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Option<T> {
        if has_failed() {
            return None;
        }
        let called = Python::attach(|py| {
            let object = match &self.object {
                None => return Ok(None),
                Some(object) => object.bind(py).clone(),
            };
            let answer = call(self, py, &object)?;
            if self.hooks.timer {
                let next_ns: Option<u64> = object.getattr("next_timer_ns")?.extract()?;
                self.next_timer = next_ns.map(Nanos);
            }
            PyResult::Ok(Some(answer))
        });
        called.map_err(fail).ok().flatten()
    }

    /// Calls a hook without a result for a request, if Python has the request.
    fn tell(&mut self, ctx: &SchedCtx<'_>, hook: &str, id: RequestId) {
        let now_ns = ctx.now.0;
        self.hook(|own, py, object| match own.requests.get(&id.index()) {
            None => Ok(()),
            Some((request, _)) => {
                let request = request.clone_ref(py);
                object.call_method1(hook, (request, now_ns)).map(drop)
            }
        });
    }

    fn is_queued(&self, id: RequestId) -> bool {
        self.requests
            .get(&id.index())
            .is_some_and(|(_, queued)| *queued)
    }

    /// Removes a request from the queued ones.
    fn take_out(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if let Some((_, queued)) = self.requests.get_mut(&id.index())
            && std::mem::take(queued)
        {
            self.queued -= 1;
            ctx.merge.remove(ctx.rqs, id);
        }
    }

    /// Shows Python a request that it has not seen, or what has changed of one that it has.
    fn show(&mut self, ctx: &SchedCtx<'_>, id: RequestId) -> bool {
        let rq = &ctx.rqs[id];
        if let Some((request, _)) = self.requests.get(&id.index()) {
            Python::attach(|py| {
                let mut request = request.borrow_mut(py);
                (request.sector, request.sectors) = (rq.sector.0, rq.sectors);
            });
            return true;
        }
        let request = PyRequest {
            number: rq.serial,
            operation: operation_of(rq.op),
            cgroup: rq.cgroup.0,
            priority_class: class_of(rq.prio),
            priority_level: rq.prio.level,
            cpu: rq.ctx,
            hctx: rq.hctx,
            sector: rq.sector.0,
            sectors: rq.sectors,
            is_sync: rq.is_sync(),
            process: rq.submitter.0,
            start_ns: rq.start.0,
            place: id,
        };
        match Python::attach(|py| Py::new(py, request)) {
            Ok(request) => {
                self.requests.insert(id.index(), (request, false));
                true
            }
            Err(error) => {
                fail(error);
                false
            }
        }
    }

    /// Shows Python, if it has the request, what a merge has made of it.
    fn has_grown(&mut self, ctx: &SchedCtx<'_>, id: RequestId) {
        if self.requests.contains_key(&id.index()) {
            self.show(ctx, id);
        }
    }

    /// Queues a request.
    fn add(&mut self, ctx: &SchedCtx<'_>, id: RequestId) -> bool {
        if !self.show(ctx, id) {
            return false;
        }
        if let Some((_, queued)) = self.requests.get_mut(&id.index()) {
            *queued = true;
            self.queued += 1;
        }
        true
    }

    /// Has Python take in requests, by the hook of this name.
    fn give(&mut self, ctx: &SchedCtx<'_>, hook: &str, ids: &[RequestId]) {
        if ids.is_empty() {
            return;
        }
        let now_ns = ctx.now.0;
        self.hook(|own, py, object| {
            let ids = ids.iter().filter_map(|id| own.requests.get(&id.index()));
            let given: Vec<Py<PyRequest>> = ids.map(|(request, _)| request.clone_ref(py)).collect();
            object.call_method1(hook, (given, now_ns)).map(drop)
        });
    }

    /// Asks Python for a queued request; `question` calls the hook, which is for `doing`
    /// something with the request.
    fn ask(
        &mut self,
        doing: &str,
        question: impl for<'py> FnOnce(
            &PythonScheduler,
            Python<'py>,
            &Bound<'py, PyAny>,
        ) -> PyResult<Option<Bound<'py, PyAny>>>,
    ) -> Option<RequestId> {
        self.hook(|own, py, object| {
            let answer = question(own, py, object)?.filter(|answer| !answer.is_none());
            let Some(answer) = answer else {
                return Ok(None);
            };
            let request = answer.cast::<PyRequest>()?;
            own.chosen(doing, &request.borrow()).map(Some)
        })?
    }

    /// Asks Python for the neighbour of a request, by the hook of this name.
    fn neighbour(&mut self, hook: &str, id: RequestId) -> Option<RequestId> {
        self.ask("merges", |own, py, object| {
            match own.requests.get(&id.index()) {
                None => Ok(None),
                Some((request, _)) => {
                    let request = request.clone_ref(py);
                    object.call_method1(hook, (request,)).map(Some)
                }
            }
        })
    }

    /// Returns the request that Python chose by doing something, if it is queued.
    fn chosen(&self, doing: &str, request: &PyRequest) -> PyResult<RequestId> {
        let known = self.requests.get(&request.place.index());
        let same = Python::attach(|py| {
            known.is_some_and(|(own, queued)| *queued && own.borrow(py).number == request.number)
        });
        match same {
            true => Ok(request.place),
            false => Err(PyRuntimeError::new_err(format!(
                "{} {} {}, which it does not have: it was dispatched before, or merged into another",
                self.name(),
                doing,
                request.__repr__()
            ))),
        }
    }

    /// Fails the scheduler if it has dispatched none of its requests for too long, with none of
    /// its own under way, whose end it may wait for.
    fn hold_back(&mut self, now: Nanos) {
        if self.requests.len() > self.queued {
            self.holds_back_since = None;
            return;
        }
        let since = *self.holds_back_since.get_or_insert(now);
        if now.0 - since.0 < PATIENCE.0 {
            return;
        }
        fail(PyRuntimeError::new_err(format!(
            "{} has {} requests that it was given and has dispatched none of them for {} s",
            self.name(),
            self.queued,
            PATIENCE.0 / 1_000_000_000
        )));
    }

    /// After a failure dispatches any request, because the run must still end.
    fn any(&self) -> Option<RequestId> {
        let mut queued = self.requests.values().filter(|(_, queued)| *queued);
        let (first, _) = queued.next()?;
        Some(Python::attach(|py| first.borrow(py).place))
    }
}

impl Elevator for PythonScheduler {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    /// Python's object always has the queue as it is now.
    fn depth_updated(&mut self, info: &QueueInfo) {
        let queue = Queue::from(info);
        let is_told = self.hooks.depth_updated;
        self.hook(|_, py, object| {
            let queue = Py::new(py, queue)?;
            object.setattr("queue", queue.clone_ref(py))?;
            match is_told {
                true => object.call_method1("depth_updated", (queue,)).map(drop),
                false => Ok(()),
            }
        });
    }

    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.queue.tunables.set(name, value)?;
        self.hook(|_, _, object| object.call_method1("set_tunable", (name, value)).map(drop));
        Ok(())
    }

    fn allow_merge(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, bio: &Bio) -> bool {
        if !self.hooks.allow_merge {
            return true;
        }
        let now_ns = ctx.now.0;
        let allows = self.hook(|own, py, object| match own.requests.get(&id.index()) {
            None => Ok(true),
            Some((request, _)) => {
                let both = (request.clone_ref(py), PyBio::from(bio), now_ns);
                object.call_method1("allow_merge", both)?.extract()
            }
        });
        allows.unwrap_or(true)
    }

    fn request_merge(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        bio: &Bio,
    ) -> Option<(RequestId, MergeKind)> {
        if !self.hooks.request_merge {
            return None;
        }
        let now_ns = ctx.now.0;
        let id = self.ask("merges", |_, _, object| {
            let bio = (PyBio::from(bio), now_ns);
            object.call_method1("request_merge", bio).map(Some)
        })?;
        let begins = ctx.rqs[id].sector;
        if begins != bio.end() {
            fail(PyRuntimeError::new_err(format!(
                "{}: request_merge chose a request at sector {}, and the bio ends at {}",
                self.name(),
                begins.0,
                bio.end().0
            )));
            return None;
        }
        elv_bio_merge_ok(self, ctx, id, bio).then_some((id, MergeKind::Front))
    }

    fn former_request(&mut self, _ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let is_there = self.hooks.former_request;
        is_there.then(|| self.neighbour("former_request", id))?
    }

    fn next_request(&mut self, _ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let is_there = self.hooks.next_request;
        is_there.then(|| self.neighbour("next_request", id))?
    }

    fn prepare_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if self.hooks.prepare_request && self.show(ctx, id) {
            self.tell(ctx, "prepare_request", id);
        }
    }

    fn requeue_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if self.hooks.requeue_request {
            self.tell(ctx, "requeue_request", id);
        }
    }

    fn limit_depth_for(&mut self, bio: &Bio) -> Option<u32> {
        if !self.hooks.limit_depth {
            return None;
        }
        let (is_write, process) = (bio.op.is_write(), bio.submitter.0);
        self.hook(|_, _, object| {
            let limit = object.call_method1("limit_depth", (is_write, process))?;
            limit.extract()
        })?
    }

    fn min_shallow_depth(&self) -> Option<u32> {
        self.hooks.limit_depth.then_some(1)
    }

    fn insert_requests(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        hctx: usize,
        list: &mut RqList,
        at: InsertAt,
    ) {
        let (mut new, mut head) = (Vec::new(), Vec::new());
        while let Some(id) = list.pop_front(ctx.rqs) {
            if at == InsertAt::Tail && sched_try_insert_merge(self, ctx, id) {
                continue;
            }
            ctx.trace_insert(id);
            match at {
                InsertAt::Head if !self.hooks.insert_at_head => {
                    self.queue.head.push_front(ctx.rqs, id);
                }
                InsertAt::Head => {
                    self.add(ctx, id);
                    head.push(id);
                }
                InsertAt::Tail => {
                    self.add_request(ctx, hctx, id);
                    new.push(id);
                }
            }
        }
        // Requests that were merged during their insertion are gone.
        new.retain(|id| self.is_queued(*id));
        self.give(ctx, "insert_at_head", &head);
        self.give(ctx, "insert_requests", &new);
    }

    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        if self.add(ctx, id) {
            ctx.merge.add(ctx.rqs, id);
        }
    }

    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, _kind: MergeKind) {
        self.has_grown(ctx, id);
        if self.hooks.request_merged {
            self.tell(ctx, "request_merged", id);
        }
    }

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.queue.count_merge();
        if !self.is_queued(next) {
            // It was merged during its insertion, and the scheduler never had it.
            return self.request_merged(ctx, id, MergeKind::Back);
        }
        self.has_grown(ctx, id);
        let now_ns = ctx.now.0;
        self.hook(|own, py, object| {
            let known = |id: RequestId| Some(own.requests.get(&id.index())?.0.clone_ref(py));
            let both = (known(id), known(next), now_ns);
            object.call_method1("requests_merged", both).map(drop)
        });
        self.take_out(ctx, next);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        if let Some(id) = self.queue.pop_head(ctx) {
            return Some(id);
        }
        if self.queued == 0 {
            return None;
        }
        let now_ns = ctx.now.0;
        let chosen = self.ask("dispatched", |_, _, object| {
            object.call_method1("dispatch_request", (now_ns,)).map(Some)
        });
        let id = match chosen {
            Some(id) => id,
            None if has_failed() => self.any()?,
            None => {
                self.hold_back(ctx.now);
                return None;
            }
        };
        self.holds_back_since = None;
        self.take_out(ctx, id);
        self.queue.send(ctx, id)
    }

    fn has_work(&self, _hctx: usize) -> bool {
        !self.queue.head.is_empty() || self.queued > 0
    }

    fn completed_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if self.hooks.completed_request {
            self.tell(ctx, "completed_request", id);
        }
    }

    fn finish_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if self.hooks.finish_request {
            self.tell(ctx, "finish_request", id);
        }
        self.take_out(ctx, id);
        self.requests.remove(&id.index());
    }

    fn exit_submitter(&mut self, ctx: &mut SchedCtx<'_>, submitter: SubmitterId) {
        if !self.hooks.exit_process {
            return;
        }
        let now_ns = ctx.now.0;
        self.hook(|_, _, object| {
            object
                .call_method1("exit_process", (submitter.0, now_ns))
                .map(drop)
        });
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.next_timer
    }

    fn timer(&mut self, ctx: &mut SchedCtx<'_>) -> bool {
        let now_ns = ctx.now.0;
        self.next_timer = None;
        self.hook(|_, _, object| {
            object.setattr("next_timer_ns", None::<u64>)?;
            object.call_method1("timer", (now_ns,)).map(drop)
        });
        true
    }
}
