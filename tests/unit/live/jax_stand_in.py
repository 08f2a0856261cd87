"""A stand-in for JAX: devices with totals, arrays with stacks, and the list of the live ones."""

import sys
import types
from dataclasses import dataclass, field


class Device:
    def __init__(self, number, platform="gpu", totals=None):
        self.id, self.platform, self.totals = number, platform, totals

    def memory_stats(self):
        if isinstance(self.totals, Exception):
            raise self.totals
        return self.totals

    def default_memory(self):
        return types.SimpleNamespace(kind="device")


@dataclass(frozen=True)
class Sharding:
    device_set: frozenset
    memory_kind: str | None = "device"


@dataclass(frozen=True)
class Stack:
    """A traceback: compared by what it holds, as JAX's; counts how often its frames are read."""

    places: tuple
    read: list = field(default_factory=list, compare=False)

    @property
    def frames(self):
        self.read.append(1)
        return [
            types.SimpleNamespace(function_name=function, file_name=file, line_num=line)
            for function, file, line in self.places
        ]


def stack(line, function="forward"):
    """The stack of an array that a line of train.py made through a library."""
    inner = ("bind", "/env/site-packages/jax/_src/core.py", 5)
    return Stack((inner, (function, "/home/me/train.py", line), ("<module>", "/home/me/train.py", 99)))


class Array:
    """An array; `size` is of each device."""

    def __init__(self, size, made_by=None, *devices, shape=(8,), memory="device"):
        self.size, self.traceback, self.shape, self.dtype = size, made_by, shape, "float32"
        self.sharding = Sharding(frozenset(devices), memory)
        self.deleted = False
        self.error = None

    def on_device_size_in_bytes(self):
        if self.deleted:
            raise RuntimeError("Array has been deleted")
        if self.error is not None:
            raise ValueError(self.error)
        return self.size * len(self.sharding.device_set)

    def is_deleted(self):
        return self.deleted

    def unsafe_buffer_pointer(self):
        raise AssertionError("it can wait for a computation, and make a donation fail")


def put_jax(patch, devices, arrays=None):
    """Make `import jax` return a JAX with these devices and live arrays; None: one that does not list them."""
    jax = types.ModuleType("jax")
    jax.local_devices = lambda: devices
    if arrays is not None:
        jax.live_arrays = lambda platform: [
            array
            for array in reversed(arrays)
            if not array.deleted and any(each.platform == platform for each in array.sharding.device_set)
        ]
    patch.setitem(sys.modules, "jax", jax)
