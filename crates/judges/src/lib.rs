//! How tests tell that what they judge by is not to be had.
//!
//! The test harness keeps what a test that passes prints. What was skipped must be
//! seen, so it is written past the harness; and where `BLKLAB_JUDGES=required`
//! says that all judges are there, a test without its judge fails.

use std::io::Write;

/// Tells that a test is skipped for want of a program that `make setup` installs.
///
/// # Panics
/// Where `BLKLAB_JUDGES` is `required`.
pub fn missing(program: &str) {
    let reason = format!("{program} is not installed (make setup installs it)");
    let required = std::env::var_os("BLKLAB_JUDGES").is_some_and(|value| value == "required");
    assert!(!required, "{reason}, and BLKLAB_JUDGES=required");
    not_possible(&reason);
}

/// Tells that a test is skipped for something that this machine does not have or
/// allow.
pub fn not_possible(reason: &str) {
    // The harness names each test's thread.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // `eprintln!` would go to the harness.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// Whether a program is to be had; tells where it is not, as [`missing`].
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
