//! The text of a list of calls: the reader names line, call and correct form in its messages, and
//! the writer's output reads back as the same list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use blklab_description::{hint, read_text};

use super::argument::{Argument, Bytes, Count, Errno, Handle, Path, ProgramName, Word};
use super::call::{CALLS, Call};
use super::request::{Interface, Operation, SubmitFlags, refusal};

/// The most rounds and calls that a loop makes in all: some minutes of running.
const STEPS_MAX: u64 = 1_000_000_000;

/// The deepest nesting of loops; reading and running a list recurse as deep.
const DEPTH_MAX: usize = 16;

/// A list of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallList {
    /// The list's first comment, which describes it in one line.
    pub help: String,
    /// The files and directories that exist before the first call.
    pub prepared: Vec<Prepared>,
    /// The programs that make the calls.
    pub programs: Vec<Program>,
}

/// A file, a directory or a tree that exists before the first call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The path; the directories above it exist too.
    pub path: Path,
    /// The kind of file.
    pub what: PreparedKind,
    /// The line in the list, from 1.
    pub line: u32,
}

/// The kind of a prepared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreparedKind {
    /// A directory.
    Directory,
    /// A regular file of this length.
    File(Bytes),
    /// A directory with directories `d0`, `d1` and so on, each with files `f0`, `f1` and so on.
    Tree {
        /// The number of directories.
        directories: Count,
        /// The number of files in each directory.
        files: Count,
        /// The length of each file.
        bytes: Bytes,
    },
}

impl PreparedKind {
    /// Returns the reason why the preparation is not possible.
    fn refusal(self) -> Option<String> {
        let PreparedKind::Tree {
            directories, files, ..
        } = self
        else {
            return None;
        };
        let all = directories.0.saturating_mul(files.0.saturating_add(1));
        (all > TREE_MAX).then(|| format!("tree: {all} files and directories, legal is {TREE_MAX}"))
    }
}

/// The most files and directories in a prepared tree, as each has an inode in memory.
const TREE_MAX: u64 = 1_000_000;

/// A process or one of its threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program's name.
    pub name: ProgramName,
    /// The steps of the program in order.
    pub steps: Vec<ProgramStep>,
}

/// A step of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramStep {
    /// A call.
    Call(Made),
    /// A loop over steps.
    Repeat {
        /// The number of rounds.
        times: u64,
        /// The steps of each round.
        steps: Vec<ProgramStep>,
    },
}

impl ProgramStep {
    /// How many calls and rounds of loops it makes.
    fn count(&self) -> u64 {
        match self {
            ProgramStep::Call(_) => 1,
            ProgramStep::Repeat { times, steps } => {
                let inside = steps.iter().map(ProgramStep::count);
                let round = inside.fold(1, u64::saturating_add);
                times.saturating_mul(round)
            }
        }
    }
}

/// A call in a program, with its expected result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The call.
    pub call: Call,
    /// The error that the call must fail with; `None` if it must succeed.
    pub error: Option<Errno>,
    /// The line in the list, from 1.
    pub line: u32,
}

/// A mistake in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The list's file.
    pub file: String,
    /// The line, from 1; 0 if the mistake is in no particular line.
    pub line: u32,
    /// The mistake and its correction.
    pub message: String,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for CallError {}

impl CallList {
    /// Reads the list in a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, and as [`CallList::parse`].
    pub fn read(path: &std::path::Path) -> Result<CallList, CallError> {
        let file = path.display().to_string();
        match read_text(path) {
            Ok(text) => CallList::parse(&file, &text),
            Err(error) => Err(CallError {
                message: format!("cannot read: {error}"),
                file,
                line: 0,
            }),
        }
    }

    /// Reads the text of a list; `file` is its name in messages.
    ///
    /// # Errors
    /// Fails at the first line with a mistake.
    pub fn parse(file: &str, text: &str) -> Result<CallList, CallError> {
        let mut reader = Reader::default();
        for (text, line) in text.lines().zip(1..) {
            let read = reader.line(text, line);
            read.map_err(|(line, message)| CallError {
                file: file.to_string(),
                line,
                message,
            })?;
        }
        reader.finish().map_err(|(line, message)| CallError {
            file: file.to_string(),
            line,
            message,
        })
    }

