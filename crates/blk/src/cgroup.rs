//! The files of a control group that control its I/O (`Documentation/admin-guide/cgroup-v2.rst`,
//! "IO").

use alloc::format;
use alloc::string::String;

use crate::bio::CgroupId;
use crate::queue::RequestQueue;
use crate::rq_qos::{PrioPolicy, parse_io_latency};
use crate::units::Nanos;

/// The largest weights of `io.weight` and of `io.bfq.weight` (`CGROUP_WEIGHT_MAX`,
/// `BFQ_MAX_WEIGHT`).
const WEIGHT_MAX: u32 = 10_000;
const BFQ_WEIGHT_MAX: u32 = 1000;

/// Which groups have a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupFileOn {
    /// Only the root.
    Root,
    /// All groups except the root.
    Others,
}

/// A file of a control group.
#[derive(Clone, Copy, Debug)]
pub struct CgroupFile {
    /// Its name.
    pub name: &'static str,
    /// Syntax of what is written, after the drive's number if the file takes one.
    pub form: &'static str,
    /// Groups that have the file.
    pub on: CgroupFileOn,
    /// Whether each line begins with the number of a drive; for files of weights that is optional.
    pub is_of_drive: bool,
    write: fn(&mut RequestQueue, Nanos, CgroupId, &str) -> Result<(), String>,
}

/// Files are compared by name, which is unique.
impl PartialEq for CgroupFile {
    fn eq(&self, other: &CgroupFile) -> bool {
        self.name == other.name
    }
}

impl CgroupFile {
    /// Writes to the file of `group`, for this queue. The parent of the group must have been set
    /// before.
    ///
    /// # Errors
    /// If the kernel refuses the text; the message says why.
    pub fn write(
        &self,
        queue: &mut RequestQueue,
        now: Nanos,
        group: CgroupId,
        text: &str,
    ) -> Result<(), String> {
        (self.write)(queue, now, group, text)
    }

    /// Whether the scheduler keeps the value, so that a change of scheduler loses it.
    pub fn is_of_scheduler(&self) -> bool {
        self.name == "io.bfq.weight"
    }

    /// The weight that `text` sets, if this is a file of weights.
    pub fn weight(&self, text: &str) -> Option<u32> {
        let max = match self.name {
            "io.weight" => WEIGHT_MAX,
            "io.bfq.weight" => BFQ_WEIGHT_MAX,
            _ => return None,
        };
        parse_weight(text, max).ok()
    }
}

/// All files.
pub const CGROUP_FILES: &[CgroupFile] = &[
    CgroupFile {
        name: "io.max",
        form: "rbps=BYTES wbps=BYTES riops=N wiops=N, each a number or max",
        on: CgroupFileOn::Others,
        is_of_drive: true,
        write: |queue, now, group, text| {
            let mut max = queue.io_max(group);
            max.write(text)?;
            queue.set_io_max(now, group, max);
            Ok(())
        },
    },
    CgroupFile {
        name: "io.latency",
        form: "target=MICROSECONDS or target=max",
        on: CgroupFileOn::Others,
        is_of_drive: true,
        write: |queue, _, group, text| {
            queue.set_io_latency(group, parse_io_latency(text)?);
            Ok(())
        },
    },
    CgroupFile {
        name: "io.weight",
        form: "default N, or N, from 1 to 10000",
        on: CgroupFileOn::Others,
        is_of_drive: false,
        write: |queue, now, group, text| {
            let weight = parse_weight(text, WEIGHT_MAX)?;
            queue.set_io_weight(now, group, weight);
            Ok(())
        },
    },
    CgroupFile {
        name: "io.bfq.weight",
        form: "default N, or N, from 1 to 1000",
        on: CgroupFileOn::Others,
        is_of_drive: false,
        write: |queue, _, group, text| {
            let weight = parse_weight(text, BFQ_WEIGHT_MAX)?;
            if let Some(elevator) = queue.elevator_mut() {
                elevator.set_cgroup_weight(group, weight);
            }
            Ok(())
        },
    },
    CgroupFile {
        name: "io.prio.class",
        form: "no-change, promote-to-rt, restrict-to-be or idle",
        on: CgroupFileOn::Others,
        is_of_drive: false,
        write: |queue, _, group, text| {
            queue.set_io_prio_class(group, PrioPolicy::parse(text)?);
            Ok(())
        },
    },
    CgroupFile {
        name: "io.cost.qos",
        form: "enable=1 ctrl=user rpct=95 rlat=10000 wpct=95 wlat=20000 min=50 max=150",
        on: CgroupFileOn::Root,
        is_of_drive: true,
        write: |queue, now, _, text| {
            let mut qos = queue.io_cost_mut(now).qos();
            qos.write(text)?;
            queue.set_io_cost_qos(now, qos);
            Ok(())
        },
    },
    CgroupFile {
        name: "io.cost.model",
        form: "ctrl=user model=linear rbps=N rseqiops=N rrandiops=N wbps=N wseqiops=N wrandiops=N",
        on: CgroupFileOn::Root,
        is_of_drive: true,
        write: |queue, now, _, text| {
            let mut model = queue.io_cost_mut(now).model();
            model.write(text)?;
            queue.set_io_cost_model(now, model);
            Ok(())
        },
    },
];

fn parse_weight(text: &str, max: u32) -> Result<u32, String> {
    let text = text.trim();
    let number = text.strip_prefix("default").unwrap_or(text).trim();
    let weight = number.parse().ok();
    weight
        .filter(|weight| (1..=max).contains(weight))
        .ok_or_else(|| format!("found {number:?}, and a weight is from 1 to {max} (EINVAL)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights are from 1 to the file's largest, with or without "default"; only bfq's own file is
    /// the scheduler's.
    #[test]
    fn files_of_weights_take_weights() {
        for file in CGROUP_FILES {
            let max = match file.name {
                "io.weight" => Some(10_000),
                "io.bfq.weight" => Some(1_000),
                _ => None,
            };
            for weight in [0, 1, 1_000, 1_001, 10_000, 10_001] {
                let expected = max.and_then(|max| (1..=max).contains(&weight).then_some(weight));
                for text in [format!("{weight}"), format!("default {weight}\n")] {
                    assert_eq!(file.weight(&text), expected, "{}: {text}", file.name);
                }
            }
            assert_eq!(file.is_of_scheduler(), file.name == "io.bfq.weight");
        }
    }
}
