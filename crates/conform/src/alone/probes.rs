//! What each scheduler's probes say, in one vocabulary.
//!
//! A scheduler is added here: which events are its inserts, calls, answers and
//! ends, and which of its state an answer shows, by the names of
//! [`blklab_blk::Elevator::debug_state`].

use blklab_workload::trace::tracefs::{EventKind, MergeSide};

/// What a probe's event means to the comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// `insert_requests` was entered; the requests follow.
    InsertCall { at_head: bool },
    /// `dispatch_request` was entered in this tick.
    Ask { jiffies: u64 },
    /// It returned.
    Answer(Answer),
    /// A bio joined a queued request.
    BioMerged {
        rq: u64,
        sector: u64,
        bytes: u32,
        side: MergeSide,
    },
    /// A queued request, or one that was just being inserted, joined another.
    RqMerged { rq: u64, sector: u64, next: u64 },
    /// A request is freed; `was_inserted` where the scheduler ever had it.
    Finish { rq: u64, was_inserted: bool },
}

/// An answer of `dispatch_request`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) picked: Option<Picked>,
    /// State after the call.
    pub(crate) state: [Option<(&'static str, i64)>; STATE],
}

/// Most state an answer shows.
const STATE: usize = 3;

/// The request an answer names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Picked {
    pub(crate) rq: u64,
    pub(crate) sector: u64,
    /// Its deadline in the scheduler's own unit, where that is recorded.
    pub(crate) fifo_time: Option<u64>,
}

/// A scheduler's probes.
pub(crate) trait Probes: Sync {
    /// The event without which a trace is not of this scheduler.
    fn ask_event(&self) -> &'static str;

    /// What `event` means; `None` for events of others.
    fn step(&self, event: &EventKind<'_>) -> Option<Step>;
}

/// `BLK_MQ_INSERT_AT_HEAD`.
const AT_HEAD: u32 = 1;

/// mq-deadline's `dd_*`.
pub(crate) struct MqDeadline;

impl Probes for MqDeadline {
    fn ask_event(&self) -> &'static str {
        "dd_disp"
    }

    fn step(&self, event: &EventKind<'_>) -> Option<Step> {
        Some(match *event {
            EventKind::DdIns(call) => Step::InsertCall {
                at_head: call.flags & AT_HEAD != 0,
            },
            EventKind::DdDisp(call) => Step::Ask { jiffies: call.jif },
            EventKind::DdDispRet(ret) => Step::Answer(Answer {
                picked: ret.picked.map(|picked| Picked {
                    rq: picked.rq,
                    sector: picked.sector.0,
                    fifo_time: Some(picked.fifo_time),
                }),
                state: [
                    Some(("last_dir", ret.last_dir_is_write.into())),
                    Some(("batching", ret.batching.into())),
                    Some(("starved", ret.starved.into())),
                ],
            }),
            EventKind::DdBmerged {
                rq,
                sector,
                len_bytes,
                side,
            } => Step::BioMerged {
                rq,
                sector: sector.0,
                bytes: len_bytes,
                side,
            },
            EventKind::DdRqmerged {
                rq, sector, next, ..
            } => Step::RqMerged {
                rq,
                sector: sector.0,
                next,
            },
            EventKind::DdFin { rq, per_prio, .. } => Step::Finish {
                rq,
                was_inserted: per_prio.is_some(),
            },
            _ => return None,
        })
    }
}
