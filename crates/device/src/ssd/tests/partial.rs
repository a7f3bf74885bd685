//! Writes smaller than a map unit: which of them join in DRAM, and what is read.

use blklab_blk::{Nanos, Op, Sector};

use crate::ssd::Ssd;
use crate::ssd::tests::{FEWER_BLOCKS, PAGES_16K, followed, small};
use crate::{Command, Completion, Device};

const PROTECTED: (&str, &str) = (
    "bandwidth_mb_s = 4000",
    "bandwidth_mb_s = 4000\npower_loss_protection = true",
);

/// A drive that is given one command after the other.
struct Trial {
    drive: Ssd,
    now: Nanos,
    reads: u32,
}

impl Trial {
    /// Four units a page.
    fn new(changes: &[(&str, &str)]) -> Trial {
        Trial::of([&[PAGES_16K, FEWER_BLOCKS], changes].concat())
    }

    fn of(changes: Vec<(&str, &str)>) -> Trial {
        Trial {
            drive: followed(small(&changes), 1),
            now: Nanos(0),
            reads: 0,
        }
    }

    /// Takes a command to its end and a second beyond, until all is at rest.
    /// Returns how long it took.
    fn take(&mut self, op: Op, sector: u64, sectors: u32, fua: bool) -> u64 {
        let command = Command {
            tag: self.reads,
            queue: 0,
            op,
            sector: Sector(sector),
            sectors,
            fua,
        };
        self.reads += 1;
        self.drive.submit(self.now, command);
        let mut done: Vec<Completion> = Vec::new();
        let since = self.now;
        self.now.0 += 1_000_000_000;
        self.drive.advance(self.now, &mut done);
        assert_eq!(done.len(), 1);
        (done[0].at - since).0
    }

    fn write(&mut self, sector: u64, sectors: u32) {
        self.take(Op::Write, sector, sectors, false);
    }

    fn rescue_rests(&mut self, block: u32) {
        let drive = &mut self.drive;
        (drive.controller.media.ftl).rescue_rests(
            &mut drive.controller.media.flash,
            self.now.0,
            block,
        );
    }

    fn flush(&mut self) {
        self.take(Op::Flush, 0, 0, false);
    }

    /// Sectors absorbed and programmed of the host's, sectors programmed on the
    /// flash, and reads and programs of its pages.
    fn counts(&self) -> [u64; 5] {
        let stats = self.drive.stats(self.now);
        [
            stats.host_sectors_absorbed,
            stats.host_sectors_programmed,
            stats.flash_sectors_programmed,
            stats.flash_reads,
            stats.flash_programs,
        ]
    }
}

#[test]
fn sectors_of_a_unit_that_come_one_by_one_are_one_program() {
    for protected in [false, true] {
        let changes: &[_] = if protected { &[PROTECTED] } else { &[] };
        let mut trial = Trial::new(changes);
        // From its end to its begin: in any order.
        (0..32).rev().for_each(|sector| trial.write(sector, 1));
        assert_eq!(trial.counts(), [0, 32, 32, 0, 1]);
    }
}

#[test]
fn a_page_of_a_single_unit_is_programmed_as_it_comes() {
    let mut trial = Trial::of(Vec::new());
    trial.write(0, 4);
    assert_eq!(trial.counts(), [0, 4, 8, 1, 1]);
}

#[test]
fn only_what_is_overwritten_is_absorbed() {
    let mut trial = Trial::new(&[]);
    trial.write(0, 4);
    trial.write(2, 4);
    assert_eq!(trial.counts(), [2, 0, 0, 0, 0], "the page is open");
    trial.write(0, 8);
    trial.write(8, 24);
    assert_eq!(trial.counts(), [2 + 6, 32, 32, 0, 1]);
}

#[test]
fn a_full_page_waits_for_the_rest_of_its_units() {
    let mut trial = Trial::new(&[]);
    (0..4).for_each(|unit| trial.write(unit * 8 + 4, 4));
    assert_eq!(trial.counts(), [0; 5], "no unit is whole");
    (0..4).for_each(|unit| trial.write(unit * 8, 4));
    assert_eq!(trial.counts(), [0, 32, 32, 0, 1]);
}

