//! Shares of a drive's time by the cost of each I/O, `io.cost` and `io.weight`
//! (`block/blk-iocost.c`; Heo et al., "IOCost: Block IO Control for Containers in Datacenters",
//! ASPLOS 2022).
//!
//! A linear model gives the time for which an I/O occupies the drive. The drive's virtual time
//! (`vtime`) passes at a rate near that of the clock. Each I/O advances its group's own virtual
//! time by its cost divided by the group's share; a group may issue I/O as long as its time is not
//! ahead of the drive's, and waits otherwise (this file). Shares follow from the weights of the
//! active groups, level by level; a group that needs less than its share lends the rest (`weights`,
//! `donation`). At the end of each period the rate changes: it falls if latencies or waits for
//! requests show that the drive is saturated, and rises if groups wait although it is not
//! (`period`). I/O that other groups may wait for is never delayed: its cost becomes a debt that
//! the group pays first.
//!
//! Times are in microseconds, virtual times in 2^-37 s.

mod donation;
mod params;
mod period;
#[cfg(test)]
mod tests;
mod weights;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::bio::{Bio, BioFlags, CgroupId, Op};
use crate::request::{BioId, Request, RequestId};
use crate::units::{JIFFY_NS, Nanos, SECTORS_PER_PAGE};
use params::{Coefficients, DriveKind};
pub use params::{CostModel, CostQos, Speed};
use period::Period;
pub use period::RateChange;

/// Virtual time in a second, in a microsecond and in a nanosecond.
const VTIME_PER_SEC: u64 = 1 << 37;
const VTIME_PER_USEC: u64 = VTIME_PER_SEC / 1_000_000;
const VTIME_PER_NSEC: u64 = VTIME_PER_SEC / 1_000_000_000;

/// The whole drive as a share, and the unit of weights (`WEIGHT_ONE`).
const WEIGHT_ONE: u32 = 1 << 16;
/// The default weight of a group (`CGROUP_WEIGHT_DFL`).
const DEFAULT_WEIGHT: u32 = 100;
/// An I/O at least this many pages (16 MiB) from the group's previous one counts as random.
const RANDOM_PAGES: u64 = 4096;
/// The part of its weight that a lender takes back in one step within a period, in percent.
const INUSE_STEP_PERCENT: u64 = 25;

/// Delays of tasks whose group is in debt, in microseconds, at these debts, in percent of a period:
/// from 250 us at 5 periods to 250 ms at 250 periods.
const DELAY_US: [u64; 2] = [250, 250_000];
const DELAY_AT_PERCENT: [i64; 2] = [500, 25_000];

fn div_up(a: u64, b: u64) -> u64 {
    a.div_ceil(b.max(1))
}

/// Returns `a * b / c`, rounded up, with a product of 128 bits.
fn mul_div_up(a: u64, b: u64, c: u64) -> u64 {
    let quotient = (u128::from(a) * u128::from(b)).div_ceil(u128::from(c.max(1)));
    quotient.min(u128::from(u64::MAX)) as u64
}

/// The cost to a group with this share of an I/O that costs the drive `abs_cost`.
fn cost_of_share(abs_cost: u64, share: u32) -> u64 {
    mul_div_up(abs_cost, WEIGHT_ONE.into(), share.into())
}

/// The inverse of [`cost_of_share`].
fn abs_cost_of(cost: u64, share: u32) -> u64 {
    mul_div_up(cost, share.into(), WEIGHT_ONE.into())
}

/// How far one virtual time is ahead of another.
fn ahead(time: u64, of: u64) -> i64 {
    time.wrapping_sub(of) as i64
}

/// The current time, of the clock and of the drive (`struct ioc_now`).
#[derive(Clone, Copy, Debug)]
struct Now {
    ns: u64,
    us: u64,
    vtime: u64,
}

/// A bio that waits until its group can pay for it.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: u64,
    part: BioId,
    abs_cost: u64,
}

