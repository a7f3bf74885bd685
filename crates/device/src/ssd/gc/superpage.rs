//! Superpages: the word lines of all planes, programmed together.
//!
//! Firmware writes blocks of all planes as one *superblock*, a stripe of word lines
//! at a time, so that one parity protects the stripe and one command sequence serves
//! all dies. So collection in one plane waits for the others: all of them read what
//! they move, then all of them program. A host read meanwhile finds every die busy
//! instead of one.

use alloc::vec;
use alloc::vec::Vec;

use super::{Collector, Job, Media};
use crate::ssd::flash::transaction::Transaction;

/// Word lines that wait for the rest of their superpage.
#[derive(Clone, Debug)]
pub(crate) struct Superpage {
    /// Their programs.
    programs: Vec<u32>,
    /// The number of these in each plane.
    of_plane: Vec<u32>,
    /// Whether one of these in each plane is collection's.
    collected: Vec<bool>,
}

impl Superpage {
    pub(crate) fn new(planes: u32) -> Superpage {
        Superpage {
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

impl Collector {
    /// Whether a program has to wait for others of its superpage.
    pub(crate) fn waits_for_superpage(&self, ctx: &Media, op: &Transaction) -> bool {
        self.superpage.is_some() && op.ready && ctx.flash.completes_word_line(op)
    }

    /// Whether collection in a plane has filled its part of the superpage.
    pub(crate) fn has_filled_superpage(&self, plane: u32) -> bool {
        let superpage = self.superpage.as_ref();
        superpage.is_some_and(|superpage| superpage.collected[plane as usize])
    }

    /// A word line of a plane is complete.
    pub(crate) fn join_superpage(&mut self, ctx: &mut Media, now_ns: u64, index: u32) {
        let (plane, collects) = {
            let op = ctx.flash.transaction(index);
            (op.plane as usize, op.collects)
        };
        let Some(superpage) = &mut self.superpage else {
            return;
        };
        superpage.programs.push(index);
        superpage.of_plane[plane] += 1;
        superpage.collected[plane] |= collects;
        self.program_full_superpage(ctx, now_ns);
    }

    /// Programs the superpage if every plane with a collection has its part.
    pub(crate) fn program_full_superpage(&mut self, ctx: &mut Media, now_ns: u64) {
        let Some(superpage) = &self.superpage else {
            return;
        };
        if superpage.programs.is_empty() {
            return;
        }
        let is_behind = |job: &Job| {
            job.is_under_way() && !job.erasing && superpage.of_plane[job.to as usize] == 0
        };
        if !self.jobs.iter().any(is_behind) {
            self.program_superpage(ctx, now_ns);
        }
    }

    /// Programs the superpage, complete or not.
    pub(crate) fn program_superpage(&mut self, ctx: &mut Media, now_ns: u64) {
        let Some(superpage) = &mut self.superpage else {
            return;
        };
        for index in superpage.programs.drain(..) {
            ctx.flash.make_ready(now_ns, index);
        }
        superpage.clear();
    }
}
