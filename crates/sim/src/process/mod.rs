//! The kinds of processes: each is a state machine that the simulation calls when
//! something that it waits for has happened.
//!
//! A process that submits and reaps by an fio job is the fast path, so kinds are an
//! enum, and the calls of that path are inlined. A new kind is a variant of [`Kind`]:
//! it submits to the disks of [`System`], and is called by its timers there, in the
//! next turn of the event loop, for ends of its bios and for tags.

mod aio_threads;
mod io_workers;
pub(crate) mod job;
pub(crate) mod kernel_threads;
pub(crate) mod loop_worker;
pub(crate) mod program;
mod recorder;
pub(crate) mod server;
mod thread;
pub(crate) mod trace;

use blklab_blk::{IoStatus, Nanos, SubmitterId};
use blklab_stats::{IoLog, JobResults};
use blklab_workload::fio::JobSpec;

use crate::setup::SetupError;
use crate::system::System;
use job::JobProcess;
use kernel_threads::KernelThreads;
use program::ProgramProcess;
use trace::TraceProcess;

/// A process of the simulated system.
pub(crate) struct Process {
    kind: Kind,
    exit_reported: bool,
}

#[expect(
    clippy::large_enum_variant,
    reason = "processes of jobs are those that there are many of, and the fast path"
)]
enum Kind {
    /// One of an fio job.
    Job(JobProcess),
    /// The one that replays a trace.
    Trace(Box<TraceProcess>),
    /// One of a list of calls.
    Program(Box<ProgramProcess>),
    /// The kernel's threads of the page cache.
    Kernel(Box<KernelThreads>),
}

use Kind::{Job, Kernel, Program, Trace};

impl From<JobProcess> for Process {
    fn from(process: JobProcess) -> Process {
        Process {
            kind: Job(process),
            exit_reported: false,
        }
    }
}

impl From<TraceProcess> for Process {
    fn from(process: TraceProcess) -> Process {
        Process {
            kind: Trace(Box::new(process)),
            exit_reported: false,
        }
    }
}

impl From<ProgramProcess> for Process {
    fn from(process: ProgramProcess) -> Process {
        Process {
            kind: Program(Box::new(process)),
            exit_reported: false,
        }
    }
}

impl From<KernelThreads> for Process {
    fn from(threads: KernelThreads) -> Process {
        Process {
            kind: Kernel(Box::new(threads)),
            exit_reported: true,
        }
    }
}

/// What happens to a process.
impl Process {
    /// It starts, after everything that it waited for.
    pub(crate) fn start(&mut self, now: Nanos, system: &mut System) {
        match &mut self.kind {
            Job(p) => p.start(now, system),
            Trace(p) => p.start(now, system),
            Program(p) => p.start(now, system),
            Kernel(p) => p.start(now, system),
        }
    }

    /// Its timer ran out.
    #[inline]
    pub(crate) fn on_timer(&mut self, now: Nanos, system: &mut System) {
        match &mut self.kind {
            Job(p) => p.on_timer(now, system),
            Trace(p) => p.go_on(now, system),
            Program(p) => p.on_timer(now, system),
            Kernel(p) => p.on_timer(now, system),
        }
    }

    /// The next turn of the event loop has come, which it asked for in
    /// [`System::next_turn`].
    pub(crate) fn on_turn(&mut self, now: Nanos, system: &mut System) {
        match &mut self.kind {
            Job(p) => p.on_turn(now, system),
            Trace(p) => p.go_on(now, system),
            Program(p) => p.on_turn(now, system),
            Kernel(p) => p.on_turn(now, system),
        }
    }

    /// The bio that it submitted with `slot` ended.
    #[inline(always)]
    pub(crate) fn on_end(&mut self, now: Nanos, slot: u32, status: IoStatus, system: &mut System) {
        match &mut self.kind {
            Job(p) => p.on_end(now, slot, status, system),
            Trace(p) => p.on_end(now, slot, status, system),
            Kernel(_) | Program(_) => system.cached_bio_ended(now, slot, status),
        }
    }

    /// The block layer lets it, or one of its workers, try again to get a tag.
    pub(crate) fn on_tag(&mut self, now: Nanos, (disk, ticket): (usize, u64), system: &mut System) {
        match &mut self.kind {
            Job(p) => p.on_tag(now, (disk, ticket), system),
            Trace(p) => p.on_tag(now, (disk, ticket), system),
            Program(p) => p.on_tag(now, (disk, ticket), system),
            Kernel(p) => p.on_tag(now, (disk, ticket), system),
        }
    }

    /// All that were woken together with it have tried.
    pub(crate) fn on_all_tried(&mut self, now: Nanos, system: &mut System) {
        match &mut self.kind {
            Job(p) => p.on_all_tried(now, system),
            Trace(_) => {}
            Program(p) => p.on_all_tried(now, system),
            Kernel(p) => p.on_all_tried(now, system),
        }
    }

    /// Has it issue nothing more (`exitall`, and a run that is broken off).
    pub(crate) fn stop(&mut self, now: Nanos, system: &mut System) {
        match &mut self.kind {
            Job(p) => p.stop(now, &mut system.timers),
            Trace(p) => p.stop(now, system),
            Program(p) => p.stop(now, system),
            Kernel(_) => {}
        }
    }

