"""What many runs cost: Python beside the command, millions of rows, sweeps on all cores, killed,
and on a cluster. ``make many-runs`` makes the page.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cluster
from load import Load, measured
from overhead import overhead
from rows import rows
from scaling import scaling
from sweeps import killed, on_all_cores

import blklab


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    run_s: float = 1.0
    turns: int = 12
    rows: int = 10_000_000
    short_runs: int = 10_000
    killed_runs: int = 1_000
    kills: int = 100
    cluster_runs: int = 4_000
    scaled_runs: int = 4_000


#: What tells that everything works, in seconds.
SMALL = Sizes(0.1, 3, 20_000, 400, 200, 5, 400, 400)


def page(command: str, place: Path, sizes: Sizes) -> str:
    """The whole page."""
    cores = os.cpu_count() or 1
    before = os.getloadavg()[0]

    def folder(name: str) -> Path:
        print(name, file=sys.stderr)
        made = place / name
        made.mkdir()
        return made

    with measured() as whole:
        parts: list[tuple[str, object]] = [
            (
                "Python beside the command",
                overhead(command, folder("overhead"), sizes.run_s, sizes.turns),
            ),
            ("Rows of requests", rows(sizes.rows, folder("rows"))),
            ("All cores", on_all_cores(command, folder("cores"), sizes.short_runs, cores)),
            (
                "Killed at any moment",
                killed(command, folder("kills"), sizes.killed_runs, sizes.kills),
            ),
            ("On a cluster", cluster.page(cluster.both(folder("cluster"), sizes.cluster_runs))),
            ("A million runs", scaling(command, folder("scaling"), sizes.scaled_runs)),
        ]
    sections = (f"## {title}\n\n{text}" for title, text in parts)
    return "\n".join([_head(whole, before, cores, sizes), *sections])


def _head(whole: Load, before: float, cores: int, sizes: Sizes) -> str:
    small = (
        " **This is a small part of the work (`--small`): it tells that all of it works, and not "
        "what it costs.**"
    )
    return (
        "# What do many runs cost?\n\n"
        f"By `make many-runs`, in {whole.wall_s:.0f} s on {cores} cores ({_processor()}), with "
        f"{blklab._blklab.program()} and Python {platform.python_version()}. The load of the "
        f"machine was {before:.1f} at the start; where others had a share of its cores, times "
        f"are longer by that.{small if sizes == SMALL else ''}\n"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return platform.machine()


def main(words: Sequence[str] | None = None) -> None:
    """Makes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blklab", default="blklab", help="the command")
    parser.add_argument("--page", type=Path, default=Path("many-runs.md"), help="the page's file")
    parser.add_argument("--small", action="store_true", help="only enough to see that it works")
    args = parser.parse_args(words)
    begun = time.monotonic()
    sizes = SMALL if args.small else Sizes()
    with tempfile.TemporaryDirectory(prefix="blklab-many-runs") as place:
        text = page(args.blklab, Path(place), sizes)
    args.page.write_text(text)
    print(f"{args.page}: {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
