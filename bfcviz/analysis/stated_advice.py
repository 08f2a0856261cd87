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

from bfcviz.analysis.stated_verdict import SLIVER, Judgement, StatedCause, buffer_of, device_use, is_padded
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
    rule = _mps_advice if found.message.startswith("torch-mps") else _GROUPS[found.message.partition("-")[0]]
    if found.message == "tf-context":
        rule = _driver_call_advice
    elif found.message == "cuda-shared":
        rule = _kernel_advice
    elif found.message == "torch-xpu-block":
        rule = _torch_refused_advice
    if judged.cause is StatedCause.HOST_MEMORY:
        rule = _host_memory_advice
    elif judged.cause is StatedCause.NOT_A_FAILURE:
        rule = _soft_failure_advice
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
    if judged.cause is StatedCause.REQUEST_EXCEEDS_DEVICE:  # too large for an empty device
        kinds.pop(StatedAdviceWord.OTHER_PROCESSES, None)
    return tuple(kinds.values())


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


def _smaller_request(found: StatedFailure, words: str = "") -> Iterator[StatedAdvice]:
    """A smaller request, in the words of what it is."""
    what = StatedAdviceSubject.VARIABLE if "initializer" in found.marks else requested(found.op, found.shape)
    subject = found.op or "The tensor"
    if what is not StatedAdviceSubject.CONSTANT and _is_filter(found.shape):
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
_INFERENCE: Final = frozenset({"vllm", "sglang", "comfyui", "llamacpp", "ollama", "inference"})


def _torch_backend(found: StatedFailure) -> str:
    """The module of torch that has the functions for this kind of device."""
    return {"PyTorch XPU": "xpu", "PyTorch NPU": "npu"}.get(found.framework, "cuda")


def _who_holds_command(found: StatedFailure) -> str:
    """The command that names the processes on the device."""
    marks = frozenset[str]() if found.framework.startswith("PyTorch") else found.marks
    if "ROCm" in found.framework or "rocm" in marks:
        return "rocm-smi --showpids"
    if "metal" in marks:
        return "Activity Monitor lists them"
    if found.framework == "Vulkan" or "vulkan" in marks:
        return "the tool of the device's driver names them"
    if found.framework in {"PyTorch XPU", "oneAPI"}:
        return "xpu-smi ps"
    if found.framework == "PyTorch NPU":
        return "npu-smi info"
    return "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"


def _look_for_others_advice(found: StatedFailure) -> StatedAdvice:
    text = f"Look whether another process holds the device: {_who_holds_command(found)}."
    return StatedAdvice(StatedAdviceWord.OTHER_PROCESSES, text)


def _stop_others_advice(found: StatedFailure) -> StatedAdvice:
    text = f"Stop other programs and notebook kernels on this device, which this lists: {_who_holds_command(found)}."
    return StatedAdvice(StatedAdviceWord.OTHER_PROCESSES, text)


def _torch_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    yield from _TORCH[judged.cause](found, judged)
    if judged.cause in {
        StatedCause.CAPACITY,
        StatedCause.CACHED_FRAGMENTATION,
        StatedCause.PRIVATE_POOLS,
        StatedCause.UNKNOWN,
    }:
        yield StatedAdvice(StatedAdviceWord.RECORD, _torch_recording_text(found))


