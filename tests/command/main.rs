//! The `blklab` command, run as a user runs it: one file a subject.

mod calibrate;
mod compare;
mod determinism;
mod fairness;
mod fio_examples;
mod host_calibrate;
mod host_compare;
mod host_mkfs;
mod host_record;
mod host_refusals;
mod host_report;
mod mistakes;
mod power_loss;
mod probe;
mod processes;
mod replay;
mod run;
mod serve_clients;
mod serve_compare;
mod serve_faults;
mod serve_remote;
mod serve_sysfs;
mod serve_tls;
mod serve_trace;
mod support;
mod vary;
