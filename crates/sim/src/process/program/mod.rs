//! The processes and threads of a list of calls. Each makes its calls one after the
//! other.
//!
//! Programs are spread over the CPUs in order. A call or a stretch of computing is not
//! preempted by another program on the same CPU.

mod asynchronous;
mod script;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use blklab_blk::{CgroupId, IoClass, IoPrio, IoStatus, Nanos, Submit, SubmitterId, Waiter};
use blklab_fs::{FsError, MmapAdvice, NodePages, PAGE_BYTES};
use blklab_stats::{
    CallSpan, CallTimes, DEFAULT_PERCENTILES, JobResults, LatencyTarget, ProcessResults,
};
use blklab_workload::calls::{CALLS, CallList, Errno, Program};
use blklab_workload::fio::{Direction, SyncKind};

use crate::cpu::{CostTable, Mode};
use crate::disk::Disk;
use crate::file_layer::{Call, FileLayer, Progress, Route, Submitter, TaskId, pages_of};
use crate::process::recorder::Recorder;
use crate::setup::SetupError;
use crate::system::System;
use asynchronous::Requests;
use script::{Instruction, Names, Numbers, OnFile, Op, Open, Script};
pub(crate) use script::{NO_FILES, prepared};

/// fio's default `bwavgtime`.
const WINDOW: Nanos = Nanos::from_millis(500);

/// The index of the program's exit, after those of the calls.
const EXIT: usize = CALLS.len();

/// The I/O priority of a program: it has none of its own.
const PRIO: IoPrio = IoPrio {
    class: IoClass::Be,
    level: 4,
};

/// What a program is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not started by another program yet.
    AwaitsStart,
    /// Decides what to do next.
    Running,
    /// On its CPU until then.
    Busy(Nanos),
    /// Sleeps until then.
    Asleep(Nanos),
    /// Its call has slept since then.
    AwaitsCall(Nanos),
    /// Its call has slept for a tag of the block layer since then.
    AwaitsTag(Nanos),
    /// Has its tag, and continues when all waiters that were woken with it have tried.
    HasTag,
    /// Has waited for its own requests since then.
    AwaitsRequests(Nanos),
    /// Has waited for this many signals since then.
    AwaitsSignals(Nanos, u64),
    /// Waits until the program with this number has ended.
    AwaitsProgram(usize),
    /// Ended.
    Exited,
}

/// How far a program is in its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before its next instruction.
    Between,
    /// The kernel has been entered.
    Entered,
    /// The file layer is at work.
    InCall,
    /// Submits the requests of its call, from this place on.
    Submitting(usize),
    /// Returns to user space with this result.
    Leaving(Result<u64, Errno>),
    /// Ends: looks for the next open file of its process.
    Ending,
    /// Ends: closes an open file.
    Closing,
}

/// What the threads of a process share.
#[derive(Debug, Default)]
struct Shared {
    /// Its open files.
    handles: Vec<Option<Open>>,
    /// How many threads have not ended.
    threads: usize,
    /// Those of them that run when requests complete.
    handlers: Vec<usize>,
    /// Pages of memory that it has taken.
    memory: NodePages,
    /// Signals that are queued for it.
    signals: u64,
    /// Signals that outstanding requests will send.
    signals_to_come: u64,
    /// Programs that wait for signals.
    signal_waiters: Vec<usize>,
}

impl Shared {
    /// Threads that have not ended, without those that run when requests complete.
    fn others(&self) -> usize {
        self.threads - self.handlers.len()
    }
}

/// Which programs of a list have started and ended.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable {
    names: Vec<String>,
    started: Vec<bool>,
    ended: Vec<bool>,
    /// By program, for how many completed requests it has yet to run.
    notified: Vec<u64>,
    /// By program, the programs that wait for its end.
    waiters: Vec<Vec<usize>>,
    /// A program has failed, or the run is broken off: none is started any more.
    is_ending: bool,
}

