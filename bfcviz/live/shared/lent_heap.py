"""The heap behind a framework's memory, which must not be closed under it."""

from typing import ClassVar, Final

from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.errors import AllocatorError
from bfcviz.units import format_bytes

OPTIONS: Final = AllocatorOptions(allow_growth=True, garbage_collection=True)
"""As suits a program among others: a heap begins small, and gives wholly free regions back before it fails."""


class LentHeap(BFCAllocator):
    """A heap of which a framework has chunks.

    Attributes:
        is_serving: whether the framework may ask for more.
        users: who has the chunks.
        advice: how to get them back.
    """

    is_serving = False
    users: ClassVar[str]
    advice: ClassVar[str]

    def close(self) -> None:
        """Give all memory back; raises AllocatorError while the framework has any of it, or may ask for more."""
        held = self.stats()
        if self.is_serving or held.chunks_in_use:
            raise AllocatorError(
                f"{held.chunks_in_use} chunks ({format_bytes(held.bytes_in_use)}) are in use by {self.users}: "
                f"{self.advice}"
            )
        super().close()
