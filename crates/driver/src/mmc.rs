//! MMC: SD cards, one command at a time (`drivers/mmc/core/block.c` and
//! `queue.c`, for a host without command queueing).
//!
//! The driver may sleep (`BLK_MQ_F_BLOCKING`). A thread that submits a read or write while another
//! runs sleeps in the driver until the card is free (`mmc_blk_mq_issue_rw_rq`), and the driver
//! refuses all others meanwhile (`mq->busy`). Any other operation waits until the card is idle, and
//! its thread sleeps until it ends (`MMC_ISSUE_SYNC`).

use alloc::boxed::Box;
use alloc::vec::Vec;

use blklab_blk::{BlkStatus, Nanos, Op, QueueConfig, Request, RequestId};
use blklab_device::{Completion, Device};

use crate::KernelDriver;
use crate::port::{OneAtATime, Port};

/// Tags of the queue (`MMC_QUEUE_DEPTH`).
const QUEUE_DEPTH: u32 = 64;

/// The MMC driver.
pub struct Mmc {
    port: Port,
    /// Whether the card runs a command.
    running: bool,
    /// The request that waits for the card, with its hardware queue; its thread sleeps.
    waiting: Option<(usize, RequestId, Request)>,
    /// The request on the card whose thread sleeps until it ends.
    exclusive: Option<RequestId>,
    /// The request whose thread has been woken.
    woken: Option<RequestId>,
}

