//! `read_iolog`: the I/Os of a log of fio's in place of a job's own (fio's `iolog.c`).

use std::path::Path;
use std::sync::Arc;

use blklab_blk::{Op, SECTOR_SIZE};

use super::direction::{Direction, SyncKind};
use super::error::Fault;
use super::section::SectionOptions;
use super::spec::{JobSpec, Pattern, ZoneMode};
use crate::fio::JobError;
use crate::trace::iolog::{Action, Line, LineParser};
use crate::trace::{Lines, TraceError};

/// `read_iolog` and related options.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayOptions {
    /// `read_iolog`: logs, used by the processes in turn.
    pub logs: Vec<String>,
    /// `replay_no_stall`: without the pauses of the log.
    pub no_stall: bool,
    /// `replay_time_scale`, in percent: 200 is twice as fast.
    pub time_scale_percent: u32,
    /// `replay_redirect`: the file that all I/O goes to.
    pub redirect: Option<String>,
    /// `replay_scale`: offsets are divided by this; 0: by nothing.
    pub offset_divisor: u32,
    /// `replay_align`: offsets are rounded down to a multiple of this; 0: not.
    pub align_bytes: u32,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        ReplayOptions {
            logs: Vec::new(),
            no_stall: false,
            time_scale_percent: 100,
            redirect: None,
            offset_divisor: 0,
            align_bytes: 0,
        }
    }
}

/// A log that a process replays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Iolog {
    /// The files, in the order in which they appear.
    pub files: Vec<LoggedFile>,
    /// What is done, in order.
    pub entries: Vec<IologEntry>,
}

/// A file of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedFile {
    /// The name.
    pub name: String,
    /// The end of the I/O that reaches furthest.
    pub end_bytes: u64,
}

/// One line of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IologEntry {
    /// The least time since the entry before it; 0: none.
    pub delay_ns: u64,
    /// The earliest time since fio's start; 0: any.
    pub not_before_ns: u64,
    /// The index of the file.
    pub file: u32,
    /// What is done.
    pub action: IologAction,
}

/// What an entry of a log does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IologAction {
    /// Nothing: it only names the file.
    Add,
    /// The file is opened.
    Open,
    /// The file is closed.
    Close,
    /// An I/O.
    Io {
        /// Its direction.
        direction: Direction,
        /// Its first byte in the file.
        offset_bytes: u64,
        /// Its length in bytes.
        length_bytes: u32,
    },
    /// A flush.
    Flush(SyncKind),
}

/// A log while it is read.
struct Builder<'a> {
    options: &'a ReplayOptions,
    log: Iolog,
    last_us: u64,
}

impl Iolog {
    /// Reads the log at `path`.
    fn read(path: &str, options: &ReplayOptions) -> Result<Iolog, String> {
        let text_of = |error: TraceError| error.to_string();
        let mut lines = Lines::open(Path::new(path)).map_err(text_of)?;
        let mut parser = LineParser::default();
        let mut builder = Builder {
            options,
            log: Iolog::default(),
            last_us: 0,
        };
        while lines.advance().map_err(text_of)? {
            let parsed = parser.parse(lines.current());
            let at = |what: String| format!("{path}:{}: {what}", lines.number());
            if let Some(line) = parsed.map_err(|fault| at(fault.to_string()))? {
                builder.add(&line, parser.has_times()).map_err(at)?;
            }
        }
        match builder.log.entries.is_empty() {
            true => Err(format!("{path}: there is no I/O in it")),
            false => Ok(builder.log),
        }
    }

    /// Whether it has I/Os in that direction.
    fn does(&self, wanted: Direction) -> bool {
        let is_wanted = |entry: &IologEntry| matches!(entry.action, IologAction::Io { direction, .. } if direction == wanted);
        self.entries.iter().any(is_wanted)
    }
}

