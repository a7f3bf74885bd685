//! Which request goes next.

use blklab_blk::{Nanos, RequestId, RqList, SchedCtx};

use super::mark::{Class, Mark};
use super::tunables::{DIE_DEPTH, OVERTAKE, READ_LEAD, READS_RUN, WRITE_RUN, WRITE_SHARE};
use super::{Ac2, ELV_CAME, READ, READS_RECENT, WRITE, is_recent};

impl Ac2 {
    /// The first of each kind's oldest that is late.
    pub(super) fn late_request(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let reads = self.read_deadlines.iter().filter_map(RqList::front);
        let writes = self.writes.iter().filter_map(RqList::front);
        reads
            .chain(writes)
            .find(|&id| ctx.rqs[id].fifo_time <= ctx.now)
    }

    /// Whether the oldest write goes before this read. A light submitter's read
    /// it lets pass, but no more than `reads_run` in a row; a deep one's that came
    /// no more than `read_lead` requests after it.
    fn write_goes_before(&self, ctx: &SchedCtx<'_>, read: RequestId) -> bool {
        if self.run[WRITE] > 0 && self.run[WRITE] < self.tunables.at(WRITE_RUN) {
            return true;
        }
        let rq = &ctx.rqs[read];
        if Mark::of(rq).class() == Class::Light {
            return self.run[READ] >= self.tunables.at(READS_RUN);
        }
        let lead = self.tunables.at(READ_LEAD) as u64;
        let oldest = self.writes.iter().find_map(RqList::front);
        oldest.is_some_and(|write| ctx.rqs[write].serial + lead < rq.serial)
    }

    /// The place of a deep submitter's read in the order of arrival, put back by
    /// `overtake` for each request that its die has in the drive.
    fn place(&self, ctx: &SchedCtx<'_>, id: RequestId) -> i64 {
        let rq = &ctx.rqs[id];
        let waiting_before = rq.elv[ELV_CAME].wrapping_sub(self.deep_left) as i32 as i64;
        let load = self.loads.load[Mark::of(rq).die()] as i64;
        waiting_before + load * self.tunables.at(OVERTAKE)
    }

    /// The read of the least loaded die, light submitters' before others. Of a
    /// deep submitter's, none where its die has `die_depth` in the drive and a
    /// light one may come: what is in the drive already cannot be passed.
    fn choose_read(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let light = self
            .loads
            .least(self.held[Class::Light as usize], self.next_die);
        if let Some(die) = light {
            return self.dies[die][Class::Light as usize].front();
        }
        let most = self.tunables.at(DIE_DEPTH);
        let light_may_come = most > 0 && self.light_may_come(ctx.now);
        let may_go = |id: &RequestId| {
            !light_may_come || (self.loads.load[Mark::of(&ctx.rqs[*id]).die()] as i64) < most
        };
        let mut left = self.held[Class::Deep as usize];
        let heads = std::iter::from_fn(|| {
            let die = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(die)
        });
        heads
            .filter_map(|die| self.dies[die][Class::Deep as usize].front())
            .chain(self.read_stream.front())
            .filter(may_go)
            .min_by_key(|&id| self.place(ctx, id))
    }

    /// The next write of the present block; with none left, the older of the
    /// streams' next and the oldest of all, whose block becomes the present one.
    fn choose_write(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        if let Some(id) = self.blocks.front() {
            return Some(id);
        }
        let oldest = self.writes.iter().find_map(RqList::front)?;
        let stream = self.write_stream.front();
        if let Some(stream) = stream
            && (ctx.rqs[stream].serial <= ctx.rqs[oldest].serial)
        {
            return Some(stream);
        }
        if Mark::of(&ctx.rqs[oldest]).class() == Class::Block {
            self.blocks.start(ctx.rqs, oldest);
            self.bundles += 1;
        }
        Some(oldest)
    }

    /// Whether writes have their share of the drive while reads need theirs.
    fn writes_have_their_share(&self, now: Nanos) -> bool {
        let recent = self.in_drive[READ] > 0 || is_recent(self.last_read, now, READS_RECENT);
        let depth = self.info.queue_depth as i64;
        let most = (depth * self.tunables.at(WRITE_SHARE) / 100).max(1);
        recent && self.in_drive[WRITE] as i64 >= most
    }

    pub(super) fn next_in_turn(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let read = self.choose_read(ctx);
        let may_write = self.has_writes() && !self.writes_have_their_share(ctx.now);
        let write_first = read.is_none_or(|read| self.write_goes_before(ctx, read));
        if may_write && write_first {
            return self.choose_write(ctx);
        }
        self.held_back += (read.is_none() && self.has_writes()) as u64;
        read
    }
}
