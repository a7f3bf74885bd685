//! A process whose I/O is not direct, or is of files: its calls into the page cache and
//! the file system.
//!
//! One of a synchronous engine waits in the call, and so does one of libaio, in
//! `io_submit`. For posixaio a thread calls. io_uring has tried without waiting and
//! goes on with an I/O when what it lacks is there, as a worker would; where it cannot try,
//! a worker makes the call.

use blklab_blk::{IoStatus, Nanos, Submit, Waiter};
use blklab_fs::{Advice, FsError, MmapAdvice, OpenFlags};
use blklab_workload::fio::{Direction, Engine, FadviseHint, JobSpec, SyncKind, SyncMode};

use super::{FlushFor, JobProcess, Phase, PlacedFiles, TaskState};
use crate::cpu::Mode;
use crate::disk::Disk;
use crate::file_layer::{
    Call, Durability, FileId, FileLayer, PathId, Progress, Route, Submitter, TaskId, pages_of,
};
use crate::process::io_workers::IoWorkers;
use crate::system::System;

/// What a process is in a call for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallFor {
    /// Opening the file of that number before the job begins, to read it (`pre_read`).
    OpenFirst(usize),
    /// Reading it then.
    ReadFirst(usize),
    /// Closing it again.
    CloseFirst(usize),
    /// Opening the file of that number.
    Open(usize),
    /// What fio does with it then.
    Prepare(usize),
    /// Mapping it.
    Map,
    /// An I/O.
    Io(u32),
    /// `fsync` of a file.
    Sync,
    /// `fsync` before closing the file of that number.
    SyncFirst(usize),
    /// Closing a file.
    Close,
    /// Removing it.
    Unlink,
}

impl CallFor {
    /// Whether it is what the job does, and not what comes before or behind it.
    fn is_work(self) -> bool {
        matches!(self, CallFor::Io(_) | CallFor::Sync | CallFor::SyncFirst(_))
    }
}

/// What io_uring cannot try on a file without waiting, and gives a worker at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Untried {
    Nothing,
    /// Writes through the page cache of a block device (`blkdev_write_iter`).
    CachedWrites,
    /// Everything, on a file system without `FMODE_NOWAIT`.
    Everything,
}

/// A process's way into the page cache.
pub(crate) struct Cached {
    files: Vec<FileId>,
    /// By file, its path in the file system; a part of a drive has none.
    paths: Vec<Option<PathId>>,
    /// By file, whether the kernel does anything when it is closed: not where a part of a
    /// drive stands for it.
    closes: Vec<bool>,
    /// By file, from where to where it was written since its last flush.
    written: Vec<Option<(u64, u64)>>,
    open_flags: OpenFlags,
    route: Route,
    /// How files are mapped, where the engine does that.
    mapped: Option<MmapAdvice>,
    /// Its own task; then, by slot, those of the workers that call for it.
    tasks: Vec<TaskId>,
    has_workers: bool,
    /// By file, what io_uring leaves to its workers at once.
    untried: Vec<Untried>,
    workers: IoWorkers,
    invalidate: bool,
    pre_read: bool,
    advice: Option<Advice>,
    sync: Option<Durability>,
    call: CallFor,
    /// What the call has returned, while its CPU still works on it.
    returned: Option<Result<u64, FsError>>,
    /// The phase that it goes on with after the call.
    after: Phase,
}

