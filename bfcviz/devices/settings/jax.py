"""JAX's XLA_PYTHON_CLIENT_... variables as settings: the same heap with other defaults.

=====================================  ================================================================================
variable                               here
=====================================  ================================================================================
XLA_PYTHON_CLIENT_PREALLOCATE          false: memory growth on every GPU; otherwise the share is taken at once
XLA_PYTHON_CLIENT_MEM_FRACTION         per_process_gpu_memory_fraction; JAX's default is 0.75
XLA_PYTHON_CLIENT_ALLOCATOR            `default` and `bfc` are this heap; `platform`, `cuda_async` and `vmm` are others
TF_FORCE_UNIFIED_MEMORY                use_unified_memory
=====================================  ================================================================================
"""

import os
from collections.abc import Iterable, Mapping
from typing import Final

from bfcviz.devices.physical import PhysicalDevice
from bfcviz.devices.settings.tensorflow import Settings
from bfcviz.errors import SettingError

PREALLOCATE: Final = "XLA_PYTHON_CLIENT_PREALLOCATE"
FRACTION: Final = "XLA_PYTHON_CLIENT_MEM_FRACTION"
ALLOCATOR: Final = "XLA_PYTHON_CLIENT_ALLOCATOR"
UNIFIED: Final = "TF_FORCE_UNIFIED_MEMORY"
DEFAULT_FRACTION: Final = 0.75

_OTHERS: Final = {
    "platform": "sends each request to the device, without a heap",
    "cuda_async": "is the pool of CUDA's driver, which does not report its chunks",
    "vmm": "uses another algorithm to map memory",
    "address": "uses another algorithm",
}


def jax_settings(
    gpus: Iterable[PhysicalDevice] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Settings that give the heap JAX would create; TensorFlow's variables are ignored.

    Args:
        gpus: physical GPUs; None = those that CUDA lists.
        environment: the variables; None = those of the process.

    Raises:
        SettingError: a value that JAX refuses, or an allocator that is not a BFC heap.
    """
    found = os.environ if environment is None else environment
    _check_allocator(found.get(ALLOCATOR, "default").lower())
    unified = found.get(UNIFIED, "").lower() in ("1", "true")
    fraction = _fraction(found.get(FRACTION, ""), unified=unified)
    preallocate = found.get(PREALLOCATE, "") not in ("0", "false", "False")
    settings = Settings(gpus, environment={}, notes=_notes(found, fraction, preallocate=preallocate))
    settings.set_gpu_options(
        per_process_gpu_memory_fraction=fraction, use_unified_memory=unified, garbage_collection=False
    )
    for gpu in settings.list_physical_devices("GPU"):
        settings.set_memory_growth(gpu, not preallocate)
    return settings


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


def _fraction(text: str, *, unified: bool) -> float:
    if not text:
        return DEFAULT_FRACTION
    try:
        fraction = float(text)
    except ValueError:
        fraction = float("nan")
    if not 0 < fraction < float("inf"):
        raise SettingError(
            f"{FRACTION} is {text!r}; give the share of the GPU's memory as a number above 0, such as .50"
        )
    if fraction > 1 and not unified:
        raise SettingError(
            f"{FRACTION} is {text!r}, more than the GPU has: set {UNIFIED}=1 with it, or give 1.0 or less"
        )
    return fraction


def _notes(found: Mapping[str, str], fraction: float, *, preallocate: bool) -> list[str]:
    share = f"{FRACTION} is {fraction:g}" + ("" if found.get(FRACTION) else ", JAX's default")
    way = f"{PREALLOCATE} is {found[PREALLOCATE]!r}" if PREALLOCATE in found else f"{PREALLOCATE} is not set"
    taken = "taken at once" if preallocate else "taken as needed"
    return [f"Settings from JAX's variables: {share}; {way}: memory is {taken}."]
