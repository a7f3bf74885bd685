//! Front ends: the ways from a program to a disk of the guest's kernel. The disk behind
//! each is the same, in memory or a drive's model that the program paces.

use std::path::{Path, PathBuf};

use blklab_description::hint;
use blklab_driver::{FrontEnd as ModelledFrontEnd, FrontEndKind};

use crate::error::Error;

/// The drive that is memory: as a front end's disk it is not paced.
pub(crate) const MEMORY: &str = "memory";

/// The kernel's loop driver.
pub(crate) const LOOP: &str = "loop";

/// Where a drive's description is in the guest.
pub(crate) const DRIVE_FILE: &str = "drive.toml";

/// The most connections or queues that a front end can be given.
const MAX_QUEUES: u32 = 16;

/// A way from a program to a disk of the guest's kernel.
#[derive(Debug)]
pub struct FrontEnd {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub help: &'static str,
    /// The disk in the guest.
    pub(crate) device: &'static str,
    /// Modules of the guest's kernel.
    pub(crate) modules: &'static [&'static str],
    /// Programs that the guest needs beside ours.
    pub(crate) programs: &'static [&'static str],
    /// What a number behind its name counts, if it takes one.
    counted: Option<&'static str>,
    pub(crate) server: ServerPlace,
}

/// Where the program behind a front end runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerPlace {
    /// In the guest, beside the job, started by these commands.
    Guest(&'static str),
    /// Outside; the virtual machine's monitor is its client.
    Host,
    /// There is none: these commands put the kernel's own driver on a file or a disk.
    Kernel(&'static str),
    /// The same with memory alone.
    Memory(&'static str),
}

/// A disk that is served outside, in the guest.
pub(crate) const SERVED_DEVICE: &str = "/dev/vda";

/// All front ends.
pub const FRONT_ENDS: &[FrontEnd] = &[
    FrontEnd {
        name: "nbd",
        help: "NBD, with the kernel's client; nbd:N has N connections and as many threads",
        device: "/dev/nbd0",
        modules: &["nbd"],
        programs: &["nbd-client"],
        counted: Some("connections"),
        server: ServerPlace::Guest(
            "serve --socket /tmp/disk.sock --threads $COUNT\n\
             /bin/nbd-client -unix /tmp/disk.sock /dev/nbd0 -C $COUNT",
        ),
    },
    FrontEnd {
        name: "vhost-user",
        help: "vhost-user-blk, a virtio disk whose server is outside; vhost-user:N has N queues",
        device: SERVED_DEVICE,
        modules: &[],
        programs: &[],
        counted: Some("queues"),
        server: ServerPlace::Host,
    },
    FrontEnd {
        name: "ublk",
        help: "ublk, with a queue for each processor",
        device: "/dev/ublkb0",
        modules: &["ublk_drv"],
        programs: &[],
        counted: None,
        server: ServerPlace::Guest("serve --ublk 0"),
    },
    FrontEnd {
        name: "tcmu",
        help: "TCMU, a SCSI disk of target_core_user, over tcm_loop",
        device: "/dev/sda",
        modules: &["target_core_user", "tcm_loop", "sd_mod"],
        programs: &[],
        counted: None,
        server: ServerPlace::Guest(
            "mount -t configfs none /sys/kernel/config\n\
             serve --tcmu disk",
        ),
    },
    FrontEnd {
        name: LOOP,
        help: "the kernel's loop driver, on a file in memory or on the drive's model",
        device: "/dev/loop0",
        modules: &["loop"],
        programs: &["losetup"],
        counted: None,
        server: ServerPlace::Kernel("/bin/losetup $DIRECT /dev/loop0 $DISK"),
    },
    FrontEnd {
        name: "lio-fileio",
        help: "the kernel's SCSI target on a file in memory, over tcm_loop",
        device: "/dev/sda",
        modules: &["tcm_loop", "target_core_file", "sd_mod"],
        programs: &[],
        counted: None,
        server: ServerPlace::Memory("lio fileio_0 fd_dev_name=$DISK,fd_dev_size=$BYTES"),
    },
    FrontEnd {
        name: "lio-ramdisk",
        help: "the kernel's SCSI target on its own memory, over tcm_loop",
        device: "/dev/sda",
        modules: &["tcm_loop", "sd_mod"],
        programs: &[],
        counted: None,
        server: ServerPlace::Memory("lio rd_mcp_0 rd_pages=$((BYTES / 4096))"),
    },
];

/// Starts a server of ours, and waits until clients can connect.
const SERVE: &str = "\
serve() {
    $BLKLAB serve $SERVED \"$@\" >/tmp/served &
    until [ -s /tmp/served ]; do
        kill -0 $! || exit 1
        usleep 10000
    done
}
";

/// Makes a backstore of LIO's, and a SCSI disk of it (Documentation/target/scripts).
const LIO: &str = "\
lio() {
    mount -t configfs none /sys/kernel/config
    core=/sys/kernel/config/target/core/$1/disk
    fabric=/sys/kernel/config/target/loopback/naa.5000000000000001
    mkdir -p $core $fabric/tpgt_1/lun/lun_0
    echo $2 >$core/control
    echo 1 >$core/enable
    echo naa.5000000000000002 >$fabric/tpgt_1/nexus
    ln -s $core $fabric/tpgt_1/lun/lun_0/disk
}
";

