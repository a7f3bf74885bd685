//! Programs that wait for a unit, in queues by plane.
//!
//! Pages of a block are programmed in order, so of a plane's programs only the
//! oldest may start. While a plane is collected hundreds wait for it; with a queue a
//! plane, partners for a multi-plane command are found without walking through them.

use alloc::vec;
use alloc::vec::Vec;

use crate::ssd::flash::multi_plane::Partners;
use crate::ssd::flash::transaction::{List, NONE, Operation, Transaction, Transactions};
use crate::ssd::flash::unit::Unit;

/// The programs of all planes that wait in their unit's queue, those of urgent
/// collection excepted.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// By plane. Where planes are filled in step, programs of collection have a list of
    /// their own (see [`crate::ssd::flash::multi_plane::HeldPlanes`]).
    lists: Vec<[List; 2]>,
    separate: bool,
}

impl Programs {
    pub(crate) fn new(planes: u32, partners: &Partners) -> Programs {
        Programs {
            lists: vec![[List::EMPTY; 2]; planes as usize],
            separate: partners.in_step,
        }
    }

    /// Nothing waits any more.
    pub(crate) fn clear(&mut self) {
        self.lists.fill([List::EMPTY; 2]);
    }

    #[inline]
    fn list_of(&mut self, op: &Transaction) -> &mut List {
        &mut self.lists[op.plane as usize][(op.collects && self.separate) as usize]
    }

    /// Queues a program.
    pub(crate) fn push(&mut self, transactions: &mut Transactions, unit: &mut Unit, index: u32) {
        unit.program_planes |= 1 << transactions[index].place;
        self.list_of(&transactions[index]).push(transactions, index);
    }

    /// Takes out the oldest program of its list.
    fn take(&mut self, transactions: &Transactions, unit: &mut Unit, index: u32) {
        let op = &transactions[index];
        self.list_of(op).pop(transactions);
        if self.lists[op.plane as usize].iter().all(List::is_empty) {
            unit.program_planes &= !(1 << op.place);
        }
    }

    /// Whether `found` is true of the first program of any list of the unit's `planes`
    /// (bits). A loop, since a chain of iterators is not always inlined here.
    #[inline(always)]
    fn find_first(&self, unit: &Unit, planes: u64, mut found: impl FnMut(u32) -> bool) -> bool {
        let mut left = unit.program_planes & planes;
        while left != 0 {
            let plane = unit.first_plane + left.trailing_zeros();
            left &= left - 1;
            for list in &self.lists[plane as usize] {
                if !list.is_empty() && found(list.head()) {
                    return true;
                }
            }
        }
        false
    }

    /// The oldest program that is first in its list and that `may` accepts.
    #[inline(always)]
    fn oldest_that(
        &self,
        transactions: &Transactions,
        unit: &Unit,
        planes: u64,
        may: impl Fn(&Transaction) -> bool,
    ) -> Option<u32> {
        let (mut oldest, mut arrival) = (None, u64::MAX);
        self.find_first(unit, planes, |index| {
            let op = &transactions[index];
            if op.arrival < arrival && may(op) {
                (oldest, arrival) = (Some(index), op.arrival);
            }
            false
        });
        oldest
    }

    /// The unit's oldest program.
    pub(crate) fn oldest(&self, transactions: &Transactions, unit: &Unit) -> Option<u32> {
        self.oldest_that(transactions, unit, u64::MAX, |_| true)
    }

    /// Whether one of a unit's programs may start: its data is complete, and no
    /// older program has to go first.
    pub(crate) fn any_startable(&self, transactions: &Transactions, unit: &Unit) -> bool {
        self.find_first(unit, u64::MAX, |index| transactions[index].ready)
    }

    /// Takes the oldest program of a unit that may start, and partners for it on other
    /// planes of its die; returns them and their number.
    pub(crate) fn take_group(
        &mut self,
        transactions: &mut Transactions,
        unit: &mut Unit,
        partners: &Partners,
    ) -> (List, u32) {
        let mut group = List::EMPTY;
        let Some(lead) = self.oldest_that(transactions, unit, u64::MAX, |op| op.ready) else {
            return (group, 0);
        };
        self.take(transactions, unit, lead);
        group.push(transactions, lead);
        let lead = transactions[lead];
        let mut open = !(partners.other_dies(&lead) | partners.bit(&lead));
        let mut taken = 1;
        while let Some(index) = self.oldest_that(transactions, unit, open, |op| {
            op.ready && partners.fit(&lead, op)
        }) && self.is_near(transactions, unit, partners, index, taken)
        {
            open &= !partners.bit(&transactions[index]);
            self.take(transactions, unit, index);
            group.push(transactions, index);
            taken += 1;
        }
        (group, taken)
    }

