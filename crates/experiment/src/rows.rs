//! The rows of a comparison, made from the user's request.

use std::collections::HashMap;

use blklab_stats::World;

use crate::axis::{VariedAxis, scheduler_of};
use crate::error::Error;
use crate::schedulers::{NamedScheduler, SchedulerTunables, check_among};
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
    SettingProduct::new(request)?.all()
}

/// The settings of all combinations of the values that vary, each made from its number when it is
/// asked for: there may be millions.
pub struct SettingProduct {
    base: Setting,
    /// The last one varies fastest.
    axes: Vec<VariedAxis>,
    sets: SchedulerTunables,
    /// The names of all schedulers.
    names: Vec<String>,
    /// By scheduler the number of settings that the axes from each one on make of a setting with
    /// it.
    sizes: HashMap<String, Vec<usize>>,
}

impl SettingProduct {
    /// Checks each axis.
    ///
    /// # Errors
    /// If something cannot be varied or set so; the message says what can.
    pub fn new(request: &Request<'_>) -> Result<SettingProduct, Error> {
        let mut axes: Vec<VariedAxis> = Vec::new();
        for text in request.vary {
            let axis = VariedAxis::parse(text, request.world)?;
            if axes.iter().any(|other| other.key == axis.key) {
                let key = axis.key;
                return Err(Error::mistake(format!("--vary {key} is given twice")));
            }
            axes.push(axis);
        }
        if let Some(names) = schedulers(request, &axes)? {
            axes.insert(0, VariedAxis::schedulers(names));
        }
        // Another scheduler begins with its own tunables, so it is chosen before them.
        let of_schedulers = axes.iter().position(VariedAxis::is_of_schedulers);
        let chosen = axes.iter().position(VariedAxis::is_schedulers);
        if let (Some(before), Some(at)) = (of_schedulers, chosen) {
            axes[before..=at].rotate_right(1);
        }
        let names = scheduler_names(&request.base, &axes)?;
        let names = unique(&names);
        for axis in &axes {
            if let Some(scheduler) = scheduler_of(&axis.key) {
                check_among(&format!("--vary {}", axis.key), scheduler, &names)?;
            }
        }
        let sets = SchedulerTunables::parse(request.sets, &names)?;
        let product = SettingProduct::of(request.base.clone(), axes, sets)?;
        product.check_distinct()?;
        Ok(product)
    }

    fn of(
        base: Setting,
        axes: Vec<VariedAxis>,
        sets: SchedulerTunables,
    ) -> Result<SettingProduct, Error> {
        let names = scheduler_names(&base, &axes)?;
        let sizes = sizes(&base.scheduler.name, &axes, &names)?;
        Ok(SettingProduct {
            base,
            axes,
            sets,
            names,
            sizes,
        })
    }

    /// Returns the number of settings.
    pub fn len(&self) -> usize {
        self.sizes[&self.base.scheduler.name][0]
    }

