//! cfq, completely fair queueing, as Linux 4.2 has it (`block/cfq-iosched.c`).
//!
//! Every process has a queue for its synchronous requests; asynchronous ones
//! share a queue a priority. Queues wait in service trees, by class (real time,
//! best effort, idle) and by workload: asynchronous, synchronous without
//! idling, synchronous with idling. One queue is active for a slice of time.
//! When it runs dry the drive is kept idle for a moment, if the process is
//! known to come back soon and not to seek: what is lost by waiting is less
//! than a seek away and back. Inside a queue requests go in sector order from
//! the last position, short ways back allowed, and once a slice the oldest goes
//! first where its deadline has passed.
//!
//! On a drive without moving parts `slice_idle` starts at zero, which the
//! document calls IOPS mode; there, also, a queue counts as seeky by the size of
//! its requests.
//!
//! What differs here from the kernel:
//! - There is one group, the root: a bio does not say which cgroup it is of, so
//!   there are no weights. `group_idle` applies to that group as it does there.
//! - Of two queues that are close to the head on either side the closer one is
//!   taken as cooperator; the kernel takes the one its tree leads it to first.
//! - The kernel's driver asks again after every completion; here that is said
//!   through the timer.

use blklab_blk::{
    Bio, BioFlags, Elevator, InsertAt, IoClass, IoPrio, MergeKind, Nanos, QueueInfo, Request,
    RequestId, RqFlags, RqList, SchedCtx, Sector, SortList, Tunable, TunableError, Tunables, Unit,
    elv_bio_merge_ok, sched_try_insert_merge,
};

use crate::id_map::IdMap;
use crate::jiffies::{HZ, jiffies, msecs_to_jiffies, start_of};

const QUANTUM: usize = 0;
const FIFO_EXPIRE_SYNC: usize = 1;
const FIFO_EXPIRE_ASYNC: usize = 2;
const BACK_SEEK_MAX: usize = 3;
const BACK_SEEK_PENALTY: usize = 4;
const SLICE_SYNC: usize = 5;
const SLICE_ASYNC: usize = 6;
const SLICE_ASYNC_RQ: usize = 7;
const SLICE_IDLE: usize = 8;
const GROUP_IDLE: usize = 9;
const LOW_LATENCY: usize = 10;
const TARGET_LATENCY: usize = 11;

const fn tunable(
    name: &'static str,
    unit: Unit,
    min: i64,
    max: i64,
    default: i64,
    help: &'static str,
) -> Tunable {
    Tunable {
        name,
        unit,
        min,
        max,
        default,
        help,
    }
}

const U32: i64 = u32::MAX as i64;

/// What a user can set, in sysfs's order of names and units.
pub const TUNABLES: &[Tunable] = &[
    tunable(
        "quantum",
        Unit::Count,
        1,
        U32,
        8,
        "requests of a queue in the drive at once",
    ),
    tunable(
        "fifo_expire_sync",
        Unit::Milliseconds,
        1,
        U32,
        125,
        "a synchronous request's deadline",
    ),
    tunable(
        "fifo_expire_async",
        Unit::Milliseconds,
        1,
        U32,
        250,
        "an asynchronous request's deadline",
    ),
    tunable(
        "back_seek_max",
        Unit::Kib,
        0,
        U32,
        16 * 1024,
        "how far back from the head a request may lie to be next",
    ),
    tunable(
        "back_seek_penalty",
        Unit::Count,
        1,
        U32,
        2,
        "what a way back costs against one ahead",
    ),
    tunable(
        "slice_sync",
        Unit::Milliseconds,
        1,
        U32,
        100,
        "a synchronous queue's slice at priority 4",
    ),
    tunable(
        "slice_async",
        Unit::Milliseconds,
        1,
        U32,
        40,
        "an asynchronous queue's slice at priority 4",
    ),
    tunable(
        "slice_async_rq",
        Unit::Count,
        1,
        U32,
        2,
        "requests of an asynchronous slice, before priority scales them",
    ),
    tunable(
        "slice_idle",
        Unit::Milliseconds,
        0,
        U32,
        8,
        "how long an empty queue's next request is waited for; 0 on a drive without moving parts",
    ),
    tunable(
        "group_idle",
        Unit::Milliseconds,
        0,
        U32,
        8,
        "the same for the only queue of a group",
    ),
    tunable(
        "low_latency",
        Unit::Bool,
        0,
        1,
        1,
        "scale slices to target_latency, let asynchronous requests in gradually",
    ),
    tunable(
        "target_latency",
        Unit::Milliseconds,
        1,
        U32,
        300,
        "in how much time each queue should have had a slice",
    ),
];

/// Distance of two requests that are no longer close, in sectors.
const SEEK_THRESHOLD: u64 = 8 * 100;
const CLOSE_THRESHOLD: u64 = 8 * 1024;
/// On a drive without moving parts a smaller request counts as a seek.
const SMALL_SECTORS: u32 = 2 * 32;
/// How much later an idle queue is served than the one before it.
const IDLE_DELAY: i64 = HZ / 5;
/// Shortest slice of a workload.
const MIN_THINK_TIME: i64 = 2;
/// Requests in the drive that show that it queues.
const HW_QUEUE_MIN: u32 = 5;
const PRIO_LEVELS: i64 = 8;
const NORMAL_PRIO: u8 = 4;

type QueueId = usize;

/// Classes in the order of the service trees; idle ones have one tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Class {
    #[default]
    BestEffort,
    RealTime,
    Idle,
}

/// What the queues of a service tree have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Workload {
    #[default]
    Async,
    SyncNoIdle,
    Sync,
}

const WORKLOADS: [Workload; 3] = [Workload::Async, Workload::SyncNoIdle, Workload::Sync];
const TREES: usize = 7;

fn tree_index(class: Class, workload: Workload) -> usize {
    match class {
        Class::Idle => TREES - 1,
        _ => 3 * class as usize + workload as usize,
    }
}

/// How long a process takes from a request's end to its next one.
#[derive(Clone, Copy, Debug, Default)]
struct ThinkTime {
    last_end: i64,
    total: i64,
    samples: i64,
    mean: i64,
}

impl ThinkTime {
    fn update(&mut self, now: i64, idle: i64) {
        let elapsed = (now - self.last_end).min(2 * idle);
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * elapsed) / 8;
        self.mean = (self.total + 128) / self.samples;
    }

    fn is_known(&self) -> bool {
        self.samples > 80
    }

    fn is_longer_than(&self, idle: i64) -> bool {
        self.is_known() && self.mean > idle
    }
}

/// Queues that wait for service, in order of their keys.
#[derive(Debug, Default)]
struct ServiceTree {
    queues: Vec<(i64, QueueId)>,
    think_time: ThinkTime,
}

