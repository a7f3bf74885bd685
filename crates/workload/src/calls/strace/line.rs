//! Parses a line of `strace -f -ttt`, with or without `-T` and `-y`.

use super::super::list::escaped;
use crate::trace::Fault;

/// The event of a thread that a line records.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// A complete call.
    Call(Syscall),
    /// The first part of a call that another thread's line interrupts.
    Begun(&'a str),
    /// The rest of an interrupted call.
    Resumed(&'a str),
    /// A signal.
    Signal,
    /// The end of the thread.
    Exited,
}

/// A recorded call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Syscall {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    /// The return value; `None` if the call did not return (`?`).
    pub(super) returned: Option<i64>,
    /// The name of the error.
    pub(super) error: Option<String>,
    /// The duration, if it was recorded (`-T`).
    pub(super) took_ns: Option<u64>,
}

/// A parsed line.
pub(super) struct Line<'a> {
    /// The thread's id, if several threads are recorded.
    pub(super) pid: Option<u32>,
    pub(super) time_ns: u64,
    pub(super) event: Event<'a>,
}

impl<'a> Line<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Line<'a>, Fault> {
        let (pid, rest) = pid(text);
        let at = text.len() - rest.len();
        let (time, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let right = "seconds and their fraction, as strace -ttt writes them";
        let wrong = || Fault::new(at, "time", time, right);
        let time_ns = seconds(time).ok_or_else(wrong)?;
        let rest = rest.trim_start();
        let at = text.len() - rest.len();
        let event = event(rest).ok_or_else(|| {
            let right = "NAME(ARGUMENTS) = RESULT, as strace writes a call";
            Fault::new(at, "call", rest, right)
        })?;
        Ok(Line {
            pid,
            time_ns,
            event,
        })
    }
}

/// Splits off the thread's id before the time: `1234  ` in a file, `[pid 1234] ` in a terminal.
fn pid(text: &str) -> (Option<u32>, &str) {
    if let Some((number, rest)) = text
        .strip_prefix("[pid")
        .and_then(|rest| rest.split_once("] "))
    {
        return (number.trim().parse().ok(), rest.trim_start());
    }
    match text.split_once(' ') {
        Some((first, rest)) if first.bytes().all(|byte| byte.is_ascii_digit()) => {
            (first.parse().ok(), rest.trim_start())
        }
        _ => (None, text),
    }
}

/// Parses seconds with a fraction into nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let scale = 10_u64.pow(9 - fraction.len() as u32);
    let fraction: u64 = fraction.parse().ok()?;
    whole
        .checked_mul(1_000_000_000)?
        .checked_add(fraction * scale)
}

fn event(text: &str) -> Option<Event<'_>> {
    if text.starts_with("+++") {
        return Some(Event::Exited);
    }
    if text.starts_with("---") {
        return Some(Event::Signal);
    }
    if let Some(rest) = text.strip_prefix("<... ") {
        let (_, rest) = rest.split_once(" resumed>")?;
        return Some(Event::Resumed(rest));
    }
    if let Some(begun) = text.strip_suffix("<unfinished ...>") {
        return Some(Event::Begun(begun.trim_end()));
    }
    Some(Event::Call(Syscall::parse(text)?))
}

impl Syscall {
    /// Parses a complete call.
    pub(super) fn parse(text: &str) -> Option<Syscall> {
        let (name, rest) = text.split_once('(')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '#';
        if name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        let (arguments, rest) = arguments(rest)?;
        let result = rest.trim_start().strip_prefix('=')?.trim();
        let (result, took_ns) = match result.rsplit_once(" <") {
            Some((result, took)) => match took.strip_suffix('>').and_then(seconds) {
                Some(took_ns) => (result.trim_end(), Some(took_ns)),
                None => (result, None),
            },
            None => (result, None),
        };
        let mut words = result.split_whitespace();
        let number = words.next()?;
        let error = words.next().filter(|word| word.starts_with('E'));
        Some(Syscall {
            name: name.to_string(),
            arguments,
            returned: integer(number),
            error: error.map(str::to_string),
            took_ns,
        })
    }

    /// Returns the text of an argument.
    pub(super) fn text(&self, index: usize) -> &str {
        self.arguments.get(index).map_or("", |text| text)
    }

    /// Returns a numeric argument; the path of a descriptor may follow it (`-y`).
    pub(super) fn number(&self, index: usize) -> Option<i64> {
        integer(self.text(index))
    }

    /// Returns what an argument points to before the call, as in `[0] => [10]`; `None` for
    /// `NULL`.
    pub(super) fn offset(&self, index: usize) -> Option<u64> {
        let (before, _) = self.text(index).strip_prefix('[')?.split_once(']')?;
        before.parse().ok()
    }

