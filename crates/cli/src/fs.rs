//! `blklab fs`: file systems on images.

use std::ffi::OsStr;
use std::fmt::{Display, Write as _};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use blklab_description::NewFile;
use blklab_fs::{
    Attributes, Caller, FileKind, FileSystem, FsError, Image, Ino, MountOptions, NewInode, Storage,
    Timestamp, VfatOptions, Volume, at_once,
};
use blklab_serve::{ImageMount, open_to_change};

use crate::args::{FsArgs, FsCommand, FsLsArgs};
use crate::failure::Failure;
use crate::{mount, output};

mod mkfs;

pub(crate) fn fs(args: &FsArgs) -> Result<(), Failure> {
    match &args.command {
        FsCommand::Mkfs(mkfs) => mkfs::make(args, mkfs),
        FsCommand::Strings { bytes_min } => strings(args, *bytes_min),
        FsCommand::Ls(ls) => list(&OpenedImage::read(args)?, ls),
        FsCommand::Cat { paths } => {
            let opened = OpenedImage::read(args)?;
            let mut out = io::stdout().lock();
            paths
                .iter()
                .try_for_each(|path| opened.copy_out(path, &mut out))
        }
        FsCommand::Get { path, file } => get(&OpenedImage::read(args)?, path, file),
        FsCommand::Stat { path: None } => usage(&OpenedImage::read(args)?),
        FsCommand::Stat { path: Some(path) } => stat(&OpenedImage::read(args)?, path),
        FsCommand::Blocks { path } => blocks(&OpenedImage::read(args)?, path),
        FsCommand::Mount { folder, read_only } => mount_image(args, folder, *read_only),
        FsCommand::Put { file, path } => change(args, |opened| put(opened, file, path)),
        FsCommand::Rm { recursive, paths } => change(args, |opened| {
            paths
                .iter()
                .try_for_each(|path| opened.remove(path, *recursive))
        }),
        FsCommand::Mkdir { parents, paths } => change(args, |opened| {
            paths
                .iter()
                .try_for_each(|path| opened.make_dir(path, *parents))
        }),
    }
}

/// Returns the current time, or `SOURCE_DATE_EPOCH` where it is set, for reproducible
/// images.
fn now() -> Result<Timestamp, Failure> {
    if let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") {
        let seconds = text.to_str().and_then(|text| text.parse().ok());
        let wrong = || Failure::mistake("SOURCE_DATE_EPOCH: right is a number of seconds");
        return Ok(Timestamp {
            seconds: seconds.ok_or_else(wrong)?,
            nanoseconds: 0,
        });
    }
    Ok(SystemTime::now().into())
}

/// What an image is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// One look, beside whoever changes it.
    Look,
    /// Reading for as long as it is mounted.
    Stay,
    /// Changing it.
    Change,
}

/// An opened file system, with its image's name for messages.
struct OpenedImage<'a> {
    volume: Volume<File>,
    name: &'a Path,
}

fn cannot_open(path: &Path, error: &io::Error) -> Failure {
    Failure::mistake(format!("{}: cannot open: {error}", path.display()))
}

/// Opens an image; a block device that is to be changed so that nobody else uses it.
fn open_image(name: &Path, write: bool) -> Result<File, Failure> {
    let file = match write {
        true => open_to_change(name),
        false => File::open(name),
    };
    file.map_err(|error| cannot_open(name, &error))
}

fn failure<S: Storage>(image: &Image<S>, whose: impl Display, error: FsError) -> Failure {
    if error == FsError::Device {
        let why = image.failure().map(|error| error.to_string());
        let why = why.unwrap_or_else(|| error.to_string());
        return Failure::Broken(format!("{whose}: {why}"));
    }
    match error {
        FsError::NoSpace => Failure::Broken(format!("{whose}: {error}")),
        _ => Failure::mistake(format!("{whose}: {error}")),
    }
}

