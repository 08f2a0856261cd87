"""TensorFlow: the rules of its BFC allocator, the words of its settings, and the folder of recorded windows."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bfcviz.formats.message_grammar import messages_of
from bfcviz.formats.setting_words import SettingWords
from bfcviz.units import GiB, MiB

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# ------------------------------------------------------------------------------
# Rules: how the BFC allocator of TensorFlow and XLA rounds, splits and grows.
#
# Sources: xla/tsl/framework/bfc_allocator.cc of TensorFlow 2.21; tensorflow/core/common_runtime/bfc_allocator.cc of the
# versions before it:
#
#     version  first region  a chunk is split                       after a refusal it tries less   garbage collection
#     1.0      1 MiB         from twice the request on              once in its life                no
#     1.10     1 MiB         the same, or to save 128 MiB and more  once in its life                no
#     2.1      1 MiB         as in 1.10                             once in its life                yes
#     2.7      2 MiB         as in 1.10                             once in its life                yes
#     2.21     2 MiB         as in 1.10, or fragmentation_fraction  with every region               an option
#
# "yes" is the default for GPUs (TF_ENABLE_GPU_GARBAGE_COLLECTION). The versions between these were not read. The heap
# of bfcviz states the same rules in C: `bfcviz.allocator.heap`.

_Sizes = TypeVar("_Sizes", int, "NDArray[np.int64]")

UNIT: Final = 256
"""Sizes are rounded up to a multiple of this, in bytes."""

FIRST_REGION: Final = 2 << 20
"""Bytes of the first region with growth; each later one has twice as many."""

WASTE: Final = 128 << 20
"""A chunk is split that would waste so many bytes, where no fraction of the limit is set."""

VERSIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "1.0": {"first_region": 1 << 20, "fragmentation_fraction": 1.0, "backs_off_once": True},
    "1.10": {"first_region": 1 << 20, "backs_off_once": True},
    "2.1": {"first_region": 1 << 20, "backs_off_once": True, "garbage_collection": True},
    "2.7": {"backs_off_once": True, "garbage_collection": True},
    "2.21": {},
}
"""The defaults of TensorFlow's versions, where they differ from those of 2.21; by the names of `AllocatorOptions`.

