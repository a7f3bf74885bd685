"""What several tests use."""

import importlib
import os
import subprocess
from types import ModuleType

import pytest

COMMAND = os.environ.get("BLKLAB", "blklab")

#: A reader and a writer.
JOB = """[global]
filename=/dev/x
direct=1
ioengine=libaio
iodepth=8
size=64m
[reader]
rw=randread
bs=4k
number_ios=300
[writer]
rw=randwrite
bs=16k
number_ios=100
"""


def command(words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the ``blklab`` command."""
    return subprocess.run(
        [COMMAND, *words.split()], input=text, capture_output=True, text=True, check=False
    )


def module(name: str) -> ModuleType:
    """Another package, without which a test is skipped where tests may be."""
    if os.environ.get("BLKLAB_JUDGES") == "required":
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"{name} is not installed: pip install {name}")
