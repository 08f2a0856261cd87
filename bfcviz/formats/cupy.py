"""CuPy's memory pool: how it rounds sizes, and the words of its settings."""

from typing import Final

from bfcviz.formats.messages import Message, Number, SettingWords

# ------------------------------------------------------------------------------
# Rules: how CuPy's pool rounds sizes. A cached chunk is always split to the rounded size.
#
# Source: cupy/cuda/memory.pyx of CuPy at commit 005d7598ad30 (`_get_size`, `_split`).

UNIT: Final = 512
"""Sizes are rounded up to a multiple of this, in bytes."""


def round_up(requested: int) -> int:
    """Bytes of the chunk of CuPy's pool that serves a request of at least 1 byte."""
    return -(-requested // UNIT) * UNIT


# ------------------------------------------------------------------------------
# Words of CuPy's settings.

LIMIT: Final = "CUPY_GPU_MEMORY_LIMIT"

WORDS: Final = SettingWords(
    title="CuPy",
    limit=f"{LIMIT}={{size}}",
    release="cupy.get_default_memory_pool().free_all_blocks()",
    other="cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)",
    heap="bfcviz record --cupy",
    history="bfcviz record --cupy",
)


# ------------------------------------------------------------------------------
# What it prints when a request fails.

MESSAGES: Final = (
    Message(
        "cupy",
        "CuPy",
        "The pool of CuPy asked the driver, returned its free blocks, asked again, and was refused; or it reached "
        "its own limit, which the text then names.",
        ("Out of memory allocating {number} bytes", "out of memory to allocate {number} bytes"),
        "cupy/cuda/memory.pyx, OutOfMemoryError",
        numbers=(
            Number(
                "requested",
                "bytes of the request, rounded to 512",
                ("allocating {size}", "to allocate {size}"),
            ),
            Number("allocated", "what the pool holds, in use or free", ("allocated so far: {size}",)),
            Number(
                "total_with_request", "the pool and the refused request (CuPy up to 5)", ("(total {size})",)
            ),
            Number("limit", "the limit that was set", ("limit set to: {size}",)),
        ),
        versions={"limit set to": "6 or later", "allocated so far": "6 or later", "(total": "1 to 5"},
        behind=40,
    ),
)
