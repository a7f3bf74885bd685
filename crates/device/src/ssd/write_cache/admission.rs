//! Which write gets its place next.
//!
//! Writes are admitted in the order in which they come. Want of room in the cache
//! stops all of them. Want of a block stops only what goes to the same planes: the
//! slots of a write that go there are *parked*, those that go elsewhere go on, and
//! so do the writes behind. (MQSim has a list of writes for each plane without
//! room as well: `Write_transactions_for_overfull_planes`.) So all planes that
//! lack room are collected, folded or merged at once. What goes to the same planes
//! keeps its order, and with it whatever goes to the same address.

use blklab_blk::Op as HostOp;
use blklab_stats::Wait;

use crate::CommandStatus;
use crate::ssd::ftl::partial::Span;
use crate::ssd::spec::Allocation;
use crate::ssd::write_cache::queue::Parked;
use crate::ssd::{ActiveCommand, Ssd};

/// No stall: see [`ActiveCommand::stalled_since_ns`].
pub(crate) const NOT_STALLED: u64 = u64::MAX;

/// What became of a slot that was to get its place.
enum Try {
    Placed,
    /// Its planes lack a block, which is being freed.
    NeedsBlock,
    /// Nothing can be freed for it.
    NoSpace,
    /// Nobody gets a place now.
    Stopped(Wait),
}

impl Ssd {
    /// A write's data is in the controller.
    pub(crate) fn start_write(&mut self, now_ns: u64, index: u32) {
        let (first, last) = self.slots_of(index);
        let command = &mut self.commands[index as usize];
        command.next_slot = first;
        // One part stands for its own admission.
        command.parts = 1;
        command.stops_before = self.waiting.push(index);
        if first == last {
            self.admit(now_ns);
        } else {
            self.flash.gather();
            self.admit(now_ns);
            self.flash.start_gathered(now_ns);
        }
        self.fetched_waits(now_ns);
    }

    /// Whether a write ends when it is in the cache.
    pub(crate) fn is_cached(&self, fua: bool) -> bool {
        let cache = &self.spec.write_cache;
        cache.enabled && (!fua || cache.power_loss_protection)
    }

    /// Gives waiting writes their places as long as there is room.
    pub(crate) fn admit(&mut self, now_ns: u64) {
        // What is parked came before all that is still in the queue.
        if self.waiting.has_parked() && !self.place_parked(now_ns) {
            return;
        }
        while let Some(index) = self.waiting.first() {
            if !self.place(now_ns, index) {
                return;
            }
            let command = &mut self.commands[index as usize];
            command.waits.add(self.waiting.pop(command.stops_before));
            match command.parked {
                0 => self.admitted(now_ns, index),
                _ => self.waiting.leave_parked(),
            }
        }
    }

    /// All slots of a write have their places.
    fn admitted(&mut self, now_ns: u64, index: u32) {
        let command = &mut self.commands[index as usize];
        let since_ns = std::mem::replace(&mut command.stalled_since_ns, NOT_STALLED);
        if since_ns != NOT_STALLED {
            self.stats.collection.count_stall(now_ns - since_ns);
        }
        let ActiveCommand {
            op,
            status,
            fua,
            bytes,
            ..
        } = *command;
        if op == HostOp::WriteZeroes {
            self.end_write_zeroes(now_ns, index);
        } else if status == CommandStatus::Ok && self.is_cached(fua) {
            // Its admission is over when the data is in DRAM.
            self.use_dram(now_ns, index, bytes);
        } else {
            if fua || !self.spec.write_cache.enabled {
                self.close_awaited(now_ns);
            }
            self.part_sent(now_ns, index);
        }
    }

    /// A write waits for a free block, or for its pace.
    fn note_stall(&mut self, now_ns: u64, index: u32) {
        let since_ns = &mut self.commands[index as usize].stalled_since_ns;
        if *since_ns == NOT_STALLED {
            *since_ns = now_ns;
            self.stats.collection.writes_stalled += 1;
        }
    }

    /// Since when each write waits that waits so now.
    pub(crate) fn stalls_ns(&self) -> impl Iterator<Item = u64> {
        let since_ns = self.commands.iter().map(|c| c.stalled_since_ns);
        since_ns.filter(|since_ns| *since_ns != NOT_STALLED)
    }

    /// They count from `now_ns` on. Returns how many they are.
    pub(crate) fn count_stalls_from(&mut self, now_ns: u64) -> u64 {
        let since_ns = self.commands.iter_mut().map(|c| &mut c.stalled_since_ns);
        let stalled = since_ns.filter(|since_ns| **since_ns != NOT_STALLED);
        stalled.map(|since_ns| *since_ns = now_ns).count() as u64
    }

    /// The units that a command zeroes in part are in DRAM.
    fn end_write_zeroes(&mut self, now_ns: u64, index: u32) {
        let command = &self.commands[index as usize];
        match command.status == CommandStatus::Ok && !self.is_cached(command.fua) {
            true => self.start_flush(now_ns, index),
            false => self.finish(now_ns, index),
        }
    }

    /// Whether the cache takes no data, because it is full or was and has not
    /// been emptied far enough yet.
    fn cache_is_full(&mut self) -> bool {
        let cache = &self.spec.write_cache;
        self.cache_full = match self.cache_full {
            false => self.dirty_bytes >= cache.size_bytes,
            true => self.dirty_bytes + cache.resume_bytes > cache.size_bytes,
        };
        self.cache_full
    }

