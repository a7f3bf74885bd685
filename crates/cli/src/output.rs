//! Results go to standard output or whole into a file, never half.

use std::io::{ErrorKind, Write};
use std::path::Path;

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

/// Writes a file: it appears whole, or not at all.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let fault = |e: &dyn std::fmt::Display| {
        Failure::Mistake(format!("{}: cannot write: {e}", path.display()))
    };
    if !path
        .parent()
        .is_none_or(|p| p.as_os_str().is_empty() || p.is_dir())
    {
        return Err(fault(&"its folder does not exist"));
    }
    if path.exists() && !path.is_file() {
        // A pipe or a terminal cannot be replaced.
        return std::fs::write(path, bytes).map_err(|e| fault(&e));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".blklab-")
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .map_err(|e| fault(&e))?;
    file.write_all(bytes).map_err(|e| fault(&e))?;
    set_usual_rights(file.as_file()).map_err(|e| fault(&e))?;
    file.persist(path).map_err(|e| fault(&e.error))?;
    Ok(())
}

/// Temporary files are for their owner alone; a result is not.
#[cfg(unix)]
fn set_usual_rights(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn set_usual_rights(_: &std::fs::File) -> std::io::Result<()> {
    Ok(())
}

/// Prints, or writes to a file where one is named.
pub(crate) fn deliver(text: &str, file: Option<&Path>) -> Result<(), Failure> {
    match file {
        Some(path) => write_file(path, text.as_bytes()),
        None => print(text),
    }
}
