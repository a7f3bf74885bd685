//! What each scheduler's probes say, in one vocabulary.
//!
//! A scheduler is added here: which events are its inserts, calls, answers and
//! ends, and which of its state an answer shows, by the names of
//! [`blklab_blk::Elevator::debug_state`].

use blklab_workload::trace::tracefs::{EventKind, MergeSide};

/// What an event of a probe means for the comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ProbeEvent {
    /// `insert_requests` was entered; the requests follow.
    InsertCall { hctx: u64, at_head: bool },
    /// `dispatch_request` was entered in this tick; `nobody_served` where it is
    /// known that no queue was in service.
    Ask {
        hctx: u64,
        jiffies: u64,
        nobody_served: bool,
    },
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
    /// The drive was done with a request; times are the trace clock's.
    Completed {
        rq: u64,
        now_ns: u64,
        start_ns: u64,
        io_start_ns: u64,
    },
    /// The scheduler changed a part of its state by itself.
    Adjusted { name: &'static str, value: i64 },
    /// A request is freed; `was_inserted` where the scheduler ever had it.
    Finish { rq: u64, was_inserted: bool },
}

/// An answer of `dispatch_request`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) picked: Option<Picked>,
    /// It is known that no queue is in service then.
    pub(crate) nobody_served: bool,
    /// State after the call.
    pub(crate) state: Vec<StateValue>,
}

/// A part of a scheduler's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateValue {
    /// The kind of comparison it is counted under.
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) value: i64,
}

/// A state value that is counted under the kind `state`.
fn state(name: &'static str, value: impl Into<i64>) -> StateValue {
    StateValue {
        kind: "state",
        name,
        value: value.into(),
    }
}

/// The request an answer names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Picked {
    pub(crate) rq: u64,
    pub(crate) sector: u64,
    /// Its deadline in the scheduler's own unit, where that is recorded.
    pub(crate) fifo_time: Option<u64>,
    /// The queue it came from, and whose that is.
    pub(crate) queue: Option<(u64, i64)>,
}

/// A scheduler's probes.
pub(crate) trait Probes: Sync {
    /// The event without which a trace is not of this scheduler.
    fn ask_event(&self) -> &'static str;

    /// Whether bios go to the scheduler where they are queued, at the time that
    /// their task sees: for schedulers without probes where bios merge.
    fn follows_tasks(&self) -> bool {
        false
    }

    /// What `event` means; `None` for events of others.
    fn step(&self, event: &EventKind<'_>) -> Option<ProbeEvent>;
}

/// `BLK_MQ_INSERT_AT_HEAD`.
const AT_HEAD: u32 = 1;

/// mq-deadline's `dd_*`.
pub(crate) struct MqDeadline;

impl Probes for MqDeadline {
    fn ask_event(&self) -> &'static str {
        "dd_disp"
    }

    fn step(&self, event: &EventKind<'_>) -> Option<ProbeEvent> {
        Some(match *event {
            EventKind::DdIns(call) => ProbeEvent::InsertCall {
                hctx: call.hctx,
                at_head: call.flags & AT_HEAD != 0,
            },
            EventKind::DdDisp(call) => ProbeEvent::Ask {
                hctx: call.hctx,
                jiffies: call.jif,
                nobody_served: false,
            },
            EventKind::DdDispRet(ret) => ProbeEvent::Answer(Answer {
                picked: ret.picked.map(|picked| Picked {
                    rq: picked.rq,
                    sector: picked.sector.0,
                    fifo_time: Some(picked.fifo_time),
                    queue: None,
                }),
                nobody_served: false,
                state: vec![
                    state("last_dir", ret.last_dir_is_write),
                    state("batching", ret.batching),
                    state("starved", ret.starved),
                ],
            }),
            EventKind::DdBmerged {
                rq,
                sector,
                len_bytes,
                side,
            } => ProbeEvent::BioMerged {
                rq,
                sector: sector.0,
                bytes: len_bytes,
                side,
            },
            EventKind::DdRqmerged {
                rq, sector, next, ..
            } => ProbeEvent::RqMerged {
                rq,
                sector: sector.0,
                next,
            },
            EventKind::DdFin { rq, per_prio, .. } => ProbeEvent::Finish {
                rq,
                was_inserted: per_prio.is_some(),
            },
            _ => return None,
        })
    }
}

