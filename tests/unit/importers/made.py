"""Requests for tests: by hand, from a naive heap, or from the real profiles."""

import random
from functools import cache
from pathlib import Path

import numpy as np
from shared import SHARED
from unit.importers.naive_bfc import NaiveBFC
from unit.importers.profile_maker import PlaneMaker, memory

from bfcviz.importers.file_content import read_content
from bfcviz.importers.protobuf_wire import Wire
from bfcviz.importers.tensorflow.profile import collect_requests, read_space
from bfcviz.importers.tensorflow.reconstruct import REQUEST, RecordedRequestRows, RecordedRequests

REAL = SHARED / "real" / "tensorflow"


@cache
def recorded(name: str) -> RecordedRequests:
    """A real profile, read once in this process."""
    path: Path = REAL / f"{name}.xplane.pb.gz"
    found = collect_requests(read_space(Wire(path, read_content(path).data)), path)
    found.requests.flags.writeable = False
    return found


def requests_of(heap: NaiveBFC, count: int, seed: int, address: int = 1 << 40) -> RecordedRequestRows:
    """`count` random requests served by `heap`, as a profile would record them."""
    rng = random.Random(seed)
    requests: RecordedRequestRows = np.zeros(count, REQUEST)
    live: list[tuple[int, int]] = []
    for place in range(count):
        free = bool(live) and rng.random() < (0.3 if len(live) < 300 else 0.6)
        if free:
            at, asked = live.pop(rng.randrange(len(live)))
            size = heap.deallocate(at)
        else:
            asked = rng.choice((rng.randint(1, 2000), rng.randint(1, 200_000)))
            at, size = heap.allocate(asked, address + (heap.extensions + 1 << 30))
            live.append((at, asked))
        row = requests[place]
        row["free"], row["address"], row["requested"], row["size"] = free, at, asked, size
        row["bytes_in_use"] = heap.bytes_in_use
        row["bytes_available"] = heap.bytes_limit - heap.bytes_in_use
        row["fragmentation"] = float(f"{heap.fragmentation:.6g}")
        row["time"], row["step"], row["thread"] = place * 10, place // 50, 1 + place % 3
    return requests


def profile(count: int = 120) -> bytes:
    """Two threads of one heap, then a plane without memory events."""
    plane = PlaneMaker()
    threads: list[list[tuple[str, int, dict[str, object]]]] = [[], []]
    for place, row in enumerate(requests_of(NaiveBFC(1 << 30), count, 5)):
        stats = memory("GPU_0_bfc", int(row["address"]), int(row["size"]), int(row["bytes_in_use"]))
        stats |= {"requested_bytes": int(row["requested"]), "fragmentation": float(row["fragmentation"])}
        name = "MemoryDeallocation" if row["free"] else "MemoryAllocation"
        threads[place % 2].append(
            (name, place * 1000, stats | {"tf_op": f"op {place % 7}", "id": place // 40})
        )
    plane.line("main", threads[0])
    plane.line("worker", threads[1])
    other = PlaneMaker("Task Environment")
    other.line("t", [("Start", 0, {})])
    return plane.to_bytes() + other.to_bytes()
