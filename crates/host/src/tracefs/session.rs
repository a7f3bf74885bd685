//! A private tracing instance, which does not disturb other users of tracefs and is removed at the
//! end (Documentation/trace/ftrace.rst, Instances).

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};

use super::decode::{Decoder, Kind, RequestEvent};
use super::format::{EventFormat, PageFormat};
use super::page::Page;
use crate::disk::Disk;
use crate::error::HostError;
use crate::system::{System, names, read};

/// Memory for the buffers of all CPUs, in KiB.
const BUFFERS_KB: usize = 64 << 10;

/// Bounds of one CPU's buffer, in KiB: at least some tenths of a second at 500,000 events per
/// second.
const CPU_BUFFER_KB: (usize, usize) = (1 << 10, 16 << 10);

/// How long the reader sleeps when all buffers are empty.
const IDLE: Duration = Duration::from_millis(5);

/// The longest delay of an event between its time stamp and its buffer, because the CPU may be
/// interrupted between them.
const SLACK_NS: u64 = 2_000_000;

/// The most pages of one CPU that the reader takes before it reads the others.
const PAGES_A_TURN: usize = 256;

/// Finds tracefs at its own mount point, or below debugfs on older systems.
fn tracefs(system: &System) -> Result<PathBuf, HostError> {
    let places = [
        system.sys("kernel/tracing"),
        system.sys("kernel/debug/tracing"),
    ];
    for place in &places {
        match std::fs::read_dir(place.join("instances")) {
            Ok(_) => return Ok(place.clone()),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return Err(HostError::io("trace the block layer", place, e));
            }
            Err(_) => {}
        }
    }
    Err(HostError::NoTracefs(format!(
        "no tracefs at {}: mount it (mount -t tracefs nodev {}); the kernel needs \
         CONFIG_BLK_DEV_IO_TRACE",
        places[0].display(),
        places[0].display()
    )))
}

/// Checks whether the block layer can be traced, without changing anything.
pub fn check(system: &System) -> Result<(), HostError> {
    decoder(&tracefs(system)?.join("events/block"), &Kind::EVENTS).map(drop)
}

/// Kind of an event, its name, and whether every kernel has it.
type Wanted = (Kind, &'static str, bool);

/// A consumer of a drive's events, in order of time.
pub trait Sink: Send + 'static {
    /// Takes the next event.
    fn event(&mut self, event: &RequestEvent) -> Result<(), HostError>;
    /// Records that this many events are missing here.
    fn lost(&mut self, events: u64) -> Result<(), HostError>;
}

fn decoder(events: &Path, wanted: &[Wanted]) -> Result<Decoder, HostError> {
    let mut decoder = Decoder::default();
    for &(kind, name, needed) in wanted {
        let path = events.join(name).join("format");
        if !path.exists() && !needed {
            continue;
        }
        let text = match read("read an event's format", &path) {
            Err(HostError::Io { .. }) => {
                return Err(HostError::NoTracefs(format!(
                    "this kernel has no event {name} ({} is missing): it was built without \
                     CONFIG_BLK_DEV_IO_TRACE",
                    path.display()
                )));
            }
            text => text?,
        };
        let format = EventFormat::parse(&text).and_then(|format| decoder.add(kind, &format));
        format.map_err(|fault| HostError::Format {
            path,
            message: fault.to_string(),
        })?;
    }
    Ok(decoder)
}

/// A folder in `instances`, which is removed when dropped.
#[derive(Debug)]
struct Instance {
    folder: PathBuf,
}

impl Instance {
    fn make(tracefs: &Path) -> Result<Instance, HostError> {
        let folder = tracefs.join(format!("instances/blklab-{}", std::process::id()));
        std::fs::create_dir(&folder)
            .map_err(|e| HostError::io("make a tracing instance", &folder, e))?;
        Ok(Instance { folder })
    }

    fn write(&self, name: &str, value: &str) -> Result<(), HostError> {
        let path = self.folder.join(name);
        std::fs::write(&path, value).map_err(|e| HostError::io("set up tracing", &path, e))
    }

