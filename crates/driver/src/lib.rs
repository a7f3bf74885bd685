//! What stands between a request queue and a drive.
//!
//! A driver turns requests into commands and completions back into ends of
//! requests. It decides how many hardware queues there are and how deep, and
//! what the interface cannot do at once.

mod ahci;
mod loopback;
mod mmc;
mod nvme;
mod port;
mod stats;

use blklab_blk::{BlkDriver, BlkStatus, Nanos, QueueConfig, Request, RequestId};
use blklab_device::{Completion, Device, DriveSpec, Interface};

use ahci::Ahci;
pub use loopback::{Loop, WorkerJob};
use mmc::Mmc;
use nvme::Nvme;
pub use port::request_end;
use port::{OneAtATime, Port};
pub use stats::disk_stats;

/// A driver with its drive.
pub enum Driver {
    /// SATA: one queue.
    Ahci(Ahci),
    /// SD cards: one command at a time.
    Mmc(Mmc),
    /// A file behind a worker thread.
    Loop(Loop),
    /// NVMe, and anything else with a queue a CPU.
    Nvme(Nvme),
}

impl Driver {
    /// The driver for a drive of this description.
    pub fn new(spec: &DriveSpec, seed: u64) -> Driver {
        let device = spec.build(seed);
        match spec.interface {
            Interface::Ahci => Driver::Ahci(Ahci::new(device)),
            Interface::Mmc => Driver::Mmc(Mmc::new(device)),
            Interface::Loop => Driver::Loop(Loop::new(device)),
            Interface::Nvme | Interface::Null => Driver::Nvme(Nvme::new(device)),
        }
    }

    /// The request queue this driver asks for on a machine of `nr_cpus`.
    pub fn queue_config(&self, nr_cpus: usize) -> QueueConfig {
        match self {
            Driver::Ahci(d) => d.queue_config(nr_cpus),
            Driver::Mmc(d) => d.queue_config(nr_cpus),
            Driver::Loop(d) => d.queue_config(nr_cpus),
            Driver::Nvme(d) => d.queue_config(nr_cpus),
        }
    }

    /// The loop driver, whose worker needs CPU time.
    #[inline]
    pub fn as_loop(&mut self) -> Option<&mut Loop> {
        match self {
            Driver::Loop(d) => Some(d),
            Driver::Ahci(_) | Driver::Mmc(_) | Driver::Nvme(_) => None,
        }
    }

    /// From now on a command waits until [`Driver::release`] says when the CPU
    /// that gives it to the drive has come to that. A loop device's do so
    /// anyway: its worker takes them.
    pub fn hold(&mut self) {
        match self {
            Driver::Loop(_) => {}
            _ => self.port_mut().hold(),
        }
    }

    /// What has been held reaches the drive at `at`.
    #[inline]
    pub fn release(&mut self, at: Nanos) {
        self.port_mut().release(at);
    }

    /// The same for what came on one hardware queue.
    pub fn release_queue(&mut self, queue: usize, at: Nanos) {
        self.port_mut().release_queue(queue, at);
    }

    /// Requests that the driver has and the drive has not, and when it will, in
    /// that order; [`Nanos::MAX`] where nobody knows yet.
    pub fn on_the_way(&self) -> Vec<(Nanos, RequestId)> {
        let mut all: Vec<(Nanos, RequestId)> = self.port().on_the_way().collect();
        match self {
            Driver::Loop(d) => all.extend(d.listed().map(|id| (Nanos::MAX, id))),
            Driver::Mmc(d) => all.extend(d.prepared().map(|id| (Nanos::MAX, id))),
            Driver::Ahci(_) | Driver::Nvme(_) => {}
        }
        all
    }

    /// When [`Driver::advance`] should be called next.
    #[inline]
    pub fn next_event(&self) -> Nanos {
        self.port().next_event()
    }

    /// Lets time pass in the drive; what ended is appended to `done`.
    #[inline]
    pub fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        match self {
            Driver::Ahci(d) => d.advance(now, done),
            Driver::Mmc(d) => d.advance(now, done),
            Driver::Loop(d) => d.advance(now, done),
            Driver::Nvme(d) => d.port.advance(now, done),
        }
    }

    /// Lets time pass in the drive until something ends, at most up to `limit`,
    /// and returns the time reached: for a caller that gives it nothing before
    /// `limit`. What ended is appended to `done`.
    #[inline(always)]
    pub fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        match self {
            Driver::Ahci(d) => d.advance_to_completion(limit, done),
            Driver::Mmc(d) => d.advance_to_completion(limit, done),
            Driver::Loop(d) => d.advance_to_completion(limit, done),
            Driver::Nvme(d) => d.port.advance_to_completion(limit, done),
        }
    }

    /// Cuts the drive's power at `now` and gives it back. What it had is not
    /// answered: the caller ends it. Returns when the drive is ready again.
    pub fn lose_power(&mut self, now: Nanos) -> Nanos {
        match self {
            Driver::Ahci(d) => d.forget_commands(),
            Driver::Mmc(d) => d.forget_commands(),
            Driver::Loop(d) => d.forget_commands(),
            Driver::Nvme(_) => {}
        }
        let port = self.port_mut();
        port.forget_commands();
        port.device.power_loss(now)
    }

    #[inline]
    fn port(&self) -> &Port {
        match self {
            Driver::Ahci(d) => &d.port,
            Driver::Mmc(d) => &d.port,
            Driver::Loop(d) => &d.port,
            Driver::Nvme(d) => &d.port,
        }
    }

    #[inline]
    fn port_mut(&mut self) -> &mut Port {
        match self {
            Driver::Ahci(d) => &mut d.port,
            Driver::Mmc(d) => &mut d.port,
            Driver::Loop(d) => &mut d.port,
            Driver::Nvme(d) => &mut d.port,
        }
    }

    /// The drive.
    #[inline]
    pub fn device(&self) -> &dyn Device {
        self.port().device.as_ref()
    }

    /// The drive, to reset its counters.
    pub fn device_mut(&mut self) -> &mut dyn Device {
        self.port_mut().device.as_mut()
    }
}

impl BlkDriver for Driver {
    #[inline(always)]
    fn queue_rq(
        &mut self,
        now: Nanos,
        hctx: usize,
        id: RequestId,
        rq: &Request,
        last: bool,
    ) -> BlkStatus {
        match self {
            Driver::Ahci(d) => d.queue_rq(now, hctx, id, rq, last),
            Driver::Mmc(d) => d.queue_rq(now, hctx, id, rq),
            Driver::Loop(d) => d.queue_rq(now, hctx, id, rq),
            Driver::Nvme(d) => d.queue_rq(now, hctx, id, rq, last),
        }
    }

    fn get_budget(&mut self) -> bool {
        match self {
            Driver::Ahci(d) => d.get_budget(),
            Driver::Loop(_) | Driver::Mmc(_) | Driver::Nvme(_) => true,
        }
    }

    fn put_budget(&mut self) {
        if let Driver::Ahci(d) = self {
            d.put_budget();
        }
    }
}
