"""Which scheduler and readahead a distribution should ship: every scheduler of the kernel and
several read_ahead_kb, on drives, under workloads of real programs, by ``blklab sweep``.

The runs are kept, so that a second report does only what is new. ``make defaults-report``
makes the page.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet

WORKLOADS = Path(__file__).parent / "workloads"

SCHEDULERS = ("none", "mq-deadline", "kyber", "bfq")
READ_AHEAD_KB = (0, 32, 128, 512, 2048)

#: What the kernel does by itself (``VM_READAHEAD_PAGES``).
DEFAULT_READ_AHEAD_KB = 128

#: With less memory than files a page cache does not hide the drive.
MEMORY = "512M"

#: One whose schedulers' CPU time was measured: a scheduler that costs nothing is too good.
MACHINE = "xeon-10core"

#: How long a run lasts, by what the drive is: in a quarter of it write-back is not steady, and
#: a setting gains up to four times as much. On NVMe that takes too long.
RUNTIME = {"hdd": "16s", "mmc": "8s", "ahci": "2s", "nvme": "200ms"}

#: Quantiles of Student's t at 97.5 %, by the number of repeats from 2 on.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)

#: One of each kind. None is a memory card: backup-beside-database's files do not fit on one.
DRIVES = ("hdd-7200", "mx100-256", "qlc-1tb", "nvme", "optane-ssd")

Setting = tuple[str, int]


@dataclass(frozen=True)
class Drive:
    """A drive of the report."""

    name: str
    about: str
    kind: str
    default: Setting

    @property
    def runtime(self) -> str:
        """How long a run on it lasts."""
        return RUNTIME[self.kind]


@dataclass(frozen=True)
class Gain:
    """How many times as fast as under the default, as a logarithm with its 95 % interval."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, logarithms: Sequence[float]) -> Gain:
        """Of one logarithm for each seed."""
        spread = statistics.stdev(logarithms) / math.sqrt(len(logarithms))
        return cls(statistics.mean(logarithms), STUDENT[len(logarithms) - 2] * spread)

    def __str__(self) -> str:
        percent = f"{100 * math.expm1(self.mean):+.1f} %"
        if self.half_width == 0:
            return percent
        low, high = self.mean - self.half_width, self.mean + self.half_width
        return f"{percent} ({100 * math.expm1(low):+.1f} to {100 * math.expm1(high):+.1f})"


#: Of a drive: by setting and workload, a logarithm of a speed for each seed.
Speeds = dict[Setting, dict[str, list[float]]]


def drive(blklab: str, name: str) -> Drive:
    """A drive by its name, as the program describes it."""
    text = subprocess.run(
        [blklab, "show", "drive", name], capture_output=True, text=True, check=True
    ).stdout
    keys = dict(re.findall(r'^(\w+) = "(.*?)"', text, re.MULTILINE))
    interface = keys["interface"]
    kind = "hdd" if keys["model"] == "hdd" else interface
    scheduler = "none" if interface == "nvme" else "mq-deadline"
    default = (scheduler, DEFAULT_READ_AHEAD_KB)
    return Drive(name, keys["description"], kind, default)


def swept(blklab: str, folder: Path, workload: Path, drive: Drive, repeats: int) -> Path:
    """Runs a workload on a drive under all settings; the data set."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = folder / f"{workload.stem}-{drive.name}.toml"
    job = os.path.relpath(workload.resolve(), folder.resolve())
    kb = ",".join(str(kb) for kb in READ_AHEAD_KB)
    spec.write_text(
        f'job = "{job}"\n'
        f'drive = "{drive.name}"\n'
        f'machine = "{MACHINE}"\n'
        f"repeats = {repeats}\n"
        f'override = ["runtime={drive.runtime}"]\n'
        f'vary = ["memory={MEMORY}", "scheduler={",".join(SCHEDULERS)}", "read_ahead_kb={kb}"]\n'
    )
    subprocess.run([blklab, "sweep", str(spec)], check=True, stdout=subprocess.DEVNULL)
    return spec.with_suffix(".sweep") / "results.parquet"


def speeds(table: Path, job: str) -> Iterator[tuple[Setting, int, float]]:
    """For each setting and seed the logarithm of the I/Os a second of a job."""
    columns = ["axis_scheduler", "axis_read_ahead_kb", "seed", "job", "direction"]
    rows = pyarrow.parquet.read_table(table, columns=[*columns, "ios", "elapsed_ns"]).to_pylist()
    ios: dict[tuple[Setting, int], int] = defaultdict(int)
    elapsed_ns: dict[tuple[Setting, int], int] = {}
    for row in rows:
        run = (row["axis_scheduler"], int(row["axis_read_ahead_kb"])), row["seed"]
        elapsed_ns[run] = row["elapsed_ns"]
        if row["job"] == job and row["direction"] in ("read", "write"):
            ios[run] += row["ios"]
    for run, time_ns in elapsed_ns.items():
        # A run in which no I/O came to its end is as slow as one with half of one.
        yield *run, math.log(max(ios[run], 0.5) / time_ns)


def first_job(workload: Path) -> str:
    """The job that a workload is judged by: its first."""
    names = [line.strip("[]") for line in workload.read_text().splitlines() if line[:1] == "["]
    return names[1]


def measured(blklab: str, folder: Path, drive: Drive, repeats: int) -> Speeds:
    """All workloads on a drive."""
    found: Speeds = defaultdict(dict)
    for workload in sorted(WORKLOADS.glob("*.fio")):
        table = swept(blklab, folder, workload, drive, repeats)
        for setting, _, speed in sorted(speeds(table, first_job(workload))):
            found[setting].setdefault(workload.stem, []).append(speed)
    return found


def gains(found: Speeds, setting: Setting, default: Setting) -> dict[str, Gain]:
    """By workload, a setting against the default; the n-th runs of both have one seed."""
    pairs = {
        name: zip(found[setting][name], found[default][name], strict=True)
        for name in found[setting]
    }
    return {name: Gain.of([ours - first for ours, first in of]) for name, of in pairs.items()}


def over_all(found: Speeds, setting: Setting, default: Setting) -> Gain:
    """The geometric mean over all workloads, with the interval that seeds give it."""
    differences = [
        [
            ours - first
            for ours, first in zip(found[setting][name], found[default][name], strict=True)
        ]
        for name in found[setting]
    ]
    return Gain.of([statistics.mean(of_seed) for of_seed in zip(*differences, strict=True)])


def named(setting: Setting) -> str:
    """A setting in words."""
    return f"{setting[0]}, {setting[1]} KiB"


@dataclass(frozen=True)
class Row:
    """A setting on a drive."""

    setting: Setting
    mean: Gain
    worst: tuple[str, Gain]
    best: tuple[str, Gain]

    def __str__(self) -> str:
        (worst, loss), (best, gain) = self.worst, self.best
        return f"| {named(self.setting)} | {self.mean} | {loss} ({worst}) | {gain} ({best}) |"


def rows(found: Speeds, default: Setting) -> list[Row]:
    """All settings of a drive, the best on average first."""
    made = []
    for setting in found:
        by_workload = sorted(gains(found, setting, default).items(), key=lambda of: of[1].mean)
        mean = over_all(found, setting, default)
        made.append(Row(setting, mean, by_workload[0], by_workload[-1]))
    return sorted(made, key=lambda row: -row.mean.mean)


def section(drive: Drive, of_drive: Sequence[Row]) -> str:
    """A drive's part of the page."""
    head = f"## {drive.name}\n\n{drive.about}. The kernel's own: {named(drive.default)}.\n\n"
    table = "| setting | on average | at worst | at best |\n| --- | --: | --: | --: |\n"
    return head + table + "\n".join(str(row) for row in of_drive) + "\n"


