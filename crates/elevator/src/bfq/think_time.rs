//! What a queue's process is like: how long it thinks between requests, whether
//! it does little but I/O, and whether its requests lie far apart.

use blklab_blk::{RequestId, SchedCtx};

use super::Bfq;
use super::queue::QueueId;
use super::weight_raising::min_idle_time;
use crate::jiffies::msecs_to_jiffies;

/// Who thinks no longer than this does not think at all.
pub(super) const MIN_THINK_TIME_NS: u64 = 2_000_000;
/// Fewer samples say nothing; samples count 256 and fade by an eighth.
const ENOUGH_SAMPLES: u64 = 80;

/// A request further away than this from the last is a seek, in sectors.
const FAR_SECTORS: u64 = 8 * 100;
/// On a drive without moving parts only one that is smaller than this.
pub(super) const SMALL_SECTORS: u64 = 2 * 32;

impl Bfq {
    /// Whether a request is a seek from where the last one ended.
    pub(super) fn is_far(&self, last: u64, sector: u64, sectors: u64) -> bool {
        last != 0
            && last.abs_diff(sector) > FAR_SECTORS
            && (!self.nonrot || sectors < SMALL_SECTORS)
    }

    /// A request came: how long did its process think?
    ///
    /// In a plug the kernel's clock stands still, so a request may seem to come
    /// before the completion that it follows. That counts as the longest time,
    /// there as here.
    pub(super) fn update_think_time(&mut self, q: QueueId) {
        let queue = &mut self.queues[q];
        if queue.dispatched > 0 || queue.busy {
            return;
        }
        let ttime = &mut queue.ttime;
        let elapsed = self.now_ns.wrapping_sub(ttime.last_end_ns);
        let elapsed = elapsed.min(2 * self.set.slice_idle_ns);
        ttime.samples = (7 * ttime.samples + 256) / 8;
        ttime.total_ns = (7 * ttime.total_ns + 256 * elapsed) / 8;
        ttime.mean_ns = (ttime.total_ns + 128) / ttime.samples;
    }

    /// Whether its next request is worth waiting for.
    pub(super) fn update_short_ttime(&mut self, q: QueueId, context: usize) {
        let queue = &self.queues[q];
        if !queue.sync
            || queue.is_idle_class()
            || self.set.slice_idle_ns == 0
            || queue.split + min_idle_time() >= self.jiffies
        {
            return;
        }
        let ttime = &queue.ttime;
        let thinks_long =
            ttime.samples > ENOUGH_SAMPLES && ttime.mean_ns > self.set.slice_idle_ns / 2;
        let short = !thinks_long && !self.contexts[context].exited;
        let changed = short != queue.short_ttime;
        let lately = queue.injection.lowered + msecs_to_jiffies(100) > self.jiffies;
        let unknown = queue.injection.last_service_ns == 0;
        self.queues[q].short_ttime = short;
        if changed && unknown && (!lately || !short) {
            self.reset_injection(q);
        }
    }

    /// Remembers whether the request is a seek.
    pub(super) fn update_seeks(&mut self, ctx: &SchedCtx<'_>, q: QueueId, id: RequestId) {
        let rq = &ctx.rqs[id];
        let (sector, sectors) = (rq.sector.0, rq.sectors as u64);
        let far = self.is_far(self.queues[q].last_request_pos, sector, sectors);
        let queue = &mut self.queues[q];
        queue.seek_history = queue.seek_history << 1 | far as u32;
        self.end_soft_rt_of_seeky(q);
    }

    /// Whether the process waits for I/O at least four fifths of its time.
    ///
    /// The kernel counts a new queue's first idle time too, as a nanosecond
    /// less than none, which any time of thinking makes up for. A simulated
    /// process on CPUs without costs does not think at all, so it is not
    /// counted here.
    pub(super) fn update_io_bound(&mut self, q: QueueId) {
        let now_ns = self.now_ns;
        let queue = &mut self.queues[q];
        if queue.just_created {
            return;
        }
        let total_ns = now_ns.wrapping_sub(queue.io_start_ns);
        if queue.sorted.is_empty() && queue.dispatched == 0 {
            let idle = now_ns.wrapping_sub(queue.ttime.last_end_ns);
            queue.idle_total_ns = queue.idle_total_ns.wrapping_add(idle);
        }
        queue.io_bound = queue.idle_total_ns.wrapping_mul(5) <= total_ns;
        // An observation window, so that old habits fade.
        if total_ns > 200_000_000 {
            queue.io_start_ns = now_ns.wrapping_sub(total_ns / 2);
            queue.idle_total_ns /= 2;
        }
    }
}
