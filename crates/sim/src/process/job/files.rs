//! Which drive a process's file is on, and where.
//!
//! A `filename` is a drive. Files that fio would make up names for lie on one
//! drive together, one behind the other; with a file system they are files of it, and
//! so is a `filename` that does not begin with `/dev/`.

use std::collections::BTreeMap;

use blklab_blk::SECTOR_SIZE;
use blklab_workload::calls::Errno;
use blklab_workload::fio::{Direction, Engine, Extent, Fallocate, JobFile, JobSpec};
use blklab_workload::generate::{Process, share_end};

use crate::caching::FileSystemKind;
use crate::file_layer::{Contents, NewFile};
use crate::setup::SetupError;

/// Files of one drive begin at multiples of this.
const FILE_ALIGN_BYTES: u64 = 1 << 20;
/// Smaller ones begin at multiples of a file system's block.
const SMALL_FILE_ALIGN_BYTES: u64 = 4096;

/// A file of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedFile {
    pub(crate) disk: usize,
    /// Where it begins on the drive.
    pub(crate) base_bytes: u64,
    /// As large as its job sees it.
    pub(crate) size_bytes: u64,
    /// As much of it as there is.
    pub(crate) room_bytes: u64,
    /// It is the drive itself.
    pub(crate) is_device: bool,
    /// Its number among the files of the file system, if it is one of those.
    pub(crate) in_tree: Option<usize>,
}

/// The files of all processes of a job, on its drives.
pub(crate) struct PlacedFiles {
    drive_names: Vec<String>,
    files: Vec<Vec<PlacedFile>>,
    /// The files of the file system, and the drive that it is on.
    in_tree: Vec<NewFile>,
    /// Where in `in_tree` each path is.
    numbers: BTreeMap<String, usize>,
    tree_disk: usize,
    kind: FileSystemKind,
}

impl PlacedFiles {
    /// Lays out a job's files on drives of this size, or on a file system of that kind.
    pub(crate) fn new(
        job: &JobFile,
        processes: &[Process],
        (capacity_bytes, kind): (u64, FileSystemKind),
    ) -> Result<PlacedFiles, SetupError> {
        let mut placed_files = PlacedFiles {
            drive_names: Vec::new(),
            files: Vec::new(),
            in_tree: Vec::new(),
            numbers: BTreeMap::new(),
            tree_disk: 0,
            kind,
        };
        // Made-up files: where the next begins, and those placed by name.
        let (mut next_bytes, mut placed) = (0u64, BTreeMap::<String, PlacedFile>::new());
        for process in processes {
            let spec = &job.jobs[process.job];
            let mut files = Vec::new();
            for name in spec.file_names(process.number) {
                if kind != FileSystemKind::Raw && !name.starts_with("/dev/") {
                    let size_bytes = match spec.iolog(process.number) {
                        Some(log) => log.files[files.len()].end_bytes.max(SECTOR_SIZE),
                        None => file_size(spec, process.number, capacity_bytes)?.0,
                    };
                    files.push(placed_files.add_to_tree(spec, &name, (size_bytes, kind))?);
                    continue;
                }
                if !spec.files.is_empty() || !spec.iologs.is_empty() {
                    files.push(PlacedFile {
                        disk: placed_files.drive_named(&name),
                        base_bytes: 0,
                        size_bytes: capacity_bytes,
                        room_bytes: capacity_bytes,
                        is_device: true,
                        in_tree: None,
                    });
                    continue;
                }
                if let Some(file) = placed.get(&name) {
                    files.push(*file);
                    continue;
                }
                let (size_bytes, room_bytes) = file_size(spec, process.number, capacity_bytes)?;
                let file = PlacedFile {
                    disk: placed_files.drive_named("files"),
                    base_bytes: next_bytes,
                    size_bytes,
                    room_bytes,
                    is_device: false,
                    in_tree: None,
                };
                let align_bytes = match room_bytes < FILE_ALIGN_BYTES {
                    true => SMALL_FILE_ALIGN_BYTES,
                    false => FILE_ALIGN_BYTES,
                };
                next_bytes = room_bytes
                    .checked_next_multiple_of(align_bytes)
                    .and_then(|size| next_bytes.checked_add(size))
                    .filter(|&end| end <= capacity_bytes.next_multiple_of(FILE_ALIGN_BYTES))
                    .ok_or_else(|| too_small(spec, capacity_bytes))?;
                placed.insert(name, file);
                files.push(file);
            }
            placed_files.files.push(files);
        }
        Ok(placed_files)
    }

