//! One ring and its thread, which takes requests from the ring, carries them out through the
//! export's block layer in its turn, and answers them in the ring.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use blklab_blk::IoStatus;
use blklab_nbd::wire::{Command, CommandFlags};
use blklab_virtio::{
    Chain, HEADER_BYTES, ID_BYTES, InFlight, Limits, Memory, Operation, Request, Ring, RingFault,
    Status,
};
use rustix::io::Errno;

use super::{DeviceSetup, locked};
use crate::export::{Disk, FrontEndQueue, IoId, QueueClient, QueueThread, Source};

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

/// A request that was taken; there is a slot for each first descriptor.
struct Slot {
    buffers: Arc<Buffers>,
    /// Set until it is answered.
    request: Option<Request>,
}

/// The buffers of a request, which the block layer reads a write's data from. They were checked
/// to be in the memory, and are a copy that the guest cannot change.
#[derive(Clone, Debug)]
struct Buffers {
    memory: Arc<Memory>,
    chain: Chain,
}

impl Buffers {
    fn new(memory: &Arc<Memory>) -> Buffers {
        Buffers {
            memory: Arc::clone(memory),
            chain: Chain::default(),
        }
    }
}

impl Source for Buffers {
    fn copy(&self, at: u32, into: &mut [u8]) -> bool {
        let read = self.chain.read(&self.memory, HEADER_BYTES + at, into);
        read.is_ok()
    }
}

impl Slot {
    fn new(memory: &Arc<Memory>) -> Slot {
        Slot {
            buffers: Arc::new(Buffers::new(memory)),
            request: None,
        }
    }

    /// The chain of the next request, to be filled. Nobody else has it, as the former request
    /// was answered.
    fn next_chain(&mut self) -> &mut Chain {
        &mut Arc::make_mut(&mut self.buffers).chain
    }

    fn chain(&self) -> &Chain {
        &self.buffers.chain
    }
}

/// A ring with the requests taken from it.
pub(super) struct Queue {
    guest: GuestRing,
    client: QueueClient,
    unanswered: VecDeque<u16>,
}

