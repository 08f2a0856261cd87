"""How much of a GPU the heaps of a framework take: a limit, a fraction, or all free memory less a headroom.

Not all memory of a GPU comes from a framework's allocator: cuBLAS, cuDNN and NCCL allocate from the driver, and kernels
are loaded at their first call. The default headroom is that of TensorFlow: 225 MiB if less than 2 GiB are free, else by
compute capability 500 (up to 6), 1050 (7), 1536 (8) or 1800 MiB (9 and up). Source: MinSystemMemory in TensorFlow's
gpu_device.cc.
"""

from typing import Final, NamedTuple, Self

from bfcviz.allocator.sub_allocators.cuda.kinds_of_memory import Memory
from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.units import GiB, MiB, format_bytes, parse_bytes

CAPABILITY_MAJOR: Final = 75
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR."""

_SMALL: Final = 2 * GiB
_KEPT_BACK: Final = ((6, 500), (7, 1050), (8, 1536))  # up to this compute capability, MiB
_NEWER: Final = 1800


def min_system_memory(available: int, major: int) -> int:
    """Bytes that stay free of `available` ones on a GPU of this compute capability (major)."""
    if available < _SMALL:
        return 225 * MiB
    return next((mib for newest, mib in _KEPT_BACK if major <= newest), _NEWER) * MiB


class Room(NamedTuple):
    """Memory of a device: total bytes, bytes free now, and its major compute capability."""

    total: int
    available: int
    major: int


class Share(NamedTuple):
    """What the heaps of a device may take together. At most one field is set; none set means the default.

    Attributes:
        limit: bytes.
        fraction: share of the device's total memory.
        headroom: bytes of the free memory to leave free.
    """

    limit: int | None = None
    fraction: float | None = None
    headroom: int | None = None

    @classmethod
    def parse(cls, limit: int | str | None, fraction: float | None, headroom: int | str | None) -> Self:
        """Read the arguments of a user.

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


def check_limit(limit: int | None, total: int, device: int, memory: Memory) -> None:
    """Check that heaps of at most `limit` bytes fit a device of `total` bytes.

    Raises:
        InvalidRequest: the limit is out of range.
        LiveError: the limit exceeds the device, and the memory cannot.
    """
    if limit is None:
        return
    if not 1 <= limit <= 1 << 62:
        raise InvalidRequest(f"a limit of {limit} bytes was given; give one from 1 to 2^62")
    if limit > total and memory != "managed":
        raise LiveError(
            f"heaps of at most {format_bytes(limit)} were requested, and device {device} has "
            f"{format_bytes(total)}: give a lower limit or none, or memory='managed', which may exceed the device"
        )
