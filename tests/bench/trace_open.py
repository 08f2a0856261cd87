"""How long a trace takes to open and to show a place in it, as a folder and packed.

python tests/bench/trace_open.py [MILLIONS_OF_EVENTS]
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from unit.events.fabricate import fabricate, fabricate_labels

from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import BLOCK, Trace

READS = 60


def timed(call, *args):
    begin = time.perf_counter()
    result = call(*args)
    return (time.perf_counter() - begin) * 1e3, result


def report(path, size):
    opened, trace = timed(Trace.open, path)
    print(f"{path.name:16} {size / 1e6:8.1f} MB {size / len(trace):6.1f} bytes/event, {trace.origin.status}")
    print(f"  open             {opened:8.2f} ms, {len(trace)} events")
    print(f"  labels           {timed(lambda: len(trace.labels))[0]:8.2f} ms")
    for what, length in (("one event", 1), (f"{BLOCK:,} events", BLOCK)):
        # Block by block over the trace, so that most reads meet nothing decoded before.
        steps = np.random.default_rng(1).integers(0, len(trace) - length, READS)
        times = np.array([timed(trace.read, step, step + length)[0] for step in steps.tolist()])
        print(
            f"  read {what:14} {np.median(times):5.2f} ms median, "
            f"{np.percentile(times, 95):5.2f} ms 95 %, {times.max():5.2f} ms worst"
        )
    print(f"  all, by blocks   {timed(lambda: sum(len(b) for b in trace.blocks()))[0]:8.2f} ms")
    return trace


def main():
    count = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 10_000_000
    with tempfile.TemporaryDirectory() as place:
        folder, packed = Path(place, "recorded"), Path(place, "packed.parquet")
        with Recording(folder, labels=fabricate_labels()) as recording:
            fabricate(count).tofile(recording.events_path)
        trace = report(folder, sum(file.stat().st_size for file in folder.iterdir()))
        print(f"pack               {timed(trace.save, packed)[0]:8.2f} ms")
        del trace
        report(packed, packed.stat().st_size)


if __name__ == "__main__":
    main()
