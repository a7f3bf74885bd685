//! A run's results as fio 3.33 prints them (`--output-format=normal`), so that readers
//! and scripts find everything in its usual place.
//!
//! The counters of scheduler and drive, which fio does not have, follow the disk
//! statistics under headings that fio never prints.

use std::fmt::{self, Write};

use blklab_stats::{
    ArmStats, CacheStats, CgroupStats, DirResults, DiskStats, FaultStats, Histogram, JobResults,
    JobSetup, MemoryGroupStats, PowerLoss, Results, SteadyState, Wait, WaitCounts,
};

use super::number::{Base, FIGURES, Unit, ctime, number, strerror};
use super::stat::{
    GroupRate, GroupRates, LATENCY_CLASSES, LatencyShares, Rate, ScaledLatency, batch_shares,
    cpu_percent, depth_shares, directions, disk_util_percent, msec, percent_of_group,
    percentile_list,
};
use super::{pooled, reported};
use crate::comparison::drive_notes;

/// Returns the run as text. `timestamp_ms` is the time printed with each job, in
/// milliseconds since 1970 (UTC); a run in virtual time has none.
pub fn render(results: &Results, timestamp_ms: Option<u64>) -> String {
    let mut out = String::new();
    write_run(&mut out, results, timestamp_ms.unwrap_or(0)).expect("a string takes all");
    out
}

fn write_run(out: &mut String, results: &Results, timestamp_ms: u64) -> fmt::Result {
    let jobs = &reported(&results.jobs);
    write_setups(out, &results.jobs)?;
    writeln!(out, "blklab-{}", env!("CARGO_PKG_VERSION"))?;
    let processes: u32 = jobs.iter().map(|job| job.members.max(1)).sum();
    let plural = if processes == 1 { "" } else { "es" };
    writeln!(out, "Starting {processes} process{plural}\n")?;
    let groups = GroupRates::of(jobs);
    for job in jobs {
        write_job(out, &groups, job, timestamp_ms)?;
    }
    for group_id in group_ids(jobs) {
        write_group(out, &groups, group_id)?;
    }
    writeln!(out, "\nDisk stats (read/write):")?;
    for disk in &results.disks {
        write_disk(out, disk, results.elapsed_ns)?;
    }
    let pooled = pooled(&results.jobs, jobs);
    if !pooled.is_empty() {
        writeln!(
            out,
            "\nJobs that group_reporting puts together, one by one:\n"
        )?;
    }
    let groups = GroupRates::of(&results.jobs);
    for job in pooled {
        write_job(out, &groups, job, timestamp_ms)?;
    }
    if let Some(cache) = &results.page_cache {
        write_page_cache(out, cache)?;
    }
    write_scheduler(out, results)?;
    write_cgroups(out, results)?;
    write_drive(out, results)?;
    for note in &results.notes {
        write!(out, "\nnote: {note}\n")?;
    }
    Ok(())
}