/// Statistics of a group, in microseconds (`cost.usage`, `cost.wait`, `cost.indebt`,
/// `cost.indelay`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostStat {
    /// The drive's time that it used, by the model.
    pub usage_us: u64,
    /// Time with at least one bio waiting.
    pub wait_us: u64,
    /// Time in debt.
    pub debt_us: u64,
    /// Time in which its tasks were delayed.
    pub delay_us: u64,
}

/// A group on this drive (`struct ioc_gq`), or the root, which is never throttled.
#[derive(Debug)]
struct Group {
    parent: Option<usize>,
    /// Weights in units of [`WEIGHT_ONE`]: as configured, while active, and in use (the active
    /// weight without what is lent).
    weight: u32,
    active: u32,
    inuse: u32,
    last_inuse: u32,
    /// How far its time was behind the drive's when its weight was last changed.
    saved_margin: i64,
    /// The sector after its last I/O.
    cursor: u64,
    /// Its virtual time of issued I/O and of completed I/O.
    vtime: u64,
    done_vtime: u64,
    abs_debt: u64,
    delay_us: u64,
    delay_at_us: u64,
    active_period: u64,
    is_active: bool,
    activated_at_us: u64,
    /// Sums over its child groups.
    child_active_sum: u64,
    child_inuse_sum: u64,
    child_adjusted_sum: u64,
    /// Its shares of the drive, and the generation of weights that they were computed from.
    share_of: Option<u64>,
    share_active: u32,
    share_inuse: u32,
    share_donating: u32,
    share_after_donation: u32,
    waiting: VecDeque<Waiting>,
    timer: Option<Nanos>,
    abs_usage: u64,
    flushed_usage: u64,
    usage_in_period_us: u64,
    stat: CostStat,
    wait_since_us: Option<u64>,
    debt_since_us: Option<u64>,
    delay_since_us: Option<u64>,
}

impl Group {
    fn new(parent: Option<usize>) -> Group {
        Group {
            parent,
            weight: DEFAULT_WEIGHT * WEIGHT_ONE,
            active: 0,
            inuse: 0,
            last_inuse: 0,
            saved_margin: 0,
            cursor: 0,
            vtime: 0,
            done_vtime: 0,
            abs_debt: 0,
            delay_us: 0,
            delay_at_us: 0,
            active_period: 0,
            is_active: false,
            activated_at_us: 0,
            child_active_sum: 0,
            child_inuse_sum: 0,
            child_adjusted_sum: 0,
            share_of: None,
            share_active: WEIGHT_ONE,
            share_inuse: WEIGHT_ONE,
            share_donating: 0,
            share_after_donation: 0,
            waiting: VecDeque::new(),
            timer: None,
            abs_usage: 0,
            flushed_usage: 0,
            usage_in_period_us: 0,
            stat: CostStat::default(),
            wait_since_us: None,
            debt_since_us: None,
            delay_since_us: None,
        }
    }

    /// Advances its virtual time without an I/O.
    fn skip(&mut self, vtime: u64) {
        self.vtime = self.vtime.wrapping_add(vtime);
        self.done_vtime = self.done_vtime.wrapping_add(vtime);
    }

    fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// The cost of a bio, recorded when it was submitted.
#[derive(Clone, Copy, Debug, Default)]
struct BioCost {
    cost: u64,
    group: CgroupId,
    /// When it began to wait for a request.
    asked_at: Nanos,
}

/// The cost controller of one drive (`struct ioc`).
#[derive(Debug)]
pub struct IoCost {
    qos: CostQos,
    model: CostModel,
    kind: DriveKind,
    rotational: bool,
    queue_depth: u32,
    coefficients: [Coefficients; 2],
    groups: Vec<Group>,
    /// Active groups; the most recently activated is last.
    active: Vec<usize>,
    /// Generation of the weights, incremented by each change; shares of older generations are
    /// computed anew.
    weights: u64,
    weights_changed: bool,
    period: Period,
    /// The recorded cost of each bio, and the time at which each request was asked for.
    bios: Vec<BioCost>,
    requests: Vec<Nanos>,
}

impl IoCost {
    /// Returns a controller with the kernel's default parameters for this kind of drive; it is
    /// disabled until `io.cost.qos` enables it.
    pub fn new(now: Nanos, rotational: bool, queue_depth: u32) -> IoCost {
        let kind = match (rotational, queue_depth) {
            (true, _) => DriveKind::Disk,
            (false, 1) => DriveKind::SsdDepth1,
            (false, _) => DriveKind::Ssd,
        };
        let mut cost = IoCost {
            qos: kind.qos(false),
            model: kind.model(),
            kind,
            rotational,
            queue_depth,
            coefficients: [Coefficients::default(); 2],
            groups: vec![Group::new(None)],
            active: Vec::new(),
            weights: 0,
            weights_changed: false,
            period: Period::new(now),
            bios: Vec::new(),
            requests: Vec::new(),
        };
        cost.refresh();
        cost
    }

