//! The jobs that come with the program.

/// Name and text of every job in `jobs/`.
const JOBS: &[(&str, &str)] = &[
    ("thesis/read", include_str!("../../../jobs/thesis/read.fio")),
    (
        "thesis/write",
        include_str!("../../../jobs/thesis/write.fio"),
    ),
    (
        "thesis/randread",
        include_str!("../../../jobs/thesis/randread.fio"),
    ),
    (
        "thesis/randwrite",
        include_str!("../../../jobs/thesis/randwrite.fio"),
    ),
    (
        "thesis/randrw-50-50",
        include_str!("../../../jobs/thesis/randrw-50-50.fio"),
    ),
    (
        "thesis/randrw-90-10",
        include_str!("../../../jobs/thesis/randrw-90-10.fio"),
    ),
    ("thesis/all", include_str!("../../../jobs/thesis/all.fio")),
    (
        "fairness/readers",
        include_str!("../../../jobs/fairness/readers.fio"),
    ),
    (
        "fairness/random-readers",
        include_str!("../../../jobs/fairness/random-readers.fio"),
    ),
    (
        "fairness/greedy",
        include_str!("../../../jobs/fairness/greedy.fio"),
    ),
    (
        "fairness/ioprio",
        include_str!("../../../jobs/fairness/ioprio.fio"),
    ),
    (
        "fairness/cgroups",
        include_str!("../../../jobs/fairness/cgroups.fio"),
    ),
    (
        "latency/beside-1-readers",
        include_str!("../../../jobs/latency/beside-1-readers.fio"),
    ),
    (
        "latency/beside-1-writers",
        include_str!("../../../jobs/latency/beside-1-writers.fio"),
    ),
    (
        "latency/beside-8-readers",
        include_str!("../../../jobs/latency/beside-8-readers.fio"),
    ),
    (
        "latency/beside-8-writers",
        include_str!("../../../jobs/latency/beside-8-writers.fio"),
    ),
    (
        "latency/beside-32-readers",
        include_str!("../../../jobs/latency/beside-32-readers.fio"),
    ),
    (
        "latency/beside-32-writers",
        include_str!("../../../jobs/latency/beside-32-writers.fio"),
    ),
    (
        "startup/alone",
        include_str!("../../../jobs/startup/alone.fio"),
    ),
    (
        "startup/10-readers",
        include_str!("../../../jobs/startup/10-readers.fio"),
    ),
    (
        "startup/5-readers-5-writers",
        include_str!("../../../jobs/startup/5-readers-5-writers.fio"),
    ),
    (
        "startup/10-writers",
        include_str!("../../../jobs/startup/10-writers.fio"),
    ),
    ("pi4/read", include_str!("../../../jobs/pi4/read.fio")),
    ("pi4/write", include_str!("../../../jobs/pi4/write.fio")),
    (
        "engines/randread",
        include_str!("../../../jobs/engines/randread.fio"),
    ),
    (
        "engines/randwrite",
        include_str!("../../../jobs/engines/randwrite.fio"),
    ),
    (
        "engines/posixaio",
        include_str!("../../../jobs/engines/posixaio.fio"),
    ),
    (
        "disk/noop-deadline",
        include_str!("../../../jobs/disk/noop-deadline.fio"),
    ),
    ("disk/merge", include_str!("../../../jobs/disk/merge.fio")),
    (
        "disk/readahead",
        include_str!("../../../jobs/disk/readahead.fio"),
    ),
    (
        "disk/buffered",
        include_str!("../../../jobs/disk/buffered.fio"),
    ),
    ("disk/o-sync", include_str!("../../../jobs/disk/o-sync.fio")),
    ("loop/randrw", include_str!("../../../jobs/loop/randrw.fio")),
];

/// Their names, in the order they should be listed.
pub fn names() -> impl Iterator<Item = &'static str> {
    JOBS.iter().map(|(name, _)| *name)
}

/// The text of the job called `name`.
pub fn find(name: &str) -> Option<&'static str> {
    JOBS.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
}

/// What a job is, in a line: the first comment of its text.
pub fn help(name: &str) -> &'static str {
    let first = find(name).and_then(|text| text.lines().next());
    first
        .unwrap_or_default()
        .trim_start_matches(['#', ';', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio;

    #[test]
    fn every_job_parses_and_says_what_it_is() {
        for name in names() {
            let text = find(name).expect("listed");
            let job = fio::parse_str(name, text, &|_| None, &|_, file| Err(file.to_string()));
            assert!(!job.unwrap_or_else(|e| panic!("{e}")).jobs.is_empty());
            assert!(text.starts_with("# ") && !help(name).is_empty(), "{name}");
        }
    }
}
