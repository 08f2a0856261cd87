"""What an event did, in a few words from its record alone: one cell of a list. `event` explains it in full."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from bfcviz.events.schema import Flag, Kind
from bfcviz.units import format_bytes

Fields = Mapping[str, Any]
"""The fields of an event by name, as Python numbers."""


def short_words(event: Fields) -> str:
    """A few words, such as `from bin 5` for an ALLOCATE; sizes and addresses have cells of their own."""
    return _DESCRIBE[Kind(event["kind"])](event)


def used_for(event: Fields) -> int:
    """How many steps the chunk of a FREE was in use."""
    return int(event["seq"] - event["other"]) & 0xFFFFFFFF


def _extend(event: Fields) -> str:
    grew = event["flags"] & Flag.GREW
    return f"region {event['region']} extended" if grew else f"new region {event['region']}"


def _split(event: Fields) -> str:
    if event["flags"] & Flag.PADDING:
        return "padding split off"
    return f"split off, into bin {event['bin']}"


def _allocate(event: Fields) -> str:
    waste = max(event["size"] - event["requested"], 0)
    return f"from bin {event['bin']}" + (f", {format_bytes(waste)} wasted" if waste else "")


def _free(event: Fields) -> str:
    steps = used_for(event)
    text = f"in use for {steps:,} step{'s' * (steps != 1)}"
    return f"{text}, merge deferred" if event["flags"] & Flag.HELD else text


def _merge(event: Fields) -> str:
    return f"merged, now in bin {event['bin']}"


def _release(event: Fields) -> str:
    return f"region {event['region']} released"


def _oom(event: Fields) -> str:
    return f"free {format_bytes(event['address'])}, largest {format_bytes(event['size'])}"


def _mark(event: Fields) -> str:
    return f"value {event['size']:,}" if event["size"] else ""


_DESCRIBE: Final[dict[Kind, Callable[[Fields], str]]] = {
    Kind.EXTEND: _extend,
    Kind.SPLIT: _split,
    Kind.ALLOCATE: _allocate,
    Kind.FREE: _free,
    Kind.MERGE: _merge,
    Kind.RELEASE: _release,
    Kind.OOM: _oom,
    Kind.MARK: _mark,
}
