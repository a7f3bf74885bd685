//! One table of a description, whose keys are taken one after the other.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Display;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::source::Source;

/// What is wrong with a key, and where in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadError {
    pub(crate) offset: usize,
    pub(crate) key: String,
    pub(crate) problem: String,
    /// It is about what makes the text no TOML.
    pub(crate) is_syntax: bool,
}

/// A key that somebody asked for.
struct Asked {
    key: &'static str,
    legal: String,
}

/// A table whose keys are taken one after the other; whatever nobody asked for
/// is an error in the end.
pub struct Table<'a> {
    source: &'a Source<'a>,
    /// `""` for the whole file, else `geometry` and the like.
    path: String,
    span: Range<usize>,
    entries: &'a DeTable<'a>,
    asked: RefCell<Vec<Asked>>,
}

impl<'a> Table<'a> {
    pub(crate) fn root(parsed: &'a Spanned<DeTable<'a>>, source: &'a Source<'a>) -> Table<'a> {
        Table {
            source,
            path: String::new(),
            span: parsed.span(),
            entries: parsed.get_ref(),
            asked: RefCell::default(),
        }
    }

    /// The keys' names as the user would write them.
    fn name(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_string()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn error(&self, offset: usize, key: &str, problem: String) -> ReadError {
        ReadError {
            offset,
            key: self.name(key),
            problem,
            is_syntax: false,
        }
    }

    /// An error about a key that was read already: says what was found there,
    /// then what is `legal`.
    pub fn wrong(&self, key: &str, legal: impl Display) -> ReadError {
        let (offset, found) = match self.entries.get_key_value(key) {
            Some((name, value)) => (name.span().start, self.found(key, value)),
            None => (self.span.start, "nothing".to_string()),
        };
        self.error(offset, key, format!("found {found}, {legal}"))
    }

    /// A value as the user wrote it.
    fn found(&self, key: &str, value: &Spanned<DeValue<'a>>) -> String {
        match value.get_ref() {
            DeValue::Table(_) => format!("[{}]", self.name(key)),
            _ => self.source.shown(value.span()),
        }
    }

    /// Whether a key is there.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    fn get(&self, key: &'static str, legal: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.asked.borrow_mut().push(Asked {
            key,
            legal: legal.to_string(),
        });
        self.entries.get(key)
    }

    /// A key's value, or nothing; `take` gives none where it is not `legal`.
    pub(crate) fn read_if_any<T>(
        &self,
        key: &'static str,
        legal: &str,
        take: impl FnOnce(&DeValue<'a>) -> Option<T>,
    ) -> Result<Option<T>, ReadError> {
        let Some(value) = self.get(key, legal) else {
            return Ok(None);
        };
        if let Some(found) = self.source.malformed(&value.span()) {
            let problem = format!("found {found}, legal is {legal}");
            return Err(ReadError {
                is_syntax: true,
                ..self.error(value.span().start, key, problem)
            });
        }
        let mismatch = || {
            let found = self.found(key, value);
            let problem = format!("found {found}, legal is {legal}");
            self.error(value.span().start, key, problem)
        };
        take(value.get_ref()).map(Some).ok_or_else(mismatch)
    }

    /// A key's value.
    pub(crate) fn read<T>(
        &self,
        key: &'static str,
        legal: &str,
        take: impl FnOnce(&DeValue<'a>) -> Option<T>,
    ) -> Result<T, ReadError> {
        self.read_if_any(key, legal, take)?
            .ok_or_else(|| self.missing(key, legal))
    }

    /// A key that is not there, or is by another name.
    fn missing(&self, key: &str, legal: &str) -> ReadError {
        let misnamed = self.entries.keys().find_map(|name| {
            let fault = fault_of_name(name.get_ref(), key)?;
            Some(self.misnamed(name, fault, key, legal))
        });
        misnamed.unwrap_or_else(|| {
            let problem = format!("is missing; it takes {legal}");
            self.error(self.span.start, key, problem)
        })
    }

    fn misnamed(
        &self,
        name: &Spanned<Cow<'_, str>>,
        fault: &str,
        key: &str,
        legal: &str,
    ) -> ReadError {
        let found = name.get_ref();
        let problem = format!("found `{found}`{fault}; write `{key} = ...` ({legal})");
        self.error(name.span().start, key, problem)
    }

    /// A table within this one.
    pub fn table(&self, key: &'static str) -> Result<Table<'a>, ReadError> {
        match self.table_if_any(key)? {
            Some(table) => Ok(table),
            None => Err(self.missing_table(key)),
        }
    }

    /// A table that is not there; one a letter or two off is most likely it.
    fn missing_table(&self, key: &str) -> ReadError {
        let wanted = format!("[{}]", self.name(key));
        let mut names = self.entries.keys();
        let typed = names.find(|name| strsim::osa_distance(name.get_ref(), key) <= 2);
        match typed {
            Some(name) => {
                let found = self.name(name.get_ref());
                let problem = format!("found [{found}]; write {wanted}");
                self.error(name.span().start, key, problem)
            }
            None => self.error(
                self.span.start,
                key,
                format!("the table {wanted} is missing"),
            ),
        }
    }

    /// A table within this one that may be left out.
    pub fn table_if_any(&self, key: &'static str) -> Result<Option<Table<'a>>, ReadError> {
        let legal = format!("a table, [{}]", self.name(key));
        let Some(value) = self.get(key, &legal) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::Table(entries) => Ok(Some(Table {
                source: self.source,
                path: self.name(key),
                span: value.span(),
                entries,
                asked: RefCell::default(),
            })),
            _ => self.read_if_any(key, &legal, |_| None),
        }
    }

    /// Refuses whatever nobody asked for.
    pub fn finish(&self) -> Result<(), ReadError> {
        let asked = self.asked.borrow();
        for (name, _) in self.entries.iter() {
            let found = name.get_ref().as_ref();
            if asked.iter().any(|asked| asked.key == found) {
                continue;
            }
            // One that was asked for and not found is most likely meant.
            let meant = asked.iter().filter(|asked| !self.has(asked.key));
            let misnamed =
                meant.filter_map(|asked| Some((fault_of_name(found, asked.key)?, asked)));
            if let Some((fault, asked)) = misnamed.last() {
                return Err(self.misnamed(name, fault, asked.key, &asked.legal));
            }
            let mut known: Vec<&str> = asked.iter().map(|asked| asked.key).collect();
            known.sort_unstable();
            known.dedup();
            let problem = format!("no such key here; legal are {}", known.join(", "));
            return Err(self.error(name.span().start, found, problem));
        }
        Ok(())
    }
}

/// Endings of keys that are units, ours and those that somebody may think ours.
const UNITS: [&str; 21] = [
    "s", "ms", "us", "ns", "ps", "b", "bytes", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "kb_s",
    "mb_s", "gb_s", "mt_s", "bits", "sectors", "percent",
];

/// A key without its unit; `None` where it has none.
fn stem_of(key: &str) -> Option<&str> {
    let stems = UNITS.iter().filter_map(|unit| {
        let stem = key.strip_suffix(unit)?.strip_suffix('_')?;
        (!stem.is_empty()).then_some(stem)
    });
    stems.min_by_key(|stem| stem.len())
}

/// What is wrong with the name of a key that is most likely another: a letter
/// off, or with the same stem, its unit left out or another. `None` where it is
/// not likely at all.
fn fault_of_name(found: &str, key: &str) -> Option<&'static str> {
    if stem_of(key).is_some_and(|stem| found == stem || stem_of(found) == Some(stem)) {
        Some(": the unit is missing or another")
    } else if strsim::osa_distance(found, key) == 1 {
        Some("")
    } else {
        None
    }
}
