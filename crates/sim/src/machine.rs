//! The host: how many CPUs it has and what its work costs them.

use std::collections::BTreeMap;

use blklab_blk::Nanos;
use blklab_description::{
    Assumed, KeyType, ReadError, Reference, Shipped, SpecError, Table, flag, keys,
    read_with_reference, shipped, text, whole, word,
};
use blklab_device::{DriveSpec, Interface};
use blklab_driver::{Attachment, FrontEnd, FrontEndKind, UsbBridge, UsbLink};
use blklab_elevator::{SchedulerChoice, StepCosts};
use blklab_workload::fio::Engine;
use strum::{Display, EnumMessage, VariantArray};

use crate::cpu::{Coldness, CpuScheduler, Numbering, Ondemand, Topology, Weight};

/// A host.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its name: the registry's, or the file's.
    pub name: String,
    /// One line of help.
    pub description: String,
    /// The processors, and the sockets and cores that they are in.
    pub topology: Topology,
    /// The socket that the drives are attached to.
    pub drive_socket: u32,
    /// The CPU that takes the interrupt of a drive that has but one.
    pub irq_cpu: u32,
    /// Who sets their clock, where it changes.
    pub ondemand: Option<Ondemand>,
    /// What I/O costs them.
    pub costs: Costs,
    /// Who of a CPU's processes runs.
    pub cpu_scheduler: CpuScheduler,
    /// Who runs a hardware queue that a submission leaves to kblockd.
    pub dispatch: Dispatch,
    /// The worker of a loop device.
    pub loop_thread: LoopThread,
    /// Which files a periodic flush goes on with.
    pub periodic_flush: PeriodicFlush,
    /// Whether write-back throttling is on by itself.
    pub wbt: bool,
    /// Below which time apart processes start that would do their I/O in step, in
    /// microseconds.
    pub start_spread_us: u64,
    /// How SATA drives are attached where there is USB alone.
    pub usb: Option<UsbLink>,
    /// Values that were not measured, the one that matters most first.
    pub assumed: Vec<Assumed>,
}

/// Who asks the scheduler for requests after one was inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Dispatch {
    /// A kernel thread, a moment later: Linux before 6.10.
    #[default]
    Kblockd,
    /// The process that submitted, at once: Linux since 6.10, where every bio has
    /// a plug of its own (`__submit_bio`), or a kernel patched to do so.
    Submitter,
    /// The process that submitted where its I/O was plugged, which is asynchronous
    /// direct I/O that is not polled for (`__blkdev_direct_IO`); else a kernel thread:
    /// Linux before 5.16.
    Plugged,
}

/// The worker of a loop device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LoopThread {
    /// A worker of a work queue, of the same priority as programs, whose requests ksoftirqd
    /// completes: Linux since 5.14.
    #[default]
    Workqueue,
    /// A thread of the highest priority, which completes requests itself: Linux before 4.20.
    Kthread,
}

/// Which files with more dirty pages than are written at a time a periodic flush goes on
/// with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PeriodicFlush {
    /// Those that have been dirty for `dirty_expire_centisecs`: Linux since 6.10.
    #[default]
    Expired,
    /// Any that an earlier flush left unfinished, as one that found the background
    /// threshold exceeded: Linux before 6.10.
    Unfinished,
}

impl LoopThread {
    pub(crate) fn weight(self) -> Weight {
        match self {
            LoopThread::Workqueue => Weight::NORMAL,
            LoopThread::Kthread => Weight::MIN_NICE,
        }
    }
}

