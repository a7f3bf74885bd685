//! The host interface: commands come in over the link and are fetched in the order
//! of arbitration; completions go back.

mod arbitration;
mod fetch;

use alloc::boxed::Box;
use alloc::vec::Vec;

use blklab_blk::{Nanos, Op as HostOp};
use blklab_stats::{DeviceStats, Passage, Through, Waits};

use crate::ssd::events::{EventKind, EventQueue};
use crate::ssd::slab::Slab;
use crate::ssd::spec::{ControllerSpec, LinkSpec, SsdSpec};
use crate::{Command, CommandStatus, Completion};
use arbitration::Arbiter;
pub(crate) use fetch::{FETCH, FetchCtx};

/// No stall: see [`ActiveCommand::stalled_since_ns`].
pub(crate) const NOT_STALLED: u64 = u64::MAX;

/// A command inside the drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActiveCommand {
    pub(crate) tag: u32,
    pub(crate) op: HostOp,
    pub(crate) fua: bool,
    pub(crate) first_byte: u64,
    pub(crate) bytes: u64,
    /// A read of addresses that are nowhere on the flash.
    pub(crate) is_unwritten: bool,
    /// Bytes of a read that are in DRAM.
    pub(crate) dram_bytes: u64,
    /// Transactions and transfers that must end before it does.
    pub(crate) parts: u32,
    /// The next map unit of a write to be placed.
    pub(crate) next_slot: u32,
    /// A write that overwrites data that was still in DRAM.
    pub(crate) rewrites: bool,
    pub(crate) status: CommandStatus,
    /// Its number, where a timeline is recorded.
    pub(crate) number: u32,
    /// What it has waited for.
    pub(crate) waits: Waits,
    /// Of a write: how often admission had stopped when it arrived.
    pub(crate) stops_before: u64,
    /// Its slots that wait for a free block.
    pub(crate) blocked: u32,
    /// Since when it waits for a free block or is throttled, or [`NOT_STALLED`].
    pub(crate) stalled_since_ns: u64,
    /// One of its parts is the firmware's record of it.
    pub(crate) awaits_records: bool,
}

impl ActiveCommand {
    /// What a place holds before its first command.
    const NONE: ActiveCommand = ActiveCommand {
        tag: 0,
        op: HostOp::Read,
        fua: false,
        first_byte: 0,
        bytes: 0,
        is_unwritten: false,
        dram_bytes: 0,
        parts: 0,
        next_slot: 0,
        rewrites: false,
        status: CommandStatus::Ok,
        number: 0,
        waits: Waits::NONE,
        stops_before: 0,
        blocked: 0,
        stalled_since_ns: NOT_STALLED,
        awaits_records: false,
    };
}

/// The link: transfers of one direction are served in the order in which they are asked
/// for. SATA sends one way at a time, PCIe both ways at once.
#[derive(Clone, Debug)]
struct Link {
    spec: LinkSpec,
    /// When each direction is free.
    to_drive_ns: u64,
    to_host_ns: u64,
}

impl Link {
    fn new(spec: LinkSpec) -> Link {
        Link {
            spec,
            to_drive_ns: 0,
            to_host_ns: 0,
        }
    }

    /// Nothing is under way, and nothing comes through before `ready_ns`.
    fn power_off(&mut self, ready_ns: u64) {
        self.to_drive_ns = ready_ns;
        self.to_host_ns = ready_ns;
    }

    /// Whether both directions share it, so that a transfer keeps the other waiting.
    #[inline]
    fn is_shared(&self) -> bool {
        !self.spec.full_duplex
    }

    #[inline]
    fn transfer_ns(&self, bytes: u64) -> u64 {
        (bytes * self.spec.byte_ps).div_ceil(1000)
    }

    /// Transfers data that is ready at the host; returns when it is in the drive.
    #[inline]
    fn receive(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let end_ns = self.to_drive_ns.max(now_ns) + self.transfer_ns(bytes);
        self.to_drive_ns = end_ns;
        if !self.spec.full_duplex {
            self.to_host_ns = end_ns;
        }
        end_ns
    }

