"""Physical devices: the GPUs that CUDA lists, simulated GPUs with their memory, and this machine's CPU; their names."""

import ctypes
import mmap
import operator
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Literal

from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.allocator.sub_allocators import BASE, PythonSubAllocator
from bfcviz.errors import DeviceError, SettingError, UnknownDevice
from bfcviz.units import format_bytes, parse_bytes

Memory = Literal["cuda", "host", "addresses"]

_NO_DEVICE: Final = 100  # CUDA_ERROR_NO_DEVICE
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
_UNKNOWN_SIZE: Final = 1 << 36


@dataclass(frozen=True)
class PhysicalDevice:
    """A GPU or the CPU, real or simulated.

    Attributes:
        name: such as `/physical_device:GPU:0`; the index counts visible devices.
        device_type: `GPU` or `CPU`.
        total_bytes: size of its memory.
        description: the device in words; begins with "simulated" for a simulated one.
        simulated: whether the hardware is simulated.
        memory: `cuda` = device memory, `host` = memory of this machine, `addresses` = addresses without memory.
        ordinal: its index before any device was hidden.
        compute_capability: major and minor version of a GPU.
        taken_bytes: bytes of a simulated GPU that other programs use.
    """

    name: str
    device_type: str
    total_bytes: int
    description: str
    simulated: bool
    memory: Memory
    ordinal: int = 0
    compute_capability: tuple[int, int] = (0, 0)
    taken_bytes: int = 0
    driver: Driver | None = field(default=None, compare=False, repr=False)

    def available_bytes(self) -> int:
        """Free bytes of a physical device now. For a real GPU this asks CUDA, which creates a context there."""
        if self.driver is None:
            return self.total_bytes - self.taken_bytes
        free, _ = self.driver.memory_now(self.ordinal)
        return free

    @property
    def details(self) -> dict[str, object]:
        """TensorFlow's get_device_details of a physical device, plus `simulated`."""
        found: dict[str, object] = {"device_name": self.description, "simulated": self.simulated}
        if self.device_type == "GPU":
            found["compute_capability"] = self.compute_capability
        return found

    def __repr__(self) -> str:
        mark = "simulated, " if self.simulated else ""
        return f"PhysicalDevice(name={self.name!r}, {mark}{format_bytes(self.total_bytes)})"


def simulate_gpus(
    sizes: Iterable[int | str],
    *,
    memory: Literal["host", "addresses"] = "host",
    compute_capability: tuple[int, int] = (8, 0),
    taken: int | str = 0,
    visible: str | None = None,
) -> list[PhysicalDevice]:
    """Simulate GPUs, to see the effect of settings; every name and picture says that they are simulated.

    Args:
        sizes: memory of each GPU, in bytes or as text such as `"16 GiB"`.
        memory: `host` backs their addresses with memory of this machine, page by page on the first write, so that
            arrays can be computed there; `addresses` backs them with nothing.
        compute_capability: major and minor; it decides how much is kept back for the system.
        taken: bytes of each GPU that other programs use.
        visible: hides and orders them as CUDA_VISIBLE_DEVICES does with real GPUs: `"1,0"`; None = all.

    Raises:
        SettingError: an impossible size, kind of memory or number.
    """
    if isinstance(sizes, str | bytes) or not isinstance(sizes, Iterable):
        raise SettingError(f"sizes is {sizes!r}; give one size per GPU: [16 * GiB, 8 * GiB]")
    if memory not in ("host", "addresses"):
        raise SettingError(f"memory is {memory!r}; give 'host' or 'addresses'")
    capability = _checked_compute_capability(compute_capability)
    others = _checked_gpu_size(taken, "bytes taken by others", least=0)
    found = [
        _checked_gpu_size(size, f"the size of simulated GPU {number}") for number, size in enumerate(sizes)
    ]
    for size in found:
        if others > size:
            raise SettingError(
                f"taken is {format_bytes(others)}, more than a GPU of {format_bytes(size)} has: give less"
            )
    order = range(len(found)) if visible is None else visible_order(visible, len(found))
    return [
        PhysicalDevice(
            DeviceName("GPU", number).physical,
            "GPU",
            found[ordinal],
            f"simulated GPU of {format_bytes(found[ordinal])}",
            simulated=True,
            memory=memory,
            ordinal=ordinal,
            compute_capability=capability,
            taken_bytes=others,
        )
        for number, ordinal in enumerate(order)
    ]


