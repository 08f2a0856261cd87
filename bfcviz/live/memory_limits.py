"""How much memory the heaps of a framework take: a limit, a fraction, or what is free on the GPU or this machine."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

from bfcviz.allocator import heap_memory
from bfcviz.allocator.cuda import Memory
from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.origin import ADDRESS_SPACE, CONTAINER, MACHINE
from bfcviz.formats.tensorflow import min_system_memory
from bfcviz.units import MiB, format_bytes, parse_bytes

# ------------------------------------------------------------------------------
# Memory of this machine: total, available, and the limits of this process. Sizes in bytes.

_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
_LIMITS: Final = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))


def total_memory() -> int:
    """Memory of the machine, or the limit of this process's control group (a container) if that is lower."""
    return min([_installed_memory(), *(limit for limit, _ in _group_limits())])


def reserve() -> int:
    """Bytes that a region of a heap must leave available on the machine."""
    return total_memory() // 32


def available_memory() -> int:
    """Bytes that can be allocated now without swapping: MemAvailable, within the limit of the control group."""
    left = [max(limit - used, 0) for limit, used in _group_limits()]
    return min([heap_memory.available_memory(), total_memory(), *left])


def default_limit() -> int:
    """A default limit for a heap of host memory.

    An eighth of all memory stays for the rest of this process and for others; if little is available, half of that.
    """
    available = available_memory()
    limit = max(available - total_memory() // 8, available // 2)
    return max(limit // (64 * MiB) * 64 * MiB, 64 * MiB)


def process_limits() -> dict[str, int]:
    """What limits the host memory of this process, in bytes, by the names of `bfcviz.events.origin`."""
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    groups = [limit for limit, _ in _group_limits()]
    return {
        **({} if addresses == resource.RLIM_INFINITY else {ADDRESS_SPACE: addresses}),
        **({CONTAINER: min(groups)} if groups else {}),
        MACHINE: _installed_memory(),
    }


def _installed_memory() -> int:
    """Memory of the machine, before the limits of this process."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _group_limits() -> Iterator[tuple[int, int]]:
    """The memory limit of each control group of this process, and its unreclaimable use."""
    for folder in _group_folders():
        for limit_name, used_name in _LIMITS:
            limit = _control_group_number(folder / limit_name)
            if limit is not None and limit < 1 << 62:  # version 1 writes nearly 2^63 for "none"
                used = _control_group_number(folder / used_name) or 0
                yield limit, max(used - _page_cache(folder), 0)


def _group_folders() -> Iterator[Path]:
    """The folders with the memory limits of this process's control groups, from the innermost to the root."""
    for controllers, path in _group_paths():
        if controllers in ("", "memory"):
            inside = Path(path.lstrip("/"))
            yield from (_CONTROL_GROUPS / controllers / part for part in (inside, *inside.parents))


def _group_paths() -> list[tuple[str, str]]:
    """The control groups that limit this process: controllers (none: version 2) and path of each."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    parts = [line.split(":", 2) for line in lines]
    return [(part[1], part[2]) for part in parts if len(part) == 3]


def _page_cache(folder: Path) -> int:
    """Bytes that do not count towards a control group's limit: of files, which the kernel can drop at once."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("inactive_file ", "active_file ")))


def _control_group_number(file: Path) -> int | None:
    """The number in a file of a control group's limits; None: the file is absent or contains `max`."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


# ------------------------------------------------------------------------------
# How much of a GPU the heaps of a framework take: a limit, a fraction, or all free memory less a headroom.
#
# Not all memory of a GPU comes from a framework's allocator: cuBLAS, cuDNN and NCCL allocate from the driver, and
# kernels are loaded at their first call. The default headroom is that of TensorFlow.

CAPABILITY_MAJOR: Final = 75
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR."""


class Room(NamedTuple):
    """Memory of a device: total bytes, bytes free now, and its major compute capability."""

    total: int
    available: int
    major: int


class Share(NamedTuple):
    """What the heaps of a device may take together. At most one field is set; none set means the default."""

    limit: int | None = None  # bytes
    fraction: float | None = None  # share of the device's total memory
    headroom: int | None = None  # bytes of the free memory to leave free

    @classmethod
    def parse(cls, limit: int | str | None, fraction: float | None, headroom: int | str | None) -> Self:
        """Read a user's arguments on how much memory heaps may take.

        Raises:
            InvalidRequest: several are given, or one is out of range.
            ValueError: a text is not a size.
        """
        given = {"limit": limit, "fraction": fraction, "headroom": headroom}
        names = [f"{name}={value!r}" for name, value in given.items() if value is not None]
        if len(names) > 1:
            raise InvalidRequest(f"{' and '.join(names)} were given; each sets the limit: give one of them")
        if fraction is not None and not 0 < fraction < 1 << 20:
            raise InvalidRequest(f"fraction={fraction} was given; give a share above 0, such as 0.8")
        left = None if headroom is None else parse_bytes(headroom, "headroom")
        if left is not None and left < 0:
            raise InvalidRequest(f"a headroom of {left} bytes was given; give 0 or more")
        return cls(None if limit is None else parse_bytes(limit, "limit"), fraction, left)

    def fixed(self, device: int, total: int, memory: Memory) -> int | None:
        """The limit of a device of `total` bytes, if it does not depend on what is free; else None. Raises as `of`."""
        if self.limit is None and self.fraction is None:
            return None
        limit = int(total * (self.fraction or 0)) if self.limit is None else self.limit
        check_limit(limit, total, device, memory)
        return limit

    def of(self, device: int, room: Room, memory: Memory) -> int:
        """The limit of a device in bytes.

        Raises:
            InvalidRequest: the limit is out of range.
            LiveError: the device has less.
        """
        fixed = self.fixed(device, room.total, memory)
        if fixed is not None:
            return fixed
        if self.headroom is None:
            kept = min_system_memory(room.available, room.major)
            return room.available - kept if kept < room.available else max(room.available, 1)
        if self.headroom >= room.available:
            raise LiveError(
                f"a headroom of {format_bytes(self.headroom)} was given for device {device}, which has "
                f"{format_bytes(room.available)} free of {format_bytes(room.total)}: give a smaller one"
            )
        return room.available - self.headroom


def check_limit(limit: int, total: int, device: int, memory: Memory) -> None:
    """Check that heaps of at most `limit` bytes fit a device of `total` bytes.

    Raises:
        InvalidRequest: the limit is out of range.
        LiveError: the limit exceeds the device, and the memory cannot.
    """
    if not 1 <= limit <= 1 << 62:
        raise InvalidRequest(f"a limit of {limit} bytes was given; give one from 1 to 2^62")
    if limit > total and memory != "managed":
        raise LiveError(
            f"heaps of at most {format_bytes(limit)} were requested, and device {device} has "
            f"{format_bytes(total)}: give a lower limit or none, or memory='managed', which may exceed the device"
        )
