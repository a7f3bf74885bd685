//! What is recorded of the I/O of a process, as fio does (`stat.c`).

use blklab_blk::{IoStatus, Nanos};
use blklab_stats::{DirResults, Histogram, IoLog, JobResults, LatencyTarget, LogEntry};
use blklab_workload::fio::{Direction, JobSpec, SyncKind};

use crate::cpu::Mode;

/// What went in one direction, bytes or I/Os, sampled in windows of time. They end by
/// the clock, as fio's helper thread ends them.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Nanos,
    sum: u64,
}

impl Window {
    /// Adds what went now. If a window is over in which something did, its end and what
    /// went in a second.
    #[inline]
    fn add(&mut self, now: Nanos, amount: u64, window_ns: u64) -> Option<(Nanos, f64)> {
        let past_ns = now.saturating_sub(self.since).0;
        if past_ns < window_ns {
            self.sum += amount;
            return None;
        }
        let ended = std::mem::replace(
            self,
            Window {
                since: self.since + Nanos(past_ns - past_ns % window_ns),
                sum: amount,
            },
        );
        // fio has no entry for a window in which nothing ended.
        let per_second = ended.sum as f64 * (1e9 / window_ns as f64);
        (ended.sum > 0).then_some((ended.since + Nanos(window_ns), per_second))
    }
}

/// Windows of one length, by direction.
#[derive(Clone, Copy, Debug, Default)]
struct Windows {
    of: [Window; 3],
    length_ns: u64,
}

impl Windows {
    fn new(length: Nanos) -> Windows {
        Windows {
            of: [Window::default(); 3],
            length_ns: length.0.max(1),
        }
    }

    fn start(&mut self, since: Nanos) {
        self.of.iter_mut().for_each(|window| window.since = since);
    }

    #[inline]
    fn add(&mut self, now: Nanos, dir: Direction, amount: u64) -> Option<(Nanos, f64)> {
        self.of[dir as usize].add(now, amount, self.length_ns)
    }
}

/// The statistics of one process.
pub(crate) struct Recorder {
    results: JobResults,
    bandwidth: Windows,
    iops: Windows,
    /// By direction, latencies of I/Os whose submission took no time, as on a machine
    /// whose CPUs cost nothing: total and completion latency are the same.
    submitted_at_once: [Histogram; 3],
    /// The same of I/Os that had ended when their submission returned, as those have that
    /// copy from the page cache: total and submission latency are the same.
    ended_at_once: [Histogram; 3],
    /// Each I/O, where the job writes logs.
    log: Option<Box<IoLog>>,
    /// When the ramp ends and measuring starts.
    measure_from: Nanos,
    /// Where the process verifies: since when it has done what it does, and how long it did I/O
    /// in each direction before (`update_runtime` in fio's `backend.c`).
    phases: Option<(Nanos, [u64; 3])>,
    ramp: Nanos,
    /// Nothing is counted, before the start and in the ramp time.
    is_silent: bool,
}

/// What the job asks for.
fn latency_target(spec: &JobSpec) -> LatencyTarget {
    let asked = spec.latency_target.unwrap_or_default();
    LatencyTarget {
        target_ns: asked.target_us.saturating_mul(1000),
        window_us: asked.window_us,
        percentile: asked.percentile,
        depth: spec.io_depth,
    }
}

impl Recorder {
    /// For a process of an fio job.
    pub(crate) fn for_job(spec: &JobSpec) -> Recorder {
        let results = JobResults {
            name: spec.name.clone(),
            description: spec.description.clone(),
            group_id: spec.group,
            members: 1,
            group_reporting: spec.group_reporting,
            options: spec.options.clone(),
            latency_target: latency_target(spec),
            percentiles: spec.percentiles.clone(),
            percentiles_of: spec.percentiles_of(),
            setup: spec.setup(),
            ..JobResults::default()
        };
        let window = |ms: u32| Windows::new(Nanos::from_millis(ms.into()));
        let has_log = spec.logs.is_any();
        Recorder {
            bandwidth: window(spec.bandwidth_window_ms),
            iops: window(spec.iops_window_ms),
            phases: spec.verify.is_on().then_some((Nanos::ZERO, [0; 3])),
            log: has_log.then(|| Box::new(IoLog::new(&spec.name, spec.logs.clone()))),
            ..Recorder::new(results, Nanos::ZERO, Nanos::from_micros(spec.ramp_us))
        }
    }

