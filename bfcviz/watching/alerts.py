"""Alerts: a number of a heap goes past a threshold, and somebody is told.

Every event counts: a heap that was past the threshold for one event between two looks is found out, with the step.
But it is looked at as pictures are, some ten times a second, beside the workload and not in it: whoever is called,
and the MARK in the trace, come up to that much later than the step they tell of.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from bfcviz.errors import BfcvizError, LiveError
from bfcviz.model.timelines.timeline import RATIOS
from bfcviz.thresholds import Threshold, Unit

GROWTH: Final = "growth_per_step"
MARKED: Final = "alert: "
"""How the label of an alert's MARK begins."""

MEASURES: Final = {
    "bytes_in_use": "bytes in use",
    "pool_bytes": "the pool",
    "free_bytes": "free bytes, with room to grow",
    "largest_free_chunk": "the largest free chunk, or room to grow",
    "external_fragmentation": "external fragmentation",
    "internal_fragmentation": "internal fragmentation",
    "reserved_not_in_use": "reserved-not-in-use",
    GROWTH: "growth of bytes in use per step",
}
"""What an alert can be about."""


@dataclass(frozen=True)
class Alert(Threshold):
    """A threshold, which a heap's number may go past.

    ::

        Alert("bytes_in_use", above="400MiB")
        Alert("external_fragmentation", above=0.5, call=print)
        Alert("largest_free_chunk", below="10MiB")
        Alert("growth_per_step", above="1MiB")

    It tells of the change: once, and again only after the number was on the good side for about a second, so that
    what goes up and down with each step of a training is told once. A number that begins below, as of an empty heap,
    has to have been on the good side first.

    Attributes:
        measure: one of `MEASURES`. What the limit leaves for new regions counts for `free_bytes`, and for
            `largest_free_chunk` where it is more than that: a heap that can grow is short of neither. Where no
            limit is known free chunks alone count. `growth_per_step` compares bytes in use at each mark with those
            at the mark before it that has the same name but for its numbers, as `step 4` and `step 3` have.
        above: bytes, or text such as `400MiB`; of fragmentation, a share of 0..1.
        below: likewise; one of the two is given.
        call: called with the `Alarm`, in a thread of bfcviz. What it raises is told in the dashboard.

    Raises:
        LiveError: there is no such measure or threshold.
        ValueError: a text that is no size.
    """

    call: Callable[["Alarm"], object] | None = None

    UNITS: ClassVar[Mapping[str, Unit]] = {
        measure: "share" if measure in RATIOS else "bytes" for measure in MEASURES
    }
    REFUSAL: ClassVar[type[BfcvizError]] = LiveError

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.measure == GROWTH and not self.is_upper:
            raise LiveError(f"an alert for {GROWTH} is about growth above a threshold: give above")

    @property
    def words(self) -> str:
        """What it waits for."""
        return f"{MEASURES[self.measure]} {self.bound}"


def check_alerts(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """The alerts as a tuple; raises LiveError where one is none."""
    given = tuple(alerts)
    for each in given:
        if not isinstance(each, Alert):
            raise LiveError(
                f"{each!r} was given as an alert: give bfcviz.Alert('bytes_in_use', above='400MiB')"
            )
    return given


class Alarm(NamedTuple):
    """An alert that went off.

    Attributes:
        alert: which one.
        heap: name of the heap.
        step: the state after so many events is the worst of those since the last look.
        value: of the measure then, in bytes or as a share.
        text: all of it in words.
    """

    alert: Alert
    heap: str
    step: int
    value: float
    text: str

    @property
    def mark(self) -> tuple[str, int]:
        """Label and value of its MARK; a share is told in per cent."""
        value = 100 * self.value if self.alert.measure in RATIOS else self.value
        return MARKED + self.alert.words, round(value)
