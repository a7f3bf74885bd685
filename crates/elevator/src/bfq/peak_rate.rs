//! How fast the drive is at its best: an estimate from what was dispatched in
//! intervals of about a second. Budgets and the time of weight raising follow
//! from it.

use blklab_blk::{RequestId, SchedCtx};

use super::Bfq;
use super::think_time::MIN_THINK_TIME_NS;
use super::weight_raising::REFERENCE_RATE;

/// Fraction bits of a rate in sectors a microsecond.
pub(super) const RATE_SHIFT: u32 = 16;
const MIN_SAMPLES: u32 = 32;
const MIN_INTERVAL_NS: u64 = 300_000_000;
const REFERENCE_INTERVAL_NS: u64 = 1_000_000_000;
/// The drive was without work for so long: what follows is another interval.
const IDLE_NS: u64 = 100_000_000;
/// No drive moves more than this, in sectors a microsecond.
const MAX_RATE: u64 = 20 << RATE_SHIFT;

/// The estimate and the present interval.
#[derive(Debug)]
pub(super) struct PeakRate {
    pub(super) peak: u64,
    samples: u32,
    sequential_samples: u32,
    sectors: u64,
    max_rq_sectors: u64,
    first_dispatch_ns: u64,
    last_dispatch_ns: u64,
    delta_from_first_ns: u64,
}

impl PeakRate {
    pub(super) fn new(nonrot: bool) -> PeakRate {
        PeakRate {
            peak: REFERENCE_RATE[nonrot as usize] * 2 / 3,
            samples: 0,
            sequential_samples: 0,
            sectors: 0,
            max_rq_sectors: 0,
            first_dispatch_ns: 0,
            last_dispatch_ns: 0,
            delta_from_first_ns: 0,
        }
    }

    /// Starts an interval with a request of so many sectors, or with the next.
    fn restart(&mut self, now_ns: u64, sectors: Option<u64>) {
        let Some(sectors) = sectors else {
            self.samples = 0;
            return;
        };
        self.last_dispatch_ns = now_ns;
        self.first_dispatch_ns = now_ns;
        self.samples = 1;
        self.sequential_samples = 0;
        self.sectors = sectors;
        self.max_rq_sectors = sectors;
    }

    /// What the interval tells, if it is long enough and the drive was not held
    /// up by seeks. Returns whether the estimate changed.
    fn update(&mut self, last_completion_ns: u64) -> bool {
        if self.samples < MIN_SAMPLES || self.delta_from_first_ns < MIN_INTERVAL_NS {
            return false;
        }
        // The last request may have been dispatched long before it was done.
        let to_completion = last_completion_ns.wrapping_sub(self.first_dispatch_ns);
        self.delta_from_first_ns = self.delta_from_first_ns.max(to_completion);
        let rate = (self.sectors << RATE_SHIFT) / (self.delta_from_first_ns / 1_000).max(1);
        let mostly_sequential = self.sequential_samples >= (3 * self.samples) >> 2;
        if (!mostly_sequential && rate <= self.peak) || rate > MAX_RATE {
            return false;
        }
        // The more sequential and the longer, the more it counts.
        let weight = (9 * self.sequential_samples / self.samples) as u64;
        let weight = (weight * self.delta_from_first_ns / REFERENCE_INTERVAL_NS).min(8);
        let divisor = 10 - weight;
        self.peak = (self.peak * (divisor - 1) / divisor + rate / divisor).max(1);
        true
    }
}

impl Bfq {
    /// Ends the interval; the next starts with a request of so many sectors.
    fn end_rate_interval(&mut self, sectors: Option<u64>) {
        if self.rate.update(self.last_completion_ns) && self.set.user_max_budget == 0 {
            self.max_budget = self.budget_of_peak_rate();
        }
        self.rate.restart(self.now_ns, sectors);
    }

    /// A request goes to the drive.
    pub(super) fn rate_on_dispatch(&mut self, ctx: &SchedCtx<'_>, id: RequestId) {
        let rq = &ctx.rqs[id];
        let (sector, sectors) = (rq.sector.0, rq.sectors as u64);
        let now_ns = self.now_ns;
        let since_last = now_ns.wrapping_sub(self.rate.last_dispatch_ns);
        if self.rate.samples == 0 {
            self.rate.restart(now_ns, Some(sectors));
        } else if since_last > IDLE_NS && self.in_driver == 0 {
            self.end_rate_interval(Some(sectors));
        } else {
            self.rate.samples += 1;
            let since_completion = now_ns.wrapping_sub(self.last_completion_ns);
            let busy = self.in_driver > 0 || since_completion < MIN_THINK_TIME_NS;
            if busy && !self.is_far(self.last_position, sector, sectors) {
                self.rate.sequential_samples += 1;
            }
            let rate = &mut self.rate;
            rate.sectors += sectors;
            rate.max_rq_sectors = match rate.samples % 32 {
                0 => sectors,
                _ => rate.max_rq_sectors.max(sectors),
            };
            rate.delta_from_first_ns = now_ns.wrapping_sub(rate.first_dispatch_ns);
            if rate.delta_from_first_ns >= REFERENCE_INTERVAL_NS {
                self.end_rate_interval(Some(sectors));
            }
        }
        self.last_position = sector + sectors;
        self.rate.last_dispatch_ns = now_ns;
    }

    /// A request is done. When the drive takes very long for little, the
    /// interval tells nothing of its peak.
    pub(super) fn rate_on_completion(&mut self) {
        let since_last = self.now_ns.wrapping_sub(self.last_completion_ns);
        let since_last_us = since_last / 1_000;
        if since_last_us > MIN_THINK_TIME_NS / 1_000
            && (self.rate.max_rq_sectors << RATE_SHIFT) / since_last_us < 1 << (RATE_SHIFT - 10)
        {
            self.end_rate_interval(None);
        }
        self.last_completion_ns = self.now_ns;
    }
}
