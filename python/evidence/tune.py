"""How near ``blklab tune`` comes to the best setting of a grid, and at what cost: its choice
beside the same grid searched exhaustively by ``blklab compare``. ``make tune-report`` makes
the page.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKLOADS = Path(__file__).parent / "workloads"

#: Schedulers of the kernel, and values of one tunable of each.
TUNABLES: dict[str, dict[str, tuple[int, ...]]] = {
    "none": {},
    "mq-deadline": {
        "fifo_batch": (1, 2, 4, 8, 32, 64),
        "writes_starved": (1, 4, 8, 16),
        "read_expire": (125, 250, 1000, 2000),
    },
    "kyber": {
        "read_lat_nsec": (500_000, 1_000_000, 4_000_000, 8_000_000),
        "write_lat_nsec": (2_500_000, 5_000_000, 20_000_000, 40_000_000),
    },
    "bfq": {
        "slice_idle_us": (0, 2000, 4000, 16000),
        "low_latency": (0,),
        "timeout_sync": (31, 62, 248),
    },
}

REPEATS = 32

#: How long a run lasts, by drive: long enough that all jobs of a question do I/O at the same time,
#: each of them fifty or more.
RUNTIME = {"mx100-256": "50ms", "null": "10ms"}

#: Questions at once. Each keeps the results of all its runs, some GiB.
AT_ONCE = 1

#: The goals of the report.
REGRET_MAX = 0.03
SHARE_MAX = 0.1


@dataclass(frozen=True)
class Question:
    """A job on a drive, and what it is to be best in."""

    job: str
    drive: str
    goal: str
    #: The queue's sizes, the first of which is of the setting that others are compared with.
    nr_requests: str = "4,8,16,32"

    @property
    def words(self) -> list[str]:
        """The command's words, beside its name."""
        options = {
            "--drive": self.drive,
            # CPUs that take no time: what the settings differ by is the drive's.
            "--machine": "generic-8",
            "--goal": self.goal,
            "--schedulers": ",".join(schedulers()),
            "--vary": f"nr_requests={self.nr_requests}",
            "--override": f"runtime={RUNTIME[self.drive]}",
            "--memory": "512M",
            "--repeats": str(REPEATS),
            "--output-format": "json",
        }
        given = [word for option in options.items() for word in option]
        return [str(WORKLOADS / f"{self.job}.fio"), *given]


#: All on one drive: the whole grid on faster ones takes too long. None of these jobs served to
#: choose how ``tune`` halves its settings.
TEN = (
    Question("cassandra", "mx100-256", "read.read.p99"),
    Question("elasticsearch", "mx100-256", "search.read.mean"),
    Question("mongodb", "mx100-256", "client.read.mean"),
    Question("sqlite", "mx100-256", "query.read.mean"),
    Question("etcd", "mx100-256", "log.sync.mean"),
    Question("build-kernel", "mx100-256", "compiler.read.mean"),
    Question("browser", "mx100-256", "cache.read.mean"),
    Question("boot", "mx100-256", "start.read.mean"),
    Question("journald", "mx100-256", "service.read.mean"),
    Question("dpkg-upgrade", "mx100-256", "program.read.mean"),
)

#: Jobs that contend for a drive on which that costs nobody anything: 10 us for every command,
#: whatever its kind, size and place, and 64 at once, so no order of them is better than another.
#: The first setting has as many tags as there are, since fewer can only hold requests back.
NOTHING_BETTER = tuple(
    Question(job, "null", goal, nr_requests="32,16,8,4")
    for job, goal in (
        ("backup-beside-database", "client.read.mean"),
        ("desktop-copy", "start.read.mean"),
        ("mysql-oltp", "client.read.mean"),
    )
)


def schedulers() -> Iterator[str]:
    """Every scheduler as it comes, then with each value of each tunable."""
    yield from TUNABLES
    for name, tunables in TUNABLES.items():
        for tunable, values in tunables.items():
            yield from (f"{name}:{tunable}={value}" for value in values)


