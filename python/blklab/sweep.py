"""``python -m blklab.sweep SPEC.toml``: a sweep on this machine, or spread by Ray.

The file, the runs, their keys and the data set are those of ``blklab sweep``. With
``--ray ADDRESS`` batches of runs go to a cluster's workers, each with this very build of the
package; what they found comes back into the one folder, so that a sweep which was stopped
goes on, and a lost worker's runs are done by another.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _blklab
from .result import wanted

#: Runs that a worker does at once, at most: what is lost with it.
BATCH_RUNS_MAX = 256

#: So many batches for each processor, where there are runs enough: the last ones to end
#: should not have others wait.
BATCHES_PER_CPU = 8

#: Batches under way for each processor: the next one waits where the last one ends.
IN_FLIGHT_PER_CPU = 2

#: How often a batch may lose its worker.
LOST_MAX = 5


@dataclass(frozen=True)
class Swept:
    """What became of a sweep."""

    #: Runs of the whole sweep.
    runs: int
    #: Those that were done now.
    done: int
    #: Those that its folder does not have.
    missing: int
    #: The data set.
    table: Path

    def __str__(self) -> str:
        reused = self.runs - self.missing - self.done
        return (
            f"{self.runs} runs: {self.done} done now, {reused} were there, "
            f"{self.missing} missing\n{self.table}"
        )


def sweep(
    spec: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    ray: str | None = None,
    threads: int | None = None,
    progress: Callable[[float, int], object] | None = None,
) -> Swept:
    """Does the runs of a sweep that its folder does not have.

    ``ray`` is a cluster's address, ``auto`` for the one that this machine belongs to, or
    ``local`` for one of this machine alone.
    """
    path = Path(spec)
    file = _blklab.SweepFile(path)
    folder = Path(output) if output is not None else path.with_suffix(".sweep")
    missing = file.missing(folder)
    try:
        if ray is None:
            file.run(folder, missing, threads, progress)
        elif missing:
            _on_cluster(ray, _Work.of(path, file), folder, missing, progress)
    finally:
        # What has come is a data set, whatever ended the sweep.
        table = file.write_table(folder)
    left = len(file.missing(folder))
    if left and ray is not None:
        raise _blklab.Error(
            f"{left} runs came back under other keys: a worker has another drive or machine of "
            "the same name; give it as a file that all of them have"
        )
    return Swept(file.runs, len(missing) - left, left, table)


@dataclass(frozen=True)
class _Work:
    """A sweep for a machine that has none of its files."""

    spec: str
    #: The names and contents of the job's files, where they are beside the sweep's.
    files: tuple[tuple[str, bytes], ...]
    program: str

    @classmethod
    def of(cls, path: Path, file: _blklab.SweepFile) -> _Work:
        # Others are found by their path on each machine.
        sent = (name for name in file.files if not name.is_absolute() and ".." not in name.parts)
        files = tuple((str(name), (path.parent / name).read_bytes()) for name in sent)
        return cls(path.read_text(), files, file.program)

    def do(self, numbers: Sequence[int]) -> list[bytes]:
        """Does these runs; the files of what they found."""
        with tempfile.TemporaryDirectory(prefix="blklab") as place:
            spec = Path(place, "sweep.toml")
            spec.write_text(self.spec)
            for name, content in self.files:
                beside = Path(place, name)
                beside.parent.mkdir(parents=True, exist_ok=True)
                beside.write_bytes(content)
            file = _blklab.SweepFile(spec)
            if file.program != self.program:
                raise _blklab.Error(f"a worker has {file.program}, and this is {self.program}")
            found = Path(place, "found")
            file.run(found, list(numbers), 1)
            return [part.read_bytes() for part in sorted(found.glob("part-*.jsonl"))]


def _on_cluster(
    address: str,
    work: _Work,
    folder: Path,
    missing: Sequence[int],
    progress: Callable[[float, int], object] | None,
) -> None:
    """Has a cluster's workers do runs, and keeps what they find as it comes."""
    ray = wanted("ray", "ray")
    ray.init(
        address=None if address == "local" else address,
        runtime_env={"py_modules": [str(Path(__file__).parent)]},
        log_to_driver=False,
        logging_level="warning",
    )
    try:
        _spread(ray, work, folder, missing, progress or (lambda done, runs: None))
    finally:
        ray.shutdown()


def _spread(
    ray: Any,
    work: _Work,
    folder: Path,
    missing: Sequence[int],
    progress: Callable[[float, int], object],
) -> None:
    cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    size = max(1, min(BATCH_RUNS_MAX, len(missing) // (cpus * BATCHES_PER_CPU)))
    waiting = deque(missing[at : at + size] for at in range(0, len(missing), size))
    do = ray.remote(_Work.do).options(num_cpus=1, max_retries=LOST_MAX)
    work_there = ray.put(work)
    under_way: dict[Any, int] = {}
    done = 0
    while waiting or under_way:
        while waiting and len(under_way) < cpus * IN_FLIGHT_PER_CPU:
            numbers = waiting.popleft()
            under_way[do.remote(work_there, numbers)] = len(numbers)
        ended, _ = ray.wait(list(under_way), num_returns=1)
        for batch in ended:
            done += under_way.pop(batch)
            try:
                parts = ray.get(batch)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayError as error:
                message = f"runs were lost with their worker {LOST_MAX + 1} times: {error}"
                raise _blklab.Error(message) from error
            for part in parts:
                _keep(folder, part)
        progress(done, len(missing))


def _keep(folder: Path, part: bytes) -> None:
    """Adds a file of runs to a sweep's folder: it appears whole, or not at all."""
    name = f"part-{uuid.uuid4().hex}.jsonl"
    unfinished = folder / f".{name}"
    unfinished.write_bytes(part)
    unfinished.rename(folder / name)


def _told() -> Callable[[float, int], None] | None:
    """A line on standard error with the time left, if that is a terminal."""
    if not sys.stderr.isatty():
        return None
    begun = time.monotonic()

    def told(done: float, runs: int) -> None:
        left = (time.monotonic() - begun) * (runs - done) / done if done else float("nan")
        print(f"\r{done:.0f}/{runs} runs, {left:.0f} s left ", end="", file=sys.stderr)

    return told


def main() -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m blklab.sweep", description=__doc__)
    parser.add_argument("spec", metavar="SPEC", help="as of blklab sweep")
    parser.add_argument(
        "--output", metavar="DIR", help="the folder of what runs found; SPEC's name with .sweep"
    )
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="a cluster's address, auto, or local: needs blklab[ray]",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="on this machine alone")
    args = parser.parse_args()
    try:
        swept = sweep(
            args.spec, output=args.output, ray=args.ray, threads=args.threads, progress=_told()
        )
    except _blklab.Error as error:
        print(f"blklab: {error}", file=sys.stderr)
        return 2 if isinstance(error, _blklab.UsageError) else 1
    except KeyboardInterrupt:
        return 130
    print(swept)
    return 0


if __name__ == "__main__":
    # Workers find what they are to do in the package's module, not in this program.
    from blklab import sweep as module

    sys.exit(module.main())
