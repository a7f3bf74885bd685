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

use blklab_blk::{BlkDriver, BlkStatus, Nanos, QueueConfig, Request, RequestId, RequestQueue};
use blklab_device::{Completion, Device, DriveSpec, Interface};
use blklab_stats::{CostRate, Counter, DiskStats, HwQueueStats, QueueStats, SchedulerStats};

use ahci::Ahci;
pub use loopback::{Loop, WorkerJob};
use mmc::Mmc;
use nvme::Nvme;
use port::Port;
pub use port::request_end;

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

/// Calls the driver by a match and not through a vtable, as every request comes
/// through here.
macro_rules! match_driver {
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
        match_driver!(self, driver => driver.queue_config(nr_cpus))
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
        match_driver!(self, driver => driver.hold());
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
        let waiting = match_driver!(self, driver => driver.waiting());
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
        match_driver!(self, driver => driver.advance(now, done));
    }

    /// Lets time pass in the drive until something ends, at most up to `limit`,
    /// and returns the time reached: for a caller that gives it nothing before
    /// `limit`. What ended is appended to `done`.
    #[inline(always)]
    pub fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        match_driver!(self, driver => driver.advance_to_completion(limit, done))
    }

    /// Cuts the drive's power at `now` and gives it back. What it had is not
    /// answered: the caller ends it. Returns when the drive is ready again.
    pub fn lose_power(&mut self, now: Nanos) -> Nanos {
        match_driver!(self, driver => driver.forget_commands());
        let port = self.port_mut();
        port.forget_commands();
        port.device.power_loss(now)
    }

    #[inline]
    fn port(&self) -> &Port {
        match_driver!(self, driver => driver.port())
    }

    #[inline]
    fn port_mut(&mut self) -> &mut Port {
        match_driver!(self, driver => driver.port_mut())
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
        match_driver!(self, driver => driver.queue_rq(now, hctx, id, rq))
    }

    fn get_budget(&mut self) -> bool {
        match_driver!(self, driver => driver.get_budget())
    }

    fn put_budget(&mut self) {
        match_driver!(self, driver => driver.put_budget());
    }
}

/// What a request queue and the drive under it counted since both were made or
/// their counters were reset.
pub fn disk_stats(name: &str, queue: &RequestQueue, driver: &Driver, now: Nanos) -> DiskStats {
    let c = queue.counters(now);
    let hctx = (0..queue.nr_hw_queues()).map(|h| {
        let (stats, dispatch_busy) = queue.hctx_stats(h);
        HwQueueStats {
            run: stats.run,
            dispatched: stats.dispatched,
            dispatch_busy,
        }
    });
    let counters = queue.elevator_counters().into_iter();
    DiskStats {
        name: name.to_string(),
        counted_ns: now.0,
        queue: QueueStats {
            ios: c.ios,
            merges: c.merges,
            sectors: c.sectors,
            ticks_ns: c.ticks_ns,
            io_ticks_ns: c.io_ticks_ns,
            behind_flush_ns: c.behind_flush_ns,
            fua_ios: c.fua_ios,
            fua_ticks_ns: c.fua_ticks_ns,
            time_in_queue_ns: c.ticks_ns.iter().sum(),
            errors: c.errors,
            requeues: c.requeues,
            hctx: hctx.collect(),
        },
        scheduler: SchedulerStats {
            counters: counters
                .map(|(name, value)| Counter { name, value })
                .collect(),
        },
        device: driver.device().stats(now),
        power_loss: None,
        cgroups: Vec::new(),
        cost_rate: queue.io_cost().map(|cost| {
            let [percent, min_percent, max_percent] = cost.rates_percent();
            CostRate {
                percent,
                min_percent,
                max_percent,
            }
        }),
    }
}