    /// Returns `io.cost.qos`.
    pub fn qos(&self) -> CostQos {
        self.qos
    }

    /// Returns `io.cost.model`.
    pub fn model(&self) -> CostModel {
        self.model
    }

    /// Writes `io.cost.qos`.
    pub fn set_qos(&mut self, qos: CostQos) {
        self.qos = match qos.is_users {
            true => qos,
            false => self.kind.qos(qos.enabled),
        };
        self.refresh();
    }

    /// Writes `io.cost.model`.
    pub fn set_model(&mut self, model: CostModel) {
        self.model = match model.is_users {
            true => model,
            false => self.kind.model(),
        };
        self.refresh();
    }

    /// Recomputes what depends on targets and model (`ioc_refresh_params`).
    fn refresh(&mut self) {
        self.period.set_targets(&self.qos);
        self.coefficients = [0, 1].map(|at| Coefficients::of(&self.model.speeds[at]));
    }

    /// Sets the parent of a group, which is the root by default.
    pub fn set_parent(&mut self, group: CgroupId, parent: CgroupId) {
        let (at, parent) = (self.make(group), self.make(parent));
        self.groups[at].parent = Some(parent);
    }

    /// Writes a group's `io.weight`, 1 to 10000.
    pub fn set_weight(&mut self, now: Nanos, group: CgroupId, weight: u32) {
        let at = self.make(group);
        let now = self.now(now);
        let weight = weight.clamp(1, 10_000) * WEIGHT_ONE;
        let this = &self.groups[at];
        if weight != this.weight && this.active > 0 {
            let inuse = this.inuse;
            self.propagate(at, weight, inuse, Some(now));
            self.commit_weights();
        }
        self.groups[at].weight = weight;
    }

    fn make(&mut self, group: CgroupId) -> usize {
        let at = group.0 as usize;
        if self.groups.len() <= at {
            self.groups.resize_with(at + 1, || Group::new(Some(0)));
        }
        at
    }

    /// Statistics of a group and the groups inside it.
    pub fn stat(&self, group: CgroupId) -> CostStat {
        let mut sum = CostStat::default();
        for (at, this) in self.groups.iter().enumerate() {
            let mut above = Some(at);
            let inside = core::iter::from_fn(|| {
                let this = above?;
                above = self.groups[this].parent;
                Some(this)
            })
            .any(|above| above == group.0 as usize);
            if inside {
                sum.usage_us += this.stat.usage_us;
                sum.wait_us += this.stat.wait_us;
                sum.debt_us += this.stat.debt_us;
                sum.delay_us += this.stat.delay_us;
            }
        }
        sum
    }

    /// Resets the statistics.
    pub(super) fn reset_counters(&mut self) {
        for group in &mut self.groups {
            group.stat = CostStat::default();
        }
        self.period.reset_counters();
    }

    fn now(&self, now: Nanos) -> Now {
        let us = now.0 / 1000;
        Now {
            ns: now.0,
            us,
            vtime: self.period.vtime_at(us),
        }
    }

    fn bio(&mut self, part: BioId) -> &mut BioCost {
        let at = part.index();
        if self.bios.len() <= at {
            self.bios.resize(at + 1, BioCost::default());
        }
        &mut self.bios[at]
    }

