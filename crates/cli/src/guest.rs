//! `blklab guest`.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use blklab_guest::{Boot, Initramfs, Machine, Packages, default_folder};
use blklab_host::{Interrupts, Order};

use crate::args::{GuestAnswerArgs, GuestCommand, GuestCommandArgs, GuestScriptArgs};
use crate::failure::Failure;
use crate::{compare, output};

pub(crate) fn guest(args: GuestCommandArgs) -> Result<(), Failure> {
    match args.command {
        GuestCommand::Setup(args) => {
            let folder = args.guest.unwrap_or_else(default_folder);
            let variables = blklab_guest::setup(&folder).map_err(failure)?;
            eprintln!("blklab: a guest's kernel is in {}", folder.display());
            output::print(&variables)
        }
        GuestCommand::Run(mut args) => {
            args.in_guest()?;
            compare::compare(*args)
        }
        GuestCommand::Script(args) => script(&args),
        GuestCommand::Answer(args) => answer(&args),
    }
}

fn failure(error: blklab_guest::Error) -> Failure {
    Failure::from(blklab_experiment::Error::from(error))
}

/// The line that a successful script prints.
const PASSED: &str = "passed";

fn script(args: &GuestScriptArgs) -> Result<(), Failure> {
    let broken = |e: std::io::Error| Failure::Broken(e.to_string());
    let path = args.script.display();
    let script = blklab_description::read_text(&args.script)
        .map_err(|error| Failure::mistake(format!("{path}: cannot be read: {error}")))?;
    let packages = Packages::find(&args.guest.folder()).map_err(failure)?;
    let folder = tempfile::tempdir().map_err(broken)?;
    let initramfs = folder.path().join("initramfs");
    write_initramfs(args, &packages, &script, &initramfs).map_err(failure)?;
    let interrupts = Interrupts::watch()?;
    let (answer, console) = (folder.path().join("answer"), folder.path().join("console"));
    let machine = Machine {
        accelerator: args.guest.accelerator(),
        cpus: args.guest.guest_cpus.unwrap_or(1),
        memory_mib: args.memory,
        counts_instructions: args.count_instructions,
        time_dilation: args.guest.time_dilation(),
        limit: Duration::from_secs(args.limit),
    };
    let devices = args.qemu.iter().flat_map(|text| text.split_whitespace());
    let devices: Vec<String> = devices.map(str::to_string).collect();
    let done = machine.run(&Boot {
        packages: &packages,
        initramfs: &initramfs,
        devices: &devices,
        order: None,
        answer: args.output.as_deref().unwrap_or(&answer),
        console: &console,
        append: &args.append,
        is_stopped: &|| interrupts.check().is_err(),
    });
    interrupts.check()?;
    done.map_err(failure)?;
    let said = std::fs::read(&console).map_err(broken)?;
    let said = String::from_utf8_lossy(&said).replace('\r', "");
    output::print(&said)?;
    match said.lines().any(|line| line == PASSED) {
        true => Ok(()),
        false => Err(Failure::Broken(format!("{path} did not say `{PASSED}`"))),
    }
}

fn write_initramfs(
    args: &GuestScriptArgs,
    packages: &Packages,
    script: &str,
    to: &Path,
) -> Result<(), blklab_guest::Error> {
    let mut initramfs = Initramfs::new(packages)?;
    for program in &args.program {
        initramfs.add_program(program)?;
    }
    for module in &args.load {
        let (name, parameters) = module.split_once(' ').unwrap_or((module, ""));
        initramfs.load(name, parameters)?;
    }
    if let Some(module) = &args.guest.module {
        initramfs.load_file(module)?;
    }
    initramfs.write(script, to)
}

/// Runs the job that the host ordered, and prints its measurements as JSON.
fn answer(args: &GuestAnswerArgs) -> Result<(), Failure> {
    let broken = |e: &dyn std::fmt::Display| Failure::Broken(format!("the order: {e}"));
    let order = std::fs::read(&args.order).map_err(|e| broken(&e))?;
    let reply = Order::answer_json(&order)?;
    let mut out = std::io::stdout().lock();
    out.write_all(&reply).map_err(|e| broken(&e))?;
    out.flush().map_err(|e| broken(&e))
}
