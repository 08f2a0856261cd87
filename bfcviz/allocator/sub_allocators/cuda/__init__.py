"""Sub-allocators for GPU memory, through CUDA's driver.

`choice` creates one by the kind of memory; `driver` calls the driver's functions through ctypes.
"""
