//! Writes results to standard output or to a file, which is replaced only by a complete
//! one.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use blklab_description::NewFile;
use blklab_report::SchedulerRuns;
use blklab_tables::{Format, Table};

use crate::args::TableArgs;
use crate::failure::Failure;

/// Prints to standard output. A reader that has closed the pipe is no error.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Broken(format!("cannot write: {e}")))
        }
        _ => Ok(()),
    }
}

/// Checks, before any work, that each output file can be written, that no two options
/// name the same file, and that none replaces one of the `inputs`.
pub(crate) fn check(
    files: &[(&str, Option<&Path>)],
    inputs: &[impl AsRef<Path>],
) -> Result<(), Failure> {
    let named = files
        .iter()
        .filter_map(|(option, path)| Some((option, (*path)?)));
    let mut seen: Vec<(&str, &Path)> = Vec::new();
    for (option, path) in named {
        has_folder(path)?;
        if path.is_dir() {
            let why = format!("{option} needs a file, and this is a folder");
            return Err(Failure::Mistake(cannot_write(path, why)));
        }
        let is_path = |input: &Path| input.exists() && is_same_file(input, path);
        if inputs.iter().any(|input| is_path(input.as_ref())) {
            let path = path.display();
            return Err(Failure::mistake(format!(
                "{option} {path}: the command reads that file; give another"
            )));
        }
        // A pipe or a terminal takes several outputs one after the other.
        let replaces = !path.exists() || path.is_file();
        let same = |(_, other): &&(&str, &Path)| is_same_file(other, path);
        if let (true, Some((other, _))) = (replaces, seen.iter().find(same)) {
            let path = path.display();
            return Err(Failure::mistake(format!(
                "{option} {path}: {other} writes that file too; give another"
            )));
        }
        seen.push((option, path));
    }
    Ok(())
}

/// Returns whether two names mean one file, which may be linked twice or not exist yet.
fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => place_of(one) == place_of(other),
    }
}

/// Returns the canonical folder and name of a file that does not exist yet.
fn place_of(path: &Path) -> (Option<PathBuf>, Option<&OsStr>) {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    (folder.ok(), path.file_name())
}

fn cannot_write(path: &Path, why: impl Display) -> String {
    format!("{}: cannot write: {why}", path.display())
}

fn has_folder(path: &Path) -> Result<(), Failure> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            let why = "its folder does not exist";
            Err(Failure::Mistake(cannot_write(path, why)))
        }
        _ => Ok(()),
    }
}

/// Writes a file atomically: it appears whole, or not at all.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_new_file(path, |file| {
        let written = file.write_all(bytes);
        written.map_err(|e| Failure::Broken(cannot_write(path, e)))
    })
}

/// Makes a file of what `write` writes, which appears whole or not at all.
pub(crate) fn write_new_file(
    path: &Path,
    write: impl FnOnce(&mut NewFile) -> Result<(), Failure>,
) -> Result<(), Failure> {
    has_folder(path)?;
    let mut file = NewFile::create(path).map_err(|e| Failure::Mistake(cannot_write(path, e)))?;
    write(&mut file)?;
    (file.keep()).map_err(|e| Failure::Broken(cannot_write(path, e)))
}

/// Writes the text to a file if one is named, else prints it.
pub(crate) fn deliver(text: impl AsRef<[u8]>, file: Option<&Path>) -> Result<(), Failure> {
    match file {
        Some(path) => write_file(path, text.as_ref()),
        None => print(text),
    }
}

/// Returns whether what is delivered goes elsewhere than to a terminal.
pub(crate) fn leaves_the_terminal(file: Option<&Path>) -> bool {
    file.is_some() || !std::io::stdout().is_terminal()
}

/// Checks, before any work, that tables can be written: each option's file name, and the
/// format of the printed output.
pub(crate) fn check_tables(
    tables: &TableArgs,
    printed: Option<Format>,
    file: Option<&Path>,
) -> Result<(), Failure> {
    for (option, path) in tables.outputs() {
        if let Some(path) = path {
            Format::of_path(path).map_err(|why| Failure::Mistake(format!("{option} {why}")))?;
        }
    }
    let Some(format) = printed else {
        return Ok(());
    };
    if format != Format::Csv && !leaves_the_terminal(file) {
        return Err(Failure::mistake(
            "--output-format: this is no text for a terminal; name a file with --output",
        ));
    }
    Ok(())
}

/// Encodes a table in this format.
pub(crate) fn table_bytes(table: &Table, format: Format) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let written = format.write(table, &mut bytes);
    written.map_err(|error| Failure::Broken(format!("a table cannot be written: {error}")))?;
    Ok(bytes)
}

/// Writes an encoded table to a file if one is named, else prints it.
pub(crate) fn deliver_table(
    table: &Table,
    format: Format,
    file: Option<&Path>,
) -> Result<(), Failure> {
    let bytes = table_bytes(table, format)?;
    match file {
        Some(path) => write_file(path, &bytes),
        None => print(&bytes),
    }
}

/// Returns a note for each setting whose first run has not kept all of its requests.
pub(crate) fn notes_on_requests(settings: &[SchedulerRuns]) -> Vec<String> {
    let is_cut = |setting: &&SchedulerRuns| {
        let traced = setting
            .runs
            .first()
            .and_then(|run| run.traced_requests.as_ref());
        traced.is_some_and(|traced| traced.cut)
    };
    let note = |setting: &SchedulerRuns| {
        format!(
            "{}: there is no room for all requests; those of the run's end are missing",
            setting.name
        )
    };
    settings.iter().filter(is_cut).map(note).collect()
}

/// Writes the requested tables.
pub(crate) fn write_tables(tables: &TableArgs, settings: &[SchedulerRuns]) -> Result<(), Failure> {
    let firsts = || {
        let firsts = settings.iter();
        firsts.filter_map(|setting| Some((setting.name.as_str(), setting.runs.first()?)))
    };
    for note in notes_on_requests(settings) {
        eprintln!("blklab: {note}");
    }
    let write = |path: &Option<PathBuf>, table: &dyn Fn() -> Table| match path {
        None => Ok(()),
        Some(path) => {
            let format = Format::of_path(path).map_err(Failure::Mistake)?;
            write_file(path, &table_bytes(&table(), format)?)
        }
    };
    write(&tables.requests, &|| blklab_tables::requests(firsts()))?;
    write(&tables.series, &|| blklab_tables::series(firsts()))
}

/// Returns the command as it was typed, without the program's folder, for the page.
pub(crate) fn command_line() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    command_of(&words)
}

/// Returns a command line of these words, quoted for a shell.
pub(crate) fn command_of(words: &[String]) -> String {
    let words = words.iter().map(|word| quoted(word));
    let mut line = String::from("blklab");
    words.for_each(|word| {
        line.push(' ');
        line.push_str(&word);
    });
    line
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use blklab_stats::{Results, TracedRequests};

    use super::*;

    #[test]
    fn a_run_that_has_not_kept_all_requests_is_noted() {
        let setting = |name: &str, traced_requests| SchedulerRuns {
            name: name.to_string(),
            runs: vec![Results {
                traced_requests,
                ..Results::default()
            }],
        };
        let traced = |cut| {
            Some(TracedRequests {
                of: Vec::new(),
                cut,
            })
        };
        let settings = [
            setting("none", traced(false)),
            setting("bfq", traced(true)),
            setting("kyber", None),
        ];
        let notes = notes_on_requests(&settings);
        assert_eq!(notes.len(), 1);
        assert!(
            notes[0].starts_with("bfq: there is no room"),
            "{}",
            notes[0]
        );
    }
}
