//! kyber, as Linux 6.12 has it (`block/kyber-iosched.c`).
//!
//! Requests belong to four domains: reads, writes, discards and others. A request needs a token of
//! its domain to go to the drive, and kyber controls only the number of tokens. After a completion
//! it waits 100 ms and then checks latencies. If the drive is slow (the 90th percentile of the time
//! in the drive exceeds a domain's target), all domains whose own requests are fast enough get
//! fewer tokens, and a domain whose requests are slow (the 99th percentile from allocation to
//! completion) gets more. Few tokens keep requests in the scheduler instead of the drive's queue,
//! where a read could not overtake them.
//!
//! Requests wait in lists of the CPU that submitted them, where bios merge with them, and are moved
//! to the list of their hardware context only when that has a token for them. Dispatch takes the
//! domains in turn, a batch of each.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use blklab_blk::{
    Bio, BioFlags, Elevator, ElevatorQueue, InsertAt, Nanos, Op, QueueInfo, RequestId, Requests,
    RqList, SchedCtx, Tags, Tunable, Unit, bio_list_merge, debug_requests, jiffies, jiffy_start,
    msecs_to_jiffies, op_is_sync,
};

use crate::{ElevatorType, StepCosts};

const READ_LAT_NSEC: usize = 0;
const WRITE_LAT_NSEC: usize = 1;

/// The tunables, with the names and units of sysfs.
pub const TUNABLES: &[Tunable] = &[
    Tunable {
        name: "read_lat_nsec",
        unit: Unit::Nanoseconds,
        min: 0,
        max: i64::MAX,
        default: 2_000_000,
        help: "how long a read should take at most",
    },
    Tunable {
        name: "write_lat_nsec",
        unit: Unit::Nanoseconds,
        min: 0,
        max: i64::MAX,
        default: 10_000_000,
        help: "how long a write should take at most",
    },
];

/// The latency target of discards, which is not tunable, in nanoseconds.
const DISCARD_LAT_NS: u64 = 5_000_000_000;

/// The domains, which are classes of requests.
const READ: usize = 0;
const WRITE: usize = 1;
const DISCARD: usize = 2;
const OTHER: usize = 3;
const DOMAINS: usize = 4;
/// Their names in debugfs, where the current one is in capitals.
const DOMAIN_NAMES: [&str; DOMAINS] = ["read", "write", "discard", "other"];
/// Number of domains with a target; `OTHER` has none.
const TIMED: usize = 3;

/// The most tokens of each domain, enough to keep a deep drive busy.
const MAX_DEPTH: [u32; DOMAINS] = [256, 128, 64, 16];
/// The most consecutive requests of each domain.
const BATCH: [u32; DOMAINS] = [16, 8, 1, 1];
/// Percentage of the scheduler tags that asynchronous writes may use, so that some are left for
/// reads.
const ASYNC_PERCENT: u32 = 75;

/// Delay from a completion to the next check of the histograms, in milliseconds. The timer wheel
/// adds a jiffy, so that it is never early.
const PERIOD_MS: i64 = 100;

fn domain_of(op: Op) -> usize {
    match op {
        Op::Read => READ,
        Op::Write => WRITE,
        Op::Discard => DISCARD,
        Op::Flush | Op::WriteZeroes | Op::Zone(_) => OTHER,
    }
}

/// `elv[0]` of a request: its token plus one; zero for none.
const ELV_TOKEN: usize = 0;

/// A set of CPUs.
#[derive(Clone, Default)]
struct CpuSet(Vec<u64>);

impl CpuSet {
    fn insert(&mut self, cpu: usize) {
        self.0[cpu / 64] |= 1 << (cpu % 64);
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    fn pop_first(&mut self) -> Option<usize> {
        let (at, word) = self
            .0
            .iter_mut()
            .enumerate()
            .find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros() as usize;
        *word &= *word - 1;
        Some(at * 64 + bit)
    }
}

/// Number of buckets of a latency histogram. Each is a quarter of the target wide; four are below
/// the target, and the last of the others has no upper bound.
const BUCKETS: usize = 8;
const GOOD_BUCKETS: usize = 4;
/// A percentile is computed with this many samples, or a second after the first.
const ENOUGH_SAMPLES: u32 = 500;

/// Latencies of a domain's requests.
#[derive(Clone, Copy, Default)]
struct Histogram {
    buckets: [u32; BUCKETS],
}

impl Histogram {
    fn add(&mut self, target_ns: u64, latency_ns: u64) {
        let width_ns = (target_ns / GOOD_BUCKETS as u64).max(1);
        let bucket = latency_ns.saturating_sub(1) / width_ns;
        self.buckets[(bucket as usize).min(BUCKETS - 1)] += 1;
    }

