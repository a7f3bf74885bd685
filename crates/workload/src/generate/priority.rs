//! Draws the I/Os with a priority of their own: `cmdprio_percentage` and `cmdprio_bssplit`.

use super::random::{Random, Seeds, Stream};
use crate::fio::{ByDirection, CommandPrioritySplit, Direction, JobSpec, Priority};

/// A generator of the priorities of one process's I/Os.
#[derive(Clone, Debug)]
pub struct CommandPriorities {
    splits: ByDirection<Vec<CommandPrioritySplit>>,
    random: Random,
}

impl CommandPriorities {
    /// Makes the generator; returns `None` if the job gives all I/Os the same priority.
    pub fn new(spec: &JobSpec, seeds: &Seeds) -> Option<CommandPriorities> {
        let splits = &spec.command_priority;
        Direction::ALL
            .into_iter()
            .any(|direction| !splits[direction].is_empty())
            .then(|| CommandPriorities {
                splits: splits.clone(),
                random: seeds.stream(Stream::Priority),
            })
    }

    /// Returns the priority of the next I/O; `None` means that of its process.
    #[inline(never)]
    pub fn next(&mut self, direction: Direction, bytes: u64) -> Option<Priority> {
        let drawn = self.random.percent();
        let mut share_so_far = 0;
        self.splits[direction]
            .iter()
            .filter(|split| split.block_bytes.is_none_or(|size| size == bytes))
            .find(|split| {
                share_so_far += split.percent;
                drawn <= share_so_far
            })
            .map(|split| split.priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::parse_str;

    fn priorities(options: &str) -> Option<CommandPriorities> {
        let text = format!("[a]\nioengine=libaio\nrw=randrw\n{options}\n");
        let file = parse_str("t", &text, &|_| None, &|_, _| Err(String::new()))
            .unwrap_or_else(|error| panic!("{error}"));
        CommandPriorities::new(&file.jobs[0], &Seeds::new(&file.jobs[0], 1, 0))
    }

    #[test]
    fn shares_by_direction_and_size() {
        assert!(priorities("").is_none());
        let mut some = priorities("cmdprio_percentage=20,0").unwrap();
        let count = (0..10_000)
            .filter(|_| some.next(Direction::Read, 4096).is_some())
            .count();
        assert!((1800..2200).contains(&count), "{count}");
        assert_eq!(some.next(Direction::Write, 4096), None);

        let mut split = priorities("cmdprio_bssplit=4k/30/1/0:4k/20/3/7:64k/100/2/4").unwrap();
        assert_eq!(
            split.next(Direction::Write, 65536),
            Some(Priority { class: 2, level: 4 })
        );
        assert_eq!(split.next(Direction::Write, 8192), None);
        let idle = (0..10_000)
            .filter_map(|_| split.next(Direction::Read, 4096))
            .filter(|priority| priority.class == 3)
            .count();
        assert!((1800..2200).contains(&idle), "{idle}");
    }
}