    /// Whether another program has a `start` for the program `name`, which therefore does not begin
    /// at once.
    pub fn is_started_by_another(&self, name: &ProgramName) -> bool {
        let mut is_started = false;
        for program in &self.programs {
            each_call(&program.steps, &mut |made| {
                is_started |= matches!(&made.call, Call::Start { program } if program == name);
            });
        }
        is_started
    }

    /// Whether a program makes no calls and no other names it.
    pub(super) fn is_idle(&self, program: &Program) -> bool {
        let mut is_idle = program.steps.is_empty();
        for other in &self.programs {
            each_call(&other.steps, &mut |made| {
                is_idle &= named(&made.call) != Some(&program.name);
            });
        }
        is_idle
    }

    /// Whether ends of requests are told by a thread that makes this program's calls.
    pub fn is_notified(&self, name: &ProgramName) -> bool {
        let mut is_notified = false;
        for program in &self.programs {
            each_call(&program.steps, &mut |made| {
                is_notified |= made.call.notifies() == Some(name);
            });
        }
        is_notified
    }
}

/// Returns the program that a call starts, waits for or has notified.
fn named(call: &Call) -> Option<&ProgramName> {
    match call {
        Call::Start { program } | Call::Wait { program } => Some(program),
        call => call.notifies(),
    }
}

/// Returns all calls of some steps in order; those of a loop appear once.
fn each_call<'a>(steps: &'a [ProgramStep], see: &mut impl FnMut(&'a Made)) {
    for step in steps {
        match step {
            ProgramStep::Call(made) => see(made),
            ProgramStep::Repeat { steps, .. } => each_call(steps, see),
        }
    }
}

/// A loop without its `end` yet: its line, its number of rounds, and the steps before it.
struct OpenLoop {
    line: u32,
    times: u64,
    before: Vec<ProgramStep>,
}

/// The state of reading a list.
#[derive(Default)]
struct Reader {
    list: CallList,
    program: Option<(ProgramName, u32)>,
    /// The steps so far of the innermost loop, or of the program.
    steps: Vec<ProgramStep>,
    loops: Vec<OpenLoop>,
    /// The lines where programs begin.
    lines: BTreeMap<ProgramName, u32>,
}

impl Reader {
    fn line(&mut self, text: &str, line: u32) -> Result<(), (u32, String)> {
        let trimmed = text.trim();
        if let Some(comment) = trimmed.strip_prefix('#') {
            if self.list.help.is_empty() && line == 1 {
                self.list.help = comment.trim().to_string();
            }
            return Ok(());
        }
        if let Some(section) = trimmed.strip_prefix('[') {
            self.end_program()?;
            let begun = self.section(section, line);
            return begun.map_err(|message| (line, message));
        }
        let read = self.step(trimmed, line);
        read.map_err(|message| (line, message))
    }

    fn step(&mut self, text: &str, line: u32) -> Result<(), String> {
        let words = words(text)?;
        let Some((first, rest)) = words.split_first() else {
            return Ok(());
        };
        let name = first.plain().ok_or("a line begins with a call's name")?;
        match (name, self.program.is_some()) {
            ("file" | "directory" | "tree", false) => self.prepare(name, rest, line),
            ("repeat", true) => self.begin_loop(rest, line),
            ("end", true) => self.end_loop(rest),
            (name, true) => self.call(name, rest, line),
            (name, false) => Err(format!(
                "{name}: before the first [process] there are only file PATH BYTES, directory \
                 PATH and tree PATH DIRECTORIES FILES BYTES"
            )),
        }
    }

