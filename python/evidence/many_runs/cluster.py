"""The same sweep on Ray's test cluster, also when it loses a node in the middle."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from load import Load, measured
from sweeps import data_set, keys, runs_of, spec

from blklab.sweep import sweep

#: How much of a sweep is there when it loses a node.
KILL_AT = 0.3


@contextmanager
def cluster(nodes: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """A cluster of nodes with a CPU each, on this machine: its address, and what kills a node."""
    # Ray warns of what it will do about accelerators, of which there are none here.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    one = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        others = [one.add_node(num_cpus=1) for _ in range(nodes - 1)]
        one.wait_for_nodes()
        yield one.address, lambda: one.remove_node(others[-1], allow_graceful=False)
    finally:
        one.shutdown()


@dataclass(frozen=True)
class Together:
    """A sweep on a cluster."""

    runs: int
    #: Of the cluster's own start nothing is in it.
    load: Load
    #: CPU time of the program that has the sweep.
    head_s: float
    #: Whether its data set has the bytes of one that was made without a cluster.
    same_bytes: bool
    #: Runs that are in its folder twice.
    twice: int
    #: How much of the sweep was there when a node was killed.
    lost_at: float | None

    @property
    def holds(self) -> bool:
        """Whether the cluster made no difference."""
        return self.same_bytes and self.twice == 0

    def __str__(self) -> str:
        end = "stay" if self.lost_at is None else f"one killed with {self.lost_at:.0%} of the runs"
        same = "yes" if self.same_bytes else "**no**"
        return f"| {end} | {self.load.wall_s:.1f} s | {same} | {self.twice} |"


def together(
    file: Path, folder: Path, nodes: int, alone: bytes, kill_at: float | None = None
) -> Together:
    """Does a sweep on nodes of a cluster; kills one when so many of its runs are there."""
    lost: list[int] = []
    ended = threading.Event()

    def lose(runs: float, kill: Callable[[], None]) -> None:
        while not ended.wait(0.01):
            there = len(keys(folder))
            if there >= runs:
                kill()
                lost.append(there)
                return

    with cluster(nodes) as (address, kill):
        killer = None
        if kill_at is not None:
            killer = threading.Thread(target=lose, args=(kill_at, kill))
            killer.start()
        cpu_s = time.process_time()
        try:
            with measured() as load:
                swept = sweep(file, output=folder, ray=address)
        finally:
            ended.set()
        head_s = time.process_time() - cpu_s
        if killer is not None:
            killer.join()
    if kill_at is not None and not lost:
        raise RuntimeError("the sweep was over before a node could be killed")
    found = keys(folder)
    return Together(
        runs=swept.runs,
        load=load,
        head_s=head_s,
        same_bytes=data_set(folder) == alone,
        twice=len(found) - len(set(found)),
        lost_at=lost[0] / swept.runs if lost else None,
    )


def both(place: Path, runs: int) -> list[Together]:
    """A sweep on two nodes: both to the end, and one of them killed in the middle."""
    file = spec(place, runs)
    alone = data_set(sweep(file, output=place / "alone").table.parent)
    return [
        together(file, place / "together", 2, alone),
        together(file, place / "killed-node", 2, alone, kill_at=KILL_AT * runs_of(runs)),
    ]


def page(done: Sequence[Together]) -> str:
    """Their part of the page."""
    rows = "\n".join(str(each) for each in done)
    verdict = "met" if all(each.holds for each in done) else "**not met**"
    return (
        f"{done[0].runs} runs by `python -m blklab.sweep --ray` on two nodes of "
        "`ray.cluster_utils` with a CPU each, both on this machine. The data set is held against "
        "that of a sweep without Ray.\n\n"
        "| nodes | time | same bytes | runs done twice |\n"
        f"| --- | --: | --- | --: |\n{rows}\n\n"
        f"Goal: the same data set, whatever becomes of a node: {verdict}.\n"
    )
