"""Replay golden traces of TensorFlow's own BFC allocator through ours, and compare everything.

usage: python tests/conformance/compare.py DIR_OR_FILES... [--max-operations N]

Compared: every address, allocated size and allocation id; every recorded row of stats, the private counters
included; every call of the sub-allocator; every memory map, handles and all; the final regions. The last line is
`N traces, M operations, D differences`; the exit status is 0 only if D is 0.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.replay import Operations, Replay
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.native import NONE

UNSET = -(2**63)
BASE = 0x7F0000000000
MODES = ("contiguous", "gapped", "descending")
SHOWN = 5  # differences printed for each trace


class Trace:
    """One golden file and our heap replaying it."""

    def __init__(self, path, max_operations=None):
        self.z = np.load(path)
        self.meta = json.loads(bytes(self.z["meta_json"]))
        self.count = min(len(self.z["op"]), max_operations or len(self.z["op"]))
        self.differences = []
        options = self.meta["options"]
        self.timing = options["timing"]
        self.source = SimulatedSubAllocator(
            MODES[options["addr_mode"]],
            capacity=options["capacity"],
            granule=max(options["granule"], 1),
            supports_coalescing=options["coalesce"],
            gap=options["gap_bytes"],
            journal=True,
        )
        self.allocator = BFCAllocator(
            self.source,
            options["total_memory"],
            AllocatorOptions(
                allow_growth=options["allow_growth"],
                garbage_collection=options["garbage_collection"],
                fragmentation_fraction=options["fragmentation_fraction"],
                timestamps=options["timing"],
                honour_alignment=False,
            ),
        )
        z, n = self.z, self.count
        self.replay = Replay(
            self.allocator.heap,
            Operations(z["op"][:n], z["id"][:n], z["size"][:n], options["alignment"], z["aux"][:n]),
        )

    def compare(self, what, ours, theirs):
        """Note where two arrays (or rows of them) differ."""
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        if ours.shape != theirs.shape:
            self.differences.append(f"{what}: shape {ours.shape}, TensorFlow {theirs.shape}")
            return
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        for place in np.argwhere(~same):
            where = tuple(place)
            self.differences.append(
                f"{what}{list(map(int, where))}: {ours[where]}, TensorFlow {theirs[where]}"
            )

    def run(self):
        """Go through the trace, stopping wherever stats or a memory map were recorded."""
        every = self.meta["stats_every"]
        maps = {int(at): j for j, at in enumerate(self.z["map_at"])}
        stops = {*range(every, self.count + 1, every), *maps, self.count}
        rows = []
        for stop in sorted(s for s in stops if s <= self.count):
            self.replay.run(stop)
            if stop % every == 0:
                rows.append(self.stat_row())
            if stop in maps:
                self.compare_map(maps[stop])
        self.compare("stats", rows, self.z["stats"][: self.count // every])
        self.compare_results()
        self.compare_calls()
        if self.count == len(self.z["op"]):
            self.compare("final_stats", self.stat_row(), self.z["final_stats"])
            regions = self.allocator.regions()
            self.compare("regions", np.c_[regions["address"] - BASE, regions["size"]], self.z["regions"])
        self.allocator.check_invariants()

    def compare_results(self):
        result, n = self.replay.result, self.count
        offsets = np.where(result.address == 0, -1, (result.address - np.uint64(BASE)).astype(np.int64))
        self.compare("offset", offsets, self.z["offset"][:n])
        self.compare("allocated_size", result.allocated_size, self.z["allocated_size"][:n])
        self.compare("allocation_id", result.allocation_id, self.z["allocation_id"][:n])

    def stat_row(self):
        s, i = self.allocator.stats(), self.allocator.internals()
        return [
            s.num_allocs, s.bytes_in_use, s.peak_bytes_in_use, s.largest_alloc_size, s.bytes_limit,
            0, 0, UNSET, 0,  # not maintained by TensorFlow's class
            s.pool_bytes, s.peak_pool_bytes, i.next_region_bytes, i.chunk_handles, i.next_allocation_id, s.regions,
            i.held_chunks,
        ]  # fmt: skip

    def compare_calls(self):
        ours = [
            [c.operation, c.kind, c.alignment, *((c.received, 0) if c.kind == 2 else (c.requested, c.received)),
             UNSET if c.kind == 1 else c.address - BASE]
            for c in self.source.calls
        ]  # fmt: skip
        theirs = self.z["events"]
        self.compare("events", np.array(ours).reshape(-1, 6), theirs[theirs[:, 0] < self.count])

    def compare_map(self, j):
        chunks = self.allocator.memory_map()
        regions = self.allocator.regions()
        index = {int(slot): i for i, slot in enumerate(regions["slot"])}
        ours = np.zeros((len(chunks), 12), np.int64)
        ours[:, 0] = chunks["address"] - BASE
        ours[:, 1], ours[:, 2], ours[:, 3] = chunks["size"], chunks["requested_size"], chunks["bin"]
        ours[:, 4], ours[:, 6], ours[:, 8] = chunks["in_use"], chunks["handle"], chunks["freed_at_count"]
        ours[:, 5] = np.where(chunks["in_use"] | (not self.timing), 0, chunks["freed_at_count"])
        ours[:, 7] = np.where(chunks["in_use"], chunks["allocation_id"].astype(np.int64), -1)
        for column, name in ((9, "prev"), (10, "next")):
            ours[:, column] = np.where(chunks[name] == NONE, -1, chunks[name].astype(np.int64))
        ours[:, 11] = [index[int(slot)] for slot in chunks["region"]]
        start, stop = self.z["map_start"][j : j + 2]
        self.compare(f"map {j}", ours, self.z["map_rows"][start:stop])
        self.compare(f"bins {j}", bin_summary(chunks), self.z["map_bins"][j])
        s = self.allocator.stats()
        fragmentation = (s.free_bytes - s.largest_free_chunk) / s.free_bytes if s.free_bytes else np.nan
        self.compare(
            f"fragmentation {j}", np.float32(fragmentation), np.float32(self.z["map_fragmentation"][j])
        )


def bin_summary(chunks):
    """TensorFlow's BinSummary: 21 rows of bytes in use, bytes, chunks in use, chunks; by size of the chunk."""
    bins = np.minimum(np.floor(np.log2(np.maximum(chunks["size"] // 256, 1))), 20).astype(int)
    table = np.zeros((21, 4), np.int64)
    np.add.at(
        table,
        bins,
        np.c_[chunks["size"] * chunks["in_use"], chunks["size"], chunks["in_use"], chunks["size"] > 0],
    )
    return table


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--max-operations", type=int, help="only the first N operations of each trace")
    args = parser.parse_args(arguments)
    files = [f for p in args.paths for f in (sorted(p.glob("*.npz")) if p.is_dir() else [p])]
    operations = differences = 0
    for file in files:
        trace = Trace(file, args.max_operations)
        trace.run()
        operations += trace.count
        differences += len(trace.differences)
        print(f"{file.stem}: {trace.count} operations, {len(trace.differences)} differences")
        for line in trace.differences[:SHOWN]:
            print(f"  {line}")
    print(f"{len(files)} traces, {operations} operations, {differences} differences")
    return 0 if files and differences == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
