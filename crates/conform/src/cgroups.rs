//! The control groups of a recorded run.

use std::collections::{BTreeMap, BTreeSet};

use blklab_blk::{CGROUP_FILES, CgroupId, Elevator, Nanos, RequestQueue};
use blklab_workload::trace::tracefs::{EventKind, RunInfo};

use crate::ConformError;
use crate::recording::Recorded;

/// The attribute that holds a group's weight.
const WEIGHT: &str = "io.bfq.weight";

/// The file of a group that holds its limits.
pub(crate) const IO_MAX: &str = "io.max";

/// The groups below the root, and which task is in which.
#[derive(Default)]
pub(crate) struct Cgroups {
    /// Without the first slash; a group stands behind those that it is in.
    paths: Vec<String>,
    weights: Vec<(CgroupId, u32)>,
    by_pid: BTreeMap<u32, CgroupId>,
}

impl Cgroups {
    /// A task of a run with groups has the path of its own for a name, with
    /// dots for slashes.
    pub(crate) fn of(info: Option<&RunInfo>, events: &[Recorded<'_>]) -> Cgroups {
        let Some(info) = info.filter(|info| !info.cgroups.is_empty()) else {
            return Cgroups::default();
        };
        let named = info.cgroups.keys().map(|path| path.trim_matches('/'));
        let with_above = |path: &'_ str| {
            let ends = path.match_indices('/').map(|(at, _)| at);
            let ends = ends.chain([path.len()]);
            ends.map(|end| path[..end].to_owned()).collect::<Vec<_>>()
        };
        let paths: BTreeSet<String> = named.flat_map(with_above).collect();
        let mut groups = Cgroups {
            paths: paths.into_iter().collect(),
            ..Cgroups::default()
        };
        for (path, weight) in &info.cgroups {
            let id = groups.find(path);
            groups.weights.extend(weight.map(|weight| (id, weight)));
        }
        for Recorded { event, .. } in events {
            if let EventKind::BioQueue(_) = event.kind {
                let id = groups.find(&event.task.replace('.', "/"));
                groups.by_pid.insert(event.pid, id);
            }
        }
        groups
    }

    /// The group at a path; the root for any other.
    pub(crate) fn find(&self, path: &str) -> CgroupId {
        let at = self
            .paths
            .binary_search_by(|p| p.as_str().cmp(path.trim_matches('/')));
        at.map_or(CgroupId::ROOT, |at| CgroupId(at as u16 + 1))
    }

    /// The group that a task's bios are charged to.
    pub(crate) fn of_task(&self, pid: u32) -> CgroupId {
        self.by_pid.get(&pid).copied().unwrap_or(CgroupId::ROOT)
    }

    /// Tells a scheduler of the groups.
    pub(crate) fn set_up(&self, elevator: &mut dyn Elevator) {
        for (id, parent) in self
            .parents()
            .filter(|(_, parent)| *parent != CgroupId::ROOT)
        {
            elevator.set_cgroup_parent(id, parent);
        }
        for &(id, weight) in &self.weights {
            elevator.set_cgroup_weight(id, weight);
        }
    }

    /// Each group with the one that it is in.
    pub(crate) fn parents(&self) -> impl Iterator<Item = (CgroupId, CgroupId)> {
        self.paths.iter().map(|path| {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            (self.find(path), self.find(above))
        })
    }

    /// Writes to a queue what was written to the groups' files in the recorded run; but
    /// for `io.max`, which is compared apart.
    pub(crate) fn write_files(
        &self,
        info: &RunInfo,
        queue: &mut RequestQueue,
        file: &str,
    ) -> Result<(), ConformError> {
        for (path, text) in &info.cgroup_files {
            let (group, name) = path.rsplit_once('/').unwrap_or(("", path));
            let known = CGROUP_FILES.iter().find(|file| file.name == name);
            let Some(known) = known.filter(|file| file.name != IO_MAX) else {
                continue;
            };
            for (id, parent) in self.parents() {
                queue.set_cgroup_parent(id, parent);
            }
            let text = match known.is_of_drive {
                true => text.split_once(' ').map_or("", |(_, text)| text),
                false => text,
            };
            let written = known.write(queue, Nanos::ZERO, self.find(group), text);
            written.map_err(|message| ConformError::Setup {
                file: file.to_owned(),
                name: path.clone(),
                message,
            })?;
        }
        Ok(())
    }

    /// The group and its limits that a line says are written now, without the drive's number.
    pub(crate) fn limits_written<'l>(&self, line: &'l str) -> Option<(CgroupId, &'l str)> {
        let (path, rest) = line.trim().split_once(' ')?;
        let (attribute, text) = rest.split_once(' ')?;
        let (_, limits) = text.trim().split_once(' ')?;
        let id = self.find(path);
        (attribute == IO_MAX && id != CgroupId::ROOT).then_some((id, limits))
    }

    /// The group and the weight that a line says are written now.
    pub(crate) fn written(&self, line: &str) -> Option<(CgroupId, u32)> {
        let mut words = line.split_whitespace();
        let (path, attribute, weight) = (words.next()?, words.next()?, words.next()?);
        let id = self.find(path);
        let weight = weight.parse().ok()?;
        (attribute == WEIGHT && id != CgroupId::ROOT).then_some((id, weight))
    }
}
