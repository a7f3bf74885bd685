//! An export's block layer, which the threads of its front ends take turns at.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blklab_blk::{CgroupId, Nanos, Plug, SubmitterId, Waiter};
use rustix::event::{EventfdFlags, eventfd};
use slab::Slab;

use super::disk::{Disk, Ended};
use super::io::{Io, IoId};
use super::{Counters, kind_of};
use crate::Clock;

/// The block layer of an export, shared by its threads.
pub(crate) struct SharedExport {
    core: Mutex<Core>,
}

impl SharedExport {
    pub(crate) fn new(disk: Disk) -> SharedExport {
        SharedExport {
            core: Mutex::new(Core {
                disk,
                counters: Counters::default(),
                mailboxes: Slab::new(),
                sleepers: Vec::new(),
                ended: Vec::new(),
                woken: Vec::new(),
                next_submitter: 0,
            }),
        }
    }

    /// Locks the block layer.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        // A thread that panicked is seen when it is joined.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the block layer and then reads the clock, so that its time never goes back
    /// from one thread's turn to the next.
    pub(crate) fn turn(&self, clock: Clock) -> (MutexGuard<'_, Core>, Nanos) {
        let core = self.lock();
        (core, clock.now())
    }

    /// Registers a thread, with a mailbox of its own.
    pub(crate) fn join(&self) -> std::io::Result<ExportThread> {
        let waker = Waker {
            event: Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?),
            is_notified: Arc::default(),
        };
        let mailbox = Mailbox {
            ended: Vec::new(),
            woken: Vec::new(),
            waker: waker.clone(),
        };
        let id = self.lock().mailboxes.insert(mailbox) as u32;
        Ok(ExportThread { id, waker })
    }
}

/// A registered thread of an export, as that thread holds it.
pub(crate) struct ExportThread {
    pub(super) id: u32,
    waker: Waker,
}

impl ExportThread {
    /// Readable once the thread is notified.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.waker.event.as_fd()
    }

    /// Notifies the thread from elsewhere.
    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Makes the event unreadable again.
    pub(crate) fn clear_event(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.waker.event, &mut count);
    }

    /// Whether the thread is notified, for a thread that polls.
    pub(crate) fn is_notified(&self) -> bool {
        self.waker.is_notified.load(Ordering::Relaxed)
    }

    /// Clears the notification. Returns whether there was one.
    pub(crate) fn take_notification(&self) -> bool {
        self.waker.is_notified.swap(false, Ordering::Acquire)
    }
}

/// Notifies a thread of an export, which sleeps or polls.
#[derive(Clone)]
pub(crate) struct Waker {
    event: Arc<OwnedFd>,
    is_notified: Arc<AtomicBool>,
}

impl Waker {
    /// Tells the thread that its mailbox has something, which it reads after it has taken the
    /// notification.
    pub(crate) fn wake(&self) {
        if !self.is_notified.swap(true, Ordering::Release) {
            self.make_readable();
        }
    }

    /// Wakes the thread for what is not in its mailbox. It may have looked for that before it
    /// takes an earlier notification, so the event is made readable again in any case.
    pub(crate) fn wake_in_any_case(&self) {
        self.is_notified.store(true, Ordering::Release);
        self.make_readable();
    }

    fn make_readable(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

/// Completions and wake-ups that other threads found for a thread.
struct Mailbox {
    ended: Vec<Ended>,
    woken: Vec<u64>,
    waker: Waker,
}

/// A submitter, as the block layer tells clients apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    /// Its process.
    pub(crate) submitter: SubmitterId,
    /// Its control group.
    pub(crate) cgroup: CgroupId,
    /// Its software queue.
    pub(crate) cpu: usize,
}

/// The state of an export, which one thread at a time has.
pub(crate) struct Core {
    pub(crate) disk: Disk,
    pub(crate) counters: Counters,
    mailboxes: Slab<Mailbox>,
    /// Tickets of sleeping submissions, with the mailbox of their threads.
    sleepers: Vec<(u64, u32)>,
    ended: Vec<Ended>,
    woken: Vec<u64>,
    next_submitter: u32,
}

impl Core {
    /// How many threads have a mailbox.
    pub(super) fn threads(&self) -> usize {
        self.mailboxes.len()
    }

    /// A submitter that no other client of the export is.
    pub(crate) fn new_submitter(&mut self) -> SubmitterId {
        self.next_submitter = self.next_submitter.wrapping_add(1);
        SubmitterId(self.next_submitter)
    }

    /// As [`Disk::submit`]; whoever sleeps is woken through its mailbox.
    pub(crate) fn submit(
        &mut self,
        now: Nanos,
        client: Client,
        plug: &mut Plug,
        id: IoId,
    ) -> Option<Waiter> {
        let mailbox = self.disk.io(id).origin.mailbox;
        let waiter = self.disk.submit(now, client, plug, id);
        self.note_sleeper(mailbox, waiter)
    }

