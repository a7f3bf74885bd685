//! Buffered writeback throttling (`block/blk-wbt.c`).
//!
//! A large writeback can fill a drive's queue so that a read waits behind hundreds of writes.
//! Asynchronous writes are therefore delayed while too many are in flight. The limit follows from
//! the latency of reads: a window of 100 ms whose fastest read missed the target halves the depth;
//! a window whose reads were fast enough, or with writes only, lets it grow. At small depths the
//! window is shortened by the square root of the step, as in CoDel (Nichols and Jacobson,
//! "Controlling Queue Delay", 2012).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::stat::{Samples, Window};
use super::{RqDepth, RqWait};
use crate::bio::{Bio, BioFlags, Op};
use crate::request::{Request, RqFlags};
use crate::units::{HZ, Nanos, jiffies};

const TRACKED: RqFlags = RqFlags::WBT_TRACKED;
const READ: RqFlags = RqFlags::WBT_READ;
const DISCARD: RqFlags = RqFlags::WBT_DISCARD;

/// Depth at step 0, unless the queue is shallower (`RWB_DEF_DEPTH`).
const DEFAULT_DEPTH: u32 = 16;
/// Length of the window at step 0 (`RWB_WINDOW_NSEC`).
const WINDOW_NS: u64 = 100_000_000;
/// A window with fewer writes than this is inconclusive (`RWB_MIN_WRITE_SAMPLES`).
const MIN_WRITE_SAMPLES: u64 = 3;
/// After this many inconclusive windows the depth moves one step towards step 0
/// (`RWB_UNKNOWN_BUMP`).
const UNKNOWN_BUMP: u32 = 5;
/// Reads within this many ticks (100 ms) count as recent.
const RECENT_TICKS: i64 = HZ / 10;

/// Flags of writes that a process waits for (`REQ_HIPRIO`).
const HIGH_PRIORITY: BioFlags = BioFlags::SYNC.with(BioFlags::META);

/// Verdict on the latencies of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WbtStatus {
    /// Reads were fast enough.
    Ok = 1,
    /// There were too few samples.
    Unknown = 2,
    /// There were only writes.
    UnknownWrites = 3,
    /// The fastest read took too long.
    Exceeded = 4,
}

/// Values at the expiry of the window's timer (`wbt_timer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WbtTimer {
    /// The verdict on the window.
    pub status: WbtStatus,
    /// The step before the verdict was applied.
    pub step: i32,
    /// Writes in flight.
    pub in_flight: u32,
}

/// Current state, as traces show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WbtState {
    /// Writes in flight, without discards.
    pub in_flight: u32,
    /// Limits for background writeback, for other writeback, and for writes that a process waits
    /// for.
    pub limits: [u32; 3],
    /// The scaling step: above 0 the depth is smaller, below 0 larger than at the start.
    pub step: i32,
}

/// Writeback throttling of one queue (`struct rq_wb`).
#[derive(Debug)]
pub struct Wbt {
    /// The target (`wbt_lat_usec`), in nanoseconds; 0 disables throttling.
    min_lat_ns: u64,
    depth: RqDepth,
    background: u32,
    normal: u32,
    unknown_windows: u32,
    window: Window,
    window_ns: u64,
    /// Writes and discards in flight.
    writes: RqWait<BioFlags>,
    discards: RqWait<BioFlags>,
    write_cache: bool,
    /// The read whose latency is observed: its serial number and time of issue.
    sync_issue: Option<(u64, Nanos)>,
    /// The ticks at which a read was last submitted and last completed.
    last_issue: i64,
    last_comp: i64,
    /// The tick at which a task that dirties pages was last put to sleep (`last_bdp_sleep`).
    last_dirtier_sleep: i64,
    /// Values at the last expiry of the timer.
    last_timer: Option<WbtTimer>,
    /// Number of delayed writes.
    held: u64,
}

impl Wbt {
    /// The target that the kernel sets by itself, in microseconds (`wbt_default_latency_nsec`).
    pub fn default_latency_us(rotational: bool) -> u64 {
        if rotational { 75_000 } else { 2_000 }
    }

