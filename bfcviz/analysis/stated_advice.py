"""What to do about a stated failure: advice that the verdict, the framework, its version and the platform allow.

The first is the one thing to do. Names of settings are those of the framework and version that printed the text.
Nothing is advised that cannot work there: no setting of an allocator for a full device, no batch for a tensor that
has none, no limit above the device.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bfcviz.analysis.stated_verdict import (
    CONTEXT,
    SLIVER,
    Judgement,
    StatedCause,
    buffer_of,
    device_use,
    has_own_allocator,
    is_padded,
)
from bfcviz.formats import tensorflow, torch, xla
from bfcviz.formats.messages import StatedFailure
from bfcviz.formats.torch import CONF, HIP_CONF, NEW_CONF, NPU_CONF
from bfcviz.units import GiB, format_bytes


class StatedAdviceWord(StrEnum):
    """What an advice on a stated failure is about, in words that every framework shares."""

    SMALLER_REQUEST = "smaller_request_or_batch"
    SMALLER_MODEL = "smaller_model_or_precision"
    SEQUENCE = "sequence_or_context_length"
    KV_CACHE = "kv_cache_size"
    DEVICES = "share_of_each_device"
    CHECKPOINTING = "gradient_checkpointing"
    ACCUMULATION = "gradient_accumulation"
    OPTIMIZER = "optimizer_offload_or_shard"
    EXPANDABLE = "expandable_segments"
    MAX_SPLIT = "max_split_size"
    MALLOC_ASYNC = "cuda_malloc_async"
    PREALLOCATION = "preallocation_off_or_fraction"
    GRAPH_POOLS = "cuda_graphs_pools"
    RAISE_LIMIT = "raise_limit_or_fraction"
    OTHER_PROCESSES = "free_other_processes"
    SYSTEM_MEMORY = "system_memory"
    DRIVER_BUG = "driver_or_runtime_bug"
    SHAPE_BUG = "check_shape_bug"
    NO_EMPTY_CACHE = "empty_cache_useless"
    RECORD = "record_snapshot"


@dataclass(frozen=True)
class StatedAdvice:
    """One thing to do.

    Attributes:
        kind: what it is about.
        text: how, as the framework and version spell it.
    """

    kind: StatedAdviceWord
    text: str


Rule = Callable[[StatedFailure, Judgement], Iterator[StatedAdvice]]


def advise(found: StatedFailure, judged: Judgement) -> tuple[StatedAdvice, ...]:
    """What to do about a failure, or about a refusal that is none; the one thing to do first."""
    rule = _advice_rule(found, judged)
    kinds: dict[StatedAdviceWord, StatedAdvice] = {}
    if (
        judged.cause is StatedCause.REQUEST_EXCEEDS_DEVICE
        and found.fact("device_total") is None
        and rule in _PLAIN
    ):
        text = (
            "Print the shape, and the sizes that it is made from: so much is a wrong shape or a wrong index."
        )
        kinds[StatedAdviceWord.SHAPE_BUG] = StatedAdvice(StatedAdviceWord.SHAPE_BUG, text)
    for each in rule(found, judged):
        kinds.setdefault(each.kind, each)
    look = StatedAdviceWord.OTHER_PROCESSES
    if judged.cause is StatedCause.REQUEST_EXCEEDS_DEVICE:  # too large for an empty device
        kinds.pop(look, None)
    if found.message == "tf-async":  # it takes only what it needs
        kinds.pop(StatedAdviceWord.PREALLOCATION, None)
    if judged.cause is StatedCause.UNKNOWN and _is_tiny(found) and look in kinds:
        kinds = {look: kinds[look]} | kinds
    return tuple(kinds.values())


def _advice_rule(found: StatedFailure, judged: Judgement) -> Rule:
    """The rule that knows what to do: that of the cause, else that of the text, else that of its group."""
    if "below_zero" in found.marks:
        return _below_zero_advice
    if judged.cause is StatedCause.HOST_MEMORY:
        return _host_memory_advice
    if judged.cause is StatedCause.CAP_BY_SETTING and tensorflow.PINNED_POOLS.keys() & found.marks:
        return _pinned_pool_advice
    if judged.cause is StatedCause.NOT_A_FAILURE:
        return _soft_failure_advice
    return _OF_TEXT.get(found.message) or _GROUPS[found.message.partition("-")[0]]


# ------------------------------------------------------------------------------
# What the request is: its size can only shrink with the batch if the tensor has one.


class StatedAdviceSubject(StrEnum):
    """What a stated request asked for, as its operation and shape tell: it decides the advice."""

    VARIABLE = "variable"  # parameters, or a slot of the optimizer
    CONSTANT = "constant"  # a whole array that is copied to the device
    BATCH = "batch"  # its first dimension may be the batch
    UNKNOWN = "unknown"


_VARIABLE: Final = re.compile(
    r"(?i)\bslot|initializer|(?:^|/)variable|(?:^|/)assign|exp_avg|\bmoments?_\d|backpropfilter|weight_grad"
)
_SLOT: Final = re.compile(r"(?i)\b(?:adam|momentum|rmsprop|adagrad|ftrl)")
_CONSTANT: Final = re.compile(r"(?i)\bconst\b|_?eagerconst|constant")


def requested(op: str, shape: tuple[int, ...]) -> StatedAdviceSubject:
    """What a stated request asked for, for the advice on it.

    Args:
        op: the name of its operation, "" if unknown.
        shape: of its tensor, empty if unknown.
    """
    if _CONSTANT.search(op):
        return StatedAdviceSubject.CONSTANT
    if _VARIABLE.search(op) or (_SLOT.search(op) and "gradients/" not in op):
        return StatedAdviceSubject.VARIABLE
    return StatedAdviceSubject.BATCH if len(shape) > 1 and shape[0] > 1 else StatedAdviceSubject.UNKNOWN


def _is_filter(shape: tuple[int, ...]) -> bool:
    """Whether a shape is that of a convolution's weights: a small square, then channels in and out."""
    return len(shape) == 4 and 1 < shape[0] == shape[1] <= _WIDEST_FILTER and min(shape[2:]) > shape[0]


_WIDEST_FILTER: Final = 11


_TINY: Final = 64 << 10


def _is_tiny(found: StatedFailure) -> bool:
    """Whether a request has so few bytes that a smaller one would be refused, too: the rest fills the device."""
    return (found.fact("requested") or _TINY) < _TINY


def _smaller_request(found: StatedFailure, words: str = "") -> Iterator[StatedAdvice]:
    """A smaller request, in the words of what it is."""
    what = StatedAdviceSubject.VARIABLE if "initializer" in found.marks else requested(found.op, found.shape)
    subject = found.op or "The tensor"
    if _is_tiny(found):
        text = words or "Reduce the batch, or the size of one input."
        yield StatedAdvice(StatedAdviceWord.SMALLER_REQUEST, text)
    elif what is not StatedAdviceSubject.CONSTANT and _is_filter(found.shape):
        yield StatedAdvice(
            StatedAdviceWord.SMALLER_MODEL,
            f"The tensor {list(found.shape)} has the shape of a convolution's weights: its size is that of the model, "
            "not of the batch. Use a smaller model, or one of fewer bits.",
        )
    elif what is StatedAdviceSubject.VARIABLE:
        yield StatedAdvice(
            StatedAdviceWord.SMALLER_MODEL,
            f"{subject} is a variable or a slot of the optimizer: its size is that of the model, not of the batch.",
        )
        yield StatedAdvice(
            StatedAdviceWord.OPTIMIZER, "Use an optimizer with fewer slots, or shard or offload its state."
        )
    elif what is StatedAdviceSubject.CONSTANT:
        yield StatedAdvice(
            StatedAdviceWord.SMALLER_REQUEST,
            f"{found.op} copies a whole array to the device: feed it in parts instead (tf.data, a generator).",
        )
    else:
        yield StatedAdvice(
            StatedAdviceWord.SMALLER_REQUEST,
            _smaller_batch_text(found) or words or "Reduce the batch, or the size of one input.",
        )


def _smaller_batch_text(found: StatedFailure) -> str:
    """The batch that fits, where the shape shows one and the text says what is left."""
    request, limit, used = found.fact("requested"), found.fact("limit"), found.fact("in_use")
    shape = "[" + ",".join(map(str, found.shape)) + "]"
    if not found.shape:
        return ""
    if requested(found.op, found.shape) is not StatedAdviceSubject.BATCH:
        return f"Reduce the largest dimension of the tensor {shape}: its first one is no batch that could shrink."
    if not request or limit is None or used is None or used > limit:
        return f"Reduce the first dimension of the tensor {shape}, if it is the batch."
    fits = found.shape[0] * (limit - used) // request
    each = format_bytes(request / found.shape[0], 2)
    if fits < 1:
        return f"Not even one row of the tensor {shape} fits, {each}: reduce its other dimensions."
    return (
        f"If the first dimension of the tensor {shape} is the batch: at most {fits:,} instead of {found.shape[0]:,} "
        f"for this operation, {each} each."
    )


# ------------------------------------------------------------------------------
# PyTorch.

_OLD: Final = {"0.4.1 to 1.3", "1.4 to 2.0", "1.11 to 2.0", "1.4 to 1.13", "1.13 or later"}
"""Versions that know no expandable segments, or may not."""

_OLDEST: Final = "0.4.1 to 1.3"
"""Versions without settings of the allocator and without memory_summary()."""

_SERVERS: Final = frozenset({"vllm", "sglang"})
_INFERENCE: Final = frozenset({"vllm", "sglang", "comfyui", "llamacpp", "ollama", "tgi", "inference"})


