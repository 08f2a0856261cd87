"""Reports of a watched heap: its peak and the labels that held the memory (Report), a failed request (OomReport)."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from bfcviz import notebook
from bfcviz.analysis.diagnosis import Diagnosis, failure_headline
from bfcviz.analysis.event_text import explain_event
from bfcviz.analysis.failures import diagnose
from bfcviz.analysis.short_names import short_name
from bfcviz.events.origin import regions_known
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model import Model
from bfcviz.model.find_steps import peak, previous_step
from bfcviz.model.fragmentation import external, internal, reserved_not_in_use
from bfcviz.model.model import ModelStats
from bfcviz.stack_frames import place_in_code
from bfcviz.terminal import printable
from bfcviz.units import counted, format_bytes

_MAX_HOLDERS: Final = 12  # the report names this many holders and adds up the others


class ReportHolder(NamedTuple):
    """A line of a watch's `Report`: a label that held chunks in use."""

    name: str  # the label, and the place in the code where a stack was recorded: `forward, train.py:41 step`
    chunks: int  # how many chunks it held
    num_bytes: int  # their sizes added up
    share: float  # of all bytes in use, 0..1


@dataclass(frozen=True)
class Report:
    """The report of a watched heap at its peak; a card in a notebook, else text.

    Attributes:
        says: how the framework was watched, as text.
        heap: the name of the heap.
        step: the first step with the most bytes in use.
        stats: the totals at that step.
        holders: the names of labels that held the bytes in use, the largest first.
        model: the heap at that step.
        has_regions: whether the trace has the pool and its free memory; JAX tells only its arrays.
    """

    says: str
    heap: str
    step: int
    stats: ModelStats
    holders: list[ReportHolder]
    model: Model = field(repr=False, compare=False)
    has_regions: bool = True

    def __post_init__(self) -> None:
        if notebook.has_kernel():  # drawn now: a ring drops the events
            _ = self.card

    @cached_property
    def card(self) -> str:
        """The card of the report on a watched heap, as HTML."""
        from bfcviz.exporters.heap_cards import peak_card  # noqa: PLC0415  a training script has no page and draws nothing

        return peak_card(self.model, self.says)

    @property
    def words(self) -> list[str]:
        """How the heap was watched, the peak, and the fragmentation there: one sentence each."""
        stats = self.stats
        if not stats.bytes_in_use:
            return [self.says, f"No allocation on the heap of {self.heap}."]
        used, pool = format_bytes(stats.bytes_in_use), format_bytes(stats.pool_bytes)
        if not self.has_regions:
            return [self.says, f"Peak of {self.heap}: {used} in use at step {self.step:,}."]
        free, largest = format_bytes(stats.free_bytes), format_bytes(stats.largest_free_chunk)
        peak = f"Peak of {self.heap}: {used} in use at step {self.step:,}, of a pool of {pool}."
        count = stats.chunks_free
        chunks = counted(count, "chunk") + (f", the largest {largest}" if count > 1 else "")
        rest = f"Free then: {free} in {chunks}."
        fragmented = (
            f"External fragmentation (1 - largest free chunk / free bytes) {external(stats):.0%}, internal (1 - "
            f"requested / in use) {internal(stats):.1%}, reserved-not-in-use (1 - in use / pool) "
            f"{reserved_not_in_use(stats):.0%}."
        )
        return [self.says, peak, rest, fragmented]

    def __str__(self) -> str:
        lines = []
        for each in self.holders:
            held = f"{format_bytes(each.num_bytes):>12} {each.share:6.1%} {each.chunks:8,}"
            lines.append(f"{held} {'chunk' if each.chunks == 1 else 'chunks':6}  {each.name}")
        return "\n".join(map(printable, [*self.words, *lines]))

    def _repr_html_(self) -> str:
        return self.card


def report(trace: Trace, pool: int = 0, says: str = "") -> Report:
    """The report of one watched heap, over the steps that are still kept."""
    model = Model(trace, pool)
    model.seek(peak(trace, pool))
    name, has_regions = trace.origin.pools[pool].name, regions_known(trace.origin.details, pool)
    return Report(says, name, model.step, model.stats(), _watch_report_holders(model), model, has_regions)


def _watch_report_holders(model: Model) -> list[ReportHolder]:
    """The holders in a watch's report: the largest, and the others together."""
    used = model.in_use()
    labels, at, chunks = np.unique(used["label"], return_inverse=True, return_counts=True)
    held = np.zeros(len(labels), np.uint64)
    np.add.at(held, at, used["size"])
    total = int(held.sum())
    sums: dict[str, tuple[int, int]] = {}  # labels of several stacks or shapes may have one name
    for label, count, size in zip(labels.tolist(), chunks.tolist(), held.tolist(), strict=True):
        name = _watch_report_holder_name(model.trace, label)
        before = sums.get(name, (0, 0))
        sums[name] = before[0] + count, before[1] + size
    rows = sorted(((name, *both) for name, both in sums.items()), key=lambda row: -row[2])
    if len(rows) > _MAX_HOLDERS + 1:
        others = rows[_MAX_HOLDERS:]
        name = f"{len(others)} others"
        rows = [*rows[:_MAX_HOLDERS], (name, sum(row[1] for row in others), sum(row[2] for row in others))]
    return [ReportHolder(name, count, size, size / total) for name, count, size in rows]


def _watch_report_holder_name(trace: Trace, label: int) -> str:
    """In a watch's report: the short name of a label, and its place in the code if that is known and not the name."""
    name, place = short_name(trace, label), place_in_code(trace.labels[label].details.get("stack", ""))
    return name if place in ("", trace.labels.name(label)) else f"{name}, {place}"


@dataclass(frozen=True)
class OomReport:
    """The report of a watch on a failed request and why it failed; a card in a notebook, else text.

    Attributes:
        step: the step just after the request.
        headline: why it failed, in one line.
        words: the same at length.
        advice: what would have helped, as sentences.
        model: the heap just before the request.
        diagnosis: why it failed, as data.
    """

    step: int
    headline: str
    words: str
    advice: list[str]
    model: Model = field(repr=False, compare=False)
    diagnosis: Diagnosis = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if notebook.has_kernel():  # drawn now: a ring drops the events
            _ = self.card

    @cached_property
    def card(self) -> str:
        """The card of the report on a failed request, as HTML."""
        from bfcviz.exporters.heap_cards import failure_card  # noqa: PLC0415  a training script has no page and draws nothing

        return failure_card(self.model, self.diagnosis)

    @property
    def note(self) -> str:
        """One line on the failed request, for the program's traceback."""
        return printable(f"bfcviz: {self.headline} (step {self.step:,})")

    def __str__(self) -> str:
        return "\n".join(
            map(printable, [self.headline, self.words, *(f"  - {text}" for text in self.advice[:1])])
        )

    def _repr_html_(self) -> str:
        return self.card


def last_oom_report(trace: Trace) -> OomReport | None:
    """The report on the last request that failed; None where none failed, or its event is no longer kept."""
    end = len(trace)
    if end == trace.first:
        return None
    is_last = trace.read(end - 1, end)[0]["kind"] == Kind.OOM
    step = end if is_last else previous_step(trace, end, [Kind.OOM], None)
    if step is None:
        return None
    model = Model(trace, int(trace.read(step - 1, step)[0]["pool"]))
    model.seek(step - 1)
    found = diagnose(trace, step - 1, model)
    return OomReport(
        step,
        failure_headline(found),
        explain_event(trace, step - 1, model),
        [each.text for each in found.advice],
        model,
        found,
    )
