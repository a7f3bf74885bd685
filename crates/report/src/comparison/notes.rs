//! Notes that the reader needs beside the figures.

use blklab_stats::{DiskStats, Estimate, JobResults, Results, TooFull, fault_facts};

use super::figure::Metric;
use super::runs::SchedulerRuns;
use super::section::Section;
use super::slowest;
use super::starved;
use crate::quantity::{and_list, latency, short};

/// A note is made if one scheduler's runs take this many times as long as another's.
const TIME_RATIO_MAX: f64 = 1.2;

/// A replay falls behind if it ends this much later than its last I/O was due: as a share of its
/// length, and in nanoseconds, as a disk may take long for one I/O.
const LATE_SHARE_MIN: f64 = 0.1;
const LATE_NS_MIN: f64 = 1e8;

/// A note is made if at least this share of what a drive read holds nothing.
const UNWRITTEN_SHARE_MIN: f64 = 0.1;

/// Returns all notes, each once.
pub(crate) fn notes(schedulers: &[SchedulerRuns]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let all = schedulers.iter().flat_map(|s| &s.runs);
    for note in all.flat_map(|run| &run.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    notes.extend(note_on_pacing(schedulers));
    notes.extend(too_full_notes(schedulers));
    notes.extend(note_on_faults(schedulers));
    notes.extend(unwritten_notes(schedulers));
    notes.extend(note_on_unequal_times(schedulers));
    notes.extend(schedulers.iter().filter_map(note_on_falling_behind));
    notes.extend(schedulers.iter().filter_map(starved::note));
    notes.extend(schedulers.iter().filter_map(starved::note_without_io));
    notes.extend(slowest::note(schedulers));
    notes
}

/// Returns a note on how late requests ended in all runs of each row, where a model was served
/// in real time.
fn note_on_pacing(schedulers: &[SchedulerRuns]) -> Option<String> {
    let late = schedulers.iter().filter_map(|scheduler| {
        let mut runs = scheduler.runs.iter();
        let mut all = runs.find_map(|run| run.pacing_lateness_ns.clone())?;
        let others = runs.filter_map(|run| run.pacing_lateness_ns.as_ref());
        others.for_each(|other| all.merge(other));
        let late = |percent| latency(all.percentile(percent) as f64);
        Some(format!(
            "{} and {} under {}",
            late(50.0),
            late(99.0),
            scheduler.name
        ))
    });
    let late: Vec<String> = late.collect();
    (!late.is_empty()).then(|| {
        format!(
            "pacing: requests ended later than the model said, by (median and 99 %) {}",
            late.join(", ")
        )
    })
}

/// Returns a note on the faults that commands met, where drives have faults.
fn note_on_faults(schedulers: &[SchedulerRuns]) -> Option<String> {
    let runs = schedulers.iter().flat_map(|scheduler| &scheduler.runs);
    let mut disks = runs.clone().flat_map(|run| &run.disks);
    disks.find(|disk| disk.device.faults.is_some())?;
    let met = fault_facts().filter_map(|fact| {
        let count: f64 = runs.clone().filter_map(|run| fact.of(run)).sum();
        (count > 0.0).then(|| format!("{count} {}", fact.label))
    });
    let met: Vec<String> = met.collect();
    Some(match met.is_empty() {
        true => "the drive has faults, and no command met one that is counted".to_string(),
        false => format!(
            "faults of the drive in all runs together: {}",
            and_list(&met)
        ),
    })
}

/// Returns a note on the tables whose 99th percentiles are not judged.
pub(crate) fn note_on_few_ios(sections: &[Section]) -> Option<String> {
    let tables = sections.iter().flat_map(|section| &section.directions);
    let few = tables.filter(|table| !table.several_jobs && !table.can_tell(Metric::P99));
    let few: Vec<String> = few
        .map(|table| format!("{} (at most {} in a run)", table.title(), table.most_ios()))
        .collect();
    (!few.is_empty()).then(|| {
        format!(
            "too few for a 99th percentile, which is not judged: {}",
            and_list(&few)
        )
    })
}

/// Returns a note if an open replay asks for more than the drive does: it then ends long after its
/// last I/O was due, and latencies tell how the queue drains.
fn note_on_falling_behind(scheduler: &SchedulerRuns) -> Option<String> {
    let jobs = scheduler.runs.iter().flat_map(|run| &run.jobs);
    let times = |job: &JobResults| Some((job.last_arrival_ns? as f64, job.lateness_ns()? as f64));
    let (due, late): (Vec<f64>, Vec<f64>) = jobs.filter_map(times).unzip();
    let (due_ns, late_ns) = (Estimate::of(&due).mean, Estimate::of(&late).mean);
    let is_behind = late_ns > due_ns * LATE_SHARE_MIN && late_ns > LATE_NS_MIN;
    // As fast as the drive got through the trace, by two digits.
    let speed = due_ns / (due_ns + late_ns);
    let digits = 10_f64.powf(1.0 - speed.log10().floor());
    let speed = (speed * digits).floor() / digits;
    (!due.is_empty() && is_behind).then(|| {
        format!(
            "{}: the drive falls behind the trace: the last I/O ended {} after it was due, in a \
             trace of {}. Latencies are those of an overload; --speed {speed} replays as slowly \
             as the drive went",
            scheduler.name,
            latency(late_ns),
            latency(due_ns),
        )
    })
}

/// Returns a note if work that ends by itself took much longer under one scheduler than
/// under another, since what runs beside it was measured for as long.
fn note_on_unequal_times(schedulers: &[SchedulerRuns]) -> Option<String> {
    let is_cut = |run: &Results| {
        let finished = |wanted| {
            run.jobs
                .iter()
                .flat_map(|j| &j.processes)
                .any(|p| p.finished == wanted)
        };
        finished(true) && finished(false)
    };
    if !schedulers.iter().flat_map(|s| &s.runs).any(is_cut) {
        return None;
    }
    let mean_s = |s: &SchedulerRuns| {
        let elapsed: Vec<f64> = s
            .runs
            .iter()
            .map(|run| run.elapsed_ns as f64 / 1e9)
            .collect();
        (Estimate::of(&elapsed).mean, s.name.clone())
    };
    let mut took: Vec<(f64, String)> = schedulers.iter().map(mean_s).collect();
    took.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ((least, first), (most, last)) = (took.first()?, took.last()?);
    (most > &(least * TIME_RATIO_MAX)).then(|| {
        format!(
            "runs ended by themselves after {least:.3} s ({first}) to {most:.3} s ({last}): \
             bandwidths and latencies are of unlike times"
        )
    })
}

/// Returns what the reader needs to know of a run's drives.
pub fn drive_notes(run: &Results) -> Vec<String> {
    [too_full(run), unwritten(run)].concat()
}

/// Returns a note for each scheduler under which a drive was too full.
pub(super) fn too_full_notes(schedulers: &[SchedulerRuns]) -> Vec<String> {
    let of = |scheduler: &SchedulerRuns| {
        let said = scheduler.runs.iter().map(too_full).find(|s| !s.is_empty());
        let name = scheduler.name.clone();
        let said = said.unwrap_or_default().into_iter();
        said.map(move |sentence| format!("{name}: {sentence}"))
    };
    schedulers.iter().flat_map(of).collect()
}

/// Returns a sentence on each drive of a run that refused writes for lack of space:
/// since when, why, and what would help.
fn too_full(run: &Results) -> Vec<String> {
    let sentence =
        |disk: &DiskStats| Some(too_full_sentence(disk, &run.drive, disk.device.too_full?));
    run.disks.iter().filter_map(sentence).collect()
}

fn too_full_sentence(disk: &DiskStats, drive: &str, found: TooFull) -> String {
    let TooFull {
        writes,
        first_ns,
        plane,
        data_blocks,
        block_sectors,
        valid_sectors,
        spare_blocks,
    } = found;
    let megabytes = |sectors: u64| format!("{} MB", short(sectors as f64 * 512.0 / 1e6));
    let blocks = |blocks: u32| megabytes(blocks as u64 * block_sectors);
    format!(
        "{} ({drive}) has too little over-provisioning for what was written to it: from {} into \
         the run on {writes} writes ended with \"No space left on device\". Plane {plane} then \
         held {} of valid data in {data_blocks} blocks of {} together, of which collection \
         needs {spare_blocks} ({}) for itself. Raise geometry.blocks_per_plane, lower \
         host.capacity_bytes, or write to less of it",
        disk.name,
        latency(first_ns as f64),
        megabytes(valid_sectors),
        blocks(data_blocks),
        blocks(spare_blocks),
    )
}

/// Returns a sentence on each drive of a run of which much that was read holds nothing: an SSD
/// answers such reads without its flash, faster than it would read data.
fn unwritten(run: &Results) -> Vec<String> {
    let disks = run.disks.iter();
    disks
        .filter_map(|disk| sentence_on_unwritten(disk, &run.drive))
        .collect()
}

/// Returns the same of the first run that has any; others differ by a little.
fn unwritten_notes(schedulers: &[SchedulerRuns]) -> Vec<String> {
    let runs = schedulers.iter().flat_map(|s| &s.runs);
    let found = runs.map(unwritten).find(|sentences| !sentences.is_empty());
    found.unwrap_or_default()
}

fn sentence_on_unwritten(disk: &DiskStats, drive: &str) -> Option<String> {
    let empty = disk.device.sectors_read_unwritten as f64;
    // The queue's count leaves out what is still in flight.
    let share = (empty / disk.queue.sectors[0].max(1) as f64).min(1.0);
    (share >= UNWRITTEN_SHARE_MIN).then(|| {
        format!(
            "{} ({drive}): {} % of what was read holds nothing (never written, or discarded), \
             which the drive answers with zeroes and without its flash; where it starts fresh, \
             --state filled has it hold data",
            disk.name,
            short(share * 100.0),
        )
    })
}
