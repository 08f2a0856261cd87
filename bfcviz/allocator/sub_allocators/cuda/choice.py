"""Regions of a GPU's memory, from CUDA's driver: plain, managed, from the driver's own pool, or mapped piece by piece.

============  =======================  ===========================================================================
memory        taken by                 what that means
============  =======================  ===========================================================================
`device`      cuMemAlloc               giving a region back waits for the whole device
`managed`     cuMemAllocManaged        may exceed the device: pages move between it and the host
`async`       cuMemAllocAsync          in the order of one stream, nothing waits; the driver keeps a pool of its own
`virtual`     cuMemCreate, cuMemMap    regions that grow in place, so that free memory at their ends is joined
============  =======================  ===========================================================================
"""

from typing import Final, Literal

from bfcviz.allocator.sub_allocators.cuda.device_memory import (
    AsyncSubAllocator,
    DeviceSubAllocator,
    ManagedSubAllocator,
)
from bfcviz.allocator.sub_allocators.cuda.base import Budget as Budget
from bfcviz.allocator.sub_allocators.cuda.base import CudaSubAllocator as CudaSubAllocator
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
        device: its number.
        stream: handle of the stream that will use the memory: `async` memory comes in its order, and while it
            captures a graph no region goes back.
        budget: what may be granted, with others.
        driver: by default the machine's.
        sharing: of `virtual` memory: other devices, processes and network cards that may use it.

    Raises:
        InvalidRequest: there is no such memory, or it cannot be shared this way.
        DeviceError: there is no driver or no such device.
    """
    if memory not in KINDS:
        raise InvalidRequest(f"memory {memory!r} was asked for; there are {', '.join(map(repr, KINDS))}")
    if memory == "virtual":
        return VirtualSubAllocator(device, sharing=sharing, stream=stream, budget=budget, driver=driver)
    if sharing is not None:
        raise InvalidRequest(f"sharing was given for memory {memory!r}; it is an option of memory='virtual'")
    kinds: dict[str, type[CudaSubAllocator]] = {
        "device": DeviceSubAllocator, "managed": ManagedSubAllocator, "async": AsyncSubAllocator,
    }  # fmt: skip
    return kinds[memory](device, stream=stream, budget=budget, driver=driver)
