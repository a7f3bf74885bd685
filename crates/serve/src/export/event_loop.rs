//! One export's thread.
//!
//! All of an export's requests meet in one queue, so one thread serves them
//! without locks: it reads what each socket has, gives all of it to the block
//! layer, and answers with one write a connection.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use blklab_blk::{CgroupId, Nanos, Plug};
use blklab_nbd::Export;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use slab::Slab;

use super::coalescing::Coalescing;
use super::connection::{Connection, Phase};
use super::disk::Ended;
use super::requests::{ConnectionLimits, RequestContext};
use super::shared::{Client, Core, SharedExport};
use super::{ExportHandle, ExportView, Message};
use crate::Clock;
use crate::net::Arrival;

/// What an epoll event is about, where it is not a connection's index.
const MESSAGES: u64 = u64::MAX;
const BACKEND: u64 = u64::MAX - 1;
const MAILBOX: u64 = u64::MAX - 2;

/// How often a connection is read before its replies are sent, and how many
/// bytes of replies are enough to send.
const MAX_READS: usize = 16;
const ENOUGH_REPLY_BYTES: usize = 128 << 10;
/// How long a client may take to read its last replies when the server ends.
const LINGER: Nanos = Nanos::from_secs(5);

/// What an export's thread is made of.
pub(crate) struct EventLoopSetup {
    pub(crate) export: Arc<Export>,
    pub(crate) shared: Arc<SharedExport>,
    pub(crate) clock: Clock,
    pub(crate) limits: ConnectionLimits,
    pub(crate) software_queues: usize,
    /// How long to poll for more requests before going to sleep.
    pub(crate) busy_poll: Nanos,
    /// How other threads reach this one.
    pub(crate) handle: ExportHandle,
}

/// An export's thread.
pub(crate) struct EventLoop {
    context: RequestContext,
    shared: Arc<SharedExport>,
    clock: Clock,
    software_queues: usize,
    busy_poll: Nanos,
    coalescing: Coalescing,
    epoll: OwnedFd,
    handle: ExportHandle,
    connections: Slab<Connection>,
    /// Connections to read without a new event.
    ready: Vec<usize>,
    /// Connections with new replies.
    dirty: Vec<usize>,
    ended: Vec<Ended>,
    woken: Vec<u64>,
    /// Set when the server ends: by when the connections are closed.
    shutdown_deadline: Option<Nanos>,
}

