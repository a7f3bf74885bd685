//! Scenarios of `blklab calibrate` on files of results, as a user has them.

use crate::support::Place;

const HEAD: &str =
    "study,scheduler,rw,direction,bs,iodepth,processes,cores,devices,iops,lat_mean_us,clat_p99_us";

/// Four rows of a drive that is slower than `nvme`.
fn rows() -> String {
    let row = |depth: u32, iops: u32, mean_us: u32, p99_us: u32| {
        format!("mine,none,randread,read,4k,{depth},1,1,1,{iops},{mean_us},{p99_us}")
    };
    let rows = [
        row(1, 8000, 124, 130),
        row(2, 16_000, 124, 140),
        row(4, 31_000, 128, 200),
        row(8, 60_000, 132, 260),
    ];
    format!("{HEAD}\n{}\n", rows.join("\n"))
}

const MODEL: [&str; 4] = ["--drive", "nvme", "--machine", "xeon-10core"];

fn calibrate<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["calibrate", "rows.csv"][..], &MODEL, more].concat()
}

#[test]
fn a_fit_comes_closer_and_what_it_writes_can_be_run() {
    let place = Place::new();
    place.file("rows.csv", &rows());
    let mean_error = |out: &str| -> f64 {
        let line = out.lines().find(|line| line.starts_with("| all |"));
        let cell = line
            .and_then(|line| line.split('|').nth(4))
            .expect("a cell");
        cell.trim()
            .trim_end_matches(" %")
            .parse()
            .expect("a number")
    };
    let before = place.blklab(&calibrate(&["--evaluations", "0"])).ok();
    let more = [
        "--evaluations=14",
        "--fit=drive.flash.read_us",
        "--output-drive=drive.toml",
        "--output-machine=machine.toml",
    ];
    let after = place.blklab(&calibrate(&more)).ok();
    assert!(
        mean_error(&after.out) < mean_error(&before.out) / 2.0,
        "{}\n{}",
        before.out,
        after.out
    );
    let written = std::fs::read_to_string(place.path("drive.toml")).expect("written");
    assert!(written.contains("# fitted, from rows.csv"), "{written}");
    let job = [
        "--name=a",
        "--filename=/dev/x",
        "--rw=randread",
        "--number_ios=100",
    ];
    let with = [
        "run",
        "--drive",
        "drive.toml",
        "--machine",
        "machine.toml",
        "--",
    ];
    place.blklab(&[&with[..], &job].concat()).ok();
}

#[test]
fn rows_that_are_held_out_are_told_apart() {
    let place = Place::new();
    place.file("rows.csv", &rows());
    let more = ["--evaluations=0", "--hold-out=iodepth=2,8"];
    let out = place.blklab(&calibrate(&more)).ok().out;
    for name in ["Fitted:", "Held out:"] {
        let (_, table) = out.split_once(name).expect(name);
        assert!(table.contains("| mine | 2 |"), "{out}");
    }
}

#[test]
fn fios_own_json_is_taken() {
    let place = Place::new();
    let job = [
        "run",
        "--drive=nvme",
        "--machine=xeon-10core",
        "--output-format=json",
        "--output=fio.json",
        "--",
        "--name=a",
        "--filename=/dev/x",
        "--rw=randread",
        "--direct=1",
        "--ioengine=io_uring",
        "--iodepth=4",
        "--number_ios=3000",
        "--group_reporting=1",
    ];
    place.blklab(&job).ok();
    let args = [&["calibrate", "fio.json", "--evaluations=0"][..], &MODEL].concat();
    let out = place.blklab(&args).ok().out;
    assert!(out.contains("| a | none | randread read | "), "{out}");
}

/// As the help has it: the machine has a default, the drive has none.
#[test]
fn the_machine_may_be_left_out() {
    let place = Place::new();
    place.file("rows.csv", &rows());
    let calibrate = |more: &[&str]| {
        let args = [
            "calibrate",
            "rows.csv",
            "--drive",
            "nvme",
            "--evaluations=0",
        ];
        place.blklab(&[&args[..], more].concat()).ok().out
    };
    assert_eq!(calibrate(&[]), calibrate(&["--machine", "generic-8"]));
    let done = place.blklab(&["calibrate", "rows.csv"]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("--drive"), "{}", done.err);
}

