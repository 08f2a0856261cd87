"""Memory dumps of TensorFlow, made byte by byte."""

from unit.importers.profile_maker import chunk, number

BASE = 0x7F00_0000_0000


def mem_chunk(address: int, size: int, requested: int = 0, name: str = "", **more: int) -> bytes:
    """A chunk is in use if it has a `requested` size. `more`: freed_at_count, action_count, step_id."""
    out = number(1, address) + number(2, size) + number(3, requested) + number(4, -1 if requested else 0)
    if name:
        out += chunk(5, name.encode())
    for key, field in (("freed_at_count", 6), ("action_count", 7), ("step_id", 9)):
        if key in more:
            out += number(field, more[key])
    return chunk(3, out + number(8, 1) * bool(requested))


def dump(*chunks: bytes, name: str = "GPU_0_bfc", stats: tuple[int, ...] = ()) -> bytes:
    sums = b"".join(number(field, value) for field, value in enumerate(stats, 1))
    return chunk(1, name.encode()) + b"".join(chunks) + (chunk(5, sums) if stats else b"")


HEAP = (
    mem_chunk(BASE, 512, 400, "conv", action_count=7, step_id=3),
    mem_chunk(BASE + 512, 1536),
    mem_chunk(BASE + 2048, 2048),  # the heap merges free neighbours of one region
    mem_chunk(BASE + 8192, 256, 1),
)
