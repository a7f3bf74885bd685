//! Discards and write-zeroes: no data moves, the firmware goes through the map.

use crate::Command;
use crate::ssd::Ssd;
use crate::ssd::events::EventKind;

impl Ssd {
    /// How long the firmware goes through the map for a discard.
    #[inline(never)]
    pub(crate) fn discard_walk_ns(&self, command: &Command) -> u64 {
        let unit_sectors = (self.spec.ftl.map_unit_bytes / 512).max(1);
        // Units covered in part are not discarded.
        let units = match self.takes(command) {
            true => command.sectors / unit_sectors,
            false => 0,
        };
        units as u64 * self.spec.controller.discard_unit_ps / 1000
    }

    #[inline(never)]
    pub(crate) fn fetch_discard(&mut self, taken_ns: u64, index: u32, command: &Command) {
        let ns = self.spec.controller.discard_ns + self.discard_walk_ns(command);
        let lanes = &mut self.flash.events;
        lanes.push(EventKind::ARRIVING, taken_ns + ns, index);
    }

    pub(crate) fn start_discard(&mut self, now_ns: u64, index: u32) {
        // Map units that are covered in part keep their data.
        let fetches = self.discard_whole_units(now_ns, index);
        self.commands[index as usize].parts = fetches;
        if fetches == 0 {
            self.finish(now_ns, index);
        }
    }

    /// Discarded units read as zeros; those covered in part are written.
    pub(crate) fn start_write_zeroes(&mut self, now_ns: u64, index: u32) {
        let fetches = self.discard_whole_units(now_ns, index);
        self.commands[index as usize].parts = fetches;
        if fetches == 0 {
            self.start_write(now_ns, index);
        }
    }

    /// Returns how many pages of the map the command has to wait for.
    fn discard_whole_units(&mut self, now_ns: u64, index: u32) -> u32 {
        let command = &self.commands[index as usize];
        let unit = self.spec.ftl.map_unit_bytes as u64;
        let start = command.first_byte.div_ceil(unit);
        let end = (command.first_byte + command.bytes) / unit;
        if start >= end {
            return 0;
        }
        self.forget_partial(start as u32, end);
        self.ftl.discard(start as u32, end);
        self.log_is_dirty = true;
        if let Some(cache) = &mut self.read_cache {
            cache.remove_range(start as u32, end);
        }
        self.discard_map(now_ns, index, start, end)
    }
}
