"""VLOG streams of `bfc_allocator.cc`, written from the naive heap, so that the reader is not tested against itself."""

import random
from dataclasses import dataclass, field

from unit.importers.naive_bfc import NaiveBFC

STACK = """*** Begin stack trace ***
\ttsl::CurrentStackTrace[abi:cxx11]()
\ttsl::BFCAllocator::AllocateRaw(unsigned long, unsigned long, tsl::AllocationAttributes const&)
\ttensorflow::OpKernelContext::allocate_temp(tensorflow::DataType, tensorflow::Tensor*)
\t{kernel}::Compute(tensorflow::OpKernelContext*)
\ttensorflow::ThreadPoolDevice::Compute(tensorflow::OpKernel*, tensorflow::OpKernelContext*)
\t
\t_start
*** End stack trace ***
"""


class RecordingBFC(NaiveBFC):
    """Notes its regions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.granted: list[tuple[int, int]] = []

    def extend(self, rounded: int, address: int) -> None:
        before = self.pool_bytes
        super().extend(rounded, address)
        self.granted.append((address, self.pool_bytes - before))


@dataclass
class VlogMaker:
    """Lines of one or more heaps; `level` 1 to 4."""

    level: int = 4
    named_threads: bool = True
    first_thread: int = 12500
    lines: list[str] = field(default_factory=list)

    def put(self, level: int, message: str, thread: int = 12500, file: str = "bfc_allocator.cc:281") -> None:
        if level > self.level:
            return
        micros = len(self.lines)
        if self.named_threads:
            prefix = f"I0000 00:00:1795253098.{micros:06d}   {thread} {file}] "
        else:
            prefix = f"2021-05-26 20:36:51.{micros:06d}: I tensorflow/core/common_runtime/{file}] "
        self.lines.append(prefix + message)

    def create(self, name: str) -> None:
        self.put(1, f"Creating new BFCAllocator named: {name}")
        self.put(1, "Creating bin of max chunk size 256B")

    def extend(self, name: str, address: int, size: int, thread: int = 12500) -> None:
        self.put(1, f"Extending allocation by {size / 2**20:.2f}MiB bytes for {name}.", thread)
        self.put(1, "Total allocated bytes: 2.00MiB", thread)
        self.put(1, f"Allocated memory at {address:#x} to {address + size:#x}", thread)

    def allocate(
        self, name: str, requested: int, address: int, thread: int = 12500, kernel: str = "CastOp"
    ) -> None:
        self.put(4, f"Returning: {address:#x}", thread)
        self.put(4, f"A: {'*' * 100}", thread)
        self.put(3, f"AllocateRaw {name}  {requested} {address:#x}", thread)
        self.put(
            4,
            f"[mem-debug] AllocateRaw,{name},{requested},{address:#x},{STACK.format(kernel=kernel)}",
            thread,
        )

    def begin(self, name: str, requested: int, thread: int = 12500) -> None:
        self.put(3, f"AllocateRaw {name}  {requested}", thread)

    def free(self, name: str, requested: int, address: int, thread: int = 12500) -> None:
        self.put(3, f"DeallocateRaw {name} {requested}", thread)
        self.put(4, f"[mem-debug] DeallocateRaw,{name},{requested},{address:#x},{STACK}", thread)
        self.put(4, f"F: {'*' * 100}", thread)

    def fail(self, name: str, requested: int, thread: int = 12500, *, soft: bool = False) -> None:
        self.begin(name, requested, thread)
        rounded = -(-requested // 256) * 256
        size = f"{requested / 2**20:.2f}MiB"
        words = f"Allocator ({name}) ran out of memory trying to allocate {size}"
        summary = "Current allocation summary follows."
        self.put(0, f"{words} (rounded to {rounded})requested by op model/conv\n{summary}", thread)
        if soft:
            self.put(
                0,
                f"{words} with freed_by_count=0. The caller indicates that this is not a failure, but",
                thread,
            )
        self.put(3, f"AllocateRaw {name}  {requested} 0", thread)
        self.put(4, f"[mem-debug] AllocateRaw,{name},{requested},0,{STACK.format(kernel='FailOp')}", thread)

    def text(self) -> str:
        return "\n".join(["some text of the program", *self.lines, ""])


def random_run(
    maker: VlogMaker, heap: RecordingBFC, name: str, count: int, *, seed: int, base: int = 1 << 40
) -> dict[int, int]:
    """Write `count` requests of a heap; returns the requested bytes by address of what stays in use."""
    rng = random.Random(seed)
    live: dict[int, int] = {}
    for place in range(count):
        thread = maker.first_thread + place % 3
        if live and rng.random() < (0.3 if len(live) < 300 else 0.6):
            address = rng.choice(list(live))
            maker.free(name, live.pop(address), address, thread)
            heap.deallocate(address)
            continue
        requested = rng.choice((rng.randint(1, 2000), rng.randint(1, 200_000)))
        maker.begin(name, requested, thread)
        known = len(heap.granted)
        address, _ = heap.allocate(requested, base + (heap.extensions + 1 << 30))
        for start, size in heap.granted[known:]:
            maker.extend(name, start, size, thread)
        maker.put(2, f"New Peak memory usage of {heap.bytes_in_use} bytes for {name}", thread)
        maker.allocate(name, requested, address, thread, kernel=f"Op{place % 5}")
        live[address] = requested
    return live
