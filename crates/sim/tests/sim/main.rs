//! Whole runs in virtual time.

mod job;
mod machine_mistakes;
mod timeline;
mod trace;

#[path = "../../../device/tests/harness/one_mistake.rs"]
mod one_mistake;
#[path = "../../../device/tests/harness/texts.rs"]
mod texts;

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
