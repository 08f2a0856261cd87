"""PyTorch's caching allocator: how it rounds, splits and grows, and the words of its settings.

Source: c10/cuda/CUDACachingAllocator.cpp at commit 001074d25084 (`round_size`, `get_allocation_size`, `should_split`,
`get_free_block`) and the parser of PYTORCH_CUDA_ALLOC_CONF in c10/core/AllocatorConfig.cpp. A size from 2^n to
2^(n + 1) is rounded up to a multiple of one step::

    no divisions      512 bytes
    d divisions       2^n / d, at least 512 bytes: the range has d steps

    rounded size      from a new segment of
    up to 1 MiB       2 MiB, for small requests only
    below 10 MiB      20 MiB
    10 MiB or more    the size, in whole 2 MiB
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, Final, Self

from bfcviz.formats.message_grammar import messages_of
from bfcviz.formats.setting_words import SettingWords

# ------------------------------------------------------------------------------
# Rules: how PyTorch's caching allocator rounds and splits blocks, by its settings; its history omits this.

UNIT: Final = 512
SMALL: Final = 1 << 20
"""Requests up to this, rounded, come from segments for small ones."""

SMALL_SEGMENT: Final = 2 << 20
LARGE_SEGMENT: Final = 20 << 20
OWN_SEGMENT: Final = 10 << 20
"""A request of at least so many bytes gets a segment of its size."""

SEGMENT_UNIT: Final = 2 << 20
LEAST_MAX_SPLIT: Final = 20 << 20
"""PyTorch takes no smaller `max_split_size`; its parser before AcceleratorAllocatorConfig wants more than this."""

_NO_MAX_SPLIT: Final = 1 << 60  # its default is -1, or the largest number there is
_INTERVALS: Final = 16  # of divisions: 1 MiB and less, 2 MiB, 4 MiB ... 32 GiB and more
_FIRST_INTERVAL: Final = 20  # 2^20 bytes
_LIST: Final = re.compile(r"\[\s*(?:(?:\d{1,18}|>)\s*:\s*\d{1,18}\s*(?:,\s*(?=[\d>])|(?=\])))+\]")
_ENTRY: Final = re.compile(r"(\d+|>)\s*:\s*(\d+)")
_BITS: Final = 64
_MOST_LINES: Final = 1 << 31


BLOCK_SIZE: Final = "block_size"
"""The key of an entry of the history for the bytes of its block: bfcviz writes it, PyTorch has none and ignores it."""


@dataclass(frozen=True)
class Rules:
    """The settings of PyTorch's allocator that the addresses and sizes of blocks depend on.

    Attributes:
        expandable: segments grow in place; then every block is split that leaves at least `UNIT` bytes.
        max_split: blocks of at least so many bytes are never split; None: no such limit.
        divisions: steps between powers of two, from 1 MiB to 32 GiB, 1: none; empty: sizes are multiples of `UNIT`.
        collection_threshold: share of the limit above which old segments are returned; 0: none are.
        non_split_rounding: a block that is never split leaves less than this of itself, an option since PyTorch 2.6;
            None: as much as `large_segment`.
        large_segment: bytes of a segment for large requests below `OWN_SEGMENT`, and of what an expandable segment for
            large requests maps at once, an option since PyTorch 2.11; the two sizes above are not less.
    """

    expandable: bool = False
    max_split: int | None = None
    divisions: tuple[int, ...] = ()
    collection_threshold: float = 0.0
    non_split_rounding: int | None = None
    large_segment: int = LARGE_SEGMENT

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """PyTorch's rules in a snapshot's `allocator_settings`; its default for each that is missing or impossible."""
        largest = _torch_rule_number(settings.get("max_split_size"))
        threshold = _torch_rule_number(settings.get("garbage_collection_threshold"))
        try:
            divisions = divisions_of(settings.get("roundup_power2_divisions", 0))
        except ValueError:
            divisions = ()
        # Snapshots have no fields of their own for the newest options.
        text = str(settings.get(NEW_CONF) or settings.get(CONF) or "")
        large = _torch_option_bytes(text, "large_segment_size_mb") or LARGE_SEGMENT
        return cls(
            settings.get("expandable_segments") is True,
            int(largest) if min(large, LEAST_MAX_SPLIT) <= largest < _NO_MAX_SPLIT else None,
            divisions,
            threshold if 0 < threshold <= 1 else 0.0,
            _torch_option_bytes(text, "max_non_split_rounding_mb") or None,
            large,
        )

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """What PyTorch rounds sizes up to multiples of: item n is for those from 2^n to 2^(n + 1) bytes, below 2^64."""
        if not self.divisions:
            return (UNIT,) * _BITS
        last = len(self.divisions) - 1
        there = (self.divisions[min(max(n - _FIRST_INTERVAL, 0), last)] for n in range(_BITS))
        return tuple(max(UNIT, (1 << n) // each) if each > 1 else UNIT for n, each in enumerate(there))

    def round_up(self, requested: int) -> int:
        """Bytes PyTorch rounds a request up to."""
        size = max(requested, 1)
        step = self.steps[size.bit_length() - 1]
        return -(-size // step) * step

    def block(self, requested: int, free: int) -> int:
        """Bytes of PyTorch's block that serves a request, cut from a free one of `free` bytes; 0: unknown."""
        rounded = self.round_up(requested)
        return rounded if free <= rounded or self.splits(rounded, free) else free

    def splits(self, rounded: int, free: int) -> bool:
        """Whether PyTorch cuts a free block of `free` bytes in two for a request."""
        rest = free - rounded
        if rounded <= SMALL or self.expandable:
            return rest >= UNIT
        return rest > SMALL and (self.max_split is None or rounded < self.max_split)

    def serves(self, rounded: int, free: int) -> bool:
        """Whether PyTorch lets a free block of `free` bytes, of the right stream and kind, serve a request."""
        if self.max_split is not None and rounded < self.max_split:
            return rounded <= free < self.max_split
        most_left = self.large_segment if self.non_split_rounding is None else self.non_split_rounding
        return rounded <= free and (self.max_split is None or free < rounded + most_left)

    def segment(self, rounded: int) -> int:
        """Bytes of PyTorch's new segment for a request, where segments do not grow."""
        if rounded <= SMALL:
            return SMALL_SEGMENT
        return self.large_segment if rounded < OWN_SEGMENT else -(-rounded // SEGMENT_UNIT) * SEGMENT_UNIT


DEFAULTS: Final = Rules()
"""The rules of PyTorch without settings."""


def divisions_of(value: Any) -> tuple[int, ...]:
    """PyTorch's divisions of `roundup_power2_divisions`, one for each range of sizes; empty where nothing is divided.

    Args:
        value: one number for all sizes; a list by size in MiB, as in PYTORCH_CUDA_ALLOC_CONF: `[256:1,512:2,>:8]`;
            or the table of a snapshot, such as `{"1": 0, "2": 4}`.

    Raises:
        ValueError: it is none of these, or has a number that is no power of two.
    """
    if isinstance(value, Mapping):
        found = tuple(value[key] for key in sorted(value, key=int)[:_INTERVALS])
    elif isinstance(value, str):
        found = _of_list(value)
    else:
        found = (value,) * _INTERVALS
    for each in found:
        if type(each) is not int or each < 0 or each & (each - 1) or each >= 1 << _BITS:
            raise ValueError(
                f"roundup_power2_divisions is {each!r:.40}; PyTorch takes powers of two, and 0 for none"
            )
    return tuple(max(each, 1) for each in found) if any(each > 1 for each in found) else ()


def divisions_text(divisions: Sequence[int]) -> str:
    """Divisions as PYTORCH_CUDA_ALLOC_CONF has them: one number, or a list by size."""
    if len(set(divisions)) <= 1:
        return str(divisions[0] if divisions else 0)
    equal = len(list(takewhile(lambda each: each == divisions[-1], reversed(divisions))))
    first = len(list(takewhile(lambda each: each == divisions[0], divisions))) - 1
    entries = [f"{1 << place}:{divisions[place]}" for place in range(first, len(divisions) - equal)]
    return f"[{','.join([*entries, f'>:{divisions[-1]}'])}]"


def line_number(line: int) -> int:
    """The line of a frame of PyTorch; 0: unknown. It has -1 as an unsigned number where Python knows no line."""
    return line if 0 <= line < _MOST_LINES else 0


def _of_list(text: str) -> tuple[int, ...]:
    """Divisions from a list by size, as PyTorch's parser reads it.

    The first size is also of all smaller ones; `>`: all above the size before it, or 1 MiB.
    """
    if not _LIST.fullmatch(text.strip()):
        raise ValueError(f"roundup_power2_divisions is {text[:40]!r}; give a list such as [256:1,512:2,>:8]")
    found = [0] * _INTERVALS
    last, is_first = 0, True
    for key, number in _ENTRY.findall(text):
        size, divisions = 0 if key == ">" else int(key), int(number)
        if key == ">":
            found[last + 1 :] = [divisions] * (_INTERVALS - last - 1)
            continue
        if not size or size & (size - 1):
            raise ValueError(
                f"roundup_power2_divisions has a size of {size} MiB; PyTorch takes powers of two"
            )
        place = min(size.bit_length() - 1, _INTERVALS - 1)
        if is_first:
            found[:place] = [divisions] * place
        found[place] = divisions
        last, is_first = place, False
    return tuple(found)


def _torch_rule_number(value: Any) -> float:
    """A number among the settings that `Rules` are made of; 0: it is none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _torch_option_bytes(text: str, name: str) -> int:
    """Bytes of an option in whole MiB in the text of PyTorch's variable, such as `name:64`; 0: it is not there."""
    found = re.search(rf"(?:^|[\s,]){name}\s*:\s*(\d{{1,7}})(?=[\s,]|$)", text)
    return int(found[1]) << 20 if found else 0


# ------------------------------------------------------------------------------
# Words of PyTorch's settings.

CONF: Final = "PYTORCH_CUDA_ALLOC_CONF"
"""The variable that every version for CUDA reads: the one to tell where the version is not known."""

HIP_CONF: Final = "PYTORCH_HIP_ALLOC_CONF"
NEW_CONF: Final = "PYTORCH_ALLOC_CONF"
"""The name since 2.9, for every kind of device."""

MPS_LIMIT: Final = "PYTORCH_MPS_HIGH_WATERMARK_RATIO"
MPS_LOW: Final = "PYTORCH_MPS_LOW_WATERMARK_RATIO"
"""It must not be above `MPS_LIMIT`."""

NPU_CONF: Final = "PYTORCH_NPU_ALLOC_CONF"
"""The variable that torch_npu reads, the backend for Ascend."""

CONF_NAMES: Final = (CONF, NEW_CONF)
"""The variables of the settings on CUDA, the older one first."""

UNCACHED: Final = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")
"""Turn the allocator off, whatever they are set to."""


def setting(name: str, value: str | int) -> str:
    """A setting of PyTorch's allocator, as a user types it."""
    return f"{CONF}={name}:{value}"


WORDS: Final = SettingWords(
    title="PyTorch",
    share="torch.cuda.set_per_process_memory_fraction({share})",
    other=setting("backend", "cudaMallocAsync"),
    heap="torch.cuda.memory._dump_snapshot(path) after the failure",
    history="torch.cuda.memory._record_memory_history() at the start, or bfcviz record --torch",
    recompute="torch.utils.checkpoint",
)


# ------------------------------------------------------------------------------
# Metadata that a user set, as text, and numbers of PyTorch's streams.

_LAST_STREAM: Final = 0xFFFF
_LONGEST_JSON: Final = 1 << 16  # characters
_NO_METADATA: Final = "N/A"


def metadata_text(value: Any) -> str:
    """The metadata that a user set in PyTorch, as one text: a text, or the entries of a dict, its `name` first."""
    if isinstance(value, str) and value[:1] == "{" and len(value) < _LONGEST_JSON:
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, str):
        return "" if value == _NO_METADATA else value
    if not isinstance(value, Mapping):
        return ""
    name = value.get("name")
    name = name if isinstance(name, str) else ""
    others = [
        f"{key}: {each}" for key, each in value.items()
        if isinstance(each, str | int | float) and not (name and key == "name")
    ]  # fmt: skip
    return f"{name} ({', '.join(others)})" if name and others else name or ", ".join(others)


