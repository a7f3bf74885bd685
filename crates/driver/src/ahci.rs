//! AHCI under SCSI: one queue of at most 32 commands (NCQ), and a dispatch budget of the same size
//! (`scsi_mq_get_budget`).
//!
//! A flush is not an NCQ command: it waits until the drive is empty, and no other command is sent
//! while it runs (`ata_std_qc_defer`).

use alloc::boxed::Box;
use alloc::vec::Vec;

use blklab_blk::{BlkStatus, Nanos, Op, QueueConfig, Request, RequestId};
use blklab_device::{Completion, Device};

use crate::KernelDriver;
use crate::port::{Budget, Port};

/// Command slots of an AHCI port.
const NCQ_DEPTH: u32 = 32;

/// The AHCI driver.
pub struct Ahci {
    port: Port,
    budget: Budget,
    in_flight: u32,
    /// Whether the drive runs a command that is not NCQ, beside which none may be queued.
    exclusive: bool,
}

impl Ahci {
    pub(crate) fn new(device: Box<dyn Device>) -> Ahci {
        let depth = device.identify().queue_depth.clamp(1, NCQ_DEPTH);
        Ahci {
            port: Port::new(device),
            budget: Budget::new(depth),
            in_flight: 0,
            exclusive: false,
        }
    }

    fn count_ended(&mut self, ended: usize) {
        self.in_flight -= ended as u32;
        if ended > 0 {
            self.exclusive = false;
            self.budget.unblock();
        }
    }
}

impl KernelDriver for Ahci {
    #[inline]
    fn port(&self) -> &Port {
        &self.port
    }

    #[inline]
    fn port_mut(&mut self) -> &mut Port {
        &mut self.port
    }

    fn queue_config(&self, nr_cpus: usize) -> QueueConfig {
        // AHCI_SHT sets `tag_alloc_policy` to round robin for every drive that AHCI serves.
        QueueConfig {
            round_robin_tags: true,
            ..self.port.queue_config(nr_cpus, 1, self.budget.depth())
        }
    }

    fn flushes_hold_others(&self) -> bool {
        true
    }

    fn queue_rq(&mut self, now: Nanos, hctx: usize, id: RequestId, rq: &Request) -> BlkStatus {
        let queued = matches!(rq.op, Op::Read | Op::Write);
        if self.exclusive || (!queued && self.in_flight > 0) {
            self.budget.block();
            return BlkStatus::DevResource;
        }
        self.exclusive = !queued;
        self.in_flight += 1;
        self.port.submit(now, hctx, id, rq);
        BlkStatus::Ok
    }

    fn get_budget(&mut self) -> bool {
        self.budget.take()
    }

    fn put_budget(&mut self) {
        self.budget.give_back();
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        let before = done.len();
        self.port.advance(now, done);
        self.count_ended(done.len() - before);
    }

    fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        let before = done.len();
        let reached = self.port.advance_to_completion(limit, done);
        self.count_ended(done.len() - before);
        reached
    }

    fn forget_commands(&mut self) {
        self.in_flight = 0;
        self.exclusive = false;
        self.budget.unblock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_blk::{Bio, Sector};
    use blklab_device::registry;
    use proptest::prelude::*;

    fn request(op: Op) -> Request {
        let sectors = if op == Op::Flush { 0 } else { 8 };
        Request::for_bio(&Bio::new(op, Sector(0), sectors), Nanos::ZERO)
    }

    #[test]
    fn a_flush_goes_alone() {
        let spec = registry::find("mx100-256").expect("known").expect("valid");
        let mut ahci = Ahci::new(spec.build(1));
        let (a, b) = (RequestId::from_index(0), RequestId::from_index(1));
        let now = Nanos::ZERO;
        assert_eq!(ahci.queue_rq(now, 0, a, &request(Op::Read)), BlkStatus::Ok);
        assert_eq!(
            ahci.queue_rq(now, 0, b, &request(Op::Flush)),
            BlkStatus::DevResource
        );
        let mut ends = Vec::new();
        let later = Nanos::from_secs(1);
        ahci.advance(later, &mut ends);
        assert_eq!(ends.len(), 1);
        assert_eq!(
            ahci.queue_rq(later, 0, b, &request(Op::Flush)),
            BlkStatus::Ok
        );
        assert_eq!(
            ahci.queue_rq(later, 0, a, &request(Op::Read)),
            BlkStatus::DevResource
        );
    }

    /// Budget is taken before each command is sent, and given back when it was refused or ended.
    #[test]
    fn a_refused_flush_holds_others_back_until_a_command_ends() {
        let spec = registry::find("mx100-256").expect("known").expect("valid");
        let mut ahci = Ahci::new(spec.build(1));
        let ids = [0, 1].map(RequestId::from_index);
        assert!(ahci.get_budget());
        let read = request(Op::Read);
        assert_eq!(ahci.queue_rq(Nanos::ZERO, 0, ids[0], &read), BlkStatus::Ok);
        assert!(ahci.get_budget());
        let refused = ahci.queue_rq(Nanos::ZERO, 0, ids[1], &request(Op::Flush));
        assert_eq!(refused, BlkStatus::DevResource);
        ahci.put_budget();
        assert!(!ahci.get_budget());
        ahci.advance_to_completion(Nanos::MAX, &mut Vec::new());
        ahci.put_budget();
        assert!(ahci.get_budget());
    }

    #[test]
    fn nothing_goes_beside_a_flush_until_it_has_ended() {
        let spec = registry::find("mx100-256").expect("known").expect("valid");
        let mut ahci = Ahci::new(spec.build(1));
        let ids = [0, 1, 2].map(RequestId::from_index);
        let start = Nanos::ZERO;
        let flush = request(Op::Flush);
        assert_eq!(ahci.queue_rq(start, 0, ids[0], &flush), BlkStatus::Ok);
        let mut ends = Vec::new();
        // Time passes without a completion.
        ahci.advance(Nanos(1), &mut ends);
        assert!(ends.is_empty());
        let read = request(Op::Read);
        let refused = ahci.queue_rq(Nanos(1), 0, ids[1], &read);
        assert_eq!(refused, BlkStatus::DevResource);
        let now = ahci.advance_to_completion(Nanos::MAX, &mut ends);
        assert_eq!(ahci.queue_rq(now, 0, ids[1], &read), BlkStatus::Ok);
        assert_eq!(ahci.queue_rq(now, 0, ids[2], &read), BlkStatus::Ok);
    }

    #[test]
    fn a_drive_s_volatile_cache_is_known_to_its_queue() {
        let has_cache = |drive: &str| {
            let spec = registry::find(drive).expect("known").expect("valid");
            Ahci::new(spec.build(1)).queue_config(1).limits.write_cache
        };
        assert_eq!(["mx100-256", "null"].map(has_cache), [true, false]);
    }

    #[test]
    fn tags_are_taken_in_turn_from_one_queue() {
        let spec = registry::find("mx100-256").expect("known").expect("valid");
        let config = Ahci::new(spec.build(1)).queue_config(4);
        assert!(config.round_robin_tags);
        assert_eq!((config.nr_cpus, config.nr_hw_queues), (4, 1));
        assert_eq!(config.queue_depth, 32);
    }

    #[test]
    fn the_budget_is_the_depth_of_the_drive() {
        let spec = registry::find("mx100-256").expect("known").expect("valid");
        let mut ahci = Ahci::new(spec.build(1));
        assert_eq!((0..100).filter(|_| ahci.get_budget()).count(), 32);
        ahci.put_budget();
        assert!(ahci.get_budget() && !ahci.get_budget());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Reads and writes go beside each other, and everything else alone.
        #[test]
        fn what_is_not_ncq_goes_alone(
            steps in prop::collection::vec((0..4_u8, 0..400_000_u64), 1..80),
        ) {
            let spec = registry::find("mx100-256").expect("known").expect("valid");
            let mut ahci = Ahci::new(spec.build(1));
            let (mut now, mut done, mut running) = (Nanos::ZERO, Vec::new(), Vec::new());
            let mut sent = 0;
            for (step, ns) in steps {
                let op = match step {
                    0 => {
                        now += Nanos(ns);
                        ahci.advance(now, &mut done);
                        None
                    }
                    1 => Some(Op::Flush),
                    _ => Some(Op::Read),
                };
                running.retain(|(id, _)| done.iter().all(|end: &Completion| end.tag != *id));
                let Some(op) = op else { continue };
                let id = RequestId::from_index(sent);
                let status = ahci.queue_rq(now, 0, id, &request(op));
                let is_alone = running.is_empty();
                let has_flush = running.iter().any(|(_, op)| *op == Op::Flush);
                let goes = is_alone || (op == Op::Read && !has_flush);
                prop_assert_eq!(status == BlkStatus::Ok, goes);
                if goes {
                    running.push((sent as u32, op));
                    sent += 1;
                }
            }
        }
    }
}