/// Requests of one process, or the asynchronous ones of a priority.
#[derive(Debug, Default)]
struct Queue {
    sync: bool,
    class: Class,
    ioprio: i64,
    prio_changed: bool,
    /// Processes whose queue this is; one more for a shared asynchronous one.
    processes: u32,
    /// Requests that exist, queued or not.
    allocated: u32,
    /// Where it waits for service, and its key there.
    tree: Option<(usize, i64)>,
    on_rr: bool,
    sorted: SortList,
    fifo: RqList,
    next_rq: Option<RequestId>,
    prio_pending: u32,
    /// Requests in the drive.
    dispatched: u32,
    slice_new: bool,
    slice_start: i64,
    slice_end: i64,
    slice_residue: i64,
    slice_dispatch: i64,
    fifo_checked: bool,
    wait_request: bool,
    wait_busy: bool,
    must_dispatch: bool,
    idle_window: bool,
    deep: bool,
    seek_history: u32,
    last_request_end: u64,
    /// The queue it is going to be one with.
    merges_into: Option<QueueId>,
    shared: bool,
    split: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    fn is_seeky(&self) -> bool {
        self.seek_history.count_ones() > 32 / 8
    }

    fn workload(&self) -> Workload {
        match (self.sync, self.idle_window) {
            (false, _) => Workload::Async,
            (true, false) => Workload::SyncNoIdle,
            (true, true) => Workload::Sync,
        }
    }

    fn tree_index(&self) -> usize {
        tree_index(self.class, self.workload())
    }
}

/// A process: its queues, asynchronous and synchronous, and its think time.
#[derive(Debug, Default)]
struct Process {
    queues: [Option<QueueId>; 2],
    think_time: ThinkTime,
    prio: IoPrio,
}

/// `elv[0]`: the request's queue, and one more so that zero says none.
const ELV_QUEUE: usize = 0;
/// `elv[1]`: four times its process, and two flags.
const ELV_PROCESS: usize = 1;
/// It was dispatched by its queue and is not complete.
const SERVED: u32 = 1;
/// The drive has it.
const IN_DRIVER: u32 = 2;

fn queue_of(rq: &Request) -> Option<QueueId> {
    Some(rq.elv[ELV_QUEUE].checked_sub(1)? as QueueId)
}

fn process_of(rq: &Request) -> usize {
    rq.elv[ELV_PROCESS] as usize / 4
}

fn is_prio(rq: &Request) -> bool {
    rq.flags.has(BioFlags::META)
}

/// A synchronous write whose writer says nothing of more to come.
fn is_no_idle(rq: &Request) -> bool {
    rq.is_write() && rq.flags.has(BioFlags::SYNC) && !rq.flags.has(BioFlags::IDLE)
}

/// The scheduler's state.
pub struct Cfq {
    tunables: Tunables,
    rotational: bool,
    queues: Vec<Queue>,
    free_queues: Vec<QueueId>,
    processes: Vec<Process>,
    process_ids: IdMap<usize>,
    /// Shared queues of asynchronous requests, by class and level.
    async_queues: [[Option<QueueId>; PRIO_LEVELS as usize]; 3],
    trees: [ServiceTree; TREES],
    /// Queues in the service trees, and the synchronous ones of them.
    busy: u32,
    busy_sync: u32,
    /// Busy queues of a class, averaged.
    busy_average: [i64; 2],
    group_think_time: ThinkTime,
    active: Option<QueueId>,
    active_process: Option<usize>,
    class: Class,
    workload: Workload,
    workload_end: i64,
    queued: u32,
    in_driver: u32,
    /// Dispatched requests of asynchronous and synchronous queues.
    in_flight: [u32; 2],
    /// Whether the drive queues requests; `None` until that is known.
    queues_in_drive: Option<bool>,
    depth_seen: u32,
    depth_samples: u32,
    last_position: u64,
    last_delayed_sync: i64,
    idle_until: Option<i64>,
    /// The hardware queues are to be run.
    kick: Option<Nanos>,
    /// Head inserts: requeues and the data of flush sequences.
    dispatch: RqList,
    slices: u64,
    idles: u64,
    preemptions: u64,
    expired: u64,
    merged: u64,
    dispatched: u64,
}

impl Cfq {
    /// A fresh one.
    pub fn new(info: &QueueInfo) -> Cfq {
        let mut tunables = Tunables::new(TUNABLES);
        if !info.rotational {
            // In range by construction.
            let _ = tunables.set("slice_idle", 0);
        }
        Cfq {
            tunables,
            rotational: info.rotational,
            queues: Vec::new(),
            free_queues: Vec::new(),
            processes: Vec::new(),
            process_ids: IdMap::default(),
            async_queues: Default::default(),
            trees: Default::default(),
            busy: 0,
            busy_sync: 0,
            busy_average: [0; 2],
            group_think_time: ThinkTime::default(),
            active: None,
            active_process: None,
            class: Class::BestEffort,
            workload: Workload::Async,
            workload_end: 0,
            queued: 0,
            in_driver: 0,
            in_flight: [0; 2],
            queues_in_drive: None,
            depth_seen: 0,
            depth_samples: 0,
            last_position: 0,
            // As if synchronous requests had not been late for a second.
            last_delayed_sync: -HZ,
            idle_until: None,
            kick: None,
            dispatch: RqList::new(),
            slices: 0,
            idles: 0,
            preemptions: 0,
            expired: 0,
            merged: 0,
            dispatched: 0,
        }
    }

    fn ticks(&self, tunable: usize) -> i64 {
        msecs_to_jiffies(self.tunables.at(tunable))
    }

    fn is_queueing_ssd(&self) -> bool {
        !self.rotational && self.queues_in_drive != Some(false)
    }
}

/// Processes and their queues.
impl Cfq {
    fn process(&mut self, id: u32, now: i64) -> usize {
        let next = self.processes.len();
        let process = *self.process_ids.entry(id as u64).or_insert(next);
        if process == next {
            self.processes.push(Process::default());
            self.processes[process].think_time.last_end = now;
        }
        process
    }

    fn make_queue(&mut self, sync: bool) -> QueueId {
        let id = self.free_queues.pop().unwrap_or_else(|| {
            self.queues.push(Queue::default());
            self.queues.len() - 1
        });
        let q = &mut self.queues[id];
        // The sort list keeps its memory.
        let sorted = std::mem::take(&mut q.sorted);
        *q = Queue {
            sync,
            sorted,
            idle_window: sync,
            prio_changed: true,
            ..Queue::default()
        };
        id
    }

    /// Gives a process a queue: a new one, or the shared one of its priority.
    fn assign_queue(&mut self, process: usize, sync: bool) -> QueueId {
        let prio = self.processes[process].prio;
        let id = if sync {
            self.make_queue(true)
        } else {
            let level = match prio.class {
                IoClass::None => NORMAL_PRIO,
                _ => prio.level.min(PRIO_LEVELS as u8 - 1),
            };
            let (class, level) = (class_of(prio) as usize, level as usize);
            match self.async_queues[class][level] {
                Some(id) => id,
                None => {
                    let id = self.make_queue(false);
                    self.queues[id].processes = 1;
                    self.async_queues[class][level] = Some(id);
                    id
                }
            }
        };
        self.queues[id].processes += 1;
        self.processes[process].queues[sync as usize] = Some(id);
        self.apply_prio(id, process);
        id
    }

