//! Reads: from their entries of the map to operations on the flash, and back to
//! the host.

use blklab_stats::Wait;

use crate::ssd::events::EventKind;
use crate::ssd::flash::codewords::Together;
use crate::ssd::flash::transaction::{Operation, Source, Waiting};
use crate::ssd::ftl::Located;
use crate::ssd::ftl::cached_map::fetch::MapWaiter;
use crate::ssd::{ActiveCommand, Ssd};

/// What a read wants of one page, in bytes.
#[derive(Clone, Copy, Debug)]
struct PartBytes {
    /// On the channel: whole codewords.
    channel: u64,
    /// On the link: what the host asked for.
    host: u64,
}

/// Where a slot's data comes from.
enum Found {
    /// This physical slot.
    Flash(u32),
    Dram,
    /// Nobody wrote it.
    Zeros,
}

/// Slots of a read that lie side by side in one page.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// One of them.
    at: u32,
    together: Together,
    /// What the host asked for; zero where there is no run.
    host_bytes: u64,
}

impl Ssd {
    /// A read needs its entries of the map first.
    #[inline]
    pub(crate) fn start_read(&mut self, now_ns: u64, index: u32) {
        if self.cmt.is_some() && self.waits_for_map(now_ns, index) {
            return;
        }
        self.read_mapped(now_ns, index);
        if self.read_ahead.is_some() {
            self.read_ahead(now_ns, index);
        }
    }

    /// Whether pages of the map have to be read before a read.
    #[inline(never)]
    fn waits_for_map(&mut self, now_ns: u64, index: u32) -> bool {
        let (first, last) = self.slots_of(index);
        self.flash.gather();
        let fetches = self.fetch_map(now_ns, first, last, false, MapWaiter::Command(index));
        self.flash.start_gathered(now_ns);
        let command = &mut self.commands[index as usize];
        command.parts = fetches;
        command.waits.note(Wait::Map, fetches > 0);
        if fetches > 0 {
            self.read_ahead(now_ns, index);
        }
        fetches > 0
    }

    /// Turns a read into one operation for every page it touches.
    #[inline(always)]
    pub(crate) fn read_mapped(&mut self, now_ns: u64, index: u32) {
        let (first, last) = self.slots_of(index);
        match first == last {
            true => self.read_slot(now_ns, index, first),
            false => {
                self.flash.gather();
                self.read_slots(now_ns, index);
                self.flash.start_gathered(now_ns);
            }
        }
    }

    /// Reads of several map units.
    #[inline(never)]
    fn read_slots(&mut self, now_ns: u64, index: u32) {
        let ActiveCommand {
            first_byte, bytes, ..
        } = self.commands[index as usize];
        let unit_bits = self.spec.ftl.map_unit_bytes.trailing_zeros();
        let end = first_byte + bytes;
        let (mut from_dram, mut zeros) = (0, 0);
        let mut byte = first_byte;
        let mut run = Run::default();
        let mut parts = 0;
        while byte < end {
            let slot = (byte >> unit_bits) as u32;
            let stop = ((slot as u64 + 1) << unit_bits).min(end);
            let wanted = stop - byte;
            let alone_bytes = self.codewords.of_part(byte, stop);
            #[cfg(test)]
            self.witness_read(index, byte, stop);
            let found = self.find(index, slot, (byte, stop));
            byte = stop;
            match found {
                Found::Dram => from_dram += wanted,
                Found::Zeros => zeros += wanted,
                Found::Flash(at) => {
                    if run.host_bytes > 0 && !self.ftl.same_page(run.at, at) {
                        parts += self.read_run(now_ns, index, run);
                        run = Run::default();
                    }
                    run.at = at;
                    run.together.add(&self.codewords, at, alone_bytes);
                    run.host_bytes += wanted;
                }
            }
        }
        parts += self.read_run(now_ns, index, run);
        if from_dram > 0 {
            self.use_dram(now_ns, index, from_dram);
            parts += 1;
            self.stats.cache_read_hits += (parts == 1) as u64;
        }
        self.commands[index as usize].parts = parts;
        self.commands[index as usize].dram_bytes = from_dram;
        if parts == 0 {
            return self.finish(now_ns, index);
        }
        // Zeros are ready at once, and before all that has to be fetched.
        if zeros > 0 {
            self.link.send(now_ns, zeros);
        }
    }

