//! What calls have as arguments, each kind with the one way in which it is written.

use std::fmt::{self, Write};

use blklab_description::time_ns;

use crate::fio::bytes_of;

/// A word of a line: as it stands there, or between quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: Vec<u8>,
    pub(super) is_quoted: bool,
}

impl Word {
    /// The word where it is plain text.
    pub(super) fn plain(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.text).ok()?;
        (!self.is_quoted).then_some(text)
    }
}

/// A kind of argument.
pub(super) trait Argument: Sized {
    /// How it is written, for messages and help.
    const RIGHT: &'static str;

    /// Takes it from the front of the words. `None` where they begin with something
    /// else.
    fn take(words: &mut &[Word]) -> Option<Self>;

    /// Appends it, with a space before each of its words.
    fn print(&self, text: &mut String);
}

/// The first word, where `read` takes it.
pub(super) fn first<T>(words: &mut &[Word], read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let (word, rest) = words.split_first()?;
    let read = read(word.plain()?)?;
    *words = rest;
    Some(read)
}

/// The words from the front that are in a list, each once, as bits of their places.
fn set_of(words: &mut &[Word], names: &[&str]) -> Option<u32> {
    let mut set = 0;
    while let Some((word, rest)) = words.split_first() {
        let plain = word.plain()?;
        let bit = 1 << names.iter().position(|name| *name == plain)?;
        if set & bit != 0 {
            return None;
        }
        (set, *words) = (set | bit, rest);
    }
    Some(set)
}

fn print_set(text: &mut String, set: u32, names: &[&str]) {
    for (place, name) in names.iter().enumerate() {
        if set >> place & 1 == 1 {
            text.push(' ');
            text.push_str(name);
        }
    }
}

/// A program's name for what it has open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub String);

impl Argument for Handle {
    const RIGHT: &'static str = "a name of letters, digits, _ and -";

    fn take(words: &mut &[Word]) -> Option<Handle> {
        first(words, |text| {
            is_name(text).then(|| Handle(text.to_string()))
        })
    }

    fn print(&self, text: &mut String) {
        text.push(' ');
        text.push_str(&self.0);
    }
}

/// Whether open files, processes and threads can be called so.
pub(super) fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.:+".contains(c);
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.chars().all(is_part)
}

/// Bytes of a name at most.
const NAME_BYTES_MAX: usize = 255;

/// A path from the root on, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(pub Vec<u8>);

impl Argument for Path {
    const RIGHT: &'static str = "a path that begins with /, between \"\" if it has spaces";

    fn take(words: &mut &[Word]) -> Option<Path> {
        let (word, rest) = words.split_first()?;
        let is_path = word.text.starts_with(b"/") && !word.text.contains(&0);
        if is_path {
            *words = rest;
        }
        is_path.then(|| Path(word.text.clone()))
    }

    fn print(&self, text: &mut String) {
        print_bytes(&self.0, text);
    }
}

/// Where a symbolic link leads, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(pub Vec<u8>);

impl Argument for Target {
    const RIGHT: &'static str = "a path, between \"\" if it has spaces";

    fn take(words: &mut &[Word]) -> Option<Target> {
        let (word, rest) = words.split_first()?;
        let is_target = !word.text.is_empty() && !word.text.contains(&0);
        if is_target {
            *words = rest;
        }
        is_target.then(|| Target(word.text.clone()))
    }

    fn print(&self, text: &mut String) {
        print_bytes(&self.0, text);
    }
}

/// Appends bytes as a word: as they are, or between quotes as in C.
fn print_bytes(bytes: &[u8], text: &mut String) {
    text.push(' ');
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"#\\=".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        text.extend(bytes.iter().map(|&byte| char::from(byte)));
        return;
    }
    text.push('"');
    for &byte in bytes {
        // Writing to a string does not fail.
        let _ = match byte {
            b'"' | b'\\' => write!(text, "\\{}", char::from(byte)),
            b' '..=b'~' => write!(text, "{}", char::from(byte)),
            _ => write!(text, "\\{byte:03o}"),
        };
    }
    text.push('"');
}

/// An amount of data, or a place in a file, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Argument for Bytes {
    const RIGHT: &'static str = "a number of bytes such as 4096, 64K or 1M";

    fn take(words: &mut &[Word]) -> Option<Bytes> {
        first(words, |text| {
            let is_number = text.starts_with(|c: char| c.is_ascii_digit());
            let bytes = bytes_of(text, 1024).ok();
            bytes.filter(|_| is_number).map(Bytes)
        })
    }

    fn print(&self, text: &mut String) {
        let units = [
            (1 << 40, "T"),
            (1 << 30, "G"),
            (1 << 20, "M"),
            (1 << 10, "K"),
        ];
        let whole = |(unit, _): &&(u64, &str)| self.0 > 0 && self.0.is_multiple_of(*unit);
        let (unit, name) = units.iter().find(whole).unwrap_or(&(1, ""));
        // Writing to a string does not fail.
        let _ = write!(text, " {}{name}", self.0 / unit);
    }
}

/// How many of something there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

impl Argument for Count {
    const RIGHT: &'static str = "a whole number";

