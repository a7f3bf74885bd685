//! Whole runs in virtual time, and the descriptions of machines.

mod buffered;
mod cpu_sharing;
mod engines;
mod file_systems;
mod job;
mod timeline;
mod trace;

#[path = "../../../device/tests/harness/one_mistake.rs"]
mod one_mistake;
#[path = "../../../device/tests/harness/texts.rs"]
mod texts;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use blklab_blk::Nanos;
use blklab_device::registry;
use blklab_elevator::SchedulerChoice;
use blklab_sim::{BreakOff, Caching, Machine, Setup, SetupError, Workload, run_watched};
use blklab_stats::{Results, Window};
use blklab_workload::fio::{self, JobFile};

/// What a workload runs on, by name.
#[derive(Clone, Copy)]
struct On<'a> {
    machine: &'a str,
    drive: &'a str,
    scheduler: &'a str,
}

impl On<'_> {
    fn run(self, workload: Workload<'_>, record: Option<Window>) -> Result<Results, SetupError> {
        self.run_setup(workload, |setup| setup.record = record)
    }

    fn run_with(self, workload: Workload<'_>, caching: Caching) -> Result<Results, SetupError> {
        self.run_setup(workload, |setup| setup.caching = caching)
    }

    fn lose_power(self, job: &JobFile, at: Nanos) -> Result<Results, SetupError> {
        self.run_setup(Workload::Job(job), |setup| setup.power_loss_at = Some(at))
    }

    fn run_setup(
        self,
        workload: Workload<'_>,
        change: impl FnOnce(&mut Setup<'_>),
    ) -> Result<Results, SetupError> {
        let mut goes_on = |_| ControlFlow::Continue(());
        self.run_watched(workload, change, &mut goes_on)
    }

    fn run_watched(
        self,
        workload: Workload<'_>,
        change: impl FnOnce(&mut Setup<'_>),
        watch: &mut dyn FnMut(Nanos) -> ControlFlow<BreakOff>,
    ) -> Result<Results, SetupError> {
        let machine = Machine::find(self.machine).expect("known").expect("valid");
        let drive = registry::find(self.drive).expect("known").expect("valid");
        let scheduler = SchedulerChoice::named(self.scheduler).expect("known");
        let mut setup = Setup::new(workload, &machine, &drive, &scheduler);
        change(&mut setup);
        run_watched(&setup, watch)
    }
}

fn job_file(text: &str) -> JobFile {
    fio::parse_str("t.fio", text, &|_| None, &|_, f| Err(f.to_string()))
        .unwrap_or_else(|e| panic!("{e}"))
}

/// Machine descriptions with one mistake each: whatever the key, the error names
/// the file, the line, the key, what was found and what would be right.
#[test]
fn every_mistake_in_every_key_is_told_in_full() {
    let parse = |name: &str, text: &str| Machine::parse(name, text).map(|_| ());
    let shipped = Machine::names().map(|name| (name, Machine::text(name).expect("listed")));
    for (name, text) in shipped.chain([("every", Machine::complete())]) {
        let (name, parse) = (&format!("{name}.toml"), &parse);
        one_mistake::Description { name, text, parse }.check();
    }
}

#[test]
fn no_key_is_forgotten_here() {
    let text = Machine::complete();
    let set = texts::settings(text).into_iter().map(|set| set.path);
    let set: BTreeSet<String> = set.collect();
    let known = texts::known_keys(text, |text| Machine::parse("m.toml", text).err());
    let is_table = |key: &str| text.contains(&format!("[{key}"));
    let forgotten = known
        .difference(&set)
        .filter(|key| !is_table(key) && *key != "assumed");
    assert_eq!(forgotten.collect::<Vec<_>>(), Vec::<&String>::new());
}
