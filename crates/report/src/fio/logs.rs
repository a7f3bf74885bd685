//! fio's logs of each I/O (`write_lat_log` and others), as its `iolog.c` writes them: a
//! line has time in milliseconds, value, direction, block size, offset if requested, and
//! priority.

use std::fmt::Write;

use blklab_stats::{IoLog, LogEntry, LogKind, Results};

/// A log file.
pub struct LogFile<'a> {
    /// The file's name.
    pub name: String,
    kind: LogKind,
    /// The logs of the processes that write into it.
    logs: Vec<&'a IoLog>,
}

/// Returns all log files of a run, each once.
pub fn files(results: &Results) -> Vec<LogFile<'_>> {
    let mut files: Vec<LogFile<'_>> = Vec::new();
    for log in &results.logs {
        for kind in log.setup.kinds() {
            let name = log.file(kind);
            match files.iter_mut().find(|file| file.name == name) {
                Some(file) if log.setup.shared => file.logs.push(log),
                _ => files.push(LogFile {
                    name,
                    kind,
                    logs: vec![log],
                }),
            }
        }
    }
    files
}

impl LogFile<'_> {
    /// Returns the file's text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for log in &self.logs {
            // Writing to a string does not fail.
            let _ = match (self.kind, log.setup.mean_over_ms) {
                (LogKind::Histogram, _) => histograms(&mut text, log),
                (kind, 0) => each(&mut text, log, kind),
                (kind, _) => means(&mut text, log, kind),
            };
        }
        text
    }
}

/// Writes a line for each I/O. fio logs submission latencies at submission, all others
/// at the end.
fn each(text: &mut String, log: &IoLog, kind: LogKind) -> std::fmt::Result {
    if kind == LogKind::Slat {
        let submitted_ns = |entry: &LogEntry| entry.at_ns.saturating_sub(entry.clat_ns);
        let mut entries = log.entries().to_vec();
        entries.sort_by_key(submitted_ns);
        let slats = entries.iter().filter_map(|e| Some((e, e.slat_ns?)));
        for (entry, slat_ns) in slats {
            line(text, log, submitted_ns(entry), slat_ns, entry)?;
        }
        return Ok(());
    }
    for entry in log.entries() {
        let value = match kind {
            LogKind::Clat => entry.clat_ns,
            LogKind::Lat => entry.lat_ns(),
            // The bandwidth of the single I/O, in thousands of bytes a second.
            LogKind::Bandwidth => (entry.bytes.saturating_mul(1_000_000))
                .checked_div(entry.clat_ns)
                .unwrap_or(0),
            _ => 1,
        };
        line(text, log, entry.at_ns, value, entry)?;
    }
    Ok(())
}

fn line(
    text: &mut String,
    log: &IoLog,
    at_ns: u64,
    value: u64,
    entry: &LogEntry,
) -> std::fmt::Result {
    let (at_ms, bytes) = (at_ns / 1_000_000, entry.bytes);
    write!(text, "{at_ms}, {value}, {}, {bytes}", entry.direction)?;
    if log.setup.offsets {
        write!(text, ", {}", entry.offset_bytes)?;
    }
    end_line(text, log, entry.priority)
}

/// Writes the last column: the priority, or whether its class is real time.
fn end_line(text: &mut String, log: &IoLog, priority: u16) -> std::fmt::Result {
    match log.setup.priorities {
        true => writeln!(text, ", 0x{priority:04x}"),
        false => writeln!(text, ", {}", u8::from(priority >> 13 == 1)),
    }
}

/// Writes a line for each span of time and direction; fields that have no mean are zero.
fn means(text: &mut String, log: &IoLog, kind: LogKind) -> std::fmt::Result {
    for mean in log.means(kind) {
        write!(
            text,
            "{}, {}, {}, 0",
            mean.at_ms, mean.value, mean.direction
        )?;
        if log.setup.offsets {
            text.push_str(", 0");
        }
        end_line(text, log, 0)?;
    }
    Ok(())
}

/// Writes a line for each histogram: time, direction, block size and the count of each
/// bin.
fn histograms(text: &mut String, log: &IoLog) -> std::fmt::Result {
    let bins = 1 << log.setup.histogram_coarseness;
    for histogram in log.histograms() {
        let (direction, bytes) = (histogram.direction, histogram.bytes);
        write!(text, "{}, {direction}, {bytes}", histogram.at_ms)?;
        for bins in histogram.latencies_ns.fio_counts().chunks(bins) {
            write!(text, ", {}", bins.iter().sum::<u64>())?;
        }
        text.push('\n');
    }
    Ok(())
}
