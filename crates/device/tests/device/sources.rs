//! Every value of a drive that comes with the program says where it is from.

use blklab_device::registry;

/// What a drive is, not how it is.
const KINDS: [&str; 2] = ["description", "model"];

/// The keys of a description without a comment, neither on their line nor on the
/// one before.
fn without_source(text: &str) -> Vec<String> {
    let (mut missing, mut table, mut commented) = (Vec::new(), "", false);
    // Within a value of several lines.
    let mut depth = 0;
    for line in text.lines() {
        let (code, comment) = split(line);
        let key = code.split_once('=').map(|(key, _)| key.trim());
        match key.filter(|_| depth == 0) {
            // Ends of what is assumed: the table itself says that nobody measured them.
            Some(_) if table == "[assumed]" => {}
            Some(key) if !KINDS.contains(&key) && comment.is_empty() && !commented => {
                missing.push(format!("{table}{key}"));
            }
            None if code.starts_with('[') && depth == 0 => table = code.trim(),
            _ => {}
        }
        if key.is_some() || depth > 0 {
            depth += code.matches('[').count();
            depth -= code.matches(']').count();
        }
        commented = code.trim().is_empty() && comment.len() > 1;
    }
    missing
}

/// A line without its comment, and the comment.
fn split(line: &str) -> (&str, &str) {
    let mut quoted = false;
    let hash = line.char_indices().find(|(_, letter)| {
        quoted ^= *letter == '"';
        *letter == '#' && !quoted
    });
    line.split_at(hash.map_or(line.len(), |(place, _)| place))
}

#[test]
fn every_value_has_a_source() {
    for name in registry::names() {
        let text = registry::text(name).expect("listed");
        let missing = without_source(text);
        assert!(
            missing.is_empty(),
            "{name}.toml does not say where these are from: {missing:?}"
        );
    }
}

#[test]
fn a_value_without_a_source_is_found() {
    let text = "\
description = \"a # is no comment\"
# The next has one.
queue_depth = 3
interface = \"nvme\"

[flash]
read_us = [
  1, # of a part
]
erase_us = 5 # data sheet
";
    assert_eq!(without_source(text), ["interface", "[flash]read_us"]);
}