    /// A changed priority reaches a queue with its next request.
    fn apply_prio(&mut self, id: QueueId, process: usize) {
        let prio = self.processes[process].prio;
        let q = &mut self.queues[id];
        if !std::mem::take(&mut q.prio_changed) {
            return;
        }
        q.class = class_of(prio);
        q.ioprio = match prio.class {
            IoClass::None => NORMAL_PRIO as i64,
            IoClass::Idle => PRIO_LEVELS - 1,
            _ => (prio.level as i64).min(PRIO_LEVELS - 1),
        };
        if q.class == Class::Idle {
            q.idle_window = false;
        }
    }

    fn note_prio(&mut self, process: usize, prio: IoPrio) {
        if self.processes[process].prio == prio {
            return;
        }
        self.processes[process].prio = prio;
        if let Some(id) = self.processes[process].queues[0].take() {
            self.leave_queue(id);
        }
        if let Some(id) = self.processes[process].queues[1] {
            self.queues[id].prio_changed = true;
        }
    }

    fn leave_queue(&mut self, id: QueueId) {
        self.queues[id].processes -= 1;
        self.free_if_unused(id);
    }

    fn free_if_unused(&mut self, id: QueueId) {
        let q = &self.queues[id];
        if q.processes == 0 && q.allocated == 0 && !q.on_rr && self.active != Some(id) {
            self.free_queues.push(id);
            for other in &mut self.queues {
                if other.merges_into == Some(id) {
                    other.merges_into = None;
                }
            }
        }
    }

    /// The queue that a process's next request goes to: its own, after a split
    /// or a merge that is due.
    fn queue_for(&mut self, process: usize, sync: bool) -> QueueId {
        let Some(id) = self.processes[process].queues[sync as usize] else {
            return self.assign_queue(process, sync);
        };
        if self.queues[id].shared && self.queues[id].split {
            if self.queues[id].processes > 1 {
                self.processes[process].queues[sync as usize] = None;
                self.leave_queue(id);
                return self.assign_queue(process, sync);
            }
            self.queues[id].shared = false;
            self.queues[id].split = false;
        }
        let Some(into) = self.queues[id].merges_into else {
            return id;
        };
        self.processes[process].queues[sync as usize] = Some(into);
        self.queues[into].processes += 1;
        self.queues[into].shared = true;
        self.leave_queue(id);
        into
    }

    /// Plans to make two queues one, towards the one of more processes.
    fn plan_merge(&mut self, id: QueueId, other: QueueId) {
        let mut into = other;
        while let Some(next) = self.queues[into].merges_into {
            if next == id {
                return;
            }
            into = next;
        }
        let (here, there) = (self.queues[id].processes, self.queues[into].processes);
        if into == id || here == 0 || there == 0 {
            return;
        }
        if there >= here {
            self.queues[id].merges_into = Some(into);
        } else {
            self.queues[into].merges_into = Some(id);
        }
    }
}

fn class_of(prio: IoPrio) -> Class {
    match prio.class {
        IoClass::Rt => Class::RealTime,
        IoClass::None | IoClass::Be => Class::BestEffort,
        IoClass::Idle => Class::Idle,
    }
}

/// Slices.
impl Cfq {
    /// The slice of a priority: a fifth more or less for each level from 4.
    fn prio_slice(&self, sync: bool, ioprio: i64) -> i64 {
        let base = self.ticks(if sync { SLICE_SYNC } else { SLICE_ASYNC });
        base + base / 5 * (NORMAL_PRIO as i64 - ioprio)
    }

    fn busy_of_class(&self, class: Class) -> i64 {
        let count = |w| self.trees[tree_index(class, w)].queues.len() as i64;
        match class {
            Class::Idle => count(Workload::Async),
            _ => WORKLOADS.into_iter().map(count).sum(),
        }
    }

    /// Busy queues of a class, which grows fast and shrinks slowly.
    fn average_busy(&mut self, class: Class) -> i64 {
        let (average, busy) = (self.busy_average[class as usize], self.busy_of_class(class));
        let (low, high) = (average.min(busy), average.max(busy));
        let average = (3 * high + low + 2) / 4;
        self.busy_average[class as usize] = average;
        average
    }

    /// The slice of a queue, shortened where all queues' slices together would
    /// take longer than `target_latency`.
    fn scaled_slice(&mut self, id: QueueId) -> i64 {
        let q = &self.queues[id];
        let (class, slice) = (q.class, self.prio_slice(q.sync, q.ioprio));
        if self.tunables.at(LOW_LATENCY) == 0 {
            return slice;
        }
        let counted = match class {
            Class::RealTime => Class::RealTime,
            _ => Class::BestEffort,
        };
        let sync_slice = self.ticks(SLICE_SYNC);
        let expected = sync_slice * self.average_busy(counted);
        let target = self.ticks(TARGET_LATENCY);
        if expected <= target {
            return slice;
        }
        let shortest = 2 * self.ticks(SLICE_IDLE);
        let low = slice.min(shortest * slice / sync_slice);
        (slice * target / expected).max(low)
    }

    fn slice_used(&self, id: QueueId, now: i64) -> bool {
        let q = &self.queues[id];
        !q.slice_new && now >= q.slice_end
    }

    fn activate(&mut self, id: Option<QueueId>) {
        if let Some(id) = id {
            let q = &mut self.queues[id];
            (q.slice_start, q.slice_end, q.slice_dispatch) = (0, 0, 0);
            (q.wait_request, q.must_dispatch, q.fifo_checked) = (false, false, false);
            q.slice_new = true;
            self.idle_until = None;
            self.slices += 1;
        }
        self.active = id;
    }

    /// The active queue's slice ends. What is left of it is kept where the
    /// queue lost it through no fault of its own.
    fn expire_slice(&mut self, now: i64, keep_rest: bool) {
        let Some(id) = self.active.take() else {
            return;
        };
        if self.queues[id].wait_request {
            self.idle_until = None;
        }
        let rest = match (keep_rest, self.queues[id].slice_new) {
            (false, _) => None,
            (true, true) => Some(self.scaled_slice(id)),
            (true, false) => Some(self.queues[id].slice_end - now),
        };
        let q = &mut self.queues[id];
        q.wait_request = false;
        q.wait_busy = false;
        q.split |= q.shared && q.is_seeky();
        q.slice_residue = rest.unwrap_or(q.slice_residue);
        let (on_rr, empty) = (q.on_rr, q.is_empty());
        if on_rr && empty {
            self.leave_service(id);
        } else if on_rr {
            self.enter_tree(id, now, false);
        }
        self.active_process = None;
        self.free_if_unused(id);
    }
}

/// Service trees.
impl Cfq {
    fn leave_tree(&mut self, id: QueueId) {
        if let Some((tree, _)) = self.queues[id].tree.take() {
            self.trees[tree].queues.retain(|&(_, q)| q != id);
        }
    }

    /// The key by which a queue waits: earlier for a higher priority and for
    /// what it did not use of its last slice.
    fn service_key(&mut self, id: QueueId, tree: usize, now: i64, first: bool) -> i64 {
        let others = |q: &&(i64, QueueId)| q.1 != id;
        let waiting = &self.trees[tree].queues;
        if self.queues[id].class == Class::Idle {
            let last = waiting.last().filter(others);
            return IDLE_DELAY + last.map_or(now, |&(key, _)| key);
        }
        if first {
            return waiting.first().map_or(now, |&(key, _)| key) - HZ;
        }
        let q = &self.queues[id];
        let shorter = self.prio_slice(true, 0) - self.prio_slice(q.sync, q.ioprio);
        let offset = (self.busy as i64 - 1) * shorter;
        now + offset - std::mem::take(&mut self.queues[id].slice_residue)
    }

