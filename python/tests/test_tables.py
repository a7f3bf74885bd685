"""Results and requests as Arrow tables."""

import pytest
from support import JOB, module

import blklab


@pytest.fixture(scope="module")
def result():
    return blklab.compare(JOB, schedulers=["none", "bfq"], repeats=1, requests=True)


def test_a_table_tells_its_shape(result):
    requests = result.to_arrow("requests")
    assert len(requests) >= 2 * 300
    assert "completed_ns" in requests.column_names
    assert len(result.to_arrow()) == 2 * 2


def test_pyarrow_takes_it_without_a_copy(result):
    pyarrow = module("pyarrow")
    requests = result.to_arrow("requests")

    def address(table):
        return table["completed_ns"].chunk(0).buffers()[1].address

    table = pyarrow.table(requests)
    # Twice the same memory.
    assert address(table) == address(pyarrow.table(requests))
    assert table.schema.field("completed_ns").metadata == {b"unit": b"ns"}


def test_polars_takes_it(result):
    polars = module("polars")
    frame = polars.DataFrame(result.to_arrow("requests"))
    assert frame.filter(polars.col("job") == "reader").height == 2 * 300


def test_a_notebook_shows_it(result):
    module("pyarrow")
    pandas = module("pandas")
    frame = result.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert set(frame["setting"]) == {"none", "bfq"}
    assert "<iframe" in result._repr_html_()
    module("matplotlib").use("agg")
    bars = result.plot("latency_p99_ns").patches
    # Two schedulers, for a reader and a writer.
    assert len(bars) == 4
    assert bars[0].get_height() == frame["latency_p99_ns"][0]
    with pytest.raises(blklab.UsageError, match="there is no column 'p99'"):
        result.plot("p99")
