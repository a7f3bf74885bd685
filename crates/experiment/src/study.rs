//! Studies: what a document measured, as the rows of one experiment.

use blklab_description::hint;
use blklab_device::DriveState;
use blklab_sim::FileSystemKind;

use crate::error::Error;
use crate::schedulers::NamedScheduler;
use crate::setting::Setting;
use crate::work::WorkloadSource;

/// A study: every job of some files on some drives under some schedulers.
#[derive(Debug)]
pub struct Study {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Its files, of which every job is a pattern that runs by itself.
    pub jobs: &'static [&'static str],
    /// The document's drives.
    pub drives: &'static [StudyDrive],
    machine: &'static str,
    /// The one that others are compared with first.
    schedulers: &'static [&'static str],
    /// Its own memory, where jobs have their own sizes.
    memory_bytes: u64,
    /// The same where it is made smaller.
    small_memory_bytes: u64,
}

/// A drive of a document.
#[derive(Clone, Copy, Debug)]
pub struct StudyDrive {
    /// What the document calls it.
    pub name: &'static str,
    /// Our description of one like it.
    pub drive: &'static str,
    /// What was written to it before each pattern; as the description says if not given.
    pub state: Option<DriveState>,
}

/// How large a study is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As the document has it.
    Full,
    /// With less memory, and this many bytes for each process.
    Small(u64),
}

const MIB: u64 = 1 << 20;

/// All studies.
static STUDIES: [Study; 1] = [Study {
    name: "pi4",
    jobs: &["pi4/read", "pi4/write"],
    drives: &[
        // Few bridges between USB and SATA tell that they pass on a trim, and Linux sends none to
        // one that does not.
        StudyDrive {
            name: "SSD",
            drive: "mx100-256",
            state: None,
        },
        // The document makes a file system before each measurement, by default: mke2fs erases
        // the whole card first (mke2fs(8), discard).
        StudyDrive {
            name: "SD card",
            drive: "sd-card",
            state: Some(DriveState::Fresh),
        },
    ],
    machine: "rpi4",
    schedulers: &["none", "mq-deadline", "kyber", "bfq"],
    memory_bytes: 4096 * MIB,
    small_memory_bytes: 256 * MIB,
}];

impl Study {
    /// The study of that name.
    ///
    /// # Errors
    /// Where there is none.
    pub fn find(name: &str) -> Result<&'static Study, Error> {
        let names = || STUDIES.iter().map(|study| study.name);
        let found = STUDIES.iter().find(|study| study.name == name);
        found.ok_or_else(|| {
            let all: Vec<&str> = names().collect();
            let hint = hint(name, names());
            Error::mistake(format!(
                "{name}: no such study; there is {}{hint}",
                all.join(", ")
            ))
        })
    }

    /// How many rows each pattern has on each drive.
    pub fn rows_of_pattern(&self) -> usize {
        self.schedulers.len()
    }

    /// How large it is then, in words.
    pub fn sizes(&self, scale: Scale) -> String {
        match scale {
            Scale::Full => "sizes and memory as in the document".to_string(),
            Scale::Small(bytes) => format!(
                "{} MiB for each process and {} MiB of memory in place of the document's sizes",
                bytes / MIB,
                self.small_memory_bytes / MIB
            ),
        }
    }

    /// The rows of one of its files, whose own files are on that file system: by pattern,
    /// then drive, then scheduler. With them the names of the patterns.
    ///
    /// # Errors
    /// Where the file has a mistake.
    pub fn settings(
        &self,
        work: &WorkloadSource,
        scale: Scale,
        file_system: FileSystemKind,
    ) -> Result<(Vec<Setting>, Vec<String>), Error> {
        let patterns = work.job_names(&[])?;
        let mut rows = Vec::new();
        for pattern in &patterns {
            for drive in self.drives {
                for scheduler in self.schedulers {
                    let setting = self.setting((pattern, drive, scheduler), scale)?;
                    rows.push(Setting {
                        file_system,
                        ..setting
                    });
                }
            }
        }
        Ok((rows, patterns))
    }

    fn setting(
        &self,
        (pattern, drive, scheduler): (&str, &StudyDrive, &str),
        scale: Scale,
    ) -> Result<Setting, Error> {
        let mut setting = Setting {
            label: scheduler.to_string(),
            scheduler: NamedScheduler::new(scheduler),
            drive: drive.drive.to_string(),
            state: drive.state,
            machine: self.machine.to_string(),
            only_job: Some(pattern.to_string()),
            memory_bytes: Some(match scale {
                Scale::Full => self.memory_bytes,
                Scale::Small(_) => self.small_memory_bytes,
            }),
            ..Setting::default()
        };
        if let Scale::Small(bytes) = scale {
            setting.override_option(self.name, &format!("size={bytes}"))?;
        }
        Ok(setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_runs_by_itself_on_every_drive() {
        let study = Study::find("pi4").expect("there is");
        let work = WorkloadSource::find(&[study.jobs[1].to_string()], &[]).expect("shipped");
        let settings = |scale, of| study.settings(&work, scale, of).expect("valid");
        let (rows, patterns) = settings(Scale::Full, FileSystemKind::Raw);
        assert_eq!((patterns.len(), rows.len()), (8, 64));
        let row = &rows[study.rows_of_pattern()];
        assert_eq!(row.only_job.as_deref(), Some(patterns[0].as_str()));
        assert_eq!(
            (row.drive.as_str(), row.label.as_str()),
            ("sd-card", "none")
        );
        assert!(row.options.is_empty() && row.memory_bytes == Some(4 << 30));
        let (small, _) = settings(Scale::Small(MIB), FileSystemKind::Ext2);
        assert_eq!(small[0].options[0].value, "1048576");
        assert!({ small.iter() }.all(|row| row.file_system == FileSystemKind::Ext2));
        assert!(Study::find("pi5").is_err());
    }
}