impl Cached {
    /// The way of process `pid` into the page cache, with its files open there.
    pub(crate) fn new(
        pid: usize,
        spec: &JobSpec,
        (layer, disks): (&mut FileLayer, &[Disk]),
        placed: &PlacedFiles,
    ) -> Cached {
        let (mut files, mut paths, mut closes) = (Vec::new(), Vec::new(), Vec::new());
        let mut untried = Vec::new();
        for file in placed.of_process(pid) {
            let path = file.in_tree.map(|number| &placed.in_tree().0[number].path);
            files.push(match path {
                Some(path) => layer.open_in_tree(path.as_slice()),
                None => {
                    let on = (file.disk, &disks[file.disk]);
                    layer.open(on, (file.base_bytes, file.room_bytes), file.is_device)
                }
            });
            paths.push(path.map(|path| layer.add_path(path)));
            closes.push(path.is_some() || file.is_device);
            untried.push(match spec.engine {
                Engine::IoUring if file.is_device => Untried::CachedWrites,
                Engine::IoUring if path.is_some() && !layer.can_try() => Untried::Everything,
                _ => Untried::Nothing,
            });
        }
        // io_submit gives direct I/O to the block layer, and does not wait for it.
        let has_workers = spec.offload
            || matches!(spec.engine, Engine::IoUring | Engine::Posixaio)
            || (spec.direct && !spec.engine.is_synchronous());
        let workers = if has_workers { spec.io_depth.max(1) } else { 0 };
        Cached {
            workers: IoWorkers::new(files.len(), (workers as usize, layer.cpus())),
            untried,
            written: vec![None; files.len()],
            files,
            paths,
            closes,
            open_flags: open_flags(spec),
            route: Route::of(
                spec.direct,
                matches!(spec.engine, Engine::Libaio | Engine::IoUring),
            ),
            mapped: (spec.engine == Engine::Mmap).then(|| access(spec)),
            tasks: (0..=workers).map(|_| layer.add_caller(pid)).collect(),
            has_workers,
            invalidate: spec.invalidate,
            pre_read: spec.pre_read && !spec.direct,
            advice: advice(spec),
            sync: durability(spec.sync),
            call: CallFor::Open(0),
            returned: None,
            after: Phase::Drain,
        }
    }
}

/// How fio opens a file (`generic_open_file`): what is written may be made, and read.
fn open_flags(spec: &JobSpec) -> OpenFlags {
    let writes = spec.pattern.does(Direction::Write);
    OpenFlags {
        read: true,
        write: writes,
        create: writes.then_some(0o644),
        ..OpenFlags::default()
    }
}

/// What fio tells the kernel of how it will use a file.
fn advice(spec: &JobSpec) -> Option<Advice> {
    match spec.fadvise_hint {
        FadviseHint::None => None,
        FadviseHint::Random => Some(Advice::Random),
        FadviseHint::Sequential => Some(Advice::Sequential),
        FadviseHint::ByPattern if spec.pattern.is_random() => Some(Advice::Random),
        FadviseHint::ByPattern => Some(Advice::Sequential),
    }
}

/// What fio says of how it will use a mapping (`fio_madvise_file`).
fn access(spec: &JobSpec) -> MmapAdvice {
    match spec.fadvise_hint {
        FadviseHint::None => MmapAdvice::Normal,
        _ if spec.pattern.is_random() => MmapAdvice::Random,
        _ => MmapAdvice::Sequential,
    }
}

fn durability(sync: SyncMode) -> Option<Durability> {
    match sync {
        SyncMode::None => None,
        SyncMode::Dsync => Some(Durability::Data),
        SyncMode::Sync => Some(Durability::All),
    }
}

impl JobProcess {
    /// The same process with its I/O through the page cache.
    pub(crate) fn through_cache(self, cached: Cached) -> JobProcess {
        JobProcess {
            has_detour: true,
            cached: Some(Box::new(cached)),
            ..self
        }
    }

    /// Whether its I/O is accesses to memory.
    pub(super) fn is_mapped(&self) -> bool {
        self.cached.as_ref().is_some_and(|c| c.mapped.is_some())
    }

    /// Whether an I/O goes through the page cache.
    pub(super) fn is_cached(&self, slot: u32) -> bool {
        self.cached.is_some() && self.ios[slot as usize].dir != Direction::Trim
    }

    /// Reads its files, from that number on, if the job has it so (`pre_read_files`), and begins.
    pub(super) fn read_files_first(&mut self, now: Nanos, number: usize, system: &mut System) {
        let cached = self.cached.as_ref().filter(|cached| cached.pre_read);
        let Some((cached, &file)) = cached.and_then(|c| Some((c, c.files.get(number)?))) else {
            return self.begin(now, system);
        };
        if cached.paths[number].is_none() {
            return self.read_file_first(number, system);
        }
        let flags = cached.open_flags;
        let call = Call::OpenFile { file, flags };
        self.begin_call(CallFor::OpenFirst(number), call, system);
    }

