//! Requests reconstructed from their events, as biosnoop and the kernel's own accounting
//! do it: from the start of a request (`blk_account_io_start`) to its end.

use std::collections::BTreeMap;

use blklab_blk::{Op, Sector};
use blklab_workload::trace::tracefs::{BioEvent, Dev, Event, EventKind, RqEnd, RqEvent};

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndedRequest {
    pub(super) dev: Dev,
    pub(super) op: Option<Op>,
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) sector: Sector,
    pub(super) bytes: u64,
    pub(super) made_ns: u64,
    /// The time of its issue; a write that only flushes has none, as the flush is a request of
    /// its own (`block/blk-flush.c`).
    pub(super) issued_ns: Option<u64>,
    pub(super) ended_ns: u64,
}

/// A request that has not ended.
#[derive(Clone, Debug)]
struct OpenRequest {
    pid: u32,
    comm: String,
    made_ns: u64,
    /// The time of its issue and its length in bytes, once it is issued.
    issued: Option<(u64, u64)>,
}

/// Identifies requests by drive, operation, first sector and whether they have data; those that
/// are alike are taken in order. A flush takes the flags of its write away on the way.
type Key = (Dev, Option<usize>, Sector, bool);

/// The requests that have not ended.
#[derive(Debug, Default)]
pub(super) struct Requests {
    open: BTreeMap<Key, Vec<OpenRequest>>,
}

impl Requests {
    /// Processes an event. Returns the request that ends with it.
    pub(super) fn event(&mut self, event: &Event<'_>) -> Option<EndedRequest> {
        match &event.kind {
            EventKind::GetRq(bio) => {
                let made = made(event);
                self.at(key_of_bio(bio)).push(made);
            }
            EventKind::BioFrontmerge(bio) => self.extend_front(bio),
            EventKind::RqIssue(rq) => self.issue(event, rq),
            EventKind::RqMerge(rq) => {
                let merged = self.at(key(rq.dev, rq.rwbs.op, rq.sector, rq.sectors));
                let at = merged.iter().position(|open| open.issued.is_none());
                at.map(|at| merged.remove(at));
            }
            EventKind::RqRequeue(end) => {
                let same = self.at(key_of_end(end));
                let back = same.iter_mut().find(|open| open.issued.is_some());
                if let Some(back) = back {
                    back.issued = None;
                }
            }
            EventKind::RqComplete(end) => return self.complete(event, end),
            _ => {}
        }
        None
    }

    /// Returns the open requests at one place.
    fn at(&mut self, key: Key) -> &mut Vec<OpenRequest> {
        self.open.entry(key).or_default()
    }

    /// Moves the start of the request into which a bio was front-merged.
    fn extend_front(&mut self, bio: &BioEvent<'_>) {
        let behind = Sector(bio.sector.0.saturating_add(u64::from(bio.sectors)));
        let same = self.at(key(bio.dev, bio.rwbs.op, behind, bio.sectors));
        let at = same.iter().position(|open| open.issued.is_none());
        if let Some(at) = at {
            let moved = same.remove(at);
            self.at(key_of_bio(bio)).push(moved);
        }
    }

    fn issue(&mut self, event: &Event<'_>, rq: &RqEvent<'_>) {
        let same = self.at(key(rq.dev, rq.rwbs.op, rq.sector, rq.sectors));
        let at = same.iter().position(|open| open.issued.is_none());
        let at = at.unwrap_or_else(|| {
            // The request was created before the trace began.
            same.push(made(event));
            same.len() - 1
        });
        same[at].issued = Some((event.at_ns, u64::from(rq.bytes)));
    }

    fn complete(&mut self, event: &Event<'_>, end: &RqEnd) -> Option<EndedRequest> {
        let key = key_of_end(end);
        let same = self.open.get_mut(&key)?;
        let only_flushes = end.sectors == 0 && end.rwbs.op == Some(Op::Write);
        let has_ended = |open: &OpenRequest| only_flushes || open.issued.is_some();
        let at = same.iter().position(has_ended)?;
        let open = same.remove(at);
        if same.is_empty() {
            self.open.remove(&key);
        }
        Some(EndedRequest {
            dev: end.dev,
            op: end.rwbs.op,
            pid: open.pid,
            comm: open.comm,
            sector: end.sector,
            bytes: open.issued.map_or(0, |(_, bytes)| bytes),
            made_ns: open.made_ns,
            issued_ns: open.issued.map(|(issued_ns, _)| issued_ns),
            ended_ns: event.at_ns,
        })
    }
}

