"""The best setting by Optuna's samplers, with its storage: needs ``blklab[tune]``."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from . import _blklab
from .commands import compare, halve
from .job import Job
from .question import Question
from .result import wanted
from .scheduler import Scheduler, names_of

Value = str | int | float | bool | type[Scheduler]
Setting = dict[str, Value]

#: Where studies are kept if nothing else is said.
DEFAULT_STORAGE = "sqlite:///blklab-tune.db"

#: The storage of a study that ends with the program.
IN_MEMORY = "memory"

#: Figures of which more is better; of all others less is.
MORE_IS_BETTER = ("bandwidth_bytes_per_s", "iops", "jain_index")

#: What is nearer than this is no reason for a change.
WORTH_A_CHANGE = 0.05

#: A trial's own word in its study.
KEEPS_LIMITS = "keeps_limits"

#: A study's own word: what it is of.
QUESTION = "blklab"

#: Runs of each of them.
FINAL_REPEATS = 8

#: Attempts to make a database's tables, and the pause before the next one.
MAKES_MAX = 10
MAKE_AGAIN_S = 0.3


@dataclass(frozen=True)
class Found:
    """A setting and what it brought."""

    setting: Setting
    #: The goals' figures in their order.
    figures: tuple[float, ...]
    #: Half the width of each figure's 95 % interval.
    half_widths: tuple[float, ...]


@dataclass(frozen=True)
class Tuned:
    """What tuning came to."""

    #: The goals, in the order of the figures.
    goals: tuple[str, ...]
    #: The first setting, with which others are compared.
    first: Found
    #: With one goal the best setting; with several those of which none is better in all.
    front: tuple[Found, ...]
    #: What each axis has to do with being among the best (PED-ANOVA), where there is one
    #: goal and no axis that only some settings have.
    importances: dict[str, float]
    #: Runs that it took.
    runs: int
    #: What to do and what to type, in the words of ``blklab tune``; empty where no setting
    #: keeps the limits.
    advice: str
    #: Optuna's study, which optuna-dashboard opens from its storage.
    study: Any
    #: The storage without its password, or ``memory``.
    storage: str
    more_is_better: tuple[bool, ...]

    @property
    def is_better(self) -> bool:
        """Whether some setting is better than the first by 5 % in a goal, and surely so."""
        return any(self._beats(found) for found in self.front)

    def _beats(self, found: Found) -> bool:
        for at, more in enumerate(self.more_is_better):
            ours, first = found.figures[at], self.first.figures[at]
            gain = ours - first if more else first - ours
            doubt = found.half_widths[at] + self.first.half_widths[at]
            if gain > max(doubt, WORTH_A_CHANGE * first):
                return True
        return False

    def __str__(self) -> str:
        lines = [f"{self.runs} runs, for {' and '.join(self.goals)}"]
        for found in (self.first, *self.front):
            both = zip(found.figures, found.half_widths, strict=True)
            figures = ", ".join(
                f"{figure:.6g} \N{PLUS-MINUS SIGN} {half:.2g}" for figure, half in both
            )
            lines.append(f"{_named(found.setting)}: {figures}")
        if not self.front:
            lines.append("no setting keeps the limits")
        elif not self.is_better:
            lines.append("no change is better")
        if self.importances:
            ranked = sorted(self.importances.items(), key=lambda each: -each[1])
            shares = ", ".join(f"{key} {share * 100:.0f} %" for key, share in ranked)
            lines.append(f"what matters (PED-ANOVA): {shares}")
        if self.storage != IN_MEMORY:
            lines.append(f"study {self.study.study_name} in {self.storage}")
        if self.advice:
            lines.append(self.advice)
        return "\n".join(lines)


def tune(
    job: str | os.PathLike[str] | Job,
    space: Mapping[str, Sequence[Value]],
    goals: Sequence[str],
    *,
    subject_to: Sequence[str] = (),
    trials: int = 30,
    seed: int = 1,
    storage: str | None = None,
    study: str | None = None,
    sampler: Any = None,
    progress: Callable[[int, int], object] | None = None,
    **options: Any,
) -> Tuned:
    """Finds the best setting of a job by a goal, or by several their Pareto front.

    ``space`` has the values of each axis of ``--vary``, the first of all being what others
    are compared with; a scheduler's tunable (``bfq.slice_idle_us``) is varied where that
    scheduler runs. Goals and limits are those of ``--goal`` and ``--subject-to``. All
    settings meet the same random numbers; those that Optuna's sampler tried are halved
    (:func:`blklab.commands.halve`) by the code of ``blklab tune``, whose advice it is.

    The study is kept in ``storage``, ``sqlite:///blklab-tune.db`` if not given, and gone on with
    by the next call. Several machines share one in ``postgresql://USER@HOST/DATABASE``
    (``blklab[postgresql]``); ``storage="memory"`` keeps nothing. ``study`` names it; without a
    name each question has a study of its own. A study is of one job, drive, machine, space, goals,
    options and program, and refuses others.
    """
    optuna = wanted("optuna", "tune")
    if not goals or not space or not all(space.values()):
        raise _blklab.UsageError("tune needs a goal, and an axis with its values")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    choices = {key: _choices(key, values) for key, values in space.items()}
    tried = _Tried(job, list(goals), list(subject_to), dict(options, seed=seed))
    default = space["scheduler"][0] if "scheduler" in space else None
    first = {key: values[0] for key, values in space.items() if _is_of(key, default, space)}
    more = tried.figures(first, 1).more_is_better
    question = Question.of(job, choices, goals, subject_to, tried.options)
    place = storage or DEFAULT_STORAGE
    directions = ["maximize" if up else "minimize" for up in more]
    kept, place = _study(optuna, place, study or question.name, directions)
    _claim(kept, question, place)
    if not kept.trials:
        first_trial = {key: _choice(value) for key, value in first.items()}
        kept.enqueue_trial(first_trial, skip_if_exists=True)
    for at in range(trials):
        trial = kept.ask()
        # Workers that share a study, and calls that go on with one, draw other settings.
        kept.sampler = sampler or optuna.samplers.TPESampler(seed=seed + trial.number)
        figures = tried.figures(_suggested(trial, choices), 1)
        for limit, is_kept in zip(subject_to, figures.kept, strict=True):
            trial.set_constraint(limit, 0.0 if is_kept else 1.0)
        trial.set_user_attr(KEEPS_LIMITS, all(figures.kept))
        kept.tell(trial, figures.values)
        if progress is not None:
            progress(at + 1, trials)
    final = tried.final([first, *_distinct(_candidates(kept), choices)])
    all_axes = {tuple(found.params) for found in kept.trials if found.values}
    single = len(goals) == 1 and len(all_axes) == 1
    return Tuned(
        goals=tuple(goals),
        first=final.first,
        front=tuple(final.best),
        importances=_importances(optuna, kept) if single else {},
        runs=tried.runs,
        advice=final.advice,
        study=kept,
        storage=place,
        more_is_better=tuple(more),
    )


def _study(optuna: Any, storage: str, name: str, directions: list[str]) -> tuple[Any, str]:
    """A storage's study of this name, made if there is none, and the storage without password."""
    about = {"study_name": name, "directions": directions}
    if storage == IN_MEMORY:
        return optuna.create_study(**about), storage
    from sqlalchemy import engine, exc

    try:
        url = engine.make_url(storage)
    except exc.ArgumentError:
        raise _blklab.UsageError(
            f"storage {storage}: no URL of a database; right is sqlite:///FILE, "
            f"postgresql://USER@HOST/DATABASE, or {IN_MEMORY}"
        ) from None
    shown = url.render_as_string(hide_password=True)
    for left in reversed(range(MAKES_MAX)):
        try:
            return optuna.create_study(storage=storage, load_if_exists=True, **about), shown
        except ImportError as error:
            if url.get_backend_name() == "postgresql":
                wanted("psycopg", "postgresql")
            raise _blklab.Error(f"storage {shown}: {error}") from error
        except (exc.IntegrityError, exc.ProgrammingError, exc.OperationalError) as error:
            # Workers that begin at the same time make an empty database's tables together.
            if left == 0 or "already exists" not in str(error):
                problem = str(error.orig).strip().splitlines()[0]
                raise _blklab.Error(f"storage {shown}: {problem}") from error
            time.sleep(MAKE_AGAIN_S)
    raise AssertionError("the last attempt raises")


