//! A scheduler as users choose it: its name and settings.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use blklab_blk::{Nanos, NoMerges, RequestQueue, TunableError};
use blklab_description::hint;

use crate::ElevatorType;
#[cfg(feature = "std")]
use crate::known;

/// The reason why a chosen scheduler cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChoiceError {
    /// There is no scheduler of that name.
    Unknown {
        /// The name that was given.
        name: String,
    },
    /// A tunable cannot be set to the given value.
    Tunable {
        /// Name of the scheduler.
        scheduler: &'static str,
        /// The tunable as written.
        tunable: String,
        /// The problem, and what would be legal.
        problem: String,
    },
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChoiceError::Unknown { name } => f.write_str(&unknown_scheduler(name)),
            ChoiceError::Tunable {
                scheduler,
                tunable,
                problem,
            } => write!(f, "{scheduler}.{tunable}: {problem}"),
        }
    }
}

impl core::error::Error for ChoiceError {}

/// All schedulers.
#[cfg(not(feature = "std"))]
fn known() -> Vec<&'static ElevatorType> {
    crate::all().iter().collect()
}

fn unknown_scheduler(name: &str) -> String {
    let known: Vec<&str> = known().iter().map(|t| t.name).collect();
    let hint = hint(name, known.iter().copied());
    let known = known.join(", ");
    match name {
        "" => format!("a scheduler's name is missing; there are {known}"),
        _ => format!("there is no scheduler called {name}; there are {known}{hint}"),
    }
}

/// A scheduler with its settings.
#[derive(Clone)]
pub struct SchedulerChoice {
    /// Kind of the scheduler.
    pub kind: &'static ElevatorType,
    /// Tunables with values other than the default.
    pub tunables: Vec<(String, i64)>,
    /// Attributes to be written, after the tunables.
    pub attributes: Vec<(&'static str, Vec<u64>)>,
    /// `queue/nr_requests`, if it is not the kernel's default.
    pub nr_requests: Option<u32>,
    /// `queue/nomerges`; `None` leaves the queue's own.
    pub nomerges: Option<NoMerges>,
    /// `queue/wbt_lat_usec`; `None` leaves writeback throttling as it is.
    pub wbt_lat_us: Option<u64>,
}

impl SchedulerChoice {
    /// Returns the scheduler of that name with default settings.
    ///
    /// # Errors
    /// If there is none; the message names the most similar one.
    pub fn named(name: &str) -> Result<SchedulerChoice, ChoiceError> {
        let kind = known().into_iter().find(|kind| kind.name == name);
        let kind = kind.ok_or_else(|| ChoiceError::Unknown {
            name: name.to_string(),
        })?;
        Ok(SchedulerChoice {
            kind,
            tunables: Vec::new(),
            attributes: Vec::new(),
            nr_requests: None,
            nomerges: None,
            wbt_lat_us: None,
        })
    }

    /// Sets a tunable from its text.
    ///
    /// # Errors
    /// If the scheduler has no such tunable, or the value is not a number or is out of range; the
    /// message says what is legal.
    pub fn set(&mut self, tunable: &str, value: &str) -> Result<(), ChoiceError> {
        let fault = |problem: String| ChoiceError::Tunable {
            scheduler: self.kind.name,
            tunable: tunable.to_string(),
            problem,
        };
        let attributes = self.kind.attributes;
        if let Some(attribute) = attributes.iter().find(|a| a.name == tunable) {
            let numbers = attribute.parse(value).map_err(fault)?;
            self.attributes.push((attribute.name, numbers));
            return Ok(());
        }
        let declared = self.kind.tunables;
        let Some(t) = declared.iter().find(|t| t.name == tunable) else {
            let names = declared.iter().map(|t| t.name);
            let written = attributes.iter().filter(|a| !a.takes.is_empty());
            let known: Vec<&'static str> = names.chain(written.map(|a| a.name)).collect();
            let hint = hint(tunable, known.iter().copied());
            let list = TunableError::Unknown { known };
            return Err(fault(format!("no such tunable; {list}{hint}")));
        };
        let number: i64 = value
            .parse()
            .map_err(|_| fault(format!("found {value:?}; legal is {}", t.range())))?;
        if !(t.min..=t.max).contains(&number) {
            return Err(fault(TunableError::Range(*t, number).to_string()));
        }
        self.tunables.push((tunable.to_string(), number));
        Ok(())
    }