    fn samples(&self) -> u32 {
        self.buckets.iter().sum()
    }

    /// The bucket that contains the percentile.
    fn percentile(&self, percent: u32) -> usize {
        let mut rank = (self.samples() as u64 * percent as u64).div_ceil(100);
        for (bucket, &samples) in self.buckets[..BUCKETS - 1].iter().enumerate() {
            match rank.checked_sub(samples as u64) {
                Some(left) if left > 0 => rank = left,
                _ => return bucket,
            }
        }
        BUCKETS - 1
    }
}

/// Latencies of a domain with a target.
#[derive(Clone, Copy, Default)]
struct Latency {
    /// Time from allocation to completion.
    total: Histogram,
    /// Time in the drive.
    io: Histogram,
    /// The jiffy after which a few samples are enough.
    due: Option<i64>,
    /// The last 99th percentile, kept until the drive is next found to be congested.
    p99: Option<usize>,
}

/// Which of the two histograms.
#[derive(Clone, Copy)]
enum HistogramKind {
    Total,
    Io,
}

impl Latency {
    /// Returns a percentile if there are enough samples, which are then removed.
    ///
    /// Both histograms share one due time: with few samples the first that is queried uses it up,
    /// and the other waits for the next.
    fn percentile(&mut self, now_jiffies: i64, kind: HistogramKind, percent: u32) -> Option<usize> {
        let histogram = match kind {
            HistogramKind::Total => &mut self.total,
            HistogramKind::Io => &mut self.io,
        };
        let samples = histogram.samples();
        if samples == 0 {
            return None;
        }
        let due = *self.due.get_or_insert(now_jiffies + msecs_to_jiffies(1000));
        if samples < ENOUGH_SAMPLES && due > now_jiffies {
            return None;
        }
        self.due = None;
        Some(core::mem::take(histogram).percentile(percent))
    }
}

/// State of a hardware context.
#[derive(Clone, Default)]
struct Hctx {
    /// Requests that have left the lists of their CPUs.
    lists: [RqList; DOMAINS],
    /// CPUs whose lists contain requests for this context.
    busy: [CpuSet; DOMAINS],
    cur_domain: usize,
    batching: u32,
    /// Whether it waits for a token of each domain.
    waiting: [bool; DOMAINS],
    /// Its position in the order of waiters, and whether it has got a token since it took that
    /// position.
    place: [u64; DOMAINS],
    served: [bool; DOMAINS],
}

impl Hctx {
    fn debug_files(&self, rqs: &Requests) -> Vec<(String, String)> {
        let current = DOMAIN_NAMES[self.cur_domain].to_ascii_uppercase();
        let mut files = vec![
            ("cur_domain".to_string(), current),
            ("batching".to_string(), self.batching.to_string()),
        ];
        for (domain, name) in DOMAIN_NAMES.into_iter().enumerate() {
            let queued = debug_requests(rqs, &self.lists[domain]);
            let waiting = u8::from(self.waiting[domain]).to_string();
            files.push((format!("{name}_rqs"), queued));
            files.push((format!("{name}_waiting"), waiting));
        }
        files
    }
}

/// The scheduler's state.
pub struct Kyber {
    queue: ElevatorQueue,
    tokens: [Tags; DOMAINS],
    /// Hardware contexts that wait for tokens of each domain, in order.
    waiters: [Vec<u16>; DOMAINS],
    /// Number of positions taken so far.
    places: u64,
    /// Requests by submitting CPU and domain.
    cpus: Vec<[RqList; DOMAINS]>,
    hctxs: Vec<Hctx>,
    /// The hardware context that was dispatched from last.
    last_hctx: usize,
    async_depth: u32,
    latency: [Latency; TIMED],
    /// Time of the next check of the histograms.
    timer: Option<Nanos>,
    dispatched: [u64; DOMAINS],
    throttled: [u64; DOMAINS],
    batches: u64,
    adjustments: u64,
}

impl Kyber {
    /// Returns a scheduler without requests and with default tunables.
    pub fn new(info: &QueueInfo) -> Kyber {
        let mut new = Kyber {
            queue: KYBER.queue(),
            tokens: MAX_DEPTH.map(Tags::new),
            waiters: Default::default(),
            places: 0,
            cpus: Vec::new(),
            hctxs: Vec::new(),
            last_hctx: 0,
            async_depth: 0,
            latency: Default::default(),
            timer: None,
            dispatched: [0; DOMAINS],
            throttled: [0; DOMAINS],
            batches: 0,
            adjustments: 0,
        };
        new.depth_updated(info);
        new
    }

