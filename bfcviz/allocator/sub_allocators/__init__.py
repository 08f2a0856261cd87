"""Where a heap's regions come from.

In: an alignment and a number of bytes. Out: an address, or a refusal. `base` has the contract, `simulated` pretends
(address space only), `host` takes memory of this machine, `cuda` of a GPU. Imports bfcviz.errors and units, nothing
of the heap.
"""
