//! fio's logs of each I/O: `write_lat_log`, `write_bw_log`, `write_iops_log` and
//! `write_hist_log`, as its `stat.c` records them.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::histogram::Histogram;

/// Limit on the entries in the logs of one process, about 230 MB.
const MAX_ENTRIES: usize = 1 << 22;

/// The quantity that a log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// Submission latency.
    Slat,
    /// Completion latency.
    Clat,
    /// Total latency.
    Lat,
    /// Histograms of completion latencies.
    Histogram,
    /// Bandwidth.
    Bandwidth,
    /// I/Os a second.
    Iops,
}

impl LogKind {
    const ALL: [LogKind; 6] = [
        LogKind::Slat,
        LogKind::Clat,
        LogKind::Lat,
        LogKind::Histogram,
        LogKind::Bandwidth,
        LogKind::Iops,
    ];

    /// Returns fio's word for it in the name of a file.
    const fn word(self) -> &'static str {
        match self {
            LogKind::Slat => "slat",
            LogKind::Clat => "clat",
            LogKind::Lat => "lat",
            LogKind::Histogram => "clat_hist",
            LogKind::Bandwidth => "bw",
            LogKind::Iops => "iops",
        }
    }
}

/// The logs that a job writes. Each name is the prefix of their files; an empty one
/// stands for the job's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSetup {
    /// `write_lat_log`: submission, completion and total latencies.
    pub latency: Option<String>,
    /// `write_bw_log`.
    pub bandwidth: Option<String>,
    /// `write_iops_log`.
    pub iops: Option<String>,
    /// `write_hist_log`: histograms of completion latencies.
    pub histogram: Option<String>,
    /// `log_avg_msec`: one entry for this time in milliseconds; 0 for one for each I/O.
    pub mean_over_ms: u32,
    /// `log_hist_msec`: the interval between histograms in milliseconds; 0 for none.
    pub histogram_over_ms: u32,
    /// `log_hist_coarseness`: how many times pairs of a histogram's bins are joined.
    pub histogram_coarseness: u32,
    /// `log_max_value`: entries hold the largest value of their time, not the mean.
    pub largest: bool,
    /// `log_offset`: entries hold the offset of the I/O.
    pub offsets: bool,
    /// `log_prio`: entries hold the priority of the I/O.
    pub priorities: bool,
    /// `per_job_logs=0`: processes write into one file.
    pub shared: bool,
}

impl LogSetup {
    /// Returns whether any log is written.
    pub fn is_any(&self) -> bool {
        self.kinds().next().is_some()
    }

    /// Returns the logs that are written.
    pub fn kinds(&self) -> impl Iterator<Item = LogKind> {
        let is_written = |kind: &LogKind| self.name(*kind).is_some();
        LogKind::ALL.into_iter().filter(is_written)
    }

    fn name(&self, kind: LogKind) -> Option<&str> {
        let name = match kind {
            LogKind::Slat | LogKind::Clat | LogKind::Lat => &self.latency,
            LogKind::Histogram => &self.histogram,
            LogKind::Bandwidth => &self.bandwidth,
            LogKind::Iops => &self.iops,
        };
        name.as_deref()
    }

    /// Returns the file of a process's log. Processes are numbered from 0 over all jobs;
    /// fio's file names count from 1.
    pub fn file(&self, kind: LogKind, job: &str, process: u32) -> String {
        let name = self.name(kind).filter(|name| !name.is_empty());
        let (name, word) = (name.unwrap_or(job), kind.word());
        match self.shared {
            true => format!("{name}_{word}.log"),
            false => format!("{name}_{word}.{}.log", process + 1),
        }
    }
}

/// An I/O that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The time of its end, in nanoseconds since measuring began.
    pub at_ns: u64,
    /// The direction: 0 for reads, 1 for writes, 2 for trims.
    pub direction: u8,
    /// The priority as in the kernel: the class from bit 13 on, the level below.
    pub priority: u16,
    /// The length in bytes.
    pub bytes: u64,
    /// The offset on the drive in bytes.
    pub offset_bytes: u64,
    /// Submission latency; `None` for engines without one.
    pub slat_ns: Option<u64>,
    /// Completion latency.
    pub clat_ns: u64,
}

impl LogEntry {
    /// Returns the total latency.
    pub fn lat_ns(&self) -> u64 {
        self.slat_ns.unwrap_or(0) + self.clat_ns
    }
}

/// One value for a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMean {
    /// The end of the span, in milliseconds since measuring began.
    pub at_ms: u64,
    /// The direction: 0 for reads, 1 for writes, 2 for trims.
    pub direction: u8,
    /// The value in nanoseconds, KiB a second or I/Os a second.
    pub value: u64,
}

