"""Sub-allocators of GPU memory on a driver made up."""

from bfcviz.allocator.sub_allocators.cuda.driver import Driver
from bfcviz.allocator.sub_allocators.cuda.kinds_of_memory import cuda_sub_allocator


def make(kind, library, **options):
    return cuda_sub_allocator(kind, driver=Driver(library), **options)
