//! Shares of a drive's time by what I/Os cost it, `io.cost` and `io.weight`
//! (`block/blk-iocost.c`; Heo et al., "IOCost: Block IO Control for Containers in
//! Datacenters", ASPLOS 2022).
//!
//! A linear model tells for how long an I/O occupies the drive. The drive's virtual
//! time passes at a rate that is near the clock's. A group's own virtual time goes
//! on with each of its I/Os by what that costs, divided by the group's share: it may
//! issue as long as it is not ahead of the drive's, and waits otherwise
//! (this file). Shares follow from weights of the groups that are active, level by
//! level; a group that needs less than its own lends the rest (`weights`,
//! `donation`). At the end of each period the rate is changed: down where latencies
//! or waits for requests say that the drive has too much, up where groups wait
//! though it has not (`period`). I/Os that others may wait for are never held back:
//! what they cost is a debt that the group pays before anything else.
//!
//! Times are in microseconds, virtual ones in 2^-37 s.

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

/// Virtual time of a second, of a microsecond, of a nanosecond.
const VTIME_PER_SEC: u64 = 1 << 37;
const VTIME_PER_USEC: u64 = VTIME_PER_SEC / 1_000_000;
const VTIME_PER_NSEC: u64 = VTIME_PER_SEC / 1_000_000_000;

/// A whole share; a weight of one.
const WEIGHT_ONE: u32 = 1 << 16;
/// The weight of a group that nobody set (`CGROUP_WEIGHT_DFL`).
const DEFAULT_WEIGHT: u32 = 100;
/// An I/O so many pages from the group's last one counts as random: 16 MiB.
const RANDOM_PAGES: u64 = 4096;
/// A step by which a lender takes back of its weight within a period, in percent.
const INUSE_STEP_PERCENT: u64 = 25;

/// Delays of tasks whose group has debts: from 250 us at five periods' worth of
/// debt to 250 ms at 250 periods' worth, in percent of a period.
const DELAY_US: [u64; 2] = [250, 250_000];
const DELAY_AT_PERCENT: [i64; 2] = [500, 25_000];

fn div_up(a: u64, b: u64) -> u64 {
    a.div_ceil(b.max(1))
}

/// `a * b / c`, rounded up, of whatever size the product is.
fn mul_div_up(a: u64, b: u64, c: u64) -> u64 {
    let quotient = (u128::from(a) * u128::from(b)).div_ceil(u128::from(c.max(1)));
    quotient.min(u128::from(u64::MAX)) as u64
}

/// What an I/O that costs the drive so much costs a group with this share.
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

/// The time, by the clock and by the drive (`struct ioc_now`).
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

/// How long a group used the drive, waited, was in debt and was delayed, in
/// microseconds (`cost.usage`, `cost.wait`, `cost.indebt`, `cost.indelay`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostStat {
    /// The drive's time, by the model.
    pub usage_us: u64,
    /// Time with a bio waiting.
    pub wait_us: u64,
    /// Time with debts.
    pub debt_us: u64,
    /// Time in which its tasks are delayed.
    pub delay_us: u64,
}

/// A group on this drive (`struct ioc_gq`), or the root, which is never held back.
#[derive(Debug)]
struct Group {
    parent: Option<usize>,
    /// Weights in units of [`WEIGHT_ONE`]: the configured one, that while it is
    /// active, and what of that it does not lend.
    weight: u32,
    active: u32,
    inuse: u32,
    last_inuse: u32,
    /// How far its time was behind the drive's when its weight last changed.
    saved_margin: i64,
    /// Where its last I/O ended.
    cursor: u64,
    /// Its virtual time: of what was issued, and of what was done.
    vtime: u64,
    done_vtime: u64,
    abs_debt: u64,
    delay_us: u64,
    delay_at_us: u64,
    active_period: u64,
    is_active: bool,
    activated_at_us: u64,
    /// Sums over the groups in it.
    child_active_sum: u64,
    child_inuse_sum: u64,
    child_adjusted_sum: u64,
    /// Its shares of the drive, and the weights that they are of.
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

    /// Its virtual time goes on without an I/O.
    fn skip(&mut self, vtime: u64) {
        self.vtime = self.vtime.wrapping_add(vtime);
        self.done_vtime = self.done_vtime.wrapping_add(vtime);
    }

    fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// What a bio's submission noted of it.
#[derive(Clone, Copy, Debug, Default)]
struct BioCost {
    cost: u64,
    group: CgroupId,
    /// When it went on to get a request.
    asked_at: Nanos,
}

/// Costs of one drive (`struct ioc`).
#[derive(Debug)]
pub struct IoCost {
    qos: CostQos,
    model: CostModel,
    kind: DriveKind,
    rotational: bool,
    queue_depth: u32,
    coefficients: [Coefficients; 2],
    groups: Vec<Group>,
    /// Active groups, the one that came last at the end.
    active: Vec<usize>,
    /// Raised with each change of weights; shares of older ones are computed anew.
    weights: u64,
    weights_changed: bool,
    period: Period,
    /// By part of a bio, and by request: when it asked for its tag.
    bios: Vec<BioCost>,
    requests: Vec<Nanos>,
}

impl IoCost {
    /// Costs of a drive of this kind, with the kernel's assumptions; off until
    /// `io.cost.qos` enables them.
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

