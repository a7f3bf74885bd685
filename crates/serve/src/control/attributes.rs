//! An export's attributes, by their names in sysfs.

use blklab_blk::{Attribute, MIN_RQ, NoMerges, Op, QueueLimits, SECTOR_SIZE};
use blklab_elevator::SchedulerChoice;

use crate::export::{Change, ExportHandle, ExportView};

/// The name under which the power is cut. The kernel has no such file, and no list names it.
const POWER: &str = "power";

/// Writes a value to an export's attribute.
type Write = fn(&ExportHandle, &str) -> Result<(), String>;

/// An attribute that each export has.
struct DiskAttribute {
    name: &'static str,
    read: fn(&ExportView<'_>) -> String,
    write: Option<Write>,
}

/// The attributes of each export, in the order of lists.
static DISK_ATTRIBUTES: [DiskAttribute; 17] = [
    shown("size", |view| limits(view).capacity_sectors.to_string()),
    shown("ro", |view| flag(view.disk.is_read_only())),
    shown("stat", stat),
    shown("inflight", |view| {
        let [reads, writes] = view.disk.queue().in_flight();
        format!("{reads:8} {writes:8}")
    }),
    DiskAttribute {
        name: "queue/scheduler",
        read: |view| schedulers(view.disk.queue().elevator().map_or("none", |e| e.name())),
        write: Some(set_scheduler),
    },
    DiskAttribute {
        name: "queue/nr_requests",
        read: |view| view.disk.queue().nr_requests().to_string(),
        write: Some(set_nr_requests),
    },
    DiskAttribute {
        name: "queue/nomerges",
        read: |view| (limits(view).nomerges as u8).to_string(),
        write: Some(set_nomerges),
    },
    DiskAttribute {
        name: "queue/wbt_lat_usec",
        read: |view| {
            let wbt = view.disk.queue().wbt();
            wbt.map_or(0, |wbt| wbt.latency_us()).to_string()
        },
        write: Some(set_wbt_latency),
    },
    shown("queue/logical_block_size", |view| {
        bytes(limits(view).logical_block_sectors)
    }),
    shown("queue/max_sectors_kb", |view| {
        (limits(view).max_sectors / 2).to_string()
    }),
    shown("queue/max_segments", |view| {
        limits(view).max_segments.to_string()
    }),
    shown("queue/discard_max_bytes", |view| {
        bytes(limits(view).max_discard_sectors)
    }),
    shown("queue/write_zeroes_max_bytes", |view| {
        bytes(limits(view).max_write_zeroes_sectors)
    }),
    shown("queue/write_cache", |view| {
        let caches = limits(view).write_cache;
        let shown = if caches {
            "write back"
        } else {
            "write through"
        };
        shown.to_string()
    }),
    shown("queue/fua", |view| flag(limits(view).fua)),
    shown("queue/rotational", |view| flag(limits(view).rotational)),
    shown("queue/zoned", |view| limits(view).zoned().to_string()),
];

/// An attribute that is only read.
const fn shown(name: &'static str, read: fn(&ExportView<'_>) -> String) -> DiskAttribute {
    DiskAttribute {
        name,
        read,
        write: None,
    }
}

fn limits<'a>(view: &'a ExportView<'_>) -> &'a QueueLimits {
    view.disk.queue().limits()
}

fn flag(is_set: bool) -> String {
    u8::from(is_set).to_string()
}

fn bytes(sectors: u32) -> String {
    (u64::from(sectors) * SECTOR_SIZE).to_string()
}

fn disk_attribute(name: &str) -> Option<&'static DiskAttribute> {
    DISK_ATTRIBUTES.iter().find(|known| known.name == name)
}

/// Names of all attributes that an export has now.
pub(crate) fn names(view: &ExportView<'_>) -> Vec<String> {
    let fixed = DISK_ATTRIBUTES.iter();
    let mut names: Vec<String> = fixed.map(|known| known.name.to_string()).collect();
    let zones = limits(view).zone_attributes();
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
    if name == POWER {
        let cuts = view.disk.power_cuts();
        return cuts.ok_or_else(|| "this export's power cannot be cut".to_string());
    }
    if let Some(known) = disk_attribute(name) {
        return Ok((known.read)(view));
    }
    let attribute = name.strip_prefix("queue/");
    let mut of_zones = queue.limits().zone_attributes();
    let found = of_zones.find(|(known, _)| attribute == Some(*known));
    Ok(found.ok_or_else(|| unknown(view, name))?.1.to_string())
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
    let takes_any = || of_scheduler(name).is_none_or(|a| !a.takes.is_empty());
    disk_attribute(name).is_some_and(|known| known.write.is_some())
        || (name.starts_with("iosched/") && takes_any())
}

/// Whether an attribute shows anything.
pub(crate) fn is_readable(name: &str) -> bool {
    of_scheduler(name).is_none_or(|a| a.readable)
}

/// Writes an attribute, as `echo VALUE >` would.
pub(crate) fn write(export: &ExportHandle, name: &str, value: &str) -> Result<(), String> {
    if name == POWER {
        return match value {
            "cut" => export.call(|view| view.disk.cut_power(view.now))?,
            _ => Err(format!("power takes cut, not {value:?}")),
        };
    }
    if let Some(write) = disk_attribute(name).and_then(|known| known.write) {
        return write(export, value);
    }
    let Some(tunable) = name.strip_prefix("iosched/") else {
        let name = name.to_string();
        let readable = export.call(move |view| read(view, &name).map(|_| name))??;
        return Err(format!("{readable} can only be read"));
    };
    let (tunable, value) = (tunable.to_string(), value.to_string());
    export.call(move |view| view.disk.set_iosched(&tunable, &value))?
}

fn set_scheduler(export: &ExportHandle, value: &str) -> Result<(), String> {
    let choice = SchedulerChoice::named(value).map_err(|e| e.to_string())?;
    export.change(Change::Scheduler(choice))
}

/// Fewer requests than the kernel has at least are taken as these (`queue_requests_store`).
fn set_nr_requests(export: &ExportHandle, value: &str) -> Result<(), String> {
    let nr = u32::try_from(number(value)?);
    let nr = nr.map_err(|_| format!("nr_requests {value}: out of range"))?;
    export.change(Change::NrRequests(nr.max(MIN_RQ)))
}

fn set_nomerges(export: &ExportHandle, value: &str) -> Result<(), String> {
    let nomerges = match number(value)? {
        0 => NoMerges::All,
        1 => NoMerges::OneHit,
        2 => NoMerges::Never,
        other => return Err(format!("nomerges is 0, 1 or 2, not {other}")),
    };
    export.call(move |view| view.disk.set_nomerges(nomerges))
}

/// -1 is the latency that the kernel sets by itself (`queue_wb_lat_store`).
fn set_wbt_latency(export: &ExportHandle, value: &str) -> Result<(), String> {
    const MAX_US: i64 = i64::MAX / 1_000;
    let latency_us = match number(value)? {
        -1 => None,
        latency_us @ 0..=MAX_US => Some(latency_us as u64),
        _ => {
            return Err(format!(
                "wbt_lat_usec takes 0 to {MAX_US}, or -1 for the kernel's own, not {value}"
            ));
        }
    };
    export.call(move |view| view.disk.set_wbt_latency(view.now, latency_us))
}

fn number(value: &str) -> Result<i64, String> {
    value.parse().map_err(|_| format!("{value:?} is no number"))
}
