//! The cost of a request in each scheduler: insert, dispatch and finish at a steady depth, with
//! random requests of 4 KiB, seven reads to three writes.

#![allow(missing_docs)] // criterion_group! makes a public function without any.

use std::time::Duration;

use blklab_blk::{Bio, InsertAt, Nanos, Op, Sector};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

#[path = "../src/test_queue.rs"]
mod test_queue;
use test_queue::{TestQueue, queue_info, random_numbers};

const DEPTHS: [usize; 3] = [32, 256, 1024];
/// Number of bios made beforehand, so that making them is not measured; a power of two.
const BIOS: usize = 4096;
const SECTORS: u32 = 8;

/// Random bios of 4 KiB.
fn bios() -> Vec<Bio> {
    let mut random = random_numbers();
    let blocks = queue_info().capacity_sectors / SECTORS as u64;
    (0..BIOS)
        .map(|_| {
            let op = if random() % 10 < 7 {
                Op::Read
            } else {
                Op::Write
            };
            Bio::new(op, Sector(random() % blocks * SECTORS as u64), SECTORS)
        })
        .collect()
}

/// Dispatches one request and inserts another. A scheduler that waits for its timer is given time.
fn step(queue: &mut TestQueue, bio: &Bio) {
    queue.now += Nanos(2_000);
    let id = loop {
        if let Some(id) = queue.dispatch() {
            break id;
        }
        queue.now += Nanos(100_000);
        queue.run_timer();
    };
    queue.reuse(id, bio);
    queue.insert_request(id, InsertAt::Tail);
}

fn insert_dispatch(c: &mut Criterion) {
    let bios = bios();
    for kind in blklab_elevator::all() {
        let mut group = c.benchmark_group(kind.name);
        for depth in DEPTHS {
            let Some(elevator) = kind.build(&queue_info()) else {
                continue;
            };
            let mut queue = TestQueue::new(elevator);
            for bio in &bios[..depth] {
                queue.insert(bio);
            }
            let mut at = 0;
            group.bench_function(BenchmarkId::from_parameter(depth), |b| {
                b.iter(|| {
                    step(&mut queue, &bios[at]);
                    at = (at + 1) % BIOS;
                });
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    // There are many benchmarks, and each step is short.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1))
        .nresamples(10_000);
    targets = insert_dispatch
}
criterion_main!(benches);
