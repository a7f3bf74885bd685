//! Which files of a process are open: fio's `td_io_open_file`, `td_io_close_file` and `put_file`.
//!
//! A file that is done closes, but not before its I/Os were reaped; `openfiles` limits how many are
//! open.

use crate::fio::JobSpec;

/// The open files of a process.
#[derive(Clone, Debug)]
pub struct OpenFiles {
    files: Vec<OpenFile>,
    open: usize,
    limit: usize,
    /// The files that are closing, in the order in which they were done.
    closing: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct OpenFile {
    is_open: bool,
    is_closing: bool,
    /// The number of I/Os that are decided on and not reaped.
    ios: u32,
}

impl OpenFiles {
    pub(crate) fn new(spec: &JobSpec, files: usize) -> OpenFiles {
        OpenFiles {
            files: vec![OpenFile::default(); files],
            open: 0,
            limit: match spec.open_files as usize {
                0 => files,
                limit => limit.min(files),
            },
            closing: Vec::new(),
        }
    }

    /// Whether a file is open; one that closes still is.
    #[inline]
    pub fn is_open(&self, file: u32) -> bool {
        self.files[file as usize].is_open
    }

    /// Whether I/O may go to a file: it is open and does not close.
    #[inline]
    pub(crate) fn is_usable(&self, file: usize) -> bool {
        self.files[file].is_open && !self.files[file].is_closing
    }

    /// Whether as many files are open as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.open >= self.limit
    }

    /// A file is opened. The limit holds for files that are chosen for I/O alone: fio opens what it
    /// verifies or flushes at the end beyond it.
    pub fn open(&mut self, file: u32) {
        let state = &mut self.files[file as usize];
        if !std::mem::replace(&mut state.is_open, true) {
            self.open += 1;
        }
    }

    /// A file is closed, or could not be opened.
    pub fn close(&mut self, file: u32) {
        let state = &mut self.files[file as usize];
        if std::mem::take(&mut state.is_open) {
            self.open -= 1;
        }
        if std::mem::take(&mut state.is_closing) {
            self.closing.retain(|closing| *closing != file);
        }
    }

    /// An I/O to an open file is decided on.
    #[inline]
    pub fn issued(&mut self, file: u32) {
        self.files[file as usize].ios += 1;
    }

    /// An I/O to a file is reaped.
    #[inline]
    pub fn reaped(&mut self, file: u32) {
        self.files[file as usize].ios -= 1;
    }

    /// Whether a file closes once its I/Os are reaped.
    pub fn closes(&self, file: u32) -> bool {
        self.files[file as usize].is_closing
    }

    /// A file is done: it closes once its I/Os are reaped.
    pub fn done(&mut self, file: u32) {
        let state = &mut self.files[file as usize];
        if state.is_open && !std::mem::replace(&mut state.is_closing, true) {
            self.closing.push(file);
        }
    }

    /// Closes the next file that is done and has no I/O under way; returns it.
    #[inline]
    pub fn close_done(&mut self) -> Option<u32> {
        if self.closing.is_empty() {
            return None;
        }
        let idle = |file: &&u32| self.files[**file as usize].ios == 0;
        let file = *self.closing.iter().find(idle)?;
        self.close(file);
        Some(file)
    }

    /// Closes the first open file; returns it.
    pub fn close_any(&mut self) -> Option<u32> {
        let file = self.files.iter().position(|file| file.is_open)? as u32;
        self.close(file);
        Some(file)
    }
}
