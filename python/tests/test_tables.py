"""Results and requests as Arrow tables."""

import pytest
from support import JOB, command, module

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


def addresses(array):
    """Where each buffer of a column of numbers is."""
    return [None if buffer is None else buffer.address for buffer in array.buffers()]


def test_pandas_and_polars_share_our_memory(result):
    pyarrow, polars = module("pyarrow"), module("polars")
    module("pandas")
    requests = result.to_arrow("requests")
    ours = pyarrow.table(requests)
    frame = pyarrow.table(requests).to_pandas(types_mapper=module("pandas").ArrowDtype)
    theirs = polars.DataFrame(requests)
    numbers = [field.name for field in ours.schema if pyarrow.types.is_integer(field.type)]
    assert len(numbers) > 20
    for name in numbers:
        there = addresses(ours[name].chunk(0))
        assert addresses(frame[name].array.__arrow_array__().chunk(0)) == there, name
        values = theirs[name].to_arrow()
        # What Polars keeps of missing values is its own.
        assert addresses(values)[1] == there[1], name
    texts = frame["job"].array.__arrow_array__().chunk(0)
    assert addresses(texts.indices) == addresses(ours["job"].chunk(0).indices)


def test_a_frame_has_the_types_of_the_table(result):
    pandas = module("pandas")
    frame = result.to_pandas("requests")
    assert all(isinstance(dtype, pandas.ArrowDtype) for dtype in frame.dtypes)
    assert frame["completed_ns"].max() > frame["submitted_ns"].min()


def test_polars_takes_it(result):
    polars = module("polars")
    frame = polars.DataFrame(result.to_arrow("requests"))
    assert frame.filter(polars.col("job") == "reader").height == 2 * 300


def test_every_reader_takes_the_command_s_arrow_file(tmp_path, result):
    pyarrow, polars, duckdb = module("pyarrow"), module("polars"), module("duckdb")
    ipc = module("pyarrow.ipc")
    path = tmp_path / "r.arrow"
    words = f"compare - --schedulers none,bfq --repeats 1 --assumed 0 --requests {path}"
    done = command(words, JOB)
    assert done.returncode == 0, done.stderr
    found = ipc.open_file(path).read_all()
    found.validate(full=True)
    ours = pyarrow.table(result.to_arrow("requests"))
    assert found.schema.equals(ours.schema, check_metadata=True)
    assert found.equals(ours)
    assert polars.read_ipc(path).height == len(ours)
    assert duckdb.sql("select count(*) from found").fetchall() == [(len(ours),)]


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