    /// Starts recording block events of the devices `devs`, which are a drive and its partitions.
    fn enable(&self, devs: &[u32], wanted: &[Wanted]) -> Result<(), HostError> {
        // The clock is set before the first event, so that the buffer has no times of another
        // clock.
        self.write("trace_clock", "mono")?;
        let cpus = self.cpus().len().max(1);
        let (least, most) = CPU_BUFFER_KB;
        let kb = (BUFFERS_KB / cpus).clamp(least, most);
        self.write("buffer_size_kb", &kb.to_string())?;
        let filter: Vec<String> = devs.iter().map(|dev| format!("dev == {dev}")).collect();
        let filter = filter.join(" || ");
        for (_, name, _) in wanted {
            let event = format!("events/block/{name}");
            if self.folder.join(&event).exists() {
                self.write(&format!("{event}/filter"), &filter)?;
                self.write(&format!("{event}/enable"), "1")?;
            }
        }
        self.write("tracing_on", "1")
    }

    fn cpus(&self) -> Vec<String> {
        let names = names(&self.folder.join("per_cpu"));
        names
            .into_iter()
            .filter(|name| name.starts_with("cpu"))
            .collect()
    }

    /// The kernel's count of lost events, which were overwritten or dropped.
    fn lost(&self) -> u64 {
        let cpus = self.cpus().into_iter();
        let stats = cpus.map(|cpu| {
            let path = self.folder.join("per_cpu").join(cpu).join("stats");
            read("read a buffer's counters", &path).unwrap_or_default()
        });
        stats.map(|text| lost(&text)).fold(0, u64::saturating_add)
    }
}

/// Parses the number of lost events in `per_cpu/cpuN/stats`.
fn lost(stats: &str) -> u64 {
    let counted = ["overrun", "commit overrun", "dropped events"];
    let lines = stats.lines().filter_map(|line| line.split_once(':'));
    let lost = lines.filter(|(name, _)| counted.contains(&name.trim()));
    lost.filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.write("tracing_on", "0");
        if let Err(error) = std::fs::remove_dir(&self.folder) {
            eprintln!(
                "blklab: {}: cannot remove the tracing instance: {error}",
                self.folder.display()
            );
        }
    }
}

/// Summary of a recording.
#[derive(Debug)]
pub struct Recording<S> {
    /// The consumer of the events.
    pub sink: S,
    /// Number of events read.
    pub events: u64,
    /// Number of events lost, by the kernel's count.
    pub lost: u64,
}

/// A running recording.
#[derive(Debug)]
pub struct Session<S: Sink> {
    // The reader's files must be closed before the instance is removed.
    reader: Option<JoinHandle<Result<Recording<S>, HostError>>>,
    stop: Arc<AtomicBool>,
    instance: Instance,
}

impl<S: Sink> Session<S> {
    /// Starts recording the `wanted` events of a drive and its partitions.
    pub fn start(
        system: &System,
        disk: &Disk,
        wanted: &[(Kind, &'static str, bool)],
        sink: S,
    ) -> Result<Session<S>, HostError> {
        let tracefs = tracefs(system)?;
        let decoder = decoder(&tracefs.join("events/block"), wanted)?;
        let parts = disk.parts(system);
        let devs: Vec<u32> = parts.iter().map(|(_, number)| number.dev_t()).collect();
        let path = tracefs.join("events/header_page");
        let text = read("read the ring buffer's format", &path)?;
        let format = PageFormat::parse(&text).map_err(|fault| HostError::Format {
            path,
            message: fault.to_string(),
        })?;
        let instance = Instance::make(&tracefs)?;
        let mut pipes = Vec::new();
        for name in instance.cpus() {
            let path = instance.folder.join("per_cpu").join(&name);
            // Names consist of `cpu` and a number.
            let cpu = name["cpu".len()..].parse().unwrap_or(0);
            pipes.push(Pipe::open(&path.join("trace_pipe_raw"), cpu)?);
        }
        instance.enable(&devs, wanted)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut reader = Reader {
            pipes,
            decoder,
            format,
            devs,
            page: vec![0; format.page_bytes],
            pending: Vec::new(),
            sink,
            lost: 0,
            all_lost: 0,
            events: 0,
        };
        let stopped = Arc::clone(&stop);
        let reader = std::thread::spawn(move || {
            reader.follow(&stopped)?;
            Ok(Recording {
                sink: reader.sink,
                events: reader.events,
                lost: reader.all_lost,
            })
        });
        Ok(Session {
            reader: Some(reader),
            stop,
            instance,
        })
    }

    /// Whether the reader has stopped; [`Session::finish`] returns the reason.
    pub fn has_ended(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops recording and reads the rest of the buffers.
    pub fn finish(mut self) -> Result<Recording<S>, HostError> {
        self.instance.write("tracing_on", "0")?;
        let mut recording = match self.join() {
            Some(Ok(recording)) => recording?,
            _ => {
                return Err(HostError::Fio(
                    "the reader of the trace ended early".to_string(),
                ));
            }
        };
        // A page shows lost events only after a later page is read; the kernel's counters include
        // all of them.
        recording.lost = recording.lost.max(self.instance.lost());
        Ok(recording)
    }

    fn join(&mut self) -> Option<std::thread::Result<Result<Recording<S>, HostError>>> {
        self.stop.store(true, Ordering::Relaxed);
        self.reader.take().map(JoinHandle::join)
    }
}

impl<S: Sink> Drop for Session<S> {
    fn drop(&mut self) {
        // The reader's result is not needed.
        let _ = self.join();
    }
}

/// Buffer of one CPU.
#[derive(Debug)]
struct Pipe {
    cpu: u32,
    file: File,
    path: PathBuf,
}

impl Pipe {
    fn open(path: &Path, cpu: u32) -> Result<Pipe, HostError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty());
        let file = file.map_err(|e| HostError::io("read the trace", path, e.into()))?;
        Ok(Pipe {
            cpu,
            file: file.into(),
            path: path.to_path_buf(),
        })
    }

    /// Reads a page; returns zero if there is none yet.
    fn read(&mut self, page: &mut [u8]) -> Result<usize, HostError> {
        match self.file.read(page) {
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(0)
            }
            read => read.map_err(|e| HostError::io("read the trace", &self.path, e)),
        }
    }
}