def _torch_backend(found: StatedFailure) -> str:
    """The module of torch that has the functions for this kind of device."""
    return {"PyTorch XPU": "xpu", "PyTorch NPU": "npu"}.get(found.framework, "cuda")


_DRIVER_TOOL: Final = "the tool of the device's driver names them"
_WHO_BY_FRAMEWORK: Final = {
    **dict.fromkeys(("ROCm", "PyTorch ROCm"), "rocm-smi --showpids"),
    **dict.fromkeys(("Vulkan", "OpenCL"), _DRIVER_TOOL),
    **dict.fromkeys(("PyTorch XPU", "oneAPI"), "xpu-smi ps"),
    "PyTorch NPU": "npu-smi info",
    **dict.fromkeys(("Windows", "DirectML", "Unreal Engine"), "Task Manager lists them"),
    **dict.fromkeys(("WebGPU", "hashcat", "LAMMPS"), _DRIVER_TOOL),
}
"""A framework -> what names the processes on its device."""

_WHO_BY_MARK: Final = {
    "rocm": "rocm-smi --showpids",
    "metal": "Activity Monitor lists them",
    "directml": "Task Manager lists them",
    "no_pool": f"{_DRIVER_TOOL}; on a Mac, Activity Monitor lists them",
    "vulkan": _DRIVER_TOOL,
    "sycl": _DRIVER_TOOL,
}
"""The same by a mark of the text, where the framework does not decide; the first that fits."""


def _who_holds_command(found: StatedFailure) -> str:
    """The command, or the words on a tool, that names the processes on the device."""
    if found.framework in _WHO_BY_FRAMEWORK:
        return _WHO_BY_FRAMEWORK[found.framework]
    marks = frozenset[str]() if found.framework.startswith("PyTorch") else found.marks
    nvidia = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"
    return next((text for mark, text in _WHO_BY_MARK.items() if mark in marks), nvidia)


def _look_for_others_advice(found: StatedFailure) -> StatedAdvice:
    text = f"Look whether another process holds the device: {_who_holds_command(found)}."
    return StatedAdvice(StatedAdviceWord.OTHER_PROCESSES, text)


def _stop_others_advice(found: StatedFailure) -> StatedAdvice:
    text = f"Stop other programs and notebook kernels on this device, which this lists: {_who_holds_command(found)}."
    return StatedAdvice(StatedAdviceWord.OTHER_PROCESSES, text)


def _torch_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if "tgi" in found.marks and judged.cause is not StatedCause.OTHER_PROCESS:
        yield from _tgi_tokens_advice(found)
    if "max_requests" in found.facts and judged.cause is not StatedCause.OTHER_PROCESS:
        yield from _vllm_requests_advice(found)
    yield from _TORCH[judged.cause](found, judged)
    if judged.cause in {
        StatedCause.CAPACITY,
        StatedCause.CACHED_FRAGMENTATION,
        StatedCause.PRIVATE_POOLS,
        StatedCause.UNKNOWN,
    }:
        yield StatedAdvice(StatedAdviceWord.RECORD, _torch_recording_text(found))


def _torch_recording_text(found: StatedFailure) -> str:
    if "async" in found.marks:
        return (
            "To see how much the driver's pool keeps for this process: print torch.cuda.memory_stats() before the step "
            "that fails (reserved_bytes.all.current less allocated_bytes.all.current). This allocator records no "
            "history."
        )
    if found.framework == "PyTorch XPU":
        return (
            "To see how much tensors and the cache hold: print torch.xpu.memory_stats() before the step that fails "
            "(allocated_bytes.all.peak, reserved_bytes.all.peak)."
        )
    if found.framework == "PyTorch NPU":
        return "To see who holds it: print(torch.npu.memory_summary()) where the error is caught."
    if found.version == _OLDEST:
        return (
            "To see what grows: print torch.cuda.memory_allocated() and torch.cuda.max_memory_allocated() between "
            "the steps; del what is no longer needed. A table of the allocator needs PyTorch 1.4, a history 2.1."
        )
    if found.version in _OLD - {"1.13 or later"}:
        return (
            "To see who holds it: print(torch.cuda.memory_summary()) where the error is caught; a history of "
            "allocations needs PyTorch 2.1."
        )
    return (
        "To see who holds it: torch.cuda.memory._record_memory_history() at the start and "
        "torch.cuda.memory._dump_snapshot('oom.pickle') where the error is caught, then bfcviz why oom.pickle."
    )


def _torch_size_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del found, judged
    text = "Print the shape of the tensor where it fails, and the sizes that make it: one is wrong."
    yield StatedAdvice(StatedAdviceWord.SHAPE_BUG, text)


def _torch_shape_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    request, total = found.facts.get("requested", 0), found.fact("device_total") or 1
    is_nothing = found.fact("allocated") == 0
    if found.framework == "PyTorch ROCm" and is_nothing:
        yield StatedAdvice(
            StatedAdviceWord.DRIVER_BUG,
            "On a device that shares the system's memory, the runtime may report too little: compare rocminfo "
            "(Pool 1) and /sys/class/drm/card*/device/mem_info_vram_total with the total in the text; a newer ROCm "
            "may report it right.",
        )
    if request >= 1.5 * total:
        yield StatedAdvice(
            StatedAdviceWord.SHAPE_BUG,
            "Print the shape of the tensor where it fails: a broadcast, an outer product, or a full attention "
            "matrix makes such sizes.",
        )
    yield from _smaller_request(
        found, "Split the tensor: a smaller batch, chunks, tiles, or a lower resolution."
    )
    yield StatedAdvice(
        StatedAdviceWord.SEQUENCE,
        ("If it is an attention matrix: shorter sequences, or attention that does not store it."),
    )


def _torch_limit_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    backend = _torch_backend(found)
    yield StatedAdvice(
        StatedAdviceWord.RAISE_LIMIT,
        (f"Search the code for torch.{backend}.set_per_process_memory_fraction and raise it, up to 1.0."),
    )


def _torch_spilled_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_MODEL,
        ("Use a smaller model, or weights of fewer bits: it does not fit this device."),
    )
    yield from _smaller_request(found)
    yield StatedAdvice(
        StatedAdviceWord.SYSTEM_MEMORY,
        (
            "The driver used system memory: in the NVIDIA Control Panel set CUDA - Sysmem Fallback Policy to "
            "Prefer No Sysmem Fallback to fail at once instead, or add memory to the system."
            if found.framework != "PyTorch ROCm"
            else "The driver used system memory (GTT): it is slow, and it ended, too."
        ),
    )


def _torch_refused_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if judged.second is StatedCause.CAPACITY:  # the device is nearly full
        yield from _torch_full_advice(found, judged)
        return
    if judged.second is StatedCause.OTHER_PROCESS:  # the same, and others hold much of it
        yield from _torch_others_advice(found, judged)
        yield from _smaller_request(found)
        return
    request, free = found.fact("requested") or 0, found.fact("device_free") or 0
    is_xpu = found.framework == "PyTorch XPU"
    if is_xpu:
        yield StatedAdvice(
            StatedAdviceWord.SMALLER_REQUEST,
            "Keep single tensors below the limit for one allocation (clinfo, Max memory allocation), or set "
            "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1 before the start (its documentation also has "
            "UR_L0_USE_RELAXED_ALLOCATION_LIMITS).",
        )
        yield StatedAdvice(
            StatedAdviceWord.DRIVER_BUG,
            ("The driver refused a single buffer, not for a lack of memory: try a newer driver."),
        )
        yield StatedAdvice(
            StatedAdviceWord.NO_EMPTY_CACHE,
            "empty_cache() does not help: PyTorch returned its cache before it raised.",
        )
        return
    if found.framework == "PyTorch NPU":
        text = "Test the driver alone with a few lines of torch.empty; look at npu-smi info, and for an earlier error."
        yield StatedAdvice(StatedAdviceWord.DRIVER_BUG, text)
        return
    others, total = device_use(found).others, found.fact("device_total")
    if others is not None and total is not None and others >= CONTEXT * total:
        text = "Look whether another process takes memory of the device at the same time"
        yield StatedAdvice(
            StatedAdviceWord.OTHER_PROCESSES,
            f"{text}: {_who_holds_command(found)}.{_others_hold_text(found, others)}",
        )
    is_windows = "windows" in found.marks
    if is_windows or "async" in found.marks:
        on_linux = "" if is_windows else " On Linux look at ulimit -v."
        yield StatedAdvice(
            StatedAdviceWord.SYSTEM_MEMORY,
            "On Windows make the page file larger: memory of the GPU counts against what the system can commit, and "
            f"the driver refuses when that ends.{on_linux}",
        )
    yield StatedAdvice(
        StatedAdviceWord.DRIVER_BUG,
        (
            f"Test the driver alone with a few lines of torch.empty; look at {'' if is_windows else 'ulimit -v, '}"
            "nvidia-smi -q -d COMPUTE (exclusive mode), an earlier error of the same process, and whether driver and "
            "toolkit fit."
            if found.framework != "PyTorch ROCm"
            else f"{_small_apu_advice_text(found)}Test the runtime alone with a few lines of torch.empty; compare "
            "rocminfo with the total in the text, and try a newer ROCm or kernel (ttm.pages_limit on devices that "
            "share the system's memory)."
        ),
    )
    if request >= 4 * GiB and request > free // 2 and found.framework == "PyTorch ROCm":
        yield StatedAdvice(
            StatedAdviceWord.SMALLER_REQUEST,
            "Split the tensor: a single buffer so large may be what is refused.",
        )