    fn section(&mut self, text: &str, line: u32) -> Result<(), String> {
        let wrong = "right is [process] or [process/thread], of letters, digits, _ and -";
        let name = text.strip_suffix(']').map(str::trim);
        let name = name.and_then(ProgramName::read).ok_or(wrong)?;
        if let Some(first) = self.lines.insert(name.clone(), line) {
            return Err(format!("[{name}]: it is in line {first} already"));
        }
        self.program = Some((name, line));
        Ok(())
    }

    fn prepare(&mut self, name: &str, mut words: &[Word], line: u32) -> Result<(), String> {
        let form = match name {
            "file" => "file PATH BYTES",
            "tree" => "tree PATH DIRECTORIES FILES BYTES",
            _ => "directory PATH",
        };
        let path = argument::<Path>(&mut words, "path", form)?;
        let what = match name {
            "file" => PreparedKind::File(argument(&mut words, "bytes", form)?),
            "tree" => PreparedKind::Tree {
                directories: argument(&mut words, "directories", form)?,
                files: argument(&mut words, "files", form)?,
                bytes: argument(&mut words, "bytes", form)?,
            },
            _ => PreparedKind::Directory,
        };
        ends(words, form)?;
        if let Some(wrong) = what.refusal() {
            return Err(wrong);
        }
        self.list.prepared.push(Prepared { path, what, line });
        Ok(())
    }

    fn begin_loop(&mut self, mut words: &[Word], line: u32) -> Result<(), String> {
        let form = "repeat TIMES";
        let times = argument::<Bytes>(&mut words, "times", form)?.0;
        ends(words, form)?;
        if times > STEPS_MAX {
            return Err(format!(
                "repeat: times: found {times}, legal is up to {STEPS_MAX}"
            ));
        }
        if self.loops.len() >= DEPTH_MAX {
            return Err(format!("repeat: loops in loops are {DEPTH_MAX} at most"));
        }
        let before = std::mem::take(&mut self.steps);
        self.loops.push(OpenLoop {
            line,
            times,
            before,
        });
        Ok(())
    }

    fn end_loop(&mut self, words: &[Word]) -> Result<(), String> {
        ends(words, "end")?;
        let OpenLoop {
            line,
            times,
            before,
        } = self
            .loops
            .pop()
            .ok_or("end: there is no repeat before it")?;
        let steps = std::mem::replace(&mut self.steps, before);
        let step = ProgramStep::Repeat { times, steps };
        let made = step.count();
        if made > STEPS_MAX {
            return Err(format!(
                "end: the repeat of line {line} makes {made} rounds and calls, legal is up to \
                 {STEPS_MAX}"
            ));
        }
        self.steps.push(step);
        Ok(())
    }

    fn call(&mut self, name: &str, mut words: &[Word], line: u32) -> Result<(), String> {
        let known = CALLS.iter().find(|call| call.name == name);
        let form = known.map(|call| call.form()).ok_or_else(|| {
            let names = CALLS.iter().map(|call| call.name);
            let hint = hint(name, names.chain(["repeat", "end"]));
            format!("{name}: there is no such call{hint}")
        })?;
        let error = expected_error(&mut words, &form)?;
        let call = match Call::take(name, &mut words) {
            Ok(Some(call)) => call,
            Err((argument, right)) => return Err(wrong(words, argument, right, &form)),
            Ok(None) => return Err(format!("{name}: there is no such call")),
        };
        ends(words, &form)?;
        self.steps
            .push(ProgramStep::Call(Made { call, error, line }));
        Ok(())
    }

    fn end_program(&mut self) -> Result<(), (u32, String)> {
        if let Some(open) = self.loops.last() {
            let message = "repeat: it has no end before the next [process]".to_string();
            return Err((open.line, message));
        }
        let steps = std::mem::take(&mut self.steps);
        if let Some((name, _)) = self.program.take() {
            self.list.programs.push(Program { name, steps });
        }
        Ok(())
    }

    fn finish(mut self) -> Result<CallList, (u32, String)> {
        self.end_program()?;
        if self.list.programs.is_empty() {
            let message = "there is no [process] with calls".to_string();
            return Err((0, message));
        }
        self.check_idle()?;
        self.check_handles()?;
        self.check_names()?;
        self.check_starts()?;
        self.check_requests()?;
        Ok(self.list)
    }

