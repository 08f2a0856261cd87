"""The grammar of the tables of messages: how a table describes what a framework prints, and what such a text states.

A table has a template as the framework's source has it: words, `{size}` for a number of bytes with its unit,
`{number}` for a number without one. White space may be a line break, because people paste texts that a terminal or a
quotation wrapped. Every repetition is bounded, so a search takes time proportional to the text.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, NamedTuple

# ------------------------------------------------------------------------------
# Sizes as frameworks print them: `4.22 GiB`, `530.00M`, `0 bytes`, `25,600,000 bytes`, `1062 MB`. All are binary.

_DIGITS: Final = (
    r"-?\d(?:[\d,]{0,30}\d)?(?:\.\d{1,9}|\.(?=\s?(?i:[KMGTPE]i?B\b)))?"  # NumPy prints `201. GiB`
)
_UNIT: Final = r"\s{0,3}(?i:(?:[KMGTPE]i?)?B(?:ytes?)?\b|bytes?\b|[KMGTPE]\b)"
_PLACES: Final = {
    r"\{size\}": f"({_DIGITS}(?:{_UNIT})?)",
    r"\{bytes\}": f"({_DIGITS}{_UNIT})",
    r"\{number\}": f"({_DIGITS})",
    r"\{amount\}": rf"({_DIGITS}{_UNIT}|0x[\dA-Fa-f]{{4,16}}\b|\d{{5,20}}\b)",
    r"\{skip\}": r"[^|;\n]{1,40}?",
    r"\{word\}": r"\S{1,120}?",
    r"\{sep\}": r"['\":=,\s]{1,12}",
    r"\{count\}": r"([1-9]\d{0,8})",
    r"\{alone\}": r"(?![\da-fA-F]|[:.]\d)",
    r"\{start\}": r"(?:(?m:^)|(?<=[\]\r])|(?<=[\]:|>Z] ))",
    r"\{end\}": r"(?=[ \t:`]{0,8}(?m:$))",
}


def template(text: str, flags: int = 0) -> re.Pattern[str]:
    """The pattern of a template of a table; its first group is the number.

    White space of the template matches any, also none: a line may be cut at any place. `{bytes}` is a size whose
    unit is always printed, so that a number that was cut before its unit is none; `{amount}` is that, or a number of
    bytes that is too large for a count, in hexadecimal digits, too; `{skip}` is a short text, `{word}`
    one word, `{sep}` what stands between a name and its value, `{count}` a number above 0; `{alone}` follows the whole
    of a number; `{start}` and `{end}` are those of a line.
    """
    pattern = r"\s{0,40}".join(re.escape(word) for word in text.split())
    for place, meaning in _PLACES.items():
        pattern = pattern.replace(place, meaning)
    return re.compile(pattern, flags)


TERMINAL_CODE: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])"
)
"""What sets colours and moves the cursor of a terminal."""

BOLD_NUMBER: Final = re.compile(r"\*\*(?<![\w)]\*\*)(\d[^*\n]{0,40})\*\*(?!\w)")
"""A number that people print bold, as Markdown has it: `**2.25GiB**`. Its plain beginning is found fast."""


# ------------------------------------------------------------------------------
# The tables: what a framework prints, and what each of its numbers counts.


class Role(StrEnum):
    """What a message says of the program."""

    FAILURE = "failure"  # a request failed, and the program was told so
    SOFT = "soft"  # a request was refused, and the framework goes on: it tries less, or another way
    RETRY = "retry"  # the failure just before was soft
    AFTER_ALL = "after_all"  # the soft refusal just before ended the program
    REPORT = "report"  # a table of counters: a failure only if it counts one
    BEFORE = (
        "before"  # numbers that belong to the failures after it, such as those of the driver at the start
    )
    AFTER = "after"  # numbers that belong to the failure before it, such as the table of a program
    CONSEQUENCE = "consequence"  # another process of the job was late or gone: that one failed first


@dataclass(frozen=True)
class Number:
    """One number of a message, as a table describes it.

    Attributes:
        name: of the fact, as in `why --json`.
        counts: what it counts.
        texts: its templates, by version; the first that fits counts.
        unit: K, M, G or T where the text has none.
    """

    name: str
    counts: str
    texts: tuple[str, ...]
    unit: str = ""

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """Find the number of a message; people who retype a text change its case."""
        return tuple(template(text, re.IGNORECASE) for text in self.texts)


@dataclass(frozen=True)
class Message:
    """One message that a framework prints, as a table describes it.

    Attributes:
        name: of this entry, as `torch-cuda`.
        framework: whose text it is, as a person writes it.
        means: what it says, in one or two sentences.
        begins: templates of its beginning.
        whose: one of `begins` -> the program that prints it, where that is not `framework`.
        source: the file of the framework that prints it.
        role: what it says of the program.
        family: texts of one family can tell of the same failure; None: the first part of the name, for `program-...`
            the second. "": its numbers belong to a failure of any family.
        numbers: what it states.
        marks: words in the text -> a mark of the failure, such as `host`.
        versions: words in the text -> the versions that print them; the first that fits.
        behind: characters before the beginning that belong to it, too.
        device: templates of the number of the device that refused; the first that fits counts.
        rank: templates of the rank that it tells of, where that is not the one whose line it is.
        is_weak: it says least: read only where no other text tells of a failure.
        is_alone: no word in small letters follows its beginning: with one it is a sentence of a person.
        within: of `RETRY`: lines from the end of the failure up to it; 0: any number.
        place: where a text that is a whole line must stand: at the end of a `traceback`, or as the `last` line that a
            program printed; `printed`, of words that any program may print: in a line that has what lines of programs
            have, and no words of a person, and only where no other text tells of a failure. "": anywhere.
    """

    name: str
    framework: str
    means: str
    begins: tuple[str, ...]
    source: str
    role: Role = Role.FAILURE
    whose: Mapping[str, str] = field(default_factory=dict)
    family: str | None = None
    numbers: tuple[Number, ...] = ()
    marks: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    behind: int = 0
    device: tuple[str, ...] = ()
    rank: tuple[str, ...] = ()
    is_weak: bool = False
    is_alone: bool = False
    within: int = 0
    place: str = ""

    def __post_init__(self) -> None:
        if self.family is None:
            object.__setattr__(self, "family", self.name.removeprefix("program-").partition("-")[0])

    @property
    def is_general(self) -> bool:
        """Whether any program may print the words of the message."""
        return self.place == "printed"

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """Find the beginning of the message."""
        return tuple(map(template, self.begins))

    @cached_property
    def small_patterns(self) -> tuple[re.Pattern[str], ...]:
        """Find the beginning of the message in a text that is in small letters."""
        return tuple(template(text.lower()) for text in self.begins)

    @cached_property
    def device_patterns(self) -> tuple[re.Pattern[str], ...]:
        """Find the number of the device of the message."""
        return tuple(template(text, re.IGNORECASE) for text in self.device)

    @cached_property
    def rank_patterns(self) -> tuple[re.Pattern[str], ...]:
        """Find the rank that the message tells of."""
        return tuple(template(text, re.IGNORECASE) for text in self.rank)


def messages_of(table: str) -> tuple[Message, ...]:
    """The messages of a table, which is written as the texts are: an entry has a first line, and deeper ones.

    ```
    name | framework | role=soft family=host behind=60 within=3 place=last weak alone host like=ANOTHER
        = what the text says; a line with a deeper indent continues the one before
        in the files that print it
        > a template of its beginning <- "the program that prints it, if that is another"
        requested[M]: what a number counts, with its unit <- "its templates" 'by version'
        mark storage <- "words of the text" "others"
        version 2.1 or later <- "words of the text"
        device <- "templates of its number"; rank is written in the same way
    ```

    `host` marks each text of the entry as one on system memory; `like` takes the rest from an entry above.

    Raises:
        ValueError: a line of an entry is of no kind above.
    """
    found: dict[str, Message] = {}
    for entry in re.split(r"\n(?=\S)", table.strip()):
        head, *lines = re.sub(r"\n {8,}", " ", entry).split("\n")
        name, framework, *options = head.split(" | ")
        fields: dict[str, Any] = {"name": name, "framework": framework}
        for option in " ".join(options).split():
            key, _, value = option.partition("=")
            fields |= {key: _VALUES.get(key, str)(value)} if value else _OPTIONS[key]
        for line in lines:
            _take_line_of_entry(fields, line.strip())
        base = found.get(fields.pop("like", ""))
        found[name] = Message(**fields) if base is None else replace(base, **fields)
    return tuple(found.values())


_VALUES: Final[Mapping[str, Callable[[str], Any]]] = {"role": Role, "behind": int, "within": int}
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "weak": {"is_weak": True},
    "alone": {"is_alone": True},
    "host": {"marks": {"": "host"}},
    "family": {"family": ""},
}
"""An option without a value -> what it says."""

_NUMBER: Final = re.compile(r"([a-z_]+)(?:\[([KMGT])\])?:")
"""What a line of a number begins with: its name, its unit and a colon."""

_QUOTED: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'")


def _take_line_of_entry(fields: dict[str, Any], line: str) -> None:
    """What one line of a table says of a message, by the attribute."""
    what, _, quoted = line.partition(" <- ")
    texts = tuple(one or other for one, other in _QUOTED.findall(quoted))
    kind, _, words = what.partition(" ")
    match kind:
        case "=" | "in":
            fields["means" if kind == "=" else "source"] = words
        case ">":
            fields["begins"] = (*fields.get("begins", ()), words)
            if texts:
                fields.setdefault("whose", {})[words] = texts[0]
        case "mark" | "version":
            fields[f"{kind}s"] = fields.get(f"{kind}s", {}) | dict.fromkeys(texts, words)
        case "device" | "rank":
            fields[kind] = texts
        case _:
            if not (number := _NUMBER.fullmatch(kind)) or not texts:
                raise ValueError(f"{fields['name']}: a line of the table is of no known kind: {line}")
            name, unit = number.groups(default="")
            fields["numbers"] = (*fields.get("numbers", ()), Number(name, words, texts, unit))


# ------------------------------------------------------------------------------
# StatedFailure: what a text states of one failed request, and when.

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
