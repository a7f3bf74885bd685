//! What of the documents is made from declarations.

use std::path::Path;

use blklab_workload::fio::option_tables;
use blklab_workload::trace::format_table;

/// Holds `docs/NAME` to be what is declared; with `BLESS=1` in the environment
/// it is written.
fn check(name: &str, text: &str) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let path = docs.join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == text,
        "docs/{name} is not what is declared; BLESS=1 writes it"
    );
}

#[test]
fn the_options_of_fio() {
    let head = "# fio's options\n\n\
        What becomes of each option of fio 3.33. This page is made from the declarations in \
        `crates/workload/src/fio/options/`; see [jobs.md](jobs.md) for how jobs are simulated.\n\n";
    check(
        "fio-options.md",
        &format!("{head}{}\n", option_tables().trim_end()),
    );
}

#[test]
fn the_formats_of_traces() {
    let head = "# Trace formats\n\nWhat `blklab replay` reads, plain or gzipped: what a line of \
        each format looks like, whether it has room for when I/Os ended and for whose they are, \
        and what its times are multiples of. This page is made from the declarations in \
        `crates/workload/src/trace/`; see [jobs.md](jobs.md) for how traces are replayed.\n\n";
    check("trace-formats.md", &format!("{head}{}", format_table()));
}
