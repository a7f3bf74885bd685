//! The queue of a drive in sysfs: scheduler, tunables, `nr_requests`
//! (Documentation/ABI/stable/sysfs-block).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::HostError;

/// How long to wait for requests in flight before a scheduler is changed.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

const READ_AHEAD: &str = "read_ahead_kb";

/// Access to files in sysfs, which tests replace by a simulated kernel.
pub trait Files {
    /// Returns the contents of a file.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// Writes a file, as `echo value > file` does.
    fn write(&self, path: &Path, value: &str) -> io::Result<()>;
    /// Returns the names in a folder; none if it does not exist.
    fn names(&self, folder: &Path) -> Vec<String>;
}

/// The real files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

impl Files for RealFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        use std::io::Write;
        // It must not be created if the kernel has no such file.
        let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
        file.write_all(value.as_bytes())
    }

    fn names(&self, folder: &Path) -> Vec<String> {
        crate::system::names(folder)
    }
}

/// The schedulers available to a queue, and the active one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedulers {
    /// All schedulers, in the kernel's order.
    pub names: Vec<String>,
    /// The active scheduler.
    pub active: String,
}

impl Schedulers {
    /// Parses `none [mq-deadline] kyber bfq`. A queue without a scheduler shows only `none`,
    /// without brackets.
    pub fn parse(text: &str) -> Option<Schedulers> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let bracketed = |word: &&str| word.strip_prefix('[')?.strip_suffix(']').map(String::from);
        let active = match &words[..] {
            [only] => bracketed(only).or(Some(only.to_string())),
            words => words.iter().find_map(bracketed),
        };
        let bare = |word: &&str| word.trim_matches(['[', ']']).to_string();
        Some(Schedulers {
            names: words.iter().map(bare).collect(),
            active: active?,
        })
    }
}

/// The current settings of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueState {
    /// The active scheduler.
    pub scheduler: String,
    /// Its tunables (`queue/iosched/*`).
    pub tunables: BTreeMap<String, String>,
    /// `queue/nr_requests`.
    pub nr_requests: String,
    /// `queue/nomerges`.
    pub nomerges: String,
    /// `queue/read_ahead_kb`.
    pub read_ahead_kb: String,
}

/// The settings for a run; `None` leaves the kernel's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSettings {
    /// The scheduler.
    pub scheduler: String,
    /// Tunables to set, in order.
    pub tunables: Vec<(String, String)>,
    /// `nr_requests`.
    pub nr_requests: Option<u32>,
    /// `nomerges`.
    pub nomerges: Option<u8>,
    /// `read_ahead_kb`.
    pub read_ahead_kb: Option<u32>,
}

impl QueueSettings {
    /// The commands that make these settings, for a queue with this sysfs folder.
    pub(crate) fn in_words(&self, folder: &str) -> String {
        let scheduler = &self.scheduler;
        let mut text =
            format!("wait for requests in flight; echo {scheduler} > {folder}/scheduler");
        let mut echo = |value: &str, file: &str| {
            text.push_str(&format!("; echo {value} > {folder}/{file}"));
        };
        for (name, value) in &self.tunables {
            echo(value, &format!("iosched/{name}"));
        }
        if let Some(n) = self.nr_requests {
            echo(&n.to_string(), "nr_requests");
        }
        if let Some(n) = self.nomerges {
            echo(&n.to_string(), "nomerges");
        }
        if let Some(n) = self.read_ahead_kb {
            echo(&n.to_string(), "read_ahead_kb");
        }
        text
    }
}

/// The queue of one drive.
#[derive(Debug)]
pub struct Queue<F> {
    files: F,
    device: String,
    /// `/sys/block/NAME`.
    folder: PathBuf,
}

impl<F: Files> Queue<F> {
    /// Returns the queue of the drive with the sysfs folder `folder`; `device` is its name in
    /// messages.
    pub fn new(files: F, device: impl Into<String>, folder: impl Into<PathBuf>) -> Queue<F> {
        Queue {
            files,
            device: device.into(),
            folder: folder.into(),
        }
    }

    /// The device's name in messages.
    pub fn device(&self) -> &str {
        &self.device
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join("queue").join(name)
    }

    fn read(&self, what: &str, name: &str) -> Result<String, HostError> {
        let path = self.path(name);
        let text = self
            .files
            .read(&path)
            .map_err(|e| self.failed(what, &path, e))?;
        Ok(text.trim().to_string())
    }

