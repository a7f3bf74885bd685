//! The bus: when commands and data have crossed it, and the firmware's overheads of a
//! command before and after.

use blklab_blk::Op;

use super::{ActiveCommand, Event, Hdd};
use crate::CommandStatus;

impl Hdd {
    /// Transfers data that is ready at `now_ns`; returns when the transfer is over.
    pub(super) fn transfer(&mut self, now_ns: u64, bytes: u64) -> u64 {
        self.link_free_ns = self.link_free_ns.max(now_ns) + self.crossing_ns(bytes);
        self.link_free_ns
    }

    fn crossing_ns(&self, bytes: u64) -> u64 {
        bytes * self.spec.link.byte_ps / 1000
    }

    /// Whether a write's data is transferred before the firmware starts the command.
    pub(super) fn takes_data_first(&self, command: &ActiveCommand) -> bool {
        let past_buffer = !self.spec.cache.write_back || command.fua;
        let meanwhile = past_buffer && self.spec.link.write_watermark.is_some();
        command.op == Op::Write && !meanwhile
    }

    /// The firmware's time before it starts a command that has arrived.
    pub(super) fn overhead_ns(&mut self, now_ns: u64, index: u32) -> u64 {
        let op = self.commands[index as usize].op;
        let own = self.spec.overheads;
        let [after_read_ns, after_write_ns] = match op {
            Op::Read if self.is_buffer_hit(now_ns, index) => {
                [own.read_hit_after_read_ns, own.read_hit_after_write_ns]
            }
            Op::Read => [own.read_miss_after_read_ns, own.read_miss_after_write_ns],
            Op::Write => [own.write_after_read_ns, own.write_after_write_ns],
            _ => return 0,
        };
        match self.after_write {
            true => after_write_ns,
            false => after_read_ns,
        }
    }

    /// Whether a read's data is in the buffer, or about to be read ahead.
    fn is_buffer_hit(&mut self, now_ns: u64, index: u32) -> bool {
        let run = self.commands[index as usize].run;
        self.note_read_ahead(now_ns);
        self.read_buffer.holds(run)
            || self.dirty.covers(run)
            || self
                .read_ahead_end_ns(now_ns, self.not_in_buffer(run))
                .is_some()
    }

    /// Transfers the data of a write past the buffer while the arm moves.
    pub(super) fn take_data(&mut self, now_ns: u64, index: u32) {
        let command = self.commands[index as usize];
        let Some(watermark) = self.spec.link.write_watermark else {
            return;
        };
        let sectors = command.run.end - command.run.start;
        let all_ns = self.transfer(now_ns, sectors * 512);
        // The heads write a track after the other.
        let track_end = self.mechanics.track_end(command.run.start, 0);
        let on_track = sectors.min(track_end - command.run.start);
        let after_ns = self.crossing_ns((sectors - at_watermark(on_track, watermark)) * 512);
        self.commands[index as usize].data_ns = [all_ns.saturating_sub(after_ns), all_ns];
    }

    /// When a write may go to the platters: enough of its data is there, and the rest
    /// arrives before the heads need it.
    pub(super) fn may_write_from_ns(&self, index: u32) -> u64 {
        let ActiveCommand { run, data_ns, .. } = self.commands[index as usize];
        let transfer_ns = self.mechanics.transfer_ns(run.start, run.end - run.start);
        data_ns[0].max(data_ns[1].saturating_sub(transfer_ns))
    }

    /// Sends the data of a read that the heads have just finished; its first part may have
    /// crossed the bus meanwhile.
    pub(super) fn finish_read(&mut self, now_ns: u64, index: u32) {
        let ActiveCommand {
            run, started_ns, ..
        } = self.commands[index as usize];
        let Some(watermark) = self.spec.link.read_watermark else {
            return self.finish(now_ns, index);
        };
        let sectors = run.end - run.start;
        let first = at_watermark(sectors, watermark);
        let rest_ns = match sectors - first {
            0 => 0,
            rest => self.mechanics.transfer_ns(run.start + first, rest),
        };
        let from_ns = now_ns.saturating_sub(rest_ns).max(started_ns);
        let sent_ns = self.transfer(from_ns, sectors * 512);
        self.link_free_ns = sent_ns.max(now_ns + self.crossing_ns(512));
        self.complete_at(self.link_free_ns, index);
    }

    /// Sends a command's completion, and before that the data of a read.
    pub(super) fn finish(&mut self, now_ns: u64, index: u32) {
        let command = self.commands[index as usize];
        let bytes = match (command.op, command.status) {
            (Op::Read, CommandStatus::Ok) => (command.run.end - command.run.start) * 512,
            _ => 0,
        };
        let sent_ns = self.transfer(now_ns, bytes);
        self.complete_at(sent_ns, index);
    }

    fn complete_at(&mut self, sent_ns: u64, index: u32) {
        let own_ns = match self.commands[index as usize].op {
            Op::Read => self.spec.overheads.read_end_ns,
            Op::Write => self.spec.overheads.write_end_ns,
            _ => 0,
        };
        let left_ns = sent_ns + own_ns + self.spec.link.complete_ns;
        self.schedule(left_ns, Event::Completed(index));
    }
}

/// A share of `sectors`, in whole ones, and at least one.
fn at_watermark(sectors: u64, watermark: f64) -> u64 {
    ((sectors as f64 * watermark) as u64).clamp(1.min(sectors), sectors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watermark_is_in_whole_sectors() {
        let found = [(10, 0.25), (10, 0.0), (10, 1.0), (0, 0.5)];
        let found = found.map(|(sectors, watermark)| at_watermark(sectors, watermark));
        assert_eq!(found, [2, 1, 10, 0]);
    }
}
