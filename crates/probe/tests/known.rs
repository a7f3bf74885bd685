//! Probes of drive models for which the right findings are known.

use blklab_device::{DriveSpec, registry};
use blklab_probe::{Mapping, Modelled, Plan, Probed, describe, probe};

fn probed(name: &str, cliff_bytes: u64) -> Probed {
    let spec = registry::find(name).expect("known").expect("valid");
    probed_as(&spec, cliff_bytes)
}

fn probed_as(spec: &DriveSpec, cliff_bytes: u64) -> Probed {
    let plan = Plan {
        writes: true,
        cliff_bytes,
        seed: 1,
    };
    let mut target = Modelled::new(spec, 1);
    probe(&mut target, &plan, &mut |_| {}).unwrap_or_else(|e| panic!("{}: {e}", spec.name))
}

#[test]
fn the_mx100_is_as_it_is_described() {
    let seen = probed("mx100-256", 2 << 30);
    assert_eq!(seen.layout.chunk.value, Some(16 << 10));
    assert_eq!(seen.layout.parallel.value, Some(16));
    assert_eq!(seen.layout.mapping.value, Some(Mapping::Striped));
    assert_eq!(seen.overwritten.value, Some(Mapping::Striped));
    let buffer = seen.buffer.value.expect("a buffer") as f64 / f64::from(16 << 20);
    assert!((0.7..1.3).contains(&buffer), "{buffer} of 16 MiB");
    let behind = seen.behind_writes.value.expect("a penalty");
    assert!(behind.behind_ns > 2 * behind.alone_ns);
    let text = describe(&seen, "mx100").expect("a description");
    let again = DriveSpec::parse("seen.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let spec = registry::find("mx100-256").expect("known").expect("valid");
    assert_eq!(
        again.identity().capacity_sectors,
        spec.identity().capacity_sectors
    );
    // What the drive reads ahead of a pair keeps some dies busy.
    let channels = text
        .lines()
        .find(|line| line.starts_with("channels = 8 # probed, 9"));
    assert!(channels.is_some_and(|line| line.contains("agree: 16 chunks in parallel")));
}

#[test]
fn ranges_are_told_from_stripes() {
    let seen = probed("mx100-256-ranges", 64 << 20);
    assert_eq!(seen.layout.parallel.value, Some(16));
    let Some(Mapping::Ranges(bytes)) = seen.layout.mapping.value else {
        panic!("{:?}", seen.layout.mapping);
    };
    let eighth = seen.capacity_bytes as f64 / 8.0;
    assert!((0.95..1.05).contains(&(bytes as f64 / eighth)), "{bytes}");
    let text = describe(&seen, "ranges").expect("a description");
    assert!(
        text.contains("channels = 8") && text.contains("layout = \"ranges\""),
        "{text}"
    );
    DriveSpec::parse("seen.toml", &text).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_cliff_is_found_where_it_is() {
    // Planes that fill their own blocks get out of step, so that no two of them program at once.
    let text = registry::text("nvme").expect("known");
    let text = text.replace("layout = ", "in_step = false\nlayout = ");
    let spec = DriveSpec::parse("nvme", &text).unwrap_or_else(|e| panic!("{e}"));
    let seen = probed_as(&spec, 4 << 30);
    let cliff = seen.cliff.value.expect("a cliff");
    assert!(cliff.behind < cliff.before * 0.75, "{cliff:?}");
    assert!(cliff.after_bytes < 4 << 30);
    let buffer = seen.buffer.value.expect("a buffer") as f64 / f64::from(32 << 20);
    assert!((0.7..1.3).contains(&buffer), "{buffer} of 32 MiB");
}

#[test]
fn no_cliff_is_found_where_blocks_are_free() {
    let seen = probed("nvme", 1 << 30);
    assert!(seen.cliff.value.is_none(), "{:?}", seen.cliff.value);
}

#[test]
fn the_same_seed_sees_the_same() {
    let once = || format!("{:?}", probed("enterprise-tlc", 64 << 20));
    assert_eq!(once(), once());
}
