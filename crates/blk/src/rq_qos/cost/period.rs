//! The drive's virtual time and its periods. At the end of each period the rate of virtual time and
//! the weights in use are adjusted.

use alloc::vec::Vec;

use super::params::DriveKind;
use super::{
    CostQos, IoCost, Now, VTIME_PER_USEC, WEIGHT_ONE, abs_cost_of, ahead, div_up, mul_div_up,
};
use crate::rq_qos::stat::wheel_timer;
use crate::units::{JIFFY_NS, Nanos};

/// A group's time should be half a period behind the drive's, which is the budget that it can spend
/// at once. Below a fifth of a period a lender takes its weight back; below a tenth a group lends
/// nothing.
const MARGIN_MIN_PERCENT: u64 = 10;
const MARGIN_LOW_PERCENT: u64 = 20;
pub(super) const MARGIN_TARGET_PERCENT: u64 = 50;
/// Timers may run this much of a period late, in percent.
const SLACK_PERCENT: u64 = 1;
/// Bounds of the period's length, in microseconds.
const PERIOD_US: [u64; 2] = [1_000, 1_000_000];
/// The drive is saturated if requests wait for tags for more than this percentage of a period.
const WAIT_BUSY_PERCENT: u64 = 5;
/// The drive is not saturated if all measures are below this percentage of their limits.
const UNBUSY_PERCENT: u64 = 75;
/// A rate out of bounds returns by this percentage in each period.
const CLAMP_PERCENT: u64 = 4;
/// I/Os issued more than this many periods ago are no longer waited for.
const LAGGING_PERIODS: u64 = 10;
/// Debts are halved each 100 ms if the drive's usage is below this percentage.
const FORGIVE_US: u64 = 100_000;
const FORGIVE_USAGE_PERCENT: u64 = 50;
/// The kind of drive is changed after this time at a rate that is too fast or too slow.
const KIND_CYCLE_NS: u64 = 10_000_000_000;

/// The change of the rate, in percent, after this many saturated or unsaturated periods in a row.
fn rate_step_percent(periods: u32) -> u64 {
    match periods {
        0..=3 => 0,
        4..=19 => 1,
        20..=35 => 2,
        36..=43 => 4,
        44..=51 => 8,
        _ => 16,
    }
}

/// Result of a period's end (`iocost_ioc_vrate_adj`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateChange {
    /// Rate of virtual time, in 2^-37 s per microsecond.
    pub rate: u64,
    /// Above 0: number of saturated periods in a row; below 0: number of periods in which the drive
    /// could do more.
    pub busy_level: i32,
    /// Reads and writes that missed their targets, in parts per million.
    pub missed_ppm: [u32; 2],
    /// Time spent waiting for tags, in percent of the period.
    pub wait_percent: u64,
    /// Groups with I/Os of earlier periods still in the drive.
    pub lagging: u32,
    /// Groups that had too little budget.
    pub shortages: u32,
}

/// Counts of requests that met and that missed their target.
#[derive(Clone, Copy, Debug, Default)]
struct TargetCounts {
    met: u64,
    missed: u64,
}

impl TargetCounts {
    fn missed_ppm(&self) -> u32 {
        match self.met + self.missed {
            0 => 0,
            all => mul_div_up(self.missed, 1_000_000, all) as u32,
        }
    }
}

/// The current period, and the virtual time in it.
#[derive(Debug)]
pub(super) struct Period {
    length_us: u64,
    /// Bounds of the rate.
    rates: [u64; 2],
    /// The base rate, and the rate that also makes up for lost virtual time.
    base_rate: u64,
    rate: u64,
    /// Virtual time that is still to be made up for: negative while it has been lost.
    error: i64,
    began_at_us: u64,
    began_at_vtime: u64,
    number: u64,
    busy_level: i32,
    timer: Option<Nanos>,
    requests: [TargetCounts; 2],
    tag_wait_ns: u64,
    /// State of debt forgiveness: start of the interval, remainder of the previous one, and usage
    /// in it.
    forgiving_since_us: u64,
    forgiving_left_us: u64,
    forgiving_usage_us: u64,
    /// Since when the rate has been out of range for this kind of drive.
    too_fast_since_ns: Option<u64>,
    too_slow_since_ns: Option<u64>,
    last_change: Option<RateChange>,
    /// The slowest and the fastest rate so far.
    extremes: [u64; 2],
}

