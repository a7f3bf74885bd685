//! "Did you mean ...?": the known name closest to what somebody typed.

/// The name among `known` that `typed` most likely meant, if any is close
/// enough to be worth saying.
///
/// Close enough is fio's own rule: at most half of the letters differ. Where
/// two names are equally close the first wins, so the answer does not depend
/// on anything but the order of `known`.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase();
    let limit = typed.chars().count().div_ceil(2);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&typed, name), name))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= limit)
        .map(|(_, name)| name)
}

/// The end of a message on an unknown name: `; did you mean NAME?`, or nothing
/// where no known name is close.
pub fn hint<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(typed, known) {
        Some(near) => format!("; did you mean {near}?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::nearest;

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
        assert_eq!(nearest("read", []), None);
    }
}