    fn queue_debug_files(&self) -> Vec<(String, String)> {
        let tokens = { self.tokens.iter().zip(&self.waiters) }
            .map(|(tokens, waiters)| tokens.debug_text(waiters.len()));
        let names = DOMAIN_NAMES.map(|name| format!("{name}_tokens"));
        let mut files: Vec<(String, String)> = names.into_iter().zip(tokens).collect();
        files.push(("async_depth".to_string(), self.async_depth.to_string()));
        files
    }

    fn target_ns(&self, domain: usize) -> u64 {
        match domain {
            READ => self.queue.tunables.at(READ_LAT_NSEC) as u64,
            WRITE => self.queue.tunables.at(WRITE_LAT_NSEC) as u64,
            _ => DISCARD_LAT_NS,
        }
    }

    /// Dispatches a request of the context's current domain, if there is one and a token for it.
    /// Requests stay in the lists of their CPUs until there is a token, so that bios can still
    /// merge with them.
    fn dispatch_domain(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize) -> Option<RequestId> {
        let domain = self.hctxs[hctx].cur_domain;
        let h = &self.hctxs[hctx];
        if h.lists[domain].is_empty() && h.busy[domain].is_empty() {
            return None;
        }
        let Some(token) = self.get_token(hctx, domain) else {
            self.throttled[domain] += 1;
            return None;
        };
        let h = &mut self.hctxs[hctx];
        if h.lists[domain].is_empty() {
            while let Some(cpu) = h.busy[domain].pop_first() {
                h.lists[domain].append(ctx.rqs, &mut self.cpus[cpu][domain]);
            }
        }
        let id = h.lists[domain].pop_front(ctx.rqs)?;
        h.batching += 1;
        ctx.rqs[id].elv[ELV_TOKEN] = token + 1;
        self.dispatched[domain] += 1;
        Some(id)
    }

    /// Takes a token of the domain, or queues the context as a waiter.
    ///
    /// In the kernel, woken contexts run at the same time, each on its own CPU, and compete for
    /// tokens. Here they run one after the other and the first may take all tokens, so a context
    /// that was woken in vain keeps its position before those that got some.
    fn get_token(&mut self, hctx: usize, domain: usize) -> Option<u32> {
        // Tokens are only counted, so it does not matter which CPU takes one.
        let token = self.tokens[domain].get(0, None);
        let waiting = self.hctxs[hctx].waiting[domain];
        match token {
            Some(_) => {
                self.hctxs[hctx].served[domain] = true;
                if waiting {
                    self.hctxs[hctx].waiting[domain] = false;
                    self.waiters[domain].retain(|&w| w as usize != hctx);
                }
            }
            None if !waiting => self.wait(hctx, domain),
            None => {}
        }
        token
    }

    fn wait(&mut self, hctx: usize, domain: usize) {
        let h = &mut self.hctxs[hctx];
        h.waiting[domain] = true;
        if core::mem::take(&mut h.served[domain]) || h.place[domain] == 0 {
            self.places += 1;
            h.place[domain] = self.places;
        }
        let place = h.place[domain];
        let hctxs = &self.hctxs;
        let before = |w: &u16| hctxs[*w as usize].place[domain] < place;
        let at = self.waiters[domain].partition_point(before);
        self.waiters[domain].insert(at, hctx as u16);
    }

