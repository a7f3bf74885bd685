//! How users write that a tunable is to have a value.

/// `[SCHEDULER.]TUNABLE=VALUE`. Whether there are such a scheduler and tunable,
/// and what they take, is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting<'a> {
    /// The scheduler, where it is named.
    pub scheduler: Option<&'a str>,
    /// The tunable; on a host it becomes part of a path in sysfs.
    pub tunable: &'a str,
    /// Its value.
    pub value: &'a str,
}

impl<'a> Setting<'a> {
    /// Takes the text apart; `None` where it is not of that form.
    pub fn parse(text: &'a str) -> Option<Setting<'a>> {
        let (target, value) = text.split_once('=')?;
        let (scheduler, tunable) = match target.split_once('.') {
            Some((scheduler, tunable)) => (Some(scheduler), tunable),
            None => (None, target),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let is_name = !tunable.is_empty() && tunable.chars().all(plain);
        is_name.then_some(Setting {
            scheduler,
            tunable,
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_taken_apart() {
        let setting = |scheduler, tunable, value| {
            Some(Setting {
                scheduler,
                tunable,
                value,
            })
        };
        assert_eq!(Setting::parse("x=1"), setting(None, "x", "1"));
        assert_eq!(Setting::parse("x=a=1.b"), setting(None, "x", "a=1.b"));
        assert_eq!(
            Setting::parse("mq-deadline.fifo_batch=1"),
            setting(Some("mq-deadline"), "fifo_batch", "1")
        );
        for wrong in ["", "x", "a.x", "=1", "a.=1", "../x=1", "a.b.x=1", "a b=1"] {
            assert_eq!(Setting::parse(wrong), None, "{wrong}");
        }
    }
}
