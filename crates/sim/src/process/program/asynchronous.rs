//! Requests of a program: calls that are made for it while it goes on, by glibc's threads
//! (POSIX AIO), within and behind `io_submit`, or by io_uring and its workers.
//!
//! Buffered I/O of `io_submit` is carried out within the call (`aio_read` of the kernel's
//! `fs/aio.c`); direct I/O and `fsync` go on behind it. io_uring tries at once and goes on
//! when what was missing is there; what cannot be tried is a worker's (`io_uring/`).
//! Each thread has requests of its own.

use std::collections::VecDeque;

use blklab_blk::{Nanos, Submit, Waiter};
use blklab_fs::FsError;
use blklab_workload::calls::{Interface, SubmitFlags};

use super::script::{OnFile, Then, What, Work};
use super::{Phase, ProgramProcess, State};
use crate::cpu::Mode;
use crate::file_layer::{FileLayer, Progress, TaskId};
use crate::process::aio_threads::AioThreads;
use crate::system::System;

/// `ENOENT`: what is to be taken back is not there.
const NOT_FOUND: i32 = 2;

/// `EINVAL`.
const WRONG: i32 = 22;

/// `ETIME`: a timeout is over.
const TIME_OVER: i32 = 62;

/// `EALREADY`: a worker is at what is to be taken back.
const BEGUN: i32 = 114;

/// `ECANCELED`: it was taken back.
const TAKEN_BACK: i32 = 125;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is asked for, or its end has come.
    Idle,
    /// It waits for a thread, or for requests before it.
    Queued,
    /// It is under way.
    Running,
}

/// A request.
#[derive(Debug)]
struct Request {
    /// The task that makes its call.
    task: TaskId,
    /// What it does, and as which line of the list.
    work: Option<(Work, SubmitFlags, u32)>,
    interface: Interface,
    stage: Stage,
    /// When it was submitted.
    began: Nanos,
    /// When its timeout is over.
    due: Nanos,
    /// Somebody else than the program makes its call, and cannot be stopped.
    is_in_worker: bool,
    /// The request that is linked behind it.
    next: Option<usize>,
}

/// What a program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    /// The end of this one.
    One(usize),
    /// The end of one of its call's requests.
    AnyOfCall,
    /// The ends of all of its call's requests.
    AllOfCall,
    /// So many ends of an interface's requests, which it takes.
    Ends(Interface, u64),
    /// That nothing is under way.
    Nothing,
}

/// The requests of a program.
pub(super) struct Requests {
    of: Vec<Request>,
    threads: AioThreads,
    /// Those that begin now.
    ready: VecDeque<usize>,
    /// Requests of io_uring that wait for what was submitted before them, in their
    /// order; whether the request waits for all of it.
    drained: VecDeque<(usize, bool)>,
    /// The one that waited so and is not done: none begins beside it.
    drains: Option<usize>,
    /// Those of `io_submit` and of io_uring that ended and were not taken.
    ended: [u64; 2],
    /// Requests whose calls wait in a drive's queue.
    waiting: Vec<(usize, Waiter, usize)>,
    /// The next end of a timeout.
    due: Nanos,
    awaits: Awaits,
}

impl Requests {
    /// So many requests on so many files.
    pub(super) fn new(
        layer: &mut FileLayer,
        pid: usize,
        (requests, files): (usize, usize),
    ) -> Requests {
        let request = |_| Request {
            task: layer.add_caller(pid),
            work: None,
            interface: Interface::Posix,
            stage: Stage::Idle,
            began: Nanos::ZERO,
            due: Nanos::MAX,
            is_in_worker: false,
            next: None,
        };
        Requests {
            of: (0..requests).map(request).collect(),
            threads: AioThreads::new(files),
            ready: VecDeque::new(),
            drained: VecDeque::new(),
            drains: None,
            ended: [0; 2],
            waiting: Vec::new(),
            due: Nanos::MAX,
            awaits: Awaits::Nothing,
        }
    }

