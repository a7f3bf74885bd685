//! An export's counters as text on the control socket, and the rates between
//! two samples of them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use blklab_blk::Nanos;

use super::ask;
use crate::export::{ExportView, KINDS};

/// An export's counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When, by the server's clock.
    pub at: Nanos,
    /// The scheduler.
    pub scheduler: String,
    /// Reads and writes in the block layer.
    pub in_flight: Vec<u64>,
    /// Connections.
    pub connections: u64,
    /// By kind: requests and bytes.
    pub totals: BTreeMap<String, (u64, u64)>,
    /// By kind: latencies of requests in nanoseconds.
    pub latency: BTreeMap<String, BTreeMap<u64, u64>>,
}

/// What an export did of one kind in a span of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rate {
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Latencies in nanoseconds: median, 99th and 99.9th percentile.
    pub percentiles_ns: [u64; 3],
}

/// The percentiles that [`Rate`] tells.
const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

/// The text of an export's counters.
pub(super) fn write(view: &ExportView<'_>) -> String {
    let queue = view.disk.queue();
    let [reads, writes] = queue.in_flight();
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "at {}", view.now.0);
    let _ = writeln!(
        text,
        "scheduler {}",
        queue.elevator().map_or("none", |e| e.name())
    );
    let _ = writeln!(text, "in_flight {reads} {writes}");
    let _ = writeln!(text, "connections {}", view.counters.connections);
    for (kind, name) in KINDS.iter().enumerate() {
        let (requests, bytes) = (view.counters.requests[kind], view.counters.bytes[kind]);
        let _ = writeln!(text, "total {name} {requests} {bytes}");
        let _ = write!(text, "latency {name}");
        for (value_ns, count) in view.counters.latency[kind].bars() {
            let _ = write!(text, " {value_ns}:{count}");
        }
        text.push('\n');
    }
    text
}

impl Sample {
    /// Asks a running server for an export's counters.
    ///
    /// # Errors
    /// Where it cannot be reached, or answers what is not understood.
    pub fn take(control: &Path, export: &str) -> Result<Sample, String> {
        let text = ask(control, &["sample", export])?;
        Sample::parse(&text).ok_or_else(|| "the server's counters are not understood".to_string())
    }

    fn parse(text: &str) -> Option<Sample> {
        let mut sample = Sample::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            match words.next()? {
                "at" => sample.at = Nanos(words.next()?.parse().ok()?),
                "scheduler" => sample.scheduler = words.next()?.to_string(),
                "in_flight" => {
                    let counts = words.map(|word| word.parse().ok());
                    sample.in_flight = counts.collect::<Option<_>>()?;
                }
                "connections" => sample.connections = words.next()?.parse().ok()?,
                "total" => {
                    let name = words.next()?.to_string();
                    let counts = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                    sample.totals.insert(name, counts);
                }
                "latency" => {
                    let name = words.next()?.to_string();
                    let bars = words.map(|word| {
                        let (value, count) = word.split_once(':')?;
                        Some((value.parse().ok()?, count.parse().ok()?))
                    });
                    sample.latency.insert(name, bars.collect::<Option<_>>()?);
                }
                _ => {}
            }
        }
        Some(sample)
    }

    /// What was done since an earlier sample, by kind; kinds that were not used
    /// are left out.
    pub fn since(&self, earlier: &Sample) -> Vec<(String, Rate)> {
        let seconds = self.at.saturating_sub(earlier.at).0 as f64 / 1e9;
        let mut rates = Vec::new();
        for name in KINDS {
            let now = self.totals.get(name).copied().unwrap_or_default();
            let then = earlier.totals.get(name).copied().unwrap_or_default();
            let requests = now.0.saturating_sub(then.0);
            if requests == 0 || seconds <= 0.0 {
                continue;
            }
            let bytes = now.1.saturating_sub(then.1);
            let rate = Rate {
                iops: requests as f64 / seconds,
                bytes_per_second: bytes as f64 / seconds,
                percentiles_ns: percentiles(self.latency.get(name), earlier.latency.get(name)),
            };
            rates.push((name.to_string(), rate));
        }
        rates
    }
}

/// Percentiles of the values that came between two histograms.
fn percentiles(now: Option<&BTreeMap<u64, u64>>, then: Option<&BTreeMap<u64, u64>>) -> [u64; 3] {
    let fresh: Vec<(u64, u64)> = now
        .into_iter()
        .flatten()
        .map(|(value, count)| {
            let before = then.and_then(|then| then.get(value)).copied();
            (*value, count.saturating_sub(before.unwrap_or(0)))
        })
        .collect();
    let total: u64 = fresh.iter().map(|(_, count)| count).sum();
    PERCENTILES.map(|percent| {
        let rank = (percent / 100.0 * total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = fresh.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        found.map_or(0, |(value, _)| *value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_between() {
        let parse = |text| Sample::parse(text).expect("well formed");
        let earlier = parse("at 1000000000\ntotal read 10 100\nlatency read 5:10\n");
        let later = parse(
            "at 3000000000\nscheduler bfq\nin_flight 1 2\ntotal read 210 4100\nlatency read 5:10 7:198 9:2\n",
        );
        assert_eq!(later.scheduler, "bfq");
        assert_eq!(later.in_flight, [1, 2]);
        let rates = later.since(&earlier);
        assert_eq!(rates.len(), 1);
        let (name, rate) = &rates[0];
        assert_eq!(name, "read");
        assert_eq!((rate.iops, rate.bytes_per_second), (100.0, 2000.0));
        assert_eq!(rate.percentiles_ns, [7, 7, 9]);
        assert!(later.since(&later).is_empty());
        assert!(Sample::parse("total read x y").is_none());
    }
}
