"""Pictures that compare: two recordings with each other, or one trace under several rules.

In: plain data, such as a `bfcviz.model.comparison` of two recordings. Out: a `Picture`. May import what figures may
import; never the allocator.
"""
