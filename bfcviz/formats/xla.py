"""XLA's client, as JAX starts it: the variables of its memory settings, and what they mean.

The heap is TensorFlow's BFC allocator; its rules are in `bfcviz.formats.tensorflow`.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from bfcviz.errors import SettingError
from bfcviz.formats import tensorflow
from bfcviz.formats.message_grammar import messages_of
from bfcviz.formats.setting_words import SettingWords

# ------------------------------------------------------------------------------
# JAX's memory settings.
#
# Source: `generate_pjrt_gpu_plugin_options` in jaxlib's xla_client.py. It lowers the case of the allocator's name,
# reads the old name of the share where the new one is not set, and refuses both together.
#
#     variable                        means
#     XLA_PYTHON_CLIENT_PREALLOCATE   false, False, 0: the pool grows; otherwise the share is taken at once
#     XLA_CLIENT_MEM_FRACTION         the share of the device's memory; the default is 0.75
#     XLA_PYTHON_CLIENT_MEM_FRACTION  the same, the only name in old versions; newer ones also take 0.75+ and
#                                     0.75-0.85: a partitioned pool grows to the whole device, or to 0.85 of it
#     XLA_PYTHON_CLIENT_ALLOCATOR     `default` and `bfc`: a BFC heap; the others are not
#     TF_FORCE_UNIFIED_MEMORY         1, true: memory is unified, and the share may be above 1

PREALLOCATE: Final = "XLA_PYTHON_CLIENT_PREALLOCATE"
FRACTION: Final = "XLA_PYTHON_CLIENT_MEM_FRACTION"
"""The name that every version of JAX reads."""

NEW_FRACTION: Final = "XLA_CLIENT_MEM_FRACTION"
SHARE_NAMES: Final = f"{FRACTION} (since 2025 also {NEW_FRACTION})"
ALLOCATOR: Final = "XLA_PYTHON_CLIENT_ALLOCATOR"
UNIFIED: Final = "TF_FORCE_UNIFIED_MEMORY"
DEFAULT_FRACTION: Final = 0.75

_OTHERS: Final = {
    "platform": "sends each request to the device, without a heap",
    "cuda_async": "is the pool of CUDA's driver, which does not report its chunks",
    "vmm": "uses another algorithm to map memory",
    "address": "uses another algorithm",
}


class ClientSettings(NamedTuple):
    """The memory settings of the heap that JAX creates.

    Attributes:
        fraction: share of the device's memory; above 1 only where `unified`.
        fraction_name: the variable that it is read from; where none is set, the name that every version reads.
        preallocate: the share is taken at once.
        unified: memory is unified.
    """

    fraction: float
    fraction_name: str
    preallocate: bool
    unified: bool


def client_settings(environment: Mapping[str, str]) -> ClientSettings:
    """The settings of XLA's client in JAX's variables.

    Raises:
        SettingError: a value that JAX refuses, or an allocator that is not a BFC heap.
    """
    _check_xla_allocator(environment.get(ALLOCATOR, "default").lower())
    if environment.get(FRACTION) and environment.get(NEW_FRACTION):
        raise SettingError(
            f"{FRACTION} and {NEW_FRACTION} are set; JAX refuses both together: remove {FRACTION}, its old name"
        )
    name = NEW_FRACTION if environment.get(NEW_FRACTION) else FRACTION
    unified = environment.get(UNIFIED, "").lower() in ("1", "true")
    return ClientSettings(
        _xla_memory_fraction(name, environment.get(name, ""), unified=unified),
        name,
        environment.get(PREALLOCATE, "") not in ("0", "false", "False"),
        unified,
    )


def _check_xla_allocator(kind: str) -> None:
    """Refuse an allocator of XLA's client that is not a BFC heap."""
    if kind in ("default", "bfc"):
        return
    if kind in _OTHERS:
        raise SettingError(
            f"{ALLOCATOR} is {kind!r}, which {_OTHERS[kind]}: set it to 'bfc' to see a BFC heap"
        )
    raise SettingError(
        f"{ALLOCATOR} is {kind!r}; JAX accepts 'default', 'bfc', {', '.join(map(repr, _OTHERS))}"
    )


def _xla_memory_fraction(name: str, text: str, *, unified: bool) -> float:
    """The share of the device's memory that one of JAX's variables gives XLA's client."""
    if not text:
        return DEFAULT_FRACTION
    share = re.fullmatch(
        r"([^+-]+)(\+|-[^+-]+)", text.strip()
    )  # the second part says how far the pool may grow
    try:
        fraction = float(share[1] if share and "e" not in text.lower() else text)
    except ValueError:
        fraction = float("nan")
    if not 0 < fraction < float("inf"):
        raise SettingError(
            f"{name} is {text!r}; give the share of the GPU's memory as a number above 0, such as .50"
        )
    if fraction > 1 and not unified:
        raise SettingError(
            f"{name} is {text!r}, more than the GPU has: set {UNIFIED}=1 with it, or give 1.0 or less"
        )
    return fraction


