//! A zoomable chart of channels and dies over time: its data, and the script that draws
//! it.

use askama::Template;
use askama::filters::Safe;
use blklab_stats::{
    Activity, Cause, CpuWork, DiskTimeline, DriveWork, FlushSpan, StepKind, Timeline,
};
use serde_json::{Value, json};

use super::chart;
use crate::comparison::SchedulerTimeline;
use crate::quantity;

/// The kinds of spans: legend group, name and colour. The index in this list is the kind
/// in the data. A colour has one meaning on a page: work of a hard disk is never shown
/// beside work of flash.
const KINDS: [(&str, &str, &str); 15] = [
    (CHANNELS, "command", "var(--s0)"),
    (CHANNELS, "data in", "var(--s5)"),
    (CHANNELS, "data out", "var(--s6)"),
    (DIES, "read sense", "var(--s1)"),
    (DIES, "program", "var(--s2)"),
    (DIES, "erase", "var(--s7)"),
    (ARM, "seek", "var(--s2)"),
    (ARM, "rotation", "var(--s7)"),
    (ARM, "transfer", "var(--s1)"),
    (OWN, "garbage collection", "var(--s4)"),
    (OWN, "map", "var(--s3)"),
    (CPUS, "application", "var(--cpu0)"),
    (CPUS, "kernel", "var(--cpu1)"),
    (CPUS, "interrupt", "var(--cpu2)"),
    (REQUESTS, "flush", "var(--flush)"),
];
/// The kinds of the areas above: requests waiting in the queue, and requests in the
/// drive.
const DEPTHS: [(&str, &str, &str); 2] = [
    (REQUESTS, "queued", "var(--deep0)"),
    (REQUESTS, "in the drive", "var(--deep1)"),
];
const REQUESTS: &str = "Requests";
const CPUS: &str = "CPUs";
const CHANNELS: &str = "Channels, for the host";
const DIES: &str = "Dies, for the host";
const OWN: &str = "Channels and dies, for the drive itself";
const ARM: &str = "Arm";
/// The legend's groups in the order of the rows.
const GROUPS: [&str; 6] = [REQUESTS, CPUS, CHANNELS, DIES, OWN, ARM];
const COLLECTION: usize = 9;
const MAP: usize = 10;
const FLUSH: usize = 14;

const SCRIPT: &str = include_str!("timeline.js");

/// The timelines of all schedulers, each behind a button; nothing is shown if none were
/// recorded.
#[derive(Template)]
#[template(path = "timeline.html")]
pub(super) struct Timelines<'a> {
    timelines: &'a [SchedulerTimeline],
    runs: Vec<DrawnRun<'a>>,
}

/// A scheduler's run with its columns for the script.
struct DrawnRun<'a> {
    scheduler: &'a str,
    columns: Value,
}

