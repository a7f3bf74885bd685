//! A loop device over tmpfs: a real block device under the machine's own
//! kernel that no data is lost on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Devices are shared by the whole machine and figures suffer from company.
static TURNS: Mutex<()> = Mutex::new(());

/// A loop device that goes with the test.
pub struct LoopDevice {
    pub path: String,
    /// Loop devices outlive their files, and keep what they were set to.
    scheduler_before: String,
    _image: tempfile::NamedTempFile,
    _turn: MutexGuard<'static, ()>,
}

impl LoopDevice {
    /// A device of 64 MiB, or `None` where this machine or user cannot have
    /// one; which is told, past the test harness.
    pub fn new() -> Option<LoopDevice> {
        let turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        match LoopDevice::set_up() {
            Ok((path, image)) => Some(LoopDevice {
                scheduler_before: active_scheduler(&path),
                path,
                _image: image,
                _turn: turn,
            }),
            Err(reason) => {
                blklab_judges::not_possible(&reason);
                None
            }
        }
    }

    fn set_up() -> Result<(String, tempfile::NamedTempFile), String> {
        if Command::new("fio").arg("--version").output().is_err() {
            blklab_judges::missing("fio");
            return Err("fio is not installed".to_string());
        }
        let tmpfs = ["/dev/shm", "/tmp"].map(Path::new);
        let folder = tmpfs
            .into_iter()
            .find(|folder| folder.is_dir())
            .ok_or("no /dev/shm")?;
        let image = tempfile::NamedTempFile::new_in(folder).map_err(|e| e.to_string())?;
        image
            .as_file()
            .set_len(64 << 20)
            .map_err(|e| e.to_string())?;
        let done = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image.path())
            .output()
            .map_err(|e| format!("losetup: {e}"))?;
        let path = String::from_utf8_lossy(&done.stdout).trim().to_string();
        if !done.status.success() || path.is_empty() {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_string();
            return Err(format!("no loop device: {said}"));
        }
        let scheduler = format!("/sys/block/{}/queue/scheduler", &path["/dev/".len()..]);
        let writable = std::fs::OpenOptions::new().write(true).open(&scheduler);
        if let Err(error) = writable {
            let _ = Command::new("losetup").args(["--detach", &path]).status();
            return Err(format!("{scheduler}: {error}"));
        }
        Ok((path, image))
    }

    /// A file of its queue in sysfs.
    pub fn queue(&self, name: &str) -> PathBuf {
        let name_in_sysfs = &self.path["/dev/".len()..];
        Path::new("/sys/block")
            .join(name_in_sysfs)
            .join("queue")
            .join(name)
    }

    pub fn read(&self, name: &str) -> String {
        let path = self.queue(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    pub fn write(&self, name: &str, value: &str) {
        std::fs::write(self.queue(name), value).unwrap_or_else(|e| panic!("{name}={value}: {e}"));
    }

    /// The kernel's schedulers for it.
    pub fn schedulers(&self) -> Vec<String> {
        let text = self.read("scheduler");
        let bare = |word: &str| word.trim_matches(['[', ']']).to_string();
        text.split_whitespace().map(bare).collect()
    }

    /// Sets it as somebody could have, and tells what that is.
    pub fn tune(&self) -> String {
        if self.schedulers().iter().any(|name| name == "mq-deadline") {
            self.write("scheduler", "mq-deadline");
            self.write("iosched/fifo_batch", "7");
            self.write("nr_requests", "100");
        }
        self.state()
    }

    /// All that a comparison changes.
    pub fn state(&self) -> String {
        let mut state = self.read("scheduler") + &self.read("nr_requests");
        let tunables = std::fs::read_dir(self.queue("iosched"))
            .into_iter()
            .flatten();
        let mut names: Vec<_> = tunables.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let name = format!("iosched/{}", name.to_string_lossy());
            state += &format!("{name}={}", self.read(&name));
        }
        state
    }

    /// `--no-trace` where the machine has no tracefs.
    pub fn trace_options() -> &'static [&'static str] {
        match is_tracefs_there() {
            true => &[],
            false => &["--no-trace"],
        }
    }
}

/// Whether requests can be traced here.
pub fn is_tracefs_there() -> bool {
    Path::new("/sys/kernel/tracing/events/block/block_rq_issue/format").exists()
}

/// Tracing instances of the program that are there.
pub fn instances() -> usize {
    let entries = std::fs::read_dir("/sys/kernel/tracing/instances")
        .into_iter()
        .flatten();
    let ours = |name: &str| name.starts_with("blklab-");
    entries
        .flatten()
        .filter(|e| ours(&e.file_name().to_string_lossy()))
        .count()
}

/// The scheduler in brackets; `none` where there is no other.
fn active_scheduler(device: &str) -> String {
    let path = format!("/sys/block/{}/queue/scheduler", &device["/dev/".len()..]);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let active = text.split(['[', ']']).nth(1);
    active.unwrap_or("none").to_string()
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Through `none`, so that tunables go with their scheduler.
        for scheduler in ["none", &self.scheduler_before] {
            let _ = std::fs::write(self.queue("scheduler"), scheduler);
        }
        let _ = Command::new("losetup")
            .args(["--detach", &self.path])
            .status();
    }
}
