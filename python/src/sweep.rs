//! Sweeps whose runs are spread by who calls.

use std::path::PathBuf;

use blklab_command::SweepFile;
use pyo3::prelude::*;

use crate::call::{raised, watched};

/// A sweep's file, read and checked.
#[pyclass(name = "SweepFile", module = "blklab", frozen)]
pub struct PySweepFile(SweepFile);

#[pymethods]
impl PySweepFile {
    /// Reads it. `program` is this module's own file, whose builds are told apart by it.
    #[new]
    fn new(path: PathBuf, program: PathBuf) -> PyResult<PySweepFile> {
        let file = SweepFile::read(&path, &program);
        file.map(PySweepFile).map_err(raised)
    }

    /// What tells this build of the program from all others.
    #[getter]
    fn program(&self) -> &str {
        self.0.program()
    }

    /// The job as the sweep's file names it.
    #[getter]
    fn job(&self) -> &str {
        self.0.job()
    }

    /// How many runs it has.
    #[getter]
    fn runs(&self) -> PyResult<usize> {
        self.0.runs().map_err(raised)
    }

    /// The numbers of the runs that a folder does not have.
    fn missing(&self, py: Python<'_>, folder: PathBuf) -> PyResult<Vec<usize>> {
        py.detach(|| self.0.missing(&folder)).map_err(raised)
    }

    /// Does those of these runs that a folder does not have; how many these were.
    #[pyo3(signature = (folder, numbers, threads=None, progress=None))]
    fn run(
        &self,
        py: Python<'_>,
        folder: PathBuf,
        numbers: Vec<usize>,
        threads: Option<usize>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        watched(py, progress, |observer| {
            self.0.run(&folder, &numbers, threads, &observer)
        })
    }

    /// Writes the data set of all runs that a folder has; its file.
    fn write_table(&self, py: Python<'_>, folder: PathBuf) -> PyResult<PathBuf> {
        py.detach(|| self.0.write_table(&folder)).map_err(raised)
    }
}
