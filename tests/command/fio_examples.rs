//! fio's own examples, of Debian's package fio-examples: each runs, or is refused
//! in a sentence that is right.

use std::path::Path;

use crate::support::{Outcome, Place};

const FOLDER: &str = "/usr/share/doc/fio/examples";

/// Those that run.
const RUN: [&str; 34] = [
    "1mbs_clients",
    "aio-read",
    "backwards-read",
    "basic-verify",
    "butterfly",
    "cmdprio-bssplit",
    "cmdprio-percentage",
    "dedupe-global",
    "disk-zone-profile",
    "exitwhat",
    "fio-rand-RW",
    "fio-rand-read",
    "fio-rand-write",
    "fio-seq-RW",
    "fio-seq-read",
    "fio-seq-write",
    "fixed-rate-submission",
    "flow",
    "fsx",
    "iometer-file-access-server",
    "jesd219",
    "latency-profile",
    "numa",
    "poisson-rate-submission",
    "rand-zones",
    "ssd-steadystate",
    "ssd-test",
    "steadystate",
    "surface-scan",
    "tiobench-example",
    "waitfor",
    "uring-cmd-ng",
    "zbd-rand-write",
    "zbd-seq-read",
];

/// Those that are refused, with what the message says.
const REFUSED: [(&str, &str); 52] = [
    ("cpp_null", ":6: ioengine=cpp_null: "),
    ("cpuio", "ioengine=cpuio is not simulated"),
    (
        "cross-stripe-verify",
        ":17: offset_increment=124g: byte 3861175721984",
    ),
    ("dev-dax", "ioengine=dev-dax is not simulated"),
    ("dfs", ":3: pool=${POOL}: is empty; set the variable"),
    ("e4defrag", "ioengine=e4defrag is not simulated"),
    ("e4defrag2", "ioengine=e4defrag is not simulated"),
    (
        "enospc-pressure",
        ":17: ignore_error=,ENOSPC: fio 3.33 would",
    ),
    ("exec", "ioengine=exec is not simulated"),
    ("falloc", "ioengine=falloc is not simulated"),
    (
        "filecreate-ioengine",
        "ioengine=filecreate is not simulated",
    ),
    (
        "filedelete-ioengine",
        "ioengine=filedelete is not simulated",
    ),
    ("filestat-ioengine", "ioengine=filestat is not simulated"),
    ("ftruncate", "ioengine=ftruncate is not simulated"),
    ("gfapi", "ioengine=gfapi is not simulated"),
    ("gpudirect-rdmaio-client", ":7: mem=cudamalloc: "),
    ("gpudirect-rdmaio-server", ":5: mem=cudamalloc: "),
    ("http-s3", "ioengine=http is not simulated"),
    ("http-s3-crypto", "ioengine=http is not simulated"),
    ("http-s3-storage-class", "ioengine=http is not simulated"),
    ("http-swift", "ioengine=http is not simulated"),
    ("http-webdav", "ioengine=http is not simulated"),
    ("ime", "ioengine=ime_psync is not simulated"),
    ("libcufile-cufile", ":11: directory=${FIO_DIR}: is empty"),
    ("libcufile-posix", ":11: directory=${FIO_DIR}: is empty"),
    ("libhdfs", "ioengine=libhdfs is not simulated"),
    ("libiscsi", "ioengine=libiscsi is not simulated"),
    ("libpmem", "ioengine=libpmem is not simulated"),
    (
        "librpma_apm-client",
        "ioengine=librpma_apm_client is not simulated",
    ),
    (
        "librpma_apm-server",
        "ioengine=librpma_apm_server is not simulated",
    ),
    (
        "librpma_gpspm-client",
        "ioengine=librpma_gpspm_client is not simulated",
    ),
    (
        "librpma_gpspm-server",
        "ioengine=librpma_gpspm_server is not simulated",
    ),
    ("libzbc-rand-write", "ioengine=libzbc is not simulated"),
    ("libzbc-seq-read", "ioengine=libzbc is not simulated"),
    ("mtd", "ioengine=mtd is not simulated"),
    ("nbd", "ioengine=nbd is not simulated"),
    ("netio", "ioengine=net is not simulated"),
    ("netio_multicast", "ioengine=net is not simulated"),
    ("nfs", "ioengine=nfs is not simulated"),
    ("null", "ioengine=null is not simulated"),
    ("pmemblk", "ioengine=pmemblk is not simulated"),
    ("rados", "ioengine=rados is not simulated"),
    ("rbd", "ioengine=rbd is not simulated"),
    ("rdmaio-client", "ioengine=rdma is not simulated"),
    ("rdmaio-server", "ioengine=rdma is not simulated"),
    ("sg_verify", "ioengine=sg is not simulated"),
    ("sg_verify-fail", "ioengine=sg is not simulated"),
    ("sg_write_same_ndob", "ioengine=sg is not simulated"),
    (
        "uring-cmd-zoned",
        "verify=crc32c: not simulated with a zonemode",
    ),
    (
        "xnvme-compare",
        ":70: rw=${FIO_RW}: is empty; set the variable",
    ),
    (
        "xnvme-zoned",
        ":68: verify=crc32c: not simulated with a zonemode",
    ),
    ("zipf", "ioengine=null is not simulated"),
];

/// Those of other engines that run as with libaio.
const RUN_AS_LIBAIO: [&str; 6] = ["null", "zipf", "libiscsi", "libpmem", "gfapi", "pmemblk"];

/// Runs the example with its work cut short.
fn run(place: &Place, name: &str, options: &[&str]) -> Outcome {
    let file = format!("{FOLDER}/{name}.fio");
    let short = [
        "compare",
        &file,
        "--schedulers",
        "none",
        "--repeats",
        "1",
        "--vary",
        "runtime=10ms",
        "--vary",
        "number_ios=64",
        "--vary",
        "loops=1",
    ];
    place.blklab(&[&short, options].concat())
}

#[test]
fn each_example_of_fios_runs_or_is_refused() {
    if !Path::new(FOLDER).is_dir() {
        return blklab_judges::missing("fio-examples");
    }
    let place = Place::new();
    for name in RUN {
        let done = run(&place, name, &[]);
        assert_eq!(done.status, 0, "{name}: {}", done.err);
    }
    for (name, says) in REFUSED {
        let done = run(&place, name, &[]);
        assert_eq!(done.status, 2, "{name}: {}", done.err);
        assert_eq!(done.err.lines().count(), 1, "{name}: {}", done.err);
        assert!(
            done.err.contains(says),
            "{name}: no {says:?} in {}",
            done.err
        );
    }
    for name in RUN_AS_LIBAIO {
        let done = run(&place, name, &["--engine-as", "libaio"]);
        assert_eq!(done.status, 0, "{name}: {}", done.err);
        let said = format!("{}{}", done.out, done.err);
        assert!(said.contains("runs as libaio"), "{name}: {said}");
    }
    let known = |file: &str| RUN.contains(&file) || REFUSED.iter().any(|(name, _)| *name == file);
    for entry in std::fs::read_dir(FOLDER).expect("the folder can be read") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_job = path.extension().is_some_and(|extension| extension == "fio");
        assert!(!is_job || known(&stem), "{stem} has no expected outcome");
    }
}
