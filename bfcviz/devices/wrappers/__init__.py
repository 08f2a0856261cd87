"""Allocators that wrap an allocator: each adds one feature, all can be combined, and each is an allocator itself.

In: an allocator. Out: one with the same methods that also tracks (`tracking`), guards against overruns (`guard`),
fills with NaN (`memory_access`), limits, waits for memory or reports thresholds (`limits`). Those that read or write
memory do so through `memory_access`. May import what its parent may. Free through the wrapper that
allocated: it does not see requests that go directly to the heap.
"""

from bfcviz.devices.wrappers.guard import Damage as Damage
from bfcviz.devices.wrappers.guard import GuardAllocator as GuardAllocator
from bfcviz.devices.wrappers.limits import AlertAllocator as AlertAllocator
from bfcviz.devices.wrappers.limits import Crossing as Crossing
from bfcviz.devices.wrappers.limits import LimitAllocator as LimitAllocator
from bfcviz.devices.wrappers.limits import RetryAllocator as RetryAllocator
from bfcviz.devices.wrappers.memory_access import NaNFillAllocator as NaNFillAllocator
from bfcviz.devices.wrappers.tracking import Leak as Leak
from bfcviz.devices.wrappers.tracking import TrackingAllocator as TrackingAllocator
from bfcviz.devices.wrappers.wrapper import AllocatorWrapper as AllocatorWrapper
from bfcviz.thresholds import Threshold as Threshold
