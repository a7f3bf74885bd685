//! Uevents: what user space is told (`lib/kobject_uevent.c`).

use std::fmt;

use crate::kobject::KobjectId;
use crate::{LogLine, Model};

/// What happened to a kobject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is there.
    Add,
    /// It is gone.
    Remove,
    /// Something of it has changed.
    Change,
    /// A driver has taken the device.
    Bind,
    /// The driver has let the device go.
    Unbind,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Add => "add",
            Action::Remove => "remove",
            Action::Change => "change",
            Action::Bind => "bind",
            Action::Unbind => "unbind",
        })
    }
}

/// One message to user space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uevent {
    /// When, on the caller's clock.
    pub at_ns: u64,
    /// What happened.
    pub action: Action,
    /// To which kobject.
    pub devpath: String,
    /// Its bus or class.
    pub subsystem: String,
    /// What else is told, in order.
    pub environment: Vec<(String, String)>,
    /// Its number.
    pub sequence: u64,
}

/// As the netlink socket has it, its fields separated by spaces.
impl fmt::Display for Uevent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (action, devpath) = (self.action, &self.devpath);
        write!(f, "{action}@{devpath} ACTION={action} DEVPATH={devpath}")?;
        write!(f, " SUBSYSTEM={}", self.subsystem)?;
        for (key, value) in &self.environment {
            write!(f, " {key}={value}")?;
        }
        write!(f, " SEQNUM={}", self.sequence)
    }
}

impl Model {
    /// All uevents so far.
    pub fn uevents(&self) -> &[Uevent] {
        &self.uevents
    }

    /// The number of the uevent before the next one.
    pub fn set_uevent_sequence(&mut self, sequence: u64) {
        self.uevent_sequence = sequence;
    }

    pub(crate) fn send(
        &mut self,
        action: Action,
        kobject: KobjectId,
        subsystem: &str,
        environment: &[(String, String)],
    ) {
        // Nobody shall load a module for a device that lost its driver
        // (`zap_modalias_env`).
        let told = |key: &str| action != Action::Unbind || key != "MODALIAS";
        self.uevent_sequence += 1;
        let uevent = Uevent {
            at_ns: self.now_ns,
            action,
            devpath: self.sysfs.path(kobject),
            subsystem: subsystem.to_owned(),
            environment: { environment.iter() }
                .filter(|(key, _)| told(key))
                .cloned()
                .collect(),
            sequence: self.uevent_sequence,
        };
        self.log.push(LogLine {
            at_ns: self.now_ns,
            depth: self.depth,
            text: format!("uevent {action}@{}", uevent.devpath),
        });
        self.uevents.push(uevent);
    }
}
