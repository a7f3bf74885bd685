//! `blklab report`: comparisons of whatever worlds in one table and page.

use std::path::Path;

use blklab_report::merge::{self, Part};

use crate::compare::{check_outputs, deliver};
use crate::failure::Failure;
use crate::host_args::ReportArgs;

pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    check_outputs(args.html.as_deref(), args.output.as_deref())?;
    let mut parts = Vec::new();
    for path in &args.files {
        let place = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::mistake(format!("{place}: cannot be read: {error}")))?;
        let comparison = merge::read(&text);
        let comparison =
            comparison.map_err(|problem| Failure::mistake(format!("{place}: {problem}")))?;
        let label = comparison.world.clone();
        parts.push(Part { label, comparison });
    }
    tell_apart(&mut parts, &args.files);
    let output = args.output.as_deref();
    deliver(
        &merge::merge(&parts),
        args.output_format,
        args.html.as_deref(),
        output,
    )
}

/// Two of one world are told apart by their files.
fn tell_apart(parts: &mut [Part], files: &[impl AsRef<Path>]) {
    let mut labels: Vec<&str> = parts.iter().map(|part| part.label.as_str()).collect();
    labels.sort_unstable();
    labels.dedup();
    if labels.len() == parts.len() {
        return;
    }
    for (part, file) in parts.iter_mut().zip(files) {
        let stem = file.as_ref().file_stem().unwrap_or_default();
        part.label = stem.to_string_lossy().into_owned();
    }
}
