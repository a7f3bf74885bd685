//! fio's I/O engines: their names and their support here.

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

/// The treatment of an engine's I/O.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Support {
    /// The I/O is simulated; in a kernel it goes through the I/O scheduler.
    Simulated,
    /// The I/O is simulated; in a kernel it bypasses the I/O scheduler.
    PassesBy,
    /// The I/O is not simulated; in a kernel it goes through the I/O scheduler.
    Scheduled,
    /// The I/O does not go through the I/O scheduler.
    None,
    /// There is no I/O of blocks.
    NoBlocks,
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
    /// The engine; `None` if only the name is known.
    engine: Option<Engine>,
    /// Whether each I/O is complete when its call returns.
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

/// An engine that neither reads nor writes blocks of a file or drive.
const fn without_blocks(name: &'static str) -> EngineRow {
    EngineRow {
        name,
        engine: None,
        synchronous: false,
        support: Support::NoBlocks,
    }
}

/// The engines of fio 3.33 on any platform and in any build, in fio's order.
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
    without_blocks("netsplice"),
    row("sg", Engine::Sg, false, Support::None),
    row("null", Engine::Null, false, Support::None),
    without_blocks("net"),
    without_blocks("cpuio"),
    without_blocks("rdma"),
    without_blocks("librpma_apm_client"),
    without_blocks("librpma_apm_server"),
    without_blocks("librpma_gpspm_client"),
    without_blocks("librpma_gpspm_server"),
    without_blocks("e4defrag"),
    without_blocks("falloc"),
    without_blocks("ftruncate"),
    without_blocks("filecreate"),
    without_blocks("filestat"),
    without_blocks("filedelete"),
    without_blocks("exec"),
    other("gfapi"),
    other("gfapi_async"),
    other("libhdfs"),
    without_blocks("http"),
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

    /// Returns fio's name for the engine.
    pub fn name(&self) -> &str {
        match self {
            Engine::Other(name) => name,
            _ => self.row().map_or("", |row| row.name),
        }
    }

    /// Returns the names of all of fio's engines.
    pub(crate) fn names() -> Vec<&'static str> {
        ENGINES.iter().map(|row| row.name).collect()
    }

    /// Returns the engine with fio's name `name`.
    pub(crate) fn named(name: &str) -> Engine {
        let found = ENGINES.iter().find(|row| row.name == name);
        let known = found.and_then(|row| row.engine.clone());
        known.unwrap_or_else(|| Engine::Other(name.to_string()))
    }

    /// Whether each I/O is complete when its call returns, so that `iodepth` is always 1.
    pub fn is_synchronous(&self) -> bool {
        self.row().is_some_and(|row| row.synchronous)
    }

    /// Whether the engine is `io_uring` or `io_uring_cmd`.
    pub fn is_io_uring(&self) -> bool {
        matches!(self, Engine::IoUring | Engine::IoUringCmd)
    }

    /// Whether another engine does the same I/O another way, so that it can stand for this one.
    pub fn has_stand_in(&self) -> bool {
        let row = ENGINES.iter().find(|row| row.name == self.name());
        row.is_none_or(|row| row.support != Support::NoBlocks)
    }

    /// Whether jobs with this engine can be simulated.
    pub fn is_simulated(&self) -> bool {
        self.row().is_some_and(|row| row.support.is_simulated())
    }

    /// Returns the names of the engines that are simulated.
    pub fn simulated() -> impl Iterator<Item = &'static str> {
        let simulated = |row: &&EngineRow| row.support.is_simulated();
        ENGINES.iter().filter(simulated).map(|row| row.name)
    }

    /// Whether the engine's I/O goes through a kernel's I/O scheduler.
    pub fn is_scheduled(&self) -> bool {
        self.row().is_some_and(|row| row.support.is_scheduled())
    }

    /// Returns the names of the engines whose I/O goes through a kernel's I/O scheduler.
    pub fn scheduled() -> impl Iterator<Item = &'static str> {
        let scheduled = |row: &&EngineRow| row.support.is_scheduled();
        ENGINES.iter().filter(scheduled).map(|row| row.name)
    }
}
