//! The commands that apply a row's settings: immediately, and at every boot.

use serde::{Deserialize, Serialize};

use super::{Choices, QueueSetting};

/// A command, or lines for a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// When it takes effect: `now`, `at every boot`.
    pub when: String,
    /// The file that the lines go into; `None` if they are for a root shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The lines to type.
    pub lines: Vec<String>,
}

/// Returns the commands that set a row's queue. udev's rules apply to all devices of a
/// kind, systemd-tmpfiles' lines to one device.
pub(super) fn of(choices: &Choices, row: &QueueSetting) -> Vec<Command> {
    let attributes = attributes(row);
    let path = |attribute: &str| format!("/sys/block/{}/queue/{attribute}", choices.device);
    let typed = attributes
        .iter()
        .map(|(name, value)| format!("echo {value} > {}", path(name)));
    let turns = choices.rotational.map_or(String::new(), |turns| {
        format!("ATTR{{queue/rotational}}==\"{}\", ", u8::from(turns))
    });
    let rule = |assignment: String| {
        let pattern = &choices.pattern;
        format!("ACTION==\"add|change\", KERNEL==\"{pattern}\", {turns}{assignment}")
    };
    let assigned = attributes
        .iter()
        .map(|(name, value)| rule(format!("ATTR{{queue/{name}}}=\"{value}\"")));
    let written = attributes
        .iter()
        .map(|(name, value)| format!("w {} - - - - {value}", path(name)));
    vec![
        Command {
            when: "now".to_string(),
            file: None,
            lines: typed.collect(),
        },
        Command {
            when: "at every boot".to_string(),
            file: Some("/etc/udev/rules.d/60-ioscheduler.rules".to_string()),
            lines: assigned.collect(),
        },
        Command {
            when: "or, with systemd".to_string(),
            file: Some("/etc/tmpfiles.d/ioscheduler.conf".to_string()),
            lines: written.collect(),
        },
    ]
}

/// Returns the files below `queue/` with their values. The scheduler comes first,
/// because a new scheduler resets the other files to its own defaults.
fn attributes(row: &QueueSetting) -> Vec<(String, String)> {
    let mut all = vec![("scheduler".to_string(), row.scheduler.clone())];
    let tunables = row.tunables.iter();
    all.extend(tunables.map(|(name, value)| (format!("iosched/{name}"), value.clone())));
    let numbers = [
        ("nr_requests", row.nr_requests),
        ("nomerges", row.nomerges.map(u32::from)),
        ("read_ahead_kb", row.read_ahead_kb),
    ];
    for (name, number) in numbers {
        all.extend(number.map(|number| (name.to_string(), number.to_string())));
    }
    all
}