def _small_apu_advice_text(found: StatedFailure) -> str:
    """Of a GPU that shares the system's memory and was given little of it."""
    total = found.fact("device_total")
    if total is None or total > 2 * GiB:
        return ""
    return (
        f"Only {format_bytes(total, 2)} belong to the GPU: if it shares the system's memory, give it more in the "
        "firmware (UMA frame buffer size). "
    )


def _torch_fragmented_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    request, free = found.fact("requested") or 0, found.fact("device_free") or 0
    is_amd = found.framework == "PyTorch ROCm"
    counters = found.message in {"torch-summary", "torch-stats"}
    is_sliver = not counters and _is_sliver(found)
    is_near = request <= torch.LARGE_SEGMENT or request - free <= SLIVER * request or found.version == _OLDEST
    if is_sliver and is_near:
        yield from _smaller_request(found, _missing_bytes_advice_text(request, free))
        yield from _torch_full_advice(found, judged)
    if found.version == _OLDEST:
        yield from _smaller_request(
            found,
            "Reduce the batch, or del tensors before this step: this version has no setting of the allocator. "
            "PyTorch 1.8 and later have max_split_size_mb, 2.1 and later expandable_segments.",
        )
        return
    is_set = {"expandable_set", "max_split_set"} & found.marks
    has_settings = found.framework != "PyTorch XPU" and "async" not in found.marks
    can_expand = has_settings and found.version not in _OLD and "windows" not in found.marks and not is_amd
    can_expand = can_expand and "expandable_set" not in is_set and found.framework != "PyTorch NPU"
    # Segments for requests up to `LARGE_SEGMENT` have that size: no split limit above it changes them.
    can_split = has_settings and not is_set and (counters or request > torch.LARGE_SEGMENT)
    can_split = can_split and not (is_sliver and is_near)
    if can_expand:
        yield StatedAdvice(
            StatedAdviceWord.EXPANDABLE,
            f"Set {setting_for(found, 'expandable_segments:True')} before the start: segments then grow in "
            "place, and whole pages of the cached memory can serve this request (Linux).",
        )
    if can_expand and can_split and not counters:
        yield StatedAdvice(
            StatedAdviceWord.MAX_SPLIT,
            f"Where that is not supported (Windows): {setting_for(found, 'max_split_size_mb:128')}.",
        )
    elif can_split:
        is_npu = found.framework == "PyTorch NPU"
        newer = "; from PyTorch 2.1 on Linux expandable_segments:True is better" if not is_amd else ""
        newer = "; newer versions of torch_npu have expandable_segments:True, too" if is_npu else newer
        since = "" if is_npu else " (PyTorch 1.8 or later)"
        yield StatedAdvice(
            StatedAdviceWord.MAX_SPLIT,
            f"Set {setting_for(found, 'max_split_size_mb:128')}{since}: large segments are then not cut for "
            f"small tensors{newer}.",
        )
    yield from _enough_others_advice(found, judged)
    if not counters and request > free:
        yield from _smaller_request(found, _missing_bytes_advice_text(request, free))
    if is_sliver:
        yield from _torch_full_advice(found, judged)


def _enough_others_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    """Other processes that a text tells apart from this one, where they hold enough for what is missing."""
    missing = (found.fact("requested") or 0) - (found.fact("device_free") or 0)
    worth = max(missing, 0.02 * (found.fact("device_total") or 0))
    use = device_use(found)
    others = (use.listed or judged.others) if judged.others and use.is_listed else None
    if others is not None and others >= worth:
        yield StatedAdvice(
            StatedAdviceWord.OTHER_PROCESSES,
            f"Other processes hold {format_bytes(others, 2)}, enough for what is missing: "
            f"{_who_holds_command(found)}.{_listed_processes_advice_text(found)}",
        )


def _missing_bytes_advice_text(request: int, free: int) -> str:
    """How much less would have fitted; segments of fixed size do not shrink with the tensor."""
    less = format_bytes(max(0, request - free), 2)
    if request <= torch.LARGE_SEGMENT or free < request // 2:
        return f"Have {less} more free at this step: a smaller batch, or smaller inputs."
    return f"Reduce the batch, or one input: a request that is {less} smaller would have fitted."


def _is_sliver(found: StatedFailure) -> bool:
    """Whether the cache is so small that no setting of the allocator gains much."""
    use, total = device_use(found), found.fact("device_total") or 0
    return use.cached is not None and use.cached < SLIVER * max(use.pool or 0, total)


def _listed_processes_advice_text(found: StatedFailure) -> str:
    """The processes that the text lists beside this one, the largest first."""
    own = device_use(found).own
    others = [(held, pid) for pid, held in found.processes.items() if held and held != own]
    if not others:
        return ""
    named = ", ".join(f"{pid} ({format_bytes(held, 2)})" for held, pid in sorted(others, reverse=True)[:3])
    return f" The text names process {named}."


def _torch_private_pool_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    yield StatedAdvice(
        StatedAdviceWord.GRAPH_POOLS,
        (
            "Capture fewer CUDA graphs, let them share one pool (torch.cuda.graph_pool_handle), or run without: "
            + (
                f"{_server_words(found).no_graphs}."
                if found.marks & _SERVERS
                else "torch.compile without mode='reduce-overhead'."
            )
        ),
    )
    yield from _smaller_request(found)


def _others_hold_text(found: StatedFailure, others: int | None) -> str:
    """How much other processes hold; without their list this process's context and libraries are in the number."""
    if others is None:
        return ""
    size = format_bytes(others, 2)
    if device_use(found).is_listed:
        return f" They hold {size}."
    shared = "; on an APU the system is in it, too" if found.framework == "PyTorch ROCm" else ""
    return f" They hold up to {size}: this process's context and libraries are in that number{shared}."


def _torch_others_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    yield StatedAdvice(
        StatedAdviceWord.OTHER_PROCESSES,
        f"Stop the other processes on this device: {_who_holds_command(found)}."
        f"{_others_hold_text(found, judged.others)}{_listed_processes_advice_text(found)}",
    )
    yield StatedAdvice(
        StatedAdviceWord.RAISE_LIMIT,
        (
            "If both shall run: set the share of each so that both fit, "
            + (
                f"{_server_words(found).share}."
                if found.marks & _SERVERS
                else "such as gpu_memory_utilization of an engine, or "
                f"torch.{_torch_backend(found)}.set_per_process_memory_fraction."
            )
        ),
    )


def _torch_capacity_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    """Advice for a device that is full: less of this process first, then others that hold enough, then the cache."""
    request, free = found.fact("requested") or 0, found.fact("device_free") or 0
    is_close = judged.second is StatedCause.CACHED_FRAGMENTATION and request > free
    if is_close:
        yield from _smaller_request(found, _missing_bytes_advice_text(request, free))
    first, *rest = _torch_full_advice(found, judged)
    yield first
    yield from _enough_others_advice(found, judged)
    yield from rest
    if is_close:
        yield from _torch_fragmented_advice(found, judged)


def _torch_full_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    if found.marks & _SERVERS:
        yield from _server_full_advice(found)
        return
    if found.framework == "PyTorch ROCm" and (share := _small_apu_advice_text(found)):
        yield StatedAdvice(StatedAdviceWord.SYSTEM_MEMORY, share.rstrip())
    if "comfyui" in found.marks:
        tiles = "" if "tiled" in found.marks else "; decode with a tiled VAE"
        yield from _smaller_request(found, f"Lower the resolution, the frames or the batch{tiles}.")
        yield StatedAdvice(
            StatedAdviceWord.SMALLER_MODEL,
            ("Use weights of fewer bits (fp8, GGUF), or start ComfyUI with --lowvram."),
        )
        return
    yield from _smaller_request(found, "Reduce the batch, or the size of one input.")
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_MODEL,
        ("Use a smaller model, weights of fewer bits (bfloat16, 8 or 4 bits), or a part on the CPU."),
    )
    yield StatedAdvice(
        StatedAdviceWord.SEQUENCE,
        "For sequences: shorter ones, and attention that does not store its matrix.",
    )
    if not found.marks & _INFERENCE:
        yield StatedAdvice(
            StatedAdviceWord.CHECKPOINTING, "In training: torch.utils.checkpoint stores fewer activations."
        )
        yield StatedAdvice(
            StatedAdviceWord.ACCUMULATION, "In training: accumulate gradients over several small batches."
        )
        yield StatedAdvice(
            StatedAdviceWord.OPTIMIZER,
            ("In training: shard or offload the optimizer (FSDP, ZeRO), or one with 8 bits."),
        )


@dataclass(frozen=True)
class _ServerWords:
    """The options of a server of language models.

    Attributes:
        share: the share of the device that it takes.
        devices: how many devices share the model.
        cache: the type of the KV cache, with what makes it smaller.
        requests: requests at once.
        length: of a request with its answer.
        batch: tokens that are computed at once.
        batches: good values of it, after a colon.
        graphs: what makes CUDA graphs need less.
        no_graphs: runs without them.
    """

    share: str
    devices: str
    cache: str
    requests: str
    length: str
    batch: str
    batches: str
    graphs: str
    no_graphs: str


_VLLM: Final = _ServerWords(
    share="--gpu-memory-utilization",
    devices="--tensor-parallel-size",
    cache="--kv-cache-dtype fp8",
    requests="--max-num-seqs",
    length="--max-model-len",
    batch="--max-num-batched-tokens",
    batches="",
    graphs="fewer sizes",
    no_graphs="--enforce-eager",
)
_SGLANG: Final = _ServerWords(
    share="--mem-fraction-static",
    devices="--tp-size",
    cache="--kv-cache-dtype fp8_e5m2 or fp8_e4m3",
    requests="--max-running-requests",
    length="--context-length",
    batch="--chunked-prefill-size",
    batches=": 4096 or 2048",
    graphs="a lower --cuda-graph-max-bs",
    no_graphs="--disable-cuda-graph",
)


