//! The source of a job, which can be read repeatedly with different options.

use std::path::Path;
use std::sync::OnceLock;

use super::args;
use super::error::JobError;
use super::job_file::{Environment, Includes, include_file, read};
use super::loader::{Loader, Override};
use super::spec::JobFile;
use crate::library;

/// The source of a job.
#[derive(Clone, Debug)]
pub enum JobSource {
    /// A job that is part of the program.
    Shipped {
        /// The job's name.
        name: String,
        /// The job's text.
        text: &'static str,
    },
    /// A job file.
    File {
        /// The file as given by the user; `-` is standard input.
        name: String,
        /// The file's text.
        text: String,
    },
    /// The words of a fio command line.
    Arguments(Arguments),
}

/// The words of a fio command line.
#[derive(Clone, Debug)]
pub struct Arguments {
    words: Vec<String>,
    /// The text of standard input, for `-` among the words, as it can be read only once.
    input: OnceLock<String>,
}

impl Arguments {
    /// Returns the text of a job file among the words.
    fn read(&self, name: &str) -> Result<String, JobError> {
        if let ("-", Some(text)) = (name, self.input.get()) {
            return Ok(text.clone());
        }
        let text = read(name)?;
        if name == "-" {
            return Ok(self.input.get_or_init(|| text).clone());
        }
        Ok(text)
    }
}

impl JobSource {
    /// Returns the job `name` that is part of the program.
    pub fn shipped(name: &str) -> Option<JobSource> {
        library::job(name).map(|text| JobSource::Shipped {
            name: name.to_string(),
            text,
        })
    }

    /// Makes a source from the words of a fio command line, without the command's name.
    pub fn arguments(words: Vec<String>) -> JobSource {
        JobSource::Arguments(Arguments {
            words,
            input: OnceLock::new(),
        })
    }

    /// Reads a job file's text.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn file(path: &Path) -> Result<JobSource, JobError> {
        let name = path.display().to_string();
        let text = read(&name)?;
        Ok(JobSource::File { name, text })
    }

    /// Returns the text to show to a user.
    pub fn text(&self) -> String {
        match self {
            JobSource::Shipped { text, .. } => text.to_string(),
            JobSource::File { text, .. } => text.clone(),
            JobSource::Arguments(arguments) => arguments.words.join(" "),
        }
    }

    /// Reads the job. `environment` returns the values of variables and keywords.
    ///
    /// # Errors
    /// Fails at the first mistake, with its place; the place of an override is its origin.
    pub fn parse(
        &self,
        environment: Environment<'_>,
        overrides: &[Override],
    ) -> Result<JobFile, JobError> {
        let mut loader = Loader::new(environment);
        loader.overrides = overrides.to_vec();
        let (name, text, includes): (&str, &str, Includes<'_>) = match self {
            JobSource::Shipped { name, text } => (name, text, &includes_nothing),
            JobSource::File { name, text } => (name, text, &include_file),
            JobSource::Arguments(arguments) => {
                let read = |name: &str| arguments.read(name);
                return args::load(&arguments.words, loader, &read);
            }
        };
        loader.add_file(name, text, includes)?;
        loader.finish(name)
    }
}

fn includes_nothing(_: &str, name: &str) -> Result<(String, String), String> {
    Err(format!("{name}: a built-in job includes nothing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::OverrideWhen;

    const TEXT: &str = "[global]\nbs=8k\n[a]\nrw=read\nsize=1m\nblocksize=16k\niodepth=2\n\
                        [b]\nrw=read\nsize=1m\n";

    fn parsed(overrides: &[(&str, &str)]) -> Result<JobFile, JobError> {
        parsed_text(TEXT, overrides)
    }

    fn parsed_text(text: &str, overrides: &[(&str, &str)]) -> Result<JobFile, JobError> {
        let source = JobSource::File {
            name: "t.fio".into(),
            text: text.into(),
        };
        let overrides = overrides.iter().map(|(name, value)| Override {
            given_by: "--vary".into(),
            name: name.to_string(),
            value: value.to_string(),
            when: OverrideWhen::Always,
        });
        source.parse(&|_| None, &overrides.collect::<Vec<_>>())
    }

    #[test]
    fn every_job_has_the_overridden_option_once() {
        let job = parsed(&[("bs", "32k")]).expect("legal");
        for spec in &job.jobs {
            assert_eq!(spec.block_sizes.read.min_bytes, 32 << 10);
            let given = spec.options.iter().filter(|(name, _)| name == "bs");
            assert_eq!(given.count(), 1, "{:?}", spec.options);
        }
        assert_eq!(job.jobs[0].io_depth, 2);
    }

    #[test]
    fn an_override_replaces_the_files_of_all_sections() {
        let text = "[global]\nfilename=/dev/sda\nrw=read\nsize=1m\n[a]\nfilename=/dev/sdb\n[b]\n";
        let files = |overrides: &[(&str, &str)]| {
            let job = parsed_text(text, overrides).expect("legal");
            let files = job.jobs.iter().map(|job| job.files.join(":"));
            files.collect::<Vec<_>>()
        };
        assert_eq!(files(&[]), ["/dev/sda:/dev/sdb", "/dev/sda"], "fio adds up");
        assert_eq!(files(&[("filename", "/dev/sdc")]), ["/dev/sdc", "/dev/sdc"]);
        // The last override counts, as for every other option.
        let twice = [("filename", "/dev/sdc"), ("filename", "/dev/sdd")];
        assert_eq!(files(&twice), ["/dev/sdd", "/dev/sdd"]);
    }

    #[test]
    fn an_override_of_one_direction_leaves_the_others_at_their_default() {
        let text = "[global]\nbs=8k,16k\nrw=rw\nsize=1m\n[a]\n";
        let job = parsed_text(text, &[("bs", ",32k")]).expect("legal");
        let sizes = &job.jobs[0].block_sizes;
        assert_eq!(
            (sizes.read.min_bytes, sizes.write.min_bytes),
            (4096, 32 << 10)
        );
    }

    #[test]
    fn global_options_are_read_with_what_an_override_replaces_in_jobs() {
        let text = "[global]\nkb_base=1000\nioengine=io_uring\nhipri=1\nrw=read\nsize=8k\n[a]\n";
        let job = parsed_text(text, &[("ioengine", "psync"), ("kb_base", "1024")]);
        let job = job.expect("hipri is read under its engine");
        assert_eq!(job.jobs[0].engine.name(), "psync");
        assert_eq!(job.jobs[0].size, Some(crate::fio::Extent::Bytes(8000)));
    }

    #[test]
    fn a_wrong_override_is_blamed_and_not_the_file() {
        let error = parsed(&[("iodepth", "0")]).expect_err("fio takes 1 and more");
        assert!(
            error.to_string().starts_with("--vary: iodepth=0: "),
            "{error}"
        );
        let error = parsed(&[("iodeepth", "1")]).expect_err("no such option");
        assert!(
            error.to_string().contains("did you mean iodepth"),
            "{error}"
        );
    }
}
