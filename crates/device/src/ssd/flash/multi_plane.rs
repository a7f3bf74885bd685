//! Multi-plane commands: which transactions on planes of a die run as one.

use alloc::vec;
use alloc::vec::Vec;

use crate::ssd::flash::transaction::{List, NONE, Operation, Transaction, Transactions};
use crate::ssd::spec::{MultiPlane, SsdSpec};

/// Which transactions may run as one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partners {
    pub(crate) planes_per_unit: u32,
    pub(crate) planes_per_die: u32,
    pub(crate) same_page: bool,
    /// How many transactions behind the first are searched for partners.
    pub(crate) reach: u32,
    pub(crate) superpage: bool,
    /// Planes of a die are filled in step.
    pub(crate) in_step: bool,
}

impl Partners {
    pub(crate) fn new(spec: &SsdSpec, planes_per_unit: u32) -> Partners {
        Partners {
            planes_per_unit,
            planes_per_die: spec.geometry.planes_per_die,
            same_page: spec.flash.multi_plane == MultiPlane::SamePage,
            reach: match spec.flash.multi_plane {
                MultiPlane::None => 0,
                _ => spec.flash.multi_plane_reach,
            },
            superpage: spec.flash.superpage,
            in_step: spec.planes_per_row() > 1,
        }
    }

    /// How many transactions behind the first are searched for partners; all programs
    /// of a superpage, which are laid out so that planes work together.
    #[inline]
    pub(crate) fn reach_of(&self, kind: Operation) -> u32 {
        match kind == Operation::Program && self.superpage {
            true => u32::MAX,
            false => self.reach,
        }
    }

    /// The plane of a transaction as a bit within its unit.
    #[inline]
    pub(crate) fn bit(&self, op: &Transaction) -> u64 {
        1 << op.place
    }

    /// The unit's planes that are in another die than a transaction's.
    #[inline]
    pub(crate) fn other_dies(&self, op: &Transaction) -> u64 {
        let per_die = self.planes_per_die;
        let first = op.die as u32 * per_die;
        self.all_planes() & !((u64::MAX >> (64 - per_die)) << first)
    }

    /// The bits of all planes of a unit.
    #[inline]
    pub(crate) fn all_planes(&self) -> u64 {
        u64::MAX >> (64 - self.planes_per_unit)
    }

    /// Whether two transactions on different planes of a unit may run as one command.
    #[inline]
    pub(crate) fn fit(&self, lead: &Transaction, other: &Transaction) -> bool {
        // The most selective condition comes first.
        (!self.same_page || lead.page == other.page)
            && lead.die == other.die
            && lead.kind == other.kind
            && lead.slc == other.slc
            && (lead.copies == NONE) == (other.copies == NONE)
            && self.reach > 0
    }
}

/// Number of queued reads by plane: while a plane is collected there are hundreds, and
/// the search for partners skips planes without any.
#[derive(Clone, Debug)]
pub(crate) struct QueuedReads(Vec<u32>);

impl QueuedReads {
    pub(crate) fn new(planes: u32) -> QueuedReads {
        QueuedReads(vec![0; planes as usize])
    }

    /// A read is queued.
    #[inline]
    pub(crate) fn put(&mut self, plane: u32) {
        self.0[plane as usize] += 1;
    }

    /// The reads of a command are not queued any more.
    #[inline(always)]
    pub(crate) fn take(&mut self, transactions: &Transactions, group: List) {
        let mut index = group.head();
        while index != NONE {
            let op = &transactions[index];
            self.0[op.plane as usize] -= (op.kind == Operation::Read) as u32;
            index = op.next;
        }
    }

    /// Nothing is queued any more.
    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// The planes of a read's die for which none is queued, as bits of its unit.
    fn none_in(&self, lead: &Transaction, partners: &Partners) -> u64 {
        let first_place = lead.die as u32 * partners.planes_per_die;
        let first_plane = lead.plane - lead.place as u32 + first_place;
        (0..partners.planes_per_die.min(partners.planes_per_unit))
            .filter(|place| self.0[(first_plane + place) as usize] == 0)
            .fold(0, |bits, place| bits | 1 << (first_place + place))
    }
}

/// Planes where a program has to wait for an older one, since pages of a block are
/// programmed in order. Where planes are filled in step, programs of the host and of
/// collection, which go to different blocks, do not wait for each other: otherwise
/// neither would find partners on all planes of its row.
pub(crate) struct HeldPlanes {
    planes: [u64; 2],
    separate: bool,
}

impl HeldPlanes {
    pub(crate) fn none(partners: &Partners) -> HeldPlanes {
        HeldPlanes {
            planes: [0; 2],
            separate: partners.in_step,
        }
    }

