"""Origin: where a trace comes from, how reliable it is, and its heaps."""
# ruff: noqa: TRY004  all damage in a file is one error, a ValueError

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from bfcviz.errors import TraceError
from bfcviz.events.origin_details import check_details, later_reasons
from bfcviz.events.storage.strict_json import loads
from bfcviz.units import parse_bytes

T = TypeVar("T")

VERSION = 1
"""Of the file format; increased when an older bfcviz could misread new files."""

MAX_ORIGIN_BYTES = 1 << 24
MAX_POOLS = 256


class Status(StrEnum):
    """How reliable the events of a trace are."""

    RECORDING = "recording"  # more events may come: `Trace.refresh`
    COMPLETE = "complete"
    TRUNCATED = "truncated"  # the events are right, but the end is missing
    DEGRADED = "degraded"  # events or names are missing or were guessed


@dataclass(frozen=True, init=False)
class Pool:
    """The description of one heap in a trace.

    Args:
        name: of the heap.
        limit: the memory limit, in bytes or as text; None: unknown.
        options: the options of the heap.

    Raises:
        ValueError: a text is not a size.
    """

    name: str
    limit: int | None
    options: Mapping[str, object]

    def __init__(
        self, name: str, limit: int | str | None = None, options: Mapping[str, object] | None = None
    ) -> None:
        given = {"name": name, "limit": None if limit is None else parse_bytes(limit, "limit")}
        vars(self).update(given, options={} if options is None else options)


@dataclass(frozen=True)
class Origin:
    """Where a trace comes from.

    Attributes:
        format: of the file it was read from: `bfcviz`, `xplane`, ...
        source: name of that file, without its folder.
        status: how reliable the events are.
        reasons: why it is not complete, as sentences.
        pools: its heaps; the `pool` of an event is an index of them.
        details: further facts from an importer or recorder, as JSON values; see `origin_details`.
    """

    format: str = "bfcviz"
    source: str = ""
    status: Status = Status.COMPLETE
    reasons: tuple[str, ...] = ()
    pools: tuple[Pool, ...] = (Pool("bfc"),)
    details: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < len(self.pools) <= MAX_POOLS:
            raise TraceError(f"a trace has 1 to {MAX_POOLS} pools; got {len(self.pools)}")

    @property
    def has_ended_whole(self) -> bool:
        """Whether nothing of a recording was lost; its known gaps do not count."""
        ended = self.status in (Status.COMPLETE, Status.DEGRADED)
        return ended and not later_reasons(self.details, self.reasons)

    def to_json(self, **more: object) -> str:
        """The origin as JSON text, with the entries `more` beside it.

        Raises:
            TraceError: options or details hold values that JSON cannot express.
        """
        pools = [{"name": p.name, "bytes_limit": p.limit, "options": dict(p.options)} for p in self.pools]
        origin = {"bfcviz": VERSION, **vars(self), "pools": pools, "details": dict(self.details), **more}
        try:
            text = json.dumps(origin, indent=1, allow_nan=False, default=_plain)
        except (TypeError, ValueError, RecursionError) as error:
            raise TraceError(f"options and details of an origin must be JSON values: {error}") from error
        if len(text) > MAX_ORIGIN_BYTES:
            raise TraceError(f"the origin has {len(text)} bytes; the limit is {MAX_ORIGIN_BYTES}")
        return text


def origin_from_json(text: bytes) -> tuple[Origin, dict[str, object]]:
    """The origin that `to_json` wrote, and the entries beside it.

    Raises:
        ValueError: `text` is not an origin, or of a later version.
    """
    entry = _whole_characters(loads(text))
    if not isinstance(entry, dict) or "bfcviz" not in entry:
        raise ValueError("is not the origin of a bfcviz trace")
    if entry["bfcviz"] != VERSION:
        raise ValueError(f"is of version {str(entry['bfcviz'])[:20]}; this bfcviz reads version {VERSION}")
    entry.pop("bfcviz")
    pools = _get(entry, "pools", list)
    reasons = _get(entry, "reasons", list)
    if not 0 < len(pools) <= MAX_POOLS or not all(isinstance(reason, str) for reason in reasons):
        raise ValueError("has a wrong list of pools or reasons")
    origin = Origin(
        format=_get(entry, "format", str),
        source=_get(entry, "source", str),
        status=Status(_get(entry, "status", str)),
        reasons=tuple(reasons),
        pools=tuple(_pool(pool) for pool in pools),
        details=_get(entry, "details", dict),
    )
    check_details(origin.details, len(pools), guessed=origin.status is not Status.COMPLETE)
    return origin, entry


def _whole_characters(entry: object) -> object:
    """Replace lone surrogates by `?`: JSON and paths can hold them, but web pages and files cannot."""
    plain = json.dumps(entry, ensure_ascii=False)
    return entry if plain.isascii() else loads(plain.encode("utf-8", "replace"))


def _pool(entry: object) -> Pool:
    if not isinstance(entry, dict):
        raise ValueError("has a pool that is not an object")
    limit = entry.get("bytes_limit")
    if limit is not None and (type(limit) is not int or not 0 <= limit < 1 << 63):
        raise ValueError("has a pool whose bytes_limit is not a number of bytes")
    options = _get(entry, "options", dict)
    fraction = options.get("fragmentation_fraction", 0.0)
    if type(fraction) not in (int, float) or not 0 <= fraction <= 1:
        raise ValueError("has a pool whose fragmentation_fraction is not a number from 0 to 1")
    return Pool(_get(entry, "name", str), limit, options)


def _get(entry: dict[str, object], key: str, kind: type[T]) -> T:
    value = entry.pop(key, None)
    if not isinstance(value, kind):
        raise ValueError(f"has no {key}, or one of a wrong type")
    return value


def _plain(value: object) -> object:
    """NumPy scalars as Python numbers; all other objects as text."""
    return value.item() if hasattr(value, "item") else str(value)
