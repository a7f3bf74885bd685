//! Tests reading and writing of traces in all formats.

use std::io::{Cursor, Write};
use std::path::Path;

use blklab_blk::{BioFlags, Op, Sector};
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use blklab_workload::trace::*;

use super::{Scratch, have_fio, text};

fn read(text: &str, format: Option<&'static Format>) -> Result<Vec<TraceRecord>, TraceError> {
    let bytes = Cursor::new(text.to_owned().into_bytes());
    Reader::new(bytes, "t.trace", format)?.collect()
}

fn message(text: &str, format: Option<&'static Format>) -> String {
    read(text, format).expect_err(text).to_string()
}

/// Returns a record without modifiers.
fn record(at_ns: u64, device: u32, op: Op, sector: u64, sectors: u32) -> TraceRecord {
    let flags = BioFlags::NONE;
    TraceRecord {
        at_ns,
        device,
        op,
        sector: Sector(sector),
        sectors,
        pid: 0,
        flags,
    }
}

const DISKSIM: &str = "938513000 4 264719034 16 0\n938828000 3 197570570 32 1\n";

const MSR: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
    128166372003061629,hm,0,Read,383496192,32768,413\n\
    128166372016382155,hm,1,Write,2822144,4096,\n\
    128166372026382155,hm,0,write,512,512\n";

const ALIBABA: &str = "0,R,126703661056,4096,1577808000000046\n\
    1,W,19496058880,77824,1577808000000426\n";

const TENCENT: &str = "1538323200,12910952,128,1,1063\n1538323201,6264,8,0,1063\n";

const SYSTOR17: &str = "Timestamp,Response,IOType,LUN,Offset,Size\n\
    1456095145.133076000,0.000806000,R,0,899056122368,131072\n\
    1456095145.133080000,0.000100000,,0,0,0\n\
    1456095145.133090000,0.001000000,W,4,4096,512\n";

const FIU: &str = "1000 4892 syslogd 904265560 8 W 6 0 531e779dce5eedb3c5cd6c4af1d5c0d5\n\
    51000 77 my 8 proc 12 16 R 8 1 0a 0b\n";

/// The output of blkparse 1.3 for a binary trace made for this test.
const BLKPARSE: &str = "Input file t.blktrace.0 added
  0,0    0        3     0.000000000    77  A   W 5000 + 8 <- (8,17) 2952
  8,16   0        4     0.000000100    77  Q  WS 5000 + 8 [my proc]]
  8,16   0        5     0.000000200    77  G  WS 5000 + 8 [my proc]]
  8,16   0        6     0.000000300    77  P   N [my proc]]
  8,16   0        7     0.000000400    77  I  WS 5000 + 8 [my proc]]
  8,16   0        8     0.000000500    77  U   N [my proc]] 1
  8,16   0        9     0.000000600    77  D  WS 5000 + 8 [my proc]]
  8,16   0       10     0.000000700    77  Q RAM 123456789 + 256 [my proc]]
  8,16   0       11     0.000000800    77  D   R 36 (12 00 00 00 24 00 ..) [my proc]]
  8,16   0       12     0.000001500     0  C  WS 5000 + 8 [0]
  8,16   0       13     0.000002000    77  Q FWS [my proc]]
  8,16   0       14     0.000002100    77  Q  FN [my proc]]
  8,16   0       15     0.000002500    77  Q WFSM 640 + 1 [my proc]]
  8,16   0       16     0.000003000    77  Q   D 8192 + 2048 [my proc]]
  8,16   0       17     0.000003500    77  X   R 2048 / 2052 [my proc]]
  8,16   0       18     0.000004000    77  M  WS 5008 + 8 [my proc]]
  8,16   0        0     0.000004100     0  m   N hello world
  8,16   0       20     1.000004500    77  Q   R 100 + 1 [my proc]]
CPU0 (t):
 Reads Queued:           3,      128KiB\t Writes Queued:           4,     1028KiB

Throughput (R/W): 0KiB/s / 4KiB/s
Events (t): 18 entries
Skips: 0 forward (0 -   0.0%)
";