def cuda_gpus(driver: Driver | None = None) -> list[PhysicalDevice]:
    """The physical GPUs that CUDA lists, in its order; empty without a driver or a device.

    Args:
        driver: None = the machine's driver.

    Raises:
        DeviceError: the driver is installed and fails.
    """
    try:
        found = cuda_driver.load() if driver is None else driver
        count = found.device_count()
    except DeviceError as error:
        if error.status in (0, _NO_DEVICE):
            return []
        raise
    return [_cuda_gpu(found, ordinal) for ordinal in range(count)]


def physical_gpus(simulated: Iterable[int | str] = ()) -> list[PhysicalDevice]:
    """The physical GPUs: CUDA's if any exist; otherwise simulated GPUs of these sizes."""
    return cuda_gpus() or simulate_gpus(simulated)


def host_cpu() -> PhysicalDevice:
    """The physical CPU of this machine and the size of its memory."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = _UNKNOWN_SIZE
    name = DeviceName("CPU", 0).physical
    return PhysicalDevice(name, "CPU", total, "this machine's CPU", simulated=False, memory="host")


def visible_order(text: str, count: int) -> list[int]:
    """The physical GPUs that a CUDA_VISIBLE_DEVICES text selects, as indices, in its order.

    As in CUDA, an entry that is not a device index hides itself and all entries after it: "1,9,0" selects 1.
    """
    order: list[int] = []
    for word in text.split(","):
        entry = word.strip()
        if not entry.isdecimal() or int(entry) >= count or int(entry) in order:
            break
        order.append(int(entry))
    return order


def _cuda_gpu(driver: Driver, ordinal: int) -> PhysicalDevice:
    handle, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    driver.call("cuDeviceGet", ctypes.byref(handle), ordinal)
    driver.call("cuDeviceGetName", ctypes.byref(name), len(name), handle)
    numbers = []
    for attribute in (_MAJOR, _MINOR):
        number = ctypes.c_int()
        driver.call("cuDeviceGetAttribute", ctypes.byref(number), attribute, handle)
        numbers.append(number.value)
    return PhysicalDevice(
        DeviceName("GPU", ordinal).physical,
        "GPU",
        driver.total_memory(ordinal),
        name.value.decode(errors="replace"),
        simulated=False,
        memory="cuda",
        ordinal=ordinal,
        compute_capability=(numbers[0], numbers[1]),
        driver=driver,
    )


def _checked_gpu_size(size: int | str, what: str, least: int = 1) -> int:
    try:
        number = parse_bytes(size, what)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{what} is {size!r}; give bytes, such as 16 * GiB, or '16 GiB'") from error
    if isinstance(size, bool) or not least <= number <= LARGEST:
        raise SettingError(f"{what} is {size!r}; give {least} to {format_bytes(LARGEST)}")
    return number


def _checked_compute_capability(given: tuple[int, int]) -> tuple[int, int]:
    try:
        major, minor = given
        numbers = operator.index(major), operator.index(minor)
    except (TypeError, ValueError) as error:
        raise SettingError(f"the compute capability is {given!r}; give major and minor, as (8, 0)") from error
    if min(numbers) < 0:
        raise SettingError(f"the compute capability is {given!r}; give major and minor, as (8, 0)")
    return numbers


# ------------------------------------------------------------------------------
# The names of physical and logical devices, in TensorFlow's forms: `/device:GPU:0`, `/physical_device:GPU:0`.

TASK: Final = "/job:localhost/replica:0/task:0"
_NAME: Final = re.compile(rf"(?:{TASK})?/?(?:(?:physical_)?device:)?(CPU|GPU):([0-9]{{1,9}})", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class DeviceName:
    """The name of a physical or logical device: its type, `CPU` or `GPU`, and the index among those of that type."""

    device_type: str
    index: int

    @property
    def short(self) -> str:
        """The short name of a device, such as `/device:GPU:0`."""
        return f"/device:{self.device_type}:{self.index}"

    @property
    def full(self) -> str:
        """The full name of a device: the task's name followed by the short name."""
        return f"{TASK}{self.short}"

    @property
    def physical(self) -> str:
        """The name of a physical device, such as `/physical_device:GPU:0`."""
        return f"/physical_device:{self.device_type}:{self.index}"


def parse_name(text: str) -> DeviceName:
    """Parse the name of a physical or logical device in any form: full, short, `GPU:0`, or the old `gpu:0`.

    Raises:
        UnknownDevice: the text is not a device name.
    """
    match = _NAME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise UnknownDevice(
            f"{text!r} is not a device name: write '/device:GPU:0', 'CPU:0' or '{TASK}/device:GPU:0'"
        )
    return DeviceName(match[1].upper(), int(match[2]))


# ------------------------------------------------------------------------------
# The memory of a simulated GPU: addresses, backed by memory of this machine or by nothing, and regions of them.

