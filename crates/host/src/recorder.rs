//! Recording of the block layer's events for a drive, in formats for other tools.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use blklab_description::NewFile;
use blklab_workload::trace::tracefs::Dev;
use blklab_workload::trace::{BlkparseWriter, BlktraceWriter};

use crate::cpu_marks::{CpuMarks, cpu_marks};
use crate::disk::{Disk, Number};
use crate::error::HostError;
use crate::interrupt::Interrupts;
use crate::system::System;
use crate::tracefs::{
    COMM_BYTES, Kind, RequestEvent, Session, Sink, TextWriter, comm_name, trace_event,
};

/// Format of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// tracefs text.
    Tracefs,
    /// Text, as blkparse prints it.
    Blkparse,
    /// blktrace's binary files, one for each CPU.
    Blktrace,
}

type Out = BufWriter<NewFile>;

/// Writer of a recording.
#[derive(Debug)]
struct Recorder {
    path: PathBuf,
    writer: Writer,
    cpus: CpuMarks,
    /// The last name of each task, because completions do not include it.
    names: BTreeMap<u32, [u8; COMM_BYTES]>,
}

#[derive(Debug)]
enum Writer {
    Tracefs(TextWriter<Out>),
    Blkparse(BlkparseWriter<Out>),
    Blktrace(PerCpu),
}

impl Recorder {
    /// Creates the file of a recording, or the first of blktrace's files.
    fn create(
        path: &Path,
        form: Form,
        drive: Number,
        cpus: CpuMarks,
    ) -> Result<Recorder, HostError> {
        let writer = match form {
            Form::Tracefs => Writer::Tracefs(TextWriter::new(create(path)?, path)?),
            Form::Blkparse => Writer::Blkparse(BlkparseWriter::new(create(path)?, drive.into())),
            Form::Blktrace => Writer::Blktrace(PerCpu::create(path, drive)?),
        };
        Ok(Recorder {
            path: path.to_path_buf(),
            writer,
            cpus,
            names: BTreeMap::new(),
        })
    }

    /// Flushes all output and gives the files their final names.
    fn finish(mut self) -> Result<(), HostError> {
        self.mark_cpus(u64::MAX)?;
        let done = match self.writer {
            Writer::Tracefs(writer) => keep(writer.finish()?),
            Writer::Blkparse(text) => keep(text.finish()),
            Writer::Blktrace(files) => files.finish(),
        };
        done.map_err(|e| fault(&self.path, e))
    }

    /// Writes the marks up to this time, into the one form that has place for them.
    fn mark_cpus(&mut self, until_ns: u64) -> Result<(), HostError> {
        match &mut self.writer {
            Writer::Tracefs(writer) => self.cpus.until(until_ns, |mark| writer.other(mark)),
            Writer::Blkparse(_) | Writer::Blktrace(_) => Ok(()),
        }
    }

    /// The name of the task of an event.
    fn task(&mut self, event: &RequestEvent) -> String {
        if event.comm[0] != 0 && self.names.get(&event.pid) != Some(&event.comm) {
            self.names.insert(event.pid, event.comm);
        }
        match (event.pid, self.names.get(&event.pid)) {
            (0, _) => "<idle>".to_string(),
            (_, Some(name)) => comm_name(name),
            // As the kernel writes an unknown name.
            (_, None) => "<...>".to_string(),
        }
    }
}

impl Sink for Recorder {
    fn event(&mut self, event: &RequestEvent) -> Result<(), HostError> {
        self.mark_cpus(event.at_ns)?;
        let task = match &mut self.writer {
            Writer::Tracefs(writer) => return writer.event(event),
            Writer::Blkparse(_) | Writer::Blktrace(_) => self.task(event),
        };
        let Some(event) = trace_event(event, &task) else {
            return Ok(());
        };
        let done = match &mut self.writer {
            Writer::Tracefs(_) => Ok(()),
            Writer::Blkparse(text) => text.event(&event),
            Writer::Blktrace(files) => files.event(&event),
        };
        done.map_err(|e| fault(&self.path, e))
    }

    fn lost(&mut self, events: u64) -> Result<(), HostError> {
        match &mut self.writer {
            Writer::Tracefs(writer) => writer.lost(events),
            Writer::Blkparse(text) => text.lost(events).map_err(|e| fault(&self.path, e)),
            Writer::Blktrace(files) => {
                files.lost += events;
                Ok(())
            }
        }
    }
}