    /// Its CPU spent time on an interrupt while it ran there.
    pub(crate) fn was_interrupted(&mut self, spent: Nanos) {
        if let Job(p) = &mut self.kind {
            p.was_interrupted(spent);
        }
    }
}

/// The state of a process.
impl Process {
    /// The job that it belongs to.
    pub(crate) fn job(&self) -> Option<&JobSpec> {
        match &self.kind {
            Job(p) => Some(p.spec()),
            Trace(_) | Program(_) | Kernel(_) => None,
        }
    }

    /// The CPU it runs on.
    #[inline]
    pub(crate) fn cpu(&self) -> usize {
        match &self.kind {
            Job(p) => p.cpu(),
            Trace(_) => 0,
            Program(p) => p.cpu(),
            Kernel(p) => p.cpu(),
        }
    }

    /// The CPU that submits its I/O.
    #[inline]
    pub(crate) fn submit_cpu(&self) -> usize {
        match &self.kind {
            Job(p) => p.submit_cpu(),
            Program(p) => p.cpu(),
            Kernel(p) => p.cpu(),
            Trace(_) => 0,
        }
    }

    /// Whether it looks for completions itself, without interrupts.
    #[inline]
    pub(crate) fn polls_for_ends(&self) -> bool {
        match &self.kind {
            Job(p) => p.polls_for_ends(),
            Kernel(_) | Program(_) | Trace(_) => false,
        }
    }

    /// Whether it sleeps for I/O.
    pub(crate) fn awaits_io(&self) -> bool {
        match &self.kind {
            Job(p) => p.awaits_io(),
            Program(p) => p.awaits_io(),
            Trace(_) => false,
            // A flusher waits for no end of its own bios but by `fsync` of others.
            Kernel(_) => false,
        }
    }

    /// Whether it has ended. Nobody waits for the kernel's threads to end.
    #[inline]
    pub(crate) fn has_exited(&self) -> bool {
        match &self.kind {
            Job(p) => p.has_exited(),
            Trace(p) => p.has_exited(),
            Program(p) => p.has_exited(),
            Kernel(_) => true,
        }
    }

    /// Whether it has ended since this was last asked. An I/O that ends on the spot may
    /// end a process within another call of it.
    #[inline]
    pub(crate) fn has_just_exited(&mut self) -> bool {
        self.has_exited() && !std::mem::replace(&mut self.exit_reported, true)
    }

    /// When it began the work of its job, if it has one and has begun.
    pub(crate) fn work_started(&self) -> Option<Nanos> {
        match &self.kind {
            Job(p) => p.work_started(),
            Trace(_) | Program(_) | Kernel(_) => None,
        }
    }

    /// The I/Os and the bytes that count in the results of its job so far.
    pub(crate) fn io_done(&self) -> (u64, u64) {
        match &self.kind {
            Job(p) => p.io_done(),
            Trace(_) | Program(_) | Kernel(_) => (0, 0),
        }
    }

    /// Whether an error ended it.
    pub(crate) fn has_failed(&self) -> bool {
        match &self.kind {
            Job(p) => p.has_failed(),
            Trace(_) | Program(_) | Kernel(_) => false,
        }
    }

    /// Who submits its I/O, where that is one.
    pub(crate) fn submitter(&self) -> Option<SubmitterId> {
        match &self.kind {
            Job(p) => Some(p.submitter()),
            Program(p) => Some(p.submitter()),
            // Its I/Os have those of the trace.
            Trace(_) | Kernel(_) => None,
        }
    }
}

/// What is left of a process at the end of the run.
impl Process {
    /// Checks that it could do its work.
    ///
    /// # Errors
    /// What kept it from that.
    pub(crate) fn check(&mut self) -> Result<(), SetupError> {
        match &mut self.kind {
            Job(_) | Kernel(_) => Ok(()),
            Trace(p) => p.check(),
            Program(p) => p.check(),
        }
    }

    /// What it waits for in vain, if its user made it wait for that.
    pub(crate) fn waits_in_vain(&self) -> Option<String> {
        match &self.kind {
            Program(p) => p.waits_in_vain(),
            Job(_) | Trace(_) | Kernel(_) => None,
        }
    }

    /// What a reader of its results should know.
    pub(crate) fn notes(&self) -> Vec<String> {
        match &self.kind {
            Job(p) => p.notes(),
            Trace(p) => p.notes(),
            Program(_) | Kernel(_) => Vec::new(),
        }
    }

    /// Whether its results are counted.
    pub(crate) fn is_counted(&self) -> bool {
        match &self.kind {
            Job(p) => p.spec().stats,
            Trace(_) | Program(_) => true,
            Kernel(_) => false,
        }
    }

    /// Its logs of each I/O, if its job writes any.
    pub(crate) fn take_log(&mut self) -> Option<IoLog> {
        match &mut self.kind {
            Job(p) => p.take_log(),
            Trace(_) | Program(_) | Kernel(_) => None,
        }
    }

    /// What it recorded. `weight` is the share of the drive that is due to it.
    pub(crate) fn into_results(self, weight: Option<f64>) -> JobResults {
        match self.kind {
            Job(p) => p.into_results(weight),
            Trace(p) => p.into_results(),
            Program(p) => p.into_results(),
            Kernel(_) => JobResults::default(),
        }
    }
}
