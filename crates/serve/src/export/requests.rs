//! What an export does with the bytes that a connection brings: requests are
//! checked, given to the block layer, and answered when they end.

use std::sync::Arc;

use blklab_blk::{IoStatus, Nanos, Plug};
use blklab_nbd::wire::{Command, CommandFlags};
use blklab_nbd::{Export, REQUEST_BYTES, Refusal, Request};

use super::connection::{Connection, Incoming, Phase, Received, refusal_of};
use super::disk::Ended;
use super::io::{Io, IoId};
use super::shared::{Core, ExportThread};

/// Extents of one answer.
const MAX_EXTENTS: usize = 1024;

/// What one connection may have under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) in_flight_bytes: u64,
    pub(crate) in_flight_requests: u32,
}

impl ConnectionLimits {
    /// Whether they allow a connection one more request with this much data.
    pub(super) fn allow(self, connection: &Connection, bytes: u64) -> bool {
        connection.has_room(bytes, self.in_flight_bytes, self.in_flight_requests)
    }
}

/// What all requests of an export's connections are handled with.
pub(super) struct RequestContext {
    pub(super) export: Arc<Export>,
    pub(super) export_thread: ExportThread,
    pub(super) limits: ConnectionLimits,
}

impl RequestContext {
    /// Handles requests for as long as the thread has its turn.
    pub(super) fn handler<'a>(&'a self, core: &'a mut Core) -> RequestHandler<'a> {
        RequestHandler {
            context: self,
            core,
        }
    }
}

/// Handles the requests of all connections of an export.
pub(super) struct RequestHandler<'a> {
    context: &'a RequestContext,
    core: &'a mut Core,
}

