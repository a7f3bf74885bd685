//! What CPUs' time went to.
/// What all CPUs did in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSlice {
    /// When it ended, from the run's start on.
    pub end_ns: u64,
    /// One entry a CPU.
    pub cpus: Vec<CpuTimes>,
}

/// What a CPU's time went to, in nanoseconds, as `/proc/stat` divides it and
/// mpstat shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Programs, those of low priority and guests included.
    pub user_ns: u64,
    /// The kernel on their behalf, spinning on locks included.
    pub system_ns: u64,
    /// Hardware interrupts.
    pub irq_ns: u64,
    /// Softirqs.
    pub softirq_ns: u64,
    /// Nothing, while a process waits for I/O.
    pub iowait_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
    /// Nothing.
    pub idle_ns: u64,
}

impl CpuTimes {
    /// All of it.
    pub fn total_ns(&self) -> u64 {
        let CpuTimes {
            user_ns,
            system_ns,
            irq_ns,
            softirq_ns,
            iowait_ns,
            steal_ns,
            idle_ns,
        } = self;
        user_ns + system_ns + irq_ns + softirq_ns + iowait_ns + steal_ns + idle_ns
    }

    /// Adds another's times.
    pub fn add(&mut self, other: &CpuTimes) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.irq_ns += other.irq_ns;
        self.softirq_ns += other.softirq_ns;
        self.iowait_ns += other.iowait_ns;
        self.steal_ns += other.steal_ns;
        self.idle_ns += other.idle_ns;
    }
}
