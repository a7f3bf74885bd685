//! Computes latencies from events: the time of each request in the scheduler (insert to issue) and
//! in the drive (issue to completion), as biosnoop and btt do.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};

use blklab_stats::{RequestKind, RequestStats};

use super::decode::{COMM_BYTES, Kind, RequestEvent};
use super::session::Sink;
use crate::error::HostError;

/// The most processes that are counted separately.
const PROCESSES_MAX: usize = 64;

/// The name for all other processes.
const OTHERS: &[u8; COMM_BYTES] = b"(others)\0\0\0\0\0\0\0\0";

/// First sector and operation, which identify a request.
type Key = (u64, u8);

/// State of a request in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Underway {
    first_ns: u64,
    inserted_ns: Option<u64>,
    issued_ns: Option<u64>,
    bytes: u64,
    comm: [u8; COMM_BYTES],
}

/// Computes latencies from a drive's events, which must be in order of time.
#[derive(Debug, Default)]
pub struct Splitter {
    underway: HashMap<Key, Underway>,
    /// Further requests with the same key, oldest first; mostly two reads of one sector.
    doubles: Vec<(Key, Underway)>,
    in_drive: u32,
    kinds: BTreeMap<(u8, u64, [u8; COMM_BYTES]), RequestKind>,
    processes: Vec<[u8; COMM_BYTES]>,
    stats: RequestStats,
}

impl Sink for Splitter {
    fn event(&mut self, event: &RequestEvent) -> Result<(), HostError> {
        self.follow(event);
        Ok(())
    }

    /// Requests in flight are no longer reliable.
    fn lost(&mut self, events: u64) -> Result<(), HostError> {
        self.forget(events);
        Ok(())
    }
}

impl Splitter {
    /// Processes the next event.
    pub fn follow(&mut self, event: &RequestEvent) {
        let Some(op) = event.op else {
            // A passthrough command, which bypasses the scheduler.
            return;
        };
        let key = (event.sector, op);
        match event.kind {
            // There is no request yet.
            Kind::Queue | Kind::GetRequest | Kind::BackMerge => {}
            Kind::Start => self.add(key, Underway::first(event)),
            Kind::Insert => self.insert(key, event),
            Kind::Issue => self.issue(key, event),
            Kind::Requeue => self.requeue(key),
            Kind::Merge => {
                self.take(key, |u| u.issued_ns.is_none());
                self.stats.merges += 1;
            }
            Kind::FrontMerge => self.front_merge(key, event),
            Kind::Complete => self.complete(key, event),
        }
    }

    /// Drops all requests in flight, because events are missing.
    pub fn forget(&mut self, events: u64) {
        self.stats.lost_events = self.stats.lost_events.saturating_add(events);
        self.underway.clear();
        self.doubles.clear();
        self.in_drive = 0;
    }

    /// Returns the statistics.
    pub fn finish(self) -> RequestStats {
        RequestStats {
            kinds: self.kinds.into_values().collect(),
            ..self.stats
        }
    }

