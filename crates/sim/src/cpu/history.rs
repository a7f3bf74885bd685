//! What CPUs did over time, in slices that grow longer with the run.

use blklab_blk::Nanos;
use blklab_stats::{CpuSlice, CpuTimes};

/// Slices kept at most; where a run needs more, each two become one.
const MAX_SLICES: usize = 128;

/// The first slices are about 0.1 ms long.
const FIRST_SHIFT: u32 = 17;

/// A CPU's time in slices of `1 << shift` nanoseconds. What is booked nowhere
/// was idle.
#[derive(Clone, Debug)]
pub(crate) struct CpuHistory {
    shift: u32,
    cpus: Vec<Vec<CpuTimes>>,
}

impl CpuHistory {
    pub(crate) fn new(cpus: usize) -> CpuHistory {
        CpuHistory {
            shift: FIRST_SHIFT,
            cpus: vec![Vec::new(); cpus],
        }
    }

    /// Books a span of a CPU's time to a part of it.
    #[inline]
    pub(crate) fn book(
        &mut self,
        cpu: usize,
        from: Nanos,
        to: Nanos,
        part: impl Fn(&mut CpuTimes) -> &mut u64,
    ) {
        let mut at = from.0;
        while at < to.0 {
            let slice = self.slice_of(at);
            let end = to.0.min(((slice as u64) + 1) << self.shift);
            let slices = &mut self.cpus[cpu];
            if slices.len() <= slice {
                slices.resize(slice + 1, CpuTimes::default());
            }
            *part(&mut slices[slice]) += end - at;
            at = end;
        }
    }

    /// The slice that a moment is in; makes slices longer where there would be
    /// too many.
    #[inline]
    fn slice_of(&mut self, at_ns: u64) -> usize {
        while at_ns >> self.shift >= MAX_SLICES as u64 {
            self.lengthen_slices();
        }
        (at_ns >> self.shift) as usize
    }

    /// Makes each two slices one.
    #[cold]
    fn lengthen_slices(&mut self) {
        self.shift += 1;
        for slices in &mut self.cpus {
            let halves = slices.chunks(2).map(|pair| {
                let mut sum = pair[0];
                pair[1..].iter().for_each(|second| sum.add(second));
                sum
            });
            *slices = halves.collect();
        }
    }

    /// The slices up to `now`; work that is booked beyond it is left out.
    pub(crate) fn slices(&self, now: Nanos) -> Vec<CpuSlice> {
        let width_ns = 1u64 << self.shift;
        let starts = (0..now.0.div_ceil(width_ns)).map(|slice| slice * width_ns);
        let slice = |start_ns: u64| {
            let span_ns = width_ns.min(now.0 - start_ns);
            let index = (start_ns >> self.shift) as usize;
            let cpu = |slices: &Vec<CpuTimes>| {
                let booked = slices.get(index).copied().unwrap_or_default();
                with_idle(booked, span_ns)
            };
            CpuSlice {
                end_ns: start_ns + span_ns,
                cpus: self.cpus.iter().map(cpu).collect(),
            }
        };
        starts.map(slice).collect()
    }
}

/// Counts the rest of a slice as idle. What was booked beyond its end, at the end of
/// the run, is taken from the largest part.
fn with_idle(mut times: CpuTimes, span_ns: u64) -> CpuTimes {
    let over_ns = times.total_ns().saturating_sub(span_ns);
    let parts = [
        &mut times.user_ns,
        &mut times.system_ns,
        &mut times.irq_ns,
        &mut times.softirq_ns,
        &mut times.iowait_ns,
    ];
    if let Some(most) = parts.into_iter().max_by_key(|ns| **ns) {
        *most = most.saturating_sub(over_ns);
    }
    times.idle_ns = span_ns.saturating_sub(times.total_ns());
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_hold_what_was_booked_and_the_rest_is_idle() {
        let mut history = CpuHistory::new(2);
        let width = 1u64 << FIRST_SHIFT;
        history.book(0, Nanos(width / 2), Nanos(width * 2), |t| &mut t.user_ns);
        history.book(1, Nanos(0), Nanos(10), |t| &mut t.irq_ns);
        let slices = history.slices(Nanos(width * 2 + 5));
        let user: Vec<u64> = slices.iter().map(|s| s.cpus[0].user_ns).collect();
        assert_eq!(user, [width / 2, width, 0]);
        assert_eq!(slices[0].cpus[1].irq_ns, 10);
        assert_eq!(slices[2].end_ns, width * 2 + 5);
        let ends = slices.iter().map(|s| s.end_ns);
        let starts = std::iter::once(0).chain(slices.iter().map(|s| s.end_ns));
        for ((slice, end), start) in slices.iter().zip(ends).zip(starts) {
            assert!(slice.cpus.iter().all(|cpu| cpu.total_ns() == end - start));
        }
    }

    #[test]
    fn a_long_run_has_as_many_slices_as_a_short_one() {
        let mut history = CpuHistory::new(1);
        let second = 1_000_000_000;
        for ms in 0..20_000 {
            let at = ms * 1_000_000;
            history.book(0, Nanos(at), Nanos(at + 250_000), |t| &mut t.system_ns);
        }
        let slices = history.slices(Nanos(20 * second));
        assert!((MAX_SLICES / 2..=MAX_SLICES).contains(&slices.len()));
        let system: u64 = slices.iter().map(|s| s.cpus[0].system_ns).sum();
        assert_eq!(system, 5 * second);
    }
}
