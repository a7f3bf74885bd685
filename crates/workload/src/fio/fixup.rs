//! From options as given to a job that can run: what fio's `fixup_options`
//! adjusts so that options fit one another, and what it refuses.

use blklab_blk::SECTOR_SIZE;
use blklab_stats::DEFAULT_PERCENTILES;

use super::direction::{ByDirection, Direction};
use super::engine::Engine;
use super::error::{Fault, JobError};
use super::iolog;
use super::lists;
use super::section::SectionOptions;
use super::spec::*;
use super::units::Extent;
use super::verify;

/// The adjustments that the user should know.
#[derive(Default)]
pub(crate) struct Adjustments {
    pub depth_capped: bool,
    pub not_time_based: bool,
}

/// Fits the options to one another and checks them.
pub(crate) fn fixup(mut section: SectionOptions) -> Result<(JobSpec, Adjustments), JobError> {
    fit_blocks(&mut section);
    iolog::fit(&mut section)?;
    fit_depths(&mut section.spec);
    fit_files(&mut section)?;
    fit_logs(&mut section.spec);
    fit_priorities(&mut section)?;
    let adjustments = fit_rest(&mut section);
    fit_zones(&mut section)?;
    check_sizes(&section)?;
    check_rates(&section)?;
    verify::fit(&mut section)?;
    check_counts(&section)?;
    Ok((section.spec, adjustments))
}

fn fit_blocks(section: &mut SectionOptions) {
    let spec = &mut section.spec;
    for direction in Direction::ALL {
        let sizes = &mut spec.block_sizes[direction];
        let plain = section.block_bytes[direction];
        (sizes.min_bytes, sizes.max_bytes) =
            section.block_range[direction].unwrap_or((plain, plain));
        let align = section.align_bytes[direction].filter(|_| spec.pattern.is_random());
        spec.align_bytes[direction] = align.unwrap_or(sizes.min_bytes);
        if spec.align_bytes[direction] != sizes.min_bytes {
            spec.no_random_map = true;
        }
    }
    if spec.distribution != Distribution::Random {
        spec.no_random_map = true;
    }
}

fn fit_depths(spec: &mut JobSpec) {
    let depth = spec.io_depth;
    if spec.io_depth_low == 0 || spec.io_depth_low > depth {
        spec.io_depth_low = depth;
    }
    if spec.batch_submit == 0 || spec.batch_submit > depth {
        spec.batch_submit = depth;
    }
    if spec.offload {
        // Each I/O goes to its thread at once.
        spec.batch_submit = 1;
    }
    spec.batch_complete_max = spec.batch_complete_max.max(spec.batch_complete_min);
    let changes = spec.pattern.does(Direction::Write) || spec.pattern.does(Direction::Trim);
    if !spec.offload && (!changes || depth == 1) {
        spec.serialize_overlap = false;
    }
}

fn fit_files(section: &mut SectionOptions) -> Result<(), JobError> {
    let spec = &mut section.spec;
    if !spec.files.is_empty() {
        spec.file_count = spec.file_count.min(spec.files.len() as u32);
    }
    let all = spec.open_files == 0 || spec.open_files >= spec.file_count;
    if !all && spec.verify.is_on() && spec.verify.backlog > 0 {
        let fault = Fault::new("fio opens a file again to verify it, and then waits for ever")
            .help("leave out verify_backlog, or have as many openfiles as nrfiles");
        return Err(section.refuse("openfiles", fault));
    }
    if !all && section.engine.registered_files {
        let fault = Fault::new("registerfiles needs all files open")
            .help("leave out one of the two, or have as many openfiles as nrfiles");
        return Err(section.refuse("openfiles", fault));
    }
    Ok(())
}

/// A log of means also sets the windows of bandwidth and IOPS unless the job sets them (`add_job`).
fn fit_logs(spec: &mut JobSpec) {
    let over_ms = spec.logs.mean_over_ms;
    if over_ms == 0 {
        return;
    }
    if spec.logs.bandwidth.is_some() && spec.written("bwavgtime").is_none() {
        spec.bandwidth_window_ms = over_ms;
    }
    if spec.logs.iops.is_some() && spec.written("iopsavgtime").is_none() {
        spec.iops_window_ms = over_ms;
    }
}

