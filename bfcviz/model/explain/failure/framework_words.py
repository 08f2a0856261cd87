"""FrameworkWords: how each framework names the settings of its heap, and how it records what a file lacks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bfcviz.model.explain.failure.settings import Family


@dataclass(frozen=True)
class FrameworkWords:
    """The settings of one framework, as a user types them. "": it has none.

    Attributes:
        title: its name for people.
        limit: sets a limit; `{size}` are bytes, `{mib}` MiB.
        share: sets a limit as a share of the device; `{share}` is from 0 to 1.
        one_region: takes the whole pool as one region at the start; `{size}` are the bytes of the limit.
        release: releases wholly free regions.
        other: an allocator that places chunks by pages, so that regions do not matter.
        fraction: sets the share of the limit at which waste is split off; `{fraction}` is from 0 to 1.
        heap: makes the next run record the chunks of a failure.
        history: makes the next run record every allocation, with its name and time.
    """

    title: str
    limit: str = ""
    share: str = ""
    one_region: str = ""
    release: str = ""
    other: str = ""
    fraction: str = ""
    heap: str = ""
    history: str = ""


_TENSORFLOW: Final = FrameworkWords(
    title="TensorFlow",
    limit="tf.config.set_logical_device_configuration(gpu, "
    "[tf.config.LogicalDeviceConfiguration(memory_limit={mib})])",
    one_region="TF_FORCE_GPU_ALLOW_GROWTH=false",
    release="TF_ENABLE_GPU_GARBAGE_COLLECTION=true",
    other="TF_GPU_ALLOCATOR=cuda_malloc_async",
    fraction="gpu_options.experimental.internal_fragmentation_fraction={fraction}",
    heap="TF_CPP_MIN_LOG_LEVEL=0",
    history="tf.profiler.experimental.start(logdir), or TF_CPP_MIN_LOG_LEVEL=0 TF_CPP_VMODULE=bfc_allocator=4 in a "
    "short run",
)

_JAX: Final = FrameworkWords(
    title="JAX",
    share="XLA_PYTHON_CLIENT_MEM_FRACTION={share}",
    one_region="XLA_PYTHON_CLIENT_PREALLOCATE=true",
    other="TF_GPU_ALLOCATOR=cuda_malloc_async",
    heap="TF_CPP_MIN_LOG_LEVEL=0",
    history="jax.profiler.start_trace(logdir)",
)

_TORCH: Final = FrameworkWords(
    title="PyTorch",
    share="torch.cuda.set_per_process_memory_fraction({share})",
    release="torch.cuda.empty_cache()",
    other="PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync",
    heap="torch.cuda.memory._dump_snapshot(path) after the failure",
    history="torch.cuda.memory._record_memory_history() at the start, or bfcviz record --torch",
)

_RMM: Final = FrameworkWords(
    title="RMM",
    limit="rmm.mr.PoolMemoryResource(upstream, maximum_pool_size={size})",
    one_region="rmm.mr.PoolMemoryResource(upstream, initial_pool_size={size})",
    other="rmm.mr.CudaAsyncMemoryResource()",
    heap="bfcviz record --rmm, or rmm.enable_logging(log_file_name=path)",
    history="bfcviz record --rmm, or rmm.enable_logging(log_file_name=path)",
)

_CUPY: Final = FrameworkWords(
    title="CuPy",
    limit="CUPY_GPU_MEMORY_LIMIT={size}",
    release="cupy.get_default_memory_pool().free_all_blocks()",
    other="cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)",
    heap="bfcviz record --cupy",
    history="bfcviz record --cupy",
)

_VULKAN: Final = FrameworkWords(
    title="VMA",
    limit="VmaAllocatorCreateInfo::pHeapSizeLimit",
    one_region="VmaPoolCreateInfo::blockSize={size}",
    other="vmaBeginDefragmentation()",
    heap="vmaBuildStatsString(allocator, &text, VK_TRUE)",
    history="bfcviz reads only states of VMA: write vmaBuildStatsString() at several moments",
)

_OWN: Final = FrameworkWords(
    title="bfcviz",
    limit="limit={size}",
    one_region="AllocatorOptions(allow_growth=False)",
    release="AllocatorOptions(garbage_collection=True)",
    fraction="AllocatorOptions(fragmentation_fraction={fraction})",
    heap="bfcviz record",
    history="bfcviz record, with bfcviz.label(name) around the calls",
)

WORDS: Final[Mapping[Family, FrameworkWords]] = {
    Family.TENSORFLOW: _TENSORFLOW,
    Family.JAX: _JAX,
    Family.TORCH: _TORCH,
    Family.RMM: _RMM,
    Family.CUPY: _CUPY,
    Family.VULKAN: _VULKAN,
    Family.OWN: _OWN,
}
"""The words of each family."""

GROWS_IN_PLACE: Final = frozenset({"cupy", "torch", "rmm"})
"""Frameworks that our heap can serve from memory that grows in place: `memory="virtual"`."""
