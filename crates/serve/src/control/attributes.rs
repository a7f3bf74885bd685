//! An export's attributes, by their names in sysfs.

use blklab_blk::{Attribute, NoMerges, Op};
use blklab_elevator::SchedulerChoice;

use crate::export::{Change, ExportHandle, ExportView};

/// The name under which the power is cut. The kernel has no such file, and no list names it.
const POWER: &str = "power";

/// Names of all attributes that an export has now.
pub(crate) fn names(view: &ExportView<'_>) -> Vec<String> {
    let fixed = [
        "size",
        "ro",
        "stat",
        "inflight",
        "queue/scheduler",
        "queue/nr_requests",
        "queue/nomerges",
        "queue/wbt_lat_usec",
        "queue/logical_block_size",
        "queue/max_sectors_kb",
        "queue/max_segments",
        "queue/discard_max_bytes",
        "queue/write_zeroes_max_bytes",
        "queue/write_cache",
        "queue/fua",
        "queue/rotational",
        "queue/zoned",
    ];
    let mut names: Vec<String> = fixed.map(String::from).to_vec();
    let zones = view.disk.queue().limits().zone_attributes();
    names.extend(zones.map(|(name, _)| format!("queue/{name}")));
    if let Some(elevator) = view.disk.queue().elevator() {
        let declared = elevator.tunables().declared();
        names.extend(declared.iter().map(|t| format!("iosched/{}", t.name)));
        let others = elevator.attributes().iter();
        names.extend(others.map(|a| format!("iosched/{}", a.name)));
    }
    names
}

/// The text of an attribute, as `cat` would show it.
pub(crate) fn read(view: &ExportView<'_>, name: &str) -> Result<String, String> {
    let queue = view.disk.queue();
    let limits = queue.limits();
    if !is_readable(name) {
        return Err(format!("{name} can only be written"));
    }
    if let Some(tunable) = name.strip_prefix("iosched/") {
        let elevator = queue.elevator().ok_or("there is no scheduler")?;
        let value = elevator.tunables().get(tunable);
        return value
            .map(|v| v.to_string())
            .or_else(|| elevator.attribute(tunable))
            .ok_or_else(|| unknown(view, name));
    }
    Ok(match name {
        "size" => limits.capacity_sectors.to_string(),
        POWER => (view.disk.power_cuts()).ok_or("this export's power cannot be cut")?,
        "stat" => stat(view),
        "inflight" => {
            let [reads, writes] = queue.in_flight();
            format!("{reads:8} {writes:8}")
        }
        "queue/scheduler" => schedulers(queue.elevator().map_or("none", |e| e.name())),
        "queue/nr_requests" => queue.nr_requests().to_string(),
        "queue/nomerges" => (limits.nomerges as u8).to_string(),
        "queue/wbt_lat_usec" => queue.wbt().map_or(0, |wbt| wbt.latency_us()).to_string(),
        "queue/logical_block_size" => (limits.logical_block_sectors * 512).to_string(),
        "queue/max_sectors_kb" => (limits.max_sectors / 2).to_string(),
        "ro" => u8::from(view.disk.is_read_only()).to_string(),
        "queue/max_segments" => limits.max_segments.to_string(),
        "queue/write_zeroes_max_bytes" => {
            (u64::from(limits.max_write_zeroes_sectors) * 512).to_string()
        }
        "queue/discard_max_bytes" => (u64::from(limits.max_discard_sectors) * 512).to_string(),
        "queue/write_cache" if limits.write_cache => "write back".to_string(),
        "queue/write_cache" => "write through".to_string(),
        "queue/fua" => u8::from(limits.fua).to_string(),
        "queue/rotational" => u8::from(limits.rotational).to_string(),
        "queue/zoned" => limits.zoned().to_string(),
        _ => {
            let attribute = name.strip_prefix("queue/");
            let mut of_zones = limits.zone_attributes();
            let found = of_zones.find(|(known, _)| attribute == Some(*known));
            found.ok_or_else(|| unknown(view, name))?.1.to_string()
        }
    })
}

fn unknown(view: &ExportView<'_>, name: &str) -> String {
    format!("no attribute {name}; there are {}", names(view).join(", "))
}

