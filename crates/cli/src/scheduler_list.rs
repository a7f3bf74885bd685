//! Schedulers as arguments name them: `--schedulers NAME[:TUNABLE=VALUE...],...`
//! for each by itself, `--set NAME.TUNABLE=VALUE` for all of a name.

use blklab_description::hint;
use blklab_elevator::Setting;

use crate::failure::Failure;

/// A scheduler and what is set on it, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) tunables: Vec<(String, String)>,
}

/// The schedulers named, set as the options say. Whether there are such
/// schedulers and tunables is for the caller to judge.
pub(crate) fn listed(names: &[String], sets: &[String]) -> Result<Vec<Listed>, Failure> {
    let mut list = Vec::new();
    for name in names {
        list.push(one(name.trim())?);
    }
    let own: Vec<Listed> = list.clone();
    for set in sets {
        apply(set, &mut list)?;
    }
    // What is said of one by itself holds against what is said of all.
    for (listed, own) in list.iter_mut().zip(own) {
        own.tunables.into_iter().for_each(|t| listed.put(t));
    }
    for (index, listed) in list.iter().enumerate() {
        if list[..index].contains(listed) {
            let name = &listed.name;
            return Err(Failure::mistake(format!(
                "--schedulers: {name} is named twice; variants differ in tunables, \
                 as in {name},{name}:TUNABLE=VALUE"
            )));
        }
    }
    Ok(list)
}

impl Listed {
    fn set(&mut self, setting: Setting<'_>) {
        self.put((setting.tunable.to_string(), setting.value.to_string()));
    }

    fn put(&mut self, (tunable, value): (String, String)) {
        match self.tunables.iter_mut().find(|(t, _)| *t == tunable) {
            Some(old) => old.1 = value,
            None => self.tunables.push((tunable, value)),
        }
    }
}

fn one(text: &str) -> Result<Listed, Failure> {
    let mut words = text.split(':');
    let name = words.next().unwrap_or_default().to_string();
    let mut listed = Listed {
        name,
        tunables: Vec::new(),
    };
    for word in words {
        let setting = Setting::parse(word).filter(|setting| setting.scheduler.is_none());
        let setting = setting.ok_or_else(|| {
            Failure::mistake(format!(
                "--schedulers {text}: not of the form scheduler:tunable=value, such as \
                 mq-deadline:fifo_batch=1:front_merges=0"
            ))
        })?;
        listed.set(setting);
    }
    Ok(listed)
}

fn apply(set: &str, list: &mut [Listed]) -> Result<(), Failure> {
    let setting = Setting::parse(set);
    let named = setting.and_then(|setting| Some((setting.scheduler?, setting)));
    let (scheduler, setting) = named.ok_or_else(|| {
        Failure::mistake(format!(
            "--set {set}: not of the form scheduler.tunable=value, such as \
             mq-deadline.fifo_batch=1"
        ))
    })?;
    let names: Vec<String> = list.iter().map(|l| l.name.clone()).collect();
    if !names.iter().any(|name| name == scheduler) {
        // A scheduler that there is was meant.
        let hint = match blklab_elevator::find(scheduler) {
            Some(_) => String::new(),
            None => hint(scheduler, names.iter().map(String::as_str)),
        };
        let names = names.join(", ");
        return Err(Failure::mistake(format!(
            "--set {set}: {scheduler} is not among the schedulers of this run ({names}){hint}"
        )));
    }
    let of_name = list.iter_mut().filter(|l| l.name == scheduler);
    of_name.for_each(|listed| listed.set(setting));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(names: &str, sets: &[&str]) -> Result<Vec<Listed>, Failure> {
        let names: Vec<String> = names.split(',').map(str::to_string).collect();
        let sets: Vec<String> = sets.iter().map(|s| s.to_string()).collect();
        listed(&names, &sets)
    }

    fn tunables(listed: &Listed) -> Vec<String> {
        let each = listed.tunables.iter();
        each.map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    #[test]
    fn variants_stand_beside_each_other() {
        let list = list("a,a:x=1,a:x=2:y=3,b", &["a.z=9", "a.x=7"]).expect("legal");
        assert_eq!(tunables(&list[0]), ["z=9", "x=7"]);
        assert_eq!(tunables(&list[1]), ["x=1", "z=9"]);
        assert_eq!(tunables(&list[2]), ["x=2", "y=3", "z=9"]);
        assert!(tunables(&list[3]).is_empty());
    }

    #[test]
    fn mistakes_say_what_is_right() {
        for (names, sets, expected) in [
            ("a,a", vec![], "named twice"),
            ("a:x=1,a", vec!["a.x=1"], "named twice"),
            ("a:x", vec![], "scheduler:tunable=value"),
            ("a:../x=1", vec![], "scheduler:tunable=value"),
            ("a", vec!["x=1"], "scheduler.tunable=value"),
            ("kyber", vec!["kyberr.x=1"], "kyber"),
        ] {
            let error = list(names, &sets).expect_err(names);
            let text = format!("{error:?}");
            assert!(text.contains(expected), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_list_makes_it_panic(names in "[a-c:=.,x1-]{0,24}", set in "[a-c:=.x1-]{0,12}") {
            if let Ok(list) = list(&names, &[&set]) {
                prop_assert_eq!(list.len(), names.split(',').count());
            }
        }
    }
}
