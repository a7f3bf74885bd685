//! The kernel's drivers between a request queue and a drive.
//!
//! A driver turns requests into commands, and completions into the ends of requests. It decides how
//! many hardware queues there are, how deep they are, and which commands the interface cannot run
//! together.

#![cfg_attr(not(any(test, feature = "std")), no_std)]

extern crate alloc;

mod ahci;
mod front_end;
mod loopback;
mod mmc;
mod nvme;
mod port;
#[cfg(test)]
mod recorded_runs;
mod served;
mod usb;

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use blklab_blk::{BlkDriver, BlkStatus, Nanos, QueueConfig, Request, RequestId, RequestQueue};
use blklab_device::{Completion, Device, DriveSpec, Interface};
use blklab_stats::{CostRate, Counter, DiskStats, HwQueueStats, QueueStats, SchedulerStats};

use ahci::Ahci;
pub use front_end::{FrontEnd, FrontEndKind, TCMU_DATA_MIB, UBLK_DEPTH, UBLK_MAX_IO_BYTES};
pub use loopback::{Loop, WorkerJob};
use mmc::Mmc;
use nvme::Nvme;
use port::Port;
pub use port::request_end;
pub use served::{Sent, Served, ServerStep};
use usb::Usb;
pub use usb::{UsbBridge, UsbLink, UsbProtocol, UsbSpeed};

/// A kernel driver for one drive.
pub(crate) trait KernelDriver {
    fn port(&self) -> &Port;

    fn port_mut(&mut self) -> &mut Port;

    /// Returns the request queue that the driver asks for on a machine with `nr_cpus` CPUs.
    fn queue_config(&self, nr_cpus: usize) -> QueueConfig;

    /// Takes a request, or says why it cannot (`queue_rq`).
    fn queue_rq(&mut self, now: Nanos, hctx: usize, id: RequestId, rq: &Request) -> BlkStatus;

    /// Reserves room for one more request on the device (`get_budget`); false if there is none.
    fn get_budget(&mut self) -> bool {
        true
    }

    /// Gives back the room for one request (`put_budget`).
    fn put_budget(&mut self) {}

    /// Whether no other command is sent while a flush waits for the drive or is in it.
    fn flushes_hold_others(&self) -> bool {
        false
    }

    /// Whether a thread that calls `queue_rq` now would sleep inside the driver.
    #[inline]
    fn would_sleep(&self) -> bool {
        false
    }

    /// Takes the request whose thread has stopped sleeping inside the driver.
    #[inline]
    fn take_woken(&mut self) -> Option<RequestId> {
        None
    }

    /// See [`Driver::next_event`].
    #[inline]
    fn next_event(&self) -> Nanos {
        self.port().next_event()
    }

    /// See [`Driver::advance`].
    #[inline]
    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.port_mut().advance(now, done);
    }

    /// See [`Driver::advance_to_completion`].
    #[inline(always)]
    fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        self.port_mut().advance_to_completion(limit, done)
    }

    /// Requests that have not become commands yet, in the order in which they will.
    fn waiting(&self) -> Vec<RequestId> {
        Vec::new()
    }

    /// See [`Driver::hold`].
    fn hold(&mut self) {
        self.port_mut().hold();
    }

    /// Forgets all commands, after the drive has lost its power.
    fn forget_commands(&mut self) {}
}

/// How a drive is attached to the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Attachment {
    /// By its own interface.
    Direct,
    /// Behind a USB bridge.
    Usb(UsbBridge),
    /// Behind a front end's server.
    FrontEnd(FrontEnd),
}

/// A driver with its drive.
pub enum Driver {
    /// SATA, with one queue.
    Ahci(Ahci),
    /// SD cards, with one command at a time.
    Mmc(Mmc),
    /// A file behind a worker thread.
    Loop(Loop),
    /// NVMe and all other drives with a queue for each CPU.
    Nvme(Nvme),
    /// A SATA drive behind a USB bridge.
    Usb(Usb),
    /// A front end, with a server before the drive.
    Served(Box<Served>),
}

