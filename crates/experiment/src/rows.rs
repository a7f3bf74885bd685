//! The rows of a comparison, made from the user's request.

use blklab_stats::World;

use crate::axis::{SCHEDULER, VariedAxis, scheduler_of};
use crate::error::Error;
use crate::schedulers::{SchedulerTunables, check_among};
use crate::setting::Setting;

/// The request for a comparison.
pub struct Request<'a> {
    /// The world.
    pub world: World,
    /// The setting from which every row starts; its scheduler is used where only other
    /// things vary.
    pub base: Setting,
    /// `NAME[:TUNABLE=VALUE...]` of each scheduler, if any are named.
    pub schedulers: Option<&'a [String]>,
    /// The schedulers that are compared if none are named and nothing else varies.
    pub default_schedulers: Vec<String>,
    /// The world's schedulers, which `all` stands for.
    pub all_schedulers: Vec<String>,
    /// `NAME.TUNABLE=VALUE`, each for all rows of one scheduler.
    pub sets: &'a [String],
    /// `KEY=VALUE,...` of each axis; several axes give their product.
    pub vary: &'a [String],
}

/// Returns the settings of all rows, the one to compare with first.
///
/// # Errors
/// If something cannot be varied or set so; the message says what can.
pub fn settings(request: &Request<'_>) -> Result<Vec<Setting>, Error> {
    let mut axes = Vec::new();
    for text in request.vary {
        let axis = VariedAxis::parse(text, request.world)?;
        if axes
            .iter()
            .any(|other: &VariedAxis<'_>| other.key == axis.key)
        {
            let key = axis.key;
            return Err(Error::mistake(format!("--vary {key} is given twice")));
        }
        axes.push(axis);
    }
    let implied = schedulers(request, &axes)?;
    if let Some(names) = &implied {
        axes.insert(0, VariedAxis::schedulers(names));
    }
    let mut rows = vec![request.base.clone()];
    for axis in &axes {
        rows = axis.product(&rows)?;
    }
    let names: Vec<String> = rows.iter().map(|row| row.scheduler.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let names = unique(&names);
    for axis in &axes {
        if let Some(scheduler) = scheduler_of(axis.key) {
            check_among(&format!("--vary {}", axis.key), scheduler, &names)?;
        }
    }
    let sets = SchedulerTunables::parse(request.sets, &names)?;
    let names_scheduler = axes.iter().any(VariedAxis::is_of_schedulers);
    for row in &mut rows {
        sets.apply(&mut row.scheduler);
        if names_scheduler {
            let varied = std::mem::replace(&mut row.label, row.scheduler.label());
            if !varied.is_empty() {
                row.add_to_label(&varied);
            }
        }
    }
    check_distinct(&rows)?;
    Ok(rows)
}

/// Returns the schedulers to compare, unless `--vary` names them.
fn schedulers(
    request: &Request<'_>,
    axes: &[VariedAxis<'_>],
) -> Result<Option<Vec<String>>, Error> {
    let is_varied = axes.iter().any(|axis| axis.key == SCHEDULER);
    match request.schedulers {
        Some(_) if is_varied => Err(Error::mistake(
            "--schedulers is short for --vary scheduler; give one of them",
        )),
        Some([all]) if all == "all" => Ok(Some(request.all_schedulers.clone())),
        Some(names) => Ok(Some(names.to_vec())),
        None if is_varied => Ok(None),
        None if axes.is_empty() => Ok(Some(request.default_schedulers.clone())),
        None => {
            let of_tunables: Vec<&str> = axes.iter().filter_map(|a| scheduler_of(a.key)).collect();
            let names: Vec<String> = unique(&of_tunables).iter().map(|n| n.to_string()).collect();
            Ok((!names.is_empty()).then_some(names))
        }
    }
}

fn unique<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        if !all.contains(name) {
            all.push(name);
        }
    }
    all
}

fn check_distinct(rows: &[Setting]) -> Result<(), Error> {
    // Rows that differ only in how they were written are the same.
    let rows = rows.iter().map(|row| Setting {
        axes: Vec::new(),
        ..row.clone()
    });
    let rows: Vec<Setting> = rows.collect();
    for (n, row) in rows.iter().enumerate() {
        if rows[..n].contains(row) {
            let name = &row.scheduler.name;
            return Err(Error::mistake(format!(
                "--schedulers: {name} is named twice; variants differ in tunables, \
                 as in {name},{name}:TUNABLE=VALUE"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedulers::NamedScheduler;
    use proptest::prelude::*;

    fn rows(schedulers: Option<&str>, sets: &[&str], vary: &[&str]) -> Result<Vec<Setting>, Error> {
        let owned = |texts: &[&str]| texts.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        let schedulers: Option<Vec<String>> =
            schedulers.map(|names| names.split(',').map(str::to_string).collect());
        settings(&Request {
            world: World::Sim,
            base: Setting {
                scheduler: NamedScheduler::new("none"),
                ..Setting::default()
            },
            schedulers: schedulers.as_deref(),
            default_schedulers: owned(&["none", "bfq"]),
            all_schedulers: owned(&["none", "bfq", "ac"]),
            sets: &owned(sets),
            vary: &owned(vary),
        })
    }

    fn labels(schedulers: Option<&str>, vary: &[&str]) -> Vec<String> {
        let rows = rows(schedulers, &[], vary).expect("legal");
        rows.into_iter().map(|row| row.label).collect()
    }

    #[test]
    fn variants_stand_beside_each_other() {
        let rows = rows(Some("a,a:x=1,a:x=2:y=3,b"), &["a.z=9", "a.x=7"], &[]).expect("legal");
        let labels: Vec<String> = rows.into_iter().map(|row| row.label).collect();
        assert_eq!(labels, ["a z=9 x=7", "a x=1 z=9", "a x=2 y=3 z=9", "b"]);
    }

    #[test]
    fn labels_are_what_varies() {
        assert_eq!(labels(None, &[]), ["none", "bfq"]);
        assert_eq!(labels(Some("all"), &[]), ["none", "bfq", "ac"]);
        assert_eq!(labels(None, &["iodepth=1,32"]), ["iodepth=1", "iodepth=32"]);
        assert_eq!(
            labels(Some("a,b"), &["drive=x"]),
            ["a drive=x", "b drive=x"]
        );
        assert_eq!(
            labels(None, &["mq-deadline.fifo_batch=1,2"]),
            ["mq-deadline fifo_batch=1", "mq-deadline fifo_batch=2"]
        );
    }

    #[test]
    fn several_axes_give_their_product() {
        assert_eq!(
            labels(None, &["drive=x,y", "bs=4k,8k"]),
            [
                "drive=x bs=4k",
                "drive=x bs=8k",
                "drive=y bs=4k",
                "drive=y bs=8k"
            ]
        );
        // A tunable varies only its own scheduler.
        assert_eq!(
            labels(Some("none,mq-deadline"), &["mq-deadline.fifo_batch=1,2"]),
            [
                "none",
                "mq-deadline fifo_batch=1",
                "mq-deadline fifo_batch=2"
            ]
        );
    }

    #[test]
    fn mistakes_say_what_is_right() {
        for (schedulers, sets, vary, expected) in [
            (Some("a,a"), vec![], vec![], "named twice"),
            (Some("a:x=1,a"), vec!["a.x=1"], vec![], "named twice"),
            (Some("a:x"), vec![], vec![], "scheduler:tunable=value"),
            (Some("a:../x=1"), vec![], vec![], "scheduler:tunable=value"),
            (Some("a"), vec!["x=1"], vec![], "scheduler.tunable=value"),
            (
                Some("kyber"),
                vec!["kyberr.x=1"],
                vec![],
                "did you mean kyber?",
            ),
            (None, vec![], vec!["iodepth"], "KEY=VALUE"),
            (None, vec![], vec!["iodeth=1"], "did you mean iodepth?"),
            (None, vec![], vec!["drve=x"], "did you mean drive?"),
            (None, vec![], vec!["nomerges=3"], "from 0 to 2"),
            (None, vec![], vec!["nr_requests=-1"], "from 1 to"),
            (None, vec![], vec!["memory=x"], "memory=x"),
            (None, vec![], vec!["bs=4k,4k"], "named twice"),
            (None, vec![], vec!["bs=4k,"], "missing"),
            (None, vec![], vec!["bs=4k", "bs=8k"], "given twice"),
            (Some("a"), vec![], vec!["scheduler=b"], "give one of them"),
            (Some("none"), vec![], vec!["bfq.low_latency=0"], "not among"),
        ] {
            let error = rows(schedulers, &sets, &vary).expect_err(expected);
            assert!(error.is_mistake());
            assert!(error.to_string().contains(expected), "{error}");
        }
        let served = crate::axis::VariedAxis::parse("read_ahead_kb=1", World::Serve);
        let error = served
            .err()
            .expect("a served drive has no page cache above it");
        assert!(error.to_string().contains("--world host"), "{error}");
    }

    proptest! {
        #[test]
        fn no_list_makes_it_panic(
            names in "[a-c:=.,x1-]{0,24}",
            set in "[a-c:=.x1-]{0,12}",
            vary in "(iodepth|bs|a|a.x|scheduler|drive)?[=,.a-c0-9]{0,12}",
        ) {
            let _ = rows(Some(&names), &[&set], &[]);
            let _ = rows(None, &[&set], &[&vary]);
        }
    }
}