#[test]
fn disksim_is_read() {
    let expected = [
        record(0, 4, Op::Write, 264_719_034, 16),
        record(315_000, 3, Op::Read, 197_570_570, 32),
    ];
    assert_eq!(read(DISKSIM, None).unwrap(), expected);
}

#[test]
fn msr_is_read() {
    let expected = [
        record(0, 0, Op::Read, 749_016, 64),
        record(1_332_052_600, 1, Op::Write, 5512, 8),
        record(2_332_052_600, 0, Op::Write, 1, 1),
    ];
    assert_eq!(read(MSR, None).unwrap(), expected);
}

#[test]
fn an_iolog_of_fio_is_read() {
    let text = "fio version 3 iolog\n15 /x add\n101 /x open\n105 /x read 61440 4096\n\
        3600 /y write 774145 4096\n3700 /x sync\n4000 /x trim 0 8192\n280290 /x close\n";
    let expected = [
        record(0, 0, Op::Read, 120, 8),
        record(3_495_000, 1, Op::Write, 1512, 9),
        record(3_595_000, 0, Op::Flush, 0, 0),
        record(3_895_000, 0, Op::Discard, 0, 16),
    ];
    assert_eq!(read(text, None).unwrap(), expected);
    let text = "fio version 2 iolog\n/x add\n/x read 0 4096\n/x wait 100 0\n/x read 512 512\n";
    let expected = [
        record(0, 0, Op::Read, 0, 8),
        record(100_000_000, 0, Op::Read, 1, 1),
    ];
    assert_eq!(read(text, None).unwrap(), expected);
    for (text, what) in [
        ("fio version 1 iolog\n", "version"),
        ("fio version 3 iolog\n5 /x wait 3\n", "action"),
        ("fio version 3 iolog\n5 /x read 3 0\n", "size"),
        ("fio version 3 iolog\nx /x read 3 1\n", "time"),
    ] {
        assert!(
            message(text, None).contains(what),
            "{}",
            message(text, None)
        );
    }
}

/// An iolog that fio itself wrote has fio's I/Os.
#[test]
fn what_fio_logs_is_what_fio_does() {
    if !have_fio() {
        return;
    }
    let place = Scratch::new();
    let job = "--name=t --filename=f --size=1m --rw=randrw --bs=4k --number_ios=40 \
        --rate_iops=1000 --write_iolog=log";
    let done = place.fio(&job.split_whitespace().collect::<Vec<_>>());
    assert!(done.status.success(), "{}", text(&done));
    let records: Vec<_> = open(&place.path("log"), None)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(records.len(), 40);
    assert!(records.iter().all(|r| r.sectors == 8 && r.sector.0 < 2048));
    // The job takes 20 ms at 1000 I/Os per second and direction; milliseconds or nanoseconds would
    // be off by a factor of a thousand.
    let last_ns = records[39].at_ns;
    assert!((5_000_000..2_000_000_000).contains(&last_ns), "{last_ns}");
}

#[test]
fn ends_are_handed_out_where_the_trace_has_them() {
    let ends = |text: &str| {
        let bytes = Cursor::new(text.to_owned().into_bytes());
        let mut reader = Reader::new(bytes, "t", None).unwrap().with_ends();
        let has_ends = reader.has_ends().unwrap();
        let mut items = Vec::new();
        while let Some(item) = reader.next_item().unwrap() {
            items.push(match item {
                Item::Arrival(record) => ('a', record.sector.0),
                Item::Ended(end) => ('e', end.sector.0),
            });
        }
        (has_ends, items)
    };
    let (has_ends, items) = ends(BLKPARSE);
    assert!(has_ends);
    assert_eq!(items[..3], [('a', 5000), ('a', 123_456_789), ('e', 5000)]);
    // 413 ticks are far less than the time between the first two.
    let (has_ends, items) = ends(MSR);
    assert!(has_ends);
    assert_eq!(items[..3], [('a', 749_016), ('e', 749_016), ('a', 5512)]);
    assert!(!ends(DISKSIM).0);
}

