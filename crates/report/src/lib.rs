//! Results as tables, fio's JSON and HTML.
//!
//! One run is printed as fio prints it: [`fio_text`] and [`fio_json`].
//! Several schedulers' runs become a [`Comparison`] by [`compare`], which
//! [`text`], [`html`] and [`json`] show.

mod comparison;
mod fio;
pub mod perfetto;
mod quantity;
mod render;
#[cfg(test)]
mod sample_run;
mod too_full;

pub use comparison::{
    Cell, Change, Channels, Comparison, Contest, CpuTimeline, CurvePoint, Direction,
    DirectionTable, FactRow, FailedIo, FigureName, Goal, GoalRow, Goals, Judgement, Limit, Metric,
    Origin, Outcome, ProcessColumn, ProcessFigures, Row, SchedulerRuns, SchedulerTimeline, Section,
    Verdict, compare, failed_units, merge,
};
pub use fio::{json as fio_json, text as fio_text};
pub use render::{html, json, text};
pub use too_full::too_full;