def _server_words(found: StatedFailure) -> _ServerWords:
    """The options of the server that printed a text. SGLang's tracebacks hold files of vLLM, too."""
    return _SGLANG if "sglang" in found.marks else _VLLM


def _server_full_advice(found: StatedFailure) -> Iterator[StatedAdvice]:
    """What a server of language models can give up on a device that it fills."""
    words = _server_words(found)
    smaller = f"Use a quantized model, or more devices ({words.devices})"
    if {"loading", "loaded"} & found.marks == {"loading"}:
        text = f"{smaller}: the traceback is in load_model, where the weights are loaded and no KV cache exists yet."
        yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, text)
        text = "Or leave a part of the weights in system memory, which is slower: --cpu-offload-gb."
        yield StatedAdvice(StatedAdviceWord.SYSTEM_MEMORY, text)
        return
    dtype = "" if found.framework == "PyTorch NPU" else f", or {words.cache}"
    yield StatedAdvice(StatedAdviceWord.KV_CACHE, f"Give the KV cache less: a lower {words.share}{dtype}.")
    yield StatedAdvice(
        StatedAdviceWord.SEQUENCE,
        f"Lower {words.requests}, and {words.length} if no request needs so much.",
    )
    yield StatedAdvice(
        StatedAdviceWord.GRAPH_POOLS,
        f"Graphs need memory outside of that share: {words.graphs}, or {words.no_graphs}.",
    )
    yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, f"{smaller}.")
    yield from _smaller_request(found, f"Lower {words.batch}{words.batches}.")


def _torch_nvml_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    text = (
        "Print torch.cuda.mem_get_info() and torch.cuda.memory_summary() before the step that fails: they say how much "
        "the device, or the MIG slice, has, what is free, and what PyTorch holds."
    )
    yield StatedAdvice(StatedAdviceWord.RECORD, text)
    yield from _smaller_request(found, "Need less: a smaller batch, smaller inputs or a smaller model.")
    text = "On MIG: check that CUDA_VISIBLE_DEVICES names the slice that was meant (nvidia-smi -L)."
    yield StatedAdvice(StatedAdviceWord.OTHER_PROCESSES, text)


def _torch_unknown_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if found.marks & _SERVERS:
        yield from _torch_full_advice(found, judged)
    if "async" in found.marks:
        yield StatedAdvice(
            StatedAdviceWord.RECORD,
            "The numbers stand in the lines below the error, on the console. Or start with the native allocator "
            "(ComfyUI: --disable-cuda-malloc), whose message is whole.",
        )
    elif found.framework == "PyTorch XPU" and found.fact("device_total") is not None:
        if judged.second is StatedCause.DRIVER_REFUSED:
            yield from _torch_refused_advice(found, judged)
        yield from _smaller_request(found)
        free = "To see what is free: torch.xpu.mem_get_info() before the step that fails."
        yield StatedAdvice(StatedAdviceWord.RECORD, f"{free} {_torch_recording_text(found)}")
    else:
        whole = "Give the whole message: the sentences after this one say who holds the memory."
        yield StatedAdvice(StatedAdviceWord.RECORD, f"{whole} {_torch_recording_text(found)}")
    if not found.marks & _SERVERS:
        yield from _smaller_request(found)
        yield _look_for_others_advice(found)


_TORCH: Final[Mapping[StatedCause, Rule]] = {
    StatedCause.REQUEST_EXCEEDS_DEVICE: _torch_shape_advice,
    StatedCause.REQUEST_EXCEEDS_LIMIT: _torch_shape_advice,
    StatedCause.CAP_BY_SETTING: _torch_limit_advice,
    StatedCause.SPILLED: _torch_spilled_advice,
    StatedCause.DRIVER_REFUSED: _torch_refused_advice,
    StatedCause.CACHED_FRAGMENTATION: _torch_fragmented_advice,
    StatedCause.PRIVATE_POOLS: _torch_private_pool_advice,
    StatedCause.OTHER_PROCESS: _torch_others_advice,
    StatedCause.CAPACITY: _torch_capacity_advice,
    StatedCause.UNKNOWN: _torch_unknown_advice,
}


_MPS_SHARE: Final = 1.7
"""The default of PYTORCH_MPS_HIGH_WATERMARK_RATIO."""

_LEAST_SHARED: Final = 7.5 * GiB
"""A smaller limit is not that of Apple silicon: it has 7 GB or more, and Metal recommends two thirds of that."""


def _mps_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if found.message == "metal-buffer" and "ggml" in found.marks:
        text = "Use a newer llama.cpp, which lays the weights in several buffers, or a model of fewer bits."
        yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, text)
        return
    if judged.cause in {StatedCause.REQUEST_EXCEEDS_LIMIT, StatedCause.REQUEST_EXCEEDS_DEVICE}:
        yield from _smaller_request(found, "Split the tensor: a smaller batch, tiles, or a lower resolution.")
        yield StatedAdvice(
            StatedAdviceWord.SEQUENCE,
            "If it is an attention matrix: shorter sequences, or attention in slices.",
        )
        yield StatedAdvice(
            StatedAdviceWord.SHAPE_BUG, "Print its shape: a broadcast or an outer product makes such sizes."
        )
        return
    if judged.cause is StatedCause.DRIVER_REFUSED:
        yield StatedAdvice(
            StatedAdviceWord.DRIVER_BUG,
            ("The counters of the system are wrong, or Metal refused: try a newer macOS or PyTorch."),
        )
        yield StatedAdvice(
            StatedAdviceWord.RAISE_LIMIT,
            f"{torch.MPS_LIMIT}=0.0 switches the test against the counters off; the system may then freeze.",
        )
        return
    limit = found.fact("limit")
    has_own = limit is not None and limit < _LEAST_SHARED
    recommended = format_bytes((limit or 0) / _MPS_SHARE, 2)
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_MODEL,
        "Use a smaller model, or weights of fewer bits: "
        + (
            f"the limit is that of a GPU with {recommended} (if the ratio is the default), most likely its own."
            if has_own
            else "on Apple silicon memory is shared with the system."
        ),
    )
    yield from _smaller_request(found)
    shared = "" if has_own else ": on Apple silicon memory is shared"
    yield StatedAdvice(
        StatedAdviceWord.SYSTEM_MEMORY,
        f"Close other programs, and models that this process still holds{shared}.",
    )
    then = "what the GPU cannot hold then lies in system memory" if has_own else "then the system swaps"
    yield StatedAdvice(
        StatedAdviceWord.RAISE_LIMIT,
        f"{torch.MPS_LIMIT}=0.0 removes the limit; {then}, and the Mac may freeze. Set "
        f"{torch.MPS_LOW}=0.0 with it.",
    )


def _metal_command_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    if "ggml" in found.marks:
        words = _ggml_words(found)
        yield StatedAdvice(StatedAdviceWord.SEQUENCE, f"Lower the context: {words.context}.")
        yield words.smaller_batch
        fewer = f"Use a model of fewer bits, or put fewer layers on the GPU ({words.layers})."
    else:
        yield from _smaller_request(found, "Reduce the batch, the context, or the size of one input.")
        fewer = "Use a smaller model, or weights of fewer bits: memory is shared with the system."
    yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, fewer)
    yield StatedAdvice(
        StatedAdviceWord.SYSTEM_MEMORY, "Close other programs: memory is shared with the system."
    )
    yield StatedAdvice(
        StatedAdviceWord.RAISE_LIMIT,
        "From macOS 14 on, sudo sysctl iogpu.wired_limit_mb=N leaves the GPU more, until the next start; keep some GiB "
        "for the system.",
    )


def _tensorrt_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    words = "Build for smaller inputs or a smaller batch, or with a smaller workspace: set_memory_pool_limit."
    yield StatedAdvice(StatedAdviceWord.SMALLER_REQUEST, words)
    yield _look_for_others_advice(found)
    yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, "Build with FP16 or INT8.")


def _flashinfer_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    sglang = "FLASHINFER_WORKSPACE_SIZE (newer versions: SGLANG_FLASHINFER_WORKSPACE_SIZE), in bytes"
    vllm = "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE, in bytes"
    names = (
        vllm if "vllm" in found.marks else sglang if "sglang" in found.marks else f"{sglang}; in vLLM {vllm}"
    )
    yield StatedAdvice(StatedAdviceWord.RAISE_LIMIT, f"Make the workspace larger: {names}.")
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_REQUEST,
        "Or compute less at once: fewer requests and tokens a step "
        f"(SGLang: {_SGLANG.requests}, {_SGLANG.batch}; vLLM: {_VLLM.requests}, {_VLLM.batch}).",
    )


_GROWTH_1: Final = "config.gpu_options.allow_growth = True"
_GROWTH: Final = f"{tensorflow.FORCE_GROWTH}=true (1.14 or later), or in TensorFlow 1 {_GROWTH_1}"
"""Lets the pool of a TensorFlow of any version take only what it needs."""


def _earlier_error_advice(found: StatedFailure) -> Iterator[StatedAdvice]:
    """What to do where a library could not start for a reason that is not memory."""
    if "kernel_error" in found.marks:
        yield StatedAdvice(
            StatedAdviceWord.SHAPE_BUG,
            "Find the kernel that failed first: with CUDA_LAUNCH_BLOCKING=1, or on the CPU, the traceback names its "
            "line. Most often an index is out of range: a token or a label that is not below the size of its table.",
        )
        return
    text = "Install the cuDNN of the version that the program was built with, and look that no other is found first."
    yield StatedAdvice(StatedAdviceWord.DRIVER_BUG, text)


