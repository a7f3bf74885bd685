//! The parts of its files that a process works on: fio's `setup_files`.

use super::random::{Random, Seeds, Stream};
use crate::fio::{Extent, JobError, JobSpec};

/// The part of one file that a process works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// The start of the part, in bytes.
    pub offset_bytes: u64,
    /// The length of the part, in bytes.
    pub length_bytes: u64,
    /// The size of the file or drive, in bytes.
    pub file_bytes: u64,
}

/// The files of a process and the amount of its I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The part of each file.
    pub files: Vec<FileExtent>,
    /// The size of a pass, in bytes.
    pub pass_bytes: u64,
    /// `io_size` in bytes, if given.
    pub io_bytes: Option<u64>,
}

/// The reason why a process cannot work on its files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// `offset` is beyond the end of the file.
    #[error("byte {offset_bytes} is beyond the end of a file of {file_bytes} bytes")]
    Offset {
        /// The start of the process's part.
        offset_bytes: u64,
        /// The size of the file.
        file_bytes: u64,
    },
    /// The part is smaller than a block.
    #[error("a block of {block_bytes} bytes is larger than the {bytes} bytes to work on")]
    Block {
        /// The smallest block, in bytes.
        block_bytes: u64,
        /// The length of the part.
        bytes: u64,
    },
    /// The zones of `zoned_abs` are longer than the file.
    #[error("the zones of zoned_abs are {zone_bytes} bytes, the file only {bytes}")]
    Zones {
        /// The sum of the zones.
        zone_bytes: u64,
        /// The length of the part.
        bytes: u64,
    },
    /// The random map would need too much memory.
    #[error("a random map of {blocks} blocks is too large")]
    Map {
        /// The number of blocks in the map.
        blocks: u64,
    },
    /// The caller passed no file sizes.
    #[error("there is no file")]
    NoFile,
}

impl LayoutError {
    /// Returns this error as one of the job, at the place of its option.
    pub fn mistake(&self, spec: &JobSpec) -> JobError {
        let (options, help): (&[&str], &str) = match self {
            LayoutError::Offset { .. } => (
                &["offset_increment", "offset"],
                "begin where the file has something left",
            ),
            LayoutError::Block { .. } => (&["bs", "size"], "smaller blocks or a larger size"),
            LayoutError::Zones { .. } => (&["random_distribution"], "shorter zones"),
            LayoutError::Map { .. } => (
                &["bs", "rw"],
                "larger blocks, one block size, norandommap, or softrandommap",
            ),
            LayoutError::NoFile => (&["nrfiles"], "a job needs at least one"),
        };
        spec.mistake(options, self.to_string(), help)
    }
}

impl Layout {
    /// Returns the layout of process `process` (0 up to `numjobs`), whose files have the sizes
    /// `file_bytes`, in the order of [`JobSpec::file_names`].
    ///
    /// Without `size` a process works on all of each file from `offset` on; with it, on that
    /// amount, divided among the files. `offset_increment` is multiplied by the process's number.
    pub fn new(
        spec: &JobSpec,
        process: u32,
        seeds: &Seeds,
        file_bytes: &[u64],
    ) -> Result<Layout, LayoutError> {
        let block = spec.smallest_block();
        let count = file_bytes.len() as u64;
        if count == 0 {
            return Err(LayoutError::NoFile);
        }
        let size = match spec.size {
            Some(Extent::Bytes(bytes)) => bytes,
            _ => 0,
        };
        let each = size / count;
        // The first files get one more block each of the remainder.
        let mut extra = (size - each * count) / block;
        let mut random = seeds.stream(Stream::FileSize);
        let mut files = Vec::with_capacity(file_bytes.len());
        let mut total = 0u64;
        for &bytes in file_bytes {
            let offset = start(spec, process, bytes, block);
            let mut share_bytes = each;
            if extra > 0 {
                extra -= 1;
                share_bytes += block;
            }
            let length = length(spec, (offset, bytes), share_bytes, &mut random)?;
            total = total.saturating_add(match spec.io_size {
                Some(Extent::Percent(percent)) => share(length, percent),
                _ => length,
            });
            files.push(FileExtent {
                offset_bytes: offset,
                length_bytes: length,
                file_bytes: bytes,
            });
        }
        let pass_bytes = match size {
            0 => total,
            size => size.min(total),
        };
        if pass_bytes < block {
            return Err(LayoutError::Block {
                block_bytes: block,
                bytes: pass_bytes,
            });
        }
        Ok(Layout {
            files,
            pass_bytes,
            io_bytes: match spec.io_size {
                Some(Extent::Bytes(bytes)) => Some(bytes),
                _ => None,
            },
        })
    }
}

