//! CPU usage over time from `/proc/stat`, and the load from `/proc/loadavg`
//! (Documentation/filesystems/proc.rst, 1.7 and 1.8).

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use blklab_stats::{CpuSlice, CpuTimes};
use blklab_workload::trace::tracefs::CpuStat;

use crate::error::HostError;
use crate::system::{System, read};

/// Interval between two readings. The kernel counts in ticks of 10 ms, so shorter intervals would
/// be mostly rounding.
const PERIOD: Duration = Duration::from_millis(500);

/// Parses `/proc/stat`: each CPU's number and its times since boot. `ticks_a_second` is `USER_HZ`.
pub fn parse(text: &str, ticks_a_second: u64) -> Option<Vec<(u32, CpuTimes)>> {
    let stats = cpu_stats(text, ticks_a_second)?.into_iter();
    let times = stats.map(|stat| {
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = stat.ns;
        let times = CpuTimes {
            user_ns: user.checked_add(nice)?,
            system_ns: system,
            irq_ns: irq,
            softirq_ns: softirq,
            iowait_ns: iowait,
            steal_ns: steal,
            idle_ns: idle,
        };
        Some((stat.cpu, times))
    });
    times.collect()
}

/// Parses the lines of `/proc/stat` that are about one CPU each.
fn cpu_stats(text: &str, ticks_a_second: u64) -> Option<Vec<CpuStat>> {
    let tick_ns = 1_000_000_000u64.checked_div(ticks_a_second)?;
    let lines = text.lines().filter(|line| line.starts_with("cpu"));
    // The line for all CPUs together has a blank there.
    let lines = lines.filter(|line| !line.starts_with("cpu "));
    let stats: Option<Vec<CpuStat>> = lines.map(|line| CpuStat::of_line(line, tick_ns)).collect();
    stats.filter(|stats| !stats.is_empty())
}

/// The times of all CPUs, by `/proc/stat` at `path`.
pub(crate) fn cpu_times(path: &Path) -> Result<Vec<CpuStat>, HostError> {
    let ticks = rustix::param::clock_ticks_per_second();
    parsed(path, |text| cpu_stats(text, ticks))
}

/// Times between two readings. iowait may decrease in the kernel, which counts as zero. CPUs that
/// are in only one reading are left out.
fn between(before: &[(u32, CpuTimes)], after: &[(u32, CpuTimes)]) -> Vec<CpuTimes> {
    let pairs = after.iter().filter_map(|(number, now)| {
        let (_, then) = before.iter().find(|(n, _)| n == number)?;
        Some((then, now))
    });
    pairs.map(|(then, now)| now.since(then)).collect()
}

/// A thread that reads the CPUs' times at intervals.
#[derive(Debug)]
pub struct CpuWatch {
    stop: Sender<()>,
    thread: JoinHandle<Vec<CpuSlice>>,
}

impl CpuWatch {
    /// Starts reading `path`, which is `/proc/stat`.
    pub fn start(path: &Path) -> Result<CpuWatch, HostError> {
        let ticks = rustix::param::clock_ticks_per_second();
        let first = look(path, ticks)?;
        let (stop, stopped) = channel::<()>();
        let path: PathBuf = path.to_path_buf();
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let mut slices = Vec::new();
            let mut before = first;
            loop {
                let woken = stopped.recv_timeout(PERIOD);
                if let Ok(now) = look(&path, ticks) {
                    slices.push(CpuSlice {
                        end_ns: u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
                        cpus: between(&before, &now),
                    });
                    before = now;
                }
                if woken != Err(RecvTimeoutError::Timeout) {
                    return slices;
                }
            }
        });
        Ok(CpuWatch { stop, thread })
    }

    /// Takes a last reading and returns all of them.
    pub fn finish(self) -> Vec<CpuSlice> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

fn look(path: &Path, ticks: u64) -> Result<Vec<(u32, CpuTimes)>, HostError> {
    parsed(path, |text| parse(text, ticks))
}

/// Reads and parses `/proc/stat` at `path`.
fn parsed<T>(path: &Path, parse: impl Fn(&str) -> Option<T>) -> Result<T, HostError> {
    let text = read("see what the CPUs do", path)?;
    parse(&text).ok_or_else(|| HostError::Format {
        path: path.to_path_buf(),
        message: "no lines `cpuN user nice system idle ...` with their numbers".to_string(),
    })
}

