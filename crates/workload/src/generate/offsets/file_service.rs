//! Chooses the file of the next I/O: `file_service_type`.

use super::distribution::Ranks;
use super::open_files::OpenFiles;
use crate::fio::{FileService, JobSpec};
use crate::generate::random::{Random, Seeds, Stream};

/// The resolution per file of the range that fio draws from.
const RANKS_PER_FILE: u64 = 1 << 10;

/// A generator that chooses among the files that are not done.
#[derive(Clone, Debug)]
pub(crate) struct FileChooser {
    rule: Rule,
    files: usize,
    current: Option<usize>,
    /// The number of I/Os that remain for the current file.
    left: u32,
    count: u32,
    /// The next file in turn.
    next: usize,
}

#[derive(Clone, Debug)]
enum Rule {
    RoundRobin,
    Sequential,
    Random(Random),
    Ranks(Box<Ranks>),
}

/// What is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A file that is open.
    Open(usize),
    /// A file that is to be opened.
    Closed(usize),
    /// A file that cannot be opened while this many others are open.
    Busy,
}

impl FileChooser {
    pub fn new(spec: &JobSpec, files: usize, seeds: &Seeds) -> FileChooser {
        let random = seeds.stream(Stream::File);
        let range = (files as u64).max(1) * RANKS_PER_FILE;
        let rule = match spec.file_service {
            FileService::RoundRobin => Rule::RoundRobin,
            FileService::Sequential => Rule::Sequential,
            FileService::Random => Rule::Random(random),
            FileService::Popularity(popularity) => {
                let ranks = Ranks::of(range, popularity, random).unscattered();
                Rule::Ranks(Box::new(ranks))
            }
        };
        FileChooser {
            rule,
            files,
            current: None,
            left: 0,
            count: spec.file_service_count.max(1),
            next: 0,
        }
    }

    /// Restarts with the stream `random`. As in fio, files go on in turn.
    pub fn reseed(&mut self, random: Random) {
        if let Rule::Random(own) = &mut self.rule {
            *own = random;
        }
    }

    /// Whether files that are done start over, so that they never count as done.
    pub fn restarts_files(&self) -> bool {
        matches!(self.rule, Rule::Ranks(_))
    }

    /// Chooses the file of the next I/O; `None` once all are done.
    pub fn next(&mut self, open: &OpenFiles, is_done: impl Fn(usize) -> bool) -> Option<Choice> {
        if let Some(current) = self.current.filter(|file| open.is_usable(*file)) {
            if matches!(self.rule, Rule::Sequential) {
                return Some(Choice::Open(current));
            }
            if self.left > 0 {
                self.left -= 1;
                return Some(Choice::Open(current));
            }
        }
        if (0..self.files).all(&is_done) {
            return None;
        }
        let choice = self.choose(open, is_done);
        if let Choice::Open(chosen) | Choice::Closed(chosen) = choice {
            self.current = Some(chosen);
            self.left = self.count - 1;
        }
        Some(choice)
    }

    /// Chooses a file; at least one must not be done.
    fn choose(&mut self, open: &OpenFiles, is_done: impl Fn(usize) -> bool) -> Choice {
        let can_be_chosen =
            |file: usize| !is_done(file) && (open.is_usable(file) || !open.is_open(file as u32));
        if !(0..self.files).any(can_be_chosen) {
            return Choice::Busy;
        }
        loop {
            let file = self.draw();
            if is_done(file) {
                continue;
            }
            if open.is_usable(file) {
                return Choice::Open(file);
            }
            if !open.is_open(file as u32) {
                return match open.is_full() {
                    true => Choice::Busy,
                    false => Choice::Closed(file),
                };
            }
        }
    }

    fn draw(&mut self) -> usize {
        match &mut self.rule {
            Rule::RoundRobin | Rule::Sequential => {
                let file = self.next;
                self.next = (self.next + 1) % self.files;
                file
            }
            // Of a single file nothing is drawn.
            _ if self.files == 1 => 0,
            Rule::Random(random) => random.below(self.files as u64) as usize,
            Rule::Ranks(ranks) => (ranks.next() / RANKS_PER_FILE) as usize,
        }
    }
}
