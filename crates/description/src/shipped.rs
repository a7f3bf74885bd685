//! Descriptions that are shipped with the program.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
#[cfg(feature = "std")]
use std::path::Path;

use crate::hint;
#[cfg(feature = "std")]
use crate::read_text;

/// The shipped descriptions of one kind, made by [`shipped!`](crate::shipped).
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// The kind of what they describe, for messages.
    pub kind: &'static str,
    /// The name and text of each, in the order of lists.
    pub texts: &'static [(&'static str, &'static str)],
}

impl Shipped {
    /// Returns their names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.texts.iter().map(|(name, _)| *name)
    }

    /// Returns the text of one of them.
    pub fn text(&self, name: &str) -> Option<&'static str> {
        let mut texts = self.texts.iter();
        texts
            .find(|(known, _)| *known == name)
            .map(|(_, text)| *text)
    }

    /// Returns the text of the shipped description called `name`; without the feature `std`
    /// there are no files.
    ///
    /// # Errors
    /// If there is none; the message lists the shipped ones.
    #[cfg(not(feature = "std"))]
    pub fn text_or_file(&self, name: &str) -> Result<String, String> {
        let text = self.text(name).map(ToString::to_string);
        text.ok_or_else(|| format!("{name}: no {}", self.others(name)))
    }

    /// Returns the text of the shipped description called `name`, or else of the file.
    ///
    /// # Errors
    /// If there is neither; the message lists the shipped ones.
    #[cfg(feature = "std")]
    pub fn text_or_file(&self, name: &str) -> Result<String, String> {
        if let Some(text) = self.text(name) {
            return Ok(text.to_string());
        }
        read_text(Path::new(name)).map_err(|error| {
            if Path::new(name).exists() {
                return format!("{name}: cannot read: {error}");
            }
            format!("{name}: no such file, and no {}", self.others(name))
        })
    }

    /// The end of the message on a name that none has.
    fn others(&self, name: &str) -> String {
        let hint = hint(name, self.names());
        let list = self.names().collect::<Vec<&str>>().join(", ");
        format!("{} of that name; there are {list}{hint}", self.kind)
    }
}

/// Declares the descriptions of a kind: `kind, folder: names of files without .toml`.
#[macro_export]
macro_rules! shipped {
    ($kind:literal, $folder:literal: $($name:literal),* $(,)?) => {
        $crate::Shipped {
            kind: $kind,
            texts: &[$(($name, include_str!(concat!($folder, "/", $name, ".toml")))),*],
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVES: Shipped = Shipped {
        kind: "drive",
        texts: &[("fast", "x = 1"), ("slow", "x = 2")],
    };

    #[test]
    fn what_is_shipped_is_found_first_and_files_after_it() {
        assert_eq!(DRIVES.text_or_file("slow").as_deref(), Ok("x = 2"));
        let error = DRIVES.text_or_file("slwo").unwrap_err();
        assert_eq!(
            error,
            "slwo: no such file, and no drive of that name; there are fast, slow; did you mean slow?"
        );
        let folder = std::env::temp_dir().display().to_string();
        let error = DRIVES.text_or_file(&folder).unwrap_err();
        assert!(error.contains("cannot read"), "{error}");
    }
}
