//! Metrics in Prometheus's text form, over HTTP.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use blklab_stats::Histogram;

use super::Exports;
use crate::export::{ExportView, KINDS};

/// A client that says nothing for so long is hung up on.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest request.
const MAX_REQUEST_BYTES: u64 = 16 << 10;
/// Quantiles of latencies.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// One line: a metric's name, its labels beside the export's, its value.
type Sample = (&'static str, String, f64);

/// Names, types and meanings, in the order in which they are told.
const METRICS: [(&str, &str, &str); 19] = [
    ("requests_total", "counter", "Requests answered"),
    ("bytes_total", "counter", "Bytes of requests answered"),
    (
        "latency_seconds",
        "summary",
        "Time from a request to its reply",
    ),
    ("errors_total", "counter", "Requests answered with an error"),
    (
        "protocol_errors_total",
        "counter",
        "Connections that broke the protocol",
    ),
    ("connections", "gauge", "Connections now"),
    ("connections_total", "counter", "Connections ever"),
    (
        "loop_turns_total",
        "counter",
        "Turns of the export's event loop",
    ),
    (
        "queue_ios_total",
        "counter",
        "Requests the block layer finished",
    ),
    ("queue_merges_total", "counter", "Merges in the block layer"),
    (
        "queue_sectors_total",
        "counter",
        "Sectors the block layer moved",
    ),
    (
        "queue_in_flight",
        "gauge",
        "Requests in the block layer now",
    ),
    (
        "queue_io_seconds_total",
        "counter",
        "Time with a request in the block layer",
    ),
    ("scheduler_info", "gauge", "The scheduler"),
    (
        "scheduler_events_total",
        "counter",
        "What the scheduler decided",
    ),
    ("memory_bytes", "gauge", "Memory that the data takes"),
    (
        "pacing_late_seconds",
        "summary",
        "How late requests ended, beyond the drive's model",
    ),
    (
        "drive_flash_programs_total",
        "counter",
        "Pages the drive's model programmed",
    ),
    (
        "drive_flash_erases_total",
        "counter",
        "Blocks the drive's model erased",
    ),
];

fn latencies(samples: &mut Vec<Sample>, name: &'static str, labels: &str, histogram: &Histogram) {
    let summary = histogram.summary();
    let comma = if labels.is_empty() { "" } else { "," };
    for quantile in QUANTILES {
        let value = histogram.percentile(quantile * 100.0) as f64 / 1e9;
        let labels = format!("{labels}{comma}quantile=\"{quantile}\"");
        samples.push((name, labels, value));
    }
    let sum = summary.mean_ns * summary.count as f64 / 1e9;
    samples.push((name, format!("{labels}\u{1}_sum"), sum));
    samples.push((name, format!("{labels}\u{1}_count"), summary.count as f64));
}

/// What one export has to tell.
fn samples(view: &ExportView<'_>) -> Vec<Sample> {
    let (counters, disk) = (view.counters, &*view.disk);
    let mut samples: Vec<Sample> = Vec::new();
    for (kind, name) in KINDS.iter().enumerate() {
        let label = format!("op=\"{name}\"");
        samples.push((
            "requests_total",
            label.clone(),
            counters.requests[kind] as f64,
        ));
        samples.push(("bytes_total", label.clone(), counters.bytes[kind] as f64));
        latencies(
            &mut samples,
            "latency_seconds",
            &label,
            &counters.latency[kind],
        );
    }
    let mut plain = |name, value: f64| samples.push((name, String::new(), value));
    plain("errors_total", counters.errors as f64);
    plain("protocol_errors_total", counters.protocol_errors as f64);
    plain("connections", counters.connections as f64);
    plain("connections_total", counters.connections_total as f64);
    plain("loop_turns_total", counters.loop_iterations as f64);
    let queue = disk.counters(view.now);
    plain("queue_io_seconds_total", queue.io_ticks_ns as f64 / 1e9);
    if let Some(bytes) = disk.backend().memory_bytes() {
        plain("memory_bytes", bytes as f64);
    }
    if let Some(model) = disk.model() {
        let stats = model.device().stats(view.now);
        plain("drive_flash_programs_total", stats.flash_programs as f64);
        plain("drive_flash_erases_total", stats.flash_erases as f64);
        latencies(&mut samples, "pacing_late_seconds", "", disk.lateness());
    }
    for (group, name) in ["read", "write", "discard", "flush"].iter().enumerate() {
        let label = format!("op=\"{name}\"");
        samples.push(("queue_ios_total", label.clone(), queue.ios[group] as f64));
        samples.push((
            "queue_merges_total",
            label.clone(),
            queue.merges[group] as f64,
        ));
        samples.push(("queue_sectors_total", label, queue.sectors[group] as f64));
    }
    for (count, name) in disk.queue().in_flight().iter().zip(["read", "write"]) {
        samples.push((
            "queue_in_flight",
            format!("op=\"{name}\""),
            f64::from(*count),
        ));
    }
    let elevator = disk.queue().elevator();
    let name = elevator.map_or("none", |e| e.name());
    samples.push(("scheduler_info", format!("scheduler=\"{name}\""), 1.0));
    for (event, count) in disk.queue().elevator_counters() {
        let label = format!("scheduler=\"{name}\",event=\"{event}\"");
        samples.push(("scheduler_events_total", label, count as f64));
    }
    samples
}

/// A label's value, with what has a meaning escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

impl Exports {
    /// All exports' metrics.
    pub(crate) fn metrics(&self) -> Result<String, String> {
        let mut told = Vec::new();
        for export in self.all() {
            told.push((escaped(&export.name), export.call(|view| samples(view))?));
        }
        let mut text = String::new();
        for (metric, kind, help) in METRICS {
            let _ = writeln!(text, "# HELP blklab_{metric} {help}");
            let _ = writeln!(text, "# TYPE blklab_{metric} {kind}");
            for (export, samples) in &told {
                for (_, labels, value) in samples.iter().filter(|(name, _, _)| *name == metric) {
                    let (labels, suffix) = labels.split_once('\u{1}').unwrap_or((labels, ""));
                    let comma = if labels.is_empty() { "" } else { "," };
                    let _ = writeln!(
                        text,
                        "blklab_{metric}{suffix}{{export=\"{export}\"{comma}{labels}}} {value}"
                    );
                }
            }
        }
        Ok(text)
    }

    /// Answers one HTTP client.
    pub(crate) fn serve_metrics(&self, socket: OwnedFd) {
        let _ = self.answer_http(TcpStream::from(socket));
    }

    fn answer_http(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let mut reader = BufReader::new((&stream).take(MAX_REQUEST_BYTES));
        let mut request = String::new();
        reader.read_line(&mut request)?;
        // The head ends with an empty line; nothing in it matters here.
        let mut line = String::new();
        while reader.read_line(&mut line)? > 2 {
            line.clear();
        }
        let mut words = request.split(' ');
        let (status, body) = match (words.next(), words.next()) {
            (Some("GET"), Some("/metrics" | "/")) => match self.metrics() {
                Ok(text) => ("200 OK", text),
                Err(message) => ("503 Service Unavailable", message),
            },
            (Some("GET"), _) => ("404 Not Found", "only /metrics\n".to_string()),
            _ => ("405 Method Not Allowed", "only GET\n".to_string()),
        };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }
}
