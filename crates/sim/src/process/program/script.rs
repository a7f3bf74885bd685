//! A program's calls, ready to be made: files and paths are known to the file layer, and
//! loops are jumps.

use std::collections::BTreeMap;

use blklab_fs::{Advice, MmapAdvice, OpenFlags};
use blklab_workload::calls::{
    self, CALLS, Call as Listed, CallError, CallList, Errno, Handle, Interface, Made, MapAdvice,
    Operation, Path, PreparedKind, Program, ProgramName, RangeSync, Requests, Step, SubmitFlags,
    WaitMode,
};

use crate::file_layer::{Call, Contents, Durability, FileId, FileLayer, NewFile, PathId};

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
    /// It is said what a request will do, and POSIX AIO begins it.
    Request {
        request: usize,
        work: Work,
        how: SubmitFlags,
        begins: bool,
    },
    /// Requests are given to what takes them.
    Submit {
        interface: Interface,
        requests: Vec<usize>,
        then: Then,
    },
    /// One of these is waited for.
    Suspend(Vec<usize>),
    /// So many ends of requests of `io_submit` are waited for and taken.
    TakeEvents(u64),
    /// What no thread of glibc's has begun of a file is taken back.
    CancelOf { handle: usize },
}

/// What a request does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// The action of that number, which the program itself does not come to.
    Call(usize),
    /// Nothing.
    Nop,
    /// It ends after so many nanoseconds.
    Timeout(u64),
    /// It takes the request before it back after so many nanoseconds.
    LinkTimeout(u64),
    /// It takes a request back.
    Cancel(usize),
}

/// What follows when requests are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing.
    Return,
    /// All of them are waited for.
    AwaitAll,
    /// So many ends are waited for and taken.
    Take(u64),
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
    Map {
        bytes: u64,
    },
    AdviseMapping(MmapAdvice),
    /// The program reads or writes mapped memory.
    Touch {
        at: u64,
        bytes: u64,
        write: bool,
    },
    SyncMapping,
    Unmap,
}

/// A program's instructions and actions.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    pub(super) instructions: Vec<Instruction>,
    pub(super) actions: Vec<Action>,
    /// How many requests it has names for.
    pub(super) requests: usize,
}

/// Numbers of names, from 0 on for each owner.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    by_name: BTreeMap<(String, String), usize>,
    counts: BTreeMap<String, usize>,
}

impl Numbers {
    fn number(&mut self, owner: &str, name: &str) -> usize {
        let count = self.counts.entry(owner.to_string()).or_default();
        let key = (owner.to_string(), name.to_string());
        *self.by_name.entry(key).or_insert_with(|| {
            *count += 1;
            *count - 1
        })
    }

    /// How many names an owner has.
    pub(super) fn count(&self, owner: &str) -> usize {
        self.counts.get(owner).copied().unwrap_or(0)
    }
}

/// What a script is made with.
pub(super) struct Names<'a> {
    pub(super) layer: &'a mut FileLayer,
    pub(super) file: &'a str,
    pub(super) list: &'a CallList,
    /// Open files of each process.
    pub(super) handles: Numbers,
    /// Requests of each program.
    pub(super) requests: Numbers,
}

