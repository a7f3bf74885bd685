//! Tail latency: where the slowest requests of each job spent their time, compared with
//! the median ones.

use blklab_stats::{Slowest, SlowestOf, Stage};
use serde::{Deserialize, Serialize};

use super::runs::SchedulerRuns;

/// The slowest requests of one operation of a job, under each scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SlowestTable {
    /// The job.
    pub job: String,
    /// The operation of the requests: `reads`, `writes`, `discards`, `flushes`.
    pub operation: String,
    /// The percentile of latency beyond which requests are counted.
    pub percent: f64,
    /// The whole latency, then each stage that has a noticeable part of it.
    pub rows: Vec<SlowestRow>,
}

/// The time in a stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SlowestRow {
    /// The stage's name.
    pub name: String,
    /// The stage's meaning.
    pub meaning: String,
    /// The times by scheduler; `None` if it had no such requests.
    pub values: Vec<Option<SlowestValue>>,
}

/// Mean times of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowestValue {
    /// The mean over the slowest requests.
    pub slowest_ns: f64,
    /// The mean over the requests around the median.
    pub median_ns: f64,
}

/// Returns the tables of all jobs, if the slowest requests were recorded.
pub(crate) fn tables(schedulers: &[SchedulerRuns]) -> Vec<SlowestTable> {
    let found: Vec<Option<&Slowest>> = schedulers
        .iter()
        .map(|s| s.runs.iter().find_map(|run| run.slowest.as_ref()))
        .collect();
    let mut keys: Vec<(&str, char)> = Vec::new();
    for of in found.iter().flatten().flat_map(|slowest| &slowest.of) {
        let key = (of.job.as_str(), of.op);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let percent = found.iter().flatten().map(|slowest| slowest.percent).next();
    let table = |(job, op): (&str, char)| {
        let of = |slowest: &Option<&'_ Slowest>| -> Option<SlowestOf> {
            let mut all = slowest.as_ref()?.of.iter();
            all.find(|of| (of.job.as_str(), of.op) == (job, op))
                .cloned()
        };
        let each: Vec<Option<SlowestOf>> = found.iter().map(of).collect();
        SlowestTable {
            job: job.to_string(),
            operation: operation(op).to_string(),
            percent: percent.unwrap_or_default(),
            rows: rows(&each),
        }
    };
    keys.into_iter().map(table).collect()
}

fn operation(op: char) -> &'static str {
    match op {
        'R' => "reads",
        'W' => "writes",
        'D' => "discards",
        'F' => "flushes",
        _ => "others",
    }
}

/// The share of the latency below which a stage has no row.
const SHARE_SHOWN_MIN: f64 = 0.005;

fn rows(each: &[Option<SlowestOf>]) -> Vec<SlowestRow> {
    let row = |name: &str, meaning: &str, of: &dyn Fn(&SlowestOf) -> (f64, f64)| SlowestRow {
        name: name.to_string(),
        meaning: meaning.to_string(),
        values: each
            .iter()
            .map(|known| {
                let (slowest_ns, median_ns) = of(known.as_ref()?);
                Some(SlowestValue {
                    slowest_ns,
                    median_ns,
                })
            })
            .collect(),
    };
    let whole = "From when its program began it to when the program had it back; of what no \
                 program waits for, from its submission to its end.";
    let mut rows = vec![row("in all", whole, &|of| {
        (of.slowest.whole_ns, of.median.whole_ns)
    })];
    for stage in Stage::ALL {
        let at = stage as usize;
        let matters =
            |of: &SlowestOf| of.slowest.stages_ns[at] >= SHARE_SHOWN_MIN * of.slowest.whole_ns;
        if each.iter().flatten().any(matters) {
            rows.push(row(stage.name(), stage.meaning(), &|of| {
                (of.slowest.stages_ns[at], of.median.stages_ns[at])
            }));
        }
    }
    rows
}

/// Returns a note if the recording covers only a part of the run.
pub(crate) fn note(schedulers: &[SchedulerRuns]) -> Option<String> {
    let runs = schedulers.iter().flat_map(|s| &s.runs);
    let mut cut = runs.filter_map(|run| run.slowest.as_ref().filter(|slowest| slowest.cut));
    let first = cut.next()?;
    Some(format!(
        "the slowest requests are those of the first {:.3} s, as many as are kept; \
         --timeline-start looks at later ones",
        first.end_ns.saturating_sub(first.start_ns) as f64 / 1e9
    ))
}

#[cfg(test)]
mod tests {
    use blklab_stats::{Example, MeanTimes};

    use super::*;
    use crate::comparison::compare;
    use crate::sample_run::three_schedulers;
    use crate::{html, text};

    fn slowest(wait_ns: f64) -> Slowest {
        let spent = |waited: f64| {
            let mut spent = MeanTimes {
                requests: 10,
                whole_ns: 50_000.0 + waited,
                ..MeanTimes::default()
            };
            spent.stages_ns[Stage::Scheduler as usize] = waited;
            spent.stages_ns[Stage::Media as usize] = 50_000.0;
            spent
        };
        Slowest {
            percent: 99.0,
            end_ns: 1_500_000_000,
            cut: true,
            of: vec![SlowestOf {
                job: "db".to_string(),
                op: 'R',
                slowest: spent(wait_ns),
                median: spent(0.0),
                example: Example {
                    disk: 0,
                    request: 7,
                    from_ns: 0,
                    to_ns: 1,
                },
            }],
            ..Slowest::default()
        }
    }

    #[test]
    fn text_and_page_tell_where_the_slowest_were() {
        let mut schedulers = three_schedulers(2);
        schedulers[0].runs[0].slowest = Some(slowest(950_000.0));
        schedulers[2].runs[0].slowest = Some(slowest(0.0));
        let comparison = compare(&schedulers);
        let shown = text::render(&comparison);
        for part in [
            "slowest 1 % of db's reads (median)",
            "950.0 us (0)",
            "In the scheduler, or without one in a software queue",
            "the first 1.500 s",
        ] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
        assert!(!shown.contains("collection"), "{shown}");
        let page = html::render(&comparison);
        assert!(page.contains("slowest 1 % of db&#39;s reads"), "{page}");
    }
}