    /// The cost of an I/O to the drive (`calc_vtime_cost_builtin`).
    fn abs_cost(&self, bio: &Bio, is_merge: bool) -> u64 {
        let costs = match bio.op {
            Op::Read => &self.coefficients[0],
            Op::Write => &self.coefficients[1],
            _ => return 0,
        };
        if bio.sectors == 0 {
            return 0;
        }
        let pages = u64::from(bio.sectors / SECTORS_PER_PAGE).max(1);
        let cursor = self.groups[bio.cgroup.0 as usize].cursor;
        let seek_pages = match cursor {
            0 => 0,
            cursor => bio.sector.0.abs_diff(cursor) / u64::from(SECTORS_PER_PAGE),
        };
        let base = match () {
            () if is_merge => 0,
            () if seek_pages > RANDOM_PAGES => costs.random_io,
            () => costs.sequential_io,
        };
        base + pages * costs.page
    }

    fn applies_to(&self, bio: &Bio) -> bool {
        let known = (bio.cgroup.0 as usize) < self.groups.len();
        self.qos.enabled && bio.cgroup != CgroupId::ROOT && known
    }

    /// Whether a bio may continue (`ioc_rqos_throttle`); otherwise its submitter waits under
    /// `ticket`.
    pub(super) fn throttle(
        &mut self,
        now: Nanos,
        (bio, part): (&Bio, BioId),
        ticket: u64,
        woken: &mut Vec<u64>,
    ) -> bool {
        *self.bio(part) = BioCost {
            cost: 0,
            group: bio.cgroup,
            asked_at: now,
        };
        if !self.applies_to(bio) {
            return true;
        }
        let abs_cost = self.abs_cost(bio, false);
        let at = bio.cgroup.0 as usize;
        let time = self.now(now);
        if abs_cost == 0 || !self.activate(at, time) {
            return true;
        }
        self.groups[at].cursor = bio.end().0;
        let vtime = self.groups[at].vtime;
        let cost = self.adjust_inuse(at, vtime, abs_cost, time);
        let this = &self.groups[at];
        let fits = ahead(vtime.wrapping_add(cost), time.vtime) <= 0;
        if !this.is_waited_for() && this.abs_debt == 0 && fits {
            self.commit(at, part, abs_cost, cost);
            return true;
        }
        // Other groups may wait for metadata and swap, whoever writes them.
        if bio.flags.has(BioFlags::META) {
            self.incur_debt(at, abs_cost, time);
            self.kick_delay(at, time);
            return true;
        }
        let this = &self.groups[at];
        if this.abs_debt == 0 && this.inuse != this.active {
            let active = this.active;
            self.propagate(at, active, active, Some(time));
            self.commit_weights();
        }
        let this = &mut self.groups[at];
        let pays_debt = this.abs_debt > 0;
        this.waiting.push_back(Waiting {
            ticket,
            part,
            abs_cost,
        });
        let before = woken.len();
        self.kick(at, pays_debt, time, woken);
        // The bio may have been released at once.
        match woken[before..].iter().position(|woken| *woken == ticket) {
            Some(found) => {
                woken.remove(before + found);
                true
            }
            None => false,
        }
    }

    pub(super) fn is_held(&self, ticket: u64) -> bool {
        let mut waiting = self.groups.iter().flat_map(|group| &group.waiting);
        waiting.any(|held| held.ticket == ticket)
    }

    /// Records that a bio begins to wait for a request.
    pub(super) fn start_tag_wait(&mut self, now: Nanos, part: BioId) {
        self.bio(part).asked_at = now;
    }

    /// Records the request that was made from a bio.
    pub(super) fn track(&mut self, id: RequestId, part: BioId) {
        let asked_at = self.bio(part).asked_at;
        let at = id.index();
        if self.requests.len() <= at {
            self.requests.resize(at + 1, Nanos::ZERO);
        }
        self.requests[at] = asked_at;
    }

