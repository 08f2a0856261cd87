"""Read files of other programs as a `Trace`.

`file_format` detects the format of a file from its content. `open_trace` opens every format that bfcviz reads. Each
framework has a folder: `tensorflow` reads profiles. A profile holds only allocations and frees. `reconstruct` replays
them in our own heap, compares every recorded number with the replay, and reports the differences.

`import_cache` keeps a copy of what a long import gave, for the next time.

`rmm_log`, `vma`, `pprof` and `chrome_trace` read a format each.

May import: errors, units, periodic, events, and `formats`, where the rules of the frameworks' allocators stand; only
`tensorflow.replay` imports the allocator, and none imports `live`.
This package is loaded when the first file is opened.
"""
