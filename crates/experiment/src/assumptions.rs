//! The values of drives and machines that nobody measured, and on which the answer of a
//! simulation may depend.

use blklab_description::Assumed;
use blklab_device::DriveSpec;
use blklab_sim::Machine;
use blklab_workload::fio::Direction;

use crate::error::Error;
use crate::setting::Setting;
use crate::simulated::Simulated;
use crate::work::WorkloadSource;

/// A value of a drive or machine that was not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// The name of the drive or machine.
    pub of: String,
    is_machine: bool,
    /// The value and its plausible ends.
    pub value: Assumed,
}

impl Assumption {
    /// Returns whether a row's runs can depend on it.
    pub fn concerns(&self, setting: &Setting) -> bool {
        let model = match self.is_machine {
            true => &setting.machine,
            false => &setting.drive,
        };
        let scheduler = scheduler_of(&self.value.key);
        *model == self.of && scheduler.is_none_or(|name| name == setting.scheduler.name)
    }
}

/// Returns the scheduler whose cost a key is, if it is one.
fn scheduler_of(key: &str) -> Option<&str> {
    key.strip_prefix("costs.scheduler.")?.split('.').next()
}

impl<'a> Simulated<'a> {
    /// Returns the assumed values that can affect the work, those of drives first.
    pub fn assumptions(&self, settings: &[Setting]) -> Vec<Assumption> {
        let of = |(name, assumed, is_machine): (&str, &[Assumed], bool)| -> Vec<Assumption> {
            let all = assumed.iter().map(|value| Assumption {
                of: name.to_string(),
                is_machine,
                value: value.clone(),
            });
            all.collect()
        };
        let drives = self
            .drives
            .iter()
            .map(|(name, drive)| (name, &drive.assumed[..], false));
        let machines = self
            .machines
            .iter()
            .map(|(name, machine)| (name, &machine.assumed[..], true));
        let mut all: Vec<Assumption> = drives.chain(machines).flat_map(of).collect();
        all.retain(|assumption| self.touches(&assumption.value.key, settings));
        all
    }

    /// Returns whether a run can depend on the value of a key, judged by the words in
    /// the key.
    fn touches(&self, key: &str, settings: &[Setting]) -> bool {
        if key == "programs.start_spread_us" {
            return self.starts_are_spread();
        }
        let does = |direction| match self.work {
            WorkloadSource::Trace(_) | WorkloadSource::Calls { .. } => true,
            WorkloadSource::Job(_) => {
                let mut specs = self.jobs.iter().flat_map(|job| &job.jobs);
                specs.any(|spec| spec.pattern.does(direction))
            }
        };
        let writes = does(Direction::Write) || does(Direction::Trim);
        let of_writes = [
            "write", "program", "erase", "gc.", "hybrid.", "flush", "fold",
        ];
        let of_both = ["reads_in_a_row"];
        let is_of = |words: &[&str]| words.iter().any(|word| key.contains(word));
        match scheduler_of(key) {
            Some(name) => settings
                .iter()
                .any(|setting| setting.scheduler.name == name),
            None if is_of(&of_both) => writes && does(Direction::Read),
            None if is_of(&of_writes) => writes,
            None if is_of(&["read"]) => does(Direction::Read),
            None => true,
        }
    }

    /// Returns whether one of several processes would do the same in step with others in
    /// every repeat.
    fn starts_are_spread(&self) -> bool {
        let mut jobs = self.jobs.iter().map(|job| &job.jobs);
        jobs.any(|specs| {
            let processes: u32 = specs.iter().map(|spec| spec.processes).sum();
            processes > 1 && specs.iter().any(|spec| !spec.draws())
        })
    }

    /// Returns the same work under the same settings, with an assumed value replaced by
    /// one of its ends.
    ///
    /// # Errors
    /// None if the settings have been read before.
    pub fn assuming(
        work: &'a WorkloadSource,
        settings: &[Setting],
        assumption: &Assumption,
        end: &str,
    ) -> Result<Simulated<'a>, Error> {
        let mut world = Simulated::new(work, settings)?;
        let wrong = |error: blklab_description::SpecError| Error::mistake(error);
        let name = &assumption.of;
        let replaced = |text: &str| assumption.value.replaced(text, end);
        match assumption.is_machine {
            true => world.machines.replace(name, |text| {
                Machine::parse(name, &replaced(text)).map_err(wrong)
            })?,
            false => world.drives.replace(name, |text| {
                DriveSpec::parse(name, &replaced(text)).map_err(wrong)
            })?,
        }
        Ok(world)
    }
}
