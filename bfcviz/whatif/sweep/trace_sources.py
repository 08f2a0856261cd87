"""`sources_of`: the traces of a sweep, each with a name, and the requests that must be sent to workers."""

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from bfcviz.errors import InvalidRequest
from bfcviz.events.labels import without_surrogates
from bfcviz.events.origin import MAX_POOLS
from bfcviz.events.trace import Trace
from bfcviz.whatif.replay import stream_of
from bfcviz.whatif.requests import RequestStream
from bfcviz.whatif.sweep.point import SentStream, TraceSource
from bfcviz.whatif.sweep.read_requests import is_url

TraceLike = str | os.PathLike[str] | Trace | RequestStream
"""A path or URL, or the trace, or its requests."""


def sources_of(
    traces: TraceLike | Iterable[TraceLike], pool: int | str | None
) -> tuple[str, list[TraceSource], dict[str, SentStream]]:
    """The traces of a sweep.

    Returns:
        The prefix of all keys, which no other sweep has; the sources; and by key what must be sent. A second trace of
        the same name gets a number.

    Raises:
        InvalidRequest: no trace can have such a heap, or a trace that is sent has none.
        BfcvizError: one of `traces` is no trace.
    """
    if isinstance(pool, int) and not 0 <= pool < MAX_POOLS:
        raise InvalidRequest(f"pool={pool}: heaps are numbered from 0 to {MAX_POOLS - 1}")
    given = [traces] if isinstance(traces, str) or not isinstance(traces, Iterable) else list(traces)
    prefix = f"{token_hex(8)}/"
    sources, sent = [], {}
    names: Counter[str] = Counter()
    for number, trace in enumerate(given):
        key = f"{prefix}{number}"
        if isinstance(trace, str | os.PathLike):
            path = os.fspath(trace)
            name = without_surrogates(path)  # as in saved results
            version = "" if is_url(path) else _version_of_file(Path(path))
            if not is_url(path):
                path = os.path.abspath(path)  # noqa: PTH100  workers have other folders; `..` is not resolved
        else:
            stream = trace if isinstance(trace, RequestStream) else stream_of(trace, pool)
            sent[key] = SentStream.of(stream)
            name, path = stream.source or "trace", ""
            version = stream.digest
        names[name] += 1
        shown = name if names[name] == 1 else f"{name} ({names[name]})"
        sources.append(TraceSource(key, shown, path, pool, version))
    return prefix, sources, sent


def _version_of_file(path: Path) -> str:
    """Size and time of the last change of a file, or of the files in a folder; empty if this machine has none."""
    with suppress(OSError):
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        states = [found.stat() for found in files]
        return f"{sum(each.st_size for each in states)} bytes, {max(each.st_mtime_ns for each in states)} ns"
    return ""
