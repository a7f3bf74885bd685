//! A tracing instance of our own: other users of tracefs are not disturbed,
//! and it goes with its folder (Documentation/trace/ftrace.rst, Instances).

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

/// Memory for all CPUs' buffers together.
const BUFFERS_KB: usize = 64 << 10;

/// Memory for one CPU's buffer: some tenths of a second at 500,000 events a
/// second at least.
const CPU_BUFFER_KB: (usize, usize) = (1 << 10, 16 << 10);

/// How long the reader sleeps when all buffers are empty.
const IDLE: Duration = Duration::from_millis(5);

/// An event may reach its buffer this much later than its time says: a CPU
/// may be interrupted between both.
const SLACK_NS: u64 = 2_000_000;

/// The reader stops here after this many pages of one CPU to look at the
/// others.
const PAGES_A_TURN: usize = 256;

/// Finds tracefs: at its own place, or below debugfs on older systems.
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
        "no tracefs at {}: mount it (mount -t tracefs nodev {}), or do without latencies from the \
         block layer (--no-trace); the kernel needs CONFIG_BLK_DEV_IO_TRACE",
        places[0].display(),
        places[0].display()
    )))
}

/// Whether a drive can be traced here, without changing anything.
pub fn check(system: &System) -> Result<(), HostError> {
    decoder(&tracefs(system)?.join("events/block"), &Kind::EVENTS).map(drop)
}

/// A kind of event, its name, and whether every kernel has it.
type Wanted = (Kind, &'static str, bool);

/// What takes a drive's events, in the order of time.
pub trait Sink: Send + 'static {
    /// The next event.
    fn event(&mut self, event: &RequestEvent) -> Result<(), HostError>;
    /// This many events are missing here.
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
                     CONFIG_BLK_DEV_IO_TRACE; do without latencies from the block layer \
                     (--no-trace)",
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

/// A folder in `instances`; it is removed when this goes.
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

    /// Has the block layer's events of one drive recorded, `devs` being it and its
    /// partitions.
    fn enable(&self, devs: &[u32], wanted: &[Wanted]) -> Result<(), HostError> {
        // Before any event, so that no other clock's times are in the buffer.
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

    /// What the kernel itself counts as lost: overwritten before it was read,
    /// or dropped.
    fn lost(&self) -> u64 {
        let cpus = self.cpus().into_iter();
        let stats = cpus.map(|cpu| {
            let path = self.folder.join("per_cpu").join(cpu).join("stats");
            read("read a buffer's counters", &path).unwrap_or_default()
        });
        stats.map(|text| lost(&text)).fold(0, u64::saturating_add)
    }
}

/// The counts of lost events in `per_cpu/cpuN/stats`.
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

/// What a recording came to.
#[derive(Debug)]
pub struct Recording<S> {
    /// What took the events.
    pub sink: S,
    /// Events read.
    pub events: u64,
    /// Events lost, by the kernel's own count.
    pub lost: u64,
}

/// A recording under way.
#[derive(Debug)]
pub struct Session<S: Sink> {
    // The reader's files must be closed before the instance is removed.
    reader: Option<JoinHandle<Result<Recording<S>, HostError>>>,
    stop: Arc<AtomicBool>,
    instance: Instance,
}

impl<S: Sink> Session<S> {
    /// Begins to record the `wanted` events of a drive and its partitions.
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
            // Names are `cpu` and a number, or they are none of ours.
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

    /// Whether the reader gave up; [`Session::finish`] tells why.
    pub fn has_ended(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the recording and takes what is still in the buffers.
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
        // Pages tell of losses only once a later page is read; the kernel's
        // counters tell of all.
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
        // What the reader found is of no use any more.
        let _ = self.join();
    }
}

/// One CPU's buffer.
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

    /// Reads a page; zero bytes where there is none yet.
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

/// Brings all CPUs' events into one order.
struct Reader<S> {
    pipes: Vec<Pipe>,
    decoder: Decoder,
    format: PageFormat,
    devs: Vec<u32>,
    page: Vec<u8>,
    /// Events that another CPU's may still come before.
    pending: Vec<RequestEvent>,
    sink: S,
    lost: u64,
    all_lost: u64,
    events: u64,
}

impl<S: Sink> Reader<S> {
    fn follow(&mut self, stop: &AtomicBool) -> Result<(), HostError> {
        loop {
            // Asked before the buffers are read: what is recorded after the
            // last look would be lost otherwise.
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
                // Of a CPU that was not read to its end there may be events
                // older than those of the others.
                continue;
            }
            let until_ns = match stopping {
                true => u64::MAX,
                false => began_ns.saturating_sub(SLACK_NS),
            };
            self.hand_on(until_ns)?;
            if stopping {
                return Ok(());
            }
            std::thread::sleep(IDLE);
        }
    }

    /// Reads a CPU's buffer; whether it may hold more.
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

    /// Hands on, in order, what happened before `until_ns`.
    fn hand_on(&mut self, until_ns: u64) -> Result<(), HostError> {
        // Stable: one CPU's events of one time stay in their order.
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

/// The clock that the trace was set to.
fn monotonic_ns() -> u64 {
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

    /// A reader over files that hold pages as the kernel would give them.
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
