//! Schedulers as users name them: `NAME[:TUNABLE=VALUE...]` for one row, and
//! `NAME.TUNABLE=VALUE` for all rows of a scheduler.

use blklab_description::hint;
use blklab_elevator::{ChoiceError, SchedulerChoice, Setting as Assignment};

use crate::error::Error;

/// A scheduler's name and the tunables to set, in order. Each world checks whether it
/// has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedScheduler {
    /// The scheduler's name.
    pub name: String,
    /// The tunables and their values.
    pub tunables: Vec<(String, String)>,
}

impl NamedScheduler {
    /// Returns the scheduler with its default tunables.
    pub fn new(name: impl Into<String>) -> NamedScheduler {
        NamedScheduler {
            name: name.into(),
            tunables: Vec::new(),
        }
    }

    /// Parses `NAME[:TUNABLE=VALUE...]`.
    pub(crate) fn parse(text: &str) -> Result<NamedScheduler, Error> {
        let text = text.trim();
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default();
        if name.is_empty() {
            let name = String::new();
            return Err(Error::mistake(ChoiceError::Unknown { name }));
        }
        let mut scheduler = NamedScheduler::new(name);
        for word in words {
            let own = Assignment::parse(word).filter(|own| own.scheduler.is_none());
            let own = own.ok_or_else(|| {
                Error::mistake(format!(
                    "--schedulers {text}: not of the form scheduler:tunable=value, such as \
                     mq-deadline:fifo_batch=1:front_merges=0"
                ))
            })?;
            scheduler.set(own.tunable, own.value);
        }
        Ok(scheduler)
    }

    /// Sets a tunable, replacing an earlier value.
    pub(crate) fn set(&mut self, tunable: &str, value: &str) {
        match self.tunables.iter_mut().find(|(t, _)| t == tunable) {
            Some((_, old)) => *old = value.to_string(),
            None => self.tunables.push((tunable.into(), value.into())),
        }
    }

    fn has(&self, tunable: &str) -> bool {
        self.tunables.iter().any(|(t, _)| t == tunable)
    }

    /// Returns the name with the tunables that are set.
    pub(crate) fn label(&self) -> String {
        let tunables = self.tunables.iter();
        let words = tunables.map(|(tunable, value)| format!("{tunable}={value}"));
        let words: Vec<String> = std::iter::once(self.name.clone()).chain(words).collect();
        words.join(" ")
    }

    /// Returns our own scheduler of this name.
    pub(crate) fn choice(&self) -> Result<SchedulerChoice, Error> {
        let mut choice = SchedulerChoice::named(&self.name).map_err(Error::mistake)?;
        for (tunable, value) in &self.tunables {
            choice.set(tunable, value).map_err(Error::mistake)?;
        }
        Ok(choice)
    }
}

/// The values of `--set`: scheduler, tunable and value.
#[derive(Clone)]
pub(crate) struct SchedulerTunables(Vec<[String; 3]>);

impl SchedulerTunables {
    /// Parses `NAME.TUNABLE=VALUE` for schedulers that are among `names`.
    pub(crate) fn parse(sets: &[String], names: &[&str]) -> Result<SchedulerTunables, Error> {
        let mut all = Vec::new();
        for set in sets {
            let assignment = Assignment::parse(set);
            let named = assignment.and_then(|a| Some((a.scheduler?, a)));
            let (scheduler, assignment) = named.ok_or_else(|| {
                Error::mistake(format!(
                    "--set {set}: not of the form scheduler.tunable=value, such as \
                     mq-deadline.fifo_batch=1"
                ))
            })?;
            check_among(&format!("--set {set}"), scheduler, names)?;
            let Assignment { tunable, value, .. } = assignment;
            all.push([scheduler, tunable, value].map(str::to_string));
        }
        Ok(SchedulerTunables(all))
    }

    /// Sets the tunables given for the scheduler's name, except those that the scheduler
    /// sets itself.
    pub(crate) fn apply(&self, scheduler: &mut NamedScheduler) {
        let own = scheduler.clone();
        for [name, tunable, value] in &self.0 {
            if *name == own.name && !own.has(tunable) {
                scheduler.set(tunable, value);
            }
        }
    }
}

/// Checks that a scheduler is among those of the comparison.
pub(crate) fn check_among(option: &str, scheduler: &str, names: &[&str]) -> Result<(), Error> {
    if names.contains(&scheduler) {
        return Ok(());
    }
    // An existing scheduler's name is not a typing mistake.
    let hint = match blklab_elevator::find(scheduler) {
        Some(_) => String::new(),
        None => hint(scheduler, names.iter().copied()),
    };
    let names = names.join(", ");
    Err(Error::mistake(format!(
        "{option}: {scheduler} is not among the schedulers of this run ({names}){hint}"
    )))
}
