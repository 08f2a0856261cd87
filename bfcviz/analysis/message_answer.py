"""Answer `why` for a text: each stated failure with verdict and advice, as lines, as HTML and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from bfcviz.analysis.account import Account, DeviceAccount, account_of, figures_of_facts
from bfcviz.analysis.message_advice import StatedAdvice, advise
from bfcviz.analysis.message_verdict import Judgement, StatedCause, judge, judge_soft
from bfcviz.analysis.short_names import cut
from bfcviz.answers import Answer, data_frame
from bfcviz.formats.message_grammar import StatedFailure
from bfcviz.formats.message_tables import HOST, counts
from bfcviz.units import counted, format_bytes, listed

if TYPE_CHECKING:
    import pandas as pd

_WIDTH: Final = 110  # characters of a line in a notebook
_COUNTS: Final = {
    "num_ooms", "num_retries", "num_allocs", "max_tokens", "kv_tokens", "prefill_tokens", "total_tokens",
    "max_requests", "missing_tokens", "asked_tokens", "free_tokens", "asked_requests", "free_requests",
    "retracted_requests", "killed_workers", "preemptions",
}  # fmt: skip
"""Facts that are no bytes."""

_REFUSED: Final = {
    "host-shared", "host-mapping", "host-cpp", "host-jupyter", "host-duckdb", "host-r-limit", "host-java",
    "host-nvidia", "usage-slurm", "usage-grid",
}  # fmt: skip
_ENDED: Final = {
    **{entry.name: "ended a process" for entry in HOST if entry.name not in _REFUSED},
    **dict.fromkeys(
        (
            "host-slurm-limit",
            "host-dask-lost",
            "host-ray-lost",
            "host-jupyter",
            "program-dispatch",
            "peer-lost",
        ),
        "failed",
    ),
    "status-exhausted": "failed",
    **dict.fromkeys(("host-signal", "host-killed"), "ended a process"),
}
"""A text that tells of no request -> what happened."""

_OPERATIONS: Final = {
    "host-killed": "program",
    "host-systemd": "unit",
    "host-ray": "task",
    "trtllm-executor": "component",
    "program-kokkos": "array",
}
"""A text -> what it names."""


@dataclass(frozen=True)
class StatedFailureAnswer:
    """One stated failure, or a refusal that is none, with its verdict and advice."""

    stated: StatedFailure
    is_soft: bool = False

    @cached_property
    def judgement(self) -> Judgement:
        """The verdict in the answer on a stated failure: why it was refused."""
        return judge_soft(self.stated) if self.is_soft else judge(self.stated)

    @cached_property
    def advice(self) -> tuple[StatedAdvice, ...]:
        """The advice in the answer on a stated failure, the one thing first."""
        return advise(self.stated, self.judgement)

    @cached_property
    def account(self) -> DeviceAccount | None:
        """Who holds the memory of the device of a stated failure; None: the text tells too little."""
        stated = self.stated
        processes = {} if "several_devices" in stated.marks else stated.processes
        figures = figures_of_facts(stated.facts, stated.slack, processes, stated.framework)
        if self.is_soft and figures.free is None and "device_used" in stated.facts:  # a table of this moment
            others = sum(processes.values()) if processes else None
            figures = replace(figures, free=figures.free_at_start, free_at_start=None, others=others)
        found = account_of(figures)
        # The parts in vLLM's report are not those of an account.
        is_empty = found.total is None or "weights" in stated.facts
        return None if is_empty and len(found.parts) < 2 else found

    @property
    def headline(self) -> str:
        """The answer on a stated failure in a line: the verdict, and why; else what it is."""
        sentence = self.judgement.sentence
        return sentence if self.is_soft else f"{self._cause}: {sentence}"

    @property
    def _cause(self) -> str:
        """The cause of a stated failure in words; where only a candidate is known, that it is one."""
        cause = self.judgement.cause
        if cause is StatedCause.DRIVER_REFUSED and self.stated.message in _WITH_FREE_MEMORY and self._second:
            return "driver refused, device nearly full"
        if cause is StatedCause.UNKNOWN and self._second:
            return f"perhaps {self._second}"
        return cause.replace("_", " ")

    @property
    def _second(self) -> str:
        """The next likely cause of a stated failure in words; "" where there is none."""
        second = self.judgement.second
        return "" if second in {None, StatedCause.UNKNOWN} else str(second).replace("_", " ")

    @property
    def lines(self) -> list[str]:
        """The report of an answer: the verdict, the one thing to do, the numbers, what else would help."""
        stated, judged = self.stated, self.judgement
        size = stated.fact("requested")
        asked = "" if size is None else f" {format_bytes(size, 2)}"
        is_second = self._second and judged.cause is not StatedCause.UNKNOWN
        second = f" Second candidate: {self._second}." if is_second else ""
        is_other = StatedCause.NOT_LACK_OF_MEMORY in {judged.cause, judged.second}
        what = _ENDED.get(stated.message, "failed" if is_other else f"failed to allocate{asked}")
        head = f"{stated.framework} {what}: {self._cause}."
        return [
            *([judged.sentence] if self.is_soft else [head, f"  {judged.sentence}{second}"]),
            *([f"  To do: {self.advice[0].text}"] if self.advice else []),
            self._place(),
            *self._numbers(),
            *([] if self.account is None else self.account.lines()),
            *(["What else would help"] if len(self.advice) > 1 else []),
            *(f"  - {each.text}" for each in self.advice[1:]),
        ]

    def _place(self) -> str:
        stated = self.stated
        told = f", told {counted(stated.count, 'time')}" if stated.count > 1 else ""
        version = f", version {stated.version}" if stated.version else ""
        ranks = listed(list(map(str, stated.ranks)))
        if len(stated.ranks) > 1 and stated.facts:
            ranks += f" (the numbers are of rank {stated.ranks[0]})"
        of = f", {'ranks' if len(stated.ranks) > 1 else 'rank'} {ranks}" if ranks else ""
        if stated.streams:
            of += f"{'' if ranks else ','} of {listed(list(stated.streams))}"
            of += (
                f" (the numbers are of {stated.streams[0]})" if len(stated.streams) > 1 and not ranks else ""
            )
        return f"Line {stated.line:,}{of}{told}{version}: {cut(stated.text)}"

    def _numbers(self) -> list[str]:
        stated = self.stated
        rows = []
        for name, number in stated.facts.items():
            text = f"{number:,}" if name in _COUNTS else format_bytes(number, 2)
            what = counts(stated.message, name)
            if name == "allocated" and stated.fact("private_pools"):
                what += ", and the free memory of private pools"
            rows.append(f"  {name.replace('_', ' '):<22}{text:>12}  {what}".rstrip())
        for pid, size in stated.processes.items():
            rows.append(f"  {f'process {pid}':<22}{format_bytes(size, 2):>12}")
        if stated.shape:
            rows.append(f"  {'tensor':<22}{stated.dtype} {list(stated.shape)}")
        if stated.op:
            what = _OPERATIONS.get(stated.message, "operation")
            rows.append(f"  {what:<22}{stated.op}")
        if stated.devices:
            name = "devices" if len(stated.devices) > 1 else "device"
            of = (
                f" (the numbers are of {stated.devices[0]})" if name == "devices" and not stated.ranks else ""
            )
            rows.append(f"  {name:<22}{listed(list(map(str, stated.devices)))}{of}")
        return rows

    def to_json(self) -> dict[str, Any]:
        """The entry of `bfcviz why --json`."""
        stated, judged = self.stated, self.judgement
        processes = {f"process_{pid}": size for pid, size in stated.processes.items()}
        return {
            "verdict": str(judged.cause),
            "second_verdict": None if judged.second is None else str(judged.second),
            "sentence": judged.sentence,
            "framework": stated.framework,
            "version": stated.version,
            "facts": {**stated.facts, **processes},
            "advice": [{"kind": str(each.kind), "text": each.text} for each in self.advice],
            "account": None if self.account is None else self.account.to_json(),
            "op": stated.op,
            "tensor": f"{stated.dtype} {list(stated.shape)}" if stated.shape else "",
            "message": stated.text,
            "line": stated.line,
            "count": stated.count,
            "ranks": list(stated.ranks),
            "streams": list(stated.streams),
            "devices": list(stated.devices),
        }


def _each_stated_failure_once(failures: Sequence[StatedFailure]) -> list[StatedFailureAnswer]:
    """The stated failures; those of several ranks or devices with one cause and request once, as the first."""
    found: dict[tuple[object, ...], StatedFailure] = {}
    for number, each in enumerate(failures):
        cause, request = judge(each).cause, each.fact("requested")
        key: tuple[object, ...] = (
            each.message,
            each.framework,
            cause,
            request,
            bool(each.ranks or each.streams),
        )
        # Without ranks in the text, what fails on the same device again is another failure.
        if not (each.ranks or each.streams) and not (
            each.devices and set(each.devices).isdisjoint(_devices_of(found.get(key)))
        ):
            key = (number,)
        found[key] = found[key].joined(each) if key in found else each
    return list(map(StatedFailureAnswer, found.values()))


def _devices_of(found: StatedFailure | None) -> tuple[int, ...]:
    return () if found is None else found.devices


@dataclass(frozen=True, repr=False)
class StatedAnswer(Answer):
    """What a text tells of memory that ran out; `print` it for the report.

    Attributes:
        failures: requests that failed, equal ones once, in the order of the text.
        soft: refusals that are no failure, and tables.
        left_out: messages of a very long text that were not read.
        among: of several ranks, which one it is, and how many failed; empty: of one text.
    """

    failures: tuple[StatedFailureAnswer, ...]
    soft: tuple[StatedFailureAnswer, ...]
    left_out: int = 0
    among: str = ""

    @classmethod
    def of(
        cls, failures: Sequence[StatedFailure], soft: Sequence[StatedFailure], left_out: int = 0
    ) -> "StatedAnswer":
        """The answer for what a text states."""
        return cls(
            tuple(_each_stated_failure_once(failures)),
            tuple(StatedFailureAnswer(each, is_soft=True) for each in soft),
            left_out,
        )

    @property
    def lines(self) -> list[str]:
        """The report of the answer on a text."""
        shown, found = self.failures or self._largest_soft, list[str]()
        for each in shown:
            found += [*([""] if found else []), *each.lines]
        if self.among:
            found.insert(1, f"  rank: {self.among}")
        others = self.soft if self.failures else tuple(each for each in self.soft if each not in shown)
        if others:
            found += ["", "No failures, in the same text"]
            found += [f"  - {each.judgement.sentence}" for each in others[:_MOST_SOFT]]
        if len(others) > _MOST_SOFT:
            found.append(f"  and {len(others) - _MOST_SOFT:,} more")
        if self.left_out:
            found += ["", f"{self.left_out:,} more messages follow in the text; they were not read."]
        return found

    @property
    def account(self) -> Account:
        """Who held the memory at each stated failure; of a text without one, what it tells of now."""
        told = self.failures or self._largest_soft
        found = [
            each.account
            if len(told) == 1
            else replace(each.account, device=f"line {each.stated.line:,}, {each.account.device}")
            for each in told
            if each.account is not None
        ]
        notes = () if found else ("The text does not say how much the device has, nor who holds it.",)
        return Account(tuple(found), notes)

    @property
    def _largest_soft(self) -> tuple[StatedFailureAnswer, ...]:
        """Of a text without a stated failure, the refusal of the most bytes."""
        return (max(self.soft, key=lambda each: each.stated.fact("requested") or 0),) if self.soft else ()

    def to_json(self) -> dict[str, Any]:
        """The answer on a text as JSON: the object of `bfcviz why --json`."""
        answer: dict[str, Any] = {"failures": [each.to_json() for each in self.failures], "growths": []}
        if not self.failures and self.soft:
            told: Mapping[str, Any] = self._largest_soft[0].to_json()
            answer |= {
                name: told[name]
                for name in ("verdict", "sentence", "framework", "facts", "advice", "account")
            }
        if self.soft:
            answer["no_failures"] = [each.to_json() for each in self.soft]
        return answer | ({"failures_left_out": self.left_out} if self.left_out else {})

    def to_pandas(self) -> "pd.DataFrame":
        """One row a stated failure, or a refusal that is none: line, framework, verdict, then its numbers."""
        told = [each.to_json() for each in self.failures or self.soft]
        facts = dict.fromkeys(name for each in told for name in each["facts"])
        columns = {
            name: [each[name] for each in told] for name in ("line", "framework", "verdict", "sentence")
        }
        return data_frame(columns | {name: [each["facts"].get(name) for each in told] for name in facts})

    @property
    def unwrapped(self) -> list[str]:
        """The report of the answer on a text, a line for each statement."""
        return self.lines

    def __str__(self) -> str:
        return "\n".join(part for line in self.unwrapped for part in _wrapped_stated_line(line))


_MOST_SOFT: Final = 10

_WITH_FREE_MEMORY: Final = {"torch-cuda", "torch-cut", "torch-async", "torch-async-cut"}
"""Texts that say what is free: of these a driver that refused has a second cause only on a device that is full."""


def _wrapped_stated_line(line: str) -> list[str]:
    start = len(line) - len(line.lstrip(" -"))
    return wrap(line, _WIDTH, subsequent_indent=" " * max(start, 2), break_long_words=False) or [""]
