//! `blklab calibrate`.

mod fit;
mod host;

use std::path::{Path, PathBuf};

use blklab_calibrate::{Fitted, Model, Row, Selection, measure_iocost, read_csv, read_fio_json};
use blklab_description::read_text;

use crate::args::CalibrateArgs;
use crate::failure::Failure;
use crate::output;
use fit::{FitInput, fit_and_report, write};

/// The machine where none is named: costs that no row determines are zero there.
const FREE_MACHINE: &str = "generic-8";

pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    let calibrated = calibrated(args)?;
    output::deliver(&calibrated.text, args.output.as_deref())?;
    calibrated.write(args)
}

/// What a calibration found.
pub(crate) struct Calibrated {
    pub(crate) text: String,
    /// The fit with the rows that it used; `None` if an io.cost model was asked for.
    pub(crate) fit: Option<(Fitted, Vec<usize>)>,
}

impl Calibrated {
    /// Writes the requested descriptions if the fit is good enough to use.
    pub(crate) fn write(&self, args: &CalibrateArgs) -> Result<(), Failure> {
        match &self.fit {
            Some((done, fitted)) => write(args, done, fitted),
            None => Ok(()),
        }
    }
}

pub(crate) fn calibrated(args: &CalibrateArgs) -> Result<Calibrated, Failure> {
    let outputs = [
        ("--output-drive", args.output_drive.as_deref()),
        ("--output-machine", args.output_machine.as_deref()),
        ("--output-rows", args.output_rows.as_deref()),
        ("--output", args.output.as_deref()),
    ];
    let mut inputs: Vec<&Path> = args.results.iter().map(PathBuf::as_path).collect();
    let models = [&args.drive, &args.machine].into_iter().flatten();
    inputs.extend(models.map(Path::new));
    inputs.extend(args.host.as_deref());
    output::check(&outputs, &inputs)?;
    if let Some(device) = &args.host {
        return host::calibrated(args, device);
    }
    if let Some(seconds) = args.iocost {
        return iocost(args, seconds);
    }
    let rows = rows(args)?;
    let drive = args.drive.as_deref().unwrap_or_default();
    let machine = args.machine.as_deref().unwrap_or(FREE_MACHINE);
    let model = Model::load(drive, machine).map_err(Failure::Mistake)?;
    let fitted = fitted(args, &rows)?;
    let named: Vec<String> = args.results.iter().map(|p| file_name(p)).collect();
    let comment = format!("fitted, from {}", named.join(" and "));
    let keys = args.fit.as_deref().unwrap_or("drive.*,costs.*");
    let work = FitInput {
        model,
        rows: &rows,
        fitted: &fitted,
        comment: &comment,
        keys,
    };
    let (text, done) = fit_and_report(args, work, args.hold_out.is_some())?;
    let fit = Some((done, fitted));
    Ok(Calibrated { text, fit })
}

/// Finds the io.cost model and QoS of a drive.
fn iocost(args: &CalibrateArgs, seconds: u32) -> Result<Calibrated, Failure> {
    let drive = args.drive.as_deref().unwrap_or_default();
    let machine = args.machine.as_deref().unwrap_or(FREE_MACHINE);
    let model = Model::load(drive, machine).map_err(Failure::Mistake)?;
    let (drive, machine) = model.parse().map_err(Failure::mistake)?;
    let found = measure_iocost(&drive, &machine, seconds, args.seed).map_err(Failure::mistake)?;
    let text = found.to_string();
    Ok(Calibrated { text, fit: None })
}

/// Returns the indices of the rows that the fit may use.
fn fitted(args: &CalibrateArgs, rows: &[Row]) -> Result<Vec<usize>, Failure> {
    let held_out = match args.hold_out.as_deref() {
        None => return Ok((0..rows.len()).collect()),
        Some("") => return Ok((0..rows.len()).step_by(2).collect()),
        Some(text) => Selection::parse(text).map_err(Failure::mistake)?,
    };
    let fitted: Vec<usize> = (0..rows.len())
        .filter(|&at| !held_out.takes(&rows[at]))
        .collect();
    match fitted.len() {
        0 => Err(Failure::mistake(
            "no row is left to fit to; look at --hold-out",
        )),
        all if all == rows.len() => Err(Failure::mistake("no row is held out; look at --hold-out")),
        _ => Ok(fitted),
    }
}

/// Returns the rows of all files that match every selection.
fn rows(args: &CalibrateArgs) -> Result<Vec<Row>, Failure> {
    let mut selections = Vec::new();
    for text in &args.rows {
        selections.push(Selection::parse(text).map_err(Failure::mistake)?);
    }
    let mut rows = Vec::new();
    for path in &args.results {
        let name = path.display().to_string();
        let text = read_text(path)
            .map_err(|e| Failure::mistake(format!("{name}: cannot be read: {e}")))?;
        let read = match text.trim_start().starts_with('{') {
            true => read_fio_json(&name, &text, &args.scheduler),
            false => read_csv(&name, &text),
        };
        rows.extend(read.map_err(Failure::mistake)?);
    }
    rows.retain(|row| selections.iter().all(|s| s.takes(row)));
    if rows.is_empty() {
        return Err(Failure::mistake("no row is left; look at --rows"));
    }
    Ok(rows)
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |n| n.to_string_lossy().into_owned(),
    )
}