def _torch_recording_text(found: StatedFailure) -> str:
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
            "empty_cache(), which the text offers, does not help: PyTorch returned its cache before it raised.",
        )
        return
    if found.framework == "PyTorch NPU":
        text = "Test the driver alone with a few lines of torch.empty; look at npu-smi info, and for an earlier error."
        yield StatedAdvice(StatedAdviceWord.DRIVER_BUG, text)
        return
    yield StatedAdvice(
        StatedAdviceWord.DRIVER_BUG,
        (
            "Test the driver alone with a few lines of torch.empty; look at ulimit -v, nvidia-smi -q -d COMPUTE "
            "(exclusive mode), an earlier error of the same process, and whether driver and toolkit fit."
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
    use = device_use(found)
    is_sliver = not counters and _is_sliver(found)
    if is_sliver:
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
    can_split = has_settings and not is_set and (counters or request > torch.LARGE_SEGMENT) and not is_sliver
    if can_expand:
        yield StatedAdvice(
            StatedAdviceWord.EXPANDABLE,
            f"Set {setting_for(found, 'expandable_segments:True')} before the start: segments then grow in "
            "place, and the cached memory is usable for this request (Linux).",
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
    worth = max(request - free, 0.02 * (found.fact("device_total") or 0))
    if judged.others and use.is_listed and judged.others >= worth:
        yield StatedAdvice(
            StatedAdviceWord.OTHER_PROCESSES,
            f"Other processes hold {format_bytes(judged.others, 2)}, enough for what is missing: "
            f"{_who_holds_command(found)}.{_listed_processes_advice_text(found)}",
        )
    if not counters and request > free:
        yield from _smaller_request(found, _missing_bytes_advice_text(request, free))


def _missing_bytes_advice_text(request: int, free: int) -> str:
    """How much less would have fitted; segments of fixed size do not shrink with the tensor."""
    less = format_bytes(max(0, request - free), 2)
    if request <= torch.LARGE_SEGMENT:
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
                "--enforce-eager."
                if found.marks & _SERVERS
                else "torch.compile without mode='reduce-overhead'."
            )
        ),
    )
    yield from _smaller_request(found)


def _torch_others_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    held = "" if judged.others is None else f" They hold {format_bytes(judged.others, 2)}."
    yield StatedAdvice(
        StatedAdviceWord.OTHER_PROCESSES,
        f"Stop the other processes on this device: {_who_holds_command(found)}.{held}"
        f"{_listed_processes_advice_text(found)}",
    )
    yield StatedAdvice(
        StatedAdviceWord.RAISE_LIMIT,
        (
            "If both shall run: set the share of each so that both fit, "
            + (
                "--gpu-memory-utilization (vLLM) or --mem-fraction-static (SGLang)."
                if found.marks & _SERVERS
                else "such as gpu_memory_utilization of an engine, or "
                f"torch.{_torch_backend(found)}.set_per_process_memory_fraction."
            )
        ),
    )


def _torch_full_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    if found.marks & _SERVERS:
        yield StatedAdvice(
            StatedAdviceWord.KV_CACHE,
            ("Give the KV cache less: a lower --gpu-memory-utilization, or --kv-cache-dtype fp8."),
        )
        yield StatedAdvice(StatedAdviceWord.SEQUENCE, "Lower --max-model-len and --max-num-seqs.")
        yield StatedAdvice(
            StatedAdviceWord.GRAPH_POOLS,
            ("CUDA graphs need memory outside of that share: --enforce-eager, or fewer sizes."),
        )
        yield StatedAdvice(
            StatedAdviceWord.SMALLER_MODEL, "Use a quantized model, or more devices (--tensor-parallel-size)."
        )
        yield from _smaller_request(found, "Lower --max-num-batched-tokens.")
        return
    if "comfyui" in found.marks:
        yield from _smaller_request(
            found, "Lower the resolution, the frames or the batch; decode with a tiled VAE."
        )
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
        look = f"Look whether another process holds the device: {_who_holds_command(found)}."
        yield StatedAdvice(StatedAdviceWord.OTHER_PROCESSES, look)


_TORCH: Final[Mapping[StatedCause, Rule]] = {
    StatedCause.REQUEST_EXCEEDS_DEVICE: _torch_shape_advice,
    StatedCause.REQUEST_EXCEEDS_LIMIT: _torch_shape_advice,
    StatedCause.CAP_BY_SETTING: _torch_limit_advice,
    StatedCause.SPILLED: _torch_spilled_advice,
    StatedCause.DRIVER_REFUSED: _torch_refused_advice,
    StatedCause.CACHED_FRAGMENTATION: _torch_fragmented_advice,
    StatedCause.PRIVATE_POOLS: _torch_private_pool_advice,
    StatedCause.OTHER_PROCESS: _torch_others_advice,
    StatedCause.CAPACITY: _torch_full_advice,
    StatedCause.UNKNOWN: _torch_unknown_advice,
}


