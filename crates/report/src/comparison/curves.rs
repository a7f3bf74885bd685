//! Curves: figures over the key with the most values, such as the depth, with a line for
//! each combination of the other keys.

/// The key over which curves are drawn, with the rows on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axis<'a> {
    /// The key, as in `--vary`.
    pub key: &'a str,
    /// The key's values in the order given.
    pub values: Vec<&'a str>,
    /// The lines: the other keys with their values, and the row at each value of the
    /// axis.
    pub lines: Vec<(String, Vec<Option<usize>>)>,
}

/// Fewer points are shown better by rows of a table.
const VALUES_MIN: usize = 3;

/// Finds the axis in the rows' names: the key that has the most values.
pub(crate) fn axis(rows: &[String]) -> Option<Axis<'_>> {
    let mut axes: Vec<(&str, Vec<&str>)> = Vec::new();
    for (key, value) in rows.iter().flat_map(|row| pairs(row)) {
        match axes.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) if values.contains(&value) => {}
            Some((_, values)) => values.push(value),
            None => axes.push((key, vec![value])),
        }
    }
    // The first of keys with equally many values is taken.
    axes.reverse();
    let (key, values) = axes.into_iter().max_by_key(|(_, values)| values.len())?;
    if values.len() < VALUES_MIN {
        return None;
    }
    let mut lines: Vec<(String, Vec<Option<usize>>)> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let Some((_, value)) = pairs(row).find(|(known, _)| *known == key) else {
            continue;
        };
        let name = without(row, key);
        let at = values.iter().position(|known| *known == value);
        let line = match lines.iter().position(|(known, _)| *known == name) {
            Some(line) => line,
            None => {
                lines.push((name, vec![None; values.len()]));
                lines.len() - 1
            }
        };
        if let Some(at) = at {
            lines[line].1[at] = Some(index);
        }
    }
    Some(Axis { key, values, lines })
}

/// Returns the `KEY=VALUE` words of a row's name.
fn pairs(row: &str) -> impl Iterator<Item = (&str, &str)> {
    row.split(' ').filter_map(|word| word.split_once('='))
}

/// Returns a row's name without one key.
fn without(row: &str, key: &str) -> String {
    let is_other = |word: &&str| word.split_once('=').is_none_or(|(known, _)| known != key);
    row.split(' ')
        .filter(is_other)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_key_with_the_most_values_is_the_axis() {
        let names = rows(&[
            "none bs=4k iodepth=1",
            "none bs=4k iodepth=2",
            "none bs=4k iodepth=4",
            "bfq bs=8k iodepth=1",
            "bfq bs=8k iodepth=4",
            "kyber",
        ]);
        let axis = axis(&names).expect("three depths");
        assert_eq!(
            (axis.key, &axis.values[..]),
            ("iodepth", &["1", "2", "4"][..])
        );
        assert_eq!(
            axis.lines,
            [
                ("none bs=4k".to_string(), vec![Some(0), Some(1), Some(2)]),
                ("bfq bs=8k".to_string(), vec![Some(3), None, Some(4)]),
            ]
        );
    }

    #[test]
    fn two_points_are_no_curve() {
        assert_eq!(axis(&rows(&["iodepth=1", "iodepth=2"])), None);
        assert_eq!(axis(&rows(&["none", "bfq"])), None);
        assert_eq!(axis(&[]), None);
    }
}