def means(blklab: str, command: list[str]) -> tuple[dict[str, float], bool, dict[str, Any]]:
    """What a command finds: the goal's mean by setting, whether more is better, all of it."""
    done = subprocess.run([blklab, *command], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    (row,) = found["judgement"]["rows"]
    values = zip(found["schedulers"], row["values"], strict=True)
    by_setting = {name: value["mean"] for name, value in values if value}
    return by_setting, row["metric"] in ("bandwidth_bytes_per_s", "iops"), found


@dataclass(frozen=True)
class Line:
    """What came of a question."""

    text: str
    regret: float
    share: float
    advice: dict[str, Any]


def asked(blklab: str, question: Question) -> Line:
    """Asks a question, and searches its whole grid."""
    tuned, more, found = means(blklab, ["tune", *question.words])
    best_of = max if more else min
    chosen = best_of(tuned, key=lambda name: tuned[name])
    words = ["compare", *question.words, "--assumed", "0"]
    every, _, _ = means(blklab, words)
    best = best_of(every, key=lambda name: every[name])
    ratio = every[best] / every[chosen] if more else every[chosen] / every[best]
    (tried,) = (note for note in found["notes"] if " settings were tried by " in note)
    runs = int(tried.split(" were tried by ")[1].split()[0])
    share = runs / (len(every) * REPEATS)
    text = (
        f"| {question.job} | {question.drive} | {question.goal} | {len(every)} | {share:.1%} "
        f"| {chosen} | {best} | {ratio - 1:.2%} |"
    )
    return Line(text, ratio - 1, share, found["advice"])


def page(blklab: str) -> str:
    """The whole page."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        all_lines = list(pool.map(lambda question: asked(blklab, question), TEN + NOTHING_BETTER))
    lines = all_lines[: len(TEN)]
    within = sum(line.regret <= REGRET_MAX for line in lines)
    cheap = sum(line.share <= SHARE_MAX for line in lines)
    nothing = list(zip(NOTHING_BETTER, all_lines[len(TEN) :], strict=True))
    calm = [
        f"| {question.job} | {question.drive} | {question.goal} | {line.regret:.2%} "
        f"| {line.advice['sentence']} |"
        for question, line in nothing
    ]
    said = sum(line.advice["take"] is None for _, line in nothing)
    return "\n".join(
        (
            "# How near does `blklab tune` come to the best?\n",
            "Ten jobs, each with a grid that was searched exhaustively, "
            f"{REPEATS} runs a setting, and by `blklab tune` with as many runs of its finalists. "
            "Regret is how much worse its choice is than the best of the grid, by the runs of the "
            "exhaustive search. "
            f"Goals: at most {REGRET_MAX:.0%}, with at most {SHARE_MAX:.0%} of the runs. "
            f"**{within} of {len(TEN)} are within the first, {cheap} within the second.** "
            "Jobs are those of [defaults](defaults.md); none of the ten served to choose how "
            "`tune` halves its settings. The machine is `generic-8`. "
            "`make tune-report` makes this page.\n",
            "| job | drive | goal | settings | runs | tune's choice | the best | regret |",
            "| --- | --- | --- | --: | --: | --- | --- | --: |",
            *(line.text for line in lines),
            "\n## Where nothing is better\n",
            f"{len(NOTHING_BETTER)} jobs that run at the same time as others, on a drive that "
            "does 64 commands at once and takes 10 us for each, whatever its kind, size and "
            f"place: no order is better than another. {said} times tune advises no change.\n",
            "| job | drive | goal | regret | advice |",
            "| --- | --- | --- | --: | --- |",
            *calm,
            "",
        )
    )


def main() -> None:
    """Makes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blklab", default="blklab", help="the command")
    parser.add_argument("--page", type=Path, default=Path("tune.md"), help="the page's file")
    args = parser.parse_args()
    args.page.write_text(page(args.blklab))


if __name__ == "__main__":
    main()
