//! iostat of sysstat: the activity of each drive in each second, by the kernel's own
//! accounting (`Documentation/admin-guide/iostats.rst`).

use std::collections::BTreeMap;

use blklab_blk::Op;
use blklab_workload::trace::Rwbs;
use blklab_workload::trace::tracefs::{CpuStat, Dev, Event, EventKind};

use super::requests::{EndedRequest, Requests};
use super::{Source, Tool, sysstat_banner};

const INTERVAL_NS: u64 = 1_000_000_000;

/// The most intervals that are printed: eleven days.
const MAX_INTERVALS: u64 = 1_000_000;

const HEADER: &str = "\nDevice            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     \
     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz     d/s     dkB/s   drqm/s  %drqm d_await \
     dareq-sz     f/s f_await  aqu-sz  %util\n";

pub(super) static TOOL: Tool = Tool {
    name: "iostat",
    help: "iostat -dxy 1 of sysstat: what each drive did in each whole second",
    render: |source, events| {
        let (mut requests, mut text) = (Requests::default(), String::new());
        let mut drives: BTreeMap<Dev, Drive> = BTreeMap::new();
        let (mut start_ns, mut last_ns, mut cpus) = (None, 0, 0);
        let mut first_ns = None;
        for event in events {
            let event = event.map_err(|e| e.to_string())?;
            if let EventKind::TracingMark { text } = event.kind {
                // A program's marks are no activity of a drive, but tell of CPUs.
                cpus = cpus.max(CpuStat::of_mark(text).map_or(0, |stat| stat.cpu + 1));
                continue;
            }
            let first_ns = *first_ns.get_or_insert(event.at_ns);
            if event.at_ns.saturating_sub(first_ns) / INTERVAL_NS > MAX_INTERVALS {
                return Err(format!(
                    "iostat prints at most {MAX_INTERVALS} seconds, and an event is at {} s, {} s \
                     after the first",
                    event.at_ns / INTERVAL_NS,
                    (event.at_ns - first_ns) / INTERVAL_NS
                ));
            }
            let mut from_ns = start_ns.unwrap_or(event.at_ns);
            while event.at_ns >= from_ns + INTERVAL_NS {
                let to_ns = from_ns + INTERVAL_NS;
                text.push_str(&report(source, &mut drives, (from_ns, to_ns)));
                from_ns = to_ns;
            }
            start_ns = Some(from_ns);
            last_ns = event.at_ns;
            cpus = cpus.max(event.cpu + 1);
            count(&mut drives, &event, requests.event(&event));
        }
        // iostat waits for whole seconds; rates of the last moments would be of no use.
        let is_part = |from_ns: &u64| last_ns > *from_ns && text.is_empty();
        if let Some(from_ns) = start_ns.filter(is_part) {
            text.push_str(&report(source, &mut drives, (from_ns, last_ns)));
        }
        let cpus = source.cpus.unwrap_or(cpus);
        Ok(format!("{}{text}", sysstat_banner(cpus)).into_bytes())
    },
};

/// The counters that `/proc/diskstats` has of one kind of request.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    ios: u64,
    merges: u64,
    bytes: u64,
    ns: u64,
}

/// The counters of a drive in an interval.
#[derive(Debug, Default)]
struct Drive {
    /// Counters of reads, writes, discards and flushes.
    by_kind: [Counts; 4],
    in_flight: u64,
    /// The time since when requests have been in flight.
    busy_since_ns: u64,
    busy_ns: u64,
}

fn kind(op: Option<Op>) -> usize {
    match op {
        Some(Op::Read) => 0,
        Some(Op::Write | Op::WriteZeroes | Op::Zone(_)) | None => 1,
        Some(Op::Discard) => 2,
        Some(Op::Flush) => 3,
    }
}

