//! A scheduler whose hooks are methods of a Python class. It is checked that it dispatches
//! only requests that it has, each of them once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use blklab_blk::{
    Bio, Elevator, ElevatorQueue, InsertAt, MergeKind, Nanos, Op, QueueInfo, RequestId, RqList,
    SchedCtx, SubmitterId, sched_try_insert_merge,
};
use blklab_elevator::{ElevatorType, StepCosts};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// A scheduler that has requests and dispatches none for this long counts as hung, because
/// the block layer would call it forever. The kernel gives a drive as long for a request
/// (`rq_timeout`'s default).
const PATIENCE: Nanos = Nanos(30_000_000_000);

/// The exception of a hook or of a failed check, which ends the run.
static FAILURE: Mutex<Option<PyErr>> = Mutex::new(None);

fn failed() -> MutexGuard<'static, Option<PyErr>> {
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fail(error: PyErr) {
    failed().get_or_insert(error);
}

/// Returns whether a scheduler of this call has failed.
pub(crate) fn has_failed() -> bool {
    failed().is_some()
}

/// Removes and returns the failure.
pub(crate) fn take_failure() -> Option<PyErr> {
    failed().take()
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

/// Registers a Python class as a scheduler. Its CPU costs are those of mq-deadline.
#[pyfunction]
pub fn register(name: String, class: Py<PyAny>) -> PyResult<()> {
    let known: &'static str = name.leak();
    let build = move |info: &QueueInfo| -> Box<dyn Elevator> {
        Box::new(PythonScheduler::new(known, &class, info))
    };
    let kind = ElevatorType {
        name: known,
        help: "a scheduler in Python",
        source: "a Python class",
        tunables: &[],
        attributes: &[],
        costs: Some(StepCosts::OF_MQ_DEADLINE),
        build: Some(Box::leak(Box::new(build))),
    };
    blklab_elevator::register(kind).map_err(PyRuntimeError::new_err)
}

/// A scheduler in Python on a queue.
struct PythonScheduler {
    queue: ElevatorQueue,
    /// The scheduler's object; `None` if its constructor failed.
    object: Option<Py<PyAny>>,
    /// The inserted requests that are not freed, each with whether it is still queued.
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
    request_merged: bool,
    completed_request: bool,
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
            request_merged: has("request_merged")?,
            completed_request: has("completed_request")?,
            limit_depth: has("limit_depth")?,
            exit_process: has("exit_process")?,
            timer: has("timer")?,
        })
    }
}

impl PythonScheduler {
    fn new(name: &'static str, class: &Py<PyAny>, info: &QueueInfo) -> PythonScheduler {
        let queue = Queue {
            nr_requests: info.nr_requests,
            nr_hw_queues: info.nr_hw_queues,
            queue_depth: info.queue_depth,
            nr_cpus: info.nr_cpus,
            capacity_sectors: info.capacity_sectors,
            rotational: info.rotational,
        };
        let made = Python::attach(|py| {
            let object = class.call1(py, (queue,))?;
            let hooks = Hooks::of(object.bind(py))?;
            PyResult::Ok((object, hooks))
        });
        let (object, hooks) = made.map_err(fail).ok().unzip();
        PythonScheduler {
            queue: ElevatorQueue::new(name, &[]),
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

    fn add(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &ctx.rqs[id];
        let request = PyRequest {
            number: rq.serial,
            operation: match rq.op {
                Op::Read => "read",
                Op::Write | Op::WriteZeroes | Op::Zone(_) => "write",
                Op::Discard => "discard",
                Op::Flush => "flush",
            },
            sector: rq.sector.0,
            sectors: rq.sectors,
            is_sync: rq.is_sync(),
            process: rq.submitter.0,
            start_ns: rq.start.0,
            place: id,
        };
        match Python::attach(|py| Py::new(py, request)) {
            Ok(request) => {
                self.requests.insert(id.index(), (request, true));
                self.queued += 1;
                ctx.merge.add(ctx.rqs, id);
            }
            Err(error) => fail(error),
        }
    }

    /// Returns the request that Python chose, if it is queued.
    fn chosen(&mut self, request: &PyRequest) -> PyResult<RequestId> {
        let known = self.requests.get(&request.place.index());
        let same = Python::attach(|py| {
            known.is_some_and(|(own, queued)| *queued && own.borrow(py).number == request.number)
        });
        match same {
            true => Ok(request.place),
            false => Err(PyRuntimeError::new_err(format!(
                "{} dispatched {}, which it does not have: it was dispatched before, or merged \
                 into another",
                self.name(),
                request.__repr__()
            ))),
        }
    }

    /// Fails the scheduler if it has dispatched none of its requests for too long.
    fn hold_back(&mut self, now: Nanos) {
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
        _hctx: usize,
        list: &mut RqList,
        at: InsertAt,
    ) {
        let mut new = Vec::new();
        while let Some(id) = list.pop_front(ctx.rqs) {
            if at == InsertAt::Tail && sched_try_insert_merge(self, ctx, id) {
                continue;
            }
            ctx.trace_insert(id);
            match at {
                InsertAt::Head => self.queue.head.push_front(ctx.rqs, id),
                InsertAt::Tail => {
                    self.add(ctx, id);
                    new.push(id);
                }
            }
        }
        // Requests that were merged during their insertion are gone.
        new.retain(|id| self.is_queued(*id));
        if new.is_empty() {
            return;
        }
        let now_ns = ctx.now.0;
        self.hook(|own, py, object| {
            let new = new.iter().filter_map(|id| own.requests.get(&id.index()));
            let new: Vec<Py<PyRequest>> = new.map(|(request, _)| request.clone_ref(py)).collect();
            object
                .call_method1("insert_requests", (new, now_ns))
                .map(drop)
        });
    }

    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        self.add(ctx, id);
    }

    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, _kind: MergeKind) {
        if let Some((request, _)) = self.requests.get(&id.index()) {
            let rq = &ctx.rqs[id];
            Python::attach(|py| {
                let mut request = request.borrow_mut(py);
                (request.sector, request.sectors) = (rq.sector.0, rq.sectors);
            });
        }
        if self.hooks.request_merged {
            self.tell(ctx, "request_merged", id);
        }
    }

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.queue.count_merge();
        if !self.is_queued(next) {
            return;
        }
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
        let chosen = self.hook(|own, _, object| {
            let answer = object.call_method1("dispatch_request", (now_ns,))?;
            if answer.is_none() {
                return Ok(None);
            }
            let request = answer.cast::<PyRequest>()?;
            own.chosen(&request.borrow()).map(Some)
        });
        let id = match chosen {
            Some(Some(id)) => id,
            Some(None) => {
                self.hold_back(ctx.now);
                return None;
            }
            None => self.any()?,
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