    fn enter_tree(&mut self, id: QueueId, now: i64, first: bool) {
        let tree = self.queues[id].tree_index();
        let key = self.service_key(id, tree, now, first);
        if self.queues[id].tree == Some((tree, key)) {
            return;
        }
        self.leave_tree(id);
        let queues = &mut self.trees[tree].queues;
        let at = queues.partition_point(|&(k, _)| k <= key);
        queues.insert(at, (key, id));
        self.queues[id].tree = Some((tree, key));
    }

    fn enter_service(&mut self, id: QueueId, now: i64) {
        self.queues[id].on_rr = true;
        self.busy += 1;
        self.busy_sync += self.queues[id].sync as u32;
        self.enter_tree(id, now, false);
    }

    fn leave_service(&mut self, id: QueueId) {
        self.queues[id].on_rr = false;
        self.leave_tree(id);
        self.busy -= 1;
        self.busy_sync -= self.queues[id].sync as u32;
        if self.busy == 0 {
            self.workload_end = i64::MIN;
        }
    }

    /// Which class and workload is served now, and until when.
    fn choose_workload(&mut self, now: i64) {
        let before = self.class;
        let busy = [Class::RealTime, Class::BestEffort]
            .into_iter()
            .find(|&class| self.busy_of_class(class) > 0);
        let Some(class) = busy else {
            self.class = Class::Idle;
            self.workload_end = now + 1;
            return;
        };
        self.class = class;
        let tree = &self.trees[tree_index(class, self.workload)];
        if before == class && !tree.queues.is_empty() && now <= self.workload_end {
            return;
        }
        self.workload = self.best_workload(class);
        self.workload_end = now + self.workload_slice(class);
    }

    /// The workload whose first queue has waited longest.
    fn best_workload(&self, class: Class) -> Workload {
        let first = |w: &Workload| self.trees[tree_index(class, *w)].queues.first();
        let waiting = WORKLOADS.into_iter().filter(|w| first(w).is_some());
        waiting
            .min_by_key(|w| first(w).map(|&(key, _)| key))
            .unwrap_or(Workload::SyncNoIdle)
    }

    /// A workload's share of `target_latency`, by the number of its queues.
    fn workload_slice(&self, class: Class) -> i64 {
        let target = self.ticks(TARGET_LATENCY);
        let count = self.trees[tree_index(class, self.workload)].queues.len() as i64;
        let all = self.busy_average[class as usize].max(self.busy_of_class(class));
        let slice = target * count / all.max(1);
        let slice = if self.workload == Workload::Async {
            let queues = |class| self.trees[tree_index(class, Workload::Async)].queues.len() as i64;
            let asyncs = queues(Class::RealTime) + queues(Class::BestEffort);
            let slice = slice.min(target * asyncs / (self.busy as i64).max(1));
            slice * self.ticks(SLICE_ASYNC) / self.ticks(SLICE_SYNC)
        } else {
            slice.max(2 * self.ticks(SLICE_IDLE))
        };
        slice.max(MIN_THINK_TIME)
    }
}

/// Requests inside a queue.
impl Cfq {
    /// What it costs to get to a request from `from`; `None` where it lies too
    /// far behind to go back to.
    fn way_to(&self, sector: u64, from: u64) -> Option<u64> {
        let back_max = self.tunables.at(BACK_SEEK_MAX) as u64 * 2;
        if sector >= from {
            Some(sector - from)
        } else if sector.saturating_add(back_max) >= from {
            let penalty = self.tunables.at(BACK_SEEK_PENALTY) as u64;
            Some((from - sector).saturating_mul(penalty))
        } else {
            None
        }
    }

    /// The better of two requests from `from`: synchronous before not, metadata
    /// before data, then the shorter way.
    fn better(
        &self,
        ctx: &SchedCtx<'_>,
        one: Option<RequestId>,
        two: Option<RequestId>,
        from: u64,
    ) -> Option<RequestId> {
        let (Some(a), Some(b)) = (one, two) else {
            return one.or(two);
        };
        let (rq_a, rq_b) = (&ctx.rqs[a], &ctx.rqs[b]);
        if rq_a.is_sync() != rq_b.is_sync() {
            return Some(if rq_a.is_sync() { a } else { b });
        }
        if is_prio(rq_a) != is_prio(rq_b) {
            return Some(if is_prio(rq_a) { a } else { b });
        }
        let (at_a, at_b) = (rq_a.sector.0, rq_b.sector.0);
        let take_a = match (self.way_to(at_a, from), self.way_to(at_b, from)) {
            (Some(x), Some(y)) if x == y => at_a >= at_b,
            (Some(x), Some(y)) => x < y,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            // Both far behind: from the furthest only one way back is needed.
            (None, None) => at_a <= at_b,
        };
        Some(if take_a { a } else { b })
    }

    /// The best request of a queue after `id`, which is queued.
    fn after(&self, ctx: &SchedCtx<'_>, queue: QueueId, id: RequestId) -> Option<RequestId> {
        let sorted = &self.queues[queue].sorted;
        let prev = sorted.prev(ctx.rqs, id);
        let wrapped = || sorted.first().filter(|&first| first != id);
        let next = sorted.next(ctx.rqs, id).or_else(wrapped);
        self.better(ctx, next, prev, ctx.rqs[id].sector.0)
    }

    fn add_sorted(&mut self, ctx: &mut SchedCtx<'_>, queue: QueueId, id: RequestId, now: i64) {
        self.queues[queue].sorted.insert(ctx.rqs, id);
        if !self.queues[queue].on_rr {
            self.enter_service(queue, now);
        }
        let next = self.queues[queue].next_rq;
        self.queues[queue].next_rq = self.better(ctx, next, Some(id), self.last_position);
    }

    /// Takes a queued request out of everything it is in.
    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        ctx.merge.remove(ctx.rqs, id);
        // One that merges while it is being inserted is in no list yet.
        let (true, Some(queue)) = (ctx.rqs[id].is_sorted(), queue_of(&ctx.rqs[id])) else {
            return;
        };
        if self.queues[queue].next_rq == Some(id) {
            self.queues[queue].next_rq = self.after(ctx, queue, id);
        }
        let q = &mut self.queues[queue];
        q.fifo.remove(ctx.rqs, id);
        q.sorted.remove(ctx.rqs, id);
        q.prio_pending -= is_prio(&ctx.rqs[id]) as u32;
        self.queued -= 1;
    }

    /// The oldest request, once a slice, where its deadline has passed.
    fn late_request(&mut self, ctx: &SchedCtx<'_>, queue: QueueId) -> Option<RequestId> {
        let q = &mut self.queues[queue];
        if std::mem::replace(&mut q.fifo_checked, true) {
            return None;
        }
        let oldest = q.fifo.front()?;
        let late = jiffies(ctx.now) >= ctx.rqs[oldest].fifo_time.0 as i64;
        self.expired += late as u64;
        late.then_some(oldest)
    }
}