    /// Returns a string argument, unless strace abbreviated it.
    pub(super) fn bytes(&self, index: usize) -> Option<Vec<u8>> {
        let mut left = self.text(index).strip_prefix('"')?;
        let mut bytes = Vec::new();
        loop {
            let next = left.chars().next()?;
            let rest = &left[next.len_utf8()..];
            left = match next {
                '"' => return rest.is_empty().then_some(bytes),
                '\\' => {
                    let (byte, rest) = escaped(rest)?;
                    bytes.push(byte);
                    rest
                }
                next => {
                    let mut buffer = [0; 4];
                    bytes.extend_from_slice(next.encode_utf8(&mut buffer).as_bytes());
                    rest
                }
            };
        }
    }

    /// Whether an argument contains `flag`.
    pub(super) fn has_flag(&self, index: usize, flag: &str) -> bool {
        let is_part = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        self.text(index).split(is_part).any(|word| word == flag)
    }

    /// Returns the value of a structure's field in any argument, such as `st_size`.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.arguments.iter().find_map(|text| {
            let mut parts = text.split(['{', ',', ' ']);
            parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        })
    }
}

/// Parses the decimal or hexadecimal number at the beginning of `text`.
fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    if let Some(hex) = digits.strip_prefix("0x") {
        let end = hex.find(|c: char| !c.is_ascii_hexdigit());
        let number = u64::from_str_radix(&hex[..end.unwrap_or(hex.len())], 16).ok()?;
        return Some((number as i64).wrapping_mul(sign));
    }
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let number: i64 = digits[..end.unwrap_or(digits.len())].parse().ok()?;
    Some(number * sign)
}

/// Splits the arguments up to their `)`, and returns the rest of the line too.
fn arguments(text: &str) -> Option<(Vec<String>, &str)> {
    let mut arguments = Vec::new();
    let (mut depth, mut from) = (0_usize, 0);
    let mut chars = text.char_indices();
    let mut before = ' ';
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => skip_quoted(&mut chars)?,
            // `-y` writes the path of a descriptor behind it.
            '<' if before.is_ascii_digit() || before == 'D' => {
                chars.find(|(_, c)| *c == '>')?;
            }
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => {
                let last = text[from..at].trim();
                if !last.is_empty() {
                    arguments.push(last.to_string());
                }
                return Some((arguments, &text[at + 1..]));
            }
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                arguments.push(text[from..at].trim().to_string());
                from = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    None
}

/// Advances behind the quote that ends a string.
fn skip_quoted(chars: &mut impl Iterator<Item = (usize, char)>) -> Option<()> {
    loop {
        match chars.next()?.1 {
            '"' => return Some(()),
            '\\' => {
                chars.next()?;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> Syscall {
        Syscall::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn arguments_end_where_they_do() {
        let read = call(r#"read(3, "a, \"b\")\n"..., 4096) = 7 <0.000012>"#);
        assert_eq!(read.arguments, ["3", r#""a, \"b\")\n"..."#, "4096"]);
        assert_eq!((read.returned, read.took_ns), (Some(7), Some(12_000)));
        let open = call(r#"openat(AT_FDCWD</tmp>, "x (1)", O_RDONLY) = 3</tmp/x (1)>"#);
        assert_eq!(open.arguments, ["AT_FDCWD</tmp>", r#""x (1)""#, "O_RDONLY"]);
        assert_eq!(open.returned, Some(3));
        assert_eq!(open.bytes(1), Some(b"x (1)".to_vec()));
        let failed = call(r#"unlink("\303\244") = -1 ENOENT (No such file or directory)"#);
        assert_eq!(failed.error.as_deref(), Some("ENOENT"));
        assert_eq!(failed.bytes(0), Some("ä".as_bytes().to_vec()));
        let stat = call(
            r#"newfstatat(3, "", {st_mode=S_IFREG|0644, st_size=512, ...}, AT_EMPTY_PATH) = 0"#,
        );
        assert_eq!(stat.field("st_size"), Some("512"));
        assert!(stat.has_flag(2, "S_IFREG") && stat.has_flag(3, "AT_EMPTY_PATH"));
        assert_eq!(call("sync() = 0").arguments, Vec::<String>::new());
        assert_eq!(call("exit_group(0) = ?").returned, None);
    }

    #[test]
    fn lines_name_their_thread_and_time() {
        let parse = |text| Line::parse(text).map(|line| (line.pid, line.time_ns));
        assert_eq!(parse("1.000005 sync() = 0"), Ok((None, 1_000_005_000)));
        assert_eq!(parse("77  1.5 sync() = 0"), Ok((Some(77), 1_500_000_000)));
        assert_eq!(
            parse("[pid 77] 1.5 +++ exited with 0 +++"),
            Ok((Some(77), 1_500_000_000))
        );
        let fault = parse("sync() = 0").expect_err("no time");
        assert_eq!((fault.field, fault.column), ("time", 1));
        let fault = parse("1.5 nonsense").expect_err("no call");
        assert_eq!((fault.field, fault.column), ("call", 5));
    }
}