def _driver_call_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if StatedCause.NOT_LACK_OF_MEMORY in {judged.cause, judged.second}:
        yield from _earlier_error_advice(found)
        return
    if "ggml" in found.marks:
        yield from _ggml_advice(found, judged)
        return
    if found.framework == "TensorFlow":
        yield StatedAdvice(
            StatedAdviceWord.PREALLOCATION,
            f"Leave libraries a part of the device, which TensorFlow takes whole at the start: {_GROWTH}.",
        )
    if not has_own_allocator(found) and "nccl" not in found.marks and found.message == "cuda-call":
        yield from _smaller_request(found, _LESS_AT_ONCE)
    yield StatedAdvice(
        StatedAdviceWord.OTHER_PROCESSES,
        f"Look before the start whether another process holds the device: {_who_holds_command(found)}.",
    )
    if "torch" in found.marks and has_own_allocator(found) and found.framework != "PyTorch XPU":
        wait = "AMD_SERIALIZE_KERNEL=3" if "ROCm" in found.framework else "CUDA_LAUNCH_BLOCKING=1"
        yield StatedAdvice(
            StatedAdviceWord.RECORD, f"Find the call: {wait} makes the traceback name the true line."
        )
    yield from _smaller_request(found, "Leave more of the device to libraries: a smaller batch or model.")


_LESS_AT_ONCE: Final = "Give the program less to hold at once: a smaller problem, batch, image or model."

_LESS_FOR: Final = {
    "CUDA.jl": "Use smaller arrays or a smaller batch; CUDA.unsafe_free!(x) frees an array as soon as it is used.",
    "XGBoost": "Train with less at once: a lower max_bin or max_depth, a QuantileDMatrix, or fewer rows and columns.",
    "CatBoost": "Train with less at once: a lower border_count or depth; with many categorical features also "
    "gpu_cat_features_storage='CpuPinnedMemory' and a lower max_ctr_complexity.",
    "Theano": "Reduce the batch, or the size of one input.",
    "FAISS": "Keep less on the GPU: an index of fewer bits (IVFPQ, useFloat16), identifiers in system memory "
    "(indicesOptions = faiss.INDICES_CPU), shards on several GPUs, or less scratch memory (setTempMemory).",
    "PhysX": "Simulate fewer environments, or make the buffers of the GPU smaller: max_gpu_contact_pairs in Isaac Gym, "
    "gpu_*_capacity in Isaac Lab.",
    "RELION": "Run fewer MPI ranks and threads on this GPU, each rank has a pool of its own; or leave out padding "
    "(--pad 1), or use smaller boxes.",
    "COLMAP": "Match fewer features of an image: lower --SiftMatching.max_num_matches.",
    "hashcat": "Lower the workload (-w 1), or -n and -T; in a virtual machine, give it more memory.",
    "LAMMPS": "Give each GPU fewer atoms: more GPUs, or a smaller system.",
    "Blender": "Render with less at once: smaller textures (Simplify), less subdivision, smaller tiles.",
    "Unreal Engine": "Lower the resolution, the quality of textures, or the size of the texture pool "
    "(r.Streaming.PoolSize).",
    "OpenCL": "Give the program less to hold at once, or several smaller buffers: clinfo names the largest (Max memory "
    "allocation).",
}
"""A library or program -> how it needs less memory."""

_LIMIT_OF: Final = {
    "CUDA.jl": "JULIA_CUDA_HARD_MEMORY_LIMIT, in older versions JULIA_CUDA_MEMORY_LIMIT or CUARRAYS_MEMORY_LIMIT",
    "PaddlePaddle": "FLAGS_gpu_memory_limit_mb",
}
"""A library -> the variable that sets its limit."""


def _program_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    yield from _raise_limit_advice(found, judged)
    if judged.cause is StatedCause.DRIVER_REFUSED:
        text = "Test the driver alone with one allocation of this size; look at ulimit -v and at an earlier error."
        yield StatedAdvice(StatedAdviceWord.DRIVER_BUG, text)
        return
    if judged.cause is StatedCause.OTHER_PROCESS:
        yield _stop_others_advice(found)
    yield from _smaller_request(found, _LESS_FOR.get(found.framework, _LESS_AT_ONCE))
    if judged.cause in {StatedCause.CAPACITY, StatedCause.UNKNOWN}:
        yield _look_for_others_advice(found)
    if found.framework == "CatBoost":
        text = "Let the pool take more of the device, if it is free: gpu_ram_part (the default is 0.95)."
        yield StatedAdvice(StatedAdviceWord.RAISE_LIMIT, text)
    if found.framework == "Windows":
        text = "If system memory is full: close other programs, or let Windows make its page file larger."
        yield StatedAdvice(StatedAdviceWord.SYSTEM_MEMORY, text)


def _exllama_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    yield StatedAdvice(
        StatedAdviceWord.KV_CACHE,
        "Make the cache smaller: fewer tokens (cache_size, max_seq_len), or fewer bits (cache_mode).",
    )
    yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, "Use a smaller model, or weights of fewer bits.")
    yield StatedAdvice(
        StatedAdviceWord.DEVICES,
        "If a device has more free than its share: raise it in gpu_split, or lower autosplit_reserve.",
    )
    yield _look_for_others_advice(found)


def _encoder_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del found, judged
    yield StatedAdvice(
        StatedAdviceWord.OTHER_PROCESSES,
        "Close other programs that encode on this GPU, such as recorders and streams: nvidia-smi encodersessions lists "
        "them.",
    )
    yield StatedAdvice(StatedAdviceWord.SMALLER_REQUEST, "Encode fewer videos at once.")
    yield StatedAdvice(
        StatedAdviceWord.DRIVER_BUG, "Use a newer driver: it allows more sessions on a GeForce."
    )


def _raise_limit_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    """Where a limit ends the process: the variable that sets it."""
    is_limited = judged.cause in {StatedCause.CAP_BY_SETTING, StatedCause.REQUEST_EXCEEDS_LIMIT}
    if is_limited and found.fact("limit"):
        name = _LIMIT_OF.get(found.framework, "")
        text = f"Raise or remove the limit, if the device has more{f': {name}' if name else ''}."
        yield StatedAdvice(StatedAdviceWord.RAISE_LIMIT, text)


def _no_context_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    yield _stop_others_advice(found)
    yield StatedAdvice(
        StatedAdviceWord.PREALLOCATION,
        "If the other program uses TensorFlow, too, and both shall run: it takes the device whole at the start, unless "
        f"it has {_GROWTH}.",
    )


def _kernel_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del found, judged
    text = "Give the kernel smaller blocks (BLOCK_M, BLOCK_N ...) or fewer num_stages."
    yield StatedAdvice(StatedAdviceWord.SMALLER_REQUEST, text)


def _paddle_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if judged.cause is StatedCause.DRIVER_REFUSED:
        yield StatedAdvice(StatedAdviceWord.DRIVER_BUG, "Test the device alone: paddle.utils.run_check().")
        return
    yield from _raise_limit_advice(found, judged)
    yield from _smaller_request(found, "Reduce the batch, or the size of one input.")
    if found.fact("limit") is None or judged.cause is StatedCause.UNKNOWN:
        yield _look_for_others_advice(found)
    yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, "Use a smaller model, or paddle.amp.auto_cast.")
    yield StatedAdvice(
        StatedAdviceWord.RECORD,
        "To see what this process holds of it: paddle.device.cuda.memory_reserved() and memory_allocated().",
    )


# ------------------------------------------------------------------------------
# TensorFlow, XLA and JAX.


def _bfc_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    is_plugin = found.framework == "TensorFlow" and {*tensorflow.ALLOCATORS.values()} & found.marks
    rule = _tensorflow_plugin_advice if is_plugin else _BFC.get(found.framework, _tensorflow_advice)
    yield from rule(found, judged)


def _tensorflow_plugin_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    """An allocator of a plugin refused: it has neither the settings nor the log of the BFC pool."""
    if judged.cause in {StatedCause.REQUEST_EXCEEDS_DEVICE, StatedCause.REQUEST_EXCEEDS_LIMIT}:
        yield StatedAdvice(StatedAdviceWord.SHAPE_BUG, "Print the shape of the tensor.")
    yield from _smaller_request(found)
    yield _look_for_others_advice(found)
    yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, "Use a smaller model.")


def _tensorflow_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    is_old = found.version == "1.x"
    cause = judged.cause
    growth = (
        _GROWTH_1
        if is_old
        else f"tf.config.experimental.set_memory_growth(gpu, True), or {tensorflow.FORCE_GROWTH}=true"
    )
    if cause in {StatedCause.REQUEST_EXCEEDS_DEVICE, StatedCause.REQUEST_EXCEEDS_LIMIT}:
        yield StatedAdvice(
            StatedAdviceWord.SHAPE_BUG,
            ("Print the shape of the tensor: a broadcast or a flattened layer makes such sizes."),
        )
        yield from _smaller_request(found)
        if cause is StatedCause.REQUEST_EXCEEDS_LIMIT and found.fact("device_total"):
            yield StatedAdvice(
                StatedAdviceWord.RAISE_LIMIT,
                ("The device has more than the limit: raise or remove the limit that was set."),
            )
    elif cause is StatedCause.OTHER_PROCESS:
        yield from _tensorflow_others_advice(found, judged, growth)
    elif cause is StatedCause.CACHED_FRAGMENTATION:
        if not is_old:
            yield StatedAdvice(
                StatedAdviceWord.MALLOC_ASYNC,
                (f"{tensorflow.ASYNC} (CUDA 11.2 or later) places by pages."),
            )
        yield from _smaller_request(found)
    else:
        yield from _smaller_request(found)
        if cause is StatedCause.CAPACITY and not is_old:
            yield StatedAdvice(
                StatedAdviceWord.SMALLER_MODEL, "Use a smaller model, or tf.keras.mixed_precision."
            )
        if cause is StatedCause.UNKNOWN:
            yield _look_for_others_advice(found)
            yield StatedAdvice(StatedAdviceWord.PREALLOCATION, f"If two programs share the device: {growth}.")
    yield StatedAdvice(StatedAdviceWord.RECORD, _tensorflow_recording_text(found))


