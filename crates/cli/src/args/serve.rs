//! The options of `blklab serve`.

use std::ffi::OsString;
use std::path::PathBuf;

use blklab_report::tools::Tool;
use clap::builder::ValueParser;
use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::{tool, tools_help};

const EXAMPLES: &str = "\
Examples:
  blklab serve --socket /tmp/b.sock --memory 1G
      a memory of 1 GiB; then: nbdinfo 'nbd+unix:///?socket=/tmp/b.sock'
  blklab serve --socket /tmp/b.sock --file disk.img --scheduler mq-deadline --depth 32
      a file behind a scheduler
  blklab serve --socket /tmp/b.sock --memory 64G --drive mx100-256 --scheduler bfq
      as slow as a drive that you do not have
  blklab serve --listen 0.0.0.0:10809 --tls-certificates DIR --file /dev/sdb --sysfs /mnt
      a drive for others, under TLS; then: echo bfq > /mnt/block/b0/queue/scheduler
  blklab serve --vhost-user /tmp/v.sock --file disk.img
      a virtual machine's disk; then: qemu-system-x86_64 ... -m 1G
        -object memory-backend-memfd,id=m,size=1G,share=on -machine memory-backend=m
        -chardev socket,id=c,path=/tmp/v.sock,reconnect=1 -device vhost-user-blk-pci,chardev=c
  blklab serve --ublk 0 --file disk.img --scheduler bfq
      a disk of this machine: /dev/ublkb0
  blklab serve --tcmu scratch --file disk.img --scheduler bfq
      a SCSI disk of this machine: /dev/sda, or what else is printed
  qemu-system-x86_64 ... -drive driver=nbd,server.type=unix,server.path=/tmp/b.sock,if=virtio
  nbd-client -unix /tmp/b.sock /dev/nbd0
  fio --name=t --ioengine=nbd --uri='nbd+unix:///?socket=/tmp/b.sock' --rw=randrw --bs=4k --iodepth=64
      clients of the first three: a virtual machine, the kernel, fio";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// A TOML file with several exports, in place of the options for one
    #[arg(value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,

    /// Listen on a Unix socket; repeat for more
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Vec<PathBuf>,

    /// Listen on TCP; repeat for more
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Vec<String>,

    /// Allow TCP without TLS on addresses that other machines can reach
    #[arg(long)]
    pub(crate) insecure_no_tls: bool,

    /// Use TLS: a folder with server-cert.pem and server-key.pem, and ca-cert.pem
    /// where clients are verified, as for nbdkit and QEMU
    #[arg(long, value_name = "DIR")]
    pub(crate) tls_certificates: Option<PathBuf>,

    /// Require clients to show a certificate signed by ca-cert.pem
    #[arg(long)]
    pub(crate) tls_verify_peer: bool,

    /// Which clients must use TLS: `on` means TCP clients from other machines, `require`
    /// all clients
    #[arg(long, value_name = "off|on|require")]
    pub(crate) tls: Option<String>,

    #[command(flatten)]
    pub(crate) backends: BackendArgs,

    /// How the file is read and written: psync with many threads, posixaio with
    /// one, libaio or io_uring
    #[arg(
        long,
        value_name = "NAME",
        requires = "file",
        conflicts_with = "config"
    )]
    pub(crate) engine: Option<String>,

    /// Bypass the page cache (O_DIRECT)
    #[arg(long, requires = "file", conflicts_with = "config")]
    pub(crate) direct: bool,

    /// Threads that read and write the file, or connections to the other server
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub(crate) backend_threads: Option<usize>,

    /// Threads that serve NBD clients; connections are assigned to them in turn
    /// [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub(crate) threads: Option<usize>,

    /// How long a request waits for the other server to come back, in seconds
    #[arg(long, value_name = "S", requires = "nbd", conflicts_with = "config")]
    pub(crate) reconnect: Option<u64>,

    /// A Unix socket for virtual machines: vhost-user-blk
    ///
    /// Not there: packed rings, and what a live migration needs (a log of dirty pages).
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    pub(crate) vhost_user: Option<PathBuf>,

    /// Be a disk of this machine, /dev/ublkbN: with a number that is made, or taken over
    /// where its server was killed [default: auto, the lowest that is free]
    ///
    /// Not there: zero copy (UBLK_F_SUPPORT_ZERO_COPY; data is copied once), devices of
    /// users without rights (UBLK_F_UNPRIVILEGED_DEV), zones, another size while it runs.
    #[arg(
        long,
        value_name = "N|auto",
        num_args = 0..=1,
        default_missing_value = "auto",
        conflicts_with = "config"
    )]
    pub(crate) ublk: Option<String>,
    /// Be a SCSI disk of this machine, /dev/sdX, under this name among the kernel's
    /// targets: one of that name whose server was killed is taken over
    ///
    /// Not there: zero copy, which target_core_user does not offer (data is copied by the
    /// kernel and by the server), and another size while it runs.
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub(crate) tcmu: Option<String>,

    /// Accept virtual machines whose memory is not sealed: a machine that shrinks it
    /// ends the server
    #[arg(long)]
    pub(crate) insecure_unsealed_memory: bool,

    /// Refuse writes
    #[arg(long, conflicts_with = "config")]
    pub(crate) read_only: bool,

    /// The export's name; clients that name none get this export
    #[arg(
        long,
        default_value = "",
        value_name = "NAME",
        conflicts_with = "config"
    )]
    pub(crate) name: String,

    /// A description of the export, which clients can list
    #[arg(
        long,
        default_value = "",
        value_name = "TEXT",
        conflicts_with = "config"
    )]
    pub(crate) description: String,

    /// The scheduler
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub(crate) scheduler: Option<String>,

    /// A tunable of the scheduler, such as fifo_batch=1; repeat for more
    #[arg(long = "set", value_name = "TUNABLE=VALUE", conflicts_with = "config")]
    pub(crate) sets: Vec<String>,

    /// The queue's nr_requests
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub(crate) nr_requests: Option<u32>,

    /// A file of control groups: clients that ask for NAME@GROUP are in them
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(crate) cgroup_file: Option<PathBuf>,

    /// Requests in the back end at once; the rest waits in the scheduler
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub(crate) depth: Option<u32>,

    /// Be as slow as this drive: a name from `blklab list drives`, or a file
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "config")]
    pub(crate) drive: Option<String>,

    /// Faults of the drive, as read_error=1e-4,stall=1e-3:30ms,bit_rot=1e-5; a wrong name
    /// lists them all. Where writes land is as they have it; everything else is in what clients read
    #[arg(long, value_name = "FAULT=RATE,...", conflicts_with = "config")]
    pub(crate) faults: Option<String>,

    /// Keep what writes replaced until they are flushed, so that `blklab set --control PATH
    /// power cut` can cut the drive's power: requests in flight then fail, and of the writes
    /// that were not flushed the seed decides which are lost or torn
    #[arg(long, conflicts_with = "config")]
    pub(crate) power_cuts: bool,

    /// Seed of the drive's random choices
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub(crate) seed: Option<u64>,

    /// Most connections at once, over all exports
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<usize>,

    /// Longest read or write
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_request: Option<String>,

    /// Most data in flight on one connection
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_in_flight: Option<String>,

    /// Always poll for so many microseconds before sleeping, not only where that helps
    #[arg(long, value_name = "US")]
    pub(crate) busy_poll: Option<u64>,

    /// Let time pass this many times slower for the exports than on the clock: for clients
    /// whose own clock is as much slower
    #[arg(long, value_name = "N")]
    pub(crate) time_dilation: Option<u64>,

    /// A Unix socket for `blklab get` and `blklab set`
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,

    /// Show the attributes as files in an empty folder, laid out as in sysfs; needs FUSE
    #[arg(long, value_name = "DIR")]
    pub(crate) sysfs: Option<PathBuf>,

    /// Serve metrics to Prometheus over HTTP
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<String>,

    /// Write the process id to a file, once clients can connect
    #[arg(long, value_name = "PATH")]
    pub(crate) pid_file: Option<PathBuf>,
}

