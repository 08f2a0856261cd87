"""What an event did, in a few words made of the event alone: one cell of a list. `words` tells it in full."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from bfcviz.events.schema import Flag, Kind
from bfcviz.units import format_bytes

Fields = Mapping[str, Any]
"""An event's fields by name, as Python numbers."""


def short_words(event: Fields) -> str:
    """A few words, such as `into bin 5` for a FREE; sizes and addresses stand in cells of their own."""
    return _TELLERS[Kind(event["kind"])](event)


def used_for(event: Fields) -> int:
    """Steps for which the chunk of a FREE was in use."""
    return int(event["seq"] - event["other"]) & 0xFFFFFFFF


def _extend(event: Fields) -> str:
    grew = event["flags"] & Flag.GREW
    return f"region {event['region']} lengthened" if grew else f"new region {event['region']}"


def _split(event: Fields) -> str:
    if event["flags"] & Flag.PADDING:
        return "cut off padding before it"
    return f"cut off, into bin {event['bin']}"


def _allocate(event: Fields) -> str:
    waste = max(event["size"] - event["requested"], 0)
    return f"from bin {event['bin']}" + (f", {format_bytes(waste)} waste" if waste else "")


def _free(event: Fields) -> str:
    steps = used_for(event)
    told = f"in use for {steps:,} step{'s' * (steps != 1)}"
    return f"{told}, held back" if event["flags"] & Flag.HELD else told


def _merge(event: Fields) -> str:
    return f"absorbed, now in bin {event['bin']}"


def _release(event: Fields) -> str:
    return f"region {event['region']} went back"


def _oom(event: Fields) -> str:
    return f"free {format_bytes(event['address'])}, largest {format_bytes(event['size'])}"


def _mark(event: Fields) -> str:
    return f"value {event['size']:,}" if event["size"] else ""


_TELLERS: Final[dict[Kind, Callable[[Fields], str]]] = {
    Kind.EXTEND: _extend,
    Kind.SPLIT: _split,
    Kind.ALLOCATE: _allocate,
    Kind.FREE: _free,
    Kind.MERGE: _merge,
    Kind.RELEASE: _release,
    Kind.OOM: _oom,
    Kind.MARK: _mark,
}
