"""The frameworks bfcviz can watch, as data: the one table behind `bfcviz.watch` and `bfcviz record`.

Enters: what a user asked for, in Python or on the command line. Leaves: a `Wish` (framework, way, options), checked
against the table, or a `LiveError` that names the framework, the way and the options there are. `table` has an entry
for each framework, `option_types` says what values an option takes, `wish` checks. It imports no framework and no
NumPy, which the command line must not load before it has blocked signals; `live.adapters` begins what is wished.
"""