keys! {
    /// The processors.
    #[derive(Debug)]
    struct Cpu(table) {
        /// How many there are, hyper-threads included.
        count: u32 = whole(1..=4096);
        /// Sockets that they are in, as many in each, whose cores follow each other. Each has
        /// its part of the memory, a node that is reclaimed for itself.
        sockets: u32 = whole(1..=64)
            .or(1)
            .such_that(
                |sockets: &u32| count.is_multiple_of(*sockets),
                format!("a divisor of {count}, the number of CPUs"),
            )
            .documented("a divisor of the number of CPUs");
        /// Threads of a core (SMT, hyper-threads): CPUs that are siblings.
        threads_per_core: u32 = whole(1..=8)
            .or(1)
            .such_that(
                |threads: &u32| (count / sockets).is_multiple_of(*threads),
                format!("a divisor of {}, the number of CPUs in a socket", count / sockets),
            )
            .documented("a divisor of the number of CPUs in a socket");
        /// Which CPUs are siblings.
        numbering: Numbering = word().or(Numbering::default());
        /// The socket that the drives are attached to, from 0.
        drive_socket: u32 = whole(0..=sockets - 1)
            .or(0)
            .documented("one of the sockets");
        /// The CPU that takes the interrupt of a drive that has but one; the first of the
        /// drives' socket if not given.
        irq_cpu: Option<u32> = whole(0..=count - 1)
            .optional()
            .documented("one of the CPUs");
        /// Who sets the clock, which does not change without it.
        ondemand: Option<Ondemand> => table.read_if_any("ondemand", Ondemand::read)?;
    }
}

keys! {
    /// The kernel.
    #[derive(Debug, Default)]
    struct Kernel(table) {
        /// Who of a CPU's processes runs, and for how long.
        cpu_scheduler: CpuScheduler = word().or(CpuScheduler::default());
        /// Who asks the scheduler for requests after one was inserted.
        dispatch: Dispatch = word().or(Dispatch::default());
        /// The worker of a loop device.
        loop_thread: LoopThread as "loop" = word().or(LoopThread::default());
        /// Which files a periodic flush goes on with until they are clean.
        periodic_flush: PeriodicFlush = word().or(PeriodicFlush::default());
        /// Whether write-back throttling is built in (`CONFIG_BLK_WBT_MQ`), which is then on
        /// unless someone turns it off, but under bfq.
        wbt: bool = flag().or(true);
    }
}

/// Assumed: eight processes of fio 3.33 that read a file in order had their first read within
/// 0 to 48 ms of each other in six runs on a busy machine of two CPUs, mostly within 10 ms.
const START_SPREAD_US: u64 = 20_000;
/// A second.
const MAX_START_SPREAD_US: u64 = 1_000_000;

keys! {
    /// The programs whose I/O it is.
    #[derive(Debug)]
    struct Programs(table) {
        /// Below which time apart processes start that would otherwise do the same in step in
        /// every repeat.
        start_spread_us: u64 = whole(0..=MAX_START_SPREAD_US).or(START_SPREAD_US);
    }
}

/// A hundred times as slow.
const MAX_COLD_PERCENT: u64 = 10_000;
/// A second: more than any step of I/O costs.
const MAX_COST_NS: u64 = 1_000_000_000;

/// A step that is free where nothing is said.
fn cost() -> KeyType<'static, u64> {
    whole(0..=MAX_COST_NS).or(0)
}