    /// Charges the group for a bio, which continues.
    fn commit(&mut self, at: usize, part: BioId, abs_cost: u64, cost: u64) {
        self.bio(part).cost = cost;
        let this = &mut self.groups[at];
        this.vtime = this.vtime.wrapping_add(cost);
        this.abs_usage += abs_cost;
    }

    /// Charges or adds to the debt of a group for a merged bio, which is never delayed
    /// (`ioc_rqos_merge`). Before the merge the request ran from `start` to `end`, and `first` is
    /// its first bio.
    pub(super) fn merge(
        &mut self,
        now: Nanos,
        (bio, part): (&Bio, BioId),
        first: BioId,
        [start, end]: [u64; 2],
    ) {
        *self.bio(part) = BioCost {
            group: bio.cgroup,
            ..BioCost::default()
        };
        if !self.applies_to(bio) {
            return;
        }
        let abs_cost = self.abs_cost(bio, true);
        if abs_cost == 0 {
            return;
        }
        let at = bio.cgroup.0 as usize;
        let time = self.now(now);
        let vtime = self.groups[at].vtime;
        let cost = self.adjust_inuse(at, vtime, abs_cost, time);
        let this = &mut self.groups[at];
        if start < bio.end().0 && end == this.cursor {
            this.cursor = bio.end().0;
        }
        let fits = ahead(this.vtime.wrapping_add(cost), time.vtime) <= 0;
        let is_active = this.is_active;
        if self.bio(first).cost > 0 && fits || !is_active {
            return self.commit(at, part, abs_cost, cost);
        }
        self.incur_debt(at, abs_cost, time);
        self.kick_delay(at, time);
    }

    /// Advances the completed virtual time of a group by the cost of a completed bio.
    pub(super) fn done_bio(&mut self, part: BioId) {
        let Some(bio) = self.bios.get_mut(part.index()) else {
            return;
        };
        let cost = core::mem::take(&mut bio.cost);
        // Only a group that exists was charged.
        if cost > 0 {
            let done = &mut self.groups[bio.group.0 as usize].done_vtime;
            *done = done.wrapping_add(cost);
        }
    }

    /// Records whether a completed request met its target, and how long it had waited for a tag
    /// (`ioc_rqos_done`).
    pub(super) fn done(&mut self, now: Nanos, id: RequestId, rq: &Request) {
        let direction = match rq.op {
            Op::Read => 0,
            Op::Write => 1,
            _ => return,
        };
        let Some(&asked_at) = self.requests.get(id.index()) else {
            return;
        };
        if !self.qos.enabled || asked_at == Nanos::ZERO {
            return;
        }
        let pages = u64::from(rq.sectors / SECTORS_PER_PAGE);
        let size_ns = pages * self.coefficients[direction].page / VTIME_PER_NSEC;
        let on_queue_ns = now.saturating_sub(asked_at).0;
        let target_ns = u64::from(self.qos.latency_us[direction]) * 1000;
        let met = on_queue_ns <= size_ns + target_ns;
        let waited_ns = rq.start.saturating_sub(asked_at).0;
        self.period.count(direction, met, waited_ns);
    }

    /// Activates a group with half a period's budget (`iocg_activate`). Returns `false` for an
    /// inner group with active descendants, whose own I/O is treated like the root's.
    fn activate(&mut self, at: usize, now: Now) -> bool {
        let current = self.period.number();
        if self.groups[at].is_active {
            self.groups[at].active_period = current;
            return true;
        }
        if self.groups[at].child_active_sum > 0 {
            return false;
        }
        self.groups[at].active_period = current;
        let mut above = self.groups[at].parent;
        while let Some(parent) = above {
            if self.groups[parent].is_active {
                return false;
            }
            above = self.groups[parent].parent;
        }
        let start = now.vtime.wrapping_sub(self.period.margin_target());
        let this = &mut self.groups[at];
        this.skip(start.wrapping_sub(this.vtime));
        this.share_of = None;
        this.is_active = true;
        this.activated_at_us = now.us;
        let (weight, last_inuse) = (this.weight, this.last_inuse);
        self.active.push(at);
        let inuse = if last_inuse == 0 { weight } else { last_inuse };
        self.propagate(at, weight, inuse, Some(now));
        self.commit_weights();
        self.period.run(now);
        true
    }