    /// Attaches the scheduler to an idle queue, with these settings.
    ///
    /// # Errors
    /// If the queue refuses `nr_requests`, or the scheduler a tunable; the message says what is
    /// legal.
    pub fn put_on(&self, queue: &mut RequestQueue) -> Result<(), String> {
        let info = queue.info();
        queue.set_elevator(self.kind.build(&info));
        if let Some(nr) = self.nr_requests {
            queue.set_nr_requests(nr)?;
        }
        if let Some(nomerges) = self.nomerges {
            queue.limits_mut().nomerges = nomerges;
        }
        if let Some(latency_us) = self.wbt_lat_us {
            queue.set_wbt_latency(Nanos::ZERO, latency_us);
        }
        if let Some(elevator) = queue.elevator_mut() {
            for (name, value) in &self.tunables {
                let set = elevator.set_tunable(name, *value);
                set.map_err(|e| e.to_string())?;
            }
            for (name, numbers) in &self.attributes {
                elevator.set_attribute(name, numbers);
            }
        }
        Ok(())
    }

    /// The name to show, with the settings.
    pub fn label(&self) -> String {
        let mut words = vec![self.kind.name.to_string()];
        let tunables = self.tunables.iter();
        words.extend(tunables.map(|(name, value)| format!("{name}={value}")));
        words.extend(self.attributes.iter().map(|(name, numbers)| {
            let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
            format!("{name}={}", numbers.join(","))
        }));
        words.join(" ")
    }
}

/// A setting of the form `[SCHEDULER.]TUNABLE=VALUE`. Neither the names nor the value have been
/// checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting<'a> {
    /// The scheduler, if it is named.
    pub scheduler: Option<&'a str>,
    /// The tunable; on a host it becomes part of a sysfs path.
    pub tunable: &'a str,
    /// The value as written.
    pub value: &'a str,
}

impl<'a> Setting<'a> {
    /// Parses the text; `None` if it does not have that form.
    pub fn parse(text: &'a str) -> Option<Setting<'a>> {
        let (target, value) = text.split_once('=')?;
        let (scheduler, tunable) = match target.split_once('.') {
            Some((scheduler, tunable)) => (Some(scheduler), tunable),
            None => (None, target),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let is_name = !tunable.is_empty() && tunable.chars().all(plain);
        is_name.then_some(Setting {
            scheduler,
            tunable,
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_missing_is_not_called_unknown() {
        let message = |name| match SchedulerChoice::named(name) {
            Ok(_) => panic!("{name} is no scheduler"),
            Err(error) => error.to_string(),
        };
        assert!(message("").starts_with("a scheduler's name is missing"));
        let unknown = message("mq-deadlin");
        assert!(unknown.starts_with("there is no scheduler called mq-deadlin;"));
        for kind in crate::all() {
            assert!(message("").contains(kind.name) && unknown.contains(kind.name));
        }
    }

    #[test]
    fn a_setting_is_taken_apart() {
        let setting = |scheduler, tunable, value| {
            Some(Setting {
                scheduler,
                tunable,
                value,
            })
        };
        assert_eq!(Setting::parse("x=1"), setting(None, "x", "1"));
        assert_eq!(Setting::parse("x=a=1.b"), setting(None, "x", "a=1.b"));
        assert_eq!(
            Setting::parse("mq-deadline.fifo_batch=1"),
            setting(Some("mq-deadline"), "fifo_batch", "1")
        );
        for wrong in ["", "x", "a.x", "=1", "a.=1", "../x=1", "a.b.x=1", "a b=1"] {
            assert_eq!(Setting::parse(wrong), None, "{wrong}");
        }
    }

    /// A setting that is refused changes nothing; one that is taken keeps its place among them.
    #[test]
    fn tunables_and_attributes_are_taken_within_their_range() {
        let mut choice = SchedulerChoice::named("adios").expect("is ours");
        for (name, value) in [("read_priority", "-3"), ("lat_model_read", "90000 4000")] {
            choice.set(name, value).expect("is legal");
        }
        let tunables = vec![("read_priority".to_string(), -3)];
        let attributes = vec![("lat_model_read", vec![90_000, 4_000])];
        let check = |choice: &SchedulerChoice| {
            assert_eq!(choice.tunables, tunables);
            let numbers = choice.attributes.iter();
            let numbers = numbers.map(|(name, n)| (*name, n.iter().map(|n| *n as i64).collect()));
            assert_eq!(numbers.collect::<Vec<(_, Vec<i64>)>>(), attributes);
        };
        check(&choice);
        for (name, value, why) in [
            ("read_priority", "20", "-20"),
            ("read_priority", "many", "-20"),
            ("read_prioritt", "1", "read_priority"),
            ("lat_model_read", "1", "lat_model_read"),
        ] {
            let error = choice.set(name, value).expect_err("is not legal");
            let message = error.to_string();
            assert!(message.contains(why), "{name}={value}: {message}");
            check(&choice);
        }
    }
}
