"""How long many runs take on many workers: measured on few, and a model beyond."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import together
from load import Load, measured
from sweeps import SETTINGS, data_set, spec, words

import blklab

#: Workers to measure, as far as the machine has CPUs, and those of the model.
MEASURED = (1, 2, 4)
MODELLED = (1, 2, 4, 8, 16, 64, 256, 1024)

MANY = 1_000_000


@dataclass(frozen=True)
class Point:
    """A sweep on so many workers."""

    workers: int
    load: Load
    head_s: float = 0.0


@dataclass(frozen=True)
class Costs:
    """What a sweep's time is made of, in seconds."""

    #: Of a sweep, whatever its runs.
    start_s: float
    #: Of a run, on its worker.
    run_s: float
    #: Of a run, on the one machine that collects what is found, while workers do others.
    head_s: float
    #: Of a run, on that machine after the last one: the data set.
    table_s: float

    def time_s(self, runs: int, workers: int) -> float:
        """What a sweep should take: the slower of the workers and who collects, and the rest."""
        each_s = max(self.run_s / workers, self.head_s)
        return self.start_s + runs * (each_s + self.table_s)


@dataclass(frozen=True)
class Scaling:
    """Sweeps on several numbers of workers, by threads and by Ray."""

    runs: int
    threads: Sequence[Point]
    nodes: Sequence[Point]
    of_threads: Costs
    of_nodes: Costs

    def __str__(self) -> str:
        rows = [
            f"| {kind} | {point.workers} | {point.load.wall_s:.2f} s | "
            f"{costs.time_s(self.runs, point.workers):.2f} s | {point.load.others_share:.0%} |"
            for kind, points, costs in (
                ("threads of `blklab sweep`", self.threads, self.of_threads),
                ("nodes of Ray", self.nodes, self.of_nodes),
            )
            for point in points
        ]
        beyond = [
            f"| {workers} | {_duration(self.of_threads.time_s(MANY, workers))} | "
            f"{_duration(self.of_nodes.time_s(MANY, workers))} |"
            for workers in MODELLED
        ]
        collects = "What collects is one program, which took too little to be seen here."
        if self.of_nodes.head_s > 0:
            full = self.of_nodes.run_s / self.of_nodes.head_s
            collects = (
                f"What collects is one program, which {full:.0f} workers keep busy with such "
                "short runs; more do not help."
            )
        return (
            f"{self.runs} runs, measured, and what the model says that they take, which knows one "
            "worker alone:\n\n"
            "| workers | number | measured | model | cores that others had |\n"
            f"| --- | --: | --: | --: | --: |\n{_lines(rows)}\n"
            f"The model of {MANY} such runs: start + runs * (max(run / workers, collect) + table)"
            f". {_told('Threads', self.of_threads)} {_told('Ray', self.of_nodes)} {collects}"
            "\n\n"
            "| workers | threads of one machine | Ray |\n"
            f"| --: | --: | --: |\n{_lines(beyond)}"
        )


def _lines(rows: Sequence[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


def _told(kind: str, costs: Costs) -> str:
    return (
        f"{kind}: start {costs.start_s:.2f} s, run {1e3 * costs.run_s:.3f} ms, collect "
        f"{1e3 * costs.head_s:.3f} ms, table {1e3 * costs.table_s:.3f} ms."
    )


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def scaling(command: str, place: Path, runs: int) -> Scaling:
    """Measures sweeps of so many runs, and of few, which tell what a start costs."""
    cores = os.cpu_count() or 1
    numbers = [workers for workers in MEASURED if workers <= cores]
    few, many = spec(place, SETTINGS), spec(place, runs)

    def by_threads(file: Path, workers: int) -> Point:
        folder = place / f"threads-{workers}-{file.stem}"
        with measured() as load:
            asked = words(command, file, folder, workers)
            subprocess.run(asked, check=True, capture_output=True)
        return Point(workers, load)

    def by_nodes(file: Path, workers: int) -> Point:
        alone = data_set(place / f"threads-1-{file.stem}")
        done = together(file, place / f"nodes-{workers}-{file.stem}", workers, alone)
        if not done.holds:
            raise RuntimeError(f"{file}: {workers} nodes of Ray have another data set")
        return Point(workers, done.load, done.head_s)

    few_by_threads, few_by_nodes = by_threads(few, 1), by_nodes(few, 1)
    threads = [by_threads(many, workers) for workers in numbers]
    nodes = [by_nodes(many, workers) for workers in numbers]
    table_s = _table_s(many, place / f"nodes-1-{many.stem}") / runs
    return Scaling(
        runs,
        threads,
        nodes,
        _costs(runs, few_by_threads, threads[0], table_s),
        _costs(runs, few_by_nodes, nodes[0], table_s),
    )


def _costs(runs: int, few: Point, many: Point, table_s: float) -> Costs:
    """What one worker's sweeps of few and of many runs tell."""
    others = runs - SETTINGS
    run_s = (many.load.wall_s - few.load.wall_s) / others - table_s
    start_s = few.load.wall_s - SETTINGS * (run_s + table_s)
    return Costs(max(0.0, start_s), run_s, max(0.0, many.head_s - few.head_s) / others, table_s)


def _table_s(file: Path, folder: Path) -> float:
    """How long a sweep's data set takes to be written."""
    swept = blklab._blklab.SweepFile(file)
    swept.missing(folder)
    with measured() as load:
        swept.write_table(folder)
    return load.wall_s
