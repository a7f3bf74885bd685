//! One export's thread: its connections, its block layer, its store.
//!
//! All of an export's requests meet in one queue, so one thread serves them
//! without locks: it reads what each socket has, gives all of it to the block
//! layer, and answers with one write a connection.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use blklab_blk::{BioEnd, IoStatus, Nanos, Plug, SubmitterId};
use blklab_nbd::wire::{Command, CommandFlags};
use blklab_nbd::{Export, Extent, REQUEST_BYTES, Refusal, Request, Session};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::channel::Channel;
use crate::clock::Clock;
use crate::connection::{Connection, Ending, Incoming, Received, refusal_of};
use crate::disk::{Change, ChangeDone, Disk};
use crate::io::{Io, IoId};
use crate::mailbox::Mailbox;
use crate::moderation::Moderation;
use crate::stats::{Stats, kind_of};

/// What an event is about, where it is not a connection's index.
const MAILBOX: u64 = u64::MAX;
const STORE: u64 = u64::MAX - 1;

/// Extents of one answer.
const MAX_EXTENTS: usize = 1024;
/// How often a connection is read before its replies are sent, and how many
/// bytes of replies are enough to send.
const MAX_LOOKS: usize = 16;
const ENOUGH_REPLY_BYTES: usize = 128 << 10;
/// A modelled drive's time is met by waking this early and polling.
const POLL_BEFORE_NS: u64 = 60_000;
/// How long a client may take to read its last replies when the server ends.
const LINGER: Nanos = Nanos::from_secs(5);

/// A client that has chosen this export.
pub(crate) struct Arrival {
    pub(crate) channel: Channel,
    pub(crate) session: Session,
    /// What it sent behind its handshake.
    pub(crate) early: Vec<u8>,
    /// Counts the connection for as long as it lives.
    pub(crate) ticket: Ticket,
}

/// Counts a connection for as long as it is held.
pub(crate) type Ticket = Arc<()>;

/// What an export's thread is told.
pub(crate) enum Message {
    /// A client comes.
    Arrive(Box<Arrival>),
    /// Something is to be changed once the queue is empty.
    Change(Change, ChangeDone),
    /// Something is to be looked at or set at once.
    Visit(Box<dyn FnOnce(&mut Visit<'_>) + Send>),
    /// Finish what was accepted, and end.
    ShutDown,
}

/// What a visitor sees.
pub(crate) struct Visit<'a> {
    pub(crate) now: Nanos,
    pub(crate) disk: &'a mut Disk,
    pub(crate) stats: &'a Stats,
}

/// What one connection may have under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) in_flight_bytes: u64,
    pub(crate) in_flight_requests: u32,
}

/// An export's thread.
pub(crate) struct ExportLoop {
    export: Arc<Export>,
    disk: Disk,
    clock: Clock,
    limits: ConnectionLimits,
    software_queues: usize,
    /// How long to look for more before going to sleep.
    busy_poll: Nanos,
    moderation: Moderation,
    epoll: OwnedFd,
    mailbox: Arc<Mailbox<Message>>,
    connections: Vec<Option<(Connection, Ticket)>>,
    free: Vec<usize>,
    next_submitter: u32,
    stats: Stats,
    /// Connections that have something to do without a new event.
    todo: Vec<usize>,
    /// Connections with new replies.
    dirty: Vec<usize>,
    ended: Vec<BioEnd>,
    woken: Vec<u64>,
    extents: Vec<Extent>,
    shutting_down: Option<Nanos>,
}

