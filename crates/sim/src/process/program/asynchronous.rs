//! Asynchronous requests of a program: calls that glibc's threads (POSIX AIO), the kernel
//! (`io_submit`) or io_uring and its workers make for it.
//!
//! `io_submit` completes buffered I/O before it returns (`aio_read` of the kernel's
//! `fs/aio.c`); direct I/O and `fsync` complete later. io_uring tries a read or write at
//! once and retries it when the page has come; calls that cannot be tried go to a worker, as
//! all do on a file system without `FMODE_NOWAIT` (`io_uring/`). Requests belong to the thread
//! that names them.

use std::collections::VecDeque;

use blklab_blk::{Nanos, Submit, Waiter};
use blklab_workload::calls::{Errno, Interface, SubmitFlags};

use super::script::{AfterSubmit, Notify, OnFile, Op, RequestOp};
use super::{Phase, ProgramProcess, State};
use crate::cpu::Mode;
use crate::file_layer::{FileLayer, Progress, TaskId};
use crate::process::aio_threads::AioThreads;
use crate::process::io_workers::IoWorkers;
use crate::system::System;

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not submitted, or completed.
    Idle,
    /// Waits for a thread, or for requests before it.
    Queued,
    /// Waits for a worker of io_uring.
    AwaitsWorker,
    /// Started, not completed.
    Running,
}

/// An `aiocb`, an `iocb` or an entry of the submission queue.
#[derive(Debug)]
struct Request {
    /// The task that makes its call.
    task: TaskId,
    /// What it does, its flags, and the line of the list that filled it in.
    prepared: Option<(RequestOp, SubmitFlags, u32)>,
    interface: Interface,
    stage: Stage,
    /// When it was submitted.
    began: Nanos,
    /// How many of its interface were outstanding then.
    depth: u32,
    /// When its timeout expires.
    due: Nanos,
    /// A thread of glibc or an io_uring worker makes its call: once it does, that cannot be
    /// cancelled.
    is_in_worker: bool,
    /// It has one of io_uring's workers for itself, and the file that this has alone for it.
    has_worker: bool,
    alone_on: Option<usize>,
    /// The next request of its chain (`IOSQE_IO_LINK`).
    next: Option<usize>,
    /// How its completion is notified, with POSIX AIO.
    notify: Notify,
    /// Its list, if the completion of all of that is notified.
    list: Option<usize>,
}

/// The requests of a `lio_listio` whose completion is notified (`async_waitlist` of glibc).
#[derive(Clone, Copy, Debug)]
struct NotifiedList {
    /// How many of them have not completed.
    left: usize,
    notify: Notify,
}

/// What a program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    /// This request completes.
    One(usize),
    /// One of the call's requests completes.
    AnyOfCall,
    /// All of the call's requests complete.
    AllOfCall,
    /// This many completions of an interface, which the program then takes.
    Ends(Interface, u64),
    /// No request is outstanding.
    Idle,
}

/// The requests of a program.
pub(super) struct Requests {
    list: Vec<Request>,
    /// Lists with a notification of their own; those without requests left are free.
    notified_lists: Vec<NotifiedList>,
    threads: AioThreads,
    workers: IoWorkers,
    /// io_uring can try reads and writes without waiting.
    can_try: bool,
    /// Requests that start now.
    ready: VecDeque<usize>,
    /// Requests of io_uring that wait for earlier ones, in order of submission; whether
    /// the request itself has `IOSQE_IO_DRAIN`.
    drained: VecDeque<(usize, bool)>,
    /// The request with `IOSQE_IO_DRAIN` that runs now: none starts before it completes.
    draining: Option<usize>,
    /// Completions of `io_submit` and of io_uring that were not taken yet.
    completions: [u64; 2],
    /// Requests whose calls sleep for a tag: the disk, the waiter and the request.
    tag_waiters: Vec<(usize, Waiter, usize)>,
    /// When the next timeout expires.
    due: Nanos,
    awaits: Awaits,
}

