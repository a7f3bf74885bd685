//! Comparisons of made-up runs, and what reports show of them.

mod comparison;
mod failed;
mod goals;
mod merge;
mod processes;
mod starved;
mod too_full;
mod trade;
mod why;