def _tensorflow_others_advice(found: StatedFailure, judged: Judgement, growth: str) -> Iterator[StatedAdvice]:
    """Others hold the device, or a small share of it is set; `growth` lets a pool take only what it needs."""
    yield _stop_others_advice(found)
    pool = "Let the pool"
    if judged.second is StatedCause.CAP_BY_SETTING:
        pool = "If the other program is TensorFlow, too, let its pool"
        names = f"{'' if found.version == '1.x' else 'memory_limit, '}per_process_gpu_memory_fraction"
        text = f"If the program sets a limit or a share of the device ({names}), raise it."
        yield StatedAdvice(StatedAdviceWord.RAISE_LIMIT, text)
    yield StatedAdvice(StatedAdviceWord.PREALLOCATION, f"{pool} take only what it needs: {growth}.")
    yield from _smaller_request(found)


def _tensorflow_recording_text(found: StatedFailure) -> str:
    """How to see who holds a pool of TensorFlow, where its allocator prints that."""
    if "async" in found.marks:
        return (
            "To see who holds it: run once without the asynchronous allocator, which prints no chunks "
            f"(without {tensorflow.ASYNC}), with {tensorflow.LOG_FAILURES}, and keep the whole log."
        )
    if found.version == "1.x":
        return (
            "To see who holds it: RunOptions(report_tensor_allocations_upon_oom=True), and the whole log with its Bin "
            "and Chunk lines."
        )
    return (
        f"To see who holds it: run with {tensorflow.LOG_FAILURES} and keep the whole log: bfcviz opens its Bin and "
        "Chunk lines."
    )


def _jax_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    cause = judged.cause
    if cause in {StatedCause.REQUEST_EXCEEDS_DEVICE, StatedCause.REQUEST_EXCEEDS_LIMIT}:
        yield StatedAdvice(
            StatedAdviceWord.SHAPE_BUG,
            "Find the array: jax.eval_shape(f, *args) or jax.make_jaxpr(f)(*args) shows every shape; look for a "
            "broadcast, a vmap, or a one-hot.",
        )
        yield from _smaller_request(found, "Split the work: jax.lax.map, a scan, or a smaller batch.")
        yield StatedAdvice(StatedAdviceWord.OPTIMIZER, "Shard the arrays over more devices (jax.sharding).")
    elif cause is StatedCause.OTHER_PROCESS:
        yield _stop_others_advice(found)
        is_set = judged.second is StatedCause.CAP_BY_SETTING
        other = "If the other program is JAX, too, let it take" if is_set else "Take"
        yield StatedAdvice(
            StatedAdviceWord.PREALLOCATION,
            f"{other} less at the start: {xla.PREALLOCATE}=false, or {xla.SHARE_NAMES}.",
        )
        if is_set:
            text = f"If this program sets a share of the device ({xla.SHARE_NAMES}), raise it."
            yield StatedAdvice(StatedAdviceWord.RAISE_LIMIT, text)
        yield from _smaller_request(found)
    elif cause is StatedCause.CACHED_FRAGMENTATION:
        yield StatedAdvice(
            StatedAdviceWord.PREALLOCATION,
            (f"Let the pool be one region from the start: {xla.PREALLOCATE}=true."),
        )
        yield StatedAdvice(StatedAdviceWord.MALLOC_ASYNC, f"{tensorflow.ASYNC} places by pages.")
        yield from _smaller_request(found)
    elif (
        found.fact("program_total") and cause is StatedCause.UNKNOWN
    ):  # the program is small: what else is there
        yield _look_for_others_advice(found)
        yield StatedAdvice(
            StatedAdviceWord.PREALLOCATION,
            f"JAX takes 75 % of the device at the start: {xla.SHARE_NAMES} sets another share; a second program finds "
            "little.",
        )
        text = "See which arrays this process keeps: jax.live_arrays()."
        yield StatedAdvice(StatedAdviceWord.RECORD, text)
        return
    else:
        yield from _smaller_request(found, "Reduce the batch, or split the work with jax.lax.map.")
        yield StatedAdvice(
            StatedAdviceWord.SEQUENCE, "For sequences and proteins: shorter ones, or attention in chunks."
        )
        yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, "Use bfloat16, or a smaller model.")
        yield StatedAdvice(
            StatedAdviceWord.CHECKPOINTING, "In training: jax.checkpoint keeps fewer values for the gradient."
        )
        if cause is StatedCause.UNKNOWN:
            yield _look_for_others_advice(found)
            yield StatedAdvice(
                StatedAdviceWord.PREALLOCATION,
                f"JAX takes 75 % of the device at the start: {xla.SHARE_NAMES} sets another share; a second program "
                "finds little.",
            )
    yield StatedAdvice(
        StatedAdviceWord.RECORD,
        "To see what the program needs: XLA_FLAGS=--xla_dump_to=/tmp/xla (buffer-assignment.txt), or "
        "jax.profiler.save_device_memory_profile('mem.prof'), which bfcviz opens.",
    )


def _reactant_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    cause = judged.cause
    share = f"{xla.REACTANT_FRACTION} (the default is 0.75)"
    if cause in {StatedCause.REQUEST_EXCEEDS_DEVICE, StatedCause.REQUEST_EXCEEDS_LIMIT}:
        yield StatedAdvice(
            StatedAdviceWord.SHAPE_BUG, "Print the size of the arrays that the compiled function makes."
        )
    elif cause is StatedCause.OTHER_PROCESS:
        yield _stop_others_advice(found)
        yield StatedAdvice(
            StatedAdviceWord.PREALLOCATION,
            f"Take less at the start: {xla.REACTANT_PREALLOCATE}=false, or {share}.",
        )
    yield from _smaller_request(found, "Use smaller arrays or a smaller batch, or split the work.")
    if cause in {StatedCause.CAPACITY, StatedCause.UNKNOWN, StatedCause.REQUEST_EXCEEDS_LIMIT}:
        yield StatedAdvice(
            StatedAdviceWord.RAISE_LIMIT,
            f"Give the pool more of the device, if it has more: {share}, before the start.",
        )


_BFC: Final[Mapping[str, Rule]] = {"JAX": _jax_advice, "Reactant": _reactant_advice}
"""Of the frameworks with TensorFlow's allocator; all others are TensorFlow."""


@dataclass(frozen=True)
class _TpuWords:
    """What helps on a TPU, as one client of XLA spells it.

    Attributes:
        shard: in brackets, what spreads arrays over the cores.
        recompute: what computes values again in the backward pass.
        sizes: what else says the sizes of a program, after a semicolon.
    """

    shard: str
    recompute: str
    sizes: str = ""


_JAX_TPU: Final = _TpuWords(
    " (FSDP, jax.sharding)",
    "jax.checkpoint (remat)",
    "; of a program that fits, jax.jit(f).lower(*args).compile().memory_analysis() says its sizes",
)
_TPU_WORDS: Final = {
    "PyTorch/XLA TPU": _TpuWords(
        " (FSDP of torch_xla 1.13 or later)", "torch_xla.utils.checkpoint (1.13 or later)"
    ),
    "TensorFlow TPU": _TpuWords("", "tf.recompute_grad"),
}
"""Framework -> its words; all others are JAX."""


def _tpu_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if "smem" in found.marks:
        yield StatedAdvice(
            StatedAdviceWord.SMALLER_REQUEST,
            "Give the kernels fewer scalars at once, such as tables of pages and indices (in Pallas what is prefetched "
            "as scalars): call a kernel for parts of the batch, or with shorter sequences.",
        )
        return
    if "vmem" in found.marks:
        if "stack" not in found.marks or "kernel" in found.marks:  # else an operation of XLA itself
            yield from _smaller_request(found, "Use smaller blocks in the kernel.")
        yield StatedAdvice(
            StatedAdviceWord.RAISE_LIMIT,
            ("Raise --xla_tpu_scoped_vmem_limit_kib in LIBTPU_INIT_ARGS, up to what the chip has."),
        )
        if "stack" in found.marks and "kernel" not in found.marks:
            text = "Use a newer libtpu, or report it to XLA, which chose the blocks of this operation itself."
            yield StatedAdvice(StatedAdviceWord.DRIVER_BUG, text)
        return
    if found.message == "tpu-buffer":
        yield StatedAdvice(
            StatedAdviceWord.SHAPE_BUG, "Find the array in the text by its shape: no core can hold it."
        )
    if is_padded(found):
        yield StatedAdvice(
            StatedAdviceWord.SHAPE_BUG,
            "Change the shape or the order of dimensions of the largest buffer: a TPU fills up the last two "
            "dimensions of a layout to whole tiles (T(8,128) in the shape), so both should be large.",
        )
    words = _TPU_WORDS.get(found.framework, _JAX_TPU)
    has_table = found.fact("largest_buffer") is not None
    too_much, limit = found.fact("exceeded"), found.fact("limit")
    if limit is None or too_much is None or 2 * too_much < limit:  # a smaller batch may do
        yield from _smaller_request(found, "Reduce the batch of one core.")
    yield StatedAdvice(
        StatedAdviceWord.OPTIMIZER,
        f"Shard parameters and optimizer state over the cores{words.shard}.",
    )
    yield from _smaller_request(found, "Reduce the batch of one core.")
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_MODEL,
        f"Use bfloat16 {'for what the table lists as' if has_table else 'instead of'} float32, or a smaller model.",
    )
    yield StatedAdvice(
        StatedAdviceWord.SEQUENCE, "Use shorter sequences, or attention that does not store its matrix."
    )
    yield StatedAdvice(
        StatedAdviceWord.CHECKPOINTING,
        f"In training: {words.recompute} keeps fewer values for the gradient.",
    )
    if judged.cause is StatedCause.REQUEST_EXCEEDS_DEVICE:
        lines = "The lines below" if has_table else "Keep the lines after the error: those"
        text = f"{lines} (Largest program allocations in hbm) name the arrays{words.sizes}."
        yield StatedAdvice(StatedAdviceWord.RECORD, text)