    fn write(&self, what: &str, name: &str, value: &str) -> Result<(), HostError> {
        let path = self.path(name);
        let done = self.files.write(&path, value);
        done.map_err(|e| self.failed(what, &path, e))
    }

    /// Converts an error; a missing folder means that the drive has disappeared.
    fn failed(&self, what: &str, path: &Path, error: io::Error) -> HostError {
        let gone = self.files.names(&self.folder).is_empty();
        let no_device = rustix::io::Errno::NODEV.raw_os_error();
        if gone || error.raw_os_error() == Some(no_device) {
            return HostError::Vanished {
                device: self.device.clone(),
            };
        }
        HostError::io(what, path, error)
    }

    /// The schedulers that the kernel offers for the drive.
    pub fn schedulers(&self) -> Result<Schedulers, HostError> {
        let text = self.read("list the schedulers", "scheduler")?;
        Schedulers::parse(&text).ok_or_else(|| HostError::Format {
            path: self.path("scheduler"),
            message: format!("{text:?} does not name a scheduler in use, as `[none] bfq` does"),
        })
    }

    /// Reads the current settings.
    pub fn state(&self) -> Result<QueueState, HostError> {
        Ok(QueueState {
            scheduler: self.schedulers()?.active,
            tunables: self.tunables(),
            nr_requests: self.read("read nr_requests", "nr_requests")?,
            nomerges: self.read("read nomerges", "nomerges")?,
            read_ahead_kb: self.read("read read_ahead_kb", READ_AHEAD)?,
        })
    }

    /// The readable tunables.
    fn tunables(&self) -> BTreeMap<String, String> {
        let names = self.files.names(&self.path("iosched")).into_iter();
        names
            .filter_map(|name| {
                let value = self
                    .read("read a tunable", &format!("iosched/{name}"))
                    .ok()?;
                Some((name, value))
            })
            .collect()
    }

    /// Checks settings before anything is changed. Tunables are checked in [`Queue::set`], because
    /// they exist only while their scheduler is active.
    pub fn check(&self, settings: &QueueSettings) -> Result<(), HostError> {
        let there = self.schedulers()?.names;
        if there.contains(&settings.scheduler) {
            return Ok(());
        }
        Err(HostError::Unfit(format!(
            "{}: this kernel has no scheduler {} for it; it has {}. If it is a module, load it \
             first (modprobe {})",
            self.device,
            settings.scheduler,
            there.join(", "),
            module_of(&settings.scheduler),
        )))
    }

    /// Sets scheduler and tunables. Every scheduler starts anew with the kernel's defaults, even if
    /// it is already active.
    pub fn set(&self, settings: &QueueSettings) -> Result<(), HostError> {
        self.check(settings)?;
        self.drain()?;
        // The kernel ignores a write of the active scheduler, which would keep what it learned in
        // earlier runs (bfq, kyber).
        if settings.scheduler != "none" && self.schedulers()?.active == settings.scheduler {
            self.switch("none")?;
        }
        self.switch(&settings.scheduler)?;
        for (name, value) in &settings.tunables {
            self.set_tunable(&settings.scheduler, name, value)?;
        }
        if let Some(n) = settings.nr_requests {
            self.set_nr_requests(&n.to_string())?;
        }
        if let Some(n) = settings.nomerges {
            self.write("set nomerges", "nomerges", &n.to_string())?;
        }
        if let Some(n) = settings.read_ahead_kb {
            self.write("set read_ahead_kb", READ_AHEAD, &n.to_string())?;
        }
        Ok(())
    }

    /// Switches the scheduler. The write returns when the queue has been frozen and the new
    /// scheduler is attached; reading it back proves that.
    fn switch(&self, scheduler: &str) -> Result<(), HostError> {
        self.write("set the scheduler", "scheduler", scheduler)?;
        let active = self.schedulers()?.active;
        if active == scheduler {
            return Ok(());
        }
        Err(HostError::Unfit(format!(
            "{}: the scheduler was set to {scheduler}, but the kernel still uses {active}",
            self.device
        )))
    }

