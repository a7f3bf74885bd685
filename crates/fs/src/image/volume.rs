//! The file system of an image by paths, for tools that work on images.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use crate::error::FsError;
use crate::file_system::{
    Attributes, Caller, Change, DirEntry, FileKind, FileSystem, Ino, NewInode, SYMLINKS_MAX, Usage,
    names_of,
};
use crate::mounted::{MountOptions, Mounted};

use super::{Image, Storage, at_once};

/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;
/// The temporary name of a file that will replace another one.
const REPLACEMENT: &[u8] = b"BLKLAB.TMP";

/// Blocks of a file that follow each other on the device (`struct fiemap_extent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// The first one's number in the file.
    pub file_block: u64,
    /// The first one's number on the device; `None` in a hole.
    pub device_block: Option<u64>,
    /// The number of blocks.
    pub blocks: u64,
}

/// The file system of an image. Changes are on the image after [`Volume::commit`]; until
/// then the image holds the file system of the last commit.
#[derive(Debug)]
pub struct Volume<S> {
    fs: Mounted<Image<S>>,
    /// The user and time of changes.
    pub caller: Caller,
}

impl<S: Storage> Volume<S> {
    /// Opens the file system of an image.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] where it has none, or a broken one.
    pub fn open(
        image: Image<S>,
        options: &MountOptions,
        caller: Caller,
    ) -> Result<Volume<S>, FsError> {
        let fs = at_once(Mounted::open(image, options))?;
        Ok(Volume { fs, caller })
    }

    /// The file system.
    pub fn file_system(&self) -> &Mounted<Image<S>> {
        &self.fs
    }

    /// The image.
    pub fn image(&self) -> &Image<S> {
        self.fs.device()
    }

    /// Writes all changes to the image.
    ///
    /// # Errors
    /// [`FsError::Device`], [`FsError::Corrupt`].
    pub fn commit(&self) -> Result<(), FsError> {
        at_once(self.fs.sync(self.caller.now))?;
        self.image().commit()
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        self.fs.usage()
    }

    /// The inode of a path. Symbolic links are followed, the last name only if `follow`.
    ///
    /// # Errors
    /// [`FsError::NoEntry`], [`FsError::NotDirectory`], [`FsError::LinkLoop`].
    pub fn find(&self, path: &[u8], follow: bool) -> Result<Ino, FsError> {
        let mut links = 0;
        self.walk(self.fs.root(), path, follow, &mut links)
    }

    fn walk(&self, start: Ino, path: &[u8], follow: bool, links: &mut u32) -> Result<Ino, FsError> {
        let mut trail = vec![start];
        if path.first() == Some(&b'/') {
            trail = vec![self.fs.root()];
        }
        let mut parts = names_of(path).peekable();
        while let Some(part) = parts.next() {
            let here = *trail.last().unwrap_or(&start);
            if part == b".." && trail.len() > 1 {
                trail.pop();
                continue;
            }
            if self.attributes(here)?.kind != FileKind::Directory {
                return Err(FsError::NotDirectory);
            }
            if part == b".." && here == self.fs.root() {
                continue;
            }
            let found = at_once(self.fs.lookup(here, part))?.ok_or(FsError::NoEntry)?;
            let is_last = parts.peek().is_none();
            let is_link = self.attributes(found)?.kind == FileKind::Symlink;
            if !is_link || (is_last && !follow) {
                trail.push(found);
                continue;
            }
            *links += 1;
            if *links > SYMLINKS_MAX {
                return Err(FsError::LinkLoop);
            }
            let target = at_once(self.fs.read_link(found))?;
            trail.push(self.walk(here, &target, true, links)?);
        }
        Ok(*trail.last().unwrap_or(&start))
    }

