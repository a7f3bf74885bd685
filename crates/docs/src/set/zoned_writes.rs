//! Write amplification of a drive where a few zones at a time are written to their ends.
//!
//! Writing hundreds of gigabytes four times takes hours, in a simulation as well.
//! Amplification depends only on the ratios between zones, erase units and spare flash,
//! so a drive of 1 / [`SCALE`] of the size in every respect is written instead.

use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, Device, registry};

use super::Set;
use super::folder::{Folder, Record};
use crate::part::{PagePart, Table};
use crate::share::Errors;

const DRIVE: &str = "micron-7450-max";

/// Factor by which the simulated drive is smaller: it has two of the drive's 128 planes.
const SCALE: u64 = 64;

/// Length of a write in sectors: a page of flash.
const WRITE_SECTORS: u64 = 32;

/// Flash writes of each sector of data, including the drive's own (its map, its
/// journal): measured with one open zone of 8 GiB, where no data is moved.
const OWN_WRITES: f64 = 1.032;

/// Largest error that is counted as agreement.
const GOAL: f64 = 0.05;

/// A measured run.
struct Run {
    name: String,
    open_zones: u64,
    zone_gib: f64,
    measured: [f64; 2],
    is_fitted: bool,
}

/// Simulates the runs.
pub fn make(set: &Set, folder: &Folder) -> Result<PagePart, String> {
    let runs = folder.each("wa_runs.csv", |record| {
        let run = run_of(record)?;
        let simulated = amplification(&run).map_err(|why| record.problem(&why))?;
        Ok(Some((run, simulated)))
    });
    let head = [
        "run",
        "open zones",
        "zone GiB",
        "figure",
        "measured",
        "simulated",
        "off by",
        "fitted",
    ];
    let mut table = Table::new(head.map(String::from).to_vec());
    let (mut all, mut errors) = (Errors::default(), [Errors::default(), Errors::default()]);
    let (mut rows, mut near) = (0, 0);
    for (run, simulated) in &runs {
        let figures = ["whole run", "second half"]
            .into_iter()
            .zip(run.measured)
            .zip(*simulated);
        for ((figure, measured), simulated) in figures {
            let off = simulated - measured;
            for errors in [&mut all, &mut errors[usize::from(!run.is_fitted)]] {
                errors.add((simulated / measured - 1.0) * 100.0);
            }
            rows += 1;
            near += u32::from(off.abs() <= GOAL);
            table.row(vec![
                run.name.clone(),
                run.open_zones.to_string(),
                run.zone_gib.to_string(),
                figure.to_string(),
                format!("{measured:.3}"),
                format!("{simulated:.3}"),
                format!("{off:+.3}"),
                if run.is_fitted { "yes" } else { "" }.to_string(),
            ]);
        }
    }
    let mut made = PagePart {
        text: table.markdown(),
        groups: vec![format!(
            "{} all rows {rows} WA within {GOAL} {near}",
            set.name
        )],
    };
    let [fitted, others] = &errors;
    for (errors, group) in [
        (&all, "all"),
        (fitted, "all-fitted"),
        (others, "all-not-fitted"),
    ] {
        if errors.rows() > 0 {
            made.groups.push(errors.line(set.name, group, "WA"));
        }
    }
    Ok(made)
}

fn run_of(record: &Record) -> Result<Run, String> {
    let open_zones = record.number("active_zones")?;
    let zone_gib: f64 = record.number("zone_gib")?;
    let name = record.text("run")?.to_string();
    // Spare flash and erase unit are fitted to two runs, the drive's own writes to one.
    let is_fitted = matches!(
        name.as_str(),
        "zone-size-7" | "active-zones-1" | "active-zones-5"
    );
    Ok(Run {
        measured: [record.number("wa_whole")?, record.number("wa_second_half")?],
        name,
        open_zones,
        zone_gib,
        is_fitted,
    })
}