/// Idling and preemption.
impl Cfq {
    fn should_idle(&self, id: QueueId) -> bool {
        let (q, idle) = (&self.queues[id], self.ticks(SLICE_IDLE));
        let Some((tree, _)) = q.tree else {
            return false;
        };
        if idle == 0 || q.class == Class::Idle {
            return false;
        }
        if q.idle_window && !self.is_queueing_ssd() {
            return true;
        }
        let tree = &self.trees[tree];
        tree.queues.len() == 1 && q.sync && !tree.think_time.is_longer_than(idle)
    }

    fn slice_is_shorter_than_thought(&self, id: QueueId, now: i64) -> bool {
        let Some(process) = self.active_process else {
            return false;
        };
        let think_time = &self.processes[process].think_time;
        think_time.is_known() && self.queues[id].slice_end - now < think_time.mean
    }

    /// The active queue ran dry: waits for its next request if that is worth it.
    fn arm_idle_timer(&mut self, id: QueueId, now: i64) {
        if self.is_queueing_ssd() || self.active_process.is_none() {
            return;
        }
        let for_queue = self.should_idle(id);
        let for_group = !for_queue && self.ticks(GROUP_IDLE) > 0;
        if !for_queue && (!for_group || self.busy > 1) {
            return;
        }
        if self.queues[id].dispatched > 0 || self.slice_is_shorter_than_thought(id, now) {
            return;
        }
        self.queues[id].wait_request = true;
        self.idles += 1;
        let idle = if for_queue { SLICE_IDLE } else { GROUP_IDLE };
        self.idle_until = Some(now + self.ticks(idle));
    }

    /// Whether the only queue should keep its turn until it has more requests.
    fn should_wait_busy(&self, id: QueueId, now: i64) -> bool {
        let q = &self.queues[id];
        let big = self.group_think_time.is_longer_than(self.ticks(GROUP_IDLE));
        if !q.is_empty() || self.busy > 1 || big {
            return false;
        }
        self.slice_used(id, now)
            || self.slice_is_shorter_than_thought(id, now)
            || q.slice_end - now == 1
    }

    fn is_close(&self, sector: Sector) -> bool {
        sector.0.abs_diff(self.last_position) <= CLOSE_THRESHOLD
    }

    /// A queue of the same priority that works right where the head is.
    fn close_cooperator(&self, ctx: &SchedCtx<'_>, id: QueueId) -> Option<QueueId> {
        let q = &self.queues[id];
        if q.class == Class::Idle || !q.sync || q.is_seeky() || self.busy == 1 {
            return None;
        }
        let close = |other: &Queue| {
            let sector = ctx.rqs[other.next_rq?].sector;
            (self.is_close(sector) && other.ioprio == q.ioprio && other.class == q.class)
                .then(|| sector.0.abs_diff(self.last_position))
        };
        let waiting = WORKLOADS
            .into_iter()
            .flat_map(|w| &self.trees[tree_index(q.class, w)].queues);
        waiting
            .map(|&(_, other)| other)
            .filter(|&other| other != id)
            .filter_map(|other| Some((close(&self.queues[other])?, other)))
            .min()
            .map(|(_, other)| other)
            .filter(|&other| self.queues[other].sync && !self.queues[other].is_seeky())
    }

    /// Whether a queue's new request takes the drive from the active queue.
    fn should_preempt(&self, new: QueueId, rq: &Request, now: i64) -> bool {
        let Some(active) = self.active else {
            return false;
        };
        let (q, n) = (&self.queues[active], &self.queues[new]);
        if n.class == Class::Idle || q.class == Class::Idle {
            return n.class != Class::Idle;
        }
        if q.class == Class::RealTime && n.class != Class::RealTime {
            return false;
        }
        let alone_in_no_idle = self.workload == Workload::SyncNoIdle
            && n.workload() == Workload::SyncNoIdle
            && n.tree.is_some_and(|(t, _)| self.trees[t].queues.len() == 2)
            && q.is_empty();
        if (rq.is_sync() && !q.sync)
            || self.slice_used(active, now)
            || alone_in_no_idle
            || (is_prio(rq) && q.prio_pending == 0)
            || (n.class == Class::RealTime && q.class != Class::RealTime)
            || (q.is_empty() && !self.should_idle(active))
        {
            return true;
        }
        self.active_process.is_some() && q.wait_request && self.is_close(rq.sector)
    }

    fn preempt(&mut self, by: QueueId, now: i64) {
        self.preemptions += 1;
        let before = self.active.map(|id| self.queues[id].workload());
        self.expire_slice(now, true);
        if before != Some(self.queues[by].workload()) {
            self.workload_end = i64::MIN;
        }
        self.enter_tree(by, now, true);
        self.queues[by].slice_end = 0;
        self.queues[by].slice_new = true;
    }

    fn update_idle_window(&mut self, id: QueueId, process: usize, no_idle: bool) {
        let idle = self.ticks(SLICE_IDLE);
        let think_time = self.processes[process].think_time;
        let q = &mut self.queues[id];
        if !q.sync || q.class == Class::Idle {
            return;
        }
        q.deep |= q.sorted.len() >= 4;
        if no_idle || idle == 0 || (!q.deep && q.is_seeky()) {
            q.idle_window = false;
        } else if think_time.is_known() {
            q.idle_window = think_time.mean <= idle;
        }
    }

    fn note_seek(&mut self, id: QueueId, rq: &Request) {
        let rotational = self.rotational;
        let q = &mut self.queues[id];
        let distance = match q.last_request_end {
            0 => 0,
            last => last.abs_diff(rq.sector.0),
        };
        let seek = if rotational {
            distance > SEEK_THRESHOLD
        } else {
            rq.sectors < SMALL_SECTORS
        };
        q.seek_history = q.seek_history << 1 | seek as u32;
        q.last_request_end = rq.end().0;
    }
}

/// Insert.
impl Cfq {
    fn insert(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, at: InsertAt) {
        if at == InsertAt::Head {
            ctx.trace_insert(id);
            return self.dispatch.push_front(ctx.rqs, id);
        }
        if sched_try_insert_merge(self, ctx, id) {
            return;
        }
        ctx.trace_insert(id);
        let now = jiffies(ctx.now);
        let process = process_of(&ctx.rqs[id]);
        let sync = ctx.rqs[id].is_sync();
        let Some(queue) = queue_of(&ctx.rqs[id]) else {
            return self.dispatch.push_back(ctx.rqs, id);
        };
        self.apply_prio(queue, process);
        let expire = if sync {
            FIFO_EXPIRE_SYNC
        } else {
            FIFO_EXPIRE_ASYNC
        };
        ctx.rqs[id].fifo_time = Nanos((now + self.ticks(expire)) as u64);
        self.queues[queue].fifo.push_back(ctx.rqs, id);
        self.add_sorted(ctx, queue, id, now);
        ctx.merge.add(ctx.rqs, id);
        self.enqueued(ctx, queue, id);
    }

