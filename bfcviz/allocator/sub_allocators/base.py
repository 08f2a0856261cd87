"""SubAllocator: grants a heap's regions, and takes them back.

The heap calls `grant` and `take_back` without its lock and, compiled, without the GIL, from one thread at a time.
To write one in Python, derive from `PythonSubAllocator`.
"""

# ruff: noqa: ARG002, D102  the base refuses everything; it documents grant and take_back

from bfcviz import native


class SubAllocator:
    """Grants regions.

    Attributes:
        supports_coalescing: a region that begins where another ends may be joined to it; both are then released as
            one.
        discards: whether it can discard the pages of free memory (`discard`).
        operation: number of the operation being replayed, set by `BFCAllocator.replay`.
    """

    def __init__(self, *, supports_coalescing: bool = False) -> None:
        self.supports_coalescing = supports_coalescing
        self.discards = False
        self.operation = 0
        self.received = 0
        self.error: BaseException | None = None
        self.refusal: BaseException | None = None

    def grant(self, alignment: int, num_bytes: int) -> int:
        """Address of a region of at least `num_bytes`; sets `received` to its size. 0 = refused."""
        return 0

    def take_back(self, address: int, num_bytes: int) -> None:
        """Take a whole region back."""

    def discard(self, address: int, num_bytes: int) -> None:
        """Discard the contents of these bytes of a region. All are free; they may read as zeros from now on.

        Called with the heap's lock held, unlike the other two: it must be fast, and never wait.
        """


class PythonSubAllocator(SubAllocator):
    """Base class of sub-allocators written in Python: override `allocate` and `free`."""

    def allocate(self, alignment: int, num_bytes: int) -> tuple[int, int] | None:
        """Grant a region.

        Args:
            alignment: the address must be a multiple of this power of two, in bytes.
            num_bytes: the smallest size of the region.

        Returns:
            Address and number of bytes granted, or None to refuse. An exception refuses too; the heap's `allocate`
            raises it.
        """
        raise NotImplementedError

    def free(self, address: int, num_bytes: int) -> None:
        """Take a region back, whole (with coalescing: several joined ones as one)."""
        raise NotImplementedError

    def grant(self, alignment: int, num_bytes: int) -> int:
        return self.call_allocate(alignment, num_bytes)

    def take_back(self, address: int, num_bytes: int) -> None:
        self.call_free(address, num_bytes)

    def call_allocate(self, alignment: int, num_bytes: int) -> int:
        try:
            granted = self.allocate(alignment, num_bytes)
            if granted is None:
                return 0
            address, received = granted
            self.received = native.to_u64(received)
            where = native.to_u64(address)
        except BaseException as error:  # noqa: BLE001  no exception may cross the heap: kept, raised by `allocate`
            self.error = self.refusal = error
            return 0
        if self.error is self.refusal:
            self.error = None  # of the larger grants refused before this one
        return where

    def call_free(self, address: int, num_bytes: int) -> None:
        try:
            self.free(address, num_bytes)
        except BaseException as error:  # noqa: BLE001  as in call_allocate
            if self.error is None:
                self.error = error