    /// Gives the slots of the first write their places, or parks them; `false`
    /// where it has to stay first.
    fn place(&mut self, now_ns: u64, index: u32) -> bool {
        let unit = self.spec.ftl.map_unit_bytes as u64;
        let ActiveCommand {
            op,
            first_byte,
            bytes,
            next_slot: mut slot,
            status,
            ..
        } = self.commands[index as usize];
        if status != CommandStatus::Ok {
            return true;
        }
        let end_byte = first_byte + bytes;
        while (slot as u64) * unit < end_byte {
            let slot_byte = slot as u64 * unit;
            if op == HostOp::WriteZeroes && slot_byte >= first_byte && slot_byte + unit <= end_byte
            {
                // It was discarded, with all that follow it up to the last.
                slot = (end_byte / unit) as u32;
                continue;
            }
            let outcome = match self.waiting.has_parked() && self.waits_in_line(slot) {
                true => Try::NeedsBlock,
                false => self.try_slot(now_ns, index, slot),
            };
            match outcome {
                Try::Placed => {}
                Try::NeedsBlock if self.waiting.all_wait() => {
                    return self.stop(index, slot, Wait::Collection);
                }
                Try::NeedsBlock => self.park(index, slot),
                Try::NoSpace => {
                    self.refuse_write(now_ns, index, slot);
                    break;
                }
                Try::Stopped(wait) => return self.stop(index, slot, wait),
            }
            slot += 1;
        }
        self.commands[index as usize].next_slot = slot;
        true
    }

    /// The first write goes no further than to this slot for now.
    fn stop(&mut self, index: u32, slot: u32, wait: Wait) -> bool {
        self.waiting.stop(wait);
        self.commands[index as usize].next_slot = slot;
        false
    }

    /// Gives one slot of a write its place, if there is one.
    fn try_slot(&mut self, now_ns: u64, index: u32, slot: u32) -> Try {
        if self.cache_is_full() {
            if self.programs_queued == 0 {
                self.close_all(now_ns);
            }
            return Try::Stopped(Wait::Cache);
        }
        let span = self.span_of(index, slot);
        if let Some(record) = self.joined_page(slot) {
            self.join_slot(now_ns, index, record, slot, span);
            return Try::Placed;
        }
        if self.is_behind_pace() {
            self.note_stall(now_ns, index);
            return Try::Stopped(Wait::Collection);
        }
        let Some(place) = self.allocate_page(now_ns, slot) else {
            if !self.make_room(now_ns, slot) && !self.close_full_pages(now_ns) {
                return Try::NoSpace;
            }
            self.note_stall(now_ns, index);
            return Try::NeedsBlock;
        };
        self.place_slot(now_ns, index, place, slot, span);
        Try::Placed
    }

    /// What a command covers of a slot.
    #[inline]
    fn span_of(&self, index: u32, slot: u32) -> Span {
        let command = &self.commands[index as usize];
        let unit = self.spec.ftl.map_unit_bytes as u64;
        let slot_byte = slot as u64 * unit;
        let start = slot_byte.max(command.first_byte);
        let stop = (slot_byte + unit).min(command.first_byte + command.bytes);
        Span::of_bytes(start - slot_byte, stop - slot_byte)
    }

    /// The planes that a slot can go to, by a number of their own.
    fn line_of(&self, slot: u32) -> u32 {
        self.ftl.target(slot) / self.planes_per_line()
    }

    /// How many such numbers there are.
    pub(crate) fn lines(&self) -> u32 {
        self.ftl.plane_count() / self.planes_per_line()
    }

    fn planes_per_line(&self) -> u32 {
        match self.spec.ftl.allocation {
            Allocation::Static => self.ftl.row_of(0).len() as u32,
            _ => self.ftl.placement.planes_per_range(),
        }
    }

    /// Whether others wait for the planes that a slot can go to.
    #[inline(never)]
    fn waits_in_line(&self, slot: u32) -> bool {
        self.waiting.has_line(self.line_of(slot))
    }

    #[inline(never)]
    fn park(&mut self, index: u32, slot: u32) {
        let line = self.line_of(slot);
        let command = &mut self.commands[index as usize];
        command.parked += 1;
        command.waits.note(Wait::Collection, true);
        let parked = Parked {
            command: index,
            slot,
        };
        self.waiting.park(line, parked);
    }

    /// Gives parked slots their places as far as there is room; `false` where
    /// nobody gets a place now.
    #[inline(never)]
    fn place_parked(&mut self, now_ns: u64) -> bool {
        let mut place = 0;
        while let Some(line) = self.waiting.line(place) {
            while let Some(Parked { command, slot }) = self.waiting.first_in(line) {
                // A write that failed needs no further places.
                let outcome = match self.commands[command as usize].status {
                    CommandStatus::Ok => self.try_slot(now_ns, command, slot),
                    _ => Try::Placed,
                };
                match outcome {
                    Try::Placed => {}
                    Try::NoSpace => self.refuse_write(now_ns, command, slot),
                    Try::NeedsBlock => break,
                    Try::Stopped(wait) => {
                        self.commands[command as usize].waits.note(wait, true);
                        return false;
                    }
                }
                self.waiting.take_first(line);
                self.unparked(now_ns, command);
            }
            match self.waiting.has_line(line) {
                true => place += 1,
                false => self.waiting.end_line(place),
            }
        }
        true
    }

    /// A slot of a write is parked no more.
    fn unparked(&mut self, now_ns: u64, index: u32) {
        let command = &mut self.commands[index as usize];
        command.parked -= 1;
        if command.parked == 0 && self.waiting.first() != Some(index) {
            self.waiting.end_parked();
            self.admitted(now_ns, index);
        }
    }
}
