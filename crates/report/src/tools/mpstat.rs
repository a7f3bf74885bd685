//! mpstat of sysstat: the use of each CPU in each second.

use blklab_stats::{CpuWork, Timeline};

use super::{Tool, sysstat_banner};

const INTERVAL_NS: u64 = 1_000_000_000;

const COLUMNS: &str =
    "  CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle\n";

pub(super) static TOOL: Tool = Tool {
    name: "mpstat",
    help: "mpstat -P ALL 1 of sysstat: where each CPU's time went; idle with I/O counts as idle",
    render: |source, _| match source.timeline {
        Some(timeline) if timeline.tasks.is_empty() => {
            Err("mpstat shows what CPUs did, and this machine's CPUs cost nothing".to_string())
        }
        Some(timeline) => Ok(render(timeline).into_bytes()),
        None => Err(
            "mpstat shows what CPUs did, which a block trace does not tell; \
             `blklab run JOB --trace FILE --as mpstat` shows a simulated run's"
                .to_string(),
        ),
    },
};

/// A CPU's time in nanoseconds by kind of work: program, kernel, interrupts, soft
/// interrupts.
type Times = [u64; 4];

fn place(work: CpuWork) -> usize {
    match work {
        CpuWork::Program => 0,
        CpuWork::Kernel | CpuWork::Dispatch => 1,
        CpuWork::Interrupt => 2,
        CpuWork::SoftInterrupt => 3,
    }
}

fn render(timeline: &Timeline) -> String {
    let (start_ns, end_ns) = (timeline.start_ns, timeline.end_ns);
    let mut text = sysstat_banner(timeline.cpus);
    let mut all = vec![Times::default(); timeline.cpus as usize];
    let mut from_ns = start_ns;
    while from_ns < end_ns {
        let to_ns = (from_ns + INTERVAL_NS).min(end_ns);
        let times = times(timeline, (from_ns, to_ns));
        for (sum, times) in all.iter_mut().zip(&times) {
            sum.iter_mut().zip(times).for_each(|(sum, ns)| *sum += ns);
        }
        text.push_str(&table(&clock(to_ns - start_ns), &times, to_ns - from_ns));
        from_ns = to_ns;
    }
    text.push_str(&table("Average:", &all, end_ns.saturating_sub(start_ns)));
    text
}

/// Returns the use of each CPU in a span of time.
fn times(timeline: &Timeline, (from_ns, to_ns): (u64, u64)) -> Vec<Times> {
    let mut times = vec![Times::default(); timeline.cpus as usize];
    for task in &timeline.tasks {
        let ns = task
            .end_ns
            .min(to_ns)
            .saturating_sub(task.start_ns.max(from_ns));
        if let Some(times) = times.get_mut(task.cpu as usize) {
            times[place(task.work)] += ns;
        }
    }
    times
}

/// Returns the time of day, for a run that began at midnight.
fn clock(ns: u64) -> String {
    let s = ns.div_ceil(1_000_000_000);
    format!("{:02}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60)
}

fn table(when: &str, cpus: &[Times], span_ns: u64) -> String {
    let mut sum = Times::default();
    for times in cpus {
        sum.iter_mut().zip(times).for_each(|(sum, ns)| *sum += ns);
    }
    let mut text = format!("\n{when:<11}{COLUMNS}");
    text.push_str(&line(when, "all", &sum, span_ns * cpus.len() as u64));
    for (cpu, times) in cpus.iter().enumerate() {
        text.push_str(&line(when, &cpu.to_string(), times, span_ns));
    }
    text
}

fn line(when: &str, cpu: &str, times: &Times, span_ns: u64) -> String {
    let percent = |ns: u64| ns as f64 * 100.0 / span_ns.max(1) as f64;
    let [usr, sys, irq, soft] = times.map(percent);
    let idle = (100.0 - usr - sys - irq - soft).max(0.0);
    let columns = [usr, 0.0, sys, 0.0, irq, soft, 0.0, 0.0, 0.0, idle];
    let columns = columns.map(|percent| format!(" {percent:>7.2}"));
    format!("{when:<11} {cpu:>4}{}\n", columns.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_stats::CpuTask;

    #[test]
    fn a_task_counts_in_the_seconds_that_it_runs_in() {
        let task = |cpu, work, start_ns, end_ns| CpuTask {
            cpu,
            work,
            process: None,
            start_ns,
            end_ns,
            disk: 0,
            first_request: 0,
            requests: 0,
            lock_ns: 0,
        };
        let timeline = Timeline {
            end_ns: 2 * INTERVAL_NS,
            cpus: 2,
            tasks: vec![
                task(0, CpuWork::Program, 500_000_000, 1_250_000_000),
                task(1, CpuWork::Interrupt, 0, 100_000_000),
            ],
            ..Timeline::default()
        };
        let text = render(&timeline);
        let first = "00:00:01       0   50.00    0.00    0.00    0.00    0.00    0.00    0.00    \
                     0.00    0.00   50.00";
        let second = "00:00:02       0   25.00    0.00    0.00    0.00    0.00    0.00    0.00    \
                      0.00    0.00   75.00";
        let average = "Average:     all   18.75    0.00    0.00    0.00    2.50    0.00    0.00    \
                       0.00    0.00   78.75";
        for line in [first, second, average] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
