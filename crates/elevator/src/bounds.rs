//! The longest wait of a request: the drive serves one request at a time, an adversary always has
//! more of the requests that the scheduler prefers, and one victim is what it prefers least. Each
//! scheduler's tests state its bounds, with deadlines shortened so that a bound is a few hundred
//! requests of the adversary; a common test checks that nothing waits for ever.

use std::ops::Range;

use blklab_blk::{Bio, BioFlags, IoClass, IoPrio, Op, RequestId, Sector, SubmitterId};

use crate::ElevatorType;
use crate::test_queue::{TestQueue, queue_info};

/// Service time of a request, in milliseconds.
const SERVICE_MS: u64 = 1;
/// Number of requests that the adversary keeps queued.
pub const CROWD: u64 = 32;

/// The request that has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Read,
    /// A synchronous write (`O_DIRECT`, `fsync`).
    SyncWrite,
    /// A write of the page cache.
    AsyncWrite,
    /// A read of the idle class, among best-effort reads.
    IdleRead,
}

use Victim::{AsyncWrite, IdleRead, Read, SyncWrite};

impl Victim {
    fn bio(self) -> Bio {
        let op = match self {
            Read | IdleRead => Op::Read,
            SyncWrite | AsyncWrite => Op::Write,
        };
        // At the far end of the drive, away from all others.
        let mut bio = Bio::new(op, Sector(queue_info().capacity_sectors - 4096), 8);
        bio.submitter = SubmitterId(1);
        if self == SyncWrite {
            bio.flags = BioFlags::SYNC;
        }
        if self == IdleRead {
            bio.prio = IoPrio {
                class: IoClass::Idle,
                level: 7,
            };
        }
        bio
    }
}

/// The requests that the adversary sends without end.
#[derive(Clone, Copy, Debug)]
pub enum Adversary {
    /// Reads, each at a somewhat higher sector.
    Reads,
    /// Synchronous writes in one erase block.
    SyncWrites,
}

impl Adversary {
    fn bio(self, n: u64) -> Bio {
        // There are gaps, so that nothing merges, and 2,000 positions that are reused.
        let place = n % 2_000 * 16;
        match self {
            Adversary::Reads => Bio::new(Op::Read, Sector(place), 8),
            Adversary::SyncWrites => {
                let mut bio = Bio::new(Op::Write, Sector(place % 1_024), 8);
                bio.flags = BioFlags::SYNC;
                bio
            }
        }
    }
}

/// The number of requests served before the victim, at most `most`.
fn waited(
    queue: &mut TestQueue,
    before: u64,
    victim: Victim,
    adversary: Adversary,
    most: u64,
) -> u64 {
    let mut sent = 0;
    let send = |queue: &mut TestQueue, sent: &mut u64| {
        let mut bio = adversary.bio(*sent);
        // Two processes, so that slices and turns alternate.
        bio.submitter = SubmitterId(2 + (*sent % 2) as u32);
        *sent += 1;
        queue.insert(&bio);
    };
    let mut step = |queue: &mut TestQueue| -> Option<RequestId> {
        let id = queue.dispatch();
        queue.pass_ms(SERVICE_MS);
        if id.is_some() {
            send(queue, &mut sent);
        }
        queue.run_timer();
        id
    };
    for n in 0..CROWD {
        let mut bio = adversary.bio(1_000 + n);
        bio.submitter = SubmitterId(2 + (n % 2) as u32);
        queue.insert(&bio);
    }
    // The scheduler has classified the adversary before the victim comes.
    for _ in 0..before {
        if let Some(id) = step(queue) {
            queue.complete(id);
        }
    }
    let victim = queue.insert(&victim.bio()).expect("nothing to merge with");
    for after in 0..most {
        match step(queue) {
            Some(id) if id == victim => return after,
            Some(id) => queue.complete(id),
            None => {}
        }
    }
    most
}

/// A short deadline, in milliseconds.
pub const SOON_MS: i64 = 100;
/// The time until an expired deadline is noticed, in milliseconds: a tick is 4 ms, and one may have
/// just begun both when the deadline is set and when it is checked.
pub const SOON: u64 = SOON_MS as u64 + 2 * 4;

/// Numbers of requests before the victim comes, so that it meets every phase of a batch, a slice or
/// an epoch.
const PHASES: Range<u64> = 200..264;

fn build(kind: &ElevatorType, tunables: &[(&str, i64)]) -> Option<TestQueue> {
    let mut queue = TestQueue::new(kind.build(&queue_info())?);
    tunables
        .iter()
        .for_each(|&(name, value)| queue.set(name, value));
    Some(queue)
}

/// Asserts that with these tunables the victim is dispatched within `bound_ms`, which is also the
/// number of services, whenever it comes. The components of a bound are named at the call in the
/// scheduler's tests. If another rule than the deadline serves the victim first, that rule is
/// tested.
pub fn assert_wait(
    kind: &ElevatorType,
    tunables: &[(&str, i64)],
    victim: Victim,
    adversary: Adversary,
    bound_ms: u64,
) {
    let took = PHASES.map(|before| {
        let mut queue = build(kind, tunables).expect("not none");
        waited(&mut queue, before, victim, adversary, 10 * bound_ms)
    });
    let took = took.max().unwrap_or_default();
    assert!(
        took <= bound_ms,
        "{}: {victim:?} among {adversary:?} waits for {took}, not {bound_ms}",
        kind.name
    );
}

/// Requests that may wait for ever, as their schedulers state: irbw's writes while there are reads,
/// and cfq's idle class while there are others.
const STARVES: [(&str, Victim); 3] = [("irbw", SyncWrite), ("irbw", AsyncWrite), ("cfq", IdleRead)];

/// Longer than any default deadline, in milliseconds.
const FOR_EVER_MS: u64 = 20_000;

#[test]
fn nothing_starves_for_ever() {
    for kind in crate::all() {
        for victim in [Read, SyncWrite, AsyncWrite, IdleRead] {
            let Some(mut queue) = build(kind, &[]) else {
                continue;
            };
            let took = waited(
                &mut queue,
                PHASES.start,
                victim,
                Adversary::Reads,
                FOR_EVER_MS,
            );
            let starves = STARVES.contains(&(kind.name, victim));
            assert_eq!(took == FOR_EVER_MS, starves, "{}: {victim:?}", kind.name);
        }
    }
}