/// A process of a list, or a thread of one.
pub(crate) struct ProgramProcess {
    id: usize,
    cpu: usize,
    costs: CostTable,
    task: TaskId,
    /// The list's file.
    list: String,
    script: Script,
    /// The next instruction.
    next: usize,
    /// Repetitions left of the loops that it is in, the innermost last.
    left: Vec<u64>,
    /// The current action.
    action: usize,
    /// The kind of its call, as an index into `CALLS`, or `EXIT`.
    kind: usize,
    state: State,
    phase: Phase,
    /// It runs each time that a request completes which names it.
    is_handler: bool,
    waiter: Option<(usize, Waiter)>,
    requests: Requests,
    shared: Rc<RefCell<Shared>>,
    process_table: Rc<RefCell<ProcessTable>>,
    recorder: Recorder,
    /// When its call began.
    called: Nanos,
    /// By kind of call, their number, errors and times.
    times: Vec<CallTimes>,
    failure: Option<SetupError>,
}

/// The programs of a list, numbered from 0.
///
/// # Errors
/// If a call cannot be simulated.
pub(crate) fn programs(
    (list, file): (&CallList, &str),
    (layer, drive): (&mut FileLayer, (&Disk, u64)),
    costs: CostTable,
    cpus: usize,
) -> Result<Vec<ProgramProcess>, SetupError> {
    let mut names = Names {
        layer,
        file,
        list,
        drive,
        handles: Numbers::default(),
        requests: Numbers::default(),
    };
    let scripts = list.programs.iter().map(|program| names.script(program));
    let scripts: Result<Vec<Script>, _> = scripts.collect();
    let scripts = scripts.map_err(|error| SetupError::Calls(error.to_string()))?;
    let numbers = names.handles;
    let mut shared: BTreeMap<&str, Rc<RefCell<Shared>>> = BTreeMap::new();
    let process_table = Rc::new(RefCell::new(ProcessTable {
        names: (list.programs.iter())
            .map(|program| program.name.to_string())
            .collect(),
        started: vec![false; scripts.len()],
        ended: vec![false; scripts.len()],
        notified: vec![0; scripts.len()],
        waiters: vec![Vec::new(); scripts.len()],
        is_ending: false,
    }));
    let names = CALLS.iter().map(|call| call.name).chain(["exit"]);
    let kinds: Vec<CallTimes> = names.map(CallTimes::new).collect();
    let mut all = Vec::new();
    for ((id, program), script) in list.programs.iter().enumerate().zip(scripts) {
        let process = program.name.process.as_str();
        let handles = numbers.count(process);
        let of_process = shared.entry(process).or_insert_with(|| {
            Rc::new(RefCell::new(Shared {
                handles: vec![None; handles],
                ..Shared::default()
            }))
        });
        let is_handler = list.is_notified(&program.name);
        {
            let mut shared = of_process.borrow_mut();
            shared.threads += 1;
            shared.handlers.extend(is_handler.then_some(id));
        }
        let is_started = is_handler || list.is_started_by_another(&program.name);
        all.push(ProgramProcess {
            id,
            cpu: id % cpus,
            costs,
            task: layer.add_caller(id),
            requests: Requests::new(layer, id, (script.requests, handles)),
            list: file.to_string(),
            script,
            next: 0,
            left: Vec::new(),
            action: 0,
            kind: 0,
            state: match is_started {
                true => State::AwaitsStart,
                false => State::Running,
            },
            phase: Phase::Between,
            is_handler,
            waiter: None,
            shared: Rc::clone(of_process),
            process_table: Rc::clone(&process_table),
            recorder: recorder(program),
            called: Nanos::ZERO,
            times: kinds.clone(),
            failure: None,
        });
    }
    Ok(all)
}

fn recorder(program: &Program) -> Recorder {
    let results = JobResults {
        name: program.name.to_string(),
        members: 1,
        latency_target: LatencyTarget::none(1),
        percentiles: DEFAULT_PERCENTILES.to_vec(),
        ..JobResults::default()
    };
    Recorder::new(results, WINDOW, Nanos::ZERO)
}

/// Events of a program.
impl ProgramProcess {
    /// Starts with the run, unless another program has to start it.
    pub(crate) fn start(&mut self, now: Nanos, system: &mut System) {
        if self.state == State::Running {
            self.begin(now, system);
        }
    }

    fn begin(&mut self, now: Nanos, system: &mut System) {
        self.has_started(now);
        self.run(now, system);
    }

