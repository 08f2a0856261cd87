"""TensorFlow's files: the folder of recorded windows, and what its log says when memory runs out."""

import re
from pathlib import Path
from typing import Final

from bfcviz.formats.messages import Message, Number, Role

# ------------------------------------------------------------------------------
# The folder of recorded windows: which are complete, and which files they consist of.

WINDOW: Final = "window-"
"""The start of the folders' names; incomplete ones have a dot before it."""


def whole_windows(folder: Path) -> list[Path]:
    """The complete windows in a folder, the oldest first."""
    found = [each for each in folder.glob(f"{WINDOW}*") if each.name[len(WINDOW) :].isdecimal()]
    return sorted(found, key=lambda each: int(each.name[len(WINDOW) :]))


def files_of_windows(folder: Path) -> list[Path]:
    """The complete windows in a folder and their contents, the innermost first; empty if one has other files, too."""
    found: list[Path] = []
    for window in whole_windows(folder):
        inside = sorted(window.rglob("*"), reverse=True)
        files = [path for path in inside if path.is_symlink() or not path.is_dir()]
        if not all(_is_of_profile(path) for path in files) or not any(map(_is_profile, files)):
            return []
        found += [*inside, window]
    return found


def _is_profile(path: Path) -> bool:
    return path.name.endswith(".xplane.pb")


def _is_of_profile(path: Path) -> bool:
    """Whether the profiler, or TensorBoard when it shows a profile, writes files of such names."""
    is_file = path.is_file() and not path.is_symlink()
    return is_file and path.name.endswith((".pb", ".json.gz", ".json", ".profile-empty", ".SSTABLE"))


# ------------------------------------------------------------------------------
# What TensorFlow prints when a request fails. The BFC allocator of XLA and JAX is the same code.

_BFC_SOURCE: Final = (
    "tsl/framework/bfc_allocator.cc (until 2022 tensorflow/core/common_runtime/bfc_allocator.cc)"
)
_DRIVER_SOURCE: Final = "xla/stream_executor/cuda/cuda_driver.cc (until 2023 tensorflow/stream_executor)"
_DEVICE_SOURCE: Final = "tensorflow/core/common_runtime/gpu/gpu_device.cc"
_HOST_POOLS: Final = {"gpu_host_bfc": "host", "cuda_host_bfc": "host", "(mklcpu)": "host", "(cpu)": "host"}