/// Returns the length of a process's part of a file that begins at `offset`; `share_bytes` is the
/// file's share of `size`.
fn length(
    spec: &JobSpec,
    (offset, file_bytes): (u64, u64),
    share_bytes: u64,
    random: &mut Random,
) -> Result<u64, LayoutError> {
    let length = match spec.file_size_bytes {
        Some((low, high)) => {
            let wanted = low + random.below((high - low).saturating_add(1));
            wanted.min(file_bytes).saturating_sub(offset)
        }
        None if share_bytes == 0 => file_bytes.saturating_sub(offset),
        None => share_bytes,
    };
    if offset > file_bytes || length == 0 {
        return Err(LayoutError::Offset {
            offset_bytes: offset,
            file_bytes,
        });
    }
    Ok(match spec.size {
        Some(Extent::Percent(percent @ 1..=99)) => {
            let length = share(offset + length, percent).min(length);
            length - length % spec.smallest_block()
        }
        _ => length,
    })
}

/// Returns the end of a process's part in a file as large as its drive, for a `size` in percent.
pub fn share_end(spec: &JobSpec, process: u32, drive_bytes: u64, percent: u32) -> u64 {
    let start = start(spec, process, drive_bytes, spec.smallest_block());
    start
        .saturating_add(share(drive_bytes, percent))
        .min(drive_bytes)
}

fn share(bytes: u64, percent: u32) -> u64 {
    (u128::from(bytes) * u128::from(percent) / 100) as u64
}

