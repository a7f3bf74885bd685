//! What reads and changes descriptions line by line.

#![allow(dead_code, reason = "every test uses a part of it")]

use std::collections::BTreeSet;

use blklab_description::SpecError;
use blklab_device::DriveSpec;

/// A drive with every key that its kind can have.
pub fn complete(name: &str) -> String {
    let mut all = DriveSpec::complete();
    let (_, text) = all.find(|(known, _)| *known == name).expect(name);
    text.to_string()
}

/// The text without a table.
pub fn without_table(text: &str, table: &str) -> String {
    let start = text.find(&format!("[{table}]\n")).expect(table);
    let rest = &text[start + 1..];
    let end = rest.find("\n[").map_or(text.len(), |end| start + 2 + end);
    format!("{}{}", &text[..start], &text[end..])
}

/// The text with the first of each pair changed to the second.
pub fn changed(text: &str, changes: &[(&str, &str)]) -> String {
    let mut text = text.to_string();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text
}

/// A line that sets a key as a whole.
pub struct Setting<'a> {
    /// Its number, from one.
    pub line: usize,
    /// The key with its table.
    pub path: String,
    pub key: &'a str,
    pub value: &'a str,
}

/// Keys that a text sets in one line each, less those of the table `assumed`, which
/// are keys of other tables with other values that they take.
pub fn settings(text: &str) -> Vec<Setting<'_>> {
    let mut table = String::new();
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            table = format!("{name}.");
        } else if let Some((key, value)) = line.split_once(" = ")
            && value.trim() != "["
        {
            found.push(Setting {
                line: number + 1,
                path: format!("{table}{key}"),
                key,
                value: value.trim(),
            });
        }
    }
    found.retain(|set: &Setting<'_>| !set.path.starts_with("assumed."));
    found
}

/// The text with another line in the place of one.
pub fn with_line(text: &str, number: usize, line: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines[number - 1] = line;
    lines.join("\n")
}

/// Keys that the program knows, as it tells them where it finds another.
pub fn known_keys(text: &str, error_of: impl Fn(&str) -> Option<SpecError>) -> BTreeSet<String> {
    let tables = text.lines().filter(|line| line.starts_with('['));
    let tables = tables.filter(|line| *line != "[assumed]");
    let headers: Vec<&str> = std::iter::once("").chain(tables).collect();
    let mut known = BTreeSet::new();
    for header in headers {
        let wrong = format!("{header}\nno_such_key = 1\n");
        let changed = match header {
            "" => wrong + text,
            _ => text.replacen(&format!("{header}\n"), &wrong, 1),
        };
        let error = error_of(&changed).expect("there is no such key");
        let (_, keys) = (error.problem)
            .split_once("legal are ")
            .unwrap_or_else(|| panic!("{error}"));
        let table = match header {
            "" => String::new(),
            _ => header.replace('[', "").replace(']', "."),
        };
        known.extend(keys.split(", ").map(|key| format!("{table}{key}")));
    }
    // Tables are keys of the file.
    known.retain(|key| !text.contains(&format!("\n[{key}]\n")));
    known
}
