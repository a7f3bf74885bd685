//! Groups that read at random from a drive whose throughput the model knows exactly.

use alloc::vec::Vec;

use super::*;
use crate::request::Request;
use crate::units::Sector;

const STEP_US: u64 = 100;

/// A process with one read in flight, which may wait for the controller or pause after each read.
struct Reader {
    group: CgroupId,
    flags: BioFlags,
    pause_us: u64,
    /// When the bio began to wait, ends, or is submitted next, as the state says.
    state: BioState,
    done: u64,
}

#[derive(Clone, Copy)]
enum BioState {
    Comes(u64),
    Waits,
    Runs(u64),
}

struct Bench {
    cost: IoCost,
    now_us: u64,
    latency_us: u64,
    readers: Vec<Reader>,
    random: u64,
}

impl Bench {
    /// A drive of 1000 random reads per second, with a rate within these bounds.
    fn new(rates: &str) -> Bench {
        let mut cost = IoCost::new(Nanos::ZERO, false, 64);
        let mut model = CostModel::default();
        model
            .write("rbps=400000000 rseqiops=1000 rrandiops=1000")
            .unwrap();
        cost.set_model(model);
        let mut qos = cost.qos();
        let text = alloc::format!("enable=1 rpct=90 rlat=10000 {rates}");
        qos.write(&text).unwrap();
        cost.set_qos(qos);
        Bench {
            cost,
            now_us: 1000,
            latency_us: 500,
            readers: Vec::new(),
            random: 1,
        }
    }

    fn add(&mut self, group: u16, processes: usize, pause_us: u64) {
        self.cost.make(CgroupId(group));
        for _ in 0..processes {
            self.readers.push(Reader {
                group: CgroupId(group),
                flags: BioFlags::NONE,
                pause_us,
                state: BioState::Comes(self.now_us),
                done: 0,
            });
        }
    }

    fn run(&mut self, ms: u64) {
        let end_us = self.now_us + ms * 1000;
        while self.now_us < end_us {
            self.now_us += STEP_US;
            let (now, mut woken) = (Nanos(self.now_us * 1000), Vec::new());
            if self.cost.next_timer() <= now {
                self.cost.timer(now, &mut woken);
            }
            for at in 0..self.readers.len() {
                self.step(at, now, &mut woken);
            }
            for ticket in woken {
                assert!(!self.cost.is_held(ticket));
                self.issue(ticket as usize, now);
            }
        }
    }

    fn step(&mut self, at: usize, now: Nanos, woken: &mut Vec<u64>) {
        let part = BioId::from_index(at);
        match self.readers[at].state {
            BioState::Runs(ends_us) if ends_us <= self.now_us => {
                self.cost.done_bio(part);
                let issued = Nanos(ends_us.saturating_sub(self.latency_us) * 1000);
                let rq = Request::for_bio(&self.bio(at), issued);
                self.cost.done(now, RequestId::from_index(at), &rq);
                let reader = &mut self.readers[at];
                reader.done += 1;
                reader.state = BioState::Comes(self.now_us + reader.pause_us);
            }
            BioState::Comes(at_us) if at_us <= self.now_us => {
                let bio = self.bio(at);
                let goes = self.cost.throttle(now, (&bio, part), at as u64, woken);
                assert_eq!(self.cost.is_held(at as u64), !goes);
                match goes {
                    true => self.issue(at, now),
                    false => self.readers[at].state = BioState::Waits,
                }
            }
            _ => {}
        }
    }

    fn issue(&mut self, at: usize, now: Nanos) {
        let part = BioId::from_index(at);
        self.cost.start_tag_wait(now, part);
        self.cost.track(RequestId::from_index(at), part);
        self.readers[at].state = BioState::Runs(self.now_us + self.latency_us);
    }

    fn bio(&mut self, at: usize) -> Bio {
        self.random = self
            .random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1);
        let sector = Sector((self.random >> 33) / 8 * 8);
        let reader = &self.readers[at];
        Bio {
            cgroup: reader.group,
            flags: reader.flags,
            ..Bio::new(Op::Read, sector, 8)
        }
    }

    /// The number of reads that each group completed since the last call.
    fn take_done(&mut self, groups: usize) -> Vec<u64> {
        let mut done = vec![0; groups + 1];
        for reader in &mut self.readers {
            done[reader.group.0 as usize] += core::mem::take(&mut reader.done);
        }
        done.split_off(1)
    }
}

