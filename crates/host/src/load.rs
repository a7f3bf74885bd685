//! What else the machine is doing, which would show in the figures.

use crate::system::{System, read};

/// The machine's load before a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Mean tasks running or waiting for I/O in the last minute.
    pub minute: f64,
    /// Tasks that could run just now, this program among them.
    pub runnable: u32,
}

impl Load {
    /// Reads `/proc/loadavg`: `0.20 0.18 0.12 1/80 11206`.
    pub fn parse(text: &str) -> Option<Load> {
        let mut words = text.split_whitespace();
        let minute = words.next()?.parse().ok()?;
        let (runnable, _) = words.nth(2)?.split_once('/')?;
        Some(Load {
            minute,
            runnable: runnable.parse().ok()?,
        })
    }

    /// The load now; `None` where the kernel does not tell.
    pub fn now(system: &System) -> Option<Load> {
        let text = read("see the machine's load", &system.proc("loadavg")).ok()?;
        Load::parse(&text)
    }

    /// A warning where others' work is likely to show: more than a task in
    /// ten CPUs' worth beside us, or half a CPU.
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
