//! Inodes. VFAT has none on the device: they are made from directory entries
//! (Linux 6.12's `fs/fat/inode.c`).

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::{Attributes, Caller, FileKind, Ino, Timestamp};

use super::Vfat;
use super::boot::ENTRY_BYTES;
use super::entry::{
    ATTRIBUTE_DIRECTORY, ATTRIBUTE_READ_ONLY, DIR_BYTES_MAX, DosEntry, at, from_fat_time, is_file,
    set_first_cluster, to_fat_time,
};
use super::fat::Next;

/// The root's inode number; the root has no entry (`MSDOS_ROOT_INO`).
pub(super) const ROOT: Ino = Ino(1);
/// The inode number of the device's first entry; entries are numbered by their place.
const FIRST_INO: u64 = 2;
/// The first number for inodes whose own one still belongs to a file that was moved away.
const FIRST_MOVED_INO: u64 = 1 << 48;

/// An inode in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    /// The number of its entry on the device; `None` for the root and for removed files.
    pub(super) position: Option<u64>,
    /// Its first cluster; 0 if it has none.
    pub(super) first: u32,
    pub(super) size_bytes: u64,
    pub(super) attributes: u8,
    pub(super) links: u32,
    pub(super) modified: Timestamp,
    pub(super) accessed: Timestamp,
    /// Its clusters, as far as they have been read from the table.
    pub(super) chain: Vec<u32>,
    /// Whether the chain is known to its end.
    pub(super) is_complete: bool,
    pub(super) is_dirty: bool,
}

impl Inode {
    fn read(entry: &DosEntry, position: u64) -> Inode {
        let u16_at = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let is_dir = entry[at::ATTRIBUTES] & ATTRIBUTE_DIRECTORY != 0;
        Inode {
            position: Some(position),
            first: u32::from(u16_at(at::CLUSTER_LOW)) | u32::from(u16_at(at::CLUSTER_HIGH)) << 16,
            size_bytes: if is_dir { 0 } else { u32_at(at::SIZE).into() },
            attributes: entry[at::ATTRIBUTES],
            links: if is_dir { 2 } else { 1 },
            modified: from_fat_time(u16_at(at::DATE), u16_at(at::TIME)),
            accessed: from_fat_time(u16_at(at::ACCESSED_DATE), 0),
            ..Inode::default()
        }
    }

    pub(super) const fn is_dir(&self) -> bool {
        self.attributes & ATTRIBUTE_DIRECTORY != 0
    }
}

impl<D: Buffers> Vfat<D> {
    /// The inode number of an entry; the inode need not be in memory.
    pub(super) fn ino_at(&self, position: u64) -> Ino {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if let Some(&ino) = state.positions.get(&position) {
            return ino;
        }
        let ino = Ino(FIRST_INO + position);
        if !state.inodes.contains_key(&ino) {
            return ino;
        }
        let ino = Ino(FIRST_MOVED_INO + state.moved_inos);
        state.moved_inos += 1;
        state.moved.insert(ino, position);
        state.positions.insert(position, ino);
        ino
    }

    /// Reads an inode, unless it is in memory (`fat_build_inode`).
    pub(super) async fn iget(&self, ino: Ino) -> Result<(), FsError> {
        if self.state.borrow().inodes.contains_key(&ino) {
            return Ok(());
        }
        let moved = self.state.borrow().moved.get(&ino).copied();
        let by_number = ino
            .0
            .checked_sub(FIRST_INO)
            .filter(|_| ino.0 < FIRST_MOVED_INO);
        let position = moved.or(by_number).ok_or(FsError::NoEntry)?;
        if position >= self.device.size_bytes() / u64::from(ENTRY_BYTES) {
            return Err(FsError::NoEntry);
        }
        let (buffer, offset) = self.entry_place(position).await?;
        let entry: DosEntry = std::array::from_fn(|n| buffer.bytes()[offset + n]);
        if !is_file(&entry) {
            return Err(FsError::NoEntry);
        }
        let inode = Inode::read(&entry, position);
        let first = inode.first;
        let is_none = first == 0 && !inode.is_dir();
        if !is_none && !self.geometry.is_cluster(first) {
            let what = "a file's first cluster is none";
            return Err(buffer.corrupt(offset + at::CLUSTER_LOW, what, first));
        }
        let is_dir = inode.is_dir();
        {
            let mut state = self.state.borrow_mut();
            state.positions.insert(position, ino);
            state.inodes.entry(ino).or_insert(inode);
        }
        if is_dir {
            self.measure_dir(ino).await?;
        }
        Ok(())
    }