MESSAGES: Final = (
    Message(
        "tf-bfc",
        "TensorFlow",
        "The BFC pool had no free chunk of this size and could not grow. With `this is not a failure` the caller "
        "goes on with less memory.",
        ("ran out of memory trying to allocate", "Ran out of memory trying to allocate"),
        _BFC_SOURCE,
        family="bfc",
        numbers=(
            Number("requested", "bytes of the request", ("trying to allocate {size}",)),
            Number("rounded", "the same as the pool rounds it, to 256 bytes", ("(rounded to {number})",)),
        ),
        marks={"this is not a failure": "soft", "freed_by_count": "soft"} | _HOST_POOLS,
        versions={"TF_GPU_ALLOCATOR": "2.5 or later", "tsl/framework": "2.12 or later"},
        behind=160,
    ),
    Message(
        "tf-tensor",
        "TensorFlow",
        "An operation could not allocate its output. The size is the product of the shape and the width of the type.",
        ("OOM when allocating tensor",),
        "tensorflow/core/framework/op_kernel.cc",
        family="bfc",
        marks={"by allocator cpu": "host", "by allocator mklcpu": "host", "device:CPU": "host"} | _HOST_POOLS,
        versions={"[[Node:": "1.x", "[[{{node": "1.12 or later"},
        behind=40,
    ),
    Message(
        "tf-refused",
        "TensorFlow",
        "The driver refused memory for the growth of the pool. The pool then tries 10 % less, again and again: one "
        "such line is no failure yet.",
        ("failed to allocate {word} ({number} bytes) from device",),
        _DRIVER_SOURCE,
        role=Role.BEFORE,
        family="bfc",
        numbers=(
            Number(
                "extension_refused",
                "the region that the driver refused",
                ("failed to allocate {word} ({number} bytes) from device",),
            ),
        ),
    ),
    Message(
        "tf-host",
        "TensorFlow",
        "Pinned system memory was refused, not GPU memory.",
        (
            "failed to alloc {number} bytes on host",
            "could not allocate pinned host memory of size",
            "failed to allocate {number} bytes on host",
        ),
        _DRIVER_SOURCE,
        family="host",
        numbers=(
            Number(
                "requested",
                "bytes of system memory",
                (
                    "alloc {number} bytes on host",
                    "memory of size: {number}",
                    "allocate {number} bytes on host",
                ),
            ),
        ),
        marks={"host": "host"},
    ),
    Message(
        "tf-stats",
        "TensorFlow",
        "The counters of the pool at the moment of the failure. `Limit` is that of the pool, not of the device.",
        ("MaxAllocSize: {number}",),
        _BFC_SOURCE,
        role=Role.BEFORE,
        family="bfc",
        numbers=(
            Number("limit", "the most that the pool may become", ("Limit: {number}",)),
            Number("in_use", "bytes in chunks in use", ("InUse: {number}",)),
            Number("peak", "the most that was in use", ("MaxInUse: {number}",)),
            Number("num_allocs", "how many allocations there were", ("NumAllocs: {number}",)),
            Number("largest_alloc", "the largest of them", ("MaxAllocSize: {number}",)),
            Number("largest_free", "the largest free chunk", ("LargestFreeBlock: {number}",)),
        ),
        behind=600,
    ),
    Message(
        "tf-pool",
        "TensorFlow",
        "The pool at the moment of the failure: what it holds, its limit, and how far it may still grow.",
        (
            "total_region_allocated_bytes_: {number}",
            "Total bytes in pool: {number}",
        ),
        _BFC_SOURCE,
        role=Role.BEFORE,
        family="bfc",
        numbers=(
            Number(
                "reserved",
                "the pool",
                ("total_region_allocated_bytes_: {number}", "Total bytes in pool: {number}"),
            ),
            Number("limit", "the most that the pool may become", ("memory_limit_: {number}",)),
            Number("available", "how far the pool may still grow", ("available bytes: {number}",)),
        ),
    ),
    Message(
        "tf-device",
        "TensorFlow",
        "The device when the program started: its size, and what was free then.",
        ("totalMemory: {size}", "Total memory: {size}"),
        _DEVICE_SOURCE,
        role=Role.BEFORE,
        family="bfc",
        numbers=(
            Number("device_total", "the whole device", ("totalMemory: {size}", "Total memory: {size}")),
            Number(
                "device_free_at_start",
                "free when the program started",
                ("freeMemory: {size}", "Free memory: {size}"),
            ),
        ),
    ),
    Message(
        "tf-limit",
        "TensorFlow",
        "What the pool may take of the device; decided at the start from what was free.",
        (
            "with {number} MB memory",
            "XLA backend allocating {number} bytes on device",
            "XLA backend will use up to {number} bytes on device",
        ),
        f"{_DEVICE_SOURCE}; xla/pjrt/gpu/se_gpu_pjrt_client.cc",
        role=Role.BEFORE,
        family="bfc",
        numbers=(
            Number("limit", "the most that the pool may become", ("with {number} MB memory",), unit="M"),
            Number(
                "limit",
                "the most that the pool may become",
                ("allocating {number} bytes on device", "use up to {number} bytes on device"),
            ),
        ),
        marks={"MB memory": "start_limit"},
    ),
    Message(
        "tf-context",
        "TensorFlow",
        "The driver could not even make a context on the device: it is full before this program begins.",
        ("cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY",),
        _DRIVER_SOURCE,
        family="context",
        numbers=(Number("device_total", "the whole device", ("total memory reported: {number}",)),),
        marks={"cuDevicePrimaryCtxRetain": "context"},
    ),
    Message(
        "tf-copy",
        "TensorFlow",
        "A copy to the GPU found no memory for its target. The reason stands in the lines of the allocator before it.",
        ("Dst tensor is not initialized",),
        "tensorflow/core/common_runtime/gpu/gpu_util.cc",
        family="bfc",
    ),
)
"""Texts of TensorFlow."""

TENSOR: Final = re.compile(
    r"shape\s?\[(?P<shape>[\d,\s]{0,200})\](?:\s{1,9}and\s{1,9}type\s{1,9}(?P<type>\w{1,40}))?"
    r"(?:\s{1,9}on\s{1,9}\S{1,200})?(?:\s{1,9}by\s{1,9}allocator\s{1,9}(?P<name>[^\s\"\\]{1,200}))?"
)
"""The tensor in an error of TensorFlow."""

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