    /// Returns a request's token and wakes waiters in batches.
    fn put_token(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let Some(token) = core::mem::take(&mut rq.elv[ELV_TOKEN]).checked_sub(1) else {
            return;
        };
        let domain = domain_of(rq.op);
        self.tokens[domain].put(0, token);
        if self.waiters[domain].is_empty() {
            return;
        }
        let woken = self.tokens[domain].freed_with_waiters() as usize;
        let woken = woken.min(self.waiters[domain].len());
        for hctx in self.waiters[domain].drain(..woken) {
            self.hctxs[hctx as usize].waiting[domain] = false;
            ctx.run_hw_queue(hctx as usize);
        }
    }

    /// Checks the histograms and adjusts the number of tokens.
    fn adjust(&mut self, now: Nanos) {
        let now_jiffies = jiffies(now);
        let mut congested = false;
        for latency in &mut self.latency {
            // A lower percentile than 99, because a few slow requests are not congestion.
            let p90 = latency.percentile(now_jiffies, HistogramKind::Io, 90);
            congested |= p90.is_some_and(|bucket| bucket >= GOOD_BUCKETS);
        }
        for domain in 0..TIMED {
            let latency = &mut self.latency[domain];
            let mut p99 = latency.percentile(now_jiffies, HistogramKind::Total, 99);
            // Domains do not all have enough samples at the same time. The last percentile is used
            // once when the drive is found to be congested.
            if congested {
                let last = latency.p99.take();
                p99 = p99.or(last);
            } else if p99.is_some() {
                latency.p99 = p99;
            }
            let Some(p99) = p99 else { continue };
            if congested || p99 >= GOOD_BUCKETS {
                self.resize(domain, p99);
            }
        }
    }

    /// Changes the number of tokens in proportion to the latency: at half its target a domain keeps
    /// half its tokens, at twice the target it gets twice as many.
    fn resize(&mut self, domain: usize, p99: usize) {
        let old = self.tokens[domain].depth();
        let depth = old * (p99 as u32 + 1) / GOOD_BUCKETS as u32;
        let depth = depth.clamp(1, MAX_DEPTH[domain]);
        if depth != old {
            self.tokens[domain].resize(depth);
            self.adjustments += 1;
        }
    }
}

impl Elevator for Kyber {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    fn depth_updated(&mut self, info: &QueueInfo) {
        let words = (info.nr_cpus as usize).div_ceil(64);
        let hctx = Hctx {
            busy: core::array::from_fn(|_| CpuSet(vec![0; words])),
            ..Hctx::default()
        };
        self.hctxs.resize(info.nr_hw_queues as usize, hctx);
        self.cpus
            .resize_with(info.nr_cpus as usize, Default::default);
        self.async_depth = (info.nr_requests * ASYNC_PERCENT / 100).max(1);
    }

    fn limit_depth(&mut self, op: Op, flags: BioFlags) -> Option<u32> {
        (!op_is_sync(op, flags)).then_some(self.async_depth)
    }

    fn min_shallow_depth(&self) -> Option<u32> {
        Some(self.async_depth)
    }

    fn sees_bios() -> bool {
        true
    }

    /// Bios are merged only with requests in the lists of their CPUs.
    fn merges_by_end() -> bool {
        false
    }

    fn bio_merge(&mut self, ctx: &mut SchedCtx<'_>, cpu: usize, bio: &Bio) -> Option<RequestId> {
        bio_list_merge(ctx, &self.cpus[cpu][domain_of(bio.op)], bio)
    }

    fn prepare_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        ctx.rqs[id].elv[ELV_TOKEN] = 0;
    }