    fn is_idle(&self, number: usize) -> bool {
        self.of[number].stage == Stage::Idle
    }

    /// How many of an interface have not ended.
    fn under_way(&self, interface: Interface) -> usize {
        let is_meant = |of: &&Request| of.stage != Stage::Idle && of.interface == interface;
        self.of.iter().filter(is_meant).count()
    }

    fn is_running(&self, interface: Interface) -> bool {
        let is_meant = |of: &Request| of.stage == Stage::Running && of.interface == interface;
        self.of.iter().any(is_meant)
    }

    fn ended(&mut self, interface: Interface) -> &mut u64 {
        &mut self.ended[usize::from(interface == Interface::IoUring)]
    }

    fn work(&self, number: usize) -> Option<Work> {
        self.of[number].work.map(|(work, ..)| work)
    }

    fn how(&self, number: usize) -> SubmitFlags {
        self.of[number]
            .work
            .map(|(_, how, _)| how)
            .unwrap_or_default()
    }

    /// It is over, and nobody is told what became of it.
    fn drop_one(&mut self, number: usize) {
        let request = &mut self.of[number];
        (request.stage, request.due) = (Stage::Idle, Nanos::MAX);
        let interface = request.interface;
        if interface != Interface::Posix {
            *self.ended(interface) += 1;
        }
        self.drains.take_if(|drains| *drains == number);
    }

    /// Has those of io_uring begin that waited for others, as far as these are done.
    fn begin_drained(&mut self) {
        while let Some(&(number, waits_for_all)) = self.drained.front() {
            if self.drains.is_some() {
                return;
            }
            if waits_for_all && (self.is_running(Interface::IoUring) || !self.ready.is_empty()) {
                return;
            }
            self.drained.pop_front();
            self.drains = waits_for_all.then_some(number);
            self.ready.push_back(number);
        }
    }

    /// The requests that no thread of glibc's has begun of a file are no more.
    fn take_back(&mut self, file: usize) {
        for number in self.threads.cancel(file) {
            self.of[number as usize].stage = Stage::Idle;
        }
    }

    /// Gives up what has not begun and what only waits. Whether nothing is under way.
    fn give_up(&mut self, files: usize) -> bool {
        for file in 0..files {
            self.take_back(file);
        }
        self.drained.clear();
        self.ready.clear();
        for request in &mut self.of {
            let only_waits = match request.work {
                Some((Work::Timeout(_) | Work::LinkTimeout(_), ..)) => true,
                _ => request.stage == Stage::Queued,
            };
            if only_waits {
                request.stage = Stage::Idle;
            }
            request.next = None;
        }
        self.of.iter().all(|request| request.stage == Stage::Idle)
    }
}

/// How a program gives requests away and waits for them.
impl ProgramProcess {
    /// Makes a call that is about requests.
    pub(super) fn enter_requests(&mut self, now: Nanos, system: &mut System) {
        self.phase = Phase::Leaving(Ok(0));
        match self.script.actions[self.action].what {
            What::Request {
                request,
                work,
                how,
                begins,
            } => {
                if !self.requests.is_idle(request) {
                    return self.fail_here(now, UNDER_WAY, system);
                }
                let line = self.script.actions[self.action].line;
                self.requests.of[request].work = Some((work, how, line));
                if begins {
                    self.submit(now, request, Interface::Posix, false);
                    self.begin_ready(now, system);
                }
            }
            What::Submit { .. } => self.phase = Phase::Submitting(0),
            What::Suspend(_) => self.await_requests(now, Awaits::AnyOfCall),
            What::TakeEvents(ends) => self.take_ends(now, (Interface::Linux, ends), system),
            What::CancelOf { handle } => self.requests.take_back(handle),
            _ => {}
        }
    }

