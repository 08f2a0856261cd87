"""Foreign files in, `Trace` out.

`sniff` says what a file is by its content, `opening.open_trace` gives a Trace for every format, and there is
one file a format (`xplane`). A format that only knows requests is replayed through our own heap by
`reconstruct`, which checks every recorded number on the way and says what differs.

May import: errors, units, events, and of the allocator only what `reconstruct` replays through.
Nothing here is loaded before the first file is opened.
"""
