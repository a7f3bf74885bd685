//! The options that only some I/O engines have.

use super::declaration::Effect::*;
use super::declaration::Values::*;
use super::declaration::{ANY, FioOption, Order, PERCENT, Unmodelled, merge, options};
use super::parse::unknown_word;
use crate::fio::engine::Engine;
use crate::fio::error::Fault;
use crate::fio::section::{EngineOptions, SectionOptions};
use crate::fio::units::TimeUnit::Seconds;

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

/// Applies `ioengine`: a name, with `:` and a path for an external engine.
pub(super) fn choose(job: &mut SectionOptions, name: &str) -> Result<(), Fault> {
    let (word, path) = match name.split_once(':') {
        Some((word, path)) => (word, Some(path)),
        None => (name, None),
    };
    let names = Engine::names();
    if !names.contains(&word) {
        return Err(unknown_word(word, &names));
    }
    if (word == "external") != path.is_some() {
        return Err(Fault::new("only external takes a path, and needs one")
            .help("such as external:/path/engine.so"));
    }
    if !same_options(job.spec.engine.name(), word) {
        job.engine = EngineOptions::default();
    }
    job.spec.engine = Engine::named(name);
    Ok(())
}

/// Whether two engines have the same options of their own; only then does fio pass these on from
/// `[global]` to a job.
fn same_options(one: &str, other: &str) -> bool {
    OPTIONS
        .iter()
        .all(|option| option.engines.contains(&one) == option.engines.contains(&other))
}

