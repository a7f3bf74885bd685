//! Tables as Arrow's streams of record batches, which pandas, Polars, DuckDB and pyarrow
//! take without a copy (the Arrow PyCapsule interface).

use std::io::Write;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use blklab_command::RunOutput;
use blklab_description::NewFile;
use blklab_tables::{Format, Table, WriteError, record_batch};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::call::Found;

/// A table, which other libraries read through `__arrow_c_stream__`.
#[pyclass(name = "Table", module = "blklab", frozen)]
pub struct PyTable {
    batch: RecordBatch,
    /// The source of its rows. Files are made from it too, so that the rows are not in memory
    /// twice.
    found: Py<Found>,
    rows: fn(&RunOutput) -> Table,
}

impl PyTable {
    /// Makes a table from a result.
    pub(crate) fn new(
        found: &Bound<'_, Found>,
        rows: fn(&RunOutput) -> Table,
    ) -> PyResult<PyTable> {
        let ran = found.get().ran()?;
        let batch = found.py().detach(|| record_batch(rows(ran)));
        Ok(PyTable {
            batch: batch.map_err(raised)?,
            found: found.clone().unbind(),
            rows,
        })
    }
}

fn raised(error: WriteError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

#[pymethods]
impl PyTable {
    /// The number of its rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The names of its columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        let schema = self.batch.schema();
        let names = schema.fields().iter().map(|field| field.name().clone());
        names.collect()
    }

    /// The table as Arrow's C stream.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows to ignore the requested schema.
        let _ = requested_schema;
        let batches = [Ok(self.batch.clone())];
        let reader = RecordBatchIterator::new(batches, self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Writes it to a file; the extension .parquet, .arrow or .csv gives the format.
    fn write(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        let format = Format::of_path(&path).map_err(PyValueError::new_err)?;
        let ran = self.found.get().ran()?;
        py.detach(|| {
            let mut bytes = Vec::new();
            format
                .write(&(self.rows)(ran), &mut bytes)
                .map_err(raised)?;
            let mut file = NewFile::create(&path)?;
            file.write_all(&bytes)?;
            Ok(file.keep()?)
        })
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!(
            "<blklab.Table of {} rows and {} columns>",
            self.batch.num_rows(),
            self.batch.num_columns()
        )
    }
}
