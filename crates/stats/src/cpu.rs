//! The use of CPU time.

use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::fact::{Fact, Place, Unit, Value, ratio};
use crate::results::Results;

/// The use of all CPUs' time in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSlice {
    /// The end of the span, in nanoseconds from the run's start.
    pub end_ns: u64,
    /// One entry for each CPU.
    pub cpus: Vec<CpuTimes>,
}

macro_rules! cpu_times {
    ($($field:ident $key:literal $label:literal $which:literal,)+) => {
        /// The parts of a CPU's time in nanoseconds, as `/proc/stat` divides it and
        /// mpstat shows it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct CpuTimes {
            $(#[doc = concat!("Time ", $which)] pub $field: u64,)+
        }

        impl CpuTimes {
            /// Returns the sum of all parts.
            pub fn total_ns(&self) -> u64 {
                0 $(+ self.$field)+
            }

            /// Returns each part with its label in reports.
            pub fn parts(&self) -> [(&'static str, u64); [$($label),+].len()] {
                [$(($label, self.$field)),+]
            }

            /// Adds another's times.
            pub fn add(&mut self, other: &CpuTimes) {
                $(self.$field += other.$field;)+
            }

            /// Returns the increase since `before`; zero where a time ran backwards, as
            /// the kernel's counters may.
            pub fn since(&self, before: &CpuTimes) -> CpuTimes {
                CpuTimes {
                    $($field: self.$field.saturating_sub(before.$field),)+
                }
            }
        }

        /// Returns the facts on shares of all CPUs' time.
        pub(crate) fn facts() -> Vec<Fact> {
            vec![$(Fact {
                place: Place::Cpus,
                key: $key,
                label: $label,
                unit: Unit::Share,
                meaning: concat!("Share of the CPUs' time ", $which),
                value: Value::Run(|run| share(run, |times| times.$field)),
            }),+]
        }
    };
}

cpu_times! {
    user_ns "cpu_user_share" "applications"
        "in user mode, including programs of low priority and guests.",
    system_ns "cpu_system_share" "kernel"
        "in kernel mode for programs, including spinning on locks.",
    irq_ns "cpu_irq_share" "interrupts"
        "in handlers of hardware interrupts.",
    softirq_ns "cpu_softirq_share" "softirqs"
        "in softirqs.",
    iowait_ns "cpu_iowait_share" "idle, waiting for I/O"
        "without work while a process waited for I/O.",
    steal_ns "cpu_steal_share" "taken by the hypervisor"
        "that the hypervisor took for others.",
    idle_ns "cpu_idle_share" "idle"
        "without work.",
}

fn share(run: &Results, of: impl Fn(&CpuTimes) -> u64) -> Option<f64> {
    // The timeline includes ramps; the totals, if known, do not.
    let slices = run.cpu_timeline.iter().flat_map(|slice| &slice.cpus);
    let times: Vec<&CpuTimes> = match run.cpus.is_empty() {
        true => slices.collect(),
        false => run.cpus.iter().collect(),
    };
    let total_ns: u64 = times.iter().map(|times| times.total_ns()).sum();
    let part_ns: u64 = times.iter().map(|times| of(times)).sum();
    ratio(part_ns as f64, total_ns as f64)
}
