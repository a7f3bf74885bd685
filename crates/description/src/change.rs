//! Changes one value in a description's text, and keeps the line numbers and comments of
//! the rest.

use alloc::format;
use alloc::string::{String, ToString};
use core::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::assumed;

/// The value that removes a key.
pub const UNSET: &str = "unset";

/// Returns the text of a description with another value of a key, which is named with
/// its table, such as `gc.policy`. A value that is not TOML is quoted as a word;
/// [`UNSET`] removes the key. A changed value no longer counts as assumed.
///
/// # Errors
/// If the text is not TOML, or the key cannot be set by a line of its own.
pub fn with_value(text: &str, key: &str, value: &str) -> Result<String, String> {
    let text = without(text, assumed::TABLE, key)?;
    let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
    if value == UNSET {
        return without(&text, table, name);
    }
    let value = match DeTable::parse(&format!("x = {value}")) {
        Ok(table) if table.get_ref().len() == 1 => value.to_string(),
        _ => format!("{value:?}"),
    };
    let root = parse(&text)?;
    if let Some(entry) = find(root.get_ref(), table, name) {
        let Range { start, end } = entry.value;
        return Ok(format!("{}{value}{}", &text[..start], &text[end..]));
    }
    let line = format!("{name} = {value}\n");
    if table.is_empty() {
        return Ok(line + &text);
    }
    let header = format!("[{table}]");
    let mut lines = text.split_inclusive('\n');
    let is_header = |line: &&str| line.split('#').next().unwrap_or_default().trim() == header;
    let before: usize = (lines.by_ref())
        .take_while(|line| !is_header(line))
        .map(str::len)
        .sum();
    if before < text.len() {
        let end = text[before..]
            .find('\n')
            .map_or(text.len(), |n| before + n + 1);
        let (head, tail) = text.split_at(end);
        return Ok(format!("{head}{line}{tail}"));
    }
    match table_of(root.get_ref(), table).is_some() {
        true => Err(format!("{key}: no line of its own, so set all of {table}")),
        false => Ok(format!("{text}\n{header}\n{line}")),
    }
}

/// The places of a key's name and value.
struct KeyRange {
    name: Range<usize>,
    value: Range<usize>,
}

fn parse(text: &str) -> Result<toml::Spanned<DeTable<'_>>, String> {
    DeTable::parse(text).map_err(|error| error.message().to_string())
}

fn table_of<'t>(root: &'t DeTable<'t>, table: &str) -> Option<&'t DeTable<'t>> {
    let mut names = table.split('.').filter(|name| !name.is_empty());
    names.try_fold(root, |table, name| match table.get(name)?.get_ref() {
        DeValue::Table(inner) => Some(inner),
        _ => None,
    })
}

fn find(root: &DeTable<'_>, table: &str, name: &str) -> Option<KeyRange> {
    let (name, value) = table_of(root, table)?.get_key_value(name)?;
    Some(KeyRange {
        name: name.span(),
        value: value.span(),
    })
}

/// Returns the text without the lines of a key.
fn without(text: &str, table: &str, name: &str) -> Result<String, String> {
    let root = parse(text)?;
    let Some(entry) = find(root.get_ref(), table, name) else {
        return Ok(text.to_string());
    };
    let start = text[..entry.name.start]
        .rfind('\n')
        .map_or(0, |end| end + 1);
    if !text[start..entry.name.start].trim().is_empty() {
        return Err(format!(
            "{table}.{name}: no line of its own, so set all of {table}"
        ));
    }
    let rest = &text[entry.value.end..];
    let end = rest
        .find('\n')
        .map_or(text.len(), |n| entry.value.end + n + 1);
    Ok(format!("{}{}", &text[..start], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "state = \"aged\"\naged = { occupancy = 1.0 }\n\n[gc] # room\n\
                        policy = \"greedy\" # as most\nsteps = [\n 1,\n 2, # two\n]\n\n\
                        [assumed]\n\"gc.policy\" = [\"fifo\"]\n";

    fn changed(key: &str, value: &str) -> String {
        with_value(TEXT, key, value).expect(key)
    }

    #[test]
    fn a_value_is_put_in_place_of_another_which_is_not_assumed_any_more() {
        let text = changed("gc.policy", "fifo");
        assert!(text.contains("policy = \"fifo\" # as most\n"), "{text}");
        assert!(text.ends_with("[assumed]\n"), "{text}");
        assert!(changed("aged.occupancy", "0.5").contains("{ occupancy = 0.5 }"));
        assert!(changed("gc.steps", "[3]").contains("\nsteps = [3]\n\n[assumed]"));
    }

    #[test]
    fn a_key_that_is_not_there_is_added_to_its_table() {
        assert!(changed("gc.pace_kb", "64").contains("[gc] # room\npace_kb = 64\npolicy"));
        assert!(changed("nvme.burst", "4").ends_with("\n[nvme]\nburst = 4\n"));
        assert!(changed("model", "ssd").starts_with("model = \"ssd\"\nstate"));
        assert!(with_value(TEXT, "aged.hot_share", "0.2").is_err());
    }

    #[test]
    fn a_key_is_left_out_with_all_its_lines() {
        assert!(!changed("gc.policy", UNSET).contains("policy"));
        assert!(changed("gc.steps", UNSET).contains("as most\n\n[assumed]"));
        assert_eq!(changed("gc.pace_kb", UNSET), TEXT);
        assert!(with_value(TEXT, "aged.occupancy", UNSET).is_err());
        assert!(with_value("a = = 1", "a", "2").is_err());
    }

    #[test]
    fn no_key_or_value_makes_it_panic() {
        for key in [
            "",
            ".",
            "..",
            "gc",
            "gc.",
            ".gc",
            "a.b.c",
            "gc.policy.x",
            "assumed.gc",
        ] {
            for value in ["", "\"", "1, 2", "[", "\n[x]", "unset", "é"] {
                let _ = with_value(TEXT, key, value);
            }
        }
    }
}
