//! The time of programs' calls under each scheduler.

use blklab_stats::{CallTimes, Results, Unit};
use serde::{Deserialize, Serialize};

use super::runs::SchedulerRuns;

/// The calls of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallTable {
    /// The program.
    pub program: String,
    /// The program's calls, each followed by the parts of its time.
    pub rows: Vec<CallRow>,
}

/// The time of a program's calls of one kind, a part of it, or what they counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRow {
    /// The name of the call or of the part.
    pub name: String,
    /// Whether it belongs to the call above it.
    pub is_part: bool,
    /// The unit.
    pub unit: Unit,
    /// The total by scheduler, as the mean over runs.
    pub values: Vec<Option<f64>>,
}

/// The name of a part of a call's time or of what it counted, its unit and its value.
type Part = (&'static str, Unit, fn(&CallTimes) -> u64);

/// The parts of a call's time, and what it counted.
const PARTS: [Part; 5] = [
    ("CPU", Unit::Nanoseconds, |times| times.cpu_ns),
    ("waited", Unit::Nanoseconds, CallTimes::drive_ns),
    ("queue", Unit::Nanoseconds, |times| times.tag_ns),
    ("throttled", Unit::Nanoseconds, |times| times.throttled_ns),
    ("cached pages", Unit::Count, CallTimes::cached_pages),
];

/// The explanation of the parts.
pub(crate) const CALL_PARTS: &str = "CPU: a CPU worked for them, its turn included. waited: for \
     pages and blocks that the drive reads or writes, and for locks. queue: for a request of the \
     drive's queue. throttled: writers were held back because too much was dirty. cached pages: \
     what all its calls of cachestat found, summed.";

/// Returns a table for each program; none for jobs that are not lists of calls.
pub(crate) fn tables(schedulers: &[SchedulerRuns]) -> Vec<CallTable> {
    let first = schedulers
        .iter()
        .find_map(|scheduler| scheduler.runs.first());
    let programs = first.into_iter().flat_map(|run| &run.jobs);
    let programs = programs.filter(|job| !job.calls.is_empty());
    programs
        .map(|job| {
            let kinds = job.calls.iter().map(|times| times.call);
            let rows = kinds.flat_map(|call| rows(schedulers, (&job.name, call)));
            CallTable {
                program: job.name.clone(),
                rows: rows.collect(),
            }
        })
        .collect()
}

/// Returns the row of a call and the rows of its parts that took any time.
fn rows(schedulers: &[SchedulerRuns], of: (&str, &str)) -> Vec<CallRow> {
    let row = |is_part, (name, unit, part): Part| CallRow {
        name: name.to_string(),
        is_part,
        unit,
        values: (schedulers.iter())
            .map(|scheduler| mean(scheduler, of, part))
            .collect(),
    };
    let whole = CallRow {
        name: of.1.to_string(),
        ..row(false, ("", Unit::Nanoseconds, |times| times.total_ns))
    };
    let parts = PARTS.map(|part| row(true, part));
    let is_any = |row: &CallRow| row.values.iter().flatten().any(|value| *value > 0.0);
    std::iter::once(whole)
        .chain(parts.into_iter().filter(is_any))
        .collect()
}

fn mean(
    scheduler: &SchedulerRuns,
    (program, call): (&str, &str),
    part: fn(&CallTimes) -> u64,
) -> Option<f64> {
    let times = |run: &Results| {
        let job = run.jobs.iter().find(|job| job.name == program)?;
        let times = job.calls.iter().find(|times| times.call == call)?;
        Some(part(times) as f64)
    };
    let values: Vec<f64> = scheduler.runs.iter().filter_map(times).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::three_schedulers;

    #[test]
    fn a_call_has_the_parts_that_there_were() {
        let mut schedulers = three_schedulers(2);
        for (run, waits_ns) in schedulers[0].runs.iter_mut().zip([100, 300]) {
            run.jobs[0].calls = vec![CallTimes {
                calls: 1,
                total_ns: 1000,
                waits_ns,
                ..CallTimes::new("fsync")
            }];
        }
        let tables = tables(&schedulers);
        assert_eq!(tables.len(), 1);
        let rows: Vec<_> = (tables[0].rows.iter())
            .map(|row| (row.name.as_str(), row.is_part, row.values[0]))
            .collect();
        assert_eq!(
            rows,
            [
                ("fsync", false, Some(1000.0)),
                ("waited", true, Some(200.0))
            ]
        );
        assert_eq!(tables[0].rows[0].values[1..], [None, None]);
    }

    #[test]
    fn what_cachestat_found_is_a_count() {
        let mut schedulers = three_schedulers(2);
        for (scheduler, run, returned) in [(0, 0, 2048), (1, 0, 4096), (1, 1, 2048)] {
            schedulers[scheduler].runs[run].jobs[0].calls = vec![CallTimes {
                returned,
                ..CallTimes::new("cachestat")
            }];
        }
        let tables = tables(&schedulers);
        let found = &tables[0].rows[1];
        assert_eq!(
            (found.name.as_str(), found.unit),
            ("cached pages", Unit::Count)
        );
        assert_eq!(found.values, [Some(2048.0), Some(3072.0), None]);
    }
}