    #[inline]
    fn insert_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize, id: RequestId, at: InsertAt) {
        ctx.trace_insert(id);
        self.add_request(ctx, hctx, id);
        if at == InsertAt::Head {
            let (cpu, domain) = (ctx.rqs[id].ctx as usize, domain_of(ctx.rqs[id].op));
            self.cpus[cpu][domain].remove(ctx.rqs, id);
            self.cpus[cpu][domain].push_front(ctx.rqs, id);
        }
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize, id: RequestId) {
        let (cpu, domain) = (ctx.rqs[id].ctx as usize, domain_of(ctx.rqs[id].op));
        self.cpus[cpu][domain].push_back(ctx.rqs, id);
        self.hctxs[hctx].busy[domain].insert(cpu);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize) -> Option<RequestId> {
        self.last_hctx = hctx;
        let h = &self.hctxs[hctx];
        if h.batching < BATCH[h.cur_domain]
            && let Some(id) = self.dispatch_domain(ctx, hctx)
        {
            return Some(id);
        }
        // The batch is complete, or its domain has no requests or no tokens.
        self.hctxs[hctx].batching = 0;
        for _ in 0..DOMAINS {
            let h = &mut self.hctxs[hctx];
            h.cur_domain = (h.cur_domain + 1) % DOMAINS;
            if let Some(id) = self.dispatch_domain(ctx, hctx) {
                self.batches += 1;
                return Some(id);
            }
        }
        None
    }

    fn has_work(&self, hctx: usize) -> bool {
        let h = &self.hctxs[hctx];
        h.lists.iter().any(|list| !list.is_empty()) || h.busy.iter().any(|cpus| !cpus.is_empty())
    }

    fn completed_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &ctx.rqs[id];
        let domain = domain_of(rq.op);
        if domain == OTHER {
            return;
        }
        let target = self.target_ns(domain);
        let latency = &mut self.latency[domain];
        let since = |then| ctx.now.saturating_sub(then).0;
        latency.total.add(target, since(rq.start));
        latency.io.add(target, since(rq.io_start));
        let due = jiffy_start(jiffies(ctx.now) + msecs_to_jiffies(PERIOD_MS) + 1);
        self.timer = Some(self.timer.map_or(due, |at| at.min(due)));
    }

    fn requeue_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.put_token(ctx, id);
    }

    fn finish_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.put_token(ctx, id);
    }

    /// The first end after a check of the histograms sets the timer, and one that frees a token runs
    /// the contexts that wait for it.
    fn ends_can_wait(&self) -> bool {
        self.timer.is_some() && self.waiters.iter().all(Vec::is_empty)
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.timer
    }

    fn timer(&mut self, ctx: &mut SchedCtx<'_>) -> bool {
        if self.timer.is_some_and(|at| at <= ctx.now) {
            self.timer = None;
            self.adjust(ctx.now);
        }
        false
    }

    /// Each hardware context has its own state, so all must be run.
    fn is_single_queue(&self) -> bool {
        false
    }

    /// Domain and batch are those of the hardware context that was dispatched from last.
    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        let hctx = &self.hctxs[self.last_hctx];
        let depth = |d: usize| self.tokens[d].depth() as i64;
        let busy = |d: usize| self.tokens[d].in_use() as i64;
        vec![
            ("cur_domain", hctx.cur_domain as i64),
            ("batching", hctx.batching as i64),
            ("async_depth", self.async_depth as i64),
            ("read_tokens_depth", depth(READ)),
            ("write_tokens_depth", depth(WRITE)),
            ("discard_tokens_depth", depth(DISCARD)),
            ("other_tokens_depth", depth(OTHER)),
            ("read_tokens_busy", busy(READ)),
            ("write_tokens_busy", busy(WRITE)),
            ("discard_tokens_busy", busy(DISCARD)),
            ("other_tokens_busy", busy(OTHER)),
            ("read_waiting", hctx.waiting[READ] as i64),
            ("write_waiting", hctx.waiting[WRITE] as i64),
        ]
    }

    fn debug_files(&self, rqs: &Requests, hctx: Option<usize>) -> Vec<(String, String)> {
        match hctx.and_then(|hctx| self.hctxs.get(hctx)) {
            Some(hctx) => hctx.debug_files(rqs),
            None => self.queue_debug_files(),
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("reads dispatched", self.dispatched[READ]),
            ("writes dispatched", self.dispatched[WRITE]),
            ("discards dispatched", self.dispatched[DISCARD]),
            ("others dispatched", self.dispatched[OTHER]),
            ("reads throttled", self.throttled[READ]),
            ("writes throttled", self.throttled[WRITE]),
            ("discards throttled", self.throttled[DISCARD]),
            ("others throttled", self.throttled[OTHER]),
            ("batches", self.batches),
            ("depth adjustments", self.adjustments),
        ]
    }
}

/// Entry in the registry of schedulers.
pub const KYBER: ElevatorType = ElevatorType {
    name: "kyber",
    help: "few requests in the drive, so that reads and writes meet their latency targets",
    source: "Linux 6.12, block/kyber-iosched.c",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts {
        merge: 131,
        insert: 36,
        dispatch: 98,
        finish: 49,
    }),
    build: Some(&|info| Box::new(Kyber::new(info))),
};
