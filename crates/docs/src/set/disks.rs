//! Disks of the 1990s: each is built from its facts, and executes the requests of its
//! trace one at a time, with the idle times between them.

use std::fmt::Write as _;

use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, Device, DriveSpec};

use super::Set;
use super::folder::{Folder, Record};
use crate::part::{PagePart, Table};
use crate::share::Errors;

/// Host buses of disks whose facts have no bus: milliseconds for each block, and the
/// share of a transfer that the disk's buffer holds when its other side begins. From
/// DiskSim's descriptions of the machines on which the disks were measured.
const HOST_BUSES: [(&str, f64, f64); 4] = [
    ("hp_c2247a", 0.1701, 0.75),
    ("hp_c2490a", 0.14841, 0.0),
    ("hp_c3323a", 0.1455, 1.0),
    ("dec_rz26", 0.07069, 0.0),
];

/// The codes of the facts that are used here.
const TO_TRACK_END: u32 = 1;
const TO_NEXT_TRACK_END: u32 = 4;
const SPARES_IN_ZONE: u32 = 1;
const SPARES_ON_TRACK: u32 = 3;
const SPARES_IN_RANGE: u32 = 8;

/// A request of a trace.
struct Request {
    op: Op,
    block: u64,
    blocks: u32,
    response_ms: f64,
    gap_ms: f64,
}

/// The layouts of all disks, in several tables.
struct Layouts {
    zones: Vec<Record>,
    slips: Vec<Record>,
    seeks: Vec<Record>,
}

/// A disk's response times in milliseconds, in the order of its requests.
struct Played {
    name: String,
    measured_ms: Vec<f64>,
    simulated_ms: Vec<f64>,
    /// The root mean square that DiskSim states for itself.
    stated_ms: f64,
}

/// Simulates the disks that have traces.
pub fn make(set: &Set, folder: &Folder) -> Result<PagePart, String> {
    let layouts = Layouts {
        zones: folder.records_if_any("zones.csv"),
        slips: folder.records_if_any("slips.csv"),
        seeks: folder.records_if_any("seeks.csv"),
    };
    let traces = folder.records_if_any("traces.csv.gz");
    let disks = folder.each("facts.csv", |fact| {
        let played = play_disk(fact, &layouts, &traces);
        played.map_err(|why| fact.problem(&why))
    });
    let head = [
        "disk",
        "requests",
        "measured ms",
        "simulated ms",
        "RMS ms",
        "DiskSim's RMS ms",
        "single requests within 10 %",
    ];
    let mut table = Table::new(head.map(String::from).to_vec());
    let mut quantiles = Quantiles::new();
    let mut made = PagePart::default();
    for disk in &disks {
        add_disk(set, disk, (&mut table, &mut quantiles), &mut made);
    }
    made.text = format!(
        "{}\nQuantiles of the response time in ms, measured / simulated:\n\n{}",
        table.markdown(),
        quantiles.table.markdown()
    );
    Ok(made)
}

/// Executes a disk's trace; `None` if it has none.
fn play_disk(
    fact: &Record,
    layouts: &Layouts,
    traces: &[Record],
) -> Result<Option<Played>, String> {
    let name = fact.text("disk")?;
    let requests = requests_of(traces, name)?;
    if requests.is_empty() {
        return Ok(None);
    }
    let text = describe(
        fact,
        &of_disk(&layouts.zones, name)?,
        &of_disk(&layouts.slips, name)?,
        &of_disk(&layouts.seeks, name)?,
    )?;
    let spec = DriveSpec::parse(name, &text).map_err(|e| e.to_string())?;
    Ok(Some(Played {
        name: name.to_string(),
        measured_ms: requests.iter().map(|one| one.response_ms).collect(),
        simulated_ms: play(spec.build(1).as_mut(), &requests),
        stated_ms: fact.number("disksim_rms_ms")?,
    }))
}