    /// As [`Disk::resume`].
    pub(crate) fn resume(
        &mut self,
        now: Nanos,
        thread: &ExportThread,
        plug: &mut Plug,
        waiter: Waiter,
    ) -> Option<Waiter> {
        let waiter = self.disk.resume(now, plug, waiter);
        self.note_sleeper(thread.id, waiter)
    }

    fn note_sleeper(&mut self, mailbox: u32, waiter: Option<Waiter>) -> Option<Waiter> {
        self.sleepers
            .extend(waiter.iter().map(|waiter| (waiter.ticket, mailbox)));
        waiter
    }

    /// Does everything that is due. Appends a thread's requests that ended and its
    /// waiters that may go on; those of others come into their mailboxes.
    pub(crate) fn run(
        &mut self,
        now: Nanos,
        thread: &ExportThread,
        ended: &mut Vec<Ended>,
        woken: &mut Vec<u64>,
    ) {
        self.disk.run(now, &mut self.ended, &mut self.woken);
        for one in self.ended.drain(..) {
            let owner = self.disk.io(one.io).origin.mailbox;
            match self.mailboxes.get_mut(owner as usize) {
                _ if owner == thread.id => ended.push(one),
                Some(mailbox) => {
                    mailbox.ended.push(one);
                    mailbox.waker.wake();
                }
                // Its thread has left, so nobody waits for it.
                None => self.disk.release(one.io),
            }
        }
        for ticket in self.woken.drain(..) {
            let sleeper = self.sleepers.iter().position(|(known, _)| *known == ticket);
            let owner = sleeper.map(|index| self.sleepers.swap_remove(index).1);
            let mailbox = owner.filter(|owner| *owner != thread.id);
            match mailbox.and_then(|owner| self.mailboxes.get_mut(owner as usize)) {
                Some(mailbox) => {
                    mailbox.woken.push(ticket);
                    mailbox.waker.wake();
                }
                None => woken.push(ticket),
            }
        }
        if let Some(own) = self.mailboxes.get_mut(thread.id as usize) {
            ended.append(&mut own.ended);
            woken.append(&mut own.woken);
        }
    }

    /// Counts a request that ended.
    pub(crate) fn count(&mut self, now: Nanos, io: IoId) {
        let Io {
            command,
            request,
            start,
            ..
        } = self.disk.io(io);
        let took = now.saturating_sub(*start);
        if let Some(kind) = kind_of(*command) {
            self.counters.requests[kind] += 1;
            self.counters.bytes[kind] += u64::from(request.length);
            self.counters.latency[kind].record(took.0);
        }
    }

    /// Takes a thread's mailbox away. The others look at the block layer again: one
    /// of them must wake when it is due.
    pub(crate) fn leave(&mut self, thread: &ExportThread) {
        self.mailboxes.try_remove(thread.id as usize);
        self.mailboxes
            .iter()
            .for_each(|(_, mailbox)| mailbox.waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{OpenOptions, null};
    use crate::export::DiskSetup;
    use blklab_elevator::SchedulerChoice;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn shared() -> SharedExport {
        let options = OpenOptions {
            read_only: false,
            max_request_bytes: 1 << 20,
        };
        let backend = null(1 << 20).open(options).expect("a back end");
        let disk = Disk::new(DiskSetup {
            info: backend.info(),
            backend,
            scheduler: &SchedulerChoice::named("none").expect("a scheduler"),
            depth: 1,
            software_queues: 1,
            drive: None,
            cgroups: None,
            seed: 0,
        });
        SharedExport::new(disk.expect("a disk"))
    }

    /// Whether the thread would wake up at once.
    fn is_readable(thread: &ExportThread) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(thread.event(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).expect("polled") == 1
    }

    #[test]
    fn a_thread_with_an_earlier_notification_wakes_up_in_any_case() {
        let thread = shared().join().expect("joined");
        thread.waker().wake();
        thread.clear_event();
        thread.waker().wake();
        assert!(!is_readable(&thread), "it has a notification to take");
        thread.waker().wake_in_any_case();
        assert!(thread.take_notification());
        assert!(is_readable(&thread));
    }

    #[test]
    fn time_never_goes_back_from_one_turn_to_the_next() {
        let shared = shared();
        let (clock, last) = (Clock::start(), Mutex::new(Nanos::ZERO));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let (_core, now) = shared.turn(clock);
                        let mut last = last.lock().expect("no panic");
                        assert!(*last <= now);
                        *last = now;
                    }
                });
            }
        });
    }
}
