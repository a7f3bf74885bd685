//! Which of its files a process turns to next: `file_service_type`.

use super::distribution::Ranks;
use crate::fio::{FileService, JobSpec};
use crate::generate::random::{Random, Seeds, Stream};

/// fio draws from a range this much finer than the number of files.
const RANKS_PER_FILE: u64 = 1 << 10;

/// Chooses among files that are not done.
#[derive(Clone, Debug)]
pub(crate) struct FileChooser {
    rule: Rule,
    files: usize,
    current: Option<usize>,
    /// I/Os the current file still gets.
    left: u32,
    count: u32,
    /// The next in turn.
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
        let ranks = |ranks: Ranks| Rule::Ranks(Box::new(ranks.unscattered()));
        let rule = match spec.file_service {
            FileService::RoundRobin => Rule::RoundRobin,
            FileService::Sequential => Rule::Sequential,
            FileService::Random => Rule::Random(random),
            FileService::Zipf { theta, center } => ranks(Ranks::zipf(range, theta, center, random)),
            FileService::Pareto { h, center } => ranks(Ranks::pareto(range, h, center, random)),
            FileService::Normal {
                deviation_percent,
                center,
            } => ranks(Ranks::normal(range, deviation_percent, center, random)),
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

    /// Draws from `random` from now on, and begins with the first file.
    pub fn reseed(&mut self, random: Random) {
        self.current = None;
        self.next = 0;
        if let Rule::Random(own) = &mut self.rule {
            *own = random;
        }
    }

    /// Files never count as done: one that is starts over.
    pub fn restarts_files(&self) -> bool {
        matches!(self.rule, Rule::Ranks(_))
    }

    /// The file for the next I/O; `None` once all are done.
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

    /// At least one file must not be done.
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
