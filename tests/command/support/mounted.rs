//! Folders that a command has mounted.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use super::Place;

/// A command that mounts something on `mnt`; it is unmounted before the test's folder goes.
pub struct Mounted<'a> {
    place: &'a Place,
    pub child: Child,
}

impl<'a> Mounted<'a> {
    /// Starts it and waits until it has `said` that it is mounted; `None` where this machine does
    /// not let us mount.
    pub fn start(place: &'a Place, arguments: &[&str], said: &str) -> Option<Mounted<'a>> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_blklab"))
            .args(arguments)
            .current_dir(place.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("text");
        if line.is_empty() {
            let mut why = String::new();
            let err = child.stderr.as_mut().expect("a pipe");
            err.read_to_string(&mut why).expect("text");
            assert_eq!(child.wait().expect("it ends").code(), Some(2), "{why}");
            blklab_judges::not_possible(&why);
            return None;
        }
        assert_eq!(line, said);
        Some(Mounted { place, child })
    }

    pub fn shell(&self, line: &str) -> String {
        let output = Command::new("sh")
            .args(["-ec", line])
            .current_dir(self.place.path("mnt"))
            .output()
            .expect("a shell");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {err}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Ends it by SIGTERM; it ends well.
    pub fn end(mut self) {
        assert!(self.terminate(), "a signal");
        self.ends_well();
    }

    /// Sends it SIGTERM; whether that went.
    pub fn terminate(&self) -> bool {
        terminate(&self.child)
    }

    /// Waits until it has ended.
    pub fn ends_well(&mut self) {
        let mut why = String::new();
        let err = self.child.stderr.as_mut().expect("a pipe");
        err.read_to_string(&mut why).expect("text");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0), "{why}");
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            // A test that failed: nothing more is asked than that it goes.
            terminate(&self.child);
            terminate(&self.child);
            let _ = self.child.wait();
        }
    }
}

fn terminate(child: &Child) -> bool {
    let pid = child.id().to_string();
    Command::new("kill")
        .arg(&pid)
        .status()
        .is_ok_and(|status| status.success())
}
