//! The folder of a sweep: results of runs by their keys, in files that are only appended
//! to.
//!
//! A run is one line, written at once: if the program ends at any moment, the files have
//! complete lines and at most one incomplete last line, which is ignored. Files of
//! several machines form one data set when they are put in one folder.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use blklab_tables::Table;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::error::Error;

/// The identity of a run: a hash of everything that determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub(crate) u128);

pub(crate) type Row = Map<String, Value>;

/// The first and last part of the files' names.
const PREFIX: &str = "part-";
const SUFFIX: &str = ".jsonl";

/// Length in bytes after which a new file is begun, since files are what machines exchange.
const PART_BYTES: u64 = 64 << 20;

/// Where a run's line is.
#[derive(Clone, Copy)]
struct Place {
    /// The index of its file.
    part: u32,
    bytes: u32,
    offset: u64,
}

/// A file of runs, and what of it is known.
struct Part {
    path: PathBuf,
    /// The whole lines that were read or written.
    known: Known,
}

/// The beginning of a file.
#[derive(Clone, Copy, Default)]
struct Known {
    bytes: u64,
    lines: usize,
}

/// A line with a run, without its results.
#[derive(Deserialize)]
struct RunLine<'a> {
    key: &'a str,
    #[serde(rename = "rows")]
    _rows: Vec<IgnoredAny>,
}

/// The first line of a file.
#[derive(Deserialize)]
struct FirstLine {
    program: String,
}

/// The folder of a sweep. It keeps in memory where each run's results are, and reads them
/// when they are asked for: a sweep may have millions of runs.
pub struct Store {
    folder: PathBuf,
    program: String,
    parts: Vec<Part>,
    found: HashMap<Key, Place>,
    /// Whether the folder was made for this store.
    is_new: bool,
    /// The file that is being written, with its index.
    writing: Option<(File, usize)>,
}

impl Store {
    /// Opens a folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// If it cannot be created or read, or has runs of another build of this program.
    pub fn open(folder: &Path, program: &str) -> Result<Store, Error> {
        let place = folder.display();
        let is_new = !folder.exists();
        std::fs::create_dir_all(folder)
            .map_err(|error| Error::mistake(format!("{place}: cannot be made: {error}")))?;
        let mut store = Store {
            folder: folder.to_path_buf(),
            program: program.to_string(),
            parts: Vec::new(),
            found: HashMap::new(),
            is_new,
            writing: None,
        };
        store.update()?;
        Ok(store)
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads what was added to the folder by others since it was last read.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn update(&mut self) -> Result<(), Error> {
        for path in parts_of(&self.folder)? {
            let at = self.parts.iter().position(|part| part.path == path);
            let at = at.unwrap_or_else(|| self.begin_part(path));
            let Part { path, known } = &self.parts[at];
            let found = &mut self.found;
            let known = read_part(path, *known, &self.program, |key, offset, line| {
                found.insert(key, place_of(at, offset, line)?);
                Ok(())
            })?;
            self.parts[at].known = known;
        }
        Ok(())
    }

    /// Returns the number of runs whose results the store has.
    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    /// Returns whether the store has no run's results.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns whether the store has a run's results.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.found.contains_key(&key)
    }

    /// Adds a run's results.
    pub(crate) fn add(&mut self, key: Key, table: &Table) -> Result<(), Error> {
        let rows = (0..table.rows()).map(|row| table.json_row(row)).collect();
        self.write(key, rows)
    }

