"""Sub-allocators of GPU memory on a driver made up."""

from bfcviz.allocator.sub_allocators.cuda.choice import cuda_sub_allocator
from bfcviz.allocator.sub_allocators.cuda.driver import Driver


def make(kind, library, **options):
    return cuda_sub_allocator(kind, driver=Driver(library), **options)
