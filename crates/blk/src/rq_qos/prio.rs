//! Priority classes of control groups, `io.prio.class` (`block/blk-ioprio.c`).

use alloc::format;
use alloc::string::String;

use crate::bio::{IoClass, IoPrio};

/// The level of a default priority (`IOPRIO_BE_NORM`).
const NORMAL_LEVEL: u8 = 4;

/// How a group changes the priorities of its bios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrioPolicy {
    /// Leaves them unchanged.
    #[default]
    NoChange,
    /// Makes all real time; those that were keep their level (`promote-to-rt`, `none-to-rt`).
    PromoteToRt,
    /// Makes real-time bios best effort.
    RestrictToBe,
    /// Makes all idle.
    Idle,
}

impl PrioPolicy {
    /// Parses a write to `io.prio.class`.
    ///
    /// # Errors
    /// If there is no such policy.
    pub fn parse(text: &str) -> Result<PrioPolicy, String> {
        match text.trim() {
            "no-change" => Ok(PrioPolicy::NoChange),
            "promote-to-rt" | "none-to-rt" => Ok(PrioPolicy::PromoteToRt),
            "restrict-to-be" => Ok(PrioPolicy::RestrictToBe),
            "idle" => Ok(PrioPolicy::Idle),
            other => Err(format!(
                "{other:?} is no policy; those are no-change, promote-to-rt, restrict-to-be, idle, \
                 none-to-rt (EINVAL)"
            )),
        }
    }

    /// Returns the priority of a bio in this group. Without real time the lower of the two counts
    /// (`blkcg_set_ioprio`).
    pub(crate) fn apply(self, prio: IoPrio) -> IoPrio {
        let own = match prio.class {
            IoClass::None => IoPrio {
                class: IoClass::Be,
                level: NORMAL_LEVEL,
            },
            _ => prio,
        };
        let at_least = |class| match own.class >= class {
            true => own,
            false => IoPrio { class, level: 0 },
        };
        match self {
            PrioPolicy::NoChange => prio,
            PrioPolicy::PromoteToRt if own.class == IoClass::Rt => own,
            PrioPolicy::PromoteToRt => IoPrio {
                class: IoClass::Rt,
                level: NORMAL_LEVEL,
            },
            PrioPolicy::RestrictToBe => at_least(IoClass::Be),
            PrioPolicy::Idle => at_least(IoClass::Idle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of Documentation/admin-guide/cgroup-v2.rst.
    #[test]
    fn classes_become_what_the_kernel_s_table_says() {
        let classes = [IoClass::None, IoClass::Rt, IoClass::Be, IoClass::Idle];
        let of = |text: &str| {
            let policy = PrioPolicy::parse(text).unwrap();
            classes.map(|class| policy.apply(IoPrio { class, level: 2 }).class)
        };
        use IoClass::{Be, Idle, Rt};
        assert_eq!(of("no-change"), classes);
        assert_eq!(of("promote-to-rt"), [Rt; 4]);
        assert_eq!(of("none-to-rt"), [Rt; 4]);
        assert_eq!(of("restrict-to-be"), [Be, Be, Be, Idle]);
        assert_eq!(of("idle"), [Idle; 4]);
        assert!(PrioPolicy::parse("rt").unwrap_err().contains("no policy"));
        let rt = |level| IoPrio { class: Rt, level };
        assert_eq!(PrioPolicy::PromoteToRt.apply(rt(1)), rt(1));
    }
}
