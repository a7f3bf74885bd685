"""A study in PostgreSQL that several workers share."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support import module

import blklab

WORKER = """
import sys, blklab
job = blklab.Job("a", rw="randread", filename="/dev/x", direct=1, size="8m", number_ios=50)
space = {"scheduler": ["none", "mq-deadline", "bfq"], "nr_requests": list(range(4, 36, 4))}
tuned = blklab.tune(
    job, space, ["a.read.mean"], trials=6, drive="null", storage=sys.argv[1], study="shared"
)
print(tuned)
"""
#: Workers that begin at the same moment.
WORKERS = 3
TRIALS = 6


def programs():
    """The folder of the server's programs, of which Debian's are not in PATH."""
    found = shutil.which("initdb")
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    folders = [Path(found).resolve().parent] if found else debian
    return next((folder for folder in folders if (folder / "postgres").is_file()), None)


@pytest.fixture(scope="module")
def database():
    """The URL of an empty database of a server of its own."""
    of_server = programs()
    if of_server is None:
        missing = "PostgreSQL is not installed: apt-get install postgresql"
        if os.environ.get("BLKLAB_JUDGES") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    place = tempfile.mkdtemp(prefix="blklab")
    options = {"cwd": place, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if os.geteuid() == 0:
        # The server refuses to run as root.
        options["user"] = "postgres"
        shutil.chown(place, "postgres")
    made = [of_server / "initdb", "-D", "data", "-A", "trust", "-E", "UTF8", "-U", "tuner", "-N"]
    subprocess.run(made, check=True, **options)
    words = [of_server / "postgres", "-D", "data", "-k", place, "-h", "", "-F"]
    server = subprocess.Popen(words, **options)
    try:
        asked = [of_server / "pg_isready", "-q", "-h", place]
        until = time.monotonic() + 60
        while subprocess.run(asked, check=False).returncode != 0:
            assert server.poll() is None and time.monotonic() < until, "the server does not start"
            time.sleep(0.05)
        yield f"postgresql://tuner:secret@/postgres?host={place}"
    finally:
        # It would wait for those who are still connected after SIGTERM.
        server.send_signal(signal.SIGINT)
        server.wait()
        shutil.rmtree(place)


def test_workers_that_begin_at_once_share_a_study(database):
    optuna = module("optuna")
    module("psycopg")
    words = [sys.executable, "-c", WORKER, database]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    workers = [subprocess.Popen(words, **pipes) for _ in range(WORKERS)]
    for worker in workers:
        told, said = worker.communicate()
        assert worker.returncode == 0, said
        assert "study shared in postgresql://tuner:***@" in told
        assert "study shared is kept in postgresql://tuner:***@" in said
        assert "no change is better" in told
    study = optuna.load_study(study_name="shared", storage=database)
    assert len(study.trials) == WORKERS * TRIALS
    assert all(trial.values for trial in study.trials)
    # Three that draw from one seed would try a third of that.
    tried = {tuple(sorted(trial.params.items())) for trial in study.trials}
    assert len(tried) > TRIALS


def test_another_question_is_refused_there(database):
    module("optuna")
    module("psycopg")
    job = blklab.Job("a", rw="randread", filename="/dev/x", direct=1, size="8m", number_ios=50)
    options = {"drive": "null", "storage": database, "study": "one", "trials": 1}
    blklab.tune(job, {"nr_requests": [4, 8]}, ["a.read.mean"], **options)
    with pytest.raises(blklab.UsageError, match="is of another question") as caught:
        blklab.tune(job, {"nr_requests": [4, 16]}, ["a.read.mean"], **options)
    assert "secret" not in str(caught.value)


def test_what_is_no_database_is_told(monkeypatch, tmp_path):
    module("optuna")
    module("psycopg")
    job = blklab.Job("a", rw="randread", filename="/dev/x", direct=1, size="8m", number_ios=50)

    def tune(storage):
        space = {"nr_requests": [4, 8]}
        blklab.tune(job, space, ["a.read.mean"], drive="null", storage=storage, trials=1)

    with pytest.raises(blklab.Error, match=r"storage postgresql://me:\*\*\*@") as caught:
        tune(f"postgresql://me:secret@/none?host={tmp_path}")
    assert "secret" not in str(caught.value) and "connect" in str(caught.value)
    with pytest.raises(blklab.UsageError, match="storage nowhere: no URL of a database"):
        tune("nowhere")
    with pytest.raises(blklab.Error, match="unable to open database file"):
        tune(f"sqlite:///{tmp_path}/no/such.db")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(blklab.Error, match=r"pip install 'blklab\[postgresql\]'"):
        tune("postgresql://me@/none")
