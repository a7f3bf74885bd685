//! Applications of several tasks as lists of calls, each step a program of its own: how
//! long that ran is what the step took.

use std::fmt::{self, Write};

/// Bytes of a page, in which `cachestat` counts.
pub const PAGE_BYTES: u64 = 4096;

/// What a program reads or writes at once. The applications give the kernel a whole file
/// in one call, which copies page by page; a call here is copied when it is over.
const CHUNK_BYTES: u64 = 1 << 20;

/// The applications of a row.
pub struct Workflow {
    /// How many there are at once, each with its own files.
    pub instances: usize,
    /// The length of every file.
    pub file_bytes: u64,
    /// Files that each reads; it writes as many.
    pub tasks: usize,
    /// What each computes in each task.
    pub compute_s: Vec<f64>,
    /// Whether that is how long it took, with all that slowed it down.
    pub is_compute_elapsed: bool,
    /// Whether files that it writes are there from before.
    pub overwrites: bool,
    /// Whether the cached pages of each file are counted after each step.
    pub counts_cached: bool,
    /// How long the machine is watched at least.
    pub watched_s: f64,
}

/// Kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The task's file is read into memory.
    Read,
    /// The program computes.
    Compute,
    /// The memory is written to the next file, and freed.
    Write,
}

/// A step of a task, which is counted from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskStep {
    /// What it does.
    pub kind: Kind,
    /// The task.
    pub task: usize,
}

impl Kind {
    const ALL: [(&'static str, Kind); 3] = [
        ("read", Kind::Read),
        ("compute", Kind::Compute),
        ("write", Kind::Write),
    ];

    /// What is measured of it.
    pub fn metric(self) -> &'static str {
        match self {
            Kind::Read => "read s",
            Kind::Compute => "compute s",
            Kind::Write => "write s",
        }
    }
}

impl TaskStep {
    /// The step that the set calls so.
    ///
    /// # Errors
    /// Where it is none.
    pub fn parse(name: &str) -> Result<TaskStep, String> {
        let found = name.split_once('_').and_then(|(kind, task)| {
            let (_, kind) = Kind::ALL.into_iter().find(|(known, _)| *known == kind)?;
            let task = task.parse().ok()?;
            Some(TaskStep { kind, task })
        });
        found.ok_or_else(|| format!("found step {name}, legal are read_1, compute_1, write_1 ..."))
    }
}

impl fmt::Display for TaskStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Kind::ALL.into_iter().find(|(_, kind)| *kind == self.kind);
        write!(f, "{}_{}", known.map_or("", |(name, _)| name), self.task)
    }
}

/// Rounds of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Warming,
    Measured,
}

/// The program that ends when the measured round begins.
pub const BETWEEN: &str = "between";

/// The program that only sleeps.
const WATCH: &str = "watch";

fn name_in(round: Round, instance: usize, step: TaskStep) -> String {
    match round {
        Round::Warming => format!("warm{instance}/{step}"),
        Round::Measured => format!("app{instance}/{step}"),
    }
}

/// The program of an application's step.
pub fn step_name(instance: usize, step: TaskStep) -> String {
    name_in(Round::Measured, instance, step)
}

/// The program that counts the cached pages of a file after a step.
pub fn counter_name(after: TaskStep, file: usize) -> String {
    format!("count/{after}-{file}")
}

impl Workflow {
    /// The steps in their order.
    pub fn steps(&self) -> impl Iterator<Item = TaskStep> {
        let of_task = |task| Kind::ALL.map(|(_, kind)| TaskStep { kind, task });
        (1..=self.tasks).flat_map(of_task)
    }

    /// Its list of calls: all applications twice, because the kernel's estimates of how
    /// fast the drive writes and of how much may be dirty are those of the repetition
    /// before. Programs of a step follow each other, so that they have CPUs of their own.
    pub fn list(&self) -> String {
        let mut text = String::new();
        for instance in 0..self.instances {
            let there = if self.overwrites { self.tasks + 1 } else { 1 };
            for file in 1..=there {
                let path = path(instance, file);
                line(&mut text, format_args!("file {path} {}", self.file_bytes));
            }
        }
        self.add_round(&mut text, Round::Warming);
        self.add_round(&mut text, Round::Measured);
        self.add_counters(&mut text);
        self.add_between(&mut text);
        let watched_ms = (self.watched_s * 1e3) as u64;
        line(&mut text, format_args!("[{WATCH}]\nsleep {watched_ms}ms"));
        text
    }

