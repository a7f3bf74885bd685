//! The job file for fio: the user's job, with the device in place of every file, or with fio's NBD
//! engine and a served export.

use std::path::Path;

use blklab_workload::fio::{self, Engine, JobFile, JobSpec};

use crate::error::HostError;

/// Options about the engine, which the NBD engine replaces.
const WAYS: [&str; 2] = ["ioengine", "iodepth"];

/// Options about the place of the I/O, which `--device` replaces.
const PLACES: [&str; 4] = ["filename", "directory", "filename_format", "opendir"];

/// Options that [`ASKED`] replaces.
const PERCENTILES: [&str; 3] = ["lat_percentiles", "clat_percentiles", "slat_percentiles"];

/// Options with which fio would change the scheduler by itself, remove the device node or use other
/// devices.
const FOREIGN: [(&str, &str); 5] = [
    ("ioscheduler", "--schedulers sets it"),
    ("read_iolog", "it names the files to use itself"),
    ("unlink", "it would remove the device's node"),
    ("unlink_each_loop", "it would remove the device's node"),
    ("filesize", "it would make files"),
];

/// With this option fio adds up the results of several jobs, which are compared separately here.
const GROUPED: &str = "group_reporting";

/// Options added to the user's: histograms of all latencies.
const ASKED: &str = "lat_percentiles=1\nclat_percentiles=1\nslat_percentiles=1\n";

/// Whether an option sets the place of the I/O, which the device replaces.
pub fn is_place(option: &str) -> bool {
    PLACES.contains(&option)
}

/// Whether an option has no effect on an export, which fio reaches through its NBD engine.
pub fn is_replaced_by_server(option: &str) -> bool {
    is_place(option) || option == "ioengine"
}

/// Writes the job file that runs `job` on `device`.
///
/// The text is parsed again and compared with the user's job, so that nothing but the place of the
/// I/O can have changed.
pub fn on_device(job: &JobFile, device: &Path) -> Result<String, HostError> {
    check(job)?;
    let mut text = String::from("[global]\n");
    options(&mut text, &job.global_options, &[]);
    text.push_str(ASKED);
    // fio separates file names by colons.
    let device = device.display().to_string().replace(':', "\\:");
    text.push_str(&format!("filename={device}\n"));
    for spec in &job.jobs {
        text.push_str(&format!("[{}]\n", spec.section));
        options(&mut text, &spec.options, &[]);
    }
    compare(job, &text, placeless)?;
    Ok(text)
}

/// Writes the job file that runs `job` on the export at `uri` through fio's NBD engine, with the
/// I/O depth of the job's own engine.
pub fn on_server(job: &JobFile, uri: &str) -> Result<String, HostError> {
    check(job)?;
    if let Some(spec) = job.jobs.iter().find(|spec| !spec.direct) {
        return Err(HostError::Unfit(format!(
            "{}: [{}]: without direct=1 it goes through the page cache, which no NBD client of \
             fio's has; put direct=1",
            spec.position, spec.name
        )));
    }
    let mut text = String::from("[global]\n");
    options(&mut text, &job.global_options, &WAYS);
    text.push_str(ASKED);
    text.push_str(&format!("ioengine=nbd\nuri={uri}\n"));
    for spec in &job.jobs {
        let depth = match spec.engine.is_synchronous() {
            true => 1,
            false => spec.io_depth,
        };
        text.push_str(&format!("[{}]\n", spec.section));
        options(&mut text, &spec.options, &WAYS);
        text.push_str(&format!("iodepth={depth}\n"));
    }
    compare(job, &text, wayless)?;
    Ok(text)
}

fn options(text: &mut String, options: &[(String, String)], left_out: &[&str]) {
    for (name, value) in options {
        let name = name.as_str();
        let elsewhere = PLACES.contains(&name) || PERCENTILES.contains(&name);
        if elsewhere || name == GROUPED || left_out.contains(&name) {
            continue;
        }
        match value.is_empty() {
            true => text.push_str(&format!("{name}\n")),
            false => text.push_str(&format!("{name}={value}\n")),
        }
    }
}

/// Refuses jobs that cannot run on a single block device.
fn check(job: &JobFile) -> Result<(), HostError> {
    let mut files: Vec<&String> = Vec::new();
    for spec in &job.jobs {
        let refuse = |problem: String| {
            let place = &spec.position;
            Err(HostError::Unfit(format!(
                "{place}: [{}]: {problem}",
                spec.name
            )))
        };
        files.extend(&spec.files);
        let given = job.global_options.iter().chain(&spec.options);
        for (name, _) in given {
            if let Some((name, why)) = FOREIGN.iter().find(|(foreign, _)| foreign == name) {
                return refuse(format!("{name} cannot be used with --device: {why}"));
            }
        }
        if !spec.engine.is_scheduled() {
            let scheduled: Vec<&str> = Engine::scheduled().collect();
            return refuse(format!(
                "ioengine={} does not go through the block layer's scheduler; {} do",
                spec.engine.name(),
                scheduled.join(", ")
            ));
        }
    }
    files.sort();
    files.dedup();
    if files.len() > 1 {
        let names: Vec<&str> = files.iter().map(|f| f.as_str()).collect();
        return Err(HostError::Unfit(format!(
            "{}: the job works on {} files ({}), and --device names one drive; give a job with \
             one filename",
            job.name,
            files.len(),
            names.join(", ")
        )));
    }
    Ok(())
}

