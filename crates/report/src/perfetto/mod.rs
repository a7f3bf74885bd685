//! A run's timeline as a trace for Perfetto's viewer: CPUs, queues, the scheduler,
//! channels and dies as tracks, and every request's path through them as a flow.

mod proto;
#[cfg(test)]
mod tests;
mod tracks;

use std::collections::BTreeMap;

use blklab_stats::{
    Activity, CacheSample, CallSpan, Cause, CpuTask, CpuWork, DiskTimeline, RequestStep, Results,
    Slowest, StepKind, Timeline,
};

use tracks::{Annotation, Slice, Track, Tracks};

/// Returns the trace's bytes; `None` if the run has no timeline.
pub fn render(results: &Results) -> Option<Vec<u8>> {
    let timeline = results.timeline.as_ref()?;
    let mut tracks = Tracks::default();
    write_cpus(&mut tracks, timeline, &results.machine);
    write_calls(&mut tracks, results, timeline);
    if let Some(cache) = &results.page_cache {
        write_memory(&mut tracks, &cache.samples, timeline);
    }
    for (index, disk) in timeline.disks.iter().enumerate() {
        let requests = Requests::of(disk, timeline.end_ns);
        let flows = Flows { disk: index as u64 };
        write_queue(&mut tracks, disk, &requests, flows, &results.scheduler);
        if let Some(slowest) = &results.slowest {
            write_slowest(&mut tracks, slowest, index, flows);
        }
        write_drive(&mut tracks, disk, &requests, flows, &results.drive);
    }
    Some(tracks.into_bytes())
}

/// Writes the system calls of each program of a list of calls.
fn write_calls(tracks: &mut Tracks, results: &Results, timeline: &Timeline) {
    let mut by_process: BTreeMap<u32, Vec<Slice>> = BTreeMap::new();
    for call in (timeline.calls.iter()).filter(|call| call.start_ns <= timeline.end_ns) {
        let slices = by_process.entry(call.process).or_default();
        slices.push(call_slice(call, timeline));
    }
    if by_process.is_empty() {
        return;
    }
    let group = tracks.group("programs");
    for (number, slices) in by_process {
        let mut processes = results.jobs.iter().flat_map(|job| &job.processes);
        let process = processes.find(|process| process.process == number);
        let name = process.map_or("", |process| process.job.as_str());
        let track = tracks.track(group, &format!("{name}, process {number}"));
        tracks.slices(track, slices);
    }
}

fn call_slice(call: &CallSpan, timeline: &Timeline) -> Slice {
    let returned = match call.returned {
        Some(value) => Annotation::Number(value),
        None => Annotation::Text("an error".to_string()),
    };
    Slice {
        start_ns: call.start_ns.max(timeline.start_ns),
        end_ns: call.end_ns.min(timeline.end_ns),
        name: call.call.to_string(),
        flows: Vec::new(),
        annotations: vec![("returned", returned)],
    }
}

