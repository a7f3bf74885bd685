//! Channels and dies over time, to be zoomed: the data, and a script that
//! draws it.

use std::fmt::{self, Write};

use blklab_stats::{Activity, Cause, CpuWork, DiskTimeline, StepKind, Timeline, Work};
use serde_json::{Value, json};

use super::escape;
use crate::comparison::SchedulerTimeline;
use crate::quantity;

/// What a stretch of time is drawn as: name and colour. The place in this list
/// is the kind that the data names. A colour has one meaning on a page: what a
/// disk does is never beside what flash does.
const KINDS: [(&str, &str); 14] = [
    ("command", "var(--s0)"),
    ("data in", "var(--s5)"),
    ("data out", "var(--s6)"),
    ("read sense", "var(--s1)"),
    ("program", "var(--s2)"),
    ("erase", "var(--s7)"),
    ("seek", "var(--s2)"),
    ("rotation", "var(--s7)"),
    ("transfer", "var(--s1)"),
    ("garbage collection", "var(--s4)"),
    ("map", "var(--s3)"),
    ("program on a CPU", "var(--cpu0)"),
    ("kernel", "var(--cpu1)"),
    ("interrupt", "var(--cpu2)"),
];
/// The areas above: requests that wait in the queue, and those in the drive.
const DEPTHS: [(&str, &str); 2] = [
    ("requests queued", "var(--deep0)"),
    ("requests in the drive", "var(--deep1)"),
];
const COLLECTION: usize = 9;
const MAP: usize = 10;

/// All schedulers' timelines under one another's buttons; nothing where none
/// were recorded.
pub(super) fn write(out: &mut String, timelines: &[SchedulerTimeline]) -> fmt::Result {
    let drawn: Vec<(&str, Value)> = timelines
        .iter()
        .filter(|t| t.timeline.disks.iter().any(|d| !d.drive.parts.is_empty()))
        .map(|t| (t.scheduler.as_str(), data(&t.timeline)))
        .collect();
    let Some(first) = timelines.first() else {
        return Ok(());
    };
    if drawn.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>Inside the drive</h2>")?;
    writeln!(
        out,
        "<p class=\"soft\">{}</p>",
        explanation(timelines, first)
    )?;
    write_legend(out, &drawn)?;
    writeln!(out, "<div class=\"card\" id=\"timeline\">")?;
    write!(out, "<p class=\"choice\">")?;
    for (index, (scheduler, _)) in drawn.iter().enumerate() {
        let name = escape(scheduler);
        write!(
            out,
            "<button type=\"button\" data-run=\"{index}\">{name}</button>"
        )?;
    }
    writeln!(
        out,
        "<span></span>\
         <button type=\"button\" data-zoom=\"2\" title=\"zoom in\">+</button>\
         <button type=\"button\" data-zoom=\"0.5\" title=\"zoom out\">&#8722;</button>\
         <button type=\"button\" data-zoom=\"0\" title=\"show all\">all</button></p>\n\
         <canvas tabindex=\"0\" role=\"img\" aria-label=\"what CPUs, channels and dies did over \
         time\"></canvas>\n<p class=\"soft\" data-tip=\"\">&nbsp;</p>\n\
         <noscript><p>The timeline is drawn by a script of this page.</p></noscript>\n</div>"
    )?;
    let runs: Vec<Value> = drawn.into_iter().map(|(_, data)| data).collect();
    let kinds: Vec<Value> = KINDS
        .iter()
        .map(|(name, colour)| json!([name, colour]))
        .collect();
    let data = json!({ "kinds": kinds, "runs": runs });
    // Nothing in a string may end the script's element.
    let data = data.to_string().replace('<', "\\u003c");
    writeln!(
        out,
        "<script type=\"application/json\" id=\"timeline-data\">{data}</script>\n\
         <script>\n{}</script>",
        include_str!("timeline.js")
    )
}

fn explanation(timelines: &[SchedulerTimeline], first: &SchedulerTimeline) -> String {
    let window = &first.timeline;
    let start = quantity::latency(window.start_ns as f64);
    let longest_ns = timelines
        .iter()
        .map(|t| t.timeline.end_ns.saturating_sub(t.timeline.start_ns))
        .max();
    let length = quantity::latency(longest_ns.unwrap_or(0) as f64);
    let cut = match timelines.iter().any(|t| t.timeline.cut) {
        true => " It was ended early for some, since there was more than a page holds.",
        false => "",
    };
    format!(
        "What each part did, and how many requests were queued, over {length} of the first run, \
         from {start} on: a window, not the whole run.{cut} Drag to move; zoom with the buttons, \
         with + and - or with Ctrl and the wheel."
    )
}

/// The areas, and the kinds that are seen anywhere.
fn write_legend(out: &mut String, drawn: &[(&str, Value)]) -> fmt::Result {
    let mut seen = [false; KINDS.len()];
    for kinds in drawn.iter().filter_map(|(_, data)| data["kind"].as_array()) {
        for kind in kinds.iter().filter_map(Value::as_u64) {
            seen[kind as usize] = true;
        }
    }
    writeln!(out, "<ul class=\"legend\">")?;
    let seen = KINDS.iter().zip(seen).filter(|(_, seen)| *seen);
    for (name, colour) in DEPTHS.iter().chain(seen.map(|(kind, _)| kind)) {
        writeln!(
            out,
            "<li><svg viewBox=\"0 0 30 10\" aria-hidden=\"true\"><rect width=\"30\" height=\"10\" \
             fill=\"{colour}\"/></svg>{name}</li>"
        )?;
    }
    writeln!(out, "</ul>")
}

