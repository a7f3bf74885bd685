//! Latency targets of control groups, `io.latency` (`block/blk-iolatency.c`).
//!
//! Each group measures how long its bios take. If a group misses its target, its siblings with a
//! larger target or none are throttled: the number of bios that they may have in flight is halved
//! at each miss. Once the target is met again the limit grows by a sixteenth of the queue at a
//! time. The parent of the group counts these steps in a cookie; each child compares it with the
//! value that it saw last when it submits.

use alloc::vec;
use alloc::vec::Vec;

use super::RqWait;
use super::stat::wheel_timer;
use crate::bio::{Bio, BioFlags, CgroupId};
use crate::request::{BioId, IoStatus};
use crate::units::{HZ, Nanos};

/// The cookie value at which no group is throttled (`DEFAULT_SCALE_COOKIE`).
const DEFAULT_COOKIE: u64 = 1_000_000;
/// Bounds of a window, which is sixteen targets long.
const WINDOW_NS: [u64; 2] = [100_000_000, 1_000_000_000];
/// The shortest time between two changes of a parent's cookie.
const ADJUST_NS: u64 = 500_000_000;
/// Windows with fewer bios than this cannot show that the target is met.
const GOOD_SAMPLES: u64 = 5;
/// A group that caused throttling and has been idle for this long is forgotten.
const FORGET_NS: u64 = 5_000_000_000;
/// A group with no more than this percentage of all bios is not throttled.
const SMALL_PERCENT: u64 = 5;
/// On a drive without moving parts a target is met if fewer than one in this many bios miss it.
const MISSES_OF: u64 = 10;

/// Parses a write to `io.latency`, without the drive's number. Returns the target in microseconds;
/// 0 for none.
///
/// # Errors
/// If the kernel refuses it; the message says why.
pub fn parse_io_latency(text: &str) -> Result<u64, alloc::string::String> {
    let mut target_us = 0;
    for word in text.split_whitespace() {
        target_us = match word.split_once('=') {
            Some(("target", "max")) => 0,
            Some(("target", value)) => value.parse().map_err(|_| {
                alloc::format!("target takes microseconds or max, not {value:?} (EINVAL)")
            })?,
            _ => {
                return Err(alloc::format!(
                    "{word:?} is not target=MICROSECONDS or target=max (EINVAL)"
                ));
            }
        };
    }
    Ok(target_us)
}

/// Latencies in a window (`struct latency_stat`): their mean decides on rotational drives, the
/// number of misses on others.
#[derive(Clone, Copy, Debug, Default)]
struct Latencies {
    count: u64,
    missed: u64,
    sum_ns: u64,
}

impl Latencies {
    fn add(&mut self, other: &Latencies) {
        self.count += other.count;
        self.missed += other.missed;
        self.sum_ns += other.sum_ns;
    }

    fn are_ok(&self, target_ns: u64, rotational: bool) -> bool {
        match rotational {
            true => self.sum_ns / self.count.max(1) <= target_ns,
            false => self.missed < (self.count / MISSES_OF).max(1),
        }
    }
}

/// State of a group that its children share (`struct child_latency_info`).
#[derive(Clone, Copy, Debug)]
struct ChildLatency {
    cookie: u64,
    changed_at: Nanos,
    /// The target that was missed, and the group that missed it.
    missed_ns: u64,
    asked_by: Option<CgroupId>,
    /// Number of bios of all children in the last window.
    samples: u64,
}

impl Default for ChildLatency {
    fn default() -> ChildLatency {
        ChildLatency {
            cookie: DEFAULT_COOKIE,
            changed_at: Nanos::ZERO,
            missed_ns: 0,
            asked_by: None,
            samples: 0,
        }
    }
}

/// A group (`struct iolatency_grp`).
#[derive(Debug)]
struct Group {
    parent: CgroupId,
    /// The target in nanoseconds; 0 for none.
    target_ns: u64,
    window_ns: u64,
    window_start: Nanos,
    places: RqWait<()>,
    max_depth: u32,
    /// How often it should have been throttled further but was at a depth of 1.
    delays: u32,
    cookie: u64,
    child_lat: ChildLatency,
    samples: u64,
    latencies: Latencies,
    /// Latencies since the last change of the cookie.
    since_change: Latencies,
}

