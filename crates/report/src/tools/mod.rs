//! Events of the block layer as well-known tools print them: events of a simulated run
//! or of a recorded trace are converted to a tool's own layout.

mod biolatency;
mod biosnoop;
mod formats;
mod iostat;
mod mpstat;
mod requests;
mod run;

use blklab_workload::trace::TraceError;
use blklab_workload::trace::tracefs::{Dev, Event};

pub use run::RunEvents;

/// Events in order of time, read one by one.
pub type Events<'e, 'a> = &'e mut dyn Iterator<Item = Result<Event<'a>, TraceError>>;

/// A tool whose output can be produced.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// A description in a few words.
    pub help: &'static str,
    render: fn(&Source<'_>, Events<'_, '_>) -> Result<Vec<u8>, String>,
}

/// All tools.
pub static TOOLS: &[&Tool] = &[
    &formats::TRACEFS,
    &formats::BLKTRACE,
    &formats::BLKPARSE,
    &biosnoop::TOOL,
    &biolatency::TOOL,
    &iostat::TOOL,
    &mpstat::TOOL,
];

/// The information beside the events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// Names of drives by their minor number; empty for a recorded trace.
    pub drives: &'a [String],
    /// The number of CPUs of a simulated run; a trace tells it, if it has their times.
    pub cpus: Option<u32>,
}

impl Source<'_> {
    /// Returns the name under which tools show a drive: `major,minor` if it has none.
    fn drive_name(&self, dev: Dev) -> String {
        let name = self.drives.get(dev.minor as usize);
        name.cloned().unwrap_or_else(|| dev.to_string())
    }
}

impl Tool {
    /// Finds a tool by its name.
    pub fn find(name: &str) -> Option<&'static Tool> {
        TOOLS.iter().copied().find(|tool| tool.name == name)
    }

    /// Returns the tool's output.
    ///
    /// # Errors
    /// If an event cannot be read, or the source lacks what the tool shows.
    pub fn render(&self, source: &Source<'_>, events: Events<'_, '_>) -> Result<Vec<u8>, String> {
        (self.render)(source, events)
    }
}

/// Returns the first line of sysstat's tools.
fn sysstat_banner(cpus: u32) -> String {
    format!("Linux 6.12.0 (blklab) \t1970-01-01 \t_x86_64_\t({cpus} CPU)\n")
}