#[test]
fn blkparse_is_taken_at_its_queue_events() {
    let device = device_number(8, 16).unwrap();
    let (sync, fua) = (BioFlags::SYNC, BioFlags::FUA);
    let with = |at_ns, op, sector, sectors, flags| TraceRecord {
        pid: 77,
        flags,
        ..record(at_ns, device, op, sector, sectors)
    };
    let expected = [
        with(0, Op::Write, 5000, 8, sync),
        with(
            600,
            Op::Read,
            123_456_789,
            256,
            BioFlags::RAHEAD.with(BioFlags::META),
        ),
        with(1900, Op::Flush, 0, 0, sync),
        with(2000, Op::Flush, 0, 0, BioFlags::NONE),
        with(2400, Op::Write, 640, 1, fua.with(sync).with(BioFlags::META)),
        with(2900, Op::Discard, 8192, 2048, BioFlags::NONE),
        with(1_000_004_400, Op::Read, 100, 1, BioFlags::NONE),
    ];
    assert_eq!(read(BLKPARSE, None).unwrap(), expected);
}

#[test]
fn blkparse_is_written_as_blkparse_does() {
    let (flags, sector) = (BioFlags::SYNC, Sector(5000));
    let rwbs = Rwbs {
        op: Some(Op::Write),
        flags,
    };
    let mut context = EventContext {
        major: 8,
        minor: 16,
        cpu: 0,
        sequence: 9,
        at_ns: 600,
        pid: 77,
        process: "my proc]",
    };
    let mut text = String::new();
    blkparse::write_event(&mut text, &context, Action::Issue, rwbs, sector, 8).unwrap();
    (context.sequence, context.at_ns, context.pid) = (12, 1500, 0);
    let complete = Action::Complete(0);
    blkparse::write_event(&mut text, &context, complete, rwbs, sector, 8).unwrap();
    (context.sequence, context.at_ns, context.pid) = (13, 2000, 77);
    let flush = Rwbs {
        op: Some(Op::Write),
        flags: flags.with(BioFlags::PREFLUSH),
    };
    blkparse::write_event(&mut text, &context, Action::Queue, flush, Sector(0), 0).unwrap();
    for line in text.lines() {
        assert!(BLKPARSE.lines().any(|judge| judge == line), "{line}");
    }
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn blkparse_without_queue_events_is_taken_at_its_issues() {
    let text: String = BLKPARSE
        .lines()
        .filter(|line| !line.contains(" Q "))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut reader = Reader::new(Cursor::new(text.into_bytes()), "t", None).unwrap();
    let records: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].sector, records[0].sectors), (Sector(5000), 8));
    assert_eq!(reader.notes(), ["t: skipped 1 passthrough commands"]);
}

#[test]
fn gzip_is_unpacked_and_damage_is_reported() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(MSR.as_bytes()).unwrap();
    let mut bytes = gzip.finish().unwrap();
    let records = Reader::new(Cursor::new(bytes.clone()), "t.gz", None).unwrap();
    assert_eq!(records.count(), 3);
    bytes.truncate(bytes.len() - 12);
    let error = Reader::new(Cursor::new(bytes), "t.gz", None)
        .err()
        .unwrap()
        .to_string();
    assert!(error.starts_with("t.gz: incomplete"), "{error}");
}

#[test]
fn disorder_within_the_window_is_sorted() {
    let text = "300 0 1 1 1\n100 0 2 1 1\n200 0 3 1 1\n100 0 4 1 1\n";
    let records = read(text, None).unwrap();
    let order: Vec<_> = records
        .iter()
        .map(|record| (record.at_ns, record.sector.0))
        .collect();
    assert_eq!(order, [(0, 2), (0, 4), (100, 3), (200, 1)]);
}

#[test]
fn disorder_beyond_the_window_is_moved_and_noted() {
    let mut text: String = (0..10_000)
        .map(|i| format!("{} 0 {i} 1 1\n", 1000 + i))
        .collect();
    text.push_str("0 0 77777 1 1\n");
    let mut reader = Reader::new(Cursor::new(text.into_bytes()), "t", None).unwrap();
    let records: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(records.len(), 10_001);
    assert!(records.is_sorted_by_key(|record| record.at_ns));
    let late = records
        .iter()
        .find(|record| record.sector == Sector(77_777))
        .unwrap();
    assert!(late.at_ns > 5000);
    assert_eq!(reader.notes().len(), 1);
    assert!(reader.notes()[0].contains("1 records were out of order"));
}

