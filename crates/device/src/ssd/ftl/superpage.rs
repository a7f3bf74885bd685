//! Superpages: the word lines of all planes, programmed together.
//!
//! Firmware writes blocks of all planes as one *superblock*, a stripe of word
//! lines at a time, so that one parity protects the stripe and one command
//! sequence serves all dies. So collection in one plane waits for that in the
//! others: all of them read what they move, then all of them program. A read
//! that comes meanwhile finds every die at work, not one.

use crate::ssd::Ssd;
use crate::ssd::flash::transaction::Transaction;

/// Word lines that wait for the rest of their stripe.
#[derive(Clone, Debug)]
pub(crate) struct Stripe {
    /// Their programs.
    programs: Vec<u32>,
    /// How many each plane has.
    of_plane: Vec<u32>,
    /// Planes where one of them is collection's.
    collected: Vec<bool>,
}

impl Stripe {
    pub(crate) fn new(planes: u32) -> Stripe {
        Stripe {
            programs: Vec::new(),
            of_plane: vec![0; planes as usize],
            collected: vec![false; planes as usize],
        }
    }

    pub(crate) fn clear(&mut self) {
        self.programs.clear();
        self.of_plane.fill(0);
        self.collected.fill(false);
    }
}

impl Ssd {
    /// Whether a program has to wait for others of its stripe.
    pub(crate) fn waits_for_stripe(&self, op: &Transaction) -> bool {
        self.stripe.is_some() && op.ready && self.flash.completes_word_line(op)
    }

    /// Whether collection in a plane has filled its part of the stripe.
    pub(crate) fn has_filled_stripe(&self, plane: u32) -> bool {
        let stripe = self.stripe.as_ref();
        stripe.is_some_and(|stripe| stripe.collected[plane as usize])
    }

    /// A word line of a plane is complete.
    pub(crate) fn join_stripe(&mut self, now_ns: u64, index: u32) {
        let (plane, collects) = {
            let op = &self.flash.transactions[index];
            (op.plane as usize, op.collects)
        };
        let Some(stripe) = &mut self.stripe else {
            return;
        };
        stripe.programs.push(index);
        stripe.of_plane[plane] += 1;
        stripe.collected[plane] |= collects;
        self.program_full_stripe(now_ns);
    }

    /// Programs the stripe if no plane that collects is behind.
    pub(crate) fn program_full_stripe(&mut self, now_ns: u64) {
        let Some(stripe) = &self.stripe else {
            return;
        };
        if stripe.programs.is_empty() {
            return;
        }
        let is_behind = |job: &crate::ssd::gc::victim::Job| {
            job.is_under_way() && !job.erasing && stripe.of_plane[job.to as usize] == 0
        };
        if !self.jobs.iter().any(is_behind) {
            self.program_stripe(now_ns);
        }
    }

    /// Programs what there is of the stripe.
    pub(crate) fn program_stripe(&mut self, now_ns: u64) {
        let Some(stripe) = &mut self.stripe else {
            return;
        };
        for index in stripe.programs.drain(..) {
            self.flash.make_ready(now_ns, index);
        }
        stripe.clear();
    }
}
