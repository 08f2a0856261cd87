"""Physical devices: the GPUs that CUDA shows, GPUs that are simulated and say so, and the machine's CPU."""

import ctypes
import operator
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from bfcviz.allocator.sub_allocators.cuda import driver as cuda_driver
from bfcviz.allocator.sub_allocators.cuda.driver import Driver
from bfcviz.devices.device_names import DeviceName
from bfcviz.devices.simulated_memory import LARGEST
from bfcviz.errors import DeviceError, SettingError
from bfcviz.units import format_bytes, parse_bytes

Memory = Literal["cuda", "host", "addresses"]

_NO_DEVICE: Final = 100  # CUDA_ERROR_NO_DEVICE
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
_UNKNOWN_SIZE: Final = 1 << 36


@dataclass(frozen=True)
class PhysicalDevice:
    """A GPU or the CPU, as the machine has it or as it is simulated.

    Attributes:
        name: such as `/physical_device:GPU:0`; counts those that can be seen.
        device_type: `GPU` or `CPU`.
        total_bytes: its memory.
        description: what it is, in words; that of a simulated one begins with "simulated".
        simulated: there is no such hardware.
        memory: `cuda` on the device, `host` of this machine, `addresses` with nothing behind them.
        ordinal: its number before anything was hidden.
        compute_capability: of a GPU, major and minor.
        taken_bytes: of a simulated one, what others hold.
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
        """What is free on it now; of a real GPU CUDA is asked, which makes its context there."""
        if self.driver is None:
            return self.total_bytes - self.taken_bytes
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self.driver.on(self.ordinal):
            self.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    @property
    def details(self) -> dict[str, object]:
        """As TensorFlow's get_device_details, and whether it is simulated."""
        found: dict[str, object] = {"device_name": self.description, "simulated": self.simulated}
        if self.device_type == "GPU":
            found["compute_capability"] = self.compute_capability
        return found

    def __repr__(self) -> str:
        mark = "simulated, " if self.simulated else ""
        return f"PhysicalDevice(name={self.name!r}, {mark}{format_bytes(self.total_bytes)})"


class _Asked(NamedTuple):
    """How simulated GPUs are to be."""

    memory: Memory
    compute_capability: tuple[int, int]
    taken: int


def simulate_gpus(
    sizes: Iterable[int | str],
    *,
    memory: Literal["host", "addresses"] = "host",
    compute_capability: tuple[int, int] = (8, 0),
    taken: int | str = 0,
    visible: str | None = None,
) -> list[PhysicalDevice]:
    """GPUs that are not there, to see what settings would do to them; every name and picture says so.

    Args:
        sizes: memory of each, in bytes or as text such as `"16 GiB"`.
        memory: `host` puts memory of this machine behind their addresses, page by page as it is written, so that
            arrays can be computed in it; `addresses` none.
        compute_capability: major and minor; it decides how much is kept back for the system.
        taken: bytes of each that others hold already.
        visible: hides and orders them as CUDA_VISIBLE_DEVICES does real ones: `"1,0"`; None = all.

    Raises:
        SettingError: a size, kind of memory or number that no GPU has.
    """
    if isinstance(sizes, str | bytes) or not isinstance(sizes, Iterable):
        raise SettingError(f"sizes {sizes!r} were given; give one for each GPU: [16 * GiB, 8 * GiB]")
    if memory not in ("host", "addresses"):
        raise SettingError(f"memory {memory!r} was asked for; there are 'host' and 'addresses'")
    asked = _Asked(memory, _capability(compute_capability), _size(taken, "bytes taken by others", least=0))
    found = [_size(size, f"the size of simulated GPU {number}") for number, size in enumerate(sizes)]
    for size in found:
        if asked.taken > size:
            raise SettingError(
                f"{format_bytes(asked.taken)} of a GPU of {format_bytes(size)} cannot be taken by others"
            )
    order = range(len(found)) if visible is None else visible_order(visible, len(found))
    return [_simulated(number, ordinal, found[ordinal], asked) for number, ordinal in enumerate(order)]


def cuda_gpus(driver: Driver | None = None) -> list[PhysicalDevice]:
    """The GPUs that CUDA shows, in its order: none where there is no driver or no device.

    Args:
        driver: by default the machine's.

    Raises:
        DeviceError: there is a driver, and it fails.
    """
    try:
        found = cuda_driver.load() if driver is None else driver
        count = found.device_count()
    except DeviceError as error:
        if error.status in (0, _NO_DEVICE):
            return []
        raise
    return [_real(found, ordinal) for ordinal in range(count)]


def physical_gpus(simulated: Iterable[int | str] = ()) -> list[PhysicalDevice]:
    """The GPUs of CUDA where there are any; else simulated ones of these sizes."""
    return cuda_gpus() or simulate_gpus(simulated)


def the_cpu() -> PhysicalDevice:
    """The machine's CPU, with its memory."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = _UNKNOWN_SIZE
    name = DeviceName("CPU", 0).physical
    return PhysicalDevice(name, "CPU", total, "this machine's CPU", simulated=False, memory="host")


def visible_order(text: str, count: int) -> list[int]:
    """The numbers that CUDA_VISIBLE_DEVICES leaves, in its order.

    As with CUDA, an entry that is no number of a device hides itself and all behind it: "1,9,0" leaves 1.
    """
    order: list[int] = []
    for word in text.split(","):
        entry = word.strip()
        if not entry.isdecimal() or int(entry) >= count or int(entry) in order:
            break
        order.append(int(entry))
    return order


def _real(driver: Driver, ordinal: int) -> PhysicalDevice:
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


def _simulated(number: int, ordinal: int, size: int, asked: _Asked) -> PhysicalDevice:
    return PhysicalDevice(
        DeviceName("GPU", number).physical,
        "GPU",
        size,
        f"simulated GPU of {format_bytes(size)}",
        simulated=True,
        memory=asked.memory,
        ordinal=ordinal,
        compute_capability=asked.compute_capability,
        taken_bytes=asked.taken,
    )


def _size(size: int | str, what: str, least: int = 1) -> int:
    try:
        number = parse_bytes(size, what)
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"{size!r} was given as {what}; give bytes, such as 16 * GiB, or '16 GiB'"
        ) from error
    if isinstance(size, bool) or not least <= number <= LARGEST:
        raise SettingError(f"{size!r} was given as {what}; give {least} to {format_bytes(LARGEST)}")
    return number


def _capability(given: tuple[int, int]) -> tuple[int, int]:
    try:
        major, minor = given
        numbers = operator.index(major), operator.index(minor)
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"compute capability {given!r} was given; give major and minor, as (8, 0)"
        ) from error
    if min(numbers) < 0:
        raise SettingError(f"compute capability {given!r} was given; give major and minor, as (8, 0)")
    return numbers