    fn enqueued(&mut self, ctx: &SchedCtx<'_>, queue: QueueId, id: RequestId) {
        let (now, rq) = (jiffies(ctx.now), &ctx.rqs[id]);
        self.queued += 1;
        self.queues[queue].prio_pending += is_prio(rq) as u32;
        self.note_think_time(queue, process_of(rq), now);
        self.note_seek(queue, rq);
        let next = self.queues[queue].next_rq;
        let no_idle = next.is_some_and(|id| is_no_idle(&ctx.rqs[id]));
        self.update_idle_window(queue, process_of(rq), no_idle);
        if self.active == Some(queue) {
            if self.queues[queue].wait_request {
                self.answer_wait(queue, rq);
            }
        } else if self.should_preempt(queue, rq, now) {
            self.preempt(queue, now);
        }
    }

    fn note_think_time(&mut self, queue: QueueId, process: usize, now: i64) {
        let (idle, group_idle) = (self.ticks(SLICE_IDLE), self.ticks(GROUP_IDLE));
        if self.queues[queue].sync {
            self.processes[process].think_time.update(now, idle);
            if let Some((tree, _)) = self.queues[queue].tree {
                self.trees[tree].think_time.update(now, idle);
            }
        }
        self.group_think_time.update(now, group_idle);
    }

    /// What the drive was kept idle for has come. A small request waits on, if
    /// nobody else does, for more to merge with.
    fn answer_wait(&mut self, queue: QueueId, rq: &Request) {
        if rq.sectors > 8 || self.busy > 1 {
            self.idle_until = None;
            self.queues[queue].wait_request = false;
        } else {
            self.queues[queue].must_dispatch = true;
        }
    }
}

/// Dispatch.
impl Cfq {
    fn expire_and_choose(&mut self, now: i64, next: Option<QueueId>) -> Option<QueueId> {
        self.expire_slice(now, false);
        self.choose_queue(now, next)
    }

    fn choose_queue(&mut self, now: i64, next: Option<QueueId>) -> Option<QueueId> {
        if self.busy == 0 || self.queued == 0 {
            return None;
        }
        let next = next.or_else(|| {
            self.choose_workload(now);
            let tree = &self.trees[tree_index(self.class, self.workload)];
            tree.queues.first().map(|&(_, id)| id)
        });
        self.activate(next);
        next
    }

    /// With one queue left, and requests of it in the drive, nothing is gained
    /// by ending its turn.
    fn group_should_wait(&self) -> bool {
        let group_idle = self.ticks(GROUP_IDLE);
        group_idle > 0
            && self.busy == 1
            && self.in_flight != [0, 0]
            && !self.group_think_time.is_longer_than(group_idle)
    }

    /// The queue to serve; `None` to keep the drive waiting.
    fn select_queue(&mut self, ctx: &SchedCtx<'_>) -> Option<QueueId> {
        let now = jiffies(ctx.now);
        let Some(id) = self.active else {
            return self.choose_queue(now, None);
        };
        if self.queued == 0 {
            return None;
        }
        let q = &self.queues[id];
        let (empty, in_drive) = (q.is_empty(), q.dispatched > 0);
        if q.wait_busy && !empty {
            return self.expire_and_choose(now, None);
        }
        if self.slice_used(id, now) && !q.must_dispatch {
            let wait = self.busy == 1 && empty && in_drive && self.should_idle(id);
            if wait || self.group_should_wait() {
                return None;
            }
            return self.expire_and_choose(now, None);
        }
        if !empty {
            return Some(id);
        }
        if let Some(close) = self.close_cooperator(ctx, id) {
            if self.queues[id].merges_into.is_none() {
                self.plan_merge(id, close);
            }
            return self.expire_and_choose(now, Some(close));
        }
        if self.idle_until.is_some() {
            return None;
        }
        self.stop_idling_if_deep(id, now);
        if (in_drive && self.should_idle(id)) || self.group_should_wait() {
            return None;
        }
        self.expire_and_choose(now, None)
    }

    /// A queue that seeks with many requests at once, on a drive that is faster
    /// than it, is not waited for.
    fn stop_idling_if_deep(&mut self, id: QueueId, now: i64) {
        let q = &mut self.queues[id];
        let early = q.slice_new || q.slice_end - now > now - q.slice_start;
        if q.is_seeky() && q.idle_window && early {
            q.deep = false;
            q.idle_window = false;
        }
    }

    fn slice_used_soon(&self, id: QueueId, now: i64) -> bool {
        let q = &self.queues[id];
        q.slice_new || now + self.ticks(SLICE_IDLE) * q.dispatched as i64 > q.slice_end
    }

    /// How many requests the queue may have in the drive; `None` for none now.
    fn depth_allowed(&self, id: QueueId, now: i64) -> Option<i64> {
        let q = &self.queues[id];
        let quantum = self.tunables.at(QUANTUM);
        let idle = q.class == Class::Idle;
        let half = if idle { 1 } else { (quantum / 2).max(1) };
        if (q.dispatched as i64) < half {
            return Some(half);
        }
        let only_sync = q.sync && self.busy_sync == 1;
        if idle || (self.busy > 1 && self.slice_used_soon(id, now) && !only_sync) {
            return None;
        }
        let alone = self.busy == 1 || only_sync;
        Some(if alone { i64::MAX } else { quantum })
    }

    fn may_dispatch(&self, id: QueueId, now: i64) -> bool {
        let q = &self.queues[id];
        // Asynchronous requests drain before synchronous ones that idle, and
        // wait for synchronous ones to drain.
        if (self.should_idle(id) && self.in_flight[0] > 0) || (!q.sync && self.in_flight[1] > 0) {
            return false;
        }
        let Some(mut depth) = self.depth_allowed(id, now) else {
            return false;
        };
        if !q.sync && self.tunables.at(LOW_LATENCY) == 1 {
            let calm = (now - self.last_delayed_sync) / self.ticks(SLICE_SYNC);
            let ramp = if calm == 0 && q.dispatched == 0 {
                1
            } else {
                calm
            };
            depth = depth.min(ramp);
        }
        (q.dispatched as i64) < depth
    }

    fn dispatch_from(&mut self, ctx: &mut SchedCtx<'_>, queue: QueueId) -> Option<RequestId> {
        let now = jiffies(ctx.now);
        if self.queues[queue].is_empty() || !self.may_dispatch(queue, now) {
            return None;
        }
        let late = self.late_request(ctx, queue);
        let id = late.or(self.queues[queue].next_rq)?;
        self.queues[queue].next_rq = self.after(ctx, queue, id);
        self.remove(ctx, id);
        let process = process_of(&ctx.rqs[id]);
        self.active_process.get_or_insert(process);
        let q = &mut self.queues[queue];
        q.dispatched += 1;
        q.slice_dispatch += 1;
        q.must_dispatch = false;
        self.in_flight[q.sync as usize] += 1;
        ctx.rqs[id].elv[ELV_PROCESS] |= SERVED;
        self.end_short_turn(queue, now);
        Some(id)
    }

    /// An asynchronous queue's turn ends after a few requests, an idle one's
    /// after one.
    fn end_short_turn(&mut self, queue: QueueId, now: i64) {
        let q = &self.queues[queue];
        let most = 2 * self.tunables.at(SLICE_ASYNC_RQ) * (PRIO_LEVELS - q.ioprio);
        let over = !q.sync && q.slice_dispatch >= most;
        if self.busy > 1 && (over || q.class == Class::Idle) {
            self.queues[queue].slice_end = now + 1;
            self.expire_slice(now, false);
        }
    }

