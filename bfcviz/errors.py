"""Every error bfcviz raises.

::

    BfcvizError
    ├── OutOfMemory        (also MemoryError)   no chunk, no growth, nothing to collect
    ├── AllocatorError
    │   ├── InvalidRequest (also ValueError)    a size, alignment or option that cannot be served
    │   ├── InvalidFree    (also ValueError)
    │   │   ├── DoubleFree                      the chunk at this address is free already
    │   │   ├── InteriorPointer                 inside a chunk in use, not at its start
    │   │   └── ForeignPointer                  in no region of this heap
    │   ├── SubAllocatorError                   a sub-allocator broke its promise
    │   ├── GuardOverrun                    guard words around a chunk were overwritten
    │   ├── DeviceError                         CUDA failed, or there is no driver or device
    │   └── BrokenInvariant                     the heap's own books do not balance: a bug in bfcviz
    ├── DevicesError                        a device or a memory setting that cannot be; all is as it was
    │   ├── SettingError   (also ValueError)    a value that cannot be, or one that contradicts another
    │   ├── SettingTooLate (also RuntimeError)  the devices are made already
    │   └── UnknownDevice  (also ValueError)    no device has this name
    ├── LiveError                           a framework cannot be watched this way now; it is as it was
    ├── Lapped                                  a reader was overtaken by the ring's writer
    ├── TraceError                              events that contradict each other
    ├── FileError          (also ValueError)    a file that cannot be read: names file, place and cause
    │   ├── OtherFiles                          a folder to be emptied holds more than a recording
    │   └── FolderTaken                         the folder for a recording already holds something
    └── MissingExtra       (also ImportError)   an optional package is not installed
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from bfcviz.units import format_bytes


class BfcvizError(Exception):
    """The root of every error of this package."""


class Totals(Protocol):
    """What `OutOfMemory.of` reads of a heap, in bytes; an allocator's `Stats` have it."""

    @property
    def pool_bytes(self) -> int:
        """Bytes got from the sub-allocator."""

    @property
    def bytes_in_use(self) -> int:
        """Those of them that are in use."""

    @property
    def largest_free_chunk(self) -> int:
        """The largest piece of the others."""

    @property
    def bytes_limit(self) -> int:
        """What the pool may grow to."""


class PoolTotals(NamedTuple):
    """`Totals` of a heap that has no `Stats` at hand, in bytes."""

    pool_bytes: int
    bytes_in_use: int
    largest_free_chunk: int
    bytes_limit: int


