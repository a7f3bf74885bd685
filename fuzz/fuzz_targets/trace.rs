//! Every trace reader on any bytes: an error or records, never a panic. What
//! is read as a record can be counted in bytes; what is read as an event can
//! be written.
#![no_main]

use std::io::Cursor;

use blklab_workload::trace::tracefs::{self, RunInfo};
use blklab_workload::trace::{FORMATS, Format, Reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for format in [None].into_iter().chain(FORMATS.iter().copied().map(Some)) {
        replay(bytes, format);
    }
    events(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = RunInfo::parse(text, "fuzz");
    }
});

fn replay(bytes: &[u8], format: Option<&'static Format>) {
    let Ok(mut reader) = Reader::new(Cursor::new(bytes.to_vec()), "fuzz", format) else {
        return;
    };
    let mut before_ns = 0;
    for record in reader.by_ref() {
        let Ok(record) = record else { break };
        assert!(record.at_ns >= before_ns, "time goes back");
        before_ns = record.at_ns;
        if record.sectors > 0 {
            (record.sector + record.sectors).bytes();
        }
    }
    let _ = reader.notes();
}

fn events(bytes: &[u8]) {
    let Ok(mut reader) = tracefs::Reader::new(Cursor::new(bytes.to_vec()), "fuzz") else {
        return;
    };
    while let Ok(Some(event)) = reader.next_event() {
        let line = event.to_string();
        if !matches!(event.kind, tracefs::EventKind::Other(_)) {
            assert!(tracefs::parse_line(&line).is_ok(), "not read back: {line}");
        }
    }
}
