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

/// Stands for the name of a device that is not known. As there is no such device, a line with it
/// that is typed as it is sets nothing.
const UNKNOWN: &str = "DISK";

/// Returns the commands that set a row's queue. udev's rules apply to all devices of a
/// kind, systemd-tmpfiles' lines to the devices that they name.
pub(super) fn of(choices: &Choices, row: &QueueSetting) -> Vec<Command> {
    let attributes = attributes(row);
    let unknown = [UNKNOWN.to_string()];
    let devices = match choices.devices.is_empty() {
        true => &unknown[..],
        false => &choices.devices,
    };
    let path = |device: &str, name: &str| format!("/sys/block/{device}/queue/{name}");
    let on_devices = |line: &dyn Fn(String, &str) -> String| -> Vec<String> {
        let of_device = |device: &String| {
            let lines = attributes.iter();
            let lines = lines.map(|(name, value)| line(path(device, name), value));
            lines.collect::<Vec<String>>()
        };
        devices.iter().flat_map(of_device).collect()
    };
    let explained = |lines: Vec<String>| match choices.devices.is_empty() {
        true => [vec![placeholder(&choices.example)], lines].concat(),
        false => lines,
    };
    vec![
        Command {
            when: "now".to_string(),
            file: None,
            lines: explained(on_devices(&|path, value| format!("echo {value} > {path}"))),
        },
        Command {
            when: "at every boot".to_string(),
            file: Some("/etc/udev/rules.d/60-ioscheduler.rules".to_string()),
            lines: rules(choices, &devices[0], &attributes),
        },
        Command {
            when: "or, with systemd".to_string(),
            file: Some("/etc/tmpfiles.d/ioscheduler.conf".to_string()),
            lines: explained(on_devices(&|path, value| {
                format!("w {path} - - - - {value}")
            })),
        },
    ]
}

fn placeholder(example: &str) -> String {
    format!("# for {UNKNOWN} put your drive's name, as {example}: lsblk lists them")
}

/// Returns udev's rules, with a comment on the devices that they apply to.
fn rules(choices: &Choices, device: &str, attributes: &[(String, String)]) -> Vec<String> {
    let turns = choices.rotational.map_or(String::new(), |turns| {
        format!("ATTR{{queue/rotational}}==\"{}\", ", u8::from(turns))
    });
    let rule = |(name, value): &(String, String)| {
        format!(
            "ACTION==\"add|change\", KERNEL==\"{}\", ENV{{DEVTYPE}}==\"disk\", \
             {turns}ATTR{{queue/{name}}}=\"{value}\"",
            choices.pattern
        )
    };
    // A device's name may be another after a boot, so a rule for one goes by its identity.
    let one = match choices.identity.rsplit('/').next() {
        None | Some("") => String::new(),
        Some(key) => format!(
            "; for one alone add ATTRS{{{key}}}==\"...\", as /sys/block/{device}/{} says",
            choices.identity
        ),
    };
    let media = match choices.rotational {
        Some(true) => " that rotates",
        Some(false) => " that does not rotate",
        None => "",
    };
    let reach = format!("# every {} device{media}{one}", choices.pattern);
    let rules = attributes.iter().map(rule);
    std::iter::once(reach).chain(rules).collect()
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
        ("wbt_lat_usec", row.wbt_lat_us),
    ];
    for (name, number) in numbers {
        all.extend(number.map(|number| (name.to_string(), number.to_string())));
    }
    all
}