impl Group {
    fn new() -> Group {
        Group {
            parent: CgroupId::ROOT,
            target_ns: 0,
            window_ns: WINDOW_NS[0],
            window_start: Nanos::ZERO,
            places: RqWait::default(),
            max_depth: u32::MAX,
            delays: 0,
            cookie: DEFAULT_COOKIE,
            child_lat: ChildLatency::default(),
            samples: 0,
            latencies: Latencies::default(),
            since_change: Latencies::default(),
        }
    }
}

/// Data recorded when a bio was submitted.
#[derive(Clone, Copy, Debug)]
struct Submitted {
    at: Nanos,
    group: CgroupId,
    /// Whether it passes unthrottled because other groups may wait for it.
    issue_as_root: bool,
}

/// The latency targets of one drive's groups (`struct blk_iolatency`).
#[derive(Debug)]
pub struct IoLatency {
    groups: Vec<Group>,
    rotational: bool,
    nr_requests: u32,
    timer: Option<Nanos>,
    bios: Vec<Option<Submitted>>,
}

impl IoLatency {
    /// Returns a state in which no group has a target.
    pub fn new(rotational: bool, nr_requests: u32) -> IoLatency {
        IoLatency {
            groups: vec![Group::new()],
            rotational,
            nr_requests,
            timer: None,
            bios: Vec::new(),
        }
    }

    /// Sets the parent of a group, which is the root by default.
    pub fn set_parent(&mut self, group: CgroupId, parent: CgroupId) {
        self.make(parent);
        self.make(group).parent = parent;
    }

    /// Writes a group's `io.latency`, in microseconds; 0 for none.
    pub fn set_target(&mut self, group: CgroupId, target_us: u64) {
        let this = self.make(group);
        let target_ns = target_us.saturating_mul(1000);
        let is_new = target_ns != this.target_ns;
        this.target_ns = target_ns;
        this.window_ns = target_ns
            .saturating_mul(16)
            .clamp(WINDOW_NS[0], WINDOW_NS[1]);
        let parent = this.parent;
        if is_new {
            let child_lat = &mut self.make(parent).child_lat;
            *child_lat = ChildLatency {
                samples: child_lat.samples,
                ..ChildLatency::default()
            };
        }
    }

    fn make(&mut self, group: CgroupId) -> &mut Group {
        let at = group.0 as usize;
        if self.groups.len() <= at {
            self.groups.resize_with(at + 1, Group::new);
        }
        &mut self.groups[at]
    }

    fn at(&mut self, group: CgroupId) -> &mut Group {
        &mut self.groups[group.0 as usize]
    }

    /// The most bios that a group may have in flight; `None` for no limit.
    pub fn max_depth(&self, group: CgroupId) -> Option<u32> {
        let depth = self.groups.get(group.0 as usize)?.max_depth;
        (depth != u32::MAX).then_some(depth)
    }

    fn is_enabled(&self) -> bool {
        self.groups.iter().any(|group| group.target_ns > 0)
    }

    /// Counts a bio in its group and in each group above it (`blkcg_iolatency_throttle`). Returns
    /// the first group at its limit, in which the submitter waits under `ticket`;
    /// [`IoLatency::resume`] then continues with the groups above.
    pub(super) fn throttle(
        &mut self,
        now: Nanos,
        (bio, part): (&Bio, BioId),
        ticket: u64,
        woken: &mut Vec<u64>,
    ) -> Option<CgroupId> {
        let at = part.index();
        if self.bios.len() <= at {
            self.bios.resize(at + 1, None);
        }
        self.bios[at] = None;
        if !self.is_enabled() || bio.cgroup.0 as usize >= self.groups.len() {
            return None;
        }
        let issue_as_root = bio.flags.has(BioFlags::META);
        self.bios[at] = Some(Submitted {
            at: now,
            group: bio.cgroup,
            issue_as_root,
        });
        self.take_places(now, bio.cgroup, issue_as_root, ticket, woken)
    }

