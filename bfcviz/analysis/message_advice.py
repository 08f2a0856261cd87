"""What to do about a stated failure: advice that the verdict, the framework, its version and the platform allow.

The first is the one thing to do. Names of settings are those of the framework and version that printed the text.
Nothing is advised that cannot work there: no setting of an allocator for a full device, no batch for a tensor that
has none, no limit above the device.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import starmap
from typing import Final, NamedTuple

from bfcviz.analysis.message_verdict import (
    CONTEXT,
    SLIVER,
    SMALL_PROCESS,
    Judgement,
    StatedCause,
    buffer_of,
    device_use,
    fits_by_count,
    has_own_allocator,
    is_in_server,
    is_padded,
)
from bfcviz.formats import cupy, tensorflow, torch, xla
from bfcviz.formats.message_grammar import IMPOSSIBLE, StatedFailure
from bfcviz.formats.message_tables import BY_SIGNAL
from bfcviz.formats.torch import CONF, HIP_CONF, NEW_CONF, NPU_CONF
from bfcviz.units import GiB, format_bytes


class AdviceWord(StrEnum):
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
    FREE_CACHE = "free_cached_blocks"


class StatedAdvice(NamedTuple):
    """One thing to do.

    Attributes:
        kind: what it is about.
        text: how, as the framework and version spell it.
    """

    kind: AdviceWord
    text: str


AdviceTexts = Mapping[AdviceWord, str]
"""What to do, by what it is about: the most important first."""

Rule = Callable[[StatedFailure, Judgement], Iterator[AdviceTexts]]


def advise(found: StatedFailure, judged: Judgement) -> tuple[StatedAdvice, ...]:
    """What to do about a stated failure, or about a refusal that is none; the one thing to do first."""
    rule = _advice_rule(found, judged)
    given: Iterable[AdviceTexts] = rule(found, judged)
    is_too_large = judged.cause is StatedCause.REQUEST_EXCEEDS_DEVICE
    is_absurd = found.facts.get("requested", 0) >= IMPOSSIBLE and "host" not in found.marks
    is_plain = rule in _PLAIN or is_absurd
    if is_too_large and found.fact("device_total") is None and is_plain:
        text = (
            "Print the shape, and the sizes that it is made from: so much is a wrong shape or a wrong index."
        )
        given = [{AdviceWord.SHAPE_BUG: text}, *given]
    advice = _merged(given)
    look = AdviceWord.OTHER_PROCESSES
    if is_too_large:  # for an empty device, too
        advice.pop(look, None)
    if found.message == "tf-async":  # it takes only what it needs
        advice.pop(AdviceWord.PREALLOCATION, None)
    if judged.cause is StatedCause.UNKNOWN and _is_tiny(found) and look in advice:
        advice = {look: advice[look]} | advice
    return tuple(starmap(StatedAdvice, advice.items()))


def _merged(given: Iterable[AdviceTexts]) -> dict[AdviceWord, str]:
    """All advice on a stated failure; of each kind the first."""
    found: dict[AdviceWord, str] = {}
    for each in given:
        found |= {kind: text for kind, text in each.items() if kind not in found}
    return found


def _advice_rule(found: StatedFailure, judged: Judgement) -> Rule:
    """The rule that knows the advice on a stated failure: that of the cause, else of the text, else of its group."""
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
    """Whether a stated shape is that of a convolution's weights: a small square, then channels in and out."""
    return len(shape) == 4 and 1 < shape[0] == shape[1] <= _WIDEST_FILTER and min(shape[2:]) > shape[0]


_WIDEST_FILTER: Final = 11

_TINY: Final = 64 << 10


def _is_tiny(found: StatedFailure) -> bool:
    """Whether a stated request has so few bytes that advice on a smaller one is no use: the rest fills the device."""
    return (found.fact("requested") or _TINY) < _TINY


def _smaller_request(found: StatedFailure, words: str = "") -> Iterator[AdviceTexts]:
    """Advice on a stated failure: a smaller request, in the words of what it is."""
    what = StatedAdviceSubject.VARIABLE if "initializer" in found.marks else requested(found.op, found.shape)
    subject, less = found.op or "The tensor", words or "Reduce the batch, or the size of one input."
    if _is_tiny(found):
        yield {AdviceWord.SMALLER_REQUEST: less}
    elif what is not StatedAdviceSubject.CONSTANT and _is_filter(found.shape):
        yield {
            AdviceWord.SMALLER_MODEL: f"The tensor {list(found.shape)} has the shape of a convolution's weights: "
            "its size is that of the model, not of the batch. Use a smaller model, or one of fewer bits."
        }
    elif what is StatedAdviceSubject.VARIABLE:
        yield {
            AdviceWord.SMALLER_MODEL: f"{subject} is a variable or a slot of the optimizer: its size is that of "
            "the model, not of the batch.",
            AdviceWord.OPTIMIZER: "Use an optimizer with fewer slots, or shard or offload its state.",
        }
    elif what is StatedAdviceSubject.CONSTANT:
        yield {
            AdviceWord.SMALLER_REQUEST: f"{found.op} copies a whole array to the device: feed it in parts "
            "instead (tf.data, a generator)."
        }
    else:
        yield {AdviceWord.SMALLER_REQUEST: _smaller_batch_text(found) or less}


def _smaller_batch_text(found: StatedFailure) -> str:
    """Advice on a stated failure: the batch that fits, where shape and text show one."""
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
    if fits < 1 and request < limit // 100:
        return (
            f"Reduce the batch of the whole step, or use a smaller model: all but {format_bytes(limit - used, 2)} of "
            "the pool was in use before this request, which is small."
        )
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
    """For advice on a stated failure, the module of torch that has the functions for this kind of device."""
    return {"PyTorch XPU": "xpu", "PyTorch NPU": "npu"}.get(found.framework, "cuda")


