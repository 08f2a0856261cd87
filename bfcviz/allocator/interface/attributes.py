"""Attributes: the kind of memory that selects an allocator, and the options of one request.

`AllocatorAttributes` select the allocator, `AllocationAttributes` belong to a request, both by TensorFlow's rules.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final, Self

from bfcviz.errors import InvalidRequest

_BITS: Final = {"on_host": 1, "nic_compatible": 2, "gpu_compatible": 4, "track_sizes": 8}
_DEVICE_SHIFT: Final = 24
_KNOWN: Final = sum(_BITS.values()) | 0xFF << _DEVICE_SHIFT


@dataclass(frozen=True)
class AllocatorAttributes:
    """Requirements on memory; none set means ordinary memory of the device.

    Each attribute is a bit of `value`, TensorFlow's number: 1, 2, 4 and 8 in the order below, and the upper 8 of 32
    bits for `device_specific`.

    Attributes:
        on_host: memory of the machine, also for work on a device.
        nic_compatible: a network card may read and write it.
        gpu_compatible: a GPU may copy from and to it (pinned).
        track_sizes: the allocator knows sizes and ids of its chunks.
        device_specific: 8 bits whose meaning the device defines, 0..255.
        scope_id: number of a special-purpose allocator of the device, 0 = none.

    Raises:
        InvalidRequest: a number is out of range.
    """

    on_host: bool = False
    nic_compatible: bool = False
    gpu_compatible: bool = False
    track_sizes: bool = False
    device_specific: int = 0
    scope_id: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.device_specific <= 0xFF:
            raise InvalidRequest(
                f"device_specific is {self.device_specific}, but it has 8 bits: give 0 to 255"
            )
        if not 0 <= self.scope_id < 1 << 31:
            raise InvalidRequest(f"scope_id is {self.scope_id}; give a number from 0 to 2^31 - 1")

    @classmethod
    def from_value(cls, value: int, scope_id: int = 0) -> Self:
        """The attributes from TensorFlow's number.

        Raises:
            InvalidRequest: a bit without a meaning is set.
        """
        if value < 0 or value & ~_KNOWN:
            raise InvalidRequest(
                f"the value of the attributes is {value:#x}; only the bits {_KNOWN:#x} have a meaning"
            )
        flags = {name: bool(value & bit) for name, bit in _BITS.items()}
        return cls(**flags, device_specific=value >> _DEVICE_SHIFT, scope_id=scope_id)

    @property
    def value(self) -> int:
        """TensorFlow's number: all attributes except the scope, in 32 bits."""
        flags = sum(bit for name, bit in _BITS.items() if getattr(self, name))
        return flags | self.device_specific << _DEVICE_SHIFT

    def merge(self, other: "AllocatorAttributes") -> "AllocatorAttributes":
        """Attributes that satisfy both: the bits of both, those of the device too, and the scope of either.

        Raises:
            InvalidRequest: both name a scope, and the scopes differ.
        """
        if self.scope_id and other.scope_id and self.scope_id != other.scope_id:
            raise InvalidRequest(
                f"attributes of scope {self.scope_id} and of scope {other.scope_id} cannot be merged: memory has one "
                "scope; set one of them to 0"
            )
        return AllocatorAttributes.from_value(self.value | other.value, self.scope_id or other.scope_id)

    def is_equal_or_less_restrictive(self, other: "AllocatorAttributes") -> bool:
        """Whether every bit set here is set in `other` too; scopes are ignored, as in TensorFlow."""
        return self.value | other.value == other.value

    def __str__(self) -> str:
        names = [field.name for field in fields(self) if getattr(self, field.name)]
        words = [name if name in _BITS else f"{name}={getattr(self, name)}" for name in names]
        return ", ".join(words) or "device memory"


DEFAULT: Final = AllocatorAttributes()
"""Ordinary memory of the device."""


@dataclass(frozen=True)
class AllocationAttributes:
    """Options of one request.

    Attributes:
        no_retry_on_failure: fail at once, even if the allocator waits for frees. For memory that is optional, such as
            scratch memory that only gains speed.
        allocation_will_be_logged: the caller writes the memory log; otherwise the allocation is unknown there.
        freed_by: called for each request, returns a safe-frontier count: of chunks with a timestamp, use only those
            freed at or before it. None = any.
    """

    no_retry_on_failure: bool = False
    allocation_will_be_logged: bool = False
    freed_by: Callable[[], int] | None = None

    def freed_before(self) -> int:
        """The current count, 0 = any."""
        return 0 if self.freed_by is None else self.freed_by()