impl Names<'_> {
    /// The instructions of a program.
    ///
    /// # Errors
    /// Where a call is of a kind that is not simulated.
    pub(super) fn script(&mut self, program: &Program) -> Result<Script, CallError> {
        let mut script = Script::default();
        self.add(&mut script, &program.name, &program.steps)?;
        script.requests = self.requests.count(&program.name.to_string());
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
                    let action = self.action(script, name, made)?;
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

    fn handle(&mut self, name: &ProgramName, handle: &Handle) -> usize {
        self.handles.number(&name.process, &handle.0)
    }

    fn request(&mut self, name: &ProgramName, request: &Handle) -> usize {
        self.requests.number(&name.to_string(), &request.0)
    }

    fn requests(&mut self, name: &ProgramName, requests: &Requests) -> Vec<usize> {
        let numbers = requests.0.iter();
        numbers.map(|request| self.request(name, request)).collect()
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

    fn action(
        &mut self,
        script: &mut Script,
        name: &ProgramName,
        made: &Made,
    ) -> Result<Action, CallError> {
        let kind = CALLS.iter().position(|call| call.name == made.call.name());
        let what = match self.of_requests(script, name, made)? {
            Some(what) => what,
            None => self.what(name, made)?,
        };
        // What a request has to fail with is the matter of its own call.
        let is_request = matches!(what, What::Request { .. });
        Ok(Action {
            kind: kind.unwrap_or(0),
            error: made.error.filter(|_| !is_request),
            line: made.line,
            what,
        })
    }

    /// A call that is about requests; `None` for all others.
    fn of_requests(
        &mut self,
        script: &mut Script,
        name: &ProgramName,
        made: &Made,
    ) -> Result<Option<What>, CallError> {
        let submit = |interface, requests, then| What::Submit {
            interface,
            requests,
            then,
        };
        Ok(Some(match &made.call {
            Listed::Prepare {
                request,
                how,
                operation,
            } => What::Request {
                request: self.request(name, request),
                work: self.work(script, name, (made, operation))?,
                how: *how,
                begins: false,
            },
            Listed::LioListio { mode, requests } => {
                let then = match mode {
                    WaitMode::Wait => Then::AwaitAll,
                    WaitMode::NoWait => Then::Return,
                };
                submit(Interface::Posix, self.requests(name, requests), then)
            }
            Listed::IoSubmit { requests } => {
                let requests = self.requests(name, requests);
                submit(Interface::Linux, requests, Then::Return)
            }
            Listed::IoUringEnter { ends, requests } => {
                let requests = self.requests(name, requests);
                submit(Interface::IoUring, requests, Then::Take(ends.0))
            }
            Listed::AioSuspend { requests } => What::Suspend(self.requests(name, requests)),
            Listed::IoGetevents { ends } => What::TakeEvents(ends.0),
            Listed::AioCancel { file } => What::CancelOf {
                handle: self.handle(name, file),
            },
            Listed::IoCancel { .. } => What::Refused(NOT_CANCELLABLE),
            call => {
                let Some((request, call)) = posix_call(call) else {
                    return Ok(None);
                };
                let operation = Operation::Call(Box::new(call));
                What::Request {
                    request: self.request(name, request),
                    work: self.work(script, name, (made, &operation))?,
                    how: SubmitFlags::default(),
                    begins: true,
                }
            }
        }))
    }

    /// What a request does; its call becomes an action beside those of the program.
    fn work(
        &mut self,
        script: &mut Script,
        name: &ProgramName,
        (made, operation): (&Made, &Operation),
    ) -> Result<Work, CallError> {
        Ok(match operation {
            Operation::Call(call) => {
                let made = Made {
                    call: (**call).clone(),
                    ..made.clone()
                };
                let action = self.action(script, name, &made)?;
                script.actions.push(action);
                Work::Call(script.actions.len() - 1)
            }
            Operation::Nop => Work::Nop,
            Operation::Timeout(time) => Work::Timeout(time.0),
            Operation::LinkTimeout(time) => Work::LinkTimeout(time.0),
            Operation::Cancel(request) => Work::Cancel(self.request(name, request)),
        })
    }

    fn what(&mut self, name: &ProgramName, made: &Made) -> Result<What, CallError> {
        let line = made.line;
        if let Listed::Open { file, path, how } = &made.call {
            let handle = self.handle(name, file);
            let path = self.text(&path.0, line)?;
            let file = self.layer.open_in_tree(path);
            let open = open(file, *how);
            return Ok(What::Open { handle, open });
        }
        if let Some(file) = made.call.file() {
            let handle = self.handle(name, file);
            return Ok(match on_file(&made.call) {
                Some(call) => What::OnFile { handle, call },
                None if matches!(made.call, Listed::Syncfs { .. }) => What::Other(Call::SyncAll),
                None => What::Refused(NOT_SUPPORTED),
            });
        }
        Ok(match &made.call {
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

/// `EINVAL`: no I/O of a file has what `io_cancel` would call.
pub(super) const NOT_CANCELLABLE: i32 = 22;

/// A request of POSIX AIO, and what a thread of glibc's calls for it.
fn posix_call(call: &Listed) -> Option<(&Handle, Listed)> {
    Some(match call {
        Listed::AioRead {
            request,
            file,
            bytes,
            at,
        } => {
            let (file, bytes, at) = (file.clone(), *bytes, *at);
            (request, Listed::Pread { file, bytes, at })
        }
        Listed::AioWrite {
            request,
            file,
            bytes,
            at,
        } => {
            let (file, bytes, at) = (file.clone(), *bytes, *at);
            (request, Listed::Pwrite { file, bytes, at })
        }
        Listed::AioFsync { request, file } => (request, Listed::Fsync { file: file.clone() }),
        _ => return None,
    })
}

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
        Listed::Mmap { bytes, .. } => OnFile::Map { bytes: bytes.0 },
        Listed::Madvise { advice, .. } => OnFile::AdviseMapping(match advice {
            MapAdvice::Normal => MmapAdvice::Normal,
            MapAdvice::Sequential => MmapAdvice::Sequential,
            MapAdvice::Random => MmapAdvice::Random,
        }),
        Listed::MappedRead { bytes, at, .. } => OnFile::Touch {
            at: at.0,
            bytes: bytes.0,
            write: false,
        },
        Listed::MappedWrite { bytes, at, .. } => OnFile::Touch {
            at: at.0,
            bytes: bytes.0,
            write: true,
        },
        Listed::Msync { .. } => OnFile::SyncMapping,
        Listed::Munmap { .. } => OnFile::Unmap,
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
pub(super) fn prepared(list: &CallList, file: &str) -> Result<Vec<NewFile>, CallError> {
    let mut files = Vec::new();
    for prepared in &list.prepared {
        let path = std::str::from_utf8(&prepared.path.0).map_err(|_| CallError {
            file: file.to_string(),
            line: prepared.line,
            message: NOT_UTF8.to_string(),
        })?;
        let mut add = |path: String, contents| files.push(NewFile { path, contents });
        match prepared.what {
            PreparedKind::File(bytes) => add(path.to_string(), Contents::Written(bytes.0)),
            // Of a path only the folder that its last name is in is made.
            PreparedKind::Directory => add(format!("{path}/."), Contents::Nothing),
            PreparedKind::Tree {
                directories,
                files,
                bytes,
            } => {
                for directory in 0..directories.0 {
                    add(format!("{path}/d{directory}/."), Contents::Nothing);
                    for file in 0..files.0 {
                        let path = format!("{path}/d{directory}/f{file}");
                        add(path, Contents::Written(bytes.0));
                    }
                }
            }
        }
    }
    Ok(files)
}