#[test]
fn errors_name_file_line_column_field_and_what_is_right() {
    assert_eq!(
        message("938513000 4 264719034 16 0\n938828000 3 -5 16 0\n", None),
        "t.trace:2: column 13: start sector: found \"-5\", expected a sector number"
    );
    let disksim = [
        (
            "1.5 0 1 1 1",
            "arrival time: found \"1.5\", expected whole nanoseconds",
        ),
        ("1 0 1 0 1", "size: found \"0\", expected more than nothing"),
        (
            "1 0 1 1 2",
            "type: found \"2\", expected 1 (read) or 0 (write)",
        ),
        (
            "1 0 1 1",
            "type: found nothing, expected 1 (read) or 0 (write)",
        ),
        ("1 0 1 1 1 1", "type: found \"1\", expected"),
        ("1 0 18446744073709551616 1 1", "start sector: found"),
        (
            "1 0 36028797018963967 1 1",
            "size: found \"1\", expected an end below 16 EiB",
        ),
        (
            "1 0 0 4294967296 1",
            "size: found \"4294967296\", expected less than 2^32 sectors",
        ),
    ];
    for (line, expected) in disksim {
        let found = message(line, Some(&disksim::FORMAT));
        assert!(found.contains(expected), "{line}: {found}");
    }
    let msr = [
        ("99999999999999999999,hm,0,Read,0,512,1", "Timestamp: found"),
        (
            "184467440737095517,hm,0,Read,0,512,1",
            "before the year 2185",
        ),
        (
            "1,hm,0,Trim,0,512,1",
            "Type: found \"Trim\", expected Read or Write",
        ),
        (
            "1,hm,0,Read,100,512,1",
            "Offset: found \"100\", expected bytes that are a multiple",
        ),
        ("1,hm,0,Read,0,0,1", "Size: found \"0,1\""),
        (
            "1,hm,0,Read,0,512,fast",
            "ResponseTime: found \"fast\", expected a whole number of 100 ns",
        ),
        (
            "1,hm,0,Read,0,512,1,2",
            "after ResponseTime: found \"2\", expected the line's end",
        ),
        (
            "1,hm,0,Read,0,-512,1",
            "Size: found \"-512\", expected a number of bytes",
        ),
        (
            "1,hm,0,Read,0,512,1\n1,web,0,Read,0,512,1",
            "t.trace:2: column 3: Hostname: found",
        ),
        ("1,hm", "Hostname: found \"hm\""),
    ];
    for (line, expected) in msr {
        let found = message(line, Some(&msr::FORMAT));
        assert!(
            found.to_lowercase().contains(&expected.to_lowercase()),
            "{line}: {found}"
        );
    }
    let blkparse = [
        (
            "8,x 0 1 0.5 7 Q R 1 + 1 [a]",
            "device: found \"x\", expected major,minor",
        ),
        ("4096,0 0 1 0.5 7 Q R 1 + 1 [a]", "device: found \"4096,0\""),
        ("8,0 0 1 5 7 Q R 1 + 1 [a]", "time: found"),
        ("8,0 0 1 0.5 7", "action: found nothing"),
        ("8,0 0 1 0.5 7 Q Y 1 + 1 [a]", "rwbs: found \"Y\""),
        (
            "8,0 0 1 0.5 7 Q R 1 - 1 [a]",
            "extent: found \"-\", expected \"+\"",
        ),
        (
            "8,0 0 1 0.5 7 Q R 1 + 0 [a]",
            "size: found \"0\", expected more than nothing",
        ),
    ];
    for (line, expected) in blkparse {
        let found = message(line, Some(&blkparse::FORMAT));
        assert!(found.contains(expected), "{line}: {found}");
    }
}

