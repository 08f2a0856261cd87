"""StatedFailure: what a text states of one failed request, and when."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

IMPOSSIBLE: Final = 1 << 50
"""No device has so much memory: drivers print it for `unlimited`, `unknown`, or a negative number."""


class LogTime(NamedTuple):
    """When a log tells of a stated failure, by the clock of the program that wrote it.

    Attributes:
        ns: nanoseconds of the calendar, in whatever time zone; of a time without its year those of 1972.
        is_own: whether it is that of the line itself; else of the last line before it that has one.
    """

    ns: int
    is_own: bool


def calendar_seconds(date: str, clock: str) -> int | None:
    """Whole seconds since 1970 of a day `2024-01-31` and a time `23:59:59` in a text; None where there is none such."""
    try:
        return int(datetime.fromisoformat(f"{date}T{clock}").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


@dataclass(frozen=True)
class StatedFailure:
    """One failure that a text tells of, or one refusal that is none.

    Attributes:
        message: name of the table entry that told it.
        framework: as a person writes it: `PyTorch CUDA`, `JAX TPU`, `llama.cpp`.
        facts: bytes by name, as in `why --json`: `requested`, `device_total`, `device_free`, `allocated`, `limit`, ...
        slack: how far a fact may be off, because the text rounds it; facts that are exact are not in it.
        marks: what else the text says: `soft`, `host`, `windows`, `vllm`, `no_table`, ...
        version: the versions that print such a text; "" if it does not tell.
        op: the operation that failed.
        shape: dimensions of its tensor; empty where the text does not say it.
        dtype: type of its elements.
        processes: pid -> bytes of each process that the text lists.
        largest: shape, operator and line of the largest buffer of a program; "" where the text does not say it.
        ranks: of the job that had it, where the lines of several are one text; the numbers are of the first.
        streams: what the launcher put before the lines of each process that had it, such as `node3`; empty where the
            lines are not those of several processes.
        devices: numbers of the devices that refused, as the program counts them; empty where the text names none.
        line: of the text, from 1, where it begins.
        count: how often the text tells it.
        text: its first line.
        time: when; None where no line near it says that.
    """

    message: str
    framework: str
    facts: Mapping[str, int] = field(default_factory=dict)
    slack: Mapping[str, int] = field(default_factory=dict)
    marks: frozenset[str] = frozenset()
    version: str = ""
    op: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    processes: Mapping[int, int] = field(default_factory=dict)
    largest: str = ""
    ranks: tuple[int, ...] = ()
    streams: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    line: int = 1
    count: int = 1
    text: str = ""
    time: LogTime | None = None

    def fact(self, name: str) -> int | None:
        """Bytes of a fact that a failure states; None where its text does not state it, or states what cannot be."""
        value = self.facts.get(name)
        return None if value is None or not 0 <= value < IMPOSSIBLE else value

    def joined(self, other: "StatedFailure") -> "StatedFailure":
        """This stated failure, with the ranks, the streams, the devices and the count of another that is the same."""
        return replace(
            self,
            ranks=tuple(dict.fromkeys((*self.ranks, *other.ranks))),
            streams=tuple(dict.fromkeys((*self.streams, *other.streams))),
            devices=tuple(dict.fromkeys((*self.devices, *other.devices))),
            count=self.count + other.count,
            op=self.op or other.op,
            version=self.version or other.version,
        )

    def exceeds(self, name: str, other: int) -> bool:
        """Whether a fact that a failure states is larger than a number, also where its text was rounded up."""
        # A request may be larger than any device: then a size overflowed.
        value = self.facts.get(name) if name == "requested" else self.fact(name)
        return value is not None and value - self.slack.get(name, 0) > other
