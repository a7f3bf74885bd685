//! A recorded run: the trace, and the description beside it.

use std::path::{Path, PathBuf};

use blklab_blk::SECTOR_SIZE;
use blklab_workload::trace::tracefs::{Event, EventKind, Line, RunInfo, parse_line};
use blklab_workload::trace::{TraceError, read_text};
use serde::de::DeserializeOwned;

use crate::ConformError;

/// An end beyond this sector could not be counted in bytes.
const LAST_SECTOR: u64 = u64::MAX / SECTOR_SIZE;

/// An event and the line it stands on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded<'a> {
    pub(crate) line: u64,
    pub(crate) event: Event<'a>,
}

/// The files of a run.
pub(crate) struct Recording {
    pub(crate) file: String,
    text: String,
    /// What it was recorded on; `None` where there is no description.
    pub(crate) info: Option<RunInfo>,
}

impl Recording {
    /// Reads the trace at `path`, plain or gzipped, and the `.json` beside it.
    pub(crate) fn open(path: &Path) -> Result<Recording, ConformError> {
        let text = read_text(path)?;
        let description = beside(path, ".json");
        let info = match description.is_file() {
            true => Some(RunInfo::open(&description)?),
            false => None,
        };
        Ok(Recording {
            file: path.display().to_string(),
            text,
            info,
        })
    }

    /// A recording that is in memory.
    #[cfg(test)]
    pub(crate) fn of_text(text: String, description: &Path) -> Recording {
        Recording {
            file: "memory".to_owned(),
            text,
            info: Some(RunInfo::open(description).unwrap()),
        }
    }

    /// All events, in order.
    pub(crate) fn events(&self) -> Result<Vec<Recorded<'_>>, ConformError> {
        let mut events = Vec::new();
        for (text, line) in self.text.lines().zip(1..) {
            match parse_line(text) {
                Ok(Line::Event(event)) if ends(&event.kind) => {
                    events.push(Recorded { line, event });
                }
                Ok(Line::Event(_)) => {
                    let file = self.file.clone();
                    return Err(ConformError::Extent { file, line });
                }
                Ok(Line::Skip) => {}
                Ok(Line::Lost(count)) => {
                    return Err(ConformError::Lost {
                        file: self.file.clone(),
                        line,
                        count,
                    });
                }
                Err(fault) => {
                    return Err(TraceError::Malformed {
                        file: self.file.clone(),
                        line,
                        fault,
                    }
                    .into());
                }
            }
        }
        Ok(events)
    }
}

/// Whether what the event is of ends on a drive that there could be.
fn ends(kind: &EventKind<'_>) -> bool {
    let (sector, sectors) = match kind {
        EventKind::BioQueue(bio)
        | EventKind::GetRq(bio)
        | EventKind::BioBackmerge(bio)
        | EventKind::BioFrontmerge(bio) => (bio.sector, bio.sectors),
        EventKind::RqInsert(rq) | EventKind::RqIssue(rq) | EventKind::RqMerge(rq) => {
            (rq.sector, rq.sectors)
        }
        EventKind::BlklabCall(call) => (call.sector, call.sectors),
        _ => return true,
    };
    let end = sector.0.checked_add(u64::from(sectors));
    end.is_some_and(|end| end <= LAST_SECTOR)
}

/// The file beside a trace: with `.json`, that of `w1.trace.gz` and `w1.trace` is
/// `w1.json`.
pub(crate) fn beside(trace: &Path, ending: &str) -> PathBuf {
    let name = trace.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let name = name
        .strip_suffix(".trace")
        .or_else(|| name.strip_suffix(".txt"))
        .unwrap_or(name);
    trace.with_file_name(format!("{name}{ending}"))
}

/// The text of a file beside a trace.
pub(crate) fn read_beside(path: &Path) -> Result<String, ConformError> {
    blklab_description::read_text(path).map_err(|error| described(path, error))
}

/// Reads the JSON description beside a trace.
pub(crate) fn read_description<T: DeserializeOwned>(path: &Path) -> Result<T, ConformError> {
    serde_json::from_str(&read_beside(path)?).map_err(|error| described(path, error))
}

fn described(path: &Path, error: impl ToString) -> ConformError {
    ConformError::Description {
        file: path.display().to_string(),
        message: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_has_the_traces_name() {
        for trace in ["d/w1.trace.gz", "d/w1.trace", "d/w1.txt", "d/w1"] {
            assert_eq!(beside(Path::new(trace), ".json"), Path::new("d/w1.json"));
        }
    }
}
