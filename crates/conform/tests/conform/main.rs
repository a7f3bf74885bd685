//! Our scheduler and block layer against the kernel's: the traces in this
//! repository, and all that are below the directory that
//! `BLKLAB_KERNEL_TRACES` names.

mod mmc;
mod page_cache;
mod pl181;
mod recorded;

use std::fs;
use std::path::{Path, PathBuf};

use blklab_conform::{ConformError, Mode, Report, agrees, run, scheduler_alone, whole};
use blklab_workload::trace::read_text;

fn ours() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kernel-traces")
}

/// The traces of a scheduler below `directory`, in order.
fn traces(directory: &Path, scheduler: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory.join(scheduler)) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = paths
        .filter(|path| path.to_string_lossy().ends_with(".trace.gz"))
        .collect();
    found.sort();
    found
}

fn assert_whole(report: &Report) {
    assert!(agrees(report), "{report}");
}

#[test]
fn mq_deadline_agrees_on_everything() {
    let report = scheduler_alone("mq-deadline", &traces(&ours(), "mq-deadline")).unwrap();
    assert!(report.all_agree(), "{report}");
    assert!(report.traces.len() >= 5 && report.compared() > 40_000);
    let last = report.to_string().lines().last().unwrap().to_owned();
    let n = report.compared();
    assert_eq!(last, format!("agree {n} of {n}"));
}

#[test]
fn kyber_agrees_on_everything() {
    let report = scheduler_alone("kyber", &traces(&ours(), "kyber")).unwrap();
    assert!(report.all_agree(), "{report}");
    let depths = report.totals().into_iter().find(|t| t.kind == "depth");
    assert!(depths.is_some_and(|t| t.compared > 0) && report.compared() > 10_000);
}

/// Every call of a scheduler in our kernel module is answered here as it was there.
#[test]
fn the_module_s_schedulers_agree_on_everything() {
    for scheduler in ["mq-deadline", "kyber"] {
        let trace = ours().join(format!("../module-traces/{scheduler}.trace.gz"));
        let report = scheduler_alone(scheduler, &[&trace]).unwrap();
        assert!(report.all_agree(), "{report}");
        assert!(report.compared() > 3_000, "{report}");
    }
}

/// Another answer than ours is a difference, and so is a request that the module told wrongly, and
/// a call that does not fit.
#[test]
fn a_changed_call_of_the_module_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let from = ours().join("../module-traces");
    let copy = folder.path().join("mq-deadline.trace");
    fs::copy(from.join("mq-deadline.json"), copy.with_extension("json")).unwrap();
    let text = read_text(&from.join("mq-deadline.trace.gz")).unwrap();
    let changes = [
        ("dispatch", "answer=", "answer=9", "choice"),
        ("insert", "sectors=", "sectors=9", "request"),
        ("finish", "rq=", "rq=9", "call"),
    ];
    for (hook, field, changed, kind) in changes {
        let hook = format!("blklab_call: {hook} ");
        let at = text.find(&hook).unwrap();
        let at = at + text[at..].find(&format!(" {field}")).unwrap() + 1;
        let text = format!("{}{changed}{}", &text[..at], &text[at + field.len()..]);
        fs::write(&copy, text).unwrap();
        let report = scheduler_alone("mq-deadline", &[&copy]).unwrap();
        let tally = report
            .totals()
            .into_iter()
            .find(|t| t.kind == kind)
            .unwrap();
        assert!(tally.agreed < tally.compared, "{hook}: {report}");
    }
}

/// bfq does, but for what hangs on a jiffy that is not recorded.
fn assert_bfq(report: &Report) {
    assert!(report.percent() >= 99.9, "{report}");
    for tally in report.totals() {
        let raising = tally.kind == "raising";
        assert!(tally.agreed == tally.compared || raising, "{report}");
    }
}