/// Writes cached and dirty memory within the timeline.
fn write_memory(tracks: &mut Tracks, samples: &[CacheSample], timeline: &Timeline) {
    let group = tracks.group("memory");
    type Column = (&'static str, fn(&CacheSample) -> u64);
    let columns: [Column; 2] = [
        ("cached bytes", |sample| sample.cached_bytes),
        ("dirty bytes", |sample| sample.dirty_bytes),
    ];
    for (name, bytes) in columns {
        let counter = tracks.counter(group, name);
        let window_ns = timeline.start_ns..=timeline.end_ns;
        for sample in samples
            .iter()
            .filter(|sample| window_ns.contains(&sample.at_ns))
        {
            tracks.count(counter, sample.at_ns, bytes(sample) as i64);
        }
    }
}

/// The ids of the flows of a drive's requests.
#[derive(Clone, Copy)]
struct Flows {
    disk: u64,
}

impl Flows {
    /// Returns a request's flow id, unique over all drives. A write that ended in the
    /// drive's cache keeps its flow on the way to the flash.
    fn of(self, request: u64) -> u64 {
        // Zero means no flow.
        (self.disk + 1) << 48 | request
    }
}

fn write_cpus(tracks: &mut Tracks, timeline: &Timeline, machine: &str) {
    let group = tracks.group(&format!("CPUs of {machine}"));
    let mut by_cpu: Vec<Vec<Slice>> = vec![Vec::new(); timeline.cpus as usize];
    for task in (timeline.tasks.iter()).filter(|task| task.start_ns <= timeline.end_ns) {
        by_cpu[task.cpu as usize].push(task_slice(task, timeline.end_ns));
    }
    for (cpu, slices) in by_cpu.into_iter().enumerate() {
        let track = tracks.track(group, &format!("CPU {cpu}"));
        tracks.slices(track, slices);
    }
}

fn task_slice(task: &CpuTask, window_end_ns: u64) -> Slice {
    let flows = Flows {
        disk: task.disk as u64,
    };
    let requests = task.first_request..task.first_request + task.requests as u64;
    Slice {
        start_ns: task.start_ns,
        end_ns: task.end_ns.min(window_end_ns),
        name: match task.work {
            CpuWork::Program => "program",
            CpuWork::Kernel => "kernel",
            CpuWork::Dispatch => "run of the queue",
            CpuWork::Interrupt => "interrupt",
            CpuWork::SoftInterrupt => "soft interrupt",
        }
        .to_string(),
        flows: requests.map(|request| flows.of(request)).collect(),
        annotations: (task.process.iter())
            .map(|&process| ("process", Annotation::Number(u64::from(process))))
            .collect(),
    }
}

/// The recorded path of a request.
#[derive(Clone, Debug)]
struct RequestPath {
    first: RequestStep,
    /// When it was created or first seen queued; `None` if the recording began later.
    queued_ns: Option<u64>,
    issued_ns: Option<u64>,
    /// When the driver completed or requeued it.
    left_ns: Option<u64>,
    merged: bool,
}

/// The requests of a drive, and the request of each of its commands.
struct Requests {
    paths: BTreeMap<u64, RequestPath>,
    by_command: Vec<u64>,
    end_ns: u64,
}

impl Requests {
    fn of(disk: &DiskTimeline, end_ns: u64) -> Requests {
        let mut paths: BTreeMap<u64, RequestPath> = BTreeMap::new();
        for step in &disk.steps {
            if !step.is_of_request() || step.kind == StepKind::Queued {
                continue;
            }
            let path = paths.entry(step.request).or_insert_with(|| RequestPath {
                first: *step,
                queued_ns: None,
                issued_ns: None,
                left_ns: None,
                merged: false,
            });
            match step.kind {
                StepKind::Made | StepKind::Inserted => {
                    path.queued_ns.get_or_insert(step.at_ns);
                }
                StepKind::Issued => {
                    path.issued_ns = Some(step.at_ns);
                    path.left_ns = None;
                }
                StepKind::Requeued | StepKind::Completed => path.left_ns = Some(step.at_ns),
                StepKind::Merged => {
                    path.merged = true;
                    path.left_ns = Some(step.at_ns);
                }
                _ => {}
            }
        }
        Requests {
            paths,
            by_command: disk.requests_by_command(),
            end_ns,
        }
    }

    /// Returns the slice of a request, with the same name and annotations on every
    /// track.
    fn slice(&self, path: &RequestPath, span_ns: (u64, u64), flow: u64) -> Slice {
        let step = &path.first;
        Slice {
            start_ns: span_ns.0,
            end_ns: span_ns.1.min(self.end_ns).max(span_ns.0),
            name: format!("{} {} + {}", step.op, step.sector, step.sectors),
            flows: vec![flow],
            annotations: vec![
                ("request", Annotation::Number(step.request)),
                ("submitter", Annotation::Number(step.submitter as u64)),
                ("cpu", Annotation::Number(step.cpu as u64)),
            ],
        }
    }
}

fn write_queue(
    tracks: &mut Tracks,
    disk: &DiskTimeline,
    requests: &Requests,
    flows: Flows,
    scheduler: &str,
) {
    let group = tracks.group(&format!("{}: queue, {scheduler}", disk.name));
    let asked = tracks.track(group, "scheduler");
    let (mut queued, mut in_drive) = (Vec::new(), Vec::new());
    for (request, path) in &requests.paths {
        let flow = flows.of(*request);
        if let Some(from_ns) = path.queued_ns {
            let to_ns = match (path.issued_ns, path.merged) {
                (Some(issued_ns), false) => issued_ns,
                _ => path.left_ns.unwrap_or(requests.end_ns),
            };
            queued.push(requests.slice(path, (from_ns, to_ns), flow));
        }
        if let Some(from_ns) = path.issued_ns {
            let to_ns = path.left_ns.unwrap_or(requests.end_ns);
            in_drive.push(requests.slice(path, (from_ns, to_ns), flow));
        }
    }
    // Tracks are written in the order in which a request passes them, which orders
    // events of the same time.
    write_requests(tracks, group, "queued", queued);
    write_scheduler(tracks, asked, disk, flows);
    write_requests(tracks, group, "in the drive", in_drive);
    write_flushes(tracks, group, disk, requests.end_ns, flows);
}

/// Writes when flushes were in the drive, with the other requests in flight; no track if
/// there were none.
fn write_flushes(
    tracks: &mut Tracks,
    group: Track,
    disk: &DiskTimeline,
    end_ns: u64,
    flows: Flows,
) {
    let spans = disk.flush_spans(end_ns);
    if spans.is_empty() {
        return;
    }
    let slices = spans.into_iter().map(|span| Slice {
        start_ns: span.start_ns,
        end_ns: span.end_ns,
        name: format!("flush beside {} others", span.beside),
        flows: vec![flows.of(span.request)],
        annotations: vec![
            ("others beside it", Annotation::Number(span.beside.into())),
            ("their time, ns", Annotation::Number(span.held_ns)),
        ],
    });
    let track = tracks.track(group, "flushes");
    tracks.slices(track, slices.collect());
}

/// Writes an example of each job's slowest requests on tracks of their own, where it is
/// easy to find.
fn write_slowest(tracks: &mut Tracks, slowest: &Slowest, disk: usize, flows: Flows) {
    let of_disk = slowest.of.iter().filter(|of| of.example.disk == disk);
    let slices = of_disk.map(|of| Slice {
        start_ns: of.example.from_ns,
        end_ns: of.example.to_ns,
        name: format!("p{} of {}: {}", slowest.percent, of.job, of.op),
        flows: vec![flows.of(of.example.request)],
        annotations: vec![("request", Annotation::Number(of.example.request))],
    });
    let slices: Vec<Slice> = slices.collect();
    let group = tracks.group("the slowest requests");
    tracks.overlapping(group, "at the percentile", slices);
}

/// Writes the requests in one place: each of them, and their number.
fn write_requests(tracks: &mut Tracks, group: Track, name: &str, slices: Vec<Slice>) {
    let counter = tracks.counter(group, &format!("requests {name}"));
    write_depth(tracks, counter, &slices);
    tracks.overlapping(group, name, slices);
}

/// Writes the scheduler's inserts, merges, dispatches and requeues.
fn write_scheduler(tracks: &mut Tracks, track: Track, disk: &DiskTimeline, flows: Flows) {
    for step in &disk.steps {
        let flow = Some(flows.of(step.request));
        match step.kind {
            StepKind::Inserted => tracks.instant(track, step.at_ns, "insert", flow),
            StepKind::Merged => tracks.instant(track, step.at_ns, "merge", flow),
            StepKind::Dispatched => tracks.instant(track, step.at_ns, "dispatch", flow),
            StepKind::Requeued => tracks.instant(track, step.at_ns, "requeue", flow),
            StepKind::ZoneHeld => tracks.instant(track, step.at_ns, "wait for the zone", None),
            StepKind::NoneDispatched => {
                tracks.instant(track, step.at_ns, "nothing to dispatch", None)
            }
            _ => {}
        }
    }
}

/// Writes the number of simultaneous slices.
fn write_depth(tracks: &mut Tracks, counter: Track, slices: &[Slice]) {
    let starts = slices.iter().map(|slice| (slice.start_ns, 1));
    let ends = slices.iter().map(|slice| (slice.end_ns, -1));
    let mut changes: Vec<(u64, i64)> = starts.chain(ends).collect();
    changes.sort_unstable();
    let mut depth = 0;
    for same_time in changes.chunk_by(|a, b| a.0 == b.0) {
        let change: i64 = same_time.iter().map(|(_, change)| change).sum();
        if change != 0 {
            depth += change;
            tracks.count(counter, same_time[0].0, depth);
        }
    }
}

fn write_drive(
    tracks: &mut Tracks,
    disk: &DiskTimeline,
    requests: &Requests,
    flows: Flows,
    drive: &str,
) {
    let parts = &disk.drive.parts;
    if parts.is_empty() {
        return;
    }
    let group = tracks.group(&format!("{}: drive, {drive}", disk.name));
    let mut slices: Vec<Vec<Slice>> = vec![Vec::new(); parts.len()];
    let activities = disk.drive.activities.iter();
    for activity in activities.filter(|activity| activity.start_ns <= requests.end_ns) {
        let known = disk.drive.commands_of(activity).iter();
        let served = known.filter_map(|command| requests.by_command.get(*command as usize));
        let flows = served.map(|request| flows.of(*request)).collect();
        slices[activity.part as usize].push(activity_slice(activity, flows, requests.end_ns));
    }
    let mut shown: Vec<Track> = Vec::new();
    for (part, slices) in parts.iter().zip(slices) {
        let within = part.within.map_or(group, |of| shown[of as usize]);
        let track = tracks.track(within, &part.name);
        tracks.slices(track, slices);
        shown.push(track);
    }
}

fn activity_slice(activity: &Activity, flows: Vec<u64>, window_end_ns: u64) -> Slice {
    let cause = match activity.cause {
        Cause::Host => "host",
        Cause::Collection => "garbage collection",
        Cause::Map => "map",
    };
    Slice {
        start_ns: activity.start_ns,
        end_ns: activity.end_ns.min(window_end_ns),
        name: match activity.cause {
            Cause::Host => activity.work.name().to_string(),
            _ => format!("{} ({cause})", activity.work.name()),
        },
        flows,
        annotations: vec![("for", Annotation::Text(cause.to_string()))],
    }
}
