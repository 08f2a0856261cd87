"""The first request that two outcomes of one stream place differently.

Addresses of two allocators cannot be compared, nor can offsets: each rounds sizes in its own way. What can be compared
is the order: the block in use that lies next below in the same region. Two outcomes are the same as long as each
request gets the same neighbour below, or is the lowest in a region of the same number in the order of grants.

Offsets can be compared as long as all blocks had the same sizes in both: until then, another offset is a difference,
too, such as the other end of an empty region.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from bfcviz.errors import InvalidRequest
from bfcviz.terminal import printable
from bfcviz.units import format_bytes
from bfcviz.whatif.recorded_outcome import RecordedOutcome
from bfcviz.whatif.requests import ALLOCATE, FREE, RequestStream

_WIDTH: Final = 110  # characters of a line in a notebook
_LONGEST: Final = 72  # characters of a label


@dataclass(frozen=True)
class PlacedRequest:
    """Where one outcome placed a request.

    Attributes:
        region: number of the region in the order of grants, from 0; a segment that grows is one region. -1: the request
            failed.
        offset: in the region, in bytes.
        size: of the block, after rounding.
        below: number of the block in use that lies next below in the same region; -1: none.
        granted: bytes that the driver granted for this request; below 0: it returned more.
    """

    region: int
    offset: int
    size: int
    below: int
    granted: int

    @property
    def order(self) -> tuple[int, int]:
        """What is compared: the neighbour below, or the region."""
        return (0, self.below) if self.below >= 0 else (1, self.region)


@dataclass(frozen=True)
class FirstDifference:
    """The first request that two outcomes place differently.

    Attributes:
        request: its index in the stream.
        event: index of its event in the trace of the stream; -1: it is no event there.
        size: bytes requested.
        label: its name; may be empty.
        names: of the two policies.
        places: where each placed it.
        neighbours: for each, size and name of the block below; empty: none.
    """

    request: int
    event: int
    size: int
    label: str
    names: tuple[str, str]
    places: tuple[PlacedRequest, PlacedRequest]
    neighbours: tuple[str, str]

    def __str__(self) -> str:
        event = f" (event {self.event:,})" if self.event >= 0 else ""
        what = _sized(self.size, self.label)
        head = f"The first request placed differently is request {self.request:,}{event}: {what}."
        parts = (
            f"{name}: {_where(place, below)}."
            for name, place, below in zip(self.names, self.places, self.neighbours, strict=True)
        )
        return "\n".join(
            line for text in (head, *parts) for line in wrap(text, _WIDTH, subsequent_indent="  ")
        )


def first_difference(
    one: RecordedOutcome, other: RecordedOutcome, names: tuple[str, str] | None = None
) -> FirstDifference | None:
    """The first allocation that the outcomes place differently, or that only one of them serves; None: there is none.

    A place is different if another block lies next below it, or if it is in another region. As long as all blocks had
    the same sizes in both outcomes, another offset in the region is different, too; after that, sizes and offsets are
    not compared.

    Args:
        one: an outcome.
        other: an outcome of the same stream.
        names: of the two, for the sentence; None: those of their policies.

    Raises:
        InvalidRequest: they are of different streams.
    """
    stream = one.outcome.stream
    if stream is not other.outcome.stream:
        raise InvalidRequest(
            "the two outcomes are of different streams; serve the same one under both policies"
        )
    orders = (_BlockOrder(one), _BlockOrder(other))
    served = min(one.outcome.served, other.outcome.served)
    rows, same_sizes = stream.rows[:served], True
    for i, (kind, block, size) in enumerate(rows[["kind", "block", "size"]].tolist()):
        if kind == FREE:
            for order in orders:
                order.free(i)
        elif kind == ALLOCATE and size > 0:
            places = (orders[0].place(i, block), orders[1].place(i, block))
            same_sizes = same_sizes and places[0].size == places[1].size
            moved = same_sizes and places[0].offset != places[1].offset
            if moved or places[0].order != places[1].order:
                return FirstDifference(
                    request=i,
                    event=int(rows["event"][i]),
                    size=size,
                    label=stream.labels.name(int(rows["label"][i])),
                    names=names or (one.outcome.policy, other.outcome.policy),
                    places=places,
                    neighbours=(_named(stream, places[0].below), _named(stream, places[1].below)),
                )
    return None


class _BlockOrder:
    """The blocks in use of one outcome, by region and offset."""

    def __init__(self, recorded: RecordedOutcome) -> None:
        outcome = recorded.outcome
        self._regions, self._offsets = recorded.regions.tolist(), recorded.offsets.tolist()
        self._sizes, self._reserved = outcome.size.tolist(), outcome.reserved.tolist()
        self._live: list[tuple[int, int, int]] = []  # region, offset, block

    def place(self, request: int, block: int) -> PlacedRequest:
        """Add the block of a request, and say where it lies."""
        region, offset = self._regions[request], self._offsets[request]
        below = -1
        if region >= 0:
            key = (region, offset, block)
            at = bisect_left(self._live, key)
            if at and self._live[at - 1][0] == region:
                below = self._live[at - 1][2]
            insort(self._live, key)
        before = self._reserved[request - 1] if request else 0
        granted = self._reserved[request] - before
        return PlacedRequest(region, offset, self._sizes[request], below, granted)

    def free(self, request: int) -> None:
        """Remove the block that a request frees."""
        region, offset = self._regions[request], self._offsets[request]
        if region >= 0:
            at = bisect_left(self._live, (region, offset, -1))
            del self._live[at]


def _named(stream: RequestStream, block: int) -> str:
    """Size and name of a block."""
    if block < 0:
        return ""
    rows = stream.rows
    made = rows[(rows["kind"] == ALLOCATE) & (rows["block"] == block)][0]
    return _sized(int(made["size"]), stream.labels.name(int(made["label"])))


def _sized(num_bytes: int, label: str) -> str:
    name = printable(label) or "an allocation without label"
    short = name if len(name) <= _LONGEST else f"...{name[3 - _LONGEST :]}"
    return f"{format_bytes(num_bytes)} for {short}"


def _where(place: PlacedRequest, below: str) -> str:
    if place.region < 0:
        return "it fails"
    new = f", for which the driver grants {format_bytes(place.granted)}" if place.granted > 0 else ""
    size = f"{format_bytes(place.size)} in region {place.region}{new}"
    at = f"at offset {format_bytes(place.offset)}"
    return f"{size}, {at}, next above {below}" if below else f"{size}, {at}, with nothing in use below it"
