//! What a queue and its drive have counted, as results have it.

use blklab_blk::{Nanos, RequestQueue};
use blklab_stats::{Counter, DiskStats, HwQueueStats, QueueStats, SchedulerStats};

use crate::Driver;

/// What a request queue and the drive under it have to tell of the time since
/// both began.
pub fn disk_stats(name: &str, queue: &RequestQueue, driver: &Driver, now: Nanos) -> DiskStats {
    let c = queue.counters(now);
    let hctx = (0..queue.nr_hw_queues()).map(|h| {
        let (stats, dispatch_busy) = queue.hctx_stats(h);
        HwQueueStats {
            run: stats.run,
            dispatched: stats.dispatched,
            dispatch_busy,
        }
    });
    let counters = queue.elevator_counters().into_iter();
    DiskStats {
        name: name.to_string(),
        counted_ns: now.0,
        queue: QueueStats {
            ios: c.ios,
            merges: c.merges,
            sectors: c.sectors,
            ticks_ns: c.ticks_ns,
            io_ticks_ns: c.io_ticks_ns,
            time_in_queue_ns: c.ticks_ns.iter().sum(),
            errors: c.errors,
            requeues: c.requeues,
            hctx: hctx.collect(),
        },
        scheduler: SchedulerStats {
            counters: counters
                .map(|(name, value)| Counter { name, value })
                .collect(),
        },
        device: driver.device().stats(now),
        power_loss: None,
    }
}