    /// Checks that each program makes a call, or that another needs it.
    fn check_idle(&self) -> Result<(), (u32, String)> {
        match (self.list.programs.iter()).find(|program| self.list.is_idle(program)) {
            None => Ok(()),
            Some(Program { name, .. }) => {
                let message = format!("[{name}]: it has no calls; right is one at least below it");
                Err((self.lines[name], message))
            }
        }
    }

    /// Checks that each file in use is opened somewhere in its process.
    fn check_handles(&self) -> Result<(), (u32, String)> {
        let mut opened: BTreeSet<(&str, &Handle)> = BTreeSet::new();
        for program in &self.list.programs {
            each_call(&program.steps, &mut |made| {
                if let Some(file) = made.call.opens() {
                    opened.insert((&program.name.process, file));
                }
            });
        }
        let mut wrong = None;
        for program in &self.list.programs {
            each_call(&program.steps, &mut |made| {
                let Some(file) = made.call.file() else { return };
                let is_opened = opened.contains(&(program.name.process.as_str(), file));
                if !is_opened && made.error.is_none() && wrong.is_none() {
                    let (call, name) = (made.call.name(), &program.name.process);
                    let known = opened.iter().filter(|(process, _)| process == name);
                    let hint = hint(&file.0, known.map(|(_, file)| file.0.as_str()));
                    let message = format!("{call}: {name} opens no file {}{hint}", file.0);
                    wrong = Some((made.line, message));
                }
            });
        }
        wrong.map_or(Ok(()), Err)
    }

    /// Checks that programs which are started, waited for or notified exist and are not the
    /// caller.
    fn check_names(&self) -> Result<(), (u32, String)> {
        let mut wrong = None;
        for program in &self.list.programs {
            each_call(&program.steps, &mut |made| {
                let Some(name) = named(&made.call) else {
                    return;
                };
                let (call, is_thread) = (made.call.name(), made.call.notifies().is_some());
                if !self.lines.contains_key(name) {
                    let names: Vec<String> = self.lines.keys().map(ToString::to_string).collect();
                    let hint = hint(&name.to_string(), names.iter().map(String::as_str));
                    let message = format!("{call}: there is no [{name}]{hint}");
                    wrong.get_or_insert((made.line, message));
                } else if *name == program.name {
                    let message = format!("{call}: {name} is this program itself");
                    wrong.get_or_insert((made.line, message));
                } else if is_thread && name.process != program.name.process {
                    let process = &program.name.process;
                    let message = format!("{call}: {name} is no thread of {process}");
                    wrong.get_or_insert((made.line, message));
                } else if !is_thread && self.list.is_notified(name) {
                    let message =
                        format!("{call}: {name} runs when requests end, and ends with its process");
                    wrong.get_or_insert((made.line, message));
                }
            });
        }
        wrong.map_or(Ok(()), Err)
    }

    /// Checks that each program that others start has one to begin with that nothing starts.
    fn check_starts(&self) -> Result<(), (u32, String)> {
        let mut starts = Vec::new();
        for program in &self.list.programs {
            each_call(&program.steps, &mut |made| {
                let started = match &made.call {
                    Call::Start { program } => Some(program),
                    call => call.notifies(),
                };
                starts.extend(started.map(|started| (&program.name, started, made.line)));
            });
        }
        let mut started_by: BTreeMap<&ProgramName, Vec<&ProgramName>> = BTreeMap::new();
        for (by, started, _) in &starts {
            started_by.entry(by).or_default().push(started);
        }
        let started: BTreeSet<&ProgramName> = starts.iter().map(|start| start.1).collect();
        let names = self.list.programs.iter().map(|program| &program.name);
        let mut new: Vec<&ProgramName> = names.filter(|name| !started.contains(name)).collect();
        let mut running = BTreeSet::new();
        while let Some(name) = new.pop() {
            if running.insert(name) {
                new.extend(started_by.get(name).into_iter().flatten());
            }
        }
        match starts.iter().find(|(by, _, _)| !running.contains(by)) {
            None => Ok(()),
            Some((by, started, line)) => {
                let message = format!(
                    "start: {by} starts {started}, but nothing starts {by} first; right is a \
                     program that no other starts"
                );
                Err((*line, message))
            }
        }
    }
}

