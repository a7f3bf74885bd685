//! A server of our own, and the programs that judge it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::{Outcome, Place, send_signal};

/// A server that runs for as long as this is held.
pub struct Served {
    child: Child,
    out: BufReader<ChildStdout>,
    pub socket: PathBuf,
    pub control: PathBuf,
}

impl Served {
    /// Starts `blklab serve` in the test's folder, with these options beside its
    /// sockets. When it returns, clients can connect.
    pub fn start(place: &Place, args: &[&str]) -> Served {
        let socket = place.path("b.sock").to_string_lossy().into_owned();
        let args = [&["--socket", &socket], args].concat();
        Served::start_with(place, "b.sock", &args)
    }

    /// The same, where the options name the socket: a file in the test's folder.
    pub fn start_with(place: &Place, socket: &str, args: &[&str]) -> Served {
        let control = place.path(&format!("{socket}.control"));
        let socket = place.path(socket);
        let mut child = Command::new(env!("CARGO_BIN_EXE_blklab"))
            .arg("serve")
            .arg("--control")
            .arg(&control)
            .args(args)
            .current_dir(place.path("."))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        assert!(line.starts_with("nbd+unix:"), "the server says {line:?}");
        Served {
            child,
            out,
            socket,
            control,
        }
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// The next line it says: where else it can be found.
    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line.trim_end().to_string()
    }

    /// What it says where metrics are, of a server with `--metrics` that has just started.
    pub fn metrics_address(&mut self) -> String {
        let line = self.next_line();
        let address = line.strip_prefix("metrics: http://");
        let address = address.and_then(|rest| rest.strip_suffix("/metrics"));
        address.unwrap_or_else(|| panic!("{line}")).to_string()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: &str) {
        send_signal(&self.child, signal);
    }

    /// Ends it without a word, in the middle of whatever it does.
    pub fn kill(mut self) {
        self.signal("-KILL");
        self.child.wait().expect("it ends");
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end, and returns its exit status.
    pub fn terminate(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.child.wait().expect("it ends").code()
    }

    pub fn set(&self, place: &Place, name: &str, value: &str) {
        let control = self.control.to_string_lossy().into_owned();
        place
            .blklab(&["set", "--control", &control, name, value])
            .ok();
    }

    pub fn get(&self, place: &Place, name: &str) -> String {
        let control = self.control.to_string_lossy().into_owned();
        let shown = place.blklab(&["get", "--control", &control, name]).ok();
        shown.out.trim_end().to_string()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of the first metric that begins so and has these words.
pub fn metric(address: &str, name: &str, words: &[&str]) -> u64 {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it answers");
    let is_it =
        |line: &&str| line.starts_with(name) && words.iter().all(|word| line.contains(word));
    let line = reply.lines().find(is_it);
    let line = line.unwrap_or_else(|| panic!("no {name} {words:?}: {reply}"));
    let value = line.rsplit(' ').next().and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| panic!("{line}"))
}

#[allow(unused_imports, reason = "each test uses its part")]
pub use blklab_judges::have;

/// Runs a judge, which must be content.
pub fn judge(place: &Place, program: &str, args: &[&str]) -> Outcome {
    let done = Command::new(program)
        .args(args)
        .current_dir(place.path("."))
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let outcome = Outcome {
        status: done.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&done.stdout).into_owned(),
        err: String::from_utf8_lossy(&done.stderr).into_owned(),
    };
    assert_eq!(
        outcome.status, 0,
        "{program} {args:?}\n{}\n{}",
        outcome.out, outcome.err
    );
    outcome
}

/// Runs pieces of Python with a handle `h` on an export, which must do well.
pub fn nbdsh(place: &Place, uri: &str, pieces: &[&str]) -> String {
    // libnbd's module is the system's Python's, whatever else is there.
    let mut args = vec![
        "PATH=/usr/bin:/bin",
        "nbdsh",
        "--base-allocation",
        "-u",
        uri,
    ];
    for piece in pieces {
        args.extend(["-c", piece]);
    }
    judge(place, "env", &args).out
}

/// fio's options for a load that checks every block it reads.
pub fn verified(uri: &str, jobs: u32, rw: &str, size: &str) -> Vec<String> {
    [
        "--name=t",
        "--ioengine=nbd",
        &format!("--uri={uri}"),
        &format!("--rw={rw}"),
        "--bsrange=512-64k",
        "--bs_unaligned=0",
        "--iodepth=32",
        &format!("--numjobs={jobs}"),
        &format!("--size={size}"),
        &format!("--offset_increment={size}"),
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_backlog=256",
        "--group_reporting",
    ]
    .map(String::from)
    .to_vec()
}
