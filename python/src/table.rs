//! Tables as Arrow's streams of record batches, which pandas, Polars, DuckDB and pyarrow
//! take without a copy (the Arrow PyCapsule interface).

use std::sync::Mutex;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use blklab_tables::{Format, Table, record_batch};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// A table. It goes to other libraries by `__arrow_c_stream__`.
#[pyclass(name = "Table", module = "blklab", frozen)]
pub struct PyTable {
    batch: RecordBatch,
    /// For files; made of the same rows.
    table: Mutex<Table>,
}

impl PyTable {
    pub(crate) fn new(table: Table) -> PyResult<PyTable> {
        let batch = record_batch(table.clone());
        Ok(PyTable {
            batch: batch.map_err(|error| PyRuntimeError::new_err(error.to_string()))?,
            table: Mutex::new(table),
        })
    }
}

#[pymethods]
impl PyTable {
    /// How many rows it has.
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
        // A wish, by the interface, that need not be granted.
        let _ = requested_schema;
        let batches = [Ok(self.batch.clone())];
        let reader = RecordBatchIterator::new(batches, self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Writes it to a file whose name ends with .parquet, .arrow or .csv.
    fn write(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        let format = Format::of_path(&path).map_err(PyValueError::new_err)?;
        py.detach(|| {
            let table = self
                .table
                .lock()
                .unwrap_or_else(|broken| broken.into_inner());
            let mut bytes = Vec::new();
            let written = format.write(&table, &mut bytes);
            written.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
            Ok(std::fs::write(&path, bytes)?)
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
