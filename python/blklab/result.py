"""What commands found."""

from __future__ import annotations

import html
import json
import warnings
from typing import Any

from . import _blklab
from ._blklab import Table
from .model import Drive, Machine


def wanted(module: str, extra: str) -> Any:
    """A module of another package, or the command that installs it."""
    try:
        return __import__(module)
    except ImportError as error:
        message = f"this needs {module}: pip install 'blklab[{extra}]'"
        raise _blklab.Error(message) from error


class Report:
    """The text of a command that runs no job."""

    def __init__(self, found: _blklab.Found) -> None:
        self.text = found.text
        #: Whether the command would end with exit status 0.
        self.holds = found.holds

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return self.holds


class Conformance(Report):
    """How far ours do what a recorded kernel did."""

    def __init__(self, found: _blklab.Found) -> None:
        super().__init__(found)
        #: Events that agree, and all that were compared.
        self.agree, self.of = found.agreement or (0, 0)


class Probed(Report):
    """What a drive looks like inside."""

    def __init__(self, found: _blklab.Found) -> None:
        super().__init__(found)
        #: The drive as it was seen, for other commands; ``None`` where its layout was not seen.
        self.drive = None if found.drive is None else Drive.from_text(*found.drive)


class Calibration(Report):
    """Descriptions fitted to measurements."""

    def __init__(self, found: _blklab.Found) -> None:
        super().__init__(found)
        #: The fitted drive and machine; ``None`` where an io.cost model was asked for.
        self.drive = None if found.drive is None else Drive.from_text(*found.drive)
        self.machine = None if found.machine is None else Machine.from_text(*found.machine)


class Result(Report):
    """What runs found: of one setting by ``run``, of several by ``compare``."""

    def __init__(self, found: _blklab.Found) -> None:
        super().__init__(found)
        self._found = found

    @property
    def json(self) -> str:
        """What the command prints with ``--output-format json``."""
        return self._found.json

    @property
    def data(self) -> Any:
        """The same as Python's objects."""
        return json.loads(self._found.json)

    @property
    def headline(self) -> str:
        """Who is best, in a sentence."""
        return self._found.headline

    @property
    def advice(self) -> str:
        """What to do, with the lines to type; empty where there is no advice."""
        return self._found.advice

    @property
    def runs(self) -> int:
        """How many runs it took."""
        return self._found.runs

    def to_arrow(self, table: str = "results") -> Table:
        """A table: ``results``, ``requests`` (with ``requests=True``) or ``series``."""
        tables = {
            "results": self._found.results,
            "requests": self._found.requests,
            "series": self._found.series,
        }
        if table not in tables:
            raise _blklab.UsageError(f"there is no table {table!r}; there are {', '.join(tables)}")
        if table == "requests":
            for note in self._found.notes_on_requests():
                warnings.warn(note, stacklevel=2)
        return tables[table]()

    def to_pandas(self, table: str = "results") -> Any:
        """The same as pandas' DataFrame, whose columns are in the table's memory."""
        pandas = wanted("pandas", "notebook")
        arrow = wanted("pyarrow", "notebook").table(self.to_arrow(table))
        return arrow.to_pandas(types_mapper=pandas.ArrowDtype)

    def page(self) -> str:
        """All of it as a page of HTML of its own."""
        return self._found.page()

    def plot(self, figure: str = "latency_p99_ns", axes: Any = None) -> Any:
        """Bars of a column of the results by setting, job and direction (matplotlib)."""
        wanted("matplotlib", "notebook")
        import matplotlib.pyplot as plt

        frame = self.to_pandas()
        if figure not in frame.columns:
            raise _blklab.UsageError(
                f"there is no column {figure!r}; docs/reference/tables.md names them"
            )
        groups = frame.groupby(["setting", "job", "direction"], sort=False, observed=True)
        means = groups[figure].mean().unstack("setting", sort=False)
        axes = axes if axes is not None else plt.gca()
        means.plot.bar(ax=axes, ylabel=figure)
        return axes

    def _repr_html_(self) -> str:
        page = html.escape(self.page(), quote=True)
        return (
            f"<p>{html.escape(self.headline)}</p>"
            f'<iframe srcdoc="{page}" style="width:100%;height:40em;border:0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<blklab.Result: {self.headline}>"