fn create(path: &Path) -> Result<Out, HostError> {
    let file = NewFile::create(path).map_err(|e| fault(path, e))?;
    Ok(BufWriter::with_capacity(1 << 18, file))
}

fn keep(out: Out) -> io::Result<()> {
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.keep()
}

fn fault(path: &Path, error: io::Error) -> HostError {
    HostError::Output {
        path: path.to_path_buf(),
        source: error,
    }
}

/// blktrace's files, one for each CPU, as blkparse expects.
#[derive(Debug)]
struct PerCpu {
    stem: String,
    drive: Dev,
    files: Vec<Option<BlktraceWriter<Out>>>,
    /// Number of events lost since the last written one.
    lost: u64,
}

impl PerCpu {
    fn create(path: &Path, drive: Number) -> Result<PerCpu, HostError> {
        let name = path.to_string_lossy();
        let stem = name.strip_suffix(".0").unwrap_or(&name);
        let stem = stem.strip_suffix(".blktrace").unwrap_or(stem);
        let mut files = PerCpu {
            stem: stem.to_string(),
            drive: drive.into(),
            files: Vec::new(),
            lost: 0,
        };
        // An unwritable place is found before anything is recorded.
        let name = files.name(0);
        files.of(0).map_err(|e| fault(Path::new(&name), e))?;
        Ok(files)
    }

    fn name(&self, cpu: usize) -> String {
        format!("{}.blktrace.{cpu}", self.stem)
    }

    fn of(&mut self, cpu: usize) -> io::Result<&mut BlktraceWriter<Out>> {
        if self.files.len() <= cpu {
            self.files.resize_with(cpu + 1, || None);
        }
        let name = self.name(cpu);
        let drive = self.drive;
        let slot = &mut self.files[cpu];
        if slot.is_none() {
            let file = BufWriter::with_capacity(1 << 18, NewFile::create(Path::new(&name))?);
            *slot = Some(BlktraceWriter::new(file, drive));
        }
        slot.as_mut().ok_or(io::ErrorKind::NotFound.into())
    }

    fn event(&mut self, event: &blklab_workload::trace::tracefs::Event<'_>) -> io::Result<()> {
        let lost = std::mem::take(&mut self.lost);
        let file = self.of(event.cpu as usize)?;
        file.lost(lost);
        file.event(event)
    }

    fn finish(mut self) -> io::Result<()> {
        // blkparse stops at the first CPU without a file.
        for cpu in 0..self.files.len() {
            self.of(cpu)?;
        }
        let mut written = Vec::new();
        for file in self.files.into_iter().flatten() {
            let mut file = file.finish()?;
            file.flush()?;
            written.push(file);
        }
        // No file gets its final name before all are complete.
        written.into_iter().try_for_each(keep)
    }
}

/// Interval at which a recording is checked.
const POLL: Duration = Duration::from_millis(50);

/// Summary of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Number of recorded events.
    pub events: u64,
    /// Number of lost events, as far as known.
    pub lost: u64,
}

/// Writes the drive's events to `path` until `limit` has passed or a signal arrives; both keep what
/// was recorded. The drive and its queue are not changed.
pub fn record(
    system: &System,
    disk: &Disk,
    limit: Option<Duration>,
    path: &Path,
    form: Form,
) -> Result<Recorded, HostError> {
    let (mut sampler, cpus) = cpu_marks(system);
    let recorder = Recorder::create(path, form, disk.number, cpus)?;
    let interrupts = Interrupts::watch()?;
    let session = Session::start(system, disk, &Kind::RECORDED, recorder)?;
    let start = Instant::now();
    while interrupts.check().is_ok() && limit.is_none_or(|limit| start.elapsed() < limit) {
        if !disk.folder(system).exists() {
            // The recorded events are kept.
            break;
        }
        if session.has_ended() {
            break;
        }
        sampler.sample_if_due();
        std::thread::sleep(POLL);
    }
    sampler.sample();
    let recording = session.finish()?;
    recording.sink.finish()?;
    Ok(Recorded {
        events: recording.events,
        lost: recording.lost,
    })
}
