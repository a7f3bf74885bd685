//! MMC: SD cards, one command at a time (`drivers/mmc/core/block.c` and
//! `queue.c`, for a host without command queueing).
//!
//! The card has one command. The driver prepares the next read or write while
//! it runs, and waits with it until the card is free (`mmc_blk_mq_issue_rw_rq`);
//! it takes no third one (`mq->busy`). Everything else waits until the card is
//! idle, and goes alone (`MMC_ISSUE_SYNC`).

use blklab_blk::{BlkStatus, Nanos, Op, QueueConfig, Request, RequestId};
use blklab_device::{Completion, Device};

use crate::KernelDriver;
use crate::port::{OneAtATime, Port};

/// Tags of the queue (`MMC_QUEUE_DEPTH`).
const QUEUE_DEPTH: u32 = 64;

/// The MMC driver.
pub struct Mmc {
    port: Port,
    /// With the card.
    running: bool,
    /// Prepared, with the hardware queue that it came on.
    prepared: Option<(usize, RequestId, Request)>,
    /// The card has a command beside which none may be prepared.
    exclusive: bool,
}

impl Mmc {
    pub(crate) fn new(device: Box<dyn Device>) -> Mmc {
        Mmc {
            port: Port::new(device),
            running: false,
            prepared: None,
            exclusive: false,
        }
    }
}

impl KernelDriver for Mmc {
    #[inline]
    fn port(&self) -> &Port {
        &self.port
    }

    #[inline]
    fn port_mut(&mut self) -> &mut Port {
        &mut self.port
    }

    fn queue_config(&self, nr_cpus: usize) -> QueueConfig {
        self.port.queue_config(nr_cpus, 1, QUEUE_DEPTH)
    }

    fn queue_rq(&mut self, now: Nanos, hctx: usize, id: RequestId, rq: &Request) -> BlkStatus {
        let transfers = matches!(rq.op, Op::Read | Op::Write);
        if self.exclusive || self.prepared.is_some() || (!transfers && self.running) {
            return BlkStatus::DevResource;
        }
        if self.running {
            self.prepared = Some((hctx, id, rq.clone()));
            return BlkStatus::Ok;
        }
        self.running = true;
        self.exclusive = !transfers;
        self.port.submit(now, hctx, id, rq);
        BlkStatus::Ok
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.advance_one_by_one(now, done);
    }

    fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        self.advance_to_one(limit, done)
    }

    fn waiting(&self) -> Vec<RequestId> {
        self.prepared.iter().map(|(_, id, _)| *id).collect()
    }

    /// What was prepared for the card goes too.
    fn forget_commands(&mut self) {
        self.running = false;
        self.prepared = None;
        self.exclusive = false;
    }
}

impl OneAtATime for Mmc {
    fn submit_next(&mut self, now: Nanos) {
        self.exclusive = false;
        self.running = self.prepared.is_some();
        if let Some((hctx, id, rq)) = self.prepared.take() {
            // The interrupt of the one before gives it to the card.
            self.port.device.submit(now, Port::command(hctx, id, &rq));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_blk::{Bio, Sector};
    use blklab_device::registry;

    fn request(op: Op, sector: u64) -> Request {
        let sectors = if op == Op::Flush { 0 } else { 8 };
        Request::for_bio(&Bio::new(op, Sector(sector), sectors), Nanos::ZERO)
    }

    #[test]
    fn one_runs_one_is_prepared_and_no_third_is_taken() {
        let spec = registry::find("sd-card").expect("known").expect("valid");
        let alone = {
            let mut mmc = Mmc::new(spec.build(1));
            let id = RequestId::from_index(0);
            mmc.queue_rq(Nanos::ZERO, 0, id, &request(Op::Read, 0));
            let mut ends = Vec::new();
            mmc.advance(Nanos::from_secs(1), &mut ends);
            ends[0].at
        };
        let mut mmc = Mmc::new(spec.build(1));
        let mut taken = Vec::new();
        for n in 0..3 {
            let id = RequestId::from_index(n);
            let read = request(Op::Read, n as u64 * 80_000);
            taken.push(mmc.queue_rq(Nanos::ZERO, 0, id, &read));
        }
        let (ok, no) = (BlkStatus::Ok, BlkStatus::DevResource);
        assert_eq!(taken, [ok, ok, no]);
        let mut ends = Vec::new();
        mmc.advance(Nanos::from_secs(1), &mut ends);
        let at: Vec<u64> = ends.iter().map(|end| end.at.0).collect();
        assert_eq!(at[0], alone.0);
        // One after the other, however long both have been known.
        assert!(at.len() == 2 && at[1] >= 2 * at[0] - at[0] / 4, "{at:?}");
    }

    #[test]
    fn a_discard_waits_until_the_card_is_idle_and_goes_alone() {
        let spec = registry::find("sd-card").expect("known").expect("valid");
        let mut mmc = Mmc::new(spec.build(1));
        let ids: Vec<RequestId> = (0..3).map(RequestId::from_index).collect();
        let (ok, no) = (BlkStatus::Ok, BlkStatus::DevResource);
        let now = Nanos::ZERO;
        assert_eq!(mmc.queue_rq(now, 0, ids[0], &request(Op::Read, 0)), ok);
        assert_eq!(mmc.queue_rq(now, 0, ids[1], &request(Op::Discard, 8)), no);
        let mut ends = Vec::new();
        let later = Nanos::from_secs(1);
        mmc.advance(later, &mut ends);
        assert_eq!(mmc.queue_rq(later, 0, ids[1], &request(Op::Discard, 8)), ok);
        assert_eq!(mmc.queue_rq(later, 0, ids[2], &request(Op::Read, 0)), no);
    }

    #[test]
    fn time_passes_up_to_the_first_completion() {
        let spec = registry::find("sd-card").expect("known").expect("valid");
        let mut mmc = Mmc::new(spec.build(1));
        assert!(mmc.get_budget());
        for n in 0..2 {
            let id = RequestId::from_index(n);
            mmc.queue_rq(Nanos::ZERO, 0, id, &request(Op::Read, 80_000 * n as u64));
        }
        let mut ends = Vec::new();
        let reached = mmc.advance_to_completion(Nanos::from_secs(1), &mut ends);
        assert_eq!(ends.len(), 1);
        assert_eq!(reached, ends[0].at);
    }
}