impl<'a> OpenedImage<'a> {
    fn read(args: &'a FsArgs) -> Result<OpenedImage<'a>, Failure> {
        OpenedImage::open(args, Access::Look)
    }

    fn open(args: &'a FsArgs, access: Access) -> Result<OpenedImage<'a>, Failure> {
        let name = args.image.as_path();
        let write = access == Access::Change;
        let file = open_image(name, write)?;
        if file.metadata().is_ok_and(|of| of.is_dir()) {
            return Err(cannot_open(name, &io::ErrorKind::IsADirectory.into()));
        }
        match access {
            Access::Look => {}
            Access::Stay => lock(name, &file, false)?,
            Access::Change => lock(name, &file, true)?,
        }
        let image = Image::new(file).map_err(|error| cannot_open(name, &error))?;
        let wrong = |message| Failure::mistake(format!("--options {message}"));
        let options = MountOptions {
            vfat: VfatOptions::parse(&args.options).map_err(wrong)?,
            ..MountOptions::default()
        };
        let caller = Caller {
            now: now()?,
            ..Caller::default()
        };
        let volume = Volume::open(image, &options, caller);
        // A failed open consumes the image, but its message names any device error too.
        let volume =
            volume.map_err(|error| Failure::mistake(format!("{}: {error}", name.display())))?;
        Ok(OpenedImage { volume, name })
    }

    fn failure(&self, path: &OsStr, error: FsError) -> Failure {
        let whose = format!("{}: {}", self.name.display(), path.display());
        failure(self.volume.image(), whose, error)
    }

    fn find(&self, path: &OsStr, follow: bool) -> Result<(Ino, Attributes), Failure> {
        let found = self.volume.find(path.as_bytes(), follow);
        let found = found.and_then(|ino| Ok((ino, self.volume.attributes(ino)?)));
        found.map_err(|error| self.failure(path, error))
    }

    fn file(&self, path: &OsStr) -> Result<Ino, Failure> {
        match self.find(path, true)? {
            (ino, found) if found.kind == FileKind::Regular => Ok(ino),
            (_, found) if found.kind == FileKind::Directory => {
                Err(self.failure(path, FsError::IsDirectory))
            }
            _ => Err(self.failure(path, FsError::BadCall)),
        }
    }

    fn copy_out(&self, path: &OsStr, out: &mut dyn Write) -> Result<(), Failure> {
        let copied = self.volume.copy_out(self.file(path)?, out);
        let copied = copied.and_then(|done| out.flush().map(|()| done));
        match copied {
            Ok(done) => done.map_err(|error| self.failure(path, error)),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(Failure::Broken(format!("cannot write: {error}"))),
        }
    }

    fn remove(&self, path: &OsStr, recursive: bool) -> Result<(), Failure> {
        let volume = &self.volume;
        let removed = volume
            .find_parent(path.as_bytes())
            .and_then(|(dir, name)| match recursive {
                true => volume.remove_tree(dir, name),
                false => volume.remove(dir, name),
            });
        removed.map_err(|error| self.failure(path, error))
    }

    fn make_dir(&self, path: &OsStr, parents: bool) -> Result<(), Failure> {
        let done = match parents {
            true => self.volume.make_dirs(path.as_bytes()),
            false => self
                .volume
                .find_parent(path.as_bytes())
                .and_then(|(dir, name)| {
                    self.volume.create(dir, name, NewInode::Directory(0o755))?;
                    Ok(())
                }),
        };
        done.map_err(|error| self.failure(path, error))
    }
}

/// Locks the image: who changed it beside another, a server too, would overwrite what that one
/// writes.
fn lock(name: &Path, image: &File, changes: bool) -> Result<(), Failure> {
    let locked = blklab_serve::lock(image, changes);
    locked.map_err(|why| Failure::mistake(format!("{}: {why}", name.display())))
}

/// Mounts the file system until it is unmounted or a signal arrives.
fn mount_image(args: &FsArgs, folder: &Path, read_only: bool) -> Result<(), Failure> {
    let access = match read_only {
        true => Access::Stay,
        false => Access::Change,
    };
    let opened = OpenedImage::open(args, access)?;
    let name = opened.name;
    let signals = mount::catch_signals()?;
    let mounted = ImageMount::new(opened.volume, name, folder, read_only);
    let mut mounted = mounted.map_err(Failure::mistake)?;
    mount::unmount_on_signal(signals, mounted.unmounter());
    output::print(format!(
        "{} is mounted on {}\n",
        name.display(),
        folder.display()
    ))?;
    mounted
        .serve()
        .map_err(|error| Failure::Broken(format!("{}: {error}", name.display())))
}

/// Changes a file system; the image is only written if every change succeeds.
fn change(
    args: &FsArgs,
    change: impl FnOnce(&OpenedImage<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let opened = OpenedImage::open(args, Access::Change)?;
    change(&opened)?;
    let committed = opened.volume.commit();
    committed.map_err(|error| failure(opened.volume.image(), opened.name.display(), error))
}

fn put(opened: &OpenedImage<'_>, file: &Path, path: &OsStr) -> Result<(), Failure> {
    let cannot_read =
        |error: io::Error| Failure::mistake(format!("{}: cannot read: {error}", file.display()));
    let mut stdin = io::stdin().lock();
    let mut opened_file;
    let from: &mut dyn Read = if file == Path::new("-") {
        &mut stdin
    } else {
        opened_file = File::open(file).map_err(cannot_read)?;
        &mut opened_file
    };
    let volume = &opened.volume;
    let is_dir = |ino| {
        volume
            .attributes(ino)
            .is_ok_and(|found| found.kind == FileKind::Directory)
    };
    let (dir, name) = match volume.find(path.as_bytes(), true) {
        Ok(ino) if is_dir(ino) => {
            let name = file.file_name().filter(|_| file != Path::new("-"));
            let name = name.ok_or_else(|| opened.failure(path, FsError::IsDirectory))?;
            (ino, name.as_bytes())
        }
        _ => {
            let parent = volume.find_parent(path.as_bytes());
            parent.map_err(|error| opened.failure(path, error))?
        }
    };
    let copied = volume
        .copy_in(dir, name, 0o644, from)
        .map_err(cannot_read)?;
    copied.map_err(|error| opened.failure(path, error))?;
    Ok(())
}

fn get(opened: &OpenedImage<'_>, path: &OsStr, file: &Path) -> Result<(), Failure> {
    if file == Path::new("-") {
        return opened.copy_out(path, &mut io::stdout().lock());
    }
    // An existing file is not emptied if the source does not exist.
    opened.file(path)?;
    output::check(&[("FILE", Some(file))], &[opened.name])?;
    let cannot_write =
        |error| Failure::mistake(format!("{}: cannot write: {error}", file.display()));
    let mut out = NewFile::create(file).map_err(cannot_write)?;
    opened.copy_out(path, &mut out)?;
    out.keep().map_err(cannot_write)
}

/// Formats kind and permissions as ls(1) does.
fn mode_text(mode: u16) -> String {
    let kind = match mode >> 12 {
        0o01 => 'p',
        0o02 => 'c',
        0o04 => 'd',
        0o06 => 'b',
        0o12 => 'l',
        0o14 => 's',
        _ => '-',
    };
    let bits = (0..9).map(|n| match mode >> (8 - n) & 1 {
        1 => ['r', 'w', 'x'][n % 3],
        _ => '-',
    });
    std::iter::once(kind).chain(bits).collect()
}

fn list(opened: &OpenedImage<'_>, args: &FsLsArgs) -> Result<(), Failure> {
    let (ino, found) = opened.find(&args.path, true)?;
    let broken = |error| opened.failure(&args.path, error);
    let mut text = String::new();
    if found.kind != FileKind::Directory {
        let line = line(opened, args, ino, args.path.as_bytes()).map_err(broken)?;
        return output::print(&line);
    }
    let dirs = match args.recursive {
        true => opened.volume.directories(ino).map_err(broken)?,
        false => vec![(Vec::new(), ino)],
    };
    for (path, dir) in dirs {
        if args.recursive {
            let gap = if text.is_empty() { "" } else { "\n" };
            let top = args.path.display();
            let slash = if args.path.as_bytes().ends_with(b"/") {
                ""
            } else {
                "/"
            };
            // Writing to a string does not fail.
            let _ = match path.is_empty() {
                true => writeln!(text, "{gap}{top}:"),
                false => writeln!(text, "{gap}{top}{slash}{}:", String::from_utf8_lossy(&path)),
            };
        }
        let mut entries = opened.volume.list(dir).map_err(broken)?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        for entry in entries {
            text += &line(opened, args, entry.ino, &entry.name).map_err(broken)?;
        }
    }
    output::print(&text)
}

fn line(
    opened: &OpenedImage<'_>,
    args: &FsLsArgs,
    ino: Ino,
    name: &[u8],
) -> Result<String, FsError> {
    let name = String::from_utf8_lossy(name);
    if !args.long {
        return Ok(format!("{name}\n"));
    }
    let found = opened.volume.attributes(ino)?;
    let target = match found.kind {
        FileKind::Symlink => {
            let target = at_once(opened.volume.file_system().read_link(ino))?;
            format!(" -> {}", String::from_utf8_lossy(&target))
        }
        _ => String::new(),
    };
    Ok(format!(
        "{} {:>3} {:>5} {:>5} {:>12} {} {name}{target}\n",
        mode_text(found.mode),
        found.links,
        found.uid,
        found.gid,
        found.size_bytes,
        found.modified,
    ))
}

fn usage(opened: &OpenedImage<'_>) -> Result<(), Failure> {
    let usage = opened.volume.usage();
    let mut text = format!(
        "type: {}\nblock size: {} bytes\nblocks: {}, {} free, {} of these for anybody\n",
        usage.kind, usage.block_bytes, usage.blocks, usage.blocks_free, usage.blocks_available
    );
    if usage.inodes > 0 {
        // Writing to a string does not fail.
        let _ = writeln!(text, "inodes: {}, {} free", usage.inodes, usage.inodes_free);
    }
    output::print(&text)
}

fn stat(opened: &OpenedImage<'_>, path: &OsStr) -> Result<(), Failure> {
    let (ino, found) = opened.find(path, false)?;
    output::print(format!(
        "path: {}\ninode: {}\nmode: {} ({:o})\nlinks: {}\nowner: {}, group {}\n\
         size: {} bytes\non the device: {} bytes\naccessed: {}\nmodified: {}\nchanged: {}\n",
        path.display(),
        ino.0,
        mode_text(found.mode),
        found.mode & 0o7777,
        found.links,
        found.uid,
        found.gid,
        found.size_bytes,
        found.sectors * 512,
        found.accessed,
        found.modified,
        found.changed,
    ))
}

fn blocks(opened: &OpenedImage<'_>, path: &OsStr) -> Result<(), Failure> {
    let (ino, _) = opened.find(path, true)?;
    let runs = opened.volume.extents(ino);
    let runs = runs.map_err(|error| opened.failure(path, error))?;
    let block_bytes = u64::from(opened.volume.file_system().block_bytes());
    let mut text = format!(
        "{:>12} {:>12} {:>12} {:>16}\n",
        "file block", "block", "blocks", "byte"
    );
    for run in runs {
        let (block, byte) = match run.device_block {
            Some(block) => (block.to_string(), (block * block_bytes).to_string()),
            None => ("hole".to_string(), "-".to_string()),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:>12} {block:>12} {:>12} {byte:>16}",
            run.file_block, run.blocks
        );
    }
    output::print(&text)
}

fn strings(args: &FsArgs, bytes_min: usize) -> Result<(), Failure> {
    let name = args.image.as_path();
    let image = File::open(name).and_then(Image::new);
    let image = image.map_err(|error| cannot_open(name, &error))?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    /// The reason for which the search ended early.
    enum End {
        Image(FsError),
        Output(io::Error),
    }
    impl From<FsError> for End {
        fn from(error: FsError) -> End {
            End::Image(error)
        }
    }
    let done = image.strings(bytes_min.max(1), |byte, text| {
        let written = write!(out, "{byte:>12} ").and_then(|()| out.write_all(text));
        written
            .and_then(|()| out.write_all(b"\n"))
            .map_err(End::Output)
    });
    match done.and_then(|()| out.flush().map_err(End::Output)) {
        Ok(()) => Ok(()),
        Err(End::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(End::Output(error)) => Err(Failure::Broken(format!("cannot write: {error}"))),
        Err(End::Image(error)) => Err(failure(&image, name.display(), error)),
    }
}
