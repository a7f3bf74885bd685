//! Sets whose rows are runs of fio or of a similar program: each row becomes an fio job,
//! and fio's own figures are compared.

use blklab_calibrate::{Measured, Row};
use blklab_workload::fio::Direction;

use super::bench::{Bench, IOPS, MEAN, P99};
use super::folder::{Folder, Record};

/// Returns a row with defaults for the parts that most sets do not vary.
pub(super) fn row(study: String, rw: &str, options: String) -> Row {
    Row {
        study,
        scheduler: "none".to_string(),
        note: String::new(),
        direction: match rw.contains("write") {
            true => Direction::Write,
            false => Direction::Read,
        },
        rw: rw.to_string(),
        read_percent: 50,
        options,
        bs: "4k".to_string(),
        iodepth: 1,
        processes: 1,
        cores: 1,
        devices: 1,
        read_before_bytes: 0,
        measured: Measured {
            iops: 1.0,
            lat_mean_us: None,
            clat_p99_us: None,
        },
    }
}

/// Seven Optane drives under five I/O engines and four schedulers. The rows of the
/// user-space driver are left out, as no kernel takes part in them.
pub fn optane(folder: &Folder) -> Vec<Bench> {
    let rows = folder.each("fio.csv", |record| match record.text("engine")? {
        "spdk" => Ok(None),
        _ => optane_row(record).map(Some),
    });
    let bench = Bench {
        drive: "optane-ssd",
        machine: "xeon-2x10core",
        settles: false,
        rows,
        // Fitted to some numbers of threads in one of three series, all on one socket;
        // the locks' costs to all rows on one socket of the schedulers with one.
        is_fitted: |row| {
            let is_of_series = matches!(row.note.as_str(), "a" | "b" | "c");
            let has_one_lock = matches!(row.scheduler.as_str(), "mq-deadline" | "bfq");
            (has_one_lock && row.processes <= 10)
                || (is_of_series && matches!(row.processes, 1 | 4 | 10))
        },
        compared: &[IOPS],
    };
    vec![bench]
}

fn optane_row(record: &Record) -> Result<Row, String> {
    let options = match record.text("engine")? {
        "aio" => "ioengine=libaio".to_string(),
        "iou" => "ioengine=io_uring".to_string(),
        "iou_c" => "ioengine=io_uring hipri=1".to_string(),
        "iou_s" => "ioengine=io_uring sqthread_poll=1".to_string(),
        other => format!("ioengine={other}"),
    };
    let experiment = record.text("experiment")?;
    let scheduler = record.text("scheduler")?;
    let group = match experiment {
        "schedulers" => format!("{}-{scheduler}", record.text("engine")?),
        _ => format!("{experiment}-{}", record.text("engine")?),
    };
    // The drives are on the socket whose CPUs come first.
    let cores: u32 = record.number("cpus")?;
    Ok(Row {
        scheduler: match scheduler {
            "default" => "none".to_string(),
            name => name.to_string(),
        },
        note: record.text("run_id")?.to_string(),
        bs: record.text("bs")?.to_string(),
        iodepth: record.number("iodepth")?,
        processes: record.number("threads")?,
        cores: cores.max(1),
        devices: record.number("drives")?,
        measured: Measured {
            iops: record.figure("iops")?,
            lat_mean_us: record.figure_if_any("lat_mean_us")?,
            clat_p99_us: record.figure_if_any("clat_p99_us")?,
        },
        ..row(group, "randread", options)
    })
}