    fn take(words: &mut &[Word]) -> Option<Count> {
        first(words, |text| text.parse().ok().map(Count))
    }

    fn print(&self, text: &mut String) {
        // Writing to a string does not fail.
        let _ = write!(text, " {}", self.0);
    }
}

/// A span of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub u64);

impl Argument for Duration {
    const RIGHT: &'static str = "a time with its unit such as 500us, 20ms or 1.5s";

    fn take(words: &mut &[Word]) -> Option<Duration> {
        first(words, |text| time_ns(text).ok().map(Duration))
    }

    fn print(&self, text: &mut String) {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        let whole = |(unit, _): &&(u64, &str)| self.0 > 0 && self.0.is_multiple_of(*unit);
        let (unit, name) = units.iter().find(whole).unwrap_or(&(1, "ns"));
        // Writing to a string does not fail.
        let _ = write!(text, " {}{name}", self.0 / unit);
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(u32);

impl OpenFlags {
    const NAMES: [&'static str; 11] = [
        "read",
        "write",
        "create",
        "exclusive",
        "truncate",
        "append",
        "direct",
        "sync",
        "dsync",
        "directory",
        "nofollow",
    ];
    /// It will be read.
    pub const READ: OpenFlags = OpenFlags(1);
    /// It will be written.
    pub const WRITE: OpenFlags = OpenFlags(1 << 1);
    /// It is made where it is not there (`O_CREAT`).
    pub const CREATE: OpenFlags = OpenFlags(1 << 2);
    /// It must not be there (`O_EXCL`).
    pub const EXCLUSIVE: OpenFlags = OpenFlags(1 << 3);
    /// It is cut to nothing (`O_TRUNC`).
    pub const TRUNCATE: OpenFlags = OpenFlags(1 << 4);
    /// Writes go to its end (`O_APPEND`).
    pub const APPEND: OpenFlags = OpenFlags(1 << 5);
    /// Its I/O does not go through the page cache (`O_DIRECT`).
    pub const DIRECT: OpenFlags = OpenFlags(1 << 6);
    /// Each write is on the drive when it ends (`O_SYNC`).
    pub const SYNC: OpenFlags = OpenFlags(1 << 7);
    /// The same, without times of the inode (`O_DSYNC`).
    pub const DSYNC: OpenFlags = OpenFlags(1 << 8);
    /// It must be a directory (`O_DIRECTORY`).
    pub const DIRECTORY: OpenFlags = OpenFlags(1 << 9);
    /// A symbolic link is not followed (`O_NOFOLLOW`).
    pub const NOFOLLOW: OpenFlags = OpenFlags(1 << 10);

    /// Whether it has all of `flags`.
    pub const fn has(self, flags: OpenFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// With `flags` too.
    #[must_use]
    pub const fn with(self, flags: OpenFlags) -> OpenFlags {
        OpenFlags(self.0 | flags.0)
    }
}

impl Argument for OpenFlags {
    const RIGHT: &'static str = "read, write or both, then any of create, exclusive, \
                                 truncate, append, direct, sync, dsync, directory, nofollow";

    fn take(words: &mut &[Word]) -> Option<OpenFlags> {
        let flags = OpenFlags(set_of(words, &OpenFlags::NAMES)?);
        let is_used = flags.has(OpenFlags::READ) || flags.has(OpenFlags::WRITE);
        is_used.then_some(flags)
    }

    fn print(&self, text: &mut String) {
        print_set(text, self.0, &OpenFlags::NAMES);
    }
}

/// How a range of a file will be used (`posix_fadvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// As any other.
    Normal,
    /// From its beginning to its end.
    Sequential,
    /// Anywhere.
    Random,
    /// Once.
    NoReuse,
    /// Soon.
    WillNeed,
    /// Not soon.
    DontNeed,
}

impl Advice {
    const ALL: [(&'static str, Advice); 6] = [
        ("normal", Advice::Normal),
        ("sequential", Advice::Sequential),
        ("random", Advice::Random),
        ("noreuse", Advice::NoReuse),
        ("willneed", Advice::WillNeed),
        ("dontneed", Advice::DontNeed),
    ];

    /// The advice of that name, in lower case.
    pub(super) fn named(name: &str) -> Option<Advice> {
        let found = Advice::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, advice)| *advice)
    }
}

impl Argument for Advice {
    const RIGHT: &'static str = "normal, sequential, random, noreuse, willneed or dontneed";

    fn take(words: &mut &[Word]) -> Option<Advice> {
        first(words, Advice::named)
    }

    fn print(&self, text: &mut String) {
        let found = Advice::ALL.iter().find(|(_, advice)| advice == self);
        text.push(' ');
        text.push_str(found.map_or("normal", |(name, _)| name));
    }
}

/// What `sync_file_range` does with a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RangeSync {
    /// It waits for what is being written.
    pub wait_before: bool,
    /// It begins to write what is dirty.
    pub write: bool,
    /// It waits for that.
    pub wait_after: bool,
}

impl RangeSync {
    const NAMES: [&'static str; 3] = ["wait_before", "write", "wait_after"];
}

impl Argument for RangeSync {
    const RIGHT: &'static str = "any of wait_before, write and wait_after";

