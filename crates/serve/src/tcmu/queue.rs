//! The command ring of a disk, and its thread, which takes commands from the kernel, carries
//! out their steps through the export's block layer in its turn, and answers them.

use std::convert::Infallible;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blklab_blk::IoStatus;
use blklab_nbd::wire::{Command, CommandFlags};
use blklab_scsi::{
    Fault, LogicalUnit, Mailbox, MailboxFault, MediumRequest, Operation, Outcome, Request, Sense,
    Started, Task,
};
use rustix::event::PollFlags;

use super::TcmuSetup;
use crate::export::{Disk, FrontEndQueue, IoId, QueueClient, QueueThread};

/// The most commands taken from the ring before the thread takes its turn.
const BATCH: usize = 64;
/// The most commands in progress; the others stay in the ring.
const SLOTS: u16 = 1024;

/// The setup of a ring's thread.
pub(super) struct QueueSetup {
    pub(super) device: Arc<TcmuSetup>,
    /// The UIO device, which signals commands and takes the signal for answers.
    pub(super) uio: File,
    pub(super) mailbox: Mailbox,
    /// The disk; without one, all commands fail as for a removed disk.
    pub(super) unit: Option<LogicalUnit>,
}

/// A disk's ring with its client of the export.
pub(super) struct Queue {
    device: Arc<TcmuSetup>,
    uio: File,
    client: QueueClient,
    ring: Ring,
    /// Whether the ring violated its layout; nothing more is read from it.
    is_broken: bool,
}

impl Queue {
    /// Prepares to serve a ring.
    ///
    /// # Errors
    /// If the kernel has no file descriptor left.
    pub(super) fn new(setup: QueueSetup) -> std::io::Result<Queue> {
        let device = setup.device;
        Ok(Queue {
            client: QueueClient::join(&device.front_end, 0)?,
            ring: Ring::new(setup.mailbox, setup.unit),
            uio: setup.uio,
            is_broken: false,
            device,
        })
    }

    /// Starts to serve the ring.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(self) -> std::io::Result<QueueThread<()>> {
        let thread = self.client.new_thread();
        QueueThread::start("tcmu", thread, move |stop| self.run(stop))
    }

    fn run(mut self, stop: &AtomicBool) {
        loop {
            let stops = stop.load(Ordering::Acquire);
            if let Err(fault) = self.serve(stops) {
                self.break_ring(&fault);
            }
            if stops && !self.client.has_work() && self.ring.under_way == 0 {
                break;
            }
            if !self.has_more(stops) {
                self.sleep(stops);
            }
        }
        self.client.leave();
    }

    /// Takes commands and does all work that needs no waiting.
    fn serve(&mut self, stops: bool) -> Result<(), MailboxFault> {
        let mut done = Ok(());
        if !stops && !self.is_broken {
            done = self.take();
        }
        if self.client.wants_turn() {
            done = done.and(self.client.take_turn(&mut self.ring));
        }
        self.ring.stage_next(&mut self.client);
        if std::mem::take(&mut self.ring.has_answers) {
            // Any value signals the kernel. An error means that the device was removed.
            let _ = rustix::io::write(&self.uio, &1u32.to_ne_bytes());
        }
        if self.ring.failed > 0 {
            let failed = u64::from(std::mem::take(&mut self.ring.failed));
            self.device.front_end.shared.lock().counters.errors += failed;
        }
        done
    }

    fn take(&mut self) -> Result<(), MailboxFault> {
        while self.client.staged() < BATCH
            && !self.client.is_asleep()
            && self.ring.take(&mut self.client)?
        {}
        Ok(())
    }

    /// Reports the fault of the ring, once. The kernel times out its commands.
    fn break_ring(&mut self, fault: &MailboxFault) {
        if !self.is_broken {
            self.is_broken = true;
            eprintln!("blklab: tcmu: {}: {fault}", self.device.name);
            self.device.front_end.shared.lock().counters.protocol_errors += 1;
        }
    }

    /// Returns whether there is work without waiting; polls for the configured time.
    fn has_more(&self, stops: bool) -> bool {
        if self.client.is_ready() {
            return true;
        }
        let takes_more = !stops && !self.is_broken && self.ring.takes_more();
        let takes_more = takes_more && !self.client.is_asleep();
        // A fault is reported when the command is taken.
        let has_command = || takes_more && self.ring.mailbox.has_more().unwrap_or(true);
        let Ok(has_more) = (self.client).poll_a_while(|| Ok::<_, Infallible>(has_command()));
        has_more
    }

    /// Waits for a command, an event of another thread, or the block layer.
    fn sleep(&mut self, stops: bool) {
        // Without room for more commands, the ring is not polled.
        let watches_ring = !stops && !self.is_broken && self.ring.takes_more();
        let found = (self.client).sleep(watches_ring.then(|| self.uio.as_fd()));
        if !found.is_empty() {
            let mut count = [0; 4];
            let read = rustix::io::read(&self.uio, &mut count);
            // A removed device would be readable forever.
            if read.is_err() && found.intersects(PollFlags::ERR | PollFlags::HUP) {
                self.is_broken = true;
            }
        }
    }
}

