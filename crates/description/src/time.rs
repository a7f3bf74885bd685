//! Times as users write them.

/// A time with its unit, in nanoseconds.
///
/// # Errors
/// Where it is something else; the message says what is right.
pub fn time_ns(text: &str) -> Result<u64, String> {
    let wrong = || "right is a number with its unit: 500us, 20ms or 1.5s".to_string();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let ns = number * factor;
    match (0.0..9e18).contains(&ns) {
        true => Ok(ns as u64),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(time_ns("1.5s"), Ok(1_500_000_000));
        assert_eq!(time_ns("20ms"), Ok(20_000_000));
        assert_eq!(time_ns("0ns"), Ok(0));
        for wrong in ["", "1", "s", "-1s", "1e30s", "NaNs", "infs", "1 s", "1m"] {
            assert!(time_ns(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,12}", number in "[0-9.e+-]{0,8}(ns|us|ms|s)") {
            let _ = time_ns(&text);
            let _ = time_ns(&number);
        }
    }
}
