"""What is recorded with each allocation: nothing, the label in force, or the Python stack as well.

    "nothing"   no name at all
    "label"     the name that `label` gives
    "stack"     that, and the stack: its names are interned, so that a stack costs its text once

What each adds to NumPy's array and its drop (200 ns when served, on one machine; tests/bench/capture_cost.py prints
the table for yours): a label nothing that could be measured; a stack 60 to 110 ns, and with every frame 8 ns where it
was walked before and stands still, 35 ns where its function was called anew; a stack that was never seen 28 us.
"""

from dataclasses import dataclass
from types import FrameType
from typing import Final, Literal

from bfcviz.errors import BfcvizError, LiveError
from bfcviz.events.labels import Labels
from bfcviz.live.capture import labels as names
from bfcviz.live.capture.stack_walker import Walker
from bfcviz.live.shared.compiled import require_compiled

Chosen = Literal["nothing", "label", "stack"]

DEEPEST: Final = 128
MOST: Final = 65_536
"""Stacks of one heap that are told apart; recursion could make any number."""

_ALWAYS_HIDDEN: Final = ("bfcviz", "_frozen_importlib", "_frozen_importlib_external")


@dataclass(frozen=True)
class Stacks:
    """How stacks are recorded.

    Attributes:
        hide: modules whose frames are left out, with those inside them; bfcviz's own and Python's importing always are.
        depth: frames that are looked at, from the innermost, hidden ones included: at most 128.
    """

    hide: tuple[str, ...] = ("numpy",)
    depth: int = 32


class Capture:
    """Says what to write into the `label` of an allocation that this thread makes now.

    Args:
        labels: the table of names.
        what: `nothing`, `label`, `stack`, or how stacks are wanted.

    Attributes:
        labels: the table.
        walker: walks the stacks, None where they are not wanted.

    Raises:
        LiveError: it is none of these, or stacks are wanted where bfcviz is not compiled.
    """

    def __init__(self, labels: Labels, what: Chosen | Stacks = "label") -> None:
        stacks = Stacks() if what == "stack" else what
        self.labels = labels
        self.walker: Walker | None = None
        self._named = what != "nothing"
        if isinstance(stacks, Stacks):
            if not 0 < stacks.depth <= DEEPEST:
                raise LiveError(
                    f"stacks of {stacks.depth} frames were asked for; give a depth from 1 to {DEEPEST}"
                )
            require_compiled("Recording Python stacks")
            self.walker = Walker(_Teller(labels, stacks), stacks.depth, MOST)
        elif what not in {"nothing", "label"}:
            raise LiveError(f"capture={what!r} was asked for; choose nothing, label, stack or Stacks(...)")

    def number(self) -> int:
        """The number to write, 0 for none. For heaps that are told of each allocation in Python."""
        label = names.number_in(self.labels) if self._named else 0
        return label if self.walker is None else self.walker.number(label)

    def use(self) -> int:
        """For heaps that read it in C: have labels interned here; the table's number, 0 where none are wanted."""
        return names.use(self.labels) if self._named else 0


class _Teller:
    """Writes a new stack's text into the table."""

    def __init__(self, labels: Labels, stacks: Stacks) -> None:
        self._labels = labels
        self._depth = stacks.depth
        self._hidden = _ALWAYS_HIDDEN + stacks.hide
        self._inside = tuple(f"{name}." for name in self._hidden)

    def __call__(self, frame: FrameType, label: int) -> int:
        """Called in the midst of an allocation, once for each stack; see `Walker`."""
        try:
            seen = self._visible(frame)
            if not seen:
                return label
            name = self._labels.name(label) or _function(seen[0])
            return self._labels.intern(name, stack="\n".join(_line(each) for each in seen))
        except (BfcvizError, RecursionError, MemoryError):
            return 0

    def _visible(self, innermost: FrameType) -> list[FrameType]:
        seen, frame = [], innermost
        for _ in range(self._depth):
            module = frame.f_globals.get("__name__", "")
            if module not in self._hidden and not str(module).startswith(self._inside):
                seen.append(frame)
            if frame.f_back is None:
                break
            frame = frame.f_back
        return seen


def _function(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]})"


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
