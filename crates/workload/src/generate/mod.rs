//! Generates the work of a job's processes: the place, size, direction and time of each I/O.
//!
//! The results are pure functions of the job, the sizes of its files and a seed. [`processes`]
//! numbers the processes of a job file, [`Seeds`] gives each its random numbers, and [`Layout`] its
//! parts of the files. From these, [`OffsetGenerator`] generates the I/Os, [`Pacing`] their times,
//! [`CommandPriorities`] their priorities, and [`SyncSchedule`] the flushes between them.
//!
//! Each process has a fair share of the drive according to its control group and its priority.
//! Weights are those of the kernel's bfq: a process of best-effort level `n` weighs `10 * (8 - n)`.
//! A group weighs its `cgroup_weight` (100 by default) and divides its share among its processes by
//! their weights. Processes of the root group compete with the groups.

mod layout;
mod offsets;
mod pacing;
mod priority;
mod random;
mod syncs;
mod verify;
mod zones;

use crate::fio::{Direction, JobFile, JobSpec, Priority};

pub use layout::{FileExtent, Layout, LayoutError, share_end};
pub use offsets::{FileStep, OffsetGenerator, OpenFiles};
pub use pacing::Pacing;
pub use priority::CommandPriorities;
pub use random::Seeds;
pub use syncs::SyncSchedule;
pub use verify::{VerifyLog, Written};
pub use zones::{DriveZones, ZoneCursor, ZonedFile, ZonedNext};

/// One I/O of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// The direction.
    pub direction: Direction,
    /// The index of the file among the process's files.
    pub file: u32,
    /// The offset in the file, in bytes.
    pub offset_bytes: u64,
    /// The length, in bytes.
    pub length_bytes: u32,
}

/// A process of a job file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// The index of the process's job in [`JobFile::jobs`].
    pub job: usize,
    /// The number of the process among the job's `numjobs`, from 0, as `offset_increment` and
    /// `$jobnum` use it.
    pub number: u32,
    /// The number of the process in the whole job file, from 1, as seeds and
    /// `cpus_allowed_policy=split` use it.
    pub thread_number: u32,
}

/// Returns all processes of a job file, in the order in which fio starts them.
///
/// fio adds the first process of a job, then the others from the last to the second, which
/// determines their thread numbers.
pub fn processes(file: &JobFile) -> Vec<Process> {
    let mut processes = Vec::new();
    for (job, spec) in file.jobs.iter().enumerate() {
        for number in std::iter::once(0).chain((1..spec.processes).rev()) {
            processes.push(Process {
                job,
                number,
                thread_number: processes.len() as u32 + 1,
            });
        }
    }
    processes
}

impl Process {
    /// Returns the CPUs that the process may run on; empty means any.
    pub fn cpus(&self, spec: &JobSpec) -> Vec<u32> {
        match spec.cpus.len() {
            n if spec.cpus_split && n > 0 => {
                vec![spec.cpus[(self.thread_number as usize - 1) % n]]
            }
            _ => spec.cpus.clone(),
        }
    }
}

/// The weight of a group without `cgroup_weight` (`CGROUP_WEIGHT_DFL`).
const GROUP_WEIGHT: u32 = 100;

/// The level of a process without a priority (`IOPRIO_BE_NORM`).
const NORMAL_LEVEL: u8 = 4;

/// Returns the control groups of a job file below the root with their weights, in the order in
/// which they are named, those of a file of control groups first. A nested group is named by its
/// path and follows its parent. If several jobs set a group's weight the last one counts, as in
/// fio.
pub fn cgroups(file: &JobFile) -> Vec<(String, Option<u32>)> {
    let named = file.cgroups.iter().cloned();
    let mut groups: Vec<(String, Option<u32>)> = named.map(|path| (path, None)).collect();
    for write in &file.cgroup_writes {
        let group = groups.iter_mut().find(|(path, _)| *path == write.group);
        if let (Some(group), Some(weight)) = (group, write.file.weight(&write.text)) {
            group.1 = Some(weight);
        }
    }
    for spec in &file.jobs {
        let Some(name) = &spec.cgroup else { continue };
        for path in with_above(name) {
            let is_new = groups.iter().all(|(known, _)| known != path);
            if is_new {
                groups.push((path.to_owned(), None));
            }
            if path == name
                && let Some(group) = groups.iter_mut().find(|(known, _)| known == path)
            {
                group.1 = spec.cgroup_weight.or(group.1);
            }
        }
    }
    groups
}

/// Returns the parent of a group; `None` for the root.
fn above(name: &str) -> Option<&str> {
    name.rsplit_once('/').map(|(above, _)| above)
}

