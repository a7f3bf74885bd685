//! Which blocks a job reads again, and when: fio's list of writes (`log_io_piece`,
//! `get_next_verify` in `iolog.c` and `verify.c`).

use std::collections::{BTreeMap, VecDeque};

use super::Io;
use crate::fio::{Direction, JobSpec, RandomGenerator, VerifyKind};

/// A write of a job that verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The write.
    pub io: Io,
    /// The number of the job's writes before it.
    pub number: u64,
    /// The number of seeds for contents that were drawn before its own, since they were last drawn
    /// from the beginning; none where a pattern is the contents.
    pub draw: u64,
    id: u64,
}

/// A write in the list.
#[derive(Clone, Copy, Debug)]
struct Entry {
    written: Written,
    is_in_flight: bool,
}

/// The writes that were not read again.
#[derive(Clone, Debug)]
enum List {
    /// In the order issued, where no block is written twice in a pass.
    Issued(VecDeque<Entry>),
    /// By file and offset; a write replaces those that it overlaps.
    Sorted(BTreeMap<(u32, u64), Entry>),
}

/// The writes of a process that verifies, and its turns between writing and reading.
#[derive(Clone, Debug)]
pub struct VerifyLog {
    list: List,
    /// The entries of the list that did not fail.
    len: u64,
    /// Whether writes are listed.
    lists: bool,
    backlog: u64,
    batch: u64,
    /// The reads left of a batch.
    batch_left: u64,
    /// As in fio, no I/O so far counts as a read.
    last_was_read: bool,
    writes: u64,
    next_id: u64,
    /// Whether contents are drawn.
    draws: bool,
    drawn: u64,
    /// Whether seeds are drawn from the beginning in each pass.
    draws_again: bool,
}

impl VerifyLog {
    /// The empty list of one process; `None` where the job does not verify.
    pub fn new(spec: &JobSpec) -> Option<VerifyLog> {
        let verify = &spec.verify;
        if !verify.is_on() {
            return None;
        }
        let has_map = spec.pattern.is_random()
            && !spec.no_random_map
            && spec.generator != RandomGenerator::Lfsr;
        let batch = u64::from(verify.backlog_batch);
        Some(VerifyLog {
            list: match has_map {
                true => List::Issued(VecDeque::new()),
                false => List::Sorted(BTreeMap::new()),
            },
            len: 0,
            lists: !verify.writes_alone,
            backlog: verify.backlog,
            batch: if batch == 0 { verify.backlog } else { batch },
            batch_left: 0,
            last_was_read: true,
            writes: 0,
            next_id: 0,
            draws: verify.kind != VerifyKind::Null && verify.pattern.is_none(),
            drawn: 0,
            draws_again: spec.random_repeatable,
        })
    }

    /// A pass begins, with an empty list.
    pub fn start_pass(&mut self) {
        match &mut self.list {
            List::Issued(entries) => entries.clear(),
            List::Sorted(entries) => entries.clear(),
        }
        self.len = 0;
        if self.draws_again {
            self.drawn = 0;
        }
    }

    /// The job is about to read what is left.
    pub fn start_verify(&mut self) {
        self.drawn = 0;
    }

    /// Counts a write as issued, or as an earlier job's (`verify_only`).
    pub fn issued(&mut self, io: Io, is_in_flight: bool) -> Written {
        let written = Written {
            io,
            number: self.writes,
            draw: if is_in_flight { self.draw() } else { 0 },
            id: self.next_id,
        };
        self.writes += 1;
        self.next_id += 1;
        if self.lists {
            self.add(Entry {
                written,
                is_in_flight,
            });
        }
        written
    }

    fn draw(&mut self) -> u64 {
        let drawn = self.drawn;
        self.drawn += u64::from(self.draws);
        drawn
    }

    fn add(&mut self, entry: Entry) {
        match &mut self.list {
            List::Issued(entries) => entries.push_back(entry),
            List::Sorted(entries) => {
                self.len -= remove_overlapping(entries, &entry.written.io);
                entries.insert(key(&entry.written.io), entry);
            }
        }
        self.len += 1;
    }

    /// A listed write ended. One that failed is not read again.
    pub fn write_ended(&mut self, written: &Written, ok: bool) {
        self.last_was_read = false;
        let entry = match &mut self.list {
            List::Issued(entries) => {
                let at = entries.binary_search_by_key(&written.id, |entry| entry.written.id);
                at.ok().map(|at| &mut entries[at])
            }
            List::Sorted(entries) => entries.get_mut(&key(&written.io)),
        };
        let Some(entry) = entry.filter(|entry| entry.written.id == written.id) else {
            // Another write has taken its place.
            return;
        };
        entry.is_in_flight = false;
        if ok {
            return;
        }
        self.len -= 1;
        match &mut self.list {
            List::Issued(entries) => entries.retain(|entry| entry.written.id != written.id),
            List::Sorted(entries) => {
                entries.remove(&key(&written.io));
            }
        }
    }

    /// A read or a trim ended.
    pub fn other_ended(&mut self, direction: Direction) {
        self.last_was_read = direction == Direction::Read;
    }

    /// The write to be read again now, between writes (`check_get_verify`).
    pub fn due(&mut self) -> Option<Written> {
        if self.backlog == 0 || self.len == 0 {
            return None;
        }
        if self.batch_left == 0 {
            if !self.len.is_multiple_of(self.backlog) || self.last_was_read {
                return None;
            }
            self.batch_left = self.batch;
        }
        let written = self.next()?;
        self.batch_left -= 1;
        Some(written)
    }

    /// The write to be read again next; `None` if there is none, or it has not ended.
    #[expect(
        clippy::should_implement_trait,
        reason = "more may be listed after the end"
    )]
    pub fn next(&mut self) -> Option<Written> {
        let first = match &self.list {
            List::Issued(entries) => entries.front().copied(),
            List::Sorted(entries) => entries.first_key_value().map(|(_, entry)| *entry),
        };
        let entry = first.filter(|entry| !entry.is_in_flight)?;
        match &mut self.list {
            List::Issued(entries) => drop(entries.pop_front()),
            List::Sorted(entries) => drop(entries.pop_first()),
        }
        self.len -= 1;
        // fio draws the seed that it expects for each read.
        let expected = self.draw();
        Some(Written {
            draw: expected,
            ..entry.written
        })
    }
}

fn key(io: &Io) -> (u32, u64) {
    (io.file, io.offset_bytes)
}

/// Removes what overlaps a new write. Returns how many that were.
fn remove_overlapping(entries: &mut BTreeMap<(u32, u64), Entry>, io: &Io) -> u64 {
    let end = io.offset_bytes + u64::from(io.length_bytes);
    let mut removed = 0;
    while let Some((&at, entry)) = entries.range(..(io.file, end)).next_back() {
        let entry_end = at.1 + u64::from(entry.written.io.length_bytes);
        if at.0 != io.file || entry_end <= io.offset_bytes {
            break;
        }
        entries.remove(&at);
        removed += 1;
    }
    removed
}
