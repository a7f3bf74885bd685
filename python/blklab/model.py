"""Drives and machines whose parameters can be changed."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, MutableMapping
from typing import Any

from . import _blklab


class NoSuchKeyError(_blklab.UsageError, KeyError):
    """A description has no such key; the message names the nearest."""

    def __str__(self) -> str:
        return str(self.args[0])


class _Model(MutableMapping[str, Any]):
    """A description by its name or file, and what is changed in it.

    It is a mapping: every key that it can have, named with its table, has the description's
    value, or the default in its place, which is text where it depends on other keys.
    """

    kind = ""

    def __init__(self, name: str, **values: object) -> None:
        self.name = name
        #: What was changed here.
        self.changes: dict[str, str] = {}
        self._own_text: str | None = None
        self.text = _blklab.description(self.kind, name, [])
        for key, value in values.items():
            self[key] = value

    @classmethod
    def from_text(cls, name: str, text: str) -> Any:
        """A description by its text; messages and results call it by the name."""
        model = cls.__new__(cls)
        model.name = name
        model.changes = {}
        model._own_text = text
        model.text = _blklab.description(cls.kind, name, [], text)
        return model

    @property
    def is_as_named(self) -> bool:
        """Whether its name alone says all of it."""
        return self._own_text is None and not self.changes

    def __setitem__(self, key: str, value: object) -> None:
        """Gives a key, such as ``"gc.policy"``, a value; it is checked at once."""
        changed = dict(self.changes)
        changed[key] = str(value).lower() if isinstance(value, bool) else str(value)
        self._change(changed)

    def __delitem__(self, key: str) -> None:
        """Leaves a key out of the description, which then has its default."""
        self[key] = "unset"

    def __getitem__(self, key: str) -> Any:
        """The description's value of a key, or its default."""
        values = self._values()
        if key not in values:
            hint = _blklab.hint(key, list(values))
            raise NoSuchKeyError(f"{self.name}: a {self.kind} has no key {key}{hint}")
        return values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, _Model) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the description to a file, for ``--drive`` or ``--machine``."""
        with open(path, "w") as file:
            file.write(self.text)

    def __repr__(self) -> str:
        return f"<blklab.{type(self).__name__} {self.name} {self.changes}>"

    def _change(self, changes: dict[str, str]) -> None:
        self.text = _blklab.description(
            self.kind, self.name, list(changes.items()), self._own_text
        )
        self.changes = changes

    def _values(self) -> dict[str, Any]:
        return _values_of(self.kind, self.name, self.text)


@functools.lru_cache(maxsize=16)
def _values_of(kind: str, name: str, text: str) -> dict[str, Any]:
    """The values of a description, read once for all keys that are asked for."""
    return dict(_blklab.description_values(kind, name, text))


class Drive(_Model):
    """A drive's description: ``Drive("mx100-256")["gc.policy"] = "greedy"``."""

    kind = "drive"


class Machine(_Model):
    """A machine's description."""

    kind = "machine"
