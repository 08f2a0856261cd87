"""What a refresh of a growing heap's panels costs: `python tests/bench/refresh.py [--events 430000]`.

A refresh comes after 1,000 new operations (a free and an allocation each). "Again" forgets what the panels have read
before each refresh, "new" keeps it. Reading is all work on events; drawing makes plotly's traces from what was read.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from random import Random
from unittest.mock import patch

import bfcviz
from bfcviz.dashboard import panel_data
from bfcviz.dashboard.layouts import names_in
from bfcviz.events.trace import Trace
from bfcviz.figures import active_memory, view
from bfcviz.figures.address_time import AddressTimeReader
from bfcviz.figures.view_options import Look
from bfcviz.model import Model

OPERATIONS = 1000
CHUNKS = 2000
RUNS = 9

READING = (
    (Model, "seek"),
    (view, "measure_history"),
    (AddressTimeReader, "layout"),
    (AddressTimeReader, "lifetimes"),
    (AddressTimeReader, "image"),
    (active_memory.LifetimeReader, "__init__"),
    (active_memory.LifetimeReader, "read_to"),
)


class GrowingHeap:
    """A heap with some 2,000 chunks that records to a folder, and its trace."""

    def __init__(self, folder: str, events: int) -> None:
        self._random = Random(1)
        recording = bfcviz.Recording(folder)
        self._labels = [recording.labels.intern(f"layer_{number}/MatMul") for number in range(40)]
        self._heap = bfcviz.BFCAllocator(
            bfcviz.SimulatedSubAllocator(),
            1 << 44,
            bfcviz.AllocatorOptions(allow_growth=True),
            log=recording.log,
            labels=recording.labels,
        )
        self._held = [self._request() for _ in range(CHUNKS)]
        while recording.log.head < events:
            self.work()
        self.trace = recording.trace()

    def _request(self) -> int:
        size = int(self._random.lognormvariate(9, 2)) + 1
        return self._heap.allocate(size, label=self._random.choice(self._labels))

    def work(self) -> None:
        for _ in range(OPERATIONS):
            place = self._random.randrange(CHUNKS)
            self._heap.free(self._held[place])
            self._held[place] = self._request()


class Meter:
    """Counts the events that are read, and the processor time of everything that reads them."""

    def __init__(self) -> None:
        self.events, self.reading_ms, self._inside = 0, 0.0, False

    @contextmanager
    def measuring(self):
        with ExitStack() as stack:
            stack.enter_context(patch.object(Trace, "read", self._counted(Trace.read)))
            for place, name in READING:
                stack.enter_context(patch.object(place, name, self._timed(getattr(place, name))))
            yield

    def _counted(self, read):
        def counted(trace, start, stop):
            self.events += stop - start
            return read(trace, start, stop)

        return counted

    def _timed(self, function):
        def timed(*arguments, **options):
            if self._inside:
                return function(*arguments, **options)
            self._inside, begin = True, time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                self._inside = False
                self.reading_ms += (time.thread_time() - begin) * 1000

        return timed


def refresh(data, trace, look, names) -> tuple[int, float, float]:
    """Events read, and the ms of reading and of drawing."""
    meter, begin = Meter(), time.thread_time()
    with meter.measuring():
        data.model.seek(len(trace))
        data.panels(names, look)
    return meter.events, meter.reading_ms, (time.thread_time() - begin) * 1000 - meter.reading_ms


CASES = (
    ("active_memory", Look(colour="holder")),
    ("everything", Look(colour="label")),
    ("everything", Look(colour="label", axis="time")),
    ("everything", Look(colour="holder")),
)
"""Layouts (the first is the default one), and what their chunks are coloured by."""


def measure(heap: GrowingHeap, layout: str, look: Look, *, again: bool) -> tuple[int, ...]:
    """New events at a refresh; and of each refresh: events read, ms of reading, ms of drawing."""
    data, names = panel_data.PanelData(heap.trace, 0), names_in(layout)
    refresh(data, heap.trace, look, names)
    found, grew = [], 0
    for _ in range(RUNS):
        heap.work()
        grew = heap.trace.refresh()
        if again:
            for name in ("history", "whole history", "address_time", "active_memory"):
                data._cache.pop(name, None)
        found.append(refresh(data, heap.trace, look, names))
    return grew, *([*column] for column in zip(*found, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=430_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        heap = GrowingHeap(f"{folder}/recording", arguments.events)
        print(f"{len(heap.trace):,} events; processor time, median (worst) of {RUNS}\n")
        print(
            "| layout | coloured by | x axis | read | new events | events read | reading, ms | drawing, ms |"
        )
        print("|---|---|---|---|---:|---:|---:|---:|")
        for layout, look in CASES:
            for again in (True, False):
                grew, events, reading, drawing = measure(heap, layout, look, again=again)
                times = (f"{statistics.median(ms):.1f} ({max(ms):.1f})" for ms in (reading, drawing))
                what = "again" if again else "new"
                counts = (f"{grew:,}", f"{statistics.median(events):,.0f}")
                print(
                    f"| {' | '.join((layout, look.colour, look.axis, what, *counts, *times))} |", flush=True
                )


if __name__ == "__main__":
    main()