impl ExportLoop {
    pub(crate) fn new(
        export: Arc<Export>,
        disk: Disk,
        clock: Clock,
        limits: ConnectionLimits,
        software_queues: usize,
        busy_poll: Nanos,
        mailbox: Arc<Mailbox<Message>>,
    ) -> std::io::Result<ExportLoop> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let event = EventData::new_u64(MAILBOX);
        epoll::add(&epoll, mailbox.event(), event, EventFlags::IN)?;
        for source in disk.store().events() {
            let event = EventData::new_u64(STORE);
            epoll::add(&epoll, source, event, EventFlags::IN)?;
        }
        Ok(ExportLoop {
            export,
            disk,
            clock,
            limits,
            software_queues,
            busy_poll,
            moderation: Moderation::new(),
            epoll,
            mailbox,
            connections: Vec::new(),
            free: Vec::new(),
            next_submitter: 0,
            stats: Stats::default(),
            todo: Vec::new(),
            dirty: Vec::new(),
            ended: Vec::new(),
            woken: Vec::new(),
            extents: Vec::new(),
            shutting_down: None,
        })
    }

    /// Serves until it is told to end.
    pub(crate) fn run(mut self) -> Result<(), String> {
        // The kernel rounds sleeps up by 50 us unless asked not to.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut events: Vec<Event> = Vec::with_capacity(256);
        loop {
            self.wait(&mut events)?;
            let now = self.clock.now();
            self.stats.turns += 1;
            for event in events.drain(..) {
                match event.data.u64() {
                    MAILBOX => self.read_mail(now),
                    STORE => self.disk.collect(now),
                    index => self.todo.push(index as usize),
                }
            }
            self.turn(now);
            if self.is_over(now) {
                return self.disk.store_mut().close();
            }
            self.nap(now);
        }
    }

    /// Lets requests come together. Who polls has said that time counts more,
    /// and so does a drive whose speed is modelled.
    fn nap(&mut self, now: Nanos) {
        if self.busy_poll > Nanos::ZERO || self.disk.model().is_some() || !self.todo.is_empty() {
            return;
        }
        let nap = self.moderation.nap(now, self.stats.requests.iter().sum());
        if nap > Nanos::ZERO {
            std::thread::sleep(std::time::Duration::from_nanos(nap.0));
        }
    }

    /// Waits for something to happen.
    fn wait(&mut self, events: &mut Vec<Event>) -> Result<(), String> {
        let quiet_since = self.clock.now();
        loop {
            let now = self.clock.now();
            let span = self.sleep_span(now, quiet_since);
            let timeout = span.map(|span| Timespec {
                tv_sec: (span.0 / 1_000_000_000) as i64,
                tv_nsec: (span.0 % 1_000_000_000) as i64,
            });
            let room = rustix::buffer::spare_capacity(events);
            match epoll::wait(&self.epoll, room, timeout.as_ref()) {
                Ok(0) if span == Some(Nanos::ZERO) => {
                    let now = self.clock.now();
                    if !self.todo.is_empty() || self.next_event() <= now {
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
    fn sleep_span(&self, now: Nanos, quiet_since: Nanos) -> Option<Nanos> {
        if !self.todo.is_empty() || now < quiet_since.saturating_add(self.busy_poll) {
            return Some(Nanos::ZERO);
        }
        let next = self.next_event();
        if next == Nanos::MAX {
            return None;
        }
        let early = match self.disk.model() {
            Some(_) => Nanos(POLL_BEFORE_NS),
            None => Nanos::ZERO,
        };
        Some(next.saturating_sub(now).saturating_sub(early))
    }

    fn next_event(&self) -> Nanos {
        let deadline = self.shutting_down.unwrap_or(Nanos::MAX);
        self.disk.next_event().min(deadline)
    }

    fn read_mail(&mut self, now: Nanos) {
        for message in self.mailbox.take() {
            match message {
                Message::Arrive(arrival) => self.arrive(*arrival),
                Message::Change(change, done) => self.disk.change(change, done),
                Message::Visit(visitor) => visitor(&mut Visit {
                    now,
                    disk: &mut self.disk,
                    stats: &self.stats,
                }),
                Message::ShutDown => self.shut_down(now),
            }
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        if self.shutting_down.is_some() {
            return;
        }
        let index = self.free.pop().unwrap_or(self.connections.len());
        self.next_submitter = self.next_submitter.wrapping_add(1);
        let connection = Connection::new(
            arrival.channel,
            arrival.session,
            index as u32,
            SubmitterId(self.next_submitter),
            index % self.software_queues,
            &arrival.early,
        );
        let place = Some((connection, arrival.ticket));
        if index == self.connections.len() {
            self.connections.push(place);
        } else {
            self.connections[index] = place;
        }
        self.stats.connections += 1;
        self.stats.connections_total += 1;
        self.todo.push(index);
    }

    /// No further request is read; those in flight are finished and answered.
    fn shut_down(&mut self, now: Nanos) {
        self.shutting_down.get_or_insert(now.saturating_add(LINGER));
        for index in 0..self.connections.len() {
            if let Some((connection, _)) = &mut self.connections[index] {
                connection.ending = match connection.ending {
                    Ending::No => Ending::Soft,
                    other => other,
                };
                self.todo.push(index);
            }
        }
    }

    fn is_over(&mut self, now: Nanos) -> bool {
        let Some(deadline) = self.shutting_down else {
            return false;
        };
        let open = self.connections.iter().flatten();
        // Who does not read is not waited for; what the store has, is.
        let in_flight = open
            .clone()
            .any(|(c, _)| c.in_flight > 0 || c.waiter.is_some());
        open.count() == 0 || (now >= deadline && !in_flight)
    }

    /// Reads, carries out and answers all there is.
    fn turn(&mut self, now: Nanos) {
        let mut todo = std::mem::take(&mut self.todo);
        for &index in &todo {
            self.pump(now, index, true);
        }
        self.settle(now);
        self.tell_extents();
        for &index in &todo {
            self.look_again(now, index);
        }
        todo.clear();
        // What asked to go on meanwhile does so in the next turn.
        todo.append(&mut self.todo);
        self.todo = todo;
        self.send_replies(now);
    }

    /// A client that sends one request after the other is read again before it
    /// is answered: several replies in one write cost it and us one wake-up.
    fn look_again(&mut self, now: Nanos, index: usize) {
        for _ in 0..MAX_LOOKS {
            let Some(Some((connection, _))) = self.connections.get_mut(index) else {
                return;
            };
            let replies = connection.unsent_bytes();
            let waits = connection.ending != Ending::No
                || connection.waiter.is_some()
                || connection.paused.is_some();
            if waits || replies == 0 || replies > ENOUGH_REPLY_BYTES || !connection.may_stream() {
                return;
            }
            self.pump(now, index, true);
            self.settle(now);
        }
    }

    /// Lets the block layer run until nothing more can be done at once.
    fn settle(&mut self, now: Nanos) {
        loop {
            let (mut ended, mut woken) = (
                std::mem::take(&mut self.ended),
                std::mem::take(&mut self.woken),
            );
            self.disk.run(now, &mut ended, &mut woken);
            // The time that ended requests took includes what was done meanwhile.
            let then = if ended.is_empty() {
                now
            } else {
                self.clock.now()
            };
            for end in ended.drain(..) {
                self.reply(then, &end);
            }
            let any = !woken.is_empty();
            for ticket in woken.drain(..) {
                self.resume(now, ticket);
            }
            (self.ended, self.woken) = (ended, woken);
            if !any {
                break;
            }
        }
    }

    fn resume(&mut self, now: Nanos, ticket: u64) {
        let sleeper = self.connections.iter().position(|place| {
            place
                .as_ref()
                .is_some_and(|(c, _)| c.waiter.as_ref().is_some_and(|w| w.ticket == ticket))
        });
        let Some(index) = sleeper else { return };
        let Some((connection, _)) = &mut self.connections[index] else {
            return;
        };
        let Some(waiter) = connection.waiter.take() else {
            return;
        };
        let mut plug = Plug::new();
        connection.waiter = self.disk.resume(now, &mut plug, waiter);
        self.disk.unplug(now, &mut plug);
        self.pump(now, index, false);
    }

    /// Takes requests of a connection for as long as there are any and they
    /// may go on. `may_read` allows one read of the socket.
    fn pump(&mut self, now: Nanos, index: usize, may_read: bool) {
        let Some((mut connection, ticket)) = self.connections.get_mut(index).and_then(Option::take)
        else {
            return;
        };
        let (mut plug, mut may_read) = (Plug::new(), may_read);
        connection.paused = None;
        while connection.waiter.is_none() && connection.ending == Ending::No {
            if self.take_one(now, &mut connection, &mut plug) {
                continue;
            }
            if connection.paused.is_some() || !may_read {
                break;
            }
            may_read = false;
            if !self.read_socket(now, &mut connection, &mut plug) {
                break;
            }
        }
        self.disk.unplug(now, &mut plug);
        self.list(&mut connection);
        self.connections[index] = Some((connection, ticket));
    }

    /// Has a connection looked at when the turn ends.
    fn list(&mut self, connection: &mut Connection) {
        if !connection.listed {
            connection.listed = true;
            self.dirty.push(connection.index as usize);
        }
    }

    /// Reads once. Returns whether something came.
    fn read_socket(&mut self, now: Nanos, connection: &mut Connection, plug: &mut Plug) -> bool {
        let (received, filled) = match connection.incoming {
            Incoming::Payload { io, filled, .. } => {
                connection.receive(Some(self.disk.payload_mut(io, filled)))
            }
            _ => connection.receive(None),
        };
        connection.note_look(received);
        match received {
            Received::Some => {
                if filled > 0 {
                    self.payload_came(now, connection, plug, filled);
                }
                true
            }
            Received::Nothing => false,
            Received::End => {
                connection.ending = Ending::Soft;
                false
            }
        }
    }

    /// Takes the next piece of what was received. Returns false where more must
    /// come first, or the connection must pause.
    fn take_one(&mut self, now: Nanos, connection: &mut Connection, plug: &mut Plug) -> bool {
        match connection.incoming {
            Incoming::Request => self.take_request(now, connection, plug),
            Incoming::Payload { io, filled, .. } => {
                let target = self.disk.payload_mut(io, filled);
                let len = target.len().min(connection.received().len());
                target[..len].copy_from_slice(&connection.received()[..len]);
                connection.consume(len);
                if len > 0 {
                    self.payload_came(now, connection, plug, len);
                }
                len > 0
            }
            Incoming::Unwanted {
                left,
                cookie,
                refusal,
            } => {
                let len = left.min(connection.received().len());
                connection.consume(len);
                let left = left - len;
                if left == 0 {
                    connection.incoming = Incoming::Request;
                    let request = Request::new(Command::Write, cookie, 0, 0);
                    self.stats.errors += 1;
                    connection.answer(request, Err(refusal));
                } else {
                    connection.incoming = Incoming::Unwanted {
                        left,
                        cookie,
                        refusal,
                    };
                }
                len > 0
            }
        }
    }

    fn payload_came(
        &mut self,
        now: Nanos,
        connection: &mut Connection,
        plug: &mut Plug,
        more: usize,
    ) {
        if let Incoming::Payload { io, filled, len } = connection.incoming {
            let filled = filled + more;
            connection.incoming = Incoming::Payload { io, filled, len };
            if filled == len {
                connection.incoming = Incoming::Request;
                self.submit(now, connection, plug, io);
            }
        }
    }

    fn submit(&mut self, now: Nanos, connection: &mut Connection, plug: &mut Plug, io: IoId) {
        let (cpu, submitter) = (connection.cpu, connection.submitter);
        connection.waiter = self.disk.submit(now, cpu, submitter, plug, io);
    }

    fn take_request(&mut self, now: Nanos, connection: &mut Connection, plug: &mut Plug) -> bool {
        let request = match Request::decode(connection.received()) {
            Ok(Some(request)) => request,
            Ok(None) => return false,
            Err(_) => {
                self.stats.protocol_errors += 1;
                connection.ending = Ending::Hard;
                return false;
            }
        };
        let limits = self.limits;
        let bytes = request.command().map_or(0, |c| data_bytes(c, &request));
        if !connection.has_room(bytes, limits.in_flight_bytes, limits.in_flight_requests) {
            connection.paused = Some(bytes);
            return false;
        }
        connection.consume(REQUEST_BYTES);
        match request.check(&self.export, connection.session) {
            Ok(command) => self.begin(now, connection, plug, command, request),
            Err(refusal) => self.refuse(connection, request, refusal),
        }
        true
    }

    fn refuse(&mut self, connection: &mut Connection, request: Request, refusal: Refusal) {
        let left = request.payload_bytes() as usize;
        if left > 0 {
            connection.incoming = Incoming::Unwanted {
                left,
                cookie: request.cookie,
                refusal,
            };
        } else {
            self.stats.errors += 1;
            connection.answer(request, Err(refusal));
        }
    }

    fn begin(
        &mut self,
        now: Nanos,
        connection: &mut Connection,
        plug: &mut Plug,
        command: Command,
        request: Request,
    ) {
        match command {
            Command::Disconnect => connection.ending = Ending::Soft,
            Command::Cache => {
                self.disk.store().prefetch(request.offset, request.length);
                connection.answer(request, Ok(()));
            }
            Command::BlockStatus => self.block_status(now, connection, request),
            _ if request.length == 0 && command != Command::Flush => {
                connection.answer(request, Ok(()));
            }
            _ => {
                let bytes = data_bytes(command, &request);
                let io = Io::new(connection.index, command, request, now);
                let io = self.disk.begin(io);
                connection.in_flight += 1;
                connection.in_flight_bytes += bytes;
                if command == Command::Write {
                    connection.incoming = Incoming::Payload {
                        io,
                        filled: 0,
                        len: bytes as usize,
                    };
                } else {
                    self.submit(now, connection, plug, io);
                }
            }
        }
    }

    fn block_status(&mut self, now: Nanos, connection: &mut Connection, request: Request) {
        let max = match request.flags.has(CommandFlags::REQ_ONE) {
            true => 1,
            false => MAX_EXTENTS,
        };
        self.extents.clear();
        let (offset, length) = (request.offset, request.length);
        let store = self.disk.store();
        match store.extents(offset, length, max, &mut self.extents) {
            Ok(true) => {
                blklab_nbd::block_status(&mut connection.out, request.cookie, &self.extents);
            }
            Ok(false) => {
                let io = Io::new(connection.index, Command::BlockStatus, request, now);
                let io = self.disk.begin(io);
                connection.in_flight += 1;
                self.disk.ask_extents(io, max);
            }
            Err(status) => {
                self.stats.errors += 1;
                connection.answer(request, Err(refusal_of(status)));
            }
        }
    }

    /// Answers those whose extents the store has found.
    fn tell_extents(&mut self) {
        while let Some((id, status, extents)) = self.disk.take_extents() {
            let io = self.disk.io(id);
            let (index, request) = (io.conn as usize, io.request);
            self.disk.release(id);
            let Some((mut connection, ticket)) = self.connections[index].take() else {
                continue;
            };
            connection.in_flight -= 1;
            match (connection.ending, status) {
                (Ending::Hard, _) => {}
                (_, IoStatus::Ok) => {
                    blklab_nbd::block_status(&mut connection.out, request.cookie, &extents);
                }
                _ => {
                    self.stats.errors += 1;
                    connection.answer(request, Err(refusal_of(status)));
                }
            }
            self.list(&mut connection);
            self.connections[index] = Some((connection, ticket));
        }
    }

    /// Answers a request that ended.
    fn reply(&mut self, then: Nanos, end: &BioEnd) {
        let id = end.user_data as IoId;
        let io = self.disk.io(id);
        let (index, command, request) = (io.conn as usize, io.command, io.request);
        let took = then.saturating_sub(io.start);
        if let Some(kind) = kind_of(command) {
            self.stats.requests[kind] += 1;
            self.stats.bytes[kind] += u64::from(request.length);
            self.stats.latency[kind].record(took.0);
        }
        if let Some((mut connection, ticket)) = self.connections[index].take() {
            connection.in_flight -= 1;
            connection.in_flight_bytes -= data_bytes(command, &request);
            if connection.ending != Ending::Hard {
                self.encode_reply(&mut connection, id, command, end.status);
            }
            self.list(&mut connection);
            self.connections[index] = Some((connection, ticket));
        }
        self.disk.release(id);
    }

    fn encode_reply(
        &mut self,
        connection: &mut Connection,
        id: IoId,
        command: Command,
        status: IoStatus,
    ) {
        let request = self.disk.io(id).request;
        if status != IoStatus::Ok {
            self.stats.errors += 1;
            return connection.answer(request, Err(refusal_of(status)));
        }
        if command != Command::Read {
            return connection.answer(request, Ok(()));
        }
        let Request {
            cookie,
            offset,
            length,
            flags,
            ..
        } = request;
        let out = &mut connection.out;
        if !connection.session.structured {
            blklab_nbd::simple(out, cookie, 0);
        } else if !flags.has(CommandFlags::DF) && self.disk.is_known_hole(offset, length) {
            return blklab_nbd::hole(out, cookie, offset, length, true);
        } else {
            blklab_nbd::data_head(out, cookie, offset, length, true);
        }
        self.disk.append_data(id, out);
    }

    /// Offers every connection's replies to its socket, and closes those that
    /// are over.
    fn send_replies(&mut self, now: Nanos) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            let Some((mut connection, ticket)) = self.connections[index].take() else {
                continue;
            };
            connection.listed = false;
            if connection.has_unsent() && connection.ending != Ending::Hard {
                connection.send();
            }
            if connection.ending != Ending::No {
                self.forget_incoming(&mut connection);
            }
            if connection.is_over() {
                self.close(now, index, connection);
                continue;
            }
            self.register(&mut connection);
            let limits = self.limits;
            let may_go_on = connection.paused.is_some_and(|bytes| {
                connection.has_room(bytes, limits.in_flight_bytes, limits.in_flight_requests)
            });
            if may_go_on {
                self.todo.push(index);
            }
            self.connections[index] = Some((connection, ticket));
        }
        self.dirty = dirty;
    }

    /// A write whose data will never come whole is not carried out.
    fn forget_incoming(&mut self, connection: &mut Connection) {
        if let Incoming::Payload { io, len, .. } = connection.incoming {
            connection.in_flight -= 1;
            connection.in_flight_bytes -= len as u64;
            self.disk.release(io);
        }
        connection.incoming = Incoming::Request;
    }

    fn close(&mut self, now: Nanos, index: usize, connection: Connection) {
        self.disk.exit_submitter(now, connection.submitter);
        self.stats.connections -= 1;
        self.free.push(index);
        // Dropping the socket takes it out of epoll.
        connection.close();
    }

    /// Tells epoll what a connection waits for, where that has changed.
    fn register(&mut self, connection: &mut Connection) {
        let reads = connection.ending == Ending::No
            && connection.waiter.is_none()
            && connection.paused.is_none();
        let writes = connection.has_unsent() && connection.ending != Ending::Hard;
        // Who waits for nothing is taken out: a closed socket would be told of
        // again and again.
        let wanted = (reads || writes).then_some((reads, writes));
        if wanted == connection.interest {
            return;
        }
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, reads);
        flags.set(EventFlags::OUT, writes);
        let data = EventData::new_u64(u64::from(connection.index));
        let done = match (connection.interest, wanted) {
            (None, _) => epoll::add(&self.epoll, connection.socket(), data, flags),
            (Some(_), None) => epoll::delete(&self.epoll, connection.socket()),
            (Some(_), Some(_)) => epoll::modify(&self.epoll, connection.socket(), data, flags),
        };
        connection.interest = wanted;
        if done.is_err() {
            connection.ending = Ending::Hard;
            self.todo.push(connection.index as usize);
        }
    }
}

/// Bytes of data that a request or its reply carries.
fn data_bytes(command: Command, request: &Request) -> u64 {
    match command {
        Command::Read | Command::Write => u64::from(request.length),
        _ => 0,
    }
}