/// Pages of one plane follow each other every four pages of the address space.
#[test]
fn the_rest_is_read_when_the_page_is_closed_by_the_next() {
    let mut trial = Trial::new(&[]);
    trial.write(4, 28);
    assert_eq!(trial.counts(), [0; 5]);
    trial.write(4 * 32, 32);
    assert_eq!(trial.counts(), [0, 28 + 32, 64, 1, 2]);
}

#[test]
fn a_flush_or_a_durable_write_has_the_rest_read() {
    for fua in [false, true] {
        let changes = [("discard = true", "discard = true\nfua = true")];
        let mut trial = Trial::new(&changes);
        trial.write(0, 2);
        match fua {
            true => {
                trial.take(Op::Write, 4, 2, true);
            }
            false => {
                trial.write(4, 2);
                trial.flush();
            }
        }
        assert_eq!(trial.counts(), [0, 4, 32, 1, 1]);
    }
}

#[test]
fn nothing_is_read_where_nothing_was_written() {
    let mut trial = Trial::new(&[("state = \"filled\"", "state = \"fresh\"")]);
    trial.write(0, 2);
    assert_eq!(trial.counts(), [0; 5]);
    trial.flush();
    assert_eq!(trial.counts(), [0, 2, 32, 0, 1]);
}

#[test]
fn a_discard_leaves_nothing_to_be_read() {
    let mut trial = Trial::new(&[]);
    trial.write(0, 2);
    trial.take(Op::Discard, 0, 8, false);
    trial.flush();
    assert_eq!(trial.counts()[3], 0);
    trial
        .drive
        .controller
        .media
        .ftl
        .check(trial.drive.controller.media.spec.logical_slots());
}

#[test]
fn a_read_of_what_is_not_in_dram_goes_to_the_flash() {
    let mut trial = Trial::new(&[]);
    trial.write(2, 2);
    assert!(trial.take(Op::Read, 2, 2, false) < 10_000, "in DRAM");
    assert_eq!(trial.counts()[3], 0);
    assert!(trial.take(Op::Read, 2, 3, false) > 10_000, "not all of it");
    assert!(trial.take(Op::Read, 0, 1, false) > 10_000, "none of it");
    assert_eq!(trial.counts()[3], 2);
}

/// The rest of a unit in DRAM is read before its block is erased, and only once.
#[test]
fn the_rest_is_read_before_its_block_is_erased() {
    let mut trial = Trial::new(&[PROTECTED]);
    trial.write(0, 2);
    let home = trial
        .drive
        .controller
        .media
        .ftl
        .parts(trial.drive.controller.media.ftl.home_of(0));
    trial.rescue_rests(home.block + 1);
    assert!(trial.drive.controller.media.flash.next_event_ns() > trial.now.0 + 1_000_000_000);
    trial.rescue_rests(home.block);
    trial.write(4, 2);
    assert_eq!(trial.counts(), [0, 0, 0, 1, 0]);
    trial.write(8, 24);
    trial.write(4 * 32, 32);
    assert_eq!(trial.counts(), [0, 28 + 32, 64, 1, 2]);
}

/// What is missing of a unit is read by whole codewords, of which no more cross the channel.
#[test]
fn only_codewords_that_lack_something_are_read() {
    let flush_ns = |sectors| {
        let codewords = ("codeword_bytes = 4096", "codeword_bytes = 1024");
        let mut trial = Trial::new(&[codewords]);
        trial.write(0, sectors);
        let took = trial.take(Op::Flush, 0, 0, false);
        assert_eq!(trial.counts()[3], 1, "{sectors}");
        took
    };
    // A codeword of two sectors takes 1.28 us at 800 MB/s.
    let first = flush_ns(1);
    for (sectors, whole) in [(2, 1), (3, 1), (4, 2), (5, 2), (7, 3)] {
        assert_eq!(first - flush_ns(sectors), whole * 1_280, "{sectors}");
    }
}
