//! Programs that read a file, compute, and write the next file, through the page cache
//! of a large server.

mod program;

use blklab_device::DriveSpec;
use blklab_elevator::SchedulerChoice;
use blklab_sim::{Caching, FileSystemKind, Machine, Setup, Workload, run};
use blklab_stats::{CacheSample, CallTimes, JobResults, Results};
use blklab_workload::calls::CallList;

use super::folder::{Folder, Record};
use super::{Figure, Set, shown, tables};
use crate::part::{PagePart, Table};
use crate::share::Errors;
use program::{BETWEEN, Kind, PAGE_BYTES, TaskStep, Workflow, counter_name, step_name};

const MACHINE: &str = include_str!("machine.toml");
const DRIVE: &str = include_str!("drive.toml");

/// A gigabyte of the set's.
const GB: f64 = 1e9;

/// The machine's memory, and what of it is neither free nor caches files (the first row
/// of `memory.csv`).
const MEMORY_GB: f64 = 268.583;
const SYSTEM_GB: f64 = 1.954;

/// Readahead and thresholds of the profile `throughput-performance`, which CentOS 8
/// chooses on servers, and which the set's README finds in the curves.
const READ_AHEAD_KB: u32 = 4096;
const SYSCTLS: [(&str, &str); 2] = [
    ("vm.dirty_ratio", "40"),
    ("vm.dirty_background_ratio", "10"),
];

/// What a program computes for each gigabyte while it is alone (the set's README: 4.4 s for
/// 3 GB); beside others it takes as much longer as all that a CPU does.
const COMPUTE_S_PER_GB: f64 = 4.4 / 3.0;

/// The step of `local-new-files` that gave the drive's bandwidth.
const FITTED_CONCURRENT: (usize, &str) = (10, "read_1");

/// Tasks of an application.
const TASKS: usize = 3;

/// Simulates the workflows.
pub fn make(set: &Set, folder: &Folder) -> Result<PagePart, String> {
    let mut page = Page::default();
    let tasks = folder.records_if_any("tasks.csv");
    let contents = folder.records_if_any("cache_contents.csv");
    let memory = folder.records_if_any("memory.csv");
    let mut rest = &tasks[..];
    while let Some(first) = rest.first() {
        let key = key_of(first)?;
        let end = rest
            .iter()
            .position(|row| key_of(row).ok().as_ref() != Some(&key));
        let (rows, others) = rest.split_at(end.unwrap_or(rest.len()));
        rest = others;
        if let Err(why) = page.add_single(&key, rows, (&contents, &memory)) {
            folder.leave_out(format!("{} with {} GB: {why}", key.0, key.1));
        }
    }
    for record in folder.records_if_any("concurrent.csv") {
        if let Err(why) = page.add_concurrent(&record) {
            folder.leave_out(record.problem(&why));
        }
    }
    Ok(page.made(set))
}

/// Experiment and file size, by which rows of several tables belong together.
type Key = (String, String);

fn key_of(record: &Record) -> Result<Key, String> {
    let text = |column| record.text(column).map(str::to_string);
    Ok((text("experiment")?, text("file_gb")?))
}

/// The rows of an experiment.
fn rows_of<'a>(records: &'a [Record], key: &Key) -> impl Iterator<Item = &'a Record> {
    let is_meant = move |record: &&Record| key_of(record).as_ref() == Ok(key);
    records.iter().filter(is_meant)
}

/// What is on the page.
#[derive(Default)]
struct Page {
    figures: Vec<Figure>,
    /// By experiment: how far the dirty memory is off over its time, in percent of the
    /// most that was dirty.
    dirty: Vec<(Key, f64)>,
    /// How many points of a file's size each of its cached parts is off.
    contents: Errors,
    /// Rows that are not simulated.
    left_out: usize,
}

impl Page {
    /// Adds one application alone.
    fn add_single(
        &mut self,
        key: &Key,
        rows: &[Record],
        (contents, memory): (&[Record], &[Record]),
    ) -> Result<(), String> {
        let file_gb: f64 = rows[0].number("file_gb")?;
        let curve =
            rows_of(memory, key).map(|row| Ok((row.number("t_s")?, row.number("dirty_gb")?)));
        let curve: Vec<(f64, f64)> = curve.collect::<Result<_, String>>()?;
        let workflow = Workflow {
            instances: 1,
            file_bytes: (file_gb * GB) as u64,
            tasks: TASKS,
            compute_s: computed_s(rows, file_gb)?,
            is_compute_elapsed: true,
            overwrites: false,
            counts_cached: true,
            watched_s: curve.last().map_or(0.0, |point| point.0),
        };
        let results = simulate(&workflow)?;
        for row in rows {
            let step = TaskStep::parse(row.text("step")?)?;
            if step.kind == Kind::Compute {
                continue;
            }
            let is_fitted = file_gb == 20.0
                && matches!(
                    (step.kind, step.task),
                    (Kind::Write, 1) | (Kind::Read, 1 | 2)
                );
            self.figures.push(Figure {
                group: key.0.clone(),
                row: format!("{file_gb} GB {step}"),
                metric: step.kind.metric(),
                measured: row.number("real_s")?,
                simulated: seconds_of(&results, 0, step),
                is_fitted,
                is_left_out: false,
            });
        }
        for row in rows_of(contents, key) {
            let after = TaskStep::parse(row.text("after_step")?)?;
            let measured_gb: f64 = row.number("cached_real_gb")?;
            let name = counter_name(after, row.number("file")?);
            let cached_gb = cached_gb(&results, &name).unwrap_or(0.0);
            self.contents
                .add((cached_gb - measured_gb) / file_gb * 100.0);
        }
        let began_s = began_s(&results);
        let samples = results.page_cache.map(|cache| cache.samples);
        let off = off_by(&curve, &samples.unwrap_or_default(), began_s);
        self.dirty.extend(off.map(|percent| (key.clone(), percent)));
        Ok(())
    }

