//! Traces of the page cache: where they lie, and copies of which something is changed.

use std::fs;
use std::path::{Path, PathBuf};

use blklab_conform::{Report, Tally};
use tempfile::TempDir;

/// The page cache's traces in this repository.
pub fn ours() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/page-cache-traces")
}

/// The folder of more traces, where the user names one.
pub fn elsewhere() -> Option<PathBuf> {
    let directory = std::env::var_os("BLKLAB_PAGE_CACHE_TRACES").map(PathBuf::from);
    if directory.is_none() {
        blklab_judges::not_possible("more traces: BLKLAB_PAGE_CACHE_TRACES names no directory");
    }
    directory
}

/// The traces of this kind below `directory`, in order.
pub fn traces(directory: &Path, kind: &str) -> Vec<PathBuf> {
    let folder = directory.join(kind);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found: Vec<PathBuf> = (entries.map(|entry| entry.unwrap().path()))
        .filter(|path| path.to_string_lossy().ends_with(".trace.gz"))
        .collect();
    found.sort();
    found
}

/// What was counted of events of this kind.
pub fn tally(report: &Report, kind: &str) -> Tally {
    let totals = report.totals();
    totals.into_iter().find(|tally| tally.kind == kind).unwrap()
}

/// A copy of one recorded run.
pub struct Copy {
    folder: TempDir,
    name: &'static str,
}

impl Copy {
    pub fn new(kind: &str, name: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for ending in ["trace.gz", "calls.txt", "json"] {
            let file = format!("{name}.{ending}");
            fs::copy(ours().join(kind).join(&file), folder.path().join(&file)).unwrap();
        }
        Self { folder, name }
    }

    pub fn file(&self, ending: &str) -> PathBuf {
        self.folder.path().join(format!("{}.{ending}", self.name))
    }

    /// Says `new` in the description where it says `old`.
    pub fn describe(self, old: &str, new: &str) -> Self {
        let text = fs::read_to_string(self.file("json")).unwrap();
        let changed = text.replace(old, new);
        assert_ne!(text, changed);
        fs::write(self.file("json"), changed).unwrap();
        self
    }

    pub fn trace(&self) -> PathBuf {
        self.file("trace.gz")
    }
}
