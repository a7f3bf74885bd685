//! What the tracepoints of a run say that the counters must be: two accounts of the same run, of
//! which one is kept by the code that acts and the other made from what it did.

use std::collections::HashMap;

use blklab_blk::{
    BioFlags, IoStatus, Nanos, Op, QueueCounters, QueueLimits, RequestQueue, TraceEvent, TraceKind,
};

/// A request between `block_getrq` and its end.
#[derive(Debug)]
struct Open {
    is_write: bool,
    since: Nanos,
    /// How many `block_rq_complete` it still has: one for each step of a flush sequence that the
    /// drive or the sequence ends.
    completions: u32,
}

/// Counters made from tracepoints.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) counters: QueueCounters,
    /// `block_rq_issue`, and of these the ones longer than a page and their further pages.
    issues: [u64; 3],
    /// Requests that were inserted, and those merged into others.
    inserted: u64,
    merged_requests: u64,
    /// Times that the scheduler was asked, and its answers with and without a request.
    asked: u64,
    answers: [u64; 2],
    open: HashMap<u64, Open>,
    last: Nanos,
}

impl Account {
    /// Adds the tracepoints since the last call.
    pub(crate) fn add(&mut self, limits: &QueueLimits, events: &[TraceEvent]) {
        for event in events {
            self.pass_to(event.at);
            self.add_one(limits, event);
        }
    }

    fn pass_to(&mut self, now: Nanos) {
        assert!(now >= self.last, "an event of the past");
        if !self.open.is_empty() {
            self.counters.io_ticks_ns += (now - self.last).0;
        }
        self.last = now;
    }

    fn add_one(&mut self, limits: &QueueLimits, event: &TraceEvent) {
        let group = event.op.stat_group();
        match event.kind {
            TraceKind::BioBackMerge | TraceKind::BioFrontMerge => self.counters.merges[group] += 1,
            TraceKind::GetRq => {
                let needs_flush = event.flags.has(BioFlags::PREFLUSH)
                    || (event.flags.has(BioFlags::FUA) && !limits.fua);
                let sequence = limits.write_cache && needs_flush;
                let open = Open {
                    is_write: event.op.is_write(),
                    since: event.at,
                    completions: 1 + (sequence && event.sectors > 0) as u32,
                };
                assert!(self.open.insert(event.serial, open).is_none());
            }
            TraceKind::RqInsert => self.inserted += 1,
            TraceKind::RqMerge => {
                self.counters.merges[group] += 1;
                self.merged_requests += 1;
                self.open.remove(&event.serial).expect("it was open");
            }
            TraceKind::Ask(_) => self.asked += 1,
            TraceKind::Dispatch => self.answers[0] += 1,
            TraceKind::DispatchNone => self.answers[1] += 1,
            TraceKind::RqIssue => {
                let further_pages = u64::from(event.sectors.saturating_sub(1) / 8);
                self.issues[0] += 1;
                self.issues[1] += u64::from(further_pages > 0);
                self.issues[2] += further_pages;
            }
            TraceKind::RqRequeue => self.counters.requeues += 1,
            TraceKind::RqComplete(status) => self.complete(event, status),
            _ => {}
        }
    }

    fn complete(&mut self, event: &TraceEvent, status: IoStatus) {
        if event.op == Op::Flush {
            return;
        }
        let open = self.open.get_mut(&event.serial).expect("it was open");
        open.completions -= 1;
        if open.completions > 0 {
            return;
        }
        let open = self.open.remove(&event.serial).expect("it is open");
        let group = event.op.stat_group();
        let took_ns = (event.at - open.since).0;
        self.counters.ios[group] += 1;
        self.counters.sectors[group] += u64::from(event.sectors);
        self.counters.ticks_ns[group] += took_ns;
        self.counters.errors += u64::from(status != IoStatus::Ok);
        if open.is_write && event.flags.has(BioFlags::FUA) {
            self.counters.fua_ios += 1;
            self.counters.fua_ticks_ns += took_ns;
        }
    }

    /// Reads and writes in flight.
    pub(crate) fn in_flight(&self) -> [u32; 2] {
        let writes = self.open.values().filter(|open| open.is_write).count();
        [self.open.len() - writes, writes].map(|count| count as u32)
    }

    /// Compares all that both accounts have. What is known only to one is left out: flush commands,
    /// and, where requests were merged into each other, since when the survivor was counted.
    pub(crate) fn check(&mut self, now: Nanos, queue: &RequestQueue) {
        self.pass_to(now);
        let mut counters = queue.counters(now);
        let flush = Op::Flush.stat_group();
        (counters.ios[flush], counters.ticks_ns[flush]) = (0, 0);
        counters.behind_flush_ns = 0;
        if self.merged_requests > 0 {
            counters.ticks_ns = self.counters.ticks_ns;
            counters.fua_ticks_ns = self.counters.fua_ticks_ns;
        }
        assert_eq!(counters, self.counters);
        assert_eq!(queue.in_flight(), self.in_flight());
        let costs = queue.cost_counts();
        let issues = [costs.issues, costs.multi_page_issues, costs.further_pages];
        assert_eq!(issues, self.issues);
        assert_eq!(costs.dispatch_calls, self.answers.iter().sum::<u64>());
        assert_eq!(costs.dispatch_calls, self.asked);
        let runs: u64 = (0..queue.nr_hw_queues())
            .map(|hctx| queue.hctx_stats(hctx).0.run)
            .sum();
        if queue.elevator().is_some() {
            // Of what the scheduler was given, the rest was merged into others at once.
            let given = self.inserted..=self.inserted + self.merged_requests;
            assert!(
                given.contains(&costs.inserts),
                "{} of {given:?}",
                costs.inserts
            );
            assert!(runs > 0 || self.asked == 0);
            let counted: Vec<u64> = queue.elevator_counters().iter().map(|(_, n)| *n).collect();
            assert_eq!(counted[1..], [self.merged_requests, self.answers[0]]);
        }
    }
}