/// fio's `ioprio_value` and `fio_cmdprio_init`.
fn fit_priorities(section: &mut SectionOptions) -> Result<(), JobError> {
    const REAL_TIME: u8 = 1;
    const BEST_EFFORT: u8 = 2;
    if let Some(priority) = &mut section.spec.priority
        && priority.class == 0
    {
        priority.class = BEST_EFFORT;
    }
    let engine = section.engine.clone();
    let percents = engine.command_percent;
    let some_percent = percents.read > 0 || percents.write > 0;
    if some_percent && !engine.command_split.is_empty() {
        return Err(section.refuse(
            "cmdprio_bssplit",
            Fault::new("cmdprio_percentage is also given").help("one or the other"),
        ));
    }
    for direction in [Direction::Read, Direction::Write] {
        let priority = Priority {
            class: match engine.command_class[direction] as u8 {
                0 => REAL_TIME,
                class => class,
            },
            level: engine.command_level[direction] as u8,
        };
        let list = lists::by_direction(&engine.command_split)
            .and_then(|lists| {
                lists::command_priorities(lists[direction], priority, section.spec.kb_base)
            })
            .map_err(|fault| section.refuse("cmdprio_bssplit", fault))?;
        section.spec.command_priority[direction] = match percents[direction] {
            0 => list,
            percent => vec![CommandPrioritySplit {
                block_bytes: None,
                percent,
                priority,
            }],
        };
    }
    Ok(())
}

fn fit_rest(section: &mut SectionOptions) -> Adjustments {
    let spec = &mut section.spec;
    let engine = &section.engine;
    spec.polled = engine.polled;
    spec.submission_thread = engine.submission_thread;
    spec.submission_thread_idle_ms = engine.submission_thread_idle_ms;
    spec.registered_buffers = engine.registered_buffers;
    spec.untouched_buffers = engine.untouched_buffers;
    spec.registered_files = engine.registered_files;
    spec.nowait = engine.nowait;
    spec.force_async_every = engine.force_async_every;
    spec.direct |= spec.atomic;
    // `pre_read` fills the cache, so it must not be invalidated again.
    spec.invalidate &= !spec.pre_read;
    spec.random_repeatable &= spec.random_seed.is_none();
    spec.think.spin_us = spec.think.spin_us.min(spec.think.pause_us);
    spec.think.blocks_given = spec.written("thinktime_blocks").is_some();
    spec.loops = spec.loops.max(1);
    if spec.percentiles.is_empty() {
        spec.percentiles = DEFAULT_PERCENTILES.to_vec();
    }
    spec.latency_target = spec.latency_target.filter(|target| target.target_us > 0);
    if spec.steady_state.seconds == 0 {
        spec.steady_state = SteadyStateOptions::default();
    }
    let not_time_based = spec.time_based && spec.runtime_us == 0;
    spec.time_based &= !not_time_based;
    Adjustments {
        depth_capped: spec.engine.is_synchronous() && spec.io_depth > 1 && !spec.offload,
        not_time_based,
    }
}

fn check_sizes(section: &SectionOptions) -> Result<(), JobError> {
    let spec = &section.spec;
    if let Engine::Other(_) = spec.engine {
        // The engine is refused later; the requirement of direct I/O would hide that message.
        return Ok(());
    }
    if let Some(Extent::Bytes(size)) = spec.size {
        let block = spec.smallest_block();
        if size < block {
            return Err(section.refuse(
                "size",
                Fault::new(format!("smaller than one block of {block} bytes"))
                    .help("at least one block"),
            ));
        }
    }
    for direction in Direction::ALL {
        if spec.pattern.does(direction) {
            let needed_by = needs_sectors(spec, direction);
            check_blocks(section, &spec.block_sizes[direction], needed_by)?;
            let align = spec.align_bytes[direction];
            if let Some(needed_by) = needed_by
                && !align.is_multiple_of(SECTOR_SIZE)
            {
                return Err(not_sectors(section, "ba", (align, needed_by)));
            }
        }
    }
    if spec.unaligned {
        return Err(section.refuse(
            "bs_unaligned",
            Fault::new("blocks that are not whole sectors are not simulated").help("leave it out"),
        ));
    }
    let does = |direction: &Direction| spec.pattern.does(*direction);
    let all = Direction::ALL.into_iter().filter(does);
    let Some(needed_by) = all.filter_map(|d| needs_sectors(spec, d)).next() else {
        return Ok(());
    };
    let bytes_of = |extent| match extent {
        Extent::Bytes(bytes) => bytes,
        _ => 0,
    };
    for (option, bytes) in [
        ("rw", spec.sequential_step_bytes.unsigned_abs()),
        ("offset", bytes_of(spec.offset)),
        ("offset_increment", bytes_of(spec.offset_increment)),
        ("offset_align", spec.offset_align_bytes),
    ] {
        if !bytes.is_multiple_of(SECTOR_SIZE) {
            return Err(not_sectors(section, option, (bytes, needed_by)));
        }
    }
    Ok(())
}

