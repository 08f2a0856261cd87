"""MemoryPlace: where a tensor's memory is, in host memory, on a GPU or nowhere."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Literal

from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.sub_allocators.cuda.base import CudaSubAllocator
from bfcviz.allocator.sub_allocators.host import HostSubAllocator
from bfcviz.devices.host_memory import PinnedSubAllocator
from bfcviz.devices.simulated_memory import SimulatedGpuSubAllocator
from bfcviz.devices.tensors.arrays import load_cupy


@dataclass(frozen=True)
class MemoryPlace:
    """Where memory is: on the host, on a GPU, or addresses without memory (`nowhere`)."""

    kind: Literal["host", "cuda", "nowhere"]
    device: int = 0

    def active(self) -> AbstractContextManager[Any]:
        """Make the GPU the current device while a `with` computes in its memory."""
        return load_cupy().cuda.Device(self.device) if self.kind == "cuda" else nullcontext()

    def __str__(self) -> str:
        return {"host": "host memory", "cuda": f"memory of GPU {self.device}"}.get(
            self.kind, "no real memory"
        )


HOST: Final = MemoryPlace("host")
NOWHERE: Final = MemoryPlace("nowhere")


def innermost(allocator: Any) -> Any:
    """The allocator inside all wrappers."""
    while (inner := getattr(allocator, "wrapped", None)) is not None:
        allocator = inner
    return allocator


def place_of(allocator: Allocator) -> MemoryPlace:
    """Where an allocator's memory is, from its sub-allocator; your own may declare `place = "host"`."""
    heap = innermost(allocator)
    source = getattr(heap, "sub_allocator", heap)
    if isinstance(source, HostSubAllocator | PinnedSubAllocator) or getattr(source, "place", None) == "host":
        return HOST
    if isinstance(source, SimulatedGpuSubAllocator):
        return HOST if source.memory.readable else NOWHERE
    return MemoryPlace("cuda", source.device) if isinstance(source, CudaSubAllocator) else NOWHERE
