//! The axes along which a comparison can vary.

use std::collections::HashSet;

use blklab_description::{hint, time_ns};
use blklab_stats::World;
use blklab_workload::fio::{self, Override, OverrideWhen};

use crate::error::Error;
use crate::front_end::NamedFrontEnd;
use crate::range;
use crate::schedulers::NamedScheduler;
use crate::setting::Setting;

/// A kind of axis along which a comparison can vary.
pub struct Axis {
    /// The axis's key, or a placeholder for many keys such as `drive.KEY`.
    pub name: &'static str,
    /// A description in one line.
    pub help: &'static str,
    /// The worlds in which the axis can vary.
    pub worlds: &'static [World],
    /// Returns whether a key belongs to this axis; `None` if only `name` does.
    takes: Option<fn(&str) -> bool>,
    /// Returns whether a key of the axis takes whole numbers alone.
    is_whole: fn(&str) -> bool,
    /// Sets the axis's key to a value.
    set: fn(&mut Setting, &str, &str) -> Result<(), Error>,
}

impl Axis {
    fn takes(&self, key: &str) -> bool {
        self.takes.map_or(key == self.name, |takes| takes(key))
    }

    /// Sets a key of this axis to a value, and records both in the setting.
    ///
    /// # Errors
    ///
    /// If the value is not one that the key takes.
    fn apply(&self, setting: &mut Setting, key: &str, value: &str) -> Result<(), Error> {
        (self.set)(setting, key, value)?;
        setting.axes.push((key.to_string(), value.to_string()));
        Ok(())
    }

    /// Checks that a key of this axis can vary in a world; otherwise says in which it can.
    fn check(&self, key: &str, world: World) -> Result<(), String> {
        if self.worlds.contains(&world) {
            return Ok(());
        }
        let worlds = self.worlds.iter().map(|w| format!("--world {}", w.name()));
        let worlds = worlds.collect::<Vec<_>>().join(" and ");
        Err(format!("{key} can be varied in {worlds}"))
    }
}

/// Of axes whose values are whole numbers.
const ALWAYS: fn(&str) -> bool = |_| true;
/// Of axes whose values are words.
const NEVER: fn(&str) -> bool = |_| false;

const ALL_WORLDS: &[World] = &[World::Sim, World::Serve, World::Host, World::Guest];
const MODELLED: &[World] = &[World::Sim, World::Serve];

