//! The thread of a front end's server, which uses CPU time beside the processes that it works for,
//! and what the kernel does with its answers.
//!
//! A server of ublk ends requests itself. The kernel's threads that take the answers of NBD
//! (`nbd-recv`, of high priority) and of TCMU (`target_completion`) run beside the fair class here,
//! on the CPU that one of it would be woken on. A virtual machine's server interrupts the CPU that
//! submitted.

use blklab_blk::Nanos;
use blklab_driver::{FrontEndKind, Served, ServerStep};
use blklab_stats::ServerTimes;

use super::thread::{Thread, is_at_once};
use crate::cpu::{CostTable, Mode};
use crate::machine::FrontEndCosts;
use crate::system::System;

/// The CPU and the mode in which an I/O is completed.
type Completing = (usize, Mode);

/// The thread that serves one queue of a front end.
pub(crate) struct ServerThread {
    thread: Thread,
    /// What its CPU carries out.
    step: Option<ServerStep>,
    /// The number of the kernel's thread that takes its answers.
    receiver_pid: usize,
    disk: usize,
    line: usize,
    kind: FrontEndKind,
    costs: FrontEndCosts,
    receiver_cpu: usize,
    /// What the next interrupt of a virtual machine costs beside its handler.
    injection: Nanos,
    /// Until then the kernel handles the last answers.
    handled_until: Nanos,
    times: ServerTimes,
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
            thread: Thread::new(pid),
            step: None,
            receiver_pid,
            disk,
            line,
            kind,
            costs,
            receiver_cpu: 0,
            injection: Nanos::ZERO,
            handled_until: Nanos::ZERO,
            times: ServerTimes::default(),
        }
    }

    /// The disk that it works for.
    pub(crate) fn disk(&self) -> usize {
        self.disk
    }

    /// Adds what it spent time on to that of its disk's other servers.
    pub(crate) fn add_times(&self, times: &mut Option<ServerTimes>) {
        let times = times.get_or_insert_default();
        times.receive_ns += self.times.receive_ns;
        times.serve_ns += self.times.serve_ns;
        times.reply_ns += self.times.reply_ns;
    }

    /// Counts from here on, at the end of a ramp.
    pub(crate) fn reset_times(&mut self) {
        self.times = ServerTimes::default();
    }

    /// Charges what was sent to it, and wakes it if it sleeps and has something to do. `by` is the
    /// CPU of the process that sent; without one kblockd did, on the CPU that asked for it.
    pub(crate) fn wake_up(
        &mut self,
        now: Nanos,
        by: Option<usize>,
        costs: &CostTable,
        system: &mut System,
    ) {
        let driver = driver(self.disk, system);
        let sent = driver.take_sent(self.line);
        let is_woken = self.thread.is_asleep() && driver.has_work(self.line);
        let mut at = now;
        if sent.requests > 0 {
            let queue = &system.disks[self.disk].queue;
            let by = by.or(sent.cpu);
            let cpu = by.unwrap_or_else(|| queue.cpu_of(self.line));
            let requests = u64::from(sent.requests) * self.costs.send_ns;
            let pages = u64::from(sent.write_pages) * self.costs.send_page_ns;
            let notify = u64::from(sent.notifies_server) * self.costs.notify_ns;
            let wake = if is_woken { costs.wake } else { Nanos::ZERO };
            let cost = Nanos(requests + pages + notify) + wake;
            let cost = system.cpus.slowdown(cpu, now).of(cost);
            at = system.cpus.run(cpu, now, cost, Mode::System);
        }
        if is_woken {
            self.thread.wake(at, system);
        }
    }

    /// Its timer ran out. Returns whether it has answered the kernel; the answers are then
    /// delivered before [`ServerThread::go_on`].
    pub(crate) fn on_timer(&mut self, now: Nanos, costs: &CostTable, system: &mut System) -> bool {
        if !self.thread.on_timer(now, costs.context_switch, system) {
            return false;
        }
        let Some(step) = self.step.take() else {
            self.next(now, costs, system);
            return false;
        };
        if let ServerStep::Reply { .. } = step
            && self.handled_until <= now
        {
            driver(self.disk, system).answers_are_handled(self.line);
        }
        driver(self.disk, system).finish(now, self.line);
        if let ServerStep::Reply {
            answers,
            read_pages,
        } = step
        {
            self.notify_kernel(now, (answers, read_pages), costs, system);
            return true;
        }
        // What a drive ends on the spot has ended when the thread goes on.
        let ends_at = driver(self.disk, system).next_event();
        let at = if is_at_once(now, ends_at) {
            ends_at.max(now)
        } else {
            now
        };
        self.thread.go_on_at(at, system);
        false
    }

    /// Goes on after its answers were delivered.
    pub(crate) fn go_on(&mut self, now: Nanos, system: &mut System) {
        let cpu = match self.kind {
            FrontEndKind::Nbd | FrontEndKind::Tcmu => self.receiver_cpu,
            FrontEndKind::VhostUser | FrontEndKind::Ublk => self.thread.cpu(),
        };
        self.handled_until = self.handled_until.max(system.cpus.free_at(cpu));
        self.thread.go_on(now, system);
    }

    /// Where an I/O of its answers is completed; `interrupted` where there is an interrupt. Charges
    /// what comes before the interrupt's handler.
    pub(crate) fn completes_on(
        &mut self,
        now: Nanos,
        interrupted: Completing,
        system: &mut System,
    ) -> Completing {
        match self.kind {
            FrontEndKind::Nbd | FrontEndKind::Tcmu => (self.receiver_cpu, Mode::System),
            FrontEndKind::Ublk => (self.thread.cpu(), Mode::System),
            FrontEndKind::VhostUser => {
                let injection = std::mem::take(&mut self.injection);
                self.handled_until =
                    (system.cpus).run(interrupted.0, now, injection, Mode::Interrupt);
                interrupted
            }
        }
    }

    /// Whether the kernel's thread that takes its answers sleeps.
    fn receiver_sleeps(&self, now: Nanos) -> bool {
        let has_receiver = matches!(self.kind, FrontEndKind::Nbd | FrontEndKind::Tcmu);
        has_receiver && self.handled_until <= now
    }

    /// The kernel learns of answers.
    fn notify_kernel(
        &mut self,
        now: Nanos,
        (answers, read_pages): (u32, u32),
        costs: &CostTable,
        system: &mut System,
    ) {
        let notified = driver(self.disk, system).notified_kernel(self.line);
        let once = match self.kind {
            // A thread that still takes answers finds these, too.
            FrontEndKind::Nbd | FrontEndKind::Tcmu if !self.receiver_sleeps(now) => 0,
            _ if notified => self.costs.complete_ns,
            _ => 0,
        };
        let each = u64::from(answers) * self.costs.complete_each_ns
            + u64::from(read_pages) * self.costs.complete_page_ns;
        match self.kind {
            FrontEndKind::VhostUser => self.injection = Nanos(once),
            FrontEndKind::Ublk => {}
            FrontEndKind::Nbd | FrontEndKind::Tcmu => {
                self.run_receiver(now, (once, each), costs, system);
            }
        }
    }

    /// The kernel's thread that takes the answers runs: `once` for its waking, `each` for them.
    /// NBD's goes before whatever its CPU runs (`WQ_HIGHPRI`), to which the CPU then goes back.
    fn run_receiver(
        &mut self,
        now: Nanos,
        (once, each): (u64, u64),
        costs: &CostTable,
        system: &mut System,
    ) {
        let cpu = system.fair.select_cpu(self.receiver_pid, self.receiver_cpu);
        self.receiver_cpu = cpu;
        let preempts =
            self.kind == FrontEndKind::Nbd && once > 0 && system.fair.current(cpu).is_some();
        let back = if preempts {
            costs.context_switch
        } else {
            Nanos::ZERO
        };
        let cost = Nanos(once + each) + back;
        let cost = system.cpus.slowdown(cpu, now).of(cost);
        system.cpus.run(cpu, now, cost, Mode::System);
    }

    /// Whether a step wakes the thread that takes the answers, for nothing: who takes data out of a
    /// Unix socket makes room for its other end, and whoever waits there is woken
    /// (`unix_write_space`), not only who waits for room.
    fn wakes_for_room(&self, step: ServerStep) -> bool {
        self.kind == FrontEndKind::Nbd && matches!(step, ServerStep::Receive { .. })
    }

    /// Begins the next step, or sleeps.
    fn next(&mut self, now: Nanos, costs: &CostTable, system: &mut System) {
        if !self.thread.keeps_cpu(now, system) {
            return;
        }
        self.step = driver(self.disk, system).begin(self.line, self.costs.batch as usize);
        match self.step {
            Some(step) => {
                let (mut cost, mode) = self.cost_of(step);
                if self.receiver_sleeps(now) {
                    if matches!(step, ServerStep::Reply { .. }) {
                        cost += costs.wake;
                    } else if self.wakes_for_room(step) {
                        cost += costs.wake;
                        self.run_receiver(now, (self.costs.complete_ns, 0), costs, system);
                        self.handled_until = system.cpus.free_at(self.receiver_cpu);
                    }
                }
                let took = self.thread.spend(now, cost, mode, system);
                let times = &mut self.times;
                let time_ns = match step {
                    ServerStep::Receive { .. } => &mut times.receive_ns,
                    ServerStep::Serve { .. } => &mut times.serve_ns,
                    ServerStep::Reply { .. } => &mut times.reply_ns,
                };
                *time_ns += took.0;
            }
            None => self.thread.sleep(now, system),
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
}

fn driver(disk: usize, system: &mut System) -> &mut Served {
    let driver = system.disks[disk].driver.as_served();
    driver.expect("only front ends have servers")
}
