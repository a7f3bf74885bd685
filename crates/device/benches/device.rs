//! What a request costs inside a drive: the closed loop of MQSim's jobs,
//! straight on the drive.

#[path = "../tests/harness/mod.rs"]
mod harness;

use blklab_device::registry;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use harness::{RandomWork, closed_loop};

const REQUESTS: u64 = 200_000;

fn requests(c: &mut Criterion) {
    let mut group = c.benchmark_group("device");
    group.throughput(Throughput::Elements(REQUESTS));
    group.sample_size(10);
    for (name, drive, read_percent) in [
        ("null randread", "null", 100),
        ("mqsim randread", "mqsim-ideal", 100),
        ("mqsim randwrite", "mqsim-ideal", 0),
        ("mqsim mix70", "mqsim-ideal", 70),
        ("mx100 randread", "mx100-256", 100),
        ("mx100 randwrite", "mx100-256", 0),
        ("nvme randread", "nvme", 100),
    ] {
        let spec = registry::find(drive).expect("listed").expect("parses");
        let work = RandomWork {
            requests: REQUESTS,
            depth: 32,
            read_percent,
            bytes: 4096,
            share: 0.5,
            seed: 798,
            sequential: false,
        };
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || spec.build(1),
                |mut drive| closed_loop(drive.as_mut(), &work).iops,
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

#[allow(missing_docs, reason = "criterion writes this function")]
mod group {
    use super::*;
    criterion_group!(benches, requests);
}

criterion_main!(group::benches);
