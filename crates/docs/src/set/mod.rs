//! Sets of published measurements: how each row becomes a simulation, and which figures
//! are compared.
//!
//! Another set with the same name, files and columns is compared by the same code.

mod bench;
mod cards;
mod disks;
mod fio_sets;
mod folder;
mod iocost;
mod workflows;
mod zoned_writes;

#[cfg(test)]
pub use disks::SERPENTINE;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::part::{PagePart, Table};
use crate::program::Program;
use crate::share::Errors;
use bench::{Bench, Start};
use folder::Folder;

/// A figure of a row, measured and simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The group of similar rows.
    pub group: String,
    /// The row's name.
    pub row: String,
    /// The figure's name, with its unit.
    pub metric: &'static str,
    /// The measured value.
    pub measured: f64,
    /// The simulated value; `None` if no I/O ended.
    pub simulated: Option<f64>,
    /// Whether a parameter was fitted to the row.
    pub is_fitted: bool,
    /// Whether it is predicted for a drive that was left out of all that was fitted.
    pub is_left_out: bool,
}

impl Figure {
    /// Returns the error of the simulation in percent, with its sign. A missing
    /// simulated value counts as zero.
    fn percent(&self) -> f64 {
        (self.simulated.unwrap_or(0.0) / self.measured - 1.0) * 100.0
    }
}

/// A set of measurements.
pub struct Set {
    /// The name of the set's folder.
    pub name: &'static str,
    rows: Rows,
}

/// How the rows of a set are simulated.
enum Rows {
    /// As fio jobs.
    Jobs(fn(&Folder) -> Vec<Bench>),
    /// By code that returns figures.
    Figures(fn(&Folder) -> Vec<Figure>),
    /// By code that makes its own tables.
    Own(fn(&Set, &Folder) -> Result<PagePart, String>),
}

/// All sets. A set of fio rows under several schedulers on one machine is not listed
/// here, because `blklab calibrate` reads it directly.
const ALL: &[Set] = &[
    Set {
        name: "engines-schedulers-optane",
        rows: Rows::Jobs(fio_sets::optane),
    },
    Set {
        name: "iouring-kioxia-cm7",
        rows: Rows::Jobs(fio_sets::kioxia),
    },
    Set {
        name: "nvme-rocket4plus",
        rows: Rows::Jobs(fio_sets::rocket),
    },
    Set {
        name: "hdd-raid-controller",
        rows: Rows::Jobs(fio_sets::raid_controller),
    },
    Set {
        name: "sd-cards",
        rows: Rows::Figures(cards::figures),
    },
    Set {
        name: "disksim-hdds",
        rows: Rows::Own(disks::make),
    },
    Set {
        name: "iocost-models",
        rows: Rows::Figures(iocost::figures),
    },
    Set {
        name: "ssd-write-amplification",
        rows: Rows::Own(zoned_writes::make),
    },
    Set {
        name: "page-cache-workflows",
        rows: Rows::Own(workflows::make),
    },
];

/// Fits keys of a set's descriptions to those of its rows that are meant for it. Returns
/// the old and new values as text.
///
/// # Errors
/// If there is no such set or key.
pub fn fit(name: &str, data: &Path, keys: &str, evaluations: usize) -> Result<String, String> {
    let set = find(name)?;
    let mut text = String::new();
    let Rows::Jobs(benches) = set.rows else {
        return Err(format!(
            "{name}: its rows are no jobs; nothing is fitted to them"
        ));
    };
    for bench in benches(&Folder::new(&data.join(set.name))) {
        text += &bench.fit(keys, evaluations)?;
    }
    Ok(text)
}

fn find(name: &str) -> Result<&'static Set, String> {
    let found = ALL.iter().find(|set| set.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|set| set.name).collect();
        format!(
            "there is no set called {name}; there are {}",
            names.join(", ")
        )
    })
}

/// The names of groups that are predicted without a row of their machine or drive among
/// those that anything was fitted to, or with a few of these, begin so.
const LEFT_OUT: &str = "machine-left-out-";

/// The tables of a set: its groups, and every row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The set's folder.
    set: String,
    /// Its drive and machine are left out, and these fitted to a few rows instead.
    start: Option<Start>,
}