    /// When a command's status, which takes no time itself, can be sent.
    #[inline]
    fn send_status(&mut self, now_ns: u64) -> u64 {
        self.to_host_ns.max(now_ns)
    }

    /// Transfers data that is ready in the drive; returns when it is at the host.
    #[inline]
    fn send(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let end_ns = self.to_host_ns.max(now_ns) + self.transfer_ns(bytes);
        self.to_host_ns = end_ns;
        if !self.spec.full_duplex {
            self.to_drive_ns = end_ns;
        }
        end_ns
    }
}

/// The commands inside the drive, the link, and when controller and DRAM are free.
#[derive(Clone, Debug)]
pub(crate) struct HostInterface {
    pub(crate) commands: Slab<ActiveCommand>,
    link: Link,
    complete_ns: u64,
    submit_ns: u64,
    controller: ControllerSpec,
    /// When the controller can fetch the next command.
    controller_ns: u64,
    /// Writes fetched so far, which tell when the firmware pauses.
    writes: u64,
    /// When the DRAM can start the next transfer.
    dram_ns: u64,
    /// The time of a transfer: before its first byte, and for each byte.
    dram_access_ns: u64,
    dram_byte_ps: u64,
    /// Boxed, to keep this small on the many drives without it.
    arbiter: Option<Box<Arbiter>>,
    unit_bits: u32,
    capacity_sectors: u64,
    supports_discard: bool,
    /// The ways of commands through controller and link, where they are recorded.
    passages: Option<Vec<Passage>>,
}

impl HostInterface {
    pub(crate) fn new(spec: &SsdSpec) -> HostInterface {
        HostInterface {
            commands: Slab::with_capacity(64),
            link: Link::new(spec.link),
            complete_ns: spec.link.complete_ns,
            submit_ns: spec.link.submit_ns,
            controller: spec.controller,
            controller_ns: 0,
            writes: 0,
            dram_ns: 0,
            dram_access_ns: spec.write_cache.access_ns,
            dram_byte_ps: spec.write_cache.byte_ps,
            arbiter: spec.nvme.as_ref().map(|nvme| Box::new(Arbiter::new(nvme))),
            unit_bits: spec.ftl.map_unit_bytes.trailing_zeros(),
            capacity_sectors: spec.identity.capacity_sectors,
            supports_discard: spec.identity.discard,
            passages: None,
        }
    }

    /// Starts or stops recording the ways of commands.
    pub(crate) fn record(&mut self, on: bool) {
        self.passages = on.then(Vec::new);
    }

    /// Moves what was recorded to the end of `out`.
    pub(crate) fn take_passages(&mut self, out: &mut Vec<Passage>) {
        if let Some(passages) = &mut self.passages {
            out.append(passages);
        }
    }

    /// A command is through the controller or over the link.
    #[inline]
    fn passed(&mut self, index: u32, through: Through, (from_ns, to_ns): (u64, u64)) {
        if let Some(passages) = &mut self.passages {
            passages.push(Passage {
                command: self.commands[index].number,
                through,
                from_ns,
                to_ns,
            });
        }
    }

    /// Takes a command in, field by field (see
    /// [`crate::ssd::flash::transaction::Transaction::replace_with`] for why). `number`
    /// is its number in a recorded timeline.
    #[inline]
    pub(crate) fn accept(&mut self, command: &Command, number: u32) -> u32 {
        let index = self.commands.take(|| ActiveCommand::NONE);
        let active = &mut self.commands[index];
        active.tag = command.tag;
        active.op = command.op;
        active.fua = command.fua;
        active.first_byte = command.sector.bytes();
        active.bytes = command.sectors as u64 * 512;
        active.is_unwritten = false;
        active.dram_bytes = 0;
        active.parts = 0;
        active.next_slot = 0;
        active.rewrites = false;
        active.status = CommandStatus::Ok;
        active.number = number;
        active.waits = Waits::NONE;
        active.stops_before = 0;
        active.blocked = 0;
        active.stalled_since_ns = NOT_STALLED;
        active.awaits_records = false;
        index
    }

    /// The first and the last map unit of a command.
    #[inline]
    pub(crate) fn slots_of(&self, index: u32) -> (u32, u32) {
        let command = &self.commands[index];
        let last = (command.first_byte + command.bytes - 1) >> self.unit_bits;
        ((command.first_byte >> self.unit_bits) as u32, last as u32)
    }

