"""Walker: gives each Python stack that comes a number, and asks what to call it when it is new."""

import ctypes
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bfcviz.live.capture import stack_walk  # type: ignore[attr-defined]  # C: walk.pxd

_FUNCTIONS = ("PyFrame_GetBack", "PyFrame_GetLasti")  # public, but not in every header


class Walker:
    """Walks the stack of whoever calls; a stack seen before costs no more than that.

    Args:
        tell: of a stack's innermost frame, and the number of the label in force: the number of both, or 0 where there
            is none to be had now.
        depth: frames that are looked at, from the innermost.
        most: stacks that are told apart; further ones go by their label alone.
    """

    def __init__(self, tell: Callable[[FrameType, int], int], depth: int, most: int) -> None:
        self.tell = tell
        api = tuple(
            ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _FUNCTIONS
        )
        self.walk = stack_walk.new(api, tell, depth, most)

    def __dealloc__(self) -> None:
        stack_walk.delete(self.walk)

    def number(self, label: int) -> int:
        """The number of this stack and a label; the label's own where there is none."""
        return stack_walk.number(self.walk, label)

    def hook(self) -> tuple[int, int]:
        """Context and C function `uint32_t (*)(void *, uint32_t label)`, for as long as this lives."""
        return stack_walk.hook(self.walk)

    @property
    def stacks(self) -> int:
        """How many were told apart."""
        return self.walk.count

    @property
    def missed(self) -> int:
        """Allocations that got no stack: made without the GIL or in the midst of an error, or of a stack too many."""
        return self.walk.missed