    fn has_started(&mut self, now: Nanos) {
        // One that runs when requests complete is measured from its first run on.
        let was_started =
            std::mem::replace(&mut self.process_table.borrow_mut().started[self.id], true);
        if !(was_started && self.is_handler) {
            self.recorder.start(now);
        }
        self.state = State::Running;
    }

    /// Runs for the next completed request; it ends with the other threads of its process.
    fn handle_next(&mut self, now: Nanos, system: &mut System) {
        let is_wanted = {
            let notified = &mut self.process_table.borrow_mut().notified[self.id];
            let is_wanted = *notified > 0;
            *notified -= u64::from(is_wanted);
            is_wanted
        };
        if is_wanted {
            self.next = 0;
            self.has_started(now);
            let cost = self.costs.thread + self.costs.context_switch;
            if !self.occupy(now, cost, Mode::System, system) {
                self.run(now, system);
            }
            return;
        }
        if self.shared.borrow().others() == 0 {
            self.is_handler = false;
            let id = self.id;
            self.shared
                .borrow_mut()
                .handlers
                .retain(|other| *other != id);
            self.next = self.script.instructions.len();
            self.state = State::Running;
            self.run(now, system);
        }
    }

    /// Its timer has expired.
    pub(crate) fn on_timer(&mut self, now: Nanos, system: &mut System) {
        self.end_timeouts(now, system);
        if matches!(self.state, State::Busy(at) | State::Asleep(at) if at <= now) {
            self.state = State::Running;
            self.run(now, system);
        }
    }

    /// Its call was woken, or another program has started it or has ended.
    pub(crate) fn on_turn(&mut self, now: Nanos, system: &mut System) {
        while let Some(task) = system.take_woken(self.id) {
            if self.request_woken(now, task, system) {
                continue;
            }
            if let State::AwaitsCall(since) = self.state {
                self.times().waits_ns += now.saturating_sub(since).0;
                self.wake_up(now, system);
            }
        }
        let (is_ending, is_started) = {
            let table = self.process_table.borrow();
            (table.is_ending, table.started[self.id])
        };
        if let State::AwaitsSignals(since, signals) = self.state
            && !is_ending
            && self.has_taken_signals(now, signals, system)
        {
            self.times().waits_ns += now.saturating_sub(since).0;
            return self.wake_up(now, system);
        }
        match self.state {
            State::AwaitsStart | State::AwaitsSignals(..) if is_ending => self.exit(now, system),
            State::AwaitsStart if self.is_handler => self.handle_next(now, system),
            State::AwaitsStart if is_started => self.begin(now, system),
            State::AwaitsProgram(other)
                if is_ending || self.process_table.borrow().ended[other] =>
            {
                self.times().waits_ns += now.saturating_sub(self.called).0;
                self.wake_up(now, system);
            }
            _ => {}
        }
    }

    /// What it slept for has come: its CPU switches to it.
    fn wake_up(&mut self, now: Nanos, system: &mut System) {
        self.state = State::Running;
        if !self.spend(now, self.costs.context_switch, Mode::System, system) {
            self.run(now, system);
        }
    }

    /// The block layer lets it try again to get a tag.
    pub(crate) fn on_tag(&mut self, now: Nanos, (disk, ticket): (usize, u64), system: &mut System) {
        let Some((_, waiter)) = self
            .waiter
            .take_if(|(on, w)| *on == disk && w.ticket == ticket)
        else {
            return self.on_request_tag(now, (disk, ticket), system);
        };
        let on = (self.task, waiter);
        let (taken, spent) = system.resume_in_call(now, disk, on, &self.as_submitter());
        self.spent_in_kernel(spent);
        match taken {
            Submit::Done => {
                if let State::AwaitsTag(since) = self.state {
                    self.times().tag_ns += now.saturating_sub(since).0;
                }
                self.state = State::HasTag;
            }
            Submit::Blocked(waiter) => self.sleep_for_tag(disk, waiter, system),
        }
    }

    /// All waiters that were woken with it have tried.
    pub(crate) fn on_all_tried(&mut self, now: Nanos, system: &mut System) {
        if self.state == State::HasTag {
            self.wake_up(now, system);
        }
    }
}