    fn give_to_driver(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        rq.rq_flags.set(RqFlags::STARTED);
        self.dispatched += 1;
        if rq.elv[ELV_PROCESS] & SERVED != 0 {
            rq.elv[ELV_PROCESS] |= IN_DRIVER;
            self.in_driver += 1;
            self.last_position = rq.end().0;
        }
    }
}

/// Completion.
impl Cfq {
    /// Whether the drive queues: by the most it had at once over 50 samples
    /// under load.
    fn learn_depth(&mut self) {
        self.depth_seen = self.depth_seen.max(self.in_driver);
        let loaded = self.queued > HW_QUEUE_MIN || self.in_driver > HW_QUEUE_MIN;
        if self.queues_in_drive == Some(true) || !loaded {
            return;
        }
        let starved = self.active.is_some_and(|id| {
            let q = &self.queues[id];
            let has = q.dispatched + q.sorted.len() as u32;
            q.idle_window && has < HW_QUEUE_MIN && self.in_driver < HW_QUEUE_MIN
        });
        if starved {
            return;
        }
        self.depth_samples += 1;
        if self.depth_samples > 50 {
            self.queues_in_drive = Some(self.depth_seen >= HW_QUEUE_MIN);
        }
    }

    fn note_end(&mut self, queue: QueueId, rq: &Request, now: i64) {
        self.group_think_time.last_end = now;
        if !rq.is_sync() {
            return;
        }
        self.processes[process_of(rq)].think_time.last_end = now;
        let q = &self.queues[queue];
        let tree = q.tree.map_or(q.tree_index(), |(tree, _)| tree);
        self.trees[tree].think_time.last_end = now;
        if jiffies(rq.start) + self.ticks(FIFO_EXPIRE_SYNC) <= now {
            self.last_delayed_sync = now;
        }
    }

    /// The active queue had a request completed: its slice may begin, end, or
    /// be waited in.
    fn active_completed(&mut self, ctx: &SchedCtx<'_>, id: QueueId, sync: bool) {
        let now = jiffies(ctx.now);
        if std::mem::take(&mut self.queues[id].slice_new) {
            let slice = self.scaled_slice(id);
            self.queues[id].slice_start = now;
            self.queues[id].slice_end = now + slice;
        }
        if self.should_wait_busy(id, now) {
            let idle = match self.ticks(SLICE_IDLE) {
                0 => self.ticks(GROUP_IDLE),
                idle => idle,
            };
            self.queues[id].slice_end = now + idle;
            self.queues[id].wait_busy = true;
        }
        if self.slice_used(id, now) || self.queues[id].class == Class::Idle {
            self.expire_slice(now, true);
        } else if sync && self.queues[id].is_empty() && self.close_cooperator(ctx, id).is_none() {
            self.arm_idle_timer(id, now);
        }
    }

    /// The idle timer ran out. Returns whether requests may go now.
    fn idle_timer_ended(&mut self, now: i64) -> bool {
        let Some(id) = self.active else {
            self.expire_slice(now, true);
            return true;
        };
        let q = &self.queues[id];
        if q.must_dispatch {
            return true;
        }
        if !self.slice_used(id, now) {
            if self.busy == 0 {
                return false;
            }
            if !q.is_empty() {
                return true;
            }
            self.queues[id].deep = false;
        }
        self.expire_slice(now, false);
        true
    }
}

