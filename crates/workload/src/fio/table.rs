//! Every option fio 3.33 knows: name, alias, what its value looks like, and
//! what becomes of it here.
//!
//! The names, aliases and ranges are those `fio --cmdhelp` and
//! `fio --enghelp=ENGINE` print; a test compares them where fio is installed.

use Kind::*;
use Outcome::*;

use super::units::TimeUnit;

/// What an option's value looks like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// `=0` or `=1`.
    Flag,
    /// Alone, or `=0` or `=1`.
    Switch,
    /// Up to three numbers with unit prefixes, for reads, writes and trims.
    Number { min: u64, max: u64 },
    /// A number that may be negative.
    Signed { min: i64, max: i64 },
    /// An amount of data; two of them are a range where the option has one.
    Bytes { min: u64 },
    /// An amount of data, or a percentage, or a number of zones.
    Extent,
    /// Up to three spans of time.
    Time(TimeUnit),
    /// Up to three ranges of sizes.
    Ranges,
    /// Fractions with `:` between them.
    Fractions { min: f64, max: f64, most: usize },
    /// Any text.
    Text,
    /// Any text, or nothing.
    OptionalText,
    /// One of these words; some take more after a `:`.
    Choice(&'static [&'static str]),
    /// Any of these words, with `,` between them, and a number after a `:`.
    Choices(&'static [&'static str]),
    /// fio no longer takes it.
    Removed,
    /// fio takes it and does nothing.
    Obsolete,
}

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is in the [`JobSpec`](super::JobSpec).
    Used,
    /// It has no meaning where no data is kept and no time is lost measuring.
    Meaningless,
    /// It would change the I/O, and that is not simulated.
    NotModelled,
}

/// An option of fio's.
#[derive(Debug)]
pub(crate) struct OptionInfo {
    pub name: &'static str,
    pub alias: Option<&'static str>,
    pub kind: Kind,
    pub outcome: Outcome,
    /// The engines that have it; empty: all.
    pub engines: &'static [&'static str],
}

const fn option(name: &'static str, kind: Kind, outcome: Outcome) -> OptionInfo {
    OptionInfo {
        name,
        alias: None,
        kind,
        outcome,
        engines: &[],
    }
}

const fn aliased(
    name: &'static str,
    alias: &'static str,
    kind: Kind,
    outcome: Outcome,
) -> OptionInfo {
    OptionInfo {
        name,
        alias: Some(alias),
        kind,
        outcome,
        engines: &[],
    }
}

const fn engine(
    engines: &'static [&'static str],
    name: &'static str,
    kind: Kind,
    outcome: Outcome,
) -> OptionInfo {
    OptionInfo {
        name,
        alias: None,
        kind,
        outcome,
        engines,
    }
}

const U32: u64 = u32::MAX as u64;
const ANY: Kind = Number { min: 0, max: U32 };
const POSITIVE: Kind = Number { min: 1, max: U32 };
const ANY64: Kind = Number {
    min: 0,
    max: u64::MAX,
};
const POSITIVE64: Kind = Number {
    min: 1,
    max: u64::MAX,
};
const PERCENT: Kind = Number { min: 0, max: 100 };
const SECONDS: Kind = Time(TimeUnit::Seconds);
const MICROSECONDS: Kind = Time(TimeUnit::Microseconds);
const AMOUNT: Kind = Bytes { min: 0 };

/// The patterns `rw` takes.
pub(crate) const PATTERNS: &[&str] = &[
    "read",
    "write",
    "trim",
    "randread",
    "randwrite",
    "randtrim",
    "rw",
    "readwrite",
    "randrw",
    "trimwrite",
    "randtrimwrite",
];

/// The engines fio 3.33 has, on any platform and in any build.
pub(crate) const ENGINES: &[&str] = &[
    "sync",
    "psync",
    "vsync",
    "pvsync",
    "pvsync2",
    "libaio",
    "io_uring",
    "io_uring_cmd",
    "posixaio",
    "solarisaio",
    "windowsaio",
    "mmap",
    "splice",
    "netsplice",
    "sg",
    "null",
    "net",
    "cpuio",
    "rdma",
    "librpma_apm_client",
    "librpma_apm_server",
    "librpma_gpspm_client",
    "librpma_gpspm_server",
    "e4defrag",
    "falloc",
    "ftruncate",
    "filecreate",
    "filestat",
    "filedelete",
    "exec",
    "gfapi",
    "gfapi_async",
    "libhdfs",
    "http",
    "rados",
    "rbd",
    "nbd",
    "nfs",
    "dfs",
    "ime_psync",
    "ime_psyncv",
    "ime_aio",
    "mtd",
    "pmemblk",
    "dev-dax",
    "libpmem",
    "libcufile",
    "libiscsi",
    "libzbc",
    "xnvme",
    "external",
];

