//! `blklab calibrate --host`: fits a description of this machine, and reports how well
//! the simulation predicts the rows that were held out.

use std::fmt::Write;
use std::path::Path;

use blklab_calibrate::{
    Description, HELD_OUT_NOTE, Model, Point, Row, host_job, host_rows, order_of_schedulers,
    points, write_csv,
};
use blklab_experiment::{Host, Plan, Request, Setting, settings};
use blklab_stats::World;
use blklab_workload::fio::JobSource;

use crate::args::CalibrateArgs;
use crate::failure::Failure;
use crate::output;
use crate::progress::{self, Caller};

use super::Calibrated;
use super::fit::{FitInput, fit_and_report};

/// Only pairs of schedulers that differ by more than this share are counted as ordered
/// rightly or wrongly.
const DIFFERENCE_MIN: f64 = 0.10;

/// The start of a fit for one kind of device. Costs that always occur together cannot be
/// separated by the rows, so one of each such group is fitted.
struct Start {
    drive: &'static str,
    machine: &'static str,
    keys: &'static str,
    /// Keys that only rows with writes determine.
    keys_of_writes: &'static str,
}

const OTHER_DEVICE: Start = Start {
    drive: "null",
    machine: "xeon-10core",
    keys: "drive.timing.read_ns,costs.*",
    keys_of_writes: "drive.timing.write_ns",
};

/// A loop device takes no time beyond its worker's.
const LOOP_DEVICE: Start = Start {
    drive: "loop",
    machine: "vm-2cpu",
    keys: "costs.loop.read_ns,costs.loop.read_page_ns,costs.wake_ns,costs.*",
    keys_of_writes: "costs.loop.write_ns,costs.loop.write_page_ns",
};

pub(crate) fn calibrated(args: &CalibrateArgs, device: &Path) -> Result<Calibrated, Failure> {
    let host = Host::find(device)?;
    let (disk, size_bytes) = (host.disk().clone(), host.size_bytes()?);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let writes = args.destroy_data.is_some();
    let points = points(writes);
    let rows = measure(args, &points, host, cores)?;
    if let Some(path) = &args.output_rows {
        output::write_file(path, write_csv(&rows).as_bytes())?;
    }
    let start = match disk.name.starts_with("loop") {
        true => LOOP_DEVICE,
        false => OTHER_DEVICE,
    };
    let model = model(args, &start, size_bytes, cores)?;
    let all = 0..rows.len();
    let fitted: Vec<usize> = all.filter(|&at| rows[at].note != HELD_OUT_NOTE).collect();
    let own_keys = match writes {
        true => format!("{},{}", start.keys, start.keys_of_writes),
        false => start.keys.to_string(),
    };
    let work = FitInput {
        model,
        rows: &rows,
        fitted: &fitted,
        comment: "fitted, to this machine",
        keys: args.fit.as_deref().unwrap_or(&own_keys),
    };
    let (mut text, done) = fit_and_report(args, work, true)?;
    let held_out = done.scored_of(|at| !fitted.contains(&at));
    let (right, all) = order_of_schedulers(&rows, &held_out, DIFFERENCE_MIN);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "\nOf {all} pairs of schedulers that differ by more than {:.0} % in a job held out, {right} \
         are in the right order.",
        DIFFERENCE_MIN * 100.0
    );
    let fit = Some((done, fitted));
    Ok(Calibrated { text, fit })
}

/// Runs the points under every scheduler of the kernel that can also be simulated.
fn measure(
    args: &CalibrateArgs,
    points: &[Point],
    host: Host,
    cores: u32,
) -> Result<Vec<Row>, Failure> {
    let text = host_job(points, args.job_ms);
    let job = JobSource::File {
        name: "calibrate".to_string(),
        text,
    };
    let (names, _) = host.schedulers()?;
    let simulated = |name: &String| blklab_elevator::find(name).is_some();
    let rows = settings(&Request {
        world: World::Host,
        base: Setting::default(),
        schedulers: None,
        default_schedulers: names.into_iter().filter(simulated).collect(),
        all_schedulers: Vec::new(),
        sets: &[],
        vary: &[],
    })?;
    // Tracing costs time that the fit would attribute to the kernel.
    let host = host
        .without_trace()
        .with_destroy_data(args.destroy_data.as_deref())
        .with_rows(&job, &rows)?;
    let plan = Plan {
        repeats: args.repeats as usize,
        warm_up: true,
        ..Plan::default()
    };
    let measured = progress::run(&host, &plan, &Caller::terminal())?;
    let first = measured.first().and_then(|row| row.runs.first());
    for note in first.iter().flat_map(|results| &results.notes) {
        eprintln!("blklab: {note}");
    }
    Ok(measured
        .iter()
        .flat_map(|row| host_rows(points, &row.label, &row.runs, cores))
        .collect())
}

/// Returns the model where the fit begins: a drive of this size and a machine with these
/// CPUs.
fn model(
    args: &CalibrateArgs,
    start: &Start,
    size_bytes: u64,
    cores: u32,
) -> Result<Model, Failure> {
    let drive_name = args.drive.as_deref().unwrap_or(start.drive);
    let machine_name = args.machine.as_deref().unwrap_or(start.machine);
    let mut model = Model::load(drive_name, machine_name).map_err(Failure::Mistake)?;
    let set = |description: &mut Description, key: &str, value: f64| {
        let done = description.set(key, value, "this machine's");
        done.map_err(Failure::mistake)
    };
    if args.drive.is_none() {
        set(&mut model.drive, "host.capacity_bytes", size_bytes as f64)?;
        if start.drive == "null" {
            set(&mut model.drive, "timing.parallelism", f64::from(cores))?;
        }
    }
    if args.machine.is_none() {
        set(&mut model.machine, "cpu.count", f64::from(cores))?;
    }
    Ok(model)
}
