"""A report of one file: why a request failed, who held the memory, how the heap came there, and what is known of it.

`content` makes plain data (`HeapReport`); `as_json`, `markdown` and `html` render it.
May import figures, model and events.
"""
