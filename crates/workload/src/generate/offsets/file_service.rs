//! Chooses the file of the next I/O: `file_service_type`.

use super::distribution::Ranks;
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

    /// Restarts with the stream `random` and the first file.
    pub fn reseed(&mut self, random: Random) {
        self.current = None;
        self.next = 0;
        if let Rule::Random(own) = &mut self.rule {
            *own = random;
        }
    }

    /// Whether files that are done start over, so that they never count as done.
    pub fn restarts_files(&self) -> bool {
        matches!(self.rule, Rule::Ranks(_))
    }

    /// Returns the file of the next I/O; `None` once all are done.
    #[inline]
    pub fn next(&mut self, is_done: impl Fn(usize) -> bool) -> Option<usize> {
        if self.files == 1 {
            return (!is_done(0)).then_some(0);
        }
        if let Some(current) = self.current.filter(|file| !is_done(*file)) {
            if matches!(self.rule, Rule::Sequential) {
                return Some(current);
            }
            if self.left > 0 {
                self.left -= 1;
                return Some(current);
            }
        }
        if (0..self.files).all(&is_done) {
            return None;
        }
        let chosen = self.choose(is_done);
        self.current = Some(chosen);
        self.left = self.count - 1;
        Some(chosen)
    }

    /// Chooses a file; at least one must not be done.
    fn choose(&mut self, is_done: impl Fn(usize) -> bool) -> usize {
        loop {
            let file = match &mut self.rule {
                Rule::RoundRobin | Rule::Sequential => {
                    let file = self.next;
                    self.next = (self.next + 1) % self.files;
                    file
                }
                Rule::Random(random) => random.below(self.files as u64) as usize,
                Rule::Ranks(ranks) => (ranks.next() / RANKS_PER_FILE) as usize,
            };
            if !is_done(file) {
                return file;
            }
        }
    }
}
