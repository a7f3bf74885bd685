//! Tests with pages written by Linux 6.18 (fio on a loop device under mq-deadline, two CPUs),
//! compared with the kernel's own text of the same events in `recorded/trace.txt`.

use super::decode::{Decoder, Kind, RequestEvent};
use super::format::{EventFormat, PageFormat};
use super::page::Page;
use super::session::Sink;
use super::split::Splitter;
use super::text::TextWriter;

const PAGES: [&[u8]; 2] = [
    include_bytes!("recorded/cpu0.page"),
    include_bytes!("recorded/cpu1.page"),
];

const KINDS: [Kind; 5] = [
    Kind::Queue,
    Kind::Start,
    Kind::Insert,
    Kind::Issue,
    Kind::Complete,
];

fn events() -> Vec<RequestEvent> {
    let page_format = PageFormat::parse(include_str!("recorded/header_page.txt")).unwrap();
    let mut decoder = Decoder::default();
    let formats = include_str!("recorded/formats.txt").split("\n\nname:");
    let formats: Vec<String> = formats
        .map(|text| format!("name:{}", text.trim_start_matches("name:")))
        .collect();
    assert_eq!(formats.len(), KINDS.len());
    for (kind, text) in KINDS.into_iter().zip(&formats) {
        let format = EventFormat::parse(text).unwrap();
        assert_eq!(format.name, kind.name());
        decoder.add(kind, &format).unwrap();
    }
    let mut events = Vec::new();
    for (cpu, bytes) in (0..).zip(PAGES) {
        let mut page = Page::new(bytes, &page_format).unwrap();
        assert_eq!(page.lost(), 0);
        while let Some(record) = page.next_record().unwrap() {
            events.push(decoder.decode(&record, cpu).unwrap());
        }
    }
    events.sort_by_key(|event| event.at_ns);
    events
}

/// Pid, CPU, microseconds and everything after the time. The task's name and flags are not decoded.
/// The kernel rounds to microseconds.
fn fields(line: &str) -> (String, String, u64, String) {
    let (head, rest) = line.split_once(" [").unwrap();
    let pid = head.trim_end().rsplit('-').next().unwrap().to_string();
    let (cpu, rest) = rest.split_once(']').unwrap();
    let mut words = rest.split_whitespace();
    let time = words.nth(1).unwrap().trim_end_matches(':');
    let (seconds, fraction) = time.split_once('.').unwrap();
    let ns: u64 = format!("{fraction:0<9}").parse().unwrap();
    let us = (seconds.parse::<u64>().unwrap() * 1_000_000_000 + ns + 500) / 1000;
    let what = words.collect::<Vec<_>>().join(" ");
    (pid, cpu.to_string(), us, what)
}

#[test]
fn the_kernels_own_text_says_the_same() {
    let events = events();
    let mut writer = TextWriter::new(Vec::new(), "memory").unwrap();
    events.iter().for_each(|event| writer.event(event).unwrap());
    let ours = String::from_utf8(writer.finish().unwrap()).unwrap();
    let ours: Vec<_> = ours
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(fields)
        .collect();
    let theirs: Vec<_> = include_str!("recorded/trace.txt")
        .lines()
        .map(fields)
        .collect();
    assert_eq!(theirs.len(), 45);
    assert_eq!(ours, theirs);
}

#[test]
fn every_request_is_split() {
    let mut splitter = Splitter::default();
    events().iter().for_each(|event| splitter.follow(event));
    let stats = splitter.finish();
    assert_eq!((stats.unmatched, stats.lost_events), (0, 0));
    let count: u64 = stats.kinds.iter().map(|kind| kind.queued_ns.count()).sum();
    assert_eq!(count, 9);
    for kind in &stats.kinds {
        assert_eq!((kind.up_to_bytes, kind.process.as_str()), (4096, "fio"));
        let (queued, whole) = (kind.queued_ns.summary(), kind.whole_ns.summary());
        assert!(queued.min_ns > 0 && whole.min_ns > queued.min_ns);
    }
}

/// A page that is truncated or changed anywhere gives an error or other events, but no panic.
#[test]
fn damage_anywhere_is_survived() {
    let format = PageFormat::parse(include_str!("recorded/header_page.txt")).unwrap();
    let read_all = |bytes: &[u8]| {
        if let Ok(mut page) = Page::new(bytes, &format) {
            while let Ok(Some(_)) = page.next_record() {}
        }
    };
    for at in 0..PAGES[0].len() {
        read_all(&PAGES[0][..at]);
        for value in [0, 0x1d, 0x1e, 0x7f, 0xff] {
            let mut bytes = PAGES[0].to_vec();
            bytes[at] = value;
            read_all(&bytes);
        }
    }
}