impl EventLoop {
    pub(crate) fn new(setup: EventLoopSetup) -> std::io::Result<EventLoop> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let event = EventData::new_u64(MESSAGES);
        epoll::add(&epoll, setup.handle.queue.event(), event, EventFlags::IN)?;
        let member = setup.shared.join()?;
        let event = EventData::new_u64(MAILBOX);
        epoll::add(&epoll, member.event(), event, EventFlags::IN)?;
        for source in setup.shared.lock().disk.backend().events() {
            let event = EventData::new_u64(BACKEND);
            epoll::add(&epoll, source, event, EventFlags::IN)?;
        }
        Ok(EventLoop {
            context: RequestContext {
                export: setup.export,
                member,
                limits: setup.limits,
            },
            shared: setup.shared,
            clock: setup.clock,
            software_queues: setup.software_queues,
            busy_poll: setup.busy_poll,
            coalescing: Coalescing::new(),
            epoll,
            handle: setup.handle,
            connections: Slab::new(),
            ready: Vec::new(),
            dirty: Vec::new(),
            ended: Vec::new(),
            woken: Vec::new(),
            shutdown_deadline: None,
        })
    }

    /// Serves until the message to end comes.
    ///
    /// # Errors
    /// Where epoll fails, or the back end cannot make its data durable.
    pub(crate) fn run(mut self) -> Result<(), String> {
        // The kernel rounds sleeps up by 50 us unless asked not to.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut events: Vec<Event> = Vec::with_capacity(256);
        let shared = Arc::clone(&self.shared);
        loop {
            self.wait(&mut events)?;
            let now = self.clock.now();
            let mut core = shared.lock();
            core.counters.loop_iterations += 1;
            for event in events.drain(..) {
                match event.data.u64() {
                    MESSAGES => self.take_messages(now, &mut core),
                    BACKEND => core.disk.reap(now),
                    MAILBOX => {
                        self.context.member.clear_event();
                        self.context.member.take_mail();
                    }
                    index => self.ready.push(index as usize),
                }
            }
            self.serve_ready(now, &mut core);
            if self.is_over(now) {
                return core.disk.backend_mut().close();
            }
            let pause = self.pause(now, &core);
            drop(core);
            if pause > Nanos::ZERO {
                std::thread::sleep(std::time::Duration::from_nanos(pause.0));
            }
        }
    }

    /// For how long to pause so that several requests arrive before the next iteration;
    /// not where polling or a drive's speed was asked for.
    fn pause(&mut self, now: Nanos, core: &Core) -> Nanos {
        let paced = core.disk.model().is_some();
        if self.busy_poll > Nanos::ZERO || paced || !self.ready.is_empty() {
            return Nanos::ZERO;
        }
        let answered = core.counters.requests.iter().sum();
        self.coalescing.pause(now, answered)
    }

    /// Waits for something to happen.
    fn wait(&mut self, events: &mut Vec<Event>) -> Result<(), String> {
        let quiet_since = self.clock.now();
        loop {
            let now = self.clock.now();
            let timeout = self.timeout(now, quiet_since);
            let timespec = timeout.map(|timeout| Timespec {
                tv_sec: (timeout.0 / 1_000_000_000) as i64,
                tv_nsec: (timeout.0 % 1_000_000_000) as i64,
            });
            let room = rustix::buffer::spare_capacity(events);
            match epoll::wait(&self.epoll, room, timespec.as_ref()) {
                Ok(0) if timeout == Some(Nanos::ZERO) => {
                    let now = self.clock.now();
                    if !self.ready.is_empty() || self.next_event().0 <= now {
                        return Ok(());
                    }
                }
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(format!("epoll: {error}")),
            }
        }
    }

    /// How long to sleep; `None` for as long as it takes.
    fn timeout(&self, now: Nanos, quiet_since: Nanos) -> Option<Nanos> {
        if !self.ready.is_empty() || now < quiet_since.saturating_add(self.busy_poll) {
            return Some(Nanos::ZERO);
        }
        let (next, early) = self.next_event();
        if next == Nanos::MAX {
            return None;
        }
        Some(next.saturating_sub(now).saturating_sub(early))
    }

    /// When something is due, and how much earlier to wake.
    fn next_event(&self) -> (Nanos, Nanos) {
        let deadline = self.shutdown_deadline.unwrap_or(Nanos::MAX);
        let core = self.shared.lock();
        (core.disk.next_event().min(deadline), core.disk.wake_early())
    }

    fn take_messages(&mut self, now: Nanos, core: &mut Core) {
        for message in self.handle.queue.take() {
            match message {
                Message::Arrive(arrival, cgroup) => self.add_connection(core, *arrival, cgroup),
                Message::Change(change, done) => core.disk.change(change, done),
                Message::Call(function) => function(&mut ExportView {
                    now,
                    disk: &mut core.disk,
                    counters: &core.counters,
                }),
                Message::ShutDown => self.shut_down(now),
            }
        }
    }

    fn add_connection(&mut self, core: &mut Core, arrival: Arrival, cgroup: CgroupId) {
        if self.shutdown_deadline.is_some() {
            return;
        }
        let entry = self.connections.vacant_entry();
        let index = entry.key();
        let client = Client {
            submitter: core.new_submitter(),
            cgroup,
            cpu: index % self.software_queues,
        };
        entry.insert(Connection::new(arrival, index as u32, client));
        core.counters.connections += 1;
        core.counters.connections_total += 1;
        self.ready.push(index);
    }

    /// No further request is read; those in flight are finished and answered.
    fn shut_down(&mut self, now: Nanos) {
        self.shutdown_deadline
            .get_or_insert(now.saturating_add(LINGER));
        for (index, connection) in &mut self.connections {
            if connection.phase == Phase::Open {
                connection.phase = Phase::Draining;
            }
            self.ready.push(index);
        }
    }

    fn is_over(&self, now: Nanos) -> bool {
        let Some(deadline) = self.shutdown_deadline else {
            return false;
        };
        // Waits for the back end, but not for clients that do not read.
        let in_flight = |c: &Connection| c.in_flight > 0 || c.waiter.is_some();
        self.connections.is_empty()
            || (now >= deadline && !self.connections.iter().any(|(_, c)| in_flight(c)))
    }

    /// Reads, carries out and answers all there is.
    fn serve_ready(&mut self, now: Nanos, core: &mut Core) {
        let mut ready = std::mem::take(&mut self.ready);
        for &index in &ready {
            self.receive(now, core, index, true);
        }
        self.run_disk(now, core);
        for &index in &ready {
            self.read_again(now, core, index);
        }
        ready.clear();
        // Connections that became ready meanwhile are served next time.
        ready.append(&mut self.ready);
        self.ready = ready;
        self.send_replies(now, core);
    }

    fn receive(&mut self, now: Nanos, core: &mut Core, index: usize, may_read: bool) {
        // It may have been closed since the event.
        let mut handler = self.context.handler(core);
        if let Some(connection) = self.connections.get_mut(index) {
            handler.receive(now, connection, may_read);
            mark_dirty(&mut self.dirty, connection);
        }
    }

    /// A client that sends one request after the other is read again before it
    /// is answered: several replies in one write cost both sides one wake-up.
    fn read_again(&mut self, now: Nanos, core: &mut Core, index: usize) {
        for _ in 0..MAX_READS {
            let Some(connection) = self.connections.get_mut(index) else {
                return;
            };
            let replies = connection.unsent_bytes();
            let waits = connection.phase != Phase::Open
                || connection.waiter.is_some()
                || connection.paused.is_some();
            if waits || replies == 0 || replies > ENOUGH_REPLY_BYTES || !connection.may_stream() {
                return;
            }
            self.receive(now, core, index, true);
            self.run_disk(now, core);
        }
    }

    /// Lets the block layer run until nothing more can be done at once.
    fn run_disk(&mut self, now: Nanos, core: &mut Core) {
        loop {
            let mut ended = std::mem::take(&mut self.ended);
            let mut woken = std::mem::take(&mut self.woken);
            core.run(now, &self.context.member, &mut ended, &mut woken);
            // Latencies include what was done since `now`.
            let then = match ended.is_empty() {
                true => now,
                false => self.clock.now(),
            };
            for ended in ended.drain(..) {
                let index = core.disk.io(ended.io).origin.index as usize;
                let mut connection = self.connections.get_mut(index);
                self.context
                    .handler(core)
                    .end(then, connection.as_deref_mut(), ended);
                if let Some(connection) = connection {
                    mark_dirty(&mut self.dirty, connection);
                }
            }
            let any = !woken.is_empty();
            for ticket in woken.drain(..) {
                self.resume(now, core, ticket);
            }
            (self.ended, self.woken) = (ended, woken);
            if !any {
                break;
            }
        }
    }

    /// Wakes the connection whose submission waits with this ticket.
    fn resume(&mut self, now: Nanos, core: &mut Core, ticket: u64) {
        let waits = |c: &Connection| c.waiter.as_ref().is_some_and(|w| w.ticket == ticket);
        let sleeper = self.connections.iter_mut().find(|(_, c)| waits(c));
        let Some((index, connection)) = sleeper else {
            return;
        };
        let Some(waiter) = connection.waiter.take() else {
            return;
        };
        let mut plug = Plug::new();
        connection.waiter = core.resume(now, &self.context.member, &mut plug, waiter);
        core.disk.unplug(now, &mut plug);
        self.receive(now, core, index, false);
    }

    /// Sends every connection's replies, and closes the connections that are
    /// over.
    fn send_replies(&mut self, now: Nanos, core: &mut Core) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            let Some(connection) = self.connections.get_mut(index) else {
                continue;
            };
            connection.is_dirty = false;
            if connection.has_unsent() && connection.phase != Phase::Broken {
                connection.send();
            }
            if connection.phase != Phase::Open {
                self.context.handler(core).forget_incoming(connection);
            }
            if connection.is_over() {
                self.close(now, core, index);
                continue;
            }
            if watch(&self.epoll, connection).is_err() {
                connection.phase = Phase::Broken;
                self.ready.push(index);
            }
            let paused = connection.paused;
            if paused.is_some_and(|bytes| self.context.limits.allow(connection, bytes)) {
                self.ready.push(index);
            }
        }
        self.dirty = dirty;
    }

    fn close(&mut self, now: Nanos, core: &mut Core, index: usize) {
        let connection = self.connections.remove(index);
        core.disk.exit_submitter(now, connection.client.submitter);
        core.counters.connections -= 1;
        // Dropping the socket takes it out of epoll.
        connection.close();
    }
}

