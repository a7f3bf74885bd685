//! Ctrl-C, SIGTERM and SIGHUP: recorded, so that a run can end in order and restore everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::HostError;

/// The signals that end a run, with their usual names.
const SIGNALS: [(i32, &str); 3] = [(SIGINT, "Ctrl-C"), (SIGTERM, "SIGTERM"), (SIGHUP, "SIGHUP")];

/// Records signals until it is dropped.
#[derive(Debug)]
pub struct Interrupts {
    noted: Vec<(Arc<AtomicBool>, &'static str)>,
    ids: Vec<signal_hook::SigId>,
}

impl Interrupts {
    /// Starts recording signals, which then no longer end the process.
    pub fn watch() -> Result<Interrupts, HostError> {
        let mut watch = Interrupts {
            noted: Vec::new(),
            ids: Vec::new(),
        };
        for (signal, name) in SIGNALS {
            let flag = Arc::new(AtomicBool::new(false));
            let id = signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(|e| HostError::io("watch for signals", "sigaction", e))?;
            watch.ids.push(id);
            watch.noted.push((flag, name));
        }
        Ok(watch)
    }

    /// Returns an error if a signal has arrived.
    pub fn check(&self) -> Result<(), HostError> {
        let came = self
            .noted
            .iter()
            .find(|(flag, _)| flag.load(Ordering::Relaxed));
        match came {
            Some((_, name)) => Err(HostError::Interrupted(name)),
            None => Ok(()),
        }
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Signals go to the whole process, so tests that use them take turns.
#[cfg(test)]
pub(crate) static TURNS: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_noted_and_named() {
        let _turn = TURNS.lock();
        let watch = Interrupts::watch().unwrap();
        watch.check().unwrap();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        let error = watch.check().unwrap_err();
        assert!(error.to_string().contains("SIGTERM"), "{error}");
    }
}
