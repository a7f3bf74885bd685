"""The programs that make evidence pages, on a small part of their work."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import COMMAND, command, module

FOLDER = Path(__file__).parent.parent / "evidence"
WORKLOADS = sorted((FOLDER / "workloads").glob("*.fio"))


def test_thirty_workloads_have_sources():
    assert len(WORKLOADS) == 30
    for workload in WORKLOADS:
        lines = workload.read_text().splitlines()
        about = [line for line in lines if line.startswith("# ")]
        assert len(about) >= 2, workload.stem
        assert ": " in " ".join(about[1:]), f"{workload.stem} has no source"


def test_the_defaults_report_is_made_of_sweeps(tmp_path, monkeypatch):
    module("pyarrow")
    monkeypatch.syspath_prepend(str(FOLDER))
    import defaults

    few = tmp_path / "workloads"
    few.mkdir()
    for name in ("git-status", "analytics-scan"):
        (few / f"{name}.fio").write_text((FOLDER / "workloads" / f"{name}.fio").read_text())
    monkeypatch.setattr(defaults, "WORKLOADS", few)
    monkeypatch.setattr(defaults, "RUNTIME", {"nvme": "2ms", "mmc": "50ms"})
    monkeypatch.setattr(defaults, "SCHEDULERS", ("none", "mq-deadline"))
    monkeypatch.setattr(defaults, "READ_AHEAD_KB", (32, 128))
    page = tmp_path / "page.md"
    words = ["--blklab", COMMAND, "--folder", str(tmp_path / "runs"), "--page", str(page)]
    monkeypatch.setattr(
        sys, "argv", ["defaults", *words, "--drives", "nvme,sd-card", "--repeats", "2"]
    )
    defaults.main()
    text = page.read_text()
    assert "2 workloads of real programs, 4 settings, 2 drives, 2 runs each: 32 runs" in text
    assert "32 of them were done for this page" in text
    assert "xeon-10core or rpi4 (mmc) with 512M" in text and "drive.host.capacity_bytes=" in text
    assert "| none, 128 KiB | +0.0 % | +0.0 % (analytics-scan) |" in text
    rows = [line for line in text.splitlines() if line.startswith(("| none, ", "| mq-deadline, "))]
    assert len(rows) == 2 * 4
    assert "**git-status**, judged by `preload`" in text


@pytest.mark.cluster
def test_what_many_runs_cost_is_measured(tmp_path):
    """The page's program on small sizes: what it holds must hold there, too."""
    module("ray")
    page = tmp_path / "page.md"
    words = [sys.executable, str(FOLDER / "many_runs"), "--small", f"--page={page}"]
    done = subprocess.run(
        [*words, f"--blklab={COMMAND}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "the same bytes as JSON" in text
    for library in ("pandas", "Polars"):
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {library} |")]
        numbers = re.search(r"\| (\d+) of (\d+) \|", line)
        assert numbers and numbers[1] == numbers[2] and int(numbers[2]) > 20, line
    assert "were killed 5 times by SIGKILL" in text
    assert "Runs lost: 0; runs done twice: 0; data sets that differ" in text
    # On two nodes, one of which was killed.
    (whole, lost) = [line for line in text.splitlines() if line.endswith("s | yes | 0 |")]
    assert whole.startswith("| stay |")
    assert re.match(r"\| one killed with \d+% of the runs \|", lost)
    assert re.search(r"^\| nodes of Ray \| 1 \|", text, re.MULTILINE)
    assert "| 1024 |" in text


def test_tune_is_held_against_the_whole_grid(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import tune

    monkeypatch.setattr(tune, "REPEATS", 2)
    monkeypatch.setattr(tune, "TUNABLES", {"none": {}, "kyber": {"read_lat_nsec": (1_000_000,)}})
    question = tune.Question("git-status", "null", "preload.read.mean")
    line = tune.asked(COMMAND, question)
    assert line.text.startswith("| git-status | null | preload.read.mean | 12 |")
    assert 0 <= line.regret < 0.5
    assert 0.5 <= line.share <= 1
    assert line.advice["sentence"].startswith("No difference")


def test_where_nothing_is_better_jobs_contend(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import tune

    for question in tune.NOTHING_BETTER:
        runtime = f"runtime={tune.RUNTIME[question.drive]}"
        job = tune.WORKLOADS / f"{question.job}.fio"
        words = f"run {job} --drive {question.drive} --override {runtime} --memory 512M"
        jobs = json.loads(command(f"{words} --output-format json").stdout)["jobs"]
        assert len(jobs) >= 2
        for of_job in jobs:
            ios = of_job["read"]["total_ios"] + of_job["write"]["total_ios"]
            assert ios >= 50, (question.job, of_job["jobname"])
