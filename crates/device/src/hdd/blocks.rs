//! The physical blocks on the platters, and what the heads do for a run that is not
//! aligned to them.
//!
//! A disk with 512-byte sectors for the host and blocks of 4 KiB inside (512e)
//! keeps one code for error correction a block. It can write a part of a block
//! only by reading the block, waiting until it comes around again, and writing
//! all of it.

use super::buffer::SectorRun;

/// The size of physical blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhysicalBlocks {
    sectors: u64,
}

/// A run of blocks that the heads read or write in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) run: SectorRun,
    pub(super) write: bool,
}

impl PhysicalBlocks {
    pub(super) fn new(block_bytes: u32) -> PhysicalBlocks {
        PhysicalBlocks {
            sectors: (block_bytes as u64 / 512).max(1),
        }
    }

    /// `sectors`, rounded up to whole blocks.
    pub(super) fn round_up(&self, sectors: u64) -> u64 {
        sectors.next_multiple_of(self.sectors)
    }

    /// The blocks that hold a run.
    pub(super) fn around(&self, run: SectorRun) -> SectorRun {
        SectorRun {
            start: run.start / self.sectors * self.sectors,
            end: run.end.div_ceil(self.sectors) * self.sectors,
        }
    }

    /// The passes of a run, in order: for a write the reads of the first and the last
    /// block where these are written in part, and then the whole.
    pub(super) fn passes(&self, run: SectorRun, write: bool) -> [Option<Pass>; 3] {
        let whole = self.around(run);
        let all = Pass { run: whole, write };
        let read = |start| {
            let run = SectorRun {
                start,
                end: start + self.sectors,
            };
            Pass { run, write: false }
        };
        let (first, last) = (whole.start, whole.end - self.sectors);
        let first_in_part = run.start > first || run.end < first + self.sectors;
        let last_in_part = last > first && run.end < whole.end;
        [
            (write && first_in_part).then(|| read(first)),
            (write && last_in_part).then(|| read(last)),
            Some(all),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_write_reads_the_blocks_that_it_does_not_fill(start in 0u64..64, length in 1u64..40) {
            let blocks = PhysicalBlocks::new(4096);
            let run = SectorRun { start, end: start + length };
            let in_part = |block: &u64| {
                let filled = (block * 8..block * 8 + 8).filter(|s| (run.start..run.end).contains(s));
                (1..8).contains(&filled.count())
            };
            let want: Vec<u64> = (0..20).filter(in_part).collect();
            let passes: Vec<Pass> = blocks.passes(run, true).into_iter().flatten().collect();
            let (all, reads) = passes.split_last().expect("the write itself");
            let read: Vec<u64> = reads.iter().map(|pass| pass.run.start / 8).collect();
            prop_assert_eq!(read, want);
            prop_assert!(reads.iter().all(|p| !p.write && p.run.end - p.run.start == 8));
            prop_assert_eq!(*all, Pass { run: blocks.around(run), write: true });
            let read: Vec<Pass> = blocks.passes(run, false).into_iter().flatten().collect();
            prop_assert_eq!(read, [Pass { run: blocks.around(run), write: false }]);
        }
    }
}
