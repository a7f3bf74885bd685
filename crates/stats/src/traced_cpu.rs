//! The CPUs' part in the time of traced requests: their work, and their waits for the
//! scheduler's lock.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::timeline::{CpuTask, CpuWork, IoSpan, Timeline};
use crate::traced_request::{Stage, TracedRequest};

/// How long of a span of time a CPU was busy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuShare {
    /// At work, in nanoseconds.
    pub(crate) work_ns: f64,
    /// Waiting for the scheduler's lock, in nanoseconds.
    pub(crate) lock_ns: f64,
}

impl CpuShare {
    /// The share of a task that lies within a span.
    fn of(task: &CpuTask, (from, to): (u64, u64)) -> CpuShare {
        let within_ns = task.end_ns.min(to).saturating_sub(task.start_ns.max(from)) as f64;
        let length_ns = (task.end_ns - task.start_ns) as f64;
        // Whole nanoseconds, so that a request's stages add up in tables.
        let lock_ns = libm::floor(task.lock_ns as f64 * within_ns / length_ns.max(1.0));
        CpuShare {
            work_ns: within_ns - lock_ns,
            lock_ns,
        }
    }

    /// The wait for the lock alone.
    pub(crate) fn lock_only(self) -> CpuShare {
        CpuShare {
            work_ns: 0.0,
            ..self
        }
    }
}

/// The tasks of one CPU.
#[derive(Default)]
struct OneCpu<'a> {
    /// In the order of time, which do not overlap.
    tasks: Vec<&'a CpuTask>,
    /// The sum over all tasks before each.
    before: Vec<CpuShare>,
}

impl<'a> OneCpu<'a> {
    fn new(mut tasks: Vec<&'a CpuTask>) -> OneCpu<'a> {
        tasks.sort_by_key(|task| (task.start_ns, task.end_ns));
        let mut sum = CpuShare::default();
        let before = tasks.iter().map(|task| {
            let before = sum;
            let all = CpuShare::of(task, (0, u64::MAX));
            sum.work_ns += all.work_ns;
            sum.lock_ns += all.lock_ns;
            before
        });
        OneCpu {
            before: before.collect(),
            tasks,
        }
    }

    fn during(&self, (from, to): (u64, u64)) -> CpuShare {
        let first = self.tasks.partition_point(|task| task.end_ns <= from);
        let end = self.tasks.partition_point(|task| task.start_ns < to);
        let Some(last) = end.checked_sub(1).filter(|last| *last >= first) else {
            return CpuShare::default();
        };
        let at_first = CpuShare::of(self.tasks[first], (from, to));
        if first == last {
            return at_first;
        }
        let at_last = CpuShare::of(self.tasks[last], (from, to));
        let between = |of: fn(&CpuShare) -> f64| {
            of(&at_first) + of(&self.before[last]) - of(&self.before[first + 1]) + of(&at_last)
        };
        CpuShare {
            work_ns: between(|share| share.work_ns),
            lock_ns: between(|share| share.lock_ns),
        }
    }

    /// The task that runs at that time.
    fn task_at(&self, at_ns: u64) -> Option<&'a CpuTask> {
        let first = self.tasks.partition_point(|task| task.end_ns < at_ns);
        let task = self.tasks.get(first)?;
        (task.start_ns <= at_ns).then_some(task)
    }
}

/// What the CPUs of a recorded run did when.
pub(crate) struct CpuRecord<'a> {
    cpus: Vec<OneCpu<'a>>,
    /// The tasks in which requests were made, by drive and number.
    makers: BTreeMap<(u32, u64), &'a CpuTask>,
}

