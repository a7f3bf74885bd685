//! Numbers, times and errors as fio prints them.

/// The quantity that a number counts, which decides the suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Plain,
    Bytes,
    BytesPerSecond,
}

/// The base of the prefixes: 1000 or 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Si,
    Iec,
}

const SI: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
const IEC: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// fio's significant figures (`significant_figures`, default 4).
pub(crate) const FIGURES: usize = 4;

/// Formats a number in at most `figures` digits with a prefix, as fio's `num2str` does:
/// only the last division rounds.
pub(crate) fn number(value: u64, figures: usize, base: Base, unit: Unit) -> String {
    let (step, prefixes) = match base {
        Base::Si => (1000, SI),
        Base::Iec => (1024, IEC),
    };
    let suffix = match unit {
        Unit::Plain => "",
        Unit::Bytes => "B",
        Unit::BytesPerSecond => "B/s",
    };
    let mut whole = value;
    let mut rest = None;
    let mut prefix = 0;
    while digits(whole) > figures && prefix < prefixes.len() - 1 {
        rest = Some(whole % step);
        whole /= step;
        prefix += 1;
    }
    let prefix = prefixes[prefix];
    let Some(rest) = rest else {
        return format!("{whole}{prefix}{suffix}");
    };
    // One of the places is the decimal point.
    let decimals = figures.saturating_sub(digits(whole) + 1);
    if decimals == 0 {
        let rounded = whole + u64::from(rest >= step / 2);
        return format!("{rounded}{prefix}{suffix}");
    }
    let fraction = format!("{:.decimals$}", rest as f64 / step as f64);
    let carried = whole + u64::from(fraction.starts_with('1'));
    format!("{carried}.{}{prefix}{suffix}", &fraction[2..])
}

fn digits(value: u64) -> usize {
    value.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Formats seconds since 1970 as `ctime(3)` does, in UTC.
pub(crate) fn ctime(unix_seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [(&str, u64); 12] = [
        ("Jan", 31),
        ("Feb", 28),
        ("Mar", 31),
        ("Apr", 30),
        ("May", 31),
        ("Jun", 30),
        ("Jul", 31),
        ("Aug", 31),
        ("Sep", 30),
        ("Oct", 31),
        ("Nov", 30),
        ("Dec", 31),
    ];
    let days = unix_seconds / 86_400;
    let weekday = DAYS[(days % 7) as usize];
    // The calendar repeats every 400 years, and a search within them is short.
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let mut year = 1970 + days / DAYS_IN_400_YEARS * 400;
    let mut day = days % DAYS_IN_400_YEARS;
    let leap = |year: u64| match (year % 400, year % 100, year % 4) {
        (0, ..) => true,
        (_, 0, _) => false,
        (.., rest) => rest == 0,
    };
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = "Dec";
    for (name, length) in MONTHS {
        let length = length + u64::from(name == "Feb" && leap(year));
        month = name;
        if day < length {
            break;
        }
        day -= length;
    }
    let second = unix_seconds % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{weekday} {month} {:2} {hour:02}:{minute:02}:{second:02} {year}",
        day + 1
    )
}

/// Returns the system's text for an errno.
pub(crate) fn strerror(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    let number = format!(" (os error {errno})");
    text.strip_suffix(&number).unwrap_or(&text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_fio_printed_them() {
        // Each pair was read from the output of fio 3.33.
        let iops = |n| number(n, FIGURES, Base::Si, Unit::Plain);
        assert_eq!(iops(52_814), "52.8k");
        assert_eq!(iops(196_257), "196k");
        assert_eq!(iops(9_999), "9999");
        assert_eq!(number(4_056_400, 6, Base::Si, Unit::Plain), "4056.4k");
        assert_eq!(number(4096, FIGURES, Base::Iec, Unit::Bytes), "4096B");
        assert_eq!(number(65_536, FIGURES, Base::Iec, Unit::Bytes), "64.0KiB");
        assert_eq!(
            number(5_840_896, FIGURES, Base::Iec, Unit::Bytes),
            "5704KiB"
        );
        assert_eq!(number(5_840_896, FIGURES, Base::Si, Unit::Bytes), "5841kB");
        let bw = 94_359_703;
        let iec = number(bw, FIGURES, Base::Iec, Unit::BytesPerSecond);
        assert_eq!(iec, "90.0MiB/s");
        let si = number(bw, FIGURES, Base::Si, Unit::BytesPerSecond);
        assert_eq!(si, "94.4MB/s");
        assert_eq!(number(0, FIGURES, Base::Iec, Unit::Bytes), "0B");
        assert_eq!(number(u64::MAX, FIGURES, Base::Iec, Unit::Bytes), "16.0EiB");
    }

    #[test]
    fn a_fraction_that_rounds_up_carries() {
        assert_eq!(number(19_999, FIGURES, Base::Si, Unit::Plain), "20.0k");
    }

    #[test]
    fn times_as_date_prints_them() {
        assert_eq!(ctime(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(ctime(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(ctime(1_795_219_841), "Sat Nov 21 00:10:41 2026");
        assert_eq!(ctime(4_107_542_399), "Sun Feb 28 23:59:59 2100");
        assert_eq!(ctime(4_107_542_400), "Mon Mar  1 00:00:00 2100");
    }
}
