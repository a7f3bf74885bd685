//! Files that users name: bounded when read, and complete or absent when written.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use tempfile::TempPath;

/// Limit on the length of a text, in bytes; longer than any description, job or table of
/// results.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// How long to wait for a pipe's first writer.
const WRITER_WAIT: Duration = Duration::from_secs(2);
const WRITER_POLL: Duration = Duration::from_millis(10);

/// Returns what `path` is if it is not a text with an end, such as a folder or a device;
/// `None` if it does not exist. A terminal or a pipe counts as a text.
pub fn kind_without_end(path: &Path) -> Option<&'static str> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    let is_terminal = || File::open(path).is_ok_and(|file| file.is_terminal());
    if kind.is_dir() {
        Some("a folder")
    } else if kind.is_block_device() || (kind.is_char_device() && !is_terminal()) {
        Some("a device")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        None
    }
}

/// Reads the text of a file, a pipe or a terminal, or of standard input if the path is
/// `-`.
///
/// # Errors
/// If it cannot be read, is not text, has no end or exceeds the limit.
pub fn read_text(path: &Path) -> io::Result<String> {
    let bytes = bounded(open(path, "a file with text is needed")?, TEXT_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        let what = format!("line {line} is not valid UTF-8");
        io::Error::new(ErrorKind::InvalidData, what)
    })
}

/// The bytes of a file, a pipe or standard input.
///
/// # Errors
/// Where it cannot be read, never ends or is longer than that.
pub fn read_bytes(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    bounded(open(path, "a file is needed")?, bytes_max)
}

/// What a file, a pipe or standard input has to be read.
fn open(path: &Path, needed: &str) -> io::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_fifo() {
        // With `O_NONBLOCK`, opening does not wait for a writer.
        let flags = OFlags::NONBLOCK.bits() as i32;
        let pipe = File::options().read(true).custom_flags(flags).open(path)?;
        return Ok(Box::new(Pipe::new(pipe)));
    }
    match kind_without_end(path) {
        None => Ok(Box::new(File::open(path)?)),
        Some(what) => {
            let why = format!("{what}, and {needed}");
            Err(io::Error::new(ErrorKind::InvalidInput, why))
        }
    }
}

fn bounded(source: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        false => Ok(bytes),
        true => {
            let why = format!("longer than {} MiB", bytes_max >> 20);
            Err(io::Error::new(ErrorKind::InvalidData, why))
        }
    }
}

/// A pipe, which ends once all its writers have closed it, and fails if no writer comes.
struct Pipe {
    pipe: File,
    opened: Instant,
    had_writer: bool,
}

impl Pipe {
    fn new(pipe: File) -> Pipe {
        Pipe {
            pipe,
            opened: Instant::now(),
            had_writer: false,
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.pipe.read(bytes) {
                // A pipe without a writer reads as ended too.
                Ok(0) if !self.had_writer => {
                    if self.opened.elapsed() > WRITER_WAIT {
                        let why = "a pipe to which nobody writes";
                        return Err(io::Error::new(ErrorKind::TimedOut, why));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.had_writer = true,
                done => {
                    self.had_writer = true;
                    return done;
                }
            }
            sleep(WRITER_POLL);
        }
    }
}

/// A file that appears complete, or not at all: it has a temporary name until it is
/// kept. An existing pipe or terminal of that name is written to directly.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    /// The temporary name, and the final one.
    replaces: Option<(TempPath, PathBuf)>,
}

impl NewFile {
    /// Begins the file that will be at `path`. It keeps the permissions of a file that
    /// it replaces; a symbolic link stays, and its target is replaced.
    ///
    /// # Errors
    /// If nothing can be written there; the error does not name the temporary file.
    pub fn create(path: &Path) -> io::Result<NewFile> {
        let old = path.metadata().ok();
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            // `/dev/stdout` may lead to a pipe, which has no path of its own.
            let file = File::options().write(true).open(path)?;
            return Ok(NewFile {
                file,
                replaces: None,
            });
        }
        let path = target(path);
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        let (file, own) = tempfile::Builder::new()
            .prefix(".blklab-")
            .permissions(usual_rights())
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            // The library's error names the temporary file, which would confuse the
            // user.
            .map_err(|error| io::Error::from(error.kind()))?
            .into_parts();
        if let Some(old) = old {
            file.set_permissions(old.permissions())?;
        }
        Ok(NewFile {
            file,
            replaces: Some((own, path)),
        })
    }

    /// Gives the file its final name.
    ///
    /// # Errors
    /// If it cannot be renamed; then nothing is left behind.
    pub fn keep(mut self) -> io::Result<()> {
        self.file.flush()?;
        match self.replaces {
            None => Ok(()),
            Some((own, path)) => own.persist(path).map_err(|failed| failed.error),
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the permissions of usual files: temporary files are readable by their owner
/// only, while a result has the permissions that the umask leaves.
fn usual_rights() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::Permissions::from_mode(0o666)
}

/// Resolves the symbolic links of a path, whether its target exists or not.
fn target(path: &Path) -> PathBuf {
    /// Linux's limit on symbolic links in a path (`MAXSYMLINKS`).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_told_by_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job");
        std::fs::write(&path, b"[a]\n; caf\xe9\nrw=read\n").expect("written");
        let error = read_text(&path).expect_err("Latin-1");
        assert_eq!(error.to_string(), "line 2 is not valid UTF-8");
    }

    #[test]
    fn what_is_not_kept_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results");
        std::fs::write(&path, "old").expect("written");
        let mut file = NewFile::create(&path).expect("begun");
        file.write_all(b"new").expect("room");
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "old");
        let names = || std::fs::read_dir(folder.path()).expect("there").count();
        assert_eq!(names(), 1);
        let mut file = NewFile::create(&path).expect("begun");
        file.write_all(b"new").expect("room");
        file.keep().expect("named");
        assert_eq!(
            (read_text(&path).expect("there").as_str(), names()),
            ("new", 1)
        );
    }

    #[test]
    fn errors_have_no_name_that_nobody_gave() {
        let error = NewFile::create(Path::new("/nowhere/at/all")).expect_err("no folder");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(!error.to_string().contains("blklab"), "{error}");
    }

    #[test]
    fn what_has_no_end_is_not_read() {
        for (path, why) in [("/dev/zero", "a device"), ("/", "a folder")] {
            let error = read_text(Path::new(path)).expect_err(path);
            assert!(error.to_string().starts_with(why), "{error}");
        }
        let endless = bounded(io::repeat(b'x'), 1 << 20).expect_err("endless");
        assert_eq!(endless.to_string(), "longer than 1 MiB");
    }
}
