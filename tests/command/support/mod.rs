//! Runs `blklab` as a user does, each test in a folder of its own.

pub mod guest;
pub mod loop_device;
pub mod mounted;
pub mod served;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

/// Sends a running program a signal, as `-INT`.
pub fn send_signal(child: &Child, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.expect("kill runs").success());
}

/// How often a test kills a server: `make kills` has each do so a hundred times, by the variable
/// `BLKLAB_KILLS`.
pub fn kills(usual: usize) -> usize {
    let wanted = std::env::var("BLKLAB_KILLS").ok();
    wanted.map_or(usual, |text| {
        text.parse().expect("BLKLAB_KILLS is a number")
    })
}

/// A folder that goes with the test.
pub struct Place {
    folder: tempfile::TempDir,
}

/// What a command did.
pub struct Outcome {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Place {
        Place {
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file here.
    pub fn file(&self, name: &str, text: &str) -> &Place {
        std::fs::write(self.path(name), text).expect("a file in the test's folder");
        self
    }

    /// Files here, by name.
    pub fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.folder.path())
            .expect("the test's folder")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into()
            })
            .collect();
        names.sort();
        names
    }

    /// Runs the command here.
    pub fn blklab(&self, args: &[&str]) -> Outcome {
        self.run(Path::new(env!("CARGO_BIN_EXE_blklab")), args)
    }

    /// Runs the command here, which goes well, and reads the JSON it prints.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let json = ["--output-format", "json"];
        // Options after a `--` are fio's.
        let own = args.iter().position(|&arg| arg == "--");
        let (own, fio) = args.split_at(own.unwrap_or(args.len()));
        self.blklab(&[own, &json, fio].concat()).ok().json()
    }

    /// Runs another program here.
    pub fn run(&self, program: &Path, args: &[&str]) -> Outcome {
        let output: Output = Command::new(program)
            .args(args)
            .current_dir(self.folder.path())
            .env("NO_COLOR", "1")
            .output()
            .expect("the program starts");
        Outcome {
            status: output.status.code().expect("an exit status"),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Outcome {
    /// It went well.
    pub fn ok(self) -> Outcome {
        assert_eq!(self.status, 0, "{}\n{}", self.out, self.err);
        self
    }

    /// What it printed, which is JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).expect("JSON")
    }
}

/// Whether FUSE is to be had here; says so where it is not.
pub fn have_fuse() -> bool {
    let open = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    if let Err(error) = &open {
        blklab_judges::not_possible(&format!("/dev/fuse: {error}"));
    }
    open.is_ok()
}

/// A short job that keeps a queue above a drive.
pub const MIXED: &str = "\
[global]
filename=/dev/ssd
direct=1
ioengine=libaio
iodepth=64
norandommap
number_ios=4000
[mixed]
rw=randrw
rwmixread=70
bs=4k
";

/// Has the tool that checks such images look at `disk.img`, where it is installed.
pub fn check_image(place: &Place, program: &str, arguments: &[&str]) {
    if !blklab_judges::have(program) {
        return;
    }
    let image = place.path("disk.img");
    let output = Command::new(program).args(arguments).arg(&image).output();
    let output = output.expect("installed");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program}: {said}");
}
