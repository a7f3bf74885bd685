//! `blklab boot`.

use crate::args::BootArgs;
use crate::failure::Failure;
use crate::output;

/// Starts the machine, and prints what happened or what is there then.
pub(crate) fn boot(args: &BootArgs) -> Result<(), Failure> {
    let board = blklab_boot::Board::load(&args.board).map_err(Failure::mistake)?;
    let booted = blklab_boot::boot(&board);
    output::print(&match args.tree {
        true => booted.tree(),
        false => booted.sequence(),
    })
}
