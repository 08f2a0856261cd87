"""TensorFlow's devices, created from memory settings, each with its allocators.

::

    Settings --plan--> factories (CPU, GPU) --> devices --> DeviceManager
                                                  |
                          Device.allocator(AllocatorAttributes): GPU heap, host memory or transfer pool

In: settings by TensorFlow's or JAX's names, CUDA GPUs or simulated ones. Out: devices whose heaps record events, and
tensors that own device memory. May import live, allocator and events; never the model or figures. CUDA is loaded at
its first use.
"""

from bfcviz.devices.cpu import CPUDevice, GPUCompatibleCPUDevice
from bfcviz.devices.device import Device
from bfcviz.devices.factory import FACTORIES, CreationContext, DeviceFactory, FactoryRegistry
from bfcviz.devices.gpu import GPUDevice
from bfcviz.devices.manager import DeviceManager
from bfcviz.devices.physical import PhysicalDevice, cuda_gpus, physical_gpus, simulate_gpus
from bfcviz.devices.session_steps import Journey
from bfcviz.devices.settings.jax import jax_settings
from bfcviz.devices.settings.setting_values import GPUOptions, LogicalDeviceConfiguration
from bfcviz.devices.settings.tensorflow import SettingIgnored, Settings
from bfcviz.devices.streams import Stream
from bfcviz.devices.tensors.memory_log import MemoryLog
from bfcviz.devices.tensors.tensor import Tensor

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
