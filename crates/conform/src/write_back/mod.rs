//! Holds write-back against a recorded kernel.
//!
//! Given are the calls, when requests ended, which task ran when, and what the
//! kernel's counters read. Compared is what a task that dirties pages may do and
//! how long it sleeps.

mod throttle;

use std::path::{Path, PathBuf};

use crate::ConformError;
use crate::Mode;
use crate::report::{Report, TraceReport};

/// Compares each recorded run.
///
/// # Errors
/// Where a trace, its list of calls or its description cannot be read.
pub fn write_back(traces: &[PathBuf]) -> Result<Report, ConformError> {
    if traces.is_empty() {
        return Err(ConformError::NoTraces);
    }
    Ok(Report {
        mode: Mode::WriteBack,
        scheduler: String::new(),
        traces: traces
            .iter()
            .map(|path| compare(path))
            .collect::<Result<_, _>>()?,
    })
}

fn compare(path: &Path) -> Result<TraceReport, ConformError> {
    let mut report = TraceReport::new(path.display().to_string());
    throttle::compare(path, &mut report)?;
    Ok(report)
}

/// A look at a task that dirties pages.
pub(crate) const THROTTLE: &str = "throttling";
