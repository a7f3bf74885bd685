//! The host: how many CPUs it has and what its work costs them.

use std::collections::BTreeMap;

use blklab_blk::Nanos;
use blklab_description::{ReadError, SpecError, Table};
use blklab_workload::fio::Engine;

use crate::cpu::Coldness;
use crate::setup::SIMULATED_ENGINES;

/// A host.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its name: the registry's, or the file's.
    pub name: String,
    /// One line of help.
    pub description: String,
    /// Processors, hyper-threads included.
    pub cpus: u32,
    /// What I/O costs them.
    pub costs: Costs,
    /// Who runs a hardware queue that a submission leaves to kblockd.
    pub dispatch: Dispatch,
}

/// Who asks the scheduler for requests after one was inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dispatch {
    /// A kernel thread, a moment later: Linux before 6.10.
    #[default]
    Kblockd,
    /// The process that submitted, at once: Linux since 6.10, where every bio has
    /// a plug of its own (`__submit_bio`), or a kernel patched to do so.
    Submitter,
}

impl Dispatch {
    fn read(kernel: &Table<'_>) -> Result<Dispatch, ReadError> {
        let words = [
            ("kblockd", Dispatch::Kblockd),
            ("submitter", Dispatch::Submitter),
        ];
        let dispatch = kernel.choice_or("dispatch", &words, Dispatch::default())?;
        kernel.finish()?;
        Ok(dispatch)
    }
}

/// What the steps of an I/O cost the CPU they run on, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// The program's own work before it submits an I/O.
    pub user_submit_ns: u64,
    /// The program's own work when it learns of a completion.
    pub user_reap_ns: u64,
    /// A call into the kernel and back.
    pub syscall_ns: u64,
    /// Bio, request and tag, for each bio.
    pub bio_ns: u64,
    /// The driver's taking a request.
    pub queue_rq_ns: u64,
    /// A request of more than one page: making a list of its pages. Drivers have
    /// a shorter way for a single one (`nvme_setup_prp_simple`).
    pub list_ns: u64,
    /// Each page of a request beyond its first: mapping it for the drive and
    /// unmapping it again.
    pub page_ns: u64,
    /// Entering and leaving the interrupt handler.
    pub interrupt_ns: u64,
    /// Ending a request, from the driver up to the I/O engine.
    pub complete_ns: u64,
    /// Putting a process to sleep and waking it, or switching to another.
    pub context_switch_ns: u64,
    /// How much longer every step takes on a CPU that was idle for long, in
    /// hundredths of what it takes on a busy one. Context switches are not
    /// counted among them: they always come with other data.
    pub cold_percent: u64,
    /// After so much idling it is half of that, and after as much work half of
    /// what it was.
    pub cold_half_ns: u64,
    /// Waking a thread that sleeps, for who wakes it: taking its CPU out of idle.
    pub wake_ns: u64,
    /// Waking a thread of kblockd's for a hardware queue, switching to it and back.
    pub kblockd_ns: u64,
    /// Bringing a lock and what it protects from another CPU.
    pub lock_transfer_ns: u64,
    /// More of that where the lock is held, and again where others wait for it.
    pub lock_waiter_ns: u64,
    /// What the worker of a loop device does with the file under it.
    pub loop_worker: LoopCosts,
    /// What I/O engines add to that, by fio's names for them.
    pub engine: BTreeMap<String, EngineCosts>,
    /// What the steps of each scheduler cost, by its name.
    pub scheduler: BTreeMap<String, SchedulerCosts>,
    /// Schedulers that were not measured, and the one in `scheduler` whose costs
    /// they are assumed to have: as the description says, or else as they declare
    /// (`ElevatorType::costs_like`).
    pub like: BTreeMap<String, String>,
}