impl Period {
    pub(super) fn new(now: Nanos) -> Period {
        Period {
            length_us: PERIOD_US[1],
            rates: [VTIME_PER_USEC; 2],
            base_rate: VTIME_PER_USEC,
            rate: VTIME_PER_USEC,
            error: 0,
            began_at_us: now.0 / 1000,
            began_at_vtime: 0,
            number: 0,
            busy_level: 0,
            timer: None,
            requests: [TargetCounts::default(); 2],
            tag_wait_ns: 0,
            forgiving_since_us: 0,
            forgiving_left_us: 0,
            forgiving_usage_us: 0,
            too_fast_since_ns: None,
            too_slow_since_ns: None,
            last_change: None,
            extremes: [VTIME_PER_USEC; 2],
        }
    }

    /// Sets the length of a period: twice the larger target, or more if only a lower percentage
    /// must meet it (`ioc_refresh_period_us`).
    pub(super) fn set_targets(&mut self, qos: &CostQos) {
        let larger = (qos.latency_us[1] > qos.latency_us[0]) as usize;
        let times = match u64::from(qos.within_ppm[larger]) {
            0 => 2,
            ppm => ((1_000_000 - ppm.min(1_000_000)) / 50_000).max(2),
        };
        let length_us = times * u64::from(qos.latency_us[larger]);
        self.length_us = length_us.clamp(PERIOD_US[0], PERIOD_US[1]);
        self.rates = qos
            .rate_ppm
            .map(|ppm| mul_div_up(ppm.into(), VTIME_PER_USEC, 1_000_000));
    }

    pub(super) fn reset_counters(&mut self) {
        self.extremes = [self.base_rate; 2];
    }

    pub(super) fn vtime_at(&self, now_us: u64) -> u64 {
        let passed_us = now_us.wrapping_sub(self.began_at_us);
        let passed = passed_us.wrapping_mul(self.rate);
        self.began_at_vtime.wrapping_add(passed)
    }

    pub(super) fn began_at_vtime(&self) -> u64 {
        self.began_at_vtime
    }

    /// Virtual time of a whole period.
    pub(super) fn vtime(&self) -> u64 {
        self.length_us * self.base_rate
    }

    fn margin(&self, percent: u64) -> u64 {
        self.length_us * percent / 100 * self.base_rate
    }

    pub(super) fn margin_min(&self) -> u64 {
        self.margin(MARGIN_MIN_PERCENT)
    }

    pub(super) fn margin_low(&self) -> i64 {
        self.margin(MARGIN_LOW_PERCENT) as i64
    }

    pub(super) fn margin_target(&self) -> u64 {
        self.margin(MARGIN_TARGET_PERCENT)
    }

    pub(super) fn slack_ns(&self) -> u64 {
        self.length_us * 1000 * SLACK_PERCENT / 100
    }

