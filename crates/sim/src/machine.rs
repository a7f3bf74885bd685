//! The host: how many CPUs it has and what its work costs them.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

/// A mistake in a machine description.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{file}:{line}: {message}")]
pub struct MachineError {
    /// The file as the user named it.
    pub file: String,
    /// The line, from one.
    pub line: usize,
    /// What was found and what would be right.
    pub message: String,
}

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
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Dispatch {
    /// A kernel thread, a moment later: Linux before 6.10.
    #[default]
    Kblockd,
    /// The process that submitted, at once: Linux since 6.10, where every bio has
    /// a plug of its own (`__submit_bio`), or a kernel patched to do so.
    Submitter,
}

/// What the steps of an I/O cost the CPU they run on, in nanoseconds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Costs {
    /// The program's own work before it submits an I/O.
    pub user_submit_ns: u64,
    /// The program's own work when it learns of a completion.
    pub user_reap_ns: u64,
    /// A call into the kernel and back.
    pub syscall_ns: u64,
    /// I/O engine, bio, request and tag, for each bio.
    pub bio_ns: u64,
    /// The driver's taking a request.
    pub queue_rq_ns: u64,
    /// Each page of a request beyond its first: mapping it for the drive and
    /// unmapping it again.
    pub page_ns: u64,
    /// Entering and leaving the interrupt handler.
    pub interrupt_ns: u64,
    /// Ending a request, from the driver up to the I/O engine.
    pub complete_ns: u64,
    /// Putting a process to sleep and waking it, caches cold.
    pub context_switch_ns: u64,
    /// Waking a thread that sleeps, for who wakes it: taking its CPU out of idle.
    pub wake_ns: u64,
    /// Bringing a lock and what it protects from another CPU.
    pub lock_transfer_ns: u64,
    /// More of that where the lock is held, and again where others wait for it.
    pub lock_waiter_ns: u64,
    /// What the worker of a loop device does with the file under it.
    #[serde(rename = "loop")]
    pub loop_worker: LoopCosts,
    /// What the steps of each scheduler cost, by its name.
    pub scheduler: BTreeMap<String, SchedulerCosts>,
    /// Schedulers that nobody measured, and the one in `scheduler` whose costs
    /// they are assumed to have.
    pub like: BTreeMap<String, String>,
}

/// What the worker of a loop device spends, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
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

/// What a scheduler's steps cost, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
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

    /// What the steps of the scheduler of that name cost.
    pub fn of_scheduler(&self, name: &str) -> SchedulerCosts {
        let name = self.like.get(name).map_or(name, String::as_str);
        self.scheduler.get(name).copied().unwrap_or_default()
    }

    fn largest(&self) -> u64 {
        let own = [
            self.user_submit_ns,
            self.user_reap_ns,
            self.syscall_ns,
            self.bio_ns,
            self.queue_rq_ns,
            self.page_ns,
            self.interrupt_ns,
            self.complete_ns,
            self.context_switch_ns,
            self.wake_ns,
            self.lock_transfer_ns,
            self.lock_waiter_ns,
            self.loop_worker.read_ns,
            self.loop_worker.write_ns,
            self.loop_worker.read_page_ns,
            self.loop_worker.write_page_ns,
            self.loop_worker.softirq_wait_ns,
        ];
        let schedulers = self.scheduler.values().flat_map(|s| {
            let lock = [s.transfer_ns, s.waiter_ns].map(Option::unwrap_or_default);
            let steps = [s.merge_ns, s.insert_ns, s.dispatch_ns, s.finish_ns];
            lock.into_iter().chain(steps)
        });
        own.into_iter().chain(schedulers).max().unwrap_or(0)
    }
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

const MAX_CPUS: u32 = 4096;
/// A second: more than any step of I/O costs.
const MAX_COST_NS: u64 = 1_000_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    description: String,
    cpu: Cpu,
    #[serde(default)]
    kernel: Kernel,
    #[serde(default = "no_costs")]
    costs: toml::Spanned<Costs>,
}

fn no_costs() -> toml::Spanned<Costs> {
    toml::Spanned::new(0..0, Costs::default())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cpu {
    count: toml::Spanned<u32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Kernel {
    dispatch: Dispatch,
}

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
    pub fn find(name: &str) -> Option<Result<Machine, MachineError>> {
        Some(Machine::parse(name, Machine::text(name)?))
    }

    /// Reads a description; `name` is the file as the user named it.
    ///
    /// # Errors
    /// Where the text is no description; the message has file and line.
    pub fn parse(name: &str, text: &str) -> Result<Machine, MachineError> {
        let fault = |offset: usize, message: String| MachineError {
            file: name.to_string(),
            line: 1 + text.as_bytes()[..offset.min(text.len())]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count(),
            message,
        };
        let parsed: Text = toml::from_str(text)
            .map_err(|e| fault(e.span().map_or(0, |s| s.start), e.message().to_string()))?;
        let count = *parsed.cpu.count.get_ref();
        if !(1..=MAX_CPUS).contains(&count) {
            let at = parsed.cpu.count.span().start;
            let message = format!("cpu.count: found {count}, legal is 1 to {MAX_CPUS}");
            return Err(fault(at, message));
        }
        let costs = parsed.costs.get_ref();
        let at = parsed.costs.span().start;
        if costs.largest() > MAX_COST_NS {
            let message = format!("costs: legal is 0 to {MAX_COST_NS} ns a step");
            return Err(fault(at, message));
        }
        let unknown = |name: &&String| blklab_elevator::find(name).is_none();
        if let Some(name) = costs.scheduler.keys().find(unknown) {
            let message = format!("costs.scheduler.{name}: there is no scheduler of that name");
            return Err(fault(at, message));
        }
        if let Some(name) = costs.like.keys().find(unknown) {
            let message = format!("costs.like.{name}: there is no scheduler of that name");
            return Err(fault(at, message));
        }
        let unmeasured = |like: &(&String, &String)| !costs.scheduler.contains_key(like.1);
        if let Some((name, other)) = costs.like.iter().find(unmeasured) {
            let message = format!("costs.like.{name}: there is no costs.scheduler.{other}");
            return Err(fault(at, message));
        }
        Ok(Machine {
            name: name.to_string(),
            description: parsed.description,
            cpus: count,
            costs: parsed.costs.into_inner(),
            dispatch: parsed.kernel.dispatch,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let error = parse("cfq = \"kyber\"").unwrap_err().message;
        assert_eq!(error, "costs.like.cfq: there is no costs.scheduler.kyber");
        let error = parse("cqf = \"bfq\"").unwrap_err().message;
        assert_eq!(error, "costs.like.cqf: there is no scheduler of that name");
    }

    #[test]
    fn mistakes_have_a_line() {
        let error = Machine::parse("m.toml", "description = \"x\"\n[cpu]\ncount = 0\n");
        assert_eq!(
            error.unwrap_err().to_string(),
            "m.toml:3: cpu.count: found 0, legal is 1 to 4096"
        );
        let error = Machine::parse("m.toml", "description = \"x\"\n[cpu]\ncuont = 4\n");
        let text = error.unwrap_err().to_string();
        assert!(
            text.starts_with("m.toml:3: unknown field `cuont`"),
            "{text}"
        );
    }
}
