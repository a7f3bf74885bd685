//! Folders that are mounted until somebody unmounts them or a signal arrives.

use std::path::Path;

use blklab_boot::Booted;
use blklab_serve::{SysfsMount, Unmounter};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::output;

/// Catches signals before anything is mounted, so that none is missed.
pub(crate) fn catch_signals() -> Result<Signals, Failure> {
    Signals::new([SIGINT, SIGTERM]).map_err(|error| Failure::Broken(error.to_string()))
}

/// Unmounts when a signal arrives.
pub(crate) fn unmount_on_signal(mut signals: Signals, mut unmounter: Unmounter) {
    std::thread::spawn(move || {
        let mut signals = signals.forever();
        signals.next();
        unmounter.unmount();
        // A second signal does not wait for programs that have files open there.
        signals.next();
        std::process::exit(1);
    });
}

/// Shows the `/sys` of a machine that has started as files in a folder.
pub(crate) fn mount_sysfs(booted: &Booted, board: &str, folder: &Path) -> Result<(), Failure> {
    let signals = catch_signals()?;
    let mounted = SysfsMount::new(booted.model().sysfs().clone(), folder);
    let mut mounted = mounted.map_err(Failure::mistake)?;
    unmount_on_signal(signals, mounted.unmounter());
    output::print(format!(
        "/sys of {board} is mounted on {}\n",
        folder.display()
    ))?;
    mounted.serve().map_err(Failure::Broken)
}
