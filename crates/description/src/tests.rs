use super::*;

#[derive(
    Clone, Copy, Debug, PartialEq, strum::Display, strum::EnumMessage, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
enum Cell {
    /// One bit.
    Slc,
    /// Two bits.
    Mlc,
}

keys! {
    /// The flash of a test.
    #[derive(Debug, PartialEq)]
    struct Flash(table) {
        /// Time of a read.
        read_ns: Vec<u64> as "read_us" =
            one_or_each(2, number(0.001..=100.0), "one a bit of the cell")
                .map(|us| us.into_iter().map(nanos).collect());
        /// Bits of a cell.
        cell: Cell = word();
        /// Whether it copies.
        copies: bool = flag().or(false);
        /// A remark.
        note: Option<String> =
            parsed("a note", |note| Some(note.to_string())).optional();
        /// Commands at once.
        depth: u64 as "depth_kb" = whole(1..=8).or(4);
        /// Time of an erase.
        erase_ns: u64 as "erase_us" = number(0.001..=1e6).map(nanos);
    }
}

fn flash(root: &Table<'_>) -> Result<Flash, ReadError> {
    let flash = Flash::read(&root.table("flash")?)?;
    root.finish()?;
    Ok(flash)
}

const GOOD: &str = "[flash]\nread_us = [5, 6]\ncell = \"slc\"\nerase_us = 9\n";

/// Returns the message for a text.
fn error(text: &str) -> String {
    read("d.toml", text, flash).expect_err(text).to_string()
}

/// Returns the message for the good text with one change.
fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    error(&GOOD.replace(from, to))
}

#[test]
fn what_is_right_is_read() {
    let flash = read("d.toml", GOOD, flash).expect("legal");
    assert_eq!((flash.read_ns, flash.cell), (vec![5000, 6000], Cell::Slc));
    assert_eq!((flash.depth, flash.note, flash.copies), (4, None, false));
}

#[test]
fn a_number_with_a_unit_behind_it_names_key_and_range() {
    assert_eq!(
        changed("erase_us = 9", "erase_us = 50us # slow"),
        "d.toml:4: `flash.erase_us`: found 50us, legal is a number from 0.001 to 1000000"
    );
    assert_eq!(
        changed("[5, 6]", "50 us"),
        "d.toml:2: `flash.read_us`: found 50 us, legal is a number from 0.001 to 100, or an array \
         of 2 such, one a bit of the cell"
    );
    assert_eq!(
        changed("erase_us = 9", "erase_us = 9\ndepth_kb = 4k"),
        "d.toml:5: `flash.depth_kb`: found 4k, legal is a whole number from 1 to 8"
    );
}

#[test]
fn a_word_without_quotes_names_key_and_words() {
    assert_eq!(
        changed("\"slc\"", "slc"),
        "d.toml:3: `flash.cell`: found slc, legal is one of \"slc\", \"mlc\""
    );
    assert_eq!(
        changed("erase_us = 9", "erase_us = 9\nnote = hello"),
        "d.toml:5: `flash.note`: found hello, legal is a note"
    );
    assert_eq!(
        changed("erase_us = 9", "erase_us = 9\ncopies = True"),
        "d.toml:5: `flash.copies`: found True (invalid boolean), legal is true or false"
    );
}

#[test]
fn a_value_that_ends_too_early_is_shown_with_the_rest_of_its_line() {
    assert_eq!(
        changed("erase_us = 9", "erase_us = 1,5"),
        "d.toml:4: `flash.erase_us`: found 1,5 (unexpected key or value), legal is a number from \
         0.001 to 1000000"
    );
    assert_eq!(
        changed("erase_us = 9", "erase_us ="),
        "d.toml:4: `flash.erase_us`: found nothing, legal is a number from 0.001 to 1000000"
    );
    assert_eq!(
        changed("erase_us = 9", "erase_us = 0900"),
        "d.toml:4: `flash.erase_us`: found 0900 (unexpected leading zero), legal is a number from \
         0.001 to 1000000"
    );
}

