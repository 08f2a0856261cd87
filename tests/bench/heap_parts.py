"""Where the nanoseconds of an allocate+free pair go: lock, clock, records, and the rest, which is searching and tables.

usage: python tests/bench/heap_parts.py OPS_FILES... [--runs 9]

The operations are those of `race.py`. Lock, clock and records are measured alone, with the heap's own C headers
(heap_parts.c); the rest is what the pair takes beyond them. A heap that writes every event, each with its time, under a
lock, cannot be faster than the first three together: the last column is the pair over their sum.
"""

import argparse
import ctypes
import statistics
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from race import Operations, Ours, compile_loop

ROOT = Path(__file__).resolve().parents[2]

TIMES = 2_000_000


def compile_parts(folder: str) -> ctypes.CDLL:
    """The functions of heap_parts.c."""
    library = Path(folder) / "heap_parts.so"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    includes = [f"-I{ROOT}", f"-I{sysconfig.get_path('include')}"]
    source = Path(__file__).with_name("heap_parts.c")
    subprocess.run([*compiler, "-O3", "-fPIC", "-shared", *includes, source, "-o", library], check=True)
    found = ctypes.CDLL(str(library))
    for name in ("lock_ns", "timed_lock_ns", "record_ns"):
        function = getattr(found, name)
        function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_int64]
    return found


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=9)
    given = parser.parse_args()
    heap = Ours()
    print("| operations | pair | two locks | two times | records | searching and tables | pair / least |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        race, parts = compile_loop(folder), compile_parts(folder)
        for path in given.files:
            operations = Operations(path, 1)
            rows = []
            for _ in range(given.runs + 1):
                pair = heap.run(race, operations)
                lock = 2 * parts.lock_ns(TIMES) / TIMES
                clock = 2 * parts.timed_lock_ns(TIMES) / TIMES - lock
                a_pair = heap.records / (len(operations.records) / 2)
                rows.append((pair, lock, clock, a_pair * parts.record_ns(TIMES) / TIMES))
            pair, lock, clock, record = map(statistics.median, zip(*rows[1:], strict=True))
            rest, least = pair - lock - clock - record, lock + clock + record
            print(
                f"| {operations.name} | {pair:.0f} ns | {lock:.0f} | {clock:.0f} | {record:.0f} | {rest:.0f} "
                f"| {pair / least:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
