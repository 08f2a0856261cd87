"""Odd traces: every figure must draw them, and none of their texts may change the page."""

import math
from functools import lru_cache
from html.parser import HTMLParser

import numpy as np
from unit.figures.synthetic import KiB, MiB, PlainHeap, busy_trace, trace_of

from bfcviz.events.label_table import Labels
from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.trace import Origin, Pool, Status, Trace

LABELS = (
    "<b>bold</b><script>alert(1)</script><img src=x onerror=alert(1)>",
    '"quo\'ted" &amp; %{x} %{meta[0]}',
    "line\nbreak\ttab\r\x00\x07\x1b[31m\x7f\x85\u2028\u2029",
    "\ud800 half \udfff",
    "\u202eright\u2066 \u05d0\u05d1\u05d2 \u0645\u0631\u062d\u0628\u0627",
    "a/" * 300 + "MatMul",
    "$\\href{javascript:alert(1)}{x}$",
    "</textarea></div>'\"><svg onload=alert(1)>",
    " ",
    "%{x",
)


def empty():
    return trace_of(np.zeros(0, EVENT))


def one_event():
    heap = PlainHeap(MiB)
    heap.extend(256)
    return heap.trace()


def no_addresses():
    """Marks and failed requests, and no region."""
    labels = Labels()
    events = _events(4, kind=[Kind.MARK, Kind.OOM, Kind.MARK, Kind.OOM], requested=[0, 1000, 0, 1 << 40])
    events["label"] = labels.intern(LABELS[0])
    return trace_of(events, labels)


def many_regions(count=4096):
    """Each with one chunk, every other one free again; a gap after each."""
    heap = PlainHeap(MiB)
    heap.allocate(MiB, "first")
    regions = np.arange(count)
    grants, taken = (np.repeat(np.array([event]), count) for event in heap.events)
    back = taken[::2].copy()
    for number, events in enumerate((grants, taken, back)):
        mine = regions[:: 2 if number == 2 else 1]
        events["seq"] = np.arange(len(events)) + number * count
        events["address"] += (2 * MiB * mine).astype(np.uint64)
        events["chunk"], events["region"] = mine + 1, mine
    back["kind"] = Kind.FREE
    taken["other"] = taken["seq"]
    back["other"] = taken["seq"][::2]
    return trace_of(np.concatenate([grants, taken, back]), heap.labels)


def one_chunk_in_a_tebibyte():
    heap = PlainHeap(1 << 40)
    heap.allocate(256, "tiny")
    return heap.trace()


def odd_labels():
    """Hostile texts in every place that holds text; the trace is degraded."""
    heap = PlainHeap(64 * MiB, 2)
    held = [
        heap.allocate(8 * MiB if number % 2 else KiB, name, **{f"{name[:40]}": name})
        for number, name in enumerate(LABELS)
    ]
    for address in held[::3]:
        heap.free(address)
    heap.allocate(1 << 40, LABELS[0])
    marks = _events(len(LABELS), kind=Kind.MARK)
    marks["label"] = [heap.labels.intern(name) for name in LABELS]
    events = np.concatenate([np.array(heap.events, EVENT), marks])
    events["seq"] = range(len(events))
    origin = Origin(
        source=LABELS[0],
        status=Status.DEGRADED,
        reasons=LABELS,
        pools=tuple(Pool(name.encode("utf-8", "replace").decode(), 512 * MiB) for name in LABELS[:4]),
        details={"threads": {"0": LABELS[0]}},
    )
    return Trace.from_events(events, heap.labels, origin)


def times_that_go_back():
    return _with_times(lambda times: times[::-1])


def no_time_at_all():
    return _with_times(np.zeros_like)


def all_time_there_is():
    return _with_times(lambda times: np.linspace(-(1 << 62), 1 << 62, len(times)).astype(np.int64))


def pools_without_events():
    heap = PlainHeap(MiB)
    heap.allocate(KiB)
    events = np.array(heap.events, EVENT)
    events["pool"] = 1
    return trace_of(events, heap.labels, pools=3)


ODD = {
    make.__name__: make
    for make in (
        empty,
        one_event,
        no_addresses,
        one_chunk_in_a_tebibyte,
        odd_labels,
        times_that_go_back,
        no_time_at_all,
        all_time_there_is,
        pools_without_events,
    )
}
"""Name -> function that makes the trace; without `many_regions`, which is slow."""


def _events(count, **fields):
    events = np.zeros(count, EVENT)
    events["seq"], events["time"], events["bin"] = range(count), np.arange(count) * 1000, -1
    for name, value in fields.items():
        events[name] = value
    return events


def _with_times(change):
    trace = busy_trace(100)
    events = np.array(trace.read(0, len(trace)))
    events["time"] = change(events["time"])
    return trace_of(events, trace.labels)


# -- checks of what reaches a page -----------------------------------------------------------------------------


class _Tags(HTMLParser):
    """Fails on markup other than the allowed tags."""

    def __init__(self, text, allowed):
        super().__init__()
        self.allowed, self.open = allowed, []
        self.feed(text)
        self.close()
        assert self.open == [], text

    def handle_starttag(self, tag, attributes):
        assert tag in self.allowed, self.rawdata
        if tag not in ("br", "col"):
            self.open.append(tag)
        assert not [name for name, _ in attributes if name.startswith("on") and name != "onfocus"], (
            self.rawdata
        )

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, self.rawdata


def assert_harmless(text, allowed):
    """`text`, as HTML, has only allowed tags, all of them closed, and can be encoded."""
    _assert_harmless(text, frozenset(allowed))


@lru_cache(maxsize=1 << 16)  # most texts of a page stay from step to step
def _assert_harmless(text, allowed):
    text.encode()
    assert text.translate(ALLOWED_UNPRINTABLE).isprintable(), text
    _Tags(text, allowed)


ALLOWED_UNPRINTABLE = dict.fromkeys(map(ord, "\n\u2068\u2069\u200b\ufeff"))

PLOTLY = frozenset(("b", "br", "span", "extra"))


def assert_drawable(figure):
    """Every text of a figure is harmless, and every number is one that JSON can hold."""
    texts, left = set(), [figure]
    while left:
        part = left.pop()
        if isinstance(part, str):
            texts.add(part)
        elif isinstance(part, dict):
            left += part.values()
        elif isinstance(part, list | tuple):
            left += part
        elif isinstance(part, float):
            assert math.isfinite(part)
        elif isinstance(part, np.ndarray) and part.dtype.kind == "f":
            assert np.isfinite(part[~np.isnan(part)]).all()
        elif isinstance(part, np.ndarray) and part.dtype.kind in "OU":
            left += part.tolist()
    for text in texts:
        if not text.startswith("data:image/png;base64,"):
            assert "&quot;" not in text  # plotly shows it as it stands
            assert_harmless(text, PLOTLY)
