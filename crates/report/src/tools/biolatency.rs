//! biolatency of bcc: a histogram of times in the drive, by powers of two.

use std::collections::BTreeMap;

use super::Tool;
use super::requests::Requests;

/// Width of the longest bar.
const STARS: usize = 40;
const STARS_LONG: usize = STARS / 2;
/// The last power of two that fits in the narrow layout.
const NARROW_MAX: usize = 32;

pub(super) static TOOL: Tool = Tool {
    name: "biolatency",
    help: "biolatency -D of bcc: a histogram of times in each drive",
    render: |source, events| {
        let mut requests = Requests::default();
        let mut drives: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for event in events {
            let event = event.map_err(|e| e.to_string())?;
            if let Some(ended) = requests.event(&event)
                && let Some(issued_ns) = ended.issued_ns
            {
                let took_us = ended.ended_ns.saturating_sub(issued_ns) / 1000;
                let counts = drives.entry(ended.dev).or_insert_with(|| vec![0; 65]);
                counts[bucket(took_us)] += 1;
            }
        }
        let mut text = "Tracing block device I/O... Hit Ctrl-C to end.\n".to_string();
        for (dev, counts) in &drives {
            let name = source.drive_name(*dev);
            text.push_str(&format!("\ndisk = '{name}'\n{}", histogram(counts)));
        }
        Ok(text.into_bytes())
    },
};

/// Returns the bucket of a value: 1 for 0 and 1, 2 for 2 and 3, 3 for 4 to 7.
fn bucket(value: u64) -> usize {
    value.max(1).ilog2() as usize + 1
}

fn histogram(counts: &[u64]) -> String {
    let last = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    let most = counts.iter().copied().max().unwrap_or(0);
    let (indent, name_width, width, stars) = match last <= NARROW_MAX {
        true => (5, 19, 10, STARS),
        false => (15, 29, 20, STARS_LONG),
    };
    let name = "usecs";
    let mut text = format!(
        "{:indent$}{name:<name_width$} : count     distribution\n",
        ""
    );
    for (index, count) in counts.iter().enumerate().take(last + 1).skip(1) {
        let low = if index == 1 { 0 } else { 1u64 << (index - 1) };
        let high = ((1u128 << index) - 1) as u64;
        let bar = "*".repeat((*count as usize * stars) / most.max(1) as usize);
        text.push_str(&format!(
            "{low:>width$} -> {high:<width$} : {count:<8} |{bar:<stars$}|\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        let of = [0, 1, 2, 3, 4, 1023, 1024].map(bucket);
        assert_eq!(of, [1, 1, 2, 2, 3, 10, 11]);
    }

    #[test]
    fn the_layout_is_that_of_bcc() {
        let mut counts = vec![0; 65];
        counts[1] = 1;
        counts[3] = 4;
        assert_eq!(
            histogram(&counts),
            "     usecs               : count     distribution\n\
             \x20        0 -> 1          : 1        |**********                              |\n\
             \x20        2 -> 3          : 0        |                                        |\n\
             \x20        4 -> 7          : 4        |****************************************|\n"
        );
    }
}
