//! Queue merging: processes that read close to each other, such as the workers of one program,
//! share a queue, so that their requests become sequential. When they diverge, each gets its own
//! queue back as it was. Processes that start together may also be merged permanently (stable
//! merge), so that idling is needed for none of them.

use core::cmp::Ordering;

use blklab_blk::{Sector, msecs_to_jiffies};

use super::Bfq;
use super::groups::GroupId;
use super::queue::{LONG_AGO, QueueId};
use super::red_black::{Augmented, NodeId, RedBlackTree};
use super::submitter::Saved;
use super::weight_raising::burst_interval;

/// Requests at most this many sectors apart are close.
const CLOSE_SECTORS: u64 = 8 * 1024;
/// Cooperation shows within this time; a queue that has been served for longer is not merged.
const TOO_LATE_MS: i64 = 100;
/// Queues created at most this far apart may belong to one program.
const STABLE_CREATION_MS: i64 = 600;
/// Delay of a stable merge, in which the queues' behaviour is observed.
const STABLE_DELAY_MS: i64 = 600;

/// The position of a queue's next request.
#[derive(Debug)]
pub(super) struct NextRequest {
    sector: u64,
    queue: QueueId,
}

impl Augmented for NextRequest {
    fn update_subtree(&mut self, _children: [Option<&NextRequest>; 2]) {}
}

/// The node with this sector, or the last one visited by the search for it.
fn last_passed(positions: &RedBlackTree<NextRequest>, sector: u64) -> Option<NodeId> {
    let step = |&place: &NodeId| match positions[place].sector.cmp(&sector) {
        Ordering::Greater => positions.left(place),
        Ordering::Less => positions.right(place),
        Ordering::Equal => None,
    };
    core::iter::successors(positions.root(), step).last()
}

fn are_close(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= CLOSE_SECTORS
}

impl Bfq {
    fn is_too_late(&self, q: QueueId) -> bool {
        let queue = &self.queues[q];
        queue.service_since_idle > 0
            && queue.first_io + msecs_to_jiffies(TOO_LATE_MS) < self.jiffies
    }

    /// Removes a queue from the tree of next requests.
    pub(super) fn remove_position_of(&mut self, q: QueueId) {
        if let Some(place) = self.queues[q].position.take() {
            let group = self.queues[q].group;
            self.groups[group].positions.remove(place);
        }
    }

    /// Puts a queue at the position of its next request. Of several queues at one sector only the
    /// first is in the tree.
    pub(super) fn update_position(&mut self, q: QueueId, next: Option<Sector>) {
        self.remove_position_of(q);
        if self.is_too_late(q) || self.queues[q].is_idle_class() {
            return;
        }
        let Some(Sector(sector)) = next else {
            return;
        };
        let positions = &mut self.groups[self.queues[q].group].positions;
        let last = last_passed(positions, sector);
        if last.is_none_or(|last| positions[last].sector != sector) {
            let next = NextRequest { sector, queue: q };
            let place = positions.insert(next, |other| other.sector > sector);
            self.queues[q].position = Some(place);
        }
    }

    /// Finds a queue of a group whose next request is close to a sector (`bfqq_find_close`): the
    /// last one visited by the search, or its neighbour on the other side of the sector.
    fn find_close(&self, group: GroupId, sector: u64) -> Option<QueueId> {
        let positions = &self.groups[group].positions;
        let last = last_passed(positions, sector)?;
        let close = |&place: &NodeId| are_close(positions[place].sector, sector);
        let other = || match positions[last].sector < sector {
            true => positions.next(last),
            false => positions.previous(last),
        };
        let found = Some(last).filter(close).or_else(|| other().filter(close));
        found.map(|place| positions[place].queue)
    }

    fn may_cooperate(&self, q: QueueId, with: QueueId) -> bool {
        let (a, b) = (&self.queues[q], &self.queues[with]);
        !self.is_too_late(with)
            && !a.is_idle_class()
            && a.class == b.class
            && !a.is_seeky()
            && !b.is_seeky()
            && a.sync
            && b.sync
    }

