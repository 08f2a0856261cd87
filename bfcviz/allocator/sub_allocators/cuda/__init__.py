"""Sub-allocators for GPU memory, through CUDA's driver.

`choice` makes one by its name; `driver` holds the driver's functions, found by ctypes when first used.
"""