    /// Sets a directory's length, which is that of its chain, and its number of links,
    /// which follows from its subdirectories (`fat_calc_dir_size`, `fat_subdirs`).
    pub(super) async fn measure_dir(&self, dir: Ino) -> Result<(), FsError> {
        let mut clusters = 0;
        while self.cluster(dir, clusters).await?.is_some() {
            clusters += 1;
        }
        let size_bytes = clusters * self.geometry.cluster_bytes();
        if size_bytes > DIR_BYTES_MAX.max(self.geometry.cluster_bytes()) {
            return Err(FsError::Corrupt {
                byte: self.entry_byte(dir),
                what: "a directory is longer than 2 MiB: its chain may be a loop",
                found: size_bytes,
            });
        }
        let links = 2 + self.count_dirs(dir).await?;
        let mut state = self.state.borrow_mut();
        if let Some(inode) = state.inodes.get_mut(&dir) {
            inode.links = links;
            inode.size_bytes = size_bytes;
        }
        Ok(())
    }

    /// Where an inode's entry begins on the device.
    pub(super) fn entry_byte(&self, ino: Ino) -> u64 {
        let position = self.with(ino, |inode| inode.position);
        position.unwrap_or(0) * u64::from(ENTRY_BYTES)
    }

    /// The n-th cluster of a file, counted from 0; `None` after its end
    /// (`fat_get_cluster`).
    pub(super) async fn cluster(&self, ino: Ino, n: u64) -> Result<Option<u32>, FsError> {
        let most = match self.with(ino, Inode::is_dir) {
            true => DIR_BYTES_MAX / self.geometry.cluster_bytes() + 2,
            false => u64::from(self.geometry.clusters),
        };
        loop {
            let (known, count, last, first, is_complete) = self.with(ino, |inode| {
                let known = inode.chain.get(n as usize).copied();
                let last = inode.chain.last().copied();
                (
                    known,
                    inode.chain.len(),
                    last,
                    inode.first,
                    inode.is_complete,
                )
            });
            if known.is_some() || is_complete || first == 0 {
                return Ok(known);
            }
            let next = match last {
                None => Next::Cluster(first),
                Some(last) => self.next_cluster(last).await?,
            };
            let broken = |what| {
                Err(FsError::Corrupt {
                    byte: self.entry_byte(ino),
                    what,
                    found: first.into(),
                })
            };
            match next {
                Next::Cluster(_) if count as u64 >= most => {
                    return broken("a file's chain is a loop, from the cluster");
                }
                Next::Free => return broken("a file's chain leads to a free cluster, from"),
                Next::Cluster(cluster) => self.note(ino, |inode| {
                    // Another task may have read it meanwhile.
                    if inode.chain.len() == count {
                        inode.chain.push(cluster);
                    }
                }),
                Next::End => self.note(ino, |inode| inode.is_complete = true),
            }
        }
    }

    /// Records what was learned of an inode in memory, which does not make it dirty.
    fn note(&self, ino: Ino, note: impl FnOnce(&mut Inode)) {
        if let Some(inode) = self.state.borrow_mut().inodes.get_mut(&ino) {
            note(inode);
        }
    }

    /// Adds a cluster to the end of a file whose chain is known to its end
    /// (`fat_chain_add`).
    pub(super) async fn append_cluster(&self, ino: Ino, cluster: u32) -> Result<(), FsError> {
        let last = self.with(ino, |inode| inode.chain.last().copied());
        if let Some(last) = last {
            self.set_next(last, Some(cluster)).await?;
        }
        let cluster_bytes = self.geometry.cluster_bytes();
        self.modify(ino, |inode| {
            if last.is_none() {
                inode.first = cluster;
            }
            inode.chain.push(cluster);
            inode.is_complete = true;
            if inode.is_dir() {
                inode.size_bytes += cluster_bytes;
            }
        });
        Ok(())
    }

