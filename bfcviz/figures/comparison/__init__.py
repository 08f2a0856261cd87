"""Pictures of several heaps at once: two recordings, one trace under several rules, many workers.

In: plain data such as names, arrays and `bfcviz.model.comparison`. Out: a `Picture`. May import what figures may
import; never the allocator.
"""
