"""What happened to the heaps, in order: the one language all rooms speak.

Enters: 64-byte event records from a heap (`log`), labels (`labels`), or whole arrays from an importer.
Leaves: a `Trace` (`trace`), in memory, in a folder that may still grow, or in one Parquet file.
May import: errors, units and native of this package; numpy and pyarrow. It draws no conclusion about the
heap: keyframes are bytes to it. Only `ledger` does: it derives events from another allocator's allocations and frees.
"""

from bfcviz import _compiled

_compiled.load("bfcviz._heap")
