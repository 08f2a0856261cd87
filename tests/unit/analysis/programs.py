"""Recordings of small programs whose differences are known."""

from dataclasses import dataclass, field

from unit.figures.synthetic import KiB, MiB, PlainHeap

from bfcviz.analysis.recording_alignment import AlignedHolders, AlignedSide

LEAK = 4 * KiB


@dataclass
class Training:
    """Steps of four activations of `batch` bytes; more with the options.

    Args:
        steps: how many.
        batch: bytes of an activation.
        leak: whether every step keeps 4 KiB in `history/append`.
        more: label -> bytes of one further activation.
        without: labels of activations that are left out.
        mark: the name of the marks after each step; None: no marks.
        first: the value of the first mark; None: all values are 0.
        labelled: whether allocations have labels.
        stack: the line of code of each activation; None: no stacks.
    """

    steps: int = 12
    batch: int = 256 * KiB
    leak: bool = False
    more: dict = field(default_factory=dict)
    without: tuple = ()
    mark: str | None = "step"
    first: int | None = 0
    labelled: bool = True
    line: int | None = None

    def trace(self):
        heap = PlainHeap(64 * MiB)
        self.allocate(heap, 2 * MiB, "weights")
        for step in range(self.steps):
            names = [f"forward/layer_{number}" for number in range(4)]
            sizes = dict.fromkeys(names, self.batch) | self.more
            held = [
                self.allocate(heap, size, name) for name, size in sizes.items() if name not in self.without
            ]
            if self.leak:
                self.allocate(heap, LEAK, "history/append")
            for address in held:
                heap.free(address)
            if self.mark is not None:
                heap.mark(self.mark, 0 if self.first is None else self.first + step)
        return heap.trace()

    def allocate(self, heap, size, name):
        if self.line is not None and name.startswith("forward"):
            name = f"model.py:{self.line + int(name[-1])} forward"
        return heap.allocate(size, name if self.labelled else "")


def sides(a, b, by="op"):
    """The two sides of a comparison of two traces."""
    return AlignedSide("A", a, 0, by), AlignedSide("B", b, 0, by)


def common(a, b, by="op"):
    """The sides, and the holders of both."""
    found = sides(a, b, by)
    return *found, AlignedHolders(*found)
