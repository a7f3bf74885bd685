//! Text in markup.

/// Text with nothing in it that HTML would take for markup.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            plain => escaped.push(plain),
        }
    }
    escaped
}

/// The class of a change that is more than noise.
pub(super) fn mark(better: bool, worse: bool) -> &'static str {
    match (better, worse) {
        (true, _) => "good",
        (_, true) => "bad",
        _ => "",
    }
}
