//! A drive's command port: requests out as commands, completions back in.

use blklab_blk::{
    BioFlags, DEFAULT_MAX_SECTORS, IoStatus, Nanos, QueueConfig, QueueLimits, Request, RequestId,
};
use blklab_device::{Command, CommandStatus, Completion, Device};

/// A request that the drive finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEnd {
    /// The request.
    pub id: RequestId,
    /// When the drive said so.
    pub at: Nanos,
    /// How it ended.
    pub status: IoStatus,
}

pub(crate) struct Port {
    pub(crate) device: Box<dyn Device>,
    done: Vec<Completion>,
}

impl Port {
    pub(crate) fn new(device: Box<dyn Device>) -> Port {
        Port {
            device,
            done: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn submit(&mut self, now: Nanos, queue: usize, id: RequestId, rq: &Request) {
        self.device.submit(now, Port::command(queue, id, rq));
    }

    #[inline]
    pub(crate) fn command(queue: usize, id: RequestId, rq: &Request) -> Command {
        Command {
            tag: id.index() as u32,
            queue: queue as u16,
            op: rq.op,
            sector: rq.sector,
            sectors: rq.sectors,
            fua: rq.flags.has(BioFlags::FUA),
        }
    }

    #[inline]
    pub(crate) fn advance(&mut self, now: Nanos, ends: &mut Vec<RequestEnd>) {
        self.device.advance(now, &mut self.done);
        self.hand_over(ends);
    }

    /// As [`Device::advance_to_completion`].
    #[inline]
    pub(crate) fn advance_to_completion(
        &mut self,
        limit: Nanos,
        ends: &mut Vec<RequestEnd>,
    ) -> Nanos {
        let reached = self.device.advance_to_completion(limit, &mut self.done);
        self.hand_over(ends);
        reached
    }

    #[inline]
    fn hand_over(&mut self, ends: &mut Vec<RequestEnd>) {
        for completion in self.done.drain(..) {
            ends.push(RequestEnd {
                id: RequestId::from_index(completion.tag as usize),
                at: completion.at,
                status: match completion.status {
                    CommandStatus::Ok => IoStatus::Ok,
                    CommandStatus::IoError => IoStatus::IoError,
                    CommandStatus::NoSpace => IoStatus::NoSpace,
                },
            });
        }
    }

    /// A queue over this drive, with limits as the drive tells them.
    pub(crate) fn queue_config(&self, nr_cpus: usize, queues: usize, depth: u32) -> QueueConfig {
        let drive = self.device.identify();
        let discard = if drive.discard { u32::MAX >> 9 } else { 0 };
        QueueConfig {
            nr_cpus,
            nr_hw_queues: queues,
            queue_depth: depth,
            limits: QueueLimits {
                capacity_sectors: drive.capacity_sectors,
                logical_block_sectors: (drive.logical_block_bytes / 512).max(1),
                max_sectors: drive.max_transfer_sectors.min(DEFAULT_MAX_SECTORS),
                max_segments: drive.max_segments,
                max_discard_sectors: discard,
                write_cache: drive.volatile_write_cache,
                fua: drive.fua,
                rotational: drive.rotational,
                ..QueueLimits::default()
            },
        }
    }
}

/// A driver that gives the drive its next command when the last has ended.
pub(crate) trait OneAtATime {
    fn port(&mut self) -> &mut Port;

    /// The drive is free.
    fn go_on(&mut self, now: Nanos);

    /// As [`Port::advance`], end by end.
    fn advance(&mut self, now: Nanos, ends: &mut Vec<RequestEnd>) {
        loop {
            let before = ends.len();
            self.advance_to_completion(now, ends);
            if ends.len() == before {
                return;
            }
        }
    }

    /// As [`Port::advance_to_completion`].
    fn advance_to_completion(&mut self, limit: Nanos, ends: &mut Vec<RequestEnd>) -> Nanos {
        let before = ends.len();
        let reached = self.port().advance_to_completion(limit, ends);
        if ends.len() > before {
            self.go_on(reached);
        }
        reached
    }
}
