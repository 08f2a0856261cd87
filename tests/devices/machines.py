"""Machines to make devices on: simulated GPUs, and CUDA's driver as a stand-in."""

from fake_cuda import FakeCuda

import bfcviz
from bfcviz.allocator.sub_allocators.cuda.driver import Driver
from bfcviz.devices import Settings, cuda_gpus
from bfcviz.units import GiB


def simulated(sizes=(16 * GiB, 8 * GiB), *, environment=None, **options):
    """Settings of a machine with simulated GPUs, and those GPUs."""
    settings = Settings(bfcviz.simulate_gpus(sizes, **options), environment=environment or {})
    return settings, settings.list_physical_devices("GPU")


def fake(**options):
    """A machine with GPUs by the stand-in, its settings, and its driver's books."""
    library = FakeCuda(**{"memory": 16 * GiB, **options})
    settings = Settings(cuda_gpus(Driver(library)), environment={})
    return settings, settings.list_physical_devices("GPU"), library