#: Of each axis what a study stores for each value, with the value: numbers and texts for
#: themselves, a scheduler in Python by its name.
Choices = Mapping[str, Mapping[str | int | float | bool, Value]]


def _choice(value: Value) -> str | int | float | bool:
    return names_of([value]) if isinstance(value, type) else value


def _choices(key: str, values: Sequence[Value]) -> dict[str | int | float | bool, Value]:
    choices: dict[str | int | float | bool, Value] = {}
    for value in values:
        choice = _choice(value)
        if choice in choices:
            raise _blklab.UsageError(f"space: {key}: {choice} is named twice")
        choices[choice] = value
    return choices


def _claim(study: Any, question: Question, storage: str) -> None:
    """Makes a new study one of this question; refuses that of another."""
    known = study.user_attrs.get(QUESTION)
    if known is None and not study.trials:
        study.set_user_attr(QUESTION, question.facts)
    elif known is None or known != question.facts:
        differs = "it does not say what it is of" if known is None else question.against(known)
        raise _blklab.UsageError(
            f"study {study.study_name} in {storage} is of another question: {differs}; "
            "give another name by study=, another storage=, or ask what it was asked"
        )
    if storage != IN_MEMORY:
        so_far = f", {len(study.trials)} trials so far" if study.trials else ""
        print(f"blklab: study {study.study_name} is kept in {storage}{so_far}", file=sys.stderr)


