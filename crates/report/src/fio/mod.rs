//! One run as fio prints it.

pub mod json;
pub mod logs;
mod number;
mod stat;
pub mod text;

use blklab_stats::JobResults;

pub(crate) use number::strerror;

/// The jobs as fio reports them: one with `group_reporting` is added to the one before
/// it in its group, whose name stands for both (`__show_run_stats` in its `stat.c`). That
/// one has to ask for it too: fio would add to a job that does not, and nobody would see
/// what that job did.
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

/// The jobs that fio reports under the name of another one or together with another,
/// which are shown one by one too.
fn pooled<'a>(jobs: &'a [JobResults], reported: &[JobResults]) -> Vec<&'a JobResults> {
    let is_pooled = |job: &&JobResults| {
        let own =
            (reported.iter()).find(|r| (r.group_id, r.process) == (job.group_id, job.process));
        own.is_none_or(|own| own.members != job.members)
    };
    jobs.iter().filter(is_pooled).collect()
}

/// The fio on this machine as a judge of what this crate prints.
#[cfg(test)]
mod real_fio {
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    /// A directory of one test alone, gone when dropped.
    pub(crate) struct Scratch(pub PathBuf);

    impl Scratch {
        /// `name` must differ from every other test's.
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

    /// What fio 3.33 prints of a small mixed job in a format; `None` where there
    /// is no fio of that version.
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
