"""Drives and machines whose parameters can be changed."""

from __future__ import annotations

import os

from . import _blklab


class _Model:
    """A description by its name or file, and what is changed in it."""

    kind = ""

    def __init__(self, name: str, **values: object) -> None:
        self.name = name
        self.values: dict[str, str] = {}
        self.text = _blklab.description(self.kind, name, [])
        for key, value in values.items():
            self[key] = value

    def __setitem__(self, key: str, value: object) -> None:
        """Gives a key, such as ``"gc.policy"``, a value; it is checked at once."""
        changed = dict(self.values)
        changed[key] = str(value).lower() if isinstance(value, bool) else str(value)
        self.text = _blklab.description(self.kind, self.name, list(changed.items()))
        self.values = changed

    def __getitem__(self, key: str) -> str:
        """What a key was given here."""
        return self.values[key]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the description to a file, for ``--drive`` or ``--machine``."""
        with open(path, "w") as file:
            file.write(self.text)

    def __repr__(self) -> str:
        return f"<blklab.{type(self).__name__} {self.name} {self.values}>"


class Drive(_Model):
    """A drive's description: ``Drive("mx100-256")["gc.policy"] = "greedy"``."""

    kind = "drive"


class Machine(_Model):
    """A machine's description."""

    kind = "machine"