pub(super) static OPTIONS: &[FioOption] = options! {
    /// The share of I/Os with a priority of their own.
    way "cmdprio_percentage" of COMMAND_PRIORITY => Counts(PERCENT, Sets(|job, percent| {
        merge(&mut job.engine.command_percent, percent)
    }));
    /// The class of that priority: 1 real time, 2 best effort, 3 idle; real time if not given.
    way "cmdprio_class" of COMMAND_PRIORITY
        => Counts(1..=3, Sets(|job, class| merge(&mut job.engine.command_class, class)));
    /// The level of that priority, 0 the highest.
    way "cmdprio" of COMMAND_PRIORITY
        => Counts(0..=7, Sets(|job, level| merge(&mut job.engine.command_level, level)));
    /// Shares and priorities by the size of the block.
    way "cmdprio_bssplit" of COMMAND_PRIORITY
        => Text(Sets(|job, text| job.engine.command_split = text));
    /// Reap completions from the ring.
    "userspace_reap" of LIBAIO => Switch(Meaningless);
    /// Poll for completions.
    way "hipri" of POLLED => Switch(Sets(|job, on| job.engine.polled = on)),
        Unmodelled::Setting {
            but: "io_uring and io_uring_cmd without sqthread_poll",
            applies: |spec| spec.polled && (spec.submission_thread || !spec.engine.is_io_uring()),
        };
    /// Poll for this share of the completions, in percent.
    way "hipri_percentage" of &["pvsync2"] => Count(PERCENT, NotSimulated);
    /// An I/O that would have to wait fails with EAGAIN, or goes to a worker of io_uring.
    way "nowait" of NOWAIT => Flag(Sets(|job, on| job.engine.nowait = on)), Unmodelled::Work {
        would: "fail each I/O through the page cache that would have to wait",
        instead: "leave it out, or give direct=1",
        applies: |spec| !spec.direct && spec.nowait,
    };
    /// Drop pages from the cache after the I/O.
    "uncached" of UNCACHED => Count(ANY, NotSimulated);
    /// Register buffers with the kernel.
    way "fixedbufs" of URING => Switch(Sets(|job, on| job.engine.registered_buffers = on));
    /// Leave buffers as they come from the kernel, as fio's `t/io_uring` does; not an option of
    /// fio's own.
    "untouched_buffers" of URING
        => Switch(Sets(|job, on| job.engine.untouched_buffers = on));
    /// Register files with the kernel.
    way "registerfiles" of URING => Switch(Sets(|job, on| job.engine.registered_files = on));
    /// A thread of the kernel submits.
    way "sqthread_poll" of SUBMITTED => Switch(Sets(|job, on| job.engine.submission_thread = on)),
        Unmodelled::Setting {
            but: "io_uring and io_uring_cmd",
            applies: |spec| spec.submission_thread && !spec.engine.is_io_uring(),
        };
    /// That thread sleeps after this many milliseconds without work, 0 for the kernel's second;
    /// not an option of fio's own.
    way "sq_thread_idle" of URING
        => Count(ANY, Sets(|job, ms| job.engine.submission_thread_idle_ms = ms));
    /// The CPU of the kernel's submission thread.
    way "sqthread_poll_cpu" of URING => Count(ANY, NotSimulated);
    /// Submit I/O without vectors.
    way "nonvectored" of URING => Signed(-1..=i32::MAX as i64, Meaningless);
    /// One I/O of this many goes to a worker at once.
    way "force_async" of URING => Count(ANY, Sets(|job, n| job.engine.force_async_every = n));
    /// The kind of commands passed through.
    "cmd_type" of URING => Word(&["nvme"], Meaningless);
    /// Reads go past the drive's cache.
    "readfua" of SG => Flag(NotSimulated);
    /// Writes go past the drive's cache.
    "writefua" of SG => Flag(NotSimulated);
    /// The SCSI command that writes.
    "sg_write_mode" of SG => Word(
        &[
            "write", "write_and_verify", "verify", "write_same", "same", "write_same_ndob",
            "verify_bytchk_00", "verify_bytchk_01", "verify_bytchk_11", "write_stream",
        ],
        NotSimulated,
    );
    /// The stream that is written.
    "stream_id" of SG => Count(ANY, NotSimulated);
    /// Use huge pages.
    "thp" of MMAP => Count(ANY, Meaningless);
    /// How busy the CPU is kept, in percent.
    "cpuload" of CPU => Count(ANY, NotSimulated);
    /// How long the CPU is kept busy at a time.
    "cpuchunks" of CPU => Count(ANY, NotSimulated);
    /// How the CPU is kept busy.
    "cpumode" of CPU => Word(&["noop", "qsort"], NotSimulated);
    /// End when the jobs with I/O have ended.
    "exit_on_io_done" of CPU => Flag(NotSimulated);
    /// The host to speak to.
    "hostname" of ADDRESSED => Text(NotSimulated);
    /// The port to connect to.
    "port" of ADDRESSED => Text(NotSimulated);
    /// The protocol.
    "protocol" | "proto" of NET => OptionalText(NotSimulated);
    /// Send small packets at once.
    "nodelay" of NET => Flag(NotSimulated);
    /// Wait for a connection.
    "listen" of NET => Switch(NotSimulated);
    /// Answer each packet.
    "pingpong" of NET => Switch(NotSimulated);
    /// The network interface.
    "interface" of NET => Text(NotSimulated);
    /// How far packets go.
    "ttl" of NET => Count(ANY, NotSimulated);
    /// The size of TCP's window.
    "window_size" of NET => Count(ANY, NotSimulated);
    /// The largest segment.
    "mss" of NET => Count(ANY, NotSimulated);
    /// The address to bind to.
    "bindname" of RDMA => Text(NotSimulated);
    /// The RDMA operation.
    "verb" of RDMA => OptionalText(NotSimulated);
    /// The program to run.
    "program" of EXEC => Text(NotSimulated);
    /// The arguments of the program.
    "arguments" of EXEC => Text(NotSimulated);
    /// How long the program may take to end.
    "grace_time" of EXEC => Count(ANY, NotSimulated);
    /// Keep the program's output.
    "std_redirect" of EXEC => Flag(NotSimulated);
    /// The system call that reads the attributes.
    "stat_type" of FILESTAT => OptionalText(NotSimulated);
    /// The file whose blocks are given away.
    "donorname" of E4DEFRAG => Text(NotSimulated);
    /// How blocks are allocated.
    "inplace" of E4DEFRAG => Count(ANY, NotSimulated);
    /// The volume.
    "volume" of GLUSTER => Text(NotSimulated);
    /// The server.
    "brick" of GLUSTER => Text(NotSimulated);
    /// Share a connection.
    "single-instance" of GLUSTER => Flag(NotSimulated);
    /// Pass over bad blocks.
    "skip_bad" of MTD => Flag(NotSimulated);
    /// The export.
    "uri" of NBD => Text(NotSimulated);
    /// The cluster.
    "clustername" of CEPH => Text(NotSimulated);
    /// The pool.
    "pool" of &["rados", "rbd", "dfs"] => Text(NotSimulated);
    /// The user.
    "clientname" of CEPH => Text(NotSimulated);
    /// Poll for completions.
    "busy_poll" of CEPH => Flag(NotSimulated);
    /// The image.
    "rbdname" of RBD => Text(NotSimulated);
    /// The configuration file.
    "conf" of RADOS => Text(NotSimulated);
    /// Make objects before the job.
    "touch_objects" of RADOS => Flag(NotSimulated);
    /// Whether to use TLS.
    "https" of HTTP => OptionalText(NotSimulated);
    /// The host.
    "http_host" of HTTP => OptionalText(NotSimulated);
    /// The user.
    "http_user" of HTTP => OptionalText(NotSimulated);
    /// The password.
    "http_pass" of HTTP => OptionalText(NotSimulated);
    /// The secret key.
    "http_s3_key" of HTTP => OptionalText(NotSimulated);
    /// The key's name.
    "http_s3_keyid" of HTTP => OptionalText(NotSimulated);
    /// The token.
    "http_swift_auth_token" of HTTP => OptionalText(NotSimulated);
    /// The region.
    "http_s3_region" of HTTP => OptionalText(NotSimulated);
    /// The key that the server encrypts with.
    "http_s3_sse_customer_key" of HTTP => OptionalText(NotSimulated);
    /// How the server encrypts.
    "http_s3_sse_customer_algorithm" of HTTP => OptionalText(NotSimulated);
    /// The storage class.
    "http_s3_storage_class" of HTTP => OptionalText(NotSimulated);
    /// WebDAV, S3 or Swift.
    "http_mode" of HTTP => OptionalText(NotSimulated);
    /// Print what is sent.
    "http_verbose" of HTTP => OptionalText(NotSimulated);
    /// The container.
    "cont" of DFS => OptionalText(NotSimulated);
    /// The class of objects.
    "object_class" of DFS => OptionalText(NotSimulated);
    /// The class of the container.
    "svcl" of DFS => OptionalText(NotSimulated);
    /// The name node.
    "namenode" of HDFS => OptionalText(NotSimulated);
    /// The directory.
    "hdfsdirectory" of HDFS => OptionalText(NotSimulated);
    /// Share a connection.
    "single_instance" of HDFS => OptionalText(NotSimulated);
    /// Read without a copy.
    "hdfs_use_direct" of HDFS => OptionalText(NotSimulated);
    /// The ids of the GPUs.
    "gpu_dev_ids" of CUFILE => OptionalText(NotSimulated);
    /// How data reaches a GPU.
    "cuda_io" of CUFILE => OptionalText(NotSimulated);
    /// The server.
    "serverip" of RPMA => OptionalText(NotSimulated);
    /// Write past the caches.
    "direct_write_to_pmem" of RPMA => OptionalText(NotSimulated);
    /// Poll for completions.
    "busy_wait_polling" of RPMA => OptionalText(NotSimulated);
    /// The back end.
    "xnvme_be" of XNVME => OptionalText(NotSimulated);
    /// How the back end submits asynchronously.
    "xnvme_async" of XNVME => OptionalText(NotSimulated);
    /// How the back end submits synchronously.
    "xnvme_sync" of XNVME => OptionalText(NotSimulated);
    /// How the back end sends admin commands.
    "xnvme_admin" of XNVME => OptionalText(NotSimulated);
    /// The namespace.
    "xnvme_dev_nsid" of XNVME => OptionalText(NotSimulated);
    /// Submit vectors.
    "xnvme_iovec" of XNVME => OptionalText(NotSimulated);
    /// The size of a chunk.
    "chunk_size" of &["dfs", "libhdfs"] => OptionalText(NotSimulated);
    /// The export.
    "nfs_url" of &["nfs"] => Text(NotSimulated);
    /// The initiator's name.
    "initiator" of &["libiscsi"] => Text(NotSimulated);
    /// Reap without a thread of its own.
    "no_completion_thread" of &["windowsaio"] => Switch(NotSimulated);
};

/// Options of fio's built-in profiles. fio accepts and ignores them in any job, and neither lists
/// nor suggests them.
pub(super) static PROFILE_OPTIONS: &[FioOption] = options! {
    /// The size of a block.
    "block" => Count(ANY, Meaningless);
    /// How often to run.
    "numruns" => Count(ANY, Meaningless);
    /// The directory.
    "dir" => Text(Meaningless);
    /// How many threads.
    "threads" => Count(ANY, Meaningless);
    /// The drives.
    "device-names" => Text(Meaningless);
    /// How much load.
    "load" => Count(ANY, Meaningless);
    /// How long to run.
    "test-duration" => Time(Seconds, Meaningless);
    /// Threads a queue.
    "threads-per-queue" => Count(ANY, Meaningless);
    /// Sectors a read.
    "read-req-num-512-blocks" => Count(ANY, Meaningless);
    /// KiB of a large operation.
    "large-block-op-kbytes" => Count(ANY, Meaningless);
    /// Fill the drives first.
    "prep" => Switch(Meaningless);
};
