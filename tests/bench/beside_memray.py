"""A program recorded by memray and by `bfcviz record`, in turns: seconds, bytes on disk, seconds to open.

    python tests/bench/beside_memray.py [--rounds 3] [--allocations 5]

Python needs memray and bfcviz[widgets]. memray records what the whole process asks of malloc, with the Python stack;
bfcviz what NumPy asks for its arrays, each from its own heap, also with the stack. A record is an allocation or a free
of memray, and an event of bfcviz, which records splits and merges too. "Work" is the program's loop, "command" all from
its start to the recording at rest. Both compress (lz4, zstd); `--no-compress` is what memray writes while it records.
"""

import os

# NumPy reads these when it is imported.
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

if "--program" not in sys.argv:  # the program itself knows NumPy only
    import bfcviz
    from bfcviz.events.schema import Kind

HERE = Path(__file__).resolve()
LAYERS = (784, 512, 256, 10)
LIVE = 1000
MODES = ("alone", "memray", "memray --no-compress", "bfcviz")
MEMRAY = [sys.executable, "-m", "memray"]
BFCVIZ = [sys.executable, "-m", "bfcviz"]
RESULTS = ("work", "command", "processor", "records", "allocations", "most", "bytes")


def training(steps: int) -> None:
    """Train a small classifier, 32 rows a step, about 50 arrays of NumPy."""
    random = np.random.default_rng(1)
    weights = [random.normal(0, 0.05, pair).astype(np.float32) for pair in itertools.pairwise(LAYERS)]
    inputs = random.normal(size=(32, LAYERS[0])).astype(np.float32)
    wanted = np.eye(LAYERS[-1], dtype=np.float32)[random.integers(0, LAYERS[-1], 32)]
    for _ in range(steps):
        values = [inputs]
        for weight in weights:
            values.append(np.maximum(values[-1] @ weight, 0))
        odds = np.exp(values[-1] - values[-1].max(axis=1, keepdims=True))
        error = (odds / odds.sum(axis=1, keepdims=True) - wanted) / np.float32(len(inputs))
        for i in reversed(range(len(weights))):
            error = error * (values[i + 1] > 0)
            change, error = values[i].T @ error, error @ weights[i].T
            weights[i] -= np.float32(0.01) * change


def loop(count: int) -> None:
    """Make arrays of 1 to 64 KiB, each in place of one of `LIVE`; NumPy itself would keep smaller ones at hand."""
    random = np.random.default_rng(1)
    sizes, places = (
        random.integers(1025, 1 << 16, 1 << 16).tolist(),
        random.integers(0, LIVE, 1 << 16).tolist(),
    )
    alive = [np.empty(0, np.uint8)] * LIVE
    for turn in range(count >> 16):
        for size, place in zip(sizes, places, strict=True):
            alive[place] = np.empty(size + turn, np.uint8)


PROGRAMS: dict[str, Callable[[int], None]] = {"training": training, "loop": loop}


def used(path: Path) -> int:
    """Bytes that the recording takes on disk."""
    files = path.iterdir() if path.is_dir() else path.parent.glob(f"{path.name}*")
    return sum(file.stat().st_blocks * 512 for file in files)


def recorded(mode: str, path: Path, program: list[str]) -> dict[str, float]:
    """Run the program once; what it cost."""
    compress = ["--no-compress"] if mode.endswith("--no-compress") else []
    words = {
        "alone": [sys.executable, *program],
        "bfcviz": [*BFCVIZ, "record", "--numpy", "-o", str(path), "--", sys.executable, *program],
    }.get(mode, [*MEMRAY, "run", "-q", *compress, "-o", str(path), *program])
    began, most, before = time.perf_counter(), 0, os.times()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    while process.poll() is None:
        time.sleep(0.05)
        most = max(most, used(path))
    found = {"work": float(process.communicate()[0]), "command": time.perf_counter() - began, "most": most}
    assert process.returncode == 0, words
    after = os.times()
    found["processor"] = sum(after[2:4]) - sum(before[2:4])
    return found | {"bytes": used(path)}


