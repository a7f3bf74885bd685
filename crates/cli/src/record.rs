//! `blklab record` and `blklab trace`: what this machine's kernel does with a drive,
//! or a running server's block layer with an export, event by event.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use blklab_host::{Disk, Form, System, record as record_drive, tracefs};
use blklab_workload::trace::tracefs::lost_events;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{FormArg, RecordArgs, TraceArgs};
use crate::failure::Failure;
use crate::output;

/// Longest recording in seconds: longer ones end by Ctrl-C.
const SECONDS_MAX: f64 = 1e9;

/// For how long to record.
fn limit(seconds: Option<f64>) -> Result<Option<Duration>, Failure> {
    match seconds {
        Some(seconds) if !(seconds > 0.0 && seconds <= SECONDS_MAX) => Err(Failure::mistake(
            format!("--seconds {seconds}: a time above 0 and up to {SECONDS_MAX} is needed"),
        )),
        seconds => Ok(seconds.map(Duration::from_secs_f64)),
    }
}

/// `blklab record`.
pub(crate) fn record(args: &RecordArgs) -> Result<(), Failure> {
    let limit = limit(args.seconds)?;
    let path = &args.output;
    output::check(&[("--output", Some(path))], &[&args.device])?;
    let system = System::default();
    let disk = Disk::find(&system, &args.device)?;
    // An existing file is not emptied for a recording that cannot be made.
    tracefs::check(&system)?;
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

/// `blklab trace`.
pub(crate) fn trace(args: &TraceArgs) -> Result<(), Failure> {
    let limit = limit(args.seconds)?;
    let broken = |e: io::Error| Failure::Broken(e.to_string());
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(broken)?;
    let (control, export) = (&args.control.control, &args.control.export);
    // An existing file is not emptied for a recording that cannot be made.
    let mut events =
        blklab_serve::record(control, export, &args.format).map_err(Failure::mistake)?;
    let path = &args.output;
    let is_new = !path.exists();
    let mut file = File::create(path)
        .map_err(|e| Failure::mistake(format!("{}: cannot write: {e}", path.display())))?;
    // The server ends the recording where an event ends.
    let stop = events.get_ref().try_clone().map_err(broken)?;
    if let Some(limit) = limit {
        let stop = stop.try_clone().map_err(broken)?;
        std::thread::spawn(move || {
            std::thread::sleep(limit);
            let _ = stop.shutdown(Shutdown::Write);
        });
    }
    std::thread::spawn(move || {
        signals.forever().next();
        let _ = stop.shutdown(Shutdown::Write);
    });
    let copied = match args.format.as_str() {
        "text" => copy_text(&mut events, &mut file),
        // blktrace's format cannot say that events are missing.
        _ => io::copy(&mut events, &mut file).map(|_| 0),
    };
    let lost = copied.map_err(|e| {
        if is_new {
            // An incomplete recording would be taken for a complete one.
            let _ = std::fs::remove_file(path);
        }
        Failure::Broken(format!("{}: cannot write: {e}", path.display()))
    })?;
    if lost > 0 {
        let path = path.display();
        eprintln!("blklab: {path}: {lost} events were lost, as they came too fast");
    }
    Ok(())
}

/// Copies a text trace. Returns how many events it says it lacks.
fn copy_text(from: &mut BufReader<impl Read>, to: &mut File) -> io::Result<u64> {
    let mut to = BufWriter::new(to);
    let (mut line, mut lost) = (Vec::new(), 0);
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        let text = std::str::from_utf8(line.trim_ascii_end());
        lost += text.ok().and_then(lost_events).unwrap_or(0);
        line.clear();
        // A reader that follows the file sees what has come so far.
        if from.buffer().is_empty() {
            to.flush()?;
        }
    }
    to.flush()?;
    Ok(lost)
}