/// All axes along which a comparison can vary. A key belongs to the first axis that
/// takes it.
pub const AXES: &[Axis] = &[
    Axis {
        name: SCHEDULER,
        help: "the I/O scheduler, as in --schedulers",
        worlds: ALL_WORLDS,
        takes: None,
        is_whole: NEVER,
        set: |setting, _, value| {
            setting.scheduler = NamedScheduler::parse(value)?;
            Ok(())
        },
    },
    Axis {
        name: "drive.KEY",
        help: "a key of the drive's description, such as drive.gc.policy; unset leaves it out",
        worlds: MODELLED,
        takes: Some(|key| drive_key_of(key).is_some()),
        is_whole: |key| drive_key_of(key).is_some_and(blklab_device::takes_whole_numbers),
        set: |setting, key, value| {
            if let Some(key) = drive_key_of(key) {
                setting
                    .drive_values
                    .push((key.to_string(), value.to_string()));
            }
            Ok(())
        },
    },
    Axis {
        name: "vm.SETTING, mm.SETTING",
        help: "a setting of the kernel's, such as vm.dirty_ratio or mm.lru_gen.enabled, as in \
               --sysctl",
        worlds: &[World::Sim],
        takes: Some(is_sysctl),
        is_whole: ALWAYS,
        set: |setting, key, value| {
            setting.sysctls.push((key.to_string(), value.to_string()));
            Ok(())
        },
    },
    Axis {
        name: "memory",
        help: "the machine's memory, as in --memory",
        worlds: &[World::Sim],
        takes: None,
        is_whole: ALWAYS,
        set: |setting, key, value| {
            let bytes = fio::bytes(value);
            let mistake = |problem| Error::Mistake(format!("--vary {key}={value}: {problem}"));
            setting.memory_bytes = Some(bytes.map_err(mistake)?);
            Ok(())
        },
    },
    Axis {
        name: "fs",
        help: "the file system that files are on: raw, ext2, vfat or xfs, as in --fs",
        worlds: &[World::Sim],
        takes: None,
        is_whole: NEVER,
        set: |setting, key, value| {
            let kind = value.parse();
            let mistake = |problem| Error::Mistake(format!("--vary {key}={value}: {problem}"));
            setting.file_system = kind.map_err(mistake)?;
            Ok(())
        },
    },
    Axis {
        name: "SCHEDULER.TUNABLE",
        help: "a scheduler's tunable, such as mq-deadline.fifo_batch",
        worlds: ALL_WORLDS,
        takes: Some(|key| scheduler_of(key).is_some()),
        is_whole: ALWAYS,
        set: |setting, key, value| {
            if let Some((scheduler, tunable)) = key.split_once('.')
                && setting.scheduler.name == scheduler
            {
                setting.scheduler.set(tunable, value);
            }
            Ok(())
        },
    },
    Axis {
        name: "drive",
        help: "the model of a drive, as in --drive",
        worlds: MODELLED,
        takes: None,
        is_whole: NEVER,
        set: |setting, _, value| {
            setting.drive = value.to_string();
            Ok(())
        },
    },
    Axis {
        name: "frontend",
        help: "the way from a program to the disk, as in --frontends",
        worlds: &[World::Sim, World::Guest],
        takes: None,
        is_whole: NEVER,
        set: |setting, _, value| {
            NamedFrontEnd::parse(value)?;
            setting.front_end = Some(value.to_string());
            Ok(())
        },
    },
    Axis {
        name: "state",
        help: "what was written to the drive before, as in --state",
        worlds: MODELLED,
        takes: None,
        is_whole: NEVER,
        set: |setting, key, value| {
            let state = value.parse().map_err(|_| {
                Error::Mistake(format!(
                    "--vary {key}: found {value}, right is fresh, filled or aged"
                ))
            })?;
            setting.state = Some(state);
            Ok(())
        },
    },
    Axis {
        name: "faults",
        help: "the drive's faults, as in --faults; + between several, none for no faults, as in \
               faults=none,read_error=1e-4+slow=2",
        worlds: MODELLED,
        takes: None,
        is_whole: NEVER,
        set: |setting, key, value| {
            let faults = (value != "none").then(|| value.replace('+', ",").parse());
            let mistake = |problem| Error::Mistake(format!("--vary {key}={value}: {problem}"));
            setting.faults = faults.transpose().map_err(mistake)?;
            Ok(())
        },
    },
    Axis {
        name: "power_loss_at",
        help: "when the drives' power is cut, as in --power-loss-at; never for not at all",
        worlds: &[World::Sim],
        takes: None,
        is_whole: NEVER,
        set: |setting, key, value| {
            let at_ns = (value != "never").then(|| time_ns(value));
            let mistake = |problem| Error::Mistake(format!("--vary {key}={value}: {problem}"));
            setting.power_loss_at_ns = at_ns.transpose().map_err(mistake)?;
            Ok(())
        },
    },
    Axis {
        name: "machine",
        help: "the model of a machine, as in --machine",
        worlds: &[World::Sim],
        takes: None,
        is_whole: NEVER,
        set: |setting, _, value| {
            setting.machine = value.to_string();
            Ok(())
        },
    },
    Axis {
        name: "nr_requests",
        help: "the queue's nr_requests, as in --nr-requests",
        worlds: ALL_WORLDS,
        takes: None,
        is_whole: ALWAYS,
        set: |setting, key, value| {
            setting.nr_requests = Some(number(key, value, 1, u32::MAX)?);
            Ok(())
        },
    },
    Axis {
        name: "nomerges",
        help: "the queue's nomerges, as in --nomerges",
        worlds: ALL_WORLDS,
        takes: None,
        is_whole: ALWAYS,
        set: |setting, key, value| {
            setting.nomerges = Some(number(key, value, 0, 2)? as u8);
            Ok(())
        },
    },
    Axis {
        name: "read_ahead_kb",
        help: "the queue's read_ahead_kb",
        worlds: &[World::Sim, World::Host, World::Guest],
        takes: None,
        is_whole: ALWAYS,
        set: |setting, key, value| {
            setting.read_ahead_kb = Some(number(key, value, 0, READ_AHEAD_KB_MAX)?);
            Ok(())
        },
    },
    Axis {
        name: "wbt_lat_usec",
        help: "the queue's wbt_lat_usec: the latency of reads above which writeback is throttled, 0 for never",
        worlds: MODELLED,
        takes: Some(|key| key == "wbt_lat_usec"),
        is_whole: ALWAYS,
        set: |setting, key, value| {
            setting.wbt_lat_us = Some(number(key, value, 0, u32::MAX)?);
            Ok(())
        },
    },
    Axis {
        name: "cgroup_file",
        help: "a file of control groups, as in --cgroup-file; none for no file",
        worlds: &[World::Sim],
        takes: None,
        is_whole: NEVER,
        set: |setting, _, value| {
            setting.cgroup_file = (value != "none").then(|| value.to_string());
            Ok(())
        },
    },
    Axis {
        name: "FIO-OPTION",
        help: "any option of the job's, such as iodepth or bs, in place of its own",
        worlds: ALL_WORLDS,
        takes: Some(|key| fio::has_option(key) && key != IOSCHEDULER),
        is_whole: fio::takes_whole_numbers,
        set: |setting, name, value| {
            setting.options.push(Override {
                given_by: "--vary".to_string(),
                name: name.to_string(),
                value: value.to_string(),
                when: OverrideWhen::Always,
            });
            Ok(())
        },
    },
];