    fn set_tunable(&self, scheduler: &str, name: &str, value: &str) -> Result<(), HostError> {
        let there = self.files.names(&self.path("iosched"));
        if !there.iter().any(|known| known == name) {
            let known = match there.is_empty() {
                true => "it has none".to_string(),
                false => format!("it has {}", there.join(", ")),
            };
            return Err(HostError::Unfit(format!(
                "{}: {scheduler} of this kernel has no tunable {name}; {known}",
                self.device
            )));
        }
        let file = format!("iosched/{name}");
        let done = self.write("set a tunable", &file, value);
        if let Err(HostError::Io { source, .. }) = &done
            && source.kind() == io::ErrorKind::InvalidInput
        {
            return Err(HostError::Unfit(format!(
                "{}: the kernel refuses {scheduler}.{name}={value}",
                self.device
            )));
        }
        done?;
        let now = self.read("read a tunable", &file)?;
        if now == value {
            return Ok(());
        }
        Err(HostError::Unfit(format!(
            "{}: {scheduler}.{name} was set to {value}, but the kernel took {now}",
            self.device
        )))
    }

    fn set_nr_requests(&self, value: &str) -> Result<(), HostError> {
        self.write("set nr_requests", "nr_requests", value)
            .map_err(|error| match error {
                HostError::Io { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
                    HostError::Unfit(format!(
                        "{}: the kernel refuses nr_requests={value}; without a scheduler the \
                         drive's own depth is the limit",
                        self.device
                    ))
                }
                other => other,
            })?;
        let now = self.read("read nr_requests", "nr_requests")?;
        match now == value {
            true => Ok(()),
            // The kernel raises values below 4.
            false => Err(HostError::Unfit(format!(
                "{}: nr_requests was set to {value}, but the kernel took {now}",
                self.device
            ))),
        }
    }