    /// Adds the runs of another folder that this one lacks, and returns their number.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn merge(&mut self, folder: &Path) -> Result<usize, Error> {
        if !folder.is_dir() {
            return Err(Error::mistake(format!(
                "{}: no such folder",
                folder.display()
            )));
        }
        let mut added = 0;
        let program = self.program.clone();
        for path in parts_of(folder)? {
            read_part(&path, Known::default(), &program, |key, _, line| {
                if !self.has(key) {
                    self.write_line(key, line)?;
                    added += 1;
                }
                Ok(())
            })?;
        }
        Ok(added)
    }

    fn write(&mut self, key: Key, rows: Vec<Row>) -> Result<(), Error> {
        let line = json!({ "key": format!("{:032x}", key.0), "rows": rows });
        self.write_line(key, format!("{line}\n").as_bytes())
    }

    /// Writes a run's line, with its end.
    fn write_line(&mut self, key: Key, line: &[u8]) -> Result<(), Error> {
        let place = self.folder.display().to_string();
        let broken = |error| Error::Store(format!("{place}: cannot write: {error}"));
        let parts = &self.parts;
        let is_full = |(_, at): &(File, usize)| parts[*at].known.bytes >= PART_BYTES;
        let writing = self.writing.take().filter(|writing| !is_full(writing));
        let (part, at) = match writing {
            Some((mut part, at)) => {
                part.write_all(line).map_err(broken)?;
                (part, at)
            }
            None => self.new_part(line).map_err(broken)?,
        };
        self.writing = Some((part, at));
        let known = &mut self.parts[at].known;
        self.found.insert(key, place_of(at, known.bytes, line)?);
        known.bytes += line.len() as u64;
        known.lines += 1;
        Ok(())
    }

    /// Adds a file of which nothing is known yet, and returns its index.
    fn begin_part(&mut self, path: PathBuf) -> usize {
        let known = Known::default();
        self.parts.push(Part { path, known });
        self.parts.len() - 1
    }

    /// Creates a file with a first run and a name that is unique across programs and machines.
    /// What cannot be written is removed, and with it a new folder that has nothing else.
    fn new_part(&mut self, line: &[u8]) -> std::io::Result<(File, usize)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ns = now.map_or(0, |now| now.as_nanos());
        let name = format!("{PREFIX}{now_ns:x}-{}{SUFFIX}", std::process::id());
        let path = self.folder.join(name);
        let first = format!("{}\n", json!({ "program": self.program }));
        let written = File::create_new(&path).and_then(|mut part| {
            part.write_all(&[first.as_bytes(), line].concat())?;
            Ok(part)
        });
        match written {
            Ok(part) => {
                let at = self.begin_part(path);
                let (bytes, lines) = (first.len() as u64, 1);
                self.parts[at].known = Known { bytes, lines };
                Ok((part, at))
            }
            Err(error) => {
                // Whatever is left, the error of the write is the one to tell.
                let _ = std::fs::remove_file(&path);
                if self.is_new {
                    let _ = std::fs::remove_dir(&self.folder);
                }
                Err(error)
            }
        }
    }

    /// Returns a reader of runs' results.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader {
            store: self,
            open: None,
            line: Vec::new(),
        }
    }
}

/// Reads results of runs. It keeps the last file open, since runs that are asked for one
/// after the other were mostly written so.
pub(crate) struct Reader<'a> {
    store: &'a Store,
    open: Option<(u32, File)>,
    line: Vec<u8>,
}

impl Reader<'_> {
    /// Returns a run's results; none if the store lacks them.
    ///
    /// # Errors
    /// If the file can no longer be read.
    pub(crate) fn rows(&mut self, key: Key) -> Result<Vec<Row>, Error> {
        let Some(place) = self.store.found.get(&key) else {
            return Ok(Vec::new());
        };
        let path = &self.store.parts[place.part as usize].path;
        let file = match self.open.take() {
            Some((part, file)) if part == place.part => file,
            _ => File::open(path).map_err(|error| unread(path, error))?,
        };
        self.line.resize(place.bytes as usize, 0);
        file.read_exact_at(&mut self.line, place.offset)
            .map_err(|error| unread(path, error))?;
        self.open = Some((place.part, file));
        let run: Option<Value> = serde_json::from_slice(&self.line).ok();
        run.and_then(rows_of).ok_or_else(|| {
            let offset = place.offset;
            Error::mistake(format!("{}: no run at byte {offset}", path.display()))
        })
    }
}

fn rows_of(mut run: Value) -> Option<Vec<Row>> {
    let Value::Array(rows) = run.get_mut("rows")?.take() else {
        return None;
    };
    let row = |row| match row {
        Value::Object(row) => Some(row),
        _ => None,
    };
    rows.into_iter().map(row).collect()
}

fn place_of(part: usize, offset: u64, line: &[u8]) -> Result<Place, Error> {
    let too_long = |_| Error::Store("a run's results are too long to be kept".to_string());
    Ok(Place {
        part: u32::try_from(part).map_err(too_long)?,
        bytes: u32::try_from(line.len()).map_err(too_long)?,
        offset,
    })
}

fn unread(path: &Path, error: std::io::Error) -> Error {
    Error::mistake(format!("{}: cannot be read: {error}", path.display()))
}

/// Returns the files of runs in a folder, by their names.
fn parts_of(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| unread(folder, error))? {
        let path = entry.map_err(|error| unread(folder, error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) && path.is_file() {
            parts.push(path);
        }
    }
    parts.sort();
    Ok(parts)
}

