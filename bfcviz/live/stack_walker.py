"""Walker: gives each Python stack a number; a callback names each new stack."""

import ctypes
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bfcviz.live import stack_walk  # type: ignore[attr-defined]  # C: stack_walk.pxd

DEEPEST = 1024
"""The most frames of a stack that are walked."""

WALK_ON = (1 << 32) - 1
"""An answer of `name_stack`: ask again with more frames, if the stack has more."""

_FUNCTIONS = ("PyFrame_GetBack", "PyFrame_GetLasti")  # public, but not in every header


class Walker:
    """Walks the stack of the calling thread; for a known stack that is the whole cost.

    Args:
        name_stack: takes a stack's innermost frame, the number of the current label and how many frames were compared;
            returns the number of both; 0: there is none now, ask again at the next allocation; or WALK_ON, but not
            where the stack ends there or DEEPEST frames were compared.
        depth: frames to compare, from the innermost; more after each WALK_ON.
        most: stacks to distinguish; further ones get their label alone.
    """

    def __init__(self, name_stack: Callable[[FrameType, int, int], int], depth: int, most: int) -> None:
        self.name_stack = name_stack
        api = tuple(
            ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _FUNCTIONS
        )
        self.walk = stack_walk.new(api, name_stack, depth, most)

    def __dealloc__(self) -> None:
        stack_walk.delete(self.walk)

    def number(self, label: int) -> int:
        """The number of this stack and a label; the label's own number if the stack has none."""
        return stack_walk.number(self.walk, label)

    def hook(self) -> tuple[int, int]:
        """Context and C function `uint32_t (*)(void *, uint32_t label)`, valid as long as this object."""
        return stack_walk.hook(self.walk)

    @property
    def stacks(self) -> int:
        """How many stacks were distinguished."""
        return self.walk.count

    @property
    def missed(self) -> int:
        """Allocations without a stack: without the GIL, while an error was raised, or beyond the most stacks."""
        return self.walk.missed