    fn read_file_first(&mut self, number: usize, system: &mut System) {
        let Some(cached) = &self.cached else { return };
        let call = Call::Prepare {
            file: cached.files[number],
            invalidate: false,
            pre_read: Some(self.plan.part(number)),
            advice: None,
        };
        self.begin_call(CallFor::ReadFirst(number), call, system);
    }

    fn file_read_first(&mut self, now: Nanos, number: usize, system: &mut System) {
        let Some(cached) = &self.cached else { return };
        if !cached.closes[number] {
            return self.read_files_first(now, number + 1, system);
        }
        let file = cached.files[number];
        self.begin_call(CallFor::CloseFirst(number), Call::Close { file }, system);
    }

    /// Opens a file. A part of a drive needs no call for that.
    pub(super) fn call_open(&mut self, now: Nanos, number: usize, system: &mut System) {
        let Some(cached) = &self.cached else { return };
        if cached.paths[number].is_none() {
            return self.prepare_file(number, system);
        }
        let (file, flags) = (cached.files[number], cached.open_flags);
        let call = Call::OpenFile { file, flags };
        self.begin_call(CallFor::Open(number), call, system);
        self.spend(now, self.costs.syscall, Mode::System, system);
    }

    /// What fio does with a file that it has opened.
    fn prepare_file(&mut self, number: usize, system: &mut System) {
        let Some(cached) = &self.cached else { return };
        let call = Call::Prepare {
            file: cached.files[number],
            invalidate: cached.invalidate,
            pre_read: None,
            advice: cached.advice,
        };
        self.begin_call(CallFor::Prepare(number), call, system);
    }

    /// Maps a file whose engine does so.
    fn map_file(&mut self, number: usize, system: &mut System) {
        let Some(cached) = &self.cached else { return };
        let Some(access) = cached.mapped else { return };
        let file = cached.files[number];
        let (first, length) = self.plan.part(number);
        let call = Call::Map {
            file,
            bytes: first + length,
            access,
        };
        self.begin_call(CallFor::Map, call, system);
    }

    /// Closes a file, and flushes it before if it is to.
    pub(super) fn call_close(
        &mut self,
        now: Nanos,
        (number, flushes): (usize, bool),
        system: &mut System,
    ) {
        if flushes {
            (self.flush_started, self.flush_for) = (now, FlushFor::Close);
            let call = Call::Sync {
                file: match &self.cached {
                    Some(cached) => cached.files[number],
                    None => return,
                },
                what: Durability::All,
            };
            self.begin_call(CallFor::SyncFirst(number), call, system);
        } else if !self.begin_close(number, system) {
            return;
        }
        self.spend(now, self.costs.syscall, Mode::System, system);
    }

    /// Closes a file, if the kernel does anything then; whether it does.
    fn begin_close(&mut self, number: usize, system: &mut System) -> bool {
        let Some(cached) = &self.cached else {
            return false;
        };
        let (file, closes) = (cached.files[number], cached.closes[number]);
        if closes {
            self.begin_call(CallFor::Close, Call::Close { file }, system);
        }
        closes
    }

    /// Removes a file, if it is one of the file system; whether it is.
    pub(super) fn call_unlink(&mut self, number: usize, system: &mut System) -> bool {
        let path = self.cached.as_ref().and_then(|cached| cached.paths[number]);
        let Some(path) = path else {
            return false;
        };
        self.begin_call(CallFor::Unlink, Call::Unlink { path }, system);
        true
    }

    fn begin_call(&mut self, what: CallFor, call: Call, system: &mut System) {
        let Some(cached) = &self.cached else {
            return;
        };
        system.begin_call(cached.tasks[0], call);
        self.is_in_call(what);
    }