/// The guest's side: the ring, and the memory that its requests point to.
struct GuestRing {
    setup: QueueSetup,
    limits: Limits,
    id: [u8; ID_BYTES],
    slots: Vec<Slot>,
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
        let slots = (0..setup.ring.size()).map(|_| Slot::new(&setup.memory));
        Ok(Queue {
            client: QueueClient::join(&device.front_end, number)?,
            unanswered: setup.unanswered.iter().copied().collect(),
            guest: GuestRing {
                limits: device.limits(),
                id: device.id(),
                slots: slots.collect(),
                is_broken: false,
                setup,
            },
        })
    }

    /// Starts to serve the ring. The result of the thread is the index of the request to take
    /// next.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(self) -> std::io::Result<QueueThread<u16>> {
        let thread = self.client.new_thread();
        QueueThread::start("virtqueue", thread, move |stop| self.run(stop))
    }

    /// Serves until `stop` is set and all taken requests are answered. Returns the index of
    /// the request to take next.
    fn run(mut self, stop: &AtomicBool) -> u16 {
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
            if self.guest.is_broken && stops && !self.has_work() {
                break;
            }
        }
        self.client.leave();
        self.guest.setup.ring.next_available()
    }

    /// Whether a taken request is not answered yet.
    fn has_work(&self) -> bool {
        self.client.has_work() || !self.unanswered.is_empty()
    }

    /// Ends the connection because the guest broke its ring. Requests in flight are finished
    /// without an answer.
    fn break_ring(&mut self, fault: &RingFault) {
        let GuestRing {
            setup,
            slots,
            is_broken,
            ..
        } = &mut self.guest;
        if !*is_broken {
            *is_broken = true;
            let mut core = setup.device.front_end.shared.lock();
            core.counters.protocol_errors += 1;
            drop(core);
            eprintln!("blklab: vhost-user: {fault}");
            let _ = setup.stream.shutdown(std::net::Shutdown::Both);
        }
        for head in self.client.unstage() {
            slots[usize::from(head)].request = None;
        }
        self.unanswered.clear();
    }

    /// Takes requests, carries them out, and answers those that ended.
    fn serve(&mut self, stops: bool) -> Result<(), RingFault> {
        self.take_requests(stops)?;
        if self.client.wants_turn() {
            self.client.take_turn(&mut self.guest)?;
        }
        self.guest.interrupt()
    }

    /// Takes requests from the ring for as long as there is room.
    fn take_requests(&mut self, stops: bool) -> Result<(), RingFault> {
        while self.takes_more() {
            let head = match self.unanswered.pop_front() {
                Some(head) => head,
                None if stops => break,
                None => match self.guest.pop()? {
                    Some(head) => head,
                    None => break,
                },
            };
            if self.guest.take(head)? {
                self.client.stage(head);
            }
        }
        Ok(())
    }

    fn takes_more(&self) -> bool {
        let is_full = self.client.staged() >= BATCH || self.client.is_asleep();
        !is_full && !self.guest.is_broken
    }

    /// Waits for a kick, for a message of another thread, or for the block layer's next event.
    fn wait(&mut self, stops: bool) -> Result<(), RingFault> {
        if self.client.is_ready() {
            return Ok(());
        }
        let takes_more = self.takes_more() && !stops;
        let QueueSetup { ring, memory, .. } = &mut self.guest.setup;
        let has_more = || Ok(takes_more && ring.has_more(memory)?);
        if self.client.poll_a_while(has_more)? {
            return Ok(());
        }
        if takes_more && ring.enable_notifications(memory)? {
            return ring.disable_notifications(memory);
        }
        self.sleep();
        let QueueSetup { ring, memory, .. } = &mut self.guest.setup;
        match self.guest.is_broken {
            true => Ok(()),
            false => ring.disable_notifications(memory),
        }
    }

    fn sleep(&mut self) {
        let kick = Arc::clone(&self.guest.setup.kick);
        // Kicks of a broken ring are ignored.
        let watched = (!self.guest.is_broken).then(|| kick.as_fd());
        if !self.client.sleep(watched).is_empty() {
            let mut count = [0; 8];
            match rustix::io::read(&*kick, &mut count) {
                Ok(8) | Err(Errno::AGAIN | Errno::INTR) => {}
                // Other files would be readable for ever.
                _ => self.break_ring(&RingFault::NoKick),
            }
        }
    }
}

impl GuestRing {
    /// The first descriptor of the next request.
    fn pop(&mut self) -> Result<Option<u16>, RingFault> {
        let Some(head) = self.setup.ring.pop(&self.setup.memory)? else {
            return Ok(None);
        };
        if self.slots[usize::from(head)].request.is_some() {
            return Err(RingFault::InUse(head));
        }
        if let Some(record) = &mut self.setup.in_flight {
            record.begin(head);
        }
        Ok(Some(head))
    }

    /// Reads the request that starts at a descriptor. Returns whether it is for the
    /// block layer.
    fn take(&mut self, head: u16) -> Result<bool, RingFault> {
        let QueueSetup { ring, memory, .. } = &self.setup;
        let slot = &mut self.slots[usize::from(head)];
        ring.read_chain(memory, head, slot.next_chain())?;
        match Request::parse(memory, slot.chain(), &self.limits) {
            Err(status) => {
                self.setup.device.front_end.shared.lock().counters.errors += 1;
                self.answer(head, status, 0).map(|()| false)
            }
            Ok(Request {
                operation: Operation::GetId,
                ..
            }) => {
                slot.chain().write(memory, 0, &self.id)?;
                self.answer(head, Status::Ok, ID_BYTES as u32)
                    .map(|()| false)
            }
            Ok(request) => {
                slot.request = Some(request);
                Ok(true)
            }
        }
    }

