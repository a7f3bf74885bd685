//! `zonemode=zbd`: a process of a job waits for zones that others hold, and resets zones.

use blklab_blk::{Bio, BioFlags, IoStatus, Nanos, Op, Sector, ZoneAction};
use blklab_workload::fio::Direction;

use super::{JobProcess, RESET_SLOT, TaskState};
use crate::system::System;
use crate::timers::user_data;

impl JobProcess {
    /// Sleeps until another process releases a zone.
    #[cold]
    pub(super) fn await_zone(&mut self, now: Nanos, system: &mut System) {
        if let Some(in_zones) = self.plan.in_zones() {
            system.zones.await_release(in_zones, self.id);
            self.state = TaskState::AwaitsZone;
            self.schedule_out(now, system);
        }
    }

    /// An I/O that holds its zone has ended.
    #[cold]
    pub(super) fn release_zone(
        &mut self,
        now: Nanos,
        direction: Direction,
        end_bytes: u64,
        system: &mut System,
    ) {
        let end_bytes = self.plan.offset_in_file(0, end_bytes);
        if let Some(in_zones) = self.plan.in_zones_mut()
            && system.zones.release(in_zones, direction, end_bytes)
        {
            self.wake_waiting(now, system);
        }
    }

    /// Gives up the I/O that waits for its place in the zones.
    pub(super) fn leave_zones(&mut self, now: Nanos, system: &mut System) {
        if let Some(in_zones) = self.plan.in_zones_mut() {
            system.zones.give_up(in_zones);
            self.wake_waiting(now, system);
        }
    }

    fn wake_waiting(&self, now: Nanos, system: &mut System) {
        if let Some(in_zones) = self.plan.in_zones() {
            for pid in system.zones.take_waiting(in_zones) {
                system.timers.set(now, pid);
            }
        }
    }

    /// Resets a zone (`BLKRESETZONE`) and waits for it.
    #[cold]
    pub(super) fn reset_zone(
        &mut self,
        now: Nanos,
        (disk, offset_bytes): (usize, u64),
        system: &mut System,
    ) {
        let bio = Bio {
            flags: BioFlags::SYNC,
            prio: self.prio,
            submitter: self.submitter(),
            cgroup: self.cgroup,
            user_data: user_data(self.id, RESET_SLOT),
            ..Bio::new(
                Op::Zone(ZoneAction::Reset),
                Sector::from_bytes(offset_bytes),
                0,
            )
        };
        let call = system.cpus.slowdown(self.cpu, now).of(self.costs.syscall);
        self.state = TaskState::AwaitsFlush;
        self.submit_to_wait(now, (disk, RESET_SLOT), (bio, call), system);
        self.sleep(now, TaskState::AwaitsFlush, system);
    }

    /// The zone was reset.
    #[cold]
    pub(super) fn on_zone_reset(&mut self, now: Nanos, status: IoStatus, system: &mut System) {
        self.recorder.reset_zone();
        if status != IoStatus::Ok {
            self.recorder.failed(status.errno());
            self.fail();
        }
        self.wake_up(now, system);
    }
}
