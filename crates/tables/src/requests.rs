//! The table of requests: a row for each.

use blklab_stats::{Results, Stage, TracedRequest};

use crate::TableKind;
use crate::column::{Declared, Table};

/// One request of a run.
struct Row<'a> {
    setting: &'a str,
    run: &'a Results,
    job: &'a str,
    request: &'a TracedRequest,
}

impl Row<'_> {
    fn stage(&self, stage: Stage) -> Option<u64> {
        Some(self.request.stages_ns[stage as usize] as u64)
    }
}

fn columns<'a>() -> Vec<Declared<Row<'a>>> {
    let mut columns = vec![
        Declared::text(
            "setting",
            "What the row of a comparison is called.",
            |row: &Row<'_>| Some(row.setting),
        ),
        Declared::integer("seed", "", "The run's seed.", |row| Some(row.run.seed)),
        Declared::text("drive", "The filename that the drive stands for.", |row| {
            Some(&row.run.disks.get(row.request.disk)?.name)
        }),
        Declared::integer(
            "request",
            "",
            "Its number on its queue; it is never used twice.",
            |row| Some(row.request.request),
        ),
        Declared::text(
            "job",
            "The job of the process that submitted it; null where that is the kernel.",
            |row| (!row.job.is_empty()).then_some(row.job),
        ),
        Declared::integer(
            "process",
            "",
            "Who submitted it, counted over all jobs.",
            |row| Some(row.request.submitter.into()),
        ),
        Declared::text(
            "operation",
            "R, W, D for discards or F for flushes, as blkparse has it.",
            |row| Some(operation(row.request.op)),
        ),
        Declared::integer(
            "sector",
            "512 bytes",
            "Where it starts, with all that was merged into it.",
            |row| Some(row.request.sector),
        ),
        Declared::integer("sectors", "512 bytes", "How much it is.", |row| {
            Some(row.request.sectors.into())
        }),
        Declared::integer(
            "cpu",
            "",
            "The CPU whose software queue it belongs to.",
            |row| Some(row.request.cpu.into()),
        ),
        Declared::integer(
            "depth",
            "",
            "Requests that the drive had when it got this one, this one among them.",
            |row| Some(row.request.depth.into()),
        ),
    ];
    columns.extend(of_steps());
    columns.extend(of_stages());
    columns
}

fn operation(op: char) -> &'static str {
    match op {
        'R' => "R",
        'W' => "W",
        'D' => "D",
        _ => "F",
    }
}

fn of_steps<'a>() -> Vec<Declared<Row<'a>>> {
    vec![
        Declared::integer(
            "submitted_ns",
            "ns",
            "When its first bio was submitted, from the run's start on.",
            |row: &Row<'_>| Some(row.request.submitted_ns),
        ),
        Declared::integer(
            "inserted_ns",
            "ns",
            "When it entered the scheduler or a software queue; null where it went past both.",
            |row| row.request.inserted_ns,
        ),
        Declared::integer(
            "dispatched_ns",
            "ns",
            "When the scheduler chose it; null where there is none.",
            |row| row.request.dispatched_ns,
        ),
        Declared::integer("issued_ns", "ns", "When the driver took it.", |row| {
            Some(row.request.issued_ns)
        }),
        Declared::integer("completed_ns", "ns", "When it ended.", |row| {
            Some(row.request.completed_ns)
        }),
        Declared::integer(
            "latency_ns",
            "ns",
            "From its submission to its end.",
            |row| Some(row.request.latency_ns()),
        ),
        Declared::integer(
            "io_start_ns",
            "ns",
            "When its program began the I/O of which it was made; when it was submitted, where no \
             program is known to wait for it.",
            |row| Some(row.request.io_start_ns),
        ),
        Declared::integer(
            "io_end_ns",
            "ns",
            "When that program had its I/O back; when it ended otherwise.",
            |row| Some(row.request.io_end_ns),
        ),
    ]
}

