//! How long a request waits at most, scheduler by scheduler: a drive that does
//! one request after the other, an adversary who always has more of what the
//! scheduler likes best, and one request that it likes least.
//!
//! Deadlines are shortened so that a bound is a few hundred requests of the
//! adversary's; what a bound is made of is said beside it.

use std::ops::Range;

use blklab_blk::{Bio, BioFlags, IoClass, IoPrio, Op, RequestId, Sector, SubmitterId};

#[path = "../src/rig.rs"]
mod rig;
use rig::{Rig, queue_info};

/// What the drive takes for a request.
const SERVICE_MS: u64 = 1;
/// Requests that the adversary keeps queued.
const CROWD: usize = 32;

/// Who has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Read,
    /// Somebody waits for it (`O_DIRECT`, `fsync`).
    SyncWrite,
    /// Write-back.
    AsyncWrite,
    /// A read of the idle class, among reads of best effort.
    IdleRead,
}

use Victim::{AsyncWrite, IdleRead, Read, SyncWrite};

impl Victim {
    fn bio(self) -> Bio {
        let op = match self {
            Read | IdleRead => Op::Read,
            SyncWrite | AsyncWrite => Op::Write,
        };
        // The far end of the drive, where nobody else is.
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

/// What the adversary sends for ever.
#[derive(Clone, Copy, Debug)]
enum Adversary {
    /// Reads, each a little further up.
    Reads,
    /// Writes that somebody waits for, in one erase block.
    SyncWrites,
}

impl Adversary {
    fn bio(self, n: u64) -> Bio {
        // Gaps, so that nothing merges; 2,000 places, over and over.
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

/// Requests that end before the victim does, or as many as it was given.
fn waited(rig: &mut Rig, before: u64, victim: Victim, adversary: Adversary, most: u64) -> u64 {
    let mut sent = 0;
    let send = |rig: &mut Rig, sent: &mut u64| {
        let mut bio = adversary.bio(*sent);
        // Two processes, so that slices and turns have somebody to go to.
        bio.submitter = SubmitterId(2 + (*sent % 2) as u32);
        *sent += 1;
        rig.insert(&bio);
    };
    let mut step = |rig: &mut Rig| -> Option<RequestId> {
        let id = rig.dispatch();
        rig.pass_ms(SERVICE_MS);
        if id.is_some() {
            send(rig, &mut sent);
        }
        rig.run_timer();
        id
    };
    for n in 0..CROWD as u64 {
        let mut bio = adversary.bio(1_000 + n);
        bio.submitter = SubmitterId(2 + (n % 2) as u32);
        rig.insert(&bio);
    }
    // The adversary is known for what it is when the victim comes.
    for _ in 0..before {
        if let Some(id) = step(rig) {
            rig.complete(id);
        }
    }
    let victim = rig.insert(&victim.bio()).expect("nothing to merge with");
    for after in 0..most {
        match step(rig) {
            Some(id) if id == victim => return after,
            Some(id) => rig.complete(id),
            None => {}
        }
    }
    most
}

/// What schedulers promise to a victim, with these tunables.
struct Promise {
    schedulers: &'static [&'static str],
    tunables: &'static [(&'static str, i64)],
    victim: Victim,
    adversary: Adversary,
    /// Milliseconds, which is services, until the victim is sent at the latest.
    bound_ms: u64,
}

const fn promise(
    schedulers: &'static [&'static str],
    tunables: &'static [(&'static str, i64)],
    victim: Victim,
    adversary: Adversary,
    bound_ms: u64,
) -> Promise {
    Promise {
        schedulers,
        tunables,
        victim,
        adversary,
        bound_ms,
    }
}

use Adversary::{Reads, SyncWrites};

/// A deadline that is soon over.
const SOON_MS: i64 = 100;
/// Until that is seen: the kernel's tick is 4 ms, and one may have just begun
/// where the deadline is set and where it is looked at.
const SOON: u64 = SOON_MS as u64 + 2 * 4;
/// A second; two busy queues' slices of level 0 less their own; two slices.
const CFQ_MS: u64 = 1_000 + 2 * (180 - 100) + 2 * 100;
const CROWD_SIZE: u64 = CROWD as u64;
/// Deadlines are looked at after so many dispatches: a batch, or `batch_limit`.
const BATCH: u64 = 16;
const LOOK: u64 = 8 + 1;

const READS_SOON: &[(&str, i64)] = &[("read_expire", SOON_MS)];
const WRITES_SOON: &[(&str, i64)] = &[("write_expire", SOON_MS)];
const ASYNC_WRITES_SOON: &[(&str, i64)] = &[("async_write_expire", SOON_MS)];
const AGING_SOON: &[(&str, i64)] = &[("prio_aging_expire", SOON_MS)];
const TARGET_SOON: &[(&str, i64)] = &[("lat_target_write", SOON_MS * 1_000_000)];
const NO_PREFERENCE: &[(&str, i64)] = &[("read_preference", 0)];
const NOT_RAISED: &[(&str, i64)] = &[("low_latency", 0)];

