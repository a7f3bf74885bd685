//! One of an export's threads, with its share of the connections.
//!
//! It reads what each socket has, gives all of it to the block layer in its turn,
//! and answers with one write a connection. Sockets are read and written while
//! other threads have their turn.

use std::os::fd::OwnedFd;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use blklab_blk::{CgroupId, Nanos, Plug};
use blklab_nbd::Export;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use slab::Slab;

use super::connection::{Connection, Phase, Received};
use super::disk::Ended;
use super::requests::{ConnectionLimits, RequestContext};
use super::shared::{Client, Core, ExportThread, SharedExport};
use super::waiting::{WAYS, Wait, Waiting};
use super::{ExportView, Inbox, Message};
use crate::Clock;
use crate::net::Arrival;

/// What an epoll event is about, where it is not a connection's index.
const BACKEND: u64 = u64::MAX;
const MAILBOX: u64 = u64::MAX - 1;

/// How often connections are read before their replies are sent.
const MAX_READS: usize = 16;
/// The longest sleep in which a thread does not see its notifications.
const BRISK: Nanos = Nanos::from_millis(2);
/// How long a client may take to read its last replies when the server ends.
const LINGER: Nanos = Nanos::from_secs(5);

/// The parts of an export's thread.
pub(crate) struct EventLoopSetup {
    pub(crate) export: Arc<Export>,
    pub(crate) shared: Arc<SharedExport>,
    pub(crate) export_thread: ExportThread,
    pub(crate) inbox: Inbox,
    pub(crate) clock: Clock,
    pub(crate) limits: ConnectionLimits,
    /// Which of the export's threads it is, and of how many.
    pub(crate) thread: usize,
    pub(crate) threads: usize,
    pub(crate) software_queues: usize,
    /// How long to poll for more requests before going to sleep, at least.
    pub(crate) busy_poll: Nanos,
}

/// A thread of an export.
pub(crate) struct EventLoop {
    context: RequestContext,
    shared: Arc<SharedExport>,
    inbox: Inbox,
    clock: Clock,
    thread: usize,
    threads: usize,
    software_queues: usize,
    busy_poll: Nanos,
    /// Requests end when a drive's model says.
    is_paced: bool,
    waiting: Waiting,
    /// The last wait was short.
    is_brisk: bool,
    /// Nobody else needs this thread to take what the back end completes.
    is_alone: bool,
    epoll: OwnedFd,
    connections: Slab<Connection>,
    /// Connections to read without a new event.
    ready: Vec<usize>,
    /// Connections with new replies.
    dirty: Vec<usize>,
    ended: Vec<Ended>,
    woken: Vec<u64>,
    /// Requests answered.
    answered: u64,
    /// When the block layer is due, and how much earlier to wake.
    next_event: (Nanos, Nanos),
    /// Set when the server ends: by when the connections are closed.
    shutdown_deadline: Option<Nanos>,
}