    /// Returns the cost of an I/O to a group, which takes back as much of its lent weight as it
    /// needs (`adjust_inuse_and_calc_cost`).
    fn adjust_inuse(&mut self, at: usize, vtime: u64, abs_cost: u64, now: Now) -> u64 {
        let (_, share) = self.shares(at);
        let mut cost = cost_of_share(abs_cost, share);
        let margin = ahead(now.vtime, vtime.wrapping_add(cost));
        let this = &self.groups[at];
        let is_enough = margin >= this.saved_margin || margin >= self.period.margin_low();
        let is_lender = this.is_active && this.inuse != this.active;
        if this.abs_debt > 0 || is_enough || !is_lender {
            return cost;
        }
        let active = this.active;
        let step = div_up(u64::from(active) * INUSE_STEP_PERCENT, 100) as u32;
        let mut inuse = this.inuse;
        loop {
            inuse = inuse.saturating_add(step);
            self.propagate(at, active, inuse, Some(now));
            self.commit_weights();
            cost = cost_of_share(abs_cost, self.shares(at).1);
            let short = ahead(vtime.wrapping_add(cost), now.vtime) > 0;
            if !short || self.groups[at].inuse == active {
                return cost;
            }
        }
    }

    /// Adds to a group's debt; a group in debt lends its whole share (`iocg_incur_debt`).
    fn incur_debt(&mut self, at: usize, abs_cost: u64, now: Now) {
        if self.groups[at].abs_debt == 0 && abs_cost > 0 {
            self.groups[at].debt_since_us = Some(now.us);
            let active = self.groups[at].active;
            self.propagate(at, active, 0, None);
            self.commit_weights();
        }
        let this = &mut self.groups[at];
        this.abs_debt = this.abs_debt.saturating_add(abs_cost);
        this.abs_usage += abs_cost;
    }

    fn pay_debt(&mut self, at: usize, abs_pay: u64, now: Now) {
        let this = &mut self.groups[at];
        this.abs_debt = this.abs_debt.saturating_sub(abs_pay);
        if this.abs_debt > 0 {
            return;
        }
        let since_us = this.debt_since_us.take();
        this.stat.debt_us += since_us.map_or(0, |since| now.us.saturating_sub(since));
        let (active, last_inuse) = (this.active, this.last_inuse);
        self.propagate(at, active, last_inuse, None);
        self.commit_weights();
    }

    /// Computes the delay for tasks of a group in debt: it grows with the debt and is halved each
    /// second (`iocg_kick_delay`).
    fn kick_delay(&mut self, at: usize, now: Now) {
        let (share, _) = self.shares(at);
        let period_vtime = self.period.vtime().max(1);
        let this = &mut self.groups[at];
        let Some(since_us) = now.us.checked_sub(this.delay_at_us) else {
            return;
        };
        let halvings = since_us / 1_000_000;
        let mut delay_us = this.delay_us.checked_shr(halvings.min(64) as u32);
        let debt = cost_of_share(this.abs_debt, share);
        let over = ahead(this.vtime.wrapping_add(debt), now.vtime);
        let percent = 100i128 * i128::from(over) / i128::from(period_vtime);
        let [from, to] = DELAY_AT_PERCENT.map(i128::from);
        let wanted_us = match percent {
            percent if percent <= from => 0,
            percent if percent >= to => DELAY_US[1],
            percent => {
                let range_us = i128::from(DELAY_US[1] - DELAY_US[0]);
                DELAY_US[0] + (range_us * (percent - from) / (to - from)) as u64
            }
        };
        if wanted_us > delay_us.unwrap_or(0) {
            this.delay_us = wanted_us;
            this.delay_at_us = now.us;
            delay_us = Some(wanted_us);
        }
        if delay_us.unwrap_or(0) >= DELAY_US[0] {
            this.delay_since_us.get_or_insert(now.us);
            return;
        }
        if let Some(since_us) = this.delay_since_us.take() {
            this.stat.delay_us += now.us.saturating_sub(since_us);
        }
        this.delay_us = 0;
    }

