//! mpstat of sysstat: the use of each CPU in each second, from the marks of the CPUs' times.

use std::collections::BTreeMap;

use blklab_workload::trace::tracefs::{CpuStat, EventKind};

use super::{Events, Tool, sysstat_banner};

const COLUMNS: &str =
    "  CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle\n";

/// How much later than at a full second a sample may be taken without belonging to the next.
const LATE_NS: u64 = 200_000_000;

pub(super) static TOOL: Tool = Tool {
    name: "mpstat",
    help: "mpstat -P ALL 1 of sysstat: where each CPU's time went; of a simulated run, idle with \
           I/O counts as idle",
    render: |source, events| {
        let samples = samples(events)?;
        match samples.len() {
            0 if source.cpus.is_some() => {
                Err("mpstat shows what CPUs did, and this machine's CPUs cost nothing".to_string())
            }
            0 | 1 => Err(
                "mpstat shows what CPUs did, and the trace has not two marks of their times: \
                 `blklab record` and `blklab run --trace` write them, and \
                 `grep --line-buffered '^cpu' /proc/stat >trace_marker` adds one to a trace of the \
                 kernel"
                    .to_string(),
            ),
            _ => Ok(render(&samples).into_bytes()),
        }
    },
};

/// The times of all CPUs at one moment.
#[derive(Debug, Default)]
struct Sample {
    at_ns: u64,
    cpus: BTreeMap<u32, Times>,
}

/// A CPU's times in the columns of `/proc/stat`.
type Times = [u64; 10];

/// Collects the marks of the CPUs' times; with a second one of the same CPU the next sample
/// begins.
fn samples(events: Events<'_, '_>) -> Result<Vec<Sample>, String> {
    let mut samples: Vec<Sample> = Vec::new();
    for event in events {
        let event = event.map_err(|e| e.to_string())?;
        let EventKind::TracingMark { text } = event.kind else {
            continue;
        };
        let Some(stat) = CpuStat::of_mark(text) else {
            continue;
        };
        let is_in = |sample: &Sample| sample.cpus.contains_key(&stat.cpu);
        if samples.last().is_none_or(is_in) {
            samples.push(Sample {
                at_ns: event.at_ns,
                ..Sample::default()
            });
        }
        let last = samples.last_mut();
        last.map(|sample| sample.cpus.insert(stat.cpu, stat.ns));
    }
    Ok(samples)
}

fn render(samples: &[Sample]) -> String {
    let [first, .., last] = samples else {
        return String::new();
    };
    let cpus = samples.iter().map(|sample| sample.cpus.len()).max();
    let mut text = sysstat_banner(cpus.unwrap_or(0) as u32);
    for pair in samples.windows(2) {
        let when = clock(pair[1].at_ns.saturating_sub(first.at_ns));
        text.push_str(&table(&when, &pair[0], &pair[1]));
    }
    text.push_str(&table("Average:", first, last));
    text
}

/// Returns the time of day, for a recording that began at midnight.
fn clock(ns: u64) -> String {
    let s = ns.saturating_sub(LATE_NS).div_ceil(1_000_000_000);
    format!("{:02}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60)
}

/// Returns the use of each CPU between two samples; those of only one are left out.
fn table(when: &str, before: &Sample, after: &Sample) -> String {
    let mut lines = String::new();
    let mut all = Times::default();
    for (cpu, now) in &after.cpus {
        let Some(then) = before.cpus.get(cpu) else {
            continue;
        };
        let spent = since(now, then);
        all.iter_mut().zip(spent).for_each(|(sum, ns)| *sum += ns);
        lines.push_str(&line(when, &cpu.to_string(), &spent));
    }
    let all = line(when, "all", &all);
    format!("\n{when:<11}{COLUMNS}{all}{lines}")
}

/// The kernel's count of iowait may run backwards, which counts as zero.
fn since(now: &Times, then: &Times) -> Times {
    std::array::from_fn(|column| now[column].saturating_sub(then[column]))
}

fn line(when: &str, cpu: &str, spent: &Times) -> String {
    let [
        user,
        nice,
        system,
        idle,
        iowait,
        irq,
        soft,
        steal,
        guest,
        guest_nice,
    ] = *spent;
    let sum: u64 = spent[..8].iter().sum();
    // What guests ran is in the first two, too (`kernel/sched/cputime.c`).
    let (usr, nice) = (user.saturating_sub(guest), nice.saturating_sub(guest_nice));
    let columns = [
        usr, nice, system, iowait, irq, soft, steal, guest, guest_nice, idle,
    ];
    let percent = columns.map(|ns| format!(" {:>7.2}", ns as f64 * 100.0 / sum.max(1) as f64));
    format!("{when:<11} {cpu:>4}{}\n", percent.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Source;
    use blklab_workload::trace::tracefs::events;

    fn printed(trace: &str) -> Result<String, String> {
        let printed = TOOL.render(&Source::default(), &mut events(trace, "memory"));
        printed.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn a_second_is_what_lies_between_two_marks() {
        let text = printed(
            "\
 a-1 [000] ..... 7.000000: tracing_mark_write: cpu0 1000 0 500 9000 3 0 0 0 40 0
 a-1 [000] ..... 7.000100: tracing_mark_write: cpu1 0 0 0 0 0 0 0 0 0 0
 a-1 [001] ..... 7.500000: block_plug: [a]
 a-1 [000] ..... 8.050000: tracing_mark_write: cpu0 1030 0 510 9050 2 0 10 0 50 0
 a-1 [000] ..... 8.050100: tracing_mark_write: cpu1 0 0 0 100 0 0 0 0 0 0
",
        )
        .unwrap();
        let all = "00:00:01     all   10.00    0.00    5.00    0.00    0.00    5.00    0.00    \
                   5.00    0.00   75.00";
        let first = "00:00:01       0   20.00    0.00   10.00    0.00    0.00   10.00    0.00   \
                     10.00    0.00   50.00";
        let average = "Average:       1    0.00    0.00    0.00    0.00    0.00    0.00    0.00    \
                       0.00    0.00  100.00";
        for line in [all, first, average] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(text.starts_with("Linux ") && text.contains("(2 CPU)"));
    }

    #[test]
    fn one_mark_is_no_second() {
        let error = printed(" a-1 [000] ..... 7.0: tracing_mark_write: cpu0 1 2 3 4\n");
        assert!(error.unwrap_err().contains("blklab record"));
    }
}