    /// Waits until no request is in flight.
    fn drain(&self) -> Result<(), HostError> {
        let path = self.folder.join("inflight");
        let end = Instant::now() + DRAIN_LIMIT;
        loop {
            let text = self.files.read(&path);
            let text = text.map_err(|e| self.failed("see what is in flight", &path, e))?;
            if text.split_whitespace().all(|count| count == "0") {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(HostError::Unfit(format!(
                    "{}: requests are still in flight after {} s; another program uses the drive",
                    self.device,
                    DRAIN_LIMIT.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Restores settings: writes all that differ, even if some writes fail.
    pub fn put_back(&self, state: &QueueState) -> Result<(), HostError> {
        let mut failures: Vec<String> = Vec::new();
        let mut note = |done: Result<(), HostError>| match done {
            Err(HostError::Vanished { device }) => Err(HostError::Vanished { device }),
            Err(error) => {
                failures.push(error.to_string());
                Ok(())
            }
            Ok(()) => Ok(()),
        };
        if self.schedulers()?.active != state.scheduler {
            note(self.switch(&state.scheduler))?;
        }
        for (name, value) in &state.tunables {
            if self.tunables().get(name) != Some(value) {
                note(self.set_tunable(&state.scheduler, name, value))?;
            }
        }
        if self.read("read nr_requests", "nr_requests")? != state.nr_requests {
            note(self.set_nr_requests(&state.nr_requests))?;
        }
        if self.read("read nomerges", "nomerges")? != state.nomerges {
            note(self.write("set nomerges", "nomerges", &state.nomerges))?;
        }
        if self.read("read read_ahead_kb", READ_AHEAD)? != state.read_ahead_kb {
            note(self.write("set read_ahead_kb", READ_AHEAD, &state.read_ahead_kb))?;
        }
        if failures.is_empty() {
            return Ok(());
        }
        Err(HostError::NotRestored(format!(
            "{}: could not put the queue back: {}. Before the run it had scheduler {}, \
             nr_requests {}, nomerges {}",
            self.device,
            failures.join("; "),
            state.scheduler,
            state.nr_requests,
            state.nomerges
        )))
    }
}

/// The kernel module of a scheduler.
fn module_of(scheduler: &str) -> String {
    match scheduler {
        "kyber" | "cfq" | "deadline" => format!("{scheduler}-iosched"),
        other => other.to_string(),
    }
}

/// Restores the settings that a queue had when the guard was made: on request, or at the latest
/// when it is dropped.
#[derive(Debug)]
pub struct Restore<'a, F: Files> {
    queue: &'a Queue<F>,
    state: Option<QueueState>,
}

impl<'a, F: Files> Restore<'a, F> {
    /// Reads and keeps the current settings.
    pub fn remember(queue: &'a Queue<F>) -> Result<Restore<'a, F>, HostError> {
        Ok(Restore {
            state: Some(queue.state()?),
            queue,
        })
    }

    /// Restores the settings now and returns the result.
    pub fn put_back(mut self) -> Result<(), HostError> {
        match self.state.take() {
            Some(state) => self.queue.put_back(&state),
            None => Ok(()),
        }
    }
}

impl<F: Files> Drop for Restore<'_, F> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take()
            && let Err(error) = self.queue.put_back(&state)
        {
            eprintln!("blklab: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A simulated kernel: tunables exist while their scheduler is active, and each scheduler has
    /// its default `nr_requests`.
    #[derive(Default)]
    struct Kernel {
        state: RefCell<KernelState>,
    }

    #[derive(Default)]
    struct KernelState {
        active: String,
        tunables: BTreeMap<String, String>,
        nr_requests: String,
        nomerges: String,
        read_ahead_kb: String,
        writes: Vec<String>,
        gone: bool,
        refuse: Option<&'static str>,
    }

    const NAMES: [&str; 3] = ["none", "mq-deadline", "bfq"];

    fn defaults(scheduler: &str) -> BTreeMap<String, String> {
        let pairs: &[(&str, &str)] = match scheduler {
            "mq-deadline" => &[("fifo_batch", "16"), ("writes_starved", "2")],
            "bfq" => &[("slice_idle", "8")],
            _ => &[],
        };
        pairs
            .iter()
            .map(|(n, v)| (n.to_string(), v.to_string()))
            .collect()
    }

    impl KernelState {
        fn switch(&mut self, scheduler: &str) {
            if self.active == scheduler {
                return;
            }
            self.active = scheduler.to_string();
            self.tunables = defaults(scheduler);
            self.nr_requests = if scheduler == "none" { "128" } else { "256" }.to_string();
        }
    }

    impl Files for &Kernel {
        fn read(&self, path: &Path) -> io::Result<String> {
            let state = self.state.borrow();
            let missing = || io::Error::from(io::ErrorKind::NotFound);
            if state.gone {
                return Err(missing());
            }
            let name = path.file_name().unwrap().to_str().unwrap();
            Ok(match name {
                "scheduler" => {
                    let show = |n: &&str| match **n == *state.active {
                        true => format!("[{n}]"),
                        false => n.to_string(),
                    };
                    NAMES.iter().map(show).collect::<Vec<_>>().join(" ")
                }
                "nr_requests" => format!("{}\n", state.nr_requests),
                "nomerges" => format!("{}\n", state.nomerges),
                READ_AHEAD => format!("{}\n", state.read_ahead_kb),
                "inflight" => "       0        0\n".to_string(),
                name => state.tunables.get(name).ok_or_else(missing)?.clone(),
            })
        }

        fn write(&self, path: &Path, value: &str) -> io::Result<()> {
            let mut state = self.state.borrow_mut();
            let name = path.file_name().unwrap().to_str().unwrap();
            if state.gone {
                return Err(io::ErrorKind::NotFound.into());
            }
            if state.refuse == Some(name) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            state.writes.push(format!("{name}={value}"));
            match name {
                "scheduler" => state.switch(value),
                "nr_requests" => state.nr_requests = value.to_string(),
                "nomerges" => state.nomerges = value.to_string(),
                READ_AHEAD => state.read_ahead_kb = value.to_string(),
                name => {
                    state.tunables.insert(name.to_string(), value.to_string());
                }
            }
            Ok(())
        }

        fn names(&self, folder: &Path) -> Vec<String> {
            let state = self.state.borrow();
            match folder.file_name().unwrap().to_str().unwrap() {
                _ if state.gone => Vec::new(),
                "iosched" => state.tunables.keys().cloned().collect(),
                _ => vec!["queue".to_string()],
            }
        }
    }

    /// A kernel with mq-deadline and changed tunables.
    fn kernel() -> Kernel {
        let kernel = Kernel::default();
        {
            let mut state = kernel.state.borrow_mut();
            state.switch("mq-deadline");
            state.tunables.insert("fifo_batch".into(), "4".into());
            state.nr_requests = "64".into();
            state.nomerges = "0".into();
            state.read_ahead_kb = "128".into();
        }
        kernel
    }

    fn queue(kernel: &Kernel) -> Queue<&Kernel> {
        Queue::new(kernel, "/dev/sdx", "/sys/block/sdx")
    }

    fn choice(scheduler: &str, tunables: &[(&str, &str)]) -> QueueSettings {
        QueueSettings {
            scheduler: scheduler.to_string(),
            tunables: tunables
                .iter()
                .map(|(n, v)| (n.to_string(), v.to_string()))
                .collect(),
            ..QueueSettings::default()
        }
    }

    #[test]
    fn the_kernels_list_reads_either_way() {
        let s = Schedulers::parse("none [mq-deadline] kyber bfq \n").unwrap();
        assert_eq!(s.names, ["none", "mq-deadline", "kyber", "bfq"]);
        assert_eq!(s.active, "mq-deadline");
        assert_eq!(Schedulers::parse("none").unwrap().active, "none");
        assert_eq!(Schedulers::parse("[none]").unwrap().active, "none");
        assert_eq!(Schedulers::parse("none bfq"), None);
        assert_eq!(Schedulers::parse(""), None);
    }

    #[test]
    fn everything_is_put_back() {
        let kernel = kernel();
        let queue = queue(&kernel);
        let before = queue.state().unwrap();
        let guard = Restore::remember(&queue).unwrap();
        queue.set(&choice("bfq", &[("slice_idle", "0")])).unwrap();
        assert_eq!(queue.state().unwrap().tunables["slice_idle"], "0");
        queue
            .set(&QueueSettings {
                read_ahead_kb: Some(0),
                ..choice("mq-deadline", &[])
            })
            .unwrap();
        assert_eq!(queue.state().unwrap().tunables["fifo_batch"], "16");
        assert_eq!(queue.state().unwrap().read_ahead_kb, "0");
        guard.put_back().unwrap();
        assert_eq!(queue.state().unwrap(), before);
    }

    #[test]
    fn a_guard_that_falls_puts_back_too() {
        let kernel = kernel();
        let queue = queue(&kernel);
        let before = queue.state().unwrap();
        let fails = || -> Result<(), HostError> {
            let _guard = Restore::remember(&queue)?;
            queue.set(&choice("bfq", &[("no_such", "1")]))
        };
        let error = fails().unwrap_err();
        assert!(error.to_string().contains("it has slice_idle"), "{error}");
        assert_eq!(queue.state().unwrap(), before);
    }

    #[test]
    fn a_panic_puts_back_too() {
        let kernel = kernel();
        let queue = queue(&kernel);
        let before = queue.state().unwrap();
        let run = std::panic::AssertUnwindSafe(|| {
            let _guard = Restore::remember(&queue).unwrap();
            queue.set(&choice("none", &[])).unwrap();
            panic!("as asked");
        });
        assert!(std::panic::catch_unwind(run).is_err());
        assert_eq!(queue.state().unwrap(), before);
    }

    #[test]
    fn a_scheduler_in_use_begins_anew() {
        let kernel = kernel();
        queue(&kernel).set(&choice("mq-deadline", &[])).unwrap();
        let writes = kernel.state.borrow().writes.clone();
        assert_eq!(writes, ["scheduler=none", "scheduler=mq-deadline"]);
    }

    #[test]
    fn an_unknown_scheduler_names_those_there_are() {
        let kernel = kernel();
        let error = queue(&kernel).set(&choice("kyber", &[])).unwrap_err();
        assert!(error.is_mistake());
        let message = error.to_string();
        assert!(message.contains("none, mq-deadline, bfq"), "{message}");
        assert!(message.contains("kyber-iosched"), "{message}");
        assert!(kernel.state.borrow().writes.is_empty());
    }

    #[test]
    fn what_cannot_be_put_back_is_told_and_the_rest_is_done() {
        let kernel = kernel();
        let queue = queue(&kernel);
        let guard = Restore::remember(&queue).unwrap();
        queue.set(&choice("none", &[])).unwrap();
        kernel.state.borrow_mut().refuse = Some("fifo_batch");
        let error = guard.put_back().unwrap_err();
        assert!(error.to_string().contains("fifo_batch"), "{error}");
        assert_eq!(queue.state().unwrap().nr_requests, "64");
    }

    #[test]
    fn a_vanished_drive_is_called_so() {
        let kernel = kernel();
        let queue = queue(&kernel);
        let guard = Restore::remember(&queue).unwrap();
        kernel.state.borrow_mut().gone = true;
        let error = queue.set(&choice("none", &[])).unwrap_err();
        assert!(matches!(error, HostError::Vanished { .. }), "{error}");
        let error = guard.put_back().unwrap_err();
        assert!(matches!(error, HostError::Vanished { .. }), "{error}");
    }
}
