//! Results as tables, fio's JSON and HTML

pub mod fio_json;
mod fio_number;
mod fio_stat;
pub mod fio_text;
#[cfg(test)]
mod sample_run;
