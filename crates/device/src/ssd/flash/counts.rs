//! Counters of the flash, and how they are reported.

use alloc::vec::Vec;

use blklab_stats::{ChannelStats, DeviceStats, DieStats};

use crate::ssd::flash::Flash;
use crate::ssd::flash::paq::PaqCounts;

/// Counters of the whole flash.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlashCounts {
    pub(crate) erases: u64,
    pub(crate) behind_writes: u64,
    pub(crate) behind_writes_ns: u64,
    pub(crate) behind_collection: u64,
    pub(crate) behind_collection_ns: u64,
    pub(crate) longest_behind_collection_ns: u64,
    pub(crate) multi_plane: u64,
    pub(crate) suspensions: u64,
    pub(crate) copybacks: u64,
    pub(crate) cache_reads: u64,
    pub(crate) cache_programs: u64,
    pub(crate) paq: PaqCounts,
}

impl FlashCounts {
    /// Counts the time that a host read has waited for collection.
    #[inline]
    pub(crate) fn waited_for_collection(&mut self, lost_ns: u64) {
        self.behind_collection += (lost_ns > 0) as u64;
        self.behind_collection_ns += lost_ns;
        self.longest_behind_collection_ns = self.longest_behind_collection_ns.max(lost_ns);
    }
}

impl Flash {
    /// Adds what was counted until `now_ns` to `stats`.
    pub(crate) fn report(&self, now_ns: u64, stats: &mut DeviceStats) {
        stats.channels = self.channels.iter().map(|c| c.stats(now_ns)).collect();
        let plane_busy_ns = self.planes_busy_until(now_ns);
        stats.flash_reads = stats.channels.iter().map(|c| c.reads).sum();
        stats.flash_programs = stats.channels.iter().map(|c| c.writes).sum();
        stats.flash_erases = self.counts.erases;
        stats.reads_behind_writes = self.counts.behind_writes;
        stats.reads_behind_writes_ns = self.counts.behind_writes_ns;
        stats.multi_plane_commands = self.counts.multi_plane;
        stats.suspensions = self.counts.suspensions;
        stats.copybacks = self.counts.copybacks;
        stats.cache_reads = self.counts.cache_reads;
        stats.cache_programs = self.counts.cache_programs;
        stats.reads_packed = self.counts.paq.packed;
        stats.reads_clumped = self.counts.paq.clumped;
        stats.collection.reads_behind = self.counts.behind_collection;
        stats.collection.reads_behind_ns = self.counts.behind_collection_ns;
        stats.collection.longest_read_wait_ns = self.counts.longest_behind_collection_ns;
        let planes = self.partners.planes_per_unit as usize;
        stats.dies = self
            .units
            .iter()
            .zip(plane_busy_ns.chunks(planes))
            .map(|(unit, planes)| {
                let queue = unit.queue.until(now_ns, unit.queued);
                DieStats {
                    channel: unit.channel,
                    commands: unit.commands,
                    busy_ns: unit.busy_ns - unit.ahead_ns(now_ns),
                    queue_ns: queue.sum_ns,
                    longest_queue: queue.longest,
                    plane_busy_ns: planes.to_vec(),
                }
            })
            .collect();
    }

    /// How long each plane has been busy until now. Operations in progress were counted
    /// in full when they began.
    pub(crate) fn planes_busy_until(&self, now_ns: u64) -> Vec<u64> {
        let mut busy_ns = self.plane_busy_ns.clone();
        for unit in &self.units {
            for (group, ahead_ns) in unit.under_way(now_ns) {
                for op in self.transactions.of(group) {
                    let busy_ns = &mut busy_ns[op.plane as usize];
                    *busy_ns = busy_ns.saturating_sub(ahead_ns);
                }
            }
        }
        busy_ns
    }

    pub(crate) fn reset_stats(&mut self, now_ns: u64) {
        self.counts = FlashCounts::default();
        let until_now_ns = self.planes_busy_until(now_ns);
        for (busy_ns, until_now_ns) in self.plane_busy_ns.iter_mut().zip(until_now_ns) {
            *busy_ns -= until_now_ns;
        }
        for channel in &mut self.channels {
            channel.stats = ChannelStats {
                bus_busy_ns: channel.free_ns.saturating_sub(now_ns),
                ..ChannelStats::default()
            };
            channel.queue.reset(now_ns);
            channel.active_since_ns = channel.active_since_ns.max(now_ns);
        }
        for unit in &mut self.units {
            unit.queue.reset(now_ns);
            unit.busy_ns = unit.ahead_ns(now_ns);
            unit.commands = 0;
        }
    }
}