    /// Whether a program in a plane, by its bit, has to wait.
    #[inline]
    pub(crate) fn holds(&self, op: &Transaction, bit: u64) -> bool {
        self.planes[(op.collects && self.separate) as usize] & bit != 0
    }

    /// Has younger programs of its plane wait for this one.
    #[inline]
    pub(crate) fn hold(&mut self, op: &Transaction, bit: u64) {
        self.planes[(op.collects && self.separate) as usize] |= bit;
    }

    /// The planes in which every younger program has to wait.
    #[inline]
    fn whole(&self) -> u64 {
        match self.separate {
            true => self.planes[0] & self.planes[1],
            false => self.planes[0],
        }
    }
}

/// Takes the first of a list of reads, all of which may start, and partners for it on
/// other planes of its die; returns them and their number.
#[inline(always)]
pub(crate) fn take_reads(
    transactions: &mut Transactions,
    list: &mut List,
    partners: &Partners,
    queued: &QueuedReads,
) -> (List, u32) {
    if list.is_single() {
        return (core::mem::replace(list, List::EMPTY), 1);
    }
    take_reads_of_several(transactions, list, partners, queued)
}

/// The same from a list of several.
fn take_reads_of_several(
    transactions: &mut Transactions,
    list: &mut List,
    partners: &Partners,
    queued: &QueuedReads,
) -> (List, u32) {
    let mut group = List::EMPTY;
    let Some(lead) = list.pop(transactions) else {
        return (group, 0);
    };
    group.push(transactions, lead);
    let lead = transactions[lead];
    let mut closed = partners.other_dies(&lead) | partners.bit(&lead);
    closed |= queued.none_in(&lead, partners);
    let (mut before, mut index, mut taken) = (NONE, list.head(), 1);
    for _ in 0..partners.reach {
        if index == NONE || closed == partners.all_planes() {
            break;
        }
        let op = &transactions[index];
        let (next, bit) = (op.next, partners.bit(op));
        if partners.fit(&lead, op) && closed & bit == 0 {
            list.unlink(transactions, before, index);
            if before != NONE {
                transactions[before].next = next;
            }
            group.push(transactions, index);
            closed |= bit;
            taken += 1;
        } else {
            before = index;
        }
        index = next;
    }
    (group, taken)
}

/// Takes the first transaction that may start, and partners for it on other planes of
/// its die; returns them and their number.
///
/// `no_erase` are planes of the unit where no erase may start; `only` is the one
/// kind to take from a list of several.
#[inline(always)]
pub(crate) fn take_group(
    transactions: &mut Transactions,
    list: &mut List,
    partners: &Partners,
    no_erase: u64,
    only: Option<Operation>,
) -> (List, u32) {
    if list.is_single() && transactions[list.head()].ready {
        return (core::mem::replace(list, List::EMPTY), 1);
    }
    take_group_of_several(transactions, list, partners, no_erase, only)
}

/// The same from a list of several.
fn take_group_of_several(
    transactions: &mut Transactions,
    list: &mut List,
    partners: &Partners,
    no_erase: u64,
    only: Option<Operation>,
) -> (List, u32) {
    let mut group = List::EMPTY;
    let (mut before, mut index) = (NONE, list.head());
    let (mut lead, mut taken, mut looked) = (NONE, 0, 0);
    // Planes that are taken or of other dies: the search ends when it has all.
    let mut closed = 0u64;
    let mut held = HeldPlanes::none(partners);
    while index != NONE && closed != partners.all_planes() {
        let op = &transactions[index];
        let bit = partners.bit(op);
        let waits = match op.kind {
            kind if only.is_some_and(|only| only != kind) => true,
            Operation::Read => false,
            Operation::Program => !op.ready || held.holds(op, bit),
            Operation::Erase => no_erase & bit != 0,
        };
        let is_open = !waits && closed & bit == 0;
        if is_open && (taken == 0 || partners.fit(&transactions[lead], op)) {
            if taken == 0 {
                closed |= partners.other_dies(op);
            }
            lead = index;
            let next = list.unlink(transactions, before, index);
            if before != NONE {
                transactions[before].next = next;
            }
            group.push(transactions, index);
            taken += 1;
            closed |= bit;
            if partners.reach == 0 || taken == partners.planes_per_die {
                break;
            }
            index = next;
        } else {
            if op.kind == Operation::Program {
                held.hold(op, bit);
            }
            before = index;
            index = op.next;
        }
        looked += 1;
        if taken > 0 {
            let kind = transactions[lead].kind;
            let waiting = match kind {
                Operation::Program => held.whole(),
                _ => 0,
            };
            // No partner is left, or none within reach.
            if closed | waiting == partners.all_planes() || looked > partners.reach_of(kind) {
                break;
            }
        }
    }
    (group, taken)
}
