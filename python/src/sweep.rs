//! Sweeps whose runs the caller distributes.

use std::path::PathBuf;

use blklab_command::SweepFile;
use pyo3::prelude::*;

use crate::call::{raised, watched};
use crate::scheduler::are_there;

/// A sweep from a checked file.
#[pyclass(name = "SweepFile", module = "blklab", frozen)]
pub struct PySweepFile(SweepFile);

#[pymethods]
impl PySweepFile {
    /// Reads a sweep's file.
    #[new]
    fn new(path: PathBuf) -> PyResult<PySweepFile> {
        let file = SweepFile::read(&path);
        file.map(PySweepFile).map_err(raised)
    }

    /// The identity of the sources, which the command has too.
    #[getter]
    fn program(&self) -> &str {
        self.0.program()
    }

    /// The files of the job, as from the folder of the sweep's file.
    #[getter]
    fn files(&self) -> Vec<PathBuf> {
        self.0.files().to_vec()
    }

    /// The number of its runs.
    #[getter]
    fn runs(&self) -> usize {
        self.0.runs()
    }

    /// The numbers of the runs that a folder lacks.
    fn missing(&self, py: Python<'_>, folder: PathBuf) -> PyResult<Vec<usize>> {
        py.detach(|| self.0.missing(&folder)).map_err(raised)
    }

    /// Does those of these runs that a folder lacks; returns their number.
    #[pyo3(signature = (folder, numbers, threads=None, progress=None))]
    fn run(
        &self,
        py: Python<'_>,
        folder: PathBuf,
        numbers: Vec<usize>,
        threads: Option<usize>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        watched(py, progress, are_there(), |observer| {
            self.0.run(&folder, &numbers, threads, &observer)
        })
    }

    /// Writes the data set of all runs in a folder; returns its file.
    fn write_table(&self, py: Python<'_>, folder: PathBuf) -> PyResult<PathBuf> {
        py.detach(|| self.0.write_table(&folder)).map_err(raised)
    }
}