fn count(drives: &mut BTreeMap<Dev, Drive>, event: &Event<'_>, ended: Option<EndedRequest>) {
    let merged = |drives: &mut BTreeMap<Dev, Drive>, dev, rwbs: &Rwbs| {
        let drive: &mut Drive = drives.entry(dev).or_default();
        drive.by_kind[kind(rwbs.op)].merges += 1;
    };
    match &event.kind {
        EventKind::GetRq(bio) => {
            let drive = drives.entry(bio.dev).or_default();
            if drive.in_flight == 0 {
                drive.busy_since_ns = event.at_ns;
            }
            drive.in_flight += 1;
        }
        EventKind::BioBackmerge(bio) | EventKind::BioFrontmerge(bio) => {
            merged(drives, bio.dev, &bio.rwbs);
        }
        EventKind::RqMerge(rq) => {
            merged(drives, rq.dev, &rq.rwbs);
            drives.entry(rq.dev).or_default().leave(event.at_ns);
        }
        _ => {}
    }
    if let Some(ended) = ended {
        let drive = drives.entry(ended.dev).or_default();
        let counts = &mut drive.by_kind[kind(ended.op)];
        counts.ios += 1;
        counts.bytes += ended.bytes;
        counts.ns += ended.ended_ns.saturating_sub(ended.made_ns);
        // A flush is no request of a bio, and counts beside the writes that it serves
        // (`blk_account_io_flush`).
        if ended.op != Some(Op::Flush) {
            drive.leave(event.at_ns);
        }
    }
}

impl Drive {
    /// Removes a request that is no longer in flight.
    fn leave(&mut self, at_ns: u64) {
        if self.in_flight == 1 {
            self.busy_ns += at_ns.saturating_sub(self.busy_since_ns);
        }
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Returns the drive's line for an interval, and resets its counters.
    fn line(&mut self, name: &str, (from_ns, to_ns): (u64, u64)) -> String {
        if self.in_flight > 0 {
            self.busy_ns += to_ns.saturating_sub(self.busy_since_ns);
            self.busy_since_ns = to_ns;
        }
        let interval_s = to_ns.saturating_sub(from_ns).max(1) as f64 / 1e9;
        let mut line = format!("{name:<13}");
        for counts in &self.by_kind[..3] {
            line.push_str(&counts.columns(interval_s));
        }
        let flushes = self.by_kind[3];
        let all_ns: u64 = self.by_kind.iter().map(|counts| counts.ns).sum();
        line.push_str(&format!(
            " {:>7.2} {:>7.2} {:>7.2} {:>6.2}\n",
            flushes.ios as f64 / interval_s,
            flushes.await_ms(),
            all_ns as f64 / 1e9 / interval_s,
            self.busy_ns as f64 / 1e9 / interval_s * 100.0,
        ));
        (self.by_kind, self.busy_ns) = Default::default();
        line
    }
}

impl Counts {
    fn await_ms(&self) -> f64 {
        self.ns as f64 / 1e6 / self.ios.max(1) as f64
    }

