//! The results of one run as fio prints them.

pub mod json;
pub mod logs;
mod number;
mod stat;
pub mod text;

use blklab_stats::JobResults;

pub(crate) use number::strerror;

/// Returns the jobs as fio reports them: a job with `group_reporting` is added to the
/// job before it in its group, whose name is kept (`__show_run_stats` in fio's
/// `stat.c`). Unlike in fio, the job before it must have the option too, because
/// otherwise its own results would be hidden.
fn reported(jobs: &[JobResults]) -> Vec<JobResults> {
    let mut reported: Vec<JobResults> = Vec::with_capacity(jobs.len());
    for job in jobs {
        match reported.last_mut() {
            Some(last)
                if last.group_reporting && job.group_reporting && last.group_id == job.group_id =>
            {
                last.merge(job);
            }
            _ => reported.push(job.clone()),
        }
    }
    reported
}

/// Returns the jobs that fio reports under another job's name or merged with another;
/// these are also shown one by one.
fn pooled<'a>(jobs: &'a [JobResults], reported: &[JobResults]) -> Vec<&'a JobResults> {
    let is_pooled = |job: &&JobResults| {
        let own =
            (reported.iter()).find(|r| (r.group_id, r.process) == (job.group_id, job.process));
        own.is_none_or(|own| own.members != job.members)
    };
    jobs.iter().filter(is_pooled).collect()
}

/// The installed fio as a judge of this crate's output.
#[cfg(test)]
mod real_fio {
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    /// A directory for one test, removed when dropped.
    pub(crate) struct Scratch(pub PathBuf);

    impl Scratch {
        /// Creates the directory; `name` must be unique among the tests.
        pub fn new(name: &str) -> Scratch {
            let name = format!("blklab-report-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Returns the output of fio 3.33 for a small mixed job; `None` if that version is
    /// not installed.
    pub(crate) fn real_fio(format: &str, test: &str) -> Option<String> {
        let Ok(version) = Command::new("fio").arg("--version").output() else {
            blklab_judges::missing("fio");
            return None;
        };
        if version.stdout.trim_ascii() != b"fio-3.33" {
            blklab_judges::not_possible("fio is there, and it is not 3.33");
            return None;
        }
        let scratch = Scratch::new(&format!("{test}-{format}"));
        let job = scratch.0.join("job.fio");
        let text = "[global]\nsize=256k\nbs=4k\n\
                    [mixed]\nrw=randrw\nioengine=psync\nfsync=8\ndescription=a mix\n";
        fs::write(&job, text).unwrap();
        let output = Command::new("fio")
            .current_dir(&scratch.0)
            .arg(&job)
            .arg(format!("--output-format={format}"))
            .output()
            .unwrap();
        Some(String::from_utf8(output.stdout).unwrap())
    }
}
