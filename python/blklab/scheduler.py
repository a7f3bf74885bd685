"""Schedulers in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from . import _blklab
from ._blklab import Bio, Queue, Request


@dataclass
class Tunable:
    """A number that a scheduler's user may set, declared in its class.

    ``batch = blklab.Tunable(16, min=1, help="requests in a row")`` is read as
    ``self.batch``, and set by ``schedulers=["mine:batch=8"]``, ``set`` or ``vary``.
    """

    default: int
    min: int = 0
    max: int = 2**31 - 1
    help: str = ""
    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Tunable: ...
    @overload
    def __get__(self, instance: Scheduler, owner: type) -> int: ...
    def __get__(self, instance: Scheduler | None, owner: type) -> Tunable | int:
        if instance is None:
            return self
        values: dict[str, int] = instance.__dict__.get("_tunables", {})
        return values.get(self.name, self.default)


class Scheduler:
    """An I/O scheduler; its methods are the kernel's hooks (``struct elevator_ops``).

    One is made for each queue of each run. Times are nanoseconds of the run. A scheduler
    has to dispatch every request that it was given, once; a request that it does not have
    is an error, and so is 30 s of holding back all that it has. Its own time is not counted
    into a run's: it costs what mq-deadline does. A run takes longer by what Python costs.
    Hooks that a class does not have are not called, and do what the kernel does without them.
    """

    #: As ``schedulers=`` and tables name it; if not given the class' name in lower case.
    name: str = ""

    #: When :meth:`timer` is to be called.
    next_timer_ns: int | None = None

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def set_tunable(self, name: str, value: int) -> None:
        """A tunable is set, to a value that is legal."""
        self.__dict__.setdefault("_tunables", {})[name] = value

    def depth_updated(self, queue: Queue) -> None:
        """The queue has another ``nr_requests``; :attr:`queue` has it already."""

    def prepare_request(self, request: Request, now_ns: int) -> None:
        """A request was made, which is to be inserted later."""

    def insert_requests(self, requests: list[Request], now_ns: int) -> None:
        """Takes requests in."""
        raise NotImplementedError

    def insert_at_head(self, requests: list[Request], now_ns: int) -> None:
        """Takes in requests that go before all others: requeued ones, and data of flushes.

        Without this hook they do so by themselves, and the scheduler does not see them.
        """

    def allow_merge(self, request: Request, bio: Bio, now_ns: int) -> bool:
        """Whether the bio may become part of the request."""
        return True

    def request_merge(self, bio: Bio, now_ns: int) -> Request | None:
        """The queued request that begins where the bio ends, to merge it before that one."""
        return None

    def former_request(self, request: Request) -> Request | None:
        """The queued request before this one by sector, which it may be merged into."""
        return None

    def next_request(self, request: Request) -> Request | None:
        """The queued request after this one by sector, which may be merged into it."""
        return None

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

    def requeue_request(self, request: Request, now_ns: int) -> None:
        """The driver gave a request back; it will be inserted again, at the head."""

    def finish_request(self, request: Request, now_ns: int) -> None:
        """A request is about to be freed, also one that was merged into another."""

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
        _blklab.register(name, scheduler, _tunables_of(scheduler))
        names.append(name)
    return ",".join(names)


def _tunables_of(scheduler: type[Scheduler]) -> list[tuple[str, int, int, int, str]]:
    """The tunables that a class and those it is made from declare."""
    found = (getattr(scheduler, name, None) for name in dir(scheduler))
    return [
        (each.name, each.default, each.min, each.max, each.help)
        for each in found
        if isinstance(each, Tunable)
    ]