/// kyber's `ky_*` and trace events.
pub(crate) struct Kyber;

impl Probes for Kyber {
    fn ask_event(&self) -> &'static str {
        "ky_disp"
    }

    fn follows_tasks(&self) -> bool {
        true
    }

    fn step(&self, event: &EventKind<'_>) -> Option<ProbeEvent> {
        Some(match *event {
            EventKind::KyIns(call) => ProbeEvent::InsertCall {
                hctx: call.hctx,
                at_head: call.flags & AT_HEAD != 0,
            },
            EventKind::KyDisp(call) => ProbeEvent::Ask {
                hctx: call.hctx,
                jiffies: call.jif,
                nobody_served: false,
            },
            EventKind::KyDispRet(ret) => ProbeEvent::Answer(Answer {
                picked: ret.picked.map(|picked| Picked {
                    rq: picked.rq,
                    sector: picked.sector.0,
                    fifo_time: None,
                    queue: None,
                }),
                nobody_served: false,
                state: vec![
                    state("cur_domain", ret.domain),
                    state("batching", ret.batching),
                ],
            }),
            EventKind::KyDone {
                rq,
                now_ns,
                start_ns,
                io_start_ns,
                ..
            } => ProbeEvent::Completed {
                rq,
                now_ns,
                start_ns,
                io_start_ns,
            },
            EventKind::KyberAdjust { domain, depth, .. } => ProbeEvent::Adjusted {
                name: match domain {
                    "READ" => "read_tokens_depth",
                    "WRITE" => "write_tokens_depth",
                    "DISCARD" => "discard_tokens_depth",
                    _ => "other_tokens_depth",
                },
                value: depth.into(),
            },
            EventKind::KyFin { rq, .. } => ProbeEvent::Finish {
                rq,
                was_inserted: true,
            },
            _ => return None,
        })
    }
}

/// bfq's `bfq_*`.
pub(crate) struct Bfq;

impl Probes for Bfq {
    fn ask_event(&self) -> &'static str {
        "bfq_disp"
    }

    fn follows_tasks(&self) -> bool {
        true
    }

    fn step(&self, event: &EventKind<'_>) -> Option<ProbeEvent> {
        Some(match *event {
            EventKind::BfqIns(call) => ProbeEvent::InsertCall {
                hctx: call.hctx,
                at_head: call.flags & AT_HEAD != 0,
            },
            EventKind::BfqDisp(call) => ProbeEvent::Ask {
                hctx: call.hctx,
                jiffies: call.jif,
                nobody_served: call.in_service.is_none(),
            },
            EventKind::BfqDispRet(ret) => {
                let of = |kind, name, value| StateValue { kind, name, value };
                let mut known = vec![
                    state("queued", ret.queued),
                    of("peak rate", "peak_rate", ret.peak_rate.into()),
                ];
                if let Some(queue) = ret.picked.and_then(|picked| picked.queue) {
                    known.extend([
                        of("budget", "budget", queue.budget.into()),
                        of("service", "service", queue.service.into()),
                        of("raising", "wr_coeff", queue.wr_coeff.into()),
                    ]);
                    if let Some(group) = queue.group {
                        known.extend([
                            of("group", "group_weight", group.weight.into()),
                            of("group", "group_service", group.service.into()),
                            of("group", "group_budget", group.budget.into()),
                        ]);
                    }
                }
                ProbeEvent::Answer(Answer {
                    picked: ret.picked.map(|picked| Picked {
                        rq: picked.rq,
                        sector: picked.sector.0,
                        fifo_time: None,
                        queue: picked.queue.map(|q| (q.bfqq, q.pid.into())),
                    }),
                    nobody_served: ret.in_service.is_none(),
                    state: known,
                })
            }
            EventKind::BfqFin { rq, .. } => ProbeEvent::Finish {
                rq,
                was_inserted: true,
            },
            _ => return None,
        })
    }
}
