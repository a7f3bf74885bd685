//! `blklab guest`: a real kernel in a virtual machine, where its packages are unpacked.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Place, guest};

const READS: &str =
    "[reads]\nfilename=/dev/x\nrw=randread\nbs=4k\nsize=64m\ndirect=1\nnumber_ios=100\n";

#[test]
fn a_missing_kernel_names_what_fetches_it() {
    let place = Place::new();
    place.file("reads.fio", READS);
    let done = place.blklab(&["guest", "run", "reads.fio", "--guest", "none"]);
    assert_eq!(done.status, 2, "{}", done.err);
    let is_named = ["blklab guest setup", "apt-get install"];
    assert!(
        is_named.iter().any(|name| done.err.contains(name)),
        "{}",
        done.err
    );
    let done = place.blklab(&["compare", "reads.fio", "--guest-cpus", "2"]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("--world guest"), "{}", done.err);
}

#[test]
fn time_can_pass_slower_in_a_guest() {
    let place = Place::new();
    place.file("reads.fio", READS);
    let done = place.blklab(&["compare", "reads.fio", "--time-dilation", "4"]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("--world guest"), "{}", done.err);
    let Some(kernel) = guest::kernel("kernel", |_| true) else {
        return;
    };
    let script = "before=$(date +%s)\nsleep 2\nafter=$(date +%s)\n\
                  [ $((after - before)) -lt 6 ] && echo passed\n";
    let start = Instant::now();
    let done = place.in_guest(script, &kernel, 512, &["--time-dilation", "4"]);
    if done.err.contains("install the package libfaketime") {
        return blklab_judges::not_possible(&done.err);
    }
    done.ok();
    assert!(start.elapsed() > Duration::from_secs(8));
    let done = place.blklab(&[
        "guest",
        "script",
        "script",
        "--guest",
        &kernel,
        "--time-dilation",
        "4",
        "--accelerator",
        "kvm",
    ]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("--accelerator tcg"), "{}", done.err);
}

/// Where the shell finds a program.
fn path_of(program: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let paths: Vec<_> = std::env::split_paths(&path).collect();
    let found = paths
        .iter()
        .map(|folder| folder.join(program))
        .find(|path| path.exists());
    found.map(|path| path.display().to_string())
}

/// A QEMU whose first guest ends as one does whose kernel panics at its start.
const PANICS_FIRST: &str = "#!/bin/sh
case \"$1\" in --version) exec $QEMU \"$@\";; esac
[ -e booted ] && exec $QEMU \"$@\"
touch booted
echo 'Kernel panic - not syncing: Fatal exception in interrupt'
";

#[test]
fn a_kernel_that_panics_as_it_starts_is_booted_again() {
    let Some(kernel) = guest::kernel("kernel", |_| true) else {
        return;
    };
    let Some(qemu) = path_of("qemu-system-x86_64") else {
        return blklab_judges::missing("qemu-system-x86_64");
    };
    let place = Place::new();
    place.file("script", "echo passed\n");
    place.file("qemu-system-x86_64", &PANICS_FIRST.replace("$QEMU", &qemu));
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path("qemu-system-x86_64"), executable).expect("a mode");
    let path = std::env::var("PATH").expect("a path");
    let path = format!("PATH={}:{path}", place.path(".").display());
    let done = place.run(
        Path::new("env"),
        &[
            &path,
            env!("CARGO_BIN_EXE_blklab"),
            "guest",
            "script",
            "script",
            "--guest",
            &kernel,
            "--accelerator",
            "tcg",
        ],
    );
    assert!(done.err.contains("booted again"), "{}", done.err);
    done.ok();
}

#[test]
fn a_job_runs_under_a_real_kernel() {
    let Some(guest) = guest::kernel("kernel", |_| true) else {
        return;
    };
    let place = Place::new();
    place.file("reads.fio", READS);
    let done = place.json(&[
        "guest",
        "run",
        "reads.fio",
        "--guest",
        &guest,
        "--accelerator",
        "tcg",
        "--drive",
        "mx100-256",
        "--schedulers",
        "mq-deadline",
        "--repeats",
        "1",
    ]);
    assert_eq!(done["world"], "guest");
    let machine = done["machine"].as_str().expect("a machine");
    assert!(machine.starts_with("Linux 6."), "{machine}");
    let row = &done["sections"][0]["directions"][0]["rows"][0];
    assert_eq!(row["ios"], 100, "{row}");
    // Its own requests, and what the drive that was served counted.
    let facts = done["why"].as_array().expect("facts");
    let value = |key: &str| {
        let fact = facts.iter().find(|fact| fact["name"] == key);
        fact.unwrap_or_else(|| panic!("no {key} in {facts:?}"))["values"][0].as_f64()
    };
    assert!(value("requests to the drive") >= Some(100.0));
    assert!(value("pages read") >= Some(100.0), "{facts:?}");
}
