//! The readers of lists of calls and of strace's recordings on any text: an error, or a
//! list that reads the same when it was written.
#![no_main]

use blklab_workload::calls::{CallList, RecordedOptions, parse_strace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(list) = CallList::parse("fuzz.calls", text) {
        reads_the_same(&list);
    }
    let source = std::io::Cursor::new(text.to_owned());
    if let Ok(recorded) = parse_strace(source, "fuzz", &RecordedOptions::default())
        && !recorded.list.programs.is_empty()
    {
        reads_the_same(&recorded.list);
    }
});

fn reads_the_same(list: &CallList) {
    let text = list.to_string();
    let again = CallList::parse("again.calls", &text).expect("a list that was written");
    assert_eq!(again.to_string(), text);
}
