"""ScaledRequests: the requests of a larger or smaller batch: some blocks grow in proportion, the others stay.

This is a model: it assumes that every chosen block is proportional to the batch, and that the program makes the same
requests in the same order. Workspaces of convolutions, and kernels chosen by size, do not obey it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import InvalidRequest
from bfcviz.units import format_bytes
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, RequestStream

_STEP_WORDS: Final = ("step", "iteration", "batch", "epoch")
"""Marks with one of these words in their names separate steps; the first words first."""


@dataclass(frozen=True)
class ScaledRequests:
    """A stream, and which of its blocks grow with the batch.

    Attributes:
        stream: the requests as recorded.
        grows: for each request, bool[n]: an allocation of a block that grows.
        assumption: which blocks grow and why, as a sentence.
    """

    stream: RequestStream = field(repr=False)
    grows: NDArray[np.bool_] = field(repr=False)
    assumption: str

    def times(self, numerator: int, denominator: int) -> RequestStream:
        """The requests, with the blocks that grow `numerator / denominator` as large; sizes are rounded up.

        Raises:
            InvalidRequest: a block would have 2^62 bytes or more.
        """
        rows = self.stream.rows.copy()
        sizes = rows["size"][self.grows]
        if int(sizes.max(initial=0)) * numerator >= denominator << 62:
            raise InvalidRequest(
                f"a block of {format_bytes(int(sizes.max()))} times {numerator / denominator:g} exceeds 2^62 bytes"
            )
        whole, part = np.divmod(sizes, denominator)  # so that no product exceeds 63 bits
        rows["size"][self.grows] = whole * numerator - (-part * numerator // denominator)
        return replace(self.stream, rows=rows)

    def peak_growing(self) -> int:
        """The most requested bytes in use of blocks that grow."""
        return int(_only(self.stream, self.grows).live_bytes.max(initial=0))


def scaled_requests(stream: RequestStream, labels: str | Sequence[str] | None = None) -> ScaledRequests:
    """Choose the blocks that grow with the batch.

    Args:
        stream: the requests.
        labels: one or more names, or patterns such as `*/activation*`, of the blocks that grow. None: all but those
            allocated before the first step, and those allocated before the last step and never freed: weights and the
            state of an optimizer. Without marks of steps: all that are freed.

    Raises:
        InvalidRequest: no block has such a label, or none would grow.
    """
    made = stream.rows["kind"] == ALLOCATE
    if labels is not None:
        return _labelled(stream, made, [labels] if isinstance(labels, str) else labels)
    steps = _step_marks(stream)
    never_freed = np.ones(stream.blocks, bool)
    blocks: NDArray[np.int64] = stream.rows["block"]
    freed = blocks[stream.rows["kind"] == FREE]
    never_freed[freed] = False
    stays = never_freed[blocks]
    if len(steps):
        at = np.arange(len(stream))
        grows = made & (at > steps[0]) & ~(stays & (at < steps[-1]))
        name = stream.labels.name(int(stream.rows["label"][steps[0]]))
        why = f"blocks from before the first mark {name!r}, or before the last one and never freed, stay as they are"
    else:
        grows = made & ~stays
        why = "the trace has no marks of steps, so blocks that are never freed stay as they are"
    assumption = (
        f"{why}: {_count(stream, made & ~grows)}; all others, {_count(stream, grows)}, grow in proportion"
    )
    if not grows.any():
        raise InvalidRequest(f"no block grows with the batch: {assumption}; name the labels that do")
    return ScaledRequests(stream, grows, assumption)


def _labelled(stream: RequestStream, made: NDArray[np.bool_], labels: Sequence[str]) -> ScaledRequests:
    numbers = np.unique(stream.rows["label"][made])
    names = {int(number): stream.labels.name(int(number)) for number in numbers}
    for each in labels:
        if not any(_matches(name, each) for name in names.values()):
            raise InvalidRequest(
                f"no allocation has a label {each!r}; give a name, or a pattern such as '*conv*'"
            )
    chosen = [number for number, name in names.items() if any(_matches(name, each) for each in labels)]
    grows = made & np.isin(stream.rows["label"], chosen)
    listed = ", ".join(map(repr, labels))
    assumption = f"blocks with labels {listed}, {_count(stream, grows)}, grow in proportion; all others stay"
    return ScaledRequests(stream, grows, assumption)


def _count(stream: RequestStream, chosen: NDArray[np.bool_]) -> str:
    """How many allocations, and the most of their bytes in use."""
    most = int(_only(stream, chosen).live_bytes.max(initial=0))
    return f"{np.count_nonzero(chosen):,} allocations with at most {format_bytes(most)} in use"


def _only(stream: RequestStream, chosen: NDArray[np.bool_]) -> RequestStream:
    """The stream, with all other allocations empty."""
    rows = stream.rows.copy()
    rows["size"][(rows["kind"] == ALLOCATE) & ~chosen] = 0
    return replace(stream, rows=rows)


def _matches(name: str, wanted: str) -> bool:
    return name == wanted or fnmatchcase(name, wanted)


def _step_marks(stream: RequestStream) -> NDArray[np.intp]:
    """Indices of the marks that separate steps; empty if no marks do."""
    marks = np.flatnonzero(stream.rows["kind"] == MARK)
    labels = stream.rows["label"][marks]
    names = {int(number): stream.labels.name(int(number)).casefold() for number in np.unique(labels)}
    for word in _STEP_WORDS:
        chosen = [number for number, name in names.items() if word in name]
        if chosen:
            return marks[np.isin(labels, chosen)]
    return marks[:0]
