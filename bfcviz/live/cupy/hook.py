"""CupyHook: what stands between CuPy and the heaps, one for each stream of each device.

::

    cupy.empty -> serve -> CuPy's CFunctionAllocator -> malloc (C, cupy_gate) -> heap of (device, stream)
                     `-> desk.recover: why there is none                   `-> desk.more: a stream that is new
    last reference gone -> free (C) -> the heap it came from
                              `-> desk.hold: freed under another stream than its own

Nothing of this is Python code but for the calls of the desk.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bfcviz.allocator.bfc import BFCAllocator
    from bfcviz.live.cupy import cupy_functions  # type: ignore[attr-defined]  # C: cupy_gate.pxd


class CupyHook:
    """Serves CuPy from heaps. Lives, with them, for as long as CuPy has any of their memory.

    Args:
        desk: asked on rare paths; see `cupy_desk.Desk`.
        stream_of: address of the C function `intptr_t (int device)` that tells CuPy's current stream.
        labels: number of the table its labels are in (`labels.use`).
        walker: records Python stacks; None: none are wanted.

    Attributes:
        malloc: CuPy's allocator around `functions`.
        plain: CuPy's allocator before this, asked while this is not open.
        is_open: whether new requests are served; frees are at all times.
    """

    def __init__(self, desk: Any, stream_of: int, labels: int, walker: Any = None) -> None:
        self.desk = desk
        self.walker = walker
        self.malloc: Any = None
        self.plain: Any = None
        self.is_open = False
        self.gate = cupy_functions.new(self, desk, stream_of, labels, walker)

    def __dealloc__(self) -> None:
        cupy_functions.delete(self.gate)

    def serve(self, size: Any) -> Any:
        """CuPy's allocator: a MemoryPointer. CuPy does not look whether C gave it NULL, so this does."""
        if not self.is_open:
            return self.plain(size)
        pointer = self.malloc(size)
        if pointer.ptr == 0 and size > 0:
            return self.desk.recover(self, size) if self.is_open else self.plain(size)
        return pointer

    def functions(self) -> tuple[Any, ...]:
        """For CuPy's allocators: param, malloc and free in C."""
        return cupy_functions.functions(self.gate)

    def add(self, allocator: "BFCAllocator", device: int, stream: int) -> None:
        """Serve a stream of a device from a heap."""
        cupy_functions.add(self.gate, allocator, device, stream)

    def move(self, device: int, old: int, stream: int) -> None:
        """Let the heap of one stream, which is gone, serve another."""
        cupy_functions.move(self.gate, device, old, stream)

    def stream(self, device: int) -> int:
        """CuPy's current stream: its handle; 0 the legacy default one, negative a default one of this thread alone."""
        return int(cupy_functions.stream(self.gate, device))

    def give_back(self, pointer: int, device: int, _stream: int) -> None:
        """Free memory of any of its heaps."""
        cupy_functions.give_back(self.gate, pointer, device)

    def count(self, _noted: int, held: int) -> None:
        """How many frees wait; where none do, a request need not look after them."""
        self.gate.held = held

    @property
    def out(self) -> int:
        """Chunks that CuPy has."""
        return int(self.gate.out)

    @property
    def inside(self) -> int:
        """Calls of CuPy's that are under way, in all threads."""
        return int(self.gate.inside)

    def end(self) -> None:
        """Python ends: call none from here on, and let everything lie."""
        self.is_open = False
        cupy_functions.end(self.gate)
