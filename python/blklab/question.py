"""What a study is of, so that none goes on with another's figures."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _blklab
from .job import Job, words_and_text
from .model import _Model

#: Digits of a hash that a person may read.
DIGITS = 12

#: Axes and options whose values are descriptions, or files of them.
MODELS = ("drive", "machine")


@dataclass(frozen=True)
class Question:
    """Everything that determines a setting's figures, in words that a study can store."""

    facts: dict[str, Any]
    job: str

    @classmethod
    def of(
        cls,
        job: str | os.PathLike[str] | Job,
        choices: Mapping[str, Mapping[Any, object]],
        goals: Sequence[str],
        subject_to: Sequence[str],
        options: Mapping[str, Any],
    ) -> Question:
        """The question of a call of ``tune``."""
        word, text = words_and_text(job)
        asked = ("goal", "subject_to", "assumed")
        facts: dict[str, Any] = {
            "job": f"a text {_digest(text)}" if text is not None else _file(word),
            "goals": list(goals),
            "limits": list(subject_to),
            "program": _blklab.program(),
        }
        for kind in MODELS:
            facts[kind] = _described(kind, options.get(kind))
        for key, of_axis in choices.items():
            facts[f"space: {key}"] = [_chosen(key, *each) for each in of_axis.items()]
        for name, value in options.items():
            if value is not None and name not in (*asked, *MODELS):
                facts[f"option {name}"] = _file(value)
        stem = "job" if text is not None else Path(word).stem
        return cls(facts, stem)

    @property
    def name(self) -> str:
        """A name that no other question has."""
        facts = sorted(self.facts.items(), key=lambda fact: fact[0])
        return f"{self.job}-{_digest(repr(facts))}"

    def against(self, known: Mapping[str, Any]) -> str:
        """How a stored question differs from this one."""
        names = [*self.facts, *(name for name in known if name not in self.facts)]
        differs = [
            f"its {name} is {_shown(known.get(name))}, not {_shown(self.facts.get(name))}"
            for name in names
            if known.get(name) != self.facts.get(name)
        ]
        return ", ".join(differs)


def _digest(text: str) -> str:
    return _digest_of_bytes(text.encode())


def _digest_of_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def _shown(fact: object) -> str:
    if isinstance(fact, list):
        return "[" + ", ".join(str(each) for each in fact) + "]"
    return "not given" if fact is None else str(fact)


def _file(value: object) -> Any:
    """A value, and of a file what it has, since a file may change and keep its name."""
    if isinstance(value, (list, tuple)):
        return [_file(each) for each in value]
    if isinstance(value, (str, os.PathLike)):
        path = Path(value)
        if path.is_file():
            return f"{path.name} {_digest_of_bytes(path.read_bytes())}"
        return os.fspath(value)
    return value if isinstance(value, (bool, int, float)) else str(value)


def _chosen(key: str, choice: Any, value: object) -> Any:
    """A value of an axis; of a scheduler in Python also what its code is."""
    if key in MODELS:
        return _described(key, choice)
    if isinstance(value, type):
        try:
            return f"{choice} {_digest(inspect.getsource(value))}"
        except (OSError, TypeError):
            # A class that was typed in has no source that could be read.
            return choice
    return choice


def _described(kind: str, model: Any) -> str | None:
    """A drive or machine by its name and what its description says."""
    if model is None:
        return None
    if isinstance(model, _Model):
        return f"{model.name} {_digest(model.text)}"
    text = _blklab.description(kind, os.fspath(model), [])
    return f"{model} {_digest(text)}"