/// Merges the events of all CPUs into one order.
struct Reader<S> {
    pipes: Vec<Pipe>,
    decoder: Decoder,
    format: PageFormat,
    devs: Vec<u32>,
    page: Vec<u8>,
    /// Events before which another CPU's may still come.
    pending: Vec<RequestEvent>,
    sink: S,
    lost: u64,
    all_lost: u64,
    events: u64,
}

impl<S: Sink> Reader<S> {
    fn follow(&mut self, stop: &AtomicBool) -> Result<(), HostError> {
        loop {
            // Loaded before the buffers are read, because events recorded after the last read would
            // be lost otherwise.
            let stopping = stop.load(Ordering::Relaxed);
            let began_ns = monotonic_ns();
            let mut full = false;
            for cpu in 0..self.pipes.len() {
                full |= self.drain(cpu)?;
            }
            if self.lost > 0 {
                let lost = std::mem::take(&mut self.lost);
                self.all_lost = self.all_lost.saturating_add(lost);
                self.sink.lost(lost)?;
            }
            if full {
                // A CPU that was not read to its end may have events older than those of the
                // others.
                continue;
            }
            let until_ns = match stopping {
                true => u64::MAX,
                false => began_ns.saturating_sub(SLACK_NS),
            };
            self.pass_on(until_ns)?;
            if stopping {
                return Ok(());
            }
            std::thread::sleep(IDLE);
        }
    }

    /// Reads a CPU's buffer. Returns whether it may contain more.
    fn drain(&mut self, cpu: usize) -> Result<bool, HostError> {
        for _ in 0..PAGES_A_TURN {
            let length = self.pipes[cpu].read(&mut self.page)?;
            if length == 0 {
                return Ok(false);
            }
            let fault = |fault: super::page::PageFault| HostError::Format {
                path: self.pipes[cpu].path.clone(),
                message: fault.to_string(),
            };
            let mut page = Page::new(&self.page[..length], &self.format).map_err(fault)?;
            self.lost = self.lost.saturating_add(page.lost());
            while let Some(record) = page.next_record().map_err(fault)? {
                self.events += 1;
                let event = self.decoder.decode(&record, self.pipes[cpu].cpu);
                self.pending
                    .extend(event.filter(|event| self.devs.contains(&event.dev)));
            }
        }
        Ok(true)
    }

