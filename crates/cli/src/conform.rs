//! `blklab conform`.

use blklab_conform::{Mode, Report};

use crate::args::ConformArgs;
use crate::failure::Failure;
use crate::output;

pub(crate) fn conform(args: &ConformArgs) -> Result<(), Failure> {
    let (report, holds) = checked(args)?;
    output::print(report.to_string())?;
    if holds {
        Ok(())
    } else {
        Err(Failure::CheckFailed)
    }
}

/// Returns the report, and whether the agreement suffices.
pub(crate) fn checked(args: &ConformArgs) -> Result<(Report, bool), Failure> {
    if let Some(p) = args.min_percent
        && !(0.0..=100.0).contains(&p)
    {
        return Err(Failure::mistake(format!(
            "--min-percent {p}: legal is 0 to 100"
        )));
    }
    let modes = [
        (args.page_cache, Mode::PageCache),
        (args.write_back, Mode::WriteBack),
        (args.eviction, Mode::Eviction),
        (args.mmc, Mode::Mmc),
        (args.whole, Mode::Whole),
    ];
    let asked = modes.iter().find(|(asked, _)| *asked);
    let mode = asked.map_or(Mode::SchedulerAlone, |&(_, mode)| mode);
    let scheduler = args.scheduler.as_deref().unwrap_or_default();
    let mut report =
        blklab_conform::run(mode, scheduler, &args.traces).map_err(Failure::mistake)?;
    if let Some(percent) = args.min_percent {
        report.set_goal(percent);
    }
    let agrees = blklab_conform::agrees(&report);
    Ok((report, agrees))
}
