//! One ring and its thread, which takes requests from the ring, carries them out through the
//! export's block layer in its turn, and answers them in the ring.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use blklab_blk::{CgroupId, IoStatus, Nanos, Plug, Waiter};
use blklab_nbd::wire::{Command, CommandFlags};
use blklab_virtio::{
    Chain, HEADER_BYTES, ID_BYTES, InFlight, Limits, Memory, Operation, Request, Ring, RingFault,
    Status,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{DeviceSetup, locked};
use crate::export::{Client, Core, Ended, Io, Membership, Waker};

/// Requests that are taken from the ring before the thread waits for its turn.
const BATCH: usize = 64;

/// The eventfd that interrupts the guest; its monitor may change it at any time.
pub(super) type Call = Mutex<Option<File>>;

/// The setup of a ring's thread.
pub(super) struct QueueSetup {
    pub(super) device: Arc<DeviceSetup>,
    pub(super) memory: Arc<Memory>,
    pub(super) ring: Ring,
    pub(super) in_flight: Option<InFlight>,
    /// Requests that a killed predecessor took and did not answer.
    pub(super) unanswered: Vec<u16>,
    pub(super) kick: Arc<File>,
    pub(super) call: Arc<Call>,
    /// Each write is durable before it is answered.
    pub(super) writes_through: Arc<AtomicBool>,
    /// The monitor's socket, which a broken ring shuts down.
    pub(super) stream: UnixStream,
}

/// The thread of a ring.
pub(super) struct QueueThread {
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: JoinHandle<u16>,
}

impl QueueThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(queue: Queue) -> std::io::Result<QueueThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let (own, waker) = (Arc::clone(&stop), queue.member.waker());
        let builder = std::thread::Builder::new().name("virtqueue".to_string());
        let thread = builder.spawn(move || queue.run(&own))?;
        Ok(QueueThread {
            stop,
            waker,
            thread,
        })
    }

    /// Finishes all taken requests, and ends. Returns the index of the request to take next.
    pub(super) fn stop(self) -> u16 {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        self.thread.join().unwrap_or(0)
    }
}

/// A request that was taken; there is a slot for each first descriptor.
#[derive(Default)]
struct Slot {
    chain: Chain,
    /// Set until it is answered.
    request: Option<Request>,
}

/// A ring with the requests taken from it.
pub(super) struct Queue {
    setup: QueueSetup,
    limits: Limits,
    id: [u8; ID_BYTES],
    member: Membership,
    client: Client,
    slots: Vec<Slot>,
    unanswered: VecDeque<u16>,
    /// Requests to be given to the block layer.
    staged: VecDeque<u16>,
    /// A request that would exceed the bytes in flight.
    held: Option<u16>,
    waiter: Option<Waiter>,
    in_flight: u32,
    in_flight_bytes: u64,
    ended: Vec<Ended>,
    woken: Vec<u64>,
    /// When the block layer must run next, and how much earlier to wake up.
    next_event: (Nanos, Nanos),
    /// The guest broke the ring, from which nothing is read any more.
    is_broken: bool,
}

impl Queue {
    /// A ring that is about to be served.
    ///
    /// # Errors
    /// If the kernel has no descriptor left.
    pub(super) fn new(setup: QueueSetup) -> std::io::Result<Queue> {
        let device = Arc::clone(&setup.device);
        let number = device.queues_started.fetch_add(1, Ordering::Relaxed);
        let slots = (0..setup.ring.size()).map(|_| Slot::default());
        let member = device.shared.join()?;
        Ok(Queue {
            limits: device.limits(),
            id: device.id(),
            client: Client {
                submitter: device.shared.lock().new_submitter(),
                cgroup: CgroupId::ROOT,
                cpu: number % device.software_queues,
            },
            slots: slots.collect(),
            unanswered: setup.unanswered.iter().copied().collect(),
            staged: VecDeque::with_capacity(BATCH),
            held: None,
            waiter: None,
            in_flight: 0,
            in_flight_bytes: 0,
            ended: Vec::new(),
            woken: Vec::new(),
            next_event: (Nanos::MAX, Nanos::ZERO),
            is_broken: false,
            member,
            setup,
        })
    }

