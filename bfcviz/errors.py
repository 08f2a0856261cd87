"""Every error bfcviz raises.

::

    BfcvizError
    ├── OutOfMemory        (also MemoryError)   no free chunk fits, the pool cannot grow, no garbage to collect
    ├── AllocatorError
    │   ├── InvalidRequest (also ValueError)    an impossible size, alignment or option
    │   ├── InvalidFree    (also ValueError)
    │   │   ├── DoubleFree                      the chunk at this address is already free
    │   │   ├── InteriorPointer                 inside a chunk in use, not at its start
    │   │   └── ForeignPointer                  in no region of this heap
    │   ├── SubAllocatorError                   a sub-allocator returned invalid memory
    │   ├── GuardOverrun                    guard words around a chunk were overwritten
    │   ├── DeviceError                         CUDA failed, or there is no driver or device
    │   └── BrokenInvariant                     the heap's state is inconsistent: a bug in bfcviz
    ├── DevicesError                        an impossible device or memory setting; nothing was changed
    │   ├── SettingError   (also ValueError)    an invalid value, or one that contradicts another
    │   ├── SettingTooLate (also RuntimeError)  the devices exist already
    │   └── UnknownDevice  (also ValueError)    no device has this name
    ├── LiveError                           a framework cannot be watched in this way; it was not changed
    ├── Lapped                                  the ring's writer overtook a reader
    ├── TraceError                              events that contradict each other
    ├── FileError          (also ValueError)    a file that cannot be read: names file, position and cause
    │   ├── OtherFiles                          a folder to empty holds more than a recording
    │   └── FolderTaken                         the folder for a recording is not empty
    └── MissingExtra       (also ImportError)   an optional package is not installed
"""

import errno
import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from bfcviz.units import format_bytes


class BfcvizError(Exception):
    """The base of every error of this package."""


class OutOfMemoryStats(Protocol):
    """What `OutOfMemory.of` reads of a heap, in bytes; an allocator's `Stats` have these fields."""

    @property
    def pool_bytes(self) -> int:
        """Bytes granted by the sub-allocator of a heap that ran out of memory."""

    @property
    def bytes_in_use(self) -> int:
        """Bytes in chunks in use of a heap that ran out of memory."""

    @property
    def largest_free_chunk(self) -> int:
        """Bytes of the largest free chunk of a heap that ran out of memory."""

    @property
    def bytes_limit(self) -> int:
        """The memory limit of the pool."""


class OutOfMemoryTotals(NamedTuple):
    """`OutOfMemoryStats` of a heap without `Stats`, in bytes."""

    pool_bytes: int
    bytes_in_use: int
    largest_free_chunk: int
    bytes_limit: int