def text_of(words: list[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def counted(mode: str, path: Path) -> dict[str, float]:
    """How many records and allocations the recording has."""
    if mode == "bfcviz":
        trace = bfcviz.open(path)
        made = sum(int(np.count_nonzero(block["kind"] == Kind.ALLOCATE)) for block in trace.blocks())
        return {"records": len(trace), "allocations": made}
    stats = path.with_suffix(".json")
    text_of([*MEMRAY, "stats", "--json", "-f", "-o", str(stats), str(path)])
    found = json.loads(stats.read_text())
    return {
        "records": found["metadata"]["total_allocations"],
        "allocations": found["total_num_allocations"],
    }


def opened(mode: str, path: Path) -> dict[str, float]:
    """Seconds of each way to open the recording, in a process of its own."""
    found, page = {}, str(path.with_suffix(".html"))
    ways = {
        "`memray stats`": [*MEMRAY, "stats", str(path)],
        "`memray flamegraph`": [*MEMRAY, "flamegraph", "-f", "-o", page, str(path)],
        "`bfcviz info`": [*BFCVIZ, "info", str(path)],
    }
    for way, words in ways.items():
        if mode in way:
            began = time.monotonic()
            text_of(words)
            found[way] = time.monotonic() - began
    if mode == "bfcviz":
        words = [
            sys.executable,
            str(HERE.with_name("recording.py")),
            "--show",
            str(path),
            str(time.monotonic()),
        ]
        found["the Inspector's first picture"] = json.loads(text_of(words))["first"]
    return found


def compare(name: str, amount: int, rounds: int) -> None:
    """Print the rows of one program."""
    program = [str(HERE), "--program", name, str(amount)]
    runs: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    opening: dict[str, list[float]] = {}
    for number in range(rounds):
        with tempfile.TemporaryDirectory(dir=os.environ.get("BFCVIZ_BENCH")) as place:
            for mode in MODES[number % 4 :] + MODES[: number % 4]:
                path = Path(place, mode.replace(" ", ""))
                runs[mode].append(recorded(mode, path, program))
                if mode != "alone":
                    runs[mode][-1] |= counted(mode, path)
                if mode in {"memray", "bfcviz"}:
                    for way, seconds in opened(mode, path).items():
                        opening.setdefault(way, []).append(seconds)
    for mode, each in runs.items():
        work, command, processor, records, allocations, most, size = (
            statistics.median(run.get(what, 0) for run in each) for what in RESULTS
        )
        cells = [f"{work:.1f}", f"{command:.1f}", f"{processor:.1f}"]
        if records:
            cells += [f"{records:,.0f}", f"{allocations:,.0f}", f"{size / 1e6:.1f}"]
            cells += [f"{amount / records:.1f}" for amount in (most, size)] + [f"{size / allocations:.1f}"]
        print(f"| {name} | {mode} | {' | '.join(cells + ['-'] * (9 - len(cells)))} |")
    print(
        "; ".join(f"{way} {statistics.median(seconds):.1f} s" for way, seconds in opening.items()), flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5000, help="of the training")
    parser.add_argument("--allocations", type=float, default=5, help="of the loop, in millions")
    parser.add_argument("--program", nargs=2)
    options = parser.parse_args()
    if options.program:
        began = time.perf_counter()
        PROGRAMS[options.program[0]](int(options.program[1]))
        print(time.perf_counter() - began)
        return
    if find_spec("memray") is None:
        print(f"skipped: {sys.executable} has no memray; pip install memray")
        return
    print(f"{options.rounds} rounds, medians; load {os.getloadavg()[0]:.0f}")
    for name, amount in (("training", options.steps), ("loop", int(options.allocations * 1e6))):
        print(
            "\n| program | recorded by | work, s | command, s | processor s | records | allocations | MB | "
            "most bytes a record meanwhile | bytes a record | bytes an allocation |\n|---|---|" + "---:|" * 9
        )
        compare(name, amount, options.rounds)


if __name__ == "__main__":
    main()