    /// It goes on with what it does after the call.
    fn is_in_call(&mut self, what: CallFor) {
        let Some(cached) = &mut self.cached else {
            return;
        };
        cached.call = what;
        cached.after = self.phase;
        self.phase = Phase::Call;
    }

    /// The call of an I/O.
    fn call_of(&self, slot: u32) -> Option<Call> {
        let (cached, io) = (self.cached.as_ref()?, &self.ios[slot as usize]);
        let (file, at, bytes) = (*cached.files.get(io.file as usize)?, io.at_bytes, io.bytes);
        if cached.mapped.is_some() {
            let write = io.dir == Direction::Write;
            return Some(Call::Touch {
                file,
                at,
                bytes,
                write,
            });
        }
        Some(match io.dir {
            Direction::Read => Call::Read {
                file,
                at,
                bytes,
                route: cached.route,
            },
            _ => Call::Write {
                file,
                at,
                bytes,
                route: cached.route,
                sync: cached.sync,
            },
        })
    }

    /// Submits one I/O through the page cache.
    pub(super) fn submit_cached(&mut self, now: Nanos, slot: u32, system: &mut System) {
        if self
            .cached
            .as_ref()
            .is_some_and(|cached| cached.has_workers)
        {
            return self.call_for_ring(now, slot, system);
        }
        if let Some(&file) = self.cached.as_ref().and_then(|cached| cached.files.first()) {
            // The processor reads what the next I/O looks up while this one is dealt with.
            system.prefetch_page(file, || self.plan.peek());
        }
        let call = self.call_of(slot);
        let Some((call, cached)) = call.zip(self.cached.as_mut()) else {
            return;
        };
        let task = cached.tasks[0];
        let (progress, spent) = system.call(now, (task, &call), &self.as_submitter());
        self.spent_in_kernel(spent, system);
        match progress {
            Progress::Over(returned) => self.io_over(now, slot, returned, system),
            waits => {
                self.is_in_call(CallFor::Io(slot));
                self.wait_in_call(now, waits, system);
            }
        }
    }

    /// Calls `fsync`, or `fdatasync`, of a file.
    pub(super) fn sync_cached(&mut self, now: Nanos, file: u32, system: &mut System) {
        let Some(cached) = &mut self.cached else {
            return;
        };
        let Some(&file_id) = cached.files.get(file as usize) else {
            return;
        };
        let (file, written) = (file_id, cached.written[file as usize].take());
        let (data, all) = (Durability::Data, Durability::All);
        let call = match self.flush_for {
            FlushFor::Call(SyncKind::Fsync) | FlushFor::End | FlushFor::Close => {
                Call::Sync { file, what: all }
            }
            FlushFor::Call(SyncKind::Fdatasync) => Call::Sync { file, what: data },
            FlushFor::Call(SyncKind::FileRange) => {
                // Without a write since the last flush fio calls nothing.
                let Some((first, end)) = written else {
                    return self.synced(now, IoStatus::Ok);
                };
                let what = self.spec.sync_file_range.what;
                Call::SyncRange {
                    file,
                    at: first,
                    bytes: end - first,
                    what,
                }
            }
        };
        self.begin_call(CallFor::Sync, call, system);
        self.spend(now, self.costs.syscall, Mode::System, system);
    }

    /// Goes on in its call as far as that gets.
    pub(super) fn go_on_in_call(&mut self, now: Nanos, system: &mut System) {
        if let Some(returned) = self.cached.as_mut().and_then(|c| c.returned.take()) {
            return self.call_over(now, returned, system);
        }
        let Some((progress, spent)) = self.run_task(now, 0, system) else {
            return;
        };
        match progress {
            Progress::Over(returned) if self.awaits_cpu(spent, returned) => {
                self.go_on_at(system.cpus.free_at(self.cpu).max(now), system);
            }
            Progress::Over(returned) => self.call_over(now, returned, system),
            waits => self.wait_in_call(now, waits, system),
        }
    }

