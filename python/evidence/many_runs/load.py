"""What the machine did while something was measured, its other work among it."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: Ticks of ``/proc/stat`` a second.
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

#: The columns of ``/proc/stat`` in which a CPU does nothing: idle and iowait.
IDLE_COLUMNS = (3, 4)

#: The columns that are times of their own: user and nice have those of guests in them.
COLUMNS = 8


@dataclass
class Load:
    """Times of a measurement, in seconds."""

    wall_s: float = 0.0
    #: CPU time of this process and of its children that have ended.
    own_s: float = 0.0
    #: CPU time of the whole machine, that which its hypervisor took among it.
    busy_s: float = 0.0

    @property
    def cores_s(self) -> float:
        """What all cores together had."""
        return self.wall_s * (os.cpu_count() or 1)

    @property
    def own_share(self) -> float:
        """The share of all cores that was ours."""
        return self.own_s / self.cores_s

    @property
    def others_share(self) -> float:
        """The share of all cores that others had."""
        return max(0.0, self.busy_s - self.own_s) / self.cores_s

    @property
    def share_of_left(self) -> float:
        """Our share of what others left."""
        return self.own_share / (1.0 - min(self.others_share, 0.99))


def _busy_s() -> float:
    line = Path("/proc/stat").read_text().splitlines()[0].split()[1 : COLUMNS + 1]
    busy = [int(ticks) for at, ticks in enumerate(line) if at not in IDLE_COLUMNS]
    return sum(busy) / TICKS_PER_S


def _own_s() -> float:
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


@contextmanager
def measured() -> Iterator[Load]:
    """Measures a block; the figures are there once it has ended."""
    load = Load()
    wall_s, own_s, busy_s = time.monotonic(), _own_s(), _busy_s()
    yield load
    load.wall_s = time.monotonic() - wall_s
    load.own_s = _own_s() - own_s
    load.busy_s = _busy_s() - busy_s
