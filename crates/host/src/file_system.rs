//! A file system for a run: it is made, mounted, and unmounted in every case.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use blklab_workload::fio::{Extent, JobFile};

use crate::error::HostError;

/// Supported file systems, each with the options that make its `mkfs` ask nothing, and with its
/// package.
const KINDS: [(&str, &[&str], &str); 7] = [
    ("ext2", &["-F", "-q"], "e2fsprogs"),
    ("ext3", &["-F", "-q"], "e2fsprogs"),
    ("ext4", &["-F", "-q"], "e2fsprogs"),
    ("xfs", &["-f", "-q"], "xfsprogs"),
    ("btrfs", &["-f", "-q"], "btrfs-progs"),
    ("f2fs", &["-f", "-q"], "f2fs-tools"),
    ("vfat", &["-I"], "dosfstools"),
];

/// How often an unmount is tried while another program uses the files, and the pause between.
const UNMOUNT_TRIES: u32 = 25;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(200);

/// The argument of `--mkfs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    kind: &'static str,
    force: &'static [&'static str],
    package: &'static str,
    options: Vec<String>,
    /// Mount point.
    folder: PathBuf,
}

impl FileSystem {
    /// Parses `ext4 -O ^has_journal`: a kind of file system and options for its `mkfs`.
    pub fn parse(text: &str) -> Result<FileSystem, HostError> {
        let mut words = text.split_whitespace();
        let kind = words.next().unwrap_or_default();
        let known = KINDS.iter().find(|(name, _, _)| *name == kind);
        let Some(&(kind, force, package)) = known else {
            let names: Vec<&str> = KINDS.iter().map(|(name, _, _)| *name).collect();
            return Err(HostError::Unfit(format!(
                "--mkfs {text:?}: the first word is the file system; {} can be made",
                names.join(", ")
            )));
        };
        Ok(FileSystem {
            kind,
            force,
            package,
            options: words.map(str::to_owned).collect(),
            folder: std::env::temp_dir().join(format!("blklab-mnt-{}", std::process::id())),
        })
    }

    /// The file to which all I/O of a job goes, in place of the device.
    pub fn file(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Refuses a job without the size of its file, and a missing `mkfs`.
    pub fn check(&self, job: &JobFile) -> Result<(), HostError> {
        let sized =
            |spec: &&blklab_workload::fio::JobSpec| !matches!(spec.size, Some(Extent::Bytes(_)));
        if let Some(spec) = job.jobs.iter().find(sized) {
            return Err(HostError::Unfit(format!(
                "{}: [{}]: a job in a file system needs size=, such as size=1g: how large its \
                 file is",
                spec.position, spec.name
            )));
        }
        let program = self.program();
        match Command::new(&program)
            .arg("-V")
            .stdin(Stdio::null())
            .output()
        {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(HostError::Unfit(format!(
                "{program} is not installed; it is in the package `{}`",
                self.package
            ))),
            _ => Ok(()),
        }
    }

    fn program(&self) -> String {
        format!("mkfs.{}", self.kind)
    }

    fn arguments(&self, device: &Path) -> Vec<String> {
        let force = self.force.iter().map(|word| (*word).to_owned());
        let options = self.options.iter().cloned();
        let device = std::iter::once(device.display().to_string());
        force.chain(options).chain(device).collect()
    }

    /// Describes what is done before a run.
    pub fn describe(&self, device: &Path) -> String {
        format!(
            "{} {}; mount -t {} {} {}; fio --create_only=1 writes {}",
            self.program(),
            self.arguments(device).join(" "),
            self.kind,
            device.display(),
            self.folder.display(),
            self.file().display()
        )
    }

    /// Describes what is done after a run.
    pub fn describe_end(&self) -> String {
        format!("umount {}", self.folder.display())
    }

    /// Makes and mounts the file system.
    pub fn mount(&self, device: &Path) -> Result<Mounted, HostError> {
        run(Command::new(self.program()).args(self.arguments(device)))?;
        std::fs::create_dir_all(&self.folder)
            .map_err(|e| HostError::io("make a folder to mount on", &self.folder, e))?;
        let mut mounted = Mounted {
            folder: self.folder.clone(),
            is_mounted: false,
        };
        let mut mount = Command::new("mount");
        mount.args(["-t", self.kind]).arg(device).arg(&self.folder);
        run(&mut mount)?;
        mounted.is_mounted = true;
        Ok(mounted)
    }
}

/// A mounted file system, which is unmounted when dropped.
#[derive(Debug)]
pub struct Mounted {
    folder: PathBuf,
    is_mounted: bool,
}

impl Mounted {
    /// Unmounts it now and returns the result.
    pub fn unmount(mut self) -> Result<(), HostError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), HostError> {
        let mut tries = 0;
        while self.is_mounted {
            match run(Command::new("umount").arg(&self.folder)) {
                Ok(()) => self.is_mounted = false,
                // A program that scans new mounts finishes soon.
                Err(_) if tries < UNMOUNT_TRIES => {
                    tries += 1;
                    std::thread::sleep(UNMOUNT_PAUSE);
                }
                Err(error) => {
                    self.is_mounted = false;
                    return Err(HostError::NotRestored(format!(
                        "{} is still mounted: {error}; unmount it by hand",
                        self.folder.display()
                    )));
                }
            }
        }
        // An empty folder in the temporary directory does no harm.
        let _ = std::fs::remove_dir(&self.folder);
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("blklab: {error}");
        }
    }
}

fn run(command: &mut Command) -> Result<(), HostError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|e| HostError::io(format!("start {name}"), &name, e))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let words: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    Err(HostError::Fio(format!(
        "{name} failed: {}",
        words.join("; ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_workload::fio;

    #[test]
    fn the_first_word_is_the_kind() {
        let ext4 = FileSystem::parse("ext4 -O ^has_journal -b 4096").unwrap();
        let words = ext4.describe(Path::new("/dev/sdx"));
        let wanted = "mkfs.ext4 -F -q -O ^has_journal -b 4096 /dev/sdx; mount -t ext4 /dev/sdx ";
        assert!(words.starts_with(wanted), "{words}");
        for wrong in ["", "  ", "ntfs", "-F"] {
            let error = FileSystem::parse(wrong).unwrap_err();
            assert!(error.is_mistake());
            assert!(error.to_string().contains("xfs, btrfs"), "{error}");
        }
    }

    #[test]
    fn a_job_must_say_how_large_its_file_is() {
        let no_includes = |_: &str, _: &str| Err("no includes".to_string());
        let job = |text: &str| fio::parse_str("t.fio", text, &|_| None, &no_includes).unwrap();
        let ext4 = FileSystem::parse("ext4").unwrap();
        for text in [
            "[a]\nfilename=/dev/x\nrw=read\n",
            "[a]\nsize=50%\nrw=read\nfilename=/x\n",
        ] {
            let error = ext4.check(&job(text)).unwrap_err();
            assert!(error.to_string().contains("needs size="), "{error}");
        }
    }
}
