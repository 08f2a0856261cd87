"""Files of other programs -> `Trace`.

`open_trace` opens every format that bfcviz reads; `file_format` detects the format from the content. A format has a
file or a folder, which is imported when the first file of the format is opened.

May import: errors, units, periodic, events, and `formats`, where the rules of the frameworks' allocators stand; only
`tensorflow.reconstruct` imports the allocator, and none imports `live`.
"""
