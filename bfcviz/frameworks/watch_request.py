"""Check a request for a framework, way and options against the table, for `bfcviz.watch` and `bfcviz record`."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bfcviz.errors import LiveError
from bfcviz.frameworks.option_types import OBJECT
from bfcviz.frameworks.supported_frameworks import FRAMEWORKS, Framework, Option, Way


class WatchRequest(NamedTuple):
    """A framework to watch, the way, and the options of that way's function."""

    framework: str
    way: str
    options: Mapping[str, Any]


def resolve(
    name: str,
    way: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    for_command: bool = False,
) -> WatchRequest:
    """Resolve a request: find the way to watch a framework, and check its options.

    Args:
        name: its import name.
        way: `serve` or `observe`; a mechanism stands for its way. Default: the usual way, or the way whose own options
            are given. A limit or capture alone selects none: it may apply to every framework.
        options: by their names in Python.
        for_command: whether errors name options as on the command line.

    Raises:
        LiveError: there is no such framework, way or option, or an option has an invalid value.
    """
    framework = find(name)
    given = dict(options or {})
    if way is None:
        own = given.keys() - {"limit", "capture"}
        found = next((each for each in framework.ways if takes(each, own)), framework.ways[0])
    else:
        found, given = _named(framework, way, given, for_command=for_command)
    for option, value in given.items():
        known = found.option(option)
        if known is None:
            raise _unknown(framework, found, option, for_command=for_command)
        try:
            given[option] = known.type.check(value)
        except (TypeError, ValueError):
            raise LiveError(
                f"{framework.title}, way {found.name!r}: {_spelled(known, for_command)}={value!r} was given; "
                f"give {known.type.text}"
            ) from None
    return WatchRequest(name, found.name, given)


def find(name: str) -> Framework:
    """The framework of this name; raises LiveError if there is none."""
    if name not in FRAMEWORKS:
        raise LiveError(f"{name} is unknown to bfcviz; choose one of {', '.join(FRAMEWORKS)}")
    return FRAMEWORKS[name]


def way_of(request: WatchRequest) -> Way:
    """The table's entry of the way."""
    return next(each for each in FRAMEWORKS[request.framework].ways if each.name == request.way)


def takes(way: Way, options: Iterable[str]) -> bool:
    """Whether a way has all these options."""
    return all(way.option(name) is not None for name in options)


def _named(
    framework: Framework, word: str, options: dict[str, Any], *, for_command: bool
) -> tuple[Way, dict[str, Any]]:
    """The way that a word names, directly or by its mechanism."""
    if (found := framework.way(word)) is not None:
        return found, options
    for way in framework.ways:
        if way.has_mechanism(word):
            if options.get("mechanism", word) != word:
                raise LiveError(
                    f"{framework.title}: way {word!r} and mechanism {options['mechanism']!r} were given; give "
                    f"way {way.name!r} and one mechanism"
                )
            return way, {**options, "mechanism": word}
    ways = " or ".join(repr(way.name) for way in framework.ways)
    asked = f"--{framework.name} --way {word}" if for_command else f"{framework.name}={word!r}"
    raise LiveError(f"{asked} was asked for; {framework.title} can be watched by {ways}")


def _unknown(framework: Framework, way: Way, name: str, *, for_command: bool) -> LiveError:
    """The error for an option that a way does not take."""
    there = [
        _spelled(option, for_command) for option in way.options if not for_command or option.type.metavar
    ]
    others = [other.name for other in framework.ways if other.option(name) is not None]
    hint = f"; way {others[0]!r} takes it" if others else ""
    word = Option(name, OBJECT)
    return LiveError(
        f"{framework.title}, way {way.name!r}, does not take {_spelled(word, for_command)}; its options are "
        f"{', '.join(there) or 'none'}{hint}"
    )


def _spelled(option: Option, for_command: bool) -> str:  # noqa: FBT001  its only variant
    return option.flag if for_command else option.name
