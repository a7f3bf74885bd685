//! What is fitted: keys of the two descriptions.

use blklab_description::SpecError;
use blklab_device::{DriveSpec, registry};
use blklab_sim::{Machine, SetupError};
use blklab_workload::fio::JobError;
use thiserror::Error;

use crate::description::{Description, KeyError};

/// Why nothing can be fitted.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// The drive's or the machine's description.
    #[error(transparent)]
    Description(#[from] SpecError),
    /// A parameter that is not there.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A row that is no job.
    #[error("{row}: {problem}")]
    Row {
        /// The row.
        row: String,
        /// What is wrong.
        problem: Box<JobError>,
    },
    /// A row that cannot be simulated.
    #[error("{row}: {problem}")]
    Setup {
        /// The row.
        row: String,
        /// What is wrong.
        problem: SetupError,
    },
    /// No row was selected.
    #[error("no row is left to fit to; look at --rows")]
    NoRows,
    /// No parameter was selected.
    #[error("{0}: no such parameter; legal are drive.KEY, costs.KEY, drive.* and costs.*")]
    NoParameter(String),
    /// The descriptions have nothing of what was to be fitted.
    #[error(
        "--fit {0}: neither the drive nor the machine has any of these numbers; start from \
         descriptions that have, such as 980pro-1tb and xeon-10core, or name keys of your own"
    )]
    NothingToMove(String),
}

/// A number to fit: a key with `drive.` or `costs.` before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter(String);

/// What `drive.*` stands for: what rows of reads decide.
const DRIVE: [&str; 6] = [
    "drive.flash.read_us",
    "drive.flash.read_us[2]",
    "drive.controller.read_us",
    "drive.controller.page_interval_us",
    "drive.link.bandwidth_mb_s",
    "drive.timing.read_ns",
];

/// What `costs.*` stands for. Steps that always come together are not told
/// apart by rows, so of each such group one is fitted.
const COSTS: [&str; 12] = [
    "costs.user_submit_ns",
    "costs.bio_ns",
    "costs.interrupt_ns",
    "costs.context_switch_ns",
    "costs.cold_percent",
    "costs.lock_transfer_ns",
    "costs.lock_waiter_ns",
    "costs.scheduler.mq-deadline.insert_ns",
    "costs.scheduler.kyber.insert_ns",
    "costs.scheduler.kyber.finish_ns",
    "costs.scheduler.bfq.insert_ns",
    "costs.scheduler.bfq.finish_ns",
];

impl Parameter {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// A drive and a machine, as text.
#[derive(Clone, Debug)]
pub struct Model {
    /// The drive's name in results and messages.
    pub drive_name: String,
    /// Its description.
    pub drive: Description,
    /// The machine's name.
    pub machine_name: String,
    /// Its description.
    pub machine: Description,
}

impl Model {
    /// A drive and a machine of these names, or that these files describe.
    ///
    /// # Errors
    /// Where there is none of that name, or its description has a mistake.
    pub fn load(drive: &str, machine: &str) -> Result<Model, String> {
        let (_, drive_text) = registry::load(drive)?;
        let (_, machine_text) = Machine::load(machine)?;
        let keys_of_drive = DriveSpec::parse_with_reference(drive, &drive_text);
        let keys_of_machine = Machine::parse_with_reference(machine, &machine_text);
        let (_, drive_keys) = keys_of_drive.map_err(|e| e.to_string())?;
        let (_, machine_keys) = keys_of_machine.map_err(|e| e.to_string())?;
        Ok(Model {
            drive_name: drive.to_string(),
            drive: Description::new(&drive_text, drive_keys),
            machine_name: machine.to_string(),
            machine: Description::new(&machine_text, machine_keys),
        })
    }

    /// The parameters that a comma-separated list names. Of `drive.*` and
    /// `costs.*` those that the descriptions have.
    ///
    /// # Errors
    /// Where a name begins with neither `drive.` nor `costs.`, is not in its
    /// description, or stands for nothing there.
    pub fn parameters(&self, text: &str) -> Result<Vec<Parameter>, CalibrateError> {
        let mut list: Vec<Parameter> = Vec::new();
        for word in text.split(',').map(str::trim) {
            let found = match word {
                "drive.*" => self.those_it_has(&DRIVE),
                "costs.*" => self.those_it_has(&COSTS),
                one if one.starts_with("drive.") || one.starts_with("costs.") => {
                    let parameter = Parameter(one.to_string());
                    self.get(&parameter)?;
                    vec![parameter]
                }
                other => return Err(CalibrateError::NoParameter(other.to_string())),
            };
            for parameter in found {
                if !list.contains(&parameter) {
                    list.push(parameter);
                }
            }
        }
        match list.is_empty() {
            true => Err(CalibrateError::NothingToMove(text.to_string())),
            false => Ok(list),
        }
    }

    /// A search moves numbers by factors, so it does not get away from nought.
    fn those_it_has(&self, names: &[&str]) -> Vec<Parameter> {
        let all = names.iter().map(|name| Parameter((*name).to_string()));
        all.filter(|p| self.get(p).is_ok_and(|value| value > 0.0))
            .collect()
    }

    /// The value of a parameter.
    ///
    /// # Errors
    /// Where the description has no such number.
    pub fn get(&self, parameter: &Parameter) -> Result<f64, KeyError> {
        match parameter.0.strip_prefix("drive.") {
            Some(key) => self.drive.number(key),
            None => self.machine.number(&parameter.0),
        }
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// Where the description has no such number.
    pub fn set(&mut self, parameter: &Parameter, value: f64, why: &str) -> Result<(), KeyError> {
        match parameter.0.strip_prefix("drive.") {
            Some(key) => self.drive.set(key, value, why),
            None => self.machine.set(&parameter.0, value, why),
        }
    }

    /// The two as the simulator takes them.
    ///
    /// # Errors
    /// Where a description is none, a number out of range included.
    pub fn parse(&self) -> Result<(DriveSpec, Machine), CalibrateError> {
        Ok((
            DriveSpec::parse(&self.drive_name, &self.drive.text())?,
            Machine::parse(&self.machine_name, &self.machine.text())?,
        ))
    }
}