    /// The directory that a path's last name is in, and that name.
    ///
    /// # Errors
    /// Those of [`Volume::find`]; [`FsError::BadCall`] for the root.
    pub fn find_parent<'a>(&self, path: &'a [u8]) -> Result<(Ino, &'a [u8]), FsError> {
        let name = names_of(path).next_back().ok_or(FsError::BadCall)?;
        if name == b".." {
            return Err(FsError::BadCall);
        }
        // The name is a slice of the path, so its address tells where the directory ends.
        let before = name.as_ptr() as usize - path.as_ptr() as usize;
        let dir = self.find(&path[..before], true)?;
        match self.attributes(dir)?.kind {
            FileKind::Directory => Ok((dir, name)),
            _ => Err(FsError::NotDirectory),
        }
    }

    /// Attributes of an inode.
    ///
    /// # Errors
    /// [`FsError::Corrupt`], [`FsError::Device`].
    pub fn attributes(&self, ino: Ino) -> Result<Attributes, FsError> {
        at_once(self.fs.attributes(ino))
    }

    /// Changes attributes of an inode.
    ///
    /// # Errors
    /// Those of [`FileSystem::change`].
    pub fn change(&self, ino: Ino, change: &Change) -> Result<(), FsError> {
        at_once(self.fs.change(ino, change))
    }

    /// The names of a directory without `.` and `..`, in their order there.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`].
    pub fn list(&self, dir: Ino) -> Result<Vec<DirEntry>, FsError> {
        let mut entries = Vec::new();
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            cursor = at_once(self.fs.read_dir(dir, at, &mut entries))?;
        }
        entries.retain(|entry| entry.name != b"." && entry.name != b"..");
        Ok(entries)
    }

    /// A directory and all below it with their paths, each before those in it.
    ///
    /// # Errors
    /// Those of [`Volume::list`]; [`FsError::Corrupt`] where a directory is in itself
    /// or in two.
    pub fn directories(&self, top: Ino) -> Result<Vec<(Vec<u8>, Ino)>, FsError> {
        let mut seen = BTreeSet::from([top]);
        let mut all = vec![(Vec::new(), top)];
        let mut next = 0;
        while let Some((path, dir)) = all.get(next).cloned() {
            next += 1;
            for entry in self.list(dir)? {
                if self.attributes(entry.ino)?.kind != FileKind::Directory {
                    continue;
                }
                if !seen.insert(entry.ino) {
                    return Err(FsError::Corrupt {
                        byte: 0,
                        what: "a directory is in itself or in two directories, its inode",
                        found: entry.ino.0,
                    });
                }
                let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                all.push(([&path, slash, &entry.name].concat(), entry.ino));
            }
        }
        Ok(all)
    }

    /// The extents of a file.
    ///
    /// # Errors
    /// Those of [`FileSystem::map`].
    pub fn extents(&self, ino: Ino) -> Result<Vec<FileExtent>, FsError> {
        let attributes = self.attributes(ino)?;
        let blocks = attributes.size_bytes.div_ceil(self.fs.block_bytes().into());
        let mut extents: Vec<FileExtent> = Vec::new();
        let mut block = 0;
        while block < blocks {
            let map = at_once(self.fs.map(ino, block, blocks - block, None))?;
            match extents.last_mut() {
                Some(last)
                    if last.device_block.map(|at| at + last.blocks) == map.block
                        && last.device_block.is_some() == map.block.is_some() =>
                {
                    last.blocks += map.blocks;
                }
                _ => extents.push(FileExtent {
                    file_block: block,
                    device_block: map.block,
                    blocks: map.blocks,
                }),
            }
            block += map.blocks;
        }
        Ok(extents)
    }

    /// Reads from a file. Returns the number of bytes read, fewer only at its end.
    ///
    /// # Errors
    /// Those of [`FileSystem::map`].
    pub fn read(&self, ino: Ino, pos: u64, into: &mut [u8]) -> Result<usize, FsError> {
        let block_bytes = u64::from(self.fs.block_bytes());
        let left = self.attributes(ino)?.size_bytes.saturating_sub(pos);
        let wanted = left.min(into.len() as u64);
        let mut done = 0;
        while done < wanted {
            let at = pos + done;
            let in_block = at % block_bytes;
            let blocks = (in_block + wanted - done).div_ceil(block_bytes);
            let map = at_once(self.fs.map(ino, at / block_bytes, blocks, None))?;
            let bytes = (map.blocks * block_bytes - in_block).min(wanted - done);
            let piece = &mut into[done as usize..(done + bytes) as usize];
            match map.block {
                Some(block) => self.image().read(block * block_bytes + in_block, piece)?,
                None => piece.fill(0),
            }
            done += bytes;
        }
        Ok(wanted as usize)
    }

    /// Copies a file to `out`.
    ///
    /// # Errors
    /// Those of `out`, and as `Ok(Err(..))` those of [`Volume::read`].
    pub fn copy_out(&self, ino: Ino, out: &mut dyn Write) -> io::Result<Result<(), FsError>> {
        let mut buffer = vec![0; COPY_BYTES];
        let mut pos = 0;
        loop {
            let bytes = match self.read(ino, pos, &mut buffer) {
                Ok(bytes) => bytes,
                Err(error) => return Ok(Err(error)),
            };
            if bytes == 0 {
                return Ok(Ok(()));
            }
            out.write_all(&buffer[..bytes])?;
            pos += bytes as u64;
        }
    }

    /// Writes to a file, which becomes as long as needed.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], [`FsError::TooBig`]; the part written before stays.
    pub fn write(&self, ino: Ino, pos: u64, from: &[u8]) -> Result<(), FsError> {
        let size = self.attributes(ino)?.size_bytes;
        if pos.saturating_add(from.len() as u64) > self.fs.file_bytes_max() {
            return Err(FsError::TooBig);
        }
        if pos > size && !from.is_empty() {
            self.fill_to(ino, size, pos)?;
        }
        self.write_blocks(ino, pos, from)
    }

    /// Fills a file with zeroes from its end to a new one, except holes.
    fn fill_to(&self, ino: Ino, size: u64, end: u64) -> Result<(), FsError> {
        let block_end = size.next_multiple_of(self.fs.block_bytes().into());
        let end = if self.fs.has_holes() {
            end.min(block_end)
        } else {
            end
        };
        let zeroes = vec![0; COPY_BYTES.min((end - size) as usize)];
        let mut at = size;
        while at < end {
            let bytes = (end - at).min(zeroes.len() as u64);
            self.write_blocks(ino, at, &zeroes[..bytes as usize])?;
            at += bytes;
        }
        Ok(())
    }

    fn write_blocks(&self, ino: Ino, pos: u64, from: &[u8]) -> Result<(), FsError> {
        let block_bytes = u64::from(self.fs.block_bytes());
        let mut size = self.attributes(ino)?.size_bytes;
        let mut done = 0;
        while done < from.len() as u64 {
            let at = pos + done;
            let in_block = at % block_bytes;
            let left = from.len() as u64 - done;
            let blocks = (in_block + left).div_ceil(block_bytes);
            let create = Some(&self.caller);
            let map = at_once(self.fs.map(ino, at / block_bytes, blocks, create))?;
            let device_block = map.block.ok_or(FsError::NoSpace)?;
            let bytes = (map.blocks * block_bytes - in_block).min(left);
            let byte = device_block * block_bytes;
            if map.is_new {
                // New blocks hold old data where the write does not cover them.
                let zeroes = vec![0; block_bytes as usize];
                self.image().write(byte, &zeroes)?;
                let last = byte + (map.blocks - 1) * block_bytes;
                self.image().write(last, &zeroes)?;
            }
            let piece = &from[done as usize..(done + bytes) as usize];
            self.image().write(byte + in_block, piece)?;
            done += bytes;
            size = size.max(at + bytes);
            self.fs.set_size(ino, size, self.caller.now);
        }
        Ok(())
    }

    /// Sets a file's length.
    ///
    /// # Errors
    /// Those of [`FileSystem::truncate`].
    pub fn truncate(&self, ino: Ino, size_bytes: u64) -> Result<(), FsError> {
        let size = self.attributes(ino)?.size_bytes;
        if size_bytes > self.fs.file_bytes_max() {
            return Err(FsError::TooBig);
        }
        if size_bytes > size {
            self.fill_to(ino, size, size_bytes)?;
        }
        at_once(self.fs.truncate(ino, size_bytes, &self.caller))?;
        let block_bytes = u64::from(self.fs.block_bytes());
        let in_block = size_bytes % block_bytes;
        if size_bytes < size && in_block > 0 {
            let map = at_once(self.fs.map(ino, size_bytes / block_bytes, 1, None))?;
            if let Some(block) = map.block {
                let zeroes = vec![0; (block_bytes - in_block) as usize];
                self.image()
                    .write(block * block_bytes + in_block, &zeroes)?;
            }
        }
        Ok(())
    }

    /// Creates a file, a directory or a symbolic link.
    ///
    /// # Errors
    /// Those of [`FileSystem::create`].
    pub fn create(&self, dir: Ino, name: &[u8], new: NewInode<'_>) -> Result<Ino, FsError> {
        if at_once(self.fs.lookup(dir, name))?.is_some() {
            return Err(FsError::Exists);
        }
        at_once(self.fs.create(dir, name, new, &self.caller))
    }

    /// Creates the directories of a path that do not exist.
    ///
    /// # Errors
    /// Those of [`FileSystem::create`]; [`FsError::NotDirectory`].
    pub fn make_dirs(&self, path: &[u8]) -> Result<(), FsError> {
        let mut at = self.fs.root();
        for name in names_of(path) {
            at = match at_once(self.fs.lookup(at, name))? {
                Some(found) => found,
                None => self.create(at, name, NewInode::Directory(0o755))?,
            };
            if self.attributes(at)?.kind != FileKind::Directory {
                return Err(FsError::NotDirectory);
            }
        }
        Ok(())
    }

    /// Adds a hard link.
    ///
    /// # Errors
    /// Those of [`FileSystem::link`].
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        if at_once(self.fs.lookup(dir, name))?.is_some() {
            return Err(FsError::Exists);
        }
        at_once(self.fs.link(ino, dir, name, &self.caller))
    }

    /// Copies a file from `from`. An old file of that name is replaced when the new one is
    /// complete.
    ///
    /// # Errors
    /// Those of `from`, and as `Ok(Err(..))` those of [`Volume::create`] and
    /// [`Volume::write`].
    pub fn copy_in(
        &self,
        dir: Ino,
        name: &[u8],
        permissions: u16,
        from: &mut dyn Read,
    ) -> io::Result<Result<Ino, FsError>> {
        let old = match at_once(self.fs.lookup(dir, name)) {
            Ok(old) => old,
            Err(error) => return Ok(Err(error)),
        };
        let temporary = if old.is_some() { REPLACEMENT } else { name };
        let ino = match self.create(dir, temporary, NewInode::Regular(permissions)) {
            Ok(ino) => ino,
            Err(error) => return Ok(Err(error)),
        };
        let mut buffer = vec![0; COPY_BYTES];
        let mut pos = 0;
        loop {
            let bytes = from.read(&mut buffer)?;
            if bytes == 0 {
                break;
            }
            if let Err(error) = self.write(ino, pos, &buffer[..bytes]) {
                return Ok(Err(error));
            }
            pos += bytes as u64;
        }
        self.fs.release(ino);
        if old.is_some()
            && let Err(error) = self.rename((dir, temporary), (dir, name))
        {
            return Ok(Err(error));
        }
        Ok(Ok(ino))
    }

    /// Renames, and deletes what had the new name.
    ///
    /// # Errors
    /// Those of [`FileSystem::rename`]; [`FsError::BadCall`] where a directory would be
    /// moved into itself.
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8])) -> Result<(), FsError> {
        let moved = at_once(self.fs.lookup(from.0, from.1))?.ok_or(FsError::NoEntry)?;
        if self.attributes(moved)?.kind == FileKind::Directory && from.0 != to.0 {
            let below = self.directories(moved)?;
            if below.iter().any(|(_, dir)| *dir == to.0) {
                return Err(FsError::BadCall);
            }
        }
        let replaced = at_once(self.fs.rename(from, to, &self.caller))?;
        match replaced {
            Some(ino) => at_once(self.fs.evict(ino, self.caller.now)),
            None => Ok(()),
        }
    }

    /// Removes a name, and deletes its inode if that was the last one.
    ///
    /// # Errors
    /// Those of [`FileSystem::unlink`] and [`FileSystem::remove_dir`].
    pub fn remove(&self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        let ino = at_once(self.fs.lookup(dir, name))?.ok_or(FsError::NoEntry)?;
        let removed = match self.attributes(ino)?.kind {
            FileKind::Directory => at_once(self.fs.remove_dir(dir, name, &self.caller))?,
            _ => at_once(self.fs.unlink(dir, name, &self.caller))?,
        };
        at_once(self.fs.evict(removed, self.caller.now))
    }

    /// Removes a name with all that is below it.
    ///
    /// # Errors
    /// Those of [`Volume::remove`].
    pub fn remove_tree(&self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        let top = at_once(self.fs.lookup(dir, name))?.ok_or(FsError::NoEntry)?;
        if self.attributes(top)?.kind == FileKind::Directory {
            for (_, below) in self.directories(top)?.into_iter().rev() {
                for entry in self.list(below)? {
                    self.remove(below, &entry.name)?;
                }
            }
        }
        self.remove(dir, name)
    }
}
