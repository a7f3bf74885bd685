//! What happened in the block layer, as tools that users know print it: events of a
//! simulated run or of a recorded trace in, the tool's own layout out.

mod biolatency;
mod biosnoop;
mod blkparse;
mod blktrace;
mod iostat;
mod mpstat;
mod requests;
mod run;
mod tracefs;

use blklab_stats::Timeline;
use blklab_workload::trace::TraceError;
use blklab_workload::trace::tracefs::{Dev, Event};

pub use run::RunEvents;

/// Events in order of time, read one after the other.
pub type Events<'e, 'a> = &'e mut dyn Iterator<Item = Result<Event<'a>, TraceError>>;

/// A tool whose output can be had.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What it shows, in a few words.
    pub help: &'static str,
    render: fn(&Source<'_>, Events<'_, '_>) -> Result<Vec<u8>, String>,
}

/// Every tool.
pub static TOOLS: &[&Tool] = &[
    &tracefs::TOOL,
    &blktrace::TOOL,
    &blkparse::TOOL,
    &biosnoop::TOOL,
    &biolatency::TOOL,
    &iostat::TOOL,
    &mpstat::TOOL,
];

/// What is known beside the events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// Names of drives, by their minor number; none of a recorded trace.
    pub drives: &'a [String],
    /// What CPUs did, which only a simulated run tells.
    pub timeline: Option<&'a Timeline>,
}

impl Source<'_> {
    /// The name under which tools show a drive: `major,minor` where it has none.
    fn drive_name(&self, dev: Dev) -> String {
        let name = self.drives.get(dev.minor as usize);
        name.cloned().unwrap_or_else(|| dev.to_string())
    }
}

impl Tool {
    /// The tool of that name.
    pub fn find(name: &str) -> Option<&'static Tool> {
        TOOLS.iter().copied().find(|tool| tool.name == name)
    }

    /// What it prints.
    ///
    /// # Errors
    /// Where an event cannot be read, or the tool shows what the source does not tell.
    pub fn render(&self, source: &Source<'_>, events: Events<'_, '_>) -> Result<Vec<u8>, String> {
        (self.render)(source, events)
    }
}

/// The line with which sysstat's tools begin.
fn sysstat_banner(cpus: u32) -> String {
    format!("Linux 6.12.0 (blklab) \t1970-01-01 \t_x86_64_\t({cpus} CPU)\n")
}