/// Eight PCIe 5 drives under fio's `t/io_uring`, and the cost of durability on two kinds
/// of drive.
pub fn kioxia(folder: &Folder) -> Vec<Bench> {
    let mut rows = Vec::new();
    for (file, study) in [
        ("scaleout.csv", "scaleout"),
        ("block_size.csv", "block-size"),
    ] {
        rows.extend(folder.each(file, |record| kioxia_row(record, study).map(Some)));
    }
    let throughput = Bench {
        drive: "kioxia-cm7",
        machine: "epyc-9654p",
        settles: false,
        rows,
        is_fitted: |row| row.processes == 1 && (row.bs == "4096" || row.bs == "65536"),
        compared: &[IOPS],
    };
    let sqpoll = Bench {
        drive: "kioxia-cm7",
        machine: "epyc-9654p",
        settles: false,
        rows: folder.each("sqpoll_wakeup.csv", sqpoll_row),
        // What leaving a power state takes.
        is_fitted: |row| row.options.contains("thinktime=100ms"),
        compared: &[MEAN],
    };
    let mut benches = vec![throughput, sqpoll];
    let durable = folder.each("fsync.csv", |record| {
        Ok(Some((durable_drive(record)?, durable_row(record)?)))
    });
    for drive in ["kioxia-cm7", "980pro-1tb"] {
        let of_drive = durable.iter().filter(|(of, _)| *of == drive);
        let durability = Bench {
            drive,
            machine: "epyc-9654p",
            settles: false,
            rows: of_drive.map(|(_, row)| row.clone()).collect(),
            // Two drives of the second kind were measured; the description is fitted to
            // one of them.
            is_fitted: |row| ["ng8n1", "ng2n1", "nvme2n1"].contains(&row.note.as_str()),
            compared: &[IOPS],
        };
        benches.push(durability);
    }
    benches
}

fn kioxia_row(record: &Record, study: &str) -> Result<Row, String> {
    let config = record.text("config")?;
    let mut options = match config {
        "libaio" => "ioengine=libaio",
        _ if config.contains("passthrough") => "ioengine=io_uring_cmd",
        _ => "ioengine=io_uring",
    }
    .to_string();
    for (part, option) in [
        ("+files", " registerfiles=1"),
        ("+buffers", " fixedbufs=1"),
        ("+iopoll", " hipri=1"),
    ] {
        if config.contains(part) {
            options += option;
        }
    }
    if config != "libaio" {
        // `t/io_uring` gets its buffers from `posix_memalign` and never writes to them.
        options += " untouched_buffers=1";
    }
    let batch: u32 = record.number("batch")?;
    options += &format!(" iodepth_batch={batch} iodepth_batch_complete_min={batch}");
    let rw = record.text("direction")?;
    let depth = match study {
        "scaleout" => "iodepth_per_thread",
        _ => "iodepth",
    };
    let threads: u32 = record.number("threads")?;
    Ok(Row {
        bs: match study {
            "scaleout" => "4096".to_string(),
            _ => record.text("bs")?.to_string(),
        },
        iodepth: record.number(depth)?,
        processes: threads,
        cores: threads,
        devices: record.number("drives")?,
        measured: Measured {
            iops: record.figure("iops")?,
            lat_mean_us: None,
            clat_p99_us: None,
        },
        ..row(format!("{study}-{rw}"), rw, options)
    })
}

/// Returns the row of a read by a submission thread that sleeps or spins; `None` for a no-op,
/// which no drive takes part in.
fn sqpoll_row(record: &Record) -> Result<Option<Row>, String> {
    if record.text("operation")? != "4k read" {
        return Ok(None);
    }
    let idle_ms: u32 = record.number("sq_idle_ms")?;
    let interval_ms: u32 = record.number("interval_ms")?;
    let mean_us = record.figure("mean_us")?;
    let options = format!(
        "ioengine=io_uring sqthread_poll=1 sq_thread_idle={idle_ms} thinktime={interval_ms}ms"
    );
    Ok(Some(Row {
        measured: Measured {
            iops: 1e6 / (f64::from(interval_ms) * 1e3 + mean_us),
            lat_mean_us: Some(mean_us),
            clat_p99_us: None,
        },
        ..row("sqpoll-wakeup".to_string(), "randread", options)
    }))
}

/// Returns the description of the drive of a durable write.
fn durable_drive(record: &Record) -> Result<&'static str, String> {
    match record.text("drive")? {
        "KIOXIA CM7-R" => Ok("kioxia-cm7"),
        "Samsung 980 PRO 1TB" => Ok("980pro-1tb"),
        other => Err(record.problem(&format!("drive {other} is not described"))),
    }
}

