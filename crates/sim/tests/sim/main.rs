//! Whole runs in virtual time, and the descriptions of machines.

mod job;
mod timeline;
mod trace;

#[path = "../../../device/tests/harness/one_mistake.rs"]
mod one_mistake;
#[path = "../../../device/tests/harness/texts.rs"]
mod texts;

use std::collections::BTreeSet;

use blklab_device::registry;
use blklab_elevator::SchedulerChoice;
use blklab_sim::{Machine, Setup, SetupError, Workload, run};
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
        run(&Setup {
            workload,
            machine: &Machine::find(self.machine).expect("known").expect("valid"),
            drive: &registry::find(self.drive).expect("known").expect("valid"),
            scheduler: &SchedulerChoice::named(self.scheduler).expect("known"),
            seed: 1,
            record,
            power_loss_at: None,
        })
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
        .filter(|key| !is_table(key) && *key != "assumed" && !key.starts_with("costs.like."));
    assert_eq!(forgotten.collect::<Vec<_>>(), Vec::<&String>::new());
}