keys! {
    /// What the steps of an I/O cost the CPU they run on.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Costs(table) {
        /// The program's own work before it submits an I/O.
        pub user_submit_ns: u64 = cost();
        /// The program's own work when it learns of a completion.
        pub user_reap_ns: u64 = cost();
        /// A call into the kernel and back.
        pub syscall_ns: u64 = cost();
        /// Bio, request and tag, for each bio.
        pub bio_ns: u64 = cost();
        /// The way of an I/O through the file of a block device to a bio, which
        /// passthrough commands (`io_uring_cmd`) leave out.
        pub file_io_ns: u64 = cost();
        /// Taking hold of a file that is not registered with io_uring, and letting it
        /// go, for each I/O.
        pub file_ns: u64 = cost();
        /// Pinning the first page of a buffer that is not registered with io_uring,
        /// and letting it go.
        pub pin_ns: u64 = cost();
        /// Likewise each further page.
        pub pin_page_ns: u64 = cost();
        /// Likewise where the program never wrote to the buffer that it writes from: its
        /// pages are the kernel's page of zeroes, over and over, which
        /// `pin_user_pages_fast` leaves to the slow way; as `pin_page_ns` if not given.
        pub pin_zero_page_ns: Option<u64> = whole(0..=MAX_COST_NS).optional();
        /// From the call that wakes io_uring's submission thread, which sleeps, to its first
        /// look into the ring, its CPU's way out of idleness included; as waking and a switch
        /// if not given.
        pub sq_thread_wake_ns: Option<u64> = whole(0..=MAX_COST_NS).optional();
        /// The driver's taking a request.
        pub queue_rq_ns: u64 = cost();
        /// A request of more than one page: making a list of its pages. Drivers have
        /// a shorter way for a single one (`nvme_setup_prp_simple`).
        pub list_ns: u64 = cost();
        /// Each page of a request beyond its first: mapping it for the drive and
        /// unmapping it again.
        pub page_ns: u64 = cost();
        /// Entering and leaving the interrupt handler.
        pub interrupt_ns: u64 = cost();
        /// Ending a request, from the driver up to the I/O engine.
        pub complete_ns: u64 = cost();
        /// A look for completions that no interrupt tells of.
        pub poll_ns: u64 = cost();
        /// Ending a request that such a look found, in place of `complete_ns`.
        pub polled_end_ns: u64 = cost();
        /// Putting a process to sleep and waking it, or switching to another.
        pub context_switch_ns: u64 = cost();
        /// How much longer every step takes on a CPU that was idle for long, in
        /// hundredths of what it takes on a busy one. Context switches are not
        /// counted among them: they always come with other data.
        pub cold_percent: u64 = whole(0..=MAX_COLD_PERCENT).or(0);
        /// After so much idling it is half of that, and after as much work half of
        /// what it was.
        pub cold_half_ns: u64 = cost();
        /// How much longer every step takes while all other CPUs work too, in
        /// hundredths: they share caches, memory and the clock.
        pub crowded_percent: u64 = whole(0..=MAX_COLD_PERCENT).or(0);
        /// With this many other CPUs at work it is half of the most that it comes to, which
        /// `crowded_percent` then is; without it, it grows in proportion to them.
        pub crowded_half: u32 = whole(0..=4096).or(0);
        /// How much longer every step takes while the core's other threads work too, in
        /// hundredths: they share its units and caches. It grows in proportion to how busy
        /// they are.
        pub sibling_percent: u64 = whole(0..=MAX_COLD_PERCENT).or(0);
        /// Up to how much longer or shorter a step takes by chance, in hundredths, as cache
        /// misses come. Without it CPUs that do the same never meet at a lock.
        pub jitter_percent: u64 = whole(0..=99).or(0);
        /// What a step of a scheduler takes for the second and each further request of
        /// those that it is given or asked for at once, in hundredths of what it takes
        /// for the first: code and data are in the caches then.
        pub repeated_percent: u64 = whole(0..=MAX_COLD_PERCENT).or(100);
        /// Waking a thread that sleeps, for who wakes it: taking its CPU out of idle.
        pub wake_ns: u64 = cost();
        /// Queueing a signal for a program that has it blocked, and taking it, beside the two
        /// calls.
        pub signal_ns: u64 = cost();
        /// Starting a thread of a program and ending it, beside the switch to it.
        pub thread_ns: u64 = cost();
        /// Dropping a page from the page cache, as `unlink`, `truncate` and `drop_caches` do.
        pub drop_page_ns: u64 = cost();
        /// Waking a thread of kblockd's for a hardware queue, switching to it and back.
        pub kblockd_ns: u64 = cost();
        /// Bringing a lock and what it protects from another CPU.
        pub lock_transfer_ns: u64 = cost();
        /// More of that where the lock is held, and again where others wait for it.
        pub lock_waiter_ns: u64 = cost();
        /// Giving a request to the driver that another CPU made, which a scheduler for all
        /// CPUs may hand to anyone: bringing the request from there.
        pub foreign_request_ns: u64 = cost();
        /// How much longer both take where that other CPU is of another socket, in
        /// hundredths.
        pub remote_percent: u64 = whole(0..=MAX_COLD_PERCENT).or(0);
        /// How much longer it takes to write a command where the drive is attached to another
        /// socket, and again to read of its end: both are in that socket's memory.
        pub remote_drive_ns: u64 = cost();
        /// What a transfer over USB costs the host controller's driver.
        pub usb: UsbCosts => table.read_if_any("usb", UsbCosts::read)?.unwrap_or_default();
        /// What the worker of a loop device does with the file under it.
        pub loop_worker: LoopCosts =>
            table.read_if_any("loop", LoopCosts::read)?.unwrap_or_default();
        /// What front ends and their servers spend, by the names of `--frontends`.
        pub front_end: BTreeMap<String, FrontEndCosts> =>
            table.read_if_any("front_end", read_front_ends)?.unwrap_or_default();
        /// What I/O engines add to that, by fio's names for them.
        pub engine: BTreeMap<String, EngineCosts> =>
            table.read_if_any("engine", read_engines)?.unwrap_or_default();
        /// What the steps of schedulers cost, by their names. One without a table has
        /// mq-deadline's, in the relation that was measured between the two
        /// (`StepCosts`).
        pub scheduler: BTreeMap<String, SchedulerCosts> =>
            table.read_if_any("scheduler", read_schedulers)?.unwrap_or_default();
    }
}

