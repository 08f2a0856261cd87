"""Check the details of an origin that readers use: a file can say anything there."""
# ruff: noqa: TRY004  all damage in a file is one error, a ValueError

from collections.abc import Mapping

_MAX_NUMBER = 1 << 63
_FRACTION = "external_fragmentation"


def check_details(details: Mapping[str, object], pools: int, *, guessed: bool) -> None:
    """Check `facts`, `checks` and `threads`, where they are there.

    Args:
        details: of an origin.
        pools: how many heaps the trace has.
        guessed: whether the trace says that something is missing or was guessed. Otherwise the events tell
            everything, and facts could only contradict them.

    Raises:
        ValueError: one of them is of a wrong type, out of range, or of more heaps than there are.
    """
    for entry in _entries(details, "facts", pools):
        for name, value in entry.items():
            if not _is_fact(name, value):
                raise ValueError(f"has an impossible fact {name[:40]!r}: {str(value)[:40]}")
        if entry and not guessed:
            raise ValueError("states facts beside the events, though the events tell everything")
    for entry in _entries(details, "checks", pools):
        _check_check(entry)
    threads = details.get("threads", {})
    if not isinstance(threads, dict) or not all(isinstance(name, str) for name in threads.values()):
        raise ValueError("has threads that are not a table of names")


def _entries(details: Mapping[str, object], name: str, pools: int) -> list[dict[str, object]]:
    """The list of one object a pool, which need not be there."""
    entries = details.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"has {name} that are not a list of objects")
    if len(entries) > pools:
        raise ValueError(f"has {name} of {len(entries)} heaps, but the trace has {pools}")
    return entries


def _is_fact(name: str, value: object) -> bool:
    if value is None:
        return True
    if name == _FRACTION:
        return type(value) in (int, float) and 0 <= value <= 1  # type: ignore[operator]
    return _is_count(value)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_NUMBER


def _check_check(entry: Mapping[str, object]) -> None:
    if "checked" not in entry:
        return
    if not _is_count(entry["checked"]) or not _is_count(entry.get("differing")):
        raise ValueError("has checks without the numbers of requests that were compared and that differ")
    if not isinstance(entry.get("pool"), str):
        raise ValueError("has checks of a heap without a name")