    /// Interrupts the guest, if it wants to hear of new answers.
    fn interrupt(&mut self) -> Result<(), RingFault> {
        if !self.is_broken
            && self.setup.ring.needs_interrupt(&self.setup.memory)?
            && let Some(call) = &*locked(&self.setup.call)
        {
            // A full eventfd is already signalled.
            let _ = rustix::io::write(call, &1u64.to_ne_bytes());
        }
        Ok(())
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
        status.write(memory, slot.chain())?;
        if let Some(record) = in_flight {
            record.prepare_end(head);
        }
        ring.push(memory, head, copied + 1)?;
        if let Some(record) = in_flight {
            record.end(head, ring.next_used());
        }
        Ok(())
    }
}

impl FrontEndQueue for GuestRing {
    type Fault = RingFault;

    fn request(&self, head: u16) -> (Command, blklab_nbd::Request) {
        let request = self.slots[usize::from(head)].request;
        let writes_through = self.setup.writes_through.load(Ordering::Relaxed);
        match request {
            Some(request) => translated(request, writes_through),
            // A slot is staged only while it has a request.
            None => (
                Command::Flush,
                blklab_nbd::Request::new(Command::Flush, 0, 0, 0),
            ),
        }
    }

    fn lend(&self, head: u16) -> Option<Arc<dyn Source>> {
        let buffers = Arc::clone(&self.slots[usize::from(head)].buffers);
        Some(buffers)
    }

    fn take_data(&mut self, head: u16, at: u32, data: &mut [u8]) -> bool {
        self.slots[usize::from(head)].buffers.copy(at, data)
    }

    fn end(&mut self, head: u16, status: IoStatus, disk: &Disk, io: IoId) -> Result<(), RingFault> {
        let (slot, memory) = (&self.slots[usize::from(head)], &self.setup.memory);
        if self.is_broken {
            return Ok(());
        }
        let is_read = slot
            .request
            .is_some_and(|request| request.operation == Operation::Read);
        let mut copied = Ok(0);
        if is_read && status == IoStatus::Ok {
            disk.read_data(io, &mut |piece| {
                copied = copied.and_then(|at: u32| {
                    slot.chain().write(memory, at, piece)?;
                    Ok(at + piece.len() as u32)
                });
            });
        }
        let status = match status {
            IoStatus::Ok => Status::Ok,
            IoStatus::NotSupported => Status::Unsupported,
            _ => Status::IoError,
        };
        self.answer(head, status, copied?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_virtio::vm_memory::{Bytes, GuestAddress};
    use blklab_virtio::{DriverRing, RingLayout};

    #[test]
    fn what_is_lent_stays_the_same_whatever_the_guest_does_to_its_descriptors() {
        let memory = Memory::from_ranges(&[(GuestAddress(0), 1 << 16)]).expect("memory");
        let memory = Arc::new(memory);
        let layout = RingLayout {
            depth: 2,
            data_bytes: 1024,
            start: 0,
        };
        let mut driver = DriverRing::new(layout);
        let at = layout.addresses();
        let mut ring = Ring::new(&memory, layout.size().into(), at, 0, true).expect("a ring");
        let mut slot = Slot::new(&memory);
        for byte in [1, 2] {
            let data = GuestAddress(layout.data(0));
            memory.write_slice(&[byte; 1024], data).expect("room");
            let sent = driver.submit(&memory, 0, Operation::Write, 0, 1024);
            sent.expect("room");
            let head = ring.pop(&memory).expect("a sound ring").expect("a request");
            let chain = slot.next_chain();
            ring.read_chain(&memory, head, chain)
                .expect("a sound chain");
            let lent = Arc::clone(&slot.buffers);
            let nowhere = [0xff; 16 * 8];
            let descriptors = GuestAddress(at.descriptors);
            memory.write_slice(&nowhere, descriptors).expect("room");
            let mut room = [0; 1000];
            assert!(lent.copy(24, &mut room));
            assert_eq!(room, [byte; 1000]);
            assert!(!lent.copy(25, &mut room), "there are 1024 bytes");
            // Not while it is lent, but it would be harmless.
            slot.next_chain();
            assert!(lent.copy(0, &mut room));
        }
    }
}
