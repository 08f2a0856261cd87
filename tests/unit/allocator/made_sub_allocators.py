"""Sub-allocators of GPU memory on a driver made up."""

from bfcviz.allocator.cuda import cuda_sub_allocator
from bfcviz.allocator.cuda_driver import Driver


def make(kind, library, **options):
    return cuda_sub_allocator(kind, driver=Driver(library), **options)
