//! Zone write plugs (`block/blk-zoned.c`): of each sequential zone one write is on its way to the
//! drive, and the others wait in the zone's plug, in order.
//!
//! A sequential zone takes a write only at its write pointer, and neither schedulers nor drives
//! keep writes in order. Conventional zones and reads pass.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::bio::{Bio, BioFlags, Op, ZoneAction};
use crate::limits::{NoMerges, QueueLimits, ZoneLimits};
use crate::merge::BioMergeStatus;
use crate::queue::{BlkDriver, RequestQueue, Submit};
use crate::request::{BioId, IoStatus, RequestId, RqFlags};
use crate::rq_qos::Worker;
use crate::trace::TraceKind;
use crate::units::{Nanos, Sector};

/// The write plug of a zone (`struct blk_zone_wplug`).
#[derive(Clone, Debug, Default)]
struct ZonePlug {
    /// Whether the write pointer is known: the zone was written and is neither empty nor full.
    tracks: bool,
    /// Whether a write is on its way to the drive (`BLK_ZONE_WPLUG_PLUGGED`).
    plugged: bool,
    /// Whether a write has failed, so that only the drive knows the write pointer
    /// (`BLK_ZONE_WPLUG_NEED_WP_UPDATE`).
    needs_update: bool,
    /// The write pointer once all writes that passed the plug have ended, in sectors from the
    /// zone's start.
    wp_offset: u32,
    /// The first and the last write that waits.
    bios: Option<(BioId, BioId)>,
}

/// The next write of a zone, to be submitted by a worker.
#[derive(Clone, Copy, Debug)]
struct ZoneWork {
    at: Nanos,
    zone: u32,
    cpu: u16,
}

/// The write plugs of a drive, and the work queue that submits what waits in them.
#[derive(Debug)]
pub(crate) struct ZonePlugs {
    limits: ZoneLimits,
    /// Plugs by the number of the zone.
    plugs: Vec<ZonePlug>,
    /// Work in the order in which it was queued. A zone is in it at most once.
    work: VecDeque<ZoneWork>,
    /// Workers that sleep for a tag.
    blocked: Vec<Worker>,
}

impl ZonePlugs {
    /// Returns the plugs of a drive; `None` for a drive without zones.
    pub(crate) fn of(limits: &QueueLimits) -> Option<Box<ZonePlugs>> {
        let zones = limits.zones?;
        let count = zones.count(limits.capacity_sectors) as usize;
        Some(Box::new(ZonePlugs {
            limits: zones,
            plugs: vec![ZonePlug::default(); count],
            work: VecDeque::new(),
            blocked: Vec::new(),
        }))
    }

    /// The zone of a write that has to pass its plug. A flush without data need not.
    fn zone_of_write(&self, op: Op, sector: Sector, sectors: u32) -> Option<usize> {
        let is_write = matches!(op, Op::Write | Op::WriteZeroes) && sectors > 0;
        let plugs = is_write && self.limits.is_sequential(sector);
        plugs.then_some(self.limits.zone_of(sector) as usize)
    }

    fn is_full(&self, zone: usize) -> bool {
        self.plugs[zone].wp_offset >= self.limits.capacity_sectors
    }

    /// Lets a write go on if it starts at the write pointer, which it moves
    /// (`blk_zone_wplug_prepare_bio`). The drive would fail it elsewhere.
    fn prepare(&mut self, zone: usize, bio: &Bio) -> bool {
        let offset = self.limits.offset_of(bio.sector);
        let full = self.is_full(zone);
        let plug = &mut self.plugs[zone];
        let fits = !plug.needs_update && !full && offset == plug.wp_offset;
        if fits {
            plug.wp_offset = plug.wp_offset.saturating_add(bio.sectors);
        }
        fits
    }

    /// Takes a write that waits out of a zone's plug.
    fn pop(&mut self, zone: usize, next: Option<BioId>) {
        let plug = &mut self.plugs[zone];
        plug.bios = plug.bios.and_then(|(_, last)| Some((next?, last)));
    }

    /// Forgets a zone that is empty or full: its next write tells where that starts
    /// (`disk_should_remove_zone_wplug`).
    fn forget_if_idle(&mut self, zone: usize) {
        let full = self.is_full(zone);
        let plug = &mut self.plugs[zone];
        if !plug.plugged && (plug.wp_offset == 0 || full) {
            plug.tracks = false;
        }
    }

    /// When the next worker runs.
    pub(crate) fn next_work(&self) -> Nanos {
        self.work.front().map_or(Nanos::MAX, |work| work.at)
    }
}

