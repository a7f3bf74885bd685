//! A queue of a device, and its thread.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use blklab_blk::IoStatus;
use blklab_nbd::wire::{Command, CommandFlags};
use blklab_uring::ublk::{Event, Operation, Queue, Request};
use rustix::io::Errno;

use crate::export::{Disk, FrontEndQueue, FrontEndSetup, IoId, QueueClient};

/// The setup of a queue.
pub(super) struct QueueSetup {
    pub(super) front_end: FrontEndSetup,
    /// The device's character file.
    pub(super) file: Arc<File>,
    pub(super) number: u16,
    pub(super) depth: u16,
}

/// Serves a queue until its device is stopped. Sends to `ready` once the kernel can send
/// requests.
pub(super) fn serve(setup: QueueSetup, ready: &Sender<std::io::Result<()>>) {
    crate::sleep_precisely();
    let client = QueueClient::join(&setup.front_end, setup.number.into());
    let started = client.and_then(|client| {
        let event = client.thread().event();
        let queue = Queue::start(setup.file, setup.number, setup.depth, event)?;
        Ok((client, queue))
    });
    match started {
        Err(error) => {
            // The receiver reports the error.
            let _ = ready.send(Err(error));
        }
        Ok((mut client, queue)) => {
            let _ = ready.send(Ok(()));
            let mut tags = Tags { queue };
            if let Err(error) = run(&mut client, &mut tags) {
                eprintln!("blklab: ublk: {error}");
                client.abandon(&mut tags);
            }
            client.leave();
        }
    }
}

/// Serves requests until all tags have ended.
fn run(client: &mut QueueClient, tags: &mut Tags) -> std::io::Result<()> {
    let (mut events, mut ended) = (Vec::new(), 0);
    while ended < tags.queue.depth() || client.has_work() {
        wait(client, &mut tags.queue)?;
        if tags.queue.take_events(&mut events) {
            client.thread().clear_event();
        }
        for event in events.drain(..) {
            match event {
                Event::Ended(_) => ended += 1,
                Event::Request(tag) => match tags.queue.request(tag).operation {
                    Some(_) => client.stage(tag),
                    None => tags.queue.commit(tag, -Errno::OPNOTSUPP.raw_os_error())?,
                },
            }
        }
        if client.wants_turn() {
            client.take_turn(tags)?;
        }
    }
    Ok(())
}

/// Commits what has ended, and waits for a request, a message of another thread, or the block
/// layer's next event.
fn wait(client: &QueueClient, queue: &mut Queue) -> std::io::Result<()> {
    // The kernel hands over what it has when this thread enters it (`IORING_SETUP_COOP_TASKRUN`).
    let has_more = || {
        queue.wait(Some(Duration::ZERO))?;
        Ok::<bool, std::io::Error>(queue.has_events())
    };
    if client.polls() && !client.is_ready() && client.poll_a_while(has_more)? {
        return Ok(());
    }
    queue.wait(client.sleep_limit())
}

/// A queue's tags, one for each request.
struct Tags {
    queue: Queue,
}

impl FrontEndQueue for Tags {
    type Fault = std::io::Error;

    fn request(&self, tag: u16) -> (Command, blklab_nbd::Request) {
        translated(self.queue.request(tag))
    }

    fn take_data(&mut self, tag: u16, at: u32, data: &mut [u8]) -> bool {
        self.queue.take_data(tag, at, data).is_ok()
    }

    fn end(
        &mut self,
        tag: u16,
        status: IoStatus,
        disk: &Disk,
        io: IoId,
    ) -> Result<(), std::io::Error> {
        let (command, request) = self.request(tag);
        let mut copied: Result<u32, Errno> = Ok(0);
        if command == Command::Read && status == IoStatus::Ok {
            disk.read_data(io, &mut |piece| {
                copied = copied.and_then(|at: u32| {
                    self.queue.put_data(tag, at, piece)?;
                    Ok(at + piece.len() as u32)
                });
            });
        }
        let result = match (status, copied) {
            (IoStatus::Ok, Ok(_)) => match command {
                Command::Read | Command::Write => request.length as i32,
                _ => 0,
            },
            (IoStatus::NoSpace, _) => -Errno::NOSPC.raw_os_error(),
            (IoStatus::NotSupported, _) => -Errno::OPNOTSUPP.raw_os_error(),
            _ => -Errno::IO.raw_os_error(),
        };
        self.queue.commit(tag, result)
    }
}

/// Translates a request for the export's block layer.
fn translated(request: Request) -> (Command, blklab_nbd::Request) {
    let (command, keeps_space) = match request.operation {
        Some(Operation::Read) => (Command::Read, false),
        Some(Operation::Write) => (Command::Write, false),
        Some(Operation::Discard) => (Command::Trim, false),
        Some(Operation::WriteZeroes { may_unmap }) => (Command::WriteZeroes, !may_unmap),
        Some(Operation::Flush) | None => (Command::Flush, false),
    };
    let (offset, length) = match command {
        Command::Flush => (0, 0),
        _ => (request.sector << 9, request.sectors << 9),
    };
    let mut translated = blklab_nbd::Request::new(command, 0, offset, length);
    let is_durable = request.durable && command.modifies();
    translated.flags.set(CommandFlags::FUA, is_durable);
    translated.flags.set(CommandFlags::NO_HOLE, keeps_space);
    (command, translated)
}
