//! The control groups of a job file.

use blklab_blk::CgroupId;
use blklab_workload::cgroup::CgroupTree;
use blklab_workload::fio::{JobFile, JobSpec};
use blklab_workload::generate::cgroups;

use crate::setup::SetupError;

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