    /// Keeps the first `clusters` of a file and frees the others (`fat_free`).
    pub(super) async fn keep_clusters(&self, ino: Ino, clusters: u64) -> Result<(), FsError> {
        let first = self.with(ino, |inode| inode.first);
        if first == 0 {
            return Ok(());
        }
        let freed = match clusters.checked_sub(1) {
            None => {
                self.modify(ino, |inode| inode.first = 0);
                Some(first)
            }
            Some(last) => {
                let Some(last) = self.cluster(ino, last).await? else {
                    return Ok(());
                };
                let next = self.next_cluster(last).await?;
                if next != Next::End {
                    self.set_next(last, None).await?;
                }
                match next {
                    Next::Cluster(next) => Some(next),
                    _ => None,
                }
            }
        };
        self.modify(ino, |inode| {
            inode.chain.truncate(clusters as usize);
            inode.is_complete = true;
        });
        match freed {
            Some(cluster) => self.free_chain(cluster).await,
            None => Ok(()),
        }
    }

    /// Puts an inode's fields into its entry. Returns the entry's buffer, unless it has no
    /// entry (`__fat_write_inode`).
    pub(super) async fn update_entry(&self, ino: Ino) -> Result<Option<Buffer>, FsError> {
        let position = self.with(ino, |inode| inode.position);
        let Some(position) = position.filter(|_| ino != ROOT) else {
            self.note(ino, |inode| inode.is_dirty = false);
            return Ok(None);
        };
        let (buffer, offset) = self.entry_place(position).await?;
        let inode = self.with(ino, Inode::clone);
        let size = if inode.is_dir() { 0 } else { inode.size_bytes };
        let (date, time, _) = to_fat_time(inode.modified);
        let (accessed, _, _) = to_fat_time(inode.accessed);
        buffer.bytes_mut()[offset + at::ATTRIBUTES] = inode.attributes;
        set_first_cluster(&mut buffer.bytes_mut()[offset..], inode.first);
        for (at, value) in [
            (at::TIME, time),
            (at::DATE, date),
            (at::ACCESSED_DATE, accessed),
        ] {
            buffer.set_u16(offset + at, value);
        }
        buffer.set_u32(offset + at::SIZE, size as u32);
        self.device.mark_dirty(&buffer, None);
        self.note(ino, |inode| inode.is_dirty = false);
        Ok(Some(buffer))
    }

    /// The attributes for `stat`; owner and permissions are those of the mount.
    pub(super) fn stat(&self, ino: Ino) -> Attributes {
        self.with(ino, |inode| {
            let writable = if inode.attributes & ATTRIBUTE_READ_ONLY == 0 {
                0o777
            } else {
                0o555
            };
            let (kind, kind_mode) = match inode.is_dir() {
                true => (FileKind::Directory, 0o040_000),
                false => (FileKind::Regular, 0o100_000),
            };
            let cluster_bytes = self.geometry.cluster_bytes();
            Attributes {
                ino,
                kind,
                mode: kind_mode | writable & !self.options.umask,
                links: inode.links,
                uid: 0,
                gid: 0,
                size_bytes: inode.size_bytes,
                sectors: inode.size_bytes.next_multiple_of(cluster_bytes) / 512,
                accessed: inode.accessed,
                modified: inode.modified,
                changed: inode.modified,
            }
        })
    }

    /// Separates an inode from its entry (`fat_detach`).
    pub(super) fn detach(&self, ino: Ino) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if let Some(inode) = state.inodes.get_mut(&ino)
            && let Some(position) = inode.position.take()
        {
            state.positions.remove(&position);
        }
    }

    /// Connects an inode with another entry (`fat_attach`).
    pub(super) fn attach(&self, ino: Ino, position: u64) {
        self.detach(ino);
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.positions.insert(position, ino);
        if let Some(inode) = state.inodes.get_mut(&ino) {
            inode.position = Some(position);
            inode.is_dirty = true;
        }
    }

    /// Takes the last link from an inode; [`Vfat::evict`] frees its clusters.
    pub(super) fn drop_inode(&self, ino: Ino, caller: &Caller) {
        self.detach(ino);
        self.modify(ino, |inode| {
            inode.links = 0;
            inode.modified = caller.now;
        });
    }
}
