//! Helpers for tests of several crates: those that need other programs skip a test if the program
//! is missing, and recorded runs draw the same numbers each time.
//!
//! The test harness hides the output of tests that pass, so a skipped test is
//! reported to standard error directly. With `BLKLAB_JUDGES=required` a missing
//! program fails the test.

mod numbers;

use std::io::Write;

pub use numbers::Numbers;

/// Reports that a test is skipped because a program is missing that `make setup`
/// installs.
///
/// # Panics
/// If `BLKLAB_JUDGES` is `required`.
pub fn missing(program: &str) {
    let reason = format!("{program} is not installed (make setup installs it)");
    let required = std::env::var_os("BLKLAB_JUDGES").is_some_and(|value| value == "required");
    assert!(!required, "{reason}, and BLKLAB_JUDGES=required");
    not_possible(&reason);
}

/// Reports that a test is skipped because this machine does not allow it.
pub fn not_possible(reason: &str) {
    // The test harness gives each thread the name of its test.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // The harness would capture `eprintln!`.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// Whether a program is installed; otherwise reports the skipped test as [`missing`] does.
///
/// # Panics
/// As [`missing`].
pub fn have(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()));
    if !found {
        missing(program);
    }
    found
}
