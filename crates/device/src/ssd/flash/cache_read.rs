//! ONFI's read cache commands: a die reads on while what it has read goes out.

use crate::ssd::flash::Flash;
use crate::ssd::flash::transaction::{List, NONE};
use crate::ssd::flash::unit::Phase;

impl Flash {
    /// What the array has read goes to the cache register, and out from there;
    /// the array may go on.
    #[inline(never)]
    pub(crate) fn fill_cache_register(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        unit.outgoing = std::mem::replace(&mut unit.group, List::EMPTY);
        let (channel_index, mut index) = (unit.channel, unit.outgoing.head());
        self.release(now_ns, unit_index);
        let channel = &mut self.channels[channel_index as usize];
        while index != NONE {
            channel.put_output(now_ns, index);
            self.transactions.is_ready(index, now_ns);
            index = self.transactions[index].next;
        }
    }

    /// Starts the next read of a die whose cache register is full, before that
    /// goes out: ONFI's read cache command does both at once.
    #[inline(never)]
    pub(crate) fn read_on(&mut self, now_ns: u64, channel_index: u32) -> bool {
        let mut waiting = self.ready_units(channel_index);
        while waiting != 0 {
            let place = waiting.trailing_zeros();
            waiting &= waiting - 1;
            let unit_index = self.channels[channel_index as usize].first_unit + place;
            let is_full = !self.units[unit_index as usize].outgoing.is_empty();
            if is_full && self.start_read(now_ns, channel_index, place) {
                return true;
            }
        }
        false
    }

    /// A read's data has left the cache register.
    #[inline(never)]
    pub(crate) fn leave_cache_register(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        unit.outgoing.pop(&self.transactions);
        if !unit.outgoing.is_empty() {
            return;
        }
        match unit.phase {
            Phase::Output => self.fill_cache_register(now_ns, unit_index),
            Phase::Idle if unit.queued > 0 => {
                let (channel_index, bit) = (unit.channel, unit.bit);
                self.channels[channel_index as usize].set_ready(now_ns, bit);
            }
            _ => {}
        }
    }
}
