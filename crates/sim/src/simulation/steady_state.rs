//! `steadystate`: jobs end when their figures of each second no longer change (fio's
//! `steadystate.c`).

use blklab_blk::Nanos;
use blklab_stats::SteadyState;

use super::Simulation;
use crate::process::Process;

/// fio looks at the figures once a second.
const INTERVAL: Nanos = Nanos::from_millis(1000);

/// The jobs of a run that end so.
#[derive(Default)]
pub(super) struct SteadyStates {
    watched: Vec<Watched>,
    /// When figures are looked at next; [`Nanos::MAX`] where no job is watched any more.
    next: Nanos,
}

/// A process, or those of a group that is reported as one.
struct Watched {
    /// The group, where it is reported as one.
    group: Option<u32>,
    members: Vec<Member>,
    ramp: Nanos,
    state: SteadyState,
}

struct Member {
    pid: usize,
    /// When it was last looked at, and the I/Os and bytes that it had done.
    last: Option<(Nanos, (u64, u64))>,
}

impl SteadyStates {
    pub(super) fn new(processes: &[Process]) -> SteadyStates {
        let mut watched: Vec<Watched> = Vec::new();
        for (pid, process) in processes.iter().enumerate() {
            let Some((spec, state)) =
                { process.job() }.and_then(|spec| Some((spec, spec.watched_figures()?)))
            else {
                continue;
            };
            let group = spec.group_reporting.then_some(spec.group);
            let member = Member { pid, last: None };
            if let Some(last) = watched.last_mut()
                && group.is_some()
                && last.group == group
            {
                last.members.push(member);
                continue;
            }
            watched.push(Watched {
                group,
                members: vec![member],
                ramp: Nanos::from_micros(spec.steady_state.ramp_us),
                state,
            });
        }
        let next = match watched.is_empty() {
            true => Nanos::MAX,
            false => INTERVAL,
        };
        SteadyStates { watched, next }
    }

    /// When the figures are looked at next.
    #[inline]
    pub(super) fn next(&self) -> Nanos {
        self.next
    }

    /// What became of the process's figures, if it is the last of those that are judged together.
    pub(super) fn take(&mut self, pid: usize) -> Option<SteadyState> {
        let is_last = |w: &&mut Watched| w.members.last().is_some_and(|m| m.pid == pid);
        let watched = self.watched.iter_mut().find(is_last)?;
        Some(std::mem::take(&mut watched.state))
    }
}

impl Watched {
    /// Takes in the figures since the last look; whether they are steady.
    fn look(&mut self, now: Nanos, processes: &[Process]) -> bool {
        let mut sums = None;
        for member in &mut self.members {
            let process = &processes[member.pid];
            let Some(started) = process.work_started().filter(|_| !process.has_exited()) else {
                continue;
            };
            let done = process.io_done();
            let (since, before) = member
                .last
                .replace((now, done))
                .unwrap_or((started, (0, 0)));
            // fio has its first figure a second after the end of the ramp.
            let is_ramping = self.ramp > Nanos::ZERO && now < started + self.ramp + INTERVAL;
            let spent_ms = now.saturating_sub(since).0 / 1_000_000;
            if is_ramping || spent_ms == 0 {
                continue;
            }
            let rate = |done: u64, before: u64| 1000 * done.saturating_sub(before) / spent_ms;
            let (iops, bytes) = sums.unwrap_or((0, 0));
            sums = Some((
                iops + rate(done.0, before.0),
                bytes + rate(done.1, before.1),
            ));
        }
        sums.is_some_and(|(iops, bytes)| self.state.add(iops, bytes))
    }
}

impl Simulation {
    /// Looks at the figures of the last second, and ends the jobs whose figures are steady.
    #[cold]
    pub(super) fn check_steady_states(&mut self) {
        let now = self.clock.now();
        for watched in self.steady_states.watched.iter_mut() {
            if watched.state.attained || !watched.look(now, &self.processes) {
                continue;
            }
            for member in &watched.members {
                self.processes[member.pid].stop(now, &mut self.system);
            }
        }
        let is_open = |w: &Watched| {
            let has_ended = |m: &Member| self.processes[m.pid].has_exited();
            !w.state.attained && !w.members.iter().all(has_ended)
        };
        let states = &self.steady_states;
        self.steady_states.next = match states.watched.iter().any(is_open) {
            true => states.next + INTERVAL,
            false => Nanos::MAX,
        };
    }
}