impl RequestHandler<'_> {
    /// Takes requests of a connection for as long as there are any and it has
    /// room for them. Much data of a write is read to its place.
    pub(super) fn receive(&mut self, now: Nanos, connection: &mut Connection) {
        let (mut plug, mut may_read) = (Plug::new(), connection.reads_directly());
        connection.paused = None;
        while connection.waiter.is_none() && connection.phase == Phase::Open {
            if self.take_input(now, connection, &mut plug) {
                continue;
            }
            if connection.paused.is_some() || !may_read {
                break;
            }
            may_read = false;
            if !self.read_payload(now, connection, &mut plug) {
                break;
            }
        }
        self.core.disk.unplug(now, &mut plug);
    }

    /// Reads data of a write to its place. Returns whether something came.
    fn read_payload(&mut self, now: Nanos, connection: &mut Connection, plug: &mut Plug) -> bool {
        let Incoming::Payload { io, filled, .. } = connection.incoming else {
            return false;
        };
        let place = self.core.disk.payload_mut(io, filled);
        let (received, filled) = connection.receive(Some(place));
        if filled > 0 {
            self.payload_received(now, connection, plug, filled);
        }
        received == Received::Some
    }

    /// Uses the next piece of what was received. Returns `false` where more must
    /// come first, or the connection must pause.
    fn take_input(&mut self, now: Nanos, connection: &mut Connection, plug: &mut Plug) -> bool {
        match connection.incoming {
            Incoming::Request => self.take_request(now, connection, plug),
            Incoming::Payload { io, filled, .. } => {
                let target = self.core.disk.payload_mut(io, filled);
                let len = target.len().min(connection.received().len());
                target[..len].copy_from_slice(&connection.received()[..len]);
                connection.consume(len);
                if len > 0 {
                    self.payload_received(now, connection, plug, len);
                }
                len > 0
            }
            Incoming::Refused {
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
                    self.core.counters.errors += 1;
                    connection.answer(request, Err(refusal));
                } else {
                    connection.incoming = Incoming::Refused {
                        left,
                        cookie,
                        refusal,
                    };
                }
                len > 0
            }
        }
    }

    fn payload_received(
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
        connection.waiter = self.core.submit(now, connection.client, plug, io);
    }

    fn take_request(&mut self, now: Nanos, connection: &mut Connection, plug: &mut Plug) -> bool {
        let request = match Request::decode(connection.received()) {
            Ok(Some(request)) => request,
            Ok(None) => return false,
            Err(_) => {
                self.core.counters.protocol_errors += 1;
                connection.phase = Phase::Broken;
                return false;
            }
        };
        let bytes = request.command().map_or(0, |c| data_bytes(c, &request));
        if !self.context.limits.allow(connection, bytes) {
            connection.paused = Some(bytes);
            return false;
        }
        connection.consume(REQUEST_BYTES);
        match request.check(&self.context.export, connection.session) {
            Ok(command) => self.begin(now, connection, plug, command, request),
            Err(refusal) => self.refuse(connection, request, refusal),
        }
        true
    }

    fn refuse(&mut self, connection: &mut Connection, request: Request, refusal: Refusal) {
        let left = request.payload_bytes() as usize;
        if left > 0 {
            connection.incoming = Incoming::Refused {
                left,
                cookie: request.cookie,
                refusal,
            };
        } else {
            self.core.counters.errors += 1;
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
            Command::Disconnect => connection.phase = Phase::Draining,
            Command::Cache => {
                let backend = self.core.disk.backend();
                backend.prefetch(request.offset, request.length);
                connection.answer(request, Ok(()));
            }
            _ if request.length == 0 && command != Command::Flush => {
                connection.answer(request, Ok(()));
            }
            _ => {
                let bytes = data_bytes(command, &request);
                let io = Io::new(
                    &self.context.export_thread,
                    connection.index,
                    command,
                    request,
                    now,
                );
                let io = self.core.disk.begin(io);
                connection.in_flight += 1;
                connection.in_flight_bytes += bytes;
                match command {
                    Command::Write => {
                        connection.incoming = Incoming::Payload {
                            io,
                            filled: 0,
                            len: bytes as usize,
                        };
                    }
                    Command::BlockStatus => {
                        let only_one = request.flags.contains(CommandFlags::REQ_ONE);
                        let max = if only_one { 1 } else { MAX_EXTENTS };
                        self.core.disk.find_extents(now, io, max);
                    }
                    _ => self.submit(now, connection, plug, io),
                }
            }
        }
    }

    /// Counts a request that ended, and answers it where its connection is still
    /// there.
    pub(super) fn end(&mut self, now: Nanos, connection: Option<&mut Connection>, ended: Ended) {
        let io = self.core.disk.io(ended.io);
        let (command, request) = (io.command, io.request);
        self.core.count(now, ended.io);
        if let Some(connection) = connection {
            connection.in_flight -= 1;
            connection.in_flight_bytes -= data_bytes(command, &request);
            if connection.phase != Phase::Broken {
                self.encode_reply(connection, ended);
            }
        }
        self.core.disk.release(ended.io);
    }

    fn encode_reply(&mut self, connection: &mut Connection, ended: Ended) {
        let io = self.core.disk.io(ended.io);
        let (command, request) = (io.command, io.request);
        if ended.status != IoStatus::Ok {
            self.core.counters.errors += 1;
            return connection.answer(request, Err(refusal_of(ended.status)));
        }
        let Request {
            cookie,
            offset,
            length,
            flags,
            ..
        } = request;
        let out = &mut connection.out;
        match command {
            Command::Read => {}
            Command::BlockStatus => return blklab_nbd::block_status(out, cookie, &io.extents),
            _ => return connection.answer(request, Ok(())),
        }
        if !connection.session.structured {
            blklab_nbd::simple(out, cookie, 0);
        } else if !flags.contains(CommandFlags::DF) && self.core.disk.is_known_hole(offset, length)
        {
            return blklab_nbd::hole(out, cookie, offset, length, true);
        } else {
            blklab_nbd::data_head(out, cookie, offset, length, true);
        }
        let disk = &self.core.disk;
        disk.read_data(ended.io, &mut |piece| out.extend_from_slice(piece));
    }

    /// A write whose data will never come whole is not carried out.
    pub(super) fn forget_incoming(&mut self, connection: &mut Connection) {
        if let Incoming::Payload { io, len, .. } = connection.incoming {
            connection.in_flight -= 1;
            connection.in_flight_bytes -= len as u64;
            self.core.disk.release(io);
        }
        connection.incoming = Incoming::Request;
    }
}

/// Bytes of data that a request or its reply carries.
pub(super) fn data_bytes(command: Command, request: &Request) -> u64 {
    match command {
        Command::Read | Command::Write => u64::from(request.length),
        _ => 0,
    }
}