class OutOfMemory(BfcvizError, MemoryError):
    """A request no chunk could serve; carries the numbers of that moment, all in bytes.

    Attributes:
        requested: what the caller asked for.
        rounded: `requested` rounded up to a multiple of 256.
        free_bytes: free bytes in the pool.
        largest_free_chunk: the largest piece of them.
        pool_bytes: bytes got from the sub-allocator.
        bytes_limit: the heap's memory limit.
        others: the heaps that share the limit and hold some of it: name, pool bytes, bytes in use of each.
    """

    def __init__(  # noqa: PLR0913  these numbers are what this error is for
        self,
        *,
        requested: int,
        rounded: int,
        free_bytes: int,
        largest_free_chunk: int,
        pool_bytes: int,
        bytes_limit: int,
        others: Sequence[tuple[str, int, int]] = (),
    ) -> None:
        self.requested = requested
        self.rounded = rounded
        self.free_bytes = free_bytes
        self.largest_free_chunk = largest_free_chunk
        self.pool_bytes = pool_bytes
        self.bytes_limit = bytes_limit
        self.others = tuple(others)
        # Not super(): a framework's own error, with other arguments, may be a base of a class derived from this one.
        Exception.__init__(
            self,
            f"out of memory: {format_bytes(requested)} asked for (rounded to {rounded} bytes); "
            f"{format_bytes(free_bytes)} free, in pieces of at most {format_bytes(largest_free_chunk)}; "
            f"pool {format_bytes(pool_bytes)} of a limit of {format_bytes(bytes_limit)}. "
            + _others(self.others)
            + _advice(rounded, free_bytes, pool_bytes + sum(other[1] for other in self.others), bytes_limit),
        )

    @classmethod
    def of(
        cls,
        requested: int,
        totals: Totals,
        *,
        rounded: int | None = None,
        others: Iterable[tuple[str, Totals]] = (),
    ) -> "OutOfMemory":
        """Memory ran out for a request; how every allocator and observer here makes this error.

        Args:
            requested: what the caller asked for, in bytes.
            totals: of the heap that failed.
            rounded: what that was rounded up to; by default a multiple of 256.
            others: name and totals of the heaps that share its limit.
        """
        return cls(
            requested=requested,
            rounded=-(-requested // 256) * 256 if rounded is None else rounded,
            free_bytes=totals.pool_bytes - totals.bytes_in_use,
            largest_free_chunk=totals.largest_free_chunk,
            pool_bytes=totals.pool_bytes,
            bytes_limit=totals.bytes_limit,
            others=_holders(others),
        )

    def numbers(self) -> dict[str, Any]:
        """Its attributes by name: the arguments that make an equal error."""
        return {
            "requested": self.requested,
            "rounded": self.rounded,
            "free_bytes": self.free_bytes,
            "largest_free_chunk": self.largest_free_chunk,
            "pool_bytes": self.pool_bytes,
            "bytes_limit": self.bytes_limit,
            "others": self.others,
        }

    def detached(self) -> "OutOfMemory":
        """An equal error without traceback and context: one that is kept must not keep the program's frames alive."""
        return OutOfMemory(**self.numbers())

    def for_request(self, requested: int) -> "OutOfMemory":
        """The same failure of what the caller of a wrapper asked for; what it was rounded to stays."""
        return OutOfMemory(**{**self.numbers(), "requested": requested})

    def beside(self, others: Iterable[tuple[str, Totals]]) -> "OutOfMemory":
        """The same failure of a heap that shares its limit with `others`: name and totals of each."""
        return OutOfMemory(**{**self.numbers(), "others": _holders(others)})

    def __reduce__(self) -> tuple[Any, ...]:
        return _out_of_memory, (self.numbers(),)


def _out_of_memory(numbers: dict[str, Any]) -> OutOfMemory:
    return OutOfMemory(**numbers)


def _holders(heaps: Iterable[tuple[str, Totals]]) -> list[tuple[str, int, int]]:
    """Those that hold some of their limit, as `OutOfMemory.others` has them."""
    return [(name, totals.pool_bytes, totals.bytes_in_use) for name, totals in heaps if totals.pool_bytes]


def _others(others: tuple[tuple[str, int, int], ...]) -> str:
    if not others:
        return ""
    pools, in_use = sum(pool for _, pool, _ in others), sum(used for _, _, used in others)
    most = sorted(others, key=lambda other: -other[1])
    names = ", ".join(f"{name} {format_bytes(pool)}" for name, pool, _ in most[:3])
    return (
        f"The heaps of other streams hold {format_bytes(pools)} of this limit, {format_bytes(in_use)} of it in use "
        f"({names}{', ...' if len(most) > 3 else ''}). "
    )


def _advice(rounded: int, free_bytes: int, pool_bytes: int, bytes_limit: int) -> str:
    if free_bytes >= rounded:
        return "The free memory is fragmented: see which chunks lie between its pieces."
    if pool_bytes + rounded <= bytes_limit:
        return (
            "The limit allows more, but the sub-allocator gave none: free device memory or lower the limit."
        )
    return "Free some chunks, lower the request, or raise the limit."


class AllocatorError(BfcvizError):
    """A call the heap could not carry out; the heap is as it was before."""


class InvalidRequest(AllocatorError, ValueError):
    """A size, alignment or option that no heap can serve."""


class InvalidFree(AllocatorError, ValueError):
    """An address that `free` cannot take; carries it as `address`."""

    def __init__(self, address: int, message: str) -> None:
        self.address = address
        super().__init__(message)


class DoubleFree(InvalidFree):
    """The chunk that begins at this address is free already."""


class InteriorPointer(InvalidFree):
    """The address lies inside a chunk in use, not at its start."""


class ForeignPointer(InvalidFree):
    """The address lies in no region of this heap."""


class SubAllocatorError(AllocatorError):
    """A sub-allocator returned memory that breaks its promise (overlapping, misaligned, too small)."""


class GuardOverrun(AllocatorError):
    """Guard words were overwritten: somebody wrote outside his chunk; carries what was found as `damages`."""

    def __init__(self, damages: Sequence[object]) -> None:
        self.damages = tuple(damages)
        super().__init__("; ".join(map(str, damages)))


class DeviceError(AllocatorError):
    """CUDA failed, or is not there; carries the driver's `status`, 0 where it did not come to that."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class BrokenInvariant(AllocatorError):
    """The heap's own books do not balance: a bug in bfcviz, found by `check_invariants()`."""


class DevicesError(BfcvizError):
    """Something about a device or a memory setting that cannot be; all settings are as they were."""


class SettingError(DevicesError, ValueError):
    """A memory setting that cannot be, or that contradicts another one."""


class SettingTooLate(DevicesError, RuntimeError):
    """A memory setting was to change after the devices were made."""


class UnknownDevice(DevicesError, ValueError):
    """No device has this name."""


class LiveError(BfcvizError):
    """A framework cannot be served or watched as was asked; it works on as it did."""


class Lapped(BfcvizError):
    """The ring's writer overtook this reader; `missed` events are gone, reading goes on at `resume_at`."""

    def __init__(self, missed: int, resume_at: int) -> None:
        self.missed = missed
        self.resume_at = resume_at
        super().__init__(
            f"{missed} events were overwritten before they were read; call resync() to go on at event "
            f"{resume_at}, read more often, give the log more capacity, or record to a folder"
        )


class TraceError(BfcvizError):
    """Events that contradict each other, or a step outside the trace."""


class FileError(BfcvizError, ValueError):
    """A file that cannot be read: `path`, where in it (`place`) and why (`cause`)."""

    def __init__(self, path: object, place: str, cause: str) -> None:
        self.path = str(path)
        self.place = place
        self.cause = cause
        super().__init__(f"{path}: {place}: {cause}" if place else f"{path}: {cause}")


class OtherFiles(FileError):
    """A folder to be emptied holds more than a recording: `names` are the others. Nothing was removed."""

    def __init__(self, path: object, names: Sequence[str]) -> None:
        self.names = tuple(names)
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        super().__init__(
            path,
            "",
            f"holds more than a recording ({some}); choose another folder with -o, or move these files away",
        )


class FolderTaken(FileError):
    """The folder for a recording already holds something, such as another process's recording."""


class MissingExtra(BfcvizError, ImportError):
    """An optional package is not installed; says which feature needs it and the exact command."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(f"{feature} needs {package}: pip install 'bfcviz[{extra}]'")
