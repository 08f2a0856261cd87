"""Rules: how PyTorch's caching allocator rounds and splits blocks; its history omits this.

Source: c10/cuda/CUDACachingAllocator.cpp.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

UNIT: Final = 512
SMALL: Final = 1 << 20
"""Requests up to this, rounded, come from segments for small ones."""


@dataclass(frozen=True)
class Rules:
    """The settings that block sizes depend on.

    Attributes:
        expandable: segments grow in place; then every block is split that leaves at least `UNIT` bytes.
        max_split: blocks of at least so many bytes are never split; None: no such limit.
        divisions: steps between powers of two, from 1 MiB to 32 GiB; empty: sizes are multiples of `UNIT`.
    """

    expandable: bool = False
    max_split: int | None = None
    divisions: tuple[int, ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The rules in a snapshot's `allocator_settings`; PyTorch's defaults if it has none."""
        steps = settings.get("roundup_power2_divisions") or {}
        divisions = (
            tuple(int(steps[key]) for key in sorted(steps, key=int)) if isinstance(steps, Mapping) else ()
        )
        split = int(settings.get("max_split_size", -1))
        return cls(
            bool(settings.get("expandable_segments")),
            split if split > 0 else None,
            divisions if any(divisions) else (),
        )

    def round_up(self, requested: int) -> int:
        """Bytes a request is rounded up to."""
        if requested < UNIT:
            return UNIT
        steps = self._steps(requested)
        if steps <= 1 or requested <= UNIT * steps:
            return -(-requested // UNIT) * UNIT
        power = 1 << (requested.bit_length() - 1)
        step = power // steps
        return -(-requested // step) * step if step else power << 1

    def block(self, requested: int, free: int) -> int:
        """Bytes of the block that serves a request, cut from a free one of `free` bytes; 0: unknown."""
        rounded = self.round_up(requested)
        rest = free - rounded
        if rest <= 0:
            return rounded
        if rounded <= SMALL or self.expandable:
            splits = rest >= UNIT
        else:
            splits = rest > SMALL and (self.max_split is None or rounded < self.max_split)
        return rounded if splits else free

    def _steps(self, size: int) -> int:
        if not self.divisions:
            return 0
        place = size.bit_length() - 1 - 20
        return self.divisions[min(max(place, 0), len(self.divisions) - 1)]