    /// Reads within one map unit, as most reads are.
    #[inline(always)]
    fn read_slot(&mut self, now_ns: u64, index: u32, slot: u32) {
        let command = &mut self.commands[index as usize];
        let (first_byte, bytes) = (command.first_byte, command.bytes);
        command.parts = 1;
        command.dram_bytes = bytes;
        #[cfg(test)]
        self.witness_read(index, first_byte, first_byte + bytes);
        let at = match self.find(index, slot, (first_byte, first_byte + bytes)) {
            Found::Flash(at) => at,
            Found::Dram => {
                self.stats.cache_read_hits += 1;
                return self.use_dram(now_ns, index, bytes);
            }
            Found::Zeros => return self.finish(now_ns, index),
        };
        let part = PartBytes {
            channel: self.codewords.of_part(first_byte, first_byte + bytes),
            host: bytes,
        };
        self.read_page(now_ns, index, at, part);
    }

    #[inline(always)]
    fn find(&mut self, index: u32, slot: u32, part: (u64, u64)) -> Found {
        match self.ftl.locate(slot) {
            Located::Flash(_) if self.is_cached_read(index, slot) => Found::Dram,
            Located::Flash(at) => Found::Flash(at),
            Located::Buffered(_) => self.rest_of(slot, part).map_or(Found::Dram, Found::Flash),
            Located::Nowhere if self.spec.ftl.read_unwritten => {
                Found::Flash(self.ftl.home_of(slot))
            }
            Located::Nowhere => Found::Zeros,
        }
    }

    /// Reads a run, if there is one; returns how many parts of its command that
    /// is.
    fn read_run(&mut self, now_ns: u64, index: u32, run: Run) -> u32 {
        if run.host_bytes == 0 {
            return 0;
        }
        let part = PartBytes {
            channel: run.together.bytes,
            host: run.host_bytes,
        };
        self.read_page(now_ns, index, run.at, part);
        1
    }

    #[inline(always)]
    fn read_page(&mut self, now_ns: u64, owner: u32, at: u32, part: PartBytes) {
        if self.read_ahead.is_some() && self.joins_read_ahead(owner, at, part.host) {
            return;
        }
        let at = self.ftl.parts(at);
        let mut op = self.flash_op(
            Operation::Read,
            Source::Host,
            owner,
            at,
            part.channel as u32,
        );
        op.command = self.commands[owner as usize].number;
        self.stats.slc.pages_read += op.slc as u64;
        let op = self.flash.enqueue(now_ns, op);
        self.flash.transactions.waiting[op as usize].host_bytes = part.host as u32;
    }

    /// A page of a read is in the controller: it goes on to the host at once.
    #[inline(always)]
    pub(crate) fn host_read_done(&mut self, now_ns: u64, index: u32, read: Waiting) {
        self.commands[index as usize].waits.add(read.waits);
        // What the host did not ask for stays behind.
        let sent_ns = self.link.send(now_ns, read.host_bytes as u64);
        self.part_sent(sent_ns, index);
    }

    /// A transfer between controller and DRAM; the command is told of its end.
    pub(crate) fn use_dram(&mut self, now_ns: u64, index: u32, bytes: u64) {
        let cache = &self.spec.write_cache;
        let ns = cache.access_ns + bytes * cache.byte_ps / 1000;
        self.dram_ns = self.dram_ns.max(now_ns) + ns;
        self.flash.events.push(EventKind::DRAM, self.dram_ns, index);
    }
}