    /// Adds a file of the file system, or finds the one of that name.
    fn add_to_tree(
        &mut self,
        spec: &JobSpec,
        name: &str,
        (size_bytes, kind): (u64, FileSystemKind),
    ) -> Result<PlacedFile, SetupError> {
        if spec.pattern.does(Direction::Trim) {
            return Err(SetupError::Job {
                place: spec.position.to_string(),
                job: spec.name.clone(),
                problem: "a file is trimmed by punching a hole, which neither ext2 nor VFAT \
                          can; trim a drive with filename=/dev/x"
                    .to_string(),
            });
        }
        let contents = contents_before(spec, size_bytes, kind);
        self.tree_disk = self.drive_named("files");
        let number = match self.numbers.get(name) {
            Some(&number) => {
                let file = &mut self.in_tree[number];
                file.contents = file.contents.max(contents);
                number
            }
            None => {
                self.in_tree.push(NewFile {
                    path: name.as_bytes().to_vec(),
                    contents,
                });
                let number = self.in_tree.len() - 1;
                self.numbers.insert(name.to_string(), number);
                number
            }
        };
        Ok(PlacedFile {
            disk: self.tree_disk,
            base_bytes: 0,
            size_bytes,
            room_bytes: size_bytes,
            is_device: false,
            in_tree: Some(number),
        })
    }

    /// The files of the file system, with the drive that it is on; none without one.
    pub(crate) fn in_tree(&self) -> (&[NewFile], usize) {
        (&self.in_tree, self.tree_disk)
    }

    /// The drives, by the names they go by.
    pub(crate) fn drive_names(&self) -> &[String] {
        &self.drive_names
    }

    /// The error with which fio has laid out the files of a process.
    pub(crate) fn layout_error(&self, pid: usize, spec: &JobSpec) -> Option<Errno> {
        let is_in_tree = |file: &PlacedFile| file.in_tree.is_some();
        let has_one = self.of_process(pid).iter().any(is_in_tree);
        layout_error(spec, self.kind).filter(|_| has_one)
    }

    /// The files of a process.
    pub(crate) fn of_process(&self, pid: usize) -> &[PlacedFile] {
        &self.files[pid]
    }

    fn drive_named(&mut self, name: &str) -> usize {
        match self.drive_names.iter().position(|known| known == name) {
            Some(at) => at,
            None => {
                self.drive_names.push(name.to_string());
                self.drive_names.len() - 1
            }
        }
    }
}

/// What fio leaves of a file before the job that works on it (`extend_file`): all of it
/// where it is read, overwritten or mapped (`FIO_NOEXTEND`), nothing where the job makes it,
/// and else what `fallocate` does.
fn contents_before(spec: &JobSpec, size_bytes: u64, kind: FileSystemKind) -> Contents {
    if spec.create_on_open {
        return Contents::Nothing;
    }
    if spec.fill_device {
        return Contents::Hole(0);
    }
    let is_mapped = spec.engine == Engine::Mmap;
    if spec.pattern.does(Direction::Read) || spec.overwrite || is_mapped {
        return Contents::Written(size_bytes);
    }
    match spec.fallocate {
        Fallocate::Posix => Contents::Written(size_bytes),
        // ext2 has no fallocate.
        Fallocate::Native if kind == FileSystemKind::Vfat => Contents::Written(size_bytes),
        Fallocate::Truncate => Contents::Hole(size_bytes),
        Fallocate::Native | Fallocate::Keep | Fallocate::None => Contents::Hole(0),
    }
}

