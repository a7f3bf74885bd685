//! Protection against overwriting: compares what a job does with the uses and contents of the
//! drive.

use blklab_workload::fio::{Direction, JobFile};

use crate::disk::Disk;
use crate::error::HostError;
use crate::inspect::{Finding, inspect, is_read_only};
use crate::system::System;

/// Whether a job only reads. Its access pattern decides: fio writes and trims nothing else, and is
/// run with `--readonly` if so.
pub fn is_read_only_job(job: &JobFile) -> bool {
    let writes = |direction| job.jobs.iter().any(|j| j.pattern.does(direction));
    !writes(Direction::Write) && !writes(Direction::Trim)
}

/// Allows the experiment and returns warnings, or refuses it. A file system made for the job counts
/// as a write. `destroy_data` is the device named by `--destroy-data`.
pub fn check_overwrite(
    system: &System,
    disk: &Disk,
    job: &JobFile,
    makes_file_system: bool,
    destroy_data: Option<&str>,
) -> Result<Vec<String>, HostError> {
    check_name(disk, destroy_data)?;
    if is_read_only_job(job) && !makes_file_system {
        let found = inspect(system, disk)?;
        return Ok(warnings(
            &found,
            "the job only reads, but others' work disturbs it",
        ));
    }
    let writer = writer(job, makes_file_system);
    check_writes(system, disk, &writer, destroy_data)
}

/// Allows `writer`, as messages call it, to write to the drive, or refuses it.
pub fn check_writes(
    system: &System,
    disk: &Disk,
    writer: &str,
    destroy_data: Option<&str>,
) -> Result<Vec<String>, HostError> {
    check_name(disk, destroy_data)?;
    let device = disk.path.display().to_string();
    let found = inspect(system, disk)?;
    if is_read_only(system, disk)? {
        return Err(HostError::Refused(format!(
            "{device} is read-only and {writer} writes"
        )));
    }
    if destroy_data.is_none() {
        return Err(HostError::Refused(refusal(&device, writer, &found)));
    }
    if let Some(in_use) = found.iter().find(|finding| finding.is_in_use()) {
        return Err(HostError::Refused(format!(
            "{device}: {in_use}; {writer} writes only to a drive that nobody uses"
        )));
    }
    Ok(warnings(&found, "its data will be destroyed, as asked"))
}

/// Checks that `--destroy-data` names exactly this device.
fn check_name(disk: &Disk, destroy_data: Option<&str>) -> Result<(), HostError> {
    let device = disk.path.display().to_string();
    match destroy_data.filter(|named| *named != device) {
        None => Ok(()),
        Some(named) => Err(HostError::Refused(format!(
            "--destroy-data {named} is not the device of this run; it must be named exactly as \
             the device is: {device}"
        ))),
    }
}

/// The writer's name for messages.
fn writer(job: &JobFile, makes_file_system: bool) -> String {
    match makes_file_system {
        true => "--mkfs".to_string(),
        false => job.name.clone(),
    }
}

fn refusal(device: &str, writer: &str, found: &[Finding]) -> String {
    let reasons = match found {
        [] => "no file system is recognised on it, which does not mean that it holds no data"
            .to_string(),
        found => found
            .iter()
            .map(Finding::to_string)
            .collect::<Vec<_>>()
            .join("; "),
    };
    format!(
        "{writer} writes, and would destroy what is on {device}: {reasons}. If it may be lost, say \
         --destroy-data {device}"
    )
}

fn warnings(found: &[Finding], what: &str) -> Vec<String> {
    let one = |finding: &Finding| format!("{finding}; {what}");
    found.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Number;
    use blklab_workload::fio;

    fn job(text: &str) -> JobFile {
        let no_includes = |_: &str, _: &str| Err("no includes".to_string());
        fio::parse_str("t.fio", text, &|_| None, &no_includes).unwrap()
    }

    const READS: &str = "[a]\nfilename=/dev/x\nrw=randread\nsize=1m\n";
    const WRITES: &str =
        "[a]\nfilename=/dev/x\nrw=read\nsize=1m\n[b]\nfilename=/dev/x\nrw=randrw\nsize=1m\n";
    const TRIMS: &str = "[a]\nfilename=/dev/x\nrw=randtrim\nsize=1m\n";

    #[test]
    fn patterns_tell_whether_data_is_safe() {
        assert!(is_read_only_job(&job(READS)));
        assert!(!is_read_only_job(&job(WRITES)));
        assert!(!is_read_only_job(&job(TRIMS)));
    }

    fn setup(head: &[u8], ro: &str) -> (tempfile::TempDir, System, Disk) {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path());
        let queue = system.sys("block/sdx");
        std::fs::create_dir_all(&queue).unwrap();
        std::fs::create_dir_all(system.proc("self")).unwrap();
        std::fs::write(queue.join("size"), "2048").unwrap();
        std::fs::write(queue.join("ro"), ro).unwrap();
        std::fs::write(system.proc("self/mountinfo"), "").unwrap();
        let path = folder.path().join("sdx");
        let mut bytes = vec![0; 1 << 20];
        bytes[..head.len()].copy_from_slice(head);
        std::fs::write(&path, bytes).unwrap();
        let disk = Disk {
            path,
            name: "sdx".to_string(),
            number: Number { major: 8, minor: 0 },
        };
        (folder, system, disk)
    }

    #[test]
    fn readers_pass_and_writers_need_the_word() {
        let (_folder, system, disk) = setup(b"XFSB", "0");
        let device = disk.path.display().to_string();
        let warned = check_overwrite(&system, &disk, &job(READS), false, None).unwrap();
        assert!(warned[0].contains("XFS"), "{warned:?}");
        for text in [WRITES, TRIMS] {
            let refused = check_overwrite(&system, &disk, &job(text), false, None).unwrap_err();
            let message = refused.to_string();
            assert!(refused.is_mistake());
            assert!(
                message.contains("XFS") && message.contains("--destroy-data"),
                "{message}"
            );
            assert!(check_overwrite(&system, &disk, &job(text), false, Some(&device)).is_ok());
        }
    }

    #[test]
    fn the_word_must_name_the_device_exactly() {
        let (_folder, system, disk) = setup(b"", "0");
        for other in ["/dev/sdy", "sdx", ""] {
            let refused =
                check_overwrite(&system, &disk, &job(WRITES), false, Some(other)).unwrap_err();
            assert!(refused.to_string().contains("exactly"), "{refused}");
        }
    }

    #[test]
    fn a_drive_without_marks_is_no_blank_cheque() {
        let (_folder, system, disk) = setup(b"", "0");
        let refused = check_overwrite(&system, &disk, &job(WRITES), false, None).unwrap_err();
        assert!(refused.to_string().contains("does not mean"), "{refused}");
    }

    #[test]
    fn a_read_only_drive_takes_no_writes_whatever_is_said() {
        let (_folder, system, disk) = setup(b"", "1");
        let device = disk.path.display().to_string();
        let refused =
            check_overwrite(&system, &disk, &job(WRITES), false, Some(&device)).unwrap_err();
        assert!(refused.to_string().contains("read-only"), "{refused}");
    }

    #[test]
    fn a_file_system_destroys_whatever_the_job_does() {
        let (_folder, system, disk) = setup(b"", "0");
        let device = disk.path.display().to_string();
        let refused = check_overwrite(&system, &disk, &job(READS), true, None).unwrap_err();
        assert!(refused.to_string().contains("--mkfs writes"), "{refused}");
        assert!(check_overwrite(&system, &disk, &job(READS), true, Some(&device)).is_ok());
    }
}