fn key(dev: Dev, op: Option<Op>, sector: Sector, sectors: u32) -> Key {
    // A flush is issued at sector 0 and ends at the last that there can be.
    let place = if sectors == 0 { Sector(0) } else { sector };
    (dev, op.map(Op::stat_group), place, sectors > 0)
}

fn key_of_bio(bio: &BioEvent<'_>) -> Key {
    key(bio.dev, bio.rwbs.op, bio.sector, bio.sectors)
}

fn key_of_end(end: &RqEnd) -> Key {
    key(end.dev, end.rwbs.op, end.sector, end.sectors)
}

fn made(event: &Event<'_>) -> OpenRequest {
    OpenRequest {
        pid: event.pid,
        comm: event.task.to_string(),
        made_ns: event.at_ns,
        issued: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_workload::trace::tracefs::events;

    fn ended(text: &str) -> Vec<EndedRequest> {
        let mut requests = Requests::default();
        let events = events(text, "memory").map(|event| event.expect("well formed"));
        events.filter_map(|event| requests.event(&event)).collect()
    }

    #[test]
    fn a_bio_before_the_first_moves_its_request() {
        let all = ended(
            "\
 a-1 [000] ..... 1.000000: block_getrq: 8,0 W 808 + 8 [a]
 a-1 [000] ..... 2.000000: block_bio_frontmerge: 8,0 W 800 + 8 [a]
 k-9 [000] ..... 3.000000: block_rq_issue: 8,0 W 8192 () 800 + 16 none,0,0 [k]
 i-0 [000] d.h.. 5.000000: block_rq_complete: 8,0 W () 800 + 16 none,0,0 [0]
",
        );
        assert_eq!(all.len(), 1);
        let of = &all[0];
        assert_eq!((of.comm.as_str(), of.pid, of.bytes), ("a", 1, 8192));
        let times = [Some(of.made_ns), of.issued_ns, Some(of.ended_ns)];
        let at_s = times.map(|ns| ns.map(|ns| ns / 1_000_000_000));
        assert_eq!(at_s, [Some(1), Some(3), Some(5)]);
    }

    /// As a kernel was recorded: the flush ends at a sector that it did not begin at.
    #[test]
    fn a_write_that_only_flushes_ends_beside_its_flush() {
        let all = ended(
            "\
 f-1 [000] ..... 1.000000: block_getrq: 8,0 FWS 0 + 0 [f]
 k-9 [000] ..... 2.000000: block_rq_issue: 8,0 FF 0 () 0 + 0 none,0,0 [k]
 i-0 [000] d.h1. 4.000000: block_rq_complete: 8,0 FF () 18446744073709551615 + 0 none,0,0 [0]
 i-0 [000] d.h2. 5.000000: block_rq_complete: 8,0 WS () 0 + 0 be,0,4 [0]
",
        );
        let seconds = |ns: u64| ns / 1_000_000_000;
        let found: Vec<_> = (all.iter())
            .map(|of| (of.op, of.issued_ns.map(seconds), seconds(of.ended_ns)))
            .collect();
        assert_eq!(
            found,
            [(Some(Op::Flush), Some(2), 4), (Some(Op::Write), None, 5)]
        );
    }

    #[test]
    fn one_that_was_merged_away_or_given_back_does_not_end() {
        let all = ended(
            "\
 a-1 [000] ..... 1.000000: block_getrq: 8,0 R 0 + 8 [a]
 a-1 [000] ..... 1.000000: block_getrq: 8,0 R 8 + 8 [a]
 a-1 [000] ..... 1.000000: block_rq_merge: 8,0 R 4096 () 8 + 8 none,0,0 [a]
 a-1 [000] ..... 2.000000: block_rq_issue: 8,0 R 8192 () 0 + 16 none,0,0 [a]
 a-1 [000] ..... 3.000000: block_rq_requeue: 8,0 R () 0 + 16 none,0,0 [0]
 a-1 [000] ..... 4.000000: block_rq_issue: 8,0 R 8192 () 0 + 16 none,0,0 [a]
 a-1 [000] ..... 5.000000: block_rq_complete: 8,0 R () 0 + 16 none,0,0 [0]
",
        );
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].issued_ns, Some(4_000_000_000));
    }
}