#[test]
fn weights_divide_the_drive() {
    let mut bench = Bench::new("min=100 max=100");
    bench.cost.set_weight(Nanos::ZERO, CgroupId(1), 100);
    bench.cost.set_weight(Nanos::ZERO, CgroupId(2), 300);
    bench.add(1, 8, 0);
    bench.add(2, 8, 0);
    bench.run(500);
    bench.take_done(2);
    bench.run(4000);
    let done = bench.take_done(2);
    assert!((970..=1030).contains(&done[0]), "{done:?}");
    assert!((2920..=3080).contains(&done[1]), "{done:?}");
    let stat = bench.cost.stat(CgroupId(2));
    assert!(stat.wait_us > 4_000_000, "{stat:?}");
    let used = bench.cost.stat(CgroupId::ROOT).usage_us;
    assert!((4_300_000..=4_600_000).contains(&used), "{used}");
    // A weight written while the group is active takes effect at once.
    let now = Nanos(bench.now_us * 1000);
    bench.cost.set_weight(now, CgroupId(1), 300);
    bench.run(500);
    bench.take_done(2);
    bench.run(2000);
    let done = bench.take_done(2);
    assert!(done.iter().all(|n| (970..=1030).contains(n)), "{done:?}");
}

/// A group without I/O takes no share from the others, whatever its weight is set to.
#[test]
fn the_weight_of_an_idle_group_costs_others_nothing() {
    let mut bench = Bench::new("min=100 max=100");
    bench.add(1, 8, 0);
    bench.cost.make(CgroupId(2));
    bench.run(500);
    let now = Nanos(bench.now_us * 1000);
    bench.cost.set_weight(now, CgroupId(2), 10_000);
    let shares = [1, 2].map(|at| bench.cost.groups[at].active);
    assert_eq!(shares[1], 0, "{shares:?}");
    let (share, share_inuse) = bench.cost.shares(1);
    assert_eq!((share, share_inuse), (WEIGHT_ONE, WEIGHT_ONE));
    bench.take_done(2);
    bench.run(1000);
    let done = bench.take_done(2)[0];
    assert!((970..=1030).contains(&done), "{done}");
}

/// The tree in the kernel's comment: an eighth each, and three quarters.
#[test]
fn groups_inside_a_group_share_what_that_has() {
    let mut bench = Bench::new("min=100 max=100");
    for (group, parent, weight) in [(1, 0, 100), (2, 0, 300), (3, 1, 100), (4, 1, 100)] {
        bench.cost.set_parent(CgroupId(group), CgroupId(parent));
        bench.cost.set_weight(Nanos::ZERO, CgroupId(group), weight);
    }
    for group in [2, 3, 4] {
        bench.add(group, 8, 0);
    }
    bench.run(500);
    bench.take_done(4);
    bench.run(4000);
    let done = bench.take_done(4);
    assert_eq!(done[0], 0);
    assert!((2900..=3100).contains(&done[1]), "{done:?}");
    assert!((470..=530).contains(&done[2]), "{done:?}");
    assert!((470..=530).contains(&done[3]), "{done:?}");
}

/// One of two equal groups needs a tenth of the drive; the other gets the rest.
#[test]
fn what_a_group_does_not_need_is_lent() {
    let mut bench = Bench::new("min=100 max=100");
    bench.add(1, 1, 9_500);
    bench.add(2, 8, 0);
    bench.run(1000);
    bench.take_done(2);
    bench.run(4000);
    let done = bench.take_done(2);
    assert!(
        (380..=402).contains(&done[0]),
        "the lender is held up: {done:?}"
    );
    assert!(done[1] > 3300, "{done:?}");
}

/// A lender that wants its half again has it within two periods.
#[test]
fn what_was_lent_is_taken_back() {
    let mut bench = Bench::new("min=100 max=100");
    bench.add(1, 1, 9_500);
    bench.add(2, 8, 0);
    bench.run(2000);
    bench.add(1, 8, 0);
    bench.run(100);
    bench.take_done(2);
    bench.run(2000);
    let done = bench.take_done(2);
    assert!((930..=1070).contains(&done[0]), "{done:?}");
}

