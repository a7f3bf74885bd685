//! The `blklab` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    blklab_command::main()
}
