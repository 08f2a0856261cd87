"""How much of a GPU the heaps of a framework take: a limit, a fraction of it, or all that is free but a headroom.

Not all memory of a GPU comes from a framework's allocator: cuBLAS, cuDNN and NCCL take theirs from the driver, and
kernels are loaded when they are first called. By default as much is left to them as TensorFlow leaves: 225 MiB where
less than 2 GiB are free, else by compute capability 500 (up to 6), 1050 (7), 1536 (8) or 1800 MiB (9 and up). Source:
MinSystemMemory in TensorFlow's gpu_device.cc.
"""

from typing import Final, NamedTuple, Self

from bfcviz.allocator.sub_allocators.cuda.choice import Memory
from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.live.shared.heap_maker import check_limit
from bfcviz.units import GiB, MiB, format_bytes, parse_bytes

CAPABILITY_MAJOR: Final = 75
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR."""

_SMALL: Final = 2 * GiB
_KEPT_BACK: Final = ((6, 500), (7, 1050), (8, 1536))  # up to this compute capability, MiB
_NEWER: Final = 1800


def min_system_memory(available: int, major: int) -> int:
    """Bytes that are kept back of so many free ones on a GPU of this compute capability."""
    if available < _SMALL:
        return 225 * MiB
    return next((mib for newest, mib in _KEPT_BACK if major <= newest), _NEWER) * MiB


class Room(NamedTuple):
    """What there is on a device: bytes in all, bytes free now, and its major compute capability."""

    total: int
    available: int
    major: int


class Share(NamedTuple):
    """What the heaps of a device may take together; at most one of these is not None, and none means the default.

    Attributes:
        limit: bytes.
        fraction: of all memory of the device.
        headroom: bytes to be left of what is free.
    """

    limit: int | None = None
    fraction: float | None = None
    headroom: int | None = None

    @classmethod
    def parse(cls, limit: int | str | None, fraction: float | None, headroom: int | str | None) -> Self:
        """From what a person gave.

        Raises:
            InvalidRequest: several of them, or one that cannot be.
            ValueError: text that is no size.
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

    def of(self, device: int, room: Room, memory: Memory) -> int:
        """Bytes of a device.

        Raises:
            InvalidRequest: a limit that cannot be.
            LiveError: the device has less.
        """
        if self.limit is not None or self.fraction is not None:
            limit = int(room.total * (self.fraction or 0)) if self.limit is None else self.limit
            check_limit(limit, room.total, device, memory)
            return limit
        if self.headroom is None:
            kept = min_system_memory(room.available, room.major)
            return room.available - kept if kept < room.available else max(room.available, 1)
        if self.headroom >= room.available:
            raise LiveError(
                f"a headroom of {format_bytes(self.headroom)} was to be left free on device {device}, which has "
                f"{format_bytes(room.available)} free of {format_bytes(room.total)}: give a smaller one"
            )
        return room.available - self.headroom
