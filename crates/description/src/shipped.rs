//! The text of a description that somebody names.

use std::path::Path;

use crate::nearest::hint;

/// The text of the description called `name`: one of those that come with the
/// program, given as name and text, or else a file. `kind` says in messages what
/// is described.
///
/// # Errors
/// Where there is neither; the message names what comes with the program.
pub fn text_of(
    kind: &str,
    name: &str,
    shipped: &[(&'static str, &'static str)],
) -> Result<String, String> {
    if let Some((_, text)) = shipped.iter().find(|(known, _)| *known == name) {
        return Ok(text.to_string());
    }
    std::fs::read_to_string(name).map_err(|error| {
        if Path::new(name).exists() {
            return format!("{name}: cannot read: {error}");
        }
        let known: Vec<&str> = shipped.iter().map(|(known, _)| *known).collect();
        let hint = hint(name, known.iter().copied());
        let list = known.join(", ");
        format!("{name}: no such file, and no {kind} of that name; there are {list}{hint}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIPPED: [(&str, &str); 2] = [("fast", "x = 1"), ("slow", "x = 2")];

    #[test]
    fn what_is_shipped_is_found_first_and_files_after_it() {
        assert_eq!(text_of("drive", "slow", &SHIPPED).as_deref(), Ok("x = 2"));
        let error = text_of("drive", "slwo", &SHIPPED).unwrap_err();
        assert_eq!(
            error,
            "slwo: no such file, and no drive of that name; there are fast, slow; did you mean slow?"
        );
        let folder = std::env::temp_dir().display().to_string();
        let error = text_of("drive", &folder, &SHIPPED).unwrap_err();
        assert!(error.contains("cannot read"), "{error}");
    }
}