#[test]
fn the_rate_follows_the_drive() {
    let mut bench = Bench::new("min=25 max=400");
    bench.add(1, 16, 0);
    bench.run(4000);
    let [rate, ..] = bench.cost.rates_percent();
    assert!(rate > 150.0, "groups wait, the drive is fast: {rate}");
    bench.latency_us = 20_000;
    bench.run(20_000);
    let [rate, slowest, fastest] = bench.cost.rates_percent();
    assert!(rate < 100.0, "it misses its target of 10 ms: {rate}");
    assert!(slowest <= rate && fastest > 150.0, "{slowest} {fastest}");
    let change = bench.cost.last_change().unwrap();
    assert!(
        change.missed_ppm[0] > 900_000 && change.busy_level > 0,
        "{change:?}"
    );
}

/// A request meets the target of its direction if it takes no longer than that beyond its
/// transfer: for two pages 20.5 us if they are read, and twice as long if they are written
/// (`ioc_rqos_done`, for which a nanosecond has 137 units of virtual time instead of 137.4).
#[test]
fn each_direction_has_its_own_target() {
    for (op, target_us, expected) in [
        (Op::Read, 10_020, Some([500_000, 0])),
        (Op::Write, 20_041, Some([0, 500_000])),
        (Op::Discard, 30_000, None),
    ] {
        let mut bench = Bench::new("wpct=90 wlat=20000 min=100 max=100");
        let mut model = bench.cost.model();
        model.write("rbps=400000000 wbps=200000000").unwrap();
        bench.cost.set_model(model);
        let (part, id) = (BioId::from_index(0), RequestId::from_index(0));
        for us in [target_us, target_us + 1] {
            let asked = Nanos(1_000_000);
            bench.cost.start_tag_wait(asked, part);
            bench.cost.track(id, part);
            let rq = Request::for_bio(&Bio::new(op, Sector(0), 16), asked);
            bench.cost.done(asked + Nanos(us * 1000), id, &rq);
        }
        bench.cost.end_period(Nanos(100_000_000), &mut Vec::new());
        let change = bench.cost.last_change();
        assert_eq!(change.map(|change| change.missed_ppm), expected, "{op:?}");
    }
}

/// Metadata is written at once; the group's other I/O pays for it later.
#[test]
fn what_others_wait_for_becomes_a_debt() {
    let mut bench = Bench::new("min=100 max=100");
    bench.add(1, 4, 0);
    bench.add(2, 4, 0);
    bench.run(1000);
    bench.take_done(2);
    bench.add(1, 2, 2_000);
    for reader in &mut bench.readers[8..] {
        reader.flags = BioFlags::META;
    }
    bench.run(1000);
    let meta: u64 = bench.readers[8..].iter().map(|reader| reader.done).sum();
    assert!(meta >= 760, "not one of them waits: {meta}");
    let done = bench.take_done(2);
    assert!(done[0] - meta < 50, "the others pay: {done:?}, {meta}");
    assert!(bench.cost.stat(CgroupId(1)).debt_us > 800_000);
    bench.readers.truncate(8);
    bench.run(3000);
    bench.take_done(2);
    bench.run(2000);
    let done = bench.take_done(2);
    assert!((900..=1100).contains(&done[0]), "it is paid: {done:?}");
    let delay_us = bench.cost.stat(CgroupId(1)).delay_us;
    assert!(delay_us > 100_000, "its tasks were slowed down: {delay_us}");
}

#[test]
fn the_root_and_a_drive_without_costs_are_left_alone() {
    let mut bench = Bench::new("min=100 max=100");
    bench.add(0, 16, 0);
    bench.run(1000);
    let done: u64 = bench.readers.iter().map(|reader| reader.done).sum();
    assert!(done > 20_000, "{done}");
    let mut qos = bench.cost.qos();
    qos.write("enable=0").unwrap();
    bench.cost.set_qos(qos);
    bench.readers.clear();
    bench.add(1, 16, 0);
    bench.run(1000);
    assert!(bench.take_done(1)[0] > 20_000);
    assert_eq!(bench.cost.stat(CgroupId(1)), CostStat::default());
}

