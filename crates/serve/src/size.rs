//! Sizes as people write them.

/// Bytes of `4096`, `64K`, `512MiB`, `1G` or `2T`: powers of 1024.
///
/// # Errors
/// Where it is none; the message says what would be one.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let fault = || format!("{text:?} is no size; write such as 4096, 64K, 512M, 1G or 2T");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(fault()),
    };
    let number: u64 = digits.parse().map_err(|_| fault())?;
    number.checked_mul(1 << shift).ok_or_else(fault)
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64k"), Ok(65536));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        for wrong in ["", "G", "1.5G", "1X", "-1", "99999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