    /// Sleeps in its call, which is not over.
    #[inline(never)]
    fn wait_in_call(&mut self, now: Nanos, waits: Progress, system: &mut System) {
        match waits {
            Progress::AwaitsTag(disk) => {
                if let Some(waiter) = self.take_waiter(0, system) {
                    self.sleep_for_tag(now, disk, waiter, system);
                }
            }
            Progress::Over(_) | Progress::Waits => self.sleep(now, TaskState::AwaitsCall, system),
        }
    }

    /// Whether a call that has returned this is over only when its CPU has done what the call
    /// had it do; it waits for that. After an I/O it copies, which waits as well.
    fn awaits_cpu(&mut self, spent: Nanos, returned: Result<u64, FsError>) -> bool {
        let Some(cached) = &mut self.cached else {
            return false;
        };
        let awaits = spent > Nanos::ZERO && !matches!(cached.call, CallFor::Io(_));
        cached.returned = awaits.then_some(returned);
        awaits
    }

    /// The place in a queue of its task of that number, which sleeps for a tag there.
    #[inline(never)]
    fn take_waiter(&self, number: usize, system: &mut System) -> Option<Waiter> {
        system.take_waiter(self.cached.as_ref()?.tasks[number])
    }

    /// Has one of its tasks go on, on its CPU; returns how long that takes too.
    #[inline]
    fn run_task(
        &mut self,
        now: Nanos,
        number: usize,
        system: &mut System,
    ) -> Option<(Progress, Nanos)> {
        let task = self.cached.as_ref()?.tasks[number];
        let (progress, spent) = system.go_on_in_call(now, task, &self.as_submitter());
        self.spent_in_kernel(spent, system);
        Some((progress, spent))
    }

    fn spent_in_kernel(&mut self, spent: Nanos, system: &mut System) {
        if spent > Nanos::ZERO {
            self.recorder.spent(Mode::System, spent.0);
            system.fair.account(self.id, spent);
        }
    }

