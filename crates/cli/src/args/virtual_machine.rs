//! The virtual machine of `blklab guest` and `compare --world guest`.

use std::path::PathBuf;

use blklab_guest::{Accelerator, default_folder};
use clap::{Args, ValueEnum};

use crate::failure::Failure;

/// A virtual machine.
#[derive(Args)]
#[command(next_help_heading = "In a virtual machine")]
pub(crate) struct GuestArgs {
    /// The folder of the kernel that `blklab guest setup` fetched [default: blklab/guest
    /// in the user's cache]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) guest: Option<PathBuf>,

    /// A kernel module that the guest loads, such as that of our schedulers
    #[arg(long, value_name = "FILE")]
    pub(crate) module: Option<PathBuf>,

    /// The guest's processors [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) guest_cpus: Option<u32>,

    /// How the guest's instructions are executed [default: auto]
    #[arg(long, value_enum)]
    pub(crate) accelerator: Option<AcceleratorArg>,

    /// Let time pass this many times slower for the guest and its drive: executed by software,
    /// its processors are as fast as real ones then, and a run takes as much longer [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) time_dilation: Option<u32>,
}

impl GuestArgs {
    /// Refuses the options that only a guest has; `by` names what would choose one, such as
    /// `--world`.
    pub(crate) fn refuse(&self, by: &str) -> Result<(), Failure> {
        let given = [
            (self.guest.is_some(), "--guest"),
            (self.module.is_some(), "--module"),
            (self.guest_cpus.is_some(), "--guest-cpus"),
            (self.accelerator.is_some(), "--accelerator"),
            (self.time_dilation.is_some(), "--time-dilation"),
        ];
        match given.iter().find(|(given, _)| *given) {
            None => Ok(()),
            Some((_, option)) => Err(Failure::mistake(format!("{option} is for {by} guest"))),
        }
    }

    /// Returns the kernel's folder.
    pub(crate) fn folder(&self) -> PathBuf {
        self.guest.clone().unwrap_or_else(default_folder)
    }

    /// Returns how many times slower time passes in the guest.
    pub(crate) fn time_dilation(&self) -> u32 {
        self.time_dilation.unwrap_or(1)
    }

    /// Returns how the guest's instructions are executed.
    pub(crate) fn accelerator(&self) -> Accelerator {
        match self.accelerator {
            None | Some(AcceleratorArg::Auto) => Accelerator::Auto,
            Some(AcceleratorArg::Kvm) => Accelerator::Kvm,
            Some(AcceleratorArg::Tcg) => Accelerator::Tcg,
        }
    }
}

/// How a guest's instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AcceleratorArg {
    /// The host's processor (KVM) where that works, else software
    Auto,
    /// The host's processor (KVM)
    Kvm,
    /// Software (TCG)
    Tcg,
}
