//! The job file reader on any text, and what its jobs then do: errors or jobs
//! and I/Os inside their files, never a panic. The environment knows one
//! variable; every included file is the same small one.
#![no_main]

use blklab_workload::fio::{JobFile, parse_str};
use blklab_workload::generate::{Layout, OffsetGenerator, Pacing, Seeds, processes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let environment = |name: &str| match name {
        "SIZE" | "$mb_memory" => Some("64".to_owned()),
        "$ncpus" => Some("2".to_owned()),
        _ => None,
    };
    let include = |_from: &str, name: &str| Ok((name.to_owned(), "rw=randread\n".to_owned()));
    if let Ok(file) = parse_str("fuzz.fio", text, &environment, &include) {
        run(&file);
    }
});

/// The first I/Os of the first processes, on drives of 64 MiB.
fn run(file: &JobFile) {
    const DRIVE_BYTES: u64 = 64 << 20;
    for process in processes(file).into_iter().take(4) {
        let spec = &file.jobs[process.job];
        let seeds = Seeds::new(spec, process.thread_number, 1);
        let drives = vec![DRIVE_BYTES; spec.file_count.min(16) as usize];
        let Ok(layout) = Layout::new(spec, process.number, &seeds, &drives) else {
            continue;
        };
        let Ok(mut offsets) = OffsetGenerator::new(spec, &layout, &seeds) else {
            continue;
        };
        let mut pacing = Pacing::new(spec, &seeds);
        let mut left = 200;
        while left > 0 && offsets.start_pass() {
            while let Some(io) = offsets.next() {
                let end = io.offset_bytes + u64::from(io.length_bytes);
                assert!(end <= DRIVE_BYTES && io.length_bytes > 0);
                if let Some(pacing) = &mut pacing {
                    pacing.issued(io.direction, u64::from(io.length_bytes));
                    pacing.next(io.direction, 0);
                }
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
    }
}
