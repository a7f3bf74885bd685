//! What we did and the kernel has not been seen to do yet.

use std::collections::{BTreeMap, VecDeque};

use super::effect::Effect;

/// How far ahead an effect of ours may be and still be taken for the kernel's.
const AHEAD: usize = 64;

/// An effect of ours, with the request's serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ours {
    pub(super) effect: Effect,
    pub(super) serial: u64,
}

/// What became of an effect of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// We did this, which is the same but for a number that it shows; before it
    /// these, which the kernel did not.
    Like { ours: Ours, extra: Vec<Ours> },
    /// We did this instead.
    Other(Ours),
    /// We did nothing of the kind.
    Missing,
}

/// Effects by the task that brought them about, in order. What one task does
/// is a sequence; how two tasks' sequences fall together is a matter of who ran.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    tasks: BTreeMap<u32, VecDeque<Ours>>,
}

impl Ledger {
    pub(super) fn push(&mut self, pid: u32, ours: Ours) {
        self.tasks.entry(pid).or_default().push_back(ours);
    }

    /// Whether we did this: `pid`, or first of all another task.
    pub(super) fn offers(&self, pid: u32, wanted: &Effect) -> bool {
        self.tasks.iter().any(|(&task, queue)| {
            let looks = if task == pid { AHEAD } else { 1 };
            queue
                .iter()
                .take(looks)
                .any(|ours| ours.effect.is_like(wanted))
        })
    }

    /// Settles an effect of the kernel's, which `pid` brought about.
    pub(super) fn settle(&mut self, pid: u32, kernel: &Effect) -> Verdict {
        if let Some(queue) = self.tasks.get_mut(&pid) {
            let alike = queue
                .iter()
                .take(AHEAD)
                .position(|ours| ours.effect.is_like(kernel));
            if let Some(at) = alike {
                let extra: Vec<Ours> = queue.drain(..at).collect();
                if let Some(ours) = queue.pop_front() {
                    return Verdict::Like { ours, extra };
                }
            }
        }
        // Another task may have done it for us: kblockd, or who came first.
        for queue in self.tasks.values_mut() {
            if queue
                .front()
                .is_some_and(|ours| ours.effect.is_like(kernel))
                && let Some(ours) = queue.pop_front()
            {
                let extra = Vec::new();
                return Verdict::Like { ours, extra };
            }
        }
        let queue = self.tasks.entry(pid).or_default();
        match queue.front() {
            Some(first) if first.effect.kind() == kernel.kind() => {
                let ours = *first;
                queue.pop_front();
                Verdict::Other(ours)
            }
            _ => Verdict::Missing,
        }
    }

    /// Everything that is left.
    pub(super) fn take_rest(&mut self) -> Vec<Ours> {
        let rest = self.tasks.values_mut().flat_map(std::mem::take);
        rest.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_blk::Sector;

    fn choice(sector: u64) -> Ours {
        Ours {
            effect: Effect::Choice(Some(Sector(sector))),
            serial: sector,
        }
    }

    #[test]
    fn what_we_skipped_to_is_extra() {
        let mut ledger = Ledger::default();
        for sector in [1, 2, 3] {
            ledger.push(7, choice(sector));
        }
        let verdict = ledger.settle(7, &choice(2).effect);
        let same = Verdict::Like {
            ours: choice(2),
            extra: vec![choice(1)],
        };
        assert_eq!(verdict, same);
        assert_eq!(
            ledger.settle(7, &choice(9).effect),
            Verdict::Other(choice(3))
        );
        assert_eq!(ledger.settle(7, &Effect::Plug), Verdict::Missing);
    }

    #[test]
    fn another_task_may_have_done_it() {
        let mut ledger = Ledger::default();
        ledger.push(7, choice(1));
        let verdict = ledger.settle(8, &choice(1).effect);
        assert!(matches!(verdict, Verdict::Like { .. }));
        assert!(ledger.take_rest().is_empty());
    }
}