    pub(super) fn base_rate(&self) -> u64 {
        self.base_rate
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Records that a group with this share lost `excess` of its budget.
    pub(super) fn add_lost_vtime(&mut self, excess: u64, share: u32) {
        let lost = u128::from(excess) * u128::from(share) / u128::from(WEIGHT_ONE);
        self.error = self.error.saturating_sub_unsigned(lost as u64);
    }

    /// Starts the period's timer unless it is running.
    pub(super) fn run(&mut self, now: Now) {
        if self.timer.is_none() {
            self.forgiving_since_us = now.us;
            self.forgiving_left_us = 0;
            self.start(now);
        }
    }

    fn start(&mut self, now: Now) {
        self.began_at_us = now.us;
        self.began_at_vtime = now.vtime;
        let ticks = (self.length_us * 1000).div_ceil(JIFFY_NS);
        self.timer = Some(wheel_timer(Nanos(now.ns), ticks as i64));
    }

    pub(super) fn next_timer(&self) -> Nanos {
        self.timer.unwrap_or(Nanos::MAX)
    }

    /// Counts a completed request.
    pub(super) fn count(&mut self, direction: usize, met: bool, waited_ns: u64) {
        let requests = &mut self.requests[direction];
        match met {
            true => requests.met += 1,
            false => requests.missed += 1,
        }
        self.tag_wait_ns += waited_ns;
    }

    /// Updates `busy_level` (`ioc_timer_fn`): up if the drive was saturated, down if it could do
    /// more.
    fn update_busy_level(&mut self, qos: &CostQos, change: &RateChange) {
        let may_miss = qos.within_ppm.map(|ppm| 1_000_000 - ppm.min(1_000_000));
        let within = |percent: u64| {
            let misses = change.missed_ppm.iter().zip(may_miss);
            let mut misses = misses.map(|(missed, may)| (u64::from(*missed), u64::from(may)));
            change.wait_percent <= WAIT_BUSY_PERCENT * percent / 100
                && misses.all(|(missed, may)| missed <= may * percent / 100)
        };
        self.busy_level = match () {
            () if !within(100) => self.busy_level.max(0) + 1,
            // No group wants more, so it is unknown what the drive could do.
            () if !within(UNBUSY_PERCENT) || change.shortages == 0 => 0,
            // A drive with I/Os of earlier periods keeps its level until they end.
            () => self.busy_level.min(0) - (change.lagging == 0) as i32,
        }
        .clamp(-1000, 1000);
    }

    /// Changes the base rate by how long the drive has been saturated or not
    /// (`ioc_adjust_base_vrate`).
    fn adjust_rate(&mut self, busy_before: i32, mut change: RateChange) {
        change.busy_level = self.busy_level;
        change.rate = self.base_rate;
        if self.busy_level == 0 || self.busy_level < 0 && change.lagging > 0 {
            if self.busy_level != busy_before || change.lagging > 0 {
                self.last_change = Some(change);
            }
            return;
        }
        let [min, max] = self.rates;
        let rate = self.base_rate;
        self.base_rate = match () {
            () if rate < min => (rate * (100 + CLAMP_PERCENT) / 100).min(min),
            () if rate > max => (rate * (100 - CLAMP_PERCENT) / 100).max(max),
            () => {
                let step = rate_step_percent(self.busy_level.unsigned_abs());
                let percent = match self.busy_level > 0 {
                    true => 100 - step,
                    false => 100 + step,
                };
                div_up(rate * percent, 100).clamp(min, max)
            }
        };
        change.rate = self.base_rate;
        self.last_change = Some(change);
        self.extremes[0] = self.extremes[0].min(self.base_rate);
        self.extremes[1] = self.extremes[1].max(self.base_rate);
    }

    /// Makes up for lost budget by a faster rate until the end of this period, limited to half and
    /// twice the base rate (`ioc_refresh_vrate`).
    fn refresh_rate(&mut self, now: Now) {
        let ends_us = self.began_at_us + self.length_us;
        let vtime = self.vtime() as i64;
        if let Some(left_us) = ends_us.checked_sub(now.us).filter(|left| *left > 0) {
            let base = self.base_rate as i64;
            let by = (-(self.error / left_us as i64)).clamp(-(base >> 1), base);
            self.error += by * left_us as i64;
            self.rate = (base + by) as u64;
        }
        self.error = self.error.clamp(-vtime, vtime);
    }

    /// Returns the number of halvings if debts are forgiven now (`ioc_forgive_debts`).
    fn debt_halvings(&mut self, usage_us: u64, debtors: usize, now: Now) -> Option<u64> {
        if debtors == 0 {
            self.forgiving_since_us = now.us;
            self.forgiving_left_us = 0;
            self.forgiving_usage_us = 0;
            return None;
        }
        let usage_us = match self.busy_level > 0 {
            true => usage_us.max(self.length_us),
            false => usage_us,
        };
        self.forgiving_usage_us += usage_us;
        let passed_us = now.us.saturating_sub(self.forgiving_since_us);
        if passed_us < FORGIVE_US {
            return None;
        }
        let usage_percent = 100 * self.forgiving_usage_us / passed_us;
        self.forgiving_since_us = now.us;
        self.forgiving_usage_us = 0;
        if usage_percent > FORGIVE_USAGE_PERCENT {
            self.forgiving_left_us = 0;
            return None;
        }
        let due_us = passed_us + self.forgiving_left_us;
        self.forgiving_left_us = due_us % FORGIVE_US;
        Some(due_us / FORGIVE_US)
    }
}

/// Result of the scan of active groups.
#[derive(Default)]
struct ActiveGroups {
    lenders: Vec<usize>,
    lagging: u32,
    shortages: u32,
    usage_us: u64,
}

impl IoCost {
    /// The result of the last period that changed anything.
    pub fn last_change(&self) -> Option<RateChange> {
        self.period.last_change
    }