    /// Continues a woken bio with the groups above the one that it waited in. Returns the group in
    /// which it must wait again.
    pub(super) fn resume(
        &mut self,
        now: Nanos,
        part: BioId,
        waited_in: CgroupId,
        ticket: u64,
        woken: &mut Vec<u64>,
    ) -> Option<CgroupId> {
        let submitted = self.bios.get(part.index()).copied().flatten();
        let issue_as_root = submitted.is_some_and(|submitted| submitted.issue_as_root);
        let above = self.at(waited_in).parent;
        self.take_places(now, above, issue_as_root, ticket, woken)
    }

    fn take_places(
        &mut self,
        now: Nanos,
        mut group: CgroupId,
        issue_as_root: bool,
        ticket: u64,
        woken: &mut Vec<u64>,
    ) -> Option<CgroupId> {
        while group != CgroupId::ROOT {
            self.follow_cookie(group, woken);
            let this = self.at(group);
            if issue_as_root {
                this.places.in_flight += 1;
            } else if !this.places.wait(this.max_depth, ticket, ()) {
                return Some(group);
            }
            group = this.parent;
        }
        if self.timer.is_none() {
            self.timer = Some(wheel_timer(now, HZ));
        }
        None
    }

    pub(super) fn is_held(&self, ticket: u64) -> bool {
        let mut waiting = self.groups.iter().flat_map(|group| &group.places.waiting);
        waiting.any(|held| held.0 == ticket)
    }

    /// Changes the depth of a group if its parent's cookie has changed since the group last looked
    /// (`check_scale_change`).
    fn follow_cookie(&mut self, group: CgroupId, woken: &mut Vec<u64>) {
        let parent = self.at(group).parent;
        let child_lat = self.at(parent).child_lat;
        let nr_requests = self.nr_requests;
        let this = self.at(group);
        let before = core::mem::replace(&mut this.cookie, child_lat.cookie);
        if child_lat.cookie == before {
            return;
        }
        let is_down = child_lat.cookie < before;
        if is_down && this.target_ns > 0 {
            if child_lat.missed_ns == 0 || this.target_ns <= child_lat.missed_ns {
                return;
            }
            // A group with few bios is not the cause of the missed target.
            let few = (child_lat.samples * SMALL_PERCENT / 100).max(1);
            if this.samples <= few {
                return;
            }
        }
        if this.max_depth == 1 && is_down {
            this.delays += 1;
            return;
        }
        if child_lat.cookie == DEFAULT_COOKIE {
            this.delays = 0;
            this.max_depth = u32::MAX;
            this.places.wake_all(|()| u32::MAX, woken);
            return;
        }
        let depth = this.max_depth.min(nr_requests);
        if is_down {
            this.max_depth = (depth >> 1).max(1);
        } else if depth == 1 && this.delays > 0 {
            this.delays -= 1;
        } else if depth < nr_requests {
            let depth = (depth + step(nr_requests.into(), true) as u32).min(nr_requests);
            this.max_depth = depth;
            this.places.wake_all(|()| depth, woken);
        }
    }

    /// Records a completed or abandoned bio (`blkcg_iolatency_done_bio`).
    pub(super) fn done_bio(
        &mut self,
        now: Nanos,
        part: BioId,
        status: IoStatus,
        woken: &mut Vec<u64>,
    ) {
        let submitted = self.bios.get_mut(part.index()).and_then(Option::take);
        let Some(submitted) = submitted else {
            return;
        };
        let mut group = submitted.group;
        while group != CgroupId::ROOT {
            let this = self.at(group);
            this.places.in_flight = this.places.in_flight.saturating_sub(1);
            if this.target_ns > 0 && status != IoStatus::WouldBlock {
                this.record(now, &submitted);
                let window_ns = now.saturating_sub(this.window_start).0;
                if window_ns >= this.window_ns {
                    this.window_start = now;
                    self.check(now, group);
                }
            }
            let this = self.at(group);
            let depth = this.max_depth;
            this.places.wake_all(|()| depth, woken);
            group = this.parent;
        }
    }