def _mps_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if found.message == "metal-command":
        yield from _metal_command_advice(found)
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
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_MODEL,
        ("Use a smaller model, or weights of fewer bits: memory is shared with the system."),
    )
    yield from _smaller_request(found)
    yield StatedAdvice(
        StatedAdviceWord.SYSTEM_MEMORY,
        ("Close other programs, and models that this process still holds: memory is shared."),
    )
    yield StatedAdvice(
        StatedAdviceWord.RAISE_LIMIT,
        f"{torch.MPS_LIMIT}=0.0 removes the limit; then the system swaps, and may freeze. Set "
        f"{torch.MPS_LOW}=0.0 with it.",
    )


def _metal_command_advice(found: StatedFailure) -> Iterator[StatedAdvice]:
    if "ggml" in found.marks:
        yield StatedAdvice(StatedAdviceWord.SEQUENCE, "Lower the context: -c.")
        yield StatedAdvice(StatedAdviceWord.SMALLER_REQUEST, _SMALLER_UBATCH)
        fewer = "Use a model of fewer bits, or put fewer layers on the GPU (-ngl)."
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
        "Or compute less at once: fewer requests and tokens a step (SGLang: --max-running-requests, "
        "--chunked-prefill-size; vLLM: --max-num-seqs, --max-num-batched-tokens).",
    )


def _driver_call_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if "ggml" in found.marks:
        yield from _ggml_advice(found, judged)
        return
    if found.framework == "TensorFlow":
        yield StatedAdvice(
            StatedAdviceWord.PREALLOCATION,
            "Leave libraries a part of the device, which TensorFlow takes whole at the start: "
            f"{tensorflow.FORCE_GROWTH}=true (1.14 or later), or in TensorFlow 1 "
            "config.gpu_options.allow_growth = True.",
        )
    yield StatedAdvice(
        StatedAdviceWord.OTHER_PROCESSES,
        f"Look before the start whether another process holds the device: {_who_holds_command(found)}.",
    )
    if "torch" in found.marks and found.framework != "PyTorch XPU":
        wait = "AMD_SERIALIZE_KERNEL=3" if "ROCm" in found.framework else "CUDA_LAUNCH_BLOCKING=1"
        yield StatedAdvice(
            StatedAdviceWord.RECORD, f"Find the call: {wait} makes the traceback name the true line."
        )
    yield from _smaller_request(found, "Leave more of the device to libraries: a smaller batch or model.")


def _kernel_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del found, judged
    text = "Give the kernel smaller blocks (BLOCK_M, BLOCK_N ...) or fewer num_stages."
    yield StatedAdvice(StatedAdviceWord.SMALLER_REQUEST, text)


def _paddle_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if judged.cause is StatedCause.DRIVER_REFUSED:
        yield StatedAdvice(StatedAdviceWord.DRIVER_BUG, "Test the device alone: paddle.utils.run_check().")
        return
    yield from _smaller_request(found, "Reduce the batch, or the size of one input.")
    yield _look_for_others_advice(found)
    yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, "Use a smaller model, or paddle.amp.auto_cast.")
    yield StatedAdvice(
        StatedAdviceWord.RECORD,
        "To see what this process holds of it: paddle.device.cuda.memory_reserved() and memory_allocated().",
    )


# ------------------------------------------------------------------------------
# TensorFlow, XLA and JAX.


def _bfc_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    yield from _BFC.get(found.framework, _tensorflow_advice)(found, judged)


