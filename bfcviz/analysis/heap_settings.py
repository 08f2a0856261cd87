"""The settings of a heap, by their names in its framework, and whose allocator it is."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bfcviz.events.origin import Origin
from bfcviz.formats import cupy, rmm, tensorflow
from bfcviz.formats.torch import DEFAULTS as TORCH_DEFAULTS
from bfcviz.formats.torch import SMALL, SMALL_SEGMENT, Rules
from bfcviz.frameworks import FRAMEWORKS


class Family(StrEnum):
    """Whose settings a heap has: those of a framework, or our own."""

    TENSORFLOW = "tensorflow"
    JAX = "jax"
    REACTANT = "reactant"
    TORCH = "torch"
    RMM = "rmm"
    CUPY = "cupy"
    VULKAN = "vulkan"
    ONNX = "onnxruntime"
    OWN = "bfcviz"  # our own heap, whatever allocates from it


_BY_FORMAT: Final = {
    "xplane": Family.TENSORFLOW,
    "tensorflow": Family.TENSORFLOW,
    "torch": Family.TORCH,
    "jax": Family.JAX,
    "rmm": Family.RMM,
    "vma": Family.VULKAN,
    "chrome": Family.TORCH,
}
"""The beginning of a trace's format -> whose settings its heaps have."""


@dataclass(frozen=True)
class HeapSettings:
    """The settings of a heap, as far as they are known. None: unknown.

    Attributes:
        family: whose settings they are.
        framework: import name of the framework whose memory it is, "" if unknown.
        allow_growth: the pool grows region by region.
        version: of the framework, as far as it changes the names of settings; "" if unknown.
        garbage_collection: wholly free regions are released before a request fails.
        fragmentation_fraction: share of the limit at which waste is split off; 0: at 128 MiB.
        torch: the rules of PyTorch's allocator; its defaults where the file has no settings.
        host_limit: what limits a heap of TensorFlow in the host's memory; "" for other heaps.
        is_on_host: whether its memory is known to be that of the host, not of a device.
    """

    family: Family
    framework: str = ""
    version: str = ""
    allow_growth: bool | None = None
    garbage_collection: bool | None = None
    fragmentation_fraction: float | None = None
    torch: Rules = TORCH_DEFAULTS
    host_limit: str = ""
    is_on_host: bool = False

    def rounded(self, requested: int) -> int:
        """By the settings of a heap, the bytes that a chunk for this request needs."""
        if self.family is Family.TORCH:
            return self.torch.round_up(requested)
        rules = {Family.CUPY: cupy.round_up, Family.RMM: rmm.round_up}
        return rules.get(self.family, tensorflow.round_up)(max(requested, 1))

    def growth(self, rounded: int, tail: int = 0) -> int:
        """By the settings of a heap, the bytes by which the pool grows for a rounded request, at most.

        `tail`: free bytes at the end of an expandable segment, which grows in place.
        """
        if self.family is not Family.TORCH:
            return rounded
        if not self.torch.expandable:
            return self.torch.segment(rounded)
        granule = SMALL_SEGMENT if rounded <= SMALL else self.torch.large_segment
        return -(-max(0, rounded - tail) // granule) * granule

    @property
    def releases_free_regions(self) -> bool:
        """By the settings of a heap, whether wholly free regions are released before a request fails."""
        return self.family in {Family.TORCH, Family.CUPY} or self.garbage_collection is True


def heap_settings_of(origin: Origin, pool: int) -> HeapSettings:
    """The settings of one heap of a trace."""
    options = origin.pools[pool].options
    name = options.get("allocator_name", origin.pools[pool].name)
    family = _allocator_family(origin, pool)
    framework, version = origin.details.get("framework"), origin.details.get("framework_version")
    host_limit = tensorflow.HOST_LIMITS.get(str(name), "") if family is Family.TENSORFLOW else ""
    return HeapSettings(
        family=family,
        framework=framework if isinstance(framework, str) else "",
        version=version if isinstance(version, str) else "",
        allow_growth=_flag_setting(options.get("allow_growth")),
        garbage_collection=_flag_setting(options.get("garbage_collection")),
        fragmentation_fraction=_number_setting(options.get("fragmentation_fraction")),
        torch=Rules.of(options),
        host_limit=host_limit,
        is_on_host=bool(host_limit) or (family is Family.OWN and _is_of_host(origin.pools[pool].name)),
    )


def _is_of_host(name: str) -> bool:
    """Whether a heap with this name is of a framework whose memory is that of the host."""
    return name in FRAMEWORKS and FRAMEWORKS[name].memory == "host"


def _allocator_family(origin: Origin, pool: int) -> Family:
    """Whose settings a heap has: from how it was recorded, the framework and format of the file, and its name."""
    if origin.details.get("way") == "serve":
        return Family.OWN
    framework = origin.details.get("framework")
    if isinstance(framework, str) and framework in list(Family):
        return Family(framework)
    for start, family in _BY_FORMAT.items():
        if origin.format.startswith(start):
            return family
    if "honour_alignment" in origin.pools[pool].options:  # an option of our own heap
        return Family.OWN
    name = origin.pools[pool].name
    return next((family for family in Family if name.startswith((f"{family} ", f"{family}:"))), Family.OWN)


def _flag_setting(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _number_setting(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None  # type: ignore[return-value]