/// What the worker of a loop device spends, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopCosts {
    /// A request other than a write: taking it from the list, the call into the
    /// file system.
    pub read_ns: u64,
    /// A request that writes.
    pub write_ns: u64,
    /// Each page of a read: finding it and copying it.
    pub read_page_ns: u64,
    /// Each page of a write.
    pub write_page_ns: u64,
    /// How long a worker with more to do goes on before ksoftirqd has its turn
    /// and tells what has ended.
    pub softirq_wait_ns: u64,
}

/// What an I/O costs more with an I/O engine than with a plain system call
/// (`pread(2)`), in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCosts {
    /// The program and its library: filling the engine's structures, reading its
    /// events.
    pub user_ns: u64,
    /// The kernel: taking the I/O over and handing its end back.
    pub kernel_ns: u64,
}

/// What a scheduler's steps cost, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerCosts {
    /// Looking for a request to merge a bio with.
    pub merge_ns: u64,
    /// Taking a request in.
    pub insert_ns: u64,
    /// Choosing a request.
    pub dispatch_ns: u64,
    /// Hearing of a request's end.
    pub finish_ns: u64,
    /// Bringing what its lock protects from another CPU, where that is not as
    /// much as `lock_transfer_ns` says.
    pub transfer_ns: Option<u64>,
    /// Likewise in place of `lock_waiter_ns`.
    pub waiter_ns: Option<u64>,
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
        }
    }

    /// What the steps of the scheduler of that name cost.
    pub fn of_scheduler(&self, name: &str) -> SchedulerCosts {
        let name = self.like.get(name).map_or(name, String::as_str);
        self.scheduler.get(name).copied().unwrap_or_default()
    }

    /// What the I/O engine adds to each I/O.
    pub fn of_engine(&self, engine: &Engine) -> EngineCosts {
        self.engine.get(engine.name()).copied().unwrap_or_default()
    }

    fn read(table: &Table<'_>) -> Result<Costs, ReadError> {
        let ns = |key| cost(table, key);
        let costs = Costs {
            user_submit_ns: ns("user_submit_ns")?,
            user_reap_ns: ns("user_reap_ns")?,
            syscall_ns: ns("syscall_ns")?,
            bio_ns: ns("bio_ns")?,
            queue_rq_ns: ns("queue_rq_ns")?,
            list_ns: ns("list_ns")?,
            page_ns: ns("page_ns")?,
            interrupt_ns: ns("interrupt_ns")?,
            complete_ns: ns("complete_ns")?,
            context_switch_ns: ns("context_switch_ns")?,
            cold_percent: table.int_or("cold_percent", 0..=MAX_COLD_PERCENT, 0)?,
            cold_half_ns: ns("cold_half_ns")?,
            wake_ns: ns("wake_ns")?,
            kblockd_ns: ns("kblockd_ns")?,
            lock_transfer_ns: ns("lock_transfer_ns")?,
            lock_waiter_ns: ns("lock_waiter_ns")?,
            loop_worker: match table.table_if_any("loop")? {
                Some(table) => LoopCosts::read(&table)?,
                None => LoopCosts::default(),
            },
            engine: read_engines(table)?,
            scheduler: read_schedulers(table)?,
            like: read_likes(table)?,
        };
        table.finish()?;
        costs.likes_are_measured(table)?;
        Ok(costs.with_declared_likes())
    }

    /// Schedulers of which the description says nothing cost what they declare to
    /// be like, where that is measured.
    fn with_declared_likes(mut self) -> Costs {
        for kind in blklab_elevator::all() {
            if let Some(like) = kind.costs_like
                && self.scheduler.contains_key(like)
                && !self.scheduler.contains_key(kind.name)
            {
                let declared = || like.to_string();
                self.like
                    .entry(kind.name.to_string())
                    .or_insert_with(declared);
            }
        }
        self
    }

    fn likes_are_measured(&self, table: &Table<'_>) -> Result<(), ReadError> {
        let unmeasured = |like: &(&String, &String)| !self.scheduler.contains_key(like.1);
        let Some((name, _)) = self.like.iter().find(unmeasured) else {
            return Ok(());
        };
        let measured = self.scheduler.keys().map(|name| format!("{name:?}"));
        let legal = match measured.collect::<Vec<String>>().join(", ") {
            none if none.is_empty() => "to leave it out where there is no".to_string(),
            names => format!("one of {names}, which have a"),
        };
        let legal = format!("legal is {legal} table [costs.scheduler.NAME]");
        Err(table.table("like")?.wrong(name, legal))
    }
}