    /// Pays debt from the group's budget, releases the bios that the rest can pay for, and sets the
    /// timer for the next one (`iocg_kick_waitq`).
    fn kick(&mut self, at: usize, pays_debt: bool, now: Now, woken: &mut Vec<u64>) {
        let (share, _) = self.shares(at);
        let mut budget = ahead(now.vtime, self.groups[at].vtime);
        let debt = self.groups[at].abs_debt;
        if pays_debt && debt > 0 && budget > 0 {
            let abs_pay = abs_cost_of(budget as u64, share).min(debt);
            let pay = cost_of_share(abs_pay, share);
            self.groups[at].skip(pay);
            self.pay_debt(at, abs_pay, now);
            budget -= pay as i64;
        }
        if self.groups[at].abs_debt > 0 || self.groups[at].delay_us > 0 {
            self.kick_delay(at, now);
        }
        if self.groups[at].abs_debt > 0 {
            let debt = cost_of_share(self.groups[at].abs_debt, share);
            budget = budget.saturating_sub_unsigned(debt).min(0);
        }
        let (_, share) = self.shares(at);
        while let Some(&first) = self.groups[at].waiting.front() {
            let cost = cost_of_share(first.abs_cost, share);
            budget = budget.saturating_sub_unsigned(cost);
            if budget < 0 {
                break;
            }
            self.groups[at].waiting.pop_front();
            self.commit(at, first.part, first.abs_cost, cost);
            woken.push(first.ticket);
        }
        let this = &mut self.groups[at];
        if !this.is_waited_for() {
            this.timer = None;
            let since_us = this.wait_since_us.take();
            this.stat.wait_us += since_us.map_or(0, |since| now.us.saturating_sub(since));
            return;
        }
        this.wait_since_us.get_or_insert(now.us);
        let short = budget.unsigned_abs();
        let expires_ns = now.ns + div_up(short, self.period.base_rate()).saturating_mul(1000);
        let slack_ns = self.period.slack_ns();
        let expires = Nanos(expires_ns.saturating_add(slack_ns));
        let is_near = |timer: Nanos| timer.0.abs_diff(expires.0) <= slack_ns;
        if !this.timer.is_some_and(is_near) {
            this.timer = Some(expires);
        }
    }

    /// The time at which [`IoCost::timer`] should be called. Timers of groups may run a hundredth
    /// of a period late.
    pub fn next_timer(&self) -> Nanos {
        let groups = self.groups.iter().filter_map(|group| group.timer);
        let groups = groups.map(|soft| self.latest(soft));
        let period = self.period.next_timer();
        groups.min().map_or(period, |first| first.min(period))
    }

    /// The latest time at which a group's timer with the soft expiry `soft` runs: with the next
    /// tick, at most a hundredth of a period late.
    fn latest(&self, soft: Nanos) -> Nanos {
        let hard_ns = soft.0.saturating_add(self.period.slack_ns());
        let tick_ns = soft.0.div_ceil(JIFFY_NS).saturating_mul(JIFFY_NS);
        Nanos(hard_ns.min(tick_ns))
    }

    /// Runs the expired timers of groups and of the period.
    pub(super) fn timer(&mut self, now: Nanos, woken: &mut Vec<u64>) {
        let is_due = |soft: Nanos| self.latest(soft) <= now;
        if self
            .groups
            .iter()
            .filter_map(|group| group.timer)
            .any(is_due)
        {
            self.expire(now, woken);
        }
        if self.period.next_timer() <= now {
            self.end_period(now, woken);
        }
    }

    /// Runs the timers of groups whose soft expiry has passed, as any timer interrupt does.
    pub(crate) fn expire(&mut self, now: Nanos, woken: &mut Vec<u64>) {
        for at in 0..self.groups.len() {
            let timer = &mut self.groups[at].timer;
            if timer.take_if(|soft| *soft <= now).is_some() {
                let time = self.now(now);
                self.kick(at, true, time, woken);
            }
        }
    }
}