/// fio's option that sets a scheduler, excluded because schedulers have an axis of their
/// own.
const IOSCHEDULER: &str = "ioscheduler";

/// The key of the schedulers' axis.
pub(crate) const SCHEDULER: &str = "scheduler";

/// Whether a key is a setting of the kernel's for memory.
fn is_sysctl(key: &str) -> bool {
    key.starts_with("vm.") || key.starts_with("mm.")
}

/// Limit on `read_ahead_kb`, 1 GiB: more than any kernel reads ahead.
const READ_AHEAD_KB_MAX: u32 = 1 << 20;

/// Returns the key of a drive's description that an axis's key names.
fn drive_key_of(key: &str) -> Option<&str> {
    key.strip_prefix("drive.").filter(|key| !key.is_empty())
}

/// Returns the scheduler of a tunable's key.
pub(crate) fn scheduler_of(key: &str) -> Option<&str> {
    let (scheduler, tunable) = key.split_once('.')?;
    if drive_key_of(key).is_some() || is_sysctl(key) {
        return None;
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_name = !tunable.is_empty() && tunable.chars().all(plain);
    (is_name && !scheduler.is_empty()).then_some(scheduler)
}

fn number(key: &str, value: &str, min: u32, max: u32) -> Result<u32, Error> {
    let number = value.parse().ok();
    let number = number.filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| {
        Error::mistake(format!(
            "--vary {key}={value}: a number from {min} to {max} is right"
        ))
    })
}

fn find(key: &str) -> Option<&'static Axis> {
    AXES.iter().find(|axis| axis.takes(key))
}

/// Checks that everything that settings vary in can be varied in another world as well.
///
/// # Errors
/// If something cannot; the message says where it can.
pub fn check_axes(settings: &[Setting], world: World) -> Result<(), Error> {
    let keys = settings.iter().flat_map(|setting| &setting.axes);
    for (key, _) in keys {
        if let Some(axis) = find(key) {
            let checked = axis.check(key, world);
            checked.map_err(|problem| Error::mistake(format!("--vary {key}: {problem}")))?;
        }
    }
    Ok(())
}

/// Returns a setting with these keys of axes set to these values, in order.
///
/// # Errors
/// If there is no such key, or its value is not legal; the message says what is.
pub fn with_values(
    base: &Setting,
    label: &str,
    values: &[(String, String)],
) -> Result<Setting, Error> {
    let mut setting = Setting {
        label: label.to_string(),
        ..base.clone()
    };
    for (key, value) in values {
        let mistake = |problem| Error::mistake(format!("--vary {key}={value}: {problem}"));
        let axis = find(key).ok_or_else(|| mistake(unknown(key)))?;
        axis.check(key, World::Sim).map_err(mistake)?;
        axis.apply(&mut setting, key, value)?;
    }
    Ok(setting)
}