/// Returns what needs the I/Os of a direction to be whole sectors; what goes through the page
/// cache does not.
fn needs_sectors(spec: &JobSpec, direction: Direction) -> Option<&'static str> {
    match direction {
        Direction::Trim => Some("a trim"),
        _ if spec.direct || spec.engine == Engine::IoUringCmd => Some("direct I/O"),
        _ if spec.verify.is_on() => Some("verify, as simulated,"),
        _ => None,
    }
}

/// Returns an error about `bytes` of `option`, which are not whole sectors.
fn not_sectors(
    section: &SectionOptions,
    option: &str,
    (bytes, needed_by): (u64, &str),
) -> JobError {
    let written = section.spec.written(option).map_or("", |w| w.text.as_str());
    let help = match written.to_ascii_lowercase().contains("ib") && section.spec.kb_base == 1024 {
        true => "KiB and its like count by 1000 unless kb_base=1000 is set: write k, or set that"
            .to_string(),
        false => format!("a multiple of 512 bytes, as {needed_by} needs"),
    };
    let fault = Fault::new(format!("{bytes} bytes are not whole sectors")).help(help);
    section.refuse(option, fault)
}

fn check_blocks(
    section: &SectionOptions,
    sizes: &BlockSizes,
    needed_by: Option<&str>,
) -> Result<(), JobError> {
    let split = sizes.split.iter().map(|(bytes, _)| *bytes);
    let all = [sizes.min_bytes, sizes.max_bytes].into_iter().chain(split);
    let option = ["bssplit", "bsrange", "bs"]
        .into_iter()
        .find(|option| section.spec.written(option).is_some())
        .unwrap_or("bs");
    for bytes in all {
        if let Some(needed_by) = needed_by
            && !bytes.is_multiple_of(SECTOR_SIZE)
        {
            return Err(not_sectors(section, option, (bytes, needed_by)));
        }
        if u32::try_from(bytes).is_err() {
            return Err(section.refuse(
                option,
                Fault::new("too large a block").help("less than 4 GiB"),
            ));
        }
    }
    Ok(())
}

fn check_rates(section: &SectionOptions) -> Result<(), JobError> {
    let spec = &section.spec;
    let any = |rates: &ByDirection<u64>| Direction::ALL.into_iter().any(|d| rates[d] > 0);
    let any_iops = |rates: &ByDirection<u32>| Direction::ALL.into_iter().any(|d| rates[d] > 0);
    let exclusive = Fault::new("rate and rate_iops are both given").help("one or the other");
    if any(&spec.rate_bytes) && any_iops(&spec.rate_iops) {
        return Err(section.refuse("rate_iops", exclusive));
    }
    if any(&spec.rate_min_bytes) && any_iops(&spec.rate_iops_min) {
        return Err(section.refuse("rate_iops_min", exclusive));
    }
    for d in Direction::ALL {
        let too_low = Fault::new("the minimum is above the rate");
        if spec.rate_bytes[d] > 0 && spec.rate_bytes[d] < spec.rate_min_bytes[d] {
            return Err(section.refuse("rate_min", too_low));
        }
        if spec.rate_iops[d] > 0 && spec.rate_iops[d] < spec.rate_iops_min[d] {
            return Err(section.refuse("rate_iops_min", too_low));
        }
    }
    Ok(())
}

/// Checks the options of zones, and turns sizes in zones into bytes where the job says how large
/// a zone is; with `zonemode=zbd` it may be the drive that does.
fn fit_zones(section: &mut SectionOptions) -> Result<(), JobError> {
    let spec = &mut section.spec;
    // Only jobs that say how many files are open lose their strided zones in fio.
    if spec.zones.mode == ZoneMode::Strided && spec.open_files > 1 && spec.zones.size_bytes > 0 {
        spec.zones.mode = ZoneMode::None;
    }
    if spec.zones.size_bytes > 0 {
        spec.set_zone_bytes(spec.zones.size_bytes);
    }
    if spec.zones.range_bytes == 0 {
        spec.zones.range_bytes = spec.zones.size_bytes;
    }
    check_zones(section)
}

