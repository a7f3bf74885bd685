//! How a job submits: by threads (`io_submit_mode=offload`), and holding back what overlaps
//! (`serialize_overlap`).

use serde_json::Value;

use crate::support::Place;

fn run(job: &str, drive: &str) -> Value {
    let place = Place::new();
    place.file("j.fio", job);
    let args = ["run", "j.fio", "--drive", drive, "--output-format", "json"];
    place.blklab(&args).ok().json()
}

#[test]
fn threads_keep_the_rate_where_a_job_of_its_own_waits_for_late_io() {
    // A synchronous engine: one thread an I/O, so that a slow one holds up no other.
    let job = "[global]\nioengine=psync\ndirect=1\nrw=randread\nbs=4k\niodepth=32\n\
               rate_iops=150\nrate_process=poisson\nruntime=4\ntime_based\nfilename=/dev/x\n\
               [inline]\n[offload]\nstonewall\nio_submit_mode=offload\n";
    let json = run(job, "hdd-7200");
    let iops = |job: usize| json["jobs"][job]["read"]["iops"].as_f64().expect("a rate");
    // One at a time the disk does about 110 random reads a second, and more out of several.
    assert!(iops(0) < 125.0, "{}", iops(0));
    assert!((138.0..165.0).contains(&iops(1)), "{}", iops(1));
}

#[test]
fn what_threads_are_not_simulated_for_is_refused() {
    for option in [
        "fsync=8",
        "verify=crc32c",
        "hipri=1",
        "zonemode=zbd\nzonesize=1m",
    ] {
        let place = Place::new();
        let job = format!(
            "[a]\nfilename=/dev/x\ndirect=1\nrw=write\nioengine=io_uring\niodepth=4\n\
             io_submit_mode=offload\n{option}\n"
        );
        place.file("j.fio", &job);
        let done = place.blklab(&["run", "j.fio"]);
        assert_eq!(done.status, 2, "{option}: {}", done.err);
        let says = "io_submit_mode=offload: fio 3.33 would have threads of its own also flush";
        assert!(done.err.contains(says), "{option}: {}", done.err);
    }
}

#[test]
fn writes_that_overlap_one_in_flight_wait_for_it() {
    // Sixteen writes at once within eight blocks: most of them would overlap.
    let job = "[a]\nioengine=libaio\ndirect=1\nrw=randwrite\nbs=8k\nblockalign=4k\nsize=32k\n\
               io_size=2m\nnorandommap\niodepth=16\n";
    let deepest = |job: &str| {
        let place = Place::new();
        place.file("j.fio", job);
        let args = ["run", "j.fio", "--drive", "nvme", "--requests", "r.csv"];
        place.blklab(&args).ok();
        most_overlaps(&std::fs::read_to_string(place.path("r.csv")).expect("the requests"))
    };
    assert!(deepest(job) > 1);
    assert_eq!(deepest(&format!("{job}serialize_overlap=1\n")), 1);
}

/// The most requests that were under way at one time on one sector, of a table of requests.
fn most_overlaps(csv: &str) -> usize {
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let column = |name: &str| {
        let at = header.iter().position(|column| *column == name);
        at.unwrap_or_else(|| panic!("no column {name} in {header:?}"))
    };
    let at = ["submitted_ns", "completed_ns", "sector", "sectors"].map(column);
    let requests: Vec<[u64; 4]> = lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            at.map(|column| cells[column].parse().expect("a number"))
        })
        .collect();
    let meet = |a: &[u64; 4], b: &[u64; 4]| {
        a[0] < b[1] && b[0] < a[1] && a[2] < b[2] + b[3] && b[2] < a[2] + a[3]
    };
    let others = |a: &[u64; 4]| requests.iter().filter(|b| meet(a, b)).count();
    requests.iter().map(others).max().unwrap_or(0)
}

/// Every fourth I/O goes to a worker, which has to be switched to.
#[test]
fn io_uring_gives_workers_what_is_forced_to_them() {
    let job = |every: u32, more: &str| {
        format!(
            "[a]\nioengine=io_uring\nrw=randread\nbs=4k\nsize=64m\nnumber_ios=4000\n\
             {more}force_async={every}\n"
        )
    };
    let cpu = |job: &str| {
        let place = Place::new();
        place.file("j.fio", job);
        let json = place.json(&["run", "j.fio", "--machine", "xeon-10core"]);
        assert_eq!(json["jobs"][0]["read"]["total_ios"], 4000);
        json["jobs"][0]["sys_cpu"].as_f64().expect("a share")
            * json["jobs"][0]["job_runtime"].as_f64().expect("a time")
    };
    for more in ["direct=1\n", "direct=1\nsqthread_poll=1\n", "direct=0\n"] {
        let [never, some, all] = [0, 4, 1].map(|every| cpu(&job(every, more)));
        assert!(never < some && some < all, "{more}: {never} {some} {all}");
    }
}
