//! How long each operation takes on the bus and in the array.

use alloc::vec::Vec;

use crate::ssd::flash::transaction::{Operation, Transaction};
use crate::ssd::spec::{Copyback, SsdSpec};

/// The times of one drive.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    byte_ps: u64,
    command_ns: [u64; 3],
    pub(crate) plane_command_ns: u64,
    read_ns: Vec<u64>,
    program_ns: Vec<u64>,
    erase_ns: u64,
    /// Binary logarithm of the parts of a physical page.
    part_bits: u32,
    /// The content of page registers makes a difference.
    tracks_page_registers: bool,
    /// Pages of a word line, one a bit of the cell.
    levels: u32,
    /// Read, program and erase of blocks with one bit a cell.
    slc_ns: [u64; 3],
}

impl Timing {
    pub(crate) fn new(spec: &SsdSpec) -> Timing {
        let channel = &spec.channel;
        // One entry is enough where all levels take the same time.
        let levels = |times: &[u64]| match times.iter().all(|ns| *ns == times[0]) {
            true => times[..1].to_vec(),
            false => times.to_vec(),
        };
        Timing {
            byte_ps: channel.byte_ps,
            command_ns: [
                channel.read_command_ns,
                channel.program_command_ns,
                channel.erase_command_ns,
            ],
            plane_command_ns: channel.plane_command_ns,
            read_ns: levels(&spec.flash.read_ns),
            program_ns: levels(&spec.flash.program_ns),
            erase_ns: spec.flash.erase_ns,
            levels: spec.flash.read_ns.len() as u32,
            part_bits: spec.geometry.page_parts.trailing_zeros(),
            tracks_page_registers: spec.geometry.page_parts > 1
                || spec.flash.copyback != Copyback::None,
            slc_ns: spec.slc_cache.map_or([0; 3], |cache| {
                [cache.read_ns, cache.program_ns, cache.erase_ns]
            }),
        }
    }

    /// Data over the channel.
    #[inline]
    pub(crate) fn data_ns(&self, bytes: u32) -> u64 {
        bytes as u64 * self.byte_ps / 1000
    }

    /// Command and address cycles of a command for one plane.
    #[inline]
    pub(crate) fn command_ns(&self, kind: Operation) -> u64 {
        self.command_ns[kind as usize]
    }

    /// Bus and array time to read a page again that was to be copied and has been
    /// displaced from the page register.
    pub(crate) fn sense_again_ns(&self, page: u32) -> (u64, u64) {
        let array_ns = of_level(&self.read_ns, page >> self.part_bits);
        (self.command_ns(Operation::Read), array_ns)
    }

    /// The physical page that a page is part of; `None` where the content of page
    /// registers makes no difference.
    #[inline]
    pub(crate) fn physical_page(&self, op: &Transaction) -> Option<u32> {
        self.tracks_page_registers
            .then_some(op.page >> self.part_bits)
    }

    /// Whether pages are parts of physical ones.
    pub(crate) fn has_parts(&self) -> bool {
        self.part_bits > 0
    }

    /// Whether a program is the last of its word line.
    pub(crate) fn completes_word_line(&self, op: &Transaction) -> bool {
        let parts = 1 << self.part_bits;
        op.kind == Operation::Program
            && !op.slc
            && (op.page + 1) & (parts - 1) == 0
            && (op.page >> self.part_bits) % self.levels == self.levels - 1
    }

    /// Time in the array, by the page's level. A page of several parts is programmed
    /// with its last part.
    #[inline(always)]
    pub(crate) fn array_ns(&self, op: &Transaction) -> u64 {
        match op.kind {
            Operation::Read if !op.slc => of_level(&self.read_ns, op.page >> self.part_bits),
            _ => self.other_array_ns(op),
        }
    }

    /// The same for all but reads of pages with more than one bit a cell.
    fn other_array_ns(&self, op: &Transaction) -> u64 {
        if op.slc {
            return self.slc_ns[op.kind as usize];
        }
        let (page, parts) = (op.page >> self.part_bits, 1 << self.part_bits);
        match op.kind {
            Operation::Read => of_level(&self.read_ns, page),
            Operation::Program => {
                let is_last_part = (op.page + 1) & (parts - 1) == 0;
                match is_last_part {
                    true => of_level(&self.program_ns, page),
                    false => 0,
                }
            }
            Operation::Erase => self.erase_ns,
        }
    }
}

/// The time of a page's level: the pages of a word line, one a bit of the cell,
/// follow each other.
#[inline]
fn of_level(times: &[u64], page: u32) -> u64 {
    match times.len() {
        1 => times[0],
        2 => times[(page & 1) as usize],
        n => times[page as usize % n],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssd::flash::transaction::{FlashPage, Source};
    use crate::ssd::tests::small;

    fn array_ns(timing: &Timing, kind: Operation, pages: [u32; 4]) -> [u64; 4] {
        pages.map(|page| timing.array_ns(&op(kind, page)))
    }

    fn op(kind: Operation, page: u32) -> Transaction {
        let (plane, block) = (0, 0);
        let at = FlashPage { plane, block, page };
        Transaction::new(kind, Source::Host, 0, at, 4096)
    }

    #[test]
    fn each_page_of_a_word_line_has_its_own_times() {
        let timing = Timing::new(&small(&[
            ("cell = \"slc\"", "cell = \"tlc\""),
            ("read_us = 10\n", "read_us = [10, 20, 30]\n"),
            ("program_us = 50", "program_us = [100, 200, 300]"),
            ("pages_per_block = 64", "pages_per_block = 66"),
        ]));
        let pages = [0, 1, 5, 6];
        let read = array_ns(&timing, Operation::Read, pages);
        assert_eq!(read, [10_000, 20_000, 30_000, 10_000]);
        let program = array_ns(&timing, Operation::Program, pages);
        assert_eq!(program, [100_000, 200_000, 300_000, 100_000]);
        assert_eq!(timing.array_ns(&op(Operation::Erase, 0)), 500_000);
    }

    #[test]
    fn parts_of_a_page_are_read_one_by_one_and_programmed_with_the_last() {
        let timing = Timing::new(&small(&[
            ("cell = \"slc\"", "cell = \"mlc\""),
            ("read_us = 10\n", "read_us = [10, 20]\n"),
            ("program_us = 50", "program_us = [100, 200]"),
            ("page_kb = 4", "page_kb = 4\npage_parts = 2"),
        ]));
        let pages = [0, 1, 2, 3];
        let read = array_ns(&timing, Operation::Read, pages);
        assert_eq!(read, [10_000, 10_000, 20_000, 20_000]);
        let program = array_ns(&timing, Operation::Program, pages);
        assert_eq!(program, [0, 100_000, 0, 200_000]);
        let completes = pages.map(|page| timing.completes_word_line(&op(Operation::Program, page)));
        assert_eq!(completes, [false, false, false, true]);
        assert_eq!(timing.physical_page(&op(Operation::Read, 3)), Some(1));
    }
}
