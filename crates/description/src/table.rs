//! A table of a description, whose keys are read one by one.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt::Display;
use core::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::assumed::{self, Assumed};
use crate::hint;
use crate::key_type::KeyType;
use crate::letters_apart;
use crate::reference::{Key, Reference, UNITS};
use crate::source::{ReadError, Source};

/// A key that the table may have.
struct KnownKey {
    key: &'static str,
    legal: String,
}

/// The state that the tables of a description share.
pub(crate) struct Document<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) reference: RefCell<Reference>,
    /// Keys without effect, reported only if nothing else is wrong.
    pub(crate) idle: RefCell<Vec<ReadError>>,
    /// The values that the description marks as assumed.
    pub(crate) assumed: RefCell<Vec<Assumed>>,
}

/// A table whose keys are read one by one; a key that was never asked for is an error at
/// the end.
pub struct Table<'a> {
    document: &'a Document<'a>,
    /// The table's full name, such as `geometry`; empty for the root.
    path: String,
    /// The full name with `NAME` for each part that stands for many.
    path_of_any: String,
    span: Range<usize>,
    entries: &'a DeTable<'a>,
    known: RefCell<Vec<KnownKey>>,
}

impl<'a> Table<'a> {
    pub(crate) fn root(parsed: &'a Spanned<DeTable<'a>>, document: &'a Document<'a>) -> Table<'a> {
        Table {
            document,
            path: String::new(),
            path_of_any: String::new(),
            span: parsed.span(),
            entries: parsed.get_ref(),
            known: RefCell::default(),
        }
    }

    /// Sets the table's meaning, for the reference.
    pub fn about(&self, about: &'static str) {
        let mut reference = self.document.reference.borrow_mut();
        reference.table(&self.path_of_any).about = about;
    }

    /// Reads which values the description marks as assumed, in its order. The table must
    /// be the root.
    ///
    /// # Errors
    /// If its table `[assumed]` names an unknown key, or gives no values.
    pub fn assumed(&self) -> Result<Vec<Assumed>, ReadError> {
        self.get(assumed::TABLE, "a table, [assumed]");
        let mut reference = self.document.reference.borrow_mut();
        reference.table(assumed::TABLE).about = assumed::ABOUT;
        let found = assumed::read(self.entries, &self.document.source)?;
        *self.document.assumed.borrow_mut() = found.clone();
        Ok(found)
    }

    /// Returns the key's full name.
    fn name(&self, key: &str) -> String {
        within(&self.path, key)
    }

    fn error(&self, offset: usize, key: &str, problem: String) -> ReadError {
        ReadError {
            offset,
            key: self.name(key),
            problem,
            is_syntax: false,
        }
    }

    /// Returns an error about a key that was read before: what was found there, then
    /// what is `legal`.
    pub fn wrong(&self, key: &str, legal: impl Display) -> ReadError {
        let (offset, found) = match self.entries.get_key_value(key) {
            Some((name, value)) => (name.span().start, self.found(key, value)),
            None => (self.span.start, "nothing".to_string()),
        };
        self.error(offset, key, format!("found {found}, {legal}"))
    }

    /// Returns a value as the user wrote it.
    fn found(&self, key: &str, value: &Spanned<DeValue<'a>>) -> String {
        match value.get_ref() {
            DeValue::Table(_) => format!("[{}]", self.name(key)),
            _ => self.document.source.shown(value.span()),
        }
    }

    /// Returns whether a key is there.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Reads a key; `help` is its meaning in the reference.
    ///
    /// # Errors
    /// If it is missing, not legal, or without effect.
    pub fn key<T>(
        &self,
        key: &'static str,
        help: &'static str,
        entry: KeyType<'_, T>,
    ) -> Result<T, ReadError> {
        self.document
            .reference
            .borrow_mut()
            .table(&self.path_of_any)
            .add(Key::of(key, help, &entry));
        self.value(key, entry)
    }

    fn value<T>(&self, key: &'static str, entry: KeyType<'_, T>) -> Result<T, ReadError> {
        let legal = &entry.legal;
        let Some(value) = self.get(key, legal) else {
            let default = entry.default.map(|(value, _)| value);
            return default.ok_or_else(|| self.missing(key, legal));
        };
        if let Some(error) = self.malformed(key, value, legal) {
            return Err(error);
        }
        let taken = (entry.take)(value.get_ref());
        let taken = taken.map_err(|problem| self.mismatch(key, value, &problem))?;
        if let Some((what, false)) = entry.needs {
            self.refuse_idle(key, what);
        }
        Ok(taken)
    }

    /// Refuses a key that has no effect because something else is missing. The error is
    /// reported only if nothing else is wrong.
    pub fn refuse_idle(&self, key: &str, what: &str) {
        if self.has(key) {
            let problem =
                format!("has no effect here, so legal is to leave it out; it needs {what}");
            let error = self.wrong(key, problem);
            self.document.idle.borrow_mut().push(error);
        }
    }

    fn get(&self, key: &'static str, legal: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        let legal = legal.to_string();
        self.known.borrow_mut().push(KnownKey { key, legal });
        self.entries.get(key)
    }

    fn mismatch(&self, key: &str, value: &Spanned<DeValue<'a>>, problem: &str) -> ReadError {
        let found = self.found(key, value);
        self.error(value.span().start, key, format!("found {found}, {problem}"))
    }

    /// Returns the error about a value that is not TOML.
    fn malformed(&self, key: &str, value: &Spanned<DeValue<'a>>, legal: &str) -> Option<ReadError> {
        let found = self.document.source.malformed(&value.span())?;
        let problem = format!("found {found}, legal is {legal}");
        Some(ReadError {
            is_syntax: true,
            ..self.error(value.span().start, key, problem)
        })
    }

    /// Returns the error about a key that is missing or misspelt.
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

    /// Opens a required table within this one.
    pub fn table(&self, key: &'static str) -> Result<Table<'a>, ReadError> {
        match self.table_if_any(key)? {
            Some(table) => Ok(table),
            None => Err(self.missing_table(key)),
        }
    }

    /// Returns the error about a missing table; a name that is a letter or two off is
    /// assumed to mean it.
    fn missing_table(&self, key: &str) -> ReadError {
        let wanted = format!("[{}]", self.name(key));
        let mut names = self.entries.keys();
        let typed = names.find(|name| letters_apart(name.get_ref(), key) <= 2);
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

    /// Opens an optional table within this one.
    pub fn table_if_any(&self, key: &'static str) -> Result<Option<Table<'a>>, ReadError> {
        self.table_of(key, key)
    }

    /// Reads a table within this one with `read`; `None` if it is left out.
    ///
    /// # Errors
    /// The error of `read`, or an error about a key that is not a table.
    pub fn read_if_any<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&Table<'a>) -> Result<T, ReadError>,
    ) -> Result<Option<T>, ReadError> {
        self.table_if_any(key)?
            .map(|table| read(&table))
            .transpose()
    }

    /// Reads those of several tables that are there, by name, each with `read`. The
    /// reference lists them as one table, `NAME`.
    ///
    /// # Errors
    /// The first error of `read`, or an error about a key that is not a table.
    pub fn tables<T>(
        &self,
        names: impl IntoIterator<Item = &'static str>,
        read: impl Fn(&Table<'a>) -> Result<T, ReadError>,
    ) -> Result<BTreeMap<String, T>, ReadError> {
        let mut found = BTreeMap::new();
        for name in names {
            if let Some(table) = self.table_of(name, "NAME")? {
                found.insert(name.to_string(), read(&table)?);
            }
        }
        Ok(found)
    }

    /// Reads each table of an array such as `[[export]]` with `read`.
    ///
    /// # Errors
    /// The first error of `read`, or an error about a value that is not an array of
    /// tables.
    pub fn read_each<T>(
        &self,
        key: &'static str,
        read: impl Fn(&Table<'a>) -> Result<T, ReadError>,
    ) -> Result<Vec<T>, ReadError> {
        let legal = format!("tables, [[{}]]", self.name(key));
        let Some(value) = self.get(key, &legal) else {
            return Ok(Vec::new());
        };
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.no_table(key, value, &legal));
        };
        let tables = items.iter().map(|item| match item.get_ref() {
            DeValue::Table(entries) => read(&self.within(key, key, item.span(), entries)),
            _ => Err(self.no_table(key, item, &legal)),
        });
        tables.collect()
    }

    fn table_of(
        &self,
        key: &'static str,
        any: &'static str,
    ) -> Result<Option<Table<'a>>, ReadError> {
        let legal = format!("a table, [{}]", self.name(key));
        let Some(value) = self.get(key, &legal) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::Table(entries) => Ok(Some(self.within(key, any, value.span(), entries))),
            _ => Err(self.no_table(key, value, &legal)),
        }
    }

    fn within(
        &self,
        key: &str,
        any: &str,
        span: Range<usize>,
        entries: &'a DeTable<'a>,
    ) -> Table<'a> {
        Table {
            document: self.document,
            path: self.name(key),
            path_of_any: within(&self.path_of_any, any),
            span,
            entries,
            known: RefCell::default(),
        }
    }

    fn no_table(&self, key: &str, value: &Spanned<DeValue<'a>>, legal: &str) -> ReadError {
        self.malformed(key, value, legal).unwrap_or_else(|| {
            let problem = format!("legal is {legal}");
            self.mismatch(key, value, &problem)
        })
    }

    /// Refuses keys that were never asked for.
    pub fn finish(&self) -> Result<(), ReadError> {
        let known = self.known.borrow();
        for (name, _) in self.entries.iter() {
            let found = name.get_ref().as_ref();
            if known.iter().any(|known| known.key == found) {
                continue;
            }
            // A legal key that is not there is most likely meant.
            let meant = known.iter().filter(|known| !self.has(known.key));
            let misnamed =
                meant.filter_map(|known| Some((fault_of_name(found, known.key)?, known)));
            if let Some((fault, known)) = misnamed.last() {
                return Err(self.misnamed(name, fault, known.key, &known.legal));
            }
            let mut known: Vec<&str> = known.iter().map(|known| known.key).collect();
            known.sort_unstable();
            known.dedup();
            let hint = hint(found, known.iter().copied());
            let problem = format!("no such key here; legal are {}{hint}", known.join(", "));
            return Err(self.error(name.span().start, found, problem));
        }
        Ok(())
    }
}

/// Returns the full name of a key in a table.
fn within(table: &str, key: &str) -> String {
    match table {
        "" => key.to_string(),
        table => format!("{table}.{key}"),
    }
}

/// Returns a key without its unit; `None` if it has none.
fn stem_of(key: &str) -> Option<&str> {
    let stems = UNITS.iter().filter_map(|(ending, _)| {
        let stem = key.strip_suffix(ending)?.strip_suffix('_')?;
        (!stem.is_empty()).then_some(stem)
    });
    stems.min_by_key(|stem| stem.len())
}

/// Returns what is wrong with a name that most likely means `key`: it is a letter off,
/// or has the same stem with another unit or none. `None` if it is not likely.
fn fault_of_name(found: &str, key: &str) -> Option<&'static str> {
    if stem_of(key).is_some_and(|stem| found == stem || stem_of(found) == Some(stem)) {
        Some(": the unit is missing or another")
    } else if letters_apart(found, key) == 1 {
        Some("")
    } else {
        None
    }
}