/// A command in progress.
#[derive(Default)]
struct Slot {
    request: Request,
    /// The task; `None` once it is answered.
    task: Option<(Task, MediumRequest)>,
    /// Bytes written to the initiator's buffers.
    read_bytes: u64,
}

/// The ring with its commands in progress.
struct Ring {
    mailbox: Mailbox,
    unit: Option<LogicalUnit>,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Commands whose next step can start.
    next: Vec<u16>,
    /// An exclusive command: it waits until all others have ended, and no other is taken
    /// before it has ended.
    exclusive: Option<u16>,
    /// The number of commands in progress.
    under_way: u16,
    /// Whether the kernel must be signalled that there are answers.
    has_answers: bool,
    /// Commands that failed without a step.
    failed: u32,
}

impl Ring {
    fn new(mailbox: Mailbox, unit: Option<LogicalUnit>) -> Ring {
        Ring {
            mailbox,
            unit,
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            free: (0..SLOTS).rev().collect(),
            next: Vec::new(),
            exclusive: None,
            under_way: 0,
            has_answers: false,
            failed: 0,
        }
    }

    fn takes_more(&self) -> bool {
        self.exclusive.is_none() && !self.free.is_empty()
    }

    /// Takes and starts a command. Returns whether there was one.
    fn take(&mut self, client: &mut QueueClient) -> Result<bool, MailboxFault> {
        let Some(&index) = self.free.last().filter(|_| self.exclusive.is_none()) else {
            return Ok(false);
        };
        let slot = &mut self.slots[usize::from(index)];
        if !self.mailbox.pop(&mut slot.request)? {
            // Entries that are not commands may have been returned.
            return Ok(false);
        }
        self.free.pop();
        slot.read_bytes = 0;
        let started = match &mut self.unit {
            Some(unit) => {
                let data = self.mailbox.data_out(&slot.request.buffers);
                unit.start(&slot.request.cdb, &data)
            }
            None => Err(Sense::GONE),
        };
        match started {
            Err(sense) => {
                self.failed += 1;
                self.answer(index, Outcome::Failed(sense))?;
            }
            Ok(Started::Answered(data)) => {
                let buffers = &slot.request.buffers;
                self.mailbox.put(buffers, 0, &data)?;
                slot.read_bytes = buffers.length_bytes().min(data.len() as u64);
                self.end_well(index)?;
            }
            Ok(Started::Task(task)) => self.begin(index, task, client)?,
        }
        Ok(true)
    }

    fn begin(
        &mut self,
        index: u16,
        mut task: Task,
        client: &mut QueueClient,
    ) -> Result<(), MailboxFault> {
        let is_exclusive = task.is_exclusive();
        let Some(step) = task.next_request() else {
            return self.end_well(index);
        };
        self.slots[usize::from(index)].task = Some((task, step));
        if is_exclusive {
            self.exclusive = Some(index);
        }
        self.under_way += 1;
        if !is_exclusive || self.under_way == 1 {
            client.stage(index);
        }
        Ok(())
    }

    /// Stages the next steps of commands for the block layer.
    fn stage_next(&mut self, client: &mut QueueClient) {
        for index in self.next.drain(..) {
            client.stage(index);
        }
    }

    /// Ends a command whose last step has ended.
    fn end_well(&mut self, index: u16) -> Result<(), MailboxFault> {
        let slot = &self.slots[usize::from(index)];
        let is_short = slot.read_bytes > 0 && slot.read_bytes < slot.request.buffers.length_bytes();
        self.answer(
            index,
            match is_short {
                true => Outcome::Short(slot.read_bytes as u32),
                false => Outcome::Good,
            },
        )
    }

