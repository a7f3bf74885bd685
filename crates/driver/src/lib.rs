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
use port::Port;
pub use port::request_end;
pub use stats::disk_stats;

/// A driver of the kernel, over the port of its drive.
pub(crate) trait KernelDriver {
    fn port(&self) -> &Port;

    fn port_mut(&mut self) -> &mut Port;

    /// The request queue that it asks for on a machine of `nr_cpus`.
    fn queue_config(&self, nr_cpus: usize) -> QueueConfig;

    /// Takes a request, or says why not (`queue_rq`).
    fn queue_rq(&mut self, now: Nanos, hctx: usize, id: RequestId, rq: &Request) -> BlkStatus;

    /// Whether the device has room for a request more (`get_budget`).
    fn get_budget(&mut self) -> bool {
        true
    }

    /// Gives that room back (`put_budget`).
    fn put_budget(&mut self) {}

    /// As [`Driver::advance`].
    #[inline]
    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.port_mut().advance(now, done);
    }

    /// As [`Driver::advance_to_completion`].
    #[inline(always)]
    fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        self.port_mut().advance_to_completion(limit, done)
    }

    /// Requests that it has not made commands of, in their order.
    fn waiting(&self) -> Vec<RequestId> {
        Vec::new()
    }

    /// As [`Driver::hold`].
    fn hold(&mut self) {
        self.port_mut().hold();
    }

    /// The drive has lost what it had.
    fn forget_commands(&mut self) {}
}

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

/// The same for whichever driver it is, without a call through a table: the way
/// of a request goes through here.
macro_rules! of_any {
    ($driver:expr, $of_one:ident => $value:expr) => {
        match $driver {
            Driver::Ahci($of_one) => $value,
            Driver::Mmc($of_one) => $value,
            Driver::Loop($of_one) => $value,
            Driver::Nvme($of_one) => $value,
        }
    };
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
        of_any!(self, driver => driver.queue_config(nr_cpus))
    }

    /// The loop driver, whose worker needs CPU time.
    #[inline]
    pub fn as_loop(&mut self) -> Option<&mut Loop> {
        match self {
            Driver::Loop(driver) => Some(driver),
            Driver::Ahci(_) | Driver::Mmc(_) | Driver::Nvme(_) => None,
        }
    }

    /// From now on a command waits until [`Driver::release`] says when the CPU
    /// that gives it to the drive has come to that. A loop device's do so
    /// anyway: its worker takes them.
    pub fn hold(&mut self) {
        of_any!(self, driver => driver.hold());
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
        let waiting = of_any!(self, driver => driver.waiting());
        let waiting = waiting.into_iter().map(|id| (Nanos::MAX, id));
        self.port().on_the_way().chain(waiting).collect()
    }

    /// When [`Driver::advance`] should be called next.
    #[inline]
    pub fn next_event(&self) -> Nanos {
        self.port().next_event()
    }

    /// Lets time pass in the drive; what ended is appended to `done`.
    #[inline]
    pub fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        of_any!(self, driver => driver.advance(now, done));
    }

    /// Lets time pass in the drive until something ends, at most up to `limit`,
    /// and returns the time reached: for a caller that gives it nothing before
    /// `limit`. What ended is appended to `done`.
    #[inline(always)]
    pub fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        of_any!(self, driver => driver.advance_to_completion(limit, done))
    }

    /// Cuts the drive's power at `now` and gives it back. What it had is not
    /// answered: the caller ends it. Returns when the drive is ready again.
    pub fn lose_power(&mut self, now: Nanos) -> Nanos {
        of_any!(self, driver => driver.forget_commands());
        let port = self.port_mut();
        port.forget_commands();
        port.device.power_loss(now)
    }

    #[inline]
    fn port(&self) -> &Port {
        of_any!(self, driver => driver.port())
    }

    #[inline]
    fn port_mut(&mut self) -> &mut Port {
        of_any!(self, driver => driver.port_mut())
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
        _last: bool,
    ) -> BlkStatus {
        of_any!(self, driver => driver.queue_rq(now, hctx, id, rq))
    }

    fn get_budget(&mut self) -> bool {
        of_any!(self, driver => driver.get_budget())
    }

    fn put_budget(&mut self) {
        of_any!(self, driver => driver.put_budget());
    }
}
