//! The thread of a front end's server, which uses CPU time beside the processes that it works for,
//! and what the kernel does with its answers.
//!
//! A server of ublk ends requests itself. The kernel's threads that take the answers of NBD
//! (`nbd-recv`, of high priority) and of TCMU (`target_completion`) run beside the fair class here,
//! on the CPU that one of it would be woken on. A virtual machine's server interrupts the CPU that
//! submitted.

use blklab_blk::Nanos;
use blklab_driver::{FrontEndKind, Served, ServerStep};

use crate::cpu::{CostTable, Mode};
use crate::machine::FrontEndCosts;
use crate::system::System;

/// How long a drive takes that does a request on the spot: none takes less.
const AT_ONCE: Nanos = Nanos(1);

/// What a server's thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerState {
    /// It has nothing to do.
    Asleep,
    /// It will be awake in a moment.
    Waking,
    /// It is on a run queue, and the CPU runs another.
    Runnable,
    /// Its CPU runs it, or an interrupt, until its timer.
    OnCpu,
    /// Its CPU carries out this step.
    Working(ServerStep),
}

/// The thread that serves one queue of a front end.
pub(crate) struct ServerThread {
    /// Its number, behind those of processes.
    pid: usize,
    /// The number of the kernel's thread that takes its answers.
    receiver_pid: usize,
    disk: usize,
    line: usize,
    kind: FrontEndKind,
    costs: FrontEndCosts,
    state: ServerState,
    cpu: usize,
    receiver_cpu: usize,
    /// What the next interrupt of a virtual machine costs beside its handler.
    injection: Nanos,
    /// Until then the kernel handles the last answers.
    handled_until: Nanos,
}

/// A thread's numbers: its own and that of the kernel's thread behind it.
pub(crate) type Pids = (usize, usize);

impl ServerThread {
    /// The thread of one queue (`line`) of a disk.
    pub(crate) fn new(
        (pid, receiver_pid): Pids,
        (disk, line): (usize, usize),
        (kind, costs): (FrontEndKind, FrontEndCosts),
    ) -> ServerThread {
        ServerThread {
            pid,
            receiver_pid,
            disk,
            line,
            kind,
            costs,
            state: ServerState::Asleep,
            cpu: 0,
            receiver_cpu: 0,
            injection: Nanos::ZERO,
            handled_until: Nanos::ZERO,
        }
    }

    /// The disk that it works for.
    pub(crate) fn disk(&self) -> usize {
        self.disk
    }

    /// Charges what was sent to it, and wakes it if it sleeps and has something to do. `by` is the
    /// CPU of the process that sent; without one it is that of its queue.
    pub(crate) fn wake_up(
        &mut self,
        now: Nanos,
        by: Option<usize>,
        costs: &CostTable,
        system: &mut System,
    ) {
        let driver = driver(self.disk, system);
        let sent = driver.take_sent(self.line);
        let is_woken = self.state == ServerState::Asleep && driver.has_work(self.line);
        let mut at = now;
        if sent.requests > 0 {
            let queue = &system.disks[self.disk].queue;
            let cpu = by.unwrap_or_else(|| queue.cpu_of(self.line));
            let requests = u64::from(sent.requests) * self.costs.send_ns;
            let pages = u64::from(sent.write_pages) * self.costs.send_page_ns;
            let notify = u64::from(sent.tells_server) * self.costs.notify_ns;
            let wake = if is_woken { costs.wake } else { Nanos::ZERO };
            let cost = Nanos(requests + pages + notify) + wake;
            let cost = system.cpus.slowdown(cpu, now).of(cost);
            at = system.cpus.run(cpu, now, cost, Mode::System);
        }
        if is_woken {
            self.state = ServerState::Waking;
            system.timers.set(at, self.pid);
        }
    }

    /// Its timer ran out. Returns whether it has told the kernel of answers, which must be
    /// delivered before [`ServerThread::go_on`].
    pub(crate) fn on_timer(&mut self, now: Nanos, costs: &CostTable, system: &mut System) -> bool {
        match self.state {
            ServerState::Asleep => {}
            ServerState::Waking => {
                self.cpu = system.fair.select_cpu(self.pid, self.cpu);
                match system.fair.enqueue(self.cpu, self.pid) {
                    true => self.run_on_cpu(now, costs, system),
                    false => self.state = ServerState::Runnable,
                }
            }
            ServerState::Runnable => {
                if let Some(cpu) = system.fair.cpu_of_current(self.pid) {
                    self.cpu = cpu;
                    self.run_on_cpu(now, costs, system);
                }
            }
            ServerState::OnCpu | ServerState::Working(_) if system.cpus.free_at(self.cpu) > now => {
                system
                    .timers
                    .put_off(system.cpus.free_at(self.cpu), self.pid);
            }
            ServerState::OnCpu => self.next(now, system),
            ServerState::Working(step) => {
                if let ServerStep::Reply { .. } = step
                    && self.handled_until <= now
                {
                    driver(self.disk, system).answers_are_handled(self.line);
                }
                driver(self.disk, system).finish(now, self.line);
                self.state = ServerState::OnCpu;
                if let ServerStep::Reply {
                    answers,
                    read_pages,
                } = step
                {
                    self.tell_kernel(now, (answers, read_pages), system);
                    return true;
                }
                // What a drive ends on the spot has ended when the thread goes on.
                let ends_at = driver(self.disk, system).next_event();
                let is_at_once = ends_at <= now + AT_ONCE;
                let at = if is_at_once { ends_at.max(now) } else { now };
                system.timers.set(at, self.pid);
            }
        }
        false
    }

