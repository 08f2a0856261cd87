"""Machines to make devices on: simulated GPUs, and CUDA's driver as a stand-in."""
# ruff: noqa: N802  the driver's names

from fake_cuda import FakeCuda

import bfcviz
from bfcviz.allocator.sub_allocators.cuda_driver import Driver
from bfcviz.devices import Settings, cuda_gpus
from bfcviz.units import GiB


def simulated(sizes=(16 * GiB, 8 * GiB), *, environment=None, **options):
    """Settings of a machine with simulated GPUs, and those GPUs."""
    settings = Settings(bfcviz.simulate_gpus(sizes, **options), environment=environment or {})
    return settings, settings.list_physical_devices("GPU")


class FakeGpus(FakeCuda):
    """The stand-in, with what devices ask of the driver besides memory of the GPU."""

    def __init__(self, *arguments, capability=(9, 0), **options):
        super().__init__(*arguments, **options)
        self.capability = capability
        self.streams = set()
        self.pinned = {}
        self.synchronized = []

    def _cuDeviceGetName(self, out, size, device):
        out[: len(b"Fake GPU\0")] = b"Fake GPU\0"

    def _cuDeviceGetAttribute(self, out, attribute, device):
        out.value = self.capability[attribute - 75]

    def _cuMemGetInfo_v2(self, free, total):
        assert self.contexts
        free.value, total.value = self.memory - self.used, self.memory

    def _cuStreamCreate(self, out, flags):
        assert self.contexts
        assert flags == 1  # does not wait for the default stream
        out.value = 0x500 + len(self.calls)
        self.streams.add(out.value)

    def _cuStreamSynchronize(self, stream):
        assert stream in self.streams
        self.synchronized.append(stream)

    def _cuStreamDestroy_v2(self, stream):
        self.streams.remove(stream)

    def _cuMemHostAlloc(self, out, size, flags):
        assert flags == 1  # for all contexts
        out.value = self.place(size, 4096)
        self.pinned[out.value] = size

    def _cuMemFreeHost(self, where):
        del self.pinned[where]


def fake(**options):
    """A machine with GPUs by the stand-in, its settings, and its driver's books."""
    library = FakeGpus(**{"memory": 16 * GiB, **options})
    settings = Settings(cuda_gpus(Driver(library)), environment={})
    return settings, settings.list_physical_devices("GPU"), library