# ------------------------------------------------------------------------------
# The others.


def _cupy_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if judged.second is StatedCause.REQUEST_EXCEEDS_DEVICE:
        text = "Print the shape and the type of the array, and the size that they make: a broadcast makes such sizes."
        yield StatedAdvice(StatedAdviceWord.SHAPE_BUG, text)
    if judged.cause is StatedCause.CAP_BY_SETTING:
        yield StatedAdvice(
            StatedAdviceWord.RAISE_LIMIT,
            ("Raise the limit: CUPY_GPU_MEMORY_LIMIT, or cupy.get_default_memory_pool().set_limit(...)."),
        )
    elif judged.cause is StatedCause.UNKNOWN:
        yield StatedAdvice(
            StatedAdviceWord.OTHER_PROCESSES,
            f"Look who holds the device: {_who_holds_command(found)}; cupy.cuda.Device().mem_info says what is free.",
        )
    yield from _smaller_request(
        found, "Work on parts of the array, and delete temporaries before large steps."
    )


def _rmm_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if judged.cause is StatedCause.CAP_BY_SETTING:
        yield StatedAdvice(
            StatedAdviceWord.RAISE_LIMIT,
            "Raise the limit: rmm.mr.PoolMemoryResource(upstream, maximum_pool_size=...), or "
            "rmm.reinitialize(pool_allocator=True, maximum_pool_size=...)."
            + (
                " Or start the pool at its maximum (initial_pool_size): memory of several growths is never one piece."
                if "adaptor" not in found.marks
                and (found.fact("requested") or 0) <= (found.fact("limit") or 0)
                else ""
            ),
        )
    yield from _smaller_request(found, "Work on smaller partitions.")
    if judged.cause is not StatedCause.CAP_BY_SETTING:
        yield _look_for_others_advice(found)
        yield StatedAdvice(
            StatedAdviceWord.SYSTEM_MEMORY,
            "Managed memory spills to the system: rmm.mr.ManagedMemoryResource().",
        )
    yield StatedAdvice(
        StatedAdviceWord.RECORD,
        ("To see who holds it: rmm.enable_logging(log_file_name='rmm.csv'), which bfcviz opens."),
    )


def _onnx_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if judged.cause is StatedCause.CAP_BY_SETTING:
        raised = "Raise gpu_mem_limit of the provider (max_mem of OrtArenaCfg), or leave it out."
        yield StatedAdvice(StatedAdviceWord.RAISE_LIMIT, raised)
    yield from _smaller_request(
        found,
        "Reduce the batch or the input; arena_extend_strategy=kSameAsRequested makes the arena grow by no more "
        "than needed.",
    )
    if judged.cause is not StatedCause.CAP_BY_SETTING:
        look = (
            "If the model runs on a GPU, look who holds it, also other sessions of this process: "
            f"{_who_holds_command(found)}."
        )
        yield StatedAdvice(StatedAdviceWord.OTHER_PROCESSES, look)
    yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, "Use float16 or a quantized model.")


@dataclass(frozen=True)
class _GgmlWords:
    """The settings of a program on ggml, as its user types them.

    Attributes:
        layers: how many layers lie on the devices.
        context: the length of the context.
        parallel: sequences at once.
        batch: tokens that are computed at once.
        cache: a quantized KV cache.
        flash: attention that does not store its matrix.
        unmapped: switches off that weights are mapped from their file.
        split: the share of each device; "": there is no such setting.
    """

    layers: str
    context: str
    parallel: str
    batch: str
    cache: str
    flash: str
    unmapped: str
    split: str = ""

    @property
    def smaller_batch(self) -> StatedAdvice:
        """Compute fewer tokens at once."""
        text = f"Lower the physical batch: {self.batch} 256 or less (the default is 512)."
        return StatedAdvice(StatedAdviceWord.SMALLER_REQUEST, text)


_LLAMA_CPP: Final = _GgmlWords(
    layers="-ngl",
    context="-c",
    parallel="-np",
    batch="-ub",
    cache="-ctk q8_0 -ctv q8_0",
    flash="-fa on (builds before September 2025: -fa)",
    unmapped="--no-mmap",
    split="-ts",
)
_OLLAMA: Final = _GgmlWords(
    layers="num_gpu",
    context="num_ctx",
    parallel="OLLAMA_NUM_PARALLEL",
    batch="num_batch",
    cache="OLLAMA_KV_CACHE_TYPE=q8_0",
    flash="OLLAMA_FLASH_ATTENTION=1",
    unmapped="use_mmap false",
)


def _ggml_words(found: StatedFailure) -> _GgmlWords:
    """The settings of the program that printed a text of ggml."""
    return _OLLAMA if "ollama" in found.marks else _LLAMA_CPP


def _ggml_split_advice(found: StatedFailure) -> Iterator[StatedAdvice]:
    """How to put less on the device that a text names, where its number shows that there are several."""
    device, split = max(found.devices, default=0), _ggml_words(found).split
    if device and split:
        text = f"Put less of the model on device {device} and more on the others: {split}."
        yield StatedAdvice(StatedAdviceWord.DEVICES, text)


def _ggml_host_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    """A buffer in system memory was refused: layers on a device take less of it, not more."""
    words = _ggml_words(found)
    yield StatedAdvice(StatedAdviceWord.SYSTEM_MEMORY, "Close other programs, or add memory to the system.")
    if buffer_of(found) in {"compute", "kv"}:
        yield from _ggml_advice(found, judged)
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_MODEL,
        "Use a smaller model, or one of fewer bits; where a GPU has room, put more layers there "
        f"({words.layers}). Weights that are mapped from their file need not be in memory all at once: leave out "
        f"{words.unmapped}.",
    )


def _ggml_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    words = _ggml_words(found)
    buffer = "compute" if "pool" in found.marks else buffer_of(found)
    if buffer == "compute":
        yield StatedAdvice(
            StatedAdviceWord.SEQUENCE,
            f"Lower the context: {words.context}; with {words.flash} the buffer grows less with it.",
        )
        yield words.smaller_batch
        if "pool" in found.marks:
            yield StatedAdvice(
                StatedAdviceWord.SMALLER_MODEL,
                f"Leave the pool more of the device: put fewer layers on it ({words.layers}), or use a model of fewer "
                "bits.",
            )
        yield from _ggml_split_advice(found)
        return
    if buffer == "kv":
        yield StatedAdvice(
            StatedAdviceWord.SEQUENCE,
            f"Lower the context: {words.context}, or the number of parallel sequences: {words.parallel}.",
        )
        yield StatedAdvice(
            StatedAdviceWord.KV_CACHE, f"Use a quantized KV cache: {words.cache}, with {words.flash}."
        )
        yield from _ggml_split_advice(found)
        return
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_MODEL,
        f"Put fewer layers on the device ({words.layers}), or use a model of fewer bits.",
    )
    yield from _ggml_split_advice(found)
    if not buffer:
        yield StatedAdvice(StatedAdviceWord.SEQUENCE, f"Lower the context: {words.context}.")
        yield words.smaller_batch
    yield _look_for_others_advice(found)


def _vllm_requests_advice(found: StatedFailure) -> Iterator[StatedAdvice]:
    """A trial run with many requests at once failed."""
    requests = found.facts.get("max_requests", 0)
    text = f"Lower {_VLLM.requests}{f' below {requests:,}' if requests else ''}."
    yield StatedAdvice(StatedAdviceWord.SMALLER_REQUEST, text)
    text = f"Or give the KV cache less, so that more is left for this step: a lower {_VLLM.share}."
    yield StatedAdvice(StatedAdviceWord.KV_CACHE, text)


def _vllm_warmup_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if found.fact("requested") is not None:  # PyTorch's message stands in the text, too
        yield from _torch_advice(found, judged)
        return
    yield from _vllm_requests_advice(found)
    yield from _torch_full_advice(found, judged)
    text = "Look for PyTorch's own message before this one in the log: it says how much was free, and who held it."
    yield StatedAdvice(StatedAdviceWord.RECORD, text)


def _vllm_start_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    total, free = found.fact("device_total"), found.fact("device_free")
    is_near = total and free is not None and 2 * free >= (found.fact("requested") or 0)
    share = f" {int(100 * (free or 0) / total) / 100:.2f} would fit now." if total and is_near else ""
    limit = StatedAdvice(StatedAdviceWord.RAISE_LIMIT, f"Lower {_VLLM.share}, so that it fits.{share}")
    stop = f"Stop what else runs on it, also an engine that did not end: {_who_holds_command(found)}."
    others = StatedAdvice(StatedAdviceWord.OTHER_PROCESSES, stop)
    yield from (limit, others) if judged.cause is StatedCause.CAP_BY_SETTING else (others, limit)


