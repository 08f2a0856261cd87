"""Create a sub-allocator of GPU memory by the kind of memory.

============  =======================  ===========================================================================
memory        allocated by             properties
============  =======================  ===========================================================================
`device`      cuMemAlloc               returning a region waits for the whole device
`managed`     cuMemAllocManaged        may exceed the device: pages move between it and the host
`async`       cuMemAllocAsync          in the order of one stream, nothing waits; the driver keeps a pool of its own
`virtual`     cuMemCreate, cuMemMap    regions grow in place, so that free memory at their ends is joined
============  =======================  ===========================================================================
"""

from typing import Final, Literal

from bfcviz.allocator.sub_allocators.cuda.base import Budget as Budget
from bfcviz.allocator.sub_allocators.cuda.base import CudaSubAllocator as CudaSubAllocator
from bfcviz.allocator.sub_allocators.cuda.device_memory import (
    AsyncSubAllocator,
    DeviceSubAllocator,
    ManagedSubAllocator,
)
from bfcviz.allocator.sub_allocators.cuda.driver import Driver
from bfcviz.allocator.sub_allocators.cuda.virtual_memory import Sharing as Sharing
from bfcviz.allocator.sub_allocators.cuda.virtual_memory import VirtualSubAllocator
from bfcviz.errors import InvalidRequest

Memory = Literal["device", "managed", "async", "virtual"]
KINDS: Final = ("device", "managed", "async", "virtual")


def cuda_sub_allocator(
    memory: Memory,
    device: int = 0,
    stream: int = 0,
    *,
    budget: Budget | None = None,
    driver: Driver | None = None,
    sharing: Sharing | None = None,
) -> CudaSubAllocator:
    """A sub-allocator of a GPU, by the kind of memory.

    Args:
        memory: see the table above.
        device: number of the device.
        stream: handle of the stream that uses the memory: `async` memory is allocated in its order, and no region is
            returned while it captures a graph.
        budget: limit shared with other sub-allocators.
        driver: by default the machine's.
        sharing: for `virtual` memory: other devices, processes and network cards that may use it.

    Raises:
        InvalidRequest: the kind of memory is unknown, or cannot be shared this way.
        DeviceError: there is no driver or no such device.
    """
    if memory not in KINDS:
        raise InvalidRequest(f"memory {memory!r} is unknown; give one of {', '.join(map(repr, KINDS))}")
    if memory == "virtual":
        return VirtualSubAllocator(device, sharing=sharing, stream=stream, budget=budget, driver=driver)
    if sharing is not None:
        raise InvalidRequest(
            f"memory {memory!r} cannot be shared; `sharing` is an option of memory='virtual'"
        )
    kinds: dict[str, type[CudaSubAllocator]] = {
        "device": DeviceSubAllocator, "managed": ManagedSubAllocator, "async": AsyncSubAllocator,
    }  # fmt: skip
    return kinds[memory](device, stream=stream, budget=budget, driver=driver)