    /// Returns whether there is no setting, which never is: an axis has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the keys of all axes.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.axes.iter().map(|axis| axis.key.as_str())
    }

    /// Returns the setting of this number.
    ///
    /// # Errors
    /// If a value of it is not legal.
    pub fn get(&self, number: usize) -> Result<Setting, Error> {
        let mut setting = self.base.clone();
        let mut left = number;
        for (at, axis) in self.axes.iter().enumerate() {
            let name = &setting.scheduler.name;
            if axis.is_schedulers() {
                let mut value = 0;
                for name in &self.names {
                    let size = self.sizes[name][at + 1];
                    if left < size {
                        break;
                    }
                    left -= size;
                    value += 1;
                }
                axis.apply(&mut setting, value)?;
            } else if axis.varies(name) {
                let size = self.sizes[name][at + 1];
                axis.apply(&mut setting, left / size)?;
                left %= size;
            }
        }
        self.finish(&mut setting);
        Ok(setting)
    }

    /// Returns all settings.
    ///
    /// # Errors
    /// If a value is not legal.
    pub fn all(&self) -> Result<Vec<Setting>, Error> {
        (0..self.len()).map(|number| self.get(number)).collect()
    }

    /// Returns settings that have each value of each axis, beside the first values of the others; a
    /// tunable's with its scheduler.
    ///
    /// # Errors
    /// If a value is not legal.
    pub fn of_each_value(&self) -> Result<Vec<Setting>, Error> {
        let mut all = Vec::new();
        for whole in &self.axes {
            let axes = self.axes.iter().map(|axis| {
                let is_needed = axis.is_schedulers() && whole.is_of_schedulers();
                match is_needed || axis.key == whole.key {
                    true => axis.clone(),
                    false => axis.first(1),
                }
            });
            all.extend(self.with_axes(axes.collect())?.all()?);
        }
        Ok(all)
    }

    /// Returns the product of other axes.
    fn with_axes(&self, axes: Vec<VariedAxis>) -> Result<SettingProduct, Error> {
        SettingProduct::of(self.base.clone(), axes, self.sets.clone())
    }

    /// Sets what holds for all settings, and completes the label.
    fn finish(&self, setting: &mut Setting) {
        self.sets.apply(&mut setting.scheduler);
        if self.axes.iter().any(VariedAxis::is_of_schedulers) {
            let varied = std::mem::replace(&mut setting.label, setting.scheduler.label());
            if !varied.is_empty() {
                setting.add_to_label(&varied);
            }
        }
    }

    fn check_distinct(&self) -> Result<(), Error> {
        // Only schedulers' axes can make equal settings of different values, and whether two
        // values of a tunable do is the same for all of them.
        let axes = self.axes.iter().map(|axis| match axis.is_schedulers() {
            true => axis.clone(),
            false => axis.first(1 + usize::from(axis.is_of_schedulers())),
        });
        check_distinct(&self.with_axes(axes.collect())?.all()?)
    }
}

/// Returns the names of all schedulers that the axes give a setting.
fn scheduler_names(base: &Setting, axes: &[VariedAxis]) -> Result<Vec<String>, Error> {
    let Some(axis) = axes.iter().find(|axis| axis.is_schedulers()) else {
        return Ok(vec![base.scheduler.name.clone()]);
    };
    let named = axis.values.iter().map(|value| NamedScheduler::parse(value));
    named.map(|named| Ok(named?.name)).collect()
}

/// Returns [`SettingProduct::sizes`]: of all schedulers behind the schedulers' axis, and of the
/// first one all.
fn sizes(
    first: &str,
    axes: &[VariedAxis],
    names: &[String],
) -> Result<HashMap<String, Vec<usize>>, Error> {
    let too_many = || Error::mistake("--vary: there are too many combinations".to_string());
    let of_axis = axes.iter().position(VariedAxis::is_schedulers);
    let mut sizes = HashMap::new();
    let before = |size: usize, at: usize, name: &str| match axes[at].varies(name) {
        true => size.checked_mul(axes[at].values.len()).ok_or_else(too_many),
        false => Ok(size),
    };
    let begin = of_axis.map_or(0, |at| at + 1);
    for name in names.iter().map(String::as_str).chain([first]) {
        let mut of_name = vec![1; axes.len() + 1];
        for at in (begin..axes.len()).rev() {
            of_name[at] = before(of_name[at + 1], at, name)?;
        }
        sizes.insert(name.to_string(), of_name);
    }
    let Some(of_axis) = of_axis else {
        return Ok(sizes);
    };
    let mut behind = names.iter().map(|name| sizes[name][begin]);
    let all = behind.try_fold(0, |sum: usize, size| sum.checked_add(size));
    let mut of_first = sizes[first].clone();
    of_first[of_axis] = all.ok_or_else(too_many)?;
    for at in (0..of_axis).rev() {
        of_first[at] = before(of_first[at + 1], at, first)?;
    }
    sizes.insert(first.to_string(), of_first);
    Ok(sizes)
}

/// Returns the schedulers to compare, unless `--vary` names them.
fn schedulers(request: &Request<'_>, axes: &[VariedAxis]) -> Result<Option<Vec<String>>, Error> {
    let is_varied = axes.iter().any(VariedAxis::is_schedulers);
    match request.schedulers {
        Some(_) if is_varied => Err(Error::mistake(
            "--schedulers is short for --vary scheduler; give one of them",
        )),
        Some([all]) if all == "all" => Ok(Some(request.all_schedulers.clone())),
        Some(names) => Ok(Some(names.to_vec())),
        None if is_varied => Ok(None),
        None if axes.is_empty() => Ok(Some(request.default_schedulers.clone())),
        None => {
            let of_tunables = axes.iter().filter_map(|axis| scheduler_of(&axis.key));
            let of_tunables: Vec<String> = of_tunables.map(str::to_string).collect();
            let names: Vec<String> = unique(&of_tunables).iter().map(|n| n.to_string()).collect();
            Ok((!names.is_empty()).then_some(names))
        }
    }
}