keys! {
    /// What a transfer over USB costs: a command has one for itself, one for its data
    /// and one for its status.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct UsbCosts(table) {
        /// Giving it to the host controller: mapping, entries of the ring, doorbell.
        pub submit_ns: u64 = cost();
        /// Taking its end from the event ring and giving it back.
        pub complete_ns: u64 = cost();
    }
}

keys! {
    /// What the worker of a loop device spends.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LoopCosts(table) {
        /// A request other than a write: taking it from the list, the call into the
        /// file system.
        pub read_ns: u64 = cost();
        /// A request that writes.
        pub write_ns: u64 = cost();
        /// Each page of a read: finding it and copying it.
        pub read_page_ns: u64 = cost();
        /// Each page of a write.
        pub write_page_ns: u64 = cost();
        /// Writing to a page of another socket's memory, beyond a copy between pages of
        /// its own.
        pub remote_page_ns: u64 = cost();
        /// How long a worker with more to do goes on before ksoftirqd has its turn
        /// and tells what has ended.
        pub softirq_wait_ns: u64 = cost();
    }
}

keys! {
    /// What a front end spends between a request queue and a server in user space.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FrontEndCosts(table) {
        /// The driver's sending a request to the server, on the CPU that submits it.
        pub send_ns: u64 = cost();
        /// Each page of a write that sending copies.
        pub send_page_ns: u64 = cost();
        /// Telling a server that sleeps, beside waking its thread: a virtual machine's
        /// exit.
        pub notify_ns: u64 = cost();
        /// The server's calls that receive what has come, once a round.
        pub receive_ns: u64 = cost();
        /// Each page of a write that receiving copies.
        pub receive_page_ns: u64 = cost();
        /// What the server does with a request.
        pub serve_ns: u64 = cost();
        /// Each page that it copies for that.
        pub serve_page_ns: u64 = cost();
        /// The server's calls that tell of answers, once a round.
        pub reply_ns: u64 = cost();
        /// In these calls, each answer.
        pub reply_each_ns: u64 = cost();
        /// Likewise each page of a read.
        pub reply_page_ns: u64 = cost();
        /// Bringing answers to the kernel, once a round: its thread's waking, or a
        /// virtual machine's interrupt.
        pub complete_ns: u64 = cost();
        /// Each answer in that thread.
        pub complete_each_ns: u64 = cost();
        /// Likewise each page of a read.
        pub complete_page_ns: u64 = cost();
        /// The most requests of a round.
        pub batch: u32 = whole(1..=1024).or(16);
    }
}

keys! {
    /// What an I/O costs more with an I/O engine than with a plain system call
    /// (`pread(2)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EngineCosts(table) {
        /// The program and its library: filling the engine's structures, reading its
        /// events.
        pub user_ns: u64 = cost();
        /// The kernel: taking the I/O over and handing its end back.
        pub kernel_ns: u64 = cost();
        /// Going to sleep for ends and finding them afterwards, beside the switch.
        pub wait_ns: u64 = cost();
    }
}

keys! {
    /// What a scheduler's steps cost.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SchedulerCosts(table) {
        /// Looking for a request to merge a bio with.
        pub merge_ns: u64 = cost();
        /// Taking a request in.
        pub insert_ns: u64 = cost();
        /// Choosing a request.
        pub dispatch_ns: u64 = cost();
        /// Hearing of a request's end.
        pub finish_ns: u64 = cost();
        /// Bringing what its lock protects from another CPU, where that is not as
        /// much as `lock_transfer_ns` says.
        pub transfer_ns: Option<u64> = whole(0..=MAX_COST_NS).optional();
        /// Likewise in place of `lock_waiter_ns`.
        pub waiter_ns: Option<u64> = whole(0..=MAX_COST_NS).optional();
    }
}

