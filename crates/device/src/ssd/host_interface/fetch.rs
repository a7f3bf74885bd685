//! How the controller takes commands: when, how often, and which it refuses.

use blklab_blk::Op as HostOp;

use crate::ssd::Ssd;
use crate::ssd::events::EventKind;
use crate::ssd::ftl::Located;
use crate::{Command, CommandStatus};

impl Ssd {
    /// How long the controller takes no other command after this one.
    #[inline]
    fn interval_ns(&self, command: &Command) -> u64 {
        let controller = &self.spec.controller;
        if matches!(command.op, HostOp::Discard | HostOp::WriteZeroes) {
            return controller.interval_ns + self.discard_walk_ns(command);
        }
        match controller.page_interval_ns {
            page_ns if page_ns > 0 && command.op == HostOp::Read => {
                controller.interval_ns + self.further_pages(command) * page_ns
            }
            _ => controller.interval_ns,
        }
    }

    /// Pages of the flash that a read is spread over beyond its first.
    #[inline(never)]
    fn further_pages(&self, command: &Command) -> u64 {
        let unit_bits = self.spec.ftl.map_unit_bytes.trailing_zeros();
        let end_byte = command.sector.bytes() + command.sectors as u64 * 512;
        let first = command.sector.bytes() >> unit_bits;
        let last = (end_byte - 1) >> unit_bits;
        if first == last || !self.takes(command) {
            return 0;
        }
        let mut before = None;
        let mut pages = 0u64;
        for slot in first as u32..=last as u32 {
            let Located::Flash(at) = self.ftl.locate(slot) else {
                continue;
            };
            let is_another = before.is_none_or(|before| !self.ftl.same_page(before, at));
            pages += is_another as u64;
            before = Some(at);
        }
        pages.saturating_sub(1)
    }

    /// Whether a command is one that the drive can carry out.
    pub(crate) fn takes(&self, command: &Command) -> bool {
        command.fits(self.spec.identity.capacity_sectors)
            && (command.op != HostOp::Discard || self.spec.identity.discard)
    }

    /// Takes a command that the controller knows of from `visible_ns` on.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, visible_ns: u64, index: u32, command: &Command) {
        let taken_ns = self.controller_ns.max(visible_ns);
        self.controller_ns = taken_ns + self.interval_ns(command);
        let takes = self.takes(command);
        if !takes {
            self.commands[index as usize].status = CommandStatus::IoError;
        } else if matches!(command.op, HostOp::Discard | HostOp::WriteZeroes) {
            return self.fetch_discard(taken_ns, index, command);
        } else if command.op == HostOp::Write {
            self.stats.host_sectors_written += command.sectors as u64;
            let (first, last) = self.slots_of(index);
            (first..last + 1).for_each(|slot| self.ftl.prefetch(slot));
            if self.link.is_shared() {
                // Until then the cable may serve the other direction.
                return self.flash.events.push(EventKind::ARRIVING, taken_ns, index);
            }
            return self.receive(taken_ns, index);
        }
        let controller = &self.spec.controller;
        let at_ns = taken_ns + controller.read_ns;
        if self.next_ns() > at_ns
            && controller.read_ns <= controller.write_ns
            && self.arbiter.is_none()
            && !self.link.is_shared()
        {
            // Nothing happens inside before it arrives, and nothing that comes
            // later from outside can arrive earlier, since the controller takes
            // no longer for this than for a write: it may as well be there.
            return match command.op {
                HostOp::Read if takes => self.start_read(at_ns, index),
                _ => self.arrive(at_ns, index),
            };
        }
        self.flash.events.push(EventKind::ARRIVING, at_ns, index);
    }

    /// A write's data follows its command over the link.
    #[inline]
    pub(crate) fn receive(&mut self, now_ns: u64, index: u32) {
        let received_ns = self
            .link
            .receive(now_ns, self.commands[index as usize].bytes);
        let at_ns = received_ns + self.spec.controller.write_ns;
        self.flash.events.push(EventKind::RECEIVING, at_ns, index);
    }
}