fn unique(names: &[String]) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        if !all.contains(&name.as_str()) {
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

    /// Each setting is made from its number as nested loops over the axes make it.
    #[test]
    fn a_setting_is_made_from_its_number() {
        for vary in [
            vec!["iodepth=1,32", "bs=4k,8k,16k", "drive=x,y"],
            vec!["scheduler=none,bfq,kyber,bfq:x=1", "iodepth=1..5"],
            vec![
                "bs=4k,8k",
                "scheduler=bfq,none",
                "iodepth=1,2",
                "bfq.slice_idle_us=0,1,2",
            ],
        ] {
            let owned: Vec<String> = vary.iter().map(|text| text.to_string()).collect();
            let base = Setting {
                scheduler: NamedScheduler::new("bfq"),
                ..Setting::default()
            };
            let mut expected = vec![base.clone()];
            for text in &owned {
                let axis = VariedAxis::parse(text, World::Sim).expect("legal");
                expected = axis.product(&expected).expect("legal");
            }
            let product = SettingProduct::new(&Request {
                world: World::Sim,
                base,
                schedulers: None,
                default_schedulers: Vec::new(),
                all_schedulers: Vec::new(),
                sets: &[],
                vary: &owned,
            });
            let product = product.expect("legal");
            assert_eq!(product.len(), expected.len(), "{vary:?}");
            let axes = |setting: &Setting| setting.axes.clone();
            let made = product.all().expect("legal");
            let made: Vec<_> = made.iter().map(axes).collect();
            assert_eq!(made, expected.iter().map(axes).collect::<Vec<_>>());
            let each = product.of_each_value().expect("legal");
            for (key, values) in product.axes.iter().map(|axis| (&axis.key, &axis.values)) {
                for value in values {
                    let has = |setting: &Setting| {
                        let mut axes = setting.axes.iter();
                        axes.any(|(known, of)| known == key && of == value)
                    };
                    assert!(each.iter().any(has), "{key}={value}");
                }
            }
        }
    }

    /// What is set for one scheduler is no mistake beside settings that have another.
    #[test]
    fn values_of_each_axis_have_what_is_set() {
        let product = SettingProduct::new(&Request {
            world: World::Sim,
            base: Setting::default(),
            schedulers: Some(&["none", "bfq"].map(str::to_string)),
            default_schedulers: Vec::new(),
            all_schedulers: Vec::new(),
            sets: &["bfq.low_latency=0".to_string()],
            vary: &["iodepth=1,2".to_string()],
        });
        let product = product.expect("legal");
        let each = product.of_each_value().expect("legal");
        let labels: Vec<&str> = each.iter().map(|setting| setting.label.as_str()).collect();
        let expected = [
            "none iodepth=1",
            "bfq low_latency=0 iodepth=1",
            "none iodepth=1",
            "none iodepth=2",
        ];
        assert_eq!(labels, expected);
    }

    #[test]
    fn a_tunable_that_is_named_before_the_schedulers_varies_its_own() {
        let vary = ["bs=4k,8k", "bfq.low_latency=0,1", "scheduler=none,bfq"];
        assert_eq!(
            labels(None, &vary),
            [
                "none bs=4k",
                "bfq low_latency=0 bs=4k",
                "bfq low_latency=1 bs=4k",
                "none bs=8k",
                "bfq low_latency=0 bs=8k",
                "bfq low_latency=1 bs=8k"
            ]
        );
    }

    #[test]
    fn millions_of_settings_take_no_room() {
        let vary = ["iodepth=1..1000", "numjobs=1..1000", "size=1..1000"].map(str::to_string);
        let product = SettingProduct::new(&Request {
            world: World::Sim,
            base: Setting::default(),
            schedulers: None,
            default_schedulers: Vec::new(),
            all_schedulers: Vec::new(),
            sets: &[],
            vary: &vary,
        });
        let product = product.expect("legal");
        assert_eq!(product.len(), 1_000_000_000);
        let last = product.get(999_999_999).expect("legal");
        assert_eq!(last.label, "iodepth=1000 numjobs=1000 size=1000");
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
