"""The types of frameworks' options: check values from Python, and parse words of the command line."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from bfcviz.units import parse_bytes


@dataclass(frozen=True)
class OptionType:
    """The values that an option takes.

    Attributes:
        text: what to give, for errors.
        check: returns a valid value from Python as it is passed on; raises TypeError or ValueError for others.
        metavar: the name of a value on the command line; "": the option exists only in Python.
        parse: makes a value from a word of the command line; raises ValueError.
        words: all values, if they are a few words.
    """

    text: str
    check: Callable[[Any], Any]
    metavar: str = ""
    parse: Callable[[str], Any] = str
    words: tuple[str, ...] = ()


def one_of(*words: str) -> OptionType:
    """One of a few words."""

    def check(value: Any) -> Any:
        if value not in words:
            raise ValueError
        return value

    return OptionType(f"one of {', '.join(words)}", check, f"{{{','.join(words)}}}", check, words)


def _size(value: Any) -> Any:
    return value if value is None else parse_bytes(_not_bool(value))


def _number(value: Any) -> Any:
    if value is not None and not isinstance(_not_bool(value), int | float):
        raise TypeError
    return value


def _count(value: Any) -> Any:
    if not isinstance(_not_bool(value), int):
        raise TypeError
    return value


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise TypeError
    return value


def _devices(value: Any) -> Any:
    if value is not None and (isinstance(value, str) or not isinstance(value, Iterable)):
        raise TypeError
    return value if value is None else list(value)


def _device_numbers(text: str) -> list[int]:
    if not all(each.isdecimal() for each in text.split(",")):
        raise ValueError(repr(text))
    return [int(each) for each in text.split(",")]


def _anything(value: Any) -> Any:
    return value


def _captured(value: Any) -> Any:
    """A word; an object of bfcviz is checked by the function that gets it."""
    return _WORDS.check(value) if isinstance(value, str) else value


SIZE: Final = OptionType("bytes, or text such as '512MiB'", _size, "SIZE", parse_bytes)
NUMBER: Final = OptionType("a number", _number, "NUMBER", float)
SECONDS: Final = OptionType("seconds", _number, "SECONDS", float)
COUNT: Final = OptionType("a whole number", _count, "COUNT", int)
DEVICES: Final = OptionType("numbers of devices, such as 0 and 1", _devices, "0,1,...", _device_numbers)
_WORDS: Final = one_of("nothing", "label", "stack")
CAPTURE: Final = replace(_WORDS, check=_captured)
"""What is recorded with each allocation; in Python also `Stacks`."""

OBJECT: Final = OptionType("an object of bfcviz", _anything)
"""Checked by the function that gets it; not for the command line."""
