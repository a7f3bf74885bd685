//! Machine descriptions with one mistake each: whatever the key, the error names
//! the file, the line, the key, what was found and what would be right.

use std::collections::BTreeSet;

use blklab_sim::Machine;

use crate::one_mistake::Description;
use crate::texts;

/// Every key but those of further engines and schedulers.
const EVERY_KEY: &str = r#"
description = "every key"
[cpu]
count = 4
[kernel]
dispatch = "submitter"
[costs]
user_submit_ns = 100
user_reap_ns = 100
syscall_ns = 100
bio_ns = 100
queue_rq_ns = 100
list_ns = 100
page_ns = 100
interrupt_ns = 100
complete_ns = 100
context_switch_ns = 100
cold_percent = 50
cold_half_ns = 100
wake_ns = 100
kblockd_ns = 100
lock_transfer_ns = 100
lock_waiter_ns = 100
[costs.loop]
read_ns = 100
write_ns = 100
read_page_ns = 100
write_page_ns = 100
softirq_wait_ns = 100
[costs.engine.libaio]
user_ns = 100
kernel_ns = 100
[costs.scheduler.bfq]
merge_ns = 100
insert_ns = 100
dispatch_ns = 100
finish_ns = 100
transfer_ns = 100
waiter_ns = 100
[costs.like]
cfq = "bfq"
"#;

#[test]
fn every_mistake_in_every_key_is_told_in_full() {
    let parse = |name: &str, text: &str| Machine::parse(name, text).map(|_| ());
    let shipped = Machine::names().map(|name| (name, Machine::text(name).expect("listed")));
    for (name, text) in shipped.chain([("every", EVERY_KEY)]) {
        let (name, parse) = (&format!("{name}.toml"), &parse);
        Description { name, text, parse }.check();
    }
}

#[test]
fn no_key_is_forgotten_here() {
    let set = texts::settings(EVERY_KEY).into_iter().map(|set| set.path);
    let set: BTreeSet<String> = set.collect();
    let known = texts::known_keys(EVERY_KEY, |text| Machine::parse("m.toml", text).err());
    let is_table = |key: &str| EVERY_KEY.contains(&format!("[{key}"));
    let forgotten = known
        .difference(&set)
        .filter(|key| !is_table(key) && !key.starts_with("costs.like."));
    assert_eq!(forgotten.collect::<Vec<_>>(), Vec::<&String>::new());
}