/// Returns the start of a process's part of a file; percentages are rounded up to a block.
fn start(spec: &JobSpec, process: u32, file_bytes: u64, block: u64) -> u64 {
    let (increment, relative_increment) = match spec.offset_increment {
        Extent::Bytes(bytes) => (bytes, false),
        Extent::Percent(percent) => (share(file_bytes, percent), percent > 0),
        Extent::Zones(_) => (0, false),
    };
    let (offset, relative_offset) = match spec.offset {
        Extent::Bytes(bytes) => (bytes, false),
        Extent::Percent(percent) => (share(file_bytes, percent), percent > 0),
        Extent::Zones(_) => (0, false),
    };
    let offset = offset.saturating_add(increment.saturating_mul(u64::from(process)));
    if !relative_increment && !relative_offset {
        return offset;
    }
    let align = match spec.offset_align_bytes {
        0 => block,
        align => align,
    };
    offset.checked_next_multiple_of(align).unwrap_or(offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::parse_str;

    const GIB: u64 = 1 << 30;

    fn layout(options: &str, process: u32, file_bytes: &[u64]) -> Result<Layout, LayoutError> {
        let text = format!("[a]\n{options}\n");
        let file = parse_str("t", &text, &|_| None, &|_, _| Err(String::new()))
            .unwrap_or_else(|error| panic!("{error}"));
        let spec = &file.jobs[0];
        Layout::new(spec, process, &Seeds::new(spec, process + 1, 0), file_bytes)
    }

    fn one(options: &str, process: u32) -> (u64, u64) {
        let layout = layout(options, process, &[GIB]).unwrap();
        (layout.files[0].offset_bytes, layout.files[0].length_bytes)
    }

    #[test]
    fn sizes_and_offsets() {
        assert_eq!(one("", 0), (0, GIB));
        assert_eq!(one("size=1m", 0), (0, 1 << 20));
        assert_eq!(one("offset=1m", 0), (1 << 20, GIB - (1 << 20)));
        assert_eq!(one("size=50%", 0), (0, GIB / 2));
        assert_eq!(one("size=25%\noffset=50%", 0), (GIB / 2, GIB / 4));
        assert_eq!(one("size=90%\noffset=50%", 0), (GIB / 2, GIB / 2));
        assert_eq!(one("size=1m\noffset_increment=1m", 3), (3 << 20, 1 << 20));
        // 10 % of 1 GiB is not a multiple of 4096.
        assert_eq!(one("offset=10%\nsize=4k", 0).0, 107_376_640);
        assert_eq!(one("offset=10%\noffset_align=1m\nsize=4k", 0).0, 103 << 20);
        // fio's smallest block is that of all directions, used or not: reads have 4 KiB here. fio
        // 3.33 begins there in a file of 64 MiB.
        let written = layout("rw=write\nbs=4k,64k\noffset=10%", 0, &[64 << 20]).unwrap();
        assert_eq!(written.files[0].offset_bytes, 6_713_344);
    }

    #[test]
    fn several_files_share_a_size() {
        let layout = layout("size=20k\nnrfiles=3", 0, &[GIB; 3]).unwrap();
        let lengths: Vec<_> = layout.files.iter().map(|file| file.length_bytes).collect();
        // 20480 / 3 = 6826, with no rest for a further block.
        assert_eq!(lengths, [6826, 6826, 6826]);
        assert_eq!(layout.pass_bytes, 3 * 6826);
    }

    #[test]
    fn io_size_is_a_limit_of_its_own() {
        let whole = layout("io_size=4g\nsize=1m", 0, &[GIB]).unwrap();
        assert_eq!((whole.pass_bytes, whole.io_bytes), (1 << 20, Some(4 << 30)));
        let half = layout("io_size=50%", 0, &[GIB]).unwrap();
        assert_eq!(
            (half.pass_bytes, half.files[0].length_bytes),
            (GIB / 2, GIB)
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(matches!(
            layout("offset=2g", 0, &[GIB]),
            Err(LayoutError::Offset { .. })
        ));
        assert!(matches!(
            layout("offset_increment=512m", 2, &[GIB]),
            Err(LayoutError::Offset { .. })
        ));
        assert!(matches!(
            layout("bs=1m", 0, &[4096]),
            Err(LayoutError::Block { .. })
        ));
        assert_eq!(layout("", 0, &[]), Err(LayoutError::NoFile));
    }

    #[test]
    fn a_refusal_names_the_option_that_can_mend_it() {
        for (options, line) in [
            (
                "offset=2g",
                "t:2: offset=2g: byte 2147483648 is beyond the end",
            ),
            (
                "bs=4k\noffset_increment=1g",
                "t:3: offset_increment=1g: byte",
            ),
            ("bs=2g", "t:2: bs=2g: a block of 2147483648 bytes is larger"),
        ] {
            let text = format!("[a]\n{options}\n");
            let file = parse_str("t", &text, &|_| None, &|_, _| Err(String::new())).unwrap();
            let error = layout(options, 1, &[GIB])
                .unwrap_err()
                .mistake(&file.jobs[0]);
            assert!(error.to_string().starts_with(line), "{error}");
        }
    }

    #[test]
    fn file_sizes_are_drawn_from_their_range() {
        let layout = layout("filesize=4k-1m\nnrfiles=20", 0, &[GIB; 20]).unwrap();
        let lengths = layout.files.iter().map(|file| file.length_bytes);
        assert!(
            lengths
                .clone()
                .all(|bytes| (4096..=1 << 20).contains(&bytes))
        );
        assert!(lengths.clone().min() != lengths.max());
    }
}