/// Parses the text for fio and compares it with the job.
fn compare(job: &JobFile, text: &str, kept: impl Fn(&JobSpec) -> JobSpec) -> Result<(), HostError> {
    let no_includes = |_: &str, _: &str| Err("nothing is included".to_string());
    let again = fio::parse_str(
        "fio's job file",
        text,
        &|name| std::env::var(name).ok(),
        &no_includes,
    );
    let again = again.map_err(|error| HostError::Unfit(error.to_string()))?;
    let same = again.jobs.len() == job.jobs.len()
        && again
            .jobs
            .iter()
            .zip(&job.jobs)
            .all(|(a, b)| kept(a) == kept(b));
    if same {
        return Ok(());
    }
    Err(HostError::Unfit(format!(
        "{}: the job cannot be put on a device as it is written; give it one [global] section \
         before its jobs",
        job.name
    )))
}

/// Returns the job without the settings that the device replaces.
fn placeless(spec: &JobSpec) -> JobSpec {
    let mut spec = spec.clone();
    spec.position.line = 0;
    spec.position.file.clear();
    spec.files.clear();
    spec.directories.clear();
    spec.filename_format.clear();
    spec.file_count = 1;
    spec.group_reporting = false;
    spec.options.clear();
    spec.written.clear();
    for asked in [
        &mut spec.clat_percentiles,
        &mut spec.lat_percentiles,
        &mut spec.slat_percentiles,
    ] {
        *asked = true;
    }
    spec
}

/// Returns the job also without the settings that the NBD engine replaces.
fn wayless(spec: &JobSpec) -> JobSpec {
    let mut spec = placeless(spec);
    if spec.engine.is_synchronous() {
        (spec.io_depth, spec.io_depth_low) = (1, 1);
    }
    spec.engine = Engine::default();
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(text: &str) -> JobFile {
        let no_includes = |_: &str, _: &str| Err("no includes".to_string());
        fio::parse_str("t.fio", text, &|_| None, &no_includes).unwrap()
    }

    fn put(text: &str) -> Result<String, HostError> {
        on_device(&job(text), Path::new("/dev/loop9"))
    }

    fn refused(text: &str) -> String {
        let error = put(text).unwrap_err();
        assert!(error.is_mistake());
        error.to_string()
    }

    #[test]
    fn every_job_works_on_the_device_and_nowhere_else() {
        let text = put("[global]\nfilename=/dev/ssd\nbs=8k\nclat_percentiles=0\n\
             [a]\nrw=randread\nsize=1m\n[b]\nstonewall\nfilename=/dev/ssd\nrw=read\nsize=2m\n")
        .unwrap();
        assert!(!text.contains("/dev/ssd"), "{text}");
        let again = job(&text);
        for spec in &again.jobs {
            assert_eq!(spec.files, ["/dev/loop9"]);
            assert!(spec.lat_percentiles && spec.clat_percentiles);
        }
        assert_eq!(again.jobs[0].block_sizes.read.min_bytes, 8192);
        assert!(again.jobs[1].stonewall);
    }

    #[test]
    fn a_served_job_keeps_its_depth() {
        let text = "[global]\ndirect=1\nioengine=libaio\niodepth=32\nfilename=/dev/ssd\n\
             [a]\nrw=randread\nsize=1m\n[b]\nioengine=psync\nrw=read\nsize=2m\n";
        let put = on_server(&job(text), "nbd+unix:///?socket=/s").unwrap();
        let depths: Vec<&str> = put.lines().filter(|l| l.starts_with("iodepth=")).collect();
        assert_eq!(depths, ["iodepth=32", "iodepth=1"], "{put}");
        assert!(
            put.contains("ioengine=nbd\nuri=nbd+unix:///?socket=/s\n"),
            "{put}"
        );
        assert!(!put.contains("libaio") && !put.contains("psync"), "{put}");
        let cached = on_server(&job("[a]\nrw=read\nsize=1m\n"), "nbd://h").unwrap_err();
        assert!(cached.is_mistake() && cached.to_string().contains("direct=1"));
    }

    #[test]
    fn folders_do_not_lead_elsewhere() {
        let text = put("[a]\ndirectory=/home\nrw=read\nsize=1m\n").unwrap();
        assert!(!text.contains("/home"), "{text}");
        let odd = on_device(
            &job("[a]\nrw=read\nsize=1m\n"),
            Path::new("/dev/disk/by-path/pci-0000:00"),
        );
        let odd = job(&odd.unwrap());
        assert_eq!(odd.jobs[0].files, ["/dev/disk/by-path/pci-0000:00"]);
    }

    #[test]
    fn what_one_device_cannot_do_is_refused() {
        let two =
            "[a]\nfilename=/dev/x\nrw=read\nsize=1m\n[b]\nfilename=/dev/y\nrw=read\nsize=1m\n";
        assert!(refused(two).contains("/dev/x, /dev/y"));
        let sets = "[a]\nrw=read\nsize=1m\nioscheduler=bfq\n";
        assert!(refused(sets).contains("--schedulers"));
        let unlink = "[a]\nrw=read\nsize=1m\nunlink=1\n";
        assert!(refused(unlink).contains("t.fio:1: [a]: unlink"));
        let null = "[a]\nrw=read\nsize=1m\nioengine=null\n";
        assert!(refused(null).contains("ioengine=null"));
    }

    #[test]
    fn a_job_that_would_change_on_the_way_is_refused() {
        // The second [global] section applies only to the second job.
        let late = "[a]\nrw=read\nsize=1m\n[global]\nbs=64k\n[b]\nrw=read\nsize=1m\n";
        assert!(refused(late).contains("[global]"));
    }
}