    /// Fills in `results`. Bandwidth and IOPS are sampled over `window`, and what ends
    /// within `ramp` of the start is left out.
    pub(crate) fn new(results: JobResults, window: Nanos, ramp: Nanos) -> Recorder {
        Recorder {
            results,
            bandwidth: Windows::new(window),
            iops: Windows::new(window),
            submitted_at_once: [const { Histogram::new() }; 3],
            ended_at_once: [const { Histogram::new() }; 3],
            log: None,
            measure_from: Nanos::ZERO,
            phases: None,
            ramp,
            // What comes before a job, as `pre_read` does, is no part of it: fio takes its CPU
            // time from the start on (`ru_start` in `thread_main`).
            is_silent: true,
        }
    }

    pub(crate) fn start(&mut self, now: Nanos) {
        self.measure_from = now + self.ramp;
        self.is_silent = self.ramp > Nanos::ZERO;
        if let Some((since, _)) = &mut self.phases {
            *since = now;
        }
        self.bandwidth.start(self.measure_from);
        self.iops.start(self.measure_from);
    }

    /// Forgets what was measured so far of the process of that job (fio's `reset_all_stats`).
    pub(crate) fn restart(&mut self, spec: &JobSpec, now: Nanos) {
        *self = Recorder {
            log: self.log.take(),
            ramp: Nanos::ZERO,
            ..Recorder::for_job(spec)
        };
        self.start(now);
    }

    /// An I/O that has a time of its own was due then, from the start.
    pub(crate) fn arrived(&mut self, due: Nanos) {
        self.results.last_arrival_ns = Some(due.0);
    }

    /// The depth that `latency_target` came to.
    pub(crate) fn found_depth(&mut self, depth: u32) {
        self.results.latency_target.depth = depth;
    }

    #[inline]
    fn dir(&mut self, dir: Direction) -> &mut DirResults {
        match dir {
            Direction::Read => &mut self.results.read,
            Direction::Write => &mut self.results.write,
            Direction::Trim => &mut self.results.trim,
        }
    }

    /// Whether what happens now counts.
    #[inline]
    pub(crate) fn is_measuring(&mut self, now: Nanos) -> bool {
        if self.is_silent {
            if now < self.measure_from {
                return false;
            }
            self.is_silent = false;
        }
        true
    }

    #[inline]
    pub(crate) fn submitted(&mut self, depth: u32, count: u32) {
        if !self.is_silent {
            self.results.submit.record(count);
            self.results.depth.record(depth, u64::from(count));
        }
    }

    #[inline]
    pub(crate) fn reaped(&mut self, count: u32) {
        if !self.is_silent {
            self.results.complete.record(count);
        }
    }

    #[inline]
    pub(crate) fn context_switch(&mut self) {
        if !self.is_silent {
            self.results.cpu.context_switches += 1;
        }
    }

    #[inline]
    pub(crate) fn spent(&mut self, mode: Mode, cost_ns: u64) {
        if self.is_silent {
            return;
        }
        match mode {
            Mode::User => self.results.cpu.user_ns += cost_ns,
            _ => self.results.cpu.system_ns += cost_ns,
        }
    }