    /// The rate of virtual time in percent of the clock's: current, slowest and fastest so far
    /// (`cost.vrate`).
    pub fn rates_percent(&self) -> [f64; 3] {
        let percent = |rate: u64| rate as f64 * 100.0 / VTIME_PER_USEC as f64;
        let [slowest, fastest] = self.period.extremes.map(percent);
        [percent(self.period.base_rate), slowest, fastest]
    }

    /// Ends a period (`ioc_timer_fn`).
    pub(super) fn end_period(&mut self, now: Nanos, woken: &mut Vec<u64>) {
        let requests = core::mem::take(&mut self.period.requests);
        let waited_ns = core::mem::take(&mut self.period.tag_wait_ns);
        let now = self.now(now);
        self.period.timer = None;
        let debtors = self.check_groups(now, woken);
        self.commit_weights();
        let found = self.scan_active(now);
        if !found.lenders.is_empty() && found.shortages > 0 {
            self.transfer_surpluses(&found.lenders, now);
        }
        self.commit_weights();
        let change = RateChange {
            missed_ppm: requests.map(|met| met.missed_ppm()),
            wait_percent: waited_ns * 100 / (self.period.length_us * 1000),
            lagging: found.lagging,
            shortages: found.shortages,
            ..RateChange::default()
        };
        let busy_before = self.period.busy_level;
        self.period.update_busy_level(&self.qos, &change);
        self.period.adjust_rate(busy_before, change);
        self.choose_kind(now);
        if let Some(halvings) = self.period.debt_halvings(found.usage_us, debtors, now) {
            self.forgive(halvings, now, woken);
        }
        self.period.number += 1;
        if self.active.is_empty() {
            self.period.busy_level = 0;
            self.period.error = 0;
        } else {
            self.period.start(now);
        }
        self.period.refresh_rate(now);
    }

    /// Releases bios of waiting groups, and deactivates groups that were idle for a whole period.
    /// Returns the number of groups in debt (`ioc_check_iocgs`).
    fn check_groups(&mut self, now: Now, woken: &mut Vec<u64>) -> usize {
        let mut debtors = 0;
        for at in self.active.clone().into_iter().rev() {
            let current = self.period.number;
            let this = &mut self.groups[at];
            let owes = |this: &super::Group| this.abs_debt > 0 || this.delay_us > 0;
            let is_idle = this.active_period != current && this.done_vtime == this.vtime;
            let waits = this.is_waited_for() || owes(this);
            if !waits && !is_idle {
                continue;
            }
            flush(&mut this.wait_since_us, &mut this.stat.wait_us, now.us);
            flush(&mut this.debt_since_us, &mut this.stat.debt_us, now.us);
            flush(&mut this.delay_since_us, &mut this.stat.delay_us, now.us);
            if waits {
                self.kick(at, true, now, woken);
                debtors += owes(&self.groups[at]) as usize;
            } else {
                let vtime = self.groups[at].vtime;
                let excess = ahead(now.vtime, vtime) - self.period.margin_target() as i64;
                if excess > 0 {
                    let (_, share) = self.shares(at);
                    self.period.add_lost_vtime(excess as u64, share);
                }
                self.propagate(at, 0, 0, None);
                self.flush_usage(at);
                self.groups[at].is_active = false;
                self.active.retain(|&active| active != at);
            }
        }
        debtors
    }

    /// Adds a group's usage since the last call to its statistics.
    fn flush_usage(&mut self, at: usize) {
        let this = &mut self.groups[at];
        let used = this.abs_usage - this.flushed_usage;
        this.flushed_usage = this.abs_usage;
        this.usage_in_period_us = used / self.period.base_rate.max(1);
        this.stat.usage_us += this.usage_in_period_us;
    }

    /// Finds the groups that want more and those that can lend.
    fn scan_active(&mut self, now: Now) -> ActiveGroups {
        let mut found = ActiveGroups::default();
        for at in 0..self.active.len() {
            self.flush_usage(self.active[at]);
        }
        let period_vtime = now.vtime.wrapping_sub(self.period.began_at_vtime);
        for at in self.active.clone().into_iter().rev() {
            let (share_active, share_inuse) = self.shares(at);
            let this = &self.groups[at];
            found.lagging += self.is_lagging(at, period_vtime, now) as u32;
            found.usage_us += this.usage_in_period_us;
            let low = self.period.margin_low();
            let has_left = !this.is_waited_for() && ahead(now.vtime, this.vtime) > low;
            if share_inuse >= share_active && !has_left {
                found.shortages += 1;
                continue;
            }
            let usage = self.usage_share(at, share_inuse, now);
            let most = self.largest_share(at);
            let needed = self.share_after_donation(at, (share_inuse, most), usage, now);
            let this = &mut self.groups[at];
            if needed < most && share_active >= 2 {
                this.share_donating = share_active;
                this.share_after_donation = needed;
                found.lenders.push(at);
            } else if this.abs_debt == 0 {
                let active = this.active;
                self.propagate(at, active, active, Some(now));
                found.shortages += 1;
            }
        }
        found.lenders.reverse();
        found
    }

