//! The cost of a request in CPU time.
#![allow(missing_docs)] // criterion_group! makes a public function without any.

use blklab::{Call, Nanos, Op, Setup, SimulatedDisk};
use criterion::{Criterion, criterion_group, criterion_main};

const DEPTH: u64 = 32;

fn random_reads(c: &mut Criterion) {
    let mut group = c.benchmark_group("simulated_disk");
    group.throughput(criterion::Throughput::Elements(1));
    for scheduler in ["none", "mq-deadline"] {
        let setup = Setup::named("nvme", scheduler).unwrap();
        let mut disk = SimulatedDisk::new(&setup, 1).unwrap();
        let mut place = 1u64;
        let mut read = |disk: &mut SimulatedDisk, now: Nanos, handle: u64| {
            place = place.wrapping_mul(6364136223846793005).wrapping_add(1);
            let sector = (place >> 40) * 8;
            disk.submit(now, Call::new(Op::Read, sector, 8, handle));
        };
        (0..DEPTH).for_each(|handle| read(&mut disk, Nanos(0), handle));
        let mut done = Vec::new();
        group.bench_function(format!("4 KiB random read, {scheduler}"), |b| {
            b.iter(|| {
                while done.is_empty() {
                    disk.advance(disk.next_event(), &mut done);
                }
                let end = done.pop().expect("not empty");
                read(&mut disk, end.at, end.handle);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, random_reads);
criterion_main!(benches);