/// The completion latencies of a span of time.
#[derive(Clone, Debug)]
pub struct LogHistogram {
    /// The end of the span, in milliseconds since measuring began.
    pub at_ms: u64,
    /// The direction: 0 for reads, 1 for writes, 2 for trims.
    pub direction: u8,
    /// The length of the span's last I/O in bytes.
    pub bytes: u64,
    /// The latencies.
    pub latencies_ns: Histogram,
}

/// The values of one direction since its last entry.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    since_ms: u64,
    count: u64,
    sum: u64,
    largest: u64,
}

/// The mean entries of one log, computed as in fio's `add_log_sample`.
#[derive(Clone, Debug, Default)]
struct Means {
    pending: [Pending; 3],
    logged: Vec<LogMean>,
}

impl Means {
    fn add(&mut self, at_ms: u64, direction: u8, value: u64, setup: &LogSetup) {
        let pending = &mut self.pending[usize::from(direction)];
        pending.count += 1;
        pending.sum += value;
        pending.largest = pending.largest.max(value);
        let over_ms = u64::from(setup.mean_over_ms);
        if at_ms.saturating_sub(pending.since_ms) < over_ms {
            return;
        }
        self.log(at_ms, direction, setup.largest);
        self.pending[usize::from(direction)].since_ms = at_ms - at_ms % over_ms;
    }

    /// Adds an entry for the pending values, if there are any.
    fn log(&mut self, at_ms: u64, direction: u8, largest: bool) {
        let pending = &mut self.pending[usize::from(direction)];
        let Pending { count, sum, .. } = *pending;
        if count == 0 {
            return;
        }
        let value = match largest {
            true => pending.largest,
            false => (sum + count / 2) / count,
        };
        *pending = Pending {
            since_ms: pending.since_ms,
            ..Pending::default()
        };
        self.logged.push(LogMean {
            at_ms,
            direction,
            value,
        });
    }
}

/// The histogram of one direction since its last entry.
#[derive(Clone, Debug, Default)]
struct Span {
    since_ms: u64,
    latencies_ns: Histogram,
}

/// The logs of one process.
#[derive(Clone, Debug, Default)]
pub struct IoLog {
    /// The job's name.
    pub job: String,
    /// The process's number over all jobs, from 0.
    pub process: u32,
    /// The logs that are written.
    pub setup: LogSetup,
    entries: Vec<LogEntry>,
    slat: Means,
    clat: Means,
    lat: Means,
    bandwidth: Vec<LogMean>,
    iops: Vec<LogMean>,
    spans: [Span; 3],
    histograms: Vec<LogHistogram>,
    is_full: bool,
}

impl IoLog {
    /// Creates the empty logs of a process of that job.
    pub fn new(job: &str, setup: LogSetup) -> IoLog {
        IoLog {
            job: job.to_string(),
            setup,
            ..IoLog::default()
        }
    }

    /// Records an I/O that ended.
    pub fn ended(&mut self, entry: LogEntry) {
        let at_ms = entry.at_ns / 1_000_000;
        if self.setup.histogram.is_some() && self.setup.histogram_over_ms > 0 {
            self.add_to_histogram(at_ms, &entry);
        }
        if self.setup.mean_over_ms == 0 {
            self.is_full |= self.entries.len() >= MAX_ENTRIES;
            if !self.is_full {
                self.entries.push(entry);
            }
        } else if self.setup.latency.is_some() {
            let (dir, setup) = (entry.direction, &self.setup);
            if let Some(slat_ns) = entry.slat_ns {
                self.slat.add(at_ms, dir, slat_ns, setup);
            }
            self.clat.add(at_ms, dir, entry.clat_ns, setup);
            self.lat.add(at_ms, dir, entry.lat_ns(), setup);
        }
    }

    /// Records an I/O in its histogram. As in fio, the first I/O after a span's end closes the
    /// span, and the next one begins where that span should have ended.
    fn add_to_histogram(&mut self, at_ms: u64, entry: &LogEntry) {
        let over_ms = u64::from(self.setup.histogram_over_ms);
        let span = &mut self.spans[usize::from(entry.direction)];
        if span.since_ms == 0 {
            span.since_ms = at_ms;
        }
        span.latencies_ns.record(entry.clat_ns);
        if at_ms - span.since_ms < over_ms {
            return;
        }
        span.since_ms += over_ms;
        self.histograms.push(LogHistogram {
            at_ms,
            direction: entry.direction,
            bytes: entry.bytes,
            latencies_ns: core::mem::take(&mut span.latencies_ns),
        });
    }

    /// Records the bandwidth of a window in which an I/O ended.
    pub fn bandwidth_window(&mut self, at_ns: u64, direction: u8, bytes_per_second: f64) {
        if self.setup.bandwidth.is_some() && self.setup.mean_over_ms > 0 {
            let value = (bytes_per_second / 1024.0) as u64;
            self.bandwidth.push(mean(at_ns, direction, value));
        }
    }