/// A stretch of time in which a part did something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    start_ns: u64,
    end_ns: u64,
    row: usize,
    kind: usize,
    /// The first command that it was for.
    command: Option<u32>,
}

/// One run's timeline as columns: rows by name, and of each stretch of time its
/// row, kind, start after the one before, length, and first command.
fn data(timeline: &Timeline) -> Value {
    let mut rows: Vec<Value> = Vec::new();
    let mut spans = cpu_spans(timeline, &mut rows);
    let several = timeline.disks.len() > 1;
    for disk in &timeline.disks {
        spans.extend(drive_spans(disk, several, &mut rows));
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
        "command": spans.iter().map(|s| s.command).collect::<Vec<Option<u32>>>(),
        "depth": depths(timeline),
    })
}

/// What CPUs did; those that did anything get a row each.
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
            command: None,
        }));
    }
    spans
}

/// What the parts of a drive did, a row each; of several drives they have its
/// name.
fn drive_spans(disk: &DiskTimeline, several: bool, rows: &mut Vec<Value>) -> Vec<Span> {
    let first_row = rows.len();
    for part in &disk.drive.parts {
        let name = match several && part.within.is_none() {
            true => format!("{} {}", disk.name, part.name),
            false => part.name.clone(),
        };
        rows.push(json!([name, part.within.is_some() as u8]));
    }
    let activities = disk.drive.activities.iter();
    let span = |activity: &Activity| Span {
        start_ns: activity.start_ns,
        end_ns: activity.end_ns,
        row: first_row + activity.part as usize,
        kind: kind_of(activity),
        command: disk.drive.commands_of(activity).first().copied(),
    };
    activities.map(span).collect()
}

fn kind_of(activity: &Activity) -> usize {
    match (activity.cause, activity.work) {
        (Cause::Collection, _) => COLLECTION,
        (Cause::Map, _) => MAP,
        (Cause::Host, Work::Command) => 0,
        (Cause::Host, Work::DataIn) => 1,
        (Cause::Host, Work::DataOut) => 2,
        (Cause::Host, Work::Sense) => 3,
        (Cause::Host, Work::Program) => 4,
        (Cause::Host, Work::Erase) => 5,
        (Cause::Host, Work::Seek) => 6,
        (Cause::Host, Work::Rotate) => 7,
        (Cause::Host, Work::Transfer) => 8,
    }
}

/// Requests waiting in the queue and in the drives over time: when, how many of
/// each.
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

/// How each step of a disk's requests changes the numbers of those queued and
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
            sector: 0,
            sectors: 8,
            cpu: 0,
            submitter: 0,
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
                    process: 0,
                    start_ns: 1000,
                    end_ns: 1010,
                    disk: 0,
                    first_request: 0,
                    requests: 1,
                }],
                disks: vec![DiskTimeline {
                    name: "/dev/x".to_string(),
                    steps: vec![
                        step(1010, StepKind::Made, 0),
                        step(1010, StepKind::Issued, 0),
                        // From before the window: nobody knows when it came.
                        step(1500, StepKind::Completed, 77),
                        step(2000, StepKind::Completed, 0),
                    ],
                    drive: DriveTimeline {
                        parts: vec![part("channel 0", None), part("die 0", Some(0))],
                        activities: vec![
                            activity(1, Work::Sense, Cause::Host, 1100, 1200),
                            activity(0, Work::Command, Cause::Collection, 1050, 1100),
                        ],
                        commands: vec![4],
                    },
                }],
            },
        }
    }

    #[test]
    fn no_colour_means_two_things() {
        let is_of_disk = |kind: &usize| (6..9).contains(kind);
        let mut colours: Vec<&str> = DEPTHS.iter().map(|depth| depth.1).collect();
        let kinds = (0..KINDS.len()).filter(|kind| !is_of_disk(kind));
        colours.extend(kinds.map(|kind| KINDS[kind].1));
        let all = colours.len();
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), all);
        assert_ne!(KINDS[6].1, KINDS[7].1);
        assert!(KINDS[6].1 != KINDS[8].1 && KINDS[7].1 != KINDS[8].1);
    }

    #[test]
    fn stretches_are_in_order_and_their_starts_count_from_each_other() {
        let data = data(&recorded().timeline);
        assert_eq!(
            data["rows"],
            json!([["CPU 1", 0], ["channel 0", 0], ["die 0", 1]])
        );
        assert_eq!(data["after"], json!([0, 50, 50]));
        assert_eq!(data["length"], json!([10, 50, 100]));
        assert_eq!(data["row"], json!([0, 1, 2]));
        assert_eq!(data["kind"], json!([12, COLLECTION, 3]));
        assert_eq!(data["command"], json!([null, 4, 4]));
        assert_eq!(data["depth"], json!([[10, 0, 1], [1000, 0, 0]]));
    }

    #[test]
    fn the_page_says_what_part_of_the_run_it_shows() {
        let mut page = String::new();
        write(&mut page, &[recorded()]).unwrap();
        assert!(
            page.contains("2000 ns of the first run, from 1000 ns on"),
            "{page}"
        );
        assert!(page.contains("ended early"));
        assert!(page.contains(">a&lt;b</button>"));
        assert!(page.contains("</svg>garbage collection</li>"));
        assert!(page.contains("</svg>requests in the drive</li>"));
        assert!(!page.contains("</svg>erase</li>"));
    }

    #[test]
    fn nothing_is_drawn_of_drives_without_parts() {
        let mut plain = recorded();
        plain.timeline.disks[0].drive = DriveTimeline::default();
        let mut page = String::new();
        write(&mut page, &[plain]).unwrap();
        write(&mut page, &[]).unwrap();
        assert_eq!(page, "");
    }
}
