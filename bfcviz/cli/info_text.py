"""What `bfcviz info` prints for people: the object of `info`, with units and in words."""

from collections.abc import Mapping
from typing import Any, Final

from bfcviz.events.origin import Origin
from bfcviz.units import format_bytes

_WIDTH: Final = 24
_UNKNOWN: Final = "the source does not say"


def info_lines(origin: Origin, found: Mapping[str, Any]) -> list[str]:
    """The lines: what the file is, then each allocator after the last event."""
    lines = [
        origin.source,
        *_row("format", found["format"]),
        *_row("status", "; ".join([found["status"], *found["reasons"]])),
        *_row("events", f"{found['events']:,}"),
        *(line for check in _checks(origin) for line in _row("checked", _checked(check))),
    ]
    for allocator in found["allocators"]:
        lines += ["", f"{allocator['name']} after the last event", *_allocator(allocator)]
    return lines


def _allocator(known: Mapping[str, Any]) -> list[str]:
    fragmentation = known["external_fragmentation"]
    share = None if fragmentation is None else f"{100 * fragmentation:.1f} %"
    return [
        *_row("limit", _bytes(known["bytes_limit"])),
        *_row("pool", _bytes(known["pool_bytes"]), _count(known["regions"], "region")),
        *_row("in use", _bytes(known["bytes_in_use"]), _count(known["chunks_in_use"], "chunk")),
        *_row("requested of that", _bytes(known["requested_bytes_in_use"])),
        *_row("peak in use", _bytes(known["peak_bytes_in_use"])),
        *_row("free", _bytes(known["free_bytes"]), _count(known["chunks_free"], "chunk")),
        *_row("largest free chunk", _bytes(known["largest_free_chunk"])),
        *_row("external fragmentation", share),
    ]


def _row(name: str, *parts: str | None) -> list[str]:
    """One line; what the source does not say is said once, and only where nothing else stands in the line."""
    said = [part for part in parts if part is not None]
    return [f"  {name:<{_WIDTH}}{' in '.join(said) if said else _UNKNOWN}"]


def _bytes(number: int | None) -> str | None:
    return None if number is None else format_bytes(number)


def _count(number: int | None, what: str) -> str | None:
    return None if number is None else f"{number:,} {what}{'' if number == 1 else 's'}"


def _checks(origin: Origin) -> list[Mapping[str, Any]]:
    """What the importer compared, where it could; see `importers.checks`."""
    checks = origin.details.get("checks")
    found = checks if isinstance(checks, list | tuple) else ()
    return [check for check in found if isinstance(check, Mapping) and check.get("checked")]


def _checked(check: Mapping[str, Any]) -> str:
    return f"{check['checked']:,} recorded events of {check['pool']} rebuilt, {check['differing']:,} differ"
