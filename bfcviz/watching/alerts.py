"""Alerts: thresholds for the numbers of a heap.

Every event counts: an alert also goes off when the heap was past the threshold for a single event between two checks,
and it names the step. The checks run about ten times a second in a thread of bfcviz, not in the workload. So the call,
and the MARK in the trace, come up to 0.1 s after the step that they name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from bfcviz.errors import BfcvizError, LiveError
from bfcviz.model.timelines.timeline import RATIOS
from bfcviz.thresholds import Threshold, Unit

GROWTH: Final = "growth_per_step"
MARKED: Final = "alert: "
"""The label of an alert's MARK starts with this."""

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
"""The measures of alerts -> their names in text."""


@dataclass(frozen=True)
class Alert(Threshold):
    """A threshold for a number of a heap.

    ::

        Alert("bytes_in_use", above="400MiB")
        Alert("external_fragmentation", above=0.5, call=print)
        Alert("largest_free_chunk", below="10MiB")
        Alert("growth_per_step", above="1MiB")

    An alert goes off once. It goes off again only after the number stayed on the good side for about a second, so a
    number that rises and falls with each training step sets it off once. A number that starts past the threshold, as
    in an empty heap, must reach the good side first.

    Attributes:
        measure: one of `MEASURES`. `free_bytes` includes the bytes that the limit leaves for new regions;
            `largest_free_chunk` is that room where it is larger: a heap that can grow is short of neither. Where no
            limit is known, only free chunks count. `growth_per_step` compares the bytes in use at each mark with
            those at the previous mark whose name differs in its numbers only, such as `step 4` and `step 3`.
        above: bytes, or text such as `400MiB`; for fragmentation a share, 0..1.
        below: the same units; give either above or below.
        call: called with the `Alarm`, in a thread of bfcviz. The dashboard shows what it raises.

    Raises:
        LiveError: the measure or the threshold is not valid.
        ValueError: the text is not a size.
    """

    call: Callable[["Alarm"], object] | None = None

    UNITS: ClassVar[Mapping[str, Unit]] = {
        measure: "share" if measure in RATIOS else "bytes" for measure in MEASURES
    }
    REFUSAL: ClassVar[type[BfcvizError]] = LiveError

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.measure == GROWTH and not self.is_upper:
            raise LiveError(f"an alert for {GROWTH} needs an upper threshold: give above")

    @property
    def words(self) -> str:
        """The condition as text."""
        return f"{MEASURES[self.measure]} {self.bound}"


def check_alerts(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """The alerts as a tuple; raises LiveError where one is not an Alert."""
    given = tuple(alerts)
    for each in given:
        if not isinstance(each, Alert):
            raise LiveError(f"{each!r} is not an alert: give bfcviz.Alert('bytes_in_use', above='400MiB')")
    return given


class Alarm(NamedTuple):
    """An alert that went off.

    Attributes:
        alert: the alert.
        heap: the name of the heap.
        step: the step of the worst value since the last check.
        value: the value at that step, in bytes or as a share (0..1).
        text: all of this as one sentence.
    """

    alert: Alert
    heap: str
    step: int
    value: float
    text: str

    @property
    def mark(self) -> tuple[str, int]:
        """Label and value of its MARK; a share is given in per cent."""
        value = 100 * self.value if self.alert.measure in RATIOS else self.value
        return MARKED + self.alert.words, round(value)
