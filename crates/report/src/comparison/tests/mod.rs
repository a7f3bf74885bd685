//! Comparisons of made-up runs, and what reports show of them.

mod advice;
mod comparison;
mod goals;
mod merge;
mod processes;
mod too_full;
mod verdict;
mod why;