    /// Gives the next of its call's requests away, from that place on.
    pub(super) fn submit_from(&mut self, now: Nanos, place: usize, system: &mut System) {
        let What::Submit {
            interface,
            requests: all,
            then,
        } = &self.script.actions[self.action].what
        else {
            return;
        };
        let (interface, then) = (*interface, *then);
        let Some(&number) = all.get(place) else {
            self.phase = Phase::Leaving(Ok(0));
            return match then {
                Then::Return => {}
                Then::AwaitAll => self.await_requests(now, Awaits::AllOfCall),
                Then::Take(ends) => self.take_ends(now, (interface, ends), system),
            };
        };
        let requests = &mut self.requests;
        let mut last = place;
        let mut drains = false;
        let wrong = loop {
            let at = all[last];
            match requests.of[at].work {
                None => break Some("a request is not prepared"),
                Some(_) if !requests.is_idle(at) => break Some(UNDER_WAY),
                Some((_, how, _)) => {
                    drains |= how.drain;
                    let is_linked = interface == Interface::IoUring && how.links();
                    let Some(&next) = all.get(last + 1).filter(|_| is_linked) else {
                        break None;
                    };
                    requests.of[at].next = Some(next);
                    last += 1;
                }
            }
        };
        if let Some(wrong) = wrong {
            return self.fail_here(now, wrong, system);
        }
        for &linked in &all[place + 1..=last] {
            let request = &mut requests.of[linked];
            (request.stage, request.interface) = (Stage::Queued, interface);
            request.began = now;
        }
        self.phase = Phase::Submitting(last + 1);
        self.submit(now, number, interface, drains);
        self.begin_ready(now, system);
        let is_blocked = interface == Interface::Linux && self.blocks_in_submit(number);
        if is_blocked && !self.requests.is_idle(number) {
            self.await_requests(now, Awaits::One(number));
        }
    }

    /// Whether `io_submit` returns only when that is done.
    fn blocks_in_submit(&self, number: usize) -> bool {
        let Some(Work::Call(action)) = self.requests.work(number) else {
            return false;
        };
        let on = self.on_open_file(action);
        let is_rw = |call| matches!(call, OnFile::Read { .. } | OnFile::Write { .. });
        on.is_some_and(|(open, call)| is_rw(call) && !open.direct)
    }

    /// A request is given away, and begins unless it has to wait for others.
    fn submit(&mut self, now: Nanos, number: usize, interface: Interface, drains: bool) {
        let file = self.file_of(number).unwrap_or(0);
        let is_in_worker = self.is_for_worker(number, interface);
        let requests = &mut self.requests;
        let request = &mut requests.of[number];
        (request.stage, request.interface, request.began) = (Stage::Queued, interface, now);
        request.is_in_worker = is_in_worker;
        let depth = requests.under_way(interface) as u32;
        self.recorder.submitted(depth, 1);
        match interface {
            Interface::Posix => {
                if requests.threads.enqueue(file, number as u32) {
                    requests.ready.push_back(number);
                }
            }
            Interface::IoUring
                if drains || !requests.drained.is_empty() || requests.drains.is_some() =>
            {
                requests.drained.push_back((number, drains));
            }
            Interface::Linux | Interface::IoUring => {
                requests.ready.push_back(number);
            }
        }
    }

    /// Whether a thread of the kernel's or of glibc's makes its call.
    fn is_for_worker(&self, number: usize, interface: Interface) -> bool {
        let Some(Work::Call(action)) = self.requests.work(number) else {
            return false;
        };
        let tries_at_once = match self.script.actions[action].what {
            What::OnFile { call, .. } => {
                matches!(
                    call,
                    OnFile::Read { .. } | OnFile::Write { .. } | OnFile::Close
                )
            }
            _ => false,
        };
        let is_forced = self.requests.how(number).force_async;
        interface == Interface::Posix || is_forced || !tries_at_once
    }

