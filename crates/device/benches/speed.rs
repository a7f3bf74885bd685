//! Requests a second, memory and growth of the cost with length and size: the
//! figures of the drive model's speed targets, in CPU time.

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::fs;

use blklab_device::{DriveSpec, registry};
use harness::{RandomWork, closed_loop};

/// Time that this process was on a CPU, in nanoseconds.
fn cpu_ns() -> u64 {
    fs::read_to_string("/proc/self/schedstat")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Memory of this process, in MiB.
fn resident_mib() -> f64 {
    let pages: f64 = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0.0);
    pages * 4096.0 / 1048576.0
}

fn show(name: &str, spec: &DriveSpec, read_percent: u64, requests: u64) {
    // `cargo bench --bench speed -- PART` runs only what has PART in its name.
    let mut parts = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"));
    if parts.next().is_some_and(|part| !name.contains(&part)) {
        return;
    }
    let mut drive = spec.build(1);
    let work = RandomWork {
        requests,
        depth: 32,
        read_percent,
        bytes: 4096,
        share: 0.5,
        seed: 798,
        sequential: false,
    };
    let before = cpu_ns();
    let outcome = closed_loop(drive.as_mut(), &work);
    let spent_ns = (cpu_ns() - before).max(1);
    println!(
        "{name:38} {requests:>10} requests {:>6.1} ns each {:>6.2} M/s {:>6.0} MiB ({:.0} simulated IOPS)",
        spent_ns as f64 / requests as f64,
        requests as f64 * 1e3 / spent_ns as f64,
        resident_mib(),
        outcome.iops,
    );
}

/// MQSim's drive at another size.
fn sized(gigabytes: u64) -> DriveSpec {
    let text = registry::text("mqsim-ideal").expect("listed");
    let blocks = (2048 * gigabytes / 512).max(120);
    let blocks_line = format!("blocks_per_plane = {blocks}");
    let capacity = blocks * 256 * 8192 * 128 * 9 / 10 - (102 + 3) * 256 * 8192 * 128 / 10;
    let text = text
        .replace("blocks_per_plane = 2048", &blocks_line)
        .replace("511273074688", &(capacity / 4096 * 4096).to_string())
        .replace("start_blocks = 102", "start_blocks = 6")
        .replace("reserve_blocks = 10", "reserve_blocks = 2");
    DriveSpec::parse("sized", &text).unwrap_or_else(|error| panic!("{error}"))
}

fn main() {
    let find = |name| registry::find(name).expect("listed").expect("parses");
    let million = 1_000_000;
    show("null, random read", &find("null"), 100, million);
    let mqsim = find("mqsim-ideal");
    show("mqsim-ideal, random read, short", &mqsim, 100, 100_000);
    show("mqsim-ideal, random read, long", &mqsim, 100, 10 * million);
    show("mqsim-ideal, random write", &mqsim, 0, million);
    show("mqsim-ideal, 70 % reads", &mqsim, 70, million);
    for gigabytes in [16, 512, 16_000] {
        let name = format!("mqsim's at {gigabytes} GB, random read");
        show(&name, &sized(gigabytes), 100, million);
    }
    for gigabytes in [16, 512, 16_000] {
        let name = format!("mqsim's at {gigabytes} GB, random write");
        show(&name, &sized(gigabytes), 0, million);
    }
    for name in ["mx100-256", "nvme"] {
        show(&format!("{name}, random read"), &find(name), 100, million);
        show(&format!("{name}, random write"), &find(name), 0, million);
    }
}
