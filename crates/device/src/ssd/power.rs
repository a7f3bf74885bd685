//! Loss of power, and what the drive does when it is back.
//!
//! Commands under way are never answered. With capacitors all of DRAM reaches
//! the flash; without, what was not programmed is gone, a page whose program
//! was under way is spoiled, and a block whose erase was under way has to be
//! erased again. Discards are in a log that a flush programs.

use std::collections::BTreeSet;

use blklab_blk::{Nanos, Op};

use crate::ssd::Ssd;
use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::Stream;
use crate::ssd::gc::merging::Merging;
use crate::ssd::gc::victim::Job;
use crate::ssd::spec::Mapping;
use crate::ssd::write_cache::allocation::Turn;
use crate::ssd::write_cache::epochs::Epochs;

impl Ssd {
    /// Cuts the power at `now`, up to which the drive has been advanced, and
    /// gives it back. Returns when the drive is ready; commands sent earlier
    /// wait until then.
    pub(super) fn lose_power(&mut self, now: Nanos) -> Nanos {
        let interrupted = self.flash.power_off(now.0);
        let open_pages = self.pages_to_scan();
        self.stats.power_losses += 1;
        #[cfg(test)]
        self.witness_power_loss(&interrupted.records);
        if self.spec.write_cache.power_loss_protection {
            self.ftl.save_dram();
        } else {
            let unanswered = self.unanswered_slots();
            let lost = self.ftl.lose_dram(&interrupted.records);
            let answered = lost.iter().filter(|slot| !unanswered.contains(slot));
            let sectors = self.spec.ftl.map_unit_bytes as u64 / 512;
            self.stats.power_loss_acknowledged_sectors += answered.count() as u64 * sectors;
            self.stats.power_loss_sectors += lost.len() as u64 * sectors;
        }
        let jobs = self.drop_collections();
        if self.ftl.hybrid.is_some() {
            self.ftl.abandon_merges();
            self.merging.iter_mut().for_each(Merging::power_off);
        }
        let spoiled = interrupted.map_programs.iter();
        let spoiled: Vec<(u32, u32)> = spoiled
            .map(|op| (op.owner, self.map_place_of(op)))
            .collect();
        if let Some(map) = &mut self.map_blocks {
            map.power_off(&spoiled);
        }
        self.forget_commands();
        for (plane, job) in jobs {
            self.find_collection(now.0, plane, &job);
        }
        let ready_ns = now.0 + self.recovery_ns(open_pages);
        self.controller_ns = ready_ns;
        self.dram_ns = ready_ns;
        self.link.power_off(ready_ns);
        self.host_ns = ready_ns;
        self.fold_timer = false;
        self.fold_later(ready_ns);
        Nanos(ready_ns)
    }

    /// Ends all collections where they are; returns them with their planes.
    fn drop_collections(&mut self) -> Vec<(u32, Job)> {
        let mut running = Vec::new();
        for plane in 0..self.jobs.len() {
            let job = std::mem::replace(&mut self.jobs[plane], Job::NONE);
            if job.is_running() {
                self.ftl.leave_destination(job.to);
                self.ftl.owe_nothing(plane as u32);
                self.ftl.end_collection(plane as u32, job.victim);
                running.push((plane as u32, job));
            }
        }
        running
    }

    /// A collection that the drive was at goes on when a plane is written, as one
    /// of an aged drive: what it has gained of its block is not lost. Others are
    /// chosen anew.
    fn find_collection(&mut self, now_ns: u64, plane: u32, job: &Job) {
        let is_usual = job.stream == Stream::Collection && job.to == plane && !job.slc;
        let valid = u32::from(self.ftl.blocks.valid[job.victim as usize]);
        if is_usual
            && valid > 0
            && self.ftl.is_written(job.victim)
            && self.ftl.destination(plane) == Some(plane)
            && valid <= self.ftl.most_to_move(plane, plane)
        {
            self.take_up_job(now_ns, plane, job.victim, (plane, Stream::Collection));
            let found = &mut self.jobs[plane as usize];
            (found.valid, found.at_rest) = (job.valid.max(valid), true);
        }
    }

    /// Slots whose data in DRAM nobody was promised: those of writes under way,
    /// unless such a write took the place of what was in DRAM before.
    fn unanswered_slots(&self) -> BTreeSet<u32> {
        let mut under_way = vec![true; self.commands.len()];
        let mut free = self.free_command;
        while free != NONE {
            under_way[free as usize] = false;
            free = self.commands[free as usize].next_free;
        }
        let unit = self.spec.ftl.map_unit_bytes as u64;
        let parked = self.waiting.all_parked();
        let parked: BTreeSet<(u32, u32)> = parked.map(|p| (p.command, p.slot)).collect();
        (0..self.commands.len() as u32)
            .zip(self.commands.iter().zip(under_way))
            .filter(|(_, (command, under_way))| *under_way && !command.rewrites)
            .filter(|(_, (command, _))| matches!(command.op, Op::Write | Op::WriteZeroes))
            .flat_map(|(index, (command, _))| {
                // No further than it has come.
                let slots = (command.first_byte / unit) as u32..command.next_slot;
                slots.map(move |slot| (index, slot))
            })
            .filter(|slot| !parked.contains(slot))
            .map(|(_, slot)| slot)
            .collect()
    }

    fn forget_commands(&mut self) {
        self.commands.clear();
        self.free_command = NONE;
        self.waiting.clear();
        self.dirty_bytes = 0;
        self.programs_queued = 0;
        self.followers.clear();
        self.partial.clear();
        self.turns.fill(Turn::FIRST);
        self.log_is_dirty = false;
        self.epochs = Epochs::new();
        self.waiters.clear();
        self.free_waiter = NONE;
        self.map_reads.clear();
        if let Some(stripe) = &mut self.stripe {
            stripe.clear();
        }
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.clear();
        }
        if let Some(cmt) = &mut self.cmt {
            cmt.clear();
        }
        if let Some(cache) = &mut self.read_cache {
            cache.clear();
        }
        if let Some(ahead) = &mut self.read_ahead {
            ahead.clear();
        }
    }

    /// Pages whose spare areas have to be read to know what was written last:
    /// those of the blocks that were being written, in every plane.
    fn pages_to_scan(&self) -> u32 {
        (0..self.spec.geometry.planes())
            .map(|plane| match self.ftl.hybrid.is_some() {
                true => self.ftl.pages_in_logs(plane),
                false => self.ftl.pages_in_open_blocks(plane),
            })
            .max()
            .unwrap_or(0)
    }

    /// The map is read from where it was last written to, by all dies at once,
    /// then the open blocks are scanned to bring it up to date.
    fn recovery_ns(&self, open_pages: u32) -> u64 {
        let geometry = &self.spec.geometry;
        let entries = match (&self.cmt, self.spec.ftl.mapping) {
            (Some(_), _) => 0,
            (None, Mapping::Page) => self.spec.logical_slots(),
            (None, Mapping::Hybrid(_)) => geometry.blocks(),
        };
        let map_pages = entries.div_ceil(self.spec.ftl.entries_per_map_page as u64);
        let dies = (geometry.channels * geometry.dies_per_channel()) as u64;
        let rounds = map_pages.div_ceil(dies) + open_pages as u64;
        rounds * self.flash.slowest_read_ns()
    }
}
