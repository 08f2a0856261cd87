"""TensorFlow's devices, created from memory settings, each with its allocators; README.md has a picture and an example.

In: settings by TensorFlow's or JAX's names, CUDA GPUs or simulated ones. Out: devices whose heaps record events, and
tensors that own device memory. May import formats, live, events and the allocator's public face; never the model or
figures. CUDA is loaded at its first use.
"""

from bfcviz.devices.device import CPUDevice, Device, GPUCompatibleCPUDevice, GPUDevice, Stream
from bfcviz.devices.device_manager import (
    FACTORIES,
    CreationContext,
    DeviceFactory,
    DeviceManager,
    FactoryRegistry,
    Journey,
)
from bfcviz.devices.device_plan import LogicalDeviceConfiguration
from bfcviz.devices.gpu_options import GPUOptions
from bfcviz.devices.physical_devices import PhysicalDevice, cuda_gpus, physical_gpus, simulate_gpus
from bfcviz.devices.settings import SettingIgnored, Settings, jax_settings
from bfcviz.devices.tensors import MemoryLog, Tensor

__all__ = [
    "FACTORIES",
    "CPUDevice",
    "CreationContext",
    "Device",
    "DeviceFactory",
    "DeviceManager",
    "FactoryRegistry",
    "GPUCompatibleCPUDevice",
    "GPUDevice",
    "GPUOptions",
    "Journey",
    "LogicalDeviceConfiguration",
    "MemoryLog",
    "PhysicalDevice",
    "SettingIgnored",
    "Settings",
    "Stream",
    "Tensor",
    "cuda_gpus",
    "jax_settings",
    "physical_gpus",
    "simulate_gpus",
]
