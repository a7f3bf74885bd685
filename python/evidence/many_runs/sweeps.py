"""Sweeps of short runs on one machine: both cores, and kills at any moment."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from load import Load, measured

#: A run of some milliseconds.
JOB = """[reads]
rw=randread
bs=4k
filename=/dev/x
direct=1
ioengine=libaio
norandommap
size=64m
number_ios=500
"""
DRIVE = "mx100-256"
AXES = 'vary = ["scheduler=none,mq-deadline,kyber,bfq", "iodepth=1..16*2"]\n'

#: Settings of the axes.
SETTINGS = 4 * 5

#: The share of all cores that a sweep should have.
CORES_MIN = 0.95

#: Kills of one sweep.
KILLS_OF_ONE = 4


def spec(folder: Path, runs: int) -> Path:
    """The file of a sweep of about so many runs."""
    repeats = max(1, runs // SETTINGS)
    (folder / "reads.fio").write_text(JOB)
    path = folder / f"sweep-{repeats}.toml"
    text = f'job = "reads.fio"\ndrive = "{DRIVE}"\nrepeats = {repeats}\n{AXES}'
    path.write_text(text)
    return path


def runs_of(runs: int) -> int:
    """The runs of a sweep that :func:`spec` makes."""
    return SETTINGS * max(1, runs // SETTINGS)


def words(command: str, spec: Path, folder: Path, threads: int | None = None) -> list[str]:
    """The command line of a sweep."""
    of_threads = [] if threads is None else ["--threads", str(threads)]
    return [command, "sweep", str(spec), "--output", str(folder), *of_threads]


def data_set(folder: Path) -> bytes:
    """What all runs of a sweep found."""
    return (folder / "results.parquet").read_bytes()


def keys(folder: Path) -> list[str]:
    """The keys of the runs that a sweep's folder has; what is not yet a whole line has none."""
    found = []
    for part in sorted(folder.glob("part-*.jsonl")):
        lines = part.read_bytes().split(b"\n")[1:-1]
        found += [json.loads(line)["key"] for line in lines]
    return found


@dataclass(frozen=True)
class Cores:
    """A sweep on all cores."""

    runs: int
    load: Load
    cores: int

    def __str__(self) -> str:
        verdict = "met" if self.load.own_share >= CORES_MIN else "**not met**"
        return (
            f"{self.runs} runs of 500 reads on {DRIVE} in {self.load.wall_s:.1f} s by "
            f"`blklab sweep` on {self.cores} cores: {self.runs / self.load.wall_s:.0f} runs a "
            f"second, {1000 * self.load.own_s / self.runs:.2f} ms of CPU time each. It had "
            f"{self.load.own_share:.1%} of the cores, and others {self.load.others_share:.1%}; of "
            f"what they left it had {self.load.share_of_left:.1%}. Goal: {CORES_MIN:.0%} of the "
            f"cores: {verdict}.\n"
        )


def on_all_cores(command: str, place: Path, runs: int, cores: int) -> Cores:
    """Does so many runs."""
    asked = words(command, spec(place, runs), place / "cores")
    with measured() as load:
        subprocess.run(asked, check=True, capture_output=True)
    return Cores(len(keys(place / "cores")), load, cores)


@dataclass
class Kills:
    """Sweeps that were killed and gone on with."""

    sweeps: int = 0
    runs_of_one: int = 0
    kills: int = 0
    #: How much of a sweep was there when it was killed, as shares.
    there: list[float] = field(default_factory=list)
    #: Runs that were there, and later were not.
    lost: int = 0
    #: Runs that are there twice.
    twice: int = 0
    #: Sweeps whose data set differs from that of one which was not killed.
    other_bytes: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing was lost and nothing done twice."""
        return (self.lost, self.twice, self.other_bytes) == (0, 0, 0)

    def __str__(self) -> str:
        return (
            f"{self.sweeps} sweeps of {self.runs_of_one} runs each were killed {self.kills} times "
            "by SIGKILL at random moments, up to "
            f"{KILLS_OF_ONE} times each, and gone on with. When it was killed a sweep had "
            f"{min(self.there):.0%} to {max(self.there):.0%} of its runs. Runs lost: {self.lost}; "
            f"runs done twice: {self.twice}; data sets that differ from one that was not "
            f"killed: {self.other_bytes}. Goal: none: {'met' if self.holds else '**not met**'}.\n"
        )


def killed(command: str, place: Path, runs: int, kills: int) -> Kills:
    """Kills sweeps until there were so many kills, and goes on with each."""
    file = spec(place, runs)
    begun = time.monotonic()
    subprocess.run(words(command, file, place / "whole"), check=True, capture_output=True)
    whole_s = time.monotonic() - begun
    whole = data_set(place / "whole")
    moments = random.Random(1)
    found = Kills(runs_of_one=runs_of(runs))
    while found.kills < kills:
        folder = place / f"killed-{found.sweeps}"
        found.sweeps += 1
        known: set[str] = set()
        for _ in range(min(KILLS_OF_ONE, kills - found.kills)):
            moment_s = moments.uniform(0, whole_s / (KILLS_OF_ONE - 1))
            found.kills += _kill(words(command, file, folder), moment_s)
            known |= _look(found, folder, known)
            found.there.append(len(known) / found.runs_of_one)
        subprocess.run(words(command, file, folder), check=True, capture_output=True)
        known |= _look(found, folder, known)
        found.lost += found.runs_of_one - len(known)
        found.other_bytes += data_set(folder) != whole
    return found


def _look(found: Kills, folder: Path, known: set[str]) -> set[str]:
    """Counts what is wrong in a folder that had known runs; the runs that it has."""
    there = keys(folder)
    found.twice += len(there) - len(set(there))
    found.lost += len(known - set(there))
    return set(there)


def _kill(words: Sequence[str], moment_s: float) -> bool:
    """Starts a sweep and kills it; whether it had not ended before."""
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(moment_s)
    was_there = child.poll() is None
    child.kill()
    child.wait()
    return was_there
