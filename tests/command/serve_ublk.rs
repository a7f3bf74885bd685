//! Disks of this machine's kernel: Linux in a guest as the outside judge, fio's
//! verification, and a server that is killed under load.

use std::path::Path;

use blklab_guest::Packages;

use crate::support::{Place, guest, kills};

/// What the guest does: reads and writes that fio verifies while the server is killed
/// and served again, a device that is served already, and what is left at the end.
const SCRIPT: &str = r#"
set -e
serve() {
    blklab serve --ublk 0 --file /tmp/disk.img --scheduler bfq >/tmp/said 2>&1 &
    server=$!
    tries=0
    until grep -qs '^/dev/ublkb0' /tmp/said; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || { cat /tmp/said; exit 1; }
        sleep 0.1
    done
}
truncate -s 16M /tmp/disk.img
serve
queue=/sys/block/ublkb0/queue
cat $queue/write_cache
ls $queue/../mq | wc -l
[ "$(cat $queue/discard_max_bytes)" -gt 0 ]
[ "$(cat $queue/write_zeroes_max_bytes)" -gt 0 ]
verify() {
    fio --filename=/dev/ublkb0 --ioengine=libaio --direct=1 --iodepth=8 --verify=crc32c \
        --verify_fatal=1 --verify_backlog=64 "$@" >/tmp/fio || { cat /tmp/fio; exit 1; }
}
verify --name=v --rw=randrw --bsrange=512-256k --bs_unaligned=0 --size=2m --fsync=64
fio --name=t --filename=/dev/ublkb0 --rw=trim --bs=256k --size=8m >/dev/null
cmp -n 8388608 /dev/ublkb0 /dev/zero

for kill in $(seq KILLS); do
    verify --name=k --rw=randwrite --bs=4k --size=2m --rate_iops=400 &
    job=$!
    sleep 0.5
    kill -9 $server
    sleep 0.5
    if [ $kill = 1 ] && blklab serve --ublk 0 --memory 8M; then exit 1; fi
    serve
    if [ $kill = 1 ] && blklab serve --ublk 0 --memory 16M; then exit 1; fi
    wait $job
    echo killed $kill
done

kill $server
wait $server
if ls /dev | grep 'ublk[bc]'; then exit 1; fi
[ -z "$(ls /sys/class/ublk-char)" ]
dmesg | grep -i 'i/o error' && exit 1
echo passed
"#;

#[test]
fn linux_uses_a_disk_whose_server_is_killed() {
    let wanted = |packages: &Packages| packages.has_module("ublk_drv");
    let Some(kernel) = guest::kernel("kernel with ublk_drv", wanted) else {
        return;
    };
    let program = env!("CARGO_BIN_EXE_blklab");
    let kills = kills(1);
    // A guest without KVM takes a few seconds for each.
    let limit = (600 + 20 * kills).to_string();
    let more = [
        "--load",
        "ublk_drv",
        "--program",
        program,
        "--limit",
        &limit,
    ];
    let script = SCRIPT.replace("KILLS", &kills.to_string());
    let done = Place::new().in_guest(&script, &kernel, 768, &more);
    let said = done.ok().out;
    assert!(said.contains(&format!("killed {kills}\n")), "{said}");
    for expected in [
        "write back",
        "2\n",
        "waits for its server and has 32768 sectors, not 16384",
        "is served by process",
    ] {
        assert!(said.contains(expected), "no {expected:?} in:\n{said}");
    }
}

#[test]
fn a_kernel_without_ublk_is_told() {
    if Path::new("/dev/ublk-control").exists() {
        return blklab_judges::not_possible("this machine has ublk");
    }
    let place = Place::new();
    let done = place.blklab(&["serve", "--ublk", "--memory", "1M"]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("ublk_drv"), "{}", done.err);
}

#[test]
fn devices_have_numbers() {
    let place = Place::new();
    let done = place.blklab(&["serve", "--ublk", "/dev/ublkb0", "--memory", "1M"]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("such as 0"), "{}", done.err);
}
