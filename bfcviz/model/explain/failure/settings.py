"""HeapSettings: what is known of the settings of a heap, and whose settings they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from bfcviz.events.origin import Origin
from bfcviz.events.schema import MIN_CHUNK
from bfcviz.formats.torch import DEFAULTS as TORCH_DEFAULTS
from bfcviz.formats.torch import Rules


class Family(StrEnum):
    """Whose settings an advice names."""

    TENSORFLOW = "tensorflow"
    JAX = "jax"
    TORCH = "torch"
    RMM = "rmm"
    CUPY = "cupy"
    VULKAN = "vulkan"
    OWN = "bfcviz"  # our own heap, whatever allocates from it


_CUPY_UNIT: Final = 512
_BY_FORMAT: Final = {"xplane": Family.TENSORFLOW, "tensorflow": Family.TENSORFLOW, "torch": Family.TORCH}
_BY_FORMAT_MORE: Final = {"jax": Family.JAX, "rmm": Family.RMM, "vma": Family.VULKAN, "chrome": Family.TORCH}


@dataclass(frozen=True)
class HeapSettings:
    """The settings that decide which advice fits. None: unknown.

    Attributes:
        family: whose settings they are.
        framework: import name of the framework whose memory it is, "" if unknown.
        allow_growth: the pool grows region by region.
        garbage_collection: wholly free regions are released before a request fails.
        fragmentation_fraction: share of the limit at which waste is split off; 0: at 128 MiB.
        torch: the rules of PyTorch's allocator; its defaults where the file has no settings.
    """

    family: Family
    framework: str = ""
    allow_growth: bool | None = None
    garbage_collection: bool | None = None
    fragmentation_fraction: float | None = None
    torch: Rules = TORCH_DEFAULTS

    def rounded(self, requested: int) -> int:
        """The bytes that a chunk for this request needs."""
        if self.family is Family.TORCH:
            return self.torch.round_up(requested)
        unit = _CUPY_UNIT if self.family is Family.CUPY else MIN_CHUNK
        return max(unit, -(-requested // unit) * unit)


def settings_of(origin: Origin, pool: int) -> HeapSettings:
    """The settings of one heap of a trace."""
    options = origin.pools[pool].options
    framework = origin.details.get("framework")
    return HeapSettings(
        family=_family(origin, pool),
        framework=framework if isinstance(framework, str) else "",
        allow_growth=_truth(options.get("allow_growth")),
        garbage_collection=_truth(options.get("garbage_collection")),
        fragmentation_fraction=_number(options.get("fragmentation_fraction")),
        torch=Rules.of(options),
    )


def _family(origin: Origin, pool: int) -> Family:
    """From the way it was recorded, the framework that the file names, its format, and the heap's name."""
    if origin.details.get("way") == "serve":
        return Family.OWN
    framework = origin.details.get("framework")
    if isinstance(framework, str) and framework in list(Family):
        return Family(framework)
    for start, family in (_BY_FORMAT | _BY_FORMAT_MORE).items():
        if origin.format.startswith(start):
            return family
    if _is_ours(origin.pools[pool].options):
        return Family.OWN
    name = origin.pools[pool].name
    return next((family for family in Family if name.startswith((f"{family} ", f"{family}:"))), Family.OWN)


def _is_ours(options: Mapping[str, Any]) -> bool:
    """Whether these are the options of our heap."""
    return "honour_alignment" in options


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None  # type: ignore[return-value]