    /// The handle of its file, which is that of a thread of glibc's too.
    fn file_of(&self, number: usize) -> Option<usize> {
        let Some(Work::Call(action)) = self.requests.work(number) else {
            return None;
        };
        match self.script.actions[action].what {
            What::OnFile { handle, .. } => Some(handle),
            _ => None,
        }
    }

    fn take_ends(&mut self, now: Nanos, (interface, ends): (Interface, u64), system: &mut System) {
        let there = self.requests.under_way(interface) as u64 + *self.requests.ended(interface);
        match ends > there {
            true => self.fail_here(
                now,
                "it waits for more requests than were submitted",
                system,
            ),
            false => self.await_requests(now, Awaits::Ends(interface, ends)),
        }
    }

    /// Goes on in its phase when that has come.
    fn await_requests(&mut self, now: Nanos, awaits: Awaits) {
        self.requests.awaits = awaits;
        if self.state == State::Running && !self.has_awaited() {
            self.recorder.context_switch();
            self.state = State::AwaitsRequests(now);
        }
    }

    /// Whether what it waits for has come, which it takes then.
    fn has_awaited(&mut self) -> bool {
        let requests = &mut self.requests;
        let of_call = match &self
            .script
            .actions
            .get(self.action)
            .map(|action| &action.what)
        {
            Some(What::Submit { requests, .. } | What::Suspend(requests)) => &requests[..],
            _ => &[],
        };
        match requests.awaits {
            Awaits::One(number) => requests.is_idle(number),
            Awaits::AnyOfCall => {
                of_call.is_empty() || of_call.iter().any(|number| requests.is_idle(*number))
            }
            Awaits::AllOfCall => of_call.iter().all(|number| requests.is_idle(*number)),
            Awaits::Ends(interface, ends) => {
                let ended = requests.ended(interface);
                let is_over = *ended >= ends;
                *ended -= if is_over { ends } else { 0 };
                is_over
            }
            Awaits::Nothing => requests.of.iter().all(|of| of.stage == Stage::Idle),
        }
    }

    /// At its end, waits for what cannot be given up. Whether there is something.
    pub(super) fn awaits_last_requests(&mut self, now: Nanos) -> bool {
        let files = self.shared.borrow().handles.len();
        if self.requests.give_up(files) {
            return false;
        }
        self.await_requests(now, Awaits::Nothing);
        true
    }
}

/// What happens to requests.
impl ProgramProcess {
    fn begin_ready(&mut self, now: Nanos, system: &mut System) {
        self.requests.begin_drained();
        while let Some(number) = self.requests.ready.pop_front() {
            self.begin_request(now, number, system);
        }
    }

    fn begin_request(&mut self, now: Nanos, number: usize, system: &mut System) {
        let Some(work) = self.requests.work(number) else {
            return;
        };
        self.requests.of[number].stage = Stage::Running;
        if let Some(behind) = self.requests.of[number].next
            && let Some(Work::LinkTimeout(ns)) = self.requests.work(behind)
        {
            self.requests.of[behind].stage = Stage::Running;
            self.set_timeout(now, behind, ns, system);
        }
        match work {
            Work::Call(action) => match self.layer_call(action) {
                Ok(call) => {
                    system.begin_call(self.requests.of[number].task, call);
                    if self.requests.of[number].is_in_worker {
                        self.book(now, self.costs.context_switch, system);
                    }
                    self.go_on_in_request(now, number, system);
                }
                Err(errno) => self.end_request(now, number, Err(errno), system),
            },
            Work::Nop => self.end_request(now, number, Ok(0), system),
            Work::Timeout(ns) => self.set_timeout(now, number, ns, system),
            // It is linked behind nothing.
            Work::LinkTimeout(_) => self.end_request(now, number, Err(WRONG), system),
            Work::Cancel(other) => {
                let found = self.cancel(now, other, system);
                self.end_request(now, number, found, system);
            }
        }
    }

