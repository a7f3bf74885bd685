//! Holds the device model and the MMC stack against a recorded kernel.
//!
//! Given are the card's registers and size, the controller, the partition table,
//! which requests the block layer issued and in which order they were looked at when
//! they had run, and the moments at which the driver was taken from the controller
//! and given back. Compared is every step of the core and the host driver with all
//! its arguments and answers (`mmc_request_start` and the rest), the files of card,
//! host, disk and queue in sysfs and debugfs, and every uevent.
//!
//! Not compared: tags, which the block layer gives, and times.

mod attributes;
mod card;
mod recorded;
mod replay;

use std::path::{Path, PathBuf};

use blklab_workload::trace::read_text;

use crate::recording::beside;
use crate::report::{Report, TraceReport};
use crate::{ConformError, Difference, Mode};
use recorded::{Description, Recorded, Steps};

/// A step before a card was added.
const IDENTIFICATION: &str = "identification";
/// Any later step.
const BLOCK_IO: &str = "block I/O";
/// A file of sysfs or debugfs.
const ATTRIBUTE: &str = "attribute";
/// A message to user space.
const UEVENT: &str = "uevent";

/// Compares each recorded run.
///
/// # Errors
/// Where a trace or its description cannot be read.
pub fn mmc(traces: &[PathBuf]) -> Result<Report, ConformError> {
    Report::of_each(Mode::Mmc, "", traces, compare)
}

/// Whether cards were identified and shown as the kernel's without exception, and 99 % of
/// what was sent to them and came back afterwards is the kernel's.
pub(crate) fn agrees(report: &Report) -> bool {
    let whole = [IDENTIFICATION, ATTRIBUTE, UEVENT];
    let all = whole.iter().all(|kind| report.has_all_of(kind));
    report.compared() > 0 && all && report.share(BLOCK_IO) >= 99.0
}

fn compare(path: &Path) -> Result<TraceReport, ConformError> {
    let file = path.display().to_string();
    let described = beside(path, ".json");
    let description = Description::open(&described)?;
    let steps = Steps::read(&file, &read_text(path)?)?;
    let ours = replay::replay(&described, &description, &steps)?;
    let mut report = TraceReport::new(file);
    if let Some(option) = description.unknown_option() {
        report.notes.push(format!("{option}: not modelled"));
    }
    compare_steps(&mut report, &steps.compared, &ours.steps);
    for (name, kernel) in description.attributes() {
        let shown = ours.attributes.get(&name).map_or("nothing", String::as_str);
        report.count(ATTRIBUTE, kernel == shown, || Difference {
            line: 0,
            at_ns: 0,
            kind: ATTRIBUTE,
            kernel: kernel.clone(),
            ours: shown.to_owned(),
            state: vec![name.clone()],
        });
    }
    let kernel: Vec<Recorded> = description.uevents();
    compare_sequence(&mut report, &kernel, &ours.uevents, |_| UEVENT);
    Ok(report)
}

/// Steps are of identification from each look for a card until one is added.
fn compare_steps(report: &mut TraceReport, kernel: &[Recorded], ours: &[String]) {
    let mut identifies = false;
    let kinds: Vec<&'static str> = { kernel.iter() }
        .map(|step| {
            identifies |= step.text.starts_with("mmc_rescan");
            let kind = if identifies { IDENTIFICATION } else { BLOCK_IO };
            identifies &= !step.text.starts_with("mmc_add_card");
            kind
        })
        .collect();
    compare_sequence(report, kernel, ours, |at| {
        let last = kinds.len().checked_sub(1);
        last.map_or(IDENTIFICATION, |last| kinds[at.min(last)])
    });
}

/// Counts what both sides have, in the longest common order, and what only one has.
fn compare_sequence(
    report: &mut TraceReport,
    kernel: &[Recorded],
    ours: &[String],
    kind_at: impl Fn(usize) -> &'static str,
) {
    let nothing = || "nothing".to_owned();
    report.count_in_order(
        (kernel.len(), ours.len()),
        |k, o| kernel[k].text == ours[o],
        |pair| kind_at(pair.at),
        |pair, kind| {
            let theirs = pair.kernel.map(|at| &kernel[at]);
            Difference {
                line: theirs.map_or(0, |recorded| recorded.line),
                at_ns: theirs.map_or(0, |recorded| recorded.at_ns),
                kind,
                kernel: theirs.map_or_else(nothing, |recorded| recorded.text.clone()),
                ours: pair.ours.map_or_else(nothing, |at| ours[at].clone()),
                state: Vec::new(),
            }
        },
    );
}
