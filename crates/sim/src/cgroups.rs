//! The control groups of a job file, by number.

use blklab_blk::CgroupId;
use blklab_workload::fio::{JobFile, JobSpec};
use blklab_workload::generate::cgroups;

use crate::setup::SetupError;

/// The control groups of a job file; the first is number one, as the root has zero.
pub(crate) struct Cgroups(Vec<String>);

impl Cgroups {
    /// Those of this one.
    pub(crate) fn of(job: &JobFile) -> Cgroups {
        let groups = cgroups(job).into_iter();
        Cgroups(groups.map(|(name, _)| name).collect())
    }

    /// Their paths, by number.
    pub(crate) fn names(&self) -> &[String] {
        &self.0
    }

    /// The number of a group; the root's for any other.
    pub(crate) fn find(&self, path: &str) -> CgroupId {
        let at = self.0.iter().position(|name| name == path);
        at.map_or(CgroupId::ROOT, |at| CgroupId(at as u16 + 1))
    }

    /// The control group of a job's processes; the root where it names none.
    pub(crate) fn of_job(&self, spec: &JobSpec) -> CgroupId {
        let name = spec.cgroup.as_deref();
        name.map_or(CgroupId::ROOT, |name| self.find(name))
    }

    /// Each group with the one that it is in.
    pub(crate) fn parents(&self) -> impl Iterator<Item = (CgroupId, CgroupId)> {
        self.0.iter().zip(1..).map(|(name, id)| {
            let above = name.rsplit_once('/').map_or("", |(above, _)| above);
            (CgroupId(id), self.find(above))
        })
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
