//! Priority classes by group, `io.prio.class` (`block/blk-ioprio.c`).

use alloc::format;
use alloc::string::String;

use crate::bio::{IoClass, IoPrio};

/// The level of a priority that nobody set (`IOPRIO_BE_NORM`).
const NORMAL_LEVEL: u8 = 4;

/// What a group makes of the priorities of its bios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrioPolicy {
    /// They stay.
    #[default]
    NoChange,
    /// All are real time; who was keeps its level (`promote-to-rt`, `none-to-rt`).
    PromoteToRt,
    /// None is real time.
    RestrictToBe,
    /// All are idle.
    Idle,
}

impl PrioPolicy {
    /// Takes what is written to `io.prio.class`.
    ///
    /// # Errors
    /// Where there is no such class.
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

    /// The priority that a bio gets. Of two that are not real time the lower counts
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