impl Requests {
    /// This many requests, on this many files.
    pub(super) fn new(
        layer: &mut FileLayer,
        pid: usize,
        (requests, files): (usize, usize),
    ) -> Requests {
        let request = |_| Request {
            task: layer.add_caller(pid),
            prepared: None,
            interface: Interface::Posix,
            stage: Stage::Idle,
            began: Nanos::ZERO,
            depth: 0,
            due: Nanos::MAX,
            is_in_worker: false,
            has_worker: false,
            alone_on: None,
            next: None,
            notify: Notify::None,
            list: None,
        };
        Requests {
            list: (0..requests).map(request).collect(),
            notified_lists: Vec::new(),
            threads: AioThreads::new(files),
            workers: IoWorkers::new(files, (requests, layer.cpus())),
            can_try: layer.can_try(),
            ready: VecDeque::new(),
            drained: VecDeque::new(),
            draining: None,
            completions: [0; 2],
            tag_waiters: Vec::new(),
            due: Nanos::MAX,
            awaits: Awaits::Idle,
        }
    }

    fn is_idle(&self, number: usize) -> bool {
        self.list[number].stage == Stage::Idle
    }

    /// How many requests of an interface have not completed.
    fn outstanding(&self, interface: Interface) -> usize {
        let is_meant = |of: &&Request| of.stage != Stage::Idle && of.interface == interface;
        self.list.iter().filter(is_meant).count()
    }

    fn is_running(&self, interface: Interface) -> bool {
        let has_begun = |of: &Request| matches!(of.stage, Stage::Running | Stage::AwaitsWorker);
        let mut of_interface = self.list.iter().filter(|of| of.interface == interface);
        of_interface.any(has_begun)
    }

    fn completions(&mut self, interface: Interface) -> &mut u64 {
        &mut self.completions[usize::from(interface == Interface::IoUring)]
    }

    fn op(&self, number: usize) -> Option<RequestOp> {
        self.list[number].prepared.map(|(op, ..)| op)
    }

    fn flags(&self, number: usize) -> SubmitFlags {
        self.list[number]
            .prepared
            .map(|(_, flags, _)| flags)
            .unwrap_or_default()
    }

    /// The request has completed.
    fn complete(&mut self, number: usize) {
        let request = &mut self.list[number];
        (request.stage, request.due) = (Stage::Idle, Nanos::MAX);
        let interface = request.interface;
        if interface != Interface::Posix {
            *self.completions(interface) += 1;
        }
        self.draining.take_if(|drains| *drains == number);
    }

    /// Starts requests of io_uring whose earlier ones have completed (`io_drain_req`).
    fn begin_drained(&mut self) {
        while let Some(&(number, waits_for_all)) = self.drained.front() {
            if self.draining.is_some() {
                return;
            }
            if waits_for_all && (self.is_running(Interface::IoUring) || !self.ready.is_empty()) {
                return;
            }
            self.drained.pop_front();
            self.draining = waits_for_all.then_some(number);
            self.ready.push_back(number);
        }
    }

    /// Cancels the requests of a file, or that one of them, that no thread of glibc has
    /// started. Returns which.
    fn cancel_queued(&mut self, file: usize, only: Option<usize>) -> VecDeque<u32> {
        let cancelled = self.threads.cancel(file, only.map(|number| number as u32));
        for number in &cancelled {
            self.list[*number as usize].stage = Stage::Idle;
        }
        cancelled
    }

    /// Makes a list of requests whose completion is notified together.
    fn notify_together(&mut self, numbers: &[usize], notify: Notify) {
        let made = NotifiedList {
            left: numbers.len(),
            notify,
        };
        let free = self.notified_lists.iter().position(|list| list.left == 0);
        let place = free.unwrap_or(self.notified_lists.len());
        match self.notified_lists.get_mut(place) {
            Some(list) => *list = made,
            None => self.notified_lists.push(made),
        }
        for number in numbers {
            self.list[*number].list = Some(place);
        }
    }

    /// How the completion of a request of POSIX AIO is notified: its own, and that of its list
    /// if it is the last.
    fn notifications(&mut self, number: usize) -> [Notify; 2] {
        let request = &mut self.list[number];
        let of_list = request.list.take().map_or(Notify::None, |place| {
            let list = &mut self.notified_lists[place];
            list.left -= 1;
            match list.left {
                0 => list.notify,
                _ => Notify::None,
            }
        });
        [request.notify, of_list]
    }