/// The sum over time for each CPU.
pub fn totals(slices: &[CpuSlice]) -> Vec<CpuTimes> {
    let count = slices
        .iter()
        .map(|slice| slice.cpus.len())
        .max()
        .unwrap_or(0);
    let mut sums = vec![CpuTimes::default(); count];
    for slice in slices {
        let pairs = sums.iter_mut().zip(&slice.cpus);
        pairs.for_each(|(sum, times)| sum.add(times));
    }
    sums
}

/// The load of the machine before a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Mean number of tasks running or waiting for I/O in the last minute.
    pub minute: f64,
    /// Number of runnable tasks, including this program.
    pub runnable: u32,
}

impl Load {
    /// Parses `/proc/loadavg`: `0.20 0.18 0.12 1/80 11206`.
    pub fn parse(text: &str) -> Option<Load> {
        let mut words = text.split_whitespace();
        let minute = words.next()?.parse().ok()?;
        let (runnable, _) = words.nth(2)?.split_once('/')?;
        Some(Load {
            minute,
            runnable: runnable.parse().ok()?,
        })
    }

    /// The current load; `None` if the kernel does not show it.
    pub fn now(system: &System) -> Option<Load> {
        let text = read("see the machine's load", &system.proc("loadavg")).ok()?;
        Load::parse(&text)
    }

    /// A warning if other work is likely to influence the results: a load above a tenth of the
    /// CPUs, or above half a CPU.
    pub fn warning(&self, cpus: usize) -> Option<String> {
        let limit = (cpus as f64 / 10.0).max(0.5);
        (self.minute > limit).then(|| {
            format!(
                "the machine was busy with other work when the run began (load {:.2} on {cpus} \
                 CPUs); the figures may show it",
                self.minute
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "cpu  30 3 12 100 5 1 2 4 0 0\ncpu0 10 1 4 50 2 1 1 3 0 0\n\
        cpu2 20 2 8 50 3 0 1 1\nintr 5 0\nctxt 7\n";

    #[test]
    fn columns_are_the_kernels() {
        let cpus = parse(TEXT, 100).unwrap();
        assert_eq!(cpus.len(), 2);
        let (number, times) = cpus[0];
        assert_eq!(number, 0);
        let ms = |n: u64| n * 10_000_000;
        assert_eq!(
            times,
            CpuTimes {
                user_ns: ms(11),
                system_ns: ms(4),
                irq_ns: ms(1),
                softirq_ns: ms(1),
                iowait_ns: ms(2),
                steal_ns: ms(3),
                idle_ns: ms(50),
            }
        );
        assert_eq!(cpus[1].0, 2);
    }

    #[test]
    fn old_kernels_and_nonsense() {
        let old = parse("cpu0 1 2 3 4\n", 100).unwrap();
        assert_eq!(old[0].1.steal_ns, 0);
        for wrong in [
            "",
            "cpu 1 2 3",
            "cpu0 1 x",
            "cpux 1",
            "cpu0 18446744073709551615",
        ] {
            assert_eq!(parse(wrong, 100), None, "{wrong}");
        }
        assert_eq!(parse(TEXT, 0), None);
    }

    #[test]
    fn differences_never_run_backwards() {
        let before = parse("cpu0 10 0 0 0 9\ncpu1 1 0 0 0\n", 100).unwrap();
        let after = parse("cpu0 15 0 0 0 8\ncpu3 1 0 0 0\n", 100).unwrap();
        let went = between(&before, &after);
        assert_eq!(went.len(), 1);
        assert_eq!((went[0].user_ns, went[0].iowait_ns), (50_000_000, 0));
    }

    #[test]
    fn this_machines_cpus_spend_as_much_time_as_passes() {
        let watch = CpuWatch::start(Path::new("/proc/stat")).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        let slices = watch.finish();
        assert!(!slices.is_empty() && !slices[0].cpus.is_empty());
        assert_eq!(totals(&slices).len(), slices[0].cpus.len());
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "(cpu[0-9 ]{0,30}\n?|.{0,20}){0,5}") {
            let _ = parse(&text, 100);
        }
    }

    #[test]
    fn loads_read_as_the_kernel_writes_them() {
        let load = Load::parse("1.20 0.18 0.12 3/80 11206\n").unwrap();
        assert_eq!((load.minute, load.runnable), (1.2, 3));
        for wrong in ["", "x", "1.0 1.0 1.0", "1.0 1.0 1.0 3 5"] {
            assert_eq!(Load::parse(wrong), None);
        }
    }

    #[test]
    fn only_a_busy_machine_is_warned_of() {
        let load = |minute| Load {
            minute,
            runnable: 1,
        };
        assert!(load(0.4).warning(2).is_none());
        assert!(load(1.0).warning(2).unwrap().contains("1.00"));
        assert!(load(1.0).warning(64).is_none());
    }
}