/// Returns the row of a durable 4 KiB write.
fn durable_row(record: &Record) -> Result<Row, String> {
    let options = match record.text("method")? {
        "none" => "ioengine=io_uring",
        // Whether a link or the program sends the flush after the write's end.
        "fsync" | "fsync_link" | "fsync_link2" => "ioengine=io_uring fsync=1",
        "open_dsync" => "ioengine=io_uring sync=dsync",
        "nvme_passthru" => "ioengine=io_uring_cmd",
        "nvme_passthru_flush" => "ioengine=io_uring_cmd fsync=1",
        other => return Err(record.problem(&format!("method {other} is not known"))),
    };
    let polls = match record.text("iopoll")? {
        "1" => " hipri=1",
        _ => "",
    };
    Ok(Row {
        bs: record.text("bs")?.to_string(),
        note: record.text("device")?.to_string(),
        measured: Measured {
            iops: record.figure("ops_per_s")?,
            lat_mean_us: None,
            clat_p99_us: None,
        },
        ..row("fsync".to_string(), "write", format!("{options}{polls}"))
    })
}

/// A consumer drive. Only the sweep with pauses is used: in the other one, runs follow
/// each other while the drive still folds data of earlier ones.
pub fn rocket(folder: &Folder) -> Vec<Bench> {
    let of_sweep = |record: &Record| match record.text("experiment")? {
        "first-sweep" => rocket_rows(record).map(Some),
        _ => Ok(None),
    };
    let rows = folder.each("fio.csv", of_sweep).into_iter().flatten();
    let rows = rows.collect();
    let bench = Bench {
        drive: "rocket4plus-2tb",
        machine: "xeon-10core",
        settles: false,
        rows,
        is_fitted: |row| row.processes == 1,
        compared: &[IOPS, P99],
    };
    vec![bench]
}

/// Returns a row for each direction of a run.
fn rocket_rows(record: &Record) -> Result<Vec<Row>, String> {
    let jobs: u32 = record.number("jobs")?;
    let rw = record.text("rw")?;
    let mut rows = Vec::new();
    for (side, direction) in [("read", Direction::Read), ("write", Direction::Write)] {
        let of = |figure: &str| format!("{side}_{figure}");
        let iops: Option<f64> = record.number_if_any(&of("iops"))?;
        let Some(iops) = iops.filter(|iops| *iops > 0.0) else {
            continue;
        };
        rows.push(Row {
            direction,
            bs: record.text("bs")?.to_string(),
            iodepth: record.number("iodepth")?,
            processes: jobs,
            cores: jobs.min(10),
            measured: Measured {
                iops,
                lat_mean_us: record.figure_if_any(&of("lat_mean_us"))?,
                clat_p99_us: record.figure_if_any(&of("clat_p99_us"))?,
            },
            ..row(
                "first-sweep".to_string(),
                rw,
                "ioengine=io_uring".to_string(),
            )
        });
    }
    Ok(rows)
}

/// The options of a run on a disk behind a RAID controller.
fn raid_options(record: &Record, read_before_bytes: u64) -> Result<String, String> {
    let (series, rw) = (record.text("series")?, record.text("rw")?);
    // XFS has four allocation groups, and a directory's files are in one of them.
    let group: u64 = match (series, rw) {
        ("final", "read" | "write") => 2,
        ("iodepth" | "numjobs", "write") => 3,
        _ => 0,
    };
    // Each job has a file of its own, which begins anywhere in a strip of the controller;
    // fio writes every block once.
    let offset_k = group * 1000 * (1 << 20) + 20;
    let mut options =
        format!("ioengine=libaio size=5g offset={offset_k}k offset_increment=5g norandommap=0");
    // Runs of these series begin with an empty cache, which takes more than in others.
    let starts_empty = series.starts_with("numjobs") || series.starts_with("runtime");
    if starts_empty && rw == "randwrite" {
        let seconds: f64 = record.number("run_s")?;
        options += &format!(" ramp_time=0 runtime={seconds:.0}");
    }
    // All of the file, of which a part is in the cache.
    if rw == "read" && read_before_bytes > 0 {
        options += " time_based=0 ramp_time=0 runtime=30 number_ios=0";
    }
    // Until all that is in flight has ended once.
    if rw == "randread" && record.number::<u32>("iodepth")? * record.number::<u32>("jobs")? > 256 {
        options += " ramp_time=4";
    }
    Ok(options)
}

