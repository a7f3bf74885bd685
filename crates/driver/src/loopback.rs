//! The loop driver (`drivers/block/loop.c` of Linux 6.12 to 6.18): one hardware
//! queue of 128 requests (`hw_queue_depth`) before a file.
//!
//! A request is put on a list, and a worker thread serves the list in order. The kernel has one
//! worker for each control group (`loop_queue_work`); here one worker serves all. The worker reads
//! and writes the file through the page cache, so it copies each request and sleeps while the drive
//! under the file works. `losetup --direct-io` is not modelled.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use blklab_blk::{BlkStatus, Nanos, Op, QueueConfig, Request, RequestId};
use blklab_device::{Command, Completion, Device};

use crate::KernelDriver;
use crate::port::{OneAtATime, Port, request_of};

/// `LOOP_DEFAULT_HW_Q_DEPTH`.
const QUEUE_DEPTH: u32 = 128;

/// The work of the worker thread for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerJob {
    /// The operation.
    pub op: Op,
    /// Sectors to copy.
    pub sectors: u32,
}

/// The loop driver.
pub struct Loop {
    port: Port,
    /// Requests that the worker has not started, in order.
    list: VecDeque<Command>,
    /// The request that the worker serves.
    current: Option<Command>,
    /// Whether the drive under the file has the current request.
    in_drive: bool,
    /// Whether the caller models the worker's CPU time; otherwise copying takes no time.
    worker_is_scheduled: bool,
}

impl Loop {
    pub(crate) fn new(device: Box<dyn Device>) -> Loop {
        Loop {
            port: Port::new(device),
            list: VecDeque::with_capacity(QUEUE_DEPTH as usize),
            current: None,
            in_drive: false,
            worker_is_scheduled: false,
        }
    }

    /// Leaves the worker's schedule to the caller, which starts each job with [`Loop::begin`] and
    /// ends it with [`Loop::copied`].
    pub fn schedule_worker(&mut self) {
        self.worker_is_scheduled = true;
    }

    /// Whether the worker is idle and a request waits.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.current.is_none() && !self.list.is_empty()
    }

    /// Whether the worker serves a request.
    #[inline]
    pub fn is_at_work(&self) -> bool {
        self.current.is_some()
    }

    /// The time of the next event in the drive under the file.
    #[inline]
    pub fn next_event(&self) -> Nanos {
        self.port.next_event()
    }

    /// Starts the next request, if the worker is idle and one waits.
    pub fn begin(&mut self) -> Option<WorkerJob> {
        if self.current.is_some() {
            return None;
        }
        let command = self.list.pop_front()?;
        self.current = Some(command);
        Some(WorkerJob {
            op: command.op,
            sectors: command.sectors,
        })
    }

    /// Passes the current request on to the drive, after the worker has copied it.
    pub fn copied(&mut self, now: Nanos) {
        if let Some(command) = self.current
            && !self.in_drive
        {
            self.in_drive = true;
            self.port.device.submit(now, command);
        }
    }

    /// Starts the next request, if the worker's CPU time is not modelled.
    fn begin_at_once(&mut self, now: Nanos) {
        if !self.worker_is_scheduled && self.begin().is_some() {
            self.copied(now);
        }
    }
}

impl KernelDriver for Loop {
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
        let depth = drive.queue_depth.clamp(1, QUEUE_DEPTH);
        let mut config = self.port.queue_config(nr_cpus, 1, depth);
        // A flush becomes the file's fsync, which no single write can ask for, so there is no FUA.
        config.limits.write_cache = true;
        config.limits.fua = false;
        config
    }

    fn queue_rq(&mut self, now: Nanos, hctx: usize, id: RequestId, rq: &Request) -> BlkStatus {
        self.list.push_back(Port::command(hctx, id, rq));
        self.begin_at_once(now);
        BlkStatus::Ok
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.advance_one_by_one(now, done);
    }

    fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        self.advance_to_one(limit, done)
    }

    fn waiting(&self) -> Vec<RequestId> {
        let current = self.current.iter().filter(|_| !self.in_drive);
        let waiting = current.chain(&self.list);
        waiting.map(|command| request_of(command.tag)).collect()
    }

    /// Does nothing: the worker sends the commands, so none is held here.
    fn hold(&mut self) {}

    /// Also drops the requests on the worker's list.
    fn forget_commands(&mut self) {
        self.list.clear();
        self.current = None;
        self.in_drive = false;
    }
}

impl OneAtATime for Loop {
    fn submit_next(&mut self, now: Nanos) {
        self.current = None;
        self.in_drive = false;
        self.begin_at_once(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_blk::{Bio, Sector};
    use blklab_device::DriveSpec;

    fn driver(read_ns: u64) -> Loop {
        let text = format!(
            "description = \"x\"\ninterface = \"loop\"\nmodel = \"null\"\n[host]\n\
             capacity_bytes = 1048576\nqueue_depth = 128\n[timing]\nread_ns = {read_ns}\n\
             write_ns = 0\nflush_ns = 0\nparallelism = 64\n"
        );
        Loop::new(DriveSpec::parse("x", &text).expect("legal").build(1))
    }

    fn submit(driver: &mut Loop, at_ns: u64, id: u32) {
        let rq = Request::for_bio(&Bio::new(Op::Read, Sector(0), 8), Nanos(at_ns));
        let id = RequestId::from_index(id as usize);
        assert_eq!(driver.queue_rq(Nanos(at_ns), 0, id, &rq), BlkStatus::Ok);
    }

    #[test]
    fn requests_are_done_one_after_the_other() {
        let mut driver = driver(100);
        (0..3).for_each(|id| submit(&mut driver, 0, id));
        let mut ends = Vec::new();
        driver.advance(Nanos(1000), &mut ends);
        let at: Vec<u64> = ends.iter().map(|end| end.at.0).collect();
        assert_eq!(at, [100, 200, 300]);
    }

    #[test]
    fn a_scheduled_worker_waits_for_its_time() {
        let mut driver = driver(100);
        driver.schedule_worker();
        (0..2).for_each(|id| submit(&mut driver, 0, id));
        let mut ends = Vec::new();
        driver.advance(Nanos(1000), &mut ends);
        assert!(ends.is_empty() && driver.has_work() && !driver.is_at_work());
        let job = driver.begin().expect("has work");
        assert_eq!((job.op, job.sectors), (Op::Read, 8));
        assert!(!driver.has_work(), "it does one at a time");
        assert!(driver.is_at_work());
        assert_eq!(driver.begin(), None);
        assert_eq!(driver.waiting().len(), 2, "one is being copied");
        driver.copied(Nanos(2000));
        assert_eq!(driver.waiting(), [RequestId::from_index(1)]);
        assert_eq!(driver.next_event(), Nanos(2100));
        driver.advance(Nanos(2100), &mut ends);
        assert_eq!(ends.len(), 1);
        assert!(driver.has_work());
    }
}
