//! The drives as whoever submits commands sees them.

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../harness/one_mistake.rs"]
mod one_mistake;
#[path = "../harness/small.rs"]
mod small;
#[path = "../harness/texts.rs"]
mod texts;

mod any_commands;
mod disk;
mod drives;
mod keys;
mod mistakes;
mod mqsim;
mod mutations;
mod published;
mod recorded_runs;
mod recording;
mod reset;
mod sources;
