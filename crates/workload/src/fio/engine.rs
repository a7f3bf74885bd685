//! fio's I/O engines: what each is called, and how far it is known here.

/// `ioengine=`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// `read(2)`, `write(2)` after `lseek(2)`.
    Sync,
    /// `pread(2)`, `pwrite(2)`: fio's default.
    #[default]
    Psync,
    /// `readv(2)`, `writev(2)`, coalescing what is adjacent.
    Vsync,
    /// `preadv(2)`, `pwritev(2)`.
    Pvsync,
    /// `preadv2(2)`, `pwritev2(2)`.
    Pvsync2,
    /// `io_submit(2)`.
    Libaio,
    /// glibc's `aio_read(3)`: threads.
    Posixaio,
    /// `io_uring_enter(2)`.
    IoUring,
    /// `io_uring` passing NVMe commands through.
    IoUringCmd,
    /// Memory mapped files.
    Mmap,
    /// `splice(2)`.
    Splice,
    /// SCSI generic.
    Sg,
    /// No I/O at all.
    Null,
    /// Another engine that fio has, by its name; an external one with its path.
    Other(String),
}

/// What becomes of an engine's I/O.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Support {
    /// It is simulated; in a kernel it goes through the I/O scheduler.
    Simulated,
    /// It is simulated; in a kernel it passes by the I/O scheduler.
    PassesBy,
    /// In a kernel it goes through the I/O scheduler; it is not simulated.
    Scheduled,
    /// It does not go through the I/O scheduler.
    None,
}

impl Support {
    fn is_simulated(self) -> bool {
        matches!(self, Support::Simulated | Support::PassesBy)
    }

    fn is_scheduled(self) -> bool {
        matches!(self, Support::Simulated | Support::Scheduled)
    }
}

/// One of fio's engines.
struct EngineRow {
    name: &'static str,
    /// `None` for an engine that is known by its name alone.
    engine: Option<Engine>,
    /// Each I/O is over when the call returns.
    synchronous: bool,
    support: Support,
}

const fn row(name: &'static str, engine: Engine, synchronous: bool, support: Support) -> EngineRow {
    EngineRow {
        name,
        engine: Some(engine),
        synchronous,
        support,
    }
}

const fn other(name: &'static str) -> EngineRow {
    EngineRow {
        name,
        engine: None,
        synchronous: false,
        support: Support::None,
    }
}

/// The engines fio 3.33 has, on any platform and in any build, in its order.
static ENGINES: &[EngineRow] = &[
    row("sync", Engine::Sync, true, Support::Simulated),
    row("psync", Engine::Psync, true, Support::Simulated),
    row("vsync", Engine::Vsync, true, Support::Simulated),
    row("pvsync", Engine::Pvsync, true, Support::Simulated),
    row("pvsync2", Engine::Pvsync2, true, Support::Simulated),
    row("libaio", Engine::Libaio, false, Support::Simulated),
    row("io_uring", Engine::IoUring, false, Support::Simulated),
    row("io_uring_cmd", Engine::IoUringCmd, false, Support::PassesBy),
    row("posixaio", Engine::Posixaio, false, Support::Simulated),
    other("solarisaio"),
    other("windowsaio"),
    row("mmap", Engine::Mmap, true, Support::Simulated),
    row("splice", Engine::Splice, true, Support::Scheduled),
    other("netsplice"),
    row("sg", Engine::Sg, false, Support::None),
    row("null", Engine::Null, false, Support::None),
    other("net"),
    other("cpuio"),
    other("rdma"),
    other("librpma_apm_client"),
    other("librpma_apm_server"),
    other("librpma_gpspm_client"),
    other("librpma_gpspm_server"),
    other("e4defrag"),
    other("falloc"),
    other("ftruncate"),
    other("filecreate"),
    other("filestat"),
    other("filedelete"),
    other("exec"),
    other("gfapi"),
    other("gfapi_async"),
    other("libhdfs"),
    other("http"),
    other("rados"),
    other("rbd"),
    other("nbd"),
    other("nfs"),
    other("dfs"),
    other("ime_psync"),
    other("ime_psyncv"),
    other("ime_aio"),
    other("mtd"),
    other("pmemblk"),
    other("dev-dax"),
    other("libpmem"),
    other("libcufile"),
    other("libiscsi"),
    other("libzbc"),
    other("xnvme"),
    other("external"),
];

impl Engine {
    fn row(&self) -> Option<&'static EngineRow> {
        ENGINES.iter().find(|row| row.engine.as_ref() == Some(self))
    }

    /// fio's name for it.
    pub fn name(&self) -> &str {
        match self {
            Engine::Other(name) => name,
            _ => self.row().map_or("", |row| row.name),
        }
    }

    /// The names of all engines that fio has.
    pub(crate) fn names() -> Vec<&'static str> {
        ENGINES.iter().map(|row| row.name).collect()
    }

    /// The engine that fio calls so.
    pub(crate) fn named(name: &str) -> Engine {
        let found = ENGINES.iter().find(|row| row.name == name);
        let known = found.and_then(|row| row.engine.clone());
        known.unwrap_or_else(|| Engine::Other(name.to_string()))
    }

    /// Each I/O is over when the call returns, so `iodepth` is 1 whatever
    /// the job says.
    pub fn is_synchronous(&self) -> bool {
        self.row().is_some_and(|row| row.synchronous)
    }

    /// Whether it is io_uring, with commands of a block device's own or without.
    pub fn is_io_uring(&self) -> bool {
        matches!(self, Engine::IoUring | Engine::IoUringCmd)
    }

    /// Whether jobs with it can be simulated.
    pub fn is_simulated(&self) -> bool {
        self.row().is_some_and(|row| row.support.is_simulated())
    }

    /// The names of those that are simulated.
    pub fn simulated() -> impl Iterator<Item = &'static str> {
        let simulated = |row: &&EngineRow| row.support.is_simulated();
        ENGINES.iter().filter(simulated).map(|row| row.name)
    }

    /// Whether its I/O goes through the I/O scheduler of a kernel.
    pub fn is_scheduled(&self) -> bool {
        self.row().is_some_and(|row| row.support.is_scheduled())
    }

    /// The names of those whose I/O goes through the I/O scheduler of a kernel.
    pub fn scheduled() -> impl Iterator<Item = &'static str> {
        let scheduled = |row: &&EngineRow| row.support.is_scheduled();
        ENGINES.iter().filter(scheduled).map(|row| row.name)
    }
}