impl Builder<'_> {
    fn add(&mut self, line: &Line<'_>, has_times: bool) -> Result<(), String> {
        let (delay_ns, not_before_ns) = match has_times {
            true => (self.delay_ns(line.at_us), 0),
            // `read_iolog_get` waits for a moment, which `replay_time_scale` does not move.
            false if self.options.no_stall => (0, 0),
            false => (0, line.at_us.saturating_mul(1000)),
        };
        let file = self.file_of(line.file);
        let action = match line.action {
            Action::Add => IologAction::Add,
            Action::Open => IologAction::Open,
            Action::Close => IologAction::Close,
            Action::Sync => IologAction::Flush(SyncKind::Fsync),
            Action::DataSync => IologAction::Flush(SyncKind::Fdatasync),
            Action::Io {
                op,
                offset_bytes,
                length_bytes,
            } => self.io(file, op, offset_bytes, length_bytes)?,
        };
        self.log.entries.push(IologEntry {
            delay_ns,
            not_before_ns,
            file,
            action,
        });
        Ok(())
    }

    /// The time since the line before it (`delay_since_ttime`, which knows no line at 0).
    fn delay_ns(&mut self, at_us: u64) -> u64 {
        let last_us = std::mem::replace(&mut self.last_us, at_us);
        if last_us == 0 || self.options.no_stall {
            return 0;
        }
        let past_ns = u128::from(at_us.saturating_sub(last_us)) * 1000;
        let scaled = past_ns * 100 / u128::from(self.options.time_scale_percent.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    fn file_of(&mut self, name: &str) -> u32 {
        let name = self.options.redirect.as_deref().unwrap_or(name);
        let files = &mut self.log.files;
        let known = files.iter().position(|file| file.name == name);
        let number = known.unwrap_or_else(|| {
            files.push(LoggedFile {
                name: name.to_string(),
                end_bytes: 0,
            });
            files.len() - 1
        });
        number as u32
    }

    fn io(
        &mut self,
        file: u32,
        op: Op,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<IologAction, String> {
        let scaled = offset_bytes / u64::from(self.options.offset_divisor.max(1));
        let align = u64::from(self.options.align_bytes.max(1));
        let offset_bytes = scaled - scaled % align;
        for bytes in [offset_bytes, length_bytes] {
            if !bytes.is_multiple_of(SECTOR_SIZE) {
                return Err(format!(
                    "{bytes} bytes are not whole sectors; for offsets give replay_align=4k"
                ));
            }
        }
        let length_bytes = u32::try_from(length_bytes).map_err(|_| {
            format!("{length_bytes} bytes are too many for one I/O (less than 4 GiB)")
        })?;
        let end_bytes = offset_bytes + u64::from(length_bytes);
        let file = &mut self.log.files[file as usize];
        file.end_bytes = file.end_bytes.max(end_bytes);
        Ok(IologAction::Io {
            direction: match op {
                Op::Read => Direction::Read,
                Op::Discard => Direction::Trim,
                _ => Direction::Write,
            },
            offset_bytes,
            length_bytes,
        })
    }
}

/// Reads the logs of a job, and has its files, directions and sizes be theirs.
pub(super) fn fit(section: &mut SectionOptions) -> Result<(), JobError> {
    let options = section.spec.replay.clone();
    if options.logs.is_empty() {
        return Ok(());
    }
    check(section)?;
    let mut logs = Vec::new();
    for path in &options.logs {
        let log = Iolog::read(path, &options);
        logs.push(Arc::new(
            log.map_err(|what| section.refuse("read_iolog", Fault::new(what)))?,
        ));
    }
    let does = |direction| logs.iter().any(|log| log.does(direction));
    let spec = &mut section.spec;
    spec.pattern = match Direction::ALL.map(does) {
        [true, false, _] => Pattern::Read,
        [true, true, _] => Pattern::ReadWrite,
        [false, true, _] => Pattern::Write,
        [false, false, _] => Pattern::Trim,
    };
    let lengths = |log: &Arc<Iolog>| {
        let length = |entry: &IologEntry| match entry.action {
            IologAction::Io { length_bytes, .. } => Some(u64::from(length_bytes)),
            _ => None,
        };
        log.entries.iter().filter_map(length).collect::<Vec<_>>()
    };
    let lengths: Vec<u64> = logs.iter().flat_map(lengths).collect();
    for direction in Direction::ALL {
        let sizes = &mut spec.block_sizes[direction];
        sizes.min_bytes = lengths.iter().copied().min().unwrap_or(SECTOR_SIZE);
        sizes.max_bytes = lengths.iter().copied().max().unwrap_or(SECTOR_SIZE);
        spec.align_bytes[direction] = sizes.min_bytes;
    }
    (spec.size, spec.file_count) = (None, 1);
    spec.iologs = logs;
    Ok(())
}

/// Refuses what a log does not go together with.
fn check(section: &SectionOptions) -> Result<(), JobError> {
    let spec: &JobSpec = &section.spec;
    let others = [
        ("verify", spec.verify.is_on()),
        ("zonemode", spec.zones.mode != ZoneMode::None),
        ("loops", spec.loops > 1),
        ("fill_device", spec.fill_device),
    ];
    match others.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(section.refuse(
            option,
            Fault::new("read_iolog is also given, and its I/Os are those of a log")
                .help("one or the other"),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &str, options: &ReplayOptions) -> Result<Iolog, String> {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        std::fs::write(file.path(), format!("fio version 3 iolog\n{lines}")).expect("written");
        Iolog::read(&file.path().display().to_string(), options)
    }

    #[test]
    fn delays_are_those_between_lines_as_fio_counts_them() {
        let lines = "0 /x add\n10 /x open\n15 /x read 4096 8192\n20 /x sync\n";
        let delays = |options: &ReplayOptions| {
            let log = log(lines, options).expect("it is right");
            log.entries.iter().map(|e| e.delay_ns).collect::<Vec<_>>()
        };
        let plain = ReplayOptions::default();
        // fio takes a line at 0 for none.
        assert_eq!(delays(&plain), [0, 0, 5000, 5000]);
        let faster = ReplayOptions {
            time_scale_percent: 200,
            ..plain.clone()
        };
        assert_eq!(delays(&faster), [0, 0, 2500, 2500]);
        let stalls = ReplayOptions {
            no_stall: true,
            ..plain
        };
        assert_eq!(delays(&stalls), [0; 4]);
    }

    /// fio 3.33 takes 0.9 s for two waits until the same second, most of the rest for its start.
    #[test]
    fn waits_of_version_2_are_moments_since_the_start() {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        let text = "fio version 2 iolog\n/x add\n/x open\n/x read 0 4096\n/x wait 1000 0\n\
                    /x read 8192 4096\n/x wait 1000 0\n/x read 0 4096\n/x close\n";
        std::fs::write(file.path(), text).expect("written");
        let path = file.path().display().to_string();
        let moments = |options: &ReplayOptions| {
            let log = Iolog::read(&path, options).expect("it is right");
            log.entries
                .iter()
                .map(|e| e.not_before_ns / 1_000_000)
                .collect::<Vec<_>>()
        };
        let plain = ReplayOptions::default();
        assert_eq!(moments(&plain), [0, 0, 0, 1000, 1000, 1000]);
        let stalls = ReplayOptions {
            no_stall: true,
            ..plain.clone()
        };
        assert_eq!(moments(&stalls), [0; 6]);
        std::fs::write(file.path(), text.replace("1000 0", "1000")).expect("written");
        let refused = Iolog::read(&path, &plain).expect_err("fio refuses it");
        assert!(refused.contains(":5: column "), "{refused}");
    }

    #[test]
    fn offsets_are_scaled_aligned_and_redirected() {
        let options = ReplayOptions {
            offset_divisor: 2,
            align_bytes: 4096,
            redirect: Some("/dev/z".into()),
            ..ReplayOptions::default()
        };
        let log = log("1 /x read 20992 512\n2 /y write 8192 4096\n", &options).expect("right");
        let expected = LoggedFile {
            name: "/dev/z".into(),
            end_bytes: 8704,
        };
        assert_eq!(log.files, [expected]);
        assert!(log.does(Direction::Read) && log.does(Direction::Write));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let plain = ReplayOptions::default();
        let error = log("1 /x read 100 512\n", &plain).expect_err("no whole sectors");
        assert!(
            error.contains(":2: 100 bytes are not whole sectors"),
            "{error}"
        );
        let error = log("1 /x read 512\n", &plain).expect_err("no length");
        assert!(error.contains(":2: column"), "{error}");
        assert!(log("", &plain).is_err());
    }
}