    /// An I/O ended. `sync` engines have no submission latency of their own.
    #[allow(
        clippy::too_many_arguments,
        reason = "what fio records of an I/O, each once"
    )]
    #[inline(always)]
    pub(crate) fn completed(
        &mut self,
        now: Nanos,
        dir: Direction,
        bytes: u64,
        started: Nanos,
        issued: Nanos,
        sync: bool,
        status: IoStatus,
    ) {
        if status != IoStatus::Ok {
            return self.ended_badly(dir, status);
        }
        if !self.is_measuring(now) {
            return;
        }
        self.sample(now, dir, bytes);
        let d = self.dir(dir);
        d.ios += 1;
        d.bytes += bytes;
        let lat_ns = now.saturating_sub(started).0;
        if !sync && issued == started {
            return self.submitted_at_once[dir as usize].record(lat_ns);
        }
        if !sync && issued == now {
            return self.ended_at_once[dir as usize].record(lat_ns);
        }
        if !sync {
            d.slat_ns.record(issued.saturating_sub(started).0);
        }
        d.clat_ns.record(now.saturating_sub(issued).0);
        d.lat_ns.record(lat_ns);
    }

    #[cold]
    fn ended_badly(&mut self, dir: Direction, status: IoStatus) {
        self.failed(status.errno());
        self.dir(dir).short_ios += 1;
    }

    /// The I/Os and the bytes that count in the results so far.
    pub(crate) fn io_done(&self) -> (u64, u64) {
        let JobResults {
            read, write, trim, ..
        } = &self.results;
        let directions = [read, write, trim];
        let sum = |of: fn(&DirResults) -> u64| directions.iter().map(|d| of(d)).sum();
        (sum(|d| d.ios), sum(|d| d.bytes))
    }

    /// A zone was reset.
    pub(crate) fn reset_zone(&mut self) {
        self.results.zone_resets += 1;
    }

    /// Adds an I/O to its windows.
    #[inline]
    fn sample(&mut self, now: Nanos, dir: Direction, bytes: u64) {
        if let Some(ended) = self.bandwidth.add(now, dir, bytes) {
            self.bandwidth_window(dir, ended);
        }
        if let Some(ended) = self.iops.add(now, dir, 1) {
            self.iops_window(dir, ended);
        }
    }

    #[cold]
    fn bandwidth_window(&mut self, dir: Direction, (end, per_second): (Nanos, f64)) {
        self.dir(dir).bw_samples.record(per_second);
        let at_ns = end.saturating_sub(self.measure_from).0;
        if let Some(log) = &mut self.log {
            log.bandwidth_window(at_ns, dir as u8, per_second);
        }
    }

    #[cold]
    fn iops_window(&mut self, dir: Direction, (end, per_second): (Nanos, f64)) {
        self.dir(dir).iops_samples.record(per_second);
        let at_ns = end.saturating_sub(self.measure_from).0;
        if let Some(log) = &mut self.log {
            log.iops_window(at_ns, dir as u8, per_second);
        }
    }

    /// Whether each I/O is to be logged.
    #[inline]
    pub(crate) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// An I/O ended well; its time is set here.
    #[cold]
    pub(crate) fn log(&mut self, now: Nanos, entry: LogEntry) {
        if !self.is_measuring(now) {
            return;
        }
        let at_ns = now.saturating_sub(self.measure_from).0;
        if let Some(log) = &mut self.log {
            log.ended(LogEntry { at_ns, ..entry });
        }
    }

    /// The logs, if there are any; `process` is the process's number.
    pub(crate) fn take_log(&mut self, process: u32) -> Option<IoLog> {
        let mut log = *self.log.take()?;
        log.process = process;
        Some(log)
    }

    /// A flush for that call ended. As in fio, the calls that are counted are
    /// those of `fsync`, and the latencies are those of `fdatasync` too; the
    /// last flush of a file (`end_fsync`, `fsync_on_close`) is in neither.
    pub(crate) fn synced(
        &mut self,
        kind: Option<SyncKind>,
        started: Nanos,
        now: Nanos,
        status: IoStatus,
    ) {
        if status != IoStatus::Ok {
            self.failed(status.errno());
        }
        if kind.is_none() || !self.is_measuring(now) {
            return;
        }
        self.results.syncs += u64::from(kind == Some(SyncKind::Fsync));
        self.results.sync_ns.record((now - started).0);
    }

    /// An I/O failed, or one of the job's own limits was passed, which counts
    /// before the end of the ramp too.
    pub(crate) fn failed(&mut self, errno: i32) {
        self.results.total_errors += 1;
        if self.results.error == 0 {
            self.results.error = errno;
        }
    }

    /// It has done I/O in these directions, and does something else from now on.
    pub(crate) fn phase_ended(&mut self, now: Nanos, directions: [bool; 3]) {
        let from = self.measure_from;
        if let Some((since, spent_ns)) = &mut self.phases {
            let past_ns = now.saturating_sub((*since).max(from)).0;
            for (spent_ns, _) in spent_ns
                .iter_mut()
                .zip(directions)
                .filter(|(_, does)| *does)
            {
                *spent_ns += past_ns;
            }
            *since = now;
        }
    }

    /// The process ended.
    pub(crate) fn end(&mut self, now: Nanos) {
        let runtime_ns = now.saturating_sub(self.measure_from).0;
        self.results.runtime_ns = runtime_ns;
        if let Some(log) = &mut self.log {
            log.end(runtime_ns);
        }
        let spent_ns = self.phases.map(|(_, spent_ns)| spent_ns);
        for dir in Direction::ALL {
            // fio counts in milliseconds, and begun ones as whole.
            let in_phases = |spent_ns: [u64; 3]| spent_ns[dir as usize].max(1_000_000);
            let d = self.dir(dir);
            if d.bytes > 0 {
                d.runtime_ns = spent_ns.map_or(runtime_ns, in_phases);
            }
        }
    }

    /// What was recorded; `process` is the process's number.
    pub(crate) fn into_results(mut self, process: u32) -> JobResults {
        for dir in Direction::ALL {
            let submitted = std::mem::take(&mut self.submitted_at_once[dir as usize]);
            let ended = std::mem::take(&mut self.ended_at_once[dir as usize]);
            let d = self.dir(dir);
            d.slat_ns.record_many(0, submitted.count());
            d.clat_ns.merge(&submitted);
            d.lat_ns.merge(&submitted);
            d.slat_ns.merge(&ended);
            d.clat_ns.record_many(0, ended.count());
            d.lat_ns.merge(&ended);
        }
        JobResults {
            process,
            ..self.results
        }
    }
}
