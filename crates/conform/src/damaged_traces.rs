//! A trace in which lines are missing, doubled or out of order ends in a report
//! or a message, whatever it is.

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
}

fn damage() -> impl Strategy<Value = (usize, Damage)> {
    let damage = prop_oneof![
        Just(Damage::Drop),
        Just(Damage::Double),
        (1..40usize).prop_map(Damage::Swap),
        (0..LINES).prop_map(Damage::Move),
    ];
    (0..LINES, damage)
}

fn damaged(run: &str, from: usize, damages: &[(usize, Damage)]) -> Recording {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kernel-traces");
    let text = read_text(&ours.join(format!("{run}.trace.gz"))).unwrap();
    let mut lines: Vec<&str> = text.lines().skip(from).take(LINES).collect();
    for &(at, damage) in damages {
        let at = at % lines.len();
        match damage {
            Damage::Drop => {
                lines.remove(at);
            }
            Damage::Double => lines.insert(at, lines[at]),
            Damage::Swap(by) => {
                let other = (at + by) % lines.len();
                lines.swap(at, other);
            }
            Damage::Move(to) => {
                let line = lines.remove(at);
                lines.insert(to.min(lines.len()), line);
            }
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
        let probes = alone::probes_of("mq-deadline").unwrap();
        let _ = alone::compare(&recording, "mq-deadline", probes);
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