    /// Arranges that each process of `q` moves with its next request to `into`, or to the queue
    /// into which that one is itself to be merged.
    fn arrange_merge(&mut self, q: QueueId, into: QueueId) -> Option<QueueId> {
        if self.queues[into].process_refs == 0 {
            return None;
        }
        let mut into = into;
        while let Some(next) = self.queues[into].merge_into {
            if next == q {
                return None;
            }
            into = next;
        }
        let refs = self.queues[q].process_refs;
        let same_group = self.queues[into].group == self.queues[q].group;
        if refs == 0 || self.queues[into].process_refs == 0 || into == q || !same_group {
            return None;
        }
        self.queues[q].merge_into = Some(into);
        self.queues[into].process_refs += refs;
        Some(into)
    }

    /// Finds the queue with which a request or bio at `sector` lets `q` cooperate
    /// (`bfq_setup_cooperator`).
    pub(super) fn find_cooperator(
        &mut self,
        q: QueueId,
        sector: Sector,
        context: usize,
    ) -> Option<QueueId> {
        if let Some(mut into) = self.queues[q].merge_into {
            while let Some(next) = self.queues[into].merge_into {
                into = next;
            }
            return Some(into);
        }
        // A drive with equally fast random requests gains nothing from merging queues.
        if self.queueing_flash {
            return None;
        }
        if let Some(target) = self.contexts[context].stable_merge
            && self.is_due_for_stable_merge(q)
        {
            return self.do_delayed_stable_merge(q, target, context);
        }
        if self.is_too_late(q) || self.busy_total() == 1 {
            return None;
        }
        if let Some(now) = self.in_service
            && now != q
            && self.queues[now].group == self.queues[q].group
            && are_close(sector.0, self.in_service_position)
            && self.may_cooperate(q, now)
            && let Some(into) = self.arrange_merge(q, now)
        {
            return Some(into);
        }
        let close = self
            .find_close(self.queues[q].group, sector.0)
            .filter(|&close| close != q)?;
        if self.may_cooperate(q, close) {
            return self.arrange_merge(q, close);
        }
        None
    }

    fn is_due_for_stable_merge(&self, q: QueueId) -> bool {
        let queue = &self.queues[q];
        let delay = msecs_to_jiffies(STABLE_DELAY_MS);
        queue.sync
            && !queue.just_created
            && queue.split + delay < self.jiffies
            && queue.created + delay < self.jiffies
    }

    fn do_delayed_stable_merge(
        &mut self,
        q: QueueId,
        target: QueueId,
        context: usize,
    ) -> Option<QueueId> {
        let into = match self.idling_boosts_throughput(q) {
            true => None,
            false => self.arrange_merge(q, target),
        };
        if let Some(into) = into {
            self.contexts[context].stably_merged = true;
            if let Some(other) = self.queues[into].context {
                self.contexts[other].stably_merged = true;
            }
        }
        self.forget_stable_merge(context);
        into
    }

    pub(super) fn forget_stable_merge(&mut self, context: usize) {
        if let Some(target) = self.contexts[context].stable_merge.take() {
            self.queues[target].stable_refs -= 1;
            self.release(target);
        }
    }

