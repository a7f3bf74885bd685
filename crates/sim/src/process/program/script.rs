//! A program's calls, ready to be made: files and paths are known to the file layer, and
//! loops are jumps.

use std::collections::BTreeMap;

use blklab_fs::{Advice, MmapAdvice, OpenFlags, PAGE_BYTES};
use blklab_workload::calls::{
    self, CALLS, Call as Listed, CallError, CallList, Errno, Handle, Interface, Made, MapAdvice,
    Notification, Operation, Path, PreparedKind, Program, ProgramName, ProgramStep, RangeSync,
    Requests, SubmitFlags, WaitMode,
};

use crate::disk::Disk;
use crate::file_layer::{Call, Contents, Durability, FileId, FileLayer, NewFile, PathId};

/// An instruction of a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    /// Carry out the action with this number.
    Act(usize),
    /// Repeat the instructions up to `end` this many times; 0 skips them.
    Repeat { times: u64, end: usize },
    /// The end of the loop that starts at the instruction `begin`.
    End { begin: usize },
}

/// A call of the list, with its names resolved.
#[derive(Clone, Debug)]
pub(super) struct Action {
    /// The index of its kind in `CALLS`.
    pub(super) kind: usize,
    pub(super) error: Option<Errno>,
    pub(super) line: u32,
    pub(super) op: Op,
}

/// What an action does.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Opens a file under this handle.
    Open { handle: usize, open: Open },
    /// A call on the file that is open under this handle.
    OnFile { handle: usize, call: OnFile },
    /// A call on a path, or on the whole file system.
    Other(Call),
    /// Sleeps for this many nanoseconds.
    Sleep(u64),
    /// Computes for this many nanoseconds.
    Think(u64),
    /// Takes this many pages of memory (`malloc`).
    TakeMemory(u64),
    /// Gives this many pages back (`free`).
    GiveMemory(u64),
    /// Starts the program with this number.
    Start(usize),
    /// Waits until the program with this number has ended.
    Wait(usize),
    /// A call that the file system does not have: it fails with this errno.
    Refused(Errno),
    /// Fills in a request; `begins` submits it at once, as POSIX AIO does.
    Request {
        request: usize,
        op: RequestOp,
        flags: SubmitFlags,
        begins: bool,
    },
    /// Submits requests.
    Submit {
        interface: Interface,
        requests: Vec<usize>,
        then: AfterSubmit,
    },
    /// Sets how the completion of a request is notified (`aio_sigevent`).
    Notify { request: usize, how: Notify },
    /// Waits for this many signals and takes them (`sigwaitinfo`).
    TakeSignals(u64),
    /// Waits until one of these requests has completed (`aio_suspend`).
    Suspend(Vec<usize>),
    /// Waits for this many completions of `io_submit` and takes them (`io_getevents`).
    TakeEvents(u64),
    /// Cancels the file's requests, or one of them, that no thread of glibc has started
    /// (`aio_cancel`).
    CancelOf { handle: usize, only: Option<usize> },
}

/// What a request does.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestOp {
    /// Makes the call of the action with this number.
    Call(usize),
    /// Nothing.
    Nop,
    /// Completes after this many nanoseconds.
    Timeout(u64),
    /// Cancels the request that it is linked to after this many nanoseconds.
    LinkTimeout(u64),
    /// Cancels the request with this number.
    Cancel(usize),
}

/// How the completion of a request of POSIX AIO is notified (`sigev_notify`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Notify {
    /// Not at all (`SIGEV_NONE`).
    #[default]
    None,
    /// By a signal (`SIGEV_SIGNAL`).
    Signal,
    /// By a thread that makes the calls of the program with this number (`SIGEV_THREAD`).
    Thread(usize),
}