    fn add(&mut self, key: Key, request: Underway) {
        match self.underway.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(request);
            }
            Entry::Occupied(_) => self.doubles.push((key, request)),
        }
    }

    /// Removes the oldest request with this key that satisfies `wanted`.
    fn take(&mut self, key: Key, wanted: impl Fn(&Underway) -> bool) -> Option<Underway> {
        if let Entry::Occupied(found) = self.underway.entry(key) {
            if wanted(found.get()) {
                let taken = found.remove();
                // The next oldest takes its place.
                if let Some(next) = self.doubles.iter().position(|(k, _)| *k == key) {
                    let (_, request) = self.doubles.remove(next);
                    self.underway.insert(key, request);
                }
                return Some(taken);
            }
            let wanted_double = |(k, u): &(Key, Underway)| *k == key && wanted(u);
            let at = self.doubles.iter().position(wanted_double)?;
            return Some(self.doubles.remove(at).1);
        }
        None
    }

    fn insert(&mut self, key: Key, event: &RequestEvent) {
        let fresh = |u: &Underway| u.inserted_ns.is_none() && u.issued_ns.is_none();
        // A requeued request is inserted again; the first insertion counts.
        let again = |u: &Underway| u.issued_ns.is_none();
        let known = self.take(key, fresh).or_else(|| self.take(key, again));
        let mut request = known.unwrap_or_else(|| Underway::first(event));
        request.inserted_ns.get_or_insert(event.at_ns);
        request.bytes = event.bytes;
        self.add(key, request);
    }

    fn issue(&mut self, key: Key, event: &RequestEvent) {
        let known = self.take(key, |u| u.issued_ns.is_none());
        let mut request = known.unwrap_or_else(|| Underway::first(event));
        request.issued_ns = Some(event.at_ns);
        request.bytes = event.bytes;
        self.add(key, request);
        self.in_drive = self.in_drive.saturating_add(1);
        self.stats.depth_at_issue.record(self.in_drive, 1);
    }

    fn requeue(&mut self, key: Key) {
        self.stats.requeues += 1;
        if let Some(mut request) = self.take(key, |u| u.issued_ns.is_some()) {
            request.issued_ns = None;
            self.in_drive = self.in_drive.saturating_sub(1);
            self.add(key, request);
        }
    }

    /// The event describes the bio: the request began after it.
    fn front_merge(&mut self, key: Key, event: &RequestEvent) {
        let behind = (event.sector.wrapping_add(event.bytes / 512), key.1);
        if let Some(mut request) = self.take(behind, |u| u.issued_ns.is_none()) {
            request.bytes = request.bytes.saturating_add(event.bytes);
            self.add(key, request);
        }
    }

    fn complete(&mut self, key: Key, event: &RequestEvent) {
        let Some(mut request) = self.take(key, |u| u.issued_ns.is_some()) else {
            self.stats.unmatched += 1;
            return;
        };
        if event.error == 0 && event.bytes > 0 && event.bytes < request.bytes {
            // A part is complete; the rest follows it.
            request.bytes -= event.bytes;
            let rest = event.sector.wrapping_add(event.bytes / 512);
            self.add((rest, key.1), request);
            return;
        }
        self.in_drive = self.in_drive.saturating_sub(1);
        if event.error != 0 {
            self.stats.errors += 1;
        }
        self.count(key.1, &request, event.at_ns);
    }

    fn count(&mut self, op: u8, request: &Underway, now_ns: u64) {
        let up_to_bytes = request
            .bytes
            .checked_next_power_of_two()
            .unwrap_or(u64::MAX);
        let up_to_bytes = if request.bytes == 0 { 0 } else { up_to_bytes };
        let comm = self.process(request.comm);
        let kind = self.kinds.entry((op, up_to_bytes, comm));
        let kind = kind.or_insert_with(|| RequestKind {
            op: usize::from(op),
            up_to_bytes,
            process: name(&comm),
            ..RequestKind::default()
        });
        // Clocks of CPUs may differ by some nanoseconds.
        let issued_ns = request.issued_ns.unwrap_or(now_ns);
        kind.drive_ns.record(now_ns.saturating_sub(issued_ns));
        kind.whole_ns
            .record(now_ns.saturating_sub(request.first_ns));
        // A request that went directly to the driver was in no scheduler.
        if let Some(inserted_ns) = request.inserted_ns {
            kind.queued_ns.record(issued_ns.saturating_sub(inserted_ns));
        }
    }

    fn process(&mut self, comm: [u8; COMM_BYTES]) -> [u8; COMM_BYTES] {
        if self.processes.contains(&comm) {
            return comm;
        }
        if self.processes.len() >= PROCESSES_MAX {
            return *OTHERS;
        }
        self.processes.push(comm);
        comm
    }
}

impl Underway {
    fn first(event: &RequestEvent) -> Underway {
        Underway {
            first_ns: event.at_ns,
            bytes: event.bytes,
            comm: event.comm,
            ..Underway::default()
        }
    }
}