    /// Ends a group's window (`iolatency_check_latencies`).
    fn check(&mut self, now: Nanos, group: CgroupId) {
        let rotational = self.rotational;
        let nr_requests = self.nr_requests.into();
        let parent = self.at(group).parent;
        let mut child_lat = self.at(parent).child_lat;
        let this = self.at(group);
        let window = core::mem::take(&mut this.latencies);
        let is_ok = |latencies: &Latencies| latencies.are_ok(this.target_ns, rotational);
        if is_ok(&window) && child_lat.cookie == DEFAULT_COOKIE {
            return;
        }
        this.since_change.add(&window);
        let samples = this.since_change.count;
        child_lat.samples = child_lat.samples.saturating_sub(this.samples) + samples;
        this.samples = samples;
        let waited_ns = now.saturating_sub(child_lat.changed_at).0;
        let is_soon = child_lat.changed_at > Nanos::ZERO && waited_ns < ADJUST_NS;
        let all_ok = is_ok(&this.since_change) && is_ok(&window);
        if is_soon || all_ok && samples < GOOD_SAMPLES {
            self.at(parent).child_lat = child_lat;
            return;
        }
        this.since_change = Latencies::default();
        let target_ns = this.target_ns;
        if all_ok {
            if child_lat.asked_by == Some(group) {
                child_lat.changed_at = now;
                child_lat.cookie = cookie_after(child_lat.cookie, nr_requests, true);
            }
        } else if child_lat.missed_ns == 0 || child_lat.missed_ns >= target_ns {
            child_lat.changed_at = now;
            if child_lat.asked_by.is_none() || child_lat.missed_ns > target_ns {
                child_lat.missed_ns = target_ns;
                child_lat.asked_by = Some(group);
            }
            child_lat.cookie = cookie_after(child_lat.cookie, nr_requests, false);
        }
        self.at(parent).child_lat = child_lat;
    }

    pub(super) fn next_timer(&self) -> Nanos {
        self.timer.unwrap_or(Nanos::MAX)
    }

    /// Once a second, undoes throttling for groups that have become idle (`blkiolatency_timer_fn`).
    pub(super) fn timer(&mut self, now: Nanos) {
        if self.timer.take_if(|due| *due <= now).is_none() {
            return;
        }
        let nr_requests = self.nr_requests.into();
        for group in &mut self.groups {
            let child_lat = &mut group.child_lat;
            if child_lat.cookie >= DEFAULT_COOKIE {
                continue;
            }
            if child_lat.asked_by.is_none() {
                child_lat.cookie = cookie_after(child_lat.cookie, nr_requests, true);
            } else if now.saturating_sub(child_lat.changed_at).0 >= FORGET_NS {
                child_lat.asked_by = None;
            }
        }
    }
}

impl Group {
    /// Records a bio's latency. An unthrottled bio says nothing about a group that is throttled.
    fn record(&mut self, now: Nanos, submitted: &Submitted) {
        let latency_ns = now.saturating_sub(submitted.at).0;
        if latency_ns == 0 || submitted.issue_as_root && self.max_depth != u32::MAX {
            return;
        }
        self.latencies.add(&Latencies {
            count: 1,
            missed: (latency_ns >= self.target_ns) as u64,
            sum_ns: latency_ns,
        });
    }
}

/// The change of depth for a queue of this many requests: a sixteenth up, a quarter down.
fn step(nr_requests: u64, is_up: bool) -> u64 {
    (nr_requests >> if is_up { 4 } else { 2 }).max(1)
}

