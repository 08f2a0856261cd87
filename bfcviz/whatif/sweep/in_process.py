"""`in_process`: serve the points of a sweep one after the other, in this thread."""

from collections.abc import Iterator, Mapping, Sequence
from threading import Event

from bfcviz.whatif.sweep.point import PointResult, SentStream, SweepPoint
from bfcviz.whatif.sweep.serve_point import serve_point


def in_process(
    points: Sequence[SweepPoint], streams: Mapping[str, SentStream], stop: Event
) -> Iterator[tuple[int, PointResult]]:
    """Index and result of each point.

    Args:
        points: what to serve.
        streams: the requests of sources without a path, by the key of the source.
        stop: set to end before the next point.
    """
    for point in points:
        if stop.is_set():
            return
        yield point.index, serve_point(point, streams.get(point.source.key))