    /// Adds the programs of all steps.
    fn add_round(&self, text: &mut String, round: Round) {
        let steps: Vec<TaskStep> = self.steps().collect();
        for (place, step) in steps.iter().enumerate() {
            for instance in 0..self.instances {
                let name = name_in(round, instance, *step);
                line(text, format_args!("[{name}]"));
                self.add_step(text, instance, *step);
                if instance == 0 && round == Round::Measured {
                    self.start_counters(text, *step);
                }
                if let Some(next) = steps.get(place + 1) {
                    let next = name_in(round, instance, *next);
                    line(text, format_args!("start {next}"));
                }
            }
        }
    }

    /// Adds the program that waits for the first round and has the second one begin, as
    /// new as the first.
    fn add_between(&self, text: &mut String) {
        let instances = || 0..self.instances;
        line(text, format_args!("[{BETWEEN}]"));
        if let Some(last) = self.steps().last() {
            for instance in instances() {
                let name = name_in(Round::Warming, instance, last);
                line(text, format_args!("wait {name}"));
            }
        }
        line(text, format_args!("sync"));
        for instance in instances().filter(|_| !self.overwrites) {
            for file in 2..=self.tasks + 1 {
                line(text, format_args!("unlink {}", path(instance, file)));
            }
        }
        line(text, format_args!("drop_caches 3\nstart {WATCH}"));
        let first = TaskStep {
            kind: Kind::Read,
            task: 1,
        };
        for instance in instances() {
            line(text, format_args!("start {}", step_name(instance, first)));
        }
    }

    fn add_step(&self, text: &mut String, instance: usize, step: TaskStep) {
        let (chunks, rest) = (self.file_bytes / CHUNK_BYTES, self.file_bytes % CHUNK_BYTES);
        let path = |file| path(instance, file);
        let body = match step.kind {
            Kind::Read => format!(
                "open in {} read\nrepeat {chunks}\nmalloc {CHUNK_BYTES}\nread in {CHUNK_BYTES}\n\
                 end\nmalloc {rest}\nread in {rest}\nclose in",
                path(step.task)
            ),
            Kind::Compute => {
                let compute_s = self.compute_s.get(step.task - 1).copied();
                let passes = match self.is_compute_elapsed {
                    true => "sleep",
                    false => "think",
                };
                format!("{passes} {}ms", (compute_s.unwrap_or(0.0) * 1e3) as u64)
            }
            Kind::Write => format!(
                "open out {} write create truncate\nrepeat {chunks}\nwrite out {CHUNK_BYTES}\nend\n\
                 write out {rest}\nclose out\nfree {}",
                path(step.task + 1),
                self.file_bytes
            ),
        };
        line(text, format_args!("{body}"));
    }

    /// Files of the first application that are there after a step, by their numbers.
    fn files_after(&self, step: TaskStep) -> std::ops::RangeInclusive<usize> {
        1..=step.task + usize::from(step.kind == Kind::Write)
    }

    fn start_counters(&self, text: &mut String, after: TaskStep) {
        if self.counts_cached && after.kind != Kind::Compute {
            for file in self.files_after(after) {
                line(text, format_args!("start {}", counter_name(after, file)));
            }
        }
    }

    fn add_counters(&self, text: &mut String) {
        let counted = |step: &TaskStep| self.counts_cached && step.kind != Kind::Compute;
        for step in self.steps().filter(counted) {
            for file in self.files_after(step) {
                let (name, path) = (counter_name(step, file), path(0, file));
                let handle = format!("{step}-{file}");
                line(
                    text,
                    format_args!(
                        "[{name}]\nopen {handle} {path} read\ncachestat {handle}\nclose {handle}"
                    ),
                );
            }
        }
    }
}

fn path(instance: usize, file: usize) -> String {
    format!("/app{instance}-{file}")
}

fn line(text: &mut String, what: fmt::Arguments<'_>) {
    // A text takes all that is written to it.
    let _ = writeln!(text, "{what}");
}