impl Block {
    /// Simulates the set.
    ///
    /// # Errors
    /// If there is no such set, or a row cannot be read or simulated.
    pub fn make(&self, program: &Program) -> Result<PagePart, String> {
        let set = find(&self.set)?;
        match &self.start {
            None => make(set, program.data()),
            Some(start) => leave_out(set, program.data(), start),
        }
    }
}

fn make(set: &Set, data: &Path) -> Result<PagePart, String> {
    let folder = Folder::new(&data.join(set.name));
    let mut made = match set.rows {
        Rows::Jobs(benches) => make_jobs(set, &benches(&folder), &folder)?,
        Rows::Figures(figures) => tables(set, &figures(&folder), &[]),
        Rows::Own(make) => make(set, &folder)?,
    };
    made.add_left_out(set.name, &folder.take_left_out());
    Ok(made)
}

/// The rows of a drive and a machine of a set, predicted from descriptions of others
/// that were fitted to a few of them.
fn leave_out(set: &Set, data: &Path, start: &Start) -> Result<PagePart, String> {
    let Rows::Jobs(benches) = set.rows else {
        return Err(format!("{}: its rows are no jobs", set.name));
    };
    let benches = benches(&Folder::new(&data.join(set.name)));
    let bench = benches.iter().find(|bench| bench.drive == start.instead_of);
    let bench = bench.ok_or_else(|| format!("{}: no rows of {}", set.name, start.instead_of))?;
    let (found, mut figures) = bench.predict(start)?;
    figures.retain(|figure| !figure.is_fitted);
    let mut made = PagePart::default();
    let groups = groups_table(set, LEFT_OUT, &figures, &mut made);
    let head = ["key", "from", "to"];
    let mut moved = Table::new(head.map(String::from).to_vec());
    for (parameter, from, to) in &found.moved {
        moved.row(vec![parameter.name().to_string(), shown(*from), shown(*to)]);
    }
    made.text = format!("{}\n{}", groups.markdown(), moved.markdown());
    Ok(made)
}

fn make_jobs(set: &Set, benches: &[Bench], folder: &Folder) -> Result<PagePart, String> {
    let (mut figures, mut described) = (Vec::new(), Vec::new());
    for bench in benches {
        figures.extend(bench.figures(folder)?);
        for description in bench.descriptions()? {
            if !described.contains(&description) {
                described.push(description);
            }
        }
    }
    Ok(tables(set, &figures, &described))
}

/// Makes a table of the errors of each group, whose names get a prefix, and adds the line
/// of each to a page's summary.
fn groups_table(set: &Set, prefix: &str, figures: &[Figure], made: &mut PagePart) -> Table {
    let head = ["group", "rows", "figure", "median %", "p90 %", "max %"];
    let mut table = Table::new(head.map(String::from).to_vec());
    for ((group, metric), errors) in errors_by_group(figures) {
        let group = format!("{prefix}{group}");
        made.groups.push(errors.line(set.name, &group, metric));
        table.row(errors.cells(group, metric));
    }
    table
}

/// Makes a table of groups, a table of the descriptions' fitted keys, and a table of all
/// rows.
fn tables(set: &Set, figures: &[Figure], described: &[(String, String)]) -> PagePart {
    let mut made = PagePart::default();
    let groups = groups_table(set, "", figures, &mut made);
    let head = [
        "group",
        "row",
        "figure",
        "measured",
        "simulated",
        "%",
        "fitted",
    ];
    let mut rows = Table::new(head.map(String::from).to_vec());
    for figure in figures {
        rows.row(vec![
            figure.group.clone(),
            figure.row.clone(),
            figure.metric.to_string(),
            shown(figure.measured),
            figure.simulated.map_or("none".to_string(), shown),
            format!("{:+.1}", figure.percent()),
            if figure.is_fitted { "yes" } else { "" }.to_string(),
        ]);
    }
    made.text = format!(
        "{}\n{}\nEvery row; \"fitted\" are those that parameters were fitted to:\n\n{}",
        groups.markdown(),
        fitted_keys(described),
        rows.markdown()
    );
    made
}