fn add_disk(
    set: &Set,
    disk: &Played,
    (table, quantiles): (&mut Table, &mut Quantiles),
    made: &mut PagePart,
) {
    let near = near(&disk.measured_ms, &disk.simulated_ms);
    let measured = sorted(disk.measured_ms.clone());
    let simulated = sorted(disk.simulated_ms.clone());
    let rms_ms = rms(&measured, &simulated);
    let mut errors = Errors::default();
    for (measured, simulated) in measured.iter().zip(&simulated) {
        errors.add((simulated / measured - 1.0) * 100.0);
    }
    let (name, stated_ms) = (&disk.name, disk.stated_ms);
    made.groups.push(errors.line(set.name, name, "quantile"));
    made.groups.push(format!(
        "{} {name} rows {} RMS {rms_ms:.3} ms, as DiskSim states it {stated_ms:.3} ms",
        set.name,
        measured.len()
    ));
    table.row(vec![
        name.clone(),
        measured.len().to_string(),
        format!("{:.2}", mean(&measured)),
        format!("{:.2}", mean(&simulated)),
        format!("{rms_ms:.3}"),
        format!("{stated_ms:.3}"),
        format!("{near:.0} %"),
    ]);
    quantiles.add(name, &measured, &simulated);
}

/// A table of quantiles.
struct Quantiles {
    table: Table,
}

impl Quantiles {
    const SHARES: [f64; 7] = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99];

    fn new() -> Quantiles {
        let shares = Quantiles::SHARES.map(|share| format!("{:.0} %", share * 100.0));
        let head = ["disk".to_string()].into_iter().chain(shares);
        Quantiles {
            table: Table::new(head.collect()),
        }
    }

    fn add(&mut self, name: &str, measured: &[f64], simulated: &[f64]) {
        let at = |times: &[f64], share: f64| times[(times.len() as f64 * share) as usize];
        let both = Quantiles::SHARES
            .map(|share| format!("{:.2} / {:.2}", at(measured, share), at(simulated, share)));
        let cells = [name.to_string()].into_iter().chain(both);
        self.table.row(cells.collect());
    }
}

/// Returns the records of a disk.
fn of_disk<'a>(records: &'a [Record], disk: &str) -> Result<Vec<&'a Record>, String> {
    let mut found = Vec::new();
    for record in records {
        if record.text("disk")? == disk {
            found.push(record);
        }
    }
    Ok(found)
}

fn requests_of(traces: &[Record], disk: &str) -> Result<Vec<Request>, String> {
    let mut requests = Vec::new();
    for record in of_disk(traces, disk)? {
        requests.push(Request {
            op: match record.text("op")? {
                "R" => Op::Read,
                _ => Op::Write,
            },
            block: record.number("block")?,
            blocks: record.number("blocks")?,
            response_ms: record.number("response_ms")?,
            gap_ms: record.number("gap_ms")?,
        });
    }
    Ok(requests)
}

/// Executes the requests, each after the end of the one before and its idle time.
/// Returns the response times in milliseconds.
fn play(disk: &mut dyn Device, requests: &[Request]) -> Vec<f64> {
    let (mut now, mut done) = (Nanos::ZERO, Vec::new());
    let one = |request: &Request| {
        done.clear();
        let command = Command {
            tag: 0,
            queue: 0,
            op: request.op,
            sector: Sector(request.block),
            sectors: request.blocks,
            fua: false,
        };
        disk.submit(now, command);
        let ended = disk.advance_to_completion(Nanos::MAX, &mut done);
        let took_ms = (ended.0 - now.0) as f64 / 1e6;
        let next = Nanos(ended.0 + (request.gap_ms * 1e6) as u64);
        // The disk's work in its idle time comes before the next request.
        disk.advance(next, &mut done);
        now = next;
        took_ms
    };
    requests.iter().map(one).collect()
}