impl LoopCosts {
    fn read(table: &Table<'_>) -> Result<LoopCosts, ReadError> {
        let costs = LoopCosts {
            read_ns: cost(table, "read_ns")?,
            write_ns: cost(table, "write_ns")?,
            read_page_ns: cost(table, "read_page_ns")?,
            write_page_ns: cost(table, "write_page_ns")?,
            softirq_wait_ns: cost(table, "softirq_wait_ns")?,
        };
        table.finish()?;
        Ok(costs)
    }
}

impl EngineCosts {
    fn read(table: &Table<'_>) -> Result<EngineCosts, ReadError> {
        let costs = EngineCosts {
            user_ns: cost(table, "user_ns")?,
            kernel_ns: cost(table, "kernel_ns")?,
        };
        table.finish()?;
        Ok(costs)
    }
}

impl SchedulerCosts {
    fn read(table: &Table<'_>) -> Result<SchedulerCosts, ReadError> {
        let costs = SchedulerCosts {
            merge_ns: cost(table, "merge_ns")?,
            insert_ns: cost(table, "insert_ns")?,
            dispatch_ns: cost(table, "dispatch_ns")?,
            finish_ns: cost(table, "finish_ns")?,
            transfer_ns: table.int_if_any("transfer_ns", 0..=MAX_COST_NS)?,
            waiter_ns: table.int_if_any("waiter_ns", 0..=MAX_COST_NS)?,
        };
        table.finish()?;
        Ok(costs)
    }
}

/// A step that is free where nothing is said.
fn cost(table: &Table<'_>, key: &'static str) -> Result<u64, ReadError> {
    table.int_or(key, 0..=MAX_COST_NS, 0)
}

fn read_engines(costs: &Table<'_>) -> Result<BTreeMap<String, EngineCosts>, ReadError> {
    let mut engines = BTreeMap::new();
    if let Some(table) = costs.table_if_any("engine")? {
        for engine in SIMULATED_ENGINES {
            if let Some(steps) = table.table_if_any(engine.name())? {
                engines.insert(engine.name().to_string(), EngineCosts::read(&steps)?);
            }
        }
        table.finish()?;
    }
    Ok(engines)
}

fn read_schedulers(costs: &Table<'_>) -> Result<BTreeMap<String, SchedulerCosts>, ReadError> {
    let mut schedulers = BTreeMap::new();
    if let Some(table) = costs.table_if_any("scheduler")? {
        for kind in blklab_elevator::all() {
            if let Some(steps) = table.table_if_any(kind.name)? {
                schedulers.insert(kind.name.to_string(), SchedulerCosts::read(&steps)?);
            }
        }
        table.finish()?;
    }
    Ok(schedulers)
}

/// What `costs.like.NAME` takes.
const LEGAL_LIKE: &str = "the name of a scheduler that has a table [costs.scheduler.NAME]";

fn read_likes(costs: &Table<'_>) -> Result<BTreeMap<String, String>, ReadError> {
    let named = |name: &str| (!name.is_empty()).then(|| name.to_string());
    let mut likes = BTreeMap::new();
    if let Some(table) = costs.table_if_any("like")? {
        for kind in blklab_elevator::all() {
            if let Some(other) = table.parsed_if_any(kind.name, LEGAL_LIKE, named)? {
                likes.insert(kind.name.to_string(), other);
            }
        }
        table.finish()?;
    }
    Ok(likes)
}