def _tensorflow_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    is_old = found.version == "1.x"
    cause = judged.cause
    growth = (
        "config.gpu_options.allow_growth = True"
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
        yield _stop_others_advice(found)
        yield StatedAdvice(StatedAdviceWord.PREALLOCATION, f"Let the pool take only what it needs: {growth}.")
        yield from _smaller_request(found)
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
    yield StatedAdvice(
        StatedAdviceWord.RECORD,
        (
            "To see who holds it: "
            + (
                "RunOptions(report_tensor_allocations_upon_oom=True), and the whole log with its Bin and Chunk "
                "lines."
                if is_old
                else f"run with {tensorflow.LOG_FAILURES} and keep the whole log: bfcviz opens its Bin and Chunk "
                "lines."
            )
        ),
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
        yield StatedAdvice(
            StatedAdviceWord.PREALLOCATION,
            (f"Take less at the start: {xla.PREALLOCATE}=false, or {xla.SHARE_NAMES}."),
        )
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


def _tpu_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if "vmem" in found.marks:
        yield from _smaller_request(found, "Use smaller blocks in the kernel.")
        yield StatedAdvice(
            StatedAdviceWord.RAISE_LIMIT,
            ("Raise --xla_tpu_scoped_vmem_limit_kib in LIBTPU_INIT_ARGS, up to what the chip has."),
        )
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
    too_much, limit = found.fact("exceeded"), found.fact("limit")
    if limit is None or too_much is None or 2 * too_much < limit:  # a smaller batch may do
        yield from _smaller_request(found, "Reduce the batch of one core.")
    yield StatedAdvice(
        StatedAdviceWord.OPTIMIZER,
        "Shard parameters and optimizer state over the cores (FSDP, jax.sharding).",
    )
    yield from _smaller_request(found, "Reduce the batch of one core.")
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_MODEL,
        "Use bfloat16 for what the table lists as float32, or a smaller model.",
    )
    yield StatedAdvice(
        StatedAdviceWord.SEQUENCE, "Use shorter sequences, or attention that does not store its matrix."
    )
    yield StatedAdvice(
        StatedAdviceWord.CHECKPOINTING,
        "In training: jax.checkpoint (remat) keeps fewer values for the gradient.",
    )
    if judged.cause is StatedCause.REQUEST_EXCEEDS_DEVICE:
        yield StatedAdvice(
            StatedAdviceWord.RECORD,
            "The lines below (Largest program allocations in hbm) name the arrays; so does "
            "jax.jit(f).lower(*args).compile().memory_analysis().",
        )


# ------------------------------------------------------------------------------
# The others.


def _cupy_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
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
        look = f"Look who holds the device, also other sessions of this process: {_who_holds_command(found)}."
        yield StatedAdvice(StatedAdviceWord.OTHER_PROCESSES, look)
    yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, "Use float16 or a quantized model.")


_FLASH: Final = "-fa on (builds before September 2025: -fa)"
_SMALLER_UBATCH: Final = "Lower the physical batch: -ub 256 or less (the default is 512)."


def _ggml_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    del judged
    buffer = "compute" if "pool" in found.marks else buffer_of(found)
    if buffer == "compute":
        yield StatedAdvice(
            StatedAdviceWord.SEQUENCE, f"Lower the context: -c; with {_FLASH} the buffer grows less with it."
        )
        yield StatedAdvice(StatedAdviceWord.SMALLER_REQUEST, _SMALLER_UBATCH)
        if "pool" in found.marks:
            yield StatedAdvice(
                StatedAdviceWord.SMALLER_MODEL,
                "Leave the pool more of the device: put fewer layers on it (-ngl), or use a model of fewer bits.",
            )
        return
    if buffer == "kv":
        yield StatedAdvice(
            StatedAdviceWord.SEQUENCE, "Lower the context: -c, or the number of parallel sequences: -np."
        )
        yield StatedAdvice(
            StatedAdviceWord.KV_CACHE, f"Use a quantized KV cache: -ctk q8_0 -ctv q8_0, with {_FLASH}."
        )
        return
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_MODEL, "Put fewer layers on the device (-ngl), or use a model of fewer bits."
    )
    if not buffer:
        yield StatedAdvice(StatedAdviceWord.SEQUENCE, "Lower the context: -c.")
        yield StatedAdvice(StatedAdviceWord.SMALLER_REQUEST, _SMALLER_UBATCH)
    yield _look_for_others_advice(found)


