//! Physically addressed queueing: the controller orders reads by where on the
//! flash they go (Jung, Wilson and Kandemir, "Physically Addressed Queueing",
//! ISCA 2012).
//!
//! Two things make it more than serving each die as it comes. *Clumping*: reads
//! for idle dies of a channel start together, before data that is ready takes
//! the bus, so that dies sense at the same time instead of waiting for each
//! other's transfers. *Packing*: of the reads that wait for a die, the one goes
//! first that most others can join in a multi-plane command, whoever's they are.

use crate::ssd::flash::transaction::{List, NONE, Operation, Transactions};
use crate::ssd::flash::{Flash, Partners};

/// Reads of a die that are compared.
const WINDOW: u32 = 16;
/// The oldest read is passed over at most this many times.
const MOST_PASSES: u32 = 8;

/// Reads whose order it changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PaqCounts {
    pub(crate) packed: u64,
    pub(crate) clumped: u64,
}

impl Flash {
    /// Starts a read on an idle die of a channel whose bus is free, although
    /// data is ready for it.
    #[inline(never)]
    pub(crate) fn clump(&mut self, now_ns: u64, channel_index: u32) -> bool {
        let mut waiting = self.ready_units(channel_index);
        while waiting != 0 {
            let place = waiting.trailing_zeros();
            waiting &= waiting - 1;
            if self.start_read(now_ns, channel_index, place) {
                self.counts.paq.clumped += 1;
                return true;
            }
        }
        false
    }
}

/// Puts the read first that the most others can join; `passed` counts how often the
/// oldest was passed over. Returns whether it was passed over now.
pub(crate) fn pack(
    transactions: &mut Transactions,
    reads: &mut List,
    partners: &Partners,
    passed: &mut u32,
) -> bool {
    let oldest = reads.head();
    if oldest == NONE || *passed >= MOST_PASSES {
        *passed = 0;
        return false;
    }
    let (mut best, mut most) = ((NONE, oldest), 0);
    let (mut before, mut lead) = (NONE, oldest);
    for _ in 0..WINDOW {
        if lead == NONE {
            break;
        }
        let joined = joins(transactions, oldest, lead, partners);
        if joined > most {
            (best, most) = ((before, lead), joined);
        }
        (before, lead) = (lead, transactions[lead].next);
    }
    let (before, lead) = best;
    if lead == oldest {
        *passed = 0;
        return false;
    }
    let next = reads.unlink(transactions, before, lead);
    transactions[before].next = next;
    reads.push_front(transactions, lead);
    *passed += 1;
    true
}

/// Planes that a command led by `lead` would read.
fn joins(transactions: &Transactions, oldest: u32, lead: u32, partners: &Partners) -> u32 {
    let mut planes = 0u64;
    let mut index = oldest;
    for _ in 0..WINDOW {
        if index == NONE {
            break;
        }
        if index == lead || partners.fit(&transactions[lead], &transactions[index]) {
            debug_assert_eq!(transactions[index].kind, Operation::Read);
            planes |= partners.bit(&transactions[index]);
        }
        index = transactions[index].next;
    }
    planes.count_ones()
}
