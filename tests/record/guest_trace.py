"""Boots Debian's kernel under QEMU with a script, and brings back the traces that it made.

The kernel is what `blklab guest setup` unpacked. The guest's clock counts instructions, a
nanosecond each (`-icount`), so that a busy host does not show in a trace.
"""

import gzip
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

FOLDER = pathlib.Path(
    os.environ.get("BLKLAB_GUEST")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "blklab/guest"
)
MODULES = ["virtio_blk", "null_blk", "bfq", "kyber-iosched", "ext4", "crc32c_generic"]
PROGRAMS = ["busybox", "fio", "mkfs.ext4"]

# The line that every trace of ours was recorded with; `{}` are the number of CPUs, what two of
# them need to agree on the time, and the files.
MACHINE = (
    "qemu-system-x86_64 -accel tcg -machine q35 -cpu max -smp {cpus} -m 3G -nodefaults"
    " -no-user-config -no-reboot -display none -serial stdio -kernel {kernel} -initrd {initrd}"
    " -append {append} -drive if=none,id=a,format=raw,file={input}"
    " -device virtio-blk-pci,drive=a -drive if=none,id=b,format=raw,file={output}"
    " -device virtio-blk-pci,drive=b -icount shift=0,sleep=off -rtc base=2026-01-01,clock=vm"
)
APPEND = "console=ttyS0 panic=-1 quiet mitigations=off nokaslr"
APPEND_SMP = " clocksource=tsc tsc=reliable"
OUTPUT_MIB = 192

# The guest's first process. `$T` is tracefs, `$O` the folder whose files come back.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin HOME=/tmp T=/sys/kernel/tracing O=/tmp/out LD_LIBRARY_PATH=/lib64
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tracefs none $T
mount -t debugfs none /sys/kernel/debug
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /dev/shm
mount -t tmpfs none /dev/shm
mount -t tmpfs none /tmp
for m in $(cat /modules/order); do
    case $m in null_blk) ;; *) insmod /modules/$m.ko || echo "no $m" ;; esac
