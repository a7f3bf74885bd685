//! The settings of one row of a comparison.

use std::str::FromStr;

use blklab_blk::{NoMerges, RequestQueue};
use blklab_description::hint;
use blklab_device::{DriveSpec, DriveState, Faults, registry};
use blklab_driver::{Attachment, Driver, FrontEnd};
use blklab_elevator::SchedulerChoice;
use blklab_host::QueueSettings;
use blklab_sim::{Caching, FileSystemKind};
use blklab_workload::fio::{self, Engine, Override, OverrideWhen};

use crate::error::Error;
use crate::front_end::{LOOP, MEMORY, NamedFrontEnd};
use crate::schedulers::NamedScheduler;

/// The settings of one row of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// The row's label, made from what varies.
    pub label: String,
    /// The keys that vary, with their values in this row.
    pub axes: Vec<(String, String)>,
    /// The scheduler.
    pub scheduler: NamedScheduler,
    /// The queue's `nr_requests`; the kernel's default if not given.
    pub nr_requests: Option<u32>,
    /// The queue's `nomerges`; unchanged if not given.
    pub nomerges: Option<u8>,
    /// The queue's `read_ahead_kb`; unchanged if not given.
    pub read_ahead_kb: Option<u32>,
    /// The machine's memory in bytes; the default of [`Caching`] if not given.
    pub memory_bytes: Option<u64>,
    /// The file system of the jobs' files.
    pub file_system: FileSystemKind,
    /// Kernel settings, such as `vm.dirty_ratio`, with their values.
    pub sysctls: Vec<(String, String)>,
    /// The queue's `wbt_lat_usec`; unchanged if not given.
    pub wbt_lat_us: Option<u32>,
    /// The drive's model: a name or a file.
    pub drive: String,
    /// Keys of the drive's description, with the values that replace its own.
    pub drive_values: Vec<(String, String)>,
    /// The drive's state before the run; as its description says if not given.
    pub state: Option<DriveState>,
    /// The faults of the drive.
    pub faults: Option<NamedFaults>,
    /// When every drive loses its power, in nanoseconds from the run's start on; never if not
    /// given.
    pub power_loss_at_ns: Option<u64>,
    /// The front end before the drive, `NAME` or `NAME:N`; the drive's own controller if
    /// not given.
    pub front_end: Option<String>,
    /// The machine's model: a name or a file.
    pub machine: String,
    /// The file of control groups, if any.
    pub cgroup_file: Option<String>,
    /// The one job of the file that runs; all of them if not given.
    pub only_job: Option<String>,
    /// fio options that replace those of every job.
    pub options: Vec<Override>,
}

/// Faults of a drive, as the user wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFaults {
    text: String,
    faults: Faults,
}

impl FromStr for NamedFaults {
    type Err = String;

    /// Parses `NAME=VALUE,...`.
    fn from_str(text: &str) -> Result<NamedFaults, String> {
        Ok(NamedFaults {
            text: text.to_string(),
            faults: Faults::parse(text)?,
        })
    }
}

impl NamedFaults {
    /// Returns the faults.
    pub fn faults(&self) -> Faults {
        self.faults
    }
}