impl Mmc {
    pub(crate) fn new(device: Box<dyn Device>) -> Mmc {
        Mmc {
            port: Port::new(device),
            running: false,
            waiting: None,
            exclusive: None,
            woken: None,
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

    fn flushes_hold_others(&self) -> bool {
        true
    }

    fn queue_rq(&mut self, now: Nanos, hctx: usize, id: RequestId, rq: &Request) -> BlkStatus {
        if self.waiting.is_some() || self.exclusive.is_some() {
            return BlkStatus::Resource;
        }
        if self.running {
            self.waiting = Some((hctx, id, rq.clone()));
            return BlkStatus::OkBlocking;
        }
        self.port.submit(now, hctx, id, rq);
        self.running = true;
        if is_transfer(rq) {
            return BlkStatus::Ok;
        }
        self.exclusive = Some(id);
        BlkStatus::OkBlocking
    }

    #[inline]
    fn would_sleep(&self) -> bool {
        self.running
    }

    #[inline]
    fn take_woken(&mut self) -> Option<RequestId> {
        self.woken.take()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.advance_one_by_one(now, done);
    }

    fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        self.advance_to_one(limit, done)
    }

    fn waiting(&self) -> Vec<RequestId> {
        self.waiting.iter().map(|(_, id, _)| *id).collect()
    }

    /// Also drops the waiting request, and wakes the thread that sleeps in the driver.
    fn forget_commands(&mut self) {
        let waited = self.waiting.take().map(|(_, id, _)| id);
        self.woken = self.woken.or(waited).or(self.exclusive.take());
        self.running = false;
    }
}

/// Whether a request moves data; its thread leaves the driver while the card runs it
/// (`MMC_ISSUE_ASYNC`).
fn is_transfer(rq: &Request) -> bool {
    matches!(rq.op, Op::Read | Op::Write)
}

impl OneAtATime for Mmc {
    fn submit_next(&mut self, now: Nanos) {
        if let Some(ended) = self.exclusive.take() {
            self.woken = Some(ended);
        }
        self.running = self.waiting.is_some();
        if let Some((hctx, id, rq)) = self.waiting.take() {
            self.port.device.submit(now, Port::command(hctx, id, &rq));
            match is_transfer(&rq) {
                true => self.woken = Some(id),
                false => self.exclusive = Some(id),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver, request_end};
    use blklab_blk::{Bio, BlkDriver, Plug, RequestQueue, Sector, Submit};
    use blklab_device::registry;

    fn request(op: Op, sector: u64) -> Request {
        let sectors = if op == Op::Flush { 0 } else { 8 };
        Request::for_bio(&Bio::new(op, Sector(sector), sectors), Nanos::ZERO)
    }

    #[test]
    fn a_thread_sleeps_in_the_driver_of_a_busy_card_only() {
        for (drive, sleeps) in [("sd-card", true), ("null", false)] {
            let spec = registry::find(drive).expect("known").expect("valid");
            let mut driver = Driver::new(&spec, 1);
            assert!(!driver.would_sleep(), "{drive} is idle");
            let id = RequestId::from_index(0);
            driver.queue_rq(Nanos::ZERO, 0, id, &request(Op::Read, 0), true);
            assert_eq!(driver.would_sleep(), sleeps, "{drive}");
        }
    }

    #[test]
    fn one_runs_one_waits_inside_and_no_third_is_taken() {
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
        let (ok, sleeps) = (BlkStatus::Ok, BlkStatus::OkBlocking);
        assert_eq!(taken, [ok, sleeps, BlkStatus::Resource]);
        assert!(mmc.would_sleep() && mmc.take_woken().is_none());
        let mut ends = Vec::new();
        mmc.advance(Nanos::from_secs(1), &mut ends);
        assert_eq!(mmc.take_woken(), Some(RequestId::from_index(1)));
        assert!(!mmc.would_sleep());
        let at: Vec<u64> = ends.iter().map(|end| end.at.0).collect();
        assert_eq!(at[0], alone.0);
        // The card runs them one after the other, although both were submitted early.
        assert!(at.len() == 2 && at[1] >= 2 * at[0] - at[0] / 4, "{at:?}");
    }

    #[test]
    fn a_discard_waits_until_the_card_is_idle_and_holds_its_thread_to_the_end() {
        let spec = registry::find("sd-card").expect("known").expect("valid");
        let mut mmc = Mmc::new(spec.build(1));
        let ids: Vec<RequestId> = (0..3).map(RequestId::from_index).collect();
        let (ok, sleeps) = (BlkStatus::Ok, BlkStatus::OkBlocking);
        let now = Nanos::ZERO;
        assert_eq!(mmc.queue_rq(now, 0, ids[0], &request(Op::Read, 0)), ok);
        let discard = request(Op::Discard, 8);
        assert_eq!(mmc.queue_rq(now, 0, ids[1], &discard), sleeps);
        let mut ends = Vec::new();
        let read = mmc.advance_to_completion(Nanos::from_secs(1), &mut ends);
        assert_eq!((ends.len(), mmc.take_woken()), (1, None));
        let third = request(Op::Read, 0);
        assert_eq!(mmc.queue_rq(read, 0, ids[2], &third), BlkStatus::Resource);
        let end = mmc.advance_to_completion(Nanos::from_secs(2), &mut ends);
        assert_eq!((ends.len(), mmc.take_woken()), (2, Some(ids[1])));
        assert_eq!(mmc.queue_rq(end, 0, ids[2], &third), ok);
    }

    /// Later requests must not overtake those that a sleeping task left in its software queue,
    /// which could then wait for ever: kblockd keeps what it took while it sleeps in the driver,
    /// and a submitter does not bypass it.
    #[test]
    fn without_a_scheduler_requests_go_in_their_order() {
        let spec = registry::find("sd-card").expect("known").expect("valid");
        let mut mmc = Driver::new(&spec, 1);
        let mut queue = RequestQueue::new(&mmc.queue_config(4));
        let mut now = Nanos::ZERO;
        let (mut plug, mut ended, mut done) = (Plug::new(), Vec::new(), Vec::new());
        for n in 0..40 {
            let write = Bio::new(Op::Write, Sector(n * 1024), 1024);
            let taken = queue.submit_bio(now, 0, Some(&mut plug), write, &mut mmc);
            assert!(matches!(taken, Submit::Done));
            match n % 3 {
                0 => queue.flush_plug_from_schedule(now, &mut plug, &mut mmc),
                _ => queue.flush_plug(now, &mut plug, &mut mmc),
            }
            queue.process(now, &mut mmc);
            // Two follow while the first runs.
            if n % 2 == 0 {
                continue;
            }
            now = mmc.advance_to_completion(Nanos::MAX, &mut done);
            for end in done.drain(..) {
                let (id, status) = request_end(&end);
                queue.complete(now, id, status, &mut mmc);
            }
        }
        while !queue.is_idle() {
            queue.process(now, &mut mmc);
            now = mmc.advance_to_completion(Nanos::MAX, &mut done);
            for end in done.drain(..) {
                let (id, status) = request_end(&end);
                queue.complete(now, id, status, &mut mmc);
            }
        }
        queue.take_ended(&mut ended);
        let sectors: Vec<u64> = ended.iter().map(|end| end.sector.0 / 1024).collect();
        assert_eq!(sectors, (0..40).collect::<Vec<_>>());
        assert_eq!(queue.counters(now).requeues, 0);
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