impl RequestQueue {
    /// Lets a write of a sequential zone pass if no other write of that zone is on its way
    /// (`blk_zone_plug_bio`). Returns whether the bio was taken: it waits, or has failed.
    #[cold]
    pub(crate) fn plug_zone_write(
        &mut self,
        now: Nanos,
        cpu: usize,
        part: BioId,
        bio: &Bio,
    ) -> bool {
        let Some(zones) = &mut self.zones else {
            return false;
        };
        if let Op::Zone(action) = bio.op {
            return self.plug_zone_action(now, part, (bio.sector, action));
        }
        let Some(zone) = zones.zone_of_write(bio.op, bio.sector, bio.sectors) else {
            return false;
        };
        let offset = zones.limits.offset_of(bio.sector);
        let plug = &mut zones.plugs[zone];
        if !plug.tracks {
            *plug = ZonePlug {
                tracks: true,
                wp_offset: offset,
                ..ZonePlug::default()
            };
        }
        // A worker submits what must not wait for a tag: that it waits here is not seen.
        let nowait = bio.flags.has(BioFlags::NOWAIT);
        if !plug.plugged && !nowait {
            let fits = zones.prepare(zone, bio);
            zones.plugs[zone].plugged = fits;
            if !fits {
                self.end_bio(now, part, IoStatus::IoError);
            }
            return !fits;
        }
        let is_first = !core::mem::replace(&mut plug.plugged, true);
        let last = plug.bios.map(|(_, last)| last);
        plug.bios = Some(plug.bios.map_or((part, part), |(first, _)| (first, part)));
        if let Some(last) = last {
            self.rqs.bios[last].next = Some(part);
        }
        let flags = &mut self.rqs.bios[part].bio.flags;
        *flags = flags.without(BioFlags::NOWAIT);
        self.trace.bio(now, TraceKind::ZonePlug, bio);
        if is_first {
            self.queue_zone_work(now, zone, cpu as u16);
        }
        true
    }

    /// A zone is to be reset or finished: what waits in its plug fails, as it would on the drive
    /// (`blk_zone_wplug_handle_reset_or_finish`). Returns whether the bio itself has failed.
    fn plug_zone_action(
        &mut self,
        now: Nanos,
        part: BioId,
        (sector, action): (Sector, ZoneAction),
    ) -> bool {
        let Some(zones) = &mut self.zones else {
            return false;
        };
        let wp_offset = match action {
            ZoneAction::Reset => 0,
            ZoneAction::Finish => zones.limits.zone_sectors,
            // The drive alone knows of these.
            ZoneAction::Open | ZoneAction::Close => return false,
        };
        let zone = zones.limits.zone_of(sector) as usize;
        let is_sequential = zones.limits.is_sequential(sector);
        let Some(plug) = zones.plugs.get_mut(zone).filter(|_| is_sequential) else {
            self.end_bio(now, part, IoStatus::IoError);
            return true;
        };
        (plug.needs_update, plug.wp_offset) = (false, wp_offset);
        zones.forget_if_idle(zone);
        self.abort_zone(now, zone);
        false
    }

    fn queue_zone_work(&mut self, now: Nanos, zone: usize, cpu: u16) {
        let Some(zones) = &mut self.zones else {
            return;
        };
        let at = now + self.kblockd.after + self.kblockd.wake;
        let zone = zone as u32;
        zones.work.push_back(ZoneWork { at, zone, cpu });
        self.work_hint = self.work_hint.min(at);
    }

    /// Marks a new request as its zone's write, and merges the waiting writes into it that continue
    /// it (`blk_zone_write_plug_init_request`).
    #[cold]
    pub(crate) fn init_zone_write(&mut self, now: Nanos, id: RequestId) {
        let rq = &mut self.rqs[id];
        let zones = self.zones.as_deref();
        let zone = zones.and_then(|zones| zones.zone_of_write(rq.op, rq.sector, rq.sectors));
        let Some(zone) = zone.filter(|_| !rq.is_passthrough()) else {
            return;
        };
        rq.rq_flags.set(RqFlags::ZONE_WRITE);
        if self.merge.limits.nomerges == NoMerges::Never {
            return;
        }
        while let Some(zones) = &self.zones
            && !zones.is_full(zone)
            && let Some((part, _)) = zones.plugs[zone].bios
        {
            let (bio, next) = (self.rqs.bios[part].bio, self.rqs.bios[part].next);
            if bio.sector != self.rqs[id].end()
                || self.attempt_merge_with(now, id, &bio) != BioMergeStatus::Merged
            {
                return;
            }
            self.rqs.bios[part].next = None;
            if let Some(zones) = &mut self.zones {
                zones.pop(zone, next);
            }
            self.join_request(now, id, part, &bio);
        }
    }

    /// Moves the write pointer past a bio that became part of its zone's request
    /// (`blk_zone_write_plug_bio_merged`).
    #[cold]
    pub(crate) fn merged_zone_write(&mut self, bio: &Bio) {
        if let Some(zones) = &mut self.zones {
            let zone = zones.limits.zone_of(bio.sector) as usize;
            let plug = &mut zones.plugs[zone];
            plug.wp_offset = plug.wp_offset.saturating_add(bio.sectors);
        }
    }