    /// Records the IOPS of a window in which an I/O ended.
    pub fn iops_window(&mut self, at_ns: u64, direction: u8, per_second: f64) {
        if self.setup.iops.is_some() && self.setup.mean_over_ms > 0 {
            self.iops.push(mean(at_ns, direction, per_second as u64));
        }
    }

    /// Records pending latencies when the process ends.
    pub fn end(&mut self, at_ns: u64) {
        for means in [&mut self.slat, &mut self.clat, &mut self.lat] {
            for direction in 0..3 {
                means.log(at_ns / 1_000_000, direction, self.setup.largest);
            }
        }
    }

    /// Returns the file of one of the logs.
    pub fn file(&self, kind: LogKind) -> String {
        self.setup.file(kind, &self.job, self.process)
    }

    /// Returns all I/Os in the order of their ends; empty if means are logged.
    pub fn entries(&self) -> &[LogEntry] {
        &self.entries
    }

    /// Returns the mean entries of a log, in nanoseconds, KiB a second or I/Os a second.
    pub fn means(&self, kind: LogKind) -> &[LogMean] {
        match kind {
            LogKind::Slat => &self.slat.logged,
            LogKind::Clat => &self.clat.logged,
            LogKind::Lat => &self.lat.logged,
            LogKind::Bandwidth => &self.bandwidth,
            LogKind::Iops => &self.iops,
            LogKind::Histogram => &[],
        }
    }

    /// Returns the histogram entries.
    pub fn histograms(&self) -> &[LogHistogram] {
        &self.histograms
    }