/// What a submitting call does once its requests are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterSubmit {
    /// Returns.
    Return,
    /// Returns, and the completion of all of them is notified so.
    Notify(Notify),
    /// Waits for all of them.
    AwaitAll,
    /// Waits for this many completions and takes them.
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
    /// At this byte, or at the file position.
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
    SyncRange {
        at: u64,
        bytes: u64,
        what: RangeSync,
    },
    Resize {
        bytes: u64,
    },
    Advise {
        at: u64,
        bytes: u64,
        advice: Advice,
    },
    Readahead {
        at: u64,
        bytes: u64,
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
    /// Counts its cached pages (`cachestat`).
    CountCached,
}

/// A program's instructions and actions.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    pub(super) instructions: Vec<Instruction>,
    pub(super) actions: Vec<Action>,
    /// How many requests it names.
    pub(super) requests: usize,
}

/// Numbers names, from 0 for each owner.
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

    /// How many names the owner has.
    pub(super) fn count(&self, owner: &str) -> usize {
        self.counts.get(owner).copied().unwrap_or(0)
    }
}

/// Resolves the names in calls.
pub(super) struct Names<'a> {
    pub(super) layer: &'a mut FileLayer,
    pub(super) file: &'a str,
    pub(super) list: &'a CallList,
    /// The drive, and its size in bytes.
    pub(super) drive: (&'a Disk, u64),
    /// Open files of each process.
    pub(super) handles: Numbers,
    /// Requests of each program.
    pub(super) requests: Numbers,
}

