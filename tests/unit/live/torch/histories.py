"""Histories of PyTorch's allocator: real snapshots, and entries and states made up."""

import pickle
from bisect import bisect_left

import numpy as np
import pytest
from heaps import model_of
from shared import SHARED

from bfcviz.events.log import EventLog
from bfcviz.formats.torch_segments import bytes_in_use
from bfcviz.live.torch.observe import Asked, DeviceHistory, MarkedHeap, Reading, carry_out

MIB = 1 << 20


class NoGlobals(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} in a snapshot")


class History:
    """A real snapshot: a device's trace, and the segments at its end and at any step before."""

    def __init__(self, name, device):
        path = SHARED / "real" / "snapshots" / f"{name}.pickle"
        if not path.exists():
            pytest.skip(f"no {path.name} beside this checkout")
        with path.open("rb") as file:
            found = NoGlobals(file).load()
        self.settings = found["allocator_settings"]
        self.trace = found["device_traces"][device]
        self.segments = [segment for segment in found["segments"] if segment["device"] == device]

    def start(self):
        """The segments before the first entry: what the trace did is undone."""
        used = {at: block for segment in self.segments for at, block in in_use(segment)}
        grants = {segment["address"]: segment for segment in self.segments}
        for entry in reversed(self.trace):
            if entry["action"] == "alloc":
                del used[entry["addr"]]
            elif entry["action"] == "free_completed":
                used[entry["addr"]] = {"size": entry["size"], "state": "active_allocated"}
            elif entry["action"] == "segment_alloc":
                del grants[entry["addr"]]
            elif entry["action"] == "segment_free":
                grants[entry["addr"]] = granted(entry)
            elif entry["action"] == "segment_map":
                grants.clear()  # these traces begin where nothing was mapped
        return with_blocks(grants, used)

    def states(self, sizes):
        """The segments before each entry, and at last at the end; `sizes`: of the blocks allocated, in their order."""
        start, sizes = self.start(), iter(sizes)
        used = {at: block for segment in start for at, block in in_use(segment)}
        grants = {segment["address"]: segment for segment in start}
        for entry in self.trace:
            yield lambda: with_blocks(grants, used)
            at, size, action = entry["addr"], entry["size"], entry["action"]
            if action == "alloc":
                used[at] = {"size": next(sizes), "requested_size": size, "state": "active_allocated"}
            elif action == "free_completed":
                del used[at]
            elif action == "segment_alloc":
                grants[at] = granted(entry)
            elif action == "segment_free":
                del grants[at]
        yield lambda: self.segments


def granted(entry):
    return {"address": entry["addr"], "total_size": entry["size"], "stream": entry["stream"]}


def in_use(segment):
    at = segment["address"]
    for block in segment["blocks"]:
        if block["state"] != "inactive":
            yield at, block
        at += block["size"]


def with_blocks(grants, used):
    """The segments of these grants, with the blocks in use, each at its address, and the gaps between them."""
    addresses = sorted(used)
    return [tiled(segment, used, addresses) for segment in grants.values()]


def tiled(segment, used, addresses):
    at, stop, blocks = segment["address"], segment["address"] + segment["total_size"], []
    for address in addresses[bisect_left(addresses, at) : bisect_left(addresses, stop)]:
        if address > at:
            blocks.append({"address": at, "size": address - at, "state": "inactive"})
        blocks.append({**used[address], "address": address})
        at = address + used[address]["size"]
    if at < stop:
        blocks.append({"address": at, "size": stop - at, "state": "inactive"})
    return {**segment, "blocks": blocks}


def observed(**options):
    return DeviceHistory(MarkedHeap(EventLog(1 << 16), name="torch cuda:0", unit=512), 0, 0, **options)


def chunks(heap):
    """What is in use: (address, size, requested)."""
    found = heap.moment().chunks
    found = found[found["in_use"]]
    return found[["address", "size", "requested_size"]].tolist()


def assert_model_agrees(heap):
    theirs, ours = model_of(heap).chunks(), heap.moment().chunks
    for mine, name in (("address", "address"), ("size", "size"), ("handle", "handle"), ("in_use", "in_use")):
        np.testing.assert_array_equal(ours[mine], theirs[name])


def blocks_of(segments):
    return sorted(
        (at, block["size"], block["requested_size"]) for segment in segments for at, block in in_use(segment)
    )


def mark(segments):
    """The entry that telling a state leaves in the history."""
    return {"action": "snapshot", "addr": 0, "size": bytes_in_use(segments), "stream": 0, "time_us": 1}


def read(taken, trace, segments, settings=None, **facts):
    """One reading; at any time, if none is given. Returns how many entries were carried out."""
    facts = {"asked": Asked(0, 1 << 62), **facts}
    carry_out([taken.read(Reading(trace, segments, settings or {}, **facts))])
    return taken.taken


def shown(*entries, blocks=(), device=0, devices=1):
    """A snapshot: entries, and one segment of 2 MiB whose blocks in use begin at its start."""
    at = 0x7000_0000
    made = [{"size": size, "requested_size": size, "state": "active_allocated"} for size in blocks]
    made.append({"size": 2 * MIB - sum(blocks), "requested_size": 0, "state": "inactive"})
    segment = {"device": device, "address": at, "total_size": 2 * MIB, "stream": 0, "blocks": made}
    traces = [[] for _ in range(devices)]
    traces[device] = list(entries)
    return {"segments": [segment], "device_traces": traces}


def entry(action, at=0, size=0, **more):
    return {"action": action, "addr": 0x7000_0000 + at, "size": size, "stream": 0, "time_us": 5, **more}
