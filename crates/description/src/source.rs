//! The text of a description: which key a place belongs to, what stands there,
//! and what the TOML parser says of it.

use std::ops::Range;

/// What is wrong with a key, and where in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadError {
    pub(crate) offset: usize,
    pub(crate) key: String,
    pub(crate) problem: String,
    /// It is about what makes the text no TOML.
    pub(crate) is_syntax: bool,
}

/// As much of a value as a message shows.
const SHOWN_CHARS: usize = 60;

/// The first thing that makes a text no TOML.
pub(crate) struct Syntax {
    offset: usize,
    /// What the parser says, in a few words.
    reason: String,
}

impl Syntax {
    pub(crate) fn of(error: &toml::de::Error) -> Syntax {
        // What the parser expects instead is less than the key says.
        let reason = error.message().split([',', '\n']).next();
        Syntax {
            offset: error.span().map_or(0, |span| span.start),
            reason: reason.unwrap_or_default().to_string(),
        }
    }

    fn is_second_key(&self) -> bool {
        self.reason == "duplicate key"
    }

    /// A word without quotes; most are numbers with a unit.
    fn is_bare_word(&self) -> bool {
        self.reason.starts_with("string values must be quoted")
    }
}

/// The text, and what is wrong with it as TOML.
pub(crate) struct Source<'a> {
    text: &'a str,
    syntax: Option<&'a Syntax>,
}

/// A line that opens a table or sets a key.
struct Line<'a> {
    offset: usize,
    text: &'a str,
    table: &'a str,
    /// `None` where it opens the table.
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
    pub(crate) fn new(text: &'a str, syntax: Option<&'a Syntax>) -> Source<'a> {
        Source { text, syntax }
    }

    /// The number of a place's line, from one.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    /// A value as the user wrote it.
    pub(crate) fn written(&self, span: Range<usize>) -> String {
        self.text.get(span).unwrap_or_default().to_string()
    }

    /// A value as the user wrote it, on one line.
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

    /// What stands in the place of a value that is no TOML: to the end of its
    /// line, and why it is none. `None` where the value is well formed.
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

    /// Where the line of a place ends, a comment left out.
    fn end_of_line(&self, offset: usize) -> usize {
        let rest = self.text.get(offset..).unwrap_or_default();
        offset + rest.find(['\n', '#']).unwrap_or(rest.len())
    }

    /// The lines that open a table or set a key.
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
            // What is in no table's header and sets nothing is part of a value.
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

    /// The parser's complaint, about the key in whose line it is.
    pub(crate) fn error_of(&self, syntax: &Syntax) -> ReadError {
        let lines = self.lines();
        let start = self.start_of_line(syntax.offset);
        let at = lines.iter().position(|line| line.offset == start);
        let line = at.map(|at| &lines[at]);
        let first = line.and_then(|line| {
            // In an array of tables the same key stands in each of them.
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

/// Whether that is a key, or several with dots between them.
fn is_name(text: &str) -> bool {
    let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '"');
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '"')
        && text.trim().chars().all(of_name)
}
