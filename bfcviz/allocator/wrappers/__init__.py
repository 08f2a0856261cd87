"""Allocators around an allocator: each adds one thing, all compose, and each is an allocator itself.

In: an allocator. Out: one with the same methods that also tracks (`tracking`), guards against overruns (`guard`),
fills with NaN (`nan_fill`), limits (`limit`), waits for memory (`retry`) or tells of thresholds (`alert`). Those that
touch memory do it through `access`. May import what its parent may. Frees go through the wrapper that allocated: what
goes to the heap past it is not seen.
"""

from bfcviz.allocator.wrappers.alert import AlertAllocator as AlertAllocator
from bfcviz.allocator.wrappers.alert import Crossing as Crossing
from bfcviz.allocator.wrappers.guard import GuardAllocator as GuardAllocator
from bfcviz.allocator.wrappers.guard_damage import Damage as Damage
from bfcviz.allocator.wrappers.limit import LimitAllocator as LimitAllocator
from bfcviz.allocator.wrappers.nan_fill import NaNFillAllocator as NaNFillAllocator
from bfcviz.allocator.wrappers.retry import RetryAllocator as RetryAllocator
from bfcviz.allocator.wrappers.tracking import Leak as Leak
from bfcviz.allocator.wrappers.tracking import TrackingAllocator as TrackingAllocator
from bfcviz.allocator.wrappers.wrapper import AllocatorWrapper as AllocatorWrapper
from bfcviz.thresholds import Threshold as Threshold
