//! The job file reader on any text: an error or jobs, never a panic. The
//! environment knows one variable; every included file is the same small one.
#![no_main]

use blklab_workload::fio::parse_str;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let environment = |name: &str| match name {
        "SIZE" | "$mb_memory" => Some("64".to_owned()),
        "$ncpus" => Some("2".to_owned()),
        _ => None,
    };
    let include = |_from: &str, name: &str| Ok((name.to_owned(), "rw=randread\n".to_owned()));
    let _ = parse_str("fuzz.fio", text, &environment, &include);
});
