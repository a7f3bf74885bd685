//! `blklab calibrate --host`: a description of this machine, and how well the
//! simulation predicts what it was not fitted to.

use std::fmt::Write;
use std::path::Path;

use blklab_calibrate::{
    Description, HELD_OUT_NOTE, Model, Point, Row, host_job, host_rows, order_of_schedulers,
    points, write_csv,
};
use blklab_host::{Choice, Disk, Experiment, Queue, RealFiles, System, check_rights, permit};
use blklab_workload::fio;

use crate::args::CalibrateArgs;
use crate::calibrate::{Work, fit_and_tell};
use crate::compare::progress;
use crate::failure::Failure;
use crate::host::failure;
use crate::{inputs, output};

/// Schedulers that differ by more than this are held against the simulation's
/// order.
const APART: f64 = 0.10;

/// Where the fit of a kind of device begins, and what its rows decide. Steps that
/// always come together are not told apart by rows, so of each such group one
/// is fitted.
struct Start {
    drive: &'static str,
    machine: &'static str,
    keys: &'static str,
    /// What only writes decide.
    keys_of_writes: &'static str,
}

const ANY: Start = Start {
    drive: "null",
    machine: "xeon-10core",
    keys: "drive.timing.read_ns,costs.*",
    keys_of_writes: "drive.timing.write_ns",
};

/// A loop device takes no time but its worker's.
const LOOP: Start = Start {
    drive: "loop",
    machine: "vm-2cpu",
    keys: "costs.loop.read_ns,costs.loop.read_page_ns,costs.wake_ns,costs.*",
    keys_of_writes: "costs.loop.write_ns,costs.loop.write_page_ns",
};

pub(crate) fn calibrate(args: &CalibrateArgs, device: &Path) -> Result<(), Failure> {
    let system = System::default();
    let disk = Disk::find(&system, device).map_err(failure)?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let writes = args.destroy_data.is_some();
    let points = points(writes);
    let rows = measure(args, &points, &system, &disk, cores)?;
    if let Some(path) = &args.output_rows {
        output::write_file(path, write_csv(&rows).as_bytes())?;
    }
    let start = match disk.name.starts_with("loop") {
        true => LOOP,
        false => ANY,
    };
    let model = model(args, &start, &disk, &system, cores)?;
    let all = 0..rows.len();
    let fitted: Vec<usize> = all.filter(|&at| rows[at].note != HELD_OUT_NOTE).collect();
    let own_keys = match writes {
        true => format!("{},{}", start.keys, start.keys_of_writes),
        false => start.keys.to_string(),
    };
    let work = Work {
        model,
        rows: &rows,
        fitted: &fitted,
        comment: "fitted, to this machine",
        keys: args.fit.as_deref().unwrap_or(&own_keys),
    };
    let (mut text, done) = fit_and_tell(args, work, true)?;
    let mut held_out = done.scored.clone();
    fitted.iter().for_each(|at| held_out[*at] = None);
    let (right, all) = order_of_schedulers(&rows, &held_out, APART);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "\nOf {all} pairs of schedulers that differ by more than {:.0} % in a job held out, {right} \
         are in the right order.",
        APART * 100.0
    );
    output::deliver(&text, args.output.as_deref())
}

/// Runs the points under every scheduler of the kernel that is simulated too.
fn measure(
    args: &CalibrateArgs,
    points: &[Point],
    system: &System,
    disk: &Disk,
    cores: u32,
) -> Result<Vec<Row>, Failure> {
    let text = host_job(points, args.job_ms);
    let no_includes = |_: &str, name: &str| Err(name.to_string());
    let job = fio::parse_str("calibrate", &text, &|_| None, &no_includes);
    let job = job.map_err(|e| Failure::Broken(e.to_string()))?;
    let queue = Queue::new(
        RealFiles,
        disk.path.display().to_string(),
        disk.folder(system),
    );
    let names = queue.schedulers().map_err(failure)?.names;
    let simulated = |name: &String| blklab_elevator::all().iter().any(|kind| kind.name == *name);
    let choices: Vec<Choice> = names
        .into_iter()
        .filter(simulated)
        .map(|scheduler| Choice {
            scheduler,
            ..Choice::default()
        })
        .collect();
    let repeats = args.repeats as usize;
    let experiment = Experiment {
        system,
        disk,
        job: &job,
        choices,
        repeats,
        warm_up: true,
        // Tracing costs time that the fit would take for the kernel's.
        trace: false,
        file_system: None,
        fio: "fio".into(),
    };
    let destroy = args.destroy_data.as_deref();
    check_rights(system, disk, destroy.is_some()).map_err(failure)?;
    for warning in permit(system, disk, &job, false, destroy).map_err(failure)? {
        eprintln!("blklab: warning: {}: {warning}", disk.path.display());
    }
    let bar = progress(experiment.choices.len() * repeats + 1);
    let runs = experiment.run(&queue, &|| bar.inc(1));
    bar.finish_and_clear();
    let runs = runs.map_err(failure)?;
    let first = runs.first().and_then(|repeats| repeats.first());
    for note in first.iter().flat_map(|results| &results.notes) {
        eprintln!("blklab: {note}");
    }
    let labels = experiment.choices.iter().map(|choice| &choice.scheduler);
    Ok(labels
        .zip(&runs)
        .flat_map(|(scheduler, repeats)| host_rows(points, scheduler, repeats, cores))
        .collect())
}

/// Where the fit begins: a drive of this size, a machine with these CPUs.
fn model(
    args: &CalibrateArgs,
    start: &Start,
    disk: &Disk,
    system: &System,
    cores: u32,
) -> Result<Model, Failure> {
    let drive_name = args.drive.as_deref().unwrap_or(start.drive);
    let machine_name = args.machine.as_deref().unwrap_or(start.machine);
    let mut drive = Description::new(&inputs::drive(drive_name)?.1);
    let mut machine = Description::new(&inputs::machine(machine_name)?.1);
    let bytes = disk.size_bytes(system).map_err(failure)?;
    let set = |description: &mut Description, key: &str, value: f64| {
        let done = description.set(key, value, "this machine's");
        done.map_err(Failure::mistake)
    };
    if args.drive.is_none() {
        set(&mut drive, "host.capacity_bytes", bytes as f64)?;
        if start.drive == "null" {
            set(&mut drive, "timing.parallelism", f64::from(cores))?;
        }
    }
    if args.machine.is_none() {
        set(&mut machine, "cpu.count", f64::from(cores))?;
    }
    Ok(Model {
        drive_name: drive_name.to_string(),
        drive,
        machine_name: machine_name.to_string(),
        machine,
    })
}
