//! Fits the descriptions of a drive and a machine to measured fio results.
//!
//! Rows of fio results become fio jobs, which are simulated, and a search changes the few numbers
//! that no data sheet gives until the simulated rows are close to the measured ones. These numbers are keys of the descriptions (`drive.flash.read_us`, `costs.bio_ns`), never one for each
//! row.

mod csv;
mod description;
mod fio_json;
mod fit;
mod host_jobs;
mod iocost;
mod model;
mod row;
mod score;
mod search;
mod table;
mod work;

pub use csv::{read_csv, write_csv};
pub use description::{Description, KeyError};
pub use fio_json::read_fio_json;
pub use fit::{Fit, FitSetup, Fitted, Progress, Useless, fit};
pub use host_jobs::{HELD_OUT_NOTE, Point, host_job, host_rows, points};
pub use iocost::{IoCost, IoCostSide, measure_iocost};
pub use model::{CalibrateError, Model, Parameter};
pub use row::{Measured, Row, RowError, Selection};
pub use score::{Medians, Scored, medians, order_of_schedulers, score, score_each};
pub use table::{Groups, SideBySide, side_by_side};
pub use work::{Case, cases};
