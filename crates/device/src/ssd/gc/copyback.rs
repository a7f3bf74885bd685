//! Copyback: collection moves whole pages within their plane, without the channel.
//!
//! Some flash copies only from odd pages to odd ones and from even to even: both
//! have to be on the same of two sides of the page buffer. The pages of a victim
//! need not be moved in their order, so the next one is taken from those of the
//! same parity as the page that it goes to, as long as there are any.

use super::{Collector, Job, Media};
use crate::ssd::flash::transaction::{Operation, Transaction};
use crate::ssd::ftl::copies::Holds;
use crate::ssd::spec::Copyback;

impl Collector {
    /// The page of its victim that a collection should look at next, if any is left.
    pub(crate) fn page_to_move(
        &mut self,
        ctx: &mut Media,
        plane: u32,
        job: &mut Job,
    ) -> Option<u32> {
        if ctx.spec.flash.copyback == Copyback::SameParity
            && let Some(to) = self.copied_to(ctx, plane, job)
        {
            let next = &mut job.next_of_parity[to as usize % 2];
            while *next < job.pages && self.bytes_to_move(ctx, job.victim, *next) == 0 {
                *next += 2;
            }
            if *next < job.pages {
                return Some(*next);
            }
        }
        job.has_pages_left().then(|| job.next_page())
    }

    /// The page that a copy within the plane would become now; `None` for a
    /// collection that is not to be copied so.
    fn copied_to(&self, ctx: &Media, plane: u32, job: &Job) -> Option<u32> {
        match !job.slc && job.to == plane {
            true => ctx.ftl.next_page(plane, job.stream),
            false => None,
        }
    }

    /// A page that was to be copied on the chip is not whole any more, or its
    /// place has been taken: what is left of it goes over the channel.
    pub(crate) fn read_instead_of_copying(
        &mut self,
        ctx: &mut Media,
        now_ns: u64,
        op: &Transaction,
    ) {
        let bytes = self.bytes_to_move(ctx, op.block, op.page);
        let job = &mut self.jobs[op.plane as usize];
        job.copies = false;
        if bytes == 0 {
            job.reads -= 1;
            return self.continue_collection(ctx, now_ns, op.plane);
        }
        self.enqueue_collection(ctx, now_ns, Operation::Read, op.at(), bytes, op.priority);
    }

    /// Whether a page can be copied within its plane as it is: all of it is
    /// wanted, and it becomes a page of its own at a place that copyback
    /// reaches. The array reads it into the plane's page register, in its turn
    /// like all that collection reads, and programs it from there. (Until the
    /// copy is programmed, its slots are read as if they were in DRAM.)
    pub(crate) fn copies_on_chip(&self, ctx: &Media, plane: u32, job: &Job, page: u32) -> bool {
        let reached = match ctx.spec.flash.copyback {
            Copyback::None => false,
            Copyback::SamePlane => self.copied_to(ctx, plane, job).is_some(),
            Copyback::SameParity => {
                let to = self.copied_to(ctx, plane, job);
                to.is_some_and(|to| to % 2 == page % 2)
            }
        };
        let first = ctx.ftl.page_start(job.victim, page);
        let mut slots = first..first + ctx.ftl.slots_per_page();
        reached && slots.all(|at| ctx.ftl.holds(at) != Holds::Nothing)
    }
}