    /// Cancels requests that have not started and timeouts. Returns whether no request is
    /// outstanding then.
    fn cancel_pending(&mut self) -> bool {
        self.drained.clear();
        self.ready.clear();
        for (number, request) in (0..).zip(&mut self.list) {
            let only_waits = match request.prepared {
                Some((RequestOp::Timeout(_) | RequestOp::LinkTimeout(_), ..)) => true,
                _ => request.stage == Stage::Queued || self.workers.cancel(number),
            };
            if only_waits {
                request.stage = Stage::Idle;
            }
            request.next = None;
        }
        self.list.iter().all(|request| request.stage == Stage::Idle)
    }
}

/// Submitting requests and waiting for them.
impl ProgramProcess {
    /// Makes a call that names requests.
    pub(super) fn enter_requests(&mut self, now: Nanos, system: &mut System) {
        self.phase = Phase::Leaving(Ok(0));
        match self.script.actions[self.action].op {
            Op::Request {
                request,
                op,
                flags,
                begins,
            } => {
                if !self.requests.is_idle(request) {
                    return self.fail_here(now, OUTSTANDING, system);
                }
                let line = self.script.actions[self.action].line;
                self.requests.list[request].prepared = Some((op, flags, line));
                if begins {
                    self.submit(now, request, Interface::Posix, false);
                    self.begin_ready(now, system);
                }
            }
            Op::Submit { .. } => self.phase = Phase::Submitting(0),
            Op::Suspend(_) => self.await_requests(now, Awaits::AnyOfCall),
            Op::TakeEvents(ends) => self.take_ends(now, (Interface::Linux, ends), system),
            Op::CancelOf { handle, only } => self.cancel_queued(now, (handle, only), system),
            Op::Notify { request, how } => {
                if !self.requests.is_idle(request) {
                    return self.fail_here(now, OUTSTANDING, system);
                }
                self.requests.list[request].notify = how;
            }
            Op::TakeSignals(signals) => self.take_signals(now, signals, system),
            _ => {}
        }
    }

    /// Submits the next request of the call, or chain of requests, from this place on.
    pub(super) fn submit_from(&mut self, now: Nanos, place: usize, system: &mut System) {
        let Op::Submit {
            interface,
            requests: all,
            then,
        } = &self.script.actions[self.action].op
        else {
            return;
        };
        let (interface, then) = (*interface, *then);
        let Some(&number) = all.get(place) else {
            self.phase = Phase::Leaving(Ok(0));
            return match then {
                AfterSubmit::Notify(notify) if all.is_empty() => {
                    self.expect_signal(notify);
                    self.notify(now, notify, system);
                }
                AfterSubmit::Return | AfterSubmit::Notify(_) => {}
                AfterSubmit::AwaitAll => self.await_requests(now, Awaits::AllOfCall),
                AfterSubmit::Take(ends) => self.take_ends(now, (interface, ends), system),
            };
        };
        let requests = &mut self.requests;
        let mut last = place;
        let mut drains = false;
        let wrong = loop {
            let at = all[last];
            match requests.list[at].prepared {
                None => break Some("a request is not prepared"),
                Some(_) if !requests.is_idle(at) => break Some(OUTSTANDING),
                Some((_, flags, _)) => {
                    drains |= flags.drain;
                    let is_linked = interface == Interface::IoUring && flags.links();
                    let Some(&next) = all.get(last + 1).filter(|_| is_linked) else {
                        break None;
                    };
                    requests.list[at].next = Some(next);
                    last += 1;
                }
            }
        };
        if let Some(wrong) = wrong {
            return self.fail_here(now, wrong, system);
        }
        for &linked in &all[place + 1..=last] {
            let request = &mut requests.list[linked];
            (request.stage, request.interface) = (Stage::Queued, interface);
            request.began = now;
        }
        if let (AfterSubmit::Notify(notify), 0) = (then, place)
            && notify != Notify::None
        {
            requests.notify_together(all, notify);
            self.expect_signal(notify);
        }
        self.phase = Phase::Submitting(last + 1);
        self.submit(now, number, interface, drains);
        self.begin_ready(now, system);
        let is_blocked = interface == Interface::Linux && self.blocks_in_submit(number);
        if is_blocked && !self.requests.is_idle(number) {
            self.await_requests(now, Awaits::One(number));
        }
    }

