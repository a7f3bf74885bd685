//! A real drive to be probed: direct I/O, with a thread for each I/O in flight.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use blklab_probe::{Batch, Io, ProbeError, Target};
use rustix::fs::OFlags;

use crate::disk::Disk;
use crate::error::HostError;
use crate::interrupt::Interrupts;
use crate::system::{System, read};

/// The most I/Os in flight.
const THREADS: usize = 128;

/// Alignment of memory for direct I/O, enough for any drive.
const ALIGN: usize = 4096;

/// Interval at which a pause checks for signals.
const POLL: Duration = Duration::from_millis(50);

/// An I/O with its index in the batch.
type Job = (usize, Io);

/// Index and thread of a completed I/O, with its start and end or its error.
type Answer = (usize, usize, Result<(Instant, Instant), std::io::Error>);

/// A drive to be probed.
pub struct ProbeTarget {
    capacity_bytes: u64,
    block_bytes: u64,
    is_rotational: bool,
    device: String,
    jobs: Vec<Sender<Job>>,
    answers: Receiver<Answer>,
    threads: Vec<JoinHandle<()>>,
    interrupts: Interrupts,
}

impl ProbeTarget {
    /// Opens a drive, for writing only if `writes` is set.
    pub fn open(system: &System, disk: &Disk, writes: bool) -> Result<ProbeTarget, HostError> {
        let file = OpenOptions::new()
            .read(true)
            .write(writes)
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            .open(&disk.path)
            .map_err(|e| HostError::io("open the drive", &disk.path, e))?;
        let number = |name: &str| {
            let path = disk.folder(system).join("queue").join(name);
            read("read the queue", &path)
                .ok()?
                .trim()
                .parse::<u64>()
                .ok()
        };
        let file = Arc::new(file);
        let (answer, answers) = channel();
        let (mut jobs, mut threads) = (Vec::new(), Vec::new());
        for thread in 0..THREADS {
            let (job, todo) = channel();
            let (file, answer) = (Arc::clone(&file), answer.clone());
            threads.push(std::thread::spawn(move || {
                work(thread, &file, &todo, &answer);
            }));
            jobs.push(job);
        }
        Ok(ProbeTarget {
            capacity_bytes: disk.size_bytes(system)?,
            block_bytes: number("physical_block_size").unwrap_or(4096),
            is_rotational: number("rotational") == Some(1),
            device: disk.path.display().to_string(),
            jobs,
            answers,
            threads,
            interrupts: Interrupts::watch()?,
        })
    }

    fn check(&self) -> Result<(), ProbeError> {
        match self.interrupts.check() {
            Err(HostError::Interrupted(signal)) => Err(ProbeError::Interrupted(signal)),
            _ => Ok(()),
        }
    }

    fn broken(&self, error: &dyn std::fmt::Display) -> ProbeError {
        ProbeError::Io(format!("{}: {error}", self.device))
    }
}

/// Serves I/Os one after the other, in a thread.
fn work(thread: usize, file: &File, todo: &Receiver<Job>, answer: &Sender<Answer>) {
    let mut memory = Vec::new();
    while let Ok((number, io)) = todo.recv() {
        let bytes = io.bytes as usize;
        if memory.len() < bytes + ALIGN {
            memory.resize(bytes + ALIGN, 0x5a_u8);
        }
        let skip = memory.as_ptr().align_offset(ALIGN);
        let place = &mut memory[skip..skip + bytes];
        let began = Instant::now();
        let done = match io.is_write {
            true => file.write_all_at(place, io.offset),
            false => file.read_exact_at(place, io.offset),
        };
        let done = done.map(|()| (began, Instant::now()));
        if answer.send((number, thread, done)).is_err() {
            return;
        }
    }
}

impl Target for ProbeTarget {
    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    fn is_rotational(&self) -> bool {
        self.is_rotational
    }

    fn rotational_source(&self) -> String {
        // A virtual machine's disk has 1 there whatever is behind it, unless its driver says more.
        "the kernel's queue/rotational (1, as many virtual disks have it)".to_string()
    }

    fn run(&mut self, ios: &[Io], depth: usize) -> Result<Batch, ProbeError> {
        self.check()?;
        let mut batch = Batch {
            elapsed_ns: 0,
            latencies_ns: vec![0; ios.len()],
            ended_ns: vec![0; ios.len()],
        };
        let start = Instant::now();
        let ns = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let mut free: Vec<usize> = (0..depth.clamp(1, THREADS)).rev().collect();
        let (mut next, mut ended) = (0, 0);
        while ended < ios.len() {
            while next < ios.len()
                && let Some(thread) = free.pop()
            {
                let sent = self.jobs[thread].send((next, ios[next]));
                sent.map_err(|error| self.broken(&error))?;
                next += 1;
            }
            let answer = self.answers.recv();
            let (number, thread, done) = answer.map_err(|error| self.broken(&error))?;
            let (began, end) = done.map_err(|error| self.broken(&error))?;
            batch.latencies_ns[number] = ns(end - began);
            batch.ended_ns[number] = ns(end.saturating_duration_since(start));
            free.push(thread);
            ended += 1;
        }
        batch.elapsed_ns = batch.ended_ns.iter().copied().max().unwrap_or(0);
        Ok(batch)
    }

    fn rest(&mut self, ns: u64) {
        let end = Instant::now() + Duration::from_nanos(ns);
        while Instant::now() < end && self.check().is_ok() {
            std::thread::sleep(POLL.min(end.saturating_duration_since(Instant::now())));
        }
    }
}

impl Drop for ProbeTarget {
    fn drop(&mut self) {
        self.jobs.clear();
        for thread in self.threads.drain(..) {
            // The result of its last I/O is not needed.
            let _ = thread.join();
        }
    }
}
