//! The options of all engines, in the order of `fio --cmdhelp`.

use super::declaration::Effect::*;
use super::declaration::Values::*;
use super::declaration::{
    ANY, FioOption, Order, PERCENT, POSITIVE, U32, Unmodelled, merge, options,
};
use super::engines;
use crate::fio::direction::{ByDirection, Direction};
use crate::fio::distribution;
use crate::fio::engine::Engine;
use crate::fio::lists;
use crate::fio::spec::*;
use crate::fio::units::Extent;
use crate::fio::units::TimeUnit::*;
use crate::fio::verify::VerifyKind;

/// Sets `continue_on_error`; trims count as writes.
fn continue_on(spec: &mut JobSpec, read: bool, write: bool) {
    spec.continue_on_error = ByDirection {
        read,
        write,
        trim: write,
    };
    spec.verify.goes_on = false;
}

/// Whether fio's threads do more for the job than reads, writes and trims.
fn offloads_more_than_io(spec: &JobSpec) -> bool {
    let flushes =
        spec.fsync_every > 0 || spec.fdatasync_every > 0 || spec.sync_file_range.every > 0;
    let polls = spec.polled || spec.submission_thread;
    let other_engine = matches!(spec.engine, Engine::Posixaio | Engine::Mmap);
    let in_zones = spec.zones.mode != ZoneMode::None;
    spec.offload
        && (flushes
            || polls
            || other_engine
            || in_zones
            || spec.verify.is_on()
            || spec.serialize_overlap)
}

/// Sets whether a job goes on where what it reads again differs.
fn continue_on_verify(spec: &mut JobSpec, read: bool, write: bool) {
    continue_on(spec, read, write);
    spec.verify.goes_on = true;
}

/// Returns `None` for zero, with which fio means "not given".
fn given(extent: Extent) -> Option<Extent> {
    (!matches!(extent, Extent::Bytes(0) | Extent::Percent(0))).then_some(extent)
}