    /// Whether `io_submit` returns only when this request has completed.
    fn blocks_in_submit(&self, number: usize) -> bool {
        let Some(RequestOp::Call(action)) = self.requests.op(number) else {
            return false;
        };
        let on = self.on_open_file(action);
        let is_rw = |call| matches!(call, OnFile::Read { .. } | OnFile::Write { .. });
        on.is_some_and(|(open, call)| is_rw(call) && !open.direct)
    }

    /// Submits a request; it starts unless it has to wait for others.
    fn submit(&mut self, now: Nanos, number: usize, interface: Interface, drains: bool) {
        let file = self.file_of(number).unwrap_or(0);
        let is_in_worker = self.is_for_worker(number, interface);
        let requests = &mut self.requests;
        let request = &mut requests.list[number];
        (request.stage, request.interface, request.began) = (Stage::Queued, interface, now);
        request.is_in_worker = is_in_worker;
        let depth = requests.outstanding(interface) as u32;
        requests.list[number].depth = depth;
        match interface {
            Interface::Posix => {
                if requests.threads.enqueue(file, number as u32) {
                    requests.ready.push_back(number);
                }
                self.expect_signal(self.requests.list[number].notify);
            }
            Interface::IoUring
                if drains || !requests.drained.is_empty() || requests.draining.is_some() =>
            {
                requests.drained.push_back((number, drains));
            }
            Interface::Linux | Interface::IoUring => {
                requests.ready.push_back(number);
            }
        }
    }

    /// Whether an io_uring worker or a thread of glibc makes its call.
    fn is_for_worker(&self, number: usize, interface: Interface) -> bool {
        let Some(RequestOp::Call(action)) = self.requests.op(number) else {
            return false;
        };
        let tries_at_once = match self.script.actions[action].op {
            Op::OnFile { call, .. } => {
                matches!(
                    call,
                    OnFile::Read { .. } | OnFile::Write { .. } | OnFile::Close
                )
            }
            _ => false,
        };
        let is_forced = self.requests.flags(number).force_async || !self.requests.can_try;
        interface == Interface::Posix || is_forced || !tries_at_once
    }

    /// The file that a request of io_uring's needs a worker for, and whether the worker must
    /// have it alone: buffered reads and writes, of which writes are hashed
    /// (`io_prep_async_work`). A direct one has left its worker when it is submitted.
    fn needs_worker(&self, number: usize) -> Option<Option<usize>> {
        let request = &self.requests.list[number];
        let Some((RequestOp::Call(action), ..)) = request.prepared else {
            return None;
        };
        if request.interface != Interface::IoUring || !request.is_in_worker {
            return None;
        }
        match self.on_open_file(action)? {
            (open, OnFile::Read { .. }) if !open.direct => Some(None),
            (open, OnFile::Write { .. }) if !open.direct => Some(self.file_of(number)),
            _ => None,
        }
    }

    /// Gives a request a worker if it needs one. Returns whether it has to wait for that.
    fn awaits_worker(&mut self, number: usize) -> bool {
        if self.requests.list[number].has_worker {
            return false;
        }
        let Some(alone_on) = self.needs_worker(number) else {
            return false;
        };
        let has_worker = self.requests.workers.enqueue(number as u32, alone_on);
        let request = &mut self.requests.list[number];
        (request.has_worker, request.alone_on) = (has_worker, alone_on);
        if !has_worker {
            request.stage = Stage::AwaitsWorker;
        }
        !has_worker
    }

