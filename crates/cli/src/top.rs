//! `blklab top`.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use blklab_serve::Sample;

use crate::args::TopArgs;
use crate::failure::Failure;
use crate::output;

/// Moves the cursor to the upper left corner and clears the screen below it.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
    if !(args.interval >= 0.05 && args.interval <= 3600.0) {
        let interval = args.interval;
        return Err(Failure::mistake(format!(
            "--interval {interval}: it may be 0.05 to 3600 seconds"
        )));
    }
    let take = || Sample::take(&args.control.control, &args.control.export);
    let mut earlier = take().map_err(Failure::mistake)?;
    let mut shown = 0;
    while args.count.is_none_or(|count| shown < count) {
        std::thread::sleep(Duration::from_secs_f64(args.interval));
        // A server that has ended is not the user's mistake.
        let now = take().map_err(Failure::Broken)?;
        let clear = if std::io::stdout().is_terminal() {
            CLEAR
        } else {
            ""
        };
        output::print(format!("{clear}{}", table(&earlier, &now)))?;
        earlier = now;
        shown += 1;
    }
    Ok(())
}

fn table(earlier: &Sample, now: &Sample) -> String {
    let in_flight: Vec<String> = now.in_flight.iter().map(u64::to_string).collect();
    let mut text = format!(
        "scheduler {}, {} connections, in flight (reads, writes) {}\n",
        now.scheduler,
        now.connections,
        in_flight.join(", ")
    );
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{:<8}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "", "IOPS", "MiB/s", "p50 us", "p99 us", "p99.9 us"
    );
    for (name, rate) in now.since(earlier) {
        let [p50, p99, p999] = rate.percentiles_ns.map(|ns| ns as f64 / 1e3);
        let mib = rate.bytes_per_second / f64::from(1 << 20);
        let _ = writeln!(
            text,
            "{name:<8}{:>12.0}{mib:>12.1}{p50:>12.1}{p99:>12.1}{p999:>12.1}",
            rate.iops
        );
    }
    text
}
