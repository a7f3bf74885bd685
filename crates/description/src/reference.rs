//! The reference of all keys of a kind of description, as data and as a page.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

use crate::key_type::{KeyType, Kind};

/// Endings of keys that are units, including some that users may take for ours, each
/// with its usual symbol.
pub(crate) const UNITS: [(&str, &str); 21] = [
    ("s", "s"),
    ("ms", "ms"),
    ("us", "µs"),
    ("ns", "ns"),
    ("ps", "ps"),
    ("b", "bytes"),
    ("bytes", "bytes"),
    ("kb", "KiB"),
    ("mb", "MB"),
    ("gb", "GB"),
    ("tb", "TB"),
    ("kib", "KiB"),
    ("mib", "MiB"),
    ("gib", "GiB"),
    ("kb_s", "kB/s"),
    ("mb_s", "MB/s"),
    ("gb_s", "GB/s"),
    ("mt_s", "MT/s"),
    ("bits", "bits"),
    ("sectors", "sectors"),
    ("percent", "%"),
];

/// A declared key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key's name within its table; `NAME` if it stands for many.
    pub name: String,
    /// The form of its value in a file.
    pub kind: Kind,
    /// The legal values, in words.
    pub legal: String,
    /// The default; `None` if the key is required.
    pub default: Option<String>,
    /// What the key needs to have an effect.
    pub needs: Option<&'static str>,
    /// The meaning of the key.
    pub help: &'static str,
}

impl Key {
    pub(crate) fn of<T>(name: &str, help: &'static str, entry: &KeyType<'_, T>) -> Key {
        Key {
            name: name.to_string(),
            kind: entry.kind.clone(),
            legal: entry.documented.unwrap_or(&entry.legal).to_string(),
            default: entry.default.as_ref().map(|(_, shown)| shown.clone()),
            needs: entry.needs.map(|(what, _)| what),
            help,
        }
    }

    /// Returns the unit that the key's name ends in.
    pub fn unit(&self) -> Option<&'static str> {
        let ends = |(ending, unit): &(&str, &'static str)| {
            let stem = self.name.strip_suffix(ending)?.strip_suffix('_')?;
            (!stem.is_empty()).then_some((stem.len(), *unit))
        };
        let longest = UNITS.iter().filter_map(ends).min();
        longest.map(|(_, unit)| unit)
    }

    /// Returns the key's row in the reference.
    fn row(&self) -> String {
        let legal = match &self.kind {
            Kind::Word(words) => {
                let words = words.iter().map(|(word, _)| format!("`{word}`"));
                words.collect::<Vec<String>>().join(", ")
            }
            Kind::Whole | Kind::Number => {
                let range = self.legal.split_once(" from ");
                range.map_or(self.legal.as_str(), |(_, range)| range).into()
            }
            Kind::Flag | Kind::Text | Kind::Array => self.legal.clone(),
        };
        let default = match self.default.as_deref() {
            None => "required",
            Some("") => "none",
            Some(default) => default,
        };
        let mut meaning = one_line(self.help);
        if let Kind::Word(words) = &self.kind {
            for (word, of_word) in words.iter().filter(|(_, of_word)| !of_word.is_empty()) {
                let _ = write!(meaning, " `{word}`: {}", one_line(of_word));
            }
        }
        if let Some(needs) = self.needs {
            let _ = write!(meaning, " Only with {needs}.");
        }
        let cells = [
            &format!("`{}`", self.name),
            self.unit().unwrap_or_default(),
            &legal,
            default,
            &meaning,
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        format!("| {} |\n", cells.join(" | "))
    }
}

/// A table of a description with all its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableOfKeys {
    /// The table's full name, such as `costs.engine.NAME`; empty for keys outside of any
    /// table.
    pub path: String,
    /// The meaning of the table.
    pub about: &'static str,
    /// The table's keys, in the order of their declaration.
    pub keys: Vec<Key>,
}

impl TableOfKeys {
    /// Adds a key unless it is known.
    pub(crate) fn add(&mut self, key: Key) {
        if !self.keys.iter().any(|known| known.name == key.name) {
            self.keys.push(key);
        }
    }
}

/// All tables and keys of a kind of description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    tables: Vec<TableOfKeys>,
}

impl Reference {
    /// The tables, in the order in which they were declared.
    pub fn tables(&self) -> &[TableOfKeys] {
        &self.tables
    }

    pub(crate) fn table(&mut self, path: &str) -> &mut TableOfKeys {
        let known = self.tables.iter().position(|table| table.path == path);
        let at = known.unwrap_or_else(|| {
            self.tables.push(TableOfKeys {
                path: path.to_string(),
                ..TableOfKeys::default()
            });
            self.tables.len() - 1
        });
        &mut self.tables[at]
    }

    /// Adds the tables and keys that another kind of the same description has.
    pub fn merge(&mut self, other: Reference) {
        for table in other.tables {
            let known = self.table(&table.path);
            known.about = table.about;
            table.keys.into_iter().for_each(|key| known.add(key));
        }
    }

    /// Finds a key by its full name, such as `costs.scheduler.bfq.insert_ns`.
    pub fn key(&self, path: &str) -> Option<&Key> {
        let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
        let table = self
            .tables
            .iter()
            .find(|known| stands_for(&known.path, table))?;
        table.keys.iter().find(|key| stands_for(&key.name, name))
    }

    /// Returns a Markdown page with a heading and a table of keys for each table.
    pub fn markdown(&self) -> String {
        let mut page = String::new();
        // A table that only holds other tables has no section.
        let is_shown = |table: &&TableOfKeys| !table.keys.is_empty() || !table.about.is_empty();
        for table in self.tables.iter().filter(is_shown) {
            let heading = match table.path.as_str() {
                "" => "Outside of any table".to_string(),
                path => format!("`[{path}]`"),
            };
            let _ = write!(page, "## {heading}\n\n");
            if !table.about.is_empty() {
                let _ = write!(page, "{}\n\n", one_line(table.about));
            }
            if table.keys.is_empty() {
                continue;
            }
            page += "| key | unit | takes | default | meaning |\n";
            page += "| --- | --- | --- | --- | --- |\n";
            table.keys.iter().for_each(|key| page += &key.row());
            page += "\n";
        }
        page
    }
}

/// Returns whether `known` matches a name, where each `NAME` in `known` matches any
/// part.
fn stands_for(known: &str, name: &str) -> bool {
    let (mut known, mut name) = (known.split('.'), name.split('.'));
    loop {
        match (known.next(), name.next()) {
            (None, None) => return true,
            (Some(known), Some(name)) if known == name || known == "NAME" => {}
            _ => return false,
        }
    }
}

/// Returns the first paragraph of a doc comment as a line; further paragraphs are for
/// readers of the code.
fn one_line(help: &str) -> String {
    let first = help.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    words.join(" ")
}
