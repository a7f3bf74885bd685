//! Results go to standard output or whole into a file, never half.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Prints to standard output. A reader that has seen enough is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Broken(format!("cannot write: {e}")))
        }
        _ => Ok(()),
    }
}

/// Checks, before any work, that results have a place each: the options that
/// name files, and what they name. None of them may replace one of the files that
/// the command reads, its `inputs`.
pub(crate) fn check(files: &[(&str, Option<&Path>)], inputs: &[&Path]) -> Result<(), Failure> {
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
        if path.is_file() && inputs.iter().any(|input| is_same_file(input, path)) {
            let path = path.display();
            return Err(Failure::mistake(format!(
                "{option} {path}: the command reads that file; give another"
            )));
        }
        // A pipe or a terminal takes one thing after the other.
        let replaces = !path.exists() || path.is_file();
        let same = |(_, other): &&(&str, &Path)| *other == path;
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

fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
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

/// What a path leads to, through symbolic links, whether that exists or not.
fn target(path: &Path) -> PathBuf {
    /// As many as Linux follows.
    const LINKS_MAX: usize = 40;
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let Ok(link) = std::fs::read_link(&path) else {
            break;
        };
        path = path.parent().unwrap_or(Path::new("")).join(link);
    }
    path
}

/// Writes a file: it appears whole, or not at all. It keeps the rights of the one
/// that it replaces; a link stays, and what it leads to is replaced.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let broken = |e: std::io::Error| Failure::Broken(cannot_write(path, e));
    let path = &target(path);
    has_folder(path)?;
    if path.exists() && !path.is_file() {
        // A pipe or a terminal cannot be replaced.
        return std::fs::write(path, bytes).map_err(broken);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let mut builder = tempfile::Builder::new();
    builder.prefix(".blklab-");
    set_usual_rights(&mut builder);
    let mut file = builder
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .map_err(|e| Failure::Mistake(cannot_write(path, e)))?;
    file.write_all(bytes).map_err(broken)?;
    if let Ok(old) = path.metadata() {
        let rights = file.as_file().set_permissions(old.permissions());
        rights.map_err(broken)?;
    }
    file.persist(path).map_err(|e| broken(e.error))?;
    Ok(())
}

/// Temporary files are for their owner alone; a result is for whom the umask
/// allows.
#[cfg(unix)]
fn set_usual_rights(builder: &mut tempfile::Builder<'_, '_>) {
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(std::fs::Permissions::from_mode(0o666));
}

#[cfg(not(unix))]
fn set_usual_rights(_: &mut tempfile::Builder<'_, '_>) {}

/// Prints, or writes to a file where one is named.
pub(crate) fn deliver(text: &str, file: Option<&Path>) -> Result<(), Failure> {
    match file {
        Some(path) => write_file(path, text.as_bytes()),
        None => print(text),
    }
}

/// The command as it was typed, for the page; the program's folder is left out.
pub(crate) fn command_line() -> String {
    let words = std::env::args().skip(1).map(|word| quoted(&word));
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
