//! The table of results: a row for each direction of each job in each run.

use std::borrow::Cow;

use blklab_stats::{DirResults, Fact, JobResults, Results, Summary, Unit, facts};

use crate::TableKind;
use crate::column::{Column, Declared, Table, Values};

/// One direction of a job in a run.
struct Row<'a> {
    setting: &'a str,
    repeat: u64,
    run: &'a Results,
    job: &'a JobResults,
    /// `None` for a job that did no I/O.
    direction: Option<&'static str>,
    of: Cow<'a, DirResults>,
    /// Not so for calls of fsync and fdatasync.
    has_bytes: bool,
}

impl Row<'_> {
    fn percentile(&self, percent: f64) -> Option<u64> {
        let latency = self.of.latency();
        (!latency.is_empty()).then(|| latency.percentile(percent))
    }

    fn summary(&self) -> Option<Summary> {
        let latency = self.of.latency();
        (!latency.is_empty()).then(|| latency.summary())
    }
}

fn columns<'a>() -> Vec<Declared<Row<'a>>> {
    let mut columns = of_run();
    columns.extend(of_transfers());
    columns.extend(of_latency());
    columns
}

fn of_run<'a>() -> Vec<Declared<Row<'a>>> {
    vec![
        Declared::text(
            "setting",
            "What the row of a comparison is called: the scheduler, and what else varies.",
            |row: &Row<'_>| Some(row.setting),
        ),
        Declared::text("world", "Where it ran: sim, serve, host or guest.", |row| {
            Some(row.run.world.name())
        }),
        Declared::text("drive", "The drive's description.", |row| {
            Some(&row.run.drive)
        }),
        Declared::text("machine", "The machine's description.", |row| {
            Some(&row.run.machine)
        }),
        Declared::integer(
            "seed",
            "",
            "What decided everything left to chance.",
            |row| Some(row.run.seed),
        ),
        Declared::integer("repeat", "", "Which run of the setting, from 0.", |row| {
            Some(row.repeat)
        }),
        Declared::integer(
            "elapsed_ns",
            "ns",
            "How long the run took, ramp included.",
            |row| Some(row.run.elapsed_ns),
        ),
        Declared::text("job", "The job's name.", |row| Some(&row.job.name)),
        Declared::integer(
            "process",
            "",
            "The first of its processes, counted over all jobs.",
            |row| Some(row.job.process.into()),
        ),
        Declared::integer(
            "processes",
            "",
            "How many processes are summed in the row.",
            |row| Some(row.job.members.into()),
        ),
        Declared::text(
            "direction",
            "read, write, trim, or sync for calls of fsync and fdatasync; null where the job did \
             none of them.",
            |row| row.direction,
        ),
        Declared::integer(
            "error",
            "errno",
            "The highest error of the job's I/O, 0 for none.",
            |row| u64::try_from(row.job.error).ok(),
        ),
        Declared::integer(
            "errors",
            "",
            "I/Os of the job that ended in an error.",
            |row| Some(row.job.total_errors),
        ),
    ]
}

fn of_transfers<'a>() -> Vec<Declared<Row<'a>>> {
    vec![
        Declared::integer("ios", "", "I/Os done.", |row: &Row<'_>| Some(row.of.ios)),
        Declared::integer("bytes", "bytes", "Bytes done.", |row| {
            row.has_bytes.then_some(row.of.bytes)
        }),
        Declared::integer("runtime_ns", "ns", "Over which time.", |row| {
            Some(row.of.runtime_ns)
        }),
        Declared::number("iops", "1/s", "I/Os a second.", |row| Some(row.of.iops())),
        Declared::number(
            "bandwidth_bytes_per_s",
            "bytes/s",
            "Bytes a second.",
            |row| row.has_bytes.then(|| row.of.bandwidth()),
        ),
    ]
}

fn of_latency<'a>() -> Vec<Declared<Row<'a>>> {
    vec![
        Declared::integer(
            "latency_min_ns",
            "ns",
            "Shortest latency, from submission to completion.",
            |row: &Row<'_>| row.summary().map(|of| of.min_ns),
        ),
        Declared::number("latency_mean_ns", "ns", "Mean latency.", |row| {
            row.summary().map(|of| of.mean_ns)
        }),
        Declared::integer("latency_p50_ns", "ns", "Median latency.", |row| {
            row.percentile(50.0)
        }),
        Declared::integer(
            "latency_p90_ns",
            "ns",
            "90th percentile of latency.",
            |row| row.percentile(90.0),
        ),
        Declared::integer(
            "latency_p99_ns",
            "ns",
            "99th percentile of latency.",
            |row| row.percentile(99.0),
        ),
        Declared::integer(
            "latency_p99_9_ns",
            "ns",
            "99.9th percentile of latency.",
            |row| row.percentile(99.9),
        ),
        Declared::integer(
            "latency_p99_99_ns",
            "ns",
            "99.99th percentile of latency.",
            |row| row.percentile(99.99),
        ),
        Declared::integer("latency_max_ns", "ns", "Longest latency.", |row| {
            row.summary().map(|of| of.max_ns)
        }),
    ]
}

/// The table of results. The facts of the run follow as columns named by their keys.
pub const RESULTS: TableKind = TableKind {
    name: "results",
    about: "One direction of one job in one run, and one row for a job that did no I/O. Every fact of the run (facts.md) follows as a \
            column of its key, null where the run does not have it.",
    columns: || columns().iter().map(Declared::described).collect(),
};

/// The results of runs, given by setting with the setting's label.
pub fn results<'a>(runs: impl IntoIterator<Item = (&'a str, &'a [Results])>) -> Table {
    let mut rows = Vec::new();
    for (setting, runs) in runs {
        for (repeat, run) in runs.iter().enumerate() {
            for job in &run.jobs {
                rows.extend(directions(setting, repeat as u64, run, job));
            }
        }
    }
    let mut table = Table::of(&columns(), &rows);
    for fact in facts() {
        table.columns.push(fact_column(&fact, &rows));
    }
    table
}

