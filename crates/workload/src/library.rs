//! The jobs that come with the program.

/// Name and text of the jobs of these names in `jobs/`.
macro_rules! jobs {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../jobs/", $name, ".fio")))),*]
    };
}

const JOBS: &[(&str, &str)] = jobs![
    "questions/postgres-sata",
    "questions/etcd-nvme",
    "questions/desktop-copy",
    "questions/backup-database",
    "questions/tenants",
    "questions/video-recorder",
    "questions/build-server",
    "questions/vm-host",
    "questions/sdcard-logger",
    "questions/kafka",
    "thesis/read",
    "thesis/write",
    "thesis/randread",
    "thesis/randwrite",
    "thesis/randrw-50-50",
    "thesis/randrw-90-10",
    "thesis/all",
    "fairness/readers",
    "fairness/random-readers",
    "fairness/greedy",
    "fairness/ioprio",
    "fairness/cgroups",
    "latency/beside-1-readers",
    "latency/beside-1-writers",
    "latency/beside-8-readers",
    "latency/beside-8-writers",
    "latency/beside-32-readers",
    "latency/beside-32-writers",
    "startup/alone",
    "startup/10-readers",
    "startup/5-readers-5-writers",
    "startup/10-writers",
    "pi4/read",
    "pi4/write",
    "engines/randread",
    "engines/randwrite",
    "engines/posixaio",
    "disk/noop-deadline",
    "disk/merge",
    "disk/random-writers",
    "disk/readahead",
    "disk/buffered",
    "disk/o-sync",
    "disk/page-cache",
    "loop/randrw",
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
