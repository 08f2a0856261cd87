"""Run the tests of the heap under sanitizers: `python tests/sanitizers.py`, or with `address` or `thread`.

Builds a copy of the source with GCC's AddressSanitizer, or with its ThreadSanitizer, and runs the tests of the compiled
parts and some rounds of the soak on it. Python itself is as it is: what is found is in our own code, or in a call from
there. Prints each report, and a table; "left out" are tests that were skipped, and those that a sanitizer changes. Exit
status: 1 if a test failed or a report was written.

`python tests/sanitizers.py thread --planted` shows that a race is found: in the copy the lock of a heap orders no other
memory. Exit status: 1 if there is no report.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from built_copy import build, copy_source, environment

MODULES = ("_heap", "_model", "_storage")
TESTS = (
    "tests/unit/allocator",
    "tests/unit/events",
    "tests/integration/allocator/test_finalizer.py",
    "tests/integration/allocator/test_hammer.py",
    "tests/integration/events/test_damaged_blocks.py",
    "tests/integration/events/test_hostile_parquet.py",
    "tests/integration/events/test_log_processes.py",
    "tests/integration/events/test_sigterm.py",
    "tests/properties/test_pool_state.py",
    "tests/conformance",
    "tests/contracts/test_allocator.py",
)
SOAK = """
import random, shutil, sys
from pathlib import Path
from integration.attacks import soak
soak.Growth.FIRST = 1 << 30  # a sanitizer keeps memory
for number in range(int(sys.argv[2])):
    if soak.WAYS[number % len(soak.WAYS)] in soak.IN_ONE_PROCESS:
        folder = Path(sys.argv[1], str(number), "case")
        folder.mkdir(parents=True)
        print(number, soak.case(number, random.Random(f"soak:0:{number}"), folder))
        shutil.rmtree(folder.parent)
"""
PLANTED = ("bfcviz/c/spinlock.h", "&l->locked, 1, __ATOMIC_ACQUIRE", "&l->locked, 1, __ATOMIC_RELAXED")
"""A race: the source, what stands there once, and what replaces it. The lock of a heap then orders no other memory."""

RACING = "tests/unit/allocator/test_threads.py::test_threads_through_c_pointers"
NOT_OURS = "race:libarrow\nrace:libparquet\n"
"""What ThreadSanitizer leaves out: Arrow is not compiled for it, so it does not see how Arrow's threads wait."""

OF_MEMORY = tuple(
    f"--deselect=tests/unit/allocator/test_page_ages.py::test_{name}"
    for name in ("a_large_free", "many_small_frees", "memory_in_use_again", "the_next_second")
)
"""Tests of how much memory is resident: ThreadSanitizer keeps its own for each byte that was used."""

OF_THREADS_IN_A_FORK = tuple(
    f"--deselect=tests/unit/events/test_thread_names.py::test_a_thread_{name}"
    for name in (
        "that_python_did_not_start_has_the_name_of_the_system",
        "without_a_name_has_none_also_after_the_process_was_renamed",
    )
)
"""Tests of a thread in a forked process: ThreadSanitizer ends it where a thread before the fork had the same id."""

REPORT = re.compile(r"^(?:WARNING: ThreadSanitizer|==\d+==ERROR: AddressSanitizer)", re.MULTILINE)


class Row(NamedTuple):
    """What a run came to; `left_out`: tests."""

    kind: str
    passed: int
    failed: int
    left_out: int
    rounds: int
    reports: int
    minutes: float


class Sanitizer(NamedTuple):
    """What it takes to build and run with a sanitizer.

    Attributes:
        flags: of the compiler and the linker.
        library: is loaded before Python.
        settings: of the run. Reports go to files in `place`: pytest shows what a test writes only if the test fails.
        left_out: options of pytest, for tests that cannot pass.
    """

    flags: str
    library: str
    settings: dict[str, str]
    left_out: tuple[str, ...] = ()


