"""Events: what happened to the heaps, in order. Every other package works on them.

In: 64-byte event records from a heap (`log`), labels (`label_table`), or whole arrays from an importer.
Out: a `Trace` (`trace`), in memory, in a folder that may still grow, or in one Parquet file.
May import: errors, units and native of this package; numpy and pyarrow. It does not interpret the events: keyframes
are bytes. One exception: `ledger` derives events from another allocator's allocations and frees.
"""

from bfcviz import _compiled

_compiled.load("bfcviz._heap")
