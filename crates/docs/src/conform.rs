//! Tables of the agreement with recorded kernels.

use std::path::PathBuf;

use serde::Deserialize;

use crate::part::{PagePart, Table};
use crate::program::Program;

/// A table with a row for each recorded run in these folders.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The folders of runs, named by their scheduler.
    schedulers: Vec<String>,
    /// Whether the whole block layer is compared, too.
    #[serde(default)]
    whole: bool,
    /// Whether the page cache is compared instead.
    #[serde(default)]
    page_cache: bool,
}

/// The beginnings of the lines of `conform` that count: decisions, and latencies of requests.
const DECISIONS: &str = "agree ";
const LATENCIES: &str = "latency within 10 %: ";

/// A column of a folder's runs.
struct Column {
    heading: &'static str,
    /// The options of `conform`; `None` if there is nothing to compare.
    options: Option<String>,
    /// The line that counts.
    line: &'static str,
}

/// The number of decisions of a run that agree.
#[derive(Clone, Copy, Default)]
struct Agreement {
    agree: u64,
    of: u64,
}

impl Agreement {
    fn percent(self) -> f64 {
        100.0 * self.agree as f64 / self.of.max(1) as f64
    }

    fn cell(self) -> String {
        format!("{} of {} ({:.2} %)", self.agree, self.of, self.percent())
    }

    /// Parses the last line that `conform` prints with this beginning, which ends in `N of M`.
    fn parse(text: &str, beginning: &str) -> Option<Agreement> {
        let mut lines = text.lines().rev();
        let mut words = lines
            .find_map(|line| line.strip_prefix(beginning))?
            .split(' ');
        let agree = words.next()?.parse().ok()?;
        let of = words.nth(1)?.parse().ok()?;
        Some(Agreement { agree, of })
    }
}

impl Block {
    /// Returns the columns of a folder's runs.
    fn columns(&self, scheduler: &str) -> Vec<Column> {
        let column = |heading, line, options| Column {
            heading,
            options,
            line,
        };
        if self.page_cache {
            return vec![column("agree", DECISIONS, Some("--page-cache".to_string()))];
        }
        let alone = (scheduler != "none").then(|| format!("--scheduler {scheduler}"));
        let mut columns = vec![column("scheduler alone", DECISIONS, alone)];
        if self.whole {
            let whole = format!("--whole --scheduler {scheduler}");
            columns.push(column("whole layer", DECISIONS, Some(whole.clone())));
            columns.push(column("latency within 10 %", LATENCIES, Some(whole)));
        }
        columns
    }

    fn set(&self) -> &'static str {
        if self.page_cache {
            "page-cache-traces"
        } else {
            "kernel-traces"
        }
    }

    /// Compares the simulation with each run.
    ///
    /// # Errors
    /// If a run cannot be read.
    pub fn make(&self, program: &Program) -> Result<PagePart, String> {
        let headings = self.columns("").into_iter().map(|column| column.heading);
        let mut table = Table::new(
            ["run"]
                .into_iter()
                .chain(headings)
                .map(String::from)
                .collect(),
        );
        let mut made = PagePart::default();
        for scheduler in &self.schedulers {
            let columns = self.columns(scheduler);
            let mut all = vec![Agreement::default(); columns.len()];
            for trace in traces(program, self.set(), scheduler)? {
                let name = trace.file_name().unwrap_or_default().to_string_lossy();
                let name = name.trim_end_matches(".trace.gz");
                let mut row = vec![format!("{scheduler}/{name}")];
                for (sum, column) in all.iter_mut().zip(&columns) {
                    let Some(options) = &column.options else {
                        row.push("-".to_string());
                        continue;
                    };
                    let line = format!("conform {options} {}", trace.display());
                    let wanted = column.line;
                    let agreement = Agreement::parse(&program.run(&line)?, wanted)
                        .ok_or_else(|| format!("blklab {line}: no line `{wanted}N of M`"))?;
                    sum.agree += agreement.agree;
                    sum.of += agreement.of;
                    row.push(agreement.cell());
                }
                table.row(row);
            }
            for (sum, column) in all.iter().zip(&columns) {
                if sum.of > 0 {
                    let (set, heading, cell) = (self.set(), column.heading, sum.cell());
                    made.groups
                        .push(format!("{set} {scheduler} {heading} {cell}"));
                }
            }
        }
        made.text = table.markdown();
        Ok(made)
    }
}

/// Returns the recorded runs of a folder, sorted by name.
fn traces(program: &Program, set: &str, folder: &str) -> Result<Vec<PathBuf>, String> {
    let folder = program.data().join(set).join(folder);
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = (entries.filter_map(Result::ok))
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(".trace.gz"))
        .collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::{Agreement, DECISIONS, LATENCIES};

    #[test]
    fn the_last_line_tells() {
        let text =
            "  latency within 10 %: 1 of 1\nlatency within 10 %: 3 of 4\nagree 17385 of 17386\n";
        let agreement = Agreement::parse(text, DECISIONS).expect("agreement");
        assert_eq!(agreement.cell(), "17385 of 17386 (99.99 %)");
        let latencies = Agreement::parse(text, LATENCIES).expect("latencies");
        assert_eq!(latencies.cell(), "3 of 4 (75.00 %)");
        assert!(Agreement::parse("nothing", DECISIONS).is_none());
    }
}
