//! Initcalls: in which order built-in code is started (`include/linux/init.h`,
//! `init/main.c`).

use std::fmt;
use std::rc::Rc;

use crate::Model;

/// When during boot. Levels are run in this order; of each but the first and the
/// root file system's, those with `_sync` come after all without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the kernel's names")]
pub enum Level {
    Pure,
    Core,
    CoreSync,
    Postcore,
    PostcoreSync,
    Arch,
    ArchSync,
    Subsys,
    SubsysSync,
    Fs,
    FsSync,
    Rootfs,
    Device,
    DeviceSync,
    Late,
    LateSync,
}

impl Level {
    /// All of them, in order.
    pub const ALL: [Level; 16] = [
        Level::Pure,
        Level::Core,
        Level::CoreSync,
        Level::Postcore,
        Level::PostcoreSync,
        Level::Arch,
        Level::ArchSync,
        Level::Subsys,
        Level::SubsysSync,
        Level::Fs,
        Level::FsSync,
        Level::Rootfs,
        Level::Device,
        Level::DeviceSync,
        Level::Late,
        Level::LateSync,
    ];
}

/// The macro's name.
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Pure => "pure_initcall",
            Level::Core => "core_initcall",
            Level::CoreSync => "core_initcall_sync",
            Level::Postcore => "postcore_initcall",
            Level::PostcoreSync => "postcore_initcall_sync",
            Level::Arch => "arch_initcall",
            Level::ArchSync => "arch_initcall_sync",
            Level::Subsys => "subsys_initcall",
            Level::SubsysSync => "subsys_initcall_sync",
            Level::Fs => "fs_initcall",
            Level::FsSync => "fs_initcall_sync",
            Level::Rootfs => "rootfs_initcall",
            Level::Device => "device_initcall",
            Level::DeviceSync => "device_initcall_sync",
            Level::Late => "late_initcall",
            Level::LateSync => "late_initcall_sync",
        })
    }
}

/// What an initcall does, or the message of what went wrong.
pub type Call = Rc<dyn Fn(&mut Model) -> Result<(), String>>;

/// A function that boot calls.
#[derive(Clone)]
pub struct Initcall {
    /// When.
    pub level: Level,
    /// The function's name.
    pub name: &'static str,
    /// What it does; what went wrong is noted, and boot goes on.
    pub call: Call,
}

impl Model {
    /// Calls all of them: level by level, within one in the order given (the
    /// linker's). Once all devices' initcalls are through, deferred probes are tried
    /// again (`deferred_probe_initcall`, a late one).
    pub fn run_initcalls(&mut self, initcalls: &[Initcall]) {
        for level in Level::ALL {
            let calls = initcalls.iter().filter(|call| call.level == level);
            self.enter(level.to_string());
            for initcall in calls {
                self.enter(format!("initcall {}", initcall.name));
                if let Err(message) = (initcall.call)(self) {
                    self.note(format!("{} failed: {message}", initcall.name));
                }
                self.leave();
            }
            if level == Level::Late {
                self.enter("initcall deferred_probe_initcall");
                self.retry_deferred();
                self.leave();
            }
            self.run_asynchronous();
            self.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_come_in_order_and_links_within_a_level_too() {
        let call = |level, name| Initcall {
            level,
            name,
            call: Rc::new(|_| Ok(())),
        };
        let calls = [
            call(Level::Late, "d"),
            call(Level::DeviceSync, "c"),
            call(Level::Device, "b"),
            call(Level::Subsys, "a"),
            call(Level::Device, "b2"),
        ];
        let mut model = Model::new();
        model.run_initcalls(&calls);
        let called: Vec<&str> = { model.log().iter() }
            .filter_map(|line| line.text.strip_prefix("initcall "))
            .filter(|name| name.len() < 3)
            .collect();
        assert_eq!(called, ["a", "b", "b2", "c", "d"]);
    }
}