    /// Merges a new queue with a similar one created shortly before: at once on a drive with fast
    /// random requests, otherwise after both have proved not to be sequential readers.
    pub(super) fn merge_if_stable(&mut self, q: QueueId, context: usize) -> QueueId {
        let group = self.queues[q].group;
        let Some(last) = self.groups[group].last_created else {
            self.groups[group].last_created = Some(q);
            return q;
        };
        let (new, old) = (&self.queues[q], &self.queues[last]);
        if old.created + msecs_to_jiffies(STABLE_CREATION_MS) < new.created
            || new.level != old.level
            || new.class != old.class
        {
            self.groups[group].last_created = Some(q);
            return q;
        }
        if old.created + burst_interval() < new.created {
            return q;
        }
        if !self.queueing_flash {
            self.queues[last].stable_refs += 1;
            self.contexts[context].stable_merge = Some(last);
            return q;
        }
        let Some(into) = self.arrange_merge(q, last) else {
            return q;
        };
        if let Some(other) = self.queues[into].context {
            self.contexts[other].stably_merged = true;
        }
        self.contexts[context].stably_merged = true;
        self.queues[q].context = Some(context);
        self.merge(context, q)
    }

    /// Moves a context to the queue that its own queue is to be merged into.
    pub(super) fn merge(&mut self, context: usize, q: QueueId) -> QueueId {
        let Some(into) = self.queues[q].merge_into else {
            return q;
        };
        self.queue_merges += 1;
        self.save_state(q);
        self.save_state(into);
        if self.queues[q].io_bound {
            self.queues[into].io_bound = true;
        }
        self.queues[q].io_bound = false;
        let waker = self.queues[q].waker.filter(|&waker| waker != into);
        if waker.is_some() && self.queues[into].waker.is_none() {
            self.queues[into].tentative_waker = None;
            self.set_waker(into, waker);
        }
        self.inherit_raising(q, into);
        self.set_queue(context, Some(into), true);
        let target = &mut self.queues[into];
        target.coop = true;
        // The queue is now shared.
        target.context = None;
        target.owner = None;
        self.queues[q].context = None;
        let last_created = &mut self.groups[self.queues[q].group].last_created;
        if *last_created == Some(q) {
            *last_created = Some(into);
        }
        self.drop_process_ref(q);
        into
    }

    /// Passes weight raising on from the merged queue to its target.
    fn inherit_raising(&mut self, q: QueueId, into: QueueId) {
        let raising = self.queues[q].raising;
        if raising.coeff == 1 {
            return;
        }
        let target = &mut self.queues[into];
        if target.raising.coeff == 1 {
            let service = target.raising.service;
            target.raising = super::queue::Raising { service, ..raising };
            target.entity.prio_changed = true;
            self.wr_busy += target.busy as u32;
        }
        let queue = &mut self.queues[q];
        queue.raising.coeff = 1;
        queue.entity.prio_changed = true;
        self.wr_busy -= queue.busy as u32;
    }

    /// Saves the state of a queue in the context that it belongs to.
    fn save_state(&mut self, q: QueueId) {
        let Some(context) = self.queues[q].context else {
            return;
        };
        let raising_time = self.raising_time();
        let queue = &self.queues[q];
        let mut raising = queue.raising;
        if queue.just_created && !queue.in_large_burst && self.settings.low_latency {
            // It would have been raised had it not been merged before its first request.
            raising.coeff = self.interactive_coeff();
            raising.max_time = raising_time;
            raising.start_finish = self.jiffies;
            raising.start_before_soft_rt = LONG_AGO;
            let saved = self.contexts[context].saved.as_ref();
            raising.service = saved.map_or(0, |saved| saved.raising.service);
        }
        self.contexts[context].saved = Some(Saved {
            short_ttime: queue.short_ttime,
            io_bound: queue.io_bound,
            io_start_ns: queue.io_start_ns,
            idle_total_ns: queue.idle_total_ns,
            in_large_burst: queue.in_large_burst,
            was_in_burst_list: queue.in_burst_list,
            weight: queue.entity.orig_weight,
            raising,
            ttime: queue.ttime,
            injection: queue.injection,
        });
    }

