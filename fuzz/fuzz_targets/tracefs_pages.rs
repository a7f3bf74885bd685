//! Pages of tracefs's ring buffer, formats of its events, and what is made of
//! both: an error or events, in the order of time what the splitter makes of
//! them, never a panic. A page is damaged where its kernel or its reader is, so
//! any byte may be wrong.
//!
//! The first byte says how many bytes of format text follow in units of 16;
//! where that is none, the formats are a kernel's.
#![no_main]

use blklab_host::tracefs::{Decoder, EventFormat, Kind, Page, PageFormat, RequestEvent, Splitter};
use libfuzzer_sys::fuzz_target;

const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

/// The fields of a request's event, as Linux 6.18 has them.
const FIELDS: &str = "format:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
    \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
    \tfield:unsigned short ioprio;\toffset:32;\tsize:2;\tsigned:0;\n\
    \tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n\
    \tfield:char comm[16];\toffset:44;\tsize:16;\tsigned:0;\n";

fuzz_target!(|data: &[u8]| {
    let Some((&units, rest)) = data.split_first() else {
        return;
    };
    let (text, pages) = rest.split_at(rest.len().min(usize::from(units) * 16));
    let text = String::from_utf8_lossy(text);
    let kernels = PageFormat::parse(HEADER_PAGE).expect("a kernel's");
    let format = PageFormat::parse(&text).unwrap_or(kernels);
    let mut decoder = Decoder::default();
    for (number, (kind, name, _)) in Kind::RECORDED.into_iter().enumerate() {
        let named = format!("name: {name}\nID: {number}\n{FIELDS}");
        let named = EventFormat::parse(&named).expect("a kernel's");
        let other = EventFormat::parse(&text);
        let format = other.ok().filter(|_| number == 0).unwrap_or(named);
        // A format without what is needed is refused.
        let _ = decoder.add(kind, &format);
    }
    let mut events = Vec::new();
    for bytes in pages.chunks(format.page_bytes.max(1)) {
        read(bytes, &format, &decoder, &mut events);
    }
    events.sort_by_key(|event| event.at_ns);
    let mut splitter = Splitter::default();
    for event in &events {
        splitter.follow(event);
    }
    let _ = splitter.finish();
});

fn read(bytes: &[u8], format: &PageFormat, decoder: &Decoder, events: &mut Vec<RequestEvent>) {
    let Ok(mut page) = Page::new(bytes, format) else {
        return;
    };
    let mut records = 0;
    while let Ok(Some(record)) = page.next_record() {
        records += 1;
        assert!(records <= bytes.len(), "more records than bytes");
        assert!(record.bytes.len() <= bytes.len());
        events.extend(decoder.decode(&record, 0));
    }
}