    /// Adds several applications at once.
    fn add_concurrent(&mut self, row: &Record) -> Result<(), String> {
        let experiment = row.text("experiment")?;
        if experiment == "nfs" {
            self.left_out += 1;
            return Ok(());
        }
        let (instances, file_gb): (usize, f64) = (row.number("instances")?, row.number("file_gb")?);
        let workflow = Workflow {
            instances,
            file_bytes: (file_gb * GB) as u64,
            tasks: TASKS,
            compute_s: vec![file_gb * COMPUTE_S_PER_GB; TASKS],
            is_compute_elapsed: false,
            overwrites: experiment == "local-overwrite",
            counts_cached: false,
            watched_s: 0.0,
        };
        let results = simulate(&workflow)?;
        let (fitted_instances, fitted_step) = FITTED_CONCURRENT;
        let fitted = format!("{fitted_instances} x 3 GB {fitted_step}");
        let mut add = |row: String, metric, measured, simulated| {
            self.figures.push(Figure {
                group: experiment.to_string(),
                is_fitted: experiment == "local-new-files" && row == fitted,
                is_left_out: false,
                row,
                metric,
                measured,
                simulated,
            });
        };
        let label = format!("{instances} x {file_gb} GB");
        for step in workflow.steps().filter(|step| step.kind != Kind::Compute) {
            let each = (0..instances).map(|instance| seconds_of(&results, instance, step));
            let sum: Option<f64> = each.sum();
            let measured = row.number(&format!("{step}_s"))?;
            let mean = sum.map(|sum| sum / instances as f64);
            add(
                format!("{label} {step}"),
                step.kind.metric(),
                measured,
                mean,
            );
        }
        let makespan = results.elapsed_ns as f64 / 1e9 - began_s(&results);
        let measured = row.number("makespan_s")?;
        add(label, "makespan s", measured, Some(makespan));
        Ok(())
    }

    fn made(self, set: &Set) -> PagePart {
        let described = [("the server", MACHINE), ("the SSD", DRIVE)];
        let described = described.map(|(name, text)| (name.to_string(), text.to_string()));
        let mut made = tables(set, &self.figures, &described);
        let mut table = Table::new(vec!["curve".to_string(), "RMS, % of the peak".to_string()]);
        let mut dirty = Errors::default();
        for ((experiment, file_gb), percent) in &self.dirty {
            dirty.add(*percent);
            table.row(vec![format!("{experiment}, {file_gb} GB"), shown(*percent)]);
        }
        let lines = [
            dirty.line(set.name, "dirty-curve", "RMS of peak"),
            (self.contents).line(set.name, "cache-contents", "points of the file"),
            format!("{} nfs rows {} not simulated", set.name, self.left_out),
        ];
        made.text = format!(
            "{}\nDirty memory over time, as far as the simulation is off:\n\n{}\nWhat is cached of \
             each file after each step is off by {:.1} points of the file at the median, {:.1} at \
             most, in {} rows. {} rows of NFS are not simulated.\n",
            made.text,
            table.markdown(),
            self.contents.at(0.5),
            self.contents.at(1.0),
            self.contents.rows(),
            self.left_out,
        );
        made.groups.extend(lines);
        made
    }
}

/// How long an application computed in each task, which is its own.
fn computed_s(rows: &[Record], file_gb: f64) -> Result<Vec<f64>, String> {
    let mut computed_s = Vec::new();
    for row in rows {
        if TaskStep::parse(row.text("step")?)?.kind == Kind::Compute {
            computed_s.push(row.number("real_s")?);
        }
    }
    computed_s.resize(TASKS, file_gb * COMPUTE_S_PER_GB);
    Ok(computed_s)
}