    fn as_submitter(&self) -> Submitter<'_> {
        Submitter {
            pid: self.id,
            id: self.submitter(),
            cpu: self.cpu,
            prio: self.prio,
            cgroup: self.cgroup,
            costs: &self.costs,
        }
    }

    fn call_over(&mut self, now: Nanos, returned: Result<u64, FsError>, system: &mut System) {
        let Some(cached) = &self.cached else { return };
        let call = cached.call;
        self.phase = cached.after;
        if let CallFor::Io(slot) = call {
            return self.io_over(now, slot, returned, system);
        }
        let status = status_of(returned);
        if let (Err(error), false) = (returned, call.is_work()) {
            return self.call_failed(now, (call, error), system);
        }
        match call {
            CallFor::OpenFirst(number) => self.read_file_first(number, system),
            CallFor::ReadFirst(number) => self.file_read_first(now, number, system),
            CallFor::CloseFirst(number) => self.read_files_first(now, number + 1, system),
            CallFor::Open(number) => self.prepare_file(number, system),
            CallFor::Prepare(number) => self.map_file(number, system),
            CallFor::Map | CallFor::Close | CallFor::Unlink | CallFor::Io(_) => {}
            CallFor::Sync => self.synced(now, status),
            CallFor::SyncFirst(number) => {
                self.synced(now, status);
                self.begin_close(number, system);
            }
        }
    }

    /// The call of an I/O is over.
    fn io_over(
        &mut self,
        now: Nanos,
        slot: u32,
        returned: Result<u64, FsError>,
        system: &mut System,
    ) {
        let status = self.io_status(slot, returned);
        self.note_written(slot, status);
        self.ended(now, slot, status, system);
        self.copy(now, slot, system);
    }

    /// Notes where a write went, for `sync_file_range` (`file_log_write_comp`).
    fn note_written(&mut self, slot: u32, status: IoStatus) {
        let io = &self.ios[slot as usize];
        let Some(cached) = &mut self.cached else {
            return;
        };
        if status != IoStatus::Ok || io.dir != Direction::Write {
            return;
        }
        let (first, end) = (io.at_bytes, io.at_bytes + io.bytes);
        if let Some(written) = cached.written.get_mut(io.file as usize) {
            let (known_first, known_end) = written.unwrap_or((first, end));
            *written = Some((known_first.min(first), known_end.max(end)));
        }
    }

    /// A call failed that is not an I/O; the job ends.
    fn call_failed(&mut self, now: Nanos, (call, error): (CallFor, FsError), system: &mut System) {
        self.recorder.failed(error.errno());
        self.fail();
        match call {
            CallFor::OpenFirst(_) | CallFor::ReadFirst(_) | CallFor::CloseFirst(_) => {
                self.begin(now, system);
            }
            CallFor::Open(number) => self.plan.open_files().close(number as u32),
            _ => {}
        }
    }

    /// How an I/O ended. fio tries again to write what a call has left out, which the
    /// file system has no room for.
    fn io_status(&self, slot: u32, returned: Result<u64, FsError>) -> IoStatus {
        let io = &self.ios[slot as usize];
        match returned {
            Ok(done) if io.dir == Direction::Write && done < io.bytes => IoStatus::NoSpace,
            returned => status_of(returned),
        }
    }

    fn copy_cost(&self, slot: u32) -> Nanos {
        if self
            .cached
            .as_ref()
            .is_none_or(|cached| cached.route != Route::Cached)
        {
            return Nanos::ZERO;
        }
        let io = &self.ios[slot as usize];
        let pages = pages_of(io.at_bytes, io.bytes);
        let is_write = io.dir == Direction::Write;
        self.costs.cached_pages(is_write, pages)
    }

    /// Its CPU copies an I/O's data to or from the page cache.
    fn copy(&mut self, now: Nanos, slot: u32, system: &mut System) {
        let cost = self.copy_cost(slot);
        if self.costs.free {
            self.go_on_at(now + cost, system);
        } else {
            self.spend(now, cost, Mode::System, system);
        }
    }

    /// The block layer lets the process try again in its call.
    pub(super) fn resume_call(
        &mut self,
        now: Nanos,
        disk: usize,
        waiter: Waiter,
        system: &mut System,
    ) {
        let Some(cached) = &self.cached else { return };
        let waiting = (cached.tasks[0], waiter);
        let (resumed, spent) = system.resume_in_call(now, disk, waiting, &self.as_submitter());
        self.spent_in_kernel(spent, system);
        self.resumed(disk, resumed, system);
    }

    /// Tasks of it were woken.
    pub(crate) fn on_turn(&mut self, now: Nanos, system: &mut System) {
        while let Some(task) = system.take_woken(self.id) {
            let tasks = self.cached.as_ref().map(|cached| &cached.tasks);
            match tasks.and_then(|tasks| tasks.iter().position(|t| *t == task)) {
                Some(0) if self.state == TaskState::AwaitsCall => self.wake_up(now, system),
                Some(0) | None => {}
                Some(number) => self.go_on_in_worker(now, number as u32 - 1, system),
            }
        }
    }
}

/// How an I/O ended, by what its call returned.
fn status_of(returned: Result<u64, FsError>) -> IoStatus {
    match returned {
        Ok(_) => IoStatus::Ok,
        Err(FsError::NoSpace | FsError::TooBig) => IoStatus::NoSpace,
        Err(_) => IoStatus::IoError,
    }
}

/// Workers that call for a process.
impl JobProcess {
    /// A worker makes the call of an I/O, which costs `call` to begin with.
    #[inline(never)]
    pub(super) fn call_by_worker(
        &mut self,
        now: Nanos,
        slot: u32,
        call: Nanos,
        system: &mut System,
    ) {
        self.begin_in_worker(slot, system);
        if !self.costs.free {
            self.book(now, call, Mode::System, system);
        }
        self.go_on_in_worker(now, slot, system);
    }