class TorchStreamNumbers:
    """Numbers the handles of PyTorch's streams in the order of their first use; 0: the default stream."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def of(self, handle: int) -> int:
        """The number of a stream of PyTorch; all streams after the 65,534th share one."""
        if handle == 0:
            return 0
        return self._numbers.setdefault(handle, min(len(self._numbers) + 1, _LAST_STREAM))


# ------------------------------------------------------------------------------
# What PyTorch prints when a request fails.
#
# It asks the driver for a segment, not for the tensor. When the driver refuses, it returns every segment that is
# wholly free and asks again; only then it raises. The free memory in the message is read after that.


MESSAGES: Final = messages_of(r"""
torch-size | PyTorch CUDA | behind=40
    = PyTorch refuses such a size before it asks the driver: negative, overflowed, or wrong. That is the whole
        message.
    in c10/cuda/CUDACachingAllocator.cpp (hipified for ROCm), c10/xpu/XPUCachingAllocator.cpp
    > CUDA out of memory. Tried to allocate more than 1EB memory
    > HIP out of memory. Tried to allocate more than 1EB memory
    > NPU out of memory. Tried to allocate more than 1EB memory
    version 2.5 or later <- "torch.OutOfMemoryError"
    version 1.13 or later <- "torch.cuda.OutOfMemoryError"
