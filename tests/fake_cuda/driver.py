"""FakeCuda: the driver's functions by name, its start, its devices, and a stack of contexts for each thread."""
# ruff: noqa: N802  the driver's names

import os
import threading
from ctypes import c_char_p

from fake_cuda.memory import Memory
from fake_cuda.status import Status
from fake_cuda.streams import Streams

# Functions that work in a context: without a current one they answer INVALID_CONTEXT.
_IN_CONTEXT = ("cuMemAlloc", "cuMemFree", "cuMemHost", "cuMemGetInfo", "cuMemcpy", "cuStream", "cuEvent", "cuCtxSync",
               "cuCtxGetDevice")  # fmt: skip
# "Potentially unsafe" ones: a capture in global mode, or this thread's own in thread-local mode, forbids them.
_UNSAFE = {
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemAllocManaged",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuEventQuery",
}
_ALWAYS = {"cuGetErrorName", "cuGetErrorString"}


class FakeCuda(Memory, Streams):
    """Functions of the driver by name. Several threads may call it.

    Args:
        memory: bytes of each device, one number or a list.
        devices: how many there are.
        fails: status by name of function, from the next call on.
        lacks: functions it does not have.
        capability: of each device.
        attributes: further ones of each device, by number.

    Attributes:
        calls: names of the functions called, in order.
        retained: how often each primary context was retained, less the releases.
        has_peers: whether each device can access the memory of the others.
        pid: the process that called cuInit; in another one, a forked child, every call answers NOT_INITIALIZED.
    """

    def __init__(
        self, memory=64 << 20, devices=1, *, fails=None, lacks=(), capability=(9, 0), attributes=None
    ):
        self.devices = devices
        self.memory = memory
        self.fails = dict(fails or {})
        self.lacks = lacks
        self.capability = capability
        self.attributes = {102: 1, 103: 1, 115: 1, **(attributes or {})}  # virtual memory, its handles, pools
        self.calls = []
        self.retained = dict.fromkeys(range(devices), 0)
        self.active = set()  # devices whose primary context is alive
        self.has_peers = True
        self.pid = None
        self._lock = threading.RLock()
        self._thread = threading.local()
        Memory.__init__(self)
        Streams.__init__(self)

    def __getattr__(self, name):
        if name == "lacks" or name in self.lacks or not hasattr(type(self), f"_{name}"):
            raise AttributeError(name)

        def function(*arguments):
            plain = [getattr(each, "_obj", getattr(each, "value", each)) for each in arguments]
            with self._lock:
                self.calls.append(name)
                refused = self.fails.get(name) or self._refused(name)
                return int(refused or getattr(self, f"_{name}")(*plain) or 0)

        return function

    def _refused(self, name):
        """Why the driver does not even begin, 0 where it does."""
        if name == "cuInit" or name in _ALWAYS:
            return 0
        if self.pid != os.getpid():
            return Status.NOT_INITIALIZED
        if name.startswith(_IN_CONTEXT):
            if not self.contexts:
                return Status.INVALID_CONTEXT
            if self.current not in self.active:
                return Status.CONTEXT_IS_DESTROYED
        return self.refuse_unsafe() if name in _UNSAFE else 0

    @property
    def contexts(self):
        """This thread's stack of contexts."""
        if not hasattr(self._thread, "contexts"):
            self._thread.contexts = []
        return self._thread.contexts

    @property
    def current(self):
        """The device of this thread's current context; 0 where there is none."""
        return self.contexts[-1] - self.CONTEXT if self.contexts else 0

    CONTEXT = 0x1000

    # -- the driver and its devices

    def _cuInit(self, flags):
        if self.devices == 0:
            return Status.NO_DEVICE
        if self.pid not in (None, os.getpid()):
            return Status.NOT_INITIALIZED
        self.pid = os.getpid()
        return 0

    def _cuDeviceGetCount(self, out):
        out.value = self.devices

    def _cuDeviceGet(self, out, device):
        if not 0 <= device < self.devices:
            return Status.INVALID_DEVICE
        out.value = device
        return 0

    def _cuDeviceTotalMem_v2(self, out, device):
        out.value = self.memory_of(device)

    def _cuDeviceGetName(self, out, size, device):
        out[: len(b"Fake GPU\0")] = b"Fake GPU\0"

    def _cuDeviceGetPCIBusId(self, out, size, device):
        out.value = f"0000:{device + 0x10:02x}:00.0".encode()

    def _cuDeviceGetAttribute(self, out, attribute, device):
        out.value = self.attributes.get(
            attribute, {75: self.capability[0], 76: self.capability[1]}.get(attribute, 0)
        )

    def _cuDeviceCanAccessPeer(self, out, device, peer):
        out.value = self.has_peers and device != peer

    def _cuGetErrorName(self, status, out):
        out.value = c_char_p(f"CUDA_ERROR_{int(status)}".encode()).value

    def _cuGetErrorString(self, status, out):
        out.value = c_char_p(b"as the test wanted").value

    # -- contexts

    def _cuDevicePrimaryCtxRetain(self, out, device):
        if device not in self.retained:
            return Status.INVALID_DEVICE
        self.retained[device] += 1
        self.active.add(device)
        out.value = self.CONTEXT + device
        return 0

    def _cuDevicePrimaryCtxRelease_v2(self, device):
        if not self.retained.get(device):
            return Status.INVALID_CONTEXT
        self.retained[device] -= 1
        return 0 if self.retained[device] else self._cuDevicePrimaryCtxReset_v2(device)

    def _cuDevicePrimaryCtxReset_v2(self, device):
        """As cudaDeviceReset: memory, streams and events go; code that retained the context must retain it again."""
        self.active.discard(device)
        self.forget_memory(device)
        self.forget_streams(device)
        return 0

    def _cuDevicePrimaryCtxGetState(self, device, flags, active):
        flags.value, active.value = 0, device in self.active

    def _cuCtxPushCurrent_v2(self, context):
        if not context:
            return Status.INVALID_CONTEXT
        self.contexts.append(context)
        return 0

    def _cuCtxPopCurrent_v2(self, out):
        if not self.contexts:
            return Status.INVALID_CONTEXT
        out.value = self.contexts.pop()
        return 0

    def _cuCtxGetCurrent(self, out):
        out.value = self.contexts[-1] if self.contexts else None

    def _cuCtxSetCurrent(self, context):
        self.contexts[-1:] = [context] if context else []

    def _cuCtxGetDevice(self, out):
        out.value = self.current
