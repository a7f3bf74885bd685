//! Tests lists of calls: a written list reads back as the same list, a mistake is reported in one
//! line, and strace's recordings become lists.

use std::path::Path;

use blklab_workload::calls::{
    CALLS, CallList, CallType, ProgramStep, RecordedOptions, parse_strace, read_strace,
};
use proptest::prelude::*;

const COPY: &str = "\
# Copies a file.
file /in 1M
directory \"/a folder\"

[cp]
open from /in read
open to \"/a folder/out\" write create truncate
repeat 8
  read from 128K
  think 20us
  write to 128K
end
fsync to
stat /none = ENOENT
wait cp/helper

[cp/helper]
sleep 1500us
pread from 4K 512K
";

#[test]
fn a_list_reads_as_it_was_written() {
    let list = CallList::parse("t.calls", COPY).expect("a list");
    assert_eq!(list.to_string(), COPY);
    assert_eq!(list.help, "Copies a file.");
    assert_eq!(list.prepared.len(), 2);
    assert!(
        matches!(&list.programs[0].steps[2], ProgramStep::Repeat { times: 8, steps } if steps.len() == 3)
    );
}

#[test]
fn mistakes_name_line_call_and_what_is_right() {
    let head = "[p]\nopen f /x read\n";
    for (text, message) in [
        (
            "pread f 4k\n",
            "t.calls:3: pread: at: found nothing, right is a number of bytes such as 4096, 64K or 1M (pread FILE BYTES AT)",
        ),
        (
            "pread f 4x 0\n",
            "t.calls:3: pread: bytes: found \"4x\", right is a number",
        ),
        ("raed f 4k\n", "t.calls:3: raed: there is no such call"),
        (
            "open g x read\n",
            "t.calls:3: open: path: found \"x\", right is a path that begins with /",
        ),
        (
            "open g /x create\n",
            "t.calls:3: open: how: found nothing, right is read, write or read write",
        ),
        ("read g 4k\n", "t.calls:3: read: p opens no file g"),
        (
            "sleep 5\n",
            "t.calls:3: sleep: time: found \"5\", right is a time with its unit",
        ),
        (
            "stat /x = ENONE\n",
            "t.calls:3: stat: =: found \"ENONE\", right is an error's name",
        ),
        (
            "sync now\n",
            "t.calls:3: sync: behind the arguments: found \"now\", right is nothing more",
        ),
        ("repeat 3\nsync\n", "t.calls:3: repeat: it has no end"),
        ("end\n", "t.calls:3: end: there is no repeat before it"),
        ("wait q\n", "t.calls:3: wait: there is no [q]"),
        ("wait p\n", "t.calls:3: wait: p is this program itself"),
        ("unlink \"/x\n", "t.calls:3: a text that begins with"),
        ("[p]\n", "t.calls:3: [p]: it is in line 1 already"),
        (
            "[p q]\n",
            "t.calls:3: right is [process] or [process/thread]",
        ),
        (
            "sync\n[q]\n\n[r]\nsync\n",
            "t.calls:4: [q]: it has no calls; right is one at least",
        ),
        ("sync\n[q]\n", "t.calls:4: [q]: it has no calls"),
        (
            "start q\n[q]\nstart p\n",
            "t.calls:3: start: p starts q, but nothing starts p first",
        ),
    ] {
        let error = CallList::parse("t.calls", &format!("{head}{text}")).expect_err(text);
        let shown = error.to_string();
        assert!(shown.starts_with(message), "{shown}\n{message}");
        assert_eq!(shown.lines().count(), 1);
    }
    let awaited = format!("{head}start q\n[q]\n");
    CallList::parse("t.calls", &awaited).expect("a program that another starts may do nothing");
    let early = CallList::parse("t.calls", "sync\n").expect_err("no process");
    assert!(
        early.to_string().contains("before the first [process]"),
        "{early}"
    );
    let none = CallList::parse("t.calls", "# nothing\n").expect_err("no process");
    assert_eq!(
        none.to_string(),
        "t.calls: there is no [process] with calls"
    );
}

/// Draws a line with a call and arguments for its types.
fn line(call: &'static CallType) -> BoxedStrategy<String> {
    let mut line: BoxedStrategy<String> = Just(call.name.to_string()).boxed();
    for (name, _) in call.arguments {
        let argument = match *name {
            "file" => "[a-c]",
            "path" | "from" | "to" | "new" => {
                "/[a-z]{1,5}|\"/[a-z #=\u{e4}]{1,6}\"|\"/\\\\[1-3][0-7]{2}[1-7]\""
            }
            "target" => "[.][.]/[a-z]{1,3}|\"a b\"",
            "bytes" | "at" => "0|[1-9][0-9]{0,5}[kMG]?",
            "how" if call.name == "prepare" => "(link|hardlink|drain async)?",
            // A thread of notification must be a program that nothing else starts or awaits.
            "how" if call.name == "sigevent" => "none|signal",
            "how" => {
                "(read|write|read write)( create| create exclusive)?( truncate)?( append| direct)?"
            }
            "advice" if call.name == "madvise" => "normal|random|sequential",
            "advice" => "normal|random|sequential|willneed|dontneed|noreuse",
            "time" => "[1-9][0-9]{0,3}(ns|us|ms|s)|0[.][1-9]ms",
            "program" => "q|p/t",
            "request" if call.name == "prepare" => "[m-o]",
            "request" => "[kl]",
            "requests" if call.name == "io_uring_enter" => "k|l m|n o",
            "requests" => "[kl]|l k",
            "operation" => {
                "nop|timeout 5ms|link_timeout 1us|cancel k|pread a 4k 0|fsync b|open a /q read|unlink /x"
            }
            "ends" | "signals" => "[0-9]{1,2}",
            "mode" => "wait|nowait|signal",
            "what" if call.name == "drop_caches" => "[1-3]",
            "what" => "(wait_before )?write( wait_after)?",
            other => panic!("{other}: an argument that this test does not know"),
        };
        line = (line, argument)
            .prop_map(|(line, argument)| format!("{line} {argument}"))
            .boxed();
    }
    line
}

