//! The parameters of a fit: keys of the two descriptions.

use blklab_description::SpecError;
use blklab_device::{DriveSpec, registry};
use blklab_sim::{Machine, SetupError};
use blklab_workload::fio::JobError;
use thiserror::Error;

use crate::description::{Description, KeyError};

/// The reason why a calibration is impossible.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// The description of the drive or the machine is invalid.
    #[error(transparent)]
    Description(#[from] SpecError),
    /// A parameter does not exist.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A row is not a valid job.
    #[error("{row}: {problem}")]
    Row {
        /// The row.
        row: String,
        /// The problem.
        problem: Box<JobError>,
    },
    /// A row cannot be simulated.
    #[error("{row}: {problem}")]
    Setup {
        /// The row.
        row: String,
        /// The problem.
        problem: SetupError,
    },
    /// No row is selected.
    #[error("no row is left to fit to; look at --rows")]
    NoRows,
    /// No parameter is selected.
    #[error("{0}: no such parameter; legal are drive.KEY, costs.KEY, drive.* and costs.*")]
    NoParameter(String),
    /// The descriptions have none of the parameters.
    #[error(
        "--fit {0}: neither the drive nor the machine has any of these numbers; start from \
         descriptions that have, such as 980pro-1tb and xeon-10core, or name keys of your own"
    )]
    NothingToMove(String),
}

/// A parameter of a fit: a key with the prefix `drive.` or `costs.`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter(String);

/// The parameters in `drive.*`, which influence reads.
const DRIVE: [&str; 6] = [
    "drive.flash.read_us",
    "drive.flash.read_us[2]",
    "drive.controller.read_us",
    "drive.controller.page_interval_us",
    "drive.link.bandwidth_mb_s",
    "drive.timing.read_ns",
];

/// The parameters in `costs.*`. Rows cannot distinguish steps that always occur together, so one of
/// each such group is fitted.
const COSTS: [&str; 24] = [
    "costs.user_submit_ns",
    "costs.bio_ns",
    "costs.file_io_ns",
    "costs.file_ns",
    "costs.pin_ns",
    "costs.pin_page_ns",
    "costs.list_ns",
    "costs.page_ns",
    "costs.interrupt_ns",
    "costs.poll_ns",
    "costs.context_switch_ns",
    "costs.wake_ns",
    "costs.kblockd_ns",
    "costs.cold_percent",
    "costs.crowded_percent",
    "costs.lock_transfer_ns",
    "costs.lock_waiter_ns",
    "costs.engine.io_uring.kernel_ns",
    "costs.engine.libaio.kernel_ns",
    "costs.scheduler.mq-deadline.insert_ns",
    "costs.scheduler.kyber.insert_ns",
    "costs.scheduler.kyber.finish_ns",
    "costs.scheduler.bfq.insert_ns",
    "costs.scheduler.bfq.finish_ns",
];

impl Parameter {
    /// Name of the parameter.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// The descriptions of a drive and a machine, as text.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name of the drive in results and messages.
    pub drive_name: String,
    /// Description of the drive.
    pub drive: Description,
    /// Name of the machine.
    pub machine_name: String,
    /// Description of the machine.
    pub machine: Description,
}

impl Model {
    /// Loads a drive and a machine by name or file.
    ///
    /// # Errors
    /// If there is none of that name, or its description is invalid.
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

    /// Parses a comma-separated list of parameters. `drive.*` and `costs.*` stand for those that
    /// the descriptions have.
    ///
    /// # Errors
    /// If a name has neither prefix, is not in its description, or selects nothing.
    pub fn parameters(&self, text: &str) -> Result<Vec<Parameter>, CalibrateError> {
        let mut list: Vec<Parameter> = Vec::new();
        for word in text.split(',').map(str::trim) {
            let found = match word {
                "drive.*" => self.existing(&DRIVE),
                "costs.*" => self.existing(&COSTS),
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

    /// The parameters that exist and are above zero; a search multiplies values, so it cannot leave
    /// zero.
    fn existing(&self, names: &[&str]) -> Vec<Parameter> {
        let all = names.iter().map(|name| Parameter((*name).to_string()));
        all.filter(|p| self.get(p).is_ok_and(|value| value > 0.0))
            .collect()
    }

    /// The value of a parameter.
    ///
    /// # Errors
    /// If the description has no such number.
    pub fn get(&self, parameter: &Parameter) -> Result<f64, KeyError> {
        match parameter.0.strip_prefix("drive.") {
            Some(key) => self.drive.number(key),
            None => self.machine.number(&parameter.0),
        }
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// If the description has no such number.
    pub fn set(&mut self, parameter: &Parameter, value: f64, why: &str) -> Result<(), KeyError> {
        match parameter.0.strip_prefix("drive.") {
            Some(key) => self.drive.set(key, value, why),
            None => self.machine.set(&parameter.0, value, why),
        }
    }

    /// Parses both descriptions for the simulator.
    ///
    /// # Errors
    /// If a description is invalid, for instance because a number is out of range.
    pub fn parse(&self) -> Result<(DriveSpec, Machine), CalibrateError> {
        Ok((
            DriveSpec::parse(&self.drive_name, &self.drive.text())?,
            Machine::parse(&self.machine_name, &self.machine.text())?,
        ))
    }
}