    fn set_timeout(&mut self, now: Nanos, number: usize, ns: u64, system: &mut System) {
        let due = now + Nanos(ns);
        self.requests.of[number].due = due;
        self.requests.due = self.requests.due.min(due);
        system.timers.set(due, self.id);
    }

    /// Takes a request back, if it can be (`io_try_cancel`): what the drive or a worker
    /// is at goes on.
    fn cancel(&mut self, now: Nanos, number: usize, system: &mut System) -> Result<u64, i32> {
        let request = &self.requests.of[number];
        match (request.stage, request.work) {
            (Stage::Running, Some((Work::Timeout(_), ..))) => {
                self.end_request(now, number, Err(TAKEN_BACK), system);
                Ok(0)
            }
            (Stage::Running, Some((Work::Call(_), ..))) if request.is_in_worker => Err(BEGUN),
            _ => Err(NOT_FOUND),
        }
    }

    /// Timeouts are over.
    pub(super) fn end_timeouts(&mut self, now: Nanos, system: &mut System) {
        if self.requests.due > now {
            return;
        }
        let is_due = |request: &Request| request.due <= now;
        while let Some(number) = self.requests.of.iter().position(is_due) {
            self.requests.of[number].due = Nanos::MAX;
            let before = (self.requests.of.iter()).position(|of| of.next == Some(number));
            match (self.requests.work(number), before) {
                (Some(Work::LinkTimeout(_)), Some(before)) => {
                    // What is linked behind it goes on behind the one before it.
                    let behind = self.requests.of[number].next.take();
                    self.requests.of[before].next = behind;
                    self.requests.drop_one(number);
                    // The request may be none that can be taken back.
                    let _ = self.cancel(now, before, system);
                }
                _ => self.end_request(now, number, Err(TIME_OVER), system),
            }
        }
        let due = self.requests.of.iter().map(|request| request.due).min();
        self.requests.due = due.unwrap_or(Nanos::MAX);
        self.requests_went_on(now, system);
    }

    /// A task of it was woken. Whether it is a request's.
    pub(super) fn request_woken(&mut self, now: Nanos, task: TaskId, system: &mut System) -> bool {
        let found = (self.requests.of.iter()).position(|request| request.task == task);
        let Some(number) = found else { return false };
        if self.requests.of[number].stage == Stage::Running {
            self.go_on_in_request(now, number, system);
            self.requests_went_on(now, system);
        }
        true
    }

    fn go_on_in_request(&mut self, now: Nanos, number: usize, system: &mut System) {
        let task = self.requests.of[number].task;
        let (progress, spent) = system.go_on_in_call(now, task, &self.as_submitter());
        self.recorder.spent(Mode::System, spent.0);
        match progress {
            Progress::Over(returned) => {
                let returned = returned.map_err(FsError::errno);
                self.end_request(now, number, returned, system);
            }
            Progress::AwaitsTag(disk, waiter) => self.await_tag(number, (disk, waiter), system),
            Progress::Waits => {}
        }
    }

    fn await_tag(&mut self, number: usize, (disk, waiter): (usize, Waiter), system: &mut System) {
        system.tag_waiters[disk].push(waiter.ticket, self.id);
        self.requests.waiting.push((disk, waiter, number));
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
        let Some(place) = self.requests.waiting.iter().position(is_meant) else {
            return;
        };
        let (_, waiter, number) = self.requests.waiting.remove(place);
        let on = (self.requests.of[number].task, waiter);
        let (taken, spent) = system.resume_in_call(now, disk, on, &self.as_submitter());
        self.recorder.spent(Mode::System, spent.0);
        match taken {
            Submit::Done => {
                self.go_on_in_request(now, number, system);
                self.requests_went_on(now, system);
            }
            Submit::Blocked(waiter) => self.await_tag(number, (disk, waiter), system),
        }
    }

