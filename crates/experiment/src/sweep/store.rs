//! The folder of a sweep: results of runs by their keys, in files that are only appended
//! to.
//!
//! A run is one line, written at once: if the program ends at any moment, the files have
//! complete lines and at most one incomplete last line, which is ignored. Files of
//! several machines form one data set when they are put in one folder.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use blklab_description::read_text;
use blklab_tables::Table;
use serde_json::{Map, Value, json};

use crate::error::Error;

/// The identity of a run: a hash of everything that determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub(crate) u128);

type Row = Map<String, Value>;

/// The first and last part of the files' names.
const PREFIX: &str = "part-";
const SUFFIX: &str = ".jsonl";

/// Length in bytes after which a new file is begun, since a file is read whole.
const PART_BYTES: u64 = 64 << 20;

/// The folder of a sweep.
pub struct Store {
    folder: PathBuf,
    program: String,
    found: HashMap<Key, Vec<Row>>,
    /// Whether the folder was made for this store.
    is_new: bool,
    /// The file that is being written, and its length in bytes.
    part: Option<(File, u64)>,
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
            found: HashMap::new(),
            is_new,
            part: None,
        };
        for line in store.lines_of(folder)? {
            store.found.insert(line.0, line.1);
        }
        Ok(store)
    }

    /// Returns whether the store has a run's results.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.found.contains_key(&key)
    }

    /// Returns a run's results; none if the store lacks them.
    pub(crate) fn rows(&self, key: Key) -> &[Row] {
        self.found.get(&key).map_or(&[], Vec::as_slice)
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
        for (key, rows) in self.lines_of(folder)? {
            if !self.has(key) {
                self.write(key, rows)?;
                added += 1;
            }
        }
        Ok(added)
    }

    fn write(&mut self, key: Key, rows: Vec<Row>) -> Result<(), Error> {
        let line = json!({ "key": format!("{:032x}", key.0), "rows": rows });
        let broken =
            |error| Error::Store(format!("{}: cannot write: {error}", self.folder.display()));
        let full = |(_, length): &(File, u64)| *length >= PART_BYTES;
        let line = format!("{line}\n");
        let (part, length) = match self.part.take().filter(|part| !full(part)) {
            Some((mut part, length)) => {
                part.write_all(line.as_bytes()).map_err(broken)?;
                (part, length)
            }
            None => (self.new_part(&line).map_err(broken)?, 0),
        };
        self.part = Some((part, length + line.len() as u64));
        self.found.insert(key, rows);
        Ok(())
    }

    /// Creates a file with a first run and a name that is unique across programs and machines.
    /// What cannot be written is removed, and with it a new folder that has nothing else.
    fn new_part(&self, line: &str) -> std::io::Result<File> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ns = now.map_or(0, |now| now.as_nanos());
        let name = format!("{PREFIX}{now_ns:x}-{}{SUFFIX}", std::process::id());
        let path = self.folder.join(name);
        let text = format!("{}\n{line}", json!({ "program": self.program }));
        let written = File::create_new(&path).and_then(|mut part| {
            part.write_all(text.as_bytes())?;
            Ok(part)
        });
        if written.is_err() {
            // Whatever is left, the error of the write is the one to tell.
            let _ = std::fs::remove_file(&path);
            if self.is_new {
                let _ = std::fs::remove_dir(&self.folder);
            }
        }
        written
    }

    /// Returns all runs in the files of a folder.
    fn lines_of(&self, folder: &Path) -> Result<Vec<(Key, Vec<Row>)>, Error> {
        let place = folder.display();
        let unread = |error| Error::mistake(format!("{place}: cannot be read: {error}"));
        let mut parts = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
                parts.push(path);
            }
        }
        parts.sort();
        let mut lines = Vec::new();
        for part in parts {
            self.read_part(&part, &mut lines)?;
        }
        Ok(lines)
    }

    fn read_part(&self, path: &Path, lines: &mut Vec<(Key, Vec<Row>)>) -> Result<(), Error> {
        let place = path.display();
        let text = read_text(path);
        let text =
            text.map_err(|error| Error::mistake(format!("{place}: cannot be read: {error}")))?;
        // A line without its end was being written when the program ended.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for (at, line) in whole.lines().enumerate() {
            let parsed: Option<Value> = serde_json::from_str(line).ok();
            let wrong = || {
                let line = at + 1;
                Error::mistake(format!(
                    "{place}:{line}: no run of a sweep, as blklab writes one"
                ))
            };
            let parsed = parsed.ok_or_else(wrong)?;
            if at == 0 {
                self.check_program(path, parsed["program"].as_str().ok_or_else(wrong)?)?;
                continue;
            }
            lines.push(run_of(&parsed).ok_or_else(wrong)?);
        }
        Ok(())
    }

    /// Refuses runs of another build, whose figures may differ.
    fn check_program(&self, path: &Path, program: &str) -> Result<(), Error> {
        match program == self.program {
            true => Ok(()),
            false => Err(Error::mistake(format!(
                "{}: its runs are of {program}, and this is {}; one data set is of one program: \
                 give another folder by --output, or go on with that program",
                path.display(),
                self.program
            ))),
        }
    }
}

fn run_of(line: &Value) -> Option<(Key, Vec<Row>)> {
    let key = u128::from_str_radix(line["key"].as_str()?, 16).ok()?;
    let rows = line["rows"].as_array()?.iter();
    let rows = rows.map(|row| row.as_object().cloned());
    Some((Key(key), rows.collect::<Option<Vec<Row>>>()?))
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
            assert!((1..=whole as u128).all(|key| store.rows(Key(key)) == row(key as u64)));
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
        assert_eq!(first.rows(Key(2)), row(2));
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
}