    /// Restores the state of a queue before it was merged.
    fn resume_state(&mut self, q: QueueId, context: usize, existing: bool) {
        let Some(saved) = self.contexts[context].saved.clone() else {
            return;
        };
        let busy = existing && self.queues[q].busy;
        let queue = &mut self.queues[q];
        queue.short_ttime = saved.short_ttime;
        queue.io_bound = saved.io_bound;
        queue.injection = saved.injection;
        queue.entity.new_weight = saved.weight;
        queue.ttime = saved.ttime;
        queue.io_start_ns = saved.io_start_ns;
        queue.idle_total_ns = saved.idle_total_ns;
        let was_raised = queue.is_raised();
        let coeff = queue.raising.coeff;
        queue.raising = saved.raising;
        if !self.settings.low_latency {
            queue.raising.coeff = coeff;
        }
        self.resume_raising(q);
        let queue = &mut self.queues[q];
        queue.entity.prio_changed = true;
        if busy {
            self.wr_busy += queue.is_raised() as u32;
            self.wr_busy -= was_raised as u32;
        }
    }

    /// Separates a context from a shared queue. The last context keeps the queue.
    pub(super) fn split(&mut self, context: usize, q: QueueId) -> QueueId {
        let waker = self.waker_after_split(q);
        if self.queues[q].in_large_burst
            && let Some(saved) = &mut self.contexts[context].saved
        {
            saved.in_large_burst = true;
        }
        self.queue_splits += 1;
        if self.queues[q].process_refs == 1 && self.queues[q].merge_into.is_none() {
            let submitter = self.contexts[context].submitter;
            let queue = &mut self.queues[q];
            queue.owner = Some(submitter);
            queue.coop = false;
            queue.split_coop = false;
            self.resume_state(q, context, true);
            return q;
        }
        self.set_queue(context, None, true);
        self.drop_cooperators(q);
        self.drop_process_ref(q);
        let own = self.get_queue(context, true, true);
        self.set_queue(context, Some(own), true);
        self.rejoin_burst(own, context);
        self.queues[own].split = self.jiffies;
        self.resume_state(own, context, false);
        self.queues[own].tentative_waker = None;
        self.set_waker(own, waker);
        own
    }

    fn rejoin_burst(&mut self, q: QueueId, context: usize) {
        let saved = self.contexts[context].saved.as_ref();
        let (was_listed, was_large) =
            saved.map_or((false, false), |s| (s.was_in_burst_list, s.in_large_burst));
        let large = (was_listed && self.burst.is_large) || was_large;
        self.queues[q].in_large_burst = large;
        if !large && was_listed {
            self.join_burst_list(q);
        }
    }

    /// The waker of a queue that is split, if that still has processes.
    fn waker_after_split(&self, q: QueueId) -> Option<QueueId> {
        let waker = self.queues[q].waker?;
        let mut into = self.queues[q].merge_into;
        while let Some(next) = into {
            if next == waker {
                // Splitting drops one reference to it.
                return (self.queues[waker].process_refs > 1).then_some(waker);
            }
            into = self.queues[next].merge_into;
        }
        (self.queues[waker].process_refs > 0).then_some(waker)
    }