#[test]
fn bfq_agrees_on_queues_requests_and_budgets() {
    let report = scheduler_alone("bfq", &traces(&ours(), "bfq")).unwrap();
    assert_bfq(&report);
    let kinds: Vec<_> = report.totals().iter().map(|t| t.kind).collect();
    for kind in ["choice", "none", "queue", "budget", "service", "raising"] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
    assert!(report.compared() > 40_000);
}

#[test]
fn the_whole_layer_agrees_without_a_scheduler() {
    let report = whole("none", &traces(&ours(), "none")).unwrap();
    assert_whole(&report);
    assert!(report.traces.len() >= 4 && report.compared() > 30_000);
}

#[test]
fn the_whole_layer_agrees_with_mq_deadline() {
    let report = whole("mq-deadline", &traces(&ours(), "mq-deadline")).unwrap();
    assert_whole(&report);
    assert!(report.compared() > 60_000);
}

#[test]
fn the_whole_layer_agrees_with_kyber() {
    let report = whole("kyber", &traces(&ours(), "kyber")).unwrap();
    assert_whole(&report);
    assert!(report.compared() > 20_000);
}

/// Nearly all requests take as long as the kernel's, where the drive takes as long; the
/// verdict stays the last line.
#[test]
fn the_whole_layer_counts_latencies() {
    for scheduler in ["none", "mq-deadline", "kyber"] {
        let report = whole(scheduler, &traces(&ours(), scheduler)).unwrap();
        let latency = report.latency().unwrap();
        assert!(latency.compared > 1_000, "{latency}");
        assert!(latency.agreed * 1000 >= latency.compared * 995, "{latency}");
        let text = report.to_string();
        let mut lines = text.lines().rev();
        let (n, m) = (report.agreed(), report.compared());
        assert_eq!(lines.next(), Some(format!("agree {n} of {m}").as_str()));
        let (n, m) = (latency.agreed, latency.compared);
        let expected = format!("latency within 10 %: {n} of {m}");
        assert_eq!(lines.next(), Some(expected.as_str()));
    }
    let alone = scheduler_alone("kyber", &traces(&ours(), "kyber")).unwrap();
    assert!(alone.latency().is_none() && !alone.to_string().contains("latency within"));
}

/// Our traces of bfq whose names have one of these in them.
fn bfq_named(names: &[&str]) -> Vec<PathBuf> {
    let mut found = traces(&ours(), "bfq");
    found.retain(|path| {
        let path = path.to_string_lossy();
        names.iter().any(|name| path.contains(name))
    });
    found
}

/// Groups, many processes that start, and a disk: everything is the same, what
/// waits for a tag included.
#[test]
fn the_whole_layer_agrees_with_bfq() {
    let report = whole("bfq", &bfq_named(&["g_nested", "r_burst14", "r_seq2"])).unwrap();
    assert!(report.all_agree(), "{report}");
    assert!(report.compared() > 25_000);
}

/// A disk whose idle slices are long, and a flash drive: nearly all is the same, also where
/// interrupts come between a task's waking, its run of the queue and its search for a tag.
#[test]
fn the_whole_layer_agrees_with_bfq_where_tasks_are_interrupted() {
    let idle = whole("bfq", &bfq_named(&["r_idle20"])).unwrap();
    assert!(idle.percent() >= 99.9, "{idle}");
    assert!(idle.compared() > 9_000);
    assert_whole(&whole("bfq", &bfq_named(&["w5_", "w7_"])).unwrap());
}

/// Tasks exit, which no probe tells, and sleep in a driver that copies; bios have many parts.
#[test]
fn the_whole_layer_agrees_with_bfq_below_a_file_system() {
    assert_whole(&whole("bfq", &bfq_named(&["w9_"])).unwrap());
}

/// Two CPUs, each with a hardware queue of its own: calls of the scheduler overlap.
#[test]
fn the_whole_layer_agrees_with_several_hardware_queues() {
    for scheduler in ["none", "mq-deadline"] {
        let mut found = traces(&ours(), "multi-queue");
        let of_it = format!("/{scheduler}_");
        found.retain(|path| path.to_string_lossy().contains(&of_it));
        let report = whole(scheduler, &found).unwrap();
        assert_whole(&report);
        assert!(report.percent() >= 99.8, "{report}");
        assert!(report.compared() > 4_000);
        // CPUs that stand still for each other are most of what is not the same.
        let is_told = |path: &PathBuf| !path.to_string_lossy().contains("/mq-deadline_randrw");
        found.retain(is_told);
        let report = whole(scheduler, &found).unwrap();
        assert!(report.percent() >= 99.9, "{report}");
    }
}