done
mkdir -p $O /tmp/in
tar xf /dev/vda -C /tmp/in
. /tmp/in/main >$O/log 2>&1
tar cf /dev/vdb -C $O . && sync
echo GUEST-END
poweroff -f
"""

# What a script needs to trace.
TRACING = """
trace_setup() { # PROBES EVENTS: definitions, a line each, and events to switch on
    echo 0 > $T/tracing_on
    echo mono > $T/trace_clock
    echo ${BUFFER_KB:-40000} > $T/buffer_size_kb
    while read -r probe; do
        [ -z "$probe" ] || echo "$probe" >> $T/dynamic_events || echo "NO-PROBE $probe"
    done < "$1"
    while read -r event; do
        echo 1 > $T/events/$event/enable || echo "NO-EVENT $event"
    done < "$2"
    [ ! -d $T/events/cf ] || echo 1 > $T/events/cf/enable
}
trace_start() { echo > $T/trace; echo 1 > $T/tracing_on; }
# The text, then the same buffer once more with times in ns, and how much was lost.
trace_stop() {
    echo 0 > $T/tracing_on
    cat $T/trace > $O/trace.txt
    echo 1 > $T/options/raw
    cat $T/trace > $O/trace.raw
    echo 0 > $T/options/raw
    for c in $T/per_cpu/cpu*; do cat $c/stats; done > $O/stats
}
"""


def _newc(name, mode, data=b"", rdev=(0, 0), ino=[0]):
    """An entry of a cpio archive in the format that the kernel unpacks."""
    ino[0] += 1
    path = name.encode() + b"\0"
    fields = [ino[0], mode, 0, 0, 1, 0, len(data), 0, 0, rdev[0], rdev[1], len(path), 0]
    head = b"070701" + b"".join(b"%08X" % f for f in fields) + path
    head += b"\0" * (-len(head) % 4)
    return head + data + b"\0" * (-len(data) % 4)


def _libraries(program):
    text = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return sorted(set(re.findall(r"(/\S+)", text)))


def release():
    return (FOLDER / "version").read_text().strip() + "-amd64"


def kernel_name():
    """What a description calls the kernel."""
    found = re.search(rb" Debian (\d\S*) \(", (FOLDER / "vmlinux").read_bytes())
    version = found.group(1).decode() if found else (FOLDER / "version").read_text().strip()
    return f"Linux {release()} (Debian {version}), HZ=250, PREEMPT_DYNAMIC (voluntary)"


def _module_order(wanted):
    root = FOLDER / "root/lib/modules" / release()
    depends = {}
    for line in (root / "modules.dep").read_text().splitlines():
        path, needs = line.split(":")
        depends[pathlib.Path(path).name.split(".ko")[0]] = (root / path, needs.split())
    order = []

    def add(name):
        path, needs = depends[name]
        for need in reversed(needs):
            add(pathlib.Path(need).name.split(".ko")[0])
        if all(name != n for n, _ in order):
            order.append((name, path))

    for name in wanted:
        add(name)
    return order


def initramfs(folder, modules=MODULES, programs=PROGRAMS):
    """Writes what the guest starts with to `folder`, once, and returns its path."""
    archive = pathlib.Path(folder) / "guest.cpio.gz"
    if archive.exists():
        return archive
    parts, seen = [], set()

    def put(name, data, mode=0o100755):
        if name in seen:
            return
        for at in range(1, len(parents := name.split("/"))):
            above = "/".join(parents[:at])
            if above not in seen:
                seen.add(above)
                parts.append(_newc(above, 0o040755))
        seen.add(name)
        parts.append(_newc(name, mode, data))

    for name in ["proc", "sys", "dev", "tmp", "mnt", "etc", "sbin"]:
        seen.add(name)
        parts.append(_newc(name, 0o040755))
    parts.append(_newc("dev/console", 0o020600, rdev=(5, 1)))
    put("init", INIT.encode())
    put("etc/mke2fs.conf", pathlib.Path("/etc/mke2fs.conf").read_bytes(), 0o100644)
    for program in programs:
        path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
        put("bin/" + pathlib.Path(path).name, pathlib.Path(path).read_bytes())
        for library in _libraries(path):
            put(library.lstrip("/"), pathlib.Path(library).read_bytes())
    put("sbin/modprobe", b"#!/bin/busybox sh\nexit 0\n")
    order = _module_order(modules)
    for name, path in order:
        data = path.read_bytes()
        put(f"modules/{name}.ko", lzma.decompress(data) if path.suffix == ".xz" else data)
    put("modules/order", "\n".join(name for name, _ in order).encode(), 0o100644)
    parts.append(_newc("TRAILER!!!", 0))
    archive.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(archive, "wb", compresslevel=1) as out:
        out.writelines(parts)
    return archive


def machine(cpus, short=True, **files):
    """QEMU's command line; with `short`, as a description tells it."""
    append = APPEND + (APPEND_SMP if cpus > 1 else "")
    if short:
        files = dict(kernel="vmlinux", initrd="i.cpio", input="in.img", output="out.img")
        return MACHINE.format(cpus=cpus, append=append, **files)
    return [word.format(cpus=cpus, append=append, **files) for word in MACHINE.split()]