/// Checks of requests.
impl Reader {
    /// Checks that each request is prepared by the program that names it, for the interface that
    /// takes it.
    fn check_requests(&self) -> Result<(), (u32, String)> {
        let mut wrong = None;
        for program in &self.list.programs {
            let prepared = Prepares::of(&program.steps);
            each_call(&program.steps, &mut |made| {
                if let (Call::Prepare { operation, .. }, Some(error)) = (&made.call, made.error)
                    && operation.call().is_none()
                {
                    let message = format!("prepare: = {}: only calls have errors", error.name());
                    wrong.get_or_insert((made.line, message));
                }
                if let Some(message) = prepared.refusal(&program.name, &made.call) {
                    wrong.get_or_insert((made.line, message));
                }
            });
        }
        wrong.map_or(Ok(()), Err)
    }
}

/// For each request of a program, the operations that it is prepared for; `None` stands for a POSIX
/// AIO call of its own, such as `aio_read`.
struct Prepares<'a>(BTreeMap<&'a Handle, Vec<Option<(SubmitFlags, &'a Operation)>>>);

impl<'a> Prepares<'a> {
    fn of(steps: &'a [ProgramStep]) -> Prepares<'a> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        each_call(steps, &mut |made| {
            let Some(request) = made.call.prepares() else {
                return;
            };
            let as_what = match &made.call {
                Call::Prepare { how, operation, .. } => Some((*how, operation)),
                _ => None,
            };
            all.entry(request).or_default().push(as_what);
        });
        Prepares(all)
    }

    /// Returns what is wrong with the requests that a call names.
    fn refusal(&self, program: &ProgramName, call: &Call) -> Option<String> {
        let interface = match call {
            Call::LioListio { .. } => Some(Interface::Posix),
            Call::IoSubmit { .. } => Some(Interface::Linux),
            Call::IoUringEnter { .. } => Some(Interface::IoUring),
            _ => None,
        };
        call.requests().iter().find_map(|request| {
            let Some(prepared) = self.0.get(request) else {
                let hint = hint(&request.0, self.0.keys().map(|known| known.0.as_str()));
                let call = call.name();
                return Some(format!(
                    "{call}: {program} prepares no request {}{hint}",
                    request.0
                ));
            };
            let mut prepared = prepared.iter().flatten();
            prepared.find_map(|as_what| refusal(interface?, request, *as_what))
        })
    }
}

/// Takes the expected error of a call from the end of its words.
fn expected_error(words: &mut &[Word], form: &str) -> Result<Option<Errno>, String> {
    let equals = |word: &Word| word.plain() == Some("=");
    let Some(at) = words.iter().position(equals) else {
        return Ok(None);
    };
    let mut behind = &words[at + 1..];
    let error = argument::<Errno>(&mut behind, "=", form)?;
    ends(behind, form)?;
    *words = &words[..at];
    Ok(Some(error))
}

fn argument<A: Argument>(words: &mut &[Word], name: &str, form: &str) -> Result<A, String> {
    A::take(words).ok_or_else(|| wrong(words, name, A::RIGHT, form))
}

/// Returns the message for the argument that should be at the front of `words`.
fn wrong(words: &[Word], argument: &str, right: &str, form: &str) -> String {
    let found = match words.first() {
        Some(word) => format!("{:?}", String::from_utf8_lossy(&word.text)),
        None => "nothing".to_string(),
    };
    let call = form.split(' ').next().unwrap_or_default();
    format!("{call}: {argument}: found {found}, right is {right} ({form})")
}

fn ends(words: &[Word], form: &str) -> Result<(), String> {
    match words.first() {
        None => Ok(()),
        Some(_) => Err(wrong(words, "behind the arguments", "nothing more", form)),
    }
}

/// Splits a line into its words, without a comment.
fn words(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut left = line.trim_start();
    while !left.is_empty() && !left.starts_with('#') {
        let (word, rest) = match left.strip_prefix('"') {
            Some(quoted) => quoted_word(quoted)?,
            None => {
                let end = left.find(char::is_whitespace).unwrap_or(left.len());
                let word = Word {
                    text: left.as_bytes()[..end].to_vec(),
                    is_quoted: false,
                };
                (word, &left[end..])
            }
        };
        words.push(word);
        left = rest.trim_start();
    }
    Ok(words)
}

/// Reads a quoted word with C's escapes, from behind its first quote.
fn quoted_word(text: &str) -> Result<(Word, &str), String> {
    let open = "a text that begins with \" has one at its end too";
    let mut bytes = Vec::new();
    let mut left = text;
    loop {
        let next = left.chars().next().ok_or(open)?;
        left = &left[next.len_utf8()..];
        match next {
            '"' => {
                let word = Word {
                    text: bytes,
                    is_quoted: true,
                };
                return Ok((word, left));
            }
            '\\' => {
                let (byte, rest) = escaped(left).ok_or_else(|| {
                    "behind \\ in a quoted text are \\, \", n, t, r or the byte in octal digits"
                        .to_string()
                })?;
                bytes.push(byte);
                left = rest;
            }
            next => {
                let mut buffer = [0; 4];
                bytes.extend_from_slice(next.encode_utf8(&mut buffer).as_bytes());
            }
        }
    }
}

/// Reads an escape of C and `strace`, from behind its `\`, and returns its byte.
pub(super) fn escaped(text: &str) -> Option<(u8, &str)> {
    let octal = text.bytes().take(3);
    let digits = octal
        .take_while(|byte| (b'0'..=b'7').contains(byte))
        .count();
    if digits > 0 {
        let byte = u8::from_str_radix(&text[..digits], 8).ok()?;
        return Some((byte, &text[digits..]));
    }
    let byte = match text.bytes().next()? {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'v' => 11,
        b'f' => 12,
        byte @ (b'\\' | b'"') => byte,
        _ => return None,
    };
    Some((byte, &text[1..]))
}

impl fmt::Display for CallList {
    /// Writes the list as a text that reads back as the same list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.help.is_empty() {
            writeln!(f, "# {}", self.help)?;
        }
        for prepared in &self.prepared {
            let mut text = String::new();
            prepared.path.print(&mut text);
            match prepared.what {
                PreparedKind::File(bytes) => {
                    bytes.print(&mut text);
                    writeln!(f, "file{text}")?;
                }
                PreparedKind::Directory => writeln!(f, "directory{text}")?,
                PreparedKind::Tree {
                    directories,
                    files,
                    bytes,
                } => {
                    directories.print(&mut text);
                    files.print(&mut text);
                    bytes.print(&mut text);
                    writeln!(f, "tree{text}")?;
                }
            }
        }
        for program in &self.programs {
            writeln!(f, "\n[{}]", program.name)?;
            print_steps(f, &program.steps, 0)?;
        }
        Ok(())
    }
}

fn print_steps(f: &mut fmt::Formatter<'_>, steps: &[ProgramStep], depth: usize) -> fmt::Result {
    for step in steps {
        let indent = "  ".repeat(depth);
        match step {
            ProgramStep::Call(Made { call, error, .. }) => {
                let mut text = String::new();
                call.print(&mut text);
                if let Some(error) = error {
                    text.push_str(" =");
                    error.print(&mut text);
                }
                writeln!(f, "{indent}{text}")?;
            }
            ProgramStep::Repeat { times, steps } => {
                writeln!(f, "{indent}repeat {times}")?;
                print_steps(f, steps, depth + 1)?;
                writeln!(f, "{indent}end")?;
            }
        }
    }
    Ok(())
}
