"""A stand-in for RMM 26.10 and its CUDA bindings, without CUDA: the names bfcviz uses, which behave as RMM's do."""

import enum
import sys
import threading
import types
from pathlib import Path


class Stream:
    def __init__(self, handle=0):
        self.handle = handle

    def __cuda_stream__(self):
        return (0, self.handle)

    def is_default(self):
        return self.handle == 0


class CallbackMemoryResource:
    """Errors pass through C++: of an allocation as MemoryError or RuntimeError; one of a free is found afterwards."""

    def __init__(self, allocate_func, deallocate_func):
        self.allocate_func, self.deallocate_func = allocate_func, deallocate_func

    def allocate(self, nbytes, stream=None):
        try:
            return self.allocate_func(nbytes, stream or Stream())
        except MemoryError as error:
            raise MemoryError(f"std::bad_alloc: out_of_memory: {error}") from None
        except BaseException as error:  # noqa: BLE001
            raise RuntimeError(str(error)) from None

    def deallocate(self, ptr, nbytes, stream=None):
        try:
            self.deallocate_func(ptr, nbytes, stream or Stream())
        except BaseException as error:
            raise SystemError("deallocate returned a result with an exception set") from error


class HostMemory:
    """The memory under a resource of its own: addresses from 2^40 up, each with its bytes."""

    def __init__(self, limit=1 << 29):
        self.limit, self.in_use, self.next, self.lock = limit, {}, 1 << 40, threading.Lock()
        self.resource = CallbackMemoryResource(self.allocate, self.free)

    def allocate(self, nbytes, stream):
        with self.lock:
            if sum(self.in_use.values()) + nbytes > self.limit:
                raise MemoryError(f"{nbytes} bytes were requested")
            address, self.next = self.next, self.next + -(-nbytes // 256) * 256
            self.in_use[address] = nbytes
            return address

    def free(self, address, nbytes, stream):
        with self.lock:
            assert self.in_use.pop(address) == nbytes


class LoggingResourceAdaptor:
    """Writes what RMM's does: `path` with the device's number in it, only when told to."""

    clock = "16:53:04.281065"

    def __init__(self, upstream, path, device):
        path = Path(path)
        self.path = path.with_name(f"{path.stem}.dev{device}{path.suffix}")
        self.upstream = upstream
        self.lines = ["Thread,Time,Action,Pointer,Size,Stream\n"]
        self.path.touch()

    def get_file_name(self):
        return str(self.path)

    def flush(self):
        with self.path.open("a") as file:
            file.write("".join(self.lines))
        self.lines.clear()

    def allocate(self, nbytes, stream=None):
        stream = stream or Stream()
        try:
            address = self.upstream.allocate(nbytes, stream)
        except MemoryError:
            self.note("allocate failure", "(nil)", nbytes, stream)
            raise
        self.note("allocate", hex(address), nbytes, stream)
        return address

    def deallocate(self, ptr, nbytes, stream=None):
        self.note("free", hex(ptr), nbytes, stream or Stream())
        self.upstream.deallocate(ptr, nbytes, stream)

    def note(self, action, pointer, nbytes, stream):
        handle = hex(stream.handle) if stream.handle else "0"
        self.lines.append(f"13395,{self.clock},{action},{pointer},{nbytes},{handle}\n")


Status = enum.IntEnum(
    "Status", {"cudaSuccess": 0, "cudaErrorInvalidResourceHandle": 400, "cudaErrorNotReady": 600}
)


class FakeRmm:
    """RMM's modules; `put` makes them what `import` finds.

    Attributes:
        resources: by device; `memory`: what lies under each.
        device: the current one.
        events: recorded ones, as [stream, whether it is done].
        gone: streams that are destroyed.
        contexts: devices that a context was created on, as making them current does.
    """

    def __init__(self, devices=1):
        self.devices, self.device, self.events, self.gone, self.waited = devices, 0, [], set(), []
        self.memory = [HostMemory() for _ in range(9)]
        self.resources = {device: memory.resource for device, memory in enumerate(self.memory)}
        self.mr = types.ModuleType("rmm.mr")
        self.mr.CallbackMemoryResource = CallbackMemoryResource
        self.mr.LoggingResourceAdaptor = lambda upstream, path: LoggingResourceAdaptor(
            upstream, path, self.device
        )
        self.mr.get_per_device_resource = self.resources.get
        self.mr.set_per_device_resource = self.resources.__setitem__
        self.mr.available_device_memory = lambda: (1 << 29, 1 << 30)
        self.gpu = types.ModuleType("rmm._cuda.gpu")
        self.gpu.getDeviceCount = self._count
        self.gpu.getDevice = lambda: self.device
        self.contexts = {0}
        self.gpu.setDevice = self._set_device
        self.runtime = types.ModuleType("cuda.bindings.runtime")
        self.runtime.cudaError_t = Status
        self.runtime.cudaEventDisableTiming = 2
        self.runtime.cudaStream_t = int
        self.runtime.cudaEventCreateWithFlags = lambda flags: (Status.cudaSuccess, [None, False])
        self.runtime.cudaEventRecord = self._record
        self.runtime.cudaEventQuery = lambda event: (
            Status.cudaSuccess if event[1] else Status.cudaErrorNotReady,
        )
        self.runtime.cudaEventSynchronize = self._synchronize
        self.runtime.cudaEventDestroy = lambda event: (Status.cudaSuccess,)
        self.runtime.cudaDeviceSynchronize = lambda: (self.waited.append(self.device), (Status.cudaSuccess,))[
            1
        ]

    def put(self, monkeypatch):
        rmm = types.ModuleType("rmm")
        found = {
            "rmm": rmm,
            "rmm.mr": self.mr,
            "rmm._cuda.gpu": self.gpu,
            "cuda.bindings.runtime": self.runtime,
        }
        for name, module in found.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setitem(globals(), "__name__", "rmm.fake")  # RMM's own code is in no stack

    def buffer(self, nbytes, stream=0, device=0):
        """What a DeviceBuffer does: it keeps the resource that made it."""
        resource = self.resources[device]
        return resource, resource.allocate(nbytes, Stream(stream)), nbytes

    @staticmethod
    def drop(buffer, stream=0):
        resource, address, nbytes = buffer
        resource.deallocate(address, nbytes, Stream(stream))

    def _count(self):
        if not self.devices:
            raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")
        return self.devices

    def _set_device(self, device):
        self.device = device
        self.contexts.add(device)

    def _record(self, event, stream):
        if stream in self.gone:
            return (Status.cudaErrorInvalidResourceHandle,)
        event[0] = stream
        self.events.append(event)
        return (Status.cudaSuccess,)

    def _synchronize(self, event):
        event[1] = True
        return (Status.cudaSuccess,)
