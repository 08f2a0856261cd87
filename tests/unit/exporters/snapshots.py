"""Small heaps to export, and a plain reading of what was written."""

import pickle
import pickletools

from unit.figures.synthetic import KiB, MiB, PlainHeap

from bfcviz.events.label_table import Labels
from bfcviz.model.model import Model

VIEWER_READS = {
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET",
    "LONG_BINGET", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE",
    "EMPTY_LIST", "APPEND", "APPENDS", "LIST", "EMPTY_DICT", "SETITEM", "SETITEMS", "DICT", "EMPTY_TUPLE", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3",
}  # fmt: skip
"""The opcodes of pickle that PyTorch's MemoryViz.js knows."""


def heap_with_everything():
    """Allocations with a stack, a phase, a mark, an OOM, two regions."""
    heap = PlainHeap(8 * MiB, 2, Labels())
    heap.mark("forward begins", 7, begins="forward")
    first = heap.allocate(2 * MiB, "relu (net.py)", stack="relu (/home/me/net.py:12)\nmain (run.py:3)")
    second = heap.allocate(3 * MiB, "conv", shape="[3,4]")
    heap.free(first)
    heap.mark("forward ends", 7, ends="forward")
    heap.allocate(700 * KiB)
    heap.free(second)
    heap.mark("epoch", 1)
    heap.allocate(7 * MiB + 512 * KiB, "second region")
    heap.allocate(1 << 40, "too large")
    return heap.trace()


def chunks_at(trace, step, pool=0):
    model = Model(trace, pool)
    model.seek(step)
    fields = ["address", "size", "requested", "in_use"]
    return model.chunks()[fields].tolist()


def loaded(path):
    """The pickle, which holds nothing that the viewer cannot read."""
    data = path.read_bytes()
    names = {opcode.name for opcode, _, _ in pickletools.genops(data)}
    assert names <= VIEWER_READS
    assert data[:2] == b"\x80\x04"
    return pickle.loads(data)  # noqa: S301  our own