/// Which bios `io.max` holds back, and when and in which order those go on.
#[test]
fn the_whole_layer_agrees_with_io_max() {
    let report = whole("none", &traces(&ours(), "io.max")).unwrap();
    assert!(report.all_agree(), "{report}");
    let of = |report: &Report, kind: &str| {
        let found = report.totals().into_iter().find(|t| t.kind == kind);
        found.map_or(0, |tally| tally.compared)
    };
    assert_eq!(report.traces.len(), 5);
    assert!(of(&report, "throttle") == 3020 && of(&report, "release") > 900);
}

/// Which writes wait for an earlier one of their zone, when they go on, and what becomes one
/// request with them.
#[test]
fn the_whole_layer_agrees_with_zones() {
    let runs = [
        ("none", "z_none"),
        ("mq-deadline", "z_two_writers"),
        ("mq-deadline", "z_reset"),
        ("mq-deadline", "z_full"),
    ];
    for (scheduler, name) in runs {
        let mut found = traces(&ours(), "zoned");
        found.retain(|path| path.to_string_lossy().contains(name));
        let report = whole(scheduler, &found).unwrap();
        let waits = report.totals().into_iter().find(|t| t.kind == "zone plug");
        assert!(waits.is_some_and(|t| t.compared > 100 && t.agreed == t.compared));
        assert!(report.percent() >= 99.9, "{report}");
        assert!(report.compared() > 2_700);
    }
}

/// Who waits for what it costs, and what each period of the cost model finds.
#[test]
fn the_whole_layer_agrees_with_io_cost() {
    let report = whole("none", &traces(&ours(), "io.cost")).unwrap();
    let of = |kind: &str| {
        let found = report.totals().into_iter().find(|t| t.kind == kind);
        found.map_or(0, |tally| tally.compared)
    };
    assert!(of("cost rate") == 17 && of("request") >= 1600);
    assert_whole(&report);
    assert!(report.percent() >= 98.0, "{report}");
}

#[test]
fn every_trace_there_is_agrees() {
    let Some(directory) = std::env::var_os("BLKLAB_KERNEL_TRACES").map(PathBuf::from) else {
        blklab_judges::not_possible("BLKLAB_KERNEL_TRACES names no directory of kernel traces");
        return;
    };
    let none = traces(&directory, "none");
    let deadline = traces(&directory, "mq-deadline");
    assert!(!none.is_empty() && !deadline.is_empty(), "no traces there");
    let report = scheduler_alone("mq-deadline", &deadline).unwrap();
    assert!(report.all_agree(), "{report}");
    assert_whole(&whole("mq-deadline", &deadline).unwrap());
    assert_whole(&whole("none", &none).unwrap());
    let kyber = traces(&directory, "kyber");
    if !kyber.is_empty() {
        let report = scheduler_alone("kyber", &kyber).unwrap();
        assert!(report.all_agree(), "{report}");
    }
    let bfq = traces(&directory, "bfq");
    if !bfq.is_empty() {
        assert_bfq(&scheduler_alone("bfq", &bfq).unwrap());
    }
}

/// A private directory with one trace, its description changed.
struct Changed {
    directory: PathBuf,
    trace: PathBuf,
}