    /// The worker of a request that has completed goes on with another.
    fn leave_worker(&mut self, number: usize) {
        if !std::mem::take(&mut self.requests.list[number].has_worker) {
            return;
        }
        let alone_on = self.requests.list[number].alone_on;
        if let Some(next) = self.requests.workers.done(alone_on) {
            self.requests.list[next as usize].has_worker = true;
            self.requests.ready.push_back(next as usize);
        }
    }

    /// The handle of its file; glibc has one thread for each.
    fn file_of(&self, number: usize) -> Option<usize> {
        let Some(RequestOp::Call(action)) = self.requests.op(number) else {
            return None;
        };
        match self.script.actions[action].op {
            Op::OnFile { handle, .. } => Some(handle),
            _ => None,
        }
    }

    fn take_ends(&mut self, now: Nanos, (interface, ends): (Interface, u64), system: &mut System) {
        let there =
            self.requests.outstanding(interface) as u64 + *self.requests.completions(interface);
        match ends > there {
            true => self.fail_here(
                now,
                "it waits for more requests than were submitted",
                system,
            ),
            false => self.await_requests(now, Awaits::Ends(interface, ends)),
        }
    }

    /// Continues in its phase when what it awaits has happened.
    fn await_requests(&mut self, now: Nanos, awaits: Awaits) {
        self.requests.awaits = awaits;
        if self.state == State::Running && !self.take_awaited() {
            self.recorder.context_switch();
            self.state = State::AwaitsRequests(now);
        }
    }

    /// Takes what it awaits, if that has happened. Returns whether it has.
    fn take_awaited(&mut self) -> bool {
        let requests = &mut self.requests;
        let of_call = match &self
            .script
            .actions
            .get(self.action)
            .map(|action| &action.op)
        {
            Some(Op::Submit { requests, .. } | Op::Suspend(requests)) => &requests[..],
            _ => &[],
        };
        match requests.awaits {
            Awaits::One(number) => requests.is_idle(number),
            Awaits::AnyOfCall => {
                of_call.is_empty() || of_call.iter().any(|number| requests.is_idle(*number))
            }
            Awaits::AllOfCall => of_call.iter().all(|number| requests.is_idle(*number)),
            Awaits::Ends(interface, ends) => {
                let ended = requests.completions(interface);
                let is_over = *ended >= ends;
                *ended -= if is_over { ends } else { 0 };
                is_over
            }
            Awaits::Idle => requests.list.iter().all(|of| of.stage == Stage::Idle),
        }
    }

    /// At its end, waits for requests that cannot be cancelled. Returns whether it waits.
    pub(super) fn awaits_last_requests(&mut self, now: Nanos, system: &mut System) -> bool {
        let files = self.shared.borrow().handles.len();
        (0..files).for_each(|file| self.cancel_queued(now, (file, None), system));
        if self.requests.cancel_pending() {
            return false;
        }
        self.await_requests(now, Awaits::Idle);
        true
    }
}

/// The life of a request.
impl ProgramProcess {
    fn begin_ready(&mut self, now: Nanos, system: &mut System) {
        self.requests.begin_drained();
        while let Some(number) = self.requests.ready.pop_front() {
            self.begin_request(now, number, system);
        }
    }

    fn begin_request(&mut self, now: Nanos, number: usize, system: &mut System) {
        let Some(op) = self.requests.op(number) else {
            return;
        };
        let request = &mut self.requests.list[number];
        request.stage = Stage::Running;
        let is_async = request.interface != Interface::Posix;
        if let Some(behind) = self.requests.list[number].next
            && let Some(RequestOp::LinkTimeout(ns)) = self.requests.op(behind)
        {
            self.requests.list[behind].stage = Stage::Running;
            self.set_timeout(now, behind, ns, system);
        }
        match op {
            RequestOp::Call(_) if self.awaits_worker(number) => {}
            RequestOp::Call(action) => match self.layer_call(action, is_async) {
                Ok(call) => {
                    system.begin_call(self.requests.list[number].task, call);
                    if self.requests.list[number].is_in_worker {
                        self.book(now, self.costs.context_switch, system);
                    }
                    self.continue_request(now, number, system);
                }
                Err(errno) => self.end_request(now, number, Err(errno), system),
            },
            RequestOp::Nop => self.end_request(now, number, Ok(0), system),
            RequestOp::Timeout(ns) => self.set_timeout(now, number, ns, system),
            // It follows no request.
            RequestOp::LinkTimeout(_) => self.end_request(now, number, Err(Errno::EINVAL), system),
            RequestOp::Cancel(other) => {
                let found = self.cancel(now, other, system);
                self.end_request(now, number, found, system);
            }
        }
    }

