"""CuPy's memory pool: how it rounds sizes, and the words of its settings."""

from typing import Final

from bfcviz.formats.message_grammar import messages_of
from bfcviz.formats.setting_words import SettingWords

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

MESSAGES: Final = messages_of(r"""
cupy | CuPy | behind=40
    = The pool of CuPy asked the driver, returned its free blocks, asked again, and was refused; or it reached its own
        limit, which the text then names.
    in cupy/cuda/memory.pyx, OutOfMemoryError
    > Out of memory allocating {number} bytes
    > out of memory to allocate {number} bytes
    requested: bytes of the request, rounded to 512 <- "allocating {size}" "to allocate {size}"
    allocated: what the pool holds, in use or free <- "allocated so far: {size}"
    total_with_request: the pool and the refused request (CuPy up to 5) <- "(total {size})"
    limit: the limit that was set <- "limit set to: {size}"
    version 6 or later <- "limit set to" "allocated so far"
    version 1 to 5 <- "(total"
""")
