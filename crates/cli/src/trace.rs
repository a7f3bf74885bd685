//! `blklab trace`: what a running server's block layer does, event by event.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::path::Path;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::serve_args::TraceArgs;

/// Longest recording in seconds: longer ones end by Ctrl-C.
const SECONDS_MAX: f64 = 1e9;

pub(crate) fn trace(args: &TraceArgs) -> Result<(), Failure> {
    let limit = match args.seconds {
        Some(seconds) if !(seconds > 0.0 && seconds <= SECONDS_MAX) => {
            return Err(Failure::mistake(format!(
                "--seconds {seconds}: a time above 0 and up to {SECONDS_MAX} is needed"
            )));
        }
        seconds => seconds.map(Duration::from_secs_f64),
    };
    let broken = |e: io::Error| Failure::Broken(e.to_string());
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(broken)?;
    let (control, export) = (&args.control.control, &args.control.export);
    // Nobody's file is emptied for a recording that cannot be.
    let mut events =
        blklab_serve::record(control, export, &args.format).map_err(Failure::mistake)?;
    let path = &args.output;
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
    let copied = io::copy(&mut events, &mut file).and_then(|_| file.flush());
    copied
        .and_then(|()| match args.format.as_str() {
            "text" => lost_events(path),
            // blktrace's form has no word for it.
            _ => Ok(0),
        })
        .map(|lost| {
            if lost > 0 {
                let path = path.display();
                eprintln!("blklab: {path}: {lost} events were lost, as they came too fast");
            }
        })
        .map_err(|e| Failure::Broken(format!("{}: {e}", path.display())))
}

/// How many events the text says it lacks.
fn lost_events(path: &Path) -> io::Result<u64> {
    let mut lost = 0;
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        let line = line?;
        let count = std::str::from_utf8(&line).ok().and_then(|line| {
            let (_, rest) = line.split_once(" [LOST ")?;
            rest.strip_suffix(" EVENTS]")?.parse::<u64>().ok()
        });
        lost += count.unwrap_or(0);
    }
    Ok(lost)
}
