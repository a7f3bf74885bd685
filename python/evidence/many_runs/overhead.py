"""What Python costs: runs of about a second by the package, beside the command."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from load import Load, measured

import blklab

DRIVE = "nvme"

#: I/Os of the run that tells how many of them take as long as wanted.
TRIAL_IOS = 50_000

#: The goal.
OVERHEAD_MAX = 0.02

#: A program of one run.
PROGRAM = "import sys, blklab; print(blklab.run(sys.argv[1], drive=sys.argv[2]).json, end='')"


@dataclass(frozen=True)
class Ratios:
    """How much more one way takes than another, in turns, as shares."""

    of_turns: Sequence[float]

    @property
    def median(self) -> float:
        """The median of all turns."""
        return statistics.median(self.of_turns)

    def __str__(self) -> str:
        low, _, high = statistics.quantiles(self.of_turns, n=4)
        return f"{self.median:+.1%} ({low:+.1%} to {high:+.1%})"


@dataclass(frozen=True)
class Overhead:
    """Python beside the command."""

    ios: int
    command_s: float
    same_bytes: bool
    #: A call in a Python that runs: time and CPU time.
    call: Ratios
    call_cpu: Ratios
    #: A Python that is started for each run.
    program: Ratios
    program_cpu: Ratios
    load: Load

    def __str__(self) -> str:
        same = "the same bytes" if self.same_bytes else "**other bytes**"
        verdict = "met" if self.call_cpu.median < OVERHEAD_MAX else "**not met**"
        return (
            f"`blklab.run` and `blklab run` with {self.ios} reads each on {DRIVE}, in turns, "
            f"{len(self.call.of_turns)} of each: {self.command_s:.2f} s of the command (median), "
            f"{same} as JSON. More than the command, median and quartiles of the turns:\n\n"
            "| way | time | CPU time |\n| --- | --: | --: |\n"
            f"| a call in a running Python | {self.call} | {self.call_cpu} |\n"
            f"| a Python that is started for it | {self.program} | {self.program_cpu} |\n\n"
            f"Goal: a call takes less than {OVERHEAD_MAX:.0%} more, by its CPU time, since others "
            f"had {self.load.others_share:.0%} of the cores meanwhile: {verdict}.\n"
        )


def job(folder: Path, ios: int) -> Path:
    """A job of so many reads."""
    path = folder / "reads.fio"
    path.write_text(
        "[reads]\nrw=randread\nbs=4k\nfilename=/dev/x\ndirect=1\nioengine=libaio\niodepth=32\n"
        f"norandommap\nsize=16g\nnumber_ios={ios}\n"
    )
    return path


def overhead(command: str, folder: Path, run_s: float, turns: int) -> Overhead:
    """Measures runs of so many seconds."""
    trial = job(folder, TRIAL_IOS)
    words = [command, "run", str(trial), "--drive", DRIVE, "--output-format", "json"]
    _output(words)
    with measured() as load:
        _output(words)
    ios = max(1000, round(TRIAL_IOS * run_s / load.wall_s))
    path = job(folder, ios)
    program = [sys.executable, "-c", PROGRAM, str(path), DRIVE]
    ways: list[Callable[[], str]] = [
        lambda: _output(words),
        lambda: blklab.run(path, drive=DRIVE).json,
        lambda: _output(program),
    ]
    loads: list[list[Load]] = [[] for _ in ways]
    texts = set()
    with measured() as whole:
        for turn in range(turns):
            # Each way is first as often as the others.
            for at in range(len(ways)):
                way = (turn + at) % len(ways)
                with measured() as load:
                    texts.add(ways[way]())
                loads[way].append(load)
    commands, calls, programs = loads

    def ratios(of: Sequence[Load], figure: Callable[[Load], float]) -> Ratios:
        pairs = zip(of, commands, strict=True)
        return Ratios([figure(ours) / figure(theirs) - 1 for ours, theirs in pairs])

    return Overhead(
        ios,
        statistics.median(load.wall_s for load in commands),
        len(texts) == 1,
        ratios(calls, lambda load: load.wall_s),
        ratios(calls, lambda load: load.own_s),
        ratios(programs, lambda load: load.wall_s),
        ratios(programs, lambda load: load.own_s),
        whole,
    )


def _output(words: Sequence[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
