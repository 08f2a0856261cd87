"""Physical devices: the GPUs that CUDA lists, simulated GPUs, and the CPU of this machine."""

import ctypes
import operator
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.devices.device_names import DeviceName
from bfcviz.devices.simulated_gpu_memory import LARGEST
from bfcviz.errors import DeviceError, SettingError
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
