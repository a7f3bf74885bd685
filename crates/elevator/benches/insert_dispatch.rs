//! What a request costs in each scheduler: insert, dispatch and finish at a
//! steady depth, random 4 KiB, seven reads to three writes.

#![allow(missing_docs)] // criterion_group! makes a public function without any.

use blklab_blk::{Bio, InsertAt, Nanos, Op, RequestId, Sector};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

#[path = "../src/rig.rs"]
mod rig;
use rig::{Rig, queue_info};

const DEPTHS: [usize; 3] = [32, 256, 1024];
const SECTORS: u32 = 8;

/// xorshift: the numbers must cost nothing next to what is measured.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bio(&mut self, capacity_sectors: u64) -> Bio {
        let blocks = capacity_sectors / SECTORS as u64;
        let op = if self.next() % 10 < 7 {
            Op::Read
        } else {
            Op::Write
        };
        Bio::new(op, Sector(self.next() % blocks * SECTORS as u64), SECTORS)
    }
}

fn insert(rig: &mut Rig, bio: &Bio) {
    let id = rig.make(bio);
    rig.insert_request(id, InsertAt::Tail);
}

/// One in, one out. A scheduler that waits for its timer is given the time.
fn step(rig: &mut Rig, random: &mut Random) -> RequestId {
    let bio = random.bio(queue_info().capacity_sectors);
    insert(rig, &bio);
    rig.now += Nanos(2_000);
    loop {
        if let Some(id) = rig.dispatch() {
            rig.complete(id);
            return id;
        }
        rig.now += Nanos(100_000);
        rig.run_timer();
    }
}

fn insert_dispatch(c: &mut Criterion) {
    for kind in blklab_elevator::all() {
        let mut group = c.benchmark_group(kind.name);
        for depth in DEPTHS {
            let Some(elevator) = kind.build(&queue_info()) else {
                continue;
            };
            let mut rig = Rig::new(elevator);
            let mut random = Random(0x9e37_79b9_7f4a_7c15);
            for _ in 0..depth {
                let bio = random.bio(queue_info().capacity_sectors);
                insert(&mut rig, &bio);
            }
            group.bench_function(BenchmarkId::from_parameter(depth), |b| {
                b.iter(|| step(&mut rig, &mut random));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, insert_dispatch);
criterion_main!(benches);