/// Returns the names of a group's ancestors, then its own.
fn with_above(name: &str) -> impl Iterator<Item = &str> {
    let slashes = name.match_indices('/').map(|(at, _)| at);
    slashes.chain([name.len()]).map(|end| &name[..end])
}

/// Returns the weight of a process within its group; `None` for real time, which takes as much as
/// it needs, and idle, which takes the rest.
fn weight_in_group(priority: Option<Priority>) -> Option<f64> {
    let level = match priority {
        Some(Priority { class: 2, level }) => level,
        None | Some(Priority { class: 0, .. }) => NORMAL_LEVEL,
        Some(_) => return None,
    };
    Some(f64::from(10 * (8 - u32::from(level.min(7)))))
}

/// Returns the weight of each process, in proportion to its fair share.
pub fn due_weights(file: &JobFile, processes: &[Process]) -> Vec<Option<f64>> {
    let groups = cgroups(file);
    let own: Vec<Option<f64>> = processes
        .iter()
        .map(|p| weight_in_group(file.jobs[p.job].priority))
        .collect();
    let group_of = |p: &Process| file.jobs[p.job].cgroup.as_deref();
    let weight_of = |name: &str| {
        let group = groups.iter().find(|(known, _)| known == name);
        f64::from(
            group
                .and_then(|(_, weight)| *weight)
                .unwrap_or(GROUP_WEIGHT),
        )
    };
    // The processes and groups directly in a group divide its share.
    let inside = |name: &str| -> f64 {
        let members = processes.iter().zip(&own);
        let members = members.filter(|(p, _)| group_of(p) == Some(name));
        let below = groups.iter().map(|(path, _)| path.as_str());
        let below = below.filter(|path| above(path) == Some(name));
        let processes: f64 = members.filter_map(|(_, own)| *own).sum();
        processes + below.map(weight_of).sum::<f64>()
    };
    let due = |(p, own): (&Process, &Option<f64>)| {
        let mut due = (*own)?;
        let mut group = group_of(p);
        while let Some(name) = group {
            due *= weight_of(name) / inside(name);
            group = above(name);
        }
        Some(due)
    };
    processes.iter().zip(&own).map(due).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::parse_str;

    #[test]
    fn numbered_as_fio_does() {
        let text = "[a]\nnumjobs=3\n[b]\ncpus_allowed=2-5\ncpus_allowed_policy=split\n";
        let file = parse_str("t", text, &|_| None, &|_, _| Err(String::new())).unwrap();
        let processes = processes(&file);
        let numbers: Vec<_> = processes
            .iter()
            .map(|p| (p.job, p.number, p.thread_number))
            .collect();
        assert_eq!(numbers, [(0, 0, 1), (0, 2, 2), (0, 1, 3), (1, 0, 4)]);
        assert_eq!(processes[3].cpus(&file.jobs[1]), [5]);
        assert!(processes[0].cpus(&file.jobs[0]).is_empty());
    }

    fn weights(text: &str) -> Vec<Option<f64>> {
        let file = parse_str("t", text, &|_| None, &|_, _| Err(String::new())).unwrap();
        due_weights(&file, &processes(&file))
    }

    /// `a` gets two thirds of what its sibling `b` gets; within it, `a/x` gets three times what
    /// `a/y` gets.
    #[test]
    fn groups_inside_groups_share_what_those_get() {
        let text = "[x]\ncgroup=a/x\ncgroup_weight=300\n[y]\ncgroup=a/y\ncgroup_weight=100\n\
                    [b]\ncgroup=b\ncgroup_weight=150\n";
        let file = parse_str("t", text, &|_| None, &|_, _| Err(String::new())).unwrap();
        let groups = cgroups(&file);
        let names: Vec<_> = groups.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "a/x", "a/y", "b"]);
        assert_eq!(weights(text), [Some(75.0), Some(25.0), Some(150.0)]);
    }

    #[test]
    fn levels_weigh_as_bfq_has_it() {
        let text = "[a]\n[b]\nprio=0\nprioclass=2\n[c]\nprio=7\nprioclass=2\n\
                    [d]\nprioclass=1\n[e]\nprioclass=3\n";
        assert_eq!(
            weights(text),
            [Some(40.0), Some(80.0), Some(10.0), None, None]
        );
    }

    #[test]
    fn a_group_s_weight_is_shared_by_its_processes() {
        let text = "[a]\ncgroup=g\ncgroup_weight=500\nnumjobs=2\n\
                    [b]\ncgroup=g\nprio=6\nprioclass=2\n\
                    [c]\ncgroup=h\n[d]\n";
        let expected = [200.0, 200.0, 100.0, 100.0, 40.0];
        assert_eq!(weights(text), expected.map(Some));
    }
}
