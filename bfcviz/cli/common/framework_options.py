"""The arguments of `bfcviz record` that come from the table of frameworks: the framework, its way and its options."""

import argparse
from collections.abc import Mapping
from typing import Any, NamedTuple

from bfcviz.frameworks.option_types import one_of
from bfcviz.frameworks.supported_frameworks import FRAMEWORKS, Framework, Option
from bfcviz.frameworks.watch_request import resolve, takes

_DEFAULTS = [each for each in FRAMEWORKS.values() if each.is_default]
_FALLBACK = next(each for each in _DEFAULTS if each.memory == "host")
"""The default framework on a machine without a GPU."""


class Selection(NamedTuple):
    """What to record, as JSON values for the recorded process.

    Attributes:
        framework: its name; None: the first of `defaults` that the process can use.
        way: `serve` or `observe`; None: the usual way.
        options: of that way's function.
        defaults: frameworks that take these options, each with whether it needs a GPU.
    """

    framework: str | None
    way: str | None
    options: Mapping[str, Any]
    defaults: list[tuple[str, bool]]


def add_framework_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each framework, and one for each option."""
    which = parser.add_mutually_exclusive_group()
    for name, framework in FRAMEWORKS.items():
        which.add_argument(
            f"--{name}", dest="framework", action="store_const", const=name, help=_help(framework)
        )
    ways = dict.fromkeys(way.name for framework in FRAMEWORKS.values() for way in framework.ways)
    parser.add_argument(
        "--way",
        choices=tuple(ways),
        help="serve the framework from bfcviz's own heap, or observe its own allocator (default: its first way)",
    )
    for option in _options():
        parser.add_argument(
            option.flag,
            dest=option.name,
            type=_parser(option),
            metavar=option.type.metavar,
            help=option.help.replace("%", "%%"),
        )


def selection_of(arguments: argparse.Namespace) -> Selection:
    """The selection that the flags make.

    Raises:
        LiveError: the framework does not have this way or option; the message names the flags.
    """
    names = [option.name for option in _options()]
    options = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    wish = resolve(arguments.framework or _FALLBACK.name, arguments.way, options, for_command=True)
    if arguments.framework is not None:
        return Selection(wish.framework, wish.way, wish.options, [])
    defaults = [
        (each.name, each.memory != "host") for each in _DEFAULTS if _fits(each, arguments.way, options)
    ]
    return Selection(None, arguments.way, wish.options, defaults)


def _fits(framework: Framework, way: str | None, options: Mapping[str, Any]) -> bool:
    """Whether a framework has a way that takes all these options."""
    return any(takes(each, options) for each in framework.ways if way in (None, each.name))


def _help(framework: Framework) -> str:
    ways = "; or ".join(f"{way.name}: {way.help}" for way in framework.ways)
    needs = "; or ".join(dict.fromkeys(way.needs for way in framework.ways if way.needs))
    default = ", the default where it is installed and there is a GPU" if framework.is_default else ""
    if framework is _FALLBACK:
        default = ", otherwise the default"
    return f"{framework.title}{default}. {ways}" + (f" (needs {needs})" if needs else "")


def _options() -> list[Option]:
    """Every option of the command line; its help names the frameworks and ways that take it."""
    found: dict[str, list[tuple[Option, str]]] = {}
    for framework in FRAMEWORKS.values():
        for way in framework.ways:
            for option in way.options:
                if option.type.metavar:
                    found.setdefault(option.name, []).append((option, f"{framework.title} {way.name}"))
    return [_for_all(each) for each in found.values()]


def _for_all(found: list[tuple[Option, str]]) -> Option:
    """One option for all that take it, with the words of all of them; `resolve` checks the words of one way."""
    takers: dict[str, list[str]] = {}
    for option, taker in found:
        takers.setdefault(option.help, []).append(taker)
    text = "; ".join(f"{said} ({', '.join(names)})" for said, names in takers.items())
    first = found[0][0]
    words = dict.fromkeys(word for option, _ in found for word in option.type.words)
    return Option(first.name, one_of(*words) if words else first.type, text)


def _parser(option: Option) -> Any:
    def parse(text: str) -> Any:
        try:
            return option.type.parse(text)
        except ValueError as error:
            reason = f"{error}" or repr(text)
            raise argparse.ArgumentTypeError(f"{reason}; give {option.type.text}") from None

    return parse
