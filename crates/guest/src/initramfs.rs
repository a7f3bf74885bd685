//! The file system that a guest starts with: an archive in cpio's `newc` form
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::packages::{Packages, program};

const INIT: &str = include_str!("init.sh");

/// Modes of files in the archive.
const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// Folders that the first process mounts on or writes to.
const FOLDERS: [&str; 8] = [
    "bin", "sbin", "proc", "sys", "dev", "tmp", "root", "modules",
];

/// The file system that a guest starts with.
pub struct Initramfs<'a> {
    packages: &'a Packages,
    archive: Vec<u8>,
    names: BTreeSet<String>,
    /// Names of modules in the order of loading, each with its parameters.
    order: Vec<(String, String)>,
}

impl<'a> Initramfs<'a> {
    /// One with busybox, fio and the first process.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub fn new(packages: &'a Packages) -> Result<Initramfs<'a>, Error> {
        let mut initramfs = Initramfs {
            packages,
            archive: Vec::new(),
            names: BTreeSet::new(),
            order: Vec::new(),
        };
        for folder in FOLDERS {
            initramfs.add_folder(folder);
        }
        initramfs.add("init", INIT.as_bytes());
        for name in ["busybox", "fio"] {
            let found = program(name).ok_or_else(|| Error::Missing(format!("no {name} here")))?;
            initramfs.add_program(&found)?;
        }
        Ok(initramfs)
    }

    /// Puts a program into `/bin`, with the libraries that it is linked to.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn add_program(&mut self, path: &Path) -> Result<(), Error> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let bytes = std::fs::read(path).map_err(|e| Error::file(path, e))?;
        self.add(&format!("bin/{name}"), &bytes);
        let unpacked = self.packages.root();
        // ldd fails for a program that is linked to none.
        let libraries = Command::new("ldd")
            .arg(path)
            .env("LD_LIBRARY_PATH", unpacked.join("lib/x86_64-linux-gnu"))
            .stderr(Stdio::null())
            .output();
        let libraries = libraries.map_err(|e| Error::Missing(format!("ldd: {e}")))?;
        let text = String::from_utf8_lossy(&libraries.stdout).into_owned();
        for library in text.split_whitespace().filter(|word| word.starts_with('/')) {
            let file = Path::new(library);
            let bytes = std::fs::read(file).map_err(|e| Error::file(file, e))?;
            // Those of unpacked packages stand where the packages would put them.
            let place = file.strip_prefix(&unpacked).unwrap_or(file);
            let place = place.to_string_lossy();
            self.add_below_folders(place.trim_start_matches('/'), &bytes);
        }
        Ok(())
    }

    /// Adds a file in the topmost folder.
    pub fn add_file(&mut self, name: &str, bytes: &[u8]) {
        self.add(name, bytes);
    }

    /// Has a module of the kernel's packages loaded, behind those that it needs.
    ///
    /// # Errors
    /// Where the kernel has no such module.
    pub fn load(&mut self, name: &str, parameters: &str) -> Result<(), Error> {
        let folder = self.packages.modules();
        let list = folder.join("modules.dep");
        let text = std::fs::read_to_string(&list).map_err(|e| Error::file(&list, e))?;
        let found = text.lines().filter_map(|line| line.split_once(':'));
        let mut found = found.filter(|(path, _)| module_name(path) == name.replace('-', "_"));
        let Some((path, needed)) = found.next() else {
            let release = self.packages.release();
            return Err(Error::Missing(format!(
                "the guest's kernel ({release}) has no module {name}"
            )));
        };
        // Each comes before those that it needs.
        let needed: Vec<&str> = needed.split_whitespace().collect();
        for path in needed.into_iter().rev().chain([path]) {
            let file = format!("{}.ko", module_name(path));
            if !self.order.iter().any(|(known, _)| *known == file) {
                let bytes = unpacked(&folder.join(path))?;
                self.add(&format!("modules/{file}"), &bytes);
                self.order.push((file, String::new()));
            }
        }
        if let Some((_, given)) = self.order.last_mut() {
            *given = parameters.to_string();
        }
        Ok(())
    }

    /// Has a module loaded that was built for the guest's kernel.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn load_file(&mut self, path: &Path) -> Result<(), Error> {
        let bytes = std::fs::read(path)
            .map_err(|e| Error::Missing(format!("--module {}: {e}", path.display())))?;
        let file = format!("{}.ko", module_name(&path.to_string_lossy()));
        self.add(&format!("modules/{file}"), &bytes);
        self.order.push((file, String::new()));
        Ok(())
    }

    /// Writes the archive, whose first process runs `main`.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(mut self, main: &str, to: &Path) -> Result<(), Error> {
        let line = |(file, parameters): &(String, String)| format!("{file} {parameters}\n");
        let order: String = self.order.iter().map(line).collect();
        self.add("modules/order", order.as_bytes());
        self.add("main", main.as_bytes());
        entry(&mut self.archive, "TRAILER!!!", 0, &[]);
        std::fs::write(to, &self.archive).map_err(|e| Error::file(to, e))
    }

    fn add(&mut self, name: &str, bytes: &[u8]) {
        if self.names.insert(name.to_string()) {
            entry(&mut self.archive, name, PROGRAM, bytes);
        }
    }

    fn add_folder(&mut self, name: &str) {
        if self.names.insert(name.to_string()) {
            entry(&mut self.archive, name, FOLDER, &[]);
        }
    }

    /// A file and the folders on its way.
    fn add_below_folders(&mut self, name: &str, bytes: &[u8]) {
        let mut folder = PathBuf::new();
        let parents = Path::new(name).parent().into_iter();
        for part in parents.flat_map(Path::components) {
            if let Component::Normal(part) = part {
                folder.push(part);
                self.add_folder(&folder.to_string_lossy());
            }
        }
        self.add(name, bytes);
    }
}