/// What earlier runs have left of a file in the controller's cache: as much as that holds beside
/// what it reads ahead, in the series in which a fifth of the reads and more take as long as a hit.
fn raid_read_before_bytes(record: &Record) -> Result<u64, String> {
    const HOLDS_BYTES: u64 = (1 << 30) - (64 << 20);
    Ok(
        match (record.text("series")?, record.number::<u32>("jobs")?) {
            (
                "bs.read"
                | "bs.randread"
                | "iodepth.4k_randread"
                | "iodepth.64k_read"
                | "runtime.4k_randread",
                1,
            ) => HOLDS_BYTES,
            _ => 0,
        },
    )
}

/// Disks behind a RAID controller's cache, and an SSD.
pub fn raid_controller(folder: &Folder) -> Vec<Bench> {
    let rows = folder.each("fio.csv", |record| {
        let is_ssd = record.text("drive")? == "ssd";
        Ok(Some((is_ssd, raid_row(record, is_ssd)?)))
    });
    let (ssd, disk): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(is_ssd, _)| *is_ssd);
    let rows_of = |of: Vec<(bool, Row)>| of.into_iter().map(|(_, row)| row).collect();
    let (ssd, disk) = (rows_of(ssd), rows_of(disk));
    // The servers are not described. libaio was measured on the second machine, which
    // matters for the SSD.
    let bench = |drive, machine, settles, rows, is_fitted| Bench {
        drive,
        machine,
        settles,
        rows,
        is_fitted,
        compared: &[IOPS],
    };
    // Of the SSD: random I/Os at depth 1 and with the most in flight, and reads in order.
    let is_fitted_of_ssd: fn(&Row) -> bool = |row| {
        let in_flight = row.iodepth * row.processes;
        match (row.rw.as_str(), row.bs.as_str()) {
            ("randread", _) => matches!(in_flight, 1 | 256),
            ("randwrite", _) => in_flight == 1 || (row.iodepth, row.processes) == (16, 4),
            ("read", _) => row.processes == 1,
            _ => false,
        }
    };
    // Of the disk: one row for each fitted key, and those that tell where a series' files are
    // or what its runs found in the cache.
    let is_fitted_of_disk: fn(&Row) -> bool = |row| {
        let of = (row.study.as_str(), row.rw.as_str(), row.bs.as_str());
        match (of, row.iodepth * row.processes) {
            (("iodepth", "randread", _), in_flight) => in_flight == 4,
            (
                ("iodepth.4k_randwrite" | "iodepth.4k_randread" | "iodepth.64k_read", ..)
                | ("bs.randwrite", _, "262144")
                | ("bs.write" | "bs.randread", _, "4096")
                | ("bs.read", _, "65536")
                | ("numjobs.4k_randwrite" | "numjobs", "randwrite", _)
                | ("final" | "iodepth" | "numjobs", "write", _),
                1,
            ) => true,
            (("runtime.4k_randread", ..), 1) => row.measured.iops > 247.5,
            (("runtime.4k_randwrite", ..), 1) => row.options.ends_with("runtime=10"),
            _ => false,
        }
    };
    vec![
        bench(
            "hdd-7200-raid",
            "xeon-10core",
            true,
            disk,
            is_fitted_of_disk,
        ),
        bench(
            "p3600-1600gb",
            "xeon-2x10core",
            false,
            ssd,
            is_fitted_of_ssd,
        ),
    ]
}

fn raid_row(record: &Record, is_ssd: bool) -> Result<Row, String> {
    let jobs: u32 = record.number("jobs")?;
    let read_before_bytes = match is_ssd {
        true => 0,
        false => raid_read_before_bytes(record)?,
    };
    let options = match is_ssd {
        true => "ioengine=libaio size=5g offset_increment=5g".to_string(),
        false => raid_options(record, read_before_bytes)?,
    };
    Ok(Row {
        bs: record.text("bs")?.to_string(),
        iodepth: record.number("iodepth")?,
        processes: jobs,
        cores: jobs.min(10),
        read_before_bytes,
        measured: Measured {
            iops: record.figure("iops")?,
            lat_mean_us: record.figure_if_any("lat_mean_us")?,
            clat_p99_us: None,
        },
        ..row(
            record.text("series")?.to_string(),
            record.text("rw")?,
            options,
        )
    })
}
