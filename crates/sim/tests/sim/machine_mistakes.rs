//! Machine descriptions with one mistake each: whatever the key, the error names
//! the file, the line, the key, what was found and what would be right.

use std::collections::BTreeSet;

use blklab_sim::Machine;

use crate::one_mistake::Description;
use crate::texts;

#[test]
fn every_mistake_in_every_key_is_told_in_full() {
    let parse = |name: &str, text: &str| Machine::parse(name, text).map(|_| ());
    let shipped = Machine::names().map(|name| (name, Machine::text(name).expect("listed")));
    for (name, text) in shipped.chain([("every", Machine::complete())]) {
        let (name, parse) = (&format!("{name}.toml"), &parse);
        Description { name, text, parse }.check();
    }
}

#[test]
fn no_key_is_forgotten_here() {
    let text = Machine::complete();
    let set = texts::settings(text).into_iter().map(|set| set.path);
    let set: BTreeSet<String> = set.collect();
    let known = texts::known_keys(text, |text| Machine::parse("m.toml", text).err());
    let is_table = |key: &str| text.contains(&format!("[{key}"));
    let forgotten = known
        .difference(&set)
        .filter(|key| !is_table(key) && *key != "assumed" && !key.starts_with("costs.like."));
    assert_eq!(forgotten.collect::<Vec<_>>(), Vec::<&String>::new());
}
