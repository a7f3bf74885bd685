//! `blklab record`, `blklab trace` and `blklab calls`: record a drive's block I/O in
//! this machine's kernel, a running server's block layer, or a program's calls on files.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use blklab_host::{Disk, Form, System, record as record_drive, tracefs as host_tracefs};
use blklab_report::tools::{Source, Tool};
use blklab_workload::calls::{Call, ProgramStep, RecordedOptions, read_strace};
use blklab_workload::trace::tracefs::{self, lost_events};
use blklab_workload::trace::{self, read_text};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{CallsArgs, FormArg, RecordArgs, TraceArgs};
use crate::failure::Failure;
use crate::output;

/// The longest recording that can be given in seconds.
const SECONDS_MAX: f64 = 1e9;

/// Parses the length of a recording; `None` records until Ctrl-C.
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
    // An existing file is not emptied if the recording cannot be made.
    host_tracefs::check(&system)?;
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

/// `blklab calls`.
pub(crate) fn calls(args: &CallsArgs) -> Result<(), Failure> {
    let output = args.output.as_deref();
    output::check(&[("--output", output)], &[&args.recording])?;
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let options = RecordedOptions {
        under: args.under.as_deref().map(bytes).unwrap_or_default(),
        working_folder: bytes(&args.cwd),
        think: !args.no_think,
    };
    let recorded = read_strace(&args.recording, &options).map_err(Failure::mistake)?;
    let is_of_files = |step: &ProgramStep| match step {
        ProgramStep::Call(made) => !matches!(
            made.call,
            Call::Start { .. } | Call::Wait { .. } | Call::Sleep { .. } | Call::Think { .. }
        ),
        ProgramStep::Repeat { .. } => true,
    };
    let mut steps = recorded.list.programs.iter().flat_map(|of| &of.steps);
    if !steps.any(is_of_files) {
        let file = args.recording.display();
        return Err(Failure::mistake(format!(
            "{file}: there is no call on a wanted file; --under names the folder of the wanted \
             files"
        )));
    }
    for note in &recorded.notes {
        eprintln!("blklab: {note}");
    }
    output::deliver(recorded.list.to_string(), output)
}

/// `blklab trace`.
pub(crate) fn trace(args: &TraceArgs) -> Result<(), Failure> {
    match (&args.trace, &args.control, &args.output) {
        (None, Some(control), Some(output)) => trace_server(args, control, output),
        (Some(path), ..) => {
            let to = args.output.as_deref();
            output::check(&[("--output", to)], &[path])?;
            check_is_tracefs(path)?;
            let text = read_text(path).map_err(Failure::mistake)?;
            let printed = printed(args.tool, &text, &path.display().to_string())?;
            output::deliver(printed, to)
        }
        // clap requires one of the two, and an output beside the second.
        _ => Ok(()),
    }
}

/// Refuses a trace of another format, which has not all events that the tools need.
fn check_is_tracefs(path: &Path) -> Result<(), Failure> {
    // What a pipe holds can be read only once.
    let opened = path.is_file().then(|| trace::open(path, None));
    match opened {
        Some(Ok(reader)) if reader.format().name != tracefs::FORMAT.name => {
            Err(Failure::mistake(format!(
                "{}: a trace as {}, but `blklab trace` reads tracefs text: from \
                 `blklab run --trace`, `blklab record`, or a kernel",
                path.display(),
                reader.format().name
            )))
        }
        _ => Ok(()),
    }
}

/// Formats tracefs text as a tool prints it.
fn printed(tool: &Tool, text: &str, file: &str) -> Result<Vec<u8>, Failure> {
    let printed = tool.render(&Source::default(), &mut tracefs::events(text, file));
    printed.map_err(Failure::Mistake)
}

/// Records the events of a server's block layer.
fn trace_server(args: &TraceArgs, control: &Path, path: &Path) -> Result<(), Failure> {
    let limit = limit(args.seconds)?;
    let broken = |e: io::Error| Failure::Broken(e.to_string());
    output::check(&[("--output", Some(path))], &[control])?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(broken)?;
    // The server sends two formats; other tools' output is made from the text.
    let is_sent = ["text", "blktrace"].contains(&args.tool.name);
    let format = if is_sent { args.tool.name } else { "text" };
    // An existing file is not emptied if the recording cannot be made.
    let mut events =
        blklab_serve::record(control, &args.export, format).map_err(Failure::mistake)?;
    // Closing the write side asks the server to end the recording at the end of an
    // event.
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
    let lost = match is_sent {
        true => copy_to_file(&mut events, path, format)?,
        false => {
            let mut text = Vec::new();
            let lost = copy_text(&mut events, &mut text).map_err(broken)?;
            let text = String::from_utf8_lossy(&text);
            output::write_file(path, &printed(args.tool, &text, "the recording")?)?;
            lost
        }
    };
    if lost > 0 {
        let path = path.display();
        eprintln!("blklab: {path}: {lost} events were lost, as they came too fast");
    }
    Ok(())
}

/// Writes a server's recording to a file as it arrives. Returns the number of lost
/// events.
fn copy_to_file(
    events: &mut BufReader<impl Read>,
    path: &Path,
    format: &str,
) -> Result<u64, Failure> {
    let is_new = !path.exists();
    let mut file = File::create(path)
        .map_err(|e| Failure::mistake(format!("{}: cannot write: {e}", path.display())))?;
    let copied = match format {
        "text" => copy_text(events, &mut file),
        // blktrace's format cannot record that events are missing.
        _ => io::copy(events, &mut file).map(|_| 0),
    };
    copied.map_err(|e| {
        if is_new {
            // An incomplete recording would be taken for a complete one.
            let _ = std::fs::remove_file(path);
        }
        Failure::Broken(format!("{}: cannot write: {e}", path.display()))
    })
}

/// Copies a text trace. Returns the number of events that it reports as lost.
fn copy_text(from: &mut BufReader<impl Read>, to: &mut impl Write) -> io::Result<u64> {
    let mut to = BufWriter::new(to);
    let (mut line, mut lost) = (Vec::new(), 0);
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        let text = std::str::from_utf8(line.trim_ascii_end());
        lost += text.ok().and_then(lost_events).unwrap_or(0);
        line.clear();
        // The flush lets a reader that follows the file see all events so far.
        if from.buffer().is_empty() {
            to.flush()?;
        }
    }
    to.flush()?;
    Ok(lost)
}