impl Changed {
    fn new(name: &str, run: &str, from: &str, to: &str) -> Changed {
        let directory =
            std::env::temp_dir().join(format!("blklab-conform-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let source = ours().join(format!("{run}.trace.gz"));
        let trace = directory.join(source.file_name().unwrap());
        fs::copy(&source, &trace).unwrap();
        let json = fs::read_to_string(ours().join(format!("{run}.json"))).unwrap();
        assert!(json.contains(from), "{run} has no {from}");
        let described = trace.to_string_lossy().replace(".trace.gz", ".json");
        fs::write(described, json.replace(from, to)).unwrap();
        Changed { directory, trace }
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn a_wrong_scheduler_is_found_out() {
    for (name, from, to) in [
        (
            "batch",
            "\"iosched/fifo_batch\": \"16\"",
            "\"iosched/fifo_batch\": \"15\"",
        ),
        (
            "starved",
            "\"iosched/writes_starved\": \"2\"",
            "\"iosched/writes_starved\": \"3\"",
        ),
        (
            "aging",
            "\"iosched/prio_aging_expire\": \"100\"",
            "\"iosched/prio_aging_expire\": \"10000\"",
        ),
    ] {
        let changed = Changed::new(name, "mq-deadline/v_prio_flat_aging100_d4", from, to);
        let traces = [&changed.trace];
        let alone = scheduler_alone("mq-deadline", &traces).unwrap();
        assert!(!alone.all_agree(), "{name}: {alone}");
        assert!(!alone.traces[0].differences.is_empty());
        let whole = whole("mq-deadline", &traces).unwrap();
        assert!(!agrees(&whole), "{name}: {whole}");
    }
}

#[test]
fn a_wrong_kyber_or_bfq_is_found_out() {
    for (scheduler, name, from, to) in [
        ("kyber", "read_lat_nsec", "2000000", "50000000"),
        ("bfq", "low_latency", "1", "0"),
        ("bfq", "slice_idle_us", "8000", "0"),
        ("bfq", "back_seek_penalty", "2", "9"),
    ] {
        let setting = |value: &str| format!("\"iosched/{name}\": \"{value}\"");
        let run = format!("{scheduler}/w9_ext4_d4");
        let changed = Changed::new(name, &run, &setting(from), &setting(to));
        let report = scheduler_alone(scheduler, &[&changed.trace]).unwrap();
        assert!(!report.all_agree(), "{name}: {report}");
    }
}

#[test]
fn a_wrong_queue_is_found_out() {
    // The trace's drive takes four commands at once.
    let changed = Changed::new(
        "depth",
        "none/w5_seqread_randwrite_d4",
        "\"nr_tags=4\"",
        "\"nr_tags=5\"",
    );
    let json = changed
        .trace
        .to_string_lossy()
        .replace(".trace.gz", ".json");
    let text = fs::read_to_string(&json).unwrap();
    fs::write(
        &json,
        text.replace("\"nr_requests\": \"4\"", "\"nr_requests\": \"5\""),
    )
    .unwrap();
    let report = whole("none", &[&changed.trace]).unwrap();
    assert!(!agrees(&report), "{report}");
}

#[test]
fn no_merging_is_found_out() {
    let changed = Changed::new(
        "nomerges",
        "none/w6_seqwrite_merge_d4",
        "\"nomerges\": \"0\"",
        "\"nomerges\": \"2\"",
    );
    let report = whole("none", &[&changed.trace]).unwrap();
    assert!(!agrees(&report), "{report}");
}

#[test]
fn wrong_zones_are_found_out() {
    for (name, from, to) in [
        (
            "zoned",
            "\"zoned\": \"host-managed\"",
            "\"zoned\": \"none\"",
        ),
        (
            "zones",
            "\"zone_nr_conv\": \"0\"",
            "\"zone_nr_conv\": \"9\"",
        ),
    ] {
        let changed = Changed::new(name, "zoned/z_none_d4", from, to);
        let report = whole("none", &[&changed.trace]).unwrap();
        assert!(!agrees(&report), "{name}: {report}");
    }
}

/// The lines of a lone I/O of fio's, from its bio to its end.
fn lone_io(at_ms: u32, rwbs: &str, sector: u64, sectors: u32) -> String {
    let fio = format!("fio-9 [000] ..... 8.{at_ms:03}");
    let bio = format!("253,0 {rwbs} {sector} + {sectors}");
    let bytes = sectors * 512;
    let rq = format!("253,0 {rwbs} {bytes} () {sector} + {sectors} be,0,4");
    format!(
        "{fio}001000: block_bio_queue: {bio} [fio]\n\
         {fio}002000: zw_plug: (f <- g) bio=0x1 sector={sector} opf=0x1 held=0 jif=1\n\
         {fio}003000: block_getrq: {bio} [fio]\n\
         {fio}004000: block_plug: [fio]\n\
         {fio}005000: block_unplug: [fio] 1\n\
         {fio}006000: block_rq_issue: {rq} [fio]\n\
         <idle>-0 [000] d.h1. 8.{at_ms:03}900000: block_rq_complete: 253,0 {rwbs} () \
         {sector} + {sectors} be,0,4 [0]\n"
    )
}

/// After its reset a zone is written from its start again.
#[test]
fn a_zone_s_reset_is_known_by_its_length() {
    let setting = "\"zoned\": \"host-managed\"";
    let changed = Changed::new("reset", "zoned/z_none_d4", setting, setting);
    let trace = changed.directory.join("z_none_d4.trace");
    let ios = [("WS", 8), ("NS", 0), ("WS", 8)];
    let lines = (1..).zip(ios);
    let lines = lines.map(|(at_ms, (rwbs, sectors))| lone_io(at_ms, rwbs, 16384, sectors));
    fs::write(&trace, lines.collect::<String>()).unwrap();
    let report = whole("none", &[&trace]).unwrap();
    assert!(report.all_agree() && report.compared() == 12, "{report}");
}

#[test]
fn a_trace_without_description_says_what_was_assumed() {
    let changed = Changed::new(
        "bare",
        "mq-deadline/v_trim_d4",
        "mq-deadline",
        "mq-deadline",
    );
    fs::remove_file(
        changed
            .trace
            .to_string_lossy()
            .replace(".trace.gz", ".json"),
    )
    .unwrap();
    let report = scheduler_alone("mq-deadline", &[&changed.trace]).unwrap();
    assert!(
        report.traces[0].notes[0].contains("no description"),
        "{report}"
    );
}

#[test]
fn mistakes_are_messages() {
    let message = |mode, scheduler: &str, path: &str| {
        let error = run(mode, scheduler, &[ours().join(path)]).unwrap_err();
        error.to_string()
    };
    let trim = "mq-deadline/v_trim_d4.trace.gz";
    let unknown = message(Mode::SchedulerAlone, "elevator", trim);
    let expected = ["found \"elevator\", expected ", "mq-deadline, ", "cfq, "];
    assert!(
        expected.iter().all(|part| unknown.contains(part)),
        "{unknown}"
    );
    let other = message(Mode::SchedulerAlone, "cfq", trim);
    assert!(
        other.contains("recorded with scheduler \"mq-deadline\""),
        "{other}"
    );
    let unknown = message(Mode::Whole, "cfq", trim);
    assert!(
        unknown.contains("expected none, mq-deadline, kyber, bfq"),
        "{unknown}"
    );
    let other = message(Mode::Whole, "none", trim);
    assert!(
        other.contains("recorded with scheduler \"mq-deadline\", expected \"none\""),
        "{other}"
    );
    let missing = message(Mode::Whole, "none", "none/missing.trace.gz");
    assert!(missing.contains("missing.trace.gz"), "{missing}");
    let no_traces: [PathBuf; 0] = [];
    assert!(matches!(
        run(Mode::Whole, "none", &no_traces),
        Err(ConformError::NoTraces)
    ));
    // `none` is never asked.
    let changed = Changed::new(
        "nothing",
        "none/w3_randrw50_d4",
        "\"scheduler\": \"none\"",
        "\"scheduler\": \"mq-deadline\"",
    );
    let nothing = run(
        Mode::SchedulerAlone,
        "mq-deadline",
        std::slice::from_ref(&changed.trace),
    );
    assert!(matches!(nothing, Err(ConformError::Nothing { .. })));
}
