//! A trace with lines missing, doubled or out of order ends in a report or in a
//! message, never in a panic.

use std::path::Path;

use blklab_workload::trace::read_text;
use proptest::prelude::*;

use crate::recording::Recording;
use crate::{alone, whole};

/// Lines of a trace that are used.
const LINES: usize = 1500;

#[derive(Clone, Copy, Debug)]
enum Damage {
    Drop,
    Double,
    Swap(usize),
    Move(usize),
    /// Another number for the one at this place of its line.
    Number(usize, u64),
}

fn damage() -> impl Strategy<Value = (usize, Damage)> {
    let damage = prop_oneof![
        Just(Damage::Drop),
        Just(Damage::Double),
        (1..40usize).prop_map(Damage::Swap),
        (0..LINES).prop_map(Damage::Move),
        (0..12usize, numbers()).prop_map(|(place, number)| Damage::Number(place, number)),
    ];
    (0..LINES, damage)
}

fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..300u64,
        (0..64u32).prop_map(|bits| 1 << bits),
        (0..600u64).prop_map(|less| u64::MAX - less),
        (0..600u64).prop_map(|less| u64::MAX / 512 - less),
    ]
}

/// The line with another number.
fn renumbered(line: &str, place: usize, number: u64) -> String {
    let is_number = |word: &&str| word.bytes().all(|b| b.is_ascii_digit()) && !word.is_empty();
    let words: Vec<&str> = line.split_inclusive([' ', '=', ',']).collect();
    let bare = |word: &str| word.trim_end_matches([' ', '=', ',']).len();
    let numbers = words.iter().filter(|word| is_number(&&word[..bare(word)]));
    let Some(chosen) = numbers.clone().nth(place % numbers.clone().count().max(1)) else {
        return line.to_owned();
    };
    let at = words
        .iter()
        .position(|word| std::ptr::eq(*word, *chosen))
        .unwrap();
    let mut changed: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    changed[at] = format!("{number}{}", &chosen[bare(chosen)..]);
    changed.concat()
}

fn damaged(run: &str, from: usize, damages: &[(usize, Damage)]) -> Recording {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kernel-traces");
    let text = read_text(&ours.join(format!("{run}.trace.gz"))).unwrap();
    let lines = text.lines().skip(from).take(LINES);
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    for &(at, damage) in damages {
        // Some begin behind the end of a short trace.
        if lines.is_empty() {
            break;
        }
        let at = at % lines.len();
        match damage {
            Damage::Drop => {
                lines.remove(at);
            }
            Damage::Double => lines.insert(at, lines[at].clone()),
            Damage::Swap(by) => {
                let other = (at + by) % lines.len();
                lines.swap(at, other);
            }
            Damage::Move(to) => {
                let line = lines.remove(at);
                lines.insert(to.min(lines.len()), line);
            }
            Damage::Number(place, number) => lines[at] = renumbered(&lines[at], place, number),
        }
    }
    Recording::of_text(lines.join("\n"), &ours.join(format!("{run}.json")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_damage_is_a_panic(
        run in prop::sample::select(vec![
            "mq-deadline/v_holefill_d4",
            "mq-deadline/v_prio_flat_aging100_d4",
            "mq-deadline/w8_sync_fsync_wcache_d4",
        ]),
        from in 0..12_000usize,
        damages in prop::collection::vec(damage(), 0..60),
    ) {
        let recording = damaged(run, from, &damages);
        let _ = whole::compare(&recording, "mq-deadline");
        let _ = alone::compare(&recording, "mq-deadline");
    }

    #[test]
    fn no_damage_is_a_panic_of_kyber_or_bfq(
        (scheduler, run) in prop::sample::select(vec![
            ("kyber", "kyber/w5_seqread_randwrite_d4"),
            ("kyber", "kyber/w9_ext4_d4"),
            ("bfq", "bfq/w7_prio_d4"),
            ("bfq", "bfq/w9_ext4_d4"),
            ("bfq", "bfq/r_burst14_d4"),
            ("bfq", "bfq/g_nested_nolowlat_d4"),
        ]),
        from in 0..12_000usize,
        damages in prop::collection::vec(damage(), 0..60),
    ) {
        let recording = damaged(run, from, &damages);
        let _ = alone::compare(&recording, scheduler);
    }

    #[test]
    fn no_damage_is_a_panic_of_a_module_s_scheduler(
        // Whatever scheduler's trace it is, all have the same calls.
        scheduler in prop::sample::select(vec![
            "noop", "deadline", "mq-deadline", "bfq", "kyber", "ac", "sio", "irbw", "stb", "bp",
            "cfq", "adios", "fios", "ac2",
        ]),
        from in 0..12_000usize,
        damages in prop::collection::vec(damage(), 0..60),
    ) {
        let recording = damaged("../module-traces/mq-deadline", from, &damages);
        let _ = alone::compare(&recording, scheduler);
    }

    #[test]
    fn no_damage_is_a_panic_without_a_scheduler(
        run in prop::sample::select(vec!["none/w6_seqwrite_merge_d4", "none/w9_ext4_d4"]),
        from in 0..8_000usize,
        damages in prop::collection::vec(damage(), 0..60),
    ) {
        let recording = damaged(run, from, &damages);
        let _ = whole::compare(&recording, "none");
    }
}
