"""Who holds memory: chunks in use grouped by op, stack, shape, data type, thread, stream or phase.

::

    in use            12 MiB        a holder is a path; its `bytes` include those of the holders below it,
      layer_1         10 MiB        `own_bytes` do not; the first row is all memory in use
        MatMul         8 MiB
        Relu           2 MiB
      no label         2 MiB

In: a `Model` at a step, or a trace. Out: `Holders` (a step), `HolderLifetimes` (a range), `Leaks` and `Growth`; their
rows are NumPy arrays, and nothing is left out. May import what model may import.
"""