    fn take(words: &mut &[Word]) -> Option<RangeSync> {
        let set = set_of(words, &RangeSync::NAMES)?;
        Some(RangeSync {
            wait_before: set & 1 != 0,
            write: set & 2 != 0,
            wait_after: set & 4 != 0,
        })
    }

    fn print(&self, text: &mut String) {
        let set = u32::from(self.wait_before)
            | u32::from(self.write) << 1
            | u32::from(self.wait_after) << 2;
        print_set(text, set, &RangeSync::NAMES);
    }
}

/// How a mapped file will be used (`madvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAdvice {
    /// As any other.
    Normal,
    /// From its beginning to its end.
    Sequential,
    /// Anywhere.
    Random,
}

impl MapAdvice {
    const ALL: [(&'static str, MapAdvice); 3] = [
        ("normal", MapAdvice::Normal),
        ("sequential", MapAdvice::Sequential),
        ("random", MapAdvice::Random),
    ];
}

impl Argument for MapAdvice {
    const RIGHT: &'static str = "normal, sequential or random";

    fn take(words: &mut &[Word]) -> Option<MapAdvice> {
        first(words, |text| {
            let found = MapAdvice::ALL.iter().find(|(known, _)| *known == text);
            found.map(|(_, advice)| *advice)
        })
    }

    fn print(&self, text: &mut String) {
        let found = MapAdvice::ALL.iter().find(|(_, advice)| advice == self);
        text.push(' ');
        text.push_str(found.map_or("normal", |(name, _)| name));
    }
}

/// What is dropped (`/proc/sys/vm/drop_caches`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches(pub u32);

impl Argument for Caches {
    const RIGHT: &'static str = "1 for pages, 2 for names and inodes, or 3 for both";

    fn take(words: &mut &[Word]) -> Option<Caches> {
        first(words, |text| {
            let what = text.parse().ok().filter(|what| (1..=3).contains(what));
            what.map(Caches)
        })
    }

    fn print(&self, text: &mut String) {
        // Writing to a string does not fail.
        let _ = write!(text, " {}", self.0);
    }
}

/// An error's number on Linux (`include/uapi/asm-generic/errno.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Declares the errors by name and number.
macro_rules! errnos {
    ($($name:ident = $number:literal),* $(,)?) => {
        #[allow(missing_docs)]
        impl Errno {
            $(pub const $name: Errno = Errno($number);)*

            const NAMES: &[(&'static str, i32)] = &[$((stringify!($name), $number)),*];
        }
    };
}

errnos! {
    EPERM = 1,
    ENOENT = 2,
    EIO = 5,
    EBADF = 9,
    EACCES = 13,
    EFAULT = 14,
    EBUSY = 16,
    EEXIST = 17,
    EXDEV = 18,
    ENOTDIR = 20,
    EISDIR = 21,
    EINVAL = 22,
    EFBIG = 27,
    ENOSPC = 28,
    EMLINK = 31,
    ENAMETOOLONG = 36,
    ENOTEMPTY = 39,
    ELOOP = 40,
    ETIME = 62,
    EOPNOTSUPP = 95,
    ETIMEDOUT = 110,
    EALREADY = 114,
    EUCLEAN = 117,
    EDQUOT = 122,
    ECANCELED = 125,
}

impl Errno {
    /// The error of that name.
    pub(super) fn named(name: &str) -> Option<Errno> {
        let found = Errno::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, number)| Errno(*number))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let found = Errno::NAMES.iter().find(|(_, number)| *number == self.0);
        found.map_or("an error", |(name, _)| name)
    }
}

impl Argument for Errno {
    const RIGHT: &'static str = "an error's name such as ENOENT, EEXIST or ENOTEMPTY";

    fn take(words: &mut &[Word]) -> Option<Errno> {
        first(words, Errno::named)
    }

    fn print(&self, text: &mut String) {
        text.push(' ');
        text.push_str(self.name());
    }
}

/// What a program is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramName {
    /// The process.
    pub process: String,
    /// The thread; a process's first one has none.
    pub thread: Option<String>,
}

impl ProgramName {
    pub(super) fn read(text: &str) -> Option<ProgramName> {
        let (process, thread) = match text.split_once('/') {
            Some((process, thread)) => (process, Some(thread)),
            None => (text, None),
        };
        let is_right = is_name(process) && thread.is_none_or(is_name);
        is_right.then(|| ProgramName {
            process: process.to_string(),
            thread: thread.map(str::to_string),
        })
    }
}

impl fmt::Display for ProgramName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.process)?;
        match &self.thread {
            Some(thread) => write!(f, "/{thread}"),
            None => Ok(()),
        }
    }
}

impl Argument for ProgramName {
    const RIGHT: &'static str = "a process or process/thread of the list";

    fn take(words: &mut &[Word]) -> Option<ProgramName> {
        let (word, rest) = words.split_first()?;
        let name = ProgramName::read(word.plain()?)?;
        *words = rest;
        Some(name)
    }

    fn print(&self, text: &mut String) {
        text.push(' ');
        text.push_str(&self.to_string());
    }
}