WORDS: Final = SettingWords(
    title="JAX",
    share=f"{FRACTION}={{share}}",
    one_region=f"{PREALLOCATE}=true",
    other=tensorflow.ASYNC,
    heap=tensorflow.LOG_FAILURES,
    history="jax.profiler.start_trace(logdir)",
    recompute="jax.checkpoint",
)

REACTANT: Final = ".julia/packages/Reactant"
"""In the traces of logs of Reactant, the client of XLA in Julia."""

REACTANT_WORDS_OF_ERRORS: Final = (REACTANT, "ERROR: LoadError: RESOURCE_EXHAUSTED")
"""The same, and how Julia prints an error of XLA."""

REACTANT_FRACTION: Final = "XLA_REACTANT_GPU_MEM_FRACTION"
"""The share of the device; the default is 0.75. Reactant reads none of JAX's variables (its src/xla/XLA.jl)."""

REACTANT_PREALLOCATE: Final = "XLA_REACTANT_GPU_PREALLOCATE"

REACTANT_WORDS: Final = SettingWords(
    title="Reactant",
    share=f"{REACTANT_FRACTION}={{share}}",
    one_region=f"{REACTANT_PREALLOCATE}=true",
    heap=tensorflow.LOG_FAILURES,
    history="Reactant.with_profiler(folder) do ... end",
)


# ------------------------------------------------------------------------------
# What it prints when a request fails.


MESSAGES: Final = messages_of(r"""
xla-bytes | XLA | family=bfc behind=100 alone
    = A request of a program failed. It is often the whole temporary block of the program.
    in xla/stream_executor/integrations/tf_allocator_adapter.cc, xla/pjrt
    > RESOURCE_EXHAUSTED: Out of memory allocating
    > Out of memory while trying to allocate
    > out of memory while trying to allocate
    > Out of memory trying to allocate
    > Failed to allocate request for
    > RESOURCE_EXHAUSTED: Failed to allocate
    > Failed to allocate {number} bytes for new constant
    requested: bytes of the request <- "request for {word} ({size}) on device" "request for {size}" "allocate {size}"
        "allocating {size}"
    version jaxlib 0.5 or later <- "JaxRuntimeError"
    version jaxlib 0.3 to 0.4 <- "XlaRuntimeError"
xla-program | JAX | role=after family=bfc
    = What the compiled program needs at its peak; not what the device has in use.
    in xla/service/buffer_assignment.cc
    > BufferAssignment OOM Debugging
    > BufferAssignment stats
    parameters: inputs of the program <- "parameter allocation: {size}"
    constants: constants in the program <- "constant allocation: {size}"
    live_out: outputs <- "maybe_live_out allocation: {size}"
    temp: one block for all temporaries <- "preallocated temp allocation: {size}"
    program_total: the sum <- "total allocation: {size}"
    fragmentation: of the sum, lost between buffers <- "total fragmentation: {size}"
    largest_buffer: the largest buffer at the peak <- "Buffer 1: Size: {size}"
xla-io | JAX | role=before family=bfc
    = Arguments and results of the program alone are more than the limit. XLA logs it and goes on; then a request
        fails.
    in xla/service/gpu/gpu_hlo_schedule.cc
    > The byte size of input/output arguments
    program_io: arguments and results, less what they share <- "arguments ({number})"
    limit: what the program may use of the device <- "base limit ({number})"
xla-remat | JAX | role=soft family=bfc
    = The compiler could not bring the program under its limit by computing values again. A warning: the program may
        still fit.
    in xla/hlo/transforms/simplifiers/hlo_rematerialization.cc
    > Can't reduce memory use below
    limit: what the compiler wanted <- "memory use below {word} ({number} bytes)"
    program: what it reached <- "only reduced to {word} ({number} bytes)"
    mark remat <- "Can't reduce"
tpu-compile | JAX TPU
    = The compiler refused the program: it needs more than the memory of one core has, whatever else runs.
    in libtpu (closed); openxla.org, error codes E1000 and E1001
    > Ran out of memory in memory space {word}.
    > Ran out of memory in memory space {word} while allocating on stack for
    program: what the program needs <- "Used {size} of" "allocation with size {size}"
    limit: what a program may use: the memory less what the system reserves <- "Used {skip} of {size}"
        "and limit {size} exceeded"
    exceeded: the difference <- "capacity by {size}" "limit by {size}"
    total_usage: program, arguments and reserved memory <- "usage >= {size}"
    system_reserved: reserved by the system <- "reserved {size}" "reserved(Infeed/Outfeed/Continuations) {size}"
    arguments: inputs of the program <- "arguments {size}"
    largest_buffer: the largest buffer of the program <- "1. Size: {size}"
    padding: of it, what fills up tiles of the layout <- "Extra memory due to padding: {size}"
    mark vmem <- "memory space vmem"
    mark smem <- "memory space smem"
    mark hbm <- "memory space hbm"
    mark stack <- "allocating on stack"
    mark kernel <- "custom-call"
tpu-table | JAX TPU | behind=60 weak
    = What the compiler lists of a program that it refused. The line before it, with what a core has, is missing.
    in libtpu (closed); openxla.org, error codes E1000 and E1001
    > Total hbm usage >= {size}
    program: what the program needs <- "program {size}"
    exceeded: how much too much <- "capacity by {size}"
    total_usage: program, arguments and reserved memory <- "usage >= {size}"
    system_reserved: reserved by the system <- "reserved {size}"
    arguments: inputs of the program <- "arguments {size}"
    largest_buffer: the largest buffer of the program <- "1. Size: {size}"
    mark hbm <- "hbm"
tpu-usage | JAX TPU
    = The compiler refused the program: the two kinds of cores together need more than the memory has.
    in libtpu (closed); openxla.org, error codes E1000 and E1001
    > TPU TensorCore Hbm usage
    program: what the program needs on the cores for tensors <- "TensorCore Hbm usage: {size}"
    sparse_core: of the sparse cores <- "SparseCore Hbm usage {size}"
    limit: what there is <- "exceeding available bytes: {size}"
    mark hbm <- "Hbm"
tpu-run | JAX TPU
    = A buffer did not fit into what was free on one core at run time.
    in libtpu (closed); openxla.org, error codes E1000 and E1001
    > Attempting to allocate {size}. That was not possible
    > Attempting to reserve {size} at the
    requested: bytes of the buffer, or of the program <- "Attempting to allocate {size}" "reserve {size}"
    device_free: free on this core <- "There are {size} free"
    device_total: memory of this core <- "HBM capacity {size}"
    allocated: buffers in use <- "Currently allocated: {word} ( {number} bytes)" "Currently allocated: {size}"
    system_reserved: reserved by the system <- "Top-of-Memory reserved: {size}"
    mark hbm <- "Attempting"
tpu-buffer | JAX TPU
    = One buffer is larger than the whole memory of a core.
    in libtpu (closed); openxla.org, error codes E1000 and E1001
    > Allocation (size={number}) would exceed memory (size={number})
    requested: bytes of the buffer <- "Allocation (size={number})"
    device_total: memory of a core <- "exceed memory (size={number})"
    mark hbm <- "would exceed"
""")
"""Texts of XLA and JAX, beside those of the BFC allocator, which stand with TensorFlow."""