def _vllm_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if judged.cause is StatedCause.OTHER_PROCESS:
        yield _stop_others_advice(found)
        return
    if "length" in found.marks:
        yield StatedAdvice(
            StatedAdviceWord.SEQUENCE,
            f"Lower {_VLLM.length}"
            + (f" to {found.facts['kv_tokens']:,} or less." if "kv_tokens" in found.facts else "."),
        )
    yield StatedAdvice(StatedAdviceWord.RAISE_LIMIT, f"Raise {_VLLM.share}, if the device has more.")
    yield StatedAdvice(
        StatedAdviceWord.KV_CACHE, f"Make the KV cache smaller: {_VLLM.cache}, fewer {_VLLM.requests}."
    )
    yield StatedAdvice(
        StatedAdviceWord.SEQUENCE, f"Lower {_VLLM.length}: the trial run then needs less, too."
    )
    yield _smaller_weights_advice(_VLLM)


def _sglang_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del found, judged
    yield StatedAdvice(StatedAdviceWord.RAISE_LIMIT, f"Raise {_SGLANG.share}.")
    yield _smaller_weights_advice(_SGLANG)


def _smaller_weights_advice(words: _ServerWords) -> StatedAdvice:
    text = f"Use a quantized model, or more devices ({words.devices}): the weights take the share."
    return StatedAdvice(StatedAdviceWord.SMALLER_MODEL, text)


def _tgi_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if found.fact("requested") is not None:
        yield from _torch_advice(found, judged)
        return
    yield from _tgi_tokens_advice(found)
    yield _look_for_others_advice(found)


def _tgi_tokens_advice(found: StatedFailure) -> Iterator[StatedAdvice]:
    tokens, total = found.facts.get("prefill_tokens"), found.facts.get("total_tokens")
    if total is not None:
        text = f"Lower --max-batch-total-tokens below {total:,}, or --max-batch-prefill-tokens."
        yield StatedAdvice(StatedAdviceWord.KV_CACHE, text)
    else:
        below = "" if tokens is None else f" below {tokens:,}"
        yield StatedAdvice(
            StatedAdviceWord.SMALLER_REQUEST,
            f"Lower --max-batch-prefill-tokens{below}. It may not be less than the longest prompt "
            "(--max-input-tokens, in older versions --max-input-length): lower that, too.",
        )
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_MODEL, "Use a quantized model (--quantize), or more devices (--num-shard)."
    )


def _bitsandbytes_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    system = StatedAdvice(
        StatedAdviceWord.SYSTEM_MEMORY,
        "With a paged optimizer (paged_adamw_8bit ...): look at free -g, and in WSL at memory= in .wslconfig, or use "
        "the optimizer that is not paged (adamw_8bit).",
    )
    if "managed" in found.marks:
        yield system
    yield _look_for_others_advice(found)
    yield from _smaller_request(found, "Leave more of the device free: a smaller batch or model.")
    yield system


_FAR_ABOVE: Final = 2
"""Times what is free: other programs rarely hold what is missing of a need that is larger."""


def _host_memory_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if found.message == "host-paging":
        yield StatedAdvice(
            StatedAdviceWord.SYSTEM_MEMORY,
            "Let Windows make its page file larger, with enough room on its disk, and close other programs; in Python, "
            "start fewer worker processes: each takes memory for its own libraries.",
        )
        return
    if found.message == "ggml-buffer":
        yield from _ggml_host_advice(found, judged)
        return
    if found.message == "ollama-system":
        needed, free = found.fact("requested") or 0, found.fact("available") or 0
        close = StatedAdvice(StatedAdviceWord.SYSTEM_MEMORY, "Close other programs, or add memory.")
        smaller = StatedAdvice(StatedAdviceWord.SMALLER_MODEL, "Use a smaller model, or one of fewer bits.")
        yield from (smaller, close) if needed > _FAR_ABOVE * free else (close, smaller)
        return
    if found.message.startswith("onnx-"):
        yield from _smaller_request(found, "Reduce the batch or the input.")
        yield StatedAdvice(
            StatedAdviceWord.SYSTEM_MEMORY,
            "Close other programs, or add memory; SessionOptions.enable_cpu_mem_arena = False lets a session return "
            "what it does not use.",
        )
        return
    if found.message == "tf-host":
        yield StatedAdvice(
            StatedAdviceWord.SYSTEM_MEMORY,
            "Look at free -g, ulimit -l (locked pages) and, in WSL, memory= in .wslconfig; "
            f"{tensorflow.POOL_LIMIT} limits the pool of pinned memory.",
        )
        return
    if "shared_memory" in found.marks:
        yield StatedAdvice(
            StatedAdviceWord.SYSTEM_MEMORY,
            "Give the container more shared memory: docker run --shm-size=8g, or --ipc=host; else use fewer workers of "
            "the data loader.",
        )
        return
    if found.message == "host-signal":
        text = "Ask the system: dmesg -T | grep -i -E 'oom|killed process', or the batch system's report of the job."
        yield StatedAdvice(StatedAdviceWord.RECORD, text)
    if found.op and found.message == "host-killed" and not found.op.startswith(_PYTHON_PROGRAMS):
        yield StatedAdvice(
            StatedAdviceWord.SYSTEM_MEMORY,
            "Look at who holds system memory (ps aux --sort=-rss | head; the kernel's lines before this one list it, "
            f"too). Let {found.op}, or the largest of them, use less, or add memory.",
        )
    else:
        first = "If system memory ran out, use" if found.message == "host-signal" else "Use"
        yield StatedAdvice(
            StatedAdviceWord.SYSTEM_MEMORY,
            f"{first} less system memory: fewer workers of the data loader, data in parts, float32 instead of "
            "float64; or add memory.",
        )


_PYTHON_PROGRAMS: Final = ("python", "pt_", "ray", "jupyter", "ipython", "torchrun", "accelerate")
"""How the names of processes begin that are most often Python programs."""


def _below_zero_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    """A size below zero: find where it is computed."""
    del found, judged
    yield StatedAdvice(
        StatedAdviceWord.SHAPE_BUG,
        "Print the shape of the array, and the product of its dimensions: none may be negative, and with 2^31 elements "
        "or more a newer version of the library may be needed.",
    )
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_REQUEST, "Split the array into parts of fewer than 2^31 elements."
    )


def _pinned_pool_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    """A pool of pinned system memory at its limit: the variable that sets it."""
    del judged
    setting, unit = next(said for name, said in tensorflow.PINNED_POOLS.items() if name in found.marks)
    limit = format_bytes(found.fact("limit") or 0, 2)
    yield StatedAdvice(
        StatedAdviceWord.RAISE_LIMIT,
        f"Raise the limit of the pool, now {limit}, as far as system memory allows: {setting}, in {unit}, before the "
        "start.",
    )
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_REQUEST,
        "Copy less to the GPU at once: arrays that wait for a copy lie in this pool.",
    )


def _soft_failure_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    """Only what helps if it fails after all."""
    if found.message == "ggml-buffer":
        yield from (_ggml_host_advice if "host" in found.marks else _ggml_advice)(found, judged)


_PLAIN: Final = frozenset({_cupy_advice, _rmm_advice, _onnx_advice})
"""Rules that do not look at the size of the request."""

_GROUPS: Final[Mapping[str, Rule]] = {
    "torch": _torch_advice,
    "metal": _mps_advice,
    "cuda": _driver_call_advice,
    "tf": _bfc_advice,
    "xla": _bfc_advice,
    "tpu": _tpu_advice,
    "cupy": _cupy_advice,
    "rmm": _rmm_advice,
    "onnx": _onnx_advice,
    "ggml": _ggml_advice,
    "paddle": _paddle_advice,
    "program": _program_advice,
    "trt": _tensorrt_advice,
    "flashinfer": _flashinfer_advice,
    "vllm": _vllm_advice,
    "sglang": _sglang_advice,
    "tgi": _tgi_advice,
    "bnb": _bitsandbytes_advice,
    "host": _host_memory_advice,
    "ollama": _host_memory_advice,
    "nvidia": _soft_failure_advice,
}
"""First part of an entry's name -> its advice."""

_OF_TEXT: Final[Mapping[str, Rule]] = {
    "tf-context": _no_context_advice,
    "cuda-shared": _kernel_advice,
    "program-exllama": _exllama_advice,
    "program-encoder": _encoder_advice,
    "torch-xpu-block": _torch_refused_advice,
    "torch-size": _torch_size_advice,
    "torch-nvml": _torch_nvml_advice,
    **dict.fromkeys(("torch-mps", "torch-mps-buffer"), _mps_advice),
    **dict.fromkeys(("metal-command", "metal-refused"), _metal_command_advice),
    "vllm-start": _vllm_start_advice,
    "vllm-warmup": _vllm_warmup_advice,
}
"""Name of an entry -> its advice, where it is not that of its group."""


def setting_for(found: StatedFailure, value: str) -> str:
    """A setting of the allocator, by a variable that the version and the platform of a text read.

    Builds for CUDA and ROCm from 2.9 on read the older name, too (c10/cuda/CUDAAllocatorConfig.h).
    """
    if found.framework == "PyTorch NPU":
        return f"{NPU_CONF}={value}"
    if "conf" in found.marks or found.version == "2.9 or later":
        return f"{NEW_CONF}={value} (its older name, {CONF}, is still read, too)"
    return f"{HIP_CONF if 'hip_conf' in found.marks else CONF}={value}"