/// Runs a workflow on the server.
fn simulate(workflow: &Workflow) -> Result<Results, String> {
    let file = "workflow.calls";
    let list = CallList::parse(file, &workflow.list()).map_err(|e| e.to_string())?;
    let machine = Machine::parse("workflow-server", MACHINE).map_err(|e| e.to_string())?;
    let drive = DriveSpec::parse("workflow-ssd", DRIVE).map_err(|e| e.to_string())?;
    let scheduler = SchedulerChoice::named("mq-deadline").map_err(|e| e.to_string())?;
    let memory_bytes = (MEMORY_GB - SYSTEM_GB) * GB;
    let mut caching = Caching {
        read_ahead_kb: READ_AHEAD_KB,
        file_system: FileSystemKind::Xfs,
        ..Caching::default().with_memory(memory_bytes as u64)?
    };
    for (name, value) in SYSCTLS {
        caching.set(name, value)?;
    }
    let calls = Workload::Calls { list: &list, file };
    let setup = Setup {
        caching,
        ..Setup::new(calls, &machine, &drive, &scheduler)
    };
    run(&setup).map_err(|e| e.to_string())
}

fn job<'a>(results: &'a Results, name: &str) -> Option<&'a JobResults> {
    results.jobs.iter().find(|job| job.name == name)
}

/// When the measured round began.
fn began_s(results: &Results) -> f64 {
    job(results, BETWEEN).map_or(0.0, |job| job.runtime_ns as f64 / 1e9)
}

/// How long an application took for a step.
fn seconds_of(results: &Results, instance: usize, step: TaskStep) -> Option<f64> {
    let job = job(results, &step_name(instance, step))?;
    Some(job.runtime_ns as f64 / 1e9)
}

/// What a program counted of a file's cached pages.
fn cached_gb(results: &Results, counter: &str) -> Option<f64> {
    let calls = &job(results, counter)?.calls;
    let pages: u64 = calls.iter().map(CallTimes::cached_pages).sum();
    (pages > 0).then(|| (pages * PAGE_BYTES) as f64 / GB)
}

/// The root mean square of a curve's distance from samples, in percent of its highest
/// point; the curve began at `began_s` of the run. `None` without either.
fn off_by(curve: &[(f64, f64)], samples: &[CacheSample], began_s: f64) -> Option<f64> {
    let peak = curve.iter().map(|point| point.1).fold(0.0, f64::max);
    if samples.is_empty() || peak == 0.0 {
        return None;
    }
    let distance =
        |(at_s, measured): &(f64, f64)| dirty_gb(samples, began_s + at_s.max(0.0)) - measured;
    let squares = curve.iter().map(|point| distance(point).powi(2));
    Some((squares.sum::<f64>() / curve.len() as f64).sqrt() / peak * 100.0)
}

/// What was dirty at a time, between the samples around it.
fn dirty_gb(samples: &[CacheSample], at_s: f64) -> f64 {
    let at_ns = (at_s * 1e9) as u64;
    let behind = samples.partition_point(|sample| sample.at_ns <= at_ns);
    let gb = |sample: &CacheSample| sample.dirty_bytes as f64 / GB;
    match (
        behind.checked_sub(1).map(|at| &samples[at]),
        samples.get(behind),
    ) {
        (Some(before), Some(next)) => {
            let share = (at_ns - before.at_ns) as f64 / (next.at_ns - before.at_ns).max(1) as f64;
            gb(before) + (gb(next) - gb(before)) * share
        }
        (Some(one), None) | (None, Some(one)) => gb(one),
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small file: the first read is the drive's, the others the cache's, and what was
    /// written is still dirty.
    #[test]
    fn a_workflow_reads_its_first_file_from_the_drive() {
        let workflow = Workflow {
            instances: 2,
            file_bytes: 100_000_000,
            tasks: 2,
            compute_s: vec![0.1; 2],
            is_compute_elapsed: false,
            overwrites: false,
            counts_cached: true,
            watched_s: 2.0,
        };
        let results = simulate(&workflow).expect("it runs");
        let seconds = |kind, task| {
            let step = TaskStep { kind, task };
            seconds_of(&results, 1, step).expect("a step")
        };
        let (cold, cached) = (seconds(Kind::Read, 1), seconds(Kind::Read, 2));
        assert!((0.34..0.36).contains(&cold), "{cold}: 200 MB at 578 MB/s");
        assert!((0.030..0.035).contains(&cached), "{cached}");
        let after = TaskStep {
            kind: Kind::Write,
            task: 2,
        };
        let counted = |file| cached_gb(&results, &counter_name(after, file));
        assert_eq!(counted(4), None);
        assert!((counted(3).expect("it was written") - 0.1).abs() < 0.001);
        let samples = &results.page_cache.as_ref().expect("a page cache").samples;
        let began_s = began_s(&results);
        assert!((dirty_gb(samples, began_s + 1.9) - 0.4).abs() < 0.01);
        let off = off_by(&[(0.0, 0.0), (1.9, 0.8)], samples, began_s).expect("samples");
        assert!(
            (off - 35.4).abs() < 1.0,
            "{off}: half of the peak in one of two"
        );
    }
}