/// A request meets its target if it took no longer than that beside the transfer of its data
/// (`ioc_rqos_done`): at 400 MB/s, 10 us for each 4 KiB.
#[test]
fn large_requests_have_the_time_of_their_transfer_beside_the_target() {
    let misses = |sectors, took_us: u64| {
        let mut bench = Bench::new("min=100 max=100");
        let (part, id) = (BioId::from_index(0), RequestId::from_index(0));
        let asked_at = Nanos(1_000_000);
        bench.cost.start_tag_wait(asked_at, part);
        bench.cost.track(id, part);
        let rq = Request::for_bio(&Bio::new(Op::Read, Sector(0), sectors), asked_at);
        bench.cost.done(Nanos(asked_at.0 + took_us * 1000), id, &rq);
        bench.cost.end_period(Nanos::from_secs(1), &mut Vec::new());
        let change = bench.cost.last_change();
        change.is_some_and(|change| change.missed_ppm == [1_000_000, 0])
    };
    for (sectors, within_us) in [(8, 10_010), (2048, 12_620)] {
        assert!(!misses(sectors, within_us), "{sectors}");
        assert!(misses(sectors, within_us + 20), "{sectors}");
    }
}

/// Two equal groups, both active.
pub(super) fn two_active() -> (IoCost, Now) {
    let mut bench = Bench::new("min=100 max=100");
    let now = bench.cost.now(Nanos(1_000_000));
    for group in [1, 2] {
        bench.cost.make(CgroupId(group));
        assert!(bench.cost.activate(group.into(), now));
    }
    (bench.cost, now)
}

/// A lender whose budget becomes short takes back its weight by quarters until it can pay, or all
/// of it (`adjust_inuse_and_calc_cost`).
#[test]
fn a_lender_takes_back_as_much_as_it_needs() {
    // The cost of the I/O in percent of the budget, at a share of an eleventh; what the lender
    // then has in use, in percent of its weight.
    for (cost_percent, inuse_percent) in [(55, 10), (65, 35), (200, 35), (400, 60), (660, 100)] {
        let (mut cost, now) = two_active();
        let active = cost.groups[1].active;
        cost.propagate(1, active, active / 10, Some(now));
        cost.commit_weights();
        let (vtime, budget) = (cost.groups[1].vtime, cost.period.margin_target());
        assert_eq!(ahead(now.vtime, vtime) as u64, budget);
        let abs_cost = budget * cost_percent / 1100;
        let found = cost.adjust_inuse(1, vtime, abs_cost, now);
        let inuse = u64::from(cost.groups[1].inuse) * 100;
        let of_active = inuse.div_ceil(active.into());
        assert_eq!(of_active, inuse_percent, "{cost_percent}");
        assert_eq!(found, cost_of_share(abs_cost, cost.shares(1).1));
        assert_eq!(found > budget, cost_percent == 660, "{cost_percent}");
    }
}

/// Neither a group that lends nothing nor one in debt, which lends everything, takes anything back.
#[test]
fn only_a_lender_without_debt_takes_back_weight() {
    let (mut cost, now) = two_active();
    let active = cost.groups[1].active;
    cost.groups[1].abs_debt = 1;
    cost.propagate(1, active, 0, Some(now));
    cost.commit_weights();
    let abs_cost = 2 * cost.period.margin_target();
    for group in [1, 2] {
        cost.groups[group].saved_margin = i64::MAX;
        let (vtime, before) = (cost.groups[group].vtime, cost.shares(group));
        let found = cost.adjust_inuse(group, vtime, abs_cost, now);
        assert_eq!(found, cost_of_share(abs_cost, before.1));
        assert_eq!(cost.shares(group), before);
        assert_eq!(cost.groups[group].saved_margin, i64::MAX);
    }
}