#[test]
fn the_clouds_traces_are_read() {
    let first = record(0, 0, Op::Read, 126703661056 / 512, 8);
    let second = record(380_000, 1, Op::Write, 19496058880 / 512, 152);
    assert_eq!(read(ALIBABA, None).unwrap(), [first, second]);
    let header = "device_id,opcode,offset,length,timestamp\n";
    assert_eq!(
        read(&format!("{header}{ALIBABA}"), None).unwrap(),
        [first, second]
    );
    let first = record(0, 1063, Op::Write, 12910952, 128);
    let second = record(1_000_000_000, 1063, Op::Read, 6264, 8);
    assert_eq!(read(TENCENT, None).unwrap(), [first, second]);
}

#[test]
fn a_desktops_trace_tells_ends_and_what_it_leaves_out() {
    let bytes = Cursor::new(SYSTOR17.as_bytes());
    let mut reader = Reader::new(bytes, "lun", None).unwrap().with_ends();
    assert_eq!(reader.format(), &systor17::FORMAT);
    assert!(reader.has_ends().unwrap());
    let items: Vec<Item> = std::iter::from_fn(|| reader.next_item().unwrap()).collect();
    let first = record(0, 0, Op::Read, 899056122368 / 512, 256);
    let second = record(14_000, 4, Op::Write, 8, 1);
    assert_eq!(items[0], Item::Arrival(first));
    assert_eq!(items[1], Item::Arrival(second));
    let ended = |item: &Item| match item {
        Item::Ended(end) => end.device,
        Item::Arrival(_) => panic!("{item:?}"),
    };
    assert_eq!(items[2..].iter().map(ended).collect::<Vec<_>>(), [0, 4]);
    assert_eq!(reader.notes(), ["lun: skipped 1 I/Os without a type"]);
}

#[test]
fn fius_processes_may_have_blanks_in_their_names() {
    let device = |major, minor| device_number(major, minor).unwrap();
    let first = record(0, device(6, 0), Op::Write, 904265560, 8);
    let second = record(50_000, device(8, 1), Op::Read, 12, 16);
    let expected = [
        TraceRecord { pid: 4892, ..first },
        TraceRecord { pid: 77, ..second },
    ];
    assert_eq!(read(FIU, None).unwrap(), expected);
}

#[test]
fn a_wrong_cell_of_a_published_trace_is_named() {
    let mistakes: [(&'static Format, &str, &str); 8] = [
        (
            &alibaba::FORMAT,
            "0,X,0,512,0",
            "column 3: opcode: found \"X\", expected R or W",
        ),
        (
            &alibaba::FORMAT,
            "0,R,100,512,0",
            "column 5: offset: found \"100\", expected bytes that",
        ),
        (
            &alibaba::FORMAT,
            "0,R,0,512",
            "column 10: timestamp: found nothing",
        ),
        (&tencent::FORMAT, "1,2,0,1,3", "column 5: size: found"),
        (
            &tencent::FORMAT,
            "99999999999999,2,1,1,3",
            "column 1: Timestamp: found",
        ),
        (
            &systor17::FORMAT,
            "1.5x,0.1,R,0,0,512",
            "column 1: Timestamp: found \"1.5x\"",
        ),
        (
            &fiu::FORMAT,
            "0 1 sh 5 8 Q 6 0 00",
            "column 12: operation: found \"Q\", expected R or W",
        ),
        (
            &fiu::FORMAT,
            "0 1 sh 5 8 R 5000 0 00",
            "column 14: major: found \"5000\"",
        ),
    ];
    for (format, line, expected) in mistakes {
        let found = message(line, Some(format));
        assert!(found.contains(expected), "{line}: {found}");
    }
}

#[test]
fn an_unknown_format_lists_the_known_ones() {
    let found = message("\nhello there\n", None);
    assert!(
        found.starts_with("t.trace: unknown trace format (first line: \"hello there\")"),
        "{found}"
    );
    for format in FORMATS {
        let listed = format!("{} ({})", format.name, format.line);
        assert!(found.contains(&listed), "{found}");
    }
    assert!(message("", None).contains("(first line: nothing)"));
}

#[test]
fn a_missing_file_is_named() {
    let error = open(Path::new("no/such.trace"), None)
        .err()
        .unwrap()
        .to_string();
    assert!(error.starts_with("no/such.trace: "), "{error}");
}

#[test]
fn a_line_without_end_is_not_read_into_memory() {
    let found = message(&"1".repeat(3 << 20), Some(&disksim::FORMAT));
    assert!(found.contains("expected at most 65536 bytes"), "{found}");
}

#[test]
fn the_samples_of_the_repository_are_read() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/traces");
    let expected = [("tpcc-small.trace", 16), ("wsrch-small.trace", 4)];
    for (name, devices) in expected {
        let reader = open(&samples.join(name), None).unwrap();
        assert_eq!(reader.format(), &disksim::FORMAT);
        let records: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(records.len(), 200);
        assert!(
            records.iter().all(|record| record.device < devices),
            "{name}"
        );
    }
}

