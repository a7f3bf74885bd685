//! `blklab load`.

use std::fmt::Write;
use std::time::Duration;

use blklab_serve::{LoadConfig, LoadReport, LoadTarget, parse_size};

use crate::args::LoadArgs;
use crate::failure::Failure;
use crate::output;

/// The largest request that every server accepts by default, in bytes.
const MAX_BLOCK_BYTES: u64 = 32 << 20;

pub(crate) fn load(args: &LoadArgs) -> Result<(), Failure> {
    let config = config(args).map_err(Failure::mistake)?;
    let report = blklab_serve::load(&config).map_err(Failure::Broken)?;
    output::print(text(&config, &report))?;
    if report.errors > 0 {
        let errors = report.errors;
        return Err(Failure::Broken(format!("{errors} requests failed")));
    }
    Ok(())
}

fn config(args: &LoadArgs) -> Result<LoadConfig, String> {
    let block = parse_size(&args.bs)?;
    let block_bytes = u32::try_from(block)
        .ok()
        .filter(|_| (1..=MAX_BLOCK_BYTES).contains(&block))
        .ok_or_else(|| format!("--bs {}: it may be 1 to 32M", args.bs))?;
    if !(1..=1024).contains(&args.connections) || !(1..=4096).contains(&args.depth) {
        return Err("--connections may be 1 to 1024, --depth 1 to 4096".to_string());
    }
    if args.reads > 100 {
        return Err(format!("--reads {}: it is a percentage", args.reads));
    }
    if !(args.seconds > 0.0 && args.seconds <= 86_400.0) {
        return Err(format!("--seconds {}: it may be up to a day", args.seconds));
    }
    let target = LoadTarget::parse(&args.uri)?;
    let is_machine = matches!(target, LoadTarget::VhostUser(_));
    if is_machine && (!block.is_multiple_of(512) || args.connections > 64 || args.depth > 1024) {
        return Err(
            "a virtual machine's disk takes blocks of whole sectors, up to 64 --connections and a --depth of up to 1024".to_string(),
        );
    }
    Ok(LoadConfig {
        target,
        connections: args.connections,
        depth: args.depth,
        block_bytes,
        read_percent: args.reads,
        sequential: args.sequential,
        span: Duration::from_secs_f64(args.seconds),
        seed: args.seed,
    })
}

fn text(config: &LoadConfig, report: &LoadReport) -> String {
    let seconds = report.span.as_secs_f64();
    let mut text = String::new();
    for (op, name) in ["read", "write"].iter().enumerate() {
        let requests = report.requests[op] as f64;
        if requests == 0.0 {
            continue;
        }
        let latency = &report.latency[op];
        let us = |percent| latency.percentile(percent) as f64 / 1e3;
        let mib = requests * f64::from(config.block_bytes) / seconds / f64::from(1 << 20);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{name}: IOPS={:.0}, BW={mib:.1}MiB/s, latency us: mean {:.1}, p50 {:.1}, p99 {:.1}, p99.9 {:.1}",
            requests / seconds,
            latency.summary().mean_ns / 1e3,
            us(50.0),
            us(99.0),
            us(99.9),
        );
    }
    text
}