/// What is fitted where nobody says is what the descriptions have.
#[test]
fn what_is_fitted_may_be_left_out() {
    let place = Place::new();
    place.file("rows.csv", &rows());
    for (drive, machine, status) in [
        ("nvme", "generic-8", 0),
        // Far from the rows; what was fitted is told all the same.
        ("null", "vm-2cpu", 1),
        ("hdd-7200", "xeon-10core", 1),
        ("980pro-1tb", "rpi4", 0),
    ] {
        let models = ["--drive", drive, "--machine", machine];
        let args = ["calibrate", "rows.csv", "--evaluations=2"];
        let done = place.blklab(&[&args[..], &models].concat());
        assert_eq!(done.status, status, "{drive}: {}{}", done.out, done.err);
        assert!(done.out.starts_with("| parameter |"), "{}", done.out);
    }
    let nothing = "calibrate rows.csv --drive null --machine generic-8 --fit costs.*";
    let done = place.blklab(&nothing.split(' ').collect::<Vec<_>>());
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("--fit costs.*: neither"), "{}", done.err);
}

/// A disk is not made as fast as an SSD by moving what an SSD's rows decide.
#[test]
fn a_useless_fit_is_called_that_and_writes_nothing() {
    let place = Place::new();
    place.file("rows.csv", &rows());
    let args = "calibrate rows.csv --drive hdd-7200 --evaluations 2 --fit drive.link.bandwidth_mb_s \
                --output-drive drive.toml --output-machine machine.toml";
    let done = place.blklab(&args.split_whitespace().collect::<Vec<_>>());
    assert_eq!(done.status, 1, "{}{}", done.out, done.err);
    assert!(
        done.out.contains("| drive.link.bandwidth_mb_s |"),
        "{}",
        done.out
    );
    let far = "blklab: the fit is useless: half of the 4 fitted rows are off by a factor of ";
    assert!(done.err.contains(far), "{}", done.err);
    assert_eq!(place.files(), ["rows.csv"]);
}

/// One message with what was found and what would be right, and no file left.
#[test]
fn mistakes_are_told_with_their_place() {
    let place = Place::new();
    let bad = |from: &str, to: &str| rows().replacen(from, to, 1);
    let cases = [
        (
            bad(",16000,", ",many,"),
            &[][..],
            "rows.csv:3: column `iops`: found \"many\", legal is a number above 0",
        ),
        (
            bad(",4k,4,", ",4k,0,"),
            &[],
            "rows.csv:4: column `iodepth`: found \"0\", legal is a whole number",
        ),
        (
            bad("clat_p99_us", "p99"),
            &[],
            "rows.csv:1: column `clat_p99_us`: is missing",
        ),
        (
            bad(",124,140", ",124"),
            &[],
            "rows.csv:3: found 11 fields, the first line names 12",
        ),
        (bad("mine,none", "mine,nnoe"), &[], "nnoe"),
        (bad("randread", "randred"), &[], "randred"),
        (String::new(), &[], "rows.csv:1: the file is empty"),
        (rows(), &["--rows=depth=1"], "depth: no such column"),
        (
            rows(),
            &["--rows=study=other"],
            "no row is left; look at --rows",
        ),
        (
            rows(),
            &["--hold-out=iodepth=3"],
            "no row is held out; look at --hold-out",
        ),
        (
            rows(),
            &["--hold-out=bs=4k"],
            "no row is left to fit to; look at --hold-out",
        ),
        (
            rows(),
            &["--fit=drive.flash.raed_us"],
            "flash.raed_us: is not in the description",
        ),
        (
            rows(),
            &["--fit=flash.read_us"],
            "flash.read_us: no such parameter",
        ),
    ];
    for (text, more, message) in cases {
        place.file("rows.csv", &text);
        let more = [more, &["--output-drive=drive.toml"]].concat();
        let done = place.blklab(&calibrate(&more));
        assert_eq!(done.status, 2, "{message}\n{}\n{}", done.out, done.err);
        assert!(
            done.err.contains(message),
            "no {message:?} in: {}",
            done.err
        );
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
        assert_eq!(place.files(), ["rows.csv"], "{message}");
    }
}

/// What io.cost is told of a drive can be given to it.
#[test]
fn what_io_cost_is_told_can_be_given_to_a_job() {
    let place = Place::new();
    let more = [
        "calibrate",
        "--iocost=1",
        "--drive=hdd-7200",
        "--output=cost.conf",
    ];
    place.blklab(&more).ok();
    let lines = std::fs::read_to_string(place.path("cost.conf")).expect("written");
    assert!(
        lines.contains("io.cost.model = 8:0 ctrl=user model=linear rbps="),
        "{lines}"
    );
    let job = [
        "run",
        "--drive=hdd-7200",
        "--cgroup-file=cost.conf",
        "--",
        "--name=a",
        "--filename=/dev/x",
        "--direct=1",
        "--rw=randread",
        "--bs=4k",
        "--number_ios=20",
        "--size=1g",
    ];
    place.blklab(&job).ok();
}