`backs_off_once`: it tries less after a refusal only once in its life. No chunk wastes the whole limit, so that the
fraction 1.0 leaves only the rule of twice the request.
"""


def round_up(requested: _Sizes) -> _Sizes:
    """Bytes that a chunk of TensorFlow's BFC allocator for a request needs."""
    return -(-requested // UNIT) * UNIT


def max_waste(limit: int, fraction: float) -> int:
    """Bytes of waste at which TensorFlow splits a chunk; at least 1, so that an exact fit is never split.

    Args:
        limit: the memory limit, in bytes.
        fraction: share of the limit (internal_fragmentation_fraction); 0, or no share: not set.
    """
    return max(int(fraction * limit), 1) if 0 < fraction <= 1 else WASTE


def splits(size: int, rounded: int, most: int | None) -> bool:
    """Whether TensorFlow splits a free chunk of `size` bytes for a request; `most`: its `max_waste`, None: unknown."""
    return size >= 2 * rounded or (most is not None and size - rounded >= most)


# ------------------------------------------------------------------------------
# What TensorFlow leaves to the system, and to the host's heaps.
#
# Source: MinSystemMemory in TensorFlow's gpu_device.cc: 225 MiB if less than 2 GiB are free, else by compute capability
# 500 (up to 6), 1050 (7), 1536 (8) or 1800 MiB (9 and up), for CUDA's libraries, its context and other programs.

HOST_LIMIT: Final = 64 * GiB
"""Default limit of each host heap."""

SMALL_DEVICE: Final = 2 * GiB
_KEPT_BACK: Final = ((6, 500), (7, 1050), (8, 1536))  # up to this compute capability, MiB
_NEWER: Final = 1800


def min_system_memory(available: int, major: int) -> int:
    """Bytes of `available` ones that TensorFlow leaves free on a GPU of this compute capability (major)."""
    if available < SMALL_DEVICE:
        return 225 * MiB
    return next((mib for newest, mib in _KEPT_BACK if major <= newest), _NEWER) * MiB


# ------------------------------------------------------------------------------
# Words of TensorFlow's settings.

FORCE_GROWTH: Final = "TF_FORCE_GPU_ALLOW_GROWTH"
COLLECTION: Final = "TF_ENABLE_GPU_GARBAGE_COLLECTION"
RESERVED: Final = "TF_DEVICE_MIN_SYS_MEMORY_IN_MB"
POOL_LIMIT: Final = "TF_GPU_HOST_MEM_LIMIT_IN_MB"
HOST_LIMITS: Final = {
    "bfc_cpu_allocator_for_gpu": "TF_CPU_BFC_MEM_LIMIT_IN_MB",
    "gpu_host_bfc": POOL_LIMIT,
    "cuda_host_bfc": "TF_CUDA_HOST_MEM_LIMIT_IN_MB",
}
"""What limits a heap of the host's memory, by its name; in MiB. No setting of a GPU changes these heaps.

Source: process_state.cc and gpu_process_state.cc of tensorflow/core/common_runtime (cuda_host_bfc: TensorFlow 1).
"""

PINNED_POOLS: Final = {
    "xla_gpu_host_bfc": ("XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB", "GiB"),
    "gpu_host_bfc": (POOL_LIMIT, "MiB"),
    "cuda_host_bfc": (HOST_LIMITS["cuda_host_bfc"], "MiB"),
}
"""A pool of pinned system memory -> the variable that limits it, and its unit; of a text, the first that it names.

XLA's is that of JAX, too. Source: xla/pjrt/gpu/gpu_helpers.cc; gpu_process_state.cc of TensorFlow.
"""

ASYNC: Final = "TF_GPU_ALLOCATOR=cuda_malloc_async"
CPU_BFC: Final = "TF_CPU_ALLOCATOR_USE_BFC=true TF_CPU_BFC_MEM_LIMIT_IN_MB=4000"
"""Gives the CPU a BFC heap, too."""

LOG_FAILURES: Final = "TF_CPP_MIN_LOG_LEVEL=0"
"""Makes a program print the chunks of a failure. XLA reads it, too."""

LOG_REQUESTS: Final = f"{LOG_FAILURES} TF_CPP_VMODULE=bfc_allocator=4"
"""Makes a program print each request."""

WORDS: Final = SettingWords(
    title="TensorFlow",
    limit="tf.config.set_logical_device_configuration(gpu, "
    "[tf.config.LogicalDeviceConfiguration(memory_limit={mib})])",
    one_region=f"{FORCE_GROWTH}=false",
    release=f"{COLLECTION}=true",
    other=ASYNC,
    fraction="gpu_options.experimental.internal_fragmentation_fraction={fraction}",
    heap=LOG_FAILURES,
    history=f"tf.profiler.experimental.start(logdir), or {LOG_REQUESTS} in a short run",
)

WORDS_1: Final = SettingWords(
    title="TensorFlow 1",
    share="config.gpu_options.per_process_gpu_memory_fraction = {share}",
    one_region="config.gpu_options.allow_growth = False",
    heap=LOG_FAILURES,
    history="RunOptions(report_tensor_allocations_upon_oom=True) and a RunMetadata timeline",
)
"""In TensorFlow 1, which has no asynchronous allocator."""

# ------------------------------------------------------------------------------
# The folder of recorded windows: which are complete.

WINDOW: Final = "window-"
"""The start of the folders' names; incomplete ones have a dot before it."""


def whole_windows(folder: Path) -> list[Path]:
    """The complete profiler windows in a folder that `observe_tensorflow` writes, the oldest first."""
    found = [each for each in folder.glob(f"{WINDOW}*") if each.name[len(WINDOW) :].isdecimal()]
    return sorted(found, key=lambda each: int(each.name[len(WINDOW) :]))


# ------------------------------------------------------------------------------
# What TensorFlow prints when a request fails. The BFC allocator of XLA and JAX is the same code.


GROWTH_OF_POOL: Final = re.compile(
    r"memory_limit_:\s{1,40}(\d{1,18})\s{1,40}available bytes:\s{1,40}\d{1,18}\s{1,40}"
    r"curr_region_allocation_bytes_:\s{1,40}(\d{1,18})\b"
)
"""The limit of a pool, and the region that it would ask for next."""


def is_one_region(limit: int, next_region: int) -> bool:
    """Whether a BFC pool took its whole limit at the start: then the next region would have twice as much."""
    return limit > 0 and next_region == 2 * round_up(limit)


MESSAGES: Final = messages_of(r"""
tf-bfc | TensorFlow | family=bfc behind=160
    = The BFC pool had no free chunk of this size and could not grow. With `this is not a failure` the caller goes on
        with less memory.
    in tsl/framework/bfc_allocator.cc (until 2022 tensorflow/core/common_runtime/bfc_allocator.cc)
    > ran out of memory trying to allocate
    > Ran out of memory trying to allocate
    requested: bytes of the request <- "trying to allocate {size}"
    rounded: the same as the pool rounds it, to 256 bytes <- "(rounded to {number})"
    mark soft <- "this is not a failure" "freed_by_count"
    mark host <- "(mklcpu)" "(cpu)"
    mark xla_gpu_host_bfc <- "xla_gpu_host_bfc"
    mark gpu_host_bfc <- "gpu_host_bfc"
    mark cuda_host_bfc <- "cuda_host_bfc"
    version 2.5 or later <- "TF_GPU_ALLOCATOR"
    version 2.12 or later <- "tsl/framework"
    device <- "(GPU_{number}_bfc)"
tf-async | TensorFlow | family=bfc behind=30
    = The asynchronous allocator of CUDA refused a request. The text says what is free on the device.
    in xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc (until 2023 tensorflow/core/common_runtime/gpu)
    > cuMemAllocAsync failed to allocate {number}
    requested: bytes of the request <- "failed to allocate {number}"
    device_free: free on the device <- "Free memory/Total memory: {number}/"
    device_total: the whole device <- "Free memory/Total memory: {skip}/{number}"
    mark async <- "cuMemAllocAsync"
    device <- "gpu_async_{number} cuMemAllocAsync"
tf-tensor | TensorFlow | family=bfc
    = An operation could not allocate its output. The size is the product of the shape and the width of the type.
    in tensorflow/core/framework/op_kernel.cc
    > OOM when allocating tensor
    > ResourceExhaustedError: failed to allocate memory [Op:
    mark host <- "by allocator cpu" "by allocator mklcpu" "device:CPU" "(mklcpu)" "(cpu)"
    mark xla_gpu_host_bfc <- "xla_gpu_host_bfc"
    mark gpu_host_bfc <- "gpu_host_bfc"
    mark cuda_host_bfc <- "cuda_host_bfc"
    version 1.x <- "[[Node:"
    version 1.12 or later <- "[[{{node"
    device <- "device:GPU:{number} by allocator" "device:DML:{number} by allocator"
tf-refused | TensorFlow | role=before family=bfc
    = The driver refused memory for the growth of the pool. The pool then tries 10 % less, again and again: one such
        line is no failure yet.
    in xla/stream_executor/cuda/cuda_driver.cc (until 2023 tensorflow/stream_executor)
    > failed to allocate {word} ({number} bytes) from device
    > failed to alloc {number} bytes unified memory
    extension_refused: the region that the driver refused <- "failed to allocate {word} ({number} bytes) from device"
        "alloc {number} bytes unified memory"
    mark host_and_device <- "bytes unified memory"
tf-host | TensorFlow | family=host
    = Pinned system memory was refused, not GPU memory.
    in xla/stream_executor/cuda/cuda_driver.cc (until 2023 tensorflow/stream_executor)
    > failed to alloc {number} bytes on host
    > could not allocate pinned host memory of size
    > failed to allocate {number} bytes on host
    requested: bytes of system memory <- "alloc {number} bytes on host" "memory of size: {number}"
        "allocate {number} bytes on host"
    mark host <- "host"
tf-stats | TensorFlow | role=before family=bfc behind=600
    = The counters of the pool at the moment of the failure. `Limit` is that of the pool, not of the device.
    in tsl/framework/bfc_allocator.cc (until 2022 tensorflow/core/common_runtime/bfc_allocator.cc)
    > MaxAllocSize: {number}
    limit: the most that the pool may become <- "Limit: {number}"
    in_use: bytes in chunks in use <- "InUse: {number}"
    peak: the most that was in use <- "MaxInUse: {number}"
    num_allocs: how many allocations there were <- "NumAllocs: {number}"
    largest_alloc: the largest of them <- "MaxAllocSize: {number}"
    largest_free: the largest free chunk <- "LargestFreeBlock: {number}"
tf-pool | TensorFlow | role=before family=bfc behind=250
    = The pool at the moment of the failure: what it holds, its limit, and how far it may still grow.
    in tsl/framework/bfc_allocator.cc (until 2022 tensorflow/core/common_runtime/bfc_allocator.cc)
    > total_region_allocated_bytes_: {number}
    > Total bytes in pool: {number}
    reserved: the pool <- "total_region_allocated_bytes_: {number}" "Total bytes in pool: {number}"
    limit: the most that the pool may become <- "memory_limit_: {number}"
    available: how far the pool may still grow <- "available bytes: {number}"
    in_use: bytes in chunks in use <- "Sum Total of in-use chunks: {size}"
tf-device | TensorFlow | role=before family=bfc
    = The device when the program started: its size, and what was free then.
    in tensorflow/core/common_runtime/gpu/gpu_device.cc
    > totalMemory: {size}
    > Total memory: {number} GiB
    > Total memory: {number} MiB
    device_total: the whole device <- "totalMemory: {size}" "Total memory: {size}"
    device_free_at_start: free when the program started <- "freeMemory: {size}" "Free memory: {size}"
tf-large | TensorFlow | role=soft family=warning weak
    = One request of system memory is more than a tenth of what is free: a warning.
    in tensorflow/core/framework/cpu_allocator_impl.cc
    > Allocation of {number} exceeds 10% of free system memory
    > Allocation of {number} exceeds 10% of system memory
    requested: bytes of the request <- "Allocation of {number} exceeds"
tf-limit | TensorFlow | role=before family=bfc
    = What the pool may take of the device; decided at the start from what was free.
    in tensorflow/core/common_runtime/gpu/gpu_device.cc; xla/pjrt/gpu/se_gpu_pjrt_client.cc
    > with {number} MB memory
    > XLA backend allocating {number} bytes on device
    > XLA backend will use up to {number} bytes on device
    limit[M]: the most that the pool may become <- "with {number} MB memory"
    limit: the most that the pool may become <- "allocating {number} bytes on device"
        "use up to {number} bytes on device"
    mark start_limit <- "MB memory"
tf-context | TensorFlow | family=context
    = The driver could not even make a context on the device: it is full before this program begins.
    in xla/stream_executor/cuda/cuda_driver.cc (until 2023 tensorflow/stream_executor)
    > cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY
    device_total: the whole device <- "total memory reported: {number}"
    mark context <- "cuDevicePrimaryCtxRetain"
tf-copy | TensorFlow | family=bfc
    = A copy to the GPU found no memory for its target. The reason stands in the lines of the allocator before it.
    in tensorflow/core/common_runtime/gpu/gpu_util.cc, rendezvous_mgr.cc
    > Dst tensor is not initialized
    > SameWorkerRecvDone unable to allocate output tensor
    mark host <- "device:CPU:0;edge"
""")

TENSOR: Final = re.compile(
    r"shape\s?\[(?P<shape>[\d,\s]{0,200})\](?:\s{1,9}and\s{1,9}type\s{1,9}(?P<type>\w{1,40}))?"
    r"(?:\s{1,9}on\s{1,9}\S{1,200})?(?:\s{1,9}by\s{1,9}allocator\s{1,9}(?P<name>[^\s\"\\]{1,200}))?"
)
"""The tensor in an error of TensorFlow."""

ALLOCATORS: Final = {"Simple": "no_pool", "Dml": "directml"}
"""How the name of an allocator begins that is no BFC pool of a GPU -> the mark of the failure.

`Simple allocator` is that of a plugin without a pool, such as tensorflow-metal; `DmlAllocator` is that of DirectML.
"""

REQUESTED_BY: Final = re.compile(r"requested\s{1,9}by\s{1,9}op\s{1,9}(?P<op>[A-Za-z_][\w./:-]{0,300})")
"""The operation in a warning of the pool; empty in XLA and JAX."""

NODE: Final = re.compile(r"\{\{node\s{1,9}([^\s{}]{1,1000})\}\}|\[\[Node:\s{1,9}([^\s\]]{1,1000})\s{1,9}=")
"""The operation in an error of TensorFlow 2 or 1."""

TYPE_BYTES: Final = {
    **dict.fromkeys(("bool", "int8", "uint8", "qint8", "quint8", "float8_e5m2", "float8_e4m3fn"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16", "int16", "uint16", "qint16", "quint16"), 2),
    **dict.fromkeys(("float", "float32", "int32", "uint32", "qint32"), 4),
    **dict.fromkeys(("double", "float64", "int64", "uint64", "complex64"), 8),
    "complex128": 16,
}
"""Bytes of one element of each type."""


# ------------------------------------------------------------------------------
# TensorFlow's DataType numbers by name (tensorflow/core/framework/types.proto).

_TYPE_NAMES: Final = (
    "float32", "float64", "int32", "uint8", "int16", "int8", "string", "complex64", "int64", "bool", "qint8",
    "quint8", "qint32", "bfloat16", "qint16", "quint16", "uint16", "complex128", "float16", "resource",
    "variant", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz",
    "float8_e5m2fnuz", "int4", "uint4", "int2", "uint2",
)  # fmt: skip
"""From number 1 on."""

_REFERENCE_TYPE: Final = 100  # added to the number of a type: a reference to that type


def dtype_name(number: int) -> str:
    """The name of a data type by its number: `float32` for 1, `float32_ref` for 101, "" for 0, else `DataType 77`."""
    if number == 0:
        return ""
    base, suffix = (number - _REFERENCE_TYPE, "_ref") if number > _REFERENCE_TYPE else (number, "")
    return f"{_TYPE_NAMES[base - 1]}{suffix}" if 0 < base <= len(_TYPE_NAMES) else f"DataType {number}"