/// Returns the cookie after a change. Steps up are smaller than steps down, and the cookie never
/// falls more than twice the queue below the default (`scale_cookie_change`).
fn cookie_after(cookie: u64, nr_requests: u64, is_up: bool) -> u64 {
    let step = step(nr_requests, is_up);
    let below = DEFAULT_COOKIE.saturating_sub(cookie);
    match is_up {
        true if cookie + step > DEFAULT_COOKIE => DEFAULT_COOKIE,
        true if below > nr_requests => cookie + 1,
        true => cookie + step,
        false if below <= nr_requests => cookie.saturating_sub(step),
        false if below < 2 * nr_requests => cookie - 1,
        false => cookie,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bio::Op;
    use crate::units::Sector;

    const MS: u64 = 1_000_000;
    const FAST: CgroupId = CgroupId(1);
    const SLOW: CgroupId = CgroupId(2);

    fn bio(cgroup: CgroupId) -> Bio {
        Bio {
            cgroup,
            ..Bio::new(Op::Read, Sector(0), 8)
        }
    }

    fn part(n: usize) -> BioId {
        BioId::from_index(n)
    }

    /// Submits a bio of this group and completes it after `took_ms`.
    fn runs(latency: &mut IoLatency, group: CgroupId, now_ms: u64, took_ms: u64) {
        let (mut woken, now) = (Vec::new(), Nanos(now_ms * MS));
        let held = latency.throttle(now, (&bio(group), part(0)), 1, &mut woken);
        assert_eq!(held, None);
        let ended = Nanos((now_ms + took_ms) * MS);
        latency.done_bio(ended, part(0), IoStatus::Ok, &mut woken);
    }

    /// A drive on which a group has a target of 2 ms and its sibling none.
    fn with_target(nr_requests: u32) -> IoLatency {
        let mut latency = IoLatency::new(false, nr_requests);
        latency.set_target(FAST, 2_000);
        latency.set_parent(SLOW, CgroupId::ROOT);
        latency
    }

    /// The same after the target was missed this many times.
    fn after_misses(nr_requests: u32, misses: u64) -> IoLatency {
        let mut latency = with_target(nr_requests);
        for n in 0..misses {
            runs(&mut latency, FAST, 1000 + 600 * n, 10);
            runs(&mut latency, SLOW, 1011 + 600 * n, 1);
        }
        latency
    }

    #[test]
    fn a_missed_target_halves_what_others_may_have() {
        let mut latency = with_target(64);
        assert_eq!(latency.max_depth(SLOW), None);
        let mut depths = Vec::new();
        for n in 0..6 {
            runs(&mut latency, FAST, 1000 + 600 * n, 10);
            runs(&mut latency, SLOW, 1011 + 600 * n, 1);
            depths.push(latency.max_depth(SLOW).unwrap());
        }
        assert_eq!(depths, [32, 16, 8, 4, 2, 1]);
        assert_eq!(latency.max_depth(FAST), None, "it protects itself not");
    }

    #[test]
    fn a_new_target_forgets_who_missed_the_old_one() {
        let mut latency = after_misses(4, 2);
        let asked_by = |latency: &IoLatency| latency.groups[0].child_lat.asked_by;
        assert_eq!(asked_by(&latency), Some(FAST));
        latency.set_target(FAST, 2_000);
        assert_eq!(asked_by(&latency), Some(FAST), "it is the same target");
        latency.set_target(FAST, 3_000);
        assert_eq!(asked_by(&latency), None);
    }

    /// Others make room for the smallest target that is missed, and only the group that has it
    /// takes more or gives back (`iolatency_check_latencies`).
    #[test]
    fn the_smallest_target_that_is_missed_decides() {
        const STRICT: CgroupId = CgroupId(3);
        let mut latency = with_target(64);
        latency.set_target(FAST, 5_000);
        latency.set_target(STRICT, 2_000);
        let mut after = |group, now_ms, took_ms| {
            runs(&mut latency, group, now_ms, took_ms);
            let root = &latency.groups[0].child_lat;
            (
                root.asked_by,
                root.missed_ns / 1_000,
                DEFAULT_COOKIE - root.cookie,
            )
        };
        assert_eq!(after(FAST, 1_000, 10), (Some(FAST), 5_000, 16));
        assert_eq!(after(STRICT, 2_000, 10), (Some(STRICT), 2_000, 32));
        assert_eq!(after(FAST, 3_000, 10), (Some(STRICT), 2_000, 32));
        assert_eq!(after(STRICT, 4_000, 10), (Some(STRICT), 2_000, 48));
    }

    /// Runs bios of a group, ending at these times, and returns how far the cookie is below its
    /// default after each.
    fn cookie_below<const COUNT: usize>(
        latency: &mut IoLatency,
        took_ms: u64,
        ends_ms: [u64; COUNT],
    ) -> [u64; COUNT] {
        ends_ms.map(|end_ms| {
            runs(latency, FAST, end_ms - took_ms, took_ms);
            DEFAULT_COOKIE - latency.groups[0].child_lat.cookie
        })
    }

    /// Between two changes is at least half a second (`BLKIOLATENCY_MIN_ADJUST_TIME`).
    #[test]
    fn misses_within_half_a_second_count_once() {
        for (ends_ms, below) in [
            ([110, 300, 609], [16, 16, 16]),
            ([110, 300, 610], [16, 16, 32]),
        ] {
            let mut latency = with_target(64);
            assert_eq!(cookie_below(&mut latency, 10, ends_ms), below);
        }
    }

    /// A change back needs five bios since the last change, all but a tenth of which have met the
    /// target (`BLKIOLATENCY_MIN_GOOD_SAMPLES`, `latency_sum_ok`).
    #[test]
    fn what_was_seen_since_the_last_change_counts() {
        let mut latency = with_target(64);
        assert_eq!(cookie_below(&mut latency, 10, [1_010]), [16]);
        let good = [2_000, 2_200, 2_400, 2_600, 2_800];
        assert_eq!(cookie_below(&mut latency, 1, good), [16, 16, 16, 16, 12]);
        // A miss too soon after that change is remembered.
        assert_eq!(cookie_below(&mut latency, 10, [2_950]), [12]);
        assert_eq!(cookie_below(&mut latency, 1, [3_400]), [28]);
    }

    /// The bios of all groups count in their parent, and of two groups with one target the first
    /// one that missed it decides (`iolatency_check_latencies`).
    #[test]
    fn groups_are_counted_together_and_the_first_decides() {
        const OTHER: CgroupId = CgroupId(3);
        let mut latency = with_target(64);
        latency.set_target(OTHER, 2_000);
        // The first bio of each ends a window; later ones count at the end of the next.
        let fast = [1_010, 1_050, 1_060, 1_150].map(|end_ms| (FAST, end_ms));
        let other = [2_010, 2_050, 2_150].map(|end_ms| (OTHER, end_ms));
        for (group, end_ms) in fast.into_iter().chain(other) {
            runs(&mut latency, group, end_ms - 10, 10);
        }
        let root = &latency.groups[0].child_lat;
        assert_eq!(root.asked_by, Some(FAST));
        let of_each = [FAST, OTHER].map(|group| latency.groups[group.0 as usize].samples);
        assert_eq!((of_each, root.samples), ([3, 2], 5));
    }

    #[test]
    fn who_has_no_place_waits_for_one() {
        let (mut latency, mut woken) = (after_misses(4, 2), Vec::new());
        assert_eq!(latency.max_depth(SLOW), Some(1));
        let now = Nanos(2000 * MS);
        let first = latency.throttle(now, (&bio(SLOW), part(1)), 7, &mut woken);
        let second = latency.throttle(now, (&bio(SLOW), part(2)), 8, &mut woken);
        assert_eq!((first, second), (None, Some(SLOW)));
        assert!(latency.is_held(8));
        latency.done_bio(now, part(1), IoStatus::Ok, &mut woken);
        assert!(!latency.is_held(8) && woken == [8]);
        assert_eq!(latency.resume(now, part(2), SLOW, 8, &mut woken), None);
    }

    /// Metadata is not held back, but others wait while it is in flight.
    #[test]
    fn metadata_takes_a_place_without_waiting_for_one() {
        let (mut latency, mut woken) = (after_misses(4, 2), Vec::new());
        assert_eq!(latency.max_depth(SLOW), Some(1));
        let now = Nanos(2000 * MS);
        let metadata = Bio {
            flags: BioFlags::META,
            ..bio(SLOW)
        };
        for n in 1..3 {
            let held = latency.throttle(now, (&metadata, part(n)), 6, &mut woken);
            assert_eq!(held, None);
        }
        let held = latency.throttle(now, (&bio(SLOW), part(3)), 7, &mut woken);
        assert_eq!(held, Some(SLOW));
        latency.done_bio(now, part(1), IoStatus::Ok, &mut woken);
        assert!(latency.is_held(7), "another is in flight");
        latency.done_bio(now, part(2), IoStatus::Ok, &mut woken);
        assert!(!latency.is_held(7) && woken == [7]);
    }

    /// With a queue of sixteen the limit falls by four at each miss and rises by one at each window
    /// that meets the target.
    #[test]
    fn what_was_taken_comes_back_in_small_steps() {
        let mut latency = after_misses(16, 2);
        assert_eq!(latency.max_depth(SLOW), Some(4));
        let mut depths = Vec::new();
        for n in 2..14 {
            for bio in 0..6 {
                runs(&mut latency, FAST, 1000 + 600 * n + bio, 1);
            }
            runs(&mut latency, FAST, 1500 + 600 * n, 1);
            runs(&mut latency, SLOW, 1511 + 600 * n, 1);
            depths.push(latency.max_depth(SLOW));
        }
        let up = depths
            .windows(2)
            .all(|pair| pair[1].is_none() || pair[0] <= pair[1]);
        assert!(up && depths[0] < Some(8), "{depths:?}");
        assert_eq!(depths.last(), Some(&None), "{depths:?}");
    }

    #[test]
    fn others_are_let_go_when_the_protected_one_is_gone() {
        let mut latency = after_misses(4, 1);
        assert!(latency.max_depth(SLOW).is_some());
        for second in 2..12 {
            latency.timer(Nanos(second * 1000 * MS));
            runs(&mut latency, SLOW, second * 1000 + 10, 1);
        }
        assert_eq!(latency.max_depth(SLOW), None);
    }

    /// `latency_sum_ok`: on a drive with moving parts the mean decides, on others fewer than a tenth
    /// may miss the target, and one of fewer than ten.
    #[test]
    fn a_target_is_met_by_the_mean_or_by_the_number_of_misses() {
        let of = |count, missed, sum_ns| Latencies {
            count,
            missed,
            sum_ns,
        };
        for (latencies, on_disk, on_ssd) in [
            (of(10, 9, 1_000), true, false),
            (of(10, 0, 1_010), false, true),
            (of(19, 0, 0), true, true),
            (of(19, 1, 0), true, false),
            (of(20, 1, 2_000), true, true),
            (of(20, 2, 2_020), false, false),
            (of(0, 0, 0), true, true),
        ] {
            let found = [true, false].map(|rotational| latencies.are_ok(100, rotational));
            assert_eq!(found, [on_disk, on_ssd], "{latencies:?}");
        }
    }

    #[test]
    fn targets_are_read_as_the_kernel_does() {
        assert_eq!(parse_io_latency("target=2000"), Ok(2000));
        assert_eq!(parse_io_latency("target=max"), Ok(0));
        for text in ["target=x", "lat=5", "2000"] {
            assert!(
                parse_io_latency(text).unwrap_err().contains("EINVAL"),
                "{text}"
            );
        }
    }

    /// A group is told how to change by its parent's cookie; one with few of the bios of all
    /// siblings is not the cause of a miss and keeps its depth.
    #[test]
    fn a_group_with_few_bios_is_not_throttled() {
        // Of 100 bios five are few, and of fewer than forty only one is.
        for (samples, of_all, expected) in [
            (5, 100, None),
            (6, 100, Some(32)),
            (5, 99, Some(32)),
            (1, 10, None),
            (2, 10, Some(32)),
        ] {
            let mut latency = with_target(64);
            latency.set_target(SLOW, 9_000);
            let parent = &mut latency.at(CgroupId::ROOT).child_lat;
            parent.cookie -= 1;
            parent.missed_ns = 2_000_000;
            parent.samples = of_all;
            latency.at(SLOW).samples = samples;
            latency.follow_cookie(SLOW, &mut Vec::new());
            assert_eq!(latency.max_depth(SLOW), expected, "{samples} of {of_all}");
        }
    }

    /// Only groups whose target is larger than the one that was missed make room for it.
    #[test]
    fn a_group_with_a_smaller_target_is_not_throttled() {
        for (target_us, expected) in [
            (1_999, None),
            (2_000, None),
            (2_001, Some(32)),
            (0, Some(32)),
        ] {
            let mut latency = with_target(64);
            latency.set_target(SLOW, target_us);
            let parent = &mut latency.at(CgroupId::ROOT).child_lat;
            parent.cookie -= 1;
            parent.missed_ns = 2_000_000;
            parent.samples = 100;
            latency.at(SLOW).samples = 50;
            latency.follow_cookie(SLOW, &mut Vec::new());
            assert_eq!(latency.max_depth(SLOW), expected, "{target_us}");
            // It has seen this cookie.
            latency.follow_cookie(SLOW, &mut Vec::new());
            assert_eq!(latency.max_depth(SLOW), expected, "{target_us}");
        }
    }

    /// Down by halves to one, where further misses are counted; up again only after as many steps.
    #[test]
    fn misses_at_a_depth_of_one_are_made_up_for_first() {
        let mut latency = with_target(64);
        let mut follow = |change: i64| {
            let cookie = &mut latency.at(CgroupId::ROOT).child_lat.cookie;
            *cookie = cookie.wrapping_add_signed(change);
            latency.follow_cookie(SLOW, &mut Vec::new());
            let group = latency.at(SLOW);
            (group.max_depth, group.delays)
        };
        let downs: Vec<_> = (0..9).map(|_| follow(-1)).collect();
        let depths: Vec<u32> = downs.iter().map(|down| down.0).collect();
        assert_eq!(depths, [32, 16, 8, 4, 2, 1, 1, 1, 1]);
        let delays: Vec<u32> = downs.iter().map(|down| down.1).collect();
        assert_eq!(delays, [0, 0, 0, 0, 0, 0, 1, 2, 3]);
        let ups: Vec<_> = (0..6).map(|_| follow(1)).collect();
        assert_eq!(ups, [(1, 2), (1, 1), (1, 0), (5, 0), (9, 0), (13, 0)]);
        assert_eq!(follow(3), (u32::MAX, 0), "nobody is throttled any more");
    }

    /// `scale_cookie_change` for a queue of 64: a sixteenth up, a quarter down.
    #[test]
    fn the_cookie_moves_in_steps_of_the_queue() {
        let cookie = |below, is_up| {
            let after = cookie_after(DEFAULT_COOKIE - below, 64, is_up);
            DEFAULT_COOKIE - after
        };
        let ups = [0, 3, 4, 5, 64, 65, 128].map(|below| cookie(below, true));
        assert_eq!(ups, [0, 0, 0, 1, 60, 64, 127]);
        let downs = [0, 1, 64, 65, 127, 128, 129].map(|below| cookie(below, false));
        assert_eq!(downs, [16, 17, 80, 66, 128, 128, 129]);
        assert_eq!([step(64, true), step(64, false)], [4, 16]);
        assert_eq!([step(3, true), step(3, false)], [1, 1]);
    }

    /// A bio that passed unthrottled counts only for a group that is not throttled, and none whose
    /// time was not measured (`iolatency_record_time`); one misses a target from its very length
    /// on.
    #[test]
    fn what_passed_unthrottled_says_nothing_of_a_throttled_group() {
        for (max_depth, issue_as_root, took_ns, counts) in [
            (u32::MAX, false, 2 * MS, (1, 1)),
            (u32::MAX, false, 2 * MS - 1, (1, 0)),
            (u32::MAX, true, 2 * MS, (1, 1)),
            (u32::MAX, false, 0, (0, 0)),
            (8, false, 2 * MS, (1, 1)),
            (8, true, 2 * MS, (0, 0)),
        ] {
            let mut group = Group::new();
            (group.target_ns, group.max_depth) = (2 * MS, max_depth);
            let submitted = Submitted {
                at: Nanos(MS),
                group: FAST,
                issue_as_root,
            };
            group.record(Nanos(MS + took_ns), &submitted);
            let found = (group.latencies.count, group.latencies.missed);
            assert_eq!(found, counts, "{max_depth} {issue_as_root} {took_ns}");
            assert_eq!(group.latencies.sum_ns, counts.0 * took_ns);
        }
    }
}