    /// Passes events up to `until_ns` to the consumer, in order.
    fn pass_on(&mut self, until_ns: u64) -> Result<(), HostError> {
        // The sort is stable: events of one CPU with equal times keep their order.
        self.pending.sort_by_key(|event| event.at_ns);
        let ready = self
            .pending
            .partition_point(|event| event.at_ns <= until_ns);
        for event in self.pending.drain(..ready) {
            self.sink.event(&event)?;
        }
        Ok(())
    }
}

/// The time of the trace clock, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000) + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::decode::tests::issue;
    use super::super::format::tests::{HEADER_PAGE, ISSUE};
    use super::super::page::tests::Builder;
    use super::super::split::Splitter;
    use super::*;

    #[test]
    fn a_machine_without_tracefs_says_how_to_mount_it() {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path());
        let error = check(&system).unwrap_err();
        assert!(error.is_mistake());
        assert!(error.to_string().contains("mount -t tracefs"), "{error}");
        // A measurement can do without, a recording cannot.
        assert!(!error.to_string().contains("--no-trace"), "{error}");
        let error = error.or_without_trace();
        assert!(error.to_string().contains("(--no-trace)"), "{error}");
        std::fs::create_dir_all(system.sys("kernel/tracing/instances")).unwrap();
        let error = check(&system).unwrap_err();
        assert!(error.to_string().contains("block_rq_insert"), "{error}");
    }

    #[test]
    fn all_kinds_of_loss_are_counted() {
        let stats = "entries: 5\noverrun: 3\ncommit overrun: 1\nbytes: 99\ndropped events: 4\n";
        assert_eq!(lost(stats), 8);
        assert_eq!(lost("overrun: x\n"), 0);
    }

    /// A reader of files that contain pages in the kernel's format.
    fn reader(pages: &[Vec<u8>]) -> (tempfile::TempDir, Reader<Splitter>) {
        let folder = tempfile::tempdir().unwrap();
        let complete = ISSUE
            .replace("rq_issue", "rq_complete")
            .replace("2104", "2107");
        let mut decoder = Decoder::default();
        for (kind, text) in [(Kind::Issue, ISSUE), (Kind::Complete, complete.as_str())] {
            decoder
                .add(kind, &EventFormat::parse(text).unwrap())
                .unwrap();
        }
        let mut pipes = Vec::new();
        for (cpu, page) in pages.iter().enumerate() {
            let path = folder.path().join(format!("cpu{cpu}"));
            std::fs::write(&path, page).unwrap();
            pipes.push(Pipe::open(&path, cpu as u32).unwrap());
        }
        let reader = Reader {
            pipes,
            decoder,
            format: PageFormat::parse(HEADER_PAGE).unwrap(),
            devs: vec![7 << 20],
            page: vec![0; 4096],
            pending: Vec::new(),
            sink: Splitter::default(),
            lost: 0,
            all_lost: 0,
            events: 0,
        };
        (folder, reader)
    }

    fn complete(dev: u32, sector: u64) -> Vec<u8> {
        let mut record = issue(dev, sector, 8, b"R");
        record[..2].copy_from_slice(&2107u16.to_ne_bytes());
        record
    }

    #[test]
    fn cpus_are_brought_into_one_order() {
        let ours = 7 << 20;
        let first = Builder::new(1_000)
            .event(0, &issue(ours, 0, 8, b"R"))
            .event(500, &complete(ours, 8))
            .event(1, &issue(9, 0, 8, b"R"))
            .page(0);
        let second = Builder::new(1_200)
            .event(0, &issue(ours, 8, 8, b"R"))
            .event(800, &complete(ours, 0))
            .page(0);
        let (_folder, mut reader) = reader(&[first, second]);
        reader.follow(&AtomicBool::new(true)).unwrap();
        assert_eq!(reader.events, 5);
        let stats = reader.sink.finish();
        assert_eq!((stats.unmatched, stats.lost_events), (0, 0));
        let drive = &stats.kinds[0].drive_ns;
        assert_eq!(
            (
                drive.count(),
                drive.summary().min_ns,
                drive.summary().max_ns
            ),
            (2, 300, 1000)
        );
        assert_eq!(stats.depth_at_issue.counts[2], 1);
    }

    #[test]
    fn a_damaged_page_is_an_error_with_its_file() {
        let (_folder, mut reader) = reader(&[vec![0xff; 64]]);
        let error = reader.follow(&AtomicBool::new(true)).unwrap_err();
        assert!(error.to_string().contains("cpu0"), "{error}");
    }
}