/// The back ends that were given, each by the name of its kind; each kind is an option.
pub(crate) struct BackendArgs(pub(crate) Vec<(&'static str, OsString)>);

impl Args for BackendArgs {
    fn augment_args(command: Command) -> Command {
        let kinds = blklab_serve::backends();
        kinds.iter().fold(command, |command, kind| {
            let others = kinds.iter().map(|other| other.name);
            let others = others.filter(|other| *other != kind.name);
            command.arg(
                Arg::new(kind.name)
                    .long(kind.name)
                    .value_name(kind.value_name)
                    .value_parser(ValueParser::os_string())
                    .help(kind.help)
                    .conflicts_with_all(others.chain(["config"])),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        BackendArgs::augment_args(command)
    }
}

impl FromArgMatches for BackendArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<BackendArgs, Error> {
        let kinds = blklab_serve::backends().iter();
        let given = kinds.filter_map(|kind| {
            let value = matches.get_one::<OsString>(kind.name)?;
            Some((kind.name, value.clone()))
        });
        Ok(BackendArgs(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = BackendArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The address of a running server.
#[derive(Args)]
pub(crate) struct ControlArgs {
    /// The server's control socket
    #[arg(long, value_name = "PATH")]
    pub(crate) control: PathBuf,

    /// The export; the first if not given
    #[arg(long, default_value = "", value_name = "NAME")]
    pub(crate) export: String,
}

#[derive(Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,

    /// The attribute, such as queue/scheduler or iosched/fifo_batch; all of
    /// them if not given
    pub(crate) name: Option<String>,
}

#[derive(Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,

    /// The attribute, such as queue/scheduler or iosched/fifo_batch
    pub(crate) name: String,

    /// Its new value
    #[arg(allow_negative_numbers = true)]
    pub(crate) value: String,
}

#[derive(Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,

    /// Seconds between two tables
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    pub(crate) interval: f64,

    /// Exit after this many tables
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Args)]
pub(crate) struct LoadArgs {
    /// The export: nbd://HOST:PORT/EXPORT, nbd+unix:///EXPORT?socket=PATH, or
    /// vhost-user:PATH
    pub(crate) uri: String,

    /// Connections, or queues of a virtual machine's disk, each with its own thread
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) connections: usize,

    /// Requests in flight on each connection
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub(crate) depth: usize,

    /// Size of a request
    #[arg(long, default_value = "4K", value_name = "SIZE")]
    pub(crate) bs: String,

    /// Share of reads, in percent
    #[arg(long, default_value_t = 50, value_name = "P")]
    pub(crate) reads: u32,

    /// Access the export in order, not at random
    #[arg(long)]
    pub(crate) sequential: bool,

    /// Duration in seconds
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    pub(crate) seconds: f64,

    /// Seed of the addresses and directions
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Args)]
pub(crate) struct TraceArgs {
    /// A block trace as tracefs text, plain or compressed: from `blklab run --trace`,
    /// `blklab record`, or a kernel
    #[arg(
        value_name = "TRACE",
        required_unless_present = "control",
        conflicts_with_all = ["control", "export", "seconds"]
    )]
    pub(crate) trace: Option<PathBuf>,

    /// A running server's control socket: record the events of its block layer
    #[arg(long, value_name = "PATH", requires = "output")]
    pub(crate) control: Option<PathBuf>,

    /// The server's export; the first if not given
    #[arg(long, default_value = "", value_name = "NAME")]
    pub(crate) export: String,

    /// Write to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// The tool whose output format is wanted
    #[arg(
        long = "as",
        visible_alias = "format",
        default_value = "text",
        value_name = "TOOL",
        value_parser = tool,
        long_help = format!("The tool whose output is wanted:\n{}", tools_help())
    )]
    pub(crate) tool: &'static Tool,

    /// How long a server is recorded; until Ctrl-C if not given
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,
}
