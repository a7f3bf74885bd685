"""AC's idea (K. Okumura, Tokyo Institute of Technology, 2016) as a scheduler in Python.

The drive's address space is cut into one group a channel. Reads are spread: each group
that has reads is served before one of them is again. Writes are gathered: the group
served last is drained first, and reads keep away from it while others have any.
"""

from collections import OrderedDict

import blklab

CHANNELS = 8
WRITES_STARVED = 2


class AcIdea(blklab.Scheduler):
    name = "ac-idea"

    def __init__(self, queue: blklab.Queue) -> None:
        super().__init__(queue)
        self.group_sectors = max(1, queue.capacity_sectors // CHANNELS)
        Group = OrderedDict[int, blklab.Request]
        self.reads = [Group() for _ in range(CHANNELS)]
        self.writes = [Group() for _ in range(CHANNELS)]
        self.last_read, self.writing, self.reads_in_a_row = 0, 0, 0

    def insert_requests(self, requests: list[blklab.Request], now_ns: int) -> None:
        for request in requests:
            request.group = min(request.sector // self.group_sectors, CHANNELS - 1)
            groups = self.writes if request.is_write else self.reads
            groups[request.group][request.number] = request

    def requests_merged(self, request: object, next: blklab.Request, now_ns: int) -> None:
        del (self.writes if next.is_write else self.reads)[next.group][next.number]

    def next_read(self) -> int | None:
        order = [(self.last_read + 1 + step) % CHANNELS for step in range(CHANNELS)]
        busy = [group for group in order if self.reads[group]]
        apart = [group for group in busy if group != self.writing or not self.writes[group]]
        return next(iter(apart or busy), None)

    def next_write(self) -> int | None:
        order = [(self.writing + step) % CHANNELS for step in range(CHANNELS)]
        return next((group for group in order if self.writes[group]), None)

    def dispatch_request(self, now_ns: int) -> blklab.Request | None:
        read, write = self.next_read(), self.next_write()
        starved = write is not None and self.reads_in_a_row >= WRITES_STARVED
        if read is not None and not starved:
            self.last_read, self.reads_in_a_row = read, self.reads_in_a_row + 1
            return self.reads[read].popitem(last=False)[1]
        if write is None:
            return None
        self.writing, self.reads_in_a_row = write, 0
        return self.writes[write].popitem(last=False)[1]


if __name__ == "__main__":
    schedulers = ("none", "mq-deadline", "ac", AcIdea)
    print(blklab.compare("thesis/randrw-90-10", drive="mx100-256", schedulers=schedulers))