impl EventLoop {
    pub(crate) fn new(setup: EventLoopSetup) -> std::io::Result<EventLoop> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let event = EventData::new_u64(MAILBOX);
        epoll::add(&epoll, setup.export_thread.event(), event, EventFlags::IN)?;
        let core = setup.shared.lock();
        for source in core.disk.backend().events() {
            let event = EventData::new_u64(BACKEND);
            // One thread alone takes what the back end has completed.
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            epoll::add(&epoll, source, event, flags)?;
        }
        let is_paced = core.disk.model().is_some();
        drop(core);
        Ok(EventLoop {
            context: RequestContext {
                export: setup.export,
                export_thread: setup.export_thread,
                limits: setup.limits,
            },
            shared: setup.shared,
            inbox: setup.inbox,
            clock: setup.clock,
            thread: setup.thread,
            threads: setup.threads,
            software_queues: setup.software_queues,
            busy_poll: setup.busy_poll,
            is_paced,
            waiting: Waiting::new(&WAYS),
            is_brisk: false,
            is_alone: false,
            epoll,
            connections: Slab::new(),
            ready: Vec::new(),
            dirty: Vec::new(),
            ended: Vec::new(),
            woken: Vec::new(),
            answered: 0,
            next_event: (Nanos::MAX, Nanos::ZERO),
            shutdown_deadline: None,
        })
    }

    /// Serves until the message to end comes.
    ///
    /// # Errors
    /// Where epoll fails.
    pub(crate) fn run(mut self) -> Result<(), String> {
        crate::sleep_precisely();
        let mut events: Vec<Event> = Vec::with_capacity(256);
        let shared = Arc::clone(&self.shared);
        loop {
            self.wait(&mut events)?;
            let mut reaps = false;
            for event in events.drain(..) {
                match event.data.u64() {
                    BACKEND => reaps = true,
                    MAILBOX => self.context.export_thread.clear_event(),
                    index => self.ready.push(index as usize),
                }
            }
            self.read_ahead();
            let (mut core, now) = shared.turn(self.clock);
            core.counters.loop_iterations += 1;
            if reaps {
                core.disk.reap(now);
            }
            if self.context.export_thread.take_notification() {
                self.take_messages(now, &mut core);
            }
            self.serve_ready(now, &shared, core);
            self.send_replies(&shared);
            if self.is_over(now) {
                shared.lock().leave(&self.context.export_thread);
                return Ok(());
            }
            let pause = self.pause(now);
            if pause > Nanos::ZERO {
                std::thread::sleep(Duration::from_nanos(pause.0));
            }
        }
    }

    /// For how long to pause so that several requests arrive before the next iteration;
    /// not where polling or a drive's speed was asked for.
    fn pause(&mut self, now: Nanos) -> Nanos {
        self.waiting.count(now, self.answered);
        let Wait::Pause(pause) = self.waiting.way() else {
            return Nanos::ZERO;
        };
        match self.busy_poll > Nanos::ZERO || self.is_paced || !self.ready.is_empty() {
            true => Nanos::ZERO,
            false => pause,
        }
    }

    /// Waits for something to happen.
    fn wait(&mut self, events: &mut Vec<Event>) -> Result<(), String> {
        let quiet_since = self.clock.now();
        if self.wait_for_lone_client(quiet_since) {
            return Ok(());
        }
        loop {
            let timeout = self.timeout(self.clock.now(), quiet_since);
            let limit = timeout.map(|timeout| Duration::from_nanos(timeout.0));
            let timespec = limit.and_then(|limit| Timespec::try_from(limit).ok());
            let room = rustix::buffer::spare_capacity(events);
            match epoll::wait(&self.epoll, room, timespec.as_ref()) {
                Ok(0) if timeout == Some(Nanos::ZERO) => {
                    let now = self.clock.now();
                    if !self.ready.is_empty() || self.due() <= now {
                        break;
                    }
                }
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(format!("epoll: {error}")),
            }
        }
        self.is_brisk = self.clock.now() < quiet_since.saturating_add(BRISK);
        Ok(())
    }

    /// Waits in the read of a connection that is alone, where its client sends the next
    /// request soon after each answer: that saves a call for each request. Returns whether
    /// something came.
    fn wait_for_lone_client(&mut self, now: Nanos) -> bool {
        let is_quiet = self.busy_poll == Nanos::ZERO && self.ready.is_empty() && self.is_alone;
        if !self.is_brisk || !is_quiet || self.connections.len() != 1 {
            return false;
        }
        let is_due = self.due() <= now.saturating_add(BRISK);
        let Some((index, connection)) = self.connections.iter_mut().next() else {
            return false;
        };
        if is_due || !connection.awaits_one_request() || self.context.export_thread.is_notified() {
            return false;
        }
        let mut received = Received::Nothing;
        if let Wait::Poll(limit) = self.waiting.way() {
            received = connection.poll_and_read(self.clock, now.saturating_add(limit));
        }
        if received == Received::Nothing {
            received = connection.wait_and_read();
        }
        self.is_brisk = received != Received::Nothing;
        if self.is_brisk {
            self.ready.push(index);
        }
        self.is_brisk
    }

    /// How long to sleep; `None` for as long as it takes.
    fn timeout(&self, now: Nanos, quiet_since: Nanos) -> Option<Nanos> {
        if !self.ready.is_empty() || now < quiet_since.saturating_add(self.busy_poll) {
            return Some(Nanos::ZERO);
        }
        let next = self.due();
        if next == Nanos::MAX {
            return None;
        }
        let (_, early) = self.next_event;
        Some(self.clock.real_time(now, next).saturating_sub(early))
    }

    /// When something is due.
    fn due(&self) -> Nanos {
        let deadline = self.shutdown_deadline.unwrap_or(Nanos::MAX);
        self.next_event.0.min(deadline)
    }

    fn take_messages(&mut self, now: Nanos, core: &mut Core) {
        for message in self.inbox.take() {
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
        // Where that is refused, the socket is waited for in the other way.
        let _ = arrival.channel.limit_waits(Duration::from_nanos(BRISK.0));
        let entry = self.connections.vacant_entry();
        let index = entry.key();
        let client = Client {
            submitter: core.new_submitter(),
            cgroup,
            cpu: (index * self.threads + self.thread) % self.software_queues,
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

    /// Reads what clients of connections with events have sent.
    fn read_ahead(&mut self) {
        for &index in &self.ready {
            // It may have been closed since the event.
            if let Some(connection) = self.connections.get_mut(index) {
                connection.read_ahead();
            }
        }
    }

    /// Carries out all there is. A client that sends one request after the other is
    /// read again before it is answered: several replies in one write cost both sides
    /// one wake-up.
    fn serve_ready<'a>(
        &mut self,
        mut now: Nanos,
        shared: &'a SharedExport,
        mut core: MutexGuard<'a, Core>,
    ) {
        let mut ready = std::mem::take(&mut self.ready);
        let mut reads = 1;
        loop {
            for &index in &ready {
                self.receive(now, &mut core, index);
            }
            self.run_disk(now, &mut core);
            self.next_event = (core.disk.next_event(), core.disk.wake_early());
            self.is_alone = core.threads() == self.threads;
            drop(core);
            reads += 1;
            ready.retain(|&index| {
                let connection = self.connections.get_mut(index);
                reads <= MAX_READS
                    && connection.is_some_and(|connection| {
                        connection.reads_again() && connection.read_ahead() != Received::Nothing
                    })
            });
            if ready.is_empty() {
                break;
            }
            (core, now) = shared.turn(self.clock);
        }
        // Connections that became ready meanwhile are served next time.
        ready.append(&mut self.ready);
        self.ready = ready;
    }

    fn receive(&mut self, now: Nanos, core: &mut Core, index: usize) {
        // It may have been closed since the event.
        if let Some(connection) = self.connections.get_mut(index) {
            self.context.handler(core).receive(now, connection);
            mark_dirty(&mut self.dirty, connection);
        }
    }

    /// Lets the block layer run until nothing more can be done at once.
    fn run_disk(&mut self, now: Nanos, core: &mut Core) {
        loop {
            let mut ended = std::mem::take(&mut self.ended);
            let mut woken = std::mem::take(&mut self.woken);
            core.run(now, &self.context.export_thread, &mut ended, &mut woken);
            // Latencies include what was done since `now`.
            let then = match ended.is_empty() {
                true => now,
                false => self.clock.now(),
            };
            self.answered += ended.len() as u64;
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
        connection.waiter = core.resume(now, &self.context.export_thread, &mut plug, waiter);
        core.disk.unplug(now, &mut plug);
        self.receive(now, core, index);
    }

    /// Sends every connection's replies, and closes the connections that are
    /// over.
    fn send_replies(&mut self, shared: &SharedExport) {
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
                let (mut core, now) = shared.turn(self.clock);
                self.context.handler(&mut core).forget_incoming(connection);
                if connection.is_over() {
                    self.close(now, &mut core, index);
                    continue;
                }
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
