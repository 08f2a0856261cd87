"""How long a log with the chunk lines of a large heap takes to open: `python tests/bench/log_open.py [CHUNKS]`."""

import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from unit.importers.bfc_log.log_maker import ERAS, SETTINGS, MadeChunk, MadeHeap, make_log

import bfcviz
from bfcviz.model.model import Model

SHOWN = [
    ("1.4", "plain"),
    ("2.14", "plain"),
    ("2.5 debug", "plain"),
    ("xla 2026", "plain"),
    ("2.14", "notebook"),
]


def large_heap(count):
    rng = random.Random(1)
    sizes = [256 * rng.randint(1, 4000) for _ in range(count)]
    chunks = [
        MadeChunk(size, size - 7, place % 3 != 1, f"op_{place % 97}") for place, size in enumerate(sizes)
    ]
    return MadeHeap([(0x7F0000000000, chunks)], 1 << 30)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    os.environ["BFCVIZ_CACHE"] = "off"  # a copy from an earlier run is opened faster
    heap = large_heap(count)
    print(f"| log of {count:,} chunks | MB | open, s (CPU) | MB/s |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "job.log")
        for era, where in SHOWN:
            path.write_text(SETTINGS[where](make_log(heap, ERAS[era])))
            megabytes = path.stat().st_size / 1e6
            begin, cpu = time.perf_counter(), time.process_time()
            trace = bfcviz.open(path)
            seconds, used = time.perf_counter() - begin, time.process_time() - cpu
            model = Model(trace)
            model.seek(len(trace))
            stats = model.stats()
            if stats.chunks_in_use + stats.chunks_free != count:
                raise SystemExit(f"{era}: {stats}")
            print(
                f"| {era}, {where} | {megabytes:.1f} | {seconds:.2f} ({used:.2f}) | {megabytes / seconds:.0f} |"
            )


if __name__ == "__main__":
    main()
