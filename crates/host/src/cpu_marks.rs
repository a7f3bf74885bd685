//! The CPUs' times in a recording: every second a mark for each CPU, from which `blklab trace`
//! makes what mpstat prints.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use blklab_workload::trace::tracefs::{CpuStat, Event};

use crate::cpu_load::cpu_times;
use crate::system::System;
use crate::tracefs::monotonic_ns;

/// mpstat's own interval in `mpstat -P ALL 1`.
const INTERVAL: Duration = Duration::from_secs(1);

/// The times of all CPUs at one moment of the trace clock.
#[derive(Debug)]
struct Sample {
    at_ns: u64,
    cpus: Vec<CpuStat>,
}

/// Takes samples for a recording.
#[derive(Debug)]
pub(crate) struct CpuSampler {
    stat: PathBuf,
    due: Instant,
    to: Sender<Sample>,
}

/// The samples that are not yet in the recording.
#[derive(Debug)]
pub(crate) struct CpuMarks {
    from: Receiver<Sample>,
    next: Option<Sample>,
}

/// Returns both ends; the first sample is due at once.
pub(crate) fn cpu_marks(system: &System) -> (CpuSampler, CpuMarks) {
    let (to, from) = channel();
    let sampler = CpuSampler {
        stat: system.proc("stat"),
        due: Instant::now(),
        to,
    };
    (sampler, CpuMarks { from, next: None })
}

impl CpuSampler {
    pub(crate) fn sample_if_due(&mut self) {
        if Instant::now() >= self.due {
            self.due += INTERVAL;
            self.sample();
        }
    }

    pub(crate) fn sample(&mut self) {
        // A recording is of use without them, too.
        if let Ok(cpus) = cpu_times(&self.stat) {
            let at_ns = monotonic_ns();
            let _ = self.to.send(Sample { at_ns, cpus });
        }
    }
}

impl CpuMarks {
    /// Passes the marks up to this time to `write`.
    pub(crate) fn until<E>(
        &mut self,
        at_ns: u64,
        mut write: impl FnMut(&Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(sample) = self.next.take().or_else(|| self.from.try_recv().ok()) {
            if sample.at_ns > at_ns {
                self.next = Some(sample);
                break;
            }
            let writer = ("blklab", std::process::id());
            for stat in &sample.cpus {
                write(&Event::mark(sample.at_ns, writer, &stat.to_string()))?;
            }
        }
        Ok(())
    }
}
