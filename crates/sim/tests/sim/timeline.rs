//! What is written down of a window of a run: each step of a request at the time
//! at which a CPU came to it, and what the drive did for the request it was for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use blklab_sim::{FileSystemKind, Workload};
use blklab_stats::{CallTimes, Detail, DriveWork, RequestStep, StepKind, Timeline, Window};
use blklab_workload::calls::CallList;

use crate::{On, job_file};

/// Five milliseconds from the middle of a run in which more is asked for than
/// the queue has tags, on a machine whose CPUs take their time.
fn recorded(engine: &str, on: On<'_>) -> Timeline {
    let text = format!(
        "[a]\nfilename=/dev/x\ndirect=1\nioengine={engine}\niodepth=300\nbs=4k\nrw=randrw\n\
         numjobs=3\ntime_based\nruntime=30ms\n"
    );
    let window = Window {
        start_ns: 12_000_000,
        length_ns: 5_000_000,
        max_entries: usize::MAX,
        detail: Detail::Drives,
    };
    let results = on.run(Workload::Job(&job_file(&text)), Some(window));
    let results = results.unwrap_or_else(|e| panic!("{e}"));
    results.timeline.expect("the run is longer")
}

/// Runs that all tests look at, each named by its I/O engine and drive.
static RUNS: LazyLock<Vec<(String, Timeline)>> = LazyLock::new(|| {
    let runs = [
        ("libaio", "mx100-256", "i7-3770k", "mq-deadline"),
        ("io_uring", "mx100-256", "vm-2cpu", "none"),
        ("io_uring", "enterprise-tlc", "xeon-10core", "none"),
        ("posixaio", "mx100-256", "i7-3770k", "bfq"),
    ];
    let run = |(engine, drive, machine, scheduler)| {
        let on = On {
            machine,
            drive,
            scheduler,
        };
        (format!("{engine} on {drive}"), recorded(engine, on))
    };
    runs.map(run).into()
});

/// The steps of each request of the only disk, in their order.
fn ways(timeline: &Timeline) -> BTreeMap<u64, Vec<RequestStep>> {
    let mut ways: BTreeMap<u64, Vec<RequestStep>> = BTreeMap::new();
    for step in &timeline.disks[0].steps {
        ways.entry(step.request).or_default().push(*step);
    }
    ways
}

fn at(way: &[RequestStep], kind: StepKind) -> Option<u64> {
    let mut steps = way.iter();
    steps.find(|step| step.kind == kind).map(|step| step.at_ns)
}

#[test]
fn steps_come_one_after_the_other_and_take_time() {
    use StepKind::{Completed, Dispatched, Inserted, Issued, Made};
    for (run, timeline) in RUNS.iter() {
        let mut seen = 0;
        for way in ways(timeline).values() {
            let (Some(made), Some(issued)) = (at(way, Made), at(way, Issued)) else {
                continue;
            };
            assert!(made < issued, "{run}: {way:?}");
            let order = [Made, Inserted, Dispatched, Issued, Completed];
            let times: Vec<u64> = order.iter().filter_map(|kind| at(way, *kind)).collect();
            assert!(times.is_sorted(), "{run}: {way:?}");
            seen += 1;
        }
        assert!(seen > 50, "{run}: {seen} requests");
    }
}

#[test]
fn what_the_drive_does_is_for_the_request_that_it_has() {
    for (run, timeline) in RUNS.iter() {
        let ways = ways(timeline);
        let disk = &timeline.disks[0];
        let issued = disk.steps.iter().filter(|s| s.kind == StepKind::Issued);
        let issued: Vec<&RequestStep> = issued.collect();
        let mut seen = 0;
        let reads = disk.drive.activities.iter();
        for activity in reads.filter(|a| matches!(a.work, DriveWork::Sense | DriveWork::DataOut)) {
            for command in disk.drive.commands_of(activity) {
                let request = issued[*command as usize];
                let ended = at(&ways[&request.request], StepKind::Completed);
                if request.op != 'R' || ended.is_none() {
                    continue;
                }
                let within = request.at_ns <= activity.start_ns;
                let within = within && ended.is_some_and(|ended| activity.end_ns <= ended);
                assert!(within, "{run}: {activity:?} for {request:?}");
                seen += 1;
            }
        }
        assert!(seen > 50, "{run}: {seen} reads");
    }
}

