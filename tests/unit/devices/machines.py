"""Machines for device tests: simulated GPUs, and a fake of CUDA's driver."""

from fake_cuda import FakeCuda

import bfcviz
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.devices import Settings, cuda_gpus
from bfcviz.units import GiB


def simulated(sizes=(16 * GiB, 8 * GiB), *, environment=None, **options):
    """Settings of a machine with simulated GPUs, and those GPUs."""
    settings = Settings(bfcviz.simulate_gpus(sizes, **options), environment=environment or {})
    return settings, settings.list_physical_devices("GPU")


def fake(**options):
    """Settings and GPUs of a machine with the fake driver, and the fake itself."""
    library = FakeCuda(**{"memory": 16 * GiB, **options})
    settings = Settings(cuda_gpus(Driver(library)), environment={})
    return settings, settings.list_physical_devices("GPU"), library


def new_settings(sizes=(16 * GiB, 8 * GiB), *, environment=None, **options):
    """Settings of a machine with simulated GPUs; no variables of the environment by default."""
    return Settings(bfcviz.simulate_gpus(sizes, **options), environment=environment or {})