    /// Whether I/Os of earlier periods are still in the drive.
    fn is_lagging(&self, at: usize, period_vtime: u64, now: Now) -> bool {
        let this = &self.groups[at];
        let has_target = self.qos.within_ppm != [0; 2];
        let long_ago = now.vtime.wrapping_sub(LAGGING_PERIODS * period_vtime);
        has_target
            && this.delay_since_us.is_none()
            && ahead(this.vtime, this.done_vtime) > 0
            && ahead(this.vtime, long_ago) > 0
            && ahead(this.done_vtime, now.vtime.wrapping_sub(period_vtime)) < 0
    }

    /// The share of the drive that a group used in this period, including I/O in flight.
    fn usage_share(&self, at: usize, share_inuse: u32, now: Now) -> u32 {
        let this = &self.groups[at];
        let in_flight = this.vtime.wrapping_sub(this.done_vtime);
        let in_flight_us = match in_flight {
            0 => 0,
            vtime => div_up(abs_cost_of(vtime, share_inuse), self.period.base_rate),
        };
        let usage_us = this.usage_in_period_us.max(in_flight_us);
        let since_us = this.activated_at_us.max(self.period.began_at_us);
        let passed_us = now.us.saturating_sub(since_us).max(1);
        let usage = mul_div_up(usage_us, WEIGHT_ONE.into(), passed_us);
        usage.clamp(1, WEIGHT_ONE.into()) as u32
    }

    /// Halves debts and delays `halvings` times.
    pub(super) fn forgive(&mut self, halvings: u64, now: Now, woken: &mut Vec<u64>) {
        let shift = halvings.min(63);
        for at in self.active.clone().into_iter().rev() {
            let this = &mut self.groups[at];
            if this.abs_debt == 0 && this.delay_us == 0 {
                continue;
            }
            if this.abs_debt > 0 {
                this.abs_debt = (this.abs_debt >> shift).max(1);
            }
            if this.delay_us > 0 {
                this.delay_us = (this.delay_us >> shift).max(1);
            }
            self.kick(at, true, now, woken);
        }
    }