/// A disk's file in the guest's memory, for the kernel's own drivers.
const FILE: &str = "/tmp/disk";

/// What a disk's commands are told of it.
pub(crate) struct DiskBehind<'a> {
    /// What the program is called in the guest.
    pub(crate) program: &'a str,
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// Whether it is a drive's model, not memory.
    pub(crate) is_paced: bool,
    /// Whether what was written is read back.
    pub(crate) keeps_data: bool,
    /// The disk that the model is without a front end.
    pub(crate) attached: &'a Path,
}

/// A front end, as an experiment names it: `nbd`, `nbd:4`.
#[derive(Clone, Debug)]
pub(crate) struct NamedFrontEnd {
    pub(crate) kind: &'static FrontEnd,
    pub(crate) count: u32,
}

impl NamedFrontEnd {
    pub(crate) fn parse(text: &str) -> Result<NamedFrontEnd, Error> {
        let (name, count) = match text.split_once(':') {
            None => (text, None),
            Some((name, count)) => (name, Some(count)),
        };
        let Some(kind) = FRONT_ENDS.iter().find(|kind| kind.name == name) else {
            let names = FRONT_ENDS.iter().map(|kind| kind.name);
            let all = names.clone().collect::<Vec<_>>().join(", ");
            let hint = hint(name, names);
            return Err(Error::Mistake(format!(
                "--frontends: there is no front end {name}; there are {all}{hint}"
            )));
        };
        let count = match (count, kind.counted) {
            (None, _) => 1,
            (Some(_), None) => {
                return Err(Error::Mistake(format!(
                    "--frontends {text}: {name} takes no number"
                )));
            }
            (Some(count), Some(counted)) => {
                let number = count.parse().ok();
                let number = number.filter(|number| (1..=MAX_QUEUES).contains(number));
                number.ok_or_else(|| {
                    Error::Mistake(format!(
                        "--frontends {text}: {name} has from 1 to {MAX_QUEUES} {counted}"
                    ))
                })?
            }
        };
        Ok(NamedFrontEnd { kind, count })
    }

    /// The model of it, which `text` names.
    ///
    /// # Errors
    /// Where there is no model.
    pub(crate) fn simulated(&self, text: &str) -> Result<ModelledFrontEnd, Error> {
        let has_name = |kind: &FrontEndKind| kind.name() == self.kind.name;
        let Some(kind) = FrontEndKind::ALL.into_iter().find(has_name) else {
            let names = FrontEndKind::ALL.map(FrontEndKind::name).join(", ");
            return Err(Error::Mistake(format!(
                "front end {text}: there is no model of it in the simulated world, which has \
                 {names} and {LOOP}; right is one of these, or --world guest"
            )));
        };
        Ok(ModelledFrontEnd {
            kind,
            queues: self.count,
        })
    }

    /// The disk in the guest.
    pub(crate) fn device(&self) -> PathBuf {
        PathBuf::from(self.kind.device)
    }