    /// `io.cost.qos` as it is.
    pub fn qos(&self) -> CostQos {
        self.qos
    }

    /// `io.cost.model` as it is.
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

    /// What depends on targets and model (`ioc_refresh_params`).
    fn refresh(&mut self) {
        self.period.set_targets(&self.qos);
        self.coefficients = [0, 1].map(|at| Coefficients::of(&self.model.speeds[at]));
    }

    /// Makes a group known; one that was not named is in the root.
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

    /// What a group did; of the root what all did together.
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

    /// Counts from zero.
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

    /// What an I/O costs the drive (`calc_vtime_cost_builtin`).
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

    /// Whether a bio may go on (`ioc_rqos_throttle`); where not, its submitter waits
    /// under this ticket.
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
        // Others may wait for metadata and swap, whoever writes them.
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
        // It may have been let go at once.
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

    /// A bio goes on to get a request.
    pub(super) fn asks_for_tag(&mut self, now: Nanos, part: BioId) {
        self.bio(part).asked_at = now;
    }

    /// A request was made of a bio.
    pub(super) fn track(&mut self, id: RequestId, part: BioId) {
        let asked_at = self.bio(part).asked_at;
        let at = id.index();
        if self.requests.len() <= at {
            self.requests.resize(at + 1, Nanos::ZERO);
        }
        self.requests[at] = asked_at;
    }

    /// The group pays for a bio, which goes on.
    fn commit(&mut self, at: usize, part: BioId, abs_cost: u64, cost: u64) {
        self.bio(part).cost = cost;
        let this = &mut self.groups[at];
        this.vtime = this.vtime.wrapping_add(cost);
        this.abs_usage += abs_cost;
    }

    /// A bio joined a request, which the group pays or owes; it is not held back
    /// (`ioc_rqos_merge`). The request was from `start` to `end` before, and `first`
    /// is its first bio.
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

    /// A part of a bio is done.
    pub(super) fn done_bio(&mut self, part: BioId) {
        let Some(bio) = self.bios.get_mut(part.index()) else {
            return;
        };
        let cost = core::mem::take(&mut bio.cost);
        let at = bio.group.0 as usize;
        if cost > 0 && at < self.groups.len() {
            let done = &mut self.groups[at].done_vtime;
            *done = done.wrapping_add(cost);
        }
    }

    /// A request is gone: was it within its target, and how long had it waited for
    /// a tag (`ioc_rqos_done`)?
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

    /// A group becomes active with half a period's budget; `false` where it is one
    /// that others are active in, whose I/O is as the root's (`iocg_activate`).
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

    /// What an I/O costs a group, which takes back what it lends as far as it needs
    /// that (`adjust_inuse_and_calc_cost`).
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

    /// While it is in debt a group lends all of its share (`iocg_incur_debt`).
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

    /// For how long tasks of a group in debt are delayed: the deeper in debt the
    /// longer, and halved with each second (`iocg_kick_delay`).
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

    /// Pays debts from a group's budget, lets those go on that it can pay for, and
    /// sets the timer for the next one (`iocg_kick_waitq`).
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

    /// When [`IoCost::timer`] is to be called. Timers of groups may be late by a
    /// hundredth of a period.
    pub fn next_timer(&self) -> Nanos {
        let groups = self.groups.iter().filter_map(|group| group.timer);
        let groups = groups.map(|soft| self.latest(soft));
        let period = self.period.next_timer();
        groups.min().map_or(period, |first| first.min(period))
    }

    /// When a group's timer runs that may not run before `soft`: with the next tick, and
    /// a hundredth of a period late at most.
    fn latest(&self, soft: Nanos) -> Nanos {
        let hard_ns = soft.0.saturating_add(self.period.slack_ns());
        let tick_ns = soft.0.div_ceil(JIFFY_NS).saturating_mul(JIFFY_NS);
        Nanos(hard_ns.min(tick_ns))
    }

    /// Does what is due.
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

    /// Runs timers of groups that may run now: those that could be later still run with
    /// others' interrupts.
    pub(crate) fn expire(&mut self, now: Nanos, woken: &mut Vec<u64>) {
        for at in 0..self.groups.len() {
            let timer = &mut self.groups[at].timer;
            if timer.take_if(|soft| *soft <= now).is_some() {
                let pays_debt = self.groups[at].abs_debt > 0;
                let time = self.now(now);
                self.kick(at, pays_debt, time, woken);
            }
        }
    }
}
