//! `serve --cgroup-file`: clients in control groups, with libnbd's tools as clients.

use crate::support::Place;
use crate::support::served::{Served, have, judge, metric};

const GROUPS: &str = "\
[/slow/copy]
io.max = 8:0 wbps=8388608
io.bfq.weight = 50
[/fast]
io.weight = 500
";

/// Bytes that are copied: half a second's worth of what the slow group may write.
const COPIED: usize = 4 << 20;

fn uri(served: &Served, name: &str) -> String {
    format!("nbd+unix:///{name}?socket={}", served.socket.display())
}

/// The server, and where its metrics are.
fn served(place: &Place) -> (Served, String) {
    place.file("groups.conf", GROUPS);
    let options = [
        "--memory",
        "16M",
        "--name",
        "disk",
        "--cgroup-file",
        "groups.conf",
        "--metrics",
        "127.0.0.1:0",
    ];
    let mut served = Served::start(place, &options);
    let address = served.metrics_address();
    (served, address)
}

/// How many bios of a group `io.max` held back.
fn held(address: &str, group: &str) -> u64 {
    let words = [&format!("cgroup=\"{group}\""), "layer=\"io.max\""];
    metric(address, "blklab_cgroup_held_bios_total{", &words)
}

#[test]
fn the_name_that_a_client_asks_for_says_its_group() {
    if !have("nbdcopy") || !have("nbdinfo") {
        return;
    }
    let place = Place::new();
    let data: Vec<u8> = (0..COPIED).map(|n| (n / 7 % 251) as u8).collect();
    std::fs::write(place.path("data"), &data).expect("a file");
    let (served, metrics) = served(&place);
    let listed = judge(&place, "nbdinfo", &["--list", &uri(&served, "")]).out;
    for name in ["\"disk\"", "\"disk@slow/copy\"", "\"disk@fast\""] {
        assert!(listed.contains(name), "{name}: {listed}");
    }
    assert!(!listed.contains("disk@slow\""), "it has a group in it");
    for name in ["disk", "disk@fast"] {
        judge(&place, "nbdcopy", &["data", &uri(&served, name)]);
    }
    assert_eq!(
        (held(&metrics, "fast"), held(&metrics, "slow/copy")),
        (0, 0)
    );
    // A new scheduler is told of the groups.
    served.set(&place, "queue/scheduler", "bfq");
    judge(
        &place,
        "nbdcopy",
        &["data", &uri(&served, "disk@slow/copy")],
    );
    assert!(held(&metrics, "slow/copy") > 0);
    assert_eq!(held(&metrics, "fast"), 0);
    // What was held back came through.
    judge(&place, "nbdcopy", &[&uri(&served, "disk@fast"), "back"]);
    let back = std::fs::read(place.path("back")).expect("it was read");
    assert!(back[..COPIED] == data[..], "other data came back");
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_mistake_is_told_with_its_line() {
    let place = Place::new();
    place.file("groups.conf", "[/a]\nio.weight = 20000\n");
    let serve = |more: &[&str]| {
        let options = ["serve", "--socket", "s", "--memory", "1M"];
        place.blklab(&[&options[..], more].concat())
    };
    let refused = serve(&["--cgroup-file", "groups.conf"]);
    assert_eq!(refused.status, 2, "{}", refused.err);
    assert!(refused.err.contains("groups.conf:2"), "{}", refused.err);
    assert!(refused.err.contains("from 1 to 10000"), "{}", refused.err);
    let refused = serve(&["--cgroup-file", "missing.conf"]);
    assert_eq!(refused.status, 2, "{}", refused.err);
    assert!(refused.err.contains("missing.conf"), "{}", refused.err);
}