const LIBAIO: &[&str] = &["libaio"];
const URING: &[&str] = &["io_uring", "io_uring_cmd"];
const COMMAND_PRIORITY: &[&str] = &["libaio", "io_uring", "io_uring_cmd"];
const POLLED: &[&str] = &["pvsync2", "io_uring", "io_uring_cmd", "sg", "xnvme"];
const SUBMITTED: &[&str] = &["io_uring", "io_uring_cmd", "xnvme"];
const NOWAIT: &[&str] = &["pvsync2", "libaio", "io_uring", "io_uring_cmd"];
const UNCACHED: &[&str] = &["pvsync2", "io_uring", "io_uring_cmd"];
const SG: &[&str] = &["sg"];
const MMAP: &[&str] = &["mmap"];
const CPU: &[&str] = &["cpuio"];
const NET: &[&str] = &["net", "netsplice"];
const ADDRESSED: &[&str] = &[
    "net",
    "netsplice",
    "rdma",
    "libhdfs",
    "librpma_apm_client",
    "librpma_apm_server",
    "librpma_gpspm_client",
    "librpma_gpspm_server",
];
const RDMA: &[&str] = &["rdma"];
const EXEC: &[&str] = &["exec"];
const FILESTAT: &[&str] = &["filestat"];
const E4DEFRAG: &[&str] = &["e4defrag"];
const GLUSTER: &[&str] = &["gfapi", "gfapi_async"];
const MTD: &[&str] = &["mtd"];
const NBD: &[&str] = &["nbd"];
const RADOS: &[&str] = &["rados"];
const RBD: &[&str] = &["rbd"];
const CEPH: &[&str] = &["rados", "rbd"];
const HTTP: &[&str] = &["http"];
const DFS: &[&str] = &["dfs"];
const HDFS: &[&str] = &["libhdfs"];
const CUFILE: &[&str] = &["libcufile"];
const RPMA: &[&str] = &[
    "librpma_apm_client",
    "librpma_apm_server",
    "librpma_gpspm_client",
    "librpma_gpspm_server",
];
const XNVME: &[&str] = &["xnvme"];

