//! The arguments of calls: each type has one written form.

use std::fmt::{self, Write};

use blklab_description::time_ns;

use crate::fio::bytes_of;

/// A word of a line, written plainly or between quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: Vec<u8>,
    pub(super) is_quoted: bool,
}

impl Word {
    /// Returns the text of a word without quotes that is UTF-8.
    pub(super) fn plain(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.text).ok()?;
        (!self.is_quoted).then_some(text)
    }
}

/// A type of argument.
pub(super) trait Argument: Sized {
    /// The form of the argument, for messages and help.
    const RIGHT: &'static str;

    /// Takes the argument from the front of `words`. Returns `None` if they begin with something
    /// else.
    fn take(words: &mut &[Word]) -> Option<Self>;

    /// Appends the argument, with a space before each of its words.
    fn print(&self, text: &mut String);
}

/// Takes the first word if `read` accepts it.
pub(super) fn first<T>(words: &mut &[Word], read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let (word, rest) = words.split_first()?;
    let read = read(word.plain()?)?;
    *words = rest;
    Some(read)
}

/// Takes words of the list `names` from the front, each at most once, and returns them as bits by
/// their position in the list.
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

/// The name that a program gives to an open file, a mapping or a request.
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

/// The name of a request that the call is limited to, if it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnlyRequest(pub Option<Handle>);

impl Argument for OnlyRequest {
    const RIGHT: &'static str = "the name of a request, or nothing for all";

    fn take(words: &mut &[Word]) -> Option<OnlyRequest> {
        match words.is_empty() {
            true => Some(OnlyRequest(None)),
            false => Handle::take(words).map(|request| OnlyRequest(Some(request))),
        }
    }

    fn print(&self, text: &mut String) {
        self.0.iter().for_each(|request| request.print(text));
    }
}

/// Whether `text` can be the name of an open file, a process or a thread.
pub(super) fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.:+".contains(c);
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.chars().all(is_part)
}

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// An absolute path, in bytes.
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

/// The target of a symbolic link, in bytes.
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

/// Appends bytes as a word, between quotes and with C's escapes where they need it.
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

/// An amount of data or an offset in a file, in bytes.
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

/// A number of things.
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

/// The flags of `open`.
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
    /// Open for reading.
    pub const READ: OpenFlags = OpenFlags(1);
    /// Open for writing.
    pub const WRITE: OpenFlags = OpenFlags(1 << 1);
    /// Create the file if it does not exist (`O_CREAT`).
    pub const CREATE: OpenFlags = OpenFlags(1 << 2);
    /// Fail if the file exists (`O_EXCL`).
    pub const EXCLUSIVE: OpenFlags = OpenFlags(1 << 3);
    /// Truncate the file to length 0 (`O_TRUNC`).
    pub const TRUNCATE: OpenFlags = OpenFlags(1 << 4);
    /// Write at the end of the file (`O_APPEND`).
    pub const APPEND: OpenFlags = OpenFlags(1 << 5);
    /// Bypass the page cache (`O_DIRECT`).
    pub const DIRECT: OpenFlags = OpenFlags(1 << 6);
    /// Each write returns once its data and metadata are on stable storage (`O_SYNC`).
    pub const SYNC: OpenFlags = OpenFlags(1 << 7);
    /// Like [`SYNC`](Self::SYNC), but without the inode's timestamps (`O_DSYNC`).
    pub const DSYNC: OpenFlags = OpenFlags(1 << 8);
    /// Fail if the path is not a directory (`O_DIRECTORY`).
    pub const DIRECTORY: OpenFlags = OpenFlags(1 << 9);
    /// Fail if the last component is a symbolic link (`O_NOFOLLOW`).
    pub const NOFOLLOW: OpenFlags = OpenFlags(1 << 10);

    /// Whether all of `flags` are set.
    pub const fn has(self, flags: OpenFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns these flags and `flags`.
    #[must_use]
    pub const fn with(self, flags: OpenFlags) -> OpenFlags {
        OpenFlags(self.0 | flags.0)
    }
}

impl Argument for OpenFlags {
    const RIGHT: &'static str = "read, write or read write, then any of create, exclusive, \
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

/// The expected use of a range of a file (`posix_fadvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No special use (`POSIX_FADV_NORMAL`).
    Normal,
    /// Sequential access (`POSIX_FADV_SEQUENTIAL`).
    Sequential,
    /// Random access (`POSIX_FADV_RANDOM`).
    Random,
    /// The data is accessed once (`POSIX_FADV_NOREUSE`).
    NoReuse,
    /// The data is accessed soon (`POSIX_FADV_WILLNEED`).
    WillNeed,
    /// The data is not accessed soon (`POSIX_FADV_DONTNEED`).
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

    /// Returns the advice of a name in lower case.
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

/// The flags of `sync_file_range`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RangeSync {
    /// Wait for writeback of the range that is in progress.
    pub wait_before: bool,
    /// Start writeback of the dirty pages.
    pub write: bool,
    /// Wait for writeback of the range at the end.
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

/// The expected use of a mapped file (`madvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAdvice {
    /// No special use (`MADV_NORMAL`).
    Normal,
    /// Sequential access (`MADV_SEQUENTIAL`).
    Sequential,
    /// Random access (`MADV_RANDOM`).
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

/// The caches to drop (`/proc/sys/vm/drop_caches`).
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
    EILSEQ = 84,
    EOPNOTSUPP = 95,
    ETIMEDOUT = 110,
    EALREADY = 114,
    EUCLEAN = 117,
    EDQUOT = 122,
    ECANCELED = 125,
}

impl Errno {
    /// Returns the error of a name.
    pub(super) fn named(name: &str) -> Option<Errno> {
        let found = Errno::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, number)| Errno(*number))
    }

    /// Returns what would be right where a call of a list fails with this error.
    pub fn remedy(self) -> String {
        let remedy = match self {
            Errno::ENOENT => {
                "right is a line such as file PATH BYTES before the first [process], \
                              or create where it is opened"
            }
            Errno::EEXIST => "right is a name that is not there, or one that is unlinked before",
            Errno::EBADF => "right is to open the file before, for what the call does",
            Errno::ENOSPC => "right is a larger drive, or less in its files",
            Errno::ENOTDIR => "right is a path with directories before the last name",
            Errno::EISDIR => "right is a file that is no directory",
            Errno::ENOTEMPTY => "right is to unlink what is in it before",
            Errno::EINVAL => {
                "right is what the call takes on this file: of direct I/O multiples \
                              of its blocks"
            }
            Errno::EFBIG => "right is a file as long as the file system can have",
            _ => "right is another call",
        };
        format!(
            "{remedy}, or = {} behind the call, if the program expects that",
            self.name()
        )
    }

    /// Returns the error's name.
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

/// The name of a program: its process and its thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramName {
    /// The process's name.
    pub process: String,
    /// The thread's name; the first thread of a process has none.
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
