//! `blklab probe`.

use std::fmt::Write;
use std::path::Path;

use blklab_device::registry;
use blklab_host::{Disk, System, check_writes};
use blklab_nbd::Uri;
use blklab_probe::{
    BehindWrites, Cliff, Finding, Modelled, Plan, ProbeError, Probed, Target, describe, size,
};
use blklab_serve::parse_size;

use crate::args::ProbeArgs;
use crate::failure::Failure;
use crate::{output, progress};

pub(crate) fn probe(args: &ProbeArgs) -> Result<(), Failure> {
    let findings = probed(args)?;
    output::deliver(findings.text(), args.output.as_deref())
}

/// What a probe found, and of which drive.
pub(crate) struct Findings {
    pub(crate) name: String,
    probed: Probed,
}

impl Findings {
    pub(crate) fn text(&self) -> String {
        text(&self.probed, &self.name)
    }

    /// Returns a description of the drive; `None` if its layout was not seen.
    pub(crate) fn description(&self) -> Option<String> {
        describe(&self.probed, &self.name)
    }
}

/// Probes, and writes the requested description.
pub(crate) fn probed(args: &ProbeArgs) -> Result<Findings, Failure> {
    let outputs = [
        ("--output-drive", args.output_drive.as_deref()),
        ("--output", args.output.as_deref()),
    ];
    let inputs = [&args.device, &args.drive].into_iter().flatten();
    let inputs: Vec<&Path> = inputs.map(Path::new).collect();
    output::check(&outputs, &inputs)?;
    let cliff_bytes = parse_size(&args.cliff_bytes)
        .map_err(|e| Failure::mistake(format!("--cliff-bytes: {e}")))?;
    let (mut target, writes, name) = target(args)?;
    let plan = Plan {
        writes,
        cliff_bytes,
        seed: args.seed,
    };
    let bar = progress::status_line();
    let probed = blklab_probe::probe(target.as_mut(), &plan, &mut |what| {
        bar.set_message(what.to_string());
    });
    bar.finish_and_clear();
    let probed = probed.map_err(|error| match error {
        ProbeError::Io(message) => Failure::Broken(message),
        ProbeError::Interrupted(signal) => Failure::Broken(format!("stopped by {signal}")),
    })?;
    let findings = Findings { name, probed };
    if let Some(path) = &args.output_drive {
        let Some(text) = findings.description() else {
            return Err(Failure::mistake(format!(
                "--output-drive: {}: {}; a probe does not see through that: begin with \
                 --drive hdd-7200 and `blklab calibrate`",
                findings.name, findings.probed.layout.chunk.seen
            )));
        };
        output::write_file(path, text.as_bytes())?;
    }
    Ok(findings)
}

/// Returns the target, whether it may be written, and its name.
fn target(args: &ProbeArgs) -> Result<(Box<dyn Target>, bool, String), Failure> {
    if let Some(name) = &args.drive {
        let (spec, _) = registry::load(name).map_err(Failure::Mistake)?;
        return Ok((
            Box::new(Modelled::new(&spec, args.seed)),
            true,
            name.clone(),
        ));
    }
    let device = args.device.clone().unwrap_or_default();
    let writes = args.destroy_data.is_some();
    if device.starts_with("nbd") && device.contains("://") {
        if args
            .destroy_data
            .as_ref()
            .is_some_and(|named| *named != device)
        {
            return Err(Failure::mistake(format!(
                "--destroy-data must name the export exactly: {device}"
            )));
        }
        let uri = Uri::parse(&device).map_err(Failure::mistake)?;
        let export = blklab_serve::ProbeTarget::connect(&uri).map_err(Failure::Broken)?;
        return Ok((Box::new(export), writes, device));
    }
    let system = System::default();
    let disk = Disk::find(&system, Path::new(&device))?;
    if writes {
        let destroy = args.destroy_data.as_deref();
        let warnings = check_writes(&system, &disk, "probe", destroy)?;
        for warning in warnings {
            eprintln!("blklab: warning: {device}: {warning}");
        }
    }
    let drive = blklab_host::ProbeTarget::open(&system, &disk, writes)?;
    Ok((Box::new(drive), writes, device))
}

/// Returns the findings as text: each on a line, with the measurements that led to it
/// below.
fn text(probed: &Probed, name: &str) -> String {
    let mut text = format!("{name}: {}\n\n", size(probed.capacity_bytes));
    let layout = &probed.layout;
    line(&mut text, "chunk", &layout.chunk, |bytes| size(*bytes));
    line(
        &mut text,
        "chunks in parallel",
        &layout.parallel,
        u64::to_string,
    );
    line(&mut text, "mapping", &layout.mapping, |m| m.to_string());
    line(
        &mut text,
        "mapping, overwritten",
        &probed.overwritten,
        |m| m.to_string(),
    );
    line(&mut text, "boundary", &probed.boundary, |bytes| {
        size(*bytes)
    });
    line(&mut text, "speed-up by depth", &probed.speedup, |speedup| {
        format!("{:.1} at depth {}", speedup.factor, speedup.depth)
    });
    line(&mut text, "write buffer", &probed.buffer, |bytes| {
        size(*bytes)
    });
    line(
        &mut text,
        "read behind writes",
        &probed.behind_writes,
        behind,
    );
    line(&mut text, "write cliff", &probed.cliff, cliff);
    text
}

fn behind(found: &BehindWrites) -> String {
    let factor = found.behind_ns as f64 / found.alone_ns.max(1) as f64;
    format!("{factor:.1} times as long")
}

fn cliff(found: &Cliff) -> String {
    let left = found.behind / found.before.max(1.0) * 100.0;
    format!("to {left:.0} % behind {}", size(found.after_bytes))
}

fn line<T>(text: &mut String, name: &str, finding: &Finding<T>, show: impl Fn(&T) -> String) {
    let (value, confidence) = match &finding.value {
        Some(value) => (
            show(value),
            format!("{:3.0} % agree", finding.confidence * 100.0),
        ),
        None => ("not detected".to_string(), String::new()),
    };
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{}",
        format!("{name:<22}{value:<26}{confidence}").trim_end()
    );
    let _ = writeln!(text, "  {}", finding.seen);
}
