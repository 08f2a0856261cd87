"""SweepResults: the results of a sweep as a table, as text, and as a Parquet file to resume from."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bfcviz.errors import FileError, MissingExtra
from bfcviz.events.labels import without_surrogates
from bfcviz.events.storage.files import replacing
from bfcviz.terminal import printable
from bfcviz.units import format_bytes
from bfcviz.whatif.sweep.point import PointKey, PointResult

if TYPE_CHECKING:
    import pandas as pd

_TYPES: Final = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
_SCHEMA: Final = pa.schema(
    [
        (each.name, _TYPES[str(getattr(each.type, "__name__", each.type)).split(" ")[0]])
        for each in fields(PointResult)
    ],
    metadata={"bfcviz.sweep": "1", "bfcviz.version": version("bfcviz")},
)
_MOST_ROWS: Final = 60
"""Lines of the text of results."""


class SweepResults:
    """The results of a sweep; those that are known, if it did not reach its end.

    Attributes:
        points: one each, in the order of traces, then policies, then limits.
        asked: the number of points of the sweep.
        seconds: how long it took.
        resumed: the number of points that an earlier sweep had served.
        reason: why it is not complete; empty otherwise.
        made_by: the version of bfcviz that served the points.
    """

    def __init__(
        self,
        points: Sequence[PointResult],
        asked: int | None = None,
        seconds: float = 0.0,
        resumed: int = 0,
        reason: str = "",
    ) -> None:
        self.points = tuple(points)
        self.asked = len(self.points) if asked is None else asked
        self.seconds = seconds
        self.resumed = resumed
        self.reason = reason
        self.made_by = version("bfcviz")

    @property
    def complete(self) -> bool:
        """Whether every point has a result: numbers, or the reason why it has none."""
        return len(self.points) == self.asked

    @property
    def errors(self) -> dict[PointKey, str]:
        """The messages of points without numbers."""
        return {point.key: point.error for point in self.points if point.error}

    def smallest_limits(self) -> dict[tuple[str, str], int | None]:
        """The smallest of the limits tried that serves a trace under a policy; None: none of them does.

        Returns:
            Bytes, by (trace, policy). Pairs that were served without a limit only, or not at all, are left out.
        """
        found: dict[tuple[str, str], int | None] = {}
        for point in self.points:
            if point.limit_bytes is not None:
                pair = (point.trace, point.policy)
                known = found.setdefault(pair, None)
                if point.fits and (known is None or point.limit_bytes < known):
                    found[pair] = point.limit_bytes
        return found

    def to_arrow(self) -> pa.Table:
        """One row a point; the columns are the fields of `PointResult`."""
        rows = [{name: _saved(value) for name, value in vars(point).items()} for point in self.points]
        return pa.Table.from_pylist(rows, schema=_SCHEMA)

    def to_pandas(self) -> "pd.DataFrame":
        """The same as a DataFrame; numbers that are not known are missing, integers stay integers.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415  an extra
        except ImportError as error:
            raise MissingExtra("to_pandas()", "pandas", "lab") from error
        types = {pa.int64(): pd.Int64Dtype()}
        frame: pd.DataFrame = self.to_arrow().to_pandas(types_mapper=types.get)
        return frame

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table as Parquet; a file at this path is replaced at once, or not at all.

        Raises:
            FileError: the file cannot be written.
        """
        with replacing(Path(path), overwrite=True) as made:
            pq.write_table(self.to_arrow(), made)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SweepResults":
        """The results that `save` wrote.

        Raises:
            FileError: the file cannot be read, or holds no results of a sweep.
        """
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise FileError(path, "", f"cannot be read as results of a sweep: {error}") from error
        if b"bfcviz.sweep" not in (table.schema.metadata or {}) or table.schema.names != _SCHEMA.names:
            raise FileError(path, "", "holds no results of a sweep by this version; choose another name")
        try:
            points = [PointResult(**row) for row in table.cast(_SCHEMA).to_pylist()]
        except (pa.ArrowException, TypeError) as error:
            raise FileError(path, "", f"cannot be read as results of a sweep: {error}") from error
        found = cls(points)
        found.made_by = table.schema.metadata.get(b"bfcviz.version", b"").decode(errors="replace")
        return found

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"<SweepResults: {self._summary()}>"

    def __str__(self) -> str:
        """One line for each trace and policy: the smallest limit that fits, or what it needs without a limit."""
        titles = ("trace", "policy", "fits", "smallest limit that fits", "most reserved", "unused", "message")
        pairs: dict[tuple[str, str], list[PointResult]] = {}
        for point in self.points:
            pairs.setdefault((point.trace, point.policy), []).append(point)
        smallest = self.smallest_limits()
        names = _short_names(trace for trace, _ in pairs)
        lines: list[tuple[str, ...]] = [titles]
        for (trace, policy), points in list(pairs.items())[:_MOST_ROWS]:
            cells = (names[trace], policy, *_row(points, smallest))
            lines.append(tuple(printable(cell) for cell in cells))
        left_out = len(pairs) - _MOST_ROWS
        end = [f"... and {left_out:,} more: see to_pandas()"] if left_out > 0 else []
        return "\n".join([self._summary(), "", *_aligned(lines), *end])

    def _summary(self) -> str:
        outcomes = [point.outcome for point in self.points]
        parts = [
            f"{len(self.points):,} of {self.asked:,} points",
            f"{outcomes.count('fits'):,} fit",
            f"{outcomes.count('fails'):,} fail",
            f"{outcomes.count('error'):,} with an error",
        ]
        if self.resumed:
            parts.append(f"{self.resumed:,} from earlier results")
        if self.seconds:
            parts.append(f"{self.seconds:.1f} s")
        return ", ".join(parts) + (f"; not complete: {printable(self.reason)}" if not self.complete else "")


def _saved(value: Any) -> Any:
    """A value as files accept it: parts of a path may not be Unicode."""
    return without_surrogates(value) if isinstance(value, str) else value


def _row(points: Sequence[PointResult], smallest: Mapping[tuple[str, str], int | None]) -> tuple[str, ...]:
    served = [point for point in points if not point.error]
    fitting = [point for point in served if point.fits]
    pair = (points[0].trace, points[0].policy)
    least = smallest.get(pair)
    if least is not None:
        limit = format_bytes(least)
    elif pair not in smallest:
        limit = "no limit given"
    else:
        limit = "fits only without a limit" if fitting else "none of them"
    most = max((point.peak_reserved or 0 for point in fitting), default=None)
    unused = max((point.reserved_not_in_use or 0.0 for point in fitting), default=None)
    errors = list(dict.fromkeys(point.error for point in points if point.error))
    message = errors[0] if errors else next((point.notes for point in points if point.notes), "")
    more = f" (and {len(errors) - 1} other messages)" if len(errors) > 1 else ""
    return (
        f"{len(fitting)} of {len(points)}",
        limit if served else "",
        "" if most is None else format_bytes(most),
        "" if unused is None else f"{unused:.1%}",
        message.partition("\n")[0] + more,
    )


def _short_names(paths: Iterable[str]) -> dict[str, str]:
    """The last part of each path, where no other path ends with it."""
    ends = {path: path.rstrip("/").rpartition("/")[2] for path in paths}
    count = Counter(ends.values())
    return {path: end if end and count[end] == 1 else path for path, end in ends.items()}


def _aligned(lines: Iterable[tuple[str, ...]]) -> list[str]:
    lines = list(lines)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    return [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]
        ).rstrip()
        for line in lines
    ]