pub(super) static OPTIONS: &[FioOption] = options! {
    /// Text that describes the job.
    "description" => Text(Sets(|job, text| job.spec.description = Some(text)));
    /// The job's name, in place of its section's.
    "name" => Text(Sets(|job, text| job.spec.name = text));
    /// Start when the job of this name has ended.
    "wait_for" => Text(Sets(|job, text| job.wait_for = Some(text)));
    /// The files or drives, with `:` between them; each drive is one of the kind that --drive names.
    "filename" [Last] => Text(Checks(|job, text| job.add_files(&text)));
    /// Lock a file while it is read or written.
    "lockfile" [First] => Word(&["none", "exclusive", "readwrite"], NotSimulated), Unmodelled::always(
        "let one process at a time use a file",
        "give the jobs a file each",
    );
    /// What made-up files' names begin with, used in turn by process.
    "directory" => Text(Sets(|job, text| job.spec.directories = lists::file_names(&text)));
    /// How names of files are made up.
    "filename_format" [Last] = "$jobname.$jobnum.$filenum"
        => Text(Sets(|job, text| job.spec.filename_format = text));
    /// Give each client of a server files of its own.
    "unique_filename" => Flag(Meaningless);
    /// Work on all files below a directory.
    "opendir" => Text(NotSimulated), Unmodelled::always(
        "work on every file that lies below the folder",
        "name the files with filename",
    );
    /// What the job does; `:N` behind a random pattern draws an offset every N I/Os, behind a sequential one skips N bytes.
    "rw" | "readwrite" = "read" => WordAndDetail(
        &Pattern::WORDS,
        Checks(|job, (word, detail)| job.set_pattern(word, detail.as_deref())),
    );
    /// The size of a block.
    "bs" | "blocksize" = "4096" => Amounts(1, Sets(|job, bytes| merge(&mut job.block_bytes, bytes)));
    /// What random offsets are multiples of; bs if not given.
    "ba" | "blockalign" => Amounts(1, Sets(|job, bytes| {
        merge(&mut job.align_bytes, bytes.map(|bytes| bytes.map(Some)))
    }));
    /// Smallest and largest size of a block.
    "bsrange" | "blocksize_range" => Ranges(Sets(|job, ranges| {
        merge(&mut job.block_range, ranges.map(|range| range.map(Some)))
    }));
    /// Sizes of blocks with their shares in percent.
    "bssplit" => OptionalText(Checks(|job, text| job.set_block_split(&text)));
    /// Sizes of blocks need not be multiples of the smallest; refused here, as direct I/O does.
    "bs_unaligned" | "blocksize_unaligned" => Switch(Sets(|job, on| job.spec.unaligned = on));
    /// The size for reads is that of sequential I/O, the one for writes that of random I/O.
    "bs_is_seq_rand" => Flag(Sets(|job, on| job.spec.sizes_by_randomness = on));
    /// Draw the same random numbers in each run.
    "randrepeat" = "1" => Flag(Sets(|job, on| job.spec.random_repeatable = on));
    /// The seed of the random numbers.
    "randseed" => Bytes(0, Sets(|job, (seed, _)| job.spec.random_seed = Some(seed)));
    /// Blocks may repeat before all were visited.
    "norandommap" => Switch(Sets(|job, on| job.spec.no_random_map = on));
    /// Go on without a map of visited blocks where it would be too large.
    "softrandommap" => Flag(Sets(|job, on| job.spec.soft_random_map = on));
    /// Go on after these errors.
    "ignore_error" => OptionalText(NotSimulated), Unmodelled::always(
        "go on after these errors",
        "use continue_on_error",
    );
    /// What the I/Os between two random offsets do.
    "rw_sequencer" => OneOf(&[
        ("sequential", |job| job.spec.sequencer = Sequencer::Sequential),
        ("identical", |job| job.spec.sequencer = Sequencer::Identical),
    ]);
    /// How I/O is submitted.
    way "ioengine" = "psync" => Text(Checks(|job, text| engines::choose(job, text.trim())));
    /// I/Os that the job keeps in flight.
    "iodepth" = "1" => Count(POSITIVE, Sets(|job, n| job.spec.io_depth = n));
    /// I/Os submitted at once; 0: as many as fit.
    way "iodepth_batch" | "iodepth_batch_submit" = "1"
        => Count(ANY, Sets(|job, n| job.spec.batch_submit = n));
    /// Completions to wait for at once.
    way "iodepth_batch_complete_min" | "iodepth_batch_complete" = "1"
        => Count(ANY, Sets(|job, n| job.spec.batch_complete_min = n));
    /// Completions to take at once; not less than to wait for.
    way "iodepth_batch_complete_max" => Count(ANY, Sets(|job, n| job.spec.batch_complete_max = n));
    /// Once the queue was full, let it drain to this depth before it is filled again; 0: never.
    way "iodepth_low" => Count(ANY, Sets(|job, n| job.spec.io_depth_low = n));
    /// Hold an I/O back while one that overlaps it is in flight.
    "serialize_overlap" => Flag(Sets(|job, on| job.spec.serialize_overlap = on));
    /// Who submits: the job, or threads of its own.
    way "io_submit_mode" => OneOf(&[
        ("inline", |job| job.spec.offload = false),
        ("offload", |job| job.spec.offload = true),
    ]), Unmodelled::Work {
        would: "have threads of its own also flush, verify, poll or keep to zones and overlaps",
        instead: "leave those options out, or io_submit_mode",
        applies: offloads_more_than_io,
    };
    /// How much of each file or drive the job works on; all if not given.
    "size" => BytesOrShare(Sets(|job, extent| job.spec.size = given(extent)));
    /// Stop after this much I/O.
    "io_size" | "io_limit" => BytesOrShare(Sets(|job, extent| job.spec.io_size = given(extent)));
    /// Write until the device is full.
    "fill_device" | "fill_fs" => Flag(Sets(|job, on| job.spec.fill_device = on)), Unmodelled::Work {
        would: "also read what it fills the drive with",
        instead: "fill it with one job, and read with another one after stonewall",
        applies: |spec| spec.fill_device && spec.pattern.does(Direction::Read),
    };
    /// The size of a file, or the range that sizes are drawn from.
    "filesize" => Bytes(1, Sets(|job, (one, other)| {
        job.spec.file_size_bytes = Some((one.min(other), one.max(other)));
    }));
    /// Write behind a file's end.
    "file_append" => Flag(NotSimulated), Unmodelled::always(
        "write behind the end of each file",
        "give offset, where that end is",
    );
    /// Where in a file the job begins.
    "offset" | "fileoffset" => BytesOrShare(Sets(|job, extent| job.spec.offset = extent));
    /// What each further process adds to offset.
    "offset_increment" => BytesOrShare(Sets(|job, extent| job.spec.offset_increment = extent));
    /// What an offset in percent is rounded up to; 0: the smallest block.
    "offset_align" => Count(ANY, Sets(|job, n| job.spec.offset_align_bytes = u64::from(n)));
    /// Stop after this many I/Os; 0: no limit.
    "number_ios" => Bytes(0, Sets(|job, (n, _)| job.spec.number_ios = n));
    /// Where random numbers come from; always blklab's own generator, and lfsr visits each block once a pass.
    "random_generator" => OneOf(&[
        ("tausworthe", |job| job.spec.generator = RandomGenerator::Tausworthe),
        ("lfsr", |job| job.spec.generator = RandomGenerator::Lfsr),
        ("tausworthe64", |job| job.spec.generator = RandomGenerator::Tausworthe64),
    ]);
    /// How random offsets spread over a file.
    "random_distribution" = "random" => WordAndDetail(
        &["random", "zipf", "pareto", "normal", "zoned", "zoned_abs"],
        Checks(|job, (word, detail)| {
            let spec = &mut job.spec;
            let before = &spec.distribution;
            spec.distribution = distribution::offsets(word, detail.as_deref(), before, spec.kb_base)?;
            Ok(())
        }),
    );
    /// How many I/Os of a random pattern are random.
    "percentage_random" = "100"
        => Counts(PERCENT, Sets(|job, percent| merge(&mut job.spec.random_percent, percent)));
    /// Removed from fio.
    "percentage_sequential" => Removed;
    /// Draw the same random numbers in each run, whatever they are for.
    "allrandrepeat" => Flag(Sets(|job, on| job.spec.all_random_repeatable = on));
    /// How many files a process works on.
    "nrfiles" | "nr_files" = "1" => Count(ANY, Sets(|job, n| job.spec.file_count = n));
    /// Which of its files a process turns to next; `:N` stays with one for N I/Os.
    "file_service_type" = "roundrobin" => WordAndDetail(
        &["random", "zipf", "pareto", "normal", "gauss", "roundrobin", "sequential"],
        Checks(|job, (word, detail)| {
            let spec = &mut job.spec;
            (spec.file_service, spec.file_service_count) =
                distribution::files(word, detail.as_deref())?;
            Ok(())
        }),
    );
    /// How many files are open at once.
    "openfiles" => Count(ANY, Sets(|job, n| job.spec.open_files = n));
    /// How files get their blocks before the job starts.
    way "fallocate" => OneOf(&[
        ("none", |job| job.spec.fallocate = Fallocate::None),
        ("native", |job| job.spec.fallocate = Fallocate::Native),
        ("posix", |job| job.spec.fallocate = Fallocate::Posix),
        ("keep", |job| job.spec.fallocate = Fallocate::Keep),
        ("truncate", |job| job.spec.fallocate = Fallocate::Truncate),
        ("0", |job| job.spec.fallocate = Fallocate::None),
        ("1", |job| job.spec.fallocate = Fallocate::Posix),
    ]);
    /// What the kernel is told about accesses to come.
    way "fadvise_hint" = "1" => OneOf(&[
        ("0", |job| job.spec.fadvise_hint = FadviseHint::None),
        ("1", |job| job.spec.fadvise_hint = FadviseHint::ByPattern),
        ("random", |job| job.spec.fadvise_hint = FadviseHint::Random),
        ("sequential", |job| job.spec.fadvise_hint = FadviseHint::Sequential),
    ]);
    /// fsync after this many writes; 0: never.
    "fsync" => Count(ANY, Sets(|job, n| job.spec.fsync_every = n));
    /// fdatasync after this many writes; 0: never.
    "fdatasync" => Count(ANY, Sets(|job, n| job.spec.fdatasync_every = n));
    /// Make one in this many writes a barrier.
    "write_barrier" => Count(ANY, NotSimulated), Unmodelled::always(
        "send one in this many writes as a barrier",
        "use fdatasync, which flushes as often",
    );
    /// sync_file_range after this many writes; with direct=1 refused, as it does nothing then.
    "sync_file_range" => Words(
        &["wait_before", "write", "wait_after"],
        Sets(|job, text| job.spec.sync_file_range.add(&text)),
    ), Unmodelled::Work {
        would: "have the page cache, where direct I/O leaves nothing, write out and wait",
        instead: "use fdatasync",
        applies: |spec| spec.direct && spec.sync_file_range.every > 0,
    };
    /// Bypass the page cache.
    "direct" => Flag(Sets(|job, on| job.spec.direct = on));
    /// Writes are done completely or not at all; implies direct.
    "atomic" => Flag(Sets(|job, on| job.spec.atomic = on));
    /// Use the page cache; the opposite of direct.
    "buffered" => Flag(Sets(|job, on| job.spec.direct = !on));
    /// Lay files out before they are written.
    "overwrite" => Flag(Sets(|job, on| job.spec.overwrite = on));
    /// Run the job this many times.
    "loops" = "1" => Count(ANY, Sets(|job, n| job.spec.loops = n));
    /// How many processes run the job.
    "numjobs" = "1" => Count(ANY, Sets(|job, n| job.spec.processes = n));
    /// Start later; of a range each process draws its own.
    "startdelay" => Times(Seconds, Sets(|job, times| {
        let [Some(first), ..] = times else { return };
        let last = times.into_iter().flatten().last().unwrap_or(first);
        job.spec.start_delay_us = (first.min(last), first.max(last));
    }));
    /// Stop after this time; 0: when the work is done.
    "runtime" | "timeout" => Time(Seconds, Sets(|job, us| job.spec.runtime_us = us));
    /// Start over until the runtime is up.
    "time_based" => Switch(Sets(|job, on| job.spec.time_based = on));
    /// Verify what an earlier run wrote, and do no other I/O.
    "verify_only" => Switch(Sets(|job, on| job.spec.verify.only = on));
    /// Run this long before anything is measured.
    "ramp_time" => Time(Seconds, Sets(|job, us| job.spec.ramp_us = us));
    /// The clock that fio measures with.
    "clocksource" => Word(&["gettimeofday", "clock_gettime", "cpu"], Meaningless);
    /// Where buffers come from.
    "mem" | "iomem" => WordAndDetail(
        &["malloc", "shm", "shmhuge", "mmap", "mmapshared", "mmaphuge"],
        Meaningless,
    );
    /// What buffers are aligned to.
    "iomem_align" | "mem_align" => Count(ANY, Meaningless);
    /// Read what was written, and compare it.
    "verify" => Word(
        &VerifyKind::WORDS,
        Sets(|job, word| job.spec.verify.kind = VerifyKind::named(word)),
    );
    /// Verify when all is written.
    "do_verify" = "1" => Flag(Sets(|job, on| job.spec.verify.writes_alone = !on));
    /// Without effect in fio.
    "verifysort" => Obsolete;
    /// Without effect in fio.
    "verifysort_nr" => Obsolete;
    /// The size of the pieces that each have a checksum.
    "verify_interval" => Count(80..=U32, Sets(|job, n| job.spec.verify.interval_bytes = n.into()));
    /// Where in a block the checksum lies.
    "verify_offset" => Count(40..=U32, Sets(|job, n| job.spec.verify.offset_bytes = n.into()));
    /// What blocks are filled with.
    "verify_pattern" => OptionalText(Sets(|job, text| job.spec.verify.pattern = Some(text)));
    /// End at the first block that differs.
    "verify_fatal" => Flag(Sets(|job, on| job.spec.verify.fatal = on));
    /// Keep the data that was read where it differs.
    "verify_dump" => Flag(Meaningless);
    /// Threads that compare.
    "verify_async" => Count(ANY, NotSimulated), Unmodelled::Work {
        would: "compare in threads of its own, beside the job",
        instead: "leave it out: the job compares itself",
        applies: |spec| spec.verify.is_on(),
    };
    /// Verify after this many writes.
    "verify_backlog" => Bytes(0, Sets(|job, (n, _)| job.spec.verify.backlog = n));
    /// How many blocks are verified at once.
    "verify_backlog_batch" => Count(ANY, Sets(|job, n| job.spec.verify.backlog_batch = n));
    /// The CPUs of the threads that compare.
    "verify_async_cpus" => OptionalText(Meaningless);
    /// Verify without a list of what was written.
    "experimental_verify" => Flag(NotSimulated), Unmodelled::Work {
        would: "draw the job's I/Os once more to find what to read, not keep a list of its writes",
        instead: "leave it out: the same blocks are read from the list",
        applies: |spec| spec.verify.is_on(),
    };
    /// Begin to verify where the last run ended.
    "verify_state_load" => Flag(NotSimulated), Unmodelled::Work {
        would: "verify only up to where an earlier run was stopped",
        instead: "leave it out: a run begins on a drive without fio's blocks",
        applies: |spec| spec.verify.is_on(),
    };
    /// Keep where verifying ended.
    "verify_state_save" => Flag(Meaningless);
    /// Trim this share of what is verified.
    "trim_percentage" => Count(PERCENT, NotSimulated), Unmodelled::always(
        "trim this share of the blocks that it verifies",
        "put a job with rw=randtrim beside this one",
    );
    /// Verify that trimmed blocks read as zeroes.
    "trim_verify_zero" => Flag(Meaningless);
    /// Trim after this many writes.
    "trim_backlog" => Bytes(0, NotSimulated), Unmodelled::always(
        "trim blocks again after this many writes",
        "put a job with rw=randtrim beside this one",
    );
    /// How many blocks are trimmed at once.
    "trim_backlog_batch" => Count(ANY, Meaningless);
    /// Log the I/O to a file that can be replayed.
    "write_iolog" => Text(NotSimulated);
    /// Replay a trace in place of the job's own I/O.
    "read_iolog" => Text(Sets(|job, logs| {
        job.spec.replay.logs = logs.split(':').map(str::to_string).collect();
    }));
    /// Read the trace in pieces.
    "read_iolog_chunked" => Flag(Meaningless);
    /// Replay without the pauses of the trace.
    "replay_no_stall" => Flag(Sets(|job, on| job.spec.replay.no_stall = on));
    /// Replay on this device.
    "replay_redirect" => Text(Sets(|job, name| job.spec.replay.redirect = Some(name)));
    /// Divide the trace's offsets by this.
    "replay_scale" => Count(ANY, Sets(|job, n| job.spec.replay.offset_divisor = n));
    /// Align the trace's offsets to this.
    "replay_align" => Count(ANY, Sets(|job, bytes| job.spec.replay.align_bytes = bytes));
    /// Replay this much faster, in percent.
    "replay_time_scale" = "100" => Count(POSITIVE, Sets(|job, percent| {
        job.spec.replay.time_scale_percent = percent;
    }));
    /// Leave these operations of the trace out.
    "replay_skip" => OptionalText(NotSimulated);
    /// Write several traces into this one.
    "merge_blktrace_file" => Text(NotSimulated);
    /// How fast each of these traces is replayed.
    "merge_blktrace_scalars" => Fractions(f64::MIN..=f64::MAX, NotSimulated);
    /// How often each of these traces is replayed.
    "merge_blktrace_iters" => Fractions(f64::MIN..=f64::MAX, NotSimulated);
    /// A command to run before the job.
    "exec_prerun" => Text(Meaningless);
    /// A command to run after the job.
    "exec_postrun" => Text(Meaningless);
    /// The drive's I/O scheduler; that of `blklab run`, where --scheduler names none.
    "ioscheduler" => Text(Sets(|job, text| job.spec.io_scheduler = Some(text)));
    /// How a drive's zones are used.
    "zonemode" => OneOf(&[
        ("none", |job| job.spec.zones.mode = ZoneMode::None),
        ("strided", |job| job.spec.zones.mode = ZoneMode::Strided),
        ("zbd", |job| job.spec.zones.mode = ZoneMode::Zoned),
    ]);
    /// With strided, how much to transfer in a zone before the next; with zbd, how large a zone is.
    "zonesize" => Bytes(0, Sets(|job, (bytes, _)| job.spec.zones.size_bytes = bytes));
    /// With zbd, how much of a zone can be written where the drive has no zones of its own.
    "zonecapacity" => Bytes(0, Sets(|job, (bytes, _)| job.spec.zones.capacity_bytes = bytes));
    /// With strided, how large a zone is; zonesize if not given.
    "zonerange" => Bytes(0, Sets(|job, (bytes, _)| job.spec.zones.range_bytes = bytes));
    /// With strided, what is skipped behind a zone.
    "zoneskip" => BytesOrShare(Sets(|job, extent| job.spec.zones.skip = extent));
    /// With zbd, read where nothing was written, too.
    "read_beyond_wp" => Flag(Sets(|job, on| job.spec.zones.read_beyond_wp = on));
    /// With zbd, how many zones all jobs write to at once.
    "max_open_zones" => Count(0..=4096, Sets(|job, n| job.spec.zones.max_open = n));
    /// With zbd, how many zones a job writes to at once.
    "job_max_open_zones" => Count(0..=4096, Sets(|job, n| job.spec.zones.job_max_open = n));
    /// Do not look at the drive's limit of open zones.
    "ignore_zone_limits" => Flag(Sets(|job, on| job.spec.zones.ignore_limits = on));
    /// With zbd, how much of the job's range holds data when zones begin to be reset.
    "zone_reset_threshold" => Fraction(0.0..=1.0, Sets(|job, share| {
        job.spec.zones.reset_threshold = share;
    }));
    /// With zbd, the share of writes before which a zone is reset then.
    "zone_reset_frequency" => Fraction(0.0..=1.0, Sets(|job, share| {
        job.spec.zones.reset_frequency = share;
    }));
    /// Lock this much memory.
    "lockmem" => Bytes(0, Meaningless);
    /// The share of reads in a mix.
    "rwmixread" = "50" => Count(PERCENT, Sets(|job, percent| job.spec.read_percent = percent));
    /// The share of writes in a mix.
    "rwmixwrite" => Count(PERCENT, Sets(|job, percent| job.spec.read_percent = 100 - percent));
    /// Removed from fio.
    "rwmixcycle" => Removed;
    /// The processes' CPU priority.
    "nice" => Signed(-20..=19, Meaningless);
    /// The level of the processes' I/O priority, 0 the highest.
    way "prio" => Count(0..=7, Sets(|job, level| job.priority().level = level as u8));
    /// The class of the processes' I/O priority: 1 real time, 2 best effort, 3 idle.
    way "prioclass" => Count(0..=3, Sets(|job, class| job.priority().class = class as u8));
    /// Pause this long between blocks.
    "thinktime" => Time(Microseconds, Sets(|job, us| job.spec.think.pause_us = us));
    /// How much of the pause keeps the CPU busy.
    "thinktime_spin" => Time(Microseconds, Sets(|job, us| job.spec.think.spin_us = us));
    /// Pause after this many blocks.
    "thinktime_blocks" = "1" => Count(ANY, Sets(|job, n| job.spec.think.blocks = n));
    /// Whether blocks count when they are complete or when they are issued.
    "thinktime_blocks_type" => OneOf(&[
        ("complete", |job| job.spec.think.count_issues = false),
        ("issue", |job| job.spec.think.count_issues = true),
    ]);
    /// Pause after so much time of I/O.
    "thinktime_iotime" => Time(Seconds, Sets(|job, us| job.spec.think.io_time_us = us));
    /// The most bytes a second; 0: no limit.
    "rate" => Amounts(0, Sets(|job, bytes| merge(&mut job.spec.rate_bytes, bytes)));
    /// End the job where it does fewer bytes a second.
    "rate_min" | "ratemin" => Amounts(0, Sets(|job, bytes| merge(&mut job.spec.rate_min_bytes, bytes)));
    /// How a rate is spread over time.
    "rate_process" => OneOf(&[
        ("linear", |job| job.spec.rate_process = RateProcess::Linear),
        ("poisson", |job| job.spec.rate_process = RateProcess::Poisson),
    ]);
    /// The time over which the minimum rates must hold, in milliseconds.
    "rate_cycle" | "ratecycle" = "1000" => Count(ANY, Sets(|job, ms| job.spec.rate_cycle_ms = ms));
    /// The rate also runs while the job pauses.
    "rate_ignore_thinktime" => Flag(Sets(|job, on| job.spec.think.rate_ignores = on));
    /// The most I/Os a second; 0: no limit.
    "rate_iops" => Counts(ANY, Sets(|job, iops| merge(&mut job.spec.rate_iops, iops)));
    /// End the job where it does fewer I/Os a second.
    "rate_iops_min" => Counts(ANY, Sets(|job, iops| merge(&mut job.spec.rate_iops_min, iops)));
    /// End the job at the first I/O that takes longer; 0: never.
    "max_latency" => Times(Microseconds, Sets(|job, us| merge(&mut job.spec.max_latency_us, us)));
    /// Find the depth at which latencies stay below this.
    "latency_target" => Time(Microseconds, Sets(|job, us| job.latency_target().target_us = us));
    /// How long latencies must stay below latency_target.
    "latency_window" => Time(Microseconds, Sets(|job, us| job.latency_target().window_us = us));
    /// The share of I/Os that must stay below latency_target, in percent.
    "latency_percentile" = "100" => Fraction(0.0..=100.0, Sets(|job, percent| {
        job.latency_target().percentile = percent;
    }));
    /// Keep adjusting the depth.
    "latency_run" => Flag(Sets(|job, on| job.latency_target().keep_running = on));
    /// Drop a file's pages from the cache first.
    "invalidate" = "1" => Flag(Sets(|job, on| job.spec.invalidate = on));
    /// How writes are opened: O_SYNC, O_DSYNC or neither.
    "sync" => OneOf(&[
        ("none", |job| job.spec.sync = SyncMode::None),
        ("0", |job| job.spec.sync = SyncMode::None),
        ("sync", |job| job.spec.sync = SyncMode::Sync),
        ("1", |job| job.spec.sync = SyncMode::Sync),
        ("dsync", |job| job.spec.sync = SyncMode::Dsync),
    ]);
    /// The expected lifetime of written data.
    "write_hint" => Word(&["none", "short", "medium", "long", "extreme"], NotSimulated);
    /// Lay files out one after the other.
    "create_serialize" => Flag(Meaningless);
    /// fsync a file that was laid out.
    "create_fsync" => Flag(Meaningless);
    /// Lay a file out when it is opened.
    "create_on_open" => Flag(Sets(|job, on| job.spec.create_on_open = on));
    /// Lay files out, and do no other I/O.
    "create_only" => Flag(NotSimulated), Unmodelled::always(
        "lay out the files and do no other I/O",
        "give rw=write",
    );
    /// Files that are missing may be made.
    "allow_file_create" => Flag(Meaningless);
    /// Mounted devices may be written.
    "allow_mounted_write" => Flag(Meaningless);
    /// Read files into the page cache first; with direct=1 refused, as nothing finds them there.
    "pre_read" => Flag(Sets(|job, on| job.spec.pre_read = on)), Unmodelled::Work {
        would: "read each file into the page cache first",
        instead: "leave it out: direct I/O goes to the drive all the same",
        applies: |spec| spec.direct && spec.pre_read,
    };
    /// The CPUs of the job, as a mask.
    way "cpumask" => Count(ANY, Sets(|job, mask| job.spec.cpus = lists::cpus_of_mask(mask)));
    /// The CPUs of the job.
    way "cpus_allowed" => OptionalText(Checks(|job, text| {
        job.spec.cpus = lists::cpus(&text)?;
        Ok(())
    }));
    /// Whether processes share the CPUs or have one each.
    way "cpus_allowed_policy" [First] => OneOf(&[
        ("shared", |job| job.spec.cpus_split = false),
        ("split", |job| job.spec.cpus_split = true),
    ]);
    /// The NUMA nodes of the job.
    "numa_cpu_nodes" => OptionalText(Meaningless);
    /// The NUMA policy of the job's memory.
    "numa_mem_policy" => OptionalText(Meaningless);
    /// fsync when the job has written all.
    "end_fsync" => Flag(Sets(|job, on| job.spec.end_fsync = on));
    /// fsync when a file is closed.
    "fsync_on_close" => Flag(Sets(|job, on| job.spec.fsync_on_close = on));
    /// Remove files after the job.
    "unlink" => Flag(Sets(|job, on| job.spec.unlink = on));
    /// Remove files between two loops.
    "unlink_each_loop" => Flag(Sets(|job, on| job.spec.unlink_each_loop = on));
    /// End other jobs when the first has ended.
    "exitall" => Switch(Sets(|job, on| job.spec.exit_all = on));
    /// Which jobs exitall ends.
    "exit_what" => OneOf(&[
        ("group", |job| job.spec.exit_what = ExitWhat::Group),
        ("stonewall", |job| job.spec.exit_what = ExitWhat::Stonewall),
        ("all", |job| job.spec.exit_what = ExitWhat::All),
    ]);
    /// End other jobs when one has failed.
    "exitall_on_error" => Switch(Sets(|job, on| job.spec.exit_all_on_error = on));
    /// Start when all earlier jobs have ended.
    "stonewall" | "wait_for_previous" => Switch(Sets(|job, on| job.spec.stonewall = on));
    /// Begin a new group in the report.
    "new_group" => Switch(Sets(|job, on| job.spec.new_group = on));
    /// Threads of one process rather than processes.
    "thread" => Switch(Sets(|job, on| job.spec.threads = on));
    /// Each process writes logs of its own; without it, all write into one.
    "per_job_logs" = "1" => Flag(Sets(|job, on| job.spec.logs.shared = !on));
    /// Log bandwidths to files whose names begin so (`NAME_bw.1.log`); `blklab run`
    /// writes them.
    "write_bw_log" => OptionalText(Sets(|job, name| job.spec.logs.bandwidth = Some(name)));
    /// The window that bandwidths are taken over, in milliseconds.
    "bwavgtime" = "500" => Count(ANY, Sets(|job, ms| job.spec.bandwidth_window_ms = ms));
    /// Log latencies to files whose names begin so (`NAME_lat.1.log`, `_clat`, `_slat`);
    /// `blklab run` writes them.
    "write_lat_log" => OptionalText(Sets(|job, name| job.spec.logs.latency = Some(name)));
    /// Log IOPS to files whose names begin so (`NAME_iops.1.log`); `blklab run` writes
    /// them.
    "write_iops_log" => OptionalText(Sets(|job, name| job.spec.logs.iops = Some(name)));
    /// The window that IOPS are taken over, in milliseconds.
    "iopsavgtime" = "500" => Count(ANY, Sets(|job, ms| job.spec.iops_window_ms = ms));
    /// How many entries of a log are kept in memory.
    "log_entries" => Count(1024..=1 << 20, Meaningless);
    /// Log means over this time.
    "log_avg_msec" => Count(ANY, Sets(|job, ms| job.spec.logs.mean_over_ms = ms));
    /// Log histograms over this time.
    "log_hist_msec" => Count(ANY, Sets(|job, ms| job.spec.logs.histogram_over_ms = ms));
    /// How coarse histograms are: each step merges pairs of bins.
    "log_hist_coarseness" => Count(0..=6, Sets(|job, n| job.spec.logs.histogram_coarseness = n));
    /// Log histograms of completion latencies to files whose names begin so
    /// (`NAME_clat_hist.1.log`), one every `log_hist_msec`; `blklab run` writes them.
    "write_hist_log" => OptionalText(Sets(|job, name| job.spec.logs.histogram = Some(name)));
    /// Log the largest value, not the mean.
    "log_max_value" => Flag(Sets(|job, on| job.spec.logs.largest = on));
    /// Log offsets.
    "log_offset" => Flag(Sets(|job, on| job.spec.logs.offsets = on));
    /// Log priorities.
    "log_prio" => Flag(Sets(|job, on| job.spec.logs.priorities = on));
    /// Compress logs beyond this size.
    "log_compression" => Count(1024..=512 << 20, Meaningless);
    /// The CPUs that compress.
    "log_compression_cpus" => OptionalText(Meaningless);
    /// Leave logs compressed.
    "log_store_compressed" => Flag(NotSimulated);
    /// Log Unix times.
    "log_unix_epoch" => Flag(NotSimulated);
    /// Log times of another clock.
    "log_alternate_epoch" => Flag(NotSimulated);
    /// The clock of log_alternate_epoch.
    "log_alternate_epoch_clock_id" => Count(ANY, Meaningless);
    /// Report how long blocks lived.
    "block_error_percentiles" => Flag(Meaningless);
    /// Report a group as one job.
    "group_reporting" => Switch(Sets(|job, on| job.spec.group_reporting = on));
    /// The job counts in the results.
    "stats" = "1" => Flag(Sets(|job, on| job.spec.stats = on));
    /// Write zeroes.
    "zero_buffers" => Switch(Meaningless);
    /// Fill buffers anew for each write.
    "refill_buffers" => Switch(Meaningless);
    /// Change buffers a little for each write.
    "scramble_buffers" => Flag(Meaningless);
    /// What buffers are filled with.
    "buffer_pattern" => OptionalText(Meaningless);
    /// How far data can be compressed.
    "buffer_compress_percentage" => Count(PERCENT, Meaningless);
    /// The size of the pieces that can be compressed.
    "buffer_compress_chunk" => Count(ANY, Meaningless);
    /// How much of the data is equal.
    "dedupe_percentage" => Count(PERCENT, Meaningless);
    /// How equal data is made.
    "dedupe_mode" => Word(&["repeat", "working_set"], Meaningless);
    /// How much data may be equal to earlier data.
    "dedupe_working_set_percentage" => Count(PERCENT, Meaningless);
    /// Processes share their equal data.
    "dedupe_global" => Flag(Meaningless);
    /// Report percentiles of completion latencies.
    "clat_percentiles" = "1" => Flag(Sets(|job, on| job.spec.clat_percentiles = on));
    /// Report percentiles of total latencies.
    "lat_percentiles" => Flag(Sets(|job, on| job.spec.lat_percentiles = on));
    /// Report percentiles of submission latencies.
    "slat_percentiles" => Flag(Sets(|job, on| job.spec.slat_percentiles = on));
    /// The percentiles to report; if not given, 17 from 1 to 99.99.
    "percentile_list" => Fractions(0.0..=100.0, Sets(|job, list| job.spec.percentiles = list));
    /// How many digits of figures are reported.
    "significant_figures" => Count(1..=10, Meaningless);
    /// Report the drives' utilisation.
    "disk_util" => Flag(Meaningless);
    /// Look at the clock less often.
    "gtod_reduce" => Flag(Meaningless);
    /// Do not measure total latencies.
    "disable_lat" => Flag(Meaningless);
    /// Do not measure completion latencies.
    "disable_clat" => Flag(Meaningless);
    /// Do not measure submission latencies.
    "disable_slat" => Flag(Meaningless);
    /// Do not measure bandwidths.
    "disable_bw_measurement" | "disable_bw" => Flag(Meaningless);
    /// A CPU that looks at the clock for the others.
    "gtod_cpu" => Count(ANY, Meaningless);
    /// Report reads, writes and trims apart, together, or both.
    "unified_rw_reporting" => OneOf(&[
        ("none", |job| job.spec.unified = UnifiedReporting::None),
        ("mixed", |job| job.spec.unified = UnifiedReporting::Mixed),
        ("both", |job| job.spec.unified = UnifiedReporting::Both),
        ("0", |job| job.spec.unified = UnifiedReporting::None),
        ("1", |job| job.spec.unified = UnifiedReporting::Mixed),
        ("2", |job| job.spec.unified = UnifiedReporting::Both),
    ]), Unmodelled::Setting {
        but: "",
        applies: |spec| spec.unified != UnifiedReporting::None,
    };
    /// Go on after a failed I/O of this kind.
    "continue_on_error" => OneOf(&[
        ("none", |job| continue_on(&mut job.spec, false, false)),
        ("read", |job| continue_on(&mut job.spec, true, false)),
        ("write", |job| continue_on(&mut job.spec, false, true)),
        ("io", |job| continue_on(&mut job.spec, true, true)),
        ("verify", |job| continue_on_verify(&mut job.spec, false, false)),
        ("all", |job| continue_on_verify(&mut job.spec, true, true)),
        ("0", |job| continue_on(&mut job.spec, false, false)),
        ("1", |job| continue_on_verify(&mut job.spec, true, true)),
    ]);
    /// Report each error.
    "error_dump" => Flag(Meaningless);
    /// Do what another benchmark does.
    "profile" => Text(NotSimulated), Unmodelled::always(
        "do another benchmark's work in place of the job's",
        "write that work as jobs",
    );
    /// The control group of the job's processes.
    way "cgroup" => Text(Sets(|job, text| job.spec.cgroup = Some(text)));
    /// Keep the control group after the job.
    "cgroup_nodelete" => Flag(Meaningless);
    /// The control group's weight.
    way "cgroup_weight" => Count(100..=1000, Sets(|job, weight| job.spec.cgroup_weight = Some(weight)));
    /// The user that the job runs as.
    "uid" => Count(ANY, Meaningless);
    /// The group that the job runs as.
    "gid" => Count(ANY, Meaningless);
    /// What a kilobyte is, in numbers and in the report.
    "kb_base" [First] = "1024" => OneOf(&[
        ("1024", |job| job.spec.kb_base = 1024),
        ("1000", |job| job.spec.kb_base = 1000),
    ]);
    /// Report bytes or bits.
    "unit_base" [First] => Word(&["0", "8", "1"], Meaningless);
    /// How large a huge page is.
    "hugepage-size" => Count(ANY, Meaningless);
    /// The flow that the job is part of.
    "flow_id" => Count(ANY, Sets(|job, id| job.spec.flow.id = id));
    /// The weight of each of the job's processes in its flow, whose I/Os keep to that proportion.
    "flow" => Count(0..=1000, Sets(|job, weight| job.spec.flow.weight = weight));
    /// Without effect in fio.
    "flow_watermark" => Obsolete;
    /// How many microseconds a process sleeps that is ahead of its flow; 0: it spins.
    "flow_sleep" => Count(ANY, Sets(|job, us| job.spec.flow.sleep_us = us));
    /// End when the figures of each second change by less than this, as `iops:2%`.
    "steadystate" | "ss" = "iops_slope:0.01%" => WordAndDetail(
        &["iops", "iops_slope", "bw", "bw_slope"],
        Checks(|job, (word, detail)| job.set_steady_state(word, detail.as_deref())),
    );
    /// For how many seconds figures must not change; 0: the job does not end by them.
    "steadystate_duration" | "ss_dur" => Time(Seconds, Sets(|job, us| {
        job.spec.steady_state.seconds = u32::try_from(us / 1_000_000).unwrap_or(u32::MAX);
    }));
    /// When to begin to check for a steady state.
    "steadystate_ramp_time" | "ss_ramp" => Time(Seconds, Sets(|job, us| {
        job.spec.steady_state.ramp_us = us;
    }));
};
