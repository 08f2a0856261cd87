"""Race the heap against TensorFlow's own BFC allocator on recorded operations, in one process, run by run.

usage: python tests/bench/race.py LIBORACLE.so OPS_FILES... [--runs 9] [--threads 2]

LIBORACLE.so is the real tsl::BFCAllocator of the tensorflow-cpu wheel behind a C face, built by the oracle's
build.sh; the operations are written by its gen_bench.py. Both are called through C pointers by the same loop
(race.c); TensorFlow records nothing, ours records every event into its log. Prints a Markdown table of the
median time for an allocate+free pair, and at the end the same pair called one by one from Python. With `--threads`
that many threads run the operations at once on one heap; the time is that of a pair of any of them. A short file is run
again and again, without a break.
"""

import argparse
import ctypes
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np

from bfcviz import AllocatorOptions, BFCAllocator, SimulatedSubAllocator

MAGIC = 0x314F43464F505342
PYTHON_PAIRS = 200_000
PAIRS = 400_000
"""Timed at least: some milliseconds would tell of the scheduler more than of a heap."""


def compile_loop(folder):
    library = Path(folder) / "race.so"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    subprocess.run(
        [*compiler, "-O2", "-fPIC", "-pthread", "-shared", Path(__file__).with_name("race.c"), "-o", library],
        check=True,
    )
    race = ctypes.CDLL(str(library)).race
    race.restype = ctypes.c_int64
    race.argtypes = [ctypes.c_void_p] * 4 + [
        *(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p)
    ]
    return race


class Operations:
    """One .ops file: a header of eight int64, then records of slot, kind, size."""

    def __init__(self, path, threads):
        self.name, self.threads = path.stem, threads
        header = np.fromfile(path, "<i8", 8)
        if header[0] != MAGIC:
            raise SystemExit(f"{path} is no operations file")
        _, self.before, self.timed, self.slots, memory, self.growth, self.pairs, _ = map(int, header)
        self.memory = memory * threads
        once = np.fromfile(path, np.dtype([("slot", "<i4"), ("kind", "<i4"), ("size", "<i8")]), offset=64)
        live: set[int] = set()
        for slot, kind in once[["slot", "kind"]].tolist():
            (live.discard if kind else live.add)(slot)
        frees = np.array([(slot, 1, 0) for slot in sorted(live)], once.dtype)
        more = max(0, -(-(PAIRS - self.pairs) // (len(once) // 2)))
        self.records = np.concatenate([once, *[frees, once] * more])
        self.timed = len(self.records) - self.before
        self.pairs = int((self.records["kind"][self.before :] == 0).sum())

    def run(self, race, functions, context):
        """Nanoseconds a pair of the timed part, on a fresh heap."""
        slots = (ctypes.c_void_p * (self.slots * self.threads))()
        failures = ctypes.c_int64(0)
        start = self.records.ctypes.data

        def go(address, count):
            return race(
                *(*functions, context, address, count, slots, self.slots, self.threads),
                ctypes.byref(failures),
            )

        warm = np.array([(0, 0, 256), (0, 1, 0)], self.records.dtype)
        go(
            warm.ctypes.data, 2
        )  # the first region; TensorFlow's class builds a table of 4 bytes a chunk for it
        go(start, self.before)
        nanoseconds = go(start + 16 * self.before, self.timed)
        if failures.value:
            raise SystemExit(f"{self.name}: {failures.value} requests failed")
        return nanoseconds / (self.pairs * self.threads)


class TensorFlow:
    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.bfc_new.restype = ctypes.c_void_p
        self.library.bfc_new.argtypes = [ctypes.c_uint64, ctypes.c_int]
        self.library.bfc_delete.argtypes = [ctypes.c_void_p]
        self.functions = [
            ctypes.cast(f, ctypes.c_void_p) for f in (self.library.bfc_alloc, self.library.bfc_free)
        ]

    def run(self, race, operations):
        heap = self.library.bfc_new(operations.memory, operations.growth)
        try:
            return operations.run(race, self.functions, heap)
        finally:
            self.library.bfc_delete(heap)


class Ours:
    records = 0  # that the last run wrote

    def run(self, race, operations):
        with BFCAllocator(
            SimulatedSubAllocator(), operations.memory, AllocatorOptions(allow_growth=bool(operations.growth))
        ) as heap:
            c = heap.c_functions()
            took = operations.run(race, (c.allocate, c.free), c.context)
            self.records = heap.log.head
            return took


def python_pair(runs):
    """Nanoseconds for allocate + free of 64 KiB, called one by one from Python."""
    times = []
    for _ in range(runs):
        with BFCAllocator(SimulatedSubAllocator(), 1 << 36) as heap:
            allocate, free = heap.allocate, heap.free
            start = time.perf_counter_ns()
            for _ in range(PYTHON_PAIRS):
                free(allocate(65536))
            times.append((time.perf_counter_ns() - start) / PYTHON_PAIRS)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("oracle", type=Path)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    theirs, ours = TensorFlow(args.oracle), Ours()
    pair = None
    print("| operations | TensorFlow, recording nothing | bfcviz, every event recorded | ratio |")
    print("|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        race = compile_loop(folder)
        for path in args.files:
            operations = Operations(path, args.threads)
            times = [
                (theirs.run(race, operations), ours.run(race, operations)) for _ in range(args.runs + 1)
            ][1:]
            a, b = (statistics.median(column) for column in zip(*times, strict=True))
            pair = (a, b) if operations.name == "pair_65536" else pair
            print(f"| {operations.name} | {a:.0f} ns | {b:.0f} ns | {b / a:.2f} |", flush=True)
    if args.threads > 1:
        return
    python = python_pair(args.runs)
    print(f"\nFrom Python, one by one (64 KiB): {python:.0f} ns a pair", end="")
    print(f" = {python / pair[0]:.1f} x TensorFlow's C time, {python / pair[1]:.1f} x ours" if pair else "")


if __name__ == "__main__":
    sys.exit(main())