/// Calls the driver through a match, which is faster than a vtable on a path that every request
/// takes.
macro_rules! match_driver {
    ($driver:expr, $of_one:ident => $value:expr) => {
        match $driver {
            Driver::Ahci($of_one) => $value,
            Driver::Mmc($of_one) => $value,
            Driver::Loop($of_one) => $value,
            Driver::Nvme($of_one) => $value,
            Driver::Usb($of_one) => $value,
            Driver::Served($of_one) => $value,
        }
    };
}

impl Driver {
    /// Builds the drive that `spec` describes, and its driver.
    pub fn new(spec: &DriveSpec, seed: u64) -> Driver {
        let device = spec.build(seed);
        match spec.interface {
            Interface::Ahci => Driver::Ahci(Ahci::new(device)),
            Interface::Mmc => Driver::Mmc(Mmc::new(device)),
            Interface::Loop => Driver::Loop(Loop::new(device)),
            Interface::Nvme | Interface::Null => Driver::Nvme(Nvme::new(device)),
        }
    }

    /// Builds the drive that `spec` describes as it is attached, and its driver.
    pub fn attached(spec: &DriveSpec, attachment: Attachment, seed: u64) -> Driver {
        match attachment {
            Attachment::Direct => Driver::new(spec, seed),
            Attachment::Usb(bridge) => Driver::Usb(Usb::new(spec.build(seed), bridge)),
            Attachment::FrontEnd(front_end) => {
                Driver::Served(Box::new(Served::new(spec.build(seed), front_end)))
            }
        }
    }

    /// Returns the request queue that this driver asks for on a machine with `nr_cpus` CPUs.
    pub fn queue_config(&self, nr_cpus: usize) -> QueueConfig {
        match_driver!(self, driver => driver.queue_config(nr_cpus))
    }

    /// Whether no other command is sent while a flush waits for the drive or is in it.
    pub fn flushes_hold_others(&self) -> bool {
        match_driver!(self, driver => driver.flushes_hold_others())
    }

    /// The loop driver, if this is one; its worker needs CPU time.
    #[inline]
    pub fn as_loop(&mut self) -> Option<&mut Loop> {
        match self {
            Driver::Loop(driver) => Some(driver),
            Driver::Ahci(_)
            | Driver::Mmc(_)
            | Driver::Nvme(_)
            | Driver::Usb(_)
            | Driver::Served(_) => None,
        }
    }

    /// The driver of a front end, if this is one; its servers need CPU time.
    #[inline]
    pub fn as_served(&mut self) -> Option<&mut Served> {
        match self {
            Driver::Served(driver) => Some(driver),
            Driver::Ahci(_)
            | Driver::Mmc(_)
            | Driver::Loop(_)
            | Driver::Nvme(_)
            | Driver::Usb(_) => None,
        }
    }

    /// Makes each later command wait until [`Driver::release`] says when the submitting CPU has
    /// sent it. A loop device and a front end are not affected, because their threads send the
    /// commands.
    pub fn hold(&mut self) {
        match_driver!(self, driver => driver.hold());
    }

    /// Sends all held commands to the drive at the time `at`.
    #[inline]
    pub fn release(&mut self, at: Nanos) {
        self.port_mut().release(at);
    }

    /// Sends the held commands of one hardware queue to the drive at the time `at`.
    pub fn release_queue(&mut self, queue: usize, at: Nanos) {
        self.port_mut().release_queue(queue, at);
    }

    /// Requests that have not reached the drive, each with the time at which it will, in that
    /// order; the time is [`Nanos::MAX`] if it is not known yet.
    pub fn on_the_way(&self) -> Vec<(Nanos, RequestId)> {
        let waiting = match_driver!(self, driver => driver.waiting());
        let waiting = waiting.into_iter().map(|id| (Nanos::MAX, id));
        self.port().on_the_way().chain(waiting).collect()
    }

    /// The time at which [`Driver::advance`] should be called next.
    #[inline]
    pub fn next_event(&self) -> Nanos {
        match_driver!(self, driver => driver.next_event())
    }