/// The calls of a program.
impl ProgramProcess {
    /// Runs until it has to wait for something.
    fn run(&mut self, now: Nanos, system: &mut System) {
        while self.state == State::Running {
            match self.phase {
                Phase::Between => self.next(now, system),
                Phase::Entered => self.enter(now, system),
                Phase::InCall | Phase::Closing => self.go_on(now, system),
                Phase::Submitting(place) => self.submit_from(now, place, system),
                Phase::Leaving(returned) => self.leave(now, returned, system),
                Phase::Ending => self.close_next(now, system),
            }
        }
    }

    /// Goes to its next call.
    fn next(&mut self, now: Nanos, system: &mut System) {
        let Some(&instruction) = self.script.instructions.get(self.next) else {
            return self.end(now, system);
        };
        self.next += 1;
        match instruction {
            Instruction::Repeat { times: 0, end } => self.next = end + 1,
            Instruction::Repeat { times, .. } => self.left.push(times),
            Instruction::End { begin } => {
                if let Some(left) = self.left.last_mut() {
                    *left -= 1;
                    match *left {
                        0 => {
                            self.left.pop();
                        }
                        _ => self.next = begin + 1,
                    }
                }
            }
            Instruction::Act(action) => {
                self.action = action;
                self.kind = self.script.actions[action].kind;
                self.called = now;
                self.act(now, system);
            }
        }
    }

    fn act(&mut self, now: Nanos, system: &mut System) {
        match self.script.actions[self.action].op {
            Op::Sleep(ns) => {
                self.phase = Phase::Leaving(Ok(0));
                self.state = State::Asleep(now + Nanos(ns));
                system.timers.set(now + Nanos(ns), self.id);
            }
            Op::Think(ns) => {
                self.phase = Phase::Leaving(Ok(0));
                self.spend(now, Nanos(ns), Mode::User, system);
            }
            Op::TakeMemory(pages) if pages > system.memory_left() => {
                let left_mib = system.memory_left() * PAGE_BYTES / (1 << 20);
                let wrong = format!(
                    "of the machine's memory {left_mib}M are left for programs, and Linux would \
                     kill one; ask for less, or run it with more --memory"
                );
                let line = self.script.actions[self.action].line;
                self.fail(now, (line, self.kind, &wrong), system);
            }
            Op::TakeMemory(pages) => {
                let remote_pages = {
                    let held = &mut self.shared.borrow_mut().memory;
                    system.take_memory(now, self.cpu, (pages, held))
                };
                // The kernel clears a page, and the program writes to it.
                let cost = self.call_cost() + self.costs.remote_pages(2 * remote_pages);
                self.phase = Phase::Leaving(Ok(0));
                self.spend(now, cost, Mode::System, system);
            }
            Op::GiveMemory(pages) => {
                self.phase = Phase::Leaving(self.give_memory(now, pages, system));
                self.spend(now, self.call_cost(), Mode::System, system);
            }
            Op::Start(other) => {
                self.process_table.borrow_mut().started[other] = true;
                system.next_turn.push_back(other);
                self.phase = Phase::Leaving(Ok(0));
            }
            Op::Wait(other) => {
                self.phase = Phase::Leaving(Ok(0));
                let mut table = self.process_table.borrow_mut();
                if !table.ended[other] {
                    table.waiters[other].push(self.id);
                    self.state = State::AwaitsProgram(other);
                }
            }
            // Mapped memory is touched, and a request filled in, without a system call.
            Op::OnFile {
                call: OnFile::Touch { .. },
                ..
            }
            | Op::Request { begins: false, .. }
            | Op::Notify { .. }
                if !self.costs.free =>
            {
                self.phase = Phase::Entered;
            }
            _ => {
                self.phase = Phase::Entered;
                self.spend(now, self.call_cost(), Mode::System, system);
            }
        }
    }

    /// Gives memory of the process back, unless it has not so much.
    fn give_memory(&self, now: Nanos, pages: u64, system: &mut System) -> Result<u64, Errno> {
        let given = self.shared.borrow_mut().memory.split(pages);
        system.give_memory(now, &given.ok_or(Errno::EINVAL)?);
        Ok(0)
    }

