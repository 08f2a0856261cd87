"""What is recorded with each allocation: nothing, the current label, or the Python stack as well.

    "nothing"   no name
    "label"     the name that `label` sets
    "stack"     the label and the stack; stacks are interned, so each stores its text once

A stack is read to the first frame of the program's own code, however deep libraries call each other above it: 10 ns
per frame, 15 ns beyond 300.

Costs per served NumPy array, allocated and freed (200 ns in all, on one machine; tests/bench/capture_cost.py prints the
table for yours): labels add no measurable cost. A stack adds 60 to 110 ns, and per frame 8 ns if the frame is the one
walked before, 35 ns if its function was called again: at most 3 % of a training step. A new stack costs 45 us once.
"""

from dataclasses import dataclass
from types import FrameType
from typing import Final, Literal

from bfcviz.errors import BfcvizError, LiveError
from bfcviz.events.label_table import Labels
from bfcviz.live import labels_and_marks
from bfcviz.live.c_callbacks import DEEPEST as FARTHEST
from bfcviz.live.c_callbacks import WALK_ON, Walker
from bfcviz.live.served_heap import IS_COMPILED, require_compiled
from bfcviz.stack_frames import CodePlace, is_own, own_place, shown_file

Chosen = Literal["nothing", "label", "stack"]

DEEPEST: Final = 128
MOST: Final = 65_536
"""The most stacks of one heap to distinguish; recursion could make any number."""

_ALWAYS_HIDDEN: Final = ("bfcviz", "_frozen_importlib", "_frozen_importlib_external")


@dataclass(frozen=True)
class Stacks:
    """How the stacks of allocations are recorded.

    Attributes:
        hide: modules whose frames are left out, with their submodules. Frames of bfcviz and of Python's import system
            always are.
        depth: frames to read, from the innermost, hidden ones included: at most 128. Each costs: 30 frames make a
            small network train 3 to 6 % slower, 12 at most 3 %. Where none of them is the program's own code, outside
            of libraries, more are read, up to the first one that is or 1,024.
    """

    hide: tuple[str, ...] = ("numpy",)
    depth: int = 12


Captured = Chosen | Stacks | None
"""What is recorded with each allocation; None: the stack, or the label alone if bfcviz is not compiled."""


class Capture:
    """Captures what names an allocation of this thread: the number of its stack, if recorded, and current label.

    Args:
        labels: the table of names.
        what: `nothing`, `label`, `stack`, or options for stacks.
        hide: modules that `stack` leaves out.

    Raises:
        LiveError: `what` is none of these, or stacks are requested and bfcviz is not compiled.
    """

    def __init__(self, labels: Labels, what: Captured = None, hide: tuple[str, ...] = Stacks.hide) -> None:
        self.note = ""  # what is missing and why, as the end of a description; empty: nothing
        if what is None and not IS_COMPILED:
            what = "label"
            self.note = ". Allocations without a label have no name: stacks need the compiled build"
        stacks = Stacks(hide) if what in ("stack", None) else what
        self.labels = labels
        self.walker: Walker | None = None  # walks the stacks; None: no stacks
        self._named = what != "nothing"
        if isinstance(stacks, Stacks):
            if not 0 < stacks.depth <= DEEPEST:
                raise LiveError(
                    f"stacks of {stacks.depth} frames were requested; give a depth from 1 to {DEEPEST}"
                )
            require_compiled("Recording Python stacks")
            self.walker = Walker(_StackNamer(labels, stacks), stacks.depth, MOST)
        elif what not in {"nothing", "label"}:
            raise LiveError(f"capture={what!r} was given; choose nothing, label, stack or Stacks(...)")

    def number(self) -> int:
        """The number of the captured stack and label, 0 for none. For heaps that record each allocation in Python."""
        label = labels_and_marks.number_in(self.labels) if self._named else 0
        return label if self.walker is None else self.walker.number(label)

    def use(self) -> int:
        """For heaps that read captured stacks in C: intern labels in this table; returns its number, 0: no labels."""
        return labels_and_marks.use(self.labels) if self._named else 0


class _StackNamer:
    """Names new stacks: writes their text into the table."""

    def __init__(self, labels: Labels, stacks: Stacks) -> None:
        self._labels = labels
        self._hidden = _ALWAYS_HIDDEN + stacks.hide
        self._inside = tuple(f"{name}." for name in self._hidden)

    def __call__(self, frame: FrameType, label: int, depth: int) -> int:
        """The number of a captured stack with a label. Called during an allocation, once per stack; see `Walker`."""
        try:
            seen, is_whole = self._visible(frame, depth)
            if not is_whole and not any(map(is_own, seen)):
                return WALK_ON
            if not seen:
                return label
            name = self._labels.name(label) or (own_place(seen) or seen[0]).name
            return self._labels.intern(name, stack=_stack_text(seen))
        except (BfcvizError, RecursionError, MemoryError):
            return 0

    def _visible(self, innermost: FrameType, depth: int) -> tuple[list[CodePlace], bool]:
        """The frames of a stack to capture: the innermost `depth` without hidden ones; whether there are no more."""
        seen: list[CodePlace] = []
        frame: FrameType | None = innermost
        for _ in range(depth):
            if frame is None:
                break
            module = frame.f_globals.get("__name__", "")
            if module not in self._hidden and not str(module).startswith(self._inside):
                code = frame.f_code
                seen.append(CodePlace(code.co_qualname, shown_file(code.co_filename), frame.f_lineno or 0))
            frame = frame.f_back
        return seen, frame is None or depth >= FARTHEST


def _stack_text(stack: list[CodePlace]) -> str:
    """A line for each frame; of a long stack both ends: the program's own code is within 16 frames of the outer one."""
    lines = [each.text for each in stack]
    if len(lines) > DEEPEST:
        half = DEEPEST // 2
        lines[half:-half] = [f"... {len(lines) - 2 * half} more frames"]
    return "\n".join(lines)