    /// Returns the throttling state for a queue of this depth.
    pub fn new(latency_us: u64, queue_depth: u32, write_cache: bool) -> Wbt {
        let mut wbt = Wbt {
            min_lat_ns: latency_us.saturating_mul(1000),
            depth: RqDepth::new(DEFAULT_DEPTH, queue_depth),
            background: 0,
            normal: 0,
            unknown_windows: 0,
            window: Window::default(),
            window_ns: WINDOW_NS,
            writes: RqWait::default(),
            discards: RqWait::default(),
            write_cache,
            sync_issue: None,
            last_issue: i64::MIN / 2,
            last_comp: i64::MIN / 2,
            last_dirtier_sleep: i64::MIN / 2,
            last_timer: None,
            held: 0,
        };
        wbt.calc_limits();
        wbt
    }

    /// The target, in microseconds.
    pub fn latency_us(&self) -> u64 {
        self.min_lat_ns / 1000
    }

    /// Writes `wbt_lat_usec`; 0 disables throttling and releases all waiters.
    pub fn set_latency(&mut self, now: Nanos, latency_us: u64, woken: &mut Vec<u64>) {
        self.min_lat_ns = latency_us.saturating_mul(1000);
        self.depth.reset();
        self.calc_limits();
        self.wake_all(now, woken);
    }

    /// Returns the current state.
    pub fn state(&self) -> WbtState {
        WbtState {
            in_flight: self.writes.in_flight,
            limits: [self.background, self.normal, self.depth.max_depth],
            step: self.depth.scale_step,
        }
    }

