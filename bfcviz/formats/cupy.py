"""CuPy's memory pool: how it rounds sizes, and the words of its settings."""

from typing import Final

from bfcviz.formats.settings import SettingWords

# ------------------------------------------------------------------------------
# Rules: how CuPy's pool rounds sizes. A cached chunk is always split to the rounded size.
#
# Source: cupy/cuda/memory.pyx of CuPy at commit 005d7598ad30 (`_get_size`, `_split`).

UNIT: Final = 512
"""Sizes are rounded up to a multiple of this, in bytes."""


def round_up(requested: int) -> int:
    """Bytes of the chunk that serves a request of at least 1 byte."""
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