/// The kernel's name for the module in a file: `sd_mod` for `.../sd_mod.ko.xz`.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or_default();
    let name = file.split(".ko").next().unwrap_or_default();
    name.replace('-', "_")
}

fn unpacked(path: &Path) -> Result<Vec<u8>, Error> {
    if path.extension().is_none_or(|extension| extension != "xz") {
        return std::fs::read(path).map_err(|e| Error::file(path, e));
    }
    let mut xz = Command::new("xz")
        .arg("-dc")
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| Error::Missing(format!("xz: {e}")))?;
    let mut bytes = Vec::new();
    if let Some(mut output) = xz.stdout.take() {
        output
            .read_to_end(&mut bytes)
            .map_err(|e| Error::file(path, e))?;
    }
    match xz.wait() {
        Ok(status) if status.success() => Ok(bytes),
        _ => Err(Error::Failed(format!("{}: xz fails", path.display()))),
    }
}

/// One entry: a header of numbers in hexadecimal, the name and the bytes, each padded
/// to four.
fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, bytes: &[u8]) {
    let number = archive.len();
    let links = 1 + usize::from(mode == FOLDER);
    let fields = [
        number,
        mode as usize,
        0,
        0,
        links,
        0,
        bytes.len(),
        0,
        0,
        0,
        0,
        name.len() + 1,
        0,
    ];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(bytes);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn cpio_reads_what_is_written() {
        let Some(_) = program("cpio") else {
            return;
        };
        let mut archive = Vec::new();
        entry(&mut archive, "a", FOLDER, &[]);
        entry(&mut archive, "a/b", PROGRAM, b"12345");
        entry(&mut archive, "TRAILER!!!", 0, &[]);
        let mut cpio = Command::new("cpio")
            .args(["-t", "-v", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cpio");
        let mut input = cpio.stdin.take().expect("its input");
        input.write_all(&archive).expect("written");
        drop(input);
        let said = cpio.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let lines: Vec<Vec<&str>> = said
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines.len(), 2, "{said}");
        assert!(lines[0][0].starts_with("drwxr-xr-x"), "{said}");
        assert_eq!((lines[1][4], lines[1].last()), ("5", Some(&"a/b")));
    }

    #[test]
    fn modules_have_the_kernels_names() {
        assert_eq!(
            module_name("kernel/drivers/nvme/host/nvme-core.ko.xz"),
            "nvme_core"
        );
        assert_eq!(module_name("blklab-iosched.ko"), "blklab_iosched");
    }
}