LARGEST_BUFFER: Final = {
    "xla-program": re.compile(r"\bBuffer\s{1,9}1:(?:(?!={4}|\bBuffer\s{1,9}2:).){1,2000}", re.DOTALL),
    **dict.fromkeys(
        ("tpu-compile", "tpu-table"),
        re.compile(r"\b1\.\s{1,9}Size:(?:(?!={4}|\b2\.\s{1,9}Size:).){1,2000}", re.DOTALL),
    ),
}
"""The first buffer of a program's table, by the text that has it: they stand by size, the largest first."""

BUFFER_WORDS: Final = {
    "shape": re.compile(r"\bShape:\s{1,40}(\w{1,20}\[[^\]\n]{0,200}\])"),
    "op": re.compile(r"op_name=\"([^\"\n]{1,300})\""),
    "file": re.compile(r"source_file=\"([^\"\n]{1,300})\""),
    "line": re.compile(r"source_line=(\d{1,9})"),
}
"""What the table says of a buffer."""

JAX_WORDS: Final = (
    "pjrt",
    "jax",
    "BufferAssignment",
    "external/xla/",
    "external/tsl/",
    "XlaRuntimeError",
    "JaxRuntimeError",
    'op_name="jit(',
)
"""Words of a log that only JAX, or XLA without TensorFlow, writes."""

XLA_ERROR: Final = "RESOURCE_EXHAUSTED: Out of"
"""How an error of XLA begins, in whatever client of it; TensorFlow's own are spelled in another way."""

TORCH_WORDS: Final = (
    "torch_xla",
    "_XLAC",
    "xla_client/",
    "XRTExecute",
    "/job:tpu_worker",
    "/job:localservice",
    "Bad StatusOr access",
)
"""Words of a log that PyTorch/XLA writes; on a TPU they decide before those of TensorFlow and JAX."""

EXLA_WORDS: Final = (
    "EXLA",
    "lib/exla",
    "[info] Stats:",
    "[info] Sum Total of in-use",
    "[error] Execution of replica",
)
"""Words of a log that EXLA writes, the client of XLA in Elixir, whose logger puts its levels in brackets."""

TENSORFLOW_WORDS: Final = (
    *("/job:localhost", "/job:worker", "/job:ps", "/job:chief", "/job:tpu_worker"),  # JAX has /job:jax_worker
    *("OP_REQUIRES", "tensorflow.python", "tensorflow/python", "op_kernel.cc"),
    *("{{node ", "root error(s) found.", "report_tensor_allocations_upon_oom"),
    *("Status code: Resource exhausted", "Compilation failure: Ran out of memory"),
)
"""Words of a log that only TensorFlow writes; they decide before those of JAX."""

TPU_CLIENTS: Final = {
    "torch_xla": "PyTorch/XLA TPU",
    "tensorflow": "TensorFlow TPU",
    "reactant": "Reactant TPU",
    "jax": "JAX TPU",
}
"""What the words of a log say -> the client of XLA on a TPU; the first that fits."""

TPU: Final = "XLA TPU"
"""A client of XLA on a TPU that the words of a log do not name."""