fn sorted(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_by(f64::total_cmp);
    times
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// Returns the root mean square of the horizontal distance between two distributions.
fn rms(one: &[f64], other: &[f64]) -> f64 {
    let squares = one.iter().zip(other).map(|(a, b)| (a - b).powi(2));
    (squares.sum::<f64>() / one.len() as f64).sqrt()
}

/// Returns the percentage of requests whose simulated time is within 10 % of the
/// measured one.
fn near(measured: &[f64], simulated: &[f64]) -> f64 {
    let pairs = measured.iter().zip(simulated);
    let near = pairs.filter(|(measured, simulated)| (*simulated / *measured - 1.0).abs() <= 0.1);
    near.count() as f64 / measured.len() as f64 * 100.0
}

/// A key of mechanics that only these disks set.
pub const SERPENTINE: &str = "serpentine";

/// Returns a disk's description, made only from its facts.
fn describe(
    fact: &Record,
    zones: &[&Record],
    slips: &[&Record],
    seeks: &[&Record],
) -> Result<String, String> {
    let layout = Layout::new(fact, zones, slips)?;
    let head = format!(
        "description = {:?}\ninterface = \"ahci\"\nmodel = \"hdd\"\n\
         [host]\ncapacity_bytes = {}\nphysical_block_bytes = 512\nqueue_depth = 1\n",
        fact.text("model")?,
        layout.sectors * 512
    );
    let tables = [
        head,
        link(fact)?,
        overheads(fact)?,
        mechanics(fact, zones, (&layout, seeks))?,
        cache(fact)?,
    ];
    Ok(tables.concat())
}

/// Returns a fact in milliseconds as microseconds.
fn us(fact: &Record, column: &str) -> Result<f64, String> {
    Ok(fact.number::<f64>(column)? * 1e3)
}

/// Returns whether a disk reports writes that are in its buffer as done.
fn writes_back(fact: &Record) -> Result<bool, String> {
    Ok(fact.number::<u32>("fast_write_level")? > 0)
}

fn link(fact: &Record) -> Result<String, String> {
    let name = fact.text("disk")?;
    let own_ms: f64 = fact.number("bus_ms_per_block")?;
    let host = HOST_BUSES.iter().find(|(disk, ..)| *disk == name);
    let (bus_ms, watermark) = match host {
        Some((_, host_ms, watermark)) if own_ms == 0.0 => (*host_ms, *watermark),
        _ => (own_ms, 0.0),
    };
    // An unknown bus is no limit.
    let bus_mb_s = (0.512 / bus_ms.max(1e-3)).clamp(1.0, 1e6);
    Ok(format!(
        "[link]\nbandwidth_mb_s = {bus_mb_s:.6}\nsubmit_us = 0\ncomplete_us = 0\n\
         read_watermark = {watermark:.2}\nwrite_watermark = {watermark:.2}\n"
    ))
}

fn overheads(fact: &Record) -> Result<String, String> {
    let (write, write_end_us) = match writes_back(fact)? {
        true => ("write_hit", 0.0),
        // A write past the buffer gives the bus back and has to take it again.
        false => ("write_miss", us(fact, "other_reselect_ms")?),
    };
    let prepared_us = us(fact, "data_prep_ms")?;
    let overheads = [
        ("read_hit_after_read", "read_hit_after_read", prepared_us),
        ("read_hit_after_write", "read_hit_after_write", prepared_us),
        ("read_miss_after_read", "read_miss_after_read", 0.0),
        ("read_miss_after_write", "read_miss_after_write", 0.0),
        ("write_after_read", &format!("{write}_after_read"), 0.0),
        ("write_after_write", &format!("{write}_after_write"), 0.0),
        ("read_end", "read_completion", 0.0),
        ("write_end", "write_completion", write_end_us),
    ];
    let mut text = "[controller]\ncommand_us = 0\nscheduling = \"fcfs\"\n[overheads]\n".to_string();
    for (key, column, more_us) in overheads {
        let own_us = us(fact, &format!("{column}_ms"))?;
        let _ = writeln!(text, "{key}_us = {:.3}", own_us + more_us);
    }
    Ok(text)
}

fn mechanics(
    fact: &Record,
    zones: &[&Record],
    (layout, seeks): (&Layout, &[&Record]),
) -> Result<String, String> {
    let code = |column: &str| fact.number::<u32>(column);
    let skipped = match layout.skipped.is_empty() {
        true => String::new(),
        false => format!("skipped_sectors = [{}]\n", layout.skipped.join(", ")),
    };
    let spares_on_track: u64 = match code("sparing_scheme")? {
        SPARES_ON_TRACK => zones.first().map_or(Ok(0), |zone| zone.number("spares"))?,
        _ => 0,
    };
    Ok(format!(
        "[mechanics]\nheads = {}\nturns_per_minute = {:.6}\nzones = [{}]\n\
         {skipped}{SERPENTINE} = {}\nspare_sectors_per_track = {spares_on_track}\n\
         seek_curve = [{}]\nhead_switch_us = {:.3}\nwrite_settle_us = {:.3}\n\
         min_positioning_us = {:.3}\n",
        code("surfaces")?,
        60e3 / fact.number::<f64>("rev_ms")?,
        layout.zones.join(", "),
        code("lbn_mapping")? > 0,
        curve_of(seeks)?,
        us(fact, "head_switch_ms")?,
        // A write settles no sooner than a read; values below zero are results of a fit.
        us(fact, "write_settle_extra_ms")?.max(0.0),
        us(fact, "min_seek_ms")?
    ))
}

fn cache(fact: &Record) -> Result<String, String> {
    let code = |column: &str| fact.number::<u32>(column);
    let (ahead_blocks, tracks) = match code("readahead_kind")? {
        0 => (0, ""),
        TO_TRACK_END => (code("readahead_max_blocks")?, "read_ahead_tracks = 0\n"),
        TO_NEXT_TRACK_END => (code("readahead_max_blocks")?, "read_ahead_tracks = 1\n"),
        _ => (code("readahead_max_blocks")?, ""),
    };
    let segments = code("cache_segments")?;
    // The model keeps half of a buffer for writes.
    Ok(format!(
        "[cache]\nsize_kb = {}\nsegments = {segments}\nread_ahead_kb = {}\n{tracks}\
         write_back = {}\n",
        (segments * code("segment_blocks")?).max(64),
        ahead_blocks / 2,
        writes_back(fact)?
    ))
}

fn curve_of(seeks: &[&Record]) -> Result<String, String> {
    let mut points = Vec::new();
    for seek in seeks {
        let distance: u32 = seek.number("distance_cyl")?;
        points.push((distance, seek.number::<f64>("seek_ms")? * 1e3));
    }
    points.sort_by_key(|point| point.0);
    points.dedup_by_key(|point| point.0);
    let point = |(distance, us): &(u32, f64)| format!("[{distance}, {us:.3}]");
    Ok(points.iter().map(point).collect::<Vec<_>>().join(", "))
}

/// Where a disk's sectors are.
struct Layout {
    zones: Vec<String>,
    skipped: Vec<String>,
    /// Those that the host sees.
    sectors: u64,
    /// Cylinders and sectors of the zones so far.
    cylinders: u64,
    placed: u64,
}

impl Layout {
    /// Returns the layout of a disk's zones, with `slips` among their sectors.
    fn new(fact: &Record, zones: &[&Record], slips: &[&Record]) -> Result<Layout, String> {
        let mut layout = Layout {
            zones: Vec::new(),
            skipped: Vec::new(),
            sectors: 0,
            cylinders: 0,
            placed: 0,
        };
        for zone in zones {
            let number: u64 = zone.number("zone")?;
            let mut own = Vec::new();
            for slip in slips {
                if slip.number::<u64>("zone")? == number {
                    own.push(slip.number("slipped_block")?);
                }
            }
            layout.add(fact, zone, &own)?;
        }
        Ok(layout)
    }

    fn add(&mut self, fact: &Record, zone: &Record, slips: &[u64]) -> Result<(), String> {
        let heads: u64 = fact.number("surfaces")?;
        let scheme: u32 = fact.number("sparing_scheme")?;
        let first: u64 = zone.number("first_cyl")?;
        let cylinders = (zone.number::<u64>("last_cyl")? + 1).saturating_sub(first);
        let spares: u64 = zone.number("spares")?;
        let per_track: u64 = match scheme {
            SPARES_ON_TRACK => zone
                .number::<u64>("blocks_per_track")?
                .saturating_sub(spares),
            _ => zone.number("blocks_per_track")?,
        };
        let before = first.saturating_sub(self.cylinders);
        if before > 0 {
            self.zones.push(format!("[{before}, 0]"));
        }
        let whole = |column: &str| {
            zone.number::<f64>(column)
                .map(|blocks| blocks.round() as u64)
        };
        self.zones.push(format!(
            "[{cylinders}, {per_track}, {}, {}, {}]",
            whole("track_skew")?,
            whole("cylinder_skew")?,
            whole("first_block_offset")?
        ));
        self.cylinders = first + cylinders;
        // Where a defect is slipped, one spare fewer is left at the end of the spares' range.
        let unit = if scheme == SPARES_IN_ZONE {
            per_track
        } else {
            1
        };
        let spares = if scheme == SPARES_ON_TRACK { 0 } else { spares };
        let sectors = cylinders * heads * per_track;
        let range = match scheme {
            SPARES_IN_RANGE => fact.number::<u64>("sparing_range")? * heads * per_track,
            _ => sectors,
        };
        let mut skipped = vec![(0, zone.number::<u64>("empty_front")?)];
        for first in (0..sectors).step_by(range.max(1) as usize) {
            let end = (first + range).min(sectors);
            let within = slips.iter().map(|slip| slip * unit);
            let within = within.filter(|slip| (first..end).contains(slip));
            let before = skipped.len();
            skipped.extend(within.map(|slip| (slip, unit)));
            let slipped = (skipped.len() - before) as u64;
            let left = spares.saturating_sub(slipped) * unit;
            skipped.push((end.saturating_sub(left).max(first), left));
        }
        self.skip(skipped, sectors);
        Ok(())
    }

    /// Skips runs of the next zone, which has `sectors`.
    fn skip(&mut self, mut runs: Vec<(u64, u64)>, sectors: u64) {
        runs.sort_unstable();
        let (mut end, mut count) = (0, 0);
        for (first, length) in runs {
            // A slip may be among sectors that are skipped anyhow.
            if length == 0 || first < end {
                continue;
            }
            let length = length.min(sectors - first);
            self.skipped
                .push(format!("[{}, {length}]", self.placed + first));
            end = first + length;
            count += length;
        }
        self.placed += sectors;
        self.sectors += sectors - count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::folder::records;

    const FACTS: &str = "disk,model,surfaces,rev_ms,head_switch_ms,write_settle_extra_ms,\
        sparing_scheme,sparing_range,lbn_mapping,bus_ms_per_block,cache_segments,segment_blocks,\
        readahead_kind,readahead_max_blocks,fast_write_level,read_hit_after_read_ms,\
        read_hit_after_write_ms,read_miss_after_read_ms,read_miss_after_write_ms,\
        write_hit_after_read_ms,write_hit_after_write_ms,write_miss_after_read_ms,\
        write_miss_after_write_ms,read_completion_ms,write_completion_ms,data_prep_ms,\
        other_reselect_ms,min_seek_ms\n\
        d,M,2,10,0.5,0.25,8,10,0,0.1,2,100,1,100,0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.01,0.02,0.03,0.04,0.05\n";
    const ZONES: &str = "disk,zone,first_cyl,last_cyl,blocks_per_track,first_block_offset,\
        empty_front,track_skew,cylinder_skew,spares\n\
        d,0,0,24,100,0.0,400,10.0,20.0,20\nd,1,26,50,50,7.0,0,5.0,10.0,0\n";
    const SLIPS: &str = "disk,zone,slipped_block\nd,0,2500\nd,1,3\n";
    const SEEKS: &str = "disk,distance_cyl,seek_ms\nd,1,1.0\nd,100,5.0\nd,200,9.0\n";

    fn disk() -> Box<dyn Device> {
        let read = |name, text: &str| records(name, text.as_bytes()).expect("a table");
        let (facts, zones) = (read("f", FACTS), read("z", ZONES));
        let (slips, seeks) = (read("l", SLIPS), read("s", SEEKS));
        let [zones, slips, seeks] =
            [&zones, &slips, &seeks].map(|of| of.iter().collect::<Vec<&Record>>());
        let text = describe(&facts[0], &zones, &slips, &seeks).expect("a description");
        assert!(text.contains("zones = [[25, 100, 10, 20, 0], [1, 0], [25, 50, 5, 10, 7]]"));
        // Spares at the end of each ten cylinders, one of them taken by the slipped sector.
        let skipped = "[[0, 400], [1980, 20], [2500, 1], [3981, 19], [4980, 20], [5003, 1]]";
        assert!(
            text.contains(&format!("skipped_sectors = {skipped}")),
            "{text}"
        );
        let spec = DriveSpec::parse("d", &text).unwrap_or_else(|e| panic!("{e}"));
        spec.build(1)
    }

    /// A request on an idle disk takes the sum of its parts.
    #[test]
    fn a_request_takes_what_the_facts_say() {
        let took_ms = |op, block| {
            let request = Request {
                op,
                block,
                blocks: 1,
                response_ms: 1.0,
                gap_ms: 0.0,
            };
            play(disk().as_mut(), &[request])[0]
        };
        // The first block is behind four tracks of spares, two cylinders from the arm's first
        // place; with their skews block 10 comes under the heads at 7 ms, block 50 at 1 ms.
        let (seek_ms, bus_ms, sector_ms) = (1.0 + 4.0 / 99.0, 0.1, 0.1);
        assert!(0.3 + seek_ms < 7.0 && seek_ms > 1.0);
        let read_ms = took_ms(Op::Read, 10);
        assert!(
            (read_ms - (7.0 + sector_ms + bus_ms + 0.01)).abs() < 0.001,
            "{read_ms}"
        );
        let write_ms = took_ms(Op::Write, 10);
        assert!(
            (write_ms - (7.0 + sector_ms + 0.02 + 0.04)).abs() < 0.001,
            "{write_ms}"
        );
        // A block that passes the heads during the seek is reached one turn later.
        let missed_ms = took_ms(Op::Read, 50);
        assert!(
            (missed_ms - (11.0 + sector_ms + bus_ms + 0.01)).abs() < 0.001,
            "{missed_ms}"
        );
    }

    #[test]
    fn a_read_of_what_was_read_ahead_takes_its_own_overhead() {
        let request = |block| Request {
            op: Op::Read,
            block,
            blocks: 4,
            response_ms: 1.0,
            gap_ms: 20.0,
        };
        let took = play(disk().as_mut(), &[request(8), request(12)]);
        let hit_ms = 0.1 + 0.03 + 4.0 * 0.1 + 0.01;
        assert!((took[1] - hit_ms).abs() < 0.001, "{took:?}");
    }

    #[test]
    fn the_distance_of_distributions_is_horizontal() {
        assert_eq!(rms(&[1.0, 2.0], &[1.0, 4.0]), 2.0_f64.sqrt());
        assert_eq!(near(&[1.0, 2.0], &[1.05, 2.3]), 50.0);
    }
}