    /// Whether a program is within reach behind the first of the unit's programs,
    /// counting those that were `taken`.
    fn is_near(
        &self,
        transactions: &Transactions,
        unit: &Unit,
        partners: &Partners,
        index: u32,
        taken: u32,
    ) -> bool {
        let reach = partners.reach_of(Operation::Program);
        if unit.queued <= reach {
            return true;
        }
        let arrival = transactions[index].arrival;
        let mut before = taken;
        let unit_planes = unit.first_plane..unit.first_plane + partners.planes_per_unit;
        let lists = &self.lists[unit_planes.start as usize..unit_planes.end as usize];
        for list in lists.iter().flatten() {
            let mut index = list.head();
            while index != NONE && transactions[index].arrival < arrival {
                before += 1;
                if before > reach {
                    return false;
                }
                index = transactions[index].next;
            }
        }
        true
    }

    /// Takes out all of a unit's programs that `belong`, oldest first.
    pub(crate) fn sift(
        &mut self,
        transactions: &mut Transactions,
        unit: &mut Unit,
        belongs: impl Fn(&Transaction) -> bool + Copy,
    ) -> List {
        let mut sifted = Vec::new();
        let planes = self.lists.len() as u32;
        let first = unit.first_plane;
        for plane in first..planes.min(first + u64::BITS) {
            if unit.program_planes >> (plane - first) & 1 == 0 {
                continue;
            }
            let lists = &mut self.lists[plane as usize];
            for list in lists.iter_mut() {
                let mut found = list.sift(transactions, belongs);
                sifted.extend(core::iter::from_fn(|| found.pop(transactions)));
            }
            if lists.iter().all(List::is_empty) {
                unit.program_planes &= !(1 << (plane - first));
            }
        }
        sifted.sort_unstable_by_key(|index| transactions[*index].arrival);
        let mut list = List::EMPTY;
        sifted
            .iter()
            .for_each(|index| list.push(transactions, *index));
        list
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ssd::flash::multi_plane::take_group;
    use crate::ssd::flash::transaction::{FlashPage, Source};

    /// A program of a unit of two dies with two planes each.
    fn program(plane: u32, page: u32, ready: bool, collects: bool) -> Transaction {
        let at = FlashPage {
            plane,
            block: plane,
            page,
        };
        Transaction {
            place: plane as u8,
            die: (plane / 2) as u8,
            collects,
            ready,
            ..Transaction::new(Operation::Program, Source::Program, 0, at, 4096)
        }
    }

    fn arrivals(transactions: &Transactions, group: List) -> Vec<u64> {
        transactions.of(group).map(|op| op.arrival).collect()
    }

    proptest! {
        #[test]
        fn groups_are_those_of_a_walk_through_one_list(
            programs in prop::collection::vec(
                (0u32..4, 0u32..3, prop::bool::weighted(0.8), any::<bool>()), 1..40),
            reach in 0u32..12,
            same_page: bool,
            in_step: bool,
        ) {
            let partners = Partners {
                planes_per_unit: 4,
                planes_per_die: 2,
                same_page,
                reach,
                superpage: false,
                in_step,
            };
            let mut unit = Unit::new(0, 1, 0);
            let (mut transactions, mut list) = (Transactions::new(), List::EMPTY);
            let mut waiting = Programs::new(4, &partners);
            for (plane, page, ready, collects) in programs {
                let index = transactions.insert(program(plane, page, ready, collects));
                list.push(&mut transactions, index);
                unit.queued += 1;
            }
            let mut apart = transactions.clone();
            for index in 0..unit.queued {
                waiting.push(&mut apart, &mut unit, index);
            }
            loop {
                let (one_list, taken) = take_group(&mut transactions, &mut list, &partners, 0, None);
                let (by_plane, found) = waiting.take_group(&mut apart, &mut unit, &partners);
                prop_assert_eq!(found, taken);
                prop_assert_eq!(arrivals(&apart, by_plane), arrivals(&transactions, one_list));
                unit.queued -= taken;
                if taken == 0 {
                    break;
                }
            }
        }
    }
}
