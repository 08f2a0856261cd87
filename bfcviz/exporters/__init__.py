"""Trace -> a file of another tool: Parquet, CSV, counters for Chrome and Perfetto, a snapshot for PyTorch's viewer.

In: a `Trace`, or a range of its steps. Out: one file, written atomically, and sentences on what its format cannot hold.
May import model, events and `importers.heap_state`.
"""
