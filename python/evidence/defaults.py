"""Which scheduler and readahead a distribution should ship: every scheduler of the kernel and
several read_ahead_kb, on drives, under workloads of real programs, by ``blklab sweep``.

The runs are kept, so that a second report does only what is new. ``make defaults-report``
makes the page.
"""

from __future__ import annotations

import argparse
import json
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

#: One whose schedulers' CPU time was measured: a scheduler that costs nothing is too good. A card
#: is in a small computer, whose time for each I/O is several times that.
MACHINE = "xeon-10core"
MACHINES = {"mmc": "rpi4"}

#: How long a run lasts, by what the drive is: in a quarter of it write-back is not steady, and
#: a setting gains up to four times as much. On NVMe that takes too long.
RUNTIME = {"hdd": "16s", "mmc": "32s", "ahci": "2s", "nvme": "200ms"}

#: Quantiles of Student's t at 97.5 %, by the number of repeats from 2 on.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)

#: Keys of a drive that differ here: the card is one of 256 GB, as some workloads' files need 131.
CHANGES = {"sd-card": "drive.host.capacity_bytes=255852544000"}

#: One of each kind.
DRIVES = ("hdd-7200", "sd-card", "mx100-256", "qlc-1tb", "nvme", "optane-ssd")

#: What the report should take at most, on so many cores.
SECONDS_MAX = 3600
CORES = 16

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

    @property
    def machine(self) -> str:
        """What it is in."""
        return MACHINES.get(self.kind, MACHINE)


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


@dataclass
class Work:
    """The runs of the report, and those that its folder did not have."""

    runs: int = 0
    done: int = 0
    took_s: float = 0.0

    def __str__(self) -> str:
        if self.done == 0:
            return "All of them were there from an earlier report."
        cores = os.cpu_count() or 1
        there_s = self.took_s * cores * self.runs / self.done / CORES
        verdict = "within" if there_s <= SECONDS_MAX else "**beyond**"
        return (
            f"{self.done} of them were done for this page, in {self.took_s / 60:.0f} minutes on "
            f"{cores} cores; on {CORES} all of them take {there_s / 60:.0f} minutes by that, "
            f"{verdict} the goal of an hour."
        )


def swept(
    blklab: str, folder: Path, workload: Path, drive: Drive, repeats: int, work: Work
) -> Path:
    """Runs a workload on a drive under all settings; the data set."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = folder / f"{workload.stem}-{drive.name}.toml"
    job = os.path.relpath(workload.resolve(), folder.resolve())
    kb = ",".join(str(kb) for kb in READ_AHEAD_KB)
    axes = [f"memory={MEMORY}", f"scheduler={','.join(SCHEDULERS)}", f"read_ahead_kb={kb}"]
    if drive.name in CHANGES:
        axes.append(CHANGES[drive.name])
    spec.write_text(
        f'job = "{job}"\n'
        f'drive = "{drive.name}"\n'
        f'machine = "{drive.machine}"\n'
        f"repeats = {repeats}\n"
        f'override = ["runtime={drive.runtime}"]\n'
        f"vary = {json.dumps(axes)}\n"
    )
    begun = time.monotonic()
    words = [blklab, "sweep", str(spec)]
    told = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    runs, done = map(int, re.findall(r"\d+", told)[:2])
    work.runs += runs
    work.done += done
    work.took_s += time.monotonic() - begun if done else 0.0
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


def measured(blklab: str, folder: Path, drive: Drive, repeats: int, work: Work) -> Speeds:
    """All workloads on a drive."""
    found: Speeds = defaultdict(dict)
    for workload in sorted(WORKLOADS.glob("*.fio")):
        table = swept(blklab, folder, workload, drive, repeats, work)
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
    changed = f", with {CHANGES[drive.name]}" if drive.name in CHANGES else ""
    head = (
        f"## {drive.name}\n\n{drive.about}{changed}. The kernel's own: {named(drive.default)}.\n\n"
    )
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
    work = Work()
    found: dict[str, tuple[Drive, list[Row]]] = {}
    for name in args.drives.split(","):
        of = drive(args.blklab, name)
        speeds_of_drive = measured(args.blklab, args.folder, of, args.repeats, work)
        found[name] = (of, rows(speeds_of_drive, of.default))
    workloads = len(list(WORKLOADS.glob("*.fio")))
    settings = len(SCHEDULERS) * len(READ_AHEAD_KB)
    kinds = dict.fromkeys(of.kind for of, _ in found.values())
    lengths = [f"{RUNTIME[kind]} ({kind})" for kind in kinds]
    machines = [MACHINE, *(f"{MACHINES[kind]} ({kind})" for kind in kinds if kind in MACHINES)]
    about = (
        f"{workloads} workloads of real programs, {settings} settings, {len(found)} drives, "
        f"{args.repeats} runs each: {work.runs} runs, by `make defaults-report`. {work} A gain is "
        "that of the I/Os a second of a workload's first job, against what the kernel does by "
        "itself, with its 95 % interval over seeds (none where nothing is random); on average is "
        "the geometric mean over all workloads, which count alike. The machine is "
        f"{' or '.join(machines)} with {MEMORY}, files lie on the drive without a file system, "
        f"and a run lasts {', '.join(lengths)}, which is short so that all of them are done in "
        "an hour.\n"
    )
    args.page.write_text(page(found, about))
    print(f"{args.page}: {work.done} of {work.runs} runs, {work.took_s:.0f} s")


if __name__ == "__main__":
    main()
