//! NVMe: one queue for each CPU, as far as the drive has enough.

use alloc::boxed::Box;

use blklab_blk::{BlkStatus, Nanos, QueueConfig, Request, RequestId};
use blklab_device::Device;

use crate::KernelDriver;
use crate::port::Port;

/// Usable entries of a submission queue: `NVME_Q_DEPTH` is 1024 by default, and one entry stays
/// empty.
const MAX_QUEUE_DEPTH: u32 = 1023;

/// The NVMe driver.
pub struct Nvme {
    port: Port,
}

impl Nvme {
    pub(crate) fn new(device: Box<dyn Device>) -> Nvme {
        Nvme {
            port: Port::new(device),
        }
    }
}

impl KernelDriver for Nvme {
    #[inline]
    fn port(&self) -> &Port {
        &self.port
    }

    #[inline]
    fn port_mut(&mut self) -> &mut Port {
        &mut self.port
    }

    fn queue_config(&self, nr_cpus: usize) -> QueueConfig {
        let drive = self.port.device.identify();
        let queues = nr_cpus.min(drive.max_queues as usize).max(1);
        let depth = drive.queue_depth.clamp(1, MAX_QUEUE_DEPTH);
        self.port.queue_config(nr_cpus, queues, depth)
    }

    #[inline]
    fn queue_rq(&mut self, now: Nanos, hctx: usize, id: RequestId, rq: &Request) -> BlkStatus {
        self.port.submit(now, hctx, id, rq);
        BlkStatus::Ok
    }
}