#[test]
fn a_key_twice_names_both_lines() {
    assert_eq!(
        changed("erase_us = 9", "erase_us = 9\nread_us = 7 # again"),
        "d.toml:5: `flash.read_us`: found `read_us = 7` a second time; legal is once (the first is \
         in line 2)"
    );
    let twice = format!("{GOOD}[flash]\nnote = \"x\"\n");
    assert_eq!(
        error(&twice),
        "d.toml:5: `flash`: found `[flash]` a second time; legal is once (the first is in line 1)"
    );
}

#[test]
fn what_is_no_key_and_value_at_all_says_what_is() {
    let said = changed("erase_us = 9", "erase_us 9");
    let start = "d.toml:4: `flash.erase_us`: found `erase_us 9`: key with no value; ";
    assert!(said.starts_with(start), "{said}");
    assert!(said.contains("legal is `key = value`"), "{said}");
    let said = error("[flash\nread_us = 5\n");
    assert!(said.starts_with("d.toml:1: "), "{said}");
    assert!(said.contains("unclosed table"), "{said}");
    let said = changed("cell =", "cell\r =");
    assert!(said.starts_with("d.toml:3: `flash.cell`: "), "{said:?}");
    assert_eq!(error("").lines().count(), 1);
}

#[test]
fn another_unit_names_the_right_one_of_a_key_that_may_be_left_out_too() {
    assert_eq!(
        changed("erase_us = 9", "erase_ms = 9"),
        "d.toml:4: `flash.erase_us`: found `erase_ms`: the unit is missing or another; write \
         `erase_us = ...` (a number from 0.001 to 1000000)"
    );
    assert_eq!(
        changed("erase_us = 9", "erase_us = 9\ndepth = 4"),
        "d.toml:5: `flash.depth_kb`: found `depth`: the unit is missing or another; write \
         `depth_kb = ...` (a whole number from 1 to 8)"
    );
    assert_eq!(
        changed("erase_us = 9", "erase_us = 9\nntoe = \"x\""),
        "d.toml:5: `flash.note`: found `ntoe`; write `note = ...` (a note)"
    );
    assert_eq!(
        changed("erase_us = 9", "erase_us = 9\nnothing = 4"),
        "d.toml:5: `flash.nothing`: no such key here; legal are cell, copies, depth_kb, erase_us, \
         note, read_us; did you mean note?"
    );
}

#[test]
fn a_long_value_is_shown_in_part() {
    let long = "x".repeat(500);
    let said = changed("\"slc\"", &format!("\"{long}\""));
    assert!(
        said.len() < 200 && said.contains("xxx..., legal is"),
        "{said}"
    );
}

/// Breaks a good text at every place with characters that often break one.
#[test]
fn any_text_gives_one_line_with_its_place() {
    for at in 0..=GOOD.len() {
        for with in [
            "", "\"", "[", "]", "=", "#", "\n", "é", ",", "'", "{", "\u{0}", "\r",
        ] {
            let text = format!("{}{with}{}", &GOOD[..at], &GOOD[at..]);
            if let Err(error) = read("d.toml", &text, flash) {
                let said = error.to_string();
                assert!(
                    said.starts_with("d.toml:") && error.line <= text.lines().count().max(1) + 1
                );
                assert_eq!(said.lines().count(), 1, "{text:?}: {said:?}");
            }
        }
    }
}

