"""The commands as functions, beside the commands themselves."""

import os
import signal
import threading
from pathlib import Path

import pytest
from support import JOB, command

import blklab

ENDLESS = """[long]
rw=randread
filename=/dev/x
direct=1
ioengine=libaio
iodepth=32
time_based
runtime=100000
"""


def test_a_run_has_the_bytes_of_the_command():
    ours = blklab.run(JOB, scheduler="bfq", seed=3, drive="mx100-256")
    words = "run - --scheduler bfq --seed 3 --drive mx100-256"
    assert ours.json == command(f"{words} --output-format json", JOB).stdout
    # The command ends its text with empty lines.
    assert ours.text.rstrip() == command(words, JOB).stdout.rstrip()


def test_a_comparison_has_the_bytes_of_the_command():
    ours = blklab.compare(
        JOB, schedulers=["none", "bfq"], repeats=2, assumed=0, goal=["reader.read.p99"]
    )
    words = "compare - --schedulers none,bfq --repeats 2 --assumed 0 --goal reader.read.p99"
    theirs = command(f"{words} --output-format json", JOB).stdout

    def said(text):
        # How it was asked for differs.
        return [line for line in text.splitlines() if '"command": ' not in line]

    assert said(ours.json) == said(theirs)
    assert ours.headline in theirs


def test_tables_have_the_bytes_of_the_command(tmp_path):
    ours = blklab.run(JOB, scheduler="bfq", requests=True)
    files = {table: tmp_path / f"{table}.parquet" for table in ("requests", "series")}
    options = " ".join(f"--{table} {path}" for table, path in files.items())
    assert command(f"run - --scheduler bfq {options}", JOB).returncode == 0
    for table, path in files.items():
        written = tmp_path / "ours.parquet"
        ours.to_arrow(table).write(written)
        assert written.read_bytes() == path.read_bytes(), table


def test_mistakes_are_exceptions_with_the_message_of_the_command():
    with pytest.raises(blklab.UsageError) as caught:
        blklab.run(JOB, drive="nvmee")
    theirs = command("run - --drive nvmee", JOB)
    assert theirs.returncode == 2
    assert str(caught.value) == theirs.stderr.removeprefix("blklab: ").rstrip("\n")
    with pytest.raises(blklab.UsageError, match="--no-such-option"):
        blklab.run(JOB, no_such_option=1)
    with pytest.raises(blklab.UsageError, match="did you mean iodepth"):
        blklab.compare(JOB, vary={"iodeth": [1, 2]})
    with pytest.raises(blklab.UsageError, match="there is no table 'rows'"):
        blklab.run(JOB).to_arrow("rows")


def test_jobs_and_models_are_objects():
    options = {"filename": "/dev/x", "direct": 1}
    job = blklab.Job("a", rw="randread", bs="4k", size="16m", number_ios=50, **options)
    beside = blklab.Job("b", rw="read", size="1m", **options)
    assert blklab.run(job + beside).holds
    drive = blklab.Drive("mx100-256")

    def mean_ns():
        result = blklab.run(job, drive=drive)
        return result.data["jobs"][0]["read"]["lat_ns"]["mean"]

    plain_ns = mean_ns()
    drive["controller.read_us"] = 500
    assert mean_ns() > plain_ns + 400_000
    with pytest.raises(blklab.UsageError, match="read_us"):
        drive["controller.read_uss"] = 1
    assert drive.changes == {"controller.read_us": "500"}


def test_a_text_without_a_last_line_break_is_put_before_another_job():
    both = blklab.Job.from_text("[a]\nrw=read\nsize=1m\nfilename=/dev/x") + blklab.Job(
        "b", rw="write", size="1m", filename="/dev/x"
    )
    assert [job["jobname"] for job in blklab.run(both).data["jobs"]] == ["a", "b"]


def test_a_description_is_a_mapping():
    drive = blklab.Drive("nvme")
    assert isinstance(drive["controller.read_us"], (int, float))
    assert f"read_us = {drive['controller.read_us']}" in drive.text
    # A key that the file does not have has its default.
    assert "controller.read_us" in drive and "controller.read_us" in list(drive)
    assert len(drive) == len(set(drive)) > 50
    drive["controller.read_us"] = 7.5
    assert drive["controller.read_us"] == dict(drive)["controller.read_us"] == 7.5
    assert drive["interface"] == "nvme"
    with pytest.raises(blklab.UsageError, match=r"did you mean controller\.read_us"):
        drive["controller.read_uss"]
    with pytest.raises(KeyError):
        drive["controller.read_uss"]
    assert drive.get("no.such.key", 7) == 7
    machine = blklab.Machine("generic-8")
    assert machine["cpu.count"] == 8
    assert drive["host.queues"] == 64
    del drive["host.queues"]
    assert drive["host.queues"] == 1
    # What has no default stays.
    with pytest.raises(blklab.UsageError, match=r"`gc\.policy`: is missing"):
        del drive["gc.policy"]


def test_what_was_probed_and_fitted_is_a_drive(tmp_path):
    probed = blklab.probe(drive="mx100-256", cliff_bytes="64M")
    assert probed.drive["host.capacity_bytes"] == blklab.Drive("mx100-256")["host.capacity_bytes"]
    assert "chunk" in str(probed)
    job = blklab.Job("a", rw="randread", filename="/dev/x", direct=1, size="8m", number_ios=50)
    assert blklab.run(job, drive=probed.drive).holds
    rows = tmp_path / "rows.json"
    options = {"drive": "null", "machine": "generic-8"}
    rows.write_text(blklab.run(job, **options).json)
    fitted = blklab.calibrate([rows], evaluations=0, **options)
    assert fitted.drive == blklab.Drive("null")
    assert fitted.machine == blklab.Machine("generic-8")
    assert "|" in fitted.text


def test_conform_counts():
    traces = Path(__file__).resolve().parents[2] / "tests/data/kernel-traces/kyber"
    report = blklab.conform(sorted(traces.glob("*.trace*"))[:1], scheduler="kyber")
    assert 0 < report.agree <= report.of
    assert report.holds == (report.agree == report.of)


def test_ctrl_c_ends_a_run():
    told = []

    def tell(done, runs):
        if not told:
            os.kill(os.getpid(), signal.SIGINT)
        told.append((done, runs))

    with pytest.raises(KeyboardInterrupt):
        blklab.run(ENDLESS, progress=tell)
    assert blklab.run(JOB).holds


def test_progress_is_told():
    told = []
    blklab.compare(
        JOB,
        schedulers=["none", "bfq"],
        repeats=2,
        assumed=0,
        progress=lambda done, runs: told.append((done, runs)),
    )
    assert told[-1] == (4, 4)


def test_what_a_callback_raises_ends_a_run():
    def told(done, runs):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        blklab.run(ENDLESS, progress=told)


def test_other_threads_of_python_go_on():
    beats, over = [], threading.Event()

    def beat():
        while not over.wait(0.001):
            beats.append(1)

    thread = threading.Thread(target=beat)
    thread.start()
    before = len(beats)
    blklab.run(JOB.replace("300", "100000"))
    during = len(beats) - before
    over.set()
    thread.join()
    assert during > 1