/// An axis of one comparison, with its values.
#[derive(Clone)]
pub(crate) struct VariedAxis {
    axis: &'static Axis,
    pub(crate) key: String,
    pub(crate) values: Vec<String>,
}

impl VariedAxis {
    /// Parses `KEY=VALUE,...`.
    pub(crate) fn parse(text: &str, world: World) -> Result<VariedAxis, Error> {
        let fail = |problem: String| Err(Error::mistake(format!("--vary {text}: {problem}")));
        let Some((key, values)) = text.split_once('=') else {
            let form = "not of the form KEY=VALUE,..., such as iodepth=1,32";
            return fail(form.to_string());
        };
        let key = key.trim();
        let Some(axis) = find(key) else {
            return fail(unknown(key));
        };
        if let Err(problem) = axis.check(key, world) {
            return fail(problem);
        }
        let mut all: Vec<String> = Vec::new();
        for value in values.split(',').map(str::trim) {
            match range::values(key, || (axis.is_whole)(key), value)
                .map_err(|problem| Error::mistake(format!("--vary {text}: {problem}")))?
            {
                Some(values) => all.extend(values),
                None => all.push(value.to_string()),
            }
        }
        let mut seen = HashSet::new();
        for value in &all {
            if value.is_empty() {
                return fail("a value is missing".to_string());
            }
            if !seen.insert(value) && key != SCHEDULER {
                return fail(format!("{value} is named twice"));
            }
        }
        Ok(VariedAxis {
            axis,
            key: key.to_string(),
            values: all,
        })
    }

    /// Returns the schedulers' axis of `--schedulers`.
    pub(crate) fn schedulers(names: Vec<String>) -> VariedAxis {
        VariedAxis {
            axis: &AXES[0],
            key: SCHEDULER.to_string(),
            values: names,
        }
    }

    /// Returns whether this is the axis of schedulers.
    pub(crate) fn is_schedulers(&self) -> bool {
        self.key == SCHEDULER
    }

    /// Returns whether the axis varies settings with this scheduler: a tunable applies only to its
    /// own.
    pub(crate) fn varies(&self, scheduler: &str) -> bool {
        scheduler_of(&self.key).is_none_or(|name| name == scheduler)
    }

    /// Returns the axis with its first values only.
    pub(crate) fn first(&self, values: usize) -> VariedAxis {
        VariedAxis {
            values: self.values.iter().take(values).cloned().collect(),
            ..self.clone()
        }
    }

    /// Gives a setting one of the axis's values.
    pub(crate) fn apply(&self, setting: &mut Setting, value: usize) -> Result<(), Error> {
        let value = &self.values[value];
        self.axis.apply(setting, &self.key, value)?;
        if !self.is_of_schedulers() {
            setting.add_to_label(&format!("{}={value}", self.key));
        }
        Ok(())
    }

    /// Returns whether the scheduler's part of a row's label already shows this axis.
    pub(crate) fn is_of_schedulers(&self) -> bool {
        self.is_schedulers() || scheduler_of(&self.key).is_some()
    }

    /// Returns each setting with each of the axis's values.
    pub(crate) fn product(&self, settings: &[Setting]) -> Result<Vec<Setting>, Error> {
        let mut all = Vec::new();
        for setting in settings {
            if !self.varies(&setting.scheduler.name) {
                all.push(setting.clone());
                continue;
            }
            for value in 0..self.values.len() {
                let mut setting = setting.clone();
                self.apply(&mut setting, value)?;
                all.push(setting);
            }
        }
        Ok(all)
    }
}

fn unknown(key: &str) -> String {
    let tunables = blklab_elevator::all().iter().flat_map(|kind| {
        let names = kind.tunables.iter().map(|tunable| tunable.name);
        names.map(|name| format!("{}.{name}", kind.name))
    });
    let tunables: Vec<String> = tunables.collect();
    let names: Vec<&str> = AXES.iter().map(|axis| axis.name).collect();
    let options = fio::option_names().filter(|name| *name != IOSCHEDULER);
    let mut known: Vec<&str> = names.to_vec();
    known.extend(tunables.iter().map(String::as_str));
    known.extend(options.map(|name| -> &str { name }));
    let hint = hint(key, known);
    let names = names.join(", ");
    format!("there is nothing called {key} to vary; there are {names}{hint}")
}