    /// The cost of entering the kernel. On a machine whose CPUs cost nothing it is that of
    /// a cached page: otherwise time would stand still for a program that calls forever.
    fn call_cost(&self) -> Nanos {
        match self.costs.free {
            true => self.costs.cached_pages(false, 1),
            false => self.costs.syscall,
        }
    }

    /// Begins its call in the file layer.
    fn enter(&mut self, now: Nanos, system: &mut System) {
        if let Op::Request { .. }
        | Op::Submit { .. }
        | Op::Suspend(_)
        | Op::Notify { .. }
        | Op::TakeSignals(_)
        | Op::TakeEvents(_)
        | Op::CancelOf { .. } = self.script.actions[self.action].op
        {
            return self.enter_requests(now, system);
        }
        match self.layer_call(self.action, false) {
            Ok(call) => {
                system.begin_call(self.task, call);
                self.phase = Phase::InCall;
                self.go_on(now, system);
            }
            Err(errno) => self.phase = Phase::Leaving(Err(errno)),
        }
    }

    /// The call of an action for the file layer. `is_async`: the kernel does not wait for
    /// its end.
    fn layer_call(&self, action: usize, is_async: bool) -> Result<Call, Errno> {
        match &self.script.actions[action].op {
            Op::Open { open, .. } => Ok(Call::OpenFile {
                file: open.file,
                flags: open.flags,
            }),
            Op::OnFile { handle, call } => {
                let opened = self.shared.borrow().handles[*handle];
                Ok(on_file(opened.ok_or(Errno::EBADF)?, *call, is_async))
            }
            Op::Other(call) => Ok(*call),
            Op::Refused(errno) => Err(*errno),
            _ => Err(Errno::EBADF),
        }
    }

    /// Continues its call until it ends or waits.
    fn go_on(&mut self, now: Nanos, system: &mut System) {
        let throttled = system.throttled();
        let (progress, spent) = system.go_on_in_call(now, self.task, &self.as_submitter());
        self.times().throttled_ns += system.throttled().saturating_sub(throttled).0;
        self.spent_in_kernel(spent);
        // It sleeps when its CPU has done what the call had it do.
        let asleep = match spent > Nanos::ZERO {
            true => system.cpus.free_at(self.cpu).max(now),
            false => now,
        };
        match progress {
            Progress::Over(returned) => {
                self.over(now, returned, system);
                if spent > Nanos::ZERO && self.state == State::Running {
                    self.await_cpu(now, system);
                }
            }
            Progress::AwaitsTag(disk) => {
                self.state = State::AwaitsTag(asleep);
                if let Some(waiter) = system.take_waiter(self.task) {
                    self.sleep_for_tag(disk, waiter, system);
                }
            }
            Progress::Waits => {
                self.recorder.context_switch();
                self.state = State::AwaitsCall(asleep);
            }
        }
    }

    /// It goes on when its CPU has done what the call had it do.
    fn await_cpu(&mut self, now: Nanos, system: &mut System) {
        let until = system.cpus.free_at(self.cpu).max(now);
        self.state = State::Busy(until);
        system.timers.set(until, self.id);
    }

    fn sleep_for_tag(&mut self, disk: usize, waiter: Waiter, system: &mut System) {
        system.tag_waiters[disk].push(waiter.ticket, self.id);
        self.waiter = Some((disk, waiter));
    }

    /// The file layer has completed the call.
    fn over(&mut self, now: Nanos, returned: Result<u64, FsError>, system: &mut System) {
        if self.phase == Phase::Closing {
            // No program sees the error of closing at exit.
            self.phase = Phase::Ending;
            return;
        }
        let returned = returned.map_err(|error| Errno(error.errno()));
        self.phase = Phase::Leaving(returned);
        let copied = self.copy_cost(self.action, returned);
        self.spend(now, copied, Mode::System, system);
    }

    /// The open file of an action's call, and the call.
    fn on_open_file(&self, action: usize) -> Option<(Open, OnFile)> {
        let Op::OnFile { handle, call } = self.script.actions[action].op else {
            return None;
        };
        let open = self.shared.borrow().handles[handle]?;
        Some((open, call))
    }