impl Elevator for Cfq {
    fn name(&self) -> &'static str {
        "cfq"
    }

    fn request_merge(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        bio: &Bio,
    ) -> Option<(RequestId, MergeKind)> {
        let process = *self.process_ids.get(&(bio.submitter.0 as u64))?;
        let queue = self.processes[process].queues[bio.is_sync() as usize]?;
        let id = self.queues[queue].sorted.find(bio.end())?;
        elv_bio_merge_ok(self, ctx, id, bio).then_some((id, MergeKind::Front))
    }

    /// Only within a process's queue, and nothing synchronous into what is not.
    fn allow_merge(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, bio: &Bio) -> bool {
        if bio.is_sync() && !ctx.rqs[id].is_sync() {
            return false;
        }
        let process = self.process_ids.get(&(bio.submitter.0 as u64));
        process.is_some_and(|&process| {
            let queue = self.processes[process].queues[bio.is_sync() as usize];
            queue.is_some() && queue == queue_of(&ctx.rqs[id])
        })
    }

    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, kind: MergeKind) {
        if kind == MergeKind::Front
            && ctx.rqs[id].is_sorted()
            && let Some(queue) = queue_of(&ctx.rqs[id])
        {
            self.queues[queue].sorted.remove(ctx.rqs, id);
            self.add_sorted(ctx, queue, id, jiffies(ctx.now));
        }
    }

    /// The survivor takes over the earlier deadline together with its place.
    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.merged += 1;
        let (queue, gone) = (queue_of(&ctx.rqs[id]), queue_of(&ctx.rqs[next]));
        let both_queued = ctx.rqs[id].is_sorted() && ctx.rqs[next].is_sorted();
        if let (true, Some(queue)) = (both_queued && queue == gone, queue) {
            let q = &mut self.queues[queue];
            if ctx.rqs[next].fifo_time < ctx.rqs[id].fifo_time {
                q.fifo.remove(ctx.rqs, id);
                q.fifo.insert_before(ctx.rqs, id, next);
                ctx.rqs[id].fifo_time = ctx.rqs[next].fifo_time;
            }
            if q.next_rq == Some(next) {
                q.next_rq = Some(id);
            }
        }
        self.remove(ctx, next);
        if let Some(gone) = gone
            && self.queues[gone].on_rr
            && self.queues[gone].is_empty()
            && self.active != Some(gone)
        {
            self.leave_service(gone);
        }
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let queue = queue_of(&ctx.rqs[id])?;
        self.queues[queue].sorted.prev(ctx.rqs, id)
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let queue = queue_of(&ctx.rqs[id])?;
        self.queues[queue].sorted.next(ctx.rqs, id)
    }

    fn prepare_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let process = self.process(rq.submitter.0, jiffies(ctx.now));
        self.note_prio(process, rq.prio);
        let queue = self.queue_for(process, rq.is_sync());
        self.queues[queue].allocated += 1;
        rq.elv[ELV_QUEUE] = queue as u32 + 1;
        rq.elv[ELV_PROCESS] = 4 * process as u32;
    }

    fn insert_requests(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        _hctx: usize,
        list: &mut RqList,
        at: InsertAt,
    ) {
        while let Some(id) = list.pop_front(ctx.rqs) {
            self.insert(ctx, id, at);
        }
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        if let Some(id) = self.dispatch.pop_front(ctx.rqs) {
            self.give_to_driver(ctx, id);
            return Some(id);
        }
        let queue = self.select_queue(ctx)?;
        let id = self.dispatch_from(ctx, queue)?;
        self.give_to_driver(ctx, id);
        Some(id)
    }

    fn has_work(&self, _hctx: usize) -> bool {
        !self.dispatch.is_empty() || self.queued > 0
    }

    fn completed_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &ctx.rqs[id];
        let (state, sync) = (rq.elv[ELV_PROCESS], rq.is_sync());
        let (true, Some(queue)) = (state & SERVED != 0, queue_of(rq)) else {
            return;
        };
        self.learn_depth();
        self.in_driver -= (state & IN_DRIVER != 0) as u32;
        self.queues[queue].dispatched -= 1;
        self.in_flight[self.queues[queue].sync as usize] -= 1;
        self.note_end(queue, rq, jiffies(ctx.now));
        ctx.rqs[id].elv[ELV_PROCESS] &= !(SERVED | IN_DRIVER);
        if self.active == Some(queue) {
            self.active_completed(ctx, queue, sync);
        }
        if self.queued > 0 {
            self.kick = Some(ctx.now);
        }
    }

    fn requeue_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let state = &mut ctx.rqs[id].elv[ELV_PROCESS];
        self.in_driver -= (*state & IN_DRIVER != 0) as u32;
        *state &= !IN_DRIVER;
    }

    fn finish_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if let Some(queue) = queue_of(&ctx.rqs[id]) {
            ctx.rqs[id].elv[ELV_QUEUE] = 0;
            self.queues[queue].allocated -= 1;
            self.free_if_unused(queue);
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        let idle = self.idle_until.map(start_of);
        match (self.kick, idle) {
            (Some(kick), Some(idle)) => Some(kick.min(idle)),
            (kick, idle) => kick.or(idle),
        }
    }

    fn timer(&mut self, ctx: &mut SchedCtx<'_>) -> bool {
        let now = jiffies(ctx.now);
        let kicked = self.kick.take_if(|at| *at <= ctx.now).is_some();
        let ended = self.idle_until.take_if(|at| *at <= now).is_some();
        (ended && self.idle_timer_ended(now)) || kicked
    }

    fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.tunables.set(name, value)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("slices", self.slices),
            ("times idled", self.idles),
            ("preemptions", self.preemptions),
            ("expired deadlines", self.expired),
            ("requests merged", self.merged),
            ("dispatched", self.dispatched),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{Rig, queue_info};
    use blklab_blk::{Op, SubmitterId};

    fn disk() -> Rig {
        let info = QueueInfo {
            rotational: true,
            ..queue_info()
        };
        Rig::new(Box::new(Cfq::new(&info)))
    }

    fn read(process: u32, sector: u64) -> Bio {
        Bio {
            submitter: SubmitterId(process),
            ..Bio::new(Op::Read, Sector(sector), 8)
        }
    }

    fn with_prio(bio: Bio, class: IoClass, level: u8) -> Bio {
        Bio {
            prio: IoPrio { class, level },
            ..bio
        }
    }

    /// Serves readers that each always have a few requests queued, a
    /// millisecond a request, one at a time; how many each got.
    fn shares(readers: &[IoPrio], ms: u64) -> Vec<u64> {
        let mut rig = disk();
        let mut next: Vec<u64> = (0..readers.len() as u64).map(|p| p << 24).collect();
        let add = |rig: &mut Rig, next: &mut [u64], p: usize| {
            let bio = read(p as u32, next[p]);
            next[p] += 1024;
            rig.insert(&with_prio(bio, readers[p].class, readers[p].level));
        };
        for p in 0..readers.len() {
            (0..4).for_each(|_| add(&mut rig, &mut next, p));
        }
        let mut served = vec![0; readers.len()];
        for _ in 0..ms {
            let id = rig.dispatch();
            rig.pass_ms(1);
            if let Some(id) = id {
                let p = rig.rq(id).submitter.0 as usize;
                rig.complete(id);
                served[p] += 1;
                add(&mut rig, &mut next, p);
            }
            rig.run_timer();
        }
        served
    }

    #[test]
    fn equal_readers_get_equal_shares() {
        let served = shares(&[IoPrio::default(); 4], 8_000);
        let total: u64 = served.iter().sum();
        assert!(total > 7_000, "{served:?}");
        for share in &served {
            assert!(share.abs_diff(total / 4) < total / 20, "{served:?}");
        }
    }

    #[test]
    fn a_higher_level_gets_more_and_a_lower_class_nothing_meanwhile() {
        let level = |level| IoPrio {
            class: IoClass::Be,
            level,
        };
        let idle = IoPrio {
            class: IoClass::Idle,
            level: 7,
        };
        let served = shares(&[level(0), level(4), level(7), idle], 20_000);
        assert!(served[0] > served[1] && served[1] > served[2], "{served:?}");
        assert_eq!(served[3], 0, "{served:?}");
        let real_time = IoPrio {
            class: IoClass::Rt,
            level: 4,
        };
        let served = shares(&[real_time, level(0)], 2_000);
        assert_eq!(served[1], 0, "{served:?}");
    }

    #[test]
    fn waits_for_a_sequential_reader_s_next_request() {
        let mut rig = disk();
        let first = rig.insert(&read(0, 1000)).unwrap();
        rig.insert(&read(1, 9_000_000)).unwrap();
        assert_eq!(rig.dispatch(), Some(first));
        rig.pass_ms(4);
        rig.complete(first);
        rig.run_timer();
        assert_eq!(rig.dispatch(), None);
        assert_eq!(rig.count("times idled"), 1);
        let second = rig.insert(&read(0, 1008)).unwrap();
        assert_eq!(rig.dispatch(), Some(second));
    }

    #[test]
    fn gives_up_waiting_after_slice_idle() {
        let mut rig = disk();
        let first = rig.insert(&read(0, 1000)).unwrap();
        let other = rig.insert(&read(1, 9_000_000)).unwrap();
        rig.dispatch();
        rig.pass_ms(4);
        rig.complete(first);
        rig.run_timer();
        assert_eq!(rig.dispatch(), None);
        rig.pass_ms(8);
        assert!(rig.run_timer());
        assert_eq!(rig.dispatch(), Some(other));
    }

    #[test]
    fn does_not_wait_on_an_ssd() {
        let mut rig = Rig::new(Box::new(Cfq::new(&queue_info())));
        assert_eq!(rig.elevator.tunables().get("slice_idle"), Some(0));
        let first = rig.insert(&read(0, 1000)).unwrap();
        let other = rig.insert(&read(1, 9_000_000)).unwrap();
        rig.dispatch();
        rig.pass_ms(4);
        rig.complete(first);
        rig.run_timer();
        assert_eq!(rig.dispatch(), Some(other));
        assert_eq!(rig.count("times idled"), 0);
    }

    #[test]
    fn a_synchronous_request_preempts_asynchronous_ones() {
        let mut rig = disk();
        for i in 0..8 {
            rig.insert(&Bio::new(Op::Write, Sector(i * 1000), 8));
        }
        rig.dispatch().unwrap();
        let read = rig.insert(&read(1, 9_000_000)).unwrap();
        assert_eq!(rig.count("preemptions"), 1);
        // It waits for the write that is in the drive, as it would idle.
        let next = rig.dispatch();
        assert!(next.is_none() || next == Some(read));
    }

    #[test]
    fn does_not_merge_across_processes() {
        let mut rig = disk();
        rig.insert(&read(0, 1000)).unwrap();
        rig.insert(&read(1, 9_000_000)).unwrap();
        assert_eq!(rig.merge(&read(1, 1008)), None);
        assert!(rig.merge(&read(0, 1008)).is_some());
    }
}
