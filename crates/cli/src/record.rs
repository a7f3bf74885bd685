//! `blklab record`: what the kernel does with a drive, as a trace.

use std::time::Duration;

use blklab_host::{Disk, Form, System, record as record_drive, tracefs};

use crate::failure::Failure;
use crate::host_args::{FormArg, RecordArgs};

/// Longest recording in seconds: longer ones end by Ctrl-C.
const SECONDS_MAX: f64 = 1e9;

pub(crate) fn record(args: &RecordArgs) -> Result<(), Failure> {
    let limit = match args.seconds {
        None => None,
        Some(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => {
            Some(Duration::from_secs_f64(seconds))
        }
        Some(seconds) => {
            return Err(Failure::mistake(format!(
                "--seconds {seconds}: a time above 0 and up to {SECONDS_MAX} is needed"
            )));
        }
    };
    let system = System::default();
    let disk = Disk::find(&system, &args.device)?;
    // Nobody's file is emptied for a recording that cannot be.
    tracefs::check(&system)?;
    let path = &args.output;
    let form = match args.format {
        FormArg::Tracefs => Form::Tracefs,
        FormArg::Blkparse => Form::Blkparse,
        FormArg::Blktrace => Form::Blktrace,
    };
    let recorded = record_drive(&system, &disk, limit, path, form)?;
    eprintln!(
        "blklab: {}: {} events, {} lost",
        path.display(),
        recorded.events,
        recorded.lost
    );
    Ok(())
}
