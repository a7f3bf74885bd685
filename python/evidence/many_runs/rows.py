"""Millions of rows of requests, as pandas' and Polars' frames: how long that takes, and whether
they are copied. A program of its own, since it takes gigabytes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from load import measured

#: The goal, for pandas and for Polars.
SECONDS_MAX = 2.0

#: A run keeps some three million requests at most, so there are four.
SCHEDULERS = ("none", "mq-deadline", "kyber", "bfq")


@dataclass(frozen=True)
class Rows:
    """Rows in another library's hands."""

    rows: int
    columns: int
    run_s: float
    #: From what the runs kept to a table.
    table_s: float
    pandas_s: float
    polars_s: float
    #: Columns of numbers, and those of them that lie where they lay.
    numbers: int
    in_pandas: int
    in_polars: int
    peak_bytes: int
    others_share: float

    def __str__(self) -> str:
        def verdict(seconds: float) -> str:
            return "met" if seconds < SECONDS_MAX else "**not met**"

        pandas_s, polars_s = self.table_s + self.pandas_s, self.table_s + self.polars_s
        return (
            f"{self.rows} requests of {len(SCHEDULERS)} runs with {self.columns} columns each, "
            f"kept by `requests=True`. `to_arrow` makes a table of what the runs kept in "
            f"{self.table_s:.2f} s; other libraries take it as Arrow's C data:\n\n"
            "| library | from the table | with `to_arrow` | columns not copied | goal |\n"
            "| --- | --: | --: | --: | --- |\n"
            f"| pandas | {self.pandas_s:.2f} s | {pandas_s:.2f} s | {self.in_pandas} of "
            f"{self.numbers} | {verdict(pandas_s)} |\n"
            f"| Polars | {self.polars_s:.2f} s | {polars_s:.2f} s | {self.in_polars} of "
            f"{self.numbers} | {verdict(polars_s)} |\n\n"
            f"Goal: less than {SECONDS_MAX:.0f} s without a copy, by the addresses of the "
            f"columns' values. The runs took {self.run_s:.0f} s and all of it "
            f"{self.peak_bytes / 1e9:.1f} GB; others had {self.others_share:.0%} of the cores.\n"
        )


def rows(wanted: int, folder: Path) -> Rows:
    """Makes so many rows in another process."""
    words = [sys.executable, __file__, "--rows", str(wanted), "--folder", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{wanted} rows: {done.stderr}")
    return Rows(**json.loads(done.stdout))


def made(wanted: int, folder: Path) -> Rows:
    """Makes so many rows here."""
    import pandas
    import polars
    import pyarrow
    from overhead import DRIVE, job

    import blklab

    # What a first use costs is not what a row costs.
    small = blklab.run(job(folder, 1000), drive=DRIVE, requests=True).to_arrow("requests")
    pyarrow.table(small).to_pandas(types_mapper=pandas.ArrowDtype)
    polars.DataFrame(small)
    with measured() as load:
        begun = time.monotonic()
        result = blklab.compare(
            job(folder, wanted // len(SCHEDULERS)),
            drive=DRIVE,
            schedulers=SCHEDULERS,
            requests=True,
            repeats=1,
            assumed=0,
            threads=1,
        )
        ran = time.monotonic()
        table = result.to_arrow("requests")
        tabled = time.monotonic()
        frame = pyarrow.table(table).to_pandas(types_mapper=pandas.ArrowDtype)
        framed = time.monotonic()
        polar = polars.DataFrame(table)
        ended = time.monotonic()
    ours = pyarrow.table(table)
    numbers = [
        field.name
        for field in ours.schema
        if pyarrow.types.is_integer(field.type) or pyarrow.types.is_floating(field.type)
    ]
    there = {name: _values_at(ours[name]) for name in numbers}
    in_pandas = [
        _values_at(frame[name].array.__arrow_array__()) == there[name] for name in numbers
    ]
    in_polars = [_values_at(polar[name].to_arrow()) == there[name] for name in numbers]
    return Rows(
        rows=len(frame),
        columns=len(frame.columns),
        run_s=ran - begun,
        table_s=tabled - ran,
        pandas_s=framed - tabled,
        polars_s=ended - framed,
        numbers=len(numbers),
        in_pandas=sum(in_pandas),
        in_polars=sum(in_polars),
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        others_share=load.others_share,
    )


def _values_at(column: Any) -> Sequence[int]:
    """Where the values of a column of numbers lie, a chunk each."""
    chunks = column.chunks if hasattr(column, "chunks") else [column]
    return [chunk.buffers()[1].address for chunk in chunks]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    args = parser.parse_args()
    print(json.dumps(asdict(made(args.rows, args.folder))))
