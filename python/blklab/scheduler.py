"""Schedulers in Python."""

from __future__ import annotations

from collections.abc import Sequence

from . import _blklab
from ._blklab import Queue, Request


class Scheduler:
    """An I/O scheduler; its methods are the kernel's hooks (``struct elevator_ops``).

    One is made for each queue of each run. Times are nanoseconds of the run. A scheduler
    has to dispatch every request that it was given, once; a request that it does not have
    is an error, and so is 30 s of holding back all that it has. Its own time is not counted
    into a run's: it costs what mq-deadline does. A run takes longer by what Python costs.
    """

    #: As ``schedulers=`` and tables name it; if not given the class' name in lower case.
    name: str = ""

    #: When :meth:`timer` is to be called.
    next_timer_ns: int | None = None

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def insert_requests(self, requests: list[Request], now_ns: int) -> None:
        """Takes requests in."""
        raise NotImplementedError

    def dispatch_request(self, now_ns: int) -> Request | None:
        """The next request for the drive, taken out; ``None`` where none may go now."""
        raise NotImplementedError

    def requests_merged(self, request: Request | None, next: Request, now_ns: int) -> None:
        """``next`` became part of ``request``: takes it out."""
        raise NotImplementedError

    def request_merged(self, request: Request, now_ns: int) -> None:
        """A request that it has has grown."""

    def completed_request(self, request: Request, now_ns: int) -> None:
        """The drive has done a request."""

    def limit_depth(self, is_write: bool, process: int) -> int | None:
        """How many of the tags such a request may use; ``None`` for all."""
        return None

    def exit_process(self, process: int, now_ns: int) -> None:
        """A process is gone."""

    def timer(self, now_ns: int) -> None:
        """The time of :attr:`next_timer_ns` has come; that is ``None`` now."""


def names_of(schedulers: Sequence[str | type[Scheduler]]) -> str:
    """The names of schedulers, those in Python made known."""
    names = []
    for scheduler in schedulers:
        if isinstance(scheduler, str):
            names.append(scheduler)
            continue
        name = scheduler.name or scheduler.__name__.lower()
        _blklab.register(name, scheduler)
        names.append(name)
    return ",".join(names)