    /// Some may have ended: others begin, and the program goes on if it waited for that.
    fn requests_went_on(&mut self, now: Nanos, system: &mut System) {
        self.begin_ready(now, system);
        if let State::AwaitsRequests(since) = self.state
            && self.has_awaited()
        {
            self.times().waits_ns += now.saturating_sub(since).0;
            self.wake_up(now, system);
        }
    }

    /// A request has ended.
    fn end_request(
        &mut self,
        now: Nanos,
        number: usize,
        returned: Result<u64, i32>,
        system: &mut System,
    ) {
        let Some((work, how, line)) = self.requests.of[number].work else {
            return;
        };
        let interface = self.requests.of[number].interface;
        self.requests.drop_one(number);
        let mut is_whole = returned.is_ok();
        if let Work::Call(action) = work {
            is_whole &= self.is_whole(action, returned);
            self.call_of_request_over(now, (number, action, line), returned, system);
        }
        match interface {
            Interface::Posix => {
                let file = self.file_of(number).unwrap_or(0);
                let next = self.requests.threads.done(file);
                (self.requests.ready).extend(next.map(|next| next as usize));
            }
            Interface::Linux => {}
            Interface::IoUring => {
                self.follow(number, is_whole || how.hardlink);
                self.requests.begin_drained();
            }
        }
    }

    /// What is linked behind a request begins, or is taken back with all behind it
    /// (`io_fail_links`).
    fn follow(&mut self, number: usize, goes_on: bool) {
        let mut next = self.requests.of[number].next.take();
        if let Some(timeout) = next
            && let Some(Work::LinkTimeout(_)) = self.requests.work(timeout)
        {
            next = self.requests.of[timeout].next.take();
            self.requests.drop_one(timeout);
        }
        let Some(first) = next else { return };
        if goes_on {
            let is_in_worker = self.is_for_worker(first, Interface::IoUring);
            self.requests.of[first].is_in_worker = is_in_worker;
            return self.requests.ready.push_back(first);
        }
        while let Some(linked) = next {
            next = self.requests.of[linked].next.take();
            self.requests.drop_one(linked);
        }
    }

    /// Whether a request's call did all that it was to do.
    fn is_whole(&self, action: usize, returned: Result<u64, i32>) -> bool {
        match self.script.actions[action].what {
            What::OnFile {
                call: OnFile::Read { bytes, .. } | OnFile::Write { bytes, .. },
                ..
            } => returned == Ok(bytes),
            _ => returned.is_ok(),
        }
    }

    /// The call that a request makes is over.
    fn call_of_request_over(
        &mut self,
        now: Nanos,
        (number, action, line): (usize, usize, u32),
        returned: Result<u64, i32>,
        system: &mut System,
    ) {
        if self.state == State::Exited {
            return;
        }
        let copied = self.copy_cost(action, returned);
        self.book(now, copied, system);
        let began = self.requests.of[number].began;
        self.record(now, (action, began), returned);
        if let Ok(returned) = returned {
            self.returned(action, returned);
        }
        let kind = self.script.actions[action].kind;
        if let Some(wrong) = self.is_wrong(action, returned) {
            self.fail(now, (line, kind, &wrong), system);
        }
    }

    /// Has its CPU do something for a request, beside what the program does.
    fn book(&mut self, now: Nanos, cost: Nanos, system: &mut System) {
        if !self.costs.free && cost > Nanos::ZERO {
            self.recorder.spent(Mode::System, cost.0);
            system.cpus.run(self.cpu, now, cost, Mode::System);
        }
    }

    /// Its call does not do what its line says.
    fn fail_here(&mut self, now: Nanos, what: &str, system: &mut System) {
        let (line, kind) = {
            let action = &self.script.actions[self.action];
            (action.line, action.kind)
        };
        self.fail(now, (line, kind, what), system);
    }
}

/// What is wrong with a request that is prepared or submitted before its end.
const UNDER_WAY: &str = "a request is still under way";
