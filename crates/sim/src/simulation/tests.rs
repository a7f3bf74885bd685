//! What runs leave on the drive, judged by the tools of its file system.

mod random_calls;

use std::fs::File;
use std::process::Command;

use blklab_device::registry;
use blklab_elevator::SchedulerChoice;
use blklab_judges::have;
use blklab_workload::fio;

use super::{Setup, Simulation};
use crate::caching::Caching;
use crate::caching::FileSystemKind;
use crate::machine::Machine;
use crate::setup::{SetupError, Workload};

/// The drive's size in bytes.
const CAPACITY_BYTES: u64 = 256 << 20;

/// Runs a job to its end and writes the blocks of its file system to a file.
fn leave_behind(kind: FileSystemKind, text: &str, image: &File) {
    let job = fio::parse_str("t.fio", text, &|_| None, &|_, f| Err(f.to_string()));
    let caching = Caching {
        file_system: kind,
        ..Caching::default()
    };
    let job = job.expect("a job");
    run_to_image(Workload::Job(&job), caching, image).expect("no process fails");
}

/// Runs work to its end and writes the blocks of its file system to a file.
fn run_to_image(workload: Workload<'_>, caching: Caching, image: &File) -> Result<(), SetupError> {
    let machine = Machine::find("generic-8").expect("known").expect("valid");
    let size = (
        "host.capacity_bytes".to_string(),
        CAPACITY_BYTES.to_string(),
    );
    let (drive, _) = registry::load_with("null", &[size]).expect("valid");
    let scheduler = SchedulerChoice::named("none").expect("known");
    let setup = Setup {
        caching,
        ..Setup::new(workload, &machine, &drive, &scheduler)
    };
    let mut simulation = Simulation::new(&setup).expect("a run");
    simulation.start_kernel_threads();
    simulation.start_ready();
    while simulation.advance().expect("it goes on") {}
    for process in &mut simulation.processes {
        process.check()?;
    }
    let disk = simulation.system.files.expect("it has files").write_out();
    image.set_len(CAPACITY_BYTES).expect("an image");
    disk.copy_to(image).expect("an image");
    Ok(())
}

/// The tools that know what an image of that kind must be, each with its option.
const TOOLS: [(FileSystemKind, &str, &str); 2] = [
    (FileSystemKind::Ext2, "e2fsck", "-fn"),
    (FileSystemKind::Vfat, "fsck.vfat", "-n"),
];

/// Files are made, written to at random places, beside each other and directly, synced,
/// cut short by a full drive and removed: nothing is wrong with what is left.
#[test]
fn what_is_left_of_a_file_system_is_whole() {
    let jobs = [
        "[global]\nbs=4k\nsize=3m\nnrfiles=3\nfsync=16\n[a]\nrw=randrw\n[b]\nrw=randwrite\n\
         [c]\nrw=write\nunlink=1\n[d]\ndirect=1\nrw=randwrite\nioengine=libaio\niodepth=4\n",
        "[a]\nrw=write\nbs=256k\nsize=400m\nnrfiles=2\nfallocate=none\n",
    ];
    for (kind, tool, option) in TOOLS {
        if !have(tool) {
            continue;
        }
        for job in jobs {
            let image = tempfile::NamedTempFile::new().expect("a temporary file");
            leave_behind(kind, job, image.as_file());
            let judged = Command::new(tool).arg(option).arg(image.path()).output();
            let judged = judged.expect("it runs");
            let said = String::from_utf8_lossy(&judged.stdout);
            assert!(judged.status.success(), "{kind:?}, {job}: {said}");
        }
    }
}
