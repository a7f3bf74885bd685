//! Rows of a comparison that did the same work, and their names among these.

/// Rows that did the same work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SameWork {
    /// What their work is called, such as `iodepth=4`.
    pub label: String,
    /// Their indices.
    pub rows: Vec<usize>,
}

impl SameWork {
    /// Returns a row's name without what all rows of the part have.
    pub(super) fn short(&self, name: &str) -> String {
        let own = |word: &&str| !self.label.split(' ').any(|common| common == *word);
        let words: Vec<&str> = name.split(' ').filter(own).collect();
        words.join(" ")
    }
}

/// The part of a row, where rows of one work are several: where each has a work of its own, each
/// has its whole name.
fn part_of(index: usize, parts: &[SameWork]) -> Option<&SameWork> {
    let has_several = parts.len() > 1 && parts.iter().any(|part| part.rows.len() > 1);
    let mut parts = parts.iter().filter(|_| has_several);
    parts.find(|part| part.rows.contains(&index))
}

/// A row's name among those that did the same work.
pub(super) fn name_in_part(index: usize, rows: &[String], parts: &[SameWork]) -> String {
    match part_of(index, parts) {
        Some(part) => part.short(&rows[index]),
        None => rows[index].clone(),
    }
}

/// The row that a row is held against by this name: one that did the same work.
pub(super) fn position(
    named: &str,
    index: usize,
    rows: &[String],
    parts: &[SameWork],
) -> Option<usize> {
    match part_of(index, parts) {
        Some(part) => {
            let mut rows_of_part = part.rows.iter().copied();
            rows_of_part.find(|at| part.short(&rows[*at]) == named)
        }
        None => rows.iter().position(|name| name == named),
    }
}
