//! Results as tables, fio's JSON and HTML.
//!
//! One run is printed as fio prints it: [`fio_text`] and [`fio_json`]. [`compare`] turns
//! several schedulers' runs into a [`Comparison`], which [`text`], [`html`] and [`json`]
//! show.

mod comparison;
mod fio;
pub mod perfetto;
mod quantity;
mod question;
mod render;
#[cfg(test)]
mod sample_run;
mod study;
pub mod tools;

pub use comparison::{
    Advice, Answer, Availability, Cell, Change, Channels, Choices, Command, Comparison, Contest,
    CpuTimeline, CurvePoint, Direction, DirectionTable, FactRow, FailedIo, FigureName, Front, Goal,
    GoalRow, Goals, Judgement, Limit, Metric, Origin, Outcome, ProcessColumn, ProcessFigures,
    QueueSetting, Row, SameWork, SchedulerRuns, SchedulerTimeline, Section, Sense, SlowestRow,
    SlowestTable, SlowestValue, Verdict, Verification, choice_of, compare, drive_notes,
    failed_units, merge, note_on_untried, note_without_io,
};
pub use fio::{json as fio_json, logs as fio_logs, text as fio_text};
pub use question::Question;
pub use render::{goal_values, html, json, study as study_text, text};
pub use study::{Case, Finding, Measured, Study};
