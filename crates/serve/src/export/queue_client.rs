//! The requests of one queue of a front end that numbers them: by the first descriptors
//! of a ring, or the tags of a device. What a queue's thread waits for is here as well.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use blklab_blk::{CgroupId, IoStatus, Nanos, Plug, Waiter};
use blklab_nbd::wire::Command;
use blklab_nbd::{Export, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::disk::{Disk, Ended};
use super::io::{Io, IoId, Source};
use super::requests::data_bytes;
use super::shared::{Client, Core, ExportThread, SharedExport, Waker};
use super::waiting::{UNPAUSED_WAYS, Wait, Waiting};
use super::watch::{PanicWatch, WatchedThread};
use crate::{Clock, sleep_precisely};

/// An export as the queues of a front end use it.
#[derive(Clone)]
pub(crate) struct FrontEndSetup {
    pub(crate) export: Arc<Export>,
    pub(crate) shared: Arc<SharedExport>,
    pub(crate) clock: Clock,
    /// The most bytes of data that one queue may have in flight.
    pub(crate) in_flight_bytes: u64,
    pub(crate) software_queues: usize,
    /// How long to poll for more requests before going to sleep.
    pub(crate) busy_poll: Nanos,
    pub(crate) watch: PanicWatch,
}

impl FrontEndSetup {
    /// A thread for the export, whose panic ends the server.
    pub(crate) fn new_thread(&self) -> WatchedThread {
        self.watch.thread(&self.export.name)
    }
}

/// A queue of a front end, which brings requests and takes their answers. Each request
/// has a slot, which no other has until it is answered.
pub(crate) trait FrontEndQueue {
    /// Why no request can be answered any more.
    type Fault;

    /// The request of a slot, as the block layer has it.
    fn request(&self, slot: u16) -> (Command, Request);

    /// Lends a write's data until the request has ended, where it stays readable so long.
    fn lend(&self, _slot: u16) -> Option<Arc<dyn Source>> {
        None
    }

    /// Fills `data` with a write's data, from `at` bytes on. Returns whether it
    /// could be had.
    fn take_data(&mut self, slot: u16, at: u32, data: &mut [u8]) -> bool;

    /// Answers a request, with the data that a read has in `disk`.
    ///
    /// # Errors
    /// Where it could not be answered.
    fn end(
        &mut self,
        slot: u16,
        status: IoStatus,
        disk: &Disk,
        io: IoId,
    ) -> Result<(), Self::Fault>;
}

/// A queue's requests at an export's block layer, used by the queue's thread.
pub(crate) struct QueueClient {
    thread: ExportThread,
    client: Client,
    setup: FrontEndSetup,
    /// Slots of requests that are to be given to the block layer.
    staged: VecDeque<u16>,
    /// The first of them would exceed the bytes in flight.
    is_full: bool,
    waiter: Option<Waiter>,
    in_flight: u32,
    in_flight_bytes: u64,
    /// Requests answered.
    answered: u64,
    waiting: Waiting,
    ended: Vec<Ended>,
    woken: Vec<u64>,
    /// When the block layer must run next, and how much earlier to wake up.
    next_event: (Nanos, Nanos),
}

impl QueueClient {
    /// Joins the threads of an export, as a process for the queue with this number. The
    /// queues of a front end share the software queues evenly.
    ///
    /// # Errors
    /// If the kernel has no descriptor left.
    pub(crate) fn join(setup: &FrontEndSetup, number: usize) -> std::io::Result<QueueClient> {
        Ok(QueueClient {
            thread: setup.shared.join()?,
            client: Client {
                submitter: setup.shared.lock().new_submitter(),
                cgroup: CgroupId::ROOT,
                cpu: number % setup.software_queues,
            },
            setup: setup.clone(),
            staged: VecDeque::new(),
            is_full: false,
            waiter: None,
            in_flight: 0,
            in_flight_bytes: 0,
            answered: 0,
            waiting: Waiting::new(UNPAUSED_WAYS),
            ended: Vec::new(),
            woken: Vec::new(),
            next_event: (Nanos::MAX, Nanos::ZERO),
        })
    }

    /// Waits for all requests in flight where the front end takes no answers any more.
    pub(crate) fn abandon<Q: FrontEndQueue>(&mut self, queue: &mut Q) {
        self.unstage().for_each(drop);
        while self.has_work() {
            if self.wants_turn() {
                // That they cannot be answered is known.
                let _ = self.take_turn(queue);
            } else {
                self.sleep(None);
            }
        }
    }

    /// Leaves the threads of the export, once nothing is in flight.
    pub(crate) fn leave(&self) {
        let (mut core, now) = self.setup.shared.turn(self.setup.clock);
        core.disk.exit_submitter(now, self.client.submitter);
        core.leave(&self.thread);
    }

    /// What notifies its thread.
    pub(crate) fn thread(&self) -> &ExportThread {
        &self.thread
    }

    /// What [`QueueThread::start`] needs of it.
    pub(crate) fn new_thread(&self) -> (Waker, WatchedThread) {
        (self.thread.waker(), self.setup.new_thread())
    }

    /// How long its thread may sleep; `None` until it is notified.
    pub(crate) fn sleep_limit(&self) -> Option<Duration> {
        if self.is_ready() {
            return Some(Duration::ZERO);
        }
        let (next, early) = self.next_event;
        let clock = self.setup.clock;
        let left = clock.real_time(clock.now(), next).saturating_sub(early);
        (next < Nanos::MAX).then_some(Duration::from_nanos(left.0))
    }

    /// Whether its thread polls before it goes to sleep.
    pub(crate) fn polls(&self) -> bool {
        self.poll_limit() > Nanos::ZERO
    }

    /// How long to poll: as configured, or where that answers more requests.
    fn poll_limit(&self) -> Nanos {
        match (self.setup.busy_poll, self.waiting.way()) {
            (Nanos::ZERO, Wait::Poll(limit)) => limit,
            (configured, _) => configured,
        }
    }

    /// Polls, and `has_more` with it, before its thread goes to sleep. Returns whether there
    /// is something to do.
    ///
    /// # Errors
    /// The error of `has_more`.
    pub(crate) fn poll_a_while<E>(
        &self,
        mut has_more: impl FnMut() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let clock = self.setup.clock;
        let end = clock.now().saturating_add(self.poll_limit());
        let (next, early) = self.next_event;
        loop {
            let now = clock.now();
            if has_more()? || self.thread.is_notified() || next <= now {
                return Ok(true);
            }
            let is_due = clock.real_time(now, next) <= early;
            if now >= end && !is_due {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
    }

    /// Sleeps until its thread is notified, the block layer must run, or the front end's
    /// file has something. Returns what that file has.
    pub(crate) fn sleep(&self, file: Option<BorrowedFd<'_>>) -> PollFlags {
        let limit = self.sleep_limit();
        let timeout = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let event = self.thread.event();
        let watched = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = [watched(event), watched(file.unwrap_or(event))];
        let count = 1 + usize::from(file.is_some());
        if poll(&mut fds[..count], timeout.as_ref()).is_err() {
            return PollFlags::empty();
        }
        if !fds[0].revents().is_empty() {
            self.thread.clear_event();
        }
        match file {
            Some(_) => fds[1].revents(),
            None => PollFlags::empty(),
        }
    }

    /// Has the request of a slot given to the block layer in the next turn.
    pub(crate) fn stage(&mut self, slot: u16) {
        self.staged.push_back(slot);
    }

    /// How many requests are staged.
    pub(crate) fn staged(&self) -> usize {
        self.staged.len()
    }

    /// Takes the staged requests back.
    pub(crate) fn unstage(&mut self) -> impl Iterator<Item = u16> {
        self.is_full = false;
        self.staged.drain(..)
    }

    /// Whether a submission sleeps in the block layer.
    pub(crate) fn is_asleep(&self) -> bool {
        self.waiter.is_some()
    }

    /// Whether a turn would submit something.
    pub(crate) fn is_ready(&self) -> bool {
        !self.staged.is_empty() && !self.is_full && self.waiter.is_none()
    }

    /// Whether a staged request is not answered yet.
    pub(crate) fn has_work(&self) -> bool {
        self.in_flight > 0 || self.waiter.is_some() || !self.staged.is_empty()
    }

    /// Whether there is something to do in a turn; messages of other threads count as seen.
    pub(crate) fn wants_turn(&self) -> bool {
        let now = self.setup.clock.now();
        // Always taken: a thread with a notification is not woken a second time.
        let is_notified = self.thread.take_notification();
        self.is_ready() || is_notified || self.next_event.0 <= now
    }

    /// Locks the block layer, submits the staged requests and runs it as far as it can.
    ///
    /// # Errors
    /// The first fault of the queue.
    pub(crate) fn take_turn<Q: FrontEndQueue>(&mut self, queue: &mut Q) -> Result<(), Q::Fault> {
        let (shared, clock) = (Arc::clone(&self.setup.shared), self.setup.clock);
        let (mut core, now) = shared.turn(clock);
        let (mut plug, mut done) = (Plug::new(), Ok(()));
        loop {
            done = done.and(self.submit_staged(now, &mut core, &mut plug, queue));
            core.disk.unplug(now, &mut plug);
            let mut ended = std::mem::take(&mut self.ended);
            let mut woken = std::mem::take(&mut self.woken);
            core.run(now, &self.thread, &mut ended, &mut woken);
            // Latencies include the time that the run took.
            let then = if ended.is_empty() { now } else { clock.now() };
            self.answered += ended.len() as u64;
            for one in ended.drain(..) {
                done = done.and(self.end(then, &mut core, queue, one));
            }
            let is_woken = woken.drain(..).any(|ticket| {
                let waiter = self.waiter.as_ref();
                waiter.is_some_and(|waiter| waiter.ticket == ticket)
            });
            (self.ended, self.woken) = (ended, woken);
            if let Some(waiter) = self.waiter.take_if(|_| is_woken) {
                self.waiter = core.resume(now, &self.thread, &mut plug, waiter);
            } else if !self.is_ready() {
                break;
            }
        }
        self.next_event = (core.disk.next_event(), core.disk.wake_early());
        self.waiting.count(now, self.answered);
        done
    }

    fn submit_staged<Q: FrontEndQueue>(
        &mut self,
        now: Nanos,
        core: &mut Core,
        plug: &mut Plug,
        queue: &mut Q,
    ) -> Result<(), Q::Fault> {
        while self.waiter.is_none()
            && let Some(&slot) = self.staged.front()
        {
            let (command, request) = queue.request(slot);
            let bytes = data_bytes(command, &request);
            // A single request always fits.
            self.is_full = self.in_flight_bytes > 0
                && self.in_flight_bytes + bytes > self.setup.in_flight_bytes;
            if self.is_full {
                break;
            }
            self.staged.pop_front();
            let mut io = Io::new(&self.thread, slot.into(), command, request, now);
            if command == Command::Write && core.disk.takes_sources() {
                io.source = queue.lend(slot);
            }
            let needs_data = command == Command::Write && io.source.is_none();
            let io = core.disk.begin(io);
            if needs_data && !take_data(&mut core.disk, queue, slot, io, bytes) {
                core.counters.errors += 1;
                let answered = queue.end(slot, IoStatus::IoError, &core.disk, io);
                core.disk.release(io);
                answered?;
                continue;
            }
            self.in_flight += 1;
            self.in_flight_bytes += bytes;
            self.waiter = core.submit(now, self.client, plug, io);
        }
        Ok(())
    }

    /// Answers a request that the block layer ended.
    fn end<Q: FrontEndQueue>(
        &mut self,
        now: Nanos,
        core: &mut Core,
        queue: &mut Q,
        Ended { io, status }: Ended,
    ) -> Result<(), Q::Fault> {
        core.count(now, io);
        core.counters.errors += u64::from(status != IoStatus::Ok);
        let slot = core.disk.io(io).origin.index as u16;
        let (command, request) = core.disk.request_of(io);
        self.in_flight -= 1;
        self.in_flight_bytes -= data_bytes(command, &request);
        self.is_full = false;
        let answered = queue.end(slot, status, &core.disk, io);
        core.disk.release(io);
        answered
    }
}

/// The thread of a queue, which serves until it is stopped.
pub(crate) struct QueueThread<T> {
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> QueueThread<T> {
    /// Starts a thread of this name for a queue's client. `serve` is given the flag that
    /// tells it to end.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(
        name: &str,
        (waker, watched): (Waker, WatchedThread),
        serve: impl FnOnce(&AtomicBool) -> T + Send + 'static,
    ) -> std::io::Result<QueueThread<T>> {
        let stop = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&stop);
        let builder = std::thread::Builder::new().name(name.to_string());
        let thread = builder.spawn(move || {
            sleep_precisely();
            watched.run(|| serve(&own))
        })?;
        Ok(QueueThread {
            stop,
            waker,
            thread,
        })
    }

    /// Has the thread finish the requests that were taken, and end. Returns its result;
    /// `None` if it panicked.
    pub(crate) fn stop(self) -> Option<T> {
        self.stop.store(true, Ordering::Release);
        self.waker.wake_in_any_case();
        self.thread.join().ok()
    }
}

/// Fills a write's buffers. Returns whether all of its data could be had.
fn take_data<Q: FrontEndQueue>(
    disk: &mut Disk,
    queue: &mut Q,
    slot: u16,
    io: IoId,
    bytes: u64,
) -> bool {
    let mut filled = 0;
    while filled < bytes {
        let part = disk.payload_mut(io, filled as usize);
        if !queue.take_data(slot, filled as u32, part) {
            return false;
        }
        filled += part.len() as u64;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{OpenOptions, memory};
    use crate::export::DiskSetup;
    use blklab_elevator::SchedulerChoice;
    use blklab_nbd::BlockSizes;
    use blklab_nbd::wire::ExportFlags;
    use std::convert::Infallible;

    const SIZE_BYTES: u64 = 1 << 20;
    const BLOCK_BYTES: u32 = 4096;

    /// Data that a front end lends; `None` where it cannot be had.
    #[derive(Debug)]
    struct Lent(Option<u8>);

    impl Source for Lent {
        fn copy(&self, _: u32, into: &mut [u8]) -> bool {
            self.0.inspect(|byte| into.fill(*byte)).is_some()
        }
    }

    /// Requests by slot: a command at a block, and for a write its data, lent or not.
    struct Requests {
        slots: Vec<(Command, u64, Option<Arc<Lent>>)>,
        ended: Vec<(u16, IoStatus, Vec<u8>)>,
    }

    impl FrontEndQueue for Requests {
        type Fault = Infallible;

        fn request(&self, slot: u16) -> (Command, Request) {
            let (command, block, _) = self.slots[usize::from(slot)];
            let offset = block * u64::from(BLOCK_BYTES);
            (command, Request::new(command, 0, offset, BLOCK_BYTES))
        }

        fn lend(&self, slot: u16) -> Option<Arc<dyn Source>> {
            let (_, _, lent) = &self.slots[usize::from(slot)];
            lent.clone().map(|lent| lent as Arc<dyn Source>)
        }

        fn take_data(&mut self, slot: u16, _: u32, data: &mut [u8]) -> bool {
            data.fill(slot as u8);
            true
        }

        fn end(
            &mut self,
            slot: u16,
            status: IoStatus,
            disk: &Disk,
            io: IoId,
        ) -> Result<(), Infallible> {
            let mut data = Vec::new();
            if self.slots[usize::from(slot)].0 == Command::Read {
                disk.read_data(io, &mut |piece| data.extend_from_slice(piece));
            }
            self.ended.push((slot, status, data));
            Ok(())
        }
    }

    fn client() -> QueueClient {
        let options = OpenOptions {
            read_only: false,
            max_request_bytes: 1 << 20,
        };
        let backend = memory(SIZE_BYTES).open(options).expect("a back end");
        let disk = Disk::new(DiskSetup {
            info: backend.info(),
            backend,
            scheduler: &SchedulerChoice::named("mq-deadline").expect("a scheduler"),
            depth: 8,
            software_queues: 1,
            drive: None,
            cgroups: None,
            seed: 0,
        });
        let setup = FrontEndSetup {
            export: Arc::new(Export {
                name: String::new(),
                description: String::new(),
                size_bytes: SIZE_BYTES,
                flags: ExportFlags::empty(),
                block_sizes: BlockSizes {
                    minimum: 1,
                    preferred: BLOCK_BYTES,
                    maximum: 1 << 20,
                },
                tls_only: false,
            }),
            shared: Arc::new(SharedExport::new(disk.expect("a disk"))),
            clock: Clock::start(),
            in_flight_bytes: 1 << 20,
            software_queues: 1,
            busy_poll: Nanos::ZERO,
            watch: PanicWatch::default(),
        };
        QueueClient::join(&setup, 0).expect("a client")
    }

    /// Carries out requests, and returns their ends by slot.
    fn carry_out(
        client: &mut QueueClient,
        slots: Vec<(Command, u64, Option<Arc<Lent>>)>,
    ) -> Vec<(IoStatus, Vec<u8>)> {
        (0..slots.len() as u16).for_each(|slot| client.stage(slot));
        let mut requests = Requests {
            slots,
            ended: Vec::new(),
        };
        while client.has_work() {
            let Ok(()) = client.take_turn(&mut requests);
        }
        requests.ended.sort_by_key(|(slot, ..)| *slot);
        let ends = requests.ended.into_iter();
        ends.map(|(_, status, data)| (status, data)).collect()
    }

    #[test]
    fn data_is_stored_where_it_belongs_whether_it_is_lent_or_taken() {
        let mut client = client();
        let (fives, sevens) = (Arc::new(Lent(Some(5))), Arc::new(Lent(Some(7))));
        let (read, write) = (Command::Read, Command::Write);
        // Next to one another, so that they are merged.
        let writes = vec![
            (write, 2, None),
            (write, 1, Some(Arc::clone(&fives))),
            (write, 3, Some(Arc::clone(&sevens))),
        ];
        let ends = carry_out(&mut client, writes);
        assert!(ends.iter().all(|(status, _)| *status == IoStatus::Ok));
        assert_eq!(Arc::strong_count(&fives), 1, "it is given back");
        let reads = (0..5).map(|block| (read, block, None)).collect();
        let found: Vec<Vec<u8>> = carry_out(&mut client, reads)
            .into_iter()
            .map(|(_, data)| data)
            .collect();
        let expected = [0, 5, 0, 7, 0].map(|byte| vec![byte; BLOCK_BYTES as usize]);
        assert_eq!(found, expected);
    }

    #[test]
    fn a_write_whose_data_cannot_be_had_fails() {
        let mut client = client();
        let missing = Arc::new(Lent(None));
        let ends = carry_out(&mut client, vec![(Command::Write, 0, Some(missing))]);
        assert_eq!(ends, [(IoStatus::IoError, Vec::new())]);
    }
}
