"""How long a PyTorch snapshot takes to open and to show any step, and the memory for it, beside `pickle.load` alone.

python tests/bench/torch_snapshot.py [MILLIONS_OF_ENTRIES]

The snapshot is like real ones of training: a few hundred different stacks of 25 to 72 frames; each allocation has a
list of frames of its own, a request to free and its completion share one. Real files have 164 to 331 bytes an entry.
Each measurement is a process of its own.
"""

import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

UNIT = 512
BASE, SEGMENT = 0x7F00_0000_0000, 64 << 30
FILES = [f"/home/user/model/{name}.py" for name in ("train", "model", "attention", "loss")] + [
    f"/opt/conda/lib/python3.11/site-packages/torch/nn/modules/{name}.py"
    for name in ("module", "linear", "norm")
]


def stacks(rng):
    frames = [
        {"filename": rng.choice(FILES), "line": line, "name": f"function_{line % 97}"} for line in range(560)
    ]
    unknown = [
        {"filename": "??", "line": 0, "name": f"torch::autograd::function_{n}(at::Tensor)"} for n in range(60)
    ]
    return [
        rng.choices(unknown, k=rng.randint(8, 30)) + rng.choices(frames, k=rng.randint(17, 42))
        for _ in range(200)
    ]


def entries(rng):
    """Steps that allocate from the front of one segment, and free in the reverse order; the trace begins in a step."""
    known, time_us, live, at = stacks(rng), 1_700_000_000_000_000, [], BASE
    while True:
        goal = rng.randint(100, 400)
        while len(live) < goal:
            requested = rng.choice((4, 400, 5000, 70_000, 3 << 20)) * rng.randint(1, 60)
            size = -(-requested // UNIT) * UNIT
            live.append((at, size, requested))
            time_us += rng.randint(2, 40)
            yield {"action": "alloc", "addr": at, "size": requested, "stream": 0, "time_us": time_us,
                   "frames": list(rng.choice(known))}, live  # fmt: skip
            at += size
        while len(live) > rng.randint(0, 60):
            at, size, requested = live.pop()
            frames, time_us = list(rng.choice(known)), time_us + rng.randint(2, 40)
            for action in ("free_requested", "free_completed"):
                yield {"action": action, "addr": at, "size": requested, "stream": 0, "time_us": time_us,
                       "frames": frames}, live  # fmt: skip


def segment(live, frames):
    blocks = [
        {
            "address": at,
            "size": size,
            "requested_size": requested,
            "state": "active_allocated",
            "frames": frames,
        }
        for at, size, requested in live
    ]
    used = sum(size for _, size, _ in live)
    blocks.append(
        {
            "address": BASE + used,
            "size": SEGMENT - used,
            "requested_size": 0,
            "state": "inactive",
            "frames": [],
        }
    )
    return {
        "device": 0, "address": BASE, "total_size": SEGMENT, "allocated_size": used, "active_size": used,
        "requested_size": sum(requested for *_, requested in live), "stream": 0, "segment_type": "large",
        "segment_pool_id": (0, 0), "is_expandable": True, "blocks": blocks,
    }  # fmt: skip


def write(path, count):
    rng, trace, skip = random.Random(1), [], 1000
    live = []
    for number, (entry, now) in enumerate(entries(rng)):
        live = now
        if number >= skip:
            trace.append(entry)
        # End between two requests: a block that waits for its free would be another state.
        if len(trace) >= count and entry["action"] != "free_requested":
            break
    snapshot = {
        "segments": [segment(live, trace[0]["frames"])], "device_traces": [trace],
        "allocator_settings": {"expandable_segments": True}, "external_annotations": [],
    }  # fmt: skip
    with path.open("wb") as file:
        pickle.dump(snapshot, file, protocol=4)


def peak_mib():
    """The most memory so far. (ru_maxrss also counts the process that started this one.)"""
    (line,) = [
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    ]
    return int(line.split()[1]) / 1024


def measured_pickle(path):
    before, begin, cpu = peak_mib(), time.perf_counter(), time.process_time()
    with Path(path).open("rb") as file:
        found = pickle.load(file)  # noqa: S301  of our own making
    took, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {"s": took, "cpu": cpu, "MiB": peak_mib() - before, "entries": len(found["device_traces"][0])}


def measured_open(path):
    import bfcviz  # noqa: PLC0415  not a part of the other measurement
    from bfcviz.importers.torch import snapshot  # noqa: F401, PLC0415
    from bfcviz.model.model import Model  # noqa: PLC0415

    before, begin, cpu = peak_mib(), time.perf_counter(), time.process_time()
    trace = bfcviz.open(path)
    took, cpu = time.perf_counter() - begin, time.process_time() - cpu
    opened, model, times = peak_mib() - before, Model(trace), []
    for step in np.random.default_rng(1).integers(0, len(trace), 200).tolist():
        begin = time.perf_counter()
        model.seek(step)
        model.stats()
        times.append((time.perf_counter() - begin) * 1e3)
    return {
        "s": took, "cpu": cpu, "MiB": opened, "MiB at last": peak_mib() - before, "events": len(trace),
        "status": str(trace.origin.status), "first": times[0], "median": float(np.median(times)), "worst": max(times),
    }  # fmt: skip


def in_its_own_process(what, path):
    command = [sys.executable, __file__, what, str(path)]
    no_copy = {**os.environ, "BFCVIZ_CACHE": "off"}  # of the same snapshot, from an earlier run
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=no_copy)
    return json.loads(done.stdout)


def main():
    if len(sys.argv) > 2:
        print(json.dumps({"pickle": measured_pickle, "open": measured_open}[sys.argv[1]](sys.argv[2])))
        return
    count = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "snapshot.pickle")
        write(path, count)
        size = path.stat().st_size / (1 << 20)
        loaded, opened = in_its_own_process("pickle", path), in_its_own_process("open", path)
    print(
        f"{loaded['entries']:,} entries, {size:,.0f} MiB ({size * (1 << 20) / loaded['entries']:.0f} bytes an entry)"
    )
    print("\n| | s | s of CPU time | MiB | times the file |\n|---|---:|---:|---:|---:|")
    for name, row in (("pickle.load", loaded), ("bfcviz.open", opened)):
        numbers = f"{row['s']:.1f} | {row['cpu']:.1f} | {row['MiB']:,.0f} | {row['MiB'] / size:.1f}"
        print(f"| `{name}` | {numbers} |")
    print(f"\n{opened['events']:,} events, {opened['status']}")
    times = f"first {opened['first']:.1f}, median {opened['median']:.2f}, worst {opened['worst']:.1f}"
    print(f"ms to a random step: {times}; {opened['MiB at last'] / size:.1f} times the file at last")


if __name__ == "__main__":
    main()