    fn set_timeout(&mut self, now: Nanos, number: usize, ns: u64, system: &mut System) {
        let due = now + Nanos(ns);
        self.requests.list[number].due = due;
        self.requests.due = self.requests.due.min(due);
        system.timers.set(due, self.id);
    }

    /// Cancels a request (`io_try_cancel`), unless the drive or a worker is at it.
    fn cancel(&mut self, now: Nanos, number: usize, system: &mut System) -> Result<u64, Errno> {
        let request = &self.requests.list[number];
        match (request.stage, request.prepared) {
            (Stage::Running, Some((RequestOp::Timeout(_), ..))) => {
                self.end_request(now, number, Err(Errno::ECANCELED), system);
                Ok(0)
            }
            (Stage::Running, Some((RequestOp::Call(_), ..))) if request.is_in_worker => {
                Err(Errno::EALREADY)
            }
            (Stage::AwaitsWorker, _) => {
                self.requests.workers.cancel(number as u32);
                self.end_request(now, number, Err(Errno::ECANCELED), system);
                Ok(0)
            }
            _ => Err(Errno::ENOENT),
        }
    }

    /// Completes the timeouts that have expired.
    pub(super) fn end_timeouts(&mut self, now: Nanos, system: &mut System) {
        if self.requests.due > now {
            return;
        }
        let is_due = |request: &Request| request.due <= now;
        while let Some(number) = self.requests.list.iter().position(is_due) {
            self.requests.list[number].due = Nanos::MAX;
            let before = (self.requests.list.iter()).position(|of| of.next == Some(number));
            match (self.requests.op(number), before) {
                (Some(RequestOp::LinkTimeout(_)), Some(before)) => {
                    // The rest of the chain follows the request that the timeout guarded.
                    let behind = self.requests.list[number].next.take();
                    self.requests.list[before].next = behind;
                    self.requests.complete(number);
                    // A request that cannot be cancelled goes on.
                    let _ = self.cancel(now, before, system);
                }
                _ => self.end_request(now, number, Err(Errno::ETIME), system),
            }
        }
        let due = self.requests.list.iter().map(|request| request.due).min();
        self.requests.due = due.unwrap_or(Nanos::MAX);
        self.after_completions(now, system);
    }

    /// One of its tasks was woken. Returns whether it is that of a request.
    pub(super) fn request_woken(&mut self, now: Nanos, task: TaskId, system: &mut System) -> bool {
        let found = (self.requests.list.iter()).position(|request| request.task == task);
        let Some(number) = found else { return false };
        if self.requests.list[number].stage == Stage::Running {
            self.continue_request(now, number, system);
            self.after_completions(now, system);
        }
        true
    }

    fn continue_request(&mut self, now: Nanos, number: usize, system: &mut System) {
        let task = self.requests.list[number].task;
        let (progress, spent) = system.go_on_in_call(now, task, &self.as_submitter());
        self.recorder.spent(Mode::System, spent.0);
        match progress {
            Progress::Over(returned) => {
                let returned = returned.map_err(|error| Errno(error.errno()));
                self.end_request(now, number, returned, system);
            }
            Progress::AwaitsTag(disk) => {
                if let Some(waiter) = system.take_waiter(task) {
                    self.await_tag(number, (disk, waiter), system);
                }
            }
            Progress::Waits => {}
        }
    }

    fn await_tag(&mut self, number: usize, (disk, waiter): (usize, Waiter), system: &mut System) {
        system.tag_waiters[disk].push(waiter.ticket, self.id);
        self.requests.tag_waiters.push((disk, waiter, number));
    }

