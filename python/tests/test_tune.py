"""Tuning by Optuna."""

import json
import sys

import pytest
from support import command, module

import blklab
from blklab.commands import halve

#: The writer's queue grows with the number of requests, and the reader waits behind it.
JOB = """[global]
filename=/dev/x
direct=1
ioengine=libaio
norandommap
size=64m
[reader]
rw=randread
bs=4k
number_ios=200
[writer]
rw=randwrite
bs=64k
iodepth=32
number_ios=200
"""
#: Studies of tests end with them.
ON_DRIVE = {"drive": "mx100-256", "storage": "memory"}
SPACE = {
    "scheduler": ["none", "mq-deadline"],
    "nr_requests": list(range(4, 36, 4)),
    "mq-deadline.fifo_batch": [16, 1, 64],
}


def test_the_best_of_a_grid_is_found_and_gone_on_with(tmp_path):
    optuna = module("optuna")
    storage = f"sqlite:///{tmp_path}/tune.db"
    goal = ["reader.read.mean"]
    options = {"drive": "mx100-256", "storage": storage, "study": "mine"}
    tuned = blklab.tune(JOB, SPACE, goal, trials=12, **options)
    assert all(trial.params["nr_requests"] >= 4 for trial in tuned.study.trials)
    assert tuned.first.setting == {"scheduler": "none", "nr_requests": 4}
    (best,) = tuned.front
    assert best.figures <= tuned.first.figures
    told = str(tuned)
    for found in (tuned.first, best):
        assert f"{found.figures[0]:.6g} \N{PLUS-MINUS SIGN} {found.half_widths[0]:.2g}" in told
    assert best.half_widths[0] > 0
    assert tuned.advice in told and tuned.advice.startswith("what to do: ")
    exhaustive = blklab.compare(
        JOB,
        schedulers=["none", *(f"mq-deadline:fifo_batch={n}" for n in (16, 1, 64))],
        vary={"nr_requests": SPACE["nr_requests"]},
        goal=goal,
        drive="mx100-256",
        repeats=8,
        assumed=0,
    )
    values = exhaustive.data["judgement"]["rows"][0]["values"]
    assert best.figures[0] <= 1.03 * min(value["mean"] for value in values)
    blklab.tune(JOB, SPACE, goal, trials=2, **options)
    assert len(optuna.load_study(study_name="mine", storage=storage).trials) == 14


def test_several_goals_have_a_front_and_limits_are_kept():
    module("optuna")
    space = {"nr_requests": [4, 8, 16, 32]}
    goals = ["reader.read.mean", "writer.bandwidth"]
    tuned = blklab.tune(JOB, space, goals, trials=6, **ON_DRIVE)
    assert tuned.more_is_better == (False, True)
    for one in tuned.front:
        for other in tuned.front:
            worse = (one.figures[0] > other.figures[0], one.figures[1] < other.figures[1])
            assert one is other or not all(worse)
    limits = ["writer.bandwidth > 900GB/s"]
    none = blklab.tune(JOB, space, goals[:1], subject_to=limits, trials=3, storage="memory")
    assert not none.front
    assert "no setting keeps the limits" in str(none)


def test_it_halves_as_the_command_does():
    settings = [(f"nr_requests={n}", [("nr_requests", str(n))]) for n in range(4, 33)]
    goal = "reader.read.mean"
    halved = halve(JOB, settings, drive="mx100-256", goal=goal, repeats=4)
    words = f"tune - --drive mx100-256 --vary nr_requests=4..32 --goal {goal} --repeats 4"
    told = command(f"{words} --output-format json", JOB).stdout
    theirs = json.loads(told)
    assert halved.data["schedulers"] == theirs["schedulers"]
    assert halved.data["judgement"] == theirs["judgement"]
    assert halved.data["advice"] == theirs["advice"]
    if theirs["advice"]["take"]:
        assert "/sys/block/" in halved.advice and "udev" in halved.advice
    assert f"tried by {halved.runs} runs" in halved.data["notes"][-2] + halved.data["notes"][-1]


def test_what_matters_is_told():
    module("optuna")
    space = {"nr_requests": [4, 8, 16, 32], "nomerges": [0, 2]}
    tuned = blklab.tune(JOB, space, ["reader.read.mean"], trials=8, **ON_DRIVE)
    assert set(tuned.importances) == set(space)
    first, second = sorted(tuned.importances, key=lambda key: -tuned.importances[key])
    assert f"what matters (PED-ANOVA): {first} " in str(tuned) and f", {second} " in str(tuned)


def test_where_nothing_is_better_it_says_so():
    module("optuna")
    job = blklab.Job("a", rw="randread", filename="/dev/x", direct=1, size="8m", number_ios=50)
    space = {"scheduler": ["none", "mq-deadline", "bfq"]}
    tuned = blklab.tune(job, space, ["a.read.mean"], trials=4, drive="null", storage="memory")
    assert not tuned.is_better
    assert "no change is better" in str(tuned)
    assert "keep none" in tuned.advice.lower()
    # Four trials of three settings, and the last ones eight times.
    assert tuned.runs <= 3 + 3 * 8 + 8


def test_mistakes_are_told(monkeypatch):
    module("optuna")
    with pytest.raises(blklab.UsageError, match="there is no job raeder"):
        blklab.tune(JOB, SPACE, ["raeder.read.p99"])
    with pytest.raises(blklab.UsageError, match="did you mean iodepth"):
        blklab.tune(JOB, {"iodeth": [1, 2]}, ["all.iops"])
    with pytest.raises(blklab.UsageError, match="needs a goal"):
        blklab.tune(JOB, SPACE, [])
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(blklab.Error, match=r"pip install 'blklab\[tune\]'"):
        blklab.tune(JOB, SPACE, ["all.iops"])