    fn answer(&mut self, index: u16, outcome: Outcome) -> Result<(), MailboxFault> {
        let slot = &mut self.slots[usize::from(index)];
        if slot.task.take().is_some() {
            self.under_way -= 1;
        }
        let id = slot.request.id;
        self.free.push(index);
        self.has_answers = true;
        if self.exclusive == Some(index) {
            self.exclusive = None;
        }
        if self.under_way == 1 {
            // An exclusive command may have waited for this one.
            self.next.extend(self.exclusive);
        }
        self.mailbox.answer(id, outcome)
    }

    fn step(&self, index: u16) -> Option<&MediumRequest> {
        let slot = &self.slots[usize::from(index)];
        slot.task.as_ref().map(|(_, step)| step)
    }

    /// Copies the data that a step has read to the initiator's buffers, or compares it.
    fn take_read(
        &mut self,
        index: u16,
        step: &MediumRequest,
        disk: &Disk,
        io: IoId,
    ) -> Result<(), Fault> {
        let slot = &mut self.slots[usize::from(index)];
        let buffers = &slot.request.buffers;
        let data = self.mailbox.data_out(buffers);
        let (mut at, mut done) = (0, Ok(()));
        disk.read_data(io, &mut |piece| {
            done = done.and_then(|()| match step.operation {
                Operation::Read => {
                    let put = self
                        .mailbox
                        .put(buffers, step.data_at + u64::from(at), piece);
                    put.map_err(|_| Fault::NoData)
                }
                Operation::Compare(_) => step.compare(&data, at, piece),
                _ => Ok(()),
            });
            at += piece.len() as u32;
        });
        if step.operation == Operation::Read {
            slot.read_bytes = buffers.length_bytes().min(step.data_at + u64::from(at));
        }
        done
    }
}

impl FrontEndQueue for Ring {
    type Fault = MailboxFault;

    fn request(&self, index: u16) -> (Command, blklab_nbd::Request) {
        match self.step(index) {
            Some(step) => translated(step),
            // Not reached: a slot is only staged with a step. A flush would be harmless.
            None => (
                Command::Flush,
                blklab_nbd::Request::new(Command::Flush, 0, 0, 0),
            ),
        }
    }

    fn take_data(&mut self, index: u16, at: u32, data: &mut [u8]) -> bool {
        let sent = &self.slots[usize::from(index)].request.buffers;
        let sent = self.mailbox.data_out(sent);
        self.step(index)
            .is_some_and(|step| step.fill(&sent, at, data))
    }

    fn end(
        &mut self,
        index: u16,
        status: IoStatus,
        disk: &Disk,
        io: IoId,
    ) -> Result<(), MailboxFault> {
        let Some(step) = self.step(index).copied() else {
            return Ok(());
        };
        let is_read = translated(&step).0 == Command::Read;
        let done = match status {
            IoStatus::Ok if is_read => self.take_read(index, &step, disk, io),
            IoStatus::Ok => Ok(()),
            IoStatus::NoSpace => Err(Fault::NoSpace),
            _ => Err(Fault::Medium),
        };
        let Some((task, present)) = &mut self.slots[usize::from(index)].task else {
            return Ok(());
        };
        match done {
            Err(fault) => {
                let sense = task.sense(&step, fault);
                self.answer(index, Outcome::Failed(sense))
            }
            Ok(()) => match task.next_request() {
                Some(next) => {
                    *present = next;
                    self.next.push(index);
                    Ok(())
                }
                None => self.end_well(index),
            },
        }
    }
}

/// Translates a step for the export's block layer.
fn translated(step: &MediumRequest) -> (Command, blklab_nbd::Request) {
    let (command, keeps_space) = match step.operation {
        Operation::Read | Operation::Check | Operation::Compare(_) => (Command::Read, false),
        Operation::Write(_) => (Command::Write, false),
        Operation::Flush => (Command::Flush, false),
        Operation::Unmap => (Command::Trim, false),
        Operation::WriteZeroes { may_unmap } => (Command::WriteZeroes, !may_unmap),
    };
    let mut request = blklab_nbd::Request::new(command, 0, step.offset, step.length);
    request.flags.set(CommandFlags::FUA, step.is_durable);
    request.flags.set(CommandFlags::NO_HOLE, keeps_space);
    (command, request)
}
