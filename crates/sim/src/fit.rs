//! Whether a job fits the machine and the drive it is to run on: what fio, or
//! the kernel under it, refuses.

use blklab_device::DriveSpec;
use blklab_workload::fio::{Direction, Extent, JobError, JobFile, JobSpec};

use crate::machine::Machine;
use crate::setup::SetupError;

/// Checks every job.
///
/// # Errors
/// At the first that does not fit, with the place of its option.
pub(crate) fn check(job: &JobFile, machine: &Machine, drive: &DriveSpec) -> Result<(), SetupError> {
    for spec in &job.jobs {
        let fits = check_cpus(spec, machine).and_then(|()| check_blocks(spec, drive));
        fits.map_err(|mistake| SetupError::Mistake(Box::new(mistake)))?;
    }
    Ok(())
}

fn check_cpus(spec: &JobSpec, machine: &Machine) -> Result<(), JobError> {
    match spec.cpus.iter().find(|&&cpu| cpu >= machine.cpus) {
        None => Ok(()),
        Some(cpu) => Err(spec.mistake(
            &["cpus_allowed", "cpumask"],
            format!("{} has no CPU {cpu}", machine.name),
            format!("0 to {}", machine.cpus - 1),
        )),
    }
}

/// Direct I/O is in whole logical blocks of the drive; the kernel ends any other
/// with EINVAL.
fn check_blocks(spec: &JobSpec, drive: &DriveSpec) -> Result<(), JobError> {
    let logical = u64::from(drive.identity().logical_block_bytes);
    let whole = |options: &[&str], bytes: u64| match bytes.is_multiple_of(logical) {
        true => Ok(()),
        false => Err(spec.mistake(
            options,
            format!("{bytes} bytes are not whole blocks of {}", drive.name),
            format!("a multiple of its logical block of {logical} bytes"),
        )),
    };
    for direction in Direction::ALL.into_iter().filter(|d| spec.pattern.does(*d)) {
        let sizes = &spec.block_sizes[direction];
        let split = sizes.split.iter().map(|(bytes, _)| *bytes);
        for bytes in split.chain([sizes.min_bytes, sizes.max_bytes]) {
            whole(&["bssplit", "bsrange", "bs"], bytes)?;
        }
        whole(&["ba"], spec.align_bytes[direction])?;
    }
    let bytes_of = |extent| match extent {
        Extent::Bytes(bytes) => bytes,
        _ => 0,
    };
    whole(&["offset"], bytes_of(spec.offset))?;
    whole(&["offset_increment"], bytes_of(spec.offset_increment))?;
    whole(&["offset_align"], spec.offset_align_bytes)?;
    whole(&["rw"], spec.sequential_step_bytes.unsigned_abs())
}
