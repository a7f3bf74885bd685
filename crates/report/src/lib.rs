//! Results as tables, fio's JSON and HTML.
//!
//! One run is printed as fio prints it: [`fio_text`] and [`fio_json`].
//! Several schedulers' runs become a [`Comparison`] by [`compare`], which
//! [`text`], [`html`] and [`json`] show.

mod comparison;
mod cpu_time;
mod failed;
pub mod fio_json;
mod fio_number;
mod fio_stat;
pub mod fio_text;
pub mod html;
pub mod json;
pub mod merge;
mod observed;
mod pairs;
pub mod perfetto;
mod processes;
mod quantity;
#[cfg(test)]
mod real_fio;
#[cfg(test)]
mod sample_run;
mod starved;
pub mod text;
mod too_full;
mod trade;
mod verdict;
mod why;

pub use comparison::{
    Cell, Change, Comparison, CurvePoint, Direction, DirectionTable, Metric, Origin, Row,
    SchedulerRuns, SchedulerTimeline, Section, compare,
};
pub use cpu_time::CpuTimeline;
pub use failed::{FailedIo, failed_units};
pub use processes::{ProcessColumn, ProcessFigures};
pub use too_full::too_full;
pub use verdict::{Contest, Outcome, Verdict};
pub use why::{Channels, FactRow};