/// After lending each lender has what it kept, and what is left over makes the shares of all others
/// grow by the same factor (the invariant of `transfer_surpluses`).
#[test]
fn what_is_lent_goes_to_all_others_in_proportion() {
    let near = |found: u32, expected: f64| (f64::from(found) - expected).abs() < 8.0;
    let one = f64::from(WEIGHT_ONE);
    let leaves = [2, 3, 4, 5];
    for lenders in [&[2][..], &[3], &[2, 3], &[3, 4], &[2, 3, 4], &[2, 5]] {
        let mut cost = Bench::new("min=100 max=100").cost;
        for (group, parent, weight) in [
            (1, 0, 200),
            (2, 0, 100),
            (3, 1, 100),
            (4, 1, 300),
            (5, 0, 50),
        ] {
            cost.set_parent(CgroupId(group), CgroupId(parent));
            cost.set_weight(Nanos::ZERO, CgroupId(group), weight);
        }
        let now = cost.now(Nanos(1_000_000));
        assert!(leaves.iter().all(|&leaf| cost.activate(leaf, now)));
        let before = leaves.map(|leaf| cost.shares(leaf).0);
        for (nth, &at) in lenders.iter().enumerate() {
            let share = cost.shares(at).0;
            cost.groups[at].share_donating = share;
            cost.groups[at].share_after_donation = share / (3 + nth as u32);
        }
        let sum = |of: fn(&Group) -> u32, cost: &IoCost| -> f64 {
            lenders
                .iter()
                .map(|&at| f64::from(of(&cost.groups[at])))
                .sum()
        };
        let kept = sum(|group| group.share_after_donation, &cost);
        let growth = (one - kept) / (one - sum(|group| group.share_donating, &cost));
        cost.transfer_surpluses(lenders, now);
        cost.commit_weights();
        for (leaf, before) in leaves.into_iter().zip(before) {
            let expected = match lenders.contains(&leaf) {
                true => f64::from(cost.groups[leaf].share_after_donation),
                false => f64::from(before) * growth,
            };
            let (active, inuse) = cost.shares(leaf);
            assert_eq!(active, before, "its own share stays");
            assert!(
                near(inuse, expected),
                "{lenders:?} {leaf}: {inuse} of {expected}"
            );
        }
    }
}

/// What a lender needs for the next period follows from what it used in this one and from its
/// budget left (`hweight_after_donation`).
#[test]
fn a_lender_keeps_what_it_used_less_its_spare_budget() {
    let (most, used) = (WEIGHT_ONE / 2, WEIGHT_ONE / 10);
    // The budget left, in percent of the period, and the share that it keeps of what it used.
    for (left_percent, kept_percent) in [(75, 100), (50, 100), (25, 133), (12, 161)] {
        let (mut cost, start) = two_active();
        let length_us = cost.period.vtime() / cost.period.base_rate();
        let end = cost.now(Nanos(start.ns + length_us * 1000));
        let left = cost.period.vtime() * left_percent / 100;
        cost.groups[1].vtime = end.vtime.wrapping_sub(left);
        let kept = cost.share_after_donation(1, (most, most), used, end);
        assert_eq!(kept * 100 / used, kept_percent, "{left_percent}");
        // Budget beyond half a period is lost.
        let left = ahead(end.vtime, cost.groups[1].vtime);
        assert!(left <= cost.period.margin_target() as i64);
        // One without budget lends nothing, and one in debt all.
        cost.groups[1].vtime = end.vtime;
        let kept = cost.share_after_donation(1, (most, most), used, end);
        assert_eq!(kept, most);
        cost.groups[1].abs_debt = 1;
        assert_eq!(cost.share_after_donation(1, (most, most), used, end), 1);
    }
}

/// A group's budget pays its debt first, and the bios that wait only from the rest
/// (`iocg_kick_waitq`); its time is never ahead of the drive's.
#[test]
fn what_pays_a_debt_pays_for_no_bio() {
    const BIO_PERCENT: u64 = 30;
    for debt_percent in [0, 5, 15, 35, 50, 75, 95, 120, 1_000] {
        let (mut cost, now) = two_active();
        let share = cost.shares(1).0;
        let budget = ahead(now.vtime, cost.groups[1].vtime) as u64;
        let of_budget = |percent: u64| abs_cost_of(budget * percent / 100, share);
        // The weight that a group gets back with its debt paid is that before the debt.
        cost.groups[1].last_inuse = cost.groups[1].active;
        cost.incur_debt(1, of_budget(debt_percent), now);
        for ticket in 0..4 {
            cost.groups[1].waiting.push_back(Waiting {
                ticket,
                part: BioId::from_index(ticket as usize),
                abs_cost: of_budget(BIO_PERCENT),
            });
        }
        let mut woken = Vec::new();
        cost.kick(1, true, now, &mut woken);
        let left = 100u64.saturating_sub(debt_percent);
        let released: Vec<u64> = (0..left / BIO_PERCENT).collect();
        assert_eq!(woken, released, "{debt_percent} %");
        assert!(ahead(now.vtime, cost.groups[1].vtime) >= 0);
        let owed = of_budget(debt_percent.saturating_sub(100));
        let is_paid = cost.groups[1].abs_debt.abs_diff(owed) <= 1;
        assert!(is_paid, "{debt_percent} %: {}", cost.groups[1].abs_debt);
    }
}