    /// Returns whether I/Os are missing because the limit on entries was reached.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

fn mean(at_ns: u64, direction: u8, value: u64) -> LogMean {
    LogMean {
        at_ms: at_ns / 1_000_000,
        direction,
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(setup: LogSetup, ends: &[(u64, u8, u64)]) -> IoLog {
        let mut log = IoLog::new("job", setup);
        for &(at_ms, direction, clat_ns) in ends {
            log.ended(LogEntry {
                at_ns: at_ms * 1_000_000 + 999,
                direction,
                priority: 0,
                bytes: 4096,
                offset_bytes: 0,
                slat_ns: Some(10),
                clat_ns,
            });
        }
        log.end(1_234_000_000);
        log
    }

    fn rows(means: &[LogMean]) -> Vec<(u64, u8, u64)> {
        let row = |mean: &LogMean| (mean.at_ms, mean.direction, mean.value);
        means.iter().map(row).collect()
    }

    /// As in fio, the first I/O after a span's end is counted in the span and gives the entry
    /// its time, and the next span begins at a whole multiple.
    #[test]
    fn latencies_are_taken_together_over_spans() {
        let setup = LogSetup {
            latency: Some(String::new()),
            mean_over_ms: 100,
            ..LogSetup::default()
        };
        let ends = [
            (5, 0, 100),
            (7, 1, 9),
            (130, 0, 201),
            (199, 0, 7),
            (205, 0, 8),
        ];
        let means = log(setup.clone(), &ends);
        let [slat, clat, lat] =
            [LogKind::Slat, LogKind::Clat, LogKind::Lat].map(|kind| rows(means.means(kind)));
        assert_eq!(clat, [(130, 0, 151), (205, 0, 8), (1234, 1, 9)]);
        assert_eq!(lat, [(130, 0, 161), (205, 0, 18), (1234, 1, 19)]);
        assert_eq!(slat, [(130, 0, 10), (205, 0, 10), (1234, 1, 10)]);
        assert!(means.entries().is_empty());
        let largest = LogSetup {
            largest: true,
            ..setup
        };
        let largest = log(largest, &ends);
        assert_eq!(rows(largest.means(LogKind::Clat))[0], (130, 0, 201));
    }

    #[test]
    fn a_histogram_is_logged_behind_each_span() {
        let setup = LogSetup {
            histogram: Some("h".to_string()),
            histogram_over_ms: 50,
            ..LogSetup::default()
        };
        let log = log(
            setup,
            &[(10, 0, 64), (40, 0, 64), (61, 0, 65), (109, 0, 66)],
        );
        let spans: Vec<(u64, u64)> = (log.histograms().iter())
            .map(|h| (h.at_ms, h.latencies_ns.count()))
            .collect();
        assert_eq!(spans, [(61, 3)]);
        assert_eq!(log.entries().len(), 4);
    }

    /// The first span begins at the first I/O, each later one where the span before should have
    /// ended, whenever its first I/O comes.
    #[test]
    fn spans_of_a_histogram_follow_each_other() {
        let setup = LogSetup {
            histogram: Some("h".to_string()),
            histogram_over_ms: 50,
            ..LogSetup::default()
        };
        let ends = [10, 60, 109, 110, 150, 260, 261, 262].map(|at_ms| (at_ms, 1, 7));
        let log = log(setup.clone(), &ends);
        let spans = log.histograms().iter();
        let spans: Vec<_> = spans
            .map(|h| (h.at_ms, h.direction, h.bytes, h.latencies_ns.count()))
            .collect();
        assert_eq!(
            spans,
            [
                (60, 1, 4096, 2),
                (110, 1, 4096, 2),
                (260, 1, 4096, 2),
                (261, 1, 4096, 1),
                (262, 1, 4096, 1),
            ]
        );
        let without_interval = LogSetup {
            histogram_over_ms: 0,
            ..setup
        };
        assert!(
            super::tests::log(without_interval, &ends)
                .histograms()
                .is_empty()
        );
    }

    #[test]
    fn without_a_span_each_io_has_an_entry_until_the_log_is_full() {
        let setup = LogSetup {
            latency: Some(String::new()),
            ..LogSetup::default()
        };
        let mut log = log(setup, &[(5, 0, 100), (6, 1, 200)]);
        let entries: Vec<_> = log.entries().iter().map(LogEntry::lat_ns).collect();
        assert_eq!((entries, log.is_full()), (vec![110, 210], false));
        assert!(log.means(LogKind::Clat).is_empty());
        let entry = log.entries[0];
        log.entries.resize(MAX_ENTRIES - 1, entry);
        log.ended(entry);
        assert_eq!((log.entries().len(), log.is_full()), (MAX_ENTRIES, false));
        log.ended(entry);
        assert_eq!((log.entries().len(), log.is_full()), (MAX_ENTRIES, true));
        log.ended(entry);
        assert!(log.is_full());
    }

    /// fio ends a span at a whole multiple of its length, or at once after it has passed.
    #[test]
    fn the_next_span_begins_at_a_whole_multiple() {
        let setup = LogSetup {
            latency: Some(String::new()),
            mean_over_ms: 100,
            ..LogSetup::default()
        };
        let ends = [
            (250, 0, 7),
            (299, 0, 9),
            (300, 0, 11),
            (399, 0, 4),
            (400, 0, 6),
        ];
        let means = log(setup, &ends);
        let clat = rows(means.means(LogKind::Clat));
        assert_eq!(clat, [(250, 0, 7), (300, 0, 10), (400, 0, 5)]);
    }

    #[test]
    fn windows_are_logged_in_kib_and_ios_a_second_if_means_are() {
        let setup = LogSetup {
            bandwidth: Some(String::new()),
            iops: Some(String::new()),
            mean_over_ms: 500,
            ..LogSetup::default()
        };
        let windows = |setup: &LogSetup| {
            let mut log = IoLog::new("job", setup.clone());
            log.bandwidth_window(500_999_999, 1, 3.0 * 1024.0 * 1024.0);
            log.iops_window(501_000_000, 0, 2.9);
            (
                rows(log.means(LogKind::Bandwidth)),
                rows(log.means(LogKind::Iops)),
            )
        };
        assert_eq!(windows(&setup), (vec![(500, 1, 3072)], vec![(501, 0, 2)]));
        let bandwidth_alone = LogSetup {
            iops: None,
            ..setup.clone()
        };
        assert_eq!(windows(&bandwidth_alone).1, []);
        let iops_alone = LogSetup {
            bandwidth: None,
            ..setup.clone()
        };
        assert_eq!(windows(&iops_alone).0, []);
        let each_io = LogSetup {
            mean_over_ms: 0,
            ..setup
        };
        assert_eq!(windows(&each_io), (vec![], vec![]));
    }

    /// `write_lat_log` writes three files; names and numbers are fio's.
    #[test]
    fn files_are_named_as_by_fio() {
        assert!(!LogSetup::default().is_any());
        let setup = LogSetup {
            latency: Some(String::new()),
            histogram: Some("own".to_string()),
            iops: Some("own".to_string()),
            bandwidth: Some("own".to_string()),
            ..LogSetup::default()
        };
        assert!(setup.is_any());
        let mut log = IoLog::new("job", setup.clone());
        log.process = 2;
        let files: Vec<String> = setup.kinds().map(|kind| log.file(kind)).collect();
        assert_eq!(
            files,
            [
                "job_slat.3.log",
                "job_clat.3.log",
                "job_lat.3.log",
                "own_clat_hist.3.log",
                "own_bw.3.log",
                "own_iops.3.log",
            ]
        );
        log.setup.shared = true;
        assert_eq!(log.file(LogKind::Bandwidth), "own_bw.log");
        let some = LogSetup {
            bandwidth: None,
            latency: None,
            ..setup
        };
        let kinds: Vec<LogKind> = some.kinds().collect();
        assert_eq!(kinds, [LogKind::Histogram, LogKind::Iops]);
    }
}