def _vllm_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if judged.cause is StatedCause.OTHER_PROCESS:
        yield StatedAdvice(
            StatedAdviceWord.OTHER_PROCESSES,
            f"Stop what else runs on the device, also an engine that did not end: {_who_holds_command(found)}.",
        )
        total, free = found.fact("device_total"), found.fact("device_free")
        share = "" if not total or free is None else f" {int(100 * free / total) / 100:.2f} would fit now."
        yield StatedAdvice(
            StatedAdviceWord.RAISE_LIMIT, f"Or lower --gpu-memory-utilization so that both fit.{share}"
        )
        return
    if "length" in found.marks:
        yield StatedAdvice(
            StatedAdviceWord.SEQUENCE,
            "Lower --max-model-len"
            + (f" to {found.facts['kv_tokens']:,} or less." if "kv_tokens" in found.facts else "."),
        )
    yield StatedAdvice(
        StatedAdviceWord.RAISE_LIMIT,
        (
            "Raise --mem-fraction-static."
            if found.framework == "SGLang"
            else "Raise --gpu-memory-utilization, if the device has more."
        ),
    )
    yield StatedAdvice(
        StatedAdviceWord.KV_CACHE, "Make the KV cache smaller: --kv-cache-dtype fp8, fewer --max-num-seqs."
    )
    yield StatedAdvice(
        StatedAdviceWord.SEQUENCE, "Lower --max-model-len: the trial run then needs less, too."
    )
    yield StatedAdvice(
        StatedAdviceWord.SMALLER_MODEL,
        ("Use a quantized model, or more devices (--tensor-parallel-size): the weights take the share."),
    )


def _host_memory_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    if found.message == "ggml-buffer":
        yield from _ggml_advice(found, judged)
        yield StatedAdvice(
            StatedAdviceWord.SYSTEM_MEMORY, "Close other programs, or put more layers on the GPU (-ngl)."
        )
        return
    if found.message == "ollama-system":
        yield StatedAdvice(
            StatedAdviceWord.SYSTEM_MEMORY,
            ("Close other programs, or add memory; a part of the model runs on the CPU."),
        )
        yield StatedAdvice(StatedAdviceWord.SMALLER_MODEL, "Use a smaller model, or one of fewer bits.")
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
    yield StatedAdvice(
        StatedAdviceWord.SYSTEM_MEMORY,
        "Use less system memory: fewer workers of the data loader, data in parts, float32 instead of float64; or "
        "add memory.",
    )


def _soft_failure_advice(found: StatedFailure, judged: Judgement) -> Iterator[StatedAdvice]:
    """Only what helps if it fails after all."""
    if found.message == "ggml-buffer":
        yield from _ggml_advice(found, judged)


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
    "trt": _tensorrt_advice,
    "flashinfer": _flashinfer_advice,
    "vllm": _vllm_advice,
    "sglang": _vllm_advice,
    "host": _host_memory_advice,
    "ollama": _host_memory_advice,
    "nvidia": _soft_failure_advice,
}
"""First part of an entry's name -> its advice."""


def setting_for(found: StatedFailure, value: str) -> str:
    """A setting of the allocator, by a variable that the version and the platform of a text read.

    Builds for CUDA and ROCm from 2.9 on read the older name, too (c10/cuda/CUDAAllocatorConfig.h).
    """
    if found.framework == "PyTorch NPU":
        return f"{NPU_CONF}={value}"
    if "conf" in found.marks or found.version == "2.9 or later":
        return f"{NEW_CONF}={value} (its older name, {CONF}, is still read, too)"
    return f"{HIP_CONF if 'hip_conf' in found.marks else CONF}={value}"
