//! SCSI disks of this machine's kernel: Linux in a guest as the outside judge, fio's
//! verification, the programs of sg3-utils, and a server that is killed under load.

use std::path::Path;

use blklab_guest::Packages;

use crate::support::{Place, guest, kills};

const MODULES: [&str; 4] = ["target_core_user", "tcm_loop", "sd_mod", "sg"];

/// What the script begins with.
const BEGIN: &str = r#"
set -e
mount -t configfs none /sys/kernel/config
targets=/sys/kernel/config/target
serve() {
    # What the former server said must not be taken for what this one says.
    rm -f /tmp/said
    blklab serve --tcmu scratch --scheduler bfq "$@" >/tmp/said 2>&1 &
    server=$!
    tries=0
    until grep -qs '^/dev/sd' /tmp/said; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { cat /tmp/said; exit 1; }
        sleep 0.1
    done
    disk=$(cat /tmp/said)
}
verify() {
    fio --filename=$disk --ioengine=libaio --direct=1 --iodepth=8 --verify=crc32c \
        --verify_fatal=1 --verify_backlog=64 "$@" >/tmp/fio || { cat /tmp/fio; exit 1; }
}
end() {
    kill $server
    wait $server
    if ls $targets/core | grep user; then exit 1; fi
    [ ! -e $targets/loopback ]
    if ls /dev | grep '^sd'; then exit 1; fi
}
truncate -s 16M /tmp/disk.img
"#;

/// What the disk is, what it does with data, and what is left of it at the end.
const USED: &str = r#"
serve --file /tmp/disk.img
cd /sys/block/${disk#/dev/}
cat queue/write_cache
[ "$(cat queue/discard_max_bytes)" -gt 0 ]
[ "$(cat queue/fua)" = 1 ]
[ "$(cat queue/physical_block_size)" = 4096 ]
cd /
verify --name=v --rw=randrw --bsrange=512-256k --bs_unaligned=0 --size=4m --fsync=64
cache=$(echo /sys/block/${disk#/dev/}/device/scsi_disk/*/cache_type)
echo "write through" >$cache
cat $cache
verify --name=w --rw=randwrite --bs=4k --size=256k
blkdiscard -l 4194304 $disk
cmp -n 4194304 $disk /dev/zero
if [ -e /bin/sg_readcap ]; then
    sg_readcap --long $disk | grep 'logical blocks=32768'
    sg_inq $disk | grep 'Vendor identification: BLKLAB'
    sg_vpd --page=bl $disk | grep 'Maximum compare and write length: 255'
    sg_vpd --page=di $disk | grep 'vendor specific: scratch'
    sg_opcodes $disk | grep 'Compare and write'
    # FORMAT UNIT, which the disk does not have.
    sg_raw $disk 04 00 00 00 00 00 2>&1 | grep -i 'invalid command operation code'
    head -c 512 /dev/zero >/tmp/compare
    head -c 512 /dev/urandom >>/tmp/compare
    sg_compare_and_write --in=/tmp/compare --lba=8 --num=1 $disk
    tail -c 512 /tmp/compare >/tmp/wrote
    dd if=$disk bs=512 skip=8 count=1 iflag=direct 2>/dev/null | cmp - /tmp/wrote
    if sg_compare_and_write --in=/tmp/compare --lba=8 --num=1 $disk 2>/tmp/failed; then exit 1; fi
    grep -i miscompare /tmp/failed
    sg_write_same --in=/tmp/wrote --lba=16 --num=100 --xferlen=512 $disk
    dd if=$disk bs=512 skip=115 count=1 iflag=direct 2>/dev/null | cmp - /tmp/wrote
    sg_verify --lba=0 --count=64 $disk
    echo judged
fi
end
if dmesg | grep -i 'i/o error'; then exit 1; fi
"#;

/// A server that is killed under load and served again, one whose name is in use, and one
/// whose disk has another size.
const KILLED: &str = r#"
serve --file /tmp/disk.img
for round in $(seq $kills); do
    verify --name=k --rw=randwrite --bs=4k --size=256k --rate_iops=60 &
    job=$!
    usleep 500000
    kill -9 $server
    wait $server || :
    serve --file /tmp/disk.img
    [ $round = $kills ] || wait $job
done
if blklab serve --tcmu scratch --memory 16M; then exit 1; fi
wait $job
if dmesg | grep -i 'i/o error'; then exit 1; fi
kill -9 $server
wait $server || :
serve --memory 8M
[ "$(cat /sys/block/${disk#/dev/}/size)" = 16384 ]
verify --name=n --rw=write --bs=64k --size=1m
end
echo passed
"#;

/// Runs a script in a guest, and returns what it said; `None` where there is no guest.
fn in_guest(script: &str) -> Option<String> {
    let has_all = |packages: &Packages| MODULES.iter().all(|name| packages.has_module(name));
    let kernel = guest::kernel("kernel with target_core_user and tcm_loop", has_all)?;
    let mut args = Vec::new();
    MODULES
        .iter()
        .for_each(|module| args.extend(["--load", module]));
    let sg_utils = [
        "sg_readcap",
        "sg_inq",
        "sg_vpd",
        "sg_opcodes",
        "sg_raw",
        "sg_compare_and_write",
        "sg_write_same",
        "sg_verify",
    ];
    let programs: Vec<String> = sg_utils.map(|name| format!("/usr/bin/{name}")).to_vec();
    if programs.iter().all(|program| Path::new(program).exists()) {
        programs
            .iter()
            .for_each(|program| args.extend(["--program", program]));
    }
    args.extend(["--program", env!("CARGO_BIN_EXE_blklab")]);
    let done = Place::new().in_guest(script, &kernel, 768, &args);
    Some(done.ok().out)
}

#[test]
fn linux_uses_a_scsi_disk_whose_server_is_killed() {
    let kills = format!("kills={}\n", kills(2));
    // In one guest, as it takes some seconds to boot.
    let Some(said) = in_guest(&[BEGIN, USED, &kills, KILLED].concat()) else {
        return;
    };
    for expected in [
        "write back",
        "write through",
        "another process serves this name",
    ] {
        assert!(said.contains(expected), "no {expected:?} in:\n{said}");
    }
    if !said.contains("judged") {
        blklab_judges::missing("sg_readcap");
    }
}

#[test]
fn a_kernel_without_scsi_targets_is_told() {
    if Path::new("/sys/kernel/config/target/core").exists() {
        return blklab_judges::not_possible("this machine has SCSI targets");
    }
    let place = Place::new();
    let done = place.blklab(&["serve", "--tcmu", "scratch", "--memory", "1M"]);
    assert_eq!(done.status, 2, "{}", done.err);
    for wanted in ["target_core_user", "tcm_loop", "configfs"] {
        assert!(done.err.contains(wanted), "{}", done.err);
    }
}

#[test]
fn scsi_disks_have_names() {
    let place = Place::new();
    let done = place.blklab(&["serve", "--tcmu", "/dev/sda", "--memory", "1M"]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("such as scratch"), "{}", done.err);
}
