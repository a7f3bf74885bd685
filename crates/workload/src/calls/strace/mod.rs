//! Converts a recording of `strace -f -ttt` into a list of calls. The time between two calls of a
//! thread becomes computation, or sleep where the thread waited for something other than a file.

mod line;
mod table;

use std::collections::BTreeMap;
use std::io::Read;
use std::path;

use super::argument::{
    Advice, Bytes, Count, Duration, Errno, Handle, OpenFlags, Path, ProgramName, RangeSync, Target,
};
use super::call::Call;
use super::list::{CallList, Made, Program, ProgramStep};
use super::request::{Operation, Requests, SubmitFlags};
use crate::trace::{Fault, Lines, TraceError};
use line::{Event, Line, Syscall};
use table::{Files, Known, OpenedFile, Table};

/// The most calls in a recording; a longer list does not fit into memory.
const CALLS_MAX: usize = 4_000_000;

/// The number of names for requests of `io_submit`, which are reused in turn; a system has at most
/// this many requests at once (`fs.aio-max-nr`).
const REQUEST_NAMES: u64 = 65_536;

/// The calls that wait for something other than a file.
const WAITING: [&str; 17] = [
    "nanosleep",
    "clock_nanosleep",
    "futex",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "wait4",
    "waitid",
    "pause",
    "accept",
    "accept4",
    "connect",
    "recvfrom",
    "recvmsg",
];

/// How a call names its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// By a path, its first argument.
    Path,
    /// By a directory and a path below it.
    PathAt,
    /// By a descriptor.
    Descriptor,
}

/// Calls on files that lists do not have, by how they name the file.
const UNLISTED: [(Names, &[&str]); 3] = [
    (
        Names::Path,
        &[
            "chmod",
            "chown",
            "lchown",
            "utime",
            "utimes",
            "readlink",
            "statfs",
            "mknod",
            "getxattr",
            "lgetxattr",
            "setxattr",
            "lsetxattr",
            "listxattr",
            "llistxattr",
            "removexattr",
            "lremovexattr",
        ],
    ),
    (
        Names::PathAt,
        &[
            "fchmodat",
            "fchmodat2",
            "fchownat",
            "futimesat",
            "utimensat",
            "readlinkat",
            "mknodat",
        ],
    ),
    (
        Names::Descriptor,
        &[
            "fchmod",
            "fchown",
            "fstatfs",
            "flock",
            "fgetxattr",
            "fsetxattr",
            "flistxattr",
            "fremovexattr",
        ],
    ),
];

/// Options for converting a recording.
#[derive(Clone, Debug)]
pub struct RecordedOptions {
    /// The directory below which calls on files are kept; empty keeps all.
    pub under: Vec<u8>,
    /// The program's working directory at its start, for relative paths.
    pub working_folder: Vec<u8>,
    /// Whether to keep the time between calls.
    pub think: bool,
}

impl Default for RecordedOptions {
    fn default() -> RecordedOptions {
        RecordedOptions {
            under: Vec::new(),
            working_folder: b"/".to_vec(),
            think: true,
        }
    }
}

/// A converted recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The list.
    pub list: CallList,
    /// Remarks on the conversion for the user.
    pub notes: Vec<String>,
}

/// Reads a file that strace wrote.
///
/// # Errors
/// Fails if the file cannot be read or a line is not in strace's format.
pub fn read_strace(file: &path::Path, options: &RecordedOptions) -> Result<Recorded, TraceError> {
    let name = file.file_name().unwrap_or(file.as_os_str());
    record(Lines::open(file)?, &name.to_string_lossy(), options)
}

/// Reads the output of strace; `name` stands for it in messages and in the list.
///
/// # Errors
/// Fails as [`read_strace`] does.
pub fn parse_strace(
    source: impl Read + Send + 'static,
    name: &str,
    options: &RecordedOptions,
) -> Result<Recorded, TraceError> {
    record(Lines::new(source, name.to_string())?, name, options)
}

fn record(mut lines: Lines, name: &str, options: &RecordedOptions) -> Result<Recorded, TraceError> {
    let mut recorder = Recorder::new(options);
    while lines.advance()? {
        let taken = recorder.line(lines.current());
        taken.map_err(|fault| lines.malformed(fault))?;
    }
    Ok(recorder.finish(name))
}

/// A thread of the recorded program.
#[derive(Debug)]
struct Thread {
    process: u32,
    /// The index of the process's table of open files, which its threads share.
    table: usize,
    working_folder: Vec<u8>,
    /// The path of the executable.
    program: String,
    steps: Vec<ProgramStep>,
    /// When the last call ended, or when the thread began.
    since_ns: u64,
    /// The time that the thread computed and slept since its last call in the list.
    think_ns: u64,
    sleep_ns: u64,
    /// Whether the last call waited for an unrecorded time.
    was_waiting: bool,
    /// The number of `io_submit` requests whose completions the thread has not taken.
    under_way: u64,
    /// A call that another thread's line interrupted: its start and its text.
    begun: Option<(u64, String)>,
}