/// Reads the whole lines of a file after those that are known, calls `each` with the key,
/// offset and text of each run, and returns what is known then. Runs of another build are
/// refused, since their figures may differ.
fn read_part(
    path: &Path,
    mut known: Known,
    program: &str,
    mut each: impl FnMut(Key, u64, &[u8]) -> Result<(), Error>,
) -> Result<Known, Error> {
    let place = path.display();
    let mut file = File::open(path).map_err(|error| unread(path, error))?;
    let sought = file.seek(SeekFrom::Start(known.bytes));
    sought.map_err(|error| unread(path, error))?;
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = file.read_until(b'\n', &mut line);
        read.map_err(|error| unread(path, error))?;
        // A line without its end was being written when the program ended.
        if line.last() != Some(&b'\n') {
            return Ok(known);
        }
        let wrong = || {
            let line = known.lines + 1;
            Error::mistake(format!(
                "{place}:{line}: no run of a sweep, as blklab writes one"
            ))
        };
        if known.lines == 0 {
            let first: Option<FirstLine> = serde_json::from_slice(&line).ok();
            check_program(path, &first.ok_or_else(wrong)?.program, program)?;
        } else {
            each(key_of(&line).ok_or_else(wrong)?, known.bytes, &line)?;
        }
        known.bytes += line.len() as u64;
        known.lines += 1;
    }
}

fn key_of(line: &[u8]) -> Option<Key> {
    let run: RunLine<'_> = serde_json::from_slice(line).ok()?;
    u128::from_str_radix(run.key, 16).ok().map(Key)
}

fn check_program(path: &Path, found: &str, own: &str) -> Result<(), Error> {
    match found == own {
        true => Ok(()),
        false => Err(Error::mistake(format!(
            "{}: its runs are of {found}, and this is {own}; one data set is of one program: \
             give another folder by --output, or go on with that program",
            path.display(),
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: u64) -> Vec<Row> {
        let row = json!({ "ios": value });
        vec![row.as_object().cloned().expect("an object")]
    }

    fn part(folder: &Path) -> PathBuf {
        let mut entries = std::fs::read_dir(folder).expect("a folder");
        entries.next().expect("a part").expect("an entry").path()
    }

    #[test]
    fn wherever_a_file_is_cut_whole_runs_come_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut store = Store::open(folder.path(), "p").expect("empty");
        for value in 1..=3 {
            store.write(Key(value), row(value as u64)).expect("written");
        }
        let path = part(folder.path());
        let text = std::fs::read_to_string(&path).expect("text");
        for cut in 0..=text.len() {
            std::fs::write(&path, &text[..cut]).expect("written");
            let store = Store::open(folder.path(), "p").expect("cut, not wrong");
            let whole = text[..cut].matches('\n').count().saturating_sub(1);
            assert_eq!(store.found.len(), whole, "cut at {cut}");
            let mut reader = store.reader();
            for key in 1..=whole as u128 {
                assert_eq!(reader.rows(Key(key)).expect("whole"), row(key as u64));
            }
        }
    }

    #[test]
    fn parts_are_put_together_and_those_of_other_programs_are_refused() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut first = Store::open(one.path(), "p").expect("empty");
        let mut second = Store::open(two.path(), "p").expect("empty");
        first.write(Key(1), row(1)).expect("written");
        second.write(Key(1), row(1)).expect("written");
        second.write(Key(2), row(2)).expect("written");
        assert_eq!(first.merge(two.path()).expect("one program"), 1);
        let rows = first.reader().rows(Key(2));
        assert_eq!(rows.expect("merged"), row(2));
        let again = Store::open(one.path(), "p").expect("written");
        assert_eq!(again.found.len(), 2);
        let error = Store::open(one.path(), "q").err().expect("another program");
        assert!(
            error
                .to_string()
                .contains("its runs are of p, and this is q"),
            "{error}"
        );
        std::fs::write(part(one.path()), "{\"program\":\"p\"}\nnonsense\n").unwrap();
        let error = Store::open(one.path(), "p").err().expect("nonsense");
        assert!(
            error.to_string().contains(":2: no run of a sweep"),
            "{error}"
        );
    }

    #[test]
    fn what_others_add_is_found_without_reading_all_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = Store::open(folder.path(), "p").expect("empty");
        first.write(Key(1), row(1)).expect("written");
        let mut second = Store::open(folder.path(), "p").expect("written");
        first.write(Key(2), row(2)).expect("written");
        let path = part(folder.path());
        std::fs::write(
            folder.path().join("part-z.jsonl"),
            "{\"program\":\"p\"}\n{\"key\":\"3\",\"rows\":[{\"ios\":3}]}\n",
        )
        .expect("written");
        // What is known is not read again: it may be anything.
        let text = std::fs::read_to_string(&path).expect("text");
        std::fs::write(&path, text.replacen("program", "PROGRAM", 1)).expect("written");
        second.update().expect("two more");
        for key in 1..=3_u64 {
            let rows = second.reader().rows(Key(key.into()));
            assert_eq!(rows.expect("known"), row(key));
        }
    }
}