impl Setting {
    /// Replaces an option, `KEY=VALUE`, of every job.
    ///
    /// # Errors
    /// If fio has no such option.
    pub fn override_option(&mut self, given_by: &str, text: &str) -> Result<(), Error> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(Error::mistake(format!(
                "{given_by} {text}: not of the form OPTION=VALUE, such as runtime=2"
            )));
        };
        let (name, value) = (name.trim(), value.trim());
        if !fio::has_option(name) {
            let hint = hint(name, fio::option_names());
            return Err(Error::mistake(format!(
                "{given_by} {text}: fio has no option {name}{hint}"
            )));
        }
        self.options.push(Override {
            given_by: given_by.to_string(),
            name: name.to_string(),
            value: value.to_string(),
            when: OverrideWhen::Always,
        });
        Ok(())
    }

    /// Simulates jobs whose engine is not simulated with another.
    ///
    /// # Errors
    /// If that is not simulated either.
    pub fn stand_in_for_engines(&mut self, given_by: &str, engine: &str) -> Result<(), Error> {
        let simulated: Vec<&str> = Engine::simulated().collect();
        if !simulated.contains(&engine) {
            return Err(Error::mistake(format!(
                "{given_by} {engine}: right is one of {}",
                simulated.join(", ")
            )));
        }
        self.options.push(Override {
            given_by: given_by.to_string(),
            name: "ioengine".to_string(),
            value: engine.to_string(),
            when: OverrideWhen::EngineNotSimulated,
        });
        Ok(())
    }

    /// Returns what varies of the work that is asked of the drive, such as `iodepth=4`; empty where
    /// only how it is done varies.
    pub fn work(&self) -> String {
        let of_work = self.axes.iter().filter(|(key, _)| fio::is_work(key));
        let words: Vec<String> = of_work
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        words.join(" ")
    }

    /// Appends to the label what varies beside the scheduler.
    pub(crate) fn add_to_label(&mut self, varied: &str) {
        if !self.label.is_empty() {
            self.label.push(' ');
        }
        self.label.push_str(varied);
    }

    /// Returns the drive's name with every value that differs from its description.
    pub(crate) fn drive_name(&self) -> String {
        let values = self
            .drive_values
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let state = self.state.map(|state| state.to_string());
        let faults = self.faults.as_ref();
        let faults = faults.map(|faults| format!("faults={}", faults.text));
        let words = std::iter::once(self.drive.clone())
            .chain(values)
            .chain(state)
            .chain(faults);
        words.collect::<Vec<String>>().join(" ")
    }

    /// Returns the drive's model and the text of its description.
    pub(crate) fn drive(&self) -> Result<(DriveSpec, String), String> {
        let (mut drive, text) = registry::load_with(&self.drive, &self.drive_values)?;
        if let Some(state) = self.state {
            drive = drive.in_state(state)?;
        }
        if let Some(faults) = &self.faults {
            drive = drive.with_faults(faults.faults);
        }
        Ok((drive, text))
    }

    /// Returns the drive's name with its front end, which the simulated world puts before it.
    pub(crate) fn simulated_drive_name(&self) -> String {
        match &self.front_end {
            Some(front_end) => format!("{} behind {front_end}", self.drive_name()),
            None => self.drive_name(),
        }
    }

    /// Returns the drive's model as the simulated world uses it, and the text of its description.
    pub(crate) fn simulated_drive(&self) -> Result<(DriveSpec, String), String> {
        let Some(front_end) = &self.front_end else {
            return self.drive();
        };
        let mut setting = self.clone();
        let mut set = |key: &str, value: &str| {
            let value = (key.to_string(), value.to_string());
            setting.drive_values.push(value);
        };
        // What the server or the worker does is its time on a CPU: memory adds nothing to that.
        if self.drive == MEMORY {
            set("timing.read_ns", "0");
            set("timing.write_ns", "0");
        }
        if front_end == LOOP {
            set("interface", "\"loop\"");
            set("host.queues", "1");
            set("host.queue_depth", "128");
            set("host.fua", "false");
        }
        setting.drive()
    }

    /// Returns the front end that the simulated world puts before the drive; `None` where the
    /// drive's own controller is, or the kernel's loop driver, which is a drive's interface.
    pub(crate) fn simulated_front_end(&self) -> Result<Option<FrontEnd>, Error> {
        let Some(text) = self.front_end.as_deref().filter(|text| *text != LOOP) else {
            return Ok(None);
        };
        NamedFrontEnd::parse(text)?.simulated(text).map(Some)
    }

    /// Returns the settings for a real kernel's queue.
    pub(crate) fn of_kernel(&self) -> QueueSettings {
        QueueSettings {
            scheduler: self.scheduler.name.clone(),
            tunables: self.scheduler.tunables.clone(),
            nr_requests: self.nr_requests,
            nomerges: self.nomerges,
            read_ahead_kb: self.read_ahead_kb,
        }
    }

    /// Returns our own scheduler of this name, with the queue's settings.
    pub(crate) fn choice(&self) -> Result<SchedulerChoice, Error> {
        let mut choice = self.scheduler.choice()?;
        choice.nr_requests = self.nr_requests;
        choice.wbt_lat_us = self.wbt_lat_us.map(u64::from);
        choice.nomerges = self.nomerges.map(|level| match level {
            0 => NoMerges::All,
            1 => NoMerges::OneHit,
            _ => NoMerges::Never,
        });
        Ok(choice)
    }
}

impl Setting {
    /// Returns whether the drive's queue accepts the setting.
    ///
    /// # Errors
    /// If the drive or scheduler is not known.
    pub(crate) fn fits_queue(&self) -> Result<bool, Error> {
        let front_end = self.simulated_front_end()?;
        let (drive, _) = self.simulated_drive().map_err(Error::Mistake)?;
        Ok(check_queue(&self.choice()?, &drive, front_end).is_ok())
    }
}

/// The settings of the page cache.
impl Setting {
    /// Sets a kernel setting, `NAME=VALUE`.
    ///
    /// # Errors
    /// If it does not have that form.
    pub fn set_sysctl(&mut self, given_by: &str, text: &str) -> Result<(), Error> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(Error::mistake(format!(
                "{given_by} {text}: not of the form NAME=VALUE, such as vm.dirty_ratio=10"
            )));
        };
        let (name, value) = (name.trim().to_string(), value.trim().to_string());
        self.sysctls.push((name, value));
        Ok(())
    }

    /// Returns the memory and settings of the page cache.
    pub(crate) fn caching(&self) -> Result<Caching, Error> {
        let mut caching = Caching {
            file_system: self.file_system,
            ..Caching::default()
        };
        if let Some(kib) = self.read_ahead_kb {
            caching.read_ahead_kb = kib;
        }
        if let Some(bytes) = self.memory_bytes {
            let sized = caching.with_memory(bytes);
            caching = sized.map_err(|problem| Error::Mistake(format!("memory: {problem}")))?;
        }
        for (name, value) in &self.sysctls {
            caching.set(name, value).map_err(Error::Mistake)?;
        }
        Ok(caching)
    }
}

/// Checks, before anything runs, that the drive's queue accepts the settings.
pub(crate) fn check_queue(
    choice: &SchedulerChoice,
    drive: &DriveSpec,
    front_end: Option<FrontEnd>,
) -> Result<(), Error> {
    if choice.nr_requests.is_none() {
        return Ok(());
    }
    let attachment = front_end.map_or(Attachment::Direct, Attachment::FrontEnd);
    let driver = Driver::attached(drive, attachment, 1);
    let mut queue = RequestQueue::new(&driver.queue_config(1));
    let put = choice.put_on(&mut queue);
    put.map_err(|why| Error::Mistake(format!("{}: {why}", drive.name)))
}