    /// The cost of copying data to or from the page cache, and of `list_all`'s `lstat`s.
    fn copy_cost(&self, action: usize, returned: Result<u64, Errno>) -> Nanos {
        if let (Op::Other(Call::ListAll { .. }), Ok(names)) =
            (&self.script.actions[action].op, returned)
        {
            return Nanos(self.call_cost().0 * names);
        }
        let (Some((open, call)), Ok(bytes @ 1..)) = (self.on_open_file(action), returned) else {
            return Nanos::ZERO;
        };
        let (is_write, at) = match call {
            OnFile::Read { at, .. } if !open.direct => (false, at.unwrap_or(0)),
            OnFile::Write { at, .. } if !open.direct => (true, at.unwrap_or(0)),
            OnFile::Touch { at, write, .. } => (write, at),
            _ => return Nanos::ZERO,
        };
        self.costs.cached_pages(is_write, pages_of(at, bytes))
    }

    /// Its call has returned: compares the result with the one that the list expects.
    fn leave(&mut self, now: Nanos, returned: Result<u64, Errno>, system: &mut System) {
        self.phase = Phase::Between;
        self.count_call(now, returned.ok(), system);
        self.record(now, (self.action, self.called, 1), returned);
        match (self.mismatch(self.action, returned), returned) {
            (Some(mismatch), _) => {
                let action = &self.script.actions[self.action];
                let (line, kind) = (action.line, action.kind);
                self.fail(now, (line, kind, &mismatch), system);
            }
            (None, Ok(_)) => self.returned(self.action),
            (None, Err(_)) => {}
        }
    }

    /// Counts the call that it is in, which has returned; `None` if it failed.
    fn count_call(&mut self, now: Nanos, returned: Option<u64>, system: &mut System) {
        let took_ns = now.saturating_sub(self.called).0;
        self.times().ended(took_ns, returned);
        system.call_returned(CallSpan {
            process: self.id as u32,
            call: self.times[self.kind].call,
            start_ns: self.called.0,
            end_ns: now.0,
            returned,
        });
    }

    /// How the result of an action differs from the one that its line expects.
    fn mismatch(&self, action: usize, returned: Result<u64, Errno>) -> Option<String> {
        let action = &self.script.actions[action];
        match (returned, action.error) {
            (Ok(_), None) => None,
            (Err(errno), Some(expected)) if expected == errno => None,
            // A call that the file system does not have may fail.
            (Err(_), None) if matches!(action.op, Op::Refused(_)) => None,
            (Ok(_), Some(expected)) => Some(format!(
                "it does not fail with {}; right is without the = {0}, if it is to succeed",
                expected.name()
            )),
            (Err(errno), _) => Some(format!(
                "it fails with {}; {}",
                errno.name(),
                errno.remedy()
            )),
        }
    }

    /// A call has succeeded: notes which files are open.
    fn returned(&mut self, action: usize) {
        let mut shared = self.shared.borrow_mut();
        match self.script.actions[action].op {
            Op::Open { handle, open } => shared.handles[handle] = Some(open),
            Op::OnFile {
                handle,
                call: OnFile::Close,
            } => shared.handles[handle] = None,
            _ => {}
        }
    }

    /// Records a read, write or sync, with how many requests were outstanding at its start, in
    /// the figures that a job has too.
    fn record(
        &mut self,
        now: Nanos,
        (action, began, depth): (usize, Nanos, u32),
        returned: Result<u64, Errno>,
    ) {
        let Some((_, call)) = self.on_open_file(action) else {
            return;
        };
        let dir = match call {
            OnFile::Read { .. } | OnFile::Touch { write: false, .. } => Direction::Read,
            OnFile::Write { .. } | OnFile::Touch { write: true, .. } => Direction::Write,
            OnFile::Sync(_) if returned.is_ok() => {
                let kind = Some(SyncKind::Fsync);
                return self.recorder.synced(kind, began, now, IoStatus::Ok);
            }
            _ => return,
        };
        if let Ok(bytes) = returned {
            self.recorder.submitted(depth, 1);
            self.recorder.reaped(1);
            (self.recorder).completed(now, dir, bytes, began, began, true, IoStatus::Ok);
        }
    }