impl<'a> Timelines<'a> {
    pub(super) fn new(timelines: &'a [SchedulerTimeline]) -> Timelines<'a> {
        let drawn = timelines
            .iter()
            .filter(|t| t.timeline.disks.iter().any(|d| !d.drive.parts.is_empty()));
        let runs = drawn.map(|t| DrawnRun {
            scheduler: &t.scheduler,
            columns: columns(&t.timeline),
        });
        Timelines {
            timelines,
            runs: runs.collect(),
        }
    }
}

/// Returns the data that the script draws, as JSON.
fn data(runs: &[DrawnRun<'_>]) -> String {
    let runs: Vec<&Value> = runs.iter().map(|run| &run.columns).collect();
    let kinds: Vec<Value> = KINDS
        .iter()
        .map(|(_, name, colour)| json!([name, colour]))
        .collect();
    let data = json!({ "kinds": kinds, "runs": runs });
    // Escaping `<` prevents a string from ending the script's element.
    data.to_string().replace('<', "\\u003c")
}

fn explanation(timelines: &[SchedulerTimeline]) -> String {
    let start_ns = timelines.first().map_or(0, |t| t.timeline.start_ns);
    let start = match start_ns {
        0 => "its start".to_string(),
        start_ns => quantity::latency(start_ns as f64),
    };
    let longest_ns = timelines
        .iter()
        .map(|t| t.timeline.end_ns.saturating_sub(t.timeline.start_ns))
        .max();
    let length = quantity::latency(longest_ns.unwrap_or(0) as f64);
    let cut = timelines.iter().filter(|t| t.timeline.cut).count();
    let cut = match (cut, timelines.len()) {
        (0, _) => "",
        (cut, all) if cut == all => " It ends early, since there was more than a page holds.",
        _ => " It ends early for some, since there was more than a page holds.",
    };
    format!(
        "What each part did, and how many requests were queued, over {length} of the first run, \
         from {start} on: a window, not the whole run.{cut} Requests that came before it are not \
         counted. Times with a + count from its beginning. Point at a stretch to see what it is and for which request (operation, first \
         sector + sectors of 512 bytes). Drag to move; zoom with the buttons, with + and - or \
         with Ctrl and the wheel."
    )
}

/// The drawn colour of an area, and its name.
type LegendArea = (Safe<String>, &'static str);

/// Returns the areas and the kinds that occur, by their group.
fn legend(runs: &[DrawnRun<'_>]) -> Vec<(&'static str, Vec<LegendArea>)> {
    let mut seen = [false; KINDS.len()];
    for kinds in runs.iter().filter_map(|run| run.columns["kind"].as_array()) {
        for kind in kinds.iter().filter_map(Value::as_u64) {
            seen[kind as usize] = true;
        }
    }
    let seen = KINDS.iter().zip(seen).filter(|(_, seen)| *seen);
    let seen: Vec<_> = DEPTHS.iter().chain(seen.map(|(kind, _)| kind)).collect();
    let groups = GROUPS.iter().map(|group| {
        let own = seen.iter().filter(|kind| kind.0 == *group);
        let areas = own.map(|(_, name, colour)| (chart::legend_area(colour), *name));
        (*group, areas.collect::<Vec<_>>())
    });
    groups.filter(|(_, areas)| !areas.is_empty()).collect()
}

/// A span of time in which a part worked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    start_ns: u64,
    end_ns: u64,
    row: usize,
    kind: usize,
    /// The first request that it was for, as an index into the requests' texts.
    request: Option<usize>,
    /// The number of further requests.
    more: usize,
}

/// Returns a run's timeline as columns: the rows' names, the requests' texts, and for
/// each span its row, kind, start relative to the span before, length, first request and
/// number of further requests.
fn columns(timeline: &Timeline) -> Value {
    let mut rows: Vec<Value> = Vec::new();
    let mut requests: Vec<String> = Vec::new();
    let mut spans = cpu_spans(timeline, &mut rows);
    let several = timeline.disks.len() > 1;
    for disk in &timeline.disks {
        let flushes = disk.flush_spans(timeline.end_ns);
        spans.extend(flush_spans(&flushes, (&mut rows, &mut requests)));
        spans.extend(drive_spans(disk, several, (&mut rows, &mut requests)));
    }
    spans.retain(|span| span.end_ns > span.start_ns && span.start_ns < timeline.end_ns);
    spans.sort_unstable();
    let mut before_ns = timeline.start_ns;
    let after = |span: &Span| {
        let after = span.start_ns as i64 - before_ns as i64;
        before_ns = span.start_ns;
        after
    };
    json!({
        "start": timeline.start_ns,
        "end": timeline.end_ns,
        "rows": rows,
        "after": spans.iter().map(after).collect::<Vec<i64>>(),
        "length": spans.iter().map(|s| s.end_ns - s.start_ns).collect::<Vec<u64>>(),
        "row": spans.iter().map(|s| s.row).collect::<Vec<usize>>(),
        "kind": spans.iter().map(|s| s.kind).collect::<Vec<usize>>(),
        "request": spans.iter().map(|s| s.request).collect::<Vec<Option<usize>>>(),
        "more": spans.iter().map(|s| s.more).collect::<Vec<usize>>(),
        "requests": requests,
        "depth": depths(timeline),
    })
}

/// Returns the work of CPUs; each CPU that worked gets a row.
fn cpu_spans(timeline: &Timeline, rows: &mut Vec<Value>) -> Vec<Span> {
    let mut spans = Vec::new();
    for cpu in 0..timeline.cpus {
        let own = || timeline.tasks.iter().filter(move |task| task.cpu == cpu);
        if !own().any(|task| task.end_ns > task.start_ns) {
            continue;
        }
        let row = rows.len();
        rows.push(json!([format!("CPU {cpu}"), 0]));
        spans.extend(own().map(|task| Span {
            start_ns: task.start_ns,
            end_ns: task.end_ns,
            row,
            kind: match task.work {
                CpuWork::Program => 11,
                CpuWork::Kernel | CpuWork::Dispatch => 12,
                CpuWork::Interrupt | CpuWork::SoftInterrupt => 13,
            },
            request: None,
            more: 0,
        }));
    }
    spans
}

/// Returns the spans of flushes in a drive, in a row of their own if there are any.
fn flush_spans(
    flushes: &[FlushSpan],
    (rows, requests): (&mut Vec<Value>, &mut Vec<String>),
) -> Vec<Span> {
    if flushes.is_empty() {
        return Vec::new();
    }
    let row = rows.len();
    rows.push(json!(["flushes", 0]));
    let first_request = requests.len();
    requests.extend(flushes.iter().map(|span| {
        let time = quantity::latency(span.held_ns as f64);
        format!(
            "its caller, beside {} other requests: {time} of their time in all",
            span.beside
        )
    }));
    let spans = flushes.iter().enumerate().map(|(at, span)| Span {
        start_ns: span.start_ns,
        end_ns: span.end_ns,
        row,
        kind: FLUSH,
        request: Some(first_request + at),
        more: 0,
    });
    spans.collect()
}

/// Returns the work of a drive's parts, in a row each; the drive's name is added if
/// there are several.
fn drive_spans(
    disk: &DiskTimeline,
    several: bool,
    (rows, requests): (&mut Vec<Value>, &mut Vec<String>),
) -> Vec<Span> {
    let first_row = rows.len();
    for part in &disk.drive.parts {
        let name = match several && part.within.is_none() {
            true => format!("{} {}", disk.name, part.name),
            false => part.name.clone(),
        };
        rows.push(json!([name, part.within.is_some() as u8]));
    }
    let first_request = requests.len();
    let issued = disk.steps.iter().filter(|s| s.kind == StepKind::Issued);
    requests.extend(issued.map(|step| format!("{} {} + {}", step.op, step.sector, step.sectors)));
    let known = requests.len() - first_request;
    let span = |activity: &Activity| {
        let commands = disk.drive.commands_of(activity);
        let first = commands.first().map(|command| *command as usize);
        Span {
            start_ns: activity.start_ns,
            end_ns: activity.end_ns,
            row: first_row + activity.part as usize,
            kind: kind_of(activity),
            request: first.filter(|c| *c < known).map(|c| first_request + c),
            more: commands.len().saturating_sub(1),
        }
    };
    disk.drive.activities.iter().map(span).collect()
}

fn kind_of(activity: &Activity) -> usize {
    match (activity.cause, activity.work) {
        (Cause::Collection, _) => COLLECTION,
        (Cause::Map, _) => MAP,
        (Cause::Host, DriveWork::Command) => 0,
        (Cause::Host, DriveWork::DataIn) => 1,
        (Cause::Host, DriveWork::DataOut) => 2,
        (Cause::Host, DriveWork::Sense) => 3,
        (Cause::Host, DriveWork::Program) => 4,
        (Cause::Host, DriveWork::Erase) => 5,
        (Cause::Host, DriveWork::Seek) => 6,
        (Cause::Host, DriveWork::Rotate) => 7,
        (Cause::Host, DriveWork::Transfer) => 8,
    }
}

/// Returns the numbers of requests queued and in the drives over time, each with its
/// time.
fn depths(timeline: &Timeline) -> Vec<(u64, i64, i64)> {
    let mut changes: Vec<(u64, i64, i64)> = timeline.disks.iter().flat_map(changes).collect();
    changes.sort_by_key(|change| change.0);
    let (mut queued, mut inside) = (0, 0);
    let mut depths: Vec<(u64, i64, i64)> = Vec::new();
    for (at_ns, to_queue, to_drive) in changes {
        queued += to_queue;
        inside += to_drive;
        let now = (at_ns - timeline.start_ns.min(at_ns), queued, inside);
        match depths.last_mut() {
            Some(last) if last.0 == now.0 => *last = now,
            _ => depths.push(now),
        }
    }
    depths
}

/// Returns how each event of a disk's requests changes the numbers of those queued and
/// in the drive. Requests from before the recording are left out.
fn changes(disk: &DiskTimeline) -> Vec<(u64, i64, i64)> {
    let mut known = std::collections::BTreeSet::new();
    let changes = disk.steps.iter().filter_map(|step| {
        let change = match step.kind {
            StepKind::Made => {
                known.insert(step.request);
                (1, 0)
            }
            _ if !known.contains(&step.request) => return None,
            StepKind::Issued => (-1, 1),
            StepKind::Requeued => (1, -1),
            StepKind::Merged => (-1, 0),
            StepKind::Completed => (0, -1),
            _ => return None,
        };
        Some((step.at_ns, change.0, change.1))
    });
    changes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_stats::{CpuTask, DrivePart, DriveTimeline, RequestStep};

    fn recorded() -> SchedulerTimeline {
        let part = |name: &str, within| DrivePart {
            name: name.to_string(),
            within,
        };
        let activity = |part, work, cause, start_ns, end_ns| Activity {
            part,
            work,
            cause,
            start_ns,
            end_ns,
            first_command: 0,
            commands: 1,
        };
        let step = |at_ns, kind, request| RequestStep {
            at_ns,
            kind,
            request,
            op: 'R',
            flags: 0,
            sector: 0,
            sectors: 8,
            cpu: 0,
            submitter: 0,
            errno: 0,
        };
        SchedulerTimeline {
            scheduler: "a<b".to_string(),
            timeline: Timeline {
                start_ns: 1000,
                end_ns: 3000,
                cut: true,
                cpus: 2,
                tasks: vec![CpuTask {
                    cpu: 1,
                    work: CpuWork::Kernel,
                    process: Some(0),
                    start_ns: 1000,
                    end_ns: 1010,
                    disk: 0,
                    first_request: 0,
                    requests: 1,
                    lock_ns: 0,
                }],
                calls: Vec::new(),
                ios: Vec::new(),
                disks: vec![DiskTimeline {
                    name: "/dev/x".to_string(),
                    flushes_hold_others: false,
                    steps: vec![
                        step(1010, StepKind::Made, 0),
                        step(1010, StepKind::Issued, 0),
                        // A request from before the window: its start is not known.
                        step(1500, StepKind::Completed, 77),
                        step(2000, StepKind::Completed, 0),
                    ],
                    drive: DriveTimeline {
                        parts: vec![part("channel 0", None), part("die 0", Some(0))],
                        activities: vec![
                            activity(1, DriveWork::Sense, Cause::Host, 1100, 1200),
                            activity(0, DriveWork::Command, Cause::Collection, 1050, 1100),
                        ],
                        commands: vec![0],
                        passages: Vec::new(),
                    },
                }],
            },
        }
    }

    fn page(timelines: &[SchedulerTimeline]) -> String {
        Timelines::new(timelines).render().unwrap()
    }

    #[test]
    fn no_colour_means_two_things() {
        let is_of_disk = |kind: &usize| (6..9).contains(kind);
        let mut colours: Vec<&str> = DEPTHS.iter().map(|depth| depth.2).collect();
        let kinds = (0..KINDS.len()).filter(|kind| !is_of_disk(kind));
        colours.extend(kinds.map(|kind| KINDS[kind].2));
        let all = colours.len();
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), all);
        assert_ne!(KINDS[6].2, KINDS[7].2);
        assert!(KINDS[6].2 != KINDS[8].2 && KINDS[7].2 != KINDS[8].2);
    }

    #[test]
    fn stretches_are_in_order_and_their_starts_count_from_each_other() {
        let data = columns(&recorded().timeline);
        assert_eq!(
            data["rows"],
            json!([["CPU 1", 0], ["channel 0", 0], ["die 0", 1]])
        );
        assert_eq!(data["after"], json!([0, 50, 50]));
        assert_eq!(data["length"], json!([10, 50, 100]));
        assert_eq!(data["row"], json!([0, 1, 2]));
        assert_eq!(data["kind"], json!([12, COLLECTION, 3]));
        assert_eq!(data["requests"], json!(["R 0 + 8"]));
        assert_eq!(data["request"], json!([null, 0, 0]));
        assert_eq!(data["more"], json!([0, 0, 0]));
        assert_eq!(data["depth"], json!([[10, 0, 1], [1000, 0, 0]]));
    }

    #[test]
    fn flushes_have_a_row_with_what_was_beside_them() {
        let mut timeline = recorded().timeline;
        let steps = &mut timeline.disks[0].steps;
        let mut flush = RequestStep {
            at_ns: 1200,
            kind: StepKind::Issued,
            request: 9,
            op: 'F',
            ..steps[0]
        };
        steps.insert(2, flush);
        (flush.at_ns, flush.kind) = (2500, StepKind::Completed);
        steps.push(flush);
        let data = columns(&timeline);
        assert_eq!(data["rows"][1], json!(["flushes", 0]));
        let at = data["kind"]
            .as_array()
            .and_then(|all| all.iter().position(|k| *k == FLUSH));
        let at = at.expect("a flush");
        assert_eq!(data["length"][at], 1300);
        let text = "its caller, beside 1 other requests: 800.0 ns of their time in all";
        assert_eq!(
            data["requests"][data["request"][at].as_u64().expect("its words") as usize],
            text
        );
    }

    #[test]
    fn the_page_says_what_part_of_the_run_it_shows() {
        let page = page(&[recorded()]);
        assert!(
            page.contains("2000 ns of the first run, from 1000 ns on"),
            "{page}"
        );
        assert!(page.contains("It ends early, since"));
        assert!(page.contains(">a&lt;b</button>"));
        assert!(page.contains("</svg>garbage collection</li>"));
        let requests = "<li class=\"of\">Requests</li>";
        assert!(page.contains(requests) && page.contains("</svg>in the drive</li>"));
        assert!(!page.contains("<li class=\"of\">Arm</li>"));
        assert!(!page.contains("</svg>erase</li>"));
    }

    #[test]
    fn nothing_is_drawn_of_drives_without_parts() {
        let mut plain = recorded();
        plain.timeline.disks[0].drive = DriveTimeline::default();
        assert_eq!(page(&[plain]), "");
        assert_eq!(page(&[]), "");
    }
}
