use blklab_blk::{BioFlags, IoClass, Op, Sector};
use proptest::prelude::*;

use super::*;
use crate::trace::error::Fault;
use crate::trace::rwbs::Rwbs;

fn one(line: &str) -> Event<'_> {
    match parse_line(line) {
        Ok(Line::Event(event)) => event,
        other => panic!("{line}: {other:?}"),
    }
}

fn fault(line: &str) -> Fault {
    parse_line(line).expect_err(line)
}

#[test]
fn header_columns_are_read() {
    let event =
        one("   jbd2/nullb0-8-3637    [002] d.h1.    56.983741079: block_plug: [jbd2/nullb0-8]");
    assert_eq!(event.task, "jbd2/nullb0-8");
    assert_eq!((event.pid, event.cpu, event.irq), (3637, 2, true));
    assert_eq!(event.at_ns, 56_983_741_079);
    assert_eq!(
        event.kind,
        EventKind::Plug {
            comm: "jbd2/nullb0-8"
        }
    );
}

#[test]
fn soft_irq_counts_as_irq_and_need_resched_does_not() {
    assert!(one("<idle>-0 [000] ..s1. 51.252004915: kyber_adjust: 253,0 WRITE 32").irq);
    let event = one("fio-9 [000] .N... 51.252004915: block_plug: [fio]");
    assert!(!event.irq && event.need_resched);
    assert_eq!(event.preempt_depth, 0);
    assert_eq!(
        one("fio-9 [000] d.h3. 51.252004915: block_plug: [fio]").preempt_depth,
        3
    );
}

#[test]
fn microseconds_as_the_kernel_prints_them_are_read() {
    assert_eq!(
        one("fio-9 [000] ..... 1.000002: block_plug: [fio]").at_ns,
        1_000_002_000
    );
}

#[test]
fn options_that_add_or_drop_columns_are_known() {
    let with_tgid = one("  fio-9  (     12) [001] ..... 1.000002: block_plug: [fio]");
    assert_eq!(
        (with_tgid.task, with_tgid.pid, with_tgid.cpu),
        ("fio", 9, 1)
    );
    let without_flags = one("  fio-9  [001]  1.000002: block_plug: [fio]");
    assert_eq!(
        (without_flags.at_ns, without_flags.irq),
        (1_000_002_000, false)
    );
}

#[test]
fn names_with_brackets_and_blanks_do_not_confuse() {
    let event = one(" my [x] job-7-9 [001] ..... 1.000002: block_unplug: [my [x] job-7] 3");
    assert_eq!((event.task, event.pid), ("my [x] job-7", 9));
    assert_eq!(
        event.kind,
        EventKind::Unplug {
            comm: "my [x] job-7",
            requests: 3
        }
    );
}

#[test]
fn requests_have_their_size_and_priority() {
    let event = one(
        "fio-1 [000] ...1. 4.5: block_rq_insert: 253,0 FWFS 8192 () 5562608 + 16 idle,2,7 [fio]",
    );
    let flags = BioFlags::PREFLUSH.with(BioFlags::FUA).with(BioFlags::SYNC);
    let prio = RqPrio {
        class: IoClass::Idle,
        hint: 2,
        level: 7,
    };
    let dev = Dev {
        major: 253,
        minor: 0,
    };
    assert_eq!(
        event.kind,
        EventKind::RqInsert(RqEvent {
            dev,
            rwbs: Rwbs {
                op: Some(Op::Write),
                flags
            },
            bytes: 8192,
            cmd: "",
            sector: Sector(5_562_608),
            sectors: 16,
            prio,
            comm: "fio",
        })
    );
    let older = one("fio-1 [000] ...1. 4.5: block_rq_issue: 8,0 N 36 (12000000) 0 + 0 [fio]");
    let EventKind::RqIssue(rq) = older.kind else {
        panic!("{older:?}")
    };
    assert_eq!((rq.cmd, rq.prio), ("12000000", RqPrio::default()));
}

