//! The control groups of a job file.

use blklab_blk::CgroupId;
use blklab_fs::MemoryGroup;
use blklab_workload::cgroup::CgroupTree;
use blklab_workload::fio::{JobFile, JobSpec};
use blklab_workload::generate::cgroups;

use crate::setup::SetupError;

/// The memory of control groups; none where no group has a limit.
#[derive(Default)]
pub(crate) struct MemoryGroups {
    pub(crate) limits: Vec<MemoryGroup>,
    /// Their paths.
    pub(crate) names: Vec<String>,
}

impl MemoryGroups {
    /// What to say of limits of memory where nothing is cached.
    pub(crate) fn unused_note(&self) -> Option<String> {
        (!self.limits.is_empty()).then(|| {
            "all I/O is direct: no page is cached, and the limits of control groups' memory \
             change nothing"
                .to_string()
        })
    }
}

/// The control groups of a job file.
pub(crate) struct Cgroups(CgroupTree);

impl Cgroups {
    /// Those of this one.
    pub(crate) fn of(job: &JobFile) -> Cgroups {
        let groups = cgroups(job).into_iter();
        Cgroups(CgroupTree::new(groups.map(|(name, _)| name).collect()))
    }

    /// By their paths.
    pub(crate) fn tree(&self) -> &CgroupTree {
        &self.0
    }

    /// The control group of a job's processes; the root where it names none.
    pub(crate) fn of_job(&self, spec: &JobSpec) -> CgroupId {
        let name = spec.cgroup.as_deref();
        name.map_or(CgroupId::ROOT, |name| self.0.find(name))
    }

    /// Their memory.
    ///
    /// # Errors
    /// If there are more groups than are simulated with such limits.
    pub(crate) fn memory(&self, job: &JobFile) -> Result<MemoryGroups, SetupError> {
        let limits = self.0.memory_groups(&job.cgroup_writes);
        let limits = limits.map_err(|mistake| SetupError::Mistake(Box::new(mistake)))?;
        let names = match limits.is_empty() {
            true => Vec::new(),
            false => self.0.names().to_vec(),
        };
        Ok(MemoryGroups { limits, names })
    }

    /// Checks that there are the drives that files are about.
    ///
    /// # Errors
    /// At the first that there is not.
    pub(crate) fn check_drives(&self, job: &JobFile, drives: usize) -> Result<(), SetupError> {
        for write in &job.cgroup_writes {
            let Some(number) = write.drive else { continue };
            if !(0..drives).any(|n| number.is_of(n, drives)) {
                let last = 16 * drives.saturating_sub(1);
                let why = format!("there is no drive {number} (ENODEV); there are 8:0 to 8:{last}");
                return Err(SetupError::Mistake(Box::new(write.mistake(why))));
            }
        }
        Ok(())
    }
}