    /// A call did not do what its line expects: the run ends.
    fn fail(&mut self, now: Nanos, (line, kind, what): (u32, usize, &str), system: &mut System) {
        if self.state == State::Exited {
            return;
        }
        let message = format!("{}:{line}: {}: {what}", self.list, CALLS[kind].name);
        self.failure = Some(SetupError::Calls(message));
        self.start_no_more(system);
        self.exit(now, system);
    }

    /// Programs that wait for another, or to be started, end.
    fn start_no_more(&mut self, system: &mut System) {
        let mut table = self.process_table.borrow_mut();
        if !std::mem::replace(&mut table.is_ending, true) {
            system.next_turn.extend(0..table.ended.len());
        }
    }

    /// Has it make no further call. The one that it is in goes on to its end.
    pub(crate) fn stop(&mut self, now: Nanos, system: &mut System) {
        self.next = self.script.instructions.len();
        if let State::Asleep(until) = &mut self.state {
            *until = now;
            system.timers.set(now, self.id);
        }
        self.start_no_more(system);
    }

    /// The end of a program: the last thread of a process closes its files.
    fn end(&mut self, now: Nanos, system: &mut System) {
        if self.is_handler {
            self.state = State::AwaitsStart;
            return system.next_turn.push_back(self.id);
        }
        if self.kind != EXIT {
            (self.kind, self.called) = (EXIT, now);
        }
        if self.awaits_last_requests(now, system) {
            return;
        }
        let threads = self.shared.borrow().threads;
        match threads {
            1 => self.phase = Phase::Ending,
            _ => self.exit(now, system),
        }
    }

    fn close_next(&mut self, now: Nanos, system: &mut System) {
        let next = {
            let mut shared = self.shared.borrow_mut();
            let open = shared.handles.iter_mut().find(|opened| opened.is_some());
            open.and_then(Option::take)
        };
        let Some(open) = next else {
            self.count_call(now, Some(0), system);
            return self.exit(now, system);
        };
        self.phase = Phase::Closing;
        system.begin_call(self.task, Call::Close { file: open.file });
    }

    fn exit(&mut self, now: Nanos, system: &mut System) {
        self.state = State::Exited;
        self.recorder.end(now);
        let left = {
            let mut shared = self.shared.borrow_mut();
            shared.threads -= 1;
            if shared.others() == 0 {
                system.next_turn.extend(shared.handlers.iter().copied());
            }
            let waiters = std::mem::take(&mut shared.signal_waiters);
            let id = self.id;
            system
                .next_turn
                .extend(waiters.into_iter().filter(|waiter| *waiter != id));
            match shared.threads {
                0 => std::mem::take(&mut shared.memory),
                _ => NodePages::default(),
            }
        };
        system.give_memory(now, &left);
        let mut table = self.process_table.borrow_mut();
        table.ended[self.id] = true;
        let waiters = std::mem::take(&mut table.waiters[self.id]);
        system.next_turn.extend(waiters);
    }

    /// Spends time on its CPU in a call. Returns whether it has to wait for that.
    fn spend(&mut self, now: Nanos, cost: Nanos, mode: Mode, system: &mut System) -> bool {
        self.times().cpu_ns += cost.0;
        self.occupy(now, cost, mode, system)
    }

    /// Has its CPU work for it. Returns whether it has to wait for that.
    fn occupy(&mut self, now: Nanos, cost: Nanos, mode: Mode, system: &mut System) -> bool {
        if cost == Nanos::ZERO {
            return false;
        }
        let until = match self.costs.free {
            true => now + cost,
            false => {
                let cost = system.cpus.slowdown(self.cpu, now).of(cost);
                self.recorder.spent(mode, cost.0);
                system.cpus.run(self.cpu, now, cost, mode)
            }
        };
        self.state = State::Busy(until);
        system.timers.set(until, self.id);
        true
    }

    fn spent_in_kernel(&mut self, spent: Nanos) {
        if spent > Nanos::ZERO {
            self.recorder.spent(Mode::System, spent.0);
            self.times().cpu_ns += spent.0;
        }
    }

    /// The figures of the kind of call that it is in.
    fn times(&mut self) -> &mut CallTimes {
        &mut self.times[self.kind]
    }