/// A lender whose bio has to wait takes back all that it lent, but for one in debt, which lends
/// everything until that is paid (`ioc_rqos_throttle`).
#[test]
fn a_lender_that_has_to_wait_lends_nothing() {
    for (debt, lends) in [(0, false), (1, true)] {
        let (mut cost, now) = two_active();
        let active = cost.groups[1].active;
        cost.propagate(1, active, active / 10, Some(now));
        cost.commit_weights();
        // Without budget nothing can be paid.
        cost.groups[1].vtime = now.vtime;
        (cost.groups[1].abs_debt, cost.groups[1].saved_margin) = (debt, i64::MIN);
        let bio = Bio {
            cgroup: CgroupId(1),
            ..Bio::new(Op::Read, Sector(0), 8)
        };
        let part = BioId::from_index(0);
        let goes = cost.throttle(Nanos(now.ns), (&bio, part), 0, &mut Vec::new());
        assert!(!goes && cost.is_held(0));
        assert_eq!(cost.groups[1].inuse < active, lends, "{debt}");
    }
}

/// Each time in debt adds to the group's statistics.
#[test]
fn times_in_debt_add_up() {
    let (mut cost, now) = two_active();
    let at = |cost: &IoCost, us: u64| cost.now(Nanos((now.us + us) * 1000));
    let mut expected = 0;
    for (began_us, ended_us) in [(0, 300), (1_000, 1_050), (2_000, 5_000)] {
        let (began, ended) = (at(&cost, began_us), at(&cost, ended_us));
        cost.incur_debt(1, 1_000, began);
        cost.incur_debt(1, 500, at(&cost, began_us + 10));
        cost.pay_debt(1, 1_499, at(&cost, began_us + 20));
        assert_eq!(cost.stat(CgroupId(1)).debt_us, expected, "some is left");
        cost.pay_debt(1, 1, ended);
        expected += ended_us - began_us;
        assert_eq!(cost.stat(CgroupId(1)).debt_us, expected);
    }
}

/// A merged bio moves the place from which its group's next I/O is sequential only if it continues
/// the group's last one (`ioc_rqos_merge`).
#[test]
fn only_a_merge_behind_the_last_io_moves_the_cursor() {
    // The request's sectors before the merge, the bio's first sector, and the cursor after it.
    for ([start, end], sector, cursor) in [
        ([1_000, 1_008], 1_008, 1_016),
        ([1_000, 1_004], 1_004, 1_008),
        ([1_008, 1_016], 1_000, 1_008),
        ([1_000, 1_008], 984, 1_008),
    ] {
        let (mut cost, now) = two_active();
        cost.groups[1].cursor = 1_008;
        let bio = Bio {
            cgroup: CgroupId(1),
            ..Bio::new(Op::Read, Sector(sector), 8)
        };
        let (part, first) = (BioId::from_index(1), BioId::from_index(0));
        cost.merge(Nanos(now.ns), (&bio, part), first, [start, end]);
        assert_eq!(cost.groups[1].cursor, cursor, "{start} {end} {sector}");
    }
}

/// The delay of a group in debt grows evenly from 250 us at 5 periods to 250 ms at 250 periods
/// (`iocg_kick_delay`).
#[test]
fn delays_follow_the_debt() {
    for (periods, delay_us) in [
        (0, 0),
        (5, 0),
        (6, 250 + 249_750 * 100 / 24_500),
        (100, 250 + 249_750 * 9_500 / 24_500),
        (250, 250_000),
        (1_000, 250_000),
    ] {
        let (mut cost, now) = two_active();
        let owed = cost.period.vtime() * periods;
        cost.groups[1].vtime = now.vtime;
        cost.groups[1].abs_debt = abs_cost_of(owed, cost.shares(1).0);
        cost.kick_delay(1, now);
        assert_eq!(cost.groups[1].delay_us, delay_us, "{periods}");
    }
}

