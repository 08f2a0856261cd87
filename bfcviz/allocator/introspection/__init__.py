"""Read a heap without changing it: its chunks, regions, bins and totals; its invariants; TensorFlow's memory map.

Each query locks the heap once. `queries` is compiled together with the heap.
"""