impl<'a> CpuRecord<'a> {
    pub(crate) fn new(timeline: &'a Timeline) -> CpuRecord<'a> {
        let mut by_cpu: Vec<Vec<&CpuTask>> = vec![Vec::new(); timeline.cpus as usize];
        let mut makers = BTreeMap::new();
        for task in &timeline.tasks {
            if let Some(of_cpu) = by_cpu.get_mut(task.cpu as usize) {
                of_cpu.push(task);
            }
            if task.work == CpuWork::Kernel {
                let made = task.first_request..task.first_request + u64::from(task.requests);
                made.for_each(|request| {
                    makers.entry((task.disk, request)).or_insert(task);
                });
            }
        }
        CpuRecord {
            cpus: by_cpu.into_iter().map(OneCpu::new).collect(),
            makers,
        }
    }

    /// How long a CPU was busy within a span.
    pub(crate) fn during(&self, cpu: u32, span: (u64, u64)) -> CpuShare {
        let cpu = self.cpus.get(cpu as usize);
        cpu.map_or_else(CpuShare::default, |cpu| cpu.during(span))
    }

    /// How long a CPU was busy within a span with what it did at its beginning.
    pub(crate) fn of_task_at_start(&self, cpu: u32, span: (u64, u64)) -> CpuShare {
        let cpu = self.cpus.get(cpu as usize);
        let task = cpu.and_then(|cpu| cpu.task_at(span.0));
        task.map_or_else(CpuShare::default, |task| CpuShare::of(task, span))
    }

    /// How long a CPU was busy within a span with the call that made a request.
    pub(crate) fn of_maker(&self, (disk, request): (u32, u64), span: (u64, u64)) -> CpuShare {
        let task = self.makers.get(&(disk, request));
        task.map_or_else(CpuShare::default, |task| CpuShare::of(task, span))
    }
}

/// Adds what comes before the submission and after the end of the requests of a drive, in the
/// order of their ends, to those that were made of I/Os of programs. Of an I/O of which several
/// were made it is added to the one that ends last, for which its program waits.
pub(crate) fn add_programs(
    requests: &mut [TracedRequest],
    disk: u32,
    (ios, cpus): (&[IoSpan], &CpuRecord<'_>),
) {
    let mut ios: Vec<&IoSpan> = ios.iter().filter(|io| io.disk == disk).collect();
    ios.sort_by_key(|io| io.first_request);
    let mut is_over = vec![false; ios.len()];
    for request in requests.iter_mut().rev() {
        let after = ios.partition_point(|io| io.first_request <= request.request);
        let Some(at) = after.checked_sub(1) else {
            continue;
        };
        let io = ios[at];
        let is_of_io = request.request - io.first_request < u64::from(io.requests);
        if !is_of_io || core::mem::replace(&mut is_over[at], true) {
            continue;
        }
        add_program(request, io, cpus);
    }
}

fn add_program(request: &mut TracedRequest, io: &IoSpan, cpus: &CpuRecord<'_>) {
    request.io_start_ns = io.start_ns.min(request.submitted_ns);
    request.io_end_ns = io.end_ns.max(request.completed_ns);
    for (span, other) in [
        // It waits behind others of its call.
        ((request.io_start_ns, request.submitted_ns), Stage::Tag),
        // Its program sleeps until it is its turn.
        ((request.completed_ns, request.io_end_ns), Stage::Cpu),
    ] {
        let share = cpus.during(request.cpu, span);
        let idle_ns = (span.1 - span.0) as f64 - share.work_ns - share.lock_ns;
        request.stages_ns[Stage::Cpu as usize] += share.work_ns;
        request.stages_ns[Stage::Lock as usize] += share.lock_ns;
        request.stages_ns[other as usize] += idle_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{DiskTimeline, RequestStep, StepKind};
    use alloc::string::ToString;

    fn task(work: CpuWork, (start_ns, end_ns): (u64, u64), lock_ns: u64) -> CpuTask {
        CpuTask {
            cpu: 0,
            work,
            process: Some(0),
            start_ns,
            end_ns,
            disk: 0,
            first_request: 0,
            requests: 0,
            lock_ns,
        }
    }

    fn steps(request: u64, at: &[(StepKind, u64)]) -> Vec<RequestStep> {
        let step = |&(kind, at_ns): &(StepKind, u64)| RequestStep {
            at_ns,
            kind,
            request,
            op: 'R',
            flags: 0,
            sector: 8 * request,
            sectors: 8,
            cpu: 0,
            submitter: 0,
            errno: 0,
        };
        at.iter().map(step).collect()
    }

    fn timeline(tasks: Vec<CpuTask>, ios: Vec<IoSpan>, mut steps: Vec<RequestStep>) -> Timeline {
        steps.sort_by_key(|step| step.at_ns);
        Timeline {
            end_ns: 10_000,
            cpus: 1,
            tasks,
            ios,
            disks: vec![DiskTimeline {
                name: "/dev/x".to_string(),
                steps,
                ..DiskTimeline::default()
            }],
            ..Timeline::default()
        }
    }

    fn io(first_request: u64, requests: u32, (start_ns, end_ns): (u64, u64)) -> IoSpan {
        IoSpan {
            start_ns,
            end_ns,
            disk: 0,
            first_request,
            requests,
        }
    }

    #[test]
    fn a_cpu_s_share_of_a_span_is_what_lies_within() {
        let tasks = [
            task(CpuWork::Kernel, (0, 100), 50),
            task(CpuWork::Program, (100, 140), 0),
            task(CpuWork::Interrupt, (200, 220), 10),
        ];
        let timeline = timeline(tasks.to_vec(), Vec::new(), Vec::new());
        let record = CpuRecord::new(&timeline);
        for (span, work_ns, lock_ns) in [
            ((0, 300), 100.0, 60.0),
            ((50, 100), 25.0, 25.0),
            ((50, 210), 70.0, 30.0),
            ((140, 200), 0.0, 0.0),
            ((210, 210), 0.0, 0.0),
            ((400, 500), 0.0, 0.0),
        ] {
            assert_eq!(
                record.during(0, span),
                CpuShare { work_ns, lock_ns },
                "{span:?}"
            );
        }
        assert_eq!(record.during(1, (0, 300)), CpuShare::default());
    }

    /// A program computes, then its call waits for a tag and for the lock; after the end in the
    /// drive another program has the CPU.
    #[test]
    fn cpu_lock_and_tag_are_told_apart() {
        use StepKind::{Completed, Dispatched, Inserted, Issued, Made, Queued};
        let request = steps(
            7,
            &[
                (Queued, 150),
                (Made, 500),
                (Inserted, 540),
                (Dispatched, 560),
                (Issued, 600),
                (Completed, 1000),
            ],
        );
        let made = CpuTask {
            first_request: 7,
            requests: 1,
            ..task(CpuWork::Kernel, (480, 600), 60)
        };
        let tasks = vec![
            task(CpuWork::Program, (100, 150), 0),
            // Another process, while the first sleeps for its tag.
            task(CpuWork::Program, (200, 400), 0),
            made,
        ];
        let ios = vec![io(7, 1, (90, 1300))];
        let traced = timeline(tasks, ios, request).traced_requests();
        let [request] = &traced.of[..] else {
            panic!("{traced:?}");
        };
        let spent = |stage: Stage| request.stages_ns[stage as usize];
        assert_eq!((request.io_start_ns, request.io_end_ns), (90, 1300));
        // 10 of the 60 ns before the submission nobody worked.
        assert_eq!(spent(Stage::Tag), 10.0 + 330.0);
        assert_eq!(spent(Stage::Lock), 10.0 + 20.0 + 10.0 + 20.0);
        assert_eq!(spent(Stage::Plug), 20.0);
        assert_eq!(spent(Stage::Scheduler), 10.0);
        assert_eq!(spent(Stage::Driver), 0.0);
        assert_eq!(spent(Stage::Cpu), 50.0 + 10.0 + 20.0 + 300.0);
        assert_eq!(spent(Stage::Rest), 400.0);
        let sum: f64 = request.stages_ns.iter().sum();
        assert_eq!(sum, request.io_latency_ns() as f64);
    }

    #[test]
    fn of_an_io_in_two_requests_the_last_one_has_the_program_s_time() {
        use StepKind::{Completed, Issued, Made};
        let mut both = steps(3, &[(Made, 100), (Issued, 110), (Completed, 400)]);
        both.extend(steps(4, &[(Made, 101), (Issued, 111), (Completed, 300)]));
        // A request of nobody.
        both.extend(steps(5, &[(Made, 102), (Issued, 112), (Completed, 500)]));
        let traced = timeline(Vec::new(), vec![io(3, 2, (100, 450))], both).traced_requests();
        let latencies: Vec<(u64, u64)> = traced
            .of
            .iter()
            .map(|request| (request.request, request.io_latency_ns()))
            .collect();
        assert_eq!(latencies, [(4, 199), (3, 350), (5, 398)]);
    }

    #[test]
    fn who_was_given_back_waits_for_room() {
        use StepKind::{Completed, Dispatched, Inserted, Issued, Made, Requeued};
        let request = steps(
            1,
            &[
                (Made, 0),
                (Inserted, 0),
                (Dispatched, 10),
                (Issued, 20),
                (Requeued, 20),
                (Issued, 90),
                (Completed, 100),
            ],
        );
        let traced = timeline(Vec::new(), Vec::new(), request).traced_requests();
        let spent = |stage: Stage| traced.of[0].stages_ns[stage as usize];
        assert_eq!((spent(Stage::Driver), spent(Stage::Cpu)), (80.0, 0.0));
    }
}
