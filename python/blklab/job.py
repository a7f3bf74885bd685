"""fio jobs."""

from __future__ import annotations

import os


class Job:
    """An fio job of keyword arguments: ``Job(rw="randread", bs="4k", filename="/dev/x")``.

    Jobs are put side by side by ``+``. An option without a value, such as ``time_based``,
    is given ``True``; a Python name that fio's option cannot be is written with ``_``
    behind it, as ``class_``.
    """

    def __init__(self, name: str = "job", **options: object) -> None:
        lines = [f"[{name}]"]
        for option, value in options.items():
            lines.append(_line(option.rstrip("_"), value))
        self.text = "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Job:
        """A job file's text."""
        job = cls()
        job.text = text
        return job

    def __add__(self, other: Job) -> Job:
        # A text need not end with its last line.
        return Job.from_text(self.text.rstrip("\n") + "\n" + other.text)

    def __repr__(self) -> str:
        return f"Job.from_text({self.text!r})"


def _line(option: str, value: object) -> str:
    if value is True:
        return option
    return f"{option}={int(value) if isinstance(value, bool) else value}"


def words_and_text(job: str | os.PathLike[str] | Job) -> tuple[str, str | None]:
    """What the command is given for a job: a name or file, or ``-`` and a text."""
    if isinstance(job, Job):
        return "-", job.text
    if isinstance(job, str) and "\n" in job:
        return "-", job
    return os.fspath(job), None