    /// A zone's write has failed: so do those that wait, and later ones, until the zone is reset
    /// (`blk_zone_write_plug_bio_endio`).
    #[cold]
    pub(crate) fn fail_zone_write(&mut self, now: Nanos, id: RequestId) {
        let sector = self.rqs[id].sector;
        let Some(zones) = &mut self.zones else {
            return;
        };
        let zone = zones.limits.zone_of(sector) as usize;
        zones.plugs[zone].needs_update = true;
        self.abort_zone(now, zone);
    }

    /// Fails all writes that wait in a zone's plug (`disk_zone_wplug_abort`).
    fn abort_zone(&mut self, now: Nanos, zone: usize) {
        while let Some((part, _)) = self.pop_zone_bio(zone) {
            self.end_bio(now, part, IoStatus::IoError);
        }
    }

    fn pop_zone_bio(&mut self, zone: usize) -> Option<(BioId, Bio)> {
        let zones = self.zones.as_mut()?;
        let (part, _) = zones.plugs[zone].bios?;
        let node = &mut self.rqs.bios[part];
        zones.pop(zone, node.next.take());
        Some((part, node.bio))
    }

    /// A zone's write has ended: a worker submits the next
    /// (`blk_zone_write_plug_finish_request`).
    #[cold]
    pub(crate) fn finish_zone_write(&mut self, now: Nanos, id: RequestId) {
        let rq = &mut self.rqs[id];
        rq.rq_flags.clear(RqFlags::ZONE_WRITE);
        let (sector, cpu) = (rq.sector, rq.ctx);
        let Some(zones) = &mut self.zones else {
            return;
        };
        let zone = zones.limits.zone_of(sector) as usize;
        if zones.plugs[zone].bios.is_some() {
            return self.queue_zone_work(now, zone, cpu);
        }
        zones.plugs[zone].plugged = false;
        zones.forget_if_idle(zone);
    }

    /// The write that a worker submits next.
    pub fn next_zone_write(&self) -> Option<&Bio> {
        let zones = self.zones.as_deref()?;
        let work = zones.work.front()?;
        let (part, _) = zones.plugs[work.zone as usize].bios?;
        Some(&self.rqs.bios[part].bio)
    }

    /// Does the first work of the zones that is due: submits the next write of a zone as a worker
    /// on the CPU on which the one before it ended (`blk_zone_wplug_bio_work`). `None` if no work
    /// is due.
    ///
    /// [`RequestQueue::process`] does all of it; whoever calls this instead owns the workers and
    /// must continue those that sleep.
    pub fn submit_zone_write<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        driver: &mut D,
    ) -> Option<Submit> {
        let zones = self.zones.as_mut()?;
        let &ZoneWork { zone, cpu, .. } = zones.work.front().filter(|work| work.at <= now)?;
        zones.work.pop_front();
        let (zone, cpu) = (zone as usize, cpu as usize);
        while let Some((part, bio)) = self.pop_zone_bio(zone) {
            let zones = self.zones.as_mut()?;
            if zones.prepare(zone, &bio) {
                return Some(self.submit_unmerged(now, cpu, None, (part, &bio), None, driver));
            }
            self.end_bio(now, part, IoStatus::IoError);
        }
        self.zones.as_mut()?.plugs[zone].plugged = false;
        Some(Submit::Done)
    }

    /// Does the work of the zones that is due: workers that were woken go on, others submit the
    /// next write of a zone.
    #[cold]
    pub(crate) fn run_zone_work<D: BlkDriver + ?Sized>(&mut self, now: Nanos, driver: &mut D) {
        self.wake_zone_workers();
        let mut at = 0;
        while let Some(zones) = &mut self.zones
            && at < zones.blocked.len()
        {
            if zones.blocked[at].woken {
                let worker = zones.blocked.remove(at);
                let submit = self.resume(now, None, worker.waiter, driver);
                at += self.put_worker_to_sleep(at, submit);
            } else {
                at += 1;
            }
        }
        while let Some(submit) = self.submit_zone_write(now, driver) {
            at += self.put_worker_to_sleep(at, submit);
        }
        if let Some(zones) = &mut self.zones {
            self.work_hint = self.work_hint.min(zones.next_work());
        }
        // Their own submissions may have woken some.
        self.wake_zone_workers();
    }

    /// Keeps a worker at a place among those that sleep, if it does. Returns how many were added.
    fn put_worker_to_sleep(&mut self, at: usize, submit: Submit) -> usize {
        match (&mut self.zones, submit) {
            (Some(zones), Submit::Blocked(waiter)) => {
                let woken = false;
                zones.blocked.insert(at, Worker { waiter, woken });
                1
            }
            _ => 0,
        }
    }

    /// Hides the tickets of workers, which sleep under tickets of their own, from callers.
    pub(crate) fn wake_zone_workers(&mut self) {
        let Some(zones) = &mut self.zones else {
            return;
        };
        for worker in &mut zones.blocked {
            let before = self.woken.len();
            self.woken.retain(|&woken| woken != worker.waiter.ticket);
            if self.woken.len() < before {
                worker.woken = true;
                self.work_hint = Nanos::ZERO;
            }
        }
    }
}