/// What each scheduler's documents say that a request waits at most. Where
/// another rule than the deadline serves the victim first, that one is tested.
#[rustfmt::skip] // A row a promise.
const PROMISES: &[Promise] = &[
    // Those that came before.
    promise(&["noop"], &[], AsyncWrite, Reads, CROWD_SIZE),
    promise(&["noop"], &[], Read, SyncWrites, CROWD_SIZE),
    promise(&["irbw"], NO_PREFERENCE, AsyncWrite, Reads, CROWD_SIZE),
    // A bundle.
    promise(&["irbw"], &[], Read, SyncWrites, CROWD_SIZE),
    // The batch under way and writes_starved others.
    promise(&["deadline", "mq-deadline", "bp"], &[], AsyncWrite, Reads, 3 * BATCH),
    // The deadline and a batch, among others that lie nearer.
    promise(&["deadline", "mq-deadline"], READS_SOON, Read, Reads, SOON + BATCH),
    promise(&["deadline", "mq-deadline", "bp"], WRITES_SOON, AsyncWrite, SyncWrites, SOON + BATCH),
    promise(&["mq-deadline"], AGING_SOON, IdleRead, Reads, SOON + BATCH),
    // The deadline and fifo_batch or batch_limit dispatches.
    promise(&["sio", "ac", "ac2"], ASYNC_WRITES_SOON, AsyncWrite, SyncWrites, SOON + LOOK),
    // Nothing but the deadline.
    promise(&["stb"], ASYNC_WRITES_SOON, AsyncWrite, Reads, SOON + 1),
    promise(&["stb"], ASYNC_WRITES_SOON, AsyncWrite, SyncWrites, SOON + 1),
    // Turns: writes_starved reads in a row; read_lead that came later, and
    // those that came before.
    promise(&["sio"], &[], AsyncWrite, Reads, 8),
    promise(&["ac"], &[], AsyncWrite, Reads, 4 + 1),
    promise(&["ac2"], &[], AsyncWrite, Reads, CROWD_SIZE + 32),
    // A batch of each other domain: 16 reads, 8 writes.
    promise(&["kyber"], &[], AsyncWrite, Reads, 16),
    promise(&["kyber"], &[], Read, SyncWrites, 8),
    // The two others' time of an epoch, and what they overdraw.
    promise(&["fios"], &[], AsyncWrite, Reads, 2 * 20 + 2),
    // What is batched before it, in two pages.
    promise(&["adios"], TARGET_SOON, AsyncWrite, Reads, SOON + 2 * 36),
    // A budget of each other queue; with raised ones beside it, the idle class's
    // fifth of a second.
    promise(&["bfq"], NOT_RAISED, AsyncWrite, Reads, 2 * 128),
    promise(&["bfq"], NOT_RAISED, IdleRead, Reads, 200 + 128),
    // Its place in the order of service trees and the slices under way. A queue
    // that takes over where a slice was used up goes a second ahead of its tree.
    promise(&["cfq"], &[], AsyncWrite, Reads, CFQ_MS),
    promise(&["cfq"], &[], Read, SyncWrites, CFQ_MS),
];

/// When the victim comes: in whatever part of a batch, a slice or an epoch.
const PHASES: Range<u64> = 200..264;

fn build(scheduler: &str, tunables: &[(&str, i64)]) -> Option<Rig> {
    let kind = blklab_elevator::find(scheduler).expect("is registered");
    let mut rig = Rig::new(kind.build(&queue_info())?);
    tunables
        .iter()
        .for_each(|&(name, value)| rig.set(name, value));
    Some(rig)
}

/// How the promise is broken by a scheduler, if it is.
fn broken_by(p: &Promise, scheduler: &str) -> Option<String> {
    let took = PHASES.map(|before| {
        let mut rig = build(scheduler, p.tunables).expect("not none");
        waited(&mut rig, before, p.victim, p.adversary, 10 * p.bound_ms)
    });
    let took = took.max().unwrap_or_default();
    (took > p.bound_ms).then(|| {
        format!(
            "{scheduler}: {:?} among {:?} waits for {took}, not {}",
            p.victim, p.adversary, p.bound_ms
        )
    })
}

#[test]
fn nobody_waits_longer_than_promised() {
    let broken: Vec<String> = PROMISES
        .iter()
        .flat_map(|p| p.schedulers.iter().filter_map(|name| broken_by(p, name)))
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_scheduler_promises_something() {
    for kind in blklab_elevator::all() {
        let promises = PROMISES.iter().any(|p| p.schedulers.contains(&kind.name));
        assert!(promises || kind.name == "none", "{}", kind.name);
    }
}

/// Who may wait for ever, and says so: irbw's writes while there are reads, and
/// cfq's idle class while there are others.
const STARVES: [(&str, Victim); 3] = [("irbw", SyncWrite), ("irbw", AsyncWrite), ("cfq", IdleRead)];

/// Longer than any default deadline.
const FOR_EVER_MS: u64 = 20_000;

#[test]
fn nothing_starves_for_ever() {
    for kind in blklab_elevator::all() {
        for victim in [Read, SyncWrite, AsyncWrite, IdleRead] {
            let Some(mut rig) = build(kind.name, &[]) else {
                continue;
            };
            let took = waited(&mut rig, PHASES.start, victim, Reads, FOR_EVER_MS);
            let starves = STARVES.contains(&(kind.name, victim));
            assert_eq!(took == FOR_EVER_MS, starves, "{}: {victim:?}", kind.name);
        }
    }
}