#[test]
fn a_bare_flush_completes_at_the_last_sector() {
    let event = one(
        "<idle>-0 [000] d.h1. 75.284647339: block_rq_complete: 253,0 FF () 18446744073709551615 + 0 none,0,0 [-5]",
    );
    let EventKind::RqComplete(end) = event.kind else {
        panic!("{event:?}")
    };
    assert_eq!(
        (end.sector, end.sectors, end.error),
        (Sector(u64::MAX), 0, -5)
    );
}

#[test]
fn remaps_splits_and_bio_completions_are_read() {
    let lines = [
        "fio-1 [000] ..... 4.500000000: block_bio_remap: 8,0 WS 5000 + 8 <- (8,1) 2952",
        "fio-1 [000] ..... 4.500000000: block_split: 8,0 R 2048 / 2052 [fio]",
        "fio-1 [000] ..... 4.500000000: block_bio_complete: 8,0 R 2048 + 8 [0]",
        "fio-1 [000] ..... 4.500000000: kyber_throttled: 8,0 READ",
    ];
    for line in lines {
        let event = one(line);
        assert!(!matches!(event.kind, EventKind::Other(_)));
        let written = event.to_string();
        assert_eq!(words(&written), words(line));
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn null_answers_have_no_request() {
    let event = one(
        "kworker/0:1H-44 [000] ...1. 38.544255430: dd_disp_ret: (__blk_mq_sched_dispatch_requests+0x368/0x5f0 <- dd_dispatch_request) rq=0x0 last_dir=1 batching=1 starved=0 jif=4294901897",
    );
    let EventKind::DdDispRet(ret) = event.kind else {
        panic!("{event:?}")
    };
    assert_eq!(
        ret,
        DdDispRet {
            picked: None,
            last_dir_is_write: true,
            batching: 1,
            starved: 0,
            jif: 4_294_901_897,
        }
    );
}

#[test]
fn values_are_found_by_name_even_out_of_order() {
    let event =
        one("a-1 [000] ..... 1.5: dd_bmerged: (f+0x4/0x80) rq=0x1f sector=8 len=8192 type=2");
    assert_eq!(
        event.kind,
        EventKind::DdBmerged {
            rq: 0x1f,
            sector: Sector(8),
            len_bytes: 8192,
            side: MergeSide::Back,
        }
    );
    // `sector` must not be found inside `nsector`.
    let missing =
        fault("a-1 [000] ..... 1.5: dd_rqmerged: (f+0x4/0x80) rq=0x1f nsector=8 next=0x2f");
    assert_eq!(missing.field, "sector");
}

#[test]
fn comments_and_unknown_events_are_no_errors() {
    assert_eq!(parse_line("# tracer: nop"), Ok(Line::Skip));
    assert_eq!(parse_line("  "), Ok(Line::Skip));
    assert_eq!(
        parse_line("##### CPU 1 buffer started ####"),
        Ok(Line::Skip)
    );
    assert_eq!(parse_line("CPU:0 [LOST 12 EVENTS]"), Ok(Line::Lost(12)));
    let other = one("a-1 [000] ..... 1.5: sched_switch: prev_comm=a ==> next_comm=b");
    assert_eq!(other.kind, EventKind::Other("sched_switch"));
}

#[test]
fn faults_say_where_what_and_what_would_be_right() {
    let wrong = fault("a-1 [000] ..... 1.5: block_bio_queue: 253,0 WS 5242x2 + 8 [fio]");
    assert_eq!(
        wrong.to_string(),
        "column 52: extent: found \"x2\", expected \" +\"",
    );
    let cases = [
        ("hello", "line"),
        ("a-b [000] ..... 1.5: block_plug: [a]", "line"),
        ("a-1 [000] ..... 1.5: block_plug: a", "comm"),
        ("a-1 [000] ..... 1: block_plug: [a]", "timestamp"),
        (
            "a-1 [000] ..... 99999999999.0: block_plug: [a]",
            "timestamp",
        ),
        ("a-1 [000] ..... 1.0000000001: block_plug: [a]", "timestamp"),
        ("a-1 [000] ..... 1.5: block_getrq: 8,0 X 1 + 1 [a]", "rwbs"),
        (
            "a-1 [000] ..... 1.5: block_getrq: 8,0 R 99999999999999999999 + 1 [a]",
            "sector",
        ),
        (
            "a-1 [000] ..... 1.5: block_getrq: 8,0 R 1 + 4294967296 [a]",
            "sectors",
        ),
        (
            "a-1 [000] ..... 1.5: block_rq_complete: 8,0 R () 1 + 8 top,0,0 [0]",
            "priority",
        ),
        (
            "a-1 [000] ..... 1.5: dd_fin: (f) rq=0x1 sector=1 pp=12",
            "pp",
        ),
        (
            "a-1 [000] ..... 1.5: dd_bmerged: (f) rq=0x1 sector=1 len=512 type=3",
            "type",
        ),
        (
            "a-1 [000] ..... 1.5: dd_disp_ret: (f) rq=0x0 last_dir=2 batching=1 starved=0 jif=1",
            "last_dir",
        ),
    ];
    for (line, field) in cases {
        assert_eq!(fault(line).field, field, "{line}");
    }
}

#[test]
fn a_reader_counts_lines_and_lost_events() {
    let text =
        "# tracer: nop\nCPU:0 [LOST 3 EVENTS]\na-1 [000] ..... 1.5: block_plug: [a]\r\nb-1\n";
    let mut reader = Reader::new(text.as_bytes(), "t.trace").unwrap();
    assert_eq!(reader.next_event().unwrap().unwrap().task, "a");
    assert_eq!(reader.lost_events(), 3);
    let error = reader.next_event().unwrap_err().to_string();
    assert!(
        error.starts_with("t.trace:4: column 1: line: found \"b-1\", expected"),
        "{error}"
    );
}

const INFO: &str = r#"{"name": "r", "scheduler": "mq-deadline", "more": [1],
    "queue": {"nr_requests": "128", "max_sectors_kb": "127", "max_segments": "128",
        "max_segment_size": "65536", "write_cache": "write back", "fua": "1", "nomerges": "0",
        "discard_granularity": "512", "discard_max_bytes": "4294966784", "max_discard_segments": "1",
        "logical_block_size": "512", "iosched/fifo_batch": "16"},
    "queue_set": {"nr_requests": 128, "iosched/async_depth": "64", "a": 1},
    "hctx_debugfs": ["nr_tags=128", "bits_per_word=32", "map_nr=4", "min_shallow_depth=1",
        "nr_tags=4", "bits_per_word=1", "map_nr=4", "min_shallow_depth=4294967295"]}"#;

#[test]
fn a_description_is_typed() {
    let info = RunInfo::parse(INFO, "r.json").unwrap();
    assert!(info.queue.write_cache && info.queue.fua);
    assert_eq!(info.queue.max_sectors_kb, 127);
    assert_eq!(info.queue.iosched["fifo_batch"], "16");
    let names: Vec<&str> = info
        .queue_set
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["nr_requests", "iosched/async_depth", "a"]);
    let tags = info.driver_tags().unwrap();
    assert_eq!((tags.nr_tags, tags.min_shallow_depth), (4, u32::MAX));
}

