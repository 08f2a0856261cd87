"""What grew between two steps of a heap: what is new, what is gone, and what of the new was never freed; by holder.

::

    step      first                 last                       end of the trace
    kept      ======================================...        in use at both
    gone      ==========)                                      in use at the first step only
    new               (==============================)         in use at the last step only
    never freed            (========================...        new, and in use at the end
    neither               (====)                               comes and goes between: it does not count
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.short_names import path_end, shortened_name
from bfcviz.answers import AnswerTable, TableAnswer
from bfcviz.errors import TraceError
from bfcviz.events.marks import ALERT, numbered_mark_names, phase_ends
from bfcviz.events.origin import HISTORY_BEGINS
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace, check_history
from bfcviz.extras import arrow
from bfcviz.model.equal_steps import plain_step_name
from bfcviz.model.find_steps import events_of, phases
from bfcviz.model.grouping import Grouping, Path
from bfcviz.model.model import Model
from bfcviz.units import format_bytes, signed_bytes

if TYPE_CHECKING:
    from pyarrow import Table

# ------------------------------------------------------------------------------
# The chunks in use at the steps that are compared.


def births_never_freed(model: Model) -> NDArray[np.uint64] | None:
    """For what grew, the `born` of the chunks in use at the last step of the trace; None: more may come."""
    if model.trace.following:
        return None
    found: NDArray[np.uint64] = growth_chunks_at(model, len(model.trace))["born"]
    return found


_KEPT: Final = 4
"""Steps of a heap whose chunks are kept: those that a view compares, and the last one."""

_known: Final[WeakKeyDictionary[Trace, dict[tuple[int, int], NDArray[np.void]]]] = WeakKeyDictionary()
"""Trace -> heap and step -> the chunks in use, of CHUNK_ROW; the newest is the last one."""


def growth_chunks_at(model: Model, step: int) -> NDArray[np.void]:
    """The chunks in use at one of the steps between which growth is counted, of CHUNK_ROW; found once.

    Raises:
        TraceError: the trace has no such step.
    """
    known = _known.setdefault(model.trace, {})
    key = model.pool, step
    found = known.pop(key, None)
    if found is None:
        with model.visiting(step) as there:
            found = there.in_use()
    known[key] = found
    if len(known) > _KEPT:
        del known[next(iter(known))]
    return found


# ------------------------------------------------------------------------------
# What grew, by holder.

HOLDER_CHANGE: Final = np.dtype(
    [
        ("grew", "<i8"),  # new - gone
        ("new", "<u8"),  # bytes
        ("gone", "<u8"),
        ("never_freed", "<u8"),  # of the new bytes
        ("new_chunks", "<u8"),
        ("gone_chunks", "<u8"),
    ]
)
"""What changed of one holder."""


@dataclass(frozen=True, eq=False, repr=False)
class WhatGrew(TableAnswer):
    """What grew between two steps of a heap.

    Attributes:
        trace: the trace.
        pool: index of the heap.
        first, last: the steps.
        how: what the holders are found by.
        rows: one a holder that changed, of HOLDER_CHANGE; the most grown first.
        paths: the path of each holder.
        end_known: whether the trace has ended, so that `never_freed` means something.
    """

    trace: Trace
    pool: int
    first: int
    last: int
    how: Grouping
    rows: NDArray[np.void]
    paths: Sequence[Path]
    end_known: bool

    @property
    def names(self) -> list[str]:
        """The path of each holder that grew, in one line."""
        return [self.how.text(path) for path in self.paths]

    def total(self, column: str) -> int:
        """What grew in total: the sum of a column of HOLDER_CHANGE."""
        return int(self.rows[column].sum())

    @property
    def sentence(self) -> str:
        """What grew, in one sentence."""
        grew, new, gone = (self.total(name) for name in ("grew", "new", "gone"))
        found = (
            f"{signed_bytes(grew)} from step {self.first:,} to {self.last:,}: {format_bytes(new)} new, "
            f"{format_bytes(gone)} gone"
        )
        if not self.end_known or not new:
            return f"{found}."
        never = self.total("never_freed")
        return f"{found}; {'nothing new' if never == new else f'all new but {format_bytes(never)}'} is freed later."

    @property
    def headline(self) -> str:
        """What grew most, in one short line."""
        between = f"step {self.first:,} to {self.last:,}"
        if not len(self.rows):
            return f"Nothing changed from {between}"
        found = f"{signed_bytes(self.total('grew'))} from {between}"
        most = int(self.rows["grew"][0])
        if most <= 0:
            return f"{found}: no holder grew"
        return f"{found}; most: {path_end(self.names[0], _LONGEST_NAME)}, {signed_bytes(most)}"

    def __str__(self) -> str:
        return "\n".join([self.sentence, *_what_grew_lines(self)])

    @property
    def tables(self) -> Sequence[AnswerTable]:
        """What grew as a table: the holders that grew or shrank most."""
        if not len(self.rows):
            return []
        heads = (self.how.by.replace("_", " "), "grew", "new", "gone", "never freed")
        return [AnswerTable(heads, [(name, *sizes) for name, sizes in _what_grew_rows(self)])]

    def to_arrow(self) -> "Table":
        """What grew, one row a holder; sizes in bytes. `never_freed` is null where more events may come."""
        pa = arrow("to_arrow()")
        columns = {name: self.rows[name] for name in HOLDER_CHANGE.names or ()}
        unknown = np.full(len(self.rows), not self.end_known)
        columns["never_freed"] = pa.array(columns["never_freed"], mask=unknown)
        return pa.table({"holder": pa.array(self.names, pa.string()), **columns})


def what_grew(model: Model, first: int, how: Grouping) -> WhatGrew:
    """What grew from the step `first` to the model's step, by holder; the model visits other steps and returns.

    Raises:
        TraceError: the trace has no history, no step `first`, or the model's step is before it.
    """
    trace = model.trace
    check_history(trace, "changes between two steps")
    if not trace.first <= first <= model.step:
        raise TraceError(
            f"what grew from step {first:,} to {model.step:,} was asked for: give two steps in order, of "
            f"{trace.first:,} to {len(trace):,}"
        )
    now, before = model.in_use(), growth_chunks_at(model, first)
    new = now[now["born"] >= first]
    gone = before[np.isin(before["born"], now["born"], invert=True)]
    numbers, paths = how.grouped(np.concatenate([new, gone]))
    rows = np.zeros(len(paths), HOLDER_CHANGE)
    of_new, of_gone = numbers[: len(new)], numbers[len(new) :]
    np.add.at(rows["new"], of_new, new["size"])
    np.add.at(rows["gone"], of_gone, gone["size"])
    rows["grew"] = rows["new"].astype(np.int64) - rows["gone"].astype(np.int64)
    rows["new_chunks"] = np.bincount(of_new, minlength=len(rows))
    rows["gone_chunks"] = np.bincount(of_gone, minlength=len(rows))
    at_end = births_never_freed(model)
    if at_end is not None:
        never_freed = np.isin(new["born"], at_end)
        np.add.at(rows["never_freed"], of_new[never_freed], new["size"][never_freed])
    order = np.lexsort([~rows["new"], -rows["grew"]])
    return WhatGrew(
        trace=trace,
        pool=model.pool,
        first=first,
        last=model.step,
        how=how,
        rows=rows[order],
        paths=[paths[row] for row in order.tolist()],
        end_known=at_end is not None,
    )


_LONGEST_NAME: Final = 48  # characters, in the headline
_MOST_LINES: Final = 30
_WIDTH: Final = 34  # characters of a name: a line has 80


def _what_grew_lines(found: WhatGrew) -> Iterator[str]:
    """The holders that grew or shrank most as a table."""
    if not len(found.rows):
        return
    yield f"{'grew':>11}{'new':>10}{'gone':>10}{'never freed':>13}  {found.how.by.replace('_', ' ')}"
    for name, (grew, new, gone, never) in _what_grew_rows(found):
        yield f"{grew:>11}{new:>10}{gone:>10}{never:>13}  {shortened_name(name, _WIDTH)}"


def _what_grew_rows(found: WhatGrew) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    """Name and sizes of the holders that grew or shrank most, and of the others together."""
    largest = np.argsort(-np.abs(found.rows["grew"]), kind="stable")
    names = found.names
    for row in np.sort(largest[:_MOST_LINES]).tolist():
        yield names[row], _size_texts(found, np.array([row]))
    if len(rest := largest[_MOST_LINES:]):
        yield f"{len(rest):,} more", _size_texts(found, rest)


def _size_texts(found: WhatGrew, rows: NDArray[np.intp]) -> tuple[str, str, str, str]:
    """What grew as texts: the sums of these rows."""
    grew, new, gone, never = (
        int(found.rows[name][rows].sum()) for name in ("grew", "new", "gone", "never_freed")
    )
    known = format_bytes(never) if found.end_known else "unknown"
    return signed_bytes(grew), format_bytes(new), format_bytes(gone), known


# ------------------------------------------------------------------------------
# The moments to compare: of marks and phases, by name.


class Moments(NamedTuple):
    """Two steps to compare for what grew, and what they are called."""

    name: str
    first: int
    last: int
    numbered: str = ""  # the name, of marks that count steps with their numbers

    @property
    def text(self) -> str:
        """What to call the moments in a list, where many have the same name."""
        return self.numbered or self.name


def moments_of(trace: Trace, pool: int = 0) -> list[Moments]:
    """Moments to compare for what grew: each phase, and from each mark to the next of its name, in order."""
    found = _phase_moments(trace, pool)
    before: dict[str, Moments] = {}
    for mark in _mark_moments(trace, pool):
        plain = plain_step_name(mark.name)
        if plain in before:
            earlier = before[plain]
            name, numbered = f"{earlier.name} → {mark.name}", f"{earlier.text} → {mark.text}"
            found.append(Moments(name, earlier.first, mark.last, numbered))
        before[plain] = mark
    return sorted(found, key=lambda each: each.first)


def _mark_moments(trace: Trace, pool: int) -> list[Moments]:
    """For what grew, each mark that neither begins nor ends a phase; both steps are the one just after it."""
    marks = events_of(trace, [Kind.MARK], pool)
    ends = phase_ends(marks, trace.labels)
    found = []
    texts = numbered_mark_names(trace.labels, marks)
    for seq, label, end, text in zip(
        marks["seq"].tolist(), marks["label"].tolist(), ends, texts, strict=True
    ):
        name = trace.labels.name(label)
        if end is None and not name.startswith(ALERT):
            found.append(Moments(name, seq + 1, seq + 1, text))
    return found


def first_moment(trace: Trace, pool: int = 0) -> int:
    """The step that growth counts from where none is chosen: the one at which the recorded history begins."""
    begins = (mark.first for mark in _mark_moments(trace, pool) if mark.name == HISTORY_BEGINS)
    return next(begins, trace.first)


def moments_between(
    trace: Trace, pool: int, first: int | str | None, last: int | str | None = None
) -> tuple[int, int]:
    """The steps of two moments between which something grew.

    Args:
        trace: the events.
        pool: index of the heap.
        first: a step, or the name of a mark or phase: its first occurrence. None: see `first_moment`.
        last: the same; of a name the last occurrence, the end of a phase. None: the last step; where `first` is a
            phase, its end.

    Raises:
        TraceError: there is no such mark or phase; lists those that exist.
    """
    if first is None:
        first = first_moment(trace, pool)
    if isinstance(first, str):
        begin = _moments_of_name(trace, pool, first)[0]
        if last is None and begin.first != begin.last:
            last = begin.last
        first = begin.first
    if isinstance(last, str):
        last = _moments_of_name(trace, pool, last)[-1].last
    return first, len(trace) if last is None else last


def _moments_of_name(trace: Trace, pool: int, name: str) -> list[Moments]:
    """The phases and marks of this name, to find what grew; of a mark both steps are the same."""
    all_phases = _phase_moments(trace, pool)
    marks = _mark_moments(trace, pool)
    found = sorted((each for each in [*all_phases, *marks] if each.name == name), key=lambda each: each.first)
    if not found:
        known = list(dict.fromkeys(each.name for each in [*all_phases, *marks]))
        shown = ", ".join(repr(each) for each in known[:_MOST_NAMED])
        raise TraceError(
            f"the trace has no mark or phase {name!r}: it has {shown or 'none'}"
            + (f" and {len(known) - _MOST_NAMED:,} more" if len(known) > _MOST_NAMED else "")
        )
    return found


_MOST_NAMED: Final = 12


def _phase_moments(trace: Trace, pool: int) -> list[Moments]:
    """The moments of the phases of which both ends are in the trace, to find what grew between them."""
    return [
        Moments(each.name, each.begins + 1, each.ends + 1)
        for each in phases(trace, pool)
        if each.begins is not None and each.ends is not None
    ]
