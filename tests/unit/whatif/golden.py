"""Golden traces of TensorFlow's own class as request streams, and what that class did."""

import json
from dataclasses import dataclass

import numpy as np
from conformance.compare import BASE, MODES
from shared import ROOT, SHARED

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.replay import Operations
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.trace import Trace
from bfcviz.whatif.requests import STREAM_ROW, RequestStream

IN_USE, POOL = 1, 9  # columns of the recorded stats


def golden_files(folder=ROOT / "tests" / "data" / "golden"):
    """Those without timestamps: a stream has no safe frontier."""
    return [path for path in sorted(folder.glob("*.npz")) if "timestamps" not in path.stem]


def shared_files():
    return golden_files(SHARED / "golden")


@dataclass
class Golden:
    """A golden trace: `kept` are its allocations and frees, which a stream has too."""

    arrays: dict
    options: dict
    stats_every: int

    @classmethod
    def of(cls, path):
        with np.load(path) as z:
            arrays = {key: z[key] for key in z.files}
        meta = json.loads(bytes(arrays["meta_json"]))
        return cls(arrays, meta["options"], meta["stats_every"])

    @property
    def kept(self):
        return self.arrays["op"] < 2

    @property
    def limit(self):
        return self.options["total_memory"]

    def heap_options(self):
        return {
            key: self.options[key] for key in ("allow_growth", "garbage_collection", "fragmentation_fraction")
        }

    def memory_options(self):
        return {
            "capacity": self.options["capacity"],
            "granule": max(self.options["granule"], 1),
            "supports_coalescing": self.options["coalesce"],
            "gap": self.options["gap_bytes"],
        }

    @property
    def mode(self):
        return MODES[self.options["addr_mode"]]

    def stream(self):
        """The stream of the arrays themselves."""
        kept, z = self.kept, self.arrays
        rows = np.zeros(np.count_nonzero(kept), STREAM_ROW)
        rows["kind"] = z["op"][kept]
        rows["block"] = np.unique(z["id"][kept], return_inverse=True)[1].reshape(-1)
        rows["size"] = np.where(rows["kind"] == 0, z["size"][kept], 0)
        return RequestStream(rows, Labels(), "golden")

    def recorded(self):
        """The trace of our own heap that serves it."""
        z = self.arrays
        memory = SimulatedSubAllocator(self.mode, **self.memory_options())
        options = AllocatorOptions(**self.heap_options(), honour_alignment=False)
        log = EventLog(-(-len(z["op"]) * 5 // 64) * 64)
        heap = BFCAllocator(memory, self.limit, options, log=log)
        heap.replay(Operations(z["op"], z["id"], z["size"], self.options["alignment"], z["aux"]))
        pool = Pool("bfc", self.limit, vars(options))
        return Trace.from_events(Reader(log, 0).read(log.head), heap.labels, Origin(pools=(pool,)))

    def with_events(self):
        """The operations that have an event: those of an empty request, or the free of a failed one, have none."""
        z = self.arrays
        return ((z["op"] == 0) & (z["size"] > 0)) | ((z["op"] == 1) & (z["offset"] >= 0))

    def differences(self, outcome, rows, operations):
        """Addresses and sizes of an outcome's rows that differ from those of as many operations."""
        address = outcome.address[rows]
        offset = np.where(address == 0, -1, (address - np.uint64(BASE)).astype(np.int64))
        wrong = offset != self.arrays["offset"][operations]
        wrong |= outcome.size[rows] != self.arrays["allocated_size"][operations].astype(np.uint64)
        return int(np.count_nonzero(wrong))

    def total_differences(self, outcome, rows_before):
        """Totals that differ from the recorded stats; `rows_before`: rows up to and including each operation."""
        at = np.arange(self.stats_every, len(self.arrays["op"]) + 1, self.stats_every) - 1
        last = rows_before[at].astype(np.int64) - 1
        stats = self.arrays["stats"][last >= 0]
        last = last[last >= 0]
        wrong = (outcome.in_use[last] != stats[:, IN_USE].astype(np.uint64)) | (
            outcome.reserved[last] != stats[:, POOL].astype(np.uint64)
        )
        return len(last), int(np.count_nonzero(wrong))