#[test]
fn the_reference_says_what_was_declared() {
    let (_, reference) = read_with_reference("d.toml", GOOD, flash).expect("legal");
    let page = reference.markdown();
    let lines = [
        "## `[flash]`",
        "The flash of a test.",
        "| `read_us` | µs | 0.001 to 100, or an array of 2 such, one a bit of the cell | required | Time of a read. |",
        "| `cell` |  | `slc`, `mlc` | required | Bits of a cell. `slc`: One bit. `mlc`: Two bits. |",
        "| `copies` |  | true or false | false | Whether it copies. |",
        "| `note` |  | a note | none | A remark. |",
        "| `depth_kb` | KiB | 1 to 8 | 4 | Commands at once. |",
    ];
    for line in lines {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    assert_eq!(
        reference.key("flash.cell").map(|key| key.unit()),
        Some(None)
    );
    assert_eq!(reference.key("flash.no"), None);
}

#[test]
fn a_typo_finds_its_name() {
    let known = ["read", "write", "randread", "randwrite"];
    assert_eq!(nearest("randred", known), Some("randread"));
    assert_eq!(nearest("RANDRAED", known), Some("randread"));
}

#[test]
fn nonsense_finds_nothing() {
    assert_eq!(nearest("xyzzyplugh", ["read", "write"]), None);
    assert_eq!(nearest("", ["read"]), None);
    assert_eq!(
        hint("mx100", ["nvme", "mx100-256"]),
        "; did you mean mx100-256?"
    );
    assert_eq!(hint("a", ["anything-longer"]), "");
    assert_eq!(nearest("read", []), None);
}

/// Reads a description with a table of assumed values.
fn flash_and_assumed(root: &Table<'_>) -> Result<(Flash, Vec<Assumed>), ReadError> {
    let assumed = root.assumed()?;
    Ok((flash(root)?, assumed))
}

#[test]
fn assumed_values_have_other_ends() {
    let text = format!(
        "{GOOD}[assumed]\n\"flash.read_us\" = [[1, 2], [8, 9]]\n\"flash.cell\" = [\"mlc\"]\n"
    );
    let (_, assumed) = read("d.toml", &text, flash_and_assumed).expect("legal");
    let [read_us, cell] = &assumed[..] else {
        panic!("{assumed:?}");
    };
    assert_eq!(
        (read_us.key.as_str(), read_us.value.as_str()),
        ("flash.read_us", "[5, 6]")
    );
    assert_eq!(read_us.ends, ["[1, 2]", "[8, 9]"]);
    let other = cell.replaced(&text, &cell.ends[0]);
    let (flash, _) = read("d.toml", &other, flash_and_assumed).expect("legal");
    assert_eq!((flash.cell, flash.read_ns), (Cell::Mlc, vec![5000, 6000]));
}

#[test]
fn mistakes_in_what_is_assumed_have_their_line() {
    for (line, expected) in [
        (
            "\"flash.erase_us\" = [1, 1e9]",
            "d.toml:6: `assumed.\"flash.erase_us\"`: found 1e9, legal is a number from 0.001 to 1000000",
        ),
        (
            "\"flash.erase_u\" = [1]",
            "d.toml:6: `assumed.\"flash.erase_u\"`: no such key in this file; legal is one with \
             its table, as in \"host.queue_depth\"; did you mean flash.erase_us?",
        ),
        (
            "\"flash\" = [1]",
            "d.toml:6: `assumed.\"flash\"`: no such key",
        ),
        (
            "\"flash.erase_us\" = 5",
            "d.toml:6: `assumed.\"flash.erase_us\"`: found 5, legal is a list of other values",
        ),
        (
            "\"flash.erase_us\" = 50us",
            "d.toml:6: `assumed.\"flash.erase_us\"`: found 50us, legal is a list",
        ),
        (
            "\"flash.erase_us\" = []",
            "d.toml:6: `assumed.\"flash.erase_us\"`: found [], legal",
        ),
        (
            "\"flash.erase_us\" = [10, 1e3]",
            "d.toml:6: `assumed.\"flash.erase_us\"`: found [10, 1e3], legal is a list whose least \
             is at most 9, the value itself, and whose largest is at least that",
        ),
        (
            "\"flash.erase_us\" = [20]",
            "d.toml:6: `assumed.\"flash.erase_us\"`: found [20], legal is a list whose least",
        ),
        (
            "\"flash.read_us\" = [[1, 2], [5, 5]]",
            "d.toml:6: `assumed.\"flash.read_us\"`: found [[1, 2], [5, 5]], legal is a list",
        ),
    ] {
        let text = format!("{GOOD}[assumed]\n{line}\n");
        let error = read("d.toml", &text, flash_and_assumed).expect_err(line);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let error = read("d.toml", "assumed = 1\n", flash_and_assumed).expect_err("no table");
    assert_eq!(
        error.to_string(),
        "d.toml:1: `assumed`: found 1, legal is a table, [assumed]"
    );
}
