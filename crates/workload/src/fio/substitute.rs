//! What fio replaces in an option before reading it: `${VARIABLE}`, and the
//! keywords `$pagesize`, `$mb_memory` and `$ncpus` with their arithmetic.

use super::error::Fault;
use super::expression;

/// Looks a variable up. Keywords are asked for with their `$`.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// An option with everything replaced. A variable that is not set is replaced
/// by nothing, as in fio.
pub(crate) fn substitute(option: &str, environment: Environment<'_>) -> Result<String, Fault> {
    let replaced = variables(option, environment);
    keywords(replaced, environment)
}

fn variables(option: &str, environment: Environment<'_>) -> String {
    let mut out = String::with_capacity(option.len());
    let mut rest = option;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start + 2..].find('}') else {
            break;
        };
        out.push_str(&rest[..start]);
        let name = &rest[start + 2..start + 2 + length];
        out.push_str(&environment(name).unwrap_or_default());
        rest = &rest[start + 2 + length + 1..];
    }
    out.push_str(rest);
    out
}

fn keywords(option: String, environment: Environment<'_>) -> Result<String, Fault> {
    let mut out = option;
    let mut found = false;
    for keyword in ["$pagesize", "$mb_memory", "$ncpus"] {
        if !out.contains(keyword) {
            continue;
        }
        let value = environment(keyword)
            .or_else(|| (keyword == "$pagesize").then(|| "4096".to_string()))
            .ok_or_else(|| {
                Fault::new(format!("{keyword} is not known here")).help("write the number")
            })?;
        if value.contains('$') {
            return Err(Fault::new(format!("{keyword} is not a number")));
        }
        out = out.replace(keyword, &value);
        found = true;
    }
    match out.split_once('=') {
        // fio hands such values to bc(1), which calculates in whole numbers.
        Some((name, sum)) if found && sum.contains(['+', '-', '*', '/']) => {
            let value = expression::evaluate(sum, &|number| {
                number
                    .parse::<u64>()
                    .map(|n| n as f64)
                    .map_err(|_| Fault::new(format!("`{number}` is not a whole number")))
            })?;
            Ok(format!("{name}={}", value.trunc()))
        }
        _ => Ok(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "SIZE" => Some("1g".into()),
            "$ncpus" => Some("8".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_and_keywords() {
        let sub = |text| substitute(text, &environment).unwrap();
        assert_eq!(sub("size=${SIZE}"), "size=1g");
        assert_eq!(sub("name=${UNSET}x"), "name=x");
        assert_eq!(sub("name=${SIZE"), "name=${SIZE");
        assert_eq!(sub("numjobs=$ncpus"), "numjobs=8");
        assert_eq!(sub("bs=$pagesize*2+1"), "bs=8193");
        assert_eq!(sub("size=$pagesize/3"), "size=1365");
        assert!(substitute("size=8*$mb_memory", &environment).is_err());
    }
}