    /// The block layer lets a request's call try again to get a tag.
    pub(super) fn on_request_tag(
        &mut self,
        now: Nanos,
        (disk, ticket): (usize, u64),
        system: &mut System,
    ) {
        let is_meant =
            |(on, waiter, _): &(usize, Waiter, usize)| (*on, waiter.ticket) == (disk, ticket);
        let Some(place) = self.requests.tag_waiters.iter().position(is_meant) else {
            return;
        };
        let (_, waiter, number) = self.requests.tag_waiters.remove(place);
        let on = (self.requests.list[number].task, waiter);
        let (taken, spent) = system.resume_in_call(now, disk, on, &self.as_submitter());
        self.recorder.spent(Mode::System, spent.0);
        match taken {
            Submit::Done => {
                self.continue_request(now, number, system);
                self.after_completions(now, system);
            }
            Submit::Blocked(waiter) => self.await_tag(number, (disk, waiter), system),
        }
    }

    /// After completions, starts the requests that waited for them, and wakes the program.
    fn after_completions(&mut self, now: Nanos, system: &mut System) {
        self.begin_ready(now, system);
        if let State::AwaitsRequests(since) = self.state
            && self.take_awaited()
        {
            self.times().waits_ns += now.saturating_sub(since).0;
            self.wake_up(now, system);
        }
    }

    /// A request has completed with this result.
    fn end_request(
        &mut self,
        now: Nanos,
        number: usize,
        returned: Result<u64, Errno>,
        system: &mut System,
    ) {
        let Some((op, flags, line)) = self.requests.list[number].prepared else {
            return;
        };
        let interface = self.requests.list[number].interface;
        self.leave_worker(number);
        self.requests.complete(number);
        let mut is_whole = returned.is_ok();
        if let RequestOp::Call(action) = op {
            is_whole &= self.is_whole(action, returned);
            self.call_returned(now, (number, action, line), returned, system);
        }
        match interface {
            Interface::Posix => {
                let file = self.file_of(number).unwrap_or(0);
                let next = self.requests.threads.done(file);
                (self.requests.ready).extend(next.map(|next| next as usize));
                self.notify_of(now, number, system);
            }
            Interface::Linux => {}
            Interface::IoUring => {
                self.start_linked(number, is_whole || flags.hardlink);
                self.requests.begin_drained();
            }
        }
    }

    /// Cancels the requests of a file that no thread of glibc has started (`aio_cancel`).
    fn cancel_queued(
        &mut self,
        now: Nanos,
        (file, only): (usize, Option<usize>),
        system: &mut System,
    ) {
        if only.is_some_and(|number| self.is_on_other_file(number, file)) {
            self.phase = Phase::Leaving(Err(Errno::EINVAL));
            return;
        }
        for number in self.requests.cancel_queued(file, only) {
            self.notify_of(now, number as usize, system);
        }
    }

    /// Whether a request was filled in for another file (`aio_fildes`).
    fn is_on_other_file(&self, number: usize, file: usize) -> bool {
        let Some((RequestOp::Call(action), ..)) = self.requests.list[number].prepared else {
            return false;
        };
        match self.script.actions[action].op {
            Op::OnFile { handle, .. } => handle != file,
            _ => false,
        }
    }

    /// Notifies of the completion of a request of POSIX AIO (`__aio_notify`).
    fn notify_of(&mut self, now: Nanos, number: usize, system: &mut System) {
        for notify in self.requests.notifications(number) {
            self.notify(now, notify, system);
        }
    }

    /// A request or a list was submitted that will be notified so.
    fn expect_signal(&self, notify: Notify) {
        self.shared.borrow_mut().signals_to_come += u64::from(notify == Notify::Signal);
    }

    /// Sends the signal, or starts the thread, of one `sigevent` (`__aio_notify_only`).
    fn notify(&mut self, now: Nanos, notify: Notify, system: &mut System) {
        match notify {
            Notify::None => {}
            Notify::Signal => {
                self.book(now, self.costs.syscall + self.costs.signal, system);
                let mut shared = self.shared.borrow_mut();
                shared.signals += 1;
                shared.signals_to_come -= 1;
                system.next_turn.extend(shared.signal_waiters.drain(..));
            }
            Notify::Thread(program) => {
                self.process_table.borrow_mut().notified[program] += 1;
                system.next_turn.push_back(program);
            }
        }
    }

