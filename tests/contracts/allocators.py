"""Every allocator there is, each made new; later ones join the list."""

from heaps import GIB, MIB, new_heap

from bfcviz.allocator.sub_allocators.host import HostSubAllocator
from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator

ALLOCATORS = {
    "bfc": lambda: new_heap(64 * MIB),
    "bfc, growing": lambda: new_heap(64 * MIB, allow_growth=True),
    "bfc, growing and collecting": lambda: new_heap(64 * MIB, allow_growth=True, garbage_collection=True),
    "bfc, small waste": lambda: new_heap(64 * MIB, fragmentation_fraction=0.0001),
    "bfc, timestamps": lambda: new_heap(64 * MIB, timestamps=True),
    "bfc, as TensorFlow 2.21": lambda: new_heap(64 * MIB, honour_alignment=False),
    "bfc, descending": lambda: new_heap(64 * MIB, SimulatedSubAllocator("descending"), allow_growth=True),
    "bfc, gapped": lambda: new_heap(64 * MIB, SimulatedSubAllocator("gapped", gap=GIB), allow_growth=True),
    "bfc, coalescing": lambda: new_heap(
        64 * MIB, SimulatedSubAllocator(supports_coalescing=True), allow_growth=True
    ),
    "bfc, host memory": lambda: new_heap(64 * MIB, HostSubAllocator(), allow_growth=True),
}
