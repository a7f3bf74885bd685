"""The commands as functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from . import _blklab
from .job import Job, words_and_text
from .model import Drive, Machine, _Model
from .result import Calibration, Conformance, Probed, Result, wanted
from .scheduler import Scheduler, names_of

Progress = Callable[[float, int], object]
Name = str | os.PathLike[str]


def run(
    job: Name | Job,
    *,
    drive: str | Drive | None = None,
    machine: str | Machine | None = None,
    scheduler: str | type[Scheduler] | None = None,
    requests: bool = False,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Result:
    """Runs a job under one scheduler: ``blklab run``.

    ``requests`` keeps every request, for ``to_arrow("requests")``.
    """
    if scheduler is not None:
        scheduler = names_of([scheduler])
    word, text = words_and_text(job)
    options = dict(options, drive=drive, machine=machine, scheduler=scheduler)
    return Result(_call(["run", word], options, text, requests, progress))


def compare(
    job: Name | Job,
    *,
    drive: str | Drive | None = None,
    machine: str | Machine | None = None,
    schedulers: Sequence[str | type[Scheduler]] | None = None,
    vary: Mapping[str, Sequence[object]] | None = None,
    requests: bool = False,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Result:
    """Runs a job under several schedulers or settings: ``blklab compare``."""
    named = None if schedulers is None else names_of(schedulers)
    word, text = words_and_text(job)
    options = dict(options, drive=drive, machine=machine, schedulers=named, vary=vary)
    return Result(_call(["compare", word], options, text, requests, progress))


def replay(
    trace: Name,
    *,
    drive: str | Drive | None = None,
    machine: str | Machine | None = None,
    schedulers: Sequence[str | type[Scheduler]] | None = None,
    requests: bool = False,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Result:
    """What would have become of a block trace: ``blklab replay``."""
    named = None if schedulers is None else names_of(schedulers)
    options = dict(options, drive=drive, machine=machine, schedulers=named)
    return Result(_call(["replay", os.fspath(trace)], options, None, requests, progress))


def halve(
    job: Name | Job,
    settings: Sequence[tuple[str, Sequence[tuple[str, str]]]],
    *,
    drive: str | Drive | None = None,
    machine: str | Machine | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Result:
    """The best of settings by successive halving: ``blklab tune``, but of these settings.

    Each has a label, and its keys and values as of ``--vary``, a scheduler before its
    tunables; the first is what others are compared with. The n-th runs of all meet the same
    random numbers.
    """
    word, text = words_and_text(job)
    options = dict(options, drive=drive, machine=machine)
    rows = [(label, list(values)) for label, values in settings]
    return Result(_call(["tune", word], options, text, False, progress, rows))


def conform(traces: Sequence[Name], **options: Any) -> Conformance:
    """Holds schedulers against traces of a real kernel: ``blklab conform``."""
    return Conformance(_call(["conform", *(os.fspath(trace) for trace in traces)], options))


def calibrate(results: Sequence[Name] = (), **options: Any) -> Calibration:
    """Fits descriptions to measured results: ``blklab calibrate``."""
    return Calibration(_call(["calibrate", *(os.fspath(result) for result in results)], options))


def probe(device: str | None = None, **options: Any) -> Probed:
    """Finds what a drive looks like inside: ``blklab probe``."""
    return Probed(_call(["probe"] + ([device] if device else []), options))


def _call(
    words: list[str],
    options: Mapping[str, Any],
    job_text: str | None = None,
    requests: bool = False,
    progress: Progress | bool | None = None,
    rows: list[tuple[str, list[tuple[str, str]]]] | None = None,
) -> _blklab.Found:
    with ExitStack() as stack:
        all_words = list(words)
        for name, value in options.items():
            if isinstance(value, _Model):
                value = _file_of(value, stack)
            all_words += _words("--" + name.rstrip("_").replace("_", "-"), value)
        if progress is True:
            progress = _bar(stack)
        return _blklab.call(all_words, job_text, requests, progress or None, rows or [])


def _words(option: str, value: Any) -> list[str]:
    """The words of an option: none for None and False, of a list one for each."""
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if isinstance(value, Mapping):
        return [f"{option}={key}={_joined(values)}" for key, values in value.items()]
    if isinstance(value, (list, tuple)):
        return [f"{option}={each}" for each in value]
    return [f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}"]


def _joined(values: Any) -> str:
    if isinstance(values, (list, tuple, range)):
        return ",".join(str(value) for value in values)
    return str(values)


def _file_of(model: _Model, stack: ExitStack) -> str:
    """A file with a model's description, for as long as the command runs."""
    if model.is_as_named:
        return model.name
    # Imported here, as it takes longer than all the rest and few calls need it.
    import tempfile

    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="blklab"))
    stem = os.path.splitext(os.path.basename(model.name))[0]
    path = os.path.join(folder, f"{stem}.toml")
    model.save(path)
    return path


def _bar(stack: ExitStack) -> Progress:
    """A bar of tqdm's."""
    wanted("tqdm", "notebook")
    from tqdm.auto import tqdm

    bar = stack.enter_context(tqdm(unit="run"))

    def told(done: float, all_runs: int) -> None:
        bar.total = all_runs
        bar.n = round(done, 3)
        bar.refresh()

    return told