@dataclass(frozen=True)
class _Figures:
    values: list[float]
    half_widths: list[float]
    more_is_better: list[bool]
    #: Of each limit whether it is kept.
    kept: list[bool]


@dataclass(frozen=True)
class _Final:
    first: Found
    #: With one goal the best setting; with several the front; none where none keeps the limits.
    best: list[Found]
    advice: str


class _Tried:
    """Settings that were run, each but once."""

    def __init__(
        self,
        job: str | os.PathLike[str] | Job,
        goals: list[str],
        subject_to: list[str],
        options: dict[str, Any],
    ) -> None:
        self.job = job
        self.options = dict(options, goal=goals, subject_to=subject_to, assumed=0)
        self.goals = len(goals)
        self.known: dict[tuple[str, int], _Figures] = {}
        self.runs = 0

    def figures(self, setting: Setting, repeats: int) -> _Figures:
        key = (_named(setting), repeats)
        if key not in self.known:
            self.known[key] = self._run(setting, repeats)
            self.runs += repeats
        return self.known[key]

    def final(self, settings: Sequence[Setting]) -> _Final:
        """Halves settings, the first of which others are compared with."""
        labels = {_label(setting): setting for setting in settings}
        options = {key: value for key, value in self.options.items() if key != "assumed"}
        result = halve(
            self.job,
            [(label, _values(setting)) for label, setting in labels.items()],
            pareto=self.goals > 1,
            repeats=FINAL_REPEATS,
            **options,
        )
        self.runs += result.runs
        data = result.data
        rows = data["judgement"]["rows"]
        goals, limits = rows[: self.goals], rows[self.goals :]

        def found(at: int) -> Found:
            estimates = [row["values"][at] for row in goals]
            return Found(
                labels[data["schedulers"][at]],
                tuple(estimate["mean"] for estimate in estimates),
                tuple(estimate.get("half_width_95") or 0.0 for estimate in estimates),
            )

        if self.goals > 1:
            best = data["front"]["rows"]
        else:
            keeps = zip(*(row["kept"] for row in limits), strict=True) if limits else ()
            kept = [at for at, each in enumerate(keeps) if all(each)]
            kept = kept if limits else list(range(len(data["schedulers"])))
            more = goals[0]["metric"] in MORE_IS_BETTER
            best = sorted(kept, key=lambda at: goals[0]["values"][at]["mean"], reverse=more)[:1]
        advice = result.advice if best else ""
        return _Final(found(0), [found(at) for at in best], advice)

    def _run(self, setting: Setting, repeats: int) -> _Figures:
        scheduler = setting.get("scheduler")
        axes = {key: [value] for key, value in setting.items() if key != "scheduler"}
        result = compare(
            self.job,
            schedulers=None if scheduler is None else [_scheduler(scheduler)],
            vary=axes,
            repeats=repeats,
            **self.options,
        )
        rows = result.data["judgement"]["rows"]
        goals, limits = rows[: self.goals], rows[self.goals :]
        estimates = [row["values"][0] for row in goals]
        if not all(estimates):
            missing = [row["name"] for row in goals if not row["values"][0]]
            raise _blklab.UsageError(f"{_named(setting)} has no {' and no '.join(missing)}")
        return _Figures(
            values=[estimate["mean"] for estimate in estimates],
            half_widths=[estimate.get("half_width_95") or 0.0 for estimate in estimates],
            more_is_better=[row["metric"] in MORE_IS_BETTER for row in goals],
            kept=[row["kept"][0] for row in limits],
        )