/// Returns the groups that have jobs, in ascending order.
fn group_ids(jobs: &[JobResults]) -> Vec<u32> {
    let mut ids: Vec<u32> = jobs.iter().map(|job| job.group_id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Writes a line for each job section; its further processes are shown as dots.
fn write_setups(out: &mut String, jobs: &[JobResults]) -> fmt::Result {
    let same_section = |a: &JobResults, b: &JobResults| {
        (&a.name, a.group_id, &a.setup) == (&b.name, b.group_id, &b.setup)
    };
    for section in jobs.chunk_by(same_section) {
        let job = &section[0];
        if job.setup.rw.is_empty() {
            continue;
        }
        let JobSetup {
            rw,
            block_bytes,
            ioengine,
            iodepth,
            is_idle_class: _,
        } = &job.setup;
        write!(out, "{}: (g={}): rw={rw}, bs=", job.name, job.group_id)?;
        for (letter, (min, max)) in ["R", "W", "T"].iter().zip(block_bytes) {
            let (min, max) = (bytes(*min, Base::Iec), bytes(*max, Base::Iec));
            write!(out, "({letter}) {min}-{max}, ")?;
        }
        writeln!(out, "ioengine={ioengine}, iodepth={iodepth}")?;
        if section.len() > 1 || job.members > 1 {
            writeln!(out, "...")?;
        }
    }
    Ok(())
}

fn write_job(out: &mut String, groups: &GroupRates, job: &JobResults, time_ms: u64) -> fmt::Result {
    let error = match job.error {
        0 => String::new(),
        errno => format!(" ({})", strerror(errno)),
    };
    writeln!(
        out,
        "{}: (groupid={}, jobs={}): err={:2}{error}: pid={}: {}",
        job.name,
        job.group_id,
        job.members.max(1),
        job.error,
        job.process + 1,
        ctime(time_ms / 1000)
    )?;
    if let Some(description) = &job.description {
        writeln!(out, "  Description  : [{description}]")?;
    }
    let sums = groups.of_group(job.group_id).map(Option::unwrap_or_default);
    let named = ["read", "write", "trim"].into_iter().zip(directions(job));
    for ((name, dir), sum) in named.zip(&sums) {
        write_direction(out, name, dir, sum, job)?;
    }
    write_latency_shares(out, &LatencyShares::of(job))?;
    if !job.sync_ns.is_empty() {
        writeln!(out, "  fsync/fdatasync/sync_file_range:")?;
        write_latency(out, "sync", &job.sync_ns)?;
        write_percentiles(out, "sync", &job.sync_ns, &percentile_list(job))?;
    }
    write_depths(out, job)
}

fn write_direction(
    out: &mut String,
    name: &str,
    dir: &DirResults,
    group: &GroupRate,
    job: &JobResults,
) -> fmt::Result {
    if dir.bytes == 0 || dir.runtime_ns == 0 {
        return Ok(());
    }
    let bandwidth = dir.bandwidth() as u64;
    writeln!(
        out,
        "  {name}: IOPS={}, BW={} ({})({}/{}msec){}",
        number(dir.iops() as u64, FIGURES, Base::Si, Unit::Plain),
        rate(bandwidth, Base::Iec),
        rate(bandwidth, Base::Si),
        bytes(dir.bytes, Base::Iec),
        msec(dir.runtime_ns),
        // fio mentions zones for every drive, only in this place.
        match name == "write" {
            true => format!("; {} zone resets", job.zone_resets),
            false => String::new(),
        }
    )?;
    write_latency(out, "slat", &dir.slat_ns)?;
    write_latency(out, "clat", &dir.clat_ns)?;
    write_latency(out, " lat", &dir.lat_ns)?;
    let list = percentile_list(job);
    let of = job.percentiles_of;
    for (name, histogram, asked) in [
        ("slat", &dir.slat_ns, of.slat),
        ("clat", &dir.clat_ns, of.clat),
        ("lat", &dir.lat_ns, of.lat),
    ] {
        if asked {
            write_percentiles(out, name, histogram, &list)?;
        }
    }
    write_rates(out, dir, group)
}

fn write_latency(out: &mut String, name: &str, histogram: &Histogram) -> fmt::Result {
    if histogram.is_empty() {
        return Ok(());
    }
    let latency = ScaledLatency::of(&histogram.summary());
    writeln!(
        out,
        "    {name} ({}): min={}, max={}, avg={:5.2}, stdev={:5.2}",
        latency.unit,
        number(latency.min, 6, Base::Si, Unit::Plain),
        number(latency.max, 6, Base::Si, Unit::Plain),
        latency.mean,
        latency.stddev
    )
}

/// Writes fio's block of percentiles, in the unit that fits their range.
fn write_percentiles(out: &mut String, name: &str, of: &Histogram, list: &[f64]) -> fmt::Result {
    /// The width that fio reserves for its percentiles, and the decimals of their names.
    const WIDTH: usize = 73;
    const PRECISION: usize = 2;
    if of.is_empty() || list.is_empty() {
        return Ok(());
    }
    let values = of.fio_percentiles(list);
    let (min, max) = (values[0], values[values.len() - 1]);
    let (unit, divisor) = match () {
        () if min > 2_000_000 && max > 99_999_999 => ("msec", 1_000_000),
        () if min > 2_000 && max > 99_999 => ("usec", 1_000),
        () => ("nsec", 1),
    };
    let digits = (max / divisor).checked_ilog10().unwrap_or(0) as usize + 1;
    let width = digits.max(5);
    let per_line = (WIDTH / (PRECISION + 10 + width)).max(1);
    writeln!(out, "    {name} percentiles ({unit}):")?;
    let cells: Vec<String> = list
        .iter()
        .zip(values)
        .map(|(p, v)| format!(" {p:5.PRECISION$}th=[{:width$}]", v.div_ceil(divisor)))
        .collect();
    let lines: Vec<String> = cells.chunks(per_line).map(|line| line.join(",")).collect();
    writeln!(out, "     |{}", lines.join(",\n     |"))
}

fn write_rates(out: &mut String, dir: &DirResults, group: &GroupRate) -> fmt::Result {
    let kib = Rate::of(&dir.bw_samples, 1024.0);
    if kib.samples > 0 {
        let share = percent_of_group(kib.mean, group.bandwidth);
        let in_mib = kib.mean > 1024.0 * 1024.0;
        let (unit, shown) = match in_mib {
            true => ("MiB", Rate::of(&dir.bw_samples, 1024.0 * 1024.0)),
            false => ("KiB", kib),
        };
        writeln!(
            out,
            "   bw ({unit:>5}/s): min={:5}, max={:5}, per={share:3.2}%, avg={:5.2}, \
             stdev={:5.2}, samples={}",
            shown.min, shown.max, shown.mean, shown.stddev, shown.samples
        )?;
    }
    let iops = Rate::of(&dir.iops_samples, 1.0);
    if iops.samples > 0 {
        writeln!(
            out,
            "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={}",
            iops.min, iops.max, iops.mean, iops.stddev, iops.samples
        )?;
    }
    Ok(())
}

fn write_latency_shares(out: &mut String, shares: &LatencyShares) -> fmt::Result {
    let names: Vec<String> = LATENCY_CLASSES
        .iter()
        .map(|end| end.to_string())
        .chain(["2000".to_string(), ">=2000".to_string()])
        .collect();
    let units: [(&str, &[f64]); 3] = [
        ("nsec", &shares.ns),
        ("usec", &shares.us),
        ("msec", &shares.ms),
    ];
    for (unit, shares) in units {
        let shown: Vec<String> = names
            .iter()
            .zip(shares)
            .filter(|(_, share)| **share > 0.0)
            .map(|(name, share)| format!("{name}={share:3.2}%"))
            .collect();
        for line in shown.chunks(5) {
            writeln!(out, "  lat ({unit})   : {}", line.join(", "))?;
        }
    }
    Ok(())
}

fn write_depths(out: &mut String, job: &JobResults) -> fmt::Result {
    let shares = |names: [&str; 7], shares: [f64; 7]| {
        let cells = names.iter().zip(shares);
        let cells: Vec<String> = cells.map(|(n, s)| format!("{n}={s:3.1}%")).collect();
        cells.join(", ")
    };
    let batch = ["0", "4", "8", "16", "32", "64", ">=64"];
    let depth = ["1", "2", "4", "8", "16", "32", ">=64"];
    let (user, system) = cpu_percent(job);
    writeln!(
        out,
        "  cpu          : usr={user:3.2}%, sys={system:3.2}%, ctx={}, majf={}, minf={}",
        job.cpu.context_switches, job.cpu.faults.major, job.cpu.faults.minor
    )?;
    let depths = shares(depth, depth_shares(job));
    let submit = shares(batch, batch_shares(&job.submit));
    let complete = shares(batch, batch_shares(&job.complete));
    writeln!(out, "  IO depths    : {depths}")?;
    writeln!(out, "     submit    : {submit}")?;
    writeln!(out, "     complete  : {complete}")?;
    writeln!(
        out,
        "     issued rwts: total={},{},{},{} short={},{},{},0 dropped=0,0,0,0",
        job.read.ios,
        job.write.ios,
        job.trim.ios,
        job.syncs,
        job.read.short_ios,
        job.write.short_ios,
        job.trim.short_ios
    )?;
    if job.total_errors > 0 {
        writeln!(
            out,
            "     errors    : total={}, first_error={}/<{}>",
            job.total_errors,
            job.error,
            strerror(job.error)
        )?;
    }
    let target = &job.latency_target;
    writeln!(
        out,
        "     latency   : target={}, window={}, percentile={:.2}%, depth={}",
        target.target_ns, target.window_us, target.percentile, target.depth
    )?;
    match &job.steady_state {
        Some(state) => write_steady_state(out, state),
        None => Ok(()),
    }
}

fn write_steady_state(out: &mut String, state: &SteadyState) -> fmt::Result {
    // fio prints the same number of kibibytes with either prefix.
    let kib = state.mean_bandwidth_bytes() / 1024;
    let percent = if state.in_percent { "%" } else { "" };
    let criterion = match state.by_slope {
        true => "slope",
        false => "mean dev",
    };
    writeln!(
        out,
        "  steadystate  : attained={}, bw={} ({}), iops={}, {} {criterion}={:.3}{percent}",
        if state.attained { "yes" } else { "no" },
        rate(kib * 1024, Base::Iec),
        rate(kib * 1000, Base::Si),
        number(state.mean_iops(), FIGURES, Base::Si, Unit::Plain),
        state.measure(),
        state.criterion,
    )
}

fn write_group(out: &mut String, groups: &GroupRates, group_id: u32) -> fmt::Result {
    writeln!(out, "\nRun status group {group_id} (all jobs):")?;
    let sums = groups.of_group(group_id);
    for (name, sum) in ["READ", "WRITE", "TRIM"].into_iter().zip(sums) {
        let Some(group) = sum else {
            continue;
        };
        let span = |base| {
            let (min, max) = (group.min_bandwidth, group.max_bandwidth);
            format!("{}-{}", rate(min, base), rate(max, base))
        };
        writeln!(
            out,
            "{name:>7}: bw={} ({}), {} ({}), io={} ({}), run={}-{}msec",
            rate(group.bandwidth, Base::Iec),
            rate(group.bandwidth, Base::Si),
            span(Base::Iec),
            span(Base::Si),
            bytes(group.bytes, Base::Iec),
            bytes(group.bytes, Base::Si),
            msec(group.min_runtime_ns),
            msec(group.max_runtime_ns)
        )?;
    }
    Ok(())
}

fn write_disk(out: &mut String, disk: &DiskStats, elapsed_ns: u64) -> fmt::Result {
    let queue = &disk.queue;
    let pair = |counts: &[u64; 4]| format!("{}/{}", counts[0], counts[1]);
    writeln!(
        out,
        "  {}: ios={}, merge={}, ticks={}, in_queue={}, util={:3.2}%",
        disk.name,
        pair(&queue.ios),
        pair(&queue.merges),
        pair(&queue.ticks_ns.map(|ns| ns / 1_000_000)),
        queue.time_in_queue_ns / 1_000_000,
        disk_util_percent(disk, elapsed_ns)
    )
}

fn write_page_cache(out: &mut String, cache: &CacheStats) -> fmt::Result {
    let percent = 100.0 * cache.hit_ratio().unwrap_or(0.0);
    writeln!(out, "\nPage cache:")?;
    writeln!(
        out,
        "  reads: pages={} (cached={percent:.2}%), read ahead={} (used={}, dropped unread={})",
        cache.read_pages, cache.readahead_pages, cache.readahead_used, cache.readahead_wasted,
    )?;
    writeln!(
        out,
        "  writes: pages dirtied={}, written back={} (by the flusher={}), dirty at most={}, \
         held back for {:.2} msec",
        cache.dirtied_pages,
        cache.written_pages,
        cache.flusher_pages,
        bytes(cache.dirty_max_bytes, Base::Iec),
        cache.throttled_ns as f64 / 1e6,
    )?;
    write!(out, "  pages evicted={}", cache.evicted_pages)?;
    if cache.names_shrunk + cache.inodes_shrunk > 0 {
        let (names, inodes) = (cache.names_shrunk, cache.inodes_shrunk);
        write!(out, ", names dropped={names}, inodes dropped={inodes}")?;
    }
    writeln!(out)?;
    for group in &cache.groups {
        write_memory_group(out, group)?;
    }
    if cache.blocks_looked_up + cache.names_looked_up == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "  file system: names={} (cached={}, known not to be there={}), blocks={} (read={}), \
         blocks written={}",
        cache.names_looked_up,
        cache.names_cached,
        cache.names_known_missing,
        cache.blocks_looked_up,
        cache.blocks_read,
        cache.blocks_written,
    )
}

fn write_memory_group(out: &mut String, group: &MemoryGroupStats) -> fmt::Result {
    writeln!(
        out,
        "  /{}: memory.current={}, memory.peak={}, pages charged={}, reclaimed={}, high={}, \
         max={}, oom={}, held back for {:.2} msec",
        group.name,
        bytes(group.current_bytes, Base::Iec),
        bytes(group.peak_bytes, Base::Iec),
        group.charged_pages,
        group.reclaimed_pages,
        group.high_events,
        group.max_events,
        group.oom_events,
        group.throttled_ns as f64 / 1e6,
    )
}

fn write_scheduler(out: &mut String, results: &Results) -> fmt::Result {
    writeln!(out, "\nScheduler stats ({}):", results.scheduler)?;
    for disk in &results.disks {
        let counters = disk.scheduler.counters.iter();
        let counters: Vec<String> = counters
            .map(|counter| format!("{}={}", counter.name, counter.value))
            .collect();
        let counters = match counters.is_empty() {
            true => "keeps no counts".to_string(),
            false => counters.join(", "),
        };
        writeln!(out, "  {}: {counters}", disk.name)?;
    }
    Ok(())
}

/// Writes what was held back of each control group, if anything was or there are groups.
fn write_cgroups(out: &mut String, results: &Results) -> fmt::Result {
    let groups = || results.disks.iter().flat_map(|disk| &disk.cgroups);
    let has_held = |group: &CgroupStats| group.layers().iter().any(|(_, held)| held.ios > 0);
    if !groups().any(|group| !group.name.is_empty() || group.cost.is_some() || has_held(group)) {
        return Ok(());
    }
    writeln!(out, "\nControl group stats:")?;
    for disk in &results.disks {
        if let Some(rate) = &disk.cost_rate {
            writeln!(
                out,
                "  {}: vrate={:.2}%, slowest={:.2}%, fastest={:.2}%",
                disk.name, rate.percent, rate.min_percent, rate.max_percent
            )?;
        }
        for group in &disk.cgroups {
            write_cgroup(out, group)?;
        }
    }
    Ok(())
}

fn write_cgroup(out: &mut String, group: &CgroupStats) -> fmt::Result {
    let (name, layers) = (&group.name, group.layers());
    for (layer, held) in layers.iter().filter(|(_, held)| held.ios > 0) {
        let (ios, mean_us) = (held.ios, held.mean_ns().unwrap_or(0) / 1000);
        writeln!(
            out,
            "  /{name}: held by {layer}={ios}, for mean={mean_us} usec"
        )?;
    }
    if let Some(cost) = group.cost.filter(|cost| cost.usage_us > 0) {
        writeln!(
            out,
            "  /{name}: cost.usage={}, cost.wait={}, cost.indebt={}, cost.indelay={} usec",
            cost.usage_us, cost.wait_us, cost.debt_us, cost.delay_us
        )?;
    }
    Ok(())
}

fn write_drive(out: &mut String, results: &Results) -> fmt::Result {
    writeln!(out, "\nDrive stats ({}):", results.drive)?;
    for disk in &results.disks {
        if let Some(loss) = &disk.power_loss {
            write_power_loss(out, &disk.name, loss)?;
        }
        let device = &disk.device;
        if let Some(faults) = &device.faults {
            write_faults(out, &disk.name, faults)?;
        }
        if let Some(arm) = &device.arm {
            write_arm(out, disk, arm, results.elapsed_ns)?;
        } else if device.channels.is_empty() {
            writeln!(out, "  {}: keeps no counts", disk.name)?;
        } else {
            write_flash(out, disk, results.elapsed_ns)?;
        }
    }
    for sentence in drive_notes(results) {
        writeln!(out, "  {sentence}")?;
    }
    Ok(())
}

fn write_power_loss(out: &mut String, disk: &str, loss: &PowerLoss) -> fmt::Result {
    let [reads, writes, discards, flushes] = loss.failed;
    writeln!(
        out,
        "  {disk}: power lost at {} usec, ready again after {} usec\n    \
         ended with errors: reads={reads}, writes={writes}, discards={discards}, \
         flushes={flushes}\n    \
         sectors acknowledged={}, of these lost={}, lost in all={}, flushes before={}",
        loss.at_ns / 1000,
        (loss.ready_ns - loss.at_ns) / 1000,
        loss.acknowledged_sectors,
        loss.lost_acknowledged_sectors,
        loss.lost_sectors,
        loss.flushes,
    )
}

fn write_flash(out: &mut String, disk: &DiskStats, elapsed_ns: u64) -> fmt::Result {
    let device = &disk.device;
    writeln!(
        out,
        "  {}: flash reads={}, programs={}, erases={}, \
         reads behind writes={} ({} usec lost)",
        disk.name,
        device.flash_reads,
        device.flash_programs,
        device.flash_erases,
        device.reads_behind_writes,
        device.reads_behind_writes_ns / 1000
    )?;
    write_waits(out, "reads", &device.read_waits)?;
    write_waits(out, "writes", &device.write_waits)?;
    if let Some(amplification) = device.write_amplification() {
        writeln!(out, "    write amplification={amplification:.2}")?;
    }
    let counted_ns = disk.counted_in_ns(elapsed_ns);
    for (index, channel) in device.channels.iter().enumerate() {
        writeln!(
            out,
            "    channel {index}: reads={}, writes={}, bus={:.2}%, dies={:.2}%",
            channel.reads,
            channel.writes,
            percent_of(channel.bus_busy_ns, counted_ns),
            percent_of(channel.die_busy_ns, counted_ns)
        )?;
    }
    Ok(())
}

/// Writes the shares of requests that waited, by cause.
fn write_waits(out: &mut String, requests: &str, waits: &WaitCounts) -> fmt::Result {
    let share = |count| percent_of(count, waits.requests());
    if waits.waited() == 0 {
        return Ok(());
    }
    write!(
        out,
        "    {requests} that waited={:.2}%",
        share(waits.waited())
    )?;
    for wait in Wait::ALL {
        if waits.waited_for(wait) > 0 {
            let (name, share) = (wait.name(), share(waits.waited_for(wait)));
            write!(out, ", for {name}={share:.2}%")?;
        }
    }
    writeln!(out)
}

fn write_faults(out: &mut String, name: &str, faults: &FaultStats) -> fmt::Result {
    writeln!(
        out,
        "  {name}: faults: stalls={}, reads failed={} (sectors unreadable={}), bits rotted={}, \
         stale reads={}, misdirected reads={}, lost writes={}, torn writes={}, \
         misdirected writes={}",
        faults.stalls,
        faults.reads_failed,
        faults.latent_errors,
        faults.bits_rotted,
        faults.stale_reads,
        faults.misdirected_reads,
        faults.lost_writes,
        faults.torn_writes,
        faults.misdirected_writes,
    )
}

/// Returns a share of a span in percent.
fn percent_of(ns: u64, span_ns: u64) -> f64 {
    ns as f64 * 100.0 / span_ns.max(1) as f64
}

fn write_arm(out: &mut String, disk: &DiskStats, arm: &ArmStats, elapsed_ns: u64) -> fmt::Result {
    let counted_ns = disk.counted_in_ns(elapsed_ns);
    let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
    let mean_ms = |ns: u64, count: u64| mean(ns, count) / 1e6;
    writeln!(
        out,
        "  {}: seeks={} (mean {:.0} cylinders, {:.2} msec), head switches={}, \
         waits for rotation={} (mean {:.2} msec)",
        disk.name,
        arm.seeks,
        mean(arm.seek_cylinders, arm.seeks),
        mean_ms(arm.seek_ns, arm.seeks),
        arm.head_switches,
        arm.rotation_waits,
        mean_ms(arm.rotation_ns, arm.rotation_waits),
    )?;
    writeln!(
        out,
        "    time: seeking={:.2}%, rotation={:.2}%, transfer={:.2}%",
        percent_of(arm.seek_ns + arm.head_switch_ns, counted_ns),
        percent_of(arm.rotation_ns, counted_ns),
        percent_of(arm.transfer_ns, counted_ns),
    )?;
    writeln!(
        out,
        "    platters: reads={} ({} on the way of reading ahead), writes={}, \
         sectors read={}, written={}, blocks read to be written in part={}, \
         done next by patience_us={}",
        arm.reads,
        arm.reads_streamed,
        arm.writes,
        arm.sectors_read,
        arm.sectors_written,
        arm.blocks_completed,
        arm.overdue,
    )?;
    writeln!(
        out,
        "    buffer: reads answered={}, writes taken={} ({} waited for room), \
         destages={} (mean {:.0} sectors), flushes={} (mean {:.2} msec)",
        disk.device.cache_read_hits,
        arm.writes_buffered,
        arm.writes_waited,
        arm.destages,
        mean(arm.sectors_destaged, arm.destages),
        arm.flushes,
        mean_ms(arm.flush_ns, arm.flushes),
    )
}

fn bytes(value: u64, base: Base) -> String {
    number(value, FIGURES, base, Unit::Bytes)
}

fn rate(value: u64, base: Base) -> String {
    number(value, FIGURES, base, Unit::BytesPerSecond)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::real_fio::real_fio;
    use crate::sample_run::{Recipe, mixed};
    use blklab_stats::DeviceStats;

    const RECIPE: Recipe = Recipe {
        scheduler: "mq-deadline",
        seed: 1,
        reads: 9000,
        writes: 1000,
        base_ns: 60_000,
        tail: 30,
    };

    #[test]
    fn reads_as_fio_does() {
        insta::assert_snapshot!(render(&mixed(RECIPE), Some(1_795_219_841_124)));
    }

    /// Returns a line without its figures, their units and everything that depends on
    /// their number.
    fn shape(line: &str) -> String {
        let mut shape = String::new();
        let mut in_number = false;
        for c in line.chars() {
            let starts = c.is_ascii_digit();
            in_number = starts || (in_number && (c.is_alphanumeric() || "./%".contains(c)));
            match in_number {
                true if shape.ends_with('#') => {}
                true => shape.push('#'),
                false if c == ' ' && shape.ends_with([' ', '=', '[']) => {}
                false => shape.push(c),
            }
        }
        for unit in ["(nsec)", "(msec)"] {
            shape = shape.replace(unit, "(usec)");
        }
        // Dates are cut off, as are lists whose length depends on the figures.
        let pid = shape.find(": pid=#").map(|at| at + ": pid=#".len());
        shape.truncate(pid.unwrap_or(shape.len()));
        let mut parts: Vec<&str> = shape.trim_end_matches(',').split(", ").collect();
        let listed = shape.contains("lat (usec) : ") || shape.contains('|');
        parts.truncate(if listed { 1 } else { parts.len() });
        parts.join(", ")
    }

    #[test]
    fn every_line_of_the_real_fio_has_its_like() {
        let Some(theirs) = real_fio("normal", "lines") else {
            return;
        };
        let mut results = mixed(RECIPE);
        let job = &mut results.jobs[0];
        job.description = Some("a mix".to_string());
        job.setup.ioengine = "psync".to_string();
        job.syncs = 2;
        job.sync_ns.record(700_000);
        let ours: Vec<String> = render(&results, None).lines().map(shape).collect();
        let mut compared = 0;
        for line in theirs.lines() {
            let own_to_fio = line.starts_with("fio-") || line.contains("Laying out");
            // The drive below the file does not matter for the format.
            let of_drive = line.contains("aggrios=") || line.contains("in_queue=");
            if !own_to_fio && !of_drive {
                assert!(ours.contains(&shape(line)), "{line:?}: {:?}", shape(line));
                compared += 1;
            }
        }
        assert!(compared > 35, "fio printed only {compared} lines");
    }

    #[test]
    fn a_group_of_processes_says_so() {
        let mut results = mixed(RECIPE);
        results.jobs[0].members = 3;
        results.jobs.push(results.jobs[0].clone());
        results.jobs[1].group_id = 1;
        results.jobs[1].error = 5;
        results.jobs[1].total_errors = 2;
        let text = render(&results, None);
        assert_eq!(text.matches("\n...\n").count(), 2);
        assert!(text.contains("\nStarting 6 processes\n"));
        assert!(text.contains("mixed: (groupid=0, jobs=3): err= 0: pid=1: Thu Jan  1 "));
        assert!(text.contains("jobs=3): err= 5 (Input/output error): pid="));
        assert!(text.contains("errors    : total=2, first_error=5/<Input/output error>"));
        assert!(text.contains("\nRun status group 1 (all jobs):\n"));
    }

    #[test]
    fn only_directions_that_moved_bytes_show() {
        let text = render(
            &mixed(Recipe {
                writes: 0,
                ..RECIPE
            }),
            None,
        );
        assert!(text.contains("\n  read: IOPS="));
        assert!(!text.contains("\n  write: "));
        assert!(!text.contains("\n  WRITE: "));
    }

    /// A hard disk reports seeks and rotation but no flash; a drive without counters
    /// says so.
    #[test]
    fn a_drive_tells_of_what_it_has() {
        let mut results = mixed(RECIPE);
        let device = &mut results.disks[0].device;
        *device = DeviceStats {
            cache_read_hits: 5,
            arm: Some(ArmStats {
                seeks: 100,
                seek_cylinders: 1_234_500,
                seek_ns: 850_000_000,
                rotation_waits: 50,
                rotation_ns: 208_000_000,
                transfer_ns: 20_000_000,
                destages: 4,
                sectors_destaged: 40,
                ..ArmStats::default()
            }),
            ..DeviceStats::default()
        };
        let text = render(&results, None);
        assert!(!text.contains("flash"), "{text}");
        for found in [
            "sda: seeks=100 (mean 12345 cylinders, 8.50 msec)",
            "waits for rotation=50 (mean 4.16 msec)",
            "time: seeking=42.50%, rotation=10.40%, transfer=1.00%",
            "buffer: reads answered=5, ",
            "destages=4 (mean 10 sectors)",
        ] {
            assert!(text.contains(found), "{found}: {text}");
        }
        results.disks[0].device = DeviceStats::default();
        let text = render(&results, None);
        assert!(!text.contains("flash") && text.contains("sda: keeps no counts"));
    }

    #[test]
    fn the_page_cache_tells_of_itself_where_there_is_one() {
        let mut results = mixed(RECIPE);
        assert!(!render(&results, None).contains("Page cache"));
        results.page_cache = Some(CacheStats {
            read_pages: 8,
            hits: 6,
            readahead_pages: 9,
            dirty_max_bytes: 8192,
            throttled_ns: 1_500_000,
            ..CacheStats::default()
        });
        let text = render(&results, None);
        for found in [
            "reads: pages=8 (cached=75.00%), read ahead=9 ",
            "dirty at most=8192B, held back for 1.50 msec",
        ] {
            assert!(text.contains(found), "{found}: {text}");
        }
    }

    #[test]
    fn nothing_at_all_is_still_a_report() {
        assert!(render(&Results::default(), None).contains("Starting 0 processes"));
        let jobs = vec![JobResults::default()];
        let results = Results {
            jobs,
            ..Results::default()
        };
        assert!(render(&results, None).contains("issued rwts: total=0,0,0,0"));
    }
}
