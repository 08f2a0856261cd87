"""What bench/dashboard.py needs beside a page: traces to show, and what a change costs in the kernel."""

import json
import time
from contextlib import contextmanager
from random import Random

import bfcviz

GIVEN_BACK = 3  # every third chunk: as many holes as a busy heap has
ODD = 7919  # a prime: steps that are far apart, and none twice


def record(folder, chunks: int, events: int) -> None:
    """Records a simulated heap: filled to about `chunks` chunks, then requests that come and go until `events`."""
    random = Random(1)
    with bfcviz.Recording(folder) as recording:
        labels = [recording.labels.intern(f"layer_{number}/MatMul") for number in range(40)]
        options = bfcviz.AllocatorOptions(allow_growth=True)
        heap = bfcviz.BFCAllocator(
            bfcviz.SimulatedSubAllocator(), 1 << 44, options, log=recording.log, labels=recording.labels
        )

        def request() -> int:
            return heap.allocate(int(random.lognormvariate(9, 2)) + 1, label=random.choice(labels))

        held = [request() for _ in range(chunks)]
        for place in range(0, chunks, GIVEN_BACK):
            heap.free(held[place])
        kept = [address for place, address in enumerate(held) if place % GIVEN_BACK]
        while recording.log.head < events:
            place = random.randrange(len(kept))
            heap.free(kept[place])
            kept[place] = request()


def far_steps(last: int, filled: int, runs: int) -> list[int]:
    """Steps of a full heap, each far from the one before."""
    return [filled + (last - filled) * (ODD * run % 101) // 101 for run in range(1, runs + 1)]


@contextmanager
def counted():
    """Counts the bytes of all messages to the page: `json` and `binary` of the dict that is given."""
    from ipykernel.comm.comm import BaseComm  # noqa: PLC0415  there is none outside a kernel

    sizes = {"json": 0, "binary": 0, "messages": 0}
    publish = BaseComm.publish_msg
    sent = []

    def listen(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        sent.append((data, buffers))
        publish(self, msg_type, data=data, metadata=metadata, buffers=buffers, **keys)

    BaseComm.publish_msg = listen
    try:
        yield sizes
    finally:
        BaseComm.publish_msg = publish
    for data, buffers in sent:
        sizes["json"] += len(json.dumps(data, default=str))
        sizes["binary"] += sum(memoryview(each).nbytes for each in buffers or ())
    sizes["messages"] = len(sent)


def cost(inspector, changes: list[dict]) -> dict[str, list[float]]:
    """Makes each change of traits: ms it took until its last message was sent, of all threads' CPU too, and kB."""
    found = {"wall": [], "cpu": [], "kB": [], "messages": []}
    for change in changes:
        with counted() as sizes:
            wall, cpu = time.perf_counter(), time.process_time()
            for name, value in change.items():
                inspector.set_trait(name, value)
            found["wall"].append((time.perf_counter() - wall) * 1000)
            found["cpu"].append((time.process_time() - cpu) * 1000)
        found["kB"].append((sizes["json"] + sizes["binary"]) / 1000)
        found["messages"].append(sizes["messages"])
    return found


def steps_cost(inspector, steps: list[int]) -> dict[str, list[float]]:
    """What it costs to go to each of `steps`."""
    return cost(inspector, [{"step": step} for step in steps])


def zooms_cost(inspector, runs: int) -> dict[str, list[float]]:
    """What it costs to zoom the region map to a quarter of each side, here and there."""
    from dataclasses import replace  # noqa: PLC0415  beside its only use

    from bfcviz.dashboard.panel_data import whole  # noqa: PLC0415
    from bfcviz.figures.view_options import MapWindow  # noqa: PLC0415

    panel = inspector.view.panels["region_map"]
    width, rows = panel.xaxis["range"][1] * panel.x_unit, panel.yaxis["range"][0]
    found: dict[str, list[float]] = {}
    for run in range(runs):
        left, top = width * 0.05 * (run % 8), rows * 0.05 * (run % 9)
        window = MapWindow(bytes=(left, left + width / 4), rows=(top, top + rows / 4))
        for name, values in cost(inspector, [{"look": replace(inspector.look, map_window=window)}]).items():
            found.setdefault(name, []).extend(values)
        inspector.look = whole(inspector.look)
    return found