/// The error that fio has when it lays out a job's files on such a file system, if it goes on
/// with that: ext2 has no `fallocate`.
fn layout_error(spec: &JobSpec, kind: FileSystemKind) -> Option<Errno> {
    let fails = kind == FileSystemKind::Ext2
        && spec.fallocate == Fallocate::Keep
        && !spec.create_on_open
        && !spec.fill_device;
    fails.then_some(Errno::EOPNOTSUPP)
}

/// The size of a file that fio would create, and the room it takes. A `size` in
/// percent is a share of the drive: its file is as large as that, and takes room
/// only as far as the job goes.
///
/// One that is written until the drive is full is as large as the drive.
fn file_size(spec: &JobSpec, process: u32, capacity_bytes: u64) -> Result<(u64, u64), SetupError> {
    if spec.fill_device && spec.size.is_none() {
        return Ok((capacity_bytes, capacity_bytes));
    }
    if let Some((_, largest)) = spec.file_size_bytes {
        return Ok((largest, largest));
    }
    match spec.size {
        Some(Extent::Bytes(bytes)) => {
            let each = bytes / u64::from(spec.file_count.max(1));
            let offset = match spec.offset {
                Extent::Bytes(offset) => offset,
                _ => 0,
            };
            let bytes = each.saturating_add(offset).max(1);
            Ok((bytes, bytes))
        }
        Some(Extent::Percent(percent)) => Ok((
            capacity_bytes,
            share_end(spec, process, capacity_bytes, percent),
        )),
        _ => Err(SetupError::Job {
            place: spec.position.to_string(),
            job: spec.name.clone(),
            problem: match spec.files.first() {
                Some(name) => format!("{name} is not there before the job; give its size="),
                None => "neither filename nor size is given; name a drive with filename=/dev/x, or give size=".to_string(),
            },
        }),
    }
}

fn too_small(spec: &JobSpec, capacity_bytes: u64) -> SetupError {
    SetupError::Job {
        place: spec.position.to_string(),
        job: spec.name.clone(),
        problem: format!(
            "the files of all processes do not fit the drive of {capacity_bytes} bytes; give a smaller size or fewer processes"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_workload::fio::parse_str;
    use blklab_workload::generate::{Layout, Seeds, processes};

    const GIB: u64 = 1 << 30;

    /// Where on a drive of 1 GiB each process begins, and how long its part is.
    fn parts(options: &str) -> Result<Vec<(u64, u64)>, SetupError> {
        let text = format!("[a]\n{options}\n");
        let job = parse_str("t", &text, &|_| None, &|_, _| Err(String::new())).unwrap();
        let numbered = processes(&job);
        let files = PlacedFiles::new(&job, &numbered, (GIB, FileSystemKind::Raw))?;
        let part = |(pid, process): (usize, &Process)| {
            let [file] = files.of_process(pid) else {
                panic!("one file");
            };
            let spec = &job.jobs[process.job];
            let seeds = Seeds::new(spec, process.thread_number, 1);
            let layout = Layout::new(spec, process.number, &seeds, &[file.size_bytes]).unwrap();
            let extent = layout.files[0];
            assert!(extent.offset_bytes + extent.length_bytes <= file.room_bytes);
            (file.base_bytes + extent.offset_bytes, extent.length_bytes)
        };
        Ok(numbered.iter().enumerate().map(part).collect())
    }

    #[test]
    fn a_share_is_a_share_of_the_drive() {
        for name in ["", "filename=/dev/x\n"] {
            let one = |options: &str| parts(&format!("{name}{options}")).unwrap();
            assert_eq!(one("size=50%"), [(0, GIB / 2)]);
            assert_eq!(one("size=25%\noffset=50%"), [(GIB / 2, GIB / 4)]);
        }
    }

    #[test]
    fn shares_of_processes_lie_one_behind_the_other() {
        let half = GIB / 2;
        assert_eq!(
            parts("size=50%\nnumjobs=2").unwrap(),
            [(0, half), (half, half)]
        );
        assert!(parts("size=50%\nnumjobs=3").is_err());
    }
}