/// Draws records in order of time from 0 on that every format can hold.
fn records() -> impl Strategy<Value = Vec<TraceRecord>> {
    let one = (
        0..1_u64 << 40,
        0..100_u32,
        any::<bool>(),
        0..1_u64 << 50,
        1..=u32::MAX,
    );
    proptest::collection::vec(one, 1..50).prop_map(|parts| {
        let mut at_ns = 0;
        let mut first = true;
        let steps = parts
            .into_iter()
            .map(|(step, device, is_read, sector, sectors)| {
                // MSR's clock ticks every 100 ns.
                at_ns += if std::mem::take(&mut first) {
                    0
                } else {
                    step / 100 * 100
                };
                let op = if is_read { Op::Read } else { Op::Write };
                record(at_ns, device, op, sector, sectors)
            });
        steps.collect()
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        for format in [None].into_iter().chain(FORMATS.iter().copied().map(Some)) {
            if let Ok(reader) = Reader::new(Cursor::new(bytes.clone()), "random", format) {
                for record in reader {
                    let Ok(record) = record else { break };
                    prop_assert!(record.sectors > 0 || record.op == Op::Flush);
                }
            }
        }
    }

    #[test]
    fn damaged_traces_are_read_without_panic(
        which in 0..7_usize, at in any::<prop::sample::Index>(), new in any::<char>(),
        drop in 0..3_usize,
    ) {
        let mut chars: Vec<char> = [DISKSIM, MSR, BLKPARSE, ALIBABA, TENCENT, SYSTOR17, FIU][which].chars().collect();
        let at = at.index(chars.len());
        chars[at] = new;
        chars.drain(at..(at + drop).min(chars.len()));
        let text: String = chars.into_iter().collect();
        for record in read(&text, None).unwrap_or_default() {
            let _bytes = (record.sector + record.sectors).bytes();
        }
    }

    #[test]
    fn what_a_format_writes_it_reads_back(records in records()) {
        for (format, write) in FORMATS.iter().filter_map(|f| Some((*f, f.write?))) {
            // Every format can hold 512 MiB.
            let sectors = |record: &TraceRecord| record.sectors.min(1 << 20);
            let records: Vec<TraceRecord> = records
                .iter()
                .map(|record| TraceRecord { sectors: sectors(record), ..*record })
                .collect();
            let mut text = String::new();
            for record in &records {
                prop_assert!(write(&mut text, record).unwrap());
            }
            prop_assert_eq!(read(&text, None).unwrap(), records, "{}", format);
        }
    }

    #[test]
    fn written_blkparse_is_read_back(records in records(), pid in any::<u32>(), bits in 0..32_u16) {
        let mut text = String::new();
        let mut expected = Vec::new();
        let flags = BioFlags(bits);
        for (sequence, record) in (1..).zip(&records) {
            let record = TraceRecord { pid, flags, device: device_number(8, record.device).unwrap(), ..*record };
            let context = EventContext {
                major: 8, minor: record.device & 0xf_ffff, cpu: 1, sequence, at_ns: record.at_ns, pid, process: "a b]",
            };
            let rwbs = Rwbs { op: Some(record.op), flags };
            let (sector, sectors) = (record.sector, record.sectors);
            blkparse::write_event(&mut text, &context, Action::Queue, rwbs, sector, sectors).unwrap();
            blkparse::write_event(&mut text, &context, Action::Complete(0), rwbs, sector, sectors).unwrap();
            expected.push(record);
        }
        prop_assert_eq!(read(&text, None).unwrap(), expected);
    }
}
