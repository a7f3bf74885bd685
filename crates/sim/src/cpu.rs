//! The machine's CPUs: each does one thing at a time.

use blklab_blk::Nanos;

#[derive(Debug)]
pub(crate) struct Cpus {
    free_at: Vec<Nanos>,
}

impl Cpus {
    pub(crate) fn new(count: u32) -> Cpus {
        Cpus {
            free_at: vec![Nanos::ZERO; count as usize],
        }
    }

    /// Runs something for `cost` as soon as the CPU is free; when it is done.
    pub(crate) fn run(&mut self, cpu: usize, now: Nanos, cost: Nanos) -> Nanos {
        let end = self.free_at[cpu].max(now) + cost;
        self.free_at[cpu] = end;
        end
    }
}
