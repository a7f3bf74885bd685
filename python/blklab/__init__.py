"""Linux's block I/O stack in user space: which I/O scheduler serves a job best, by how
much and why.

The functions are the commands of the same names; their keyword arguments are the
commands' options, with ``_`` for ``-``: ``compare(job, drive="mx100-256", repeats=3)`` is
``blklab compare JOB --drive mx100-256 --repeats 3``. :func:`tune` searches by Optuna, and
:mod:`blklab.sweep` spreads a sweep over a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._blklab import Bio, Error, Queue, Request, Table, UsageError
from .commands import calibrate, compare, conform, probe, replay, run
from .job import Job
from .model import Drive, Machine, NoSuchKeyError
from .result import Calibration, Conformance, Probed, Report, Result
from .scheduler import Scheduler, Tunable

if TYPE_CHECKING:
    from .tuning import Tuned, tune

__all__ = [
    "Bio",
    "Calibration",
    "Conformance",
    "Drive",
    "Error",
    "Job",
    "Machine",
    "NoSuchKeyError",
    "Probed",
    "Queue",
    "Report",
    "Request",
    "Result",
    "Scheduler",
    "Table",
    "Tunable",
    "Tuned",
    "UsageError",
    "calibrate",
    "compare",
    "conform",
    "probe",
    "replay",
    "run",
    "tune",
]


def __getattr__(name: str) -> object:
    """What only tuning needs is imported with its first use: it takes longer than all the rest."""
    if name in ("Tuned", "tune"):
        from . import tuning

        return getattr(tuning, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