/// The times in each stage, which add up to the I/O's latency.
fn of_stages<'a>() -> Vec<Declared<Row<'a>>> {
    macro_rules! stages {
        ($($name:literal $stage:ident,)+) => {
            vec![$(
                Declared::integer($name, "ns", Stage::$stage.meaning(), |row: &Row<'_>| {
                    row.stage(Stage::$stage)
                }),
            )+]
        };
    }
    stages! {
        "in_tag_ns" Tag,
        "in_cpu_ns" Cpu,
        "in_lock_ns" Lock,
        "in_plug_ns" Plug,
        "in_flush_ns" Flush,
        "in_scheduler_ns" Scheduler,
        "in_driver_ns" Driver,
        "in_controller_ns" Controller,
        "in_link_ns" Link,
        "in_channel_ns" Channel,
        "in_die_ns" Die,
        "in_collection_ns" Collection,
        "in_map_ns" Map,
        "in_transfer_ns" Transfer,
        "in_media_ns" Media,
        "in_cache_ns" Cache,
        "in_rest_ns" Rest,
    }
}

/// The table of requests.
pub const REQUESTS: TableKind = TableKind {
    name: "requests",
    about: "One request, of those that were seen from beginning to end; a request that was \
            merged into another is part of that one. The times whose names begin with `in_` add \
            up to what lies between `io_start_ns` and `io_end_ns`.",
    columns: || columns().iter().map(Declared::described).collect(),
};

/// The requests of runs that were traced.
pub fn requests<'a>(runs: impl IntoIterator<Item = (&'a str, &'a Results)>) -> Table {
    let mut rows = Vec::new();
    for (setting, run) in runs {
        let Some(traced) = &run.traced_requests else {
            continue;
        };
        let jobs = run.jobs_of_submitters();
        // Most requests have the submitter of the one before.
        let mut last = (None, "");
        rows.reserve(traced.of.len());
        rows.extend(traced.of.iter().map(|request| {
            if last.0 != Some(request.submitter) {
                let job = jobs.get(&request.submitter).copied();
                last = (Some(request.submitter), job.unwrap_or_default());
            }
            Row {
                setting,
                run,
                job: last.1,
                request,
            }
        }));
    }
    Table::of(&columns(), &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_a_column_and_the_times_add_up() {
        assert_eq!(of_stages().len(), Stage::ALL.len());
        let mut stages_ns = [0.0; Stage::ALL.len()];
        (1..=Stage::ALL.len()).for_each(|at| stages_ns[at - 1] = at as f64);
        let whole_ns = stages_ns.iter().sum::<f64>() as u64;
        let request = TracedRequest {
            disk: 0,
            request: 1,
            op: 'W',
            sector: 8,
            sectors: 16,
            cpu: 2,
            submitter: 3,
            submitted_ns: 100,
            inserted_ns: None,
            dispatched_ns: Some(120),
            issued_ns: 130,
            completed_ns: 80 + whole_ns,
            depth: 4,
            io_start_ns: 90,
            io_end_ns: 90 + whole_ns,
            stages_ns,
        };
        let run = Results {
            traced_requests: Some(blklab_stats::TracedRequests {
                of: vec![request],
                cut: false,
            }),
            ..Results::default()
        };
        let table = requests([("none", &run)]);
        let cell = |name: &str| table.column(name).expect(name).values.json(0);
        let stages = of_stages();
        let times = stages.iter().map(|column| cell(column.name).as_u64());
        assert_eq!(times.map(|ns| ns.expect("is known")).sum::<u64>(), whole_ns);
        assert_eq!(cell("latency_ns").as_u64(), Some(whole_ns - 20));
        let io_ns = ["io_end_ns", "io_start_ns"].map(|name| cell(name).as_u64());
        assert_eq!(io_ns, [Some(90 + whole_ns), Some(90)]);
        assert_eq!((cell("operation"), cell("depth")), ("W".into(), 4.into()));
        assert!(cell("inserted_ns").is_null());
    }
}
