"""Sub-allocators grant a heap's regions.

In: an alignment and a number of bytes. Out: an address, or a refusal. `base` has the contract, `simulated` grants
addresses without memory, `host` memory of this machine, `cuda` memory of a GPU. Imports bfcviz.errors and units,
nothing of the heap.
"""
