//! Metrics in Prometheus's text form, over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use blklab_blk::HeldBios;
use blklab_stats::{DiskStats, Fact, Histogram, Place, facts};
use prometheus::TextEncoder;
use prometheus::proto::{
    Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType, Quantile, Summary,
};

use super::Exports;
use crate::export::{ExportView, KINDS};

/// A client that is silent for this long is disconnected.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest request.
const MAX_REQUEST_BYTES: u64 = 16 << 10;
/// Quantiles of latencies.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// A metric of every export.
struct Family {
    /// Its name without `blklab_`.
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    samples: fn(&ExportView<'_>) -> Vec<Sample>,
}

/// A value with its labels beside the export's.
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: Value,
}

enum Value {
    Number(f64),
    /// Of times in nanoseconds.
    Summary(Summary),
}

/// All metrics but the counters of a drive's model, in the order in which they
/// are written.
const FAMILIES: &[Family] = &[
    Family {
        name: "requests_total",
        help: "Requests answered",
        kind: MetricType::COUNTER,
        samples: |v| by_kind(|kind| number(v.counters.requests[kind] as f64)),
    },
    Family {
        name: "bytes_total",
        help: "Bytes of requests answered",
        kind: MetricType::COUNTER,
        samples: |v| by_kind(|kind| number(v.counters.bytes[kind] as f64)),
    },
    Family {
        name: "latency_seconds",
        help: "Time from a request to its reply",
        kind: MetricType::SUMMARY,
        samples: |v| by_kind(|kind| summary(&v.counters.latency[kind])),
    },
    Family {
        name: "errors_total",
        help: "Requests answered with an error",
        kind: MetricType::COUNTER,
        samples: |v| one(v.counters.errors as f64),
    },
    Family {
        name: "protocol_errors_total",
        help: "Connections that broke the protocol",
        kind: MetricType::COUNTER,
        samples: |v| one(v.counters.protocol_errors as f64),
    },
    Family {
        name: "connections",
        help: "Connections now",
        kind: MetricType::GAUGE,
        samples: |v| one(v.counters.connections as f64),
    },
    Family {
        name: "connections_total",
        help: "Connections ever",
        kind: MetricType::COUNTER,
        samples: |v| one(v.counters.connections_total as f64),
    },
    Family {
        name: "loop_turns_total",
        help: "Iterations of the export's event loop",
        kind: MetricType::COUNTER,
        samples: |v| one(v.counters.loop_iterations as f64),
    },
    Family {
        name: "queue_ios_total",
        help: "Requests the block layer finished",
        kind: MetricType::COUNTER,
        samples: |v| by_group(v.disk.counters(v.now).ios),
    },
    Family {
        name: "queue_merges_total",
        help: "Merges in the block layer",
        kind: MetricType::COUNTER,
        samples: |v| by_group(v.disk.counters(v.now).merges),
    },
    Family {
        name: "queue_sectors_total",
        help: "Sectors the block layer moved",
        kind: MetricType::COUNTER,
        samples: |v| by_group(v.disk.counters(v.now).sectors),
    },
    Family {
        name: "queue_in_flight",
        help: "Requests in the block layer now",
        kind: MetricType::GAUGE,
        samples: |v| {
            let counts = ["read", "write"]
                .into_iter()
                .zip(v.disk.queue().in_flight());
            let labelled = counts.map(|(op, n)| labelled(&[("op", op)], number(f64::from(n))));
            labelled.collect()
        },
    },
    Family {
        name: "queue_io_seconds_total",
        help: "Time with a request in the block layer",
        kind: MetricType::COUNTER,
        samples: |v| one(v.disk.counters(v.now).io_ticks_ns as f64 / 1e9),
    },
    Family {
        name: "queue_behind_flush_seconds_total",
        help: "Time that requests were in flight while a flush was under way for others",
        kind: MetricType::COUNTER,
        samples: |v| one(v.disk.counters(v.now).behind_flush_ns as f64 / 1e9),
    },
    Family {
        name: "queue_fua_seconds_total",
        help: "Time of writes past the drive's cache (FUA)",
        kind: MetricType::COUNTER,
        samples: |v| one(v.disk.counters(v.now).fua_ticks_ns as f64 / 1e9),
    },
    Family {
        name: "scheduler_info",
        help: "The scheduler",
        kind: MetricType::GAUGE,
        samples: |v| vec![labelled(&[("scheduler", scheduler(v))], number(1.0))],
    },
    Family {
        name: "scheduler_events_total",
        help: "What the scheduler decided",
        kind: MetricType::COUNTER,
        samples: |v| {
            let name = scheduler(v);
            let counters = v.disk.queue().elevator_counters().into_iter();
            let labelled = counters.map(|(event, count)| {
                labelled(
                    &[("scheduler", name), ("event", event)],
                    number(count as f64),
                )
            });
            labelled.collect()
        },
    },
    Family {
        name: "cgroup_held_bios_total",
        help: "Bios that a control group's limits held back",
        kind: MetricType::COUNTER,
        samples: |v| by_cgroup(v, |held| held.bios as f64),
    },
    Family {
        name: "cgroup_held_seconds_total",
        help: "Time for which they were held back, of those that went on",
        kind: MetricType::COUNTER,
        samples: |v| by_cgroup(v, |held| held.ns as f64 / 1e9),
    },
    Family {
        name: "memory_bytes",
        help: "Memory that the data takes",
        kind: MetricType::GAUGE,
        samples: |v| {
            let bytes = v.disk.backend().memory_bytes();
            bytes.map_or(Vec::new(), |bytes| one(bytes as f64))
        },
    },
    Family {
        name: "pacing_late_seconds",
        help: "How late requests ended, beyond the drive's model",
        kind: MetricType::SUMMARY,
        samples: |v| match v.disk.model() {
            Some(_) => vec![labelled(&[], summary(v.disk.lateness()))],
            None => Vec::new(),
        },
    },
];

