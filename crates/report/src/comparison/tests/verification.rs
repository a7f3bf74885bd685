//! Settings measured for real.

use super::goals::evaluated;
use crate::comparison::{Answer, Verification, choice_of};

#[test]
fn the_answer_is_the_choice_and_else_the_best_by_the_goals() {
    let simulated = evaluated(&["victim.read.p99"], &[]);
    let [first, second] = &simulated.schedulers[..] else {
        panic!("two schedulers");
    };
    let keep = Answer::Keep(first.clone());
    assert_eq!(choice_of(&simulated, Some(&keep)), Some(first.as_str()));
    let best = choice_of(&simulated, Some(&Answer::Depends)).expect("one is best");
    assert_eq!(choice_of(&simulated, None), Some(best));
    // The victim's tail decides, which is shorter under the second.
    assert_eq!(best, second);
}

#[test]
fn regret_is_what_the_best_has_over_the_choice() {
    let measured = evaluated(&["victim.read.p99"], &[]);
    let names = measured.schedulers.clone();
    let row = &measured.judgement.as_ref().expect("evaluated").rows[0];
    let p99 = |at: usize| row.values[at].expect("measured").mean;
    let good = Verification::new(&measured, &names[1]).expect("measured");
    assert_eq!(good.regret, Some(0.0));
    assert!(
        good.sentence.contains("is the best, as simulated"),
        "{}",
        good.sentence
    );
    let bad = Verification::new(&measured, &names[0]).expect("measured");
    let regret = bad.regret.expect("both have a figure");
    assert!((regret - (p99(0) / p99(1) - 1.0)).abs() < 1e-9, "{regret}");
    let (best, choice) = (&names[1], &names[0]);
    let said = format!("{best} is better than {choice}, which the simulation chose: ");
    assert!(bad.sentence.contains(&said), "{}", bad.sentence);
    assert!(Verification::new(&measured, "no such setting").is_none());
}

#[test]
fn a_choice_that_breaks_a_limit_has_no_regret() {
    let measured = evaluated(&["all.bandwidth"], &["victim.read.p99 < 5ms"]);
    let names = measured.schedulers.clone();
    let choice = Verification::new(&measured, &names[0]).expect("measured");
    assert_eq!(choice.regret, None);
    assert!(
        choice.sentence.contains("breaks a limit"),
        "{}",
        choice.sentence
    );
    let neither = evaluated(&["all.bandwidth"], &["victim.p99 < 1us"]);
    let none = Verification::new(&neither, &names[0]).expect("measured");
    assert!(none.sentence.contains("no setting"), "{}", none.sentence);
}
