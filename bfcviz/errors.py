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
    └── MissingExtra       (also ImportError)   an optional package is not installed
"""

from collections.abc import Sequence

from bfcviz.units import format_bytes


class BfcvizError(Exception):
    """The root of every error of this package."""


class OutOfMemory(BfcvizError, MemoryError):
    """A request no chunk could serve; carries the numbers of that moment, all in bytes.

    Attributes:
        requested: what the caller asked for.
        rounded: `requested` rounded up to a multiple of 256.
        free_bytes: free bytes in the pool.
        largest_free_chunk: the largest piece of them.
        pool_bytes: bytes got from the sub-allocator.
        bytes_limit: the heap's memory limit.
    """

    def __init__(  # noqa: PLR0913  six numbers are what this error is for
        self,
        *,
        requested: int,
        rounded: int,
        free_bytes: int,
        largest_free_chunk: int,
        pool_bytes: int,
        bytes_limit: int,
    ) -> None:
        self.requested = requested
        self.rounded = rounded
        self.free_bytes = free_bytes
        self.largest_free_chunk = largest_free_chunk
        self.pool_bytes = pool_bytes
        self.bytes_limit = bytes_limit
        super().__init__(
            f"out of memory: {format_bytes(requested)} asked for (rounded to {rounded} bytes); "
            f"{format_bytes(free_bytes)} free, in pieces of at most {format_bytes(largest_free_chunk)}; "
            f"pool {format_bytes(pool_bytes)} of a limit of {format_bytes(bytes_limit)}. "
            + _advice(rounded, free_bytes, pool_bytes, bytes_limit)
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


class MissingExtra(BfcvizError, ImportError):
    """An optional package is not installed; says which feature needs it and the exact command."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(f"{feature} needs {package}: pip install 'bfcviz[{extra}]'")
