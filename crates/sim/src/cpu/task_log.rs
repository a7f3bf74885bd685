//! A log of what each CPU did for which process and requests, and of the processes' I/Os.

use std::collections::HashMap;
use std::ops::Range;

use blklab_blk::Nanos;
use blklab_stats::{CpuTask, CpuWork, IoSpan, Timeline};

use super::Mode;

/// Tasks that were logged and not taken yet.
#[derive(Debug, Default)]
pub(crate) struct TaskLog {
    tasks: Vec<CpuTask>,
    /// Tasks from here on are not assigned to a process yet.
    first_unassigned: usize,
    /// By process and slot, the requests of each I/O under way.
    requests: HashMap<(usize, u32), Range<u64>>,
    /// I/Os that are over and were not taken yet.
    ios: Vec<IoSpan>,
}

impl TaskLog {
    /// A CPU worked.
    pub(crate) fn ran(&mut self, cpu: usize, mode: Mode, start: Nanos, end: Nanos) {
        if end > start {
            self.push(cpu, work_of(mode), start, end);
        }
    }

    /// Of the work that a CPU did last, this much was waiting for a scheduler's lock.
    pub(crate) fn waited_for_lock(&mut self, wait: Nanos) {
        if let Some(task) = self.tasks.last_mut() {
            task.lock_ns = wait.0;
        }
    }

    fn push(&mut self, cpu: usize, work: CpuWork, start: Nanos, end: Nanos) {
        self.tasks.push(CpuTask {
            cpu: cpu as u32,
            work,
            process: None,
            start_ns: start.0,
            end_ns: end.0,
            disk: 0,
            first_request: 0,
            requests: 0,
            lock_ns: 0,
        });
    }

    /// What CPUs did since the last call was for this process.
    #[cold]
    pub(crate) fn was_for(&mut self, process: usize) {
        self.assign(Some(process));
    }

    /// What CPUs did since the last call was to run a hardware queue for this process,
    /// if its CPU has one.
    #[cold]
    pub(crate) fn dispatched_for(&mut self, process: Option<usize>) {
        for task in &mut self.tasks[self.first_unassigned..] {
            task.work = CpuWork::Dispatch;
        }
        self.assign(process);
    }

    fn assign(&mut self, process: Option<usize>) {
        for task in &mut self.tasks[self.first_unassigned..] {
            task.process = process.map(|p| p as u32);
        }
        self.first_unassigned = self.tasks.len();
    }

    /// A process submitted an I/O, of which these requests were made (none where it
    /// was merged). Where that took no time the task has no length.
    #[cold]
    pub(crate) fn submitted(
        &mut self,
        (process, slot): (usize, u32),
        (cpu, now): (usize, Nanos),
        disk: usize,
        made: Range<u64>,
    ) {
        if made.is_empty() {
            return self.was_for(process);
        }
        if self.tasks.len() == self.first_unassigned {
            self.push(cpu, CpuWork::Kernel, now, now);
        }
        self.about(disk, &made);
        self.was_for(process);
        // An I/O that slept in between is made part by part.
        let known = self.requests.entry((process, slot)).or_insert(made.clone());
        known.end = made.end;
    }

    /// An interrupt ended an I/O. Where that took no time the task has no length.
    #[cold]
    pub(crate) fn ended(
        &mut self,
        (process, slot): (usize, u32),
        (cpu, now): (usize, Nanos),
        disk: usize,
    ) {
        if let Some(requests) = self.requests.get(&(process, slot)).cloned() {
            if self.tasks.len() == self.first_unassigned {
                self.push(cpu, CpuWork::Interrupt, now, now);
            }
            self.about(disk, &requests);
        }
        self.was_for(process);
    }

    /// A process has back an I/O of a drive that it began at `start`.
    #[cold]
    pub(crate) fn taken(
        &mut self,
        (process, slot): (usize, u32),
        (start, now): (Nanos, Nanos),
        disk: usize,
    ) {
        if let Some(requests) = self.requests.remove(&(process, slot)) {
            self.ios.push(IoSpan {
                start_ns: start.0,
                end_ns: now.0,
                disk: disk as u32,
                first_request: requests.start,
                requests: (requests.end - requests.start) as u32,
            });
        }
    }

    fn about(&mut self, disk: usize, requests: &Range<u64>) {
        if let Some(task) = self.tasks.last_mut() {
            task.disk = disk as u32;
            task.first_request = requests.start;
            task.requests = (requests.end - requests.start) as u32;
        }
    }

    /// Moves the tasks and the I/Os to the ends of a timeline's.
    pub(crate) fn take(&mut self, out: &mut Timeline) {
        out.tasks.append(&mut self.tasks);
        out.ios.append(&mut self.ios);
        self.first_unassigned = 0;
    }
}

fn work_of(mode: Mode) -> CpuWork {
    match mode {
        Mode::User => CpuWork::Program,
        Mode::System => CpuWork::Kernel,
        Mode::Interrupt => CpuWork::Interrupt,
        Mode::SoftInterrupt => CpuWork::SoftInterrupt,
    }
}