fn any_list() -> impl Strategy<Value = String> {
    let call = prop::sample::select(CALLS.iter().collect::<Vec<_>>()).prop_flat_map(line);
    let error = prop_oneof![9 => Just(""), 1 => Just(" = ENOENT # a comment")];
    let line = (call, error).prop_map(|(call, error)| match call.starts_with("prepare") {
        true => format!("{call}\n"),
        false => format!("{call}{error}\n"),
    });
    prop::collection::vec((line, 0..4_u8), 1..20).prop_map(|lines| {
        let mut text = "file /x 4k\n[p]\nopen a /x read\nopen b /x write\nopen c /x read\n"
            .to_string()
            + "prepare k pread a 4k 0\nprepare l pwrite b 4k 0\n"
            + "prepare m nop\nprepare n nop\nprepare o nop\n";
        for (line, loops) in lines {
            let times = usize::from(loops.saturating_sub(2));
            text += &"repeat 3\n".repeat(times);
            text += &line;
            text += &"end\n".repeat(times);
        }
        text + "[q]\nsync\n[p/t]\nsync\n"
    })
}

/// Returns the list as if all of it were in one line.
fn without_lines(mut list: CallList) -> CallList {
    fn clear(steps: &mut [ProgramStep]) {
        for step in steps {
            match step {
                ProgramStep::Call(made) => made.line = 0,
                ProgramStep::Repeat { steps, .. } => clear(steps),
            }
        }
    }
    list.prepared
        .iter_mut()
        .for_each(|prepared| prepared.line = 0);
    list.programs
        .iter_mut()
        .for_each(|program| clear(&mut program.steps));
    list
}