/// Machines that come with the program.
const MACHINES: &[(&str, &str)] = &[
    (
        "generic-8",
        include_str!("../../../machines/generic-8.toml"),
    ),
    ("i7-3770k", include_str!("../../../machines/i7-3770k.toml")),
    ("rpi4", include_str!("../../../machines/rpi4.toml")),
    ("vm-2cpu", include_str!("../../../machines/vm-2cpu.toml")),
    (
        "xeon-10core",
        include_str!("../../../machines/xeon-10core.toml"),
    ),
];

const MAX_CPUS: u64 = 4096;
/// A hundred times as slow.
const MAX_COLD_PERCENT: u64 = 10_000;
/// A second: more than any step of I/O costs.
const MAX_COST_NS: u64 = 1_000_000_000;

impl Machine {
    /// The names of the machines that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MACHINES.iter().map(|(name, _)| *name)
    }

    /// The text of one that comes with the program.
    pub fn text(name: &str) -> Option<&'static str> {
        MACHINES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, text)| *text)
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
        let text = blklab_description::text_of("machine", name, MACHINES)?;
        let machine = Machine::parse(name, &text).map_err(|e| e.to_string())?;
        Ok((machine, text))
    }

    /// Reads a description; `name` is the file as the user named it.
    ///
    /// # Errors
    /// Where the text is no description; the message has file and line.
    pub fn parse(name: &str, text: &str) -> Result<Machine, SpecError> {
        blklab_description::read(name, text, |root| Machine::read(name, root))
    }

    fn read(name: &str, root: &Table<'_>) -> Result<Machine, ReadError> {
        let description = root.text("description")?;
        let cpu = root.table("cpu")?;
        let cpus = cpu.int("count", 1..=MAX_CPUS)? as u32;
        cpu.finish()?;
        let dispatch = match root.table_if_any("kernel")? {
            Some(kernel) => Dispatch::read(&kernel)?,
            None => Dispatch::default(),
        };
        let costs = match root.table_if_any("costs")? {
            Some(costs) => Costs::read(&costs)?,
            None => Costs::default(),
        };
        root.finish()?;
        Ok(Machine {
            name: name.to_string(),
            description,
            cpus,
            costs,
            dispatch,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_machine_parses() {
        for name in Machine::names() {
            let machine = Machine::find(name)
                .expect("listed")
                .unwrap_or_else(|e| panic!("{e}"));
            assert!(machine.cpus > 0 && !machine.description.is_empty());
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
    fn who_is_like_another_costs_the_same() {
        let text = "description = \"x\"\n[cpu]\ncount = 1\n[costs.scheduler.bfq]\ninsert_ns = 7\n";
        let parse = |like: &str| Machine::parse("m.toml", &format!("{text}[costs.like]\n{like}\n"));
        let costs = parse("cfq = \"bfq\"").expect("legal").costs;
        assert_eq!(costs.of_scheduler("cfq").insert_ns, 7);
        let error = parse("cfq = \"kyber\"").unwrap_err().to_string();
        assert_eq!(
            error,
            "m.toml:7: `costs.like.cfq`: found \"kyber\", legal is one of \"bfq\", which have a table \
             [costs.scheduler.NAME]"
        );
        let error = parse("cqf = \"bfq\"").unwrap_err().to_string();
        assert!(
            error.starts_with("m.toml:7: `costs.like.cfq`: found `cqf`; write `cfq = ...` ("),
            "{error}"
        );
    }

    #[test]
    fn engines_cost_what_is_said_and_else_nothing() {
        let text = "description = \"x\"\n[cpu]\ncount = 1\n[costs.engine.libaio]\nkernel_ns = 7\n";
        let costs = Machine::parse("m.toml", text).expect("legal").costs;
        assert_eq!(costs.of_engine(&Engine::Libaio).kernel_ns, 7);
        assert_eq!(costs.of_engine(&Engine::Psync), EngineCosts::default());
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
                &format!("{start}[costs.engine.mmap]\nuser_ns = 5\n"),
                "m.toml:4: `costs.engine.mmap`: no such key here; legal are io_uring, libaio, ",
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