fn check_zones(section: &SectionOptions) -> Result<(), JobError> {
    let spec = &section.spec;
    let ZoneOptions {
        mode,
        size_bytes,
        range_bytes,
        skip,
        ..
    } = spec.zones;
    let sized = size_bytes > 0;
    let written_as_none = spec.written("zonemode").is_none_or(WrittenOption::is_off);
    if sized && written_as_none {
        let fault = Fault::new("needs a zonemode").help("zonemode=strided or zonemode=zbd");
        return Err(section.refuse("zonesize", fault));
    }
    if mode == ZoneMode::Strided && !sized {
        let fault = Fault::new("needs zonesize").help("such as zonesize=1m");
        return Err(section.refuse("zonemode", fault));
    }
    if mode == ZoneMode::Strided && spec.file_count > 1 {
        let fault = Fault::new("fio's zones then change over between files");
        let help = "nrfiles=1; openfiles of at least 2 turns zones off";
        return Err(section.refuse("zonemode", fault.help(help)));
    }
    let block = spec.smallest_block();
    if mode == ZoneMode::Strided && range_bytes < block {
        let fault = Fault::new("a zone is smaller than a block");
        let help = format!("at least {block} bytes");
        return Err(section.refuse("zonerange", fault.help(help)));
    }
    if matches!(skip, Extent::Percent(percent) if percent > 0) {
        let fault = Fault::new("a percentage of nothing").help("bytes, or zones as in 2z");
        return Err(section.refuse("zoneskip", fault));
    }
    let in_zones = |extent: Option<Extent>| matches!(extent, Some(Extent::Zones(_)));
    for (option, extent) in [
        ("size", spec.size),
        ("io_size", spec.io_size),
        ("offset", Some(spec.offset)),
        ("offset_increment", Some(spec.offset_increment)),
    ] {
        if in_zones(extent) && mode != ZoneMode::Zoned {
            let fault = Fault::new("there are no zones").help("bytes, percent, or zonemode=zbd");
            return Err(section.refuse(option, fault));
        }
    }
    match mode {
        ZoneMode::Zoned => check_zbd(section),
        _ => Ok(()),
    }
}

/// Refuses what of `zonemode=zbd` is not simulated.
fn check_zbd(section: &SectionOptions) -> Result<(), JobError> {
    let spec = &section.spec;
    let refusal = |option: &str, what: &str, help: &str| {
        let fault = Fault::new(format!("{what} with zonemode=zbd")).help(help);
        Err(section.refuse(option, fault))
    };
    if spec.pattern.does(Direction::Trim) {
        return refusal(
            "rw",
            "trims, which reset zones, are not simulated",
            "reads or writes",
        );
    }
    if spec.zones.skip != Extent::default() {
        return refusal("zoneskip", "zones are not skipped", "leave it out");
    }
    if !spec.direct && spec.engine != Engine::IoUringCmd {
        return refusal("direct", "the page cache is not simulated", "direct=1");
    }
    if spec.file_count > 1 {
        return refusal("nrfiles", "a job has one file", "one drive or file a job");
    }
    Ok(())
}

fn check_counts(section: &SectionOptions) -> Result<(), JobError> {
    /// The most processes, more than a machine runs; fio's limit is 4096 (`REAL_MAX_JOBS`).
    const JOB_LIMIT: u32 = 65_536;
    let spec = &section.spec;
    if !(1..=JOB_LIMIT).contains(&spec.processes) {
        return Err(section.refuse(
            "numjobs",
            Fault::new("not a number of processes").help(format!("1 to {JOB_LIMIT}")),
        ));
    }
    if spec.file_count == 0 {
        return Err(section.refuse(
            "nrfiles",
            Fault::new("a job needs a file").help("at least 1"),
        ));
    }
    if spec.io_depth > 1 << 20 {
        return Err(section.refuse(
            "iodepth",
            Fault::new("too deep").help(format!("at most {}", 1 << 20)),
        ));
    }
    Ok(())
}