KINDS = {
    "address": Sanitizer(
        "-fsanitize=address -fno-omit-frame-pointer -g -O1",
        "libasan.so",
        {
            # Python keeps memory at its end; the log has a handler for SIGBUS of its own, which a test looks at.
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_sigbus=0:log_path={place}/report",
            "PYTHONMALLOC": "malloc",
        },
    ),
    "thread": Sanitizer(
        "-fsanitize=thread -fno-omit-frame-pointer -g -O1",
        "libtsan.so",
        {
            "TSAN_OPTIONS": "die_after_fork=0:handle_sigbus=0:log_path={place}/report:suppressions={place}/not_ours"
        },
        OF_MEMORY + OF_THREADS_IN_A_FORK,
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="default: both")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="these files instead")
    parser.add_argument("--soak", type=int, default=80, help="rounds of the soak (default: 80)")
    parser.add_argument("--planted", action="store_true", help="plant a race, which must be reported")
    asked = parser.parse_args()
    if asked.planted:
        reports = run("thread", [RACING], 0, PLANTED).reports
        print(f"{reports} reports of the planted race")
        return int(not reports)
    rows = [run(kind, asked.tests, asked.soak) for kind in asked.kinds or KINDS]
    print(
        "{:<10}{:>8}{:>8}{:>10}{:>13}{:>9}{:>9}".format(
            "sanitizer", "passed", "failed", "left out", "soak rounds", "reports", "minutes"
        )
    )
    for row in rows:
        print("{:<10}{:>8,}{:>8,}{:>10,}{:>13}{:>9}{:>9.1f}".format(*row))
    return int(any(row.failed or row.reports for row in rows))


def run(kind, tests, rounds, planted=None):
    """Build, test and soak; returns a row of the table. `planted`: an edit of the copy."""
    begun, what = time.monotonic(), KINDS[kind]
    with tempfile.TemporaryDirectory(prefix=f"bfcviz-{kind}-") as place:
        folder = copy_source(Path(place, "copy"))
        Path(place, "not_ours").write_text(NOT_OURS)
        if planted:
            name, old, new = planted
            text = (folder / name).read_text()
            assert text.count(old) == 1, f"{name} has changed: mend PLANTED"
            (folder / name).write_text(text.replace(old, new))
        build(folder, MODULES[:1] if planted else MODULES, what.flags)
        # Without libstdc++ an exception of a C++ library that is loaded later, such as Arrow's, ends the process.
        preloaded = f"{library(what.library)} {library('libstdc++.so.6')}"
        settings = {name: value.format(place=place) for name, value in what.settings.items()}
        settings["LD_PRELOAD"] = preloaded
        said = call(
            folder, settings, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", *what.left_out, *tests
        )
        soaked = call(folder, settings, "-c", SOAK, place, str(rounds))
        found = "".join(file.read_text(errors="replace") for file in Path(place).glob("report.*"))
    words = "passed|failed|error|skipped|deselected"
    counts = {word: int(count) for count, word in re.findall(rf"(\d+) ({words})", said)}
    done, reports = len(re.findall(r"^\d+ \w+$", soaked, re.MULTILINE)), len(REPORT.findall(found))
    failed = (
        counts.get("failed", 0)
        + counts.get("error", 0)
        + ("passed" not in counts)
        + ("exit status" in said + soaked)
    )
    if (failed or reports) and not planted:
        print(said, soaked, found, sep="\n")
    left_out = counts.get("skipped", 0) + counts.get("deselected", 0)
    minutes = (time.monotonic() - begun) / 60
    return Row(kind, counts.get("passed", 0), failed, left_out, done, reports, minutes)


def library(name):
    """The path of a sanitizer's library."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def call(folder, settings, *words):
    """What a Python says that imports the copy under a sanitizer."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment(folder, **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.stdout + ("" if done.returncode == 0 else f"\nexit status {done.returncode}\n")


if __name__ == "__main__":
    sys.exit(main())
