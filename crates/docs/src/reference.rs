//! The pages of `docs/reference`, made from declarations.

use blklab_blk::Tunable;
use blklab_elevator::ElevatorType;
use blklab_sim::Machine;
use blklab_stats::Unit;
use blklab_workload::calls::CALLS;

use crate::part::Table;

/// A reference page.
pub struct Reference {
    /// The page's name, without `.md`.
    pub name: &'static str,
    /// Returns the page's text.
    pub make: fn() -> String,
}

/// All reference pages.
pub const ALL: &[Reference] = &[
    Reference {
        name: "schedulers",
        make: schedulers,
    },
    Reference {
        name: "drives",
        make: blklab_device::reference,
    },
    Reference {
        name: "faults",
        make: faults,
    },
    Reference {
        name: "machines",
        make: Machine::reference,
    },
    Reference {
        name: "fio-options",
        make: fio_options,
    },
    Reference {
        name: "calls",
        make: calls,
    },
    Reference {
        name: "trace-formats",
        make: traces,
    },
    Reference {
        name: "tools",
        make: tools,
    },
    Reference {
        name: "facts",
        make: facts,
    },
    Reference {
        name: "tables",
        make: tables,
    },
];

fn tables() -> String {
    let mut text = "# Tables\n\n`--output-format parquet`, `arrow` or `csv` makes `results` of \
                    `run`, `compare` and `replay`; `--requests FILE` and `--series FILE` write \
                    the others; FILE ends with `.parquet`, `.arrow` or `.csv`. A missing value \
                    is null, and in CSV empty. In Parquet the unit of a column is in the \
                    file's metadata under `unit.NAME`, in Arrow in the field's.\n"
        .to_string();
    for kind in blklab_tables::TABLES {
        text += &format!("\n## {}\n\nA row is: {}\n\n", kind.name, kind.about);
        let mut table = table_of(&["column", "unit", "meaning"]);
        for [name, unit, meaning] in (kind.columns)() {
            table.row(vec![
                format!("`{name}`"),
                unit.to_string(),
                meaning.to_string(),
            ]);
        }
        text += &table.markdown();
    }
    text
}

fn table_of(head: &[&str]) -> Table {
    Table::new(head.iter().map(|&heading| heading.to_string()).collect())
}

fn schedulers() -> String {
    let mut text = "# Schedulers\n\nWhat `queue/scheduler` may be, with the tunables of each. \
                    `--set NAME.TUNABLE=VALUE` sets one, and `NAME:TUNABLE=VALUE` in `--schedulers` \
                    compares a scheduler with itself.\n"
        .to_string();
    for scheduler in blklab_elevator::all() {
        text += &format!(
            "\n## {}\n\n{}. After: {}.\n",
            scheduler.name,
            sentence(scheduler.help),
            scheduler.source
        );
        text += &tunables(scheduler);
    }
    text
}

/// Returns the text with a capital at its beginning.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

fn tunables(scheduler: &ElevatorType) -> String {
    if scheduler.tunables.is_empty() {
        return String::new();
    }
    let mut table = table_of(&["tunable", "unit", "values", "default", "meaning"]);
    for tunable in scheduler.tunables {
        let Tunable {
            name,
            unit,
            default,
            help,
            ..
        } = tunable;
        table.row(vec![
            format!("`{name}`"),
            unit.symbol().to_string(),
            tunable.range(),
            default.to_string(),
            help.to_string(),
        ]);
    }
    format!("\n{}", table.markdown())
}

fn fio_options() -> String {
    format!(
        "# fio's options\n\nWhat becomes of each option of fio 3.33 in a simulated job.\n\n{}",
        blklab_workload::fio::option_tables()
    )
}

fn calls() -> String {
    let mut table = table_of(&["call", "what it does", "arguments"]);
    for call in CALLS {
        let arguments = call.arguments.iter();
        let arguments = arguments.map(|(name, right)| format!("{}: {right}", name.to_uppercase()));
        table.row(vec![
            format!("`{}`", call.form()),
            call.help.to_string(),
            arguments.collect::<Vec<_>>().join("; "),
        ]);
    }
    format!(
        "# Calls of programs\n\nWhat a list of calls (`NAME.calls`) may hold, for `run` and \
         `compare` with `--fs ext2` or `--fs vfat`. First comes what is there before: \
         `file PATH BYTES`, `directory PATH`, and `tree PATH DIRECTORIES FILES BYTES` for this \
         number of directories with this number of files each. Then each `[process]` or \
         `[process/thread]` has its \
         calls, a line each, and `repeat TIMES` with `end` around what is done again. ` = ENOENT` \
         behind a call says that it fails so. Text behind `#` is a comment. Direct I/O is `open` \
         with `direct`.\n\nA request goes on beside the thread that makes it: `aio_read` and its \
         kin begin one, `prepare` says what one does for `lio_listio`, `io_submit` or \
         `io_uring_enter`. Each thread has requests of its own, by their names, and a name is free \
         again when its request has ended.\n\n{}",
        table.markdown()
    )
}

fn faults() -> String {
    format!(
        "# Faults of drives\n\nWhat `--faults` takes, divided by commas. A rate is a share of \
         commands, from 0 to 1.\n\n{}",
        blklab_device::Faults::table()
    )
}

fn tools() -> String {
    let tools = blklab_report::tools::TOOLS.iter();
    let rows = tools.map(|tool| format!("| `{}` | {} |\n", tool.name, tool.help));
    format!(
        "# What tools print of a run or a trace\n\n`blklab run JOB --trace FILE --as TOOL` is of a \
         simulated run, `blklab trace FILE --as TOOL` of tracefs's text, as `blklab record` and \
         `blklab run --trace` write it. Drives of a run have the major number 259, its processes \
         are numbered from 1 and have their jobs' names.\n\n\
         | `--as` | what it prints |\n| --- | --- |\n{}",
        rows.collect::<String>()
    )
}

fn traces() -> String {
    format!(
        "# Traces that can be replayed\n\nThe format is told from how a file begins, plain or packed by gzip or \
         zstd. \
         `--replay dependencies` needs one that tells when I/Os ended.\n\n{}",
        blklab_workload::trace::format_table()
    )
}

fn facts() -> String {
    let mut table = table_of(&["fact", "of", "unit", "label", "meaning"]);
    for fact in blklab_stats::facts() {
        let unit = match fact.unit {
            Unit::Count => "count",
            Unit::Bytes => "bytes",
            Unit::Nanoseconds => "ns",
            Unit::Share => "share",
            Unit::Ratio => "ratio",
        };
        table.row(vec![
            format!("`{}`", fact.key),
            fact.place.name().to_string(),
            unit.to_string(),
            fact.label.to_string(),
            fact.meaning.to_string(),
        ]);
    }
    format!(
        "# What a run tells\n\nThe facts behind \"Why\", by their keys in JSON and in a server's \
         metrics.\n\n{}",
        table.markdown()
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::ALL;

    /// The pages match the declarations; `make docs` remakes them.
    #[test]
    fn the_pages_are_current() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        for page in ALL {
            let path = folder.join(page.name).with_extension("md");
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                written == (page.make)(),
                "docs/reference/{}.md is not current: run `make docs`",
                page.name
            );
        }
    }
}