class OutOfMemory(BfcvizError, MemoryError):
    """A request failed because no chunk could serve it; carries the numbers of that moment, all in bytes.

    Attributes:
        requested: size that the caller asked for.
        rounded: `requested` rounded up to a multiple of 256.
        free_bytes: free bytes in the pool.
        largest_free_chunk: size of the largest free chunk.
        pool_bytes: bytes granted by the sub-allocator.
        bytes_limit: the heap's memory limit.
        others: name, pool bytes and bytes in use of each other heap that shares the limit.
    """

    def __init__(  # noqa: PLR0913  the error carries these numbers
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
        # Not super(): a subclass may also derive from a framework's error, whose arguments differ.
        Exception.__init__(
            self,
            f"out of memory: {format_bytes(requested)} requested (rounded to {rounded} bytes); "
            f"{format_bytes(free_bytes)} free, largest free chunk {format_bytes(largest_free_chunk)}; "
            f"pool {format_bytes(pool_bytes)}, limit {format_bytes(bytes_limit)}. "
            + _out_of_memory_heaps_text(self.others)
            + _out_of_memory_advice(
                rounded, free_bytes, pool_bytes + sum(other[1] for other in self.others), bytes_limit
            ),
        )

    @classmethod
    def of(
        cls,
        requested: int,
        totals: OutOfMemoryStats,
        *,
        rounded: int | None = None,
        others: Iterable[tuple[str, OutOfMemoryStats]] = (),
    ) -> "OutOfMemory":
        """The error for a failed request; every allocator and observer makes it here.

        Args:
            requested: bytes that the caller asked for.
            totals: of the heap that failed.
            rounded: `requested` after rounding up; by default to a multiple of 256.
            others: name and totals of each other heap that shares its limit.
        """
        return cls(
            requested=requested,
            rounded=-(-requested // 256) * 256 if rounded is None else rounded,
            free_bytes=totals.pool_bytes - totals.bytes_in_use,
            largest_free_chunk=totals.largest_free_chunk,
            pool_bytes=totals.pool_bytes,
            bytes_limit=totals.bytes_limit,
            others=_out_of_memory_heaps(others),
        )

    def numbers(self) -> dict[str, Any]:
        """The attributes of `OutOfMemory` by name, as arguments that make an equal error."""
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
        """An equal error without traceback and context, to store: those would keep the program's frames alive."""
        return OutOfMemory(**self.numbers())

    def for_request(self, requested: int) -> "OutOfMemory":
        """The same failure with the size that the caller of a wrapper requested; `rounded` stays."""
        return OutOfMemory(**{**self.numbers(), "requested": requested})

    def beside(self, others: Iterable[tuple[str, OutOfMemoryStats]]) -> "OutOfMemory":
        """The same failure with the heaps that share the limit: name and totals of each."""
        return OutOfMemory(**{**self.numbers(), "others": _out_of_memory_heaps(others)})

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(OutOfMemory, **self.numbers()), ()


def _out_of_memory_heaps(heaps: Iterable[tuple[str, OutOfMemoryStats]]) -> list[tuple[str, int, int]]:
    """What `OutOfMemory` says of other heaps in `others`: those whose pool is not empty."""
    return [(name, totals.pool_bytes, totals.bytes_in_use) for name, totals in heaps if totals.pool_bytes]


def _out_of_memory_heaps_text(others: tuple[tuple[str, int, int], ...]) -> str:
    if not others:
        return ""
    pools, in_use = sum(pool for _, pool, _ in others), sum(used for _, _, used in others)
    most = sorted(others, key=lambda other: -other[1])
    names = ", ".join(f"{name} {format_bytes(pool)}" for name, pool, _ in most[:3])
    return (
        f"Heaps of other streams hold {format_bytes(pools)} of this limit, {format_bytes(in_use)} in use "
        f"({names}{', ...' if len(most) > 3 else ''}). "
    )


def _out_of_memory_advice(rounded: int, free_bytes: int, pool_bytes: int, bytes_limit: int) -> str:
    if free_bytes >= rounded:
        return "The free memory is fragmented: look at the chunks in use between the free chunks."
    if pool_bytes + rounded <= bytes_limit:
        return (
            "The limit allows more, but the sub-allocator gave none: free device memory or lower the limit."
        )
    return "Free some chunks, lower the request, or raise the limit."


class AllocatorError(BfcvizError):
    """A call to the heap failed; the heap was not changed."""


class InvalidRequest(AllocatorError, ValueError):
    """An impossible size, alignment or option."""


class InvalidFree(AllocatorError, ValueError):
    """An address that `free` cannot accept; carries it as `address`."""

    def __init__(self, address: int, message: str) -> None:
        self.address = address
        super().__init__(message)


class DoubleFree(InvalidFree):
    """The chunk that begins at this address is already free."""


class InteriorPointer(InvalidFree):
    """The address lies inside a chunk in use, not at its start."""


class ForeignPointer(InvalidFree):
    """The address lies in no region of this heap."""


class SubAllocatorError(AllocatorError):
    """A sub-allocator returned invalid memory: overlapping, misaligned or too small."""


class GuardOverrun(AllocatorError):
    """Guard words were overwritten: a program wrote out of bounds of its chunk; carries what was found as `damages`."""

    def __init__(self, damages: Sequence[object]) -> None:
        self.damages = tuple(damages)
        super().__init__("; ".join(map(str, damages)))


class DeviceError(AllocatorError):
    """CUDA failed or is missing; carries the driver's `status`, 0 if no driver was called."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class BrokenInvariant(AllocatorError):
    """The heap's state is inconsistent: a bug in bfcviz, found by `check_invariants()`."""


class DevicesError(BfcvizError):
    """An impossible device or memory setting; no setting was changed."""


class SettingError(DevicesError, ValueError):
    """A memory setting that is invalid, or that contradicts another one."""


class SettingTooLate(DevicesError, RuntimeError):
    """A memory setting was changed after the devices were made."""


class UnknownDevice(DevicesError, ValueError):
    """No device has this name."""


class LiveError(BfcvizError):
    """A framework cannot be served or watched as requested; it works as before."""


class Lapped(BfcvizError):
    """The ring's writer overtook this reader; `missed` events are lost, the next readable event is `resume_at`."""

    def __init__(self, missed: int, resume_at: int) -> None:
        self.missed = missed
        self.resume_at = resume_at
        super().__init__(
            f"{missed} events were overwritten before they were read; call resync() to continue at event "
            f"{resume_at}, read more often, give the log more capacity, or record to a folder"
        )


class TraceError(BfcvizError):
    """Events that contradict each other, or a step outside the trace."""


class FileError(BfcvizError, ValueError):
    """A file cannot be read: carries its `path`, the position in it (`place`) and the `cause`."""

    def __init__(self, path: object, place: str, cause: str) -> None:
        self.path = str(path)
        self.place = place
        self.cause = cause
        super().__init__(f"{path}: {place}: {cause}" if place else f"{path}: {cause}")


class EmptyPath(FileError):
    """The path is empty, as of a variable of the shell that is not set: a `Path` of it would be the current folder."""

    def __init__(self) -> None:
        super().__init__("an empty path", "", "names no file: give a file or a folder, or . for this one")


class OtherFiles(FileError):
    """A folder to empty holds more than a recording: `names` are the other files. Nothing was removed."""

    def __init__(self, path: object, names: Sequence[str]) -> None:
        self.names = tuple(names)
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        super().__init__(
            path,
            "",
            f"holds more than a recording ({some}); choose another folder with -o, or move these files away",
        )


class FolderTaken(FileError):
    """The folder for a recording is not empty; it may hold the recording of another process."""


class NoMessage(FileError):
    """A text file tells nothing of memory that ran out, and has no format that bfcviz reads."""


class MissingExtra(BfcvizError, ImportError):
    """An optional package is not installed; the message names the feature and the install command."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(f"{feature} needs {package}: pip install 'bfcviz[{extra}]'")


def system_error_cause(error: int | OSError) -> str:
    """The cause of an error of the operating system, as a clause."""
    number = error.errno if isinstance(error, OSError) else error
    if not number:
        return str(error)
    limit = " (ulimit -f, or the file system, limits the size of files)" if number == errno.EFBIG else ""
    return f"{os.strerror(number)}{limit}"