LARGEST: Final = 1 << 43
"""The largest simulated GPU in bytes; the address range of each is twice that long."""

_NORESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class SimulatedMemory:
    """The memory of a simulated GPU: addresses, backed by memory of this machine or by nothing; grants regions.

    ::

        |region of GPU:0|........|region of GPU:1 |region of GPU:0|................|
        ^ start                                      GPU:0 and GPU:1 are logical devices of one GPU

    Only written pages take memory, so a laptop can simulate a GPU of 80 GiB.

    Args:
        capacity: most bytes granted at one time; unified memory may exceed it.
        reserve: length of the address range in bytes.
        ordinal: index of the GPU; it makes the addresses unique.
        readable: whether memory of this machine backs the addresses.
    """

    def __init__(self, capacity: int, reserve: int, ordinal: int = 0, *, readable: bool = True) -> None:
        if reserve > 2 * LARGEST:
            raise DeviceError(
                f"a simulated GPU of {format_bytes(reserve // 2)} is too large: give at most {format_bytes(LARGEST)}"
            )
        self.capacity = capacity
        self.readable = readable
        self.used = 0
        self._reserve = -(-reserve // mmap.PAGESIZE) * mmap.PAGESIZE
        self._start = 0 if readable else BASE + ordinal * 2 * LARGEST
        self._pages: mmap.mmap | None = None
        self._granted: dict[int, int] = {}  # bytes by address
        self._lock = Lock()

    @property
    def spilled(self) -> int:
        """Bytes of a simulated GPU beyond its capacity; on a real GPU, unified memory keeps them on the host."""
        return max(0, self.used - self.capacity)

    def take(self, num_bytes: int, alignment: int, *, unified: bool) -> int:
        """Grant a region of a simulated GPU: its address, or 0 if there is no room."""
        with self._lock:
            if not unified and num_bytes > self.capacity - self.used:
                return 0
            where = self._gap(num_bytes, max(alignment, mmap.PAGESIZE))
            if where:
                self._granted[where] = num_bytes
                self.used += num_bytes
            return where

    def give_back(self, where: int) -> None:
        """Take a region of a simulated GPU back; its contents are dropped and its pages take no memory."""
        with self._lock:
            num_bytes = self._granted.pop(where)
            self.used -= num_bytes
            if self._pages is not None and hasattr(mmap, "MADV_DONTNEED"):
                pages = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
                self._pages.madvise(mmap.MADV_DONTNEED, where - self._start, pages)

    def _gap(self, num_bytes: int, alignment: int) -> int:
        """The lowest address of a simulated GPU with that many free bytes after it; 0 = none."""
        start = self._begin()
        at = start
        for begin in sorted(self._granted):
            at = -(-at // alignment) * alignment
            if begin - at >= num_bytes:
                return at
            at = begin + self._granted[begin]
        at = -(-at // alignment) * alignment
        return at if start + self._reserve - at >= num_bytes else 0

    def _begin(self) -> int:
        """Start of the address range of a simulated GPU; the first call reserves it."""
        if self._start == 0:
            self._pages = _reserve_simulated_memory(self._reserve)
            self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        return self._start


def _reserve_simulated_memory(num_bytes: int) -> mmap.mmap:
    """Map zeroed pages for a simulated GPU, which take memory of this machine on the first write."""
    try:
        if hasattr(mmap, "MAP_ANONYMOUS"):
            return mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        return mmap.mmap(-1, num_bytes)
    except (OSError, OverflowError, ValueError) as error:
        raise DeviceError(
            f"this machine cannot reserve {format_bytes(num_bytes)} of addresses for a simulated GPU: simulate a "
            "smaller one, or pass memory='addresses' to simulate_gpus"
        ) from error


class SimulatedGpuSubAllocator(PythonSubAllocator):
    """Grants regions of a simulated GPU to one of its logical devices.

    Args:
        unified: may take more than the GPU's capacity.
    """

    def __init__(self, memory: SimulatedMemory, *, unified: bool = False) -> None:
        super().__init__()
        self.memory = memory
        self.unified = unified

    @property
    def place(self) -> str:
        """Where the bytes of a simulated GPU are: `host` or `nowhere`."""
        return "host" if self.memory.readable else "nowhere"

    def allocate(self, alignment: int, num_bytes: int) -> tuple[int, int] | None:
        """Grant a region of a simulated GPU; None if it is full."""
        where = self.memory.take(num_bytes, alignment, unified=self.unified)
        return (where, num_bytes) if where else None

    def free(self, address: int, num_bytes: int) -> None:  # noqa: ARG002  the memory knows the size
        """Take a region of a simulated GPU back."""
        self.memory.give_back(address)
