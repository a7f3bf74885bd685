//! `blklab report`: comparisons from any worlds in one table and page.

use std::path::{Path, PathBuf};

use blklab_description::read_text;
use blklab_report::merge::{self, WorldComparison};

use crate::args::ReportArgs;
use crate::compared::deliver_text;
use crate::failure::Failure;
use crate::output;

pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let inputs: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
    let outputs = [
        ("--html", args.html.as_deref()),
        ("--output", args.output.as_deref()),
    ];
    output::check(&outputs, &inputs)?;
    let mut parts = Vec::new();
    for path in &args.files {
        let place = path.display();
        let text = read_text(path)
            .map_err(|error| Failure::mistake(format!("{place}: cannot be read: {error}")))?;
        let comparison = merge::read(&text);
        let comparison =
            comparison.map_err(|problem| Failure::mistake(format!("{place}: {problem}")))?;
        let label = comparison.world.clone();
        parts.push(WorldComparison { label, comparison });
    }
    make_labels_distinct(&mut parts, &args.files);
    let output = args.output.as_deref();
    deliver_text(
        &merge::merge(&parts),
        &args.shown,
        args.html.as_deref(),
        output,
    )
}

/// Replaces equal labels by the files' names.
fn make_labels_distinct(parts: &mut [WorldComparison], files: &[impl AsRef<Path>]) {
    let mut labels: Vec<&str> = parts.iter().map(|part| part.label.as_str()).collect();
    labels.sort_unstable();
    labels.dedup();
    if labels.len() == parts.len() {
        return;
    }
    let files: Vec<&Path> = files.iter().map(AsRef::as_ref).collect();
    for (part, label) in parts.iter_mut().zip(labels_of(&files)) {
        part.label = label;
    }
}

/// Returns for each file the shortest end of its path that tells the files apart; a
/// number is appended if a file is named twice.
fn labels_of(files: &[&Path]) -> Vec<String> {
    let longest = files.iter().map(|file| file.components().count());
    let longest = longest.max().unwrap_or(0);
    let ends = |names: usize| -> Vec<String> {
        let ends = files.iter().map(|file| path_end(file, names));
        ends.collect()
    };
    let distinct =
        |labels: &Vec<String>| (1..labels.len()).all(|at| !labels[..at].contains(&labels[at]));
    if let Some(labels) = (1..=longest).map(ends).find(distinct) {
        return labels;
    }
    let whole = ends(longest);
    let mut labels: Vec<String> = Vec::new();
    for label in &whole {
        let numbered = (2..).map(|number| format!("{label} {number}"));
        let free = std::iter::once(label.clone())
            .chain(numbered)
            .find(|label| !labels.contains(label));
        labels.extend(free);
    }
    labels
}

/// Returns the last components of a path, without the file's extension.
fn path_end(file: &Path, names: usize) -> String {
    let bare = file.with_extension("");
    let count = bare.components().count();
    let end = bare.components().skip(count.saturating_sub(names));
    end.collect::<PathBuf>().display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(files: &[&str]) -> Vec<String> {
        let files: Vec<&Path> = files.iter().map(Path::new).collect();
        labels_of(&files)
    }

    #[test]
    fn files_are_told_apart_by_as_little_as_does() {
        assert_eq!(labels(&["p/a.json", "q/b.json"]), ["a", "b"]);
        assert_eq!(labels(&["p/c.json", "q/c.json"]), ["p/c", "q/c"]);
        assert_eq!(
            labels(&["x/p/c.json", "y/p/c.json", "c.json"]),
            ["x/p/c", "y/p/c", "c"]
        );
        assert_eq!(labels(&["c.json", "c.json", "d.json"]), ["c", "c 2", "d"]);
        assert_eq!(labels(&["c.json", "c.txt"]), ["c", "c 2"]);
    }
}