def boot(files, initrd, cpus=1, limit_s=500):
    """Runs `files["main"]`, a shell script, in a guest; returns the files that it left in `$O`."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "in").mkdir()
        for name, text in files.items():
            (folder / "in" / name).write_text(text)
        with tarfile.open(folder / "in.img", "w") as tar:
            tar.add(folder / "in", ".")
        os.truncate(folder / "in.img", -(-(folder / "in.img").stat().st_size // 2**20) * 2**20)
        (folder / "out.img").touch()
        os.truncate(folder / "out.img", OUTPUT_MIB << 20)
        command = machine(
            cpus,
            short=False,
            kernel=FOLDER / "vmlinux",
            initrd=initrd,
            input=folder / "in.img",
            output=folder / "out.img",
        )
        command = [str(word) for word in command]
        console = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s
        )
        if b"GUEST-END" not in console.stdout:
            raise RuntimeError(f"the guest failed: {(console.stdout + console.stderr)[-3000:]}")
        left = {}
        with tarfile.open(folder / "out.img") as tar:
            for member in tar.getmembers():
                if member.isfile():
                    name = member.name.removeprefix("./")
                    left[name] = tar.extractfile(member).read().decode(errors="replace")
        return left


LINE = re.compile(r"^(.{16,}?)-(\d+)\s+\[(\d+)\] (\S+)\s+(\d+)\.(\d{6}): (.*)$")
RAW = re.compile(r"^(\d+) (\d+) (\d+) ")


def join(text, raw, probes=()):
    """The text of a trace with times in ns, from two readings of one buffer, and without the
    fields that a probe read through the NULL pointer that a function returned."""
    through = {}
    for probe in probes:
        words = probe.split()
        name = words[0].split("/")[1]
        through[name] = [w.split("=")[0] for w in words[2:] if "($retval)" in w]
    times = iter([RAW.match(line) for line in raw.splitlines() if not line.startswith("#")])
    lines = []
    for line in text.splitlines():
        found = LINE.match(line)
        if line.startswith("#") or not line.strip():
            lines.append(line)
            continue
        if not found:
            raise ValueError(f"no event: {line}")
        time = next(times)
        pid, ns = int(time.group(1)), int(time.group(3))
        us = int(found.group(5)) * 10**6 + int(found.group(6))
        # The text rounds to the nearest microsecond.
        if pid != int(found.group(2)) or abs(ns - us * 1000) > 1000:
            raise ValueError(f"the readings differ: {line} / {time.group(0)}")
        stamp = f"{ns // 10**9}.{ns % 10**9:09d}"
        line = line.replace(f"{found.group(5)}.{found.group(6)}: ", f"{stamp}: ", 1)
        event = found.group(7).split(":")[0]
        if " rq=0x0 " in line and event in through:
            for field in through[event]:
                line = re.sub(rf" {field}=\S+", "", line)
        lines.append(line)
    if next(times, None) is not None:
        raise ValueError("the readings differ in length")
    return "\n".join(lines) + "\n"


EVENT = re.compile(r"^.{16,}?-\d+\s+\[\d+\] \S+\s+(\d+\.\d{9}): ([a-z_A-Z0-9]+):(.*)$")


def counts(trace):
    """What a description tells of the events of a trace."""
    events, devs, first, last = {}, {}, None, None
    for line in trace.splitlines():
        found = EVENT.match(line)
        if not found:
            continue
        first, last = first or found.group(1), found.group(1)
        events[found.group(2)] = events.get(found.group(2), 0) + 1
        dev = re.match(r" (\d+,\d+) ", found.group(3))
        if dev and found.group(2).startswith("block_"):
            devs[dev.group(1)] = devs.get(dev.group(1), 0) + 1
    return {
        "devs_seen": devs,
        "event_counts": dict(sorted(events.items())),
        "events_total": sum(events.values()),
        "first_ts": first,
        "last_ts": last,
    }


def ring_buffer(stats):
    """The statistics of the ring buffers, summed over CPUs."""
    total = {}
    for line in stats.splitlines():
        name, value = line.split(":")
        value = value.strip()
        if name in ("oldest event ts", "now ts"):
            total[name] = value
        else:
            total[name] = str(int(total.get(name, 0)) + int(value))
    return total


def write(folder, name, trace, description):
    """Writes `NAME.trace.gz` and `NAME.json`."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.trace.gz", "wb") as file:
        # No name and no time, so that the same trace is the same file.
        with gzip.GzipFile("", "wb", 9, file, mtime=0) as out:
            out.write(trace.encode())
    (folder / f"{name}.json").write_text(json.dumps(description, indent=1) + "\n")