/// All schedulers with the present one in brackets.
fn schedulers(present: &str) -> String {
    let names = blklab_elevator::all().iter().map(|kind| {
        if kind.name == present {
            format!("[{present}]")
        } else {
            kind.name.to_string()
        }
    });
    names.collect::<Vec<_>>().join(" ")
}

/// The columns of `/sys/block/*/stat` (Documentation/block/stat.rst).
fn stat(view: &ExportView<'_>) -> String {
    let counters = view.disk.counters(view.now);
    let ms = |ns: u64| ns / 1_000_000;
    let in_flight: u32 = view.disk.queue().in_flight().iter().sum();
    let mut columns = Vec::new();
    for op in [Op::Read, Op::Write] {
        let group = op.stat_group();
        columns.push(counters.ios[group]);
        columns.push(counters.merges[group]);
        columns.push(counters.sectors[group]);
        columns.push(ms(counters.ticks_ns[group]));
    }
    columns.push(u64::from(in_flight));
    columns.push(ms(counters.io_ticks_ns));
    columns.push(ms(counters.ticks_ns.iter().sum()));
    let discard = Op::Discard.stat_group();
    columns.push(counters.ios[discard]);
    columns.push(counters.merges[discard]);
    columns.push(counters.sectors[discard]);
    columns.push(ms(counters.ticks_ns[discard]));
    let flush = Op::Flush.stat_group();
    columns.push(counters.ios[flush]);
    columns.push(ms(counters.ticks_ns[flush]));
    let columns: Vec<String> = columns.iter().map(|c| format!("{c:8}")).collect();
    columns.join(" ")
}

/// An attribute of some scheduler that is not one number.
fn of_scheduler(name: &str) -> Option<&'static Attribute> {
    let name = name.strip_prefix("iosched/")?;
    let mut all = blklab_elevator::all().iter().flat_map(|k| k.attributes);
    all.find(|a| a.name == name)
}

/// Whether an attribute can be set.
pub(crate) fn is_writable(name: &str) -> bool {
    let settable = [
        "queue/scheduler",
        "queue/nr_requests",
        "queue/nomerges",
        "queue/wbt_lat_usec",
    ];
    let takes_any = || of_scheduler(name).is_none_or(|a| !a.takes.is_empty());
    settable.contains(&name) || (name.starts_with("iosched/") && takes_any())
}

/// Whether an attribute shows anything.
pub(crate) fn is_readable(name: &str) -> bool {
    of_scheduler(name).is_none_or(|a| a.readable)
}

/// Writes an attribute, as `echo VALUE >` would.
pub(crate) fn write(export: &ExportHandle, name: &str, value: &str) -> Result<(), String> {
    match name {
        POWER if value == "cut" => export.call(|view| view.disk.cut_power(view.now))?,
        POWER => Err(format!("power takes cut, not {value:?}")),
        "queue/scheduler" => {
            let choice = SchedulerChoice::named(value).map_err(|e| e.to_string())?;
            export.change(Change::Scheduler(choice))
        }
        "queue/nr_requests" => {
            let nr = u32::try_from(number(value)?);
            let nr = nr.map_err(|_| format!("nr_requests {value}: out of range"))?;
            export.change(Change::NrRequests(nr))
        }
        "queue/nomerges" => {
            let nomerges = match number(value)? {
                0 => NoMerges::All,
                1 => NoMerges::OneHit,
                2 => NoMerges::Never,
                other => return Err(format!("nomerges is 0, 1 or 2, not {other}")),
            };
            export.call(move |view| view.disk.set_nomerges(nomerges))
        }
        "queue/wbt_lat_usec" => {
            let latency_us = u64::try_from(number(value)?);
            let latency_us =
                latency_us.map_err(|_| format!("wbt_lat_usec takes 0 or more, not {value}"))?;
            export.call(move |view| view.disk.set_wbt_latency(view.now, latency_us))
        }
        _ => match name.strip_prefix("iosched/") {
            Some(tunable) => {
                let (tunable, value) = (tunable.to_string(), value.to_string());
                export.call(move |view| view.disk.set_iosched(&tunable, &value))?
            }
            None => {
                let name = name.to_string();
                let readable = export.call(move |view| read(view, &name).map(|_| name))??;
                Err(format!("{readable} can only be read"))
            }
        },
    }
}

fn number(value: &str) -> Result<i64, String> {
    value.parse().map_err(|_| format!("{value:?} is no number"))
}
