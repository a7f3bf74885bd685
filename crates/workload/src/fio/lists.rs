//! Values that are lists: file names, CPUs, and the lists of `value/share` in `bssplit`,
//! `cmdprio_bssplit` and the zones of `random_distribution`, with `,` between the directions.

use super::direction::ByDirection;
use super::error::Fault;
use super::spec::{CommandPrioritySplit, Priority, Zone};
use super::units;

/// Splits a text by direction: one part for all, `reads,others`, or `reads,writes,trims`; an empty
/// part leaves its direction unchanged.
pub(crate) fn by_direction(text: &str) -> Result<ByDirection<&str>, Fault> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    match parts[..] {
        [all] => Ok(ByDirection::all(all)),
        [read, others] => Ok(ByDirection {
            read,
            write: others,
            trim: others,
        }),
        [read, write, trim] => Ok(ByDirection { read, write, trim }),
        _ => Err(Fault::new("more than three lists")
            .help("one each for reads, writes and trims at most")),
    }
}

/// The most entries that fio takes.
const SPLIT_LIMIT: usize = 64;
const ZONE_LIMIT: usize = 256;

fn entries(list: &str, limit: usize) -> Result<Vec<&str>, Fault> {
    let entries: Vec<&str> = list.split(':').take_while(|e| !e.is_empty()).collect();
    if entries.len() > limit {
        return Err(
            Fault::new(format!("{} entries", entries.len())).help(format!("at most {limit}"))
        );
    }
    Ok(entries)
}

fn percent(text: &str) -> Result<u32, Fault> {
    match text.trim_end_matches('%').parse() {
        Ok(percent @ 0..=100) => Ok(percent),
        _ => Err(Fault::new(format!("`{text}` is not a share in percent")).help("0 to 100")),
    }
}

/// Parses `4k/60:64k/40`: block sizes and their shares, sorted by share. The sizes without a share
/// divide the rest; as in fio, a share of 0 means no share.
pub(crate) fn block_sizes(list: &str, kb_base: u32) -> Result<Vec<(u64, u32)>, Fault> {
    let mut sizes = Vec::new();
    for entry in entries(list, SPLIT_LIMIT)? {
        let (size, share) = match entry.split_once('/') {
            Some((size, "")) => (size, 0),
            Some((size, share)) => (size, percent(share)?),
            None => (entry, 0),
        };
        let size = units::bytes(size, kb_base)?;
        if size == 0 {
            return Err(Fault::new("a block of 0 bytes"));
        }
        sizes.push((size, share));
    }
    let given: u32 = sizes.iter().map(|(_, share)| share).sum();
    if given > 100 {
        return Err(Fault::new(format!("the shares add up to {given} percent")).help("at most 100"));
    }
    let open = sizes.iter().filter(|(_, share)| *share == 0).count() as u32;
    for (_, share) in &mut sizes {
        if *share == 0 {
            *share = (100 - given) / open;
        }
    }
    sizes.sort_by_key(|(_, share)| *share);
    Ok(sizes)
}

/// Parses `64k/50:4k/20/3/7`: the percentage of I/Os of a size that get a priority; without class
/// and level, `implied` is used.
pub(crate) fn command_priorities(
    list: &str,
    implied: Priority,
    kb_base: u32,
) -> Result<Vec<CommandPrioritySplit>, Fault> {
    let mut splits = Vec::new();
    for entry in entries(list, SPLIT_LIMIT)? {
        let fields: Vec<&str> = entry.split('/').collect();
        let number = |text: &str| {
            text.parse::<u8>()
                .map_err(|_| Fault::new(format!("`{text}` is not a priority")))
        };
        let (share, priority) = match fields[1..] {
            [share] if !share.is_empty() => (percent(share)?, implied),
            [share, class, level] => (
                percent(share)?,
                Priority {
                    class: number(class)?.min(3),
                    level: number(level)?.min(7),
                },
            ),
            _ => {
                return Err(Fault::new(format!("`{entry}` is not an entry"))
                    .help("size/percent or size/percent/class/level"));
            }
        };
        let block_bytes = Some(units::bytes(fields[0], kb_base)?);
        if share > 0 {
            splits.push(CommandPrioritySplit {
                block_bytes,
                percent: share,
                priority,
            });
        }
    }
    splits.sort_by_key(|split| split.block_bytes);
    for split in &splits {
        let total: u32 = splits
            .iter()
            .filter(|other| other.block_bytes == split.block_bytes)
            .map(|other| other.percent)
            .sum();
        if total > 100 {
            return Err(Fault::new(
                "the shares of a size add up to more than 100 percent",
            ));
        }
    }
    Ok(splits)
}