    /// Goes on after its answers were delivered.
    pub(crate) fn go_on(&mut self, now: Nanos, system: &mut System) {
        let cpu = match self.kind {
            FrontEndKind::Nbd | FrontEndKind::Tcmu => self.receiver_cpu,
            FrontEndKind::VhostUser | FrontEndKind::Ublk => self.cpu,
        };
        self.handled_until = self.handled_until.max(system.cpus.free_at(cpu));
        let at = system.cpus.free_at(self.cpu).max(now);
        system.timers.set(at, self.pid);
    }

    /// The CPU that ends an I/O of its answers, which `interrupted` would where there is an
    /// interrupt. Charges what comes before the interrupt's handler.
    pub(crate) fn completing_cpu(
        &mut self,
        now: Nanos,
        interrupted: usize,
        system: &mut System,
    ) -> usize {
        match self.kind {
            FrontEndKind::Nbd | FrontEndKind::Tcmu => self.receiver_cpu,
            FrontEndKind::Ublk => self.cpu,
            FrontEndKind::VhostUser => {
                let injection = std::mem::take(&mut self.injection);
                let until = system
                    .cpus
                    .run(interrupted, now, injection, Mode::Interrupt);
                self.handled_until = until;
                interrupted
            }
        }
    }

    /// The kernel learns of answers.
    fn tell_kernel(&mut self, now: Nanos, (answers, read_pages): (u32, u32), system: &mut System) {
        let once = match driver(self.disk, system).told_kernel(self.line) {
            true => self.costs.complete_ns,
            false => 0,
        };
        let each = u64::from(answers) * self.costs.complete_each_ns
            + u64::from(read_pages) * self.costs.complete_page_ns;
        match self.kind {
            FrontEndKind::VhostUser => self.injection = Nanos(once),
            FrontEndKind::Ublk => {}
            FrontEndKind::Nbd | FrontEndKind::Tcmu => {
                let cpu = system.fair.select_cpu(self.receiver_pid, self.receiver_cpu);
                self.receiver_cpu = cpu;
                let cost = system.cpus.slowdown(cpu, now).of(Nanos(once + each));
                system.cpus.run(cpu, now, cost, Mode::System);
            }
        }
    }

    fn run_on_cpu(&mut self, now: Nanos, costs: &CostTable, system: &mut System) {
        self.state = ServerState::OnCpu;
        self.spend(now, costs.context_switch, Mode::System, system);
    }

    /// Begins the next step, or sleeps.
    fn next(&mut self, now: Nanos, system: &mut System) {
        if let Some(next) = system.fair.check_preempt(self.cpu, self.pid, now) {
            system.switch_to(now, self.cpu, next);
        }
        if !system.fair.is_current(self.cpu, self.pid) {
            self.state = ServerState::Runnable;
            return;
        }
        match driver(self.disk, system).begin(self.line, self.costs.batch as usize) {
            Some(step) => {
                let (cost, mode) = self.cost_of(step);
                self.state = ServerState::Working(step);
                self.spend(now, cost, mode, system);
            }
            None => {
                self.state = ServerState::Asleep;
                system.schedule_out(now, self.cpu, self.pid);
            }
        }
    }

    fn cost_of(&self, step: ServerStep) -> (Nanos, Mode) {
        let costs = &self.costs;
        let of = |count: u32, cost_ns: u64| u64::from(count) * cost_ns;
        match step {
            ServerStep::Receive { write_pages, .. } => {
                let cost_ns = costs.receive_ns + of(write_pages, costs.receive_page_ns);
                (Nanos(cost_ns), Mode::System)
            }
            ServerStep::Serve { pages } => {
                let cost_ns = costs.serve_ns + of(pages, costs.serve_page_ns);
                (Nanos(cost_ns), Mode::User)
            }
            ServerStep::Reply {
                answers,
                read_pages,
            } => {
                let each = of(answers, costs.reply_each_ns) + of(read_pages, costs.reply_page_ns);
                (Nanos(costs.reply_ns + each), Mode::System)
            }
        }
    }

    fn spend(&mut self, now: Nanos, cost: Nanos, mode: Mode, system: &mut System) {
        let cost = system.cpus.slowdown(self.cpu, now).of(cost);
        system.fair.account(self.pid, cost);
        let until = system.cpus.run(self.cpu, now, cost, mode);
        system.timers.set(until, self.pid);
    }
}

fn driver(disk: usize, system: &mut System) -> &mut Served {
    let driver = system.disks[disk].driver.as_served();
    driver.expect("only front ends have servers")
}
