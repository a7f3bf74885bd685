"""Sweeps on one machine and on a cluster."""

import json
import subprocess
import sys

import pytest
from support import COMMAND

import blklab
from blklab import sweep

JOB = """[a]
rw=randread
bs=4k
filename=/dev/x
direct=1
ioengine=libaio
size=64m
number_ios=200
"""
SPEC = 'job = "a.fio"\nrepeats = 6\nvary = ["scheduler=none,bfq", "iodepth=1..16*4"]\n'
RUNS = 2 * 3 * 6


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "a.fio").write_text(JOB)
    (tmp_path / "s.toml").write_text(SPEC)
    return tmp_path / "s.toml"


def keys(folder):
    """The keys of all runs that a folder's files have."""
    parts = [part.read_text().splitlines() for part in folder.glob("part-*.jsonl")]
    return {json.loads(line)["key"] for part in parts for line in part[1:]}


def test_a_sweep_goes_on_where_it_was(spec):
    told = []
    first = sweep.sweep(spec, progress=lambda done, runs: told.append((done, runs)))
    assert (first.runs, first.done, first.missing) == (RUNS, RUNS, 0)
    assert told[-1] == (RUNS, RUNS)
    table = first.table.read_bytes()
    again = sweep.sweep(spec)
    assert (again.done, again.table.read_bytes()) == (0, table)
    words = [sys.executable, "-m", "blklab.sweep", str(spec)]
    printed = subprocess.run(words, capture_output=True, text=True, check=True)
    assert printed.stdout == f"{again}\n"
    assert printed.stdout.startswith(f"{RUNS} runs: 0 done now, {RUNS} were there, 0 missing")
    words.append("--output=none/such")
    spec.write_text(SPEC.replace("iodepth", "iodeth"))
    wrong = subprocess.run(words, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "there is nothing called iodeth" in wrong.stderr


def test_a_worker_needs_the_same_build(spec):
    file = blklab._blklab.SweepFile(spec)
    work = sweep._Work.of(spec, file)
    other = sweep._Work(work.spec, work.files, "blklab 0.0.9")
    with pytest.raises(blklab.Error, match=r"and this is blklab 0\.0\.9"):
        other.do([0])
    spec.unlink()
    (spec.parent / "a.fio").unlink()
    (part,) = work.do([3, 4])
    assert len(part.splitlines()) == 3


def test_the_command_and_the_package_share_a_data_set(spec, tmp_path):
    folder = tmp_path / "both"
    words = [COMMAND, "sweep", str(spec), "--output", str(folder)]
    subprocess.run(words, capture_output=True, check=True)
    alone = sweep.sweep(spec, output=tmp_path / "alone")
    assert alone.table.read_bytes() == (folder / "results.parquet").read_bytes()
    (part,) = folder.glob("part-*.jsonl")
    theirs = json.loads(part.read_text().splitlines()[0])["program"]
    ours = blklab._blklab.SweepFile(spec).program
    assert ours.rpartition(", ")[0] == theirs.rpartition(", ")[0]
    # Tests may have them built with different optimisation.
    if ours == theirs:
        assert sweep.sweep(spec, output=folder).done == 0
        assert keys(folder) == keys(tmp_path / "alone")
    else:
        with pytest.raises(blklab.UsageError, match="its runs are of"):
            sweep.sweep(spec, output=folder)


def test_a_worker_gets_all_files_of_a_trace(tmp_path):
    records = "".join(f"{10_000 * n},x,0,Read,{4096 * n},4096,1000\n" for n in range(20))
    (tmp_path / "load.csv").write_text(records)
    spec = tmp_path / "s.toml"
    spec.write_text('job = "load.csv"\nvary = ["scheduler=none,bfq"]\n')
    work = sweep._Work.of(spec, blklab._blklab.SweepFile(spec))
    assert [name for name, _ in work.files] == ["load.csv"]
    here = sweep.sweep(spec)
    (there,) = work.do([0, 1])
    (here,) = [part.read_bytes() for part in here.table.parent.glob("part-*.jsonl")]
    assert set(there.splitlines()) == set(here.splitlines())


def test_a_missing_package_is_named(spec, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(blklab.Error, match=r"pip install 'blklab\[ray\]'"):
        sweep.sweep(spec, ray="auto")