    /// Transfers data of a command that is ready in the drive; returns when it is at the host.
    #[inline]
    pub(crate) fn send(&mut self, now_ns: u64, index: u32, bytes: u64) -> u64 {
        let sent_ns = self.link.send(now_ns, bytes);
        self.passed(index, Through::Link, (now_ns, sent_ns));
        sent_ns
    }

    /// Transfers data between controller and DRAM; an event marks the end.
    pub(crate) fn use_dram(
        &mut self,
        events: &mut EventQueue,
        now_ns: u64,
        index: u32,
        bytes: u64,
    ) {
        let ns = self.dram_access_ns + bytes * self.dram_byte_ps / 1000;
        self.dram_ns = self.dram_ns.max(now_ns) + ns;
        events.push(EventKind::DRAM_DONE, self.dram_ns, index);
    }

    /// The DRAM transfer of a command has ended.
    pub(crate) fn dram_done(&mut self, events: &mut EventQueue, now_ns: u64, index: u32) {
        let ActiveCommand { op, dram_bytes, .. } = self.commands[index];
        let sent_ns = match op {
            HostOp::Read => self.send(now_ns, index, dram_bytes),
            _ => now_ns,
        };
        self.part_sent(events, sent_ns, index);
    }

    /// A part of a command is sent by `sent_ns`. After the last one the status follows,
    /// behind whatever the link is sending.
    #[inline]
    pub(crate) fn part_sent(&mut self, events: &mut EventQueue, sent_ns: u64, index: u32) {
        let command = &mut self.commands[index];
        command.parts -= 1;
        if command.parts == 0 {
            self.end(events, sent_ns, index);
        }
    }

    /// Ends a command: sends its status, and before that the data of a read that had
    /// nothing to fetch.
    pub(crate) fn finish(&mut self, events: &mut EventQueue, now_ns: u64, index: u32) {
        let ActiveCommand {
            op, status, bytes, ..
        } = self.commands[index];
        let sent_ns = match (op, status) {
            (HostOp::Read, CommandStatus::Ok) => self.send(now_ns, index, bytes),
            _ => now_ns,
        };
        self.end(events, sent_ns, index);
    }

    #[inline]
    fn end(&mut self, events: &mut EventQueue, sent_ns: u64, index: u32) {
        let at_ns = self.link.send_status(sent_ns) + self.complete_ns;
        events.push(EventKind::COMPLETED, at_ns, index);
    }

    /// A command's completion has reached the host.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        stats: &mut DeviceStats,
        at_ns: u64,
        index: u32,
        done: &mut Vec<Completion>,
    ) {
        let command = &self.commands[index];
        match command.op {
            HostOp::Read => stats.read_waits.count(command.waits),
            HostOp::Write => stats.write_waits.count(command.waits),
            _ => {}
        }
        done.push(Completion {
            tag: command.tag,
            at: Nanos(at_ns),
            status: command.status,
        });
        self.commands.remove(index);
    }

    /// The start of the stall of each write that is stalled now.
    pub(crate) fn stalls_ns(&self) -> impl Iterator<Item = u64> {
        let since_ns = self.commands.as_slice().iter().map(|c| c.stalled_since_ns);
        since_ns.filter(|since_ns| *since_ns != NOT_STALLED)
    }

    /// Counts the stalls of these writes from `now_ns` on. Returns how many they are.
    pub(crate) fn count_stalls_from(&mut self, now_ns: u64) -> u64 {
        let mut stalled = 0;
        for index in self.commands.indices() {
            let since_ns = &mut self.commands[index].stalled_since_ns;
            if *since_ns != NOT_STALLED {
                *since_ns = now_ns;
                stalled += 1;
            }
        }
        stalled
    }

    /// Drops all commands with the power; the drive takes others from `ready_ns` on.
    pub(crate) fn power_off(&mut self, ready_ns: u64) {
        self.commands.clear();
        self.controller_ns = ready_ns;
        self.dram_ns = ready_ns;
        self.link.power_off(ready_ns);
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.clear();
        }
    }
}