/// All of them.
pub(crate) static OPTIONS: &[OptionInfo] = &[
    option("description", Text, Used),
    option("name", Text, Used),
    option("wait_for", Text, Used),
    option("filename", Text, Used),
    option(
        "lockfile",
        Choice(&["none", "exclusive", "readwrite"]),
        NotModelled,
    ),
    option("directory", Text, Used),
    option("filename_format", Text, Used),
    option("unique_filename", Flag, Meaningless),
    option("opendir", Text, NotModelled),
    aliased("rw", "readwrite", Choice(PATTERNS), Used),
    aliased("bs", "blocksize", POSITIVE64, Used),
    aliased("ba", "blockalign", POSITIVE64, Used),
    aliased("bsrange", "blocksize_range", Ranges, Used),
    option("bssplit", OptionalText, Used),
    aliased("bs_unaligned", "blocksize_unaligned", Switch, Used),
    option("bs_is_seq_rand", Flag, Used),
    option("randrepeat", Flag, Used),
    option("randseed", AMOUNT, Used),
    option("norandommap", Switch, Used),
    option("softrandommap", Flag, Used),
    option("ignore_error", OptionalText, NotModelled),
    option("rw_sequencer", Choice(&["sequential", "identical"]), Used),
    option("ioengine", Text, Used),
    option("iodepth", POSITIVE, Used),
    aliased("iodepth_batch", "iodepth_batch_submit", ANY, Used),
    aliased(
        "iodepth_batch_complete_min",
        "iodepth_batch_complete",
        ANY,
        Used,
    ),
    option("iodepth_batch_complete_max", ANY, Used),
    option("iodepth_low", ANY, Used),
    option("serialize_overlap", Flag, Used),
    option("io_submit_mode", Choice(&["inline", "offload"]), Used),
    option("size", Extent, Used),
    aliased("io_size", "io_limit", Extent, Used),
    aliased("fill_device", "fill_fs", Flag, NotModelled),
    option("filesize", Bytes { min: 1 }, Used),
    option("file_append", Flag, NotModelled),
    aliased("offset", "fileoffset", Extent, Used),
    option("offset_increment", Extent, Used),
    option("offset_align", ANY, Used),
    option("number_ios", AMOUNT, Used),
    option(
        "random_generator",
        Choice(&["tausworthe", "lfsr", "tausworthe64"]),
        Used,
    ),
    option(
        "random_distribution",
        Choice(&["random", "zipf", "pareto", "normal", "zoned", "zoned_abs"]),
        Used,
    ),
    option("percentage_random", PERCENT, Used),
    option("percentage_sequential", Removed, Meaningless),
    option("allrandrepeat", Flag, Used),
    aliased("nrfiles", "nr_files", ANY, Used),
    option(
        "file_service_type",
        Choice(&[
            "random",
            "zipf",
            "pareto",
            "normal",
            "gauss",
            "roundrobin",
            "sequential",
        ]),
        Used,
    ),
    option("openfiles", ANY, NotModelled),
    option(
        "fallocate",
        Choice(&["none", "native", "posix", "keep", "truncate", "0", "1"]),
        Meaningless,
    ),
    option(
        "fadvise_hint",
        Choice(&["0", "1", "random", "sequential"]),
        Meaningless,
    ),
    option("fsync", ANY, Used),
    option("fdatasync", ANY, Used),
    option("write_barrier", ANY, NotModelled),
    option(
        "sync_file_range",
        Choices(&["wait_before", "write", "wait_after"]),
        NotModelled,
    ),
    option("direct", Flag, Used),
    option("atomic", Flag, Used),
    option("buffered", Flag, Used),
    option("overwrite", Flag, Meaningless),
    option("loops", ANY, Used),
    option("numjobs", ANY, Used),
    option("startdelay", SECONDS, Used),
    aliased("runtime", "timeout", SECONDS, Used),
    option("time_based", Switch, Used),
    option("verify_only", Switch, NotModelled),
    option("ramp_time", SECONDS, Used),
    option(
        "clocksource",
        Choice(&["gettimeofday", "clock_gettime", "cpu"]),
        Meaningless,
    ),
    aliased(
        "mem",
        "iomem",
        Choice(&["malloc", "shm", "shmhuge", "mmap", "mmapshared", "mmaphuge"]),
        Meaningless,
    ),
    aliased("iomem_align", "mem_align", ANY, Meaningless),
    option(
        "verify",
        Choice(&[
            "0",
            "md5",
            "crc64",
            "crc32",
            "crc32c-intel",
            "crc32c",
            "crc16",
            "crc7",
            "sha1",
            "sha256",
            "sha512",
            "sha3-224",
            "sha3-256",
            "sha3-384",
            "sha3-512",
            "xxhash",
            "meta",
            "pattern",
            "null",
        ]),
        NotModelled,
    ),
    option("do_verify", Flag, Meaningless),
    option("verifysort", Obsolete, Meaningless),
    option("verifysort_nr", Obsolete, Meaningless),
    option("verify_interval", Number { min: 80, max: U32 }, Meaningless),
    option("verify_offset", Number { min: 40, max: U32 }, Meaningless),
    option("verify_pattern", OptionalText, Meaningless),
    option("verify_fatal", Flag, Meaningless),
    option("verify_dump", Flag, Meaningless),
    option("verify_async", ANY, Meaningless),
    option("verify_backlog", AMOUNT, NotModelled),
    option("verify_backlog_batch", ANY, Meaningless),
    option("verify_async_cpus", OptionalText, Meaningless),
    option("experimental_verify", Flag, Meaningless),
    option("verify_state_load", Flag, Meaningless),
    option("verify_state_save", Flag, Meaningless),
    option("trim_percentage", PERCENT, NotModelled),
    option("trim_verify_zero", Flag, Meaningless),
    option("trim_backlog", AMOUNT, NotModelled),
    option("trim_backlog_batch", ANY, Meaningless),
    option("write_iolog", Text, NotModelled),
    option("read_iolog", Text, Used),
    option("read_iolog_chunked", Flag, Meaningless),
    option("replay_no_stall", Flag, NotModelled),
    option("replay_redirect", Text, NotModelled),
    option("replay_scale", ANY, NotModelled),
    option("replay_align", ANY, NotModelled),
    option("replay_time_scale", POSITIVE, NotModelled),
    option("replay_skip", OptionalText, NotModelled),
    option("merge_blktrace_file", Text, NotModelled),
    option(
        "merge_blktrace_scalars",
        Fractions {
            min: f64::MIN,
            max: f64::MAX,
            most: 20,
        },
        NotModelled,
    ),
    option(
        "merge_blktrace_iters",
        Fractions {
            min: f64::MIN,
            max: f64::MAX,
            most: 20,
        },
        NotModelled,
    ),
    option("exec_prerun", Text, Meaningless),
    option("exec_postrun", Text, Meaningless),
    option("ioscheduler", Text, Used),
    option("zonemode", Choice(&["none", "strided", "zbd"]), NotModelled),
    option("zonesize", AMOUNT, NotModelled),
    option("zonecapacity", AMOUNT, NotModelled),
    option("zonerange", AMOUNT, NotModelled),
    option("zoneskip", Extent, NotModelled),
    option("read_beyond_wp", Flag, NotModelled),
    option("max_open_zones", Number { min: 0, max: 4096 }, NotModelled),
    option(
        "job_max_open_zones",
        Number { min: 0, max: 4096 },
        NotModelled,
    ),
    option("ignore_zone_limits", Flag, NotModelled),
    option(
        "zone_reset_threshold",
        Fractions {
            min: 0.0,
            max: 1.0,
            most: 1,
        },
        NotModelled,
    ),
    option(
        "zone_reset_frequency",
        Fractions {
            min: 0.0,
            max: 1.0,
            most: 1,
        },
        NotModelled,
    ),
    option("lockmem", AMOUNT, Meaningless),
    option("rwmixread", PERCENT, Used),
    option("rwmixwrite", PERCENT, Used),
    option("rwmixcycle", Removed, Meaningless),
    option("nice", Signed { min: -20, max: 19 }, Meaningless),
    option("prio", Number { min: 0, max: 7 }, Used),
    option("prioclass", Number { min: 0, max: 3 }, Used),
    option("thinktime", MICROSECONDS, Used),
    option("thinktime_spin", MICROSECONDS, Used),
    option("thinktime_blocks", ANY, Used),
    option(
        "thinktime_blocks_type",
        Choice(&["complete", "issue"]),
        Used,
    ),
    option("thinktime_iotime", SECONDS, Used),
    option("rate", ANY64, Used),
    aliased("rate_min", "ratemin", ANY64, Used),
    option("rate_process", Choice(&["linear", "poisson"]), Used),
    aliased("rate_cycle", "ratecycle", ANY, Used),
    option("rate_ignore_thinktime", Flag, Used),
    option("rate_iops", ANY, Used),
    option("rate_iops_min", ANY, Used),
    option("max_latency", MICROSECONDS, Used),
    option("latency_target", MICROSECONDS, Used),
    option("latency_window", MICROSECONDS, Used),
    option(
        "latency_percentile",
        Fractions {
            min: 0.0,
            max: 100.0,
            most: 1,
        },
        Used,
    ),
    option("latency_run", Flag, Used),
    option("invalidate", Flag, Meaningless),
    option("sync", Choice(&["none", "0", "sync", "1", "dsync"]), Used),
    option(
        "write_hint",
        Choice(&["none", "short", "medium", "long", "extreme"]),
        NotModelled,
    ),
    option("create_serialize", Flag, Meaningless),
    option("create_fsync", Flag, Meaningless),
    option("create_on_open", Flag, Meaningless),
    option("create_only", Flag, NotModelled),
    option("allow_file_create", Flag, Meaningless),
    option("allow_mounted_write", Flag, Meaningless),
    option("pre_read", Flag, NotModelled),
    option("cpumask", ANY, Used),
    option("cpus_allowed", OptionalText, Used),
    option("cpus_allowed_policy", Choice(&["shared", "split"]), Used),
    option("numa_cpu_nodes", OptionalText, Meaningless),
    option("numa_mem_policy", OptionalText, Meaningless),
    option("end_fsync", Flag, Used),
    option("fsync_on_close", Flag, Used),
    option("unlink", Flag, Meaningless),
    option("unlink_each_loop", Flag, Meaningless),
    option("exitall", Switch, Used),
    option("exit_what", Choice(&["group", "stonewall", "all"]), Used),
    option("exitall_on_error", Switch, Used),
    aliased("stonewall", "wait_for_previous", Switch, Used),
    option("new_group", Switch, Used),
    option("thread", Switch, Used),
    option("per_job_logs", Flag, Meaningless),
    option("write_bw_log", OptionalText, NotModelled),
    option("bwavgtime", ANY, Used),
    option("write_lat_log", OptionalText, NotModelled),
    option("write_iops_log", OptionalText, NotModelled),
    option("iopsavgtime", ANY, Used),
    option(
        "log_entries",
        Number {
            min: 1024,
            max: 1 << 20,
        },
        Meaningless,
    ),
    option("log_avg_msec", ANY, Meaningless),
    option("log_hist_msec", ANY, Meaningless),
    option("log_hist_coarseness", ANY, Meaningless),
    option("write_hist_log", OptionalText, NotModelled),
    option("log_max_value", Flag, Meaningless),
    option("log_offset", Flag, Meaningless),
    option("log_prio", Flag, Meaningless),
    option(
        "log_compression",
        Number {
            min: 1024,
            max: 512 << 20,
        },
        Meaningless,
    ),
    option("log_compression_cpus", OptionalText, Meaningless),
    option("log_store_compressed", Flag, Meaningless),
    option("log_unix_epoch", Flag, Meaningless),
    option("log_alternate_epoch", Flag, Meaningless),
    option("log_alternate_epoch_clock_id", ANY, Meaningless),
    option("block_error_percentiles", Flag, Meaningless),
    option("group_reporting", Switch, Used),
    option("stats", Flag, Used),
    option("zero_buffers", Switch, Meaningless),
    option("refill_buffers", Switch, Meaningless),
    option("scramble_buffers", Flag, Meaningless),
    option("buffer_pattern", OptionalText, Meaningless),
    option("buffer_compress_percentage", PERCENT, Meaningless),
    option("buffer_compress_chunk", ANY, Meaningless),
    option("dedupe_percentage", PERCENT, Meaningless),
    option(
        "dedupe_mode",
        Choice(&["repeat", "working_set"]),
        Meaningless,
    ),
    option("dedupe_working_set_percentage", PERCENT, Meaningless),
    option("dedupe_global", Flag, Meaningless),
    option("clat_percentiles", Flag, Used),
    option("lat_percentiles", Flag, Used),
    option("slat_percentiles", Flag, Used),
    option(
        "percentile_list",
        Fractions {
            min: 0.0,
            max: 100.0,
            most: 20,
        },
        Used,
    ),
    option(
        "significant_figures",
        Number { min: 1, max: 10 },
        Meaningless,
    ),
    option("disk_util", Flag, Meaningless),
    option("gtod_reduce", Flag, Meaningless),
    option("disable_lat", Flag, Meaningless),
    option("disable_clat", Flag, Meaningless),
    option("disable_slat", Flag, Meaningless),
    aliased("disable_bw_measurement", "disable_bw", Flag, Meaningless),
    option("gtod_cpu", ANY, Meaningless),
    option(
        "unified_rw_reporting",
        Choice(&["none", "mixed", "both", "0", "1", "2"]),
        Used,
    ),
    option(
        "continue_on_error",
        Choice(&["none", "read", "write", "io", "verify", "all", "0", "1"]),
        Used,
    ),
    option("error_dump", Flag, Meaningless),
    option("profile", Text, NotModelled),
    option("cgroup", Text, Used),
    option("cgroup_nodelete", Flag, Meaningless),
    option(
        "cgroup_weight",
        Number {
            min: 100,
            max: 1000,
        },
        Used,
    ),
    option("uid", ANY, Meaningless),
    option("gid", ANY, Meaningless),
    option("kb_base", Choice(&["1024", "1000"]), Used),
    option("unit_base", Choice(&["0", "8", "1"]), Meaningless),
    option("hugepage-size", ANY, Meaningless),
    option("flow_id", ANY, NotModelled),
    option("flow", Number { min: 0, max: 1000 }, NotModelled),
    option("flow_watermark", Obsolete, Meaningless),
    option("flow_sleep", ANY, NotModelled),
    aliased(
        "steadystate",
        "ss",
        Choice(&["iops", "iops_slope", "bw", "bw_slope"]),
        NotModelled,
    ),
    aliased("steadystate_duration", "ss_dur", SECONDS, NotModelled),
    aliased("steadystate_ramp_time", "ss_ramp", SECONDS, NotModelled),
    engine(COMMAND_PRIORITY, "cmdprio_percentage", PERCENT, Used),
    engine(
        COMMAND_PRIORITY,
        "cmdprio_class",
        Number { min: 1, max: 3 },
        Used,
    ),
    engine(COMMAND_PRIORITY, "cmdprio", Number { min: 0, max: 7 }, Used),
    engine(COMMAND_PRIORITY, "cmdprio_bssplit", Text, Used),
    engine(LIBAIO, "userspace_reap", Switch, Meaningless),
    engine(POLLED, "hipri", Switch, Used),
    engine(&["pvsync2"], "hipri_percentage", PERCENT, NotModelled),
    engine(NOWAIT, "nowait", Flag, Used),
    engine(UNCACHED, "uncached", ANY, NotModelled),
    engine(URING, "fixedbufs", Switch, NotModelled),
    engine(URING, "registerfiles", Switch, NotModelled),
    engine(SUBMITTED, "sqthread_poll", Switch, Used),
    engine(URING, "sqthread_poll_cpu", ANY, NotModelled),
    engine(
        URING,
        "nonvectored",
        Signed {
            min: -1,
            max: i32::MAX as i64,
        },
        Meaningless,
    ),
    engine(URING, "force_async", ANY, Used),
    engine(URING, "cmd_type", Choice(&["nvme"]), Meaningless),
    engine(SG, "readfua", Flag, NotModelled),
    engine(SG, "writefua", Flag, NotModelled),
    engine(
        SG,
        "sg_write_mode",
        Choice(&[
            "write",
            "write_and_verify",
            "verify",
            "write_same",
            "same",
            "write_same_ndob",
            "verify_bytchk_00",
            "verify_bytchk_01",
            "verify_bytchk_11",
            "write_stream",
        ]),
        NotModelled,
    ),
    engine(SG, "stream_id", ANY, NotModelled),
    engine(MMAP, "thp", ANY, Meaningless),
    engine(CPU, "cpuload", ANY, NotModelled),
    engine(CPU, "cpuchunks", ANY, NotModelled),
    engine(CPU, "cpumode", Choice(&["noop", "qsort"]), NotModelled),
    engine(CPU, "exit_on_io_done", Flag, NotModelled),
    engine(ADDRESSED, "hostname", Text, NotModelled),
    engine(ADDRESSED, "port", Text, NotModelled),
    OptionInfo {
        alias: Some("proto"),
        ..engine(NET, "protocol", OptionalText, NotModelled)
    },
    engine(NET, "nodelay", Flag, NotModelled),
    engine(NET, "listen", Switch, NotModelled),
    engine(NET, "pingpong", Switch, NotModelled),
    engine(NET, "interface", Text, NotModelled),
    engine(NET, "ttl", ANY, NotModelled),
    engine(NET, "window_size", ANY, NotModelled),
    engine(NET, "mss", ANY, NotModelled),
    engine(RDMA, "bindname", Text, NotModelled),
    engine(RDMA, "verb", OptionalText, NotModelled),
    engine(EXEC, "program", Text, NotModelled),
    engine(EXEC, "arguments", Text, NotModelled),
    engine(EXEC, "grace_time", ANY, NotModelled),
    engine(EXEC, "std_redirect", Flag, NotModelled),
    engine(FILESTAT, "stat_type", OptionalText, NotModelled),
    engine(E4DEFRAG, "donorname", Text, NotModelled),
    engine(E4DEFRAG, "inplace", ANY, NotModelled),
    engine(GLUSTER, "volume", Text, NotModelled),
    engine(GLUSTER, "brick", Text, NotModelled),
    engine(GLUSTER, "single-instance", Flag, NotModelled),
    engine(MTD, "skip_bad", Flag, NotModelled),
    engine(NBD, "uri", Text, NotModelled),
    engine(CEPH, "clustername", Text, NotModelled),
    engine(&["rados", "rbd", "dfs"], "pool", Text, NotModelled),
    engine(CEPH, "clientname", Text, NotModelled),
    engine(CEPH, "busy_poll", Flag, NotModelled),
    engine(RBD, "rbdname", Text, NotModelled),
    engine(RADOS, "conf", Text, NotModelled),
    engine(RADOS, "touch_objects", Flag, NotModelled),
    engine(HTTP, "https", OptionalText, NotModelled),
    engine(HTTP, "http_host", OptionalText, NotModelled),
    engine(HTTP, "http_user", OptionalText, NotModelled),
    engine(HTTP, "http_pass", OptionalText, NotModelled),
    engine(HTTP, "http_s3_key", OptionalText, NotModelled),
    engine(HTTP, "http_s3_keyid", OptionalText, NotModelled),
    engine(HTTP, "http_swift_auth_token", OptionalText, NotModelled),
    engine(HTTP, "http_s3_region", OptionalText, NotModelled),
    engine(HTTP, "http_s3_sse_customer_key", OptionalText, NotModelled),
    engine(
        HTTP,
        "http_s3_sse_customer_algorithm",
        OptionalText,
        NotModelled,
    ),
    engine(HTTP, "http_s3_storage_class", OptionalText, NotModelled),
    engine(HTTP, "http_mode", OptionalText, NotModelled),
    engine(HTTP, "http_verbose", OptionalText, NotModelled),
    engine(DFS, "cont", OptionalText, NotModelled),
    engine(DFS, "object_class", OptionalText, NotModelled),
    engine(DFS, "svcl", OptionalText, NotModelled),
    engine(HDFS, "namenode", OptionalText, NotModelled),
    engine(HDFS, "hdfsdirectory", OptionalText, NotModelled),
    engine(HDFS, "single_instance", OptionalText, NotModelled),
    engine(HDFS, "hdfs_use_direct", OptionalText, NotModelled),
    engine(CUFILE, "gpu_dev_ids", OptionalText, NotModelled),
    engine(CUFILE, "cuda_io", OptionalText, NotModelled),
    engine(RPMA, "serverip", OptionalText, NotModelled),
    engine(RPMA, "direct_write_to_pmem", OptionalText, NotModelled),
    engine(RPMA, "busy_wait_polling", OptionalText, NotModelled),
    engine(XNVME, "xnvme_be", OptionalText, NotModelled),
    engine(XNVME, "xnvme_async", OptionalText, NotModelled),
    engine(XNVME, "xnvme_sync", OptionalText, NotModelled),
    engine(XNVME, "xnvme_admin", OptionalText, NotModelled),
    engine(XNVME, "xnvme_dev_nsid", OptionalText, NotModelled),
    engine(XNVME, "xnvme_iovec", OptionalText, NotModelled),
    engine(&["dfs", "libhdfs"], "chunk_size", OptionalText, NotModelled),
    engine(&["nfs"], "nfs_url", Text, NotModelled),
    engine(&["libiscsi"], "initiator", Text, NotModelled),
    engine(&["windowsaio"], "no_completion_thread", Switch, NotModelled),
];