def _scheduler(value: Value) -> str | type[Scheduler]:
    return value if isinstance(value, type) else str(value)


def _is_of(key: str, scheduler: Value | None, space: Mapping[str, Sequence[Value]]) -> bool:
    """Whether an axis is one of a setting's: a tunable is where its scheduler runs."""
    owner, dot, _ = key.partition(".")
    names = [_scheduler_name(value) for value in space.get("scheduler", ())]
    return not dot or owner not in names or owner == _scheduler_name(scheduler)


def _scheduler_name(value: Value | None) -> str:
    """A scheduler's name without its tunables; that of a class is the one it is known by."""
    return "" if value is None else str(_choice(value)).partition(":")[0]


def _suggested(trial: Any, choices: Choices) -> Setting:
    """What Optuna asks for next."""
    space = {key: list(of_axis.values()) for key, of_axis in choices.items()}
    setting: Setting = {}
    for key in sorted(choices, key=lambda key: key != "scheduler"):
        if _is_of(key, setting.get("scheduler"), space):
            setting[key] = choices[key][_suggested_choice(trial, key, choices[key])]
    return setting


def _suggested_choice(trial: Any, key: str, of_axis: Mapping[Any, Value]) -> Any:
    """Whole numbers in even steps are asked for as such: Optuna then knows which are near."""
    numbers = sorted(of_axis) if all(type(choice) is int for choice in of_axis) else []
    steps = {after - before for before, after in pairwise(numbers)}
    if len(steps) == 1:
        return trial.suggest_int(key, numbers[0], numbers[-1], step=steps.pop())
    return trial.suggest_categorical(key, list(of_axis))


def _candidates(study: Any) -> list[Any]:
    """The trials to be run again."""
    # One that a stopped program left is without figures.
    return [trial for trial in study.trials if trial.values and trial.user_attrs.get(KEEPS_LIMITS)]


def _distinct(trials: Sequence[Any], choices: Choices) -> list[Setting]:
    """Their settings, each once."""
    settings: dict[str, Setting] = {}
    for trial in trials:
        setting = {key: choices[key][choice] for key, choice in trial.params.items()}
        settings.setdefault(_named(setting), setting)
    return list(settings.values())


def _values(setting: Setting) -> list[tuple[str, str]]:
    """Keys and values as of ``--vary``, the scheduler first, since tunables are one's own."""
    named = []
    for key, value in sorted(setting.items(), key=lambda each: (each[0] != "scheduler", each[0])):
        named.append((key, names_of([value]) if isinstance(value, type) else _plain(value)))
    return named


def _label(setting: Setting) -> str:
    """A setting's name in tables, as the command has it."""
    values = _values(setting)
    scheduler = dict(values).get("scheduler", "").partition(":")[0]
    words = [value if key == "scheduler" else f"{key}={value}" for key, value in values]
    return " ".join(word.removeprefix(f"{scheduler}.") for word in words)


def _plain(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _named(setting: Setting) -> str:
    def plain(value: Value) -> str:
        return value.__name__ if isinstance(value, type) else json.dumps(value)

    return ", ".join(f"{key}={plain(value)}" for key, value in sorted(setting.items()))


def _importances(optuna: Any, study: Any) -> dict[str, float]:
    """By mean decrease in impurity; nothing where all trials are alike."""
    if len({tuple(trial.values) for trial in study.trials if trial.values}) < 2:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))