/// The state of a conversion.
struct Recorder<'a> {
    options: &'a RecordedOptions,
    threads: BTreeMap<u32, Thread>,
    /// The threads in order of appearance.
    order: Vec<u32>,
    tables: Vec<Table>,
    files: Files,
    calls: usize,
    mapped: u64,
    /// The number of io_uring calls, whose requests are in memory that strace does not see.
    unseen: u64,
    /// The number of `io_submit` requests so far.
    requests: u64,
    left_out: BTreeMap<String, u64>,
    tells_durations: bool,
}

impl Recorder<'_> {
    fn new(options: &RecordedOptions) -> Recorder<'_> {
        Recorder {
            options,
            threads: BTreeMap::new(),
            order: Vec::new(),
            tables: Vec::new(),
            files: Files::default(),
            calls: 0,
            mapped: 0,
            unseen: 0,
            requests: 0,
            left_out: BTreeMap::new(),
            tells_durations: false,
        }
    }

    fn line(&mut self, text: &str) -> Result<(), Fault> {
        // strace prints lines about the threads that it attaches to.
        if text.is_empty() || text.starts_with("strace:") {
            return Ok(());
        }
        let Line {
            pid,
            time_ns,
            event,
        } = Line::parse(text)?;
        let pid = pid.unwrap_or(0);
        if !self.threads.contains_key(&pid) {
            self.first_seen(pid, time_ns);
        }
        let (began_ns, call) = match event {
            Event::Call(call) => {
                self.tells_durations |= call.took_ns.is_some();
                (time_ns, call)
            }
            Event::Begun(begun) => {
                let thread = self.thread(pid);
                thread.begun = Some((time_ns, begun.to_string()));
                return Ok(());
            }
            Event::Resumed(rest) => {
                let Some((began_ns, begun)) = self.thread(pid).begun.take() else {
                    return Ok(());
                };
                let whole = format!("{begun}{rest}");
                let right = "the rest of the call that was unfinished";
                let wrong = || Fault::new(0, "call", rest, right);
                let mut call = Syscall::parse(&whole).ok_or_else(wrong)?;
                call.took_ns = call.took_ns.or(Some(time_ns.saturating_sub(began_ns)));
                (began_ns, call)
            }
            Event::Signal | Event::Exited => return Ok(()),
        };
        if self.calls >= CALLS_MAX {
            let right = format!("a recording of at most {CALLS_MAX} calls on files");
            return Err(Fault::new(0, "calls", text, right));
        }
        self.called(pid, began_ns, &call);
        Ok(())
    }

    fn thread(&mut self, pid: u32) -> &mut Thread {
        self.threads
            .get_mut(&pid)
            .expect("each line's thread is known")
    }

    /// Handles the first line of a thread, which is the child of a thread that is inside `clone` or
    /// `fork`, if there is one.
    fn first_seen(&mut self, pid: u32, now_ns: u64) {
        let makes_one = |text: &str| {
            ["clone", "fork", "vfork"]
                .iter()
                .any(|name| text.starts_with(name))
        };
        let parent = self.threads.iter().find_map(|(&parent, thread)| {
            let (_, text) = thread.begun.as_ref()?;
            makes_one(text).then(|| (parent, text.clone()))
        });
        match parent {
            Some((parent, text)) => self.add_child(parent, pid, now_ns, &text),
            None => {
                self.tables.push(Table::default());
                let table = self.tables.len() - 1;
                self.add_thread(
                    pid,
                    Thread {
                        process: pid,
                        table,
                        working_folder: self.options.working_folder.clone(),
                        program: "program".to_string(),
                        steps: Vec::new(),
                        since_ns: now_ns,
                        think_ns: 0,
                        sleep_ns: 0,
                        was_waiting: false,
                        under_way: 0,
                        begun: None,
                    },
                );
            }
        }
    }

    fn add_thread(&mut self, pid: u32, thread: Thread) {
        self.threads.insert(pid, thread);
        self.order.push(pid);
    }

    /// Handles the creation of a child by a thread, with the flags of its call.
    fn add_child(&mut self, parent: u32, pid: u32, now_ns: u64, call: &str) {
        if self.threads.contains_key(&pid) {
            return;
        }
        let (process, table) = {
            let parent = &self.threads[&parent];
            (parent.process, parent.table)
        };
        let is_thread = call.contains("CLONE_THREAD");
        let table = match is_thread || call.contains("CLONE_FILES") {
            true => table,
            false => {
                let copy = self.tables[table].inherited();
                self.tables.push(copy);
                self.tables.len() - 1
            }
        };
        let parent = &self.threads[&parent];
        let child = Thread {
            process: if is_thread { process } else { pid },
            table,
            working_folder: parent.working_folder.clone(),
            program: parent.program.clone(),
            steps: Vec::new(),
            since_ns: now_ns,
            think_ns: 0,
            sleep_ns: 0,
            was_waiting: false,
            under_way: 0,
            begun: None,
        };
        self.add_thread(pid, child);
    }

    /// Handles a call that has ended.
    fn called(&mut self, pid: u32, began_ns: u64, call: &Syscall) {
        let waits = WAITING.contains(&call.name.as_str());
        let thread = self.thread(pid);
        let between_ns = began_ns.saturating_sub(thread.since_ns);
        match std::mem::take(&mut thread.was_waiting) {
            true => thread.sleep_ns += between_ns,
            false => thread.think_ns += between_ns,
        }
        thread.since_ns = began_ns + call.took_ns.unwrap_or(0);
        thread.was_waiting = waits && call.took_ns.is_none();
        if self.translate(pid, call) {
            return;
        }
        let (thread, took_ns) = (self.thread(pid), call.took_ns.unwrap_or(0));
        match waits {
            true => thread.sleep_ns += took_ns,
            false => thread.think_ns += took_ns,
        }
    }

    /// Adds a call to a thread's list, after the time that preceded it.
    fn add(&mut self, pid: u32, call: Call, error: Option<Errno>) {
        let think = self.options.think;
        self.calls += 1;
        let thread = self.thread(pid);
        let (think_ns, sleep_ns) = (thread.think_ns, thread.sleep_ns);
        (thread.think_ns, thread.sleep_ns) = (0, 0);
        let mut add = |call, error| {
            thread.steps.push(ProgramStep::Call(Made {
                call,
                error,
                line: 0,
            }));
        };
        if think && sleep_ns > 0 {
            add(
                Call::Sleep {
                    time: Duration(sleep_ns),
                },
                None,
            );
        }
        if think && think_ns > 0 {
            add(
                Call::Think {
                    time: Duration(think_ns),
                },
                None,
            );
        }
        add(call, error);
    }

    /// Whether calls on `path` are kept.
    fn is_wanted(&self, path: &[u8]) -> bool {
        let is_below = |top: &[u8]| {
            path.strip_prefix(top)
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || top.ends_with(b"/"))
        };
        let is_of_kernel = [&b"/proc"[..], b"/sys", b"/dev"]
            .iter()
            .any(|top| is_below(top));
        !is_of_kernel && (self.options.under.is_empty() || is_below(&self.options.under))
    }

    /// Returns the absolute path that two arguments name.
    fn path(&self, pid: u32, call: &Syscall, dir: Option<usize>, name: usize) -> Option<Vec<u8>> {
        let name = call.bytes(name)?;
        let thread = &self.threads[&pid];
        let base = match dir {
            _ if name.starts_with(b"/") => Vec::new(),
            Some(index) if !call.text(index).starts_with("AT_FDCWD") => {
                let table = &self.tables[thread.table];
                table.find(call.number(index)?)?.path.clone()
            }
            Some(index) => match call.text(index).strip_prefix("AT_FDCWD<") {
                // `-y` records the directory's path.
                Some(folder) => folder.strip_suffix('>')?.as_bytes().to_vec(),
                None => thread.working_folder.clone(),
            },
            None => thread.working_folder.clone(),
        };
        let path = normal(&[&base[..], b"/", &name].concat());
        self.is_wanted(&path).then_some(path)
    }

    /// Adds a call's work on files to its thread's list. Returns whether it does any.
    fn translate(&mut self, pid: u32, call: &Syscall) -> bool {
        let name = call.name.as_str();
        let is_over = call.returned.is_some() || call.error.is_some();
        if !is_over {
            return false;
        }
        match name {
            "execve" => self.executes(pid, call),
            "clone" | "clone3" | "fork" | "vfork" => return self.makes(pid, call),
            "wait4" | "waitid" => return self.waited(pid, call),
            "chdir" if call.error.is_none() => {
                let name = call.bytes(0).unwrap_or_default();
                let base = if name.starts_with(b"/") {
                    Vec::new()
                } else {
                    self.threads[&pid].working_folder.clone()
                };
                self.thread(pid).working_folder = normal(&[&base[..], b"/", &name].concat());
            }
            "fchdir" if call.error.is_none() => {
                let table = &self.tables[self.threads[&pid].table];
                let folder = call
                    .number(0)
                    .and_then(|fd| Some(table.find(fd)?.path.clone()));
                if let Some(folder) = folder {
                    self.thread(pid).working_folder = folder;
                }
            }
            "open" | "creat" => return self.opens(pid, call, None, 0),
            "openat" | "openat2" => return self.opens(pid, call, Some(0), 1),
            "dup" | "dup2" | "dup3" | "fcntl" => self.duplicates(pid, call),
            "mmap" => {
                let table = &self.tables[self.threads[&pid].table];
                let is_file = call.number(4).is_some_and(|fd| table.find(fd).is_some());
                self.mapped += u64::from(is_file);
            }
            "sync" => self.add(pid, Call::Sync {}, None),
            "io_submit" => return self.add_submissions(pid, call),
            "io_getevents" | "io_pgetevents" => return self.add_completions(pid, call),
            "io_uring_enter" => self.unseen += 1,
            "close" => return self.closes(pid, call.number(0)),
            _ => {
                let is_listed = self.on_open_file(pid, call) || self.on_path(pid, call);
                if !is_listed {
                    self.note_unlisted(pid, call);
                }
                return is_listed;
            }
        }
        name == "sync"
    }

    /// Notes a call on a file of the list that lists do not have.
    fn note_unlisted(&mut self, pid: u32, call: &Syscall) {
        let name = call.name.as_str();
        let Some((names, _)) = UNLISTED.iter().find(|(_, calls)| calls.contains(&name)) else {
            return;
        };
        let table = &self.tables[self.threads[&pid].table];
        let is_open = call.number(0).is_some_and(|fd| table.find(fd).is_some());
        let is_of_list = match names {
            Names::Path => self.path(pid, call, None, 0).is_some(),
            // Without a path it is the open file itself (`futimens`).
            Names::PathAt if call.bytes(1).is_none_or(|path| path.is_empty()) => is_open,
            Names::PathAt => self.path(pid, call, Some(0), 1).is_some(),
            Names::Descriptor => is_open,
        };
        if is_of_list {
            *self.left_out.entry(name.to_string()).or_default() += 1;
        }
    }

    fn executes(&mut self, pid: u32, call: &Syscall) {
        if call.error.is_some() {
            return;
        }
        let path = call.bytes(0).unwrap_or_default();
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let is_part = |&byte: &u8| byte.is_ascii_alphanumeric() || b"_-.+".contains(&byte);
        let name: String = name
            .iter()
            .copied()
            .filter(is_part)
            .map(char::from)
            .collect();
        let table = self.threads[&pid].table;
        for fd in self.tables[table].closed_by_exec() {
            self.closes(pid, Some(fd));
        }
        if !name.is_empty() {
            self.thread(pid).program = name;
        }
    }

    fn makes(&mut self, pid: u32, call: &Syscall) -> bool {
        let child = call.returned.and_then(|child| u32::try_from(child).ok());
        let Some(child) = child.filter(|_| call.error.is_none()) else {
            return false;
        };
        let since_ns = self.threads[&pid].since_ns;
        self.add_child(
            pid,
            child,
            since_ns,
            &format!("{}({})", call.name, call.arguments.join(",")),
        );
        // The final names are assigned at the end.
        let program = placeholder(child);
        self.add(pid, Call::Start { program }, None);
        true
    }

    fn waited(&mut self, pid: u32, call: &Syscall) -> bool {
        let child = call.returned.and_then(|child| u32::try_from(child).ok());
        let Some(child) = child.filter(|child| self.threads.contains_key(child)) else {
            return false;
        };
        let program = placeholder(child);
        self.add(pid, Call::Wait { program }, None);
        true
    }

    fn opens(&mut self, pid: u32, call: &Syscall, dir: Option<usize>, name: usize) -> bool {
        let Some(path) = self.path(pid, call, dir, name) else {
            return false;
        };
        let flags = flags(call, name + 1);
        let error = match self.error(call) {
            Ok(error) => error,
            Err(()) => return false,
        };
        let table = self.threads[&pid].table;
        let fd = call.returned.filter(|_| error.is_none());
        let handle = self.tables[table].name_for(fd.unwrap_or(0));
        if let Some(fd) = fd {
            self.files.opened(&path, flags);
            let file = OpenedFile::new(handle.clone(), path.clone(), flags);
            self.tables[table].insert(fd, file, call.has_flag(name + 1, "O_CLOEXEC"));
        } else {
            self.files.failed(&path, error);
        }
        let call = Call::Open {
            file: Handle(handle),
            path: Path(path),
            how: flags,
        };
        self.add(pid, call, error);
        true
    }

    /// Handles the `io_submit` requests that the kernel accepted.
    fn add_submissions(&mut self, pid: u32, call: &Syscall) -> bool {
        let taken = call.returned.filter(|_| call.error.is_none()).unwrap_or(0);
        let requests = call.text(2).split("{aio_data=").skip(1);
        let mut names = Vec::new();
        for request in requests.take(taken.max(0) as usize) {
            let Some(operation) = self.operation(pid, request) else {
                *self
                    .left_out
                    .entry("a request of io_submit".to_string())
                    .or_default() += 1;
                continue;
            };
            let name = Handle(format!("r{}", self.requests % REQUEST_NAMES));
            self.requests += 1;
            names.push(name.clone());
            let prepare = Call::Prepare {
                request: name,
                how: SubmitFlags::default(),
                operation: Operation::Call(Box::new(operation)),
            };
            self.add(pid, prepare, None);
        }
        let is_any = !names.is_empty();
        self.thread(pid).under_way += names.len() as u64;
        if is_any {
            let requests = Requests(names);
            self.add(pid, Call::IoSubmit { requests }, None);
        }
        is_any
    }

    /// Returns the operation of an `io_submit` request from the fields that strace shows.
    fn operation(&mut self, pid: u32, request: &str) -> Option<Call> {
        let field = |name: &str| {
            let (_, rest) = request.split_once(&format!("{name}="))?;
            rest.split([',', '}', ' ']).next()
        };
        let number = |name| field(name)?.parse::<u64>().ok();
        let fd = field("aio_fildes")?.split('<').next()?.parse().ok()?;
        let table = self.threads[&pid].table;
        self.tables[table].find(fd)?;
        self.reopen(pid, fd);
        let file = self.tables[table].find_mut(fd)?;
        let (handle, path) = (Handle(file.handle.clone()), file.path.clone());
        let place = || Some((number("aio_nbytes")?, number("aio_offset")?));
        Some(match field("aio_lio_opcode")?.strip_prefix("IOCB_CMD_")? {
            "PREAD" => {
                let (bytes, at) = place()?;
                self.files.read(&path, at + bytes);
                let (bytes, at) = (Bytes(bytes), Bytes(at));
                Call::Pread {
                    file: handle,
                    bytes,
                    at,
                }
            }
            "PWRITE" => {
                let (bytes, at) = place()?;
                self.files.written(&path, at + bytes);
                let (bytes, at) = (Bytes(bytes), Bytes(at));
                Call::Pwrite {
                    file: handle,
                    bytes,
                    at,
                }
            }
            "FSYNC" => Call::Fsync { file: handle },
            "FDSYNC" => Call::Fdatasync { file: handle },
            _ => return None,
        })
    }

    /// Handles the completions that a thread takes; polling without a wait finds none.
    fn add_completions(&mut self, pid: u32, call: &Syscall) -> bool {
        let taken = call.returned.filter(|_| call.error.is_none()).unwrap_or(0);
        let under_way = &mut self.thread(pid).under_way;
        let own = (*under_way).min(taken.max(0) as u64);
        *under_way -= own;
        if own > 0 {
            self.add(pid, Call::IoGetevents { ends: Count(own) }, None);
        }
        own > 0
    }

    fn duplicates(&mut self, pid: u32, call: &Syscall) {
        let is_duplicate = call.name != "fcntl" || call.text(1).starts_with("F_DUPFD");
        let (Some(from), Some(to)) = (call.number(0), call.returned) else {
            return;
        };
        if !is_duplicate || call.error.is_some() || from == to {
            return;
        }
        self.closes(pid, Some(to));
        let table = self.threads[&pid].table;
        let closes = call.text(1).ends_with("CLOEXEC") || call.has_flag(2, "O_CLOEXEC");
        self.tables[table].duplicate(from, to, closes);
    }

    fn closes(&mut self, pid: u32, fd: Option<i64>) -> bool {
        let table = self.threads[&pid].table;
        let closed = fd.and_then(|fd| self.tables[table].remove(fd));
        let Some(file) = closed else { return false };
        // The list does not open a file that was inherited and never used.
        if !file.is_inherited {
            let file = Handle(file.handle);
            self.add(pid, Call::Close { file }, None);
        }
        true
    }

    /// Returns the error of a call; `Err` for one without a name in lists, so that the call is
    /// dropped.
    fn error(&mut self, call: &Syscall) -> Result<Option<Errno>, ()> {
        match &call.error {
            None => Ok(None),
            Some(name) => Errno::named(name).map(Some).ok_or_else(|| {
                *self
                    .left_out
                    .entry(format!("{} = {name}", call.name))
                    .or_default() += 1;
            }),
        }
    }

    /// Handles a call on an open file.
    fn on_open_file(&mut self, pid: u32, call: &Syscall) -> bool {
        let table = self.threads[&pid].table;
        let Some(fd) = call.number(0) else {
            return false;
        };
        // Copying from one file to another is one call here and two in the list.
        let is_copy = matches!(call.name.as_str(), "copy_file_range" | "sendfile");
        if is_copy {
            return self.copies(pid, call);
        }
        if self.tables[table].find(fd).is_none() {
            return false;
        }
        let Ok(error) = self.error(call) else {
            return true;
        };
        self.reopen(pid, fd);
        let Some(file) = self.tables[table].find_mut(fd) else {
            return false;
        };
        let made = call_on_file(file, call, &mut self.files);
        if let Some(made) = made {
            self.add(pid, made, error);
            return true;
        }
        false
    }

    /// Has a child process open a file for itself that its parent opened before `fork`.
    fn reopen(&mut self, pid: u32, fd: i64) {
        let table = self.threads[&pid].table;
        let Some(file) = self.tables[table].find_mut(fd) else {
            return;
        };
        if !std::mem::take(&mut file.is_inherited) {
            return;
        }
        let Some(path) = file.path_now.clone().map(Path) else {
            // A list has names only, and this file has none.
            self.tables[table].remove(fd);
            let what = "a file that the parent had removed, used by the child".to_string();
            *self.left_out.entry(what).or_default() += 1;
            return;
        };
        let handle = Handle(file.handle.clone());
        let (how, at) = (file.reopen_flags(), file.position);
        self.add(
            pid,
            Call::Open {
                file: handle.clone(),
                path,
                how,
            },
            None,
        );
        if at > 0 {
            self.add(
                pid,
                Call::Lseek {
                    file: handle,
                    at: Bytes(at),
                },
                None,
            );
        }
    }

    fn copies(&mut self, pid: u32, call: &Syscall) -> bool {
        // Where there is an offset, the file's position stays.
        let (from, to) = match call.name.as_str() {
            "sendfile" => ((call.number(1), call.offset(2)), (call.number(0), None)),
            _ => (
                (call.number(0), call.offset(1)),
                (call.number(2), call.offset(3)),
            ),
        };
        let Some(bytes) = call.returned.filter(|_| call.error.is_none()) else {
            return false;
        };
        let bytes = bytes.max(0) as u64;
        let table = self.threads[&pid].table;
        let mut is_any = false;
        for ((fd, offset), is_write) in [(from, false), (to, true)] {
            let Some(fd) = fd else { continue };
            if self.tables[table].find(fd).is_none() {
                continue;
            }
            self.reopen(pid, fd);
            let Some(file) = self.tables[table].find_mut(fd) else {
                continue;
            };
            let at = offset.unwrap_or(file.position);
            if offset.is_none() {
                file.position += bytes;
            }
            let (handle, path) = (Handle(file.handle.clone()), file.path.clone());
            match is_write {
                true => self.files.written(&path, at + bytes),
                false => self.files.read(&path, at + bytes),
            }
            let made = copying_call(handle, bytes, offset, is_write);
            self.add(pid, made, None);
            is_any = true;
        }
        is_any
    }

    /// Handles a call on a path.
    fn on_path(&mut self, pid: u32, call: &Syscall) -> bool {
        let name = call.name.as_str();
        // The variants with `at` in their names take a directory first.
        let dir = name.contains("at")
            && !matches!(
                name,
                "stat" | "lstat" | "statfs" | "truncate" | "stat64" | "lstat64"
            );
        let first = usize::from(dir);
        let path = |this: &Self, name| this.path(pid, call, dir.then_some(0), name);
        let made = match name {
            "unlink" => path(self, 0).map(|path| Call::Unlink { path: Path(path) }),
            "unlinkat" if call.has_flag(2, "AT_REMOVEDIR") => {
                path(self, 1).map(|path| Call::Rmdir { path: Path(path) })
            }
            "unlinkat" => path(self, 1).map(|path| Call::Unlink { path: Path(path) }),
            "rmdir" => path(self, 0).map(|path| Call::Rmdir { path: Path(path) }),
            "mkdir" | "mkdirat" => path(self, first).map(|path| Call::Mkdir { path: Path(path) }),
            "rename" | "renameat" | "renameat2" => {
                let to = match dir {
                    true => self.path(pid, call, Some(2), 3),
                    false => self.path(pid, call, None, 1),
                };
                path(self, first).zip(to).map(|(from, to)| Call::Rename {
                    from: Path(from),
                    to: Path(to),
                })
            }
            "link" | "linkat" => {
                let new = match dir {
                    true => self.path(pid, call, Some(2), 3),
                    false => self.path(pid, call, None, 1),
                };
                path(self, first).zip(new).map(|(path, new)| Call::Link {
                    path: Path(path),
                    new: Path(new),
                })
            }
            "symlink" | "symlinkat" => {
                let at = match dir {
                    true => self.path(pid, call, Some(1), 2),
                    false => self.path(pid, call, None, 1),
                };
                call.bytes(0).zip(at).map(|(target, path)| Call::Symlink {
                    target: Target(target),
                    path: Path(path),
                })
            }
            "truncate" => {
                let bytes = Bytes(call.number(1).unwrap_or(0).max(0) as u64);
                path(self, 0).map(|path| Call::Truncate {
                    path: Path(path),
                    bytes,
                })
            }
            "stat" | "access" | "newfstatat" | "fstatat64" | "statx" | "faccessat"
            | "faccessat2" => self.stat_call(pid, call, first),
            "lstat" => path(self, 0).map(|path| Call::Lstat { path: Path(path) }),
            _ => None,
        };
        let Some(made) = made else { return false };
        let Ok(error) = self.error(call) else {
            return true;
        };
        if call.has_flag(first + 1, "S_IFLNK") || call.text(first + 1).contains("S_IFLNK") {
            // A list cannot prepare links that existed before the program.
            *self
                .left_out
                .entry("lstat of a symbolic link".to_string())
                .or_default() += 1;
            return true;
        }
        self.files.called(&made, known_by(call), error);
        if error.is_none() {
            self.moves(&made);
        }
        self.add(pid, made, error);
        true
    }

    /// Takes note of where open files are after a call.
    fn moves(&mut self, made: &Call) {
        let (from, to) = match made {
            Call::Rename { from, to } if from.0 != to.0 => (from, Some(to)),
            Call::Unlink { path } => (path, None),
            _ => return,
        };
        for table in &mut self.tables {
            // What was at the new path is nowhere.
            if let Some(to) = to {
                table.moved(&to.0, None);
            }
            table.moved(&from.0, to.map(|to| to.0.as_slice()));
        }
    }

    /// Handles a query of a path's attributes; lists have none on an open file.
    fn stat_call(&mut self, pid: u32, call: &Syscall, first: usize) -> Option<Call> {
        if call.text(first) == "\"\"" {
            let table = self.threads[&pid].table;
            let file = self.tables[table].find(call.number(0)?)?;
            self.files.learn(&file.path.clone(), known_by(call));
            return None;
        }
        let path = Path(self.path(pid, call, (first > 0).then_some(0), first)?);
        let is_link = (first + 1..call.arguments.len())
            .any(|index| call.has_flag(index, "AT_SYMLINK_NOFOLLOW"));
        Some(match is_link {
            true => Call::Lstat { path },
            false => Call::Stat { path },
        })
    }

    fn finish(mut self, name: &str) -> Recorded {
        let names: BTreeMap<u32, ProgramName> = self
            .order
            .iter()
            .map(|&pid| (pid, self.name_of(pid)))
            .collect();
        let mut programs = Vec::new();
        for pid in std::mem::take(&mut self.order) {
            let Some(thread) = self.threads.remove(&pid) else {
                continue;
            };
            let mut steps = thread.steps;
            for step in &mut steps {
                if let ProgramStep::Call(Made {
                    call: Call::Start { program } | Call::Wait { program },
                    ..
                }) = step
                    && let Some(known) = program
                        .process
                        .parse()
                        .ok()
                        .and_then(|pid: u32| names.get(&pid))
                {
                    *program = known.clone();
                }
            }
            programs.push(Program {
                name: names[&pid].clone(),
                steps,
            });
        }
        let mut notes = Vec::new();
        if !self.tells_durations && self.options.think {
            notes.push(
                "recorded without -T: the time between two calls has that of the first in it"
                    .to_string(),
            );
        }
        if self.mapped > 0 {
            notes.push(format!(
                "{} mappings of files (mmap) are left out: strace does not see who reads and writes them",
                self.mapped
            ));
        }
        if self.unseen > 0 {
            notes.push(format!(
                "{} calls of io_uring_enter are left out: strace does not see their requests",
                self.unseen
            ));
        }
        notes.extend(
            self.left_out
                .iter()
                .map(|(what, times)| format!("{times} times {what} is left out")),
        );
        let mut list = CallList {
            help: format!("What strace recorded in {name}."),
            prepared: self.files.prepared(),
            programs,
        };
        // A list has no program without calls, unless another starts it or waits for it.
        let are_idle: Vec<bool> = (list.programs.iter())
            .map(|program| list.is_idle(program))
            .collect();
        let mut are_idle = are_idle.into_iter();
        list.programs.retain(|_| are_idle.next() == Some(false));
        Recorded { list, notes }
    }

    fn name_of(&self, pid: u32) -> ProgramName {
        let thread = &self.threads[&pid];
        let program = &self.threads.get(&thread.process).unwrap_or(thread).program;
        let is_alone = self
            .threads
            .values()
            .all(|other| other.process == thread.process);
        let process = match is_alone {
            true => program.clone(),
            false => format!("{program}-{}", thread.process),
        };
        ProgramName {
            process,
            thread: (pid != thread.process).then(|| pid.to_string()),
        }
    }
}