    /// Drops the pending merge of a queue whose process leaves before it.
    pub(super) fn drop_cooperators(&mut self, q: QueueId) {
        let mut into = self.queues[q].merge_into;
        while let Some(target) = into {
            into = self.queues[target].merge_into;
            self.queues[target].process_refs -= 1;
            self.release(target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{one_queue, queues};
    use super::*;

    /// A queue that was served for longer than 100 ms without a pause is merged no more, so it is
    /// not offered to others (`bfq_too_late_for_merging`, `bfq_pos_tree_add_move`).
    #[test]
    fn cooperation_shows_soon_or_never() {
        let limit = msecs_to_jiffies(100);
        for (service, first_io_ago, is_late) in [
            (1, limit + 1, true),
            (1, limit, false),
            (1, 0, false),
            (0, limit + 1, false),
        ] {
            let (mut bfq, q) = one_queue();
            bfq.queues[q].first_io = bfq.jiffies - first_io_ago;
            bfq.queues[q].service_since_idle = service;
            bfq.update_position(q, Some(Sector(8)));
            let is_offered = bfq.queues[q].position.is_some();
            assert_eq!(is_offered, !is_late, "{service} {first_io_ago}");
        }
    }

    /// The queue that others are merged into gets their waker, unless it has one or is the waker
    /// itself (`bfq_merge_bfqqs`).
    #[test]
    fn a_merge_passes_the_waker_on() {
        // Wakers of the merged queue and of its target, and that of the target afterwards; queues
        // are told by their numbers, of which the target's is 1.
        for (merged, target, expected) in [
            (Some(2), None, Some(2)),
            (Some(2), Some(3), Some(3)),
            (Some(1), None, None),
            (Some(1), Some(3), Some(3)),
            (None, None, None),
            (None, Some(3), Some(3)),
        ] {
            let (mut bfq, all) = queues::<4>();
            let [q, into, tentative, _] = all;
            let waker = |number: Option<usize>| number.map(|number| all[number]);
            bfq.set_waker(q, waker(merged));
            bfq.set_waker(into, waker(target));
            bfq.queues[into].tentative_waker = Some(tentative);
            assert_eq!(bfq.arrange_merge(q, into), Some(into));
            let context = bfq.queues[q].context.expect("one process's");
            assert_eq!(bfq.merge(context, q), into);
            let case = (merged, target);
            assert_eq!(bfq.queues[into].waker, waker(expected), "{case:?}");
            if let Some(waker) = waker(expected) {
                assert!(bfq.queues[waker].woken.contains(&into), "{case:?}");
            }
            // A waker that is known needs no detection.
            let is_passed_on = target.is_none() && expected.is_some();
            let is_detecting = bfq.queues[into].tentative_waker.is_some();
            assert_eq!(is_detecting, !is_passed_on, "{case:?}");
        }
    }

    /// The target takes the place of a merged queue as the newest one, with which the next new queue
    /// may be merged (`bfq_reassign_last_bfqq`).
    #[test]
    fn a_merge_replaces_the_newest_queue() {
        let (bfq, [q, into, other]) = queues::<3>();
        let (context, group) = (bfq.queues[q].context, bfq.queues[q].group);
        let context = context.expect("one process's");
        for (newest, expected) in [(q, into), (other, other)] {
            let (mut bfq, _) = queues::<3>();
            bfq.groups[group].last_created = Some(newest);
            bfq.arrange_merge(q, into);
            bfq.merge(context, q);
            assert_eq!(bfq.groups[group].last_created, Some(expected));
        }
    }

    /// A queue that is merged before its first request will be raised as an interactive one when it
    /// is split, unless it is in a large burst; others keep their raising (`bfq_bfqq_save_state`).
    #[test]
    fn a_queue_merged_when_it_was_new_is_raised_after_the_split() {
        for (just_created, in_large_burst, low_latency, is_raised) in [
            (true, false, true, true),
            (false, false, true, false),
            (true, true, true, false),
            (true, false, false, false),
        ] {
            let (mut bfq, q) = one_queue();
            let queue = &mut bfq.queues[q];
            let context = queue.context.expect("one process's");
            (queue.just_created, queue.in_large_burst) = (just_created, in_large_burst);
            (queue.raising.coeff, queue.raising.service) = (1, 77);
            (queue.raising.start_finish, queue.raising.max_time) = (5, 6);
            bfq.settings.low_latency = low_latency;
            bfq.save_state(q);
            let saved = bfq.contexts[context].saved.as_ref().expect("is saved");
            let raising = saved.raising;
            let found = (raising.coeff, raising.start_finish, raising.max_time);
            let expected = match is_raised {
                true => (30, bfq.jiffies, bfq.raising_time()),
                false => (1, 5, 6),
            };
            let case = (just_created, in_large_burst, low_latency);
            assert_eq!(found, expected, "{case:?}");
            assert_eq!(raising.service, if is_raised { 0 } else { 77 }, "{case:?}");
        }
    }

    /// A queue keeps its waker when it is split, if that still has processes: one that is in the
    /// chain of merges loses one of them in the split (`bfq_waker_bfqq`).
    #[test]
    fn a_split_keeps_a_waker_that_has_processes() {
        // The queues that the split one is to be merged into, the waker, and its processes.
        let chains: [(&[usize], Option<usize>, u32, bool); 8] = [
            (&[], Some(1), 1, true),
            (&[], Some(1), 0, false),
            (&[], None, 1, false),
            (&[2], Some(1), 1, true),
            (&[1], Some(1), 1, false),
            (&[1], Some(1), 2, true),
            (&[2, 1], Some(1), 1, false),
            (&[2, 1], Some(1), 2, true),
        ];
        for (chain, waker, process_refs, is_kept) in chains {
            let (mut bfq, all) = queues::<3>();
            let mut from = all[0];
            for number in chain {
                bfq.queues[from].merge_into = Some(all[*number]);
                from = all[*number];
            }
            let waker = waker.map(|number| all[number]);
            bfq.set_waker(all[0], waker);
            bfq.queues[all[1]].process_refs = process_refs;
            let expected = waker.filter(|_| is_kept);
            let case = (chain, process_refs);
            assert_eq!(bfq.waker_after_split(all[0]), expected, "{case:?}");
        }
    }

    /// The processes of a stable merge share a queue only some time after the queue's creation and
    /// after its last split, which may have been a mistake (`bfq_setup_cooperator`).
    #[test]
    fn a_stable_merge_waits_after_creation_and_after_a_split() {
        let late = msecs_to_jiffies(STABLE_DELAY_MS);
        for (created_ago, split_ago, is_due) in [
            (late + 1, late + 1, true),
            (late, late + 1, false),
            (late + 1, late, false),
            (late, late, false),
            (0, late + 1, false),
            (late + 1, 0, false),
        ] {
            let (mut bfq, q) = one_queue();
            let jiffies = bfq.jiffies;
            let queue = &mut bfq.queues[q];
            queue.just_created = false;
            (queue.created, queue.split) = (jiffies - created_ago, jiffies - split_ago);
            let found = bfq.is_due_for_stable_merge(q);
            assert_eq!(found, is_due, "{created_ago} {split_ago}");
            bfq.queues[q].just_created = true;
            assert!(!bfq.is_due_for_stable_merge(q), "it had no request before");
            (bfq.queues[q].just_created, bfq.queues[q].sync) = (false, false);
            assert!(!bfq.is_due_for_stable_merge(q), "asynchronous");
        }
    }

    /// A process that gets a queue of its own again is in a large burst if it was, or if its burst has
    /// become large meanwhile; a member of a burst that is not large returns to it
    /// (`bfq_get_bfqq_handle_split`).
    #[test]
    fn a_queue_that_is_split_returns_to_its_burst() {
        for (was_listed, was_large, is_large, in_large, is_listed) in [
            (false, false, false, false, false),
            (false, false, true, false, false),
            (false, true, false, true, false),
            (true, false, false, false, true),
            (true, false, true, true, false),
            (true, true, false, true, false),
            (true, true, true, true, false),
        ] {
            let (mut bfq, q) = one_queue();
            let context = bfq.queues[q].context.expect("one process's");
            bfq.forget_burst(q);
            bfq.save_state(q);
            let saved = bfq.contexts[context].saved.as_mut().expect("is saved");
            (saved.was_in_burst_list, saved.in_large_burst) = (was_listed, was_large);
            bfq.queues[q].in_large_burst = !in_large;
            bfq.burst.is_large = is_large;
            bfq.rejoin_burst(q, context);
            let queue = &bfq.queues[q];
            let found = (queue.in_large_burst, queue.in_burst_list);
            let case = (was_listed, was_large, is_large);
            assert_eq!(found, (in_large, is_listed), "{case:?}");
        }
    }
}
