"""XLA's client, as JAX starts it: the variables of its memory settings, and what they mean.

The heap is TensorFlow's BFC allocator; its rules are in `bfcviz.formats.tensorflow`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from bfcviz.errors import SettingError
from bfcviz.formats import tensorflow
from bfcviz.formats.settings import SettingWords

# ------------------------------------------------------------------------------
# JAX's memory settings.
#
# Source: `generate_pjrt_gpu_plugin_options` in jaxlib's xla_client.py. It lowers the case of the allocator's name,
# reads the old name of the share where the new one is not set, and refuses both together.
#
#     variable                        means
#     XLA_PYTHON_CLIENT_PREALLOCATE   false, False, 0: the pool grows; otherwise the share is taken at once
#     XLA_CLIENT_MEM_FRACTION         the share of the device's memory; the default is 0.75
#     XLA_PYTHON_CLIENT_MEM_FRACTION  the same, the only name in old versions
#     XLA_PYTHON_CLIENT_ALLOCATOR     `default` and `bfc`: a BFC heap; the others are not
#     TF_FORCE_UNIFIED_MEMORY         1, true: memory is unified, and the share may be above 1

PREALLOCATE: Final = "XLA_PYTHON_CLIENT_PREALLOCATE"
FRACTION: Final = "XLA_PYTHON_CLIENT_MEM_FRACTION"
"""The name that every version of JAX reads."""

NEW_FRACTION: Final = "XLA_CLIENT_MEM_FRACTION"
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
    """The heap that JAX creates.

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
    """The settings in JAX's variables.

    Raises:
        SettingError: a value that JAX refuses, or an allocator that is not a BFC heap.
    """
    _check_allocator(environment.get(ALLOCATOR, "default").lower())
    if environment.get(FRACTION) and environment.get(NEW_FRACTION):
        raise SettingError(
            f"{FRACTION} and {NEW_FRACTION} are set; JAX refuses both together: remove {FRACTION}, its old name"
        )
    name = NEW_FRACTION if environment.get(NEW_FRACTION) else FRACTION
    unified = environment.get(UNIFIED, "").lower() in ("1", "true")
    return ClientSettings(
        _fraction(name, environment.get(name, ""), unified=unified),
        name,
        environment.get(PREALLOCATE, "") not in ("0", "false", "False"),
        unified,
    )


def _check_allocator(kind: str) -> None:
    if kind in ("default", "bfc"):
        return
    if kind in _OTHERS:
        raise SettingError(
            f"{ALLOCATOR} is {kind!r}, which {_OTHERS[kind]}: set it to 'bfc' to see a BFC heap"
        )
    raise SettingError(
        f"{ALLOCATOR} is {kind!r}; JAX accepts 'default', 'bfc', {', '.join(map(repr, _OTHERS))}"
    )


def _fraction(name: str, text: str, *, unified: bool) -> float:
    if not text:
        return DEFAULT_FRACTION
    try:
        fraction = float(text)
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
)