/// Returns the read or write that is a half of a copy.
fn copying_call(file: Handle, bytes: u64, offset: Option<u64>, is_write: bool) -> Call {
    let bytes = Bytes(bytes);
    match (is_write, offset.map(Bytes)) {
        (false, None) => Call::Read { file, bytes },
        (false, Some(at)) => Call::Pread { file, bytes, at },
        (true, None) => Call::Write { file, bytes },
        (true, Some(at)) => Call::Pwrite { file, bytes, at },
    }
}

/// Returns a temporary name; the final one is assigned at the end.
fn placeholder(pid: u32) -> ProgramName {
    ProgramName {
        process: pid.to_string(),
        thread: None,
    }
}

/// Returns the flags of `open`.
fn flags(call: &Syscall, index: usize) -> OpenFlags {
    let names = [
        ("O_CREAT", OpenFlags::CREATE),
        ("O_EXCL", OpenFlags::EXCLUSIVE),
        ("O_TRUNC", OpenFlags::TRUNCATE),
        ("O_APPEND", OpenFlags::APPEND),
        ("O_DIRECT", OpenFlags::DIRECT),
        ("O_SYNC", OpenFlags::SYNC),
        ("O_DSYNC", OpenFlags::DSYNC),
        ("O_DIRECTORY", OpenFlags::DIRECTORY),
        ("O_NOFOLLOW", OpenFlags::NOFOLLOW),
    ];
    let (read, write) = (OpenFlags::READ, OpenFlags::WRITE);
    let mut flags = match () {
        () if call.name == "creat" => {
            return write.with(OpenFlags::CREATE).with(OpenFlags::TRUNCATE);
        }
        () if call.has_flag(index, "O_RDWR") => read.with(write),
        () if call.has_flag(index, "O_WRONLY") => write,
        () => read,
    };
    for (name, flag) in names {
        if call.has_flag(index, name) {
            flags = flags.with(flag);
        }
    }
    flags
}

