"""Devices: what a TensorFlow program computes on, made from memory settings, each with its allocators.

::

    Settings --plan--> factories (CPU, GPU) --> devices --> DeviceManager
                                                  |
                          Device.allocator(AllocatorAttributes): heap of the GPU, host memory, pool for transfers

In: settings by TensorFlow's or JAX's names, GPUs of CUDA or simulated ones. Out: devices with heaps whose events can
be looked at, and tensors that own memory of a device. May import live, allocator, events; never the model or
pictures. CUDA is loaded when it is first needed.
"""

from bfcviz.devices.cpu import CPUDevice, GPUCompatibleCPUDevice
from bfcviz.devices.device import Device
from bfcviz.devices.factory import FACTORIES, DeviceFactory, FactoryRegistry, Making
from bfcviz.devices.gpu import GPUDevice
from bfcviz.devices.manager import DeviceManager
from bfcviz.devices.physical import PhysicalDevice, cuda_gpus, physical_gpus, simulate_gpus
from bfcviz.devices.session_steps import Journey
from bfcviz.devices.settings.gpu_options import GPUOptions, LogicalDeviceConfiguration
from bfcviz.devices.settings.jax import jax_settings
from bfcviz.devices.settings.settings import SettingIgnored, Settings
from bfcviz.devices.streams import Stream
from bfcviz.devices.tensors.memory_log import MemoryLog
from bfcviz.devices.tensors.tensor import Tensor

__all__ = [
    "FACTORIES",
    "CPUDevice",
    "Device",
    "DeviceFactory",
    "DeviceManager",
    "FactoryRegistry",
    "GPUCompatibleCPUDevice",
    "GPUDevice",
    "GPUOptions",
    "Journey",
    "LogicalDeviceConfiguration",
    "Making",
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
