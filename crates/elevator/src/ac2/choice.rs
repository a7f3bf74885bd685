//! Which request goes next.

use blklab_blk::{Nanos, RequestId, RqList, SchedCtx};

use super::mark::{Class, Mark};
use super::tunables::{DIE_DEPTH, OVERTAKE, READS_RUN, WRITE_RUN, WRITE_SHARE};
use super::{Ac2, ELV_CAME, LIGHT_RECENT, READ, READS_RECENT, WRITE, is_recent};

impl Ac2 {
    /// The first of each kind's oldest that is late.
    pub(super) fn late_request(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let reads = self.read_deadlines.iter().filter_map(RqList::front);
        let writes = self.writes.iter().filter_map(RqList::front);
        reads
            .chain(writes)
            .find(|&id| ctx.rqs[id].fifo_time <= ctx.now)
    }

    fn first_direction(&self) -> usize {
        let watched = self.run[READ] >= self.tunables.at(READS_RUN);
        let running = self.run[WRITE] > 0 && self.run[WRITE] < self.tunables.at(WRITE_RUN);
        (watched || running) as usize
    }

    /// The oldest read, where all are deep submitters', once as many younger ones
    /// have gone before it as may.
    fn overtaken_read(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let oldest = self.read_deadlines.iter().find_map(RqList::front)?;
        let came = ctx.rqs[oldest].elv[ELV_CAME];
        // Those that came before it have all left.
        let overtaken = self.deep_left.wrapping_sub(came) as i64;
        (overtaken >= self.tunables.at(OVERTAKE)).then_some(oldest)
    }

    /// The read of the least loaded die, light submitters' before others; a
    /// stream's next where its die is no more loaded than that. Of a deep
    /// submitter's, none where even that die has `die_depth` in the drive and a
    /// light one may come: what is in the drive already cannot be passed.
    fn choose_read(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let first = |class: Class| {
            let die = self.loads.least(self.held[class as usize], self.next_die)?;
            self.dies[die][class as usize].front()
        };
        if let Some(light) = first(Class::Light) {
            return Some(light);
        }
        let key = |id: &RequestId| {
            let rq = &ctx.rqs[*id];
            (self.loads.load[Mark::of(rq).die()], rq.serial)
        };
        let candidates = [first(Class::Deep), self.read_stream.front()];
        let least = candidates.into_iter().flatten().min_by_key(key)?;
        let most = self.tunables.at(DIE_DEPTH);
        let light_may_come = most > 0 && is_recent(self.last_light, ctx.now, LIGHT_RECENT);
        let may_go = |id: &RequestId| !light_may_come || (key(id).0 as i64) < most;
        let overtaken = self.overtaken_read(ctx).filter(may_go);
        overtaken.or_else(|| Some(least).filter(may_go))
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

    fn choose(&mut self, ctx: &SchedCtx<'_>, dir: usize) -> Option<RequestId> {
        match dir {
            READ => self.choose_read(ctx),
            _ => self.choose_write(ctx),
        }
    }

    /// Whether writes have their share of the drive while reads need theirs.
    fn writes_have_their_share(&self, now: Nanos) -> bool {
        let recent = self.in_drive[READ] > 0 || is_recent(self.last_read, now, READS_RECENT);
        let depth = self.info.queue_depth as i64;
        let most = (depth * self.tunables.at(WRITE_SHARE) / 100).max(1);
        recent && self.in_drive[WRITE] as i64 >= most
    }

    pub(super) fn next_in_turn(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let first = self.first_direction();
        let no_writes = self.writes_have_their_share(ctx.now);
        let dirs = [first, 1 - first];
        let allowed = dirs.into_iter().filter(|&dir| dir == READ || !no_writes);
        for dir in allowed {
            if let Some(id) = self.choose(ctx, dir) {
                return Some(id);
            }
        }
        self.held_back += self.has_writes() as u64;
        None
    }
}