/// Returns the flash writes for each sector of the host: over the whole run, and over
/// its second half.
fn amplification(run: &Run) -> Result<[f64; 2], String> {
    let (full, _) = registry::load(DRIVE)?;
    let sectors = full.identity().capacity_sectors / SCALE / WRITE_SECTORS * WRITE_SECTORS;
    let values = [
        ("host.capacity_bytes", sectors * 512),
        ("geometry.channels", 1),
        ("geometry.packages_per_channel", 1),
        ("geometry.planes_per_die", 2),
        ("write_cache.size_kb", 1024),
    ];
    let values = values.map(|(key, value)| (key.to_string(), value.to_string()));
    let (spec, _) = registry::load_with(DRIVE, &values)?;
    let mut drive = spec.build(1);
    let zone_bytes = run.zone_gib * f64::from(1 << 30) / SCALE as f64;
    let writes_each = (zone_bytes / (WRITE_SECTORS * 512) as f64) as u64;
    let mut zones = Zones::new(run.open_zones, writes_each, sectors / WRITE_SECTORS)?;
    let writes = sectors / WRITE_SECTORS * 4;
    let mut now = write(drive.as_mut(), Nanos::ZERO, writes / 2, &mut zones);
    let half = drive.stats(now);
    now = write(drive.as_mut(), now, writes - writes / 2, &mut zones);
    let whole = drive.stats(now);
    let ratio = |flash: u64, host: u64| flash as f64 / host as f64 * OWN_WRITES;
    let host = writes * WRITE_SECTORS;
    Ok([
        ratio(whole.flash_sectors_programmed, host),
        ratio(
            whole.flash_sectors_programmed - half.flash_sectors_programmed,
            host - host / 2,
        ),
    ])
}

/// Writes one after the other. Returns the time of the last completion.
fn write(drive: &mut dyn Device, mut now: Nanos, writes: u64, zones: &mut Zones) -> Nanos {
    let mut done = Vec::new();
    for _ in 0..writes {
        done.clear();
        let command = Command {
            tag: 0,
            queue: 0,
            op: Op::Write,
            sector: Sector(zones.next() * WRITE_SECTORS),
            sectors: WRITE_SECTORS as u32,
            fua: false,
        };
        drive.submit(now, command);
        now = drive.advance_to_completion(Nanos::MAX, &mut done);
    }
    now
}

/// Zones that are written to their ends, where each write goes to a random open zone.
struct Zones {
    writes_each: u64,
    /// The open zones, with the number of writes to each.
    open: Vec<(u64, u64)>,
    closed: Vec<u64>,
    random: u64,
}

impl Zones {
    fn new(open: u64, writes_each: u64, all_writes: u64) -> Result<Zones, String> {
        let zones = all_writes.checked_div(writes_each).unwrap_or(0);
        if open == 0 || zones <= open {
            return Err(format!(
                "{open} open zones: legal is 1 to below the {zones} zones that the drive has"
            ));
        }
        let mut zones = Zones {
            writes_each,
            open: Vec::new(),
            closed: (0..zones).collect(),
            random: 0x9e37_79b9_7f4a_7c15,
        };
        for _ in 0..open {
            let zone = zones.draw_closed();
            zones.open.push((zone, 0));
        }
        Ok(zones)
    }

    /// Returns a number below `bound`, by xorshift (Marsaglia, Journal of Statistical
    /// Software 8, 2003).
    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (((self.random >> 32) * bound as u64) >> 32) as usize
    }

    fn draw_closed(&mut self) -> u64 {
        let at = self.below(self.closed.len());
        self.closed.swap_remove(at)
    }

    /// Returns the place of the next write, in writes from the start of the drive.
    fn next(&mut self) -> u64 {
        let at = self.below(self.open.len());
        let (zone, written) = self.open[at];
        self.open[at].1 += 1;
        if written + 1 == self.writes_each {
            self.open[at] = (self.draw_closed(), 0);
            self.closed.push(zone);
        }
        zone * self.writes_each + written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_zone_is_written_from_its_start_to_its_end() {
        let mut zones = Zones::new(2, 3, 12).expect("four zones");
        let mut next = std::collections::BTreeMap::new();
        for _ in 0..60 {
            let at = zones.next();
            let (zone, offset) = (at / 3, at % 3);
            let due = next.entry(zone).or_insert(0);
            assert_eq!(offset, *due);
            *due = (*due + 1) % 3;
            let open = next.values().filter(|due| **due > 0).count();
            assert!(open <= 2);
        }
        assert!(Zones::new(4, 3, 12).is_err());
    }
}