    /// Changes the kind of drive (`ioc_autop_idx`): an SSD whose rate stays five times as fast as
    /// assumed becomes a fast one, and a fast one at a tenth becomes an ordinary one. Parameters
    /// from the user are never replaced.
    fn choose_kind(&mut self, now: Now) {
        let is_plain = !self.rotational && self.queue_depth > 1;
        if !is_plain || self.qos.is_users || self.model.is_users {
            return;
        }
        let percent = self.period.base_rate * 100 / VTIME_PER_USEC;
        let (too_fast, too_slow) = match self.kind {
            DriveKind::Ssd => (percent >= 500, false),
            _ => (false, percent <= 10),
        };
        let lasts = |since: &mut Option<u64>, is_so: bool| match is_so {
            true => now.ns - *since.get_or_insert(now.ns) >= KIND_CYCLE_NS,
            false => {
                *since = None;
                false
            }
        };
        let kind = match () {
            () if lasts(&mut self.period.too_fast_since_ns, too_fast) => DriveKind::FastSsd,
            () if lasts(&mut self.period.too_slow_since_ns, too_slow) => DriveKind::Ssd,
            () => return,
        };
        self.kind = kind;
        self.qos = kind.qos(self.qos.enabled);
        self.model = kind.model();
        self.period.base_rate = VTIME_PER_USEC;
        self.period.rate = VTIME_PER_USEC;
        self.period.too_fast_since_ns = None;
        self.period.too_slow_since_ns = None;
        self.refresh();
    }
}

/// Adds the time since `since_us` to a sum.
fn flush(since_us: &mut Option<u64>, account_us: &mut u64, now_us: u64) {
    if let Some(since_us) = since_us {
        *account_us += now_us.saturating_sub(*since_us);
        *since_us = now_us;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::two_active;
    use super::*;

    fn at(us: u64) -> Now {
        Now {
            ns: us * 1000,
            us,
            vtime: 0,
        }
    }

    #[test]
    fn debts_are_halved_once_for_each_interval_of_little_use() {
        let mut period = Period::new(Nanos::ZERO);
        assert_eq!(period.debt_halvings(0, 0, at(1000)), None, "no debtors");
        let mut now_us = 1000;
        for (passed_us, usage_us, halvings) in [
            (FORGIVE_US - 1, 0, None),
            (1, 0, Some(1)),
            (FORGIVE_US * 5 / 2, 0, Some(2)),
            // The rest of the interval before counts.
            (FORGIVE_US * 3 / 2, 0, Some(2)),
            (
                FORGIVE_US,
                FORGIVE_US * FORGIVE_USAGE_PERCENT / 100,
                Some(1),
            ),
            (FORGIVE_US, FORGIVE_US, None),
        ] {
            now_us += passed_us;
            let found = period.debt_halvings(usage_us, 1, at(now_us));
            assert_eq!(found, halvings, "{passed_us} {usage_us}");
        }
    }

    #[test]
    fn lost_budget_counts_by_the_share_of_its_group() {
        let mut period = Period::new(Nanos::ZERO);
        period.add_lost_vtime(1000, WEIGHT_ONE / 4);
        period.add_lost_vtime(1000, WEIGHT_ONE);
        assert_eq!(period.error, -1250);
    }

    /// A period of which one in ten requests may miss its target.
    fn period() -> (Period, CostQos) {
        let qos = CostQos {
            within_ppm: [900_000; 2],
            ..CostQos::default()
        };
        (Period::new(Nanos::ZERO), qos)
    }

    /// The limits are 5 % of waiting for tags and 10 % of late requests; the drive could do more
    /// below three quarters of both, if a group wants more (`ioc_timer_fn`).
    #[test]
    fn the_level_rises_while_saturated_and_falls_while_more_is_possible() {
        let level = |before, missed_ppm, wait_percent, shortages, lagging| {
            let (mut period, qos) = period();
            period.busy_level = before;
            let change = RateChange {
                missed_ppm,
                wait_percent,
                shortages,
                lagging,
                ..RateChange::default()
            };
            period.update_busy_level(&qos, &change);
            period.busy_level
        };
        for (missed_ppm, wait_percent, expected) in [
            ([0, 0], 0, [-1, -4]),
            ([75_000, 75_000], 3, [-1, -4]),
            ([75_001, 0], 0, [0, 0]),
            ([0, 75_001], 0, [0, 0]),
            ([0, 0], 4, [0, 0]),
            ([100_000, 100_000], 5, [0, 0]),
            ([100_001, 0], 0, [4, 1]),
            ([0, 100_001], 0, [4, 1]),
            ([0, 0], 6, [4, 1]),
        ] {
            let found = [3, -3].map(|before| level(before, missed_ppm, wait_percent, 1, 0));
            assert_eq!(found, expected, "{missed_ppm:?} {wait_percent}");
        }
        // Nobody wants more; or the drive still has I/Os of earlier periods.
        assert_eq!(level(-3, [0, 0], 0, 0, 0), 0);
        assert_eq!(
            [3, -3].map(|before| level(before, [0, 0], 0, 1, 1)),
            [0, -3]
        );
        let most = [(1000, [200_000, 0]), (-1000, [0, 0])];
        let found = most.map(|(before, missed)| level(before, missed, 0, 1, 0));
        assert_eq!(found, [1000, -1000]);
    }

    /// Steps of the rate in percent (`vrate_adj_pct`), within its bounds; out of them it returns by
    /// 4 % a period (`ioc_adjust_base_vrate`).
    #[test]
    fn the_rate_moves_by_steps_within_its_bounds() {
        let rate = |percent: u64, busy_level, lagging| {
            let (mut period, _) = period();
            period.rates = [VTIME_PER_USEC / 2, VTIME_PER_USEC * 2];
            period.base_rate = VTIME_PER_USEC * percent / 100;
            period.busy_level = busy_level;
            let change = RateChange {
                lagging,
                ..RateChange::default()
            };
            period.adjust_rate(0, change);
            let [slowest, fastest] = period.extremes;
            let found = period.base_rate;
            assert!(slowest <= VTIME_PER_USEC && fastest >= VTIME_PER_USEC);
            assert!(percent == 100 || (slowest..=fastest).contains(&found) || busy_level == 0);
            (found * 1000 + VTIME_PER_USEC / 2) / VTIME_PER_USEC
        };
        for (before, level, after) in [
            (100, 0, 1000),
            (100, 3, 1000),
            (100, 4, 990),
            (100, 36, 960),
            (100, 100, 840),
            (100, -20, 1020),
            (100, -44, 1080),
            (51, 100, 500),
            (190, -100, 2000),
            (40, 1, 416),
            (40, -1, 416),
            (49, 1, 500),
            (300, 1, 2880),
            (205, -1, 2000),
        ] {
            assert_eq!(rate(before, level, 0), after, "{before} {level}");
        }
        // A rate that may rise waits for I/Os of earlier periods; one that must fall does not.
        assert_eq!(rate(100, -20, 1), 1000);
        assert_eq!(rate(100, 20, 1), 980);
    }

    /// Lost budget is made up for until the end of the period, with at most twice the base rate,
    /// and what was spent too much with at least half of it (`ioc_refresh_vrate`).
    #[test]
    fn an_error_is_made_up_for_within_the_period() {
        let base = VTIME_PER_USEC as i64;
        // The error and what is left of it, in microseconds at the base rate; the rate in percent.
        for (error, left, percent) in [
            (0, 0, 100),
            (-400, 0, 140),
            (-1_000, 0, 200),
            (-1_500, -500, 200),
            (300, 0, 70),
            (500, 0, 50),
            (800, 300, 50),
            (9_000, 2_000, 50),
        ] {
            let (mut period, _) = period();
            period.length_us = 2_000;
            period.start(at(5_000));
            period.error = error * base;
            period.refresh_rate(at(6_000));
            // Less than one unit for each microsecond is lost in divisions.
            assert!(period.error.abs_diff(left * base) < 1_000, "{error}");
            let expected = VTIME_PER_USEC * percent / 100;
            assert!(period.rate.abs_diff(expected) <= 1, "{error}");
        }
        // After the end of the period nothing is left to make up in.
        let (mut period, _) = period();
        period.length_us = 2_000;
        period.error = -base;
        period.refresh_rate(at(2_000));
        assert_eq!((period.error, period.rate), (-base, VTIME_PER_USEC));
    }

    /// Groups in debt and those whose tasks are delayed are both debtors (`ioc_check_iocgs`).
    #[test]
    fn every_group_in_debt_is_a_debtor() {
        for [first, second] in [[0, 0], [1, 0], [0, 1], [1, 1], [1, 2], [2, 2]] {
            let (mut cost, now) = two_active();
            for (at, owes) in [(1, first), (2, second)] {
                // Without budget it pays nothing.
                let group = &mut cost.groups[at];
                group.vtime = now.vtime;
                (group.delay_us, group.delay_at_us) = (if owes == 2 { 1_000 } else { 0 }, now.us);
                group.abs_debt = if owes == 1 { 1 << 20 } else { 0 };
            }
            let debtors = (first > 0) as usize + (second > 0) as usize;
            let found = cost.check_groups(now, &mut Vec::new());
            assert_eq!(found, debtors, "{first} {second}");
        }
    }

    /// A group that lends nothing and has no more than the low margin left is short of budget
    /// (`ioc_timer_fn`).
    #[test]
    fn a_group_at_the_low_margin_is_short() {
        for (above, shortages) in [(-1, 1), (0, 1), (1, 0)] {
            let (mut cost, start) = two_active();
            let now = cost.now(Nanos(start.ns) + Nanos::from_millis(20));
            let margin = cost.period.margin_low();
            cost.groups[1].vtime = now.vtime.wrapping_sub((margin + above) as u64);
            cost.groups[1].done_vtime = cost.groups[1].vtime;
            // Neither has used anything, so who is not short lends.
            assert_eq!(cost.scan_active(now).shortages, shortages, "{above}");
        }
    }

    /// The share that a group used is that of the time since the period's start or its activation,
    /// by what it was charged or by what it has in the drive (`ioc_timer_fn`).
    #[test]
    fn usage_is_a_share_of_the_time_that_a_group_was_active() {
        for (used_us, in_flight_us, activated_us, share) in [
            (2_500, 0, 0, WEIGHT_ONE / 4),
            (2_500, 0, 5_000, WEIGHT_ONE / 2),
            (0, 5_000, 0, WEIGHT_ONE / 2),
            (2_500, 1_000, 0, WEIGHT_ONE / 4),
            (40_000, 0, 0, WEIGHT_ONE),
            (0, 0, 0, 1),
        ] {
            let (mut cost, start) = two_active();
            let now = cost.now(Nanos(start.ns) + Nanos::from_millis(10));
            cost.period.began_at_us = start.us;
            let in_flight = in_flight_us * cost.period.base_rate;
            let group = &mut cost.groups[1];
            group.usage_in_period_us = used_us;
            group.activated_at_us = start.us + activated_us;
            group.done_vtime = group.vtime.wrapping_sub(in_flight);
            let found = cost.usage_share(1, WEIGHT_ONE, now);
            assert!(
                found.abs_diff(share) <= 1 + WEIGHT_ONE / 10_000,
                "{found} of {share}"
            );
        }
    }

    /// Waiting for tags counts in percent of the period.
    #[test]
    fn waits_for_tags_are_a_part_of_the_period() {
        for percent in [6, 50, 100, 250] {
            let (mut cost, now) = two_active();
            let waited_ns = cost.period.length_us * 10 * percent;
            (0..10).for_each(|_| cost.period.count(0, true, waited_ns / 10));
            cost.end_period(Nanos(now.ns), &mut Vec::new());
            let change = cost.last_change().expect("the drive is saturated");
            assert_eq!((change.wait_percent, change.busy_level), (percent, 1));
            assert_eq!(cost.period.tag_wait_ns, 0, "the next period begins anew");
        }
    }

    /// An SSD at five times its assumed rate for ten seconds is a fast one, and a fast one at a
    /// tenth is not; the time begins anew when the rate has returned in between. Other drives, and
    /// those whose parameters a user has set, stay as they are (`ioc_autop_idx`).
    #[test]
    fn a_drive_is_of_another_kind_after_ten_seconds_at_another_rate() {
        use DriveKind::{FastSsd, Ssd};
        const S: u64 = 1_000_000;
        /// Times in microseconds, and rates in percent.
        type Rates<'a> = &'a [(u64, u64)];
        // Kinds before and after.
        let cases: [(DriveKind, DriveKind, Rates<'_>); 9] = [
            (Ssd, FastSsd, &[(0, 500), (10 * S, 500)]),
            (Ssd, Ssd, &[(0, 500), (10 * S - 1, 500)]),
            (Ssd, Ssd, &[(0, 499), (20 * S, 499)]),
            (Ssd, Ssd, &[(0, 500), (5 * S, 499), (10 * S, 500)]),
            (
                Ssd,
                FastSsd,
                &[(0, 500), (5 * S, 499), (6 * S, 500), (16 * S, 500)],
            ),
            (Ssd, Ssd, &[(0, 5), (20 * S, 5)]),
            (FastSsd, Ssd, &[(0, 10), (10 * S, 10)]),
            (FastSsd, FastSsd, &[(0, 12), (20 * S, 12)]),
            (FastSsd, FastSsd, &[(0, 600), (20 * S, 600)]),
        ];
        let kind_after = |cost: &mut IoCost, before: DriveKind, rates: Rates<'_>| {
            cost.kind = before;
            for (now_us, percent) in rates {
                // Rounded up, so that it is at least the percentage.
                cost.period.base_rate = (VTIME_PER_USEC * percent).div_ceil(100);
                cost.choose_kind(at(1_000_000 + now_us));
            }
            cost.kind
        };
        for (before, after, rates) in cases {
            let mut cost = IoCost::new(Nanos::ZERO, false, 64);
            assert_eq!(kind_after(&mut cost, before, rates), after, "{rates:?}");
            let is_reset = cost.period.base_rate == VTIME_PER_USEC;
            assert_eq!(is_reset, before != after);
        }
        let (before, _, rates) = cases[0];
        for (rotational, queue_depth) in [(true, 64), (false, 1)] {
            let mut cost = IoCost::new(Nanos::ZERO, rotational, queue_depth);
            assert_eq!(kind_after(&mut cost, before, rates), before);
        }
        for sets_model in [true, false] {
            let mut cost = IoCost::new(Nanos::ZERO, false, 64);
            cost.model.is_users = sets_model;
            cost.qos.is_users = !sets_model;
            assert_eq!(kind_after(&mut cost, before, rates), before);
        }
    }
}
