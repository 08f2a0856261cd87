"""What the first picture of a long recording costs: time, memory, and how often each part of the code reads its events.

    python tests/bench/opening.py [--millions 1 10 20]

Each recording is opened twice, in a new process each: once for the figures of the table, once to count the readers.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path


def record(folder: Path, length: int) -> None:
    """Write a recording of `length` events of training steps, without marks."""
    from model_workload import training  # noqa: PLC0415  needed by the recording process only

    from bfcviz.events.origin import Pool  # noqa: PLC0415
    from bfcviz.events.storage.recording import Recording  # noqa: PLC0415

    events = training(length)
    with Recording(folder, [Pool("heap")]) as recording:
        for number in range(500):
            recording.labels.intern(f"layer_{number % 48}/op_{number}")
        with recording.events_path.open("wb") as file:
            events.tofile(file)


def show(folder: str, *, count: bool) -> None:
    """Open a recording, make an Inspector, and print what it cost."""
    begun, cpu = time.perf_counter(), time.process_time()
    import bfcviz  # noqa: PLC0415  its import is measured
    from bfcviz.events.trace import Trace  # noqa: PLC0415

    reads: Counter[str] = Counter()
    read = Trace.read

    def counted(trace, start, stop):
        frame = sys._getframe(1)
        while (
            frame.f_code.co_filename.endswith(("trace.py", "timelines.py", "timeline_parts.py"))
            and frame.f_back is not None
        ):
            frame = frame.f_back
        reads[f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"] += stop - start
        return read(trace, start, stop)

    if count:
        Trace.read = counted
    trace = bfcviz.open(folder)
    bfcviz.Inspector(trace)
    found = {
        "seconds": time.perf_counter() - begun,
        "cpu": time.process_time() - cpu,
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "passes": {name: number / len(trace) for name, number in reads.most_common()},
    }
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 10, 20])
    parser.add_argument("--show")
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    if options.show:
        show(options.show, count=options.count)
    passes: dict[str, float] = {}
    print("| events | first picture | processor time | peak memory | passes |\n|---:|---:|---:|---:|---:|")
    for millions in options.millions:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "run"
            record(folder, int(millions * 1e6))
            base = [sys.executable, __file__, "--show", str(folder)]
            cost, counts = (
                json.loads(subprocess.run([*base, *more], check=True, capture_output=True).stdout)
                for more in ([], ["--count"])
            )
        passes = counts["passes"]
        print(
            f"| {millions:g} M | {cost['seconds']:.2f} s | {cost['cpu']:.2f} s | {cost['mib']:,.0f} MiB "
            f"| {sum(passes.values()):.2f} |",
            flush=True,
        )
    print("\n| of the last one, read by | passes |\n|---|---:|")
    for name, number in passes.items():
        if number >= 0.005:
            print(f"| {name} | {number:.2f} |")


if __name__ == "__main__":
    main()