/// Returns a table of the fitted keys, found by the comments behind their values, with
/// the numbers of the other and of the assumed values.
fn fitted_keys(described: &[(String, String)]) -> String {
    let head = ["description", "key", "value", "from"];
    let mut table = Table::new(head.map(String::from).to_vec());
    let mut rest = String::new();
    for (name, text) in described {
        let (mut section, mut others, mut assumed) = ("", 0, 0);
        for line in text.lines() {
            let (value, why) = line.split_once('#').unwrap_or((line, ""));
            if let Some(heading) = value.trim().strip_prefix('[')
                && !value.contains('=')
            {
                section = heading.trim_end().trim_end_matches(']');
            }
            let Some((key, value)) = value.split_once(" = ") else {
                continue;
            };
            if section == "assumed" {
                continue;
            }
            match why.trim() {
                why if why.starts_with("fitted") => table.row(vec![
                    name.clone(),
                    format!("{section}.{}", key.trim()),
                    value.trim().to_string(),
                    why.to_string(),
                ]),
                why if why.starts_with("assumed") => assumed += 1,
                _ => others += 1,
            }
        }
        rest += &format!(
            "\n{name}: {others} more values have a source or were set with those above, {assumed} are assumed.\n"
        );
    }
    table.markdown() + &rest
}

/// Formats a figure with three significant digits, or without decimals from 100 on.
fn shown(figure: f64) -> String {
    match figure.abs() {
        large if large >= 100.0 => format!("{figure:.0}"),
        middle if middle >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.3}"),
    }
}

/// Returns the errors by group and metric, with groups of all rows and, if any row was
/// fitted to, of the rows with and without fit.
fn errors_by_group(figures: &[Figure]) -> BTreeMap<(String, &'static str), Errors> {
    let mut groups: BTreeMap<(String, &'static str), Errors> = BTreeMap::new();
    let any_fitted = figures.iter().any(|figure| figure.is_fitted);
    for figure in figures {
        let mut names = vec![figure.group.as_str(), "all"];
        if any_fitted {
            names.push(if figure.is_fitted {
                "all-fitted"
            } else {
                "all-not-fitted"
            });
        }
        let mut names: Vec<String> = names.into_iter().map(String::from).collect();
        if figure.is_left_out {
            names.push(format!("{LEFT_OUT}{}", figure.group));
            names.push(format!("{LEFT_OUT}all"));
        }
        for name in names {
            let group = groups.entry((name, figure.metric)).or_default();
            group.add(figure.percent());
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(group: &str, simulated: Option<f64>, is_fitted: bool) -> Figure {
        Figure {
            group: group.to_string(),
            row: "a row".to_string(),
            metric: "IOPS",
            measured: 200.0,
            simulated,
            is_fitted,
            is_left_out: false,
        }
    }

    #[test]
    fn what_was_fitted_is_listed() {
        let text = "[timing]\nread_ns = 5 # fitted, from fio.csv\nwrite_ns = 6 # assumed\n\
                    flush_ns = 7 # data sheet\n[assumed]\n\"timing.write_ns\" = [1, 9]\n";
        let page = fitted_keys(&[("d".to_string(), text.to_string())]);
        assert!(page.contains("| d | timing.read_ns | 5 | fitted, from fio.csv |"));
        assert!(page.contains("d: 1 more values") && page.contains(", 1 are assumed"));
    }

    #[test]
    fn what_was_fitted_is_told_apart() {
        let figures = [
            figure("a", Some(210.0), true),
            figure("a", Some(180.0), false),
            figure("b", None, false),
        ];
        let groups = errors_by_group(&figures);
        let at = |name: &str| groups[&(name.to_string(), "IOPS")].at(1.0);
        assert_eq!(at("all-fitted").round(), 5.0);
        assert_eq!(at("a").round(), 10.0);
        assert_eq!(at("all-not-fitted"), 100.0, "nothing ended");
    }

    #[test]
    fn what_was_left_out_has_its_own_groups() {
        let left_out = Figure {
            is_left_out: true,
            ..figure("a", Some(150.0), false)
        };
        let groups = errors_by_group(&[figure("a", Some(200.0), true), left_out]);
        let rows = |name: &str| groups[&(name.to_string(), "IOPS")].rows();
        assert_eq!((rows("a"), rows("machine-left-out-a")), (2, 1));
        assert_eq!(rows("machine-left-out-all"), 1);
    }
}
