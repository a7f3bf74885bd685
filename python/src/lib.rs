//! The native part of the Python package `blklab`: calls the code of the command, and passes
//! its tables to Python as Arrow.

mod call;
mod scheduler;
mod sweep;
mod table;

use pyo3::prelude::*;

/// The native part of `blklab`; the package wraps it.
#[pymodule]
mod _blklab {
    #[pymodule_export]
    use super::call::{
        Error, Found, UsageError, call, description, description_values, hint, program,
    };
    #[pymodule_export]
    use super::scheduler::{PyBio, PyRequest, Queue, register};
    #[pymodule_export]
    use super::sweep::PySweepFile;
    #[pymodule_export]
    use super::table::PyTable;
}
