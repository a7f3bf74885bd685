//! Which drive a process's file is on, and where.
//!
//! A `filename` is a drive. Files that fio would make up names for lie on one
//! drive together, one behind the other.

use std::collections::BTreeMap;

use blklab_workload::fio::{Extent, JobFile, JobSpec};
use blklab_workload::generate::{Process, share_end};

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
}

/// The files of all processes of a job, on its drives.
pub(crate) struct PlacedFiles {
    drive_names: Vec<String>,
    files: Vec<Vec<PlacedFile>>,
}

impl PlacedFiles {
    /// Lays out a job's files on drives of this size.
    pub(crate) fn new(
        job: &JobFile,
        processes: &[Process],
        capacity_bytes: u64,
    ) -> Result<PlacedFiles, SetupError> {
        let mut placed_files = PlacedFiles {
            drive_names: Vec::new(),
            files: Vec::new(),
        };
        // Made-up files: where the next begins, and those placed by name.
        let (mut next_bytes, mut placed) = (0u64, BTreeMap::<String, PlacedFile>::new());
        for process in processes {
            let spec = &job.jobs[process.job];
            let mut files = Vec::new();
            for name in spec.file_names(process.number) {
                if !spec.files.is_empty() {
                    files.push(PlacedFile {
                        disk: placed_files.drive_named(&name),
                        base_bytes: 0,
                        size_bytes: capacity_bytes,
                        room_bytes: capacity_bytes,
                        is_device: true,
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

    /// The drives, by the names they go by.
    pub(crate) fn drive_names(&self) -> &[String] {
        &self.drive_names
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

/// The size of a file that fio would create, and the room it takes. A `size` in
/// percent is a share of the drive: its file is as large as that, and takes room
/// only as far as the job goes.
fn file_size(spec: &JobSpec, process: u32, capacity_bytes: u64) -> Result<(u64, u64), SetupError> {
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
            problem: "neither filename nor size is given; name a drive with filename=/dev/x, or give size=".to_string(),
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
        let files = PlacedFiles::new(&job, &numbered, GIB)?;
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
