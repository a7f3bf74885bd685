//! Schedulers as people name them: `NAME[:TUNABLE=VALUE...]`, and
//! `NAME.TUNABLE=VALUE` for all of a name.

use blklab_description::hint;
use blklab_elevator::{ChoiceError, SchedulerChoice, Setting as Assignment};

use crate::error::Error;

/// A scheduler by name and what is set on it, in order. Whether there are such
/// schedulers and tunables is for a world to judge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedScheduler {
    /// Its name.
    pub name: String,
    /// Its tunables and their values.
    pub tunables: Vec<(String, String)>,
}

impl NamedScheduler {
    /// The scheduler of that name, as it comes.
    pub fn new(name: impl Into<String>) -> NamedScheduler {
        NamedScheduler {
            name: name.into(),
            tunables: Vec::new(),
        }
    }

    /// Reads `NAME[:TUNABLE=VALUE...]`.
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

    /// Sets a tunable, in place of an earlier value.
    pub(crate) fn set(&mut self, tunable: &str, value: &str) {
        match self.tunables.iter_mut().find(|(t, _)| t == tunable) {
            Some((_, old)) => *old = value.to_string(),
            None => self.tunables.push((tunable.into(), value.into())),
        }
    }

    fn has(&self, tunable: &str) -> bool {
        self.tunables.iter().any(|(t, _)| t == tunable)
    }

    /// The name, and what is set.
    pub(crate) fn label(&self) -> String {
        let tunables = self.tunables.iter();
        let words = tunables.map(|(tunable, value)| format!("{tunable}={value}"));
        let words: Vec<String> = std::iter::once(self.name.clone()).chain(words).collect();
        words.join(" ")
    }

    /// The scheduler of our own that it names.
    pub(crate) fn choice(&self) -> Result<SchedulerChoice, Error> {
        let mut choice = SchedulerChoice::named(&self.name).map_err(Error::mistake)?;
        for (tunable, value) in &self.tunables {
            choice.set(tunable, value).map_err(Error::mistake)?;
        }
        Ok(choice)
    }
}

/// What `--set` says of all schedulers of a name.
pub(crate) struct Sets<'a>(Vec<(&'a str, Assignment<'a>)>);

impl<'a> Sets<'a> {
    /// Reads `NAME.TUNABLE=VALUE` of schedulers that are among `names`.
    pub(crate) fn parse(sets: &'a [String], names: &[&str]) -> Result<Sets<'a>, Error> {
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
            all.push((scheduler, assignment));
        }
        Ok(Sets(all))
    }

    /// Sets what is said of the scheduler's name; what is said of this one by
    /// itself holds against that.
    pub(crate) fn apply(&self, scheduler: &mut NamedScheduler) {
        let own = scheduler.clone();
        for (name, assignment) in &self.0 {
            if *name == own.name && !own.has(assignment.tunable) {
                scheduler.set(assignment.tunable, assignment.value);
            }
        }
    }
}

/// Checks that a scheduler is among those that run.
pub(crate) fn check_among(option: &str, scheduler: &str, names: &[&str]) -> Result<(), Error> {
    if names.contains(&scheduler) {
        return Ok(());
    }
    // A scheduler that there is was meant.
    let hint = match blklab_elevator::find(scheduler) {
        Some(_) => String::new(),
        None => hint(scheduler, names.iter().copied()),
    };
    let names = names.join(", ");
    Err(Error::mistake(format!(
        "{option}: {scheduler} is not among the schedulers of this run ({names}){hint}"
    )))
}