proptest! {
    #[test]
    fn printing_and_parsing_gives_the_same_list(text in any_list()) {
        let list = CallList::parse("t", &text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        let again = CallList::parse("t", &list.to_string()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(without_lines(again), without_lines(list));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\[p\\]\n)?([a-z\"\\\\=#/0-9\\[\\] ]{0,20}\n){0,4}") {
        let _ = CallList::parse("t", &text);
    }

    #[test]
    fn no_recording_makes_the_reader_panic(
        lines in prop::collection::vec("[0-9]{1,2} 1[.][0-9]{1,6} (open|read|dup2|close|clone|wait4|<[.][.][.] read resumed>)[(]?[0-4\", xO_|<>{}]{0,12}([)] = [0-4]|<unfinished [.][.][.]>)", 0..8)
    ) {
        let source = std::io::Cursor::new(lines.join("\n"));
        let _ = parse_strace(source, "t", &RecordedOptions::default());
    }
}

fn recorded(name: &str) -> (String, Vec<String>) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/strace");
    let options = RecordedOptions {
        under: b"/srv/demo".to_vec(),
        working_folder: b"/srv/demo".to_vec(),
        think: true,
    };
    let recorded = read_strace(&data.join(name), &options).expect("a recording");
    let text = recorded.list.to_string();
    // The result is a list that can be read.
    let again = CallList::parse("t", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(without_lines(again), recorded.list);
    (text, recorded.notes)
}

/// Returns the lines of a program without its times.
fn calls_of(text: &str, number: usize) -> Vec<&str> {
    let section = text.split("\n[").nth(number).expect("a program");
    let is_time = |line: &&str| line.starts_with("think") || line.starts_with("sleep");
    section
        .lines()
        .skip(1)
        .filter(|line| !is_time(line))
        .collect()
}

#[test]
fn a_recording_with_a_thread_and_a_child_becomes_a_list() {
    let (text, notes) = recorded("program.strace");
    assert!(
        text.contains("file /srv/demo/in 64K\n") || text.contains("file /srv/demo/in 196"),
        "{text}"
    );
    let main = calls_of(&text, 1);
    let end = [
        "close fd4",
        "link /srv/demo/dir/log.1 /srv/demo/dir/second",
        "symlink log.1 /srv/demo/dir/newest",
        "unlink /srv/demo/dir/none = ENOENT",
        "rmdir /srv/demo/dir = ENOTEMPTY",
        "syncfs fd3",
    ];
    assert!(main.ends_with(&end), "{text}");
    for call in [
        "posix_fadvise fd3 0 0 random",
        "open fd4 /srv/demo/dir/log read write create append",
        "sync_file_range fd4 0 48 write",
        "ftruncate fd4 16",
        "fallocate fd4 4K 8K",
    ] {
        assert!(main.contains(&call), "{call}\n{text}");
    }
    let thread = calls_of(&text, 2);
    let reads = [
        "pread fd3 4K 0",
        "pread fd3 4K 64K",
        "pread fd3 4K 128K",
        "pread fd3 4K 192K",
    ];
    assert_eq!(thread, reads, "{text}");
    let child = calls_of(&text, 3);
    let renames = [
        "open fd3 /srv/demo/in read",
        "lseek fd3 0",
        "read fd3 64K",
        "rename /srv/demo/dir/log /srv/demo/dir/log.1",
    ];
    assert_eq!(child, renames, "{text}");
    assert!(
        notes.iter().any(|note| note.contains("without -T")),
        "{notes:?}"
    );
}

#[test]
fn a_recorded_shell_script_becomes_a_list() {
    let (text, _) = recorded("shell.strace");
    assert!(text.contains("file /srv/demo/in 300000\n"), "{text}");
    let shell = calls_of(&text, 1);
    let is_wait = |call: &&&str| call.starts_with("wait ");
    assert_eq!(shell.iter().filter(is_wait).count(), 5, "{text}");
    let copy = calls_of(&text, 2);
    assert!(
        copy.iter()
            .any(|call| call.starts_with("open") && call.contains("/srv/demo/copy write create")),
        "{text}"
    );
    let dd = calls_of(&text, 3);
    let is_write = |call: &&&str| call.starts_with("write ");
    assert_eq!(dd.iter().filter(is_write).count(), 5, "{text}");
    assert!(
        text.contains("rename /srv/demo/out /srv/demo/moved"),
        "{text}"
    );
    assert!(
        text.contains("open fd0 /srv/demo/none read = ENOENT"),
        "{text}"
    );
}

#[test]
fn a_child_uses_a_file_where_it_is_by_then() {
    let recording = "\
1 1.0 openat(AT_FDCWD, \"/d/a\", O_RDWR|O_CREAT, 0644) = 3 <0.1>
1 1.2 openat(AT_FDCWD, \"/d/t\", O_RDWR|O_CREAT, 0644) = 4 <0.1>
1 1.4 rename(\"/d/a\", \"/d/b\") = 0 <0.1>
1 1.6 unlink(\"/d/t\") = 0 <0.1>
1 1.8 rename(\"/d\", \"/e\") = 0 <0.1>
1 2.0 clone(child_stack=NULL, flags=SIGCHLD) = 2 <0.1>
2 2.2 write(3, \"\"..., 100) = 100 <0.1>
2 2.4 write(4, \"\"..., 100) = 100 <0.1>
";
    let options = RecordedOptions {
        think: false,
        ..RecordedOptions::default()
    };
    let recorded = parse_strace(recording.as_bytes(), "t", &options).expect("a recording");
    let text = recorded.list.to_string();
    assert!(
        text.contains("open fd3 /e/b read write\nwrite fd3 100\n"),
        "{text}"
    );
    assert!(!text.contains("write fd4"), "{text}");
    let notes = recorded.notes.join("\n");
    assert!(notes.contains("that the parent had removed"), "{notes}");
}

#[test]
fn a_copy_with_an_offset_leaves_the_position_of_its_file() {
    let recording = "\
1.0 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3 <0.1>
1.2 openat(AT_FDCWD, \"/b\", O_WRONLY|O_CREAT, 0644) = 4 <0.1>
1.4 sendfile(4, 3, [4096] => [4106], 10) = 10 <0.1>
1.6 sendfile(4, 3, NULL, 20) = 20 <0.1>
1.8 copy_file_range(3, NULL, 4, [100] => [130], 30, 0) = 30 <0.1>
2.0 chmod(\"/b\", 0600) = 0 <0.1>
2.2 utimensat(4, NULL, NULL, 0) = 0 <0.1>
2.4 readlink(\"/proc/self/exe\", \"/x\", 4096) = 2 <0.1>
2.6 fgetxattr(4, \"user.a\", NULL, 0) = -1 ENODATA (No data available) <0.1>
";
    let options = RecordedOptions {
        think: false,
        ..RecordedOptions::default()
    };
    let recorded = parse_strace(recording.as_bytes(), "t", &options).expect("a recording");
    let text = recorded.list.to_string();
    let copies = [
        "open fd3 /a read",
        "open fd4 /b write create",
        "pread fd3 10 4K",
        "write fd4 10",
        "read fd3 20",
        "write fd4 20",
        "read fd3 30",
        "pwrite fd4 30 100",
    ];
    assert_eq!(calls_of(&text, 1), copies, "{text}");
    let left_out = [
        "1 times chmod",
        "1 times fgetxattr = ENODATA",
        "1 times utimensat",
    ];
    let expected = left_out.map(|what| format!("{what} is left out"));
    assert_eq!(recorded.notes, expected);
}