fn directions<'a>(
    setting: &'a str,
    repeat: u64,
    run: &'a Results,
    job: &'a JobResults,
) -> impl Iterator<Item = Row<'a>> {
    let all = [
        (Some("read"), Cow::Borrowed(&job.read), true),
        (Some("write"), Cow::Borrowed(&job.write), true),
        (Some("trim"), Cow::Borrowed(&job.trim), true),
        (Some("sync"), Cow::Owned(job.sync_results()), false),
    ];
    let is_used = |of: &DirResults| of.ios > 0 || !of.latency().is_empty();
    let mut used: Vec<_> = { all.into_iter() }
        .filter(|(_, of, _)| is_used(of))
        .collect();
    if used.is_empty() {
        let nothing = DirResults {
            runtime_ns: job.runtime_ns,
            ..DirResults::default()
        };
        used.push((None, Cow::Owned(nothing), false));
    }
    let row = move |(direction, of, has_bytes)| Row {
        setting,
        repeat,
        run,
        job,
        direction,
        of,
        has_bytes,
    };
    used.into_iter().map(row)
}

/// The column of a fact; its value is computed once for each run.
fn fact_column(fact: &Fact, rows: &[Row<'_>]) -> Column {
    let mut last: Option<(&Results, Option<f64>)> = None;
    let values = rows.iter().map(|row| match last {
        Some((run, value)) if std::ptr::eq(run, row.run) => value,
        _ => {
            let value = fact.of(row.run);
            last = Some((row.run, value));
            value
        }
    });
    Column {
        name: fact.key.to_string(),
        unit: match fact.unit {
            Unit::Bytes => "bytes",
            Unit::Nanoseconds => "ns",
            Unit::Count | Unit::Share | Unit::Ratio => "",
        },
        values: Values::Numbers(values.collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_used_direction_is_a_row_and_facts_are_columns() {
        let mut job = JobResults {
            name: "db".to_string(),
            ..JobResults::default()
        };
        (job.read.ios, job.read.bytes, job.read.runtime_ns) = (4, 16_384, 2_000_000_000);
        for ns in [10, 20, 30, 40] {
            job.read.lat_ns.record(ns);
        }
        job.sync_ns.record(7);
        job.runtime_ns = 500_000_000;
        let run = Results {
            seed: 9,
            jobs: vec![job],
            ..Results::default()
        };
        let runs = [run];
        let table = results([("none", &runs[..])]);
        assert_eq!(table.rows(), 2);
        let cell = |name: &str, row: usize| table.column(name).expect(name).values.json(row);
        assert_eq!(
            (cell("direction", 0), cell("direction", 1)),
            ("read".into(), "sync".into())
        );
        assert_eq!((cell("iops", 0), cell("seed", 0)), (2.0.into(), 9.into()));
        assert_eq!(
            (cell("ios", 1), cell("latency_max_ns", 1)),
            (1.into(), 7.into())
        );
        assert_eq!(
            (cell("runtime_ns", 1), cell("iops", 1)),
            (500_000_000.into(), 2.0.into()),
            "calls have the job's time"
        );
        assert!(cell("bytes", 1).is_null());
        assert!(facts().iter().all(|fact| table.column(fact.key).is_some()));
        let mut names: Vec<&str> = table.columns.iter().map(|c| c.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), table.columns.len(), "a name is used twice");
    }

    #[test]
    fn a_job_without_io_is_a_row() {
        let job = JobResults {
            name: "renames".to_string(),
            runtime_ns: 3_000_000,
            ..JobResults::default()
        };
        let runs = [Results {
            jobs: vec![job],
            ..Results::default()
        }];
        let table = results([("none", &runs[..])]);
        assert_eq!(table.rows(), 1);
        let cell = |name: &str| table.column(name).expect(name).values.json(0);
        assert!(cell("direction").is_null());
        assert_eq!(
            (cell("ios"), cell("runtime_ns")),
            (0.into(), 3_000_000.into())
        );
        assert!(cell("latency_p99_ns").is_null() && cell("bytes").is_null());
    }
}