/// A delay is halved each second, and ends below 250 us.
#[test]
fn delays_fade() {
    let (mut cost, now) = two_active();
    (cost.groups[1].delay_us, cost.groups[1].delay_at_us) = (1_000, now.us);
    for (second, delay_us, delayed_us) in [(0, 1_000, 0), (2, 1_000, 0), (3, 0, 3_000_000)] {
        let now = cost.now(Nanos(now.ns) + Nanos::from_secs(second));
        cost.groups[1].vtime = now.vtime;
        cost.kick_delay(1, now);
        let group = &cost.groups[1];
        assert_eq!(
            (group.delay_us, group.stat.delay_us),
            (delay_us, delayed_us)
        );
    }
}

/// A debt that asks for the delay that is in effect does not renew it (`iocg_kick_delay`).
#[test]
fn an_equal_delay_goes_on_fading() {
    let (mut cost, start) = two_active();
    let now = cost.now(Nanos(start.ns) + Nanos::from_millis(1_500));
    let owed = cost.period.vtime() * 1_000;
    let debt = abs_cost_of(owed, cost.shares(1).0);
    let group = &mut cost.groups[1];
    (group.vtime, group.abs_debt) = (now.vtime, debt);
    // A second and a half ago it was twice what such a debt asks for.
    (group.delay_us, group.delay_at_us) = (500_000, start.us);
    cost.kick_delay(1, now);
    let group = &cost.groups[1];
    let found = (group.delay_us, group.delay_at_us);
    assert_eq!(found, (500_000, start.us));
}

/// Debts and delays are halved as often as told, and nothing owed is forgotten whole.
#[test]
fn forgiving_halves_debts_and_delays() {
    for (debt, delay_us, halvings, left) in [
        (1 << 20, 0, 1, (1 << 19, 0)),
        (1 << 20, 0, 3, (1 << 17, 0)),
        (1 << 20, 0, 200, (1, 0)),
        (0, 0, 5, (0, 0)),
        (1 << 20, 1_000, 2, (1 << 18, 250)),
        (0, 1_000, 1, (0, 500)),
    ] {
        let (mut cost, now) = two_active();
        // It has used up its budget, so it pays back nothing.
        let group = &mut cost.groups[1];
        group.vtime = now.vtime;
        (group.abs_debt, group.delay_us, group.delay_at_us) = (debt, delay_us, now.us);
        cost.forgive(halvings, now, &mut Vec::new());
        let group = &cost.groups[1];
        assert_eq!((group.abs_debt, group.delay_us), left, "{debt} {delay_us}");
    }
}

/// The shares of active groups always add up to the whole drive, and no weight in use exceeds the
/// active weight.
mod random {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn shares_stay_a_whole(
            parents in proptest::collection::vec(0u16..4, 4),
            weights in proptest::collection::vec(1u32..10_000, 4),
            loads in proptest::collection::vec((0usize..5, 0u64..20_000), 4),
            latency_us in 100u64..30_000,
        ) {
            let mut bench = Bench::new("min=1 max=10000");
            for at in 0..4u16 {
                // A group's parent has a lower number than the group.
                let parent = parents[at as usize].min(at);
                bench.cost.set_parent(CgroupId(at + 1), CgroupId(parent));
                let weight = weights[at as usize];
                bench.cost.set_weight(Nanos::ZERO, CgroupId(at + 1), weight);
                let (processes, pause_us) = loads[at as usize];
                bench.add(at + 1, processes, pause_us);
            }
            bench.latency_us = latency_us;
            for _ in 0..20 {
                bench.run(50);
                let active = bench.cost.active.clone();
                let mut sums = [0u64; 2];
                for at in active {
                    let group = &bench.cost.groups[at];
                    prop_assert!(group.inuse <= group.active && group.active == group.weight);
                    prop_assert!(group.inuse > 0);
                    let (active, inuse) = bench.cost.shares(at);
                    sums[0] += u64::from(active);
                    sums[1] += u64::from(inuse);
                }
                prop_assert!(sums.iter().all(|sum| *sum <= u64::from(WEIGHT_ONE) + 4), "{:?}", sums);
            }
        }
    }
}
