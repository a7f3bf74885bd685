//! The jobs that are part of the program.

/// Returns the names and texts of jobs in `jobs/`, whose files have this extension.
macro_rules! jobs {
    ($end:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../jobs/", $name, $end)))),*]
    };
}

const JOBS: &[(&str, &str)] = jobs![".fio":
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
    "thesis/block-crossing",
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
    "disk/buffer-cache",
    "isolation/protection",
    "isolation/bursts",
    "isolation/fairness",
    "loop/randrw",
    "front-ends/randrw",
];

/// The jobs that are lists of calls.
const LISTS: &[(&str, &str)] = jobs![".calls": "disk/ls", "disk/flusher"];

/// The files of control groups for jobs, as `--cgroup-file` takes them.
const CGROUPS: &[(&str, &str)] = jobs![".cgroups":
    "isolation/io.max",
    "isolation/io.latency",
    "isolation/io.cost",
    "isolation/io.bfq.weight",
    "isolation/io.prio.class",
    "isolation/tenants.io.max",
    "isolation/tenants.io.cost",
];

/// Returns the names in the order in which they are listed.
pub fn names() -> impl Iterator<Item = &'static str> {
    JOBS.iter().chain(LISTS).map(|(name, _)| *name)
}

/// Returns the text of the job `name`.
pub fn find(name: &str) -> Option<&'static str> {
    job(name).or_else(|| list(name))
}

/// Returns the text of the fio job `name`.
pub fn job(name: &str) -> Option<&'static str> {
    text_of(JOBS, name)
}

/// Returns the text of the list of calls `name`.
pub fn list(name: &str) -> Option<&'static str> {
    text_of(LISTS, name)
}

/// Returns the text of the file of control groups `name`.
pub fn cgroups(name: &str) -> Option<&'static str> {
    text_of(CGROUPS, name)
}

/// Returns the names of the files of control groups.
pub fn cgroups_names() -> impl Iterator<Item = &'static str> {
    CGROUPS.iter().map(|(name, _)| *name)
}

fn text_of(jobs: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let found = jobs.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text)
}

/// Returns the description of a job: the first comment of its text.
pub fn help(name: &str) -> &'static str {
    let first = find(name).and_then(|text| text.lines().next());
    first
        .unwrap_or_default()
        .trim_start_matches(['#', ';', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::CallList;
    use crate::cgroup::CgroupConfig;
    use crate::fio;

    #[test]
    fn every_job_parses_and_says_what_it_is() {
        for name in names() {
            let text = find(name).expect("listed");
            assert!(text.starts_with("# ") && !help(name).is_empty(), "{name}");
            if list(name).is_some() {
                CallList::parse(name, text).unwrap_or_else(|e| panic!("{e}"));
                continue;
            }
            let job = fio::parse_str(name, text, &|_| None, &|_, file| Err(file.to_string()));
            assert!(!job.unwrap_or_else(|e| panic!("{e}")).jobs.is_empty());
        }
    }

    #[test]
    fn every_file_of_control_groups_parses_and_fits_its_job() {
        for name in cgroups_names() {
            let job = match name.contains("tenants") {
                true => "isolation/fairness",
                false => "isolation/protection",
            };
            let text = super::job(job).expect("listed");
            let parsed = fio::parse_str(job, text, &|_| None, &|_, file| Err(file.to_string()));
            let mut parsed = parsed.unwrap_or_else(|e| panic!("{e}"));
            let config = CgroupConfig::read(name.as_ref()).unwrap_or_else(|e| panic!("{e}"));
            config
                .put_on(&mut parsed)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}