#[test]
fn every_request_that_is_made_has_a_cpu_that_made_it() {
    for (run, timeline) in RUNS.iter() {
        let by_cpu = |task: &blklab_stats::CpuTask| {
            task.first_request..task.first_request + task.requests as u64
        };
        let on_cpu: BTreeSet<u64> = timeline.tasks.iter().flat_map(by_cpu).collect();
        let made = timeline.disks[0].steps.iter();
        let mut made = made.filter(|step| step.kind == StepKind::Made).peekable();
        assert!(made.peek().is_some());
        for step in made {
            let is_known = on_cpu.contains(&step.request);
            assert!(is_known, "{run}: nobody made {step:?}");
        }
    }
}

/// The calls that are written down are those that are counted, one after the other.
#[test]
fn each_call_of_a_list_is_written_down() {
    let text = "file /x 4M\n[a]\nopen fd /x read write\nrepeat 20\npwrite fd 4K 0\n\
                pread fd 64K 1M\nend\nfsync fd\n[b]\nsleep 1ms\nunlink /none = ENOENT\n";
    let list = CallList::parse("t.calls", text).expect("a list");
    let workload = Workload::Calls {
        list: &list,
        file: "t.calls",
    };
    let window = Window {
        start_ns: 0,
        length_ns: u64::MAX,
        max_entries: usize::MAX,
        detail: Detail::Drives,
    };
    let on = On {
        machine: "i7-3770k",
        drive: "mx100-256",
        scheduler: "mq-deadline",
    };
    let results = on.run_setup(workload, |setup| {
        setup.record = Some(window);
        setup.caching.file_system = FileSystemKind::Ext2;
    });
    let results = results.unwrap_or_else(|e| panic!("{e}"));
    let timeline = results.timeline.as_ref().expect("it was recorded");
    for job in &results.jobs {
        let process = job.processes[0].process;
        let own = timeline.calls.iter().filter(|call| call.process == process);
        let own: Vec<_> = own.collect();
        assert!(
            own.windows(2)
                .all(|pair| pair[0].end_ns <= pair[1].start_ns)
        );
        for of_kind in &job.calls {
            let mut sum = CallTimes::new(of_kind.call);
            for call in own.iter().filter(|call| call.call == of_kind.call) {
                sum.ended(call.end_ns - call.start_ns, call.returned);
            }
            let counted = (
                of_kind.calls,
                of_kind.errors,
                of_kind.returned,
                of_kind.total_ns,
            );
            assert_eq!((sum.calls, sum.errors, sum.returned, sum.total_ns), counted);
        }
    }
    assert!(timeline.calls.len() > 42, "{}", timeline.calls.len());
}

/// Zoomed in, a part that did two things at once would show one of them.
#[test]
fn nothing_does_two_things_at_once() {
    for (run, timeline) in RUNS.iter() {
        let drive_spans = timeline.disks[0].drive.activities.iter();
        let drive_spans = drive_spans.map(|a| ((0, a.part), a.start_ns, a.end_ns));
        let cpu_spans = timeline.tasks.iter();
        let cpu_spans = cpu_spans.map(|t| ((1, t.cpu), t.start_ns, t.end_ns));
        let mut spans: Vec<_> = drive_spans.chain(cpu_spans).collect();
        spans.sort_unstable();
        for pair in spans.windows(2) {
            let (before, after) = (pair[0], pair[1]);
            let apart = before.0 != after.0 || before.2 <= after.1;
            assert!(apart, "{run}: {before:?} and {after:?}");
        }
    }
}
