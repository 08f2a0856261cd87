"""RMM: its rounding, the words of its settings, and its messages."""

from typing import Final

from bfcviz.formats.message_grammar import messages_of
from bfcviz.formats.setting_words import SettingWords

# ------------------------------------------------------------------------------
# Rules and settings.

UNIT: Final = 256
"""RMM's alignment: sizes are rounded up to it."""


def round_up(requested: int) -> int:
    """Bytes that RMM rounds a request up to."""
    return -(-requested // UNIT) * UNIT


_LOG: Final = "bfcviz record --rmm, or rmm.enable_logging(log_file_name=path)"

WORDS: Final = SettingWords(
    title="RMM",
    limit="rmm.mr.PoolMemoryResource(upstream, maximum_pool_size={size})",
    one_region="rmm.mr.PoolMemoryResource(upstream, initial_pool_size={size})",
    other="rmm.mr.CudaAsyncMemoryResource()",
    heap=_LOG,
    history=_LOG,
)

# ------------------------------------------------------------------------------
# What RMM says when a request fails.


MESSAGES: Final = messages_of(r"""
rmm-pool | RMM | behind=80
    = The pool could not grow: its maximum is reached, or its upstream refused. Old versions say no more.
    in rmm/mr/pool_memory_resource.hpp (since 25.10 cpp/src/mr/detail/pool_memory_resource_impl.cpp)
    > Maximum pool size exceeded
    > FAILURE maximum pool size exceeded
    requested: bytes of the request <- "exceeded (failed to allocate {size}"
        "current/max/try size = {skip}, {skip}, {size}" "[Upstream {number}B]"
    reserved: what the pool holds <- "current/max/try size = {size}"
    limit: the maximum of the pool <- "current/max/try size = {skip}, {size}"
    mark upstream <- "CUDA error" "cudaErrorMemoryAllocation"
    mark arena <- "No room in arena"
    version 24.10 or later <- "current/max/try"
    version 24.04 or later <- "failed to allocate"
rmm-limit | RMM
    = A limiting adaptor reached its limit, or one request is larger than its resource allows.
    in rmm/mr/limiting_resource_adaptor.hpp
    > Exceeded memory limit
    > Maximum allocation size exceeded
    requested: bytes of the request <- "(failed to allocate {size}"
    mark adaptor <- "Exceeded memory limit" "Maximum allocation size"
rmm-driver | RMM
    = The driver refused the request.
    in rmm/detail/error.hpp, RMM_CUDA_TRY_ALLOC
    > out_of_memory: CUDA error
    > bad_alloc: CUDA error at: {word}rmm/{word} cudaErrorMemoryAllocation
    > RMM_ERROR_OUT_OF_MEMORY
    requested: bytes of the request <- "(failed to allocate {size}" "Attempted to allocate: {size}"
    mark upstream <- "CUDA error" "RMM_ERROR"
""")
