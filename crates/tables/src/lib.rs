//! Results, requests and time series as tables: Parquet, Arrow and CSV.
//!
//! A table's columns are declared once, with name, unit and meaning ([`Declared`]); the
//! reference page, the files' schemas and their metadata are made from that.

#[cfg(feature = "arrow")]
mod arrow;
mod column;
mod file;
mod ipc;
mod parquet;
mod requests;
mod results;
mod series;

#[cfg(feature = "arrow")]
pub use arrow::record_batch;
pub use column::{Column, Declared, Table, Values};
pub use file::Format;
pub use parquet::ParquetWriter;
pub use requests::{REQUESTS, requests};
pub use results::{RESULTS, results};
pub use series::{SERIES, series};

use thiserror::Error;

/// An error in writing a table.
#[derive(Debug, Error)]
pub enum WriteError {
    /// Writing the file failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The format's library refused the table.
    #[error("{0}")]
    Format(String),
}

/// A kind of table, for the reference.
pub struct TableKind {
    /// Its name.
    pub name: &'static str,
    /// The meaning of a row.
    pub about: &'static str,
    /// Its columns: name, unit and meaning of each.
    pub columns: fn() -> Vec<[&'static str; 3]>,
}

/// All kinds of tables.
pub const TABLES: &[&TableKind] = &[&RESULTS, &REQUESTS, &SERIES];