/// A task's name up to its first zero.
pub(crate) fn name(comm: &[u8; COMM_BYTES]) -> String {
    let end = comm.iter().position(|b| *b == 0).unwrap_or(COMM_BYTES);
    String::from_utf8_lossy(&comm[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(at_ns: u64, kind: Kind, sector: u64, sectors: u64) -> RequestEvent {
        RequestEvent {
            at_ns,
            kind,
            dev: 0,
            sector,
            bytes: sectors * 512,
            op: Some(0),
            comm: *b"fio\0\0\0\0\0\0\0\0\0\0\0\0\0",
            error: 0,
            cpu: 0,
            pid: 1,
            rwbs: [0; 10],
            ioprio: 0,
        }
    }

    fn split(events: &[RequestEvent]) -> RequestStats {
        let mut splitter = Splitter::default();
        events.iter().for_each(|event| splitter.follow(event));
        assert!(splitter.in_drive <= events.len() as u32);
        splitter.finish()
    }

    /// The largest scheduler, drive and total latencies.
    fn longest(kind: &RequestKind) -> (u64, u64, u64) {
        let max = |h: &blklab_stats::Histogram| h.summary().max_ns;
        (
            max(&kind.queued_ns),
            max(&kind.drive_ns),
            max(&kind.whole_ns),
        )
    }

    #[test]
    fn a_request_is_split_at_its_issue() {
        use Kind::*;
        let stats = split(&[
            at(10, Start, 8, 8),
            at(12, Insert, 8, 8),
            at(20, Issue, 8, 8),
            at(50, Complete, 8, 8),
        ]);
        assert_eq!(stats.kinds.len(), 1);
        let kind = &stats.kinds[0];
        assert_eq!(longest(kind), (8, 30, 40));
        assert_eq!((kind.up_to_bytes, kind.process.as_str()), (4096, "fio"));
        assert_eq!(stats.depth_at_issue.counts[1], 1);
    }

    #[test]
    fn what_went_straight_to_the_driver_was_in_no_scheduler() {
        let stats = split(&[at(20, Kind::Issue, 8, 8), at(50, Kind::Complete, 8, 8)]);
        assert!(stats.kinds[0].queued_ns.is_empty());
        assert_eq!(stats.kinds[0].drive_ns.count(), 1);
    }

    #[test]
    fn merges_move_and_remove_requests() {
        use Kind::*;
        let stats = split(&[
            at(0, Insert, 16, 8),
            at(1, Insert, 24, 8),
            at(2, FrontMerge, 8, 8),
            at(3, Merge, 24, 8),
            at(10, Issue, 8, 24),
            at(30, Complete, 8, 24),
        ]);
        assert_eq!((stats.merges, stats.unmatched), (1, 0));
        assert_eq!(longest(&stats.kinds[0]), (10, 20, 30));
        assert_eq!(stats.kinds[0].up_to_bytes, 16_384);
    }

    #[test]
    fn parts_end_with_the_last() {
        use Kind::*;
        let stats = split(&[
            at(0, Issue, 0, 16),
            at(5, Complete, 0, 8),
            at(9, Complete, 8, 8),
        ]);
        assert_eq!(stats.kinds[0].drive_ns.count(), 1);
        assert_eq!(longest(&stats.kinds[0]).1, 9);
    }

    #[test]
    fn requeues_go_back_to_the_scheduler() {
        use Kind::*;
        let stats = split(&[
            at(0, Insert, 0, 8),
            at(5, Issue, 0, 8),
            at(6, Requeue, 0, 8),
            at(7, Insert, 0, 8),
            at(10, Issue, 0, 8),
            at(15, Complete, 0, 8),
        ]);
        assert_eq!(stats.requeues, 1);
        assert_eq!(longest(&stats.kinds[0]), (10, 5, 15));
        assert_eq!(stats.depth_at_issue.counts[1], 2);
    }

    #[test]
    fn two_reads_of_one_sector_are_two() {
        use Kind::*;
        let stats = split(&[
            at(0, Issue, 0, 8),
            at(5, Issue, 0, 8),
            at(10, Complete, 0, 8),
            at(20, Complete, 0, 8),
        ]);
        assert_eq!(stats.kinds[0].drive_ns.count(), 2);
        assert_eq!((stats.unmatched, stats.depth_at_issue.counts[2]), (0, 1));
        assert_eq!(longest(&stats.kinds[0]).1, 15);
    }

    #[test]
    fn after_a_loss_nothing_is_guessed() {
        let mut splitter = Splitter::default();
        splitter.follow(&at(0, Kind::Issue, 0, 8));
        splitter.forget(3);
        splitter.follow(&at(9, Kind::Complete, 0, 8));
        let stats = splitter.finish();
        assert_eq!((stats.lost_events, stats.unmatched), (3, 1));
        assert!(stats.kinds.is_empty());
    }

    proptest! {
        #[test]
        fn any_order_of_events_is_counted_once(events in prop::collection::vec((0usize..7, 0u64..4, 0u64..5, 0u8..5), 0..200)) {
            let kinds = Kind::EVENTS.map(|(kind, _, _)| kind);
            let mut splitter = Splitter::default();
            let mut completes = 0;
            for (i, (kind, sector, sectors, op)) in events.into_iter().enumerate() {
                let op = (op < 4).then_some(op);
                let kind = kinds[kind];
                completes += u64::from(kind == Kind::Complete && op.is_some());
                splitter.follow(&RequestEvent { op, ..at(i as u64, kind, sector * 8, sectors * 8) });
            }
            let stats = splitter.finish();
            let counted: u64 = stats.kinds.iter().map(|k| k.drive_ns.count()).sum();
            prop_assert!(counted + stats.unmatched <= completes);
        }
    }
}
