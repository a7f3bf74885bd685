//! Tables of the agreement with recorded kernels.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::part::{PagePart, Table};
use crate::program::Program;
use crate::share::Errors;

/// A table with a row for each recorded run of a set, whatever folders they are in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// What is compared.
    compared: Compared,
}

/// What recorded runs are compared with, each with a set of its own.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Compared {
    /// The schedulers, alone and in the whole block layer.
    BlockLayer,
    /// Readahead, write-back and eviction, in a folder each.
    PageCache,
    /// The MMC stack.
    Mmc,
}

/// The beginnings of the lines of `conform` that count: decisions, and latencies of requests.
const DECISIONS: &str = "agree ";
const LATENCIES: &str = "latency within 10 %: ";

/// A column of a run.
struct Column {
    /// The options of `conform`; `None` if there is nothing to compare.
    options: Option<String>,
    /// The line that counts.
    line: &'static str,
}

/// A recorded run.
struct Run {
    /// The folder within the set; empty if it has none.
    folder: String,
    name: String,
    trace: PathBuf,
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

/// The agreement of a folder's runs in one column.
#[derive(Default)]
struct OfFolder {
    sum: Agreement,
    /// The shares of each run that do not agree.
    errors: Errors,
}

impl OfFolder {
    fn add(&mut self, run: Agreement) {
        self.sum.agree += run.agree;
        self.sum.of += run.of;
        self.errors.add(100.0 - run.percent());
    }
}

impl Compared {
    fn set(self) -> &'static str {
        match self {
            Compared::BlockLayer => "kernel-traces",
            Compared::PageCache => "page-cache-traces",
            Compared::Mmc => "mmc-traces",
        }
    }

    /// The columns of a run.
    ///
    /// # Errors
    /// If it is not known what to compare it with.
    fn columns(self, run: &Run) -> Result<Vec<Column>, String> {
        let column = |line, options| Column { options, line };
        let decisions = |option: &str| vec![column(DECISIONS, Some(option.to_string()))];
        match self {
            Compared::BlockLayer => {
                let scheduler = scheduler_of(run)?;
                let alone = (scheduler != "none").then(|| format!("--scheduler {scheduler}"));
                let whole = Some(format!("--whole --scheduler {scheduler}"));
                Ok(vec![
                    column(DECISIONS, alone),
                    column(DECISIONS, whole.clone()),
                    column(LATENCIES, whole),
                ])
            }
            Compared::PageCache => match run.folder.as_str() {
                known @ ("page-cache" | "write-back" | "eviction" | "mmc") => {
                    Ok(decisions(&format!("--{known}")))
                }
                other => Err(format!("no comparison is called {other}")),
            },
            Compared::Mmc => Ok(decisions("--mmc")),
        }
    }

    /// What the columns say.
    fn headings(self) -> &'static [&'static str] {
        match self {
            Compared::BlockLayer => &["scheduler alone", "whole layer", "latency within 10 %"],
            Compared::PageCache | Compared::Mmc => &["agree"],
        }
    }
}

/// The scheduler of a run, which the file beside its trace names.
fn scheduler_of(run: &Run) -> Result<String, String> {
    #[derive(Deserialize)]
    struct About {
        scheduler: String,
    }
    let path = run.trace.with_file_name(format!("{}.json", run.name));
    let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let about: About =
        serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(about.scheduler)
}

impl Block {
    /// Compares the simulation with each run. Runs that cannot be read are left out.
    ///
    /// # Errors
    /// If the set cannot be read.
    pub fn make(&self, program: &Program) -> Result<PagePart, String> {
        let set = self.compared.set();
        let headings = self.compared.headings();
        let head = ["run"].iter().chain(headings);
        let mut table = Table::new(head.map(ToString::to_string).collect());
        let mut folders: BTreeMap<(String, usize), OfFolder> = BTreeMap::new();
        let mut left_out = Vec::new();
        for run in runs(&program.data().join(set))? {
            let name = match run.folder.as_str() {
                "" => run.name.clone(),
                folder => format!("{folder}/{}", run.name),
            };
            match self.agreements(program, &run) {
                Ok(agreements) => {
                    let mut row = vec![name];
                    for (at, agreement) in agreements.into_iter().enumerate() {
                        row.push(agreement.map_or("-".to_string(), Agreement::cell));
                        if let Some(agreement) = agreement {
                            let key = (run.folder.clone(), at);
                            folders.entry(key).or_default().add(agreement);
                        }
                    }
                    table.row(row);
                }
                Err(why) => left_out.push(format!("{name}: {why}")),
            }
        }
        let mut made = PagePart {
            text: table.markdown(),
            ..PagePart::default()
        };
        for ((folder, at), of) in &folders {
            let group = if folder.is_empty() { "all" } else { folder };
            let (heading, cell) = (headings[*at], of.sum.cell());
            made.groups.push(format!("{set} {group} {heading} {cell}"));
            let metric = match headings.len() {
                1 => "differing".to_string(),
                _ => format!("differing ({heading})"),
            };
            made.groups.push(of.errors.line(set, group, &metric));
        }
        made.add_left_out(set, &left_out);
        Ok(made)
    }

    /// The agreement of a run in each column; `None` where there is nothing to compare.
    fn agreements(&self, program: &Program, run: &Run) -> Result<Vec<Option<Agreement>>, String> {
        let mut printed: BTreeMap<String, String> = BTreeMap::new();
        let mut agreements = Vec::new();
        for column in self.compared.columns(run)? {
            let Some(options) = column.options else {
                agreements.push(None);
                continue;
            };
            let line = format!("conform {options} {}", run.trace.display());
            let text = match printed.get(&line) {
                Some(text) => text,
                None => {
                    let text = program.run(&line)?;
                    printed.entry(line.clone()).or_insert(text)
                }
            };
            let agreement = Agreement::parse(text, column.line)
                .ok_or_else(|| format!("blklab {line}: no line `{}N of M`", column.line))?;
            agreements.push(Some(agreement));
        }
        Ok(agreements)
    }
}

/// Returns the recorded runs in a set's folder and in the folders within, sorted by name.
fn runs(set: &Path) -> Result<Vec<Run>, String> {
    let mut folders = vec![(String::new(), set.to_path_buf())];
    for path in entries(set)? {
        if path.is_dir() {
            folders.push((name_of(&path), path));
        }
    }
    let mut runs = Vec::new();
    for (folder, path) in folders {
        for trace in entries(&path)? {
            if let Some(name) = name_of(&trace).strip_suffix(".trace.gz") {
                runs.push(Run {
                    folder: folder.clone(),
                    name: name.to_string(),
                    trace,
                });
            }
        }
    }
    Ok(runs)
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Returns what is in a folder, sorted by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::{Agreement, DECISIONS, LATENCIES, runs};

    #[test]
    fn runs_are_found_in_any_folder_of_a_set() {
        let set = tempfile::tempdir().expect("a folder");
        let write = |name: &str| std::fs::write(set.path().join(name), "").expect("a file");
        std::fs::create_dir(set.path().join("io.max")).expect("a folder");
        [
            "io.max/b.trace.gz",
            "io.max/a.trace.gz",
            "io.max/a.json",
            "x.trace.gz",
            "README.md",
        ]
        .iter()
        .for_each(|name| write(name));
        let runs = runs(set.path()).expect("runs");
        let found: Vec<_> = runs
            .iter()
            .map(|run| (run.folder.as_str(), run.name.as_str()))
            .collect();
        assert_eq!(found, [("", "x"), ("io.max", "a"), ("io.max", "b")]);
    }

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