/// Returns what a call's `stat` structure says of a file.
fn known_by(call: &Syscall) -> Option<Known> {
    let mode = call.field("st_mode").or(call.field("stx_mode"))?;
    let size = call.field("st_size").or(call.field("stx_size"));
    match mode.split('|').next()? {
        "S_IFDIR" => Some(Known::Directory),
        "S_IFREG" => Some(Known::File(
            size.and_then(|size| size.parse().ok()).unwrap_or(0),
        )),
        _ => None,
    }
}

/// Returns a call on an open file as lists have it.
fn call_on_file(file: &mut OpenedFile, call: &Syscall, files: &mut Files) -> Option<Call> {
    if let Some(transfer) = transfer_of_file(file, call, files) {
        return Some(transfer);
    }
    let handle = Handle(file.handle.clone());
    let number = |index| unsigned_argument(call, index);
    let (wanted, at) = (wanted_bytes(call), number(3).unwrap_or(0));
    Some(match call.name.as_str() {
        "fsync" => Call::Fsync { file: handle },
        "fdatasync" => Call::Fdatasync { file: handle },
        "syncfs" => Call::Syncfs { file: handle },
        "sync_file_range" => Call::SyncFileRange {
            file: handle,
            at: Bytes(number(1)?),
            bytes: Bytes(wanted),
            what: RangeSync {
                wait_before: call.has_flag(3, "SYNC_FILE_RANGE_WAIT_BEFORE"),
                write: call.has_flag(3, "SYNC_FILE_RANGE_WRITE"),
                wait_after: call.has_flag(3, "SYNC_FILE_RANGE_WAIT_AFTER"),
            },
        },
        "ftruncate" => {
            files.written(&file.path, number(1)?);
            Call::Ftruncate {
                file: handle,
                bytes: Bytes(number(1)?),
            }
        }
        "fallocate" => {
            files.written(&file.path, wanted + at);
            Call::Fallocate {
                file: handle,
                at: Bytes(wanted),
                bytes: Bytes(at),
            }
        }
        "fadvise64" => Call::Fadvise {
            file: handle,
            at: Bytes(number(1)?),
            bytes: Bytes(wanted),
            advice: advice_of(call)?,
        },
        "readahead" => Call::Readahead {
            file: handle,
            at: Bytes(number(1)?),
            bytes: Bytes(wanted),
        },
        "getdents64" | "getdents" => Call::Readdir { file: handle },
        "fstat" => {
            files.learn(&file.path, known_by(call));
            return None;
        }
        _ => return None,
    })
}