    /// Waits for this many signals.
    fn take_signals(&mut self, now: Nanos, signals: u64, system: &mut System) {
        if !self.has_taken_signals(now, signals, system) && self.state != State::Exited {
            self.recorder.context_switch();
            self.state = State::AwaitsSignals(now, signals);
        }
    }

    /// Takes this many signals. If there are fewer, the next one wakes it, and it
    /// fails if none can come any more.
    pub(super) fn has_taken_signals(
        &mut self,
        now: Nanos,
        signals: u64,
        system: &mut System,
    ) -> bool {
        let is_in_vain = {
            let mut shared = self.shared.borrow_mut();
            if let Some(left) = shared.signals.checked_sub(signals) {
                shared.signals = left;
                return true;
            }
            if !shared.signal_waiters.contains(&self.id) {
                shared.signal_waiters.push(self.id);
            }
            let all_wait = shared.others() == shared.signal_waiters.len();
            all_wait && signals > shared.signals + shared.signals_to_come
        };
        if is_in_vain {
            let wrong = "it waits for more signals than requests will send";
            self.fail_here(now, wrong, system);
        }
        false
    }

    /// Starts the request that is linked to a completed one, or cancels the rest of the
    /// chain (`io_fail_links`).
    fn start_linked(&mut self, number: usize, goes_on: bool) {
        let mut next = self.requests.list[number].next.take();
        if let Some(timeout) = next
            && let Some(RequestOp::LinkTimeout(_)) = self.requests.op(timeout)
        {
            next = self.requests.list[timeout].next.take();
            self.requests.complete(timeout);
        }
        let Some(first) = next else { return };
        if goes_on {
            let is_in_worker = self.is_for_worker(first, Interface::IoUring);
            self.requests.list[first].is_in_worker = is_in_worker;
            return self.requests.ready.push_back(first);
        }
        while let Some(linked) = next {
            next = self.requests.list[linked].next.take();
            self.requests.complete(linked);
        }
    }

    /// Whether a call transferred all that it was asked to.
    fn is_whole(&self, action: usize, returned: Result<u64, Errno>) -> bool {
        match self.script.actions[action].op {
            Op::OnFile {
                call: OnFile::Read { bytes, .. } | OnFile::Write { bytes, .. },
                ..
            } => returned == Ok(bytes),
            _ => returned.is_ok(),
        }
    }

    /// The call that a request makes has returned.
    fn call_returned(
        &mut self,
        now: Nanos,
        (number, action, line): (usize, usize, u32),
        returned: Result<u64, Errno>,
        system: &mut System,
    ) {
        if self.state == State::Exited {
            return;
        }
        let copied = self.copy_cost(action, returned);
        self.book(now, copied, system);
        let Request { began, depth, .. } = self.requests.list[number];
        self.record(now, (action, began, depth), returned);
        if returned.is_ok() {
            self.returned(action);
        }
        let kind = self.script.actions[action].kind;
        if let Some(wrong) = self.mismatch(action, returned) {
            self.fail(now, (line, kind, &wrong), system);
        }
    }

    /// Charges its CPU for a request, beside what the program itself does.
    fn book(&mut self, now: Nanos, cost: Nanos, system: &mut System) {
        if !self.costs.free && cost > Nanos::ZERO {
            let cost = system.cpus.at_clock(cost);
            self.recorder.spent(Mode::System, cost.0);
            system.cpus.run(self.cpu, now, cost, Mode::System);
        }
    }

    /// The current call is wrong.
    fn fail_here(&mut self, now: Nanos, what: &str, system: &mut System) {
        let (line, kind) = {
            let action = &self.script.actions[self.action];
            (action.line, action.kind)
        };
        self.fail(now, (line, kind, what), system);
    }
}

/// The message for a request that is filled in or submitted while it is outstanding.
const OUTSTANDING: &str = "a request is still under way";