    /// The commands that make it there, if the monitor does not.
    ///
    /// # Errors
    /// Where the front end cannot have such a disk.
    pub(crate) fn commands(&self, behind: &DiskBehind<'_>) -> Result<Option<String>, Error> {
        let DiskBehind {
            program,
            bytes,
            is_paced,
            keeps_data,
            attached,
        } = *behind;
        let data = if keeps_data { "--memory" } else { "--null" };
        let (setup, own) = match self.kind.server {
            ServerPlace::Host => return Ok(None),
            ServerPlace::Guest(own) if is_paced => {
                let served = format!("--drive /{DRIVE_FILE} {data} {bytes}");
                (format!("{SERVE}SERVED=\"{served}\"\n"), own)
            }
            ServerPlace::Guest(own) => (format!("{SERVE}SERVED=\"{data} {bytes}\"\n"), own),
            ServerPlace::Kernel(own) if is_paced => {
                let disk = attached.display();
                (format!("DISK={disk} DIRECT=--direct-io=on\n"), own)
            }
            ServerPlace::Memory(_) if is_paced => {
                return Err(Error::Mistake(format!(
                    "--frontends {}: its disk is in memory; leave --drive out",
                    self.kind.name
                )));
            }
            ServerPlace::Kernel(own) | ServerPlace::Memory(own) => {
                let file = format!("truncate -s {bytes} {FILE}\nDISK={FILE}\n");
                (format!("{LIO}{file}"), own)
            }
        };
        let count = self.count;
        Ok(Some(format!(
            "set -e\n{setup}BLKLAB={program} BYTES={bytes} COUNT={count}\n{own}\n"
        )))
    }

    /// Whether a server outside paces the drive's model for it.
    pub(crate) fn is_served_outside(&self, is_paced: bool) -> bool {
        match self.kind.server {
            ServerPlace::Host => true,
            ServerPlace::Kernel(_) => is_paced,
            ServerPlace::Guest(_) | ServerPlace::Memory(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_say_which_front_ends_there_are() {
        for (text, expected) in [
            ("nbdd", "did you mean nbd?"),
            ("", "there are nbd, vhost-user, ublk"),
            ("nbd:0", "from 1 to 16 connections"),
            ("vhost-user:x", "from 1 to 16 queues"),
            ("ublk:2", "takes no number"),
        ] {
            let error = NamedFrontEnd::parse(text).expect_err("a mistake");
            assert!(error.is_mistake());
            assert!(error.to_string().contains(expected), "{error}");
        }
        let error = NamedFrontEnd::parse("lio-fileio").map(|named| named.simulated("lio-fileio"));
        let error = error.expect("a front end").expect_err("no model");
        assert!(
            error.to_string().contains("there is no model of it"),
            "{error}"
        );
        let two = NamedFrontEnd::parse("nbd:2").expect("a front end");
        assert_eq!((two.device(), two.count), (PathBuf::from("/dev/nbd0"), 2));
    }

    #[test]
    fn commands_put_the_same_disk_behind_each() {
        let behind = |is_paced| DiskBehind {
            program: "blklab",
            bytes: 4096,
            is_paced,
            keeps_data: !is_paced,
            attached: Path::new("/dev/sda"),
        };
        let commands = |name: &str, is_paced| {
            let named = NamedFrontEnd::parse(name).expect("a front end");
            let commands = named.commands(&behind(is_paced));
            commands.expect("a disk").unwrap_or_default()
        };
        assert!(commands("nbd:4", false).contains("SERVED=\"--memory 4096\""));
        assert!(commands("nbd:4", false).contains("COUNT=4"));
        let paced = commands("ublk", true);
        assert!(paced.contains("--drive /drive.toml --null 4096"), "{paced}");
        assert!(commands("loop", true).contains("DISK=/dev/sda"));
        assert!(commands("loop", false).contains("DISK=/tmp/disk"));
        assert_eq!(commands("vhost-user", false), "");
        let lio = NamedFrontEnd::parse("lio-ramdisk").expect("a front end");
        let error = lio.commands(&behind(true)).expect_err("it is memory");
        assert!(error.to_string().contains("leave --drive out"), "{error}");
    }
}