/// Has a connection's replies sent at the end of this iteration.
fn mark_dirty(dirty: &mut Vec<usize>, connection: &mut Connection) {
    if !connection.is_dirty {
        connection.is_dirty = true;
        dirty.push(connection.index as usize);
    }
}

/// Tells epoll what a connection waits for, where that has changed.
fn watch(epoll: &OwnedFd, connection: &mut Connection) -> Result<(), rustix::io::Errno> {
    let reads = connection.phase == Phase::Open
        && connection.waiter.is_none()
        && connection.paused.is_none();
    let writes = connection.has_unsent() && connection.phase != Phase::Broken;
    // One that waits for nothing is taken out: epoll would report a closed socket
    // again and again.
    let wanted = (reads || writes).then_some((reads, writes));
    if wanted == connection.interest {
        return Ok(());
    }
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, reads);
    flags.set(EventFlags::OUT, writes);
    let data = EventData::new_u64(u64::from(connection.index));
    let former = std::mem::replace(&mut connection.interest, wanted);
    match (former, wanted) {
        (None, _) => epoll::add(epoll, connection.socket(), data, flags),
        (Some(_), None) => epoll::delete(epoll, connection.socket()),
        (Some(_), Some(_)) => epoll::modify(epoll, connection.socket(), data, flags),
    }
}
