//! A server before another server: what it passes on, and what it does when
//! the other goes away.

use crate::support::Place;
use crate::support::served::{Served, have, judge, nbdsh};

#[test]
fn extents_are_those_of_the_other_server() {
    if !have("nbdsh") || !have("nbdinfo") {
        return;
    }
    let (place, behind) = (Place::new(), Place::new());
    let origin = Served::start(&behind, &["--memory", "16M"]);
    let front = Served::start(&place, &["--nbd", &origin.uri()]);
    nbdsh(
        &place,
        &front.uri(),
        &["h.pwrite(b'x'*65536, 1<<20)", "h.pwrite(b'x'*65536, 3<<20)"],
    );
    let map = |uri: &str| judge(&place, "nbdinfo", &["--map", uri]).out;
    let told = map(&front.uri());
    assert_eq!(told, map(&origin.uri()));
    assert_eq!(told.matches("hole,zero").count(), 3, "{told}");
    assert_eq!(told.matches("data").count(), 2, "{told}");
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    if !have("nbdsh") {
        return;
    }
    let (place, behind) = (Place::new(), Place::new());
    std::fs::write(behind.path("disk.img"), vec![0; 1 << 20]).expect("written");
    let origin = Served::start(&behind, &["--file", "disk.img"]);
    let uri = origin.uri();
    let front = Served::start(&place, &["--nbd", &uri, "--backend-threads", "2"]);
    nbdsh(
        &place,
        &front.uri(),
        &["h.pwrite(b'a'*4096, 0)", "h.flush()"],
    );
    origin.kill();
    let origin = Served::start(&behind, &["--file", "disk.img"]);
    // Nothing was promised that could be gone.
    nbdsh(
        &place,
        &front.uri(),
        &[
            "assert h.pread(4096, 0) == b'a'*4096",
            "h.flush()",
            "h.pwrite(b'b'*4096, 0)",
        ],
    );
    origin.kill();
    let _origin = Served::start(&behind, &["--file", "disk.img"]);
    // What was written last was not flushed: the next flush says so, once.
    let said = nbdsh(
        &place,
        &front.uri(),
        &[
            "h.pread(4096, 0)",
            "try: h.flush(); print('flushed')\nexcept nbd.Error as e: print(e.errno)",
            "h.flush()",
        ],
    );
    assert_eq!(said.trim(), "EIO");
    assert_eq!(front.terminate(), Some(0));
}

#[test]
fn a_server_that_stays_away_is_an_error() {
    if !have("nbdsh") {
        return;
    }
    let (place, behind) = (Place::new(), Place::new());
    let origin = Served::start(&behind, &["--memory", "1M"]);
    let front = Served::start(&place, &["--nbd", &origin.uri(), "--reconnect", "0"]);
    origin.kill();
    let ask = "try: h.pread(512, 0); print('read')\nexcept nbd.Error as e: print(e.errno)";
    let said = nbdsh(&place, &front.uri(), &[ask, ask]);
    assert_eq!(said, "EIO\nEIO\n");
    // Another export in its place is not taken for the same.
    let _other = Served::start(&behind, &["--memory", "2M"]);
    let said = nbdsh(&place, &front.uri(), &[ask]);
    assert_eq!(said, "EIO\n");
}
