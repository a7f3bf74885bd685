//! Keys of a description that would do nothing, because the same description
//! switches off what they belong to.

use blklab_description::{ReadError, Table};

/// A key that does something only together with others.
pub(crate) struct Needs<S> {
    /// The table that it is in.
    pub(crate) table: &'static str,
    /// The key.
    pub(crate) key: &'static str,
    /// Whether it does something.
    pub(crate) works: fn(&S) -> bool,
    /// What it needs for that.
    pub(crate) needs: &'static str,
}

/// Refuses keys that are there and do nothing.
pub(crate) fn refuse_idle_keys<S>(
    root: &Table<'_>,
    spec: &S,
    rules: &[Needs<S>],
) -> Result<(), ReadError> {
    for rule in rules {
        let Some(table) = root.table_if_any(rule.table)? else {
            continue;
        };
        if table.has(rule.key) && !(rule.works)(spec) {
            let problem = format!(
                "has no effect here, so legal is to leave it out; it needs {}",
                rule.needs
            );
            return Err(table.wrong(rule.key, problem));
        }
    }
    Ok(())
}