impl Names<'_> {
    /// The instructions of a program.
    ///
    /// # Errors
    /// If it opens a file where there is no file system.
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
        steps: &[ProgramStep],
    ) -> Result<(), CallError> {
        for step in steps {
            match step {
                ProgramStep::Call(made) => {
                    let action = self.action(script, name, made)?;
                    let number = script.actions.len();
                    script.actions.push(action);
                    script.instructions.push(Instruction::Act(number));
                }
                ProgramStep::Repeat { times, steps } => {
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

    fn path(&mut self, path: &Path) -> PathId {
        self.layer.add_path(&path.0)
    }

    /// Whether a path is that of the drive: one below `/dev` that the list has no file at.
    fn is_drive(&self, path: &Path) -> bool {
        let is_prepared = |prepared: &calls::Prepared| prepared.path == *path;
        path.0.starts_with(b"/dev/") && !self.list.prepared.iter().any(is_prepared)
    }

    /// The file that a call opens.
    fn open(&mut self, path: &Path, how: calls::OpenFlags, line: u32) -> Result<Open, CallError> {
        if self.is_drive(path) {
            let (disk, bytes) = self.drive;
            let opened = open(self.layer.open((0, disk), (0, bytes), true), how);
            // As the kernel's raw devices did up to 5.13 (`raw_open`).
            let is_character_device = path.0.starts_with(b"/dev/raw/");
            return Ok(Open {
                direct: opened.direct || is_character_device,
                ..opened
            });
        }
        if !self.layer.has_tree() {
            return Err(CallError {
                file: self.file.to_string(),
                line,
                message: NO_FILES.to_string(),
            });
        }
        Ok(open(self.layer.open_in_tree(&path.0), how))
    }

    /// The number of another program of the list.
    fn program(&self, name: &ProgramName) -> usize {
        let programs = self.list.programs.iter();
        programs.take_while(|program| program.name != *name).count()
    }

    fn notify(&self, how: &Notification) -> Notify {
        match how {
            Notification::None => Notify::None,
            Notification::Signal => Notify::Signal,
            Notification::Thread(program) => Notify::Thread(self.program(program)),
        }
    }

    fn action(
        &mut self,
        script: &mut Script,
        name: &ProgramName,
        made: &Made,
    ) -> Result<Action, CallError> {
        let kind = CALLS.iter().position(|call| call.name == made.call.name());
        let op = match self.op_on_requests(script, name, made)? {
            Some(op) => op,
            None => self.op(name, made)?,
        };
        // The error that a request must end with belongs to the call that it makes.
        let is_request = matches!(op, Op::Request { .. });
        Ok(Action {
            kind: kind.unwrap_or(0),
            error: made.error.filter(|_| !is_request),
            line: made.line,
            op,
        })
    }

    /// The operation of a call that names requests; `None` for other calls.
    fn op_on_requests(
        &mut self,
        script: &mut Script,
        name: &ProgramName,
        made: &Made,
    ) -> Result<Option<Op>, CallError> {
        let submit = |interface, requests, then| Op::Submit {
            interface,
            requests,
            then,
        };
        Ok(Some(match &made.call {
            Listed::Prepare {
                request,
                how,
                operation,
            } => Op::Request {
                request: self.request(name, request),
                op: self.request_op(script, name, (made, operation))?,
                flags: *how,
                begins: false,
            },
            Listed::LioListio { mode, requests } => {
                let then = match mode {
                    WaitMode::Wait => AfterSubmit::AwaitAll,
                    WaitMode::NoWait(how) => AfterSubmit::Notify(self.notify(how)),
                };
                submit(Interface::Posix, self.requests(name, requests), then)
            }
            Listed::IoSubmit { requests } => {
                let requests = self.requests(name, requests);
                submit(Interface::Linux, requests, AfterSubmit::Return)
            }
            Listed::IoUringEnter { ends, requests } => {
                let requests = self.requests(name, requests);
                submit(Interface::IoUring, requests, AfterSubmit::Take(ends.0))
            }
            Listed::Sigevent { request, how } => Op::Notify {
                request: self.request(name, request),
                how: self.notify(how),
            },
            Listed::Sigwait { signals } => Op::TakeSignals(signals.0),
            Listed::AioSuspend { requests } => Op::Suspend(self.requests(name, requests)),
            Listed::IoGetevents { ends } => Op::TakeEvents(ends.0),
            Listed::AioCancel { file, request } => Op::CancelOf {
                handle: self.handle(name, file),
                only: (request.0.as_ref()).map(|request| self.request(name, request)),
            },
            // No file operation registers a cancel function (`io_cancel` of `fs/aio.c`).
            Listed::IoCancel { .. } => Op::Refused(Errno::EINVAL),
            call => {
                let Some((request, call)) = posix_call(call) else {
                    return Ok(None);
                };
                let operation = Operation::Call(Box::new(call));
                Op::Request {
                    request: self.request(name, request),
                    op: self.request_op(script, name, (made, &operation))?,
                    flags: SubmitFlags::default(),
                    begins: true,
                }
            }
        }))
    }

    /// What a request does; its call is added to the actions, outside the instructions.
    fn request_op(
        &mut self,
        script: &mut Script,
        name: &ProgramName,
        (made, operation): (&Made, &Operation),
    ) -> Result<RequestOp, CallError> {
        Ok(match operation {
            Operation::Call(call) => {
                let made = Made {
                    call: (**call).clone(),
                    ..made.clone()
                };
                let action = self.action(script, name, &made)?;
                script.actions.push(action);
                RequestOp::Call(script.actions.len() - 1)
            }
            Operation::Nop => RequestOp::Nop,
            Operation::Timeout(time) => RequestOp::Timeout(time.0),
            Operation::LinkTimeout(time) => RequestOp::LinkTimeout(time.0),
            Operation::Cancel(request) => RequestOp::Cancel(self.request(name, request)),
        })
    }

    fn op(&mut self, name: &ProgramName, made: &Made) -> Result<Op, CallError> {
        let line = made.line;
        if let Listed::Open { file, path, how } = &made.call {
            let handle = self.handle(name, file);
            let open = self.open(path, *how, line)?;
            return Ok(Op::Open { handle, open });
        }
        if let Some(file) = made.call.file() {
            let handle = self.handle(name, file);
            return Ok(match on_file(&made.call) {
                Some(call) => Op::OnFile { handle, call },
                None if matches!(made.call, Listed::Syncfs { .. }) => Op::Other(Call::SyncAll),
                None => Op::Refused(Errno::EOPNOTSUPP),
            });
        }
        Ok(match &made.call {
            Listed::Sync {} => Op::Other(Call::SyncAll),
            Listed::Truncate { path, bytes } => Op::Other(Call::Truncate {
                path: self.path(path),
                bytes: bytes.0,
            }),
            Listed::Unlink { path } => Op::Other(Call::Unlink {
                path: self.path(path),
            }),
            Listed::Rename { from, to } => Op::Other(Call::Rename {
                from: self.path(from),
                to: self.path(to),
            }),
            Listed::Link { path, new } => Op::Other(Call::Link {
                from: self.path(path),
                to: self.path(new),
            }),
            Listed::Symlink { target, path } => Op::Other(Call::Symlink {
                target: self.path(&Path(target.0.clone())),
                path: self.path(path),
            }),
            Listed::Mkdir { path } => Op::Other(Call::MakeDir {
                path: self.path(path),
                permissions: 0o755,
            }),
            Listed::Rmdir { path } => Op::Other(Call::RemoveDir {
                path: self.path(path),
            }),
            Listed::Stat { path } => Op::Other(Call::Stat {
                path: self.path(path),
                follow: true,
            }),
            Listed::Lstat { path } => Op::Other(Call::Stat {
                path: self.path(path),
                follow: false,
            }),
            Listed::ListAll { path } => Op::Other(Call::ListAll {
                path: self.path(path),
            }),
            Listed::DropCaches { what } => Op::Other(Call::DropCaches(what.0)),
            Listed::Sleep { time } => Op::Sleep(time.0),
            Listed::Think { time } => Op::Think(time.0),
            Listed::Malloc { bytes } => Op::TakeMemory(bytes.0.div_ceil(PAGE_BYTES)),
            Listed::Free { bytes } => Op::GiveMemory(bytes.0.div_ceil(PAGE_BYTES)),
            Listed::Start { program } => Op::Start(self.program(program)),
            Listed::Wait { program } => Op::Wait(self.program(program)),
            _ => Op::Refused(Errno::EOPNOTSUPP),
        })
    }
}

/// The message for a file where there is no file system.
pub(crate) const NO_FILES: &str = "with --fs raw there are no files; right is --fs ext2, --fs vfat \
                                   or --fs xfs, or a path below /dev for the drive itself";

/// The request of a POSIX AIO call, and the call that glibc's thread makes for it.
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

/// A call on an open file; `None` for calls on the whole file system and for
/// `fallocate`, which ext2 does not have and our FAT does not simulate.
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
        Listed::SyncFileRange {
            at, bytes, what, ..
        } => OnFile::SyncRange {
            at: at.0,
            bytes: bytes.0,
            what,
        },
        Listed::Ftruncate { bytes, .. } => OnFile::Resize { bytes: bytes.0 },
        Listed::Fadvise {
            at, bytes, advice, ..
        } => OnFile::Advise {
            at: at.0,
            bytes: bytes.0,
            advice: advice_of(advice),
        },
        Listed::Readahead { at, bytes, .. } => OnFile::Readahead {
            at: at.0,
            bytes: bytes.0,
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
        Listed::Cachestat { .. } => OnFile::CountCached,
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

/// The files that exist before the programs of a list start.
pub(crate) fn prepared(list: &CallList) -> Vec<NewFile> {
    let mut files = Vec::new();
    for prepared in &list.prepared {
        let below = |name: &str| [&*prepared.path.0, name.as_bytes()].concat();
        let mut add = |path, contents| files.push(NewFile { path, contents });
        match prepared.what {
            PreparedKind::File(bytes) => add(below(""), Contents::Written(bytes.0)),
            // Only the parent of a path is made, so the directory is given as the parent of `.`.
            PreparedKind::Directory => add(below("/."), Contents::Nothing),
            PreparedKind::Tree {
                directories,
                files,
                bytes,
            } => {
                for directory in 0..directories.0 {
                    add(below(&format!("/d{directory}/.")), Contents::Nothing);
                    for file in 0..files.0 {
                        let path = below(&format!("/d{directory}/f{file}"));
                        add(path, Contents::Written(bytes.0));
                    }
                }
            }
        }
    }
    files
}
