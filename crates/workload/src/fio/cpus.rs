//! `cpus_allowed`: lists of CPUs such as `0,2,4-7`.

use super::error::Fault;

/// More CPUs than any machine has.
const CPU_LIMIT: u32 = 4096;

/// The CPUs of a list, in rising order.
pub(crate) fn parse(text: &str) -> Result<Vec<u32>, Fault> {
    let help = "CPUs and ranges of them, such as 0,2,4-7";
    let cpu = |text: &str| match text.trim().parse::<u32>() {
        Ok(cpu) if cpu < CPU_LIMIT => Ok(cpu),
        Ok(_) => Err(Fault::new("no machine has so many CPUs").help(help)),
        Err(_) => Err(Fault::new(format!("`{text}` is not a CPU")).help(help)),
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (cpu(first)?, cpu(last)?),
            None => (cpu(part)?, cpu(part)?),
        };
        if first > last {
            return Err(Fault::new(format!("{part} runs backwards")).help(help));
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// The CPUs whose bits are set.
pub(crate) fn from_mask(mask: u32) -> Vec<u32> {
    (0..32).filter(|cpu| mask & (1 << cpu) != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks() {
        assert_eq!(parse("0,2,4-6"), Ok(vec![0, 2, 4, 5, 6]));
        assert_eq!(parse("1,1"), Ok(vec![1]));
        assert_eq!(from_mask(0b1010), [1, 3]);
        for text in ["", "a", "3-1", "0-99999", "1,"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