    /// Serves until `stop` is set and all taken requests are answered. Returns the index of
    /// the request to take next.
    fn run(mut self, stop: &AtomicBool) -> u16 {
        // The kernel rounds sleeps up by 50 us unless asked not to.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        loop {
            let stops = stop.load(Ordering::Acquire);
            let done = self.serve(stops).and_then(|()| {
                let is_idle = !self.has_work();
                if stops && is_idle {
                    Ok(true)
                } else {
                    self.wait(stops).map(|()| false)
                }
            });
            match done {
                Ok(true) => break,
                Ok(false) => {}
                Err(fault) => self.break_ring(&fault),
            }
            if self.is_broken && stops && !self.has_work() {
                break;
            }
        }
        let mut core = self.setup.device.shared.lock();
        let now = self.setup.device.clock.now();
        core.disk.exit_submitter(now, self.client.submitter);
        core.leave(&self.member);
        self.setup.ring.next_available()
    }

    /// Whether a taken request is not answered yet.
    fn has_work(&self) -> bool {
        self.in_flight > 0
            || self.waiter.is_some()
            || !self.staged.is_empty()
            || self.held.is_some()
            || !self.unanswered.is_empty()
    }

    /// Ends the connection because the guest broke its ring. Requests in flight are finished
    /// without an answer.
    fn break_ring(&mut self, fault: &RingFault) {
        if !self.is_broken {
            self.is_broken = true;
            self.setup.device.shared.lock().counters.protocol_errors += 1;
            eprintln!("blklab: vhost-user: {fault}");
            let _ = self.setup.stream.shutdown(std::net::Shutdown::Both);
        }
        for head in self.staged.drain(..).chain(self.held.take()) {
            self.slots[usize::from(head)].request = None;
        }
        self.unanswered.clear();
        self.in_flight_bytes = 0;
    }

    /// Takes requests, carries them out, and answers those that ended.
    fn serve(&mut self, stops: bool) -> Result<(), RingFault> {
        self.take_requests(stops)?;
        let is_due = || self.next_event.0 <= self.setup.device.clock.now();
        if !self.staged.is_empty() || self.member.take_mail() || is_due() {
            self.take_turn()?;
        }
        if !self.is_broken
            && self.setup.ring.needs_interrupt(&self.setup.memory)?
            && let Some(call) = &*locked(&self.setup.call)
        {
            // A full eventfd is already signalled.
            let _ = rustix::io::write(call, &1u64.to_ne_bytes());
        }
        Ok(())
    }

    /// Takes requests from the ring for as long as there is room.
    fn take_requests(&mut self, stops: bool) -> Result<(), RingFault> {
        if let Some(head) = self.held.take() {
            self.stage(head);
        }
        while self.takes_more() {
            let head = match self.unanswered.pop_front() {
                Some(head) => head,
                None if stops => break,
                None => {
                    let Some(head) = self.setup.ring.pop(&self.setup.memory)? else {
                        break;
                    };
                    if self.slots[usize::from(head)].request.is_some() {
                        return Err(RingFault::InUse(head));
                    }
                    if let Some(record) = &mut self.setup.in_flight {
                        record.begin(head);
                    }
                    head
                }
            };
            self.take(head)?;
        }
        Ok(())
    }

    fn takes_more(&self) -> bool {
        let is_full = self.staged.len() >= BATCH || self.held.is_some();
        !is_full && self.waiter.is_none() && !self.is_broken
    }

    /// Reads the request that starts at a descriptor.
    fn take(&mut self, head: u16) -> Result<(), RingFault> {
        let QueueSetup { ring, memory, .. } = &self.setup;
        let slot = &mut self.slots[usize::from(head)];
        ring.read_chain(memory, head, &mut slot.chain)?;
        match Request::parse(memory, &slot.chain, &self.limits) {
            Err(status) => {
                self.setup.device.shared.lock().counters.errors += 1;
                self.answer(head, status, 0)
            }
            Ok(Request {
                operation: Operation::GetId,
                ..
            }) => {
                slot.chain.write(memory, 0, &self.id)?;
                self.answer(head, Status::Ok, ID_BYTES as u32)
            }
            Ok(request) => {
                slot.request = Some(request);
                self.stage(head);
                Ok(())
            }
        }
    }

    /// Stages a request for the block layer, or holds it if it would exceed the bytes in
    /// flight.
    fn stage(&mut self, head: u16) {
        match self.fits(head) {
            true => {
                self.in_flight_bytes += self.data_bytes(head);
                self.staged.push_back(head);
            }
            false => self.held = Some(head),
        }
    }

    /// Whether a request fits into the bytes in flight. A single one always does.
    fn fits(&self, head: u16) -> bool {
        let total = self.in_flight_bytes + self.data_bytes(head);
        self.in_flight_bytes == 0 || total <= self.setup.device.in_flight_bytes
    }

    /// Bytes of data of a request.
    fn data_bytes(&self, head: u16) -> u64 {
        match self.slots[usize::from(head)].request {
            Some(Request {
                operation: Operation::Read | Operation::Write,
                length,
                ..
            }) => length.into(),
            _ => 0,
        }
    }

    /// Locks the block layer, submits the staged requests and runs it as far as it can.
    fn take_turn(&mut self) -> Result<(), RingFault> {
        let device = Arc::clone(&self.setup.device);
        let mut core = device.shared.lock();
        let now = device.clock.now();
        let mut plug = Plug::new();
        self.submit_staged(now, &mut core, &mut plug);
        core.disk.unplug(now, &mut plug);
        loop {
            let mut ended = std::mem::take(&mut self.ended);
            let mut woken = std::mem::take(&mut self.woken);
            core.run(now, &self.member, &mut ended, &mut woken);
            // Latencies include the time that the run took.
            let then = if ended.is_empty() {
                now
            } else {
                device.clock.now()
            };
            let answered = ended
                .drain(..)
                .try_for_each(|one| self.end(then, &mut core, one));
            let is_woken = woken.drain(..).any(|ticket| {
                self.waiter
                    .as_ref()
                    .is_some_and(|waiter| waiter.ticket == ticket)
            });
            (self.ended, self.woken) = (ended, woken);
            answered?;
            let Some(waiter) = self.waiter.take_if(|_| is_woken) else {
                break;
            };
            self.waiter = core.resume(now, &self.member, &mut plug, waiter);
            self.submit_staged(now, &mut core, &mut plug);
            core.disk.unplug(now, &mut plug);
        }
        self.next_event = (core.disk.next_event(), core.disk.wake_early());
        Ok(())
    }

    fn submit_staged(&mut self, now: Nanos, core: &mut Core, plug: &mut Plug) {
        while self.waiter.is_none()
            && let Some(head) = self.staged.pop_front()
        {
            let slot = &self.slots[usize::from(head)];
            let Some(request) = slot.request else {
                continue;
            };
            let writes_through = self.setup.writes_through.load(Ordering::Relaxed);
            let (command, request) = translated(request, writes_through);
            let io = Io::new(&self.member, head.into(), command, request, now);
            let io = core.disk.begin(io);
            if command == Command::Write {
                let mut filled = 0;
                while filled < request.length {
                    let part = core.disk.payload_mut(io, filled as usize);
                    // The chain was checked to hold all data.
                    let _ = slot
                        .chain
                        .read(&self.setup.memory, HEADER_BYTES + filled, part);
                    filled += part.len() as u32;
                }
            }
            self.in_flight += 1;
            self.waiter = core.submit(now, self.client, plug, io);
        }
    }

    /// Answers a request that the block layer ended.
    fn end(&mut self, now: Nanos, core: &mut Core, ended: Ended) -> Result<(), RingFault> {
        let head = core.disk.io(ended.io).origin.index as u16;
        core.count(now, ended.io);
        let (slot, memory) = (&self.slots[usize::from(head)], &self.setup.memory);
        let mut copied = Ok(0);
        if let (
            IoStatus::Ok,
            Some(Request {
                operation: Operation::Read,
                ..
            }),
        ) = (ended.status, slot.request)
        {
            core.disk.read_data(ended.io, &mut |piece| {
                copied = copied.and_then(|at: u32| {
                    slot.chain.write(memory, at, piece)?;
                    Ok(at + piece.len() as u32)
                });
            });
        }
        core.disk.release(ended.io);
        self.in_flight -= 1;
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(self.data_bytes(head));
        let status = match ended.status {
            IoStatus::Ok => Status::Ok,
            IoStatus::NotSupported => Status::Unsupported,
            _ => Status::IoError,
        };
        core.counters.errors += u64::from(status != Status::Ok);
        if self.is_broken {
            return Ok(());
        }
        self.answer(head, status, copied?)
    }

    /// Answers a request, into which `copied` bytes of data were written.
    fn answer(&mut self, head: u16, status: Status, copied: u32) -> Result<(), RingFault> {
        let QueueSetup {
            ring,
            memory,
            in_flight,
            ..
        } = &mut self.setup;
        let slot = &mut self.slots[usize::from(head)];
        slot.request = None;
        status.write(memory, &slot.chain)?;
        if let Some(record) = in_flight {
            record.prepare_end(head);
        }
        ring.push(memory, head, copied + 1)?;
        if let Some(record) = in_flight {
            record.end(head, ring.next_used());
        }
        Ok(())
    }

    /// Waits for a kick, for a message of another thread, or for the block layer's next event.
    fn wait(&mut self, stops: bool) -> Result<(), RingFault> {
        let is_ready = !self.staged.is_empty() || self.held.is_some_and(|head| self.fits(head));
        if is_ready && self.waiter.is_none() {
            return Ok(());
        }
        let takes_more = self.takes_more() && !stops;
        if self.poll_a_while(takes_more)? {
            return Ok(());
        }
        let QueueSetup { ring, memory, .. } = &mut self.setup;
        if takes_more && ring.enable_notifications(memory)? {
            return ring.disable_notifications(memory);
        }
        self.sleep();
        match self.is_broken {
            true => Ok(()),
            false => self.setup.ring.disable_notifications(&self.setup.memory),
        }
    }

    /// Polls for the configured time. Whether there is something to do.
    fn poll_a_while(&self, takes_more: bool) -> Result<bool, RingFault> {
        let device = &self.setup.device;
        let end = device.clock.now().saturating_add(device.busy_poll);
        loop {
            let now = device.clock.now();
            let has_more = takes_more && self.setup.ring.has_more(&self.setup.memory)?;
            if has_more || self.member.has_mail() || self.next_event.0 <= now {
                return Ok(true);
            }
            let is_due = self.next_event.0 <= now.saturating_add(self.next_event.1);
            if now >= end && !is_due {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
    }

    fn sleep(&mut self) {
        let (next, early) = self.next_event;
        let now = self.setup.device.clock.now();
        let left = next.saturating_sub(now).saturating_sub(early);
        let timeout = (next < Nanos::MAX).then_some(Timespec {
            tv_sec: (left.0 / 1_000_000_000) as i64,
            tv_nsec: (left.0 % 1_000_000_000) as i64,
        });
        let kick = self.setup.kick.as_fd();
        let mut fds = [
            PollFd::from_borrowed_fd(self.member.event(), PollFlags::IN),
            PollFd::from_borrowed_fd(kick, PollFlags::IN),
        ];
        // Kicks of a broken ring are ignored.
        let watched = if self.is_broken {
            &mut fds[..1]
        } else {
            &mut fds[..]
        };
        if poll(watched, timeout.as_ref()).is_err() {
            return;
        }
        if !fds[0].revents().is_empty() {
            self.member.clear_event();
        }
        if !self.is_broken && !fds[1].revents().is_empty() {
            let mut count = [0; 8];
            match rustix::io::read(kick, &mut count) {
                Ok(8) | Err(Errno::AGAIN | Errno::INTR) => {}
                // Other files would be readable for ever.
                _ => self.break_ring(&RingFault::NoKick),
            }
        }
    }
}

/// Translates a request for the export's block layer.
fn translated(request: Request, writes_through: bool) -> (Command, blklab_nbd::Request) {
    let command = match request.operation {
        Operation::Read | Operation::GetId => Command::Read,
        Operation::Write => Command::Write,
        Operation::Flush => Command::Flush,
        Operation::Discard => Command::Trim,
        Operation::WriteZeroes { .. } => Command::WriteZeroes,
    };
    let mut translated = blklab_nbd::Request::new(command, 0, request.offset, request.length);
    let is_durable = writes_through && command.modifies();
    translated.flags.set(CommandFlags::FUA, is_durable);
    let keeps_space = request.operation == Operation::WriteZeroes { may_unmap: false };
    translated.flags.set(CommandFlags::NO_HOLE, keeps_space);
    (command, translated)
}