    /// The call of an I/O of io_uring's, which goes to a worker if it cannot be tried without
    /// waiting.
    fn call_for_ring(&mut self, now: Nanos, slot: u32, system: &mut System) {
        if !self.is_untried(slot) {
            return self.call_by_worker(now, slot, Nanos::ZERO, system);
        }
        let alone_on = self.alone_on(slot);
        let Some(cached) = &mut self.cached else {
            return;
        };
        // A worker has done with a direct one when that is submitted.
        if cached.route != Route::Cached || cached.workers.enqueue(slot, alone_on) {
            self.call_by_worker(now, slot, self.costs.context_switch, system);
        }
    }

    /// Whether io_uring gives an I/O to a worker at once.
    fn is_untried(&self, slot: u32) -> bool {
        let io = &self.ios[slot as usize];
        let Some(cached) = &self.cached else {
            return false;
        };
        if io.is_forced {
            return true;
        }
        match cached.untried.get(io.file as usize) {
            Some(Untried::CachedWrites) => {
                cached.route == Route::Cached && io.dir == Direction::Write
            }
            Some(Untried::Everything) => true,
            Some(Untried::Nothing) | None => false,
        }
    }

    /// The file that a worker must have alone for an I/O: that of a write, unless it is a
    /// block device.
    fn alone_on(&self, slot: u32) -> Option<usize> {
        let io = &self.ios[slot as usize];
        let of_file = self.cached.as_ref()?.untried.get(io.file as usize)?;
        let is_regular = match of_file {
            Untried::Everything => true,
            Untried::Nothing => io.is_forced,
            Untried::CachedWrites => false,
        };
        let is_hashed = is_regular && io.dir == Direction::Write;
        is_hashed.then_some(io.file as usize)
    }

    /// The I/O that a worker goes on with after that one.
    fn next_of_worker(&mut self, slot: u32) -> Option<u32> {
        if !self.is_untried(slot) {
            return None;
        }
        let alone_on = self.alone_on(slot);
        let cached = self.cached.as_mut()?;
        match cached.route {
            Route::Cached => cached.workers.done(alone_on),
            _ => None,
        }
    }

    fn go_on_in_worker(&mut self, now: Nanos, slot: u32, system: &mut System) {
        let mut next = Some(slot);
        while let Some(slot) = next.take() {
            match self.run_task(now, slot as usize + 1, system) {
                Some((Progress::Over(returned), _)) => {
                    let status = self.io_status(slot, returned);
                    // Whoever submitted copies, or one that shares its CPU.
                    if self.state == TaskState::Running {
                        self.copy(now, slot, system);
                    } else if !self.costs.free {
                        let cost = self.copy_cost(slot);
                        self.book(now, cost, Mode::System, system);
                    }
                    next = self.next_of_worker(slot);
                    if let Some(next) = next {
                        self.begin_in_worker(next, system);
                    }
                    self.note_written(slot, status);
                    self.ended(now, slot, status, system);
                }
                Some((Progress::AwaitsTag(disk), _)) => {
                    if let Some(waiter) = self.take_waiter(slot as usize + 1, system) {
                        self.worker_waits((disk, slot), waiter, system);
                    }
                }
                Some((Progress::Waits, _)) | None => {}
            }
        }
    }

    fn begin_in_worker(&mut self, slot: u32, system: &mut System) {
        let tasks = self.cached.as_ref().map(|cached| &cached.tasks);
        let task = tasks.map(|tasks| tasks[slot as usize + 1]);
        if let (Some(task), Some(what)) = (task, self.call_of(slot)) {
            system.begin_call(task, what);
        }
    }

    /// The block layer lets the worker of that I/O try again.
    pub(super) fn resume_worker(
        &mut self,
        now: Nanos,
        (disk, slot): (usize, u32),
        waiter: Waiter,
        system: &mut System,
    ) {
        let Some(cached) = &self.cached else { return };
        let waiting = (cached.tasks[slot as usize + 1], waiter);
        let (resumed, spent) = system.resume_in_call(now, disk, waiting, &self.as_submitter());
        self.spent_in_kernel(spent, system);
        match resumed {
            Submit::Done => self.go_on_in_worker(now, slot, system),
            Submit::Blocked(waiter) => self.worker_waits((disk, slot), waiter, system),
        }
    }
}
