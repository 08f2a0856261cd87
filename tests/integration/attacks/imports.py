"""Attack: SIGINT while bfcviz is imported, or its command runs. It ends by KeyboardInterrupt, or goes on.

bfcviz is not imported here before a child does it: the import is what is interrupted.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet  # noqa: F401  so that it is bfcviz that is interrupted, not Arrow
from integration.attacks.children import ended, expect, shared_memory, start, wait_for

WAYS = ("import", "info", "import", "command")


def case(number, rng, _folder):
    assert "bfcviz" not in sys.modules, "the import that is to be interrupted has been done"
    way = WAYS[number % len(WAYS)]
    if way == "command":
        command(rng)
    else:
        once(rng, use_package if way == "import" else info)
    return way


@cache
def span(work):
    """Seconds that it takes when it is not interrupted."""
    begun = time.monotonic()
    expect(ended(start(work)), 0)
    return time.monotonic() - begun


def once(rng, work):
    shared, longest = shared_memory(), span(work)

    def child():
        shared.begun = 1
        try:
            work()
        except KeyboardInterrupt:
            with contextlib.suppress(ImportError):  # an interrupted module may refuse to be imported again
                work()  # as a user of a notebook does
            raise

    pid = start(child)
    wait_for(pid, lambda: shared.begun)
    time.sleep(rng.random() * longest)
    if not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        os.kill(pid, signal.SIGINT)
    expect(ended(pid), 0, 130)


def use_package():
    import bfcviz  # noqa: PLC0415

    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 1 << 20)
    heap.free(heap.allocate(100, label="x"))
    heap.check_invariants()
    with bfcviz.serve_numpy("1MiB"), bfcviz.label("y"):
        np.ones(100)
    assert bfcviz.Model
    assert bfcviz.open


def info():
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  of a process that ends soon
    from bfcviz.cli import main  # noqa: PLC0415

    sample = Path(__file__).parents[3] / "bfcviz" / "samples" / "lstm.xplane.pb.gz"
    status = main(["info", str(sample)])
    if status == 130:
        raise KeyboardInterrupt
    assert status == 0


def command(rng):
    """The command as a process of its own, with Python's start and end."""
    words = [
        sys.executable,
        "-m",
        "bfcviz",
        *rng.choice((["info", "--help"], ["info", "gone"], ["--version"])),
    ]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(rng.random() * command_span())
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=20)[1]
    ends = {0, 130, -signal.SIGINT} | ({1} if "KeyboardInterrupt" in said or "gone" in words else set())
    assert process.returncode in ends, f"exit status {process.returncode}\n{said}"


@cache
def command_span():
    begun = time.monotonic()
    subprocess.run([sys.executable, "-m", "bfcviz", "info", "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begun