torch-cuda | PyTorch CUDA | behind=40
    = The caching allocator of PyTorch asked the driver for a segment, gave back every segment that was wholly free,
        asked again, and was refused. So empty_cache() cannot help.
    in c10/cuda/CUDACachingAllocator.cpp (hipified for ROCm), c10/xpu/XPUCachingAllocator.cpp
    > CUDA out of memory
    > HIP out of memory
    > XPU out of memory
    > NPU out of memory
    requested: the segment that was asked of the driver, not the tensor: 2 MiB for up to 1 MiB, 20 MiB for up to 10
        MiB, above that the next multiple of 2 MiB; up to version 1.0 the next multiple of 128 KiB <-
        "Tried to allocate {bytes}"
    device_total: the whole device, as the driver says <- "total capacity of {bytes}" "total capacty of {bytes}"
        "{bytes} total capacity"
    device_free: free on the device after PyTorch returned its unused segments <- "of which {bytes} is free"
        "{bytes} free;"
    limit: what torch.cuda.set_per_process_memory_fraction allows this process <- "{bytes} allowed;"
    process_in_use: this process as the driver counts it: the allocator, and the context, libraries and graphs <-
        "this process has {bytes} memory in use"
    allocated: live tensors <- "{bytes} is allocated by PyTorch" "{bytes} already allocated"
    private_pools: free memory that only CUDA graphs and MemPools may use <- "with {bytes} allocated in private pools"
    reserved_unallocated: held by PyTorch and free, in segments that a live tensor keeps from being returned <-
        "{bytes} is reserved by PyTorch but unallocated"
    reserved: all segments that PyTorch holds <- "{bytes} reserved in total by PyTorch"
    cached: held by PyTorch and free (versions up to 1.3) <- "{bytes} cached"
    mark conf <- "PYTORCH_ALLOC_CONF"
    mark hip_conf <- "PYTORCH_HIP_ALLOC_CONF"
    mark new_class <- "torch.OutOfMemoryError"
    version 2.1 <- "total capacty"
    version 2.9 or later <- "PYTORCH_ALLOC_CONF"
    version 2.8 or later <- "docs.pytorch.org"
    version 2.5 or later <- "torch.OutOfMemoryError"
    version 2.2 or later <- "expandable_segments" "has a total capacity"
    version 0.4.1 to 1.3 <- "cached)"
    version 1.11 to 2.0 <- "If reserved memory is >>"
    version 1.13 or later <- "torch.cuda.OutOfMemoryError"
    version 1.4 to 2.0 <- "reserved in total by PyTorch"
    device <- "GPU {number} has a total" "(GPU {number};" "(NPU {number};"