    /// Its files in debugfs (`wbt_debugfs_attrs`) but the present window.
    pub(crate) fn debug_files(&self) -> [(&'static str, String); 7] {
        let writes = self.writes.in_flight;
        let discards = self.discards.in_flight;
        [
            // On by default, or off because its target is 0.
            (
                "enabled",
                if self.is_enabled() { "1" } else { "3" }.to_string(),
            ),
            ("id", "0".to_string()),
            // Writes that reclaim waits for are counted with the others here.
            (
                "inflight",
                format!("0: inflight {writes}\n1: inflight 0\n2: inflight {discards}"),
            ),
            ("min_lat_nsec", self.min_lat_ns.to_string()),
            ("unknown_cnt", self.unknown_windows.to_string()),
            ("wb_background", self.background.to_string()),
            ("wb_normal", self.normal.to_string()),
        ]
    }

    /// Values at the last expiry of the timer.
    pub fn last_timer(&self) -> Option<WbtTimer> {
        self.last_timer
    }

    /// Number of delayed writes.
    pub fn held(&self) -> u64 {
        self.held
    }

    fn is_enabled(&self) -> bool {
        self.min_lat_ns > 0
    }

    fn in_flight(&self) -> u32 {
        self.writes.in_flight + self.discards.in_flight
    }

    /// Computes the limits: writeback gets half the depth, and a quarter while there is other I/O
    /// (`calc_wb_limits`).
    fn calc_limits(&mut self) {
        (self.normal, self.background) = match (self.min_lat_ns, self.depth.max_depth) {
            (0, _) => (0, 0),
            (_, depth @ ..=2) => (depth, 1),
            (_, depth) => (depth.div_ceil(2), depth.div_ceil(4)),
        };
    }

    /// The most writes in flight for a write of this kind to pass (`get_limit`).
    fn limit(&self, now: Nanos, op: Op, flags: BioFlags) -> u32 {
        if !self.is_enabled() {
            return u32::MAX;
        }
        if op == Op::Discard {
            return self.background;
        }
        if flags.has(HIGH_PRIORITY) || self.slows_dirtiers(now) {
            self.depth.max_depth
        } else if flags.has(BioFlags::BACKGROUND) || self.close_io(now) {
            self.background
        } else {
            self.normal
        }
    }

    /// A task that dirties pages of the drive is put to sleep, because too many are dirty.
    pub(super) fn dirtier_sleeps(&mut self, now: Nanos) {
        self.last_dirtier_sleep = jiffies(now);
    }

    /// Whether that was within a second: then write-back is not held back further
    /// (`wb_recent_wait`).
    fn slows_dirtiers(&self, now: Nanos) -> bool {
        jiffies(now) < self.last_dirtier_sleep + HZ
    }

    /// Whether a read was submitted or completed within 100 ms.
    fn close_io(&self, now: Nanos) -> bool {
        let ticks = jiffies(now);
        ticks < self.last_issue + RECENT_TICKS || ticks < self.last_comp + RECENT_TICKS
    }

    /// The flags of a request made from this bio (`bio_to_wbt_flags`). Direct writes are not
    /// throttled, because their submitter waits for them anyway.
    pub(super) fn track(&self, bio: &Bio) -> RqFlags {
        let direct = bio.flags.has(BioFlags::SYNC) && bio.flags.has(BioFlags::IDLE);
        match bio.op {
            _ if !self.is_enabled() => RqFlags::default(),
            Op::Read => READ,
            Op::Write if !direct => TRACKED,
            Op::Discard => TRACKED.with(DISCARD),
            _ => RqFlags::default(),
        }
    }

    /// Whether a bio may continue (`wbt_wait`). A write that may is counted.
    pub(super) fn wait(&mut self, now: Nanos, bio: &Bio, ticket: u64) -> bool {
        let flags = self.track(bio);
        if !flags.has(TRACKED) {
            if flags.has(READ) {
                self.last_issue = jiffies(now);
            }
            return true;
        }
        let limit = self.limit(now, bio.op, bio.flags);
        let places = self.places(flags);
        let goes = places.wait(limit, ticket, bio.flags);
        self.held += !goes as u64;
        if goes {
            self.admitted(now);
        }
        goes
    }

    pub(super) fn is_held(&self, ticket: u64) -> bool {
        let mut waiting = self.writes.waiting.iter().chain(&self.discards.waiting);
        waiting.any(|&(held, _)| held == ticket)
    }

    /// Starts a window after a write was admitted, unless one is open.
    pub(super) fn admitted(&mut self, now: Nanos) {
        if !self.window.is_open() && self.is_enabled() {
            self.arm_timer(now);
        }
    }

    pub(super) fn cleanup(&mut self, now: Nanos, bio: &Bio, woken: &mut Vec<u64>) {
        let flags = self.track(bio);
        if flags.has(TRACKED) {
            self.place_free(now, flags, woken);
        }
    }

    fn places(&mut self, flags: RqFlags) -> &mut RqWait<BioFlags> {
        match flags.has(DISCARD) {
            false => &mut self.writes,
            true => &mut self.discards,
        }
    }

    /// Records the issue of a read, in case it takes very long (`wbt_issue`).
    pub(super) fn issue(&mut self, now: Nanos, rq: &Request) {
        if self.is_enabled() && rq.rq_flags.has(READ) && self.sync_issue.is_none() {
            self.sync_issue = Some((rq.serial, now));
        }
    }

    pub(super) fn requeue(&mut self, rq: &Request) {
        self.sync_issue.take_if(|(serial, _)| *serial == rq.serial);
    }

    pub(super) fn count(&mut self, now: Nanos, rq: &Request) {
        let latency_ns = now.saturating_sub(rq.io_start).0;
        match rq.op {
            Op::Flush => {}
            _ => self.window.add(rq.is_write(), latency_ns),
        }
    }

    /// Records that a request is freed (`wbt_done`).
    pub(super) fn done(&mut self, now: Nanos, rq: &Request, woken: &mut Vec<u64>) {
        if rq.rq_flags.has(TRACKED) {
            self.place_free(now, rq.rq_flags, woken);
        } else if rq.rq_flags.has(READ) {
            self.sync_issue.take_if(|(serial, _)| *serial == rq.serial);
            if self.is_enabled() {
                self.last_comp = jiffies(now);
            }
        }
    }

    /// Uncounts a write. Waiters are woken in batches (`wbt_rqw_done`); with a write cache the
    /// drive must first become idle, unless tasks are slowed down for it.
    fn place_free(&mut self, now: Nanos, flags: RqFlags, woken: &mut Vec<u64>) {
        let limit = match flags.has(DISCARD) {
            true => self.background,
            false if self.write_cache && !self.slows_dirtiers(now) => 0,
            false => self.normal,
        };
        let batch = (self.background / 2) as i64;
        let places = self.places(flags);
        // It may have been admitted while throttling was disabled.
        places.in_flight = places.in_flight.saturating_sub(1);
        let in_flight = places.in_flight;
        if in_flight > 0 && in_flight >= limit {
            return;
        }
        if in_flight == 0 || limit as i64 - in_flight as i64 >= batch {
            self.wake(now, flags, woken);
        }
    }

    fn wake(&mut self, now: Nanos, flags: RqFlags, woken: &mut Vec<u64>) {
        let op = match flags.has(DISCARD) {
            false => Op::Write,
            true => Op::Discard,
        };
        let mut places = core::mem::take(self.places(flags));
        places.wake_all(|flags| self.limit(now, op, flags), woken);
        *self.places(flags) = places;
    }

    fn wake_all(&mut self, now: Nanos, woken: &mut Vec<u64>) {
        for flags in [TRACKED, TRACKED.with(DISCARD)] {
            self.wake(now, flags, woken);
        }
    }

    pub(super) fn next_timer(&self) -> Nanos {
        self.window.ends()
    }

    /// Ends a window; its latencies decide the next step (`wb_timer_fn`).
    pub(super) fn timer(&mut self, now: Nanos, woken: &mut Vec<u64>) {
        let Some(samples) = self.window.take_ended(now) else {
            return;
        };
        let in_flight = self.in_flight();
        let (status, step) = (self.latency_exceeded(now, samples), self.depth.scale_step);
        self.last_timer = Some(WbtTimer {
            status,
            step,
            in_flight,
        });
        match status {
            WbtStatus::Exceeded => self.scale_down(true),
            // With writes only, the depth may grow beyond its initial value.
            WbtStatus::Ok | WbtStatus::UnknownWrites => self.scale_up(now, woken),
            WbtStatus::Unknown => {
                self.unknown_windows += 1;
                match step {
                    _ if self.unknown_windows < UNKNOWN_BUMP => {}
                    1.. => self.scale_up(now, woken),
                    0 => {}
                    _ => self.scale_down(false),
                }
            }
        }
        if self.depth.scale_step != 0 || in_flight > 0 {
            self.arm_timer(now);
        }
    }

    fn latency_exceeded(&self, now: Nanos, [reads, writes]: [Samples; 2]) -> WbtStatus {
        let under_way_ns = match self.sync_issue {
            Some((_, issued)) => now.saturating_sub(issued).0,
            None => 0,
        };
        let late = under_way_ns > self.min_lat_ns && reads.count == 0;
        if under_way_ns > self.window_ns || late {
            return WbtStatus::Exceeded;
        }
        if reads.count == 0 || writes.count < MIN_WRITE_SAMPLES {
            let writes_only = writes.count > 0 || self.slows_dirtiers(now) || self.in_flight() > 0;
            return match writes_only {
                true => WbtStatus::UnknownWrites,
                false => WbtStatus::Unknown,
            };
        }
        match reads.min_ns > self.min_lat_ns {
            true => WbtStatus::Exceeded,
            false => WbtStatus::Ok,
        }
    }

    fn scale_up(&mut self, now: Nanos, woken: &mut Vec<u64>) {
        if self.depth.scale_up() {
            self.calc_limits();
            self.unknown_windows = 0;
            self.wake_all(now, woken);
        }
    }

    fn scale_down(&mut self, hard: bool) {
        if self.depth.scale_down(hard) {
            self.calc_limits();
            self.unknown_windows = 0;
        }
    }

    /// Opens the next window (`rwb_arm_timer`).
    fn arm_timer(&mut self, now: Nanos) {
        self.window_ns = match self.depth.scale_step {
            step @ 1.. => (WINDOW_NS << 4) / ((step as u64 + 1) << 8).isqrt(),
            _ => WINDOW_NS,
        };
        self.window.open(now, self.window_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::request_of;
    use crate::units::Sector;

    const MS: u64 = 1_000_000;

    fn write(flags: BioFlags) -> Bio {
        Bio {
            flags,
            ..Bio::new(Op::Write, Sector(0), 8)
        }
    }

    fn ended(wbt: &Wbt, bio: &Bio, issued_ns: u64) -> Request {
        let mut rq = request_of(bio, 1, Nanos(issued_ns));
        rq.rq_flags = wbt.track(bio);
        rq.io_start = Nanos(issued_ns);
        rq
    }

    /// Runs a window with one read of this latency and three writes.
    fn window(wbt: &mut Wbt, now_ns: &mut u64, read_ms: u64) -> WbtStatus {
        let mut woken = Vec::new();
        let bio = write(BioFlags::SYNC);
        for _ in 0..3 {
            assert!(wbt.wait(Nanos(*now_ns), &bio, 1));
            let rq = ended(wbt, &bio, *now_ns);
            wbt.count(Nanos(*now_ns + MS), &rq);
            wbt.done(Nanos(*now_ns + MS), &rq, &mut woken);
        }
        let read = ended(wbt, &Bio::new(Op::Read, Sector(0), 8), *now_ns);
        wbt.count(Nanos(*now_ns + read_ms * MS), &read);
        *now_ns = wbt.next_timer().0;
        wbt.timer(Nanos(*now_ns), &mut woken);
        wbt.last_timer().unwrap().status
    }

    #[test]
    fn slow_reads_halve_the_depth_and_fast_ones_give_it_back() {
        let mut wbt = Wbt::new(2_000, 64, false);
        let mut now_ns = 0;
        assert_eq!(wbt.state().limits, [4, 8, 16]);
        assert_eq!(window(&mut wbt, &mut now_ns, 3), WbtStatus::Exceeded);
        assert_eq!(wbt.state().limits, [2, 4, 8]);
        // 100 ms divided by the square root of two, in whole ticks, plus one.
        assert_eq!(wbt.next_timer().0 - now_ns, 76 * MS);
        assert_eq!(window(&mut wbt, &mut now_ns, 1), WbtStatus::Ok);
        assert_eq!(wbt.state().limits, [4, 8, 16]);
    }

    #[test]
    fn windows_without_samples_change_the_depth_only_after_some() {
        let (mut wbt, mut now_ns) = (Wbt::new(2_000, 64, false), 0);
        assert_eq!(window(&mut wbt, &mut now_ns, 3), WbtStatus::Exceeded);
        for _ in 0..UNKNOWN_BUMP {
            assert_eq!(wbt.state().limits, [2, 4, 8]);
            now_ns = wbt.next_timer().0;
            wbt.timer(Nanos(now_ns), &mut Vec::new());
            let status = wbt.last_timer().map(|timer| timer.status);
            assert_eq!(status, Some(WbtStatus::Unknown));
        }
        assert_eq!(wbt.state().limits, [4, 8, 16]);
    }

    #[test]
    fn writeback_is_held_back_and_direct_writes_are_not() {
        let mut wbt = Wbt::new(2_000, 4, false);
        let direct = write(BioFlags::SYNC.with(BioFlags::IDLE));
        let (plain, now) = (write(BioFlags::NONE), Nanos(MS));
        assert!(wbt.wait(now, &plain, 1) && wbt.wait(now, &plain, 2));
        assert!(!wbt.wait(now, &plain, 3), "two are the normal limit");
        assert!(wbt.wait(now, &direct, 4));
        let mut woken = Vec::new();
        wbt.done(now, &ended(&wbt, &plain, 0), &mut woken);
        assert_eq!(woken, [3]);
        // After a read, writeback gets the lower background limit.
        assert!(wbt.wait(now, &Bio::new(Op::Read, Sector(0), 8), 5));
        wbt.done(now, &ended(&wbt, &plain, 0), &mut woken);
        assert!(!wbt.wait(now, &plain, 6), "one is the background limit");
        wbt.set_latency(now, 0, &mut woken);
        assert_eq!(woken, [3, 6]);
    }

    /// The first read under way counts as slow before it ends (`rwb_sync_issue_lat`), whatever
    /// becomes of others.
    #[test]
    fn a_read_that_does_not_end_counts_as_slow() {
        let status = |which: usize, by: fn(&mut Wbt, &Request)| {
            let mut wbt = Wbt::new(2_000, 64, false);
            assert!(wbt.wait(Nanos(0), &write(BioFlags::NONE), 1));
            let read = Bio::new(Op::Read, Sector(0), 8);
            let reads = [1, 2].map(|serial| Request {
                serial,
                ..ended(&wbt, &read, MS)
            });
            for read in &reads {
                wbt.issue(Nanos(MS), read);
            }
            by(&mut wbt, &reads[which]);
            let end = wbt.next_timer();
            wbt.timer(end, &mut Vec::new());
            wbt.last_timer().map(|timer| timer.status)
        };
        let done = |wbt: &mut Wbt, rq: &Request| wbt.done(Nanos(MS), rq, &mut Vec::new());
        let requeued = |wbt: &mut Wbt, rq: &Request| wbt.requeue(rq);
        for by in [done as fn(&mut Wbt, &Request), requeued] {
            assert_eq!(status(1, by), Some(WbtStatus::Exceeded));
            assert_eq!(status(0, by), Some(WbtStatus::UnknownWrites));
        }
    }

    #[test]
    fn writeback_gets_the_whole_depth_for_a_second_after_a_dirtier_was_put_to_sleep() {
        let (mut wbt, plain) = (Wbt::new(2_000, 64, true), write(BioFlags::NONE));
        let background = write(BioFlags::BACKGROUND);
        wbt.dirtier_sleeps(Nanos(0));
        let last = Nanos(999 * MS);
        assert!((0..16).all(|ticket| wbt.wait(last, &background, ticket)));
        assert!(!wbt.wait(last, &background, 16), "16 are the whole depth");
        let mut woken = Vec::new();
        for _ in 0..8 {
            wbt.done(last, &ended(&wbt, &plain, 0), &mut woken);
        }
        assert_eq!(woken, [], "more than the normal limit are in flight");
        for _ in 0..2 {
            wbt.done(last, &ended(&wbt, &plain, 0), &mut woken);
        }
        assert_eq!(woken, [16], "the drive need not become idle");
        let later = Nanos(1000 * MS);
        assert!(!wbt.wait(later, &background, 17), "four are the limit");
        for _ in 0..6 {
            wbt.done(later, &ended(&wbt, &plain, 0), &mut woken);
        }
        assert_eq!(woken, [16], "it must become idle");
        wbt.done(later, &ended(&wbt, &plain, 0), &mut woken);
        assert_eq!(woken, [16, 17]);
    }

    #[test]
    fn the_target_is_told_as_it_was_written() {
        let mut wbt = Wbt::new(2_000, 64, false);
        assert_eq!(wbt.latency_us(), 2_000);
        wbt.set_latency(Nanos(0), 75_123, &mut Vec::new());
        assert_eq!(wbt.latency_us(), 75_123);
    }

    /// What a window says (`latency_exceeded`): the limits are 2 ms for the fastest read, and the
    /// window's length for one that has not ended. Without reads and three writes it says nothing.
    #[test]
    fn a_window_is_judged_by_its_fastest_read() {
        use WbtStatus::*;
        let samples = |count, min_ns| Samples { count, min_ns };
        for (under_way_ns, reads, writes, status) in [
            (0, (1, 2 * MS), 3, Ok),
            (0, (1, 2 * MS + 1), 3, Exceeded),
            (0, (1, 9 * MS), 2, UnknownWrites),
            (0, (0, 0), 3, UnknownWrites),
            (0, (0, 0), 0, Unknown),
            (0, (1, MS), 0, Unknown),
            (2 * MS, (0, 0), 3, UnknownWrites),
            (2 * MS + 1, (0, 0), 3, Exceeded),
            (2 * MS + 1, (1, MS), 3, Ok),
            (100 * MS, (1, MS), 3, Ok),
            (100 * MS + 1, (1, MS), 3, Exceeded),
        ] {
            let mut wbt = Wbt::new(2_000, 64, false);
            wbt.window_ns = 100 * MS;
            let now = Nanos(1 << 40);
            wbt.sync_issue = Some((1, Nanos(now.0 - under_way_ns)));
            let windows = [samples(reads.0, reads.1), samples(writes, MS)];
            let case = (under_way_ns, reads, writes);
            assert_eq!(wbt.latency_exceeded(now, windows), status, "{case:?}");
            // A write that has not ended tells as much as one that has, and so does a task that
            // sleeps because too many pages are dirty.
            let status = if status == Unknown {
                UnknownWrites
            } else {
                status
            };
            wbt.writes.in_flight = 1;
            assert_eq!(wbt.latency_exceeded(now, windows), status, "{case:?}");
            wbt.writes.in_flight = 0;
            wbt.dirtier_sleeps(now);
            assert_eq!(wbt.latency_exceeded(now, windows), status, "{case:?}");
        }
    }
}