/// Parses `60/10:40/90`: percentages of accesses and the percentages (for `zoned_abs`, the sizes)
/// of the file that they go to.
pub(crate) fn zones(list: &str, absolute: bool, kb_base: u32) -> Result<Vec<Zone>, Fault> {
    let mut zones = Vec::new();
    for entry in entries(list, ZONE_LIMIT)? {
        let (access, size) = entry.split_once('/').unwrap_or((entry, ""));
        let size = match (absolute, size) {
            (_, "") => 0,
            (true, size) => units::bytes(size, kb_base)?,
            (false, size) => u64::from(percent(size)?),
        };
        zones.push(Zone {
            access_percent: percent(access)?,
            size,
        });
    }
    if zones.is_empty() {
        return Ok(zones);
    }
    let access: u32 = zones.iter().map(|zone| zone.access_percent).sum();
    if access != 100 {
        return Err(
            Fault::new(format!("the accesses add up to {access} percent")).help("exactly 100"),
        );
    }
    if !absolute {
        divide_rest(&mut zones)?;
    }
    Ok(zones)
}

fn divide_rest(zones: &mut [Zone]) -> Result<(), Fault> {
    let given: u64 = zones.iter().map(|zone| zone.size).sum();
    if given > 100 {
        return Err(Fault::new(format!("the sizes add up to {given} percent")).help("at most 100"));
    }
    let open = zones.iter().filter(|zone| zone.size == 0).count() as u64;
    for zone in zones {
        if zone.size == 0 {
            zone.size = (100 - given) / open;
        }
    }
    Ok(())
}

/// The most CPUs, more than any machine has.
const CPU_LIMIT: u32 = 4096;

/// Parses `0,2,4-7` into CPUs in rising order.
pub(crate) fn cpus(text: &str) -> Result<Vec<u32>, Fault> {
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

/// Returns the CPUs whose bits are set in `mask`.
pub(crate) fn cpus_of_mask(mask: u32) -> Vec<u32> {
    (0..32).filter(|cpu| mask & (1 << cpu) != 0).collect()
}

/// Splits a list of names; `\:` is a colon within a name.
pub(crate) fn file_names(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut name = String::new();
    let mut chars = list.trim().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&':') => {
                chars.next();
                name.push(':');
            }
            ':' => names.extend(take_name(&mut name)),
            c => name.push(c),
        }
    }
    names.extend(take_name(&mut name));
    names
}

fn take_name(name: &mut String) -> Option<String> {
    (!name.is_empty()).then(|| std::mem::take(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_shares_divide_the_rest() {
        assert_eq!(
            block_sizes("4k/60:64k/40", 1024),
            Ok(vec![(65536, 40), (4096, 60)])
        );
        assert_eq!(
            block_sizes("4k/10:64k/50:32k/", 1024).unwrap()[1],
            (32768, 40)
        );
        assert_eq!(block_sizes("4k:8k", 1024), Ok(vec![(4096, 50), (8192, 50)]));
        assert_eq!(block_sizes("4k", 1024), Ok(vec![(4096, 100)]));
        assert_eq!(block_sizes("", 1024), Ok(vec![]));
        assert!(block_sizes("4k/60:64k/60", 1024).is_err());
        assert!(block_sizes("4k/x", 1024).is_err());
        assert!(block_sizes("0/50", 1024).is_err());
    }

    #[test]
    fn zones_cover_all_accesses() {
        assert_eq!(
            zones("60/10:40", false, 1024),
            Ok(vec![
                Zone {
                    access_percent: 60,
                    size: 10
                },
                Zone {
                    access_percent: 40,
                    size: 90
                }
            ])
        );
        assert_eq!(zones("100/20g", true, 1024).unwrap()[0].size, 20 << 30);
        assert!(zones("50/5:30/15", false, 1024).is_err());
        assert!(zones("50/60:50/60", false, 1024).is_err());
    }

    #[test]
    fn priorities_by_size() {
        let rt = Priority { class: 1, level: 0 };
        let splits = command_priorities("64k/50:4k/20/3/7:8k/0", rt, 1024).unwrap();
        assert_eq!(splits.len(), 2);
        assert_eq!(splits[0].priority, Priority { class: 3, level: 7 });
        assert_eq!(splits[1].priority, rt);
        assert!(command_priorities("4k/60:4k/50", rt, 1024).is_err());
        assert!(command_priorities("4k/60/1", rt, 1024).is_err());
    }

    #[test]
    fn cpus_by_list_and_by_mask() {
        assert_eq!(cpus("0,2,4-6"), Ok(vec![0, 2, 4, 5, 6]));
        assert_eq!(cpus("1,1"), Ok(vec![1]));
        assert_eq!(cpus_of_mask(0b1010), [1, 3]);
        for text in ["", "a", "3-1", "0-99999", "1,"] {
            assert!(cpus(text).is_err(), "{text}");
        }
    }

    #[test]
    fn colons_separate_unless_escaped() {
        assert_eq!(file_names("/dev/sda:/dev/sdb"), ["/dev/sda", "/dev/sdb"]);
        assert_eq!(file_names(r"/dev/a\:b:c"), ["/dev/a:b", "c"]);
        assert_eq!(file_names("::a::"), ["a"]);
        assert!(file_names("").is_empty());
    }
}
