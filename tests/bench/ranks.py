"""What a folder with a thousand recordings of one job costs: who failed first, who grew.

    python tests/bench/ranks.py [--ranks 1000] [--distinct 10] [--events 1000000]

Each of `--distinct` recordings is a heap's random work of so many events, saved as `.bfc`; the others are copies under
names of their own. One rank leaks, and three fail, of which one is first. Read by two threads, and by two workers of
Dask where it is installed.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from concurrent.futures import Executor
from importlib.util import find_spec
from pathlib import Path

from recording import LABELS, churn

import bfcviz
from bfcviz.allocator.replay import Replay
from bfcviz.events.origin import Pool
from bfcviz.events.storage.recording import Recording
from bfcviz.model.trace_index import IndexBuilder

LIMIT = 8 << 30
LEAK = 2 << 30
FAILED = {17: 30, 401: 10, 802: 20}
"""Rank -> seconds of the calendar at which it failed."""

LEAKING = 333


def record(folder: Path, number: int, events: int, *, leaks: bool = False, fails: int | None = None) -> Path:
    """A recording of random work as a file; `fails`: at its end a request fails, so many seconds after the start."""
    details = {} if fails is None else {"started_ns": fails * 1_000_000_000}
    with Recording(folder / f"made{number}", [Pool("heap", LIMIT)], details=details) as recording:
        for label in range(1, LABELS):
            recording.labels.intern(f"layer_{label % 48}/op_{label}")
        source = bfcviz.SimulatedSubAllocator(capacity=1 << 40)
        options = bfcviz.AllocatorOptions(allow_growth=True)
        with bfcviz.BFCAllocator(source, LIMIT, options, log=recording.log, labels=recording.labels) as heap:
            work = churn(number)
            while heap.log.head < events:
                if leaks:
                    heap.allocate(LEAK, label="cache.append")
                Replay(heap.heap, work).run()
            if fails is not None:
                heap.try_allocate(LIMIT, label="logits")
            return recording.trace().save(folder / f"{number}.bfc", describe=IndexBuilder(1))


def make(folder: Path, ranks: int, distinct: int, events: int) -> int:
    """The files of the job; returns the bytes of one."""
    job = folder / "job"
    job.mkdir()
    usual = [record(folder, number, events) for number in range(distinct)]
    others = {LEAKING: record(folder, distinct, events, leaks=True)}
    for number, (rank, seconds) in enumerate(FAILED.items(), distinct + 1):
        others[rank] = record(folder, number, events, fails=seconds)
    for rank in range(ranks):
        os.link(others.get(rank, usual[rank % distinct]), job / f"rank{rank}.bfc")
    return usual[0].stat().st_size


def read(job: Path, executor: Executor | None) -> dict[str, object]:
    """Open the job and check what it says."""
    began, processor = time.perf_counter(), time.process_time()
    found = bfcviz.open_all(job, executor=executor)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    grown = found.holders[0]
    return {
        "ranks": len(found.known),
        "first failure": found.worst.name,
        "grew": f"{grown.rank}: {grown.name}",
        "seconds": round(seconds, 1),
        "processor seconds here": round(processor, 1),
        "MiB here": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def main() -> None:
    """Make the job, and print a line for each way to read it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--distinct", type=int, default=10)
    parser.add_argument("--events", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bfcviz-ranks-") as folder:
        size = make(Path(folder), given.ranks, given.distinct, given.events)
        print(f"{given.ranks:,} recordings of at least {given.events:,} events, {size / 1e6:.1f} MB each")
        job = Path(folder) / "job"
        print("two threads:", json.dumps(read(job, None)), flush=True)
        if find_spec("distributed"):
            from distributed import Client, LocalCluster  # noqa: PLC0415  an extra

            with (
                LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
                Client(cluster) as client,
            ):
                print("two workers of Dask:", json.dumps(read(job, client.get_executor())), flush=True)


if __name__ == "__main__":
    main()
