"""The example notebooks, one for each guide, run from their first cell to their last."""

from pathlib import Path

import pytest
from support import module

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_each_guide_has_one():
    guides = {guide.stem for guide in (ROOT.parent / "docs").glob("*.md")}
    assert {notebook.stem for notebook in NOTEBOOKS} == guides


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path):
    for name in ("ipykernel", "pandas", "pyarrow", "matplotlib", "optuna"):
        module(name)
    nbclient, nbformat = module("nbclient"), module("nbformat")
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are made, not kept"
    resources = {"metadata": {"path": path.parent}}
    client = nbclient.NotebookClient(
        notebook, timeout=600, startup_timeout=600, resources=resources
    )
    client.execute()
