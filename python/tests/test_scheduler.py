"""Schedulers in Python beside ours."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import JOB

import blklab


class Fifo(blklab.Scheduler):
    name = "python-fifo"

    def __init__(self, queue):
        super().__init__(queue)
        self.requests = {}

    def insert_requests(self, requests, now_ns):
        self.requests.update((request.number, request) for request in requests)

    def requests_merged(self, request, next, now_ns):
        del self.requests[next.number]

    def dispatch_request(self, now_ns):
        for number in self.requests:
            return self.requests.pop(number)


def figures(result):
    rows = result.data["sections"][0]["directions"][0]["rows"]
    return {row["scheduler"]: {k: v["value"] for k, v in row["cells"].items()} for row in rows}


def test_it_is_compared():
    # It decides as noop does, and where schedulers cost nothing and nothing is merged
    # its figures are the same.
    both = figures(
        blklab.compare(JOB, machine="generic-8", schedulers=["noop", Fifo], repeats=2, nomerges=2)
    )
    assert both["noop"] == both["python-fifo"]


def test_its_other_hooks_are_called():
    called = set()

    class Tells(Fifo):
        name = "tells"

        def limit_depth(self, is_write, process):
            called.add("limit_depth")
            return 1 if is_write else None

        def timer(self, now_ns):
            called.add("timer")

        def completed_request(self, request, now_ns):
            assert now_ns >= request.start_ns
            called.add("completed_request")

        def dispatch_request(self, now_ns):
            self.next_timer_ns = now_ns + 10
            return super().dispatch_request(now_ns)

    result = blklab.compare(JOB, schedulers=[Fifo, Tells], repeats=1, assumed=0)
    assert called == {"completed_request", "limit_depth", "timer"}
    assert set(result.data["schedulers"]) == {"python-fifo", "tells"}


#: Neighbours come backwards, so that each can be merged before the one that came last, and
#: some I/O has another class than the rest.
BACKWARDS = """[global]
filename=/dev/x
direct=1
ioengine=libaio
iodepth=128
bs=4k
[back]
rw=write:-8k
offset=32m
size=8m
number_ios=400
[classed]
rw=randwrite
prioclass=1
prio=3
size=8m
number_ios=200
"""


class Sorted(Fifo):
    """Looks for neighbours by sector, in every way that the kernel asks for them."""

    name = "sorted"
    batch = blklab.Tunable(4, min=1, max=64, help="requests in a row")

    def __init__(self, queue):
        super().__init__(queue)
        self.called = seen
        self.live = set()

    def note(self, hook):
        self.called[hook] = self.called.get(hook, 0) + 1

    def depth_updated(self, queue):
        assert self.queue.nr_requests == queue.nr_requests
        self.note("depth_updated")

    def prepare_request(self, request, now_ns):
        self.live.add(request.number)
        self.note("prepare_request")

    def insert_requests(self, requests, now_ns):
        super().insert_requests(requests, now_ns)
        for request in requests:
            assert request.number in self.live
            self.called.setdefault("classes", set()).add(
                (request.priority_class, request.priority_level)
            )
            assert 0 <= request.cpu < self.queue.nr_cpus
            assert 0 <= request.hctx < self.queue.nr_hw_queues and request.cgroup == 0
        self.called["batch"] = self.batch

    def insert_at_head(self, requests, now_ns):
        self.note("insert_at_head")
        self.requests = {each.number: each for each in requests} | self.requests

    def request_merge(self, bio, now_ns):
        self.note("request_merge")
        for request in self.requests.values():
            if request.sector == bio.end and request.is_write == bio.is_write:
                return request
        return None

    def allow_merge(self, request, bio, now_ns):
        # The last request that was merged is asked about before anyone looks where it lies.
        self.note("allow_merge")
        return True

    def next_request(self, request):
        self.note("next_request")
        same = [r for r in self.requests.values() if r.is_write == request.is_write]
        return min((r for r in same if r.sector > request.sector), key=at, default=None)

    def former_request(self, request):
        self.note("former_request")
        same = [r for r in self.requests.values() if r.is_write == request.is_write]
        return max((r for r in same if r.sector < request.sector), key=at, default=None)

    def requests_merged(self, request, next, now_ns):
        self.note("requests_merged")
        super().requests_merged(request, next, now_ns)

    def finish_request(self, request, now_ns):
        self.live.remove(request.number)
        self.note("finish_request")


def at(request):
    return request.sector


#: What is noted of all runs of :class:`Sorted`.
seen = {}


def test_the_hooks_of_merging_and_of_a_request_s_life_are_called():
    seen.clear()
    result = blklab.compare(
        BACKWARDS,
        drive="hdd-7200",
        schedulers=[Fifo, Sorted],
        set=["sorted.batch=9"],
        nr_requests=128,
        repeats=1,
        assumed=0,
    )
    assert result.data["schedulers"][1].startswith("sorted")
    hooks = ("request_merge", "allow_merge", "former_request", "prepare_request")
    assert all(seen.get(hook, 0) > 0 for hook in hooks), seen
    assert seen["finish_request"] == seen["prepare_request"]
    assert seen["depth_updated"] > 0 and seen["batch"] == 9
    assert seen["classes"] == {("best-effort", 4), ("realtime", 3)}
    notes = [note for note in result.data["notes"] if note.startswith("sorted")]
    assert any("its CPU time is taken to be" in note for note in notes), result.data["notes"]
    with pytest.raises(blklab.UsageError, match="1 to 64"):
        blklab.compare(JOB, schedulers=[Sorted], set=["sorted.batch=65"])


def test_a_wrong_neighbour_is_told():
    class Wrong(Sorted):
        name = "wrong"

        def request_merge(self, bio, now_ns):
            return next(iter(self.requests.values()), None)

    with pytest.raises(RuntimeError, match="wrong: request_merge chose a request at sector"):
        blklab.run(BACKWARDS, drive="hdd-7200", scheduler=Wrong)


def test_what_is_lost_is_told():
    class Loses(Fifo):
        name = "loses"

        def dispatch_request(self, now_ns):
            return None

    with pytest.raises(RuntimeError, match=r"loses has [0-9]+ requests .* for 30 s"):
        blklab.run(JOB, scheduler=Loses)

    class LosesOne(Fifo):
        name = "loses-one"

        def insert_requests(self, requests, now_ns):
            super().insert_requests([each for each in requests if each.number != 7], now_ns)

    with pytest.raises(RuntimeError, match="loses-one has 1 requests"):
        blklab.run(JOB, scheduler=LosesOne)
    assert blklab.run(JOB, scheduler=Fifo).holds


def test_what_is_doubled_is_told():
    class Doubles(Fifo):
        name = "doubles"

        def dispatch_request(self, now_ns):
            return next(iter(self.requests.values()), None)

    with pytest.raises(RuntimeError, match=r"doubles dispatched .* which it does not have"):
        blklab.run(JOB, scheduler=Doubles)


def test_what_a_hook_raises_is_raised():
    class Raises(Fifo):
        name = "raises"

        def dispatch_request(self, now_ns):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        blklab.compare(JOB, schedulers=["none", Raises], repeats=2, assumed=0)

    class Unmade(Fifo):
        name = "unmade"

        def __init__(self, queue):
            raise ZeroDivisionError("unmade")

    with pytest.raises(ZeroDivisionError, match="unmade"):
        blklab.run(JOB, scheduler=Unmade)

    class Noop(Fifo):
        name = "noop"

    with pytest.raises(RuntimeError, match="give yours another name"):
        blklab.run(JOB, scheduler=Noop)


def test_a_failure_is_its_own_call_s():
    class Fails(Fifo):
        name = "fails"

        def insert_requests(self, requests, now_ns):
            raise ValueError("mine")

    def fails():
        with pytest.raises(ValueError, match="mine"):
            blklab.compare(JOB, schedulers=[Fails, "noop"], repeats=1, assumed=0)

    def works(schedulers):
        blklab.compare(JOB, schedulers=schedulers, repeats=1, assumed=0)

    with ThreadPoolExecutor() as threads:
        calls = [threads.submit(fails)]
        calls += [threads.submit(works, each) for each in (["noop", "none"], [Fifo, "noop"])]
        for call in calls:
            call.result()


def test_a_limit_of_0_is_none():
    class Unlimited(Fifo):
        name = "unlimited"

        def limit_depth(self, is_write, process):
            return 0

    both = figures(blklab.compare(JOB, schedulers=[Fifo, Unlimited], repeats=1, assumed=0))
    assert both["python-fifo"] == both["unlimited"]


def test_the_example_spreads_reads_as_ac_does():
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    from ac import AcIdea

    result = blklab.compare(JOB, schedulers=["noop", AcIdea], repeats=1, assumed=0)
    assert set(result.data["schedulers"]) == {"noop", "ac-idea"}
    queue = type("Queue", (), {"capacity_sectors": 800})()
    scheduler = AcIdea(queue)

    def request(number, sector, is_write):
        return type("R", (), {"number": number, "sector": sector, "is_write": is_write})()

    reads = [request(1, 0, False), request(2, 1, False), request(3, 700, False)]
    writes = [request(4, 100, True), request(5, 300, True), request(6, 101, True)]
    scheduler.insert_requests(reads + writes, 0)
    order = [scheduler.dispatch_request(0).number for _ in range(6)]
    # Reads of other groups first; after two of them a write, and its group's next one.
    assert order == [3, 1, 4, 2, 6, 5]