torch-cut | PyTorch CUDA | like=torch-cuda behind=0 weak
    = The same text without its first words.
    > Tried to allocate {size} (GPU
    > Tried to allocate {size}. GPU
    > (GPU {number}; {size} total capacity;
torch-nvml | PyTorch CUDA | weak
    = The driver refused a segment, and so did NVML when PyTorch asked it for the processes on the device, which stand
        in its message: on a MIG slice, in a container, on a Jetson. So there is no number in the text.
    in c10/cuda/CUDACachingAllocator.cpp (hipified for ROCm), c10/xpu/XPUCachingAllocator.cpp
    > NVML_SUCCESS == r INTERNAL ASSERT FAILED at {word}CUDACachingAllocator.cpp
    > NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at {word}CUDACachingAllocator.cpp
    > NVML_SUCCESS == DriverAPI::get()->nvmlDeviceGetHandleByPciBusId_v2_( pci_id, &nvml_device) INTERNAL ASSERT
        FAILED at {word}CUDACachingAllocator.cpp
    version 2.1 or later <- "NVML_SUCCESS"
torch-xpu-block | PyTorch XPU
    = One buffer is larger than Intel's extension allows for any on this device. It refuses that itself, before it
        asks the driver.
    in intel-extension-for-pytorch, csrc/gpu/runtime/CachingDeviceAllocator.cpp
    > Current platform can NOT allocate memory block with size larger than {size}
    requested: the segment that was asked of the driver <- "Tried to allocate {bytes}"
    limit: the largest buffer <- "size larger than {bytes}"
    device_total: the whole device <- "{bytes} total capacity"
    allocated: live tensors <- "{bytes} already allocated"
    reserved: all segments that PyTorch holds <- "{bytes} reserved in total by PyTorch"
torch-async | PyTorch cudaMallocAsync | behind=40 alone
    = The driver's own pool (backend:cudaMallocAsync, the default of ComfyUI) refused a request. Some programs cut the
        numbers off.
    in c10/cuda/CUDAMallocAsyncAllocator.cpp
    > Allocation on device
    allocated: live tensors <- "Currently allocated : {bytes}"
    requested: bytes of the tensor <- "Requested : {bytes}"
    device_total: the whole device <- "Device limit : {bytes}"
    device_free: free on the device <- "Free (according to CUDA): {bytes}"
    limit: what set_per_process_memory_fraction allows; 17179869184 GiB means: no limit <-
        "PyTorch limit (set by user-supplied memory fraction) : {bytes}"
    mark async <- "Allocation on device"
    version 2.5 or later <- "torch.OutOfMemoryError"
    device <- "Allocation on device {number} would"
torch-async-cut | PyTorch cudaMallocAsync | like=torch-async behind=200 weak
    = The same text without its first line.
    > Device limit : {bytes} Free (according to CUDA): {bytes}
    mark async <- "according to CUDA"
torch-mps | PyTorch MPS | family=mps
    = PyTorch on a Mac passed its own limit: a share (default 1.7) of the memory that Metal recommends for one
        process. On Apple silicon memory is shared with the system.
    in aten/src/ATen/mps/MPSAllocator.mm
    > MPS backend out of memory
    allocated: heaps of PyTorch's pools <- "MPS allocated: {bytes}"
    other_allocations: what this process holds of Metal's memory outside these pools; not other programs <-
        "other allocations: {bytes}"
    limit: PYTORCH_MPS_HIGH_WATERMARK_RATIO x the recommended working set <- "max allowed: {bytes}"
    requested: the buffer of the tensor, its size rounded up to what Metal allocates <- "Tried to allocate {bytes}"
    mark unified <- "MPS backend"
torch-mps-buffer | PyTorch MPS | family=mps
    = One buffer is larger than Metal allows for any.
    in aten/src/ATen/mps/MPSAllocator.mm
    > Invalid buffer size: {size}
    requested: bytes of the tensor <- "Invalid buffer size: {bytes}"
    mark one_buffer <- "Invalid buffer"
torch-mps-private | PyTorch MPS | family=mps
    = Metal gave no buffer that only the GPU uses.
    in aten/src/ATen/native/mps
    > Failed to allocate private MTLBuffer for size {number}
    requested: bytes of the buffer <- "MTLBuffer for size {number}"
torch-cpu | PyTorch CPU | family=host
    = System memory was refused, not GPU memory.
    in c10/core/impl/alloc_cpu.cpp
    > DefaultCPUAllocator: can't allocate memory
    > DefaultCPUAllocator: not enough memory
    > Torch: not enough memory
    > posix_memalign(&data, gAlignment, nbytes) == 0. 12 vs 0
    requested: bytes of the tensor <- "you tried to allocate {bytes}"
    mark host <- "memory" "posix_memalign"
torch-retry | PyTorch CUDA | role=retry within=3
    = The program goes on with less at once: the failure just before is none.
    in comfy/sd.py; training loops that look for a batch size; pytorch_lightning/tuner/batch_size_scaling.py
    > Ran out of memory when regular VAE decoding, retrying with tiled VAE
    > Ran out of memory when regular VAE encoding, retrying with tiled VAE
    > Decreasing batch size to: {number}
    > Batch size {number} failed, trying batch size {number}
torch-no-batch | PyTorch CUDA | role=after_all
    = No batch was small enough: the failure before, after which the program had tried a smaller one, ended it.
    in accelerate/utils/memory.py, find_executable_batch_size
    > No executable batch size found, reached zero
    mark after_all <- "No executable"
torch-recovered | PyTorch CUDA | role=retry
    = fairseq left out the batch, and the next line is of a later step: the failure before is none.
    in fairseq/trainer.py, train_step
    > attempting to recover from OOM in forward/backward pass {word} {word} | INFO | train
    mark left_out <- "attempting to recover"
torch-skipped | PyTorch CUDA | role=retry within=3
    = fairseq, or a program like it, left out a batch for which memory ran out.
    in fairseq/trainer.py (2018 and 2019)
    > WARNING: ran out of memory on GPU #{number}, skipping batch
    > ran out of memory, skipping batch
    mark left_out <- "skipping batch"
torch-summary | PyTorch CUDA | role=report
    = The counters of the allocator. They tell of a failure only if they count one (CUDA OOMs).
    in torch/cuda/memory.py, memory_summary()
    > PyTorch CUDA memory summary
    num_ooms: requests that failed <- "CUDA OOMs: {number}"
    num_retries: times that PyTorch returned its cache and asked again <- "cudaMalloc retries: {number}"
    allocated: live tensors now <- "Allocated memory | {bytes}"
    peak: the most live tensors there were <- "Allocated memory | {skip} | {bytes}"
    reserved: all segments now <- "GPU reserved memory | {bytes}"
    peak_reserved: the most segments there were <- "GPU reserved memory | {skip} | {bytes}"
    non_releasable: free inside segments that a live tensor keeps <- "Non-releasable memory | {bytes}"
    mark summary_mb <- " MB |"
    version 1.4 to 1.13 <- " MB |"
    version 2.0 or later <- " MiB |" " GiB |" " KiB |"
torch-stats | PyTorch CUDA | role=report behind=6000
    = The same counters as a dictionary.
    in torch/cuda/memory.py, memory_stats()
    > allocated_bytes.all.current
    num_ooms: requests that failed <- "num_ooms{sep}{number}"
    num_retries: times that PyTorch returned its cache <- "num_alloc_retries{sep}{number}"
    allocated: live tensors now <- "allocated_bytes.all.current{sep}{number}"
    peak: the most live tensors there were <- "allocated_bytes.all.peak{sep}{number}"
    reserved: all segments now <- "reserved_bytes.all.current{sep}{number}"
    peak_reserved: the most segments there were <- "reserved_bytes.all.peak{sep}{number}"
    non_releasable: free inside segments that a live tensor keeps <- "inactive_split_bytes.all.current{sep}{number}"
""")
"""Texts of PyTorch. The entry for CUDA stands for ROCm and XPU, too: they print the same with another name."""

PROCESS: Final = re.compile(
    r"Process\s{0,40}(\d{1,10})\s{0,40}has\s{0,40}(\d[\d.,]{0,30}\s{0,3}(?:[KMGT]i?)?[Bb](?:ytes)?)\s{0,40}memory",
    re.IGNORECASE,
)
"""A process in the list of the driver: its pid and its bytes. In a container the own process stands there, too."""

SET: Final = re.compile(
    r"(?m)(?:^[ \t>$#]{0,20}(?:set\s{1,9})?|\bexport\s{1,9}|(?:-e|--env|env|ENV)\s{1,9}|[\"'\[]|\$env:)"
    r"PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF[\"'\]]{0,3}\s{0,9}[=:,]\s{0,9}[\"']?([\w:,.>\[\]]{1,300})"
    r"(?![\w:,.>\[\]]|\s{1,40}to\s{1,40}avoid)"
)
"""A setting in an environment or a command line; not the one that PyTorch's own message offers `to avoid` something."""

SET_MARKS: Final = {"expandable_segments:True": "expandable_set", "max_split_size_mb:": "max_split_set"}
"""A word of a setting -> the mark of the failure."""

BACKENDS: Final = {"CUDA": "PyTorch CUDA", "HIP": "PyTorch ROCm", "XPU": "PyTorch XPU", "NPU": "PyTorch NPU"}
"""The word before `out of memory` -> the framework."""
