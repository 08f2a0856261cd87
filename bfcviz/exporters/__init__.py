"""Trace -> a file: of another tool (Parquet, CSV, Chrome and Perfetto, PyTorch's viewer), tables for SQL, or a report.

In: a `Trace`, or a range of its steps. Out: one file, written atomically, and sentences on what its format cannot hold.
May import figures, analysis, model, events and `importers.event_makers`.
"""