fn scheduler(view: &ExportView<'_>) -> &'static str {
    view.disk.queue().elevator().map_or("none", |e| e.name())
}

fn number(value: f64) -> Value {
    Value::Number(value)
}

fn summary(times_ns: &Histogram) -> Value {
    let (moments, mut summary) = (times_ns.summary(), Summary::default());
    let quantiles = QUANTILES.map(|q| {
        let mut quantile = Quantile::default();
        quantile.set_quantile(q);
        quantile.set_value(times_ns.percentile(q * 100.0) as f64 / 1e9);
        quantile
    });
    summary.set_quantile(quantiles.into());
    summary.set_sample_sum(moments.mean_ns * moments.count as f64 / 1e9);
    summary.set_sample_count(moments.count);
    Value::Summary(summary)
}

fn labelled(labels: &[(&'static str, &str)], value: Value) -> Sample {
    let labels = labels.iter();
    Sample {
        labels: labels.map(|(name, v)| (*name, v.to_string())).collect(),
        value,
    }
}

fn one(value: f64) -> Vec<Sample> {
    vec![labelled(&[], number(value))]
}

/// A sample for each kind of request.
fn by_kind(value: impl Fn(usize) -> Value) -> Vec<Sample> {
    let kinds = KINDS.iter().enumerate();
    kinds
        .map(|(kind, name)| labelled(&[("op", name)], value(kind)))
        .collect()
}

/// A sample for each control group and whatever holds its bios back.
fn by_cgroup(view: &ExportView<'_>, value: fn(HeldBios) -> f64) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (group, stats) in view.disk.cgroup_stats() {
        let layers = [
            ("io.max", stats.io_max),
            ("io.latency", stats.io_latency),
            ("io.cost", stats.io_cost),
        ];
        samples.extend(layers.map(|(layer, held)| {
            let labels = [("cgroup", group.as_str()), ("layer", layer)];
            labelled(&labels, number(value(held)))
        }));
    }
    samples
}

/// A sample for each of the block layer's groups of operations (`STAT_READ` and
/// so on).
fn by_group(counts: [u64; 4]) -> Vec<Sample> {
    let groups = ["read", "write", "discard", "flush"]
        .into_iter()
        .zip(counts);
    groups
        .map(|(name, count)| labelled(&[("op", name)], number(count as f64)))
        .collect()
}

/// A sample of one export as the encoder takes it.
fn metric(export: &str, kind: MetricType, sample: Sample) -> Metric {
    let labels = [("export", export.to_string())].into_iter();
    let labels = labels.chain(sample.labels).map(|(name, value)| {
        let mut label = LabelPair::default();
        label.set_name(name.to_string());
        label.set_value(value);
        label
    });
    let mut metric = Metric::from_label(labels.collect());
    match sample.value {
        Value::Summary(summary) => metric.set_summary(summary),
        Value::Number(value) if kind == MetricType::COUNTER => {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        }
        Value::Number(value) => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
    }
    metric
}

fn family(name: &str, help: &str, kind: MetricType) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(format!("blklab_{name}"));
    family.set_help(help.to_string());
    family.set_field_type(kind);
    family
}

/// What one export has to say at one moment.
struct Snapshot {
    export: String,
    /// By family.
    samples: Vec<Vec<Sample>>,
    /// The counters of its drive's model.
    drive: Option<DiskStats>,
}

impl Snapshot {
    fn take(export: String, view: &ExportView<'_>) -> Snapshot {
        let drive = view.disk.model().map(|model| DiskStats {
            device: model.device().stats(view.now),
            ..DiskStats::default()
        });
        Snapshot {
            export,
            samples: FAMILIES.iter().map(|f| (f.samples)(view)).collect(),
            drive,
        }
    }
}

/// A drive's counter, of all exports whose drive has it; times are in seconds, as
/// Prometheus has them.
fn drive_counter(fact: &Fact, exports: &[Snapshot]) -> MetricFamily {
    let (name, unit) = match fact.key.strip_suffix("_ns") {
        Some(name) => (format!("drive_{name}_seconds_total"), 1e9),
        None => (format!("drive_{}_total", fact.key), 1.0),
    };
    let mut family = family(&name, fact.meaning, MetricType::COUNTER);
    for snapshot in exports {
        let count = snapshot
            .drive
            .as_ref()
            .and_then(|drive| fact.counter(drive));
        if let Some(count) = count {
            let sample = labelled(&[], number(count as f64 / unit));
            let metric = metric(&snapshot.export, MetricType::COUNTER, sample);
            family.mut_metric().push(metric);
        }
    }
    family
}

/// The text of all exports' metrics.
fn encode(mut exports: Vec<Snapshot>) -> Result<String, String> {
    let mut families = Vec::new();
    for (index, declared) in FAMILIES.iter().enumerate() {
        let mut family = family(declared.name, declared.help, declared.kind);
        for snapshot in &mut exports {
            let samples = std::mem::take(&mut snapshot.samples[index]).into_iter();
            let metrics = samples.map(|s| metric(&snapshot.export, declared.kind, s));
            family.mut_metric().extend(metrics);
        }
        families.push(family);
    }
    let of_drives = |fact: &Fact| matches!(fact.place, Place::Drive | Place::Flash);
    let facts = facts().into_iter().filter(of_drives);
    families.extend(facts.map(|fact| drive_counter(&fact, &exports)));
    // The encoder refuses families without samples.
    families.retain(|family| !family.get_metric().is_empty());
    let text = TextEncoder::new().encode_to_string(&families);
    text.map_err(|e| e.to_string())
}

impl Exports {
    fn metrics(&self) -> Result<String, String> {
        let mut snapshots = Vec::new();
        for export in self.all() {
            let name = export.name.clone();
            snapshots.push(export.call(move |view| Snapshot::take(name, view))?);
        }
        encode(snapshots)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drives_counters_are_those_of_the_exports_that_have_them() {
        let mut drive = DiskStats::default();
        drive.device.flash_programs = 7;
        drive.device.reads_behind_writes_ns = 1_500_000_000;
        let snapshot = |export: &str, drive| Snapshot {
            export: export.to_string(),
            samples: FAMILIES.iter().map(|_| Vec::new()).collect(),
            drive,
        };
        let mut exports = vec![snapshot("paced", Some(drive)), snapshot("memory", None)];
        let labels = [("op", "read")];
        let mut times = Histogram::new();
        times.record(1_000_000);
        exports[1].samples[2] = vec![labelled(&labels, summary(&times))];
        let text = encode(exports).expect("metrics");
        for line in [
            "# TYPE blklab_latency_seconds summary\n",
            "\nblklab_latency_seconds_count{export=\"memory\",op=\"read\"} 1\n",
            "# TYPE blklab_drive_flash_programs_total counter\n",
            "\nblklab_drive_flash_programs_total{export=\"paced\"} 7\n",
            "\nblklab_drive_reads_behind_writes_seconds_total{export=\"paced\"} 1.5\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("_arm_") && !text.contains("# HELP blklab_memory_bytes"));
    }
}