impl SchedulerCosts {
    /// Those of a scheduler whose steps are in that relation to these, which are mq-deadline's.
    /// Its lock is taken to be like mq-deadline's.
    fn scaled(self, relative: StepCosts) -> SchedulerCosts {
        let hundredths = |step_ns: u64, of: u32| step_ns * u64::from(of) / 100;
        SchedulerCosts {
            merge_ns: hundredths(self.merge_ns, relative.merge),
            insert_ns: hundredths(self.insert_ns, relative.insert),
            dispatch_ns: hundredths(self.dispatch_ns, relative.dispatch),
            finish_ns: self.finish_ns + hundredths(self.dispatch_ns, relative.finish),
            ..self
        }
    }
}

impl Costs {
    /// Whether CPUs are free of charge.
    pub fn are_zero(&self) -> bool {
        *self == Costs::default()
    }

    /// How slow a CPU gets that has been idle.
    pub(crate) fn coldness(&self) -> Coldness {
        Coldness {
            percent: self.cold_percent,
            half: Nanos(self.cold_half_ns),
            crowded_percent: self.crowded_percent,
            crowded_half: self.crowded_half,
            sibling_percent: self.sibling_percent,
            jitter_percent: self.jitter_percent,
        }
    }

    /// What the steps of the scheduler of that name cost.
    pub fn of_scheduler(&self, name: &str) -> SchedulerCosts {
        if let Some(own) = self.scheduler.get(name) {
            return *own;
        }
        let measured = self.scheduler.get("mq-deadline");
        let relative = SchedulerChoice::named(name).map(|choice| choice.kind.costs);
        match (measured, relative) {
            (Some(measured), Ok(Some(relative))) => measured.scaled(relative),
            _ => SchedulerCosts::default(),
        }
    }

    /// What a front end of that kind and its server spend; `None` where that is not known.
    pub fn of_front_end(&self, kind: FrontEndKind) -> Option<FrontEndCosts> {
        self.front_end.get(kind.name()).copied()
    }

    /// What the I/O engine adds to each I/O.
    pub fn of_engine(&self, engine: &Engine) -> EngineCosts {
        self.engine.get(engine.name()).copied().unwrap_or_default()
    }
}

fn read_front_ends(table: &Table<'_>) -> Result<BTreeMap<String, FrontEndCosts>, ReadError> {
    let names = FrontEndKind::ALL.map(FrontEndKind::name);
    let front_ends = table.tables(names, FrontEndCosts::read)?;
    table.finish()?;
    Ok(front_ends)
}

fn read_engines(table: &Table<'_>) -> Result<BTreeMap<String, EngineCosts>, ReadError> {
    let engines = table.tables(Engine::simulated(), EngineCosts::read)?;
    table.finish()?;
    Ok(engines)
}

fn read_schedulers(table: &Table<'_>) -> Result<BTreeMap<String, SchedulerCosts>, ReadError> {
    let schedulers = table.tables(scheduler_names(), SchedulerCosts::read)?;
    table.finish()?;
    Ok(schedulers)
}

fn scheduler_names() -> impl Iterator<Item = &'static str> {
    blklab_elevator::all().iter().map(|kind| kind.name)
}

/// The descriptions in `machines/`.
const MACHINES: Shipped = shipped!("machine", "../../../machines":
    "epyc-9654p",
    "generic-8",
    "i5-4200u",
    "i7-3770k",
    "rpi4",
    "server-8",
    "vm-2cpu",
    "xeon-10core",
    "xeon-2x10core",
);

impl Machine {
    /// The number of processors, hyper-threads included.
    pub fn cpus(&self) -> u32 {
        self.topology.cpus
    }

    /// The one that is simulated where none is named.
    pub const DEFAULT: &'static str = "server-8";

