"""Small request streams for sweeps, and policies that misbehave. Processes of a sweep import this module."""

import os
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

import bfcviz
from bfcviz.events.label_table import Labels
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream

KiB, MiB = 1 << 10, 1 << 20


def random_stream(seed, requests=600, name=None):
    """Allocations of 1 KiB to 1 MiB, at most 20 at once, in random order."""
    random = np.random.default_rng(seed)
    rows, live, made = np.zeros(requests, STREAM_ROW), [], 0
    for at in range(requests):
        rows[at]["event"] = at
        if live and (len(live) == 20 or random.random() < 0.4):
            rows[at]["kind"], rows[at]["block"] = FREE, live.pop(random.integers(len(live)))
        else:
            rows[at]["kind"], rows[at]["block"] = ALLOCATE, made
            rows[at]["size"] = int(2 ** random.uniform(10, 20))
            live.append(made)
            made += 1
    return RequestStream(rows, Labels(), name or f"random_{seed}")


def numbers(results):
    """Everything but the seconds."""
    return [replace(point, seconds=None) for point in results.points]


@dataclass(frozen=True)
class KillsItsProcess:
    """Ends its process at every trace, or only as long as `once` does not exist."""

    once: str = ""
    options: dict = field(default_factory=dict, hash=False)
    name: str = "kills_its_process"

    def serve(self, stream, limit=None, *, record=False, stop_at_failure=False):
        if not self.once or not Path(self.once).exists():
            if self.once:
                Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return policy_of("first_fit").serve(stream, limit, record=record, stop_at_failure=stop_at_failure)


@dataclass(frozen=True)
class Raises:
    """Raises an error that no policy should."""

    options: dict = field(default_factory=dict, hash=False)
    name: str = "raises"

    def serve(self, stream, limit=None, *, record=False, stop_at_failure=False):
        raise ZeroDivisionError("of its own")


def record(folder, size=MiB):
    """A recording with two allocations and a free."""
    with bfcviz.Recording(folder, [bfcviz.Pool("heap", 8 * MiB)]) as recording:
        heap = bfcviz.BFCAllocator(
            bfcviz.SimulatedSubAllocator(), "8MiB", log=recording.log, labels=recording.labels
        )
        heap.free(heap.allocate(size, label="a"))
        heap.allocate(300, label="b")
    return folder