_DRIVER_TOOL: Final = "the tool of the device's driver names them"
_WHO_BY_FRAMEWORK: Final = {
    **dict.fromkeys(("ROCm", "PyTorch ROCm"), "rocm-smi --showpids"),
    **dict.fromkeys(("Vulkan", "OpenCL"), _DRIVER_TOOL),
    **dict.fromkeys(("PyTorch XPU", "oneAPI"), "xpu-smi ps"),
    **dict.fromkeys(("PyTorch NPU", "Ascend CANN"), "npu-smi info"),
    **dict.fromkeys(("Windows", "DirectML", "Unreal Engine"), "Task Manager lists them"),
    **dict.fromkeys(("WebGPU", "hashcat", "LAMMPS", "Kokkos", "OpenVINO"), _DRIVER_TOOL),
    "AWS Neuron": "neuron-ls",
    "Intel Gaudi": "hl-smi",
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
    """For advice on a stated failure, the command, or the tool, that names the processes on the device."""
    if found.framework in _WHO_BY_FRAMEWORK:
        return _WHO_BY_FRAMEWORK[found.framework]
    marks = frozenset[str]() if found.framework.startswith("PyTorch") else found.marks
    nvidia = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"
    return next((text for mark, text in _WHO_BY_MARK.items() if mark in marks), nvidia)


def _look_for_others_advice(found: StatedFailure) -> AdviceTexts:
    text = f"Look whether another process holds the device: {_who_holds_command(found)}."
    return {AdviceWord.OTHER_PROCESSES: text}


def _stop_others_advice(found: StatedFailure) -> AdviceTexts:
    text = f"Stop other programs and notebook kernels on this device, which this lists: {_who_holds_command(found)}."
    return {AdviceWord.OTHER_PROCESSES: text}


def _torch_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if "tgi" in found.marks and judged.cause is not StatedCause.OTHER_PROCESS:
        yield from _tgi_tokens_advice(found)
    if "trtllm_cache" in found.marks and judged.cause is not StatedCause.OTHER_PROCESS:
        yield _TRTLLM_CACHE
    if "max_requests" in found.facts and judged.cause is not StatedCause.OTHER_PROCESS:
        yield from _vllm_requests_advice(found)
    yield from _TORCH[judged.cause](found, judged)
    if judged.cause in {
        StatedCause.CAPACITY,
        StatedCause.CACHED_FRAGMENTATION,
        StatedCause.PRIVATE_POOLS,
        StatedCause.UNKNOWN,
    }:
        yield {AdviceWord.RECORD: _torch_recording_text(found)}


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


def _torch_size_advice(_found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    yield {
        AdviceWord.SHAPE_BUG: "Print the shape of the tensor where it fails, and the sizes that make it: one is wrong."
    }


def _torch_shape_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    request, total = found.facts.get("requested", 0), found.fact("device_total") or 1
    is_nothing = found.fact("allocated") == 0
    if found.framework == "PyTorch ROCm" and is_nothing:
        yield {
            AdviceWord.DRIVER_BUG: "On a device that shares the system's memory, the runtime may report too "
            "little: compare rocminfo (Pool 1) and /sys/class/drm/card*/device/mem_info_vram_total with the total in "
            "the text; a newer ROCm may report it right."
        }
    if request >= 1.5 * total:
        yield {
            AdviceWord.SHAPE_BUG: "Print the shape of the tensor where it fails: a broadcast, an outer product, "
            "or a full attention matrix makes such sizes."
        }
    yield from _smaller_request(
        found, "Split the tensor: a smaller batch, chunks, tiles, or a lower resolution."
    )
    if judged.second is StatedCause.DRIVER_REFUSED and found.framework == "PyTorch XPU":
        yield {
            AdviceWord.DRIVER_BUG: "Keep its parts below the limit for one allocation, too (clinfo, Max memory "
            "allocation), or set UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1 before the start."
        }
    yield {
        AdviceWord.SEQUENCE: "If it is an attention matrix: shorter sequences, or attention that does not store it."
    }


def _torch_limit_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    backend = _torch_backend(found)
    yield {
        AdviceWord.RAISE_LIMIT: f"Search the code for torch.{backend}.set_per_process_memory_fraction and raise "
        "it, up to 1.0."
    }


def _torch_spilled_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    yield {
        AdviceWord.SMALLER_MODEL: "Use a smaller model, or weights of fewer bits: it does not fit this device."
    }
    yield from _smaller_request(found)
    yield {
        AdviceWord.SYSTEM_MEMORY: (
            "The driver used system memory: in the NVIDIA Control Panel set CUDA - Sysmem Fallback Policy to "
            "Prefer No Sysmem Fallback to fail at once instead, or add memory to the system."
            if found.framework != "PyTorch ROCm"
            else "The driver used system memory (GTT): it is slow, and it ended, too."
        )
    }


_SINGLE_BUFFER: Final = {
    AdviceWord.SMALLER_REQUEST: "Keep single tensors below the limit for one allocation (clinfo, Max memory "
    "allocation), or set UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1 before the start (its documentation also has "
    "UR_L0_USE_RELAXED_ALLOCATION_LIMITS)."
}
"""Of a driver of Intel that refuses single buffers."""


def _extension_limit_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    limit = found.fact("limit")
    most = "its limit for one buffer" if limit is None else format_bytes(limit, 2)
    yield {
        AdviceWord.SMALLER_REQUEST: f"Keep single tensors below {most}: a smaller batch, or parts. The extension "
        "refuses larger ones before it asks the driver, so no variable of the driver changes that.",
        AdviceWord.DRIVER_BUG: "Or use PyTorch 2.5 or later without the extension: its own support for XPU leaves the "
        "limit to the driver.",
        AdviceWord.NO_EMPTY_CACHE: "empty_cache() does not help: the device was not short of memory.",
    }


def _torch_refused_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if judged.second is StatedCause.CAPACITY:  # the device is nearly full
        yield from _torch_full_advice(found, judged)
        return
    if judged.second is StatedCause.OTHER_PROCESS:  # the same, and others hold much of it
        yield from _torch_others_advice(found, judged)
        yield from _smaller_request(found)
        return
    request, free = found.fact("requested") or 0, found.fact("device_free") or 0
    if found.framework == "PyTorch XPU":
        why = "The driver refused a single buffer, not for a lack of memory"
        if judged.cause is StatedCause.UNKNOWN:
            why = "If the driver refuses a single buffer of this size"
        yield _SINGLE_BUFFER
        yield {
            AdviceWord.DRIVER_BUG: f"{why}: try a newer driver.",
            AdviceWord.NO_EMPTY_CACHE: "empty_cache() does not help: PyTorch returned its cache before it raised.",
        }
        return
    if found.framework == "PyTorch NPU":
        yield {
            AdviceWord.DRIVER_BUG: "Test the driver alone with a few lines of torch.empty; look at npu-smi info, "
            "and for an earlier error."
        }
        return
    others, total = device_use(found).others, found.fact("device_total")
    if others is not None and total is not None and others >= CONTEXT * total:
        text = "Look whether another process takes memory of the device at the same time"
        yield {
            AdviceWord.OTHER_PROCESSES: f"{text}: {_who_holds_command(found)}.{_others_hold_text(found, others)}"
        }
    is_windows = "windows" in found.marks
    if is_windows or "async" in found.marks:
        on_linux = "" if is_windows else " On Linux look at ulimit -v."
        yield {
            AdviceWord.SYSTEM_MEMORY: "On Windows make the page file larger: memory of the GPU counts against "
            f"what the system can commit, and the driver refuses when that ends.{on_linux}"
        }
    yield {
        AdviceWord.DRIVER_BUG: (
            f"Test the driver alone with a few lines of torch.empty; look at {'' if is_windows else 'ulimit -v, '}"
            "nvidia-smi -q -d COMPUTE (exclusive mode), an earlier error of the same process, and whether driver and "
            "toolkit fit."
            if found.framework != "PyTorch ROCm"
            else f"{_small_apu_advice_text(found)}Test the runtime alone with a few lines of torch.empty; compare "
            "rocminfo with the total in the text, and try a newer ROCm or kernel (ttm.pages_limit on devices that "
            "share the system's memory)."
        )
    }
    if request >= 4 * GiB and request > free // 2 and found.framework == "PyTorch ROCm":
        yield {
            AdviceWord.SMALLER_REQUEST: "Split the tensor: a single buffer so large may be what is refused."
        }


def _small_apu_advice_text(found: StatedFailure) -> str:
    """Advice on a stated failure of a GPU that shares the system's memory and was given little of it."""
    total = found.fact("device_total")
    if total is None or total > 2 * GiB:
        return ""
    return (
        f"Only {format_bytes(total, 2)} belong to the GPU: if it shares the system's memory, give it more in the "
        "firmware (UMA frame buffer size). "
    )


def _torch_fragmented_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
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
    can_expand = can_expand and "expandable_set" not in is_set
    if found.framework == "PyTorch NPU":  # only the class of the error tells a version: 2.5 or later
        can_expand = can_expand and "new_class" in found.marks
    # Segments for requests up to `LARGE_SEGMENT` have that size: no split limit above it changes them.
    can_split = has_settings and not is_set and (counters or request > torch.LARGE_SEGMENT)
    can_split = can_split and not (is_sliver and is_near)
    if can_expand:
        yield {
            AdviceWord.EXPANDABLE: f"Set {setting_for(found, 'expandable_segments:True')} before the start: "
            "segments then grow in place, and whole pages of the cached memory can serve this request (Linux)."
        }
    if can_expand and can_split and not counters:
        yield {
            AdviceWord.MAX_SPLIT: "Where that is not supported (Windows): "
            f"{setting_for(found, 'max_split_size_mb:128')}."
        }
    elif can_split:
        is_npu = found.framework == "PyTorch NPU"
        newer = "; from PyTorch 2.1 on Linux expandable_segments:True is better"
        if is_amd:
            newer = "; most builds for ROCm ignore expandable_segments, which the message names"
            newer = "" if found.version in _OLD else newer
        newer = "; newer versions of torch_npu have expandable_segments:True, too" if is_npu else newer
        since = "" if is_npu else " (PyTorch 1.8 or later)"
        yield {
            AdviceWord.MAX_SPLIT: f"Set {setting_for(found, 'max_split_size_mb:128')}{since}: large segments are "
            f"then not cut for small tensors{newer}."
        }
    yield from _enough_others_advice(found, judged)
    yield from _contexts_of_ranks_advice(found)
    if not counters and request > free:
        yield from _smaller_request(found, _missing_bytes_advice_text(request, free))
    if is_sliver:
        yield from _torch_full_advice(found, judged)


def _enough_others_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice on other processes that a stated failure tells apart, where they hold enough for what is missing."""
    missing = (found.fact("requested") or 0) - (found.fact("device_free") or 0)
    worth = max(missing, 0.02 * (found.fact("device_total") or 0))
    use = device_use(found)
    others = (use.listed or judged.others) if judged.others and use.is_listed else None
    if others is not None and others >= worth:
        yield {
            AdviceWord.OTHER_PROCESSES: f"Other processes hold {format_bytes(others, 2)}, enough for what is "
            f"missing: {_who_holds_command(found)}.{_listed_processes_advice_text(found)}"
        }


_LARGEST_CONTEXT: Final = 1 * GiB
"""A process that holds no more has hardly more than a context on the device."""


def _contexts_of_ranks_advice(found: StatedFailure) -> Iterator[AdviceTexts]:
    """Advice on processes that a stated failure lists, each with as much as a context: other ranks of the job."""
    others = [held for held in _others_of_list(found).values() if held <= _LARGEST_CONTEXT]
    if len(others) > 1 and max(others) - min(others) <= max(others) // 50:
        yield {
            AdviceWord.OTHER_PROCESSES: f"{len(others)} other processes hold {format_bytes(max(others), 2)} each, as "
            "much as a context: most likely other ranks of this job, which touched this device. Call "
            "torch.cuda.set_device(local_rank) before anything else of CUDA, and load files with map_location."
        }


def _missing_bytes_advice_text(request: int, free: int) -> str:
    """How much less would have fitted a stated failure; segments of fixed size do not shrink with it."""
    less = format_bytes(max(0, request - free), 2)
    if request <= torch.LARGE_SEGMENT or free < request // 2:
        return f"Have {less} more free at this step: a smaller batch, or smaller inputs."
    return f"Reduce the batch, or one input: a request that is {less} smaller would have fitted."


def _is_sliver(found: StatedFailure) -> bool:
    """Whether the cache of a stated failure is so small that no setting of the allocator gains much."""
    use, total = device_use(found), found.fact("device_total") or 0
    return use.cached is not None and use.cached < SLIVER * max(use.pool or 0, total)


def _others_of_list(found: StatedFailure) -> dict[int, int]:
    """The processes that a stated failure lists beside this one, and what each holds."""
    own = device_use(found).own
    return {pid: held for pid, held in found.processes.items() if held and held != own}


def _listed_processes_advice_text(found: StatedFailure) -> str:
    """The processes that a stated failure lists beside this one, the largest first."""
    others = sorted(((held, pid) for pid, held in _others_of_list(found).items()), reverse=True)
    if not others:
        return ""
    named = ", ".join(f"{pid} ({format_bytes(held, 2)})" for held, pid in others[:3])
    return f" The text names process {named}."


def _torch_private_pool_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    without = "torch.compile without mode='reduce-overhead'"
    if found.marks & _SERVERS:
        without = _server_words(found).no_graphs
    yield {
        AdviceWord.GRAPH_POOLS: "Capture fewer CUDA graphs, let them share one pool (torch.cuda.graph_pool_handle), or "
        f"run without: {without}."
    }
    yield from _smaller_request(found)


def _others_hold_text(found: StatedFailure, others: int | None) -> str:
    """How much other processes hold in a stated failure; without their list it includes context and libraries."""
    if others is None:
        return ""
    size = format_bytes(others, 2)
    if device_use(found).is_listed:
        return f" They hold {size}."
    shared = "; on an APU the system is in it, too" if found.framework == "PyTorch ROCm" else ""
    return f" They hold up to {size}: this process's context and libraries are in that number{shared}."


def _torch_others_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    fraction = f"torch.{_torch_backend(found)}.set_per_process_memory_fraction"
    share = f"such as gpu_memory_utilization of an engine, or {fraction}"
    if found.marks & _SERVERS:
        share = _server_words(found).share
    yield {
        AdviceWord.OTHER_PROCESSES: f"Stop the other processes on this device: {_who_holds_command(found)}."
        f"{_others_hold_text(found, judged.others)}{_listed_processes_advice_text(found)}",
        AdviceWord.RAISE_LIMIT: f"If both shall run: set the share of each so that both fit, {share}.",
    }


def _torch_capacity_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice on a stated failure of a full device: less of this process, then others, then the cache."""
    request, free = found.fact("requested") or 0, found.fact("device_free") or 0
    is_close = judged.second is StatedCause.CACHED_FRAGMENTATION and request > free
    if is_close:
        yield from _smaller_request(found, _missing_bytes_advice_text(request, free))
    first, *rest = _merged(_torch_full_advice(found, judged)).items()
    yield dict([first])
    yield from _enough_others_advice(found, judged)
    yield from _contexts_of_ranks_advice(found)
    fits_alone = request + (found.fact("allocated") or 0) <= (found.fact("device_total") or 0)
    if fits_alone and "async" in found.marks and judged.second is StatedCause.OTHER_PROCESS:
        yield _look_for_others_advice(found)
    yield dict(rest)
    if is_close:
        yield from _torch_fragmented_advice(found, judged)


def _torch_full_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    if found.marks & _SERVERS:
        yield from _server_full_advice(found)
        return
    if found.framework == "PyTorch ROCm" and (share := _small_apu_advice_text(found)):
        yield {AdviceWord.SYSTEM_MEMORY: share.rstrip()}
    if "moves_weights" in found.marks and "comfyui" not in found.marks:
        yield {
            AdviceWord.SMALLER_MODEL: "Use weights of fewer bits (bfloat16, 8 or 4 bits), a smaller model, or leave a "
            "part of the weights in system memory (device_map='auto' of Transformers, enable_model_cpu_offload() of "
            "Diffusers): the traceback moves weights to the device.",
            AdviceWord.DEVICES: "With several devices: divide the weights over them (device_map='auto', FSDP, tensor "
            "parallelism).",
        }
        return
    if "comfyui" in found.marks:
        tiles = "" if "tiled" in found.marks else "; decode with a tiled VAE"
        yield from _smaller_request(found, f"Lower the resolution, the frames or the batch{tiles}.")
        yield {
            AdviceWord.SMALLER_MODEL: "Use weights of fewer bits (fp8, GGUF), or start ComfyUI with --lowvram."
        }
        return
    yield from _smaller_request(found)
    yield {
        AdviceWord.SMALLER_MODEL: "Use a smaller model, weights of fewer bits (bfloat16, 8 or 4 bits), or a part "
        "on the CPU.",
        AdviceWord.SEQUENCE: "For sequences: shorter ones, and attention that does not store its matrix.",
    }
    if not found.marks & _INFERENCE:
        yield {
            AdviceWord.CHECKPOINTING: "In training: torch.utils.checkpoint stores fewer activations.",
            AdviceWord.ACCUMULATION: "In training: accumulate gradients over several small batches.",
            AdviceWord.OPTIMIZER: "In training: shard or offload the optimizer (FSDP, ZeRO), or one with 8 bits.",
        }


@dataclass(frozen=True)
class _ServerWords:
    """The options of a server of language models, for advice on its stated failure."""

    share: str  # the share of the device that it takes
    devices: str  # how many devices share the model
    cache: str  # the type of the KV cache, with what makes it smaller
    requests: str  # requests at once
    length: str  # of a request with its answer
    batch: str  # tokens that are computed at once
    batches: str  # good values of it, after a colon
    graphs: str  # what makes CUDA graphs need less
    no_graphs: str  # runs without them


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
    """The options of the server whose text is read for advice. SGLang's tracebacks hold files of vLLM, too."""
    return _SGLANG if "sglang" in found.marks else _VLLM


def _server_full_advice(found: StatedFailure) -> Iterator[AdviceTexts]:
    """Advice on a stated failure of a server of language models that fills its device."""
    words = _server_words(found)
    smaller = f"Use a quantized model, or more devices ({words.devices})"
    if {"loading", "loaded"} & found.marks == {"loading"}:
        yield {
            AdviceWord.SMALLER_MODEL: f"{smaller}: the traceback is in load_model, where the weights are loaded "
            "and no KV cache exists yet.",
            AdviceWord.SYSTEM_MEMORY: "Or leave a part of the weights in system memory, which is slower: "
            "--cpu-offload-gb.",
        }
        return
    dtype = "" if found.framework == "PyTorch NPU" else f", or {words.cache}"
    yield {
        AdviceWord.KV_CACHE: f"Give the KV cache less: a lower {words.share}{dtype}.",
        AdviceWord.SEQUENCE: f"Lower {words.requests}, and {words.length} if no request needs so much.",
        AdviceWord.GRAPH_POOLS: f"Graphs need memory outside of that share: {words.graphs}, or {words.no_graphs}.",
        AdviceWord.SMALLER_MODEL: f"{smaller}.",
    }
    yield from _smaller_request(found, f"Lower {words.batch}{words.batches}.")


def _torch_nvml_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    yield {
        AdviceWord.RECORD: "Print torch.cuda.mem_get_info() and torch.cuda.memory_summary() before the step that "
        "fails: they say how much the device, or the MIG slice, has, what is free, and what PyTorch holds."
    }
    yield from _smaller_request(found, "Need less: a smaller batch, smaller inputs or a smaller model.")
    yield {
        AdviceWord.OTHER_PROCESSES: "On MIG: check that CUDA_VISIBLE_DEVICES names the slice that was meant "
        "(nvidia-smi -L)."
    }


def _torch_unknown_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if found.marks & _SERVERS:
        yield from _torch_full_advice(found, judged)
    if "async" in found.marks:
        yield {
            AdviceWord.RECORD: "The numbers stand in the lines below the error, on the console. Or start with "
            "the native allocator (ComfyUI: --disable-cuda-malloc), whose message is whole."
        }
    elif found.framework == "PyTorch XPU" and found.fact("device_total") is not None:
        if judged.second is StatedCause.DRIVER_REFUSED:
            yield from _torch_refused_advice(found, judged)
        yield from _smaller_request(found)
        free = "To see what is free: torch.xpu.mem_get_info() before the step that fails."
        yield {AdviceWord.RECORD: f"{free} {_torch_recording_text(found)}"}
    else:
        whole = "Give the whole message: the sentences after this one say who holds the memory."
        yield {AdviceWord.RECORD: f"{whole} {_torch_recording_text(found)}"}
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


def _mps_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if found.message == "metal-buffer" and "ggml" in found.marks:
        yield {
            AdviceWord.SMALLER_MODEL: "Use a newer llama.cpp, which lays the weights in several buffers, or a "
            "model of fewer bits."
        }
        return
    if judged.cause in {StatedCause.REQUEST_EXCEEDS_LIMIT, StatedCause.REQUEST_EXCEEDS_DEVICE}:
        yield from _smaller_request(found, "Split the tensor: a smaller batch, tiles, or a lower resolution.")
        yield {
            AdviceWord.SEQUENCE: "If it is an attention matrix: shorter sequences, or attention in slices.",
            AdviceWord.SHAPE_BUG: "Print its shape: a broadcast or an outer product makes such sizes.",
        }
        return
    if judged.cause is StatedCause.DRIVER_REFUSED:
        yield {
            AdviceWord.DRIVER_BUG: "The counters of the system are wrong, or Metal refused: try a newer macOS or "
            "PyTorch.",
            AdviceWord.RAISE_LIMIT: f"{torch.MPS_LIMIT}=0.0 switches the test against the counters off; the "
            "system may then freeze.",
        }
        return
    limit = found.fact("limit")
    has_own = limit is not None and limit < _LEAST_SHARED
    shared, then = ": on Apple silicon memory is shared", "then the system swaps"
    why = f"{shared} with the system"
    if has_own:
        recommended = format_bytes((limit or 0) / _MPS_SHARE, 2)
        why = f": the limit is that of a GPU with {recommended} (if the ratio is the default), most likely its own"
        shared, then = "", "what the GPU cannot hold then lies in system memory"
    yield {AdviceWord.SMALLER_MODEL: f"Use a smaller model, or weights of fewer bits{why}."}
    yield from _smaller_request(found)
    yield {
        AdviceWord.SYSTEM_MEMORY: f"Close other programs, and models that this process still holds{shared}.",
        AdviceWord.RAISE_LIMIT: f"{torch.MPS_LIMIT}=0.0 removes the limit; {then}, and the Mac may freeze. Set "
        f"{torch.MPS_LOW}=0.0 with it.",
    }


def _metal_command_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    if "ggml" in found.marks:
        words = _ggml_words(found)
        yield {AdviceWord.SEQUENCE: f"Lower the context: {words.context}."}
        yield words.smaller_batch
        fewer = f"Use a model of fewer bits, or put fewer layers on the GPU ({words.layers})."
    else:
        yield from _smaller_request(found, "Reduce the batch, the context, or the size of one input.")
        fewer = "Use a smaller model, or weights of fewer bits: memory is shared with the system."
    yield {
        AdviceWord.SMALLER_MODEL: fewer,
        AdviceWord.SYSTEM_MEMORY: "Close other programs: memory is shared with the system.",
        AdviceWord.RAISE_LIMIT: "From macOS 14 on, sudo sysctl iogpu.wired_limit_mb=N leaves the GPU more, until "
        "the next start; keep some GiB for the system.",
    }


def _tensorrt_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    yield {
        AdviceWord.SMALLER_REQUEST: "Build for smaller inputs or a smaller batch, or with a smaller workspace: "
        "set_memory_pool_limit."
    }
    yield _look_for_others_advice(found)
    yield {AdviceWord.SMALLER_MODEL: "Build with FP16 or INT8."}


def _flashinfer_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    sglang = "FLASHINFER_WORKSPACE_SIZE (newer versions: SGLANG_FLASHINFER_WORKSPACE_SIZE), in bytes"
    vllm = "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE, in bytes"
    names = (
        vllm if "vllm" in found.marks else sglang if "sglang" in found.marks else f"{sglang}; in vLLM {vllm}"
    )
    yield {
        AdviceWord.RAISE_LIMIT: f"Make the workspace larger: {names}.",
        AdviceWord.SMALLER_REQUEST: "Or compute less at once: fewer requests and tokens a step "
        f"(SGLang: {_SGLANG.requests}, {_SGLANG.batch}; vLLM: {_VLLM.requests}, {_VLLM.batch}).",
    }


_GROWTH_1: Final = "config.gpu_options.allow_growth = True"
_GROWTH: Final = f"{tensorflow.FORCE_GROWTH}=true (1.14 or later), or in TensorFlow 1 {_GROWTH_1}"
"""Lets the pool of a TensorFlow of any version take only what it needs."""


_LEAVE_LIBRARIES: Final = {
    "TensorFlow": f"which TensorFlow takes whole at the start: {_GROWTH}",
    "JAX": f"of which JAX takes 75 % at the start: {xla.FRACTION}=.6, or {xla.PREALLOCATE}=false",
    "CuPy": f"whose free memory CuPy's pool keeps for itself: call {cupy.WORDS.release} before",
}
"""A framework -> how its pool leaves memory to libraries."""


def _earlier_error_advice(found: StatedFailure) -> Iterator[AdviceTexts]:
    """Advice on a stated failure of a library that could not start for a reason that is not memory."""
    if "kernel_error" in found.marks:
        yield {
            AdviceWord.SHAPE_BUG: "Find the kernel that failed first: with CUDA_LAUNCH_BLOCKING=1, or on the "
            "CPU, the traceback names its line. Most often an index is out of range: a token or a label that is not "
            "below the size of its table."
        }
        return
    yield {
        AdviceWord.DRIVER_BUG: "Install the cuDNN of the version that the program was built with, and look that "
        "no other is found first."
    }


def _driver_start_advice(_found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice where a stated failure is of the driver's start: nothing is held yet that could be smaller."""
    yield {
        AdviceWord.DRIVER_BUG: 'Test the driver alone: nvidia-smi, then python -c "import ctypes; '
        "print(ctypes.CDLL('libcuda.so.1').cuInit(0))\", which prints 0 where it starts (2: out of memory). Where that "
        "fails, too: load the kernel module of the same version as the driver's libraries, or start the system again.",
        AdviceWord.SYSTEM_MEMORY: "Where it works alone: look at ulimit -v, at free -g, at the limit of the container "
        "or the job, and in WSL at memory= in .wslconfig.",
        AdviceWord.OTHER_PROCESSES: "Start fewer processes that use CUDA at once: each needs system memory for its "
        "context.",
    }


def _driver_call_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if StatedCause.NOT_LACK_OF_MEMORY in {judged.cause, judged.second}:
        yield from _earlier_error_advice(found)
        return
    rule = next((rule for mark, rule in _CALL_RULES.items() if mark in found.marks), None)
    if rule is not None:
        yield from rule(found, judged)
        return
    yield from _room_beside_advice(found)
    if not has_own_allocator(found) and "nccl" not in found.marks and found.message == "cuda-call":
        yield from _smaller_request(found, _LESS_AT_ONCE)
    yield {
        AdviceWord.OTHER_PROCESSES: "Look before the start whether another process holds the device: "
        f"{_who_holds_command(found)}."
    }
    if "library_start" in found.marks:
        yield {
            AdviceWord.SHAPE_BUG: "If enough is free, a kernel failed before: most often an index out of range, "
            "such as a label that is not below the number of classes. CUDA_LAUNCH_BLOCKING=1, or a run on the CPU, "
            "names its line."
        }
    elif (
        {"torch", "nccl"} & found.marks == {"torch"}
        and has_own_allocator(found)
        and found.framework != "PyTorch XPU"
    ):
        wait = "AMD_SERIALIZE_KERNEL=3" if "ROCm" in found.framework else "CUDA_LAUNCH_BLOCKING=1"
        yield {AdviceWord.RECORD: f"Find the call: {wait} makes the traceback name the true line."}
    yield from _smaller_request(found, "Leave more of the device to libraries: a smaller batch or model.")


def _room_beside_advice(found: StatedFailure) -> Iterator[AdviceTexts]:
    """Advice on a stated failure: how to leave more of the device to a call that was refused."""
    if "turbomind" in found.marks:
        yield {
            AdviceWord.KV_CACHE: "Lower cache_max_entry_count (--cache-max-entry-count), the share of the free memory "
            "that the KV cache takes; else session_len or max_batch_size."
        }
    if "cumem" in found.marks:
        yield {
            AdviceWord.FREE_CACHE: "Before wake_up(), free what a trainer holds on the same device: move its model and "
            "optimizer to the system, then torch.cuda.empty_cache().",
            AdviceWord.RAISE_LIMIT: f"Or let vLLM take less: a lower {_VLLM.share}.",
        }
    if found.framework in _LEAVE_LIBRARIES:
        yield {
            AdviceWord.PREALLOCATION: f"Leave libraries a part of the device, {_LEAVE_LIBRARIES[found.framework]}."
        }
    if is_in_server(found) and not {"library", "nccl"} & found.marks:
        yield from _server_full_advice(found)
    if {"library", "torch"} <= found.marks and "library_start" not in found.marks:
        yield {
            AdviceWord.FREE_CACHE: "Leave the library room: torch.cuda.empty_cache() before this step; for cuFFT also "
            "torch.backends.cuda.cufft_plan_cache.clear(), or a lower max_size of that cache."
        }


def _pinned_call_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    yield {
        AdviceWord.SYSTEM_MEMORY: "Pin less: pin_memory=False of the DataLoader (DeepSpeed's offload: "
        '"pin_memory": false), fewer workers, a lower prefetch_factor. Look at free -g, ulimit -l (locked pages) and, '
        "in WSL, memory= in .wslconfig."
    }
    yield _look_for_others_advice(found)


def _new_context_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice on a stated failure of a new context: nothing of this process lies on the device yet."""
    yield _stop_others_advice(found)
    yield {
        AdviceWord.SMALLER_REQUEST: "If this process makes many contexts, let it destroy those that it no longer needs "
        "(cuCtxDestroy), or use one again."
    }


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
    "HAMi": "Let the container hold less at once: a smaller batch or model.",
    "TensorFlow.js": "Use a smaller input or batch: no tensor may need a larger texture; the backends webgpu and wasm "
    "have no textures.",
    "Spark RAPIDS": "Give each task less: fewer tasks at once on a GPU (spark.rapids.sql.concurrentGpuTasks), smaller "
    "batches (spark.rapids.sql.batchSizeBytes), or more partitions.",
    "AWS Neuron": "Give each core less: more cores (a higher tp_degree), a shorter sequence, a smaller batch, or fewer "
    "compiled programs (buckets) loaded at once.",
    "Intel Gaudi": "Give each card less: more cards, a smaller batch, or a shorter sequence.",
    "Kokkos": "Give each device less: more devices, or a smaller problem.",
    "MATLAB": "Keep less on the GPU: smaller arrays or mini-batches, single instead of double, clear what is no longer "
    "needed; gpuDevice() shows what is free.",
    "OpenVINO": "Give the model less at once: a smaller batch or a shorter input, or weights of fewer bits.",
    "NVENC": "Encode fewer videos at once, a smaller picture, or with fewer buffers: in ffmpeg -surfaces and "
    "-rc-lookahead. On a GeForce the driver also allows only a few sessions at once: nvidia-smi encodersessions.",
    "T-Rex": "Mine a coin whose DAG fits: it grows with time, and a display takes a part of the device, too.",
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
    "HAMi": "nvidia.com/gpumem of the pod",
    "WebGPU": "requiredLimits of requestDevice (maxBufferSize, maxStorageBufferBindingSize), as far as the adapter "
    "supports it",
}
"""A library -> the variable that sets its limit."""


def _program_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if "no_context" in found.marks:
        yield from _new_context_advice(found, judged)
        return
    if judged.cause is StatedCause.NOT_LACK_OF_MEMORY:
        yield {AdviceWord.DRIVER_BUG: "Look for the error of the driver that the text names."}
        return
    if judged.second is StatedCause.CAP_BY_SETTING and found.framework == "HAMi":
        yield {AdviceWord.DRIVER_BUG: "Start the container again, and use a newer HAMi."}
        return
    if "one_buffer" not in found.marks:
        yield from _raise_limit_advice(found, judged)
    if judged.cause is StatedCause.DRIVER_REFUSED:
        yield {
            AdviceWord.DRIVER_BUG: "Test the driver alone with one allocation of this size; look at ulimit -v "
            "and at an earlier error."
        }
        return
    if judged.cause is StatedCause.OTHER_PROCESS:
        yield _stop_others_advice(found)
    yield from _smaller_request(found, _LESS_FOR.get(found.framework, _LESS_AT_ONCE))
    if judged.cause in {StatedCause.CAPACITY, StatedCause.UNKNOWN}:
        yield _look_for_others_advice(found)
    if found.framework == "CatBoost":
        yield {
            AdviceWord.RAISE_LIMIT: "Let the pool take more of the device, if it is free: gpu_ram_part (the "
            "default is 0.95)."
        }
    if found.framework == "Windows":
        yield {
            AdviceWord.SYSTEM_MEMORY: "If system memory is full: close other programs, or let Windows make its "
            "page file larger."
        }


_LIMITS_OF_PROGRAMS: Final = {
    "LM Studio": "Use a smaller model, a shorter context, or fewer models at once. If the count is wrong, loosen the "
    "guardrails for loading models in the settings.",
}
"""A program that counts before it asks the system -> what to do about its limit."""


def _any_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if "gpu" in found.marks:
        yield from _program_advice(found, judged)
        return
    if judged.cause is StatedCause.CAP_BY_SETTING and found.framework in _LIMITS_OF_PROGRAMS:
        yield {AdviceWord.RAISE_LIMIT: _LIMITS_OF_PROGRAMS[found.framework]}
        return
    yield {
        AdviceWord.SYSTEM_MEMORY: "Watch free -g while it runs (Windows: the Task Manager), and nvidia-smi if it uses "
        "a GPU: what is full then, of that use less.",
        AdviceWord.SMALLER_REQUEST: _LESS_AT_ONCE,
    }


def _bank_advice(_found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if judged.cause is StatedCause.CACHED_FRAGMENTATION:
        yield {
            AdviceWord.FREE_CACHE: "Free tensors that are not needed (ttnn.deallocate) before this operation, or move "
            "those around the free pieces (ttnn.reallocate)."
        }
    yield {
        AdviceWord.SMALLER_REQUEST: "Make the buffer smaller: a smaller batch, a shorter prompt, or parts of it one "
        "after the other.",
        AdviceWord.SMALLER_MODEL: "Use weights and a KV cache of fewer bits (bfloat8_b, bfloat4_b), or more devices.",
    }


def _exllama_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    yield {
        AdviceWord.KV_CACHE: "Make the cache smaller: fewer tokens (cache_size, max_seq_len), or fewer bits "
        "(cache_mode).",
        AdviceWord.SMALLER_MODEL: "Use a smaller model, or weights of fewer bits.",
        AdviceWord.DEVICES: "If a device has more free than its share: raise it in gpu_split, or lower "
        "autosplit_reserve.",
    }
    yield _look_for_others_advice(found)


def _encoder_advice(_found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    yield {
        AdviceWord.OTHER_PROCESSES: "Close other programs that encode on this GPU, such as recorders and "
        "streams: nvidia-smi encodersessions lists them.",
        AdviceWord.SMALLER_REQUEST: "Encode fewer videos at once.",
        AdviceWord.DRIVER_BUG: "Use a newer driver: it allows more sessions on a GeForce.",
    }


def _raise_limit_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice where a stated limit ends the process: the variable that sets it."""
    is_limited = judged.cause in {StatedCause.CAP_BY_SETTING, StatedCause.REQUEST_EXCEEDS_LIMIT}
    if is_limited and found.fact("limit"):
        name = _LIMIT_OF.get(found.framework, "")
        yield {
            AdviceWord.RAISE_LIMIT: f"Raise or remove the limit, if the device has more{f': {name}' if name else ''}."
        }


def _no_context_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    yield _stop_others_advice(found)
    yield {
        AdviceWord.PREALLOCATION: "If the other program uses TensorFlow, too, and both shall run: it takes the "
        f"device whole at the start, unless it has {_GROWTH}."
    }


def _kernel_advice(_found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    yield {
        AdviceWord.SMALLER_REQUEST: "Give the kernel smaller blocks (BLOCK_M, BLOCK_N ...) or fewer num_stages."
    }


def _shared_call_advice(_found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    yield {
        AdviceWord.SMALLER_REQUEST: "Choose a smaller or another kernel, as far as the program lets you: narrower "
        "layers, smaller tiles, or the way for older GPUs, which have less of it."
    }


def _paddle_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if judged.cause is StatedCause.DRIVER_REFUSED:
        yield {AdviceWord.DRIVER_BUG: "Test the device alone: paddle.utils.run_check()."}
        return
    yield from _raise_limit_advice(found, judged)
    yield from _smaller_request(found)
    if found.fact("limit") is None or judged.cause is StatedCause.UNKNOWN:
        yield _look_for_others_advice(found)
    yield {
        AdviceWord.SMALLER_MODEL: "Use a smaller model, or paddle.amp.auto_cast.",
        AdviceWord.RECORD: "To see what this process holds of it: paddle.device.cuda.memory_reserved() and "
        "memory_allocated().",
    }


# ------------------------------------------------------------------------------
# TensorFlow, XLA and JAX.


def _bfc_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if judged.second is StatedCause.HOST_MEMORY:
        yield from _unified_memory_advice(found)
        return
    is_plugin = found.framework == "TensorFlow" and {*tensorflow.ALLOCATORS.values()} & found.marks
    rule = _tensorflow_plugin_advice if is_plugin else _BFC.get(found.framework, _tensorflow_advice)
    if found.message == "tf-refused":
        yield _look_for_others_advice(found)
    if "cut_dump" not in found.marks:
        yield from rule(found, judged)
        return
    for each in rule(found, judged):
        yield {kind: text for kind, text in each.items() if kind is not AdviceWord.RECORD}
    yield {
        AdviceWord.RECORD: "To see who holds it: keep the whole log, with all Bin and Chunk (or InUse and Free) lines "
        "and the Stats after them, and give it to bfcviz: the program printed them, and this text has only some."
    }


def _unified_memory_advice(found: StatedFailure) -> Iterator[AdviceTexts]:
    """Advice where the driver refused a stated growth of memory that device and system share."""
    yield {
        AdviceWord.RAISE_LIMIT: f"Lower the share of the device that the pool may take: {xla.FRACTION} (JAX, "
        "AlphaFold) or per_process_gpu_memory_fraction (TensorFlow). "
        f"With {xla.UNIFIED}=1 it may be above 1; what is above the device needs system memory.",
        AdviceWord.SYSTEM_MEMORY: "Look at free -g, at ulimit -v and at the limit of the container or the job; or add "
        "system memory.",
    }
    yield from _smaller_request(found, "Compute with less at once: a shorter sequence, or a smaller batch.")
    yield _look_for_others_advice(found)


def _tensorflow_plugin_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice on a plugin's allocator that refused: it has neither settings nor log of the BFC pool."""
    if judged.cause in {StatedCause.REQUEST_EXCEEDS_DEVICE, StatedCause.REQUEST_EXCEEDS_LIMIT}:
        yield {AdviceWord.SHAPE_BUG: "Print the shape of the tensor."}
    yield from _smaller_request(found)
    yield _look_for_others_advice(found)
    yield {AdviceWord.SMALLER_MODEL: "Use a smaller model."}


def _tensorflow_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    is_old = found.version == "1.x"
    cause = judged.cause
    growth = f"tf.config.experimental.set_memory_growth(gpu, True), or {tensorflow.FORCE_GROWTH}=true"
    growth = _GROWTH_1 if is_old else growth
    if cause in {StatedCause.REQUEST_EXCEEDS_DEVICE, StatedCause.REQUEST_EXCEEDS_LIMIT}:
        yield {
            AdviceWord.SHAPE_BUG: "Print the shape of the tensor: a broadcast or a flattened layer makes such sizes."
        }
        yield from _smaller_request(found)
        if cause is StatedCause.REQUEST_EXCEEDS_LIMIT and found.fact("device_total"):
            yield {
                AdviceWord.RAISE_LIMIT: "The device has more than the limit: raise or remove the limit that was set."
            }
    elif cause is StatedCause.OTHER_PROCESS:
        yield from _tensorflow_others_advice(found, judged, growth)
    elif cause is StatedCause.CACHED_FRAGMENTATION:
        if not is_old:
            yield {AdviceWord.MALLOC_ASYNC: f"{tensorflow.ASYNC} (CUDA 11.2 or later) places by pages."}
        yield from _smaller_request(found)
    else:
        yield from _smaller_request(found)
        if cause is StatedCause.CAPACITY and not is_old:
            yield {AdviceWord.SMALLER_MODEL: "Use a smaller model, or tf.keras.mixed_precision."}
        if cause is StatedCause.UNKNOWN:
            yield _look_for_others_advice(found)
            yield {AdviceWord.PREALLOCATION: f"If two programs share the device: {growth}."}
    yield {AdviceWord.RECORD: _tensorflow_recording_text(found)}


def _tensorflow_others_advice(found: StatedFailure, judged: Judgement, growth: str) -> Iterator[AdviceTexts]:
    """Advice on a stated failure: others hold the device, or a small share of it is set."""
    yield _stop_others_advice(found)
    pool = "Let the pool"
    if judged.second is StatedCause.CAP_BY_SETTING:
        pool = "If the other program is TensorFlow, too, let its pool"
        names = f"{'' if found.version == '1.x' else 'memory_limit, '}per_process_gpu_memory_fraction"
        yield {
            AdviceWord.RAISE_LIMIT: f"If the program sets a limit or a share of the device ({names}), raise it."
        }
    yield {AdviceWord.PREALLOCATION: f"{pool} take only what it needs: {growth}."}
    yield from _smaller_request(found)


def _tensorflow_recording_text(found: StatedFailure) -> str:
    """Advice on how to see who holds a pool of TensorFlow, where its allocator prints that."""
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
    run = (
        "" if "in_use" in found.slack else f"run with {tensorflow.LOG_FAILURES} and "
    )  # the level shows that it did
    return f"To see who holds it: {run}keep the whole log: bfcviz opens its Bin and Chunk lines."


def _jax_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    cause = judged.cause
    is_whole_program = found.fact("compiler_limit") is not None
    if (
        cause in {StatedCause.REQUEST_EXCEEDS_DEVICE, StatedCause.REQUEST_EXCEEDS_LIMIT}
        and not is_whole_program
    ):
        yield {
            AdviceWord.SHAPE_BUG: "Find the array: jax.eval_shape(f, *args) or jax.make_jaxpr(f)(*args) shows "
            "every shape; look for a broadcast, a vmap, or a one-hot."
        }
        yield from _smaller_request(found, "Split the work: jax.lax.map, a scan, or a smaller batch.")
        yield {AdviceWord.OPTIMIZER: "Shard the arrays over more devices (jax.sharding)."}
    elif cause is StatedCause.OTHER_PROCESS:
        yield _stop_others_advice(found)
        is_set = judged.second is StatedCause.CAP_BY_SETTING
        other = "If the other program is JAX, too, let it take" if is_set else "Take"
        yield {
            AdviceWord.PREALLOCATION: f"{other} less at the start: {xla.PREALLOCATE}=false, or {xla.SHARE_NAMES}."
        }
        if is_set:
            yield {
                AdviceWord.RAISE_LIMIT: f"If this program sets a share of the device ({xla.SHARE_NAMES}), raise it."
            }
        yield from _smaller_request(found)
    elif cause is StatedCause.CACHED_FRAGMENTATION:
        if "one_region" not in found.marks:
            yield {
                AdviceWord.PREALLOCATION: f"Let the pool be one region from the start: {xla.PREALLOCATE}=true."
            }
        yield {AdviceWord.MALLOC_ASYNC: f"{tensorflow.ASYNC} places by pages."}
        yield from _smaller_request(found)
    else:
        is_unknown = cause is StatedCause.UNKNOWN
        is_small = is_unknown and found.fact("program_total")  # what else is on the device decides
        if not is_small:
            yield from _smaller_request(found, "Reduce the batch, or split the work with jax.lax.map.")
            yield {
                AdviceWord.SEQUENCE: "For sequences and proteins: shorter ones, or attention in chunks.",
                AdviceWord.SMALLER_MODEL: "Use bfloat16, or a smaller model.",
                AdviceWord.CHECKPOINTING: "In training: jax.checkpoint keeps fewer values for the gradient.",
            }
        if is_whole_program:
            yield {
                AdviceWord.SYSTEM_MEMORY: f"Or let the pool pass the device, into system memory, which is slower: "
                f"{xla.UNIFIED}=1, {xla.PREALLOCATE}=false and {xla.FRACTION} above 1."
            }
        if is_unknown:
            yield _look_for_others_advice(found)
            yield {
                AdviceWord.PREALLOCATION: f"JAX takes 75 % of the device at the start: {xla.SHARE_NAMES} sets "
                "another share; a second program finds little."
            }
        if is_small:
            yield {AdviceWord.RECORD: "See which arrays this process keeps: jax.live_arrays()."}
    yield {
        AdviceWord.RECORD: "To see what the program needs: XLA_FLAGS=--xla_dump_to=/tmp/xla "
        "(buffer-assignment.txt), or jax.profiler.save_device_memory_profile('mem.prof'), which bfcviz opens."
    }


def _reactant_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    cause = judged.cause
    share = f"{xla.REACTANT_FRACTION} (the default is 0.75)"
    if cause in {StatedCause.REQUEST_EXCEEDS_DEVICE, StatedCause.REQUEST_EXCEEDS_LIMIT}:
        yield {AdviceWord.SHAPE_BUG: "Print the size of the arrays that the compiled function makes."}
    elif cause is StatedCause.OTHER_PROCESS:
        yield _stop_others_advice(found)
        yield {
            AdviceWord.PREALLOCATION: f"Take less at the start: {xla.REACTANT_PREALLOCATE}=false, or {share}."
        }
    yield from _smaller_request(found, "Use smaller arrays or a smaller batch, or split the work.")
    if cause in {StatedCause.CAPACITY, StatedCause.UNKNOWN, StatedCause.REQUEST_EXCEEDS_LIMIT}:
        yield {
            AdviceWord.RAISE_LIMIT: f"Give the pool more of the device, if it has more: {share}, before the start."
        }


def _exla_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice on a stated failure of XLA's client in Elixir, whose settings are options of its clients."""
    cause = judged.cause
    share = "memory_fraction: ... in config :exla, :clients (the default is 0.9)"
    if cause in {StatedCause.REQUEST_EXCEEDS_DEVICE, StatedCause.REQUEST_EXCEEDS_LIMIT}:
        yield {AdviceWord.SHAPE_BUG: "Print the shapes of the tensors that the compiled function makes."}
    elif cause is StatedCause.OTHER_PROCESS:
        yield _stop_others_advice(found)
        yield {AdviceWord.PREALLOCATION: f"Take less at the start: preallocate: false, or a lower {share}."}
    yield from _smaller_request(found, "Use a smaller batch or smaller tensors, or split the work.")
    if cause is StatedCause.CACHED_FRAGMENTATION and "one_region" not in found.marks:
        yield {AdviceWord.PREALLOCATION: "Let the pool be one region from the start: preallocate: true."}
    yield {
        AdviceWord.RAISE_LIMIT: f"Give the pool more of the device, if it has more: {share}.",
        AdviceWord.SYSTEM_MEMORY: "Keep on the device only what the next step needs: Nx.backend_transfer and "
        "Nx.backend_deallocate free the others.",
    }
    if cause is StatedCause.UNKNOWN:
        yield _look_for_others_advice(found)


def _xla_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice on a stated error of XLA without a word on its client."""
    if judged.cause in {StatedCause.REQUEST_EXCEEDS_DEVICE, StatedCause.REQUEST_EXCEEDS_LIMIT}:
        yield {AdviceWord.SHAPE_BUG: "Print the shapes of the arrays that the program makes."}
    yield from _smaller_request(found, "Reduce the batch, or split the work.")
    yield _look_for_others_advice(found)
    yield {
        AdviceWord.PREALLOCATION: "If two programs share the device: JAX takes 75 % of it at the start "
        f"({xla.SHARE_NAMES} sets another share), TensorFlow nearly all ({tensorflow.FORCE_GROWTH}=true lets it grow).",
        AdviceWord.RECORD: "Give bfcviz the lines around it, too: they name the program, and what its pool holds.",
    }


_BFC: Final[Mapping[str, Rule]] = {
    "JAX": _jax_advice,
    "Reactant": _reactant_advice,
    "EXLA": _exla_advice,
    "XLA": _xla_advice,
}
"""Of the frameworks with TensorFlow's allocator; all others are TensorFlow."""


@dataclass(frozen=True)
class _TpuWords:
    """What advice on a TPU's stated failure says, as one client of XLA spells it."""

    shard: str  # in brackets, what spreads arrays over the cores
    recompute: str  # what computes values again in the backward pass
    sizes: str = ""  # what else says the sizes of a program, after a semicolon


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
    "Reactant TPU": _TpuWords(" (Reactant.Sharding)", "@trace checkpointing = true before a loop"),
    xla.TPU: _TpuWords(
        " (FSDP)", "checkpointing of activations (jax.checkpoint, torch_xla.utils.checkpoint)"
    ),
}
"""Framework -> its words; all others are JAX."""


def _tpu_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if "smem" in found.marks:
        yield {
            AdviceWord.SMALLER_REQUEST: "Give the kernels fewer scalars at once, such as tables of pages and "
            "indices (in Pallas what is prefetched as scalars): call a kernel for parts of the batch, or with shorter "
            "sequences."
        }
        return
    if "vmem" in found.marks:
        if "stack" not in found.marks or "kernel" in found.marks:  # else an operation of XLA itself
            yield from _smaller_request(found, "Use smaller blocks in the kernel.")
        yield {
            AdviceWord.RAISE_LIMIT: "Raise --xla_tpu_scoped_vmem_limit_kib in LIBTPU_INIT_ARGS, up to what the "
            "chip has."
        }
        if "stack" in found.marks and "kernel" not in found.marks:
            yield {
                AdviceWord.DRIVER_BUG: "Use a newer libtpu, or report it to XLA, which chose the blocks of this "
                "operation itself."
            }
        return
    if found.message == "tpu-buffer":
        yield {AdviceWord.SHAPE_BUG: "Find the array in the text by its shape: no core can hold it."}
    if is_padded(found):
        yield {
            AdviceWord.SHAPE_BUG: "Change the shape or the order of dimensions of the largest buffer: a TPU fills up "
            "the last two dimensions of a layout to whole tiles (T(8,128) in the shape), so both should be large."
        }
    words = _TPU_WORDS.get(found.framework, _JAX_TPU)
    has_table = found.fact("largest_buffer") is not None
    too_much, limit = found.fact("exceeded"), found.fact("limit")
    if limit is None or too_much is None or 2 * too_much < limit:  # a smaller batch may do
        yield from _smaller_request(found, "Reduce the batch of one core.")
    yield {AdviceWord.OPTIMIZER: f"Shard parameters and optimizer state over the cores{words.shard}."}
    yield from _smaller_request(found, "Reduce the batch of one core.")
    yield {
        AdviceWord.SMALLER_MODEL: f"Use bfloat16 {'for what the table lists as' if has_table else 'instead of'} "
        "float32, or a smaller model.",
        AdviceWord.SEQUENCE: "Use shorter sequences, or attention that does not store its matrix.",
        AdviceWord.CHECKPOINTING: f"In training: {words.recompute} keeps fewer values for the gradient.",
    }
    if judged.cause is StatedCause.REQUEST_EXCEEDS_DEVICE:
        lines = "The lines below" if has_table else "Keep the lines after the error: those"
        yield {
            AdviceWord.RECORD: f"{lines} (Largest program allocations in hbm) name the arrays{words.sizes}."
        }


# ------------------------------------------------------------------------------
# The others.


def _cupy_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if judged.second is StatedCause.REQUEST_EXCEEDS_DEVICE:
        yield {
            AdviceWord.SHAPE_BUG: "Print the shape and the type of the array, and the size that they make: a "
            "broadcast makes such sizes."
        }
    if judged.cause is StatedCause.CAP_BY_SETTING:
        if (found.fact("requested") or 0) <= (found.fact("limit") or 0):
            yield {
                AdviceWord.FREE_CACHE: "Return the free blocks of the pool before this step: "
                "cupy.get_default_memory_pool().free_all_blocks(). Its used_bytes() says how much arrays hold; with "
                "only that in the pool the request may fit."
            }
        yield {
            AdviceWord.RAISE_LIMIT: "Raise the limit: CUPY_GPU_MEMORY_LIMIT, or "
            "cupy.get_default_memory_pool().set_limit(...)."
        }
    elif judged.cause is StatedCause.UNKNOWN:
        yield {
            AdviceWord.OTHER_PROCESSES: f"Look who holds the device: {_who_holds_command(found)}; "
            "cupy.cuda.Device().mem_info says what is free."
        }
    yield from _smaller_request(
        found, "Work on parts of the array, and delete temporaries before large steps."
    )


def _rmm_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if "pool_start" in found.marks:
        yield _look_for_others_advice(found)
        yield {
            AdviceWord.PREALLOCATION: "Start with a smaller pool: initial_pool_size of "
            "rmm.mr.PoolMemoryResource or rmm.reinitialize; Dask's workers: --rmm-pool-size."
        }
    elif judged.cause is StatedCause.CAP_BY_SETTING:
        is_of_pool = "adaptor" not in found.marks
        fits = is_of_pool and (found.fact("requested") or 0) <= (found.fact("limit") or 0)
        start = (
            "start the pool at its maximum (initial_pool_size): memory of several growths is never one piece."
        )
        yield {
            AdviceWord.RAISE_LIMIT: "Raise the limit: rmm.mr.PoolMemoryResource(upstream, maximum_pool_size=...), or "
            f"rmm.reinitialize(pool_allocator=True, maximum_pool_size=...).{f' Or {start}' if fits else ''}"
        }
    yield from _smaller_request(found, "Work on smaller partitions.")
    if judged.cause is not StatedCause.CAP_BY_SETTING:
        yield _look_for_others_advice(found)
        yield {
            AdviceWord.SYSTEM_MEMORY: "Managed memory spills to the system: rmm.mr.ManagedMemoryResource()."
        }
    yield {
        AdviceWord.RECORD: "To see who holds it: rmm.enable_logging(log_file_name='rmm.csv'), which bfcviz opens."
    }


def _onnx_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if judged.cause is StatedCause.CAP_BY_SETTING:
        yield {
            AdviceWord.RAISE_LIMIT: "Raise gpu_mem_limit of the provider (max_mem of OrtArenaCfg), or leave it out."
        }
    yield from _smaller_request(
        found,
        "Reduce the batch or the input; arena_extend_strategy=kSameAsRequested makes the arena grow by no more "
        "than needed.",
    )
    if judged.cause is not StatedCause.CAP_BY_SETTING:
        yield {
            AdviceWord.OTHER_PROCESSES: "If the model runs on a GPU, look who holds it, also other sessions of "
            f"this process: {_who_holds_command(found)}."
        }
    yield {AdviceWord.SMALLER_MODEL: "Use float16 or a quantized model."}


@dataclass(frozen=True)
class _GgmlWords:
    """The settings of a program on ggml for advice, as its user types them."""

    layers: str  # how many layers lie on the devices
    context: str  # the length of the context
    parallel: str  # sequences at once
    batch: str  # tokens that are computed at once
    cache: str  # a quantized KV cache
    flash: str  # attention that does not store its matrix
    unmapped: str  # switches off that weights are mapped from their file
    split: str = ""  # the share of each device; "": there is no such setting

    @property
    def smaller_batch(self) -> AdviceTexts:
        """Advice to compute fewer tokens at once, for a program on ggml."""
        text = f"Lower the physical batch: {self.batch} 256 or less (the default is 512)."
        return {AdviceWord.SMALLER_REQUEST: text}


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
    """The settings of the program that printed a text of ggml, for advice."""
    return _OLLAMA if "ollama" in found.marks else _LLAMA_CPP


def _ggml_split_advice(found: StatedFailure) -> Iterator[AdviceTexts]:
    """Advice to put less on the device that a text of ggml names, where there are several."""
    device, split = max(found.devices, default=0), _ggml_words(found).split
    if device and split:
        yield {
            AdviceWord.DEVICES: f"Put less of the model on device {device} and more on the others: {split}."
        }


def _ggml_host_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice where ggml got no system memory: layers on a device take less of it, not more."""
    words = _ggml_words(found)
    yield {AdviceWord.SYSTEM_MEMORY: "Close other programs, or add memory to the system."}
    if found.framework in _LESS_ON_GGML:
        yield {AdviceWord.SMALLER_MODEL: "Use a smaller model, or one of fewer bits."}
        return
    if buffer_of(found) in {"compute", "kv"}:
        yield from _ggml_advice(found, judged)
    yield {
        AdviceWord.SMALLER_MODEL: "Use a smaller model, or one of fewer bits; where a GPU has room, put more "
        f"layers there ({words.layers}). Weights that are mapped from their file need not be in memory all at once: "
        f"leave out {words.unmapped}."
    }


_LESS_ON_GGML: Final = {
    "whisper.cpp": "Use a smaller model, or one of fewer bits (ggml-large-v3-turbo-q5_0.bin).",
    "stable-diffusion.cpp": "Use weights of fewer bits, or keep parts in system memory (--clip-on-cpu, --vae-on-cpu); "
    "for large pictures --vae-tiling and --diffusion-fa.",
}
"""A program on ggml without the settings of llama.cpp -> how it needs less memory."""


def _ggml_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if found.framework in _LESS_ON_GGML:
        yield {AdviceWord.SMALLER_MODEL: _LESS_ON_GGML[found.framework]}
        yield _look_for_others_advice(found)
        return
    if "one_buffer" not in found.marks:
        yield from _ggml_less_advice(found, judged)
        return
    yield from (each for each in _ggml_less_advice(found, judged) if AdviceWord.OTHER_PROCESSES not in each)
    yield {
        AdviceWord.RAISE_LIMIT: "vulkaninfo shows the limit (maxMemoryAllocationSize); where the driver gives more "
        "than it says, GGML_VK_FORCE_MAX_ALLOCATION_SIZE sets another."
    }


def _ggml_less_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    words = _ggml_words(found)
    buffer = "compute" if "pool" in found.marks else buffer_of(found)
    if buffer == "compute":
        yield {
            AdviceWord.SEQUENCE: f"Lower the context: {words.context}; with {words.flash} the buffer grows less "
            "with it."
        }
        batch = words.smaller_batch[AdviceWord.SMALLER_REQUEST]
        if "copies" in found.marks:
            batch += (
                " The devices work in parallel, each on a copy of the inputs: a build with "
                "-DGGML_SCHED_MAX_COPIES=1 needs less."
            )
        yield {AdviceWord.SMALLER_REQUEST: batch}
        if "pool" in found.marks:
            yield {
                AdviceWord.SMALLER_MODEL: "Leave the pool more of the device: put fewer layers on it "
                f"({words.layers}), or use a model of fewer bits."
            }
        yield from _ggml_split_advice(found)
        return
    if buffer == "kv":
        yield {
            AdviceWord.SEQUENCE: f"Lower the context: {words.context}, or the number of parallel sequences: "
            f"{words.parallel}.",
            AdviceWord.KV_CACHE: f"Use a quantized KV cache: {words.cache}, with {words.flash}.",
        }
        yield from _ggml_split_advice(found)
        return
    yield {
        AdviceWord.SMALLER_MODEL: f"Put fewer layers on the device ({words.layers}), or use a model of fewer bits."
    }
    yield from _ggml_split_advice(found)
    if not buffer:
        yield {AdviceWord.SEQUENCE: f"Lower the context: {words.context}."}
        yield words.smaller_batch
    yield _look_for_others_advice(found)


def _vllm_requests_advice(found: StatedFailure) -> Iterator[AdviceTexts]:
    """Advice where a trial run of vLLM with many requests at once failed."""
    requests = found.facts.get("max_requests", 0)
    yield {
        AdviceWord.SMALLER_REQUEST: f"Lower {_VLLM.requests}{f' below {requests:,}' if requests else ''}.",
        AdviceWord.KV_CACHE: f"Or give the KV cache less, so that more is left for this step: a lower {_VLLM.share}.",
    }


def _vllm_warmup_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if found.fact("requested") is not None:  # PyTorch's message stands in the text, too
        yield from _torch_advice(found, judged)
        return
    yield from _vllm_requests_advice(found)
    yield from _torch_full_advice(found, judged)
    yield {
        AdviceWord.RECORD: "Look for PyTorch's own message before this one in the log: it says how much was "
        "free, and who held it."
    }


def _vllm_start_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    total, free = found.fact("device_total"), found.fact("device_free")
    is_near = total and free is not None and 2 * free >= (found.fact("requested") or 0)
    share = f" {int(100 * (free or 0) / total) / 100:.2f} would fit now." if total and is_near else ""
    limit = {AdviceWord.RAISE_LIMIT: f"Lower {_VLLM.share}, so that it fits.{share}"}
    stop = f"Stop what else runs on it, also an engine that did not end: {_who_holds_command(found)}."
    others = {AdviceWord.OTHER_PROCESSES: stop}
    yield from (limit, others) if judged.cause is StatedCause.CAP_BY_SETTING else (others, limit)


def _vllm_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if judged.cause is StatedCause.OTHER_PROCESS:
        yield _stop_others_advice(found)
        return
    if "length" in found.marks:
        tokens = found.facts.get("kv_tokens")
        most = "" if tokens is None else f" to {tokens:,} or less"
        yield {AdviceWord.SEQUENCE: f"Lower {_VLLM.length}{most}."}
    yield {
        AdviceWord.RAISE_LIMIT: f"Raise {_VLLM.share}, if the device has more.",
        AdviceWord.KV_CACHE: f"Make the KV cache smaller: {_VLLM.cache}, fewer {_VLLM.requests}.",
        AdviceWord.SEQUENCE: f"Lower {_VLLM.length}: the trial run then needs less, too.",
    }
    yield _smaller_weights_advice(_VLLM)


def _sglang_advice(_found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    yield {AdviceWord.RAISE_LIMIT: f"Raise {_SGLANG.share}."}
    yield _smaller_weights_advice(_SGLANG)


def _sglang_pool_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    if "tokens" not in found.marks:
        yield {
            AdviceWord.SMALLER_REQUEST: f"Lower {_SGLANG.requests}, as the text says, or take a newer SGLang."
        }
        return
    batch = f" and {_SGLANG.batch}" if "prefill" in found.marks else ""
    yield {
        AdviceWord.SMALLER_REQUEST: f"Let fewer tokens run at once: lower {_SGLANG.requests}{batch}, or raise "
        "--schedule-conservativeness.",
        AdviceWord.RAISE_LIMIT: f"Give the KV cache more: a higher {_SGLANG.share}, if the device has more.",
        AdviceWord.KV_CACHE: f"Make it smaller by its type: {_SGLANG.cache}; or smaller pages (--page-size).",
        AdviceWord.SEQUENCE: f"Lower {_SGLANG.length}, if no request needs so much.",
    }


_TRTLLM_CACHE: Final = {
    AdviceWord.KV_CACHE: "Give the KV cache less: a lower free_gpu_memory_fraction (kv_cache_config)."
}


def _trtllm_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    if found.op in {"", "KV cache"}:
        yield _TRTLLM_CACHE
    yield {
        AdviceWord.SMALLER_REQUEST: "Lower max_num_tokens, max_batch_size and max_seq_len.",
        AdviceWord.SMALLER_MODEL: "Use a quantized model, or more devices (tensor or pipeline parallelism).",
        AdviceWord.RECORD: "Look for PyTorch's own message before this one in the log: it says how much was asked.",
    }
    yield _look_for_others_advice(found)


def _ggml_context_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    words = _ggml_words(found)
    yield {
        AdviceWord.DRIVER_BUG: "Use a newer llama.cpp, or a newer version of the program that contains it: it computed "
        "the size of its buffer too small.",
        AdviceWord.SEQUENCE: f"Until then, lower the context ({words.context}) or the batch.",
    }


def _dispatch_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    yield _look_for_others_advice(found)
    yield {
        AdviceWord.SMALLER_MODEL: "Use a smaller model, or weights of fewer bits (4 instead of 8), or more devices.",
        AdviceWord.DEVICES: "If the devices have room that is not used: raise max_memory of from_pretrained, or "
        'device_map={"": 0} lays all on the first device.',
        AdviceWord.SYSTEM_MEMORY: "Or leave a part in system memory, which is slower: "
        "llm_int8_enable_fp32_cpu_offload=True, with a device_map.",
    }


def _smaller_weights_advice(words: _ServerWords) -> AdviceTexts:
    text = f"Use a quantized model, or more devices ({words.devices}): the weights take the share."
    return {AdviceWord.SMALLER_MODEL: text}


def _tgi_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    if found.fact("requested") is not None:
        yield from _torch_advice(found, judged)
        return
    yield from _tgi_tokens_advice(found)
    yield _look_for_others_advice(found)


def _tgi_tokens_advice(found: StatedFailure) -> Iterator[AdviceTexts]:
    tokens, total = found.facts.get("prefill_tokens"), found.facts.get("total_tokens")
    if total is not None:
        yield {
            AdviceWord.KV_CACHE: f"Lower --max-batch-total-tokens below {total:,}, or --max-batch-prefill-tokens."
        }
    else:
        below = "" if tokens is None else f" below {tokens:,}"
        yield {
            AdviceWord.SMALLER_REQUEST: f"Lower --max-batch-prefill-tokens{below}. It may not be less than the "
            "longest prompt (--max-input-tokens, in older versions --max-input-length): lower that, too."
        }
    yield {AdviceWord.SMALLER_MODEL: "Use a quantized model (--quantize), or more devices (--num-shard)."}


def _bitsandbytes_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    system = {
        AdviceWord.SYSTEM_MEMORY: "With a paged optimizer (paged_adamw_8bit ...): look at free -g, and in WSL at "
        "memory= in .wslconfig, or use the optimizer that is not paged (adamw_8bit)."
    }
    if "managed" in found.marks:
        yield system
    yield _look_for_others_advice(found)
    yield from _smaller_request(found, "Leave more of the device free: a smaller batch or model.")
    yield system


_FAR_ABOVE: Final = 2
"""Times what is free: other programs rarely hold what is missing of a need that is larger."""


_LESS_SYSTEM: Final = "fewer workers of the data loader, data in parts, float32 instead of float64"
_MORE_OF_JOB: Final = (
    "Ask for more memory (--mem or --mem-per-cpu; sacct -j JOB --format=JobID,State,ReqMem,MaxRSS shows what the job "
    f"asked for and used), or use less of it: {_LESS_SYSTEM}."
)

_HOST_TEXTS: Final = {
    **dict.fromkeys(("host-slurm", "host-slurm-limit"), _MORE_OF_JOB),
    "host-pbs": f"Ask for more memory (-l mem=... or -l select=1:mem=...), or use less of it: {_LESS_SYSTEM}.",
    "host-lsf": f"Ask for more memory (bsub -M, and -R 'rusage[mem=...]'), or use less of it: {_LESS_SYSTEM}.",
    "host-systemd": "Look at the lines of the kernel (journalctl -k | grep -i oom): they say whether a limit was "
    "reached. If so, raise it: MemoryMax= of the unit (systemctl show -p MemoryMax UNIT); else use a smaller model, "
    "or add memory.",
    "host-kubernetes": "Raise resources.limits.memory of the container, and requests.memory with it, so that its pod "
    f"is placed where so much is free (kubectl top pod shows what it uses); or use less: {_LESS_SYSTEM}.",
    "host-docker": "Give the container more (docker run --memory=..., mem_limit in compose), or use less: "
    f"{_LESS_SYSTEM}.",
    "host-ray": "Run fewer tasks at once on a node: give each num_cpus or memory= of what it needs. Or use less in "
    "each task, or add memory. RAY_memory_usage_threshold sets from which share of the node on Ray ends workers.",
    "host-ray-lost": "Look how it ended: in the files worker-* and raylet.out of /tmp/ray/session_latest/logs, and in "
    f"dmesg -T | grep -i -E 'oom|killed process' of its node. If memory ran out, use less of it: {_LESS_SYSTEM}.",
    "host-yarn": "Give the container more: in Spark spark.executor.memoryOverhead, or spark.executor.memory. Or use "
    "less: smaller partitions, or fewer cores in an executor, each runs a task.",
    "host-dask": "Use smaller partitions or chunks, or give each worker more: fewer workers, or a larger memory_limit "
    "if the system has more.",
    "host-dask-lost": "Look in the logs of the workers how they ended. If memory ran out: use smaller partitions or "
    "chunks, or give each worker more (fewer workers, a larger memory_limit).",
    "host-oomd": f"Close other programs, or use less system memory: {_LESS_SYSTEM}. oomctl shows the limits.",
    "host-kaggle": f"Use less system memory: {_LESS_SYSTEM}; delete what is no longer needed, and gc.collect().",
    "host-jupyter": "Look at the lines of the server, and at dmesg -T | grep -i -E 'oom|killed process'. If memory ran "
    f"out, use less of it: {_LESS_SYSTEM}. As a script (jupyter nbconvert --to script) a crash prints its reason.",
    "host-colab": f"Use less system memory: {_LESS_SYSTEM}; load a model with low_cpu_mem_usage=True; or choose a "
    "runtime with more of it.",
    **dict.fromkeys(
        ("host-invoked", "host-reaped"),
        "Look at the lines of the kernel around this one (dmesg -T): they list what each process held, and "
        f"which was ended. Use less system memory: {_LESS_SYSTEM}; or add memory.",
    ),
    "host-mapping": "Look at free -g, ulimit -v and the limit of the container; with many tensors in shared memory at "
    "sysctl vm.max_map_count, too. Then use less, or raise the limit that is reached.",
    "host-java": "Raise the limit that was reached, if the system has more: -Xmx of java for the heap, "
    "-Dorg.bytedeco.javacpp.maxphysicalbytes for all memory with JavaCPP (ND4J, DL4J), and -Dorg.bytedeco.javacpp"
    ".maxbytes for what lies outside of the heap.",
    "host-javascript": "In Node.js raise the limit, if the system has more: NODE_OPTIONS=--max-old-space-size=N (MiB). "
    "In a browser use a smaller model or file, or read it in parts: one tab has a few GiB at most.",
    "host-nvidia": "Look at free -g and at the lines of the kernel around it (dmesg -T); on a device that shares the "
    "memory of the system (DGX Spark, Jetson) leave the system some GiB.",
    "host-duckdb": "Give the query less at once, or DuckDB more: SET threads = ... (fewer), SET "
    "preserve_insertion_order = false, SET memory_limit = '...'; and a temp_directory, so that it can spill to disk.",
    "host-r-limit": "Raise the limit, if the system has more: R_MAX_VSIZE in .Renviron (memory.limit() in R for "
    "Windows before 4.2); or read data in parts, and rm() what is no longer needed.",
    "host-cpp": "Watch free -g while it runs, and nvidia-smi if it uses a GPU: what is full then, of that use less. "
    "ulimit -v may set a limit, too.",
    "any-memory": "Close other programs, use less at once, or add memory; look also at the limits of the process "
    "(ulimit -v), of its container, and of the program itself, such as the size of its heap.",
    "host-paging": "Let Windows make its page file larger, with enough room on its disk, and close other programs; in "
    "Python, start fewer worker processes: each takes memory for its own libraries.",
    "tf-host": "Look at free -g, ulimit -l (locked pages) and, in WSL, memory= in .wslconfig; "
    f"{tensorflow.POOL_LIMIT} limits the pool of pinned memory.",
}
"""Name of an entry -> what to do about system memory."""


def _host_memory_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    variable, _ = next(
        (each for pool, each in tensorflow.PINNED_POOLS.items() if pool in found.marks), ("", "")
    )
    if variable:
        yield {
            AdviceWord.SYSTEM_MEMORY: "Look at free -g, ulimit -l (locked pages) and, in WSL, memory= in .wslconfig: "
            f"the pool holds pinned system memory, which {variable} limits."
        }
        return
    if found.message in _HOST_TEXTS:
        yield {AdviceWord.SYSTEM_MEMORY: _HOST_TEXTS[found.message]}
        return
    if found.message == "ggml-buffer":
        yield from _ggml_host_advice(found, judged)
        return
    if found.message == "ollama-system":
        needed, free = found.fact("requested") or 0, found.fact("available") or 0
        close = {AdviceWord.SYSTEM_MEMORY: "Close other programs, or add memory."}
        smaller = {AdviceWord.SMALLER_MODEL: "Use a smaller model, or one of fewer bits."}
        yield from (smaller, close) if needed > _FAR_ABOVE * free else (close, smaller)
        return
    if found.message.startswith("onnx-"):
        yield from _smaller_request(found, "Reduce the batch or the input.")
        yield {
            AdviceWord.SYSTEM_MEMORY: "Close other programs, or add memory; SessionOptions.enable_cpu_mem_arena "
            "= False lets a session return what it does not use."
        }
        return
    if "shared_memory" in found.marks:
        yield {
            AdviceWord.SYSTEM_MEMORY: "Give the container more shared memory: docker run --shm-size=8g, or "
            "--ipc=host; else use fewer workers of the data loader."
        }
        return
    if found.message in BY_SIGNAL:
        yield from _signal_advice(found)
    if len(found.shape) > 2 and (found.fact("requested") or 0) >= _LARGE_ARRAY:
        yield {
            AdviceWord.SHAPE_BUG: f"Look where the shape {found.shape} comes from: so large an array often has one "
            "axis too many, or one of a wrong length."
        }
    yield {AdviceWord.SYSTEM_MEMORY: _killed_process_text(found) or _less_system_memory_text(found)}


def _killed_process_text(found: StatedFailure) -> str:
    """Advice on a process that the system ended, and that is hardly the program of the user; "" for others."""
    is_small = (found.fact("process_in_use") or SMALL_PROCESS) < SMALL_PROCESS
    if not found.op or found.message != "host-killed":
        return ""
    if not is_small and found.op.startswith(_PYTHON_PROGRAMS):
        return ""
    less = f"Let {found.op}, or the largest of them,"
    kernel = ""
    if is_small:
        less = f"Let the largest of them, not {found.op},"
        kernel = "; of the kernel's own memory slabtop and df -t tmpfs tell"
    return (
        "Look at who holds system memory (ps aux --sort=-rss | head; the kernel's lines before this one list it, too"
        f"{kernel}). {less} use less, or add memory."
    )


def _less_system_memory_text(found: StatedFailure) -> str:
    """Advice on a stated failure of system memory: how a program of its kind uses less."""
    first = "If system memory ran out, use" if found.message in BY_SIGNAL else "Use"
    parts = "data in parts" if found.dtype not in _HALVED else f"data in parts, {_HALVED[found.dtype]}"
    less = f"fewer workers of the data loader, {parts}"
    if found.message == "host-program":  # no data loader of Python
        less = "a smaller problem, data in parts, fewer processes on the machine"
    return f"{first} less system memory: {less}; or add memory."


def _signal_advice(found: StatedFailure) -> Iterator[AdviceTexts]:
    """Advice on a process that SIGKILL ended: who sent it; the text says at most how it was started."""
    if "compiler" in found.marks:
        yield {
            AdviceWord.SYSTEM_MEMORY: "Compile fewer files at once, each takes system memory: MAX_JOBS=2 with pip and "
            "PyTorch's extensions, make -j2; or add memory."
        }
    if "timeout" in found.marks:
        yield {
            AdviceWord.RECORD: "Give `timeout` more time, and look whether the program then ends by itself."
        }
    of_container = found.message == "host-exit" and "below_limit" not in found.marks
    rest = " Of a container ask kubectl describe pod or docker inspect (OOMKilled)." if of_container else ""
    yield {
        AdviceWord.RECORD: "Ask the system: dmesg -T | grep -i -E 'oom|killed process', or the batch system's report "
        f"of the job.{rest}"
    }


_HALVED: Final = {
    **dict.fromkeys(("", "float64", "double"), "float32 instead of float64"),
    "complex128": "complex64 instead of complex128",
    "int64": "int32 instead of int64 where the numbers are small",
}
"""Type of an array, "" where the text does not say it -> what takes half as much."""

_LARGE_ARRAY: Final = 8 * GiB

_PYTHON_PROGRAMS: Final = ("python", "pt_", "ray", "jupyter", "ipython", "torchrun", "accelerate")
"""How the names of processes begin that are most often Python programs."""


def _below_zero_advice(_found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice on a stated size below zero: find where it is computed."""
    yield {
        AdviceWord.SHAPE_BUG: "Print the shape of the array, and the product of its dimensions: none may be "
        "negative, and with 2^31 elements or more a newer version of the library may be needed.",
        AdviceWord.SMALLER_REQUEST: "Split the array into parts of fewer than 2^31 elements.",
    }


def _pinned_pool_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice on a pool of pinned system memory at its limit: the variable that sets it."""
    setting, unit = next(said for name, said in tensorflow.PINNED_POOLS.items() if name in found.marks)
    limit = format_bytes(found.fact("limit") or 0, 2)
    yield {
        AdviceWord.RAISE_LIMIT: f"Raise the limit of the pool, now {limit}, as far as system memory allows: "
        f"{setting}, in {unit}, before the start.",
        AdviceWord.SMALLER_REQUEST: "Copy less to the GPU at once: arrays that wait for a copy lie in this pool.",
    }


def _soft_failure_advice(found: StatedFailure, judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice on a stated refusal that is no failure: what helps if it fails after all, or is faster."""
    if found.message == "sglang-retract":
        yield {
            AdviceWord.KV_CACHE: "If it happens often: raise --schedule-conservativeness, so that fewer requests are "
            f"taken at once, or give the KV cache more ({_SGLANG.share})."
        }
    if found.message == "vllm-preempt":
        yield {
            AdviceWord.KV_CACHE: f"If it happens often: give the KV cache more ({_VLLM.share}), or take fewer requests "
            "at once (--max-num-seqs)."
        }
    if found.message == "lmcache-full":
        yield {
            AdviceWord.RAISE_LIMIT: "If it happens often: make LMCache's pool larger (max_local_cpu_size in GB), as "
            "far as system memory allows; with a buffer between processes pd_buffer_size."
        }
    if found.message == "triton-fallback":
        yield {
            AdviceWord.RAISE_LIMIT: "To make the pool larger: --pinned-memory-pool-byte-size, or "
            "--cuda-memory-pool-byte-size=DEVICE:BYTES, of tritonserver."
        }
    if found.message == "ollama-offload" and fits_by_count(found):
        yield {
            AdviceWord.OTHER_PROCESSES: "Look at what is loaded (ollama ps), stop it (ollama stop), and load the model "
            "again."
        }
    elif found.message == "ollama-offload":
        yield {
            AdviceWord.SEQUENCE: f"Lower {_OLLAMA.context}, so that layers fit the GPU; or set how many shall lie "
            f"there: {_OLLAMA.layers}."
        }
        yield _look_for_others_advice(found)
    if found.message == "cuda-kernel" and "registers" in found.marks:
        yield {
            AdviceWord.DRIVER_BUG: "Take a build of the library for this device, or a newer one; of an own kernel "
            "start fewer threads in a block (num_warps in Triton)."
        }
    elif found.message == "cuda-kernel":
        yield {
            AdviceWord.SHAPE_BUG: "Find the kernel: CUDA_LAUNCH_BLOCKING=1 (ROCm: AMD_SERIALIZE_KERNEL=3) makes the "
            "traceback name its line, compute-sanitizer the address. Most often an index is out of range."
        }
    if found.message == "ggml-buffer":
        yield from (_ggml_host_advice if "host" in found.marks else _ggml_advice)(found, judged)


def _status_advice(found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice on a stated status that is not only one of memory."""
    if found.message == "status-exhausted":
        yield {AdviceWord.RECORD: "Give bfcviz the rest of the message, and the lines around it."}
    elif found.fact("requested") is None:
        yield {AdviceWord.RAISE_LIMIT: "Send fewer requests at once, or ask the service for a larger quota."}
    else:
        yield {
            AdviceWord.RAISE_LIMIT: "Raise the limit on the side that receives (grpc.max_receive_message_length) or "
            "sends (grpc.max_send_message_length), or send less in one message."
        }


def _lost_rank_advice(_found: StatedFailure, _judged: Judgement) -> Iterator[AdviceTexts]:
    """Advice on a lost rank: where the first failure of the job is told."""
    yield {
        AdviceWord.RECORD: "Look for the first error of the whole job: in the logs of all ranks (bfcviz why FOLDER "
        "reads them together), and for a rank whose log just ends in dmesg -T | grep -i -E 'oom|killed process' of its "
        "machine."
    }


_CALL_RULES: Final[Mapping[str, Rule]] = {
    "ggml": _ggml_advice,
    "onnx_pool": _onnx_advice,
    "pin_memory": _pinned_call_advice,
    "no_context": _new_context_advice,
}
"""A mark of a refused call -> its advice; the first that fits."""

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
    "trtllm": _trtllm_advice,
    "flashinfer": _flashinfer_advice,
    "vllm": _vllm_advice,
    "sglang": _sglang_advice,
    "tgi": _tgi_advice,
    "bnb": _bitsandbytes_advice,
    "host": _host_memory_advice,
    "ollama": _host_memory_advice,
    "nvidia": _soft_failure_advice,
    "peer": _lost_rank_advice,
    "any": _any_advice,
    "status": _status_advice,
    **dict.fromkeys(("usage", "triton", "lmcache"), _soft_failure_advice),
}
"""First part of an entry's name -> its advice."""

_OF_TEXT: Final[Mapping[str, Rule]] = {
    "tf-context": _no_context_advice,
    "cuda-init": _driver_start_advice,
    "cuda-shared": _kernel_advice,
    "cuda-shared-call": _shared_call_advice,
    "program-exllama": _exllama_advice,
    "program-tenstorrent": _bank_advice,
    "program-dispatch": _dispatch_advice,
    "sglang-tokens": _sglang_pool_advice,
    "ggml-context": _ggml_context_advice,
    "program-encoder": _encoder_advice,
    "torch-xpu-block": _extension_limit_advice,
    "torch-size": _torch_size_advice,
    "torch-cpu": _below_zero_advice,
    "torch-nvml": _torch_nvml_advice,
    **dict.fromkeys(("torch-mps", "torch-mps-buffer"), _mps_advice),
    **dict.fromkeys(("metal-command", "metal-refused", "torch-mps-private"), _metal_command_advice),
    "vllm-start": _vllm_start_advice,
    "vllm-warmup": _vllm_warmup_advice,
}
"""Name of an entry -> its advice, where it is not that of its group."""


def setting_for(found: StatedFailure, value: str) -> str:
    """For advice, a setting of the allocator, by a variable that the version and the platform of a text read.

    Builds for CUDA and ROCm from 2.9 on read the older name, too (c10/cuda/CUDAAllocatorConfig.h).
    """
    if found.framework == "PyTorch NPU":
        return f"{NPU_CONF}={value}"
    if "conf" in found.marks or found.version == "2.9 or later":
        return f"{NEW_CONF}={value} (its older name, {CONF}, is still read, too)"
    return f"{HIP_CONF if 'hip_conf' in found.marks else CONF}={value}"