    /// The names of the machines that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MACHINES.names()
    }

    /// The text of one that comes with the program.
    pub fn text(name: &str) -> Option<&'static str> {
        MACHINES.text(name)
    }

    /// A description that has every key; of engines and schedulers one each.
    pub fn complete() -> &'static str {
        include_str!("../complete/machine.toml")
    }

    /// All keys as a page of Markdown.
    pub fn reference() -> String {
        let read = Machine::parse_with_reference("complete", Machine::complete());
        let (_, reference) = read.expect("tests read it");
        format!(
            "# Machine descriptions\n\nEvery key of a file in `machines/` and of one's own.\n\n{}",
            reference.markdown()
        )
    }

    /// One that comes with the program.
    pub fn find(name: &str) -> Option<Result<Machine, SpecError>> {
        Some(Machine::parse(name, Machine::text(name)?))
    }

    /// The machine of that name, or that a file describes, and its text.
    ///
    /// # Errors
    /// Where there is none, or its description has a mistake; the message names
    /// the machines that there are, or file and line.
    pub fn load(name: &str) -> Result<(Machine, String), String> {
        let text = MACHINES.text_or_file(name)?;
        let machine = Machine::parse(name, &text).map_err(|e| e.to_string())?;
        Ok((machine, text))
    }

    /// The bridge that the drive is behind on this machine, if it is.
    pub(crate) fn bridge_of(&self, drive: &DriveSpec) -> Option<UsbBridge> {
        let link = self.usb.filter(|_| drive.interface == Interface::Ahci)?;
        let costs = &self.costs;
        let of_transfer_ns = costs.interrupt_ns + costs.usb.complete_ns + costs.usb.submit_ns;
        let wakeup_ns = match link.wakeups() {
            0 => 0,
            _ => costs.context_switch_ns,
        };
        Some(UsbBridge {
            link,
            turnaround: Nanos(of_transfer_ns + wakeup_ns),
        })
    }

    /// How the drive is attached here.
    pub(crate) fn attachment(&self, drive: &DriveSpec, front_end: Option<FrontEnd>) -> Attachment {
        match (front_end, self.bridge_of(drive)) {
            (Some(front_end), _) => Attachment::FrontEnd(front_end),
            (None, Some(bridge)) => Attachment::Usb(bridge),
            (None, None) => Attachment::Direct,
        }
    }

    /// Who runs hardware queues there. Before Linux 6.6 a driver that may sleep, as nbd's while
    /// another sends, is called by kblockd alone (`BLK_MQ_F_BLOCKING`).
    pub(crate) fn dispatch_to(&self, front_end: Option<FrontEnd>) -> Dispatch {
        let may_sleep = front_end.is_some_and(|f| f.kind == FrontEndKind::Nbd);
        match self.dispatch {
            Dispatch::Plugged if may_sleep => Dispatch::Kblockd,
            dispatch => dispatch,
        }
    }

    /// The machine as the drive's requests find it: a command over USB has several
    /// transfers, of which each is given to the host controller and ends.
    pub(crate) fn serving(&self, drive: &DriveSpec) -> Machine {
        let mut machine = self.clone();
        let Some(UsbBridge { link, .. }) = self.bridge_of(drive) else {
            return machine;
        };
        let costs = &mut machine.costs;
        costs.queue_rq_ns += UsbLink::TRANSFERS * costs.usb.submit_ns;
        // The last interrupt is the one that every request has.
        costs.complete_ns += UsbLink::TRANSFERS * costs.usb.complete_ns
            + (link.interrupts() - 1) * costs.interrupt_ns
            + link.wakeups() * costs.context_switch_ns;
        machine
    }

    /// Reads a description; `name` is the file as the user named it.
    ///
    /// # Errors
    /// Where the text is no description; the message has file and line.
    pub fn parse(name: &str, text: &str) -> Result<Machine, SpecError> {
        Machine::parse_with_reference(name, text).map(|(machine, _)| machine)
    }

    /// The same, with all keys that a machine can have.
    ///
    /// # Errors
    /// As [`Machine::parse`].
    pub fn parse_with_reference(name: &str, text: &str) -> Result<(Machine, Reference), SpecError> {
        read_with_reference(name, text, |root| Machine::read(name, root))
    }

    fn read(name: &str, root: &Table<'_>) -> Result<Machine, ReadError> {
        let description = root.key("description", "A line of help.", text())?;
        let cpu = Cpu::read(&root.table("cpu")?)?;
        let kernel = root
            .read_if_any("kernel", Kernel::read)?
            .unwrap_or_default();
        let programs = root.read_if_any("programs", Programs::read)?;
        let usb = root.read_if_any("usb", UsbLink::of_table)?;
        let costs = root.read_if_any("costs", Costs::read)?;
        let assumed = root.assumed()?;
        root.finish()?;
        let topology = Topology {
            cpus: cpu.count,
            sockets: cpu.sockets,
            threads_per_core: cpu.threads_per_core,
            numbering: cpu.numbering,
        };
        Ok(Machine {
            name: name.to_string(),
            description,
            topology,
            drive_socket: cpu.drive_socket,
            irq_cpu: (cpu.irq_cpu).unwrap_or(topology.first_of(cpu.drive_socket as usize) as u32),
            ondemand: cpu.ondemand,
            costs: costs.unwrap_or_default(),
            cpu_scheduler: kernel.cpu_scheduler,
            dispatch: kernel.dispatch,
            loop_thread: kernel.loop_thread,
            periodic_flush: kernel.periodic_flush,
            wbt: kernel.wbt,
            start_spread_us: programs.map_or(START_SPREAD_US, |p| p.start_spread_us),
            usb,
            assumed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_reference_says_of_every_key_what_it_is() {
        let page = Machine::reference();
        for name in ["count", "dispatch", "bio_ns", "kernel_ns", "waiter_ns"] {
            assert!(page.contains(&format!("| `{name}` |")), "{name}\n{page}");
        }
        assert!(!page.contains("|  |\n"), "a key without a meaning\n{page}");
    }

    #[test]
    fn every_machine_parses() {
        for name in Machine::names() {
            let machine = Machine::find(name)
                .expect("listed")
                .unwrap_or_else(|e| panic!("{e}"));
            assert!(machine.cpus() > 0 && !machine.description.is_empty());
        }
    }

    #[test]
    fn no_scheduler_is_free_where_steps_cost_anything() {
        for name in Machine::names() {
            let costs = Machine::find(name).expect("listed").expect("legal").costs;
            for kind in blklab_elevator::all().iter().filter(|_| !costs.are_zero()) {
                let free = costs.of_scheduler(kind.name) == SchedulerCosts::default();
                assert_eq!(free, kind.name == "none", "{} on {name}", kind.name);
            }
        }
    }

    #[test]
    fn a_scheduler_without_a_table_has_mq_deadlines_in_the_measured_relation() {
        let text = "description = \"x\"\n[cpu]\ncount = 1\n[costs.scheduler.bfq]\ninsert_ns = 7\n\
                    [costs.scheduler.mq-deadline]\nmerge_ns = 100\ninsert_ns = 1000\n\
                    dispatch_ns = 500\nfinish_ns = 40\nwaiter_ns = 9\n";
        let costs = Machine::parse("m.toml", text).expect("legal").costs;
        assert_eq!(costs.of_scheduler("bfq").insert_ns, 7);
        assert_eq!(costs.of_scheduler("none"), SchedulerCosts::default());
        for name in ["ac", "adios", "cfq", "kyber"] {
            let kind = blklab_elevator::find(name).expect("listed");
            let relative = kind.costs.expect("it is declared");
            let expected = SchedulerCosts {
                merge_ns: u64::from(relative.merge),
                insert_ns: 10 * u64::from(relative.insert),
                dispatch_ns: 5 * u64::from(relative.dispatch),
                finish_ns: 40 + 5 * u64::from(relative.finish),
                transfer_ns: None,
                waiter_ns: Some(9),
            };
            assert_eq!(costs.of_scheduler(name), expected, "{name}");
        }
    }

    #[test]
    fn engines_cost_what_is_said_and_else_nothing() {
        let text = "description = \"x\"\n[cpu]\ncount = 1\n[costs.engine.libaio]\nkernel_ns = 7\n";
        let costs = Machine::parse("m.toml", text).expect("legal").costs;
        assert_eq!(costs.of_engine(&Engine::Libaio).kernel_ns, 7);
        assert_eq!(costs.of_engine(&Engine::Psync), EngineCosts::default());
    }

    #[test]
    fn a_sata_drive_is_behind_usb_where_the_machine_has_usb_alone() {
        let text = |protocol: &str| {
            format!(
                "description = \"x\"\n[cpu]\ncount = 1\n[usb]\nprotocol = \"{protocol}\"\n\
                 speed = \"super\"\n[costs]\nqueue_rq_ns = 1\ncomplete_ns = 2\n\
                 interrupt_ns = 10\ncontext_switch_ns = 100\n[costs.usb]\nsubmit_ns = 1000\n\
                 complete_ns = 2000\n"
            )
        };
        let sata = blklab_device::registry::find("mx100-256").expect("listed");
        let nvme = blklab_device::registry::find("nvme").expect("listed");
        let (sata, nvme) = (sata.expect("valid"), nvme.expect("valid"));
        for (protocol, turnaround, complete) in [("uas", 3010, 6012), ("usb_storage", 3110, 6322)] {
            let machine = Machine::parse("m.toml", &text(protocol)).expect("legal");
            let bridge = machine.bridge_of(&sata).expect("SATA");
            assert_eq!(bridge.turnaround, Nanos(turnaround));
            let costs = machine.serving(&sata).costs;
            assert_eq!((costs.queue_rq_ns, costs.complete_ns), (3001, complete));
            assert_eq!(machine.bridge_of(&nvme), None);
            assert_eq!(machine.serving(&nvme), machine);
        }
        let error = Machine::parse("m.toml", &text("bot"))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("m.toml:5: `usb.protocol`: found \"bot\", legal is one of \"uas\""),
            "{error}"
        );
    }

    #[test]
    fn kblockd_alone_calls_a_driver_that_may_sleep_on_an_old_kernel() {
        let machine = |name| Machine::find(name).expect("listed").expect("legal");
        let front_end = |kind| Some(FrontEnd { kind, queues: 1 });
        let [nbd, tcmu] = [FrontEndKind::Nbd, FrontEndKind::Tcmu].map(front_end);
        let old = machine("i5-4200u");
        let found = [None, tcmu, nbd].map(|front_end| old.dispatch_to(front_end));
        let plugged = Dispatch::Plugged;
        assert_eq!(found, [plugged, plugged, Dispatch::Kblockd]);
        let new = machine("vm-2cpu");
        assert_eq!(new.dispatch_to(nbd), new.dispatch);
    }

    #[test]
    fn mistakes_have_a_line() {
        let start = "description = \"x\"\n[cpu]\ncount = 1\n";
        let cases = [
            (
                "description = \"x\"\n[cpu]\ncount = 0\n",
                "m.toml:3: `cpu.count`: found 0, legal is a whole number from 1 to 4096",
            ),
            (
                "description = \"x\"\n[cpu]\ncuont = 4\n",
                "m.toml:3: `cpu.count`: found `cuont`; write `count = ...` (a whole number from 1 to 4096)",
            ),
            (
                &format!("{start}[costs]\nbio_ns = -5\n"),
                "m.toml:5: `costs.bio_ns`: found -5, legal is a whole number from 0 to 1000000000",
            ),
            (
                &format!("{start}[costs]\nbio_us = 5\n"),
                "m.toml:5: `costs.bio_ns`: found `bio_us`: the unit is missing or another; write `bio_ns = ...` (a whole number from 0 to 1000000000)",
            ),
            (
                &format!("{start}[costs.engine.splice]\nuser_ns = 5\n"),
                "m.toml:4: `costs.engine.splice`: no such key here; legal are io_uring, io_uring_cmd, libaio, ",
            ),
            (
                &format!("{start}[kernel]\ndispatch = \"me\"\n"),
                "m.toml:5: `kernel.dispatch`: found \"me\", legal is one of \"kblockd\", \"submitter\"",
            ),
            (
                &format!("{start}[costs.scheduler.bfq]\nwaiter_ns = 0.5\n"),
                "m.toml:5: `costs.scheduler.bfq.waiter_ns`: found 0.5, legal is ",
            ),
        ];
        for (text, expected) in cases {
            let error = Machine::parse("m.toml", text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_description_makes_it_panic(
            name in 0..5usize,
            edits in proptest::collection::vec((0..200usize, "[-a-z0-9.\"\\[\\]{}=, ]{0,24}"), 1..4),
        ) {
            let names: Vec<&str> = Machine::names().collect();
            let text = Machine::text(names[name % names.len()]).expect("listed");
            let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
            for (at, other) in edits {
                let at = at % lines.len();
                let key = lines[at].split_once(" = ").map(|(key, _)| key.to_string());
                lines[at] = match key {
                    Some(key) => format!("{key} = {other}"),
                    None => other,
                };
            }
            if let Err(error) = Machine::parse("m.toml", &lines.join("\n")) {
                prop_assert!(error.to_string().starts_with("m.toml:"), "{}", error);
            }
        }
    }
}
