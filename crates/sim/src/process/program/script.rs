//! A program's calls, ready to be made: files and paths are known to the file layer, and
//! loops are jumps.

use std::collections::BTreeMap;

use blklab_fs::{Advice, OpenFlags};
use blklab_workload::calls::{
    self, CALLS, Call as Listed, CallError, CallList, Errno, Made, Path, Program, ProgramName,
    RangeSync, Step,
};

use crate::file_layer::{self, Call, Durability, FileId, FileLayer, PathId};

/// An instruction of a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    /// The action of that number.
    Act(usize),
    /// What is up to the loop's end is done so often; with none it goes on there.
    Repeat { times: u64, end: usize },
    /// The end of the loop that begins there.
    End { begin: usize },
}

/// A call with what it names.
#[derive(Clone, Debug)]
pub(super) struct Action {
    /// The place of its kind among all calls.
    pub(super) kind: usize,
    pub(super) error: Option<Errno>,
    pub(super) line: u32,
    pub(super) what: What,
}

/// What is done.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A file is opened under the handle of that number.
    Open { handle: usize, open: Open },
    /// A call on what the handle of that number has open.
    OnFile { handle: usize, call: OnFile },
    /// A call on names, or on all of the file system.
    Other(Call),
    /// The program sleeps for so many nanoseconds.
    Sleep(u64),
    /// It computes.
    Think(u64),
    /// Another program begins.
    Start(usize),
    /// Another program's end is awaited.
    Wait(usize),
    /// A call that the file system has not: it fails with this.
    Refused(i32),
}

/// A file and how it is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) file: FileId,
    pub(super) flags: OpenFlags,
    pub(super) direct: bool,
    pub(super) sync: Option<Durability>,
}

/// A call on an open file.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnFile {
    Close,
    /// At the position, or at a byte.
    Read {
        bytes: u64,
        at: Option<u64>,
    },
    Write {
        bytes: u64,
        at: Option<u64>,
    },
    Seek {
        to: u64,
    },
    Sync(Durability),
    SyncRange(RangeSync),
    Resize {
        bytes: u64,
    },
    Advise {
        at: u64,
        bytes: u64,
        advice: Advice,
    },
    ReadDir,
}

/// A program's instructions and actions.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    pub(super) instructions: Vec<Instruction>,
    pub(super) actions: Vec<Action>,
}

/// What a script is made with.
pub(super) struct Names<'a> {
    pub(super) layer: &'a mut FileLayer,
    pub(super) file: &'a str,
    pub(super) list: &'a CallList,
    /// Handles of each process, by their names.
    pub(super) handles: BTreeMap<(String, String), usize>,
    /// How many there are of each process.
    pub(super) handles_of: BTreeMap<String, usize>,
}