def answer(drive: Drive, of_drive: Sequence[Row]) -> str:
    """A drive's line of the answer: the best on average, and the one that loses least."""
    best = of_drive[0]
    safest = max(of_drive, key=lambda row: row.worst[1].mean)
    worst, loss = best.worst
    return (
        f"| {drive.name} | {named(drive.default)} | {named(best.setting)} | {best.mean} "
        f"| {loss} ({worst}) | {named(safest.setting)} |"
    )


def sources() -> str:
    """What each workload is, and where that is from."""
    lines = []
    for workload in sorted(WORKLOADS.glob("*.fio")):
        text = [line[2:] for line in workload.read_text().splitlines() if line[:2] == "# "]
        lines.append(
            f"- **{workload.stem}**, judged by `{first_job(workload)}`: {'. '.join(text[:1])}. "
            f"{' '.join(text[1:])}"
        )
    return "\n".join(lines)


def page(found: dict[str, tuple[Drive, list[Row]]], about: str) -> str:
    """The whole page."""
    head = "| drive | the kernel's | best on average | gain | at worst | loses least |\n"
    answers = [answer(drive, of_drive) for drive, of_drive in found.values()]
    parts = [
        "# Which scheduler and readahead should be the default?\n",
        about,
        head + "| --- | --- | --- | --: | --: | --- |\n" + "\n".join(answers) + "\n",
        *(section(drive, of_drive) for drive, of_drive in found.values()),
        "## Workloads\n\nWhat a source says was not looked up again for this page; what is "
        f"assumed is ours.\n\n{sources()}\n",
    ]
    return "\n".join(parts)


def main() -> None:
    """Makes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blklab", default="blklab", help="the command")
    parser.add_argument(
        "--folder", type=Path, default=Path("defaults"), help="where runs are kept"
    )
    parser.add_argument("--page", type=Path, default=Path("defaults.md"), help="the page's file")
    parser.add_argument("--drives", default=",".join(DRIVES), help="with commas between")
    parser.add_argument("--repeats", type=int, default=4, help="runs of each setting, 2 to 10")
    args = parser.parse_args()
    begun = time.monotonic()
    found: dict[str, tuple[Drive, list[Row]]] = {}
    for name in args.drives.split(","):
        of = drive(args.blklab, name)
        speeds_of_drive = measured(args.blklab, args.folder, of, args.repeats)
        found[name] = (of, rows(speeds_of_drive, of.default))
    took_s = time.monotonic() - begun
    workloads = len(list(WORKLOADS.glob("*.fio")))
    settings = len(SCHEDULERS) * len(READ_AHEAD_KB)
    runs = workloads * settings * len(found) * args.repeats
    kinds = dict.fromkeys(of.kind for of, _ in found.values())
    lengths = [f"{RUNTIME[kind]} ({kind})" for kind in kinds]
    about = (
        f"{workloads} workloads of real programs, {settings} settings, {len(found)} drives, "
        f"{args.repeats} runs each: {runs} runs, by `make defaults-report`. A gain is that of the "
        "I/Os a second of a workload's first job, against what the kernel does by itself, with "
        "its 95 % interval over seeds (none where nothing is random); on average is the geometric "
        f"mean over all workloads, which count alike. The machine is {MACHINE} with {MEMORY}, "
        "files lie on the drive without a file system, and a run lasts "
        f"{', '.join(lengths)}, which is short so that all of them are done in minutes. Memory "
        "cards are left out: one workload's files do not fit on them.\n"
    )
    args.page.write_text(page(found, about))
    print(f"{args.page}: {runs} runs, {took_s:.0f} s on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