#[test]
fn a_wrong_description_names_its_key() {
    let missing = INFO.replace("\"fua\"", "\"fuo\"");
    let error = RunInfo::parse(&missing, "r.json").unwrap_err().to_string();
    assert!(error.starts_with("r.json: queue/fua: missing"), "{error}");
    let odd = INFO.replace("write back", "perhaps");
    let error = RunInfo::parse(&odd, "r.json").unwrap_err().to_string();
    assert!(
        error.contains("found \"perhaps\", expected \"write back\" or"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(mut reader) = Reader::new(std::io::Cursor::new(bytes), "random") {
            while let Ok(Some(_)) = reader.next_event() {}
        }
    }

    /// A good line with one byte changed, cut off, or both, reaches every branch of the parser.
    #[test]
    fn damaged_lines_are_read_without_panic(
        which in 0..SAMPLES.len(), at in any::<prop::sample::Index>(), new in any::<char>(),
        end in any::<prop::sample::Index>(),
    ) {
        let mut chars: Vec<char> = SAMPLES[which].chars().collect();
        let at = at.index(chars.len());
        chars[at] = new;
        chars.truncate(end.index(chars.len()) + 1);
        let line: String = chars.into_iter().collect();
        let _ = parse_line(&line);
    }

    #[test]
    fn written_requests_are_read_back(
        at_ns in any::<u64>(), pid in any::<u32>(), cpu in any::<u32>(), irq in any::<bool>(),
        need_resched in any::<bool>(), preempt_depth in 0..16u8,
        sector in any::<u64>(), sectors in any::<u32>(), bytes in any::<u32>(),
        major in any::<u32>(), minor in any::<u32>(), error in any::<i32>(), level in any::<u32>(),
        comm in "[ -~]{1,15}",
    ) {
        let dev = Dev { major, minor };
        let rwbs = Rwbs { op: Some(Op::Write), flags: BioFlags::FUA.with(BioFlags::SYNC) };
        let prio = RqPrio { class: IoClass::Be, hint: 1, level };
        let sector = Sector(sector);
        let kinds = [
            EventKind::RqIssue(RqEvent { dev, rwbs, bytes, cmd: "", sector, sectors, prio, comm: &comm }),
            EventKind::RqComplete(RqEnd { dev, rwbs, sector, sectors, prio, error }),
            EventKind::GetRq(BioEvent { dev, rwbs, sector, sectors, comm: &comm }),
            EventKind::Unplug { comm: &comm, requests: sectors },
        ];
        for kind in kinds {
            let event = Event { task: "fio", pid, cpu, irq, need_resched, preempt_depth, at_ns, kind };
            let line = event.to_string();
            prop_assert_eq!(parse_line(&line), Ok(Line::Event(event)));
        }
    }
}

const SAMPLES: [&str; 13] = [
    " fio-406 (   9) [000] ..... 4.548125222: block_bio_queue: 253,0 WS 524272 + 8 [fio]",
    " fio-406 [000] ..... 4.548128490: block_unplug: [fio] 1",
    " fio-406 [000] ...1. 4.548130526: block_rq_insert: 253,0 WS 4096 () 524272 + 8 be,0,4 [fio]",
    " fio-409 [000] d.h.. 4.550139981: block_rq_complete: 253,0 WS () 524272 + 8 be,0,4 [0]",
    " fio-409 [000] d.h.. 4.550139981: block_bio_remap: 253,0 WS 524272 + 8 <- (8,1) 9",
    " fio-409 [000] d.h.. 4.550139981: block_split: 253,0 WS 524272 / 524280 [fio]",
    " fio-406 [000] ...1. 4.548135370: dd_disp_ret: (a+0x368/0x5f0 <- b) rq=0xffff8881078eab00 sector=524272 fifo=4294894648 last_dir=1 batching=1 starved=0 jif=4294893398",
    " fio-414 [000] ...1. 4.366403437: bfq_disp_ret: (a+0x368/0x5f0 <- b) rq=0xffff8881078e9000 sector=505944 fifo=4490172455 bfqq=0xffff8881009858c0 bpid=414 service=56 budget=1024 wrc=30 insv=0xffff8881009858c0 queued=15 drv=1 peak=22000 jif=4294893352",
    " fio-2583 [000] ...1. 31.258012459: dd_rqmerged: (f+0x4/0x1a0) rq=0xffff88810bcd6000 sector=72 next=0xffff88810bcd6180 nsector=96",
    " fio-1 [000] ...1. 10.8: dd_bmerged: (f+0x4/0x80) rq=0xffff8881078eb280 sector=524224 len=8192 type=1",
    " fio-144 [000] d..1. 3.149060: blklab_call: dispatch now=3148986814 rq=0 other=0 answer=1 op=0 flags=0x0 sector=0 sectors=0 class=0 level=0 sub=0 cpu=0 hctx=0 start=0 state=fifo=3548986814 reads_in_drive=0",
    " <idle>-0 [000] ..s1. 4.772003489: kyber_latency: 253,0 READ I/O p90 5/4 samples=613",
    "CPU:0 [LOST 12 EVENTS]",
];
