//! The text of a description: the lines of its keys, the values as written, and the TOML
//! parser's error.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

/// A mistake in a key, and its place in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadError {
    pub(crate) offset: usize,
    pub(crate) key: String,
    pub(crate) problem: String,
    /// Whether the mistake makes the text invalid TOML.
    pub(crate) is_syntax: bool,
}

/// Limit on the length of a value shown in a message, in characters.
const SHOWN_CHARS: usize = 60;

/// The first syntax error of a text.
pub(crate) struct SyntaxError {
    offset: usize,
    /// The parser's message, shortened.
    reason: String,
}

impl SyntaxError {
    pub(crate) fn of(error: &toml::de::Error) -> SyntaxError {
        // The rest of the message lists what the parser expected, which the key's own
        // message says better.
        let reason = error.message().split([',', '\n']).next();
        SyntaxError {
            offset: error.span().map_or(0, |span| span.start),
            reason: reason.unwrap_or_default().to_string(),
        }
    }

    fn is_second_key(&self) -> bool {
        self.reason == "duplicate key"
    }

    /// Returns whether a value is a word without quotes; most of these are numbers with
    /// a unit.
    fn is_bare_word(&self) -> bool {
        self.reason.starts_with("string values must be quoted")
    }
}

/// The text, with its first syntax error.
pub(crate) struct Source<'a> {
    text: &'a str,
    syntax: Option<&'a SyntaxError>,
}

/// A line that opens a table or sets a key.
struct Line<'a> {
    offset: usize,
    text: &'a str,
    table: &'a str,
    /// The key that the line sets; `None` if it opens a table.
    key: Option<&'a str>,
}

impl Line<'_> {
    fn path(&self) -> String {
        match (self.table, self.key) {
            (table, None) => table.to_string(),
            ("", Some(key)) => key.to_string(),
            (table, Some(key)) => format!("{table}.{key}"),
        }
    }

    fn is_like(&self, other: &Line<'_>) -> bool {
        (self.table, self.key) == (other.table, other.key)
    }
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str, syntax: Option<&'a SyntaxError>) -> Source<'a> {
        Source { text, syntax }
    }

    /// Returns the line number of a place, from 1.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    /// Returns a value as the user wrote it.
    pub(crate) fn written(&self, span: Range<usize>) -> String {
        self.text.get(span).unwrap_or_default().to_string()
    }

    /// Returns a value as the user wrote it, on one line and shortened.
    pub(crate) fn shown(&self, span: Range<usize>) -> String {
        let written = self.written(span);
        let words: Vec<&str> = written.split_whitespace().collect();
        let words = words.join(" ");
        match words.char_indices().nth(SHOWN_CHARS) {
            Some((end, _)) => format!("{}...", &words[..end]),
            None if words.is_empty() => "nothing".to_string(),
            None => words,
        }
    }

    /// Returns what stands in the place of an invalid value, to the end of its line,
    /// with the reason; `None` if the value is well formed.
    pub(crate) fn malformed(&self, span: &Range<usize>) -> Option<String> {
        let syntax = self.syntax.filter(|syntax| !syntax.is_second_key())?;
        if !(span.start..=span.end).contains(&syntax.offset) {
            return None;
        }
        let found = self.shown(span.start..self.end_of_line(span.end));
        Some(match syntax.is_bare_word() {
            true => found,
            false => format!("{found} ({})", syntax.reason),
        })
    }

    /// Returns the end of the line of a place, or the start of the line's comment.
    fn end_of_line(&self, offset: usize) -> usize {
        let rest = self.text.get(offset..).unwrap_or_default();
        offset + rest.find(['\n', '#']).unwrap_or(rest.len())
    }

    /// Returns the lines that open a table or set a key.
    fn lines(&self) -> Vec<Line<'a>> {
        let mut table = "";
        let mut offset = 0;
        let mut lines = Vec::new();
        for whole in self.text.split_inclusive('\n') {
            let text = whole.split('#').next().unwrap_or_default().trim();
            let opens = text
                .strip_prefix('[')
                .map(|rest| rest.trim_matches(['[', ']']));
            let key = text
                .split(['=', ':', ' '])
                .next()
                .unwrap_or_default()
                .trim();
            // A line that neither opens a table nor sets a key is part of a value.
            if let Some(name) = opens.filter(|name| is_name(name)) {
                table = name.trim();
                lines.push(Line {
                    offset,
                    text,
                    table,
                    key: None,
                });
            } else if opens.is_none() && is_name(key) {
                let key = Some(key);
                lines.push(Line {
                    offset,
                    text,
                    table,
                    key,
                });
            }
            offset += whole.len();
        }
        lines
    }

    /// Returns the parser's error as one about the key in its line.
    pub(crate) fn error_of(&self, syntax: &SyntaxError) -> ReadError {
        let lines = self.lines();
        let start = self.start_of_line(syntax.offset);
        let at = lines.iter().position(|line| line.offset == start);
        let line = at.map(|at| &lines[at]);
        let first = line.and_then(|line| {
            // Each table of an array may have the same key.
            let mut before = lines[..at.unwrap_or(0)].iter().rev();
            before.find(|other| other.is_like(line))
        });
        let found = line.map_or("", |line| line.text);
        let problem = match first {
            Some(first) if syntax.is_second_key() => format!(
                "found `{found}` a second time; legal is once (the first is in line {})",
                self.line_of(first.offset)
            ),
            _ => format!(
                "found `{}`: {}; legal is `key = value`, with text in \"quotes\" and a number without a unit, or [table]",
                self.shown(start..self.end_of_line(start)),
                syntax.reason
            ),
        };
        ReadError {
            offset: syntax.offset,
            key: line.map(Line::path).unwrap_or_default(),
            problem,
            is_syntax: true,
        }
    }

    fn start_of_line(&self, offset: usize) -> usize {
        let before = self.text.get(..offset).unwrap_or_default();
        before.rfind('\n').map_or(0, |end| end + 1)
    }
}

/// Returns whether the text is a key's name, or several joined by dots.
fn is_name(text: &str) -> bool {
    let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '"');
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '"')
        && text.trim().chars().all(of_name)
}