    /// Lets the drive run until `now` and appends the completions to `done`.
    #[inline]
    pub fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        match_driver!(self, driver => driver.advance(now, done));
    }

    /// Lets the drive run until its first completion or until `limit`, whichever is first, and
    /// returns the time reached. The caller must not submit anything before `limit`. Completions
    /// are appended to `done`.
    #[inline(always)]
    pub fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        match_driver!(self, driver => driver.advance_to_completion(limit, done))
    }

    /// Cuts the drive's power at `now` and restores it. The drive does not answer its commands: the
    /// caller must end their requests. Returns the time at which the drive is ready again.
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

    /// The drive, for resetting its counters.
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

    #[inline(always)]
    fn would_sleep(&self) -> bool {
        match_driver!(self, driver => driver.would_sleep())
    }

    #[inline(always)]
    fn take_woken(&mut self) -> Option<RequestId> {
        match_driver!(self, driver => driver.take_woken())
    }
}

/// Statistics of a request queue and its drive since they were made or their counters were last
/// reset.
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
        server: None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_blk::{Bio, IoStatus, Op, Sector, Submit};
    use blklab_device::CommandStatus;

    fn driver(interface: &str, host: &str) -> Driver {
        Driver::new(&spec(interface, host), 1)
    }

    /// A drive of 1 MiB whose commands take 100 ns each.
    fn spec(interface: &str, host: &str) -> DriveSpec {
        let text = format!(
            "description = \"x\"\ninterface = \"{interface}\"\nmodel = \"null\"\n[host]\n\
             capacity_bytes = 1048576\n{host}\n[timing]\nread_ns = 100\nwrite_ns = 100\n\
             flush_ns = 100\nparallelism = 8\n"
        );
        DriveSpec::parse("x", &text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn queue_rq(driver: &mut Driver, op: Op, id: usize) -> BlkStatus {
        let sectors = if op == Op::Flush { 0 } else { 8 };
        let rq = Request::for_bio(&Bio::new(op, Sector(0), sectors), Nanos::ZERO);
        driver.queue_rq(Nanos::ZERO, 0, RequestId::from_index(id), &rq, true)
    }

    #[test]
    fn a_queue_has_the_limits_of_its_drive() {
        let host = "queue_depth = 2000\nqueues = 3\nlogical_block_bytes = 4096\n\
                    max_transfer_kb = 64\nmax_segments = 7\nfua = true";
        let nvme = driver("nvme", &format!("{host}\ndiscard = true"));
        assert_eq!(nvme.queue_config(8).nr_hw_queues, 3);
        let config = nvme.queue_config(2);
        assert_eq!((config.nr_cpus, config.nr_hw_queues), (2, 2));
        assert_eq!(config.queue_depth, 1023, "one entry stays empty");
        let limits = config.limits;
        assert_eq!(
            (limits.capacity_sectors, limits.logical_block_sectors),
            (2048, 8)
        );
        assert_eq!((limits.max_sectors, limits.max_segments), (128, 7));
        assert_eq!(limits.max_discard_sectors, u32::MAX >> 9);
        assert!(limits.fua && !limits.write_cache && !limits.rotational);
        let limits = driver("nvme", host).queue_config(1).limits;
        assert_eq!(limits.max_discard_sectors, 0);
    }

    #[test]
    fn an_interface_decides_on_queues_and_depth() {
        for (interface, depth, queue_depth) in [
            ("ahci", 20, 20),
            ("mmc", 1, 64),
            ("loop", 128, 128),
            ("null", 9, 9),
        ] {
            let mut driver = driver(interface, &format!("queue_depth = {depth}\nfua = true"));
            let config = driver.queue_config(4);
            assert_eq!((config.nr_hw_queues, config.queue_depth), (1, queue_depth));
            // A file has fsync, but no write that is durable by itself.
            let is_loop = interface == "loop";
            let limits = config.limits;
            assert_eq!((limits.write_cache, limits.fua), (is_loop, !is_loop));
            assert_eq!(driver.as_loop().is_some(), is_loop);
        }
    }

    #[test]
    fn a_loss_of_power_takes_what_the_driver_has() {
        for (interface, held) in [("ahci", 2), ("mmc", 2), ("loop", 1), ("nvme", 2)] {
            let mut driver = driver(interface, "queue_depth = 1");
            driver.hold();
            for id in 0..2 {
                let taken = queue_rq(&mut driver, Op::Read, id);
                assert!(matches!(taken, BlkStatus::Ok | BlkStatus::OkBlocking));
            }
            let waiting = driver.on_the_way();
            assert_eq!(waiting.len(), held, "{interface}");
            assert!(waiting.iter().all(|(at, _)| *at == Nanos::MAX));
            assert_eq!(waiting[held - 1].1, RequestId::from_index(1));
            driver.lose_power(Nanos(50));
            assert!(driver.on_the_way().is_empty(), "{interface}");
            assert_eq!(driver.next_event(), Nanos::MAX, "{interface}");
            // The flush that excluded it has ended.
            let taken = queue_rq(&mut driver, Op::Flush, 2);
            assert!(matches!(taken, BlkStatus::Ok | BlkStatus::OkBlocking));
            driver.release(Nanos(60));
            let mut done = Vec::new();
            driver.advance(Nanos(1000), &mut done);
            assert_eq!(done.len(), 1, "{interface}");
            assert_eq!(driver.device().stats(Nanos(1000)).power_losses, 1);
        }
    }

    #[test]
    fn a_status_of_the_drive_is_one_of_the_request() {
        for (status, expected) in [
            (CommandStatus::Ok, IoStatus::Ok),
            (CommandStatus::IoError, IoStatus::IoError),
            (CommandStatus::NoSpace, IoStatus::NoSpace),
        ] {
            let at = Nanos::ZERO;
            let end = request_end(&Completion { tag: 7, at, status });
            assert_eq!(end, (RequestId::from_index(7), expected));
        }
    }

    #[test]
    fn only_a_front_end_has_servers_and_only_a_loop_device_a_worker() {
        let kind = FrontEndKind::Ublk;
        let front_end = Attachment::FrontEnd(FrontEnd { kind, queues: 1 });
        for (interface, attachment, found) in [
            ("nvme", front_end, [true, false]),
            ("loop", Attachment::Direct, [false, true]),
            ("nvme", Attachment::Direct, [false, false]),
            ("ahci", Attachment::Direct, [false, false]),
            ("mmc", Attachment::Direct, [false, false]),
        ] {
            let mut driver = Driver::attached(&spec(interface, "queue_depth = 1"), attachment, 1);
            let has = [driver.as_served().is_some(), driver.as_loop().is_some()];
            assert_eq!(has, found, "{interface}");
        }
    }

    /// Requests of 100 ns one after the other: the queue and the drive have been busy all the time.
    #[test]
    fn statistics_of_a_disk_are_those_of_its_queue_and_its_drive() {
        let mut driver = driver("nvme", "queues = 2\nqueue_depth = 4");
        let mut queue = RequestQueue::new(&driver.queue_config(2));
        let (mut now, mut done) = (Nanos::ZERO, Vec::new());
        for n in 0..5 {
            let op = if n < 2 { Op::Read } else { Op::Write };
            let bio = Bio::new(op, Sector(n * 100), 8 * (n as u32 + 1));
            let taken = queue.submit_bio(now, (n % 2) as usize, None, bio, &mut driver);
            assert!(matches!(taken, Submit::Done));
            now = driver.advance_to_completion(Nanos::MAX, &mut done);
            for end in done.drain(..) {
                let (id, status) = request_end(&end);
                queue.complete(now, id, status, &mut driver);
            }
        }
        let stats = disk_stats("a", &queue, &driver, now);
        assert_eq!((stats.name.as_str(), stats.counted_ns), ("a", 500));
        assert_eq!(stats.queue.ios, [2, 3, 0, 0]);
        assert_eq!(stats.queue.sectors, [24, 96, 0, 0]);
        assert_eq!(stats.queue.ticks_ns, [200, 300, 0, 0]);
        assert_eq!(
            (stats.queue.io_ticks_ns, stats.queue.time_in_queue_ns),
            (500, 500)
        );
        assert_eq!(stats.queue.hctx.len(), 2);
        assert!(stats.scheduler.counters.is_empty() && stats.cost_rate.is_none());
        assert_eq!(stats.queue.errors + stats.queue.requeues, 0);
    }
}