impl Names<'_> {
    /// The instructions of a program.
    ///
    /// # Errors
    /// Where a call is of a kind that is not simulated.
    pub(super) fn script(&mut self, program: &Program) -> Result<Script, CallError> {
        let mut script = Script::default();
        self.add(&mut script, &program.name, &program.steps)?;
        Ok(script)
    }

    fn add(
        &mut self,
        script: &mut Script,
        name: &ProgramName,
        steps: &[Step],
    ) -> Result<(), CallError> {
        for step in steps {
            match step {
                Step::Call(made) => {
                    let action = self.action(name, made)?;
                    let number = script.actions.len();
                    script.actions.push(action);
                    script.instructions.push(Instruction::Act(number));
                }
                Step::Repeat { times, steps } => {
                    let begin = script.instructions.len();
                    let times = *times;
                    (script.instructions).push(Instruction::Repeat { times, end: begin });
                    self.add(script, name, steps)?;
                    let end = script.instructions.len();
                    script.instructions.push(Instruction::End { begin });
                    script.instructions[begin] = Instruction::Repeat { times, end };
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, name: &ProgramName, handle: &calls::Handle) -> usize {
        let count = self.handles_of.entry(name.process.clone()).or_default();
        let key = (name.process.clone(), handle.0.clone());
        *self.handles.entry(key).or_insert_with(|| {
            *count += 1;
            *count - 1
        })
    }

    fn text<'p>(&self, path: &'p [u8], line: u32) -> Result<&'p str, CallError> {
        std::str::from_utf8(path).map_err(|_| CallError {
            file: self.file.to_string(),
            line,
            message: NOT_UTF8.to_string(),
        })
    }

    fn path(&mut self, path: &Path, line: u32) -> Result<PathId, CallError> {
        let text = self.text(&path.0, line)?;
        Ok(self.layer.add_path(text))
    }

    /// The number of another program of the list.
    fn program(&self, name: &ProgramName) -> usize {
        let programs = self.list.programs.iter();
        programs.take_while(|program| program.name != *name).count()
    }

    fn action(&mut self, name: &ProgramName, made: &Made) -> Result<Action, CallError> {
        let kind = CALLS.iter().position(|call| call.name == made.call.name());
        Ok(Action {
            kind: kind.unwrap_or(0),
            error: made.error,
            line: made.line,
            what: self.what(name, made)?,
        })
    }

    fn what(&mut self, name: &ProgramName, made: &Made) -> Result<What, CallError> {
        let line = made.line;
        if let Some(file) = made.call.file() {
            let handle = self.handle(name, file);
            return Ok(match on_file(&made.call) {
                Some(call) => What::OnFile { handle, call },
                None if matches!(made.call, Listed::Syncfs { .. }) => What::Other(Call::SyncAll),
                None => What::Refused(NOT_SUPPORTED),
            });
        }
        Ok(match &made.call {
            Listed::Open { file, path, how } => {
                let handle = self.handle(name, file);
                let path = self.text(&path.0, line)?;
                let file = self.layer.open_in_tree(path);
                What::Open {
                    handle,
                    open: open(file, *how),
                }
            }
            Listed::Sync {} => What::Other(Call::SyncAll),
            Listed::Truncate { path, bytes } => What::Other(Call::Truncate {
                path: self.path(path, line)?,
                bytes: bytes.0,
            }),
            Listed::Unlink { path } => What::Other(Call::Unlink {
                path: self.path(path, line)?,
            }),
            Listed::Rename { from, to } => What::Other(Call::Rename {
                from: self.path(from, line)?,
                to: self.path(to, line)?,
            }),
            Listed::Link { path, new } => What::Other(Call::Link {
                from: self.path(path, line)?,
                to: self.path(new, line)?,
            }),
            Listed::Symlink { target, path } => What::Other(Call::Symlink {
                target: self.path(&Path(target.0.clone()), line)?,
                path: self.path(path, line)?,
            }),
            Listed::Mkdir { path } => What::Other(Call::MakeDir {
                path: self.path(path, line)?,
                permissions: 0o755,
            }),
            Listed::Rmdir { path } => What::Other(Call::RemoveDir {
                path: self.path(path, line)?,
            }),
            Listed::Stat { path } => What::Other(Call::Stat {
                path: self.path(path, line)?,
                follow: true,
            }),
            Listed::Lstat { path } => What::Other(Call::Stat {
                path: self.path(path, line)?,
                follow: false,
            }),
            Listed::ListAll { path } => What::Other(Call::ListAll {
                path: self.path(path, line)?,
            }),
            Listed::DropCaches { what } => What::Other(Call::DropCaches(what.0)),
            Listed::Sleep { time } => What::Sleep(time.0),
            Listed::Think { time } => What::Think(time.0),
            Listed::Start { program } => What::Start(self.program(program)),
            Listed::Wait { program } => What::Wait(self.program(program)),
            _ => What::Refused(NOT_SUPPORTED),
        })
    }
}

/// What is wrong with a path of other bytes.
const NOT_UTF8: &str = "a path that is no UTF-8 is not simulated; give it another name";

