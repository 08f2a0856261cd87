"""The frameworks that bfcviz can watch, as data: the one table behind `bfcviz.watch` and `bfcviz record`.

Enters: a user's request, in Python or on the command line. Leaves: a `WatchRequest` (framework, way, options), checked
against the table, or a `LiveError` that names the framework and its ways or options. `supported_frameworks` has one
entry per framework, `option_types` defines the values of options, `watch_request` checks. It imports no framework and
no NumPy, which the command line must not load before it has blocked signals; `live.providers` begins a `WatchRequest`.
"""
