//! `io.max`: which bios of a group are held back, and when and in which order
//! they are let go.

use blklab_blk::{Bio, CgroupId, Nanos, Op, Sector, Throttle};
use blklab_workload::trace::tracefs::{BioEvent, Event, EventKind, RunInfo};

use super::Whole;
use crate::ConformError;
use crate::cgroups::{Cgroups, IO_MAX};
use crate::recording::Recorded;

/// The limits that were written in the recorded run, where any were.
pub(super) fn throttle_of(
    info: Option<&RunInfo>,
    cgroups: &Cgroups,
    file: &str,
) -> Result<Option<Throttle>, ConformError> {
    let mut throttle = None;
    for (path, text) in info.iter().flat_map(|info| &info.cgroup_files) {
        let Some(group) = path.strip_suffix(IO_MAX) else {
            continue;
        };
        // The first word is the drive.
        let limits = text.split_once(' ').map_or("", |(_, limits)| limits);
        let mut max = blklab_blk::IoMax::default();
        max.write(limits).map_err(|message| ConformError::Setup {
            file: file.to_owned(),
            name: path.clone(),
            message,
        })?;
        let throttle = throttle.get_or_insert_with(Throttle::default);
        for (id, parent) in cgroups.parents() {
            throttle.set_parent(id, parent);
        }
        throttle.set_max(Nanos::ZERO, cgroups.find(group), max);
    }
    Ok(throttle)
}

impl Whole<'_> {
    /// A task's bio of this place comes to its group's limits, which hold it back
    /// or do not. It is queued after that, at once or by a worker.
    pub(super) fn throttle(&mut self, sector: Sector, bytes: u32, held: bool) {
        let sectors = bytes / 512;
        let queued = self.lines.ahead(self.at + 1).find_map(|(_, event)| {
            let EventKind::BioQueue(bio) = &event.kind else {
                return None;
            };
            (bio.sector == sector && bio.sectors == sectors).then_some(bio.rwbs)
        });
        let group = self.cgroups.of_task(self.event().pid);
        let (Some(throttle), Some(rwbs)) = (&mut self.throttle, queued) else {
            return;
        };
        let bio = Bio {
            flags: rwbs.flags,
            cgroup: group,
            ..Bio::new(rwbs.op.unwrap_or(Op::WriteZeroes), sector, sectors)
        };
        if held {
            self.held_in.insert(sector, group);
        }
        let holds = !throttle.submit(self.now, &bio);
        let text = |held: bool| if held { "held back" } else { "let through" };
        self.count(
            "throttle",
            held == holds,
            || text(held).to_owned(),
            || text(holds).to_owned(),
        );
    }

    /// A group's limits are written now, where a mark says so.
    pub(super) fn limits_written(&mut self, line: &str) {
        let Some((group, limits)) = self.cgroups.limits_written(line) else {
            return;
        };
        if let Some(throttle) = &mut self.throttle {
            let mut max = throttle.max(group);
            if max.write(limits).is_ok() {
                throttle.set_max(self.now, group, max);
            }
        }
    }

    /// The group that a bio is charged to, of which this is the place: a worker submits those
    /// that were held back for the groups of their tasks.
    pub(super) fn cgroup_of(&mut self, pid: u32, sector: Sector) -> CgroupId {
        let held_in = match is_throttle_s_worker(self.event()) {
            true => self.held_in.remove(&sector),
            false => None,
        };
        held_in.unwrap_or_else(|| self.cgroups.of_task(pid))
    }

    /// A worker of the throttle queues a bio that was held back.
    pub(super) fn released(&mut self, bio: &BioEvent<'_>) {
        let by_worker = is_throttle_s_worker(self.event());
        let Some(throttle) = self.throttle.as_mut().filter(|_| by_worker) else {
            return;
        };
        let ours = throttle.take_released().map(|bio| bio.sector);
        let text = |sector: Option<Sector>| match sector {
            Some(sector) => format!("lets that at {sector} go"),
            None => "lets nothing go".to_owned(),
        };
        self.count(
            "release",
            ours == Some(bio.sector),
            || text(Some(bio.sector)),
            || text(ours),
        );
    }
}

/// Whether this is a worker that is not kblockd's.
fn is_throttle_s_worker(event: &Event<'_>) -> bool {
    event.task.starts_with("kworker/") && !event.task.ends_with('H')
}

/// Whether a run shows what `io.max` does.
pub(super) fn is_throttled(events: &[Recorded<'_>]) -> bool {
    let mut kinds = events.iter().map(|recorded| &recorded.event.kind);
    kinds.any(|kind| matches!(kind, EventKind::ThrRet { .. }))
}