    fn as_submitter(&self) -> Submitter<'_> {
        Submitter {
            pid: self.id,
            id: self.submitter(),
            cpu: self.cpu,
            prio: PRIO,
            cgroup: CgroupId::ROOT,
            costs: &self.costs,
        }
    }
}

/// The most bytes that one call reads or writes (`MAX_RW_COUNT` in Linux's `fs.h`); the program
/// learns from its result that it was not all.
const RW_BYTES_MAX: u64 = i32::MAX as u64 / PAGE_BYTES * PAGE_BYTES;

/// A call on an open file for the file layer.
fn on_file(open: Open, call: OnFile, is_async: bool) -> Call {
    let Open {
        file, direct, sync, ..
    } = open;
    let route = Route::of(direct, is_async);
    let capped = |bytes: u64| bytes.min(RW_BYTES_MAX);
    match call {
        OnFile::Close => Call::Close { file },
        OnFile::Read { bytes, at } => match at {
            Some(at) => Call::Read {
                file,
                at,
                bytes: capped(bytes),
                route,
            },
            None => Call::ReadOn {
                file,
                bytes: capped(bytes),
                route,
            },
        },
        OnFile::Write { bytes, at } => match at {
            Some(at) => Call::Write {
                file,
                at,
                bytes: capped(bytes),
                route,
                sync,
            },
            None => Call::WriteOn {
                file,
                bytes: capped(bytes),
                route,
                sync,
            },
        },
        OnFile::Seek { to } => Call::Seek { file, to },
        OnFile::Sync(what) => Call::Sync { file, what },
        OnFile::SyncRange { at, bytes, what } => Call::SyncRange {
            file,
            at,
            bytes,
            what,
        },
        OnFile::Resize { bytes } => Call::Resize { file, bytes },
        OnFile::Advise { at, bytes, advice } => Call::Advise {
            file,
            at,
            bytes,
            advice,
        },
        OnFile::Readahead { at, bytes } => Call::Readahead { file, at, bytes },
        OnFile::ReadDir => Call::ReadDir { file },
        OnFile::Map { bytes } => Call::Map {
            file,
            bytes,
            access: MmapAdvice::Normal,
        },
        OnFile::AdviseMapping(access) => Call::AdviseMapping { file, access },
        OnFile::Touch { at, bytes, write } => Call::Touch {
            file,
            at,
            bytes,
            write,
        },
        OnFile::SyncMapping => Call::SyncMapping { file },
        OnFile::Unmap => Call::Unmap { file },
        OnFile::CountCached => Call::CountCached { file },
    }
}

/// State and results.
impl ProgramProcess {
    pub(crate) fn cpu(&self) -> usize {
        self.cpu
    }

    pub(crate) fn has_exited(&self) -> bool {
        self.state == State::Exited
    }

    pub(crate) fn awaits_io(&self) -> bool {
        matches!(self.state, State::AwaitsCall(_) | State::AwaitsRequests(_))
    }

    pub(crate) fn submitter(&self) -> SubmitterId {
        SubmitterId(self.id as u32)
    }

    /// Which line waits for what never comes, in a run in which nothing happens any more.
    pub(crate) fn waits_in_vain(&self) -> Option<String> {
        let State::AwaitsProgram(other) = self.state else {
            return None;
        };
        let (list, line) = (&self.list, self.script.actions[self.action].line);
        let other = &self.process_table.borrow().names[other];
        Some(format!("{list}:{line}: wait: {other} does not end"))
    }

    /// Checks that its calls did what the list expects.
    ///
    /// # Errors
    /// The first call that did not.
    pub(crate) fn check(&mut self) -> Result<(), SetupError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Its results.
    pub(crate) fn into_results(self) -> JobResults {
        let number = self.id as u32;
        let mut job = self.recorder.into_results(number);
        let own = ProcessResults {
            job: job.name.clone(),
            process: number,
            runtime_ns: job.runtime_ns,
            finished: true,
            ..ProcessResults::default()
        };
        job.processes = vec![own.with_io([&job.read, &job.write, &job.trim])];
        let made = self.times.into_iter().filter(|times| times.calls > 0);
        job.calls = made.collect();
        job
    }
}