/// `EOPNOTSUPP`.
pub(super) const NOT_SUPPORTED: i32 = 95;

/// A call on an open file; `None` for one that is of all of the file system, or that
/// ext2 does not have and FAT not as simulated (`fallocate`).
fn on_file(call: &Listed) -> Option<OnFile> {
    Some(match *call {
        Listed::Close { .. } => OnFile::Close,
        Listed::Read { bytes, .. } => OnFile::Read {
            bytes: bytes.0,
            at: None,
        },
        Listed::Pread { bytes, at, .. } => OnFile::Read {
            bytes: bytes.0,
            at: Some(at.0),
        },
        Listed::Write { bytes, .. } => OnFile::Write {
            bytes: bytes.0,
            at: None,
        },
        Listed::Pwrite { bytes, at, .. } => OnFile::Write {
            bytes: bytes.0,
            at: Some(at.0),
        },
        Listed::Lseek { at, .. } => OnFile::Seek { to: at.0 },
        Listed::Fsync { .. } => OnFile::Sync(Durability::All),
        Listed::Fdatasync { .. } => OnFile::Sync(Durability::Data),
        Listed::SyncFileRange { what, .. } => OnFile::SyncRange(what),
        Listed::Ftruncate { bytes, .. } => OnFile::Resize { bytes: bytes.0 },
        Listed::Fadvise {
            at, bytes, advice, ..
        } => OnFile::Advise {
            at: at.0,
            bytes: bytes.0,
            advice: advice_of(advice),
        },
        // The kernel's `readahead` is this advice (`ksys_readahead`).
        Listed::Readahead { at, bytes, .. } => OnFile::Advise {
            at: at.0,
            bytes: bytes.0,
            advice: Advice::WillNeed,
        },
        Listed::Readdir { .. } => OnFile::ReadDir,
        _ => return None,
    })
}

fn advice_of(advice: calls::Advice) -> Advice {
    match advice {
        calls::Advice::Normal => Advice::Normal,
        calls::Advice::Sequential => Advice::Sequential,
        calls::Advice::Random => Advice::Random,
        calls::Advice::NoReuse => Advice::NoReuse,
        calls::Advice::WillNeed => Advice::WillNeed,
        calls::Advice::DontNeed => Advice::DontNeed,
    }
}

fn open(file: FileId, how: calls::OpenFlags) -> Open {
    use calls::OpenFlags as Flags;
    let has = |flag| how.has(flag);
    Open {
        file,
        flags: OpenFlags {
            read: has(Flags::READ),
            write: has(Flags::WRITE),
            create: has(Flags::CREATE).then_some(0o644),
            exclusive: has(Flags::EXCLUSIVE),
            truncate: has(Flags::TRUNCATE),
            append: has(Flags::APPEND),
            directory: has(Flags::DIRECTORY),
            no_follow: has(Flags::NOFOLLOW),
        },
        direct: has(Flags::DIRECT),
        sync: match (has(Flags::SYNC), has(Flags::DSYNC)) {
            (true, _) => Some(Durability::All),
            (false, true) => Some(Durability::Data),
            (false, false) => None,
        },
    }
}

/// What is there before the first call, for the file layer.
///
/// # Errors
/// Where a path is no UTF-8.
pub(super) fn prepared(list: &CallList, file: &str) -> Result<Vec<file_layer::NewFile>, CallError> {
    let files = list.prepared.iter().map(|prepared| {
        let path = std::str::from_utf8(&prepared.path.0).map_err(|_| CallError {
            file: file.to_string(),
            line: prepared.line,
            message: NOT_UTF8.to_string(),
        })?;
        Ok(match prepared.file {
            Some(bytes) => file_layer::NewFile {
                path: path.to_string(),
                contents: file_layer::Contents::Written(bytes.0),
            },
            None => file_layer::NewFile {
                // Of a path only the folder that its last name is in is made.
                path: format!("{path}/."),
                contents: file_layer::Contents::Nothing,
            },
        })
    });
    files.collect()
}