    fn columns(&self, interval_s: f64) -> String {
        let kib = self.bytes as f64 / 1024.0;
        let all = (self.ios + self.merges).max(1) as f64;
        format!(
            " {:>7.2} {:>9.2} {:>8.2} {:>6.2} {:>7.2} {:>8.2}",
            self.ios as f64 / interval_s,
            kib / interval_s,
            self.merges as f64 / interval_s,
            self.merges as f64 * 100.0 / all,
            self.await_ms(),
            kib / self.ios.max(1) as f64,
        )
    }
}

fn report(source: &Source<'_>, drives: &mut BTreeMap<Dev, Drive>, span_ns: (u64, u64)) -> String {
    let lines = drives
        .iter_mut()
        .map(|(dev, drive)| drive.line(&source.drive_name(*dev), span_ns));
    format!("{HEADER}{}\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_workload::trace::tracefs::events;

    /// The only line that is printed of a trace, by the names of its columns.
    fn values_of(trace: &str) -> BTreeMap<String, String> {
        let mut events = events(trace, "memory");
        let printed = TOOL.render(&Source::default(), &mut events).unwrap();
        let text = String::from_utf8(printed).unwrap();
        let mut lines = text.lines().filter(|line| !line.is_empty());
        assert!(lines.next().unwrap().ends_with(" CPU)"));
        let words = |line: &str| line.split_whitespace().map(str::to_string).collect();
        let header: Vec<String> = words(lines.next().unwrap());
        let values: Vec<String> = words(lines.next().unwrap());
        assert_eq!(lines.next(), None);
        header.into_iter().zip(values).collect()
    }

    /// The reads a second that are printed where the last of two reads ends at this time.
    fn reads_a_second(end: &str) -> Vec<String> {
        let text = format!(
            "\
 a-1 [000] ..... 1.000000000: block_getrq: 8,0 R 0 + 8 [a]
 a-1 [000] ..... 1.100000000: block_rq_issue: 8,0 R 4096 () 0 + 8 none,0,0 [a]
 i-0 [000] d.h.. 1.500000000: block_rq_complete: 8,0 R () 0 + 8 none,0,0 [0]
 a-1 [000] ..... 1.600000000: block_getrq: 8,0 R 8 + 8 [a]
 a-1 [000] ..... 1.700000000: block_rq_issue: 8,0 R 4096 () 8 + 8 none,0,0 [a]
 i-0 [000] d.h.. {end}: block_rq_complete: 8,0 R () 8 + 8 none,0,0 [0]
"
        );
        let mut events = events(&text, "memory");
        let printed = TOOL.render(&Source::default(), &mut events).unwrap();
        let printed = String::from_utf8(printed).unwrap();
        let lines = printed.lines().filter(|line| line.starts_with("8,0"));
        lines
            .map(|line| line.split_whitespace().nth(1).unwrap().to_string())
            .collect()
    }

    #[test]
    fn only_a_trace_of_less_than_a_second_has_a_part_of_one() {
        assert_eq!(reads_a_second("1.800000000"), ["2.50"]);
        assert_eq!(reads_a_second("2.000001000"), ["1.00"]);
    }

    /// An `fsync` is a write without data, and the flush that it waits for.
    #[test]
    fn a_flush_counts_as_a_write_and_as_a_flush() {
        let text = "\
 f-1 [000] ..... 1.000000000: block_getrq: 8,0 FWS 0 + 0 [f]
 k-9 [000] ..... 1.100000000: block_rq_issue: 8,0 FF 0 () 0 + 0 none,0,0 [k]
 i-0 [000] d.h1. 1.400000000: block_rq_complete: 8,0 FF () 18446744073709551615 + 0 none,0,0 [0]
 i-0 [000] d.h2. 1.500000000: block_rq_complete: 8,0 WS () 0 + 0 be,0,4 [0]
 f-1 [000] ..... 2.000000000: block_plug: [f]
";
        let values = values_of(text);
        let value = |name: &str| values[name].as_str();
        assert_eq!((value("w/s"), value("wkB/s")), ("1.00", "0.00"));
        assert_eq!((value("w_await"), value("f/s")), ("500.00", "1.00"));
        assert_eq!((value("f_await"), value("%util")), ("300.00", "50.00"));
    }

    #[test]
    fn a_second_is_accounted_as_the_kernel_does() {
        let text = "\
 a-1 [003] ..... 1.000000000: block_getrq: 8,0 R 0 + 8 [a]
 a-1 [003] ..... 1.000000000: block_bio_backmerge: 8,0 R 8 + 8 [a]
 a-1 [003] ..... 1.100000000: block_rq_issue: 8,0 R 8192 () 0 + 16 none,0,0 [a]
 i-0 [003] d.h.. 1.500000000: block_rq_complete: 8,0 R () 0 + 16 none,0,0 [0]
 a-1 [003] ..... 2.000000000: block_plug: [a]
";
        let values = values_of(text);
        let value = |name: &str| values[name].as_str();
        assert_eq!(value("Device"), "8,0");
        assert_eq!(value("r/s"), "1.00");
        assert_eq!(value("rkB/s"), "8.00");
        assert_eq!(value("%rrqm"), "50.00");
        assert_eq!(value("r_await"), "500.00");
        assert_eq!(value("aqu-sz"), "0.50");
        assert_eq!(value("%util"), "50.00");
    }
}