/// Options of fio's built-in profiles. fio takes them in any job, where they
/// do nothing, and neither lists nor suggests them.
static PROFILE_OPTIONS: &[OptionInfo] = &[
    option("block", ANY, Meaningless),
    option("numruns", ANY, Meaningless),
    option("dir", Text, Meaningless),
    option("threads", ANY, Meaningless),
    option("device-names", Text, Meaningless),
    option("load", ANY, Meaningless),
    option("test-duration", SECONDS, Meaningless),
    option("threads-per-queue", ANY, Meaningless),
    option("read-req-num-512-blocks", ANY, Meaningless),
    option("large-block-op-kbytes", ANY, Meaningless),
    option("prep", Switch, Meaningless),
];

/// The option called `name`, by its name or its alias.
pub(crate) fn find(name: &str) -> Option<&'static OptionInfo> {
    OPTIONS
        .iter()
        .chain(PROFILE_OPTIONS)
        .find(|option| option.name == name || option.alias == Some(name))
}

/// Every name and alias, in the table's order.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS
        .iter()
        .flat_map(|option| [Some(option.name), option.alias])
        .flatten()
}

/// Whether two engines have the same options of their own; fio carries such
/// settings from `[global]` to a job only then.
pub(crate) fn same_engine_options(one: &str, other: &str) -> bool {
    OPTIONS
        .iter()
        .all(|option| option.engines.contains(&one) == option.engines.contains(&other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let mut seen = BTreeSet::new();
        for name in names() {
            assert!(seen.insert(name), "{name} is there twice");
        }
    }
}