/// Returns a call that reads, writes or sets the position, and learns from it how large the file
/// is.
fn transfer_of_file(file: &mut OpenedFile, call: &Syscall, files: &mut Files) -> Option<Call> {
    let handle = Handle(file.handle.clone());
    let (done, wanted) = (done_bytes(call), wanted_bytes(call));
    let at = unsigned_argument(call, 3).unwrap_or(0);
    Some(match call.name.as_str() {
        "read" | "readv" => {
            file.position += done;
            files.read(&file.path, file.position);
            Call::Read {
                file: handle,
                bytes: Bytes(wanted),
            }
        }
        "pread64" | "pread" | "preadv" | "preadv2" => {
            files.read(&file.path, at + done);
            Call::Pread {
                file: handle,
                bytes: Bytes(wanted),
                at: Bytes(at),
            }
        }
        "write" | "writev" => {
            file.position += done;
            files.written(&file.path, file.position);
            Call::Write {
                file: handle,
                bytes: Bytes(wanted),
            }
        }
        "pwrite64" | "pwrite" | "pwritev" | "pwritev2" => {
            files.written(&file.path, at + done);
            Call::Pwrite {
                file: handle,
                bytes: Bytes(wanted),
                at: Bytes(at),
            }
        }
        "lseek" => {
            file.position = done;
            Call::Lseek {
                file: handle,
                at: Bytes(done),
            }
        }
        _ => return None,
    })
}

fn unsigned_argument(call: &Syscall, index: usize) -> Option<u64> {
    call.number(index).map(|number| number.max(0) as u64)
}

/// Returns what a call returned, or 0 if it failed.
fn done_bytes(call: &Syscall) -> u64 {
    let returned = call.returned.filter(|_| call.error.is_none());
    returned.unwrap_or(0).max(0) as u64
}

/// Returns the length that a call was given. That of a vector of buffers is known only if all of it
/// was transferred.
fn wanted_bytes(call: &Syscall) -> u64 {
    match call.name.as_str() {
        "readv" | "writev" | "preadv" | "pwritev" | "preadv2" | "pwritev2" => done_bytes(call),
        _ => unsigned_argument(call, 2).unwrap_or(done_bytes(call)),
    }
}

fn advice_of(call: &Syscall) -> Option<Advice> {
    let name = call.text(3).strip_prefix("POSIX_FADV_")?;
    Advice::named(&name.to_ascii_lowercase())
}

/// Normalizes a path: removes `//`, `.` and `..`.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    [&b"/"[..], &parts.join(&b'/')].concat()
}
